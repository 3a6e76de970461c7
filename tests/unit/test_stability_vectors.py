"""Vectors on the wire: whole, as a change of a base, and by the last byte over a floor."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.stability.vectors import (
    changed,
    pack_change,
    pack_some,
    pack_whole,
    unpack_change,
    unpack_some,
    unpack_whole,
)
from antiphon.protocol.wire import Malformed

entries = st.lists(st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 2**32 - 1)), max_size=40)


@given(entries)
def test_a_whole_vector_comes_back(numbers: list[int]) -> None:
    assert unpack_whole(pack_whole(np.array(numbers, np.int64)), len(numbers)).tolist() == numbers


@given(entries)
def test_a_change_comes_back_and_costs_nothing_where_nothing_changed(numbers: list[int]) -> None:
    packed = pack_change(np.array(numbers, np.int64))
    assert unpack_change(packed, len(numbers)).tolist() == numbers
    if not any(numbers):
        assert packed == b""


@given(st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255), st.booleans()), max_size=40))
def test_the_last_byte_over_a_near_floor_is_exact(entries: list[tuple[int, int, bool]]) -> None:
    floor = np.array([low for low, _, _ in entries], np.int64)
    numbers = np.array([low + more for low, more, _ in entries], np.int64)
    which = np.array([chosen for _, _, chosen in entries], bool)
    expected = np.where(which, numbers, floor).tolist()
    assert unpack_some(pack_some(numbers, which), floor).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 2**20)), min_size=1, max_size=10))
def test_the_last_byte_over_a_far_floor_is_never_too_high(entries: list[tuple[int, int]]) -> None:
    floor = np.array([low for low, _ in entries], np.int64)
    numbers = np.array([low + more for low, more in entries], np.int64)
    found = unpack_some(pack_some(numbers, np.ones(len(entries), bool)), floor)
    assert ((floor <= found) & (found <= numbers)).all()


@given(st.binary(max_size=40), st.integers(0, 20))
def test_any_bytes_are_a_vector_or_malformed(packed: bytes, count: int) -> None:
    for unpack in (unpack_whole, unpack_change, lambda b, n: unpack_some(b, np.zeros(n, np.int64))):
        with contextlib.suppress(Malformed):
            assert len(unpack(packed, count)) == count


def test_a_counter_does_not_pass_four_bytes() -> None:
    with pytest.raises(Malformed):
        changed(np.array([2**32 - 1]), np.array([1]))


def test_twelve_changes_among_512_entries_cost_a_fiftieth() -> None:
    increments = np.zeros(512, np.int64)
    increments[::43] = 1
    assert len(pack_change(increments)) <= 4 * 512 // 50


@pytest.mark.parametrize("gap", [1, 126, 127, 128, 129, 255, 256, 16_383, 16_384, 40_000])
@pytest.mark.parametrize("run", [1, 127, 128, 300])
def test_changes_far_apart_and_long_ones_come_back_as_they_were(gap: int, run: int) -> None:
    """In groups of more than 127 members the distances take two bytes and more."""
    increments = np.zeros(gap + run + 3, np.int64)
    increments[gap : gap + run] = 7
    increments[-1] = 9
    assert unpack_change(pack_change(increments), len(increments)).tolist() == increments.tolist()
    floor = increments + 3
    told = unpack_some(pack_some(floor + 1, increments > 0), floor)
    assert told.tolist() == (floor + (increments > 0)).tolist()


@pytest.mark.parametrize("length", [0, 7, 9, 12])
def test_a_vector_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(Malformed, match="vector-length"):
        unpack_whole(bytes(length), 2)
    assert unpack_whole(pack_whole(np.array([1, 2**32 - 1])), 2).tolist() == [1, 2**32 - 1]
