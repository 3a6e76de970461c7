"""A group of timestamp-acknowledgment parts alone: streams that arrive in order but late, control that may not arrive.

Far lighter than whole members, so that thousands of schedules run in seconds. Safety is checked at every frontier that
a part announces, against what every member holds at that instant; liveness and silence at the end.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import Any

from antiphon.protocol.clock import SkewedClock
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.parts import Frontier, Out, PartContext, Step
from antiphon.protocol.stability.timestamp_ack import TimestampAck
from antiphon.protocol.wire import Data, Malformed, Pdu

EVENTS_MAX = 60_000


class Violation(AssertionError):
    """The protocol broke its promise."""


class TimestampGroup:
    """One random schedule: who sends when, how long everything takes, what is lost, how far the clocks are off."""

    def __init__(self, seed: int, part: type[TimestampAck] = TimestampAck) -> None:
        self.rng = rng = random.Random(seed)
        self.size = rng.randint(1, 6)
        self.loss = rng.choice((0.0, 0.1, 0.3, 0.6))
        self.duplicate = rng.choice((0.0, 0.2))
        self.delay_max = rng.choice((5, 20, 60)) * MILLISECOND
        skew, drift = rng.choice((0, 20, 100)) * MILLISECOND, rng.choice((0, 500))
        options = TimestampAck.Options(
            t_send_ns=rng.choice((5, 20, 50)) * MILLISECOND,
            t_ack_ns=rng.choice((5, 20, 50)) * MILLISECOND,
            clock=rng.choice(("physical", "logical", "hybrid")),
            piggyback=rng.random() < 0.5,
            trigger=rng.random() < 0.3,
        )
        self.clocks = [SkewedClock(rng.randint(0, skew), rng.randint(-drift, drift)) for _ in range(self.size)]
        contexts = (
            PartContext(rank, self.size, random.Random(f"{seed}/{rank}"), window=4) for rank in range(self.size)
        )
        self.parts = [part(context, options) for context in contexts]
        self.received = [[0] * self.size for _ in range(self.size)]
        self.frontiers = [[0] * self.size for _ in range(self.size)]
        self.last_arrival: dict[tuple[int, int], int] = {}
        self.now = self.order = self.control = 0
        self.heap: list[tuple[int, int, str, int, Any]] = []
        span = rng.choice((1, 100, 400)) * MILLISECOND
        for rank in range(self.size):
            for _ in range(rng.randint(0, 6)):
                self._at(rng.randrange(span), "send", rank, None)
        self.alarms: list[int | None] = [None] * self.size

    def run(self) -> TimestampGroup:
        """Run to silence, or complain."""
        for _ in range(EVENTS_MAX):
            if not self.heap:
                break
            self.now, _, kind, rank, what = heappop(self.heap)
            getattr(self, "_" + kind)(rank, what)
        else:
            raise Violation("no silence: the duties never end")
        sent = [self.received[rank][rank] for rank in range(self.size)]
        for rank, frontier in enumerate(self.frontiers):
            if frontier != sent:
                raise Violation(f"member {rank} knows {frontier} to be stable of {sent}, and waits for nothing")
        return self

    # What happens

    def _send(self, rank: int, _: None) -> None:
        pdu = Data(seq=self.received[rank][rank] + 1, payload=b"")
        pdu.number, pdu.stamp = self.received[rank][rank] + 1, self.parts[rank].stamp(self._clock(rank))
        for other in range(self.size):
            if other != rank:
                # a message that is lost and repaired is a message that comes late: the stream stays in order
                tries = 1 + sum(self.rng.random() < self.loss for _ in range(3))
                arrival = self.now + tries * self.rng.randrange(1, self.delay_max)
                self.last_arrival[rank, other] = max(arrival, self.last_arrival.get((rank, other), 0))
                self._at(self.last_arrival[rank, other], "accept", other, (rank, pdu))
        self._accept(rank, (rank, pdu))
        self._carry(rank, Step([], [Out(rider) for rider in self.parts[rank].ride(self._clock(rank))]))

    def _accept(self, rank: int, what: tuple[int, Data]) -> None:
        source, pdu = what
        self.received[rank][source] += 1
        assert pdu.number == self.received[rank][source], "the harness keeps streams in order"
        self._carry(rank, self.parts[rank].advanced(source, pdu, self.received[rank], self._clock(rank)))

    def _receive(self, rank: int, what: tuple[int, Pdu]) -> None:
        try:
            step = self.parts[rank].receive(*what, self._clock(rank))
        except Malformed as complaint:
            raise Violation(f"member {rank} takes {what[0]}'s word for garbage: {complaint}") from None
        self._carry(rank, step)

    def _wake(self, rank: int, _: None) -> None:
        if self.alarms[rank] == self.now:
            self.alarms[rank] = None
        self._carry(rank, self.parts[rank].wake(self._clock(rank)))

    # What follows

    def _carry(self, rank: int, step: Step) -> None:
        for item in step.down:
            assert isinstance(item, Out)
            for other in range(self.size) if item.to is None else item.to:
                if other != rank:
                    self._control(rank, other, item.pdu)
        for up in step.up:
            assert isinstance(up, Frontier)
            self._check(rank, list(up.numbers))
        deadline = self.parts[rank].deadline
        if deadline is not None:
            instant = max(self.clocks[rank].true(deadline), self.now)
            if (alarm := self.alarms[rank]) is None or instant < alarm:
                self.alarms[rank] = instant
                self._at(instant, "wake", rank, None)

    def _control(self, source: int, target: int, pdu: Pdu) -> None:
        self.control += 1
        for _ in range(2 if self.rng.random() < self.duplicate else 1):
            if self.rng.random() >= self.loss:
                self._at(self.now + self.rng.randrange(1, self.delay_max), "receive", target, (source, pdu))

    def _check(self, rank: int, frontier: list[int]) -> None:
        for source, number in enumerate(frontier):
            holder = min(range(self.size), key=lambda member: self.received[member][source])
            if number > self.received[holder][source]:
                raise Violation(f"member {rank} calls number {number} of {source} stable, which {holder} does not hold")
            if number < self.frontiers[rank][source]:
                raise Violation(f"member {rank} took its word back about {source}")
        self.frontiers[rank] = frontier

    def _clock(self, rank: int) -> int:
        return self.clocks[rank].read(self.now)

    def _at(self, instant: int, kind: str, rank: int, what: Any) -> None:
        self.order += 1
        heappush(self.heap, (instant, self.order, kind, rank, what))
