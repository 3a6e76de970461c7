"""OpenTelemetry exports in bulk: spans as tables with a column for each attribute that a form reads.

What the compiled scanners leave, and what each span is said to be about, is as `otlp.py` has it for single records.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.errors import UsageError
from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign import otlp, span_texts
from antiphon.pipeline.ingesting.foreign.bulk import LogRecord, RecordTable, keys_read
from antiphon.pipeline.ingesting.foreign.coded import first_of, is_one_of, is_text, plain, without_empty
from antiphon.pipeline.ingesting.foreign.form import LogForm
from antiphon.pipeline.ingesting.foreign.json_steps import PADDING, skip_value
from antiphon.pipeline.ingesting.foreign.span_arrays import (
    FULL,
    NOTHING,
    NUMBER,
    OWN_COLUMNS,
    TEXT,
    TRUTH,
    SpanArrays,
    span_arrays,
    wanted_keys,
)
from antiphon.pipeline.ingesting.foreign.span_json import scan_json
from antiphon.pipeline.ingesting.foreign.span_protobuf import scan_protobuf
from antiphon.pipeline.store.location import compression_of, is_utf16, location, open_input
from antiphon.pipeline.store.torn import Tear, TornStream

_BLOCK_BYTES: Final = 8 << 20
_SPANS: Final = 1 << 14  # that a table has, about
_OWN: Final = ("span.start", "span.kind", "span.failed", "span.id", "span.parent")
_KINDS: Final = [otlp.SPAN_KINDS.get(code, "none") for code in range(6)]
_POPPED: Final = ("span.failed", "span.links", "span.parent")
_DERIVED: Final = (*otlp.OPERATIONS, *otlp.IDS, *otlp.OFFSETS, *otlp.TOPICS, *otlp.PARTITIONS)


def read_spans(file: str, form: LogForm, tear: Tear | None = None) -> Iterator[RecordTable | list[LogRecord]]:
    """Return a file's messaging spans, as tables where the scanners understand them, else one by one."""
    content = _in_camel_case(_content(file, tear))
    reader = _SpanReader(file, [key for key in dict.fromkeys((*keys_read(form), *_DERIVED)) if key not in _OWN])
    read = reader.json if otlp.is_json(memoryview(content)[: 1 << 16].tobytes()) else reader.protobuf
    for found in read(memoryview(content)):
        yield found
        reader.row += len(found.table if isinstance(found, RecordTable) else found)


_SNAKE_CASE: Final = (
    *("resource_spans", "scope_spans", "instrumentation_library_spans", "span_id", "parent_span_id"),
    *("start_time_unix_nano", "string_value", "int_value", "bool_value", "double_value", "bytes_value"),
)


def _in_camel_case(content: pa.Buffer) -> pa.Buffer:
    """Return an export in JSON with the names that the specification has, where it has those of protobuf's fields."""
    head = memoryview(content)[: 1 << 16].tobytes()
    if b'"resource_spans"' not in head or not otlp.is_json(head):
        return content
    text = content.to_pybytes()
    for name in _SNAKE_CASE:
        first, *others = name.split("_")
        text = text.replace(f'"{name}"'.encode(), f'"{"".join((first, *map(str.capitalize, others)))}"'.encode())
    return pa.py_buffer(text)


_ZSTD: Final = b"\x28\xb5\x2f\xfd"  # with which what is compressed so begins


def _content(file: str, tear: Tear | None) -> pa.Buffer:
    """Return what a file has, decompressed; whatever its name: a collector's file exporter is given one by its user."""
    with open_input(location(file)) as source:
        content = source.read_buffer()
    first = memoryview(content)[:8].tobytes()
    if is_utf16(first):
        return pa.py_buffer(content.to_pybytes().decode("utf-16").encode())
    if (codec := compression_of(first)) is not None:
        return _decompressed(content, codec, tear)
    if first[4:] != _ZSTD:
        return content
    # an exporter that compresses does so export by export, each behind its length
    exports = [
        _decompressed(content.slice(at, to - at), "zstd") for at, to in otlp.protobuf_extents(memoryview(content), file)
    ]
    if exports and otlp.is_json(memoryview(exports[0])[: 1 << 16].tobytes()):
        return pa.py_buffer(b"\n".join(export.to_pybytes() for export in exports))
    return pa.py_buffer(b"".join(struct.pack(">I", export.size) + export.to_pybytes() for export in exports))


def _decompressed(content: pa.Buffer, codec: str, tear: Tear | None = None) -> pa.Buffer:
    def opened() -> pa.CompressedInputStream:
        return pa.CompressedInputStream(pa.BufferReader(content), codec)

    try:
        with opened() as stream:
            return stream.read_buffer()
    except OSError:
        if tear is None:
            raise
    with TornStream(opened, tear) as torn:
        text = torn.read()
    return pa.py_buffer(text + tear.rest)  # an export need not end with its line


class _SpanReader:
    """Reads one file's exports."""

    def __init__(self, file: str, keys: list[str]) -> None:
        self.row = 1  # of the next record
        self._file, self._keys = file, keys
        self._wanted = wanted_keys(keys)
        self._arrays = span_arrays(OWN_COLUMNS + len(keys), _SPANS)

    def _room_for_more(self) -> None:
        spans, columns = self._arrays.kind.shape
        self._arrays = span_arrays(columns, 4 * spans)

    def _cut_short(self, rest: bytes) -> LogRecord:
        """Return what is left of an export at the end of a file that was read otherwise: it may still be written."""
        return LogRecord(self.row, None, str(rest[:1000])[2:-1], "an export that is cut short")

    def _singly(self, records: Iterator[dict[str, Any]]) -> list[LogRecord]:
        return [LogRecord(row, record) for row, record in enumerate(records, self.row)]

    def _flush(self, content: Array, *, as_hex: bool, decode: Callable[[bytes], dict[str, Any]]) -> RecordTable | None:
        """Return the spans that were scanned since the last time."""
        spans = int(self._arrays.counts[0])
        table = _table(self._arrays, self._keys, content, as_hex=as_hex) if spans else None
        if table is None:
            self._arrays.counts[:] = 0
            return None
        own, index = table
        extents = self._arrays.extent[:, index].copy()
        self._arrays.counts[:] = 0
        first = self.row

        def record(position: int) -> LogRecord:
            start, stop = extents[:, position].tolist()
            values = {key: own[key][position].as_py() for key in own.column_names}
            whole = decode(content[start:stop].tobytes()) | {key: one for key, one in values.items() if one is not None}
            return LogRecord(
                first + position, {key: value for key, value in whole.items() if value != "" and key not in _POPPED}
            )

        return RecordTable(own, first, record)

    def json(self, content: memoryview) -> Iterator[RecordTable | list[LogRecord]]:
        """Read exports in JSON, one after the other, on a line each or on many."""
        decode_json = msgspec.json.Decoder().decode
        decode = lambda span: otlp.json_span(decode_json(span))  # noqa: E731
        at = 3 if content[:3].tobytes() == b"\xef\xbb\xbf" else 0
        size = _BLOCK_BYTES
        while at < len(content):
            block = content[at : at + size]
            text = np.empty(len(block) + PADDING, np.uint8)
            text[: len(block)], text[len(block) :] = block, 0
            end, odd = scan_json(text, 0, self._arrays, self._wanted)
            if found := self._flush(text, as_hex=False, decode=decode):
                yield found
            at += end
            if not odd and end < len(block) and text[end]:
                if end == 0:
                    self._room_for_more()
                continue
            if not odd:
                if end < len(block):  # a byte that no text has
                    yield self._singly(otlp.json_records(content[at:].tobytes(), self._file))
                    return
                size = _BLOCK_BYTES
                continue
            whole = skip_value(text, end)
            if whole < 0 and at + len(block) - end < len(content):
                size = size if end else 4 * size  # the export goes on behind the block
                continue
            rest = text[end : whole if whole > 0 else len(block)].tobytes()
            try:
                last = self._singly(otlp.json_records(rest, self._file))
            except UsageError:
                if whole > 0 or self.row == 1:
                    raise
                last = [self._cut_short(rest)]
            yield last
            at += (whole if whole > 0 else len(block)) - end

    def protobuf(self, content: memoryview) -> Iterator[RecordTable | list[LogRecord]]:
        """Read exports in protobuf."""
        whole = np.frombuffer(content, np.uint8)
        flush = functools.partial(self._flush, whole, as_hex=True, decode=otlp.protobuf_span)
        stop = 0
        for start, stop in self._whole_exports(content):
            while True:
                before = self._arrays.counts.copy()
                end = scan_protobuf(whole, start, stop, self._arrays, self._wanted)
                if end >= 0:
                    break
                self._arrays.counts[:] = before
                if (found := flush()) is not None:
                    yield found
                if end != FULL:
                    yield self._singly(otlp.protobuf_records(content[start:stop].tobytes(), self._file))
                    break
                if not before[0]:
                    self._room_for_more()
        if (found := flush()) is not None:
            yield found
        if stop < len(content):
            yield [self._cut_short(content[stop:].tobytes())]

    def _whole_exports(self, content: memoryview) -> Iterator[tuple[int, int]]:
        """Return where exports are; one that the end of the file cuts short is left out, unless it is the only one."""
        try:
            yield from otlp.protobuf_extents(content, self._file)
        except UsageError:
            return


def _table(arrays: SpanArrays, keys: list[str], content: Array, *, as_hex: bool) -> tuple[pa.Table, Array] | None:
    """Return the messaging spans that were scanned, completed, and which span each record is of."""
    spans, links = (int(count) for count in arrays.counts)
    chosen = np.flatnonzero(arrays.messaging[:spans])
    if not len(chosen):
        return None
    every = slice(spans) if len(chosen) == spans else chosen
    there = (arrays.kind[:spans] != NOTHING).any(axis=0)

    def column(number: int, hexadecimal: bool = False) -> pa.Array:
        if not there[number]:
            return pa.nulls(len(chosen), pa.string())
        kind, value, length = (
            np.ascontiguousarray(part[every, number]) for part in (arrays.kind, arrays.value, arrays.length)
        )
        return _column(content, kind, value, length, hexadecimal)

    own = {name: column(number, as_hex and name in ("span.id", "span.parent")) for number, name in enumerate(_OWN)}
    found = {name: column(OWN_COLUMNS + number) for number, name in enumerate(keys)}
    columns = {name: one for name, one in (own | found).items() if one.null_count < len(one)}
    columns["span.kind"] = pa.DictionaryArray.from_arrays(own["span.kind"].cast(pa.int32()), pa.array(_KINDS))
    link = arrays.link[:, :links]
    texts = plain(_column(content, np.full(links, TEXT, np.uint8), link[1], link[2].astype(np.int32), as_hex))
    count = np.bincount(link[0], minlength=spans)
    first = np.cumsum(count) - count
    table, index = _completed(columns, len(chosen), count[chosen], first[chosen], texts)
    return table, chosen if index is None else chosen[index]


def _completed(
    columns: dict[str, pa.Array], size: int, count: Array, first: Array, links: pa.Array
) -> tuple[pa.Table, Array | None]:
    """Let spans have an operation and a message's id, as `otlp` has it for one; a batch is one record for each link."""
    sends = _say_operations(columns, size)
    nameless = _name_by_offset(columns, size)
    parent = plain(columns.pop("span.parent", pa.nulls(size, pa.string())))
    about = pc.if_else(sends, None, parent)
    index = None
    if count.any():
        sending = sends.to_numpy(zero_copy_only=False)
        linked = (count > 0) & ~(sending & (count <= 1))
        records = np.where(linked, count, 1)
        index = np.repeat(np.arange(size), records)
        at = np.arange(len(index)) - np.repeat(np.cumsum(records) - records, records)
        every = pa.array(index)
        columns = {name: column.take(every) for name, column in columns.items()}
        linked = linked[index]
        link = links.take(pa.array(np.where(linked, first[index] + at, 0), mask=~linked))
        about, sends, nameless = pc.coalesce(link, about.take(every)), sends.take(every), nameless.take(every)
    if pc.any(nameless).as_py():
        own = columns.get("span.id")
        other = about if own is None else pc.coalesce(about, pc.if_else(sends, plain(own), None))
        given = plain(_first_text(columns, otlp.IDS[:1], len(about), filled=False))
        name = pc.binary_join_element_wise("span", other, " ")
        columns[otlp.IDS[0]] = pc.if_else(pc.and_(nameless, pc.is_valid(other)), name, given)
    if about.null_count < len(about):
        columns["span.about"] = about
    return pa.table(columns), index


def _say_operations(columns: dict[str, pa.Array], size: int) -> pa.Array:
    """Complete what spans say of their kind and of failures; return which of them send."""
    operation, kind = _first_text(columns, otlp.OPERATIONS, size, filled=True), columns["span.kind"]
    if operation.null_count:
        neither = pc.and_(pc.is_null(operation), pc.is_null(kind))
        kind = pa.DictionaryArray.from_arrays(pc.if_else(neither, 0, kind.indices), kind.dictionary)
    columns["span.kind"] = kind
    sends = is_one_of(first_of([operation, kind], pa.nulls(size, pa.string())), otlp.SENDING)
    if "span.failed" in columns:
        failed = pc.and_(pc.fill_null(columns.pop("span.failed"), False), sends)
        said = plain(_first_text(columns, otlp.OPERATIONS[:1], size, filled=False))
        columns[otlp.OPERATIONS[0]] = pc.if_else(failed, "failed", said)
    return sends


def _name_by_offset(columns: dict[str, pa.Array], size: int) -> pa.Array:
    """Let messages without an id have topic, partition and offset as theirs; return which spans still have none."""
    nameless = pc.is_null(_first_text(columns, otlp.IDS, size, filled=True))
    offset = _first_text(columns, otlp.OFFSETS, size, filled=False)
    if offset.null_count == size or not pc.any(nameless).as_py():
        return nameless
    where = [
        pc.fill_null(plain(_first_text(columns, keys, size, filled=False)), "")
        for keys in (otlp.TOPICS, otlp.PARTITIONS)
    ]
    named = pc.binary_join_element_wise(*where, plain(offset), "/")
    given = plain(_first_text(columns, otlp.IDS[:1], size, filled=False))
    columns[otlp.IDS[0]] = pc.if_else(pc.and_(nameless, pc.is_valid(offset)), named, given)
    return pc.is_null(_first_text(columns, otlp.IDS, size, filled=True))


def _first_text(columns: dict[str, pa.Array], keys: tuple[str, ...], size: int, *, filled: bool) -> pa.Array:
    """Return the first of some keys that a span has (`filled`: with a text that is not empty)."""
    found = [_text(columns[key], filled=filled) for key in keys if key in columns]
    return first_of(found, pa.nulls(size, pa.string()))


def _text(column: pa.Array, *, filled: bool) -> pa.Array:
    """Return values as texts; `filled`: nothing where they are empty."""
    if pa.types.is_boolean(column.type):
        column = _words(column)
    texts = column if is_text(column) else column.cast(pa.string())
    return without_empty(texts) if filled else texts


def _words(truths: pa.Array) -> pa.Array:
    """Return truths as the texts that Python has for them, as `otlp` does."""
    return pc.if_else(truths, "True", "False")


def _column(content: Array, kind: Array, value: Array, length: Array, as_hex: bool) -> pa.Array:
    """Return a column's values: texts (coded where few differ), numbers or truths; of several kinds, all as texts."""
    size = len(kind)
    present = np.bincount(kind, minlength=4)
    if present[TEXT] and not as_hex and not present[NUMBER] and not present[TRUTH]:
        codes, first = np.empty(size, np.int32), np.empty(span_texts.FEW, np.int64)
        few = span_texts.code_texts(content, kind, value, length, codes, first)
        if few:
            texts = [content[value[row] : value[row] + length[row]].tobytes() for row in first[:few].tolist()]
            indices = pa.array(codes, mask=None if present[TEXT] == size else codes < 0)
            return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.binary()).cast(pa.string()))
    if present[TEXT]:
        room = int(length[kind == TEXT].sum(dtype=np.int64)) * (2 if as_hex else 1)
        offsets, out = np.empty(size + 1, np.int32), np.empty(room, np.uint8)
        span_texts.gather(content, kind, value, length, offsets, out, as_hex)
        validity = None if present[TEXT] == size else pa.array(kind == TEXT).buffers()[1]
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(out)]
        texts = pa.Array.from_buffers(pa.binary(), size, buffers).cast(pa.string())
        if present[NUMBER] or present[TRUTH]:
            others = pa.array(value, mask=kind == TEXT).cast(pa.string())
            truths = _words(pa.array(np.where(kind == TRUTH, value, 0).astype(bool), mask=kind != TRUTH))
            numbers = pc.if_else(pa.array(kind == NUMBER), others, None)
            return pc.coalesce(texts, numbers, truths)
        return texts
    if present[TRUTH] and not present[NUMBER]:
        return pa.array(value.astype(bool), mask=kind != TRUTH)
    if present[NUMBER]:
        return pa.array(value, mask=(kind != NUMBER) & (kind != TRUTH))
    return pa.nulls(size, pa.string())
