"""Seeded storms: the cost oracle flags each on ordinary schedules, where nothing but the cost is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from antiphon.protocol.machine import MILLISECOND, Instant
from antiphon.protocol.parts import Ordering
from antiphon.protocol.timers import Backoff
from antiphon.protocol.view.member import Member
from antiphon.sim import cost
from antiphon.sim.scenario import Scenario
from antiphon.sim.schedules import wide
from antiphon.sim.torture import flaw
from support.mutants_storms import ORDERINGS, RECOVERY

SCHEDULES = 60


def ordinary(like: str) -> Iterator[tuple[Scenario, int]]:
    """Give schedules of a few members, with the pauses of a profile, in which something is lost, late or overrun."""
    found = 0
    for seed in range(2_000):
        scenario = wide(seed, like)
        network = scenario.network
        if scenario.members > 2 and not cost.retuned(scenario) and (network.loss or network.receive_buffer):
            yield scenario, seed
            found += 1
            if found == SCHEDULES:
                return


@pytest.mark.parametrize("name", ORDERINGS)
def test_a_storm_is_flagged(name: str) -> None:
    like, mutant = ORDERINGS[name]
    assert is_flagged(like, mutant)


@pytest.mark.parametrize("name", RECOVERY)
def test_a_storm_of_recovery_is_flagged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, Member, "recovery_type", RECOVERY[name])
    assert is_flagged("fifo", None)


def at_once(self: Backoff, now: Instant) -> bool:
    """Go off again after a millisecond, however often it was in vain."""
    if self.at is None or self.at > now:
        return False
    self.at, self.tries = now + MILLISECOND, self.tries + 1
    return True


@pytest.mark.parametrize("ordering", ["fifo", "abcast", "tomp", "sequencer"])
def test_a_group_without_backoff_is_flagged(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, Backoff, "over", at_once)
    assert is_flagged(ordering, None)


def broken(monkeypatch: pytest.MonkeyPatch, cls: type, name: str, value: object) -> None:
    """Break all runs but those of fifo that others are compared with."""
    compared, whole = cost.cost_of_fifo, getattr(cls, name)

    def sound(scenario: Scenario, seed: int) -> cost.RunCost:
        with monkeypatch.context() as patch:
            patch.setattr(cls, name, whole)
            return compared(scenario, seed)

    monkeypatch.setattr(cost, "cost_of_fifo", sound)
    monkeypatch.setattr(cls, name, value)


def is_flagged(like: str, mutant: type[Ordering] | None) -> bool:
    runs = (
        (scenario if mutant is None else replace(scenario, ordering=mutant), seed) for scenario, seed in ordinary(like)
    )
    return any((flaw(scenario, seed, costs=True) or "").startswith("storm") for scenario, seed in runs)
