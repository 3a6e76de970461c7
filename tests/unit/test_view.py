"""The parts of a member that stand between its protocols and its driver: output, frames, delivery, dispatch."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from antiphon.errors import LocalProtocolError
from antiphon.protocol.machine import (
    SECOND,
    Deliver,
    Drop,
    Effect,
    Leave,
    Receive,
    Send,
    Stable,
    Submit,
    TraceRow,
    Wake,
)
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.parts import Decided, Out
from antiphon.protocol.recovery import Heartbeat
from antiphon.protocol.view.delivery import StreamDelivery
from antiphon.protocol.view.frames import Frames
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.view.output import Output
from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, FRAME_OVERHEAD_BYTES, Data, Header, Malformed

VIEW = View(7, (10_000, 21, 32), (0, 21, 32), (5, 0, 100))  # processes, their addresses, and what they sent before


def output(rank: int = 0, *, traced: bool = False, view: View = VIEW) -> Output:
    return Output(view, rank, traced=traced)


# Output: a view's ranks and counts become processes and counts through all views


def test_what_is_delivered_counts_through_all_views_of_its_sender() -> None:
    one = output()
    one.sent(1)
    one.sent(2)
    one.deliver(Deliver(2, 3, b"theirs"))
    one.deliver(Deliver(0, 1, b"mine"))
    assert one.take() == [Deliver(32, 103, b"theirs"), Deliver(10_000, 6, b"mine")]
    assert one.take() == []
    assert one.unknown() == [Drop("unknown", 10_000, 7)], "what was delivered is settled, of the other nobody knows"
    assert one.unknown() == []


def test_what_is_discarded_is_settled_too() -> None:
    one = output(traced=True)
    one.sent(1)
    one.sent(2)
    one.drop(Drop("expired", 0, 1))
    one.drop(Drop("expired", 2, 2))
    assert one.take() == [
        Drop("expired", 10_000, 6),
        TraceRow(10_000, "discard", 10_000, 6, None, "expired"),
        Drop("expired", 32, 102),
        TraceRow(10_000, "discard", 32, 102, None, "expired"),
    ]
    assert one.unknown() == [Drop("unknown", 10_000, 7)]


def test_what_all_hold_is_said_with_the_time_and_ones_own_is_counted_in_the_view() -> None:
    one = output(traced=True)
    one.stable(2, 4, 77)
    assert (one.stable_at, one.own_stable) == (77, 0)
    one.stable(0, 3, 88)
    assert (one.stable_at, one.own_stable) == (88, 3)
    assert one.take() == [
        Stable(32, 104),
        TraceRow(10_000, "stable", 32, 104),
        Stable(10_000, 8),
        TraceRow(10_000, "stable", 10_000, 8),
    ]


def test_only_a_traced_member_says_what_belongs_in_the_trace() -> None:
    one = output()
    one.stable(2, 4, 77)
    one.drop(Drop("expired", 2, 4))
    one.deliver(Deliver(2, 5, b""))
    assert [effect for effect in one.take() if isinstance(effect, TraceRow)] == []
    traced = output(traced=True)
    traced.deliver(Deliver(2, 5, b""))
    assert traced.take()[1:] == [TraceRow(10_000, "deliver", 32, 105)]
    traced.row("send", 2, 5, 70, None, b"p")
    traced.row("control", None, None, 70, "nack")
    traced.row("control", 2, None, 70, "nack")
    assert traced.take() == [
        TraceRow(10_000, "send", 32, 105, 70, None, payload=b"p"),
        TraceRow(10_000, "control", None, None, 70, "nack"),
        TraceRow(10_000, "control", 32, None, 70, "nack"),
    ]


def test_a_datagram_goes_to_the_addresses_of_ranks_and_never_to_oneself() -> None:
    one = output(rank=1)
    one.send(None, b"all")
    one.send((0, 2), b"two")
    one.send((1, 2), b"one")
    one.send((1,), b"none")
    assert one.take() == [Send((0, 32), b"all"), Send((0, 32), b"two"), Send((32,), b"one")]
    plain = output(view=View(0, (3, 4)))
    plain.send(None, b"all")
    plain.send((1,), b"one")
    assert plain.take() == [Send(None, b"all"), Send((4,), b"one")], "where members are their own addresses"
    alone = output(view=View(7, (10_000,), (0,)))
    alone.send(None, b"all")
    assert alone.take() == [], "there is nobody"
    unaddressed = output(view=View(0, (3,)))
    unaddressed.send(None, b"all")
    assert unaddressed.take() == [Send(None, b"all")], "the driver knows who is there"


def test_without_earlier_views_counting_begins_at_one() -> None:
    one = output(view=View(0, (3, 4)))
    one.deliver(Deliver(1, 1, b""))
    assert one.take() == [Deliver(4, 1, b"")]


# Frames


def frames(rank: int = 0, group: str = "g", number: int = 7, *, traced: bool = False) -> tuple[Frames, Output]:
    view = View(number, VIEW.members, VIEW.addresses, VIEW.sent_before)
    out = output(rank, traced=traced, view=view)
    return Frames(out, (Data, Heartbeat), group, view, Counter()), out


def datagrams(one: Frames, out: Output, *pdus: Out, sent: int = 4, free: int = 9) -> list[Send]:
    for pdu in pdus:
        one.put(pdu)
    one.flush(sent, free)
    return [effect for effect in out.take() if isinstance(effect, Send)]


def test_a_datagram_of_the_same_group_and_view_is_read_and_noted() -> None:
    there, out = frames(2)
    here, _ = frames(0)
    (send,) = datagrams(there, out, Out(Data(number=1, seq=1, payload=b"p")))
    header, (pdu,) = here.read(send.datagram, 55)
    assert header == Header(header.group, 7, 2, 4, 9)
    assert isinstance(pdu, Data)
    assert here.heard_at == {2: 55}


@pytest.mark.parametrize(
    ("rank", "group", "number", "reason"),
    [(2, "h", 7, "foreign-group"), (2, "g", 8, "other-view"), (0, "g", 7, "impossible-sender")],
)
def test_a_datagram_of_elsewhere_or_of_oneself_is_refused(rank: int, group: str, number: int, reason: str) -> None:
    there, out = frames(rank, group, number)
    here, _ = frames(0)
    (send,) = datagrams(there, out, Out(Heartbeat()))
    with pytest.raises(Malformed, match=reason):
        here.read(send.datagram, 55)
    assert here.heard_at == {}


def test_a_sender_beyond_the_view_is_refused() -> None:
    larger = View(7, (1, 2, 3, 4))
    out = output(3, view=larger)
    there = Frames(out, (Heartbeat,), "g", larger, Counter())
    (send,) = datagrams(there, out, Out(Heartbeat()))
    with pytest.raises(Malformed, match="impossible-sender"):
        frames(0)[0].read(send.datagram, 55)


def test_the_tag_of_a_view_is_four_bytes_of_its_number() -> None:
    there, out = frames(2, number=7 + 2**32)
    (send,) = datagrams(there, out, Out(Heartbeat()))
    assert frames(0)[0].read(send.datagram, 0)[0].view == 7


def test_what_goes_the_same_way_leaves_together_and_counts_by_what_it_is() -> None:
    one, out = frames()
    data = Data(number=1, seq=1, payload=b"p")
    sends = datagrams(
        one, out, Out(data, None, 0, 1), Out(Heartbeat(), (1,)), Out(Heartbeat()), Out(data, (1,), 2, 1, repair=True)
    )
    assert [send.to for send in sends] == [(21, 32), (21,)]
    assert one._counts == {"heartbeat": 2, "retransmissions": 1}, "a message of one's own is no control"
    assert one.outbox == {}
    assert datagrams(one, out) == []


def test_a_traced_member_says_what_it_puts_on_the_wire() -> None:
    one, out = frames(traced=True)
    data = Data(number=1, seq=1, payload=b"p")
    size = len(one.encode(data)) + FRAME_OVERHEAD_BYTES
    one.put(Out(data, None, 0, 1))
    one.put(Out(data, None, 2, 3, repair=True))
    one.put(Out(data, (1, 2), 2, 3, repair=True))
    one.put(Out(Heartbeat()))
    beat = len(one.encode(Heartbeat())) + FRAME_OVERHEAD_BYTES
    assert out.take() == [
        TraceRow(10_000, "send", 10_000, 6, size, None, payload=b"p"),
        TraceRow(10_000, "control", 32, 103, size, "repair to all"),
        TraceRow(10_000, "control", 32, 103, size, "repair to 21,32"),
        TraceRow(10_000, "control", None, None, beat, "heartbeat"),
    ]


def test_a_datagram_is_full_before_the_next_begins_and_none_is_too_large() -> None:
    one, out = frames()
    room = DATAGRAM_BYTES_MAX - FRAME_OVERHEAD_BYTES
    empty = len(one.encode(Data(number=1, seq=1, payload=b"\0" * 1_000))) - 1_000
    exactly = [Out(Data(number=1, seq=1, payload=b"\0" * (room // 4 - empty))) for _ in range(4)]
    rest = room - 4 * (room // 4)
    fitting = [*exactly[:3], Out(Data(number=1, seq=1, payload=b"\0" * (room // 4 - empty + rest)))]
    (send,) = datagrams(one, out, *fitting)
    assert len(send.datagram) == DATAGRAM_BYTES_MAX
    over = [*exactly[:3], Out(Data(number=1, seq=1, payload=b"\0" * (room // 4 - empty + rest + 1)))]
    sends = datagrams(one, out, *over, *over, sent=9)
    read = [frames(1)[0].read(send.datagram, 0) for send in sends]
    assert [len(pdus) for _, pdus in read] == [3, 3, 2]
    assert [header.sent for header, _ in read] == [4, 7, 9], "what has left before it, or in it"
    pdu = one.decode(one.encode(exactly[0].pdu))
    assert pdu == exactly[0].pdu


# Delivery


def delivery(*, safe: bool = False, positions: bool = False) -> tuple[StreamDelivery, Output]:
    out = output(view=View(0, (0, 1, 2)))
    return StreamDelivery(out, 3, safe=safe, positions=positions), out


def delivered(out: Output) -> list[tuple[int, int]]:
    return [(effect.sender, effect.seq) for effect in out.take() if isinstance(effect, Deliver)]


def accept(one: StreamDelivery, source: int, number: int, seq: int) -> None:
    one.accepted(source, Data(number=number, seq=seq, payload=b""))


def test_a_message_is_delivered_when_its_turn_comes_and_stable_when_its_number_is() -> None:
    one, out = delivery()
    for number, seq in ((1, 1), (3, 2), (4, 3)):
        accept(one, 1, number, seq)
        one.deliver(Deliver(1, seq, b""))
    assert delivered(out) == [(1, 1), (1, 2), (1, 3)]
    assert one.position == 3
    assert one.numbers == [0, 4, 0]
    one.release((9, 2, 9), 5)
    assert out.take() == [Stable(1, 1)]
    one.release((9, 2, 9), 6)
    assert out.take() == []
    one.release((9, 4, 9), 7)
    assert out.take() == [Stable(1, 3)], "said once, for all up to there"
    assert out.stable_at == 7


def test_a_safe_message_waits_until_all_hold_its_body_and_those_before_it_are_safe() -> None:
    one, out = delivery(safe=True)
    accept(one, 1, 1, 1)
    accept(one, 2, 1, 1)
    one.deliver(Deliver(1, 1, b""))
    one.deliver(Deliver(2, 1, b""))
    assert delivered(out) == []
    one.release((0, 0, 1), 5)
    assert delivered(out) == [], "the order is kept"
    one.release((0, 1, 1), 6)
    assert delivered(out) == [(1, 1), (2, 1)]


def test_a_safe_message_waits_until_all_hold_what_decides_its_position() -> None:
    one, out = delivery(safe=True)
    accept(one, 1, 1, 1)
    one.accepted(0, Data(number=4, seq=9, payload=b""))
    one.decided(Decided(1, 1, source=0))
    one.deliver(Deliver(1, 1, b""))
    one.release((3, 1, 0), 5)
    assert delivered(out) == []
    one.release((4, 0, 0), 5)
    assert delivered(out) == []
    one.release((4, 1, 0), 6)
    assert delivered(out) == [(1, 1)]


def test_a_message_whose_sender_decides_its_position_in_its_own_stream_waits_for_that() -> None:
    one, out = delivery(safe=True)
    accept(one, 1, 1, 1)
    one.accepted(1, Data(number=3, seq=2, payload=b""))
    one.decided(Decided(1, 1))
    one.deliver(Deliver(1, 1, b""))
    one.release((0, 2, 0), 5)
    assert delivered(out) == []
    one.release((0, 3, 0), 5)
    assert delivered(out) == [(1, 1)]


def test_what_waits_is_delivered_when_the_view_ends() -> None:
    one, out = delivery(safe=True)
    for seq in (1, 2):
        accept(one, 1, seq, seq)
        one.deliver(Deliver(1, seq, b""))
    one.deliver_the_rest()
    assert delivered(out) == [(1, 1), (1, 2)]
    assert not one.unsafe


def test_positions_in_the_total_order_become_numbers_of_streams() -> None:
    one, out = delivery(positions=True)
    for source, number in ((1, 2), (2, 1), (1, 5), (0, 3)):
        accept(one, source, number, 1)
        one.deliver(Deliver(source, 1, b""))
    assert delivered(out) == [(1, 1), (2, 1), (1, 1), (0, 1)]
    assert one.counts_positions
    assert one.stream_numbers([0, 0, 0], 2) == (0, 2, 1)
    assert one.stream_numbers([9, 2, 1], 2) == (9, 2, 1)
    assert one.stream_numbers([9, 2, 1], 4) == (9, 5, 1), "nobody's number goes back"


# The member


def member(rank: int, *, traced: bool = False, ids: tuple[int, ...] = (0, 1, 2), **options: Any) -> Member:
    config = GroupOptions(**{"ordering": "fifo", "stability": "vector-ack", **options})
    return Member(ids[rank], View(0, ids), config, random.Random(rank), traced=traced)


def sent(effects: list[Effect]) -> list[bytes]:
    return [effect.datagram for effect in effects if isinstance(effect, Send)]


def exchange(members: list[Member], effects: dict[int, list[Effect]], now: int) -> list[Effect]:
    """Carry datagrams between members until nothing is said any more; return what the first did."""
    shown: list[Effect] = []
    while any(effects.values()):
        following: dict[int, list[Effect]] = {rank: [] for rank in range(len(members))}
        for source, done in effects.items():
            if source == 0:
                shown += [effect for effect in done if not isinstance(effect, Send)]
            for effect in done:
                if isinstance(effect, Send):
                    targets = effect.to if effect.to is not None else tuple({0, 1, 2} - {source})
                    for target in targets:
                        following[target] += members[target].handle(Receive(effect.datagram), now)
        effects = following
    return shown


def test_a_member_has_room_for_as_many_submissions_as_its_queue_and_its_window() -> None:
    one = member(0, window=2, queue=3)
    for count in range(5):
        assert one.room == (3 if count < 2 else 5 - count)
        one.handle(Submit(b"%d" % count), 0)
    assert one.room == 0
    assert one.stuck
    assert not one.drained
    with pytest.raises(LocalProtocolError):
        one.handle(Submit(b"5"), 0)


def test_who_has_left_sends_nothing_asks_for_nothing_and_takes_nothing() -> None:
    one = member(0, traced=True, window=1)
    one.handle(Submit(b"sent"), 0)
    one.handle(Submit(b"waits"), 0)
    assert one.deadline is not None
    assert one.handle(Leave(), 5) == [TraceRow(0, "leave")]
    assert (one.room, one.deadline) == (0, None)
    assert not one.submissions.waiting
    (datagram,) = sent(member(1).handle(Submit(b"late"), 0))
    assert one.handle(Receive(datagram), 6) == []
    with pytest.raises(LocalProtocolError, match="has left"):
        one.handle(Submit(b"too late"), 6)
    assert member(0).handle(Leave(), 5) == []


def test_who_was_heard_is_told_once_with_the_time() -> None:
    one = member(0, ids=(0, 21, 32))
    (datagram,) = sent(member(2, ids=(0, 21, 32)).handle(Submit(b"m"), 0))
    one.handle(Receive(datagram), 44)
    assert one.heard() == [(32, 44)]
    assert one.heard() == []
    assert one.recognize(datagram, 55)
    assert one.heard() == [(32, 55)]
    assert not one.recognize(b"garbage", 66)
    assert one.heard() == []


def test_a_member_wants_to_be_woken_when_the_first_of_its_parts_does() -> None:
    one = member(0)
    assert one.recovery is not None
    assert one.stability is not None
    one.handle(Submit(b"m"), 0)
    parts = [one.ordering.deadline, one.recovery.deadline, one.stability.deadline]
    assert one.deadline == min(at for at in parts if at is not None)


def test_with_nothing_unstable_and_no_credit_others_are_asked_for_it() -> None:
    one, other = member(0, window=4, buffer=12), member(1, window=4, buffer=12)
    beat = other._frames
    beat.put(Out(Heartbeat()))
    beat.flush(0, 0)  # it says that it has no slots left
    one.handle(Receive(sent(other.output.take())[0]), 0)
    assert sent(one.handle(Submit(b"waits"), 0)) == []
    assert one.stuck
    at = one.submissions.starved.at
    assert at is not None
    assert one.deadline == at
    (datagram,) = sent(one.handle(Wake(), at))
    _, (asking,) = member(1)._frames.read(datagram, 0)
    assert asking == Heartbeat(asking=True)
    beat.put(Out(Heartbeat()))
    beat.flush(0, 12)
    assert len(sent(one.handle(Receive(sent(other.output.take())[0]), at + 1))) == 1, "now there is credit"
    assert one.submissions.starved.at is None


def test_a_header_says_how_far_the_stream_goes_and_how_many_slots_are_left() -> None:
    one = member(0, window=4, buffer=12)
    for count in (1, 2):
        (datagram,) = sent(one.handle(Submit(b"m"), 0))
        header, _ = member(1)._frames.read(datagram, 0)
        assert (header.sent, header.free) == (count, 12 - one.held)


def test_a_loss_is_noticed_by_the_next_header() -> None:
    sender, receiver = member(1), member(0)
    sender.handle(Submit(b"lost"), 0)
    sender._frames.put(Out(Heartbeat()))
    sender._flush(0)
    receiver.handle(Receive(sent(sender.output.take())[0]), 0)
    assert receiver.recovery is not None
    assert receiver.recovery.missing


def test_what_is_received_delivered_doubled_and_stable_is_in_the_trace() -> None:
    members = [member(0, traced=True), member(1), member(2)]
    effects = members[1].handle(Submit(b"mine"), 0)
    (datagram,) = sent(effects)
    shown = exchange(members, {1: effects}, 0)
    rows = [(row.event, row.sender, row.seq) for row in shown if isinstance(row, TraceRow) and row.sender == 1]
    assert rows[:2] == [("receive", 1, 1), ("deliver", 1, 1)]
    receive = next(row for row in shown if isinstance(row, TraceRow) and row.event == "receive")
    assert receive.bytes == len(datagram)
    again = members[0].handle(Receive(datagram), 1)
    assert TraceRow(0, "control", 1, 1, None, "duplicate") in again
    assert members[0].counts["duplicates"] == 1
    for now in range(0, SECOND, SECOND // 50):
        shown += exchange(members, {rank: one.handle(Wake(), now) for rank, one in enumerate(members)}, now)
    assert Stable(1, 1) in shown
    assert TraceRow(0, "stable", 1, 1) in shown
    assert members[0].drained


def test_garbage_is_counted_by_its_reason_and_dropped() -> None:
    one = member(0)
    assert one.handle(Receive(b"x" * 10), 0) == [Drop("truncated")]
    assert one.counts["dropped-truncated"] == 1


def test_a_blocked_member_puts_nothing_on_the_wire_and_delivers_the_rest_at_the_end() -> None:
    one, other = member(0, ordering="total"), member(1, ordering="total")
    one.handle(Submit(b"mine"), 0)
    one.block()
    assert one.blocked
    (datagram,) = sent(other.handle(Submit(b"theirs"), 0))
    assert sent(one.handle(Receive(datagram), 1)) == []
    assert sent(one.handle(Wake(), 10 * SECOND)) == []
    assert sent(one.handle(Submit(b"more"), 10 * SECOND)) == []
    claim, reach = one.ordering.claim(), one.reach()
    order = type(one.ordering).settle({0: claim}, safe=False)
    done = one.finish(reach, order, [], 10 * SECOND)
    assert {(effect.sender, effect.payload) for effect in done if isinstance(effect, Deliver)} == {
        (0, b"mine"),
        (1, b"theirs"),
    }
    assert one.ordering.held == 0


def test_copies_for_others_are_of_the_numbers_that_they_ask_for() -> None:
    one = member(0)
    for payload in (b"1", b"2", b"3", b"4"):
        one.handle(Submit(payload), 0)
    assert [number for number, _ in one.copies(0, 1, 3)] == [2, 3]
    assert one.copies(0, 3, 3) == []


def test_who_lags_is_named_by_process() -> None:
    members = [member(rank, ids=(0, 21, 32)) for rank in range(3)]
    members[0].handle(Submit(b"m"), 0)
    assert members[0].lag() == {21: 1, 32: 1}
