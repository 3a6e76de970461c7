"""Random schedules of every ordering: loss, duplication, reordering, overruns, partitions, pauses, skewed clocks.

The seeds are fixed, so a failure here is a failure everywhere; `make torture` runs as many more as one likes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.protocol.ordering import ORDERINGS
from antiphon.sim.scenario import from_table, load, to_toml
from antiphon.sim.torture import flaw, schedule

SCHEDULES = 2_000
CHUNK = 250
REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.toml"))


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_random_schedules(ordering: str, first: int) -> None:
    for seed in range(first, first + CHUNK):
        scenario = schedule(seed, ordering)
        wrong = flaw(scenario, seed)
        assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(scenario)}"


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_went_wrong(path: Path) -> None:
    scenario, seed = from_table(load(path)), int(path.stem.rpartition("-")[2])
    assert flaw(scenario, seed) is None
