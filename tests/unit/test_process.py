"""A process as its driver sees it: what it is given goes to the right component, and when it wants to be woken."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from antiphon.errors import LocalProtocolError, UsageError
from antiphon.protocol.machine import (
    Capture,
    Chunk,
    Deliver,
    Disband,
    Drop,
    EndHoldBack,
    HoldBack,
    Install,
    Leave,
    Meet,
    Persist,
    ReadChunk,
    Receive,
    ReceiveMany,
    Release,
    Snapshot,
    StandingChanged,
    Submit,
    TraceRow,
    Wake,
)
from antiphon.protocol.membership.lifecycle import Saved
from antiphon.protocol.membership.messages import (
    Accept,
    Alive,
    Commit,
    Newer,
    Prepare,
    SnapshotChunk,
    SnapshotRequest,
    State,
    ViewAnswer,
)
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.process import Process
from antiphon.protocol.membership.views import GroupView, process
from antiphon.protocol.options import GroupOptions
from support.one_process import GROUP, MS, TIMES, OneProcess, change_to, member, view_after

TRANSFER = msgspec.structs.replace(TIMES, transfer=True)
SAFE = GroupOptions(ordering="fifo", group=GROUP, safe=True, window=2, queue=5)


def message_of(name: int, payload: bytes = b"hello", **others: Any) -> bytes:
    """Give a datagram with another member's message."""
    other = member(name, **others)
    other.do(Submit(payload))
    return other.data[-1]


def payloads(effects: list[Any]) -> list[bytes]:
    return [effect.payload for effect in effects if isinstance(effect, Deliver)]


def joiner(view: GroupView, me: int = 7, **others: Any) -> tuple[OneProcess, GroupView]:
    """Give a process that has just joined a view of others, with them."""
    one = OneProcess(me, view.names, **others)
    one.do(Wake(), 0)
    one.hear(1, Prepare((9, 1), view))
    new = view_after(view, (*view.members, me), (9, 1))
    one.hear(1, Newer(new))
    assert one.process.view == new
    return one, new


OLD = GroupView(4, (3, 1), (0, 1), (0, 0), 2)


# Straight to the member


def looks(one: OneProcess, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note when a process sees to what is due."""
    at: list[int] = []
    monkeypatch.setattr(one.process, "_do_what_is_due", at.append)
    return at


def test_data_and_signs_of_life_are_no_reason_to_look_at_everything_while_a_view_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = member()
    at = looks(one, monkeypatch)
    one.do(ReceiveMany([message_of(1)]))
    one.alive(1)
    assert at == []
    one.hear(1, Prepare((9, 1), one.process.view))
    assert at == [one.now]


@pytest.mark.parametrize("size", [3, 25])
def test_while_a_view_ends_few_look_at_whatever_comes_and_many_let_it_gather(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(range(size))
    one, datagram = member(0, *names), message_of(1)
    one.hear(1, Prepare((9, 1), one.process.view))
    at = looks(one, monkeypatch)
    one.do(ReceiveMany([datagram]))
    assert bool(at) is (size == 3)


def test_data_that_comes_at_the_last_moment_keeps_its_sender_alive() -> None:
    def proposes_at(data_at: int) -> int:
        """Let 1 fall silent but for a message; say when this one proposes a view without it."""
        one = member()
        for now in range(one.now + MS, one.now + 500 * MS, MS):
            one.do(ReceiveMany([message_of(1)]) if now == data_at else Wake(), now)
            one.alive(2, now=now)
            if one.take(Prepare):
                return now
        raise AssertionError("never")

    at = proposes_at(0)
    assert proposes_at(at) > at + 90 * MS


def test_data_is_delivered_one_by_one_and_together_at_once_or_when_a_look_is_due() -> None:
    datagram = message_of(1)
    for event in (Receive(datagram), ReceiveMany([datagram])):
        for wait_ns in (0, 30 * MS):
            one = member(0)
            assert payloads(one.do(event, one.now + wait_ns)) == [b"hello"]


def test_data_and_what_is_about_views_in_one_turn_are_taken_in_their_order() -> None:
    one = member(0)
    datagram, prepare = message_of(1), one._codec.write(2, Prepare((9, 2), one.process.view))
    done = one.do(ReceiveMany([datagram, *prepare]))
    assert payloads(done) == [b"hello"]
    ((_, state),) = one.take(State)
    assert state.reach == (0, 1, 0), "what came before the view was to end belongs to it"
    other = member(0)
    assert payloads(other.do(ReceiveMany([*prepare, datagram]))) == []
    ((_, state),) = other.take(State)
    assert state.reach == (0, 0, 0)


def test_a_submission_goes_straight_to_the_member_but_not_past_the_policy_or_a_leave() -> None:
    one = member(0)
    one.do(Submit(b"mine"))
    assert len(one.data) == 1
    lagging = msgspec.structs.replace(TIMES, slow="lag", lifetime_ns=7 * MS)
    blocks = GroupOptions(ordering="causal-blocks", group=GROUP)
    limited = member(0, membership=lagging, options=blocks)
    limited.process.lifecycle.slow.limited = lambda message, view, times: Submit(b"limited")  # type: ignore[method-assign]
    limited.do(Submit(b"mine"))
    assert b"limited" in limited.data[-1]
    leaving = member(0)
    leaving.do(Leave(), leaving.now)
    with pytest.raises(LocalProtocolError):
        leaving.do(Submit(b"mine"))


def test_who_has_left_says_so_to_who_would_send() -> None:
    one = OneProcess(7)
    one.do(Wake(), 0)
    one.do(Leave())
    with pytest.raises(LocalProtocolError, match="has left the group"):
        one.do(Submit(b"too late"))


def test_a_wake_reaches_the_member_whether_or_not_a_look_is_due() -> None:
    for wait_ms in (0, 25):
        one = member(0)
        one.do(Submit(b"mine"))
        one.data.clear()
        inside = one.process.member
        assert inside is not None
        for now in range(one.now // MS, 80, 5):
            one.alive(1, 2, now=now * MS + wait_ms)
            one.do(Wake(), now * MS + wait_ms)
        assert one.data, "it repeats how far its stream goes"


# When to be woken


def test_an_active_process_wants_to_be_woken_for_its_member_or_for_what_is_due_about_views(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = member(0)
    assert one.process.deadline == one.process.detector.look_at
    inside = one.process.member
    assert inside is not None
    due = one.process.detector.look_at
    for deadline, expected in ((None, due), (due - 1, due - 1), (due + 1, due)):
        monkeypatch.setattr(type(inside), "deadline", deadline)
        assert one.process.deadline == expected


def test_a_stopped_process_wants_to_be_woken_to_fetch_and_to_ask_again() -> None:
    one = member(0)
    one.hear(1, Prepare((9, 1), one.process.view))
    calm = one.process.deadline
    one.hear(1, Accept((9, 1), change_to(one.process.view, (0, 1, 2), (9, 1), reach=(0, 3, 0))))
    session = one.process.lifecycle.session
    assert session is not None
    assert session.flush is not None
    session.flush.fetch_at = one.now + 1
    assert one.process.deadline == one.now + 1 < (calm or 0)
    proposing = member(0)
    proposing.hear(3, Alive(proposing.process.view.id, "joiner"))
    current = proposing.process.lifecycle.agreement.round
    assert current is not None
    current.again.at = proposing.now + 2
    assert proposing.process.deadline == proposing.now + 2


def test_a_joiner_wants_to_be_woken_to_speak_and_to_ask_for_the_state() -> None:
    one = OneProcess(7)
    one.do(Wake(), 0)
    assert one.process.deadline == one.process.detector.look_at == 10 * MS
    waiting, _ = joiner(OLD, membership=TRANSFER)
    waiting.do(Wake(), MS)
    asking = waiting.process.lifecycle.transfer
    assert asking._awaited is not None
    asking._awaited.again.at = waiting.now + 3
    assert waiting.process.deadline == waiting.now + 3
    asking._awaited.again.at = 99_000 * MS
    away = member(0)
    away.do(Wake(), 500 * MS)
    assert away.process.confirmation.ask_at is not None
    away.process.confirmation._again.at = away.now + 4  # type: ignore[union-attr]
    assert away.process.deadline == away.now + 4


def test_many_members_let_news_gather_and_are_woken_to_look_at_it() -> None:
    names = tuple(range(30))
    one = member(0, *names)
    one.hear(1, Alive(one.process.view.id, "leaver"), now=one.now + MS)
    assert one.take(Prepare) == [], "others may have news too"
    due = one.process.deadline
    assert due is not None
    assert due <= one.now + 10 * MS
    one.hear(2, Alive(one.process.view.id, "leaver"), now=one.now + MS)
    assert one.take(Prepare) == []
    assert one.process.deadline == due, "it is not put off"
    one.do(Wake(), due)
    assert len({message.ballot for _, message in one.take(Prepare)}) == 1
    few = member(0)
    few.hear(1, Alive(few.process.view.id, "leaver"), now=few.now + MS)
    assert few.take(Prepare) != [], "few look at once"


# What a driver gives


def test_a_captured_state_is_offered_and_its_chunks_are_sent() -> None:
    one = member(0, membership=TRANSFER)
    old = one.process.view
    one.hear(1, Prepare((9, 1), old))
    one.hear(1, Commit(change_to(old, (0, 1, 2, 7), (9, 1))))
    assert one.did(Capture) == [Capture(2)]
    one.do(Snapshot(2, 3, b"digest"))
    new = one.process.view
    one.hear(7, SnapshotRequest(new.id, b"", 0, 2))
    assert one.did(ReadChunk) == [ReadChunk(2, 0, 3, 7)]
    one.do(Chunk(2, 0, b"abc", 7))
    assert one.take(SnapshotChunk) == [(7, SnapshotChunk(new.id, b"digest", 3, 0, b"abc"))]


def test_a_joiner_asks_for_the_state_and_what_it_delivers_meanwhile_is_held_back() -> None:
    one, new = joiner(OLD, membership=TRANSFER)
    one.do(Wake(), MS)
    assert [name for name, _ in one.take(SnapshotRequest)] == [0]
    one.effects.clear()
    assert one.process.lifecycle.standing == "awaiting"
    one.do(Submit(b"mine"))
    assert [effect.effect.payload for effect in one.did(HoldBack)] == [b"mine"]
    assert not one.process.drained
    assert one.process.room == one.process.lifecycle.options.queue, "it sends in its view like any other"
    done = one.hear(1, Commit(change_to(new, (0, 1), (12, 1), reach=(0, 0, 1))))
    kinds = [effect for effect in done if isinstance(effect, Drop | EndHoldBack | StandingChanged)]
    assert kinds == [Drop("unknown", 7, 1), EndHoldBack(hand_over=False), StandingChanged("excluded")]


def test_who_disbands_before_the_state_has_come_gives_up_what_was_held_back() -> None:
    one, _ = joiner(OLD, membership=TRANSFER)
    one.do(Submit(b"mine"))
    done = one.do(Disband())
    assert done == [Drop("unknown", 7, 1), EndHoldBack(hand_over=False), StandingChanged("yielded")]


def test_who_leaves_or_ends_lets_the_states_go_that_it_captured() -> None:
    one = member(0, membership=TRANSFER)
    old = one.process.view
    one.hear(1, Prepare((9, 1), old))
    one.hear(1, Commit(change_to(old, (0, 1, 2, 7), (9, 1))))
    one.do(Leave(), one.now)
    new = one.process.view
    one.hear(1, Prepare((12, 1), new))
    one.effects.clear()
    one.hear(1, Commit(change_to(new, (1, 2, 7), (12, 1))))
    assert one.process.left
    assert one.did(Release) == [Release(2)]


def test_names_that_are_met_are_told_that_this_one_is_there() -> None:
    one = OneProcess(0, (0,), declared=3)
    one.do(Wake(), 0)
    one.said.clear()
    one.do(Meet((1,)), 10 * MS)
    assert {name for name, _ in one.take(Alive)} == {1}


def test_names_of_a_view_that_is_learnt_of_are_met() -> None:
    one = OneProcess(7, (7, 0))
    one.do(Wake(), 0)
    one.hear(0, Newer(GroupView(4, (3, 1), (0, 1, 5), (0, 0, 0), 3)))
    assert set(one.process.detector.by_name) == {0, 1, 5}


def test_a_member_that_goes_on_does_at_once_what_was_due_meanwhile() -> None:
    one = member(0)
    one.do(Submit(b"mine"))
    for now in range(5, 206, 5):
        one.do(Wake(), now * MS)
    assert one.did(StandingChanged) == [StandingChanged("stalled", ((1, 0), (2, 0)))]
    one.data.clear()
    one.alive(1)
    assert not one.process.active, "what is heard may have been long on its way"
    one.hear(1, ViewAnswer(one.process.view.id, one.now))
    assert one.process.active
    assert one.data, "it says how far its stream goes"


def test_who_learns_of_a_view_by_the_decision_passes_the_decision_on() -> None:
    one = OneProcess(7, (0, 1))
    one.do(Wake(), 0)
    change = change_to(OLD, (0, 1, 2), (9, 1))
    one.hear(0, Commit(change))
    assert one.process.view == change.new
    one.hear(1, Alive(OLD.id, "member"), now=100 * MS)
    assert one.take(Commit) == [(1, Commit(change))]


# Views begin and end


def test_a_view_is_begun_with_what_belongs_in_disk_trace_and_counts() -> None:
    one = member(0, traced=True)
    assert one.process.counts["views"] == 1
    old = one.process.view
    one.hear(1, Prepare((9, 1), old))
    done = one.hear(1, Commit(change_to(old, (0, 1, 2), (9, 1))))
    persisted, *_ = [effect for effect in done if isinstance(effect, Persist)]
    saved = msgspec.msgpack.decode(persisted.state, type=Saved)
    assert (saved.view, saved.promised, saved.accepted) == (one.process.view, (0, 0), None)
    assert saved.decision is not None
    assert saved.decision.new == saved.view
    assert TraceRow(0, "view", view=2, members=(0, 1, 2)) in done
    assert done.index(persisted) < done.index(Install(2, (0, 1, 2), (0, 1, 2), 2))
    assert one.process.counts["views"] == 2
    assert one.take(Alive) != [], "the others are told at once"


def test_a_view_that_stalled_resumes_with_the_next_one() -> None:
    one = member(0)
    old = one.process.view
    for now in range(5, 105, 5):
        one.alive(1, 2, now=now * MS)
    one.hear(1, Prepare((9, 1), old))
    began = one.now
    for now in range(5, 401, 5):
        one.alive(1, 2, now=began + now * MS)
        one.do(Wake())
    assert one.did(StandingChanged) == []
    one.alive(1, 2, now=began + 401 * MS)
    one.do(Wake())
    assert one.did(StandingChanged) == [StandingChanged("stalled")], "its end takes too long"
    one.hear(1, Commit(change_to(old, (0, 1, 2), (9, 1))))
    assert one.did(StandingChanged) == [StandingChanged("resumed")]
    calm = member(0)
    calm.hear(1, Prepare((9, 1), calm.process.view))
    calm.hear(1, Commit(change_to(calm.process.view, (0, 1, 2), (9, 1))))
    assert calm.did(StandingChanged) == []


def test_who_is_cut_off_while_its_view_ends_says_so_at_once() -> None:
    one = member(1)
    one.hear(0, Prepare((9, 0), one.process.view))
    for _ in range(24):
        one.do(Wake(), one.now + 5 * MS)
    assert one.did(StandingChanged) == [StandingChanged("stalled", ((0, 1), (2, 1)))]


def test_who_gives_way_takes_back_what_it_has_not_sent_in_its_order() -> None:
    one = member(2, options=SAFE)
    for payload in (b"1", b"2", b"3", b"4"):
        one.do(Submit(payload))
    one.hear(1, Commit(change_to(one.process.view, (0, 1), (9, 1))))
    assert [message.payload for message in one.process.lifecycle.queue] == [b"3", b"4"]


def test_a_leaver_forgets_what_it_has_not_sent() -> None:
    one = member(2, options=SAFE)
    for payload in (b"1", b"2", b"3"):
        one.do(Submit(payload))
    one.do(Leave(), one.now)
    inside = one.process.member
    assert inside is not None
    assert not inside.submissions.waiting


def test_a_leaver_that_is_left_out_writes_down_the_view_that_it_left() -> None:
    one = member(2, options=SAFE)
    one.do(Submit(b"mine"))
    one.do(Leave(), one.now)
    change = change_to(one.process.view, (0, 1), (9, 1))
    one.hear(1, Commit(change))
    saved = msgspec.msgpack.decode(one.did(Persist)[-1].state, type=Saved)
    assert (saved.view, saved.decision) == (change.new, change)
    assert one.process.view == change.new
    assert one.process.left


def test_an_incarnation_that_nobody_has_heard_of_leaves_no_trace() -> None:
    one = OneProcess(2, traced=True)
    one.do(Wake(), 0)
    view = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
    done = one.hear(0, Newer(view))
    assert one.process.id == process(2, 2)
    assert not any(isinstance(effect, TraceRow) for effect in done)
    without = view_after(view, (0, 1), (9, 0))
    one.hear(0, Newer(without))
    one.hear(0, Prepare((12, 0), without))
    done = one.hear(0, Newer(view_after(without, (0, 1), (12, 0))))
    assert TraceRow(process(2, 2), "leave", detail="excluded") in done
    assert one.process.id == process(2, 3)
    done = one.hear(0, Newer(view_after(view_after(without, (0, 1), (12, 0)), (0, 1), (13, 0))))
    assert one.process.id == process(2, 3), "it has not offered itself again"


# What a name remembers


def test_a_name_remembers_what_it_promised_in_a_view_that_it_offered_itself_for_or_came_from() -> None:
    one, new = joiner(OLD)
    assert one.process.remembers
    one.hear(1, Prepare((12, 1), new))
    one.hear(1, Commit(change_to(new, (0, 1, 7), (12, 1))))
    assert one.process.remembers
    lost = OneProcess(2)
    lost.do(Wake(), 0)
    assert lost.process.remembers, "before the first view there is nothing to remember"
    lost.hear(0, Newer(GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)))
    assert not lost.process.remembers
    lost.hear(0, Newer(GroupView(5, (4, 1), (0, 1, 2), (0, 0, 0), 3)))
    assert not lost.process.remembers, "what was in the view before was not remembered either"
    lost.hear(0, Newer(GroupView(6, (5, 1), (0, 1), (0, 0), 2)))
    assert lost.process.remembers, "it has no vote"


def test_what_is_saved_stands_and_the_first_ballot_leaves_a_gap_behind_what_was_promised() -> None:
    one = member(2)
    one.hear(0, Prepare((9, 0), one.process.view))
    (saved,) = [effect.state for effect in one.did(Persist)]
    again = OneProcess(2, saved=saved, first_round=500, first_incarnation=40)
    assert again.process.id == process(2, 2)
    agreement = again.process.lifecycle.agreement
    agreement.propose(again.process.id, (), again.process.detector.times.repetition((), 0), 0)
    assert agreement.round is not None
    assert agreement.round.ballot == (510, again.process.id)
    fresh = OneProcess(2).process.lifecycle.agreement
    fresh.propose(2, (), again.process.detector.times.repetition((), 0), 0)
    assert fresh.round is not None
    assert fresh.round.ballot == (1, 2)


def test_what_cannot_work_is_refused_when_a_process_is_made() -> None:
    def made(name: int = 0, options: GroupOptions = SAFE, membership: MembershipOptions = TIMES) -> Process:
        return Process(name, (0, 1, 2), options, membership, random.Random(1), 0)

    assert made(9_999).id == 9_999
    for name in (-1, 10_000):
        with pytest.raises(UsageError, match="name: 0 to 9999"):
            made(name)
    with pytest.raises(UsageError, match="heartbeat_ns"):
        made(membership=MembershipOptions(heartbeat_ns=0))
    with pytest.raises(UsageError, match="window"):
        made(options=msgspec.structs.replace(SAFE, window=0))
    shaped = GroupOptions(ordering="fifo", stability="train", stability_options={"ring": [0, 1, 2, 3]})
    assert made(options=shaped).id == 0, "a shape for another size gives way: views are of any size"
    with pytest.raises(UsageError, match="causal-blocks"):
        made(membership=msgspec.structs.replace(TIMES, slow="lag"))


# After a pause, and the slow


def test_a_pause_of_ones_own_takes_no_time_from_a_change_under_way() -> None:
    one = member(1)
    one.hear(0, Prepare((9, 0), one.process.view))
    before = one.now
    one.do(Wake(), before + 500 * MS)
    progress_at = one.process.lifecycle.agreement.progress_at
    assert before + 500 * MS - 2 * TIMES.heartbeat_ns < progress_at < one.now, "the time before the pause counts"
    assert one.take(Prepare) == []


def test_who_holds_all_back_is_accused_and_left_out() -> None:
    dropping = msgspec.structs.replace(TIMES, slow="drop")
    one = member(0, membership=dropping, options=SAFE)
    one.do(Submit(b"mine"))
    inside = one.process.member
    assert inside is not None
    inside.lag = lambda: {1: 0, 2: 9}  # type: ignore[method-assign]
    for now in range(5, 300, 5):
        one.alive(1, 2, now=now * MS)
        one.do(Wake())
    assert one.take(Prepare) == []
    for now in range(300, 320, 5):
        one.alive(1, 2, now=now * MS)
        one.do(Wake())
    assert one.process.lifecycle.slow.accused == {2}
    assert one.take(Prepare) != []
    one.hear(1, Prepare((30, 1), one.process.view))
    one.hear(1, Commit(change_to(one.process.view, (0, 1), (30, 1), reach=(1, 0, 0))))
    assert one.process.lifecycle.slow.accused == frozenset(), "each view begins without anyone accused"


def test_whoever_sends_data_lives_though_it_says_nothing_about_views() -> None:
    one = member(0)
    datagram = message_of(1)
    for now in range(5, 200, 5):
        one.alive(2, now=now * MS)
        one.do(Receive(datagram))
        one.do(Wake())
    assert one.take(Prepare) == []
    for now in range(200, 400, 5):
        one.alive(2, now=now * MS)
        one.do(Wake())
    assert one.take(Prepare) != []


# Those who are late, and what many say


def test_who_is_late_is_asked_for_a_sign_of_life_between_two_heartbeats() -> None:
    one = member(0, membership=MembershipOptions())
    asked: dict[int, int] = {}
    one.alive(2, now=20 * MS)
    for now in range(25 * MS, 400 * MS, 5 * MS):
        one.alive(1, now=now)
        one.do(Wake())
        for name, sign in one.take(Alive):
            if sign.asks:
                asked.setdefault(name, now)
    assert asked.keys() == {2}, "1 has spoken all the time"
    assert asked[2] == 120 * MS, "a heartbeat after it should have spoken"


def test_news_that_many_members_tell_is_looked_at_after_a_heartbeat() -> None:
    names = tuple(range(40))
    one = OneProcess(0, names, membership=MembershipOptions())
    one.do(Wake(), 0)
    one.installed(*names)
    for other in names[1:]:
        one.alive(other)
    one.do(Wake(), MS)
    for now in (50 * MS, 100 * MS):
        for other in names[1:]:
            one.hear(other, Alive(one.process.view.id, "member", period_ns=400 * MS), now=now)
        one.do(Wake())
    one.process.detector.beat_at = 9_000 * MS
    one.do(Wake())
    assert one.process.deadline is not None
    assert one.process.deadline > 151 * MS
    one.hear(3, Alive(one.process.view.id, "member", (5,)), now=101 * MS)
    assert one.process.detector.news
    assert one.process.deadline == 151 * MS


# Data that comes too early


def test_only_data_of_the_view_is_kept_while_it_is_not_confirmed_and_none_of_it_when_it_ends() -> None:
    one = member(0)
    session, datagram = one.process.lifecycle.session, message_of(1)
    assert session is not None
    session.keep_for_later(b"of another view", one.now)
    session.keep_for_later(datagram, one.now)
    assert session.take_what_was_kept() == [datagram]
    session.keep_for_later(datagram, one.now)
    session.end(one.now)
    assert session.take_what_was_kept() == [], "others are told what was taken"
    session.keep_for_later(datagram, one.now)
    session.keep_for_later(b"of the next view", one.now)
    assert session.take_what_was_kept() == [b"of the next view"]


def test_no_more_data_is_kept_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    one, datagram = member(0), message_of(1)
    monkeypatch.setattr("antiphon.protocol.membership.session._SET_ASIDE_BYTES_MAX", 3 * len(datagram))
    session = one.process.lifecycle.session
    assert session is not None
    for _ in range(2):
        for _ in range(5):
            session.keep_for_later(datagram, one.now)
        assert session.take_what_was_kept() == [datagram] * 3
