"""Timestamp acknowledgments rule by rule, and the minimum that they stand on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.parts import Frontier, Out, PartContext, Step
from antiphon.protocol.stability.minimum import Minimum
from antiphon.protocol.stability.timestamp_ack import Ack, NullMessage, TimestampAck, _Duty
from antiphon.protocol.wire import Data, Malformed, Pdu
from antiphon.sim.cluster import simulate
from antiphon.sim.scenario import Scenario, Workload

MS = MILLISECOND


def part(rank: int = 0, size: int = 3, **options: Any) -> TimestampAck:
    return TimestampAck(PartContext(rank, size, random.Random(0)), TimestampAck.Options(**options))


def message(number: int, stamp: int) -> Data:
    return Data(number=number, stamp=stamp, seq=number, payload=b"")


def send(one: TimestampAck, rank: int, number: int, now: int) -> Data:
    sent = message(number, one.stamp(now))
    one.advanced(rank, sent, [], now)
    return sent


def said(step: Step) -> list[Pdu]:
    return [item.pdu for item in step.down if isinstance(item, Out)]


def frontier(step: Step) -> tuple[int, ...] | None:
    return next((up.numbers for up in step.up if isinstance(up, Frontier)), None)


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)


@pytest.mark.parametrize(("n", "at_most"), [(100, 8), (1_000, 11), (10_000, 15)])
def test_acknowledgments_in_cyclic_order_visit_a_logarithm_of_the_entries(n: int, at_most: int) -> None:
    least = Minimum([Counted(0) for _ in range(n)])
    for index in range(n):
        least.put(index, Counted(index + 1))
    Counted.compared = 0
    for turn in range(3 * n):  # the worst case for looking through all: the least is always the one that changes
        least.put(turn % n, Counted(n + turn + 1))
        assert least.least == turn + 2
    assert Counted.compared / (3 * n) <= at_most


def test_a_change_that_does_not_touch_the_least_stops_early() -> None:
    n = 1024
    least = Minimum([Counted(0) for _ in range(n)])
    Counted.compared = 0
    for index in range(0, n - 1, 2):
        least.put(index + 1, Counted(5))  # its neighbour is still lower
    assert Counted.compared == n // 2


def test_the_least_equals_the_plain_minimum() -> None:
    rng = random.Random(1)
    for size in (*range(1, 20), 100):
        values = [rng.randrange(50) for _ in range(size)]
        least = Minimum(values)
        for _ in range(200):
            index = rng.randrange(size)
            values[index] = rng.randrange(50)
            least.put(index, values[index])
            assert least.least == min(values)
            assert least[index] == values[index]


def test_stamps_rise_strictly_even_where_the_clock_stands_still() -> None:
    for clock in ("physical", "logical", "hybrid"):
        one = part(clock=clock)
        stamps = [one.stamp(0) for _ in range(3)] + [one.stamp(-5)]
        assert stamps[0] > 0
        assert stamps == sorted(set(stamps))


def test_a_message_is_acknowledged_only_when_everyone_was_heard_as_late_as_it() -> None:
    one = part(rank=0)
    one.advanced(1, message(1, 20 * MS), [], 21 * MS)
    acks = [pdu for pdu in said(one.wake(31 * MS)) if isinstance(pdu, Ack)]
    assert [ack.held for ack in acks] == [0]  # nothing was heard from member 2
    one.receive(2, NullMessage(25 * MS, 0), 32 * MS)
    acks = [pdu for pdu in said(one.wake(60 * MS)) if isinstance(pdu, Ack)]
    assert [ack.held for ack in acks] == [20 * MS]


def test_a_null_message_waits_for_the_stream_to_reach_its_number() -> None:
    one = part(rank=0, size=2)
    send(one, 0, 1, 10 * MS)
    one.receive(1, NullMessage(50 * MS, 2), 51 * MS)
    assert one.heard.least == 0
    one.advanced(1, message(1, 30 * MS), [], 52 * MS)
    assert one.heard.least == 30 * MS
    one.advanced(1, message(2, 40 * MS), [], 53 * MS)
    assert one.heard.least == 50 * MS


def test_everyones_messages_become_stable_with_ones_own() -> None:
    one = part(rank=0)
    send(one, 0, 1, 10 * MS)
    one.advanced(1, message(1, 12 * MS), [], 13 * MS)
    one.receive(2, NullMessage(30 * MS, 0), 31 * MS)
    one.receive(1, NullMessage(30 * MS, 1), 31 * MS)
    one.wake(40 * MS)  # its own null message raises its stamps too
    assert frontier(one.receive(1, Ack(12 * MS), 41 * MS)) is None
    assert frontier(one.receive(2, Ack(12 * MS), 42 * MS)) == (1, 1, 0)
    assert one.deadline is None


def test_acknowledgments_may_come_late_doubled_and_out_of_order() -> None:
    one = part(rank=0, size=2)
    for number, now in ((1, 10 * MS), (2, 20 * MS)):
        send(one, 0, number, now)
    one.receive(1, NullMessage(90 * MS, 0), 91 * MS)
    assert frontier(one.receive(1, Ack(20 * MS), 92 * MS)) == (2, 0)
    for _ in range(2):
        assert frontier(one.receive(1, Ack(10 * MS), 93 * MS)) is None


def test_one_that_lacks_nothing_is_silent_and_answers_who_asks() -> None:
    one = part(rank=0, size=2)
    assert one.deadline is None
    assert said(one.receive(1, Ack(0), 5 * MS)) == []
    assert said(one.receive(1, Ack(0, asked=1), 5 * MS)) == []  # the answer waits for a random moment
    assert one.deadline is not None
    step = one.wake(one.deadline)
    assert [type(pdu) for pdu in said(step)] == [Ack, NullMessage]
    assert all(isinstance(item, Out) and item.to == (1,) for item in step.down)
    assert one.deadline is None


def test_each_of_several_who_ask_is_answered_at_its_own_moment() -> None:
    one = part(rank=0, size=3)
    for source in (1, 2):
        one.receive(source, Ack(0, asked=1), 5 * MS)
    answered = []
    while one.deadline is not None:
        answered.append({item.to for item in one.wake(one.deadline).down if isinstance(item, Out)})
    assert sorted(answered, key=str) == [{(1,)}, {(2,)}]


def test_what_is_only_said_again_is_said_less_and_less_often() -> None:
    one = part(rank=0, size=2, pause_ns_max=200 * MS)
    send(one, 0, 1, 10 * MS)
    times = []
    for _ in range(40):
        assert one.deadline is not None
        step = one.wake(one.deadline)
        if any(isinstance(pdu, Ack) for pdu in said(step)):
            times.append(one.deadline)
    assert times[-1] - times[-2] <= 1.5 * 200 * MS
    assert times[1] - times[0] < times[-1] - times[-2]


def test_a_slow_clock_goes_on_stamping_until_it_has_passed_the_goal() -> None:
    one = part(rank=0, size=2)
    one.advanced(1, message(1, 100 * MS), [], 1 * MS)  # a stamp from a clock that is 99 ms ahead
    stamps, now = [], 1 * MS
    while not stamps or stamps[-1] < 100 * MS:
        assert one.deadline is not None
        now = max(now, one.deadline)
        stamps += [pdu.stamp for pdu in said(one.wake(now)) if isinstance(pdu, NullMessage)]
    assert now <= 111 * MS  # not later than one period after its clock came to it


@pytest.mark.parametrize("clock", ["logical", "hybrid"])
def test_clocks_that_follow_pass_the_goal_at_once(clock: str) -> None:
    one = part(rank=0, size=2, clock=clock)
    one.advanced(1, message(1, 100 * MS), [], 1 * MS)
    assert one.deadline is not None
    stamps = [pdu.stamp for pdu in said(one.wake(one.deadline)) if isinstance(pdu, NullMessage)]
    assert stamps == [100 * MS + 1]


def test_an_acknowledgment_carries_the_clock_where_clocks_follow() -> None:
    one = part(rank=0, size=2, clock="logical")
    one.receive(1, Ack(0, clock=7), 1 * MS)
    assert one.stamp(1 * MS) == 8
    assert one.ack_message(None).clock == 8
    physical = part(clock="physical")
    physical.stamp(5 * MS)
    assert physical.ack_message(None).clock == 0, "physical clocks follow nobody"


@pytest.mark.parametrize(
    ("nonsense", "reason"),
    [
        (Ack(11 * MS), "impossible-acknowledgment"),  # higher than any stamp of mine
        (NullMessage(90 * MS, 0), "broken-promise"),  # message 1 was stamped below, and is held here
        (Data(seq=1), "unexpected"),
    ],
)
def test_nonsense_changes_nothing(nonsense: Pdu, reason: str) -> None:
    one = part(rank=0, size=2)
    send(one, 0, 1, 10 * MS)
    one.advanced(1, message(1, 9 * MS), [], 12 * MS)
    before = (one.heard._tree[:], one.acks._tree[:], one.clock.last, one.deadline, dict(one.nulls))
    with pytest.raises(Malformed, match=reason):
        one.receive(1, nonsense, 13 * MS)
    assert before == (one.heard._tree, one.acks._tree, one.clock.last, one.deadline, one.nulls)


def test_a_repeated_stamp_never_makes_its_message_stable_by_itself() -> None:
    one = part(rank=0, size=2)
    one.advanced(1, message(1, 9 * MS), [], 10 * MS)
    assert one.advanced(1, message(2, 9 * MS), [], 10 * MS) == Step()
    assert frontier(one.advanced(1, message(3, 12 * MS), [], 13 * MS)) is None
    send(one, 0, 1, 20 * MS)
    assert frontier(one.receive(1, Ack(12 * MS), 14 * MS)) == (0, 3)


def test_it_says_who_holds_stability_back() -> None:
    one = part(rank=0, size=4)
    send(one, 0, 1, 10 * MS)
    one.advanced(1, message(1, 12 * MS), [], 13 * MS)
    one.receive(2, NullMessage(30 * MS, 0), 31 * MS)
    one.receive(3, Ack(10 * MS), 32 * MS)
    assert one.lag() == {1: None, 2: None, 3: 1}


def test_a_group_of_one_is_stable_at_once() -> None:
    run = simulate(Scenario.of("paper", members=1, messages=5, stability="timestamp-ack"), 1)
    assert run.finished
    assert run.stats["members"] == {}


def test_piggybacked_acknowledgments_need_fewer_datagrams() -> None:
    def datagrams(piggyback: bool) -> int:
        options = {"piggyback": piggyback, "t_ack_ns": 20 * MS, "t_send_ns": 20 * MS}
        scenario = Scenario.of(
            "paper",
            members=4,
            messages=60,
            stability="timestamp-ack",
            stability_options=options,
            workload=Workload(interval="fixed 10ms"),
        )
        run = simulate(scenario, 3)
        assert run.finished
        return int(run.stats["network"]["datagrams"])

    assert datagrams(True) < 0.75 * datagrams(False)


@pytest.mark.parametrize("key", ["t_send_ns", "t_ack_ns", "pause_ns_max"])
def test_a_period_of_nothing_is_refused(key: str) -> None:
    with pytest.raises(Exception, match=key):
        GroupOptions(stability="timestamp-ack", stability_options={key: 0}).check(3)


def test_an_acknowledgment_that_was_overtaken_lowers_nothing() -> None:
    """A later one says all that an earlier one said, so of two the higher counts, in whatever order they come."""
    one = part(0, 3)
    stamps = [send(one, 0, number, number * MS).stamp for number in (1, 2, 3)]
    for other in (1, 2):
        one.receive(other, NullMessage(stamps[2], 0), 3 * MS)
    one.receive(1, Ack(stamps[2]), 4 * MS)
    one.receive(1, Ack(stamps[0]), 5 * MS)
    assert one.acks[1] == stamps[2]
    assert frontier(one.receive(2, Ack(stamps[2]), 6 * MS)) == (3, 0, 0)


def pausing_part() -> tuple[TimestampAck, int]:
    """Return a part that has had nothing new to say for a while, and the instant of its last wake-up."""
    one, now = part(t_send_ns=SECOND, t_ack_ns=10, pause_ns_max=SECOND), 0
    send(one, 0, 1, 1)
    for _ in range(6):
        assert one.deadline is not None
        now = one.deadline
        one.wake(now)
    return one, now


def test_word_of_one_does_not_hurry_an_acknowledgment_that_waits_for_another() -> None:
    """What is acknowledged is the least of all that was heard: as long as that stands still there is no news."""
    one, now = pausing_part()
    before = one.deadline
    one.receive(1, NullMessage(5 * now, 0), now)
    assert one.deadline == before, "2 has not been heard"
    one.receive(2, NullMessage(6 * now, 0), now)
    assert one.deadline is not None
    assert before is not None
    assert one.deadline < before, "now there is something to acknowledge"


def test_new_messages_end_the_long_pauses() -> None:
    one, now = pausing_part()
    assert one.deadline is not None
    assert one.deadline > now + 100
    send(one, 0, 2, now + 1)
    assert one.deadline <= now + 15


def test_what_is_nearly_due_is_said_with_what_is_due_and_nothing_else() -> None:
    for t_ack_ns, kinds in ((25, [NullMessage]), (18, [NullMessage, Ack])):
        one = part(t_send_ns=10, t_ack_ns=t_ack_ns)
        send(one, 0, 1, 1)
        assert one.deadline == 11
        assert [type(pdu) for pdu in said(one.wake(11))] == kinds, "an acknowledgment is near after half its time"


class Least(random.Random):
    """Draws the least of what it may, so that pauses are exact."""

    def randrange(self, *bounds: Any) -> int:
        return 0


def test_what_is_said_again_is_said_ever_more_rarely_until_there_is_news() -> None:
    duty = _Duty(PartContext(0, 2, Least()), 10, 80)
    assert duty.due(3) == 3, "it was never said"
    for now, news, due in ((3, False, 23), (23, False, 63), (63, True, 73), (73, False, 93)):
        duty.done(now, news=news)
        assert duty.due(now) == due
    assert [duty.near(now) for now in (82, 83)] == [False, True]
