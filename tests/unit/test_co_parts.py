"""The parts of CO by themselves: probes, confirmations, what is early, what is sent again, when to ask."""

from __future__ import annotations

import random
from typing import Any

import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.ordering.co import CoOptions
from antiphon.protocol.ordering.co.acceptance import CausalAcceptance
from antiphon.protocol.ordering.co.confirmations import Confirmations
from antiphon.protocol.ordering.co.flow import FlowCondition
from antiphon.protocol.ordering.co.levels import AtomicReceipt
from antiphon.protocol.ordering.co.logs import Logged
from antiphon.protocol.ordering.co.pdus import HEADROOM_MAX, CoConfirm, CoData
from antiphon.protocol.ordering.co.probes import Probes
from antiphon.protocol.ordering.co.sending_log import SendingLog
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import Out, PartContext, Received, Step
from antiphon.protocol.repairs import CHEAP_BYTES, RepairMark
from antiphon.protocol.wire import pack_vector

MS = MILLISECOND


class Even(random.Random):
    """Draws the least of what it may."""

    def randrange(self, *bounds: Any) -> int:
        return 0


class Wide(random.Random):
    """Draws the most of what it may."""

    def randrange(self, *bounds: Any) -> int:
        return int(bounds[-1]) - 1


class World:
    """The parts of a member of three, without the member."""

    def __init__(self, size: int = 3, chance: random.Random | None = None, **options: Any) -> None:
        self.options = CoOptions(**options)
        context = PartContext(0, size, chance or Even())
        self.receipt = AtomicReceipt(size)
        self.acceptance = CausalAcceptance(context, self.options, self.receipt)
        self.trips = RoundTrips(size, self.options.ret_retry_ns)
        self.log = SendingLog(self.acceptance, self.options, self.trips, context.random)
        self.flow = FlowCondition(self.acceptance, self.log, self.options)
        self.probes = Probes(context, self.options, self.flow, self.trips)
        self.confirmations = Confirmations(context, self.options, self.trips)

    def send(self, number: int, now: int = 0, *, message: bool = True, payload: bytes = b"m") -> None:
        """Keep a PDU of one's own."""
        ack = pack_vector([1] * self.acceptance.size)
        pdu = CoData(ack, 9, number, payload) if message else CoConfirm(ack, 9, number)
        self.log.enter(pdu, number if message else None, now)
        self.acceptance.req[0] = number + 1


def logged(source: int, number: int, *ack: int, payload: bytes | None = b"m") -> Logged:
    return Logged(source, number, [*ack] or [1, 1, 1], 99, payload)


# Probes


def test_a_silence_is_broken_while_something_is_waited_for_and_each_time_later() -> None:
    world = World(probe_ns=10 * MS, probe_ns_max=70 * MS)
    probes = world.probes
    probes.progress(100 * MS)
    assert probes.deadline is None
    assert not probes.over(999 * MS)
    world.flow.starved = True
    broken = [now for now in range(100, 600) if probes.over(now * MS)]
    assert broken == [110, 130, 170, 240, 310, 380, 450, 520, 590], "at most so far apart"
    probes.progress(600 * MS)
    assert probes.deadline == 610 * MS


def test_many_members_that_wait_in_vain_probe_less_often() -> None:
    world = World(size=20, probe_ns=10 * MS, probe_ns_max=10 * MS)
    world.flow.starved = True
    world.probes.progress(0)
    broken = [now for now in range(1_000) if world.probes.over(now * MS)]
    assert broken[-1] - broken[-2] == 100, "half a probe's pause for each"


def test_what_is_under_way_is_given_the_time_that_prompt_answers_take() -> None:
    world = World(probe_ns=10 * MS, probe_ns_max=10 * MS)
    world.trips.measured(1, 50 * MS)
    world.receipt.undelivered = 1
    world.probes.progress(0)
    assert world.probes.deadline == 50 * MS
    assert [now for now in range(400) if world.probes.over(now * MS)] == [50, 150, 250, 350], "and then twice that"
    world.receipt.undelivered = 0
    world.flow.starved = True
    world.probes.progress(0)
    assert world.probes.deadline == 10 * MS


def test_a_prober_is_answered_soon_and_wider_spread_the_more_often_it_asks() -> None:
    world = World(chance=Wide(), defer_ns=2 * MS)
    at = []
    for now in range(7):
        world.probes.asked(1, now * MS)
        world.probes.asked(1, now * MS)  # once more before it was answered
        deadline = world.probes.deadline
        assert deadline is not None
        at.append(deadline - now * MS)
        assert world.probes.answers(deadline - 1) == []
        assert world.probes.answers(deadline) == [1]
    assert at == [3 * MS, 6 * MS, 12 * MS, 24 * MS, 48 * MS, 48 * MS, 48 * MS]
    world.probes.progress(0)
    world.probes.asked(1, 0)
    assert world.probes.deadline == 3 * MS, "something has moved"
    assert world.probes.answers(9 * MS) == [1]
    assert world.probes.deadline is None


def test_who_waits_itself_answers_when_its_own_wait_is_over() -> None:
    world = World(probe_ns=10 * MS)
    world.flow.starved = True
    world.probes.progress(0)
    world.probes.asked(1, 3 * MS)
    assert world.probes.deadline == 10 * MS
    assert world.probes.answers(12 * MS) == []
    assert world.probes.answers(13 * MS) == [1]


def test_those_are_probed_of_whom_something_is_awaited_and_whoever_waits_for_an_answer() -> None:
    world = World()
    assert world.probes.probe_targets() is None
    world.probes.asked(2, 0)
    assert world.probes.probe_targets() == (2,)
    assert world.probes.answers(99 * MS) == [], "the probe was the answer"
    world.flow.starved = True
    world.probes.asked(2, 0)
    assert world.probes.probe_targets() is None, "anyone may have slots"


# Confirmations


def test_a_confirmation_is_owed_for_data_with_news_of_others_and_again_when_all_have_it() -> None:
    one = World().confirmations
    assert not one.confirmation_owed()
    one.accepted(logged(0, 1))
    assert not one.confirmation_owed(), "one's own, of which nobody was heard yet"
    one.accepted(logged(1, 1, payload=None))
    assert one.confirmation_owed()
    one.sent()
    assert not one.confirmation_owed()
    one.accepted(logged(1, 2, payload=None))
    assert not one.confirmation_owed(), "a confirmation is not confirmed"
    one.unconfirmed_by_all = True
    assert one.confirmation_owed()
    one.sent()
    assert (one.unconfirmed, one.unconfirmed_by_all, one.heard, one.due_at) == (False, False, set(), None)
    alone = World(size=1).confirmations
    alone.accepted(logged(0, 1))
    assert alone.confirmation_owed()


def at_once() -> int:
    """Wait no longer than a confirmation waits anyway."""
    return 0


def test_a_confirmation_is_deferred_until_something_came_from_everyone() -> None:
    one = World(defer_ns=5 * MS).confirmations
    one.plan(10 * MS, owed=False, spacing_ns=at_once)
    assert one.due_at is None
    one.accepted(logged(1, 1))
    one.plan(10 * MS, owed=True, spacing_ns=at_once)
    assert one.due_at == 15 * MS
    one.plan(12 * MS, owed=True, spacing_ns=at_once)
    assert one.due_at == 15 * MS, "it is not put off"
    one.accepted(logged(2, 1))
    one.plan(13 * MS, owed=True, spacing_ns=at_once)
    assert one.due_at == 13 * MS
    one.plan(14 * MS, owed=True, spacing_ns=at_once)
    assert one.due_at == 13 * MS
    one.plan(14 * MS, owed=False, spacing_ns=at_once)
    assert one.due_at is None
    one.plan(15 * MS, owed=True, spacing_ns=at_once)
    assert one.due_at == 15 * MS
    lossy = World(defer_ns=5 * MS).confirmations
    lossy.accepted(logged(1, 1))
    lossy.plan(10 * MS, owed=True, spacing_ns=lambda: 30 * MS)
    assert lossy.due_at == 40 * MS


def test_a_confirmation_waits_longer_where_links_have_queues() -> None:
    world = World(defer_ns=5 * MS)
    world.trips.measured(1, 10 * MS)
    for _ in range(8):
        world.trips.measured(1, 70 * MS)
    assert world.confirmations.deferral_ns() == 30 * MS
    assert World(defer_ns=5 * MS).confirmations.deferral_ns() == 5 * MS


# What is early


def test_what_comes_early_is_held_and_released_when_its_turn_comes() -> None:
    world = World()
    one = world.acceptance
    later, waiting = logged(1, 2), logged(2, 1, 1, 3, 1)
    assert not one.admit(later)
    assert not one.admit(waiting), "its sender had accepted more of 1 than this member has"
    assert (one.early_count, one.early_messages, one.held, one.free) == (2, 2, 2, one.places - 2)
    assert one.is_copy(later)
    first = logged(1, 1)
    assert one.is_next(first)
    assert one.admit(first)
    one.accepted(first)
    released = []
    for p in one.released(1):
        one.accepted(p)
        released.append(p)
    assert released == [later, waiting]
    assert (one.early_count, one.early_messages) == (0, 0)
    assert one.req == [1, 3, 2]
    assert one.is_copy(first)
    assert not one.is_copy(logged(1, 3))


def test_a_source_that_was_blocked_is_looked_at_from_the_beginning_after_its_next_was_accepted() -> None:
    one = World(size=4).acceptance
    blocked = logged(1, 1, 1, 1, 1, 2)
    assert not one.admit(blocked)  # it waits for 3
    following = logged(1, 2, 1, 2, 2, 2)
    one.put_early(following)  # and the next for 2, which comes before 3
    third = logged(3, 1, 1, 1, 1, 1)
    assert one.admit(third)
    one.accepted(third)
    released = []
    for p in one.released(3):
        one.accepted(p)
        released.append(p)
    assert released == [blocked]


def test_confirmations_take_no_slot_and_all_that_is_early_can_be_let_go() -> None:
    one = World().acceptance
    one.admit(logged(1, 2, payload=None))
    assert (one.early_count, one.early_messages, one.free) == (1, 0, one.places)
    one.admit(logged(1, 3))
    one.forget_early()
    assert (one.early_count, one.early_messages, one.held) == (0, 0, 0)
    assert not one.is_copy(logged(1, 3))


def test_what_lies_too_far_ahead_is_not_held() -> None:
    one = World(window=1, headroom=1).acceptance
    one.hold(logged(1, 1 + one.places))
    assert (one.early_count, one.overruns) == (0, 1)
    one.hold(logged(1, one.places))
    assert (one.early_count, one.overruns) == (1, 1)


def test_places_are_a_share_more_than_the_window_needs() -> None:
    assert CoOptions(window=3, headroom=5).places(4) == 4 * 5 * 4
    assert CoOptions(window=3, headroom=5, buffer=77).places(4) == 77


# What is sent again


def test_headroom_is_bounded_by_what_a_pdu_can_say() -> None:
    CoOptions(headroom=HEADROOM_MAX).check(2)
    with pytest.raises(UsageError, match=f"headroom: must be at most {HEADROOM_MAX}, not {HEADROOM_MAX + 1}"):
        CoOptions(headroom=HEADROOM_MAX + 1).check(2)


def test_numbers_are_sent_again_to_those_who_are_not_known_to_have_them() -> None:
    world = World()
    for number in (1, 2, 3):
        world.send(number, message=number != 3)
    world.trips.heard(1, 1, 0)
    assert world.log.lacking(1) == (2,)
    assert world.log.lacking(2) is None
    world.log.rebroadcast((1, 2, 3), 2, 5 * MS)
    assert world.log.deadline == 5 * MS
    step = Step()
    world.log.wake(5 * MS - 1, step)
    assert step.down == []
    world.log.wake(5 * MS, step)
    outs = [out for out in step.down if isinstance(out, Out)]
    assert [(out.seq, out.to, out.repair) for out in outs] == [(1, (2,), True), (2, None, True), (None, None, True)]
    assert world.log.deadline is None
    assert [world.log.sl[number].copies for number in (1, 2, 3)] == [1, 1, 1]
    assert world.log.sl[1].copied == {2: (5 * MS, 1)}
    assert world.log.sl[2].copied == dict.fromkeys(range(world.log.acceptance.size), (5 * MS, 1))


def test_confirmations_that_go_together_go_to_those_who_lack_the_last_of_them() -> None:
    world = World()
    for number in (1, 2):
        world.send(number, message=False)
    world.trips.heard(1, 1, 0)
    world.log.rebroadcast((1, 2), 2, 0)
    step = Step()
    world.log.wake(0, step)
    assert [out.to for out in step.down if isinstance(out, Out)] == [None, None]


def test_what_was_just_sent_again_is_not_again_and_after_many_copies_ever_more_rarely() -> None:
    world = World(ret_retry_ns=10 * MS)
    world.send(1)
    sent = world.log.sl[1]
    assert not world.log.just_resent(sent, 1, 0)
    for copies, pause in ((1, 10), (6, 10), (7, 20), (8, 40), (10, 160), (20, 160)):
        sent.copied[1] = 100 * MS, copies
        assert world.log.just_resent(sent, 1, (100 + pause) * MS - 1)
        assert not world.log.just_resent(sent, 1, (100 + pause) * MS)
        assert not world.log.just_resent(sent, 2, 100 * MS), "what went to one is not on its way to another"


def test_copies_spread_over_a_part_of_the_round_trip_and_wider_after_each_vain_one() -> None:
    world = World(ret_retry_ns=16 * MS)
    world.send(1)
    sent = world.log.sl[1]
    spreads = []
    for copies in (0, 3, 4, 5, 7, 20):
        sent.copies = copies
        spreads.append(world.log.spread_ns(sent, 1, 0) // MS)
    assert spreads == [4, 4, 8, 16, 64, 64]


def test_a_copy_leaves_at_the_end_of_its_time_at_the_latest() -> None:
    world = World(chance=Wide(), ret_retry_ns=16 * MS)
    world.send(1)
    world.log.rebroadcast((1,), 1, 5 * MS)
    assert world.log.deadline == 5 * MS + world.log.spread_ns(world.log.sl[1], 1, 5 * MS)


def test_a_copy_takes_the_best_round_trip_to_the_asker_or_to_anyone() -> None:
    world = World(ret_retry_ns=10 * MS)
    world.send(1, now=0)
    sent = world.log.sl[1]
    assert world.log.copy_ns(sent, 1, 0) == 10 * MS
    world.trips.measured(2, 40 * MS)
    assert world.log.copy_ns(sent, 1, 30 * MS) == 30 * MS, "it has not taken longer yet"
    assert world.log.copy_ns(sent, 1, 90 * MS) == 40 * MS
    world.trips.measured(1, 20 * MS)
    assert world.log.copy_ns(sent, 1, 90 * MS) == 20 * MS


def test_a_small_copy_is_not_waited_for_as_long_as_large_messages_take() -> None:
    world = World(ret_retry_ns=10 * MS)
    world.send(1, payload=bytes(7_000))
    world.send(2, message=False)
    world.trips.measured(1, 50 * MS)
    confirmation = world.log.sl[2]
    assert confirmation.bytes == 24 + 3 * 4
    assert world.log.copy_ns(confirmation, 1, SECOND) == 10 * MS
    assert world.log.copy_ns(world.log.sl[1], 1, SECOND) == 10 * MS, "a mark tells whether it was lost"


def test_a_large_copy_goes_once_to_those_who_asked_and_again_when_it_is_lost() -> None:
    world = World(ret_retry_ns=4, ret_grace_ns=5 * MS)
    world.send(1, payload=bytes(CHEAP_BYTES + 1))

    def copies(asker: int, now: int) -> list[tuple[int, ...] | None]:
        step = Step()
        world.log.rebroadcast((1,), asker, now)
        world.log.wake(now + 1, step)
        return [out.to for out in step.down if isinstance(out, Out)]

    assert copies(1, 0) == [(1,)], "not to all who are not known to have it"
    assert copies(1, 60 * SECOND) == [], "it may still be on its way"
    assert copies(2, 60 * SECOND) == [(2,)]
    ((first, mark), _) = world.log.marks.take_due(61 * SECOND)
    assert first == 1
    world.log.marks.take(1, RepairMark(mark.number, heard=True))
    assert copies(1, 61 * SECOND) == [(1,)], "the mark behind it came, and it did not"
    assert copies(1, 62 * SECOND) == []
    world.trips.reached[2] = 1
    world.log.marks.take(2, RepairMark(1, heard=True))
    assert copies(2, 63 * SECOND) == [], "it has it by now"


def test_copies_in_a_large_group_go_to_the_few_who_asked() -> None:
    world = World(size=16, ret_retry_ns=4)
    for number in (1, 2):
        world.send(number)

    def copies(number: int, askers: tuple[int, ...], now: int) -> list[tuple[int, ...] | None]:
        step = Step()
        for asker in askers:
            world.log.rebroadcast((number,), asker, now)
        world.log.wake(now + 1, step)
        return [out.to for out in step.down if isinstance(out, Out)]

    assert copies(1, (3,), 0) == [(3,)]
    assert copies(1, (3,), SECOND) == [(3,)], "the others are not known to have it, and yet most do"
    assert copies(1, (3, 4), 2 * SECOND) == [None]
    assert copies(2, (3, 4), 0) == [None]


def test_a_small_copy_goes_with_a_mark_where_answers_take_long_or_messages_are_large() -> None:
    world = World(ret_retry_ns=20 * MS)
    world.send(1, payload=bytes(CHEAP_BYTES))
    small = world.log.sl[1]
    assert not world.log.is_slow(small)
    world.send(2, payload=bytes(CHEAP_BYTES + 1))
    assert world.log.is_slow(world.log.sl[2])
    assert world.log.is_slow(small), "nothing is known of the links, and messages are large"
    world.trips.measured(1, 100 * MS)
    assert not world.log.is_slow(small)
    assert world.log.is_slow(world.log.sl[2])
    slow = World(ret_retry_ns=20 * MS)
    slow.send(1)
    slow.trips.measured(1, 101 * MS)
    assert slow.log.is_slow(slow.log.sl[1])


def test_a_request_is_for_what_was_sent_and_is_still_kept_and_answered_within_bounds() -> None:
    world = World(repairs_max=2)
    for number in range(1, 6):
        world.send(number)
    assert list(world.log.retransmission_range([(2, 4), (5, 99)])) == [2, 3, 5]
    world.log.rebroadcast((1, 2, 3), 1, 0)
    assert world.log.planned == {1, 2}


def test_copies_that_nobody_can_ask_for_are_let_go() -> None:
    world = World()
    for number in (1, 2, 3):
        world.send(number, message=number != 2)
    assert world.log.outstanding == 2
    world.log.planned = {1, 3}
    world.receipt.al.least[0] = 3
    world.log.release()
    assert (set(world.log.sl), world.log.outstanding, world.log.planned) == ({3}, 1, {3})
    world.log.release()
    assert set(world.log.sl) == {3}


def test_only_messages_measure_round_trips() -> None:
    world = World()
    world.send(1, now=0, message=False)
    world.trips.heard(1, 1, 30 * MS)
    assert world.trips.shortest_ns == 0
    world.send(2, now=40 * MS)
    world.trips.heard(1, 2, 70 * MS)
    assert world.trips.shortest_ns == 30 * MS


# Levels


def test_an_accepted_message_is_counted_and_a_confirmation_is_not() -> None:
    receipt, step = AtomicReceipt(3), Step()
    receipt.enter(logged(1, 1, payload=None), step)
    receipt.enter(logged(1, 2), step)
    assert step.up == [Received(1, 1)]
    assert (receipt.accepted, receipt.undelivered) == ([0, 1, 0], 1)
    assert len(receipt.rrl[1]) == 2


def test_those_are_awaited_who_are_not_known_to_have_accepted_or_confirmed() -> None:
    receipt, step = AtomicReceipt(3), Step()
    receipt.enter(logged(1, 1), step)
    assert receipt.awaited() == {0, 1, 2}
    receipt.al.rows[1][0] = receipt.al.rows[1][1] = 2
    assert receipt.awaited() == {2}
    receipt.enter(logged(2, 1, payload=None), step)
    assert receipt.awaited() == {2}, "a confirmation is not awaited for its own sake"


def test_who_has_not_confirmed_one_message_is_awaited_whoever_has_confirmed_the_others() -> None:
    receipt = AtomicReceipt(3)
    receipt.prl = [logged(1, 1), logged(2, 1)]
    receipt.pal.rows[1] = [2, 2, 1]
    receipt.pal.rows[2] = [1, 2, 2]
    assert receipt.awaited() == {0, 2}


# Flow


@pytest.mark.parametrize(("buf", "open_"), [(8, False), (9, True), (18, True)])
def test_one_more_message_may_be_sent_while_everyone_has_a_share_of_slots(buf: int, open_: bool) -> None:
    world = World(window=2, headroom=3)
    world.flow.buf[2] = buf
    assert world.flow.may_submit() is open_
    assert world.flow.starved is not open_


def test_the_window_bounds_what_is_outstanding() -> None:
    world = World(window=2, headroom=3)
    world.log.outstanding = 1
    assert world.flow.may_submit()
    world.log.outstanding = 2
    assert not world.flow.may_submit()


def test_a_later_word_about_slots_counts() -> None:
    world = World()
    assert not world.flow.credit(1, (1, 2, 1), 5)
    assert world.flow.buf[1] == 5
    assert not world.flow.credit(1, (1, 1, 1), 99)
    assert world.flow.buf[1] == 5
    assert world.flow.credit(1, (1, 2, 1), 6)
    assert not world.flow.credit(1, (1, 3, 1), 6)
