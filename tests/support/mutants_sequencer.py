"""Seeded bugs of the fixed sequencer: each replaces one rule, and says which guarantee it breaks."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.machine import Deliver, Instant
from antiphon.protocol.ordering.sequencer import Order, PlacedData, Sequencer
from antiphon.protocol.parts import Step, Up
from antiphon.protocol.rules import replaced
from antiphon.protocol.wire import Streamed


def anything(self: Sequencer, source: int, pdu: Streamed) -> bool:
    """Waits for nothing that a PDU depends on."""
    return True


def on_receipt(self: Sequencer, source: int, pdu: Streamed, now: Instant) -> Step:
    """Waits for no place."""
    return Step([Deliver(source, pdu.seq, pdu.payload)] if isinstance(pdu, PlacedData) else [])


def own_first(self: Sequencer) -> list[Up]:
    """Of those that are ordered together, a member takes its own first."""
    for pdu in self.rest:
        if isinstance(pdu, Order):
            pdu.senders.sort(key=lambda sender: sender != self.rank)
    return Sequencer.deliveries(self)


def skip_missing(self: Sequencer, source: int, pdu: Streamed, now: Instant) -> Step:
    """Goes on with the order where a message has not come, and delivers that one when it comes."""
    owed: list[int] = vars(self).setdefault("owed", [0] * self.size)
    if isinstance(pdu, PlacedData) and owed[source]:
        owed[source] -= 1
        self.next_seq[source] += 1
        return Step([Deliver(source, pdu.seq, pdu.payload)])
    if isinstance(pdu, Order):
        here = [len(waiting) for waiting in self.waiting]
        present: list[int] = []
        for sender in pdu.senders:
            if here[sender]:
                here[sender] -= 1
                present.append(sender)
            else:
                owed[sender] += 1
        if not present:
            return Step()
        pdu = Order(number=pdu.number, senders=present)
    return Sequencer.accept(self, source, pdu, now)


def forget_one(self: Sequencer, room: int) -> Step:
    """Of several messages that come together, the last one is given no place."""
    if len(self.unordered) > 1:
        self.unordered.pop()
    return Sequencer.gathered(self, room)


def keep_delivered(self: Sequencer) -> list[Up]:
    """Counts what it has delivered among what it holds."""
    before, up = self.held, Sequencer.deliveries(self)
    self.held = before
    return up


# When a view ends


def ordered_only(self: Sequencer, reach: Sequence[int], order: bytes) -> Step:
    """Delivers nothing that the sequencer did not order."""
    return Step(self.deliveries())


def own_rest_first(self: Sequencer, reach: Sequence[int], order: bytes) -> Step:
    """Delivers its own messages first of those that the sequencer did not order."""
    up = self.deliveries()
    own = [Deliver(self.rank, data.seq, data.payload) for data in self.waiting[self.rank]]
    self.waiting[self.rank].clear()
    return Step([*up, *own, *Sequencer.finish(self, reach, order).up])


DropsTheRest = replaced(Sequencer, finish=ordered_only)
OwnRestFirst = replaced(Sequencer, finish=own_rest_first)
# Does not say what a message depends on, so that its effect may outlive it
DependsOnNothing = replaced(Sequencer, after=lambda self: 0)

MUTANTS: dict[str, tuple[type[Sequencer], str]] = {
    "delivers-on-receipt": (replaced(Sequencer, accept=on_receipt, admits=anything), "total"),
    "own-first": (replaced(Sequencer, deliveries=own_first), "total"),
    "skips-what-is-missing": (replaced(Sequencer, accept=skip_missing, admits=anything), "total"),
    "forgets-one": (replaced(Sequencer, gathered=forget_one), "stuck"),
    "without-room": (replaced(Sequencer, gathered=lambda self, room: Sequencer.gathered(self, 0)), "stuck"),
    "keeps-delivered": (replaced(Sequencer, deliveries=keep_delivered), "undrained"),
}
