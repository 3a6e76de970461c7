"""Names and addresses of members: `host:port` in, sockets' addresses out, and a number for each name.

A name stays when the address changes. In a list of peers a member's name is its entry, as it is written there, and its
number is the entry's place in the sorted list; so every member must be given the same entries. Where members find each
other, a name is given or kept, and its number is made from it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, TypeAlias
from zlib import crc32

from antiphon.errors import UsageError
from antiphon.protocol.membership.views import NAMES_MAX

Address: TypeAlias = tuple[str, int]  # numeric host and port
NAME_LENGTH_MAX: Final = 64


def parse(text: str, what: str, *, port_min: int = 1) -> Address:
    """Split `host:port` or `[host]:port`; the host may be a name. Port 0 (any free port) is refused unless allowed."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not port_min <= int(port) < 65_536:
        raise UsageError(f"{what}: {text!r} is no address; write host:port, for instance 127.0.0.1:7001")
    if not is_numeric(host):
        try:
            if not host.isprintable() or " " in host:
                raise UnicodeError
            host.encode("idna")
        except UnicodeError:
            raise UsageError(
                f"{what}: {text!r} has no host name; its parts have 1 to 63 characters, as in a.example"
            ) from None
    return host, int(port)


@lru_cache(maxsize=1_024)
def is_numeric(host: str) -> bool:
    """Say whether a host is a numeric address, which needs no look-up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1_024)
def is_reachable(host: str) -> bool:
    """Say whether a host can be one member's address: not a wildcard and not a multicast address."""
    if not is_numeric(host):
        return True  # where hosts are simulated, a name is an address
    one = ip_address(host)
    return not (one.is_unspecified or one.is_multicast)


async def look_up(host: str, port: int) -> list[Address]:
    """Find all numeric addresses of a host, or raise `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    return list(dict.fromkeys((str(one[4][0]), int(one[4][1])) for one in found))


async def resolve(text: str, what: str) -> Address:
    """Find the numeric address of `host:port`, or say whose name is unknown."""
    try:
        return (await look_up(*parse(text, what)))[0]
    except OSError as error:
        raise UsageError(f"{what}: {text!r} cannot be resolved ({error.strerror}); give a known host") from None


def show(address: Address) -> str:
    """Write an address as it is written in a peer list."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@lru_cache(maxsize=1_024)
def number_of(name: str) -> int:
    """Give the number of a name: neighbours on one port, ports of one host, and names that differ in the number at
    their end alone, all have different ones.
    """
    try:
        host, port = parse(name, "name")
        return (int(ip_address(host)) * 613 + port) % NAMES_MAX  # 613 and 10,000 have no common factor
    except (UsageError, ValueError):
        match = re.search(r"[0-9]*$", name)
        assert match is not None
        return (crc32(name[: match.start()].encode()) + int(match[0] or 0)) % NAMES_MAX


def entry_of(text: str, what: str) -> str:
    """Return an address as it stands in every member's sorted list, whichever way it is written."""
    host, port = parse(text, what)
    if host.lower() == "localhost":
        host = "127.0.0.1"
    return show((str(ip_address(host)) if is_numeric(host) else host.lower().removesuffix("."), port))


def entries_of(own: str, peers: Sequence[str]) -> tuple[str, list[str]]:
    """Return a member's own entry and the sorted list of all, or say what is wrong with it."""
    me, others = entry_of(own, "bind"), [entry_of(peer, "peers") for peer in peers]
    entries = sorted({me, *others}, key=lambda entry: parse(entry, "peers"))
    if len(entries) < len(others) + (me not in others):
        twice = next(peer for peer, entry in zip(peers, others, strict=True) if others.count(entry) > 1)
        raise UsageError(f"peers: {twice!r} is given twice; two members cannot have one name")
    return me, entries
