"""Vectors of counters on the wire: whole, 4 bytes an entry, or only what changed since a base that both sides know.

The PDU that carries a vector says which it is. A change is a list of runs: how many entries to skip, how many follow,
and these in 1 byte each, or in 4 where one of the run is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from antiphon.protocol.wire import Malformed

Numbers: TypeAlias = npt.NDArray[np.int64]

_COUNTER_MAX: Final = 2**32 - 1
_BYTE_MAX: Final = 255
_ON_THE_WIRE: Final = np.dtype("<u4")


def pack_whole(numbers: Numbers) -> bytes:
    """Put a vector on the wire, 4 bytes an entry."""
    return numbers.astype(_ON_THE_WIRE).tobytes()


def unpack_whole(packed: bytes, count: int) -> Numbers:
    """Take a vector of exactly `count` entries from the wire."""
    if len(packed) != 4 * count:
        raise Malformed("vector-length")
    return np.frombuffer(packed, _ON_THE_WIRE).astype(np.int64)


def pack_change(increments: Numbers) -> bytes:
    """Put increments on the wire; most are zero.

    >>> pack_change(np.array([0, 0, 3, 1, 0, 700])).hex()
    '020403010103bc020000'
    """
    return _pack_runs(increments, np.flatnonzero(increments))


def unpack_change(packed: bytes, count: int) -> Numbers:
    """Take increments for a vector of `count` entries from the wire."""
    increments = np.zeros(count, np.int64)
    for at, values in _runs(packed, count):
        increments[at : at + len(values)] = values
    return increments


def pack_some(numbers: Numbers, which: npt.NDArray[np.bool_]) -> bytes:
    """Put some entries on the wire by their last byte alone, for one who knows a not much smaller number for each.

    That is always shorter than the whole vector: an entry takes three bytes at most, with the run that it stands in.
    """
    return _pack_runs(numbers & _BYTE_MAX, np.flatnonzero(which))


def unpack_some(packed: bytes, floor: Numbers) -> Numbers:
    """Take some entries from the wire, the others from the floor.

    An entry is the least number with that last byte that is not below the floor. The true number is one of those, so
    the result is never too high.
    """
    numbers = floor.copy()
    for at, values in _runs(packed, len(floor)):
        known = floor[at : at + len(values)]
        numbers[at : at + len(values)] = known + ((values - known) & _BYTE_MAX)
    return numbers


def changed(base: Numbers, increments: Numbers) -> Numbers:
    """Add increments to their base; no counter goes past 4 bytes."""
    result: Numbers = base + increments
    if result.max(initial=0) > _COUNTER_MAX:
        raise Malformed("impossible-number")
    return result


def _append_varint(packed: bytearray, value: int) -> None:
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)


def _take_varint(packed: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(packed) or shift > 28:
            raise Malformed("vector-length")
        byte = packed[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _pack_runs(values: Numbers, chosen: npt.NDArray[np.intp]) -> bytes:
    if not len(chosen):
        return b""
    packed, position = bytearray(), 0
    for run in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1):
        first, entries = int(run[0]), values[run]
        wide = bool(entries.max() > _BYTE_MAX)
        _append_varint(packed, first - position)
        _append_varint(packed, 2 * len(run) + wide)
        packed += entries.astype("<u4" if wide else "u1").tobytes()
        position = first + len(run)
    return bytes(packed)


def _runs(packed: bytes, count: int) -> Iterator[tuple[int, Numbers]]:
    """Give each run as the index where it begins, and its entries."""
    at = position = 0
    while at < len(packed):
        skip, at = _take_varint(packed, at)
        length, at = _take_varint(packed, at)
        length, wide = length >> 1, length & 1
        position += skip
        end = at + length * (4 if wide else 1)
        if not length or position + length > count or end > len(packed):
            raise Malformed("vector-length")
        yield position, np.frombuffer(packed[at:end], "<u4" if wide else "u1").astype(np.int64)
        at, position = end, position + length
