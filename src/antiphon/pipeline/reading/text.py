"""CSV and JSON lines, whole or in spans, so that many tasks can read one large text.

A text may be compressed, in UTF-16, begin with a byte order mark; CSV may have semicolons, tabs or bars, and JSON may
be one list, or objects on many lines.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from antiphon.errors import NotATrace, UsageError
from antiphon.pipeline.columns import CONTROL
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.rows import INTEGERS, TYPES, RowBatch, UnreadableRow, sort_out, sort_out_objects
from antiphon.pipeline.store.files import format_of
from antiphon.pipeline.store.location import compression_of, is_utf16, location, open_binary, open_stream
from antiphon.pipeline.store.torn import Tear
from antiphon.trace.schema import BROKER_COLUMNS, EVENTS, REQUIRED

BLOCK_BYTES: Final = 32 << 20
HEAD_BYTES: Final = 1 << 18  # by which it is seen how a text is written
_BLANKS: Final = re.compile(r"\s*")
_OPENING: Final = re.compile(r"[\s\[,\]]*")  # before an object of a list


class TextSpan(msgspec.Struct, frozen=True):
    """Part of a text file: the rows that begin between two positions, with how many rows and quotes lie before each."""

    start: int
    stop: int
    lines: int  # that end before `start`, as far as is known without the byte before it
    in_quotes: bool  # whether the byte before `start` is in quotes, so that a line may end there and a row does not
    in_quotes_after: bool


def can_be_cut(file: str) -> bool:
    """Whether of a CSV or JSON lines file a part can be read by itself."""
    kind = format_of(Path(file))
    with open_binary(location(file)) as text:
        first = text.read(HEAD_BYTES)
    return compression_of(first) is None and not is_utf16(first) and (kind == "csv" or has_lines_of_records(first))


def text_of(content: bytes) -> str:
    """Return the text of a file, whatever is wrong with it."""
    return content.decode("utf-8-sig", errors="replace")


def head_of(file: str, tear: Tear | None = None) -> str:
    """Return the beginning of a text, as far as it can be read."""
    tear = Tear() if tear is None else tear
    with open_stream(location(file), tear) as stream:
        return text_of(stream.read(HEAD_BYTES) or tear.rest)


def values_of_text(file: str, tear: Tear | None = None) -> Iterator[dict[str, Any]]:
    """Return the objects of a text that is a list of them, or has them on many lines; of a torn one those before."""
    with open_stream(location(file), tear) as stream:
        content = stream.read()
    return first_json_values(text_of(content + tear.rest)) if tear else json_values(text_of(content), file)


def csv_delimiter(text: str) -> str:
    """Return what parts the columns: a comma or, where the first line has none, a semicolon, a tab or a bar."""
    header = text.partition("\n")[0]
    return next((one for one in (",", ";", "\t", "|") if one in header), ",")


def has_lines_of_records(text: bytes) -> bool:
    """Say whether the first line of a text is for itself, not the beginning of a list or of an object on many lines."""
    line = text.removeprefix(codecs.BOM_UTF8).lstrip()[: 1 << 20].partition(b"\n")[0].strip()
    return not line.startswith(b"[") and not line.endswith((b"{", b"[", b","))


def json_values(text: str, file: str) -> Iterator[dict[str, Any]]:
    """Return the objects of a text that is a list of them, or has one after the other on many lines."""
    decode, at = json.JSONDecoder().raw_decode, _end_of_blanks(text, 0)
    while at < len(text):
        try:
            value, at = decode(text, at)
        except ValueError as error:
            raise UsageError(f"{file}: no JSON, neither a line for each record nor a list of them: {error}") from None
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict))
        at = _end_of_blanks(text, at)


def _end_of_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def count_marks(file: str, start: int, stop: int) -> tuple[int, int]:
    """How many lines end and how many quotes are in a part of a file."""
    lines = quotes = 0
    with open_binary(location(file)) as text:
        text.seek(start)
        while start < stop:
            block = text.read(min(BLOCK_BYTES, stop - start))
            lines += block.count(b"\n")
            quotes += block.count(b'"')
            start += len(block)
    return lines, quotes


def _row_start(file: str, at: int, in_quotes: bool, csv_quotes: bool) -> tuple[int, int]:
    """Where the first row begins that begins there or later, and how many lines end between."""
    if at == 0:
        return 0, 0
    at -= 1
    lines = 0
    with open_binary(location(file)) as text:
        text.seek(at)
        for line in text:
            if csv_quotes and line.count(b'"') % 2:
                in_quotes = not in_quotes
            at += len(line)
            lines += 1
            if not (csv_quotes and in_quotes):
                break
    return at, lines


def _open_text(file: str, span: TextSpan | None, tear: Tear | None) -> tuple[Any, int]:
    """A text file, or a span of it behind the file's header, and how many lines come before."""
    if span is None:
        return open_stream(location(file), tear), 0
    is_csv = format_of(Path(file)) == "csv"
    start, lines = _row_start(file, span.start, span.in_quotes, is_csv)
    stop, _ = _row_start(file, span.stop, span.in_quotes_after, is_csv)
    with open_binary(location(file)) as text:
        header = text.read(_row_start(file, 1, False, is_csv)[0]) if is_csv and start else b""
        text.seek(start)
        return pa.BufferReader(header + text.read(max(0, stop - start))), span.lines + lines


def read_csv(file: str, mapping: Mapping, span: TextSpan | None, tear: Tear | None = None) -> Iterator[RowBatch]:
    """A CSV file with a header; every field comes as bytes, so that one bad field spoils one row only."""
    ragged: list[tuple[int, str]] = []

    def put_aside(row: Any) -> str:
        ragged.append((row.number, str(row.text)))
        return "skip"

    header, delimiter = _csv_header(file, tear)
    if not header:
        return  # an empty file, as a job writes that had nothing to write
    mapping = mapping.fitted(file, header)
    _require(header, file, mapping)
    text, lines = _open_text(file, span, tear)
    before = max(0, lines - 1)  # the header is a line
    try:
        reader = pa.csv.open_csv(
            text,
            read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter, invalid_row_handler=put_aside, newlines_in_values=True
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.binary()), null_values=[""], strings_can_be_null=True
            ),
        )
        row = before + 1
        for batch in reader:
            yield sort_out(pa.Table.from_batches([batch]), file, row, mapping)
            row += batch.num_rows
    except pa.ArrowInvalid as error:
        raise UsageError(f"{file}: not CSV: {str(error).splitlines()[0]}") from None
    if ragged:  # too many or too few fields: what is there may still be enough
        objects = [
            {name: value or None for name, value in zip(header, _fields(text, delimiter), strict=False)}
            for _, text in ragged
        ]
        yield sort_out_objects(objects, [before + number for number, _ in ragged], [], file, mapping)


def _fields(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def _csv_header(file: str, tear: Tear | None) -> tuple[list[str], str]:
    """Return the columns of a CSV file, and what parts them."""
    text = head_of(file, tear)
    delimiter = csv_delimiter(text)
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), []), delimiter


def _require(header: Collection[str], file: str, mapping: Mapping) -> None:
    for name in REQUIRED:
        if mapping.foreign(name) not in header and name not in mapping.constants:
            raise NotATrace(
                f"{file}: the column {mapping.foreign(name)!r} is missing; a trace needs {', '.join(REQUIRED)}"
            )


def read_json_lines(file: str, mapping: Mapping, span: TextSpan | None, tear: Tear | None = None) -> Iterator[RowBatch]:
    """One JSON object a line; a block with a line that does not fit is read line by line."""
    known = _json_keys(file)
    mapping = mapping.fitted(file, known)
    fields = [(mapping.foreign(name), _json_type(name, kind, mapping, known)) for name, kind in TYPES.items()]
    fields += [(mapping.foreign(name), pa.type_for_alias(kind)) for name, kind in BROKER_COLUMNS.items()]
    schema = pa.schema(fields)
    inside = any(isinstance(known.get(name.partition(".")[0]), dict) for name in schema.names if name in known)
    decode = msgspec.json.Decoder().decode
    text, before = _open_text(file, span, tear)
    row = before + 1
    for block in line_blocks(text):
        if row == 1 and not has_lines_of_records(block):
            yield _all_values(file, mapping, tear)
            return
        if row == 1:  # a key may be absent from a line, but not from all of them
            present = {name for name in schema.names if name in known or f'"{name}"'.encode() in block}
            if not mapping.events and not any(f'"{event}"'.encode() in block for event in EVENTS[:CONTROL]):
                present |= {mapping.foreign(name) for name in ("sender", "seq")}  # nobody needs them
            _require(present, file, mapping)
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        try:
            if inside:
                raise pa.ArrowInvalid("what is looked for is inside of objects")
            table = pa.json.read_json(
                pa.BufferReader(block),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
            if table.num_rows != lines:  # blank lines: count them right
                raise pa.ArrowInvalid("blank lines")
            yield sort_out(table, file, row, mapping)
        except pa.ArrowInvalid:
            yield _line_by_line(block, file, row, mapping, decode)
        row += lines
    if row == before + 1 and tear:  # in its first line, which may be a list
        yield _all_values(file, mapping, tear)


def _all_values(file: str, mapping: Mapping, tear: Tear | None) -> RowBatch:
    objects = list(values_of_text(file, tear))
    return sort_out_objects(objects, [*range(1, len(objects) + 1)], [], file, mapping)


def _json_type(name: str, kind: pa.DataType, mapping: Mapping, known: dict[str, Any]) -> pa.DataType:
    if mapping.members and name in ("member", "sender"):
        return pa.string()
    if name == "time_ns":
        return {str: pa.string(), float: pa.float64()}.get(type(known.get(mapping.foreign(name))), pa.int64())
    return pa.int64() if name in INTEGERS else kind


def _json_keys(file: str) -> dict[str, Any]:
    """Return the keys of a file's first records, those inside of objects with dots, each with a value that it has."""
    known: dict[str, Any] = {}
    for record in itertools.islice(first_json_values(head_of(file)), 100):
        known = dict(with_inner_keys("", record)) | known
    return known


def with_inner_keys(above: str, record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the keys of a record and of objects inside it, which are named with dots, and their values."""
    for key, value in record.items():
        yield above + key, value
        if isinstance(value, dict):
            yield from with_inner_keys(f"{above}{key}.", value)


def first_json_values(text: str) -> Iterator[dict[str, Any]]:
    """Return the objects with which a text begins: of lines those that can be read, of a list those that are whole."""
    if has_lines_of_records(text.encode()):
        for line in text.splitlines():
            try:
                content = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeEncodeError):
                continue
            if isinstance(content, dict):
                yield content
        return
    decode, at = json.JSONDecoder().raw_decode, _OPENING.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        try:
            content, at = decode(text, at)
        except ValueError:
            return
        if isinstance(content, dict):
            yield content
        at = _OPENING.match(text, at).end()  # type: ignore[union-attr]


def _line_by_line(block: bytes, file: str, first: int, mapping: Mapping, decode: Callable[[bytes], Any]) -> RowBatch:
    objects: list[dict[str, Any]] = []
    rows: list[int] = []
    broken: list[UnreadableRow] = []
    for number, line in enumerate(block.splitlines(), first):
        if not line.strip():
            continue
        try:
            content = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            content = None
        if isinstance(content, dict):
            objects.append(content)
            rows.append(number)
        else:
            broken.append(UnreadableRow(file, number, "not a JSON object", None, line.decode(errors="replace")))
    return sort_out_objects(objects, rows, broken, file, mapping)


def line_blocks(text: Any, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Return an open text in parts of about so many bytes, each of whole lines."""
    rest = b""
    with text as stream:
        while True:
            chunk = stream.read(block_bytes)
            if not chunk:
                break
            head, newline, tail = (rest + chunk).rpartition(b"\n")
            if newline:
                yield head + newline
            rest = tail
    if rest:
        yield rest
