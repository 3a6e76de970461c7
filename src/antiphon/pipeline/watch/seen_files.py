"""Which files of a watched directory have been read, and in which version; kept in the checkpoint, batch by batch.

A file is known by its path, its size, its time and a fingerprint of its end (a Parquet file's table of contents). One
that is replaced under its name is read again, unless only its time is another; how old a file is does not matter.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import msgspec

from antiphon.atomic_write import atomic_write
from antiphon.errors import UsageError
from antiphon.trace.files import visible_files

_END_BYTES: Final = 1 << 16


class FileVersion(msgspec.Struct, frozen=True, array_like=True):
    """What tells one version of a file from another."""

    size: int
    mtime_ns: int
    end: str  # a fingerprint of the last bytes

    def is_unchanged(self, status: os.stat_result) -> bool:
        """Say whether size and time are those of this version."""
        return (self.size, self.mtime_ns) == (status.st_size, status.st_mtime_ns)


class SeenFiles:
    """The files of a directory that were read in committed batches."""

    def __init__(self, directory: str, checkpoint: str, committed: int) -> None:
        self._directory, self._folder = Path(directory), Path(checkpoint, "files")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._seen: dict[str, FileVersion] = {}
        self.problems: dict[str, str] = {}  # path -> why it could not be looked at last time
        parts = sorted(self._folder.glob("*.json"))
        for part in parts:
            if int(part.stem) <= committed:
                self._seen |= msgspec.json.decode(part.read_bytes(), type=dict[str, FileVersion])
        if parts:
            atomic_write(self._folder / f"{committed:010}.json", msgspec.json.encode(self._seen))
        for part in parts:
            if int(part.stem) != committed:
                part.unlink()

    def unread(self) -> list[str]:
        """Return the files that are new or were replaced, the oldest first."""
        self.problems = {}
        found: list[tuple[int, str]] = []
        for path in visible_files(self._directory, lambda name: name.endswith(".parquet"), self._note_problem):
            try:
                status = path.stat()
                if self._is_new(str(path), status):
                    found.append((status.st_mtime_ns, str(path)))
            except FileNotFoundError:
                continue  # removed while we looked
        return [path for _, path in sorted(found)]

    def _note_problem(self, problem: UsageError) -> None:
        path, _, reason = str(problem).partition(": ")
        self.problems[path] = reason

    def _is_new(self, path: str, status: os.stat_result) -> bool:
        known = self._seen.get(path)
        if known is None:
            return True
        if known.is_unchanged(status):
            return False
        fresh = version_of(path)
        if (fresh.size, fresh.end) != (known.size, known.end):
            return True
        self._seen[path] = fresh  # touched, or copied again
        return False

    def note(self, batch: int, versions: dict[str, FileVersion]) -> None:
        """Keep what a batch reads; it counts when the batch is committed."""
        atomic_write(self._folder / f"{batch:010}.json", msgspec.json.encode(versions))
        self._seen |= versions


def version_of(path: str) -> FileVersion:
    """Look at a file as it is now."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - _END_BYTES))
        end = hashlib.blake2b(file.read(), digest_size=8).hexdigest()
    return FileVersion(status.st_size, status.st_mtime_ns, end)
