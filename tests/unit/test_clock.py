from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.clock import LamportClock, SkewedClock, StrictClock


@given(st.integers(0, 10**12), st.integers(-(10**9), 10**9), st.integers(-999_999, 999_999))
def test_a_skewed_clock_is_inverted_exactly(instant: int, skew: int, drift: int) -> None:
    clock = SkewedClock(skew, drift)
    true = clock.true(clock.read(instant))
    assert true <= instant
    assert clock.read(true) == clock.read(instant)
    assert clock.read(true - 1) < clock.read(instant)


@given(st.integers(0, 10**12), st.integers(-(10**9), 10**9), st.integers(-999_999, 999_999))
def test_a_reading_that_a_clock_jumps_over_is_passed_at_the_first_instant_after(
    shown: int, skew: int, drift: int
) -> None:
    clock = SkewedClock(skew, drift)
    true = clock.true(shown)
    assert clock.read(true) >= shown > clock.read(true - 1)


@given(st.lists(st.integers(-5, 50), min_size=1))
def test_strict_timestamps_increase_even_where_the_clock_repeats_itself(readings: list[int]) -> None:
    clock = StrictClock()
    stamps = [clock.tick(reading) for reading in readings]
    assert stamps[0] > 0
    assert all(a < b for a, b in itertools.pairwise(stamps))
    assert all(stamp >= reading for stamp, reading in zip(stamps, readings, strict=True))
    expected = 0
    for stamp, reading in zip(stamps, readings, strict=True):
        expected = max(expected + 1, reading)
        assert stamp == expected, "no further ahead of the clock than it must be"


def test_a_lamport_clock_passes_what_it_has_witnessed() -> None:
    clock = LamportClock()
    assert [clock.tick(), clock.tick()] == [1, 2]
    clock.witness(10)
    clock.witness(4)
    assert clock.tick() == 11


def test_the_true_instant_of_a_reading_is_the_first_at_which_the_clock_shows_it() -> None:
    for skew_ns, drift_ppm in ((0, 0), (700, 0), (-700, 0), (700, 90), (-700, -90)):
        clock = SkewedClock(skew_ns, drift_ppm)
        for shown in (0, 1_000, 123_456_789):
            instant = clock.true(shown)
            assert clock.read(instant) >= shown > clock.read(instant - 1)
