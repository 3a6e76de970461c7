"""Logs of other systems are watched as they grow: names and ids become numbers, and verdicts are those of a check."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import UsageError
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.results import WatchCommit, read_alarms
from antiphon.pipeline.watch import DirectoryWatch, translate
from antiphon.trace.schema import BROKER_GUARANTEES
from pipeline.conftest import Checker
from pipeline.test_foreign_logs import KAFKA, RECORDED, RECORDINGS, lines
from pipeline.test_watch import GUARANTEES
from support.planting import sample

JUDGED = (*GUARANTEES, *BROKER_GUARANTEES)


def watcher(folder: Path, mapping: Mapping | None = None, **options: Any) -> DirectoryWatch:
    (folder / "live").mkdir(parents=True, exist_ok=True)
    return DirectoryWatch(
        Inline(2), str(folder / "live"), str(folder / "watch"), lambda *_: None, mapping=mapping, **options
    )


def grow(folder: Path, logs: dict[str, bytes], parts: int, mapping: Mapping | None, **options: Any) -> DirectoryWatch:
    """Let logs grow, byte by byte as it happens, with a fresh watcher after each part, as after a restart."""
    for part in range(1, parts + 1):
        for name, text in logs.items():
            (folder / "live").mkdir(parents=True, exist_ok=True)
            with (folder / "live" / name).open("ab") as log:
                log.write(text[len(text) * (part - 1) // parts : len(text) * part // parts])
        one = watcher(folder, mapping, **options)
        unread = one.files.unread()
        if unread:
            one.batch(unread)
    final = watcher(folder, mapping, **options)
    final.run(once=True)
    return final


def said(found: WatchCommit, names: tuple[str, ...] = JUDGED) -> dict[str, tuple[str, int, int]]:
    verdicts = found.verdicts()
    return {
        name: (verdicts[name], one.examined, one.violations)
        for name, one in found.findings.items()
        if name in names and not one.inexact
    }


@pytest.mark.parametrize("system", RECORDINGS)
def test_recordings_that_grow(inline: Checker, tmp_path: Path, system: str) -> None:
    """What is cut anywhere, in the middle of a line too, and read in five parts is judged as the whole is."""
    mapping = Mapping(preset=system)
    logs = {file.name: file.read_bytes() for file in sorted((RECORDED / system).glob("*.jsonl"))}
    one = grow(tmp_path, logs, 5, mapping)
    final = one.conclude()
    _, expected = inline.check(RECORDED / system, mapping)
    found = said(final)
    assert found == {
        name: (expected[name].verdict, expected[name].examined, expected[name].violations) for name in found
    }
    assert {*BROKER_GUARANTEES, "integrity", "fifo"} <= found.keys()
    assert final.quarantined == {}
    assert {file.removesuffix(".jsonl") for file in logs} <= {*final.names.values()}
    assert "at-least-once" in (final.promises or ())


@pytest.mark.parametrize("sender", [True, False])
def test_names_and_ids_as_text(inline: Checker, tmp_path: Path, sender: bool) -> None:
    """A send may be read after the deliveries of its message: each member's log is a file, and they grow unevenly."""
    events = [e for e in sample(3).events if e.event in ("send", "deliver", "discard", "crash", "leave", "end")]
    logs: dict[str, list[str]] = {}
    for event in events:
        about = event.seq is not None
        record = {"run": "r", "member": f"node-{event.member}", "step": event.step, "event": event.event}
        record["sender"] = f"node-{event.sender}" if sender and about else None
        one = f"{event.sender} {event.seq}"
        record["message_id"] = str(uuid.uuid5(uuid.NAMESPACE_OID, one)) if about else None
        logs.setdefault(f"{event.member}.jsonl", []).append(json.dumps(record) + "\n")
    mapping = Mapping(columns={"seq": "message_id"})
    texts = {name: "".join(rows).encode() for name, rows in logs.items()}
    final = grow(tmp_path, texts, 4, mapping).conclude()
    _, expected = inline.check(tmp_path / "live", mapping)
    assert said(final) == {
        name: (expected[name].verdict, expected[name].examined, expected[name].violations) for name in GUARANTEES
    }


def test_a_topic_seen_by_its_consumers(inline: Checker, tmp_path: Path) -> None:
    mapping = Mapping(preset="kafka", sends="unrecorded")
    text = "".join(json.dumps(record) + "\n" for record in KAFKA).encode()
    one = grow(tmp_path, {"topic.jsonl": text}, 3, mapping)
    final = one.conclude()
    _, expected = inline.check(tmp_path / "live", mapping, unrecorded_sends=True)
    assert said(final) == {
        name: (expected[name].verdict, expected[name].examined, expected[name].violations) for name in JUDGED
    }
    assert final.verdicts()["integrity"] == "unknown"
    why = {alarm.why for alarm in read_alarms(tmp_path / "watch")}
    number = next(n for n, name in final.names.items() if name == "orders/0")
    assert any(f"message 2 of {number}, offset 1, after offset 2, both in orders partition 0" in one for one in why)


def test_what_a_consumer_prints_grows(tmp_path: Path) -> None:
    """A text that grows is not read again from its beginning: nothing was delivered twice."""
    text = "".join(f"CreateTime:{1_763_000_000_000 + at}\tPartition:0\tOffset:{at}\tx\n" for at in range(9)).encode()
    one = grow(tmp_path, {"worker.log": text}, 3, Mapping(preset="kafka", sends="unrecorded"))
    assert said(one.conclude(), ("at-most-once",)) == {"at-most-once": ("holds", 9, 0)}


def test_what_nobody_sent_waits_and_is_named(tmp_path: Path) -> None:
    records = [
        {"run": "r", "member": "a", "step": 1, "event": "send", "seq": "x", "time_ns": 1},
        {"run": "r", "member": "b", "step": 1, "event": "deliver", "seq": "x", "time_ns": 2},
        {"run": "r", "member": "b", "step": 2, "event": "deliver", "seq": "y", "time_ns": 3},
    ]
    lines(tmp_path / "live" / "log.jsonl", records)
    one = watcher(tmp_path)
    one.run(once=True)
    assert one.sum.waiting == 1
    assert one.conclude().verdicts()["integrity"] == "violated"
    late = {"run": "r", "member": "c", "step": 1, "event": "send", "seq": "y", "time_ns": 3}
    lines(tmp_path / "live" / "late.jsonl", [late])  # the send was only late
    one.run(once=True)
    assert one.sum.waiting == 0
    assert said(one.conclude())["integrity"] == ("holds", 2, 0)


def test_logs_that_are_rotated_or_replaced(tmp_path: Path) -> None:
    """A log that is given another name is the same log; one that is put in its place is another."""
    rows = [
        {"run": "r", "member": "a", "event": event, "seq": f"m{number}"}
        for number in range(6)
        for event in ("send", "deliver")
    ]
    log = lines(tmp_path / "live" / "a.jsonl", rows[:4])
    one = watcher(tmp_path)
    one.run(once=True)
    with log.open("a") as more:
        more.write(json.dumps(rows[4]) + "\n")
    log.rename(log.with_name("a-1.jsonl"))
    lines(log, rows[5:8])
    one = watcher(tmp_path)
    one.run(once=True)
    assert (one.sum.events, said(one.conclude())["integrity"]) == (8, ("holds", 4, 0))
    log.write_text("")  # as rotation does that copies a log and empties it
    watcher(tmp_path).run(once=True)
    lines(log, rows[8:])
    one = watcher(tmp_path)
    one.run(once=True)
    assert (one.sum.events, said(one.conclude())["integrity"]) == (12, ("holds", 6, 0))


def test_a_line_that_is_not_whole_waits(tmp_path: Path) -> None:
    text = b"".join(json.dumps({"run": "r", "member": 1, "step": n, "event": "end"}).encode() + b"\n" for n in (1, 2))
    log = tmp_path / "live" / "a.jsonl"
    log.parent.mkdir(parents=True)
    rows = b'{"run":"r","member":1,"step":1,"event":"send","sender":1,"seq":1}\n'
    log.write_bytes(rows + text[:20])
    one = watcher(tmp_path)
    one.batch(one.files.unread())
    assert one.sum.events == 1
    assert one.files.unread() == []
    log.write_bytes(rows + text)
    one.batch(one.files.unread())
    assert one.sum.events == 2  # of the rows with step 1 the one that came first
    assert one.sum.quarantined == {"end": 1}


def test_ids_that_are_over_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state does not grow with the ids; a delivery of one that is forgotten is no violation, but unknown."""
    monkeypatch.setattr(translate, "IDS_MAX", 20)
    monkeypatch.setattr(translate, "RECENT_MAX", 20)
    one = watcher(tmp_path, patience_s=0.0)
    log = tmp_path / "live" / "a.jsonl"
    sizes = []
    for batch in range(12):
        rows = [
            {"run": "r", "member": "a", "event": event, "seq": f"{batch}-{n}", "time_ns": 1000 * batch + n}
            for n in range(50)
            for event in ("send", "deliver")
        ]
        with log.open("a") as more:
            more.writelines(json.dumps(row) + "\n" for row in rows)
        one.batch(one.files.unread())
        sizes.append(max((tmp_path / "watch" / "state").iterdir()).stat().st_size)
    assert max(sizes[6:]) < 1.2 * max(sizes[:6])
    assert said(one.conclude())["integrity"] == ("holds", 600, 0)
    with log.open("a") as more:
        more.write(json.dumps({"run": "r", "member": "a", "event": "deliver", "seq": "0-3", "time_ns": 99_999}) + "\n")
    one.batch(one.files.unread())
    assert one.conclude().verdicts()["integrity"] == "unknown"


@pytest.mark.parametrize(
    "mapping", [Mapping(preset="otlp"), Mapping(preset="jepsen"), Mapping(own_deliveries="implied")]
)
def test_what_only_a_check_can_read(tmp_path: Path, mapping: Mapping) -> None:
    with pytest.raises(UsageError, match="antiphon check"):
        watcher(tmp_path, mapping)
