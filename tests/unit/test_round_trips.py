"""Round trips: what is measured, what is not, and how long an answer may take before anything was measured."""

from __future__ import annotations

from antiphon.protocol.ordering.round_trips import REMEMBERED_MAX, RoundTrips

FIRST = 10


def test_nothing_is_known_before_something_was_measured() -> None:
    trips = RoundTrips(3, FIRST)
    assert (trips.shortest_ns, trips.shortest_of_ns(1), trips.measured_ns) == (0, 0, 0)
    assert trips.usual_ns == trips.timeout_ns(1, 500) == FIRST
    assert trips.queued_ns() == trips.prompt_ns == 0


def test_an_answer_is_measured_from_the_last_number_that_it_has() -> None:
    trips = RoundTrips(3, FIRST)
    trips.sent(1, 0)
    trips.sent(3, 100)
    trips.heard(1, 3, 130)
    assert trips.shortest_of_ns(1) == trips.shortest_ns == trips.measured_ns == 30
    trips.heard(1, 3, 900)
    trips.heard(1, 1, 900)
    assert trips.measured_ns == 30, "what it said before is no answer"
    trips.sent(5, 200)
    trips.heard(2, 4, 205)
    assert trips.shortest_of_ns(2) == 105, "it has 3, and not yet 5"


def test_what_is_sent_again_is_not_measured() -> None:
    """Nobody knows which of the copies was answered."""
    trips = RoundTrips(2, FIRST)
    trips.sent(1, 0)
    trips.repeated(1)
    trips.heard(1, 1, 1_000)
    assert trips.measured_ns == 0
    trips.sent(2, 1_000)
    trips.heard(1, 2, 1_040)
    assert trips.measured_ns == 40


def test_what_was_sent_before_a_rest_or_a_loss_is_not_measured() -> None:
    trips = RoundTrips(3, FIRST)
    trips.sent(1, 0)
    trips.disturbed(1, 50)
    trips.heard(1, 1, 500)
    assert trips.shortest_of_ns(1) == 0, "it waited for a repair"
    trips.heard(2, 1, 60)
    assert trips.shortest_of_ns(2) == 60, "the others did not"
    trips.sent(2, 500)
    trips.rest(501)
    trips.sent(3, 501)
    trips.heard(1, 2, 9_000)
    assert trips.shortest_of_ns(1) == 0, "nobody owed an answer"
    trips.heard(1, 3, 9_501)
    assert trips.shortest_of_ns(1) == 9_000


def test_before_an_answer_came_it_may_take_as_long_as_it_has_taken_yet() -> None:
    """That is counted from the first number that the member is not known to have."""
    trips = RoundTrips(3, FIRST)
    trips.sent(1, 0)
    trips.sent(2, 100)
    trips.sent(3, 150)
    assert trips.timeout_ns(1, 1_000) == 1_000
    trips.disturbed(1, 200)
    trips.heard(1, 1, 300)
    assert trips.timeout_ns(1, 1_000) == 900
    trips.heard(1, 3, 400)
    assert trips.timeout_ns(1, 1_000) == FIRST, "it has everything"
    trips.heard(2, 3, 190)  # 40 after the last was sent
    trips.sent(4, 500)
    assert trips.timeout_ns(1, 520) == 20
    assert trips.timeout_ns(1, 5_000) == 3 * 40, "not more than three times what is usual"


def test_numbers_of_long_ago_are_forgotten_and_the_latest_remembered() -> None:
    trips = RoundTrips(2, FIRST)
    last = 5 * REMEMBERED_MAX
    for number in range(1, last + 1):
        trips.sent(number, number)
    trips.heard(1, 2, last)
    assert trips.shortest_of_ns(1) == 0, "too long ago"
    trips.heard(1, last - REMEMBERED_MAX, last)
    assert trips.shortest_of_ns(1) == REMEMBERED_MAX


def test_what_waits_in_queues_is_how_much_longer_than_at_best_the_best_of_late_took() -> None:
    trips = RoundTrips(2, FIRST)
    trips.measured(1, 30)
    assert trips.queued_ns() == 0
    for _ in range(8):  # the first is no longer of late
        trips.measured(1, 70)
    trips.measured(1, 90)
    assert trips.queued_ns() == 40


def test_an_answer_is_given_the_first_pause_at_least_and_three_times_the_usual_at_most() -> None:
    trips = RoundTrips(3, 100)
    trips.measured(1, 10)
    assert trips.timeout_ns(1, 0) == 100
    trips = RoundTrips(3, 1)
    for _ in range(50):
        trips.measured(1, 10)
    trips.measured(2, 10)
    for _ in range(3):
        trips.measured(2, 900)
    assert trips.timeout_ns(2, 0) == 3 * trips.usual_ns
    assert trips.usual_of_ns(1, 0) == 10


def test_the_oldest_number_that_is_remembered_stays_unmeasured_if_it_was_sent_again() -> None:
    trips = RoundTrips(2, FIRST)
    oldest = 2 * REMEMBERED_MAX + 1 - REMEMBERED_MAX
    for number in range(1, 2 * REMEMBERED_MAX + 1):
        trips.sent(number, number)
    trips.repeated(oldest)
    trips.sent(2 * REMEMBERED_MAX + 1, 0)
    trips.heard(1, oldest, 5_000)
    assert trips.shortest_of_ns(1) == 0
