"""What a group asks of the host that it runs on: a clock, chance, a network, a disk, and a place for its trace.

A loop may bring a host of its own, as the simulated ones of `antiphon.testing` do; all above is the same code.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from antiphon.live.addresses import Address
from antiphon.live.driver import Clock
from antiphon.live.recording import Origin
from antiphon.live.security import Envelope
from antiphon.live.transport import Transport
from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.process import Journal

if TYPE_CHECKING:
    from antiphon.live.group import Group


class Carrier(Protocol):
    """Packets' way in and out, as a driver and a group use it."""

    counts: Counter[str]
    lose: Callable[[bytes], bool] | None  # a test's network: says which packets never arrive

    @property
    def broken(self) -> int:
        """How many datagrams were begun and never became whole, or made no sense."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen."""

    def close(self) -> None:
        """Stop listening, give the address back."""

    def know(self, name: int, address: Address) -> None:
        """Learn where a member is."""

    def queue(self, to: tuple[int, ...] | None, datagram: bytes) -> None:
        """Take a protocol datagram for the next flush."""

    def flush(self) -> None:
        """Send all that was queued."""


class Host(Protocol):
    """Where a member runs."""

    def clock(self) -> Callable[[], Instant]:
        """Give the clock that a new member reads."""

    def seed(self) -> int:
        """Draw the seed of a member's randomness."""

    def carrier(
        self,
        group: Group,
        me: int,
        addresses: Mapping[int, Address],
        envelope: Envelope,
        *,
        bind: Address,
        multicast: Address | None,
        ttl: int,
        offload: bool | None,
        receive: Callable[[list[bytes]], None],
    ) -> Carrier:
        """Open a member's way to the network."""

    def read(self, path: Path) -> bytes:
        """Read a small file that was written here before; raise as `Path.read_bytes` does."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a small file so that it is either the old or the new one, whatever happens."""

    def journals(self, group: Group, origin: Origin) -> Callable[[int], Journal] | None:
        """Give what keeps the traces of a member's lives, if this host does so by itself."""


class ThisHost:
    """The machine that the program runs on."""

    def clock(self) -> Callable[[], Instant]:
        """Give the wall clock, as it was at the start, and the monotonic one since."""
        return Clock()

    def seed(self) -> int:
        """Ask the operating system."""
        return int.from_bytes(os.urandom(8), "big")

    def carrier(
        self,
        group: Group,
        me: int,
        addresses: Mapping[int, Address],
        envelope: Envelope,
        *,
        bind: Address,
        multicast: Address | None,
        ttl: int,
        offload: bool | None,
        receive: Callable[[list[bytes]], None],
    ) -> Carrier:
        """Open a UDP socket."""
        return Transport(
            me, addresses, envelope, bind=bind, multicast=multicast, ttl=ttl, offload=offload, receive=receive
        )

    def read(self, path: Path) -> bytes:
        """Read a file."""
        return path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        """Write beside the old file, to the disk, and then in its place."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)

    def journals(self, group: Group, origin: Origin) -> None:
        """Leave traces to whoever asks for them."""


_THIS = ThisHost()


def host_of(loop: asyncio.AbstractEventLoop) -> Host:
    """Give the host that a loop brings, or else this machine."""
    return cast(Host, getattr(loop, "antiphon_host", _THIS))
