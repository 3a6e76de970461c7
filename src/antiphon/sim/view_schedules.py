"""Random schedules for groups with views: crashes and restarts, pauses, partitions, joins, leaves; and what must hold.

A seed decides everything. The faults end, and then all that are alive must become one group that delivers.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND, Deliver, Effect, Install
from antiphon.protocol.membership.process import MembershipOptions, Process
from antiphon.protocol.options import ordering_type
from antiphon.sim.cluster import Node, SimulatedRun
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Clocks, Fault, Scenario, Workload
from antiphon.sim.view_cluster import ViewCluster
from antiphon.trace.event import Event
from antiphon.trace.naive import check

QUICK = MembershipOptions(
    heartbeat_ns=40 * MILLISECOND,
    suspect_ns=150 * MILLISECOND,
    retry_ns=25 * MILLISECOND,
    grace_ns=60 * MILLISECOND,
    patience_ns=120 * MILLISECOND,
    stall_ns=300 * MILLISECOND,
)
View: TypeAlias = tuple[int, tuple[int, ...]]  # its number and its members
_LATENCIES = ("fixed 2ms", "uniform 1ms 5ms", "uniform 1ms 5ms", "uniform 0 15ms", "exponential 4ms")
_INTERVALS = ("exponential 10ms", "exponential 40ms", "uniform 0 100ms", "exponential 150ms")
_CHAOS_MS = 900  # faults begin before this


def schedule(
    seed: int,
    ordering: str,
    partition: Literal["majority", "each-side"] = "majority",
    *,
    transfer: bool = False,
    forgetting: bool = False,
) -> Scenario:
    """Draw the scenario of a seed: small, and full of changes.

    With `transfer`, joiners are given the others' state. With `forgetting`, 1 loses all that it has persisted whenever
    it crashes.
    """
    rng = random.Random(f"{seed}/{ordering}/views")
    members = rng.choice((2, 3, 3, 3, 4, 4, 5))
    needs_recovery = ordering_type(ordering).NEEDS_RECOVERY
    return Scenario.of(
        "paper",
        name=f"views-{ordering}",
        members=members,
        messages=rng.choice((2, 3, 5, 8)),
        ordering=ordering,
        window=rng.choice((2, 4, 16)),
        safe=needs_recovery and rng.random() < 0.3,
        views=True,
        founders=rng.choice((0, 0, 0, members - 1)) if members > 2 else 0,
        membership=msgspec.structs.replace(QUICK, partition=partition, transfer=transfer, piece_bytes=400),
        network=NetworkOptions(
            latency=rng.choice(_LATENCIES),
            loss=rng.choice((0.0, 0.0, 0.05, 0.1, 0.2)),
            duplicate=rng.choice((0.0, 0.0, 0.1)),
            reorder=rng.choice((0.0, 0.0, 0.2)),
        ),
        workload=Workload(interval=rng.choice(_INTERVALS), payload=8),
        clocks=Clocks(skew=rng.choice(("0", "0", "20ms"))),
        faults=[_forgetting(fault) if forgetting else fault for fault in _faults(rng, members)],
        limit="30s",
    )


def broken_links(seed: int, ordering: str) -> Scenario:
    """Draw a group at the default options some of whose links break at 1 s for ever, one way or both.

    A majority is left in which everyone hears everyone. All go on sending for as long as the run lasts.
    """
    rng = random.Random(f"{seed}/{ordering}/links")
    members = rng.choice((3, 4, 5, 5))
    whole = rng.sample(range(members), members // 2 + 1)
    links = [
        (one, other) for one in range(members) for other in range(members) if one != other and {one, other} - {*whole}
    ]
    broken = rng.sample(links, rng.randrange(1, len(links) + 1))
    return Scenario(
        name=f"links-{ordering}",
        members=members,
        messages=100,
        ordering=ordering,
        views=True,
        network=NetworkOptions(latency="uniform 1ms 5ms"),
        workload=Workload(interval="uniform 40ms 60ms", payload=8),
        faults=[Fault(kind="cut", at="1s", source=[one], target=[other]) for one, other in broken],
        limit="5s",
    )


def not_delivering(run: SimulatedRun, since_ns: int) -> str | None:
    """Find out whether no majority works: each member of some view delivers what every member of it sent since then.

    The views that count have more than half of the names in them, or half with the first member of the view before.
    """
    last: dict[int, View] = {}
    heard: dict[int, set[int]] = defaultdict(set)
    for event, view in with_views(run.events):
        last[event.member] = view
        if event.event == "deliver" and (event.time_ns or 0) >= since_ns and event.sender is not None:
            heard[event.member].add(event.sender)
    for view in sorted(set(last.values()), reverse=True):
        members = set(view[1])
        if members and all(last.get(member) == view and members <= heard[member] for member in members):
            return None
    return f"links: nobody delivers in the views {sorted(set(last.values()))}"


def _forgetting(fault: Fault) -> Fault:
    return msgspec.structs.replace(fault, forgets=True) if (fault.kind, fault.member) == ("crash", 1) else fault


def _faults(rng: random.Random, members: int) -> Iterator[Fault]:
    """Draw faults that all end; who crashes comes back, but for one at most, in a group that nothing else befalls."""
    if members > 2 and rng.random() < 0.15:
        yield Fault(kind="crash", at=f"{rng.randrange(100, _CHAOS_MS)}ms", member=rng.randrange(members))
        return
    left: set[int] = set()
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        at = rng.randrange(0, _CHAOS_MS)
        until = at + rng.choice((10, 60, 150, 250, 400, 600))
        one, *rest = rng.sample(range(members), members)
        match rng.choice(("crash", "crash", "pause", "partition", "partition", "cut", "join", "leave")):
            case "crash":
                yield Fault(kind="crash", at=f"{at}ms", until=f"{until}ms", member=one)
            case "pause":
                yield Fault(kind="pause", at=f"{at}ms", until=f"{until}ms", member=one)
            case "partition":
                groups = [[one, *(member for member in rest[1:] if rng.random() < 0.4)]]
                if members > 2 and rng.random() < 0.3 and rest[0] not in groups[0]:
                    groups.append([rest[0]])  # and the others are a third group
                yield Fault(kind="partition", at=f"{at}ms", until=f"{until}ms", groups=groups)
            case "cut":
                many = rng.random() < 0.5
                ends = ([one], rest if many else rest[:1])
                source, target = ends if rng.random() < 0.5 else ends[::-1]
                yield Fault(kind="cut", at=f"{at}ms", until=f"{until}ms", source=source, target=target)
            case "join":
                yield Fault(kind="join", at=f"{rng.randrange(0, 400)}ms", member=one)
            case _:
                if len(left) < members - 2:
                    left.add(one)
                    yield Fault(kind="leave", at=f"{at}ms", member=one)


class ApplicationsWithState(ViewCluster):
    """A group whose applications keep what was delivered to them, as state that joiners are given.

    With every second seed, one in three times an application has none to give.
    """

    def _make_nodes(self, rng: random.Random) -> list[Node]:
        nodes = super()._make_nodes(rng)
        self._applications: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._newcomers_alone = False
        self._failures = random.Random(f"{self.seed}/snapshots") if self.seed % 2 else None
        self.snapshot, self.restore = self._state, self._replace
        return nodes

    def _state(self, me: int) -> bytes | None:
        if self._failures is not None and self._failures.random() < 1 / 3:
            return None
        return msgspec.msgpack.encode(self._applications[me])

    def _start(self, name: int) -> None:
        if not isinstance(self.nodes[name].member, Process):
            self._applications[name] = []  # what it was died with the process
        super()._start(name)

    def _replace(self, me: int, state: bytes) -> None:
        self._applications[me] = msgspec.msgpack.decode(state, type=list[tuple[int, int]])

    def _carry_out(self, me: int, effect: Effect) -> None:
        self._newcomers_alone |= isinstance(effect, Install) and effect.view > 1 and not effect.elders
        if isinstance(effect, Deliver):
            self._applications[me].append((effect.sender, effect.seq))
        super()._carry_out(me, effect)

    def different_states(self) -> str | None:
        """Find two members that end with different states, where states were transferred and none was lost."""
        if not self.scenario.membership.transfer or any(one.counts["states-lost"] for one in self.processes):
            return None
        if self._newcomers_alone:  # a view of which no member was there before: each begins with what it has
            return None
        total = "total" in self.scenario.promises()
        states = [self._applications[name] for name in self.running()]
        if any(one != states[0] if total else set(one) != set(states[0]) for one in states):
            return "states: two members end with different states"
        return None


def flaw(scenario: Scenario, seed: int, process: type[Process] = Process) -> str | None:
    """Run a scenario and say what is wrong with it, if anything is."""
    group = ApplicationsWithState(scenario, seed)
    group.process = process
    try:
        run = group.run()
    except UsageError:
        raise
    except Exception as error:  # a broken invariant is what this is for
        return f"{type(error).__name__}: {error}"
    wrong = flaw_of(run, ended=run.finished or group.can_go_on())
    if wrong is None and not run.finished and group.can_go_on():
        return f"stuck: no single group of all that are alive within {scenario.limit}"
    if wrong is None and group.silent is not None:
        return f"silent: {group.silent}"
    if wrong is None and group.fates.wrong is not None:
        return f"forgotten: {group.fates.wrong}"
    return wrong or (group.different_states() if run.finished else None)


def flaw_of(run: SimulatedRun, *, ended: bool = True) -> str | None:
    """Say what is wrong with the trace of a run, if anything is; what has not `ended` may lack deliveries."""
    scenario, events = run.scenario, run.events
    promises = [name for name in scenario.promises() if ended or name not in ("validity", "agreement")]
    verdicts = check(events, guarantees=promises, global_clock=scenario.clocks == Clocks())
    for name in promises:
        if verdicts[name].verdict == "violated":
            return f"{name} is violated: {verdicts[name].witnesses[0].why}"
    one_side = scenario.membership.partition == "majority"
    if scenario.safe and one_side:
        for name, verdict in check(events, guarantees=("agreement", "total"), uniform=True).items():
            if name in promises and verdict.verdict == "violated":
                return f"uniform-{name} is violated: {verdict.witnesses[0].why}"
    wrong = two_views_with_one_number(events) if one_side else None
    wrong = wrong or another_view(events)
    return wrong or (stable_and_lost(events) if ended else None)


def with_views(events: list[Event]) -> Iterator[tuple[Event, View]]:
    """Give each event with the view that its member was in: the last one that it installed."""
    current: dict[int, View] = {}
    for event in events:
        if event.event == "view":
            current[event.member] = event.view, tuple(event.members or ())
        yield event, current.get(event.member, (0, ()))


def two_views_with_one_number(events: list[Event]) -> str | None:
    """Find two views of the primary component that share a number."""
    views: dict[int, tuple[int, ...]] = {}
    for event in events:
        if event.event == "view":
            members = tuple(event.members or ())
            if views.setdefault(event.view, members) != members:
                return f"one-number: view {event.view} is both {views[event.view]} and {members}"
    return None


def another_view(events: list[Event]) -> str | None:
    """Find a message that is delivered in another view than the one that it was sent in."""
    sent = {(event.sender, event.seq): view for event, view in with_views(events) if event.event == "send"}
    for event, view in with_views(events):
        if event.event == "deliver" and sent.get((event.sender, event.seq), view) != view:
            return f"two-views: {event.sender}:{event.seq} is delivered by {event.member} in view {event.view}"
    return None


def stable_and_lost(events: list[Event]) -> str | None:
    """Find a message that was marked stable and that a member, going on from that view, never delivers."""
    marks: dict[tuple[View, int], int] = {}  # (view, sender) -> the highest number marked there
    sent: dict[tuple[View, int], set[int]] = defaultdict(set)
    handled: dict[int, set[tuple[int, int]]] = defaultdict(set)
    views: dict[int, list[View]] = defaultdict(list)
    gone: set[int] = set()
    for event, view in with_views(events):
        match event.event, event.sender, event.seq:
            case "stable", int(sender), int(seq):
                marks[view, sender] = max(marks.get((view, sender), 0), seq)
            case "send", int(sender), int(seq):
                sent[view, sender].add(seq)
            case (("deliver" | "discard"), int(sender), int(seq)):
                handled[event.member].add((sender, seq))
            case "view", _, _:
                views[event.member].append(view)
            case (("crash" | "leave"), _, _):
                gone.add(event.member)
    for (view, sender), upto in marks.items():
        for member in view[1]:
            stays = views[member]
            goes_on = view in stays and (stays[-1] != view or member not in gone)
            lost = {(sender, seq) for seq in sent[view, sender] if seq <= upto} - handled[member]
            if goes_on and lost:
                return f"stable-lost: {member} never delivers {min(lost)}, stable in view {view[0]}"
    return None
