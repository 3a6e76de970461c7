"""The last stage of measuring: what the tasks left is added up, into tables whose size does not depend on the trace's.

Of a run with many members those that matter most stay by themselves and the others are put together, so that whoever
shows a run reads some thousand rows at most.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.columns import Array
from antiphon.pipeline.measuring.across_members import waiting_edges
from antiphon.pipeline.measuring.history import run_history
from antiphon.pipeline.measuring.job import SHOWN, TABLES, MeasureJob, MeasurePart, MeasureTask
from antiphon.pipeline.results import HeldBack
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import Location, location, read_tables, replacement

WAITED_FOR_MAX: Final = 24  # members of a run that the table `waiting` has by themselves
REPAIRING_MAX: Final = 16  # and `repair_matrix`, on either side


def add_up(job: MeasureJob, task: int) -> bytes:
    """Write the tables that are sums over all tasks, and tell who was waited for most."""
    here = MeasureTask(job)
    layout = here.layout
    spans = [here.span(run) for run in range(len(layout.runs))]
    _write(job, "runs", _runs(layout, spans))
    _write(job, "occupancy", _occupancy(job, layout))
    _write(job, "waiting", _waiting(here, spans))
    parted = _parted(job)
    for run in range(len(layout.runs)):
        for table, rows in run_history(here, run, parted)._asdict().items():
            job.write(table, f"{run:06}", rows)
    _write(job, "repair_matrix", _repair_matrix(location(job.out) / "repairs"))
    held_back = _held_back(job)
    _write(job, "held_back", held_back)
    worst = held_back.sort_by([("waited_ns", "descending"), ("lacked", "descending")]).slice(0, SHOWN)
    return msgspec.msgpack.encode(MeasurePart(waits=msgspec.convert(worst.to_pylist(), list[HeldBack])))


def _write(job: MeasureJob, table: str, rows: pa.Table) -> None:
    if len(rows):
        with replacement(location(job.out) / table / "part-000000.parquet") as fresh:
            pq.write_table(rows, fresh, row_group_size=1 << 16)


def _runs(layout: TraceLayout, spans: list[tuple[int, int] | None]) -> pa.Table:
    rows = np.bincount(layout.unit_run, weights=layout.unit_rows, minlength=len(layout.runs)).astype(np.int64)
    columns = [
        layout.runs,
        np.diff(layout.run_bounds),
        rows,
        [span and span[0] for span in spans],
        [span and span[1] for span in spans],
    ]
    return pa.table(columns, schema=TABLES["runs"])


def _held_back(job: MeasureJob) -> pa.Table:
    schema = TABLES["held_back"]
    tables = read_tables(location(job.scratch) / "waited")
    if not tables:
        return schema.empty_table()
    grouped = pa.concat_tables(tables).group_by(["run", "member"], use_threads=False)
    total = grouped.aggregate([("last", "sum"), ("lacked", "sum"), ("waited_ns", "sum"), ("longest_ns", "max")])
    names = [name.removesuffix("_sum").removesuffix("_max") for name in total.column_names]
    total = total.rename_columns(names).select(schema.names).cast(schema)
    return total.sort_by([("run", "ascending"), ("waited_ns", "descending"), ("member", "ascending")])


def _parted(job: MeasureJob) -> dict[tuple[str, int], tuple[int, int]]:
    """Return for those that did not stay: how many messages of theirs nobody delivered, and what they alone did."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for table in read_tables(location(job.scratch) / "parted"):
        for row in table.to_pylist():
            undelivered, alone = found.get((row["run"], row["member"]), (0, 0))
            found[row["run"], row["member"]] = undelivered + row["undelivered"], alone + row["alone"]
    return found


def _occupancy(job: MeasureJob, layout: TraceLayout) -> pa.Table:
    """The buffers of all members of a run together: their mean, and the fullest of them."""
    schema = TABLES["occupancy"]
    tables = read_tables(location(job.scratch) / "occupancy")
    if not tables:
        return schema.empty_table()
    grouped = pa.concat_tables(tables).group_by(["run", "start_ns", "end_ns"], use_threads=False)
    total = grouped.aggregate([("mean_sum", "sum"), ("peak_max", "max")])
    run = pc.index_in(total["run"], pa.array(layout.runs, pa.string())).to_numpy()
    mean = total["mean_sum_sum"].to_numpy() / np.diff(layout.run_bounds)[run]
    columns = [total["run"], total["start_ns"], total["end_ns"], mean, total["peak_max_max"]]
    return pa.table(columns, schema=schema).sort_by([("run", "ascending"), ("start_ns", "ascending")])


def _waiting(here: MeasureTask, spans: list[tuple[int, int] | None]) -> pa.Table:
    """How many messages waited for each member alone, over time; for the members that were waited for most."""
    layout = here.layout
    sums: dict[int, Array] = {}
    for task in range(here.job.tasks):
        arena = here.arena("waiting", task)
        for run, part in arena.names():
            found = arena.get(run, part)
            assert found is not None
            sums[run] = found + sums.get(run, 0.0)
    schema = TABLES["waiting"]
    tables = [schema.empty_table()]
    for run, total in sorted(sums.items()):
        span = spans[run]
        assert span is not None, "a run in which somebody was waited for has times"
        edges = waiting_edges(*span)
        members = layout.unit_member[layout.run_bounds[run] : layout.run_bounds[run + 1]]
        by_member = total.reshape(len(members), -1) / np.diff(edges)
        most = np.argsort(-by_member.sum(axis=1), kind="stable")
        shown, others = np.sort(most[:WAITED_FOR_MAX]), most[WAITED_FOR_MAX:]
        rows: list[tuple[int | None, Array]] = [(int(members[index]), by_member[index]) for index in shown]
        rows += [(None, by_member[others].sum(axis=0))] if len(others) else []
        for member, level in rows:
            size = len(level)
            columns = [[layout.runs[run]] * size, [member] * size, edges[:-1], edges[1:], level]
            tables.append(pa.table(columns, schema=schema))
    return pa.concat_tables(tables)


def _repair_matrix(folder: Location) -> pa.Table:
    """Who repaired whom how often; of a large group, those that did or needed it most."""
    schema = TABLES["repair_matrix"]
    tables = read_tables(folder)
    if not tables:
        return schema.empty_table()
    repairs = pa.concat_tables(tables)
    target = pc.fill_null(pc.cast(repairs["target"], pa.string()), "everybody")
    repairer = pc.cast(repairs["repairer"], pa.string())
    columns = {"run": repairs["run"], "count": repairs["count"]}
    for name, who in (("repairer", repairer), ("target", target)):
        columns[name] = pc.if_else(_among_the_largest(repairs["run"], who, repairs["count"]), who, "others")
    grouped = pa.table(columns).group_by(["run", "repairer", "target"], use_threads=False)
    total = grouped.aggregate([("count", "sum")]).rename_columns(["run", "repairer", "target", "count"])
    return total.select(schema.names).cast(schema).sort_by([("run", "ascending"), ("count", "descending")])


def _among_the_largest(run: pa.ChunkedArray, who: pa.ChunkedArray, count: pa.ChunkedArray) -> pa.Array:
    """Whether each row's member has one of its run's largest sums of counts."""
    grouped = pa.table({"run": run, "who": who, "count": count}).group_by(["run", "who"], use_threads=False)
    sums = grouped.aggregate([("count", "sum")]).sort_by([("run", "ascending"), ("count_sum", "descending")])
    name = sums["run"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    index = np.arange(len(name)) - np.searchsorted(name, name)  # runs are in order, so their codes are
    largest = sums.filter(pa.array(index < REPAIRING_MAX))
    key = pc.binary_join_element_wise(largest["run"], largest["who"], "\0")
    return pc.is_in(pc.binary_join_element_wise(run, who, "\0"), value_set=key)
