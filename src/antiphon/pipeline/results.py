"""What check, measure, sweep and watch found: the types that they write, and that reports, pages and tests read.

Each result is one JSON object (`--json`, and a file of the output folder), or one row of a Parquet table. Nothing here
imports Spark, so a page can be drawn from results where the pipeline is not installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.reading.time_units import UNSAID, TimeReading
from antiphon.pipeline.store.location import Location, files_in, open_parquet
from antiphon.pipeline.verdicts import left_open, verdict
from antiphon.trace.schema import GUARANTEES
from antiphon.trace.verdict import VerdictName, Witness, deciding

if TYPE_CHECKING:
    from antiphon.pipeline.store.location import Location

CHECK_FILE: Final = "check.json"
MEASURE_FILE: Final = "measure.json"
SWEEP_TABLE: Final = "results.parquet"

Clock = Literal["global", "local", "mixed"]


class TraceResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What every result about a trace says of it."""

    trace: str
    runs: int
    members: int
    events: int
    quarantined: int
    quarantine_reasons: dict[str, int] = {}  # why rows were put aside, the most frequent first; said if any were
    quarantine_examples: dict[str, str] = {}  # by reason, one such row
    names: dict[int, str] = {}  # number -> name, of members and senders whose log had names
    times: TimeReading = UNSAID  # in which unit they were read, and what said so
    stale: str = ""  # how the trace has changed since the kept table that was read was made of it


# --- check ------------------------------------------------------------------------------------------------------------


class GuaranteeResult(msgspec.Struct, frozen=True):
    """What was found of one guarantee."""

    verdict: VerdictName
    promised: bool
    examined: int
    violations: int
    witnesses: list[Witness] = []


class CheckResult(TraceResult, kw_only=True):
    """What `antiphon check` found."""

    guarantees: dict[str, GuaranteeResult]
    named: bool = False  # the guarantees were asked for by name, so all of them decide
    only_send: list[int] = []  # members that never deliver anything, where that breaks what nobody promised

    def deciding(self) -> list[str]:
        """Name the guarantees that decide: those that were named, else those promised, else all that are known."""
        words = {name: found.verdict for name, found in self.guarantees.items()}
        promised = [name for name, found in self.guarantees.items() if found.promised]
        return deciding(
            words, promised, named=self.named or len(self.guarantees) < len(GUARANTEES)
        )  # older results do not say


# --- measure ----------------------------------------------------------------------------------------------------------


class Quantiles(msgspec.Struct, frozen=True):
    """Some durations: how many, and the smallest that this share of them does not exceed."""

    count: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int


class BufferPeak(msgspec.Struct, frozen=True):
    """The most messages that any member held at once."""

    run: str
    member: int
    peak: int
    at_ns: int | None


class WireTraffic(msgspec.Struct, frozen=True):
    """Messages of one kind on the wire."""

    count: int
    bytes: int | None


class Repairs(msgspec.Struct, frozen=True):
    """How often one member sent messages again to another; target None is everybody."""

    run: str
    repairer: int
    target: int | None
    count: int
    bytes: int | None


class HeldBack(msgspec.Struct, frozen=True):
    """How much of stability waited for one member."""

    run: str
    member: int
    last: int  # messages that it was the last to hold
    lacked: int  # messages that it never held and that never became stable
    waited_ns: int  # how long it alone was waited for, in all
    longest_ns: int


class MeasureResult(TraceResult, kw_only=True):
    """What `antiphon measure` found; None where the trace does not say, with the reason in `unknown`."""

    clock: Clock
    rows: dict[str, int]  # by event
    latency: dict[str, Quantiles | None]
    buffer: BufferPeak | None
    traffic: dict[str, WireTraffic]
    overhead: float | None  # bytes of control and repairs for each byte of sends
    retransmissions: int | None
    duplicates: int | None
    repairs: list[Repairs]
    held_back: list[HeldBack]
    unknown: dict[str, str]
    relative_error: float  # of the quantiles here; those in the table `latency` are exact


# the rows of the tables that measure leaves for whoever draws a run; each has a folder of its name


class RunRow(msgspec.Struct, frozen=True):
    """A row of the table `runs`."""

    run: str
    members: int
    rows: int
    first_ns: int | None
    last_ns: int | None


class ViewRow(msgspec.Struct, frozen=True):
    """A row of the table `views`: a view of a run, by its number and its members, and when it was installed."""

    run: str
    view: int
    members: list[int]
    installed: int  # by how many members
    first_ns: int | None
    last_ns: int | None


class ProcessRow(msgspec.Struct, frozen=True):
    """A row of the table `processes`: one log of a run in which something changed, and how it ends."""

    run: str
    member: int
    first_ns: int | None
    last_ns: int | None
    ending: Literal["end", "leave", "excluded", "crash"] | None  # None: it was cut short
    undelivered: int | None = None  # messages of its own that no other member delivered
    alone: int | None = None  # messages that it delivered and nobody else did
    quiet_at_ns: int | None = None  # where it recorded nothing for long although the others were busy
    quiet_ns: int | None = None  # and how long that was
    set_back_ns: int | None = None  # how far its clock went back, at most; None: it never did
    set_back_at_ns: int | None = None
    keys_at_ns: list[int] | None = None  # when it changed the keys that it seals with
    unread_at_ns: list[int] | None = None  # when its application's inbox got full, got room again, got full again ...
    clock_off_ns: int | None = None  # how far its clock is ahead of the others', if by a second or more
    sent_at_ns: int | None = None  # its last message
    delivered_at_ns: int | None = None  # its last delivery
    waiting: int | None = None  # messages of its own that it never delivered itself


class HaltRow(msgspec.Struct, frozen=True):
    """A row of the table `halts`: a time in which nobody delivered anything although messages had been sent."""

    run: str
    start_ns: int
    end_ns: int


class HistogramRow(msgspec.Struct, frozen=True):
    """A row of the table `histogram`: how many durations are in [low, high)."""

    measure: str
    low_ns: int
    high_ns: int
    count: int


class OccupancyRow(msgspec.Struct, frozen=True):
    """A row of the table `occupancy`: the buffers of a run's members over a part of its time."""

    run: str
    start_ns: int
    end_ns: int
    mean: float
    peak: int


class WaitingRow(msgspec.Struct, frozen=True):
    """A row of the table `waiting`: messages that waited for one member alone; member None is all others together."""

    run: str
    member: int | None
    start_ns: int
    end_ns: int
    messages: float


class RepairMatrixRow(msgspec.Struct, frozen=True):
    """A row of the table `repair_matrix`: repairer and target are members, "others", or (target) "everybody"."""

    run: str
    repairer: str
    target: str
    count: int


_TABLE_OF: Final[dict[type, str]] = {
    RunRow: "runs",
    ViewRow: "views",
    ProcessRow: "processes",
    HaltRow: "halts",
    HistogramRow: "histogram",
    OccupancyRow: "occupancy",
    WaitingRow: "waiting",
    RepairMatrixRow: "repair_matrix",
}
Row = TypeVar("Row", RunRow, ViewRow, ProcessRow, HaltRow, HistogramRow, OccupancyRow, WaitingRow, RepairMatrixRow)


def read_measured(folder: Location, kind: type[Row], run: str | None = None) -> list[Row]:
    """Return the rows of one of the tables that measure left in a folder; of one run, or all."""
    from antiphon.pipeline.store.location import read_tables

    only = None if run is None else [("run", "==", run)]
    rows: list[Row] = []
    for table in read_tables(folder / _TABLE_OF[kind], filters=only):
        rows += msgspec.convert(table.to_pylist(), list[kind])  # type: ignore[valid-type]
    return rows


# --- sweep ------------------------------------------------------------------------------------------------------------


class FailedCell(msgspec.Struct, frozen=True):
    """A cell that could not be run."""

    cell: str
    seed: int
    error: str | None


class SlowCell(msgspec.Struct, frozen=True):
    """One of the cells that took longest."""

    cell: str
    seed: int
    took_s: float


class SweepResult(msgspec.Struct, kw_only=True):
    """What `antiphon sweep` did, in a few numbers."""

    table: str
    cells: int
    skipped: int  # finished by an earlier run of this sweep
    done: int
    failed: int
    violated: int  # cells in which a promised guarantee is
    unknown: int
    unfinished: int  # simulations that reached their limit
    failures: list[FailedCell]
    slowest: list[SlowCell]


Setting = str | int | float | bool | None  # lists and tables are kept as JSON


class CellGuarantee(msgspec.Struct, frozen=True):
    """What was found of one guarantee in one cell."""

    verdict: VerdictName
    violations: int


class CellLatency(msgspec.Struct, frozen=True):
    """One measure of a cell."""

    p50_ns: int
    p99_ns: int
    max_ns: int


class CellValues(msgspec.Struct, kw_only=True):
    """What a cell that ran gave: all of it follows from the scenario and the seed."""

    finished: bool
    ended_ns: int
    members: int
    sent: int
    delivered: int
    events: int
    digest: str
    promises: list[str]
    broken: list[str]  # promised, and violated
    undecided: list[str]  # promised, and unknown
    guarantees: dict[str, CellGuarantee]
    latency: dict[str, CellLatency | None]
    buffer_peak: int | None
    overhead: float | None
    retransmissions: int | None
    duplicates: int | None
    control_bytes: int
    send_bytes: int | None


class SweepCell(msgspec.Struct, kw_only=True):
    """What became of one cell: its file while the sweep runs, and its row of the table."""

    cell: str
    seed: int
    status: Literal["done", "failed"]
    error: str | None = None
    settings: dict[str, Any] = {}  # what distinguishes it from the others, by the dotted name of the scenario's key
    values: CellValues | None = None  # None if it failed
    took_s: float = 0.0
    host: str = ""


MEASURED: Final = ("delivery", "t1", "t2", "everywhere", "stable", "held")
_QUANTILES: Final = CellLatency.__struct_fields__
_LISTS: Final = ("promises", "broken", "undecided")  # in the table, names with spaces between them
_PLAIN_BEFORE: Final = ("finished", "ended_ns", "members", "sent", "delivered", "events", "digest")
_PLAIN_AFTER: Final = ("buffer_peak", "overhead", "retransmissions", "duplicates", "control_bytes", "send_bytes")
_SETTING: Final = "set."  # keeps the columns of settings apart from what was measured
NOT_REPEATABLE: Final = ("took_s", "host")  # all other columns follow from the scenario and the seed


def cell_row(cell: SweepCell) -> dict[str, Any]:
    """Return a cell as a row of the sweep's table."""
    row: dict[str, Any] = {"cell": cell.cell, "seed": cell.seed, "status": cell.status, "error": cell.error}
    row |= {f"{_SETTING}{key}": _as_setting(value) for key, value in cell.settings.items()}
    row |= dict.fromkeys(_value_columns()) if cell.values is None else dict(_value_cells(cell.values))
    return row | {"took_s": cell.took_s, "host": cell.host}


def _as_setting(value: Any) -> Setting:
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def _value_columns() -> Iterator[str]:
    yield from (*_PLAIN_BEFORE, *_LISTS)
    for name in GUARANTEES:
        yield from (_column(name), f"{_column(name)}_violations")
    yield from (f"{measure}_{quantile}" for measure in MEASURED for quantile in _QUANTILES)
    yield from _PLAIN_AFTER


def _column(guarantee: str) -> str:
    return guarantee.replace("-", "_")


def _value_cells(values: CellValues) -> Iterator[tuple[str, Any]]:
    plain = msgspec.structs.asdict(values)
    yield from ((name, plain[name]) for name in _PLAIN_BEFORE)
    yield from ((name, " ".join(plain[name])) for name in _LISTS)
    for name, found in values.guarantees.items():
        yield _column(name), found.verdict
        yield f"{_column(name)}_violations", found.violations
    for measure in MEASURED:
        latency = values.latency.get(measure)
        quantiles = dict.fromkeys(_QUANTILES) if latency is None else msgspec.structs.asdict(latency)
        yield from ((f"{measure}_{name}", value) for name, value in quantiles.items())
    yield from ((name, plain[name]) for name in _PLAIN_AFTER)


def read_sweep_table(folder: Path) -> list[SweepCell]:
    """Return the cells of a finished sweep, in their order."""
    import pyarrow.parquet as pq

    file = folder / SWEEP_TABLE
    try:
        return [_cell(row) for row in pq.read_table(file, use_threads=False).to_pylist()]
    except (KeyError, msgspec.ValidationError) as problem:
        raise UsageError(f"{file}: not what this version of antiphon sweep writes ({problem}); make it again") from None


def _cell(row: dict[str, Any]) -> SweepCell:
    settings = {name.removeprefix(_SETTING): value for name, value in row.items() if name.startswith(_SETTING)}
    head = {name: row[name] for name in ("cell", "seed", "status", "error", "took_s", "host")}
    if row["status"] != "done":
        return msgspec.convert({**head, "settings": settings}, SweepCell)
    values = {name: row[name] for name in (*_PLAIN_BEFORE, *_PLAIN_AFTER)}
    values |= {name: (row[name] or "").split() for name in _LISTS}
    values["guarantees"] = {
        name: {"verdict": row[_column(name)], "violations": row[f"{_column(name)}_violations"]} for name in GUARANTEES
    }
    values["latency"] = {
        measure: None
        if row[f"{measure}_p50_ns"] is None
        else {quantile: row[f"{measure}_{quantile}"] for quantile in _QUANTILES}
        for measure in MEASURED
    }
    return msgspec.convert({**head, "settings": settings, "values": values}, SweepCell)


# --- watch ------------------------------------------------------------------------------------------------------------


# those that can be judged as a trace grows
WATCHED_GUARANTEES: Final = ("integrity", "validity", "agreement", "fifo", "causal", "total", "view-synchrony")


NOT_WATCHED: Final = {
    "stability": "a mark can be called wrong only when the logs of all in its view have ended; "
    "antiphon check DIR --guarantee stability judges what is there"
}


class WatchFinding(msgspec.Struct):
    """What is known of one guarantee so far; over several runs all of it adds up."""

    examined: int = 0
    violations: int = 0
    undecided: int = 0  # runs in which something is
    inexact: int = 0  # runs in which something came too late to be judged
    lasting: int = 0  # violations that no row which could not be read can explain

    def add(self, other: WatchFinding, sign: int = 1) -> None:
        """Add what was found elsewhere, or (sign -1) take it away again."""
        self.examined += sign * other.examined
        self.violations += sign * other.violations
        self.undecided += sign * other.undecided
        self.inexact += sign * other.inexact
        self.lasting += sign * other.lasting


class StabilityLag(msgspec.Struct, frozen=True):
    """How far stability is behind in one run."""

    run: str
    unstable: int  # messages sent and not yet marked stable by everyone
    oldest_ns: int | None  # how long ago the oldest of them was sent, by the newest time in the trace
    behind: int | None  # the member that has marked least of them


class QuietMember(msgspec.Struct, frozen=True):
    """A member that the others still count in, and that nothing has come from while they went on."""

    run: str
    member: int
    silent_ns: int  # by the newest time in the trace


class UnreadFiles(msgspec.Struct, frozen=True):
    """What is there to be read and has not been."""

    files: int
    events: int  # as many as files of this size had in the last batch
    seconds: float  # since the first of them was noticed


class WatchCommit(msgspec.Struct):
    """All runs together after some batch: the file `commits/BATCH.json` of a checkpoint."""

    batch: int = -1
    files: int = 0
    runs: int = 0
    events: int = 0  # judged
    waiting: int = 0  # rows that wait for a send
    live: int = 0  # messages that are kept
    alarms: int = 0
    findings: dict[str, WatchFinding] = msgspec.field(
        default_factory=lambda: {name: WatchFinding() for name in WATCHED_GUARANTEES}
    )
    quarantined: dict[str, int] = {}  # by event
    quarantine_reasons: dict[str, int] = {}
    quarantine_examples: dict[str, str] = {}  # by reason, one such row
    broken: dict[str, str] = {}  # file -> why nothing of it could be read
    unreachable: dict[str, str] = {}  # folder or link -> why nobody can look into it now
    promises: list[str] | None = None
    lag: StabilityLag | None = None  # of the run that is furthest behind
    waits_for: int | None = None  # the member whose send most members wait for
    quiet: QuietMember | None = None  # the member that nothing has come from for longest
    behind: UnreadFiles | None = None
    stream_batch: int = -1  # the last micro-batch of the stream that is watched
    names: dict[int, str] = {}  # of members and senders whose name is no number
    times: TimeReading = UNSAID  # in which unit they are read, and what said so
    events_per_s: float = 0.0

    @property
    def missing(self) -> dict[str, str]:
        """All that could not be read, with the reasons."""
        return {**self.broken, **self.unreachable}

    def verdicts(self) -> dict[str, VerdictName]:
        """Return the verdicts so far."""
        affected = left_open([*self.quarantined, *("" for _ in self.missing)])  # anything may be in them
        return {
            name: verdict(
                found.examined,
                found.violations,
                undecided=bool(found.undecided or found.inexact),
                left_open=name in affected,
                lasting=found.lasting,
            )
            for name, found in self.findings.items()
        }


class WatchAlarm(msgspec.Struct, frozen=True):
    """One violation as watch found it: a row of the table `alarms` of a checkpoint."""

    batch: int
    run: str
    guarantee: str
    member: int
    step: int
    sender: int
    seq: int
    why: str


class WatchGuarantee(msgspec.Struct, frozen=True):
    """What watch says of one guarantee."""

    verdict: VerdictName
    promised: bool
    examined: int
    violations: int
    inexact: bool  # something came too late to be judged


class WatchResult(msgspec.Struct, kw_only=True):
    """What `antiphon watch` found until it ended."""

    directory: str
    checkpoint: str
    batches: int
    files: int
    runs: int
    events: int
    waiting: int
    live: int
    quarantined: int
    quarantine_reasons: dict[str, int]
    quarantine_examples: dict[str, str]  # by reason, one such row
    missing: dict[str, str]  # file or folder -> why nothing of it could be read
    alarms: int
    lag: StabilityLag | None
    quiet: QuietMember | None
    behind: UnreadFiles | None
    names: dict[int, str]  # of members and senders whose name is no number
    times: TimeReading  # in which unit they are read, and what said so
    events_per_s: int
    guarantees: dict[str, WatchGuarantee]
    not_judged: dict[str, str]  # guarantee -> why, and what to do instead


def last_commit(checkpoint: Location) -> WatchCommit | None:
    """Return what a watch last committed; None if it has committed nothing yet."""
    for file in reversed(files_in(checkpoint / "commits", "*.json")):
        try:
            return msgspec.json.decode(file.read_bytes(), type=WatchCommit)
        except FileNotFoundError:
            continue  # replaced by a later one meanwhile
    return None


def read_alarms(checkpoint: Location, after: int = -1) -> list[WatchAlarm]:
    """Return the alarms of the batches after one that are committed, in order."""
    commit = last_commit(checkpoint)
    alarms: list[WatchAlarm] = []
    for file in files_in(checkpoint / "alarms", "*.parquet"):
        if commit is not None and after < int(file.name.split("-")[0]) <= commit.batch:
            with open_parquet(file) as table:
                alarms += msgspec.convert(table.read(use_threads=False).to_pylist(), list[WatchAlarm])
    return alarms


# --- files ------------------------------------------------------------------------------------------------------------

Result = TypeVar("Result", CheckResult, MeasureResult)


def as_json(result: msgspec.Struct, *, indent: int = 0) -> str:
    """Return a result as a command prints it (one line), or as it writes it into a file."""
    return json.dumps(msgspec.to_builtins(result), indent=indent or None)


def write_result(file: Location, result: msgspec.Struct) -> None:
    """Write a result into a folder that nobody looks at yet."""
    file.write_text(as_json(result, indent=1) + "\n")


def read_check(folder: Path) -> CheckResult:
    """Return what `antiphon check --out` left in a folder."""
    return _read(folder / CHECK_FILE, CheckResult)


def read_measure(folder: Path) -> MeasureResult:
    """Return what `antiphon measure --out` left in a folder."""
    return _read(folder / MEASURE_FILE, MeasureResult)


def _read(file: Path, kind: type[Result]) -> Result:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except msgspec.ValidationError as problem:
        made_by = f"antiphon {file.stem}"
        raise UsageError(f"{file}: not what this version of {made_by} writes ({problem}); make it again") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file}: not JSON ({problem}); make it again") from None
