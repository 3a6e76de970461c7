"""Causal order: nobody handles a message before what its sending depends on.

Every sender's past is laid beside the positions at which a block of members handled each message; checking direct
predecessors at every member checks the transitive ones by induction, so no vector clock is needed.
"""

from __future__ import annotations

import numpy as np

from antiphon.pipeline import kernels as k
from antiphon.pipeline.checking.findings import Finding, Stub
from antiphon.pipeline.checking.run import CheckedRun
from antiphon.pipeline.columns import Array, Unit


def check_causal(run: CheckedRun, receivers: range, senders: range) -> Finding:
    """Check the messages of some units at some units."""
    size = run.universe.size
    assert len(receivers) <= k.BLOCK
    position = np.full((size, k.BLOCK), k.NEVER, np.int32)
    for column, unit in enumerate(receivers):
        position[_seen(run, unit), column] = np.arange(len(_seen(run, unit)), dtype=np.int32)
    examined = np.zeros(k.BLOCK, np.int64)
    by_sender = np.zeros((len(senders), k.BLOCK), np.int64)
    belongs = _belongs(run, receivers)
    heard = _senders_of(run, np.unique(np.concatenate([_seen(run, unit) for unit in receivers])))
    for row, sender in enumerate(senders):
        if int(run.layout.unit_member[sender]) not in heard:
            continue  # nothing of it is handled here
        past = run.array(sender, "past")
        if belongs is None:
            k.causal_count(past, position, examined, by_sender[row])
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
    """Who sent these messages, which are in order."""
    spans = np.unique(np.searchsorted(run.universe.base, messages, side="right") - 1)
    return frozenset(run.universe.span_sender[spans].tolist())


def _belongs(run: CheckedRun, receivers: range) -> Array | None:
    """Whether each member belongs to each view; None if all belong to all in which something was sent."""
    if not run.has_views:
        return None
    belongs = np.ones((len(run.views), k.BLOCK), np.uint8)
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
