"""A simulated disk: small files that survive crashes, and what can go wrong with them.

A write is old or new as a whole, as `Host.write` promises. What was written lies in the machine's memory until it is
synced: a process that crashes loses nothing of it, a machine that loses its power loses all of it. Beyond that
whatever is promised can be taken away: writes that fail, a crash while one is under way, a folder that is gone, or
holds what it held some time ago, as on a disk that says that something is synced when it is not.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path


class SimulatedDisk:
    """The files of all machines of a world, by path."""

    def __init__(self) -> None:
        self._files: dict[Path, bytes] = {}  # that are on the disk
        self._unsynced: dict[Path, bytes] = {}  # that were written since
        self.fails: Callable[[Path], int | None] = lambda path: None  # gives an errno for writes that fail
        self.writing: Callable[[Path], None] = lambda path: None  # is told of every write, before it is done
        self.written: Callable[[Path], None] = lambda path: None  # and once it is
        self.lies: Callable[[Path], bool] = lambda path: False  # whether a file is only said to be synced
        self.synced: Callable[[Path], None] = lambda path: None  # and once it is on the disk
        self.writes = 0

    def read(self, path: Path) -> bytes:
        """Read a file."""
        for files in (self._unsynced, self._files):
            if path in files:
                return files[path]
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    def write(self, path: Path, content: bytes, *, may_wait: bool = True) -> None:
        """Write a file, which a loss of power undoes until it is synced; who may not wait does that next."""
        number = self.fails(path)
        if number is not None:
            raise OSError(number, os.strerror(number), str(path))
        self.writing(path)
        self.writes += 1
        self._unsynced[path] = bytes(content)
        self.written(path)

    def sync(self, path: Path) -> None:
        """Bring what was written to the disk, or only say so."""
        self.write_back(path)
        self.synced(path)

    def write_back(self, path: Path) -> None:
        """Bring to the disk what was written to a file some time ago, though nobody waits for it."""
        if path in self._unsynced and not self.lies(path):
            self._files[path] = self._unsynced.pop(path)

    def lose_power(self, folder: Path) -> int:
        """Forget what was written to a folder and not synced, and say how many files that concerns."""
        lost = [path for path in self._unsynced if path.is_relative_to(folder)]
        for path in lost:
            del self._unsynced[path]
        return len(lost)

    def files(self, folder: Path) -> dict[Path, bytes]:
        """Give a copy of what a folder holds."""
        return {
            path: content for path, content in {**self._files, **self._unsynced}.items() if path.is_relative_to(folder)
        }

    def replace(self, folder: Path, files: dict[Path, bytes]) -> None:
        """Let a folder hold other files, or none: a disk that was lost, or brought back from a copy."""
        self.lose_power(folder)
        for path in self.files(folder):
            del self._files[path]
        self._files.update(files)
