"""Traces of other systems with known verdicts, edge cases, and how few Spark jobs a check takes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.pipeline.checking.run import CheckedRun
from antiphon.trace import naive
from antiphon.trace.event import Event
from pipeline.conftest import Checker
from pipeline.traces import in_run, write
from support.planting import sample

REAL = Path(__file__).parents[1] / "data" / "traces"


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("name", ["nats-core", "corosync-kill", "mosquitto-qos1cut"])
def test_real_logs(inline: Checker, name: str, uniform: bool) -> None:
    expected = json.loads((REAL / name / "expected.json").read_text())
    if uniform:
        expected.update(expected["uniform"])
    _, verdicts = inline.check(REAL / name, uniform=uniform)
    for guarantee, found in verdicts.items():
        right = expected[guarantee]
        assert (found.verdict, found.violations) == (right["verdict"], right["violations"]), guarantee


def group(members: list[int], numbers: list[int]) -> list[Event]:
    """Every member sends its numbers; all deliver all, sender by sender."""
    events = []
    for member in members:
        log = [("send", member, number) for number in numbers]
        log += [("deliver", sender, number) for sender in members for number in numbers]
        events += [Event("r", member, step, *row) for step, row in enumerate(log)]
    return events


def crashed() -> list[Event]:
    events = group([1, 2, 3], [1, 2])
    last = max(event.step for event in events if event.member == 3)
    return [event for event in events if event.member != 3 or event.step < 5] + [Event("r", 3, last + 1, "crash")]


def mixed_runs() -> list[Event]:
    return [
        *in_run(group([1, 2], [1, 2, 3]), "b"),
        *in_run(group([5], [9]), "a"),
        *in_run(sample(3).events, "ß"),
        *in_run(sample(4).events, "Z"),
    ]


EDGES: dict[str, Callable[[], list[Event]]] = {
    "empty": list,
    "one member": lambda: group([7], [1, 2, 3]),
    "one message": lambda: [Event("r", 1, 1, "send", 1, 1)],
    "one row of no message": lambda: [Event("r", 1, 1, "control")],
    "a crash": crashed,
    "numbers with gaps": lambda: group([1, 2, 3], [3, 10, 11, 400, 2**62]),
    "no sends": lambda: [event for event in group([1, 2, 3], [1, 2]) if event.event != "send"],
    "sends alone": lambda: [event for event in group([1, 2, 3], [1, 2]) if event.event == "send"],
    "mixed runs": mixed_runs,
    "huge sparse ids": lambda: group([-(2**31), -5, 0, 77, 2**31 - 1], [1, 2, 3]),
    "forty members": lambda: group(list(range(100, 140)), [1, 2]),
}


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("name", EDGES)
def test_edges(inline: Checker, tmp_path: Path, name: str, shuffled: bool) -> None:
    events = EDGES[name]()
    written = random.Random(2).sample(events, len(events)) if shuffled else events
    totals, verdicts = inline.check(write(written, tmp_path / "trace.parquet"))
    assert totals.events == len(events)
    assert totals.runs == len({event.run for event in events})
    assert verdicts == naive.check(events)


def test_many_files_and_small_row_groups_are_one_trace(inline: Checker, tmp_path: Path) -> None:
    events = sample(11).events
    for number in range(5):
        write(events[number::5], tmp_path / "trace" / f"deep/{number}.parquet", row_group_rows=3)
    _, verdicts = inline.check(tmp_path / "trace")
    assert verdicts == naive.check(events)


def test_a_trace_in_order_is_not_copied(inline: Checker, tmp_path: Path) -> None:
    events = sorted(sample(11, "total").events, key=lambda event: (event.member, event.step))
    path = write(events, tmp_path / "trace.parquet", row_group_rows=7)
    _, verdicts = inline.check(path)
    assert verdicts == naive.check(events)
    assert inline.session.jobs == 3  # survey, encode, compare
    assert not list(tmp_path.glob("work-*/layout/events/*"))


@pytest.mark.parametrize(
    ("shuffled", "guarantees", "jobs"),
    [
        (False, naive.GUARANTEES, 3),  # survey, encode, compare
        (False, ("fifo",), 2),  # nothing to compare
        (True, naive.GUARANTEES, 5),  # survey gives up; read, sort, encode, compare
    ],
)
def test_number_of_spark_jobs(
    on_spark: Checker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shuffled: bool,
    guarantees: tuple[str, ...],
    jobs: int,
) -> None:
    events = sorted(sample(5, "total").events, key=lambda event: (event.member, event.step))
    if shuffled:
        random.Random(1).shuffle(events)
    path = write(events, tmp_path / "trace.parquet")
    context = on_spark.session.spark.sparkContext
    group = str(tmp_path)
    monkeypatch.setattr(on_spark.session, "name", group)  # the group of the jobs that the session starts
    context.setJobGroup(group, "one check")  # and of any that are started past it
    _, verdicts = on_spark.check(path, guarantees=guarantees)
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert {found.violations for found in verdicts.values()} == {0}
    assert len(context.statusTracker().getJobIdsForGroup(group)) == jobs


def test_own_deliveries_implied(inline: Checker, tmp_path: Path) -> None:
    events = [event for event in group([1, 2, 3], [1, 2]) if event.event != "deliver" or event.sender != event.member]
    path = write(events, tmp_path / "trace.parquet")
    _, plain = inline.check(path)
    _, implied = inline.check(path, implied_own_deliveries=True)
    assert plain["validity"].violations == 6
    assert implied == naive.check(events, implied_own_deliveries=True)
    assert implied["validity"].verdict == "holds"


def test_witnesses_are_limited_and_counts_are_true(inline: Checker, tmp_path: Path) -> None:
    events = [event for event in group([1, 2, 3], list(range(1, 50))) if event.event != "send"]
    path = write(events, tmp_path / "trace.parquet")
    _, verdicts = inline.check(path, witnesses=2)
    assert verdicts["integrity"].violations == 3 * 3 * 49
    assert len(verdicts["integrity"].witnesses) == 2
    _, none = inline.check(path, witnesses=0)
    assert none["integrity"] == msgspec.structs.replace(verdicts["integrity"], witnesses=[])


def test_many_views_take_time_in_proportion(inline: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's log is cut by views once for each thing that is asked of it, not once for each view."""
    views, members = 200, (1, 2, 3)
    events = []
    for member in members:
        rows: list[dict[str, Any]] = []
        for view in range(1, views + 1):
            rows.append({"event": "view", "view": view, "members": members})
            rows.append({"event": "send", "sender": member, "seq": view})
            rows += [{"event": "deliver", "sender": sender, "seq": view} for sender in members]
            rows += [{"event": "stable", "sender": sender, "seq": view} for sender in members]
        events += [Event("r", member, step, **row) for step, row in enumerate(rows, 1)]
    cut = 0
    real = CheckedRun.slices

    def counted(run: CheckedRun, *args: Any) -> Any:
        nonlocal cut
        cut += 1
        return real(run, *args)

    monkeypatch.setattr(CheckedRun, "slices", counted)
    _, verdicts = inline.check(write(events, tmp_path / "trace.parquet"))
    assert verdicts == naive.check(events)
    assert {found.verdict for found in verdicts.values()} == {"holds"}
    assert cut < 50
