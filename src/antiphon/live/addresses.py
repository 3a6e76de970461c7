"""Addresses of members: `host:port` in, sockets' addresses out, and the same list in the same order everywhere.

A member's name is its place in the sorted list of all addresses, so every member must be given the same ones.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TypeAlias

from antiphon.errors import UsageError

Address: TypeAlias = tuple[str, int]  # numeric host and port


def parse(text: str, what: str, *, port_min: int = 1) -> Address:
    """Split `host:port` or `[host]:port`; the host may be a name. Port 0, any free one, only where it is asked for."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not port_min <= int(port) < 65_536:
        raise UsageError(f"{what}: {text!r} is no address; write host:port, for instance 127.0.0.1:7001")
    return host, int(port)


async def resolve(text: str, what: str) -> Address:
    """Find the numeric address of `host:port`, or say whose name is unknown."""
    host, port = parse(text, what)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise UsageError(f"{what}: {text!r} cannot be resolved ({error.strerror}); give a known host") from None
    return str(found[0][4][0]), int(found[0][4][1])


async def resolve_group(own: str, peers: Sequence[str]) -> tuple[int, list[Address]]:
    """Give a member's own name and everyone's address by name."""
    me = await resolve(own, "bind")
    others = [await resolve(peer, "peers") for peer in peers]
    addresses = sorted({me, *others})
    if len(addresses) < len(others) + (me not in others):
        twice = next(peer for peer, address in zip(peers, others, strict=True) if others.count(address) > 1)
        raise UsageError(f"peers: {twice!r} is given twice; two members cannot have one name")
    if len({":" in host for host, _ in addresses}) > 1:
        raise UsageError("peers: IPv4 and IPv6 addresses are mixed; one socket serves one family")
    return addresses.index(me), addresses


def show(address: Address) -> str:
    """Write an address as it is written in a peer list."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
