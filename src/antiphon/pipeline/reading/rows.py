"""Rows in the contract's types: the good ones as a table, and a reason for each one that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping as Record
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.columns import CONTROL, NO_EVENT, SEND, Array, as_offsets, event_codes
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.time_units import NUMBER, TimeUnit, times_as_nanoseconds
from antiphon.trace.schema import BROKER_COLUMNS, COLUMNS, EVENTS

TYPES: Final[dict[str, pa.DataType]] = {
    name: pa.list_(pa.int32()) if kind.startswith("list") else pa.type_for_alias(kind) for name, kind in COLUMNS.items()
}
TRACE_SCHEMA: Final = pa.schema(list(TYPES.items()))
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+(\.0*)?\s*")
INTEGERS: Final = tuple(name for name, kind in TYPES.items() if pa.types.is_integer(kind))

_MEMBERS: Final = ("member", "sender", "members")  # the columns that name members

# reasons, by code; 0 is a good row
REASONS: Final = (
    "",
    "run is null or no text",
    "member is null or no 32-bit number (a mapping's [members] gives names their numbers)",
    "step is null or no number",
    f'event is none of {", ".join(EVENTS)} (a mapping\'s [events] says which one a word means, "" that it is none)',
    "sender is null or no 32-bit number (a mapping's [members] gives names their numbers)",
    "seq is null, no number or below 1 (a mapping's numbers_from says where a log's numbers start)",
    "the sender of a send is not its member",
    "a second row with the same run, member and step",
    "a value is not of its column's type",
)
BAD_RUN, BAD_MEMBER, BAD_STEP, BAD_EVENT, BAD_SENDER, BAD_SEQ, BAD_SEND, DUPLICATE, BAD_TYPE = range(1, len(REASONS))
_NO_ROW: Final = 255  # it tells of no event, as a mapping says


class UnreadableRow(msgspec.Struct, frozen=True):
    """A row that cannot be read."""

    file: str
    row: int | None  # its position in the file, from 1
    reason: str
    event: str | None  # its event, where that can be read
    content: str


class RowBatch(msgspec.Struct):
    """Some rows of a file: the good ones typed, the bad ones with their reasons."""

    good: pa.Table
    bad: list[UnreadableRow]


def sort_out(raw: pa.Table, file: str, first_row: int, mapping: Mapping) -> RowBatch:
    """Type the rows and part the good from the bad."""
    table, reason = _typed(raw, mapping)
    if not reason.any():
        return RowBatch(table, [])
    bad = _unreadable(reason)
    contents = raw.take(pa.array(bad)).to_pylist()
    events = [event if event in EVENTS else None for event in table["event"].take(pa.array(bad)).to_pylist()]
    rubbish = [
        UnreadableRow(
            file,
            first_row + int(at),
            REASONS[reason[at]],
            event,
            json.dumps(content, default=_readable, ensure_ascii=False),
        )
        for at, content, event in zip(bad, contents, events, strict=True)
    ]
    return RowBatch(table.filter(pa.array(reason == 0)), rubbish)


def _unreadable(reason: Array) -> Array:
    return np.flatnonzero((reason != 0) & (reason != _NO_ROW))


def _readable(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _typed(raw: pa.Table, mapping: Mapping) -> tuple[pa.Table, Array]:
    """The contract's columns in their types, and each row's reason to be put aside (0 if none)."""
    columns, unreadable = _columns(raw, mapping)
    reason = _reasons(columns, unreadable)
    if "" in mapping.events.values():
        nothing = pc.fill_null(pc.equal(columns["event"].cast(pa.string()), ""), False)
        reason[nothing.to_numpy(zero_copy_only=False)] = _NO_ROW
    return pa.table(columns, schema=_dictionary_schema(columns)), reason


def _columns(raw: pa.Table, mapping: Mapping) -> tuple[dict[str, pa.Array], list[Array]]:
    """Return the contract's columns in their types, and for each of them in which rows it cannot be read."""
    columns: dict[str, pa.Array] = {}
    unreadable = []
    for name, kind in TYPES.items():
        foreign = mapping.foreign(name)
        if name in mapping.constants:
            columns[name] = pa.array([mapping.constants[name]] * raw.num_rows, kind)
        elif foreign not in raw.column_names:
            columns[name] = pa.nulls(raw.num_rows, kind)
        else:
            column = raw[foreign].combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            column = _with_numbers(column, mapping.members) if name in _MEMBERS and mapping.members else column
            times = name == "time_ns"
            columns[name], wrong = _times(column, mapping.unit_of_times) if times else _convert(column, kind)
            unreadable.append(wrong)
    columns |= _broker_columns(raw, mapping)
    if mapping.numbers_from != 1:
        columns["seq"] = pc.add(columns["seq"], 1 - mapping.numbers_from)
    if mapping.events:
        columns["event"] = _renamed(columns["event"], mapping.events)
    return columns, unreadable


def _reasons(columns: dict[str, pa.Array], unreadable: list[Array]) -> Array:
    """Return the first reason why each row has to be put aside, 0 where there is none."""
    code = event_codes(columns["event"])
    reason = np.zeros(len(code), np.uint8)

    def blame(wrong: Array, why: int) -> None:
        reason[wrong & (reason == 0)] = why

    def null(name: str) -> Array:
        result: Array = pc.is_null(columns[name]).to_numpy(zero_copy_only=False)
        return result

    def number(name: str) -> Array:
        result: Array = pc.fill_null(columns[name], 0).to_numpy(zero_copy_only=False)
        return result

    blame(null("run"), BAD_RUN)
    blame(null("member"), BAD_MEMBER)
    blame(null("step"), BAD_STEP)
    blame(code == NO_EVENT, BAD_EVENT)
    about_message = code < CONTROL  # send, receive, deliver, stable, discard
    blame(about_message & null("sender"), BAD_SENDER)
    blame(about_message & (number("seq") < 1), BAD_SEQ)
    blame((code == SEND) & (number("sender") != number("member")), BAD_SEND)
    for wrong in unreadable:
        blame(wrong, BAD_TYPE)
    return reason


def _dictionary_schema(columns: dict[str, pa.Array]) -> pa.Schema:
    return pa.schema([(name, column.type) for name, column in columns.items()])


def _broker_columns(raw: pa.Table, mapping: Mapping) -> dict[str, pa.Array]:
    """Return the columns of brokers that are there and have anything in them; texts in them cannot be wrong."""
    columns: dict[str, pa.Array] = {}
    for name, kind in BROKER_COLUMNS.items():
        if name in mapping.constants:
            column = pa.array([str(mapping.constants[name])] * raw.num_rows)
        elif mapping.foreign(name) in raw.column_names:
            column = raw[mapping.foreign(name)].combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            if pa.types.is_nested(column.type):
                continue
            column = column.cast(pa.string())
        else:
            continue
        if kind == "int64":
            column = as_offsets(column)
        if kind == "bool":
            lower = pc.utf8_lower(column)
            column = pc.is_in(lower, pa.array(["true", "1"]))
        if column.null_count < len(column):
            columns[name] = column
    return columns


def _with_numbers(column: pa.Array, numbers: dict[str, int]) -> pa.Array:
    """Replace members' names by numbers, as text; what is no name stays as it is."""
    if pa.types.is_list(column.type) or pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.cast(pa.string()).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    words = [" ".join(str(numbers.get(word, word)) for word in _words(name)) for name in names]
    return pa.array(words, pa.string()).take(encoded.indices)


def _words(text: str) -> list[str]:
    """Return the words of a list that is written as text."""
    return [word for word in re.split(r"[\s,;\[\]]+", text) if word]


def _renamed(events: pa.Array, names: dict[str, str]) -> pa.Array:
    encoded = events if pa.types.is_dictionary(events.type) else events.dictionary_encode()
    dictionary = pa.array([names.get(name, name) for name in encoded.dictionary.to_pylist()], pa.string())
    return dictionary.take(encoded.indices)


def _convert(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Array]:
    """A column in its type, null where that is impossible; and where that was."""
    nothing = np.zeros(len(column), bool)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind), nothing
    if pa.types.is_string(kind) and pa.types.is_dictionary(column.type):
        return column, nothing
    try:
        if not (pa.types.is_binary(column.type) and pa.types.is_list(kind)):
            return _cast(column, kind), nothing
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    parse = _parse_list if pa.types.is_list(kind) else _parse_integer if pa.types.is_integer(kind) else _parse_text
    values = [None if value is None else parse(value) for value in column.to_pylist()]
    if pa.types.is_integer(kind):
        low, high = (-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
        values = [value if value is not None and low <= value <= high else None for value in values]
    typed = pa.array(values, kind)
    return typed, _lost(typed, column)


def _times(column: pa.Array, unit: TimeUnit) -> tuple[pa.Array, Array]:
    """Times of a unit in nanoseconds, null where that is impossible; and where that was."""
    if pa.types.is_binary(column.type):
        column = _as_text(column)
    if unit != "ns" or pa.types.is_temporal(column.type):
        times = times_as_nanoseconds(column, unit)
        times = pa.nulls(len(column), pa.int64()) if times is None else times
        lost = _lost(times, column)
        if not unit and not pa.types.is_temporal(column.type):  # a number of which nothing tells the unit is no time
            lost &= ~pc.match_substring_regex(pc.fill_null(column.cast(pa.string()), ""), NUMBER).to_numpy(False)
        return times, lost
    times, lost = _convert(column, pa.int64())  # as the trace's other numbers
    if lost.any() and pa.types.is_string(column.type):
        dates = times_as_nanoseconds(pc.if_else(pa.array(lost), column, None))
        times = pc.coalesce(times, dates)
        lost = _lost(times, column)
    return times, lost


def _as_text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if one is None else one.decode(errors="replace") for one in column.to_pylist()])


def _lost(typed: pa.Array, column: pa.Array) -> Array:
    lost: Array = pc.and_(pc.is_null(typed), pc.is_valid(column)).to_numpy(zero_copy_only=False)
    return lost


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(column.type):
        column = column.cast(pa.string())
    typed = column.cast(kind)
    hexadecimal = pa.types.is_integer(kind) and pa.types.is_string(column.type)
    if hexadecimal and pc.any(pc.match_substring(column, "x", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("Arrow reads 0x10 as a number, the contract does not")
    return typed


def _parse_integer(value: Any) -> int | None:
    """An integer, also from text and from a number without a fraction (a table with gaps may have made it one)."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return int(value.partition(".")[0]) if _INTEGER.fullmatch(value) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def _parse_list(value: Any) -> list[int] | None:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        parsed = [_parse_integer(word) for word in _words(value)]
    elif isinstance(value, list):
        parsed = [_parse_integer(word) for word in value]
    else:
        return None
    numbers = [number for number in parsed if number is not None and -(1 << 31) <= number < 1 << 31]
    return numbers if len(numbers) == len(parsed) else None


def sort_out_objects(
    objects: list[dict[str, Any]], rows: list[int], broken: list[UnreadableRow], file: str, mapping: Mapping
) -> RowBatch:
    """Type rows that come as plain objects and part the good from the bad."""
    table, reason = _typed_objects(objects, mapping)
    for at in _unreadable(reason).tolist():
        event = table["event"][at].as_py()
        text = json.dumps(objects[at], default=_readable, ensure_ascii=False)
        broken.append(UnreadableRow(file, rows[at], REASONS[reason[at]], event if event in EVENTS else None, text))
    return RowBatch(table.filter(pa.array(reason == 0)), broken)


def value_inside(record: Record[str, Any], key: str) -> Any:
    """Return the value of a key; one with dots may lead into objects, as `headers.id`."""
    if key in record or "." not in key:
        return record.get(key)
    first, _, rest = key.partition(".")
    inner = record.get(first)
    return value_inside(inner, rest) if isinstance(inner, Record) else None


def _numbered(value: Any, numbers: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_numbered(one, numbers) for one in value]
    return numbers.get(value, value) if isinstance(value, str) else value


def _typed_objects(objects: list[dict[str, Any]], mapping: Mapping) -> tuple[pa.Table, Array]:
    columns: dict[str, pa.Array] = {}
    wrong = np.zeros(len(objects), bool)
    for name, kind in TYPES.items():
        values = [value_inside(content, mapping.foreign(name)) for content in objects]
        if name in _MEMBERS and mapping.members:
            values = [_numbered(value, mapping.members) for value in values]
        if pa.types.is_list(kind):
            parsed: list[Any] = [None if value is None else _parse_list(value) for value in values]
        elif name == "time_ns":
            parsed = [None if value is None else str(value) for value in values]
            kind = pa.string()
        elif pa.types.is_integer(kind):
            parsed = [_parse_integer(value) for value in values]
            half = 1 << (kind.bit_width - 1)
            parsed = [value if value is not None and -half <= value < half else None for value in parsed]
        else:
            parsed = [_parse_text(value) for value in values]
        columns[mapping.foreign(name)] = pa.array(parsed, kind)
        lost = [value is not None and good is None for value, good in zip(values, parsed, strict=True)]
        wrong |= np.array(lost, bool)
    for name in BROKER_COLUMNS:
        texts = [value_inside(content, mapping.foreign(name)) for content in objects]
        columns[mapping.foreign(name)] = pa.array([None if text is None else str(text) for text in texts], pa.string())
    table, reason = _typed(pa.table(columns), mapping)
    reason[wrong & (reason == 0)] = BAD_TYPE  # what is no row stays none
    return table, reason
