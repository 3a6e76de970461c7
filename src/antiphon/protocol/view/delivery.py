"""When a message that its ordering has released reaches the application, and which messages are known to be stable.

Recovery knows numbers of streams, the application knows messages. With safe delivery a message waits until everyone
holds all that determines its position in the order. Where a stability protocol counts positions in the total order
instead of streams, positions are turned back into stream numbers here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from antiphon.protocol.machine import Deliver, Instant
from antiphon.protocol.parts import Decided
from antiphon.protocol.rules import rule
from antiphon.protocol.view.output import Output
from antiphon.protocol.wire import Data, Streamed

Held: TypeAlias = tuple[tuple[int, int], ...]  # (rank, number of its stream)


class StreamDelivery:
    """Delivers the messages of an ordering that runs on recovery, and tells which of them are stable."""

    def __init__(self, output: Output, size: int, *, safe: bool, positions: bool) -> None:
        self._output, self._safe = output, safe
        self.numbers = [0] * size  # per sender, the last number of its stream that was passed on
        self._remembers = safe or positions  # whether it matters what a message's place in the order rests on
        self.requirements: dict[tuple[int, int], Held] = {}  # message -> what whoever delivers it must hold
        self._streamed_seqs: list[deque[tuple[int, int]]] = [deque() for _ in range(size)]  # unstable (number, seq)
        self.unsafe: deque[tuple[Deliver, Held]] = deque()  # to be delivered when all of that is stable
        self.position = 0  # how many messages the ordering has released
        self.counts_positions = positions  # whether stability counts those instead of streams
        self._positions: deque[Held] = deque()  # of those that are not stable yet

    def accepted(self, source: int, pdu: Streamed) -> None:
        """Note the next PDU of a stream."""
        number = self.numbers[source] = pdu.number
        if isinstance(pdu, Data):
            self._streamed_seqs[source].append((number, pdu.seq))
            if self._remembers:
                self.requirements[source, pdu.seq] = ((source, number),)

    def decided(self, decided: Decided) -> None:
        """Note that the position of a message in the order was learnt."""
        if self._remembers:
            self.requirements[decided.sender, decided.seq] = self.must_be_held(decided)

    @rule("docs/membership.md, safe delivery")
    def must_be_held(self, decided: Decided) -> Held:
        """Return what all must hold before a message is safe: its body, and what decides its position in the order."""
        if decided.source is None:
            return ((decided.sender, self.numbers[decided.sender]),)
        return (*self.requirements[decided.sender, decided.seq], (decided.source, self.numbers[decided.source]))

    def deliver(self, message: Deliver) -> None:
        """Deliver a message whose turn it is, or keep it until it is safe."""
        self.position += 1
        if not self._remembers:
            self._output.deliver(message)
            return
        held = self.requirements.pop((message.sender, message.seq))
        if self.counts_positions:
            self._positions.append(held)
        if self._safe:
            self.unsafe.append((message, held))
        else:
            self._output.deliver(message)

    def deliver_the_rest(self) -> None:
        """Deliver what waits: the view ends, and all that go on hold it."""
        while self.unsafe:
            self._output.deliver(self.unsafe.popleft()[0])

    def stream_numbers(self, released: list[int], position: int) -> tuple[int, ...]:
        """Say which numbers of the streams are held by all who have delivered so many messages of the total order."""
        numbers = list(released)
        for _ in range(position - (self.position - len(self._positions))):
            for source, number in self._positions.popleft():
                numbers[source] = max(numbers[source], number)
        return tuple(numbers)

    def release(self, frontier: Sequence[int], now: Instant) -> None:
        """Tell which messages are stable, now that everyone holds this much, and deliver those that are safe."""
        for source, number in enumerate(frontier):
            seqs, stable = self._streamed_seqs[source], 0
            while seqs and seqs[0][0] <= number:
                stable = seqs.popleft()[1]
            if stable:
                self._output.stable(source, stable, now)
        while self.unsafe and all(number <= frontier[source] for source, number in self.unsafe[0][1]):
            self._output.deliver(self.unsafe.popleft()[0])
