"""Timestamp acknowledgments under thousands of random schedules, and the schedules under broken rules."""

from __future__ import annotations

import pytest

from antiphon.protocol.stability.timestamp_ack import TimestampAck
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Clocks, Scenario, Workload
from antiphon.trace.naive import check
from support.mutants_timestamp import MUTANTS
from support.timestamp_group import TimestampGroup, Violation

SCHEDULES = 2_400
BATCH = 300


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_safe_live_and_silent_in_every_schedule(first: int) -> None:
    for seed in range(first, first + BATCH):
        TimestampGroup(seed).run()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_schedules_catch_a_broken_rule(mutant: type[TimestampAck]) -> None:
    def violates(seed: int) -> bool:
        try:
            TimestampGroup(seed, mutant).run()
        except Violation:
            return True
        return False

    assert any(violates(seed) for seed in range(BATCH))


@pytest.mark.parametrize("clock", ["physical", "logical", "hybrid"])
@pytest.mark.parametrize("seed", range(8))
def test_whole_members_keep_the_stability_guarantee(seed: int, clock: str) -> None:
    lossy = NetworkOptions(loss=(0.0, 0.3, 0.5)[seed % 3], duplicate=0.1, reorder=0.2)
    scenario = Scenario.of(
        "paper",
        members=2 + seed % 4,
        messages=8,
        stability="timestamp-ack",
        stability_options={"clock": clock, "piggyback": seed % 2 == 0},
        network=lossy,
        workload=Workload(senders=None if seed % 4 else [0]),
    )
    run = simulate(scenario, seed)
    assert run.finished
    assert run.stats["still_held"] == 0
    verdict = check(run.events, guarantees=run.scenario.promises(), global_clock=True)
    assert {name: one.verdict for name, one in verdict.items()} == dict.fromkeys(run.scenario.promises(), "holds")


@pytest.mark.parametrize("seed", range(4))
def test_whole_members_with_skew_and_drift(seed: int) -> None:
    scenario = Scenario.of(
        "paper",
        members=4,
        messages=10,
        stability="timestamp-ack",
        network=NetworkOptions(loss=0.2, duplicate=0.1, reorder=0.2),
        clocks=Clocks(skew="100ms", drift_ppm=500),
    )
    run = simulate(scenario, seed)
    assert run.finished
    verdict = check(run.events, guarantees=["stability"])
    assert verdict["stability"].verdict == "holds"
