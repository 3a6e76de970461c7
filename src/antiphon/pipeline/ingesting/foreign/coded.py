"""Columns of texts, coded where few of them are distinct: what is said of a text is said once, not for every row.

A coded column is a dictionary array without nulls among its texts; a plain one has the texts themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.columns import Array

CODE = pa.dictionary(pa.int32(), pa.string())


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a table's column as one array, its texts plain or coded in the one form that is known here."""
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_dictionary(array.type) and (array.type != CODE or array.dictionary.null_count):
        array = array.dictionary_decode()
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array


def is_text(column: pa.Array) -> bool:
    """Say whether a column has texts, plain or coded."""
    return bool(pa.types.is_string(column.type) or column.type == CODE)


def coded(column: pa.Array) -> pa.DictionaryArray:
    """Return texts as codes."""
    return column if column.type == CODE else column.dictionary_encode()


def plain(column: pa.Array) -> pa.Array:
    """Return texts as they are."""
    return column.dictionary_decode() if column.type == CODE else column


def distinct(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Return the texts to look at, and which of them each row has; None if they are the rows' own."""
    return (column.dictionary, column.indices) if column.type == CODE else (column, None)


def spread(values: pa.Array, rows: pa.Array | None) -> pa.Array:
    """Return for each row what was found for its text."""
    return values if rows is None else values.take(rows)


def without_empty(column: pa.Array) -> pa.Array:
    """Return texts with nothing where they are empty."""
    texts, rows = distinct(column)
    empty = pc.equal(texts, "")
    if not pc.any(empty).as_py():
        return column
    if rows is None:
        return pc.if_else(empty, None, texts)
    return pa.DictionaryArray.from_arrays(pc.if_else(empty.take(rows), None, rows), texts)


def is_one_of(column: pa.Array, words: Sequence[str]) -> pa.Array:
    """Say of each text whether it is one of some words."""
    texts, rows = distinct(column)
    return spread(pc.is_in(texts, pa.array(words)), rows).fill_null(False)


def missing(column: pa.Array) -> Array:
    """Say which rows have nothing."""
    if not column.null_count:
        return np.zeros(len(column), bool)
    found: Array = column.is_null().to_numpy(zero_copy_only=False)
    return found


def first_of(columns: list[pa.Array], nothing: pa.Array) -> pa.Array:
    """Return in each row what the first column has that has anything."""
    if not columns:
        return nothing
    if len(columns) == 1 or not columns[0].null_count:
        return columns[0]
    return pc.coalesce(*map(plain, columns))


def filled(column: pa.DictionaryArray, text: str) -> pa.DictionaryArray:
    """Return codes with a text where there is none."""
    if not column.null_count:
        return column
    texts = pa.concat_arrays([column.dictionary, pa.array([text])]).dictionary_encode()
    last = texts.indices[len(texts) - 1]
    return pa.DictionaryArray.from_arrays(texts.indices.take(column.indices).fill_null(last), texts.dictionary)


def chosen(condition: Array, yes: pa.DictionaryArray, no: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a coded column with the one's values where the condition holds, else the other's."""
    if not condition.any():
        return no
    texts = pa.concat_arrays([yes.dictionary, no.dictionary]).dictionary_encode()  # a text of both has one code
    mine, other = texts.indices[: len(yes.dictionary)], texts.indices[len(yes.dictionary) :]
    indices = pc.if_else(pa.array(condition), mine.take(yes.indices), other.take(no.indices))
    return pa.DictionaryArray.from_arrays(indices, texts.dictionary)
