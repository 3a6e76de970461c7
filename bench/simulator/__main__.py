"""Simulated hop events per CPU-second, ours beside SimPy's in the same run; and where the time of a real protocol goes.

python -m bench.simulator [--json] [--repeat 3] [--profile] [--versions FOLDER,...]
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from bench.simulator.workload import ENGINES

SIZES = {8: (25, 500), 64: (4, 400), 512: (1, 200)}  # n -> tokens per member, hops per token: about 100,000 hops each

MINUTES = {("co", 512)}  # one message makes everyone tell everyone twice, n numbers each: not measured


def cpu_rate(work: Callable[[], int], repeat: int) -> float:
    """Give the median of units per CPU-second."""
    rates = []
    for _ in range(repeat):
        start = time.process_time()
        done = work()
        rates.append(done / (time.process_time() - start))
    return statistics.median(rates)


def protocol_scenario(ordering: str, n: int) -> Scenario:
    messages = {8: 60, 64: 3, 512: 1}[n]
    senders = None if n < 512 else [0]
    about: dict[str, Any] = {
        "members": n,
        "messages": messages,
        "ordering": ordering,
        "network": NetworkOptions(latency="uniform 1ms 5ms"),
        "workload": Workload(interval="exponential 20ms", senders=senders),
    }
    # version 0.1.0 has no profiles: what it runs is the papers'
    return Scenario.of("paper", **about) if hasattr(Scenario, "of") else Scenario(**about)


def protocol_rate(ordering: str, n: int) -> tuple[float, float]:
    """Give datagrams carried and messages delivered per CPU-second with a real ordering."""
    start = time.process_time()
    run = simulate(protocol_scenario(ordering, n), 1)
    spent = time.process_time() - start
    assert run.finished, f"{ordering} at n = {n} did not finish"
    return run.stats["network"]["datagrams"] / spent, run.delivered / spent


def compare(orderings: list[str], sizes: list[int], versions: list[str], repeat: int) -> None:
    """Show this version beside others: by turns, each run a process of its own, the best of each.

    Per CPU-second: datagrams carried and messages delivered. A version that needs fewer datagrams for the same messages
    does more with each of them.
    """
    for ordering in orderings:
        for n in sizes:
            best: dict[str, tuple[float, float]] = {}
            for source in [*versions, ""] * repeat:
                environment = {**os.environ, "PYTHONPATH": source} if source else dict(os.environ)
                command = [sys.executable, "-m", "bench.simulator", "--one", f"{ordering}:{n}"]
                said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
                datagrams, messages = map(float, said.split())
                best[source] = max(best.get(source, (0.0, 0.0)), (datagrams, messages))
            datagrams, messages = best[""]
            print(f"{ordering:<16}n = {n:<4} {datagrams / 1e3:6.1f} thousand datagrams {messages / 1e3:6.2f} messages")
            for source in versions:
                before, delivered = best[source]
                ratios = f"({datagrams / before:.2f}) {delivered / 1e3:13.2f} ({messages / delivered:.2f})"
                print(f"{'':24} {before / 1e3:6.1f} {ratios} in {source}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="say where the time of a real protocol goes")
    parser.add_argument("--ordering", action="append", help="orderings to run (default: all)")
    parser.add_argument("--size", action="append", type=int, choices=SIZES, help="group sizes of real members")
    parser.add_argument("--versions", default="", metavar="FOLDER,...", help="other versions' sources, in the same run")
    parser.add_argument("--one", metavar="ORDERING:N", help="say only the rates of one, best of two")
    args = parser.parse_args()
    if args.profile:
        return profile(args.ordering or ["causal-blocks"])
    if args.one:
        ordering, _, n = args.one.partition(":")
        print(*max(protocol_rate(ordering, int(n)) for _ in range(2)))
        return None
    from antiphon.protocol.ordering import ORDERINGS

    if args.versions:
        versions, sizes = args.versions.split(","), args.size or [8, 64]
        return compare(args.ordering or sorted(ORDERINGS), sizes, versions, args.repeat)

    nothing = {
        n: {name: cpu_rate(lambda run=run, n=n, t=t, h=h: run(n, t, h), args.repeat) for name, run in ENGINES.items()}  # type: ignore[misc]
        for n, (t, h) in SIZES.items()
    }
    real = {
        ordering: {n: protocol_rate(ordering, n) for n in args.size or SIZES}
        for ordering in args.ordering or sorted(ORDERINGS)
    }
    if args.json:
        print(json.dumps({"hops_per_cpu_second": nothing, "protocols": real}))
        return None
    print("the protocol does nothing: thousand hops per CPU-second (times SimPy's process and Store)")
    print(f"{'n':>6}" + "".join(f"{name:>28}" for name in ENGINES))
    for n, rates in nothing.items():
        base = rates["simpy, process and Store"]
        print(f"{n:>6}" + "".join(f"{rate / 1e3:>18,.0f} ({rate / base:5.1f})" for rate in rates.values()))
    print("\nreal members: thousand datagrams carried (messages delivered) per CPU-second")
    print(f"{'':<16}" + "".join(f"{f'n = {n}':>20}" for n in args.size or SIZES))
    for ordering, by_size in real.items():
        cells = (f"{datagrams / 1e3:>9.1f} ({delivered / 1e3:6.2f})" for datagrams, delivered in by_size.values())
        print(f"{ordering:<16}" + "".join(f"{cell:>20}" for cell in cells))
    return None


def profile(orderings: list[str]) -> None:
    for ordering in orderings:
        profiler = cProfile.Profile()
        profiler.enable()
        simulate(protocol_scenario(ordering, 64), 1)
        profiler.disable()
        print(f"{ordering}, n = 64:")
        pstats.Stats(profiler).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    main()
