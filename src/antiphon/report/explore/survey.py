"""One pass over a run's logs: how many events each member recorded when, and what became of the group.

What is kept is small, whatever the trace's size, and says where in the files a window's rows lie.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from antiphon.pipeline.columns import DELIVER, NULL_TIME, SEND, VIEW, Array, RunIndex, Segment, Unit
from antiphon.pipeline.measuring.halts import HALT_NS_MIN, delivery_gaps
from antiphon.pipeline.measuring.history import RunHistory, ending, latest, noted_at, pace, run_history
from antiphon.pipeline.measuring.ledger import NO_KIND, LogRows
from antiphon.pipeline.results import HaltRow, ProcessRow, ViewRow
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.window import EventWindows
from antiphon.trace.schema import DONE_AT_MEMBER, INBOX_FULL, INBOX_READ, KEYS_CHANGED, STOPPED

CELLS_MAX: Final = 1 << 22  # counts that are kept: members times buckets of time
BUCKETS_MAX: Final = 1 << 16
BUCKETS_MIN: Final = 256
PIECE_ROWS: Final = 1 << 20  # that are looked through at once
EXCLUDED: Final = "excluded"

Told = Callable[[int], None]  # how many rows have been read since it was told last


class LogSurvey(msgspec.Struct):
    """One member's log, in a few numbers; times are by its own clock, or positions in the log where it has none."""

    start: int  # of the first bucket
    counted: Array  # events up to each bucket's end, and 0 before the first
    first: Array  # the earliest and the latest time of each of its segments
    last: Array
    arrays: dict[str, Array]  # what `run_history` reads


class Survey:
    """A run as a whole: what its members recorded when, its views, and how its processes ended."""

    def __init__(self, layout: TraceLayout, run: RunIndex, told: Told = lambda rows: None) -> None:
        self.layout, self.run, self.windows = layout, run, EventWindows(layout)
        self.units = layout.units_of(run)
        self.timed = _has_times(layout, run)
        self.width = self._bucket_width()
        self._logs = {unit: self._read(unit, told) for unit in self.units}
        history = run_history(self, run, {}) if self.timed else RunHistory([], [], [])
        self.views = msgspec.convert(history.views, list[ViewRow])
        self.processes = msgspec.convert(history.processes, list[ProcessRow])
        self.halts = msgspec.convert(history.halts, list[HaltRow])
        off = {row.member: row.clock_off_ns or 0 for row in self.processes}
        # subtracted from a member's times, so that clocks that differ much still share one picture
        self.shift = {unit: off.get(self.member(unit), 0) for unit in self.units}
        self.start = min((log.start - self.shift[unit] for unit, log in self._logs.items()), default=0)
        self.end = max(
            (int(log.last.max()) - self.shift[unit] for unit, log in self._logs.items() if len(log.last)), default=1
        )
        self.end = max(self.end, self.start + 1)

    def member(self, unit: Unit) -> int:
        """Return which member a unit is."""
        return int(self.layout.unit_member[unit])

    def array(self, unit: Unit, name: str) -> Array:
        """Return one of a log's arrays, as `run_history` asks for them."""
        if name in ("deliver", "sent_at"):  # rarely asked for
            column = self.layout.read(unit, ("event", "time_ns"))
            times: Array = column["time_ns"][column["event"] == (DELIVER if name == "deliver" else SEND)]
            return times
        if name == "waiting":
            return np.array([self._waiting(unit) if self._fell_silent else 0], np.int64)
        return self._logs[unit].arrays[name]

    @functools.cached_property
    def _fell_silent(self) -> bool:
        """Whether the last delivery lies so long before the run's end that messages may have waited in vain."""
        logs = [log.arrays for log in self._logs.values()]
        delivered = [int(log["lasts"][1]) for log in logs if log["lasts"][1] != NULL_TIME]
        ended = [int(log["span"][1]) for log in logs if len(log["span"])]
        return bool(delivered and ended) and max(ended) - max(delivered) >= HALT_NS_MIN

    def _waiting(self, unit: Unit) -> int:
        """Return how many of its own messages a member did not deliver; 0 where a log has no such deliveries at all."""
        sent, own = [], []
        for rows in self.layout.read_pieces(unit, ("event", "sender", "seq"), PIECE_ROWS):
            mine = rows["sender"] == self.member(unit)
            sent.append(rows["seq"][mine & (rows["event"] == SEND)])
            own.append(rows["seq"][mine & (rows["event"] == DELIVER)])
        delivered = np.concatenate(own)
        return len(np.setdiff1d(np.concatenate(sent), delivered)) if len(delivered) else 0

    def events(self, unit: Unit, edges: Array) -> Array:
        """Return how many events a member recorded between each two of some times; estimated within a bucket."""
        log = self._logs[unit]
        places = (edges - float(log.start - self.shift[unit])) / self.width
        found: Array = np.diff(np.interp(places, np.arange(len(log.counted)), log.counted))
        return found

    def segments(self, unit: Unit, start: int, end: int) -> list[Segment]:
        """Return in which segments a member's rows of a time may lie."""
        log, shift = self._logs[unit], self.shift[unit]
        wanted = (log.first - shift <= end) & (log.last - shift >= start)
        return [int(self.layout.bounds[unit]) + int(place) for place in np.flatnonzero(wanted)]

    # reading

    def _bucket_width(self) -> int:
        """Return how much time a bucket has: as little as the bound on their number allows for the longest log."""
        longest = 1
        for unit in self.units:
            if not self.timed:
                longest = max(longest, int(self.layout.unit_rows[unit]))
            elif (span := self.windows.span(self.layout.runs[self.run], [self.member(unit)])) is not None:
                longest = max(longest, span[1] - span[0])
        buckets = max(BUCKETS_MIN, min(BUCKETS_MAX, CELLS_MAX // max(len(self.units), 1)))
        return max(1, -(-longest // buckets))

    def _read(self, unit: Unit, told: Told) -> LogSurvey:
        layout = self.layout
        segments = range(int(layout.bounds[unit]), int(layout.bounds[unit + 1]))
        counts: Array = np.zeros(0, np.int64)
        start: int | None = None
        first, last, times, events = [], [], [], []
        seen = 0
        for segment in segments:
            part = self.times(segment, seen)
            seen += len(part)
            known = part[part != NULL_TIME]
            first.append(int(known.min()) if len(known) else np.iinfo(np.int64).max)
            last.append(int(known.max()) if len(known) else np.iinfo(np.int64).min)
            if len(known):
                # a clock that is set back may go before the first bucket: then all move
                low = first[-1] if start is None else min(start, first[-1])
                counts = _added(counts, 0 if start is None else (start - low) // self.width, known - low, self.width)
                start = low if start is None else start - ((start - low) // self.width) * self.width
            if self.timed:
                times.append(part)
                events.append(layout.read_segment(segment, ("event",))["event"])
            told(len(part))
        arrays = self._arrays(unit, times, events) if self.timed else {}
        counted = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return LogSurvey(start or 0, counted, np.array(first), np.array(last), arrays)

    def times(self, segment: Segment, before: int = 0) -> Array:
        """Return the times of a segment's rows; where the trace has none, their positions in the log."""
        if self.timed:
            return self.layout.read_segment(segment, ("time_ns",))["time_ns"]
        return before + np.arange(int(self.layout.column["rows"][segment]))

    def _arrays(self, unit: Unit, times: list[Array], events: list[Array]) -> dict[str, Array]:
        time, event = np.concatenate(times), np.concatenate(events)
        detail, details = (
            np.full(len(event), NO_KIND, np.int64),
            [EXCLUDED, STOPPED, *DONE_AT_MEMBER],
        )
        if any(self.layout.per_unit(kind)[unit] for kind in ("leave", "crash", "control")):
            texts = self.layout.read(unit, ("detail",))["detail"]
            for code, text in enumerate(details):
                detail[texts == self.layout.texts.code(text)] = code
        nothing: Array = np.zeros(0, np.int64)
        known = time[time != NULL_TIME]
        delivered = time[(event == DELIVER) & (time != NULL_TIME)]
        rows = LogRows(event, nothing, nothing, time, nothing, nothing, detail, details)
        return {
            "viewed_at": time[event == VIEW],
            "keys_at": noted_at(rows, KEYS_CHANGED),
            "unread_at": noted_at(rows, INBOX_FULL, INBOX_READ),
            "ending": ending(rows),
            "span": np.array([known.min(), known.max()], np.int64) if len(known) else nothing,
            "pace": pace(known),
            "delivered_in": np.array([delivered.min(), delivered.max()] if len(delivered) else [], np.int64),
            "gaps": delivery_gaps(delivered, time[event == SEND]).ravel(),
            "lasts": np.array([latest(time[event == SEND]), latest(time[event == DELIVER])], np.int64),
        }


def _added(counts: Array, shift: int, offsets: Array, width: int) -> Array:
    """Return counts by bucket with some more times; all that was counted moves up by `shift` buckets."""
    fresh = np.bincount(offsets // width)
    summed = np.zeros(max(len(counts) + shift, len(fresh)), np.int64)
    summed[shift : shift + len(counts)] += counts
    summed[: len(fresh)] += fresh
    return summed


def _has_times(layout: TraceLayout, run: RunIndex) -> bool:
    """Say whether the rows of a run have times, by the first rows of its logs."""
    for unit in layout.units_of(run):
        part = layout.read_segment(int(layout.bounds[unit]), ("time_ns",))["time_ns"]
        if len(part) and part[0] not in (NULL_TIME, 0):
            return True
        if len(part) and bool(((part != NULL_TIME) & (part != 0)).any()):
            return True
    return False
