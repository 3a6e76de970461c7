"""When a message is delivered: after all that its sender had delivered when it sent it."""

from __future__ import annotations

from heapq import heappop, heappush
from operator import gt

from antiphon.protocol.machine import Deliver, Drop, Instant
from antiphon.protocol.ordering.causal_blocks.buffer import WaitingBuffer
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge
from antiphon.protocol.ordering.causal_blocks.matrix import Entry
from antiphon.protocol.parts import Step
from antiphon.protocol.rules import rule


class Delivery:
    """Delivers messages in causal order; one that has expired is discarded in its turn instead."""

    def __init__(self, known: Knowledge, buffer: WaitingBuffer) -> None:
        self.known, self.buffer = known, buffer
        self._untold: dict[int, int] = {}  # per sender, deliveries since this member last said what it has
        self._told: dict[int, int] = {}  # and what it said then
        self.untold_most = 0  # of one sender: each waits for its own window only
        self._waiters: list[list[tuple[int, int, Entry]]] = [[] for _ in range(known.size)]  # heaps: (block awaited, .)
        self._waits = 0  # so far, to tell equal ones apart

    @rule("Section IV, delivery rule; Figure 6, line 1, mended")
    def delivery_condition(self, entry: Entry) -> bool:
        """Say whether all that its sender had delivered is delivered here: m.ldv[j] <= LDV[j] for every j.

        LDV only grows, so what was met once stays met and each message looks at each member once.
        """
        ldv, LDV, met, size = entry.ldv, self.known.LDV, entry.met, self.known.size
        if not any(map(gt, ldv, LDV)):  # as nearly always
            met = size
        while met < size and ldv[met] <= LDV[met]:
            met += 1
        entry.met = met
        return met == size

    @rule("Figure 4; Section V, lifetimes, mended")
    def place(self, entry: Entry, now: Instant, step: Step) -> None:
        """Deliver a message if it can be, else put it into the waiting buffer."""
        self.consider(entry, now, step)
        if not entry.passed:
            self.buffer.add(entry)
            self.buffer.make_room(entry)

    def consider(self, entry: Entry, now: Instant, step: Step) -> None:
        """Deliver or discard a message if its turn has come, and all that waited for it."""
        candidates = [entry]
        for entry in candidates:  # which grows meanwhile
            if entry.passed:
                continue
            if not self.delivery_condition(entry):
                if not entry.awaits:
                    self._await(entry)
            elif entry.whole or entry.discard is not None:
                self.pass_on(entry, now, step)
                candidates += self._freed(entry.message.sender)

    def pass_on(self, entry: Entry, now: Instant, step: Step) -> None:
        """Deliver a message in its causal turn or, if it has expired, discard it."""
        message = entry.message
        k, seq = message.sender, message.seq
        if entry.discard is None and k != self.known.rank and entry.expired(now):
            entry.discard = "expired"
        if entry.discard is None:
            step.up.append(Deliver(k, seq, message.payload))
        else:
            step.up.append(Drop(entry.discard, k, seq))
        self.end_wait(entry)
        self.known.passed_seq[k] = seq
        self._advance(k, message.block, step)

    def end_wait(self, entry: Entry) -> None:
        """Free the slot of a message that waits no more; one that was discarded keeps its stamps only."""
        entry.passed = True
        self.buffer.remove(entry)
        if entry.discard is not None and entry.whole:
            entry.strip()

    def told(self) -> None:
        """Take note that this member says now what it has delivered."""
        self._told, self._untold = self._untold, {}
        self.untold_most = 0

    @property
    def is_of_several(self) -> bool:
        """Whether several senders wait for word: they did when this member last said what it has, or do since then."""
        return len(self._told.keys() | self._untold.keys()) > 1

    def advance_to(self, k: int, block: int, now: Instant, step: Step) -> None:
        """Let LDV reach a block of k's without a message, and deliver what waited for it."""
        self._advance(k, block, step)
        for entry in self._freed(k):
            self.consider(entry, now, step)

    def _advance(self, k: int, block: int, step: Step) -> None:
        """R2.1, R2.2 and R3.2: LDV reaches a message."""
        known = self.known
        known.know(known.rank, k, block, step)
        if known.lacking and known.lacking.get(k, block + 1) <= block:
            del known.lacking[k]
        if known.since and k in known.since and known.since[k][0] <= block:
            del known.since[k]
        if k != known.rank:
            untold = self._untold[k] = self._untold.get(k, 0) + 1
            self.untold_most = max(self.untold_most, untold)

    def _await(self, entry: Entry) -> None:
        """Look at the message again when the first predecessor that it lacks is delivered."""
        entry.awaits = True
        self._waits += 1
        x = min(entry.met, self.known.size - 1)
        heappush(self._waiters[x], (entry.ldv[x], self._waits, entry))

    def _freed(self, k: int) -> list[Entry]:
        """Give the messages that waited for what k's messages have reached now."""
        waiters, freed = self._waiters[k], []
        while waiters and waiters[0][0] <= self.known.LDV[k]:
            freed.append(heappop(waiters)[2])
            freed[-1].awaits = False
        return freed
