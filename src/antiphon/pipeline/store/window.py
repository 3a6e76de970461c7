"""Rows of a laid-out trace by time or step, for chosen members: straight from the row groups that have them.

    events = EventWindows(TraceLayout(location("out/table")))
    first, last = events.span("monday")
    events.read("monday", times=(first, first + 10_000_000), members=[0, 3])

No Spark is needed. What is read is decided by the index (members, steps) and by the statistics of row groups (times).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.errors import UsageError
from antiphon.pipeline.columns import NULL_TIME, Array, RunIndex, as_numpy
from antiphon.pipeline.reading.rows import TRACE_SCHEMA
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.trace.schema import COLUMNS

Span = tuple[int, int]  # the first and the last that are meant

PIECE_ROWS: Final = 1 << 16  # of a large row group that are decoded at a time
_ALL: Final[Span] = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))
_NONE: Final[Span] = (_ALL[1], _ALL[0])


class EventWindows:
    """Reads the rows of stretches of time; for one thread at a time."""

    def __init__(self, layout: TraceLayout) -> None:
        self.layout = layout
        # members with few rows share a row group, and windows lie side by side
        self._row_group = functools.lru_cache(maxsize=8)(self._read_row_group)

    @property
    def runs(self) -> list[str]:
        """The runs that there are."""
        return self.layout.runs

    def members(self, run: str) -> list[int]:
        """The members of a run that have rows."""
        units = self.layout.units_of(self._number(run))
        return [int(member) for member in self.layout.unit_member[units.start : units.stop]]

    def global_clock(self, run: str) -> bool:
        """Say whether all members of a run read one clock, by its run.json."""
        return bool(self.layout.column["global_clock"][self.layout.segments_of(self._number(run))].all())

    def span(self, run: str, members: Collection[int] | None = None) -> Span | None:
        """The times of the first and the last event, of all members or of some; None where no row has a time."""
        found = [self._span_of(segment) for segment in self._segments(run, None, None, members).tolist()]
        known = [span for span in found if span is not None]
        return (min(first for first, _ in known), max(last for _, last in known)) if known else None

    def count_most(
        self, run: str, *, times: Span | None = None, steps: Span | None = None, members: Collection[int] | None = None
    ) -> int:
        """Say how many rows a window can have at most, by what the index says, without reading any."""
        return int(self.layout.column["rows"][self._segments(run, times, steps, members)].sum())

    def read(
        self,
        run: str,
        *,
        times: Span | None = None,
        steps: Span | None = None,
        members: Collection[int] | None = None,
        columns: Sequence[str] = tuple(COLUMNS),
    ) -> pa.Table:
        """Return the rows of a window, by member and step; a row without a time is in no span of times."""
        pieces = list(self.pieces(run, times=times, steps=steps, members=members, columns=columns))
        wanted = pa.schema([TRACE_SCHEMA.field(name) for name in columns])
        return pa.concat_tables([piece.cast(wanted) for piece in pieces]) if pieces else wanted.empty_table()

    def pieces(
        self,
        run: str,
        *,
        times: Span | None = None,
        steps: Span | None = None,
        members: Collection[int] | None = None,
        columns: Sequence[str] = tuple(COLUMNS),
    ) -> Iterator[pa.Table]:
        """Yield the rows of a window as `read` returns them, one member's stretch at a time."""
        for segment in self._segments(run, times, steps, members).tolist():
            rows = self.segment_rows(
                segment, (*columns, *(("time_ns",) if times else ()), *(("step",) if steps else ()))
            )
            mask = np.ones(rows.num_rows, bool)
            if times is not None:
                time = as_numpy(rows["time_ns"], "time_ns")
                mask &= (time != NULL_TIME) & (time >= times[0]) & (time <= times[1])
            if steps is not None:
                step = as_numpy(rows["step"], "step")
                mask &= (step >= steps[0]) & (step <= steps[1])
            chosen = rows.select(list(columns))
            if mask.all():
                yield chosen
            elif mask.any():
                yield chosen.filter(pa.array(mask))

    def _number(self, run: str) -> RunIndex:
        if run not in self._numbers:
            few = ", ".join(self.runs[:5])
            raise UsageError(f"no such run: {run}; there is {few}{', ...' * (len(self.runs) > 5)}")
        return self._numbers[run]

    @functools.cached_property
    def _numbers(self) -> dict[str, RunIndex]:
        return {name: number for number, name in enumerate(self.runs)}

    def _segments(self, run: str, times: Span | None, steps: Span | None, members: Collection[int] | None) -> Array:
        """The segments that can have rows of a window."""
        layout = self.layout
        here = layout.segments_of(self._number(run))
        wanted = np.ones(here.stop - here.start, bool)
        if members is not None:
            wanted &= np.isin(layout.member_of_segment[here], list(members))
        if times is not None:
            wanted &= (self._times[0][here] <= times[1]) & (self._times[1][here] >= times[0])
        if steps is not None:
            wanted &= layout.column["first_step"][here] <= steps[1]
            wanted &= layout.column["last_step"][here] >= steps[0]
        segments: Array = np.flatnonzero(wanted) + here.start
        return segments

    @functools.cached_property
    def _times(self) -> tuple[Array, Array]:
        """The first and last time of each segment's row group, by its statistics: all times where it has none."""
        layout = self.layout
        first, last = (np.empty(len(layout.file), np.int64) for _ in range(2))
        known: dict[tuple[str, int], Span] = {}
        for segment in np.lexsort((layout.column["row_group"], layout.file)).tolist():
            where = layout.where(segment)
            if where not in known:
                known[where] = self._group_times(*where)
            first[segment], last[segment] = known[where]
        return first, last

    def _group_times(self, file: str, row_group: int) -> Span:
        source = self.layout.open_file(file)
        if "time_ns" not in source.schema_arrow.names:
            return _NONE
        group = source.metadata.row_group(row_group)
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema == "time_ns":
                found = column.statistics
                if found is not None and found.has_min_max:
                    return int(found.min), int(found.max)
                if found is not None and found.has_null_count and found.null_count == group.num_rows:
                    return _NONE
        return _ALL

    def _span_of(self, segment: int) -> Span | None:
        """The first and last time of a segment, by statistics if its row group is its own and has them."""
        layout, (file, group) = self.layout, self.layout.where(segment)
        first, last = int(self._times[0][segment]), int(self._times[1][segment])
        alone = layout.column["rows"][segment] == layout.open_file(file).metadata.row_group(group).num_rows
        if not (alone and (first, last) != _ALL):
            time = as_numpy(self.segment_rows(segment, ("time_ns",))["time_ns"], "time_ns")
            time = time[time != NULL_TIME]
            return (int(time.min()), int(time.max())) if len(time) else None
        return (first, last) if first <= last else None

    def rows_at(self, segment: int, rows: Array, columns: tuple[str, ...]) -> pa.Table:
        """Return some rows of a segment, by their positions in ascending order."""
        found = []
        for first, piece in self.stretches(segment, columns, int(rows[0])):
            found.append(piece.take(pa.array(rows[(rows >= first) & (rows < first + piece.num_rows)] - first)))
            if rows[-1] < first + piece.num_rows:
                break
        return pa.concat_tables(found)

    def stretches(self, segment: int, columns: tuple[str, ...], first: int = 0) -> Iterator[tuple[int, pa.Table]]:
        """Yield a segment's rows from a position on, in pieces, each with its position; what follows is not decoded."""
        layout, (file, number) = self.layout, self.layout.where(segment)
        source = layout.open_file(file)
        if source.metadata.row_group(number).num_rows <= PIECE_ROWS:
            yield first, self.segment_rows(segment, columns).slice(first)
            return
        at, rows = -int(layout.column["offset"][segment]), int(layout.column["rows"][segment])
        for batch in source.iter_batches(PIECE_ROWS, [number], _present(source, columns), use_threads=False):
            low, high = max(at, first), min(at + batch.num_rows, rows)
            if low < high:
                yield low, _completed(pa.Table.from_batches([batch.slice(low - at, high - low)]), columns)
            at += batch.num_rows
            if at >= rows:
                return

    def segment_rows(self, segment: int, columns: tuple[str, ...]) -> pa.Table:
        """Return all rows of a segment; a column that its file does not have is null."""
        layout = self.layout
        group = self._row_group(*layout.where(segment), tuple(dict.fromkeys(columns)))
        return group.slice(int(layout.column["offset"][segment]), int(layout.column["rows"][segment]))

    def _read_row_group(self, file: str, row_group: int, columns: tuple[str, ...]) -> pa.Table:
        source = self.layout.open_file(file)
        return _completed(source.read_row_group(row_group, _present(source, columns), use_threads=False), columns)


def _present(source: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    return [name for name in columns if name in source.schema_arrow.names]


def _completed(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the columns asked for, null where the file has none."""
    return pa.table(
        {
            name: table[name] if name in table.column_names else pa.nulls(table.num_rows, TRACE_SCHEMA.field(name).type)
            for name in columns
        }
    )
