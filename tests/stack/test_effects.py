"""What the torture is to try is drawn, and comes about: told by what happened in runs of the first seeds."""

from __future__ import annotations

from typing import Final

from antiphon.testing.torture.effects import EFFECTS, effects_of
from antiphon.testing.torture.judge import judge
from antiphon.testing.torture.run import Tortured
from antiphon.testing.torture.schedule import draw

# Of the first 1,000 seeds some that show all of it, and are quick. If what is drawn changes, others are found by
# python -m antiphon.testing.torture --effects --seeds 1000
SHOWING: Final = (
    *(40, 45, 65, 69, 80, 87, 113, 208, 218, 233, 289, 320, 369, 397, 481, 524, 556, 596, 627, 654, 676, 679, 840),
    *(860, 865, 879, 906, 952),
)


def test_everything_that_is_to_be_tried_comes_about() -> None:
    assert max(SHOWING) < 1_000
    shown: set[str] = set()
    for seed in SHOWING:
        tortured = Tortured(draw(seed))
        outcome = tortured.run()
        assert judge(outcome)[0] == []
        shown |= {*effects_of(tortured, outcome)}
    assert {*EFFECTS} - shown == set()
