"""CSV and JSON lines, whole or in spans, so that many tasks can read one large text."""

from __future__ import annotations

import csv
import io
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
from antiphon.pipeline.store.files import format_of, plain_name
from antiphon.pipeline.store.location import location, open_binary, open_stream
from antiphon.trace.schema import BROKER_COLUMNS, EVENTS, REQUIRED

BLOCK_BYTES: Final = 32 << 20


class TextSpan(msgspec.Struct, frozen=True):
    """Part of a text file: the rows that begin between two positions, with how many rows and quotes lie before each."""

    start: int
    stop: int
    lines: int  # that end before `start`, as far as is known without the byte before it
    in_quotes: bool  # whether the byte before `start` is in quotes, so that a line may end there and a row does not
    in_quotes_after: bool


def can_be_cut(path: Path) -> bool:
    """Whether a file is text of which a part can be read by itself."""
    return format_of(path) in ("csv", "json lines") and plain_name(path.name) == path.name


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


def _open_text(file: str, span: TextSpan | None) -> tuple[Any, int]:
    """A text file, or a span of it behind the file's header, and how many lines come before."""
    if span is None:
        return open_stream(location(file)), 0
    is_csv = format_of(Path(file)) == "csv"
    start, lines = _row_start(file, span.start, span.in_quotes, is_csv)
    stop, _ = _row_start(file, span.stop, span.in_quotes_after, is_csv)
    with open_binary(location(file)) as text:
        header = text.read(_row_start(file, 1, False, is_csv)[0]) if is_csv and start else b""
        text.seek(start)
        return pa.BufferReader(header + text.read(max(0, stop - start))), span.lines + lines


def read_csv(file: str, mapping: Mapping, span: TextSpan | None) -> Iterator[RowBatch]:
    """A CSV file with a header; every field comes as bytes, so that one bad field spoils one row only."""
    ragged: list[tuple[int, str]] = []

    def put_aside(row: Any) -> str:
        ragged.append((row.number, str(row.text)))
        return "skip"

    header = _csv_header(file)
    if not header:
        return  # an empty file, as a job writes that had nothing to write
    mapping = mapping.fitted(file, header)
    _require(header, file, mapping)
    text, lines = _open_text(file, span)
    before = max(0, lines - 1)  # the header is a line
    try:
        reader = pa.csv.open_csv(
            text,
            read_options=pa.csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            parse_options=pa.csv.ParseOptions(invalid_row_handler=put_aside, newlines_in_values=True),
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
            {name: value or None for name, value in zip(header, next(csv.reader([text]), []), strict=False)}
            for _, text in ragged
        ]
        yield sort_out_objects(objects, [before + number for number, _ in ragged], [], file, mapping)


def _csv_header(file: str) -> list[str]:
    with open_stream(location(file)) as stream:
        text = io.TextIOWrapper(io.BytesIO(stream.read(1 << 20)), encoding="utf-8-sig", errors="replace", newline="")
    return next(csv.reader(text), [])


def _require(header: Collection[str], file: str, mapping: Mapping) -> None:
    for name in REQUIRED:
        if mapping.foreign(name) not in header and name not in mapping.constants:
            raise NotATrace(
                f"{file}: the column {mapping.foreign(name)!r} is missing; a trace needs {', '.join(REQUIRED)}"
            )


def read_json_lines(file: str, mapping: Mapping, span: TextSpan | None) -> Iterator[RowBatch]:
    """One JSON object a line; a block with a line that does not fit is read line by line."""
    mapping = mapping.fitted(file, _json_keys(file))
    fields = [(mapping.foreign(name), _json_type(name, kind, mapping)) for name, kind in TYPES.items()]
    fields += [(mapping.foreign(name), pa.type_for_alias(kind)) for name, kind in BROKER_COLUMNS.items()]
    schema = pa.schema(fields)
    decode = msgspec.json.Decoder().decode
    text, before = _open_text(file, span)
    row = before + 1
    for block in line_blocks(text):
        if row == 1:  # a key may be absent from a line, but not from all of them
            present = {name for name in schema.names if f'"{name}"'.encode() in block}
            if not mapping.events and not any(f'"{event}"'.encode() in block for event in EVENTS[:CONTROL]):
                present |= {mapping.foreign(name) for name in ("sender", "seq")}  # nobody needs them
            _require(present, file, mapping)
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        try:
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


def _json_type(name: str, kind: pa.DataType, mapping: Mapping) -> pa.DataType:
    if mapping.members and name in ("member", "sender"):
        return pa.string()
    return pa.int64() if name in INTEGERS else kind


def _json_keys(file: str) -> set[str]:
    """Return the keys of a file's first lines."""
    with open_stream(location(file)) as stream:
        lines = stream.read(1 << 18).splitlines()[:100]
    keys: set[str] = set()
    for line in lines:
        try:
            content = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        keys |= content.keys() if isinstance(content, dict) else set()
    return keys


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
