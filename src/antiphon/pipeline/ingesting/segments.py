"""Index and skeleton of rows in their final order: where each member's rows lie, and which rows shape a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.columns import NO_EVENT, SKELETON_EVENTS, Array, as_numpy
from antiphon.pipeline.kernels import survey_rows
from antiphon.pipeline.store.layout import INDEX, INDEX_SCHEMA, SKELETON, SKELETON_SCHEMA
from antiphon.pipeline.store.location import Location, location, replacement
from antiphon.trace.schema import EVENTS


class Segments:
    """Collects the index and the skeleton of rows in their final order."""

    def __init__(self) -> None:
        self.index: dict[str, list[Any]] = {name: [] for name in INDEX_SCHEMA.names}
        self.skeleton: list[pa.Table] = []

    def add(
        self,
        table: pa.Table,
        file: str,
        row_group: int,
        clock: bool,
        rare: Callable[[], pa.Table],
        only: tuple[str, int] | None = None,
    ) -> bool:
        """Describe one row group; False if its rows are not good ones, member by member, in order of step."""
        if not table.num_rows:
            return True
        starts, runs, members = stretches(table, only)
        if runs is None or len(starts) > max(16, table.num_rows // 8) + len(set(zip(runs, members, strict=True))):
            return False
        code = as_numpy(table["event"], "event")
        step, seq, sender = (as_numpy(table[name], name) for name in ("step", "seq", "sender"))
        if table["step"].null_count or (code == NO_EVENT).any():
            return False
        has_sender = pc.is_valid(table["sender"]).to_numpy() if table["sender"].null_count else np.ones(1, bool)
        stops = np.append(starts[1:], table.num_rows)
        rare_columns: pa.Table | None = None
        for start, stop, run, member in zip(starts.tolist(), stops.tolist(), runs, members, strict=True):
            part = slice(start, stop)
            mask = has_sender[part] if len(has_sender) > 1 or table.num_rows == 1 else has_sender
            counts = np.zeros(len(EVENTS), np.int64)
            good, first_seq, last_seq, steady = survey_rows(
                code[part], sender[part], mask, seq[part], step[part], member, counts
            )
            if not good:
                return False
            row: dict[str, Any] = {
                "run": run,
                "member": member,
                "file": file,
                "row_group": row_group,
                "offset": start,
                "rows": stop - start,
                "first_step": step[start],
                "last_step": step[stop - 1],
                "first_seq": first_seq,
                "last_seq": last_seq,
                "steady": steady,
                "global_clock": clock,
                **dict(zip(EVENTS, counts.tolist(), strict=True)),
            }
            for name, values in self.index.items():
                values.append(row[name])
            if counts[list(SKELETON_EVENTS)].any():
                rare_columns = rare() if rare_columns is None else rare_columns
                self._add_skeleton(
                    table["step"][part], rare_columns.slice(start, stop - start), code[part], run, member
                )
        return True

    def _add_skeleton(self, step: pa.ChunkedArray, rare: pa.Table, code: Array, run: str, member: int) -> None:
        index = pa.array(np.flatnonzero(np.isin(code, SKELETON_EVENTS)), pa.int64())
        chosen, size = rare.take(index), len(index)
        lists = pa.list_(pa.int32())
        present = rare.column_names
        self.skeleton.append(
            pa.table(
                [
                    pa.array([run] * size, pa.string()),
                    pa.array([member] * size, pa.int32()),
                    step.take(index).cast(pa.int64()),
                    index,
                    pa.array(code[index.to_numpy()], pa.uint8()),
                    pc.fill_null(chosen["view"].cast(pa.int64()), 0) if "view" in present else pa.array([0] * size),
                    chosen["members"].cast(lists) if "members" in present else pa.nulls(size, lists),
                ],
                schema=SKELETON_SCHEMA,
            )
        )

    def write(self, folder: str, name: str) -> None:
        """Write index and skeleton; a task that runs twice writes the same again."""
        _write(location(folder) / INDEX / f"{name}.parquet", pa.table(self.index, schema=INDEX_SCHEMA))
        if self.skeleton:
            _write(location(folder) / SKELETON / f"{name}.parquet", pa.concat_tables(self.skeleton))


def stretches(table: pa.Table, only: tuple[str, int] | None) -> tuple[Array, list[str] | None, list[int]]:
    """Where each stretch of rows of one (run, member) starts, and whose it is; None for runs if one is null."""
    if only is not None:
        return np.zeros(1, np.int64), [only[0]], [only[1]]
    if table["run"].null_count or table["member"].null_count:
        return np.zeros(0, np.int64), None, []
    run = table["run"].combine_chunks()
    run = run.chunk(0) if isinstance(run, pa.ChunkedArray) else run
    if not pa.types.is_dictionary(run.type):
        run = run.dictionary_encode()
    run_code = run.indices.to_numpy(zero_copy_only=False)
    member = as_numpy(table["member"], "member")
    changed = (run_code[1:] != run_code[:-1]) | (member[1:] != member[:-1])
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1))
    names = run.dictionary.to_pylist()
    return starts, [names[code] for code in run_code[starts]], member[starts].tolist()


def _write(path: Location, table: pa.Table) -> None:
    with replacement(path) as fresh:
        pq.write_table(table, fresh, compression="lz4")
