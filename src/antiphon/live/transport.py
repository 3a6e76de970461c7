"""A member's way to the network: protocol datagrams in packets, sealed once, to all receivers; and back.

What one turn of the loop sends is gathered, shared out to packets per set of receivers, sealed once and sent to each
of them, or once to a multicast address.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping

import msgspec

from antiphon.live.addresses import Address
from antiphon.live.anomalies import Anomalies
from antiphon.live.handshake import CHALLENGE, REPLACED, RESPONSE, Description, Differs, Handshake
from antiphon.live.packets import ASK_NS, WHOLE, PacketCodec, together_bytes
from antiphon.live.path_mtu import MTU_BASE
from antiphon.live.prober import PROBE, PROBE_BYTES, PROBED, Prober
from antiphon.live.session import (
    ANSWER_S,
    HELLO,
    QUESTIONS,
    NameProbe,
    PacketSession,
    PlainSession,
    Refused,
    Unproven,
)
from antiphon.live.sockets import MakeSocket, Port, udp_socket
from antiphon.protocol.wire import Spoken


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """All that a member's way to the network is opened with."""

    me: int
    addresses: Mapping[int, Address]  # by name, one's own among them
    session: PacketSession
    description: Description  # how this member is set up; those who are set up differently are not heard
    spoken: Spoken  # the versions of the wire that this member speaks; those who speak none of them are not heard
    differs: Differs
    fixed: bool = False  # members never change: who was started again is none
    bind: Address
    multicast: Address | None = None
    ttl: int = 1
    offload: bool | None = None  # segmentation by the kernel; None: where it has it
    receive: Callable[[list[bytes]], None]  # is given protocol datagrams that are complete
    received_all: Callable[[], None]  # is called after the last of those that one wake-up completed
    make_socket: MakeSocket = udp_socket
    anomalies: Anomalies


class PacketCounts(msgspec.Struct):
    """Packets of one member, counted."""

    sent: int = 0
    received: int = 0
    again: int = 0  # fragments that were asked for, or sent once more
    own: int = 0  # of one's own name
    unproven: int = 0  # of sessions that were not let in, or not yet


class Transport:
    """The packets of one member."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Open the sockets."""
        self._endpoint = endpoint
        self._addresses = dict(endpoint.addresses)
        self._names = {address: name for name, address in endpoint.addresses.items()}
        self._others = tuple(name for name in endpoint.addresses if name != endpoint.me)
        self._known = set(self._others)  # whose packets are taken
        self.port = Port(
            endpoint.bind,
            endpoint.multicast,
            session=endpoint.session.number,
            ttl=endpoint.ttl,
            offload=endpoint.offload,
            sources=isinstance(endpoint.session, PlainSession),  # there it is all that speaks for the sender
            make_socket=endpoint.make_socket,
            anomalies=endpoint.anomalies,
        )
        self._prober = Prober(endpoint.session.overhead, self._tell_at, self.port.path_bytes, endpoint.anomalies)
        self.port.too_large = self._prober.refused
        overhead = endpoint.session.overhead + PROBE_BYTES  # a body may have to ask to be acknowledged
        self._codec = PacketCodec(self._prober.least - overhead, random.Random(random.getrandbits(64)), overhead)
        self.outbox: dict[tuple[int, ...], list[bytes]] = {}
        self._handshake = Handshake(
            endpoint.session,
            endpoint.spoken,
            endpoint.description,
            self._tell,
            endpoint.differs,
            fixed=endpoint.fixed,
        )
        self._probe = NameProbe(random.randbytes(8), endpoint.make_socket)
        self._asking: asyncio.TimerHandle | None = None
        self._traffic = PacketCounts()
        self.lose: Callable[[bytes], bool] | None = None
        self.hello: Callable[[bytes], None] | None = None  # takes packets of those who look for the group

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen."""
        if not self.port.is_open:
            self.port.start(loop, self._arrived, self._endpoint.received_all)
            for name in self._others:
                self._handshake.greet(name)

    def close(self) -> None:
        """Stop listening, give the address back."""
        if self._asking is not None:
            self._asking.cancel()
        self._prober.close()
        self.port.close()

    def know(self, name: int, address: Address) -> None:
        """Learn where a member is, or where it is now."""
        before = self._addresses.get(name)
        if before is not None and self._names.get(before) == name:
            del self._names[before]
            self._prober.forget(before)
        self._addresses[name] = address
        self._names[address] = name
        if name != self._endpoint.me and before != address:
            self._known.add(name)
            if self.port.is_open:
                self._handshake.greet(name)

    def address_of(self, name: int) -> Address | None:
        """Return where a member is, if that is known."""
        return self._addresses.get(name)

    def forget(self, name: int) -> None:
        """Drop what a member that is gone left unfinished."""
        self._codec.forget(name)

    @property
    def counts(self) -> dict[str, int]:
        """What was sent and received, and what became of datagrams that did not fit into a packet."""
        return {
            "packets-sent": self._traffic.sent,
            "packets-received": self._traffic.received,
            "fragments-again": self._traffic.again,
            "packets-own": self._traffic.own,
            "packets-unproven": self._traffic.unproven,
            "packets-probing": self._prober.asked,
            "broken-datagrams": 0,
        }

    # Out

    def queue(self, to: tuple[int, ...] | None, datagram: bytes) -> None:
        """Take a protocol datagram for the next flush."""
        receivers = self._others if to is None else to
        self.outbox.setdefault(receivers, []).append(datagram)

    def flush(self) -> None:
        """Send all that was queued."""
        if not self.outbox or not self.port.is_open:
            return
        outbox, self.outbox = self.outbox, {}
        multicast = self._endpoint.multicast
        if len(outbox) > 1 and multicast is None:
            outbox = share_packets(outbox, self._prober.least // 2)
        least = self._prober.least
        for to, datagrams in outbox.items():
            targets = list(filter(None, map(self._addresses.get, to)))
            if together_bytes(datagrams) <= least - self._codec.overhead:  # one packet on every path, as nearly always
                self._send(datagrams, least, targets)
            elif multicast is not None and len(to) > 1:
                self._send(datagrams, self._prober.size_to_all(multicast, targets), targets)
            else:
                for size, alike in self._prober.sizes(targets).items():
                    self._send(datagrams, size, alike)

    def _send(self, datagrams: list[bytes], size: int, targets: list[Address]) -> None:
        """Send datagrams in packets of at most this size."""
        multicast = self._endpoint.multicast
        self._codec.size = size - self._codec.overhead
        bodies = self._codec.encode(datagrams)
        asking = self._prober.let_ask(bodies, targets) if size > MTU_BASE else None
        packets = list(map(self._endpoint.session.seal, bodies))
        if multicast is not None and len(targets) > 1:
            targets = [multicast]
        if asking is None:
            self.port.send(packets, targets)
        else:  # by itself: virtual switches let a train of segments pass whose packets they drop one by one
            for together in (packets[:asking], [packets[asking]], packets[asking + 1 :]):
                self.port.send(together, targets)
        self._traffic.sent += len(packets) * len(targets)

    def _send_bodies(self, bodies: list[tuple[int, bytes]]) -> None:
        """Send fragments again, or ask for some."""
        for name, body in bodies:
            self._tell(name, body)
        self._traffic.again += len(bodies)

    # In

    def _arrived(self, packets: list[bytes], sources: list[Address] | None) -> bool:
        """Open packets, hand over the datagrams that are complete with them; say whether there is something to send."""
        if self.lose is not None:
            packets, sources = _without(self.lose, packets, sources)
        complete: list[bytes] = []
        in_fragments = False
        open_packet = self._endpoint.session.open
        for index, packet in enumerate(packets):
            try:
                sender, body = open_packet(packet)
                if sources is not None or sender not in self._known:
                    self._check_sender(sender, body, None if sources is None else sources[index])
            except Unproven as unproven:
                self._meet(unproven, None if sources is None else sources[index])
                continue
            except Refused as refused:
                self._refuse(packet, refused, None if sources is None else sources[index])
                continue
            if body[0] == WHOLE:  # as nearly always
                complete.append(body[1:])
                continue
            if body[0] in (CHALLENGE, RESPONSE, REPLACED):
                self._handshake.hear(sender, body)
                continue
            if body[0] in (PROBE, PROBED):
                body = self._prober.take(self._addresses[sender], body)
            if body:
                complete += self._codec.decode(sender, body, time.monotonic_ns())
                in_fragments = True
        self._traffic.received += len(packets)
        if in_fragments:
            self._see_to_fragments()
        if complete:
            self._endpoint.receive(complete)
        return bool(self.outbox)

    def _see_to_fragments(self) -> None:
        """Send the fragments that were asked for, and ask for those that are missing if they do not come soon."""
        if self._codec.answers:
            answers, self._codec.answers = self._codec.answers, []
            self._send_bodies(answers)
        self._ask_later()

    def _ask_later(self) -> None:
        """Ask again for what is missing, if anything is; tell of what will never be whole."""
        broken = self._codec.broken - self._endpoint.anomalies.counts["broken-datagrams"]
        if broken:
            self._endpoint.anomalies.note("broken-datagrams", "never became whole, or made no sense", broken)
        if self._asking is None and self._codec.waits:
            self._asking = asyncio.get_running_loop().call_later(ASK_NS / 1e9, self._ask)

    def _check_sender(self, sender: int, body: bytes, source: Address | None) -> None:
        if sender == self._endpoint.me:
            self._hear_own_name(body, source)  # a multicast that comes back, or another who has our name
            raise Refused("own-name")
        if source is not None and self._names.get(source, -1) != sender:
            raise Refused("unknown-source")
        if sender not in self._addresses:
            raise Refused("unknown-sender")

    def _meet(self, unproven: Unproven, source: Address | None) -> None:
        """Let a session in if this is the answer to a challenge, or else challenge it."""
        try:
            self._check_sender(unproven.sender, unproven.body, source)
        except Refused as refused:
            self._endpoint.anomalies.note("refused-" + refused.reason)
            return
        self._traffic.unproven += not self._handshake.meet(unproven, time.monotonic_ns())

    def _tell(self, name: int, body: bytes) -> None:
        """Send a body to one member."""
        if name in self._addresses:
            self._tell_at(self._addresses[name], body)

    def _tell_at(self, address: Address, body: bytes) -> None:
        self.port.send([self._endpoint.session.seal(body)], [address])

    def _refuse(self, packet: bytes, refused: Refused, source: Address | None) -> None:
        if self.hello is not None and packet[:1] == bytes([HELLO]):
            self.hello(packet)
        elif refused.reason == "own-name":
            if self._endpoint.multicast is None:
                self._endpoint.anomalies.note("packets-own", "another member has this one's address, or its name")
            else:
                self._traffic.own += 1  # what was sent to all comes back: no word about it
        elif (
            refused.reason == "other-version" and source in self._names
        ):  # where nothing is proven, this is all there is
            self._endpoint.differs(self._names[source], "other-version", refused.about)
        else:
            self._endpoint.anomalies.note("refused-" + refused.reason, refused.about)

    def _ask(self) -> None:
        """Ask for the fragments that are missing, as long as there are any."""
        self._asking = None
        self.port.read()  # what is missing may have come while the loop was busy
        if not self.port.is_open:
            return
        if self.port.emptied:
            self._send_bodies(self._codec.requests(time.monotonic_ns()))
        self._ask_later()

    # Whose name it is

    async def name_is_taken(self) -> bool:
        """Ask at one's own address whether another member lives there, before the others hear of this one."""
        self.start(asyncio.get_running_loop())
        bind, own = self._endpoint.bind, self._endpoint.addresses[self._endpoint.me]
        for _ in range(QUESTIONS):
            self.port.send([self._endpoint.session.seal(self._probe.question(bind, own))], [own])
            await asyncio.sleep(ANSWER_S)
            if self._probe.exists:
                return True
        return False

    def _hear_own_name(self, body: bytes, source: Address | None) -> None:
        answer = self._probe.hear(body, source)
        if answer is not None:
            self.port.send([self._endpoint.session.seal(answer[1])], [answer[0]])


def _without(
    lose: Callable[[bytes], bool], packets: list[bytes], sources: list[Address] | None
) -> tuple[list[bytes], list[Address] | None]:
    """Leave out the packets that a test's network loses."""
    kept = [index for index, packet in enumerate(packets) if not lose(packet)]
    return [packets[index] for index in kept], None if sources is None else [sources[index] for index in kept]


def share_packets(outbox: dict[tuple[int, ...], list[bytes]], size: int) -> dict[tuple[int, ...], list[bytes]]:
    """Put what is for all and what is for one receiver into the same packets, if what each receives alone is small."""
    told: dict[int, list[bytes]] = {}
    sizes: dict[int, int] = {}
    for to, datagrams in outbox.items():
        together = together_bytes(datagrams)
        for name in to:
            told.setdefault(name, []).extend(datagrams)
            sizes[name] = sizes.get(name, 0) + together
            if sizes[name] > size:
                return outbox
    alike: dict[tuple[bytes, ...], list[int]] = {}
    for name, datagrams in told.items():
        alike.setdefault(tuple(datagrams), []).append(name)
    return {tuple(names): list(datagrams) for datagrams, names in alike.items()}
