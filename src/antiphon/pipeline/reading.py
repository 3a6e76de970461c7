"""From anyone's files to tables with the contract's columns, and a reason for every row that cannot be read."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from antiphon.errors import UsageError
from antiphon.pipeline.layout import CONTROL, NO_EVENT, SEND, Array, event_codes
from antiphon.trace.promises import has_global_clock, promised
from antiphon.trace.schema import COLUMNS, EVENTS, REQUIRED

SUFFIXES: Final = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json lines", ".ndjson": "json lines"}
BATCH_ROWS: Final = 1 << 21
BLOCK_BYTES: Final = 32 << 20

TYPES: Final[dict[str, pa.DataType]] = {
    name: pa.list_(pa.int32()) if kind.startswith("list") else pa.type_for_alias(kind) for name, kind in COLUMNS.items()
}
TRACE_SCHEMA: Final = pa.schema(list(TYPES.items()))
_INTEGER: Final = re.compile(r"\s*[+-]?[0-9]+(\.0*)?\s*")
_INTEGERS: Final = tuple(name for name, kind in TYPES.items() if pa.types.is_integer(kind))

# reasons, by code; 0 is a good row
REASONS: Final = (
    "",
    "run is null or no text",
    "member is null or no 32-bit number",
    "step is null or no number",
    "event is none of " + ", ".join(EVENTS),
    "sender is null or no 32-bit number",
    "seq is null, no number or below 1",
    "the sender of a send is not its member",
    "a second row with the same run, member and step",
    "a value is not of its column's type",
)
BAD_RUN, BAD_MEMBER, BAD_STEP, BAD_EVENT, BAD_SENDER, BAD_SEQ, BAD_SEND, DUPLICATE, BAD_TYPE = range(1, len(REASONS))


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a foreign system's log is read as a trace: the TOML file of `--mapping`."""

    columns: dict[str, str] = {}  # the contract's name -> the name in the log
    events: dict[str, str] = {}  # the event in the log -> the contract's event
    constants: dict[str, str | int] = {}  # the contract's name -> the value of every row
    own_deliveries: str = "recorded"  # or "implied": by the sends

    @property
    def renames(self) -> bool:
        """Whether rows must be rewritten, so that the files cannot be read as they lie."""
        return bool(self.columns or self.events or self.constants)


def load_mapping(path: str) -> Mapping:
    """Read a mapping file; UsageError says what is wrong with it."""
    try:
        mapping = msgspec.convert(tomllib.loads(Path(path).read_text()), Mapping)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: not a mapping file: {error}") from None
    for name in [*mapping.columns, *mapping.constants]:
        if name not in COLUMNS:
            raise UsageError(f"{path}: no trace column is called {name!r}; they are {', '.join(COLUMNS)}")
    for event in mapping.events.values():
        if event not in EVENTS:
            raise UsageError(f"{path}: no event is called {event!r}; they are {', '.join(EVENTS)}")
    if mapping.own_deliveries not in ("recorded", "implied"):
        raise UsageError(f"{path}: own_deliveries is 'recorded' or 'implied', not {mapping.own_deliveries!r}")
    return mapping


def find_files(trace: str) -> list[str]:
    """The event files of a trace, sorted; UsageError if there is none."""
    root = Path(trace)
    if not root.exists():
        raise UsageError(f"{trace}: no such file or directory")
    if root.is_file():
        return [str(root.absolute())]
    found = sorted(
        str(path.absolute())
        for path in root.rglob("*")
        if format_of(path)
        and path.is_file()
        and not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
    )
    if not found:
        raise UsageError(f"{trace}: no events in this directory; expected files named *{', *'.join(SUFFIXES)}")
    return found


def format_of(path: Path) -> str | None:
    """The format that a file's name says, or None."""
    suffixes = path.suffixes
    name = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else path.suffix
    return SUFFIXES.get(name.lower())


@functools.lru_cache(maxsize=4096)
def run_file(folder: str, root: str) -> tuple[frozenset[str], bool] | None:
    """What the nearest run.json at or above a folder promises, and whether its runs have one global clock."""
    path = Path(folder) / "run.json"
    if path.is_file():
        try:
            content = json.loads(path.read_text())
        except (ValueError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: not JSON: {error}") from None
        if not isinstance(content, dict):
            raise UsageError(f"{path}: expected one JSON object")
        return promised(content), has_global_clock(content)
    if folder == root or Path(folder).parent == Path(folder):
        return None
    return run_file(str(Path(folder).parent), root)


class Rubbish(msgspec.Struct, frozen=True):
    """A row that cannot be read."""

    file: str
    row: int | None  # its place in the file, from 1
    reason: str
    event: str | None  # its event, where that can be read
    content: str


class Batch(msgspec.Struct):
    """Some rows of a file: the good ones typed, the bad ones with their reasons."""

    good: pa.Table
    bad: list[Rubbish]


def open_parquet_input(file: str, mapping: Mapping) -> pq.ParquetFile:
    """An input Parquet file whose columns have the contract's types; UsageError otherwise."""
    try:
        source = pq.ParquetFile(
            file, memory_map=True, read_dictionary=[_foreign(mapping, "run"), _foreign(mapping, "event")]
        )
    except pa.ArrowInvalid:
        raise UsageError(f"{file}: not a Parquet file") from None
    schema = source.schema_arrow
    for name, kind in TYPES.items():
        foreign = _foreign(mapping, name)
        if foreign not in schema.names:
            if name in REQUIRED and name not in mapping.constants:
                raise UsageError(f"{file}: the column {foreign!r} is missing; a trace needs {', '.join(REQUIRED)}")
        elif not _fits(schema.field(foreign).type, kind):
            raise UsageError(
                f"{file}: the column {foreign!r} is {schema.field(foreign).type}, expected {COLUMNS[name]}"
            )
    return source


def _foreign(mapping: Mapping, name: str) -> str:
    return mapping.columns.get(name, name)


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_list(wanted):
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        return bool(listed and pa.types.is_integer(found.value_type))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found) or pa.types.is_floating(found))
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


class Span(msgspec.Struct, frozen=True):
    """Part of a text file: the rows that begin between two places. Before each place some rows and quotes lie."""

    start: int
    stop: int
    lines: int  # that end before `start`, as far as is known without the byte before it
    in_quotes: bool  # whether the byte before `start` is in quotes, so that a line may end there and a row does not
    in_quotes_after: bool


def read_batches(
    file: str, row_groups: list[int] | None, mapping: Mapping, span: Span | None = None
) -> Iterator[Batch]:
    """All rows of a file (or of some of its row groups, or of a span), a bounded number at a time."""
    kind = format_of(Path(file)) or "parquet"
    if kind == "parquet":
        source = open_parquet_input(file, mapping)
        wanted = [foreign for name in COLUMNS if (foreign := _foreign(mapping, name)) in source.schema_arrow.names]
        row = 1
        if row_groups is not None:
            row += sum(source.metadata.row_group(group).num_rows for group in range(row_groups[0]))
        for batch in source.iter_batches(BATCH_ROWS, row_groups=row_groups, columns=wanted, use_threads=False):
            yield _sorted_out(pa.Table.from_batches([batch]), file, row, mapping)
            row += batch.num_rows
    elif kind == "csv":
        yield from _read_csv(file, mapping, span)
    else:
        yield from _read_json_lines(file, mapping, span)


def can_be_cut(path: Path) -> bool:
    """Whether a file is text of which a part can be read by itself."""
    return format_of(path) in ("csv", "json lines") and path.suffix != ".gz"


def count_marks(file: str, start: int, stop: int) -> tuple[int, int]:
    """How many lines end and how many quotes are in a part of a file."""
    lines = quotes = 0
    with open(file, "rb") as text:
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
    with open(file, "rb") as text:
        text.seek(at)
        for line in text:
            if csv_quotes and line.count(b'"') % 2:
                in_quotes = not in_quotes
            at += len(line)
            lines += 1
            if not (csv_quotes and in_quotes):
                break
    return at, lines


def _open_text(file: str, span: Span | None) -> tuple[Any, int]:
    """A text file, or a span of it behind the file's header, and how many lines come before."""
    if span is None:
        return pa.input_stream(file, compression="detect"), 0
    is_csv = format_of(Path(file)) == "csv"
    start, lines = _row_start(file, span.start, span.in_quotes, is_csv)
    stop, _ = _row_start(file, span.stop, span.in_quotes_after, is_csv)
    with open(file, "rb") as text:
        header = text.read(_row_start(file, 1, False, is_csv)[0]) if is_csv and start else b""
        text.seek(start)
        return pa.BufferReader(header + text.read(max(0, stop - start))), span.lines + lines


def _sorted_out(raw: pa.Table, file: str, first_row: int, mapping: Mapping) -> Batch:
    """Type the rows and part the good from the bad."""
    table, reason = _typed(raw, mapping)
    bad = np.flatnonzero(reason)
    if not len(bad):
        return Batch(table, [])
    contents = raw.take(pa.array(bad)).to_pylist()
    events = [event if event in EVENTS else None for event in table["event"].take(pa.array(bad)).to_pylist()]
    rubbish = [
        Rubbish(
            file,
            first_row + int(at),
            REASONS[reason[at]],
            event,
            json.dumps(content, default=_readable, ensure_ascii=False),
        )
        for at, content, event in zip(bad, contents, events, strict=True)
    ]
    return Batch(table.filter(pa.array(reason == 0)), rubbish)


def _readable(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _typed(raw: pa.Table, mapping: Mapping) -> tuple[pa.Table, Array]:
    """The contract's columns in their types, and each row's reason to be put aside (0 if none)."""
    rows = raw.num_rows
    reason = np.zeros(rows, np.uint8)

    def blame(wrong: Array, code: int) -> None:
        reason[wrong & (reason == 0)] = code

    columns: dict[str, pa.Array] = {}
    unreadable: dict[str, Array] = {}
    for name, kind in TYPES.items():
        foreign = _foreign(mapping, name)
        if name in mapping.constants:
            columns[name] = pa.array([mapping.constants[name]] * rows, kind)
        elif foreign not in raw.column_names:
            columns[name] = pa.nulls(rows, kind)
        else:
            column = raw[foreign].combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            columns[name], unreadable[name] = _convert(column, kind)
    if mapping.events:
        columns["event"] = _renamed(columns["event"], mapping.events)
    code = event_codes(columns["event"])
    event_null = code == NO_EVENT

    def null(name: str) -> Array:
        result: Array = pc.is_null(columns[name]).to_numpy(zero_copy_only=False)
        return result

    blame(null("run"), BAD_RUN)
    blame(null("member"), BAD_MEMBER)
    blame(null("step"), BAD_STEP)
    blame(event_null, BAD_EVENT)
    about_message = code < CONTROL  # send, receive, deliver, stable, discard
    blame(about_message & null("sender"), BAD_SENDER)
    seq = pc.fill_null(columns["seq"], 0).to_numpy(zero_copy_only=False)
    blame(about_message & (seq < 1), BAD_SEQ)
    sender = pc.fill_null(columns["sender"], 0).to_numpy(zero_copy_only=False)
    member = pc.fill_null(columns["member"], 0).to_numpy(zero_copy_only=False)
    blame((code == SEND) & (sender != member), BAD_SEND)
    for wrong in unreadable.values():
        blame(wrong, BAD_TYPE)
    return pa.table(columns, schema=_dictionary_schema(columns)), reason


def _dictionary_schema(columns: dict[str, pa.Array]) -> pa.Schema:
    return pa.schema([(name, columns[name].type) for name in TYPES])


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
    lost = pc.and_(pc.is_null(typed), pc.is_valid(column)).to_numpy(zero_copy_only=False)
    return typed, lost


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
        parsed = [_parse_integer(word) for word in re.split(r"[\s,;\[\]]+", value) if word]
    elif isinstance(value, list):
        parsed = [_parse_integer(word) for word in value]
    else:
        return None
    numbers = [number for number in parsed if number is not None and -(1 << 31) <= number < 1 << 31]
    return numbers if len(numbers) == len(parsed) else None


def _read_csv(file: str, mapping: Mapping, span: Span | None) -> Iterator[Batch]:
    """A CSV file with a header; every field comes as bytes, so that one bad field spoils one row only."""
    ragged: list[tuple[int, str]] = []

    def put_aside(row: Any) -> str:
        ragged.append((row.number, str(row.text)))
        return "skip"

    header = _csv_header(file)
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
            yield _sorted_out(pa.Table.from_batches([batch]), file, row, mapping)
            row += batch.num_rows
    except pa.ArrowInvalid as error:
        raise UsageError(f"{file}: not CSV: {str(error).splitlines()[0]}") from None
    if ragged:  # too many or too few fields: what is there may still be enough
        objects = [
            {name: value or None for name, value in zip(header, next(csv.reader([text]), []), strict=False)}
            for _, text in ragged
        ]
        yield _sorted_out_objects(objects, [before + number for number, _ in ragged], [], file, mapping)


def _csv_header(file: str) -> list[str]:
    with pa.input_stream(file, compression="detect") as stream:
        text = io.TextIOWrapper(io.BytesIO(stream.read(1 << 20)), encoding="utf-8-sig", errors="replace", newline="")
    return next(csv.reader(text), [])


def _require(header: Collection[str], file: str, mapping: Mapping) -> None:
    for name in REQUIRED:
        if _foreign(mapping, name) not in header and name not in mapping.constants:
            raise UsageError(
                f"{file}: the column {_foreign(mapping, name)!r} is missing; a trace needs {', '.join(REQUIRED)}"
            )


def _read_json_lines(file: str, mapping: Mapping, span: Span | None) -> Iterator[Batch]:
    """One JSON object a line; a block with a line that does not fit is read line by line."""
    schema = pa.schema(
        [(_foreign(mapping, name), pa.int64() if name in _INTEGERS else kind) for name, kind in TYPES.items()]
    )
    decode = msgspec.json.Decoder().decode
    text, before = _open_text(file, span)
    row = before + 1
    for block in _line_blocks(text):
        if row == 1:  # a key may be absent from a line, but not from all of them
            present = {name for name in schema.names if f'"{name}"'.encode() in block}
            if not mapping.events and not any(f'"{event}"'.encode() in block for event in EVENTS[:CONTROL]):
                present |= {_foreign(mapping, name) for name in ("sender", "seq")}  # nobody needs them
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
            yield _sorted_out(table, file, row, mapping)
        except pa.ArrowInvalid:
            yield _line_by_line(block, file, row, mapping, decode)
        row += lines


def _line_by_line(block: bytes, file: str, first: int, mapping: Mapping, decode: Callable[[bytes], Any]) -> Batch:
    objects: list[dict[str, Any]] = []
    rows: list[int] = []
    broken: list[Rubbish] = []
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
            broken.append(Rubbish(file, number, "not a JSON object", None, line.decode(errors="replace")))
    return _sorted_out_objects(objects, rows, broken, file, mapping)


def _sorted_out_objects(
    objects: list[dict[str, Any]], rows: list[int], broken: list[Rubbish], file: str, mapping: Mapping
) -> Batch:
    """Type rows that come as plain objects and part the good from the bad."""
    table, reason = _typed_objects(objects, mapping)
    for at in np.flatnonzero(reason).tolist():
        event = table["event"][at].as_py()
        text = json.dumps(objects[at], default=_readable, ensure_ascii=False)
        broken.append(Rubbish(file, rows[at], REASONS[reason[at]], event if event in EVENTS else None, text))
    return Batch(table.filter(pa.array(reason == 0)), broken)


def _typed_objects(objects: list[dict[str, Any]], mapping: Mapping) -> tuple[pa.Table, Array]:
    columns: dict[str, pa.Array] = {}
    wrong = np.zeros(len(objects), bool)
    for name, kind in TYPES.items():
        values = [content.get(_foreign(mapping, name)) for content in objects]
        if pa.types.is_list(kind):
            parsed: list[Any] = [None if value is None else _parse_list(value) for value in values]
        elif pa.types.is_integer(kind):
            parsed = [_parse_integer(value) for value in values]
            half = 1 << (kind.bit_width - 1)
            parsed = [value if value is not None and -half <= value < half else None for value in parsed]
        else:
            parsed = [_parse_text(value) for value in values]
        columns[_foreign(mapping, name)] = pa.array(parsed, kind)
        lost = [value is not None and good is None for value, good in zip(values, parsed, strict=True)]
        wrong |= np.array(lost, bool)
    table, reason = _typed(pa.table(columns), mapping)
    reason[wrong & (reason == 0)] = BAD_TYPE
    return table, reason


def _line_blocks(text: Any) -> Iterator[bytes]:
    rest = b""
    with text as stream:
        while True:
            chunk = stream.read(BLOCK_BYTES)
            if not chunk:
                break
            head, newline, tail = (rest + chunk).rpartition(b"\n")
            if newline:
                yield head + newline
            rest = tail
    if rest:
        yield rest
