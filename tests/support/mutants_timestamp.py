"""Timestamp acknowledgments with one rule broken each; the schedules must catch every one of them."""

from __future__ import annotations

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import Down, Out, Step
from antiphon.protocol.stability.timestamp_ack import Ack, NullMessage, TimestampAck
from antiphon.protocol.wire import Pdu


class CoarseClock(TimestampAck):
    """Stamps repeat: two messages of one sender may carry the same."""

    def stamp(self, now: Instant) -> int:
        exact = super().stamp(now)
        return max(1, exact // 50_000_000 * 50_000_000) if self._options.clock != "logical" else (exact + 3) // 4


class AcknowledgesTheGreatest(TimestampAck):
    """Acknowledges the latest stamp that was heard from anyone."""

    def _ack_message(self, asked: int | None = None) -> Ack:
        others = (self._heard[rank] for rank in range(len(self._numbers)) if rank != self._rank)
        return Ack(min(max(others), self._clock.last), self._clock.last, asked)


class NullsSkipTheStream(TimestampAck):
    """A null message counts even where messages before it are still missing."""

    def _receive_null(self, source: int, null: NullMessage, now: Instant) -> Step:
        if null.stamp > self._heard[source]:
            self._hear(source, null.stamp)
        return self._settle([], now)


class NullsBindNobody(TimestampAck):
    """A null message promises more than its sender's clock keeps to."""

    def _null_message(self, now: Instant) -> NullMessage:
        null = super()._null_message(now)
        return NullMessage(null.stamp + 30_000_000, null.sent)


class OneAcknowledgmentIsEnough(TimestampAck):
    """Takes what the first member acknowledges for what all do."""

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        if isinstance(pdu, Ack):
            for rank in range(len(self._numbers)):
                self._acks.put(rank, max(pdu.held, self._acks[rank]))
        return super().receive(source, pdu, now)


class IgnoresQuestions(TimestampAck):
    """A member that lacks nothing does not answer those who still wait."""

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        if isinstance(pdu, Ack):
            pdu = Ack(pdu.held, pdu.clock, asked=None)
        return super().receive(source, pdu, now)


class CaresForItsOwn(TimestampAck):
    """Keeps its duties only while a message of its own is unstable."""

    def _bind(self, stamp: int, now: Instant) -> None:
        if self._numbers[self._rank] > self._frontier[self._rank]:
            super()._bind(stamp, now)


class SaysItOnce(TimestampAck):
    """Never repeats an acknowledgment that may have been lost."""

    def wake(self, now: Instant) -> Step:
        said = self._acknowledged
        step = super().wake(now)
        if said and self._heard.least == said:
            step.down = [item for item in step.down if not (isinstance(item, Out) and isinstance(item.pdu, Ack))]
        return step


class NeverStamps(TimestampAck):
    """A member without messages of its own leaves the others waiting for its stamp."""

    def wake(self, now: Instant) -> Step:
        step = super().wake(now)
        kept: list[Down] = [i for i in step.down if not (isinstance(i, Out) and isinstance(i.pdu, NullMessage))]
        step.down = kept
        return step


class NeverRests(TimestampAck):
    """Keeps its duties for ever."""

    @property
    def _active(self) -> bool:
        return self._owed > 0 and len(self._numbers) > 1


MUTANTS: tuple[type[TimestampAck], ...] = (
    CoarseClock,
    AcknowledgesTheGreatest,
    NullsSkipTheStream,
    NullsBindNobody,
    OneAcknowledgmentIsEnough,
    IgnoresQuestions,
    CaresForItsOwn,
    SaysItOnce,
    NeverStamps,
    NeverRests,
)
