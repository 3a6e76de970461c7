"""A member as a driver sees it: what comes together is handled together."""

from __future__ import annotations

import random

import pytest

from antiphon.protocol.machine import Deliver, Effect, Receive, ReceiveMany, Send, Submit
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member, View

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
