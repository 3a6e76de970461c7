"""Small traces for the tests: written in any order, and a chaotic generator that respects nothing but the schema."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.trace.event import Event

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("member", pa.int32()),
        ("step", pa.int64()),
        ("time_ns", pa.int64()),
        ("event", pa.string()),
        ("sender", pa.int32()),
        ("seq", pa.int64()),
        ("view", pa.int64()),
        ("bytes", pa.int64()),
        ("members", pa.list_(pa.int32())),
        ("detail", pa.string()),
    ]
)


def write(events: Iterable[Event], path: Path, row_group_rows: int = 1 << 20) -> Path:
    """Write events as Parquet, in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [msgspec.structs.asdict(event) for event in events]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, row_group_size=row_group_rows)
    return path


def in_run(events: Iterable[Event], run: str) -> list[Event]:
    return [msgspec.structs.replace(event, run=run) for event in events]


def chaos(seed: int, run: str) -> list[Event]:
    """A few members that do anything at all: lose, repeat, invent, wander between views, crash and go on."""
    rng = random.Random(seed)
    ids = rng.sample(range(1, 6), rng.randint(1, 4))
    if rng.random() < 0.2:
        ids = [rng.randint(-(2**31), 2**31 - 1) for _ in ids]
    strangers = [*ids, 77] if rng.random() < 0.2 else ids
    numbers = list(range(1, rng.randint(2, 7)))
    if rng.random() < 0.3:
        numbers = sorted(rng.sample(range(1, 2**40), len(numbers)))
    views = [
        (rng.randint(1, 3), rng.choice([None, tuple(rng.sample(strangers, rng.randint(1, len(strangers))))]))
        for _ in range(rng.randint(1, 4))
    ]
    weights = {
        "send": 20,
        "receive": rng.choice([0, 15]),
        "deliver": 40,
        "discard": rng.choice([0, 5]),
        "stable": rng.choice([0, 8]),
        "view": rng.choice([0, 0, 8]),
        "control": 2,
        "crash": rng.choice([0, 1]),
        "leave": rng.choice([0, 1]),
        "end": rng.choice([0, 1]),
    }
    events = []
    for member in ids:
        step = rng.randint(-5, 5)
        for _ in range(rng.randint(0, 30)):
            step += rng.choice([1, 1, 7])
            name = rng.choices(list(weights), list(weights.values()))[0]
            sender = seq = members = None
            number = 0
            if name in ("send", "receive", "deliver", "discard", "stable"):
                sender = member if name == "send" else rng.choice(strangers)
                seq = rng.choice(numbers)
            elif name == "view":
                number, members = rng.choice(views)
            time_ns = rng.choice([None, rng.randint(0, 100), rng.randint(0, 100)])
            events.append(Event(run, member, step, name, sender, seq, time_ns, number, members=members))
    return events
