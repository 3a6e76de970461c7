"""Reliable FIFO streams: selective retransmission, the lost last message, bounded buffers."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.pace import Pace
from antiphon.protocol.parts import Accepted, Duplicate, Out, PartContext
from antiphon.protocol.recovery import NACK_RANGES_MAX, Heartbeat, Nack, Recovery, RecoveryOptions
from antiphon.protocol.repairs import CHEAP_BYTES, RepairMark
from antiphon.protocol.stability.vector_ack import Report
from antiphon.protocol.wire import NUMBER_MAX, Data, Exhausted, Malformed

OPTIONS = RecoveryOptions(adaptive=False)


def recovery(rank: int, size: int = 3, window: int = 8) -> Recovery:
    return Recovery(PartContext(rank, size, random.Random(0)), window, OPTIONS)


def data(seq: int) -> Data:
    return Data(number=seq, seq=seq, payload=b"%d" % seq)


def accepted(step: object) -> list[int]:
    return [up.pdu.number for up in step.up if isinstance(up, Accepted)]  # type: ignore[attr-defined]


def test_gaps_are_asked_for_selectively_and_filled_in_order() -> None:
    receiver = recovery(1)
    assert accepted(receiver.receive(0, data(1), 0)) == [1]
    for number in (3, 4, 7):
        assert accepted(receiver.receive(0, data(number), 0)) == []
    assert receiver.deadline == OPTIONS.nack_delay_ns
    assert receiver.wake(OPTIONS.nack_delay_ns - 1).down == []
    (ask,) = receiver.wake(OPTIONS.nack_delay_ns).down
    assert ask == Out(Nack([(2, 2), (5, 6)]), (0,))
    assert accepted(receiver.receive(0, data(2), 0)) == [2, 3, 4]
    assert accepted(receiver.receive(0, data(6), 0)) == []
    assert accepted(receiver.receive(0, data(5), 0)) == [5, 6, 7]
    assert receiver.deadline is None


@pytest.mark.parametrize(("size", "times"), [(3, 1), (63, 1), (128, 4)])
def test_vain_heartbeats_become_rarer_in_large_groups(size: int, times: int) -> None:
    sender = recovery(0, size)
    sender.broadcast(Data(seq=1), 0)
    spoke = []
    for _ in range(8):
        assert sender.deadline is not None
        spoke.append(sender.deadline)
        assert [out.pdu for out in sender.wake(sender.deadline).down] == [Heartbeat()]
    pauses = [later - earlier for earlier, later in itertools.pairwise([0, *spoke])]
    assert pauses[0] == OPTIONS.heartbeat_ns, "a lost last message is told of as soon as in a small one"
    assert times <= pauses[-1] / OPTIONS.heartbeat_ns_max <= 1.5 * times


def test_the_sender_repairs_exactly_what_is_asked_for_and_still_held() -> None:
    sender = recovery(0)
    for seq in range(1, 7):
        sender.broadcast(Data(seq=seq), 0)
    sender.release([2, 0, 0])
    step = sender.receive(1, Nack([(1, 3), (5, 99)]), 0)
    assert [(out.pdu.number, out.to, out.repair) for out in step.down] == [  # type: ignore[union-attr]
        (3, (1,), True),
        (5, (1,), True),
        (6, (1,), True),
    ]


def test_the_loss_of_the_last_message_shows_in_the_next_header() -> None:
    receiver = recovery(1)
    receiver.receive(0, data(1), 0)
    receiver.noticed(0, 2, 0)
    (ask,) = receiver.wake(OPTIONS.nack_delay_ns).down
    assert ask == Out(Nack([(2, 2)]), (0,))


def test_a_silent_sender_with_unstable_messages_sends_heartbeats_until_they_are_stable() -> None:
    sender = recovery(0)
    sender.broadcast(Data(seq=1), 0)
    sender.spoke(0)
    assert sender.deadline == OPTIONS.heartbeat_ns
    assert sender.wake(OPTIONS.heartbeat_ns).down == [Out(Heartbeat())]
    sender.release([1, 0, 0])
    assert sender.deadline is None


def test_requests_are_repeated_with_a_growing_pause() -> None:
    receiver = recovery(1)
    receiver.noticed(0, 1, 0)
    asked = []
    for _ in range(12):
        now = receiver.deadline
        assert now is not None
        asked.append(now)
        assert len(receiver.wake(now).down) == 1
    pauses = [b - a for a, b in itertools.pairwise(asked)]
    assert OPTIONS.nack_retry_ns <= pauses[0] <= 1.5 * OPTIONS.nack_retry_ns
    assert all(pause <= 1.5 * OPTIONS.nack_retry_ns_max for pause in pauses)
    assert pauses[-1] >= OPTIONS.nack_retry_ns_max
    assert len(set(pauses)) == len(pauses), "members must not repeat themselves in step"


def test_copies_are_kept_until_released_and_never_accepted_again() -> None:
    receiver = recovery(1)
    receiver.receive(0, data(1), 0)
    receiver.receive(0, data(2), 0)
    assert receiver.held == 2
    receiver.release([1, 0, 0])
    assert receiver.held == 1
    assert receiver.receive(0, data(1), 0).up == [Duplicate(0, 1)]
    assert receiver.receive(0, data(2), 0).up == [Duplicate(0, 2)]
    assert receiver.held == 1


def test_what_no_window_allows_is_not_kept() -> None:
    receiver = recovery(1, window=2)
    for number in range(2, 1000):
        receiver.receive(0, data(number), 0)
    assert receiver.held <= 4 * 2
    assert receiver.overruns > 900
    receiver.noticed(0, 10**6, 0)
    (ask,) = receiver.wake(10 * MILLISECOND).down
    assert len(ask.pdu.ranges) <= NACK_RANGES_MAX  # type: ignore[union-attr]


def test_no_request_names_more_gaps_than_a_receiver_reads() -> None:
    receiver = recovery(1, window=64)
    for number in range(2, 202, 2):
        receiver.receive(0, data(number), 0)
    (ask,) = receiver.wake(10 * MILLISECOND).down
    assert [*ask.pdu.ranges] == [(number, number) for number in range(1, 2 * NACK_RANGES_MAX, 2)]  # type: ignore[union-attr]


@pytest.mark.parametrize("pdu", [Data(number=0, seq=1), Nack([(3, 2)])])
def test_nonsense_changes_nothing(pdu: object) -> None:
    receiver = recovery(1)
    with pytest.raises(Malformed):
        receiver.receive(0, pdu, 0)  # type: ignore[arg-type]
    assert receiver.held == 0
    assert receiver.deadline is None


# Recovery that learns how long answers take

ADAPTIVE = RecoveryOptions()


def adaptive(rank: int, size: int = 3, window: int = 8) -> Recovery:
    return Recovery(PartContext(rank, size, random.Random(0)), window, ADAPTIVE)


def asked(receiver: Recovery, times: int) -> list[int]:
    at = []
    for _ in range(times):
        now = receiver.deadline
        assert now is not None
        assert len(receiver.wake(now).down) == 1
        at.append(now)
    return at


def test_pauses_grow_beyond_their_limit_where_asking_is_in_vain() -> None:
    receiver = adaptive(1)
    receiver.noticed(0, 1, 0)
    at = asked(receiver, 14)
    pauses = [b - a for a, b in itertools.pairwise(at)]
    assert all(pause <= 1.5 * ADAPTIVE.nack_retry_ns_max for pause in pauses[:5])
    assert max(pauses) > 10 * ADAPTIVE.nack_retry_ns_max
    assert max(pauses) <= 3_000_000_000


def test_where_answers_gather_pauses_and_their_limit_are_longer_by_as_much() -> None:
    pace = Pace(16)
    pace.ns = 20 * MILLISECOND
    receiver = Recovery(PartContext(1, 3, random.Random(0), pace=pace), 8, ADAPTIVE)
    receiver.noticed(0, 1, 0)
    pauses = [b - a for a, b in itertools.pairwise(asked(receiver, 6))]
    least_ns = ADAPTIVE.nack_retry_ns_max + pace.answer_ns
    assert all(least_ns <= pause <= 1.5 * least_ns for pause in pauses)


def test_pauses_grow_but_little_while_the_sender_is_heard() -> None:
    receiver = adaptive(1)
    receiver.noticed(0, 1, 0)
    at = []
    for _ in range(14):
        at += asked(receiver, 1)
        receiver.noticed(0, 1, at[-1] + 1)
    longest_ns = 4 * ADAPTIVE.nack_retry_ns_max
    pauses = [b - a for a, b in itertools.pairwise(at)]
    assert all(pause <= 1.5 * longest_ns for pause in pauses)
    assert all(pause >= longest_ns for pause in pauses[-5:])


def test_pauses_that_grew_in_a_silence_are_short_again_once_the_sender_is_heard() -> None:
    receiver = adaptive(1)
    receiver.noticed(0, 1, 0)
    last = asked(receiver, 14)[-1]
    receiver.noticed(0, 1, last + 900_000_000)
    at = asked(receiver, 2)
    assert at[1] - at[0] <= 6 * ADAPTIVE.nack_retry_ns_max


def test_a_sender_that_is_heard_after_a_silence_is_asked_at_once() -> None:
    receiver = adaptive(1)
    receiver.noticed(0, 1, 0)
    last = asked(receiver, 14)[-1]
    receiver.noticed(0, 1, last + 900_000_000)
    deadline = receiver.deadline
    assert deadline is not None
    assert deadline <= last + 900_000_000 + ADAPTIVE.nack_delay_ns


def test_where_answers_take_long_the_next_request_waits_as_long() -> None:
    """What only headers tell of may be on its way over a slow link."""
    receiver = adaptive(1)
    receiver.noticed(0, 3, 0)
    first = asked(receiver, 1)[0]
    receiver.receive(0, Data(number=1, seq=1), first + 500_000_000)
    deadline = receiver.deadline
    assert deadline is not None
    assert deadline >= first + 1_000_000_000
    assert adaptive(1).deadline is None


def test_a_gap_is_asked_for_at_once_all_the_same() -> None:
    receiver = adaptive(1)
    receiver.noticed(0, 3, 0)
    first = asked(receiver, 1)[0]
    receiver.receive(0, Data(number=1, seq=1), first + 500_000_000)
    receiver.receive(0, Data(number=2, seq=2), first + 500_000_001)
    receiver.receive(0, Data(number=4, seq=4), first + 600_000_000)
    again = adaptive(1)
    again.receive(0, Data(number=2, seq=2), 0)
    assert again.deadline == ADAPTIVE.nack_delay_ns


def test_of_what_only_headers_tell_little_is_asked_for_at_first() -> None:
    receiver = adaptive(1)
    receiver.noticed(0, 8, 0)
    (out,) = receiver.wake(ADAPTIVE.nack_delay_ns).down
    assert isinstance(out, Out)
    assert out.pdu == Nack([(1, 1)])
    receiver.receive(0, Data(number=1, seq=1), 12_000_000)
    deadline = receiver.deadline
    assert deadline is not None
    (out,) = receiver.wake(deadline).down
    assert isinstance(out, Out)
    assert out.pdu == Nack([(2, 3)])


def test_requests_that_were_held_up_and_come_together_are_answered_once() -> None:
    sender = adaptive(0)
    sender.broadcast(Data(seq=1), 0)
    sender.broadcast(Data(seq=2), 0)
    nack = Nack([(1, 2)])
    assert len(sender.receive(1, nack, 50_000_000).down) == 2
    sender.receive(2, data(1), 50_000_000)
    sender.release([0, 0, 1])  # the same number of another stream
    assert len(sender.receive(1, nack, 51_000_000).down) == 0
    assert len(sender.receive(2, nack, 51_000_000).down) == 2, "another member is another matter"
    half = sender._options.nack_retry_ns // 2
    assert len(sender.receive(1, nack, 50_000_000 + half - 1).down) == 0
    assert len(sender.receive(1, nack, 50_000_000 + half).down) == 2
    assert len(sender.receive(1, nack, 90_000_000).down) == 2
    sender.release([2, 0, 0])
    assert len(sender.receive(1, nack, 190_000_000).down) == 0


# Large copies, and the marks behind them

LARGE = bytes(CHEAP_BYTES + 1)


def large_sender() -> Recovery:
    sender = adaptive(0)
    for seq in (1, 2):
        sender.broadcast(Data(seq=seq, payload=LARGE), 0)
        sender.spoke(0)
    return sender


def marks(sender: Recovery) -> list[tuple[tuple[int, ...] | None, int]]:
    """Wake a sender when it has something to say behind its copies, and return which marks go to whom."""
    now = sender.deadline
    assert now is not None
    down = sender.wake(now).down
    return [(out.to, out.pdu.number) for out in down if isinstance(out, Out) and isinstance(out.pdu, RepairMark)]


def test_a_large_copy_is_sent_once_until_it_is_lost() -> None:
    sender, nack = large_sender(), Nack([(1, 1)])
    assert len(sender.receive(1, nack, 0).down) == 1
    sender.spoke(ADAPTIVE.nack_retry_ns)
    assert sender.deadline == ADAPTIVE.nack_retry_ns, "a mark follows when it cannot overtake the copy any more"
    assert marks(sender) == [((1,), 1)]
    for now in (1, 9, 60):
        assert sender.receive(1, nack, now * SECOND).down == [], "nobody knows how long a copy takes"
        sender.spoke(now * SECOND + ADAPTIVE.nack_retry_ns)
        assert marks(sender)[0][0] == (1,), "but whether it was lost is asked for"
    assert sender.receive(1, RepairMark(1, heard=True), 61 * SECOND).down == []
    assert len(sender.receive(1, nack, 61 * SECOND).down) == 1, "the mark came, and what it follows did not"
    assert sender.receive(1, nack, 61 * SECOND).down == []
    sender.receive(1, RepairMark(4, heard=True), 62 * SECOND)
    assert sender.receive(1, nack, 62 * SECOND).down == [], "an earlier mark tells nothing of a later copy"
    sender.receive(1, RepairMark(5, heard=True), 63 * SECOND)
    sender.receive(1, RepairMark(2, heard=True), 63 * SECOND)
    assert len(sender.receive(1, nack, 63 * SECOND).down) == 1
    assert len(sender.receive(2, nack, 63 * SECOND).down) == 1, "another member is another matter"
    sender.release([2, 0, 0])
    assert sender.deadline is None


def test_what_is_cheap_is_sent_again_without_a_mark() -> None:
    sender = adaptive(0)
    sender.broadcast(Data(seq=1, payload=bytes(CHEAP_BYTES)), 0)
    sender.spoke(0)
    assert len(sender.receive(1, Nack([(1, 1)]), 0).down) == 1
    assert sender.deadline == ADAPTIVE.heartbeat_ns
    assert len(sender.receive(1, Nack([(1, 1)]), SECOND).down) == 1


def test_large_copies_go_once_whatever_the_pauses_are_and_small_ones_as_often_as_they_are_asked_for() -> None:
    sender = recovery(0)
    sender.broadcast(Data(seq=1, payload=LARGE), 0)
    sender.broadcast(Data(seq=2, payload=b""), 0)
    asked_for = [[out.seq for out in sender.receive(1, Nack([(1, 2)]), now).down] for now in (0, 1, 2)]  # type: ignore[union-attr]
    assert asked_for == [[1, 2], [2], [2]]


def test_who_hears_the_mark_and_lacks_the_copy_asks_again_at_once() -> None:
    receiver, nack = adaptive(1), Nack([(1, 1)])
    receiver.noticed(0, 1, 0)
    assert receiver.receive(0, RepairMark(1), 1).down == [], "it was not asked for yet"
    first = ADAPTIVE.nack_delay_ns
    assert receiver.wake(first).down == [Out(RepairMark(1, heard=True), (0,)), Out(nack, (0,))]
    again = receiver.receive(0, RepairMark(2), first + MILLISECOND)
    assert again.down == [Out(RepairMark(2, heard=True), (0,)), Out(nack, (0,))]
    deadline = receiver.deadline
    assert deadline is not None
    assert deadline >= first + MILLISECOND + ADAPTIVE.nack_retry_ns
    assert receiver.receive(0, RepairMark(2), first + 2 * MILLISECOND).down == [], "a second copy of the mark"
    assert receiver.wake(deadline).down == again.down, "a later request says which mark was heard, too"
    receiver.receive(0, data(1), deadline)
    assert receiver.receive(0, RepairMark(3), deadline).down == []


def test_to_ask_is_cheap_however_long_copies_take() -> None:
    receiver = adaptive(1)
    receiver.noticed(0, 2, 0)
    (first,) = asked(receiver, 1)
    receiver.receive(0, data(1), first + 9 * SECOND)
    at = asked(receiver, 2)
    assert at[0] - first - 9 * SECOND <= 2 * SECOND
    assert at[1] - at[0] <= 3 * SECOND


# Limits, and the pace of what is repeated


def test_one_request_is_answered_with_so_many_repairs_at_most() -> None:
    options = RecoveryOptions(adaptive=False, repairs_per_nack_max=3)
    sender = Recovery(PartContext(0, 3, random.Random(0)), 8, options)
    for seq in range(1, 8):
        sender.broadcast(Data(seq=seq), 0)

    def repaired(*ranges: tuple[int, int]) -> list[int]:
        return [out.pdu.number for out in sender.receive(1, Nack([*ranges]), 0).down]  # type: ignore[union-attr]

    assert repaired((1, 7)) == [1, 2, 3]
    assert repaired((1, 2), (4, 6)) == [1, 2, 4], "the limit is of the request, not of each range"
    assert repaired((5, 7)) == [5, 6, 7]


@pytest.mark.parametrize("options", [OPTIONS, RecoveryOptions()])
def test_no_more_is_asked_for_than_may_be_kept(options: RecoveryOptions) -> None:
    """What lies beyond the window's reach would be thrown away if it came."""
    window = 2
    receiver = Recovery(PartContext(1, 3, random.Random(0)), window, options)
    receiver.noticed(0, 10**6, 0)
    receiver.receive(0, data(4 * window), 0)
    for _ in range(20):
        now = receiver.deadline
        assert now is not None
        (ask,) = receiver.wake(now).down
        assert all(last < 4 * window for _, last in ask.pdu.ranges)  # type: ignore[union-attr]
    for number in range(1, 4 * window):
        receiver.receive(0, data(number), now)
    assert receiver.received[0] == 4 * window
    now = receiver.deadline
    assert now is not None
    assert receiver.wake(now).down == [], "there is no room for more, so nothing is asked for"
    receiver.release([3, 0, 0])
    for _ in range(20):
        now = receiver.deadline
        assert now is not None
        for ask in receiver.wake(now).down:
            assert all(4 * window < first <= last <= 4 * window + 3 for first, last in ask.pdu.ranges)  # type: ignore[union-attr]


def test_pauses_between_requests_double_up_to_their_limit() -> None:
    options = RecoveryOptions(adaptive=False, nack_retry_ns_max=300 * MILLISECOND)
    receiver = Recovery(PartContext(1, 3, random.Random(0)), 8, options)
    receiver.noticed(0, 1, 0)
    at = asked(receiver, 9)
    for pause, least in zip(
        [b - a for a, b in itertools.pairwise(at)], [40, 80, 160, 300, 300, 300, 300, 300], strict=True
    ):
        assert least * MILLISECOND <= pause <= 1.5 * least * MILLISECOND


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3)), max_size=60))
def test_a_stream_is_kept_and_passed_on_as_a_naive_receiver_would(events: list[tuple[int, int]]) -> None:
    """The oracle keeps a set of what has come, and counts its prefix anew each time."""
    window, receiver = 2, recovery(1, window=2)
    came: set[int] = set()
    released = passed = overruns = 0
    for number, stable in events:
        fits = number <= released + 4 * window
        new = fits and number not in came
        overruns += not fits
        came |= {number} if fits else set()
        prefix = next(length for length in range(len(came) + 1) if length + 1 not in came)
        step = receiver.receive(0, data(number), 0)
        assert accepted(step) == [*range(passed + 1, prefix + 1)]
        assert [up for up in step.up if isinstance(up, Duplicate)] == (
            [Duplicate(0, number)] if fits and not new else []
        )
        passed = prefix
        released = max(released, min(stable, passed))
        receiver.release([released, 0, 0])
        assert receiver.log[0].keys() == {one for one in came if one > released}
        assert (receiver.held, receiver.overruns) == (len(came) - released, overruns)
        assert receiver.reach() == [passed, 0, 0]
        assert (receiver.deadline is not None) == (max(came, default=0) > passed)
        assert [one for one, _ in receiver.copies(0, 1, 5)] == [one for one in range(2, 6) if one in receiver.log[0]]


def test_what_others_kept_is_adopted_in_order_when_a_view_ends() -> None:
    receiver = recovery(1)
    receiver.receive(0, data(2), 0)
    for wrong in (data(2), data(0), Heartbeat()):
        with pytest.raises(Malformed):
            receiver.adopt(0, wrong)
    assert receiver.held == 1
    assert accepted(receiver.adopt(0, data(1))) == [1]
    assert receiver.held == 2, "one that was not kept yet"
    assert accepted(receiver.adopt(0, data(2))) == [2]
    assert (receiver.held, receiver.received[0]) == (2, 2)
    assert receiver.copies(0, 0, 2) == [(1, data(1)), (2, data(2))]


def test_own_messages_are_held_until_released_and_numbers_end() -> None:
    sender = recovery(0)
    for seq in (1, 2):
        sender.broadcast(Data(seq=seq), 0)
    assert (sender.held, sender.unstable, sender.sent) == (2, 2, 2)
    sender.release([1, 0, 0])
    assert (sender.held, sender.unstable) == (1, 1)
    sender.received[0] = NUMBER_MAX - 1
    sender.broadcast(Data(seq=3), 0)
    assert sender.sent == NUMBER_MAX
    with pytest.raises(Exhausted):
        sender.broadcast(Data(seq=4), 0)


def test_heartbeats_come_ever_less_often_and_who_asks_for_one_gets_it() -> None:
    sender = recovery(0)
    sender.broadcast(Data(seq=1), 0)
    sender.spoke(5)
    assert sender.wake(4 + OPTIONS.heartbeat_ns).down == []
    at = [asked(sender, 1)[0] for _ in range(4)]
    assert at[0] == 5 + OPTIONS.heartbeat_ns
    pauses = [b - a for a, b in itertools.pairwise(at)]
    assert pauses[0] >= 2 * OPTIONS.heartbeat_ns
    assert pauses[-1] >= OPTIONS.heartbeat_ns_max
    sender.broadcast(Data(seq=2), at[-1])
    sender.spoke(at[-1])
    assert sender.deadline == at[-1] + OPTIONS.heartbeat_ns, "news: not so patient any more"
    assert sender.receive(2, Heartbeat(), 0).down == []
    assert sender.receive(2, Heartbeat(asking=True), 0).down == [Out(Heartbeat(), (2,))]


@given(st.booleans(), st.lists(st.one_of(st.just(0), st.integers(1, 12)), max_size=40))
def test_what_is_missing_is_asked_for_as_by_a_set_of_what_has_come(gated: bool, events: list[int]) -> None:
    """The oracle keeps a set of what has come; an event is the number of what comes, or 0: take the next."""
    receiver = Recovery(PartContext(1, 3, random.Random(0)), 8, OPTIONS, gated=gated)
    came: set[int] = set()
    passed = now = 0
    for number in events:
        if number:
            assert accepted(receiver.receive(0, data(number), now)) == [] or not gated
            came.add(number)
        elif gated and receiver.following(0) is not None:
            assert accepted(receiver.take(0)) == [passed + 1]
            passed += 1
            assert (0 in receiver.arrived) == (passed + 1 in came)
        if gated:
            receiver.expect(0, now)
        else:
            passed = next(length for length in range(len(came) + 1) if length + 1 not in came)
        assert receiver.received == [passed, 0, 0]
        assert receiver.following(0) == (data(passed + 1) if passed + 1 in came else None)
        assert 0 in receiver.arrived or not gated or passed + 1 not in came
        assert gated or not receiver.arrived
        deadline = receiver.deadline
        assert (deadline is not None) == (max(came, default=0) > passed)
        if deadline is not None:
            now = deadline
            asked_for = [pdu.ranges for pdu in (out.pdu for out in receiver.wake(now).down)]  # type: ignore[union-attr]
            numbers = [one for ranges in asked_for for first, last in ranges for one in range(first, last + 1)]
            assert numbers == [one for one in range(passed + 1, max(came)) if one not in came]
            assert all(first <= last for ranges in asked_for for first, last in ranges)


def test_more_that_is_missing_does_not_put_off_the_request() -> None:
    receiver = recovery(1)
    receiver.noticed(0, 1, 0)
    receiver.noticed(0, 2, 5)
    receiver.noticed(2, 0, 6)  # of which nothing is missing
    assert receiver.deadline == OPTIONS.nack_delay_ns
    assert receiver.wake(OPTIONS.nack_delay_ns).down == [Out(Nack([(1, 2)]), (0,))]


def test_of_a_gap_all_is_asked_for_at_once() -> None:
    receiver = adaptive(1)
    receiver.receive(0, data(5), 0)
    assert receiver.wake(ADAPTIVE.nack_delay_ns).down == [Out(Nack([(1, 4)]), (0,))]


@pytest.mark.parametrize("vain", [1, 3])
def test_an_answer_is_timed_from_the_last_request(vain: int) -> None:
    """RFC 6298: the first timeout is three times the first measurement."""
    answer = 30 * MILLISECOND
    receiver = adaptive(1)
    receiver.receive(0, data(3), 0)  # the gap has two, the first of which answers
    now = asked(receiver, vain)[-1] + answer
    receiver.receive(0, data(1), now)
    receiver.receive(0, data(2), now)
    assert receiver.deadline is None
    receiver.noticed(0, 4, now)
    assert receiver.deadline == now + 3 * answer


def test_without_adaption_all_pauses_are_as_configured() -> None:
    options = RecoveryOptions(adaptive=False, nack_retry_ns=10**10, nack_retry_ns_max=10**10)
    receiver = Recovery(PartContext(1, 3, random.Random(0)), 8, options)
    receiver.noticed(0, 1, 0)
    now = asked(receiver, 1)[0]
    planned = receiver.deadline
    receiver.noticed(0, 1, now + 10**9)
    assert receiver.deadline == planned, "that its sender is heard after a silence changes nothing"
    receiver.receive(0, data(1), now + 10**9)
    receiver.noticed(0, 2, 2 * 10**9)
    assert receiver.deadline == 2 * 10**9 + options.nack_delay_ns, "nor does an answer that took long"


def test_only_a_silence_of_four_heartbeats_makes_a_request_urgent() -> None:
    silence = 4 * ADAPTIVE.heartbeat_ns_max
    receiver = adaptive(1)
    receiver.noticed(0, 1, 0)
    now = asked(receiver, 14)[-1]
    receiver.noticed(0, 1, now)
    assert receiver.deadline == now + ADAPTIVE.nack_delay_ns
    planned = None
    while planned is None or planned < now + 3 * silence:
        asked(receiver, 1)
        planned = receiver.deadline
        assert planned is not None
    receiver.noticed(0, 1, now + silence)
    assert receiver.deadline == planned
    receiver.noticed(0, 1, now + 2 * silence + 1)
    assert receiver.deadline == now + 2 * silence + 1 + ADAPTIVE.nack_delay_ns


def test_one_number_may_be_asked_for_and_what_is_no_pdu_of_streams_is_refused() -> None:
    sender = recovery(0)
    for seq in (1, 2):
        sender.broadcast(Data(seq=seq), 0)
    assert sender.deadline == OPTIONS.heartbeat_ns
    assert [out.pdu.number for out in sender.receive(1, Nack([(2, 2)]), 0).down] == [2]  # type: ignore[union-attr]
    with pytest.raises(Malformed, match="unexpected"):
        sender.receive(1, Report(1, True, b"", True), 0)
