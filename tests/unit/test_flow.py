from __future__ import annotations

import pytest

from antiphon.errors import LocalProtocolError
from antiphon.protocol.flow import FlowControl, Submissions
from antiphon.protocol.machine import Submit
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.pace import Pace
from antiphon.protocol.recovery import RecoveryOptions


def test_the_window_bounds_what_is_unstable() -> None:
    flow = FlowControl(size=4, window=3, buffer=100)
    assert [flow.open(outstanding) for outstanding in range(5)] == [True, True, True, False, False]


def test_the_poorest_member_bounds_everyone() -> None:
    flow = FlowControl(size=4, window=3, buffer=100)
    flow.free[2] = 7
    assert flow.credit() == 1
    assert flow.open(0)
    assert not flow.open(1)
    flow.free[2] = 3
    assert not flow.open(0)
    flow.free[2] = 100
    assert flow.open(2)


def test_credit_is_asked_of_those_that_lack_it_alone() -> None:
    flow = FlowControl(size=4, window=3, buffer=100)
    assert flow.poor() == ()
    flow.free[1] = 3
    flow.free[2] = 4
    flow.free[3] = 0
    assert flow.poor() == (1, 3)


OPTIONS = GroupOptions(queue=2, payload_bytes_max=10)
PAUSE = OPTIONS.recovery.heartbeat_ns


def submissions() -> Submissions:
    return Submissions(FlowControl(size=3, window=3, buffer=9), OPTIONS, lambda pause_ns: pause_ns, Pace(3))


def test_submissions_wait_in_order_and_no_more_than_there_is_room_for() -> None:
    waiting = submissions()
    assert waiting.room == 2
    waiting.add(Submit(b"first"))
    waiting.add(Submit(b"0123456789"))
    assert waiting.room == 0
    with pytest.raises(LocalProtocolError, match="2 submissions wait"):
        waiting.add(Submit(b"one more"))
    assert waiting.next() == Submit(b"first")
    assert (waiting.sent, waiting.room) == (1, 1)
    with pytest.raises(LocalProtocolError, match="11 bytes is over the limit of 10"):
        waiting.add(Submit(b"0123456789a"))
    assert [*waiting.take_back()] == [Submit(b"0123456789")]
    assert (waiting.sent, waiting.room) == (1, 2)


def test_who_starves_asks_those_without_room_after_a_while_and_again_until_it_has_credit() -> None:
    waiting = submissions()
    waiting.flow.free[2] = 0
    assert waiting.starved.at is None
    assert waiting.to_ask(10**12) == ()
    waiting.ask_if(True, 100)
    assert waiting.starved.at == 100 + PAUSE
    waiting.ask_if(True, 105)
    assert waiting.starved.at == 100 + PAUSE, "it is still the same want"
    assert waiting.to_ask(99 + PAUSE) == ()
    assert waiting.to_ask(100 + PAUSE) == (2,)
    assert waiting.starved.at is not None
    assert waiting.starved.at > 100 + PAUSE
    waiting.ask_if(False, 200 + PAUSE)
    assert waiting.starved.at is None
    assert waiting.to_ask(10**12) == ()


@pytest.mark.parametrize("adaptive", [False, True])
def test_asking_for_credit_in_vain_is_repeated_ever_less_often_where_recovery_adapts(adaptive: bool) -> None:
    recovery = RecoveryOptions(heartbeat_ns=10, heartbeat_ns_max=40, adaptive=adaptive)
    flow = FlowControl(size=3, window=3, buffer=9)
    waiting = Submissions(flow, GroupOptions(recovery=recovery), lambda pause_ns: pause_ns, Pace(3))
    waiting.ask_if(True, 0)
    at = []
    for _ in range(5):
        assert waiting.starved.at is not None
        at.append(waiting.starved.at)
        waiting.to_ask(waiting.starved.at)
    assert at == ([10, 20, 40, 80, 120] if adaptive else [10, 20, 30, 40, 50])
