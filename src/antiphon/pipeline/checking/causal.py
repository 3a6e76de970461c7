"""Causal order: nobody handles a message before what its sending depends on.

Every sender's past is laid beside the positions at which a block of members handled each message; checking direct
predecessors at every member checks the transitive ones by induction, so no vector clock is needed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.pipeline import kernels as k
from antiphon.pipeline.checking.findings import Finding, Stub
from antiphon.pipeline.checking.run import CheckedRun
from antiphon.pipeline.columns import Array, Unit

WIDTHS: Final = (16, 8, 4, 2, 1)  # of blocks of members: the positions of one message at 16 fill one cache line
POSITIONS_BYTES_MAX: Final = 1 << 30  # of a block


def block_width(messages: int) -> int:
    """How many members are checked side by side in a run of so many messages: as many as memory allows."""
    item = np.dtype(np.int32).itemsize
    return next((width for width in WIDTHS if messages * width * item <= POSITIONS_BYTES_MAX), WIDTHS[-1])


def check_causal(run: CheckedRun, receivers: range, senders: range, width: int) -> Finding:
    """Check the messages of some units at some units, no more than the block is wide."""
    size = run.universe.size
    position = np.full((size, width), k.NEVER, np.int32)
    handled = np.zeros(size, bool)
    for column, unit in enumerate(receivers):
        seen = _seen(run, unit)
        k.place(seen, position, column)
        handled[seen] = True
    examined = np.zeros(width, np.int64)
    by_sender = np.zeros((len(senders), width), np.int64)
    belongs = _belongs(run, receivers, width)
    heard = _senders_of(run, handled)
    for row, sender in enumerate(senders):
        if int(run.layout.unit_member[sender]) not in heard:
            continue  # nothing of it is handled here
        past = run.array(sender, "past")
        if belongs is None:
            k.causal_count(past, position, (0,) * width, examined, by_sender[row])
        else:
            k.causal_count_in_views(past, position, examined, by_sender[row], run.sent_view, belongs)

    stubs: list[Stub] = []
    for column in np.flatnonzero(by_sender.any(axis=0)).tolist():
        wanted = run.job.witnesses - len(stubs)
        if wanted <= 0:
            break
        counts = np.ones(size, np.uint8) if belongs is None else belongs[:, column][run.sent_view]
        stubs += _first(run, receivers[column], senders, by_sender[:, column], position[:, column], counts)[:wanted]
    return Finding(int(examined.sum()), int(by_sender.sum()), False, 0, stubs)


def _senders_of(run: CheckedRun, messages: Array) -> frozenset[int]:
    """Who sent any of these messages, which are given as a mask of all."""
    spans = np.logical_or.reduceat(messages, run.universe.base) if len(messages) else messages
    return frozenset(run.universe.span_sender[spans].tolist())


def _belongs(run: CheckedRun, receivers: range, width: int) -> Array | None:
    """Whether each member belongs to each view; None if all belong to all in which something was sent."""
    if not run.has_views:
        return None
    belongs = np.ones((len(run.views), width), np.uint8)
    belongs[:, : len(receivers)] = run.belongs(receivers)
    return None if belongs[np.unique(run.sent_view)].all() else belongs


def _seen(run: CheckedRun, unit: Unit) -> Array:
    """The messages that a member delivers or discards, in the order in which it first did either."""
    return run.array(unit, "seen" if len(run.array(unit, "discards")) else "order")


def _first(
    run: CheckedRun, unit: Unit, senders: range, violations: Array, position: Array, counts: Array
) -> list[Stub]:
    """The first messages that one member handles too early, each with the smallest predecessor that it lacks."""
    position = np.ascontiguousarray(position)
    member = int(run.layout.unit_member[unit])
    candidates: list[tuple[int, int, int]] = []
    for row in np.flatnonzero(violations).tolist():
        found, cause = (np.empty(violations[row], np.int32) for _ in range(2))
        n = k.causal_find(run.array(senders[row], "past"), position, counts, found, cause)
        assert n == violations[row], "both passes see the same violations"
        first = np.argsort(position[found], kind="stable")[: run.job.witnesses]
        candidates += zip(position[found[first]].tolist(), found[first].tolist(), cause[first].tolist(), strict=True)
    return [
        Stub(run.name, (member, at), (member, *run.universe.message(message), *run.universe.message(cause)))
        for at, message, cause in sorted(candidates)[: run.job.witnesses]
    ]
