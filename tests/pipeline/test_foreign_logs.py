"""Logs of other systems: names, ids and words as they come; recordings of real brokers, a preset each."""

from __future__ import annotations

import argparse
import json
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from antiphon.commands.log_options import PRESETS, add_log_options, mapping_of
from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign import form
from antiphon.pipeline.ingesting.foreign.jepsen import read_edn
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.trace import naive
from antiphon.trace.schema import BROKER_GUARANTEES
from pipeline.conftest import Checker
from support.planting import sample

RECORDED = Path(__file__).parents[1] / "data" / "brokers"
FORMS = sorted(path.stem for path in Path(form.__file__).with_name("presets").glob("*.toml"))


def lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_every_preset_is_an_option_and_a_file() -> None:
    assert sorted(PRESETS) == sorted(form.PRESETS) == FORMS
    for name in PRESETS:
        assert form.load_preset(name).about
    with pytest.raises(UsageError, match="no preset is called 'pigeon'"):
        form.load_preset("pigeon")


def test_options() -> None:
    parser = argparse.ArgumentParser()
    add_log_options(parser)
    assert mapping_of(parser.parse_args([])) is None
    chosen = mapping_of(parser.parse_args(["--from", "kafka", "--sends", "unrecorded"]))
    assert chosen == Mapping(preset="kafka", sends="unrecorded")


# what each recording shows: docs/5-checking-a-trace-of-your-own-system.md tells why
RECORDINGS: dict[str, dict[str, tuple[str, int]]] = {
    "nats": {
        "at-least-once": ("violated", 2),
        "at-most-once": ("violated", 1),
        "partition-order": ("holds", 0),
        "redelivery": ("holds", 0),
    },
    "amqp": {
        "at-least-once": ("holds", 0),
        "at-most-once": ("violated", 1),
        "partition-order": ("holds", 0),
        "redelivery": ("holds", 0),
    },
    "mqtt": {
        "at-least-once": ("violated", 77),
        "at-most-once": ("holds", 0),
        "partition-order": ("holds", 0),
        "redelivery": ("holds", 0),
    },
    "redis-streams": {
        "at-least-once": ("holds", 0),
        "at-most-once": ("violated", 1),
        "partition-order": ("holds", 0),
        "redelivery": ("holds", 0),
    },
}


@pytest.mark.parametrize("system", RECORDINGS)
def test_recordings(inline: Checker, system: str) -> None:
    totals, found = inline.check(RECORDED / system, Mapping(preset=system))
    assert {name: (found[name].verdict, found[name].violations) for name in BROKER_GUARANTEES} == RECORDINGS[system]
    assert totals.quarantined == {}
    assert found["integrity"].verdict == "holds"
    assert {name for file in (RECORDED / system).glob("*.jsonl") for name in [file.stem]} <= {*totals.names.values()}
    assert "at-least-once" in (totals.promises or ())


def test_a_recording_on_spark(on_spark: Checker) -> None:
    totals, found = on_spark.check(RECORDED / "mqtt", Mapping(preset="mqtt"))
    assert found["at-least-once"].violations == 77
    assert totals.names[found["at-least-once"].witnesses[0].member] == "historian"


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize("sender", [True, False])
def test_names_and_ids_as_text(inline: Checker, tmp_path: Path, suffix: str, sender: bool) -> None:
    """A message gets its number from its author's first send, whether or not who delivers it names the author."""
    events = sample(3).events
    ids = {(e.sender, e.seq): str(uuid.uuid5(uuid.NAMESPACE_OID, f"{e.sender} {e.seq}")) for e in events}
    records = [
        {
            "run": event.run,
            "member": f"node-{event.member}",
            "step": event.step,
            "event": event.event,
            "sender": f"node-{event.sender}" if sender and event.sender is not None else "",
            "message_id": ids[event.sender, event.seq] if event.seq is not None else "",
        }
        for event in events
        if event.event in ("send", "receive", "deliver", "discard", "crash", "leave", "end")
    ]
    trace = tmp_path / f"log.{suffix}"
    if suffix == "csv":
        rows = [",".join(records[0]), *(",".join(str(value) for value in record.values()) for record in records)]
        trace.write_text("\n".join(rows))
    else:
        lines(trace, records)
    totals, found = inline.check(
        trace, Mapping(columns={"seq": "message_id"}), guarantees=("integrity", "fifo", "total")
    )
    kept = [e for e in events if e.event in ("send", "receive", "deliver", "discard", "crash", "leave", "end")]
    expected = naive.check(kept, guarantees=("integrity", "fifo", "total"))
    assert {name: (one.verdict, one.examined, one.violations) for name, one in found.items()} == {
        name: (one.verdict, one.examined, one.violations) for name, one in expected.items()
    }
    assert set(totals.names.values()) == {f"node-{event.member}" for event in events}


def test_a_delivery_that_nobody_sent(inline: Checker, tmp_path: Path) -> None:
    records = [
        {"run": "r", "member": "a", "step": 1, "event": "send", "sender": None, "seq": "x"},
        {"run": "r", "member": "b", "step": 1, "event": "deliver", "sender": None, "seq": "x"},
        {"run": "r", "member": "b", "step": 2, "event": "deliver", "sender": None, "seq": "y"},
    ]
    _, found = inline.check(lines(tmp_path / "log.jsonl", records))
    assert found["integrity"].violations == 1
    assert found["integrity"].witnesses[0].why == "member 2 delivers message 1 of 3, which was never sent"


KAFKA = [
    {"consumer": name, "op": "consume", "topic": "orders", "partition": 0, "offset": offset, "group": group}
    for name, group, offsets in (("c1", "g", (0, 1, 3)), ("c2", "g", (2, 3)), ("c3", "h", (0, 2, 1)))
    for offset in offsets
]


def test_a_topic_seen_by_its_consumers(inline: Checker, tmp_path: Path) -> None:
    """The log is the sender, by option; its offsets start from 0."""
    trace = lines(tmp_path / "topic.jsonl", KAFKA)
    totals, found = inline.check(trace, Mapping(preset="kafka", sends="unrecorded"), unrecorded_sends=True)
    assert totals.names == {1: "c1", 2: "c2", 3: "c3", 4: "orders/0"}
    assert found["integrity"].verdict == "unknown"
    assert [one.why for one in found["at-least-once"].witnesses] == [
        "group h never takes message 4 of 4, which group g is given"
    ]
    assert [one.why for one in found["partition-order"].witnesses] == [
        "member 3 is given message 2 of 4 after number 3, both in orders partition 0"
    ]
    assert found["redelivery"].violations == found["at-most-once"].violations == 1


def test_kafka_with_its_producers(inline: Checker, tmp_path: Path) -> None:
    produced = [
        {"producer": "p", "op": "delivery_report", "topic": "orders", "partition": 0, "offset": n} for n in range(5)
    ]
    subscribed = {"consumer": "c1", "op": "subscribe", "topic": "orders", "group": "g"}
    _, found = inline.check(lines(tmp_path / "k.jsonl", [subscribed, *produced, *KAFKA[:5]]), Mapping(preset="kafka"))
    assert [one.why for one in found["at-least-once"].witnesses] == [
        "group g never takes message 5 of 3, which the broker acknowledged"
    ]


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------


def span(service: str, start: int, operation: str, one: str, **more: str) -> tuple[str, int, dict[str, str]]:
    attributes = {"messaging.operation.type": operation, "messaging.message.id": one}
    return service, start, attributes | {"messaging.destination.name": "orders"} | more


GROUP = {"messaging.consumer.group.name": "workers"}
SPANS = [
    span("shop", 10, "send", "m-1"),
    span("shop", 20, "send", "m-2"),
    span("shop", 30, "send", "m-3"),
    span("worker", 45, "process", "m-3", **GROUP),
    span("worker", 40, "process", "m-1", **GROUP),
]


def as_json() -> bytes:
    exports = []
    for service, start, attributes in SPANS:
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
        told = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        spans = [{"startTimeUnixNano": str(start), "kind": 4, "attributes": told}]
        exports.append({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]})
    return b"\n".join(json.dumps(export).encode() for export in exports)


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 1 << 14
    size = bytes([len(content)]) if len(content) < 128 else bytes([len(content) & 127 | 128, len(content) >> 7])
    return bytes([number << 3 | 2]) + size + content


def as_protobuf(framed: bool) -> bytes:
    def pairs(attributes: dict[str, str], number: int) -> bytes:
        return b"".join(
            field(number, field(1, key.encode()) + field(2, field(1, value.encode())))
            for key, value in attributes.items()
        )

    exports = []
    for service, start, attributes in SPANS:
        told = b"\x30\x04\x39" + struct.pack("<Q", start) + pairs(attributes, 9)
        resource = field(1, pairs({"service.name": service}, 1))
        exports.append(field(1, resource + field(2, field(2, told))))
    if framed:
        return b"".join(struct.pack(">I", len(export)) + export for export in exports)
    return b"".join(exports)  # messages that follow each other are one: its repeated fields add up


@pytest.mark.parametrize("kind", ["json", "framed", "plain"])
def test_spans(inline: Checker, tmp_path: Path, kind: str) -> None:
    trace = tmp_path / ("spans.json" if kind == "json" else "spans.pb")
    trace.write_bytes(as_json() if kind == "json" else as_protobuf(kind == "framed"))
    totals, found = inline.check(trace, Mapping(preset="otlp"))
    assert totals.names == {1: "shop", 2: "worker"}
    assert totals.events == 8  # an acknowledged send is two
    assert [one.why for one in found["at-least-once"].witnesses] == [
        "group workers never takes message 2 of 1, which the broker acknowledged"
    ]
    assert found["partition-order"].verdict == "holds"  # by the time of the spans, not their place in the file


def test_what_is_no_export_is_said(inline: Checker, tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(b"\x00\x00\x00\x05hello")
    with pytest.raises(UsageError, match="not an export of OpenTelemetry"):
        inline.check(tmp_path / "a.pb", Mapping(preset="otlp"))


# --- Jepsen -----------------------------------------------------------------------------------------------------------

HISTORY = """
; a history
{:process 0, :type :invoke, :f :send, :value "a", :time 1}
{:process :nemesis, :type :info, :f :start, :value nil}
{:process 0, :type :ok, :f :send, :value "a", :time 2}
#jepsen.history.Op{:process 1, :type :ok, :f :deliver, :value ["a" "b"], :time 3}
{:process 2, :type :invoke, :f :send, :value "b"}
{:process 2, :type :ok, :f :deliver, :value "b"} #_ {:process 9 :type :ok :f :deliver :value "z"}
{:process 2, :type :ok, :f :deliver, :value "a"}
"""


def test_histories(inline: Checker, tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text(HISTORY)
    totals, found = inline.check(tmp_path, Mapping(preset="jepsen"))
    assert totals.members == 3
    assert found["integrity"].verdict == "holds"
    assert found["total"].violations == 1
    assert list(found) == list(naive.GUARANTEES)


def test_a_queue_of_jepsen(inline: Checker, tmp_path: Path) -> None:
    operations = [
        f"{{:process {process} :type {kind} :f {what} :value {value}}}"
        for process, kind, what, value in (
            (0, ":invoke", ":enqueue", 7), (0, ":ok", ":enqueue", 7), (0, ":invoke", ":enqueue", 8),
            (0, ":ok", ":enqueue", 8), (1, ":ok", ":dequeue", 7), (2, ":ok", ":drain", "[7]"),
        )
    ]  # fmt: skip
    (tmp_path / "queue.edn").write_text("[" + "\n ".join(operations) + "]")
    _, found = inline.check(tmp_path / "queue.edn", Mapping(preset="jepsen"))
    assert found["at-most-once"].violations == 1
    assert [one.why for one in found["at-least-once"].witnesses] == [
        "group queue never takes message 2 of 0, which the broker acknowledged"
    ]


def test_edn() -> None:
    text = r'#{1 2} (nil true -3.5 7N) {:a/b "x\"y\n"} \newline #inst "2026-01-01" [] ; end'
    assert list(read_edn(text)) == [
        [1, 2], [None, True, -3.5, 7], {"a/b": 'x"y\n'}, "\\newline", "2026-01-01", [],
    ]  # fmt: skip
    with pytest.raises(UsageError, match="ends before a ]"):
        list(read_edn("[1 2"))


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_rows_of_a_log_that_cannot_be_read(inline: Checker, tmp_path: Path) -> None:
    good = json.dumps({"client": "a", "op": "publish", "subject": "s", "id": "1"})
    text = "\n".join([good, "nonsense", '{"client": "a", "op": "juggle"}', '{"op": "msg", "id": "1"}'])
    (tmp_path / "log.jsonl").write_text(text)
    totals, found = inline.check(tmp_path, Mapping(preset="nats"))
    assert sum(totals.quarantined.values()) == sum(totals.reasons.values()) == 3
    assert totals.examples["not a JSON object"] == "log.jsonl row 2: nonsense"
    assert set(totals.examples) == set(totals.reasons)
    assert found["at-least-once"].verdict == "unknown"


def test_nothing_can_be_read_as_it_is(inline: Checker, tmp_path: Path) -> None:
    """The error says what would read it, and that does."""
    records = [
        {"node": "a", "action": "publish", "uuid": "m1"},
        {"node": "b", "action": "consume", "uuid": "m1"},
    ]
    trace = lines(tmp_path / "log.jsonl", records)
    with pytest.raises(UsageError, match="a mapping file") as refused:
        inline.check(trace)
    advice = tmp_path / "advice.toml"
    advice.write_text(str(refused.value).partition("most of it:\n")[2])
    mapping = mapping_of(argparse.Namespace(mapping=str(advice), preset=None, sends=None))
    _, found = inline.check(trace, mapping)
    assert found["integrity"].verdict == "holds"


def test_a_preset_is_suggested(inline: Checker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--from kafka would read most of it"):
        inline.check(lines(tmp_path / "log.jsonl", KAFKA))
