"""Seeded bugs of the fixed sequencer: each replaces one rule, and says which guarantee it breaks."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.machine import Deliver, Instant
from antiphon.protocol.ordering.sequencer import Order, PlacedData, Sequencer, SequencerOptions
from antiphon.protocol.parts import PartContext, Step, Up
from antiphon.protocol.wire import Streamed


class DeliversOnReceipt(Sequencer):
    """Waits for no place."""

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        if isinstance(pdu, PlacedData):
            return Step([Deliver(source, pdu.seq, pdu.payload)])
        return Step()

    def admits(self, source: int, pdu: Streamed) -> bool:
        return True


class OwnFirst(Sequencer):
    """Of those that are ordered together, a member takes its own first."""

    def _deliveries(self) -> list[Up]:
        for pdu in self._rest:
            if isinstance(pdu, Order):
                pdu.senders.sort(key=lambda sender: sender != self.rank)
        return super()._deliveries()


class SkipsWhatIsMissing(Sequencer):
    """Goes on with the order where a message has not come, and delivers that one when it comes."""

    def __init__(self, context: PartContext, options: SequencerOptions) -> None:
        super().__init__(context, options)
        self._owed = [0] * context.size

    def admits(self, source: int, pdu: Streamed) -> bool:
        return True

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        if isinstance(pdu, PlacedData) and self._owed[source]:
            self._owed[source] -= 1
            self._next_seq[source] += 1
            return Step([Deliver(source, pdu.seq, pdu.payload)])
        if isinstance(pdu, Order):
            here = [len(waiting) for waiting in self._waiting]
            present: list[int] = []
            for sender in pdu.senders:
                if here[sender]:
                    here[sender] -= 1
                    present.append(sender)
                else:
                    self._owed[sender] += 1
            if not present:
                return Step()
            pdu = Order(number=pdu.number, senders=present)
        return super().accept(source, pdu, now)


class ForgetsOne(Sequencer):
    """Of several messages that come together, the last one is given no place."""

    def gathered(self, room: int) -> Step:
        if len(self._unordered) > 1:
            self._unordered.pop()
        return super().gathered(room)


class WithoutRoom(Sequencer):
    """Never has room for an order in its stream."""

    def gathered(self, room: int) -> Step:
        return super().gathered(0)


class KeepsDelivered(Sequencer):
    """Counts what it has delivered among what it holds."""

    def _deliveries(self) -> list[Up]:
        before, up = self.held, super()._deliveries()
        self.held = before
        return up


# When a view ends


class DropsTheRest(Sequencer):
    """Delivers nothing that the sequencer did not order."""

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        return Step(self._deliveries())


class OwnRestFirst(Sequencer):
    """Delivers its own messages first of those that the sequencer did not order."""

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        up = self._deliveries()
        own = [Deliver(self.rank, data.seq, data.payload) for data in self._waiting[self.rank]]
        self._waiting[self.rank].clear()
        return Step([*up, *own, *super().finish(reach, order).up])


class DependsOnNothing(Sequencer):
    """Does not say what a message depends on, so that its effect may outlive it."""

    def after(self) -> int:
        return 0


MUTANTS: dict[str, tuple[type[Sequencer], str]] = {
    "delivers-on-receipt": (DeliversOnReceipt, "total"),
    "own-first": (OwnFirst, "total"),
    "skips-what-is-missing": (SkipsWhatIsMissing, "total"),
    "forgets-one": (ForgetsOne, "stuck"),
    "without-room": (WithoutRoom, "stuck"),
    "keeps-delivered": (KeepsDelivered, "undrained"),
}
