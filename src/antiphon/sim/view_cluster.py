"""A group with views in simulated time: the cluster's network, clocks and workload, driving processes.

Every incarnation of a process has its own log: a crash ends one, and so does exclusion. What a process persists is
there again when its name starts anew. The run ends when all faults are over, everything is sent, and all that are alive
are in one view in which nothing is held any more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from antiphon.protocol.machine import (
    MILLISECOND,
    Capture,
    Chunk,
    Deliver,
    Drop,
    Effect,
    EndHoldBack,
    HoldBack,
    Input,
    Instant,
    Leave,
    Persist,
    ReadChunk,
    Release,
    Restore,
    RestoreChunk,
    Snapshot,
    TraceRow,
    Wake,
)
from antiphon.protocol.membership.process import Process, ProcessInput
from antiphon.protocol.membership.views import ViewId, name_of
from antiphon.sim.cluster import Cluster, Node
from antiphon.sim.distributions import duration
from antiphon.sim.scenario import Fault
from antiphon.sim.unfinished import Standstill
from antiphon.trace.log import MemberLog

_CHECK_NS = 20 * MILLISECOND
_WRITTEN_BACK_NS = 200 * MILLISECOND  # until what nobody waits for is on the disk


class _Down:
    """A name that does not run."""

    deadline: Instant | None = None
    room = 0
    held = 0
    drained = True

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def handle(self, event: Input, now: Instant) -> list[Effect]:
        """Do nothing."""
        return []


class Fates:
    """Keeps what became of each message at its own sender: delivered or dropped, and that once."""

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()  # (process, its number) of messages that were sent
        self._crashed: set[int] = set()
        self.wrong: str | None = None

    def note(self, row: TraceRow) -> None:
        """Hear from the trace what was sent, and which process is over."""
        if row.event == "send" and row.sender == row.member and row.seq is not None:
            self._open.add((row.member, row.seq))
        elif row.event == "crash":
            self._crashed.add(row.member)
        elif row.event == "leave":
            self.expect_none_open(row.member)

    def take(self, name: int, effect: Effect) -> None:
        """Hear what the application of a name is told."""
        if isinstance(effect, Deliver | Drop) and effect.sender is not None and effect.seq is not None:
            message = effect.sender, effect.seq
            if name_of(effect.sender) == name:
                if message not in self._open:
                    self.wrong = self.wrong or f"{message} ended twice at its sender, or was never sent"
                self._open.discard(message)

    def expect_none_open(self, process: int) -> None:
        """Say what is wrong if a process that is over, or has finished, has not heard of one of its messages."""
        forgotten = [message for message in self._open if message[0] == process and process not in self._crashed]
        if forgotten:
            self.wrong = self.wrong or f"{min(forgotten)} was neither delivered nor dropped at its sender"


class ViewCluster(Cluster):
    """The driver of a group with views."""

    process: type[Process] = Process  # a test may put another in its place

    def _make_nodes(self, rng: random.Random) -> list[Node]:
        self._disk: dict[int, bytes] = {}
        self._unsynced: dict[int, tuple[Instant, bytes]] = {}  # what nobody waited for, and when it was written
        self._forgetful: set[int] = set()  # names that have lost what they persisted
        self._every_log: list[MemberLog] = []
        self.processes: list[Process] = []
        self._healed_at: Instant = 0
        self._spoke_at: dict[int, tuple[ViewId, Instant]] = {}  # when each delivered, or had said that it does not
        self.silent: str | None = None  # who stopped without a word
        self._done = False
        self.snapshot: Callable[[int], bytes | None] | None = None  # a test's state, by name; None: it fails
        self.restore: Callable[[int, bytes], None] | None = None
        self._states: dict[tuple[int, int], bytes] = {}  # by name and view, what was captured
        self._received: dict[int, bytearray] = {}  # by name, what came of another's state
        self._held_back: dict[int, list[Effect]] = {}  # by name, what its application sees after that
        self.fates = Fates()
        nodes = []
        for _ in range(self.scenario.members):
            node = Node(_Down(), self.make_clock(rng), MemberLog(-1, 0))
            node.crashed = True
            nodes.append(node)
        late = {fault.member for fault in self.scenario.faults if fault.kind == "join"}
        for name in range(self.scenario.members):
            if name not in late:
                self.kernel.at(0, self._start, name)
        self.kernel.at(0, self._see_whether_one_group_is_left)
        return nodes

    def running(self) -> dict[int, Process]:
        """Give the processes that run and have not left, by name."""
        return {
            name: node.member
            for name, node in enumerate(self.nodes)
            if isinstance(node.member, Process) and not node.member.left
        }

    def can_go_on(self) -> bool:
        """Say whether enough of the newest view still run: if those who decide have left for good, nobody can."""
        if self.scenario.membership.partition == "each-side":
            return True
        newest = max((process.view for process in self.processes), key=lambda view: view.number)
        return newest.is_quorum({name for name, process in self.running().items() if process.remembers})

    def _start(self, name: int) -> None:
        node = self.nodes[name]
        if isinstance(node.member, Process):
            return
        life = len(self.processes)
        node.member = self.process(
            name,
            range(self.scenario.founders or self.scenario.members),
            self.scenario.options(),
            self.scenario.membership,
            random.Random(f"{self.seed}/process/{name}/{life}"),
            node.clock.read(self.kernel.now),
            self._disk.get(name),
            traced=True,
            first_incarnation=1 if name not in self._forgetful else 1_000 + life,
            first_round=0 if name not in self._forgetful else 1_000 * life,
        )
        self._begin_log(node, node.member.id)
        self.processes.append(node.member)
        node.crashed = node.paused = False
        node.missed = []
        self.drive(name, node, Wake())

    def _begin_log(self, node: Node, process: int) -> None:
        """Begin the log of an incarnation."""
        node.log = MemberLog(process, 0)
        self._every_log.append(node.log)

    def _write(self, node: Node, now: Instant, row: TraceRow) -> None:
        self.fates.note(row)
        if row.member != node.log.member:
            self._begin_log(node, row.member)
        node.log.write(now, row)

    def _carry_out(self, me: int, effect: Effect) -> None:
        self.fates.take(me, effect)
        if isinstance(effect, Persist):
            self._persist(me, effect)
        elif isinstance(effect, Capture):
            state = self.snapshot(me) if self.snapshot is not None else b""
            if state is None:
                self._give(me, Snapshot(effect.view, None))
            else:
                self._states[me, effect.view] = state
                self._give(me, Snapshot(effect.view, len(state), blake2b(state, digest_size=16).digest()))
        elif isinstance(effect, ReadChunk):
            state = self._states[me, effect.view][effect.offset : effect.offset + effect.length]
            self._give(me, Chunk(effect.view, effect.offset, state, effect.to))
        elif isinstance(effect, Release):
            self._states.pop((me, effect.view), None)
        elif isinstance(effect, RestoreChunk):
            received = self._received.setdefault(me, bytearray())
            del received[effect.offset :]
            assert len(received) == effect.offset, "chunks come without gaps"
            received += effect.data
        elif isinstance(effect, Restore):
            state = bytes(self._received.pop(me))
            if self.restore is not None:
                self.restore(me, state)
        elif isinstance(effect, HoldBack):
            self._held_back.setdefault(me, []).append(effect.effect)
        elif isinstance(effect, EndHoldBack):
            for held_back in self._held_back.pop(me, ()):
                if effect.hand_over:
                    self._carry_out(me, held_back)
        else:
            super()._carry_out(me, effect)

    def _persist(self, me: int, effect: Persist) -> None:
        """Write what a process must not forget; what may wait is lost if the process crashes within a while."""
        if effect.may_wait:
            self._unsynced[me] = self.kernel.now, effect.state
        else:
            self._disk[me] = effect.state
            self._unsynced.pop(me, None)

    def _give(self, me: int, event: ProcessInput) -> None:
        """Hand a process what only processes take."""
        node, now = self.nodes[me], self.nodes[me].clock.read(self.kernel.now)
        assert isinstance(node.member, Process)
        for effect in node.member.handle(event, now):
            if isinstance(effect, TraceRow):
                self._write(node, now, effect)
            else:
                self._carry_out(me, effect)

    # The application

    def _produce(self, me: int) -> None:
        node = self.nodes[me]
        process = node.member
        if isinstance(process, Process) and not process.left and not process.leaving:
            super()._produce(me)
            return
        node.submitted += 1  # nobody is there to send it
        self._to_submit -= 1
        if node.submitted < self.scenario.messages:
            self.kernel.after(self.next_interval(), self._produce, me)

    # Faults

    def _schedule(self, fault: Fault) -> None:
        at = duration(fault.at, "at")
        until = at if fault.until is None else duration(fault.until, "until")
        self._healed_at = max(self._healed_at, until)
        if fault.kind == "join":
            assert fault.member is not None
            self.kernel.at(at, self._start, fault.member)
        elif fault.kind == "leave":
            assert fault.member is not None
            self.kernel.at(at, self._leave, fault.member)
        else:
            super()._schedule(fault)
            if fault.kind == "crash" and fault.until is not None:
                assert fault.member is not None
                if fault.forgets:
                    self.kernel.at(at, self._forget, fault.member)
                self.kernel.at(until, self._start, fault.member)

    def _forget(self, name: int) -> None:
        self._disk.pop(name, None)
        self._forgetful.add(name)

    def _crash(self, me: int) -> None:
        node = self.nodes[me]
        if isinstance(node.member, Process):
            if not node.member.left:
                now = node.clock.read(self.kernel.now)
                self._write(node, now, TraceRow(node.member.id, "crash"))
            written_at, state = self._unsynced.pop(me, (0, b""))
            if state and self.kernel.now - written_at >= _WRITTEN_BACK_NS:
                self._disk[me] = state
            node.member, node.crashed, node.backlog = _Down(), True, 0
            self._held_back.pop(me, None)

    def _leave(self, me: int) -> None:
        node = self.nodes[me]
        if isinstance(node.member, Process) and not node.member.left and not node.paused:
            node.backlog = 0
            self.drive(me, node, Leave())

    # The end

    def _see_whether_all_is_done(self, me: int, node: Node) -> None:
        """Nothing is to be seen from one member alone."""

    def _watch_for_silence(self) -> None:
        """A member that neither delivers nor ends its view in time must have said so."""
        now = self.kernel.now
        for name, process in self.running().items():
            limit_ns = self._word_due_ns(process, self.nodes[name].clock.read(now))
            said = self.nodes[name].paused or process.member is None or process.active or process.stalled
            view, at = self._spoke_at.get(name, (process.view.id, now))
            if said or view != process.view.id:
                self._spoke_at[name] = process.view.id, now
            elif now - at > limit_ns:
                self.silent = f"{process.id} stopped delivering in view {process.view.number} and does not say so"

    def _word_due_ns(self, process: Process, now: Instant) -> int:
        """Return within what time a member must say that it does not deliver."""
        times, names = process.detector.times, process.view.names
        patience_ns = max(times.stall_ns(names, now), times.suspicion_ns(names, now))
        return patience_ns + 2 * self.scenario.membership.heartbeat_ns + 2 * _CHECK_NS

    def _see_whether_one_group_is_left(self, _: None) -> None:
        self._watch_for_silence()
        if self.kernel.now > self._healed_at and not self._to_submit and self._one_group():
            self._done = True
            self.kernel.stop()
        else:
            self.kernel.after(_CHECK_NS, self._see_whether_one_group_is_left)

    def _one_group(self) -> bool:
        """Say whether all that are alive are in one view, and nothing is held or waits there."""
        running = self.running()
        processes = list(running.values())
        ids = {process.id for process in processes}
        return all(
            process.active
            and process.view == processes[0].view
            and set(process.view.members) == ids
            and process.drained
            and not self.nodes[name].backlog
            for name, process in running.items()
        )

    def _end_logs(self) -> None:
        for name, process in self.running().items():
            node = self.nodes[name]
            self._write(node, node.clock.read(self.kernel.now), TraceRow(process.id, "end"))
            if self._done:
                self.fates.expect_none_open(process.id)

    def _standstill(self) -> Standstill:
        """Look at what might hold an unfinished run up; nobody waits for the dead, but for one view of the living."""
        views = {process.id: process.view.number for process in self.running().values() if process.active}
        apart = ""
        if len(views) < len(self.running()) or len(set(views.values())) > 1:
            shown = ", ".join(f"{one} in view {view}" for one, view in sorted(views.items())) or "nobody in any"
            apart = f"those that run are not in one view: {shown}"
        return msgspec.structs.replace(super()._standstill(), crashed=[], apart=apart)

    def _counts(self) -> Counter[str]:
        """What the processes counted of views, and what happened to their members in each of them."""
        counted = (one for process in self.processes for one in (process.counts, process.lifecycle.own.in_views))
        return sum(map(Counter, counted), Counter())

    def _logs(self) -> list[MemberLog]:
        return sorted(self._every_log, key=lambda log: log.member)

    def _finished(self) -> bool:
        return self._done
