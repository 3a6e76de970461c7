"""The pairwise rules, exhaustively for a pair: safe as written, and each rule is needed.

The model: sender s, receiver r, and another sender whose stamps raise what r acknowledges. Acknowledgments may be lost,
late, reordered and doubled, so one that was sent may arrive at any time; a connection's message channel is FIFO until
it is closed. Every schedule up to the bound is tried, shortest first, so that a failure is a shortest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from antiphon.protocol.membership.pairwise import Link, ReceiverSide, SenderSide

S, OTHER, R = 1, 2, 9
INCARNATION_MAX = 2


class State(NamedTuple):
    """All that matters of a pair, as plain values."""

    receivers: tuple[tuple[int, int], ...] = ()  # at s: (incarnation, acknowledged) of r, counted
    candidates: tuple[tuple[int, int], ...] = ()
    ended: int = 0
    senders: tuple[tuple[int, int, int], ...] = ((OTHER, 1, 0),)  # at r: (sender, incarnation, heard)
    stamp: int = 0  # the last that s gave
    due: frozenset[tuple[int, int]] = frozenset()  # (stamp, incarnation) that r must get before they are stable
    got: frozenset[int] = frozenset()
    channel: tuple[tuple[int, int], ...] = ()  # (incarnation, stamp)
    acks: frozenset[tuple[int, int]] = frozenset()  # (incarnation, stamp); incarnation 0: said to the other sender
    incarnation: int = 0
    open: bool = False  # the channels of the latest incarnation


class Pair:
    """Runs the two sides; subclasses drop a rule."""

    sender: type[SenderSide] = SenderSide
    receiver: type[ReceiverSide] = ReceiverSide
    overhears = False
    stamp_max = 2

    def sides(self, state: State) -> tuple[SenderSide, ReceiverSide]:
        s, r = self.sender(), self.receiver()
        s.receivers = {R: Link(*state.receivers[0])} if state.receivers else {}
        s.candidates = {R: Link(*state.candidates[0])} if state.candidates else {}
        s._ended = {R: state.ended}
        r.senders = {sender: Link(*link) for sender, *link in state.senders}
        return s, r

    def moves(self, state: State) -> Iterator[tuple[str, State]]:
        """Give everything that can happen next."""
        if state.incarnation < INCARNATION_MAX and not state.open:
            s, r = self.sides(state)
            incarnation = state.incarnation + 1
            first = r.connect(S, incarnation)
            acks = state.acks | {(incarnation, first)}
            opened = self.pack(state, s, r, incarnation=incarnation, open=True, acks=acks, channel=())
            yield f"r connects with {first}", opened
        heard = {sender: link for sender, *link in state.senders}
        if heard[OTHER][1] < self.stamp_max:
            s, r = self.sides(state)
            r.receive(OTHER, 1, heard[OTHER][1] + 1)
            yield "r hears the other", self.pack(state, s, r)
        if S in heard:
            s, r = self.sides(state)
            yield (
                f"r acks {r.acknowledgment}",
                self.pack(state, s, r, acks=state.acks | {(heard[S][0], r.acknowledgment)}),
            )
        if self.overhears:
            s, r = self.sides(state)
            yield (
                f"r acks {r.acknowledgment} to the other",
                self.pack(state, s, r, acks=state.acks | {(0, r.acknowledgment)}),
            )
        for incarnation, stamp in sorted(state.acks):
            s, r = self.sides(state)
            s.acknowledged(R, incarnation or max(1, state.incarnation), stamp)
            yield f"s gets {stamp} of connection {incarnation}", self.pack(state, s, r)
        if state.stamp < self.stamp_max:
            s, r = self.sides(state)
            stamp = state.stamp + 1
            s.send(stamp)
            due = state.due | ({(stamp, s.receivers[R].incarnation)} if R in s.receivers else set())
            channel = (*state.channel, (state.incarnation, stamp)) if state.open else ()
            yield f"s sends {stamp}", self.pack(state, s, r, stamp=stamp, due=frozenset(due), channel=channel)
        if state.channel:
            s, r = self.sides(state)
            (incarnation, stamp), *rest = state.channel
            got = state.got | {stamp} if r.receive(S, incarnation, stamp) else state.got
            yield f"r receives {stamp}", self.pack(state, s, r, channel=tuple(rest), got=got)
        if state.open:
            for who in ("s", "r"):
                s, r = self.sides(state)
                if who == "s":
                    s.closed(R, state.incarnation)
                else:
                    r.closed(S, state.incarnation)
                yield f"{who} closes", self.pack(state, s, r, open=False, channel=())
        elif state.incarnation:
            s, r = self.sides(state)
            s.closed(R, state.incarnation)
            yield "s notices", self.pack(state, s, r)
            s, r = self.sides(state)
            r.closed(S, state.incarnation)
            yield "r notices", self.pack(state, s, r)

    def pack(self, state: State, s: SenderSide, r: ReceiverSide, **changes: object) -> State:
        return state._replace(
            receivers=tuple((link.incarnation, link.stamp) for link in s.receivers.values()),
            candidates=tuple((link.incarnation, link.stamp) for link in s.candidates.values()),
            ended=s._ended.get(R, 0),
            senders=tuple(sorted((sender, link.incarnation, link.stamp) for sender, link in r.senders.items())),
            **changes,  # type: ignore[arg-type]
        )

    def wrong(self, state: State) -> bool:
        """Whether s calls a message stable that r, counted when it was sent and ever since, does not have."""
        return any(
            stamp not in state.got and acknowledged >= stamp and incarnation == counted
            for counted, acknowledged in state.receivers
            for stamp, incarnation in state.due
        )

    def search(self, depth_max: int) -> tuple[list[str] | None, int]:
        """Try all schedules; give the shortest that ends wrong, and how many states there are."""
        layer: list[State] = [State()]
        came: dict[State, tuple[State | None, str]] = {State(): (None, "")}
        for _ in range(depth_max):
            following: list[State] = []
            for state in layer:
                for move, after in self.moves(state):
                    if after in came:
                        continue
                    came[after] = (state, move)
                    if self.wrong(after):
                        return self.path(came, after), len(came)
                    following.append(after)
            layer = following
            if not layer:
                break
        return None, len(came)

    @staticmethod
    def path(came: dict[State, tuple[State | None, str]], state: State) -> list[str]:
        moves: list[str] = []
        at: State | None = state
        while at is not None:
            at, move = came[at]
            moves.append(move)
        return moves[-2::-1]


class FirstAcknowledgmentNotRecorded(ReceiverSide):
    def connect(self, sender: int, incarnation: int) -> int:
        first = super().connect(sender, incarnation)
        self.senders[sender].stamp = 0
        return first


class JoinsOnAnyStamp(SenderSide):
    def joins(self, link: Link, stamp: int) -> bool:
        return True


class LowerStampsAccepted(ReceiverSide):
    def is_new(self, link: Link, stamp: int) -> bool:
        return True


class AnyConnectionCounts(SenderSide):
    def acknowledged(self, receiver: int, incarnation: int, stamp: int) -> None:
        link = self.link(receiver)
        super().acknowledged(receiver, link.incarnation if link is not None else incarnation, stamp)


def pair(
    sender: type[SenderSide] = SenderSide, receiver: type[ReceiverSide] = ReceiverSide, *, overhears: bool = False
) -> Pair:
    one = Pair()
    one.sender, one.receiver, one.overhears = sender, receiver, overhears
    return one


def test_the_rules_are_safe_in_every_schedule() -> None:
    one = pair()
    one.stamp_max = 3
    failure, states = one.search(depth_max=100)
    assert failure is None
    assert states > 30_000  # everything that can be reached was, and it is not little


@pytest.mark.parametrize(
    ("broken", "shortest"),
    [
        (
            pair(receiver=FirstAcknowledgmentNotRecorded),
            "r hears the other, r connects with 1, r acks 0, s gets 0 of connection 1, s sends 1, "
            "s gets 1 of connection 1",
        ),
        (pair(JoinsOnAnyStamp), "r hears the other, r connects with 1, s gets 1 of connection 1, s sends 1"),
        (
            pair(receiver=LowerStampsAccepted),
            "r hears the other, r hears the other, r connects with 2, s sends 1, r receives 1, r acks 1, "
            "s gets 1 of connection 1, s sends 2, s gets 2 of connection 1",
        ),
        (
            pair(AnyConnectionCounts),
            "r connects with 0, r hears the other, s gets 0 of connection 1, s sends 1, r closes, r connects with 1, "
            "s gets 1 of connection 2",
        ),
        (
            pair(overhears=True),
            "r acks 0 to the other, r hears the other, r connects with 1, s gets 0 of connection 0, s sends 1, "
            "s gets 1 of connection 1",
        ),
    ],
    ids=["first-not-recorded", "joins-on-any-stamp", "lower-accepted", "any-connection", "overheard"],
)
def test_every_rule_is_needed(broken: Pair, shortest: str) -> None:
    failure, _ = broken.search(depth_max=12)
    assert failure == shortest.split(", ")


# What pairs leave open, and views must close.


def test_open_a_message_lost_with_its_connection_is_declared_stable_in_the_next_one() -> None:
    s, r = SenderSide(), ReceiverSide()
    s.acknowledged(R, 1, r.connect(S, 1))
    s.send(1)  # lost: the connection ends before it arrives
    s.closed(R, 1)
    r.closed(S, 1)
    s.acknowledged(R, 2, r.connect(S, 2))
    s.send(2)
    assert not s.stable(1)
    assert r.receive(S, 2, 2)
    s.acknowledged(R, 2, r.acknowledgment)
    assert s.stable(1)  # although r never had it


def test_open_a_message_from_before_the_connection_counts_as_received() -> None:
    s, r = SenderSide(), ReceiverSide()
    s.send(1)
    assert s.stable(1)  # nobody had to receive it
    s.acknowledged(R, 1, r.connect(S, 1))
    s.send(2)
    assert not s.stable(1)  # and now it is not stable any more,
    r.receive(S, 1, 2)
    s.acknowledged(R, 1, r.acknowledgment)
    assert s.stable(1)  # until r, which never had it, acknowledges it


def test_open_third_parties_cannot_tell_what_is_stable() -> None:
    a, b, c = 1, 2, 3
    b_sends, a_receives, c_receives = SenderSide(), ReceiverSide(), ReceiverSide()
    # b is connected with a and with c; c is not connected with a, so its acknowledgments say nothing of a's messages
    b_sends.acknowledged(a, 1, a_receives.connect(b, 1))
    b_sends.acknowledged(c, 1, c_receives.connect(b, 1))
    b_sends.send(7)
    a_receives.receive(b, 1, 7)
    c_receives.receive(b, 1, 7)
    b_sends.acknowledged(a, 1, a_receives.acknowledgment)
    b_sends.acknowledged(c, 1, c_receives.acknowledgment)
    assert b_sends.stable(5)  # a message of a with stamp 5 would seem stable to b; c never had it


def test_open_the_first_acknowledgment_of_one_that_hears_nobody_promises_nothing() -> None:
    assert ReceiverSide().connect(S, 1) == 0


def test_open_a_sender_that_connects_and_stays_silent_holds_everyone_back() -> None:
    r = ReceiverSide()
    r.connect(OTHER, 1)
    r.receive(OTHER, 1, 5)
    assert r.connect(S, 1) == 5
    for stamp in (6, 7, 8):
        assert r.receive(OTHER, 1, stamp)
    assert r.acknowledgment == 5
    r.closed(S, 1)
    assert r.acknowledgment == 8


def test_late_acknowledgments_of_an_ended_connection_do_not_open_it_again() -> None:
    s = SenderSide()
    s.acknowledged(R, 1, 0)
    s.closed(R, 1)
    s.acknowledged(R, 1, 5)
    assert s.link(R) is None
    s.acknowledged(R, 2, 3)
    assert s.link(R) == Link(2, 3)
    s.acknowledged(R, 1, 9)
    assert s.link(R) == Link(2, 3)


def test_messages_of_another_incarnation_are_not_delivered() -> None:
    r = ReceiverSide()
    r.connect(S, 2)
    assert not r.receive(S, 1, 4)
    assert not r.receive(OTHER, 2, 4)
    assert r.receive(S, 2, 4)
    r.closed(S, 1)  # the end of an earlier connection, noticed late
    assert r.receive(S, 2, 5)
