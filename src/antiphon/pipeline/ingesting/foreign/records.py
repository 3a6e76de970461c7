"""The records of a foreign log's file: JSON lines, CSV, Parquet, EDN histories, OpenTelemetry exports."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign.jepsen import read_history
from antiphon.pipeline.ingesting.foreign.otlp import read_spans
from antiphon.pipeline.store.location import location, open_parquet, open_stream


class LogRecord(NamedTuple):
    """One record: its keys and values or, where it has none, why."""

    row: int
    content: dict[str, Any] | None
    line: str = ""  # as it was written, where it was a line
    reason: str = ""

    @property
    def text(self) -> str:
        """The record, to be shown."""
        return self.line or json.dumps(self.content, default=str, ensure_ascii=False)


def read_records(file: str, preset: str) -> Iterator[LogRecord]:
    """Return the records of a file, as it is written under a preset (none: by the file's name)."""
    if preset == "otlp":
        return _plain(read_spans(_content(file), file))
    if preset == "jepsen":
        return _plain(read_history(_content(file).decode(errors="replace"), file))
    name = file.removesuffix(".gz").lower()
    if name.endswith(".csv"):
        return _csv(file)
    if name.endswith(".parquet"):
        return _parquet(file)
    return _json(file)


def _content(file: str) -> bytes:
    with open_stream(location(file)) as stream:
        content: bytes = stream.read()
    return content


def _plain(records: Iterator[dict[str, Any]]) -> Iterator[LogRecord]:
    for row, record in enumerate(records, 1):
        yield LogRecord(row, record)


def _json(file: str) -> Iterator[LogRecord]:
    decode = msgspec.json.Decoder().decode
    for row, line in enumerate(_content(file).splitlines(), 1):
        if not line.strip():
            continue
        try:
            content = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            content = None
        text = line.decode(errors="replace")
        if isinstance(content, dict):
            yield LogRecord(row, content, text)
        else:
            yield LogRecord(row, None, text, "not a JSON object")


def _csv(file: str) -> Iterator[LogRecord]:
    lines = csv.DictReader(io.StringIO(_content(file).decode("utf-8-sig", errors="replace"), newline=""))
    for row, record in enumerate(lines, 1):
        record.pop(None, None)
        yield LogRecord(row, record)


def _parquet(file: str) -> Iterator[LogRecord]:
    try:
        batches = open_parquet(location(file)).iter_batches()
    except (pa.ArrowInvalid, OSError):
        raise UsageError(f"{Path(file).name}: not a Parquet file") from None
    row = 0
    for batch in batches:
        for record in batch.to_pylist():
            row += 1
            yield LogRecord(row, record)
