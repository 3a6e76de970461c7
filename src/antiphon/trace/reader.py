"""Read a small trace into memory: Parquet, CSV or JSON lines, and the run.json beside it.

For traces that fit into memory as Python objects (tests, diagrams, the naive checker); the pipeline reads any size.
"""

from __future__ import annotations

import calendar
import csv
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.errors import UsageError
from antiphon.trace.event import Event
from antiphon.trace.files import visible_files
from antiphon.trace.run_file import RunFile, RunFiles
from antiphon.trace.schema import BROKER_COLUMNS, COLUMNS, EVENTS, REQUIRED

_ABOUT_A_MESSAGE: Final = frozenset({"send", "receive", "deliver", "discard", "stable"})
_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?\s*(Z|z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_TORN: Final = "the file cannot be read to its end"
_RANGE: Final = {"int32": 1 << 31, "int64": 1 << 63}


class Unreadable(msgspec.Struct, frozen=True):
    """A row put aside: where it is (rows count from 1), its event as far as that can be read, and why."""

    file: str
    row: int
    event: str | None
    reason: str


class Trace(msgspec.Struct, frozen=True):
    """What a path holds: the readable events by (run, member, step), the rows put aside, and each run's run.json."""

    events: list[Event]
    unreadable: list[Unreadable]
    run_files: dict[str, RunFile]  # run -> its run.json, where there is one

    @property
    def about(self) -> dict[str, dict[str, Any]]:
        """What each run's run.json says."""
        return {run: found.content for run, found in self.run_files.items()}

    @property
    def promised(self) -> frozenset[str] | None:
        """The guarantees that any of the runs promises; None where no run.json says anything."""
        if not self.run_files:
            return None
        return frozenset().union(*(found.promises for found in self.run_files.values()))

    @property
    def global_clock(self) -> frozenset[str]:
        """The runs whose members share one clock."""
        return frozenset(run for run, found in self.run_files.items() if found.global_clock)

    @property
    def ends(self) -> bool:
        """Whether every log that is whole has an `end`, as all of the trace's run.json files say."""
        return bool(self.run_files) and all(found.ends for found in self.run_files.values())


def read(path: str | Path) -> Trace:
    """Read the trace at a path: one file, or a directory with any number of them at any depth."""
    root = Path(path)
    read_rows: list[tuple[Event, str, int]] = []
    unreadable: list[Unreadable] = []
    about: dict[str, RunFile] = {}
    run_files = RunFiles(root)
    for file in _files(root):
        run_json = run_files.of(file.parent)
        for number, row in enumerate(_rows(file), start=1):
            try:
                event = _event(row)
            except ValueError as problem:
                unreadable.append(Unreadable(str(file), number, _event_name(row), str(problem)))
                continue
            read_rows.append((event, str(file), number))
            if run_json is not None:
                about[event.run] = run_json
    events, repeated = _without_repeated_steps(read_rows)
    return Trace(events, unreadable + repeated, about)


def _files(root: Path) -> list[Path]:
    """The trace files at a path, by name; what begins with . or _ is somebody's bookkeeping."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise UsageError(f"there is no trace at {root}; give a Parquet, CSV or JSON lines file, or a directory of them")
    files = sorted(visible_files(root, lambda name: _suffix(Path(name)) in _FORMATS))
    if not files:
        raise UsageError(f"{root} has no trace in it: no file ends in {', '.join(_FORMATS)}")
    return files


def _suffix(file: Path) -> str:
    """How a file's name ends, compressed or not."""
    return Path(file.stem).suffix if file.suffix == ".gz" else file.suffix


def _rows(file: Path) -> Iterator[Mapping[str, Any] | ValueError]:
    """The rows of one file by the contract's names; instead of a row that is none, what is wrong with it."""
    format_of = _FORMATS.get(_suffix(file))
    if format_of is None:
        with file.open("rb") as opened:
            if opened.read(4) != b"PAR1":
                raise UsageError(f"{file} is no trace that can be read: its name ends in none of {', '.join(_FORMATS)}")
        format_of = _parquet_rows
    return format_of(file)


def _parquet_rows(file: Path) -> Iterator[Mapping[str, Any] | ValueError]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
        columns = _known_columns(file, parquet.schema_arrow.names)
        for batch in parquet.iter_batches(columns=columns):
            scale = 1
            if "time_ns" in columns and pa.types.is_timestamp(batch["time_ns"].type):
                scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[batch["time_ns"].type.unit]
                since_1970 = batch["time_ns"].cast(pa.int64())
                batch = batch.set_column(columns.index("time_ns"), "time_ns", since_1970)
            for row in batch.to_pylist():
                yield row if scale == 1 or row["time_ns"] is None else {**row, "time_ns": row["time_ns"] * scale}
    except (pa.ArrowException, OSError) as problem:
        raise UsageError(f"{file} cannot be read as Parquet: {str(problem).splitlines()[0]}") from None


def _csv_rows(file: Path) -> Iterator[Mapping[str, Any] | ValueError]:
    try:
        text, torn = _text(file)
        header = text.partition("\n")[0]
        delimiter = next((one for one in ",;\t|" if one in header), ",")
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
        columns = _known_columns(file, rows.fieldnames or ())
        for row in rows:
            yield {name: row[name] or None for name in columns}
        if torn:
            yield ValueError(_TORN)
    except (csv.Error, UnicodeDecodeError) as problem:
        raise UsageError(f"{file} cannot be read as CSV: {problem}") from None


def _text(file: Path) -> tuple[str, bool]:
    """The text of a file, and whether it is only what can be read of it: the whole lines before that."""
    content, torn = file.read_bytes(), False
    if content.startswith(b"\x1f\x8b"):
        content, torn = _unpacked(content)
    if torn and b"\n" not in content:
        raise UsageError(f"{file} cannot be read to its end, and nothing before it")
    content = content[: content.rfind(b"\n") + 1] if torn else content
    return content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"), torn


def _unpacked(content: bytes) -> tuple[bytes, bool]:
    """What can be read of a compressed text, and whether that is not all."""
    found = b""
    while content:
        one = zlib.decompressobj(wbits=31)  # gzip's
        try:
            found += one.decompress(content)
        except zlib.error:
            return found, True
        if not one.eof:
            return found, True
        content = one.unused_data
    return found, False


def _json_rows(file: Path) -> Iterator[Mapping[str, Any] | ValueError]:
    rows: list[Mapping[str, Any] | ValueError] = []
    names: set[str] = set()
    try:
        text, torn = _text(file)
    except UnicodeDecodeError as problem:
        raise UsageError(f"{file} cannot be read as JSON lines: {problem}") from None
    if text.lstrip().startswith("["):
        text = "\n".join(json.dumps(one) for one in json.loads(text))
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            names.update(row)
            rows.append(row)
        else:
            rows.append(ValueError("the line is not a JSON object"))
    if torn:
        rows.append(ValueError(_TORN))
    if not any(isinstance(row, Mapping) and row.get("event") in _ABOUT_A_MESSAGE for row in rows):
        names |= {"sender", "seq"}  # nobody needs them
    if rows:
        _known_columns(file, names)  # a key may be absent from a line, but not from all of them
    yield from rows


_FORMATS: Final[dict[str, Callable[[Path], Iterator[Mapping[str, Any] | ValueError]]]] = {
    ".parquet": _parquet_rows,
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
}


def _known_columns(file: Path, names: Iterable[str]) -> list[str]:
    """The contract's columns among the names; the required ones must be there."""
    present = set(names)
    missing = [name for name in REQUIRED if name not in present]
    if missing:
        raise UsageError(f"{file} lacks the column {', '.join(missing)}; a trace needs {', '.join(REQUIRED)}")
    return [name for name in (*COLUMNS, *BROKER_COLUMNS) if name in present]


def _event(row: Mapping[str, Any] | ValueError) -> Event:
    """Turn a row into an event, or raise a ValueError that says why it is none."""
    if isinstance(row, ValueError):
        raise row
    values = {name: _value(name, row[name]) for name in COLUMNS if row.get(name) is not None}
    for name, kind in BROKER_COLUMNS.items():
        if row.get(name) is not None:
            values[name] = _broker_value(str(row[name]), kind)
    for name in ("run", "member", "step", "event"):
        if name not in values:
            raise ValueError(f"{name} is missing")
    event = Event(**values)
    if event.event not in EVENTS:
        raise ValueError(f"no event is called {event.event!r}")
    if event.event in _ABOUT_A_MESSAGE:
        if event.sender is None or event.seq is None:
            raise ValueError(f"a {event.event} needs sender and seq")
        if event.seq < 1:
            raise ValueError(f"seq is {event.seq}, but numbers start from 1")
    if event.event == "send" and event.sender != event.member:
        raise ValueError(f"member {event.member} cannot send a message of {event.sender}")
    return event


def _broker_value(text: str, kind: str) -> str | bool | int | None:
    """The value of a broker's column; none of them is wrong, but an offset that is no whole number is none."""
    if kind == "bool":
        return text.lower() in ("true", "1")
    if kind == "int64":
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
    return text


def _event_name(row: Mapping[str, Any] | ValueError) -> str | None:
    name = None if isinstance(row, ValueError) else row.get("event")
    return name if name in EVENTS else None


def _value(name: str, value: Any) -> Any:
    """The value as its column's type; text that reads as a number counts as one."""
    kind = COLUMNS[name]
    if kind == "string":
        if not isinstance(value, str):
            raise ValueError(f"{name} is not text: {value!r}")
        return value
    if kind == "list<int32>":
        if isinstance(value, str):
            value = [part for part in re.split(r"[\s,;\[\]]+", value) if part]
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list: {value!r}")
        return tuple(_integer(name, "int32", item) for item in value)
    if name == "time_ns" and isinstance(value, str) and (date := _DATE.fullmatch(value.strip())):
        value = _since_1970(*date.groups())
    return _integer(name, kind, value)


def _since_1970(date: str, clock: str, fraction: str | None, zone: str | None) -> int:
    """Return the nanoseconds since 1970 of ISO 8601 text; one without a zone is in UTC."""
    moment = datetime.fromisoformat(f"{date}T{clock}{zone if zone and zone[0] in '+-' else '+00:00'}")
    return calendar.timegm(moment.utctimetuple()) * 10**9 + int(((fraction or "") + 9 * "0")[:9])


def _integer(name: str, kind: str, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+(\.0*)?\s*", value):
        value = int(value.partition(".")[0])  # a table with gaps may have made it a number with a point
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is not an integer: {value!r}")
    if not -_RANGE[kind] <= value < _RANGE[kind]:
        raise ValueError(f"{name} does not fit into {kind}: {value}")
    return value


def _without_repeated_steps(rows: list[tuple[Event, str, int]]) -> tuple[list[Event], list[Unreadable]]:
    """Sort the events; of several with one (run, member, step) keep the smallest by (event, sender, seq)."""

    def order(row: tuple[Event, str, int]) -> tuple[Any, ...]:
        event = row[0]
        message = [(value is not None, value or 0) for value in (event.sender, event.seq)]  # null comes first
        return event.run, event.member, event.step, event.event, *message

    events: list[Event] = []
    repeated: list[Unreadable] = []
    for event, file, number in sorted(rows, key=order):
        last = events[-1] if events else None
        if last is not None and (last.run, last.member, last.step) == (event.run, event.member, event.step):
            reason = f"step {event.step} of member {event.member} is there twice"
            repeated.append(Unreadable(file, number, event.event, reason))
        else:
            events.append(event)
    return events, repeated
