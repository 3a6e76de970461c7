"""The records of a foreign log's file: JSON lines, CSV, Parquet, EDN histories, OpenTelemetry exports.

Where the records of a part of a file can be a table they come as one, so that nothing is done for each of them.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign.bulk import LogRecord, RecordTable, keys_read
from antiphon.pipeline.ingesting.foreign.form import LogForm
from antiphon.pipeline.ingesting.foreign.jepsen import NO_MESSAGE, read_history
from antiphon.pipeline.ingesting.foreign.spans import read_spans
from antiphon.pipeline.reading.plain_columns import plain_table
from antiphon.pipeline.reading.text import (
    csv_delimiter,
    has_lines_of_records,
    line_blocks,
    text_of,
    values_of_text,
    with_inner_keys,
)
from antiphon.pipeline.store.files import is_csv, plain_name
from antiphon.pipeline.store.location import (
    WITHOUT_IT,
    cannot_be_read,
    damage_named,
    location,
    open_parquet,
    open_stream,
)
from antiphon.pipeline.store.torn import Tear

Records = RecordTable | list[LogRecord]

_BLOCK_BYTES: Final = 4 << 20  # a line that does not fit makes one such part slow
_BATCH_ROWS: Final = 100_000
_ARROW_TYPES: Final = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def read_records(file: str, preset: str, form: LogForm, *, whole: bool = False) -> Iterator[Records]:
    """Return the records of a file, as it is written under a preset (none: by the file's name).

    Of a compressed text that is cut short or damaged all that can be read, unless it is to be whole.
    """
    tear, last = Tear(), 0
    with damage_named(file):
        for found in _records(file, preset, form, None if whole else tear):
            if isinstance(found, RecordTable):
                last = found.first_row + len(found.table)
            elif found:
                last = found[-1].row + 1
            yield found
    if tear and not last:
        raise cannot_be_read(file, tear.why)
    if tear:
        yield [LogRecord(last, None, tear.rest.decode(errors="replace"), tear.reason)]


def _records(file: str, preset: str, form: LogForm, tear: Tear | None) -> Iterator[Records]:
    if preset == "otlp":
        return read_spans(file, form, tear)
    if preset == "jepsen":
        return _batched(_operations(read_history(_content(file, tear, all_of_it=True).decode(errors="replace"), file)))
    name, keys = plain_name(file).lower(), LogKeys(keys_read(form))
    if is_csv(file):
        return _csv(file, keys, tear)
    if name.endswith(".parquet"):
        return _parquet(file, keys)
    return _json(file, keys, form, tear)


class LogKeys:
    """The keys that a form looks for; a log may write them with other capitals or marks, or have them inside objects.

    `clientId`, `Client_ID` and `client-id` are `client_id`, unless a log has several of them.
    """

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self._known = frozenset(keys)
        self._by_lower = {key.lower(): key for key in reversed(keys)}
        self._by_letters = {_letters(key): key for key in reversed(keys)}

    def name(self, key: str) -> str:
        """Return the key that is looked for, where this is one in other capitals; else itself."""
        if key in self._known:
            return key
        return self._by_lower.get(key.strip().lower()) or self._by_letters.get(_letters(key), key)

    def names(self, keys: list[str]) -> list[str]:
        """Return the same of several keys, which stay different: one that is written exactly so keeps its name."""
        names = [self.name(key) for key in keys]
        return [name if names.count(name) == 1 or name == key else key for name, key in zip(names, keys, strict=True)]

    def renamed(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record under the keys that are looked for."""
        renamed = dict(zip(self.names([*record]), record.values(), strict=True))
        for key, value in record.items():
            for inner, found in with_inner_keys(f"{key}.", value) if isinstance(value, dict) else ():
                if (wanted := self._by_letters.get(_letters(inner))) is not None and wanted not in renamed:
                    renamed[wanted] = found
        return renamed

    def may_be_in(self, column: str) -> bool:
        """Say whether a table's column has what is looked for, or may have it inside."""
        first = column.strip().lower()
        return any(key == first or key.startswith(f"{first}.") for key in self._by_lower)

    def are_columns(self, record: dict[str, Any]) -> bool:
        """Say whether a record has what is looked for under these keys, and none of it inside of an object."""
        inner = any(isinstance(record.get(key.partition(".")[0]), dict) for key in self.keys if "." in key)
        return not inner and self.names([*record]) == [*record]


def _letters(key: str) -> str:
    return "".join(one for one in key.lower() if one.isalnum())


def _content(file: str, tear: Tear | None, *, all_of_it: bool = False) -> bytes:
    with open_stream(location(file), tear) as stream:
        content: bytes = stream.read()
    return content + tear.rest if tear and all_of_it else content


def _singly(records: Iterator[dict[str, Any]]) -> Iterator[list[LogRecord]]:
    return _batched(LogRecord(row, record) for row, record in enumerate(records, 1))


def _batched(records: Iterator[LogRecord]) -> Iterator[list[LogRecord]]:
    while chunk := list(itertools.islice(records, _BATCH_ROWS)):
        yield chunk


def _operations(records: Iterator[dict[str, Any]]) -> Iterator[LogRecord]:
    """Return the records of a history; what is none says why."""
    for row, record in enumerate(records, 1):
        why = record.pop(NO_MESSAGE, "")
        yield LogRecord(row, None, str(record), why) if why else LogRecord(row, record)


def _json(file: str, keys: LogKeys, form: LogForm, tear: Tear | None) -> Iterator[Records]:
    row, lines_are = 1, [re.compile(one) for one in form.lines]
    for block in line_blocks(open_stream(location(file), tear), _BLOCK_BYTES):
        if row == 1:
            block = block.removeprefix(codecs.BOM_UTF8)
            as_text = bool(lines_are) and not block.lstrip().startswith((b"{", b"["))
            if not as_text and not has_lines_of_records(block):
                yield from _singly(keys.renamed(record) for record in values_of_text(file, tear))
                return
        lines = block.splitlines()
        if as_text:
            found = _text_records(lines, row, lines_are)
            yield found if form.other_lines == "quarantined" else [one for one in found if one.content is not None]
            row += len(lines)
            continue
        yield _json_table(block, lines, row, keys) or _json_records(lines, row, keys)
        row += len(lines)
    if row == 1 and tear:  # in its first line, which may be a list
        yield from _singly(keys.renamed(record) for record in values_of_text(file, tear))


def _text_records(lines: list[bytes], first: int, lines_are: list[re.Pattern[str]]) -> list[LogRecord]:
    known = " nor ".join(one.pattern for one in lines_are)
    remedy = "`lines` in a mapping file says another, other_lines = 'ignored' that such are nothing"
    unlike = f"a line that is not like {known} ({remedy})"
    found = []
    for row, line in enumerate(lines, first):
        text = line.decode(errors="replace")
        match = next((match for one in lines_are if (match := one.search(text)) is not None), None)
        if match is not None:
            found.append(LogRecord(row, match.groupdict(), text))
        elif text.strip():
            found.append(LogRecord(row, None, text, unlike))
    return found


def _json_records(lines: list[bytes], first: int, keys: LogKeys) -> list[LogRecord]:
    decode = msgspec.json.Decoder().decode
    found = [_json_record(line, row, decode) for row, line in enumerate(lines, first) if line.strip()]
    return [one if one.content is None else one._replace(content=keys.renamed(one.content)) for one in found]


def _json_record(line: bytes, row: int, decode: Any) -> LogRecord:
    try:
        content = decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = None
    text = line.decode(errors="replace")
    return (
        LogRecord(row, content, text) if isinstance(content, dict) else LogRecord(row, None, text, "not a JSON object")
    )


def _json_table(block: bytes, lines: list[bytes], first: int, keys: LogKeys) -> RecordTable | None:
    """Return a part of a file as a table; None if its lines are not alike in the types of what they have."""
    decode = msgspec.json.Decoder().decode
    if not keys.are_columns(_json_record(lines[0], first, decode).content or {}):
        return None
    fields: dict[str, pa.DataType] = {}
    for key in keys.keys:
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


def _csv(file: str, keys: LogKeys, tear: Tear | None) -> Iterator[Records]:
    content = _content(file, tear)
    table = _csv_table(content)
    if table is not None:
        table = table.rename_columns(keys.names(table.column_names))
        for start in range(0, len(table), _BATCH_ROWS):
            yield _as_table(table.slice(start, _BATCH_ROWS), start + 1)
        return
    yield from _singly(keys.renamed(record) for record in csv_records(text_of(content)))


def csv_records(text: str) -> Iterator[dict[str, Any]]:
    """Return the rows of a CSV file, each as a record."""
    for record in csv.DictReader(io.StringIO(text, newline=""), delimiter=csv_delimiter(text)):
        yield {key: value for key, value in record.items() if key is not None}


def _csv_table(content: bytes) -> pa.Table | None:
    """Return a CSV file as a table of texts; None where its lines are not alike."""
    first = text_of(content[: 1 << 20]).partition("\n")[0]
    delimiter = csv_delimiter(first)
    header = next(csv.reader([first], delimiter=delimiter), [])
    if len(set(header)) != len(header):
        return None
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(content),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), null_values=[""], strings_can_be_null=True
            ),
        )
    except pa.ArrowInvalid:
        return None
    return table if all(pa.types.is_string(field.type) for field in table.schema) else None


def _as_table(table: pa.Table, first: int) -> RecordTable:
    return RecordTable(table, first, lambda at: LogRecord(first + at, table.slice(at, 1).to_pylist()[0]))


def _parquet(file: str, keys: LogKeys) -> Iterator[Records]:
    try:
        batches = open_parquet(location(file)).iter_batches(_BATCH_ROWS)
    except (pa.ArrowInvalid, OSError):
        raise UsageError(f"{file}: not a Parquet file; {WITHOUT_IT}") from None
    row = 1
    for batch in batches:
        table = plain_table(pa.Table.from_batches([batch]), keys.keys)
        yield _as_table(table.rename_columns(keys.names(table.column_names)), row)
        row += len(batch)
