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
        has_sender = pc.is_valid(table["sender"]).to_numpy() if table["sender"].null_count else np.ones(0, bool)
        stops = np.append(starts[1:], table.num_rows)
        counts = np.zeros((len(starts), len(EVENTS)), np.int64)
        sends = np.zeros((len(starts), 3), np.int64)
        whose = np.array(members, np.int64)
        if not survey_rows(starts, stops, whose, code, sender, has_sender, seq, step, counts, sends):
            return False
        found: dict[str, Any] = {
            "run": runs,
            "member": members,
            "file": [file] * len(starts),
            "row_group": [row_group] * len(starts),
            "offset": starts.tolist(),
            "rows": (stops - starts).tolist(),
            "first_step": step[starts].tolist(),
            "last_step": step[stops - 1].tolist(),
            "first_seq": sends[:, 0].tolist(),
            "last_seq": sends[:, 1].tolist(),
            "steady": (sends[:, 2] == 1).tolist(),
            "global_clock": [clock] * len(starts),
            **dict(zip(EVENTS, counts.T.tolist(), strict=True)),
        }
        for name, values in self.index.items():
            values += found[name]
        if counts[:, list(SKELETON_EVENTS)].any():
            self._add_skeleton(table["step"], rare(), code, starts, runs, members)
        return True

    def _add_skeleton(
        self, step: pa.ChunkedArray, rare: pa.Table, code: Array, starts: Array, runs: list[str], members: list[int]
    ) -> None:
        chosen = np.flatnonzero(np.isin(code, SKELETON_EVENTS))
        stretch = np.searchsorted(starts, chosen, side="right") - 1
        index, size = pa.array(chosen, pa.int64()), len(chosen)
        rows = rare.take(index)
        lists = pa.list_(pa.int32())
        present = rare.column_names
        self.skeleton.append(
            pa.table(
                [
                    pa.array(runs, pa.string()).take(pa.array(stretch)),
                    pa.array(members, pa.int32()).take(pa.array(stretch)),
                    step.take(index).cast(pa.int64()),
                    pa.array(chosen - starts[stretch]),
                    pa.array(code[chosen], pa.uint8()),
                    pc.fill_null(rows["view"].cast(pa.int64()), 0) if "view" in present else pa.array([0] * size),
                    rows["members"].cast(lists) if "members" in present else pa.nulls(size, lists),
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
