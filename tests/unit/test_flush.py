"""The end of a view: what is fetched, from whom, and what is passed on; and who is accused of holding all back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import SECOND, Submit
from antiphon.protocol.membership.flush import FILL_BYTES_MAX, Flush, cut_of
from antiphon.protocol.membership.messages import Fetch, Fill, State
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.slow_receiver import SlowReceiverPolicy, fitted
from antiphon.protocol.membership.timing import Times
from antiphon.protocol.membership.views import Change, Cut, GroupView
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member
from antiphon.protocol.wire import Malformed

VIEW = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
TIMES = Times(MembershipOptions(slow_ns=1_000), lambda pause: pause, 0)


class Held:
    """Stands for a member that holds so many messages of each, of so many bytes."""

    def __init__(self, *reach: int, size: int = 10) -> None:
        self.held, self.size, self.blocked = reach, size, False
        self.ordering = SimpleNamespace(claim=lambda: b"claim")
        self.finished: list[Any] = []

    def block(self) -> None:
        self.blocked = True

    def reach(self) -> tuple[int, ...]:
        return self.held

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, bytes]]:
        assert upto <= self.held[source]
        return [(number, b"%d" % number * (self.size // len(b"%d" % number))) for number in range(above + 1, upto + 1)]

    def finish(self, *args: Any) -> list[Any]:
        self.finished.append(args)
        return []


def flush(*reach: int, size: int = 10) -> tuple[Flush, Held]:
    held = Held(*reach, size=size)
    return Flush(VIEW, cast(Member, held), 0), held


def to(*reach: int, holders: tuple[int, ...] = (0, 1, 2), members: tuple[int, ...] = (0, 1, 7)) -> Change:
    new = GroupView(5, (4, 1), members, (0,) * len(members), 2)
    return Change(VIEW.id, new, Cut(reach, holders))


# What is missing of a cut


def test_who_tells_what_it_holds_stops_and_what_it_tells_does_not_change() -> None:
    one, held = flush(5, 6, 7)
    assert held.blocked
    held.held = (9, 9, 9)
    assert (one.reach, one.claim) == ((5, 6, 7), b"claim")


def test_what_is_missing_is_what_lies_between_what_is_held_and_the_cut() -> None:
    one, _ = flush(5, 6, 7)
    assert one.lacking(Cut((5, 8, 6), (0, 1, 2))) == [(1, 6, 8)]
    assert one.lacking(Cut((5, 6, 7), (0, 1, 2))) == []
    with pytest.raises(Malformed):
        one.lacking(Cut((5, 6), (0, 1)))


def test_a_leaver_has_nothing_beyond_a_cut_that_covers_all_it_holds() -> None:
    one, _ = flush(5, 6, 7)
    assert one.lies_within(Cut((5, 6, 7), (0, 1, 2)))
    assert one.lies_within(Cut((5, 9, 7), (0, 1, 2)))
    assert not one.lies_within(Cut((5, 9, 6), (0, 1, 2)))
    assert not one.lies_within(Cut((5, 6), (0, 1)))


def test_first_those_are_asked_who_said_that_they_hold_it_then_everyone_less_and_less_often() -> None:
    one, _ = flush(5, 6, 7)
    change = to(8, 9, 9, holders=(2, 10_001, 2))
    assert list(one.fetches(change, 100, now=1_000)) == [
        ((2,), Fetch(VIEW.id, [(0, 5, 8), (2, 7, 9)])),
        ((1,), Fetch(VIEW.id, [(1, 6, 9)])),
    ]
    assert (one.fetch_at, one.fetching_since) == (1_100, 1_000)
    everything = Fetch(VIEW.id, [(0, 5, 8), (1, 6, 9), (2, 7, 9)])
    for now, pause in ((1_100, 200), (1_300, 400), (1_700, 800), (2_500, 800), (3_300, 800)):
        assert list(one.fetches(change, 100, now)) == [((0, 1, 2, 7), everything)]
        assert one.fetch_at == now + pause
    assert one.fetching_since == 1_000
    one.fetched()
    assert (one.fetch_at, one.fetching_since) == (None, None)


def test_a_fill_is_taken_where_it_goes_on_from_what_is_held() -> None:
    one, held = flush(5, 6, 7)
    assert not one.take(Fill(VIEW.id, 0, 6, 8, [(7, b"7"), (8, b"8")]), 0), "there would be a gap"
    assert not one.take(Fill(VIEW.id, 0, 3, 5, [(4, b"4"), (5, b"5")]), 0), "nothing new"
    assert one.take(Fill(VIEW.id, 0, 4, 7, [(5, b"5"), (6, b"6"), (7, b"7")]), 0)
    assert one.lacking(Cut((9, 6, 7), (0, 1, 2))) == [(0, 7, 9)]
    assert one.take(Fill(VIEW.id, 0, 7, 9, [(9, b"9")]), 0), "numbers that carry no copy are skipped by their sender"
    assert one.take(Fill(VIEW.id, 2, 7, 8, [(8, b"B")]), 0)
    with pytest.raises(Malformed):
        one.take(Fill(VIEW.id, 3, 0, 1, []), 0)
    cut = Cut((9, 6, 8), (0, 1, 2), b"order")
    one.finish(cut, 44)
    assert held.finished == [(cut.reach, b"order", [(0, b"6"), (0, b"7"), (0, b"9"), (2, b"B")], 44)]


def test_only_what_the_cut_has_of_what_was_fetched_is_delivered() -> None:
    one, held = flush(5, 6, 7)
    one.take(Fill(VIEW.id, 0, 5, 8, [(6, b"6"), (7, b"7"), (8, b"8")]), 0)
    one.finish(Cut((7, 6, 7), (0, 1, 2)), 44)
    assert held.finished[0][2] == [(0, b"6"), (0, b"7")]


def test_what_another_lacks_is_given_as_far_as_it_is_held_what_was_fetched_too() -> None:
    one, _ = flush(5, 6, 7)
    one.take(Fill(VIEW.id, 0, 5, 8, [(6, b"6"), (7, b"7"), (8, b"8")]), 0)
    (fill,) = one.fills(Fetch(VIEW.id, [(0, 3, 99)]))
    assert (fill.view, fill.rank, fill.above, fill.upto) == (VIEW.id, 0, 3, 8)
    assert [number for number, _ in fill.pdus] == [4, 5, 6, 7, 8]
    (fill,) = one.fills(Fetch(VIEW.id, [(0, 6, 7)]))
    assert fill.pdus == [(7, b"7")]
    assert one.fills(Fetch(VIEW.id, [(1, 6, 9), (7, 0, 9)])) == [], "nothing of it is held, or there is no such rank"
    both = one.fills(Fetch(VIEW.id, [(7, 0, 9), (1, 5, 9), (2, 0, 1)]))
    assert [(fill.rank, fill.upto) for fill in both] == [(1, 6), (2, 1)]


def test_what_is_given_at_once_is_bounded_and_the_rest_is_asked_for_again() -> None:
    third = FILL_BYTES_MAX // 3 + 1
    one, _ = flush(9, 9, 9, size=third)
    first, *more = one.fills(Fetch(VIEW.id, [(0, 2, 9), (1, 0, 9)]))
    assert more == []
    assert [number for number, _ in first.pdus] == [3, 4, 5]
    assert (first.above, first.upto) == (2, 5)
    small, _ = flush(9, 9, 9, size=FILL_BYTES_MAX // 4)
    (first,) = small.fills(Fetch(VIEW.id, [(0, 0, 9)]))
    assert (first.upto, len(first.pdus)) == (4, 4)


def test_the_cut_is_the_longest_prefix_that_anyone_who_answered_holds_and_names_a_holder() -> None:
    def state(*reach: int) -> State:
        return State((1, 0), VIEW.id, "member", None, reach, 0, b"")

    cut = cut_of(VIEW, GroupOptions(ordering="fifo"), {1: state(4, 9, 0), 2: state(5, 3, 0), 10_000: state(99, 99, 99)})
    assert cut == Cut((5, 9, 0), (2, 1, 1))


# Who holds all back


class Slow:
    """Stands for a member of which somebody lacks something."""

    def __init__(self, lag: dict[int, int | None], *, held: int = 3, stuck: bool = True, stable_at: int = 0) -> None:
        self.held, self.stuck, self.output = held, stuck, SimpleNamespace(stable_at=stable_at)
        self.lag = lambda: lag
        self.stability: Any = None
        self.ordering: Any = None


def accused(
    policy: Any, member: Slow, *, now: int = 1_001, active: bool = True, full: tuple[int, ...] = ()
) -> set[int]:
    watching = SlowReceiverPolicy(MembershipOptions(slow=policy), 0)
    watching.watch(cast(Member, member), active, VIEW, full, TIMES, now)
    return set(watching.accused)


def test_who_lacks_most_is_accused_when_nothing_has_become_stable_for_too_long() -> None:
    lag: dict[int, int | None] = {1: 2, 2: 5}
    assert accused("drop", Slow(lag)) == {2}
    assert accused("drop", Slow(lag), now=1_000) == set()
    assert accused("drop", Slow(lag, stable_at=1)) == set()
    assert accused("drop", Slow(lag, held=0)) == set()
    assert accused("drop", Slow(lag, stuck=False)) == {2}
    assert accused("drop", Slow(lag), active=False) == set()
    assert accused("block", Slow(lag)) == set()
    assert accused("drop", Slow({1: 2, 2: None})) == {2}, "one that was never heard from lacks most"


def test_who_says_that_it_is_full_is_accused_before_those_who_seem_to_lack_more() -> None:
    """Who waits for its report owes one too."""
    assert accused("drop", Slow({1: None}), full=(2,)) == {2}
    assert accused("drop", Slow({1: 5, 2: 2}), full=(1, 2)) == {1}, "of those, who lacks most"
    assert accused("block", Slow({1: None}), full=(2,)) == set()


def test_who_lags_is_accused_only_when_there_is_no_room_even_for_stamps() -> None:
    assert accused("lag", Slow({2: 5})) == {2}
    assert accused("lag", Slow({2: 5}, stuck=False)) == set()


def test_nobody_is_accused_where_the_others_could_not_decide() -> None:
    """Then it is rather this process that is cut off."""
    assert accused("drop", Slow({1: 5, 2: 5})) == set()


def test_each_view_begins_without_anyone_accused_and_progress_begins_the_time_anew() -> None:
    watching = SlowReceiverPolicy(MembershipOptions(slow="drop"), 0)
    member = Slow({2: 5})
    watching.watch(cast(Member, member), True, VIEW, (), TIMES, 1_001)
    assert watching.accused == {2}
    assert watching.stable_at == 1_001, "another may be the slow one then, after as long again"
    watching.begin(1_500)
    assert (watching.accused, watching.stable_at) == (frozenset(), 1_500)
    member.output.stable_at = 1_700
    watching.watch(cast(Member, member), True, VIEW, (), TIMES, 2_700)
    assert watching.accused == frozenset()
    member.held = 0
    watching.watch(cast(Member, member), True, VIEW, (), TIMES, 2_900)
    assert watching.stable_at == 2_900, "nothing is held back while nothing is held"


def test_nobody_is_accused_before_the_stability_protocol_could_have_told_that_anything_is_stable() -> None:
    """A train takes two message times for each member: members that keep up were left out one after the other."""
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    for _ in range(40):
        times.by_name[1].answers.measured(SECOND)
    trip_ns = times.answer_ns(VIEW.names)
    member = Slow({1: 5})
    for message_times, waits_ns in ((None, 4 * trip_ns), (12, 14 * trip_ns)):
        member.stability = SimpleNamespace() if message_times is None else SimpleNamespace(message_times=message_times)
        watching = SlowReceiverPolicy(MembershipOptions(slow="drop"), 0)
        watching.watch(cast(Member, member), True, VIEW, (), times, waits_ns)
        assert watching.accused == set()
        watching.watch(cast(Member, member), True, VIEW, (), times, waits_ns + 1)
        assert watching.accused == {1}


def test_with_lag_every_message_lives_no_longer_than_the_policy_says() -> None:
    watching = SlowReceiverPolicy(MembershipOptions(slow="lag"), 0)
    assert watching.limits
    assert watching.limited(Submit(b""), VIEW, TIMES).lifetime_ns == SECOND
    assert watching.limited(Submit(b"", lifetime_ns=5), VIEW, TIMES).lifetime_ns == 5
    assert watching.limited(Submit(b"", lifetime_ns=5 * SECOND), VIEW, TIMES).lifetime_ns == SECOND
    given = Times(MembershipOptions(lifetime_ns=7), lambda pause: pause, 0)
    assert watching.limited(Submit(b""), VIEW, given).lifetime_ns == 7
    other = SlowReceiverPolicy(MembershipOptions(slow="drop"), 0)
    assert not other.limits
    assert other.limited(Submit(b""), VIEW, TIMES).lifetime_ns is None
    assert other.lifetime_ns(VIEW, TIMES) is None


def test_with_lag_a_member_keeps_the_stamps_of_three_windows_more() -> None:
    blocks = GroupOptions(ordering="causal-blocks", window=8)
    assert fitted(blocks, MembershipOptions(slow="lag")).ordering_options == {"lag": 24}
    assert fitted(blocks, MembershipOptions(slow="drop")) is blocks
    with pytest.raises(UsageError, match=r"membership\.slow"):
        fitted(GroupOptions(ordering="fifo"), MembershipOptions(slow="lag"))
