"""A small file that is often written anew, in place: two slots, of which one is always whole on the disk.

To overwrite a slot and wait for the disk once is quicker than to write beside the old file, to rename, and to wait for
file and folder, as `atomic_write` does. Each slot has a number and a digest: the highest number whose digest is right
is what was written last. A write that is torn leaves the other slot.

    magic, size of the slot, number, whether it may be lost, length, digest | content | zeros to the end of the slot
"""

from __future__ import annotations

import os
import struct
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.atomic_write import atomic_write

_MAGIC: Final = b"\xc1slots\n\0"  # begins no text and no MessagePack
_HEAD: Final = struct.Struct("<8sIQ?I16s")
_BLOCK_BYTES: Final = 4_096  # no disk tears another block than the one that it writes

_bring_to_disk: Final = getattr(os, "fdatasync", os.fsync)  # the size and the blocks stay the same


class _Slot(NamedTuple):
    number: int  # 0: nothing whole is there
    may_be_lost: bool
    content: bytes


_NONE: Final = _Slot(0, False, b"")


def content_of(file: bytes) -> bytes:
    """Return what was written last to a file, given its bytes; a file without slots is its own content."""
    return max(_slots(file)).content if file.startswith(_MAGIC) else file


def overwrite(path: Path, content: bytes, *, may_wait: bool = False) -> None:
    """Write a file so that it is either the old or the new one, whatever happens, and wait until it is on the disk.

    What `may_wait` is there for whoever reads the file and survives the process; it is brought to the disk soon, and
    until then the machine may lose it, but nothing that was written before.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        _begin(path, _Slot(1, False, content))
        return
    try:
        file = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        slots = list(_slots(file)) if file.startswith(_MAGIC) else []
        slot = _Slot(max((one.number for one in slots), default=0) + 1, may_wait, content)
        room = len(file) // 2
        if not slots or _HEAD.size + len(content) > room:
            _begin(path, slot._replace(may_be_lost=False))
            return
        # what may be lost is not on the disk for certain: the other slot must stay until something else is
        place = min(range(2), key=lambda place: (slots[place] != _NONE, not slots[place].may_be_lost, slots[place]))
        os.pwrite(descriptor, _encoded(slot, room), place * room)
        if not may_wait:
            _bring_to_disk(descriptor)
    finally:
        os.close(descriptor)
    if may_wait:
        start_new_thread(_bring_soon, (path,))  # `Thread` would wait until it runs, on a busy machine for long


def _begin(path: Path, slot: _Slot) -> None:
    """Write a whole file, with room for contents of twice the size."""
    room = -(-2 * (_HEAD.size + len(slot.content)) // _BLOCK_BYTES) * _BLOCK_BYTES
    atomic_write(path, _encoded(slot, room) + _encoded(_NONE, room))


def _bring_soon(path: Path) -> None:
    """Wait for the disk where nobody else has to; if that fails, the next write says so."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            _bring_to_disk(descriptor)
        finally:
            os.close(descriptor)


def _encoded(slot: _Slot, room: int) -> bytes:
    head = _HEAD.pack(_MAGIC, room, slot.number, slot.may_be_lost, len(slot.content), _digest(slot))
    return (head + slot.content).ljust(room, b"\0")


def _slots(file: bytes) -> Iterator[_Slot]:
    """Give the two slots of a file; of one that is not whole, nothing."""
    room = len(file) // 2
    if len(file) % (2 * _BLOCK_BYTES):
        yield from (_NONE, _NONE)
        return
    for part in (file[:room], file[room:]):
        magic, size, number, may_be_lost, length, digest = _HEAD.unpack_from(part)
        slot = _Slot(number, may_be_lost, part[_HEAD.size : _HEAD.size + length])
        is_whole = magic == _MAGIC and size == room  # of a file that was cut, the missing part may be the newest
        yield slot if is_whole and digest == _digest(slot) else _NONE


def _digest(slot: _Slot) -> bytes:
    about = struct.pack("<Q?I", slot.number, slot.may_be_lost, len(slot.content))
    return blake2b(about + slot.content, digest_size=16).digest()
