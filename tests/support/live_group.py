"""Live members on the loopback address, all in one process, for tests."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from bench.live.addresses import free_addresses as free_addresses

import antiphon
from antiphon.live.group import Group

LIMIT_S = 60.0  # a slow machine may take long; a stuck group must not take for ever


def losing(share: float, seed: int) -> Callable[[bytes], bool]:
    """Make a network that loses a share of the packets."""
    rng = random.Random(seed)
    return lambda _: rng.random() < share


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop of its own, within the limit."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test

    asyncio.run(limited())


@asynccontextmanager
async def members(
    count: int, folder: Path, *, loss: float = 0.0, of: list[str] | None = None, stop: bool = False, **settings: Any
) -> AsyncIterator[list[Group]]:
    """Join as many members as asked for, all at once, and leave (or just stop) at the end."""
    addresses = of or free_addresses(count)
    settings = {"state": folder / "state", "leave_s": 1.0, **settings}
    groups = [
        antiphon.join("test", bind=own, peers=[peer for peer in addresses if peer != own], **settings)
        for own in addresses
    ]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    try:
        for seed, group in enumerate(groups):
            if loss:
                group.transport.lose = losing(loss, seed)
        yield groups
    finally:
        await asyncio.gather(*(group.stop() if stop else group.leave() for group in groups))


async def collect(group: Group, count: int) -> list[antiphon.Message]:
    """Take so many messages of a group's stream."""
    taken: list[antiphon.Message] = []
    async for event in group:
        if isinstance(event, antiphon.Message):
            taken.append(event)
            if len(taken) == count:
                break
    return taken


async def stray(address: str, packets: list[bytes]) -> list[bytes]:
    """Send packets from a socket that belongs to no member, and give what is answered within a moment."""
    host, port = address.rsplit(":", 1)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as one:
        one.setblocking(False)
        one.bind(("127.0.0.1", 0))
        for number, packet in enumerate(packets):
            one.sendto(packet, (host, int(port)))
            if number % 50 == 49:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.3)
        answers = []
        while True:
            try:
                answers.append(one.recv(65_535))
            except BlockingIOError:
                return answers
