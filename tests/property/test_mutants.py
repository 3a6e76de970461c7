"""Seeded bugs: each broken rule must be noticed, by the checker or by a run that never ends.

If a mutant survives, either the schedules are too tame or the checker is blind; both are defects of ours.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from antiphon.protocol.parts import Ordering
from antiphon.protocol.recovery import Recovery
from antiphon.protocol.view.member import Member
from antiphon.sim.scenario import Scenario
from antiphon.sim.schedules import small as schedule
from antiphon.sim.torture import flaw
from support import mutants_causal_blocks, mutants_co, mutants_recovery, mutants_sequencer, mutants_two_phase

ORDERING_MUTANTS: dict[str, tuple[type[Ordering], str]] = {
    **{f"causal-blocks/{name}": mutant for name, mutant in mutants_causal_blocks.MUTANTS.items()},
    **{f"co/{name}": mutant for name, mutant in mutants_co.MUTANTS.items()},
    **{f"two-phase/{name}": mutant for name, mutant in mutants_two_phase.MUTANTS.items()},
    **{f"sequencer/{name}": mutant for name, mutant in mutants_sequencer.MUTANTS.items()},
}
SEEDS = 400
UNFINISHED = ("stuck", "undrained", "incomplete", "agreement")  # the same flaw, seen from several sides


def schedules(ordering: str | type[Ordering], like: str) -> Iterator[tuple[Scenario, int]]:
    for seed in range(SEEDS):
        yield msgspec.structs.replace(schedule(seed, like, "vector-ack"), ordering=ordering, limit="8s"), seed


def assert_noticed(runs: Iterator[tuple[Scenario, int]], breaks: str) -> None:
    seen: dict[str, int] = {}
    for scenario, seed in runs:
        wrong = flaw(scenario, seed)
        if wrong is None:
            continue
        kind = wrong.split(":")[0].split()[0]
        if kind == breaks or (breaks in UNFINISHED and kind in UNFINISHED):
            return
        seen[kind] = seed
    assert not seen, f"noticed as {seen}, not as {breaks}"
    raise AssertionError(f"a mutant that breaks {breaks} survived {SEEDS} schedules")


@pytest.mark.parametrize("name", ORDERING_MUTANTS)
def test_a_broken_ordering_is_noticed(name: str) -> None:
    mutant, breaks = ORDERING_MUTANTS[name]
    kind = name.split("/")[0]
    assert_noticed(schedules(mutant, {"two-phase": "abcast"}.get(kind, kind)), breaks)


@pytest.mark.parametrize("name", mutants_recovery.MUTANTS)
def test_a_broken_recovery_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant, breaks = mutants_recovery.MUTANTS[name]
    assert issubclass(mutant, Recovery)
    monkeypatch.setattr(Member, "recovery_type", mutant)
    assert_noticed(schedules("fifo", "fifo"), breaks)


def test_there_are_enough_of_them() -> None:
    assert len(ORDERING_MUTANTS) + len(mutants_recovery.MUTANTS) >= 25
