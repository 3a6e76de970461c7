"""Make a failing schedule smaller while the same rule is still broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from antiphon.sim.shrinking import smallest
from antiphon.testing.torture.schedule import Net, PlannedFault, Schedule, Setup, Work

_TRIES_MAX: Final = 400
_replace = msgspec.structs.replace


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Give the smallest schedule found that still fails."""
    return smallest(schedule, _reductions, fails, _TRIES_MAX)


def _reductions(schedule: Schedule) -> Iterator[Schedule]:
    for index in range(len(schedule.faults)):
        yield _replace(schedule, faults=schedule.faults[:index] + schedule.faults[index + 1 :])
    if schedule.odd is not None:
        yield _replace(schedule, odd=None)
    if schedule.members > 2:
        for member in reversed(range(schedule.members)):
            yield _without(schedule, member)
    for key, usual in _differing(schedule.net, Net()):
        yield _replace(schedule, net=_replace(schedule.net, **{key: usual}))
    for key, usual in _differing(schedule.setup, Setup()):
        if key not in ("ordering", "suspect_ms"):
            yield _replace(schedule, setup=_replace(schedule.setup, **{key: usual}))
    if schedule.setup.snapshot_bytes:
        yield _replace(schedule, setup=_replace(schedule.setup, snapshot_bytes=0))
    for member, work in enumerate(schedule.work):
        for candidate in _less_work(work):
            changed = (*schedule.work[:member], candidate, *schedule.work[member + 1 :])
            yield _replace(schedule, work=changed)
    for index, fault in enumerate(schedule.faults):
        for less in _lesser_faults(fault):
            yield _replace(schedule, faults=(*schedule.faults[:index], less, *schedule.faults[index + 1 :]))


def _differing(one: msgspec.Struct, usual: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for key, value in msgspec.structs.asdict(usual).items():
        if getattr(one, key) != value:
            yield key, value


def _less_work(work: Work) -> Iterator[Work]:
    quiet = Work(messages=0)
    if work != quiet:
        yield quiet
    if work.messages > 1:
        yield _replace(work, messages=work.messages // 2)
        yield _replace(work, messages=work.messages - 1)
    for key, usual in _differing(work, Work()):
        if key != "messages":
            yield _replace(work, **{key: usual})


def _lesser_faults(fault: PlannedFault) -> Iterator[PlannedFault]:
    if fault.until is not None and fault.until - fault.at > 40:
        yield _replace(fault, until=fault.at + (fault.until - fault.at) // 2)
    for key in ("members", "others"):
        some = getattr(fault, key)
        if len(some) > 1:
            for one in some:
                yield _replace(fault, **{key: tuple(other for other in some if other != one)})
    if fault.forgets:
        yield _replace(fault, forgets=False)


def _without(schedule: Schedule, member: int) -> Schedule:
    """Take a member out, and let the faults that concern it concern the others alone."""

    def rest(members: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(other - (other > member) for other in members if other != member)

    faults = []
    for fault in schedule.faults:
        fewer = _replace(fault, members=rest(fault.members), others=rest(fault.others))
        if (fewer.members or not fault.members) and (fewer.others or not fault.others):
            faults.append(fewer)
    work = schedule.work[:member] + schedule.work[member + 1 :]
    return _replace(schedule, work=work, faults=tuple(faults))
