"""The rules of agreement on the next view, one by one: what is promised, accepted, proposed, chosen and decided."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.protocol.membership.agreement import ViewAgreement
from antiphon.protocol.membership.flush import cut_of
from antiphon.protocol.membership.messages import (
    FIRST_SPOKEN,
    Accept,
    Acceptance,
    Prepare,
    Refusal,
    Standing,
    State,
    Vote,
)
from antiphon.protocol.membership.partitionable import PartitionableAgreement
from antiphon.protocol.membership.views import (
    DEPARTED_MAX,
    NO_BALLOT,
    Ballot,
    Change,
    Cut,
    GroupView,
    before_the_first,
    incarnation_of,
    name_of,
    process,
)
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Spoken

ONE = GroupView(4, (3, 1), (0, 10_001, 2), (5, 0, 7), 2)
OPTIONS = GroupOptions(ordering="fifo")
OTHER_VIEW = (4, (9, 9))


def unhurried() -> Backoff:
    return Backoff(lambda pause: pause, 10, 80, first_ns=0)


def agreement(kind: type[ViewAgreement] = ViewAgreement, view: GroupView = ONE) -> ViewAgreement:
    return kind(view, NO_BALLOT, None, 0)


def proposing(
    kind: type[ViewAgreement] = ViewAgreement, me: int = 0, targets: tuple[int, ...] = (0, 1, 2)
) -> ViewAgreement:
    one = agreement(kind)
    one.propose(me, targets, unhurried(), 100)
    return one


def state(
    ballot: Ballot = (1, 0),
    *,
    reach: tuple[int, ...] = (0, 0, 0),
    sent: int = 0,
    standing: Standing = "member",
    accepted: Acceptance | None = None,
    spoken: Spoken = FIRST_SPOKEN,
) -> State:
    return State(ballot, ONE.id, standing, accepted, reach, sent, b"", spoken)


def change(ballot: Ballot, members: tuple[int, ...] = (0, 10_001)) -> Change:
    new = GroupView(ONE.number + 1, ballot, members, (0,) * len(members), len(members))
    return Change(ONE.id, new, Cut((0, 0, 0), (0, 0, 0)))


def chosen(states: dict[int, State], *, unwanted: Any = (), fits: Any = lambda size: True) -> Change | None:
    one = proposing()
    assert one.round is not None
    one.round.states.update(states)
    return one.choose(OPTIONS, unwanted, fits)


# As one who answers


def test_a_view_tells_who_was_there_before_as_far_back_as_there_is_room() -> None:
    then = msgspec.structs.replace(ONE, departed=(20_002, 3))
    assert then.departed_before((0, 2, 10_003)) == (10_001,), "of each name, the latest incarnation is in the view"
    assert then.departed_before((0,)) == (20_002, 3, 10_001, 2)
    many = msgspec.structs.replace(ONE, departed=tuple(range(100, 100 + DEPARTED_MAX)))
    assert many.departed_before((0, 10_001)) == (*range(101, 100 + DEPARTED_MAX), 2)
    assert before_the_first((0, 1)).departed_before((0,)) == (), "nobody was in view 0"


def test_where_each_side_goes_on_any_number_joins_at_once_unless_they_await_a_state() -> None:
    for transfer, size in ((False, 4), (True, 2)):
        one = proposing(PartitionableAgreement)
        assert one.round is not None
        one.round.states.update({0: state(), **{other: state(reach=(), standing="joiner") for other in (3, 4, 5)}})
        made = one.choose(OPTIONS, (), lambda size: True, transfer=transfer)
        assert made is not None
        assert len(made.new.members) == size


def test_no_ballot_below_the_promised_one_is_followed_and_the_same_one_is() -> None:
    one = agreement()
    assert one.promise((3, 1), 10)
    assert (one.promised, one.leader, one.progress_at, one.tries) == ((3, 1), 1, 10, 1)
    assert not one.promise((3, 0), 20)
    assert not one.promise((2, 2), 20)
    assert one.promise((3, 1), 30)  # said again, as what is not answered is
    assert (one.promised, one.progress_at, one.tries) == ((3, 1), 10, 1), "no progress, and no further try"
    assert one.promise((3, 2), 40)
    assert (one.promised, one.leader, one.progress_at, one.tries) == ((3, 2), 2, 40, 2)


def test_a_higher_ballot_of_another_ends_ones_own_and_ones_own_does_not_end_itself() -> None:
    one = proposing()
    assert one.round is not None
    assert one.promise(one.round.ballot, 1)
    assert one.round is not None
    assert one.promise((1, 2), 2)
    assert one.round is None


def test_a_ballot_of_ones_own_is_above_all_that_were_heard_of() -> None:
    one = agreement()
    one.heard_of((7, 2))
    one.heard_of((3, 1))
    assert one.progress_at == 0
    one.propose(0, (0,), unhurried(), 5)
    assert one.round is not None
    assert one.round.ballot == (8, 0)
    assert (one.round.since, one.progress_at) == (5, 5)
    one.propose(0, (0,), unhurried(), 6)
    assert one.round.ballot == (9, 0)


def test_what_was_promised_before_a_restart_is_below_the_next_ballot_of_ones_own() -> None:
    one = ViewAgreement(ONE, (6, 2), None, 0)
    one.propose(0, (0,), unhurried(), 5)
    assert one.round is not None
    assert one.round.ballot == (7, 0)
    assert one.leader == 2


def test_a_refusal_of_ones_ballot_ends_it_and_says_who_is_further() -> None:
    one = proposing()
    one.take_refusal(Refusal((9, 0), ONE.id, (12, 2)), 150)
    assert one.round is not None, "of another ballot"
    one.take_refusal(Refusal(one.round.ballot, ONE.id, (5, 2)), 200)
    assert one.round is None
    assert (one.leader, one.progress_at) == (2, 200)
    one.propose(0, (0,), unhurried(), 300)
    assert one.round is not None
    assert one.round.ballot == (13, 0), "above the highest that any refusal told of"


def test_a_state_tells_what_was_accepted_where_nothing_is_held() -> None:
    accepted = Acceptance((2, 0), change((2, 0)))
    one = ViewAgreement(ONE, (2, 0), accepted, 0)
    told = one.state((3, 1), "joiner", None, Spoken(2, 3))
    assert told == State((3, 1), ONE.id, "joiner", accepted, (), 0, b"", Spoken(2, 3))
    assert one.refusal((1, 0)) == Refusal((1, 0), ONE.id, (2, 0))


def test_a_name_votes_whichever_incarnation_it_is_in_but_only_for_what_follows_its_view() -> None:
    one = agreement()
    accept = Accept((1, 0), change((1, 0)))
    assert one.may_vote(accept, process(2, 9))
    assert not one.may_vote(accept, 3)
    of_another = Change(OTHER_VIEW, accept.change.new, accept.change.cut)
    assert not one.may_vote(Accept((1, 0), of_another), 2)


def test_an_acceptance_is_given_once_for_each_ballot_and_not_below_a_promise() -> None:
    one = agreement()
    assert one.accept() is None
    one.accepting = Accept((1, 0), change((1, 0)))
    assert one.accept() == Vote((1, 0), ONE.id)
    first = one.accepted
    assert first == Acceptance((1, 0), change((1, 0)))
    one.accepting = Accept((1, 0), change((1, 0)))
    assert one.accept() == Vote((1, 0), ONE.id), "the vote was lost, and is given again"
    assert one.accepted is first
    one.accepting = Accept((2, 2), change((2, 2)))
    assert one.accept() is not None
    assert one.accepted == Acceptance((2, 2), change((2, 2)))
    one.promise((4, 1), 0)
    one.accepting = Accept((3, 0), change((3, 0)))
    assert one.accept() is None
    assert one.accepted == Acceptance((2, 2), change((2, 2)))
    assert one.accepting is None


def test_to_follow_another_view_forgets_what_was_promised_about_the_one_before() -> None:
    one = ViewAgreement(ONE, (2, 0), Acceptance((2, 0), change((2, 0))), 0)
    one.propose(0, (0,), unhurried(), 5)
    one.accepting, one.decided, one.tries = Accept((2, 0), change((2, 0))), change((2, 0)), 3
    one.follow(ONE, 40)
    assert (one.promised, one.accepted) == ((2, 0), Acceptance((2, 0), change((2, 0)))), "it is the same view"
    assert (one.round, one.accepting, one.decided, one.progress_at, one.tries) == (None, None, None, 40, 0)
    one.follow(change((2, 0)).new, 50)
    assert (one.promised, one.accepted, one.progress_at) == (NO_BALLOT, None, 50)


def test_an_older_view_is_told_of_a_newer_one_and_a_newer_one_is_heeded() -> None:
    one = agreement()
    older, newer = GroupView(3, (9, 1), (2,), (0,), 1), GroupView(4, (3, 2), (2,), (0,), 1)
    assert one.is_news(older.id)
    assert not one.is_news(ONE.id)
    assert not one.is_news(newer.id)
    assert one.heeds(newer, 2)
    assert not one.heeds(ONE, 2)
    assert not one.heeds(older, 2)


# As one who proposes


def test_phase_one_closes_with_a_quorum_when_all_that_seem_alive_have_answered_or_had_time_to() -> None:
    one = proposing()
    assert one.round is not None
    assert not one.may_choose({0, 1, 2}, 50, 1_000), "no quorum, however long it takes"
    assert one.take_state(0, state())
    assert not one.may_choose({0, 1, 2}, 50, 1_000)
    assert one.take_state(10_001, state())
    assert not one.may_choose({0, 1, 2}, 50, 149)
    assert one.may_choose({0, 1, 2}, 50, 150), "the grace time is over"
    assert one.may_choose({0, 1}, 50, 110), "who is silent seems dead"
    assert one.may_choose({0, 1, 7}, 50, 110), "who was not asked is not waited for"
    one.round.change = change((1, 0))
    assert not one.may_choose({0, 1}, 50, 110), "it has been chosen"
    one.round = None
    assert not one.may_choose({0, 1}, 50, 110)


def test_a_state_counts_for_the_ballot_and_the_view_it_was_given_in_and_only_in_phase_one() -> None:
    one = proposing()
    assert one.round is not None
    assert not one.take_state(2, state((2, 0)))
    assert not one.take_state(2, msgspec.structs.replace(state(), view=OTHER_VIEW))
    assert not one.take_state(2, state(reach=(0, 0))), "of as many ranks as the view has"
    assert one.take_state(2, state())
    assert one.take_state(20_003, state(reach=())), "one who joins holds nothing of the view"
    assert one.round.answered == {2, 3}
    one.round.change = change((1, 0))
    assert not one.take_state(0, state())
    assert set(one.round.states) == {2, 20_003}
    one.round = None
    assert not one.take_state(0, state())


def test_those_who_have_not_answered_are_asked_again() -> None:
    one = proposing(targets=(0, 1, 2, 3))
    assert one.round is not None
    one.take_state(10_001, state())
    ((names, question),) = one.questions(0, None)
    assert names == {0, 2, 3}
    assert question == Prepare((1, 0), ONE)


def test_the_proposer_accepts_before_anyone_else_is_asked_to() -> None:
    """Else one who has lost the view's messages, and so lacks nothing, could decide a cut that nobody holds."""
    one = proposing()
    assert one.round is not None
    one.round.change = change((1, 0))
    holding: Any = object()
    ((names, question),) = one.questions(0, holding)
    assert names == {0}
    assert question == Accept((1, 0), change((1, 0)))
    assert one.take_vote(0, Vote((1, 0), ONE.id))
    ((names, _),) = one.questions(0, holding)
    assert names == {1, 2}
    assert [names for names, _ in proposed_by_a_joiner().questions(3, None)] == [{0, 1, 2}]


def proposed_by_a_joiner() -> ViewAgreement:
    one = proposing(me=3)
    assert one.round is not None
    one.round.change = change((1, 3))
    return one


def test_a_quorum_of_votes_for_the_ballot_decides() -> None:
    one = proposing()
    assert one.round is not None
    assert not one.take_vote(0, Vote((1, 0), ONE.id)), "nothing is proposed yet"
    assert one.decision() is None
    one.round.change = change((1, 0))
    assert not one.take_vote(0, Vote((2, 0), ONE.id)), "of another ballot"
    assert one.decision() is None
    assert one.take_vote(2, Vote((1, 0), ONE.id))
    assert one.decision() is None
    assert one.take_vote(20_001, Vote((1, 0), ONE.id)), "a name votes in any incarnation"
    assert one.decision() == change((1, 0))
    one.round = None
    assert not one.take_vote(2, Vote((1, 0), ONE.id))
    assert one.decision() is None


# What to propose


def test_the_new_view_is_who_answered_members_in_their_order_then_joiners_by_name() -> None:
    made = chosen(
        {
            2: state(reach=(1, 2, 3), sent=3),
            0: state(reach=(4, 1, 0), sent=4),
            10_003: state(reach=(), standing="joiner"),
            20_000 + 1: state(reach=(), standing="joiner"),
        }
    )
    assert made is not None
    assert made.old == ONE.id
    assert made.new == GroupView(5, (1, 0), (0, 2, 20_001, 10_003), (5 + 4, 7 + 3, 0, 0), 2, wire=2)
    assert made.cut == Cut((4, 2, 3), (0, 2, 2))


def test_leavers_those_behind_and_the_unwanted_are_not_in_the_new_view_but_what_they_hold_is_in_the_cut() -> None:
    states = {
        0: state(reach=(1, 0, 0)),
        10_001: state(reach=(0, 9, 0), standing="leaver"),
        2: state(reach=(0, 0, 8)),
        3: state(reach=(), standing="behind"),
        4: state(reach=(), standing="joiner"),
    }
    made = chosen(states, unwanted={2})
    assert made is not None
    assert made.new.members == (0, 4)
    assert made.cut.reach == (1, 9, 8)


def test_of_a_name_the_last_incarnation_that_answered_is_in_the_new_view() -> None:
    states = {2: state(), 0: state(), 20_002: state(reach=(), standing="joiner")}
    made = chosen(states)
    assert made is not None
    assert made.new.members == (0, 20_002)
    assert made.new.elders == 1


def test_where_all_leave_the_proposer_stays_alone_until_they_know() -> None:
    made = chosen({0: state(standing="leaver"), 2: state(standing="leaver")})
    assert made is not None
    assert made.new.members == (0,)
    assert chosen({2: state(standing="leaver"), 10_001: state(standing="leaver")}) is None


def test_joiners_are_let_in_as_far_as_the_buffers_fit() -> None:
    states = {0: state(), 2: state(), 3: state(reach=()), 4: state(reach=())}
    states[3].standing = states[4].standing = "joiner"
    made = chosen(states, fits=lambda size: size <= 3)
    assert made is not None
    assert made.new.members == (0, 2, 3)
    made = chosen(states, fits=lambda size: size <= 2)
    assert made is not None
    assert made.new.members == (0, 2)


def test_the_view_speaks_the_newest_version_that_all_know_and_who_shares_none_does_not_join() -> None:
    new, old, ancient = Spoken(2, 4), Spoken(2, 3), Spoken(1, 1)
    states = {
        0: state(spoken=new),
        2: state(spoken=old),
        3: state(reach=(), standing="joiner", spoken=ancient),
        4: state(reach=(), standing="joiner", spoken=new),
    }
    made = chosen(states)
    assert made is not None
    assert made.new.members == (0, 2, 4)
    assert made.new.wire == 3


def test_what_was_accepted_is_proposed_again_unchanged() -> None:
    accepted = Acceptance((7, 2), change((7, 2), (10_001, 2)))
    assert chosen({0: state(), 2: state(accepted=accepted)}) == accepted.change


def test_nobody_is_bound_by_an_acceptance_of_one_who_lost_its_messages_where_no_member_answered() -> None:
    """A group that crashed as a whole: nobody holds anything, so what was accepted may have been decided."""
    accepted = Acceptance((7, 2), change((7, 2), (0, 10_001)))
    states = {10_000: state(reach=(), accepted=accepted), 20_001: state(reach=()), 10_002: state(reach=())}
    one = agreement()
    assert one.states_that_bind(states) == states


def test_an_acceptance_whose_messages_a_member_holds_binds_though_the_others_are_a_quorum() -> None:
    five = GroupView(4, (3, 1), (0, 1, 2, 3, 4), (0,) * 5, 5)
    accepted = Acceptance((7, 2), Change(five.id, GroupView(5, (7, 2), (0,), (0,), 1), Cut((0,) * 5, (0,) * 5)))
    nothing = State((9, 0), five.id, "member", None, (0,) * 5, 0, b"")
    holder = msgspec.structs.replace(nothing, accepted=accepted)
    amnesiac = msgspec.structs.replace(holder, reach=())
    one = ViewAgreement(five, NO_BALLOT, None, 0)
    states = {0: nothing, 1: nothing, 2: nothing, 3: holder, 10_004: amnesiac}
    assert one.states_that_bind(states) == states
    assert set(one.states_that_bind({**states, 3: nothing})) == {0, 1, 2, 3}


def test_an_empty_place_in_the_cut_is_held_by_its_sender() -> None:
    assert cut_of(ONE, OPTIONS, {}) == Cut((0, 0, 0), ONE.members)


# Where each side goes on


def test_each_side_votes_by_process_and_all_of_the_new_view_decide() -> None:
    one = proposing(PartitionableAgreement)
    assert one.round is not None
    assert not one.take_vote(0, Vote((1, 0), ONE.id))
    one.round.change = change((1, 0), (0, 10_001, 3))
    assert one.voters(one.round.change) == {0, 1, 3}
    assert not one.take_vote(20_001, Vote((1, 0), ONE.id)), "another incarnation than the one that is listed"
    assert not one.take_vote(0, Vote((2, 0), ONE.id))
    assert one.take_vote(0, Vote((1, 0), ONE.id))
    assert one.take_vote(10_001, Vote((1, 0), ONE.id))
    assert one.decision() is None
    assert one.take_vote(3, Vote((1, 0), ONE.id))
    assert one.decision() == one.round.change
    accept = Accept((1, 0), one.round.change)
    assert one.may_vote(accept, 3)
    assert not one.may_vote(accept, 20_001)
    assert not one.may_vote(accept, 2)


def test_each_side_needs_no_quorum_and_nothing_binds_it() -> None:
    one = agreement(PartitionableAgreement)
    assert one.is_quorum(())
    accepted = Acceptance((7, 2), change((7, 2)))
    assert one.bound({0: state(accepted=accepted)}) is None
    assert one.is_news(OTHER_VIEW)
    assert not one.is_news(ONE.id)


@pytest.mark.parametrize(
    ("members", "number", "sender", "heeded"),
    [
        ((3, 4, 5, 6), 4, 3, True),  # a larger side, and one of its members tells of it
        ((3, 4, 5, 6), 3, 3, True),
        ((3, 4, 5, 6), 4, 7, False),  # one who is in neither
        ((3, 4, 5, 6), 4, 2, True),  # one of ours, who gives way
        ((3, 4, 5, 6), 3, 2, False),  # one who joins ours, and tells of the one before it
        ((3, 4, 5, 6), 3, 0, True),  # one who was in ours before cannot mean that
        ((3, 4), 9, 3, False),  # a smaller side, however new
        ((2, 3, 4, 5), 3, 2, False),  # listed in both, and only behind
        ((2, 3, 4, 5), 5, 2, True),
    ],
)
def test_the_stronger_side_is_heeded_if_one_who_can_know_tells_of_it(
    members: tuple[int, ...], number: int, sender: int, heeded: bool
) -> None:
    view = GroupView(number, (number, 3), members, (0,) * len(members), 0)
    assert agreement(PartitionableAgreement).heeds(view, sender) is heeded


def test_ones_own_view_is_not_another_side() -> None:
    assert not agreement(PartitionableAgreement).heeds(ONE, 0)


# Views


def test_impossible_processes_and_views_are_refused() -> None:
    assert (name_of(process(9_999, 200_000)), incarnation_of(process(9_999, 200_000))) == (9_999, 200_000)
    with pytest.raises(ValueError, match="do not fit together"):
        GroupView(1, (1, 0), (0, 1), (0,), 0)
    with pytest.raises(ValueError, match="do not fit together"):
        GroupView(1, (1, 0), (0, 1), (0, 0), 3)
    with pytest.raises(ValueError, match="nobody"):
        GroupView(1, (1, 0), (), (), 0)
    with pytest.raises(ValueError, match="twice"):
        GroupView(1, (1, 0), (1, 10_001), (0, 0), 0)
    with pytest.raises(ValueError, match="do not fit together"):
        Cut((1, 2), (0,))
    with pytest.raises(ValueError, match="follow one another"):
        Change(ONE.id, GroupView(6, (1, 0), (0,), (0,), 0), Cut((), ()))
    assert GroupView(1, (1, 0), (0, 1), (0, 0), 2).elders == 2


def test_before_the_first_view_a_declared_number_of_members_decides_whoever_they_are() -> None:
    view = before_the_first((2, 0), declared=5)
    assert not view.is_quorum({0, 2})
    more = view.with_names((0, 7, 1))
    assert more.names == (0, 1, 2, 7)
    assert more.declared == 5
    assert more.is_quorum({0, 1, 7})
    assert more.with_names((7,)) is more
    assert before_the_first((0,)).with_names((1,)) == before_the_first((0,)), "the founders are named"
    later = GroupView(1, (1, 0), (0, 2), (0, 0), 0, declared=5)
    assert later.with_names((7,)) is later, "who founded it does not change any more"
    assert before_the_first((1, 0, 1)) == GroupView(0, NO_BALLOT, (0, 1), (0, 0), 0)
    assert before_the_first((0, 1)).is_quorum({0, 1})


def test_half_of_a_declared_number_is_no_quorum() -> None:
    assert not before_the_first((0, 1, 2, 3), declared=4).is_quorum({0, 1})
