"""Bytes that are too many for memory, kept in a temporary file; an error of the disk names the folder."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, Generic, TypeVar, cast
from weakref import finalize

import msgspec

from antiphon.errors import UsageError

MEMORY_BYTES_MAX: Final = 1 << 20  # of what is kept in memory; beyond, it is in a file
_PORTION_BYTES: Final = 64 << 10  # is read at once
_FRAME: Final = struct.Struct(">BI")  # kind, length

_Entry = TypeVar("_Entry")
_encode: Final = msgspec.msgpack.Encoder().encode


class Spill:
    """Bytes that are written and read anywhere: in memory, and beyond some in a temporary file."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.SpooledTemporaryFile(MEMORY_BYTES_MAX))  # noqa: SIM115  # kept open
        finalize(self, self._file.close).atexit = False  # of what nobody reads to its end

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes somewhere."""
        with _said():
            self._file.seek(offset)
            self._file.write(data)

    def read(self, offset: int, length: int = -1) -> bytes:
        """Return bytes from somewhere."""
        with _said():
            self._file.seek(offset)
            return self._file.read(length)

    def truncate(self, size: int) -> None:
        """Let all but the first bytes go."""
        with _said():
            self._file.truncate(size)

    def reopened(self) -> BinaryIO:
        """Return the file, which must be on the disk, as another one at its beginning."""
        with _said():
            self._file.seek(0)
            return os.fdopen(os.dup(self._file.fileno()), "rb")

    def close(self) -> None:
        """Let the bytes go."""
        with suppress(OSError):  # what could not be written is tried once more
            self._file.close()


class SpilledQueue(Generic[_Entry]):
    """A queue in bounded memory."""

    def __init__(self, kinds: Sequence[type[_Entry]]) -> None:
        """`kinds` are the types of what is put into it."""
        self._codes = {kind: code for code, kind in enumerate(kinds)}
        self._decoders = [msgspec.msgpack.Decoder(kind) for kind in kinds]
        self._spill = Spill()
        self._start = self._end = 0  # what is left of it

    @property
    def bytes(self) -> int:
        """How long it is."""
        return self._end - self._start

    def append(self, entry: _Entry) -> None:
        """Put something behind all that is there."""
        data = _encode(entry)
        self._spill.write(self._end, _FRAME.pack(self._codes[type(entry)], len(data)) + data)
        self._end += _FRAME.size + len(data)

    def take(self) -> Iterator[_Entry]:
        """Take some entries from the beginning; what is yielded is removed."""
        portion = self._spill.read(self._start, _PORTION_BYTES)
        entries: list[_Entry] = []
        at = 0
        while at + _FRAME.size <= len(portion):
            code, length = _FRAME.unpack_from(portion, at)
            end = at + _FRAME.size + length
            if end > len(portion):
                if entries:
                    break
                portion += self._spill.read(self._start + len(portion), end - len(portion))
            entries.append(self._decoders[code].decode(portion[at + _FRAME.size : end]))
            at = end
        self._start += at
        if self._start == self._end:
            self.clear()
        return iter(entries)

    def clear(self) -> None:
        """Throw away what is there, and the file with it."""
        if self._end:
            self._spill.close()
            self._spill = Spill()
        self._start = self._end = 0

    def close(self) -> None:
        """Let the file go."""
        self._spill.close()
        self._start = self._end = 0


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or os.environ.get("TMPDIR", "/tmp")
        raise UsageError(
            f"TMPDIR: {folder}: {error.strerror}; make room there, or name another folder for temporary files"
        ) from error
