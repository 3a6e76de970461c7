"""Of a log that nobody can read: which preset, or which mapping, would read most of it."""

from __future__ import annotations

import re
from collections.abc import Mapping as Record
from typing import Any, Final

from antiphon.pipeline.ingesting.foreign.form import PRESETS, LogForm, NoRow, form_of
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.text import with_inner_keys
from antiphon.trace.schema import BROKER_COLUMNS, COLUMNS, EVENTS

OTLP_KEYS: Final = frozenset({"resourceSpans", "resource_spans", "scopeSpans"})
_HISTORY_KEYS: Final = frozenset({"process", "type", "f"})
_ASKED: Final = "member, event, sender and seq (the message)"
_PAIR: Final = re.compile(r'([A-Za-z_@][\w.@-]*)=("[^"]*"|[^\s"]*)')  # as logfmt has them
_USUAL: Final[dict[str, tuple[str, ...]]] = {  # the trace's column -> what others call it
    "run": ("run", "run_id", "session", "experiment"),
    "member": (
        *("member", "node", "node_id", "client", "client_id", "process", "host", "hostname", "consumer", "peer"),
        *("replica", "server", "worker", "instance", "pod", "actor", "who", "service", "svc", "name"),
    ),
    "step": ("step", "index", "line"),
    "time_ns": ("time_ns", "time", "timestamp", "ts", "@timestamp"),
    "event": ("event", "op", "action", "type", "kind", "operation", "what", "verb", "method"),
    "sender": ("sender", "author", "source", "from", "producer", "origin"),
    "seq": (
        *("seq", "message_id", "msg_id", "messageid", "id", "uuid", "ulid", "mid", "nats_msg_id", "msg", "message"),
        *("offset", "number", "nr", "sequence"),
    ),
    "topic": ("topic", "subject", "routing_key", "channel", "stream"),
    "partition": ("partition",),
    "group": ("group", "consumer_group", "group_id", "durable", "queue"),
}
_WORDS: Final[dict[str, tuple[str, ...]]] = {  # what happened -> what others call it
    "send": (
        *("send", "sent", "publish", "published", "pub", "produce", "produced", "broadcast", "multicast", "emit"),
        *("emitted", "tx", "put", "enqueue", "post", "append", "out", "outbound", "outgoing"),
    ),
    "deliver": (
        *("deliver", "delivered", "consume", "consumed", "receive", "received", "recv", "handle", "handled", "process"),
        *("processed", "rx", "msg", "message", "get", "dequeue", "apply", "applied", "in", "inbound", "incoming"),
    ),
    "acknowledged": ("acknowledged", "puback", "confirm", "confirmed", "ack", "acked"),
    "subscribed": ("subscribe", "subscribed", "sub"),
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
    keys = ", ".join(dict.fromkeys(key for one in records for key, value in one.items() if not isinstance(value, dict)))
    unknown = f"its records have {keys}; a mapping file (--mapping) says which of them are {_ASKED}" if keys else ""
    return words if most else unknown


def suggest_lines(lines: list[str]) -> str:
    """Return a sentence that names a mapping for a text whose lines have pairs `key=value`; empty if they have none."""
    found = [{key: value.strip('"') for key, value in _PAIR.findall(line)} for line in lines]
    keys = [key for key in dict.fromkeys(key for one in found for key in one) if all(key in one for one in found[:1])]
    if len(keys) < len(("member", "event", "seq")):
        return ""
    groups = {key: re.sub(r"\W", "_", key) for key in keys}
    line = ".*?".join(rf'\b{re.escape(key)}="?(?P<{group}>[^\s"]*)' for key, group in groups.items())
    said = _as_toml(_guess([{groups[key]: one[key] for key in keys if key in one} for one in found]))
    return f"a mapping file (--mapping) would read most of it:\nlines = '{line}'\n\n{said}"


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
    keys = {key for record in records for key, value in record.items() if not isinstance(value, dict)}
    lower = {_plain(key.rpartition(".")[2]): key for key in sorted(keys, key=lambda key: -key.count("."))}
    columns = {}
    for name, others in _USUAL.items():
        found = next((lower[_plain(other)] for other in others if _plain(other) in lower), None)
        if found is not None and found != name:
            columns[name] = found
    words = {str(word).lower() for record in records if (word := _event(record, columns)) is not None}
    events = {word: event for word in sorted(words - {*EVENTS}) if (event := _meaning(word)) is not None}
    constants: dict[str, str | int] = {} if "run" in columns or "run" in keys else {"run": "log"}
    return Mapping(columns=columns, events=events, constants=constants)


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9@]", "", key.lower())


def _meaning(word: str) -> str | None:
    """Return what a log's word most likely stands for, by the last part of it that says so: `nats.publish`."""
    for part in reversed(re.split(r"[^a-z0-9]+", word)):
        for event, others in _WORDS.items():
            if part in others:
                return event
    return None


def _event(record: Record[str, Any], columns: dict[str, str]) -> Any:
    return record.get(columns.get("event", "event"))


def _as_toml(mapping: Mapping) -> str:
    parts = []
    for table, content in (("columns", mapping.columns), ("events", mapping.events), ("constants", mapping.constants)):
        if content:
            rows = "\n".join(f'"{key}" = "{value}"' for key, value in content.items())
            parts.append(f"[{table}]\n{rows}")
    return "\n\n".join(parts)
