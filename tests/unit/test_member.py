"""A member as a driver sees it: what comes together is handled together."""

from __future__ import annotations

import random

import pytest

from antiphon.protocol.machine import Deliver, Effect, Receive, ReceiveMany, Send, Submit, Wake
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, FRAME_OVERHEAD_BYTES

IDS = (0, 1, 2)


def member(rank: int, ordering: str) -> Member:
    return Member(rank, View(0, IDS), GroupOptions(ordering=ordering), random.Random(rank))


def sent(effects: list[Effect]) -> list[bytes]:
    return [effect.datagram for effect in effects if isinstance(effect, Send)]


@pytest.mark.parametrize(
    ("ordering", "one_by_one", "together"), [("fifo", 0, 0), ("abcast", 3, 1), ("sequencer", 3, 1)]
)
def test_what_comes_together_is_answered_together(ordering: str, one_by_one: int, together: int) -> None:
    sender = member(1, ordering)
    datagrams = [datagram for text in (b"a", b"b", b"c") for datagram in sent(sender.handle(Submit(text), 0))]
    singly, at_once = member(0, ordering), member(0, ordering)
    effects = [effect for datagram in datagrams for effect in singly.handle(Receive(datagram), 0)]
    assert len(sent(effects)) == one_by_one
    effects_at_once = at_once.handle(ReceiveMany(datagrams), 0)
    assert len(sent(effects_at_once)) == together
    delivered = [effect for effect in effects if isinstance(effect, Deliver)]
    assert delivered == [effect for effect in effects_at_once if isinstance(effect, Deliver)]
    assert len(delivered) == (0 if ordering == "abcast" else 3)


def test_garbage_among_others_is_dropped_alone() -> None:
    datagrams = sent(member(1, "fifo").handle(Submit(b"a"), 0))
    receiver = member(0, "fifo")
    effects = receiver.handle(ReceiveMany([b"garbage", *datagrams, datagrams[0][:-1]]), 0)
    assert [effect.payload for effect in effects if isinstance(effect, Deliver)] == [b"a"]
    assert receiver.counts["dropped-truncated"] == receiver.counts["dropped-checksum"] == 1


@pytest.mark.parametrize("payload", [1, 4_000, 20_000, 33_000])
def test_what_is_said_in_one_turn_leaves_in_as_few_datagrams_as_hold_it(payload: int) -> None:
    """A request for much is answered by repairs that do not fit into one datagram."""
    sender, receiver = member(1, "fifo"), member(0, "fifo")
    number = 30
    datagrams = [sent(sender.handle(Submit(b"%06d" % one + bytes(payload)), one))[0] for one in range(number)]
    receiver.handle(Receive(datagrams[-1]), 0)  # all before it are missing
    now = receiver.deadline
    assert now is not None
    (request,) = sent(receiver.handle(Wake(), now))
    repairs = sent(sender.handle(Receive(request), now))
    assert all(len(one) <= DATAGRAM_BYTES_MAX for one in repairs)
    one_each = len(datagrams[0]) - FRAME_OVERHEAD_BYTES
    together = (DATAGRAM_BYTES_MAX - FRAME_OVERHEAD_BYTES) // one_each
    assert len(repairs) == -(-(number - 1) // together)
    effects = [effect for one in repairs for effect in receiver.handle(Receive(one), now)]
    assert [int(effect.payload[:6]) for effect in effects if isinstance(effect, Deliver)] == [*range(number)]
