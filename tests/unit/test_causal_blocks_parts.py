"""The parts of causal blocks by themselves: lifetimes, repairs and silences, with messages put in by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from antiphon.protocol.machine import Deliver, Drop, Submit
from antiphon.protocol.ordering.causal_blocks import BlockMessage, CausalBlocks, CausalBlocksOptions, NullBlock
from antiphon.protocol.ordering.causal_blocks.knowledge import Stamps
from antiphon.protocol.ordering.causal_blocks.messages import BLOCK_MAX, UNCROWDED
from antiphon.protocol.ordering.causal_blocks.repair import COPIES_AT_ONCE, DOUBLINGS_MAX
from antiphon.protocol.parts import Duplicate, Out, PartContext, Step
from antiphon.protocol.repairs import CHEAP_BYTES
from antiphon.protocol.wire import Data, Malformed, pack_vector


class Least(random.Random):
    """Draws the least of what it may."""

    def randrange(self, *bounds: Any) -> int:
        return 0

    def randint(self, a: int, b: int) -> int:
        return a


class Most(random.Random):
    """Draws the most of what it may."""

    def randrange(self, *bounds: Any) -> int:
        return int(bounds[-1]) - 1

    def randint(self, a: int, b: int) -> int:
        return b


def blocks(size: int = 3, chance: random.Random | None = None, **options: Any) -> CausalBlocks:
    return CausalBlocks(PartContext(0, size, chance or Least()), CausalBlocksOptions(**options))


def message(
    sender: int, seq: int, block: int, *ldv: int, mb: int = 0, life_ns: int | None = None, payload: bytes = b"m"
) -> BlockMessage:
    return BlockMessage(sender, seq, block, mb, pack_vector(ldv), 0, 0, life_ns, payload)


def null(block: int, *ldv: int, mb: int = 0, seq: int = 0, asking: bool = False, **others: Any) -> NullBlock:
    return NullBlock(block, mb, pack_vector(ldv), seq, 0, asking, others.pop("early", []), others.pop("told", 0))


def ups(step: Step) -> list[Any]:
    return [up for up in step.up if isinstance(up, Deliver | Drop | Duplicate)]


def repairs(step: Step) -> list[Out]:
    return [out for out in step.down if isinstance(out, Out) and out.repair]


# MB


def test_what_has_been_lacking_for_long_is_complained_of_though_nothing_comes_from_a_member() -> None:
    """Member 3 is dead, or takes in nothing; member 2 has delivered what member 1 sent, and it is lost here."""
    one = blocks(5, silence_ns=100, grace_ns=50)
    one.receive(2, null(7, 0, 5, 0, 0, 0), 10)
    one.receive(4, null(7, 0, 5, 0, 0, 0), 10)
    assert one.known.since == {1: (5, 10)}
    assert one.known.next_block(609) == (8, 0)
    assert one.known.next_block(610) == (9, 7)
    one.receive(2, null(10, 0, 8, 0, 0, 0), 620)
    assert one.known.since == {1: (5, 10)}, "it counts from the first that lacks"
    one.receive(1, message(1, 1, 5, 0, 0, 0, 0, 0), 630)
    assert one.known.since == {}
    assert one.known.next_block(10**9) == (11, 0), "everyone counts again"
    one.receive(2, null(12, 0, 8, 0, 0, 0), 640)
    one.receive(1, message(1, 2, 8, 0, 5, 0, 0, 0), 650)
    assert (one.known.since, one.known.lacking) == ({}, {})


def test_where_nothing_comes_from_half_of_the_group_everyone_counts() -> None:
    """Large messages are on their way here, and are not to be sent again because another one was lost."""
    one = blocks(4, silence_ns=100, grace_ns=50)
    one.receive(2, null(7, 0, 5, 0, 0), 10)
    assert one.known.next_block(10**9) == (8, 0)
    one.receive(3, null(7, 0, 5, 0, 0), 20)
    assert one.known.next_block(10**9 + 1) == (9, 7)


# Lifetimes


def test_a_gap_is_skipped_when_it_was_known_for_a_whole_lifetime_and_not_before() -> None:
    one = blocks(skip_after_ns=100)
    assert ups(one.receive(1, message(1, 2, 5, 0, 3, 0), 10)) == []
    deadlines = one.lifetimes.deadline
    assert deadlines == 110
    assert ups(one.wake(109)) == []
    assert ups(one.wake(110)) == [Drop("expired", 1, 1), Deliver(1, 2, b"m")]
    assert one.lifetimes.deadline is None
    assert ups(one.wake(111)) == []


def test_of_a_gap_that_was_skipped_nothing_is_waited_for() -> None:
    """Else every later word would count only after a grace, as if what was skipped were merely late."""
    one = blocks(skip_after_ns=100, grace_ns=10_000)
    one.receive(1, message(1, 2, 5, 0, 3, 0), 10)
    one.wake(110)
    one.receive(1, null(6, 0, 5, 0, seq=2), 120)
    one.known.next_block(130)
    assert one.known.arrivals.settled[1] == 6


def test_a_gap_that_closes_in_time_is_not_skipped() -> None:
    one = blocks(skip_after_ns=100)
    one.receive(1, message(1, 2, 5, 0, 3, 0), 10)
    assert ups(one.receive(1, message(1, 1, 3, 0, 0, 0), 50)) == [Deliver(1, 1, b"m"), Deliver(1, 2, b"m")]
    assert one.lifetimes.deadline is None
    assert ups(one.wake(200)) == []
    one.receive(1, message(1, 4, 9, 0, 7, 0), 300)
    assert one.lifetimes.deadline == 400, "the next gap has its own time"


def test_the_first_of_two_gaps_is_watched_first_and_each_has_its_time() -> None:
    one = blocks(skip_after_ns=100)
    one.receive(1, message(1, 2, 5, 0, 3, 0), 10)
    one.receive(2, message(2, 2, 6, 0, 0, 4), 30)
    one.receive(1, message(1, 4, 9, 0, 7, 0), 40)
    assert one.lifetimes.deadline == 110
    assert ups(one.wake(110)) == [Drop("expired", 1, 1), Deliver(1, 2, b"m")]
    assert one.lifetimes.deadline == 130
    assert ups(one.wake(130)) == [Drop("expired", 2, 1), Deliver(2, 2, b"m")]


def test_a_gap_waits_for_its_causal_past() -> None:
    one = blocks(skip_after_ns=100)
    one.receive(1, message(1, 2, 5, 0, 3, 2), 10)  # after 2's message of block 2, too
    one.receive(2, null(7, 0, 0, 0, seq=1), 10)
    assert ups(one.wake(110)) == []
    assert ups(one.receive(2, message(2, 1, 2, 0, 0, 0), 150)) == [
        Deliver(2, 1, b"m"),
        Drop("expired", 1, 1),
        Deliver(1, 2, b"m"),
    ]


def test_with_lag_a_message_that_was_delivered_and_has_expired_keeps_its_stamps_only() -> None:
    one = blocks(lag=4, window=2)
    one.submit(Submit(b"mine", lifetime_ns=100), 1, 10)
    assert one.lifetimes.deadline is None, "there is room in the window"
    one.submit(Submit(b"too", lifetime_ns=100), 2, 20)
    assert not one.may_submit(0)
    assert one.lifetimes.deadline == 110
    one.wake(109)
    assert not one.may_submit(0)
    one.wake(110)
    assert one.may_submit(0)
    first = one.known.BM[0].at(0)
    assert first is not None
    assert (first.whole, first.lapsed, first.message.payload, first.sendable) == (False, True, b"", True)
    assert one.known.lapsed[0] == 1
    assert one.held == 2
    one.wake(120)
    assert one.known.lapsed[0] == 2


def test_what_waits_for_its_turn_does_not_lapse() -> None:
    """Of what this member has not delivered nobody may be told that there is nothing to wait for."""
    one = blocks(lag=4, window=2)
    one.receive(1, message(1, 2, 5, 0, 3, 0, life_ns=100), 10)
    one.wake(200)
    entry = one.known.BM[1].get(5)
    assert entry is not None
    assert (entry.passed, entry.lapsed, one.known.lapsed[1]) == (False, False, 0)


def test_without_lag_nothing_lapses() -> None:
    one = blocks(window=1)
    one.submit(Submit(b"mine", lifetime_ns=100), 1, 10)
    one.wake(500)
    assert one.known.lapsed[0] == 0
    assert one.lifetimes.deadline is None


def test_a_copy_has_the_lifetime_that_is_left_and_no_payload_without_one() -> None:
    one = blocks()
    one.receive(1, message(1, 1, 3, 0, 0, 0, life_ns=100), 10)
    entry = one.known.BM[1].get(3)
    assert entry is not None
    for now, left, payload in ((10, 100, b"m"), (109, 1, b"m"), (110, 0, b""), (200, 0, b"")):
        assert (entry.copy(now).life_ns, entry.copy(now).payload) == (left, payload)
    entry.discard = "expired"
    assert (entry.copy(20).life_ns, entry.copy(20).payload) == (0, b""), "whoever has discarded it has no payload"


def test_a_copy_without_life_says_that_there_is_nothing_to_wait_for() -> None:
    one = blocks()
    assert ups(one.receive(1, message(1, 1, 3, 0, 0, 0, life_ns=0, payload=b""), 10)) == [Drop("expired", 1, 1)]
    assert ups(one.receive(1, message(1, 2, 5, 0, 3, 0), 20)) == [Deliver(1, 2, b"m")]


def test_a_message_that_was_shed_is_taken_again_or_heard_to_have_expired() -> None:
    for life_ns, end in ((None, Deliver(1, 2, b"m")), (0, Drop("expired", 1, 2))):
        one = blocks(buffer=1)
        one.receive(1, message(1, 2, 5, 0, 3, 0), 10)
        entry = one.known.BM[1].get(5)
        assert entry is not None
        entry.strip()
        assert ups(one.receive(1, message(1, 1, 3, 0, 0, 0), 20))[:1] == [Deliver(1, 1, b"m")]
        assert not entry.passed
        copy = message(1, 2, 5, 0, 3, 0, life_ns=life_ns, payload=b"m" if life_ns is None else b"")
        assert ups(one.receive(1, copy, 30)) == [end]


def test_of_what_another_has_discarded_no_payload_is_kept_when_a_view_ends() -> None:
    one = blocks()
    one.adopt(1, message(1, 1, 3, 0, 0, 0, life_ns=0, payload=b""))
    entry = one.known.BM[1].get(3)
    assert entry is not None
    assert (entry.whole, entry.discard) == (False, "expired")
    assert one.finish([0, 3, 0], b"").up == [Drop("expired", 1, 1)]


def test_what_is_discarded_here_stays_so_when_another_has_it_whole() -> None:
    """Of two that go on together one would otherwise hand on what the other says is gone."""
    one = blocks()
    one.adopt(1, message(1, 1, 3, 0, 0, 0, life_ns=0, payload=b""))
    one.adopt(1, message(1, 1, 3, 0, 0, 0))
    ((_, copy),) = one.copies(1, 0, 3)
    assert isinstance(copy, BlockMessage)
    assert (copy.life_ns, copy.payload) == (0, b"")
    assert one.finish([0, 3, 0], b"").up == [Drop("expired", 1, 1)]


def test_there_are_no_streams_to_take_a_message_from() -> None:
    with pytest.raises(Malformed, match="unexpected"):
        blocks().accept(1, Data(number=1, seq=1, payload=b""), 0)


def test_nothing_is_remembered_of_messages_that_came_early_once_the_gap_has_closed() -> None:
    arrivals = blocks().known.arrivals
    for number in (3, 2, 5, 1):
        arrivals.came(1, number)
    assert arrivals._early[1] == {5}


def test_what_was_delivered_comes_again_in_vain() -> None:
    one = blocks()
    one.receive(1, message(1, 1, 3, 0, 0, 0), 10)
    assert ups(one.receive(2, message(1, 1, 3, 0, 0, 0), 20)) == [Duplicate(1, 1)]


@pytest.mark.parametrize("sender", [3, 9])
def test_a_message_of_nobody_is_refused(sender: int) -> None:
    with pytest.raises(Malformed, match="impossible-sender"):
        blocks().receive(1, message(sender, 1, 3, 0, 0, 0), 10)


# Repairs


def test_what_waits_for_another_is_passed_over_and_what_does_not_is_named() -> None:
    """2 has delivered nothing; of 1's message it could not make anything before one that is not kept here."""
    one = blocks(4)
    one.receive(1, message(1, 1, 1, 0, 0, 0, 0), 10)
    one.receive(3, message(3, 1, 2, 0, 0, 0, 0), 10)
    known = one.known
    waiting, other = known.BM[1].get(1), known.BM[3].get(2)
    assert waiting is not None
    assert other is not None
    waiting.ldv = [7, 0, 0, 0]
    named = list(one.repair.retransmission_condition(2, 9, (1, 3)))
    assert named == [other]
    waiting.ldv, other.ldv = [0, 0, 0, 0], [0, 1, 0, 0]
    assert list(one.repair.retransmission_condition(2, 9, (1, 3))) == [waiting], "what follows may wait there already"
    one.repair.hear_null(2, null(8, 0, 0, 0, 0, told=9))
    assert list(one.repair.retransmission_condition(2, 9, (1, 3))) == [waiting, other], "its null told otherwise"
    one.repair.hear_null(2, null(8, 0, 0, 0, 0, told=2))
    assert list(one.repair.retransmission_condition(2, 9, (1, 3))) == [waiting], "it told only of what is below"
    one.repair.hear_null(2, null(8, 0, 0, 0, 0, told=9, early=[(3, 1)]))
    assert list(one.repair.retransmission_condition(2, 9, (1, 3))) == [waiting]


def test_messages_are_named_in_the_order_of_their_blocks_whoever_sent_them() -> None:
    """1's message follows one of 3, which is looked at later if senders are gone through one after the other."""
    one = blocks(4)
    one.receive(3, message(3, 1, 1, 0, 0, 0, 0), 10)
    one.receive(1, message(1, 1, 2, 0, 0, 0, 1), 10)
    one.repair.hear_null(2, null(8, 0, 0, 0, 0, told=9))
    named = [entry.message.sender for entry in one.repair.retransmission_condition(2, 9, (1, 3))]
    assert named == [3, 1]


def test_what_follows_a_members_own_message_is_certainly_missing_there() -> None:
    one = blocks(4)
    one.receive(1, message(1, 1, 6, 0, 0, 0, 0), 10)
    entry = one.known.BM[1].get(6)
    assert entry is not None
    entry.ldv = [0, 0, 5, 0]
    assert list(one.repair.retransmission_condition(2, 9, (1,))) == []
    one.known.arrivals.highest[2] = 5
    assert list(one.repair.retransmission_condition(2, 9, (1,))) == [entry]


def test_a_round_trip_ends_with_either_word_that_ones_messages_are_there() -> None:
    known = blocks().known
    known.hear(Stamps(1, 3, 2, [1, 0, 0], 0, 0), 10, Step([], []))
    assert known.trips.reached[1] == 2
    known.hear(Stamps(1, 4, 2, [3, 0, 0], 0, 0), 20, Step([], []))
    assert known.trips.reached[1] == 3


def test_those_lag_who_are_not_known_to_have_delivered_what_is_kept_here() -> None:
    one = blocks(4)
    one.receive(1, message(1, 1, 1, 0, 0, 0, 0), 10)
    assert one.known.lag() == {2: 1, 3: 1}


def test_who_sends_while_something_waits_here_tells_that_by_a_null_before_long() -> None:
    one = blocks(4, silence_ns=100)
    silence = one.silence
    silence.sent_message(5_000)
    assert silence._since == 5_000
    one.receive(1, message(1, 2, 2, 0, 1, 0, 0), 5_010)
    assert silence.delivery.buffer.waiting
    silence.sent_message(6_000)
    assert silence._since < 6_000, "what waits here only nulls tell"
    silence._null_at = 6_500
    silence.sent_message(6_501)
    assert silence._since == 6_501, "a null has just told it"


def test_a_member_never_lacks_its_own_and_so_many_are_named_at_most() -> None:
    one = blocks(burst=2)
    for seq in (1, 2, 3):
        one.receive(1, message(1, seq, seq, 0, seq - 1, 0), 10)
    one.repair.hear_null(2, null(8, 0, 0, 0, told=9))
    seqs = [entry.message.seq for entry in one.repair.retransmission_condition(2, 9, (1,))]
    assert seqs == [1, 2]
    assert list(one.repair.retransmission_condition(1, 9, (1,))) == []
    assert [entry.message.seq for entry in one.repair.retransmission_condition(2, 2, (1,))] == [1], "below"


def test_a_loss_is_repaired_by_the_sender_soon_and_not_again_before_the_copy_had_time() -> None:
    one = blocks(chance=Most(), repair_delay_ns=10, silence_ns=100)
    one.submit(Submit(b"mine"), 1, 0)
    one.receive(1, null(5, 0, 0, 0, mb=4), 50)
    assert one.repair.deadline == 60
    assert repairs(one.wake(59)) == []
    (repair,) = repairs(one.wake(60))
    assert (repair.to, repair.sender, repair.seq) == ((1,), 0, 1)
    one.receive(1, null(6, 0, 0, 0, mb=5), 70)
    lack = one.repair.lacks[1][1, 0]
    assert lack.copies == 1
    assert lack.at is not None
    assert lack.at > 70 + 10
    one.receive(2, message(0, 1, 1, 0, 0, 0), 80)
    assert lack.copies == 2, "a copy that another sent counts like one's own"
    assert not lack.named


def test_a_copy_that_another_sent_is_counted_for_all_who_lack_the_message() -> None:
    one = blocks(4, chance=Most(), repair_delay_ns=10, silence_ns=100)
    one.receive(1, message(1, 1, 1, 0, 0, 0, 0), 0)
    for member in (2, 3):
        one.receive(member, null(5, 0, 0, 0, 0, mb=4), 50)
    one.receive(2, message(1, 1, 1, 0, 0, 0, 0), 60)
    assert [one.repair.lacks[member][1, 1].copies for member in (2, 3)] == [1, 1]


def test_what_is_repaired_in_vain_is_repaired_less_and_less_often() -> None:
    one = blocks(silence_ns=100)
    one.submit(Submit(b"mine"), 1, 0)
    one.receive(1, null(5, 0, 0, 0, mb=4), 50)
    lack = one.repair.lacks[1][1, 0]
    pause = one.repair.pause_ns(1, 1_000)
    for copies, doublings in ((1, 0), (COPIES_AT_ONCE, 0), (COPIES_AT_ONCE + 2, 2), (99, DOUBLINGS_MAX)):
        lack.copies = copies
        one.repair.suppress(lack, 1_000)
        assert lack.at == 1_000 + (pause << doublings)


def test_a_large_copy_goes_again_only_when_what_left_after_it_has_come_without_it() -> None:
    one = blocks(2, repair_delay_ns=1, silence_ns=100, silence_ns_max=10_000)
    one.submit(Submit(bytes(CHEAP_BYTES + 1)), 1, 0)
    block = one.known.BC
    one.receive(1, null(block + 4, 0, 0, mb=block + 3), 50)
    for _ in range(3):
        one.silence._pause.grow()
    (copy,) = repairs(one.wake(60))
    assert (copy.to, copy.seq) == (None, 1)
    assert one.silence.pause_ns() == 100, "what tells whether it came goes soon"
    behind = one.known.BC
    for later in range(1, 50):  # words that say nothing of what left after the copy
        one.receive(1, null(block + 4 + later, 0, 0, mb=behind), 60 + 1_000 * later)
        assert repairs(one.wake(60 + 1_000 * later)) == []
    one.receive(1, null(block + 60, 0, 0, mb=behind + 1), 60_000)
    assert len(repairs(one.wake(60_100))) == 1


def test_a_small_copy_goes_again_after_a_pause() -> None:
    one = blocks(2, repair_delay_ns=1, silence_ns=100)
    one.submit(Submit(bytes(CHEAP_BYTES)), 1, 0)
    one.receive(1, null(5, 0, 0, mb=4), 50)
    assert len(repairs(one.wake(60))) == 1
    one.receive(1, null(6, 0, 0, mb=4), 10_000)
    assert len(repairs(one.wake(10_100))) == 1


def test_a_message_of_another_is_repaired_by_who_keeps_it_only_if_the_sender_did_not_help() -> None:
    one = blocks(4, chance=Most(), repair_delay_ns=10, silence_ns=100)
    one.receive(1, message(1, 1, 1, 0, 0, 0, 0), 0)
    one.receive(2, null(5, 0, 0, 0, 0, mb=4), 50)
    lack = one.repair.lacks[2][1, 1]
    assert lack.at is None, "not before its next word"
    assert one.repair.first_delay_ns(lack, 10_000) is None
    one.known.arrivals.highest[2] += 1
    assert one.repair.first_delay_ns(lack, lack.help_after - 1) is None
    delay = one.repair.first_delay_ns(lack, lack.help_after)
    holders = 4 - lack.entry.missing
    assert delay == 10 + holders * one.repair.pause_ns(2, lack.help_after) // 2


def test_a_repair_goes_to_all_where_all_lack_it() -> None:
    one = blocks(4)
    assert one.repair.targets([1, 2]) == (1, 2)
    assert one.repair.targets([1, 2, 3]) is None


def test_no_more_than_a_burst_is_sent_again_at_a_time() -> None:
    one = blocks(burst=2, silence_ns=100)
    for seq in (1, 2, 3):
        one.submit(Submit(b"mine"), seq, 0)
    one.receive(1, null(9, 0, 0, 0, mb=8, told=9), 50)
    at = one.repair.deadline
    assert at is not None
    assert len(repairs(one.wake(at))) == 2


def test_what_a_member_has_delivered_meanwhile_is_not_sent_again() -> None:
    one = blocks(repair_delay_ns=10, silence_ns=100, chance=Most())
    one.submit(Submit(b"mine"), 1, 0)
    one.receive(1, null(5, 0, 0, 0, mb=4), 50)
    one.receive(1, null(6, 1, 0, 0, mb=5), 55)
    assert one.repair.lacks == {}
    assert repairs(one.wake(60)) == []


def test_all_are_looked_at_from_time_to_time_and_else_those_who_have_come_further() -> None:
    one = blocks(4, silence_ns=100)
    one.repair._look_at = 50
    assert list(one.repair.trigger(50)) == [0, 1, 2, 3]
    one.known.MBV[2] = 7
    assert list(one.repair.trigger(49)) == [2]


def test_the_next_block_above_another_is_found_or_there_is_none() -> None:
    one = blocks()
    for seq, block in ((1, 2), (2, 5)):
        one.receive(1, message(1, seq, block, 0, 2 if seq > 1 else 0, 0), 10)
    column = one.known.BM[1]
    assert [column.next_above(block) for block in (0, 2, 4)] == [2, 5, 5]
    assert column.next_above(5) > BLOCK_MAX


# Silence


def test_many_members_are_silent_for_longer() -> None:
    options = CausalBlocksOptions(silence_ns=100)
    assert options.crowded_ns(40) == 100 * 40 // UNCROWDED
    assert options.look_ns(1) == 50
    assert options.look_ns(1_000) == options.crowded_ns(1_000)
    assert [options.gathers_ns(size, several=True) for size in (8, 9, 32, 40)] == [0, 9, 32, 60]
    assert [options.gathers_ns(size, several=False) for size in (8, 9, 32, 40)] == [0, 0, 28, 60]


def test_several_senders_are_told_with_one_word_and_one_alone_at_once() -> None:
    one = blocks(16, silence_ns=100, window=1, lag=1)
    nothing = [0] * 16
    assert len(one.receive(1, message(1, 1, 2, *nothing), 1_000).down) == 1
    assert len(one.receive(1, message(1, 2, 3, 0, 2, *nothing[2:]), 1_001).down) == 1
    assert one.receive(2, message(2, 1, 4, *nothing), 1_002).down == []
    assert one.receive(3, message(3, 1, 5, *nothing), 1_003).down == []
    assert one.deadline == 1_001 + 16
    assert len(one.wake(1_001 + 16).down) == 1


def test_where_news_takes_long_nobody_speaks_more_often_than_four_times_in_that() -> None:
    for always in (False, True):
        one = blocks(4, silence_ns=100, always=always)
        assert one.silence.pause_ns() == 100
        one.known.trips.measured(1, 4_000)
        assert one.silence.pause_ns() == 1_000


def test_a_member_that_becomes_restless_counts_its_silence_from_then() -> None:
    one = blocks(4, silence_ns=100)
    one.receive(1, message(1, 1, 1, 0, 0, 0, 0), 5_000)
    assert one.silence.deadline == 5_000 + one.silence.pause_ns()
    one.receive(1, message(1, 2, 2, 0, 1, 0, 0), 5_050)
    assert one.silence.deadline == 5_000 + one.silence.pause_ns(), "it is not put off"


def test_round_trips_are_measured_as_long_as_something_is_under_way() -> None:
    one = blocks(2, silence_ns=1_000)
    one.submit(Submit(b"m"), 1, 100)
    one.receive(1, null(1, 0, 0), 200)  # it says nothing new, and much is still unstable
    one.receive(1, null(2, 1, 0, seq=1), 300)
    assert one.known.trips.shortest_ns == 200


def test_who_has_delivered_half_a_window_says_so_at_once() -> None:
    one = blocks(4, window=4, silence_ns=100)
    said = [
        sum(isinstance(out.pdu, NullBlock) for out in one.receive(1, message(1, seq, seq, 0, seq - 1, 0, 0), 10).down)  # type: ignore[union-attr]
        for seq in (1, 2, 3)
    ]
    assert said == [0, 0, 1]


def test_a_question_is_answered_by_who_is_quiet_within_a_random_time() -> None:
    one = blocks(chance=Most(), repair_delay_ns=10)
    one.receive(1, null(5, 0, 0, 0, asking=True), 50)
    one.receive(1, null(6, 0, 0, 0, asking=True), 55)
    assert one.silence.deadline == 60
    assert one.wake(59).down == []
    (answer,) = one.wake(60).down
    assert isinstance(answer, Out)
    assert isinstance(answer.pdu, NullBlock)
    assert (answer.to, answer.pdu.asking) == ((1,), False)
    assert one.silence.deadline is None
