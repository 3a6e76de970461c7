"""Bytes that are too many for memory, kept in a temporary file; an error of the disk names the folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, cast

from antiphon.errors import UsageError

MEMORY_BYTES_MAX: Final = 1 << 20  # of what is kept in memory; beyond, it is in a file


class Spill:
    """Bytes that are written and read anywhere: in memory, and beyond some in a temporary file."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.SpooledTemporaryFile(MEMORY_BYTES_MAX))  # noqa: SIM115  # kept open

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


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        folder = tempfile.tempdir or os.environ.get("TMPDIR", "/tmp")
        raise UsageError(
            f"TMPDIR: {folder}: {error.strerror}; make room there, or name another folder for temporary files"
        ) from error
