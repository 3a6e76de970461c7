"""A watch judges the guarantees of brokers as the batch check does, and lets go of what is over."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.pipeline.churn import Clients

from antiphon.pipeline.results import read_alarms
from antiphon.pipeline.watch import departed
from antiphon.trace import naive
from antiphon.trace.event import Event
from antiphon.trace.schema import BROKER_GUARANTEES
from pipeline.test_brokers import clients, write
from pipeline.test_watch import watcher
from pipeline.watching import RunWatch, compare, pieces


@pytest.mark.parametrize("patience_s", [30.0, 0.0])
def test_watch_equals_naive(tmp_path: Path, patience_s: float) -> None:
    """Whatever clients do; also where messages are settled as soon as they can be."""
    rng = random.Random(1)
    seen: Counter[str] = Counter()
    for seed in range(60):
        events = [msgspec.structs.replace(event, time_ns=event.step) for event in clients(seed, "r")]
        if any(event.topic and event.event != "control" for event in events):
            one = RunWatch(int(patience_s * 1e9), {event.member for event in events}, tmp_path)
            for part in pieces(events, rng, 3):
                one.batch(part)
            seen += compare(one.conclude(), events)
    for name in BROKER_GUARANTEES:
        assert patience_s == 0 or (seen[f"{name} violated"] > 5 and not seen[f"{name} inexact"]), seen


def shop(seed: int, messages: int) -> list[Event]:
    """Two that publish; one that consumes for itself and two that share a queue; some things are lost or come twice."""
    rng = random.Random(seed)
    events: list[Event] = []
    steps: Counter[int] = Counter()

    def log(member: int, time: int, event: str, **more: Any) -> None:
        steps[member] += 1
        events.append(Event("r", member, steps[member], event, time_ns=time * 1_000_000, **more))

    for member, group in ((3, None), (4, "q"), (5, "q")):
        log(member, 0, "control", detail="subscribed", topic="orders.*", group=group)
    numbers: Counter[int] = Counter()
    for time in range(1, messages + 1):
        sender = rng.choice((1, 2))
        numbers[sender] += 1
        about: dict[str, Any] = {
            "sender": sender,
            "seq": numbers[sender],
            "topic": rng.choice(("orders.eu", "orders.us")),
        }
        log(sender, time, "send", **about)
        if rng.random() < 0.98:
            log(sender, time, "control", detail="acknowledged", sender=sender, seq=numbers[sender])
        for member, group in ((3, None), (rng.choice((4, 5)), "q")):
            if rng.random() < 0.99:
                log(member, time, "deliver", group=group, **about)
                if rng.random() < 0.02:
                    log(member, time, "deliver", group=group, redelivered=rng.random() < 0.5, **about)
    return events


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_over_is_let_go(tmp_path: Path, seed: int) -> None:
    """State is what is younger than patience and what is missing; nothing is inexact, and counts are a check's."""
    events = shop(seed, 1200)
    one = watcher(tmp_path, patience_s=0.05)
    live, size = [], []
    for number in range(24):
        part = [event for event in events if number * 50e6 <= (event.time_ns or 0) < (number + 1) * 50e6]
        part += [event for event in events if number == 23 and event.time_ns == 1200e6]
        one.batch([str(write(part, tmp_path / "live" / f"{number}.parquet"))])
        live.append(one.sum.live)
        size.append(max((tmp_path / "watch" / "state").iterdir()).stat().st_size)
    final = one.conclude()
    seen = compare(final, events)
    assert {f"{name} violated" for name in ("at-least-once", "at-most-once", "redelivery")} <= seen.keys()
    assert seen["partition-order holds"] == 1
    assert max(live[4:]) <= 150, live
    assert max(size[12:]) < 1.2 * max(size[4:12]), size
    why = [alarm.why for alarm in read_alarms(tmp_path / "watch") if alarm.guarantee == "at-least-once"]
    assert len(why) >= final.findings["at-least-once"].violations - 10
    assert any("has not taken message" in one and "which the broker acknowledged" in one for one in why)


@pytest.mark.parametrize("first", ["subscribed", "acknowledged"])
def test_what_is_said_before_any_message(first: str) -> None:
    """Who subscribed, or what was acknowledged, in a batch in which nothing had a topic yet is not forgotten."""
    said = {
        "subscribed": [Event("r", 2, 1, "control", detail="subscribed", topic="t", group="g")],
        "acknowledged": [Event("r", 1, 2, "control", 1, 1, detail="acknowledged")],
    }
    sent = [Event("r", 1, 1, "send", 1, 1, topic="t")]
    one = RunWatch(roster={1, 2})
    for part in (said[first], [*sent, *(said["acknowledged"] if first == "subscribed" else said["subscribed"])]):
        one.batch([event for event in part if first == "subscribed" or event.event != "send"])
    if first == "acknowledged":
        one.batch([Event("r", 1, 3, "send", 1, 1, topic="t")])
    finding = one.conclude().findings["at-least-once"]
    assert (finding.examined, finding.violations, finding.inexact) == (1, 1, 0)


def test_what_comes_late_is_missing_no_longer(tmp_path: Path) -> None:
    """A consumer that lags by more than patience is named, and cleared when it has caught up."""
    events = [event for event in shop(3, 300) if event.detail != "acknowledged" and not event.redelivered]
    late = [event for event in events if event.member == 3]
    one = watcher(tmp_path, patience_s=0.01)
    one.roster = {"r": [1, 2, 3, 4, 5]}
    for number in range(4):
        part = [event for event in events if event.member != 3 and number == event.member % 4]
        part += late[: 1 if number == 0 else 0]
        one.batch([str(write(part, tmp_path / "live" / f"{number}.parquet"))])
    finding = one.sum.findings["at-least-once"]
    assert one.sum.verdicts()["at-least-once"] == "unknown"  # it may come yet
    assert finding.examined - finding.violations > 0
    one.batch([str(write(late[1:], tmp_path / "live" / "late.parquet"))])
    final = one.conclude()
    expected = naive.check(events, guarantees=("at-least-once",), witnesses=0)["at-least-once"]
    found = final.findings["at-least-once"]
    assert found.inexact or (found.examined, found.violations) == (expected.examined, expected.violations)


def test_clients_that_have_gone_are_let_go() -> None:
    """Clients come and go for ever: what is kept does not grow, and the counts are those of the whole trace."""
    clients = Clients(stay=5, lost=0.01)
    one = RunWatch(patience_ns=500_000_000)
    events: list[Event] = []
    kept = []
    for _ in range(20):
        part = clients.messages(50)
        events += part
        one.batch(part)
        brokers = one.run.brokers
        kept.append((len(one.run.ids), len(brokers.said.consumers), len(brokers.said.highest), len(brokers.settled)))
    assert clients.gone > 350
    assert max(row[0] for row in kept) < 64 + 5 + 60
    for column in range(4):
        assert max(row[column] for row in kept[12:]) <= 1.3 * max(row[column] for row in kept[6:12]) + 5, kept
    seen = compare(one.conclude(), events)
    assert not seen["inexact"]
    assert seen["at-least-once violated"] == 1


def test_clients_that_vanish_without_a_word_are_let_go_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What they owe is no longer known, so that nothing is said of it; all else is judged as before."""
    monkeypatch.setattr(departed, "IDLE_MAX", 100)
    clients = Clients(stay=5, vanish=0.5)
    one = RunWatch(patience_ns=500_000_000)
    events: list[Event] = []
    for _ in range(20):
        part = clients.messages(50)
        events += part
        one.batch(part)
    assert clients.gone > 300
    assert len(one.run.ids) < 100 + 60
    seen = compare(one.conclude(), events)
    assert {f"{name} holds" for name in ("integrity", "fifo", "at-most-once", "redelivery")} <= seen.keys()
    assert {f"{name} inexact" for name in ("at-least-once", "total")} <= seen.keys()
