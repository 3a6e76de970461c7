"""Windows of a run: how busy each member was, and, of a window with few events, every one of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from antiphon.diagram.links import Message
from antiphon.errors import UsageError
from antiphon.pipeline.columns import CODES, DELIVER, NULL_TIME, SEND, Array, Segment, Unit, as_numpy
from antiphon.report.explore.survey import Survey
from antiphon.trace.event import Event
from antiphon.trace.schema import COLUMNS

DRAWN_MAX: Final = 500  # events of a window that are drawn one by one
EXACT_MAX: Final = 20_000  # up to so many are counted row by row; more are estimated from the survey's buckets
TIMES_KEPT: Final = 48  # segments whose times and kinds of events stay in memory, 9 MB each at most
_SKELETON: Final = ("view", "leave", "crash", "end")


class Windows:
    """Reads parts of one run by time; where the trace has no times, by position in each log."""

    def __init__(self, survey: Survey) -> None:
        self.survey, self.layout = survey, survey.layout
        self._times = functools.lru_cache(maxsize=TIMES_KEPT)(self._read_times)
        self._kinds = functools.lru_cache(maxsize=TIMES_KEPT)(self._read_kinds)
        self._unit_of = {survey.member(unit): unit for unit in survey.units}

    def units(self, members: Sequence[int]) -> list[Unit]:
        """Return the units of members; UsageError names one that is not there."""
        unknown = [member for member in members if member not in self._unit_of]
        if unknown:
            known = sorted(self._unit_of)
            raise UsageError(f"there is no member {unknown[0]}; the members are {known[0]} to {known[-1]}")
        return [self._unit_of[member] for member in members]

    def estimate(self, units: Sequence[Unit], start: int, end: int) -> float:
        """Return about how many events some members recorded in a window."""
        edges = np.array([start, end], np.float64)
        return float(sum(self.survey.events(unit, edges)[0] for unit in units))

    def counts(self, unit: Unit, start: int, end: int, buckets: int) -> Array:
        """Return how many events a member recorded in each part of a window, counted or, in a large one, estimated."""
        edges = np.linspace(start, end, buckets + 1)
        if self.estimate([unit], start, end) > EXACT_MAX:
            return self.survey.events(unit, edges)
        found = [times for _, times in self.rows(unit, start, end)]
        counted: Array = np.histogram(np.concatenate(found) if found else np.zeros(0), edges)[0]
        return counted

    def rows(self, unit: Unit, start: int, end: int) -> Iterator[tuple[tuple[Segment, Array], Array]]:
        """Yield in which segment and at which of its rows a window's events lie, and when they happened."""
        for segment in self.survey.segments(unit, start, end):
            times = self._times(unit, segment)
            here = np.flatnonzero((times >= start) & (times <= end))
            if len(here):
                yield (segment, here), times[here]

    def events(self, units: Sequence[Unit], start: int, end: int) -> list[Event] | None:
        """Return all events of some members in a window; None if there are too many to draw."""
        places = self.places(units, start, end)
        return (
            None
            if places is None
            else [
                Event(**{name: value for name, value in row.items() if value is not None})
                for segment, rows in places
                for row in self._read(segment, rows)
            ]
        )

    def places(self, units: Sequence[Unit], start: int, end: int) -> list[tuple[Segment, Array]] | None:
        """Return where the events of some members in a window lie; None if there are too many to draw."""
        if self.estimate(units, start, end) > EXACT_MAX:
            return None
        found = [place for unit in units for place, _ in self.rows(unit, start, end)]
        return found if sum(len(rows) for _, rows in found) <= DRAWN_MAX else None

    def context(self) -> list[Event]:
        """Return what shapes the run: its views, leavings, crashes and ends."""
        names = {code: name for name, code in CODES.items()}
        return [
            Event(
                run=self.layout.runs[self.survey.run], member=row["member"], step=row["step"],
                event=names[row["event"]], view=row["view"] or 0, members=row["members"],
            )
            for row in self.layout.skeleton(self.survey.run).to_pylist()
        ]  # fmt: skip

    # messages and steps

    def when(self, member: int, step: int) -> int | None:
        """Return when a member did its step."""
        unit = self._unit_of.get(member)
        if unit is None:
            return None
        first, last = self.layout.column["first_step"], self.layout.column["last_step"]
        for segment in range(int(self.layout.bounds[unit]), int(self.layout.bounds[unit + 1])):
            if first[segment] <= step <= last[segment]:
                if last[segment] - first[segment] + 1 == self.layout.column["rows"][segment]:  # steps without gaps
                    return self._known(unit, segment, np.array([step - first[segment]]))
                steps = self.layout.read_segment(segment, ("step",))["step"]
                return self._known(unit, segment, np.flatnonzero(steps == step))
        return None

    def message(self, message: Message, units: Sequence[Unit]) -> tuple[int, int]:
        """Return when a message was sent and when the last of some members delivered it."""
        sender, number = message
        sent = self._sent(sender, number)
        if sent is None:
            raise UsageError(f"there is no message {sender}:{number} in this run")
        delivered = [self._delivered(unit, message, sent) for unit in units]
        last = max([sent, *(at for at in delivered if at is not None)])
        return sent, last

    def next_message(self, after: int, units: Sequence[Unit], *, backwards: bool = False) -> Message | None:
        """Return the first message that one of some members sent after a time, or the last before it."""
        found: list[tuple[int, Segment, int]] = []
        for unit in units:
            first = range(int(self.layout.bounds[unit]), int(self.layout.bounds[unit + 1]))
            low, high = (self.survey.start, after - 1) if backwards else (after + 1, self.survey.end)
            segments = [one for one in self.survey.segments(unit, low, high) if one in first]
            for segment in reversed(segments) if backwards else segments:
                if not self.layout.column["send"][segment]:
                    continue
                times = self._times(unit, segment)
                rows = np.flatnonzero((self._kinds(segment) == SEND) & (times >= low) & (times <= high))
                if len(rows):
                    row = int(rows[times[rows].argmax() if backwards else times[rows].argmin()])
                    found.append((int(times[row]), segment, row))
                    break
        if not found:
            return None
        _, segment, row = max(found) if backwards else min(found)
        [message] = self._read(segment, np.array([row]), ("sender", "seq"))
        return int(message["sender"]), int(message["seq"])

    def _sent(self, sender: int, number: int) -> int | None:
        """Return when a message was sent; where sendings are not recorded, when it was delivered first."""
        unit = self._unit_of.get(sender)
        first, last = self.layout.column["first_seq"], self.layout.column["last_seq"]
        segments = () if unit is None else range(int(self.layout.bounds[unit]), int(self.layout.bounds[unit + 1]))
        for segment in segments:
            if self.layout.column["send"][segment] and first[segment] <= number <= last[segment]:
                assert unit is not None
                sends = self._kinds(segment) == SEND
                at = self._known(unit, segment, self._first_row(segment, sends, {"seq": number}))
                if at is not None:
                    return at
        every = [self._delivered(one, (sender, number), self.survey.start) for one in self.survey.units]
        return min((at for at in every if at is not None), default=None)

    def _delivered(self, unit: Unit, message: Message, since: int) -> int | None:
        """Return when a member delivered a message, if it did soon enough to be found in the segments from there on."""
        for segment in self.survey.segments(unit, since, self.survey.end)[: 2 if since > self.survey.start else None]:
            delivers, later = self._kinds(segment) == DELIVER, self._times(unit, segment) >= since
            wanted = {"sender": message[0], "seq": message[1]}
            rows = self._first_row(segment, delivers & later, wanted)
            rows = rows if len(rows) else self._first_row(segment, delivers & ~later, wanted)  # by a clock that is late
            at = self._known(unit, segment, rows)
            if at is not None:
                return at
        return None

    def _first_row(self, segment: Segment, among: Array, wanted: dict[str, int]) -> Array:
        """Return the first of some rows that has these values, none if there is none; rows beyond it are not read."""
        candidates = np.flatnonzero(among)
        if len(candidates):
            for first, piece in self.survey.windows.stretches(segment, tuple(wanted), int(candidates[0])):
                is_it = among[first : first + piece.num_rows].copy()
                for name, value in wanted.items():
                    is_it &= as_numpy(piece[name], name) == value
                if is_it.any():
                    return np.array([first + int(is_it.argmax())])
        return candidates[:0]

    def _known(self, unit: Unit, segment: Segment, rows: Array) -> int | None:
        if not len(rows):
            return None
        time = int(self._times(unit, segment)[int(rows[0])])
        return None if time == NULL_TIME else time

    # rows

    def _read_times(self, unit: Unit, segment: Segment) -> Array:
        """Return the times of a segment's rows by the common clock; NULL_TIME where a row has none."""
        before = int(self.layout.column["rows"][int(self.layout.bounds[unit]) : segment].sum())
        times = self.survey.times(segment, before)
        shift = self.survey.shift[unit]
        return np.where(times == NULL_TIME, NULL_TIME, times - shift) if shift else times

    def _read_kinds(self, segment: Segment) -> Array:
        kinds: Array = self.layout.read_segment(segment, ("event",))["event"]
        return kinds

    def _read(self, segment: Segment, rows: Array, columns: tuple[str, ...] = tuple(COLUMNS)) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.survey.windows.rows_at(segment, rows, columns).to_pylist()
        return found
