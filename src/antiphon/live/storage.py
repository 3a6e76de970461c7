"""The state folder: the little that a name must not forget, in files that are whole or absent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, show


class Disk(Protocol):
    """Small files that survive a crash."""

    def read(self, path: Path) -> bytes:
        """Read a file; raise as `Path.read_bytes` does."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a file so that it is either the old or the new one, whatever happens."""


class StateFolder:
    """What a group's members on this machine keep: their incarnations and votes, and who founded the group."""

    def __init__(self, disk: Disk, folder: str | PathLike[str] | None, group: str) -> None:
        self._disk, self._group = disk, group
        self._folder = default_folder() if folder is None else Path(folder)

    def founders(self, own: Address) -> list[str]:
        """Return who founded the group when it was last found, or nobody."""
        try:
            return self._disk.read(self._founders_file(own)).decode().split()
        except OSError:
            return []  # the first time

    def keep_founders(self, own: Address, founders: Sequence[str]) -> None:
        """Remember who founded the group."""
        self._disk.write(self._founders_file(own), "\n".join(founders).encode())

    def _founders_file(self, own: Address) -> Path:
        return self._folder / f"{digest(self._group, show(own))}.founders"

    def member(self, founders: Sequence[str], me: int) -> MemberFile:
        """Return the file of one member."""
        return MemberFile(self._disk, self._folder / f"{digest(self._group, list(founders), me)}.state")


class MemberFile:
    """The incarnation and the votes of one member."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk, self._path = disk, path

    def read(self) -> bytes | None:
        """Return what was persisted last, or None the first time."""
        try:
            return self._disk.read(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"state: {self._path}: {error.strerror}; name a folder of your own") from None

    def write(self, state: bytes) -> None:
        """Persist."""
        self._disk.write(self._path, state)


def default_folder() -> Path:
    """Return where state is kept if no folder is named."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "antiphon"


def digest(*about: object) -> str:
    """Return a short name for a combination of values."""
    return hashlib.sha256(repr(about).encode()).hexdigest()[:16]
