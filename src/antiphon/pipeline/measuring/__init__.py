"""Measure: latencies, buffers, traffic, repairs, and who held stability back, as tables and as one summary.

Two Spark jobs over an ingested trace: `per_member` reads each member's log by itself, `across_members` lays members
side by side; a last task, `digest`, adds up who was waited for and what can be shown of a run of any size. Tables go
from the tasks straight to Parquet; the driver sees sums and sketches.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.pipeline.measuring.across_members import compare_members
from antiphon.pipeline.measuring.digest import add_up
from antiphon.pipeline.measuring.job import TABLES, MeasureJob, MeasurePart
from antiphon.pipeline.measuring.per_member import measure_members
from antiphon.pipeline.measuring.quantiles import RELATIVE_ERROR, Sketch
from antiphon.pipeline.results import Clock, MeasureResult, Quantiles, WireTraffic
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.layout import Totals, TraceLayout
from antiphon.pipeline.store.location import Location
from antiphon.trace.schema import EVENTS

TASK_ROWS = 4_000_000

MEASURES: Final[dict[str, str]] = {  # what each is, and so what a trace lacks that has none
    "delivery": "time from send to deliver",
    "t1": "time from receive to a control row 'final': its position in the total order is known here",
    "t2": "time from 'final' to deliver",
    "everywhere": "time from send until every member holds it (needs one global clock)",
    "stable": "time from send to the first mark that covers it, at each member",
    "held": "time from receive to the first mark that covers it, at each member",
}


def measure_layout(
    session: Session, folder: Location, totals: Totals, out: Location, scratch: Location
) -> MeasureResult:
    """Measure an ingested trace; write the tables into folders of `out`."""
    layout = TraceLayout(folder)
    rows = int(layout.unit_rows.sum()) + 1_000 * len(layout.unit_rows)
    tasks = max(1, min(len(layout.unit_rows), -(-rows // TASK_ROWS), 4096), min(session.parallelism, rows // 100_000))
    job = MeasureJob(str(folder), str(scratch), str(out), tasks)
    for name in TABLES:
        (out / name).mkdir(parents=True, exist_ok=True)
    for name in ("waited", "occupancy", "parted"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    whole = MeasurePart()
    for work, label in ((measure_members, "measure"), (compare_members, "compare")):
        _merge(whole, session.each(tasks, functools.partial(work, job), label))
    _merge(whole, session.each(1, functools.partial(add_up, job), "sum"))
    job.write("histogram", "0", _histograms(whole))
    clocks = np.unique(layout.column["global_clock"])
    clock: Clock = "mixed" if len(clocks) > 1 else "global" if len(clocks) and clocks[0] else "local"
    return _result(totals, whole, clock, {name: int(layout.column[name].sum()) for name in EVENTS})


def _histograms(whole: MeasurePart) -> list[dict[str, Any]]:
    return [
        {"measure": name, "low_ns": low, "high_ns": high, "count": count}
        for name, buckets in sorted(whole.sketches.items())
        for low, high, count in Sketch(buckets).histogram()
    ]


def _merge(whole: MeasurePart, results: Iterable[bytes]) -> None:
    decode = msgspec.msgpack.Decoder(MeasurePart).decode
    for result in results:
        whole.merge(decode(result))


def _result(totals: Totals, whole: MeasurePart, clock: Clock, rows: dict[str, int]) -> MeasureResult:
    latency: dict[str, Quantiles | None] = {}
    unknown: dict[str, str] = {}
    for name, meaning in MEASURES.items():
        buckets = whole.sketches.get(name)
        latency[name] = Sketch(buckets).quantiles() if buckets else None
        if not buckets:
            unknown[name] = f"{meaning}: the trace has no such pair of rows with times"
    traffic = {name: WireTraffic(count, size) for name, (count, size) in sorted(whole.traffic.items())}
    overhead = None
    data = whole.traffic.get("send", (0, None))[1]
    control = [
        size for name, (_, size) in whole.traffic.items() if name not in ("send", "receive") and size is not None
    ]
    if data and control:
        overhead = sum(control) / data
    else:
        unknown["overhead"] = "needs sends and control rows with bytes"
    if not whole.buffers:
        unknown["buffer"] = "needs stable rows"
    if not whole.control_rows:
        unknown["retransmissions"] = unknown["duplicates"] = "needs control rows"
    if not whole.waits:
        unknown["held_back"] = "needs one global clock and receipts or deliveries at two members, or stable rows"
    return MeasureResult(
        **totals.as_result(),
        clock=clock,
        rows=rows,
        latency=latency,
        buffer=whole.buffers[0] if whole.buffers else None,
        traffic=traffic,
        overhead=overhead,
        retransmissions=whole.traffic.get("repair", (0, None))[0] if whole.control_rows else None,
        duplicates=whole.duplicates if whole.control_rows else None,
        repairs=whole.repairs,
        held_back=whole.waits,
        unknown=unknown,
        relative_error=RELATIVE_ERROR,
    )
