"""Marking, listing and replacing rules."""

from __future__ import annotations

import pytest

from antiphon.protocol.rules import NotARule, replaced, rule, rules_of


class Wheel:
    @rule("Figure 2")
    def round(self, angle: int) -> bool:
        return angle == 360

    def size(self) -> int:
        return 1


class Cart:
    wheel_type = Wheel
    Options = dict

    def __init__(self) -> None:
        self.wheel = self.wheel_type()

    @rule("Section 1")
    def rolls(self) -> bool:
        return self.wheel.round(360)

    @staticmethod
    @rule("Section 2")
    def price(weight: int) -> int:
        return 2 * weight

    @property
    @rule("Section 3")
    def empty(self) -> bool:
        return True


class FastCart(Cart):
    def rolls(self) -> bool:
        return super().rolls()


def test_rules_are_those_that_are_marked_with_their_place_in_the_paper() -> None:
    assert {r.name: r.source for r in rules_of(Cart).values()} == {
        "rolls": "Section 1",
        "price": "Section 2",
        "empty": "Section 3",
        "round": "Figure 2",
    }


def test_a_rule_knows_its_lines() -> None:
    module, first, last = rules_of(Cart)["rolls"].lines
    assert module == __name__
    assert last - first == 2


def test_what_overrides_a_rule_is_that_rule() -> None:
    assert rules_of(FastCart)["rolls"].function is FastCart.__dict__["rolls"]


def test_rules_of_all_kinds_are_replaced_and_the_protocol_stays_as_it_was() -> None:
    broken = replaced(Cart, price=lambda weight: 3 * weight, empty=lambda self: False, round=lambda self, angle: False)
    assert issubclass(broken, Cart)
    assert (broken.price(2), broken().empty, broken().rolls()) == (6, False, False)
    assert (Cart.price(2), Cart().empty, Cart().rolls()) == (4, True, True)
    twice = replaced(broken, rolls=lambda self: not Cart.rolls(self))
    assert twice().rolls()
    assert twice.price(2) == 6


@pytest.mark.parametrize("name", ["size", "wheel_type", "spin", "__init__"])
def test_nothing_but_a_rule_is_replaced(name: str) -> None:
    with pytest.raises(NotARule, match="has no rule"):
        replaced(Cart, **{name: lambda self: 1})


def test_a_replacement_takes_the_same_arguments() -> None:
    with pytest.raises(NotARule, match="takes 2 arguments"):
        replaced(Cart, round=lambda self: True)


def test_a_private_method_is_no_rule() -> None:
    def _hidden() -> None:
        pass

    with pytest.raises(NotARule, match="not a public method"):
        rule("nowhere")(_hidden)


def test_one_name_is_one_rule() -> None:
    class Twice(Cart):
        spare_type = Wheel

    with pytest.raises(NotARule, match="two rules round"):
        rules_of(Twice)
