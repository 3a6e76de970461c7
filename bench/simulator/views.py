"""Simulated groups with views as they grow: what membership takes of virtual time, and of a machine's.

    python -m bench.simulator.views --members 4,16,64,256,512
    python -m bench.simulator.views --members 48 --start-within 1,2,4

All members start at once, idle, deliver a few messages in total order, lose some of them at once and have them back.
Times are virtual, with a latency of 0.1 to 1 ms at the defaults. CPU is real, of all members in one process; sockets,
encryption and the event loop are not in it. With `--start-within`, members start one after the other within so many
seconds, in an order of chance, and it is shown which views that took.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from antiphon.progress import Progress
from antiphon.protocol.machine import MILLISECOND, SECOND, Deliver, Effect, Install
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario
from antiphon.sim.view_cluster import ViewCluster

LOOK_NS = 10 * MILLISECOND
PATIENCE_NS = 120 * SECOND
SENDERS, MESSAGES_EACH = 4, 2
PHASES = 6


class WatchedGroup(ViewCluster):
    """A simulated group that somebody watches, one phase of its life after the other."""

    def __init__(self, count: int, ordering: str, told: Callable[[int], None]) -> None:
        self.count, self.killed = count, min(8, max(1, count // 8))
        self.figures: dict[str, Any] = {"members": count, "killed": self.killed}
        self._told, self._deliveries, self._views = told, 0, set[int]()
        self._phases = iter(self._life())
        network = NetworkOptions(latency="uniform 100us 1ms")
        options: dict[str, Any] = {"views": True, "messages": 0, "network": network, "limit": "900s"}
        super().__init__(Scenario(name="views", members=count, ordering=ordering, **options), seed=1)
        self._begin_next()
        self.kernel.at(0, self._look)

    def _life(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        """Go through the phases: the name of each, and what ends it."""
        last = range(self.count - self.killed, self.count)
        yield "first_view", lambda: self._all_in_one_view()
        period_ns = self.running()[0].detector.times.period_ns
        yield "settled", lambda: self._lasted(period_ns)
        yield "idle", lambda: self._lasted(max(period_ns, 3 * SECOND))
        for sender in range(min(SENDERS, self.count)):
            node = self.nodes[sender]
            node.backlog = node.submitted = MESSAGES_EACH
            self._submit_backlog(sender, node)
        wanted = min(SENDERS, self.count) * MESSAGES_EACH * self.count
        yield "delivered", lambda: self._deliveries == wanted
        yield "stable", lambda: all(process.drained for process in self.running().values())
        for name in last:
            self._crash(name)
        yield "gone_on", lambda: self._all_in_one_view()
        yield "forgotten", lambda: self._lasted(2 * SECOND)
        for name in last:
            self._start(name)
        yield "back", lambda: self._all_in_one_view()

    def _begin_next(self) -> bool:
        self._since, self._cpu_since, self._signs_since = self.kernel.now, time.process_time(), self._signs()
        self._phase, self._is_over = next(self._phases, ("", lambda: True))
        return self._phase != ""

    def _look(self, _: None = None) -> None:
        self._views.update(process.view.number for process in self.running().values() if process.view.number)
        late = self._lasted(PATIENCE_NS)
        if late or self._is_over():
            took_ns, cpu_s = self.kernel.now - self._since, time.process_time() - self._cpu_since
            signs_per_s = (self._signs() - self._signs_since) / (took_ns / SECOND)
            self.figures[self._phase] = {
                "virtual_s": None if late else round(took_ns / SECOND, 2),
                "cpu_ms_each": round(1_000 * cpu_s / self.count, 2),
                "cpu_percent_each": round(100 * cpu_s / (took_ns / SECOND) / self.count, 2),
                "signs_of_life_per_s_each": round(signs_per_s / self.count, 2),
                "views": len(self._views),
            }
            self._told(len(self.figures))
            if not self._begin_next():
                self.kernel.stop()
                return
        self.kernel.after(LOOK_NS, self._look)

    def _lasted(self, ns: int) -> bool:
        return self.kernel.now - self._since >= ns

    def _signs(self) -> int:
        return sum(process.counts["alive"] for process in self.processes)

    def _all_in_one_view(self) -> bool:
        running = self.running()
        views = {one.view.id if one.member is not None else None for one in running.values()}
        return len(views) == 1 and None not in views and len(running[0].view.members) == len(running)

    def _carry_out(self, me: int, effect: Effect) -> None:
        if type(effect) is Deliver:
            self._deliveries += 1
        super()._carry_out(me, effect)

    def _see_whether_one_group_is_left(self, _: None) -> None:
        """Go on: there is more to see."""


class SlowStart(ViewCluster):
    """A group whose members start one after the other; it notes when each view began, and of how many."""

    def __init__(self, count: int, within_s: float) -> None:
        self.views: dict[int, tuple[float, int]] = {}  # by number
        order = random.Random(3).sample(range(count), count)
        starts = enumerate(order[1:], 1)
        late = [Fault(kind="join", at=f"{int(1_000 * within_s * i / count)}ms", member=name) for i, name in starts]
        network = NetworkOptions(latency="uniform 100us 1ms")
        options: dict[str, Any] = {"views": True, "messages": 0, "network": network, "faults": late, "limit": "30s"}
        super().__init__(Scenario(name="start", members=count, ordering="sequencer", **options), seed=1)

    def _carry_out(self, me: int, effect: Effect) -> None:
        if type(effect) is Install:
            self.views.setdefault(effect.view, (round(self.kernel.now / SECOND, 2), len(effect.members)))
        super()._carry_out(me, effect)


def main() -> int:
    """Measure groups of the given sizes."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulator.views", description=__doc__.splitlines()[0])
    parser.add_argument("--members", default="4,16,64", help="sizes of the groups")
    parser.add_argument("--ordering", default="total")
    parser.add_argument("--start-within", metavar="SECONDS", help="let members start one after the other")
    parser.add_argument("--profile", action="store_true", help="show where the time of each group goes")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, a line a group")
    args = parser.parse_args()
    sizes = [int(count) for count in args.members.split(",")]
    for count, within_s in product(sizes, args.start_within.split(",")) if args.start_within else ():
        start = SlowStart(count, float(within_s))
        start.run()
        print(f"{count} members within {within_s} s: {len(start.views)} views, (s, members) {[*start.views.values()]}")
    for count in sizes if not args.start_within else ():
        profile = cProfile.Profile()
        with Progress(f"{count} members", PHASES) as progress:
            group = WatchedGroup(count, args.ordering, progress.done)
            if args.profile:
                profile.runcall(group.run)
            else:
                group.run()
        group.figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
        show = json.dumps if args.json else lambda figures: "\n".join(f"{key:12} {of}" for key, of in figures.items())
        print(show(group.figures), end="\n\n", flush=True)
        if args.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    return 0


if __name__ == "__main__":
    sys.exit(main())
