"""A group of four at the defaults, 300 ms one way from each other: it starts, works, loses a member and has it back.

    python -m bench.live.far                               # all orderings, both partition policies, in virtual time
    python -m bench.live.far --live --orderings tomp       # over real sockets that send everything 300 ms later

Each sends five messages a second. After 10 s one is stopped without a word, and 10 s later it is started again. What is
shown: when the first view of all was there, how many views anyone saw until then and since the last change was over,
when the others had gone on without the one that was stopped, when all were back, and how long a message took until it
was stable, half of them and the slowest.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import antiphon
from antiphon import testing
from antiphon.live.host import ThisHost
from antiphon.protocol.ordering import ORDERINGS
from bench.live.addresses import free_addresses

MEMBERS = 4
EACH_S = 10.0
PAUSE_S = 0.2


class FarSocket(socket.socket):
    """A socket that sends everything later."""

    def __init__(self, family: int, delay_s: float) -> None:
        super().__init__(family, socket.SOCK_DGRAM)
        self._delay_s = delay_s

    def sendto(self, data: Any, *rest: Any) -> int:
        return self._later(super().sendto, bytes(data), *rest)

    def sendmsg(self, buffers: Any, *rest: Any) -> int:
        return self._later(super().sendmsg, [b"".join(buffers)], *rest)

    def _later(self, send: Callable[..., int], *what: Any) -> int:
        def late() -> None:
            if self.fileno() >= 0:
                send(*what)

        asyncio.get_running_loop().call_later(self._delay_s, late)
        return len(what[0] if isinstance(what[0], bytes) else what[0][0])


class FarHost(ThisHost):
    """This machine, far from itself."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def socket(self, family: int) -> socket.socket:
        return FarSocket(family, self._delay_s)


class Group:
    """Four members, and what they saw."""

    def __init__(self, addresses: list[str], **settings: Any) -> None:
        self._addresses, self._settings = addresses, settings
        self._groups: dict[str, antiphon.Group] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.views: dict[str, list[tuple[float, int]]] = {own: [] for own in addresses}  # when, of how many
        self.stable_s: list[float] = []

    async def start(self, own: str) -> None:
        peers = [peer for peer in self._addresses if peer != own]
        group = self._groups[own] = antiphon.join("far", bind=own, peers=peers, **self._settings)
        await group.__aenter__()
        self._tasks += [asyncio.create_task(self._listen(own, group)), asyncio.create_task(self._send(group))]

    async def _listen(self, own: str, group: antiphon.Group) -> None:
        async for event in group:
            if isinstance(event, antiphon.ViewChange):
                self.views[own].append((_now(), len(event.members)))

    async def _send(self, group: antiphon.Group) -> None:
        while group.status().standing != "left":
            self._tasks.append(asyncio.create_task(self._time(await group.send(bytes(100)))))
            await asyncio.sleep(PAUSE_S)

    async def _time(self, receipt: antiphon.Receipt) -> None:
        began = _now()
        try:
            await receipt.stable()
            self.stable_s.append(_now() - began)
        except antiphon.Unknown:
            pass  # of the one that was stopped, or of a side that gave way

    async def live(self) -> list[str]:
        """Go through all of it, and give a row."""
        first, *others = self._addresses
        began = _now()
        await asyncio.gather(*map(self.start, self._addresses))
        await asyncio.sleep(EACH_S)
        all_in = self._reached(MEMBERS, began, self._addresses)
        seen = max(map(len, self.views.values()))
        await self._groups[first].stop()
        stopped = _now()
        await asyncio.sleep(EACH_S)
        gone_on = self._reached(MEMBERS - 1, stopped, others)
        back = _now()
        await self.start(first)
        await asyncio.sleep(EACH_S)
        all_back = self._reached(MEMBERS, back, self._addresses)
        before = sum(map(len, self.views.values()))
        await asyncio.sleep(EACH_S)
        later = sum(map(len, self.views.values())) - before
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(group.leave() for group in self._groups.values()))
        times = sorted(self.stable_s)
        return [
            all_in,
            str(seen),
            gone_on,
            all_back,
            str(later),
            f"{times[len(times) // 2]:.2f} s",
            f"{times[-1]:.1f} s",
        ]

    def _reached(self, size: int, since: float, members: list[str]) -> str:
        """Say when the last of some was in a view of so many, if all have come to be."""
        when = [
            min((at for at, count in self.views[own] if at >= since and count == size), default=None) for own in members
        ]
        return "never" if None in when else f"{max(at for at in when if at is not None) - since:.2f} s"


def _now() -> float:
    return asyncio.get_running_loop().time()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.live.far", description=__doc__.splitlines()[0])
    parser.add_argument("--orderings", default=",".join(sorted(ORDERINGS)))
    parser.add_argument("--partitions", default="majority,each-side")
    parser.add_argument("--delay", type=float, default=0.3, help="one way, in seconds")
    parser.add_argument("--live", action="store_true", help="over real sockets, in real time: 45 s each")
    args = parser.parse_args()
    shown = ("ordering", "partition", "first view of all", "views until then", "gone on", "all back", "views later")
    print(f"| {' | '.join((*shown, 'stable: p50', 'max'))} |")
    print("|---" * (len(shown) + 2) + "|")
    for ordering, partition in product(args.orderings.split(","), args.partitions.split(",")):
        row = _measured(args.live, args.delay, ordering=ordering, partition=partition)
        print(f"| {ordering} | {partition} | {' | '.join(row)} |", flush=True)


def _measured(live: bool, delay_s: float, **settings: Any) -> list[str]:
    if not live:

        async def simulated(world: testing.World) -> list[str]:
            return await Group(world.addresses(MEMBERS), **settings).live()

        return testing.run(simulated, latency=f"fixed {delay_s}s", patience="2min")

    async def real() -> list[str]:
        vars(asyncio.get_running_loop())["antiphon_host"] = FarHost(delay_s)
        with tempfile.TemporaryDirectory() as folder:
            return await Group(free_addresses(MEMBERS), state=Path(folder), **settings).live()

    return asyncio.run(real())


if __name__ == "__main__":
    main()
