"""The part of a trace that a diagram shows, found by streaming over the columns that it takes.

Memory is bounded by a batch of rows and by the number of members: what is kept are the rows about the one message, each
member's bounds, and the rows of the window, of which there are never many.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from antiphon.diagram.links import Message, message_of
from antiphon.errors import UsageError
from antiphon.pipeline.columns import Array
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.rows import TRACE_SCHEMA
from antiphon.pipeline.store.files import find_files
from antiphon.pipeline.store.table import table_of
from antiphon.report.trace_rows import NUMBERS, TraceRows, read_rows
from antiphon.trace.event import Event
from antiphon.trace.run_file import RunFiles

EVENTS_MOST: Final = 500  # drawn by default
MEMBERS_MOST: Final = 24
WHOLE_MOST: Final = 20_000  # drawn if the whole run is asked for
STEPS_AROUND: Final = 8  # of each event of the message, where the clock does not say
_NAMED: Final = 12  # runs or senders that an error names
_FIRST_LOOK: Final = ("run", *NUMBERS, "view", "members")


class DiagramRequest(msgspec.Struct, frozen=True):
    """What to show: around a message or one event, of which run and members, how much."""

    around: Message | None = None
    around_step: tuple[int, int] | None = None  # member, step
    run: str | None = None
    members: tuple[int, ...] | None = None
    margin_ns: int | None = None  # before the first and after the last event of the message, where clocks agree
    margin_steps: int | None = None  # the same in steps of each member
    whole: bool = False  # the whole run
    most: int = EVENTS_MOST


def parse_members(text: str, where: str) -> tuple[int, ...]:
    """Read a list of members and ranges of them, such as 0,3,5-9; `where` is what a refusal names."""
    members: list[int] = []
    for word in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", word)
        if found is None or int(found[2] or found[1]) - int(found[1]) > 1000:
            raise UsageError(f"{where} {text}: write numbers and ranges, such as 0,3,5-9")
        members.extend(range(int(found[1]), int(found[2] or found[1]) + 1))
    return tuple(members)


class DiagramWindow(msgspec.Struct):
    """The events to show, and what must be known of the rest."""

    run: str
    focus: Message | None
    events: list[Event]
    members: list[int]
    members_all: int
    clocks_agree: bool
    context: list[Event]  # views, crashes, leaves and ends of the whole run
    elsewhere: dict[tuple[int, Message], str]
    before: bool  # the run goes on outside
    after: bool
    shortened: bool  # the window ends before the message is stable everywhere
    thinned: bool  # not everything between the first and the last event is shown

    @property
    def taking_part(self) -> set[int]:
        """All who are in a view of the run; where none is recorded, those who are drawn."""
        return {member for event in self.context for member in event.members or ()} or set(self.members)


class _Bounds(msgspec.Struct):
    """What is known of a member's log."""

    first: int
    last: int
    rows: int


def read_window(trace: str, request: DiagramRequest, mapping: Mapping | None = None) -> DiagramWindow:
    """Find the window in a trace: a file or a directory, Parquet, CSV or JSON lines."""
    return _Reader(trace, request, mapping or Mapping()).read()


class _Found(msgspec.Struct):
    """What one pass found in each run."""

    anchors: dict[str, list[Event]] = msgspec.field(default_factory=lambda: defaultdict(list))
    bounds: dict[str, dict[int, _Bounds]] = msgspec.field(default_factory=lambda: defaultdict(dict))
    context: dict[str, list[Event]] = msgspec.field(default_factory=lambda: defaultdict(list))
    folders: dict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))


class _Reader:
    def __init__(self, trace: str, request: DiagramRequest, mapping: Mapping) -> None:
        self.trace, self.request = trace, request
        table = table_of(trace, mapping if mapping != Mapping() else None)
        self.files = find_files(trace) if table is None else table.layout.files
        self.windows = None if table is None else table.windows
        self.mapping = self._looked_at(mapping) if table is None else Mapping()

    def _looked_at(self, mapping: Mapping) -> Mapping:
        """Return the mapping with the unit of times; UsageError if names would have to become numbers first."""
        try:
            from antiphon.pipeline.ingesting.foreign import decide_times, has_text
        except ModuleNotFoundError:  # a diagram of a trace needs none of what brings logs of other systems
            return mapping
        if has_text(self.files, mapping):
            raise UsageError(
                f"{self.trace}: members or messages have names, for which a diagram needs numbers: "
                "antiphon ingest TRACE --out TABLE gives them, then draw TABLE"
            )
        return decide_times(self.files, mapping)[0]

    def _rows(self, columns: Sequence[str], run: str | None) -> Iterator[TraceRows]:
        return read_rows(self.files, columns, run, self.mapping)

    def read(self) -> DiagramWindow:
        request = self.request
        found = self._look(request.around)
        run = self._chosen_run(found)
        anchors = found.anchors[run]
        focus = request.around or _message(anchors[0])
        if focus is not None and request.around is None:  # an event of a message: show the message with it
            anchors = [*anchors, *self._look(focus).anchors[run]]
        bounds = found.bounds[run]
        clocks_agree = self._clocks_agree(run, found.folders[run]) and all(one.time_ns is not None for one in anchors)
        members = self._members(anchors, bounds, focus)
        events, thinned = self._window(run, anchors, members, bounds, clocks_agree)
        spans = {member: _steps(events, member) for member in members}
        return DiagramWindow(
            run=run,
            focus=focus,
            events=events,
            members=members,
            members_all=len(bounds),
            clocks_agree=clocks_agree,
            context=found.context[run],
            elsewhere=self._elsewhere(run, events, members),
            before=any(steps and steps[0] > bounds[member].first for member, steps in spans.items()),
            after=any(steps and steps[-1] < bounds[member].last for member, steps in spans.items()),
            shortened=bool(
                {one.member for one in anchors if one.event == "stable"} & set(members) - _marking(events, focus)
            ),
            thinned=thinned,
        )

    def _look(self, around: Message | None) -> _Found:
        """One pass: the rows about the message or at the step, every member's bounds, and what shapes the runs."""
        found = _Found()
        stable: dict[tuple[str, int], Event] = {}
        for rows in self._rows(_FIRST_LOOK, self.request.run):
            for run in _widen(found.bounds, rows.table):
                found.folders[run].add(str(Path(rows.file).parent))
            for event in rows.where(self._at_the_step(rows) if around is None else rows.about(around)):
                found.anchors[event.run].append(event)
            for event in rows.where(rows.nothing() if around is None else rows.earliest_stable(around)):
                known = stable.get((event.run, event.member))
                if known is None or event.step < known.step:
                    stable[event.run, event.member] = event
            for event in rows.where(rows.views_and_ends()):
                found.context[event.run].append(event)
        for (run, _), event in stable.items():
            if run in found.anchors:
                found.anchors[run].append(event)
        return found

    def _at_the_step(self, rows: TraceRows) -> Array:
        assert self.request.around_step is not None
        member, step = self.request.around_step
        return rows.in_steps(member, step, step)

    def _chosen_run(self, found: _Found) -> str:
        if not found.bounds:
            wanted = "" if self.request.run is None else f"no run {self.request.run!r}; "
            raise UsageError(f"{self.trace}: {wanted}it holds {_some(self._runs()) or 'no event that can be read'}")
        runs = sorted(found.anchors)
        if len(runs) > 1:
            raise UsageError(f"{self.trace}: {len(runs)} runs have it; name one with --run: {_some(runs)}")
        if not runs:
            raise UsageError(self._what_is_there(sorted(found.bounds)))
        return runs[0]

    def _runs(self) -> list[str]:
        return sorted(
            {str(run) for rows in self._rows(("run", "event"), None) for run in rows.table["run"].unique().to_pylist()}
        )

    def _what_is_there(self, runs: list[str]) -> str:
        """Say that the message or step is not there, and what is."""
        where = f"run {runs[0]!r}" if len(runs) == 1 else f"any of the {len(runs)} runs"
        if self.request.around_step is not None:
            member, step = self.request.around_step
            ranges: dict[int, tuple[int, int]] = {}
            for rows in self._rows(("run", "member", "step", "event"), self.request.run):
                _ranges(ranges, rows.member, rows.step)
            there = (
                f"its steps go from {ranges[member][0]} to {ranges[member][1]}"
                if member in ranges
                else f"the members are {_some(sorted(ranges))}"
            )
            return f"{self.trace}: member {member} has no step {step} in {where}; {there}"
        assert self.request.around is not None
        sender, seq = self.request.around
        ranges = {}
        for rows in self._rows(("run", "member", "event", "seq"), self.request.run):
            _ranges(ranges, rows.member[rows.sends()], rows.seq[rows.sends()])
        if sender in ranges:
            there = f"member {sender} sent {sender}:{ranges[sender][0]} to {sender}:{ranges[sender][1]}"
        elif ranges:
            there = "messages were sent by " + _some(
                [f"{one} ({one}:{low} to {one}:{high})" for one, (low, high) in sorted(ranges.items())]
            )
        else:
            there = "nothing is sent there"
        return f"{self.trace}: no message {sender}:{seq} in {where}; {there}"

    def _clocks_agree(self, run: str, folders: set[str]) -> bool:
        if self.windows is not None:
            return self.windows.global_clock(run)
        root = Path(self.trace).absolute()
        run_files = RunFiles(root if root.is_dir() else root.parent)
        said = [run_files.of(folder) for folder in folders]
        return all(one is not None and one.global_clock for one in said)

    def _members(self, anchors: Sequence[Event], bounds: dict[int, _Bounds], focus: Message | None) -> list[int]:
        """The members to draw: all, or those named, or, of many, the sender and those to whom the message came last."""
        if self.request.members is not None:
            unknown = [member for member in self.request.members if member not in bounds]
            if unknown:
                raise UsageError(f"--members: there is no member {unknown[0]}; the members are {_some(sorted(bounds))}")
            return sorted(set(self.request.members))
        if len(bounds) <= MEMBERS_MOST:
            return sorted(bounds)
        first = {focus[0]} if focus is not None else {anchors[0].member}
        first |= {event.member for event in anchors if event.event in ("send", "control")}
        came: dict[int, tuple[int, int]] = {}
        for event in anchors:
            if event.event in ("receive", "deliver"):
                came[event.member] = (0, event.time_ns or event.step)
        late = sorted((one for one in bounds if one not in first), key=lambda one: came.get(one, (1, 0)), reverse=True)
        return sorted([*sorted(first & set(bounds)), *late][:MEMBERS_MOST])

    # The window

    def _window(
        self, run: str, anchors: Sequence[Event], members: list[int], bounds: dict[int, _Bounds], clocks_agree: bool
    ) -> tuple[list[Event], bool]:
        request = self.request
        if request.whole:
            total = sum(bounds[member].rows for member in members)
            if total > WHOLE_MOST:
                raise UsageError(f"--window all: the run has {total:,} events, too many to draw; leave it out")
            return self._collect(
                run, {member: [(bounds[member].first, bounds[member].last)] for member in members}
            ), False
        if request.margin_ns is not None and not clocks_agree:
            raise UsageError("--window: the members of this run share no clock; give a number of steps, not a time")
        if clocks_agree and request.margin_steps is None:
            for span in self._spans_of_time(anchors):
                if self._count(run, members, span) <= request.most:
                    return self._collect(run, {}, span, members), False
        around = STEPS_AROUND if request.margin_steps is None else request.margin_steps
        spans = self._spans_of_steps(run, anchors, members, clocks_agree, around)
        if sum(high - low + 1 for low, high in spans.values()) <= request.most:
            return self._collect(run, {member: [span] for member, span in spans.items()}), False
        return self._collect(run, self._near(anchors, spans, around)), True

    def _spans_of_time(self, anchors: Sequence[Event]) -> Iterator[tuple[int, int]]:
        """From the first event of the message to its last, or if that is too much, to the last before it is stable."""
        for chosen in (anchors, [event for event in anchors if event.event != "stable"]):
            times = [event.time_ns or 0 for event in chosen]
            span = max(times) - min(times)
            margin = span // 5 if self.request.margin_ns is None else self.request.margin_ns
            if span or margin:
                yield min(times) - margin, max(times) + margin

    def _spans_of_steps(
        self, run: str, anchors: Sequence[Event], members: Sequence[int], clocks_agree: bool, around: int
    ) -> dict[int, tuple[int, int]]:
        """Each member's steps from its first event of the message to its last.

        For a member that has none: the steps of that time or, without a common clock, those in which it handled the
        messages that the others handled then.
        """
        spans = {}
        for member in members:
            steps = [event.step for event in anchors if event.member == member]
            if steps:
                spans[member] = (min(steps) - around, max(steps) + around)
        missing = [member for member in members if member not in spans]
        if not missing:
            return spans
        then = self._collect(run, {member: [(low, low + 2 * around)] for member, (low, _) in spans.items()})
        times = [event.time_ns or 0 for event in (*anchors, *then)]
        handled = {message for event in then if event.event != "stable" and (message := _message(event)) is not None}
        ranges: dict[int, tuple[int, int]] = {}
        for rows in self._rows(("run", *NUMBERS), run):
            mask = rows.of_members(missing)
            mask &= rows.during((min(times), max(times))) if clocks_agree else rows.among(handled)
            _ranges(ranges, rows.member[mask], rows.step[mask])
        return {**spans, **ranges}

    def _near(
        self, anchors: Sequence[Event], spans: dict[int, tuple[int, int]], around: int
    ) -> dict[int, list[tuple[int, int]]]:
        """Only the neighbourhood of each event of the message, as wide as the limit on events allows."""
        centres: dict[int, list[int]] = {member: [] for member in spans}
        for event in anchors:
            if event.member in centres:
                centres[event.member].append(event.step)
        for member, (low, high) in spans.items():
            centres[member] = centres[member] or [(low + high) // 2]
        count = sum(len(steps) for steps in centres.values())
        around = max(1, min(around, (self.request.most // count - 1) // 2))
        return {member: [(step - around, step + around) for step in steps] for member, steps in centres.items()}

    def _count(self, run: str, members: Sequence[int], span: tuple[int, int]) -> int:
        return sum(
            int((rows.during(span) & rows.of_members(members)).sum())
            for rows in self._rows(("run", "member", "time_ns", "event"), run)
        )

    def _collect(
        self,
        run: str,
        steps: dict[int, list[tuple[int, int]]],
        span: tuple[int, int] | None = None,
        members: Sequence[int] = (),
    ) -> list[Event]:
        """The rows in a span of time, or in spans of each member's steps, by (member, step), no step twice."""
        collected: dict[tuple[int, int], Event] = {}
        for rows in self._rows(TRACE_SCHEMA.names, run):
            if span is not None:
                mask = rows.during(span) & rows.of_members(members)
            else:
                mask = rows.nothing()
                for member in np.unique(rows.member).tolist():
                    for low, high in steps.get(member, ()):
                        mask |= rows.in_steps(member, low, high)
            for event in rows.where(mask):
                collected.setdefault((event.member, event.step), event)
        return [collected[key] for key in sorted(collected)]

    def _elsewhere(self, run: str, events: Sequence[Event], members: Sequence[int]) -> dict[tuple[int, Message], str]:
        """Which messages that are sent in the window come to which members outside of it."""
        sent = {message for event in events if event.event == "send" and (message := _message(event)) is not None}
        there = {(e.member, e.sender, e.seq) for e in events if e.event in ("receive", "deliver", "discard")}
        found: dict[tuple[int, Message], str] = {}
        if not sent:
            return found
        for rows in self._rows(("run", "member", "event", "sender", "seq"), run):
            mask = rows.arrivals() & rows.of_members(members) & rows.among(sent)
            keys = zip(*(column[mask].tolist() for column in (rows.member, rows.sender, rows.seq)), strict=True)
            for member, sender, seq in keys:
                if (member, sender, seq) not in there:
                    found[member, (sender, seq)] = "later"
        return found


def _widen(bounds: dict[str, dict[int, _Bounds]], table: pa.Table) -> set[str]:
    """Widen the members' bounds by some rows; which runs these are of."""
    grouped = table.select(["run", "member", "step"]).group_by(["run", "member"], use_threads=False)
    runs = set()
    for row in grouped.aggregate([("step", "min"), ("step", "max"), ("step", "count")]).to_pylist():
        if None not in (row["run"], row["member"], row["step_min"]):
            known = bounds[row["run"]].setdefault(row["member"], _Bounds(row["step_min"], row["step_max"], 0))
            known.first, known.last = min(known.first, row["step_min"]), max(known.last, row["step_max"])
            known.rows += row["step_count"]
            runs.add(row["run"])
    return runs


def _message(event: Event) -> Message | None:
    return message_of(event) if event.event != "stable" else None


def _ranges(ranges: dict[int, tuple[int, int]], keys: Array, values: Array) -> None:
    """Widen the range of each key by its values."""
    for key in np.unique(keys).tolist():
        mine = values[keys == key]
        low, high = ranges.get(key, (int(mine[0]), int(mine[0])))
        ranges[key] = (min(low, int(mine.min())), max(high, int(mine.max())))


def _marking(events: Sequence[Event], message: Message | None) -> set[int]:
    """The members that mark a message stable among these events."""
    return {
        event.member
        for event in events
        if message is not None
        and event.event == "stable"
        and event.sender == message[0]
        and (event.seq or 0) >= message[1]
    }


def _steps(events: Sequence[Event], member: int) -> list[int]:
    return [event.step for event in events if event.member == member]


def _some(names: Sequence[object]) -> str:
    """A list, shortened where it is long."""
    shown = ", ".join(str(name) for name in names[:_NAMED])
    return shown + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
