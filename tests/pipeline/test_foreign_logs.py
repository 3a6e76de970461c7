"""Logs of other systems: names, ids and words as they come; recordings of real brokers, a preset each."""

from __future__ import annotations

import argparse
import json
import random
import re
import struct
import tomllib
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from antiphon.commands.log_options import PRESETS, add_log_options, mapping_of
from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign import form
from antiphon.pipeline.ingesting.foreign.jepsen import read_edn
from antiphon.pipeline.ingesting.keep import lay_out_trace
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.reading.mapping import Mapping, make_mapping
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.window import EventWindows
from antiphon.pipeline.watch import DirectoryWatch
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
    assert list(PRESETS) == list(form.PRESETS) == FORMS
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


def test_a_table_of_a_spreadsheet(inline: Checker) -> None:
    """A CSV file with a byte order mark and CRLF; after the broker's restart JetStream counts deliveries anew."""
    totals, found = inline.check(RECORDED / "nats-restarted", Mapping(preset="nats"))
    assert totals.quarantined == {}
    assert {name: (found[name].examined, found[name].violations) for name in BROKER_GUARANTEES} == {
        "at-least-once": (170, 4),  # what a monitor on core NATS missed while the broker was away
        "at-most-once": (172, 6),
        "partition-order": (
            168,
            2,
        ),  # of what came again unmarked, two came to a worker behind later numbers of the stream
        "redelivery": (172, 4),
    }


def test_a_list_of_packets(inline: Checker) -> None:
    """One JSON list instead of lines, and PUBLISH for what is sent and for what comes in."""
    totals, found = inline.check(RECORDED / "mqtt-packets", Mapping(preset="mqtt"))
    assert totals.quarantined == {}
    assert {name: (found[name].examined, found[name].violations) for name in BROKER_GUARANTEES} == {
        "at-least-once": (161, 0),
        "at-most-once": (166, 2),  # at QoS 1, around the broker's restart; marked as such
        "partition-order": (164, 0),
        "redelivery": (166, 0),
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
        "member 3 is given message 2 of 4, offset 1, after offset 2, both in orders partition 0"
    ]
    assert found["redelivery"].violations == found["at-most-once"].violations == 1


def test_the_order_of_a_partition_is_its_own(inline: Checker, tmp_path: Path) -> None:
    """Two producers write to a partition; a consumer that is given its records out of order is wrong, whosoever."""
    produced = [{"producer": f"p{n % 2}", "op": "ack", "topic": "t", "partition": 0, "offset": n} for n in range(4)]
    consumed = [
        {"consumer": "c", "group": "g", "op": "consume", "topic": "t", "partition": 0, "offset": n}
        for n in (0, 2, 1, 3)
    ]
    _, found = inline.check(lines(tmp_path / "k.jsonl", produced + consumed), Mapping(preset="kafka"))
    assert found["fifo"].verdict == "holds"  # each producer's are in order
    assert [one.why for one in found["partition-order"].witnesses] == [
        "member 1 is given message 1 of 3, offset 1, after offset 2, both in t partition 0"
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("17", 17),
        ("0", 0),
        ("5-1", (5 << 20) + 1),
        ("5-9999999", (6 << 20) - 1),
        ("x", None),
        ("5-x", None),
        ("", None),
    ],
)
def test_offsets(text: str, number: int | None) -> None:
    assert form.offset_of(text) == number


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


@pytest.mark.parametrize("kind", ["json", "utf-16", "snake_case", "framed", "plain"])
def test_spans(inline: Checker, tmp_path: Path, kind: str) -> None:
    trace = tmp_path / ("spans.pb" if kind in ("framed", "plain") else "spans.json")
    json_text = as_json().decode().encode("utf-16") if kind == "utf-16" else as_json()
    if kind == "snake_case":
        json_text = re.sub(rb"(?<=[a-z])([A-Z])(?=\w+\":)", lambda match: b"_" + match[1].lower(), json_text)
        assert b'"start_time_unix_nano"' in json_text
    trace.write_bytes(as_protobuf(kind == "framed") if trace.suffix == ".pb" else json_text)
    totals, found = inline.check(trace, Mapping(preset="otlp"))
    assert totals.names == {1: "shop", 2: "worker"}
    assert totals.events == 8  # an acknowledged send is two
    assert [one.why for one in found["at-least-once"].witnesses] == [
        "group workers never takes message 2 of 1, which the broker acknowledged"
    ]
    assert found["partition-order"].verdict == "holds"  # by the time of the spans, not their place in the file


@pytest.mark.parametrize("kind", ["json", "framed"])
def test_spans_that_are_still_written(inline: Checker, tmp_path: Path, kind: str) -> None:
    """The last export of a file may not be whole yet: what is there is read, and what it lacks is unknown."""
    trace = tmp_path / ("spans.pb" if kind == "framed" else "spans.json")
    trace.write_bytes((as_protobuf(True) if kind == "framed" else as_json())[:-40])
    totals, found = inline.check(trace, Mapping(preset="otlp"))
    assert (totals.events, totals.reasons) == (7, {"an export that is cut short": 1})
    assert found["at-least-once"].verdict == "unknown"


def test_what_is_no_export_is_said(inline: Checker, tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(b"\x00\x00\x00\x05hello")
    with pytest.raises(UsageError, match="not an export of OpenTelemetry"):
        inline.check(tmp_path / "a.pb", Mapping(preset="otlp"))
    (tmp_path / "jaeger.json").write_text('{"data": [{"traceID": "x", "spans": [{"spanID": "y"}]}]}')
    with pytest.raises(UsageError, match="--from otlp reads OpenTelemetry messaging spans"):
        inline.check(tmp_path / "jaeger.json", Mapping(preset="otlp"))
    (tmp_path / "spans.jsonl").write_bytes(as_json())
    with pytest.raises(UsageError, match="--from otlp reads exports of OpenTelemetry"):
        inline.check(tmp_path / "spans.jsonl")


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


OPERATIONS = [
    {"process": 0, "type": "invoke", "f": "enqueue", "value": 7},
    {"process": 0, "type": "ok", "f": "enqueue", "value": 7},
    {"process": "nemesis", "type": "info", "f": "kill", "value": None},
    {"process": 1, "type": ":ok", "f": ":dequeue", "value": 7},
    {"process": 2, "type": "ok", "f": "dequeue", "value": 7},
]


@pytest.mark.parametrize("form", ["lines", "list", "list on lines", "edn", "cut edn", "cut json"])
def test_histories_in_every_form(inline: Checker, tmp_path: Path, form: str) -> None:
    """In JSON or EDN, as a vector or not; one that was cut short is read as far as it goes."""
    texts = {
        "lines": "\n".join(json.dumps(one) for one in OPERATIONS),
        "list": json.dumps(OPERATIONS, indent=1),
        "list on lines": "[" + ",\n".join(json.dumps(one) for one in OPERATIONS) + "]",
        "edn": "[" + "\n".join(
            " ".join(("{", *(f":{key} {word(value)}" for key, value in one.items()), "}")) for one in OPERATIONS
        ) + "]",
    }  # fmt: skip
    texts |= {"cut edn": texts["edn"][:-5] + "\n", "cut json": texts["list on lines"][:-5]}
    trace = tmp_path / ("h.edn" if "edn" in form else "h.json")
    trace.write_text(texts[form])
    totals, found = inline.check(trace, Mapping(preset="jepsen"))
    cut = "cut" in form
    assert sum(totals.quarantined.values()) == cut
    assert (found["at-most-once"].examined, found["at-most-once"].violations) == ((1, 0) if cut else (2, 1))
    assert found["at-least-once"].verdict == ("unknown" if cut else "holds")


def word(value: object) -> str:
    """A value as EDN has it: texts as keywords."""
    return f":{value.removeprefix(':')}" if isinstance(value, str) else "nil" if value is None else str(value)


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


def test_a_log_of_jepsen(inline: Checker, tmp_path: Path) -> None:
    """Operations that are lists of steps on keys, as in its tests of Kafka: poll gives keys' offsets and values."""
    (tmp_path / "kafka.edn").write_text("""
#jepsen.history.Op{:index 0, :time 10, :type :invoke, :process 0, :f :send, :value [[:send 5 1]]}
#jepsen.history.Op{:index 1, :time 20, :type :ok, :process 0, :f :send, :value [[:send 5 [0 1]]]}
#jepsen.history.Op{:index 2, :time 22, :type :ok, :process 1, :f :subscribe, :value [5]}
#jepsen.history.Op{:index 3, :time 30, :type :invoke, :process 0, :f :txn, :value [[:send 5 2] [:send 5 3]]}
#jepsen.history.Op{:index 4, :time 35, :type :ok, :process 0, :f :txn, :value [[:send 5 [1 2]] [:send 5 [2 3]]]}
#jepsen.history.Op{:index 5, :time 40, :type :ok, :process 1, :f :poll, :value [[:poll {5 [[0 1] [2 3]]}]]}
""")
    totals, found = inline.check(tmp_path, Mapping(preset="jepsen"))
    assert (totals.events, found["integrity"].verdict) == (9, "holds")
    assert [one.why for one in found["at-least-once"].witnesses] == [
        "group consumers never takes message 2 of 0, which the broker acknowledged"
    ]


def test_reads_of_a_set(inline: Checker, tmp_path: Path) -> None:
    """Each read gives all that is there: what it gives again is not delivered again."""
    operations = [(0, ":invoke", ":broadcast", "7"), (0, ":ok", ":broadcast", "7"), (0, ":ok", ":broadcast", "8")]
    operations += [(0, ":invoke", ":broadcast", "8"), (1, ":ok", ":read", "[7]"), (1, ":ok", ":read", "#{7 8}")]
    (tmp_path / "set.edn").write_text(
        "\n".join(f"{{:process {p} :type {t} :f {f} :value {v}}}" for p, t, f, v in operations)
    )
    _, found = inline.check(tmp_path, Mapping(preset="jepsen"))
    assert (found["integrity"].verdict, found["integrity"].examined) == ("holds", 2)
    assert found["at-least-once"].verdict == "holds"


# --- what consumers print, and how others write -----------------------------------------------------------------------


def test_what_consumers_of_kafka_print(inline: Checker, tmp_path: Path) -> None:
    """A file a consumer: one by kcat -J, one by the console consumer with timestamp, partition and offset."""
    lines(tmp_path / "kcat.jsonl", [{"topic": "t", "partition": 0, "offset": n, "ts": 9 + n} for n in range(5)])
    printed = [f"CreateTime:17600000000{n:02}\tPartition:0\tOffset:{n}\tkey\tvalue {n}" for n in (0, 2, 1)]
    (tmp_path / "console.txt").write_text("\n".join(printed))
    totals, found = inline.check(tmp_path, Mapping(preset="kafka", sends="unrecorded"), unrecorded_sends=True)
    assert {"kcat", "console"} <= {*totals.names.values()}
    assert (totals.events, found["partition-order"].violations) == (8, 1)


def test_a_text_log_by_a_regular_expression(inline: Checker, tmp_path: Path) -> None:
    (tmp_path / "consumer.log").write_text("orders 0 0 a\norders 0 1 b\norders 0 1 b\nBye\n")
    mapping = make_mapping({"lines": r"(?P<topic>\w+) (?P<partition>\d+) (?P<offset>\d+) "}, "here")
    mapping = msgspec.structs.replace(mapping, preset="kafka", sends="unrecorded")
    totals, found = inline.check(tmp_path, mapping, unrecorded_sends=True)
    assert (totals.events, found["at-most-once"].violations) == (3, 1)
    [reason] = totals.reasons
    assert reason.startswith(f"a line that is not like {mapping.lines} (`lines` in a mapping file says another")
    with pytest.raises(UsageError, match="lines is no regular expression"):
        make_mapping({"lines": "("}, "here")


@pytest.mark.parametrize("suffix", ["log", "txt", "jsonl"])
@pytest.mark.parametrize("names", ["ann bob", "1 2"])
def test_a_text_log_without_a_preset(inline: Checker, tmp_path: Path, suffix: str, names: str) -> None:
    author, other = names.split()
    told = [f"2026-11-18 08:22:1{n} {who} {what} {n % 2}" for n, (who, what) in enumerate([
        (author, "sent"), (author, "sent"), (other, "got"), (other, "got"),
    ])]  # fmt: skip
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / f"app.{suffix}").write_text("\n".join([*told[:3], "# restart", told[3]]))
    mapping = make_mapping(
        {
            "lines": r"(?P<at>\S+ \S+) (?P<node>\S+) (?P<what>\w+) (?P<id>\S+)",
            "columns": {"member": "node", "event": "what", "seq": "id", "time_ns": "at"},
            "events": {"sent": "send", "got": "deliver"},
            "constants": {"run": "r"},
        },
        "here",
    )
    for trace in (tmp_path / "logs", tmp_path / "logs" / f"app.{suffix}"):
        totals, found = inline.check(trace, mapping)
        assert (totals.events, sum(totals.quarantined.values()), found["fifo"].examined) == (4, 1, 2)
        ignoring = msgspec.structs.replace(mapping, other_lines="ignored")
        totals, found = inline.check(trace, ignoring)
        assert (totals.events, totals.quarantined, found["fifo"].verdict) == (4, {}, "holds")


@pytest.mark.parametrize("way", ["capitals", "semicolons", "inside", "list", "many lines", "mark"])
def test_other_ways_to_write_the_same(inline: Checker, tmp_path: Path, way: str) -> None:
    records = [
        {"client": who, "op": op, "subject": "s", "id": f"m{n}"}
        for n in range(3)
        for who, op in (("ann", "pub"), ("bob", "msg"))
    ]
    trace = tmp_path / ("log.csv" if way == "semicolons" else "log.json")
    if way == "capitals":
        lines(trace, [{key.title(): value for key, value in record.items()} for record in records])
    elif way == "semicolons":
        rows = [";".join(records[0]), *(";".join(record.values()) for record in records)]
        trace.write_bytes("\r\n".join(rows).encode())
    elif way == "inside":
        lines(trace, [record | {"id": None, "headers": {"Nats-Msg-Id": record["id"]}} for record in records])
    elif way == "list":
        trace.write_text(json.dumps(records))
    elif way == "many lines":
        trace.write_text("\n".join(json.dumps(record, indent=2) for record in records))
    else:
        trace.write_bytes(b"\xef\xbb\xbf" + lines(trace, records).read_bytes())
    totals, found = inline.check(trace, Mapping(preset="nats"))
    assert (totals.quarantined, totals.events, found["fifo"].examined) == ({}, 6, 3)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_marks_and_counts_of_deliveries(inline: Checker, tmp_path: Path, suffix: str) -> None:
    """A 1 is a mark, but where deliveries are counted it is the first."""
    told = [{"client": "ann", "op": "publish", "topic": "t", "id": "a"}]
    told += [{"client": "bob", "op": "message", "topic": "t", "id": "a", "dup": mark} for mark in (0, 1)]
    told += [{"client": "eve", "op": "message", "topic": "t", "id": "a", "num_delivered": count} for count in (1, 2)]
    told += [{"client": "kim", "op": "message", "topic": "t", "id": "a", "num_delivered": count} for count in (1, 1)]
    if suffix == "jsonl":
        trace = lines(tmp_path / "log.jsonl", told)
    else:
        names = ["client", "op", "topic", "id", "dup", "num_delivered"]
        rows = [",".join(names), *(",".join(str(record.get(name, "")) for name in names) for record in told)]
        trace = tmp_path / "log.csv"
        trace.write_text("\n".join(rows))
    mapping = {"columns": {"redelivered": "dup"}}, {"columns": {"redelivered": "num_delivered"}}
    by_mark, by_count = (
        inline.check(trace, msgspec.structs.replace(make_mapping(one, "here"), preset="mqtt"))[1]["redelivery"]
        for one in mapping
    )
    assert (by_mark.violations, by_count.violations) == (2, 2)  # those whose marks are under another key, and kim
    assert {one.member for one in by_count.witnesses} != {one.member for one in by_mark.witnesses}


def test_keys_as_java_writes_them(inline: Checker, tmp_path: Path) -> None:
    told = [{"clientId": "p-1", "event": "produced", "topic": "t", "partition": 0, "offset": at} for at in range(3)]
    told += [
        {"clientId": "c-1", "groupId": "g", "event": "consumed", "topic": "t", "partition": 0, "offset": at}
        for at in (0, 2, 1)
    ]
    totals, found = inline.check(lines(tmp_path / "log.jsonl", told), Mapping(preset="kafka"))
    assert {*totals.names.values()} == {"c-1", "p-1"}
    assert found["at-least-once"].examined == 3
    [late] = found["partition-order"].witnesses
    assert "both in t partition 0" in late.why


def test_keys_inside_of_objects_as_others_write_them(inline: Checker, tmp_path: Path) -> None:
    told = [
        {"client": who, "op": op, "routingKey": "q", "queue": "q", "properties": {"messageId": f"m{n}"}}
        for who, op in (("shop", "publish"), ("worker", "deliver"))
        for n in range(3)
    ]
    totals, found = inline.check(lines(tmp_path / "log.jsonl", told), Mapping(preset="amqp"))
    assert (totals.quarantined, totals.events, found["integrity"].verdict) == ({}, 6, "holds")
    inner = [
        {"level": "info", "data": {"node": who, "op": op, "id": "a"}} for who, op in (("n1", "send"), ("n2", "recv"))
    ]
    with pytest.raises(UsageError, match=r'"member" = "data.node"(.|\n)*"recv" = "deliver"'):
        inline.check(lines(tmp_path / "inner.jsonl", inner))


def test_records_as_java_prints_them(inline: Checker, tmp_path: Path) -> None:
    text = (
        "12:00:01,5 INFO got ConsumerRecord(topic = t, partition = 1, leaderEpoch = 0, offset = {}, CreateTime = {}, x)"
    )
    (tmp_path / "worker.log").write_text("".join(text.format(at, 1_763_000_000_000 + at) + "\n" for at in (4, 3)))
    totals, found = inline.check(tmp_path, Mapping(preset="kafka", sends="unrecorded"), unrecorded_sends=True)
    assert {*totals.names.values()} == {"worker", "t/1"}
    assert found["partition-order"].violations == 1


@pytest.mark.parametrize("listed", [["1-0", "2-0", "3-0"], [[f"{n}-0", {"a": "b"}] for n in (1, 2, 3)]])
def test_what_was_claimed(inline: Checker, tmp_path: Path, listed: list[Any]) -> None:
    """A claim tells of several messages at once, and that they were given to another before."""
    told: list[dict[str, Any]] = [{"client": "till", "op": "XADD", "stream": "s", "id": f"{n}-0"} for n in (1, 2, 3)]
    told += [{"consumer": "a", "op": "XREADGROUP", "group": "g", "stream": "s", "id": f"{n}-0"} for n in (1, 2, 3)]
    key = "ids" if isinstance(listed[0], str) else "entries"
    told += [{"consumer": "b", "op": "XAUTOCLAIM", "group": "g", "stream": "s", key: listed}] * 2
    told += [{"consumer": "b", "op": "XACK", "group": "g", "stream": "s"}, {"consumer": "c", "op": "XCLAIM"}]
    totals, found = inline.check(lines(tmp_path / "log.jsonl", told), Mapping(preset="redis-streams"))
    assert (found["at-most-once"].violations, found["redelivery"].violations) == (6, 0)
    assert {*totals.names.values()} == {"a", "b", "till"}  # of c no row could be read
    assert sum(totals.quarantined.values()) == 1


ENTRIES = [["1-0", {"a": "b"}], ["2-0", {}], ["3-0", ["a", "b"]]]
REPLIES: dict[str, list[dict[str, Any]]] = {
    "RESP2": [{"streams": [["s", ENTRIES[:2]], ["t", [["1-0", None]]]]}, {"streams": [["s", ENTRIES[2:]]]}],
    "RESP3": [{"reply": {"s": ENTRIES, "t": [["1-0", {}]]}}],
    "redis-py's RESP3": [{"response": {"s": [ENTRIES], "t": [[["1-0", {}]]]}}],
    "what was asked for": [{"streams": {"s": ">", "t": ">"}, "result": [["s", ENTRIES], ["t", [["1-0", {}]]]]}],
    "names": [{"streams": ["s", "t"], "messages": [["s", ENTRIES], ["t", [["1-0", {}]]]]}],
    "nothing": [{"streams": []}, {"reply": None}, {"reply": {}}, {"result": [["s", []]]}, {"streams": {"s": ENTRIES}}],
}


@pytest.mark.parametrize("form", REPLIES)
@pytest.mark.parametrize("word", ["XREAD", "xreadgroup"])
def test_replies_as_they_come(inline: Checker, tmp_path: Path, form: str, word: str) -> None:
    """What Redis replies names streams and has their entries; a record may have it as it came."""
    told: list[dict[str, Any]] = [{"client": "till", "op": "XADD", "stream": "s", "id": f"{n}-0"} for n in (1, 2, 3)]
    told += [{"client": "till", "op": "XADD", "stream": "t", "id": "1-0"}]
    told += [{"consumer": "a", "op": word, "group": "g", **reply} for reply in REPLIES[form]]
    totals, found = inline.check(lines(tmp_path / "log.jsonl", told), Mapping(preset="redis-streams"))
    delivered = 3 if form == "nothing" else 4
    assert (totals.quarantined, totals.events) == ({}, 2 * 4 + delivered)
    assert found["partition-order"].examined == delivered
    assert found["at-least-once"].verdict == "holds"


def test_what_xautoclaim_replies(inline: Checker, tmp_path: Path) -> None:
    """The reply begins with the id to go on from, and ends with those of entries that are gone."""
    told: list[dict[str, Any]] = [{"client": "till", "op": "XADD", "stream": "s", "id": f"{n}-0"} for n in (1, 2)]
    told += [{"consumer": "a", "op": "xautoclaim", "group": "g", "stream": "s", "reply": ["2-0", ENTRIES[:2], ["9-0"]]}]
    told += [{"consumer": "a", "op": "xclaim", "group": "g", "stream": "s", "reply": [ENTRIES[0], None]}]
    totals, found = inline.check(lines(tmp_path / "log.jsonl", told), Mapping(preset="redis-streams"))
    assert (totals.quarantined, found["at-most-once"].examined, found["at-most-once"].violations) == ({}, 3, 1)


OTHER_WORKLOADS = {
    "a register": "{:process 0 :type :ok :f :write :value 3} {:process 1 :type :ok :f :read :value 3}",
    "transactions": "{:process 0 :type :ok :f :txn :value [[:append 3 1] [:r 3 [1]]]}",
    "a bank": "{:process 0 :type :ok :f :transfer :value {:from 0 :to 1}} {:process 1 :type :ok :f :read :value {0 5}}",
}


@pytest.mark.parametrize("workload", OTHER_WORKLOADS)
def test_histories_without_messages_are_refused(inline: Checker, tmp_path: Path, workload: str) -> None:
    (tmp_path / "history.edn").write_text(OTHER_WORKLOADS[workload])
    with pytest.raises(UsageError, match="of a workload without messages"):
        inline.check(tmp_path / "history.edn", Mapping(preset="jepsen"))


def test_a_counter_is_no_set(inline: Checker, tmp_path: Path) -> None:
    told = "{:process 0 :type :invoke :f :add :value 1} {:process 1 :type :ok :f :read :value 1}"
    (tmp_path / "history.edn").write_text(told)
    totals, found = inline.check(tmp_path / "history.edn", Mapping(preset="jepsen"))
    assert [*totals.reasons] == [
        "a read of one value, as of a register or a counter; a read of a set gives a list of messages"
    ]
    assert found["integrity"].verdict == "unknown"


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


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("names", [True, False])
def test_a_word_that_is_no_event(inline: Checker, tmp_path: Path, suffix: str, names: bool) -> None:
    """A mapping gives a word no meaning: its rows are neither events nor put aside."""
    told = [
        {
            "run": "r",
            "member": "ann" if names else 1,
            "step": n,
            "event": event,
            "sender": "ann" if names else 1,
            "seq": 1,
        }
        for n, event in enumerate(("send", "ping", "deliver"), 1)
    ]
    if suffix == "jsonl":
        trace = lines(tmp_path / "log.jsonl", told)
    else:
        trace = tmp_path / "log.csv"
        trace.write_text("\n".join([",".join(told[0]), *(",".join(map(str, one.values())) for one in told)]))
    totals, _ = inline.check(trace, Mapping())
    [reason] = totals.reasons
    assert (totals.events, reason.startswith("event is")) == (2, True)
    assert '""' in reason  # the remedy
    totals, _ = inline.check(trace, make_mapping({"events": {"ping": ""}}, "here"))
    assert (totals.events, totals.quarantined) == (2, {})


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


def test_a_file_that_is_no_log_is_refused(inline: Checker, tmp_path: Path) -> None:
    """Its lines have more fields than its first, none of which means anything."""
    (tmp_path / "log.csv").write_bytes(bytes(range(256)))
    with pytest.raises(UsageError, match=r"log\.csv"):
        inline.check(tmp_path / "log.csv", mapping_of(argparse.Namespace(mapping=None, preset="nats", sends=None)))


def test_a_trace_is_no_log(inline: Checker, tmp_path: Path) -> None:
    rows = [{"run": "r", "member": 1, "step": n, "event": "send", "sender": 1, "seq": n} for n in (1, 2)]
    with pytest.raises(UsageError, match=r"it is a trace, without --from$"):
        inline.check(lines(tmp_path / "trace.jsonl", rows), Mapping(preset="kafka"))
    with pytest.raises(UsageError, match="no row can be read as an event"):  # JSON is read as EDN as far as it goes
        inline.check(lines(tmp_path / "odd.jsonl", [{"a": [{"b": {"c": 1}}, {"d": 2}]}]), Mapping(preset="jepsen"))


NESTED_LOG = [
    {"at": 5, "svc": {"name": name}, "kind": f"bus.{word}", "msg": {"headers": {"Msg-Id": one}}}
    for name, word, one in (
        ("a", "publish", "x"),
        ("a", "publish", "y"),
        ("b", "received", "y"),
        ("b", "received", "x"),
    )
]
LOGFMT = "".join(
    f'ts=17 level=info service={one["svc"]["name"]} event="{one["kind"]}" msg_id={one["msg"]["headers"]["Msg-Id"]}\n'
    for one in NESTED_LOG
)


@pytest.mark.parametrize("name", ["log.jsonl", "svc.log"])
@pytest.mark.parametrize("preset", ["", "nats"])
def test_a_mapping_that_is_suggested_reads_it(inline: Checker, tmp_path: Path, name: str, preset: str) -> None:
    """Keys inside of objects and words with prefixes; pairs of key and value in a text."""
    trace = tmp_path / name
    if name == "svc.log":
        trace.write_text(LOGFMT)
    else:
        lines(trace, NESTED_LOG)
    with pytest.raises(UsageError, match="would read most of it") as refused:
        inline.check(trace, Mapping(preset=preset))
    said = str(refused.value).partition("would read most of it:\n")[2]
    totals, found = inline.check(trace, make_mapping(tomllib.loads(said), "said"))
    assert (totals.quarantined, sorted(totals.names.values())) == ({}, ["a", "b"])
    assert (found["fifo"].examined, found["fifo"].violations) == (2, 1)


def test_keys_are_named_where_nothing_reads_them(inline: Checker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"its records have alpha, beta\.gamma; a mapping file"):
        inline.check(lines(tmp_path / "log.jsonl", [{"alpha": 1, "beta": {"gamma": 2}}]), Mapping(preset="nats"))


@pytest.mark.parametrize("preset", ["nats", "amqp", "mqtt"])
def test_who_acknowledges(inline: Checker, tmp_path: Path, preset: str) -> None:
    """A publisher's `ack` is the broker's, a consumer's is its own; the second message is lost."""
    topic = {"nats": "subject", "amqp": "routing_key", "mqtt": "topic"}[preset]
    records = [{"client": "w", "op": "subscribe" if preset != "amqp" else "consume", topic: "t"}]
    records += [{"client": "p", "op": op, "id": one, topic: "t"} for one in "xy" for op in ("publish", "ack")]
    records += [{"client": "w", "op": op, "id": "x", topic: "t"} for op in ("message", "ack")]
    records += [{"client": "w", "op": "acked", "delivery_tag": "7"}]
    trace = lines(tmp_path / "live" / "log.jsonl", records)
    totals, found = inline.check(trace, Mapping(preset=preset))
    assert (totals.quarantined, totals.events) == ({}, 6)
    assert [one.why for one in found["at-least-once"].witnesses] == [
        "member 2 never takes message 2 of 1, which the broker acknowledged"
    ]
    for batches in (1, 3):
        checkpoint = str(tmp_path / f"watch-{batches}")
        text = trace.read_text().splitlines(keepends=True)
        watch = DirectoryWatch(
            Inline(2), str(tmp_path / "live"), checkpoint, lambda *_: None, mapping=Mapping(preset=preset)
        )
        for number in range(1, batches + 1):
            trace.write_text("".join(text[: len(text) * number // batches]))
            watch.run(once=True)
        finding = watch.conclude().findings["at-least-once"]
        assert (finding.examined, finding.violations, finding.inexact) == (2, 1, 0)


def watched(folder: Path, trace: Path, preset: str, batches: int) -> Any:
    """Watch a log that grows in so many steps, and conclude."""
    text = trace.read_text().splitlines(keepends=True)
    live = folder / f"live-{batches}"
    live.mkdir()
    watch = DirectoryWatch(
        Inline(2), str(live), str(folder / f"watch-{batches}"), lambda *_: None, mapping=Mapping(preset=preset)
    )
    for number in range(1, batches + 1):
        (live / trace.name).write_text("".join(text[: len(text) * number // batches]))
        watch.run(once=True)
    return watch.conclude()


def publishes(*ids: str, **said: Any) -> list[dict[str, Any]]:
    return [{"client": "p", "op": "publish", "message_id": one, "routing_key": "t", **said} for one in ids]


def told(op: str, tag: int, **said: Any) -> dict[str, Any]:
    return {"client": "p", "op": op, "delivery_tag": tag, **said}


# a publisher's log, how many of its messages the broker has acknowledged, and how many tags make no sense
TAGS: dict[str, tuple[list[dict[str, Any]], int, int]] = {
    "one by one": ([*publishes("a", "b", "c"), told("confirm", 2), told("confirm", 1)], 2, 0),
    "all before": ([*publishes("a", "b", "c"), told("ack", 3, multiple=True)], 3, 0),
    "all": ([*publishes("a", "b", "c"), told("ack", 0, multiple=True)], 3, 0),
    "frames": ([*publishes("a", "b"), told("Basic.Ack", 2, multiple="True")], 2, 0),
    "some were refused": (
        [*publishes("a", "b", "c"), told("nack", 2), told("confirm", 3, multiple=True)],
        2,
        0,
    ),
    "channels": (
        [
            *publishes("a", channel=1),
            *publishes("b", "c", channel=2),
            told("confirm", 2, channel=2),
            told("confirm", 1, channel=1),
        ],
        2,
        0,
    ),
    "a channel that only publishes tell": ([*publishes("a", "b", channel=4), told("confirm", 1)], 1, 0),
    "a channel that only confirms tell": ([*publishes("a", "b"), told("confirm", 1, channel=4)], 1, 0),
    "connected again": (
        [
            *publishes("a", "b"),
            {"client": "p", "op": "connection_lost"},
            *publishes("c", "d"),
            told("confirm", 2, multiple=True),
        ],
        2,
        0,
    ),
    "confirm mode from here on": (
        [*publishes("a"), {"client": "p", "op": "Confirm.Select"}, *publishes("b"), told("confirm", 1)],
        1,
        0,
    ),
    "tags of publishes": (
        [*publishes("a", delivery_tag=7), *publishes("b", delivery_tag=8), told("ack", 7)],
        1,
        0,
    ),
    "a log that begins late": ([*publishes("a", "b"), told("confirm", 57), told("confirm", 2)], 0, 2),
    "connected again unsaid": (
        [*publishes("a", "b"), told("confirm", 2, multiple=True), *publishes("c"), told("confirm", 1)],
        2,
        1,
    ),
    "a consumer's own": (
        [
            *publishes("a", "b"),
            {"client": "p", "op": "deliver", "message_id": "a", "routing_key": "t", "queue": "r", "delivery_tag": 1},
            told("ack", 1),
            told("nack", 2),
        ],
        0,
        0,
    ),
    "nothing was published": ([*publishes("a")[:0], told("ack", 1), *publishes("a")], 0, 0),
}


@pytest.mark.parametrize("case", TAGS)
def test_confirms_by_delivery_tag(inline: Checker, tmp_path: Path, case: str) -> None:
    """The n-th message that a channel publishes is its tag n, as clients' callbacks name it."""
    records, acknowledged, doubtful = TAGS[case]
    trace = lines(
        tmp_path / "log.jsonl", [{"client": "w", "op": "consume", "queue": "t", "routing_key": "t"}, *records]
    )
    totals, found = inline.check(trace, Mapping(preset="amqp"))
    assert (totals.quarantined, found["at-least-once"].examined) == (
        {"control": doubtful} if doubtful else {},
        acknowledged + (case == "a consumer's own"),
    )
    for reason, example in totals.examples.items():
        assert (reason.startswith("the acknowledgment of delivery tag"), "log.jsonl row" in example) == (True, True)
    for batches in (1, 3):
        final = watched(tmp_path, trace, "amqp", batches)
        assert (final.quarantined, final.findings["at-least-once"].examined) == (
            totals.quarantined,
            found["at-least-once"].examined,
        )


def test_records_that_were_written_twice(inline: Checker, tmp_path: Path) -> None:
    """With the same time they may be one event, which leaves open what is known; without times they are two."""
    told = [
        {"client": who, "op": op, "message_id": f"m{n}", "routing_key": "t", "queue": queue, "ts": 1763000000000 + n}
        for n in range(6)
        for who, op, queue in (("p", "publish", None), ("p", "confirm", None), ("w", "deliver", "q"))
    ]
    again = [*told, *told[6:12], {**told[5], "ts": 1763000000099}]
    trace = lines(tmp_path / "log.jsonl", again)
    totals, found = inline.check(trace, Mapping(preset="amqp"))
    assert totals.quarantined == {"send": 2, "deliver": 2}
    assert [*totals.reasons] == ["a record that is there before, with the same time: it may have been written twice"]
    assert (found["redelivery"].verdict, found["redelivery"].violations) == ("violated", 1)  # one at another time
    assert (found["integrity"].examined, found["fifo"].violations) == (7, 1)
    for batches in (1, 4):
        final = watched(tmp_path, trace, "amqp", batches)
        assert final.quarantined == totals.quarantined
        assert (final.findings["redelivery"].violations, final.findings["fifo"].violations) == (1, 1)
    untimed = [{key: value for key, value in one.items() if key != "ts"} for one in again]
    totals, found = inline.check(lines(tmp_path / "untimed.jsonl", untimed), Mapping(preset="amqp"))
    assert (totals.quarantined, found["redelivery"].violations) == ({}, 3)


def test_a_preset_is_suggested(inline: Checker, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--from kafka would read most of it"):
        inline.check(lines(tmp_path / "log.jsonl", KAFKA))


# --- odd but ordinary logs; what is right was found by hand -----------------------------------------------------------


def exported(path: Path, *spans: dict[str, Any]) -> Path:
    """Spans as the collector writes them; `service`, `kind`, `links` and so on are no attributes."""
    exports = []
    for number, given in enumerate(spans):
        one = dict(given)
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": one.pop("service")}}]}
        written: dict[str, Any] = {"startTimeUnixNano": str(one.pop("at", number)), "kind": one.pop("kind", 0)}
        written |= {key: one.pop(key) for key in ("spanId", "parentSpanId") if key in one}
        written["links"] = [{"traceId": "00", "spanId": span} for span in one.pop("links", ())]
        told = {"destination.name": "orders", **one}
        written["attributes"] = [
            {"key": f"messaging.{key}", "value": {"intValue" if isinstance(value, int) else "stringValue": str(value)}}
            for key, value in told.items()
        ]
        exports.append({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [written]}]}]})
    return lines(path, exports)


PRODUCED = [{"service": "shop", "kind": 4, "spanId": f"p{n}", "operation.type": "send"} for n in range(3)]


def verdicts(found: dict[str, Any], *names: str) -> dict[str, tuple[str, int]]:
    return {name: (found[name].verdict, found[name].violations) for name in names}


def test_spans_with_links_instead_of_ids(inline: Checker, tmp_path: Path) -> None:
    """A batch is taken by one span with a link to each sending; the third message is never taken."""
    taken = {"service": "worker", "kind": 5, "operation.type": "receive", "links": ["p0", "p1"]}
    totals, found = inline.check(exported(tmp_path / "a.jsonl", *PRODUCED, taken), Mapping(preset="otlp"))
    assert totals.quarantined == {}
    assert verdicts(found, "integrity", "at-least-once", "partition-order") == {
        "integrity": ("holds", 0),
        "at-least-once": ("violated", 1),
        "partition-order": ("holds", 0),
    }


def test_spans_that_were_exported_twice(inline: Checker, tmp_path: Path) -> None:
    """A span has an id: there twice, it is left out and counted, and changes nothing."""
    taken = [{"service": "worker", "kind": 5, "links": [f"p{n}"], "spanId": f"t{n}"} for n in range(3)]
    once = exported(tmp_path / "once.json", *PRODUCED, *taken).read_text().splitlines(keepends=True)
    (tmp_path / "twice.json").write_text("".join(once + once[1:5]))
    totals, found = inline.check(tmp_path / "twice.json", Mapping(preset="otlp"))
    before, expected = inline.check(tmp_path / "once.json", Mapping(preset="otlp"))
    assert (totals.events, totals.quarantined) == (before.events + 2, {"repeated": 4})  # what is acknowledged again
    assert [reason.partition(",")[0] for reason in totals.reasons] == ["a span that is there before"]
    assert found == expected
    assert (found["at-most-once"].verdict, found["at-most-once"].examined) == ("holds", 3)


def test_spans_whose_producers_do_not_know_the_offset(inline: Checker, tmp_path: Path) -> None:
    """Consumers say offset and parent, producers neither id nor offset; what is processed refers to its receipt."""
    consumed = []
    for n in range(3):
        where = {"kafka.message.offset": n, "kafka.destination.partition": 0, "kafka.consumer.group": "g"}
        receipt = {"service": "worker", "spanId": f"r{n}", "parentSpanId": f"p{n}", "operation": "receive", **where}
        consumed += [receipt, {"service": "worker", "parentSpanId": f"r{n}", "operation": "process", **where}]
    totals, found = inline.check(exported(tmp_path / "a.jsonl", *PRODUCED, *consumed), Mapping(preset="otlp"))
    assert totals.quarantined == {}
    assert verdicts(found, "integrity", "at-least-once", "at-most-once") == {
        "integrity": ("holds", 0),
        "at-least-once": ("holds", 0),
        "at-most-once": ("holds", 0),
    }


def test_one_service_logs_receipts_and_another_what_it_processes(inline: Checker, tmp_path: Path) -> None:
    sent = {"service": "shop", "operation.type": "send", "message.id": "m"}
    taken = [
        {"service": "mailer", "operation.type": "receive", "message.id": "m"},
        {"service": "biller", "operation.type": "receive", "message.id": "m"},
        {"service": "biller", "operation.type": "process", "message.id": "m"},
    ]
    _, found = inline.check(exported(tmp_path / "a.jsonl", sent, *taken), Mapping(preset="otlp"))
    assert verdicts(found, "at-least-once", "at-most-once") == {
        "at-least-once": ("holds", 0),
        "at-most-once": ("holds", 0),
    }


def mqtt(began: int, heard: tuple[int, ...]) -> list[dict[str, Any]]:
    told = [{"client_id": "hub", "op": "subscribe", "filter": "home/#", "time": began * 1000}]
    for n in range(1, 6):
        message = {"client_id": "sensor", "topic": "home/hall", "message_id": f"u-{n}", "time": n * 1000}
        told += [{**message, "op": "publish"}, {**message, "op": "puback"}]
    got = {"client_id": "hub", "op": "message", "topic": "home/hall"}
    return [*told, *({**got, "message_id": f"u-{n}", "time": n * 1000 + 1} for n in heard)]


@pytest.mark.parametrize(
    ("began", "heard", "missing"),
    [(0, (1, 2, 3, 4, 5), 0), (0, (1, 2, 4, 5), 1), (0, (4, 5), 3), (3, (4, 5), 0), (3, (4,), 1), (9, (), 0)],
)
def test_a_subscriber_is_owed_what_comes_after_it(
    inline: Checker, tmp_path: Path, began: int, heard: tuple[int, ...], missing: int
) -> None:
    _, found = inline.check(lines(tmp_path / "m.jsonl", mqtt(began, heard)), Mapping(preset="mqtt"))
    assert found["at-least-once"].violations == missing
    assert found["at-least-once"].verdict != "holds" or not missing


@pytest.mark.parametrize(
    ("preset", "began", "late"),
    [
        ("kafka", {"op": "subscribe", "auto.offset.reset": "latest"}, True),
        ("kafka", {"op": "subscribe", "auto.offset.reset": "earliest"}, False),
        ("redis-streams", {"op": "xgroup_create", "id": "$"}, True),
        ("redis-streams", {"op": "xgroup_create", "id": "0"}, False),
        ("nats", {"op": "subscribe", "deliver_policy": "new"}, True),
        ("nats", {"op": "subscribe", "deliver_policy": "all"}, False),
    ],
)
def test_a_group_that_begins_late(
    inline: Checker, tmp_path: Path, preset: str, began: dict[str, Any], late: bool
) -> None:
    """Ten messages are acknowledged; the group is given the last five."""
    topic = {"kafka": "topic", "redis-streams": "stream", "nats": "subject"}[preset]
    group = "durable" if preset == "nats" else "group"
    log = [{"client": "c", topic: "t", group: "g", **began}]
    for n in range(10):
        one = {"kafka": {"partition": 0, "offset": n}, "redis-streams": {"id": f"17-{n}"}, "nats": {"seq": n + 1}}[
            preset
        ]
        words = {"kafka": ("delivered",), "redis-streams": ("xadd",), "nats": ("publish", "puback")}[preset]
        log += [{"client": "p", "op": word, topic: "t", **one} for word in words]
        take = {"kafka": "consume", "redis-streams": "xreadgroup", "nats": "msg"}[preset]
        log += [{"client": "c", "op": take, topic: "t", group: "g", **one}] if n >= 5 else []
    totals, found = inline.check(lines(tmp_path / "l.jsonl", log), Mapping(preset=preset))
    assert totals.quarantined == {}
    assert verdicts(found, "integrity", "at-least-once") == {
        "integrity": ("holds", 0),
        "at-least-once": ("holds", 0) if late else ("violated", 5),
    }


def test_the_default_exchange(inline: Checker, tmp_path: Path) -> None:
    """Consumers name the queue alone; one message is returned to the queue, one is lost."""
    log: list[dict[str, Any]] = [{"client": "w1", "op": "consume", "queue": "jobs"}]
    for n in range(3):
        log += [
            {"client": "web", "op": op, "routing_key": "jobs", "message_id": f"j{n}"} for op in ("publish", "confirm")
        ]
    log += [{"client": "w1", "op": "deliver", "queue": "jobs", "message_id": "j0", "redelivered": False}]
    log += [{"client": "w2", "op": "deliver", "queue": "jobs", "message_id": "j0", "redelivered": True}]
    log += [{"client": "w2", "op": "deliver", "queue": "jobs", "message_id": "j1", "redelivered": False}]
    totals, found = inline.check(lines(tmp_path / "a.jsonl", log), Mapping(preset="amqp"))
    assert totals.quarantined == {}
    assert verdicts(found, "integrity", "at-least-once", "at-most-once", "redelivery") == {
        "integrity": ("holds", 0),
        "at-least-once": ("violated", 1),
        "at-most-once": ("violated", 1),
        "redelivery": ("holds", 0),
    }


def test_a_history_with_a_nemesis(inline: Checker, tmp_path: Path) -> None:
    """What a crashed process enqueued may or may not be there; a failed one was never acknowledged; 2 is lost."""
    (tmp_path / "history.edn").write_text(
        """{:index 0 :time 1 :process :nemesis :type :info :f :start-partition :value [:isolated {"n1" #{"n2"}}]}
        {:index 1 :time 2 :process 0 :type :invoke :f :enqueue :value 1}
        {:index 2 :time 3 :process 0 :type :info :f :enqueue :value 1 :error :timeout}
        {:index 3 :time 4 :process 3 :type :invoke :f :enqueue :value 2}
        {:index 4 :time 5 :process 3 :type :ok :f :enqueue :value 2}
        {:index 5 :time 6 :process 1 :type :invoke :f :enqueue :value 3}
        {:index 6 :time 7 :process 1 :type :fail :f :enqueue :value 3 :error [:not-leader "n1"]}
        {:index 7 :time 8 :process :nemesis :type :info :f :stop-partition :value nil}
        {:index 8 :time 9 :process 2 :type :invoke :f :dequeue :value nil}
        {:index 9 :time 10 :process 2 :type :ok :f :dequeue :value 1}
        {:index 10 :time 11 :process 2 :type :invoke :f :dequeue :value nil}
        {:index 11 :time 12 :process 2 :type :fail :f :dequeue :value nil :error :empty}"""
    )
    totals, found = inline.check(tmp_path / "history.edn", Mapping(preset="jepsen"))
    assert totals.quarantined == {}
    assert verdicts(found, "integrity", "at-least-once", "at-most-once") == {
        "integrity": ("holds", 0),
        "at-least-once": ("violated", 1),
        "at-most-once": ("holds", 0),
    }


def test_numbers_by_arrays_are_those_of_the_definition(inline: Checker, tmp_path: Path) -> None:
    """Ids that several send, that nobody sends, and whose author is known or not: numbered as the loops would."""
    rng = random.Random(5)
    names, ids = ["ann", "bob", "cid"], [f"id-{n}" for n in range(12)]
    records = [
        {
            "run": "r",
            "member": (member := rng.choice(names)),
            "step": step,
            "event": (event := rng.choice(["send", "deliver", "deliver"])),
            "sender": member if event == "send" else rng.choice([*names, None, None]),
            "seq": rng.choice(ids),
        }
        for step in range(1, 300)
    ]
    numbers: dict[tuple[str, str], int] = {}
    count: Counter[str] = Counter()
    author_of: dict[str, str] = {}

    def number(author: str, one: str) -> int:
        if (author, one) not in numbers:
            count[author] += 1
            numbers[author, one] = count[author]
        return numbers[author, one]

    in_order = sorted(records, key=lambda row: (row["member"], row["step"]))
    for row in in_order:
        if row["event"] == "send":
            number(row["member"], row["seq"])
            author_of.setdefault(row["seq"], row["member"])
    expected = {
        (row["member"], row["step"]): (author, number(author, row["seq"]))
        for row in in_order
        for author in [row["sender"] or author_of.get(row["seq"], "?")]
    }
    laid = lay_out_trace(Inline(), str(lines(tmp_path / "log.jsonl", records)), tmp_path / "layout", None)
    names_of = {**laid.totals.names}
    rows = EventWindows(TraceLayout(laid.folder)).read("r", columns=("member", "step", "sender", "seq")).to_pylist()
    assert {
        (names_of[row["member"]], row["step"]): (names_of.get(row["sender"], "?"), row["seq"]) for row in rows
    } == expected


def test_a_list_says_what_its_first_element_does(tmp_path: Path) -> None:
    """RabbitMQ's tracing plugin gives all routing keys of a message; of what is published the queue is "none"."""

    def traced(kind: str, connection: str, queue: str, number: int) -> dict[str, Any]:
        return {
            "type": kind,
            "connection": f"127.0.0.1:{connection} -> 127.0.0.1:5672",
            "queue": queue,
            "routed_queues": ["orders"] if kind == "published" else "none",
            "routing_keys": ["orders.new", "copies"],
            "properties": {"message_id": f"m{number}", "delivery_mode": 2},
            "timestamp": f"2026-11-18 6:12:0{number}:123",
        }

    records = [traced("published", "1", "none", number) for number in (1, 2)]
    records += [traced("received", "2", "orders", number) for number in (1, 2)]
    log = lines(tmp_path / "trace.jsonl", records)
    laid = lay_out_trace(Inline(), str(log), tmp_path / "layout", Mapping(preset="amqp"))
    assert (laid.totals.events, laid.totals.quarantined) == (4, {})
    amqp = form.form_of(Mapping(preset="amqp"))
    assert {amqp.text(record, "topic") for record in records} == {"orders.new"}


@pytest.mark.parametrize("name", ["spans.json", "spans.json.zst", "spans.json.gz", "spans.bin"])
def test_compressed_spans_are_read_whatever_their_name(tmp_path: Path, name: str) -> None:
    """A collector that compresses writes each export by itself, behind its length, into a file of any name."""

    def export(number: int) -> bytes:
        attributes = {"messaging.operation.type": "send", "messaging.message.id": f"m{number}"}
        attributes |= {"messaging.destination.name": "t", "messaging.client.id": "p"}
        listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        span = {"traceId": "1" * 32, "spanId": f"{number:016x}", "kind": 4, "attributes": listed}
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()

    def packed(content: bytes, codec: str) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()

    exports = [export(number) for number in range(1, 4)]
    if name in ("spans.json", "spans.bin"):
        content = b"".join(struct.pack(">I", len(one)) + one for one in (packed(one, "zstd") for one in exports))
    else:
        content = packed(b"\n".join(exports), "zstd" if name.endswith("zst") else "gzip")
    (tmp_path / name).write_bytes(content)
    laid = lay_out_trace(Inline(), str(tmp_path / name), tmp_path / "layout", Mapping(preset="otlp"))
    assert (laid.totals.events, laid.totals.quarantined) == (6, {})  # each was sent, and acknowledged
