"""Torture: random scenarios for every protocol, checked by the naive checker; what fails is shrunk and can be replayed.

    python -m antiphon.sim.torture --seeds 10000 --from 0 --minutes 30 --ordering co
    python -m antiphon.sim.torture --views --minutes 30
    python -m antiphon.sim.torture --views --partition each-side

A seed decides everything. A failure prints its seed, the smallest scenario found that still fails, and the command
that replays it exactly.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from antiphon.errors import AntiphonError
from antiphon.progress import Progress
from antiphon.protocol.options import ordering_type, stability_type
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.sim import view_schedules
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Clocks, Fault, Scenario, Workload, to_toml
from antiphon.trace.naive import check

_COMPLETENESS = ("validity", "agreement")
_SKEWS = ("0", "0", "0", "3ms", "50ms")
_LATENCIES = ("fixed 2ms", "uniform 1ms 5ms", "uniform 0 20ms", "exponential 4ms", "pareto 1ms 1.5")
_INTERVALS = ("0", "fixed 1ms", "exponential 3ms", "exponential 30ms", "uniform 0 100ms")


def schedule(seed: int, ordering: str, stability: str | None = None) -> Scenario:
    """Draw the scenario of a seed: small, and as nasty as the protocol's channel allows."""
    rng = random.Random(f"{seed}/{ordering}/torture")
    members = rng.choice((2, 2, 3, 3, 4, 5))
    overrun = rng.random() < 0.2
    window = rng.choice((1, 2, 4, 16))
    stability = stability or rng.choice(sorted(STABILITIES))
    on_recovery = ordering_type(ordering).NEEDS_RECOVERY
    more = random.Random(f"{seed}/{ordering}/options")
    return Scenario.of(
        "paper",
        name=f"torture-{ordering}",
        members=members,
        messages=rng.choice((1, 2, 3, 5, 8)),
        ordering=ordering,
        stability=stability,
        stability_options=_stability_options(more, ordering, stability) if on_recovery else {},
        safe=on_recovery and more.random() < 0.25,
        window=window,
        buffer=rng.choice((0, 0, members * window)) if on_recovery else 0,
        network=NetworkOptions(
            latency=rng.choice(_LATENCIES),
            loss=rng.choice((0.0, 0.05, 0.1, 0.2, 0.4)),
            duplicate=rng.choice((0.0, 0.0, 0.1, 0.3)),
            reorder=rng.choice((0.0, 0.0, 0.2)),
            receive_buffer=rng.choice((2, 4, 8)) if overrun else 0,
            service="500us" if overrun else "0",
        ),
        workload=Workload(
            interval=rng.choice(_INTERVALS),
            payload=8,
            senders=None if rng.random() < 0.6 else sorted(rng.sample(range(members), rng.randint(1, members))),
        ),
        clocks=Clocks(skew=rng.choice(_SKEWS), drift_ppm=rng.choice((0, 0, 200))),
        faults=list(_faults(rng, members)),
    )


def _stability_options(rng: random.Random, ordering: str, stability: str) -> dict[str, bool]:
    """Turn on some of what the stability protocol offers to save bytes and datagrams."""
    offered = stability_type(stability).Options.__struct_fields__
    positions = "total" in ordering_type(ordering).PROMISES
    flags = [
        flag for flag in ("delta", "piggyback", "positions") if flag in offered and (flag != "positions" or positions)
    ]
    return {flag: True for flag in flags if rng.random() < 0.5}


def _faults(rng: random.Random, members: int) -> Iterator[Fault]:
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(0, 100)
        until = at + rng.randrange(5, 400)
        one, *rest = rng.sample(range(members), members)
        match rng.choice(("partition", "cut", "pause")):
            case "partition":
                group = [one, *(member for member in rest[1:] if rng.random() < 0.5)]
                yield Fault(kind="partition", at=f"{at}ms", until=f"{until}ms", groups=[group])
            case "cut":
                yield Fault(kind="cut", at=f"{at}ms", until=f"{until}ms", source=[one], target=rest[:1])
            case _:
                yield Fault(kind="pause", at=f"{at}ms", until=f"{until}ms", member=one)


def flaw(scenario: Scenario, seed: int) -> str | None:
    """Run a scenario and say what is wrong with it, if anything is."""
    if scenario.views:
        return view_schedules.flaw(scenario, seed)
    try:
        run = simulate(scenario, seed)
    except AntiphonError:
        raise
    except Exception as error:  # a broken invariant is what torture is for
        return f"{type(error).__name__}: {error}"
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
        return f"stuck: {run.stats['still_held']} messages still held after {scenario.limit}"
    if violated:
        return f"{violated[0]} is violated: {verdicts[violated[0]].witnesses[0].why}"
    senders = scenario.members if scenario.workload.senders is None else len(scenario.workload.senders)
    kept = run.delivered + run.stats["members"].get("discarded", 0)
    if kept != senders * scenario.messages * scenario.members:
        return f"incomplete: {kept} deliveries and discards of {senders * scenario.messages * scenario.members}"
    return None


def shrink(scenario: Scenario, seed: int) -> Scenario:
    """Make a failing scenario smaller while it still fails."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _reductions(scenario):
            try:
                candidate.check()
            except AntiphonError:
                continue
            if flaw(candidate, seed) is not None:
                scenario, smaller = candidate, True
                break
    return scenario


def _reductions(scenario: Scenario) -> Iterator[Scenario]:
    replace = msgspec.structs.replace
    plain = Scenario.of("paper")
    for index in range(len(scenario.faults)):
        yield replace(scenario, faults=scenario.faults[:index] + scenario.faults[index + 1 :])
    if scenario.members > 2:
        yield replace(scenario, members=scenario.members - 1)
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


def main() -> int:
    """Run seeds until they are used up or time is; exit 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m antiphon.sim.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, help="seeds per ordering")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--minutes", type=float, default=10, help="stop after so long")
    parser.add_argument("--ordering", action="append", choices=sorted(ORDERINGS), help="only these")
    parser.add_argument("--stability", choices=sorted(STABILITIES), help="only this one")
    parser.add_argument("--views", action="store_true", help="groups whose members crash, come back, join and leave")
    parser.add_argument(
        "--partition",
        choices=["majority", "each-side"],
        default="majority",
        help="with views: who goes on when cut off",
    )
    parser.add_argument("--out", type=Path, default=Path("out/torture"), help="where failing scenarios are written")
    args = parser.parse_args()
    orderings = args.ordering or sorted(ORDERINGS)
    end, tried = time.monotonic() + 60 * args.minutes, 0
    with Progress("schedules", args.seeds * len(orderings)) as progress:
        for seed in range(args.first, args.first + args.seeds):
            for ordering in orderings:
                if args.views:
                    scenario = view_schedules.schedule(seed, ordering, args.partition)
                else:
                    scenario = schedule(seed, ordering, args.stability)
                wrong = flaw(scenario, seed)
                if wrong is not None:
                    return _report(scenario, seed, wrong, args.out)
                tried += 1
                progress.done(tried)
            if time.monotonic() > end:
                break
    print(f"{tried} schedules of {', '.join(orderings)}: nothing wrong (seeds {args.first} to {seed})")
    return 0


def _report(scenario: Scenario, seed: int, wrong: str, out: Path) -> int:
    print(f"seed {seed} of {scenario.ordering}: {wrong}", file=sys.stderr)
    print("shrinking ...", file=sys.stderr)
    small = shrink(scenario, seed)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{scenario.ordering}-{seed}.toml"
    path.write_text(to_toml(small))
    print(f"smallest scenario found ({flaw(small, seed)}):\n\n{path.read_text()}")
    print(f"replay it: antiphon simulate {path} --seed {seed} --out out/replay")
    return 1


if __name__ == "__main__":
    sys.exit(main())
