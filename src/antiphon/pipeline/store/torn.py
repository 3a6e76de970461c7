"""Compressed texts that were cut short or damaged, read as far as they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE_BYTES: Final = 1 << 20
_STEPS: Final = (1 << 14, 1 << 7, 1)  # in which the end of what can be read is looked for


class Tear:
    """Where a text ends too early: why, and what there is of its last line; nothing, as long as none is found."""

    def __init__(self) -> None:
        self.why = ""
        self.rest = b""

    def __bool__(self) -> bool:
        return bool(self.why)

    @property
    def reason(self) -> str:
        """What is said of the rows that are missing."""
        return f"the file cannot be read to its end, and what comes after this is missing: {self.why}"


class TornStream:
    """A text as a stream of whole lines, up to where it cannot be read any more; the tear says where that was.

    A part of a line may look like a whole one, so it is never given.
    """

    closed = False

    def __init__(self, opened: Callable[[], pa.NativeFile], tear: Tear) -> None:
        self._opened, self._tear = opened, tear
        self._stream = opened()
        self._taken = 0  # bytes of the stream so far
        self._held = b""
        self._ended = False

    def read(self, size: int | None = -1) -> bytes:
        """Return up to so many bytes, all that there are if no number is given; nothing at the end."""
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_PIECE_BYTES), b""))
        parts, length, lines = [self._held], len(self._held), b"\n" in self._held
        while not self._ended and (length < size or not lines):
            piece = self._next(max(size - length, _PIECE_BYTES))
            parts.append(piece)
            length, lines = length + len(piece), lines or b"\n" in piece
        known = b"".join(parts)
        whole = len(known) if self._ended and not self._tear else known.rfind(b"\n") + 1
        given = min(size, whole)
        self._held = known[given:]
        if self._tear and given == 0:
            self._tear.rest, self._held = known[given:], b""
        return known[:given]

    def _next(self, size: int) -> bytes:
        try:
            piece: bytes = self._stream.read(size)
        except OSError as error:
            piece = self._last()
            self._tear.why = (str(error).splitlines() or ["damaged"])[0]
            self._ended = True
        self._taken += len(piece)
        self._ended |= not piece
        return piece

    def _last(self) -> bytes:
        """Return what can still be read: a stream that fails does not give what it has read until then."""
        found = b""
        for step in _STEPS:
            self._stream.close()
            self._stream = self._opened()
            self._skip(self._taken + len(found))
            try:
                while piece := self._stream.read(step):
                    found += piece
            except OSError:
                continue
        return found

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._stream.read(min(size, _PIECE_BYTES)))

    def readable(self) -> bool:
        """Say that this can be read."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self.closed = True

    def __enter__(self) -> TornStream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
