"""Symmetric recovery: whoever keeps a message that another member lacks may send it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import gt
from random import Random

from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge
from antiphon.protocol.ordering.causal_blocks.matrix import Entry, block_of
from antiphon.protocol.ordering.causal_blocks.messages import CausalBlocksOptions, NullBlock
from antiphon.protocol.parts import Out, Step
from antiphon.protocol.rules import rule


class Repair:
    """Sees what others miss, and sends it again after a random time, unless somebody else has."""

    def __init__(self, known: Knowledge, options: CausalBlocksOptions, random: Random) -> None:
        self.known, self.options, self.random = known, options, random
        self.repair_at: Instant | None = None
        # per member, what waited there at its last null, and the block up to which that was all
        self._early: list[frozenset[tuple[int, int]]] = [frozenset() for _ in range(known.size)]
        self._told = [0] * known.size
        self._repeat_ns = options.repeat_ns or options.silence_ns

    @rule("Section V, R5.0, mended")
    def retransmission_condition(self, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
        """Give the messages with MLDV[j][k] < m.b < min(MBV) that member j could deliver, one after the other.

        What it could deliver at once is certainly missing there; what would follow then may already wait there, unless
        its last null told otherwise. Blocks respect causality, so in their order one look at each is enough.
        """
        known, early, told, left = self.known, self._early[j], self._told[j], self.options.burst
        delivered = list(known.MLDV[j])
        delivered[j] = known.highest[j]  # it never lacks its own
        row = list(delivered)  # what it will have delivered when the repairs have come
        columns = [known.BM[k].between(row[k], below) for k in suspects if k != j]
        for entry in merge(*columns, key=block_of):
            k, block, seq = entry.message.sender, entry.message.block, entry.message.seq
            if any(map(gt, entry.ldv, row)):
                continue  # it has to wait for something that only others can send
            certain = not any(map(gt, entry.ldv, delivered))
            if certain or (k, seq) not in early:
                if not entry.sendable or not (certain or block < told):
                    continue
                yield entry
                left -= 1
                if left == 0:
                    return
            row[k] = block

    @rule("Figure 3, lines 1 and 2, mended")
    def trigger(self) -> bool:
        """Say whether to look for what others miss: whenever no repair is planned, so that a lost one is repeated."""
        return self.repair_at is None

    @rule("Figure 4, line 3, mended")
    def suppress(self, entry: Entry, now: Instant) -> None:
        """Leave a message alone for one report period, since a copy of it is on its way to everyone."""
        entry.repair_after = now + self._repeat_ns

    def hear_null(self, source: int, null: NullBlock) -> None:
        """Take note of what waits at a member."""
        self._early[source], self._told[source] = frozenset(null.early), null.told

    def plan(self, now: Instant) -> None:
        """Set a random time for the next repair, if any message may be sent again."""
        if self.known.held and self.trigger():
            first = min((entry.repair_after for entry in self.missing_elsewhere()), default=None)
            if first is not None:
                self.repair_at = max(now, first) + self.random.randint(0, self.options.repair_delay_ns)

    def wake(self, now: Instant, step: Step) -> None:
        """Send again what is still missing elsewhere and has not just been sent by anyone."""
        if self.repair_at is None or self.repair_at > now:
            return
        self.repair_at = None
        due = {
            (entry.message.block, entry.message.sender): entry
            for entry in self.missing_elsewhere()
            if entry.repair_after <= now
        }
        for (_, k), entry in sorted(due.items(), key=lambda item: item[0]):
            self.suppress(entry, now)
            step.down.append(Out(entry.copy(now), None, k, entry.message.seq, repair=True))

    def missing_elsewhere(self) -> Iterator[Entry]:
        """Give every message that R5.0 allows to send again; only columns that lag behind min(MBV) are looked at."""
        known = self.known
        below = min(known.MBV)
        suspects = [k for k, column in enumerate(known.BM) if column.blocks and column.blocks[0] < below]
        if suspects:
            for j in range(known.size):
                if j != known.rank:
                    yield from self.retransmission_condition(j, below, suspects)
