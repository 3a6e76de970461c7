"""UDP sockets: packets out to addresses, packets in by the dozen, with the kernel's segmentation where it has it.

Non-blocking sockets and `add_reader`, which costs a fraction of asyncio's own datagram transport. The kernel may lose
anything: what it has no room for waits here, up to a bound, then is lost.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias
from weakref import WeakSet

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, show
from antiphon.live.anomalies import Anomalies
from antiphon.live.path_mtu import UDP_BYTES_MAX, headers_of
from antiphon.live.session import SESSION_AT

PACKETS_PER_WAKE_MAX: Final = 64
_PACKETS_GATHERED_MAX: Final = 8  # a wake-up that brought fewer looks whether more have come meanwhile
WAKE_BYTES_MAX: Final = PACKETS_PER_WAKE_MAX << 16  # what is read at once at most
WAITING_PACKETS_MAX: Final = 2_048
SOCKET_BUFFER_BYTES: Final = 8 << 20
_SEGMENTS_MAX: Final = 64  # that a kernel cuts at once
READ_BYTES: Final = 65_535  # whatever comes
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SEGMENT_SIZE = struct.Struct("=H")
_SO_ATTACH_FILTER, _BPF_LOAD, _BPF_IF_EQUAL, _BPF_RETURN = 26, 0x20, 0x15, 0x06
_BPF_INSTRUCTION, _BPF_PROGRAM = struct.Struct("=HBBI"), struct.Struct("@HP")
_UDP_HEADER_BYTES: Final = 8
_IP_MTU_DISCOVER, _IP_MTU, _IPV6_MTU_DISCOVER, _IPV6_MTU, _PMTUDISC_DO = 10, 14, 23, 24, 2

MakeSocket: TypeAlias = Callable[[int], socket.socket]  # of a family; a simulated host's look the same
# takes packets, and where each is from if asked for; says whether something is to be sent because of them
Arrived: TypeAlias = Callable[[list[bytes], list[Address] | None], bool]


_open: WeakSet[socket.socket] = WeakSet()


def udp_socket(family: int) -> socket.socket:
    """Ask the kernel for a UDP socket."""
    one = socket.socket(family, socket.SOCK_DGRAM)
    _open.add(one)
    return one


def _let_go_in_a_child() -> None:
    """Close a forked child's copies: it is no member, and would keep the address when its parent has died.

    If it sent in its parent's session, two packets would have the same nonce.
    """
    for one in list(_open):
        one.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_a_child)


class Port:
    """The sockets of one member: its own and, where it hears a multicast address, a second one."""

    def __init__(
        self,
        bind: Address,
        multicast: Address | None,
        *,
        session: int,
        ttl: int,
        offload: bool | None,
        sources: bool,
        make_socket: MakeSocket,
        anomalies: Anomalies,
    ) -> None:
        """Open the sockets; `session`: the number in one's own packets; `sources`: say where each comes from."""
        self.socket = open_socket(bind, make_socket)
        _never_fragment(self.socket)
        self._sockets, self._make_socket = [self.socket], make_socket
        if multicast is not None:
            self._sockets.append(open_multicast(multicast, self.socket, ttl, make_socket))
            _refuse_own(self._sockets[-1], session)
        wanted = offload is not False
        self.segments = wanted and all(_can(one, _UDP_SEGMENT, 0) for one in self._sockets)
        self.gathers = wanted and all(_can(one, _UDP_GRO, 1) for one in self._sockets)
        self._sources = sources
        self._waiting: deque[tuple[bytes, int, Address]] = deque()  # (packets, size of each, to): no room in the kernel
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_open = False  # whether packets come and go
        self._arrived: Arrived = lambda packets, sources: False
        self._over: Callable[[], None] = lambda: None
        self._anomalies = anomalies
        self.emptied = True  # whether the last read left nothing in the kernel
        self._unsegmented: dict[Address, int] = {}  # ways out that do not cut packets of this size, or larger
        self.too_large: Callable[[Address, int], None] = lambda target, size: None  # is told what does not fit

    def start(self, loop: asyncio.AbstractEventLoop, arrived: Arrived, over: Callable[[], None]) -> None:
        """Begin to listen; `arrived` is given what was read, and `over` called after the last of a wake-up."""
        self._loop, self._arrived, self._over, self.is_open = loop, arrived, over, True
        for one in self._sockets:
            loop.add_reader(one.fileno(), self._read, one)

    def close(self) -> None:
        """Stop listening, give the address back."""
        for one in self._sockets:
            if self._loop is not None:
                self._loop.remove_reader(one.fileno())
                self._loop.remove_writer(one.fileno())
            one.close()
        self._sockets, self._loop, self.is_open = [], None, False

    # Out

    def send(self, packets: Sequence[bytes], targets: Sequence[Address]) -> None:
        """Send each packet to each target."""
        if self.segments:
            for run, size in runs(packets):
                for target in targets:
                    self._send(run, size, target)
            return
        sendto = self.socket.sendto
        for packet in packets:
            for target in targets:
                if not self._waiting:
                    try:
                        sendto(packet, target)
                        continue
                    except OSError:
                        pass  # what is wrong will be seen again
                self._send(packet, len(packet), target)

    def _send(self, run: bytes, size: int, target: Address) -> None:
        if self._waiting or not self._send_now(run, size, target):
            if len(self._waiting) == WAITING_PACKETS_MAX:
                self._anomalies.note("packets-overflowed", "the kernel takes them too slowly")
                return
            if not self._waiting and self._loop is not None:
                self._loop.add_writer(self.socket.fileno(), self._send_waiting)
            self._waiting.append((run, size, target))

    def _send_now(self, run: bytes, size: int, target: Address) -> bool:
        """Give packets to the kernel; say whether it took them, or never will."""
        try:
            if len(run) == size:
                self.socket.sendto(run, target)
            elif self.segments_to(target, size):
                self.socket.sendmsg([run], [(_SOL_UDP, _UDP_SEGMENT, _SEGMENT_SIZE.pack(size))], 0, target)
            else:
                for start in range(0, len(run), size):
                    self.socket.sendto(run[start : start + size], target)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                self.too_large(target, size)  # given up, as if it were lost: the next ones are smaller
                return True
            cannot = error.errno in (errno.EIO, errno.EINVAL, errno.ENOTSUP)
            if cannot and len(run) > size and self.segments_to(target, size):
                self._unsegmented[target] = size
                self._anomalies.note("offload-refused", f"to {show(target)}: {error.strerror}")
                return self._send_now(run, size, target)
            self._anomalies.note("packets-unsendable", f"to {show(target)}: {error.strerror}")
        return True

    def segments_to(self, target: Address, size: int) -> bool:
        """Return whether the kernel cuts packets of this size to an address."""
        return self.segments and size < self._unsegmented.get(target, READ_BYTES)

    def path_bytes(self, target: Address) -> int:
        """Ask the kernel how large a packet to an address may be, without its headers; 0 if it does not know."""
        six = ":" in target[0]
        try:
            with self._make_socket(socket.AF_INET6 if six else socket.AF_INET) as way:
                way.connect(target)  # sends nothing, but chooses the way
                level, option = (socket.IPPROTO_IPV6, _IPV6_MTU) if six else (socket.IPPROTO_IP, _IP_MTU)
                return max(0, way.getsockopt(level, option) - headers_of(target[0]))
        except OSError:
            return 0

    def _send_waiting(self) -> None:
        while self._waiting and self._send_now(*self._waiting[0]):
            self._waiting.popleft()
        if not self._waiting and self._loop is not None:
            self._loop.remove_writer(self.socket.fileno())

    # In

    def read(self) -> None:
        """Read what has come, without waiting to be told that something has."""
        for one in list(self._sockets):
            if self._loop is not None:
                self._read(one)

    def _read(self, one: socket.socket) -> None:
        """Read and hand over packets until no more come, so that the answers to all of them share packets."""
        taken, answers = 0, True
        while self.is_open and answers and taken < _PACKETS_GATHERED_MAX:
            packets: list[bytes] = []
            sources: list[Address] | None = [] if self._sources else None
            self.emptied = False
            try:
                if self.gathers:
                    self._read_gathered(one, packets, sources)
                elif sources is None:
                    receive, put = one.recv, packets.append
                    for _ in range(PACKETS_PER_WAKE_MAX):
                        put(receive(READ_BYTES))
                else:
                    for _ in range(PACKETS_PER_WAKE_MAX):
                        data, source = one.recvfrom(READ_BYTES)
                        packets.append(data)
                        sources.append(source[:2])
            except (BlockingIOError, InterruptedError):
                self.emptied = True
            except OSError as error:
                self._anomalies.note("receive-errors", error.strerror or "")
            if not packets:
                break
            taken += len(packets)
            answers = self._arrived(packets, sources)
        if taken:
            self._over()

    def _read_gathered(self, one: socket.socket, packets: list[bytes], sources: list[Address] | None) -> None:
        """Read packets that the kernel put together, and cut them again."""
        for _ in range(PACKETS_PER_WAKE_MAX):
            data, about, _, source = one.recvmsg(READ_BYTES, 64)
            size = int.from_bytes(about[0][2][:2], "little") if about else 0
            cut = [data[start : start + size] for start in range(0, len(data), size)] if size else [data]
            packets += cut
            if sources is not None:
                sources += [source[:2]] * len(cut)


def runs(packets: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """Join packets that the kernel can cut again: all of one size, only the last one smaller."""
    joined: list[tuple[bytes, int]] = []
    start = 0
    while start < len(packets):
        size, end = len(packets[start]), start + 1
        last = start + min(_SEGMENTS_MAX, UDP_BYTES_MAX // size)
        while end < min(last, len(packets)) and len(packets[end - 1]) == size >= len(packets[end]):
            end += 1
        joined.append((b"".join(packets[start:end]), size))
        start = end
    return joined


def open_socket(bind: Address, make_socket: MakeSocket = udp_socket) -> socket.socket:
    """Open a socket at an address, or say why that cannot be."""
    family = socket.AF_INET6 if ":" in bind[0] else socket.AF_INET
    one = make_socket(family)
    try:
        one.setblocking(False)
        for force, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
            try:
                one.setsockopt(socket.SOL_SOCKET, force, SOCKET_BUFFER_BYTES)
            except OSError:  # only the privileged may go beyond the system's limit
                one.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER_BYTES)
        one.bind(bind)
    except OSError as error:
        one.close()
        remedy = {
            errno.EADDRINUSE: "is in use; another member has this name, or give another port",
            errno.EADDRNOTAVAIL: "is no address of this machine; bind one of its own",
            errno.EACCES: "is not allowed; take a port above 1023",
        }.get(error.errno or 0, f"cannot be used ({error.strerror})")
        raise UsageError(f"bind: {show(bind)} {remedy}") from None
    return one


def open_multicast(
    group: Address, sender: socket.socket, ttl: int, make_socket: MakeSocket = udp_socket, what: str = "multicast"
) -> socket.socket:
    """Open a second socket that hears the multicast address, on the interface of the first."""
    host = sender.getsockname()[0]
    one = make_socket(socket.AF_INET)
    try:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        one.bind(group)
        interface = socket.inet_aton(host)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + interface)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
    except OSError as error:
        one.close()
        sender.close()
        raise UsageError(
            f"{what}: {show(group)} cannot be used on {host} ({error.strerror}); give an IPv4 group of "
            f"239.0.0.0/8 and bind an address of an interface that has multicast"
        ) from None
    return one


def _refuse_own(one: socket.socket, session: int) -> None:
    """Ask the kernel to drop the packets of one's own session, which a multicast brings back: they wake nobody then."""
    high, low = divmod(session, 1 << 32)
    at = _UDP_HEADER_BYTES + SESSION_AT
    program = [  # classic BPF: (code, how far to go on if true, if false, operand)
        (_BPF_LOAD, 0, 0, at),
        (_BPF_IF_EQUAL, 0, 3, high),
        (_BPF_LOAD, 0, 0, at + 4),
        (_BPF_IF_EQUAL, 0, 1, low),
        (_BPF_RETURN, 0, 0, 0),
        (_BPF_RETURN, 0, 0, READ_BYTES + _UDP_HEADER_BYTES),
    ]
    code = ctypes.create_string_buffer(b"".join(_BPF_INSTRUCTION.pack(*step) for step in program))
    with suppress(OSError):  # where it is not known, they are read and left out
        one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _BPF_PROGRAM.pack(len(program), ctypes.addressof(code)))


def _never_fragment(one: socket.socket) -> None:
    """Ask the kernel to refuse packets that do not fit the path, rather than to send IP fragments of them."""
    with suppress(OSError):
        if one.family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
        else:
            one.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)


def _can(one: socket.socket, option: int, value: int) -> bool:
    try:
        one.setsockopt(_SOL_UDP, option, value)
    except OSError:
        return False
    return True
