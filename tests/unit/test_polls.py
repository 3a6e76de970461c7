"""When a member asks for proposals that do not come: by how long they usually take, less often where it is in vain."""

from __future__ import annotations

from itertools import pairwise

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.ordering.two_phase.messages import Proposal, TwoPhaseOptions
from antiphon.protocol.ordering.two_phase.polls import Poll, Polls
from antiphon.protocol.pace import Pace

ASK = TwoPhaseOptions().ask_ns


def exact(pause_ns: int) -> int:
    return pause_ns


def test_proposals_are_asked_for_later_by_three_times_the_pace() -> None:
    options, pace = TwoPhaseOptions(), Pace(17)
    polls = Polls(options, exact, pace)
    assert polls.asking.at is None
    polls.begin(1, Poll(3, 0), 0)
    assert polls.asking.at == options.ask_ns
    pace.ns = 7 * MILLISECOND
    assert polls.wake(options.ask_ns) == [], "by now the poll is too young"
    assert polls.asks(options.ask_ns + 21 * MILLISECOND - 1) == {}
    assert polls.asks(options.ask_ns + 21 * MILLISECOND) == {0: [1], 1: [1], 2: [1]}


def test_a_poll_begun_while_words_gather_gives_answers_that_much_time() -> None:
    options, pace = TwoPhaseOptions(), Pace(17)
    pace.ns = 7 * MILLISECOND
    polls = Polls(options, exact, pace)
    polls.begin(1, Poll(2, 50), 50)
    assert polls.asking.at == 50 + options.ask_ns + 21 * MILLISECOND
    for host in (0, 1):
        polls.take(host, Proposal(seq=1, time=1), 60)
    assert polls.asking.at is None


class Group:
    """The polls of a member of two, without jitter: proposals for each message come as told."""

    def __init__(self) -> None:
        self.polls = Polls(TwoPhaseOptions(), exact, Pace(2))
        self.number = 0

    def begin(self, now: int) -> None:
        self.number += 1
        self.polls.begin(self.number, Poll(2, now), now)

    def propose(self, host: int, now: int) -> bool:
        """Take a proposal for the last message; say whether it decided it."""
        return self.polls.take(host, Proposal(seq=self.number, time=1), now) is not None

    def complete(self, began: int, took: int, asked: bool = False) -> None:
        """Begin a poll, ask for what is missing if that is wanted, and complete it."""
        self.begin(began)
        if asked:
            assert self.polls.wake(began + took - 1)
        self.propose(0, began + took)
        assert self.propose(1, began + took)

    def pause(self, now: int) -> int:
        """Return after how long the next poll is asked for, and complete that at once."""
        self.begin(now)
        assert self.polls.asking.at is not None
        pause = self.polls.asking.at - now
        assert self.polls.asks(now + pause - 1) == {}
        del self.polls.polls[self.number]
        self.polls.asking.stop()
        return pause


def test_how_long_proposals_may_take_is_learnt_from_polls_in_which_nobody_was_asked() -> None:
    group = Group()
    assert group.pause(0) == ASK
    group.complete(1_000, took=40 * MILLISECOND)
    assert group.pause(2 * SECOND) == 3 * 40 * MILLISECOND, "the mean, and four times a spread of half of it"
    group.complete(3 * SECOND, took=900 * MILLISECOND, asked=True)
    assert group.pause(5 * SECOND) == 120 * MILLISECOND, "whoever was asked may have answered that"


def test_quick_answers_do_not_make_it_ask_sooner_and_slow_ones_not_later_than_a_second() -> None:
    quick, slow = Group(), Group()
    quick.complete(0, took=MILLISECOND)
    slow.complete(0, took=49 * SECOND)
    assert (quick.pause(99 * SECOND), slow.pause(99 * SECOND)) == (ASK, SECOND)


def test_a_proposal_that_was_asked_for_in_vain_doubles_the_pause_once_for_each_time_of_asking() -> None:
    group = Group()
    group.polls.came_twice()
    assert group.pause(0) == ASK, "nobody had been asked"
    for doubled in (2, 4, 8, 16):
        group.begin(SECOND)
        assert group.polls.asking.at is not None
        assert group.polls.wake(group.polls.asking.at)
        for _ in range(3):
            group.polls.came_twice()
        group.propose(0, 2 * SECOND)
        group.propose(1, 2 * SECOND)
        assert group.pause(3 * SECOND) == doubled * ASK
    group.complete(4 * SECOND, took=MILLISECOND)
    assert group.pause(5 * SECOND) == ASK, "a poll was measured"


def test_a_pause_that_was_doubled_is_a_second_at_most() -> None:
    group = Group()
    for _ in range(12):
        group.begin(SECOND)
        assert group.polls.wake(9 * SECOND)
        group.polls.came_twice()
        group.propose(0, 9 * SECOND)
        group.propose(1, 9 * SECOND)
    assert group.pause(SECOND) == SECOND


def test_when_an_answer_comes_what_is_still_missing_is_asked_for_soon_and_from_the_first_pause_on() -> None:
    group = Group()
    group.begin(0)
    for _ in range(5):
        assert group.polls.asking.at is not None
        assert group.polls.wake(group.polls.asking.at)
    now = group.polls.asking.at - 3 * ASK
    assert not group.propose(0, now)
    times = [now]
    for _ in range(3):
        times.append(group.polls.asking.at)
        assert group.polls.wake(times[-1])
    assert [later - one for one, later in pairwise(times)] == [ASK, ASK, 2 * ASK]


def test_the_decision_is_the_greatest_proposal_and_of_equal_ones_that_of_the_last_host() -> None:
    poll = Poll(3, 0)
    for host, time in ((0, 7), (2, 7), (1, 3)):
        assert poll.missing
        poll.take(host, Proposal(seq=4, time=time))
    assert not poll.missing
    decision = poll.decision(4)
    assert (decision.seq, decision.time, decision.host) == (4, 7, 2)
