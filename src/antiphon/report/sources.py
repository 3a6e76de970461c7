"""What a report is made from: a trace, or what check, measure and sweep left; only small tables are read here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.errors import UsageError
from antiphon.report.windows import Window
from antiphon.trace import verdict
from antiphon.trace.schema import GUARANTEES

DRAWN_MAX: Final = 10  # witnesses that are drawn
_TABLES: Final = ("occupancy", "waiting", "repair_matrix")  # of one run


class Given(msgspec.Struct):
    """What the command line named: each a folder or file of its kind."""

    trace: str | None = None
    check: Path | None = None
    measure: Path | None = None
    sweep: Path | None = None


class Facts(msgspec.Struct, kw_only=True):
    """All that a trace's page says."""

    trace: str
    runs: int
    members: int
    events: int
    quarantined: int
    checked: dict[str, Any] | None = None  # as check.json has it
    measured: dict[str, Any] | None = None  # as measure.json has it
    lost: str | None = None  # where the trace was when it was checked, if it is not there any more
    run: dict[str, Any] | None = None  # the run that is drawn: a row of the table `runs`
    about: dict[str, Any] = {}  # its run.json
    histogram: list[dict[str, Any]] = []
    occupancy: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    repair_matrix: list[dict[str, Any]] = []
    drawn: list[tuple[str, dict[str, Any], Window]] = []  # (guarantee, witness, its rows)


def recognise(paths: list[str]) -> Given:
    """Tell traces from what the other commands left; UsageError if they do not go together."""
    given = Given()
    for path in paths:
        kind = _kind(Path(path))
        if getattr(given, kind) is not None:
            raise UsageError(f"{path}: a second {kind}; a report is about one")
        setattr(given, kind, path if kind == "trace" else Path(path))
    if given.sweep is not None and len(paths) > 1:
        raise UsageError(f"{given.sweep}: a sweep is reported by itself")
    named = {str(folder): load(folder)["trace"] for folder in (given.check, given.measure) if folder is not None}
    if len(set(named.values())) > 1:
        said = ", ".join(f"{folder} of {trace}" for folder, trace in named.items())
        raise UsageError(f"these are about different traces: {said}")
    if given.trace is None and named:
        trace = next(iter(named.values()))
        given.trace = trace if Path(trace).exists() else None
    return given


def _kind(path: Path) -> str:
    if not path.is_dir():
        return "trace"
    for kind in ("check", "measure"):
        if (path / f"{kind}.json").is_file():
            return kind
    if (path / "sweep.toml").is_file() and (path / "cells").is_dir():
        if not (path / "results.parquet").is_file():
            raise UsageError(f"{path}: this sweep is not finished; run antiphon sweep again with this --out")
        return "sweep"
    return "trace"


def load(folder: Path) -> dict[str, Any]:
    """The result that `antiphon check --out` or `antiphon measure --out` left."""
    file = next(file for file in (folder / "check.json", folder / "measure.json") if file.is_file())
    try:
        content = json.loads(file.read_text())
    except ValueError as problem:
        raise UsageError(f"{file}: not JSON ({problem}); make it again") from None
    known = isinstance(content, dict) and {"trace", "events"} <= content.keys()
    if not known or not ({"guarantees"} if file.stem == "check" else {"latency", "rows"}) <= content.keys():
        raise UsageError(f"{file}: not what this version of antiphon {file.stem} writes; make it again")
    return dict(content)


def deciding(checked: Mapping[str, Any]) -> list[str]:
    """The guarantees that decide: those that were named, else those promised, else all that are known."""
    found = checked["guarantees"]
    words = {name: one["verdict"] for name, one in found.items()}
    promised = [name for name, one in found.items() if one["promised"]]
    return verdict.deciding(words, promised, named=len(found) < len(GUARANTEES))


def to_draw(checked: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The witnesses that are drawn: of each broken guarantee that decides the first, then the second, and so on."""
    queues = [[(name, witness) for witness in checked["guarantees"][name]["witnesses"]] for name in deciding(checked)]
    turns = [queue[turn] for turn in range(DRAWN_MAX) for queue in queues if turn < len(queue)]
    return turns[:DRAWN_MAX]


def choose_run(tables: Path, wanted: str | None, witnesses: list[tuple[str, dict[str, Any]]]) -> dict[str, Any] | None:
    """The run that figures over time show: the one asked for, else the first witness's, else the largest."""
    runs = _rows(tables / "runs")
    by_name = {row["run"]: row for row in runs}
    if wanted is not None:
        if wanted not in by_name:
            few = ", ".join(sorted(by_name)[:5]) or "none"
            raise UsageError(f"--run {wanted}: no such run in this trace; it has {few}{', ...' * (len(by_name) > 5)}")
        return by_name[wanted]
    for _, witness in witnesses:
        if witness["run"] in by_name:
            return by_name[witness["run"]]
    return max(runs, key=lambda row: row["rows"], default=None)


def read_tables(facts: Facts, tables: Path) -> None:
    """Read the small tables that `measure` leaves, of the run that is shown."""
    facts.histogram = _rows(tables / "histogram")
    if facts.run is not None:
        for name in _TABLES:
            setattr(facts, name, _rows(tables / name, facts.run["run"]))


def _rows(folder: Path, run: str | None = None) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    only = None if run is None else [("run", "==", run)]
    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file, filters=only, use_threads=False).to_pylist()]


def about_run(trace: str | None, run: str) -> dict[str, Any]:
    """The run.json of a run: the one that names it, else the one at the top of the trace."""
    if trace is None:
        return {}
    root = Path(trace) if Path(trace).is_dir() else Path(trace).parent
    top: dict[str, Any] = {}
    candidates = [root / "run.json", *sorted(root.glob("*/run.json"))] if Path(trace).is_dir() else [root / "run.json"]
    for file in candidates:
        if file.is_file():
            content = json.loads(file.read_text())
            if content.get("run") == run:
                return dict(content)
            top = top or (dict(content) if file.parent == root else {})
    return top


class Bound(msgspec.Struct):
    """How many messages a member can have to hold, and why."""

    messages: int
    why: str


def buffer_bound(about: Mapping[str, Any], members: int) -> Bound | None:
    """What the run's own parameters allow its buffers; None where run.json does not say, or is not ours."""
    from antiphon.protocol.options import GroupOptions, ordering_type

    parameters = about.get("parameters")
    if not isinstance(parameters, dict) or "window" not in parameters or not isinstance(about.get("ordering"), str):
        return None
    try:
        config = GroupOptions(
            ordering=about["ordering"],
            ordering_options=parameters.get("ordering_options", {}),
            window=int(parameters["window"]),
            buffer=int(parameters.get("buffer", 0)),
        )
        ordering, options = ordering_type(config.ordering), config.ordering_settings()
        group = int(parameters.get("members", members))
    except (UsageError, TypeError, ValueError):
        return None
    if ordering.NEEDS_RECOVERY:
        why = (
            "the buffer that was set"
            if config.buffer
            else f"four windows of {config.window} for each of {group} members"
        )
        return Bound(config.buffer_size(group), why)
    if hasattr(options, "places"):
        why = (
            "the buffer that was set"
            if options.buffer
            else (f"a window of {options.window} times a headroom of {options.headroom} for each of {group} members")
        )
        return Bound(options.places(group), why)
    return Bound(options.window * group, f"a window of {options.window} for each of {group} members")
