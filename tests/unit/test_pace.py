"""How long what a member has to say gathers, and how much longer it waits for answers then."""

from __future__ import annotations

import random

import pytest

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.pace import Pace
from antiphon.protocol.parts import Out, PartContext
from antiphon.protocol.recovery import Nack, Recovery, RecoveryOptions
from antiphon.protocol.stability.vector_ack import ReportOptions, VectorAck
from antiphon.protocol.wire import Data

PACKETS = 16  # of a word to all; with so many, the pace follows the lateness one to one


def paced(ns: int, size: int = PACKETS + 1) -> Pace:
    pace = Pace(size)
    pace.ns = ns
    return pace


def woken(pace: Pace, late_ns: int) -> int:
    pace.woken(late_ns)
    return pace.ns


def test_nothing_gathers_until_the_timer_is_more_than_ten_milliseconds_late() -> None:
    pace = Pace(PACKETS + 1)
    assert (pace.ns, pace.next_at, pace.answer_ns) == (0, None, 0)
    assert woken(pace, 10 * MILLISECOND) == 0
    assert woken(pace, 10 * MILLISECOND + 8) == 1


@pytest.mark.parametrize(("packets", "gathers_ns"), [(16, 1_000_000), (32, 2_000_000), (8, 500_000)])
def test_an_eighth_of_the_lateness_is_added_in_proportion_to_the_packets_of_a_word(
    packets: int, gathers_ns: int
) -> None:
    assert woken(Pace(packets + 1), 18 * MILLISECOND) == gathers_ns


def test_each_late_wake_adds_to_what_gathers_and_one_in_time_takes_away() -> None:
    pace = Pace(PACKETS + 1)
    assert [woken(pace, late * MILLISECOND) for late in (18, 26, 10, 2, 0)] == [
        1_000_000,
        3_000_000,
        3_000_000,
        2_000_000,
        750_000,
    ]
    assert woken(pace, 0) == 0, "it never falls below nothing"


def test_who_was_stopped_is_not_taken_for_one_that_has_too_much_to_do() -> None:
    assert woken(Pace(PACKETS + 1), 3_600 * SECOND) == woken(Pace(PACKETS + 1), 200 * MILLISECOND) == 23_750_000


@pytest.mark.parametrize("size", [2, 17, 64])
def test_eight_milliseconds_for_each_packet_of_a_word_are_the_most(size: int) -> None:
    pace = Pace(size)
    for _ in range(200):
        pace.woken(200 * MILLISECOND)
    assert pace.ns == 8 * MILLISECOND * (size - 1)


def test_a_view_goes_on_with_the_pace_of_the_one_before_as_far_as_its_size_allows() -> None:
    large, small = Pace(17), Pace(2)
    large.carry_over(paced(50 * MILLISECOND))
    small.carry_over(paced(50 * MILLISECOND))
    assert (large.ns, small.ns) == (50 * MILLISECOND, 8 * MILLISECOND)


def test_the_next_word_may_be_said_when_enough_time_has_gone_by_since_the_last() -> None:
    pace = paced(5)
    pace.spoke(100)
    assert pace.next_at == 105
    assert pace.gathers(0, 104)
    assert not pace.gathers(0, 105)
    pace.ns = 0
    pace.spoke(200)
    assert pace.next_at is None
    assert not pace.gathers(0, 0)


def test_what_fills_a_packet_does_not_gather_any_longer() -> None:
    pace = paced(5)
    pace.spoke(100)
    assert pace.gathers(8_192, 101)
    assert not pace.gathers(8_193, 101)


# Who asks for what does not come waits for the answer as much longer as it takes where all gather


@pytest.mark.parametrize("pace_ns", [0, 7 * MILLISECOND])
def test_recovery_repeats_a_request_later_by_three_times_the_pace(pace_ns: int) -> None:
    options = RecoveryOptions(adaptive=False)
    context = PartContext(1, 3, random.Random(0), pace=paced(pace_ns))
    recovery = Recovery(context, 8, options)
    recovery.receive(0, Data(number=2, seq=2), 0)
    assert recovery.deadline == options.nack_delay_ns, "the first request is no later: there is a gap"
    ask = Out(Nack([(1, 1)]), (0,))
    longest, now = options.nack_retry_ns_max + 3 * pace_ns, options.nack_delay_ns
    pause = options.nack_retry_ns + 3 * pace_ns
    for _ in range(12):
        assert recovery.wake(now).down == [ask]
        assert recovery.deadline is not None
        assert pause <= recovery.deadline - now <= 3 * pause // 2
        pause, now = min(2 * pause, longest), recovery.deadline
    assert pause == longest


def test_recovery_does_not_ask_again_before_an_answer_can_have_come() -> None:
    pace = paced(SECOND)
    recovery = Recovery(PartContext(1, 3, random.Random(0), pace=pace), 8, RecoveryOptions(adaptive=False))
    recovery.receive(0, Data(number=2, seq=2), 0)
    assert recovery.deadline is not None
    asked = recovery.deadline
    recovery.wake(asked)
    assert recovery.deadline - asked >= 3 * SECOND


@pytest.mark.parametrize("pace_ns", [0, 7 * MILLISECOND])
def test_reports_are_asked_for_three_intervals_and_three_times_the_pace_after_what_is_waited_for(pace_ns: int) -> None:
    options = ReportOptions()
    part = VectorAck(PartContext(1, 3, random.Random(0), pace=paced(pace_ns)), options)
    part.advanced(1, Data(number=1, seq=1), [0, 1, 0], 0)
    asked_at, now = None, 0
    while asked_at is None:
        assert part.deadline is not None
        now = part.deadline
        if any(out.to for out in part.wake(now).down):
            asked_at = now
    assert asked_at == 3 * options.interval_ns + 3 * pace_ns
