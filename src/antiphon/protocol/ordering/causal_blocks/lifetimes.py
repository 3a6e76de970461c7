"""What becomes of messages whose life is over: payloads go (lagging), and gaps are skipped."""

from __future__ import annotations

import msgspec

from antiphon.protocol.machine import Drop, Instant, earliest
from antiphon.protocol.ordering.causal_blocks.delivery import Delivery
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge
from antiphon.protocol.ordering.causal_blocks.messages import CausalBlocksOptions
from antiphon.protocol.parts import Step
from antiphon.protocol.rules import rule


class Gap(msgspec.Struct, frozen=True):
    """Messages of one sender up to (block, seq) that are missing here, and since when this is known."""

    since: Instant
    block: int
    seq: int
    ldv: list[int]  # all that can have come before them


class Lifetimes:
    """Lets payloads go with `lag`, and skips gaps with `skip_after_ns`; without these it has nothing to do."""

    def __init__(self, known: Knowledge, delivery: Delivery, options: CausalBlocksOptions) -> None:
        self.known, self.delivery, self.options = known, delivery, options
        self._gaps: dict[int, Gap] = {}
        self._skip_at: Instant | None = None

    @property
    def deadline(self) -> Instant | None:
        """When a gap is to be skipped, or a message of one's own lapses and so makes room in a window that is full."""
        if not self.options.lag:
            return self._skip_at
        known = self.known
        own, lapsed = known.BM[known.rank], known.lapsed[known.rank]
        first = own.at(lapsed) if len(own) - lapsed >= self.options.window else None
        return earliest(self._skip_at, None if first is None else first.expires_at)

    def missing(self, k: int, block: int, seq: int, ldv: list[int], now: Instant) -> None:
        """Note that k's messages up to (block, seq) exist, unless an older gap is already being watched."""
        if self.options.skip_after_ns and block > self.known.LDV[k] and k not in self._gaps:
            self._gaps[k] = Gap(now, block, seq, ldv)

    def settle(self, now: Instant, step: Step) -> None:
        """Do what is due."""
        if self.options.lag:
            self._lapse(now)
        if self.options.skip_after_ns:
            self._skip(now, step)

    @rule("Section V, lifetimes, mended; docs/protocols/causal-blocks.md, Lifetimes")
    def may_skip(self, k: int, gap: Gap, now: Instant) -> bool:
        """Say whether a gap has been known for a whole lifetime, and all that came before it is delivered."""
        return gap.since + self.options.skip_after_ns <= now and self.known.reached(gap.ldv, k)

    def _lapse(self, now: Instant) -> None:
        """Let the payloads go of what was delivered here and has outlived its time; who lacks it gets the stamps."""
        lapsed = self.known.lapsed
        for k, column in enumerate(self.known.BM):
            while (entry := column.at(lapsed[k])) is not None and entry.passed and entry.expired(now):
                if entry.whole:
                    entry.strip()
                entry.lapsed = True
                lapsed[k] += 1

    def _skip(self, now: Instant, step: Step) -> None:
        """Discard what is missing and known for a whole lifetime, in its causal turn."""
        moved = True
        while moved:
            moved = False
            for k, gap in list(self._gaps.items()):
                if self.known.LDV[k] >= gap.block:
                    del self._gaps[k]
                elif self.may_skip(k, gap, now):
                    del self._gaps[k]
                    self._skip_to(k, gap, now, step)
                    moved = True
        ends = [gap.since + self.options.skip_after_ns for gap in self._gaps.values()]
        self._skip_at = min((end for end in ends if end > now), default=None)

    def _skip_to(self, k: int, gap: Gap, now: Instant, step: Step) -> None:
        known = self.known
        for entry in known.BM[k].between(known.LDV[k], gap.block + 1):
            entry.discard = "expired"
            self.delivery.end_wait(entry)
        for seq in range(known.passed_seq[k] + 1, gap.seq + 1):
            step.up.append(Drop("expired", k, seq))
        known.passed_seq[k] = gap.seq
        known.arrivals.skipped(k, gap.seq)
        self.delivery.advance_to(k, gap.block, now, step)
