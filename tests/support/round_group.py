"""A group of stability parts alone: streams that arrive in order but late, control that may not arrive at all.

Far lighter than whole members, so that thousands of schedules run in seconds. Safety is checked at every frontier that
a part announces, against what every member holds at that instant; liveness, empty buffers and silence at the end.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import Any

from antiphon.protocol.clock import SkewedClock
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.parts import NOTHING, Frontier, Out, PartContext, Stability, Step
from antiphon.protocol.stability.rounds import VectorPart
from antiphon.protocol.wire import Codec, Data, Header, Malformed

EVENTS_MAX = 40_000
_HEADER = Header(0, 0, 0, 0, 0)


class Violation(AssertionError):
    """The protocol broke its promise; `kind` is unsafe, stuck, restless or refused."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


def random_options(part: type[Stability], rng: random.Random, size: int) -> dict[str, Any]:
    """Draw options that the part knows."""
    interval = rng.choice((3, 10, 30)) * MILLISECOND
    drawn: dict[str, Any] = {
        "interval_ns": interval,
        "interval_ns_max": interval * rng.choice((1, 8)),
        "idle_ns": rng.choice((1, 10, 40)) * MILLISECOND,
        "piggyback": rng.random() < 0.5,
        "delta": rng.random() < 0.6,
        "coordinator": rng.randrange(size),
        "trigger": rng.random() < 0.2,
        "timeout_ns": rng.choice((4, 20, 60)) * MILLISECOND,
        "timeout_ns_max": 100 * MILLISECOND,
        "degree": rng.randint(1, 3),
        "ring": rng.sample(range(size), size),
    }
    return {key: value for key, value in drawn.items() if key in part.Options.__struct_fields__}


class RoundGroup:
    """One random schedule: who sends when, how long everything takes, what is lost, how far the clocks are off."""

    def __init__(self, seed: int, part: type[VectorPart], **options: Any) -> None:
        self.rng = rng = random.Random(seed)
        self.size = size = rng.choice((1, 2, 2, 3, 3, 4, 5, 6))
        self.one_stream = rng.random() < 0.15  # positions in a total order instead of a stream a member
        self.streams = 1 if self.one_stream else size
        self.loss = rng.choice((0.0, 0.1, 0.3, 0.6, 0.8))
        self.duplicate = rng.choice((0.0, 0.0, 0.3))
        self.delay_max = rng.choice((2, 8, 40)) * MILLISECOND
        self.options = part.Options(**{**random_options(part, rng, size), **options})  # type: ignore[attr-defined]
        self.options.check(size)
        skew, drift = rng.choice((0, 100)) * MILLISECOND, rng.choice((0, 500))
        self.clocks = [SkewedClock(rng.randint(0, skew), rng.randint(-drift, drift)) for _ in range(size)]
        streams = 1 if self.one_stream else 0
        self.parts = [
            part(PartContext(rank, size, rng, window=4, streams=streams), self.options) for rank in range(size)
        ]  # type: ignore[arg-type]
        self.codec = Codec(part.PDUS)
        self.received = [[0] * self.streams for _ in range(size)]
        self.frontiers = [[0] * self.streams for _ in range(size)]
        self.sent = [0] * self.streams
        self.arrived: dict[tuple[int, int], int] = {}  # the last arrival on a stream, which keeps its order
        self.alarms: list[int | None] = [None] * size
        self.now = self.order = self.control = 0
        self.heap: list[tuple[int, int, str, int, Any]] = []
        span = rng.choice((1, 60, 300)) * MILLISECOND
        for rank in range(size):
            for _ in range(rng.randint(0, 5)):
                self._at(rng.randrange(span), "send", rank, None)

    def run(self) -> RoundGroup:
        """Run to silence, or complain."""
        for _ in range(EVENTS_MAX):
            if not self.heap:
                break
            self.now, _, kind, rank, what = heappop(self.heap)
            getattr(self, "_" + kind)(rank, what)
        else:
            raise Violation("restless", f"{self.control} control PDUs and no end")
        for rank, frontier in enumerate(self.frontiers):
            if frontier != self.sent:
                raise Violation("stuck", f"member {rank} knows {frontier} to be stable of {self.sent}")
            part = self.parts[rank]
            if part.unstable or part.lag():
                raise Violation("stuck", f"member {rank} counts {part.unstable} unstable, and {part.lag()} lagging")
        return self

    # What happens

    def _send(self, rank: int, _: None) -> None:
        stream = 0 if self.one_stream else rank
        self.sent[stream] += 1
        for other in range(self.size):
            if other != rank or self.one_stream:
                # a message that is lost and repaired is a message that comes late: the stream stays in order
                tries = 1 + sum(self.rng.random() < self.loss for _ in range(3))
                arrival = self.now + tries * self.rng.randrange(1, self.delay_max)
                self.arrived[stream, other] = max(arrival, self.arrived.get((stream, other), 0))
                self._at(self.arrived[stream, other], "accept", other, stream)
        if not self.one_stream:
            self._accept(rank, stream)
        for pdu in self.parts[rank].ride(self._clock(rank)):
            self._multicast(rank, Out(pdu))

    def _accept(self, rank: int, stream: int) -> None:
        self.received[rank][stream] += 1
        pdu = Data(number=self.received[rank][stream])
        self._carry(rank, self.parts[rank].advanced(stream, pdu, self.received[rank], self._clock(rank)))

    def _receive(self, rank: int, what: tuple[int, bytes]) -> None:
        source, datagram = what
        [pdu] = self.codec.decode(datagram)[1]
        try:
            step = self.parts[rank].receive(source, pdu, self._clock(rank))
        except Malformed as complaint:
            raise Violation("refused", f"member {rank} takes {source}'s {pdu} for garbage: {complaint}") from None
        self._carry(rank, step)

    def _wake(self, rank: int, _: None) -> None:
        if self.alarms[rank] == self.now:
            self.alarms[rank] = None
        part, now = self.parts[rank], self._clock(rank)
        due = part.deadline is not None and part.deadline <= now  # else it has been put off: the alarm is set anew
        self._carry(rank, part.wake(now) if due else NOTHING)

    # What follows

    def _carry(self, rank: int, step: Step) -> None:
        for item in step.down:
            assert isinstance(item, Out)
            self._multicast(rank, item)
        for up in step.up:
            assert isinstance(up, Frontier)
            self._check(rank, list(up.numbers))
        deadline = self.parts[rank].deadline
        if deadline is not None:
            instant = max(self.clocks[rank].true(deadline), self.now)
            alarm = self.alarms[rank]
            if alarm is None or instant < alarm:
                self.alarms[rank] = instant
                self._at(instant, "wake", rank, None)

    def _multicast(self, rank: int, out: Out) -> None:
        datagram = Codec.frame(_HEADER, [self.codec.encode_pdu(out.pdu)])
        for other in range(self.size) if out.to is None else out.to:
            assert out.to is None or other != rank, "nobody sends to itself"
            if other != rank:
                self.control += 1
                copies = (self.rng.random() >= self.loss) + (self.rng.random() < self.duplicate)
                for _ in range(copies):
                    self._at(self.now + self.rng.randrange(1, self.delay_max), "receive", other, (rank, datagram))

    def _check(self, rank: int, frontier: list[int]) -> None:
        for stream, number in enumerate(frontier):
            least = min(held[stream] for held in self.received)
            if number > least:
                raise Violation(
                    "unsafe", f"member {rank} takes {number} of stream {stream} for stable; one has {least}"
                )
            if number < self.frontiers[rank][stream]:
                raise Violation("unsafe", f"member {rank} takes back what it knew of stream {stream}")
        self.frontiers[rank] = frontier

    def _clock(self, rank: int) -> int:
        return self.clocks[rank].read(self.now)

    def _at(self, instant: int, kind: str, rank: int, what: Any) -> None:
        self.order += 1
        heappush(self.heap, (instant, self.order, kind, rank, what))


def outcome(seed: int, part: type[VectorPart], **options: Any) -> str | None:
    """Run a schedule and give the kind of its violation, if there is one."""
    try:
        RoundGroup(seed, part, **options).run()
    except Violation as violation:
        return violation.kind
    return None
