"""The judge notices: groups with one bug each, planted in receipts, inbox, state, sessions, discovery and storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from antiphon.testing.torture.judge import judge
from antiphon.testing.torture.run import run
from antiphon.testing.torture.schedule import Schedule
from stack import planted, scripted
from stack.planted import Plant

SEEDS_MAX: Final = 6


class Bug(msgspec.Struct, frozen=True):
    """A bug, a schedule in which it shows with a seed, and the rules by which it is noticed: one of them must be."""

    plant: Plant
    schedule: Callable[[int], Schedule]
    rules: frozenset[str]
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.plant.__name__}-{self.schedule.__name__}"


def bug(plant: Plant, schedule: Callable[[int], Schedule], *rules: str, seed: int = 0) -> Bug:
    return Bug(plant, schedule, frozenset(rules), seed)


BUGS: Final = [
    bug(planted.stable_at_once, scripted.busy, "stable", "final-states"),
    bug(planted.stable_too_far, scripted.busy, "stable", "final-states", "receipts-end", seed=2),
    bug(planted.open_for_ever_after_exclusion, scripted.busy, "receipts-end", "stable", "delivered", "broken", seed=2),
    bug(planted.stable_after_exclusion, scripted.busy, "stable", "final-states"),
    bug(planted.the_next_receipt, scripted.busy, "receipts-end", "broken"),
    bug(planted.view_end_loses_receipts, scripted.busy, "unknown"),
    bug(planted.no_reason, scripted.busy, "unknown"),
    bug(planted.unknown_never_said, scripted.busy, "receipts-end", seed=2),
    bug(planted.delivered_forgotten, scripted.busy, "receipts-end", seed=4),
    bug(planted.inbox_loses, scripted.busy, "view-synchrony", "delivered", "state-transfer", seed=1),
    bug(planted.inbox_doubles, scripted.busy, "integrity"),
    bug(planted.inbox_reorders, scripted.busy, "fifo", "total", "causal"),
    bug(planted.inbox_mixes_up_senders, scripted.busy, "integrity"),
    bug(planted.inbox_names_the_wrong_view, scripted.busy, "message-views"),
    bug(planted.views_are_lost, scripted.busy, "message-views"),
    bug(planted.views_come_twice, scripted.busy, "views"),
    bug(planted.exclusion_is_not_said, scripted.busy, "unknown", "view-synchrony", "state-transfer", seed=1),
    bug(planted.state_is_not_restored, scripted.busy, "state-transfer"),
    bug(planted.state_is_captured_late, scripted.busy, "state-transfer", "integrity"),
    bug(planted.a_new_iterator_skips_one, scripted.cancelled, "delivered", "view-synchrony", "final-states"),
    bug(planted.large_messages_die_with_a_view, scripted.heavy, "broken", "delivered", "view-synchrony", seed=5),
    bug(planted.large_messages_are_not_handed_over, scripted.heavy, "broken", "final-states", "view-synchrony", seed=4),
    bug(planted.keys_are_never_changed, scripted.rotated, "alive"),
    bug(planted.founding_at_once, scripted.found, "views", "alive"),
    bug(planted.nobody_tells_newcomers, scripted.found, "views", "alive"),
    bug(planted.nothing_is_written, scripted.crashed, "alive"),
    bug(planted.nothing_is_synced, scripted.powerless, "alive"),
    bug(planted.who_was_started_again_is_let_in, scripted.started_again, "stable-without-views"),
    bug(planted.always_active, scripted.parted, "alive"),
    bug(planted.links_are_not_named, scripted.parted, "culprit", seed=1),
    bug(planted.the_wrong_link_is_named, scripted.parted, "culprit"),
    bug(planted.the_inbox_is_never_full, scripted.deaf, "bounds"),
    bug(planted.after_a_pause_nobody_is_asked, scripted.paused, "left-behind"),
    bug(planted.sends_vanish, scripted.busy, "receipts-end"),
    bug(planted.failures_of_the_application, scripted.busy, "errors"),
    bug(planted.sends_go_out_twice, scripted.busy, "integrity", "broken"),
    bug(planted.what_waited_is_called_lost, scripted.busy, "lost"),
    bug(planted.the_first_state_is_kept, scripted.busy, "state-transfer", "integrity", "final-states"),
    bug(planted.exclusions_are_not_counted, scripted.busy, "anomalies"),
    bug(planted.one_that_searches_names_nobody, scripted.searching, "culprit"),
    bug(planted.stable_before_delivered, scripted.busy, "stages", seed=3),
    bug(planted.stable_says_nothing_of_delivered, scripted.asking, "stages", seed=4),
    bug(planted.outcome_is_behind, scripted.busy, "stages"),
    bug(planted.receipts_stay_open_when_a_group_is_left, scripted.left_without_an_answer, "left"),
    bug(planted.those_who_wait_for_room_are_not_told, scripted.left_without_an_answer, "left"),
    bug(planted.leaving_waits_for_nothing, scripted.leaving, "left", seed=3),
    bug(planted.what_is_under_way_is_called_lost, scripted.leaving, "lost"),
    bug(planted.the_stream_never_ends, scripted.leaving, "left"),
    bug(planted.what_came_behind_the_state_comes_twice, scripted.behind, "integrity"),
    bug(
        planted.what_came_behind_the_state_is_lost,
        scripted.behind,
        "final-states",
        "state-transfer",
        "view-synchrony",
        seed=1,
    ),
    bug(planted.a_snapshot_is_one_message_old, scripted.behind, "state-transfer", seed=4),
    bug(planted.the_state_comes_after_the_first_message, scripted.behind, "state-transfer", seed=1),
    bug(
        planted.a_state_is_forgotten_when_its_reader_gives_up,
        scripted.cancelled_while_it_restores,
        "state-transfer",
        "final-states",
    ),
    bug(planted.an_inbox_never_has_room_again, scripted.held_up, "alive", seed=5),
    bug(planted.slow_readers_are_never_dropped, scripted.ignored, "slow-readers", seed=2),
    bug(planted.a_full_inbox_is_not_told, scripted.ignored_without_state, "slow-readers"),
    bug(planted.nothing_is_too_old_for_a_slow_reader, scripted.lagging, "slow-readers"),
    bug(planted.inbox_loses, scripted.lagging, "slow-readers"),
    bug(planted.a_minority_goes_on, scripted.halves, "views"),
    bug(planted.stalling_is_not_said, scripted.parted, "notices"),
    bug(planted.resuming_is_not_said, scripted.in_pieces, "notices", seed=1),
    bug(planted.no_side_yields, scripted.sides, "alive"),
    bug(planted.a_side_waits_for_the_other, scripted.sides_for_good, "alive"),
    bug(planted.the_smaller_side_stands, scripted.sides, "sides"),
    bug(planted.yielding_is_not_said, scripted.sides, "notices", seed=2),
    bug(planted.state_is_not_restored, scripted.sides, "state-transfer"),
    bug(planted.a_second_session_is_never_let_in, scripted.rotated, "alive"),
    bug(planted.challenges_are_answered_once, scripted.rotated, "alive", seed=2),
    bug(planted.those_set_up_differently_are_let_in, scripted.set_up_differently, "alive", "broken", "views"),
    bug(planted.old_keys_are_taken_for_ever, scripted.stale_key, "anomalies", seed=2),
    bug(planted.only_the_first_key_is_taken, scripted.rotated_slowly, "without-reason", seed=2),
    bug(planted.hellos_keep_the_old_key, scripted.found_with_a_new_key, "alive"),
    bug(planted.an_old_state_votes, scripted.two_votes, "views", "stable"),
    bug(planted.who_could_decide_alone_asks_nobody, scripted.alone_again, "views", "stable", "final-states"),
    bug(planted.the_count_of_starts_is_never_told, scripted.started_often, "alive"),
    bug(planted.groups_that_meet_stay_apart, scripted.founded_apart, "alive"),
    bug(planted.a_group_that_has_begun_gives_way, scripted.founded_by_one_who_waits, "final-states"),
    bug(planted.counts_of_a_group_that_is_given_up_are_lost, scripted.founded_apart, "anomalies"),
    bug(planted.a_given_time_is_not_heeded, scripted.timed, "alive"),
    bug(planted.windows_do_not_fill, scripted.slow_links, "bounds", "broken"),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_noticed(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    noticed = {flaw.rule for flaw in judge(run(bug.schedule(bug.seed)))[0]}
    assert noticed & bug.rules, f"noticed instead: {sorted(noticed)}"


SOUND: Final = sorted({(bug.schedule.__name__, bug.seed) for bug in BUGS})


@pytest.mark.parametrize(("schedule", "seed"), SOUND)
def test_without_a_bug_nothing_is_noticed(schedule: str, seed: int) -> None:
    flaws, _ = judge(run(getattr(scripted, schedule)(seed)))
    assert not flaws, flaws[0]


def test_there_are_enough() -> None:
    assert len(BUGS) >= 25
