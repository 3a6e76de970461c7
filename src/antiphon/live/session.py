"""Sessions: who sent a packet, with a group key the proof of it, and whether a name is free.

Each start of a member is a session, with a random number. With a key every packet is encrypted and authenticated by
AES-GCM, under a cipher key of the session's own, derived from the group's key, the group's name, the member's name and
the session, so that a counter is a nonce that never comes twice. A receiver takes the packets of one session per
member: the one that was let in last by the handshake (`handshake.py`), each counter once. Whatever is not proven is
counted, and neither decoded nor answered. Two keys may be in use while a group goes from one to the next.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from antiphon.errors import AntiphonError, UsageError, UsageTypeError
from antiphon.live.addresses import Address
from antiphon.protocol.wire import VERSIONS, Spoken

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_LENGTHS: Final = (16, 24, 32)
REPLAY_WINDOW: Final = 1_024  # counters below the highest that are still told apart
_SEEN_MASK: Final = (1 << REPLAY_WINDOW) - 1
ENVELOPE: Final = 2 << 4  # the version since which packets begin so: the upper half of their first byte; 0: the first
_PLAIN, _SEALED, HELLO = ENVELOPE | 1, ENVELOPE | 2, ENVELOPE | 3  # first byte of a packet
_PLAIN_HEADER: Final = struct.Struct(">BHQ")  # kind, sender, session
_HEADER: Final = struct.Struct(">BHQ8sQ")  # kind, sender, session, key id, counter
SESSION_AT: Final = struct.calcsize(">BH")  # where every packet has the number of its session
_TAG_BYTES: Final = 16


class Refused(AntiphonError):
    """A packet that is not accepted; `reason` is a word for the counters, `about` more for the log."""

    def __init__(self, reason: str, about: str = "") -> None:
        super().__init__(reason)
        self.reason, self.about = reason, about


class Unproven(Refused):
    """A packet of a session that was not let in, or not yet."""

    def __init__(self, sender: int, session: int, counter: int, body: bytes) -> None:
        super().__init__("unproven")
        self.sender, self.session, self.counter, self.body = sender, session, counter, body


class PacketSession(Protocol):
    """Puts bodies into packets and takes them out again."""

    number: int

    @property
    def overhead(self) -> int:
        """Bytes that it adds."""

    def seal(self, body: bytes) -> bytes:
        """Put a body into a packet."""

    def open(self, packet: bytes) -> tuple[int, bytes]:
        """Return the sender and the body of a packet, or raise `Refused`, or `Unproven` with what it says."""

    def accept(self, sender: int, session: int, counter: int) -> None:
        """Take packets of this session from now on, those after the counter, and of no earlier one."""


def refuse_kind(packet: bytes) -> Refused:
    """Return why a packet with an unexpected first byte is refused."""
    version, kind = divmod(packet[0] if packet else 0, 16)
    if kind not in (_PLAIN - ENVELOPE, _SEALED - ENVELOPE, HELLO - ENVELOPE) or version == ENVELOPE >> 4:
        return Refused("no-packet")
    other = f"version {version}" if version else "version 1 (Antiphon 0.1.0)"
    return Refused("other-version", f"wire: {Spoken.of(VERSIONS)} here and {other} there")


def is_of_a_member(packet: bytes) -> bool:
    """Say whether a packet looks like one that a member of a group sends to another."""
    return packet[:1] in (bytes([_PLAIN]), bytes([_SEALED]))


def sender_of(packet: bytes) -> int:
    """Return the name under which a packet was sent, as it says itself."""
    return int.from_bytes(packet[1:3], "big")


class PlainSession:
    """No key: says who sends, proves nothing; the transport compares the source address."""

    overhead = _PLAIN_HEADER.size

    def __init__(self, sender: int) -> None:
        self.number = _draw_number()
        self._sender = sender
        self._header = _PLAIN_HEADER.pack(_PLAIN, sender, self.number)
        self._sessions: dict[int, int] = {}  # by sender

    def seal(self, body: bytes) -> bytes:
        """Say who sends."""
        return self._header + body

    def open(self, packet: bytes) -> tuple[int, bytes]:
        """Read who claims to have sent it."""
        if len(packet) <= self.overhead or packet[0] != _PLAIN:
            raise Refused("sealed") if packet[:1] == bytes([_SEALED]) else refuse_kind(packet)
        _, sender, session = _PLAIN_HEADER.unpack_from(packet)
        body = packet[self.overhead :]
        if self._sessions.get(sender) != session and sender != self._sender:
            raise Unproven(sender, session, 0, body)
        return sender, body

    def accept(self, sender: int, session: int, counter: int) -> None:
        """Take packets of this session from now on."""
        self._sessions[sender] = session


class _Heard:
    """What was accepted of one sender's session."""

    __slots__ = ("ciphers", "highest", "seen", "session")

    def __init__(self, session: int, highest: int) -> None:
        self.session, self.highest, self.seen = session, highest, _SEEN_MASK  # what came before is not told apart
        self.ciphers: dict[bytes, AESGCM] = {}  # by key id

    def repeated(self, counter: int) -> bool:
        """Return whether a counter was seen, or is too old to tell."""
        behind = self.highest - counter
        return behind >= 0 and (behind >= REPLAY_WINDOW or bool(self.seen >> behind & 1))

    def note(self, counter: int) -> None:
        """Remember a counter."""
        ahead = counter - self.highest
        if ahead > 0:
            self.seen = ((self.seen << ahead) & _SEEN_MASK | 1) if ahead < REPLAY_WINDOW else 1
            self.highest = counter
        else:
            self.seen |= 1 << -ahead


class SealedSession:
    """AES-GCM under keys derived from the group's."""

    overhead = _HEADER.size + _TAG_BYTES

    def __init__(self, group: str, sender: int, keys: Sequence[bytes]) -> None:
        from cryptography.exceptions import InvalidTag

        self.number = _draw_number()
        self._group, self._sender, self._invalid = group.encode(), sender, InvalidTag
        self._counter = 0
        self._heard: dict[int, _Heard] = {}  # by sender
        self._keys: dict[bytes, bytes] = {}  # by id
        self.set_keys(keys)

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Seal with the first key from now on, and accept all of them; if one is wrong, nothing changes."""
        by_id = {key_id(key): key for key in check_keys(keys)}
        first = next(iter(by_id))
        seal = _cipher(by_id[first], self._group, self._sender, self.number).encrypt
        self._keys, self._key_id, self._seal = by_id, first, seal
        for heard in self._heard.values():
            heard.ciphers = {name: cipher for name, cipher in heard.ciphers.items() if name in by_id}

    def seal(self, body: bytes) -> bytes:
        """Encrypt a body and prove where it comes from."""
        counter = self._counter
        self._counter = counter + 1
        header = _HEADER.pack(_SEALED, self._sender, self.number, self._key_id, counter)
        return header + self._seal(counter.to_bytes(12, "big"), body, header)

    def open(self, packet: bytes) -> tuple[int, bytes]:
        """Return the sender and the body, if it is proven, new and of the session that was let in."""
        if len(packet) <= self.overhead or packet[0] != _SEALED:
            raise Refused("unsealed") if packet[:1] == bytes([_PLAIN]) else refuse_kind(packet)
        header = packet[: _HEADER.size]
        _, sender, session, key_id, counter = _HEADER.unpack(header)
        heard = self._heard.get(sender)
        if heard is None or session != heard.session:
            return self._open_unproven(packet, header)
        if counter <= heard.highest and heard.repeated(counter):
            raise Refused("replayed")
        cipher = heard.ciphers.get(key_id)
        if cipher is None:
            cipher = self._cipher_for(key_id, sender, session)
        try:
            body = cipher.decrypt(counter.to_bytes(12, "big"), packet[_HEADER.size :], header)
        except self._invalid:
            raise Refused("forged") from None
        heard.ciphers[key_id] = cipher
        if counter == heard.highest + 1:  # as nearly always
            heard.highest, heard.seen = counter, (heard.seen << 1) & _SEEN_MASK | 1
        else:
            heard.note(counter)
        return sender, body

    def _open_unproven(self, packet: bytes, header: bytes) -> tuple[int, bytes]:
        """Open a packet of one's own name, which tells whether another has it; raise `Unproven` with any other."""
        _, sender, session, key_id, counter = _HEADER.unpack(header)
        if (sender, session) == (self._sender, self.number):
            raise Refused("own-name")
        cipher = self._cipher_for(key_id, sender, session)
        try:
            body = cipher.decrypt(counter.to_bytes(12, "big"), packet[_HEADER.size :], header)
        except self._invalid:
            raise Refused("forged") from None
        if sender != self._sender:
            raise Unproven(sender, session, counter, body)
        return sender, body

    def accept(self, sender: int, session: int, counter: int) -> None:
        """Take packets of this session from now on, those after the counter, and of no earlier one."""
        self._heard[sender] = _Heard(session, counter)

    def _cipher_for(self, key_id: bytes, sender: int, session: int) -> AESGCM:
        key = self._keys.get(key_id)
        if key is None:
            raise Refused("unknown-key")
        return _cipher(key, self._group, sender, session)


def key_id(key: bytes) -> bytes:
    """Return eight bytes by which a key is known without being told."""
    return sha256(b"antiphon key id" + key).digest()[:8]


def _cipher(key: bytes, group: bytes, sender: int, session: int) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    about = b"antiphon/2" + struct.pack(">HQ", sender, session) + group
    return AESGCM(hmac.digest(key, about, sha256)[: len(key)])


def _draw_number() -> int:
    return int.from_bytes(os.urandom(8), "big") or 1  # 0 stands for any


def check_keys(keys: Sequence[bytes]) -> list[bytes]:
    """Raise a `UsageError` unless these can be group keys."""
    if not keys:
        raise UsageError("key: give at least one")
    for key in keys:
        if not isinstance(key, bytes):
            raise UsageTypeError(f"key: 16, 24 or 32 random bytes (os.urandom(16)), not {type(key).__name__}")
        if len(key) not in KEY_LENGTHS:
            raise UsageError(f"key: 16, 24 or 32 random bytes (os.urandom(16)), not {len(key)} bytes")
    different = list(dict.fromkeys(keys))
    if len({key_id(key) for key in different}) < len(different):
        raise UsageError("key: two of the keys cannot be told apart; draw a new one")
    return different


def open_session(group: str, sender: int, keys: Sequence[bytes] | None) -> PlainSession | SealedSession:
    """Begin the session of a member, sealed if there is a key."""
    if keys is None:
        return PlainSession(sender)
    check_keys(keys)
    try:
        return SealedSession(group, sender, keys)
    except ImportError:
        raise UsageError("key: encryption needs the package cryptography: pip install 'antiphon[live]'") from None


_MARK: Final = b"antiphon/name/"
QUESTIONS: Final = 3  # one may be lost
ANSWER_S: Final = 0.1


class _Note(msgspec.Struct, array_like=True):
    """A question, or the answer to one, which has the same nonce."""

    nonce: bytes
    answer_to: Address | None  # None: this is the answer


class NameProbe:
    """Ask whether a name is taken, and say so to those who ask.

    A member may be known by another address than the one that it is bound to. If that address was given by mistake,
    another member may live there. So a newcomer first asks at its own address: whoever has the name, and is not the
    newcomer itself, answers. Questions and answers travel like all packets, so with a key only members ask or answer.
    """

    def __init__(self, nonce: bytes, make_socket: Callable[[int], socket.socket]) -> None:
        self._nonce, self._make_socket = nonce, make_socket
        self.exists = False  # someone else has this name

    def question(self, bound: Address, address: Address) -> bytes:
        """Ask whoever is at an address to answer to the address that this packet comes from."""
        with self._make_socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as way:
            way.connect(address)  # sends nothing, but chooses the way
            host = str(way.getsockname()[0]) if bound[0] in ("0.0.0.0", "::") else bound[0]
        return _MARK + msgspec.msgpack.encode(_Note(self._nonce, (host, bound[1])))

    def hear(self, body: bytes, source: Address | None) -> tuple[Address, bytes] | None:
        """Take what came under one's own name; give an answer and where it goes, if it is another's question.

        It goes where the question came from or, where that is not known because packets prove themselves, as asked.
        """
        if not body.startswith(_MARK):
            return None
        try:
            note = msgspec.msgpack.decode(body[len(_MARK) :], type=_Note)
        except msgspec.MsgspecError:
            return None
        if note.answer_to is None:
            self.exists |= note.nonce == self._nonce
            return None
        if note.nonce == self._nonce:
            return None  # one's own question
        return source or note.answer_to, _MARK + msgspec.msgpack.encode(_Note(note.nonce, None))
