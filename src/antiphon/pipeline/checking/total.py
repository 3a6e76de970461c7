"""Total order: no two members that go on together deliver two common messages in different orders.

Members with the very same order agree, so only one of each kind is compared with the others.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from antiphon.pipeline import kernels as k
from antiphon.pipeline.checking.digests import Digests
from antiphon.pipeline.checking.findings import Finding, Stub
from antiphon.pipeline.checking.run import GONE, CheckedRun
from antiphon.pipeline.columns import Array, Unit


def check_total(run: CheckedRun, part: int, parts: int) -> Finding:
    """Check the part-th of so many shares of the pairs of members."""
    alike: dict[bytes, list[int]] = defaultdict(list)
    for unit in run.units:
        alike[run.array(unit, "fingerprint").tobytes()].append(unit)
    classes = list(alike.values())
    examined = violations = 0
    differing: set[tuple[int, int]] = set()
    positions = Positions(run.universe.size)
    meeting = _meeting(run, [units[0] for units in classes])
    for i, some in enumerate(classes):
        if i % parts != part:
            continue
        if len(some) > 1 and len(_together(run, some[0], some[1])[0]) > 1:
            examined += len(some) * (len(some) - 1) // 2
        for j in meeting(i):
            common, first, _ = _compare(run, classes[j][0], some[0], positions)
            if common > 1:
                examined += len(some) * len(classes[j])
            if first >= 0:
                violations += len(some) * len(classes[j])
                differing.add((j, i))
    return Finding(examined, violations, False, 0, _first(run, classes, differing, positions))


def _meeting(run: CheckedRun, units: list[Unit]) -> Callable[[int], Iterable[int]]:
    """Return who of the earlier of these units each may have messages in common with: there is a view from which both
    go on together. Without that, in runs of many views almost all pairs would be compared in vain.
    """
    if run.job.uniform or not run.has_views:
        return range
    present: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, unit in enumerate(units):
        for view, following in run.follows[unit].items():
            if following != GONE:
                present[view, following].append(number)
    return lambda one: sorted(
        {other for view in run.follows[units[one]].items() for other in present.get(view, ()) if other < one}
    )


def fingerprint(run: CheckedRun, unit: Unit, order: Array, order_stays: Array, delivered: Digests) -> Array:
    """What decides how a unit compares with others: its order, by views, and what follows each view."""
    digest = hashlib.blake2b(digest_size=20)
    if run.job.uniform:
        digest.update(order.data)
    else:
        digest.update(repr(sorted(run.follows[unit].items())).encode())
        for view, start, stop in run.slices(unit, order_stays, len(order)):
            if run.follows[unit][view] != GONE:
                digest.update(np.array([start, stop, view], np.int64).data)
                digest.update(delivered[view])
    return np.frombuffer(digest.digest(), np.uint8)


class Positions:
    """Where one unit has each message; kept while it is compared with one unit after the other."""

    def __init__(self, size: int) -> None:
        self.position = np.full(size, -1, np.int32)
        self.marked = np.zeros(0, np.int32)
        self.key: tuple[int, tuple[int, ...]] | None = None
        self.orders: dict[int, Array] = {}  # of units whose order is one stretch, as it lies in the file

    def order(self, run: CheckedRun, unit: Unit) -> Array | None:
        """A unit's whole order, if it never installs a view."""
        if unit not in self.orders:
            slices = run.stay_slices(unit)
            if len(slices) != 1:
                return None
            self.orders[unit] = np.asarray(run.array(unit, "order")[slices[0][1] : slices[0][2]])
        return self.orders[unit]

    def of(self, unit: Unit, views: tuple[int, ...], order: Array) -> Array:
        """The position of each message in a unit's order in some views, -1 if it is not there."""
        if self.key != (unit, views):
            self.position[self.marked] = -1
            self.position[order] = np.arange(len(order), dtype=np.int32)
            self.marked, self.key = order, (unit, views)
        return self.position


def _together(run: CheckedRun, one: int, other: int) -> tuple[Array, Array, tuple[int, ...]]:
    """What each of two units delivers in views from which they go on together, in order; and these views."""
    mine = run.follows[one]
    views = tuple(
        view
        for view, following in run.follows[other].items()
        if run.job.uniform or mine.get(view, GONE) == following != GONE
    )
    counted, orders = frozenset(views), []
    for unit in (one, other):
        order, pieces, stays = run.array(unit, "order"), run.by_view(unit, "order"), run.stay_slices(unit)
        if len(pieces) == len(stays) and not run.job.uniform:  # it was in each view once
            slices = [piece[0] for view, piece in pieces.items() if view in counted]
        else:
            slices = [order[a:b] for view, a, b in stays if run.job.uniform or view in counted]
        orders.append(slices[0] if len(slices) == 1 else np.concatenate(slices) if slices else order[:0])
    return orders[0], orders[1], views


def _compare(run: CheckedRun, one: int, other: int, positions: Positions) -> tuple[int, int, int]:
    """(number of common messages or at least 2, the first neighbours of one that the other has the other way round)."""
    mine, its = positions.order(run, one), positions.order(run, other)
    views: tuple[int, ...] = ()
    if mine is None or its is None or run.follows[one] != run.follows[other] or GONE in run.follows[one].values():
        mine, its, views = _together(run, one, other)
    shorter = min(len(mine), len(its))
    if k.begins_alike(mine, its):  # one stopped earlier
        return shorter, -1, -1
    return k.first_inversion(mine, positions.of(other, views, its))


def _first(
    run: CheckedRun, classes: list[list[int]], differing: set[tuple[int, int]], positions: Positions
) -> list[Stub]:
    if not differing:
        return []
    class_of = {unit: number for number, units in enumerate(classes) for unit in units}
    stubs: list[Stub] = []
    opposed: dict[int, list[int]] = defaultdict(list)
    for one, other in differing:
        opposed[one].append(other)
        opposed[other].append(one)
    for one in run.units:
        others = sorted(unit for number in opposed[class_of[one]] for unit in classes[number] if unit > one)
        for other in others[: run.job.witnesses - len(stubs)]:
            _, first, second = _compare(run, one, other, positions)
            p, q = (int(run.layout.unit_member[unit]) for unit in (one, other))
            messages = (*run.universe.message(first), *run.universe.message(second))
            stubs.append(Stub(run.name, (p, q), (p, q, *messages)))
    return stubs
