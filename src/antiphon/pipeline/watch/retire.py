"""Let go of the messages of a run that nobody can say anything new about."""

from __future__ import annotations

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.results import WatchAlarm
from antiphon.pipeline.watch.dues import settle
from antiphon.pipeline.watch.handling import position_of
from antiphon.pipeline.watch.judge import pointers, renumber
from antiphon.pipeline.watch.obligations import strike_unsettled
from antiphon.pipeline.watch.spans import with_numbers
from antiphon.pipeline.watch.state import HAS_MARKS, NEW_NODE, NODES, NOTHING, NOWHERE, WatchedRun


def retire(run: WatchedRun, departed: Array, leaving: Array, views_over: Array, batch: int) -> list[WatchAlarm]:
    """Forget all messages that are over but their numbers; and those that who is `leaving` never sent.

    Returns what is wrong: of these, and of all that were delivered in views that are over, it is settled who owes them.
    """
    messages = run.messages
    over, odd = _is_over(run, departed, views_over)
    unsent = (messages["sent"] == 0) & leaving[messages["sender"]]
    alarms = settle(run, odd | (unsent & (messages["seen_in"] >= 0)), views_over, departed, batch)
    over |= unsent
    blank = (messages["sent"] == 0) & (messages["handled"] == 0)  # only waiting rows name it
    over |= (messages["retired"] > 0) | blank
    going = messages[over & ~blank & (messages["retired"] == 0)]
    sent_in = np.where((going["sent"] > 0) | (not run.sends_recorded), going["send_view"], NOWHERE)
    run.retired = with_numbers(run.retired, going["sender"], going["seq"], sent_in)
    run.retired_initially |= bool((sent_in == 0).any())
    still = last_kept(over, messages["before"].copy(), np.lexsort((messages["rank"], messages["seen_in"])))
    for pointer in pointers(run):
        pointing = pointer >= 0
        pointer[pointing] = still[pointer[pointing]]
    send_view = messages["send_view"].copy()
    run.messages = messages[~over]
    keep_lists(run, over, send_view, np.arange(len(run.views)))
    cells = np.zeros((len(run.ids), len(run.messages)), np.int64)
    for actor in np.flatnonzero(run.actors["off_line"]).tolist():
        cells[actor] = run.cells[actor, ~over]
    run.cells = cells
    renumber(run, np.cumsum(~over) - 1)
    return alarms


def _with_topics(run: WatchedRun, over: Array) -> Array:
    """Which messages are over, where of those with topics it is subscriptions that say who owes what."""
    sender, seq = np.array(run.ids, np.int64)[run.messages["sender"]], run.messages["seq"]
    sent = (run.messages["sent"] > 0) | (not run.sends_recorded)
    settled, kept = run.brokers.is_settled(sender, seq), run.brokers.is_kept(sender, seq)
    result: Array = np.where(settled, sent, over & ~kept)
    return result


def _is_over(run: WatchedRun, departed: Array, views_over: Array) -> tuple[Array, Array]:
    """Which messages everyone who must has handled and, where there are marks at all, has marked stable; which are odd.

    Who must is decided by the view in which a message was sent. A mark is asked of those who are still in that view:
    whoever went on to the next has, with all who went on with it, what was delivered there.
    """
    messages, actors = run.messages, run.actors
    stays = ~departed
    present = (actors["has_log"] > 0) & stays
    named = np.array([view.members is not None for view in run.views])[:, None]
    expected = (run.seats["belongs"] > 0) & (present | (named & stays))
    over = (messages["sent"] > 0) | (not run.sends_recorded)
    if run.counts[HAS_MARKS]:
        for view in np.unique(messages["send_view"]).tolist():
            still_there = present & (run.seats["belongs"][view] > 0) & (run.seats["follows"][view] == NOTHING)
            if still_there.any():
                stable = run.heard["marked"][still_there].min(axis=0)
                over &= (messages["send_view"] != view) | (messages["seq"] <= stable[messages["sender"]])
    odd = np.zeros(len(messages), bool)
    strike_unsettled(over, expected, views_over, run.cells, messages, run.seats, odd)
    if run.brokers.are_there:
        over, expected = _with_topics(run, over), np.zeros_like(expected)
        odd |= over
    note_overlooked(over, expected, run.cells, messages, run.seats)
    return over, odd


@compiled
def note_overlooked(over: Array, expected: Array, cells: Array, messages: Array, seats: Array) -> None:
    """Note who was away, or did not owe it, when messages were let go that it has not handled: it may do so yet."""
    for m in range(over.size):
        view = messages[m].send_view
        for q in range(expected.shape[1] if over[m] else 0):
            seat = seats[view, q]
            if seat.belongs and not expected[view, q] and not seat.overlooked:
                seat.overlooked = position_of(q, m, cells, messages, seats) < 0


@compiled
def last_kept(over: Array, before: Array, in_order: Array) -> Array:
    """For each message: itself if it stays, else the last one before it on its line that does, -1 if none."""
    still = np.full(over.size, -1, np.int64)
    for m in in_order:
        if not over[m]:
            still[m] = m
        elif before[m] >= 0:
            still[m] = still[before[m]]
    return still


def keep_lists(run: WatchedRun, over: Array, send_view: Array, view: Array) -> None:
    """Keep the lists of all actors and messages alone, with the views' new numbers.

    Of messages that are over only the view of their sending stays, and that only while somebody is known of it.
    """
    fresh = np.zeros(len(run.nodes) + 1, NEW_NODE.dtype)
    first = np.concatenate([run.actors["past"], run.messages["past"]])
    used = copy_lists(first, run.nodes, fresh, over, send_view, view, np.full(len(view) + 1, -1, np.int64))
    run.nodes = fresh[:used].copy()
    run.actors["past"], run.messages["past"] = first[: len(run.ids)], first[len(run.ids) :]
    run.counts[NODES] = used


@compiled
def copy_lists(
    first: Array, nodes: Array, fresh: Array, over: Array, send_view: Array, view: Array, noted_by: Array
) -> int:
    """Copy lists into fresh nodes, a view instead of a message that is over, each view once; returns how many."""
    used = 0
    for owner in range(first.size):
        at = first[owner]
        begun = used
        while at >= 0:
            m = nodes[at].message
            if m >= 0 and over[m]:
                m = ~send_view[m]
            at = nodes[at].next
            if m < 0:
                new = view[~m]
                if new < 0 or noted_by[new] == owner:
                    continue
                noted_by[new] = owner
                m = ~new
            fresh[used].message = m
            fresh[used].next = used + 1
            used += 1
        first[owner] = begun if used > begun else -1
        if used > begun:
            fresh[used - 1].next = -1
    return used
