"""A watch says what the naive checker says, in whatever pieces a trace comes: verdicts, counts and alarms."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.pipeline.results import WatchAlarm
from antiphon.trace import naive
from antiphon.trace.event import Event
from pipeline.traces import chaos, in_run, wandering
from pipeline.watching import RunWatch, compare, pieces
from support.planting import PLANTS, sample


def watched(
    events: list[Event], rng: random.Random, batches: int, patience_ns: int = 30_000_000_000, folder: Path | None = None
) -> RunWatch:
    """Watch a run in pieces that begin anywhere in each log."""
    one = RunWatch(patience_ns, {event.member for event in events}, folder)
    for part in pieces(events, rng, batches):
        one.batch(part)
    return one


def watched_in_time(events: list[Event], rng: random.Random, batches: int, patience_ns: int) -> RunWatch:
    """Watch a run in pieces that begin at one time in all logs; who takes part shows as they come."""
    one = RunWatch(patience_ns)
    rows = sorted(events, key=lambda event: event.time_ns or 0)
    cuts = sorted(rng.randint(0, len(rows)) for _ in range(batches - 1))
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        one.batch(rows[begin:end])
    return one


@pytest.mark.parametrize("batches", [1, 3])
def test_planted_violations(tmp_path: Path, batches: int) -> None:
    rng = random.Random(batches)
    seen: Counter[str] = Counter()
    for seed in range(6):
        for plant in (None, *PLANTS.values()):
            planted = sample(seed) if plant is None else plant(sample(seed), rng)
            if planted is not None:
                events = in_run(planted.events, "r")
                seen += compare(watched(events, rng, batches, folder=tmp_path).conclude(), events)
    assert seen["holds"] > 250
    assert seen["violated"] > 80
    assert seen["inexact"] <= 6


def test_chaos() -> None:
    rng = random.Random(4)
    seen: Counter[str] = Counter()
    for seed in range(150):
        events = chaos(seed, "r")
        if events:
            seen += compare(watched(events, rng, rng.randint(1, 4)).conclude(), events)
    assert seen["violated"] > 400
    assert seen["inexact"] < 150
    assert min(seen[f"{name} violated"] for name in ("validity", "agreement")) > 60


@pytest.mark.parametrize("how", [watched, watched_in_time])
def test_groups_that_wander_through_views(how: Callable[..., RunWatch]) -> None:
    """Joins, splits, exclusions and deaths without a word, whenever the watch lets go of what is over."""
    rng = random.Random(7)
    seen: Counter[str] = Counter()
    for seed in range(120):
        events = wandering(seed)
        seen += compare(how(events, rng, rng.randint(1, 8), rng.choice([30, 60, 10**12])).conclude(), events)
    for name in ("validity", "agreement", "view-synchrony"):
        assert seen[f"{name} holds"] > 40, name
        assert seen[f"{name} violated"] > 10, name
        assert seen[f"{name} inexact"] < 12, name


@pytest.mark.parametrize(
    ("seed", "batches", "patience_ns", "how"),
    [
        *((seed, batches, 0, watched_in_time) for seed, batches in ((5230, 8), (6184, 6), (7849, 8))),
        *((seed, batches, 0, watched) for seed, batches in ((6671, 8), (7727, 7), (7845, 8), (8038, 8))),
        (10721, 4, 30, watched),
    ],
)
def test_who_was_given_up_and_goes_on(seed: int, batches: int, patience_ns: int, how: Callable[..., RunWatch]) -> None:
    """What was settled without it cannot be compared any more, and nothing is said to hold."""
    events = wandering(seed)
    assert compare(how(events, random.Random(seed), batches, patience_ns).conclude(), events)["inexact"] > 0


def test_alarms_are_the_witnesses_of_a_check() -> None:
    """Of validity, agreement and view-synchrony, each said once: when it is settled, or at the end."""
    rng, told = random.Random(3), 0
    for seed in range(120):
        events = wandering(seed)
        one = watched(events, rng, rng.randint(1, 8), rng.choice([30, 10**12]))
        found = one.conclude()
        expected = naive.check(events, guarantees=("validity", "agreement", "view-synchrony"), witnesses=10_000)
        for name, guarantee in expected.items():
            if found.findings[name].inexact:
                continue
            said = Counter(who_and_where(name, alarm.why) for alarm in one.alarms if alarm.guarantee == name)
            assert max(said.values(), default=1) == 1, name
            witnesses = {who_and_where(name, witness.why) for witness in guarantee.witnesses}
            assert witnesses == said.keys() or name != "view-synchrony"
            for alarm in one.alarms:
                if alarm.guarantee == name and who_and_where(name, alarm.why) not in witnesses:
                    assert name == "agreement", alarm
                    assert was_cleared(alarm, events), alarm
            told += len(said)
    assert told > 150


def was_cleared(alarm: WatchAlarm, events: list[Event]) -> bool:
    """Whether what was missing when a view was over came later, or the log was cut short after that."""
    mine = [event for event in events if event.member == alarm.member]
    came = any((event.event, event.sender, event.seq) == ("deliver", alarm.sender, alarm.seq) for event in mine)
    return came or not any(event.event in ("end", "crash", "leave") for event in mine)


def who_and_where(guarantee: str, why: str) -> object:
    """What a sentence says; of view-synchrony, which of several messages that differ is a matter of when it is said."""
    if guarantee != "view-synchrony":
        return why
    one, _, _, view, other, following = re.findall(r"\d+", why)
    return frozenset((one, other)), view, following


def test_who_dies_before_it_installs_a_view_that_names_it_is_left_behind() -> None:
    """What is sent in that view waits for it no longer than until the others have gone on without it."""
    rows: list[Event] = []
    steps: Counter[int] = Counter()
    numbers: Counter[int] = Counter()

    def log(member: int, event: str, sender: int | None = None, seq: int | None = None, **more: Any) -> None:
        steps[member] += 1
        rows.append(Event("r", member, steps[member], event, sender, seq, len(rows), **more))

    def view(number: int, members: tuple[int, ...], present: tuple[int, ...]) -> None:
        for member in present:
            log(member, "view", view=number, members=members)
        for sender in present:
            numbers[sender] += 1
            log(sender, "send", sender, numbers[sender])
            for member in present:
                log(member, "deliver", sender, numbers[sender])

    one = RunWatch(patience_ns=20)
    view(1, (1, 2, 3), (1, 2, 3))
    view(2, (1, 2, 3), (1, 2))
    for number in range(3, 40):
        view(number, (1, 2), (1, 2))
    for begin in range(0, len(rows), 20):
        one.batch(rows[begin : begin + 20])
    assert one.found().live == 0
    assert compare(one.conclude(), rows)["holds"] == 7
