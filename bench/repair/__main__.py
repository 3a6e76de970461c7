"""Repair on slow links, with losses and with receivers that overrun: causal blocks and CO beside fifo.

    python -m bench.repair                    the grid of sizes, bandwidths, payloads and losses: an hour or two
    python -m bench.repair --part 3/16        every 16th cell of it, from the third on
    python -m bench.repair --size 10          the cells of 10 members, those with small messages first
    python -m bench.repair --quick            a small grid, in a minute or so
    python -m bench.repair --crowd            what repair costs causal blocks in a group of 100
    python -m bench.repair --wan              total orders beside fifo with the profile wan, where one of three sends
    python -m bench.repair --read a.jsonl ..  judge what `--json` printed before

Each line gives the simulated time, the repairs and the bytes of an ordering, and its time as a multiple of fifo's; with
`--json` each is an object. It ends with a table of the worst of each ordering and group size, the cells they were in,
and the lines that break what we ask for: an end within 5 times fifo's time, 10 repairs for each datagram that was lost
or overrun, and without either no repairs at all. Cells of up to 10 members are run with three seeds each and summed up.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean, median

import msgspec

from antiphon.progress import Progress
from antiphon.sim.cluster import Cluster, SimulatedRun, simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from antiphon.trace.event import Event

SECOND = 1_000_000_000
ORDERINGS = ("fifo", "causal-blocks", "co")
TIMES_MAX = 5
HEAD = "ordering         n        bit/s  bytes  loss         s  of fifo  repairs     lost  of bytes"
REPAIRS_MAX = 10  # for each datagram that did not come


class Cell(msgspec.Struct, frozen=True):
    """What all orderings are run on."""

    members: int
    network: NetworkOptions
    payload: int
    messages: int
    interval: str


class Figures(msgspec.Struct, frozen=True):
    """What an ordering took in a cell."""

    ordering: str
    cell: Cell
    seconds: float | None  # simulated; None: it did not end
    repairs: int
    lost: int  # datagrams lost or overrun
    fifo: float | None  # fifo's seconds
    bytes: int  # of all datagrams, once for each receiver
    runs: int  # with other seeds; all figures are sums over them

    @property
    def times(self) -> float:
        """How often it takes fifo's time."""
        return self.seconds / self.fifo if self.seconds is not None and self.fifo else float("inf")

    @property
    def repairs_for_a_loss(self) -> float:
        """How many repairs there were for each datagram that did not come."""
        return self.repairs / self.lost if self.lost else float("inf") if self.repairs else 0

    @property
    def bytes_for_a_byte(self) -> float:
        """How many bytes left for each byte of a message and receiver."""
        copies = self.runs * self.cell.messages * self.cell.members * (self.cell.members - 1)
        return self.bytes / (copies * self.cell.payload)

    @property
    def broken(self) -> bool:
        """Whether it is more than we allow."""
        return self.times > TIMES_MAX or self.repairs > REPAIRS_MAX * self.lost

    @property
    def where(self) -> str:
        """The cell in words."""
        network = self.cell.network
        if network.receive_buffer:
            return "receivers that overrun"
        return f"{network.bandwidth / 1000:,.0f} kbit/s, {self.cell.payload:,} bytes, {network.loss:.0%} loss"

    def __str__(self) -> str:
        network = self.cell.network
        links = "overrun" if network.receive_buffer else f"{network.bandwidth:,}"
        seconds = "no end" if self.seconds is None else f"{self.seconds:.2f}"
        return (
            f"{self.ordering:14} {self.cell.members:3} {links:>12} {self.cell.payload:6} {network.loss:5} {seconds:>9} "
            f"{self.times:8.2f} {self.repairs:8} {self.lost:8} {self.bytes_for_a_byte:9.2f}"
        )


def grid(quick: bool) -> Iterator[Cell]:
    """Give the cells: links of every speed, then receivers with 4 places that take 2 ms for a datagram.

    Large groups send less, so that a cell takes seconds: three messages each up to 10 members, one at 40.
    """
    sizes = (4, 10) if quick else (4, 10, 20, 40)
    bandwidths = (70_000, 2_000_000) if quick else (40_000, 70_000, 2_000_000, 100_000_000)
    payloads = (1_400,) if quick else (1, 1_400, 40_000, 60_000)
    losses = (0.0, 0.1) if quick else (0.0, 0.1, 0.3)
    for members, bandwidth, payload, loss in itertools.product(sizes, bandwidths, payloads, losses):
        network = NetworkOptions(latency="uniform 1ms 5ms", bandwidth=bandwidth, loss=loss)
        yield Cell(members, network, payload, min(3, 40 // members), "fixed 1ms")
    for members in sizes:
        yield Cell(members, NetworkOptions(receive_buffer=4, service="2ms"), 8, 1, "0")


def seeds(cell: Cell) -> range:
    """Give the seeds of a cell: small groups say so little that one run is a matter of luck."""
    return range(1, 4 if cell.members <= 10 else 2)


def run(cell: Cell, ordering: str, seed: int = 1) -> SimulatedRun:
    """Run an ordering in a cell."""
    scenario = Scenario(
        members=cell.members,
        messages=cell.messages,
        ordering=ordering,
        network=cell.network,
        workload=Workload(interval=cell.interval, payload=cell.payload),
        limit="6000s",
    )
    return simulate(scenario, seed)


def measure(cell: Cell) -> Iterator[Figures]:
    """Run all orderings in a cell, with all its seeds."""
    fifo: float | None = None
    for ordering in ORDERINGS:
        seconds: float | None = 0
        counts: Counter[str] = Counter()
        for seed in seeds(cell):
            done = run(cell, ordering, seed)
            counts.update(done.stats["network"])
            counts["repairs"] += done.stats["members"].get("retransmissions", 0)
            took = max(event.time_ns or 0 for event in done.events) / SECOND
            seconds = seconds + took if done.finished and seconds is not None else None
        fifo = seconds if ordering == "fifo" else fifo
        lost = counts["lost"] + counts["overrun"]
        yield Figures(ordering, cell, seconds, counts["repairs"], lost, fifo, counts["bytes"], len(seeds(cell)))


def worst(figures: Iterable[Figures]) -> Iterator[str]:
    """Give the worst of each ordering and size, with the cells, and the lines that break what we ask for."""
    figures = list(figures)
    yield "\n| ordering | n | cells | times fifo: median, worst | where | repairs for a loss, at most | without loss |"
    yield "|---|---|---|---|---|---|---|"
    for ordering, members in itertools.product(ORDERINGS, sorted({one.cell.members for one in figures})):
        mine = [one for one in figures if one.ordering == ordering and one.cell.members == members]
        if mine:
            slowest = max(mine, key=lambda one: one.times)
            repairs = max(one.repairs_for_a_loss for one in mine if one.lost or not one.repairs)
            unlost = sum(one.repairs for one in mine if not one.lost)
            usual = median(one.times for one in mine)
            yield (
                f"| {ordering} | {members} | {len(mine)} | {usual:.2f}, {slowest.times:.2f} | {slowest.where} "
                f"| {repairs:.2f} | {unlost} |"
            )
    broken = [one for one in figures if one.broken]
    yield f"\n{len(broken)} of {len(figures)} lines break what we ask for{':' if broken else ''}"
    yield from map(str, broken)


WAN_SEEDS = range(1, 31)
WAN_LATENCIES = ("uniform 1ms 5ms", "uniform 20ms 80ms")


def wan(latency: str, messages: int) -> str:
    """Measure how long one of three members takes to send all, in the mean of many runs that lose 15%."""
    network = NetworkOptions(latency=latency, loss=0.15)
    workload = Workload(interval="fixed 1ms", payload=100, senders=[0])
    words, fifo = [], 1.0
    for ordering in ("fifo", "abcast", "tomp", "sequencer"):
        scenario = Scenario.of(
            "wan", members=3, messages=messages, ordering=ordering, network=network, workload=workload, limit="6000s"
        )
        seconds = mean(simulate(scenario, seed).ended_ns / SECOND for seed in WAN_SEEDS)
        fifo = seconds if ordering == "fifo" else fifo
        words.append(f"{ordering} {seconds:.2f} s, {seconds / fifo:.2f}")
    return f"{messages} messages, {latency}: {'; '.join(words)}"


class CrowdFigures(msgspec.Struct, frozen=True):
    """What repair cost in a large group."""

    members: int
    messages: int  # of each
    interval: str
    seconds: float
    useful: int  # copies that came to one who lacked them
    useless: int  # copies that came to one who did not
    sent_bytes: int  # by the first sendings, once for each receiver
    bytes: int  # of all datagrams, to each receiver: messages, nulls, repairs, headers

    def __str__(self) -> str:
        return (
            f"{self.members} members, {self.messages} messages each, {self.interval}, 5% loss: {self.seconds:.2f} s, "
            f"{self.useless / self.useful:.2f} useless copies for a useful one, "
            f"{self.bytes / self.sent_bytes:.2f} bytes for each byte sent"
        )


def steady(members: int, interval: str, payload: int, since_s: float, until_s: float) -> float:
    """Measure bytes of all datagrams for each byte of messages when first sent, while every member goes on sending."""
    scenario = Scenario(
        members=members,
        messages=1000,
        ordering="causal-blocks",
        network=NetworkOptions(loss=0.05),
        workload=Workload(interval=interval, payload=payload),
        limit=f"{round(until_s * 1000)}ms",
    )
    cluster, before = Cluster(scenario, 1), [0]
    cluster.kernel.at(round(since_s * SECOND), lambda _: before.__setitem__(0, cluster.network.counts["bytes"]))
    done = cluster.run()
    first = [row for row in done.events if row.event == "send" and (row.time_ns or 0) >= since_s * SECOND]
    sent = sum(row.bytes or 0 for row in first) * (members - 1)
    return (cluster.network.counts["bytes"] - before[0]) / sent


def crowd(members: int, messages: int, interval: str, payload: int) -> CrowdFigures:
    """Measure causal blocks in a group that loses 5%."""
    done = run(Cell(members, NetworkOptions(loss=0.05), payload, messages, interval), "causal-blocks")
    rows: list[Event] = done.events
    copies = sum(_receivers(row.detail, members) for row in rows if (row.detail or "").startswith("repair"))
    useless = done.stats["members"].get("duplicates", 0)
    return CrowdFigures(
        members=members,
        messages=messages,
        interval=interval,
        seconds=done.ended_ns / SECOND,
        useful=round(0.95 * copies) - useless,
        useless=useless,
        sent_bytes=sum(row.bytes or 0 for row in rows if row.event == "send") * (members - 1),
        bytes=done.stats["network"]["bytes"],
    )


def _receivers(detail: str | None, members: int) -> int:
    targets = (detail or "").removeprefix("repair").removeprefix(" to ")
    return len(targets.split(",")) if targets and targets != "all" else members - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small grid")
    parser.add_argument("--part", metavar="I/K", default="1/1", help="every K-th cell, from the I-th on")
    parser.add_argument("--size", type=int, help="the cells of so many members, small messages first")
    parser.add_argument("--crowd", action="store_true", help="causal blocks in a group of 100")
    parser.add_argument("--wan", action="store_true", help="total orders with the profile wan")
    parser.add_argument("--read", metavar="FILE", type=Path, nargs="+", help="judge what --json printed before")
    parser.add_argument("--json", action="store_true", help="one object a line")
    args = parser.parse_args()
    if args.crowd:
        ratio = steady(100, "exponential 100ms", 64, 0.2, 0.6)
        print(f"100 members that go on sending, 5% loss: {ratio:.2f} bytes for each byte sent", flush=True)
        for messages, interval in ((6, "exponential 100ms"), (3, "exponential 10ms")):
            one = crowd(100, messages, interval, 64)
            print(msgspec.json.encode(one).decode() if args.json else one, flush=True)
        return
    if args.wan:
        print(*itertools.starmap(wan, itertools.product(WAN_LATENCIES, (1, 3, 10))), sep="\n")
        return
    if args.read:
        lines = [line for path in args.read for line in path.read_text().splitlines() if line.startswith("{")]
        print(*worst(msgspec.json.decode(line, type=Figures) for line in lines), sep="\n")
        return
    first, step = map(int, args.part.split("/"))
    cells = list(grid(args.quick))
    if args.size is not None:
        cells = sorted((cell for cell in cells if cell.members == args.size), key=lambda cell: cell.payload)
    cells = cells[first - 1 :: step]
    figures: list[Figures] = []
    if not args.json:
        print(HEAD)
    with Progress("cells", len(cells)) as progress:
        for number, cell in enumerate(cells):
            for figure in measure(cell):
                print(msgspec.json.encode(figure).decode() if args.json else figure, flush=True)
                figures.append(figure)
            progress.done(number + 1)
    print(*worst(figures), sep="\n", file=sys.stderr if args.json else sys.stdout)


if __name__ == "__main__":
    main()
