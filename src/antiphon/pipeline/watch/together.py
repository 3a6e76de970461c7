"""Who goes on together from a view, and how much agreement and view-synchrony have examined of that."""

from __future__ import annotations

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.watch.state import (
    GONE,
    NOT_IN,
    OBLIGING,
    VIEW_PAIRS,
    VIEW_PAIRS_DIFFERING,
    WatchedRun,
)


def count_obliging(run: WatchedRun, chosen: Array) -> int:
    """How many first deliveries at these seats (view by actor) oblige another member."""
    together, company = _classes(run)
    obliges = chosen & (together >= 0) & ((company >= 2) | (run.seats["accompanied"] > 0))
    return int(run.seats["obliging"][obliges].sum())


def count_view_pairs(run: WatchedRun, chosen: Array) -> int:
    """How many pairs with a delivery in a view go on to the same next one, of which at least one seat is chosen."""
    seats = run.seats
    counted = (seats["installed"] > 0) & (seats["follows"] >= 0) & (run.actors["has_log"] > 0)
    kept = counted & ~chosen
    return _pairs(seats, counted) - _pairs(seats, kept)


def _pairs(seats: Array, counted: Array) -> int:
    """Pairs at these seats of one view with the same next one, those who both delivered nothing aside."""
    view, _ = np.nonzero(counted)
    if not len(view):
        return 0
    key = np.stack([view, seats["follows"][counted]], 1)
    silent = seats["delivered"][counted] == 0
    return sum(
        int((number * (number - 1) // 2).sum()) * sign
        for keys, sign in ((key, 1), (key[silent], -1))
        if len(keys)
        for number in (np.unique(keys, axis=0, return_counts=True)[1],)
    )


def differ_together(run: WatchedRun, splits: Array) -> Array:
    """Which of these differences are between two that installed the view and go on to the same next one."""
    view, one, other = splits[:, 0], splits[:, 1], splits[:, 2]
    mine, its = run.seats[view, one], run.seats[view, other]
    alike = (mine["follows"] == its["follows"]) & (mine["follows"] >= 0)
    result: Array = alike & (mine["installed"] > 0) & (its["installed"] > 0)
    return result


def settle_seats(run: WatchedRun, leaving: Array, closing: Array) -> None:
    """Count what has become final with members that are let go and views that are closed."""
    chosen = leaving[None, :] | closing[:, None]
    run.counts[OBLIGING] += count_obliging(run, chosen)
    run.counts[VIEW_PAIRS] += count_view_pairs(run, chosen)
    splits = run.splits
    going = chosen[splits[:, 0], splits[:, 1]] | chosen[splits[:, 0], splits[:, 2]]
    run.counts[VIEW_PAIRS_DIFFERING] += int(differ_together(run, splits[going]).sum())
    run.splits = splits[~going]
    together, _ = _classes(run)
    left = together[:, leaving]
    run.seats["accompanied"] |= np.isin(together, left[left >= 0]) & (together >= 0)


def renumber_splits(run: WatchedRun, actor: Array, view: Array) -> None:
    """Give the actors and views of differences their new numbers."""
    run.splits[:, 0] = view[run.splits[:, 0]]
    run.splits[:, 1:4] = actor[run.splits[:, 1:4]]


def _classes(run: WatchedRun) -> tuple[Array, Array]:
    """Return at each seat who goes on together, as a number (-1: nobody, or gone), and how many they are."""
    follows = run.seats["follows"]
    counted = (run.actors["has_log"] > 0) & (follows != NOT_IN) & (follows != GONE)
    view, _ = np.nonzero(counted)
    together, company = np.full(follows.shape, -1, np.int64), np.zeros(follows.shape, np.int64)
    if len(view):
        key = np.stack([view, follows[counted]], 1)
        _, number, sizes = np.unique(key, axis=0, return_inverse=True, return_counts=True)
        number = number.reshape(-1)
        together[counted], company[counted] = number, sizes[number]
    return together, company
