"""Rows of a trace as numpy columns, read batch by batch, and which of them are about a message, a step or a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.diagram.links import Message
from antiphon.pipeline.columns import (
    CONTROL,
    DELIVER,
    DISCARD,
    NO_EVENT,
    NULL_TIME,
    RECEIVE,
    SEND,
    SKELETON_EVENTS,
    STABLE,
    Array,
    as_numpy,
)
from antiphon.pipeline.reading import open_parquet_input, read_batches
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.rows import TRACE_SCHEMA
from antiphon.pipeline.store.files import format_of
from antiphon.trace.event import Event

BATCH_ROWS: Final = 1 << 17
NUMBERS: Final = ("member", "step", "time_ns", "event", "sender", "seq")
NO_NUMBERS: Final = np.empty(0, np.int64)


class TraceRows:
    """Some rows as numpy columns, and the file and table that they came from; a column that was not read is empty.

    The methods that return an Array say for each row whether it is meant.
    """

    def __init__(self, file: str, table: pa.Table) -> None:
        self.file, self.table = file, table
        read = {name: as_numpy(table[name], name) for name in table.column_names if name in NUMBERS}
        self.member, self.step, self.time_ns, self.event, self.sender, self.seq = (
            read.get(name, NO_NUMBERS) for name in NUMBERS
        )

    def where(self, mask: Array) -> list[Event]:
        """Return the rows that a mask wants, as events."""
        mask = mask & (self.event != NO_EVENT)
        if not mask.any():
            return []
        return [
            Event(**{name: value for name, value in row.items() if value is not None})
            for row in self.table.filter(pa.array(mask)).to_pylist()
            if None not in (row["run"], row["member"], row["step"])
        ]

    def nothing(self) -> Array:
        """Mean no row."""
        return np.zeros(self.table.num_rows, bool)

    def sends(self) -> Array:
        """Mean the sendings."""
        return np.equal(self.event, SEND)

    def arrivals(self) -> Array:
        """Mean what brings a message to a member or disposes of it there."""
        return np.isin(self.event, (RECEIVE, DELIVER, DISCARD))

    def views_and_ends(self) -> Array:
        """Mean what shapes a run: views, crashes, leaves and ends."""
        return np.isin(self.event, SKELETON_EVENTS)

    def of_members(self, members: Sequence[int]) -> Array:
        """Mean the rows of some members."""
        return np.isin(self.member, members)

    def in_steps(self, member: int, first: int, last: int) -> Array:
        """Mean a member's rows from one step to another."""
        mask: Array = (self.member == member) & (self.step >= first) & (self.step <= last)
        return mask

    def during(self, span: tuple[int, int]) -> Array:
        """Mean the rows of a span of time."""
        mask: Array = (self.time_ns != NULL_TIME) & (self.time_ns >= span[0]) & (self.time_ns <= span[1])
        return mask

    def about(self, message: Message) -> Array:
        """Mean the rows about one message, but for marks of stability."""
        mask: Array = np.isin(self.event, (SEND, RECEIVE, DELIVER, DISCARD, CONTROL))
        mask &= (self.sender == message[0]) & (self.seq == message[1])
        return mask

    def among(self, messages: Collection[Message]) -> Array:
        """Mean the rows about one of these messages."""
        mask = self.nothing()
        by_sender: dict[int, list[int]] = defaultdict(list)
        for sender, seq in messages:
            by_sender[sender].append(seq)
        for sender, numbers in by_sender.items():
            mask |= (self.sender == sender) & np.isin(self.seq, numbers)
        return mask

    def earliest_stable(self, message: Message) -> Array:
        """Mean, of each member, the first mark here that covers the message."""
        mask = self.nothing()
        covers = (self.event == STABLE) & (self.sender == message[0]) & (self.seq >= message[1])
        rows = np.flatnonzero(covers)
        if len(rows):
            order = rows[np.lexsort((self.step[rows], self.member[rows]))]
            mask[order[np.concatenate(([True], np.diff(self.member[order]) != 0))]] = True
        return mask


def read_rows(files: Sequence[str], columns: Sequence[str], run: str | None, mapping: Mapping) -> Iterator[TraceRows]:
    """Read some columns of a trace's files, batch by batch; of one run, or all."""
    for file in files:
        for table in _tables(file, columns, mapping):
            chosen = table if run is None else table.filter(_equals(table["run"], run))
            if chosen.num_rows:
                yield TraceRows(file, chosen)


def _tables(file: str, columns: Sequence[str], mapping: Mapping) -> Iterator[pa.Table]:
    if (format_of(Path(file)) or "parquet") == "parquet" and not mapping.renames:
        source, fitted = open_parquet_input(file, mapping)
        present = [name for name in columns if name in source.schema_arrow.names]
        if not fitted.renames and all(_as_promised(source.schema_arrow.field(name).type, name) for name in present):
            for batch in source.iter_batches(BATCH_ROWS, columns=present, use_threads=False):
                yield _completed(pa.Table.from_batches([batch]), columns)
            return
    for read in read_batches(file, None, mapping):
        for start in range(0, read.good.num_rows, BATCH_ROWS):
            yield _completed(read.good.slice(start, BATCH_ROWS), columns)


def _equals(column: pa.ChunkedArray, text: str) -> pa.ChunkedArray:
    plain = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    return pc.fill_null(pc.equal(plain, text), False)


def _as_promised(found: pa.DataType, name: str) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    return bool(found == TRACE_SCHEMA.field(name).type)


def _completed(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the columns asked for, null where the file lacks one."""
    return pa.table(
        {
            name: table[name] if name in table.column_names else pa.nulls(table.num_rows, TRACE_SCHEMA.field(name).type)
            for name in columns
        }
    )
