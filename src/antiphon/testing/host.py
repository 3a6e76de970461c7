"""The simulated host of a group: sockets on a simulated network, a disk in memory, clocks, traces that are kept."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from antiphon.live.group import Group
from antiphon.live.recording import Origin
from antiphon.protocol.machine import SECOND, Duration, Instant
from antiphon.sim.kernel import Kernel
from antiphon.sim.network import NetworkOptions
from antiphon.testing.disk import SimulatedDisk
from antiphon.testing.network import SimulatedNetwork
from antiphon.testing.process import Incarnation, present_incarnation
from antiphon.testing.sockets import SimulatedSocket
from antiphon.testing.trace import Traces
from antiphon.trace.log import IncarnationLog

_T = TypeVar("_T")

_WRITTEN_BACK_NS: Final = SECOND  # how long a busy machine takes to bring to the disk what nobody waits for


class Membership(msgspec.Struct, frozen=True, eq=False):
    """A member that is there: its group, and whose incarnation it is part of."""

    address: str
    group: Group
    incarnation: Incarnation
    socket: SimulatedSocket


class InlineExecutor(Executor):
    """Does at once what a thread would do, so that a seed decides everything."""

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Do it, and return what became of it."""
        done: Future[_T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class SimulatedHost:
    """Where all members of a simulated world run."""

    def __init__(self, kernel: Kernel, seed: int, network: NetworkOptions, skew_ns: Duration, traces: Traces) -> None:
        self._kernel, self._skew_ns, self._traces = kernel, skew_ns, traces
        self._chance = random.Random(f"{seed}/members")
        self.network = SimulatedNetwork(kernel, seed, network)
        self.network.closed = self._closed
        self.disk = SimulatedDisk()
        self._skews_ns: dict[str, Duration] = {}  # by process
        self.steps_ns: dict[str, Duration] = {}  # by process, how far its wall clock was set forward
        self.members: dict[str, Membership] = {}  # by address
        self.failed: Callable[[BaseException], None]  # is told of a member that broke an invariant

    # What a group asks for

    def clock(self) -> Callable[[], Instant]:
        """Return a clock with a random skew within the bound; later steps of the wall clock do not change it."""
        kernel, ahead_ns = self._kernel, self._skew() + self.step_ns()
        return lambda: kernel.now + ahead_ns

    def _skew(self) -> Duration:
        """Return how far the clock is off; the same at every start of a process."""
        incarnation, skew_ns = present_incarnation.get(), self._skew_ns
        if incarnation is not None and incarnation.name in self._skews_ns:
            return self._skews_ns[incarnation.name]
        skew = self._chance.randint(0, 2 * skew_ns) if skew_ns else 0
        if incarnation is not None:
            self._skews_ns[incarnation.name] = skew
        return skew

    def step_ns(self) -> Duration:
        """Say how far the wall clock of the process that runs now was set."""
        incarnation = present_incarnation.get()
        return 0 if incarnation is None or not self.steps_ns else self.steps_ns.get(incarnation.name, 0)

    def seed(self) -> int:
        """Draw the seed of the next member."""
        return self._chance.getrandbits(64)

    def socket(self, family: int) -> socket.socket:
        """Make a socket on the simulated network."""
        return cast(socket.socket, self.network.socket(family))

    def read(self, path: Path) -> bytes:
        """Read from the disk in memory."""
        return self.disk.read(path)

    def write(self, path: Path, content: bytes, *, may_wait: bool = False) -> None:
        """Write to the disk in memory, and wait until it is there; what `may_wait` is there after a while."""
        self.disk.write(path, content)
        if may_wait:
            self._kernel.after(_WRITTEN_BACK_NS, self.disk.write_back, path)
        else:
            self.disk.sync(path)

    def worker(self) -> Executor:
        """Do everything at once."""
        return InlineExecutor()

    def journals(
        self, group: Group | None, origin: Origin, names: Mapping[int, str], own: str
    ) -> Callable[[int], IncarnationLog]:
        """Keep the traces of a member's incarnations, those of each group by themselves."""
        one = self.network.known_as(own)
        group = group or self.members[own].group
        self.members[own] = Membership(own, group, one.incarnation or Incarnation(own), one)
        return self._traces.journals(group, origin, names)

    # What becomes of it

    def _closed(self, one: SimulatedSocket) -> None:
        """Note that a member is gone, when it gives its address back."""
        member = next((member for member in self.members.values() if member.socket is one), None)
        if member is not None:
            self.forget(member)

    def forget(self, member: Membership) -> None:
        """Note that a member is gone."""
        if self.members.get(member.address) is not member:
            return
        del self.members[member.address]
        drained = not member.incarnation.crashed and not member.group.status().held
        self._traces.stopped(member.group, drained=drained)
        if member.group.failure is not None:
            self.failed(member.group.failure)
