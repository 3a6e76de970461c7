"""Records of foreign logs as whole columns: the rows, reasons and places are those of one record after the other."""

from __future__ import annotations

import csv
import json
import random
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting import foreign
from antiphon.pipeline.ingesting.foreign import otlp, span_texts, spans
from antiphon.pipeline.ingesting.foreign.bulk import LogRecord, RecordTable
from antiphon.pipeline.ingesting.foreign.form import LogForm, NoRow, form_of
from antiphon.pipeline.ingesting.foreign.records import read_records
from antiphon.pipeline.reading.mapping import Mapping

Row = tuple[Any, ...]
Rows = tuple[list[Row], list[tuple[int, str, str | None]]]  # good ones, and (row, reason, event)


def singly(form: LogForm, records: Iterable[LogRecord]) -> Rows:
    """What the definition says, record by record."""
    good: list[Row] = []
    bad = []
    for record in records:
        try:
            if record.content is None:
                raise NoRow(record.reason)
            rows = list(form.rows(record.content))
        except NoRow as problem:
            bad.append((record.row, str(problem), problem.event))
            continue
        good += [
            (*(getattr(row, name) for name in row.__struct_fields__), record.row * 4 + at)
            for at, row in enumerate(rows)
        ]
    return good, bad


def in_bulk(file: Path, preset: str, form: LogForm) -> tuple[Rows, int]:
    """What is made of a file, and how many of its records came in tables."""
    good: list[Row] = []
    bad = []
    tabled = 0
    for records in read_records(str(file), preset, form):
        rows, unreadable = foreign.sort_out(records, form, str(file), 0)
        good += [tuple(row.values()) for row in rows.to_pylist()]
        bad += [(one.row or 0, one.reason, one.event) for one in unreadable]
        tabled += len(records.table) if isinstance(records, RecordTable) else 0
    return (good, sorted(bad)), tabled


def random_log(rng: random.Random, form: LogForm, tidy: bool) -> Iterator[dict[str, Any]]:
    """Records under a preset: keys of any of its columns, now and then missing, empty, or of another type."""
    words = [*form.events, "deliver", "DELIVER", "subscribed", "control", "juggle"]
    values: dict[str, list[Any]] = {
        "event": words if not tidy else list(form.events),
        "member": ["ann", "bob", "ünal"],
        "seq": [f"id-{n}" for n in range(5)] if rng.random() < 0.5 else list(range(5)),
        "time_ns": [1_760_000_000, 1_760_000_000_123, 1_760_000_000_123_456_789, 5] if rng.random() < 0.5
        else ["2026-01-01T00:00:00Z", "1760000000000000001", "never"],
        "bytes": [0, 17],
        "redelivered": [True, False] if rng.random() < 0.5 else [0, 1, 2],
        "view": [0, 3],
    }  # fmt: skip
    values["partition_offset"] = values["seq"] if rng.random() < 0.7 else [7, "8", "9-1", "x"]
    for _ in range(rng.randrange(1, 60)):
        record: dict[str, Any] = {"unread": [1, {"deep": None}]}
        for name in (*form.columns, "sender", "members"):
            keys = form.columns.get(name, [name])
            if name == "members" and rng.random() < 0.9:
                continue
            if rng.random() < (0.97 if name in ("event", "member", "seq") else 0.6):
                value = rng.choice(values.get(name, ["x", "y", "z w"]))
                if not tidy and rng.random() < 0.03:
                    value = rng.choice(["", None, 3.0, 2.5, True, ["a", "b"], "17"])
                record[rng.choice(keys)] = value
        yield record


@pytest.mark.parametrize("preset", ["nats", "amqp", "mqtt", "redis-streams", "kafka", ""])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_records_by_columns(tmp_path: Path, preset: str, suffix: str) -> None:
    form = form_of(Mapping(preset=preset, constants={} if preset else {"run": "r"}))
    tabled = 0
    for seed in range(30):
        rng = random.Random(f"{preset}{suffix}{seed}")
        records = list(random_log(rng, form, tidy=seed % 3 == 0))
        file = tmp_path / f"{seed}.{suffix}"
        expected: Iterable[LogRecord]
        if suffix == "jsonl":
            lines = [json.dumps(record) for record in records]
            if seed % 5 == 4:
                lines[seed % len(lines)] = "{nonsense"
            file.write_text("\n".join(lines))
            expected = [
                LogRecord(row, record) if line != "{nonsense" else LogRecord(row, None, line, "not a JSON object")
                for row, (record, line) in enumerate(zip(records, lines, strict=True), 1)
            ]
        elif suffix == "csv":
            keys = sorted({key for record in records for key in record})
            with file.open("w", newline="") as out:
                writer = csv.DictWriter(out, keys)
                writer.writeheader()
                writer.writerows(records)
            with file.open(newline="") as again:
                expected = [LogRecord(row, record) for row, record in enumerate(csv.DictReader(again), 1)]
        else:
            keys = sorted({key for record in records for key in record if key != "unread"})
            columns = {}
            for key in keys:
                column = [record.get(key) for record in records]
                try:
                    columns[key] = pa.array(column)
                except (pa.ArrowInvalid, pa.ArrowTypeError):
                    columns[key] = pa.array([None if one is None else str(one) for one in column])
                if seed % 2 and pa.types.is_string(columns[key].type):
                    columns[key] = columns[key].dictionary_encode()
            table = pa.table(columns)
            pq.write_table(table, file)
            expected = [LogRecord(row, record) for row, record in enumerate(table.to_pylist(), 1)]
        found, of_tables = in_bulk(file, preset, form)
        tabled += of_tables
        assert found == singly(form, expected), f"seed {seed}"
    assert tabled > 100  # else nothing was tried


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------

ATTRIBUTES: dict[str, list[Any]] = {
    "messaging.operation.type": ["send", "process", "receive", "settle", ""],
    "messaging.operation": ["publish", "process", "juggle"],
    "messaging.message.id": ["m-1", "m-2", "m ünal", 17, 0, ""],
    "messaging.destination.name": ["orders", "mails", ""],
    "messaging.destination.partition.id": ["0", 3],
    "messaging.kafka.message.offset": [0, 1, 7, "9"],
    "messaging.consumer.group.name": ["g", "h"],
    "messaging.redelivered": [True, False],
    "messaging.message.body.size": [12, "512", -1],
    "messaging.client.id": ["c1"],
    "http.url": ['say "hello"\n', 2.5],
    "service.instance.id": ["own"],
}


def random_span(rng: random.Random, odd: float) -> dict[str, Any]:
    attributes = {
        key: rng.choice(values)
        for key, values in ATTRIBUTES.items()
        if rng.random() < (0.8 if key.startswith("messaging.operation.t") else 0.4)
    }
    if rng.random() < odd:
        attributes[rng.choice(list(ATTRIBUTES))] = rng.choice(["back\\slash", 'quo"te', 1.5, 2.0, True])
    span: dict[str, Any] = {"attributes": attributes, "spanId": f"{rng.randrange(1 << 32):016x}"}
    if rng.random() < 0.5:
        span["parentSpanId"] = f"{rng.randrange(1 << 32):016x}"
    if rng.random() < 0.6:
        span["kind"] = rng.randrange(6)
    if rng.random() < 0.8:
        span["startTimeUnixNano"] = 1_760_000_000_000_000_000 + rng.randrange(1000)
    if rng.random() < 0.3:
        span["links"] = [f"{rng.randrange(1, 1 << 32):016x}" for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:
        span["status"] = rng.randrange(3)
    return span


def json_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def json_export(rng: random.Random, resources: list[tuple[str, list[dict[str, Any]]]]) -> str:
    def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"key": key, "value": json_value(value)} for key, value in attributes.items()]

    def of(span: dict[str, Any]) -> dict[str, Any]:
        kinds = ["SPAN_KIND_PRODUCER", "SPAN_KIND_CONSUMER"]
        written = {"name": "x{]", "attributes": pairs(span["attributes"]), "spanId": span["spanId"], "events": [{}]}
        if "kind" in span:
            named = span["kind"] >= 4 and rng.random() < 0.3
            written["kind"] = kinds[span["kind"] - 4] if named else span["kind"]
        if "startTimeUnixNano" in span:
            start = span["startTimeUnixNano"]
            written["startTimeUnixNano"] = start if rng.random() < 0.5 else str(start)
        if "links" in span:
            written["links"] = [{"traceId": "00", "spanId": link} for link in span["links"]]
        if "status" in span:
            written["status"] = {"message": "m", "code": span["status"]}
        if "parentSpanId" in span:
            written["parentSpanId"] = span["parentSpanId"]
        return written

    told = []
    for service, found in resources:
        resource = {"attributes": pairs({"service.name": service})}
        scopes = [{"scope": {"name": "s"}, "spans": [of(span) for span in found]}]
        one = {"resource": resource, "scopeSpans": scopes}
        told.append(one if rng.random() < 0.8 else dict(reversed(one.items())))
    indent = rng.choice([None, None, None, 1])
    separators = (",", ":") if rng.random() < 0.5 else None
    return json.dumps({"resourceSpans": told}, indent=indent, separators=separators, ensure_ascii=rng.random() < 0.1)


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(value: int) -> bytes:
    value %= 1 << 64
    written = b""
    while value >= 128:
        written += bytes([value & 127 | 128])
        value >>= 7
    return written + bytes([value])


def protobuf_export(resources: list[tuple[str, list[dict[str, Any]]]]) -> bytes:
    def any_value(value: Any) -> bytes:
        if isinstance(value, bool):
            return b"\x10" + varint(value)
        if isinstance(value, int):
            return b"\x18" + varint(value)
        return b"\x21" + struct.pack("<d", value) if isinstance(value, float) else field(1, value.encode())

    def pairs(attributes: dict[str, Any], number: int) -> bytes:
        return b"".join(
            field(number, field(1, key.encode()) + field(2, any_value(value))) for key, value in attributes.items()
        )

    def of(span: dict[str, Any]) -> bytes:
        written = field(1, bytes(16)) + field(2, bytes.fromhex(span["spanId"])) + field(5, b"name")
        if "parentSpanId" in span:
            written += field(4, bytes.fromhex(span["parentSpanId"]))
        written += b"\x30" + varint(span.get("kind", 0))
        if "startTimeUnixNano" in span:
            written += b"\x39" + struct.pack("<Q", span["startTimeUnixNano"])
        written += pairs(span["attributes"], 9)
        for link in span.get("links", ()):
            written += field(13, field(1, bytes(16)) + field(2, bytes.fromhex(link)))
        return written + (field(15, b"\x18" + varint(span["status"])) if "status" in span else b"")

    told = b""
    for service, found in resources:
        scope = field(1, b"\x0a\x01s") + b"".join(field(2, of(span)) for span in found)
        told += field(1, field(1, pairs({"service.name": service}, 1)) + field(2, scope))
    return told


@pytest.mark.parametrize("form_name", ["json", "protobuf"])
def test_spans_by_columns(tmp_path: Path, form_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links, failures, offsets for ids, values of any type: as `otlp` completes one record after the other."""
    form = form_of(Mapping(preset="otlp"))
    file = tmp_path / "spans.bin"
    tabled = 0
    for seed in range(60):
        rng = random.Random(seed)
        monkeypatch.setattr(spans, "_SPANS", rng.choice([1, 3, 1 << 10]))
        monkeypatch.setattr(span_texts, "FEW", rng.choice([1, 4, 256]))
        monkeypatch.setattr(spans, "_BLOCK_BYTES", rng.choice([100, 5_000, 1 << 20]))
        odd = rng.choice([0, 0, 0.05])
        exports = [
            [
                (f"service-{n}", [random_span(rng, odd) for _ in range(rng.randrange(5))])
                for n in range(rng.randrange(3))
            ]
            for _ in range(rng.randrange(1, 8))
        ]
        if form_name == "json":
            texts = [json_export(rng, export) for export in exports]
            file.write_text("\n".join(texts), encoding="utf-8")
            records = [one for text in texts for one in otlp.json_records(text.encode(), "")]
        else:
            written = [protobuf_export(export) for export in exports]
            file.write_bytes(b"".join(struct.pack(">I", len(one)) + one for one in written if one))
            records = [one for export in written for one in otlp.protobuf_records(export, "")]
        found, of_tables = in_bulk(file, "otlp", form)
        tabled += of_tables
        expected = singly(form, [LogRecord(row, record) for row, record in enumerate(records, 1)])
        for mine, right in zip(found[0], expected[0], strict=False):
            assert mine == right, f"seed {seed}"
        assert found == expected, f"seed {seed}"
    assert tabled > 300


@pytest.mark.parametrize(
    "text",
    [
        '{"resourceSpans": [',
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "messaging.x", "value": {}}]}',
        '{"resourceSpans": []} {"resourceSpans"',
        '{"resourceSpans": []}\x00',
    ],
)
def test_damaged_exports(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spans.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="not an export of OpenTelemetry"):
        in_bulk(file, "otlp", form_of(Mapping(preset="otlp")))
