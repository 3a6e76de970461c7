"""Sweep: a grid of scenarios, each cell simulated, checked and measured in its own Spark task.

A cell's result is one small file, named by a fingerprint of its scenario, its seed and the code, that appears by
rename: a sweep that was killed goes on where it was. At the end all files become one table.
"""

from __future__ import annotations

import functools
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.atomic_write import Replacement, atomic_write
from antiphon.errors import UsageError
from antiphon.pipeline.results import (
    SWEEP_TABLE,
    FailedCell,
    SlowCell,
    SweepCell,
    SweepResult,
    cell_row,
    read_sweep_table,
)
from antiphon.pipeline.session import Session
from antiphon.pipeline.sweep.cell import attempt
from antiphon.pipeline.sweep.plan import CellPlan, SweepPlan

ATTEMPTS_MAX: Final = 3  # a cell whose worker died so often is given up, and so is a Spark that gets nothing done

_encode = msgspec.json.Encoder(order="sorted").encode


def _work(sweep: SweepPlan, shares: list[list[int]], task: int) -> bytes:
    """Run one task's cells, each with its file, unless another attempt at this task has."""
    for number in shares[task]:
        cell = sweep.cells[number]
        if sweep.file(cell).exists():
            continue
        with sweep.started(cell).open("a") as attempts:
            attempts.write(f"{time.time():.3f} {platform.node()}\n")
        _keep(sweep, cell, attempt(cell))
    return b""


def _keep(sweep: SweepPlan, cell: CellPlan, result: SweepCell) -> None:
    atomic_write(sweep.file(cell), _encode(result))


# --- all cells --------------------------------------------------------------------------------------------------------


Tell = Callable[[int, int, list[tuple[str, float]]], None]


def run_sweep(
    session: Session, sweep: SweepPlan, *, retry_failed: bool = False, tell: Tell | None = None
) -> SweepResult:
    """Run the cells that have no result yet, then write the table of all."""
    for name in ("cells", "started"):
        Path(sweep.out, name).mkdir(parents=True, exist_ok=True)
    if retry_failed:
        _forget_failures(sweep)
    pending = sweep.pending()
    skipped = len(sweep.cells) - len(pending)
    with _SlowCells(sweep, tell):
        while pending:
            suspects = _run(session, sweep, pending)
            for cell in suspects:
                _run_alone(session, sweep, cell)
            if not suspects and len(sweep.pending()) == len(pending):
                raise UsageError("Spark runs none of the cells: none was begun when the last job failed")
            pending = sweep.pending()
    session.each(1, functools.partial(_compact, sweep), "table")
    return _outcome(sweep, skipped)


def _run(session: Session, sweep: SweepPlan, pending: list[CellPlan]) -> list[CellPlan]:
    """Run cells side by side; where a worker's death takes the whole job with it, return those that were under way."""
    for stale in Path(sweep.out, "started").iterdir():
        stale.unlink()
    number_of = {cell.name: number for number, cell in enumerate(sweep.cells)}
    tasks = min(len(pending), 4096)  # neighbours in the grid cost alike, so every task gets a mixture
    shares = [[number_of[cell.name] for cell in pending[task::tasks]] for task in range(tasks)]
    try:
        session.each(tasks, functools.partial(_work, sweep, shares), "sweep")
    except UsageError as error:
        if "disk is full" in str(error):
            raise
    return [cell for cell in pending if sweep.started(cell).exists() and not sweep.file(cell).exists()]


def _run_alone(session: Session, sweep: SweepPlan, cell: CellPlan) -> None:
    """Run a cell that was under way when a worker died by itself: if a worker dies again, that is this cell's doing."""
    for _ in range(ATTEMPTS_MAX - 1):
        if not _run(session, sweep, [cell]):
            return
    error = f"its worker died {ATTEMPTS_MAX} times while it ran, at last with nothing else running"
    _keep(sweep, cell, SweepCell(cell=cell.name, seed=cell.seed, status="failed", error=error, settings=cell.settings))


def _forget_failures(sweep: SweepPlan) -> None:
    decode = msgspec.json.Decoder(SweepCell).decode
    for cell in sweep.cells:
        file = sweep.file(cell)
        if file.exists() and decode(file.read_bytes()).status == "failed":
            file.unlink()


class _SlowCells:
    """Tells from time to time how many cells are done and which take long."""

    PAUSE_S = 0.5
    SLOW = 3  # times the median

    def __init__(self, sweep: SweepPlan, tell: Tell | None) -> None:
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


def _compact(sweep: SweepPlan, task: int) -> bytes:
    """Write the results of all cells as one table, in the order of the cells."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    decode = msgspec.json.Decoder(SweepCell).decode
    rows = [cell_row(decode(sweep.file(cell).read_bytes())) for cell in sweep.cells]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: _array([row.get(name) for row in rows]) for name in columns})
    file = Path(sweep.out, SWEEP_TABLE)
    with Replacement(file) as fresh:
        pq.write_table(table, fresh)
    return b""


def _array(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # an axis of numbers and texts
        return pa.array([None if value is None else str(value) for value in values])


def _outcome(sweep: SweepPlan, skipped: int) -> SweepResult:
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
