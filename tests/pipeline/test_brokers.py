"""The guarantees of brokers: both checkers say the same on any log, and what they say is what the page says."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.pipeline.checking import CheckOptions
from antiphon.pipeline.checking.brokers import covers
from antiphon.pipeline.verdicts import left_open
from antiphon.trace import naive, reader
from antiphon.trace.event import Event
from antiphon.trace.schema import ALL_GUARANTEES, BROKER_COLUMNS, BROKER_GUARANTEES, EVENTS, GUARANTEES
from pipeline.conftest import Checker
from pipeline.traces import SCHEMA

TOPICS = ("orders", "orders/eu", "orders/eu/1", "logs")
PATTERNS = (*TOPICS, "orders/#", "orders/+", "#")
BROKER_SCHEMA = pa.unify_schemas(
    [
        SCHEMA,
        pa.schema([(name, pa.type_for_alias(kind)) for name, kind in BROKER_COLUMNS.items()]),
    ]
)


def write(events: list[Event], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [msgspec.structs.asdict(event) for event in events]
    pq.write_table(pa.Table.from_pylist(rows, BROKER_SCHEMA), path)
    return path


def clients(seed: int, run: str) -> list[Event]:
    """A few clients of a broker that do anything at all."""
    rng = random.Random(seed)
    members = rng.sample(range(1, 7), rng.randint(1, 4))
    groups = [None, *rng.sample(["a", "b", "c"], rng.randint(0, 2))]
    topics = rng.sample(TOPICS, rng.randint(1, 3))
    numbers = range(1, rng.randint(2, 6))
    weights = {
        "send": 20,
        "deliver": 40,
        "discard": rng.choice([0, 4]),
        "acknowledged": rng.choice([0, 15]),
        "subscribed": rng.choice([0, 4]),
        "subscribed-late": rng.choice([0, 4]),
        "unsubscribed": rng.choice([0, 3]),
        "crash": rng.choice([0, 1]),
        "leave": rng.choice([0, 1]),
        "end": rng.choice([0, 1]),
    }
    without_topics = rng.choice([0, 0, 0.2])
    offsets = rng.choice([[None], range(4), [None, *range(4)]])
    events = []
    for member in members:
        for step in range(rng.randint(0, 25)):
            word = rng.choices(list(weights), list(weights.values()))[0]
            event = word if word in ("send", "deliver", "discard", "crash", "leave", "end") else "control"
            about = word in ("send", "deliver", "discard", "acknowledged")
            sender = (member if word == "send" else rng.choice(members)) if about else None
            plain = rng.random() < without_topics
            topic = None if plain else rng.choice(PATTERNS if "subscribed" in word else topics)
            row = Event(
                run, member, step, event, sender, rng.choice(numbers) if about else None,
                detail=word if event == "control" else None,
                topic=topic,
                partition=rng.choice([None, "0"]) if topic else None,
                group=rng.choice(groups),
                redelivered=rng.choice([None, False, True]) if word == "deliver" else None,
                partition_offset=rng.choice(offsets) if word in ("send", "deliver") else None,
            )  # fmt: skip
            events.append(row)
    return events


def test_both_checkers_say_the_same(inline: Checker, tmp_path: Path) -> None:
    runs = [clients(seed, f"run-{seed}") for seed in range(400)]
    options = [CheckOptions(), CheckOptions(implied_own_deliveries=True, uniform=True, witnesses=2)]
    everything = [event for events in runs for event in events]
    random.Random(1).shuffle(everything)
    write(everything, tmp_path / "trace" / "events.parquet")
    violations = dict.fromkeys(ALL_GUARANTEES, 0)
    verdicts = set()
    for chosen, found in zip(options, inline.check_each(tmp_path / "trace", *options), strict=True):
        for events in filter(None, runs):
            expected = naive.check(
                events,
                guarantees=ALL_GUARANTEES,
                uniform=chosen.uniform,
                implied_own_deliveries=chosen.implied_own_deliveries,
                witnesses=chosen.witnesses,
            )
            for name, verdict in expected.items():
                assert found[events[0].run][name] == verdict, (name, chosen)
                violations[name] += verdict.violations
                verdicts.add((name, verdict.verdict))
    assert all(violations[name] > 20 for name in (*BROKER_GUARANTEES, "agreement", "validity")), violations
    assert {(name, "holds") for name in BROKER_GUARANTEES} <= verdicts
    assert ("at-least-once", "unknown") in verdicts


def test_on_spark(on_spark: Checker, tmp_path: Path) -> None:
    events = [event for seed in range(40) for event in clients(1000 + seed, f"run-{seed:02}")]
    trace = write(events, tmp_path / "trace" / "events.parquet")
    _, found = on_spark.check(trace)
    assert found == naive.check(events)
    assert list(found) == list(ALL_GUARANTEES)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_topics_in_text(inline: Checker, tmp_path: Path, suffix: str) -> None:
    events = [event for seed in range(30) for event in clients(seed, f"run-{seed:02}")]
    table = pa.Table.from_pylist([msgspec.structs.asdict(event) for event in events], BROKER_SCHEMA)
    trace = tmp_path / f"trace.{suffix}"
    rows = table.drop(["members", "view", "bytes", "time_ns"]).to_pylist()
    if suffix == "csv":
        pa.csv.write_csv(pa.Table.from_pylist(rows), trace)
    else:
        trace.write_bytes(msgspec.json.Encoder().encode_lines(rows))
    _, found = inline.check(trace)
    assert found == naive.check(events)
    assert naive.check(reader.read(trace).events) == found


def test_a_trace_without_topics_has_the_eight(inline: Checker, tmp_path: Path) -> None:
    events = [Event("r", 1, 1, "send", 1, 1), Event("r", 1, 2, "deliver", 1, 1)]
    trace = write(events, tmp_path / "t.parquet")
    assert list(inline.check(trace)[1]) == list(GUARANTEES) == list(naive.check(events))
    _, [(name, asked)] = (found := inline.check(trace, guarantees=("at-least-once",)))[0], found[1].items()
    assert (name, asked.verdict, asked.examined) == ("at-least-once", "unknown", 0)


def test_rows_that_cannot_be_read() -> None:
    """The page's table, and both checkers' own."""
    page = (Path(__file__).parents[2] / "docs" / "trace-guarantees.md").read_text()
    rows = page.partition("| the row's event |")[2].split("\n\n")[0].splitlines()[2:]
    said: dict[str, set[str]] = {}
    for row in rows:
        events, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        for event in events.split(", "):
            said[event.strip("`")] = {name for name, cell in zip(BROKER_GUARANTEES, cells, strict=True) if cell}
    assert set(said) == {*EVENTS, "none of these"}
    for event, marked in said.items():
        assert naive.affected_by(event, "deliver") & {*BROKER_GUARANTEES} == marked, event
        assert left_open([event]) & {*BROKER_GUARANTEES} == marked, event


level = st.sampled_from(["a", "b", "", "+", "*", "#", ">", "(", "a+"])
path = st.lists(st.tuples(level, st.sampled_from("/.")), min_size=1, max_size=4).map(
    lambda parts: "".join(text + mark for text, mark in parts)[:-1]
)


@settings(max_examples=500)
@given(path, path)
def test_both_cover_the_same_topics(pattern: str, topic: str) -> None:
    assert covers(pattern, topic) == naive.covers(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.eu.1", False),
        ("orders.>", "orders.eu.1", True),
        ("+/temperature", "kitchen/temperature", True),
        ("sport/#", "sport", True),
        ("#", "any/thing", True),
    ],
)
def test_patterns(pattern: str, topic: str, fits: bool) -> None:
    assert covers(pattern, topic) is naive.covers(pattern, topic) is fits


def consumer(member: int, *rows: tuple[str, int], group: str | None = "g", more: tuple[str, ...] = ()) -> list[Event]:
    """A client that subscribes to `t` and is given messages of member 1."""
    said = [Event("r", member, 0, "control", detail="subscribed", topic="t", group=group)]
    for step, (mark, seq) in enumerate(rows, 1):
        said.append(Event("r", member, step, "deliver", 1, seq, topic="t", group=group, redelivered=mark == "again"))
    return said + [Event("r", member, 100 + at, event) for at, event in enumerate(more)]


def producer(sent: int, acknowledged: int) -> list[Event]:
    rows = [Event("r", 1, number, "send", 1, number, topic="t") for number in range(1, sent + 1)]
    return rows + [
        Event("r", 1, 100 + number, "control", 1, number, detail="acknowledged")
        for number in range(1, acknowledged + 1)
    ]


LOST = "group g never takes message 2 of 1, which the broker acknowledged"
LACKING = "member 3 never takes message 1 of 1, which group g is given"
AGAIN = "group g is given message 1 of 1 again"
LATE = "member 2 is given message 1 of 1 after number 2, both in t"
OFFSETS = "member 2 is given message 1 of 1, offset 2, after offset 3, both in t"
STORIES = {
    "all is well": (producer(3, 3) + consumer(2, ("", 1), ("", 3)) + consumer(3, ("", 2)), {}),
    "lost": (producer(3, 3) + consumer(2, ("", 1), ("", 3)), {"at-least-once": LOST}),
    "lost before it was acknowledged": (producer(3, 2) + consumer(2, ("", 1), ("", 2)), {}),
    "one has it, another not": (
        producer(1, 0) + consumer(2, ("", 1)) + consumer(3, group=None),
        {"at-least-once": LACKING},
    ),
    "gone before the rest came": (producer(3, 3) + consumer(2, ("", 1), ("", 2), more=("crash",)), {}),
    "again, as it says": (producer(2, 2) + consumer(2, ("", 1), ("", 2), ("again", 1)), {"at-most-once": AGAIN}),
    "again, to another of the group": (
        producer(1, 1) + consumer(2, ("", 1)) + consumer(3, ("", 1)),
        {"at-most-once": AGAIN, "redelivery": f"{AGAIN} and is not told so"},
    ),
    "out of order": (producer(2, 2) + consumer(2, ("", 2), ("", 1)), {"partition-order": LATE}),
    "out of the partition's order, by two senders": (
        producer(1, 1)
        + [Event("r", 4, 1, "send", 4, 1, topic="t")]
        + [
            Event("r", 2, at, "deliver", sender, 1, topic="t", group="g", partition_offset=offset)
            for at, sender, offset in ((1, 4, 3), (2, 1, 2))
        ],
        {"partition-order": OFFSETS},
    ),
    "in the partition's order, which is not its sender's": (
        producer(2, 2)
        + [
            Event("r", 2, at, "deliver", 1, seq, topic="t", group="g", partition_offset=at)
            for at, seq in ((1, 2), (2, 1))
        ],
        {},
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_stories(inline: Checker, tmp_path: Path, story: str) -> None:
    events, expected = STORIES[story]
    found = naive.check(events)
    broken = {name: found[name].witnesses[0].why for name in BROKER_GUARANTEES if found[name].violations}
    assert broken == expected
    assert found["agreement"].examined == found["validity"].examined == 0
    assert inline.check(write(events, tmp_path / "t.parquet"))[1] == found
