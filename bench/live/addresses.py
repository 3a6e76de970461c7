"""Addresses for members on this machine, and a group of them in one process."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import antiphon


def free_addresses(count: int) -> list[str]:
    """Find UDP ports of the loopback address that nobody uses now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


@asynccontextmanager
async def group_here(members: int, ordering: str) -> AsyncIterator[list[antiphon.Group]]:
    """A whole group in this process, encrypted, by its members; stopped at the end."""
    addresses, key = free_addresses(members), os.urandom(16)
    with tempfile.TemporaryDirectory() as state:
        groups = [
            antiphon.join(
                "here",
                bind=own,
                peers=[peer for peer in addresses if peer != own],
                ordering=ordering,
                key=key,
                offload=False,
                state=Path(state),
            )
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        yield groups
        await asyncio.gather(*(group.stop() for group in groups))
