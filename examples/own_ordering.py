"""An ordering of one's own: total order by turns, in a file of fewer than 60 lines.

    antiphon simulate --ordering examples.own_ordering:ByTurns --members 4 --loss 0.1 --seed 7 --out out/turns
    antiphon check out/turns

Everyone's stream is one queue; the n-th of each are delivered in the order of the ranks, then the next. Who has
nothing to say says so (`Skip`), as soon as it sees that others are further on. `Hasty` does not wait for the silent:
the checker shows two members that disagree.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from antiphon.protocol.machine import Deliver, Instant, Submit
from antiphon.protocol.parts import FlushHooks, PartContext, Reliable, Step
from antiphon.protocol.wire import Data, Malformed, Pdu, Streamed


class Skip(Streamed, tag=200):
    kind = "skip"


class ByTurns(FlushHooks):
    PDUS = (Data, Skip)
    NEEDS_RECOVERY = True  # `accept` is handed every stream complete and in order
    PROMISES = ("fifo", "causal", "total")
    Options = msgspec.defstruct("Options", [])
    waits = True
    deadline: Instant | None = None

    def __init__(self, context: PartContext, options: msgspec.Struct) -> None:
        self.rank, self.turn, self.blocked = context.rank, 0, False
        self.queues = [deque[Streamed]() for _ in range(context.size)]
        self.lengths = [0] * context.size  # of the streams, so far

    @property
    def held(self) -> int:
        return sum(map(len, self.queues))

    def may_submit(self, priority: int) -> bool:
        return True

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        return Step([], [Reliable(Data(seq=seq, payload=message.payload), seq)])

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        self.queues[source].append(pdu)
        self.lengths[source] += 1
        behind = self.lengths[source] - self.lengths[self.rank]
        return Step(self.deliveries(self.waits), [Reliable(Skip()) for _ in range(behind)])

    def deliveries(self, waits: bool) -> list[Deliver]:
        delivered = []
        while not self.blocked and any(self.queues) and (self.queues[self.turn] or not waits):
            pdu = self.queues[self.turn].popleft() if self.queues[self.turn] else None
            if isinstance(pdu, Data):
                delivered.append(Deliver(self.turn, pdu.seq, pdu.payload))
            self.turn = (self.turn + 1) % len(self.queues)
        return delivered

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        return Step()

    def block(self) -> None:
        self.blocked = True

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        self.blocked = False
        return Step(self.deliveries(waits=False))  # all that go on hold the same now


class Hasty(ByTurns):
    waits = False
