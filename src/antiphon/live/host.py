"""What a group asks of the host that it runs on: a clock, chance, a network, a disk, and a place for its trace.

A loop may bring a host of its own, as the simulated ones of `antiphon.testing` do; all above is the same code.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from antiphon.live.driver import Clock
from antiphon.live.recording import Origin
from antiphon.live.slots import content_of, overwrite
from antiphon.live.sockets import udp_socket
from antiphon.live.storage import Disk
from antiphon.protocol.machine import Instant
from antiphon.trace.log import IncarnationLog

if TYPE_CHECKING:
    from antiphon.live.group import Group


class Host(Disk, Protocol):
    """Where a member runs."""

    def clock(self) -> Callable[[], Instant]:
        """Return the clock that a new member reads."""

    def seed(self) -> int:
        """Draw the seed of a member's randomness."""

    def socket(self, family: int) -> socket.socket:
        """Make a UDP socket, or what has the methods of one and can be given to the loop's `add_reader`."""

    def worker(self) -> Executor:
        """Return what does one thing after the other where that does not keep the loop from going on."""

    def journals(
        self, group: Group | None, origin: Origin, names: Mapping[int, str], own: str
    ) -> Callable[[int], IncarnationLog] | None:
        """Return what keeps the traces of a member's incarnations, if this host does so; `own` is its address.

        `group` is None where the member there has given its group up, and joins another of the same name.
        """


class ThisHost:
    """The machine that the program runs on."""

    def clock(self) -> Callable[[], Instant]:
        """Return the wall clock, as it was at the start, and the monotonic one since."""
        return Clock()

    def seed(self) -> int:
        """Ask the operating system."""
        return int.from_bytes(os.urandom(8), "big")

    def socket(self, family: int) -> socket.socket:
        """Ask the kernel for a UDP socket."""
        return udp_socket(family)

    def read(self, path: Path) -> bytes:
        """Read a file."""
        return content_of(path.read_bytes())

    def write(self, path: Path, content: bytes, *, may_wait: bool = False) -> None:
        """Write a file in place."""
        overwrite(path, content, may_wait=may_wait)

    def worker(self) -> Executor:
        """Return a thread, which is started when there is something to do."""
        return ThreadPoolExecutor(1, "antiphon-worker")

    def journals(self, group: Group | None, origin: Origin, names: Mapping[int, str], own: str) -> None:
        """Leave traces to whoever asks for them."""


_THIS = ThisHost()


def host_of(loop: asyncio.AbstractEventLoop) -> Host:
    """Return the host that a loop brings, or else this machine."""
    return cast(Host, getattr(loop, "antiphon_host", _THIS))
