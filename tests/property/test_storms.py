"""Seeded storms: the cost oracle flags each on ordinary schedules, where nothing but the cost is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

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
from support.mutants_storms import MODEST, MODEST_RECOVERY, ORDERINGS, RECOVERY

SCHEDULES = 60
AVERAGED = 100
# What the first hundred schedules of each ordering cost in the middle. A change of a protocol may cost a tenth more
# by luck, since it draws other numbers; whoever raises a figure here says why it is worth it.
USUAL = {
    "fifo": cost.TypicalCost(repairs=2.93, datagrams=6.57, bytes=3.65),
    "causal-blocks": cost.TypicalCost(repairs=2.93, datagrams=6.45, bytes=3.66),
    "co": cost.TypicalCost(repairs=10.41, datagrams=8.80, bytes=4.09),
    "abcast": cost.TypicalCost(repairs=4.17, datagrams=14.35, bytes=4.29),
}


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


# What each schedule bears


def in_the_mean(like: str, mutant: type[Ordering] | None = None) -> str | None:
    """Say what is too dear in the mean of the schedules that a ledger takes into account."""
    ledger, seed = cost.CostLedger(), 0
    while ledger.count < AVERAGED:
        scenario = wide(seed, like)
        if cost.is_comparable(scenario):
            ordering = like if mutant is None else mutant
            ledger.add(scenario, cost.measured(replace(scenario, ordering=ordering), seed)[1])
        seed += 1
    return ledger.storm(USUAL[like], log(1.1))


@pytest.mark.parametrize("ordering", sorted(USUAL))
def test_schedules_cost_no_more_in_the_mean_than_they_did(ordering: str) -> None:
    assert in_the_mean(ordering) is None


@pytest.mark.parametrize("name", MODEST)
def test_a_modest_storm_shows_in_the_mean(name: str) -> None:
    assert in_the_mean(*MODEST[name]) is not None


@pytest.mark.parametrize("name", MODEST_RECOVERY)
def test_a_modest_storm_of_recovery_shows_in_the_mean(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "recovery_type", MODEST_RECOVERY[name])
    assert in_the_mean("fifo") is not None


def a_quarter(self: Backoff, now: Instant) -> bool:
    """Go off again after a quarter of the pause that it begins with, however often it was in vain."""
    if self.at is None or self.at > now:
        return False
    self.at, self.tries = now + max(MILLISECOND, self._second_ns // 4), self.tries + 1
    return True


@pytest.mark.parametrize("ordering", ["fifo", "abcast"])
def test_a_group_with_too_short_a_backoff_shows_in_the_mean(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "over", a_quarter)
    assert in_the_mean(ordering) is not None
