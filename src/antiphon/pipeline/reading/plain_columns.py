"""Columns of anyone's tables in the few types that are read further on: numbers, texts, marks, times, lists of them.

What stands inside of a struct or a map gets a column of its own, whose name leads there with dots, as keys of JSON do.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

UUID_BYTES: Final = 16
_TEXTS: Final = (pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_fixed_size_list,
)


def plain_table(table: pa.Table, keys: Collection[str] = ()) -> pa.Table:
    """Return a table with plain columns; of maps, those of these keys that lead into one."""
    if not _has_odd_types(table.schema):
        return table
    named: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        for inner, found in _opened(name, column, keys):
            named.setdefault(inner, found)
    return pa.table(named)


def plain_schema(schema: pa.Schema, keys: Collection[str] = ()) -> pa.Schema:
    """Return the columns that a table with this schema has when they are plain."""
    return plain_table(schema.empty_table(), keys).schema if _has_odd_types(schema) else schema


def top_columns(schema: pa.Schema, keys: Collection[str]) -> list[str]:
    """Return which columns of a table hold what is looked for under these keys, in the table's order."""
    return [name for name in schema.names if any(key == name or key.startswith(f"{name}.") for key in keys)]


def _has_odd_types(schema: pa.Schema) -> bool:
    return not all(is_plain(field.type) for field in schema)


def is_plain(kind: pa.DataType) -> bool:
    """Say whether a column of this type is plain already."""
    if pa.types.is_dictionary(kind):
        return bool(pa.types.is_string(kind.value_type))
    if pa.types.is_list(kind):
        return is_plain(kind.value_type)
    odd = (*_TEXTS, *_BYTES, *_LISTS, pa.types.is_decimal, pa.types.is_struct, pa.types.is_map)
    return not isinstance(kind, pa.BaseExtensionType) and not any(is_one(kind) for is_one in odd)


def _opened(name: str, column: pa.ChunkedArray, keys: Collection[str]) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield a column or, of a struct or a map, what is inside of it."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_struct(column.type):
        for field, inner in zip(column.type, column.flatten(), strict=True):
            yield from _opened(f"{name}.{field.name}", inner, keys)
    elif pa.types.is_map(column.type):
        for key in keys:
            if key.startswith(f"{name}.") and pa.types.is_string(column.type.key_type):
                yield from _opened(key, pc.map_lookup(column, key[len(name) + 1 :], "last"), ())
    elif is_plain(column.type):
        yield name, column
    else:
        chunks = [_plain(chunk) for chunk in column.chunks] or [_plain(pa.array([], column.type))]
        kinds = {chunk.type for chunk in chunks}
        yield name, pa.chunked_array(chunks if len(kinds) == 1 else [chunk.cast(pa.string()) for chunk in chunks])


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if is_plain(kind):
        return column
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(column.storage)
    if any(is_text(kind) for is_text in _TEXTS):
        return column.cast(pa.string())
    if any(is_bytes(kind) for is_bytes in _BYTES):
        return _as_texts(column, always_uuid=pa.types.is_fixed_size_binary(kind) and kind.byte_width == UUID_BYTES)
    if pa.types.is_decimal(kind):
        return _as_numbers(column)
    if any(is_list(kind) for is_list in _LISTS):
        values = [None if one is None else _plain(pa.array(one, kind.value_type)).to_pylist() for one in _lists(column)]
        return pa.array(values, pa.list_(_plain(pa.array([], kind.value_type)).type))
    return column  # a struct in a list: nobody looks for one


def _lists(column: pa.Array) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


def _as_numbers(column: pa.Array) -> pa.Array:
    """Return decimals as integers or, where some have a fraction or are too large, as texts."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column.cast(pa.string())


def _as_texts(column: pa.Array, *, always_uuid: bool) -> pa.Array:
    """Return bytes as texts: UTF-8 if they are, else 16 of them as a UUID, others in hexadecimal.

    It is decided value by value, so that an id is the same text in every file.
    """
    if not always_uuid:
        try:
            return column.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            pass
    coded = column.cast(pa.binary()).dictionary_encode()
    words = [_as_text(value, always_uuid=always_uuid) for value in coded.dictionary.to_pylist()]
    return pa.array(words, pa.string()).take(coded.indices)


def _as_text(value: bytes, *, always_uuid: bool) -> str:
    if not always_uuid:
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return str(uuid.UUID(bytes=value)) if len(value) == UUID_BYTES else value.hex()
