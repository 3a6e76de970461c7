"""Timestamp acknowledgments: one scalar acknowledges the messages of all senders.

Every message carries its sender's timestamp. A member acknowledges the least of the timestamps that it has heard last
from each of the others: it holds whatever anyone stamped up to there. What all acknowledge is stable, whoever sent it.
Acknowledgments only rise, so they may be lost, doubled and reordered; a later one says all that an earlier one said.

A silent member would hold everyone's acknowledgments back, so each owes the others a stamp every `t_send_ns`, kept by
a null message where the application sends nothing. A null takes no place in the stream: it names the last number that
was used, so it acts only on those who hold the stream up to there, and needs neither buffer nor repair.

Both duties bind only while something is unstable; with the trigger, only once enough has gathered. A member that knows
all to be stable is silent, and answers those who still ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec

from antiphon.protocol.clock import StrictClock
from antiphon.protocol.machine import MILLISECOND, SECOND, Duration, Instant, earliest
from antiphon.protocol.parts import Down, Frontier, Out, PartContext, Step
from antiphon.protocol.rules import rule
from antiphon.protocol.stability.minimum import Minimum
from antiphon.protocol.stability.trigger import BufferTrigger
from antiphon.protocol.timers import GrowingPause
from antiphon.protocol.wire import Counter, Malformed, Pdu, Streamed, Timestamp

_ALWAYS: Final[int] = 2**63  # above every timestamp: one's own messages are held by oneself

Pause: TypeAlias = Annotated[Duration, msgspec.Meta(ge=1)]
Period: TypeAlias = Annotated[Duration, msgspec.Meta(ge=10_000)]  # what comes round more often leaves no time for more
Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Ack(Pdu, tag=80):
    """Its sender holds everything that anyone stamped up to `held`."""

    kind: ClassVar[str] = "timestamp-ack"
    held: Timestamp
    clock: Timestamp = 0  # the sender's clock, where clocks follow one another
    asked: Offset | None = None  # please answer, even if you lack nothing: I wait for stamps so far above `held`


class NullMessage(Pdu, tag=81):
    """What its sender stamped up to `stamp` ends with number `sent` of its stream."""

    kind: ClassVar[str] = "null"
    stamp: Timestamp
    sent: Counter


class TimestampAckOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often to stamp and to acknowledge, and by which clock."""

    t_send_ns: Period = 10 * MILLISECOND
    t_ack_ns: Period = 10 * MILLISECOND
    pause_ns_max: Pause = SECOND  # what is only said again is said at doubling intervals, up to this one
    clock: Literal["physical", "logical", "hybrid"] = "physical"  # hybrid: physical, but never behind what it has heard
    piggyback: bool = False  # acknowledge in each datagram to all that has room for news
    trigger: bool = False  # let messages gather first, as many as the window can sustain
    idle_ns: Pause = 200 * MILLISECOND  # with `trigger`: how long a few messages wait for more


class _Duty:
    """Something to be said at least once in a period, and at about doubling intervals when there is no news."""

    def __init__(self, context: PartContext, period_ns: Duration, pause_ns_max: Duration) -> None:
        self._pause = GrowingPause(context.jittered, period_ns, pause_ns_max)
        self._done_at: Instant | None = None

    def due(self, now: Instant) -> Instant:
        """When it must be said next, if it has to be said at all."""
        return now if self._done_at is None else self._done_at + self._pause.ns

    def near(self, now: Instant) -> bool:
        """Whether it is due, or might as well be said with what is."""
        return self._done_at is None or self._done_at + self._pause.ns // 2 <= now

    def begin(self, now: Instant | None) -> None:
        """Count the period from now on; with None it has passed already."""
        self._done_at = now

    def renew(self) -> None:
        """There is news: do not wait longer than the period."""
        self._pause.renew()

    def done(self, now: Instant, *, news: bool) -> None:
        """It was said, for the first time or once more."""
        self._done_at = now
        if news:
            self._pause.renew()
        else:
            self._pause.grow()


class StampedMessages:
    """The messages that are held here: how far each stream goes, and what of it is not yet stable, by stamp."""

    def __init__(self, size: int) -> None:
        self.numbers = [0] * size  # per sender, the last number of its stream that is held here
        self.frontier = [0] * size  # and the last that is stable
        self.goal = 0  # the highest stamp
        self.unstable: list[tuple[int, int, int]] = []  # heap of (stamp, sender, number)

    def enter(self, stamp: int, source: int, number: int) -> None:
        """Hold a message."""
        self.numbers[source] = number
        self.goal = max(self.goal, stamp)
        heappush(self.unstable, (stamp, source, number))

    def settle(self, stable: int) -> bool:
        """Move the frontier to what is stamped up to here; say whether it moved."""
        unstable, moved = self.unstable, False
        while unstable and unstable[0][0] <= stable:
            _, source, number = heappop(unstable)
            self.frontier[source] = number
            moved = True
        return moved


class TimestampAck:
    """Stability by scalar timestamps, of one's own messages and of everyone's."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Ack, NullMessage)
    Options: ClassVar[type[msgspec.Struct]] = TimestampAckOptions

    def __init__(self, context: PartContext, options: TimestampAckOptions) -> None:
        self.rank, self._random, self.options = context.rank, context.random, options
        self._answer_at: dict[int, Instant] = {}  # who asked -> when; all at once would overrun the one who asked
        self.clock = StrictClock()
        alone = [_ALWAYS if rank == context.rank else 0 for rank in range(context.size)]
        self.heard = Minimum(alone)  # per sender, up to which stamp this member holds its messages
        self.acks = Minimum([0] * context.size)  # per member, what it has acknowledged
        self.acks.put(context.rank, self.heard.least)
        self.nulls: dict[int, NullMessage] = {}  # those that wait for the stream to reach their number
        self.messages = StampedMessages(context.size)
        self.owed = 0  # the stamp up to which the duties bind
        self.trigger = BufferTrigger(context.window, options.idle_ns) if options.trigger else None
        self.acknowledged = 0  # what this member last said to all
        self._deadline: Instant | None = None
        self._ack = _Duty(context, options.t_ack_ns, options.pause_ns_max)
        self._null = _Duty(context, options.t_send_ns, options.pause_ns_max)

    @property
    def deadline(self) -> Instant | None:
        """When the next acknowledgment or null message is due."""
        return self._deadline

    @rule("Section 3, message timestamps")
    def stamp(self, now: Instant) -> int:
        """Give the timestamp of the next message: above all that this member has given."""
        self._null.done(now, news=True)
        return self._tick(now)

    def advanced(self, source: int, pdu: Streamed, received: Sequence[int], now: Instant) -> Step:
        """Take note of a message that this member holds now."""
        stamp, number = pdu.stamp, pdu.number
        if source != self.rank and stamp <= self.heard[source]:
            return Step()  # no correct sender repeats a stamp; the next higher one will cover this message
        latest = stamp > self.messages.goal
        self.messages.enter(stamp, source, number)
        if latest and self.trigger is None:
            self.bind(stamp, now)
        if source != self.rank:
            self.hear(source, stamp)
            null = self.nulls.get(source)
            if null is not None and null.sent <= number:
                del self.nulls[source]
                self.hear(source, max(stamp, null.stamp))
        return self._settle([], now)

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take another member's acknowledgment or null message."""
        match pdu:
            case Ack():
                self.take_ack(source, pdu, now)
            case NullMessage():
                self.take_null(source, pdu)
            case _:
                raise Malformed("unexpected")
        return self._settle([], now)

    def wake(self, now: Instant) -> Step:
        """Keep the duties that are due."""
        self._open_round(now)
        down: list[Down] = []
        for source in [source for source, instant in self._answer_at.items() if instant <= now]:
            del self._answer_at[source]
            down += [Out(pdu, (source,)) for pdu in self.answer(now)]
        if self.active and min(self._null.due(now), self._ack.due(now)) <= now:
            if self._null.near(now):
                down += [Out(pdu) for pdu in self.say_null(now)]
            if self._ack.near(now):
                down += [Out(pdu) for pdu in self.say_ack(now)]
        return self._settle(down, now)

    # The rules

    @rule("Section 3, T_ack: a receiver acknowledges periodically")
    def say_ack(self, now: Instant) -> list[Pdu]:
        """Say to all what is held here, whether that is news or may have been lost."""
        return [self._acknowledge(now)]

    @rule("Section 3, T_send: a sender without messages sends null messages")
    def say_null(self, now: Instant) -> list[Pdu]:
        """Stamp for all; once the stamp is above all that is unstable, only a loss makes another one necessary."""
        enough = self.clock.last >= self.owed
        null = self.null_message(now)
        self._null.done(now, news=not enough)
        return [null]

    @rule("docs/protocols/timestamp-ack.md, Rule: who asks is answered")
    def answer(self, now: Instant) -> list[Pdu]:
        """Tell one who still waits what is held here, and stamp."""
        return [self.ack_message(None), self.null_message(now)]

    @rule("Section 3, acknowledgment timestamps")
    def take_ack(self, source: int, ack: Ack, now: Instant) -> None:
        """Take note of what a member holds: it only rises; and keep one's duties for a member that asks."""
        if ack.held > self.clock.last:  # it includes my own stamps, and none is that high
            raise Malformed("impossible-acknowledgment")
        self._follow(ack.clock)
        self.acks.put(source, max(ack.held, self.acks[source]))
        if ack.asked is not None:
            self.bind(min(ack.held + ack.asked, self.messages.goal), now)
            if not self.active:
                self._answer_at.setdefault(source, now + self._random.randrange(self.options.t_ack_ns))

    @rule("Section 3, null messages; docs/protocols/timestamp-ack.md, Rule")
    def take_null(self, source: int, null: NullMessage) -> None:
        """Take note that a sender will stamp nothing up to here, once its stream is held as far as it goes."""
        if null.stamp > self.heard[source]:
            if null.sent < self.messages.numbers[source]:
                raise Malformed("broken-promise")  # a message that is held here has a stamp that the null ruled out
            if null.sent == self.messages.numbers[source]:
                self.hear(source, null.stamp)
            else:
                self.nulls[source] = max(null, self.nulls.get(source, null), key=lambda one: one.stamp)

    @property
    @rule("docs/protocols/timestamp-ack.md, Rule: duties bind only while something is unstable")
    def active(self) -> bool:
        """Say whether the duties bind: what is held here is not known to be stable, and it is time to ask."""
        return self.owed > self.acks.least

    @rule("docs/protocols/timestamp-ack.md, Rule: duties bind only while something is unstable")
    def bind(self, stamp: int, now: Instant) -> None:
        """Take up the duties for what is stamped up to here."""
        if stamp > self.owed:
            if not self.active:
                self._ack.begin(now)
            self.owed = stamp
            self._ack.renew()
            self._null.renew()

    @rule("Section 3, null messages")
    def null_message(self, now: Instant) -> NullMessage:
        """Make a null message: a stamp that binds one's clock, and the last number of one's stream."""
        return NullMessage(self._tick(now), self.messages.numbers[self.rank])

    @rule("Section 3, acknowledgment timestamps")
    def ack_message(self, asked: int | None) -> Ack:
        """Make an acknowledgment: the least of the stamps that were heard last from each of the others."""
        return Ack(self.heard.least, 0 if self.options.clock == "physical" else self.clock.last, asked)

    def ride(self, now: Instant) -> list[Pdu]:
        """Give an acknowledgment to a datagram that goes to all now, if it would be news."""
        if not self.options.piggyback or self.heard.least <= self.acknowledged or not self.messages.unstable:
            return []
        ack = self._acknowledge(now)
        self._set_deadline(now)
        return [ack]

    def lag(self) -> dict[int, int | None]:
        """Say who has not acknowledged what is held here, and how many messages of others each lacks at most."""
        lag: dict[int, int | None] = {}
        for rank in range(len(self.messages.numbers)):
            acknowledged = self.acks[rank]
            lacks = sum(stamp > acknowledged and source != rank for stamp, source, _ in self.messages.unstable)
            if lacks and rank != self.rank:
                lag[rank] = lacks if acknowledged else None
        return lag

    def _open_round(self, now: Instant) -> None:
        """With the trigger: take up the duties, and ask at once, when enough has gathered."""
        sent, stable = self.messages.numbers[self.rank], self.messages.frontier[self.rank]
        if self.trigger is not None:
            if self.trigger.running and not self.active:
                self.trigger.end(stable, now)
            if self.trigger.start(sent, stable, now, others=bool(self.messages.unstable)):
                self.bind(self.messages.goal, now)
                self._ack.begin(None)

    def hear(self, source: int, stamp: int) -> None:
        """Hold all that a sender stamped up to here."""
        self._follow(stamp)
        self.heard.put(source, stamp)
        if self.heard.least > self.acks[self.rank]:
            self.acks.put(self.rank, self.heard.least)
            self._ack.renew()

    def _follow(self, other: int) -> None:
        """Let a clock that follows others jump to what they show."""
        if self.options.clock != "physical":
            self.clock.last = max(self.clock.last, other)

    def _tick(self, now: Instant) -> int:
        return self.clock.tick(0 if self.options.clock == "logical" else now)

    def _acknowledge(self, now: Instant) -> Ack:
        news, self.acknowledged = self.heard.least > self.acknowledged, self.heard.least
        self._ack.done(now, news=news)
        return self.ack_message(self.owed - self.heard.least)

    def _settle(self, down: list[Down], now: Instant) -> Step:
        """Move the frontier to what all acknowledge, and set the next deadline."""
        moved = self.messages.settle(self.acks.least)
        self._open_round(now)
        self._set_deadline(now)
        return Step([Frontier(tuple(self.messages.frontier))] if moved else [], down)

    def _set_deadline(self, now: Instant) -> None:
        waiting = None if self.trigger is None else self.trigger.deadline
        answer = min(self._answer_at.values(), default=None)
        duties = (self._ack.due(now), self._null.due(now)) if self.active else ()
        self._deadline = earliest(waiting, answer, *duties)
