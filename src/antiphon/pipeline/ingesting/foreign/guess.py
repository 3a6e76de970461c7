"""Of a log that nobody can read: which preset, or which mapping, would read most of it."""

from __future__ import annotations

from collections.abc import Mapping as Record
from typing import Any, Final

from antiphon.pipeline.ingesting.foreign.form import PRESETS, LogForm, NoRow, form_of
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.text import with_inner_keys
from antiphon.trace.schema import BROKER_COLUMNS, COLUMNS

OTLP_KEYS: Final = frozenset({"resourceSpans", "resource_spans", "scopeSpans"})
_HISTORY_KEYS: Final = frozenset({"process", "type", "f"})
_USUAL: Final[dict[str, tuple[str, ...]]] = {  # the trace's column -> what others call it
    "run": ("run", "run_id", "session", "experiment"),
    "member": ("member", "node", "node_id", "client", "client_id", "process", "host", "hostname", "consumer", "peer"),
    "step": ("step", "index", "line"),
    "time_ns": ("time_ns", "time", "timestamp", "ts", "@timestamp"),
    "event": ("event", "op", "action", "type", "kind", "operation"),
    "sender": ("sender", "author", "source", "from", "producer", "origin"),
    "seq": ("seq", "message_id", "msg_id", "messageid", "id", "uuid", "message", "offset", "number", "sequence"),
    "topic": ("topic", "subject", "routing_key", "channel", "stream"),
    "partition": ("partition",),
    "group": ("group", "consumer_group", "group_id", "queue"),
}
_WORDS: Final[dict[str, tuple[str, ...]]] = {  # what happened -> what others call it
    "send": ("sent", "publish", "published", "produce", "produced", "broadcast", "multicast", "emit", "tx"),
    "deliver": ("delivered", "consume", "consumed", "received", "recv", "handle", "handled", "process", "rx"),
    "acknowledged": ("ack", "acked", "confirm", "confirmed"),
    "subscribed": ("subscribe",),
    "unsubscribed": ("unsubscribe",),
    "crash": ("crashed", "killed", "died"),
    "leave": ("left", "disconnect"),
    "end": ("stop", "stopped", "shutdown", "close"),
}


def suggest(records: list[dict[str, Any]]) -> str:
    """Return a sentence that names what would read most of some records; empty if nothing reads any.

    Of those that read equally many, it is the one that understands most of their columns, and a preset before a guess.
    """
    records = [dict(with_inner_keys("", record)) for record in records]
    if any(OTLP_KEYS & record.keys() for record in records):
        return "--from otlp reads exports of OpenTelemetry"
    if any(record.keys() >= _HISTORY_KEYS for record in records):
        return "--from jepsen reads histories"
    readers = [
        (f"--from {name} would read most of it", form_of(Mapping(preset=name)))
        for name in PRESETS
        if name not in ("otlp", "jepsen")
    ]
    guessed = _guess(records)
    said = _as_toml(guessed)
    mapped = f"a mapping file (--mapping) would read most of it:\n{said}" if said else "it is a trace, without --from"
    readers.append((mapped, form_of(guessed)))
    counted = [(_readable(form, records), words) for words, form in readers]
    (most, _), words = max(counted, key=lambda one: one[0])  # the first of equals
    return words if most else ""


def _readable(form: LogForm, records: list[dict[str, Any]]) -> tuple[int, int]:
    """Return how many records a form reads, and how many values of theirs it understands."""
    names = [name for name in (*COLUMNS, *BROKER_COLUMNS) if name not in form.constants]
    count = understood = 0
    for record in records:
        try:
            if not list(form.rows(record)):
                continue
        except NoRow:
            continue
        count += 1
        understood += sum(form.text(record, name) is not None for name in names)
    return count, understood


def _guess(records: list[dict[str, Any]]) -> Mapping:
    keys = {key for record in records for key in record}
    lower = {key.rpartition(".")[2].lower(): key for key in sorted(keys, key=lambda key: -key.count("."))}
    columns = {}
    for name, others in _USUAL.items():
        found = next((lower[other] for other in others if other in lower), None)
        if found is not None and found != name:
            columns[name] = found
    words = {str(word).lower() for record in records if (word := _event(record, columns)) is not None}
    events = {other: event for event, others in _WORDS.items() for other in others if other in words}
    constants: dict[str, str | int] = {} if "run" in columns or "run" in keys else {"run": "log"}
    return Mapping(columns=columns, events=events, constants=constants)


def _event(record: Record[str, Any], columns: dict[str, str]) -> Any:
    return record.get(columns.get("event", "event"))


def _as_toml(mapping: Mapping) -> str:
    parts = []
    for table, content in (("columns", mapping.columns), ("events", mapping.events), ("constants", mapping.constants)):
        if content:
            rows = "\n".join(f'"{key}" = "{value}"' for key, value in content.items())
            parts.append(f"[{table}]\n{rows}")
    return "\n\n".join(parts)
