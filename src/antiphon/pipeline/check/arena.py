"""Scratch arrays between two stages of a check: one file a task, mapped into memory by those who read it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from antiphon.pipeline.layout import Array

_ALIGNED = 64


class ArenaWriter:
    """Appends named arrays of units to one file; nobody sees the file before it is whole."""

    def __init__(self, folder: str, task: int) -> None:
        self.path = Path(folder) / f"{task:06}.arena"
        self.fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.unfinished")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.out: BinaryIO = self.fresh.open("wb")
        self.at = 0
        self.entries: dict[str, tuple[int, int, str]] = {}

    def put(self, unit: int, name: str, array: Array) -> None:
        """Keep an array for a unit."""
        self.entries[f"{unit}/{name}"] = (self.at, len(array), array.dtype.str)
        self.out.write(np.ascontiguousarray(array).data)
        padding = -array.nbytes % _ALIGNED
        self.out.write(b"\0" * padding)
        self.at += array.nbytes + padding

    def close(self) -> None:
        """Write the list of what is where behind the arrays, and give the file its name."""
        directory = msgspec.msgpack.encode(self.entries)
        self.out.write(directory)
        self.out.write(len(directory).to_bytes(8, "little"))
        self.out.close()
        self.fresh.replace(self.path)


class Arena:
    """The arrays that one task wrote."""

    def __init__(self, path: str) -> None:
        self.bytes = np.memmap(path, np.uint8, "r")
        size = int.from_bytes(self.bytes[-8:].tobytes(), "little")
        directory = self.bytes[-8 - size : -8].tobytes()
        self.entries = msgspec.msgpack.decode(directory, type=dict[str, tuple[int, int, str]])

    def get(self, unit: int, name: str) -> Array | None:
        """A unit's array, or None if it has none of that name."""
        entry = self.entries.get(f"{unit}/{name}")
        if entry is None:
            return None
        at, length, dtype = entry
        kind = np.dtype(dtype)
        return self.bytes[at : at + length * kind.itemsize].view(kind)


@functools.lru_cache(maxsize=4096)
def open_arena(folder: str, task: int) -> Arena:
    """The arena of one task; a worker opens it once."""
    return Arena(str(Path(folder) / f"{task:06}.arena"))
