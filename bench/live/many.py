"""Many live members on one machine: how soon they are one group, what each costs, and what becomes of it when some die.

    python -m bench.live.many --members 4,16,64

One process a member, forked from one that has everything imported, encrypted. All start at once; they idle; each sends
10 messages a second, or `--rate`; an eighth of them is killed at once, and comes back. All times are real, all CPU is
that of the members' processes. `python -m bench.simulator.views` has simulated groups, of more members.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import antiphon
from antiphon.progress import Progress
from bench.live.addresses import free_addresses

antiphon.join  # noqa: B018  # what is imported when it is first asked for is imported before any member is forked
KEY = bytes(range(16))
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 60.0
PHASES = 5


class Crowd:
    """The members' processes, and what each says of its views and deliveries."""

    def __init__(self, count: int, folder: Path, ordering: str, rate: float) -> None:
        self.addresses, self._folder, self._ordering = sorted(free_addresses(count)), folder, ordering
        self._rate = rate  # messages a second of each member
        self._pids: dict[int, int] = {}
        self._pipes: dict[int, int] = {}  # from a descriptor to its member
        self._rest: dict[int, bytes] = {}
        self.views: dict[int, tuple[int, int]] = {}  # by member: the view's number, and how many are in it
        self.views_seen: set[int] = set()
        self.delivered: dict[int, int] = {}
        self.delivered_of = [0] * count  # by sender, at the first member

    def start(self, *members: int) -> None:
        """Start members, all at once."""
        for member in members:
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                self._run(member, writer)
            os.close(writer)
            self._pids[member], self._pipes[reader], self._rest[reader] = pid, member, b""

    def _run(self, member: int, writer: int) -> None:
        """Be a member, until killed."""
        try:
            for pipe in self._pipes:
                os.close(pipe)
            asyncio.run(self._member(member, writer))
        finally:
            os._exit(0)

    async def _member(self, member: int, writer: int) -> None:
        own = self.addresses[member]
        peers = [address for address in self.addresses if address != own]
        sending = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, sending.set)
        state = self._folder / str(member)
        settings: dict[str, Any] = {"ordering": self._ordering, "state": state, "key": KEY}
        async with antiphon.join("many", bind=own, peers=peers, **settings) as group:

            async def listen() -> None:
                delivered, said_at, of = 0, 0.0, dict.fromkeys(self.addresses, 0)
                async for event in group:
                    if isinstance(event, antiphon.Message):
                        delivered += 1
                        of[event.sender] += 1
                        if time.monotonic() - said_at < 0.5:
                            continue
                        said_at = time.monotonic()
                        os.write(writer, b"d %d\n" % delivered)
                        if member == 0:
                            os.write(writer, b"s %s\n" % " ".join(map(str, of.values())).encode())
                    elif isinstance(event, antiphon.ViewChange):
                        os.write(writer, b"v %d %d\n" % (event.view, len(event.members)))

            listening = asyncio.create_task(listen())
            await sending.wait()
            while not listening.done():
                await group.send(os.urandom(64))
                await asyncio.sleep(1 / self._rate)

    # What the bench does

    def kill(self, *members: int) -> None:
        """Kill members, all at once."""
        for member in members:
            os.kill(self._pids[member], signal.SIGKILL)
        for member in members:
            os.waitpid(self._pids.pop(member), 0)
            self.views.pop(member, None)

    def signal(self, *members: int) -> None:
        """Let members send."""
        for member in members:
            os.kill(self._pids[member], signal.SIGUSR1)

    def end(self) -> None:
        """Kill all that are left."""
        self.kill(*self._pids)

    def listen(self, seconds: float) -> None:
        """Take in what the members say."""
        for reader in select.select(list(self._pipes), [], [], seconds)[0]:
            text = os.read(reader, 65_536)
            if not text:
                del self._pipes[reader]
                os.close(reader)
                continue
            *lines, self._rest[reader] = (self._rest[reader] + text).split(b"\n")
            member = self._pipes[reader]
            for line in lines:
                kind, *numbers = line.split()
                if kind == b"d":
                    self.delivered[member] = int(numbers[0])
                elif kind == b"s":
                    self.delivered_of = list(map(int, numbers))
                elif member in self._pids:
                    self.views[member] = int(numbers[0]), int(numbers[1])
                    self.views_seen.add(int(numbers[0]))

    def wait(self, seconds: float) -> None:
        """Listen for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.listen(until - time.monotonic())

    def until(self, condition: Callable[[], bool]) -> float | None:
        """Return how long it took until a condition held, or None if it never did."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > PATIENCE_S:
                return None
            self.listen(0.05)
        return round(time.monotonic() - begun, 2)

    def one_view_of(self, count: int) -> bool:
        """Say whether all that run are in one view, of so many."""
        views = {self.views.get(member) for member in self._pids}
        return len(views) == 1 and None not in views and {size for _, size in views if size} == {count}  # type: ignore[misc]

    def cpu_s(self) -> float:
        """Return what the running members have used."""
        ticks = 0
        for pid in self._pids.values():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS_PER_S


def measure(count: int, seconds: float, ordering: str, rate: float, told: Callable[[int], None]) -> dict[str, Any]:
    """Run a group of so many through its life, and say what was measured."""
    some = min(8, max(1, count // 8))
    figures: dict[str, Any] = {"members": count, "ordering": ordering, "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(count, Path(folder), ordering, rate)
        try:
            told(0)
            crowd.start(*range(count))
            figures["all_in_one_view_s"] = crowd.until(lambda: crowd.one_view_of(count))
            figures["views_until_then"] = len(crowd.views_seen)
            crowd.wait(3)
            told(1)
            crowd.views_seen.clear()
            before, begun = crowd.cpu_s(), time.monotonic()
            crowd.wait(seconds)
            idle_s = time.monotonic() - begun
            figures["idle_percent_each"] = round(100 * (crowd.cpu_s() - before) / idle_s / count, 2)
            told(2)
            crowd.signal(*range(count))
            crowd.wait(2)
            delivered, before, begun = sum(crowd.delivered.values()), crowd.cpu_s(), time.monotonic()
            of_each = crowd.delivered_of
            crowd.wait(seconds)
            took_s = time.monotonic() - begun
            of_each = sorted(after - earlier for earlier, after in zip(of_each, crowd.delivered_of, strict=True))
            shares = {"least": of_each[0], "median": of_each[count // 2], "most": of_each[-1]}
            figures["delivered_per_s_of_one_sender"] = {key: round(of / took_s, 1) for key, of in shares.items()}
            figures["deliveries_per_s"] = round((sum(crowd.delivered.values()) - delivered) / took_s)
            figures["deliveries_wanted_per_s"] = round(rate * count * count)
            figures["sending_percent_each"] = round(100 * (crowd.cpu_s() - before) / took_s / count, 2)
            figures["views_idle_and_sending"] = len(crowd.views_seen)
            told(3)
            crowd.kill(*range(count - some, count))
            figures["gone_on_without_s"] = crowd.until(lambda: crowd.one_view_of(count - some))
            crowd.wait(3)
            told(4)
            crowd.start(*range(count - some, count))
            figures["back_s"] = crowd.until(lambda: crowd.one_view_of(count))
        finally:
            crowd.end()
    figures["killed"] = some
    return figures


def main() -> int:
    """Measure groups of the given sizes."""
    parser = argparse.ArgumentParser(prog="python -m bench.live.many", description=__doc__.splitlines()[0])
    parser.add_argument("--members", default="4,16,64", help="sizes of the groups")
    parser.add_argument("--seconds", type=float, default=8, help="how long each phase is measured")
    parser.add_argument("--ordering", default="total")
    parser.add_argument("--rate", type=float, default=10, help="messages a second of each member")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, a line a group")
    args = parser.parse_args()
    for count in map(int, args.members.split(",")):
        with Progress(f"{count} members", PHASES) as progress:
            figures = measure(count, args.seconds, args.ordering, args.rate, progress.done)
        print(json.dumps(figures) if args.json else "\n".join(f"{key:26} {value}" for key, value in figures.items()))
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
