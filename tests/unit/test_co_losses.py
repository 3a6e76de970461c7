"""What CO asks for when: one request a source, sooner where something moves, later where it is in vain."""

from __future__ import annotations

import random
from typing import Any

import pytest

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.ordering.co.losses import Losses
from antiphon.protocol.ordering.co.pdus import RET_GAPS_MAX, CoOptions, CoRet
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import PartContext

MS = MILLISECOND
GRACE, RETRY = 5 * MS, 20 * MS


class Least(random.Random):
    """Draws the least of what it may, so that pauses are exact."""

    def randrange(self, *bounds: Any) -> int:
        return 0


class Member:
    """The losses of a member of some, of which 1 has sent nine PDUs and two have come."""

    def __init__(self, size: int = 3, **options: Any) -> None:
        self.options = CoOptions(**options)
        self.trips = RoundTrips(size, self.options.ret_retry_ns)
        self.losses = Losses(PartContext(0, size, Least()), self.options, self.trips)
        self.req = [1, 3, *[1] * (size - 2)]
        self.early: list[set[int]] = [set() for _ in range(size)]

    def notice(self, now: int, *, end: int = 10, source: int = 1, hearsay: bool = False) -> None:
        self.losses.notice(source, end, self.req[source], hearsay, now)

    def due(self, now: int, reach: int = 100) -> list[tuple[int, list[tuple[int, int]]]]:
        return self.losses.due(now, self.req, self.early, reach)

    def asks(self, number: int) -> list[int]:
        """Ask in vain so often; return the pauses before each next time."""
        pauses = []
        for _ in range(number):
            at = self.losses.deadline
            assert at is not None
            assert self.due(at)
            pauses.append(self.losses.requests[1].ask_at - at)
        return pauses


def test_a_gap_is_asked_for_after_a_grace_and_by_hearsay_after_a_round_trip() -> None:
    for hearsay, pause in ((False, GRACE), (True, RETRY)):
        one = Member()
        one.notice(100, hearsay=hearsay)
        assert one.losses.deadline == 100 + pause
        assert one.due(99 + pause) == []
        assert one.due(100 + pause) == [(1, [(3, 10)])]


def test_what_is_here_already_is_not_asked_for() -> None:
    one = Member()
    one.notice(0, end=3)
    one.notice(0, end=1, source=2)
    assert one.losses.deadline is None
    one.notice(0, end=4)
    assert one.losses.deadline == GRACE


def test_a_gap_that_is_seen_hastens_a_request_by_hearsay_unless_that_was_made() -> None:
    one = Member()
    one.notice(0, hearsay=True)
    one.notice(MS)
    assert one.losses.deadline == MS + GRACE * 5 // 4
    one.asks(1)
    later = one.losses.requests[1].ask_at
    one.notice(8 * MS)
    assert one.losses.requests[1].ask_at == later


def test_where_more_is_missing_each_gap_waits_longer() -> None:
    one = Member(6)
    for source in (1, 2, 3):
        one.notice(0, source=source)
    assert [request.ask_at for request in one.losses.requests.values()] == [GRACE, GRACE * 5 // 4, GRACE * 6 // 4]


def test_what_is_asked_for_in_vain_is_asked_for_at_once_a_few_times_and_then_less_and_less_often() -> None:
    one = Member()
    one.notice(0)
    assert [pause // RETRY for pause in one.asks(12)] == [1, 1, 1, 1, 1, 1, 2, 4, 8, 16, 32, 50]


def test_where_receivers_are_overrun_pauses_grow_sooner() -> None:
    """More than three of those who were asked have sent nothing."""
    one = Member(size=6)
    for source in range(1, 6):
        one.notice(0, source=source)
    assert [one.losses.retry_ns(1, tries, 0) // RETRY for tries in range(3, 8)] == [1, 1, 1, 2, 4]
    for _ in range(2):
        assert one.losses.deadline is not None
        assert len(one.due(one.losses.deadline)) == 5
    assert [one.losses.retry_ns(1, tries, 0) // RETRY for tries in range(3, 8)] == [1, 2, 4, 8, 16]


def test_progress_takes_one_vain_try_back_and_what_is_left_is_asked_for_soon() -> None:
    one = Member()
    one.notice(0)
    one.asks(8)
    request = one.losses.requests[1]
    assert (request.tries, request.ask_at - request.asked_at) == (8, 4 * RETRY)
    now = request.asked_at + MS
    one.losses.advanced(1, 5, now)
    assert (request.tries, request.ask_at) == (7, now + RETRY)
    one.losses.advanced(1, 6, now + RETRY)
    assert (request.tries, request.ask_at) == (6, now + RETRY), "not later than it was to be"
    one.losses.advanced(2, 9, now)
    assert 1 in one.losses.requests
    one.losses.advanced(1, 10, now)
    assert one.losses.requests == {}


def test_the_first_try_is_not_taken_back_further() -> None:
    one = Member()
    one.notice(0)
    one.losses.advanced(1, 4, 0)
    assert one.losses.requests[1].tries == 0


def test_answers_to_requests_tell_how_long_the_next_may_take() -> None:
    one = Member()
    one.notice(0)
    one.asks(1)
    asked_at = one.losses.requests[1].asked_at
    one.losses.came(1, 4, asked_at + 40 * MS)
    assert one.asks(1) == [RETRY], "it was the third that was asked for first"
    asked_at = one.losses.requests[1].asked_at
    one.losses.came(1, 3, asked_at + 40 * MS)
    assert one.asks(1) == [80 * MS], "twice the mean at most"


def test_pauses_grow_to_four_times_the_first_whatever_the_option_says() -> None:
    strict = Member(ret_retry_ns_max=RETRY)
    strict.notice(0)
    assert [pause // RETRY for pause in strict.asks(10)] == [1, 1, 1, 1, 1, 1, 2, 4, 4, 4]
    quick = Member(ret_retry_ns_max=RETRY)
    quick.notice(0)
    quick.asks(1)
    quick.losses.came(1, 3, quick.losses.requests[1].asked_at + 100 * MS)
    assert [pause // MS for pause in quick.asks(8)] == [200, 200, 200, 200, 200, 400, 800, 800]
    slow = Member()
    slow.notice(0)
    slow.asks(1)
    slow.losses.came(1, 3, slow.losses.requests[1].asked_at + 400 * MS)
    assert [pause // MS for pause in slow.asks(7)] == [800, 800, 800, 800, 800, 1_000, 1_000], "but not beyond a second"


def test_what_was_never_answered_is_asked_for_in_doubling_pauses_up_to_the_time_that_has_passed() -> None:
    one = Member()
    one.trips.sent(1, 0)
    one.notice(500 * MS)
    assert [pause // MS for pause in one.asks(4)] == [505, 40, 80, 160]
    request = one.losses.requests[1]
    now, request.ask_at = request.asked_at, request.asked_at + 9 * SECOND
    one.losses.advanced(1, 4, now)
    assert request.ask_at == now + min(now, SECOND), "as long as it has taken yet, a second at most"


def test_a_second_is_long_enough_before_asking_again_however_long_copies_take() -> None:
    one = Member()
    one.notice(0)
    one.asks(1)
    one.losses.came(1, 3, one.losses.requests[1].asked_at + 9 * SECOND)
    assert [pause // MS for pause in one.asks(8)] == [1_000] * 8
    patient = Member(ret_retry_ns=3 * SECOND, ret_retry_ns_max=3 * SECOND)
    patient.notice(0)
    assert patient.asks(3)[1:] == [3 * SECOND, 3 * SECOND], "but not less than was chosen"


def test_a_gap_is_given_as_long_as_what_is_overtaken_comes_late() -> None:
    one = Member(ret_grace_ns=5 * MS)
    assert one.losses.gap_grace_ns(1) == 5 * MS, "nothing was measured"
    one.notice(0)
    one.losses.came(1, 3, 30 * MS)
    assert one.losses.gap_grace_ns(1) == 5 * MS, "it may have been repaired for another"
    one.trips.measured(1, 100 * MS)
    assert one.losses.gap_grace_ns(1) == 25 * MS
    one.trips.measured(1, 8 * MS)
    assert one.losses.gap_grace_ns(1) == 5 * MS, "on quick links nothing is overtaken by more than a round trip"
    one.trips.measured(2, 100 * MS)
    assert one.losses.gap_grace_ns(2) == 5 * MS


def test_what_is_still_missing_when_the_mark_comes_is_asked_for_again() -> None:
    one = Member()
    one.notice(0)
    assert one.losses.ask_again(1, 3, (), 9, 0) == [], "it was not asked for yet"
    one.asks(1)
    request = one.losses.requests[1]
    now = request.asked_at + MS
    assert one.losses.ask_again(1, 3, (5,), 9, now) == [(3, 5), (6, 10)]
    assert (request.tries, request.asked_at, request.first) == (2, now, 3)
    assert request.ask_at == now + RETRY
    assert one.losses.ask_again(2, 1, (), 9, now) == []


def test_one_answer_is_measured_once() -> None:
    one = Member()
    one.notice(0)
    one.asks(1)
    asked_at = one.losses.requests[1].asked_at
    for late in (40, 900):
        one.losses.came(1, 3, asked_at + late * MS)
    assert one.asks(1) == [80 * MS]


def test_what_others_tell_of_is_given_as_long_as_it_usually_comes_late() -> None:
    one = Member()
    assert one.losses.hearsay_grace_ns(1, 0) == RETRY, "before anything came, a round trip"
    one.losses.came(1, 1, 0)
    assert one.losses.hearsay_grace_ns(1, 0) == GRACE, "it came before anybody told of it"
    late = Member()
    late.notice(SECOND, hearsay=True)
    late.losses.came(1, 3, SECOND + 4 * MS)
    assert late.losses.hearsay_grace_ns(1, 0) == 12 * MS, "the mean, and four times a spread of half of it"
    slow = Member()
    slow.notice(0, hearsay=True)
    slow.losses.came(1, 3, 19 * MS)
    assert slow.losses.hearsay_grace_ns(1, 0) == RETRY, "no more than a round trip"


def test_what_others_tell_of_is_given_as_long_as_a_repair_takes_at_most() -> None:
    one = Member()
    one.notice(0, hearsay=True)
    one.losses.came(1, 9, 900 * MS)
    one.asks(1)
    one.losses.came(1, 3, one.losses.requests[1].asked_at + 40 * MS)
    assert one.losses.hearsay_grace_ns(1, 0) == 80 * MS


def test_what_comes_sooner_than_an_answer_could_was_merely_late() -> None:
    for came, grace in ((MS, 18 * MS), (10 * MS - 1, 30 * MS), (10 * MS, 30 * MS)):
        one = Member()
        one.trips.measured(1, 10 * MS)
        one.notice(0)
        one.asks(1)
        request = one.losses.requests[1]
        assert request.asked_at == GRACE
        one.losses.came(1, 9, request.asked_at + came)
        assert one.losses.hearsay_grace_ns(1, 0) == grace
        assert (one.losses._lateness[1].mean_ns is None) == (came == 10 * MS)


def test_who_hears_another_ask_for_the_same_waits_for_the_answer() -> None:
    one = Member()
    one.notice(0)
    one.losses.postpone(1, 2 * MS)
    assert one.losses.deadline == 2 * MS + RETRY
    one.losses.postpone(1, MS)
    assert one.losses.deadline == 2 * MS + RETRY, "never sooner"
    one.losses.postpone(2, MS)
    assert 2 not in one.losses.requests


def test_all_whose_turn_is_near_are_asked_at_once_and_then_none_for_a_while() -> None:
    one = Member(6)
    for source, at in ((1, GRACE), (2, 2 * GRACE), (3, 2 * GRACE + 1)):
        one.notice(0, source=source)
        one.losses.requests[source].ask_at = at
    assert [source for source, _ in one.due(GRACE)] == [1, 2]
    one.losses.requests[1].ask_at = 0
    assert one.losses.deadline == 2 * GRACE


@pytest.mark.parametrize(("silent", "grows"), [(3, False), (4, True)])
def test_where_more_than_three_of_those_asked_say_nothing_the_quiet_time_grows(silent: int, grows: bool) -> None:
    one = Member(8)
    for source in range(1, silent + 1):
        one.notice(0, source=source)
    for request in one.losses.requests.values():
        request.ask_at = GRACE
    assert len(one.due(GRACE)) == silent
    assert (one.losses.quiet_ns() > GRACE) == grows


@pytest.mark.parametrize(("sources", "members"), [(1, 1), (3, 1), (4, 8)])
def test_who_waits_for_repairs_of_more_than_three_keeps_long_from_confirming(sources: int, members: int) -> None:
    one = Member(8)
    assert one.losses.spacing_ns() == 0, "nothing is missing"
    for source in range(1, sources + 1):
        one.notice(0, source=source)
    least, most = RETRY, RETRY * 3 // 2
    assert least <= one.losses.spacing_ns() <= most, "nothing was asked for in vain"
    for request in one.losses.requests.values():
        request.tries = 1
    assert least * members <= one.losses.spacing_ns() <= most * members


def test_answers_end_the_long_quiet_times() -> None:
    one = Member(8)
    for source in range(1, 5):
        one.notice(0, source=source)
    for request in one.losses.requests.values():
        request.ask_at = GRACE
    one.due(GRACE)
    assert one.losses.quiet_ns() > GRACE
    one.losses.came(1, one.losses.requests[1].first, 6 * MS)
    assert one.losses.quiet_ns() == GRACE, "three of four are silent, which may be chance"


def test_gaps_are_what_is_missing_within_reach() -> None:
    one = Member()
    one.notice(0, end=20)
    gaps = one.losses.gaps
    assert gaps(1, 3, {5, 6, 9}, 100) == [(3, 5), (7, 9), (10, 20)]
    assert gaps(1, 3, {3, 5, 19}, 100) == [(4, 5), (6, 19)]
    assert gaps(1, 3, {5}, 4) == [(3, 5), (6, 7)]
    one.notice(0, end=1_000)
    assert len(gaps(1, 3, range(3, 1_000, 2), 2_000)) == RET_GAPS_MAX


def test_a_request_is_divided_only_where_it_does_not_fit() -> None:
    gaps = [(number, number + 1) for number in range(1, 2 * RET_GAPS_MAX, 2)]
    assert list(CoRet.parts([(1, gaps[1:]), (2, gaps[:1])])) == [[(1, gaps[1:]), (2, gaps[:1])]]
    assert list(CoRet.parts([(1, gaps), (2, gaps[:1])])) == [[(1, gaps)], [(2, gaps[:1])]]


def test_all_hear_a_request_unless_it_goes_to_many() -> None:
    one = Member(8)
    assert one.losses.ret_targets([5, 3]) is None
    assert one.losses.ret_targets([5, 3, 4]) == (3, 4, 5)


def test_the_longest_quiet_time_grows_with_the_group() -> None:
    for size, longest in ((8, SECOND), (100, 100 * RETRY)):
        one = Member(size)
        one.losses._asked = 9
        for _ in range(40):
            quiet = one.losses.quiet_ns()
        assert longest <= quiet <= longest * 3 // 2
