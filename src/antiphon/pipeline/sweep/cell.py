"""One cell of a sweep: simulated, checked and measured, all in one process."""

from __future__ import annotations

import platform
import tempfile
import time
from pathlib import Path

from antiphon.errors import AntiphonError
from antiphon.pipeline.checking import CheckOptions, check_layout
from antiphon.pipeline.ingesting import ingest
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.measuring import measure_layout
from antiphon.pipeline.results import CellGuarantee, CellLatency, CellValues, SweepCell
from antiphon.pipeline.sweep.plan import CellPlan
from antiphon.sim.about import about
from antiphon.sim.cluster import simulate
from antiphon.sim.scenario import from_table
from antiphon.trace.writer import digest, write_trace


def run_cell(cell: CellPlan) -> CellValues:
    """Simulate, check and measure one cell, all in this process."""
    run = simulate(from_table(cell.scenario), cell.seed)
    with tempfile.TemporaryDirectory(prefix="antiphon-cell-") as folder:
        here, work = Inline(), Path(folder)
        events = write_trace(work / "trace", run.name, run.logs, about(run), replace=False, durable=False)
        totals = ingest(here, str(work / "trace"), work / "layout")
        checked = check_layout(here, work / "layout", totals, work / "scratch", CheckOptions(witnesses=1))
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


def attempt(cell: CellPlan) -> SweepCell:
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
