"""Frames and their codec: what members say to one another, and the limits of what they listen to.

A datagram is a fixed header and a list of protocol data units (PDUs), each a tagged msgspec array. Every protocol
declares its own PDUs beside its rules; a `Codec` is built from those of the parts that a member is composed of, so
that a datagram can only hold what some part understands. The checksum is there because a datagram that was damaged
on its way must change nothing.

The wire has versions. A release knows some of them, one codec each (`VERSIONS`), and says so in its handshakes; those
who know none in common do not hear each other. What is the same in every version is how a packet, a hello and a
handshake begin, and the checksum and the tag that a datagram begins with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, TypeAlias, Union
from zlib import crc32

import msgspec

from antiphon.errors import AntiphonError, LocalProtocolError

DATAGRAM_BYTES_MAX: Final = 65_507
PAYLOAD_BYTES_MAX: Final = 60_000
PDUS_MAX: Final = 4_096
VECTOR_ENTRIES_MAX: Final = 131_072  # members of the largest group
NUMBER_MAX: Final = 2**32 - 1

Counter: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)]  # sequence numbers start at 1
Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=VECTOR_ENTRIES_MAX)]
Timestamp: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Payload: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=PAYLOAD_BYTES_MAX)]
Vector: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=4 * VECTOR_ENTRIES_MAX)]  # 4 bytes an entry, little-endian


class Exhausted(LocalProtocolError):
    """A number has grown beyond what a datagram can say."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"a stream has reached number {number}, and {NUMBER_MAX} is the highest that a datagram can say: "
            f"numbers start from 1 again in the next view, so let a member leave and join, or start the group anew"
        )


class Malformed(AntiphonError):
    """A datagram that no correct member sends; `reason` is a word for the counters."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Pdu(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """One protocol data unit; `kind` is its name in traces and counters."""

    kind: ClassVar[str] = ""


class Streamed(Pdu):
    """A PDU that travels in its sender's reliable stream; recovery numbers it, stability may stamp it."""

    number: Counter = 0
    stamp: Timestamp = 0


class Data(Streamed, tag=1):
    """An application message in its sender's stream; orderings that need more subclass it with a tag of their own."""

    kind: ClassVar[str] = "data"
    seq: Number = 1
    payload: Payload = b""


class Header(msgspec.Struct, frozen=True, gc=False):
    """What every datagram says of its sender."""

    group: int
    view: int
    sender: int
    sent: int  # highest number of the sender's stream, so that the loss of its last message is noticed
    free: int  # buffer slots that the sender has left


_HEADER = struct.Struct("<IIIIII")  # checksum, group, view, sender, sent, free
HEADER_BYTES: Final = _HEADER.size
_PDU_LIST = struct.Struct(">BH")  # msgpack's array 16
FRAME_OVERHEAD_BYTES: Final = HEADER_BYTES + _PDU_LIST.size


def group_tag(name: str) -> int:
    """Give the four bytes that tell one group's datagrams from another's."""
    return crc32(f"antiphon/{name}".encode())


def group_of(datagram: bytes) -> int:
    """Read only the group's tag of a datagram; it proves nothing about the rest."""
    return int.from_bytes(datagram[4:8], "little")


@lru_cache(maxsize=64)
def _entries(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def pack_vector(vector: Sequence[int]) -> bytes:
    """Put a vector of counters on the wire, 4 bytes an entry."""
    try:
        return _entries(len(vector)).pack(*vector)
    except struct.error:
        raise Exhausted(max(vector)) from None


def unpack_vector(packed: bytes, count: int) -> list[int]:
    """Take a vector of exactly `count` counters from the wire."""
    if len(packed) != 4 * count:
        raise Malformed("vector-length")
    return list(_entries(count).unpack(packed))


class Codec:
    """Encodes and decodes the frames of one composition of parts: version 2 of the wire."""

    version: ClassVar[int] = 2
    overhead: ClassVar[int] = FRAME_OVERHEAD_BYTES  # bytes of a frame beside its PDUs

    def __init__(self, pdus: Iterable[type[Pdu]]) -> None:
        kinds = tuple(dict.fromkeys(pdus))
        union: Any = Union[kinds]  # noqa: UP007 - built at run time from the parts
        self._decoder = msgspec.msgpack.Decoder(Annotated[list[union], msgspec.Meta(max_length=PDUS_MAX)])
        self.encode_pdu: Callable[[Pdu], bytes] = msgspec.msgpack.Encoder().encode  # frames are put together from these

    def decode_pdu(self, encoded: bytes) -> Pdu:
        """Decode one PDU that came by another way than in a frame, or raise `Malformed`."""
        try:
            pdus: list[Pdu] = self._decoder.decode(_PDU_LIST.pack(0xDC, 1) + encoded)
        except (msgspec.MsgspecError, RecursionError):
            raise Malformed("undecodable") from None
        return pdus[0]

    @staticmethod
    def frame(header: Header, pdus: Sequence[bytes]) -> bytes:
        """Put encoded PDUs behind a header."""
        try:
            fields = _HEADER.pack(0, header.group, header.view, header.sender, header.sent, header.free)
        except struct.error:
            raise Exhausted(header.sent) from None
        rest = b"".join((fields[4:], _PDU_LIST.pack(0xDC, len(pdus)), *pdus))
        return crc32(rest).to_bytes(4, "little") + rest

    def decode(self, datagram: bytes) -> tuple[Header, list[Pdu]]:
        """Decode a datagram or raise `Malformed`; allocates no more than the datagram justifies."""
        if len(datagram) > DATAGRAM_BYTES_MAX:
            raise Malformed("oversized")
        if len(datagram) < HEADER_BYTES + _PDU_LIST.size:
            raise Malformed("truncated")
        checksum, group, view, sender, sent, free = _HEADER.unpack_from(datagram)
        content = memoryview(datagram)
        if crc32(content[4:]) != checksum:
            raise Malformed("checksum")
        try:
            pdus: list[Pdu] = self._decoder.decode(content[HEADER_BYTES:])
        except (msgspec.MsgspecError, RecursionError):
            raise Malformed("undecodable") from None
        return Header(group, view, sender, sent, free), pdus


VERSIONS: Final[dict[int, type[Codec]]] = {2: Codec}  # that this release speaks, without a gap; 0.1.0 spoke the first


class Spoken(msgspec.Struct, frozen=True, array_like=True):
    """The versions of the wire that a member speaks: all from the oldest to the newest."""

    oldest: Counter
    newest: Counter

    @classmethod
    def of(cls, versions: Iterable[int]) -> Spoken:
        """Return what a member speaks that knows these versions."""
        return cls(min(versions), max(versions))

    def shares(self, other: Spoken) -> bool:
        """Say whether two members have a version in common.

        Where any two of a group have one, all of it have: versions are intervals.
        """
        return max(self.oldest, other.oldest) <= min(self.newest, other.newest)

    def __str__(self) -> str:
        if self.oldest == self.newest:
            return f"version {self.newest}"
        return f"versions {self.oldest} to {self.newest}"
