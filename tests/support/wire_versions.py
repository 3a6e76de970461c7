"""Versions of the wire that no release has: as different from the second as a later one may be, for tests."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final
from zlib import crc32

from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, HEADER_BYTES, VERSIONS, Codec, Header, Malformed, Pdu

_INVERTED = bytes(255 - byte for byte in range(256))
_MARK = struct.Struct(">BHI")  # the version, how many PDUs, how many bytes


class ThirdCodec(Codec):
    """Has a longer header, and PDUs of which the second version understands nothing: every bit is inverted."""

    version = 3
    overhead = HEADER_BYTES + _MARK.size
    written: ClassVar[int] = 0

    def __init__(self, pdus: Iterable[type[Pdu]]) -> None:
        super().__init__(pdus)
        plain = self.encode_pdu
        self.encode_pdu = lambda pdu: plain(pdu).translate(_INVERTED)

    def decode_pdu(self, encoded: bytes) -> Pdu:
        return super().decode_pdu(encoded.translate(_INVERTED))

    @classmethod
    def frame(cls, header: Header, pdus: Sequence[bytes]) -> bytes:  # type: ignore[override]
        cls.written += 1
        start = Codec.frame(header, ())[4:HEADER_BYTES]
        rest = b"".join((start, _MARK.pack(cls.version, len(pdus), sum(map(len, pdus))), *pdus))
        return crc32(rest).to_bytes(4, "little") + rest

    def decode(self, datagram: bytes) -> tuple[Header, list[Pdu]]:
        if len(datagram) > DATAGRAM_BYTES_MAX:
            raise Malformed("oversized")
        if len(datagram) < self.overhead:
            raise Malformed("truncated")
        if crc32(datagram[4:]).to_bytes(4, "little") != datagram[:4]:
            raise Malformed("checksum")
        mark, count, size = _MARK.unpack_from(datagram, HEADER_BYTES)
        if mark != self.version or size != len(datagram) - self.overhead:
            raise Malformed("undecodable")
        rest = (
            datagram[4:HEADER_BYTES] + struct.pack(">BH", 0xDC, count) + datagram[self.overhead :].translate(_INVERTED)
        )
        return super().decode(crc32(rest).to_bytes(4, "little") + rest)


class FourthCodec(ThirdCodec):
    """The same, with another number."""

    version = 4


CODECS: Final[dict[int, type[Codec]]] = {2: Codec, 3: ThirdCodec, 4: FourthCodec}


def release(*versions: int) -> None:
    """From now on, who joins is of a release that knows these versions; `VERSIONS` is to be restored after the test."""
    VERSIONS.clear()
    VERSIONS.update({version: CODECS[version] for version in versions})


class DrawnReleases(Mapping[int, type[Codec]]):
    """In place of `VERSIONS`: each that joins is of the one release or of the other, by chance."""

    def __init__(self, seed: int, *releases: tuple[int, ...]) -> None:
        self._chance, self._releases = random.Random(f"{seed}/releases"), releases

    def __iter__(self) -> Iterator[int]:
        return iter(self._chance.choice(self._releases))

    def __getitem__(self, version: int) -> type[Codec]:
        return CODECS[version]

    def __len__(self) -> int:
        return len(CODECS)
