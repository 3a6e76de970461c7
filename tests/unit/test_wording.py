"""How quantities are said."""

from __future__ import annotations

import pytest

from antiphon.wording import amount, only_publishing


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0"), (0.254, "0.254"), (12.54, "12.5"), (999.6, "1,000"), (1953, "1,953")]
)
def test_amounts_are_never_said_by_powers_of_ten(value: float, said: str) -> None:
    assert amount(value) == said


def test_one_that_only_publishes_and_several_are_told_in_their_grammar() -> None:
    assert only_publishing(["web"]).startswith("web never delivers anything: if it only publishes, a topic (")
    assert only_publishing(["a", "b"]).startswith("a and b never deliver anything: if they only publish, a topic (")
