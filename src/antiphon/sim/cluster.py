"""Scenario and seed give a trace: real members on a simulated network, the same byte for byte on every machine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.clock import SkewedClock
from antiphon.protocol.machine import (
    MILLISECOND,
    SECOND,
    Deliver,
    Driven,
    Effect,
    Input,
    Instant,
    Receive,
    Send,
    Submit,
    TraceRow,
    Wake,
)
from antiphon.protocol.options import ordering_type
from antiphon.protocol.view.member import Member, View
from antiphon.sim.distributions import duration, sampler
from antiphon.sim.kernel import Kernel
from antiphon.sim.network import Network
from antiphon.sim.scenario import Fault, Scenario
from antiphon.sim.unfinished import Standstill, why_not_finished
from antiphon.trace.event import Event
from antiphon.trace.log import MemberLog

_WAKE = Wake()
_WAKES_IN_A_MILLISECOND_MAX = 10_000  # a member that asks for more never lets time go on


class SimulatedRun(msgspec.Struct, frozen=True):
    """What a simulated run leaves behind."""

    scenario: Scenario
    seed: int
    name: str
    finished: bool  # everything was sent, delivered and let go before the limit
    why_not: str | None  # if it is not finished: what held it up
    ended_ns: Instant
    sent: int
    delivered: int
    logs: list[MemberLog]
    stats: dict[str, Any]

    @property
    def needs_recovery(self) -> bool:
        """Whether the ordering ran on recovery, with a stability protocol of its own choice."""
        return ordering_type(self.scenario.ordering).NEEDS_RECOVERY

    @property
    def events(self) -> list[Event]:
        """The trace as rows, member by member."""
        return [event for log in self.logs for event in log.rows(self.name)]


def simulate(
    scenario: Scenario,
    seed: int = 0,
    *,
    drop: Callable[[int, int, bytes, Instant], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SimulatedRun:
    """Run a scenario to its end; `drop(source, target, datagram, now)` may lose datagrams of a test's choice."""
    if scenario.views:
        from antiphon.sim.view_cluster import ViewCluster

        return ViewCluster(scenario, seed, drop, progress).run()
    return Cluster(scenario, seed, drop, progress).run()


def _overdue(machine: Driven, now: Instant) -> str:
    """Name the class whose deadline has passed: a part of the member, or else the machine itself."""
    member = getattr(machine, "member", machine)
    for part in (getattr(member, name, None) for name in ("ordering", "stability", "recovery")):
        deadline = getattr(part, "deadline", None)
        if deadline is not None and deadline <= now:
            return type(part).__qualname__
    return type(machine).__qualname__


class Node:
    """A member, its clock, its workload and its log."""

    __slots__ = (
        "alarm",
        "backlog",
        "clock",
        "crashed",
        "log",
        "member",
        "missed",
        "paused",
        "submits",
        "submitted",
        "wake_at",
        "wakes",
        "wakes_since",
    )

    def __init__(self, member: Driven, clock: SkewedClock, log: MemberLog) -> None:
        self.member, self.clock, self.log = member, clock, log
        self.wake_at: Instant | None = None  # when the kernel will wake it
        self.alarm: Instant = 0  # and what its clock shows then
        self.wakes = 0  # how often it was woken since
        self.wakes_since: Instant = 0
        self.backlog = 0  # messages that the application has ready but the member has no room for
        self.submitted = 0
        self.submits = False  # what the application has ready is being given to the member
        self.crashed = self.paused = False
        self.missed: list[bytes] = []  # what came while it was paused


class Cluster:
    """The driver of a group of members in simulated time."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        drop: Callable[[int, int, bytes, Instant], bool] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        scenario.check()
        self.scenario, self.seed, self._progress = scenario, seed, progress
        self.kernel = Kernel()
        self.network = Network(
            self.kernel, scenario.members, scenario.network, random.Random(f"{seed}/network"), self._arrive
        )
        self.network.drop = drop
        self._workload_rng = random.Random(f"{seed}/workload")
        self._interval = sampler(scenario.workload.interval, "workload.interval")
        lifetime = scenario.workload.lifetime
        self._lifetime_ns = None if lifetime is None else duration(lifetime, "workload.lifetime")
        self.nodes = self._make_nodes(random.Random(f"{seed}/clocks"))
        self.events_max: int | None = None  # a test may end the run after so many
        self._undrained: set[int] = set()  # those who may have something to send or to keep
        self._to_submit = 0
        self._delivered = 0
        self._delivered_at: Instant = 0

    def run(self) -> SimulatedRun:
        """Run until everything is delivered and let go, or the limit is reached."""
        scenario = self.scenario
        senders = scenario.senders
        self._to_submit = scenario.messages * len(senders)
        for fault in scenario.faults:
            self._schedule(fault)
        for me, node in enumerate(self.nodes):
            self._set_alarm(me, node)
        if scenario.messages:
            for sender in senders:
                self.kernel.at(self.next_interval(), self._produce, sender)
        self.kernel.run(until=duration(scenario.limit, "limit"), events_max=self.events_max)
        self._end_logs()
        return self._result()

    def _end_logs(self) -> None:
        for node in self.nodes:
            if not node.crashed:
                node.log.record(node.clock.read(self.kernel.now), "end", None, None, None, None)

    # Members

    def _make_nodes(self, rng: random.Random) -> list[Node]:
        scenario, nodes = self.scenario, []
        view = View(0, tuple(range(scenario.members)))
        for me in view.members:
            clock = self.make_clock(rng)
            log = MemberLog(me, view.number)
            member = Member(me, view, scenario.options(), random.Random(f"{self.seed}/member/{me}"), traced=True)
            nodes.append(Node(member, clock, log))
        return nodes

    def make_clock(self, rng: random.Random) -> SkewedClock:
        """Draw a member's clock: how far it is off, and how it drifts."""
        clocks = self.scenario.clocks
        skew_ns, drift = duration(clocks.skew, "clocks.skew"), clocks.drift_ppm
        return SkewedClock(
            skew_ns + rng.randint(-skew_ns, skew_ns) if skew_ns else 0, rng.randint(-drift, drift) if drift else 0
        )

    def _arrive(self, arrival: tuple[int, bytes]) -> None:
        node = self.nodes[arrival[0]]
        if node.paused:
            node.missed.append(arrival[1])
        elif not node.crashed:
            self.drive(arrival[0], node, Receive(arrival[1]))

    def _wake(self, me: int) -> None:
        node = self.nodes[me]
        if node.wake_at == self.kernel.now:
            node.wake_at = None
        if node.crashed or node.paused:
            return
        deadline = node.member.deadline
        if deadline is not None and deadline <= node.clock.read(self.kernel.now):
            node.wakes += 1
            if node.wakes == _WAKES_IN_A_MILLISECOND_MAX:
                self._see_whether_time_goes_on(me, node)
            self.drive(me, node, _WAKE)
        else:
            self._set_alarm(me, node)

    def _see_whether_time_goes_on(self, me: int, node: Node) -> None:
        """Raise a `UsageError` that names the protocol if a member asks to be woken over and over at one instant."""
        now = self.kernel.now
        if now - node.wakes_since < MILLISECOND:
            raise UsageError(
                f"{_overdue(node.member, node.clock.read(now))}: member {me} asks to be woken at an instant that has "
                f"passed, {node.wakes:,} times within a millisecond, at {now / SECOND:.9f} s of simulated time"
            )
        node.wakes, node.wakes_since = 0, now

    def drive(self, me: int, node: Node, event: Input) -> None:
        """Give a member one input and carry out what follows."""
        member, now = node.member, node.clock.read(self.kernel.now)
        for effect in member.handle(event, now):
            if type(effect) is TraceRow:
                self._write(node, now, effect)
            else:
                self._carry_out(me, effect)
        if node.submits:
            return  # the rest comes when all is submitted
        if node.backlog and member.room:
            self._submit_backlog(me, node)
        self._settle(me, node)

    def _settle(self, me: int, node: Node) -> None:
        self._set_alarm(me, node)
        self._see_whether_all_is_done(me, node)

    def _write(self, node: Node, now: Instant, row: TraceRow) -> None:
        node.log.write(now, row)

    def _carry_out(self, me: int, effect: Effect) -> None:
        if type(effect) is Send:
            self.network.send(me, effect.to, effect.datagram)
        elif type(effect) is Deliver:
            self._delivered += 1
            self._delivered_at = self.kernel.now

    def _see_whether_all_is_done(self, me: int, node: Node) -> None:
        self._undrained.add(me)
        if not self._to_submit and self._all_drained():
            self.kernel.stop()

    def _all_drained(self) -> bool:
        """Return whether nobody has anything to send or to keep; whoever has is looked at again when it was driven."""
        while self._undrained:
            me = next(iter(self._undrained))
            if self.nodes[me].backlog or not self.nodes[me].member.drained:
                return False
            self._undrained.remove(me)
        return True

    def _set_alarm(self, me: int, node: Node) -> None:
        deadline = node.member.deadline
        if deadline is None or (node.wake_at is not None and deadline >= node.alarm):
            return
        instant = max(node.clock.true(deadline), self.kernel.now)
        if node.wake_at is None or instant < node.wake_at:
            node.wake_at, node.alarm = instant, deadline
            self.kernel.at(instant, self._wake, me)

    # The application

    def next_interval(self) -> int:
        """Draw the time until a sender's next message."""
        return self._interval(self._workload_rng)

    def _produce(self, me: int) -> None:
        node = self.nodes[me]
        if node.crashed:
            return
        node.backlog += 1
        node.submitted += 1
        self._to_submit -= 1
        if self._progress is not None:
            self._progress(node.submitted, self._to_submit)
        self._undrained.add(me)
        if not node.paused:
            self._submit_backlog(me, node)
        if node.submitted < self.scenario.messages:
            self.kernel.after(self.next_interval(), self._produce, me)

    def _submit_backlog(self, me: int, node: Node) -> None:
        workload = self.scenario.workload
        node.submits = True
        while node.backlog and node.member.room:
            number = node.submitted - node.backlog + 1
            node.backlog -= 1
            payload = f"{me}:{number} ".encode().ljust(workload.payload, b".")[: workload.payload]
            priority = self._workload_rng.randrange(workload.priorities) if workload.priorities > 1 else 0
            self.drive(me, node, Submit(payload, self._lifetime_ns, priority))
        node.submits = False
        self._settle(me, node)

    # Faults

    def _schedule(self, fault: Fault) -> None:
        at = duration(fault.at, "at")
        until = None if fault.until is None else duration(fault.until, "until")
        if fault.kind in ("partition", "cut"):
            links = self._links_cut(fault)
            self.kernel.at(at, lambda _: self.network.cut(links, 1))
            if until is not None:
                self.kernel.at(until, lambda _: self.network.cut(links, -1))
        else:
            assert fault.member is not None
            self.kernel.at(at, self._crash if fault.kind == "crash" else self._pause, fault.member)
            if until is not None and fault.kind == "pause":
                self.kernel.at(until, self._resume, fault.member)

    def _links_cut(self, fault: Fault) -> list[tuple[int, int]]:
        if fault.kind == "cut":
            return [(a, b) for a in fault.source or [] for b in fault.target or []]
        side = {member: index for index, group in enumerate(fault.groups or []) for member in group}
        members = range(self.scenario.members)
        return [(a, b) for a in members for b in members if a != b and side.get(a, -1) != side.get(b, -1)]

    def _crash(self, me: int) -> None:
        node = self.nodes[me]
        if not node.crashed:
            node.crashed = True
            node.log.record(node.clock.read(self.kernel.now), "crash", None, None, None, None)
            self._to_submit -= self.scenario.messages - node.submitted if me in self.scenario.senders else 0
            self._undrained.discard(me)

    def _pause(self, me: int) -> None:
        self.nodes[me].paused = True

    def _resume(self, me: int) -> None:
        node = self.nodes[me]
        node.paused = False
        if node.crashed:
            return
        missed, node.missed = node.missed, []
        for datagram in missed:
            self.drive(me, node, Receive(datagram))
        self._submit_backlog(me, node)
        self._set_alarm(me, node)

    # The result

    def _standstill(self) -> Standstill:
        """Look at what might hold an unfinished run up."""
        nodes, counts = list(enumerate(self.nodes)), self.network.counts
        return Standstill(
            now=self.kernel.now,
            sent=sum(log.count("send") for log in self._logs()),
            wanted=self.scenario.messages * len(self.scenario.senders),
            held=sum(node.member.held for _, node in nodes if not node.crashed),
            retransmissions=self._counts()["retransmissions"],
            delivered_at=self._delivered_at,
            crashed=[me for me, node in nodes if node.crashed],
            paused=[me for me, node in nodes if node.paused and not node.crashed],
            cut=self.network.cut_links(),
            behind_ns=self.network.behind_ns(),
            cut_short=self.kernel.events == self.events_max,
            datagrams=counts["datagrams"],
            lost=counts.get("lost", 0) + counts.get("overrun", 0),
            late_ns=self.network.late_ns(),
            due=sum(node.submitted for _, node in nodes),
            idle=self.kernel.idle,
        )

    def _counts(self) -> Counter[str]:
        """What the members counted."""
        return sum((Counter(node.member.counts) for node in self.nodes), Counter())

    def _logs(self) -> list[MemberLog]:
        return [node.log for node in self.nodes]

    def _finished(self) -> bool:
        return not self._to_submit and self._all_drained()

    def _result(self) -> SimulatedRun:
        logs = self._logs()
        ordering = self.scenario.ordering
        name = ordering if isinstance(ordering, str) else ordering.__name__
        return SimulatedRun(
            scenario=self.scenario,
            seed=self.seed,
            name=f"{self.scenario.name or name}-{self.seed}",
            finished=self._finished(),
            why_not=None if self._finished() else why_not_finished(self._standstill()),
            ended_ns=self.kernel.now,
            sent=sum(log.count("send") for log in logs),
            delivered=self._delivered,
            logs=logs,
            stats={
                "members": dict(sorted(self._counts().items())),
                "network": dict(sorted(self.network.counts.items())),
                "kernel_events": self.kernel.events,
                "still_held": sum(node.member.held for node in self.nodes if not node.crashed),
            },
        )
