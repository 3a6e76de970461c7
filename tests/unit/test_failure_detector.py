"""Who is alive and hears whom, how long is waited for whom, and what each wants to be: the rules one by one."""

from __future__ import annotations

import pytest

from antiphon.protocol.machine import MILLISECOND, SECOND, Instant
from antiphon.protocol.membership.connectivity import LinkReports
from antiphon.protocol.membership.failure_detector import FailureDetector, Peer
from antiphon.protocol.membership.messages import ECHOES_MAX, Alive, Echo, Standing
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.outbox import OwnProcess
from antiphon.protocol.membership.roster import Roster
from antiphon.protocol.membership.timing import JoiningWave, Times
from antiphon.protocol.membership.views import NO_VIEW, GroupView, ViewId, before_the_first, process

MS = MILLISECOND
BEAT = 50 * MS
MEASURED = MembershipOptions()
FIXED = MembershipOptions(heartbeat_ns=10, suspect_ns=100)
VIEW = GroupView(4, (3, 1), (0, 1, 2), (0, 0, 0), 3)
ELDER = GroupView(3, (2, 1), (0, 1, 2), (0, 0, 0), 3)
NEWER = GroupView(5, (4, 1), (1, 2), (0, 0), 2)


def detector(*names: int, options: MembershipOptions = MEASURED, me: int = 0, now: Instant = 0) -> FailureDetector:
    return FailureDetector(OwnProcess(me, me), names, options, lambda pause: pause, now)


def alive(
    unheard: tuple[int, ...] = (),
    *,
    view: ViewId = VIEW.id,
    standing: Standing = "member",
    period_ns: int = 0,
    pause_ns: int = 0,
) -> Alive:
    return Alive(view, standing, unheard, period_ns=period_ns, pause_ns=pause_ns)


# Joining


def test_those_who_join_many_gather_while_one_comes_soon_after_the_other() -> None:
    times, wave = detector(*range(1, 30)).times, JoiningWave()
    assert (times.period_ns, times.arrival_ns) == (500 * MS, 112_500_000)
    wave.note(times, 100 * MS)
    assert wave.until == 212_500_000
    wave.look(212_499_999)
    wave.note(times, 212_499_999)
    assert wave.until == 324_999_999, "the next came in time"
    wave.note(times, 550 * MS)
    assert wave.until == 600 * MS, "at most a period in all"
    wave.look(600 * MS)
    assert wave.until is None
    wave.note(times, 2_000 * MS)
    assert wave.until == 2_112_500_000, "another wave"


def test_few_let_in_at_once_whoever_joins() -> None:
    wave = JoiningWave()
    wave.note(detector(*range(1, 24)).times, 100 * MS)
    assert wave.until is None


# Suspicion


def test_at_a_fixed_time_a_silent_name_is_suspected() -> None:
    one = detector(1, options=FIXED, now=50)
    assert not one.suspected(1, 150)
    assert one.suspected(1, 151)
    assert one.living(150) == {0, 1}
    assert one.living(151) == {0}
    assert one.unheard(151) == (1,)
    assert detector(1, options=FIXED).late(60) == [], "it knows the time and need not ask"


def test_whoever_spoke_last_in_time_is_alive_and_an_old_sign_of_life_takes_no_time_away() -> None:
    one = detector(1, options=FIXED)
    assert one.heard(1, 90)
    assert one.living(190) == {0, 1}
    assert one.living(191) == {0}
    assert one.heard(1, 191)
    assert one.living(191) == {0, 1}
    assert one.heard(1, 100)  # a member's data is noted with the time when it came, perhaps later
    assert not one.suspected(1, 290)


def test_what_is_heard_anew_is_news_and_what_is_heard_again_is_not() -> None:
    one = detector(1, options=FIXED)
    one.look(0)
    assert not one.news
    one.heard(1, 10)
    assert one.news, "it was never heard before"
    one.look(20)
    one.heard(1, 30)
    assert not one.news
    one.heard(1, 131)
    assert one.news, "it was suspected"
    one.look(140)
    one.says(1, alive(), 150)
    assert one.news, "it has another view"
    one.look(160)
    one.says(1, alive(), 170)
    assert not one.news
    one.heard(process(1, 2), 180)
    assert one.news, "it has begun anew"
    one.heard(1, 190)
    assert one.latest(1) == process(1, 2)


def test_a_later_incarnation_begins_anew_and_the_links_stay_what_they_are() -> None:
    one = detector(1, 2, options=FIXED)
    one.heard(1, 0)
    for _ in range(2):
        one.says(1, alive((2,)), 0)
    assert one.heard(process(1, 2), 10)
    peer = one.by_name[1]
    assert (peer.process, peer.view, peer.standing) == (process(1, 2), NO_VIEW, "joiner")
    assert peer.unheard == {2}


def test_a_sign_of_life_counts_at_once() -> None:
    one = detector(1, options=FIXED)
    one.heard(1, 0)
    assert one.living(200) == {0}
    one.heard(1, 200)
    assert one.living(200) == {0, 1}
    one.heard(process(1, 2), 210)
    assert not one.heard(1, 350)
    assert one.suspected(1, 350), "an earlier incarnation does not speak for a later one"
    assert one.latest(1) == process(1, 2)


def test_many_wait_for_more_when_one_that_is_new_is_heard_and_not_when_it_is_heard_again() -> None:
    one = detector(*range(1, 30))
    one.heard(1, 100 * MS)
    assert one.arrivals.until is not None
    one.arrivals.look(one.arrivals.until)
    assert one.arrivals.until is None
    one.heard(1, 5 * SECOND)
    assert one.arrivals.until is None
    one.heard(process(1, 2), 5 * SECOND)
    assert one.arrivals.until is not None


def test_a_name_is_met_once_and_has_time_to_speak() -> None:
    one = detector(1, options=FIXED)
    assert one.living(10) == {0, 1}
    one.meet((0, 1, 2), 10)
    assert set(one.by_name) == {1, 2}
    assert one.living(10) == {0, 1, 2}, "at once"
    assert one.suspected(1, 101)
    assert not one.suspected(2, 110)
    assert one.suspected(2, 111)
    assert one.latest(2) == 2
    assert one.heard(3, 20)
    assert set(one.by_name) == {1, 2, 3}


def test_a_process_lives_if_its_name_speaks_and_has_had_no_later_incarnation() -> None:
    one = detector(1, 2, options=FIXED)
    assert one.lives(0, 999)
    assert not one.lives(process(0, 2), 0)
    assert one.lives(process(1, 7), 0), "it was never heard, and may be about to speak"
    one.heard(process(1, 2), 0)
    assert one.lives(process(1, 2), 0)
    assert not one.lives(1, 0)
    assert not one.lives(process(1, 2), 101)


def test_everyone_is_given_time_to_speak() -> None:
    one = detector(1, options=FIXED)
    one.asked((1,), 0)
    assert one.living(101) == {0}
    one.refresh(101)
    assert one.living(101) == {0, 1}
    assert one.living(202) == {0}
    assert one.by_name[1].asked_at is None


def test_a_pause_of_ones_own_is_no_silence_of_others_and_neither_is_it_a_sign_of_life() -> None:
    one = detector(1, options=FIXED)
    one.heard(1, 0)
    one.asked((1,), 30)
    assert one.living(390) == {0}
    one.leave_out(300, 390)
    assert one.living(390) == {0, 1}
    assert one.living(401) == {0}, "before and after the pause it was silent for too long"
    assert one.by_name[1].asked_at == 330


def test_who_spoke_while_this_process_stood_still_was_not_late() -> None:
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    times.leave_out(5 * BEAT, 5 * BEAT)  # nothing was announced yet
    times.says(1, 0, Alive(VIEW.id, "member", period_ns=BEAT), 0)
    times.leave_out(5 * BEAT, 6 * BEAT)
    times.says(1, 0, Alive(VIEW.id, "member", period_ns=BEAT), 6 * BEAT)
    assert times.by_name[1].lateness.timeout_ns == 0


def test_a_pause_of_ones_own_is_no_round_trip() -> None:
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    usual_ns = times.retry_ns((1,))
    times.leave_out(7_000 * MS, 8_000 * MS)  # what was asked before is answered as soon as it goes on
    times.says(1, 0, Alive(VIEW.id, "member", echoes=(Echo(0, 900 * MS, 0),)), 8_001 * MS)
    assert times.retry_ns((1,)) == usual_ns
    times.says(1, 0, Alive(VIEW.id, "member", echoes=(Echo(0, 8_000 * MS, 0),)), 8_300 * MS)
    assert times.answer_ns((1,)) == 900 * MS, "what is asked afterwards measures again"


def test_a_name_that_should_be_about_to_speak_is_given_time_once() -> None:
    one = detector(1, options=FIXED)
    assert one.living(160) == {0}
    one.await_word((1, 7), 160)
    assert one.living(160) == {0, 1}
    one.await_word((1,), 250)
    assert one.living(261) == {0}, "a broken link would earn it for ever"
    one.heard(1, 270)
    one.await_word((1,), 300)
    assert one.living(400) == {0, 1}, "it has spoken since"


# Suspicion by what was measured


def test_without_a_fixed_time_a_name_is_suspected_nine_heartbeats_after_it_should_have_spoken() -> None:
    one = detector(1)
    due_at = BEAT  # as often as a small group speaks
    assert not one.suspected(1, due_at + 9 * BEAT)
    assert one.suspected(1, due_at + 9 * BEAT + 1)


def test_the_margin_grows_with_lateness_and_with_the_pauses_of_either_machine() -> None:
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    assert times.margin_ns(1, 0) == times.margin_ns_min == 9 * BEAT
    times.says(1, 0, Alive(VIEW.id, "member", pause_ns=7 * MS, period_ns=BEAT), 0)
    times.look(0)
    assert times.margin_ns(1, 0) == 9 * BEAT + 2 * 7 * MS
    times.look(BEAT + 3 * MS)  # this one's own machine kept it waiting
    assert times.margin_ns(1, 2 * BEAT) == 9 * BEAT + 2 * (3 + 7) * MS
    assert times.margin_ns(1, 2 * BEAT + 13 * SECOND) == 9 * BEAT + 2 * 7 * MS + 2 * (3 * MS // 2)
    late = Alive(VIEW.id, "member", period_ns=BEAT)
    times.says(1, 0, late, 2 * BEAT)  # announced for BEAT, later by as much again; before, nothing was due
    lateness = times.by_name[1].lateness.timeout_ns
    assert lateness > 0
    assert times.margin_ns(1, 2 * BEAT) == 9 * BEAT + lateness + 2 * 3 * MS


def test_who_was_suspected_teaches_nobody_to_wait_longer() -> None:
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    spoken_at = 0
    for late_ns, margin_ns in ((0, 9 * BEAT), (9 * BEAT + 1, 9 * BEAT)):
        times.says(1, 0, Alive(VIEW.id, "member", period_ns=BEAT), spoken_at)
        spoken_at += BEAT + late_ns
        times.says(1, 0, Alive(VIEW.id, "member", period_ns=BEAT), spoken_at)
        assert times.margin_ns(1, 0) == margin_ns
        spoken_at += BEAT
    times.says(1, 0, Alive(VIEW.id, "member", period_ns=BEAT), spoken_at + 9 * BEAT)
    assert times.margin_ns(1, 0) > 9 * BEAT, "so late at most, and it counts"


def test_a_busy_machine_is_not_taken_for_a_dead_one() -> None:
    one = detector(1)
    one.heard(1, 0)
    one.says(1, Alive(VIEW.id, "member", period_ns=BEAT, pause_ns=7 * MS), 0)
    assert not one.suspected(1, BEAT + 9 * BEAT + 14 * MS)
    assert one.suspected(1, BEAT + 9 * BEAT + 14 * MS + 1)
    away = detector(1)
    away.look(0)
    assert away.living(11 * BEAT) == {0}
    away.look(11 * BEAT)
    assert away.living(11 * BEAT) == {0, 1}, "this one's own machine kept it waiting"


def test_another_machines_pauses_and_periods_are_believed_within_reason() -> None:
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    assert times.expected_ns(1) == BEAT
    times.says(1, 0, Alive(VIEW.id, "member", pause_ns=99 * SECOND, period_ns=99 * SECOND), 0)
    assert times.expected_ns(1) == 60 * SECOND
    assert times.margin_ns(1, 0) == 9 * BEAT + 2 * times.away_ns
    times.says(1, 0, Alive(VIEW.id, "member"), 0)
    assert times.expected_ns(1) == BEAT, "one that says nothing of it speaks as often as all"


def test_who_is_late_is_asked_every_heartbeat_until_it_is_suspected() -> None:
    one = detector(1, 2)
    one.heard(1, 0)
    one.heard(2, 0)
    for now in (0, BEAT):
        assert one.look(now) == []
    one.heard(2, BEAT)
    assert one.look(2 * BEAT - 1) == []
    assert one.look(2 * BEAT) == [1]
    assert one.look(2 * BEAT + 1) == [], "it was just asked"
    for beat in range(3, 11):
        one.heard(2, beat * BEAT)
        assert one.look(beat * BEAT) == [1]
    assert one.look(10 * BEAT + 1) == []
    one.heard(2, 11 * BEAT)
    assert one.look(11 * BEAT) == [], "it is suspected"


def test_many_who_speak_seldom_are_asked_as_soon_as_they_are_late_and_then_every_heartbeat() -> None:
    names = range(1, 12)
    one = detector(*names)
    period_ns = 4 * BEAT
    for name in names:
        one.heard(name, 0)
        one.says(name, alive(period_ns=period_ns), 0)
    asked = {beat: one.look(beat * BEAT) for beat in range(8)}
    assert one.times.period_ns == period_ns
    assert {beat: len(late) for beat, late in asked.items()} == {0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 11, 6: 11, 7: 11}


def test_the_next_look_is_when_somebody_will_be_late() -> None:
    one = detector(1)
    one.heard(1, 0)
    one.beat_at = 5 * BEAT
    one.look(10 * MS)
    assert one.look_at == 60 * MS, "a heartbeat from now"
    one.look(60 * MS)
    assert one.look_at == 100 * MS, "it is late a heartbeat after it should have spoken"
    one.look(100 * MS)
    assert one.look_at == 150 * MS, "and is asked again"
    one.beat_at = 120 * MS
    assert one.look_at == 120 * MS
    fixed = detector(1, options=FIXED)
    fixed.beat_at = 99
    fixed.look(0)
    assert fixed.look_at == 10


def test_who_was_asked_has_to_answer_sooner_than_it_would_have_spoken() -> None:
    one = detector(1)
    one.heard(1, 0)
    one.says(1, alive(period_ns=10 * SECOND), 0)
    assert not one.suspected(1, 10 * SECOND + 9 * BEAT)
    one.asked((1, 7), SECOND)
    one.asked((1,), 5 * SECOND)  # again: the first question counts
    answer_ns = one.times.answer_ns((1,))
    assert answer_ns == 2 * BEAT, "before anything was measured"
    assert not one.suspected(1, SECOND + answer_ns + 9 * BEAT)
    assert one.suspected(1, SECOND + answer_ns + 9 * BEAT + 1)
    assert one.living(SECOND + answer_ns + 9 * BEAT + 1) == {0}
    one.heard(1, 5 * SECOND)
    assert not one.suspected(1, 14 * SECOND), "it has answered"


# Signs of life


def test_few_speak_every_heartbeat_and_many_less_often() -> None:
    def period(others: int) -> int:
        return detector(*range(1, others + 1)).times.period_ns

    assert [period(others) for others in (0, 1, 2, 3, 5, 63)] == [
        BEAT,
        BEAT,
        BEAT,
        BEAT * 4 // 3,
        2 * BEAT,
        BEAT * 64 // 3,
    ]
    assert detector(*range(1, 64), options=FIXED).times.period_ns == 10


def test_news_is_told_at_once_by_few_and_many_let_it_gather() -> None:
    assert detector(1, 2).times.news_ns == 0
    assert detector(*range(1, 12)).times.news_ns == 3 * BEAT // 4
    assert detector(*range(1, 24)).times.gathering_ns == 0
    assert detector(*range(1, 25)).times.gathering_ns == BEAT


def test_a_sign_of_life_says_when_the_next_comes_and_what_is_new_in_it_is_told_twice_soon() -> None:
    one = detector(*range(1, 12))
    sign = one.sign(VIEW.id, "member", 0)
    assert (sign.view, sign.standing, sign.unheard, sign.period_ns) == (VIEW.id, "member", (), 4 * BEAT)
    assert one.beat_at == 4 * BEAT
    for name in range(1, 11):
        one.heard(name, 100 * BEAT)
    sign = one.sign(VIEW.id, "member", 100 * BEAT)
    assert sign.unheard == (11,)
    assert not sign.asks
    assert one.beat_at == 101 * BEAT, "two reports in succession count"
    one.sign(VIEW.id, "member", 101 * BEAT)
    assert one.beat_at == 105 * BEAT
    question = one.question(VIEW.id, "joiner", 101 * BEAT)
    assert question.asks
    assert (question.standing, question.unheard, question.at) == ("joiner", (11,), 101 * BEAT)
    assert one.beat_at == 105 * BEAT


def test_who_falls_silent_is_news_that_is_told_soon() -> None:
    one = detector(*range(1, 12))
    one.sign(VIEW.id, "member", 0)
    one.look(BEAT)
    assert one.beat_at == 4 * BEAT
    one.beat_at = 999 * SECOND
    one.look(20 * BEAT)
    assert one.beat_at == 20 * BEAT + one.times.news_ns
    one.tell_soon(30 * BEAT)
    assert one.beat_at == 20 * BEAT + one.times.news_ns, "not later than it was to be anyway"


def test_one_report_of_silence_may_be_of_a_moments_loss_and_two_count() -> None:
    peer = Peer(0)
    assert peer.says(alive((2, 3)))
    assert peer.unheard == frozenset()
    assert peer.says(alive((3, 4)))
    assert peer.unheard == {3}
    assert peer.says(alive((3,)))
    assert not peer.says(alive((3,)))
    assert peer.says(alive(()))
    assert peer.unheard == frozenset()
    assert peer.says(alive((), standing="leaver"))
    assert peer.says(alive((), view=NEWER.id, standing="leaver"))


def test_when_links_changed_is_when_the_first_of_several_reports_came() -> None:
    one = detector(1, 2, options=FIXED, now=5)
    assert one.links.changed_at == 5 - SECOND
    one.heard(1, 10)
    one.says(1, alive(()), 10)
    assert one.links.changed_at == 5 - SECOND, "nothing is reported"
    one.says(1, alive((2,)), 20)
    assert one.links.changed_at == 20
    one.says(1, alive(()), 20 + SECOND - 1)
    assert one.links.changed_at == 20, "for a while it is the same news"
    one.says(1, alive((2,)), 20 + SECOND)
    assert one.links.changed_at == 20 + SECOND
    other = detector(1, options=FIXED)
    other.look(50)
    assert other.links.changed_at == -SECOND
    other.look(101)  # name 1 is silent
    assert other.links.changed_at == 101


def test_signs_of_life_echo_others_so_that_round_trips_are_measured() -> None:
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    for name in range(1, 12):
        times.meet(name)
        times.says(name, 0, Alive(VIEW.id, "member", at=100 + name), 1_000)
    assert times.sign(Alive(VIEW.id, "member"), 1_500, to=9).echoes == (Echo(9, 109, 500),)
    assert times.sign(Alive(VIEW.id, "member"), 1_500, to=9).echoes == (), "once each"
    sign = times.sign(Alive(VIEW.id, "member"), 1_600)
    assert sign.echoes == tuple(Echo(name, 100 + name, 600) for name in range(1, 1 + ECHOES_MAX))
    assert (sign.at, sign.period_ns) == (1_600, times.period_ns)
    assert [echo.name for echo in times.sign(Alive(VIEW.id, "member"), 1_700).echoes] == [10, 11], (
        "those whose turn it is"
    )
    assert times.sign(Alive(VIEW.id, "member"), -5).at == 0, "a clock may begin before zero"
    times.says(1, 0, Alive(VIEW.id, "member"), 2_000)
    assert times.sign(Alive(VIEW.id, "member"), 2_100).echoes == (), "what says no time cannot be echoed"


def test_a_round_trip_is_what_an_echo_took_without_the_time_it_was_held() -> None:
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    for echo in (Echo(7, 100 * MS, 0), Echo(0, 150 * MS, 51 * MS)):
        times.says(1, 0, Alive(VIEW.id, "member", echoes=(echo,)), 200 * MS)
        assert times.by_name[1].answers.mean_ns is None, "of another's, or of what was not said yet"
    times.says(1, 0, Alive(VIEW.id, "member", echoes=(Echo(0, 150 * MS, 20 * MS),)), 200 * MS)
    assert times.by_name[1].answers.mean_ns == 30 * MS
    times = Times(MembershipOptions(), lambda pause: pause, 0)
    times.meet(1)
    times.says(1, 0, Alive(VIEW.id, "member", echoes=(Echo(0, 150 * MS, 50 * MS),)), 200 * MS)
    assert times.by_name[1].answers.mean_ns == 0, "at once"
    times = Times(MembershipOptions(), lambda pause: pause, 60_000 * MS)
    times.meet(1)
    times.says(1, 0, Alive(VIEW.id, "member", echoes=(Echo(0, 150 * MS, 20 * MS),)), 60_010 * MS)
    assert times.by_name[1].answers.mean_ns is None, "of an earlier start, when the clock was another"


# How long is waited for what


def test_what_one_who_stood_still_was_asked_meanwhile_is_no_round_trip() -> None:
    """It answered questions that had lain in its socket for two seconds: all waited four seconds for what was lost."""
    times = detector(1).times
    times.says(1, 0, alive(), 0)
    before = times.answer_ns((1,))
    for asked in (100, 200, 300):  # all that waited is answered at once
        times.says(1, 0, Alive(VIEW.id, "member", echoes=(Echo(0, asked * MS, 0),)), 2_000 * MS)
    assert times.answer_ns((1,)) == before
    times.says(1, 0, Alive(VIEW.id, "member", echoes=(Echo(0, 2_001 * MS, 0),)), 2_021 * MS)
    assert times.answer_ns((1,)) == 60 * MS, "what it is asked since is"


def test_every_time_is_longer_than_the_one_that_it_waits_for() -> None:
    times = detector(1, 2).times
    answer_ns, margin_ns = 2 * BEAT, 9 * BEAT
    assert times.answer_ns((1, 2, 9)) == answer_ns
    assert times.answer_ns(()) == BEAT
    assert times.suspicion_ns((1, 2), 0) == BEAT + margin_ns
    assert times.suspicion_ns((), 0) == 10 * BEAT
    times.says(2, 0, Alive(VIEW.id, "member", period_ns=3 * BEAT, pause_ns=MS), 0)
    assert times.suspicion_ns((1, 2, 9), 0) == 3 * BEAT + margin_ns + 2 * MS
    assert times.grace_ns((1, 2, 9), 0) == margin_ns + 2 * MS + 3 * answer_ns
    times = detector(1, 2).times
    assert times.grace_ns((1, 2), 0) == margin_ns + 3 * answer_ns
    assert times.grace_ns((), 0) == 3 * BEAT
    assert [times.patience_ns((1,), tries, 0) // times.grace_ns((1,), 0) for tries in range(7)] == [
        2,
        2,
        4,
        8,
        16,
        16,
        16,
    ]
    assert times.stall_ns((1,), 0) == 2 * times.grace_ns((1,), 0) > SECOND
    assert times.slow_ns((1,), 2) == SECOND
    assert times.lifetime_ns(()) == times.lifetime_ns((7,)) == SECOND, "nothing was measured"
    assert times.retry_ns((1,)) == answer_ns
    assert times.settling_ns((1,)) == 3 * BEAT + answer_ns
    assert times.farewell_ns((1,)) == 8 * answer_ns


def test_a_slow_network_is_given_more_time() -> None:
    times = detector(1, 2).times
    for _ in range(40):
        times.by_name[2].answers.measured(600 * MS)
    answer_ns = times.answer_ns((1, 2))
    assert answer_ns == times.by_name[2].answers.timeout_ns > 600 * MS
    assert times.slow_ns((2,), 2) == 4 * answer_ns
    assert times.slow_ns((2,), 12) == 14 * answer_ns, "two rounds of a train of six, and two repairs"
    assert times.lifetime_ns((2,)) == 12 * answer_ns, "time for several repairs"
    assert times.retry_ns((2,)) == answer_ns
    assert times.retry_ns((7,)) == BEAT


def test_a_time_that_is_given_stands() -> None:
    given = MembershipOptions(
        heartbeat_ns=10,
        retry_ns=7,
        suspect_ns=100,
        grace_ns=31,
        patience_ns=41,
        stall_ns=51,
        slow_ns=61,
        lifetime_ns=71,
    )
    times = detector(1, options=given).times
    assert times.suspicion_ns((1,), 0) == 100
    assert times.grace_ns((1,), 0) == 31
    assert times.patience_ns((1,), 1, 0) == 41
    assert times.stall_ns((1,), 0) == 51
    assert times.slow_ns((1,), 12) == 61
    assert times.lifetime_ns((1,)) == 71
    assert times.away_ns == 2 * 100 // 5
    assert detector(1).times.away_ns == 4 * BEAT


def test_a_question_is_repeated_at_once_and_then_less_and_less_often() -> None:
    again = detector(1, options=MembershipOptions(heartbeat_ns=10, retry_ns=1_000)).times.repetition((7,), 50)
    rang = [now for now in range(50, 40_050, 1_000) if again.over(now)]
    assert rang == [50, 1_050, 3_050, 7_050, 15_050, 23_050, 31_050, 39_050]


def test_a_process_was_away_if_it_looks_later_than_it_wanted_to() -> None:
    times = detector(1, 2).times
    assert times.away_ns == 4 * BEAT
    times.look(10)
    assert times.look_at == 10 + BEAT
    assert times.away_for_ns(10 + BEAT + times.away_ns) == 0
    assert times.away_for_ns(10 + BEAT + times.away_ns + 1) == times.away_ns + 1
    many = detector(*range(1, 60)).times
    many.look(0)
    assert many.look_at == many.away_ns, "who speaks seldom looks around all the same"


# Who hears whom


def reported(one: FailureDetector, reporter: int, *unheard: int, now: Instant = 0) -> None:
    one.heard(reporter, now)
    for _ in range(2):
        one.says(reporter, alive(unheard), now)


def test_those_who_hear_one_another_are_chosen_from_the_reports_and_the_living() -> None:
    one = detector(1, 2, 3, options=FIXED)
    reported(one, 3, 2)
    assert one.connected((0, 1, 2, 3), 0) == (0, 1, 2)
    assert one.connected((3, 2, 1), 0) == (3, 1)
    one.heard(1, 50)
    assert one.connected((0, 1, 2, 3), 101) == (0, 1), "the suspected are left out"


def test_where_each_side_goes_on_those_who_are_left_out_choose_among_themselves() -> None:
    sides = MembershipOptions(heartbeat_ns=10, suspect_ns=100, partition="each-side")
    one = detector(0, 1, 2, 4, options=sides, me=3)
    reported(one, 0, 3, 4)
    reported(one, 1, 3, 4)
    reported(one, 2, 3, 4)
    assert one.connected((0, 1, 2, 3, 4), 0) == (3, 4)
    assert one.connected((0, 1, 2, 4), 0) == (0, 1, 2), "one's own name is not among these"
    assert detector(0, 1, 2, 4, options=FIXED, me=3).connected((0, 1, 2, 3, 4), 0) == (0, 1, 2, 3, 4)


def test_who_would_join_others_hears_and_is_heard_by_all_of_them() -> None:
    one = detector(1, 2, 3, options=FIXED)
    assert one.hears_and_is_heard_by((0, 1, 2), 0)
    reported(one, 2, 0)
    assert not one.hears_and_is_heard_by((1, 2), 0)
    assert one.hears_and_is_heard_by((0, 1, 3), 0)
    reported(one, 3, 1)
    assert one.hears_and_is_heard_by((1, 3), 0), "what is broken between others is not its own link"
    assert not one.hears_and_is_heard_by((1,), 101)


def test_reports_are_in_when_all_say_the_same_or_there_was_time_to_say_more() -> None:
    one = detector(1, 2, 3, options=FIXED)
    one.links.changed_at = 0
    view = GroupView(1, (1, 0), (0, 1, 2, 3), (0, 0, 0, 0), 0)

    def are_in(*names: int) -> bool:
        return one.reports_are_in(names, 150, view.is_quorum)

    for now in (60, 150):
        one.heard(1, now)
        one.heard(2, now)
    assert are_in(0, 1, 2), "3 is of no interest"
    assert not are_in(0, 1, 2, 3), "only this process has noticed that 3 is silent"
    one.says(1, alive((3,)), 150)
    assert not are_in(0, 1, 2, 3)
    one.says(2, alive((3,)), 150)
    assert are_in(0, 1, 2, 3), "it is dead: there is nothing to choose, and each says so once"
    one.says(2, alive((1, 3)), 150)
    assert not are_in(0, 1, 2, 3), "a doubt counts at once, too"
    one.links.changed_at = 150 - one.times.settling_ns((0, 1, 2, 3))
    assert are_in(0, 1, 2, 3)


@pytest.mark.parametrize("dead", [True, False])
def test_where_machines_stand_still_reports_have_longer_to_come_unless_a_quorum_names_the_same_dead(dead: bool) -> None:
    one = detector(1, 2, 3, options=FIXED)
    view = GroupView(1, (1, 0), (0, 1, 2, 3), (0, 0, 0, 0), 0)
    for now in (60, 150):
        for other in (1, 2, 3)[: 2 if dead else 3]:
            one.heard(other, now)
    one.says(1, alive((3,), pause_ns=7), 150)
    settling_ns = one.times.settling_ns((0, 1, 2, 3))
    longer_ns = one.times.reporting_ns((0, 1, 2, 3), 150)
    assert longer_ns >= settling_ns + 4 * 7, "of two members, each may stand still, and wait for as long as it did"
    for passed_ns, are_in in ((settling_ns - 1, False), (settling_ns, dead), (longer_ns - 1, dead), (longer_ns, True)):
        one.links.changed_at = 150 - passed_ns
        assert one.reports_are_in((0, 1, 2, 3), 150, view.is_quorum) is are_in


def test_broken_links_are_named_by_the_reports_of_the_living_and_ones_own() -> None:
    one = detector(1, 2, 3, options=FIXED)
    reported(one, 1, 2)
    reported(one, 3, 1)
    one.heard(1, 60)
    assert one.broken_links((0, 1, 2, 3), 0) == ((1, 3), (2, 1))
    assert one.broken_links((0, 1, 2, 3), 101) == ((2, 0), (2, 1), (3, 0)), "3 is not heard, so what it said is old"
    assert one.broken_links((0, 1), 101) == ()


def test_where_times_are_measured_those_about_to_be_suspected_may_be_counted() -> None:
    one = detector(1, 2)
    one.heard(1, 0)
    one.heard(2, BEAT)
    half = BEAT + one.times.margin_ns_min // 2
    assert one.broken_links((0, 1, 2), half) == ()
    assert one.broken_links((0, 1, 2), half - 1, count_late=True) == ()
    assert one.broken_links((0, 1, 2), half, count_late=True) == ((1, 0),)
    fixed = detector(1, options=FIXED)
    assert fixed.broken_links((0, 1), 99, count_late=True) == ()


# What everyone wants to be


def roster(one: FailureDetector, own: OwnProcess, *, sides: bool = False) -> Roster:
    return Roster(own, one, sides=sides)


def told(
    *said: tuple[int, Standing, ViewId], own: Standing = "member", sides: bool = False, me: int = 0
) -> tuple[FailureDetector, OwnProcess, Roster]:
    """Give a detector that has heard these processes, its own process and the roster above them."""
    options = MembershipOptions(heartbeat_ns=10, suspect_ns=100, partition="each-side" if sides else "majority")
    mine = OwnProcess(me, me, own)
    one = FailureDetector(mine, (), options, lambda pause: pause, 0)
    for process_id, standing, view in said:
        one.heard(process_id, 0)
        one.says(process_id, Alive(view, standing), 0)
    return one, mine, roster(one, mine, sides=sides)


def test_a_member_stays_that_speaks_in_the_incarnation_that_the_view_lists() -> None:
    one, _, who = told((1, "member", VIEW.id), (process(2, 2), "joiner", NO_VIEW))
    assert who.staying(VIEW, 0) == [0, 1]
    assert who.staying(VIEW, 101) == [0]
    assert who.staying(before_the_first((0, 1)), 0) == []
    one.meet((5,), 0)
    unspoken = GroupView(4, (3, 1), (0, 1, 5, 6), (0, 0, 0, 0), 3)
    assert who.staying(unspoken, 0) == [0, 1, 5], "one that was never heard may be about to speak"


def test_one_follows_the_first_member_of_a_view_as_long_as_it_speaks_and_does_not_leave() -> None:
    said: tuple[tuple[int, Standing, ViewId], ...] = ((0, "member", VIEW.id), (2, "leaver", VIEW.id))
    _, _, who = told(*said, me=1)
    assert who.follows_another(VIEW, 0)
    assert not who.follows_another(VIEW, 101), "it has fallen silent"
    assert not who.follows_another(before_the_first((0, 1)), 0), "a view that is not there has no first member"
    assert who.follows_another(GroupView(1, (1, 0), (0, 1), (0, 0), 2), 0)
    assert not who.follows_another(GroupView(4, (3, 1), (1, 0), (0, 0), 2), 0), "it is the first itself"
    assert not who.follows_another(GroupView(4, (3, 1), (2, 1), (0, 0), 2), 0), "the first one leaves"


def test_where_each_side_goes_on_who_knows_a_newer_view_has_gone_to_another() -> None:
    said = ((1, "member", VIEW.id), (2, "member", NEWER.id))
    _, _, who = told(*said, sides=True)
    assert who.staying(VIEW, 0) == [0, 1]
    assert who.gone_on(VIEW) == {2}
    assert who.stays(1, VIEW, 0)
    assert not who.stays(2, VIEW, 0)
    assert who.stays(2, NEWER, 0)
    assert who.stays(0, VIEW, 0)
    _, _, who = told(*said)
    assert who.staying(VIEW, 0) == [0, 1, 2]
    assert who.stays(2, VIEW, 0)
    assert not who.stays(2, VIEW, 101)


def test_who_has_said_that_it_is_in_a_view_or_further_knows_it() -> None:
    _, _, who = told((1, "member", VIEW.id), (process(2, 2), "joiner", ELDER.id))
    assert who.knows(1, VIEW.id)
    assert who.knows(1, ELDER.id)
    assert not who.knows(1, NEWER.id)
    assert who.knows(process(2, 2), ELDER.id)
    assert not who.knows(2, ELDER.id), "an earlier incarnation said nothing"
    assert not who.knows(7, ELDER.id)


def test_who_lives_and_does_not_join_and_knows_only_an_older_view_is_behind() -> None:
    for standing, behind in (("member", True), ("leaver", True), ("joiner", False), ("behind", False)):
        _, _, who = told((1, standing, ELDER.id), (2, "member", VIEW.id))  # type: ignore[arg-type]
        assert who.behind(VIEW.id, 0) is behind
        assert not who.behind(ELDER.id, 0)
        assert not who.behind(VIEW.id, 101)
    one, _, who = told()
    one.meet((5,), 0)
    assert not who.behind(VIEW.id, 0)


def test_joiners_are_the_living_that_say_so_and_are_not_in_the_view_by_name() -> None:
    one, mine, who = told(
        (process(2, 2), "joiner", NO_VIEW), (1, "member", VIEW.id), (3, "joiner", VIEW.id), (4, "behind", VIEW.id)
    )
    one.meet((6,), 0)
    assert who.joiners(VIEW, 0) == [process(2, 2), 3]
    assert who.joiners(VIEW, 101) == []
    mine.standing = "joiner"
    assert who.joiners(VIEW, 0) == [0, process(2, 2), 3]
    mine.full = True
    assert who.joiners(VIEW, 0) == [process(2, 2), 3], "its application is too far behind"
    listed = GroupView(4, (3, 1), (0, 3), (0, 0), 1)
    assert who.joiners(listed, 0) == [process(2, 2)]
    _, _, who = told((3, "joiner", VIEW.id), (4, "joiner", ELDER.id), sides=True)
    assert who.joiners(VIEW, 0) == [3], "with sides, who joins has chosen a view"


def test_leavers_say_so() -> None:
    one, mine, who = told((1, "leaver", VIEW.id), (2, "member", VIEW.id))
    one.meet((6,), 0)
    assert who.leavers() == {1}
    mine.standing = "leaver"
    assert who.leavers() == {0, 1}


def test_founders_that_were_never_heard_may_be_about_to_speak() -> None:
    one, _, who = told((1, "joiner", NO_VIEW))
    one.meet((2, 9), 0)
    assert who.coming(before_the_first((0, 1, 2)), 0) == {2}
    assert who.coming(before_the_first((0, 1, 2)), 101) == frozenset()


def test_who_awaits_the_state_or_has_not_begun_the_view_is_without_it() -> None:
    one, _, who = told((1, "awaiting", VIEW.id), (2, "joiner", VIEW.id), (3, "joiner", VIEW.id))
    one.meet((6,), 0)
    assert who.without_state(VIEW) == {1, 2}
    _, _, who = told((1, "member", VIEW.id), (2, "leaver", VIEW.id))
    assert who.without_state(VIEW) == set()


def test_a_view_has_members_if_one_that_it_lists_lives_and_says_that_it_is_in_it() -> None:
    for standing, view, has in (
        ("member", VIEW.id, True),
        ("awaiting", VIEW.id, True),
        ("joiner", VIEW.id, False),
        ("member", ELDER.id, False),
    ):
        one, _, who = told((1, standing, view))  # type: ignore[arg-type]
        one.meet((6,), 0)
        assert who.has_members(VIEW, 0) is has
        assert not who.has_members(VIEW, 101)
    _, _, who = told((3, "member", VIEW.id))
    assert not who.has_members(VIEW, 0)


def test_the_first_living_member_that_does_not_leave_proposes_or_who_joins_or_who_leaves() -> None:
    _, mine, who = told((1, "member", VIEW.id), (2, "leaver", VIEW.id), (3, "joiner", VIEW.id))
    assert who.candidates(VIEW, (), (3,), 0) == [0, 1]
    assert who.candidates(VIEW, (0,), (3,), 0) == [1]
    mine.standing = "leaver"
    assert who.candidates(VIEW, (1,), (3,), 0) == [3]
    assert who.candidates(VIEW, (1,), (), 0) == [0, 2]
    one, _, who = told((2, "joiner", NO_VIEW), own="joiner", me=1)
    one.meet((0, 9), 0)
    assert who.candidates(before_the_first((0, 1, 2)), (), (1, 2), 0) == [0, 1, 2]


def test_a_view_is_due_to_change_when_one_joins_is_silent_leaves_or_is_unwanted() -> None:
    one, mine, who = told((1, "member", VIEW.id), (2, "member", VIEW.id))
    assert not who.change_due(VIEW, (), (), 0)
    assert who.change_due(VIEW, (), (3,), 0)
    assert who.change_due(VIEW, (2,), (), 0)
    assert who.change_due(VIEW, (), (), 101)
    mine.standing = "leaver"
    assert who.change_due(VIEW, (), (), 0)
    one, _, who = told((1, "member", VIEW.id), (2, "member", VIEW.id), sides=True)
    reported(one, 1, 2)
    one.links.changed_at = 0
    settled_at = one.times.settling_ns((1, 2))
    one.refresh(settled_at)
    assert not who.change_due(VIEW, (2,), (), settled_at - 1), "the reports of broken links must be in"
    assert who.change_due(VIEW, (2,), (), settled_at)
    assert who.change_due(VIEW, (2,), (3,), 0)


def test_where_each_side_goes_on_those_of_another_side_are_not_stopped() -> None:
    one, _, who = told((1, "member", VIEW.id), (2, "member", VIEW.id), (3, "joiner", VIEW.id), sides=True)
    reported(one, 2, 0)
    assert who.targets(VIEW, (3, 1), 0) == (0, 1, 3)
    _, _, who = told((1, "member", VIEW.id))
    assert who.targets(VIEW, (process(2, 2), 3), 0) == (0, 1, 2, 3)


@pytest.mark.parametrize("standing", ["member", "leaver"])
def test_an_own_process_offers_itself_with_ballots_of_which_it_remembers_the_last(standing: Standing) -> None:
    mine = OwnProcess(3, 3, standing)
    assert mine.leaving is (standing == "leaver")
    assert not mine.offered
    for round_number in range(20):
        mine.offer((round_number, 1))
        mine.offer((round_number, 1))
    assert mine.offered
    assert mine.ballots == tuple((round_number, 1) for round_number in range(3, 20))


def test_the_first_news_of_links_after_a_quiet_time_is_news_however_long_reports_take() -> None:
    """It once counted as what had been told already, so that who had stood still left out all who had not."""
    links = LinkReports(0)
    links.note_change(2 * SECOND, reporting_ns=3 * SECOND)
    assert links.changed_at == 2 * SECOND
    links.note_change(8 * SECOND - 1, reporting_ns=SECOND)
    assert links.changed_at == 2 * SECOND, "the same news"
    links.note_change(8 * SECOND, reporting_ns=9 * SECOND)
    assert links.changed_at == 8 * SECOND
