"""Vector acknowledgments: every member tells all others what it holds; what all hold is stable.

The baseline that the stability papers compare with. A report is the vector of stream prefixes that its sender holds,
4n bytes. A member reports while it knows of something unstable, at most once in `interval_ns`; one that lacks
nothing answers a report that asks, so that a lost last report is made good and silence follows when all is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from antiphon.protocol.machine import MILLISECOND, SECOND, Duration, Instant
from antiphon.protocol.parts import Frontier, Out, Place, Step
from antiphon.protocol.wire import Malformed, Pdu, Streamed, Vector, pack_vector, unpack_vector


class Report(Pdu, tag=8):
    """What its sender holds of every stream."""

    kind: ClassVar[str] = "vector-ack"
    held: Vector
    asking: bool


class VectorAckOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often to report, and how much less often when nothing changes."""

    interval_ns: Duration = 10 * MILLISECOND
    interval_ns_max: Duration = SECOND


class VectorAck:
    """Stability by full vectors from everyone to everyone."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Report,)
    Options: ClassVar[type[msgspec.Struct]] = VectorAckOptions

    def __init__(self, place: Place, options: VectorAckOptions) -> None:
        self._rank, self._size, self._options = place.rank, place.size, options
        self._holds = [[0] * place.size for _ in range(place.size)]  # member -> what it holds of each stream
        self._frontier = [0] * place.size
        self._report_at: Instant | None = None
        self._pause_ns = options.interval_ns

    @property
    def deadline(self) -> Instant | None:
        """When the next report is due."""
        return self._report_at

    def stamp(self, now: Instant) -> int:
        """Vectors need no stamp."""
        return 0

    def advanced(self, source: int, pdu: Streamed, received: Sequence[int], now: Instant) -> Step:
        """Take note of what this member holds now."""
        self._holds[self._rank][source] = received[source]
        self._pause_ns = self._options.interval_ns
        due = now + self._pause_ns
        self._report_at = due if self._report_at is None else min(self._report_at, due)
        return self._settle((source,))

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take another member's report."""
        if not isinstance(pdu, Report) or source == self._rank:
            raise Malformed("unexpected")
        report = unpack_vector(pdu.held, self._size)
        if any(number > mine for number, mine in zip(report, self._holds[source], strict=True)):
            known = self._holds[source] = [max(pair) for pair in zip(report, self._holds[source], strict=True)]
            step = self._settle(range(len(known)))
        else:
            step = Step()
        if pdu.asking and self._report_at is None:
            step.down = [Out(self._report(asking=False), (source,))]
        return step

    def wake(self, now: Instant) -> Step:
        """Report to all, while something is unstable."""
        if self._report_at is None or self._report_at > now:
            return Step()
        self._report_at = now + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, self._options.interval_ns_max)
        return Step([], [Out(self._report(asking=True))])

    def _report(self, *, asking: bool) -> Report:
        return Report(pack_vector(self._holds[self._rank]), asking)

    def _settle(self, sources: Sequence[int]) -> Step:
        """Raise the frontier of the given streams to the least that anyone holds."""
        moved = False
        for source in sources:
            least = min(holds[source] for holds in self._holds)
            if least > self._frontier[source]:
                self._frontier[source] = least
                moved = True
        if self._frontier == self._holds[self._rank]:
            self._report_at = None  # nothing that this member knows of is unstable
        return Step([Frontier(tuple(self._frontier))] if moved else [])
