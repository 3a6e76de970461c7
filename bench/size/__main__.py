"""What a message costs as a group grows: whole members, each ordering on the same simulated links.

    python -m bench.size                                    n = 8, 64 and 256, with 5% loss and without: half an hour
    python -m bench.size --size 64 --ordering co --loss 0   one line
    python -m bench.size --profile --size 64 --ordering co  where the members' time goes

CPU is that of the members alone: from a datagram, a message or a timer to what follows, codec included, without the
simulator and without a trace. A datagram or byte counts once for each receiver. What a member keeps are messages: its
own and others' that someone may lack, and those that wait for their turn.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import random
from collections.abc import Iterator
from pathlib import Path
from time import thread_time_ns

import msgspec

from antiphon.protocol.machine import Effect, Input, Instant
from antiphon.protocol.view.member import Member, View
from antiphon.sim.cluster import Cluster, Node
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from antiphon.trace.log import MemberLog

ORDERINGS = ("fifo", "abcast", "causal-blocks", "co")
MESSAGES = {8: 100, 64: 6, 256: 1}  # of each: some 6,000 to 65,000 deliveries
MESSAGES_OF_ONE = {8: 200, 64: 20, 256: 1}  # where one member sends
LOSSES = (0.0, 0.05)
HEAD = "ordering       senders    n  loss  deliveries  us CPU  datagrams      bytes  most kept"


class MessageCost(msgspec.Struct, frozen=True):
    """What a run cost, for each delivery."""

    ordering: str
    members: int
    senders: str  # all, or one
    loss: float
    finished: bool
    deliveries: int
    cpu_us: float
    datagrams: float
    bytes: float
    held: int  # the most messages that a member kept

    def __str__(self) -> str:
        unfinished = "" if self.finished else "  NOT FINISHED"
        return (
            f"{self.ordering:<15}{self.senders:<7}{self.members:>5}{self.loss:>6}{self.deliveries:>12,}"
            f"{self.cpu_us:>8.0f}{self.datagrams:>11.2f}{self.bytes:>11,.0f}{self.held:>11}{unfinished}"
        )


class MeteredMember(Member):
    """A member that counts the processor time that it takes, and notes how much it keeps."""

    spent_ns = 0  # of all members
    kept_most = 0

    def handle(self, event: Input, now: Instant) -> list[Effect]:
        """Take one input, and count."""
        began = thread_time_ns()
        effects = super().handle(event, now)
        MeteredMember.spent_ns += thread_time_ns() - began
        MeteredMember.kept_most = max(MeteredMember.kept_most, self.held)
        return effects


class MeteredCluster(Cluster):
    """A cluster of metered members that write no trace."""

    def _make_nodes(self, rng: random.Random) -> list[Node]:
        view, options = View(0, tuple(range(self.scenario.members))), self.scenario.options()
        return [
            Node(
                MeteredMember(me, view, options, random.Random(f"{self.seed}/member/{me}")),
                self.make_clock(rng),
                MemberLog(me, view.number),
            )
            for me in view.members
        ]


def scenario(ordering: str, members: int, senders: str, loss: float) -> Scenario:
    """Describe a run: each sender sends a message of 64 bytes every 20 ms on average, with the options of `lan`."""
    one = senders == "one"
    return Scenario(
        members=members,
        messages=(MESSAGES_OF_ONE if one else MESSAGES)[members],
        ordering=ordering,
        network=NetworkOptions(latency="uniform 1ms 5ms", loss=loss),
        workload=Workload(interval="exponential 20ms", payload=64, senders=[0] if one else None),
        limit="60s",
    )


def measure(ordering: str, members: int, senders: str, loss: float) -> MessageCost:
    """Run an ordering, and give what it cost."""
    MeteredMember.spent_ns = MeteredMember.kept_most = 0
    run = MeteredCluster(scenario(ordering, members, senders, loss), 1).run()
    network = run.stats["network"]
    return MessageCost(
        ordering,
        members,
        senders,
        loss,
        run.finished,
        run.delivered,
        MeteredMember.spent_ns / 1000 / run.delivered,
        network["datagrams"] / run.delivered,
        network["bytes"] / run.delivered,
        MeteredMember.kept_most,
    )


def profile(ordering: str, members: int, senders: str, loss: float, lines: int = 12) -> Iterator[str]:
    """Say which functions the members' time goes to, as a table."""
    profiler = cProfile.Profile()
    cluster = MeteredCluster(scenario(ordering, members, senders, loss), 1)
    run = profiler.runcall(cluster.run)
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    simulators = ("/sim/", "random.py", "{built-in method _heapq", "bench/size")
    rows = [
        (own, calls, f"{Path(file).parent.name}/{Path(file).name} {name}" if file != "~" else name)
        for (file, _, name), (_, calls, own, _, _) in stats.items()
        if not any(part in file or part in name for part in simulators)
    ]
    total = sum(own for own, _, _ in rows)
    yield f"{ordering}, n = {members}, {senders} sending, loss {loss}: {total:.1f} profiled seconds in the members"
    yield "| share | calls for each delivery | function |\n|---|---|---|"
    for own, calls, name in sorted(rows, reverse=True)[:lines]:
        yield f"| {own / total:.0%} | {calls / run.delivered:.1f} | `{name}` |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ordering", action="append", choices=ORDERINGS)
    parser.add_argument("--size", action="append", type=int, choices=MESSAGES)
    parser.add_argument("--senders", action="append", choices=("all", "one"))
    parser.add_argument("--loss", action="append", type=float)
    parser.add_argument("--profile", action="store_true", help="say where the members' time goes")
    parser.add_argument("--json", action="store_true", help="one object a line")
    args = parser.parse_args()
    sizes, senders = args.size or MESSAGES, args.senders or ("all", "one")
    cells = itertools.product(sizes, senders, args.loss or LOSSES, args.ordering or ORDERINGS)
    if not args.json and not args.profile:
        print(HEAD)
    for members, who, loss, ordering in cells:
        if args.profile:
            print(*profile(ordering, members, who, loss), sep="\n", flush=True)
            continue
        cost = measure(ordering, members, who, loss)
        print(msgspec.json.encode(cost).decode() if args.json else cost, flush=True)


if __name__ == "__main__":
    main()
