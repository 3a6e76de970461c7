"""View-synchrony: two members that install the same two consecutive views deliver the same messages in the first."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np

from antiphon.pipeline.checking.digests import NOTHING_DONE
from antiphon.pipeline.checking.findings import Finding, Stub
from antiphon.pipeline.checking.run import CheckedRun
from antiphon.pipeline.columns import Array, Unit
from antiphon.pipeline.kernels import distinct


def check_view_synchrony(run: CheckedRun, part: int, parts: int) -> Finding:
    """Check the part-th of so many shares of the views that another view follows, at all members at which it does."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for unit in run.units:
        for view in run.installed_at[unit]:
            following = run.follows[unit][view]
            if following >= 0:
                groups[view, following].append(unit)
    whole = Finding()
    for (view, following), units in list(groups.items())[part::parts]:
        whole.add(_check_view(run, view, following, units), run.job.witnesses)
    return whole


def _check_view(run: CheckedRun, view: int, following: int, units: list[int]) -> Finding:
    """Compare the members by what they deliver in the view; those that do the same form one class."""
    as_done: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)  # in the order in which they did it
    for unit in units:
        delivered, discarded = run.digests(unit)
        as_done[delivered.get(view, NOTHING_DONE), discarded.get(view, NOTHING_DONE)].append(unit)
    empty = sum(len(members) for (done, _), members in as_done.items() if done == NOTHING_DONE)
    finding = Finding(_pairs(len(units)) - _pairs(empty))
    if len(as_done) == 1:
        return finding
    alike: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
    for members in as_done.values():
        alike[tuple(array.tobytes() for array in _in_view(run, members[0], view))] += members
    differing = set()
    for one, other in combinations(alike, 2):
        if _difference(run, alike[one][0], alike[other][0], view) is not None:
            finding.violations += len(alike[one]) * len(alike[other])
            differing |= {(one, other), (other, one)}
    if differing:
        class_of = {unit: key for key, members in alike.items() for unit in members}
        for p, q in combinations(units, 2):
            if (class_of[p], class_of[q]) in differing and len(finding.stubs) < run.job.witnesses:
                finding.stubs = [*finding.stubs, _stub(run, p, q, view, following)]
    return finding


def _pairs(number: int) -> int:
    return number * (number - 1) // 2


def _in_view(run: CheckedRun, unit: Unit, view: int) -> tuple[Array, Array]:
    """The messages that a member first delivers in the view, and those that it discards in it; sorted."""
    delivered, discarded = _slices(run, unit, view)
    return distinct(delivered, 0, run.universe.size), distinct(discarded, 0, run.universe.size)


def _slices(run: CheckedRun, unit: Unit, view: int) -> tuple[list[Array], list[Array]]:
    """What a member first delivers, and what it discards, in its stays in the view."""
    return run.by_view(unit, "order").get(view, []), run.by_view(unit, "discards").get(view, [])


def _difference(run: CheckedRun, p: int, q: int, view: int) -> tuple[int, int, int] | None:
    """(message, who delivers it in the view, who does not): the smallest one, None if there is none."""
    delivered, handled = {}, {}
    for unit in (p, q):
        delivered[unit], discarded = _in_view(run, unit, view)
        handled[unit] = np.union1d(delivered[unit], discarded)
    found = [
        (int(lacks[0]), deliverer, other)
        for deliverer, other in ((p, q), (q, p))
        if len(lacks := np.setdiff1d(delivered[deliverer], handled[other], assume_unique=True))
    ]
    return min(found, default=None)


def _stub(run: CheckedRun, p: int, q: int, view: int, following: int) -> Stub:
    difference = _difference(run, p, q, view)
    assert difference is not None
    message, deliverer, other = difference
    members = [int(run.layout.unit_member[unit]) for unit in (p, q, deliverer, other)]
    numbers = run.views[view].number, run.views[following].number
    return Stub(
        run.name,
        (members[0], members[1], run.installed_at[p][view]),
        (members[0], members[2], members[3], *run.universe.message(message), *numbers),
    )
