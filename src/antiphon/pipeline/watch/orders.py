"""Whose orders of delivery agree: of each two members what they have in common, view by view."""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.pipeline.columns import Array
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
    """(pairs with two common messages, pairs whose orders differ) of which at least one is chosen."""
    met = met_in(run, np.ones(len(run.views), bool))
    has_log = run.actors["has_log"] > 0
    counted = np.triu(np.outer(has_log, has_log) & (chosen[:, None] | chosen[None, :]), 1)
    return int((counted & (met & ~DIFFERS >= 2)).sum()), int((counted & (met & DIFFERS > 0)).sum())
