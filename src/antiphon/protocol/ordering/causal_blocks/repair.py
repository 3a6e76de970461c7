"""Symmetric recovery: whoever keeps a message that another member lacks may send it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import gt
from typing import Final

import msgspec

from antiphon.protocol.machine import Duration, Instant, earliest
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge
from antiphon.protocol.ordering.causal_blocks.matrix import Entry, block_of
from antiphon.protocol.ordering.causal_blocks.messages import CausalBlocksOptions, NullBlock
from antiphon.protocol.parts import Out, PartContext, Step
from antiphon.protocol.repairs import CHEAP_BYTES
from antiphon.protocol.rules import rule

COPIES_AT_ONCE: Final = 3  # a message is sent again to a member so often at the pace of round trips
DOUBLINGS_MAX: Final = 4
LARGE: Final = 4  # times as long as with small messages others leave the repair of large ones to their sender


class Lack(msgspec.Struct, eq=False):
    """A message that a member lacks, and when this member sends it again."""

    member: int
    entry: Entry
    word: int  # the member's newest block when that was first seen
    help_after: Instant  # by then its sender has helped, and the member could have said so
    at: Instant | None = None  # not to be sent before; None: not before the member's next word
    named: bool = True  # the last look at the member named it
    copies: int = 0  # sent again so often, by anyone that we know of
    copied_at: Instant = 0  # the last time
    usual_ns: Duration = 0  # the pause that was usual then, of which `at` is a multiple
    behind: int = 0  # the member has had nothing that left here after the last large copy while its MB is not past this


class Repair:
    """Sees what others miss, and sends it again after a random time, unless somebody else has."""

    def __init__(self, known: Knowledge, options: CausalBlocksOptions, context: PartContext) -> None:
        self.known, self.options, self.random = known, options, context.random
        self.jittered = context.jittered
        self.deadline: Instant | None = None  # when to send something again
        self.lacks: dict[int, dict[tuple[int, int], Lack]] = {}  # per member: by block and sender
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
        entries = [entry for k in suspects if k != j for entry in known.BM[k].between(row[k], below)]
        entries.sort(key=block_of)
        x = 0  # whose message the last one waited for: most of those that wait, wait for the same
        for entry in entries:
            ldv = entry.ldv
            if ldv[x] > row[x]:
                continue  # it has to wait for something that only others can send
            if any(map(gt, ldv, row)):
                x = next(y for y, block in enumerate(ldv) if block > row[y])
                continue
            k, block, seq = entry.message.sender, entry.message.block, entry.message.seq
            certain = not any(map(gt, ldv, delivered))
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
        return compress(range(self.known.size), map(gt, self.known.MBV, self.looked))

    @rule("Figure 3, line 4; docs/protocols/causal-blocks.md, Slow links")
    def first_delay_ns(self, lack: Lack, now: Instant) -> Duration | None:
        """Draw the time after which a message that another member lacks is sent again; None: not before its next word.

        Its sender goes first. The others see its help in the next word of the member that lacks it; if that word still
        complains, they wait so long that one of them will most likely be first and seen by the rest.
        """
        soon_ns = self.random.randint(0, self.options.repair_delay_ns)
        if lack.entry.message.sender == self.known.rank:
            return soon_ns
        if self.known.arrivals.highest[lack.member] == lack.word or now < lack.help_after:
            return None
        turns = (self.known.size - lack.entry.missing) * self.pause_ns(lack.member, now) // 2  # for all who keep it
        if len(lack.entry.message.payload) > CHEAP_BYTES:
            turns *= LARGE  # a copy that nobody needs costs more than to wait for the sender's next
        return soon_ns + self.random.randint(0, max(1, turns))

    @rule("Figure 4, line 3, mended; docs/protocols/causal-blocks.md, Slow links")
    def suppress(self, lack: Lack, now: Instant) -> None:
        """Leave a message alone until whoever lacks it had time to receive a copy and to say so; longer each time."""
        doublings = min(max(0, lack.copies - COPIES_AT_ONCE), DOUBLINGS_MAX)
        lack.copied_at, lack.usual_ns = now, self.pause_ns(lack.member, now)
        lack.at = now + self.jittered(lack.usual_ns << doublings)

    @rule("Figure 3, line 5; docs/protocols/causal-blocks.md, Slow links")
    def targets(self, lacking: Sequence[int]) -> tuple[int, ...] | None:
        """Say to whom a message is sent again: to those whom R5.0 names; None: to all others."""
        return tuple(lacking) if len(lacking) < self.known.size - 1 else None

    def pause_ns(self, j: int, now: Instant) -> Duration:
        """Give the time in which a member that lacks a message usually receives a copy and says so."""
        return self.known.trips.usual_of_ns(j, now)

    def hear_null(self, source: int, null: NullBlock) -> None:
        """Take note of what waits at a member."""
        self._early[source], self._told[source] = frozenset(null.early), null.told

    def saw_copy(self, entry: Entry, now: Instant) -> None:
        """Take note of a copy that someone sent again."""
        key = entry.message.block, entry.message.sender
        for lacks in self.lacks.values():
            if key in lacks:
                self._sent(lacks[key], now)

    def plan(self, now: Instant) -> None:
        """Plan the repair of what members that were just heard miss, and from time to time of all."""
        known = self.known
        if not known.held or (self.looked == known.MBV and now < self._look_at):
            return
        oldest = min([column.blocks[0] for column in known.BM if column.blocks])
        for j in self.trigger(now):
            if j != known.rank and self.below(j) > oldest:  # without loss, few miss anything so old
                self._look(j, now)
        if now >= self._look_at:
            self._look_at = now + self.options.look_ns(known.size)
        self.looked = list(known.MBV)

    def wake(self, now: Instant, step: Step) -> bool:
        """Send again what is still missing elsewhere and has not just been sent by anyone, so much at a time.

        Say whether there was something large among it: what this member says next tells whether that was lost.
        """
        if self.deadline is None or self.deadline > now:
            return False
        is_large = False
        due: dict[tuple[int, int], list[Lack]] = {}
        self.deadline = None
        for j in [*self.lacks]:
            self._forget(j)
            for key, lack in self.lacks.get(j, {}).items():
                if lack.named and lack.at is not None and lack.at <= now:
                    due.setdefault(key, []).append(lack)
                else:
                    self._put_off(lack, now)
        keys = sorted(due)
        for key in keys[: self.options.burst]:
            entry = due[key][0].entry
            to = self.targets([lack.member for lack in due[key]])
            step.down.append(Out(entry.copy(now), to, key[1], entry.message.seq, repair=True))
            for lack in due[key] if to is not None else [lacks[key] for lacks in self.lacks.values() if key in lacks]:
                self._sent(lack, now)
                if len(entry.message.payload) > CHEAP_BYTES:
                    lack.behind, is_large = self.known.BC, True
        if len(keys) > self.options.burst:  # the rest when this could have arrived
            self._not_before = now + self.jittered(self.known.trips.usual_ns)
            self.deadline = earliest(self.deadline, self._not_before)
        return is_large

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

    def _look(self, j: int, now: Instant) -> None:
        """See what a member misses now, and plan its repair."""
        self._forget(j)
        named = {(entry.message.block, entry.message.sender): entry for entry in self._missing_at(j)}
        lacks = self.lacks.setdefault(j, {}) if named else self.lacks.get(j, {})
        for key, lack in lacks.items():
            lack.named &= key in named
        for key, entry in named.items():
            lack = lacks.get(key) or Lack(j, entry, self.known.arrivals.highest[j], now + self.pause_ns(j, now))
            if not lack.named and lack.at is not None and lack.at <= now:
                lack.at = None  # its time has passed at all who keep it: they must not answer as one
            lack.named, lacks[key] = self.below(j) > lack.behind, lack
            pause_ns = self.pause_ns(j, now)
            if lack.at is not None and 2 * pause_ns < lack.usual_ns:  # it was slow then, and is quick again
                lack.at = lack.copied_at + (lack.at - lack.copied_at) * pause_ns // lack.usual_ns
                lack.usual_ns = pause_ns
            if lack.at is None and (delay_ns := self.first_delay_ns(lack, now)) is not None:
                lack.at = now + delay_ns
            self._put_off(lack, now)

    def _forget(self, j: int) -> None:
        """Forget what a member lacks no more, or what everyone has."""
        row, lacks = self.known.MLDV[j], self.lacks.get(j, {})
        for block, k in [(block, k) for block, k in lacks if block <= row[k] or self.known.BM[k].get(block) is None]:
            del lacks[block, k]
        if not lacks:
            self.lacks.pop(j, None)

    def _sent(self, lack: Lack, now: Instant) -> None:
        """Count a copy; another is planned when the next look names it again."""
        lack.copies += 1
        lack.named = False
        self.suppress(lack, now)

    def _put_off(self, lack: Lack, now: Instant) -> None:
        """Wake up for a message when it is to be sent again, and none before what must wait for an earlier burst."""
        if lack.named and lack.at is not None:
            self.deadline = earliest(self.deadline, max(lack.at, self._not_before, now))
