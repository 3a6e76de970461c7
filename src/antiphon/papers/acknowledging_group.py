"""A group of stability parts alone, up to a thousand: everyone sends once in a period, and what that costs is measured.

The parts are those that members run. Streams arrive whole and in order, so what is measured is stability's own doing:
how long a sender waits until it knows its message to be stable, how many of its messages it holds meanwhile, and how
many bytes its acknowledgments take. In a large group only some members, the observers, hear acknowledgments: what the
others know of stability is not looked at, and it would take the square of the group.
"""

from __future__ import annotations

import math
import random
from heapq import heappop, heappush
from statistics import fmean
from typing import Any, Final

import msgspec
import numpy as np

from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.parts import Frontier, Out, PartContext, Stability, Step
from antiphon.protocol.wire import Codec, Data, Pdu

PERIOD_MS: Final = 50.0  # between messages of one member, and between its acknowledgments
LATENCY_MS: Final = (5.0, 50.0)  # one way; no more than a period, so that streams arrive in order
_PERIOD_NS: Final = int(PERIOD_MS * MILLISECOND)
_WARM_PERIODS: Final = 2  # before the messages that are followed
_FOLLOWED_PERIODS: Final = 2
_SETTLING_NS: Final = 250 * MILLISECOND  # that a message takes to be stable at most, apart from the skew
_SAMPLE_NS: Final = 5 * MILLISECOND
OBSERVERS_MAX: Final = 16
WHOLE_MAX: Final = 50  # members of a group in which all are observers


class GroupCost(msgspec.Struct, frozen=True):
    """What stability cost, on average over the observers."""

    wait_ms: float  # from sending to knowing that it is stable; infinite if that never came
    held: float  # own messages not known to be stable, at any time
    bytes_per_s: float  # of acknowledgments and null messages, of each member
    bytes_per_ack: float


class AcknowledgingGroup:
    """Drives the parts through a few periods of simulated time."""

    def __init__(
        self, part: type[Stability], options: dict[str, Any], size: int, skew_ms: float = 0, seed: int = 1
    ) -> None:
        self.rng, self.size = random.Random(seed), size
        self._numpy = np.random.default_rng(seed)
        skew_ns = int(skew_ms * MILLISECOND)
        self.clocks = [self.rng.randint(0, skew_ns) for _ in range(size)]
        made = part.Options(**options)
        self.parts = [part(PartContext(rank, size, random.Random(rank)), made) for rank in range(size)]
        self.observers = range(size if size <= WHOLE_MAX else OBSERVERS_MAX)
        self.periods = _WARM_PERIODS + _FOLLOWED_PERIODS + -(-(_SETTLING_NS + skew_ns) // _PERIOD_NS)
        self.phases = self._numpy.integers(0, _PERIOD_NS, size)
        self._codec = Codec(part.PDUS)
        self._streams = [[0] * size for _ in range(size)]  # by member, how far each stream is held
        self._messages: dict[tuple[int, int], Data] = {}
        self._heap: list[tuple[int, int, int, Pdu | None, int]] = []  # when, tie, at whom, what (None: wake), from whom
        self._ties = 0
        self._alarms: list[int | None] = [None] * size
        self._stable_at: dict[tuple[int, int], int] = {}  # (observer, number) -> when it knew
        self._frontier = [0] * size  # of each observer, its own messages that are stable
        self._samples: list[int] = []
        self._acks: list[int] = []  # sizes of what observers said

    def run(self) -> GroupCost:
        """Run to the end, and tell what it cost."""
        sampled_from = (self.periods - 2) * _PERIOD_NS
        sample_at = sampled_from
        arriving: list[np.ndarray[Any, Any]] = []
        for period in range(self.periods):
            arriving = [*arriving[-1:], self._arrivals(period)]
            for now, rank, source, number in self._window(arriving, period):
                while self._heap and self._heap[0][0] <= now:
                    self._handle(heappop(self._heap))
                while sample_at <= now and now >= sampled_from:
                    self._sample()
                    sample_at += _SAMPLE_NS
                self._arrive(now, rank, source, number)
        return self._cost()

    def _arrivals(self, period: int) -> np.ndarray[Any, Any]:
        """Return when the messages of a period come to whom: rows of (time, receiver, sender, number)."""
        size = self.size
        low, high = (int(bound * MILLISECOND) for bound in LATENCY_MS)
        sent = self.phases + period * _PERIOD_NS
        at = sent[:, None] + self._numpy.integers(low, high, (size, size))
        at[np.arange(size), np.arange(size)] = sent  # one's own message is there at once
        sender, receiver = np.divmod(np.arange(size * size), size)
        return np.stack([at.ravel(), receiver, sender, np.full(size * size, period + 1)], axis=1)

    def _window(self, arriving: list[np.ndarray[Any, Any]], period: int) -> list[list[int]]:
        """Return what arrives within one period, in order of time; a sender's own message comes before its copies."""
        rows = np.concatenate(arriving)
        rows = rows[(rows[:, 0] >= period * _PERIOD_NS) & (rows[:, 0] < (period + 1) * _PERIOD_NS)]
        ordered: list[list[int]] = rows[np.lexsort((rows[:, 1], rows[:, 0]))].tolist()
        return ordered

    def _arrive(self, now: int, rank: int, source: int, number: int) -> None:
        part, shown = self.parts[rank], now + self.clocks[rank]
        if rank == source:
            pdu = Data(seq=number, payload=b"")
            pdu.number = number
            pdu.stamp = part.stamp(shown) if hasattr(part, "stamp") else 0
            self._messages[source, number] = pdu
        held = self._streams[rank]
        held[source] = number
        self._carry(now, rank, part.advanced(source, self._messages[source, number], held, shown))

    def _handle(self, event: tuple[int, int, int, Pdu | None, int]) -> None:
        now, _, rank, pdu, source = event
        part, shown = self.parts[rank], now + self.clocks[rank]
        if pdu is not None:
            self._carry(now, rank, part.receive(source, pdu, shown))
        elif self._alarms[rank] == now:
            self._alarms[rank] = None
            self._carry(now, rank, part.wake(shown))

    def _carry(self, now: int, rank: int, step: Step) -> None:
        for up in step.up:
            if isinstance(up, Frontier) and rank in self.observers:
                for number in range(self._frontier[rank] + 1, up.numbers[rank] + 1):
                    self._stable_at[rank, number] = now
                self._frontier[rank] = up.numbers[rank]
        for out in step.down:
            assert isinstance(out, Out)
            self._say(now, rank, out)
        deadline = self.parts[rank].deadline
        if deadline is not None:
            at = max(now, deadline - self.clocks[rank])
            alarm = self._alarms[rank]
            if alarm is None or at < alarm or alarm < now:
                self._alarms[rank] = at
                self._push(at, rank, None, rank)

    def _say(self, now: int, rank: int, out: Out) -> None:
        observed = rank in self.observers
        if observed:
            self._acks.append(len(self._codec.encode_pdu(out.pdu)))
        if out.to is not None and not observed:
            return  # it asks because it hears no acknowledgments
        low, high = (int(bound * MILLISECOND) for bound in LATENCY_MS)
        for other in self.observers if out.to is None else out.to:
            if other != rank:
                self._push(now + self.rng.randrange(low, high), other, out.pdu, rank)

    def _push(self, at: int, rank: int, pdu: Pdu | None, source: int) -> None:
        self._ties += 1
        heappush(self._heap, (at, self._ties, rank, pdu, source))

    def _sample(self) -> None:
        self._samples += [self._streams[rank][rank] - self._frontier[rank] for rank in self.observers]

    def _cost(self) -> GroupCost:
        waits = [
            (self._stable_at.get((rank, number), math.inf) - int(self.phases[rank]) - (number - 1) * _PERIOD_NS)
            / MILLISECOND
            for rank in self.observers
            for number in range(_WARM_PERIODS + 1, _WARM_PERIODS + _FOLLOWED_PERIODS + 1)
        ]
        seconds = self.periods * PERIOD_MS / 1000
        return GroupCost(
            wait_ms=fmean(waits),
            held=fmean(self._samples),
            bytes_per_s=sum(self._acks) / len(self.observers) / seconds,
            bytes_per_ack=fmean(self._acks) if self._acks else math.inf,
        )
