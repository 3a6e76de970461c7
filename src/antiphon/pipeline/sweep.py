"""Sweep: a grid of scenarios, each cell simulated, checked and measured in its own Spark task.

    seeds = [1, 2, 3]                        # or a number: 1 .. that many

    [scenario]                               # what all cells share; or scenario = "file.toml"
    members = 5
    messages = 100

    [grid]                                   # every combination
    ordering = ["fifo", "co", "abcast"]
    network.loss = [0.0, 0.05, 0.1]

    [[cells]]                                # and single cells beside the grid
    members = 20

A cell's result is one small file, named by a fingerprint of its scenario, seed and version, that appears by rename: a
sweep that was killed goes on where it was. At the end all files become one table.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon import __version__
from antiphon.errors import AntiphonError, UsageError
from antiphon.pipeline.results import (
    SWEEP_TABLE,
    CellGuarantee,
    CellLatency,
    CellValues,
    FailedCell,
    SlowCell,
    SweepCell,
    SweepResult,
    cell_row,
    read_sweep_table,
)
from antiphon.pipeline.session import Session

ATTEMPTS_MAX: Final = 3  # a cell whose worker died so often is given up, and so is a Spark that gets nothing done

_encode = msgspec.json.Encoder(order="sorted").encode


class Cell(msgspec.Struct, frozen=True):
    """One scenario with one seed."""

    scenario: dict[str, Any]
    settings: dict[str, Any]  # what distinguishes it from the others
    seed: int

    @property
    def name(self) -> str:
        """A fingerprint of what the cell runs."""
        return hashlib.sha256(_encode([__version__, self.scenario, self.seed])).hexdigest()[:16]


class Sweep(msgspec.Struct, frozen=True):
    """All cells, and the folder that their results go to."""

    cells: list[Cell]
    out: str

    def file(self, cell: Cell) -> Path:
        """Where a cell's result appears."""
        return Path(self.out, "cells", f"{cell.name}.json")

    def started(self, cell: Cell) -> Path:
        """A file with a line for each time a worker began the cell."""
        return Path(self.out, "started", cell.name)

    def pending(self) -> list[Cell]:
        """The cells without a result."""
        return [cell for cell in self.cells if not self.file(cell).exists()]


def load_sweep(path: Path, out: Path) -> Sweep:
    """Read a sweep file; UsageError names the key that is wrong."""
    try:
        tables = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path}: no such sweep file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    unknown = sorted(set(tables) - {"scenario", "grid", "cells", "seeds"})
    if unknown:
        raise UsageError(f"{path}: {unknown[0]}: unknown key; a sweep knows scenario, grid, cells, seeds")
    base = tables.get("scenario", {})
    if isinstance(base, str):
        from antiphon.sim.scenario import load

        base = load(path.parent / base)
    if not isinstance(base, dict):
        raise UsageError(f"{path}: scenario: a table, or the name of a scenario file")
    seeds = tables.get("seeds", 1)
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        seeds = list(range(1, seeds + 1))
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise UsageError(f"{path}: seeds: a number above 0, or a list of numbers")
    cells = [Cell(_laid_over(base, settings), settings, seed) for settings in _settings(tables, path) for seed in seeds]
    distinct = {cell.name: cell for cell in cells}
    return Sweep(list(distinct.values()), str(out.absolute()))


def _settings(tables: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """What distinguishes each cell: every combination of the grid, and the single cells."""
    singles = tables.get("cells", [])
    if not isinstance(singles, list) or not all(isinstance(single, dict) for single in singles):
        raise UsageError(f"{path}: cells: write each as a table [[cells]]")
    grid = tables.get("grid", {})
    if not isinstance(grid, dict):
        raise UsageError(f"{path}: grid: a table of lists")
    axes = dict(_flat(grid))
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{path}: grid.{key}: a list of values, not {values!r}")
    if axes or not singles:
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values, strict=True))
    for single in singles:
        yield dict(_flat(single))


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _laid_over(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The base scenario with some keys set; `ordering` and `stability` may be names or tables."""
    tables: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in settings.items():
        *parents, key = path.split(".")
        table = tables
        for parent in parents:
            inner = table.get(parent, {})
            table[parent] = inner = {"name": inner} if isinstance(inner, str) else inner
            table = inner
        if not parents and isinstance(table.get(key), dict) and isinstance(value, str):
            table[key] = {"name": value}  # another protocol: the options of the former are not for it
        else:
            table[key] = value
    return tables


# --- one cell ---------------------------------------------------------------------------------------------------------


def run_cell(cell: Cell) -> CellValues:
    """Simulate, check and measure one cell, all in this process."""
    from antiphon.commands.simulate import about
    from antiphon.pipeline.check import Options, check_layout
    from antiphon.pipeline.ingest import ingest
    from antiphon.pipeline.inline import inline_session
    from antiphon.pipeline.measure import measure_layout
    from antiphon.sim.cluster import simulate
    from antiphon.sim.scenario import from_table
    from antiphon.trace.writer import digest, write_trace

    run = simulate(from_table(cell.scenario), cell.seed)
    with tempfile.TemporaryDirectory(prefix="antiphon-cell-") as folder, inline_session() as here:
        work = Path(folder)
        events = write_trace(work / "trace", run.name, run.logs, about(run), replace=False)
        totals = ingest(here, str(work / "trace"), work / "layout")
        checked = check_layout(here, work / "layout", totals, work / "scratch", Options(witnesses=1))
        measured = measure_layout(here, work / "layout", totals, work / "tables", work / "work")
    promised = {name: found.verdict for name, found in checked.guarantees.items() if found.promised}
    sent = measured.traffic.get("send")
    control = [found for kind, found in measured.traffic.items() if kind not in ("send", "receive")]
    return CellValues(
        finished=run.finished,
        ended_ns=run.ended_ns,
        members=cell.scenario.get("members", len(run.logs)),
        sent=run.sent,
        delivered=run.delivered,
        events=events,
        digest=digest(run.name, run.logs),
        promises=list(promised),
        broken=[name for name, verdict in promised.items() if verdict == "violated"],
        undecided=[name for name, verdict in promised.items() if verdict == "unknown"],
        guarantees={name: CellGuarantee(found.verdict, found.violations) for name, found in checked.guarantees.items()},
        latency={
            name: None if found is None else CellLatency(found.p50_ns, found.p99_ns, found.max_ns)
            for name, found in measured.latency.items()
        },
        buffer_peak=None if measured.buffer is None else measured.buffer.peak,
        overhead=measured.overhead,
        retransmissions=measured.retransmissions,
        duplicates=measured.duplicates,
        control_bytes=sum(found.bytes or 0 for found in control),
        send_bytes=None if sent is None else sent.bytes,
    )


def _attempt(cell: Cell) -> SweepCell:
    """Run a cell; whatever goes wrong in it becomes its result."""
    begun = time.monotonic()
    result = SweepCell(cell=cell.name, seed=cell.seed, status="done", settings=cell.settings, host=platform.node())
    try:
        result.values = run_cell(cell)
    except OSError as error:
        if error.errno is not None and error.errno == 28:  # a full disk is not the cell's fault
            raise
        result.status, result.error = "failed", f"{type(error).__name__}: {error}"
    except AntiphonError as error:
        result.status, result.error = "failed", str(error)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        result.status, result.error = "failed", f"{type(error).__name__}: {first}"
    result.took_s = round(time.monotonic() - begun, 3)
    return result


def _work(sweep: Sweep, shares: list[list[int]], task: int) -> bytes:
    """Run one task's cells, each with its file, unless another attempt at this task has."""
    for number in shares[task]:
        cell = sweep.cells[number]
        if sweep.file(cell).exists():
            continue
        with sweep.started(cell).open("a") as attempts:
            attempts.write(f"{time.time():.3f} {platform.node()}\n")
        _keep(sweep, cell, _attempt(cell))
    return b""


def _keep(sweep: Sweep, cell: Cell, result: SweepCell) -> None:
    file = sweep.file(cell)
    fresh = file.with_name(f"{file.name}.{platform.node()}-{os.getpid()}.unfinished")
    try:
        fresh.write_bytes(_encode(result))
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


# --- all cells --------------------------------------------------------------------------------------------------------


Tell = Callable[[int, int, list[tuple[str, float]]], None]


def run_sweep(session: Session, sweep: Sweep, *, retry_failed: bool = False, tell: Tell | None = None) -> SweepResult:
    """Run the cells that have no result yet, then write the table of all."""
    for name in ("cells", "started"):
        Path(sweep.out, name).mkdir(parents=True, exist_ok=True)
    if retry_failed:
        _forget_failures(sweep)
    for stale in Path(sweep.out, "started").iterdir():
        stale.unlink()  # what was under way when an earlier run was killed is not to blame for that
    pending = sweep.pending()
    skipped = len(sweep.cells) - len(pending)
    in_vain = 0
    with _Teller(sweep, tell):
        while pending:
            try:
                _run(session, sweep, pending)
            except UsageError as error:
                # a worker that dies takes the job with it where Spark does not retry: go on, at last without its cell
                in_vain = in_vain + 1 if len(sweep.pending()) == len(pending) else 0
                if "disk is full" in str(error) or in_vain > ATTEMPTS_MAX:
                    raise
            _give_up_on_killers(sweep)
            pending = sweep.pending()
    session.each(1, functools.partial(_compact, sweep), "table")
    return _outcome(sweep, skipped)


def _run(session: Session, sweep: Sweep, pending: list[Cell]) -> None:
    number_of = {cell.name: number for number, cell in enumerate(sweep.cells)}
    tasks = min(len(pending), 4096)  # neighbours in the grid cost alike, so every task gets a mixture
    shares = [[number_of[cell.name] for cell in pending[task::tasks]] for task in range(tasks)]
    session.each(tasks, functools.partial(_work, sweep, shares), "sweep")


def _attempts(sweep: Sweep, cell: Cell) -> list[str]:
    try:
        return sweep.started(cell).read_text().splitlines()
    except FileNotFoundError:
        return []


def _give_up_on_killers(sweep: Sweep) -> None:
    """Record as failed what has killed its worker too often, so that it does not stop the rest."""
    for cell in sweep.pending():
        if len(_attempts(sweep, cell)) >= ATTEMPTS_MAX:
            error = f"its worker died {ATTEMPTS_MAX} times while it ran"
            failed = SweepCell(cell=cell.name, seed=cell.seed, status="failed", error=error, settings=cell.settings)
            _keep(sweep, cell, failed)


def _forget_failures(sweep: Sweep) -> None:
    decode = msgspec.json.Decoder(SweepCell).decode
    for cell in sweep.cells:
        file = sweep.file(cell)
        if file.exists() and decode(file.read_bytes()).status == "failed":
            file.unlink()


class _Teller:
    """Tells from time to time how many cells are done and which take long."""

    PAUSE_S = 0.5
    SLOW = 3  # times the median

    def __init__(self, sweep: Sweep, tell: Tell | None) -> None:
        self.sweep, self.tell = sweep, tell

    def __enter__(self) -> None:
        import threading

        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        if self.tell is not None:
            self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if self.tell is not None:
            self.thread.join()

    def _watch(self) -> None:
        assert self.tell is not None
        took: dict[str, float] = {}
        while not self.over.wait(self.PAUSE_S):
            finished = {entry.name.removesuffix(".json") for entry in os.scandir(Path(self.sweep.out, "cells"))}
            running = []
            now = time.time()
            for entry in os.scandir(Path(self.sweep.out, "started")):
                begun = entry.stat().st_mtime
                if entry.name in finished:
                    took.setdefault(entry.name, now - begun)
                else:
                    running.append((entry.name, now - begun))
            usual = statistics.median(took.values()) if took else float("inf")
            slow = sorted(
                (item for item in running if item[1] > max(2.0, self.SLOW * usual)), key=lambda item: -item[1]
            )
            done = sum(cell.name in finished for cell in self.sweep.cells)
            self.tell(done, len(self.sweep.cells), slow)


def _compact(sweep: Sweep, task: int) -> bytes:
    """Write the results of all cells as one table, in the order of the cells."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    decode = msgspec.json.Decoder(SweepCell).decode
    rows = [cell_row(decode(sweep.file(cell).read_bytes())) for cell in sweep.cells]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: _array([row.get(name) for row in rows]) for name in columns})
    file = Path(sweep.out, SWEEP_TABLE)
    fresh = file.with_name(f".{file.name}.{os.getpid()}.unfinished")
    pq.write_table(table, fresh)
    fresh.replace(file)
    return b""


def _array(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # an axis of numbers and texts
        return pa.array([None if value is None else str(value) for value in values])


def _outcome(sweep: Sweep, skipped: int) -> SweepResult:
    cells = read_sweep_table(Path(sweep.out))
    values = [cell.values for cell in cells if cell.values is not None]
    failed = [cell for cell in cells if cell.values is None]
    slowest = sorted(cells, key=lambda cell: -cell.took_s)[:5]
    return SweepResult(
        table=str(Path(sweep.out, SWEEP_TABLE)),
        cells=len(cells),
        skipped=skipped,
        done=len(values),
        failed=len(failed),
        violated=sum(bool(one.broken) for one in values),
        unknown=sum(bool(one.undecided) for one in values),
        unfinished=sum(not one.finished for one in values),
        failures=[FailedCell(cell.cell, cell.seed, cell.error) for cell in failed[:10]],
        slowest=[SlowCell(cell.cell, cell.seed, cell.took_s) for cell in slowest],
    )


def prepare(sweep: Sweep, source: Path) -> None:
    """Make the sweep's folder, or join it if it is an earlier run's; its file of cells is kept beside the results."""
    out = Path(sweep.out)
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / "cells").is_dir())):
        raise UsageError(f"{out}: exists and is no sweep's output; choose another --out")
    (out / "cells").mkdir(parents=True, exist_ok=True)
    kept = out / "sweep.toml"
    if not kept.exists() or not kept.samefile(source):
        shutil.copyfile(source, kept)
