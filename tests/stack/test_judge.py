"""Each rule of the judge, on logs written by hand: what it must notice, and what beside that it must let pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.testing.torture.schedule import BURST_BYTES, PlannedFault, Setup, Work
from stack.by_hand import Logs


def calm(**about: Any) -> Logs:
    """Three that are together in one view and have each sent a message that all have."""
    logs = Logs(**about)
    logs.view(1)
    for member in range(3):
        logs.send(member)
    return logs


def two_views(**about: Any) -> Logs:
    """Three that go on from their first view to a second."""
    logs = calm(**about)
    logs.view(2, elders="abc")
    logs.send(0)
    return logs


def joined(**about: Any) -> Logs:
    """A third member joins two, and is given what they have."""
    logs = Logs(starts=(0, 1), **about)
    logs.view(1, "ab")
    first = logs.send(0)
    logs.start(2)
    logs.view(2, elders="ab")
    if logs.schedule.setup.snapshot_bytes is not None:
        logs.give(2, [first])
    logs.send(1)
    return logs


def test_a_calm_run_is_sound_and_what_was_examined_is_counted() -> None:
    logs = two_views(snapshot_bytes=0, ordering="sequencer")
    logs.probe()
    assert logs.flaws() == {}
    assert logs.counts == {
        "delivered": 21,
        "views": 6,
        "orders": 4,
        "other orders": 0,
        "pairs": 2,
        "stable": 7,
        "final states": 3,
        "stages": 14,
        "receipts": 4,
        "alive": 3,
        "notices": 3,
        "undisturbed": 3,
        "samples": 3,
    }
    logs = joined(snapshot_bytes=0)
    logs.probe()
    assert logs.flaws() == {}
    assert logs.counts["restored"] == 1


# Order and content


def test_integrity_is_broken_by_what_nobody_or_another_sent_and_by_what_comes_twice() -> None:
    logs = calm()
    logs.deliver(0, msgspec.structs.replace(logs[1].stream[1].identity, number=9))
    assert len(logs.flaws()["integrity"]) == 1
    logs = calm()
    logs.send(1, sender="c")
    assert len(logs.flaws()["integrity"]) == 3
    logs = calm()
    again = logs.send(0)
    logs.deliver(1, again)
    assert len(logs.flaws()["integrity"]) == 1


def test_a_sender_may_be_shown_by_its_number_only_where_names_were_waited_for() -> None:
    for counts, flaws in (({}, 1), ({"members-unnamed": 1}, 0)):
        logs = calm()
        logs.send(1, [0], sender="member 7")
        logs.sample(0, counts=counts)
        assert len(logs.flaws().get("integrity", [])) == flaws


def test_a_state_in_which_a_message_comes_twice_and_one_that_is_delivered_again_are_noticed() -> None:
    logs = calm()
    first = logs.send(0)
    logs.give(1, [first, first])
    assert len(logs.flaws()["integrity"]) == 1
    logs = calm()
    first = logs.send(0)
    logs.give(1, [first])
    logs.deliver(1, first)
    assert len(logs.flaws()["integrity"]) == 1
    logs = calm()
    logs.give(1, [])
    logs.deliver(1, first)
    assert "integrity" in logs.flaws(), "it was not sent in this run"


def test_a_number_is_one_views_and_numbers_grow() -> None:
    logs = calm()
    logs.view(2, "ab", "ab", by=[0, 1])
    logs.view(2, "c", "c", by=[2])
    assert len(logs.flaws()["views"]) == 1
    for again in (1, 2):
        logs = two_views()
        logs.view(again, elders="abc", by=[0])
        assert any("after view 2" in text for text in logs.flaws()["views"])
    logs = calm()
    logs.view(2, "ab", "ab", by=[0, 1, 2])
    assert len(logs.flaws()["views"]) == 1, "who has a view is in it"
    assert "views" not in two_views().flaws()


def test_where_each_side_goes_on_sides_may_use_one_number() -> None:
    logs = calm(partition="each-side")
    logs.view(2, "ab", "ab", by=[0, 1])
    logs.view(2, "c", "c", by=[2])
    assert "views" not in logs.flaws()


def test_who_is_set_up_differently_has_views_of_its_own() -> None:
    for odd, flaws in ((None, 1), (Setup(safe=True), 0)):
        logs = Logs(odd=odd)
        logs.view(1, "ab")
        logs.view(1, "c")
        assert len(logs.flaws().get("views", [])) == flaws


def test_a_message_is_delivered_in_one_view_which_it_names() -> None:
    logs = two_views()
    logs.send(0, [1], view=1)
    assert len(logs.flaws()["message-views"]) == 1
    logs = calm()
    logs.view(2, elders="abc", by=[0])
    sent = logs.send(0, [0])
    logs.deliver(1, sent)
    assert len(logs.flaws()["message-views"]) == 1, "in view 1 and in view 2"
    logs = Logs()
    sent = logs.send(0, [0])
    assert any("before any view" in text for text in logs.flaws()["message-views"])
    assert "message-views" not in two_views().flaws()


def test_where_each_side_goes_on_or_without_views_a_message_may_come_in_several() -> None:
    logs = calm(partition="each-side")
    logs.view(2, elders="abc", by=[0])
    logs.deliver(1, logs.send(0, [0]))
    assert "message-views" not in logs.flaws()
    logs = Logs(views=False)
    sent = logs.send(0)
    logs.start(1)
    logs.deliver(1, sent)
    assert "message-views" not in logs.flaws(), "one that was started again is alone in a view of its own"


def test_a_senders_messages_come_in_their_order_after_a_state_too() -> None:
    logs = calm()
    first, second = logs.send(0, [0]), logs.send(0, [0])
    logs.deliver(1, second)
    logs.deliver(1, first)
    assert len(logs.flaws()["fifo"]) == 1
    logs = calm()
    first, second = logs.send(0, [0]), logs.send(0, [0])
    logs.give(1, [second])
    logs.deliver(1, first)
    assert len(logs.flaws()["fifo"]) == 1
    logs = calm()
    first, second = logs.send(0), logs.send(0, [0])
    logs.give(1, [])
    logs.deliver(1, second)
    assert "fifo" not in logs.flaws()


def test_a_state_begins_the_numbers_anew() -> None:
    logs = calm()
    first, second = logs.send(0, [0, 1]), logs.send(0, [0, 1])
    logs.give(1, [])
    logs.deliver(1, first)
    logs.deliver(1, second)
    assert "fifo" not in logs.flaws()


@pytest.mark.parametrize("ordering", ["causal-blocks", "sequencer", "fifo"])
def test_what_its_sender_had_seen_comes_before_a_message(ordering: str) -> None:
    logs = calm(ordering=ordering)
    cause = logs.send(0, [0, 1])
    effect = logs.send(1, [1, 2], causes=(cause,), causes_view=1)
    logs.deliver(0, effect, causes=(cause,), causes_view=1)
    found = logs.flaws().get("causal", [])
    assert len(found) == (ordering != "fifo"), "the third has not delivered the cause"
    assert logs.counts["causes"] == 3 * (ordering != "fifo")


def test_only_causes_of_the_view_count_and_not_the_message_itself() -> None:
    logs = calm(ordering="co")
    cause = logs.send(0, [0, 1])
    logs.send(1, [2], causes=(cause,), causes_view=0)
    assert "causal" not in logs.flaws(), "seen in an earlier view"
    logs = calm(ordering="co")
    logs.send(1, causes=(msgspec.structs.replace(logs[1].stream[2].identity, number=2),), causes_view=1)
    assert "causal" not in logs.flaws(), "a message is no cause of itself"
    logs = calm(ordering="co")
    cause = logs.send(0, [0, 1])
    logs.view(2, elders="abc", by=[1])
    logs.send(1, [2], causes=(cause,), causes_view=1, view=1)
    assert "causal" not in logs.flaws(), "its sender was further already"
    logs = calm(ordering="causal-blocks", slow="lag")
    cause = logs.send(0, [0, 1])
    logs.send(1, [2], causes=(cause,), causes_view=1)
    assert "causal" not in logs.flaws(), "what is too old is not delivered"


def unlike(ordering: str = "sequencer", **about: Any) -> Logs:
    """The third delivers two messages in another order than the others."""
    logs = calm(ordering=ordering, **about)
    one, other = logs.send(0, [0, 1]), logs.send(1, [1, 0])
    logs.deliver(2, other)
    logs.deliver(2, one)
    return logs


def test_those_who_go_on_from_a_view_have_one_order() -> None:
    logs = unlike()
    assert len(logs.flaws()["total"]) == 1
    assert logs.counts["other orders"] == 0
    logs = unlike()
    logs.view(2, elders="abc")
    assert len(logs.flaws()["total"]) == 1
    assert "total" not in unlike(ordering="fifo").flaws()
    assert "total" not in unlike(ordering="co").flaws()


def test_who_is_left_behind_may_have_another_order_unless_delivery_is_safe() -> None:
    for safe in (False, True):
        logs = unlike(safe=safe)
        logs.view(2, "ab", "ab")
        assert len(logs.flaws().get("total", [])) == safe
        assert logs.counts["other orders"] == 1
        logs = calm(safe=safe, ordering="sequencer")
        logs.send(0, [2])
        logs.view(2, "ab", "ab")
        assert len(logs.flaws().get("total", [])) == safe, "it delivered what nobody who goes on did"
        assert logs.counts["other orders"] == 0
        logs = calm(safe=safe, ordering="sequencer")
        logs.send(0, [0, 1])
        logs.view(2, "ab", "ab")
        assert "total" not in logs.flaws(), "it has less"
    assert "total" not in unlike_sides().flaws()


def unlike_sides() -> Logs:
    logs = unlike(safe=True, partition="each-side")
    logs.view(2, "ab", "ab")
    logs.view(2, "c", "c")
    return logs


def test_those_who_go_on_together_have_delivered_the_same() -> None:
    for ahead, behind in ((0, 1), (2, 0)):
        logs = calm(ordering="fifo")
        logs.send(ahead, [one for one in range(3) if one != behind])
        logs.view(2, elders="abc")
        found = logs.flaws()["view-synchrony"]
        assert found
        assert all("go from view 1 to view 2" in text for text in found)
    logs = calm(ordering="fifo")
    logs.send(0, [0, 1])
    logs.view(2, "ab", "ab")
    assert "view-synchrony" not in logs.flaws(), "the third does not go on"
    logs = calm(ordering="causal-blocks", slow="lag")
    logs.send(0, [0, 1])
    logs.view(2, elders="abc")
    assert "view-synchrony" not in logs.flaws()


@pytest.mark.parametrize(
    ("size", "snapshot_bytes", "given", "excused"),
    [
        (1001, None, False, True),
        (1000, None, False, False),
        (1001, 0, True, False),
        (1001, 0, False, True),  # all who had it are gone
        (1000, 0, False, False),
    ],
)
def test_a_joiner_without_a_state_may_lack_what_goes_in_parts_and_was_begun_before(
    size: int, snapshot_bytes: int | None, given: bool, excused: bool
) -> None:
    for late in (False, True):
        logs = Logs(starts=(0, 1), ordering="sequencer", snapshot_bytes=snapshot_bytes)
        logs.view(1, "ab")
        logs.send(0)
        logs.start(2)
        large = None if late else logs.send(0, [], size=size)
        logs.view(2, elders="ab")
        if given:
            logs.give(2, [logs[0].stream[1].identity])
        large = logs.send(0, [], size=size) if large is None else large
        logs.deliver(0, large)
        logs.deliver(1, large)
        logs.send(1)
        logs.view(3, elders="abc")
        rules = {"view-synchrony", "total"} & logs.flaws().keys()
        assert (rules == set()) is (excused and not late), rules


def test_one_that_is_set_up_as_a_side_of_its_own_may_found_its_group_again() -> None:
    for partition, excused in (("each-side", True), ("majority", False)):
        odd = Setup(ordering="sequencer", safe=True, partition=partition)  # type: ignore[arg-type]
        logs = Logs(3, ordering="sequencer", safe=True, odd=odd)
        logs.view(1, "c")
        logs.send(2)
        logs.crash(2)
        logs.start(2)
        logs.view(1, "c")
        logs.send(2)
        assert ("total" not in logs.flaws()) is excused


# Sides


def parted_sides(first: str, second: str, members: int, **about: Any) -> Logs:
    """Two sides that were parted, of which the first gives way to the second."""
    parting = PlannedFault(kind="partition", at=100, until=900, members=(0,))
    logs = Logs(members, faults=about.pop("faults", (parting,)), partition="each-side", **about)
    everyone = "abcdefg"[:members]
    logs.view(1, everyone)
    logs.view(2, first, first)
    logs.view(2, second, second)
    for address in first:
        logs.tell(everyone.index(address), "yielded")
    logs.view(3, everyone, second)
    return logs


def test_of_two_sides_the_smaller_yields() -> None:
    assert len(parted_sides("abc", "de", 5).flaws()["sides"]) == 6, "three yield to two"
    logs = parted_sides("ab", "cde", 5)
    assert "sides" not in logs.flaws()
    assert logs.counts["sides met"] == 6
    assert "sides" not in parted_sides("ab", "cd", 4).flaws()
    crash = PlannedFault(kind="crash", at=0, members=(0,))
    assert "sides" not in parted_sides("abc", "de", 5, faults=(crash,)).flaws()
    assert "sides" not in parted_sides("abc", "cde", 5).flaws(), "who is in both has gone over"


# States


def test_a_joiner_begins_with_the_state_of_the_elders() -> None:
    for history in ([], [1, 2]):
        logs = Logs(starts=(0, 1), snapshot_bytes=0)
        logs.view(1, "ab")
        sent = [logs.send(0), logs.send(0), logs.send(1)]
        logs.start(2)
        logs.view(2, elders="ab")
        logs.give(2, [sent[number] for number in history])
        assert len(logs.flaws()["state-transfer"]) == 1
    logs = joined(snapshot_bytes=0)
    assert "state-transfer" not in logs.flaws()


def in_another_order(ordering: str) -> Logs:
    logs = Logs(starts=(0, 1), snapshot_bytes=0, ordering=ordering)
    logs.view(1, "ab")
    one, other = logs.send(0), logs.send(1)
    logs.start(2)
    logs.view(2, elders="ab")
    logs.give(2, [other, one])
    return logs


def test_in_a_total_order_the_state_has_the_elders_order() -> None:
    assert len(in_another_order("abcast").flaws()["state-transfer"]) == 1
    assert "state-transfer" not in in_another_order("fifo").flaws()


def test_an_elders_state_is_never_replaced() -> None:
    logs = calm(snapshot_bytes=0)
    logs.view(2, elders="abc")
    logs.give(0, logs[0].stream and [entry.identity for entry in logs[0].stream[1:4]])
    assert any("is replaced" in text for text in logs.flaws()["state-transfer"])


def test_a_joiner_delivers_nothing_before_it_has_the_state() -> None:
    logs = Logs(starts=(0, 1), snapshot_bytes=0)
    logs.view(1, "ab")
    logs.send(0)
    logs.start(2)
    logs.view(2, elders="ab")
    logs.send(1)
    assert any("without having been given" in text for text in logs.flaws()["state-transfer"])
    for member in (0, 1):
        logs.crash(member)
    assert "state-transfer" not in logs.flaws(), "those who had it crashed"
    logs = Logs(starts=(0, 1), snapshot_bytes=None)
    logs.view(1, "ab")
    logs.start(2)
    logs.view(2, elders="ab")
    logs.send(1)
    assert "state-transfer" not in logs.flaws()


@pytest.mark.parametrize(
    ("cut", "told", "goes_on_with", "excused"),
    [
        ((0,), 1, "bc", True),
        ((), 1, "bc", False),  # the elder is within reach of those who go on
        ((0,), 0, "bc", False),  # it does not say that the state is lost
        ((0,), 1, "abc", False),  # nobody goes on without the elder
        ((0,), 1, "", False),
    ],
)
def test_a_joiner_goes_on_without_the_state_only_out_of_reach_of_those_who_have_it(
    cut: tuple[int, ...], told: int, goes_on_with: str, excused: bool
) -> None:
    parted = PlannedFault(kind="partition", at=0, members=cut)
    logs = Logs(starts=(0, 1), snapshot_bytes=0, faults=[parted])
    logs.view(1, "ab")
    logs.send(0)
    logs.start(2)
    logs.view(2, elders="ab")
    logs.send(1)
    logs.crash(1)
    logs.start(1)
    if goes_on_with:
        logs.view(3, goes_on_with, elders="c", by=[2])
    logs.sample(2, counts={"states-lost": told})
    wrong = any("without having been given" in text for text in logs.flaws().get("state-transfer", []))
    assert wrong is not excused


def test_a_joiner_may_be_given_the_state_of_an_elder_that_began_without_one() -> None:
    for lost, excused in ((True, True), (False, False)):
        logs = Logs(4, starts=(0, 1), snapshot_bytes=0)
        logs.view(1, "ab")
        first = logs.send(0)
        logs.start(2)
        logs.view(2, "abc", elders="ab")
        if not lost:
            logs.give(2, [first])
        second = logs.send(1)
        logs.start(3)
        logs.view(3, "abcd", elders="abc")
        for member in (0, 1):
            logs.crash(member)
        logs.give(3, [second])  # what the third has, if all who had the state crashed before they gave it
        assert ("state-transfer" not in logs.flaws()) is excused


def test_elders_that_were_given_states_begin_a_view_with_one() -> None:
    logs = Logs(snapshot_bytes=0)
    logs.view(1)
    for member in range(3):
        logs.give(member, [])
    logs.send(0, [0, 1])
    logs.view(2, elders="abc")
    assert any("with different states" in text for text in logs.flaws()["state-transfer"])


def test_where_each_side_goes_on_all_members_of_a_view_begin_it_with_one_state() -> None:
    for partition, wrong in (("each-side", True), ("majority", False)):
        logs = Logs(2, snapshot_bytes=0, partition=partition)
        logs.view(1, "a", by=[0])
        logs.send(0, [0])
        logs.tell(0, "yielded")
        logs.view(2, "ab")
        texts = logs.flaws().get("state-transfer", [])
        assert any("no elders, with different states" in text for text in texts) is wrong
        logs.view(3, "ab", elders="ab")
        texts = logs.flaws().get("state-transfer", [])
        assert any("as elders with different states" in text for text in texts) is wrong


def test_all_that_go_on_end_with_one_state_in_which_nothing_stable_is_missing() -> None:
    logs = calm(snapshot_bytes=0, ordering="fifo")
    logs.send(0, [0, 1], stable=False)
    logs.probe()
    assert any("end with different states" in text for text in logs.flaws()["final-states"])
    logs = calm(snapshot_bytes=0, ordering="fifo")
    logs.send(0, [0, 1])
    logs.probe()
    assert any("said to be stable" in text for text in logs.flaws()["final-states"])
    logs = unlike(snapshot_bytes=0)
    logs.probe()
    assert any("orders differ" in text for text in logs.flaws()["final-states"])
    logs = unlike(snapshot_bytes=0, ordering="fifo")
    logs.probe()
    assert "final-states" not in logs.flaws()
    for about in ({"snapshot_bytes": None}, {"snapshot_bytes": 0, "slow": "lag", "ordering": "causal-blocks"}):
        logs = calm(**about)
        logs.send(0, [0, 1])
        logs.probe()
        assert "final-states" not in logs.flaws()


# Who was left behind


def left_behind(late_s: float, **about: Any) -> Logs:
    """The others go on without the third, which delivers something so long after that."""
    logs = calm(**about)
    logs.view(2, "ab", "ab")
    logs.now += late_s
    logs.send(0, [2], view=1)
    return logs


def test_who_was_cut_off_delivers_nothing_more_of_a_view_that_the_others_have_left() -> None:
    grace_s = (500 + 4 * 5 + 100) / 1000
    assert "left-behind" not in left_behind(grace_s - 0.03).flaws()
    logs = left_behind(grace_s)
    assert len(logs.flaws()["left-behind"]) == 1
    assert logs.counts["late"] == 1
    assert "left-behind" not in left_behind(grace_s, partition="each-side").flaws()
    slow = {2: Work(read_pause_ms=1)}
    assert "left-behind" not in left_behind(grace_s, work=slow).flaws(), "it may not have read of it yet"


def test_after_a_pause_nothing_more_of_the_view_is_delivered_at_once() -> None:
    for until, flaws in ((250, 1), (400, 0), (None, 0)):
        pause = PlannedFault(kind="pause", at=50, until=until, members=(2,))
        logs = left_behind(0.2, faults=(pause,))
        assert len(logs.flaws().get("left-behind", [])) == flaws
    others = PlannedFault(kind="pause", at=50, until=250, members=(1,))
    assert "left-behind" not in left_behind(0.2, faults=(others,)).flaws()
    over = PlannedFault(kind="pause", at=1, until=2, members=(2,))
    assert "left-behind" not in left_behind(0.2, faults=(over,)).flaws()


# Errors, bounds and counters


def test_only_documented_errors_end_an_application() -> None:
    logs = calm()
    logs[1].ended_by = ("OSError", "no space")
    assert len(logs.flaws()["errors"]) == 1
    for member, until, flaws in ((1, 50, 0), (0, 50, 1), (1, 5, 1), (1, None, 1)):
        disk = PlannedFault(kind="disk", at=0, until=until, members=(member,))
        logs = calm(faults=(disk,))
        logs[1].ended_by = ("OSError", "no space")
        assert len(logs.flaws().get("errors", [])) == flaws, (member, until)
    crash = PlannedFault(kind="crash", at=0, until=50, members=(1,))
    logs = calm(faults=(crash,))
    logs[1].ended_by = ("OSError", "no space")
    assert len(logs.flaws()["errors"]) == 1


def test_nothing_is_refused_before_an_application_leaves_or_ends() -> None:
    logs = calm()
    sent = logs[1].sent[logs.send(1)]
    sent.refused = "full"
    assert len(logs.flaws()["errors"]) == 1
    logs[1].leaving_at = 1.0
    assert "errors" not in logs.flaws()
    logs[1].leaving_at, logs[1].ended_by = None, ("OSError", "no space")
    assert len(logs.flaws()["errors"]) == 1, "that it ended, and no more"


@pytest.mark.parametrize(
    ("members", "member", "kind", "joined", "told"),
    [
        (3, 2, "UsageError", False, True),  # the odd one itself
        (3, 0, "UsageError", False, False),  # two of three are alike, and go on
        (2, 0, "UsageError", False, True),  # one of two is not enough
        (3, 2, "OSError", False, False),
        (3, 2, "UsageError", True, False),
    ],
)
def test_who_is_set_up_differently_is_told_so_when_it_joins(
    members: int, member: int, kind: str, joined: bool, told: bool
) -> None:
    logs = Logs(members, odd=Setup(safe=True))
    logs[member].ended_by = (kind, "set up differently")
    if not joined:
        logs[member].joined_at = None
    assert ("errors" not in logs.flaws()) is told
    logs = Logs(members)
    logs[member].ended_by, logs[member].joined_at = (kind, "set up differently"), None
    assert "errors" in logs.flaws(), "nobody is"


def test_without_views_one_that_is_started_again_is_told_so() -> None:
    words = "this member was started again, and the others know"
    for views, number, said, told in (
        (False, 2, words, True),
        (True, 2, words, False),
        (False, 1, words, False),
        (False, 2, "no", False),
    ):
        logs = Logs(views=views)
        if number == 2:
            logs.crash(1)
            logs.start(1)
        logs[1].ended_by = ("GroupError", said)
        assert ("errors" not in logs.flaws()) is told


def test_inbox_and_buffers_stay_within_their_bounds() -> None:
    work = {0: Work(size=100), 1: Work(size=80, large=2, large_bytes=5_000), 2: Work(size=200)}
    window = (10_000 + BURST_BYTES) * (1 + 64 / 80)
    inbox_max = 2_000 + 3 * window + 5_000
    held_max = 5 * 4 * 3
    about: dict[str, Any] = {"work": work, "window": 4, "window_bytes": 10_000, "inbox_bytes_max": 2_000}
    logs = calm(**about)
    logs.sample(0, inbox_bytes=int(inbox_max), held=held_max)
    assert "bounds" not in logs.flaws()
    assert logs.counts["samples"] == 1
    for beyond in ({"inbox_bytes": int(inbox_max) + 1}, {"held": held_max + 1}):
        logs = calm(**about)
        logs.sample(0, **beyond)
        logs.sample(0, **beyond)
        assert len(logs.flaws()["bounds"]) == 1, "it is said once"


def test_who_was_left_out_counts_it() -> None:
    for told, counted, flaws in ((1, 0, 1), (2, 1, 1), (1, 1, 0), (1, 2, 0)):
        logs = calm()
        for _ in range(told):
            logs.tell(1, "excluded")
        logs.tell(1, "stalled")
        logs.sample(1, counts={"exclusions": counted})
        logs.tell(1, "excluded")  # after the last look at the counters
        assert len(logs.flaws().get("anomalies", [])) == flaws
        logs.crash(1)
        assert "anomalies" not in logs.flaws()


def test_packets_under_an_old_key_are_counted_by_those_who_have_the_new_one() -> None:
    rotation = PlannedFault(kind="keys", at=0, until=50, members=(2,), stale=True)
    for counts, discover, stale_runs, flaws in (
        ({}, "", True, 2),
        ({"refused-unknown-key": 3}, "", True, 0),
        ({}, "multicast", True, 0),
        ({}, "", False, 0),
    ):
        logs = calm(faults=(rotation,), discover=discover)
        for member in range(3):
            logs.sample(member, counts=counts)
        if not stale_runs:
            logs.crash(2)
        assert len(logs.flaws().get("anomalies", [])) == flaws


def test_nothing_breaks() -> None:
    logs = calm()
    logs.error = AssertionError("an invariant")
    assert len(logs.flaws()["broken"]) == 1
    logs = calm()
    logs.sample(0, "failed")
    assert len(logs.flaws()["broken"]) == 1
    logs[0].ended_by = ("OSError", "no space")
    assert "broken" not in logs.flaws(), "it was said"


def test_who_crashes_or_leaves_before_it_has_read_that_its_disk_failed_is_no_riddle() -> None:
    full = PlannedFault(kind="disk", at=0, until=50, members=(0,))
    for faults, ends, is_noticed in (
        ((full,), Logs.crash, False),
        ((full,), Logs.leave, False),
        ((full,), None, True),
        ((), Logs.crash, True),
    ):
        logs = calm(faults=faults)
        logs.sample(0, "failed")
        logs[0].sent[next(iter(logs[0].sent))].refused = "GroupClosed: the group failed"
        if ends is not None:
            ends(logs, 0)
        flaws = logs.flaws()
        assert ("broken" in flaws) == is_noticed
        assert ("errors" in flaws) == is_noticed


def test_bursts_that_cannot_be_used_are_noticed_where_a_joiner_is_given_the_state() -> None:
    for about, flaws in (
        ({"snapshot_bytes": 0}, 1),
        ({"snapshot_bytes": None}, 0),
        ({"snapshot_bytes": 0, "slow": "lag", "ordering": "causal-blocks"}, 0),
    ):
        logs = joined(**about)
        logs.sample(2, counts={"broken-bursts": 1})
        logs.sample(2, counts={"broken-bursts": 2})
        assert len(logs.flaws().get("broken", [])) == flaws
    logs = Logs(starts=(0, 1), snapshot_bytes=0)
    logs.view(1, "ab")
    logs.start(2)
    logs.view(2, elders="ab")
    logs.sample(2, counts={"broken-bursts": 1})
    logs.sample(1, counts={"broken-bursts": 1})
    assert len(logs.flaws()["broken"]) == 1, "the third was never given the state"


# Members without a name


def shown(logs: Logs, members: str, elders: str = "") -> Logs:
    """Show the first of two views to the first member otherwise: `?` is a member by its number."""
    named = {
        place: tuple("member 7" if one == "?" else one for one in text)
        for place, text in (("members", members), ("elders", elders))
    }
    logs[0].stream[0] = msgspec.structs.replace(logs[0].stream[0], **named)
    return logs


def test_a_view_in_which_members_are_shown_by_their_numbers_is_the_one_that_others_have_seen() -> None:
    for members, elders, agrees in (
        ("a?c", "", True),
        ("???", "", True),
        ("a?d", "", False),
        ("a?", "", False),
        ("ab", "", False),
        ("a?c", "a", False),
    ):
        assert ("views" not in shown(two_views(), members, elders).flaws()) is agrees, (members, elders)


def test_what_several_lack_of_the_names_of_a_view_is_put_together() -> None:
    logs = two_views()
    for member, names in enumerate((("a", "member 7", "c"), ("a", "b", "member 8"), ("member 6", "b", "member 8"))):
        logs[member].stream[0] = msgspec.structs.replace(logs[member].stream[0], members=names)
    assert "views" not in logs.flaws()


def test_what_is_counted_only_grows() -> None:
    for later, flaws in ((3, 0), (2, 0), (1, 1)):
        logs = calm()
        for counted in (0, 2, later):
            logs.sample(1, counts={"views": counted, "refused-forged": 5 - counted})
        assert len(logs.flaws().get("anomalies", [])) == flaws
