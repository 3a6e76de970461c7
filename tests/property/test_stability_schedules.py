"""Stability with vectors under thousands of random schedules, the schedules under broken rules, and whole members."""

from __future__ import annotations

import pytest

from antiphon.protocol.stability import STABILITIES
from antiphon.protocol.stability.rounds import VectorPart
from antiphon.sim.cluster import SimulatedRun, simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Clocks, Scenario
from antiphon.trace.naive import check
from support.mutants_stability import MUTANTS
from support.round_group import RoundGroup, outcome

VECTOR_PROTOCOLS = {name: part for name, part in STABILITIES.items() if issubclass(part, VectorPart)}
SCHEDULES = 2_400
BATCH = 800


def test_the_protocols_with_vectors_are_all_here() -> None:
    assert len(VECTOR_PROTOCOLS) == 6


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
@pytest.mark.parametrize("name", VECTOR_PROTOCOLS)
def test_safe_live_and_silent_in_every_schedule(name: str, first: int) -> None:
    part = VECTOR_PROTOCOLS[name]
    assert issubclass(part, VectorPart)
    for seed in range(first, first + BATCH):
        RoundGroup(seed, part).run()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_schedules_catch_a_broken_rule(mutant: type[VectorPart]) -> None:
    assert any(outcome(seed, mutant) in MUTANTS[mutant] for seed in range(BATCH))


def holds(run: SimulatedRun) -> None:
    assert run.finished
    assert run.stats["still_held"] == 0
    assert not [reason for reason in run.stats["members"] if reason.startswith("dropped")]
    promises = run.scenario.promises()
    verdicts = check(run.events, guarantees=promises, global_clock=run.scenario.clocks.skew == "0")
    assert {name: one.verdict for name, one in verdicts.items()} == dict.fromkeys(promises, "holds")


@pytest.mark.parametrize("ordering", ["fifo", "abcast", "tomp", "sequencer"])
@pytest.mark.parametrize("name", VECTOR_PROTOCOLS)
def test_whole_members_keep_their_promises_with_every_option(name: str, ordering: str) -> None:
    for seed in range(4):
        options = {
            "delta": seed % 2 == 0,
            "piggyback": seed > 1,
            "positions": ordering != "fifo" and seed in (1, 2),
        }
        scenario = Scenario.of(
            "paper",
            members=(2, 3, 5, 7)[seed],
            messages=8,
            ordering=ordering,
            stability=name,
            stability_options=options,
            safe=seed == 2,
            network=NetworkOptions(loss=(0.4, 0.0, 0.2, 0.3)[seed], duplicate=0.1, reorder=0.2),
            clocks=Clocks(skew="100ms", drift_ppm=300) if seed == 3 else Clocks(),
        )
        holds(simulate(scenario, seed))


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("ordering", ["fifo", "abcast", "tomp", "sequencer"])
@pytest.mark.parametrize("name", STABILITIES)
def test_safe_delivery_waits_until_everyone_holds_the_message(name: str, ordering: str, positions: bool) -> None:
    if positions and (ordering == "fifo" or name == "timestamp-ack"):
        pytest.skip("there are no positions to count")
    run = simulate(
        Scenario.of(
            "paper",
            members=4,
            messages=6,
            ordering=ordering,
            stability=name,
            stability_options={"positions": True} if positions else {},
            safe=True,
            network=NetworkOptions(loss=0.3, reorder=0.2),
        ),
        seed=5,
    )
    holds(run)
    finals = ordering != "fifo"
    held_by_all: dict[tuple[int | None, int | None], int] = {}
    for event in run.events:
        if event.event == "receive" or (finals and event.detail == "final"):
            message = (event.sender, event.seq)
            held_by_all[message] = max(held_by_all.get(message, 0), event.time_ns or 0)
    deliveries = [event for event in run.events if event.event == "deliver"]
    assert len(deliveries) == 4 * 4 * 6
    for event in deliveries:
        assert (event.time_ns or 0) >= held_by_all[event.sender, event.seq]
