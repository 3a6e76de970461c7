"""A simulated disk: small files that survive crashes, and what can go wrong with them.

A write is old or new as a whole, as `Host.write` promises; whatever it promises beyond that can be taken away: writes
that fail, a crash while one is under way, a folder that is gone, or holds what it held some time ago.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path


class SimulatedDisk:
    """The files of all machines of a world, by path."""

    def __init__(self) -> None:
        self._files: dict[Path, bytes] = {}
        self.fails: Callable[[Path], int | None] = lambda path: None  # gives an errno for writes that fail
        self.writing: Callable[[Path], None] = lambda path: None  # is told of every write, before it is done
        self.written: Callable[[Path], None] = lambda path: None  # and once it is
        self.writes = 0

    def read(self, path: Path) -> bytes:
        """Read a file."""
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._files[path]

    def write(self, path: Path, content: bytes) -> None:
        """Write a file."""
        number = self.fails(path)
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))
        self.writing(path)
        self.writes += 1
        self._files[path] = bytes(content)
        self.written(path)

    def files(self, folder: Path) -> dict[Path, bytes]:
        """Give a copy of what a folder holds."""
        return {path: content for path, content in self._files.items() if path.is_relative_to(folder)}

    def replace(self, folder: Path, files: dict[Path, bytes]) -> None:
        """Let a folder hold other files, or none: a disk that was lost, or brought back from a copy."""
        for path in self.files(folder):
            del self._files[path]
        self._files.update(files)
