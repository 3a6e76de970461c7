"""Torture: random scenarios for every protocol, judged by the naive checker and by their cost; what fails is shrunk.

    python -m antiphon.sim.torture --seeds 10000 --from 0 --minutes 30 --ordering co
    python -m antiphon.sim.torture --large --seeds 500 --go-on
    python -m antiphon.sim.torture --views --minutes 30
    python -m antiphon.sim.torture --views --partition each-side
    python -m antiphon.sim.torture --links

A seed decides everything. A failure prints its seed, the smallest scenario found that still fails, and the command
that replays it exactly; its file belongs into tests/regressions. A storm is a failure like a wrong order. It ends with
what schedules cost in the mean of many, and how many were tried, when it is interrupted too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import AntiphonError
from antiphon.progress import Progress
from antiphon.protocol.machine import SECOND
from antiphon.protocol.options import ordering_type
from antiphon.protocol.ordering import ORDERINGS
from antiphon.sim import link_schedules, schedules, view_schedules
from antiphon.sim.cost import TYPICAL, CostLedger, measured, retuned, storm
from antiphon.sim.scenario import Clocks, Scenario, to_toml
from antiphon.sim.shrinking import smallest
from antiphon.trace.naive import check

_COMPLETENESS = ("validity", "agreement")
_EVENTS_MAX = 100_000  # of a schedule: what needs more is a storm
_EVENTS_MAX_RETUNED = 20_000  # with pauses of one's own choice: they may cost what they like, but not our time
_LIVELY = 60  # datagrams for each pair of members and second: what says less is judged by what it cost so far


def flaw(
    scenario: Scenario,
    seed: int,
    *,
    costs: bool = False,
    events_max_retuned: int = _EVENTS_MAX_RETUNED,
    ledger: CostLedger | None = None,
) -> str | None:
    """Run a scenario and say what is wrong with it, if anything is; with `costs`, a storm is wrong too.

    What it cost is entered into a ledger, if one is given. Where pauses are of one's own choice, a run is ended after
    so many events: what it did until then is judged.
    """
    if scenario.views:
        if any(fault.kind == "cut" and fault.until is None for fault in scenario.faults):
            return link_schedules.flaw(scenario, seed)
        return view_schedules.flaw(scenario, seed)
    events_max = (events_max_retuned if retuned(scenario) else _EVENTS_MAX) if costs else None
    try:
        run, cost = measured(scenario, seed, events_max)
    except AntiphonError:
        raise
    except Exception as error:  # a broken invariant is what torture is for
        return f"{type(error).__name__}: {error}"
    if ledger is not None:
        ledger.add(scenario, cost)
    cut_short = run.stats["kernel_events"] == events_max
    promises = scenario.promises()
    verdicts = check(
        run.events,
        guarantees=promises,
        global_clock=scenario.clocks == Clocks(),
        happened_before=getattr(ordering_type(scenario.ordering), "HAPPENED_BEFORE", "deliver"),
    )
    violated = [name for name in promises if verdicts[name].verdict == "violated"]
    violated.sort(key=lambda name: name in _COMPLETENESS)  # what was done wrong says more than what was not done
    if not run.finished and not set(violated) - set(_COMPLETENESS):
        if not cut_short:
            return f"stuck: {run.why_not}"
        if retuned(scenario):
            return None  # the order of what was delivered is judged, and no more
        pairs_and_seconds = scenario.members * scenario.members * cost.took_ns / SECOND
        return f"storm: {run.why_not}" if cost.datagrams > _LIVELY * pairs_and_seconds else storm(scenario, seed, cost)
    if violated:
        return f"{violated[0]} is violated: {verdicts[violated[0]].witnesses[0].why}"
    kept = run.delivered + run.stats["members"].get("discarded", 0)
    wanted = len(scenario.senders) * scenario.messages * scenario.members
    if kept != wanted:
        return f"incomplete: {kept} deliveries and discards of {wanted}"
    return storm(scenario, seed, cost) if costs else None


def shrink(scenario: Scenario, seed: int) -> Scenario:
    """Make a failing scenario smaller while it still fails."""

    def fails(candidate: Scenario) -> bool:
        try:
            candidate.check()
        except AntiphonError:
            return False
        return flaw(candidate, seed, costs=True) is not None

    return smallest(scenario, _reductions, fails)


def _reductions(scenario: Scenario) -> Iterator[Scenario]:
    replace = msgspec.structs.replace
    plain = Scenario.of("paper")
    for index in range(len(scenario.faults)):
        yield replace(scenario, faults=scenario.faults[:index] + scenario.faults[index + 1 :])
    for members in sorted({2, scenario.members // 2, scenario.members - 1}):
        if 1 < members < scenario.members:
            yield _with_members(scenario, members)
    for table in ("ordering_options", "stability_options"):
        for key in getattr(scenario, table):
            rest = {name: value for name, value in getattr(scenario, table).items() if name != key}
            yield replace(scenario, **{table: rest})
    if scenario.recovery != Scenario().recovery:
        yield replace(scenario, recovery=Scenario().recovery)
    simple: dict[str, Any] = {"payload": 8, "lifetime": None, "priorities": 1}
    for key, value in simple.items():
        if getattr(scenario.workload, key) != value:
            yield replace(scenario, workload=replace(scenario.workload, **{key: value}))
    if scenario.network.bandwidth:
        yield replace(scenario, network=replace(scenario.network, bandwidth=0))
    for fewer in {1, scenario.messages // 2, scenario.messages - 1}:
        if 0 < fewer < scenario.messages:
            yield replace(scenario, messages=fewer)
    if scenario.clocks != plain.clocks:
        yield replace(scenario, clocks=plain.clocks)
    for key, calm in (("duplicate", 0.0), ("reorder", 0.0), ("loss", 0.0), ("latency", "fixed 2ms")):
        if getattr(scenario.network, key) != calm:
            yield replace(scenario, network=replace(scenario.network, **{key: calm}))
    if scenario.network.receive_buffer:
        yield replace(scenario, network=replace(scenario.network, receive_buffer=0, service="0"))
    for sender in scenario.workload.senders or range(scenario.members):
        senders = [other for other in scenario.workload.senders or range(scenario.members) if other != sender]
        if senders:
            yield replace(scenario, workload=replace(scenario.workload, senders=senders))
    for index, fault in enumerate(scenario.faults):
        at, until = int(fault.at.removesuffix("ms")), int((fault.until or "0ms").removesuffix("ms"))
        if until - at > 5:
            shorter = replace(fault, until=f"{at + (until - at) // 2}ms")
            yield replace(scenario, faults=[*scenario.faults[:index], shorter, *scenario.faults[index + 1 :]])


def _with_members(scenario: Scenario, members: int) -> Scenario:
    """Leave out the last members, and all that is said of them."""
    replace = msgspec.structs.replace
    senders = scenario.workload.senders
    if senders is not None:
        senders = [sender for sender in senders if sender < members] or [0]
    faults = [fault for fault in scenario.faults if fault.member is None or fault.member < members]
    return replace(scenario, members=members, workload=replace(scenario.workload, senders=senders), faults=faults)


def main() -> int:
    """Run seeds until they are used up or time is; exit 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m antiphon.sim.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, help="seeds per ordering")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--minutes", type=float, default=10, help="stop after so long")
    parser.add_argument("--ordering", action="append", choices=sorted(ORDERINGS), help="only these")
    parser.add_argument("--large", action="store_true", help="groups of all sizes up to 40 alike, not mostly of 2 or 3")
    parser.add_argument("--views", action="store_true", help="groups whose members crash, come back, join and leave")
    parser.add_argument("--links", action="store_true", help="groups with views whose links break for ever")
    parser.add_argument(
        "--partition",
        choices=["majority", "each-side"],
        default="majority",
        help="with views: who goes on when cut off",
    )
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails; shrink nothing")
    parser.add_argument("--out", type=Path, default=Path("out/torture"), help="where failing scenarios are written")
    args = parser.parse_args()
    orderings = args.ordering or sorted(ORDERINGS)
    end, tried, failed = time.monotonic() + 60 * args.minutes, 0, 0
    ledgers = {} if args.large else {ordering: CostLedger() for ordering in orderings}  # typical: as often small
    seed = args.first
    with suppress(KeyboardInterrupt), Progress("schedules", args.seeds * len(orderings)) as progress:
        for seed in range(args.first, args.first + args.seeds):
            for ordering in orderings:
                if args.links:
                    scenario = link_schedules.cut_links(seed, ordering, args.partition)
                elif args.views:
                    scenario = view_schedules.schedule(seed, ordering, args.partition)
                else:
                    scenario = schedules.wide(seed, ordering, large=args.large)
                wrong = flaw(scenario, seed, costs=True, ledger=ledgers.get(ordering))
                tried += 1
                if wrong is not None:
                    failed += 1
                    print(f"seed {seed} of {ordering}: {wrong}", file=sys.stderr, flush=True)
                    _write(scenario, seed, args.out, shrunk=not args.go_on)
                    if not args.go_on:
                        return 1
                progress.done(tried)
            if time.monotonic() > end:
                break
    for ordering, ledger in ledgers.items():
        failed += _dear(ordering, ledger)
    seeds = f"seeds {args.first} to {seed}"
    print(f"{tried} schedules of {', '.join(orderings)} ({seeds}): {failed or 'nothing'} wrong")
    return 1 if failed else 0


def _dear(ordering: str, ledger: CostLedger) -> bool:
    """Print what an ordering costs in the mean of its schedules, and say whether that is too much."""
    if not ledger.count:
        return False
    typical = ledger.typical()
    means = ", ".join(f"{getattr(typical, key):.2f} {key}" for key in typical.__struct_fields__)
    print(f"{ordering}: {means} in the mean of {ledger.count:,} schedules")
    wrong = ledger.storm(TYPICAL[ordering])
    if wrong is not None:
        print(f"{ordering}: {wrong}", file=sys.stderr, flush=True)
    return wrong is not None


def _write(scenario: Scenario, seed: int, out: Path, *, shrunk: bool) -> None:
    """Write a scenario that fails to a file, made smaller first, and say how to replay it."""
    if shrunk:
        print("shrinking ...", file=sys.stderr)
        scenario = shrink(scenario, seed)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{scenario.ordering}-{seed}.toml"
    path.write_text(to_toml(scenario))
    if shrunk:
        print(f"smallest scenario found ({flaw(scenario, seed, costs=True)}):\n\n{path.read_text()}")
    print(f"replay it: antiphon simulate {path} --seed {seed} --out out/replay", flush=True)


if __name__ == "__main__":
    sys.exit(main())
