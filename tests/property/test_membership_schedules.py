"""Random schedules of groups with views: crashes and restarts, pauses, partitions, one-way cuts, joins, leaves.

Each run must keep its promises (order, agreement, integrity, stability, view synchrony; with safe delivery uniformly),
never give one number to two views, never deliver a message in two views, never lose what was stable, say so where it
stops, tell every sender once what became of each of its messages, and end with all that are alive in one view that
delivers, with equal states where states are transferred. Where each side of a partition goes on, two sides may
use one number, and the same holds for the views of each. The seeds are fixed; `make torture` can run as many more as
one likes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.ordering import ORDERINGS
from antiphon.sim.scenario import Scenario, to_toml
from antiphon.sim.view_cluster import ViewCluster
from antiphon.sim.view_schedules import broken_links, flaw, flaw_of, not_delivering, schedule
from support.mutants_membership import MUTANTS

SCHEDULES = 340  # of each ordering
CHUNK = 85
SIDES = 35  # of each ordering, where each side of a partition goes on
LAGGING = 20
FORGETTING = 25  # of each ordering and each kind of partition, of which some lose a state
BROKEN = 6  # of each ordering, with links that never heal
TRANSFERS = 40  # of each ordering and each kind of partition, with the applications' state transferred
SEEDS = 300  # in which a mutant must be noticed


def must_be_right(scenario: Scenario, seed: int) -> None:
    wrong = flaw(scenario, seed)
    assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(scenario)}"


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_random_schedules(ordering: str, first: int) -> None:
    for seed in range(first, first + CHUNK):
        scenario = schedule(seed, ordering)
        must_be_right(scenario, seed)


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_random_schedules_in_which_each_side_goes_on(ordering: str) -> None:
    for seed in range(SIDES):
        scenario = schedule(seed, ordering, "each-side")
        must_be_right(scenario, seed)


@pytest.mark.parametrize("partition", ["majority", "each-side"])
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_random_schedules_in_which_joiners_are_given_the_others_state(
    ordering: str, partition: Literal["majority", "each-side"]
) -> None:
    for seed in range(TRANSFERS):
        scenario = schedule(seed, ordering, partition, transfer=True)
        must_be_right(scenario, seed)


@pytest.mark.parametrize("partition", ["majority", "each-side"])
def test_random_schedules_in_which_messages_outlive_their_time(partition: Literal["majority", "each-side"]) -> None:
    for seed in range(LAGGING):
        scenario = schedule(seed, "causal-blocks", partition)
        lagging = msgspec.structs.replace(scenario.membership, slow="lag", lifetime_ns=20 * MILLISECOND)
        must_be_right(msgspec.structs.replace(scenario, membership=lagging), seed)


@pytest.mark.parametrize("partition", ["majority", "each-side"])
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_random_schedules_in_which_a_name_loses_its_state(
    ordering: str, partition: Literal["majority", "each-side"]
) -> None:
    for seed in range(FORGETTING):
        scenario = schedule(seed, ordering, partition, forgetting=True)
        if any(fault.forgets for fault in scenario.faults):
            must_be_right(scenario, seed)


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_whatever_links_break_a_majority_that_hears_itself_delivers_again_within_three_seconds(ordering: str) -> None:
    for seed in range(BROKEN):
        scenario = broken_links(seed, ordering)
        run = ViewCluster(scenario, seed).run()
        wrong = not_delivering(run, 4 * SECOND) or flaw_of(run, ended=False)
        assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(scenario)}"
        assert run.stats["members"]["views"] <= 4 * scenario.members, f"seed {seed}: views follow one another for ever"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_left_out_is_noticed(name: str) -> None:
    mutant = MUTANTS[name]
    for seed in [mutant.hint, *range(SEEDS)]:
        scenario = mutant.made or schedule(seed, mutant.ordering)
        if mutant.ordering_type is not None:
            scenario = msgspec.structs.replace(scenario, ordering=mutant.ordering_type)
        wrong = flaw(msgspec.structs.replace(scenario, limit="5s"), seed, mutant.process)
        if wrong is not None and wrong.split()[0].rstrip(":") in mutant.breaks:
            return
        assert mutant.made is None, f"noticed as {wrong!r}, not as {mutant.breaks}"
    raise AssertionError(f"a mutant that breaks {mutant.breaks} survived {SEEDS} schedules")


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.made is not None])
def test_with_the_rule_the_same_schedule_is_right(name: str) -> None:
    scenario = MUTANTS[name].made
    assert scenario is not None
    assert flaw(scenario, MUTANTS[name].hint) is None
