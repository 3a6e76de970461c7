"""The codec: what goes in comes out, and what no correct member sends is refused without cost."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.recovery import Heartbeat, Nack, Recovery
from antiphon.protocol.stability.vector_ack import Report
from antiphon.protocol.wire import (
    DATAGRAM_BYTES_MAX,
    FRAME_OVERHEAD_BYTES,
    PAYLOAD_BYTES_MAX,
    Codec,
    Data,
    Header,
    Malformed,
    Spoken,
    group_tag,
    pack_vector,
    unpack_vector,
)

CODEC = Codec((*Recovery.PDUS, Report))
HEADER = Header(group_tag("g"), 3, 1, 7, 20)
COUNTERS = st.integers(0, 2**32 - 1)


def frame(*pdus: object) -> bytes:
    return Codec.frame(HEADER, [CODEC.encode_pdu(pdu) for pdu in pdus])  # type: ignore[arg-type]


@given(st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1), st.binary(max_size=200), st.lists(COUNTERS, max_size=9))
def test_what_goes_in_comes_out(number: int, seq: int, payload: bytes, vector: list[int]) -> None:
    data = Data(number=number, stamp=5, seq=seq, payload=payload)
    report = Report(1, False, pack_vector(vector), True)
    header, pdus = CODEC.decode(frame(data, report, Heartbeat(), Nack([(1, 2)])))
    assert header == HEADER
    assert pdus == [data, report, Heartbeat(), Nack([(1, 2)])]
    assert unpack_vector(pdus[1].held, len(vector)) == vector  # type: ignore[attr-defined]


def test_every_truncation_is_refused() -> None:
    whole = frame(Data(number=1, seq=1, payload=b"hello"), Report(1, False, pack_vector([1, 2, 3]), False))
    for length in range(len(whole)):
        with pytest.raises(Malformed):
            CODEC.decode(whole[:length])


def test_every_single_bit_flip_is_refused() -> None:
    whole = frame(Data(number=1, seq=1, payload=b"hello"))
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Malformed):
            CODEC.decode(bytes(damaged))


def reframed(body: bytes) -> bytes:
    """Put any bytes behind a header with a right checksum."""
    rest = Codec.frame(HEADER, [])[4:-3] + body
    from zlib import crc32

    return crc32(rest).to_bytes(4, "little") + rest


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xdd\xff\xff\xff\xff", "an array that claims four thousand million entries"),
        (b"\xdc\x00\x01\x93\x01\xc6\xff\xff\xff\xff", "a payload that claims four thousand million bytes"),
        (b"\xdc\x00\x01\x92\x63\x00", "an unknown tag"),
        (b"\xdc\x00\x01\x95\x01\xff\x00\x01\xc4\x00", "a negative number"),
        (b"\x91" * 3000, "nesting without end"),
        (b"\xc1" * 10, "no msgpack"),
    ],
)
def test_nonsense_with_a_right_checksum_is_refused_without_allocating(body: bytes, why: str) -> None:
    datagram = reframed(body)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            CODEC.decode(datagram)
        assert tracemalloc.get_traced_memory()[1] < 100_000, why
    finally:
        tracemalloc.stop()


def test_what_comes_alone_and_is_no_pdu_is_refused() -> None:
    for encoded in (b"", b"\xc1", CODEC.encode_pdu(Heartbeat())[:-1], b"\x91\xcd\xff\xff"):
        with pytest.raises(Malformed, match="undecodable"):
            CODEC.decode_pdu(encoded)
    assert CODEC.decode_pdu(CODEC.encode_pdu(Heartbeat())) == Heartbeat()


def test_limits() -> None:
    with pytest.raises(Malformed, match="oversized"):
        CODEC.decode(bytes(DATAGRAM_BYTES_MAX + 1))
    with pytest.raises(Malformed, match="undecodable"):
        CODEC.decode(frame(Data(number=1, seq=1, payload=bytes(PAYLOAD_BYTES_MAX + 1))))
    with pytest.raises(Malformed, match="undecodable"):
        CODEC.decode(frame(*[Heartbeat()] * 5000))
    with pytest.raises(Malformed, match="vector-length"):
        unpack_vector(bytes(11), 3)
    assert len(frame(Heartbeat())) == FRAME_OVERHEAD_BYTES + len(CODEC.encode_pdu(Heartbeat()))


def test_random_bytes_are_refused() -> None:
    rng = random.Random(1)
    for _ in range(20_000):
        with pytest.raises(Malformed):
            CODEC.decode(rng.randbytes(rng.randrange(0, 200)))


def test_members_understand_each_other_where_their_versions_overlap() -> None:
    assert Spoken.of([3, 2, 4]) == Spoken(2, 4)
    for one, other, shared in (
        (Spoken(1, 2), Spoken(2, 3), True),
        (Spoken(1, 2), Spoken(3, 4), False),
        (Spoken(1, 4), Spoken(2, 3), True),
    ):
        assert one.shares(other) == other.shares(one) == shared
