"""Records in bulk: what `LogForm.rows` says of one record, said of a table of them by whole columns.

What columns cannot decide (a record with an error, a word that is about no message, a value of an unusual type) is left
to `LogForm.rows`, so that it alone says what is right, and how what is wrong is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign.coded import (
    chosen,
    coded,
    distinct,
    filled,
    first_of,
    is_text,
    missing,
    plain,
    spread,
    whole,
    without_empty,
)
from antiphon.pipeline.ingesting.foreign.form import (
    ABOUT_A_MESSAGE,
    IF_SENT,
    TOLD,
    LogForm,
    is_yes,
    least_of_yes,
    offset_of,
)
from antiphon.pipeline.ingesting.foreign.numbering import FOREIGN_SCHEMA, ROW_BITS
from antiphon.pipeline.reading.time_units import TimeUnit, times_as_nanoseconds
from antiphon.trace.schema import ACKNOWLEDGED, BROKER_COLUMNS

_KINDS_MAX: Final = 4  # of one record; it has as many numbers in `place`
_EXACT: Final = float(1 << 53)


class LogRecord(NamedTuple):
    """One record: its keys and values or, where it has none, why."""

    row: int
    content: dict[str, Any] | None
    line: str = ""  # as it was written, where it was a line
    reason: str = ""

    @property
    def text(self) -> str:
        """The record, to be shown."""
        return self.line or json.dumps(self.content, default=str, ensure_ascii=False)


class RecordTable(NamedTuple):
    """Records as columns, one for each key that any of them has."""

    table: pa.Table
    first_row: int
    record: Callable[[int], LogRecord]  # one of them as it was written, by its position in the table


def keys_read(form: LogForm) -> list[str]:
    """Return all keys that a form looks at."""
    names = ("run", "member", "event", "sender", "seq", "step", "time_ns", "view", "bytes", "members", "detail")
    looked = [*names, *BROKER_COLUMNS, *form.columns]
    return list(
        dict.fromkeys(
            key for name in looked for key in (*form.columns.get(name, [name]), *form.late, *form.incoming, *form.each)
        )
    )


def rows_in_bulk(form: LogForm, records: RecordTable, file: int) -> tuple[pa.Table, Array]:
    """Return the rows of those records that columns decide, and the positions of the others."""
    columns = _Columns(form, records.table)
    found = _found(form, columns)
    for key in form.incoming:
        if key in records.table.column_names:
            columns.leave(~missing(whole(records.table[key])))
    kinds = _Kinds(form, coded(columns.text("event")))
    count, undecided = kinds.counted(columns.left | missing(found["member"]) | missing(found["id"]))

    index = np.repeat(np.arange(len(count)), count)
    at = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
    if len(index) != len(count) or (count != 1).any():
        every = pa.array(index)
        found = {name: column.take(every) for name, column in found.items()}
    kind = kinds.of_rows(index, at)
    rows = found | {
        "run": filled(found["run"], "log"),
        "event": kinds.events(kind),
        "sender": chosen(kinds.among(kind, ("send", ACKNOWLEDGED, IF_SENT)), found["member"], found["sender"]),
        "view": found["view"].fill_null(0),
        "members": pa.nulls(len(index), FOREIGN_SCHEMA.field("members").type),
        "detail": chosen(kinds.among(kind, TOLD), kinds.named(kind), found["detail"]),
        "place": pa.array((file << ROW_BITS) + (records.first_row + index) * _KINDS_MAX + at),
    }
    return pa.table(rows, schema=FOREIGN_SCHEMA), np.flatnonzero(undecided)


def _found(form: LogForm, columns: _Columns) -> dict[str, pa.Array]:
    """Return what each record says, by the column of its rows."""

    def told(name: str) -> pa.Array:
        """Return a column that only some forms have."""
        return columns.text(name) if name in form.columns else columns.nothing

    coded_names = ("run", "member", "sender", "detail", "topic", "partition", "group")
    found = {name: coded(columns.text(name)) for name in coded_names} | {"id": plain(columns.text("seq"))}
    found |= {name: columns.integer(name) for name in ("step", "view", "bytes")}
    found["time_ns"], found["redelivered"] = columns.time("time_ns"), columns.flag("redelivered")
    offset, tag = plain(columns.text("partition_offset")), plain(told("tag"))
    found["partition_offset"], found["tag"] = _offsets(offset), _offsets(tag)
    found["span"], found["about"], found["channel"] = plain(told("span")), plain(told("about")), coded(told("channel"))
    columns.leave(~missing(columns.value_of_any_kind("members")))
    return found


class _Kinds:
    """What the words for events mean: the kinds of rows that a record with such a word has."""

    def __init__(self, form: LogForm, word: pa.DictionaryArray) -> None:
        words = word.dictionary.to_pylist()
        kinds = [form.events.get(text.lower(), [text]) for text in words]
        self._known = [
            len(those) <= _KINDS_MAX and ABOUT_A_MESSAGE.issuperset(those) and text.lower() not in form.again
            for text, those in zip(words, kinds, strict=True)
        ]
        decided = [those if good else [] for those, good in zip(kinds, self._known, strict=True)]
        self._code = word.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
        self._size = np.array([*map(len, decided), 0], np.int64)  # by word, the last for none
        self._names = list(dict.fromkeys(name for those in decided for name in those))
        self._of_word = np.full((len(words) + 1, _KINDS_MAX), -1, np.int32)
        for row, those in enumerate(decided):
            self._of_word[row, : len(those)] = [self._names.index(name) for name in those]

    def counted(self, lacking: Array) -> tuple[Array, Array]:
        """Return how many rows each record has, and which are undecided: these have none, nor have those that lack."""
        count = self._size[self._code]
        unknown = np.array([*(not good for good in self._known), True], bool)
        undecided = unknown[self._code] | (lacking & (count > 0))
        count[undecided] = 0
        return count, undecided

    def of_rows(self, index: Array, at: Array) -> Array:
        """Return the kind of each row, which is the record's (`index`) kind of that number (`at`)."""
        kinds: Array = self._of_word[self._code[index], at]
        return kinds

    def among(self, kind: Array, names: Collection[str]) -> Array:
        """Say of each row whether its kind is one of these."""
        return np.array([name in names for name in self._names] + [False], bool)[kind]

    def named(self, kind: Array) -> pa.DictionaryArray:
        """Return the names of kinds."""
        return pa.DictionaryArray.from_arrays(pa.array(kind, pa.int32()), pa.array(self._names, pa.string()))

    def events(self, kind: Array) -> pa.DictionaryArray:
        """Return the events that a trace has for kinds."""
        events = ["control" if name in TOLD else name for name in self._names]
        return pa.DictionaryArray.from_arrays(pa.array(kind, pa.int32()), pa.array(events, pa.string()))


def _offsets(texts: pa.Array) -> pa.Array:
    """Return the offsets that texts say: `offset_of`, of whole columns where they are digits."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    digits = pc.match_substring_regex(texts, r"^[0-9]{1,18}$")
    if pc.all(digits).as_py() is not False:
        return texts.cast(pa.int64())
    return pa.array([offset_of(text) for text in texts.to_pylist()], pa.int64())


class _Columns:
    """The values that a form finds in a table, by the trace's column; `left` are records that it cannot decide."""

    def __init__(self, form: LogForm, table: pa.Table) -> None:
        self._form, self._table, self._size = form, table, len(table)
        self.left = np.zeros(self._size, bool)
        self.nothing = pa.nulls(self._size, pa.string())

    def leave(self, records: Array) -> None:
        """Leave some records undecided."""
        self.left |= records

    def _found(self, name: str) -> list[pa.Array]:
        """Return the columns that may have it, the first first, empty texts as nothing."""
        return [column for _, column in self._found_by_key(name)]

    def _found_by_key(self, name: str) -> list[tuple[str, pa.Array]]:
        form = self._form
        if name in form.constants:
            return [(name, pa.repeat(pa.scalar(form.constants[name]), self._size))]
        found = []
        for key in form.columns.get(name, [name]):
            if key in self._table.column_names:
                column = whole(self._table[key])
                column = without_empty(column) if is_text(column) else column
                if column.null_count < len(column):
                    found.append((key, column))
        if name in form.defaults:
            found.append((name, pa.repeat(pa.scalar(form.defaults[name]), self._size)))
        return found

    def value_of_any_kind(self, name: str) -> pa.Array:
        """Return something where there is any value."""
        there = np.zeros(self._size, bool)
        for column in self._found(name):
            there |= ~missing(column)
        return pa.array(there, mask=~there)

    def text(self, name: str) -> pa.Array:
        """Return a column's values as texts."""
        return first_of([self._as_text(column) for column in self._found(name)], self.nothing)

    def _as_text(self, column: pa.Array) -> pa.Array:
        if is_text(column):
            return column
        if pa.types.is_floating(column.type):
            column = self._whole_numbers(column)
        if pa.types.is_integer(column.type):
            return column.cast(pa.string())
        self.leave(~missing(column))
        return self.nothing

    def _whole_numbers(self, column: pa.Array) -> pa.Array:
        """Return numbers that have no fraction as integers; others are left undecided."""
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        good = (np.abs(values) < _EXACT) & (values == np.trunc(values))
        self.leave(~good)
        return pa.array(np.where(good, values, 0).astype(np.int64), mask=missing(column) | ~good)

    def integer(self, name: str) -> pa.Array:
        """Return a column's values as integers."""
        return first_of([self._as_integer(column) for column in self._found(name)], pa.nulls(self._size, pa.int64()))

    def _as_integer(self, column: pa.Array) -> pa.Array:
        if is_text(column):
            texts, rows = distinct(column)
            digits = pc.fill_null(pc.match_substring_regex(texts, r"^-?[0-9]{1,18}$"), True)
            if not pc.all(digits).as_py():
                self.leave(~spread(digits, rows).fill_null(True).to_numpy(zero_copy_only=False))
                texts = pc.if_else(digits, texts, None)
            return spread(texts.cast(pa.int64()), rows)
        if pa.types.is_floating(column.type):
            return self._whole_numbers(column)
        if pa.types.is_signed_integer(column.type):
            return column.cast(pa.int64())
        self.leave(~missing(column))
        return pa.nulls(self._size, pa.int64())

    def time(self, name: str) -> pa.Array:
        """Return a column's times as nanoseconds."""
        times = [self._as_time(column, self._form.unit_of(key)) for key, column in self._found_by_key(name)]
        return first_of(times, pa.nulls(self._size, pa.int64()))

    def _as_time(self, column: pa.Array, unit: TimeUnit) -> pa.Array:
        times = times_as_nanoseconds(column, unit)
        if times is None:
            self.leave(~missing(column))
        return pa.nulls(self._size, pa.int64()) if times is None else times

    def flag(self, name: str) -> pa.Array:
        """Return a column's marks."""
        marks = [self._as_flag(column, least_of_yes(key)) for key, column in self._found_by_key(name)]
        return first_of(marks, pa.nulls(self._size, pa.bool_()))

    def _as_flag(self, column: pa.Array, least: int) -> pa.Array:
        if pa.types.is_boolean(column.type):
            return column
        if is_text(column):
            texts = coded(column)
            says = pa.array([is_yes(text, least) for text in texts.dictionary.to_pylist()], pa.bool_())
            return says.take(texts.indices)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            return pc.greater_equal(column, least)
        self.leave(~missing(column))
        return pa.nulls(self._size, pa.bool_())
