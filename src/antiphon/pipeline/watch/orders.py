"""Whose orders of delivery agree: of each two members what they have in common, view by view."""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.handling import DELIVERED, ELSEWHERE, follows_to, position_of
from antiphon.pipeline.watch.known import ORDERS_DIFFER, Known, alarm
from antiphon.pipeline.watch.state import GONE, NOT_IN, WatchedRun

DIFFERS: Final = 4  # in `WatchedRun.met`, beside how many they have in common


def met_in(run: WatchedRun, views: Array) -> Array:
    """Return for each two actors how many messages both delivered in these views and before (2: more), and DIFFERS."""
    seats, pairs = run.seats, run.pairs
    common = (run.met & ~DIFFERS).astype(np.int64)
    differs = (run.met & DIFFERS) > 0
    for view in np.flatnonzero(views & (seats["come"].any(axis=1) | (run.lines["left"] > 0))).tolist():
        following, row = seats["follows"][view], seats["row"][view]
        stays = (following != NOT_IN) & (following != GONE)
        together = stays[:, None] & stays[None, :] & (following[:, None] == following[None, :])
        come = np.minimum(seats["come"][view], 2)
        both = np.minimum(come[:, None], come[None, :])
        for actor in np.flatnonzero(row >= 0).tolist():
            others = np.flatnonzero((row < 0) | (row > row[actor]))
            both[actor, others] = both[others, actor] = pairs["common"][row[actor], others]
            differs[actor] |= together[actor] & (pairs["differs"][row[actor]] > 0)
        common += np.where(together, both, 0)
    met: Array = (np.minimum(common, 2) | np.where(differs | differs.T, DIFFERS, 0)).astype(np.int8)
    return met


def count_pairs(run: WatchedRun, chosen: Array) -> tuple[int, int]:
    """Count pairs with two common messages, and pairs whose orders differ; one of each pair is a chosen member."""
    met = met_in(run, np.ones(len(run.views), bool))
    has_log = run.actors["has_log"] > 0
    counted = np.triu(np.outer(has_log, has_log) & (chosen[:, None] | chosen[None, :]), 1)
    return int((counted & (met & ~DIFFERS >= 2)).sum()), int((counted & (met & DIFFERS > 0)).sum())


@compiled
def compare_orders(q: int, step: int, m: int, known: Known) -> None:
    """Compare a delivery with those of the message in the same view by others, unless both follow the line."""
    seats, messages, pairs, cells = known.seats, known.messages, known.pairs, known.cells
    v = known.actors[q].current
    mine = seats[v, q].row
    here = position_of(q, m, cells, messages, seats) + 1
    for p in range(known.actors.size):
        its = seats[v, p].row
        if p == q or (mine < 0 and its < 0) or (mine >= 0 and pairs[mine, p].differs):
            continue
        did = cells[p, m]
        if did & ELSEWHERE or not (did & DELIVERED or follows_to(p, m, messages, seats)):
            continue
        there = position_of(p, m, cells, messages, seats) + 1
        if mine >= 0 and (its < 0 or mine < its):
            pair = pairs[mine, p]
            in_order = pair.there <= there
            pair.here, pair.there = max(pair.here, here), max(pair.there, there)
        else:
            pair = pairs[its, q]
            in_order = pair.here <= there
            pair.here, pair.there = max(pair.here, there), max(pair.there, here)
        pair.common = min(2, pair.common + 1)
        if not in_order and not pair.differs:
            pair.differs = 1
            if mine >= 0 and its >= 0:
                pairs[max(mine, its), q if its > mine else p].differs = 1
            alarm(known, ORDERS_DIFFER, q, step, m, p, 0)
