"""Packet bodies: small protocol datagrams share one, and one that is too large goes in fragments.

Of forty fragments, one is easily lost. Missing fragments are asked for one by one, for a short while: without this, the
protocol above would have to send the whole datagram again.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.protocol.fragment import HEADER_BYTES, Fragment, Fragmenter, Reassembler
from antiphon.protocol.machine import MILLISECOND, Instant
from antiphon.protocol.timers import jittered
from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, Malformed

UNFINISHED_MAX: Final = 32  # datagrams per sender that are being put together
FINISHED_MAX: Final = 64  # datagrams per sender that are known to be done with
KEPT_MAX: Final = 64  # datagrams that were cut, whose fragments can be sent again
ASK_NS: Final = 3 * MILLISECOND  # reordering mends itself
ASK_NS_MAX: Final = 24 * MILLISECOND
TRIES_MAX: Final = 8
FRAGMENTS_PER_DATAGRAM_MAX: Final = DATAGRAM_BYTES_MAX // 400  # of a datagram, however small packets are

WHOLE, _SEVERAL, _FRAGMENT, _AGAIN = range(4)  # the first byte of a body
_WHOLE_MARK, _SEVERAL_MARK, _FRAGMENT_MARK = bytes([WHOLE]), bytes([_SEVERAL]), bytes([_FRAGMENT])
_SEVERAL_OVERHEAD: Final = 4  # kind, msgpack's array 16
_EACH_OVERHEAD: Final = 3  # msgpack's bin 16
_AGAIN_HEADER: Final = struct.Struct("<BI")  # kind, datagram; then two bytes for each index
_encode_several = msgspec.msgpack.Encoder().encode
_decode_several = msgspec.msgpack.Decoder(list[bytes]).decode


class PacketCodec:
    """Turns protocol datagrams into packet bodies of at most `size` bytes, and back."""

    def __init__(self, size: int, chance: random.Random, overhead: int = 0) -> None:
        self.size = size  # may change at any time
        self.overhead = overhead  # of a packet beside its body
        self._fragmenter = Fragmenter(first=chance.getrandbits(32), kept_max=KEPT_MAX)
        self._reassembler = Reassembler(
            unfinished_max=UNFINISHED_MAX,
            bytes_max=UNFINISHED_MAX * DATAGRAM_BYTES_MAX,
            finished_max=FINISHED_MAX,
            ask_ns=ASK_NS,
            ask_ns_max=ASK_NS_MAX,
            tries_max=TRIES_MAX,
            jitter=lambda pause_ns: jittered(chance, pause_ns),
        )
        self._nonsense = 0
        self.answers: list[tuple[int, bytes]] = []  # (to whom, body): fragments that were asked for

    @property
    def broken(self) -> int:
        """How many datagrams were begun and never became whole, or made no sense."""
        return self._nonsense + self._reassembler.abandoned

    def encode(self, datagrams: Sequence[bytes]) -> list[bytes]:
        """Return the bodies that carry these datagrams to the same receivers."""
        if len(datagrams) == 1 and len(datagrams[0]) < self.size:
            return [_WHOLE_MARK + datagrams[0]]
        bodies: list[bytes] = []
        small: list[bytes] = []
        room = self.size - _SEVERAL_OVERHEAD
        for datagram in datagrams:
            size = len(datagram) + _EACH_OVERHEAD
            if size > self.size - _SEVERAL_OVERHEAD:
                bodies += self._alone(datagram)
                continue
            if size > room:
                bodies.append(_together(small))
                small, room = [], self.size - _SEVERAL_OVERHEAD
            small.append(datagram)
            room -= size
        if small:
            bodies.append(_together(small))
        return bodies

    def _alone(self, datagram: bytes) -> list[bytes]:
        if len(datagram) < self.size:
            return [_WHOLE_MARK + datagram]
        size = self.size - 1 - HEADER_BYTES
        return [_FRAGMENT_MARK + fragment.encode() for fragment in self._fragmenter.cut(datagram, size)]

    def decode(self, sender: int, body: bytes, now: Instant) -> Sequence[bytes]:
        """Return the datagrams that are complete with this body; nonsense gives none."""
        try:
            kind = body[0]
            if kind == WHOLE:
                return (body[1:],)
            if kind == _SEVERAL:
                return _decode_several(memoryview(body)[1:])
            if kind == _FRAGMENT:
                return self._reassemble(sender, body, now)
            if kind == _AGAIN:
                self._answer(sender, body)
                return ()
        except (IndexError, struct.error, msgspec.MsgspecError, Malformed):
            pass
        self._nonsense += 1
        return ()

    def _reassemble(self, sender: int, body: bytes, now: Instant) -> Sequence[bytes]:
        fragment = Fragment.decode(body, 1)
        if fragment.count > FRAGMENTS_PER_DATAGRAM_MAX or not fragment.data:
            raise Malformed("fragment")
        whole = self._reassembler.add(sender, fragment, now)
        return () if whole is None else (whole,)

    # Fragments that were lost

    def requests(self, now: Instant) -> list[tuple[int, bytes]]:
        """Return the requests for missing fragments that are due, each with the member that it is for."""
        return [
            (sender, _AGAIN_HEADER.pack(_AGAIN, number) + struct.pack(f"<{len(indices)}H", *indices))
            for sender, number, indices in self._reassembler.requests(now)
        ]

    @property
    def waits(self) -> bool:
        """Whether anything is unfinished."""
        return self._reassembler.waits

    def forget(self, sender: int) -> None:
        """Drop all that is known of a member that is gone."""
        self._reassembler.forget(sender)

    def _answer(self, sender: int, body: bytes) -> None:
        _, number = _AGAIN_HEADER.unpack_from(body)
        indices = {index for (index,) in struct.iter_unpack("<H", body[_AGAIN_HEADER.size :])}
        self.answers += [
            (sender, _FRAGMENT_MARK + fragment.encode()) for fragment in self._fragmenter.again(number, sorted(indices))
        ]


def together_bytes(datagrams: Sequence[bytes]) -> int:
    """Return how many bytes the body has, at most, that carries all of these."""
    return _SEVERAL_OVERHEAD + _EACH_OVERHEAD * len(datagrams) + sum(map(len, datagrams))


def _together(datagrams: list[bytes]) -> bytes:
    return _WHOLE_MARK + datagrams[0] if len(datagrams) == 1 else _SEVERAL_MARK + _encode_several(datagrams)
