"""Bursts and packets: what goes in comes out, whatever is lost on the way, and limits hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.live.burst import BURST_BYTES_MAX, BURST_BYTES_MIN, BurstReader, BurstSize, MessageCutter, encode, whole
from antiphon.live.packets import ASK_NS, FINISHED_MAX, TRIES_MAX, UNFINISHED_MAX, PacketCodec

SIZE = 200


def codec(seed: int = 0) -> PacketCodec:
    return PacketCodec(SIZE, random.Random(seed))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=1_500), max_size=12), st.randoms(use_true_random=False))
def test_datagrams_survive_cutting_in_any_order_of_arrival(datagrams: list[bytes], rng: random.Random) -> None:
    bodies = codec(1).encode(datagrams)
    assert all(len(body) <= SIZE for body in bodies)
    rng.shuffle(bodies)
    receiver = codec()
    joined = [datagram for body in bodies for datagram in receiver.decode(3, body, 0)]
    assert sorted(joined) == sorted(datagrams)
    assert not receiver.waits


def test_missing_pieces_are_asked_for_and_sent_again_alone() -> None:
    sender, receiver = codec(), codec()
    datagram = random.Random(1).randbytes(5_000)
    bodies = sender.encode([datagram])
    for index, body in enumerate(bodies):
        if index not in (2, 7):
            assert receiver.decode(0, body, 0) == ()
    assert receiver.requests(ASK_NS - 1) == []
    [(target, ask)] = receiver.requests(ASK_NS)
    assert target == 0
    assert sender.decode(4, ask, 0) == ()
    assert sender.answers == [(4, bodies[2]), (4, bodies[7])]
    assert receiver.decode(0, bodies[2], 0) == ()
    assert list(receiver.decode(0, bodies[7], 0)) == [datagram]
    assert not receiver.waits


def test_a_datagram_that_is_done_with_does_not_begin_anew() -> None:
    receiver = codec()
    bodies = codec().encode([bytes(1_000)])
    assert [len(receiver.decode(0, body, 0)) for body in bodies].count(1) == 1
    assert receiver.decode(0, bodies[0], 0) == ()
    assert not receiver.waits


def test_what_never_becomes_whole_is_given_up() -> None:
    sender, receiver = codec(), codec()
    receiver.decode(0, sender.encode([bytes(1_000)])[0], 0)
    now = 0
    for _ in range(TRIES_MAX + 1):
        now += 100 * ASK_NS
        receiver.requests(now)
    assert not receiver.waits
    assert receiver.broken == 1
    for _ in range(2 * UNFINISHED_MAX + FINISHED_MAX):
        receiver.decode(0, sender.encode([bytes(1_000)])[0], 0)
    assert receiver.broken == 1 + UNFINISHED_MAX + FINISHED_MAX, "only so many are kept"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_nonsense_gives_nothing_or_bytes_and_never_raises(body: bytes) -> None:
    one = codec()
    one.encode([bytes(1_000)])
    for kind in (b"", b"\x00", b"\x01", b"\x02", b"\x03"):
        assert all(isinstance(datagram, bytes) for datagram in one.decode(0, kind + body, 0))
    assert len(one.answers) <= 2 * len(one.encode([bytes(1_000)]))
    BurstReader(1_000).messages(0, body)


@given(st.integers(1, 5_000), st.integers(1, 700))
def test_large_messages_come_together(length: int, size: int) -> None:
    message = random.Random(length).randbytes(length)
    reader = BurstReader(5_000)
    bursts = list(map(encode, MessageCutter().cut(message, size)))
    joined = [complete for payload in bursts for complete in reader.messages(1, payload)]
    assert joined == [message]
    assert reader.unfinished() == []


def test_fragments_that_do_not_fit_together_are_never_joined() -> None:
    reader, cutter = BurstReader(10_000), MessageCutter()
    first, second = list(map(encode, cutter.cut(b"a" * 300, 100))), list(map(encode, cutter.cut(b"b" * 300, 100)))
    assert reader.messages(1, first[0]) == []
    assert reader.messages(1, second[2]) == []  # its beginning is missing, and it displaces the first
    assert reader.messages(1, first[1]) == []
    assert reader.messages(1, first[2]) == []
    assert reader.broken == 3
    assert reader.messages(1, whole([b"c"])) == [b"c"]
    assert reader.messages(2, whole([b"d", b"e"])) == [b"d", b"e"]
    reader.keep_only([2])
    assert reader.unfinished() == []


def test_what_a_sender_gives_up_is_not_broken() -> None:
    reader, cutter = BurstReader(10_000), MessageCutter()
    given_up, anew = cutter.cut(b"a" * 300, 100, 1), cutter.cut(b"b" * 300, 100, 2)
    reader.messages(1, encode(given_up[0]))
    assert [done for part in anew for done in reader.messages(10_001, encode(part))] == [b"b" * 300]
    assert [done for part in given_up for done in reader.messages(1, encode(part))] == [b"a" * 300]  # from its start
    for part in given_up[1:]:  # the rest of a message that its sender's first incarnation had begun
        assert reader.messages(10_001, encode(part)) == []
    assert reader.broken == 0
    reader.messages(10_001, encode(anew[2]))
    assert reader.broken == 1


def test_a_sender_cannot_make_a_member_keep_more_than_the_limit() -> None:
    reader = BurstReader(1_000)
    for payload in list(map(encode, MessageCutter().cut(bytes(50_000), 100)))[:-1]:
        reader.messages(1, payload)
        assert sum(len(fragment.data) for _, fragment in reader.unfinished()) <= 1_000
    assert reader.broken > 0


def test_one_who_joins_goes_on_from_what_another_had() -> None:
    old, new = BurstReader(10_000), BurstReader(10_000)
    bursts = list(map(encode, MessageCutter().cut(b"x" * 250, 100)))
    old.messages(1, bursts[0])
    new.adopt(old.unfinished())
    assert new.messages(1, bursts[1]) == []
    assert new.messages(1, bursts[2]) == [b"x" * 250]


def test_bursts_shrink_with_losses_and_grow_again() -> None:
    size = BurstSize()
    for _ in range(5):
        size.sent(0)
    assert size.bytes == BURST_BYTES_MAX
    for repairs in range(1, 9):
        size.sent(repairs)
    assert size.bytes == BURST_BYTES_MIN
    for _ in range(1_000):
        size.sent(8)
    assert size.bytes == BURST_BYTES_MAX


def test_a_burst_size_that_no_datagram_has_room_for_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        BurstSize(70_000)
