"""The records of a foreign log's file: JSON lines, CSV, Parquet, EDN histories, OpenTelemetry exports.

Where the records of a part of a file can be a table they come as one, so that nothing is done for each of them.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign.bulk import LogRecord, RecordTable, keys_read
from antiphon.pipeline.ingesting.foreign.form import LogForm
from antiphon.pipeline.ingesting.foreign.jepsen import read_history
from antiphon.pipeline.ingesting.foreign.spans import read_spans
from antiphon.pipeline.reading.text import line_blocks
from antiphon.pipeline.store.location import location, open_parquet, open_stream

Records = RecordTable | list[LogRecord]

_BLOCK_BYTES: Final = 4 << 20  # a line that does not fit makes one such part slow
_BATCH_ROWS: Final = 100_000
_ARROW_TYPES: Final = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def read_records(file: str, preset: str, form: LogForm) -> Iterator[Records]:
    """Return the records of a file, as it is written under a preset (none: by the file's name)."""
    if preset == "otlp":
        return read_spans(file, form)
    if preset == "jepsen":
        return _singly(read_history(_content(file).decode(errors="replace"), file))
    name = file.removesuffix(".gz").lower()
    if name.endswith(".csv"):
        return _csv(file)
    if name.endswith(".parquet"):
        return _parquet(file)
    return _json(file, form)


def _content(file: str) -> bytes:
    with open_stream(location(file)) as stream:
        content: bytes = stream.read()
    return content


def _singly(records: Iterator[dict[str, Any]], first: int = 1) -> Iterator[list[LogRecord]]:
    numbered = (LogRecord(row, record) for row, record in enumerate(records, first))
    while chunk := list(itertools.islice(numbered, _BATCH_ROWS)):
        yield chunk


def _json(file: str, form: LogForm) -> Iterator[Records]:
    row = 1
    for block in line_blocks(open_stream(location(file)), _BLOCK_BYTES):
        lines = block.splitlines()
        yield _json_table(block, lines, row, form) or _json_records(lines, row)
        row += len(lines)


def _json_records(lines: list[bytes], first: int) -> list[LogRecord]:
    decode = msgspec.json.Decoder().decode
    return [_json_record(line, row, decode) for row, line in enumerate(lines, first) if line.strip()]


def _json_record(line: bytes, row: int, decode: Any) -> LogRecord:
    try:
        content = decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = None
    text = line.decode(errors="replace")
    return (
        LogRecord(row, content, text) if isinstance(content, dict) else LogRecord(row, None, text, "not a JSON object")
    )


def _json_table(block: bytes, lines: list[bytes], first: int, form: LogForm) -> RecordTable | None:
    """Return a part of a file as a table; None if its lines are not alike in the types of what they have."""
    decode = msgspec.json.Decoder().decode
    fields: dict[str, pa.DataType] = {}
    for key in keys_read(form):
        at = block.find(f'"{key}"'.encode())
        if at < 0:
            continue
        line = block[block.rfind(b"\n", 0, at) + 1 : block.find(b"\n", at) % (len(block) + 1)]
        value = (_json_record(line, 0, decode).content or {}).get(key, "")
        kind = _ARROW_TYPES.get(type(value), pa.string() if value is None else None)
        if kind is None:
            return None
        fields[key] = kind
    try:
        table = pa.json.read_json(
            pa.BufferReader(block),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if len(table) != len(lines):  # blank lines
        return None
    return RecordTable(table, first, lambda at: _json_record(lines[at], first + at, decode))


def _csv(file: str) -> Iterator[Records]:
    text = _content(file)
    table = _csv_table(text)
    if table is not None:
        for start in range(0, len(table), _BATCH_ROWS):
            yield _as_table(table.slice(start, _BATCH_ROWS), start + 1)
        return
    yield from _singly(csv_records(io.StringIO(text.decode("utf-8-sig", errors="replace"), newline="")))


def csv_records(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file by the names of its columns, without what stands beyond the last of them."""
    for record in csv.DictReader(lines):
        yield {key: value for key, value in record.items() if key is not None}


def _csv_table(text: bytes) -> pa.Table | None:
    """Return a CSV file as a table of texts; None where its lines are not alike."""
    header = next(csv.reader([text[: 1 << 20].decode("utf-8-sig", errors="replace").partition("\n")[0]]), [])
    if len(set(header)) != len(header):
        return None
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), null_values=[""], strings_can_be_null=True
            ),
        )
    except pa.ArrowInvalid:
        return None
    return table if all(pa.types.is_string(field.type) for field in table.schema) else None


def _as_table(table: pa.Table, first: int) -> RecordTable:
    return RecordTable(table, first, lambda at: LogRecord(first + at, table.slice(at, 1).to_pylist()[0]))


def _parquet(file: str) -> Iterator[Records]:
    try:
        batches = open_parquet(location(file)).iter_batches(_BATCH_ROWS)
    except (pa.ArrowInvalid, OSError):
        raise UsageError(f"{Path(file).name}: not a Parquet file") from None
    row = 1
    for batch in batches:
        yield _as_table(pa.Table.from_batches([batch]), row)
        row += len(batch)
