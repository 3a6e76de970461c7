"""What receipts are to mean, on logs written by hand: what the judge must notice, and what it must let pass."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.testing.torture.log import MessageName, SentMessage, Told
from antiphon.testing.torture.schedule import Net, PlannedFault, Work
from stack.by_hand import Logs


def calm(**about: Any) -> Logs:
    """Three that are together in one view and have each sent a message that all have."""
    logs = Logs(**about)
    logs.view(1)
    for member in range(3):
        logs.send(member)
    return logs


def sent_by(logs: Logs, member: int, to: list[int] | None = None, **about: Any) -> SentMessage:
    """Send a message, and give its receipt."""
    identity = logs.send(member, to, **about)
    return logs[member].sent[identity]


# Every receipt ends


@pytest.mark.parametrize(
    ("delivered", "stable", "slow", "flaws"),
    [
        (True, True, "block", 0),
        (True, False, "block", 1),
        (False, False, "block", 1),
        (False, True, "block", 1),
        (True, False, "lag", 1),
        (False, False, "lag", 1),
    ],
)
def test_every_receipt_ends_where_its_sender_goes_on(delivered: bool, stable: bool, slow: str, flaws: int) -> None:
    for goes_on, runs in ((True, True), (False, True), (True, False)):
        logs = calm(slow=slow, ordering="causal-blocks")
        sent = sent_by(logs, 1)
        if not delivered:
            sent.delivered_at = None
        if not stable:
            sent.stable_at = None
        logs.probe(*(range(3) if goes_on else (0, 2)))
        if not runs:
            logs.crash(1)
        assert len(logs.flaws().get("receipts-end", [])) == (flaws if goes_on and runs else 0)


def test_what_was_not_accepted_has_no_receipt_and_what_is_lost_has_ended() -> None:
    for about in ({"accepted": False}, {"lost": ("Unknown", "left out")}, {"probe": True}):
        logs = calm()
        sent = sent_by(logs, 1, [])
        logs.probe()
        assert len(logs.flaws()["receipts-end"]) == 1
        assert logs.counts["receipts"] == 4
        for name, value in about.items():
            setattr(sent, name, value)
        assert "receipts-end" not in logs.flaws()
        assert logs.counts["receipts"] == 3


def test_who_is_told_that_its_message_is_delivered_delivers_it() -> None:
    for goes_on, runs in ((True, True), (False, True), (True, False)):
        logs = calm()
        sent = sent_by(logs, 1, [0, 2])
        logs.probe(*(range(3) if goes_on else (0, 2)))
        if not runs:
            logs.crash(1)
        assert "delivered" not in logs.flaws()
        sent.delivered_at = logs.now
        assert len(logs.flaws().get("delivered", [])) == (goes_on and runs)


# Stages


CAME, WILL_NOT = True, False


@pytest.mark.parametrize(
    ("told", "ended_as", "flaws"),
    [
        ([("delivered", CAME, "delivered"), ("stable", CAME, "stable")], "stable", 0),
        ([("delivered", CAME, "stable"), ("stable", CAME, "stable")], None, 0),
        ([("delivered", CAME, "unknown"), ("stable", WILL_NOT, "unknown")], "unknown", 0),
        ([("delivered", WILL_NOT, "lost"), ("stable", WILL_NOT, "lost")], "lost", 0),
        ([("delivered", CAME, "sent")], None, 1),
        ([("delivered", CAME, "delivered"), ("stable", CAME, "delivered")], None, 1),
        ([("delivered", WILL_NOT, "delivered")], None, 1),
        ([("stable", CAME, "stable")], None, 1),
        ([("delivered", WILL_NOT, "unknown"), ("stable", CAME, "stable")], None, 1),
        ([("stable", CAME, "stable"), ("delivered", CAME, "stable")], None, 1),
        ([("delivered", CAME, "delivered"), ("stable", CAME, "stable")], "unknown", 1),
        ([("delivered", CAME, "delivered")], "unknown", 0),
    ],
)
def test_stages_come_in_order_and_a_receipt_says_what_it_tells(
    told: list[tuple[Any, bool, str]], ended_as: str | None, flaws: int
) -> None:
    logs = calm()
    sent = sent_by(logs, 1)
    sent.told = [Told(stage, came=came, outcome=outcome) for stage, came, outcome in told]
    sent.ended_as = ended_as
    assert len(logs.flaws().get("stages", [])) == flaws
    assert logs.counts["stages"] == 6 + len(told)


def test_a_receipt_raises_what_it_says() -> None:
    for raised, flaws in (("Unknown", 0), ("Lost", 1)):
        logs = calm()
        sent = sent_by(logs, 1, [])
        sent.told = [Told("delivered", came=False, outcome="unknown")]
        sent.lost = (raised, "left out")
        assert len(logs.flaws().get("stages", [])) == flaws
        sent.told = []
        assert "stages" not in logs.flaws(), "nobody waited for it"


# Leaving


def test_nothing_waits_once_a_group_was_left() -> None:
    for what, reads, flaws in (
        ("send", True, 1),
        ("send", False, 1),
        ("the stream", True, 1),
        ("the stream", False, 0),
    ):
        logs = calm(work={1: Work(read_pause_ms=0 if reads else 5)})
        logs[1].hanging = [what]
        assert "left" not in logs.flaws()
        logs.leave(1)
        assert len(logs.flaws().get("left", [])) == flaws
        assert logs.counts["left"] == 1


def test_receipts_have_ended_when_a_group_was_left() -> None:
    for ended_as, flaws in (("delivered", 1), ("stable", 0), ("unknown", 0), ("lost", 0), (None, 0)):
        logs = calm()
        sent_by(logs, 1).ended_as = ended_as
        logs.leave(1)
        assert len(logs.flaws().get("left", [])) == flaws


def test_who_leaves_in_a_calm_waits_until_its_messages_are_delivered() -> None:
    link = PlannedFault(kind="link", at=0, until=5, members=(0,), others=(1,))
    harmless = PlannedFault(kind="clock", at=0, members=(0,))
    old_key = PlannedFault(kind="keys", at=0, members=(2,), stale=True)
    for about, flaws in (
        ({}, 1),
        ({"faults": (harmless,)}, 1),
        ({"faults": (link,)}, 0),
        ({"faults": (harmless, link)}, 0),
        ({"faults": (old_key,)}, 0),
        ({"net": Net(loss=0.1)}, 0),
        ({"net": Net(latency="uniform 1ms 20ms")}, 1),
        ({"net": Net(latency="uniform 1ms 21ms")}, 0),
        ({"work": {2: Work(read_pause_ms=1)}}, 0),
        ({"work": {2: Work(restore_ms=1)}}, 0),
        ({"work": {2: Work(deaf_ms=(1, 2))}}, 0),
        ({"work": {2: Work(deaf_ms=(2, 2))}}, 1),
        ({"work": {2: Work(snapshot_fails=1)}}, 0),
        ({"leave_ms": 4_999}, 0),
    ):
        logs = calm(**about)
        sent = sent_by(logs, 1, [0, 2])
        logs.leave(1)
        assert len(logs.flaws().get("left", [])) == flaws, about
        logs[1].hurried = True
        assert "left" not in logs.flaws(), "it did not wait for anything"
        logs[1].hurried = False
        sent.accepted = False
        assert "left" not in logs.flaws()
        sent.accepted, logs[1].ended_by = True, ("OSError", "no space")
        assert "left" not in logs.flaws()


def test_one_whose_events_waited_for_names_is_not_prompt() -> None:
    for unnamed, flaws in ((0, 1), (1, 0)):
        logs = calm()
        logs.sample(2, counts={"members-unnamed": unnamed})
        logs.sample(2)
        sent_by(logs, 1, [0, 2])
        logs.leave(1)
        assert len(logs.flaws().get("left", [])) == flaws


# Stable


def test_what_is_stable_is_with_everyone_who_goes_on() -> None:
    for without, going, flaws in ((2, "abc", 1), (2, "ab", 0)):
        logs = calm(ordering="fifo")
        sent_by(logs, 0, [one for one in range(3) if one != without])
        logs.view(2, going, going)
        assert len(logs.flaws().get("stable", [])) == flaws
        assert logs.counts["stable"] == 4
    logs = calm(ordering="fifo")
    sent_by(logs, 0, [0, 1], stable=False)
    logs.view(2, elders="abc")
    assert "stable" not in logs.flaws()


def test_what_may_be_on_another_side_need_not_be_kept_but_what_was_stable_before_it_was_too_old() -> None:
    for about, flaws in (({"slow": "lag", "ordering": "causal-blocks"}, 1), ({"partition": "each-side"}, 0)):
        logs = calm(**about)
        sent_by(logs, 0, [0, 1])
        logs.view(2, elders="abc")
        assert len(logs.flaws().get("stable", [])) == flaws


def stable_nowhere(*, survivors: str = "bc", probes: bool = True, befalls: str = "") -> Logs:
    """One is told that its message is stable and crashes; those who go on have not delivered it."""
    logs = calm(ordering="fifo")
    sent_by(logs, 0, []).stable_at = logs.now
    logs.crash(0)
    if survivors:
        logs.view(2, survivors, survivors)
    if befalls == "excluded":
        for member in (1, 2):
            logs.tell(member, "excluded")
        logs.view(4, "bc")
    if probes:
        logs.probe()
    if befalls == "crash":
        logs.crash(1)
        logs.crash(2)
    return logs


def test_what_is_stable_was_delivered_where_someone_goes_on_from_the_view_to_the_end() -> None:
    assert len(stable_nowhere().flaws()["stable"]) == 1
    assert "stable" not in stable_nowhere(probes=False).flaws(), "nobody goes on"
    assert "stable" not in stable_nowhere(survivors="").flaws(), "not all may have been read yet"
    assert "stable" not in stable_nowhere(befalls="excluded").flaws()
    assert "stable" not in stable_nowhere(befalls="crash").flaws()
    logs = stable_nowhere()
    logs.deliver(1, MessageName(0, 1, 2))
    assert "stable" not in logs.flaws()


def test_without_views_what_is_stable_is_with_everyone() -> None:
    def flaws(*, ordering: str = "fifo", crash: bool = False, views: bool = False, **about: Any) -> int:
        logs = Logs(views=views, ordering=ordering, **about)
        if views:
            logs.view(1)
        sent_by(logs, 0, [0, 1])
        if crash:
            logs.crash(1)
        found = len(logs.flaws().get("stable-without-views", []))
        assert logs.counts["stable"] == 1 + (not views)  # by both rules
        return found

    assert flaws() == 1
    assert flaws(ordering="sequencer") == 1
    assert flaws(views=True) == 0
    assert flaws(crash=True) == 1, "the third is there"
    assert flaws(crash=True, ordering="sequencer") == 0, "that waits for all"
    assert flaws(crash=True, safe=True) == 0
    assert flaws(crash=True, work={2: Work(read_pause_ms=1)}) == 0
    assert flaws(work={2: Work(read_pause_ms=1)}) == 1


def test_nothing_of_one_that_was_started_again_is_stable() -> None:
    logs = Logs(views=False, ordering="fifo")
    sent_by(logs, 0)
    logs.crash(2)
    logs.start(2)
    assert "stable-without-views" not in logs.flaws(), "what was before its start it cannot have"
    sent_by(logs, 2)
    assert len(logs.flaws()["stable-without-views"]) == 1


# Unknown and lost


@pytest.mark.parametrize(
    ("kind", "words", "befell", "flaws"),
    [
        ("Unknown", "left out", "excluded", 0),
        ("Unknown", "left out", "yielded", 0),
        ("Lost", "left out", "excluded", 0),
        ("Unknown", "left out", "stalled", 1),
        ("Unknown", "", "excluded", 1),
        ("KeyError", "1", "excluded", 1),
        ("Unknown", "left", "leaves", 0),
        ("Unknown", "failed", "fails", 0),
        ("Unknown", "lag", "lags", 0),
        ("Unknown", "crashed", "crashes", 1),
        ("Unknown", "crashed", "crashes before it has read", 0),
        ("Unknown", "slow", "reads slowly", 1),
    ],
)
def test_what_is_unknown_has_a_reason(kind: str, words: str, befell: str, flaws: int) -> None:
    slowly = {1: Work(read_pause_ms=5 * (befell in ("crashes before it has read", "reads slowly")))}
    policy = {"slow": "lag", "ordering": "causal-blocks"} if befell == "lags" else {}
    logs = calm(work=slowly, **policy)
    sent_by(logs, 1, []).lost = (kind, words)
    if befell in ("excluded", "yielded", "stalled"):
        logs.tell(1, befell)
    elif befell == "leaves":
        logs.leave(1)
    elif befell == "fails":
        logs[1].ended_by = ("OSError", "no space")
    elif befell.startswith("crashes"):
        logs.crash(1)
    assert len(logs.flaws().get("unknown", [])) == flaws
    assert logs.counts["unknown"] == 1


def test_nobody_who_goes_on_has_delivered_what_is_lost() -> None:
    for kind, to, flaws in (("Lost", [0], 1), ("Unknown", [0], 0), ("Lost", [2], 0)):
        logs = calm(ordering="fifo")
        sent_by(logs, 1, to).lost = (kind, "left out")
        logs.view(2, "ab", "ab")
        assert len(logs.flaws().get("lost", [])) == flaws
    logs = calm(ordering="fifo")
    sent_by(logs, 1, [0]).lost = ("Lost", "left out")
    assert len(logs.flaws()["lost"]) == 1, "it is still there"
    logs.crash(0)
    assert "lost" not in logs.flaws()
