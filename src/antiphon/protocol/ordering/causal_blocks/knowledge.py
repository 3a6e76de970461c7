"""What a member knows: its block matrix, the stamps of everyone's messages, and with them who has delivered what.

The names in capitals are the paper's: BC the block counter, BM the block matrix, LDV the blocks of the last delivered
messages, MLDV what is known of everyone's LDV, MB the block up to which something was received from everyone, MBV what
is known of everyone's MB; R1.0 to R4.1 are its rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import gt
from typing import Final, Literal, TypeAlias

import msgspec

from antiphon.protocol.machine import Duration, Instant, Stable
from antiphon.protocol.ordering.causal_blocks.arrivals import Arrivals
from antiphon.protocol.ordering.causal_blocks.matrix import Column, Entry
from antiphon.protocol.ordering.causal_blocks.messages import BLOCK_MAX, BlockMessage, CausalBlocksOptions
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import Step
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Malformed, unpack_vector

_LONG_TRIPS: Final = 6  # half of a lifetime; a repair that nothing holds up takes two or three


class Stamps(msgspec.Struct, frozen=True, gc=False):
    """What a message or a null says besides its payload."""

    sender: int
    block: int
    mb: int
    ldv: list[int]
    before: int  # the number of its sender's last message before it
    stable: int


# What a member's stamps brought; old: something that it said later was heard before
News: TypeAlias = Literal["old", "nothing", "progress"]


class Knowledge:
    """The block matrix and what is known of the others; copies go when everyone has delivered them."""

    def __init__(self, rank: int, size: int, options: CausalBlocksOptions) -> None:
        self.rank, self.size = rank, size
        self.BC = 0
        self.BM = [Column() for _ in range(size)]
        self.MLDV = [[0] * size for _ in range(size)]
        self.LDV = self.MLDV[rank]  # the same knowledge, so the same list
        self.MBV = [0] * size
        self.arrivals = Arrivals(size)  # all that MB needs of the block matrix
        self.trips = RoundTrips(size, options.repeat_ns or options.silence_ns)
        self._grace_ns = options.grace_ns
        self.passed_seq = [0] * size  # per sender, the last message delivered or discarded here
        self.stable_seq = [0] * size  # per sender, the last message that everyone has delivered
        self.lacking: dict[int, int] = {}  # sender -> block of a message that someone has delivered and we have not
        self.since: dict[int, tuple[int, Instant]] = {}  # sender -> a block that has been lacking since then
        self.lapsed = [0] * size  # per sender, how many of its first messages that are kept have lapsed
        self.held = 0  # messages in the block matrix
        self.unstable_max = options.window + options.lag  # of one sender
        # where gaps are skipped, a member may have passed what it never held: nothing is then called stable
        self._says_stable = not options.skip_after_ns

    # One's own stamps

    @rule("Section IV, definition of MB; Section V, R4.1; docs/protocols/causal-blocks.md, Slow members")
    def maximum_block(self, now: Instant) -> int:
        """Give MB: the highest block such that something of it or later has come from everyone.

        Where something has been lacking for long, those of whom nothing newer has come do not count: a member that
        takes in nothing, or is dead, would keep all others from complaining, and so from repair. Unless they are half
        of the group or more: then large messages are on their way on slow links, and nobody shall send them again.
        """
        settled = self.arrivals.settled
        if self.since:
            long_ns = _LONG_TRIPS * max(self.trips.usual_ns, self._grace_ns)
            overdue = min([block for block, since in self.since.values() if since + long_ns <= now], default=BLOCK_MAX)
            newer = [block for block in settled if block > overdue]
            return min(newer if 2 * len(newer) > self.size else settled)
        return min(settled)

    @rule("Section IV, R1.0; Section V, R4.1")
    def next_block(self, now: Instant, *, answered: bool = True) -> tuple[int, int]:
        """Count a message or null of one's own, which others will answer or not; give its block and its MB."""
        self.BC = min(self.BC + 1, BLOCK_MAX)
        self.arrivals.settle(now, self.grace_ns())
        self.arrivals.heard(self.rank, self.BC, 0, now)
        if answered:
            self.trips.sent(self.BC, now)
        mb = self.MBV[self.rank] = self.maximum_block(now)
        return self.BC, mb

    @rule("docs/protocols/causal-blocks.md, Slow links")
    def grace_ns(self) -> Duration:
        """Say how long a gap may close by itself: on quick links nothing is overtaken by more than a round trip."""
        return min(self._grace_ns, self.trips.shortest_ns or self._grace_ns)

    @rule("Section IV, R2.0")
    def own_ldv(self) -> list[int]:
        """Give m.ldv, the causal past of a message that is sent now: the last delivered message of each member."""
        return list(self.LDV)

    # The stamps of others

    def checked(self, k: int, block: int, mb: int, packed: bytes, seq: int, stable: int) -> list[int]:
        """Take stamps from the wire; refuse what no correct member says, before anything changes."""
        ldv = unpack_vector(packed, self.size)
        if mb > block or max(ldv) >= block:
            raise Malformed("impossible-stamps")
        if not 0 <= seq - stable <= self.unstable_max:
            raise Malformed("impossible-window")
        if ldv[self.rank] > self.LDV[self.rank] or (k == self.rank and block > self.LDV[k]):
            raise Malformed("never-sent")  # someone claims a message of ours that does not exist
        if stable > self.passed_seq[k]:
            raise Malformed("never-delivered")  # not everyone has delivered it: we have not
        return ldv

    @rule("Section IV, R1.1; Section V, R3.0 and R4.0")
    def hear(self, stamps: Stamps, now: Instant, step: Step) -> News:
        """Take note of a member's stamps, if they are its newest."""
        k, block, mb, ldv = stamps.sender, stamps.block, stamps.mb, stamps.ldv
        self.let_go(k, stamps.stable, step)
        if block <= self.arrivals.highest[k]:
            return "old"
        self.arrivals.heard(k, block, stamps.before, now)
        self.trips.heard(k, max(mb, ldv[self.rank]), now)  # both say that it has our messages up to there
        self.BC = max(self.BC, block)  # at receipt already: safe, and losses show sooner
        changed = mb != self.MBV[k]
        self.MBV[k] = mb
        LDV = self.LDV
        for x in [*compress(range(self.size), map(gt, ldv, self.MLDV[k]))]:
            changed, known = True, ldv[x]
            self.know(k, x, known, step)
            if known > LDV[x]:
                self.lacking[x] = max(known, self.lacking.get(x, 0))
                self.since.setdefault(x, (known, now))
        return "progress" if changed else "nothing"

    @rule("Figure 4, line 9, mended")
    def is_new(self, sender: int, block: int) -> bool:
        """Say whether a message was never here: neither kept, nor delivered and let go."""
        return block > self.LDV[sender] and self.BM[sender].get(block) is None

    def enter(self, pdu: BlockMessage, ldv: list[int], now: Instant) -> Entry:
        """Put a message into the block matrix."""
        k, block = pdu.sender, pdu.block
        missing = sum([row[k] < block for row in self.MLDV]) - (self.MLDV[k][k] < block)  # its sender does not count
        entry = Entry(pdu, ldv, None if pdu.life_ns is None else now + pdu.life_ns, missing)
        self.BM[k].insert(entry)
        self.arrivals.came(k, pdu.seq)
        self.held += 1
        return entry

    # Stability at delivery

    @rule("Section V, stability at delivery time")
    def is_stable(self, entry: Entry) -> bool:
        """Say whether everyone has delivered it: MLDV[j][m.s] >= m.b for every j but the sender."""
        return entry.missing == 0

    def know(self, j: int, k: int, block: int, step: Step) -> None:
        """Learn that member j has delivered k's messages up to a block; each message counts each member once."""
        row, kept = self.MLDV[j], self.BM[k]
        before, row[k] = row[k], block
        if j != k:
            kept.delivered(before, block)
        stable = 0
        while (first := kept.first) is not None and first.passed and self.is_stable(first):
            stable = self._release(k)
        if stable:
            self._announce(k, stable, step)

    @rule("docs/protocols/causal-blocks.md, Stability")
    def let_go(self, k: int, stable: int, step: Step) -> None:
        """Let the copies go that, as their sender says, everyone has delivered: those up to a number."""
        last = 0
        while (first := self.BM[k].first) is not None and first.message.seq <= stable:
            for j, row in enumerate(self.MLDV):
                if j != k and row[k] < first.message.block:
                    row[k] = first.message.block
            last = self._release(k)
        if last:
            self._announce(k, last, step)

    def lag(self) -> dict[int, int | None]:
        """Say how many of the messages that are kept here each member is not known to have delivered."""
        lacking: dict[int, int | None] = {}
        for j, row in enumerate(self.MLDV):
            count = sum(len(list(column.between(row[k], BLOCK_MAX + 1))) for k, column in enumerate(self.BM) if k != j)
            if j != self.rank and count:
                lacking[j] = count
        return lacking

    def reached(self, ldv: Sequence[int], k: int) -> bool:
        """Say whether all of a causal past is delivered here, k's own messages aside."""
        return all(block <= mine for x, (block, mine) in enumerate(zip(ldv, self.LDV, strict=True)) if x != k)

    def _release(self, k: int) -> int:
        entry = self.BM[k].pop()
        self.lapsed[k] -= entry.lapsed
        self.held -= 1
        self.stable_seq[k] = seq = entry.message.seq
        return seq

    def _announce(self, k: int, seq: int, step: Step) -> None:
        if self._says_stable:
            step.up.append(Stable(k, seq))
