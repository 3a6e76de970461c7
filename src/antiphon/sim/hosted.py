"""A simulated group on hosts that take time: to wake a process, to work on a datagram, to notice that a timer is due.

What arrives while a process sleeps, is being woken or works waits; then it takes all of it at once, and answers it
together, as a live member does. `antiphon.live.reference_group` measures these times.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median
from typing import Final

import msgspec

from antiphon.protocol.machine import MILLISECOND, Duration, Input, Instant, ReceiveMany
from antiphon.sim.cluster import Node
from antiphon.sim.scenario import Scenario
from antiphon.sim.view_cluster import ViewCluster

WARM_NS: Final = 2 * MILLISECOND  # after this time at rest a process counts as asleep


class HostTimes(msgspec.Struct, frozen=True):
    """What the hosts of a group add to the network's time, in nanoseconds: what was measured, to be drawn from."""

    hop_ns: tuple[Duration, ...] = (0,)  # from one application to another over a network that takes no time
    warm_ns: tuple[Duration, ...] = (0,)  # the same, if the other was at work a moment before
    work_ns: Duration = 0  # of that, the receiver's processor time, during which it takes in nothing else
    timer_ns: tuple[Duration, ...] = (0,)  # by which a timer goes off late, unless it is due when it is set

    def together(self, other: HostTimes) -> HostTimes:
        """Give hosts that were measured twice."""
        return HostTimes(
            self.hop_ns + other.hop_ns,
            self.warm_ns + other.warm_ns,
            (self.work_ns + other.work_ns) // 2,
            self.timer_ns + other.timer_ns,
        )

    def medians_us(self) -> dict[str, float]:
        """Say what is usual, in microseconds."""
        return {
            "hop": median(self.hop_ns) / 1000,
            "warm": median(self.warm_ns) / 1000,
            "work": self.work_ns / 1000,
            "timer": median(self.timer_ns) / 1000,
        }


class HostedCluster(ViewCluster):
    """The driver of a group whose hosts take time."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        host: HostTimes,
        drop: Callable[[int, int, bytes, Instant], bool] | None = None,
    ) -> None:
        self._host = host
        super().__init__(scenario, seed, drop)

    def _make_nodes(self, rng: random.Random) -> list[Node]:
        size = self.scenario.members
        self._chance = random.Random(f"{self.seed}/hosts")
        self._waiting: list[list[bytes]] = [[] for _ in range(size)]
        self._called = [False] * size  # to take in what waits: it is being woken, or at work
        self._worked_at: list[Instant] = [-WARM_NS] * size
        self._alarm_set_at: list[Instant] = [0] * size
        return super()._make_nodes(rng)

    def _arrive(self, arrival: tuple[int, bytes]) -> None:
        me, datagram = arrival
        self._waiting[me].append(datagram)
        if not self._called[me]:
            self._called[me] = True
            host, slept_ns = self._host, self.kernel.now - self._worked_at[me]
            way_ns = self._chance.choice(host.warm_ns if slept_ns < WARM_NS else host.hop_ns)
            self.kernel.after(max(0, way_ns - host.work_ns), self._begin, me)

    def _begin(self, me: int) -> None:
        together, self._waiting[me] = self._waiting[me], []
        self.kernel.after(len(together) * self._host.work_ns, self._end, (me, together))

    def _end(self, work: tuple[int, list[bytes]]) -> None:
        me, together = work
        node = self.nodes[me]
        if node.paused:
            node.missed += together
        elif not node.crashed:
            self.drive(me, node, ReceiveMany(together))
        if self._waiting[me]:
            self._begin(me)
        else:
            self._called[me] = False

    def drive(self, me: int, node: Node, event: Input) -> None:
        """Give a member one input and carry out what follows; it is awake by that."""
        self._worked_at[me] = self.kernel.now
        super().drive(me, node, event)

    def _set_alarm(self, me: int, node: Node) -> None:
        before = node.wake_at
        super()._set_alarm(me, node)
        if node.wake_at != before:
            self._alarm_set_at[me] = self.kernel.now

    def _wake(self, me: int) -> None:
        node, due = self.nodes[me], self.kernel.now
        if self._alarm_set_at[me] < due:
            due += self._chance.choice(self._host.timer_ns)
        if node.wake_at == self.kernel.now:
            node.wake_at = due
        self.kernel.at(due, super()._wake, me)
