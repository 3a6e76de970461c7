"""Random schedules of whole groups, those that once failed, and those that are known to fail still."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.testing.torture.judge import judge
from antiphon.testing.torture.run import run
from antiphon.testing.torture.schedule import Schedule, draw, from_json
from stack.known import KNOWN, Known, is_drawn, new_flaws

HERE = Path(__file__).parent
SLICES, PER_SLICE = 30, 20  # 600 schedules


@pytest.mark.parametrize("part", range(SLICES))
def test_nothing_is_wrong_with_random_schedules(part: int) -> None:
    done, seed = 0, 1_000_000 + part * 1_000
    while done < PER_SLICE:
        schedule = draw(seed, small=True)
        if is_drawn(schedule):
            flaws = new_flaws(schedule)
            assert not flaws, f"seed {seed}: {flaws[0]}; replay it: {schedule.to_json()}"
            done += 1
        seed += 1


@pytest.mark.parametrize("path", sorted((HERE / "regressions").glob("*.json")), ids=lambda path: path.stem)
def test_what_was_mended_stays_so(path: Path) -> None:
    assert judge(run(from_json(path.read_bytes())))[0] == []


def shown_by(known: Known) -> Schedule:
    return from_json((HERE / "known" / f"{known.name}.json").read_bytes())


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_what_is_known_is_still_so(known: Known) -> None:
    flaws, _ = judge(run(shown_by(known)))
    assert flaws, f"{known.name} is mended: move its schedule to regressions/, and take it out of KNOWN"
    assert known.touches(shown_by(known)) or known.rule in {flaw.rule for flaw in flaws}


def test_every_known_flaw_is_shown() -> None:
    assert {path.stem for path in (HERE / "known").glob("*.json")} == {known.name for known in KNOWN}
