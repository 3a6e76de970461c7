"""Which files of a watched directory have been read, and in which version; kept in the checkpoint, batch by batch.

A file is known by its path, its size, its time and a fingerprint of its end (a Parquet file's table of contents). One
that is replaced under its name is read again, unless only its time is another; how old a file is does not matter. Of
a log that grows (JSON lines, CSV) it is kept how far it was read: if what lies before is still the same, only what
lies behind is new, also if the log has been given another name. Of files that are no longer there the last hundred
thousand are remembered.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.results import UnreadFiles
from antiphon.pipeline.store.files import endings as endings_of
from antiphon.pipeline.store.files import visible_in_store
from antiphon.pipeline.store.location import (
    Location,
    StorePath,
    facts_of,
    files_in,
    location,
    open_binary,
    remove_file,
    write_whole,
)
from antiphon.trace.files import visible_files
from antiphon.trace.run_file import RUN_FILE

_END_BYTES: Final = 1 << 16
VANISHED_MAX: Final = 100_000
PARTS_MAX: Final = 64  # files of batches before they are put together
GROWING: Final = (".jsonl", ".ndjson", ".csv", ".tsv", ".json", ".txt", ".log")


class LogPosition(msgspec.Struct, frozen=True, array_like=True):
    """How far a log was read."""

    read: int = 0  # bytes
    rows: int = 0


class FileVersion(msgspec.Struct, frozen=True, array_like=True):
    """What tells one version of a file from another."""

    size: int
    mtime_ns: int
    end: str  # a fingerprint of the last bytes; of a log that grows, of those that were read
    position: LogPosition = LogPosition()


def grows(name: str) -> bool:
    """Say whether a file is a log of lines, to which more may be added."""
    return name.lower().endswith(GROWING)


class SeenFiles:
    """The files of a directory that were read in committed batches."""

    def __init__(self, directory: str, checkpoint: str, committed: int, endings: tuple[str, ...]) -> None:
        self._directory, self._folder = location(directory), location(checkpoint) / "files"
        self._endings = endings_of(endings)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._seen: dict[str, FileVersion] = {}
        self._parts = 0
        self._noticed: dict[str, tuple[int, float]] = {}  # of each file that is to be read: its size, and since when
        self.to_the_end = False  # a last line that has no end counts
        self.problems: dict[str, str] = {}  # path -> why it could not be looked at last time
        for part in files_in(self._folder, "*.json"):
            if _number(part) <= committed:
                self._seen |= msgspec.json.decode(part.read_bytes(), type=dict[str, FileVersion])
        self._put_together(committed)

    def _put_together(self, committed: int) -> None:
        """Make one file of those of all committed batches, and forget all others."""
        self._parts = 1
        write_whole(self._folder / f"{max(0, committed):010}.json", msgspec.json.encode(self._seen))
        for part in files_in(self._folder, "*.json"):
            if _number(part) != max(0, committed):
                remove_file(part)

    def unread(self) -> list[str]:
        """Return the files that are new or were replaced, the oldest first."""
        self.problems = {}
        found: list[tuple[int, str]] = []
        noticed, now = self._noticed, time.monotonic()
        self._noticed = {}
        there = list(self._files())
        present = {path for path, _, _ in there}
        # of logs that were read and are no longer under their names, whatever took their place
        moved = [known for path, known in reversed(self._seen.items()) if grows(path) and path not in present]
        for path, size, changed in sorted(there, key=lambda file: file[0] not in self._seen):
            try:
                if self._is_new(path, size, changed, moved):
                    found.append((changed, path))
                    self._noticed[path] = size, noticed.get(path, (0, now))[1]
            except (FileNotFoundError, UsageError):
                continue  # removed while we looked
        if not self.problems:
            vanished = [path for path in self._seen if path not in present]
            for path in vanished[: max(0, len(vanished) - VANISHED_MAX)]:
                del self._seen[path]
        return [path for _, path in sorted(found)]

    def backlog(self, read: Collection[str], events: int) -> UnreadFiles | None:
        """What waited when we last looked, besides what was read since and had so many events; None if nothing."""
        waiting = [facts for path, facts in self._noticed.items() if path not in read]
        if not waiting:
            return None
        size = sum(self._noticed[path][0] for path in read if path in self._noticed)
        total = sum(facts[0] for facts in waiting)
        seconds = time.monotonic() - min(since for _, since in waiting)
        return UnreadFiles(len(waiting), round(total * events / size) if size else 0, round(seconds, 3))

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """Yield the files that are there now, each with its size and time."""
        if isinstance(self._directory, StorePath):
            try:
                found = list(visible_in_store(self._directory))
            except UsageError as problem:
                self._note_problem(problem)
                return
            yield from ((str(path), size, changed) for path, size, changed in found if self._wanted(path.name))
            return
        for path in visible_files(self._directory, self._wanted, self._note_problem):
            try:
                yield str(path), *facts_of(path)
            except FileNotFoundError:
                continue  # removed while we looked

    def _note_problem(self, problem: UsageError) -> None:
        path, _, reason = str(problem).partition(": ")
        self.problems[path] = reason

    def _wanted(self, name: str) -> bool:
        return name.lower().endswith(self._endings) and name != RUN_FILE

    def begin(self, path: str) -> LogPosition:
        """Return from where on a file is new."""
        known = self._seen.get(path)
        return LogPosition() if known is None else known.position

    def _is_new(self, path: str, size: int, changed: int, moved: list[FileVersion]) -> bool:
        known = self._seen.get(path)
        if known is None and grows(path):
            known = _under_another_name(path, size, moved)
        if known is None:
            return True
        if (known.size, known.mtime_ns) == (size, changed):
            return False
        if grows(path):
            if size >= known.position.read and _end_at(path, known.position.read) == known.end:
                self._seen[path] = known
                return self._has_more(path, known.position.read, size)
            moved.append(known)
            self._seen[path] = FileVersion(-1, 0, "")  # another log under its name
            return True
        fresh = version_of(path)
        if (fresh.size, fresh.end) != (known.size, known.end):
            return True
        self._seen[path] = fresh  # touched, or copied again
        return False

    def _has_more(self, path: str, read: int, size: int) -> bool:
        """Say whether a line has ended since a log was read."""
        if size - read > _END_BYTES or self.to_the_end:
            return size > read
        with open_binary(location(path)) as log:
            log.seek(read)
            return b"\n" in log.read(size - read)

    def note(self, batch: int, versions: dict[str, FileVersion]) -> None:
        """Keep what a batch reads; it counts when the batch is committed."""
        if self._parts >= PARTS_MAX:
            self._put_together(batch - 1)
        write_whole(self._folder / f"{batch:010}.json", msgspec.json.encode(versions))
        self._parts += 1
        for path, version in versions.items():
            self._seen.pop(path, None)  # what was read last is forgotten last
            self._seen[path] = version


def _number(part: Location) -> int:
    return int(part.name.partition(".")[0])


def _under_another_name(path: str, size: int, moved: list[FileVersion]) -> FileVersion | None:
    """Return what is known of a log that went by another name before, as logs do that are rotated."""
    for known in moved:
        read = known.position.read
        if 0 < read <= size and _end_at(path, read) == known.end:
            return known
    return None


def version_of(path: str) -> FileVersion:
    """Look at a file as it is now."""
    where = location(path)
    size, changed = facts_of(where)
    if isinstance(where, Path) and not where.exists():
        raise FileNotFoundError(2, "No such file or directory", path)
    return FileVersion(size, changed, _end_at(path, size))


def _end_at(path: str, stop: int) -> str:
    with open_binary(location(path)) as file:
        return fingerprint(file, stop)


def fingerprint(file: IO[bytes], stop: int) -> str:
    """Return what tells the bytes before a position from others."""
    file.seek(max(0, stop - _END_BYTES))
    return hashlib.blake2b(file.read(min(stop, _END_BYTES)), digest_size=8).hexdigest()
