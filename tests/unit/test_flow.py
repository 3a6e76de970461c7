from __future__ import annotations

from antiphon.protocol.flow import FlowControl


def test_the_window_bounds_what_is_unstable() -> None:
    flow = FlowControl(size=4, window=3, buffer=100)
    assert [flow.open(outstanding) for outstanding in range(5)] == [True, True, True, False, False]


def test_the_poorest_member_bounds_everyone() -> None:
    flow = FlowControl(size=4, window=3, buffer=100)
    flow.heard(2, 7)
    assert flow.credit() == 1
    assert flow.open(0)
    assert not flow.open(1)
    flow.heard(2, 3)
    assert not flow.open(0)
    flow.heard(2, 100)
    assert flow.open(2)


def test_credit_is_asked_of_those_that_lack_it_alone() -> None:
    flow = FlowControl(size=4, window=3, buffer=100)
    assert flow.poor() == ()
    flow.heard(1, 3)
    flow.heard(2, 4)
    flow.heard(3, 0)
    assert flow.poor() == (1, 3)
