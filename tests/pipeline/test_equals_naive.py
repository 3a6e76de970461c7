"""The Spark check says the same as the naive one, to the letter: verdicts, counts and witnesses."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.pipeline import checking
from antiphon.pipeline.checking import CheckOptions, causal, encode
from antiphon.pipeline.store import arena
from antiphon.trace import naive
from antiphon.trace.event import Event
from pipeline.conftest import Checker
from pipeline.traces import chaos, in_run, write
from support.planting import PLANTS, sample

EVERYTHING = [
    CheckOptions(uniform=uniform, happened_before=before, implied_own_deliveries=implied, witnesses=witnesses)  # type: ignore[arg-type]
    for uniform, before, implied, witnesses in [
        (False, "deliver", False, 10),
        (True, "receive", False, 2),
        (False, "receive", True, 3),
        (True, "deliver", True, 10),
    ]
]


def compare(
    checker: Checker,
    tmp_path: Path,
    runs: list[list[Event]],
    shuffled: bool,
    options: list[CheckOptions],
    group_rows: int = 5000,
) -> int:
    """Check all runs in one trace, those with an odd number under a global clock; return how many violations."""
    rng = random.Random(len(runs))
    by_clock: dict[bool, list[Event]] = defaultdict(list)
    for number, events in enumerate(runs):
        by_clock[number % 2 == 1] += events
    for clock, events in by_clock.items():
        folder = tmp_path / "trace" / ("global" if clock else "own")
        if shuffled:
            rng.shuffle(events)
        write(events, folder / "events.parquet", group_rows)
        if clock:
            (folder / "run.json").write_text(json.dumps({"clock": "global"}))
    violations = 0
    for chosen, verdicts in zip(options, checker.check_each(tmp_path / "trace", *options), strict=True):
        for number, events in enumerate(runs):
            if not events:
                continue
            expected = naive.check(
                events,
                uniform=chosen.uniform,
                happened_before=chosen.happened_before,
                implied_own_deliveries=chosen.implied_own_deliveries,
                witnesses=chosen.witnesses,
                global_clock=number % 2 == 1,
            )
            for name, verdict in expected.items():
                assert verdicts[events[0].run][name] == verdict, (number, name, chosen)
                violations += verdict.violations
    return violations


def planted_runs(seeds: range) -> list[list[Event]]:
    rng = random.Random(1)
    runs = []
    for seed in seeds:
        runs.append(in_run(sample(seed).events, f"clean-{seed}"))
        for number, plant in enumerate(PLANTS.values()):
            planted = plant(sample(seed), rng)
            if planted is not None:
                runs.append(in_run(planted.events, f"planted-{seed}-{number}"))
    return runs


def test_planted(inline: Checker, tmp_path: Path) -> None:
    runs = planted_runs(range(40))
    assert len(runs) > 400
    assert compare(inline, tmp_path, runs, True, EVERYTHING[:2]) > 300


@pytest.mark.parametrize("shuffled", [False, True])
def test_chaos(inline: Checker, tmp_path: Path, shuffled: bool) -> None:
    runs = [chaos(seed + 10_000 * shuffled, f"chaos-{seed}") for seed in range(300)]
    assert compare(inline, tmp_path, runs, shuffled, EVERYTHING) > 10_000


def test_long_logs_are_read_in_pieces(inline: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where memory is short: few rows at a time, one member after the other, arrays mapped from files."""
    monkeypatch.setattr(encode, "PIECE_ROWS", 20)
    monkeypatch.setattr(causal, "POSITIONS_BYTES_MAX", 1)
    monkeypatch.setattr(arena, "_MAPPED_BYTES_MIN", 0)
    runs = [*planted_runs(range(3)), *(chaos(seed, f"chaos-{seed}") for seed in range(2000, 2040))]
    assert compare(inline, tmp_path, runs, False, EVERYTHING[:2], group_rows=9) > 500


def test_more_than_can_be_numbered(inline: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(sample(1).events, tmp_path / "trace" / "events.parquet")
    monkeypatch.setattr(checking, "COUNT_MAX", 5)
    with pytest.raises(UsageError, match="messages in a run are more than 5: give it as several runs"):
        inline.check(tmp_path / "trace")


def test_on_spark(on_spark: Checker, tmp_path: Path) -> None:
    runs = [*planted_runs(range(12)), *(chaos(seed, f"chaos-{seed}") for seed in range(1000, 1100))]
    assert compare(on_spark, tmp_path, runs, True, EVERYTHING[:1]) > 1_000


def test_clean_traces_raise_no_alarm(inline: Checker, tmp_path: Path) -> None:
    orders = ("fifo", "causal", "total")
    runs = [in_run(sample(seed, order).events, f"{order}-{seed}") for seed in range(100) for order in orders]
    write([event for events in runs for event in events], tmp_path / "trace" / "events.parquet")
    [verdicts] = inline.check_each(tmp_path / "trace", CheckOptions())
    assert len(verdicts) == 300
    for run, found in verdicts.items():
        alarms = {name for name, verdict in found.items() if verdict.violations}
        assert not alarms - {"fifo": {"causal", "total"}, "causal": {"total"}, "total": set()}[run.split("-")[0]]
