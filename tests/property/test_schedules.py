"""Random schedules of every ordering: all that can be asked of a group, and what the network can do to it.

Loss, duplication, reordering, slow links, overruns, partitions, pauses, skewed clocks, one to forty members, every
option of every part. The order must be the promised one, and the cost must be no storm. The seeds are fixed, so a
failure here is a failure everywhere; `make torture` runs as many more as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.sim.cost import RunCost, storm
from antiphon.sim.scenario import from_table, load, to_toml
from antiphon.sim.schedules import small, wide
from antiphon.sim.torture import flaw

SCHEDULES = 240
CHUNK = 120
REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.toml"))


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_random_schedules(ordering: str, first: int) -> None:
    for seed in range(first, first + CHUNK):
        scenario = wide(seed, ordering)
        wrong = flaw(scenario, seed, costs=True)
        assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(scenario)}"


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_small_schedules(ordering: str) -> None:
    for seed in range(CHUNK):
        wrong = flaw(small(seed, ordering), seed)
        assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(small(seed, ordering))}"


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_went_wrong(path: Path) -> None:
    scenario, seed = from_table(load(path)), int(path.stem.rpartition("-")[2])
    assert flaw(scenario, seed, costs=True) is None


def test_the_schedules_reach_all_that_they_should() -> None:
    drawn = [wide(seed, "fifo") for seed in range(1000)]
    assert min(one.members for one in drawn) == 1
    assert max(one.members for one in drawn) >= 30
    assert {0, 60_000} <= {one.workload.payload for one in drawn}
    bandwidths = [one.network.bandwidth for one in drawn if one.network.bandwidth]
    assert min(bandwidths) < 100_000
    assert max(bandwidths) > 50_000_000
    assert {one.stability for one in drawn} == set(STABILITIES)
    assert any(one.network.receive_buffer == 2 * one.members > 8 for one in drawn)
    assert any(one.safe for one in drawn)
    assert any(one.workload.lifetime for one in drawn)
    for ordering, part in ORDERINGS.items():
        keys = {key for seed in range(600) for key in wide(seed, ordering).ordering_options}
        assert keys == set(part.Options.__struct_fields__), ordering


def test_a_storm_is_seen() -> None:
    scenario = next(wide(seed, "abcast") for seed in range(100) if not wide(seed, "abcast").ordering_options)
    calm = RunCost(datagrams=9, bytes=900, lost=0, repairs=0, took_ns=10**6, held=1)
    assert storm(scenario, 0, calm) is None
    assert "keeps 9999" in str(storm(scenario, 0, RunCost(9, 900, 0, 0, 10**6, 9999)))
    assert "repairs" in str(storm(scenario, 0, RunCost(9, 900, 3, 10**6, 10**6, 1)))
    assert "bytes" in str(storm(scenario, 0, RunCost(9, 10**10, 0, 0, 10**6, 1)))
    assert " s where" in str(storm(scenario, 0, RunCost(9, 10**5, 0, 0, 10**15, 1)))
