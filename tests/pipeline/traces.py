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


def wandering(seed: int, run: str = "r") -> list[Event]:
    """A group through views, joins, splits, exclusions and deaths with or without a word, in which little goes wrong.

    Within a view everybody delivers what is sent there, in the order of sending; now and then somebody skips a message,
    discards it, or delivers it only in its next view. Time goes on by one for each row.
    """
    rng = random.Random(seed)
    wrong = rng.choice([0.0, 0.0, 0.02, 0.1])
    says_end, says_farewell, marks = rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.3
    logs: dict[int, list[Event]] = {}
    sent: dict[int, int] = {}
    clock = 0
    fresh = iter(range(1, 100))
    sides = [[next(fresh) for _ in range(rng.randint(2, 5))]]
    late: dict[int, list[tuple[int, int]]] = {}  # what somebody delivers in its next view only

    def log(member: int, event: str, message: tuple[int, int] | None = None, **more: object) -> None:
        nonlocal clock
        clock += 1
        rows = logs.setdefault(member, [])
        sender, seq = message or (None, None)
        rows.append(Event(run, member, len(rows) + 1, event, sender, seq, clock, more.pop("view", 0), **more))

    for number in range(1, rng.randint(1, 8) + 1):
        for side in sides:
            for member in side if rng.random() < 0.95 else side[1:]:  # somebody is named and never comes
                log(member, "view", view=number, members=tuple(side))
                for message in late.pop(member, []):
                    log(member, "deliver", message)
            present = [member for member in side if member in logs]
            for _ in range(rng.randint(0, 6) if present else 0):
                sender = rng.choice(present)
                sent[sender] = sent.get(sender, 0) + 1
                message = (sender, sent[sender])
                log(sender, "send", message)
                for member in present:
                    chance = rng.random()
                    if chance >= wrong:
                        log(member, "deliver", message)
                    elif chance < wrong / 3:
                        late.setdefault(member, []).append(message)
                    elif chance < wrong / 2:
                        log(member, "discard", message)
                if marks and rng.random() < 0.5:
                    for member in present:
                        log(member, "stable", message)
        going = [[*side] for side in sides]
        for side in going:
            for member in [*side]:
                fate = rng.random()
                if fate < 0.12 and len(side) > 1:  # it dies, or is left behind
                    side.remove(member)
                    if says_farewell and member in logs:
                        log(member, rng.choice(["crash", "leave"]))
                    elif member in logs and rng.random() < 0.5:
                        del logs[member][-rng.randint(1, 3) :]  # the last rows never reach its log
                        if not logs[member]:
                            del logs[member]
            if rng.random() < 0.3:
                side.append(next(fresh))
        if rng.random() < 0.2 and len(going[0]) > 2:
            going = [going[0][:2], going[0][2:], *going[1:]]
        elif rng.random() < 0.4:
            going = [[member for side in going for member in side]]
        sides = going
    for side in sides:
        for member in side:
            if says_end and member in logs and rng.random() < 0.9:
                log(member, "end")
    return [event for rows in logs.values() for event in rows]
