"""A trace as the checks read it: segments of one member's rows each, sorted by step, and the rare rows set apart.

The *index* says where every member's rows lie (file, row group, offset) and counts them by kind; the *skeleton* has the
few rows that shape a run: views, leaves, crashes, ends. Tasks plan their work from these two and then read only the
columns they need, one member at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.columns import NO_OFFSET, NO_TEXT, TEXTS, Array, RunIndex, Segment, TextCodes, Unit, as_numpy
from antiphon.pipeline.reading.time_units import UNSAID, TimeReading
from antiphon.pipeline.store.location import Location, location, open_parquet, read_tables
from antiphon.trace.schema import EVENTS

# the folders of a layout; what begins with _ is bookkeeping, so that a layout is a trace to whoever knows no better
INDEX, SKELETON, QUARANTINE, ROWS = "_index", "_skeleton", "_quarantine", "events"

SMALL_RUN_MEMBERS: Final = 32
SMALL_RUN_ROWS: Final = 4_096
UNIT_COST: Final = 50  # what a unit costs a check beside its rows, in rows; more, unless its run is plain

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
        ("position", pa.int64()),  # within its segment
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
    reasons: dict[str, int] = msgspec.field(default_factory=dict)  # why rows were put aside, the most frequent first
    examples: dict[str, str] = msgspec.field(default_factory=dict)  # by reason, one row that was put aside
    names: dict[int, str] = msgspec.field(default_factory=dict)  # of members whose log had names
    times: TimeReading = UNSAID  # in which unit they were read, and what said so
    promises: list[str] | None = None  # what the run.json files promise; None if there is none
    ends: bool = False  # every log that is whole has an `end`, as all of the run.json files say
    stale: str = ""  # how the trace has changed since a kept table was made of it

    def as_result(self) -> dict[str, Any]:
        """Return what every result about a trace says of it: the fields of `TraceResult`."""
        return {
            "trace": self.trace,
            "runs": self.runs,
            "members": self.members,
            "events": self.events,
            "quarantined": sum(self.quarantined.values()),
            "quarantine_reasons": self.reasons,
            "quarantine_examples": self.examples,
            "names": self.names,
            "times": self.times if self.times.by else UNSAID,
            "stale": self.stale,
        }


class TraceLayout:
    """The index and skeleton of an ingested trace, and a way to read one member's columns."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        table = _read_parts(folder / INDEX, INDEX_SCHEMA).combine_chunks()
        names = pc.unique(table["run"]).sort()  # UTF-8 sorts as code points do
        self.runs: list[str] = names.to_pylist()
        run = pc.index_in(table["run"], names).to_numpy()
        member, first = table["member"].to_numpy(), table["first_step"].to_numpy()
        order = np.lexsort((first, member, run))
        self.run_of_segment = run[order]
        self.member_of_segment = member[order]
        files = pc.unique(table["file"])
        self.file = pc.index_in(table["file"], files).to_numpy()[order]
        # what was laid out anew is named from the layout's folder, so that this can be moved
        self.files = [str(folder / file) if file.startswith(f"{ROWS}/") else file for file in files.to_pylist()]
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
        self._skeleton: tuple[pa.Table, Array] | None = None
        self.texts = TextCodes()  # of the columns with texts, over all that this object reads
        # what this object has open; a small member shares its row group with its neighbours
        self.open_file = functools.lru_cache(maxsize=64)(_open_file)
        self._row_group = functools.lru_cache(maxsize=2)(self._read_row_group)

    def per_unit(self, column: str) -> Array:
        """The sum of one index column over each unit's segments."""
        values = self.column[column]
        return np.add.reduceat(values, self.bounds[:-1]) if len(values) else values.astype(np.int64)

    def whole_skeleton(self) -> tuple[pa.Table, Array]:
        """The rows that shape the runs, in order of (run, member, step), and where each run's begin; and the end."""
        if self._skeleton is None:
            table = _read_parts(self.folder / SKELETON, SKELETON_SCHEMA).combine_chunks()
            code = pc.index_in(table["run"], pa.array(self.runs, pa.string())).to_numpy()
            order = np.lexsort((table["step"].to_numpy(), table["member"].to_numpy(), code))
            rows = table.take(pa.array(order)).combine_chunks()
            self._skeleton = rows, np.searchsorted(code[order], np.arange(len(self.runs) + 1))
        return self._skeleton

    def skeleton(self, run: RunIndex) -> pa.Table:
        """The rows of a run that shape it, in order of (member, step)."""
        rows, bounds = self.whole_skeleton()
        return rows.slice(bounds[run], bounds[run + 1] - bounds[run])

    def event_counts(self, unit: Unit) -> Array:
        """How many rows of each event a member has, by the event's code."""
        segments = slice(int(self.bounds[unit]), int(self.bounds[unit + 1]))
        return np.array([self.column[name][segments].sum() for name in EVENTS], np.int64)

    def read(self, unit: Unit, columns: Sequence[str]) -> dict[str, Array]:
        """One member's columns, in order of step; events as codes, texts as codes of `texts`, nulls as 0."""
        [whole] = self.read_pieces(unit, columns, int(self.unit_rows[unit]))
        return whole

    def read_pieces(self, unit: Unit, columns: Sequence[str], rows_max: int) -> Iterator[dict[str, Array]]:
        """Read one member's columns as `read` does, in pieces of so many rows where it lies in several row groups."""
        parts: list[dict[str, Array]] = []
        rows = 0
        for segment in range(self.bounds[unit], self.bounds[unit + 1]):
            if parts and rows + self.column["rows"][segment] > rows_max:
                yield _joined(parts, columns)
                parts, rows = [], 0
            parts.append(self.read_segment(segment, columns))
            rows += self.column["rows"][segment]
        yield _joined(parts, columns)

    def read_segment(self, segment: Segment, columns: Sequence[str]) -> dict[str, Array]:
        """Return one segment's columns, as `read` does."""
        whole = self.row_group(segment, columns)
        start = self.column["offset"][segment]
        return {name: whole[name][start : start + self.column["rows"][segment]] for name in columns}

    def row_group(self, segment: Segment, columns: Sequence[str]) -> dict[str, Array]:
        """Return columns of the whole row group that a segment lies in, as `read` does."""
        return self._row_group(*self.where(segment), tuple(columns))

    def where(self, segment: Segment) -> tuple[str, int]:
        """Return the file and the row group that a segment lies in."""
        return self.files[self.file[segment]], int(self.column["row_group"][segment])

    def _read_row_group(self, file: str, row_group: int, columns: tuple[str, ...]) -> dict[str, Array]:
        """Return columns of a row group as numpy, absent ones as 0."""
        source = self.open_file(file)
        present = [name for name in columns if name in source.schema_arrow.names]
        table = source.read_row_group(row_group, columns=present, use_threads=False)
        return {name: self._column(table, name) for name in columns}

    def _column(self, table: pa.Table, name: str) -> Array:
        if name in TEXTS:
            return self.texts.of(table[name]) if name in table.column_names else np.full(len(table), NO_TEXT, np.int32)
        if name in table.column_names:
            return as_numpy(table[name], name)
        return np.full(len(table), NO_OFFSET if name == "partition_offset" else 0, np.int64)

    def units_of(self, run: RunIndex) -> range:
        """Return the units of a run."""
        return range(int(self.run_bounds[run]), int(self.run_bounds[run + 1]))

    def segments_of(self, run: RunIndex) -> slice:
        """Return the segments of a run."""
        return slice(int(self.bounds[self.run_bounds[run]]), int(self.bounds[self.run_bounds[run + 1]]))

    def unit_shares(self, tasks: int) -> Array:
        """Return the first unit of each of so many tasks, and the end: about as many rows in each.

        A small run is not cut.
        """
        cuts = shares(self.unit_rows + UNIT_COST, tasks)
        within = np.flatnonzero(cuts < len(self.unit_run))
        run = self.unit_run[cuts[within]]
        first, after = self.run_bounds[run], self.run_bounds[run + 1]
        rows = np.append(0, np.cumsum(self.unit_rows))
        small = (after - first <= SMALL_RUN_MEMBERS) & (rows[after] - rows[first] <= SMALL_RUN_ROWS)
        cuts[within] = np.where(small, first, cuts[within])
        return cuts


def _joined(parts: list[dict[str, Array]], columns: Sequence[str]) -> dict[str, Array]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in columns}


def _open_file(file: str) -> pq.ParquetFile:
    """Open a Parquet file whose few distinct strings come as codes."""
    coded = ["run", "event"]
    opened = open_parquet(location(file), read_dictionary=coded)
    texts = [name for name in TEXTS if name in opened.schema_arrow.names]
    if "topic" not in texts:  # then nobody looks at them
        return opened
    return open_parquet(location(file), metadata=opened.metadata, read_dictionary=[*coded, *texts])


def shares(weight: Array, tasks: int) -> Array:
    """Cut a row of weighted items into so many parts of about the same weight: the start of each, and the end."""
    ends = np.cumsum(weight)
    total = ends[-1] if len(ends) else 0
    cuts = np.searchsorted(ends, total * np.arange(1, tasks) / tasks, side="left") + 1
    cuts = np.minimum(cuts, len(weight))
    return np.concatenate(([0], cuts, [len(weight)])).astype(np.int64)


def _read_parts(folder: Location, schema: pa.Schema) -> pa.Table:
    tables = read_tables(folder, schema=schema)
    return pa.concat_tables(tables) if tables else schema.empty_table()
