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
from antiphon.protocol.stability.minimum import Minimum
from antiphon.protocol.stability.trigger import BufferTrigger
from antiphon.protocol.timers import GrowingPause
from antiphon.protocol.wire import Counter, Malformed, Pdu, Streamed, Timestamp

_ALWAYS: Final[int] = 2**63  # above every timestamp: one's own messages are held by oneself

Pause: TypeAlias = Annotated[Duration, msgspec.Meta(ge=1)]
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

    t_send_ns: Pause = 10 * MILLISECOND
    t_ack_ns: Pause = 10 * MILLISECOND
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


class TimestampAck:
    """Stability by scalar timestamps, of one's own messages and of everyone's."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Ack, NullMessage)
    Options: ClassVar[type[msgspec.Struct]] = TimestampAckOptions

    def __init__(self, context: PartContext, options: TimestampAckOptions) -> None:
        self._rank, self._random, self._options = context.rank, context.random, options
        self._answer_at: dict[int, Instant] = {}  # who asked -> when; all at once would overrun the one who asked
        self._clock = StrictClock()
        alone = [_ALWAYS if rank == context.rank else 0 for rank in range(context.size)]
        self._heard = Minimum(alone)  # per sender, up to which stamp this member holds its messages
        self._acks = Minimum([0] * context.size)  # per member, what it has acknowledged
        self._acks.put(context.rank, self._heard.least)
        self._numbers = [0] * context.size  # per sender, the last number of its stream that is held here
        self._nulls: dict[int, NullMessage] = {}  # those that wait for the stream to reach their number
        self._unstable: list[tuple[int, int, int]] = []  # heap of (stamp, sender, number)
        self._frontier = [0] * context.size
        self._goal = 0  # the highest stamp of a message that is held here
        self._owed = 0  # the stamp up to which the duties bind
        self._trigger = BufferTrigger(context.window, options.idle_ns) if options.trigger else None
        self._acknowledged = 0  # what this member last said to all
        self._deadline: Instant | None = None
        self._ack = _Duty(context, options.t_ack_ns, options.pause_ns_max)
        self._null = _Duty(context, options.t_send_ns, options.pause_ns_max)

    @property
    def deadline(self) -> Instant | None:
        """When the next acknowledgment or null message is due."""
        return self._deadline

    def stamp(self, now: Instant) -> int:
        """Give the timestamp of the next message: above all that this member has given."""
        self._null.done(now, news=True)
        return self._clock.tick(0 if self._options.clock == "logical" else now)

    def advanced(self, source: int, pdu: Streamed, received: Sequence[int], now: Instant) -> Step:
        """Take note of a message that this member holds now."""
        stamp, number = pdu.stamp, pdu.number
        if source != self._rank and stamp <= self._heard[source]:
            return Step()  # no correct sender repeats a stamp; the next higher one will cover this message
        self._numbers[source] = number
        heappush(self._unstable, (stamp, source, number))
        if stamp > self._goal:
            self._goal = stamp
            if self._trigger is None:
                self._bind(stamp, now)
        if source != self._rank:
            self._hear(source, stamp)
            null = self._nulls.get(source)
            if null is not None and null.sent <= number:
                del self._nulls[source]
                self._hear(source, max(stamp, null.stamp))
        return self._settle([], now)

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take another member's acknowledgment or null message."""
        match pdu:
            case Ack():
                if pdu.held > self._clock.last:  # it includes my own stamps, and none is that high
                    raise Malformed("impossible-acknowledgment")
                self._follow(pdu.clock)
                self._acks.put(source, max(pdu.held, self._acks[source]))
                if pdu.asked is not None:
                    self._bind(min(pdu.held + pdu.asked, self._goal), now)
                    if not self._active:
                        self._answer_at.setdefault(source, now + self._random.randrange(self._options.t_ack_ns))
                return self._settle([], now)
            case NullMessage():
                return self._receive_null(source, pdu, now)
            case _:
                raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        """Keep the duties that are due."""
        self._open_round(now)
        down: list[Down] = []
        for source in [source for source, instant in self._answer_at.items() if instant <= now]:
            del self._answer_at[source]
            down += [Out(self._ack_message(), (source,)), Out(self._null_message(now), (source,))]
        if self._active and min(self._null.due(now), self._ack.due(now)) <= now:
            if self._null.near(now):
                enough = self._clock.last >= self._owed  # then only a loss can make another one necessary
                down.append(Out(self._null_message(now)))
                self._null.done(now, news=not enough)
            if self._ack.near(now):
                down.append(Out(self._acknowledge(now)))
        return self._settle(down, now)

    def ride(self, now: Instant) -> list[Pdu]:
        """Give an acknowledgment to a datagram that goes to all now, if it would be news."""
        if not self._options.piggyback or self._heard.least <= self._acknowledged or not self._unstable:
            return []
        ack = self._acknowledge(now)
        self._set_deadline(now)
        return [ack]

    def lag(self) -> dict[int, int | None]:
        """Say who has not acknowledged what is held here, and how many messages of others each lacks at most."""
        lag: dict[int, int | None] = {}
        for rank in range(len(self._numbers)):
            acknowledged = self._acks[rank]
            lacks = sum(stamp > acknowledged and source != rank for stamp, source, _ in self._unstable)
            if lacks and rank != self._rank:
                lag[rank] = lacks if acknowledged else None
        return lag

    @property
    def _active(self) -> bool:
        """Whether the duties bind: a message is held here that is not known to be stable, and it is time to ask."""
        return self._owed > self._acks.least

    def _bind(self, stamp: int, now: Instant) -> None:
        """Take up the duties for what is stamped up to here."""
        if stamp > self._owed:
            if not self._active:
                self._ack.begin(now)
            self._owed = stamp
            self._ack.renew()
            self._null.renew()

    def _open_round(self, now: Instant) -> None:
        """With the trigger: take up the duties, and ask at once, when enough has gathered."""
        sent, stable = self._numbers[self._rank], self._frontier[self._rank]
        if self._trigger is not None:
            if self._trigger.running and not self._active:
                self._trigger.end(stable, now)
            if self._trigger.start(sent, stable, now, others=bool(self._unstable)):
                self._bind(self._goal, now)
                self._ack.begin(None)

    def _receive_null(self, source: int, null: NullMessage, now: Instant) -> Step:
        if null.stamp > self._heard[source]:
            if null.sent < self._numbers[source]:
                raise Malformed("broken-promise")  # a message that is held here has a stamp that the null ruled out
            if null.sent == self._numbers[source]:
                self._hear(source, null.stamp)
            else:
                self._nulls[source] = max(null, self._nulls.get(source, null), key=lambda one: one.stamp)
        return self._settle([], now)

    def _hear(self, source: int, stamp: int) -> None:
        """Hold all that a sender stamped up to here."""
        self._follow(stamp)
        self._heard.put(source, stamp)
        if self._heard.least > self._acks[self._rank]:
            self._acks.put(self._rank, self._heard.least)
            self._ack.renew()

    def _follow(self, other: int) -> None:
        """Let a clock that follows others jump to what they show."""
        if self._options.clock != "physical":
            self._clock.last = max(self._clock.last, other)

    def _null_message(self, now: Instant) -> NullMessage:
        return NullMessage(self._clock.tick(0 if self._options.clock == "logical" else now), self._numbers[self._rank])

    def _ack_message(self, asked: int | None = None) -> Ack:
        return Ack(self._heard.least, 0 if self._options.clock == "physical" else self._clock.last, asked)

    def _acknowledge(self, now: Instant) -> Ack:
        news, self._acknowledged = self._heard.least > self._acknowledged, self._heard.least
        self._ack.done(now, news=news)
        return self._ack_message(self._owed - self._heard.least)

    def _settle(self, down: list[Down], now: Instant) -> Step:
        """Move the frontier to what all acknowledge, and set the next deadline."""
        stable, unstable, moved = self._acks.least, self._unstable, False
        while unstable and unstable[0][0] <= stable:
            _, source, number = heappop(unstable)
            self._frontier[source] = number
            moved = True
        self._open_round(now)
        self._set_deadline(now)
        return Step([Frontier(tuple(self._frontier))] if moved else [], down)

    def _set_deadline(self, now: Instant) -> None:
        waiting = None if self._trigger is None else self._trigger.deadline
        answer = min(self._answer_at.values(), default=None)
        duties = (self._ack.due(now), self._null.due(now)) if self._active else ()
        self._deadline = earliest(waiting, answer, *duties)
