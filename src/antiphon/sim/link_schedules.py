"""Random schedules of links that break for ever, one way or both, in groups at the default options; and what must hold.

Where enough of the view all hear one another, such a set delivers again soon; where not, everyone says that it has
stalled and names links that are broken. Where each side goes on, everyone ends in a view that delivers. A run ends as
soon as that is so, which makes it cheap.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from itertools import combinations
from typing import Literal, TypeAlias

from antiphon.protocol.machine import MILLISECOND, SECOND, Deliver, Effect, StandingChanged
from antiphon.protocol.membership.process import MembershipOptions
from antiphon.protocol.membership.views import ViewId, name_of
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario, Workload
from antiphon.sim.view_cluster import ViewCluster
from antiphon.sim.view_schedules import flaw_of

Links: TypeAlias = set[tuple[int, int]]  # (from, to)
Partition: TypeAlias = Literal["majority", "each-side"]

CUT_MS = 150
DELIVERS_WITHIN = 3 * SECOND
STALLS_WITHIN = 2 * SECOND
SETTLES_WITHIN = 6 * SECOND  # where each side goes on, every last one
_LOOK_NS = 20 * MILLISECOND


def cut_links(seed: int, ordering: str, partition: Partition = "majority") -> Scenario:
    """Draw a group some of whose links soon break for ever."""
    rng = random.Random(f"{seed}/{ordering}/{partition}/cuts")
    members = rng.choice((3, 3, 3, 4, 4, 5, 6))
    latency = rng.choice(("uniform 1ms 5ms", "fixed 2ms", "uniform 0 15ms"))
    return cut(members, _links(rng, members), ordering, partition, latency)


def cut(members: int, broken: Links, ordering: str, partition: Partition, latency: str = "fixed 2ms") -> Scenario:
    """Return a group in which these links soon break for ever."""
    return Scenario(
        name=f"cuts-{ordering}",
        members=members,
        messages=100,
        ordering=ordering,
        views=True,
        membership=MembershipOptions(partition=partition),
        network=NetworkOptions(latency=latency),
        workload=Workload(interval="uniform 100ms 150ms", payload=8),
        faults=[Fault(kind="cut", at=f"{CUT_MS}ms", source=[one], target=[other]) for one, other in sorted(broken)],
        limit="8s",
    )


def _links(rng: random.Random, members: int) -> Links:
    """Draw broken links: single ones, a share of all, all of one, one between two halves, chain, ring, star."""
    every = [(one, other) for one in range(members) for other in range(members) if one != other]
    order = rng.sample(range(members), members)
    match rng.choice(("few", "few", "share", "share", "deaf", "mute", "bridge", "chain", "ring", "star")):
        case "few":
            broken = set(rng.sample(every, rng.choice((1, 1, 2, 3))))
        case "share":
            share = rng.random()
            broken = {link for link in every if rng.random() < share} or {every[0]}
        case "deaf":
            broken = {(other, order[0]) for other in order[1:] if rng.random() < 0.8} or {every[0]}
        case "mute":
            broken = {(order[0], other) for other in order[1:] if rng.random() < 0.8} or {every[0]}
        case "bridge":
            half = set(order[1 : 1 + members // 2])
            broken = {(a, b) for a, b in every if order[0] not in (a, b) and (a in half) != (b in half)}
        case "star":
            broken = {(a, b) for a, b in every if order[0] not in (a, b)}
        case shape:
            ends_meet = members - 1 if shape == "ring" else 0
            apart = {(a, b): abs(order.index(a) - order.index(b)) for a, b in every}
            broken = {link for link in every if apart[link] not in (1, ends_meet)} or {every[0]}
    if rng.random() < 0.4:
        broken |= {(b, a) for a, b in broken}
    return broken


def hear_one_another(names: tuple[int, ...], broken: Links) -> bool:
    """Say whether every one of some names hears every other."""
    return not any((one, other) in broken for one in names for other in names)


class CutGroup(ViewCluster):
    """A group that is watched until what must come has come, or its time is over."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._senders: dict[tuple[int, ViewId], set[int]] = defaultdict(set)  # by name and view, whose messages
        self._named: dict[int, Links] = {}  # by name, the links that it named when it stalled
        self.broken: Links = {(*(fault.source or ()), *(fault.target or ())) for fault in scenario.faults}
        self._went_on = False  # a majority whose members all hear one another has delivered again
        self.wrong: str | None = "it never came to what must come"
        super().__init__(scenario, seed)
        names = range(scenario.members)
        quorums = (
            some
            for size in range(scenario.members // 2, scenario.members + 1)
            for some in combinations(names, size)
            if self._is_majority(some)
        )
        self._enough_hear_one_another = any(hear_one_another(some, self.broken) for some in quorums)
        self.kernel.at(CUT_MS * MILLISECOND, self._look)

    def _carry_out(self, me: int, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self._senders[me, self.running()[me].view.id].add(name_of(effect.sender))
        elif isinstance(effect, StandingChanged):
            self._named[me] = set(effect.links)
        super()._carry_out(me, effect)

    def _look(self, _: None = None) -> None:
        names, since = tuple(self.running()), self.kernel.now - CUT_MS * MILLISECOND
        sides = self.scenario.membership.partition == "each-side"
        if self._enough_hear_one_another and not self._went_on:
            due, self._went_on = DELIVERS_WITHIN, any(self._works(name, quorum=sides) for name in names)
            done = self._went_on and not sides
        elif sides:
            due, done = SETTLES_WITHIN, all(map(self._works, names))
        else:
            due, done = STALLS_WITHIN, all(process.stalled for process in self.running().values())
        if done or since > due:
            self.wrong = self._false_link() if done else f"after {since / SECOND:.2f} s: {self._standing()}"
            self.kernel.stop()
        else:
            self.kernel.after(_LOOK_NS, self._look)

    def _works(self, name: int, *, quorum: bool = False) -> bool:
        """Say whether a name is in a view whose members all hear one another and deliver one another's messages."""
        process = self.running()[name]
        view, members = process.view, set(process.view.names)
        if process.member is None or (quorum and not self._is_majority(members)):
            return False
        return hear_one_another(view.names, self.broken) and all(
            self.running()[other].view.id == view.id and members <= self._senders[other, view.id] for other in members
        )

    def _is_majority(self, names: Collection[int]) -> bool:
        """Say whether these are more than half of all; half of them with the first will do where a majority decides."""
        decides = self.scenario.membership.partition == "majority"
        return 2 * len(names) > self.scenario.members - (decides and 0 in names)

    def _false_link(self) -> str | None:
        """Say if someone that stalled named a link that is whole, or none."""
        for name, process in self.running().items():
            named = self._named.get(name, set())
            if process.stalled and (not named or not named <= self.broken):
                return f"{name} names {sorted(named)}, broken are {sorted(self.broken)}"
        return None

    def _standing(self) -> str:
        shown = (f"{name}: view {one.view.members}, stalled {one.stalled}" for name, one in self.running().items())
        return "; ".join(shown)


def flaw(scenario: Scenario, seed: int) -> str | None:
    """Run a scenario and say what is wrong with it, if anything is."""
    group = CutGroup(scenario, seed)
    run = group.run()
    return group.wrong or flaw_of(run, ended=False)
