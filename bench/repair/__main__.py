"""Repair on slow links, with losses and with receivers that overrun: causal blocks and CO beside fifo.

    python -m bench.repair            the grid of sizes, bandwidths, payloads and losses
    python -m bench.repair --quick    a part of it, in a minute or so

Each line gives the simulated time and the repairs of an ordering, and its time as a multiple of fifo's. It ends with
the worst cells of each ordering, and the lines that break what we ask for: an end within 5 times fifo's time,
10 repairs for each datagram that was lost or overrun, and without either no repairs at all.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload

SECOND = 1_000_000_000
ORDERINGS = ("fifo", "causal-blocks", "co")


class Cell(NamedTuple):
    """What all orderings are run on."""

    members: int
    network: NetworkOptions
    payload: int
    messages: int
    interval: str


class Figures(NamedTuple):
    """What an ordering took in a cell."""

    ordering: str
    cell: Cell
    seconds: float  # simulated; infinite if it did not end
    repairs: int
    lost: int  # datagrams lost or overrun
    times: float  # fifo's seconds

    @property
    def broken(self) -> bool:
        """Whether it is more than we allow."""
        return self.ordering != "fifo" and (self.times > 5 or self.repairs > 10 * self.lost)

    def __str__(self) -> str:
        members, network, payload, _, _ = self.cell
        links = "overrun" if network.receive_buffer else f"{network.bandwidth:,}"
        return (
            f"{self.ordering:14} {members:3} {links:>12} {payload:6} {network.loss:5} {self.seconds:9.2f} "
            f"{self.times:8.2f} {self.repairs:8} {self.lost:8}"
        )


def grid(quick: bool) -> Iterator[Cell]:
    """Give the cells: links of every speed, then receivers with 4 places that take 2 ms for a datagram."""
    sizes = (4, 10) if quick else (4, 10, 20, 40)
    bandwidths = (70_000, 2_000_000) if quick else (40_000, 70_000, 2_000_000, 100_000_000)
    payloads = (1_400,) if quick else (1, 1_400, 40_000, 60_000)
    losses = (0.0, 0.1) if quick else (0.0, 0.1, 0.3)
    for members, bandwidth, payload, loss in itertools.product(sizes, bandwidths, payloads, losses):
        network = NetworkOptions(latency="uniform 1ms 5ms", bandwidth=bandwidth, loss=loss)
        yield Cell(members, network, payload, 3, "fixed 1ms")
    for members in sizes:
        yield Cell(members, NetworkOptions(receive_buffer=4, service="2ms"), 8, 1, "0")


def measure(cell: Cell) -> Iterator[Figures]:
    """Run all orderings in a cell."""
    fifo = 0.0
    for ordering in ORDERINGS:
        scenario = Scenario(
            members=cell.members,
            messages=cell.messages,
            ordering=ordering,
            network=cell.network,
            workload=Workload(interval=cell.interval, payload=cell.payload),
            limit="600s",
        )
        run = simulate(scenario, 1)
        counts = run.stats["network"]
        seconds = max(event.time_ns or 0 for event in run.events) / SECOND if run.finished else float("inf")
        fifo = fifo or seconds
        lost = counts.get("lost", 0) + counts.get("overrun", 0)
        repairs = run.stats["members"].get("retransmissions", 0)
        yield Figures(ordering, cell, seconds, repairs, lost, seconds / fifo)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    figures: list[Figures] = []
    print(
        f"{'ordering':14} {'n':>3} {'bit/s':>12} {'bytes':>6} {'loss':>5} {'s':>9} {'of fifo':>8} {'repairs':>8} lost"
    )
    for cell in grid(parser.parse_args().quick):
        for one in measure(cell):
            print(one, flush=True)
            figures.append(one)
    for ordering in ORDERINGS[1:]:
        mine = [one for one in figures if one.ordering == ordering]
        print(f"\nthe slowest cells of {ordering}:", *sorted(mine, key=lambda one: -one.times)[:5], sep="\n")
        lossy = [one for one in mine if one.lost]
        print("with most repairs for a loss:", *sorted(lossy, key=lambda one: -one.repairs / one.lost)[:3], sep="\n")
    broken = [one for one in figures if one.broken]
    print(f"\n{len(broken)} of {len(figures)} lines break what we ask for:", *broken, sep="\n")


if __name__ == "__main__":
    main()
