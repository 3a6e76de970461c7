"""What the faults of simulated worlds reached: whom they hit, and what was under way, so that a test is not vacuous."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.views import incarnation_of, name_of
from antiphon.trace.event import Event

if TYPE_CHECKING:
    from antiphon.testing.trace import Run
    from antiphon.testing.world import World

FAULTS: Final = ("crash", "pause", "partition", "cut", "link", "clock")


class Reached(msgspec.Struct, frozen=True):
    """Of how many seeds it is, and in how many of them each thing happened."""

    seeds: int = 0
    asked: frozenset[str] = frozenset()  # kinds of faults that the test lets be drawn
    happened: dict[str, int] = {}

    def __add__(self, other: Reached) -> Reached:
        happened = dict(Counter(self.happened) + Counter(other.happened))
        return Reached(self.seeds + other.seeds, self.asked | other.asked, happened)

    def lines(self) -> list[str]:
        """Say it: a line a kind of fault, then what came of them, then what never happened though it was asked for."""
        said = []
        for kind in FAULTS:
            if times := self.happened.get(kind):
                details = (f"{what} {self.happened.get(f'{kind} {what}', 0)}" for what in _CIRCUMSTANCES)
                said.append(f"{kind + ':':11} in {times} of {self.seeds} seeds; {', '.join(details)}")
        said += [f"{what + ':':22} in {self.happened.get(what, 0)} of {self.seeds} seeds" for what in _CONSEQUENCES]
        missed = sorted(kind for kind in self.asked if kind not in self.happened)
        return said + ([f"never, though asked for: {', '.join(missed)}"] if missed else [])


_FIRST, _UNDER_WAY = "of a view's first member", "with messages under way"
_CIRCUMSTANCES: Final = (_FIRST, _UNDER_WAY)
_CONSEQUENCES: Final = ("the view changed", "a member was left out", "a member came back")


def reached(world: World) -> Reached:
    """Look at what one world's faults reached."""
    happened = {what for run in world.runs.values() for what in _of_run(world, run)}
    asked = frozenset(world.faults.kinds) if world.faults.count else frozenset[str]()
    return Reached(1, asked, dict.fromkeys(sorted(happened), 1))


def _of_run(world: World, run: Run) -> Iterable[str]:
    events = run.events
    under_way = _under_way(events)
    firsts = _first_members(events)
    owners = world.host.network.owners
    processes = {number: owners.get(address, address) for number, address in run.addresses.items()}
    for fault in world.done:
        yield fault.kind
        hit = {name for side in fault.sides for name in side}
        if any(processes.get(name_of(first)) in hit for first in _at(firsts, fault.at_ns)):
            yield f"{fault.kind} {_FIRST}"
        if any(sent <= fault.at_ns < delivered for sent, delivered in under_way):
            yield f"{fault.kind} {_UNDER_WAY}"
    views = {(event.view, tuple(event.members or ())) for event in events if event.event == "view"}
    if len({view for view, _ in views}) > 1:
        yield _CONSEQUENCES[0]
    if run.views and any(event.event == "leave" and event.detail == "excluded" for event in events):
        yield _CONSEQUENCES[1]
    if run.views and any(incarnation_of(log.member) > 1 and "view" in log.events for log in run.logs):
        yield _CONSEQUENCES[2]


def _under_way(events: Iterable[Event]) -> list[tuple[Instant, Instant]]:
    """Give, of each message that was delivered, when it was sent and when the last member had it."""
    sent: dict[tuple[int | None, int | None, int], Instant] = {}
    last: dict[tuple[int | None, int | None, int], Instant] = {}
    for event in events:
        message, time_ns = (event.sender, event.seq, event.view), event.time_ns or 0
        if event.event == "send":
            sent[message] = time_ns
        elif event.event == "deliver":
            last[message] = max(time_ns, last.get(message, time_ns))
    return [(at, last[message]) for message, at in sent.items() if message in last]


def _first_members(events: Iterable[Event]) -> Mapping[int, list[tuple[Instant, int]]]:
    """Give, by member, the first of its view from each instant on."""
    firsts: dict[int, list[tuple[Instant, int]]] = {}
    for event in events:
        if event.event == "view" and event.members:
            firsts.setdefault(event.member, []).append((event.time_ns or 0, event.members[0]))
    return firsts


def _at(firsts: Mapping[int, list[tuple[Instant, int]]], instant: Instant) -> set[int]:
    """Give who was first at an instant, in the eyes of each member."""
    before = ([first for at, first in rows if at <= instant] for rows in firsts.values())
    return {seen[-1] for seen in before if seen}
