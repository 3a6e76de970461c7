"""Discovery: members that know nothing but a multicast address, or some of the others, find each other.

Whoever looks for a group says hello, again and again. Members of a group answer with its founders; whoever hears that
joins them. Where nobody answers for a while, the one with the smallest address founds the group, with all that are
looking, and says so. After that members say hello once a second, so that everyone learns where everyone is; a member's
name is made from its address alone. With a group key hellos are encrypted and authenticated, and those that are more
than a minute old, or of the future, are not taken.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import random
import socket
import time
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from ipaddress import ip_address
from typing import Annotated, Final

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, parse, show
from antiphon.live.anomalies import Anomalies
from antiphon.live.session import Refused
from antiphon.live.sockets import PACKET_BYTES, MakeSocket, open_multicast, open_socket, udp_socket
from antiphon.live.transport import HELLO
from antiphon.protocol.membership.views import NAMES_MAX, GroupView

LOOK_S: Final = 1.0  # for a group that is there
ALIVE_S: Final = 0.5  # whoever looks and was silent for longer has gone
PAUSE_S: Final = 0.1  # between the hellos of one that looks
CALM_S: Final = 1.0  # between those of one that has found its group
ANSWER_S: Final = 0.05  # at most so many answers
FOUNDERS_MAX: Final = 20  # so that a hello is one packet
KNOWN_MAX: Final = 10
VIEW_MEMBERS_MAX: Final = 32  # of a larger one newcomers hear from the founders only
FRESH_NS: Final = 60_000_000_000
_NONCE_BYTES: Final = 12

_Place = Annotated[str, msgspec.Meta(max_length=64)]


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who is there, and of which group and view: of none, if its sender looks for one."""

    at_ns: int
    address: _Place
    founders: Annotated[tuple[_Place, ...], msgspec.Meta(max_length=FOUNDERS_MAX)] = ()
    known: Annotated[tuple[_Place, ...], msgspec.Meta(max_length=KNOWN_MAX)] = ()  # others, where there is no multicast
    view: GroupView | None = None  # the newest that its sender knows, for newcomers who may not meet a founder any more


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hello).decode


def name_from(address: Address) -> int:
    """Give the name of a member: neighbours on one port, and ports of one host, all have different ones."""
    host, port = address
    return (int(ip_address(host)) * 613 + port) % NAMES_MAX  # 613 and 10,000 have no common factor


def _address(text: str) -> Address:
    try:
        host, port = parse(text, "discover")
        return str(ip_address(host)), port
    except (UsageError, ValueError):
        raise Refused("no-address") from None


class Seal:
    """Puts hellos into packets and takes them out again, under the group's keys if it has any."""

    def __init__(self, group: str, keys: Sequence[bytes] | None) -> None:
        self._group = group.encode()
        self.set_keys(keys)

    def set_keys(self, keys: Sequence[bytes] | None) -> None:
        """Seal with the first key from now on, and accept all of them."""
        self._ciphers = None
        if keys is not None:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._invalid = InvalidTag
            about = b"antiphon/1 hello" + self._group
            self._ciphers = [AESGCM(hmac.digest(key, about, sha256)[: len(key)]) for key in keys]

    def seal(self, hello: Hello) -> bytes:
        """Make a packet."""
        body = _encode(hello)
        if self._ciphers is None:
            return bytes([HELLO]) + sha256(self._group).digest()[:_NONCE_BYTES] + body
        nonce = os.urandom(_NONCE_BYTES)
        return bytes([HELLO]) + nonce + self._ciphers[0].encrypt(nonce, body, None)

    def open(self, packet: bytes) -> Hello:
        """Take a packet apart, or raise `Refused`."""
        nonce, body = packet[1 : 1 + _NONCE_BYTES], packet[1 + _NONCE_BYTES :]
        if packet[:1] != bytes([HELLO]) or not body:
            raise Refused("no-hello")
        try:
            return _decode(self._unsealed(nonce, body))
        except msgspec.MsgspecError:
            raise Refused("no-hello") from None

    def _unsealed(self, nonce: bytes, body: bytes) -> bytes:
        if self._ciphers is None:
            if nonce != sha256(self._group).digest()[:_NONCE_BYTES]:
                raise Refused("other-group")
            return body
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, body, None)
            except self._invalid:
                continue
        raise Refused("forged")


class Discovery:
    """One member's search for its group, and then its help for those who look for it."""

    def __init__(
        self,
        group: str,
        own: Address,
        where: Address | None,
        *,
        asked: Sequence[Address] = (),
        bind: Address,
        ttl: int,
        keys: Sequence[bytes] | None,
        make_socket: MakeSocket = udp_socket,
        anomalies: Anomalies,
    ) -> None:
        """Open the sockets, one that hears and one that speaks: at a multicast address, or to those to be asked."""
        self._own, self._where, self._asked, self._seal = own, where, asked, Seal(group, keys)
        self._anomalies = anomalies
        self._founders: tuple[str, ...] = ()
        self._looking: dict[Address, float] = {}  # who looks for the group too, and when it was last heard
        self._members: dict[int, Address] = {name_from(own): own}
        self._learnt: Callable[[int, Address], None] = lambda name, address: None
        self._tell_view: Callable[[], GroupView | None] = lambda: None
        self.view: GroupView | None = None  # of the group that was found
        self._answer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._found: asyncio.Future[None] | None = None
        self._out = make_socket(socket.AF_INET)
        try:
            self._out.setblocking(False)
            self._out.bind((bind[0], 0))
        except OSError as error:
            self._out.close()
            raise UsageError(f"bind: {bind[0]} cannot be used ({error.strerror}); bind an address of its own") from None
        self._in: socket.socket | None = None
        try:
            if where is None:
                self._in = open_socket(bind, make_socket)
            else:
                self._in = open_multicast(where, self._out, ttl, make_socket, "discover")
        except UsageError:
            self._out.close()
            raise

    async def find(self, remembered: Collection[str] = ()) -> dict[int, Address]:
        """Find the group, or found it; give the founders by name. `remembered`: they were so when last seen."""
        self._loop = asyncio.get_running_loop()
        assert self._in is not None
        self._loop.add_reader(self._in.fileno(), self._read)
        self._found = self._loop.create_future()
        self._began = self._loop.time()
        self._remembered = tuple(remembered)
        self._say()
        await self._found
        if self._where is None:
            self._close_ear()  # from now on the transport hears here
        return {name_from(address): address for address in map(_address, self._founders)}

    def go_on(self, learnt: Callable[[int, Address], None], view: Callable[[], GroupView | None]) -> None:
        """Help those who come later; `learnt` is told every member's name and address, those of now at once."""
        self._learnt, self._tell_view = learnt, view
        for name, address in self._members.items():
            learnt(name, address)

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Seal with the first key from now on, and accept all of them."""
        self._seal.set_keys(keys)

    def close(self) -> None:
        """Fall silent."""
        if self._timer is not None:
            self._timer.cancel()
        self._close_ear()
        self._out.close()

    def _close_ear(self) -> None:
        if self._in is not None:
            if self._found is not None:
                self._loop.remove_reader(self._in.fileno())
            self._in.close()
            self._in = None

    def _say(self) -> None:
        """Say hello, and again after a pause."""
        self._consider_founding()
        view = self._tell_view()
        small = view is not None and len(view.members) <= VIEW_MEMBERS_MAX
        others = [address for address in self._members.values() if address != self._own]
        known = random.sample(others, min(KNOWN_MAX, len(others))) if self._where is None else []
        hello = Hello(time.time_ns(), show(self._own), self._founders, tuple(map(show, known)), view if small else None)
        packet = self._seal.seal(hello)
        for target in {*self._asked, *others} if self._where is None else (self._where,):
            try:
                self._out.sendto(packet, target)
            except OSError:
                self._anomalies.note("hellos-unsendable")
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(CALM_S if self._founders else PAUSE_S, self._say)

    def _consider_founding(self) -> None:
        now = self._loop.time()
        if self._founders or now < self._began + LOOK_S:
            return
        looking = {address for address, heard in self._looking.items() if now - heard < ALIVE_S} | {self._own}
        if self._remembered:
            self._adopt(self._remembered)
        elif self._own == min(looking):
            self._adopt([show(address) for address in sorted(looking)][:FOUNDERS_MAX])

    def _adopt(self, founders: Sequence[str]) -> None:
        self._founders = tuple(founders)
        if self._found is not None and not self._found.done():
            self._found.set_result(None)

    def _read(self) -> None:
        try:
            for _ in range(64):
                if self._in is None:
                    return
                self.take(self._in.recv(PACKET_BYTES + 1))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._anomalies.note("receive-errors")

    def take(self, packet: bytes) -> None:
        """Take a packet that may be a hello."""
        try:
            self._hear(self._seal.open(packet))
        except Refused as refused:
            self._anomalies.note("refused-" + refused.reason)

    def _hear(self, hello: Hello) -> None:
        if abs(hello.at_ns - time.time_ns()) > FRESH_NS:
            raise Refused("old-hello")
        address, founders = _address(hello.address), [_address(founder) for founder in hello.founders]
        if address == self._own:
            return
        self._meet(address)
        for other in map(_address, hello.known):
            self._meet(other)
        if not hello.founders:
            self._looking[address] = self._loop.time()
            self._answer()
            return
        self._looking.pop(address, None)
        if not self._founders:
            for founder in founders:
                self._meet(founder)
            self.view = hello.view
            self._adopt(hello.founders)
            self._say()
        elif hello.founders != self._founders:
            self._anomalies.note("other-group")  # founded apart, while the network was cut

    def _meet(self, address: Address) -> None:
        name = name_from(address)
        known = self._members.setdefault(name, address)
        if known != address:
            self._anomalies.note("refused-same-name")
            if self._own in (known, address) and self._found is not None and not self._found.done():
                other = show(address if known == self._own else known)
                why = f"discover: {show(self._own)} and {other} get the same name; bind another port"
                self._found.set_exception(UsageError(why))
            raise Refused("same-name")
        self._learnt(name, address)

    def _answer(self) -> None:
        """Tell one that looks where the group is, at once but not to each one of many."""
        if self._founders and self._loop.time() >= self._answer_at:
            self._answer_at = self._loop.time() + ANSWER_S
            self._say()
