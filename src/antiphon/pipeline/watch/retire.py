"""Let go of the messages of a run that nobody can say anything new about."""

from __future__ import annotations

import numpy as np

from antiphon.pipeline.columns import NULL_TIME, Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.judge import pointers, position_of, renumber
from antiphon.pipeline.watch.state import HAS_MARKS, NEW_NODE, NEWEST_NS, NODES, NOTHING, WatchedRun


def retire(run: WatchedRun, patience_ns: int) -> None:
    """Forget all of these messages but their numbers."""
    messages = run.messages
    over = _is_over(run, patience_ns)
    blank = (messages["sent"] == 0) & (messages["handled"] == 0)  # only waiting rows name it
    leaving = over & ~blank & (messages["retired"] == 0)
    over |= (messages["retired"] > 0) | blank
    run.retired = _with_spans(run.retired, messages["sender"][leaving], messages["seq"][leaving])
    run.retired_initially |= bool((messages["send_view"][leaving] == 0).any())
    still = last_kept(over, messages["before"].copy(), np.lexsort((messages["rank"], messages["seen_in"])))
    for pointer in pointers(run):
        pointing = pointer >= 0
        pointer[pointing] = still[pointer[pointing]]
    run.nodes, first = kept_lists(run.nodes, run.actors["past"].copy(), messages["past"][~over], over, messages)
    run.actors["past"] = first[: len(run.ids)]
    run.messages = messages[~over]
    run.messages["past"] = first[len(run.ids) :]
    run.counts[NODES] = len(run.nodes)
    cells = np.zeros((len(run.ids), len(run.messages)), np.int64)
    for actor in np.flatnonzero(run.actors["off_line"]).tolist():
        cells[actor] = run.cells[actor, ~over]
    run.cells = cells
    renumber(run, np.cumsum(~over) - 1)


def _is_over(run: WatchedRun, patience_ns: int) -> Array:
    """Which messages everyone who must has handled and, where there are marks at all, has marked stable.

    Who must is decided by the view in which a message was sent. A mark is asked of those who are still in that view:
    whoever went on to the next has, with all who went on with it, what was delivered there.
    """
    messages, actors = run.messages, run.actors
    stays = (actors["gone"] == 0) & ~left_behind(run, patience_ns)
    present = (actors["has_log"] > 0) & stays
    named = np.array([view.members is not None for view in run.views])[:, None]
    expected = (run.seats["belongs"] > 0) & (present | (named & stays))
    over = messages["sent"] > 0
    if run.counts[HAS_MARKS]:
        for view in np.unique(messages["send_view"]).tolist():
            still_there = present & (run.seats["belongs"][view] > 0) & (run.seats["follows"][view] == NOTHING)
            if still_there.any():
                stable = run.heard["marked"][still_there].min(axis=0)
                over &= (messages["send_view"] != view) | (messages["seq"] <= stable[messages["sender"]])
    keep_unhandled(over, expected, run.cells, messages, run.seats)
    return over


def left_behind(run: WatchedRun, patience_ns: int) -> Array:
    """Which actors the others have gone on without, and that have been silent since; a killed process logs no crash.

    Others have gone on without one if from every view that names it (of one with a log: from the view that it is in)
    somebody installed a view that does not. Silent: nothing of it is as young as patience asks.
    """
    actors, seats, newest = run.actors, run.seats, int(run.counts[NEWEST_NS])
    if newest == NULL_TIME or len(run.views) < 2:
        return np.zeros(len(actors), bool)
    belongs = seats["belongs"] > 0
    without = np.zeros(belongs.shape, bool)  # view by actor: somebody went on from the view to one without the actor
    for view in range(len(run.views)):
        for following in np.unique(seats["follows"][view]).tolist():
            if following >= 0:
                without[view] |= ~belongs[following]
    last = actors["last_ns"].copy()
    excluded = without[actors["current"], np.arange(len(actors))]
    for actor in np.flatnonzero(actors["has_log"] == 0).tolist():
        naming = belongs[1:, actor]
        excluded[actor] = naming.any() and without[1:, actor][naming].all()
        last[actor] = run.lines["ended_ns"][1:][naming].max(initial=NULL_TIME)
    waits = np.isin(np.arange(len(actors)), run.queue.actor)
    result: Array = excluded & (last != NULL_TIME) & (last < newest - patience_ns) & ~waits
    return result


@compiled
def keep_unhandled(over: Array, expected: Array, cells: Array, messages: Array, seats: Array) -> None:
    """Strike out the messages that somebody has yet to handle."""
    for m in range(over.size):
        for q in range(expected.shape[1]):
            if not over[m]:
                break
            if expected[messages[m].send_view, q] and position_of(q, m, cells, messages, seats) < 0:
                over[m] = False


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


def kept_lists(nodes: Array, of_actors: Array, of_messages: Array, over: Array, messages: Array) -> tuple[Array, Array]:
    """(nodes, first nodes) of these lists alone; of messages that are over only the view of their sending stays."""
    fresh = np.zeros(len(nodes), NEW_NODE.dtype)
    first = np.concatenate([of_actors, of_messages])
    used = copy_lists(first, nodes, fresh, over, messages["send_view"].copy())
    return fresh[:used].copy(), first


@compiled
def copy_lists(first: Array, nodes: Array, fresh: Array, over: Array, send_view: Array) -> int:
    """Copy lists into fresh nodes, a view instead of a message that is over, once in a row; returns how many."""
    used = 0
    for owner in range(first.size):
        at = first[owner]
        begun = used
        noted = 0  # a view, as ~view
        while at >= 0:
            m = nodes[at].message
            if m >= 0 and over[m]:
                m = ~send_view[m]
            at = nodes[at].next
            if m < 0 and m == noted:
                continue
            noted = m if m < 0 else noted
            fresh[used].message = m
            fresh[used].next = used + 1
            used += 1
        first[owner] = begun if used > begun else -1
        if used > begun:
            fresh[used - 1].next = -1
    return used


def _with_spans(spans: Array, sender: Array, seq: Array) -> Array:
    """Add numbers to spans of numbers."""
    if not len(seq):
        return spans
    rows = np.concatenate([spans, np.stack([sender, seq, seq], axis=1)])
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] > rows[:-1, 2] + 1)
    starts = np.flatnonzero(fresh)
    stops = np.append(starts[1:], len(rows)) - 1
    return np.stack([rows[starts, 0], rows[starts, 1], rows[stops, 2]], axis=1)
