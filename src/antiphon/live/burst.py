"""Bursts: many application messages in one protocol message, and protocol datagrams cut to the network's size.

A burst is the protocol's unit: all that was submitted in one turn of the loop gets one number, one acknowledgment,
one place in the order. A message that is too large for one burst goes in parts, each a burst of its own; its place is
that of its last part. Below, protocol datagrams to the same receivers share
packets, and what is larger than a packet is cut and put together again, within limits.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from antiphon.protocol.machine import MILLISECOND, Instant
from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, PAYLOAD_BYTES_MAX

BURST_BYTES_MAX: Final = 55_000
BURST_BYTES_MIN: Final = 1_100  # one packet: the best that a lossy network gets
MESSAGE_OVERHEAD_BYTES: Final = 5  # of msgpack, at most
UNFINISHED_MAX: Final = 32  # datagrams per sender that are being put together
FINISHED_MAX: Final = 64  # datagrams per sender that are known to be done with
KEPT_MAX: Final = 64  # datagrams that were cut, whose pieces can be sent again
ASK_NS: Final = 3 * MILLISECOND  # reordering mends itself
TRIES_MAX: Final = 8


class Burst(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """What one protocol message carries."""

    part: int  # 0, or which part of a large message this is
    more: bool  # whether the message goes on in the sender's next burst
    messages: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Burst).decode


def whole(messages: list[bytes]) -> bytes:
    """Encode a burst of whole messages."""
    return _encode(Burst(0, False, messages))


def parts(message: bytes, size: int) -> Iterator[bytes]:
    """Encode one large message as bursts of at most `size` bytes of it."""
    last = (len(message) - 1) // size
    for part in range(last + 1):
        yield _encode(Burst(part, part < last, [message[part * size : (part + 1) * size]]))


class Joiner:
    """Takes bursts apart, and puts the parts of each sender's large messages together."""

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._parts: dict[int, list[bytes]] = {}  # by sender
        self._bytes: dict[int, int] = {}  # by sender, the length of its parts
        self.broken = 0  # bursts or messages that could not be used

    def messages(self, sender: int, payload: bytes) -> list[bytes]:
        """Give the messages that are complete with this burst."""
        try:
            burst = _decode(payload)
        except msgspec.MsgspecError:
            self.broken += 1
            return []
        if not burst.part and not burst.more and not self._parts:
            return burst.messages  # as nearly always
        return self._join(sender, burst)

    def _join(self, sender: int, burst: Burst) -> list[bytes]:
        messages = burst.messages
        parts = self._parts.pop(sender, None)
        if not burst.part:
            parts = []  # a message that did not go on was given up
        elif parts is None or len(parts) != burst.part or not messages:
            self.broken += 1  # it began before this member was there, or a part of it was discarded
            return []
        assert parts is not None
        if burst.more and len(messages) == 1:
            parts.append(messages[0])
            size = self._bytes.get(sender, 0) * bool(burst.part) + len(messages[0])
            if size > self._message_bytes_max:
                self.broken += 1
            else:
                self._parts[sender], self._bytes[sender] = parts, size
            return []
        if parts:
            messages[0] = b"".join((*parts, messages[0]))
        return messages

    def keep_only(self, senders: Iterable[int]) -> None:
        """Forget what members that are gone left unfinished."""
        here = set(senders)
        self._parts = {sender: parts for sender, parts in self._parts.items() if sender in here}

    def unfinished(self) -> dict[int, list[bytes]]:
        """Give what has begun, for one who joins now."""
        return {sender: list(parts) for sender, parts in self._parts.items()}

    def adopt(self, unfinished: dict[int, list[bytes]]) -> None:
        """Go on from what another member had."""
        self._parts = unfinished
        self._bytes = {sender: sum(map(len, parts)) for sender, parts in unfinished.items()}


class BurstSize:
    """How large a burst may be: halved when the network loses, since one lost packet loses the burst."""

    def __init__(self, bytes_max: int = BURST_BYTES_MAX) -> None:
        assert bytes_max + 64 <= PAYLOAD_BYTES_MAX
        self._bytes_max = bytes_max
        self._repairs = 0
        self._settled = False  # before the first loss it grows fast
        self.bytes = min(8 * BURST_BYTES_MIN, bytes_max)

    def sent(self, repairs: int) -> None:
        """Hear, when a burst is sent, how often a copy was needed so far."""
        if repairs > self._repairs:
            self._repairs, self._settled = repairs, True
            self.bytes = max(min(BURST_BYTES_MIN, self._bytes_max), self.bytes // 2)
        elif self.bytes < self._bytes_max:
            self.bytes = min(self._bytes_max, self.bytes + (max(64, self.bytes // 32) if self._settled else self.bytes))


_ONE, _SEVERAL, _PIECE, _AGAIN = range(4)  # the first byte of a body
_ONE_MARK, _SEVERAL_MARK = bytes([_ONE]), bytes([_SEVERAL])
_PIECE_HEADER: Final = struct.Struct("<BIHH")  # kind, datagram, index, count
_SEVERAL_OVERHEAD: Final = 4  # kind, msgpack's array 16
_EACH_OVERHEAD: Final = 3  # msgpack's bin 16
_AGAIN_HEADER: Final = struct.Struct("<BI")  # kind, datagram; then two bytes for each index
_decode_several = msgspec.msgpack.Decoder(list[bytes]).decode


class _Unfinished(msgspec.Struct):
    """A datagram of which pieces are missing."""

    ask_at: Instant
    tries: int = 0
    pieces: dict[int, bytes] = {}


class Cutter:
    """Turns protocol datagrams into packet bodies of at most `size` bytes, and back.

    Of forty pieces one is soon lost, so the pieces that are missing are asked for one by one, for a short while: the
    protocol above, which recovers whatever is lost for longer, would have to send the whole datagram again.
    """

    def __init__(self, size: int, first: int) -> None:
        self._size, self._piece = size, size - _PIECE_HEADER.size
        self._number = first  # of the next datagram that is cut; any start will do
        self._count_max = -(-DATAGRAM_BYTES_MAX // self._piece)
        self._kept: deque[tuple[int, list[bytes]]] = deque(maxlen=KEPT_MAX)  # what was cut last
        self._unfinished: dict[int, dict[tuple[int, int], _Unfinished]] = {}  # by sender, by datagram and its count
        self._finished: dict[int, deque[tuple[int, int]]] = {}  # by sender, the last ones
        self.answers: list[tuple[int, bytes]] = []  # (to whom, body): pieces that were asked for
        self.abandoned = 0

    def cut(self, datagrams: Sequence[bytes]) -> list[bytes]:
        """Give the bodies that carry these datagrams to the same receivers."""
        bodies: list[bytes] = []
        small: list[bytes] = []
        room = self._size - _SEVERAL_OVERHEAD
        for datagram in datagrams:
            size = len(datagram) + _EACH_OVERHEAD
            if size > self._size - _SEVERAL_OVERHEAD:
                bodies += self._pieces(datagram)
                continue
            if size > room:
                bodies.append(_together(small))
                small, room = [], self._size - _SEVERAL_OVERHEAD
            small.append(datagram)
            room -= size
        if small:
            bodies.append(_together(small))
        return bodies

    def _pieces(self, datagram: bytes) -> list[bytes]:
        if len(datagram) < self._size:
            return [_together([datagram])]
        self._number = number = (self._number + 1) & 0xFFFFFFFF
        piece, count = self._piece, -(-len(datagram) // self._piece)
        bodies = [
            _PIECE_HEADER.pack(_PIECE, number, index, count) + datagram[index * piece : (index + 1) * piece]
            for index in range(count)
        ]
        self._kept.append((number, bodies))
        return bodies

    def join(self, sender: int, body: bytes, now: Instant) -> Sequence[bytes]:
        """Give the datagrams that are complete with this body; nonsense gives none."""
        kind = body[0] if body else None
        if kind == _PIECE and len(body) > _PIECE_HEADER.size:
            return self._join_piece(sender, body, now)
        if kind == _ONE:
            return (body[1:],)
        if kind == _AGAIN and len(body) >= _AGAIN_HEADER.size:
            self._answer(sender, body)
            return ()
        if kind == _SEVERAL:
            try:
                return _decode_several(memoryview(body)[1:])
            except msgspec.MsgspecError:
                pass
        self.abandoned += 1
        return ()

    def _join_piece(self, sender: int, body: bytes, now: Instant) -> Sequence[bytes]:
        _, number, index, count = _PIECE_HEADER.unpack_from(body)
        if not index < count <= self._count_max:
            self.abandoned += 1
            return ()
        key = number, count
        unfinished = self._unfinished.setdefault(sender, {})
        begun = unfinished.get(key)
        if begun is None:
            finished = self._finished.setdefault(sender, deque(maxlen=FINISHED_MAX))
            if key in finished:
                return ()
            if len(unfinished) == UNFINISHED_MAX:
                self._abandon(sender, next(iter(unfinished)))
            begun = unfinished[key] = _Unfinished(now + ASK_NS)
        begun.pieces[index] = body[_PIECE_HEADER.size :]
        if len(begun.pieces) < count:
            return ()
        del unfinished[key]
        self._finished[sender].append(key)
        return (b"".join(map(begun.pieces.__getitem__, range(count))),)

    def _abandon(self, sender: int, key: tuple[int, int]) -> None:
        del self._unfinished[sender][key]
        self._finished[sender].append(key)  # a piece that comes late must not begin it anew
        self.abandoned += 1

    def asks(self, now: Instant) -> list[tuple[int, bytes]]:
        """Give the requests for missing pieces that are due, each with the member that it is for."""
        asks: list[tuple[int, bytes]] = []
        for sender, unfinished in self._unfinished.items():
            for key, begun in list(unfinished.items()):
                if begun.ask_at > now:
                    continue
                if begun.tries == TRIES_MAX:
                    self._abandon(sender, key)
                    continue
                begun.tries += 1
                begun.ask_at = now + ASK_NS * (1 + begun.tries)
                missing = [index for index in range(key[1]) if index not in begun.pieces]
                asks.append((sender, _AGAIN_HEADER.pack(_AGAIN, key[0]) + struct.pack(f"<{len(missing)}H", *missing)))
        return asks

    @property
    def waits(self) -> bool:
        """Whether anything is unfinished."""
        return any(self._unfinished.values())

    def _answer(self, sender: int, body: bytes) -> None:
        number = _AGAIN_HEADER.unpack_from(body)[1]
        bodies = next((bodies for kept, bodies in self._kept if kept == number), None)
        indices = body[_AGAIN_HEADER.size :]
        if bodies is None or len(indices) % 2 or len(indices) > 2 * len(bodies):
            return
        for (index,) in struct.iter_unpack("<H", indices):
            if index < len(bodies):
                self.answers.append((sender, bodies[index]))


def _together(datagrams: list[bytes]) -> bytes:
    return _ONE_MARK + datagrams[0] if len(datagrams) == 1 else _SEVERAL_MARK + msgspec.msgpack.encode(datagrams)
