"""Cutting what is too large into numbered fragments, and reassembling it within bounds.

A fragment says to what it belongs (`number`, chosen by whoever cuts), which one it is and how many there are. The
receiver keeps what is unfinished, up to a bound for each source. What is given up is counted, and late fragments do not
begin it anew.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Self

import msgspec

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.timers import Backoff, Jitter
from antiphon.protocol.wire import Malformed

_HEADER: Final = struct.Struct("<IHH")  # number, index, count
HEADER_BYTES: Final = _HEADER.size
FRAGMENTS_MAX: Final = 65_535
NUMBERS: Final = 2**32


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """One of `count` parts of something."""

    number: int
    index: int
    count: int
    data: bytes

    def encode(self) -> bytes:
        """Return the fragment as bytes: a header of `HEADER_BYTES`, then the data."""
        return _HEADER.pack(self.number, self.index, self.count) + self.data

    @classmethod
    def decode(cls, encoded: bytes, start: int = 0) -> Self:
        """Read a fragment from `encoded[start:]`; `Malformed` if there is none."""
        if len(encoded) < start + _HEADER.size:
            raise Malformed("fragment")
        number, index, count = _HEADER.unpack_from(encoded, start)
        return cls(number, index, count, encoded[start + _HEADER.size :])


def cut(data: bytes, size: int, number: int) -> list[Fragment]:
    """Cut data into fragments of at most `size` bytes; there is at least one."""
    count = max(1, -(-len(data) // size))
    if count > FRAGMENTS_MAX:
        raise ValueError(f"{len(data)} bytes are more than {FRAGMENTS_MAX} fragments of {size}")
    return [Fragment(number, index, count, data[index * size : (index + 1) * size]) for index in range(count)]


class Fragmenter:
    """Numbers what it cuts, and keeps the last few to send fragments of them again."""

    def __init__(self, *, first: int = 0, kept_max: int = 0) -> None:
        self._number = first % NUMBERS  # any start will do
        self._kept: deque[list[Fragment]] = deque(maxlen=kept_max)

    def cut(self, data: bytes, size: int) -> list[Fragment]:
        """Cut data into fragments of at most `size` bytes under the next number."""
        self._number = (self._number + 1) % NUMBERS
        fragments = cut(data, size, self._number)
        self._kept.append(fragments)
        return fragments

    def again(self, number: int, indices: Iterable[int]) -> list[Fragment]:
        """Return those fragments, if they are kept and exist."""
        fragments = next((kept for kept in self._kept if kept[0].number == number), [])
        return [fragments[index] for index in indices if index < len(fragments)]


class _Unfinished:
    """What lacks some of its fragments."""

    def __init__(self, again: Backoff | None) -> None:
        self.data: dict[int, bytes] = {}  # by index
        self.bytes = 0
        self.again = again


class Reassembler:
    """Puts the fragments of each source together again, in whatever order they come.

    Of each source it keeps at most `unfinished_max` things of at most `bytes_max` bytes together, and gives up the
    oldest first. With `ask_ns`, `requests` says which fragments to ask for, at growing pauses, `tries_max` times.
    """

    def __init__(
        self,
        *,
        unfinished_max: int,
        bytes_max: int,
        finished_max: int = 0,
        ask_ns: Duration | None = None,
        ask_ns_max: Duration = 0,
        tries_max: int = 0,
        jitter: Jitter = lambda pause_ns: pause_ns,
    ) -> None:
        self._unfinished_max, self._bytes_max, self._finished_max = unfinished_max, bytes_max, finished_max
        self._ask_ns, self._ask_ns_max, self._tries_max, self._jitter = ask_ns, ask_ns_max, tries_max, jitter
        self._unfinished: dict[int, dict[tuple[int, int], _Unfinished]] = {}  # by source, by number and count
        self._bytes: dict[int, int] = {}  # by source, of what is unfinished
        self._finished: dict[int, deque[tuple[int, int]]] = {}  # by source: complete or given up
        self.abandoned = 0  # things that were begun and given up

    def add(self, source: int, fragment: Fragment, now: Instant = 0) -> bytes | None:
        """Take a fragment; return what is complete with it. `Malformed` if there can be no such fragment."""
        index, count, data = fragment.index, fragment.count, fragment.data
        if not 0 <= index < count:
            raise Malformed("fragment")
        if count == 1:
            return data
        key = fragment.number, count
        unfinished = self._unfinished.setdefault(source, {})
        begun = unfinished.get(key)
        if begun is None:
            if key in self._finished.get(source, ()):
                return None
            begun = self._begin(source, key, now)
        elif index in begun.data:
            return None
        begun.data[index] = data
        begun.bytes += len(data)
        self._bytes[source] = self._bytes.get(source, 0) + len(data)
        if len(begun.data) == count:
            self._end(source, key)
            return b"".join(map(begun.data.__getitem__, range(count)))
        while self._bytes[source] > self._bytes_max:
            self.abandon(source, next(iter(unfinished)))
        return None

    def _begin(self, source: int, key: tuple[int, int], now: Instant) -> _Unfinished:
        unfinished = self._unfinished[source]
        if len(unfinished) >= self._unfinished_max:
            self.abandon(source, next(iter(unfinished)))
        again = None
        if self._ask_ns is not None:
            again = Backoff(self._jitter, self._ask_ns, max(self._ask_ns, self._ask_ns_max))
            again.start(now)
        begun = unfinished[key] = _Unfinished(again)
        return begun

    def _end(self, source: int, key: tuple[int, int]) -> None:
        self._bytes[source] -= self._unfinished[source].pop(key).bytes
        self._finished.setdefault(source, deque(maxlen=self._finished_max)).append(key)

    def abandon(self, source: int, key: tuple[int, int]) -> None:
        """Give something up, by its number and count."""
        self._end(source, key)
        self.abandoned += 1

    def requests(self, now: Instant) -> list[tuple[int, int, Sequence[int]]]:
        """Return the source, the number and the indices of what is due to be asked for; give up what is hopeless."""
        requests: list[tuple[int, int, Sequence[int]]] = []
        for source, unfinished in self._unfinished.items():
            for key, begun in list(unfinished.items()):
                if begun.again is None or not begun.again.over(now):
                    continue
                if begun.again.tries > self._tries_max:
                    self.abandon(source, key)
                else:
                    requests.append((source, key[0], [index for index in range(key[1]) if index not in begun.data]))
        return requests

    @property
    def waits(self) -> bool:
        """Whether anything is unfinished."""
        return any(self._unfinished.values())

    def unfinished(self, source: int) -> dict[tuple[int, int], dict[int, bytes]]:
        """Return what has come of each unfinished whole of a source: (number, count) to index to data."""
        return {key: dict(begun.data) for key, begun in self._unfinished.get(source, {}).items()}

    def sources(self) -> list[int]:
        """List the sources of which something is kept."""
        return list(self._unfinished)

    def forget(self, source: int) -> None:
        """Drop all that is known of a source that is gone."""
        self._unfinished.pop(source, None)
        self._bytes.pop(source, None)
        self._finished.pop(source, None)
