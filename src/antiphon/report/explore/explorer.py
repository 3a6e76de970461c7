"""What the page of `antiphon explore` is told: a run as a whole, any window of it, and where things are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np

from antiphon.diagram.layout import lay_out
from antiphon.diagram.links import Message
from antiphon.diagram.page import figure
from antiphon.errors import UsageError
from antiphon.pipeline.columns import Unit
from antiphon.pipeline.reading.time_units import UNSAID, TimeReading
from antiphon.pipeline.results import CheckResult, HaltRow, ProcessRow, RunRow, ViewRow, read_measure, read_measured
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.report.explore.survey import Survey
from antiphon.report.explore.windows import DRAWN_MAX, Windows
from antiphon.report.facts import Facts
from antiphon.report.guarantee_words import GUARANTEES
from antiphon.report.headline import headline
from antiphon.report.member_names import group_size, lane_of, member_name, with_names
from antiphon.report.run_settings import RunSettings
from antiphon.report.timeline import BASIS_WORDS, Occurrence, start_ns, timeline
from antiphon.wording import count, duration, time_unit

STRIP_BUCKETS: Final = 640
LANE_BUCKETS: Final = 160
LANES_MAX: Final = 24  # members that are shown one by one; the others are summed up
MOMENTS_MAX: Final = 2_000
RUNS_MAX: Final = 2_000  # that the page lets one choose from
VIOLATIONS_MAX: Final = 60
_NO_FAULT: Final = ("view", "join", "return", "leave", "merge", "keys")

Kind = Literal["view", "fault", "change", "violation"]


class ExploreMoment(msgspec.Struct, frozen=True):
    """Something on the strip that can be jumped to."""

    at: int
    until: int | None
    kind: Kind
    text: str
    known: str  # how it is known


class RunOverview(msgspec.Struct, frozen=True):
    """A whole run; times are since its beginning, or positions in each log where it has none."""

    trace: str
    run: str
    runs: list[str]
    timed: bool
    start: int
    end: int
    events: int
    members: int
    size: str  # of the group, in words
    headline: str  # what happened to the group, and the verdict
    density: list[int]
    moments: list[ExploreMoment]
    checked: bool
    notes: list[str]


class ExploreLane(msgspec.Struct, frozen=True):
    """How busy a member, or the mean of several, was in each part of a window."""

    name: str
    counts: list[float]
    summed: bool = False


class ExploreWindow(msgspec.Struct, frozen=True):
    """What a window shows: the events themselves if they are few, and how busy each member was."""

    start: int
    end: int
    words: str
    drawn: str | None  # a diagram, as HTML
    lanes: list[ExploreLane]
    focus: str | None = None


class ExploredRun:
    """One run of a trace, read once as a whole and then by windows."""

    def __init__(self, explorer: Explorer, run: str) -> None:
        layout = explorer.layout
        number = layout.runs.index(run)
        self.survey = Survey(layout, number, explorer.told)
        self.windows = Windows(self.survey)
        survey = self.survey
        units = survey.units
        rows = int(layout.unit_rows[units.start : units.stop].sum())
        self.global_clock = bool(layout.column["global_clock"][layout.segments_of(number)].all())
        first, last = (survey.start, survey.end) if survey.timed else (None, None)
        tables = explorer.measured
        self.facts = Facts(
            trace=explorer.trace,
            runs=1,
            members=len(units),
            events=rows,
            quarantined=0,
            run=RunRow(run=run, members=len(units), rows=rows, first_ns=first, last_ns=last),
            settings=explorer.settings(run),
            checked=explorer.checked,
            measured=None if tables is None else read_measure(tables),
            views=survey.views if tables is None else read_measured(tables, ViewRow, run),
            processes=survey.processes if tables is None else read_measured(tables, ProcessRow, run),
            halts=survey.halts if tables is None else read_measured(tables, HaltRow, run),
        )
        self.zero = start_ns(self.facts) if survey.timed else 0
        self.occurred = timeline(self.facts)
        self.moments = sorted([*self._happened(), *self._violations(explorer.checked)], key=lambda one: one.at)
        self._context = self.windows.context()

    def overview(self, explorer: Explorer) -> RunOverview:
        """Return the run as a whole."""
        survey = self.survey
        edges = np.linspace(survey.start, survey.end, STRIP_BUCKETS + 1)
        density = sum(survey.events(unit, edges) for unit in survey.units)
        notes = [f"{said}." for said in (explorer.stale, explorer.times.words()) if said]
        if not survey.timed:
            notes.append("The trace has no times: positions are rows of each member's log, side by side.")
        elif not self.global_clock:
            notes.append("The members share no clock: each one's events lie where its own clock puts them.")
        if len(self.moments) > MOMENTS_MAX:
            notes.append(f"The strip shows the first {MOMENTS_MAX:,} of {len(self.moments):,} things that happened.")
        if explorer.checked is None:
            notes.append("Violations are shown if what antiphon check wrote with --out is given too.")
        return RunOverview(
            trace=explorer.trace,
            run=self.facts.run.run if self.facts.run else "",
            runs=explorer.layout.runs[:RUNS_MAX],
            timed=survey.timed,
            start=survey.start - self.zero,
            end=survey.end - self.zero,
            events=self.facts.events,
            members=self.facts.members,
            size=group_size(self.facts),
            headline=headline(self.facts),
            density=np.rint(density).astype(int).tolist(),
            moments=self.moments[:MOMENTS_MAX],
            checked=explorer.checked is not None,
            notes=notes,
        )

    def window(self, start: int, end: int, members: Sequence[int] | None, focus: Message | None) -> ExploreWindow:
        """Return a window from one time since the beginning to another."""
        survey = self.survey
        low, high = sorted((start + self.zero, end + self.zero))
        low, high = max(low, survey.start), min(max(high, low + 1), survey.end)
        low = min(low, high - 1)
        chosen = self.windows.units(members) if members else self._chosen(low, high)
        if focus is not None and focus[0] in {survey.member(unit) for unit in survey.units}:
            own = self.windows.units([focus[0]])
            chosen = chosen if own[0] in chosen else [*own, *chosen[: LANES_MAX - 1]]
        others = [unit for unit in survey.units if unit not in set(chosen)]
        events = self.windows.events(chosen, low, high)
        lanes = [self._lane(unit, low, high) for unit in chosen]
        if others and not members:
            lanes.append(self._rest(others, low, high))
        total = sum(self.windows.estimate([unit], low, high) for unit in survey.units)
        said = sum(sum(lane.counts) for lane in lanes) if not others else total
        drawn = None
        if events:
            names = {survey.member(unit): self._name(unit) for unit in chosen}
            layout = lay_out(
                events,
                clocks_agree=self.global_clock and survey.timed,
                focus=focus,
                context=self._context,
                also_members=[survey.member(unit) for unit in chosen],
                names={member: name for member, name in names.items() if not name.startswith("member ")},
            )
            drawn = str(figure(layout, f"{count(len(events), 'event')} at {count(len(chosen), 'member')}"))
        return ExploreWindow(
            start=low - self.zero,
            end=high - self.zero,
            words=self._words(low, high, round(said), len(events) if events is not None else None, len(chosen)),
            drawn=drawn,
            lanes=lanes,
            focus=None if focus is None else f"{focus[0]}:{focus[1]}",
        )

    def around_message(self, message: Message) -> tuple[int, int]:
        """Return a window from a message's sending to its last delivery, or as much of that as can be drawn."""
        chosen = self._chosen(self.survey.start, self.survey.end)
        sent, last = self.windows.message(message, chosen)
        margin = max((last - sent) // 8, 1)
        low, high = sent - margin, last + margin
        while high - sent > 2 and self.windows.places(chosen, low, high) is None:
            high = sent + (high - sent) // 2
            low = sent - max(1, (high - sent) // 8)
        return low - self.zero, high - self.zero

    def message_near(self, at: int, *, backwards: bool) -> Message | None:
        """Return the next message after, or the last before, a time since the beginning."""
        chosen = self._chosen(self.survey.start, self.survey.end)
        return self.windows.next_message(at + self.zero, chosen, backwards=backwards)

    # what is shown

    def _happened(self) -> list[ExploreMoment]:
        if not self.survey.timed:
            return self._by_position()
        return [
            ExploreMoment(one.at_ns, one.until_ns, _kind(one), one.text, BASIS_WORDS[one.basis])
            for one in self.occurred
            if one.at_ns is not None
        ]

    def _by_position(self) -> list[ExploreMoment]:
        """Return views and endings of a trace without times, where they stand in their logs."""
        words = {"view": "installs view {}", "leave": "leaves", "crash": "crashes"}
        found = []
        for event in self.windows.context():
            at = self.windows.when(event.member, event.step)
            if event.event in words and at is not None:
                text = f"{member_name(self.facts, event.member)} {words[event.event].format(event.view)}"
                kind: Kind = "fault" if event.event == "crash" else "change" if event.event == "leave" else "view"
                found.append(ExploreMoment(at, None, kind, text, BASIS_WORDS["recorded"]))
        return found

    def _violations(self, checked: CheckResult | None) -> list[ExploreMoment]:
        found: list[ExploreMoment] = []
        run = self.facts.run.run if self.facts.run else ""
        for name, result in {} if checked is None else checked.guarantees.items():
            for witness in result.witnesses:
                places = [(witness.member if one.member is None else one.member, one.step) for one in witness.events]
                if witness.run == run and places and len(found) < VIOLATIONS_MAX:
                    times = [at for place in places if (at := self.windows.when(*place)) is not None]
                    if times:
                        text = f"{GUARANTEES[name].name} is broken: {with_names(self.facts, witness.why)}"
                        at, until = min(times) - self.zero, max(times) - self.zero
                        found.append(ExploreMoment(at, until, "violation", text, "found by antiphon check"))
        return found

    def _chosen(self, low: int, high: int) -> list[Unit]:
        """Return whose lanes are shown: of a large group those something happened to, then the least busy."""
        units = list(self.survey.units)
        if len(units) <= LANES_MAX:
            return units
        near = [
            one
            for one in self.occurred
            if one.kind != "view"
            and one.at_ns is not None
            and one.at_ns + self.zero <= high
            and (one.at_ns if one.until_ns is None else one.until_ns) + self.zero >= low
        ]
        lanes = {lane_of(self.facts, member) for one in near for member in one.members}
        busy = {unit: self.windows.estimate([unit], low, high) for unit in units}

        def rank(unit: Unit) -> tuple[bool, float, Unit]:
            return lane_of(self.facts, self.survey.member(unit)) not in lanes, busy[unit], unit

        return sorted(sorted(units, key=rank)[: LANES_MAX - 1])

    def _lane(self, unit: Unit, low: int, high: int) -> ExploreLane:
        counts = self.windows.counts(unit, low, high, LANE_BUCKETS)
        return ExploreLane(self._name(unit), [round(float(value), 1) for value in counts])

    def _rest(self, others: Sequence[Unit], low: int, high: int) -> ExploreLane:
        edges = np.linspace(low, high, LANE_BUCKETS + 1)
        mean = np.mean([self.survey.events(unit, edges) for unit in others], axis=0)
        return ExploreLane(f"the other {len(others):,}, mean", [round(float(value), 2) for value in mean], summed=True)

    def _name(self, unit: Unit) -> str:
        return member_name(self.facts, self.survey.member(unit))

    def _words(self, low: int, high: int, events: int, drawn: int | None, lanes: int) -> str:
        facts, survey = self.facts, self.survey
        if not survey.timed:
            said = f"Rows {low:,} to {high:,} of each log"
        else:
            start, end = (_instant(at - self.zero, high - low) for at in (low, high))
            said = f"From {start} to {end} ({duration(high - low)})"
        about = "" if drawn is not None and lanes == facts.members else "about "
        said += f": {about}{count(drawn if drawn is not None and not about else events, 'event')}"
        said += self._views_in(low, high)
        if drawn is None:
            said += f". Too many to draw one by one: zoom in to {DRAWN_MAX} or fewer"
        elif lanes < facts.members:
            said += f". {count(drawn, 'event')} of {count(lanes, 'member')} drawn"
        return said + "."

    def _views_in(self, low: int, high: int) -> str:
        """Say in which view, or from which view to which, a window lies."""
        views = sorted(self.survey.views, key=lambda one: one.first_ns or 0)
        before = [view for view in views if (view.first_ns or 0) <= low]
        here = [*before[-1:], *(view for view in views if low < (view.first_ns or 0) <= high)]
        if len(here) == 1:
            return f", in view {here[0].view} of {count(len(here[0].members), 'member')}"
        return f", from view {here[0].view} to view {here[-1].view}" if here else ""


def _instant(at_ns: int, width_ns: int) -> str:
    """Say an instant as exactly as the edge of a window of this width needs it: to a hundredth of that."""
    _, unit = time_unit(at_ns)
    return duration(at_ns, decimals=min(9, max(0, math.ceil(math.log10(100 * unit / width_ns))))) if at_ns else "0"


def _kind(one: Occurrence) -> Kind:
    return "view" if one.kind == "view" else "change" if one.kind in _NO_FAULT else "fault"


class Explorer:
    """A trace that was ingested: its runs, each surveyed when it is asked for."""

    def __init__(
        self,
        trace: str,
        layout: TraceLayout,
        settings: Callable[[str], RunSettings],
        checked: CheckResult | None = None,
        told: Callable[[int], None] = lambda rows: None,
        stale: str = "",
        measured: Path | None = None,
        times: TimeReading = UNSAID,
    ) -> None:
        if not layout.runs:
            raise UsageError(f"{trace}: it has no events, so there is nothing to explore")
        self.trace, self.layout, self.settings, self.checked, self.told = trace, layout, settings, checked, told
        self.times = times  # in which unit they were read, and what said so
        self.measured = measured  # the folder that antiphon measure wrote
        self.stale = stale  # how the trace has changed since the table was made of it
        self._run = functools.lru_cache(maxsize=4)(functools.partial(ExploredRun, self))

    def largest_run(self) -> str:
        """Return the run with the most events."""
        layout = self.layout
        rows = [int(layout.unit_rows[layout.units_of(run).start : layout.units_of(run).stop].sum())
                for run in range(len(layout.runs))]  # fmt: skip
        return layout.runs[int(np.argmax(rows))]

    def run(self, name: str | None) -> ExploredRun:
        """Return a run, the largest if none is named."""
        name = name or self.largest_run()
        if name not in self.layout.runs:
            raise UsageError(f"there is no run {name!r} in this trace")
        return self._run(name)
