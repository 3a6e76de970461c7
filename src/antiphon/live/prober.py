"""Asks on every path how large packets may be: the packets and the timer around `path_mtu`.

A packet that asks begins with a number, which its acknowledgment repeats; behind it comes an ordinary body, or
padding.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from antiphon.live.addresses import Address, show
from antiphon.live.anomalies import Anomalies
from antiphon.live.path_mtu import MTU_BASE, UDP_BYTES_MAX, PathMtu, headers_of

PROBE, PROBED, _PADDING = 6, 7, 8  # first byte of a body; 0 to 3 are those of `packets`, 4 and 5 of `handshake`
_HEADER: Final = struct.Struct("<BI")  # kind, number
PROBE_BYTES: Final = _HEADER.size  # what a packet has more that asks to be acknowledged
_NUMBERS: Final = 2**32


class Prober:
    """The paths from here to each address."""

    def __init__(
        self,
        overhead: int,
        send: Callable[[Address, bytes], None],
        limit: Callable[[Address], int],
        anomalies: Anomalies,
    ) -> None:
        """`send` seals a body, which adds `overhead`; `limit` says what the way out to an address takes, if known."""
        self._overhead, self._send, self._limit, self._anomalies = overhead, send, limit, anomalies
        self._paths: dict[Address, PathMtu] = {}
        self._numbers = itertools.count(random.getrandbits(32))
        self._timer: asyncio.TimerHandle | None = None
        self.asked = 0  # packets that asked and had nothing else to say
        self.least = MTU_BASE - headers_of("::")  # no path has less, as far as is known

    def path_to(self, address: Address) -> PathMtu:
        """Return what is known of the path to an address."""
        path = self._paths.get(address)
        if path is None:

            def vanished(size: int) -> None:
                self._anomalies.note(
                    "packets-vanished", f"{size} bytes to {show(address)}; smaller ones from now on, until larger fit"
                )

            path = PathMtu(headers_of(address[0]), lambda: next(self._numbers) % _NUMBERS, vanished)
            self._paths[address] = path
        return path

    def forget(self, address: Address) -> None:
        """Drop what is known of a path that nobody goes any more."""
        self._paths.pop(address, None)

    def close(self) -> None:
        """Ask nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    # What goes out

    def sizes(self, targets: Iterable[Address]) -> dict[int, list[Address]]:
        """Part the receivers of something large by how large packets to them may be; see whether larger ones fit."""
        now = time.monotonic_ns()
        by_size: dict[int, list[Address]] = {}
        for target in targets:
            path = self.path_to(target)
            if path.may_look(now):
                path.look(self._limit(target) or UDP_BYTES_MAX, now)
                self._set_timer(now)
            by_size.setdefault(path.size, []).append(target)
        return by_size

    def size_to_all(self, multicast: Address, targets: Iterable[Address]) -> int:
        """Return how large packets to a multicast address may be that all these receivers should hear."""
        if multicast not in self._paths:
            self.path_to(multicast).trust(self._limit(multicast) or UDP_BYTES_MAX)
        return min([self._paths[multicast].size, *self.sizes(targets)])

    def let_ask(self, bodies: list[bytes], targets: Sequence[Address]) -> int | None:
        """Let the largest of these bodies ask its receivers to acknowledge it, where that is due; return which asks."""
        now = time.monotonic_ns()
        index = max(range(len(bodies)), key=lambda index: len(bodies[index]))
        size = len(bodies[index]) + PROBE_BYTES + self._overhead
        due = [path for path in map(self.path_to, targets) if path.must_confirm(size, now)]
        if not due:
            return None
        number = next(self._numbers) % _NUMBERS
        bodies[index] = _HEADER.pack(PROBE, number) + bodies[index]
        for path in due:
            path.confirm(number, size, now)
        self._set_timer(now)
        return index

    def refused(self, target: Address, size: int) -> None:
        """Hear that the way out does not take packets of this size."""
        path, now = self.path_to(target), time.monotonic_ns()
        is_known = size <= path.size
        path.refused(size, self._limit(target), now)
        self.least = min(self.least, path.size)
        if is_known:
            self._anomalies.note(
                "packets-too-large", f"{size} bytes to {show(target)}; they have at most {path.size} from now on"
            )
        self._set_timer(now)

    def _ask(self) -> None:
        """Send the questions that are due."""
        self._timer, now = None, time.monotonic_ns()
        for address, path in list(self._paths.items()):
            for number, size in path.probes(now):
                head = _HEADER.pack(PROBE, number) + bytes([_PADDING])
                self.asked += 1
                self._send(address, head.ljust(size - self._overhead, b"\0"))
        self._set_timer(now)

    def _set_timer(self, now: int) -> None:
        deadlines = [path.deadline for path in self._paths.values() if path.deadline is not None]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadlines:
            pause_ns = max(0, min(deadlines) - now)
            self._timer = asyncio.get_running_loop().call_later(pause_ns / 1e9, self._ask)

    # What comes in

    def take(self, source: Address, body: bytes) -> bytes:
        """Take a question, and return the body behind it, or the answer to one, behind which there is nothing."""
        if len(body) < PROBE_BYTES:
            return b""
        kind, number = _HEADER.unpack_from(body)
        if kind == PROBED:
            now = time.monotonic_ns()
            self.path_to(source).acknowledged(number, now)
            self._set_timer(now)
            return b""
        self._send(source, _HEADER.pack(PROBED, number))
        behind = body[PROBE_BYTES:]
        return b"" if behind[:1] in (b"", bytes([_PADDING]), bytes([PROBE])) else behind
