"""Sessions: who sent a packet, with a group key the proof of it, and whether a name is free.

With a key every packet is encrypted and authenticated by AES-GCM. Each start of a member (its session) has a cipher
key of its own, derived from the group's key, the group's name, the member's name and the session, so that a counter
is a nonce that never comes twice. A receiver follows one session per member, the newest, with a window of counters
that it has seen; whatever is not proven is counted, and neither decoded nor answered. Two keys may be in use while
a group goes from one to the next.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from antiphon.errors import AntiphonError, UsageError, UsageTypeError
from antiphon.live.addresses import Address

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_LENGTHS: Final = (16, 24, 32)
REPLAY_WINDOW: Final = 1_024  # counters below the highest that are still told apart
_SEEN_MASK: Final = (1 << REPLAY_WINDOW) - 1
_OPEN, _SEALED = 1, 2  # first byte of a packet
_HEADER: Final = struct.Struct(">BBHQQ")  # kind, key id, sender, session, counter
_TAG_BYTES: Final = 16
_PLAIN_HEADER: Final = struct.Struct(">BH")  # kind, sender


class Refused(AntiphonError):
    """A packet that is not accepted; `reason` is a word for the counters."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PacketSession(Protocol):
    """Puts bodies into packets and takes them out again."""

    @property
    def overhead(self) -> int:
        """Bytes that it adds."""

    def seal(self, body: bytes) -> bytes:
        """Put a body into a packet."""

    def open(self, packet: bytes) -> tuple[int, bytes]:
        """Give the sender and the body of a packet, or raise `Refused`."""


class PlainSession:
    """No key: says who sends, proves nothing; the transport compares the source address."""

    overhead = _PLAIN_HEADER.size

    def __init__(self, sender: int) -> None:
        self._header = _PLAIN_HEADER.pack(_OPEN, sender)

    def seal(self, body: bytes) -> bytes:
        """Say who sends."""
        return self._header + body

    def open(self, packet: bytes) -> tuple[int, bytes]:
        """Read who claims to have sent it."""
        if len(packet) <= self.overhead or packet[0] != _OPEN:
            raise Refused("sealed" if packet[:1] == bytes([_SEALED]) else "no-packet")
        return _PLAIN_HEADER.unpack_from(packet)[1], packet[self.overhead :]


class _Heard:
    """What was accepted of one sender's newest session."""

    __slots__ = ("ciphers", "highest", "seen", "session")

    def __init__(self, session: int) -> None:
        self.session, self.highest, self.seen = session, -1, 0
        self.ciphers: dict[int, AESGCM] = {}  # by key id

    def repeated(self, counter: int) -> bool:
        """Say whether a counter was seen, or is too old to tell."""
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

    def __init__(self, group: str, sender: int, session: int, keys: Sequence[bytes]) -> None:
        from cryptography.exceptions import InvalidTag

        self._group, self._sender, self._session, self._invalid = group.encode(), sender, session, InvalidTag
        self._counter = 0
        self._heard: dict[int, _Heard] = {}
        self.set_keys(keys)

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Seal with the first key from now on, and accept all of them."""
        checked = check_keys(keys)
        self._keys = {sha256(b"antiphon key id" + key).digest()[0]: key for key in checked}
        if len(self._keys) < len(checked):
            raise UsageError("key: two of the keys cannot be told apart; draw a new one")
        for heard in self._heard.values():
            heard.ciphers = {name: cipher for name, cipher in heard.ciphers.items() if name in self._keys}
        self._key_id = next(iter(self._keys))
        self._seal = self._cipher(self._key_id, self._sender, self._session).encrypt

    def seal(self, body: bytes) -> bytes:
        """Encrypt a body and prove where it comes from."""
        counter = self._counter
        self._counter = counter + 1
        header = _HEADER.pack(_SEALED, self._key_id, self._sender, self._session, counter)
        return header + self._seal(counter.to_bytes(12, "big"), body, header)

    def open(self, packet: bytes) -> tuple[int, bytes]:
        """Give the sender and the body, if it is proven, new and of the sender's newest session."""
        if len(packet) <= self.overhead or packet[0] != _SEALED:
            raise Refused("unsealed" if packet[:1] == bytes([_OPEN]) else "no-packet")
        header = packet[: _HEADER.size]
        _, key_id, sender, session, counter = _HEADER.unpack(header)
        heard = self._heard.get(sender)
        if heard is None or session > heard.session:
            if sender == self._sender and session == self._session:
                raise Refused("own-name")
            heard = _Heard(session)  # remembered only if the packet is proven
        elif session < heard.session:
            raise Refused("old-session")
        elif counter <= heard.highest and heard.repeated(counter):
            raise Refused("replayed")
        cipher = heard.ciphers.get(key_id)
        if cipher is None:
            if key_id not in self._keys:
                raise Refused("unknown-key")
            cipher = self._cipher(key_id, sender, session)
        try:
            body = cipher.decrypt(counter.to_bytes(12, "big"), packet[_HEADER.size :], header)
        except self._invalid:
            raise Refused("forged") from None
        if counter == heard.highest + 1:  # as nearly always
            heard.highest, heard.seen = counter, (heard.seen << 1) & _SEEN_MASK | 1
        else:
            heard.note(counter)
        heard.ciphers[key_id] = cipher
        self._heard[sender] = heard
        return sender, body

    def _cipher(self, key_id: int, sender: int, session: int) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._keys[key_id]
        about = b"antiphon/1" + struct.pack(">HQ", sender, session) + self._group
        return AESGCM(hmac.digest(key, about, sha256)[: len(key)])


def check_keys(keys: Sequence[bytes]) -> list[bytes]:
    """Raise a `UsageError` unless these can be group keys."""
    if not keys:
        raise UsageError("key: give at least one")
    for key in keys:
        if not isinstance(key, bytes):
            raise UsageTypeError(f"key: 16, 24 or 32 random bytes (os.urandom(16)), not {type(key).__name__}")
        if len(key) not in KEY_LENGTHS:
            raise UsageError(f"key: 16, 24 or 32 random bytes (os.urandom(16)), not {len(key)} bytes")
    return list(dict.fromkeys(keys))


def open_session(group: str, sender: int, session: int, keys: Sequence[bytes] | None) -> PlainSession | SealedSession:
    """Begin the session of a member, sealed if there is a key."""
    if keys is None:
        return PlainSession(sender)
    check_keys(keys)
    try:
        return SealedSession(group, sender, session, keys)
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
        """Ask whoever lives at an address to answer to the one that packets from here to there come from."""
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
