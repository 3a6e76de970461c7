"""Agreement: what one member delivers in a view, every member that goes on together with it has too."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from antiphon.pipeline import kernels as k
from antiphon.pipeline.checking.findings import Finding, Stub
from antiphon.pipeline.checking.run import GONE, NOTHING, CheckedRun
from antiphon.pipeline.columns import Array, Unit


def check_agreement(run: CheckedRun, part: int, parts: int) -> Finding:
    """Check the part-th of so many equal parts of the run's messages."""
    low, high = run.universe.size * part // parts, run.universe.size * (part + 1) // parts
    missing: dict[int, list[Array]] = defaultdict(list)
    examined = 0
    undecided = False
    in_view = _by_view(run)
    for view, groups in in_view.items():
        if not run.job.uniform:
            groups.pop(GONE, None)
        if run.cut_members:
            undecided |= _is_hidden(run, view, groups, low, high)
        gone = groups.pop(GONE, [])
        on = [unit for units in groups.values() for unit, _ in units]
        if gone and on:
            examined += _size(gone)
            owed = _union(run, gone, low, high)
            for unit in on:
                undecided |= _note(run, unit, owed, missing)
        for units in groups.values():
            if len(units) > 1:
                examined += _size(units)
                if _all_have_the_same(run, [unit for unit, _ in units], low, high):
                    continue
                owed = _union(run, units, low, high)
                for unit, _ in units:
                    undecided |= _note(run, unit, owed, missing)

    violations = 0
    stubs: list[Stub] = []
    for unit in sorted(missing):
        lacks = np.unique(np.concatenate(missing[unit]))
        violations += len(lacks)
        stubs += [_stub(run, unit, message) for message in lacks[: run.job.witnesses - len(stubs)].tolist()]
    return Finding(examined if part == 0 else 0, violations, undecided, 0, stubs)


NO_LOG = -1
Deliveries = list[Array]
Group = list[tuple[int, Deliveries]]  # units, each with what it first delivers in the view


def _by_view(run: CheckedRun) -> dict[int, dict[int, Group]]:
    """view -> what follows it -> the units at which that is so."""
    views: dict[int, dict[int, Group]] = defaultdict(lambda: defaultdict(list))
    for unit in run.units:
        delivered: dict[int, Deliveries] = run.by_view(unit, "order")
        obliges = run.array(unit, "obliges")  # there if the member's rows have topics: those oblige nobody
        if len(obliges):
            order, delivered = run.array(unit, "order"), defaultdict(list)
            for view, start, stop in run.stay_slices(unit):
                delivered[view].append(order[start:stop][obliges[start:stop]])
        for view, following in run.follows[unit].items():
            views[view][following].append((unit, delivered.get(view, [])))
    return views


def _all_have_the_same(run: CheckedRun, units: list[Unit], low: int, high: int) -> bool:
    """Whether all have delivered or discarded the very same of these messages: then nobody lacks anything."""
    around = slice(low // 8, -(-high // 8))  # eight messages a byte
    first, *others = (run.array(unit, "has") for unit in units)
    return all(np.array_equal(first[around], other[around]) for other in others)


def _size(units: Group) -> int:
    return sum(len(piece) for _, pieces in units for piece in pieces)


def _union(run: CheckedRun, units: Group, low: int, high: int) -> Array:
    """The messages between low and high that any of the units delivers, in order."""
    return k.distinct([piece for _, pieces in units for piece in pieces], low, high)


def _lacking(run: CheckedRun, unit: Unit, owed: Array) -> Array:
    found = np.empty(len(owed), np.int32)
    count = k.lacking(owed, run.array(unit, "has"), found)
    lacks: Array = found[:count]
    return lacks


def _note(run: CheckedRun, unit: Unit, owed: Array, missing: dict[int, list[Array]]) -> bool:
    """Note what a unit lacks of what it owes; True if that is undecided."""
    lacks = _lacking(run, unit, owed)
    if len(lacks) and unit not in run.cut:
        missing[unit].append(lacks)
    return len(lacks) > 0 and unit in run.cut


def _is_hidden(run: CheckedRun, view: int, groups: dict[int, Group], low: int, high: int) -> bool:
    """Whether something is missing of which a lost tail hides if it is owed."""
    last = groups.get(NOTHING, [])
    perhaps_there = {int(run.layout.unit_member[unit]): unit for unit, _ in last if unit in run.cut}
    unit_of = {int(run.layout.unit_member[unit]): unit for unit in run.cut}
    for member in run.cut_members & run.views[view].members:  # whose log may end before it installs the view
        if member not in unit_of or view not in run.follows[unit_of[member]]:
            perhaps_there[member] = unit_of.get(member, NO_LOG)
    for following, units in groups.items():
        goes_on = run.views[following].members if following >= 0 else perhaps_there.keys()
        owed = _union(run, units, low, high)
        for member, unit in perhaps_there.items():
            if member in goes_on and (len(owed) if unit == NO_LOG else len(_lacking(run, unit, owed))):
                return True
        for unit, pieces in last if following >= 0 else []:
            if unit in run.cut and int(run.layout.unit_member[unit]) in goes_on:
                theirs = _union(run, [(unit, pieces)], low, high)
                if any(len(_lacking(run, other, theirs)) for other, _ in units if other not in run.cut):
                    return True
    return False


def _stub(run: CheckedRun, lacking: int, message: int) -> Stub:
    """Name the smallest member that obliges another to have a message."""
    for unit in run.units:
        if unit == lacking:
            continue
        order = run.array(unit, "order")
        at, obliges = np.flatnonzero(order == message), run.array(unit, "obliges")
        if not len(at) or (len(obliges) and not obliges[at[0]]):
            continue
        view = next(view for view, start, stop in run.stay_slices(unit) if start <= at[0] < stop)
        mine, its = run.follows[unit][view], run.follows[lacking].get(view, GONE)
        if its != GONE and (mine == its or (mine == GONE and run.job.uniform)):
            member, obliger = (int(run.layout.unit_member[u]) for u in (lacking, unit))
            return Stub(
                run.name, (member, message), (member, *run.universe.message(message), obliger, run.views[view].number)
            )
    raise AssertionError("a message is owed because somebody delivers it")
