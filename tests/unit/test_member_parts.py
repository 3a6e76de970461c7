"""What a member carries between its parts, with parts that say whatever a test tells them to."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, ClassVar, cast

import msgspec
import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import Deliver, Drop, Effect, Instant, Receive, Send, Stable, Submit, TraceRow, Wake
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.parts import (
    Decided,
    Duplicate,
    FlushHooks,
    Frontier,
    Out,
    PartContext,
    Received,
    Reliable,
    Step,
)
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import Data, Pdu, Streamed


class Word(Pdu, tag=201):
    """Something that parts say to one another, beside the streams."""

    kind: ClassVar[str] = "word"
    text: str = ""


class Script:
    """What a part was asked, and what it is to answer to each question the next time."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers: dict[str, list[Step]] = defaultdict(list)
        self.deadline: Instant | None = None

    def answer(self, question: str, *about: Any) -> Step:
        self.asked.append((question, *about))
        return self.answers[question].pop(0) if self.answers[question] else Step()


class _Ordering(FlushHooks):
    PROMISES: ClassVar[tuple[str, ...]] = ("total",)
    NEEDS_RECOVERY: ClassVar[bool] = True
    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Word,)

    class Options(msgspec.Struct, frozen=True):
        """Nothing can be chosen."""

    def __init__(self, context: PartContext, options: Any) -> None:
        self.script, self.held, self.open, self.blocks = Script(), 0, True, 0

    @property
    def deadline(self) -> Instant | None:
        return self.script.deadline

    def may_submit(self, priority: int) -> bool:
        return self.open

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        step = self.script.answer("submit", message.payload, seq, now)
        return step if step.up or step.down else Step([], [Reliable(Data(seq=seq, payload=message.payload), seq)])

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        return self.script.answer("accept", source, pdu.number, now)

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        return self.script.answer("receive", source, pdu, now)

    def wake(self, now: Instant) -> Step:
        return self.script.answer("wake", now)

    def block(self) -> None:
        self.blocks += 1

    def finish(self, reach: Any, order: bytes) -> Step:
        return self.script.answer("finish", tuple(reach), order)


class Gathering(_Ordering):
    def gathered(self, room: int) -> Step:
        return self.script.answer("gathered", room)


class Gated(_Ordering):
    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)
        self.admitted: set[tuple[int, int]] = set()

    def admits(self, source: int, pdu: Streamed) -> bool:
        return (source, pdu.number) in self.admitted


class ByItself(_Ordering):
    """Repairs losses itself."""

    NEEDS_RECOVERY = False

    def reach(self) -> list[int]:
        return [1, 2, 3]

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, Pdu]]:
        return [(above + 1, Word(f"{source} up to {upto}"))]

    def adopt(self, source: int, pdu: Pdu) -> Step:
        return self.script.answer("adopt", source, pdu)


class _Stability:
    PDUS: ClassVar[tuple[type[Pdu], ...]] = ()

    class Options(msgspec.Struct, frozen=True):
        positions: bool = False

    def __init__(self, context: PartContext, options: Any) -> None:
        self.script, self.context = Script(), context

    @property
    def deadline(self) -> Instant | None:
        return self.script.deadline

    def stamp(self, now: Instant) -> int:
        return 1_000 + now

    def advanced(self, source: int, pdu: Streamed, received: Any, now: Instant) -> Step:
        return self.script.answer("advanced", source, tuple(received), now)

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        return self.script.answer("receive", source, pdu, now)

    def wake(self, now: Instant) -> Step:
        return self.script.answer("wake", now)


class Riding(_Stability):
    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)
        self.riders: list[Pdu] = []

    def ride(self, now: Instant) -> list[Pdu]:
        return self.riders


class Parts:
    """A member of three, made of parts that do as they are told."""

    def __init__(self, ordering: Any = _Ordering, stability: Any = _Stability, rank: int = 0, **others: Any) -> None:
        traced = others.pop("traced", False)
        config = GroupOptions(ordering=ordering, stability=stability, group="parts", **others)
        self.member = Member(rank, View(0, (0, 1, 2)), config, random.Random(1), traced=traced)
        self.ordering: Any = self.member.ordering
        self.stability: Any = self.member.stability

    def do(self, event: Any, now: Instant = 0) -> list[Effect]:
        return self.member.handle(event, now)

    def says(self, question: str, *up: Any, down: tuple[Any, ...] = ()) -> None:
        """Tell the ordering what to answer next."""
        self.ordering.script.answers[question].append(Step([*up], [*down]))

    def heard(self) -> list[tuple[Any, ...]]:
        """Take what the ordering was asked."""
        asked, self.ordering.script.asked = self.ordering.script.asked, []
        return cast("list[tuple[Any, ...]]", asked)


def sent(effects: list[Effect]) -> list[bytes]:
    return [effect.datagram for effect in effects if isinstance(effect, Send)]


def pdus(datagram: bytes, ordering: Any = _Ordering) -> list[Pdu]:
    return Parts(ordering, rank=2).member._frames.read(datagram, 0)[1]


def from_member(rank: int, *payloads: bytes, now: Instant = 0, ordering: Any = _Ordering) -> list[bytes]:
    """Give the datagrams of another member's messages."""
    other = Parts(ordering, rank=rank)
    return [datagram for payload in payloads for datagram in sent(other.do(Submit(payload), now))]


# Up


def test_what_recovery_accepts_goes_to_the_ordering_and_then_to_stability_with_all_that_is_held() -> None:
    one = Parts()
    for datagram in from_member(1, b"a", b"b"):
        one.do(Receive(datagram), 7)
    assert one.heard() == [("accept", 1, 1, 7), ("accept", 1, 2, 7)]
    assert one.stability.script.asked == [("advanced", 1, (0, 1, 0), 7), ("advanced", 1, (0, 2, 0), 7)]


def test_what_stability_says_to_what_is_accepted_is_sent() -> None:
    one = Parts()
    one.stability.script.answers["advanced"].append(Step([], [Out(Word("held"))]))
    (datagram,) = sent(one.do(Receive(from_member(1, b"a")[0]), 7))
    assert pdus(datagram) == [Word("held")]
    one.stability.script.answers["advanced"].append(Step([Frontier((0, 1, 0))], []))
    assert Stable(1, 1) in one.do(Receive(from_member(1, b"a", b"b")[1]), 8)


def test_what_the_ordering_says_reaches_the_application() -> None:
    one = Parts(traced=True)
    one.says("accept", Received(1, 1), Deliver(1, 1, b"a"), Duplicate(1, 5), Drop("expired", 1, 2))
    (datagram,) = from_member(1, b"a")
    done = one.do(Receive(datagram), 7)
    assert done == [
        TraceRow(0, "receive", 1, 1, len(datagram)),
        TraceRow(0, "receive", 1, 1, len(datagram)),
        Deliver(1, 1, b"a"),
        TraceRow(0, "deliver", 1, 1),
        TraceRow(0, "control", 1, 5, None, "duplicate"),
        Drop("expired", 1, 2),
        TraceRow(0, "discard", 1, 2, None, "expired"),
    ]
    assert (one.member.counts["duplicates"], one.member.counts["discarded"]) == (1, 1)
    silent = Parts()
    silent.says("accept", Received(1, 1), Duplicate(1, 5))
    assert silent.do(Receive(datagram), 7) == []


def test_a_datagram_of_several_pdus_is_shared_among_them_in_the_trace() -> None:
    other = Parts(rank=1)
    other.says("wake", down=(Out(Word("x")), Out(Word("y"))))
    (datagram,) = sent(other.do(Wake()))
    one = Parts(traced=True)
    one.says("receive", Received(1, 1))
    assert one.do(Receive(datagram), 7) == [TraceRow(0, "receive", 1, 1, len(datagram) // 2)]
    one.says("wake", Received(1, 2))
    assert one.do(Wake(), 8) == [TraceRow(0, "receive", 1, 2)], "what was received before has no bytes now"
    empty = Parts(rank=1).member._frames
    empty.outbox[None] = []
    empty.flush(0, 99)
    assert one.do(Receive(sent(empty._output.take())[0]), 9) == []


def test_the_position_of_a_message_is_noted_and_traced() -> None:
    one = Parts(traced=True, safe=True)
    one.says("accept", Decided(1, 1), Deliver(1, 1, b"a"))
    done = one.do(Receive(from_member(1, b"a")[0]), 7)
    assert TraceRow(0, "control", 1, 1, None, "final") in done
    assert not any(isinstance(effect, Deliver) for effect in done)
    assert one.member.held == 2, "its body in recovery, and the message until it is safe"
    one.stability.script.answers["wake"].append(Step([Frontier((0, 1, 0))], []))
    assert Deliver(1, 1, b"a") in one.do(Wake(), 8)
    assert one.member.drained
    untraced = Parts()
    untraced.says("accept", Decided(1, 1))
    assert untraced.do(Receive(from_member(1, b"a")[0]), 7) == []


def test_where_stability_counts_positions_it_is_told_them_and_they_become_numbers_of_streams() -> None:
    one = Parts(stability_options={"positions": True})
    assert one.stability.context.streams == 1
    first, second = from_member(1, b"a", b"b")
    one.do(Receive(first), 7)
    assert one.stability.script.asked == [], "nothing was released by the ordering"
    one.says("accept", Deliver(1, 1, b"a"), Deliver(1, 2, b"b"))
    one.do(Receive(second), 8)
    assert one.stability.script.asked == [("advanced", 0, (2,), 8)]
    one.stability.script.answers["wake"].append(Step([Frontier((1,))], []))
    assert one.do(Wake(), 9) == [Stable(1, 1)]
    assert Parts().stability.context.streams == 0


# Down


def test_a_reliable_pdu_is_stamped_and_goes_into_the_members_own_stream() -> None:
    one = Parts()
    (datagram,) = sent(one.do(Submit(b"mine"), 5))
    (data,) = pdus(datagram)
    assert data == Data(number=1, stamp=1_005, seq=1, payload=b"mine")
    assert one.heard() == [("submit", b"mine", 1, 5), ("accept", 0, 1, 5)], "one's own message comes back at once"


def test_every_part_is_woken_and_what_it_says_is_carried_out() -> None:
    one = Parts()
    one.says("wake", down=(Out(Word("ordering")),))
    one.stability.script.answers["wake"].append(Step([], [Out(Word("stability"))]))
    (datagram,) = sent(one.do(Wake(), 5))
    assert pdus(datagram) == [Word("ordering"), Word("stability")]
    alone = Parts(ByItself)
    alone.says("wake", down=(Out(Word("ordering")),))
    assert len(sent(alone.do(Wake(), 5))) == 1
    assert alone.member.recovery is None


def test_the_deadline_is_the_first_of_all_parts() -> None:
    for ordering, stability in ((None, None), (5, None), (None, 5), (5, 9), (9, 5)):
        one = Parts()
        one.ordering.script.deadline, one.stability.script.deadline = ordering, stability
        assert one.member.deadline == (None if ordering is None and stability is None else 5)
    one = Parts()
    one.do(Submit(b"mine"), 0)
    assert one.member.recovery is not None
    heartbeat = one.member.recovery.deadline
    assert heartbeat is not None
    assert one.member.deadline == heartbeat
    one.ordering.script.deadline = heartbeat + 1
    assert one.member.deadline == heartbeat
    one.ordering.script.deadline = heartbeat - 1
    assert one.member.deadline == heartbeat - 1
    alone = Parts(ByItself)
    alone.ordering.script.deadline = 44
    assert alone.member.deadline == 44


def test_what_goes_to_all_anyway_takes_riders_along_and_counts_as_speaking() -> None:
    one = Parts(stability=Riding)
    one.stability.riders = [Word("rides")]
    assert sent(one.do(Wake(), 0)) == []
    one.says("wake", down=(Out(Word("to one"), (1,)),))
    (datagram,) = sent(one.do(Wake(), 0))
    assert pdus(datagram) == [Word("to one")]
    one.says("wake", down=(Out(Word("to all")),))
    (datagram,) = sent(one.do(Wake(), 0))
    assert pdus(datagram) == [Word("to all"), Word("rides")]
    quiet = Parts()
    quiet.do(Submit(b"mine"), 0)
    assert quiet.member.recovery is not None
    heartbeat = quiet.member.recovery.deadline
    assert heartbeat is not None
    quiet.says("wake", down=(Out(Word("to one"), (1,)),))
    quiet.do(Wake(), heartbeat - 10)
    assert quiet.member.recovery.deadline == heartbeat
    quiet.says("wake", down=(Out(Word("to all")),))
    quiet.do(Wake(), heartbeat - 5)
    assert quiet.member.recovery.deadline == 2 * heartbeat - 5, "who has just spoken to all need not yet"


def test_an_ordering_that_gathers_is_asked_once_a_turn_and_told_its_room() -> None:
    one = Parts(Gathering, window=4)
    first, second = from_member(1, b"a", b"b", ordering=Gathering)
    one.says("gathered", down=(Out(Word("gathered")),))
    (datagram,) = sent(one.do(Receive(first), 7))
    assert pdus(datagram, Gathering) == [Word("gathered")]
    one.do(Submit(b"mine"), 8)
    one.do(Receive(second), 8)
    assert [asked for asked in one.heard() if asked[0] == "gathered"] == [
        ("gathered", 12),
        ("gathered", 11),
        ("gathered", 11),
    ]
    one.says("gathered", Deliver(1, 1, b"a"))
    assert one.do(Wake(), 9) == [Deliver(1, 1, b"a")]


def test_a_gated_stream_moves_when_what_it_depends_on_was_accepted() -> None:
    one = Parts(Gated)
    (first,), (other,) = from_member(1, b"a", ordering=Gated), from_member(2, b"b", ordering=Gated)
    one.do(Receive(first), 7)
    assert one.heard() == []
    one.ordering.admitted = {(1, 1), (2, 1)}
    one.do(Receive(other), 8)
    assert one.heard() == [("accept", 1, 1, 8), ("accept", 2, 1, 8)]


# Flow


def test_a_message_waits_while_the_ordering_or_the_window_says_so() -> None:
    one = Parts(window=2, queue=3)
    assert not one.member.stuck
    one.ordering.open = False
    assert sent(one.do(Submit(b"1"), 0)) == []
    assert one.member.stuck
    one.ordering.open = True
    assert len(sent(one.do(Submit(b"2"), 0))) == 1, "two messages together"
    assert sent(one.do(Submit(b"3"), 0)) == []
    assert one.member.stuck
    one.stability.script.answers["wake"].append(Step([Frontier((1, 0, 0))], []))
    assert len(sent(one.do(Wake(), 1))) == 1
    assert one.member.submissions.sent == 3
    assert one.member.submissions.starved.at is None, "an acknowledgment will come by itself"
    alone = Parts(ByItself, window=2, queue=3)
    assert not alone.member.stuck
    alone.ordering.held = 4
    assert alone.member.held == 4


def test_messages_that_all_hold_and_nobody_can_deliver_yet_are_at_most_two_windows() -> None:
    one = Parts(window=2, queue=9)
    for number in range(1, 5):
        one.do(Submit(b"%d" % number), 0)
        one.stability.script.answers["wake"].append(Step([Frontier((number, 0, 0))], []))
        one.do(Wake(), number)
    one.do(Submit(b"5"), 5)
    assert one.member.submissions.sent == 4, "nothing is unstable, and nothing was delivered"
    one.says("wake", Deliver(one.member.output.rank, 1, b"1"))
    one.do(Wake(), 9)
    assert one.member.submissions.sent == 5


def test_a_blocked_member_says_nothing_not_even_to_ask_for_credit() -> None:
    one = Parts()
    one.member.block()
    assert one.ordering.blocks == 1
    one.says("wake", down=(Out(Word("no")), Reliable(Data(seq=1))))
    assert sent(one.do(Wake(), 5)) == []
    starved = Parts()
    starved.member.submissions.flow.free[1] = 0
    starved.do(Submit(b"waits"), 0)
    at = starved.member.submissions.starved.at
    assert at is not None
    starved.member.block()
    assert sent(starved.do(Wake(), at)) == []


def test_a_member_that_keeps_more_than_it_has_slots_for_says_that_none_is_left() -> None:
    one = Parts(window=4, buffer=12)
    one.ordering.held = 99
    one.says("wake", down=(Out(Word("x")),))
    (datagram,) = sent(one.do(Wake(), 5))
    assert Parts(rank=2).member._frames.read(datagram, 0)[0].free == 0


# The end of the view


def test_the_end_of_a_view_adopts_what_was_fetched_and_delivers_the_rest_in_order() -> None:
    one = Parts(safe=True)
    one.member.block()
    one.says("accept", Deliver(1, 1, b"a"))
    one.says("finish", Deliver(2, 1, b"b"))
    other = Parts(rank=1)
    other.do(Submit(b"a"), 0)
    ((number, encoded),) = other.member.copies(1, 0, 1)
    assert number == 1
    two = Parts(rank=2)
    two.do(Submit(b"b"), 0)
    done = one.member.finish((0, 1, 1), b"order", [(1, encoded), (2, two.member.copies(2, 0, 1)[0][1])], 9)
    assert [asked for asked in one.heard() if asked[0] == "finish"] == [("finish", (0, 1, 1), b"order")]
    assert [(effect.sender, effect.seq) for effect in done if isinstance(effect, Deliver)] == [(1, 1), (2, 1)]
    assert one.ordering.blocks == 1


def test_an_ordering_that_repairs_by_itself_keeps_what_others_may_lack() -> None:
    one = Parts(ByItself)
    assert one.member.reach() == (1, 2, 3)
    ((number, encoded),) = one.member.copies(1, 4, 9)
    assert number == 5
    one.member.block()
    one.says("adopt", Deliver(1, 1, b"a"), Stable(1, 1))
    assert one.member.finish((1, 2, 3), b"", [(1, encoded)], 9) == [Deliver(1, 1, b"a"), Stable(1, 1)]
    assert one.heard()[0] == ("adopt", 1, Word("1 up to 9"))


def test_a_member_checks_its_options_for_the_size_of_its_view() -> None:
    with pytest.raises(UsageError, match="buffer"):
        Parts(window=8, buffer=8)


def test_parts_made_for_another_size_give_way_in_later_views_and_are_refused_in_the_first() -> None:
    tree = GroupOptions(ordering="fifo", stability="tree-train", stability_options={"parents": [-1, 0, 0, 1]})
    with pytest.raises(UsageError):
        Member(0, View(0, (0, 1, 2)), tree, random.Random(1))
    assert Member(0, View(5, (0, 1, 2)), tree, random.Random(1)).stability is not None
