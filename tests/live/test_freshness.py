"""Hellos are taken if they were said just now, each once; recordings are not, and no clock is asked."""

from __future__ import annotations

import pytest

from antiphon.live.freshness import ASK_S, ECHOES_MAX, Freshness
from antiphon.live.session import Refused


def meet(one: Freshness, other: Freshness, now: float = 0.0) -> None:
    """Let one prove the other: it asks, and the other answers."""
    other.is_proven("one", one.stamp(now))
    assert one.is_proven("other", other.stamp(now))


def test_who_repeats_the_question_is_proven_and_then_counted() -> None:
    one, other = Freshness(), Freshness()
    assert not one.is_proven("other", other.stamp(0.0))
    meet(one, other)
    stamp = other.stamp(0.1)
    assert not stamp.echoes  # proven lives need not repeat anything
    assert one.is_proven("other", stamp)
    with pytest.raises(Refused, match="old-hello"):
        one.is_proven("other", stamp)


def test_what_was_recorded_before_ones_own_start_proves_nothing() -> None:
    one, other = Freshness(), Freshness()
    meet(one, other)
    recorded = [other.stamp(0.1) for _ in range(3)]
    again = Freshness()  # one has started again, and other is dead
    assert not any(again.is_proven("other", stamp) for stamp in recorded)


def test_of_an_earlier_life_only_what_is_said_now_is_taken() -> None:
    one, first, second = Freshness(), Freshness(), Freshness()
    first.is_proven("one", one.stamp(0.0))
    recorded = first.stamp(0.0)  # it repeats what one asks still
    assert one.is_proven("other", recorded)
    first.is_proven("one", one.stamp(0.0))
    unheard = first.stamp(0.1)
    meet(one, second, 0.2)
    assert not one.is_proven("other", recorded)
    assert not one.is_proven("other", unheard)
    one.stamp(0.3)
    assert not one.is_proven("other", unheard)
    meet(one, first, 0.4)  # it is alive after all: both have one name


def test_a_question_is_answered_for_a_while_only() -> None:
    one, other = Freshness(), Freshness()
    other.is_proven("one", one.stamp(0.0))
    late = other.stamp(0.0)
    one.stamp(ASK_S)
    one.stamp(2 * ASK_S)
    assert not one.is_proven("other", late)
    meet(one, other, 2 * ASK_S)


def test_of_many_questions_the_newest_are_repeated_and_all_in_turn() -> None:
    one, others = Freshness(), [Freshness() for _ in range(40)]
    stamps = [other.stamp(0.0) for other in others]
    for number, stamp in enumerate(stamps):
        one.is_proven(str(number), stamp)
    first, second, third = (one.stamp(0.0).echoes for _ in range(3))
    assert first == tuple(stamp.question for stamp in reversed(stamps[-ECHOES_MAX:]))
    assert {*first, *second, *third} == {stamp.question for stamp in stamps}
