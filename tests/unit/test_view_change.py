"""One process on the way to the next view, told by hand what the others say: its rules one by one."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from antiphon.errors import LocalProtocolError
from antiphon.protocol.machine import (
    Capture,
    Deliver,
    Disband,
    Drop,
    EndHoldBack,
    HoldBack,
    Install,
    Intake,
    Leave,
    Meet,
    Persist,
    ReceiveMany,
    StandingChanged,
    Submit,
    TraceRow,
    Wake,
)
from antiphon.protocol.membership.lifecycle import Saved
from antiphon.protocol.membership.messages import (
    Accept,
    Acceptance,
    Alive,
    Commit,
    Fetch,
    Fill,
    Newer,
    Prepare,
    Refusal,
    SnapshotChunk,
    State,
    Superseded,
    ViewAnswer,
    ViewQuestion,
    Vote,
)
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.view_change import ViewChangeProtocol
from antiphon.protocol.membership.views import NO_BALLOT, Ballot, Cut, GroupView, name_of, process
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import VERSIONS
from support.one_process import GROUP, MS, TIMES, OneProcess, change_to, empty_state, member, view_after

SAFE = GroupOptions(ordering="fifo", group=GROUP, safe=True, window=2, queue=5)  # own messages wait for the others
SIDES = msgspec.structs.replace(TIMES, partition="each-side")
TRANSFER = msgspec.structs.replace(TIMES, transfer=True)


def stopped(name: int = 0, *members: int, ballot: tuple[int, int] | None = None, **others: Any) -> OneProcess:
    """Give a process whose first view another has begun to end."""
    one = member(name, *members, **others)
    other = next(one for one in (members or (0, 1, 2)) if one != name)
    one.hear(other, Prepare(ballot or (9, other), one.process.view))
    one.effects.clear()
    return one


def pass_time(one: OneProcess, until_ms: int, *speaking: int, standing: Any = "member", step_ms: int = 5) -> None:
    """Let time pass while some others are heard in it."""
    for now in range(one.now // MS + step_ms, until_ms + 1, step_ms):
        for other in speaking:
            one.alive(other, standing=standing, now=now * MS)
        one.do(Wake(), now * MS)


def proposed(one: OneProcess) -> list[Prepare]:
    return list({message.ballot: message for _, message in one.take(Prepare)}.values())


# Who proposes


def test_the_first_member_proposes_when_one_falls_silent_and_nobody_else_does() -> None:
    for name in (0, 1):
        one = member(name)
        before = one.process.counts["proposals"]
        pass_time(one, 110, 1 - name)
        prepares = one.take(Prepare)
        if name == 0:
            assert {other for other, _ in prepares} == {1, 2}, "the silent one too: it may only be far"
            assert {message.view for _, message in prepares} == {one.process.view}
            assert one.process.counts["proposals"] == before + 1
        else:
            assert prepares == []


def test_a_calm_view_is_not_changed() -> None:
    one = member()
    pass_time(one, 500, 1, 2)
    assert one.take(Prepare) == []
    assert one.process.active
    assert one.did(StandingChanged) == []


def test_without_a_quorum_that_hears_itself_nobody_proposes_and_the_member_says_so() -> None:
    one = member()
    pass_time(one, 200)
    assert one.take(Prepare) == []
    assert one.did(StandingChanged) == [StandingChanged("stalled", ((1, 0), (2, 0)))]
    assert not one.process.active
    assert one.process.stalled
    one.do(Submit(b"waits"))
    assert one.data == []
    one.alive(1)
    asked = one.now
    one.do(Wake(), 201 * MS)
    assert one.take(ViewQuestion) == [(name, ViewQuestion(one.process.view.id, asked)) for name in (1, 2)]
    assert one.did(StandingChanged) == []
    assert not one.process.active, "what is heard may have been long on its way"
    one.hear(1, ViewAnswer(one.process.view.id, asked - 1))
    assert one.did(StandingChanged) == []
    one.hear(1, ViewAnswer(one.process.view.id, asked))
    assert one.did(StandingChanged) == [StandingChanged("resumed")], "half with the first, and 2 has time to speak"
    assert one.process.active
    assert len(one.data) == 1, "what waited is sent"


def test_a_second_in_rank_takes_over_a_change_that_makes_no_progress_and_later_ranks_later() -> None:
    began: dict[int, int] = {}
    for name in (1, 2):
        one = member(name)
        one.hear(0, Prepare((9, 0), one.process.view))
        for now in range(one.now // MS + 5, 900, 5):
            for other in {0, 1, 2} - {name}:
                one.alive(other, now=now * MS)
            one.do(Wake(), now * MS)
            if (taken := proposed(one)) and name not in began:
                began[name] = now
                assert taken[0].ballot == (10, name), "with a higher ballot"
    assert 290 <= began[1] - 1 <= 310, "twice the patience for the second in rank"
    assert 440 <= began[2] - 1 <= 460


def test_a_change_whose_leader_is_gone_is_taken_over_sooner() -> None:
    one = member(1)
    one.hear(0, Prepare((9, 0), one.process.view))
    pass_time(one, 130, 2)
    assert [prepare.ballot for prepare in proposed(one)] == [(10, 1)]


@pytest.mark.parametrize(
    ("deaf_to", "unheard_by", "after_ms"),
    [((1, 2, 3, 4), (), 50), ((2, 3, 4), (), 50), ((3, 4), (), 150), ((), (2, 3, 4), 50), ((2,), (3, 4), 50)],
)
def test_a_change_whose_leader_is_answered_by_too_few_is_taken_over_soon(
    deaf_to: tuple[int, ...], unheard_by: tuple[int, ...], after_ms: int
) -> None:
    one = stopped(1, 0, 1, 2, 3, 4)
    began_at, taken_at = one.now, None
    while taken_at is None:
        one.hear(0, Alive(one.process.view.id, "member", deaf_to))
        for other in (2, 3, 4):
            one.hear(other, Alive(one.process.view.id, "member", (0,) if other in unheard_by else ()))
        one.do(Wake(), one.now + 5 * MS)
        taken_at = one.now - began_at if proposed(one) else None
    assert after_ms * MS <= taken_at <= (after_ms + 10) * MS


def test_a_leader_that_the_others_do_not_hear_ends_nothing_and_its_vain_ballots_make_nobody_wait() -> None:
    one = member(2, 0, 1, 2, 3, 4)
    for ballot in (9, 10, 11):
        one.hear(0, Prepare((ballot, 0), one.process.view))
    began_at, taken_at = one.now // MS, None
    assert proposed(one) == []
    for now in range(began_at + 5, 1_500, 5):
        one.alive(0, now=now * MS)
        for other in (1, 3, 4):
            one.hear(other, Alive(one.process.view.id, "member", (0,)), now=now * MS)
        one.do(Wake(), now * MS)
        if taken_at is None and proposed(one):
            taken_at = now
    assert taken_at is not None
    assert 290 <= taken_at - began_at <= 310, "twice the patience for the second in rank, as in a first ballot"


def test_the_next_member_proposes_where_the_first_is_alive_and_others_do_not_hear_it() -> None:
    one = member(1, 0, 1, 2, 3, 4)
    pass_time(one, 20, 0, 2, 3, 4)
    for other in (2, 3, 4) * 2:
        one.hear(other, Alive(one.process.view.id, "member", (0,)))
    one.do(Wake(), one.now + 60 * MS)
    assert len(proposed(one)) == 1


def test_the_next_member_proposes_where_the_first_is_too_slow_to_wait_for() -> None:
    one = member(1)
    pass_time(one, 20, 0, 2)
    assert proposed(one) == []
    one.process.lifecycle.slow.accused = frozenset({0})
    one.process.view_change.consider_proposing(one.now)
    assert one.process.counts["proposals"] == 1


def test_each_vain_ballot_makes_the_next_wait_longer() -> None:
    one = stopped(0, ballot=(9, 1))
    began = []
    for now in range(one.now // MS + 10, 1_300, 10):
        for other in (1, 2):
            one.alive(other, now=now * MS)
        one.do(Wake(), now * MS)
        for prepare in proposed(one):
            if prepare.ballot[0] not in [ballot for ballot, _ in began]:
                began.append((prepare.ballot[0], now))
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(began)]
    assert pauses[:2] == [300, 600]


def test_a_leaver_does_not_propose_while_another_can_and_is_left_out() -> None:
    one = member(1)
    one.hear(0, Alive(one.process.view.id, "leaver"))
    (prepare,) = proposed(one)
    for other in (0, 2):
        standing = "leaver" if other == 0 else "member"
        one.hear(other, empty_state(prepare.ballot, one.process.view, standing))
    accepts = one.take(Accept)
    assert {message.change.new.members for _, message in accepts} == {(1, 2)}


def test_a_joiner_is_asked_to_stop_like_the_others_and_the_new_view_has_it() -> None:
    one = member()
    one.hear(3, Alive(one.process.view.id, "joiner"))
    ((ballot, view),) = {(message.ballot, message.view) for _, message in one.take(Prepare)}
    assert view == one.process.view
    for other in (1, 2):
        one.hear(other, empty_state(ballot, view))
    assert one.take(Accept) == [], "who lives has time to answer"
    one.hear(3, empty_state(ballot, view, "joiner"))
    accepts = one.take(Accept)
    assert {name for name, _ in accepts} == {1, 2}, "the voters are the names of the view that ends"
    assert accepts[0][1].change.new.members == (0, 1, 2, 3)
    assert accepts[0][1].change.new.elders == 3
    one.hear(2, Vote(ballot, view.id))
    assert {name for name, _ in one.take(Commit)} == {1, 2, 3}
    assert [install.members for install in one.did(Install)] == [(0, 1, 2, 3)]


def test_who_is_not_heard_by_another_member_is_left_out_and_let_in_when_it_is_heard() -> None:
    one = member()
    for _ in range(2):
        one.hear(1, Alive(one.process.view.id, "member", (2,)))
    (prepare,) = proposed(one)
    one.hear(1, empty_state(prepare.ballot, prepare.view))
    assert one.take(Accept) == [], "others may be about to tell of more broken links"
    pass_time(one, one.now // MS + 50)
    assert one.take(Accept)[0][1].change.new.members == (0, 1), "2 is not waited for"
    one.hear(1, Vote(prepare.ballot, prepare.view.id))
    view = one.process.view
    assert view.members == (0, 1)
    one.hear(process(2, 2), Alive(view.id, "joiner"))
    one.do(Wake(), one.now + 15 * MS)
    assert proposed(one) == [], "1 has not said yet that it hears it"
    for _ in range(2):
        one.hear(1, Alive(view.id, "member"))
    one.do(Wake(), one.now + 15 * MS)
    assert len(proposed(one)) == 1


def test_a_few_whom_one_alone_connects_with_the_rest_do_not_go_on() -> None:
    one = member(0, 0, 1, 2, 3, 4)
    pass_time(one, 20, 1, 2, 3, 4)
    for _ in range(2):
        one.hear(1, Alive(one.process.view.id, "member", (2,)))
    (prepare,) = proposed(one)
    for other in (1, 2, 3, 4):
        one.hear(other, empty_state(prepare.ballot, prepare.view))
    for _ in range(20):
        for other in (1, 2, 3, 4):
            unheard = tuple(name for name in (1, 2, 3, 4) if name != other)
            one.hear(other, Alive(one.process.view.id, "member", unheard))
        one.do(Wake(), one.now + 5 * MS)
    assert one.take(Accept) == []
    assert [said.what for said in one.did(StandingChanged)] == ["stalled"]
    for other in (1, 2):
        one.hear(other, Alive(one.process.view.id, "member", (3, 4)))
    assert {message.change.new.members for _, message in one.take(Accept)} == {(0, 1, 2)}, "a link is mended"


def test_joiners_are_let_in_one_by_one_where_they_do_not_hear_one_another() -> None:
    one = member()
    for _ in range(2):
        one.hear(4, Alive(one.process.view.id, "joiner", (3,)))
    assert one.process.view_change.welcome(one.now) == [4]
    one.hear(3, Alive(one.process.view.id, "joiner"))
    assert one.process.view_change.welcome(one.now) == [3]
    one.hear(5, Alive(one.process.view.id, "joiner"))
    assert one.process.view_change.welcome(one.now) == [3, 5]


def test_before_the_first_view_those_who_hear_one_another_begin() -> None:
    one = OneProcess(0, (0, 1, 2, 3, 4))
    one.do(Wake(), 0)
    for other in (1, 2, 3):
        for _ in range(2):
            one.hear(other, Alive((0, (0, 0)), "joiner", (1,) if other == 3 else ()))
    assert one.process.view_change.welcome(0) == [0, 1, 2]


def test_a_founder_that_was_not_heard_is_waited_for_before_a_later_one_proposes() -> None:
    one = OneProcess(1)
    one.do(Wake(), 0)
    one.hear(2, Alive((0, (0, 0)), "joiner"))
    assert one.take(Prepare) == [], "0 may be about to speak"
    pass_time(one, 120, 2, standing="joiner")
    assert {name for name, _ in one.take(Prepare)} == {0, 2}


def test_nobody_joins_while_as_many_await_the_state_as_have_it() -> None:
    one = member(membership=TRANSFER)
    change = one.process.view_change
    view = GroupView(2, (20, 1), (0, 1, 2), (0, 0, 0), 2)
    one.hear(1, Prepare((20, 1), one.process.view))
    one.hear(1, Commit(msgspec.structs.replace(change_to(one.process.view, (0, 1, 2), (20, 1)), new=view)))
    assert one.process.view == view
    one.hear(1, Alive(view.id, "member"))
    one.hear(2, Alive(view.id, "awaiting"))
    assert change.has_room(one.now)
    one.hear(1, Alive(view.id, "awaiting"))
    assert not change.has_room(one.now)
    one.hear(3, Alive(view.id, "joiner"))
    assert change.welcome(one.now) == []
    one.hear(1, Alive(view.id, "leaver"))
    assert not change.has_room(one.now), "who leaves does not count"
    one.hear(2, Alive(view.id, "member"))
    assert change.has_room(one.now)
    assert change.welcome(one.now) == [3]


# Phase one, as one who answers


def test_who_promises_stops_and_tells_what_it_holds() -> None:
    one = member(2)
    one.do(Submit(b"one"))
    sent = len(one.data)
    assert sent == 1
    done = one.hear(1, Prepare((9, 1), one.process.view))
    assert [type(effect) for effect in done if not isinstance(effect, Drop)] == [Persist]
    ((name, state),) = one.take(State)
    assert name == 1
    assert state == State((9, 1), one.process.view.id, "member", None, (0, 0, 1), 1, b"", state.spoken)
    assert (state.spoken.oldest, state.spoken.newest) == (min(VERSIONS), max(VERSIONS))
    assert not one.process.active
    one.do(Submit(b"two"))
    assert len(one.data) == sent, "it sends nothing more in this view"


def test_what_is_asked_again_is_answered_again_and_written_down_once() -> None:
    one = member(2)
    for _ in range(2):
        one.hear(1, Prepare((9, 1), one.process.view))
    assert len(one.take(State)) == 2
    assert len(one.did(Persist)) == 1


def test_a_lower_ballot_is_refused_and_the_promised_one_is_named() -> None:
    one = stopped(2, ballot=(9, 1))
    one.said.clear()
    one.hear(0, Prepare((8, 0), one.process.view))
    assert one.take(Refusal) == [(0, Refusal((8, 0), one.process.view.id, (9, 1)))]
    one.hear(0, Accept((8, 0), change_to(one.process.view, (0, 2), (8, 0))))
    assert one.take(Refusal) == [(0, Refusal((8, 0), one.process.view.id, (9, 1)))]


def test_a_refusal_of_ones_own_ballot_ends_it() -> None:
    one = member()
    one.hear(3, Alive(one.process.view.id, "joiner"))
    (prepare,) = proposed(one)
    one.hear(1, Refusal(prepare.ballot, prepare.view.id, (30, 1)))
    one.do(Wake(), 25 * MS)
    assert one.take(Prepare) == []
    pass_time(one, 400, 1, 2)
    assert proposed(one)[0].ballot == (31, 0)


def test_who_is_behind_is_told_how_the_newer_view_came_about() -> None:
    one = member()
    old = one.process.view
    one.installed(0, 1, 2)
    one.hear(2, Prepare((9, 2), old))
    ((name, commit),) = one.take(Commit)
    assert (name, commit.change.old, commit.change.new) == (2, old.id, one.process.view)
    assert one.take(State) == []
    one.hear(2, Prepare((9, 2), GroupView(0, (0, 0), (0, 1, 2), (0, 0, 0), 0)))
    assert one.take(Newer) == [(2, Newer(one.process.view))]
    one.hear(2, Accept((9, 2), change_to(old, (0, 2), (9, 2))))
    assert [name for name, _ in one.take(Commit)] == [2]
    assert one.process.active


def test_a_prepare_for_a_newer_view_is_not_answered_before_ones_own_has_ended() -> None:
    one = member(2)
    newer = view_after(one.process.view, (0, 1, 2), (9, 1))
    one.hear(1, Prepare((12, 1), newer))
    assert one.take(State) == []
    assert one.process.view.number == 1


def test_a_joiner_offers_itself_and_writes_the_ballot_down_with_its_promise() -> None:
    one = OneProcess(7)
    one.do(Wake(), 0)
    view = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    one.hear(1, Prepare((9, 1), view))
    ((_, state),) = one.take(State)
    assert (state.standing, state.reach, state.view) == ("joiner", (), view.id)
    saved = msgspec.msgpack.decode(one.did(Persist)[-1].state, type=Saved)
    assert (saved.offered, saved.promised, saved.view) == (((9, 1),), (9, 1), view)
    one.hear(0, Prepare((8, 0), view))
    assert [name for name, _ in one.take(Refusal)] == [0]
    new = view_after(view, (0, 1, 2, 7), (9, 1))
    one.hear(0, Newer(new))
    assert [install.members for install in one.did(Install)] == [(0, 1, 2, 7)]


def test_a_ballot_that_is_refused_is_no_offer() -> None:
    one = OneProcess(7)
    one.do(Wake(), 0)
    view = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    one.hear(1, Prepare((9, 1), view))
    one.hear(0, Prepare((8, 0), view))
    one.effects.clear()
    one.hear(0, Newer(view_after(view, (0, 1, 2, 7), (8, 0))))
    assert one.did(Install) == []
    assert one.process.id == process(7, 2), "the view lists another that had its number"


def test_one_that_is_too_far_behind_does_not_join_and_says_so_at_once() -> None:
    one = OneProcess(7)
    one.do(Wake(), 0)
    one.said.clear()
    one.do(Intake(full=True), MS)
    assert {message.standing for _, message in one.take(Alive)} == {"behind"}
    view = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    one.hear(1, Prepare((9, 1), view))
    assert one.take(State) == []
    one.do(Intake(full=True), 2 * MS)
    assert one.take(Alive) == [], "nothing new"
    one.do(Intake(full=False), 3 * MS)
    assert {message.standing for _, message in one.take(Alive)} == {"joiner"}
    one.hear(1, Prepare((9, 1), view))
    assert len(one.take(State)) == 1


def test_a_name_that_has_a_vote_answers_however_far_behind_its_application_is() -> None:
    one = OneProcess(2)
    one.do(Wake(), 0)
    one.do(Intake(full=True), 0)
    one.hear(1, Prepare((9, 1), one.process.view))
    assert [state.standing for _, state in one.take(State)] == ["behind"]
    inside = member(2)
    inside.do(Intake(full=True), 2 * MS)
    assert inside.take(Alive) == [], "a member goes on"
    inside.hear(1, Prepare((9, 1), inside.process.view))
    assert [state.standing for _, state in inside.take(State)] == ["full"]


def test_where_each_side_goes_on_a_ballot_of_another_side_is_not_followed() -> None:
    one = member(2, 0, 1, 2, 3, membership=SIDES)
    for _ in range(2):
        one.hear(0, Alive(one.process.view.id, "member", (1,)))
    one.hear(0, Prepare((9, 0), one.process.view))
    assert one.take(State) != []
    for _ in range(2):
        one.hear(0, Alive(one.process.view.id, "member", (1, 3)))
    one.hear(0, Prepare((10, 0), one.process.view))
    assert one.take(State) == [], "1, 2 and 3 hear one another, and 0 does not"


# Phase one, as one who proposes


def test_a_question_is_repeated_to_who_has_not_answered() -> None:
    one = member()
    one.hear(3, Alive(one.process.view.id, "joiner"))
    first = one.now
    (prepare,) = proposed(one)
    one.hear(1, empty_state(prepare.ballot, prepare.view))
    one.do(Wake(), first + 19 * MS)
    assert one.take(Prepare) == []
    one.do(Wake(), first + 40 * MS)
    assert {name for name, _ in one.take(Prepare)} == {2, 3}


def test_after_the_grace_time_the_view_is_who_answered() -> None:
    one = member()
    one.hear(3, Alive(one.process.view.id, "joiner"))
    (prepare,) = proposed(one)
    one.hear(1, empty_state(prepare.ballot, prepare.view))
    began = one.now
    one.do(Wake(), began + 55 * MS)
    assert one.take(Accept) == []
    one.do(Wake(), began + 61 * MS)
    assert {message.change.new.members for _, message in one.take(Accept)} == {(0, 1)}


def test_a_view_does_not_outgrow_its_buffers() -> None:
    small = GroupOptions(ordering="fifo", group=GROUP, window=4, buffer=12)
    one = member(options=small)
    one.hear(3, Alive(one.process.view.id, "joiner"))
    (prepare,) = proposed(one)
    for other in (1, 2):
        one.hear(other, empty_state(prepare.ballot, prepare.view))
    one.hear(3, empty_state(prepare.ballot, prepare.view, "joiner"))
    assert {message.change.new.members for _, message in one.take(Accept)} == {(0, 1, 2)}


# Phase two


def test_a_change_is_accepted_once_its_whole_cut_is_held() -> None:
    one = stopped(0)
    view = one.process.view
    one.said.clear()
    change = change_to(view, (0, 1, 2), (9, 1), reach=(0, 1, 0))
    one.hear(1, Accept((9, 1), change))
    assert one.take(Fetch) == [(1, Fetch(view.id, [(1, 0, 1)]))]
    assert one.did(Persist) == []
    one.hear(1, Accept((9, 1), change))
    assert one.take(Fetch) == [], "it was asked for a moment ago"
    done = one.hear(1, Fill(view.id, 1, 0, 1, [(1, encoded_message(1))]))
    assert len([effect for effect in done if isinstance(effect, Persist)]) == 1
    assert one.take(Vote) == [(1, Vote((9, 1), view.id))]
    assert one.process.lifecycle.agreement.accepted == Acceptance((9, 1), change)
    done = one.hear(1, Commit(change))
    assert [(effect.sender, effect.seq) for effect in done if isinstance(effect, Deliver)] == [(1, 1)]
    assert [effect.members for effect in done if isinstance(effect, Install)] == [(0, 1, 2)]


def test_who_has_fetched_all_that_was_to_be_accepted_waits_for_the_decision_and_gives_nothing_up() -> None:
    one = stopped(0)
    view = one.process.view
    one.hear(1, Accept((9, 1), change_to(view, (0, 1, 2), (9, 1), reach=(0, 1, 0))))
    assert one.take(Fetch)
    one.hear(1, Fill(view.id, 1, 0, 1, [(1, encoded_message(1))]))
    assert len(one.take(Vote)) == 1
    for now in range(10, 1_200, 10):
        one.alive(1, 2, now=one.now + 10 * MS)
        one.do(Wake())
        assert one.take(Fetch) == [], now
    one.hear(2, Prepare((12, 2), view))
    one.hear(2, Accept((12, 2), change_to(view, (0, 1, 2), (12, 2), reach=(0, 1, 3))))
    assert one.take(Fetch)
    for _ in range(10):
        one.alive(1, 2, now=one.now + 10 * MS)
        one.do(Wake())
    assert one.take(Fetch), "for what another change lacks there is as much time as ever"
    assert StandingChanged("excluded") not in one.effects


def encoded_message(rank: int, payload: bytes = b"fetched") -> bytes:
    """Encode the first message of a rank as it lies in the stream of a fifo group."""
    ((_, encoded),) = encoded_messages(rank, 1, payload)
    return encoded


def encoded_messages(rank: int, count: int, payload: bytes = b"fetched") -> list[tuple[int, bytes]]:
    """Encode the first messages of a rank, each with its number."""
    other = Member(rank, View(1, (0, 1, 2)), GroupOptions(ordering="fifo"), random.Random(1))
    for _ in range(count):
        other.handle(Submit(payload), 0)
    return other.copies(rank, 0, count)


def test_a_vote_that_was_lost_is_given_again_without_writing_anything_down() -> None:
    one = stopped(0)
    change = change_to(one.process.view, (0, 1, 2), (9, 1))
    one.hear(1, Accept((9, 1), change))
    assert len(one.did(Persist)) == 1
    one.hear(1, Accept((9, 1), change))
    assert len(one.take(Vote)) == 2
    assert one.did(Persist) == []


def test_who_is_no_voter_of_the_view_that_ends_does_not_vote() -> None:
    one = OneProcess(7)
    one.do(Wake(), 0)
    view = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    one.hear(1, Prepare((9, 1), view))
    one.hear(1, Accept((9, 1), change_to(view, (0, 1, 7), (9, 1))))
    assert one.take(Vote) == []


def test_what_is_missing_is_asked_for_again_of_everyone_and_given_up_in_the_end() -> None:
    one = stopped(0)
    view = one.process.view
    change = change_to(view, (0, 1, 2), (9, 1), reach=(0, 3, 0))
    one.hear(1, Commit(change))
    assert one.take(Fetch) == [(1, Fetch(view.id, [(1, 0, 3)]))]
    asked_at = one.now
    one.do(Wake(), asked_at + 19 * MS)
    assert one.take(Fetch) == []
    one.do(Wake(), asked_at + 20 * MS)
    assert {name for name, _ in one.take(Fetch)} == {1, 2}
    for now in range(30, 800, 10):
        one.alive(1, 2, now=asked_at + now * MS)
        one.do(Wake())
    assert one.process.view == view
    assert one.did(StandingChanged) in ([], [StandingChanged("stalled")])
    for now in range(800, 1_000, 10):
        one.alive(1, 2, now=asked_at + now * MS)
        one.do(Wake())
    assert StandingChanged("excluded") in one.effects
    assert one.process.view == change.new
    assert one.process.id == process(0, 2)
    assert one.process.lifecycle.past.decision == change, "which it tells those who do not know it"


def test_a_long_cut_is_asked_for_part_by_part_and_not_given_up_while_parts_come() -> None:
    one = stopped(0)
    view, parts = one.process.view, 12
    payloads = [(number, encoded) for number, encoded in encoded_messages(1, parts)]
    one.hear(1, Commit(change_to(view, (0, 1, 2), (9, 1), reach=(0, parts, 0))))
    one.take(Fetch)
    for upto in range(1, parts):
        for _ in range(15):
            one.alive(1, 2, now=one.now + 10 * MS)
        one.do(Wake())
        one.take(Fetch)
        one.hear(1, Fill(view.id, 1, upto - 1, upto, payloads[upto - 1 : upto]))
        assert one.take(Fetch) == [(1, Fetch(view.id, [(1, upto, parts)]))], "at once, of who said that it holds them"
    assert StandingChanged("excluded") not in one.effects
    done = one.hear(1, Fill(view.id, 1, parts - 1, parts, payloads[-1:]))
    assert [effect.seq for effect in done if isinstance(effect, Deliver)] == list(range(1, parts + 1))


def test_what_was_only_to_be_accepted_is_fetched_again_too() -> None:
    one = stopped(0)
    view = one.process.view
    one.hear(1, Accept((9, 1), change_to(view, (0, 1, 2), (9, 1), reach=(0, 3, 0))))
    one.said.clear()
    one.do(Wake(), one.now + 20 * MS)
    assert {name for name, _ in one.take(Fetch)} == {1, 2}
    one.hear(2, Prepare((12, 2), view))
    one.hear(2, Accept((12, 2), change_to(view, (0, 1, 2), (12, 2))))
    assert [name for name, _ in one.take(Vote)] == [2], "of another change nothing is missing"
    one.do(Wake(), one.now + 90 * MS)
    assert one.take(Fetch) == []


def test_who_lacks_messages_of_a_view_that_ended_is_given_them() -> None:
    one = member(0)
    old = one.process.view
    one.do(Submit(b"mine"))
    one.hear(1, Prepare((9, 1), old))
    fetch = Fetch(old.id, [(0, 0, 1)])
    one.said.clear()
    one.hear(2, fetch)
    ((name, fill),) = one.take(Fill)
    assert (name, fill.rank, fill.upto) == (2, 0, 1)
    one.hear(1, Commit(change_to(old, (0, 1, 2), (9, 1), reach=(1, 0, 0))))
    assert one.process.view.number == 2
    one.said.clear()
    one.hear(2, fetch)
    assert [name for name, _ in one.take(Fill)] == [2], "until all have begun the new one"
    one.alive(1)
    one.hear(2, fetch)
    assert len(one.take(Fill)) == 1
    one.alive(2)
    one.do(Wake(), one.now + 15 * MS)
    one.hear(2, fetch)
    assert one.take(Fill) == []
    one.hear(2, Fetch((7, (7, 7)), [(0, 0, 1)]))
    assert one.take(Fill) == []


def test_a_fill_of_another_view_is_not_taken() -> None:
    one = stopped(0)
    view = one.process.view
    one.hear(1, Commit(change_to(view, (0, 1, 2), (9, 1), reach=(0, 1, 0))))
    one.hear(1, Fill((7, (7, 7)), 1, 0, 1, [(1, encoded_message(1))]))
    assert one.process.view == view
    one.hear(1, Fill(view.id, 1, 0, 1, [(1, encoded_message(1))]))
    assert one.process.view.number == 2


def test_votes_of_others_before_ones_own_decide_and_all_are_told() -> None:
    one = member()
    one.hear(3, Alive(one.process.view.id, "joiner"))
    (prepare,) = proposed(one)
    for other in (1, 2):
        one.hear(other, empty_state(prepare.ballot, prepare.view))
    one.hear(3, empty_state(prepare.ballot, prepare.view, "joiner"))
    one.take(Accept)
    one.hear(1, Vote((1, 1), prepare.view.id))
    assert one.take(Commit) == []
    one.hear(1, Vote(prepare.ballot, prepare.view.id))
    assert sorted(name for name, _ in one.take(Commit)) == [1, 2, 3]
    assert one.process.view.number == 2


def test_a_vote_of_another_does_not_hurry_what_is_asked_of_the_rest() -> None:
    one = member(0, 0, 1, 2, 3, 4)
    one.hear(5, Alive(one.process.view.id, "joiner"))
    (prepare,) = proposed(one)
    for other in (1, 2, 3, 4):
        one.hear(other, empty_state(prepare.ballot, prepare.view))
    one.hear(5, empty_state(prepare.ballot, prepare.view, "joiner"))
    assert one.take(Accept) != []
    one.hear(1, Vote(prepare.ballot, prepare.view.id))
    one.do(Wake())
    assert one.take(Accept) == []


# Learning of views


def test_a_decision_is_believed_from_anyone_even_from_an_earlier_incarnation() -> None:
    for sender in (2, 7):
        one = stopped(0)
        change = change_to(one.process.view, (0, 1), (9, 1))
        one.hear(process(2, 2), Alive((0, (0, 0)), "joiner"))
        one.hear(sender, Commit(change))
        assert one.process.view == change.new


def test_where_each_side_goes_on_an_earlier_incarnation_is_not_believed() -> None:
    one = stopped(0, membership=SIDES)
    change = change_to(one.process.view, (0, 1), (9, 1))
    one.hear(process(2, 2), Alive((0, (0, 0)), "joiner"))
    one.hear(2, Commit(change))
    assert one.process.view == one.process.view != change.new


def test_who_is_left_out_is_excluded_gives_up_what_it_sent_and_comes_back_as_the_next_incarnation() -> None:
    one = member(2, traced=True, options=SAFE)
    one.do(Submit(b"mine"))
    one.do(Submit(b"too"))
    one.do(Submit(b"waits"))
    own = one.process.id
    change = change_to(one.process.view, (0, 1), (9, 1))
    done = one.hear(1, Commit(change))
    kinds = [effect for effect in done if not isinstance(effect, TraceRow)]
    assert kinds[:3] == [Drop("unknown", own, 1), Drop("unknown", own, 2), StandingChanged("excluded")]
    assert isinstance(kinds[-1], Persist)
    saved = msgspec.msgpack.decode(kinds[-1].state, type=Saved)
    assert (saved.incarnation, saved.view, saved.decision) == (2, change.new, change)
    assert TraceRow(own, "leave", detail="excluded") in done
    assert one.process.id == process(2, 2)
    assert one.process.counts["exclusions"] == 1
    assert {message.standing for _, message in one.take(Alive)} == {"joiner"}, "at once"


def test_a_newer_view_that_lists_a_member_which_has_not_ended_its_own_is_not_begun() -> None:
    one = member(2)
    old = one.process.view
    newer = view_after(view_after(old, (0, 1, 2), (9, 1)), (0, 1, 2), (12, 1))
    one.hear(1, Newer(newer))
    assert one.process.view == old
    assert one.did(Install) == []
    without = view_after(view_after(old, (0, 1, 2), (9, 1)), (0, 1), (12, 1))
    one.hear(1, Newer(without))
    assert one.did(StandingChanged) == [StandingChanged("excluded")]
    assert one.process.view == without


def test_an_older_view_is_not_heard_of_again() -> None:
    one = member(2)
    one.hear(1, Newer(GroupView(1, (1, 0), (0, 1), (0, 0), 2)))
    assert one.did(StandingChanged) == []
    joiner = OneProcess(7)
    joiner.do(Wake(), 0)
    joiner.hear(1, Newer(GroupView(4, (3, 1), (0, 1), (0, 0), 2)))
    joiner.hear(1, Newer(GroupView(3, (2, 1), (0, 1), (0, 0), 2)))
    assert joiner.process.view.number == 4


def test_what_was_accepted_and_turns_out_to_be_decided_is_carried_out() -> None:
    one = stopped(0)
    change = change_to(one.process.view, (0, 1, 2), (9, 1))
    one.hear(1, Accept((9, 1), change))
    one.hear(2, Newer(change.new))
    assert [install.members for install in one.did(Install)] == [(0, 1, 2)]


def test_a_member_that_has_not_stopped_and_is_left_out_gives_way_at_once() -> None:
    one = member(0)
    change = change_to(one.process.view, (1, 2), (9, 1))
    one.hear(1, Commit(change))
    assert one.did(StandingChanged) == [StandingChanged("excluded")]
    listed = member(0)
    listed.hear(1, Commit(change_to(listed.process.view, (0, 1, 2), (9, 1))))
    assert listed.did(Install) == [], "it cannot have answered, so that was another of its number"


def test_a_sign_of_life_from_an_older_view_is_answered_with_the_decision_but_not_while_that_is_on_its_way() -> None:
    one = member()
    old = one.process.view
    new = one.installed(0, 1, 2)
    one.hear(2, Alive(old.id, "member"))
    assert one.take(Commit) == []
    one.hear(2, Alive(old.id, "member"), now=one.now + 20 * MS)
    assert [(name, commit.change.new) for name, commit in one.take(Commit)] == [(2, new)]
    one.hear(2, Alive(new.id, "member"))
    assert one.take(Commit) == []


def test_whoever_asks_for_a_sign_of_life_is_given_one_at_once() -> None:
    one = member()
    one.hear(1, Alive(one.process.view.id, "member", asks=True, at=77))
    ((name, answer),) = one.take(Alive)
    assert (name, answer.view, answer.standing, answer.asks) == (1, one.process.view.id, "member", False)
    assert [(echo.name, echo.at) for echo in answer.echoes] == [(1, 77)]


def test_an_earlier_incarnation_is_told_that_there_is_a_later_one() -> None:
    one = member()
    one.hear(process(2, 3), Alive((0, (0, 0)), "joiner"))
    one.said.clear()
    one.hear(2, Alive(one.process.view.id, "member"))
    assert one.take(Superseded) == [(2, Superseded(process(2, 3)))]
    one.hear(2, Vote((9, 9), one.process.view.id))
    assert one.take(Superseded) == []


def test_who_was_in_a_view_that_is_over_does_not_join_under_the_number_that_it_had_there() -> None:
    """So is told one that has lost its state, also by those who came later: the view tells who has departed."""
    one = member(0)
    asked = one.process.view.id, "joiner"
    one.hear(2, Alive(*asked))
    assert one.take(Superseded) == [], "it is listed: the news is on its way"
    change = change_to(one.process.view, (0, 1), (9, 1))
    told = msgspec.structs.replace(change.new, departed=(2, process(5, 3)))
    kept = Saved(1, told, NO_BALLOT, None, None)
    later = OneProcess(1, saved=msgspec.msgpack.encode(kept))
    later.do(Wake(), 0)
    later.effects.clear()
    for joiner, latest in ((2, process(2, 2)), (process(5, 2), process(5, 3)), (process(5, 3), process(5, 4))):
        later.hear(joiner, Alive(*asked))
        assert later.take(Superseded) == [(name_of(joiner), Superseded(latest))]
    later.hear(process(2, 3), Alive(*asked))
    later.hear(process(5, 3), Alive(told.id, "leaver"))
    assert later.take(Superseded) == []


def test_a_name_that_has_lost_its_state_takes_a_number_above_all_that_others_know() -> None:
    one = OneProcess(2)
    one.do(Wake(), 0)
    one.effects.clear()
    one.hear(0, Superseded(process(2, 8)))
    assert one.process.id == process(2, 9)
    assert len(one.did(Persist)) == 1
    one.hear(0, Superseded(process(2, 8)))
    one.hear(0, Superseded(process(1, 30)))
    one.hear(0, Superseded(process(2, 9)))
    assert one.process.id == process(2, 9), "so an earlier incarnation was told"
    inside = member(2)
    inside.hear(0, Superseded(process(2, 8)))
    assert inside.process.id == 2, "a member of a view is what the others know"


def test_what_claims_to_be_this_very_name_is_garbage() -> None:
    one = member()
    done = one.hear(0, Alive(one.process.view.id, "member"))
    assert done == [Drop("own-name")]
    assert one.process.counts["dropped-own-name"] == 1


# Leaving


def test_a_leaver_says_so_at_once_votes_delivers_the_cut_and_then_is_gone() -> None:
    one = member(2, traced=True, options=SAFE)
    one.do(Submit(b"mine"))
    one.do(Leave(), 2 * MS)
    assert {message.standing for _, message in one.take(Alive)} == {"leaver"}
    assert not one.process.left
    assert one.process.room == 0
    with pytest.raises(LocalProtocolError):
        one.do(Submit(b"too late"))
    view = one.process.view
    one.hear(0, Prepare((9, 0), view))
    assert [state.standing for _, state in one.take(State)] == ["leaver"]
    change = change_to(view, (0, 1), (9, 0), reach=(0, 0, 1))
    one.hear(0, Accept((9, 0), change))
    assert len(one.take(Vote)) == 1
    done = one.hear(0, Commit(change))
    assert [(effect.sender, effect.seq) for effect in done if isinstance(effect, Deliver)] == [(2, 1)]
    assert TraceRow(2, "leave") in done
    assert one.process.left
    saved = msgspec.msgpack.decode(one.did(Persist)[-1].state, type=Saved)
    assert (saved.view, saved.decision) == (change.new, change), "it knows how the group goes on"
    assert {message.standing for _, message in one.take(Alive)} == {"leaver"}


def left(**others: Any) -> OneProcess:
    """Give a process that has left its first view, of three, in which the others go on."""
    one = member(2, **others)
    one.do(Leave(), 2 * MS)
    view = one.process.view
    one.hear(0, Prepare((9, 0), view))
    one.hear(0, Commit(change_to(view, (0, 1), (9, 0))))
    assert one.process.left
    one.said.clear()
    return one


def test_one_who_left_still_tells_the_decision_until_a_quorum_knows_it() -> None:
    one = left()
    old = GroupView(1, (5, 1), (0, 1, 2), (0, 0, 0), 0)
    for question in (Prepare((10, 1), old), Accept((10, 1), change_to(old, (1, 2), (10, 1)))):
        one.hear(1, question)
        assert [(name, commit.change.new) for name, commit in one.take(Commit)] == [(1, one.process.view)]
    one.hear(1, Alive(old.id, "member"), now=one.now + 25 * MS)
    assert len(one.take(Commit)) == 1
    one.hear(1, Vote((10, 1), old.id))
    assert one.said == []
    deadline = one.process.deadline
    assert deadline == 2 * MS + 4 * 100 * MS, "four times as long as suspicion takes, at most"
    one.hear(1, Alive(one.process.view.id, "member"))
    assert one.process.deadline == deadline
    one.hear(0, Alive(one.process.view.id, "member"))
    assert one.process.deadline is None


def test_one_who_left_waits_for_nobody_for_ever() -> None:
    one = left()
    assert one.process.deadline is not None
    one.do(Wake(), one.process.deadline - 1)
    assert one.process.deadline is not None
    one.do(Wake(), one.process.deadline)
    assert one.process.deadline is None


def test_the_last_member_takes_the_group_with_it_unless_someone_waits_to_join() -> None:
    one = member(0, 0, 1)
    one.hear(1, Prepare((9, 1), one.process.view))
    one.hear(1, Commit(change_to(one.process.view, (0,), (9, 1))))
    assert one.process.view.members == (0,)
    waiting = one.process.view
    one.hear(3, Alive(waiting.id, "joiner"))
    one.said.clear()
    one.do(Leave())
    assert not one.process.left
    alone = member(0, 0, 1)
    alone.hear(1, Prepare((9, 1), alone.process.view))
    alone.hear(1, Commit(change_to(alone.process.view, (0,), (9, 1))))
    alone.hear(1, Alive(alone.process.view.id, "leaver"))
    alone.do(Leave())
    assert alone.process.left
    assert alone.process.deadline is None, "whoever left together with it knows"


def test_who_is_in_no_view_leaves_at_once_and_what_waited_is_forgotten() -> None:
    one = OneProcess(7, options=GroupOptions(ordering="fifo", group=GROUP, queue=2))
    one.do(Wake(), 0)
    one.do(Submit(b"waits"))
    assert one.process.room == 1
    assert not one.process.drained
    one.do(Leave())
    assert one.process.left
    assert one.process.drained
    assert one.process.deadline is None


def test_a_leaver_that_was_not_heard_and_holds_more_than_the_cut_does_not_deliver_it() -> None:
    one = member(2, options=SAFE)
    one.do(Submit(b"mine"))
    one.do(Leave(), 2 * MS)
    view = one.process.view
    one.hear(0, Prepare((9, 0), view))
    one.effects.clear()
    done = one.hear(0, Commit(change_to(view, (0, 1), (9, 0))))
    assert [effect for effect in done if isinstance(effect, Deliver)] == []
    assert Drop("unknown", 2, 1) in done
    assert one.process.left
    assert StandingChanged("excluded") not in done, "it wanted to go"


def test_where_all_leave_the_first_makes_a_view_of_its_own_and_leaves_when_the_others_know() -> None:
    one = member(0, 0, 1)
    one.do(Leave(), 2 * MS)
    assert proposed(one) == []
    one.hear(1, Alive(one.process.view.id, "leaver"))
    (prepare,) = proposed(one)
    one.hear(1, empty_state(prepare.ballot, one.process.view, "leaver"))
    assert one.process.view.members == (0,)
    assert one.process.left
    assert {name for name, _ in one.take(Commit)} == {1}
    assert one.process.deadline == one.now + 100 * MS, "until 1 knows, or is suspected"
    one.hear(1, Alive(one.process.view.id, "leaver"))
    assert one.process.deadline is None


def test_one_who_leaves_alone_makes_no_views_while_it_waits_for_one_that_cannot_be_let_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ViewChangeProtocol, "welcome", lambda self, now: [])  # it does not hear this member
    one = member(0, 0, 1)
    one.hear(1, Prepare((9, 1), one.process.view))
    one.hear(1, Commit(change_to(one.process.view, (0,), (9, 1))))
    alone = one.process.view
    one.hear(10_001, Alive(alone.id, "joiner"))
    one.do(Leave(), one.now + 5 * MS)
    assert one.process.view == alone
    assert not one.process.left, "the other may be heard again, and have nobody else that has the state"
    pass_time(one, one.now // MS + 1_000)
    assert one.process.left, "the other is gone"


def test_who_disbands_gives_up_what_it_sent_and_ends_for_good() -> None:
    one = member(2, traced=True, options=SAFE)
    for payload in (b"sent", b"sent", b"waits", b"too"):
        one.do(Submit(payload))
    done = one.do(Disband())
    assert done == [
        Drop("unknown", 2, 1),
        Drop("unknown", 2, 2),
        StandingChanged("yielded"),
        TraceRow(2, "leave", detail="excluded"),
    ]
    assert one.process.left
    assert [message.payload for message in one.process.lifecycle.queue] == [b"waits", b"too"]
    assert {message.standing for _, message in one.take(Alive)} == {"leaver"}
    assert one.process.deadline is None


# Where each side goes on


def test_a_side_gives_way_to_a_larger_one_that_it_hears_and_its_mates_are_told() -> None:
    one = member(0, 0, 1, membership=SIDES)
    own = one.process.view
    other = GroupView(3, (7, 4), (2, 3, 4), (0, 0, 0), 3)
    one.hear(4, Newer(other))
    assert one.did(StandingChanged) == [], "2 and 3 were never heard"
    for name in (2, 3, 4):
        one.hear(name, Alive(other.id, "member"))
    one.take(Newer)
    done = one.hear(4, Newer(other))
    assert [effect for effect in done if isinstance(effect, StandingChanged)] == [StandingChanged("yielded")]
    assert one.take(Newer) == [(1, Newer(other))]
    assert one.process.view == other
    assert one.process.id == process(0, 2)
    mate = member(1, 0, 1, membership=SIDES)
    mate.hear(process(0, 2), Alive(other.id, "joiner"))
    mate.hear(process(0, 2), Newer(other))
    assert mate.did(StandingChanged) == [], "told by one who is in neither view"
    assert own != other


def test_where_one_of_a_side_has_given_way_its_mates_follow_before_they_hear_all_of_the_other() -> None:
    one = member(0, 0, 1, 2, membership=SIDES)
    other = GroupView(3, (7, 4), (3, 4, 5, 6), (0, 0, 0, 0), 4)
    one.hear(4, Newer(other))
    assert one.did(StandingChanged) == [], "3, 5 and 6 were never heard"
    one.hear(process(1, 2), Alive(other.id, "joiner"))
    one.process.detector.meet((3, 5, 6), 0)
    for peer in (3, 5, 6):
        one.process.detector.by_name[peer].heard_at = one.now - 101 * MS
    one.hear(4, Newer(other))
    assert one.did(StandingChanged) == [StandingChanged("yielded")]
    assert {3, 5, 6} <= one.process.detector.living(one.now), "they have time to speak"


def test_a_smaller_side_is_told_of_ours_and_not_heeded() -> None:
    one = member(0, 0, 1, 2, membership=SIDES)
    other = GroupView(9, (7, 4), (3, 4), (0, 0), 2)
    for name in (3, 4):
        one.hear(name, Alive(other.id, "member"), now=one.now + 21 * MS)
    assert one.take(Newer) == [(3, Newer(one.process.view)), (4, Newer(one.process.view))]
    one.hear(4, Newer(other))
    assert one.process.view.members == (0, 1, 2)


def test_who_joins_takes_the_strongest_side_of_which_a_member_tells() -> None:
    one = OneProcess(7, (0, 1, 7), membership=SIDES)
    one.do(Wake(), 0)
    weak = GroupView(5, (3, 1), (0, 1), (0, 0), 2)
    strong = GroupView(4, (2, 3), (2, 3, 4), (0, 0, 0), 3)
    one.hear(0, Newer(weak))
    assert one.process.view == weak
    one.hear(0, Alive(weak.id, "member"))
    one.hear(9, Newer(strong))
    assert one.process.view == weak, "9 is in neither"
    one.hear(3, Newer(strong))
    assert one.process.view == strong
    one.hear(3, Alive(strong.id, "member"))
    one.hear(0, Newer(weak))
    assert one.process.view == strong
    one.hear(3, Alive((9, (9, 9)), "member"))
    older = GroupView(2, (1, 0), (0, 1), (0, 0), 2)
    one.hear(9, Newer(older))
    assert one.process.view == strong
    one.hear(0, Newer(older))
    assert one.process.view == older, "nobody is left in the stronger one, and a member tells of this"
    one.hear(9, Newer(weak))
    assert one.process.view == weak, "or it is newer"


def test_who_joins_does_not_take_a_side_of_which_it_does_not_hear_all() -> None:
    one = OneProcess(7, (0, 1, 2, 3, 7), membership=SIDES)
    one.do(Wake(), 0)
    side = GroupView(5, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    for _ in range(2):
        one.hear(2, Alive(side.id, "member", (7,)))
    one.hear(0, Newer(side))
    assert one.process.view.number == 0, "2 does not hear this one"
    one.hear(2, Alive(side.id, "member"))
    one.hear(0, Newer(side))
    assert one.process.view == side


def test_who_cannot_join_the_side_that_it_has_chosen_begins_another_with_others_in_the_same_case() -> None:
    one = OneProcess(7, (0, 1, 2, 7, 8, 9), membership=SIDES)
    one.do(Wake(), 0)
    side = GroupView(5, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    one.hear(0, Newer(side))
    assert one.process.view == side

    def wait(until_ms: int) -> None:
        for now in range(one.now // MS + 5, until_ms + 1, 5):
            for name in range(3):
                one.hear(name, Alive(side.id, "member", (7, 8) if name == 2 else ()), now=now * MS)
            for name in (8, 9):
                one.hear(process(name, 2), Alive(side.id, "joiner", (2,) if name == 8 else ()), now=now * MS)
            one.do(Wake(), now * MS)

    wait(60)
    assert proposed(one) == [], "reports may be old"
    wait(210)
    prepares = one.take(Prepare)
    assert {name for name, _ in prepares} == {8}, "the side is not stopped, and 9 can join it"
    one.hear(process(8, 2), empty_state(prepares[-1][1].ballot, side, "joiner"))
    (accept,) = {message.ballot: message for _, message in one.take(Accept)}.values()
    assert (accept.change.new.number, accept.change.new.names) == (6, (7, 8))


def test_a_name_that_began_a_side_though_others_know_a_later_incarnation_ends_it() -> None:
    """It has lost its state; the others take nothing that it says, so that they cannot tell it of their view."""
    one = member(2, 2, 3, membership=SIDES)
    one.hear(0, Superseded(process(2, 8)))
    assert one.did(StandingChanged) == [StandingChanged("yielded")]
    assert one.process.id == process(2, 9)
    one.hear(0, Superseded(process(2, 8)))
    assert one.process.id == process(2, 9)


def test_one_who_joins_and_has_not_heard_of_the_new_view_does_not_make_it_give_way() -> None:
    one = member(0, 0, 1, 2, 3, membership=SIDES)
    old = one.process.view
    one.hear(4, Alive(old.id, "joiner"))
    new = one.installed(0, 4)
    for mate in (1, 2, 3):
        one.hear(process(mate, 2), Alive(old.id, "joiner"))  # they began anew: nobody is in the old view any more
    one.hear(4, Newer(old))
    assert one.did(StandingChanged) == []
    assert one.process.view == new
    one.hear(1, Newer(old))
    assert one.process.view == new, "an earlier incarnation"


def test_who_has_accepted_waits_to_hear_of_the_view_that_its_leader_has_begun() -> None:
    for into, takes_over in ((True, False), (False, True)):
        one = stopped(1, membership=SIDES)
        change = change_to(one.process.view, (0, 1, 2), (9, 0))
        one.hear(0, Accept((9, 0), change))
        one.said.clear()
        begun = change.new.id if into else (change.new.number, (12, 2))
        one.hear(0, Alive(begun, "member"))
        one.hear(2, Alive(one.process.view.id, "member"))
        assert bool(proposed(one)) is takes_over


SIDES_TRANSFER = msgspec.structs.replace(SIDES, transfer=True)


@pytest.mark.parametrize(("membership", "names"), [(SIDES, (7, 8, 9)), (SIDES_TRANSFER, (7,))])
def test_where_nobody_has_the_state_of_a_side_one_goes_on_alone(
    membership: MembershipOptions, names: tuple[int, ...]
) -> None:
    one = OneProcess(7, (0, 1, 7, 8, 9), membership=membership)
    one.do(Wake(), 0)
    gone = GroupView(5, (3, 1), (0, 1), (0, 0), 2)
    one.hear(0, Newer(gone))
    assert one.process.view == gone
    prepares: list[Prepare] = []
    while not prepares:
        for name in (8, 9):
            one.hear(name, Alive(gone.id, "joiner", (0, 1)), now=one.now + 5 * MS)
        one.do(Wake())
        prepares = proposed(one)
    for name in (8, 9):
        one.hear(name, empty_state(prepares[0].ballot, gone, "joiner"))
    pass_time(one, one.now // MS + 50)
    if names == (7,):
        assert (one.process.view.names, one.process.view.elders) == ((7,), 0), "it has what it has; the others join it"
    else:
        assert {message.change.new.names for _, message in one.take(Accept)} == {names}


def test_who_awaits_the_state_of_a_side_and_is_left_without_elders_joins_anew_with_the_state_that_it_had() -> None:
    one = OneProcess(7, (0, 1), membership=SIDES_TRANSFER)
    one.do(Wake(), 0)
    view = GroupView(4, (3, 1), (0, 1), (0, 0), 2)
    one.hear(1, Prepare((9, 1), view))
    one.hear(1, Newer(view_after(view, (0, 1, 7), (9, 1))))
    assert one.process.lifecycle.standing == "awaiting"
    for now in range(10, 300, 10):
        one.do(Wake(), now * MS)
    views = [effect.effect.members for effect in one.effects if isinstance(effect, HoldBack)]
    assert (0, 1, 7) in views
    assert EndHoldBack(hand_over=False) in one.effects, "what it was to see behind the state is thrown away"
    assert [install.members for install in one.did(Install)] == [(process(7, 2),)]


# Submitting


def test_what_is_submitted_while_a_view_ends_is_sent_in_the_next_in_its_order() -> None:
    one = member(0, options=GroupOptions(ordering="fifo", group=GROUP, queue=3, window=1))
    for payload in (b"sent", b"1"):
        one.do(Submit(payload))
    one.hear(1, Prepare((9, 1), one.process.view))
    one.do(Submit(b"2"))
    one.do(Submit(b"3"))
    assert one.process.room == 0
    with pytest.raises(LocalProtocolError):
        one.do(Submit(b"4"))
    one.hear(1, Commit(change_to(one.process.view, (0, 1, 2), (9, 1), reach=(1, 0, 0))))
    waiting = one.process.member
    assert waiting is not None
    payloads = [message.payload for message in [*waiting.submissions.waiting, *one.process.lifecycle.queue]]
    assert payloads == [b"2", b"3"]
    assert waiting.submissions.sent == 1


def test_before_the_first_view_as_many_may_wait_as_the_queue_has_room_for() -> None:
    one = OneProcess(0, options=GroupOptions(ordering="fifo", group=GROUP, queue=2))
    one.do(Wake(), 0)
    assert (one.process.room, one.process.held, one.process.member) == (2, 0, None)
    one.do(Submit(b"1"))
    one.do(Submit(b"2"))
    assert one.process.room == 0
    with pytest.raises(LocalProtocolError, match="2 submissions wait"):
        one.do(Submit(b"3"))


# Starting


def test_a_name_that_starts_again_knows_what_it_promised_and_its_view() -> None:
    one = stopped(2, ballot=(9, 0))
    one.hear(0, Accept((9, 0), change_to(one.process.view, (0, 1, 2), (9, 0))))
    (saved,) = [effect.state for effect in one.did(Persist)]
    again = OneProcess(2, saved=saved)
    agreement = again.process.lifecycle.agreement
    assert again.process.id == process(2, 2)
    assert (agreement.promised, agreement.view) == ((9, 0), one.process.view)
    assert agreement.accepted == Acceptance((9, 0), change_to(one.process.view, (0, 1, 2), (9, 0)))
    assert again.process.remembers
    again.do(Wake(), 0)
    again.hear(1, Alive((0, (0, 0)), "joiner"))
    assert [(name, told.change.new) for name, told in again.take(Commit)] == [(1, one.process.view)], "and tells it"
    again.hear(0, Prepare((9, 0), one.process.view))
    assert [state.accepted for _, state in again.take(State)] == [agreement.accepted]


def test_a_name_without_its_state_does_not_answer_for_the_one_that_is_listed() -> None:
    view = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    one = OneProcess(2)
    one.do(Wake(), 0)
    one.hear(0, Newer(view))
    assert one.process.id == process(2, 2)
    assert not one.process.remembers
    one.hear(0, Prepare((9, 0), view))
    one.hear(0, Accept((9, 0), change_to(view, (0, 1), (9, 0))))
    assert (one.take(State), one.take(Vote)) == ([], [])
    one.hear(0, Newer(view_after(view, (0, 1), (9, 0))))
    one.hear(0, Prepare((12, 0), one.process.view))
    assert len(one.take(State)) == 1, "it is no voter there, so it may join"
    sides = OneProcess(2, membership=SIDES)
    sides.do(Wake(), 0)
    sides.hear(0, Newer(view))
    sides.hear(0, Prepare((9, 0), view))
    assert len(sides.take(State)) == 1, "where each side goes on, processes vote and not names"


# A state that has gone back in time


def kept_in(view: GroupView, *, promised: Ballot = NO_BALLOT, incarnation: int = 1) -> bytes:
    """Return what name 2 had written down in a view."""
    return msgspec.msgpack.encode(Saved(incarnation, view, promised, None, None))


FOURTH = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
FIFTH = view_after(FOURTH, (0, 1, 2), (9, 0))
SIXTH = view_after(FIFTH, (0, 1, 2), (12, 1))


def votes_in(view: GroupView, saved: bytes) -> bool:
    """Say whether name 2, which starts with what was saved and hears of a view, answers a ballot in it."""
    one = OneProcess(2, saved=saved)
    one.do(Wake(), 0)
    one.hear(0, Newer(view))
    one.hear(0, Prepare((20, 0), view))
    votes = bool(one.take(State))
    outdated = Drop("outdated-state") in one.effects
    assert votes == one.process.remembers == (not outdated) == (not one.process.counts["dropped-outdated-state"])
    return votes


def test_a_name_whose_state_is_older_than_its_promises_does_not_vote() -> None:
    """Who is listed in a view has promised its ballot in the one before, and had that on its disk."""
    assert votes_in(FOURTH, kept_in(FOURTH)), "nothing says that this is not all"
    assert votes_in(FIFTH, kept_in(FOURTH, promised=(9, 0))), "it lost its power as the view began"
    assert votes_in(FIFTH, kept_in(FOURTH, promised=(10, 1))), "which was proposed again with a higher ballot"
    assert not votes_in(FIFTH, kept_in(FOURTH)), "it has promised this, and does not know"
    assert not votes_in(FIFTH, kept_in(FOURTH, promised=(8, 2)))
    assert not votes_in(SIXTH, kept_in(FOURTH, promised=(12, 1))), "it was in the view in between"
    assert votes_in(SIXTH, kept_in(FIFTH, promised=(12, 1)))


def test_a_name_that_others_know_in_a_later_incarnation_has_an_old_state_and_does_not_vote() -> None:
    one = OneProcess(2, saved=kept_in(FOURTH))
    one.do(Wake(), 0)
    one.hear(0, Superseded(process(2, 8)))
    assert one.process.id == process(2, 9)
    assert one.did(Drop) == [Drop("outdated-state")]
    one.hear(0, Prepare((20, 0), FOURTH))
    assert one.take(State) == [], "what the later one has promised is not known"


def test_a_ballot_is_never_one_of_a_life_that_a_state_does_not_know_of() -> None:
    """A copy that is put back gives the same incarnation again, and other changes would be proposed by one ballot."""
    ballots = []
    for first_round in (70, 71):
        one = OneProcess(2, saved=kept_in(FOURTH, promised=(10, 1)), first_round=first_round)
        one.process.lifecycle.agreement.propose(2, (), one.process.detector.times.repetition((), 0), 0)
        assert one.process.lifecycle.agreement.round is not None
        ballots.append(one.process.lifecycle.agreement.round.ballot)
    assert ballots == [(81, 2), (82, 2)]


def test_who_could_decide_alone_begins_alone_only_when_nobody_else_is_heard() -> None:
    """The others may have let it in again since, which an old state does not know of."""
    alone = GroupView(4, (3, 2), (2,), (0,), 1)
    one = OneProcess(2, saved=kept_in(alone))
    one.do(Wake(), 0)
    assert one.did(Install) == [], "0 and 1 may be about to speak"
    one.hear(0, Alive(SIXTH.id, "member"), now=20 * MS)
    for now in range(40, 400, 20):
        one.alive(1, now=now * MS)
        one.hear(0, Alive(SIXTH.id, "member"), now=now * MS)
    assert one.did(Install) == [], "there is a newer view, and 0 will tell it"
    one.hear(0, Newer(SIXTH))
    assert not one.process.remembers
    silent = OneProcess(2, saved=kept_in(alone))
    for now in range(0, 3_000, 20):
        silent.do(Wake(), now * MS)
    assert [install.members for install in silent.did(Install)] == [(process(2, 2),)]


def test_the_first_thing_a_process_does_is_to_write_down_that_it_has_started() -> None:
    one = OneProcess(2, first_incarnation=4, first_round=70)
    (persist,) = one.do(Wake(), 0)
    saved = msgspec.msgpack.decode(persist.state, type=Saved)
    assert (saved.incarnation, saved.view.number, saved.remembers) == (4, 0, False)
    assert one.do(Wake(), MS) == []
    one.process.lifecycle.agreement.propose(2, (), one.process.detector.times.repetition((), 0), 0)
    current = one.process.lifecycle.agreement.round
    assert current is not None
    assert current.ballot == (71, 2)


def test_names_that_are_met_may_be_founders_of_a_declared_number() -> None:
    one = OneProcess(0, (0,), declared=3)
    one.do(Wake(), 0)
    assert one.take(Prepare) == []
    one.do(Meet((1, 2)))
    assert one.process.view.names == (0, 1, 2)
    one.alive(1, 2, standing="joiner")
    assert {name for name, _ in one.take(Prepare)} == {1, 2}


# After a pause of one's own


def test_after_a_pause_a_member_asks_before_it_goes_on() -> None:
    one = member()
    view = one.process.view
    one.do(Submit(b"before"))
    one.data.clear()
    away = one.now + 500 * MS
    one.do(Wake(), away)
    assert not one.process.active
    questions = one.take(ViewQuestion)
    assert questions == [(1, ViewQuestion(view.id, away)), (2, ViewQuestion(view.id, away))]
    one.do(Submit(b"meanwhile"))
    assert one.data == []
    one.hear(1, ViewAnswer(view.id, away - 1))
    one.hear(1, ViewAnswer((9, (9, 9)), away))
    assert not one.process.active
    one.hear(1, ViewAnswer(view.id, away))
    assert one.process.active
    assert len(one.data) > 0


def test_an_answer_counts_from_those_that_the_view_lists() -> None:
    one = member(1)
    away = one.now + 500 * MS
    one.do(Wake(), away)
    one.hear(process(2, 2), ViewAnswer(one.process.view.id, away))
    session = one.process.lifecycle.session
    assert session is not None
    assert not session.confirmed
    one.hear(0, ViewAnswer(one.process.view.id, away))
    assert session.confirmed


def test_who_has_not_confirmed_is_asked_again_and_a_long_silence_is_a_stall() -> None:
    one = member(0, 0, 1, 2, 3, 4)
    away = one.now + 500 * MS
    one.do(Wake(), away)
    assert {name for name, _ in one.take(ViewQuestion)} == {1, 2, 3, 4}
    one.hear(1, ViewAnswer(one.process.view.id, away))
    one.do(Wake(), away + 19 * MS)
    assert one.take(ViewQuestion) == []
    one.do(Wake(), away + 31 * MS)
    assert {name for name, _ in one.take(ViewQuestion)} == {2, 3, 4}
    for now in range(50, 400, 25):
        one.alive(1, 2, 3, 4, now=away + now * MS)
    assert one.did(StandingChanged) == []
    one.alive(1, 2, 3, 4, now=away + 425 * MS)
    one.do(Wake(), away + 425 * MS)
    assert one.did(StandingChanged) == [StandingChanged("stalled")]
    one.hear(2, ViewAnswer(one.process.view.id, away))
    one.do(Wake(), away + 440 * MS)
    assert one.did(StandingChanged) == [StandingChanged("resumed")]
    assert one.process.active
    assert one.process.confirmation.ask_at is None


def test_a_question_is_answered_by_who_is_in_that_view_or_with_what_is_newer() -> None:
    one = member()
    old = one.process.view
    one.hear(1, ViewQuestion(old.id, 99))
    assert one.take(ViewAnswer) == [(1, ViewAnswer(old.id, 99))]
    one.installed(0, 1, 2)
    one.hear(1, ViewQuestion(old.id, 99))
    assert [type(message) for _, message in one.said] == [Commit], "and not with an answer"


def test_one_who_is_alone_has_nobody_to_ask() -> None:
    one = member(0, 0, 1)
    one.hear(1, Prepare((9, 1), one.process.view))
    one.hear(1, Commit(change_to(one.process.view, (0,), (9, 1))))
    one.do(Wake(), one.now + 500 * MS)
    assert one.process.active


def test_no_part_of_a_state_is_shown_before_the_view_is_confirmed() -> None:
    one = OneProcess(7, (0, 1), membership=TRANSFER)
    one.do(Wake(), 0)
    view = GroupView(4, (3, 1), (0, 1), (0, 0), 2)
    one.hear(1, Prepare((9, 1), view))
    new = view_after(view, (0, 1, 7), (9, 1))
    done = one.hear(1, Newer(new))
    assert [effect.effect for effect in done if isinstance(effect, HoldBack)] == [Install(5, (0, 1, 7), (0, 1), 2)]
    assert one.process.lifecycle.standing == "awaiting"
    one.do(Wake(), one.now + 500 * MS)
    assert one.hear(0, SnapshotChunk(new.id, b"d", 1, 0, b"s")) == []
    one.hear(0, ViewAnswer(new.id, one.now))
    assert one.hear(0, SnapshotChunk(new.id, b"d", 1, 0, b"s")) != []
    assert one.process.lifecycle.standing == "member"


def test_an_elder_captures_its_state_where_the_view_begins() -> None:
    one = member(0, membership=TRANSFER)
    old = one.process.view
    one.hear(1, Prepare((9, 1), old))
    done = one.hear(1, Commit(change_to(old, (0, 1, 2, 7), (9, 1))))
    shown = [effect for effect in done if isinstance(effect, Install | Capture)]
    assert shown == [Install(2, (0, 1, 2, 7), (0, 1, 2), 2), Capture(2)]


# What a driver sees


def test_datagrams_of_the_view_go_straight_to_the_member_and_what_is_about_views_does_not() -> None:
    one, other = member(0), member(1)
    other.do(Submit(b"hello"))
    (datagram,) = other.data
    done = one.do(ReceiveMany([datagram]))
    assert [(effect.sender, effect.payload) for effect in done if isinstance(effect, Deliver)] == [(1, b"hello")]
    codec_datagrams = one._codec.write(2, Prepare((9, 2), one.process.view))
    one.do(ReceiveMany([datagram, *codec_datagrams, datagram]))
    assert [name for name, _ in one.take(State)] == [2]


def test_a_stopped_member_takes_nothing_in_but_whoever_sends_lives() -> None:
    one, other = member(0), member(1)
    one.hear(2, Prepare((9, 2), one.process.view))
    other.do(Submit(b"late"))
    (datagram,) = other.data
    for now in range(10, 300, 10):
        done = one.do(ReceiveMany([datagram]), one.now + now * MS // 10)
        assert [effect for effect in done if isinstance(effect, Deliver)] == []
    assert 1 in one.process.detector.living(one.now)


def test_broken_links_are_named_and_a_calm_process_is_drained() -> None:
    one = member(options=SAFE)
    assert one.process.drained
    one.do(Submit(b"kept"))
    assert one.process.held > 0
    assert not one.process.drained
    assert one.process.broken_links(one.now) == ()
    for _ in range(2):
        one.hear(1, Alive(one.process.view.id, "member", (2,)))
    assert one.process.broken_links(one.now) == ((2, 1),)


@pytest.mark.parametrize("cut", [Cut((0, 0), (0, 0)), Cut((0, 0, 0, 0), (0, 0, 0, 0))])
def test_an_impossible_cut_is_garbage(cut: Cut) -> None:
    one = stopped(0)
    change = msgspec.structs.replace(change_to(one.process.view, (0, 1, 2), (9, 1)), cut=cut)
    assert Drop("impossible-cut") in one.hear(1, Accept((9, 1), change))
