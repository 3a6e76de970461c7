"""Backoff, jitter and round-trip estimates."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.timers import Backoff, GrowingPause, LongestPause, RoundTripEstimate, jittered


def exact(pause_ns: int) -> int:
    return pause_ns


def went_off(backoff: Backoff, until: int) -> list[int]:
    at: list[int] = []
    while backoff.at is not None and backoff.at <= until:
        now = backoff.at
        assert not backoff.over(now - 1)
        assert backoff.over(now)
        at.append(now)
    return at


@given(st.integers(0, 10**12), st.integers())
def test_jitter_lengthens_by_up_to_half(pause_ns: int, seed: int) -> None:
    assert pause_ns <= jittered(random.Random(seed), pause_ns) <= pause_ns + pause_ns // 2


def test_jitter_reaches_both_ends() -> None:
    drawn = {jittered(random.Random(seed), 10) for seed in range(200)}
    assert drawn == set(range(10, 16))


def test_a_backoff_doubles_up_to_its_limit() -> None:
    backoff = Backoff(exact, 10, 35)
    assert backoff.at is None
    backoff.start(100)
    assert went_off(backoff, 250) == [110, 130, 165, 200, 235]
    assert backoff.tries == 5


def test_a_backoff_may_begin_with_another_pause_which_is_exact() -> None:
    backoff = Backoff(lambda pause_ns: pause_ns + 1, 20, 40, first_ns=5)
    backoff.start(0)
    assert went_off(backoff, 150) == [5, 26, 67, 108, 149]


def test_a_backoff_that_is_started_again_is_as_patient_as_at_first() -> None:
    backoff = Backoff(exact, 10, 1000)
    backoff.start(0)
    went_off(backoff, 300)
    backoff.start(500)
    assert backoff.tries == 0
    assert went_off(backoff, 600) == [510, 530, 570]
    backoff.stop()
    assert backoff.at is None
    assert backoff.tries == 0
    assert not backoff.over(10**9)


def test_a_backoff_may_grow_to_another_limit_and_come_back_below_it() -> None:
    backoff = Backoff(exact, 10, 20)
    backoff.start(0)
    assert went_off(backoff, 50) == [10, 30, 50]
    for now, at in ((50, 70), (70, 110), (110, 190)):
        backoff.relent(80)
        assert backoff.at == at or now == 50
        assert went_off(backoff, at)[-1:] == [at]
    assert backoff.at == 270
    backoff.relent(40)
    assert went_off(backoff, 350) == [270, 310, 350]


def test_two_backoffs_do_not_go_off_in_step() -> None:
    times = []
    for seed in (1, 2):
        chance = random.Random(seed)
        backoff = Backoff(lambda pause_ns, chance=chance: jittered(chance, pause_ns), 1000, 64_000)  # type: ignore[misc]
        backoff.start(0)
        times.append(went_off(backoff, 10**6))
    assert not set(times[0][1:]) & set(times[1][1:])


def test_a_growing_pause_starts_anew_with_news() -> None:
    pause = GrowingPause(exact, 10, 35)
    seen = [pause.ns]
    for _ in range(3):
        pause.grow()
        seen.append(pause.ns)
    assert seen == [10, 20, 35, 35]
    pause.renew()
    assert pause.ns == 10


def test_a_growing_pause_is_never_below_its_first() -> None:
    pause = GrowingPause(exact, 100, 10)
    pause.grow()
    assert pause.ns == 100


def test_an_estimate_follows_rfc_6298() -> None:
    estimate = RoundTripEstimate(1_000, timeout_ns_min=1, timeout_ns_max=10**9)
    assert estimate.timeout_ns == 1_000
    estimate.measured(800)
    assert (estimate.mean_ns, estimate.spread_ns, estimate.timeout_ns) == (800, 400, 800 + 4 * 400)
    estimate.measured(1_600)  # spread 3/4 * 400 + 1/4 * 800, mean 7/8 * 800 + 1/8 * 1600
    assert (estimate.mean_ns, estimate.spread_ns, estimate.timeout_ns) == (900, 500, 2_900)


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=50))
def test_an_estimate_stays_among_what_was_measured(samples: list[int]) -> None:
    estimate = RoundTripEstimate(1, timeout_ns_min=50, timeout_ns_max=10**9)
    for sample in samples:
        estimate.measured(sample)
        assert 50 <= estimate.timeout_ns <= 10**9
    assert estimate.mean_ns is not None
    assert min(samples) - 8 <= estimate.mean_ns <= max(samples)


def test_an_estimate_settles() -> None:
    estimate = RoundTripEstimate(10**9)
    timeouts = []
    for _ in range(100):
        estimate.measured(20_000_000)
        timeouts.append(estimate.timeout_ns)
    assert all(earlier >= later for earlier, later in pairwise(timeouts))
    assert 20_000_000 <= timeouts[-1] <= 20_100_000


def test_the_longest_pause_counts_for_half_as_much_every_ten_seconds_whenever_the_clock_begins() -> None:
    second = 10**9
    for start in (-100 * second, 0, 1_700_000_000 * second):
        pause = LongestPause(400)
        assert pause.ns(start) == 0
        pause.measured(1_000, start)
        assert [pause.ns(start + ten * 10 * second) for ten in range(3)] == [400, 200, 100]
        pause.measured(150, start + 10 * second)
        assert pause.ns(start + 10 * second) == 200, "a shorter one does not replace what still counts for more"
        pause.measured(150, start + 20 * second)
        assert pause.ns(start + 20 * second) == 150
        pause.measured(75, start + 35 * second)
        assert pause.ns(start + 44 * second) == 75, "one as long as what still counts counts from now on"
