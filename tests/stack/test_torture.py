"""The torture of the whole stack itself: schedules are data, runs are repeatable, a calm run has nothing wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Final

import msgspec
import pytest

from antiphon.testing.torture.judge import judge
from antiphon.testing.torture.run import run
from antiphon.testing.torture.schedule import ORDERINGS, PlannedFault, Schedule, Setup, Work, draw, features, from_json
from antiphon.testing.torture.shrink import shrink


def test_a_schedule_is_data() -> None:
    for seed in range(300):
        schedule = draw(seed)
        assert schedule == draw(seed)
        assert from_json(schedule.to_json()) == schedule
        assert all(fault.until is None or fault.until >= fault.at for fault in schedule.faults)


def test_schedules_draw_everything() -> None:
    schedules = [draw(seed) for seed in range(1_000)]
    assert {schedule.setup.ordering for schedule in schedules} == set(ORDERINGS)
    assert {schedule.members for schedule in schedules} == set(range(2, 8))
    kinds = {fault.kind for schedule in schedules for fault in schedule.faults}
    assert kinds == set(msgspec.inspect.type_info(PlannedFault).fields[0].type.values)  # type: ignore[attr-defined]


RARE: Final = {
    "clock step of a day",
    "crash by a loss of power",
    "loss of power before a write is synced",
    "loss of power once a write is synced",
    "no views",
    "crash of everyone",
    "an old copy of the state folder",
    "a disk that lies about a sync",
    "fixed times",
    "nobody says how many found the group",
    "slow links",
    "crash without the state folder",
    "cut both ways",
    "every member was started again in turn",
    "fault crash for good",
    "fault cut for good",
    "fault partition for good",
    "fault narrow for good",
    "late seed",
    "latency fixed 300ms",
    "latency uniform 100us 1ms",
    "multicast",
    "one member set up differently",
    "pause longer than suspicion",
    "slow reader, block",
    "slow reader, drop",
    "slow reader, lag",
    "snapshot 33554432",
    "state given piece by piece",
    "receipts asked again",
    "the same befalls the same members again",
    "fewer founders than members",
    "windows or inboxes at their bounds",
    "ten times as much to say",
    "reads are given up",
    "sends are given up",
    "snapshot or restore fails",
    "pause of everyone",
    "leave of everyone",
    "leave, in good order",
    "leave, hurry",
    "leave, error",
    "leave, cancel",
    "leave, return",
    "many links cut at once",
}


def test_what_is_rare_comes_often_enough_to_be_judged() -> None:
    counts = Counter(feature for seed in range(1_000) for feature in features(draw(seed)))
    assert {feature: count for feature in RARE if (count := counts[feature]) < 8} == {}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_calm_run_has_nothing_wrong(ordering: str) -> None:
    schedule = Schedule(seed=1, setup=Setup(ordering=ordering, snapshot_bytes=0))  # type: ignore[arg-type]
    flaws, counts = judge(run(schedule))
    assert not flaws
    assert counts["delivered"] == 54  # 3 of 5 and a probe, by 3
    assert counts["receipts"] == 15
    assert counts["stable"] == 18
    assert counts["final states"] == 3


def test_the_same_schedule_gives_the_same_run() -> None:
    schedule = Schedule(
        seed=3,
        work=(Work(), Work(start_ms=300), Work()),
        faults=(PlannedFault(kind="crash", at=500, until=900, members=(1,)),),
    )
    one, other = run(schedule), run(schedule)
    assert one.starts == other.starts


@pytest.mark.parametrize("discover", ["peers", "multicast"])
def test_the_same_schedule_gives_the_same_run_in_another_process(discover: str) -> None:
    """Whatever the hashes of this process: sets and dictionaries of strings are in another order in each."""
    told = [
        subprocess.run(
            [sys.executable, "-c", _RUN_ONE, discover],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            check=True,
        ).stdout
        for hashes in ("1", "2", "3")
    ]
    assert told[0]
    assert len(set(told)) == 1


_RUN_ONE: Final = """
import sys
from antiphon.testing.torture.run import run
from antiphon.testing.torture.schedule import Net, Schedule, Setup, Work
work = (Work(), Work(start_ms=300), Work(start_ms=700), Work(start_ms=100))
setup = Setup(discover=sys.argv[1], snapshot_bytes=0)
print(run(Schedule(seed=3, setup=setup, net=Net(loss=0.1), work=work)).starts)
"""


def test_shrinking_keeps_what_matters() -> None:
    schedule = draw(6)
    assert any(fault.kind == "crash" for fault in schedule.faults)
    small = shrink(schedule, lambda candidate: any(fault.kind == "crash" for fault in candidate.faults))
    assert [fault.kind for fault in small.faults] == ["crash"]
    assert small.members == 2
    assert small.work == (Work(messages=0), Work(messages=0))
