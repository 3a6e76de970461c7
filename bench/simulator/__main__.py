"""Simulated hop events per CPU-second, ours beside SimPy's in the same run; and where the time of a real protocol goes.

python -m bench.simulator [--json] [--repeat 3] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Callable

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
    return Scenario.of(
        "paper",
        members=n,
        messages=messages,
        ordering=ordering,
        network=NetworkOptions(latency="uniform 1ms 5ms"),
        workload=Workload(interval="exponential 20ms", senders=senders),
    )


def protocol_rate(ordering: str, n: int) -> tuple[float, float]:
    """Give datagrams carried and messages delivered per CPU-second with a real ordering."""
    start = time.process_time()
    run = simulate(protocol_scenario(ordering, n), 1)
    spent = time.process_time() - start
    assert run.finished, f"{ordering} at n = {n} did not finish"
    return run.stats["network"]["datagrams"] / spent, run.delivered / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="say where the time of a real protocol goes")
    parser.add_argument("--ordering", action="append", help="orderings to run (default: all)")
    parser.add_argument("--size", action="append", type=int, choices=SIZES, help="group sizes of real members")
    args = parser.parse_args()
    if args.profile:
        return profile(args.ordering or ["causal-blocks"])
    from antiphon.protocol.ordering import ORDERINGS

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
