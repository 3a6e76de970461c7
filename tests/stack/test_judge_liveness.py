"""Who must go on, and who must say that it waits, on logs written by hand: what the judge must notice and let pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.testing.torture.schedule import Net, PlannedFault, Setup, Work
from stack.by_hand import Logs


def partition(*members: int, until: int | None = None) -> PlannedFault:
    return PlannedFault(kind="partition", at=10, until=until, members=members)


def cut(source: int, target: int, until: int | None = None) -> PlannedFault:
    return PlannedFault(kind="cut", at=10, until=until, members=(source,), others=(target,))


def together(members: int = 3, **about: Any) -> Logs:
    """Some that are in one view."""
    logs = Logs(members, **about)
    logs.view(1, "abcdefg"[:members])
    return logs


def waits(logs: Logs, member: int, standing: str = "stalled", **about: Any) -> None:
    """Let one say that it waits."""
    if standing == "stalled":
        logs.tell(member, "stalled")
    logs.sample(member, standing, **about)


# Who has a majority within reach goes on


def test_who_hears_everyone_delivers_a_new_message() -> None:
    logs = together()
    logs.probe()
    assert logs.flaws() == {}
    assert logs.counts["alive"] == 3
    logs = together()
    logs.probe(0, 1)
    logs.sample(2)
    assert len(logs.flaws()["alive"]) == 1, "the third sent nothing that all deliver"
    logs = together()
    for member in range(3):
        logs.send(member, [0, 1], probe=True)
    assert len(logs.flaws()["alive"]) == 3, "the third delivers nothing"
    logs = Logs()
    assert len(logs.flaws()["alive"]) == 3, "nobody ever had a view"
    logs = Logs()
    logs.error = AssertionError("broken")
    assert "alive" not in logs.flaws(), "the run did not come to its end"


def test_who_goes_on_is_in_the_view_that_it_goes_on_in() -> None:
    logs = together()
    for member in range(3):
        logs.send(member, probe=True)
    logs.view(2, "bc", "bc", by=[0, 1, 2])
    for member in (1, 2):
        logs.send(member, probe=True)
    assert any(text.startswith("a does not deliver") for text in logs.flaws()["alive"])


@pytest.mark.parametrize("standing", ["stalled", "joining", "leaving", "left", "failed", "active"])
def test_who_cannot_go_on_says_that_it_waits(standing: str) -> None:
    logs = together(faults=[partition(2)])
    logs.send(0)
    logs.view(2, "ab", "ab")
    logs.probe(0, 1)
    logs.sample(2, standing)
    found = logs.flaws().get("alive", [])
    assert len(found) == (standing == "active")


def test_a_partition_that_heals_and_cuts_that_heal_keep_nobody_apart() -> None:
    for fault, flaws in (
        (partition(2, until=50), True),
        (partition(2), False),
        (partition(0, 1), False),
        (partition(0, 1, 2), True),
        (cut(2, 0, until=50), True),
        (cut(2, 0), False),
        (cut(0, 2), False),
        (PlannedFault(kind="link", at=0, members=(2,), others=(0,)), True),
    ):
        logs = together(faults=[fault])
        logs.view(2, "ab", "ab")
        logs.probe(0, 1)
        waits(logs, 2, links=(("a", "c"),))
        assert ("alive" in logs.flaws()) is flaws, fault


def test_who_goes_on_hears_all_that_it_goes_on_with() -> None:
    for fault in (partition(2), cut(2, 0), cut(0, 2)):
        logs = together(faults=[fault])
        logs.probe()
        found = logs.flaws()["alive"]
        assert any("out of its reach" in text for text in found), fault


def test_those_who_must_go_on_end_in_one_view_of_all_of_them() -> None:
    logs = together()
    logs.view(2, "ab", "ab")
    logs.view(3, "c")
    logs.probe()
    assert any("ends in view" in text for text in logs.flaws()["alive"])
    logs = together(4, faults=[PlannedFault(kind="crash", at=0, members=(3,))])
    logs.crash(3)
    logs.probe()
    assert len(logs.flaws()["alive"]) == 3, "the one that crashed is still in their view"
    logs.view(2, "abc", "abc")
    logs.probe()
    assert "alive" not in logs.flaws()


def test_too_few_of_the_newest_view_need_not_go_on() -> None:
    for crashed, must in (([1], True), ([2], True), ([1, 2], False), ([0, 1], False)):
        logs = together()
        for member in crashed:
            logs.crash(member)
        for member in set(range(3)).difference(crashed):
            waits(logs, member)
        assert ("alive" in logs.flaws()) is must, crashed


def test_of_a_half_those_with_the_first_member_must_go_on() -> None:
    for crashed, must in (([2, 3], True), ([0, 1], False), ([1, 2], True), ([0, 3], False), ([1, 2, 3], False)):
        logs = together(4)
        for member in crashed:
            logs.crash(member)
        for member in set(range(4)).difference(crashed):
            waits(logs, member)
        assert ("alive" in logs.flaws()) is must, crashed


def test_before_the_first_view_a_majority_must_begin() -> None:
    for running, must in (((0, 1), True), ((0,), False), ((0, 1, 2), True)):
        logs = Logs(starts=running)
        for member in running:
            waits(logs, member, "joining")
        assert ("alive" in logs.flaws()) is must
    logs = Logs(4, starts=(0, 1))
    assert "alive" not in logs.flaws(), "half are not enough then"


def test_a_view_that_none_of_those_who_are_left_has_seen_decides_nothing() -> None:
    logs = together()
    logs.view(2, elders="abc", by=[2])
    logs.crash(2)
    waits(logs, 0)
    waits(logs, 1)
    assert "alive" not in logs.flaws(), "perhaps they decide what follows the view before"
    logs = together()
    logs.view(2, elders="abc", by=[1])
    waits(logs, 0)
    waits(logs, 1)
    waits(logs, 2)
    assert "alive" in logs.flaws()


def test_one_that_was_left_out_of_the_newest_view_that_was_seen_shows_that_there_is_a_newer_one() -> None:
    logs = together()
    logs.tell(0, "excluded")
    for member in range(3):
        waits(logs, member, "joining")
    assert "alive" not in logs.flaws()


def test_one_that_has_lost_its_state_has_no_vote_in_the_view_that_lists_it() -> None:
    for what, must in (({"forgets": True}, False), ({"old_ms": 40}, False), ({}, True)):
        crash = PlannedFault(kind="crash", at=50, until=100, members=(1,))
        logs = together(faults=[msgspec.structs.replace(crash, **what)])
        logs.crash(1)
        logs.start(1)
        logs.crash(2)
        waits(logs, 0)
        waits(logs, 1, "joining")
        assert ("alive" in logs.flaws()) is must
    logs = together(faults=[PlannedFault(kind="crash", at=50, until=100, members=(1,), forgets=True)])
    logs.crash(1)
    logs.start(1)
    logs.view(2, elders="ac")
    logs.crash(2)
    waits(logs, 0)
    waits(logs, 1)
    assert "alive" in logs.flaws(), "it has begun the newest view since"


def test_what_follows_a_view_that_was_left_may_be_known_to_one_alone_who_has_lost_its_state() -> None:
    for leaves, forgets, must in ((True, True, False), (False, True, True), (True, False, True)):
        logs = together(5, faults=[PlannedFault(kind="crash", at=50, until=100, members=(1,), forgets=forgets)])
        if leaves:
            logs.leave(0)
            logs.start(0)
        logs.crash(1)
        logs.start(1)
        for member in range(5):
            waits(logs, member, "joining")
        assert ("alive" in logs.flaws()) is must


def test_a_majority_that_hears_one_another_goes_on_though_others_are_cut_off() -> None:
    logs = together(5, faults=[partition(3, 4)])
    for member in range(5):
        waits(logs, member, links=(("a", "e"), ("d", "a"), ("e", "a")))
    assert any("nobody goes on" in text for text in logs.flaws()["alive"])
    logs = together(5, faults=[partition(3, 4)])
    logs.view(2, "abc", "abc")
    logs.probe(0, 1, 2)
    waits(logs, 3, links=(("a", "d"),))
    waits(logs, 4, links=(("a", "e"),))
    assert logs.flaws() == {}
    logs = together(4, faults=[partition(2, 3)])
    for member in range(4):
        waits(logs, member, links=(("a", "d"), ("d", "a"), ("c", "a"), ("b", "d")))
    assert "alive" not in logs.flaws(), "two are half of four"
    logs = together(3, faults=[cut(0, 1), cut(1, 2)])
    for member in range(3):
        waits(logs, member)
    assert "alive" in logs.flaws(), "the first and the third hear each other"
    ring = [cut(one, other) for one, other in ((0, 2), (0, 3), (1, 3), (1, 4), (2, 4))]
    logs = together(5, faults=ring)
    for member in range(5):
        waits(logs, member)
    assert "alive" not in logs.flaws(), "each hears its neighbours alone, who do not hear one another"


def test_a_majority_counts_only_with_who_has_seen_the_newest_view_and_remembers() -> None:
    def five(*more: PlannedFault) -> Logs:
        return together(5, faults=[partition(3, 4), *more])

    logs = five()
    logs.view(2, "abcde", "abcde", by=[3])
    for member in range(5):
        waits(logs, member)
    assert "alive" not in logs.flaws(), "of the three none has seen the newest view"
    logs = five(PlannedFault(kind="crash", at=50, until=100, members=(1,), forgets=True))
    logs.crash(1)
    logs.start(1)
    for member in range(5):
        waits(logs, member, "joining" if member == 1 else "stalled")
    assert "alive" not in logs.flaws(), "one of the three has no vote"
    logs = five()
    logs.tell(0, "excluded")
    for member in range(5):
        waits(logs, member, "joining")
    assert "alive" not in logs.flaws(), "there is a newer view"
    logs = together(5, faults=[partition(3, 4)], partition="each-side")
    for member in range(5):
        waits(logs, member)
    assert not any("nobody goes on" in text for text in logs.flaws()["alive"]), "each side does"


@pytest.mark.parametrize(("standing", "must"), [("active", True), ("changing", False)])
def test_one_that_lost_its_state_as_a_view_ended_may_have_decided_what_follows(standing: str, must: bool) -> None:
    fault = PlannedFault(kind="crash", at=0, until=100, members=(0,), forgets=True)
    logs = together(4, faults=[fault])
    logs.sample(0, standing)
    logs.crash(0)
    logs.start(0)
    for member in range(4):
        waits(logs, member, "joining" if member == 0 else "stalled")
    assert ("alive" in logs.flaws()) is must


@pytest.mark.parametrize(("power", "after_s", "must"), [(True, 0.9, False), (True, 1.1, True), (False, 0.9, True)])
def test_a_view_may_be_forgotten_by_who_loses_its_power_soon_after(power: bool, after_s: float, must: bool) -> None:
    fault = PlannedFault(kind="crash", at=0, until=100, members=(0, 1), power=power)
    logs = together(3, faults=[fault, partition(2)])
    logs.now += after_s
    for member in (0, 1):
        logs.crash(member)
        logs.start(member)
    for member in range(3):
        waits(logs, member, "joining" if member < 2 else "stalled")
    assert ("alive" in logs.flaws()) is must


# Who cannot be found, or is unlike the others


def test_who_looks_for_its_group_must_find_it_only_if_one_that_it_may_ask_runs() -> None:
    for discover, member_there, must in (("peers", True, True), ("peers", False, False), ("multicast", False, True)):
        logs = Logs(4, starts=(0, 1, 3), discover=discover)
        logs[3].joined_at = None
        logs.view(1, "ab")
        if not member_there:
            logs.crash(0)
            logs.view(2, "b", "b")
        logs.probe(*((0, 1) if member_there else (1,)))
        waits(logs, 3, "joining", links=(("a", "d"),))
        assert ("alive" in logs.flaws()) is must, discover
    logs = Logs(4, starts=(0, 1, 3), discover="peers")
    logs.view(1, "abd")
    logs.crash(0)
    logs.view(2, "b", "bd")
    logs.crash(3)
    logs.start(3)
    logs[3].joined_at = None
    logs.probe(1)
    waits(logs, 3, "joining", links=(("a", "d"),))
    assert "alive" in logs.flaws(), "it has been in the group, and so knows the second"


def test_the_first_asks_the_second_for_its_group() -> None:
    logs = Logs(4, starts=(0, 1), discover="peers")
    logs[0].joined_at = None
    logs.view(1, "b")
    logs.probe(1)
    waits(logs, 0, "joining", links=(("b", "a"),))
    assert "alive" in logs.flaws()


def test_one_that_is_set_up_differently_has_no_part_in_the_group() -> None:
    logs = Logs(odd=Setup(safe=True))
    logs.view(1, "ab")
    logs.view(1, "c")
    logs.probe(0, 1)
    logs.sample(2)
    assert "alive" not in logs.flaws()
    logs = Logs(odd=Setup(safe=True))
    logs.view(1)
    logs.probe()
    assert "alive" in logs.flaws(), "they are in one view"
    logs = Logs(odd=Setup(safe=True))
    logs.view(1, "ab")
    waits(logs, 0)
    waits(logs, 1)
    assert "alive" in logs.flaws()


def test_who_keeps_the_old_key_hears_nobody() -> None:
    keys = PlannedFault(kind="keys", at=10, until=50, members=(2,), stale=True)
    logs = together(faults=[keys])
    logs.view(2, "ab", "ab")
    logs.probe(0, 1)
    for member in (0, 1):
        logs.sample(member, counts={"refused-unknown-key": 1})
    waits(logs, 2, links=(("a", "c"),))
    assert logs.flaws() == {}
    logs = together(faults=[keys])
    logs.probe()
    assert "alive" in logs.flaws()


# Each side


def test_each_side_goes_on_by_itself() -> None:
    def sides(*probing: int, **about: Any) -> Logs:
        logs = together(5, faults=[partition(3, 4)], partition="each-side", **about)
        logs.view(2, "abc", "abc")
        logs.view(2, "de", "de")
        logs.probe(*probing)
        for member in set(range(5)).difference(probing):
            waits(logs, member)
        return logs

    logs = sides(0, 1, 2, 3, 4)
    assert logs.flaws() == {}
    assert logs.counts["sides"] == 2
    found = sides(0, 1, 2).flaws()["alive"]
    assert len(found) == 2
    assert all("on a side of its own" in text for text in found)
    logs = sides(0, 1, 2)
    logs[3].joined_at = None
    assert "alive" not in logs.flaws(), "one of the side has not joined yet"
    logs = together(5, faults=[partition(3, 4)], partition="each-side")
    logs.view(2, "ab", "ab")
    logs.view(3, "c", "c")
    logs.view(2, "de", "de")
    logs.probe()
    assert len([text for text in logs.flaws()["alive"] if "ends in view" in text]) == 3, "they could be together"
    logs = together(4, faults=[cut(0, 1), cut(2, 3)], partition="each-side")
    for member in range(4):
        waits(logs, member)
    assert "alive" not in logs.flaws(), "who is on which side, nobody can say"


# Without views


def test_without_views_all_go_on_if_all_are_there() -> None:
    logs = Logs(views=False)
    logs.probe()
    assert logs.flaws() == {}
    assert logs.counts["alive"] == 3
    logs = Logs(views=False)
    logs.probe(0, 1)
    assert len(logs.flaws()["alive"]) == 1
    for fault in (partition(2), cut(0, 2)):
        logs = Logs(views=False, faults=[fault])
        assert "alive" not in logs.flaws(), "they wait for one that is not there"
    logs = Logs(views=False)
    logs.crash(2)
    assert "alive" not in logs.flaws()


def test_without_views_one_that_was_started_again_and_is_heard_is_told_so() -> None:
    for fault, flaws, met in ((None, 1, True), (partition(2), 0, True), (None, 0, False)):
        logs = Logs(views=False, faults=[] if fault is None else [fault])
        logs.send(0, stable=met)
        logs.crash(2)
        logs.start(2)
        assert len(logs.flaws().get("alive", [])) == flaws
    logs = Logs(views=False)
    for member in range(3):
        logs.crash(member)
        logs.start(member)
    assert "alive" not in logs.flaws(), "nobody knows of their earlier starts"


# Culprits


def test_who_waits_names_a_link_that_is_broken_and_none_that_is_whole() -> None:
    for links, flaws in (
        ((("a", "c"),), 0),
        ((("c", "a"),), 0),
        ((("a", "c"), ("b", "c")), 0),
        ((), 1),
        ((("a", "b"),), 1),
        ((("a", "c"), ("a", "b")), 1),
    ):
        for standing in ("stalled", "joining", "leaving"):
            logs = together(faults=[partition(2)])
            logs.view(2, "ab", "ab")
            logs.probe(0, 1)
            waits(logs, 2, standing, links=links)
            assert len(logs.flaws().get("culprit", [])) == flaws * (standing != "leaving")
            assert logs.counts["culprits"] == (standing != "leaving")


def test_who_waits_for_another_reason_names_nobody() -> None:
    logs = together(faults=[partition(2, until=50)])
    waits(logs, 2)
    assert "culprit" not in logs.flaws(), "all are within its reach"
    logs = together(faults=[partition(2)])
    logs.error = AssertionError("broken")
    waits(logs, 2)
    assert "culprit" not in logs.flaws()
    logs = together(4, faults=[partition(2)], odd=Setup(safe=True))
    waits(logs, 2)
    assert "culprit" not in logs.flaws()
    logs = Logs(views=False, faults=[partition(2)])
    waits(logs, 2, "joining")
    assert "culprit" not in logs.flaws()


def test_who_searches_names_only_whom_it_may_ask() -> None:
    for discover, asked_is_cut, flaws in (("peers", True, 1), ("peers", False, 0), ("multicast", True, 0)):
        logs = Logs(faults=[cut(0, 2) if asked_is_cut else cut(1, 2)], discover=discover)
        logs[2].joined_at = None
        logs.view(1, "ab")
        logs.probe(0, 1)
        waits(logs, 2, "joining")
        assert len(logs.flaws().get("culprit", [])) == flaws, discover
    logs = Logs(faults=[cut(0, 2)])
    logs[2].joined_at = None
    logs.view(1, "ab")
    logs.probe(0, 1)
    waits(logs, 2, "joining")
    assert len(logs.flaws()["culprit"]) == 1


# Notices


def test_who_stalls_is_told_so_and_who_goes_on_is_told_that() -> None:
    def told(*notices: str, standings: tuple[str, ...], **about: Any) -> int:
        logs = together(faults=[partition(2)], **about)
        for what in notices:
            logs.tell(2, what)
        for standing in standings:
            logs.sample(2, standing)
        return len(logs.flaws().get("notices", []))

    assert told("stalled", standings=("stalled",)) == 0
    assert told(standings=("stalled",)) == 1
    assert told("stalled", "resumed", standings=("stalled",)) == 1
    assert told("stalled", standings=("active",)) == 1
    assert told("stalled", "resumed", standings=("active",)) == 0
    assert told("stalled", standings=("joining",)) == 0
    assert told("stalled", standings=("stalled", "active")) == 0, "it has just changed"
    assert told(standings=("stalled",), work={2: Work(read_pause_ms=1)}) == 0


def test_a_standing_is_told_of_within_a_second() -> None:
    for ago_s, flaws in ((0.99, 0), (1.01, 1)):
        logs = together(faults=[partition(2)])
        logs.sample(2, "active", at=5.0 - ago_s)
        logs.sample(2, "stalled", at=5.0)
        assert len(logs.flaws().get("notices", [])) == flaws
    logs = Logs(faults=[partition(2)])
    logs.sample(2, "stalled")
    assert "notices" not in logs.flaws(), "it never had a view"
    logs = together(faults=[partition(2)])
    logs.sample(2, "stalled")
    logs.error = AssertionError("broken")
    assert "notices" not in logs.flaws()


def test_who_comes_to_a_view_as_a_newcomer_was_told_that_it_was_left_out() -> None:
    for told, elders, flaws in ((False, "ab", 1), (True, "ab", 0), (False, "abc", 0)):
        logs = together()
        if told:
            logs.tell(2, "excluded")
        logs.view(2, elders=elders)
        assert len(logs.flaws().get("notices", [])) == flaws
    logs = together()
    logs.crash(2)
    logs.start(2)
    logs.view(2, elders="ab")
    assert "notices" not in logs.flaws(), "it was started again"


# Where nothing befell anyone


def test_nobody_is_left_out_or_stalls_where_nothing_befell_anyone() -> None:
    for about, flaws in (
        ({}, 1),
        ({"faults": [PlannedFault(kind="clock", at=0, members=(0,))]}, 1),
        ({"faults": [PlannedFault(kind="pause", at=0, members=(0,))]}, 0),
        ({"net": Net(loss=0.1)}, 0),
        ({"odd": Setup(safe=True)}, 0),
        ({"partition": "each-side"}, 0),
    ):
        logs = together(**about)
        logs.tell(1, "excluded")
        assert len(logs.flaws().get("without-reason", [])) == flaws, about
        assert logs.counts["undisturbed"] == 3 * flaws
    logs = together()
    logs.tell(1, "excluded")
    logs.leave(1)
    assert "without-reason" not in logs.flaws()


# Slow readers


def wait_s(logs: Logs) -> float:
    return 1.0 + (3 * logs.schedule.setup.suspect_ms + 40 * logs.schedule.latency_ms) / 1000


@pytest.mark.parametrize("slow", ["block", "drop", "lag"])
def test_slow_readers_keep_nobody_waiting_for_long(slow: str) -> None:
    for longer, about in (
        (True, {}),
        (False, {}),
        (True, {"faults": [PlannedFault(kind="clock", at=0, members=(0,))]}),
        (True, {"net": Net(loss=0.1)}),
        (True, {"odd": Setup(safe=True)}),
        (True, {"partition": "each-side"}),
        (True, {"work": {0: Work(read_pause_ms=1)}}),
    ):
        logs = together(**{"slow": slow, "ordering": "causal-blocks", **about})
        sent = logs[0].sent[logs.send(0)]
        sent.delivered_at = sent.at + wait_s(logs) + (0.001 if longer else -0.001)
        noticed = longer and not about and slow != "block"
        assert len(logs.flaws().get("slow-readers", [])) == noticed, about
        assert logs.counts["not held up"] == (slow != "block" and not about)
    logs = together(slow=slow, ordering="causal-blocks")
    sent = logs[0].sent[logs.send(0)]
    sent.delivered_at, sent.accepted = sent.at + wait_s(logs) + 1, False
    assert "slow-readers" not in logs.flaws()


def test_who_takes_its_events_slowly_but_takes_them_is_waited_for_unless_it_may_lag() -> None:
    for slow, longer, flaws in (("drop", True, 1), ("drop", False, 0), ("lag", False, 1)):
        logs = together(slow=slow, ordering="causal-blocks", work={2: Work(read_pause_ms=40)})
        reading_s = 0.04 * sum(work.messages for work in logs.schedule.work)
        sent = logs[0].sent[logs.send(0)]
        sent.delivered_at = sent.at + wait_s(logs) + reading_s + (0.001 if longer else -0.001)
        assert len(logs.flaws().get("slow-readers", [])) == flaws


@pytest.mark.parametrize(("members", "deaf", "must"), [(2, 0, False), (2, 1, True), (3, 0, True), (4, 3, True)])
def test_a_slow_reader_is_left_out_only_where_the_others_can_go_on_without(members: int, deaf: int, must: bool) -> None:
    logs = together(members, slow="drop", work={deaf: Work(deaf_ms=(1, 2))})
    sent = logs[1 - deaf if deaf < 2 else 0].sent[logs.send(1 - deaf if deaf < 2 else 0)]
    sent.delivered_at = sent.at + wait_s(logs) + 1
    assert ("slow-readers" in logs.flaws()) is must


def test_one_that_does_not_read_for_a_while_is_left_out_once() -> None:
    for times, pause_ms, flaws in ((1, 0, 0), (2, 0, 1), (2, 5, 0)):
        logs = together(slow="drop", work={2: Work(deaf_ms=(1, 2), read_pause_ms=pause_ms)})
        for _ in range(times):
            logs.tell(2, "excluded")
            logs.tell(2, "stalled")
        assert len(logs.flaws().get("slow-readers", [])) == flaws


def test_those_who_keep_up_have_the_same() -> None:
    def lacks(
        *, slow: str = "lag", work: dict[int, Work] | None = None, left: bool = False, before: bool = False
    ) -> int:
        logs = together(slow=slow, ordering="causal-blocks", work=work)
        sent = logs[0].sent[logs.send(0, [0, 2])]
        if before:
            logs[1].joined_at = sent.at
        if left:
            logs.leave(1)
        return len(logs.flaws().get("slow-readers", []))

    assert lacks() == 2, "two have what the second lacks"
    assert lacks(slow="drop") == 0
    assert lacks(work={1: Work(read_pause_ms=1)}) == 0
    assert lacks(left=True) == 0
    assert lacks(before=True) == 0
    assert lacks(work={0: Work(read_pause_ms=1), 2: Work(read_pause_ms=1)}) == 0, "nobody else keeps up"


# Groups of which nobody said how many found them


def test_groups_that_were_founded_apart_are_one_in_the_end_if_all_are_there() -> None:
    for crash, old, must in ((False, 0, True), (True, 0, False), (False, 40, False)):
        faults = [PlannedFault(kind="crash", at=50, until=100, members=(2,), old_ms=old)] if old else []
        logs = Logs(faults=faults, discover="multicast", undeclared=True)
        logs.view(1, "ab")
        logs.view(1, "c")
        if crash:
            logs.crash(2)
        for member in (0, 1) if crash else (0, 1, 2):
            logs.send(member, probe=True)
            logs.sample(member)
        assert ("alive" in logs.flaws()) is must
        assert "views" not in logs.flaws(), "each group counts its own"
        logs = Logs(discover="multicast", undeclared=False)
        logs.view(1, "ab")
        logs.view(1, "c")
        assert "views" in logs.flaws()


def test_who_gives_a_group_up_that_was_founded_apart_may_lose_what_it_was_told() -> None:
    logs = Logs(discover="multicast", undeclared=True, snapshot_bytes=0)
    logs.view(1, "ab")
    logs.view(1, "c")
    first = logs.send(0)
    logs.send(2)
    logs.tell(2, "yielded")
    logs.give(2, [first])
    logs.view(2, elders="ab")
    logs.probe()
    assert logs.flaws() == {}
    logs = Logs(discover="multicast", undeclared=True, snapshot_bytes=0)
    logs.view(1, "ab")
    logs.view(1, "c")
    first = logs.send(0)
    logs.send(2)
    logs.tell(2, "yielded")
    logs.view(2, elders="ab")
    logs.probe()
    assert "state-transfer" in logs.flaws(), "it was not given the state of the group that stands"
