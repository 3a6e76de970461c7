"""Bursts: many application messages in one protocol message, and large messages in several.

A burst is the protocol's unit: all that was submitted in one turn of the loop gets one number, one acknowledgment,
one place in the order. A message that is too large for one burst is cut into fragments, each a burst of its own; its
place is that of its last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from antiphon.protocol.fragment import FRAGMENTS_MAX, Fragment, Fragmenter
from antiphon.protocol.membership.views import incarnation_of
from antiphon.protocol.wire import PAYLOAD_BYTES_MAX
from antiphon.trace.payload import payload_texts

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
    incarnation: int = 0  # of its sender when the message that was cut began


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Burst).decode


def encode(burst: Burst) -> bytes:
    """Encode a burst as it was cut."""
    return _encode(burst)


def whole(messages: list[bytes]) -> bytes:
    """Encode a burst of whole messages."""
    return _encode(Burst(0, 0, 1, messages))


def burst_text(payload: bytes) -> str:
    """Return what the messages of a burst say, for the trace."""
    burst = _decode(payload)
    told = payload_texts(burst.messages)
    return told if burst.count == 1 else f"part {burst.index + 1} of {burst.count}: {told}"


class MessageCutter:
    """Numbers a member's large messages, and cuts them into bursts."""

    def __init__(self) -> None:
        self._fragmenter = Fragmenter()

    def cut(self, message: bytes, size: int, incarnation: int = 1) -> list[Burst]:
        """Return bursts of at most `size` bytes of the message, which its sender begins in this incarnation."""
        return [
            Burst(fragment.number, fragment.index, fragment.count, [fragment.data], incarnation)
            for fragment in self._fragmenter.cut(message, size)
        ]


class _Begun(msgspec.Struct):
    """The first parts of a message that is not complete yet."""

    number: int
    count: int
    parts: list[bytes] = []
    bytes: int = 0

    def is_continued_by(self, burst: Burst) -> bool:
        """Return whether a burst brings the next part."""
        return (self.number, self.count, len(self.parts)) == (burst.number, burst.count, burst.index)


class BurstReader:
    """Takes bursts apart, and puts each sender's large messages together again.

    A sender's bursts come in order and without gaps, and nothing of its own lies between the parts of a message. So a
    message whose successor begins before its end was given up by its sender: the send was cancelled, or the group went
    on without the sender, which then sends it anew.
    """

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self._begun: dict[int, _Begun] = {}  # by sender
        self.broken = 0  # bursts that could not be used, since this was last asked for

    def take_broken(self) -> int:
        """Return how many bursts could not be used, and begin anew."""
        broken, self.broken = self.broken, 0
        return broken

    def messages(self, sender: int, payload: bytes) -> list[bytes]:
        """Return the messages that are complete with this burst."""
        try:
            burst = _decode(payload)
        except msgspec.MsgspecError:
            self.broken += 1
            return []
        if burst.count == 1:
            return burst.messages
        if not 0 <= burst.index < burst.count or len(burst.messages) != 1:
            self.broken += 1
            return []
        return self._add(sender, burst)

    def _add(self, sender: int, burst: Burst) -> list[bytes]:
        if burst.index == 0:
            self._begun[sender] = _Begun(burst.number, burst.count)
        begun, data = self._begun.get(sender), burst.messages[0]
        if begun is None or not begun.is_continued_by(burst):
            self._begun.pop(sender, None)
            if burst.incarnation == incarnation_of(sender):
                self.broken += 1  # else its sender's earlier incarnation has begun it, and nobody has all of it
            return []
        if begun.bytes + len(data) > self._bytes_max:
            del self._begun[sender]
            self.broken += 1
            return []
        begun.parts.append(data)
        begun.bytes += len(data)
        if len(begun.parts) < begun.count:
            return []
        del self._begun[sender]
        return [b"".join(begun.parts)]

    def keep_only(self, senders: Iterable[int]) -> None:
        """Forget what members that are gone left unfinished."""
        self._begun = {sender: self._begun[sender] for sender in senders if sender in self._begun}

    def unfinished(self) -> list[tuple[int, Fragment]]:
        """Return what has begun, for one who joins now: fragments, each with its sender."""
        return [
            (sender, Fragment(begun.number, index, begun.count, data))
            for sender, begun in self._begun.items()
            for index, data in enumerate(begun.parts)
        ]

    def adopt(self, unfinished: Iterable[tuple[int, Fragment]]) -> None:
        """Go on from what another member had."""
        self._begun = {}
        for sender, part in unfinished:
            self._add(sender, Burst(part.number, part.index, part.count, [part.data], incarnation_of(sender)))


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
