"""Delays are the same on every machine, and follow the distributions that they are named after."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.sim.distributions import duration, exp, ln, sampler


@given(st.floats(1e-300, 1e300))
def test_logarithm(x: float) -> None:
    assert math.isclose(ln(x), math.log(x), rel_tol=1e-13, abs_tol=1e-15)


@given(st.floats(-50, 50))
def test_exponential(x: float) -> None:
    assert math.isclose(exp(x), math.exp(x), rel_tol=1e-12)


@pytest.mark.parametrize(
    ("text", "mean_ns"),
    [
        ("fixed 3ms", 3e6),
        ("3ms", 3e6),
        ("uniform 1ms 5ms", 3e6),
        ("exponential 4ms", 4e6),
        ("pareto 1ms 3", 1.5e6),
    ],
)
def test_means(text: str, mean_ns: float) -> None:
    rng, draw = random.Random(5), sampler(text, "latency")
    values = [draw(rng) for _ in range(40_000)]
    assert all(isinstance(value, int) and value >= 0 for value in values)
    assert math.isclose(sum(values) / len(values), mean_ns, rel_tol=0.03)


def test_draws_are_pinned_so_that_a_seed_means_the_same_everywhere() -> None:
    rng = random.Random("7/network")
    texts = ("uniform 1ms 5ms", "exponential 4ms", "pareto 1ms 1.5")
    draws = [sampler(text, "latency")(rng) for text in texts for _ in range(2)]
    assert draws == PINNED


PINNED = [1580086, 3137625, 10395721, 4878054, 20871387, 6336107]


@pytest.mark.parametrize(("text", "ns"), [("5ms", 5_000_000), ("1.5s", 1_500_000_000), ("250us", 250_000), ("0", 0)])
def test_durations(text: str, ns: int) -> None:
    assert duration(text, "at") == ns


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "-5ms", "uniform 5ms", "uniform 9ms 1ms", "pareto 1ms -1", "gamma 1ms"]
)
def test_nonsense_names_the_key(text: str) -> None:
    with pytest.raises(UsageError, match=r"network\.latency"):
        sampler(text, "network.latency")
