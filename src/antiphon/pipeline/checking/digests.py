"""Digests of what a member did in each view: members that did the very same are found without reading it again."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
import numpy as np

from antiphon.pipeline.columns import Array, Unit, ViewIndex
from antiphon.pipeline.store.arena import ArenaWriter

DIGEST_SIZE: Final = 20
NOTHING_DONE: Final = b""
Digests = dict[ViewIndex, bytes]  # by view; views in which nothing was done are left out


def digests(done: Array, slices: list[tuple[ViewIndex, int, int]]) -> Digests:
    """Return the digest of what was done in each view, in order, over all stays in it."""
    hashes: dict[ViewIndex, hashlib.blake2b] = {}
    for view, start, stop in slices:
        if view not in hashes:
            hashes[view] = hashlib.blake2b(digest_size=DIGEST_SIZE)
        hashes[view].update(done[start:stop].data)
    return {view: one.digest() for view, one in hashes.items()}


def leave_digests(unit: Unit, delivered: Digests, discarded: Digests, arena: ArenaWriter) -> None:
    """Leave the digests of a member for the second stage."""
    arena.put(unit, "digests", np.frombuffer(msgspec.msgpack.encode((delivered, discarded)), np.uint8))


def read_digests(left: Array) -> tuple[Digests, Digests]:
    """Return what `leave_digests` left."""
    return msgspec.msgpack.decode(left.data, type=tuple[Digests, Digests])
