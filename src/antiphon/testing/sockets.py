"""Simulated UDP sockets: what a group's transport and discovery ask of a socket, on the simulated network.

A socket has a bounded queue of packets that came and were not read, as the kernel has; a process that stands still
finds there what came meanwhile. Packets that do not fit the path are refused or vanish, as on a real one.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from antiphon.live.addresses import Address
from antiphon.live.path_mtu import UDP_BYTES_MAX
from antiphon.sim.kernel import Kernel
from antiphon.testing.process import Incarnation, present_incarnation

if TYPE_CHECKING:
    from antiphon.testing.network import SimulatedNetwork

_RECEIVE_BUFFER_BYTES: Final = 8 << 20  # what live groups ask for
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_PMTUDISC_DO: Final = 2
_MTU_DISCOVER: Final = ((socket.IPPROTO_IP, 10), (socket.IPPROTO_IPV6, 23))
_MTU: Final = ((socket.IPPROTO_IP, 14), (socket.IPPROTO_IPV6, 24))
_FIRST_DESCRIPTOR: Final = 1_000_000  # beyond any real one


class Packet(bytes):
    """A packet that knows where it comes from and where it goes."""

    source: Address
    target: Address
    heard_by: SimulatedSocket | None = None  # who hears it, of those at a multicast address


class SocketReader:
    """Calls whoever listens at a socket, as long as there is something to read and its process runs."""

    def __init__(
        self, one: SimulatedSocket, incarnation: Incarnation | None, kernel: Kernel, read: Callable[[], None]
    ) -> None:
        self._socket, self._incarnation, self._kernel, self._call = one, incarnation, kernel, read
        self._due = False

    def wake(self) -> None:
        """Read now, or when the process goes on."""
        if not self._due:
            self._due = True
            one = self._incarnation
            if one is None or not (one.crashed or one.paused):  # as nearly always
                self._read()
            else:
                self._read_unless_stopped(None)

    def wake_later(self) -> None:
        """Read after what is due already."""
        if not self._due:
            self._due = True
            self._kernel.after(0, self._read_unless_stopped)

    def _read_unless_stopped(self, _: object) -> None:
        if self._incarnation is None or not self._incarnation.stops(self._read):
            self._read()

    def _read(self) -> None:
        self._due = False
        if self._socket.reader is self:
            self._call()
            if self._socket.queue:
                self.wake_later()


class SimulatedSocket:
    """One socket of a simulated host; the methods are those of `socket.socket` that live groups use."""

    def __init__(self, network: SimulatedNetwork, number: int, family: int) -> None:
        self._network, self._descriptor, self.family = network, _FIRST_DESCRIPTOR + number, family
        # None: outside any process, until it has an address
        self.incarnation: Incarnation | None = present_incarnation.get()
        self.address: Address | None = None
        self.interface = "0.0.0.0"  # of its machine, for a socket that hears a multicast address
        self.reader: SocketReader | None = None
        self.queue: deque[Packet] = deque()  # what can be read
        self._queue_bytes = 0
        self._peer: Address | None = None
        self._never_fragments = False
        self.closed = False

    def __enter__(self) -> SimulatedSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Give the number by which the loop knows it."""
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        """Take no notice: it never blocks."""

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """Set what matters here; raise where this host cannot do it."""
        if level == _SOL_UDP and option in (_UDP_SEGMENT, _UDP_GRO) and not self._network.offload:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        if (level, option) in _MTU_DISCOVER:
            self._never_fragments = value == _PMTUDISC_DO
        if level == socket.IPPROTO_IP and option == socket.IP_ADD_MEMBERSHIP:
            self.interface = socket.inet_ntoa(value[4:8])

    def getsockopt(self, level: int, option: int) -> int:
        """Give the path's MTU to whom it is connected; all else is 0."""
        if (level, option) in _MTU and self._peer is not None:
            return self._network.mtu(self._source(), self._peer)
        return 0

    def bind(self, address: Address) -> None:
        """Take an address, or raise as the kernel does."""
        self._network.bind(self, address)

    def connect(self, address: Address) -> None:
        """Choose whom to talk to."""
        self._peer = address

    def getsockname(self) -> Address:
        """Give its address."""
        return self.address or ("0.0.0.0", 0)

    def close(self) -> None:
        """Give the address back."""
        if not self.closed:
            self.closed, self.reader = True, None
            self.queue.clear()
            self._network.unbind(self)

    # Out

    def sendto(self, data: bytes, target: Address) -> int:
        """Send a packet."""
        self._send(data, target, segmented=False)
        return len(data)

    def sendmsg(self, buffers: Sequence[bytes], ancillary: Sequence[Any], flags: int, target: Address) -> int:
        """Send packets that the host cuts from one buffer."""
        data = b"".join(buffers)
        size = next((int.from_bytes(value[:2], "little") for _, kind, value in ancillary if kind == _UDP_SEGMENT), 0)
        if not size:
            self._send(data, target, segmented=False)
        for start in range(0, len(data) if size else 0, size or 1):
            self._send(data[start : start + size], target, segmented=True)
        return len(data)

    def _send(self, data: bytes, target: Address, *, segmented: bool) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if len(data) > UDP_BYTES_MAX:
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        packet = Packet(data)
        packet.source, packet.target = self._source(), target
        self._network.send(packet, whole=segmented or self._never_fragments)

    def _source(self) -> Address:
        if self.address is None:
            self._network.bind(self, ("0.0.0.0", 0))
        assert self.address is not None
        return self.address

    # In

    def arrive(self, packet: Packet) -> bool:
        """Take a packet from the network; say whether there was room."""
        queued_bytes = self._queue_bytes + len(packet)
        if queued_bytes > _RECEIVE_BUFFER_BYTES:
            return False
        self.queue.append(packet)
        self._queue_bytes = queued_bytes
        if self.reader is not None:
            self.reader.wake()
        return True

    def listen(self, reader: SocketReader | None) -> bool:
        """Let something read whenever there is something to read, or nothing; say whether something did before."""
        before, self.reader = self.reader, reader
        if reader is not None and self.queue:
            reader.wake_later()
        return before is not None

    def recvfrom(self, size: int) -> tuple[bytes, Address]:
        """Read a packet, and where it comes from."""
        if not self.queue:
            raise BlockingIOError  # without words, which nobody reads: it comes after every packet
        packet = self.queue.popleft()
        self._queue_bytes -= len(packet)
        return bytes(packet[:size]), packet.source

    def recv(self, size: int) -> bytes:
        """Read a packet."""
        return self.recvfrom(size)[0]

    def recvmsg(self, size: int, ancillary_size: int) -> tuple[bytes, list[Any], int, Address]:
        """Read a packet, never several at once."""
        data, source = self.recvfrom(size)
        return data, [], 0, source
