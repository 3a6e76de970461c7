"""Bursts: many application messages in one protocol message, and large messages in several.

A burst is the protocol's unit: all that was submitted in one turn of the loop gets one number, one acknowledgment,
one place in the order. A message that is too large for one burst is cut into fragments, each a burst of its own; its
place is that of its last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from antiphon.protocol.fragment import FRAGMENTS_MAX, Fragment, Fragmenter, Reassembler
from antiphon.protocol.wire import PAYLOAD_BYTES_MAX, Malformed

BURST_BYTES_MAX: Final = 55_000
BURST_BYTES_MIN: Final = 1_100  # one packet: the best that a lossy network gets
MESSAGE_OVERHEAD_BYTES: Final = 5  # of msgpack, at most
MESSAGE_BYTES_MAX: Final = FRAGMENTS_MAX * BURST_BYTES_MIN  # what can be cut, however small bursts are


class Burst(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """What one protocol message carries: whole messages, or one fragment of a large one."""

    number: int  # of the message that was cut
    index: int
    count: int  # of its fragments; 1: these are whole messages
    messages: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Burst).decode


def encode(burst: Burst) -> bytes:
    """Encode a burst as it was cut."""
    return _encode(burst)


def whole(messages: list[bytes]) -> bytes:
    """Encode a burst of whole messages."""
    return _encode(Burst(0, 0, 1, messages))


class MessageCutter:
    """Numbers a member's large messages, and cuts them into bursts."""

    def __init__(self) -> None:
        self._fragmenter = Fragmenter()

    def cut(self, message: bytes, size: int) -> list[Burst]:
        """Return bursts of at most `size` bytes of the message."""
        return [
            Burst(fragment.number, fragment.index, fragment.count, [fragment.data])
            for fragment in self._fragmenter.cut(message, size)
        ]


class BurstReader:
    """Takes bursts apart, and puts each sender's large messages together again."""

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self._reassembler = Reassembler(unfinished_max=1, bytes_max=message_bytes_max)
        self._broken = 0

    @property
    def broken(self) -> int:
        """How many bursts or messages could not be used."""
        return self._broken + self._reassembler.abandoned

    def messages(self, sender: int, payload: bytes) -> list[bytes]:
        """Return the messages that are complete with this burst."""
        try:
            burst = _decode(payload)
            if burst.count == 1:
                return burst.messages
            (data,) = burst.messages
            whole = self._reassembler.add(sender, Fragment(burst.number, burst.index, burst.count, data))
        except (msgspec.MsgspecError, Malformed, ValueError):
            self._broken += 1
            return []
        if whole is None:
            return []
        if len(whole) > self._bytes_max:
            self._broken += 1
            return []
        return [whole]

    def keep_only(self, senders: Iterable[int]) -> None:
        """Forget what members that are gone left unfinished."""
        here = set(senders)
        for sender in self._reassembler.sources():
            if sender not in here:
                self._reassembler.forget(sender)

    def unfinished(self) -> list[tuple[int, Fragment]]:
        """Return what has begun, for one who joins now: fragments, each with its sender."""
        return [
            (sender, Fragment(number, index, count, data))
            for sender in self._reassembler.sources()
            for (number, count), fragments in self._reassembler.unfinished(sender).items()
            for index, data in fragments.items()
        ]

    def adopt(self, unfinished: Iterable[tuple[int, Fragment]]) -> None:
        """Go on from what another member had."""
        for sender in self._reassembler.sources():
            self._reassembler.forget(sender)
        for sender, fragment in unfinished:
            self._reassembler.add(sender, fragment)


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
