"""Random schedules of every ordering: all that can be asked of a group, and what the network can do to it.

Loss, duplication, reordering, slow links, overruns, partitions, pauses, skewed clocks, one to forty members, every
option of every part. The order must be the promised one, and the cost must be no storm. The seeds are fixed, so a
failure here is a failure everywhere; `make torture` runs as many more as one likes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from antiphon.protocol.options import stability_type
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.sim import torture
from antiphon.sim.scenario import Fault, Scenario, from_table, load, to_toml
from antiphon.sim.schedules import small, wide
from antiphon.sim.torture import flaw

SCHEDULES = 2000
CHUNK = 250
SMALL = 120
EVENTS_MAX_RETUNED = 1_000  # one in twenty needs more, with pauses of a nanosecond or so: `make torture` waits
REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.toml"))


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_random_schedules(ordering: str, first: int) -> None:
    for seed in range(first, first + CHUNK):
        scenario = wide(seed, ordering)
        wrong = flaw(scenario, seed, costs=True, events_max_retuned=EVENTS_MAX_RETUNED)
        assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(scenario)}"


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_small_schedules(ordering: str) -> None:
    for seed in range(SMALL):
        wrong = flaw(small(seed, ordering), seed)
        assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(small(seed, ordering))}"


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_went_wrong(path: Path) -> None:
    scenario, seed = from_table(load(path)), int(path.stem.rpartition("-")[2])
    assert flaw(scenario, seed, costs=True) is None


def test_the_schedules_reach_all_that_they_should() -> None:
    """Most schedules are small, but each kind of fault, network, size and option is drawn often enough to be met."""
    drawn = [wide(seed, "fifo") for seed in range(2000)]
    networks = [one.network for one in drawn]
    kinds = {
        "alone": [one.members == 1 for one in drawn],
        "pairs": [one.members == 2 for one in drawn],
        "4 and 5": [one.members in (4, 5) for one in drawn],
        "6 to 16": [6 <= one.members <= 16 for one in drawn],
        "more": [one.members > 16 for one in drawn],
        "8 messages each": [one.messages == 8 for one in drawn],
        "one sender of several": [len(one.senders) == 1 < one.members for one in drawn],
        "all send": [len(one.senders) == one.members for one in drawn],
        "no payload": [one.workload.payload == 0 for one in drawn],
        "60,000 bytes": [one.workload.payload == 60_000 for one in drawn],
        "lifetimes": [one.workload.lifetime is not None for one in drawn],
        "priorities": [one.workload.priorities > 1 for one in drawn],
        "safe": [one.safe for one in drawn],
        "loss of 2%": [network.loss == 0.02 for network in networks],
        "loss of 40%": [network.loss == 0.4 for network in networks],
        "duplicates": [network.duplicate > 0 for network in networks],
        "reordering": [network.reorder > 0 for network in networks],
        "under 100 kbit/s": [0 < network.bandwidth < 100_000 for network in networks],
        "over 50 Mbit/s": [network.bandwidth > 50_000_000 for network in networks],
        "overrun": [network.receive_buffer > 0 for network in networks],
        "overrun that grows with n": [one.network.receive_buffer == 2 * one.members > 4 for one in drawn],
        "skew": [one.clocks.skew != "0" for one in drawn],
        "drift": [one.clocks.drift_ppm > 0 for one in drawn],
        "window of 1": [one.window == 1 for one in drawn],
        "two faults": [len(one.faults) == 2 for one in drawn],
        **{
            kind: [kind in [fault.kind for fault in one.faults] for one in drawn]
            for kind in ("partition", "cut", "pause")
        },
        "a fault of seconds": [any(_lasts_ms(fault) > 1000 for fault in one.faults) for one in drawn],
        **{stability: [one.stability == stability for one in drawn] for stability in STABILITIES},
    }
    rare = {kind: sum(seen) for kind, seen in kinds.items() if sum(seen) < (3 if kind == "more" else 20)}
    assert rare == {}
    for ordering, part in ORDERINGS.items():
        keys = Counter(key for seed in range(600) for key in wide(seed, ordering).ordering_options)
        assert set(keys) == set(part.Options.__struct_fields__), ordering
        assert min(keys.values(), default=20) >= 20, keys
    for stability in STABILITIES:
        keys = Counter(key for one in drawn if one.stability == stability for key in one.stability_options)
        assert set(keys) == set(stability_type(stability).Options.__struct_fields__), stability
        assert min(keys.values()) >= 10, keys


def _lasts_ms(fault: Fault) -> int:
    return int((fault.until or "0ms").removesuffix("ms")) - int(fault.at.removesuffix("ms"))


def test_large_schedules_are_of_all_sizes_alike() -> None:
    drawn = [wide(seed, "fifo", large=True).members for seed in range(700)]
    for low, high in ((1, 1), (2, 2), (3, 3), (4, 5), (6, 9), (10, 16), (17, 40)):
        assert 60 < sum(low <= members <= high for members in drawn) < 150


@pytest.mark.parametrize("interrupted", [False, True])
def test_torture_says_how_much_was_tried_when_it_is_interrupted_too(
    interrupted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop_at_two(seed: int, ordering: str, *, large: bool) -> Scenario:
        if interrupted and seed == 2:
            raise KeyboardInterrupt
        return wide(seed, ordering, large=large)

    monkeypatch.setattr(torture.schedules, "wide", stop_at_two)
    monkeypatch.setattr("sys.argv", ["torture", "--ordering", "fifo", "--seeds", "4"])
    assert torture.main() == 0
    tried, last = (2, 2) if interrupted else (4, 3)
    assert f"{tried} schedules of fifo (seeds 0 to {last}): nothing wrong" in capsys.readouterr().out
