"""UDP: packets out to all receivers, packets in by the dozen, with the kernel's segmentation where it has it.

One non-blocking socket and `add_reader`, which costs a fraction of asyncio's own datagram transport. What one turn of
the loop sends is gathered, shared out to packets per set of receivers, sealed once and sent to each of them, or once
to a multicast address. The kernel may lose anything: what it has no room for waits here, up to a bound, then is lost.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, show
from antiphon.live.burst import ASK_NS, Cutter
from antiphon.live.namesake import ANSWER_S, QUESTIONS, Namesake
from antiphon.live.security import Envelope, OpenEnvelope, Refused

PACKET_BYTES: Final = 1_400
HELLO: Final = 3  # first byte of packets that are no envelope's
_HELLO_KIND: Final = bytes([HELLO])
PACKETS_PER_WAKE_MAX: Final = 64
WAITING_PACKETS_MAX: Final = 2_048
SOCKET_BUFFER_BYTES: Final = 8 << 20
_SEGMENTS_MAX: Final = 44  # of 1,400 bytes, in one datagram of at most 65,507
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SEGMENT_SIZE = struct.Struct("=H")

MakeSocket: TypeAlias = Callable[[int], socket.socket]  # of a family; a simulated host's look the same


def udp_socket(family: int) -> socket.socket:
    """Ask the kernel for a UDP socket."""
    return socket.socket(family, socket.SOCK_DGRAM)


class Transport:
    """The packets of one member."""

    def __init__(
        self,
        me: int,
        addresses: Mapping[int, Address],
        envelope: Envelope,
        *,
        bind: Address | None = None,
        multicast: Address | None = None,
        ttl: int = 1,
        offload: bool | None = None,
        receive: Callable[[list[bytes]], None],
        make_socket: MakeSocket = udp_socket,
    ) -> None:
        """Open the socket; `receive` is given the protocol datagrams that one wake-up completed."""
        self._me, self._addresses, self._envelope, self._receive = me, dict(addresses), envelope, receive
        self._names = {address: name for name, address in addresses.items()}
        self._checks_source = isinstance(envelope, OpenEnvelope)
        self._others = tuple(name for name in addresses if name != me)
        self._multicast = multicast
        self._cutter = Cutter(PACKET_BYTES - envelope.overhead, random.getrandbits(32))
        self._outbox: dict[tuple[int, ...], list[bytes]] = {}
        self._waiting: deque[tuple[bytes, int, Address]] = deque()  # (packets, size of each, to): no room in the kernel
        self.counts: Counter[str] = Counter()
        self.lose: Callable[[bytes], bool] | None = None  # a test's network: says which packets never arrive
        self.hello: Callable[[bytes], None] | None = None  # takes packets of those who look for the group
        self._bound = bind or addresses[me]
        self._namesake = Namesake(random.randbytes(8), make_socket)
        self._socket = open_socket(self._bound, make_socket)
        self._sockets = [self._socket]
        if multicast is not None:
            self._sockets.append(open_multicast(multicast, self._socket, ttl, make_socket))
        wanted = offload is not False
        self.segments = wanted and all(_can(one, _UDP_SEGMENT, 0) for one in self._sockets)
        self.gathers = wanted and all(_can(one, _UDP_GRO, 1) for one in self._sockets)
        self._plain = not self.gathers and not self._checks_source
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._now = 0
        self._emptied = True  # whether the last read left nothing in the kernel

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen."""
        self._loop = loop
        for one in self._sockets:
            loop.add_reader(one.fileno(), self._read, one)

    def close(self) -> None:
        """Stop listening, give the address back."""
        if self._asking is not None:
            self._asking.cancel()
        for one in self._sockets:
            if self._loop is not None:
                self._loop.remove_reader(one.fileno())
                self._loop.remove_writer(one.fileno())
            one.close()
        self._sockets, self._loop = [], None

    def know(self, name: int, address: Address) -> None:
        """Learn where a member is."""
        self._addresses[name] = address
        self._names[address] = name

    @property
    def broken(self) -> int:
        """How many datagrams were begun and never became whole, or made no sense."""
        return self._cutter.abandoned

    # Out

    def queue(self, to: tuple[int, ...] | None, datagram: bytes) -> None:
        """Take a protocol datagram for the next flush."""
        receivers = self._others if to is None else to
        self._outbox.setdefault(receivers, []).append(datagram)

    def flush(self) -> None:
        """Send all that was queued."""
        if not self._outbox or self._loop is None:
            return
        outbox, self._outbox = self._outbox, {}
        if len(outbox) > 1 and self._multicast is None:
            outbox = _together(outbox, PACKET_BYTES // 2)
        for to, datagrams in outbox.items():
            packets = [self._envelope.seal(body) for body in self._cutter.cut(datagrams)]
            if self._multicast is not None and len(to) > 1:
                targets = [self._multicast]
            else:
                targets = [self._addresses[name] for name in to if name in self._addresses]
            if self.segments:
                for run, size in _runs(packets):
                    for target in targets:
                        self._send(run, size, target)
            else:
                self._send_each(packets, targets)
            self.counts["packets-sent"] += len(packets) * len(targets)

    def _send_each(self, packets: list[bytes], targets: list[Address]) -> None:
        """Give packets to the kernel one by one: by far the most frequent way, so with little around it."""
        sendto = self._socket.sendto
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
                self.counts["packets-overflowed"] += 1
                return
            if not self._waiting and self._loop is not None:
                self._loop.add_writer(self._socket.fileno(), self._send_waiting)
            self._waiting.append((run, size, target))

    def _send_now(self, run: bytes, size: int, target: Address) -> bool:
        """Give packets to the kernel; say whether it took them, or never will."""
        try:
            if len(run) == size:
                self._socket.sendto(run, target)
            elif self.segments:
                self._socket.sendmsg([run], [(_SOL_UDP, _UDP_SEGMENT, _SEGMENT_SIZE.pack(size))], 0, target)
            else:
                for start in range(0, len(run), size):
                    self._socket.sendto(run[start : start + size], target)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if len(run) > size and self.segments and error.errno in (errno.EIO, errno.EINVAL, errno.ENOTSUP):
                self.segments = False  # this way out cannot do it
                return self._send_now(run, size, target)
            self.counts["packets-unsendable"] += 1
        return True

    def _send_waiting(self) -> None:
        while self._waiting and self._send_now(*self._waiting[0]):
            self._waiting.popleft()
        if not self._waiting and self._loop is not None:
            self._loop.remove_writer(self._socket.fileno())

    # In

    def _read(self, one: socket.socket) -> None:
        complete: list[bytes] = []
        self._now = time.monotonic_ns()
        self._emptied = False
        receive, take = one.recv, self._take
        try:
            for _ in range(PACKETS_PER_WAKE_MAX):
                if self._plain:
                    take(receive(PACKET_BYTES + 1), None, complete)
                    continue
                if self.gathers:
                    data, about, _, source = one.recvmsg(65_535, 64)
                    size = int.from_bytes(about[0][2][:2], "little") if about else 0
                    if 0 < size < len(data):
                        for start in range(0, len(data), size):
                            self._take(data[start : start + size], source, complete)
                        continue
                else:
                    data, source = one.recvfrom(PACKET_BYTES + 1)
                self._take(data, source, complete)
        except (BlockingIOError, InterruptedError):
            self._emptied = True
        except OSError:
            self.counts["receive-errors"] += 1
        if self._cutter.answers:
            answers, self._cutter.answers = self._cutter.answers, []
            self._send_bodies(answers)
        if self._asking is None and self._loop is not None and self._cutter.waits:
            self._asking = self._loop.call_later(ASK_NS / 1e9, self._ask)
        if complete:
            self._receive(complete)

    def _ask(self) -> None:
        """Ask for the pieces that are missing, as long as there are any."""
        self._asking = None
        if self._loop is None:
            return
        for one in self._sockets:
            self._read(one)  # what is missing may have come while the loop was busy
            if self._loop is None:
                return
        if self._emptied:
            self._send_bodies(self._cutter.asks(self._now))
        if self._cutter.waits and self._asking is None:
            self._asking = self._loop.call_later(ASK_NS / 1e9, self._ask)

    def _send_bodies(self, bodies: list[tuple[int, bytes]]) -> None:
        for name, body in bodies:
            packet = self._envelope.seal(body)
            self._send(packet, len(packet), self._addresses[name])
        self.counts["pieces-again"] += len(bodies)

    # Whose name it is

    async def name_is_taken(self) -> bool:
        """Ask at one's own address whether another member lives there, before the others hear of this one."""
        for _ in range(QUESTIONS):
            packet = self._envelope.seal(self._namesake.question(self._bound, self._addresses[self._me]))
            self._send(packet, len(packet), self._addresses[self._me])
            await asyncio.sleep(ANSWER_S)
            if self._namesake.exists:
                return True
        return False

    def _hear_own_name(self, body: bytes, source: tuple[str, int] | None) -> None:
        answer = self._namesake.hear(body, None if source is None else (source[0], source[1]))
        if answer is not None:
            packet = self._envelope.seal(answer[1])
            self._send(packet, len(packet), answer[0])

    def _take(self, packet: bytes, source: tuple[str, int] | None, complete: list[bytes]) -> None:
        """Open a packet; `source` is known where it is all that speaks for the sender."""
        if self.lose is not None and self.lose(packet):
            return
        self.counts["packets-received"] += 1
        try:
            sender, body = self._envelope.open(packet)
            if sender == self._me:
                self._hear_own_name(body, source)  # a multicast that comes back, or another who has our name
                raise Refused("own-name")
            if self._checks_source and (source is None or self._names.get((source[0], source[1]), -1) != sender):
                raise Refused("unknown-source")
            if sender not in self._addresses:
                raise Refused("unknown-sender")
        except Refused as refused:
            if self.hello is not None and packet[:1] == _HELLO_KIND:
                self.hello(packet)
            else:
                self.counts["refused-" + refused.reason] += 1
            return
        complete += self._cutter.join(sender, body, self._now)


def _together(outbox: dict[tuple[int, ...], list[bytes]], size: int) -> dict[tuple[int, ...], list[bytes]]:
    """Put what is for all and what is for one into the same packets, if all of it together is small."""
    if sum(len(datagram) for datagrams in outbox.values() for datagram in datagrams) > size:
        return outbox
    told: dict[int, list[bytes]] = {}
    for to, datagrams in outbox.items():
        for name in to:
            told.setdefault(name, []).extend(datagrams)
    alike: dict[tuple[bytes, ...], list[int]] = {}
    for name, datagrams in told.items():
        alike.setdefault(tuple(datagrams), []).append(name)
    return {tuple(names): list(datagrams) for datagrams, names in alike.items()}


def _runs(packets: list[bytes]) -> list[tuple[bytes, int]]:
    """Join packets that the kernel can cut again: all of one size, only the last one smaller."""
    runs: list[tuple[bytes, int]] = []
    start = 0
    while start < len(packets):
        size, end = len(packets[start]), start + 1
        while end < len(packets) and len(packets[end - 1]) == size >= len(packets[end]) and end - start < _SEGMENTS_MAX:
            end += 1
        runs.append((b"".join(packets[start:end]), size))
        start = end
    return runs


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
    group: Address,
    sender: socket.socket,
    ttl: int,
    make_socket: MakeSocket = udp_socket,
    what: str = "multicast",
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


def _can(one: socket.socket, option: int, value: int) -> bool:
    try:
        one.setsockopt(_SOL_UDP, option, value)
    except OSError:
        return False
    return True
