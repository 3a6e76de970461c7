"""Symmetric recovery: whoever keeps a message that another member lacks may send it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from operator import gt
from typing import Final

from antiphon.protocol.machine import Duration, Instant, earliest
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge
from antiphon.protocol.ordering.causal_blocks.matrix import Entry, block_of
from antiphon.protocol.ordering.causal_blocks.messages import CausalBlocksOptions, NullBlock
from antiphon.protocol.parts import Out, PartContext, Step
from antiphon.protocol.rules import rule

UNCROWDED: Final = 25  # in larger groups the many who could help give the sender more time
COPIES_AT_ONCE: Final = 3  # a message is sent again so often at the pace of round trips
DOUBLINGS_MAX: Final = 4


class Repair:
    """Sees what others miss, and sends it again after a random time, unless somebody else has."""

    def __init__(self, known: Knowledge, options: CausalBlocksOptions, context: PartContext) -> None:
        self.known, self.options, self.random = known, options, context.random
        self.jittered = context.jittered
        self.deadline: Instant | None = None  # when to send something again
        self._not_before: Instant = 0
        self.looked = [0] * known.size  # per member, its MB when it was last looked for what it misses
        self._look_at: Instant = 0
        # per member, what waited there at its last null, and the block up to which that was all
        self._early: list[frozenset[tuple[int, int]]] = [frozenset() for _ in range(known.size)]
        self._told = [0] * known.size

    @rule("Section V, R5.0, mended")
    def retransmission_condition(self, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
        """Give the messages with MLDV[j][k] < m.b < `below` that member j could deliver, one after the other.

        What it could deliver at once is certainly missing there; what would follow then may already wait there, unless
        its last null told otherwise. Blocks respect causality, so in their order one look at each is enough.
        """
        known, early, told, left = self.known, self._early[j], self._told[j], self.options.burst
        delivered = list(known.MLDV[j])
        delivered[j] = known.arrivals.highest[j]  # it never lacks its own
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

    @rule("Section V, R5.0, mended")
    def below(self, j: int) -> int:
        """Give the block below which what member j has not delivered is missing there: its own MB says that.

        The paper takes min(MBV), the least of all, and so waits for news of members that have nothing to do with it.
        """
        return self.known.MBV[j]

    @rule("Figure 3, lines 1 and 2, mended")
    def trigger(self, now: Instant) -> Iterable[int]:
        """Give those at whom to look for what they miss: whose MB has risen and, from time to time, all.

        What is lost again, or could not be delivered before, does not move MB.
        """
        if now >= self._look_at:
            return range(self.known.size)
        return [j for j, (mb, looked) in enumerate(zip(self.known.MBV, self.looked, strict=True)) if mb > looked]

    @rule("Figure 3, line 4; docs/protocols/causal-blocks.md, Slow links")
    def first_delay_ns(self, entry: Entry, now: Instant) -> Duration:
        """Draw the time after which a message that another member lacks is sent again.

        Its sender goes first. The others would see its help in the news of those who lacked it; they wait for that, and
        then so long that one of them will most likely be first and seen by the rest.
        """
        soon_ns = self.random.randint(0, self.options.repair_delay_ns)
        if entry.message.sender == self.known.rank:
            return soon_ns
        round_ns = self.pause_ns(entry, now) // 2
        first_ns = 2 * round_ns if self.known.size > UNCROWDED else round_ns
        holders = self.known.size - entry.missing
        return soon_ns + first_ns + self.random.randint(0, max(1, holders * round_ns // 2))

    @rule("Figure 4, line 3, mended; docs/protocols/causal-blocks.md, Slow links")
    def suppress(self, entry: Entry, now: Instant) -> None:
        """Leave a message alone until those who lack it had time to receive a copy and to say so; longer each time."""
        doublings = min(max(0, entry.copies - COPIES_AT_ONCE), DOUBLINGS_MAX)
        entry.repair_after = now + self.jittered(self.pause_ns(entry, now) << doublings)

    @rule("Figure 3, line 5; docs/protocols/causal-blocks.md, Slow links")
    def targets(self, lacking: Sequence[int]) -> tuple[int, ...] | None:
        """Say to whom a message is sent again: to those whom R5.0 names; None: to all others."""
        return tuple(lacking) if len(lacking) < self.known.size - 1 else None

    def pause_ns(self, entry: Entry, now: Instant) -> Duration:
        """Give the time in which those who lack a message usually receive a copy and say so."""
        known, k, block = self.known, entry.message.sender, entry.message.block
        lacking = (j for j, row in enumerate(known.MLDV) if row[k] < block and j not in (k, known.rank))
        return max((known.trips.usual_of_ns(j, now) for j in lacking), default=known.trips.usual_ns)

    def hear_null(self, source: int, null: NullBlock) -> None:
        """Take note of what waits at a member."""
        self._early[source], self._told[source] = frozenset(null.early), null.told

    def saw_copy(self, entry: Entry, now: Instant) -> None:
        """Take note of a copy that someone sent again."""
        entry.copies += 1
        entry.planned = False
        self.suppress(entry, now)

    def plan(self, now: Instant) -> None:
        """Plan the repair of what members that were just heard miss, and from time to time of all."""
        known = self.known
        if not known.held or (self.looked == known.MBV and now < self._look_at):
            return
        oldest = min([column.blocks[0] for column in known.BM if column.blocks])
        for j in self.trigger(now):
            if j != known.rank and self.below(j) > oldest:  # without loss, few miss anything so old
                self.deadline = earliest(self.deadline, self._planned(self._missing_at(j), now))
        if now >= self._look_at:
            self._look_at = now + self.options.silence_ns // 2
        self.looked = list(known.MBV)

    def wake(self, now: Instant, step: Step) -> None:
        """Send again what is still missing elsewhere and has not just been sent by anyone, so much at a time."""
        if self.deadline is None or self.deadline > now:
            return
        due: dict[tuple[int, int], tuple[Entry, list[int]]] = {}
        later: list[Entry] = []
        for j, entry in self._missing():
            if entry.planned and entry.repair_after <= now:
                due.setdefault((entry.message.block, entry.message.sender), (entry, []))[1].append(j)
            else:
                later.append(entry)
        for (_, k), (entry, lacking) in sorted(due.items(), key=lambda item: item[0])[: self.options.burst]:
            entry.planned = False
            entry.copies += 1
            self.suppress(entry, now)
            step.down.append(Out(entry.copy(now), self.targets(lacking), k, entry.message.seq, repair=True))
        if len(due) > self.options.burst:  # the rest when this could have arrived
            self._not_before = now + self.jittered(self.known.trips.usual_ns)
            later += [entry for entry, _ in due.values() if entry.planned]
        self.deadline = self._planned(later, now)

    def missing_elsewhere(self) -> Iterator[Entry]:
        """Give every message that R5.0 allows to send again."""
        return (entry for _, entry in self._missing())

    def _missing(self) -> Iterator[tuple[int, Entry]]:
        """Give every message that R5.0 allows to send again, with each member that lacks it."""
        others = (j for j in range(self.known.size) if j != self.known.rank)
        return ((j, entry) for j in others for entry in self._missing_at(j))

    def _missing_at(self, j: int) -> Iterator[Entry]:
        """Give what a member misses; senders of whom it has delivered all are not looked at: without loss, none is."""
        known, below = self.known, self.below(j)
        row = known.MLDV[j]
        suspects = [
            k
            for k, column in enumerate(known.BM)
            if (blocks := column.blocks)
            and blocks[0] < below  # the cheap questions first: they settle nearly all
            and blocks[-1] > row[k]
            and k != j
            and column.next_above(row[k]) < below
        ]
        return self.retransmission_condition(j, below, suspects) if suspects else iter(())

    def _planned(self, missing: Iterable[Entry], now: Instant) -> Instant | None:
        """Plan the repair of what is missing, and give the time of the first."""
        first: Instant | None = None
        for entry in missing:
            if not entry.planned:
                entry.planned = True
                if entry.repair_after <= now:
                    entry.repair_after = now + self.first_delay_ns(entry, now)
            at = max(entry.repair_after, self._not_before)
            first = at if first is None else min(first, at)
        return None if first is None else max(first, now)
