"""Cutting and reassembling."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.fragment import HEADER_BYTES, Fragment, Fragmenter, Reassembler, cut
from antiphon.protocol.wire import Malformed


def reassembler(**options: int) -> Reassembler:
    return Reassembler(**{"unfinished_max": 4, "bytes_max": 1000, "finished_max": 8, **options})  # type: ignore[arg-type]


@given(st.binary(max_size=300), st.integers(1, 50), st.randoms(use_true_random=False), st.booleans())
def test_whatever_is_cut_is_put_together_in_any_order(
    data: bytes, size: int, rng: random.Random, doubled: bool
) -> None:
    fragments = cut(data, size, 7)
    assert all(len(fragment.data) <= size for fragment in fragments)
    encoded = [fragment.encode() for fragment in fragments] * (1 + doubled)
    rng.shuffle(encoded)
    joining = reassembler()
    whole = [joining.add(3, Fragment.decode(one)) for one in encoded]
    complete = [one for one in whole if one is not None]
    if len(fragments) > 1:
        assert complete == [data]
    else:
        assert set(complete) == {data}  # one that is whole in itself is not remembered
    assert not joining.waits


def test_a_header_is_small_and_read_from_anywhere() -> None:
    fragment = Fragment(2**32 - 1, 5, 65_535, b"data")
    encoded = fragment.encode()
    assert len(encoded) == HEADER_BYTES + 4 == 12
    assert Fragment.decode(b"x" + encoded, 1) == fragment
    with pytest.raises(Malformed):
        Fragment.decode(encoded[: HEADER_BYTES - 1])


def test_what_would_need_too_many_fragments_is_refused_at_once() -> None:
    assert len(cut(bytes(65_535), 1, 0)) == 65_535
    with pytest.raises(ValueError, match="65535 fragments"):
        cut(bytes(65_536), 1, 0)


@pytest.mark.parametrize(("index", "count"), [(0, 0), (2, 2), (3, 2)])
def test_an_impossible_fragment_changes_nothing(index: int, count: int) -> None:
    joining = reassembler()
    with pytest.raises(Malformed):
        joining.add(0, Fragment(1, index, count, b"x"))
    assert not joining.waits


def test_the_oldest_is_given_up_where_too_many_are_unfinished() -> None:
    joining = reassembler(unfinished_max=2)
    pairs = [cut(b"ab", 1, number) for number in range(3)]
    for first, _ in pairs:
        assert joining.add(0, first) is None
    assert joining.abandoned == 1
    assert joining.add(0, pairs[0][1]) is None  # late: it must not begin anew
    assert [joining.add(0, second) for _, second in pairs[1:]] == [b"ab", b"ab"]
    assert joining.abandoned == 1
    assert not joining.waits


def test_the_bytes_of_a_source_are_bounded() -> None:
    joining = reassembler(unfinished_max=100, bytes_max=10)
    for number in range(50):
        joining.add(0, Fragment(number, 0, 2, bytes(3)))
        kept = sum(len(data) for parts in joining.unfinished(0).values() for data in parts.values())
        assert kept <= 10
    joining.add(1, Fragment(0, 0, 2, bytes(3)))
    assert joining.sources() == [0, 1]
    assert joining.unfinished(1) == {(0, 2): {0: bytes(3)}}


def test_one_source_does_not_disturb_another() -> None:
    joining = reassembler()
    left, right = cut(b"left", 2, 9), cut(b"rite", 2, 9)
    assert joining.add(0, left[0]) is None
    assert joining.add(1, right[1]) is None
    assert joining.add(0, left[1]) == b"left"
    assert joining.add(1, right[0]) == b"rite"


def test_a_source_that_is_gone_leaves_nothing() -> None:
    joining = reassembler()
    one, two = cut(b"abcd", 2, 1)
    joining.add(0, one)
    joining.forget(0)
    assert not joining.waits
    assert joining.sources() == []
    assert joining.add(0, two) is None
    assert joining.add(0, one) == b"abcd"


def test_what_is_missing_is_asked_for_at_growing_pauses_and_then_given_up() -> None:
    joining = reassembler(ask_ns=10, ask_ns_max=40, tries_max=3)
    fragments = cut(b"abcdef", 2, 5)
    joining.add(0, fragments[1], now=100)
    assert joining.requests(109) == []
    asked = {now: joining.requests(now) for now in range(110, 300)}
    assert {now: requests for now, requests in asked.items() if requests} == {
        110: [(0, 5, [0, 2])],
        130: [(0, 5, [0, 2])],
        170: [(0, 5, [0, 2])],
    }
    assert joining.abandoned == 1
    assert not joining.waits


def test_fragments_that_are_kept_can_be_sent_again() -> None:
    cutting = Fragmenter(first=2**32 - 2, kept_max=2)
    first, second, third = (cutting.cut(data, 2) for data in (b"aabb", b"ccdd", b"eeff"))
    assert [one[0].number for one in (first, second, third)] == [2**32 - 1, 0, 1]
    assert cutting.again(0, [1, 7]) == [second[1]]
    assert cutting.again(2**32 - 1, [0]) == []  # too old
    assert cutting.again(77, [0]) == []


def test_a_source_that_comes_back_has_all_its_room_again() -> None:
    joining = reassembler(bytes_max=4)
    joining.add(0, Fragment(1, 0, 2, bytes(3)))
    joining.forget(0)
    joining.add(0, Fragment(2, 0, 2, bytes(2)))
    joining.add(0, Fragment(3, 0, 2, bytes(2)))
    assert set(joining.unfinished(0)) == {(2, 2), (3, 2)}, "four bytes fit"


def test_a_source_that_comes_back_may_use_its_numbers_again() -> None:
    joining = reassembler()
    halves = cut(b"abcd", 2, 7)
    assert [joining.add(0, half) for half in halves] == [None, b"abcd"]
    assert [joining.add(0, half) for half in halves] == [None, None], "it is finished"
    joining.forget(0)
    assert [joining.add(0, half) for half in halves] == [None, b"abcd"]
