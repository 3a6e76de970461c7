"""Total order by a fixed sequencer: the order is the stream of the view's first member.

Messages go to all in their senders' streams. The first member, the sequencer, says in its own stream whose message
comes next; its own messages stand in that stream already and need no further word. So a message is delivered two hops
after it was sent, the sequencer's own after one, and the sequencer pays for it: it hears all and speaks for all.

What a PDU depends on is accepted before it (`admits`): the messages that an order names, and, before a message, the
sequencer's stream as far as its sender had accepted it, that is, all that its sender had delivered. What any member
holds is therefore closed under dependencies. When a view ends, all who go on hold the same streams, deliver what they
order, and then what no order names by sender and number: such messages depend on nothing but what was delivered. The
next view has a sequencer of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from antiphon.protocol.machine import Deliver, Instant, Submit
from antiphon.protocol.parts import NOTHING, Decided, FlushHooks, PartContext, Reliable, Step, Up
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Counter as Count
from antiphon.protocol.wire import Data, Malformed, Pdu, Rank, Streamed

SEQUENCER: Final = 0  # its rank
SENDERS_MAX: Final = 4_096


class PlacedData(Data, tag=44):
    """A message, and how far its sender had accepted the sequencer's stream when it sent it."""

    after: Count = 0


class Order(Streamed, tag=45):
    """Next in the order come these senders' next messages."""

    kind: ClassVar[str] = "order"
    senders: Annotated[list[Rank], msgspec.Meta(min_length=1, max_length=SENDERS_MAX)] = msgspec.field(
        default_factory=list
    )


class SequencerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fixed sequencer has no options."""


class Sequencer(FlushHooks):
    """One member's share in a fixed-sequencer order; rank 0 is the sequencer."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (PlacedData, Order)
    NEEDS_RECOVERY: ClassVar[bool] = True
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo", "causal", "total")
    Options: ClassVar[type[msgspec.Struct]] = SequencerOptions

    def __init__(self, context: PartContext, options: SequencerOptions) -> None:
        self.rank, self.size = context.rank, context.size
        self.held = 0
        self.deadline: Instant | None = None
        self._window = context.window
        self.waiting: list[deque[PlacedData]] = [deque() for _ in range(context.size)]  # per sender: not ordered yet
        self.next_seq = [1] * context.size
        self._accepted = 0  # how far the sequencer's stream was accepted
        self.unordered: deque[int] = deque()  # at the sequencer: whose messages it has to order, as they came
        self._blocked = False  # the view ends
        self.rest: list[PlacedData | Order] = []  # the sequencer's stream since then

    # The rules

    @rule("docs/protocols/sequencer.md, Rule")
    def admits(self, source: int, pdu: Streamed) -> bool:
        """Say whether all that a PDU depends on was accepted: what its sender had delivered, or what it orders."""
        if type(pdu) is PlacedData:
            return source == SEQUENCER or pdu.after <= self._accepted
        if type(pdu) is Order and source == SEQUENCER and self._makes_sense(pdu):
            if len(pdu.senders) == 1:
                return bool(self.waiting[pdu.senders[0]])
            return all(len(self.waiting[sender]) >= count for sender, count in Counter(pdu.senders).items())
        return True  # to be refused

    @rule("docs/protocols/sequencer.md, Rule")
    def gathered(self, room: int) -> Step:
        """Order what the sequencer has accepted in this turn, as far as its stream has room."""
        if not self.unordered:
            return NOTHING
        down: list[Reliable] = []
        while self.unordered and len(down) < room:
            senders = [self.unordered.popleft() for _ in range(min(SENDERS_MAX, len(self.unordered)))]
            down.append(Reliable(Order(senders=senders)))
        return Step([], [*down])

    @rule("docs/protocols/sequencer.md, Rule")
    def after(self) -> int:
        """Say what a message that is sent now depends on."""
        return 0 if self.rank == SEQUENCER else self._accepted

    # The interface of an ordering

    def may_submit(self, priority: int) -> bool:
        """Bound the own messages that have no position yet."""
        return len(self.waiting[self.rank]) < self._window

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Put the message into the stream."""
        return Step([], [Reliable(PlacedData(seq=seq, payload=message.payload, after=self.after()), seq)])

    @rule("docs/protocols/sequencer.md, Rule")
    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Keep a message until it is ordered, or deliver what was."""
        if type(pdu) is PlacedData:
            self._take(source, pdu)
        elif type(pdu) is not Order or source != SEQUENCER or not self._makes_sense(pdu):
            raise Malformed("unexpected")
        if source != SEQUENCER:
            return NOTHING
        self._accepted = pdu.number
        self.rest.append(pdu)
        return Step([] if self._blocked else self.deliveries())

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Refuse: nothing of this ordering comes past recovery."""
        raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        """Do nothing: nothing is ever due."""
        return Step()

    # When the view ends: see `FlushHooks`

    def block(self) -> None:
        """Deliver nothing more before everyone has the same streams."""
        self._blocked = True

    @rule("docs/protocols/sequencer.md, When a view ends")
    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver what the sequencer ordered, then the rest by sender and number."""
        up = self.deliveries()
        for sender, waiting in enumerate(self.waiting):
            up += (Deliver(sender, data.seq, data.payload) for data in waiting)
            self.held -= len(waiting)
            waiting.clear()
        return Step(up)

    def _makes_sense(self, order: Order) -> bool:
        return SEQUENCER not in order.senders and max(order.senders) < self.size

    def _take(self, source: int, data: PlacedData) -> None:
        if data.seq != self.next_seq[source]:
            raise Malformed("impossible-number")
        self.next_seq[source] += 1
        if source != SEQUENCER:
            self.waiting[source].append(data)
            self.held += 1
            if self.rank == SEQUENCER:
                self.unordered.append(source)

    @rule("docs/protocols/sequencer.md, Rule")
    def deliveries(self) -> list[Up]:
        """Go through the sequencer's stream, as far as it was accepted."""
        up: list[Up] = []
        for pdu in self.rest:
            if isinstance(pdu, PlacedData):
                up.append(Deliver(SEQUENCER, pdu.seq, pdu.payload))
                continue
            for sender in pdu.senders:
                data = self.waiting[sender].popleft()
                self.held -= 1
                up += (Decided(sender, data.seq, SEQUENCER), Deliver(sender, data.seq, data.payload))
        self.rest.clear()
        return up
