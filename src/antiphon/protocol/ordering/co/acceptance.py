"""What may be accepted now, and what came early and has to wait, within a bounded buffer."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.protocol.ordering.co.levels import AtomicReceipt
from antiphon.protocol.ordering.co.logs import Logged
from antiphon.protocol.ordering.co.pdus import CoOptions
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule


class CausalAcceptance:
    """REQ, the number expected next of each source, and the PDUs that came before their turn."""

    def __init__(self, context: PartContext, options: CoOptions, receipt: AtomicReceipt) -> None:
        self.rank, self.size, self.receipt = context.rank, context.size, receipt
        self.places = options.places(context.size)  # B
        self.req = [1] * context.size  # REQ; one's own entry is SEQ, for one's own PDUs are accepted as they are sent
        self.early: list[dict[int, Logged]] = [{} for _ in range(context.size)]  # by source and number
        self.early_count = 0
        self.early_messages = 0  # those of them that take a slot: confirmations need none
        self.overruns = 0  # PDUs dropped for want of a slot
        # n windows under way at each of two levels cause two confirmations each at most, and as much again is to spare
        self._log_max = 8 * context.size * options.window + 8
        self._blocked: dict[int, int] = {}  # source -> the source that its next PDU waits for

    @property
    def held(self) -> int:
        """How many messages are kept: accepted and not yet delivered, or early."""
        return self.receipt.undelivered + self.early_messages

    @property
    def free(self) -> int:
        """How many buffer slots are left now."""
        return max(0, self.places - self.held)

    @rule("Section 4.2, ACC condition, mended")
    def acceptance_condition(self, p: Logged, start: int) -> int | None:
        """Find a source of which p's sender had accepted more than this member has: p, the next one, waits for it.

        The sources before `start` are known to be none. The paper accepts the next PDU of a source whatever it lacks,
        but then precedence, as sequence numbers show it, is not transitive.
        """
        req, ack = self.req, p.ack
        for k in range(start, self.size):
            if ack[k] > req[k]:
                return k
        return None

    @rule("Section 4.2, ACC condition: the sequence number")
    def is_copy(self, p: Logged) -> bool:
        """Say whether a PDU was accepted or held before."""
        return p.number < self.req[p.source] or p.number in self.early[p.source]

    @rule("Section 4.2, ACC condition: the sequence number")
    def is_next(self, p: Logged) -> bool:
        """Say whether a PDU is the one that is expected of its source."""
        return p.number == self.req[p.source]

    def admit(self, p: Logged) -> bool:
        """Say whether a new PDU is to be accepted now; if not, it is held while it is early, or dropped."""
        if not self.is_next(p):
            self.hold(p)
            return False
        lacking = self.acceptance_condition(p, 0)
        if lacking is not None:
            self._blocked[p.source] = lacking
            self.hold(p)
            return False
        full = p.payload is not None and self.receipt.undelivered >= self.places
        if full or len(self.receipt.rrl[p.source]) >= self._log_max:
            self.overruns += 1  # no sender that keeps the rules causes this
            return False
        if p.payload is not None and self.free == 0:
            self._evict()
        return True

    def accepted(self, p: Logged) -> None:
        """Expect the next PDU of a source."""
        self.req[p.source] = p.number + 1
        self._blocked.pop(p.source, None)

    @rule("docs/protocols/co.md, Rule: what comes early is held")
    def hold(self, p: Logged) -> None:
        """Keep an early PDU if there is a slot; one that is dropped will be asked for again."""
        full = p.payload is not None and self.free == 0
        if full or p.number >= self.req[p.source] + self.places:
            self.overruns += 1
        else:
            self.put_early(p)

    def put_early(self, p: Logged) -> None:
        """Keep an early PDU, whether there is a slot or not."""
        self.early[p.source][p.number] = p
        self.early_count += 1
        self.early_messages += p.payload is not None

    def released(self, source: int) -> Iterator[Logged]:
        """Give what waited for this source's advance, and what waited for that; each is accepted before the next."""
        candidates = self._may_follow(source)
        while candidates:
            source = candidates.pop()
            p = self.early[source].get(self.req[source])
            if p is None:
                continue
            lacking = self.acceptance_condition(p, self._blocked.get(source, 0))
            if lacking is not None:
                self._blocked[source] = lacking
                continue
            self._forget(p)
            yield p
            candidates += self._may_follow(source)

    def forget_early(self) -> None:
        """Let all that is early go: it is no part of what this member says that it holds."""
        for held in self.early:
            held.clear()
        self.early_count = self.early_messages = 0
        self._blocked.clear()

    def _evict(self) -> None:
        """Make room for a PDU that can be accepted at the cost of the one that will wait the longest."""
        messages = [[p for p in held.values() if p.payload is not None] for held in self.early]
        crowded = max(messages, key=len)
        self._forget(max(crowded, key=lambda p: p.number))
        self.overruns += 1

    def _forget(self, p: Logged) -> None:
        del self.early[p.source][p.number]
        self.early_count -= 1
        self.early_messages -= p.payload is not None

    def _may_follow(self, source: int) -> list[int]:
        """List the sources whose next PDU may be acceptable now that one from `source` was accepted."""
        return [source, *(waiting for waiting, on in self._blocked.items() if on == source)]
