"""Hellos: what members that look for one another say, in packets of their own, and the sockets that carry them.

With a group key hellos are encrypted and authenticated. Whether one is fresh its stamp shows (`freshness.py`).
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import Annotated, Final

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import NAME_LENGTH_MAX, Address, is_reachable, parse
from antiphon.live.anomalies import Anomalies
from antiphon.live.freshness import Stamp
from antiphon.live.session import HELLO, Refused, refuse_kind
from antiphon.live.sockets import READ_BYTES, MakeSocket, open_multicast, open_socket
from antiphon.protocol.membership.views import GroupView

FOUNDERS_MAX: Final = 20  # so that a hello is one packet
KNOWN_MAX: Final = 10
_NONCE_BYTES: Final = 12

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]


class Founding(msgspec.Struct, frozen=True, array_like=True):
    """With whom a group began, and when: what tells apart groups of one name whose number was not declared."""

    founders: Annotated[tuple[_Name, ...], msgspec.Meta(min_length=1, max_length=FOUNDERS_MAX)]
    at_ns: int = 0

    def outranks(self, other: Founding) -> bool:
        """Say which of two groups that meet stands: the one with more founders; of equal ones, the older."""
        return self._rank() < other._rank()

    def _rank(self) -> tuple[int, int, tuple[str, ...]]:
        return -len(self.founders), self.at_ns, self.founders


class Contact(msgspec.Struct, frozen=True, array_like=True):
    """A member's name, and where it is."""

    name: _Name
    address: Annotated[str, msgspec.Meta(max_length=64)]

    def socket_address(self) -> Address:
        """Return the address as sockets take it, or raise `Refused`."""
        return _socket_address(self.address)


@lru_cache(maxsize=1_024)  # every hello tells the same ones again
def _socket_address(text: str) -> Address:
    try:
        host, port = parse(text, "discover")
        host = str(ip_address(host))
    except (UsageError, ValueError):
        raise Refused("no-address") from None
    if not is_reachable(host):
        raise Refused("no-address")
    return host, port


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who is there, and of which group and view: of none, if its sender looks for one."""

    stamp: Stamp
    sender: Contact
    has_found: bool = False  # its sender is in a group, or joins one
    founding: Founding | None = None  # of its group, where no number was declared
    known: Annotated[tuple[Contact, ...], msgspec.Meta(max_length=KNOWN_MAX)] = ()  # some of the others
    view: GroupView | None = None  # the newest that its sender knows, for newcomers who may not meet a founder any more


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hello).decode


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
        """Take a packet apart, or raise `Refused`: it is no hello, or not of this group."""
        nonce, body = packet[1 : 1 + _NONCE_BYTES], packet[1 + _NONCE_BYTES :]
        if packet[:1] != bytes([HELLO]):
            raise refuse_kind(packet)
        if not body:
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


class HelloSockets:
    """One socket that speaks and one that hears: at a multicast address, or at the member's own until it has begun."""

    def __init__(
        self, bind: Address, multicast: Address | None, ttl: int, make_socket: MakeSocket, anomalies: Anomalies
    ) -> None:
        self._anomalies, self.multicast = anomalies, multicast
        self._out = make_socket(socket.AF_INET6 if ":" in bind[0] else socket.AF_INET)
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._out.setblocking(False)
            self._out.bind((bind[0], 0))
        except OSError as error:
            self._out.close()
            raise UsageError(f"bind: {bind[0]} cannot be used ({error.strerror}); bind an address of its own") from None
        self._in: socket.socket | None = None
        try:
            if multicast is None:
                self._in = open_socket(bind, make_socket)
            else:
                self._in = open_multicast(multicast, self._out, ttl, make_socket, "discover")
        except UsageError:
            self._out.close()
            raise

    def hear(self, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], None]) -> None:
        """Give all that comes to `take`."""
        assert self._in is not None
        self._loop, self._take = loop, take
        loop.add_reader(self._in.fileno(), self._read)

    def say(self, packet: bytes, targets: Iterable[Address]) -> None:
        """Send a packet to the multicast address or, where there is none, to each of the targets."""
        for target in targets if self.multicast is None else (self.multicast,):
            try:
                self._out.sendto(packet, target)
            except OSError:
                self._anomalies.note("hellos-unsendable")

    def close_ear(self) -> None:
        """Stop hearing; give the address back."""
        if self._in is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._in.fileno())
            self._in.close()
            self._in = None

    def close(self) -> None:
        """Fall silent."""
        self.close_ear()
        self._out.close()

    def _read(self) -> None:
        try:
            for _ in range(64):
                if self._in is None:
                    return
                self._take(self._in.recv(READ_BYTES))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._anomalies.note("receive-errors")
