"""OpenTelemetry exports of spans: JSON lines and protobuf, as the collector's file exporter writes them.

Of protobuf only what spans are made of is decoded here: a few message types, so that no library is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from antiphon.errors import UsageError

SPAN_KINDS: Final = {4: "producer", 5: "consumer", "SPAN_KIND_PRODUCER": "producer", "SPAN_KIND_CONSUMER": "consumer"}
_ERROR: Final = (2, "STATUS_CODE_ERROR")
OPERATIONS: Final = ("messaging.operation.type", "messaging.operation", "messaging.operation.name")
IDS: Final = ("messaging.message.id", "messaging.message_id")
SENDING: Final = ("send", "publish", "producer")
OFFSETS: Final = ("messaging.kafka.offset", "messaging.kafka.message.offset")
TOPICS: Final = ("messaging.destination.name", "messaging.destination")
PARTITIONS: Final = ("messaging.destination.partition.id", "messaging.kafka.destination.partition")

Fields = dict[int, list[Any]]


def is_json(content: bytes) -> bool:
    """Say whether an export is JSON, not protobuf."""
    return content[: 1 << 16].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def json_records(text: bytes, file: str) -> Iterator[dict[str, Any]]:
    """Return a record for each messaging span: its attributes and its resource's, `span.kind` and `span.start`."""
    for export in _json_exports(text.lstrip(b"\xef\xbb\xbf \t\r\n"), file):
        yield from _records(export)


def protobuf_records(content: bytes, file: str) -> Iterator[dict[str, Any]]:
    """Return the records of one export, as `json_records` does."""
    try:
        export = _export(content)
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not an export of OpenTelemetry: {error}") from None
    yield from _records(export)


def _records(export: Export) -> Iterator[dict[str, Any]]:
    for of_resource, spans in export:
        for span in spans:
            if any(key.startswith("messaging.") for key in span):
                yield from _completed(of_resource | span)


def _completed(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Let a span have an operation and a message's id, from what else it says; one of a batch is one for each link."""
    if not _has(record, OPERATIONS) and "span.kind" not in record:
        record["span.kind"] = "none"
    operation = next((str(record[key]) for key in OPERATIONS if _has(record, (key,))), record.get("span.kind"))
    if record.pop("span.failed", False) and operation in SENDING:
        record[OPERATIONS[0]] = "failed"
    if not _has(record, IDS):
        offset = next((record[key] for key in OFFSETS if record.get(key) is not None), None)
        if offset is not None:
            where = [next((record[key] for key in keys if key in record), "") for keys in (TOPICS, PARTITIONS)]
            record[IDS[0]] = "/".join(str(part) for part in (*where, offset))
    links, parent = record.pop("span.links", ()), record.pop("span.parent", "")
    sends = operation in SENDING
    alone = sends and len(links) <= 1  # a link of one message's sending is to whatever caused it
    for about in [""] if alone or not links else links:
        one = {**record, "span.about": about or ("" if sends else parent)}
        if not _has(one, IDS) and (known := one["span.about"] or (sends and one.get("span.id"))):
            one[IDS[0]] = f"span {known}"
        yield one


def _has(record: dict[str, Any], keys: tuple[str, ...]) -> bool:
    return any(record.get(key) not in (None, "") for key in keys)


Export = list[tuple[dict[str, Any], list[dict[str, Any]]]]  # (attributes of a resource, its spans)


def _json_exports(text: bytes, file: str) -> Iterator[Export]:
    decode = msgspec.json.Decoder().decode
    try:
        whole = [decode(line) for line in text.splitlines() if line.strip()]
    except msgspec.DecodeError:
        try:
            whole = [decode(text)]  # one object over many lines
        except msgspec.DecodeError as error:
            raise UsageError(f"{file}: not an export of OpenTelemetry: {error}") from None
    for export in whole:
        for one in export if isinstance(export, list) else [export]:
            yield [_json_resource(resource) for resource in one.get("resourceSpans", ())]


def _json_resource(resource: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    of_resource = _json_attributes((resource.get("resource") or {}).get("attributes"))
    scopes = resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans") or ()
    return of_resource, [json_span(span) for scope in scopes for span in scope.get("spans") or ()]


def json_span(span: dict[str, Any]) -> dict[str, Any]:
    """Return what one span says by itself."""
    record = _json_attributes(span.get("attributes"))
    record["span.start"] = int(span.get("startTimeUnixNano") or 0)
    if span.get("kind") in SPAN_KINDS:
        record["span.kind"] = SPAN_KINDS[span["kind"]]
    if (span.get("status") or {}).get("code") in _ERROR:
        record["span.failed"] = True
    record["span.id"], record["span.parent"] = span.get("spanId") or "", span.get("parentSpanId") or ""
    record["span.links"] = [link["spanId"] for link in span.get("links") or () if link.get("spanId")]
    return record


def _json_attributes(attributes: Any) -> dict[str, Any]:
    found = {}
    for attribute in attributes or ():
        value = attribute.get("value") or {}
        for kind, convert in (("stringValue", str), ("intValue", int), ("boolValue", bool), ("doubleValue", float)):
            if kind in value:
                found[attribute["key"]] = convert(value[kind])
    return found


def protobuf_extents(content: bytes | memoryview, file: str) -> Iterator[tuple[int, int]]:
    """Return from where to where each export goes: one after the other behind their lengths, or one alone."""
    at = 0
    while at < len(content):
        [size] = struct.unpack_from(">I", content, at) if at + 4 <= len(content) else [0]
        if not 0 < size <= len(content) - at - 4:
            if at:
                raise UsageError(f"{file}: not an export of OpenTelemetry: it ends within an export")
            yield 0, len(content)
            return
        yield at + 4, at + 4 + size
        at += 4 + size


def _export(content: bytes) -> Export:
    resources = []
    for resource in _fields(content).get(1, ()):
        parts = _fields(resource)
        of_resource = [_attributes(_fields(one).get(1, [])) for one in parts.get(1, [])]
        spans = [protobuf_span(span) for scope in parts.get(2, []) for span in _fields(scope).get(2, [])]
        resources.append((of_resource[0] if of_resource else {}, spans))
    return resources


def protobuf_span(content: bytes) -> dict[str, Any]:
    """Return what one span says by itself."""
    fields = _fields(content)
    record = _attributes(fields.get(9, []))
    record["span.start"] = fields.get(7, [0])[0]
    kind = fields.get(6, [0])[0]
    if kind in SPAN_KINDS:
        record["span.kind"] = SPAN_KINDS[kind]
    if any(_fields(status).get(3, [0])[0] == 2 for status in fields.get(15, [])):
        record["span.failed"] = True
    record["span.id"], record["span.parent"] = (fields.get(number, [b""])[0].hex() for number in (2, 4))
    record["span.links"] = [own[0].hex() for link in fields.get(13, []) if (own := _fields(link).get(2))]
    return record


def _attributes(encoded: list[bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in encoded:
        pair = _fields(one)
        for value in pair.get(2, []):
            for number, content in _fields(value).items():
                key = pair[1][0].decode()
                if number == 1:
                    found[key] = content[0].decode()
                elif number == 2:
                    found[key] = bool(content[0])
                elif number == 3:
                    found[key] = content[0] - (1 << 64) if content[0] >= 1 << 63 else content[0]
                elif number == 4:
                    [found[key]] = struct.unpack("<d", content[0].to_bytes(8, "little"))
    return found


def _fields(content: bytes) -> Fields:
    """Return the fields of one protobuf message, by number: integers, and bytes for whatever has a length."""
    found: Fields = {}
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, kind = tag >> 3, tag & 7
        value: Any
        if kind == 0:
            value, at = _varint(content, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = int.from_bytes(content[at : at + size], "little"), at + size
        elif kind == 2:
            size, at = _varint(content, at)
            value, at = content[at : at + size], at + size
        else:
            raise ValueError(f"a field of kind {kind}")
        if at > len(content):
            raise ValueError("a field that is longer than its message")
        found.setdefault(number, []).append(value)
    return found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
