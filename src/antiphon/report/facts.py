"""All that a trace's page says: read what was given, check and measure what was not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Final

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.checking import CheckOptions, check_layout
from antiphon.pipeline.ingesting.keep import lay_out_trace, look_at_trace
from antiphon.pipeline.measuring import measure_layout
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.time_units import UNSAID, TimeReading
from antiphon.pipeline.results import (
    CheckResult,
    HaltRow,
    HistogramRow,
    MeasureResult,
    OccupancyRow,
    ProcessRow,
    RepairMatrixRow,
    RunRow,
    TraceResult,
    ViewRow,
    WaitingRow,
    read_check,
    read_measure,
    read_measured,
)
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import Location, is_uri
from antiphon.report.run_settings import RunSettings, run_settings
from antiphon.report.sources import Given
from antiphon.report.witness_rows import NamedWitness, WitnessRows, find_witness_rows
from antiphon.trace.schema import ALL_GUARANTEES

UNIFORM: Final = ("agreement", "total")  # the guarantees that have a uniform form
DRAWN_MAX: Final = 10  # witnesses that are drawn

Start = Callable[[], AbstractContextManager[Session]]


class DrawnWitness(msgspec.Struct, frozen=True):
    """A witness with the rows around it."""

    named: NamedWitness
    rows: WitnessRows


class Facts(msgspec.Struct, kw_only=True):
    """All that a trace's page says."""

    trace: str
    runs: int
    members: int
    events: int
    quarantined: int
    quarantine_reasons: dict[str, int] = {}
    quarantine_examples: dict[str, str] = {}
    times: TimeReading = UNSAID  # in which unit they were read, and what said so
    stale: str = ""  # how the trace has changed since the table that was read was made of it
    checked: CheckResult | None = None
    uniform: CheckResult | None = None  # the same with the deliveries of members that crashed or left, if any did
    measured: MeasureResult | None = None
    lost: str | None = None  # where the trace was when it was checked, if it is not there any more
    run: RunRow | None = None  # the run that is drawn
    settings: RunSettings = RunSettings()  # of that run
    lives: dict[int, int] | None = None  # which of its name's lives each process is, once that was counted
    in_views: set[int] | None = None  # who is in any of its views, once that was asked for
    left_behind: dict[int, int | None] | None = None  # when others went on without a member, once that was asked for
    views: list[ViewRow] = []
    processes: list[ProcessRow] = []
    halts: list[HaltRow] = []
    histogram: list[HistogramRow] = []
    occupancy: list[OccupancyRow] = []
    waiting: list[WaitingRow] = []
    repair_matrix: list[RepairMatrixRow] = []
    drawn: list[DrawnWitness] = []


def gather(
    given: Given,
    folder: Location,
    start: Start,
    *,
    check: bool = True,
    run: str | None = None,
    mapping: Mapping | None = None,
    uniform: bool = False,
) -> Facts:
    """Bring together what the page says; `start` gives a session, and is called only if there is work for it."""
    checked = read_check(given.check) if given.check is not None and check else None
    measured = read_measure(given.measure) if given.measure is not None else None
    known: TraceResult | None = checked or measured
    check_here = check and checked is None and measured is None
    witnesses = to_draw(checked) if checked is not None else []
    tables: Location | None = given.measure
    drawn, also = [], None
    if given.trace is not None and (check_here or measured is None or witnesses):
        with ExitStack() as stack:
            here = _Trace(given.trace, folder, start, stack, mapping)
            if known is not None and known.events != here.totals.events:
                said = f"it has {here.totals.events:,} events and had {known.events:,} when it was looked at"
                raise UsageError(f"{given.trace}: the trace has changed, {said}; check and measure it again")
            if check_here:
                checked = here.check(uniform=uniform)
                witnesses = to_draw(checked)
                also = None if uniform else here.check_uniform(checked)
            if measured is None:
                measured, tables = here.measure()
            rows = find_witness_rows(here.session, here.layout, witnesses) if witnesses else []
            drawn = [DrawnWitness(*one) for one in zip(witnesses, rows, strict=True)]
            known = known or checked or measured
    assert known is not None, "what was given is a trace or about one"
    facts = _facts_about(known)
    facts.checked, facts.uniform, facts.measured, facts.drawn = checked, also, measured, drawn
    facts.lost = known.trace if given.trace is None and (measured is None or witnesses) else None
    if tables is not None:
        _read_tables(facts, tables, run, witnesses)
    _read_settings(facts, given.trace, known, mapping)
    return facts


def measured_facts(trace: str, measured: MeasureResult, tables: Location, mapping: Mapping) -> Facts:
    """Return what a measured trace tells, which is all but verdicts; `tables` is where `measure` left its own."""
    facts = _facts_about(measured)
    facts.measured = measured
    _read_tables(facts, tables, None, [])
    _read_settings(facts, trace, measured, mapping)
    return facts


def _facts_about(known: TraceResult) -> Facts:
    return Facts(
        trace=known.trace,
        runs=known.runs,
        members=known.members,
        events=known.events,
        quarantined=known.quarantined,
        quarantine_reasons=known.quarantine_reasons,
        quarantine_examples=known.quarantine_examples,
        times=known.times,
        stale=known.stale,
    )


def _read_settings(facts: Facts, trace: str | None, known: TraceResult, mapping: Mapping | None) -> None:
    """Read what is said of the run that is shown, with the names of its members."""
    if facts.run is not None:
        named = {} if mapping is None else {number: name for name, number in mapping.members.items()}
        facts.settings = run_settings(trace, facts.run.run, {**known.names, **named})


def to_draw(checked: CheckResult) -> list[NamedWitness]:
    """Choose the witnesses to draw: of each broken guarantee that decides the first, then the second, and so on."""
    queues = [[NamedWitness(name, one) for one in checked.guarantees[name].witnesses] for name in checked.deciding()]
    turns = [queue[turn] for turn in range(DRAWN_MAX) for queue in queues if turn < len(queue)]
    return turns[:DRAWN_MAX]


def _read_tables(facts: Facts, tables: Location, wanted: str | None, witnesses: list[NamedWitness]) -> None:
    """Read the small tables that `measure` leaves, of the run that is shown."""
    facts.run = _choose_run(read_measured(tables, RunRow), wanted, witnesses)
    facts.histogram = read_measured(tables, HistogramRow)
    if facts.run is not None:
        facts.views = read_measured(tables, ViewRow, facts.run.run)
        facts.processes = read_measured(tables, ProcessRow, facts.run.run)
        facts.halts = read_measured(tables, HaltRow, facts.run.run)
        facts.occupancy = read_measured(tables, OccupancyRow, facts.run.run)
        facts.waiting = read_measured(tables, WaitingRow, facts.run.run)
        facts.repair_matrix = read_measured(tables, RepairMatrixRow, facts.run.run)


def _choose_run(runs: list[RunRow], wanted: str | None, witnesses: list[NamedWitness]) -> RunRow | None:
    """Choose the run that figures over time show: the one asked for, else the first witness's, else the largest."""
    by_name = {row.run: row for row in runs}
    if wanted is not None:
        if wanted not in by_name:
            few = ", ".join(sorted(by_name)[:5]) or "none"
            raise UsageError(f"--run {wanted}: no such run in this trace; it has {few}{', ...' * (len(by_name) > 5)}")
        return by_name[wanted]
    for named in witnesses:
        if named.witness.run in by_name:
            return by_name[named.witness.run]
    return max(runs, key=lambda row: row.rows, default=None)


class _Trace:
    """A trace, ingested once, then checked and measured as needed."""

    def __init__(self, trace: str, folder: Location, start: Start, stack: ExitStack, mapping: Mapping | None) -> None:
        if not is_uri(trace):
            look_at_trace(trace, mapping)  # say what is wrong with the path before Spark starts
        self.session = stack.enter_context(start())
        laid = lay_out_trace(self.session, trace, folder / "layout", mapping)
        self.folder, self.layout, self.mapping, self.totals = folder, laid.folder, laid.mapping, laid.totals

    def check_uniform(self, plain: CheckResult) -> CheckResult | None:
        """Check what is different where deliveries of members that crashed or left count too, if any did."""
        counts = TraceLayout(self.layout).column
        if not (counts["crash"].any() or counts["leave"].any()):
            return None
        names = tuple(name for name in UNIFORM if plain.guarantees[name].verdict != "violated")
        return self.check(uniform=True, guarantees=names, scratch="uniform") if names else None

    def check(
        self, *, uniform: bool, guarantees: tuple[str, ...] = ALL_GUARANTEES, scratch: str = "scratch"
    ) -> CheckResult:
        """Check guarantees; `uniform`: deliveries of members that crashed or left count too."""
        options = CheckOptions(
            guarantees=guarantees,
            implied_own_deliveries=self.mapping.own_deliveries == "implied",
            unrecorded_sends=self.mapping.sends == "unrecorded",
            uniform=uniform,
        )
        return check_layout(self.session, self.layout, self.totals, self.folder / scratch, options)

    def measure(self) -> tuple[MeasureResult, Location]:
        """Measure; return what was found, and the folder of the tables."""
        tables = self.folder / "tables"
        return measure_layout(self.session, self.layout, self.totals, tables, self.folder / "work"), tables
