"""Atomic receipt in three levels: accepted, pre-acknowledged, acknowledged.

A PDU is *accepted* when all that precedes it is here; *pre-acknowledged* when everyone is known to have accepted it;
*acknowledged*, and delivered, when everyone is known to have pre-acknowledged it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from antiphon.protocol.machine import Deliver, Stable
from antiphon.protocol.ordering.co.logs import Logged, insertion_place
from antiphon.protocol.ordering.co.minima import Minima
from antiphon.protocol.parts import Received, Step
from antiphon.protocol.rules import rule


class Levels(msgspec.Struct, frozen=True):
    """How far one sender's messages have come at a member, each level the number of the last message there."""

    accepted: int
    pre_acknowledged: int
    acknowledged: int


class AtomicReceipt:
    """The receipt logs RRL and PRL, and the matrices AL and PAL that move PDUs from one to the next."""

    minima_type: ClassVar[type[Minima]] = Minima

    def __init__(self, size: int) -> None:
        self.al = self.minima_type(size)  # AL: what each member is known to expect next from each source
        self.pal = self.minima_type(size)  # PAL: the same, of pre-acknowledged PDUs only
        self.rrl: list[deque[Logged]] = [deque() for _ in range(size)]  # RRL: accepted, by source
        self.prl: list[Logged] = []  # PRL: pre-acknowledged data, causality-preserved
        self.accepted = [0] * size  # messages, by sender: the three levels
        self.pre_acknowledged = [0] * size
        self.acknowledged = [0] * size
        self.undelivered = 0  # accepted data that is not yet acknowledged

    def levels(self) -> list[Levels]:
        """Give, per sender, the numbers of the last message accepted, pre-acknowledged and acknowledged here."""
        return [
            Levels(*numbers) for numbers in zip(self.accepted, self.pre_acknowledged, self.acknowledged, strict=True)
        ]

    def enter(self, p: Logged, step: Step) -> None:
        """Put a PDU that is accepted into its source's log; a message gets its own number."""
        self.rrl[p.source].append(p)
        if p.payload is not None:
            p.seq = self.accepted[p.source] = self.accepted[p.source] + 1
            self.undelivered += 1
            step.up.append(Received(p.source, p.seq))

    @rule("Section 4.4, PACK condition")
    def pack_condition(self, p: Logged) -> bool:
        """Say whether everyone is known to have accepted p."""
        return p.number < self.al.least[p.source]

    @rule("Section 4.4, PACK action, mended")
    def pack_action(self, sources: Iterable[int], step: Step) -> bool:
        """Move what is pre-acknowledged from these sources' logs to PRL; say whether there were messages among it."""
        start = len(self.prl)  # what was pre-acknowledged earlier succeeds nothing of this
        messages = False
        for source in sources:
            log, before = self.rrl[source], self.pre_acknowledged[source]
            while log and self.pack_condition(log[0]):
                p = log.popleft()
                self.pal.raise_column(source, p.ack)
                if p.payload is not None:
                    self.pre_acknowledged[source] = p.seq
                    self.prl.insert(self.insertion_place(p, start), p)
            if self.pre_acknowledged[source] > before:
                messages = True
                step.up.append(Stable(source, self.pre_acknowledged[source]))
        return messages

    @rule("Section 4.4, CPI operation, mended")
    def insertion_place(self, p: Logged, start: int) -> int:
        """Find p's position in PRL: before the first that it precedes, else at the tail."""
        return insertion_place(self.prl, p, start)

    @rule("Section 4.5, ACK condition")
    def ack_condition(self, p: Logged) -> bool:
        """Say whether everyone is known to have pre-acknowledged p."""
        return p.number < self.pal.least[p.source]

    @rule("Section 4.5, ACK action")
    def ack_action(self, step: Step) -> None:
        """Deliver from the top of PRL what is acknowledged."""
        count = 0
        for p in self.prl:
            if not self.ack_condition(p):
                break
            count += 1
            assert p.payload is not None, "only data enters PRL"
            self.acknowledged[p.source] = p.seq
            step.up.append(Deliver(p.source, p.seq, p.payload))
        del self.prl[:count]
        self.undelivered -= count

    @rule("docs/protocols/co.md, Losses")
    def awaited(self) -> set[int]:
        """Name the members of whom something must be heard before all that is accepted here can be delivered."""
        awaited: set[int] = set()
        for p in self.prl:
            for j, known in enumerate(self.pal.rows[p.source]):
                if known <= p.number:
                    confirming = next((q for q in self.rrl[j] if q.ack[p.source] > p.number), None)
                    awaited |= {j} if confirming is None else self._not_accepted_by(confirming)
        for log in self.rrl:
            for p in log:
                if p.payload is not None:
                    awaited |= self._not_accepted_by(p)
        return awaited

    def _not_accepted_by(self, p: Logged) -> set[int]:
        return {j for j, known in enumerate(self.al.rows[p.source]) if known <= p.number}

    def finish(self) -> Step:
        """Deliver what is accepted and not yet delivered, in the order of precedence; RRL keeps it for the others."""
        start = len(self.prl)
        for log in self.rrl:
            for p in log:
                if p.payload is not None:
                    self.prl.insert(self.insertion_place(p, start), p)
        rest, self.prl = self.prl, []
        self.undelivered = 0
        return Step([Deliver(p.source, p.seq, p.payload or b"") for p in rest])
