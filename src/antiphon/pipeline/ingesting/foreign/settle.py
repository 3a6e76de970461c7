"""What only all rows of a run can tell, before it is numbered: records that were written twice, tags of messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign.numbering import ROW_BITS
from antiphon.pipeline.ingesting.foreign.tags import BY_TAG, PublishedTags, TaggedRow
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.verdicts import REPEATED
from antiphon.trace.schema import ACKNOWLEDGED

WRITTEN_TWICE: Final = "a record that is there before, with the same time: it may have been written twice"
EXPORTED_TWICE: Final = (
    "a span that is there before, as an exporter sends it that did not hear of its success; left out"
)
REPEATABLE: Final = ("send", "receive", "deliver", "discard")  # what counts anew each time
_KINDS: Final = 4  # rows of a record


def settle(
    rows: pa.Table, known: PublishedTags | None = None, files: Sequence[str] = ()
) -> tuple[pa.Table, list[UnreadableRow]]:
    """Leave out records that were written twice, and let acknowledgments by tag name their messages.

    Returns the rows, and those that were put aside. What was published before these rows is what is known.
    """
    bad: list[UnreadableRow] = []
    again = written_twice(rows)
    if again.any():
        bad += put_aside_again(rows.filter(pa.array(again)), files)
        rows = rows.filter(pa.array(~again)).combine_chunks()
    if known is not None or _is_one_of(rows["detail"], BY_TAG).any():
        rows, doubtful = _with_tags(rows, PublishedTags() if known is None else known, files)
        bad += doubtful
    return rows, bad


def written_twice(rows: pa.Table) -> Array:
    """Say which rows say what a row of another record said before, with the same time.

    Where all rows have steps, these tell it.
    """
    again = np.zeros(len(rows), bool)
    if rows["time_ns"].null_count == len(rows) or not rows["step"].null_count:
        return again
    counts = _is_one_of(rows["event"], REPEATABLE) & rows["time_ns"].is_valid().to_numpy()
    time = rows["time_ns"].fill_null(0).to_numpy()
    at = _alike(np.flatnonzero(counts), time, _codes(rows["member"]))
    if len(at):  # at the same time; few are about the same message, too
        some = pa.array(at)
        at = at[_alike(np.arange(len(at)), time[at], _codes(rows["member"].take(some)), _codes(rows["id"].take(some)))]
    if not len(at):
        return again
    alike = rows.drop_columns(["place"]).take(pa.array(at)).to_pylist()
    record = rows["place"].take(pa.array(at)).to_numpy() // _KINDS
    first: dict[str, int] = {}
    for one in np.argsort(record, kind="stable").tolist():
        said = json.dumps(alike[one], default=str, sort_keys=True)
        again[at[one]] = first.setdefault(said, int(record[one])) != record[one]
    return again


def _alike(at: Array, *columns: Array) -> Array:
    """Return those of some positions that have the same in all columns as another one, or may have."""
    key = np.zeros(len(at), np.uint64)
    for column in columns:
        key = (key ^ column[at].astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    in_order = np.sort(key)
    same = in_order[1:][in_order[1:] == in_order[:-1]]
    return at[np.isin(key, same)] if len(same) else at[:0]


def _codes(column: pa.ChunkedArray) -> Array:
    coded = column.combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    coded = coded if pa.types.is_dictionary(coded.type) else coded.dictionary_encode()
    codes: Array = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes


def _with_tags(rows: pa.Table, known: PublishedTags, files: Sequence[str]) -> tuple[pa.Table, list[UnreadableRow]]:
    rows = rows.sort_by("place")
    by_tag = _is_one_of(rows["detail"], BY_TAG)
    told = np.flatnonzero(by_tag | _is_one_of(rows["event"], ("send", "deliver")))
    names = ("member", "channel", "event", "detail", "id", "tag")
    columns = [rows[name].take(pa.array(told)).to_pylist() for name in names]
    bad, found, ids = [], [], []
    for at, member, channel, event, detail, one, tag in zip(told.tolist(), *columns, strict=True):
        try:
            messages = known.acknowledged(TaggedRow(member, channel, detail if by_tag[at] else event, one, tag))
        except ValueError as problem:
            bad.append(put_aside(rows.slice(at, 1).to_pylist()[0], str(problem), files))
            continue
        ids += messages
        found += [at] * len(messages)
    kept = rows.filter(pa.array(~by_tag))
    if not found:
        return kept, bad
    acknowledged = rows.take(pa.array(found))
    changed = {
        "id": pa.array(ids, pa.string()),
        "detail": pa.array([ACKNOWLEDGED] * len(ids)).dictionary_encode(),
        "sender": acknowledged["member"],
    }
    for name, column in changed.items():
        place = rows.schema.get_field_index(name)
        acknowledged = acknowledged.set_column(place, rows.schema.field(name), column)
    return pa.concat_tables([kept, acknowledged]).unify_dictionaries().combine_chunks(), bad


def _is_one_of(column: pa.ChunkedArray, words: Sequence[str]) -> Array:
    """Say of each text of a coded column whether it is one of some words."""
    found = [pc.is_in(part.dictionary, pa.array(words)).take(part.indices).fill_null(False) for part in column.chunks]
    result: Array = np.concatenate([part.to_numpy(zero_copy_only=False) for part in found] or [np.zeros(0, bool)])
    return result


def put_aside_again(rows: pa.Table, files: Sequence[str] = ()) -> list[UnreadableRow]:
    """Return rows as such that were put aside since they are there twice: what has an id of its own certainly is."""
    bad = [put_aside(row, WRITTEN_TWICE if row["span"] is None else EXPORTED_TWICE, files) for row in rows.to_pylist()]
    return [msgspec.structs.replace(one, event=REPEATED) if one.reason == EXPORTED_TWICE else one for one in bad]


def put_aside(row: dict[str, Any], reason: str, files: Sequence[str]) -> UnreadableRow:
    """Return a row as one that was put aside."""
    place = row.pop("place")
    said = {name: value for name, value in row.items() if value is not None}
    number, position = place >> ROW_BITS, (place & ((1 << ROW_BITS) - 1)) // _KINDS
    content = json.dumps(said, default=str, ensure_ascii=False)
    return UnreadableRow(files[number] if files else "", position if files else None, reason, row["event"], content)
