"""A watch judges the guarantees of brokers as the batch check does, and lets go of what is over."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from antiphon.pipeline.results import WatchCommit, read_alarms
from antiphon.trace import naive
from antiphon.trace.event import Event
from antiphon.trace.schema import BROKER_GUARANTEES
from pipeline.test_brokers import clients, write
from pipeline.test_watch import GUARANTEES, pieces, watcher

JUDGED = (*GUARANTEES, *BROKER_GUARANTEES)


def watched(folder: Path, events: list[Event], rng: random.Random, batches: int, patience_s: float) -> WatchCommit:
    """Watch a run in pieces, with a fresh watcher for every batch, as after a restart."""
    for number, part in enumerate(pieces(events, rng, batches)):
        one = watcher(folder, patience_s=patience_s)
        one.roster = {event.run: sorted({event.member for event in events}) for event in events[:1]}
        if part:
            one.batch([str(write(part, folder / "live" / f"{number}.parquet"))])
    return watcher(folder, patience_s=patience_s).conclude()


def compare(found: WatchCommit, events: list[Event]) -> Counter[tuple[str, str]]:
    """Hold a watch against the naive checker; returns how often it says what of which guarantee."""
    expected = naive.check(events, guarantees=JUDGED, witnesses=0)
    seen: Counter[tuple[str, str]] = Counter()
    verdicts = found.verdicts()
    for name, finding in found.findings.items():
        if finding.inexact:
            assert verdicts[name] in ("unknown", expected[name].verdict), name
            seen[name, "inexact"] += 1
            continue
        assert verdicts[name] == expected[name].verdict, name
        assert (finding.examined, finding.violations) == (expected[name].examined, expected[name].violations), name
        seen[name, verdicts[name]] += 1
    return seen


@pytest.mark.parametrize("patience_s", [30.0, 0.0])
def test_watch_equals_check(tmp_path: Path, patience_s: float) -> None:
    """Whatever clients do; also where messages are settled as soon as they can be."""
    rng = random.Random(1)
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(60):
        events = clients(seed, "r")
        if patience_s:  # else they have no times, and everything is settled at once
            events = [msgspec.structs.replace(event, time_ns=event.step) for event in events]
        if any(event.topic and event.event != "control" for event in events):
            seen += compare(watched(tmp_path / str(seed), events, rng, 3, patience_s), events)
    for name in BROKER_GUARANTEES:
        assert seen[name, "violated"] > 5, seen
        assert patience_s == 0 or not seen[name, "inexact"], seen
