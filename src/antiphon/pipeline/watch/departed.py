"""Who has departed from a run under watch, which views are over, and who can be let go."""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.pipeline.columns import DELIVER, DISCARD, NULL_TIME, SEND, VIEW, Array
from antiphon.pipeline.watch.state import GONE, NEWEST_NS, NOTHING, WatchedRun

IDLE_MAX: Final = 1024  # members and senders; of more, those go that nothing has come from for longest
KEPT: Final = 64  # members that have departed and are kept all the same: who comes back under its number goes on


def is_silent(run: WatchedRun, patience_ns: int) -> Array:
    """Which actors nothing has come from for as long as patience asks, and nothing waits of."""
    actors, newest = run.actors, int(run.counts[NEWEST_NS])
    last = actors["last_ns"].copy()
    naming = run.seats["belongs"][1:] > 0
    for actor in np.flatnonzero(actors["has_log"] == 0).tolist():
        last[actor] = run.lines["ended_ns"][1:][naming[:, actor]].max(initial=NULL_TIME)
    waits = np.isin(np.arange(len(actors)), run.queue.actor)
    result: Array = (last != NULL_TIME) & (last < newest - patience_ns) & ~waits
    return result


def left_behind(run: WatchedRun, patience_ns: int) -> Array:
    """Which actors the others have gone on without, and that have been silent since; a killed process logs no crash.

    Others have gone on without one if from every view that names it somebody installed a view that does not; of one
    with a log, from the last that it might be in: the view that it installed last, or a later one that names it.
    """
    actors, seats, newest = run.actors, run.seats, int(run.counts[NEWEST_NS])
    if newest == NULL_TIME or len(run.views) < 2:
        return np.zeros(len(actors), bool)
    installed = np.array([view.number is not None for view in run.views])
    installed[0] = False
    naming = (seats["belongs"] > 0) & installed[:, None]
    without = seats["without"] > 0
    number = run.lines["number"]
    ahead = naming & (number[:, None] > actors["highest_view"][None, :])
    last = np.where(ahead, number[:, None], -1).max(axis=0)
    excluded = np.where(
        last < 0, without[actors["current"], np.arange(len(actors))], (without | (number[:, None] != last)).all(axis=0)
    )
    nameless = actors["has_log"] == 0
    excluded[nameless] = (naming.any(axis=0) & (without | ~naming).all(axis=0))[nameless]
    result: Array = excluded & is_silent(run, patience_ns)
    return result


def views_over(run: WatchedRun, departed: Array) -> Array:
    """Which views everyone who could still do anything in them has gone on from."""
    actors, stays = run.actors, ~departed
    inside = np.zeros(len(run.views), bool)
    inside[actors["current"][stays & (actors["has_log"] > 0)]] = True
    inside[run.queue.installs[run.queue.code == VIEW]] = True
    to_come = (actors["highest_view"][None, :] < run.lines["number"][:, None]) & stays[None, :]
    awaited = ((run.seats["belongs"] > 0) & to_come).any(axis=1)
    return ~inside & ~awaited


def who_can_go(run: WatchedRun, departed: Array, over: Array, patience_ns: int) -> Array:
    """Which actors can be let go: nothing more is to be said of them, and enough have departed after them.

    What they delivered they delivered in views that are over or that they are gone from, so whom they agree with is
    decided. Where there are too many, as clients of a broker that never say farewell, it need not be.
    """
    actors, seats, queue = run.actors, run.seats, run.queue
    numbers = np.arange(len(actors))
    about = np.isin(queue.code, (SEND, DELIVER, DISCARD))
    waits = np.isin(numbers, queue.actor) | np.isin(numbers, queue.sender[about])
    sends = np.isin(numbers, run.messages["sender"][run.messages["sent"] > 0])
    delivered = (seats["come"] > 0) | (seats["row"] >= 0)
    used = (run.lines["length"] > 0) | (run.lines["left"] > 0)
    delivered |= (seats["follows"] >= NOTHING) & (seats["follows"] != GONE) & used[:, None]  # it may owe something
    undecided = (delivered & ~over[:, None] & (seats["follows"] != GONE)).any(axis=0)
    unsent = run.messages[(run.messages["sent"] == 0) & (run.messages["seen_in"] >= 0)]
    undecided[unsent["sender"][~over[unsent["seen_in"]]]] = True
    timeless = run.counts[NEWEST_NS] == NULL_TIME
    settled = ~waits & ~sends & ~undecided & (is_silent(run, patience_ns) | timeless)
    # of one that is named by no view any more and has no log there is nothing to keep
    unheard = np.isin(numbers, run.messages["sender"])
    leaving: Array = (actors["has_log"] == 0) & ~(seats["belongs"] > 0).any(axis=0) & ~waits & ~unheard
    kept = max(KEPT, int((~departed & (actors["has_log"] > 0)).sum()))
    candidates = np.flatnonzero(departed & settled)
    oldest_first = candidates[np.argsort(actors["last_ns"][candidates], kind="stable")]
    leaving[oldest_first[: max(0, int(departed.sum()) - kept)]] = True
    idle = np.flatnonzero(~leaving & ~waits & ~sends & ~unheard & is_silent(run, patience_ns))
    longest_first = idle[np.argsort(actors["last_ns"][idle], kind="stable")]
    leaving[longest_first[: max(0, len(actors) - int(leaving.sum()) - IDLE_MAX)]] = True
    return leaving
