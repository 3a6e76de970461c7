"""Write a file or a folder so that whoever looks sees the old one or the whole new one, even after a power failure.

The only place that does so: write beside the old one, bring it to the disk, rename, and bring the folder that holds the
name to the disk.

    atomic_write(path, b"...")                      # or a str, or a function that is given the open file
    with Replacement(path) as fresh:                # a Path to write to: a file, or a folder made with fresh.mkdir()
        pq.write_table(table, fresh)
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

SUFFIX = ".unfinished"  # of what is being written; its name also begins with a dot, so that readers pass it over


class Replacement:
    """A name to write to, `fresh`, which takes the place of `path` on `commit`.

    As a context manager it commits at the end of the block, and discards what was written if the block raised.
    `durable=False` leaves out the disk, for scratch files that nobody needs after a power failure.
    """

    def __init__(self, path: str | Path, *, durable: bool = True) -> None:
        self.path = Path(path)
        self.durable = durable
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.fresh = self._beside()

    def _beside(self) -> Path:
        """Return a new hidden name in the same folder; two writers, even on two machines, never share one."""
        return self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:12]}{SUFFIX}")

    def commit(self) -> None:
        """Put what was written in its place; if that fails, nothing is left beside it."""
        try:
            if self.durable:
                _sync_tree(self.fresh)
            if self.fresh.is_dir() and self.path.exists():
                self._exchange_folder()
            else:
                self.fresh.replace(self.path)
        except BaseException:
            self.discard()
            raise
        if self.durable:
            sync(self.path.parent)

    def _exchange_folder(self) -> None:
        """Move the old folder aside first: no folder can be renamed onto one that has something in it."""
        old = self._beside()
        self.path.rename(old)
        try:
            self.fresh.rename(self.path)
        except BaseException:
            old.rename(self.path)
            raise
        _remove(old)

    def discard(self) -> None:
        """Remove what was written; the old one stays as it was."""
        _remove(self.fresh)

    def __enter__(self) -> Path:
        return self.fresh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()
        if isinstance(error, OSError) and str(error.filename).startswith(str(self.fresh)):
            error.filename = str(self.path)  # nobody knows the name beside it


def atomic_write(
    path: str | Path, content: bytes | str | Callable[[BinaryIO], object], *, durable: bool = True
) -> None:
    """Write a file: bytes, text (as UTF-8), or whatever a function writes to the open file that it is given."""
    with Replacement(path, durable=durable) as fresh, fresh.open("wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(path: Path) -> None:
    if path.is_dir():
        for folder, _, files in os.walk(path):
            for name in files:
                sync(Path(folder, name))
            sync(Path(folder))
    else:
        sync(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
