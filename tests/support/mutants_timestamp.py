"""Timestamp acknowledgments with one rule broken each; the schedules must catch every one of them."""

from __future__ import annotations

from antiphon.protocol.machine import Instant
from antiphon.protocol.rules import replaced
from antiphon.protocol.stability.timestamp_ack import Ack, NullMessage, TimestampAck
from antiphon.protocol.wire import Pdu


def coarse_clock(self: TimestampAck, now: Instant) -> int:
    """Stamps repeat: two messages of one sender may carry the same."""
    exact = TimestampAck.stamp(self, now)
    return max(1, exact // 50_000_000 * 50_000_000) if self.options.clock != "logical" else (exact + 3) // 4


def the_greatest(self: TimestampAck, asked: int | None) -> Ack:
    """Acknowledges the latest stamp that was heard from anyone."""
    others = (self.heard[rank] for rank in range(len(self.messages.numbers)) if rank != self.rank)
    return Ack(min(max(others), self.clock.last), self.clock.last, asked)


def skips_the_stream(self: TimestampAck, source: int, null: NullMessage) -> None:
    """A null message counts even where messages before it are still missing."""
    if null.stamp > self.heard[source]:
        self.hear(source, null.stamp)


def binds_nobody(self: TimestampAck, now: Instant) -> NullMessage:
    """A null message promises more than its sender's clock keeps to."""
    null = TimestampAck.null_message(self, now)
    return NullMessage(null.stamp + 30_000_000, null.sent)


def one_is_enough(self: TimestampAck, source: int, ack: Ack, now: Instant) -> None:
    """Takes what the first member acknowledges for what all do."""
    for rank in range(len(self.messages.numbers)):
        self.acks.put(rank, max(ack.held, self.acks[rank]))
    TimestampAck.take_ack(self, source, ack, now)


def ignores_questions(self: TimestampAck, source: int, ack: Ack, now: Instant) -> None:
    """A member that lacks nothing does not answer those who still wait."""
    TimestampAck.take_ack(self, source, Ack(ack.held, ack.clock, asked=None), now)


def for_its_own(self: TimestampAck, stamp: int, now: Instant) -> None:
    """Keeps its duties only while a message of its own is unstable."""
    if self.messages.numbers[self.rank] > self.messages.frontier[self.rank]:
        TimestampAck.bind(self, stamp, now)


def says_it_once(self: TimestampAck, now: Instant) -> list[Pdu]:
    """Never repeats an acknowledgment that may have been lost."""
    before, said = self.acknowledged, TimestampAck.say_ack(self, now)
    return [] if before and self.heard.least == before else said


def stamps_nothing(self: TimestampAck, now: Instant) -> list[Pdu]:
    """A member without messages of its own leaves the others waiting for its stamp."""
    TimestampAck.say_null(self, now)
    return []


def answers_without_stamp(self: TimestampAck, now: Instant) -> list[Pdu]:
    """And answers without one too."""
    return [pdu for pdu in TimestampAck.answer(self, now) if isinstance(pdu, Ack)]


def never_rests(self: TimestampAck) -> bool:
    """Keeps its duties for ever."""
    return self.owed > 0 and len(self.messages.numbers) > 1


MUTANTS: tuple[type[TimestampAck], ...] = (
    replaced(TimestampAck, stamp=coarse_clock),
    replaced(TimestampAck, ack_message=the_greatest),
    replaced(TimestampAck, take_null=skips_the_stream),
    replaced(TimestampAck, null_message=binds_nobody),
    replaced(TimestampAck, take_ack=one_is_enough),
    replaced(TimestampAck, take_ack=ignores_questions),
    replaced(TimestampAck, bind=for_its_own),
    replaced(TimestampAck, say_ack=says_it_once),
    replaced(TimestampAck, say_null=stamps_nothing, answer=answers_without_stamp),
    replaced(TimestampAck, active=never_rests),
)
