"""A trace as the checks read it: segments of one member's rows each, sorted by step, and the rare rows set apart.

The *index* says where every member's rows lie (file, row group, offset) and counts them by kind; the *skeleton* has the
few rows that shape a run: views, leaves, crashes, ends. Tasks plan their work from these two and then read only the
columns they need, one member at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.trace.schema import EVENTS

Array = npt.NDArray[Any]

CODES: Final[dict[str, int]] = {name: code for code, name in enumerate(EVENTS)}
SEND, RECEIVE, DELIVER, STABLE, DISCARD, CONTROL, VIEW, LEAVE, CRASH, END = range(len(EVENTS))
NO_EVENT: Final = 255  # a row whose event is no event
SKELETON_EVENTS: Final = (VIEW, LEAVE, CRASH, END)

INDEX_SCHEMA: Final = pa.schema(
    [
        ("run", pa.string()),
        ("member", pa.int32()),
        ("file", pa.string()),
        ("row_group", pa.int32()),
        ("offset", pa.int64()),
        ("rows", pa.int64()),
        ("first_step", pa.int64()),
        ("last_step", pa.int64()),
        ("first_seq", pa.int64()),  # of its sends
        ("last_seq", pa.int64()),
        ("steady", pa.bool_()),  # its sends are numbered one by one upwards
        ("global_clock", pa.bool_()),  # by the run.json beside its file
        *((name, pa.int64()) for name in EVENTS),
    ]
)
SKELETON_SCHEMA: Final = pa.schema(
    [
        ("run", pa.string()),
        ("member", pa.int32()),
        ("step", pa.int64()),
        ("place", pa.int64()),  # within its segment
        ("event", pa.uint8()),
        ("view", pa.int64()),
        ("members", pa.list_(pa.int32())),
    ]
)


class Totals(msgspec.Struct):
    """A trace in a few numbers, and what was put aside."""

    trace: str = ""
    runs: int = 0
    members: int = 0
    events: int = 0
    quarantined: dict[str, int] = msgspec.field(default_factory=dict)  # by the row's event, "" if it cannot be read
    promises: list[str] | None = None  # what the run.json files promise; None if there is none


class Layout:
    """The index and skeleton of an ingested trace, and a way to read one member's columns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        table = _read_parts(folder / "index", INDEX_SCHEMA).combine_chunks()
        names = pc.unique(table["run"]).sort()  # UTF-8 sorts as code points do
        self.runs: list[str] = names.to_pylist()
        run = pc.index_in(table["run"], names).to_numpy()
        member, first = table["member"].to_numpy(), table["first_step"].to_numpy()
        order = np.lexsort((first, member, run))
        self.run_of_segment = run[order]
        self.member_of_segment = member[order]
        self.files: list[str] = pc.unique(table["file"]).to_pylist()
        self.file = pc.index_in(table["file"], pa.array(self.files, pa.string())).to_numpy()[order]
        self.column = {
            name: table[name].to_numpy(zero_copy_only=False)[order]
            for name in INDEX_SCHEMA.names
            if name not in ("run", "member", "file")
        }
        changed = (np.diff(self.run_of_segment) != 0) | (np.diff(self.member_of_segment) != 0)
        starts = np.flatnonzero(np.concatenate(([True], changed))) if len(order) else np.zeros(0, np.int64)
        # unit = one member of one run; unit u has the segments bounds[u] .. bounds[u + 1]
        self.bounds = np.append(starts, len(order)).astype(np.int64)
        self.unit_run = self.run_of_segment[starts]
        self.unit_member = self.member_of_segment[starts]
        self.unit_rows = self.per_unit("rows")
        # run r has the units run_bounds[r] .. run_bounds[r + 1]
        self.run_bounds = np.searchsorted(self.unit_run, np.arange(len(self.runs) + 1))
        self._skeleton: pa.Table | None = None
        self._skeleton_bounds: Array | None = None

    def per_unit(self, column: str) -> Array:
        """The sum of one index column over each unit's segments."""
        values = self.column[column]
        return np.add.reduceat(values, self.bounds[:-1]) if len(values) else values.astype(np.int64)

    def skeleton(self, run: int) -> pa.Table:
        """The rows of a run that shape it, in order of (member, step)."""
        if self._skeleton is None:
            table = _read_parts(self.folder / "skeleton", SKELETON_SCHEMA).combine_chunks()
            code = pc.index_in(table["run"], pa.array(self.runs, pa.string())).to_numpy()
            order = np.lexsort((table["step"].to_numpy(), table["member"].to_numpy(), code))
            self._skeleton = table.take(pa.array(order)).combine_chunks()
            self._skeleton_bounds = np.searchsorted(code[order], np.arange(len(self.runs) + 1))
        assert self._skeleton_bounds is not None
        start, stop = self._skeleton_bounds[run], self._skeleton_bounds[run + 1]
        return self._skeleton.slice(start, stop - start)

    def read(self, unit: int, columns: Sequence[str]) -> dict[str, Array]:
        """One member's columns, in order of step; events as codes, nulls as 0."""
        parts = list(self._parts(unit, columns))
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in columns}

    def _parts(self, unit: int, columns: Sequence[str]) -> Iterator[dict[str, Array]]:
        for segment in range(self.bounds[unit], self.bounds[unit + 1]):
            whole = _row_group(self.files[self.file[segment]], int(self.column["row_group"][segment]), tuple(columns))
            start = self.column["offset"][segment]
            yield {name: whole[name][start : start + self.column["rows"][segment]] for name in columns}


@functools.lru_cache(maxsize=2)
def open_layout(folder: str) -> Layout:
    """The layout in a folder; a worker that gets several tasks reads it once."""
    return Layout(Path(folder))


def _read_parts(folder: Path, schema: pa.Schema) -> pa.Table:
    tables = [pq.read_table(part, schema=schema, use_threads=False) for part in sorted(folder.glob("*.parquet"))]
    return pa.concat_tables(tables) if tables else schema.empty_table()


@functools.lru_cache(maxsize=64)
def open_parquet(file: str) -> pq.ParquetFile:
    """An open Parquet file whose few distinct strings come as codes."""
    return pq.ParquetFile(file, memory_map=True, read_dictionary=["run", "event"])


@functools.lru_cache(maxsize=2)
def _row_group(file: str, row_group: int, columns: tuple[str, ...]) -> dict[str, Array]:
    """Columns of one row group as numpy; cached since small members share a row group."""
    source = open_parquet(file)
    present = [name for name in columns if name in source.schema_arrow.names]
    table = source.read_row_group(row_group, columns=present, use_threads=False)
    return {
        name: as_numpy(table[name], name) if name in present else np.zeros(table.num_rows, np.int64) for name in columns
    }


def as_numpy(column: pa.ChunkedArray, name: str) -> Array:
    """A column as numpy: events as codes, nulls as 0, `time_ns` nulls as the smallest number."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if name == "event":
        return event_codes(array)
    if array.null_count:
        array = array.fill_null(NULL_TIME if name == "time_ns" else 0)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


NULL_TIME: Final = int(np.iinfo(np.int64).min)


def event_codes(array: pa.Array) -> Array:
    """Event names as codes, NO_EVENT where there is no such event."""
    if not pa.types.is_dictionary(array.type):
        array = array.cast(pa.string()).dictionary_encode()
    codes = np.array([CODES.get(str(name), NO_EVENT) for name in array.dictionary.to_pylist()] + [NO_EVENT], np.uint8)
    indices = array.indices
    if indices.null_count:
        indices = indices.fill_null(len(codes) - 1)
    result: Array = codes[indices.to_numpy(zero_copy_only=False)]
    return result
