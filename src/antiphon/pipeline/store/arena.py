"""Scratch arrays between two stages: one file a task, mapped into memory by those who read it."""

from __future__ import annotations

import bisect
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from antiphon.pipeline.columns import Array, Unit
from antiphon.pipeline.store.location import Location, location, open_input, replacement

_ALIGNED = 64
_MAPPED_BYTES_MIN = 1 << 16


class ArenaWriter:
    """Appends named arrays of units to one file; nobody sees the file before it is whole."""

    def __init__(self, scratch: str, stage: str, task: int) -> None:
        self._file = replacement(_path(scratch, stage, task))
        self._out: BinaryIO = self._file.fresh.open("wb")
        self._at = 0
        self._entries: dict[str, tuple[int, int, str]] = {}

    def put(self, unit: Unit, name: str, array: Array) -> None:
        """Keep an array for a unit."""
        self._entries[f"{unit}/{name}"] = (self._at, len(array), array.dtype.str)
        self._out.write(np.ascontiguousarray(array).data)
        padding = -array.nbytes % _ALIGNED
        self._out.write(b"\0" * padding)
        self._at += array.nbytes + padding

    def close(self) -> None:
        """Write the list of what is where behind the arrays, and give the file its name."""
        directory = msgspec.msgpack.encode(self._entries)
        self._out.write(directory)
        self._out.write(len(directory).to_bytes(8, "little"))
        self._out.close()
        self._file.commit()


class Arena:
    """The arrays that one task wrote."""

    def __init__(self, path: Location) -> None:
        self._path = path
        self._file = open_input(path)
        end = self._file.size() - 8
        size = int.from_bytes(self._file.read_at(8, end), "little")
        directory = self._file.read_at(size, end - size)
        self._entries = msgspec.msgpack.decode(directory, type=dict[str, tuple[int, int, str]])

    def names(self) -> list[tuple[Unit, str]]:
        """Name the arrays that are there, each by its unit and name."""
        return [(int(unit), name) for unit, _, name in (key.partition("/") for key in self._entries)]

    def get(self, unit: Unit, name: str) -> Array | None:
        """Return a unit's array, or None if it has none of that name.

        A large one on a disk is mapped into memory, for as long as somebody holds it and no longer.
        """
        entry = self._entries.get(f"{unit}/{name}")
        if entry is None:
            return None
        at, length, dtype = entry
        kind = np.dtype(dtype)
        if isinstance(self._path, Path) and length * kind.itemsize > _MAPPED_BYTES_MIN:
            return np.asarray(np.memmap(self._path, kind, "r", at, (length,)))
        return np.frombuffer(self._file.read_at(length * kind.itemsize, at), kind)


class Scratch:
    """The arrays that the tasks of earlier stages left, found by stage, unit and name; open as long as this object."""

    def __init__(self, folder: str, first_units: Array) -> None:
        self._folder = folder
        self._first_units: list[int] = first_units.tolist()  # of each task that writes, and the end
        self._open: dict[tuple[str, int], Arena] = {}

    def arena(self, stage: str, task: int) -> Arena:
        """Return what one task of a stage left."""
        if (stage, task) not in self._open:
            self._open[stage, task] = Arena(_path(self._folder, stage, task))
        return self._open[stage, task]

    def array(self, stage: str, unit: Unit, name: str) -> Array:
        """Return a unit's array; an empty one if it has none of that name."""
        task = bisect.bisect_right(self._first_units, unit) - 1
        found = self.arena(stage, task).get(unit, name)
        return np.zeros(0, np.int64) if found is None else found


def _path(scratch: str, stage: str, task: int) -> Location:
    return location(scratch) / stage / f"{task:06}.arena"
