"""Repair on slow links, with losses and with receivers that overrun: causal blocks and CO beside fifo.

    python -m bench.repair            the grid of sizes, bandwidths, payloads and losses
    python -m bench.repair --quick    a part of it, in a minute or so

Each line gives the simulated time and the repairs of an ordering, and its time as a multiple of fifo's. It ends with
the lines that break what we ask for: an end within 5 times fifo's time, 10 repairs for each lost datagram, and without
loss no repairs at all.
"""

from __future__ import annotations

import argparse
import itertools

from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload

SECOND = 1_000_000_000


def measure(
    ordering: str, members: int, network: NetworkOptions, payload: int, messages: int
) -> tuple[float, int, int]:
    """Give the simulated seconds (infinite if it did not end), the repairs, and the datagrams lost or overrun."""
    scenario = Scenario(
        members=members,
        messages=messages,
        ordering=ordering,
        network=network,
        workload=Workload(interval="fixed 1ms", payload=payload),
        limit="600s",
    )
    run = simulate(scenario, 1)
    counts = run.stats["network"]
    seconds = max(event.time_ns or 0 for event in run.events) / SECOND if run.finished else float("inf")
    return seconds, run.stats["members"].get("retransmissions", 0), counts.get("lost", 0) + counts.get("overrun", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    sizes = (4, 10) if quick else (4, 10, 20, 40)
    bandwidths = (70_000, 2_000_000) if quick else (40_000, 70_000, 2_000_000, 100_000_000)
    payloads = (1_400,) if quick else (1, 1_400, 40_000, 60_000)
    losses = (0.0, 0.1) if quick else (0.0, 0.1, 0.3)
    broken = []
    heads = f"{'s':>9} {'of fifo':>8} {'repairs':>8} {'lost':>8}"
    print(f"{'ordering':14} {'n':>3} {'bit/s':>11} {'bytes':>6} {'loss':>5} {heads}")
    for members, bandwidth, payload, loss in itertools.product(sizes, bandwidths, payloads, losses):
        network = NetworkOptions(latency="uniform 1ms 5ms", bandwidth=bandwidth, loss=loss)
        fifo = 0.0
        for ordering in ("fifo", "causal-blocks", "co"):
            seconds, repairs, lost = measure(ordering, members, network, payload, 3)
            fifo = fifo or seconds
            line = (
                f"{ordering:14} {members:3} {bandwidth:11} {payload:6} {loss:5} {seconds:9.2f} {seconds / fifo:8.2f} "
                f"{repairs:8} {lost:8}"
            )
            print(line, flush=True)
            if ordering != "fifo" and (seconds > 5 * fifo or repairs > 10 * lost):
                broken.append(line)
    for members in sizes:
        network = NetworkOptions(receive_buffer=4, service="2ms")
        for ordering in ("fifo", "causal-blocks", "co"):
            seconds, repairs, lost = measure(ordering, members, network, 8, 1)
            print(f"{ordering:14} {members:3} {'overrun':>11} {8:6} {'':5} {seconds:9.2f} {'':8} {repairs:8} {lost:8}")
    print(f"{len(broken)} lines break what we ask for:", *broken, sep="\n")


if __name__ == "__main__":
    main()
