"""The block matrix: the messages that a member keeps, a column a sender, by block number."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

import msgspec

from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.causal_blocks.messages import BLOCK_MAX, BlockMessage


class Entry(msgspec.Struct, eq=False):
    """A message in the block matrix (a '+'), from its receipt until everyone has delivered it."""

    message: BlockMessage
    ldv: list[int]
    expires_at: Instant | None
    missing: int  # members not known to have delivered it, its sender aside
    met: int = 0  # delivery condition: predecessors from the members below this rank are delivered
    awaits: bool = False  # it is looked at again when a predecessor is delivered
    passed: bool = False  # delivered, or discarded in its turn
    whole: bool = True  # the payload is here; if not, it was shed and comes again, or expired
    lapsed: bool = False  # it was delivered here and has expired: whoever still lacks it is told so
    discard: str | None = None  # it will be discarded in its turn, and why

    def expired(self, now: Instant) -> bool:
        """Say whether its lifetime is over."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def sendable(self) -> bool:
        """Whether this member can help another to it: with the payload, or with the news that it has expired."""
        return self.whole or self.lapsed or self.discard == "expired"

    def strip(self) -> None:
        """Let the payload go and keep the stamps."""
        self.message = msgspec.structs.replace(self.message, payload=b"")
        self.whole = False

    def copy(self, now: Instant) -> BlockMessage:
        """Return the message as it is to be sent again: with the lifetime that is left, without payload if none is."""
        if self.expires_at is None:
            return self.message
        life = 0 if self.discard == "expired" else max(0, self.expires_at - now)
        payload = self.message.payload if life else b""
        return msgspec.structs.replace(self.message, life_ns=life, payload=payload)


def block_of(entry: Entry) -> int:
    """Give m.b."""
    return entry.message.block


class Column:
    """One sender's messages in ascending order of blocks."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.first: Entry | None = None  # the earliest message that is kept
        self._entries: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self.blocks)

    def get(self, block: int) -> Entry | None:
        """Find the message with a block number."""
        return self._entries.get(block)

    def insert(self, entry: Entry) -> None:
        """Insert a message by its block."""
        insort(self.blocks, entry.message.block)
        self._entries[entry.message.block] = entry
        self.first = self._entries[self.blocks[0]]

    def at(self, index: int) -> Entry | None:
        """Return the message at an index, from 0, if there are so many."""
        return self._entries[self.blocks[index]] if index < len(self.blocks) else None

    def pop(self) -> Entry:
        """Let the earliest message go."""
        entry = self._entries.pop(self.blocks.pop(0))
        self.first = self._entries[self.blocks[0]] if self.blocks else None
        return entry

    def next_above(self, block: int) -> int:
        """Give the first block number above another, or one that no message has."""
        index = bisect_right(self.blocks, block)
        return self.blocks[index] if index < len(self.blocks) else BLOCK_MAX + 1

    def delivered(self, above: int, upto: int) -> None:
        """Count one more member that has delivered the messages above one block and up to another."""
        blocks = self.blocks
        for block in blocks[bisect_right(blocks, above) : bisect_right(blocks, upto)]:
            self._entries[block].missing -= 1

    def between(self, above: int, below: int) -> Iterator[Entry]:
        """Walk through the messages whose block numbers lie between two, in order."""
        for index in range(bisect_right(self.blocks, above), bisect_left(self.blocks, below)):
            yield self._entries[self.blocks[index]]
