"""Vector acknowledgments: every member tells all others what it holds; what all hold is stable.

The baseline that the stability papers compare with. A report is the vector of stream prefixes that its sender holds,
4n bytes, and goes to all when there is news, at most once in `interval_ns`. A member that still waits asks those who,
as far as it knows, hold less; they answer, whether they lack something or not, so a lost report is made good by the
one who misses it, and silence follows when all is stable.

With `delta` a report says only what changed since its sender's last report to all, by the last byte. Reports to all are
numbered: one that comes late is not taken, and who finds that one is missing asks for a whole vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import NOTHING, PartContext, Step
from antiphon.protocol.rules import rule
from antiphon.protocol.stability.rounds import VectorOptions, VectorPart
from antiphon.protocol.stability.vectors import Numbers, pack_some, unpack_some
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Counter, Pdu, Streamed, Vector


class Report(Pdu, tag=8):
    """What its sender holds of every stream; `part`: only what is new since its last report to all."""

    kind: ClassVar[str] = "vector-ack"
    number: Counter  # of its sender's last report to all, this one included if it is one
    part: bool
    held: Vector
    asking: bool  # please answer with a whole vector


class ReportOptions(VectorOptions, frozen=True, kw_only=True):
    """How often to report, in groups of any size."""

    crowd: Annotated[int, msgspec.Meta(ge=0)] = 0  # larger groups report less often, in proportion; 0: as often

    def fit(self, size: int) -> Self:
        """Let the members of a large group report so much less often that each has no more reports to read."""
        times = max(1, size // self.crowd) if self.crowd else 1
        interval_ns, idle_ns = times * self.interval_ns, times * self.idle_ns
        longest_ns = max(interval_ns, self.interval_ns_max)
        return msgspec.structs.replace(self, interval_ns=interval_ns, idle_ns=idle_ns, interval_ns_max=longest_ns)


_FEW_ROWS: Final = 32  # that play one match, all at once: faster than one against the other


class LeastOfColumns:
    """The least of each column of a matrix whose rows change one at a time: a tournament, row against row."""

    def __init__(self, rows: int, columns: int) -> None:
        self._rows, self._is_few = rows, rows <= _FEW_ROWS
        # node k has the minima of nodes 2k and 2k + 1; row r is node rows + r
        self._nodes: npt.NDArray[np.uint32] = np.zeros((2 * rows, columns), np.uint32)
        self.least: Numbers = np.zeros(columns, np.int64)

    def row(self, row: int) -> Numbers:
        """Give a row."""
        numbers: Numbers = self._nodes[self._rows + row].astype(np.int64)
        return numbers

    def below(self, numbers: Numbers) -> npt.NDArray[np.intp]:
        """List the rows that are somewhere below the given numbers."""
        return np.flatnonzero((self._nodes[self._rows :] < numbers.astype(np.uint32)).any(axis=1))

    def put(self, row: int, numbers: Numbers) -> None:
        """Replace a row, and play its matches again as far as they come out differently."""
        nodes, node = self._nodes, self._rows + row
        nodes[node] = numbers
        while node > 1:
            node = 1 if self._is_few else node // 2
            winners = np.minimum.reduce(nodes[self._rows :] if self._is_few else nodes[2 * node : 2 * node + 2])
            if winners.tobytes() == nodes[node].tobytes():
                return
            nodes[node] = winners
        self.least = nodes[1].astype(np.int64)


class VectorAck(VectorPart):
    """Stability by vectors from everyone to everyone."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Report,)
    Options: ClassVar[type[msgspec.Struct]] = ReportOptions

    def __init__(self, context: PartContext, options: ReportOptions) -> None:
        super().__init__(context, options)
        self._options = options
        self.others = LeastOfColumns(max(1, context.size - 1), self.width)  # what each of the others holds
        self.heard = [0] * context.size  # the number of each member's last report
        self._number = 0  # of this member's last report to all
        self._reported: Numbers = np.zeros(self.width, np.int64)  # and what it said
        self._news = False  # something is held that it did not say
        self._due: Instant = 0  # when news may be told
        self._latest: Instant = 0  # and must be
        self._jittered, self._pace = context.jittered, context.pace
        self._waiting = self._timer()
        self._waited_for: Numbers = self._reported  # what was held here when the waiting began

    @property
    def deadline(self) -> Instant | None:
        """When news is to be told at the latest, or when to ask."""
        ask_at = self._waiting.at
        return self._latest if self._news and (ask_at is None or self._latest < ask_at) else ask_at

    def lag(self) -> dict[int, int | None]:
        """Say what the others lack according to their last reports."""
        below = self.others.below(self.held).tolist() if self.unstable and self.size > 1 else []
        return {row + (row >= self.rank): self.lacking(self.others.row(row)) for row in below}

    def advanced(self, source: int, pdu: Streamed, received: Sequence[int], now: Instant) -> Step:
        """Take note of what this member holds now, plan a report, and take what it was the last to lack for stable."""
        number = received[source]
        self.unstable += number - self.held.item(source)
        self.held[source] = number
        if not self._news:
            self._news = True
            self._due = now + self._options.interval_ns
            self._latest = self._due + self.ride_wait_ns(now)
        if self.size == 1 or self.others.least.item(source) > self.frontier.item(source):
            self._settle()
        if self.unstable and self._waiting.at is None:
            self._wait_for_all(now)
        return self.step() if self.up or self.down else NOTHING

    def due(self, now: Instant) -> None:
        """Tell the news to all; ask those who seem to lack what was held here for long."""
        if self._news and self._latest <= now:
            self.say_now(self._report(), None)
        if self._waiting.over(now):
            rows = self.others.below(self._waited_for).tolist()
            if rows:
                self.say_now(Report(self._number, True, b"", True), tuple(row + (row >= self.rank) for row in rows))
            else:
                self._wait_for_all(now)

    def ride(self, now: Instant) -> list[Pdu]:
        """Give a report that is due."""
        self._left_at = now
        return [self._report()] if self._options.piggyback and self._news and self._due <= now else []

    @rule("docs/protocols/vector-ack.md, Rule")
    def take(self, source: int, pdu: Pdu, now: Instant) -> None:
        """Take another member's report; answer if it asks."""
        assert isinstance(pdu, Report)
        row = source - (source > self.rank)
        if pdu.part:
            self.take_part(source, row, pdu)
        else:
            numbers = self.unpack(pdu.held, None)
            self.heard[source] = max(self.heard[source], pdu.number)
            self.put(row, np.maximum(numbers, self.others.row(row)))
        if pdu.asking:
            self.say_now(Report(self._number, False, self.pack_whole(self.held), False), (source,))

    @rule("docs/protocols/vector-ack.md, Rule: delta")
    def take_part(self, source: int, row: int, report: Report) -> None:
        """Take a report of changes, unless it comes late; ask for a whole one where a report before it is missing."""
        if not report.held or report.number <= self.heard[source]:
            return
        # what is known of its sender comes from earlier reports, so it is the floor of what this one says
        numbers = unpack_some(report.held, self.others.row(row))
        missed = report.number > self.heard[source] + 1
        self.heard[source] = report.number
        self.put(row, numbers)
        if missed:
            self.say_now(Report(self._number, True, b"", True), (source,))

    @rule("docs/protocols/vector-ack.md, Rule: what all hold is stable")
    def put(self, row: int, numbers: Numbers) -> None:
        """Take note of what a member holds; if the least of all rises, the frontier follows."""
        before = self.others.least
        self.others.put(row, numbers)
        if self.others.least is not before:
            self._settle()

    def _report(self) -> Report:
        """Make the next report to all."""
        self._news = False
        self._number += 1
        said, self._reported = self._reported, self.held.copy()
        if self._options.delta:
            return Report(self._number, True, pack_some(self.held, self.held > said), False)
        return Report(self._number, False, self.pack_whole(self.held), False)

    def _settle(self) -> None:
        """Raise the frontier to what all hold."""
        self.raise_frontier(self.held if self.size == 1 else np.minimum(self.others.least, self.held))
        if not self.unstable:
            self._waiting.stop()

    def _timer(self) -> Backoff:
        """Return when to ask for reports: not before they can have come."""
        pause_ns = 3 * self._options.interval_ns + self._pace.answer_ns
        return Backoff(self._jittered, pause_ns, max(pause_ns, self._options.interval_ns_max))

    def _wait_for_all(self, now: Instant) -> None:
        self._waiting = self._timer()
        self._waiting.start(now)
        self._waited_for = self.held.copy()
