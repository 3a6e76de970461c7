"""Reliable FIFO streams over a network that loses, doubles and reorders: what ABCAST, TOMP and stability stand on.

Every member numbers the PDUs of its own stream from 1. A receiver passes them on in order, keeps what comes early, and
asks the sender for what is missing (selective retransmission by NACK). That the *last* one is missing shows in the
header of whatever its sender says next; a sender with unstable PDUs and nothing to say sends a heartbeat. Copies are
kept until stability releases them; how many there can be is bounded by the senders' windows, and enforced here. What is
large is sent again as `repairs` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from antiphon.protocol.machine import MILLISECOND, SECOND, Duration, Instant, earliest
from antiphon.protocol.parts import NOTHING, Accepted, Down, Duplicate, Out, PartContext, Step, Up
from antiphon.protocol.repairs import CHEAP_BYTES, RepairMark, RepairMarks
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import Backoff, GrowingPause, RoundTripEstimate
from antiphon.protocol.wire import NUMBER_MAX, Data, Exhausted, Malformed, Number, Pdu, Streamed

NACK_RANGES_MAX = 64
_TRIES_IN_HASTE = 6  # requests in vain after which the pauses grow beyond their usual limit
_PAUSE_NS_MAX = 2 * SECOND
_PATIENCE = 4  # times their usual limit, to which they grow while the sender is heard: what was asked for was lost
_UNCROWDED = 32  # members; in groups so many times as large vain heartbeats become so many times as rare


class Nack(Pdu, tag=3):
    """Ask the receiver of this PDU to send ranges (first, last) of its stream again."""

    kind: ClassVar[str] = "nack"
    ranges: Annotated[list[tuple[Number, Number]], msgspec.Meta(min_length=1, max_length=NACK_RANGES_MAX)]


class Heartbeat(Pdu, tag=4):
    """Nothing but a header; with `asking`, please answer with yours."""

    kind: ClassVar[str] = "heartbeat"
    asking: bool = False


class RecoveryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to ask, when to ask again, when to break a silence."""

    nack_delay_ns: Duration = 10 * MILLISECOND  # reordering mends itself
    nack_retry_ns: Duration = 40 * MILLISECOND  # doubled with every vain try, up to the next one
    nack_retry_ns_max: Duration = 40 * MILLISECOND  # what is lost twice holds up all that follows
    heartbeat_ns: Duration = 25 * MILLISECOND
    heartbeat_ns_max: Duration = 100 * MILLISECOND
    repairs_per_nack_max: int = 256
    adaptive: bool = True  # wait for an answer as long as answers take, and ever longer where asking is in vain


class _Sender:
    """What was learnt about one sender in asking it for what was missing."""

    def __init__(self, options: RecoveryOptions) -> None:
        self.answers = RoundTripEstimate(options.nack_delay_ns)
        self.heard_at: Instant = 0
        self.tail = 1  # how many PDUs that only headers tell of are asked for at once; doubled with each that comes


class _Request:
    """Decides when to ask one sender for what is missing of its stream, by how long its answers took so far.

    What only headers tell of may still be on its way: on a slow link a header travels with the first of many PDUs. So
    it is asked for later than a gap, in which something was lost or overtaken.
    """

    def __init__(
        self, context: PartContext, options: RecoveryOptions, sender: _Sender, now: Instant, *, gap: bool
    ) -> None:
        self._options, self._sender = options, sender
        self.size_max = sender.tail if options.adaptive and not gap else None  # how much is asked for at once
        first, pause, longest = options.nack_delay_ns, options.nack_retry_ns, options.nack_retry_ns_max
        if options.adaptive and sender.answers.mean_ns is not None:
            usual = min(sender.answers.timeout_ns, _PAUSE_NS_MAX)  # to ask is cheap, however long a copy takes
            first, pause, longest = first if gap else max(first, usual), max(pause, usual), max(longest, usual)
        if context.pace.ns:
            pause, longest = pause + context.pace.answer_ns, longest + context.pace.answer_ns
        self.again = Backoff(context.jittered, pause, longest, first_ns=first)
        self.again.start(now)
        self._patient_ns = min(_PATIENCE * longest, max(longest, _PAUSE_NS_MAX))
        self._asked_at: Instant = now  # the last time
        self.first: int | None = None  # the lowest number that was asked for then

    def over(self, now: Instant) -> bool:
        """Return whether it is time to ask."""
        again = self.again
        if self._options.adaptive and again.tries >= _TRIES_IN_HASTE and again.at is not None and again.at <= now:
            silent = now - self._sender.heard_at > self._silence_ns
            again.relent(max(self._patient_ns, _PAUSE_NS_MAX) if silent else self._patient_ns)
        if not again.over(now):
            return False
        self._asked_at = now
        return True

    @property
    def _silence_ns(self) -> Duration:
        """How long a sender that is there may say nothing."""
        return 4 * max(self._options.heartbeat_ns_max, self._sender.answers.timeout_ns)

    def came(self, now: Instant) -> None:
        """Learn from what came how long an answer takes.

        After several requests nobody knows which one it answers. The last is taken for it: too short a time at worst,
        and where answers take long the pauses grow until it is not.
        """
        self._sender.answers.measured(now - self._asked_at)
        self._sender.tail = min(2 * self._sender.tail, self._options.repairs_per_nack_max)

    def heard(self, now: Instant) -> None:
        """Ask soon, however long the pauses have become, if the sender is heard again after a silence."""
        silent_ns, self._sender.heard_at = now - self._sender.heard_at, now
        if self._options.adaptive and silent_ns > self._silence_ns:
            self.again.hasten(now + self._options.nack_delay_ns)


class Recovery:
    """The reliable streams of all members, seen from one of them."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Data, Nack, Heartbeat, RepairMark)
    marks_type: ClassVar[type[RepairMarks]] = RepairMarks

    def __init__(self, context: PartContext, window: int, options: RecoveryOptions, *, gated: bool = False) -> None:
        """Keep streams; where they are `gated`, what has come is not passed on before it is taken, one at a time."""
        self._rank, self._context = context.rank, context
        self._gated = gated
        self._options = options
        self._reach = 4 * window  # how far beyond the released prefix a number may lie
        self.received = [0] * context.size  # per sender, the prefix of its stream that is held here
        self.released = [0] * context.size  # per sender, the prefix that was let go because everyone holds it
        self.log: list[dict[int, Streamed]] = [{} for _ in range(context.size)]
        self.highest = [0] * context.size  # per sender, the highest number known to exist
        self.missing: dict[int, _Request] = {}  # by sender, when to ask it for what is missing
        self._marks = self.marks_type(options.nack_retry_ns)
        self._repaired: dict[int, dict[int, Instant]] = {}  # small ones: own number -> member -> when last sent again
        self._senders: dict[int, _Sender] = {}  # those of which something was missing
        self.arrived: set[int] = set()  # gated streams of which something may have come and not been taken
        self._spoke_at: Instant = 0
        # the first words after a silence tell of a lost last message; what follows must not be most of what is said
        longest_ns = options.heartbeat_ns_max * max(1, context.size // _UNCROWDED)
        self._silence = GrowingPause(context.jittered, options.heartbeat_ns, longest_ns)
        self.held = 0
        self.overruns = 0

    @property
    def sent(self) -> int:
        """The highest number of the member's own stream."""
        return self.received[self._rank]

    @property
    def unstable(self) -> int:
        """How much of the member's own stream is not yet known to be held by all."""
        return self.sent - self.released[self._rank]

    @property
    def deadline(self) -> Instant | None:
        """When to ask, or to break the silence."""
        rank = self._rank
        unstable = self.received[rank] > self.released[rank]
        speak = self._spoke_at + self._silence.ns if unstable else None
        if not self.missing and not self._marks.due:
            return speak
        return earliest(speak, *(missing.again.at for missing in self.missing.values()), *self._marks.due.values())

    def broadcast(self, pdu: Streamed, now: Instant) -> Step:
        """Number a PDU, keep it, send it to all, and accept it as one's own."""
        rank, number = self._rank, self.sent + 1
        if number > NUMBER_MAX:
            raise Exhausted(number)
        pdu.number = self.highest[rank] = self.received[rank] = number
        self.log[rank][pdu.number] = pdu
        self.held += 1
        self._silence.renew()
        return Step([Accepted(rank, pdu)], [Out(pdu, None, rank, _seq(pdu))])

    def spoke(self, now: Instant) -> None:
        """Hear that a datagram went to all: its header did what a heartbeat does."""
        self._spoke_at = now

    @rule("docs/protocols/fifo.md, Rule")
    def noticed(self, source: int, sent: int, now: Instant) -> None:
        """Hear from a header how far its sender's stream goes."""
        if sent > self.highest[source]:
            self.highest[source] = sent
            self.expect(source, now)
        elif self.missing and source in self.missing:
            self.missing[source].heard(now)

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a PDU from the network."""
        match pdu:
            case Streamed():
                return self.take_streamed(source, pdu, now)
            case Nack():
                return self.once(source, self.repair(source, pdu), now)
            case Heartbeat():
                return Step([], [Out(Heartbeat(), (source,))] if pdu.asking else [])
            case RepairMark():
                return self.ask_again(source, now) if self._marks.take(source, pdu) else NOTHING
            case _:
                raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        """Ask for what is missing and break the silence, where it is time."""
        down: list[Out] = []
        for source, missing in self.missing.items():
            if missing.over(now):
                down += [Out(pdu, (source,)) for pdu in self.ask(source, missing.again.tries)]
        down += [Out(mark, (member,)) for member, mark in self._marks.take_due(now)]
        if self.unstable and self._spoke_at + self._silence.ns <= now:
            down += [Out(pdu) for pdu in self.break_silence()]
            self.spoke(now)
            self._silence.grow()
        return Step([], [*down])

    @rule("docs/protocols/fifo.md, Rule")
    def ask(self, source: int, tries: int) -> list[Pdu]:
        """Ask a sender for what is missing of its stream, however often that was tried."""
        gaps = self._gaps(source)
        return (
            [*self._marks.heard(source), Nack(gaps)] if gaps else []
        )  # if none, there is no room for what is missing until more is released

    @rule("docs/protocols/fifo.md, Rule")
    def break_silence(self) -> list[Pdu]:
        """Say nothing but a header: how far one's own stream goes."""
        return [Heartbeat()]

    @rule("docs/protocols/fifo.md, Slow links")
    def ask_again(self, source: int, now: Instant) -> Step:
        """Ask for what is still missing when the mark behind its copies comes: they were lost.

        A sender that answers is asked as soon again as the first time, however long that was in vain.
        """
        request = self.missing.get(source)
        if request is None or not request.again.tries:
            return NOTHING
        request.again.start(now)
        request.again.hasten(now)
        request.over(now)
        return Step([], [Out(pdu, (source,)) for pdu in self.ask(source, request.again.tries)])

    @rule("docs/protocols/fifo.md, Slow links")
    def once(self, source: int, repairs: Step, now: Instant) -> Step:
        """Leave out what is on its way to the same member: it is large, or its requests came all at once."""
        down: list[Down] = []
        for out in repairs.down:
            assert isinstance(out, Out)
            assert isinstance(out.pdu, Streamed)
            number = out.pdu.number
            if isinstance(out.pdu, Data) and len(out.pdu.payload) > CHEAP_BYTES:
                if self._marks.wanted(source, number, now):
                    self._marks.sent(source, number, now)
                    down.append(out)
                continue
            repaired = self._repaired.setdefault(number, {})
            answered_at = repaired.get(source) if self._options.adaptive else None
            if answered_at is None or now - answered_at >= self._options.nack_retry_ns // 2:
                repaired[source] = now
                down.append(out)
        return Step([], down)

    def release(self, frontier: Sequence[int]) -> None:
        """Let go of what everyone holds."""
        for source, stable in enumerate(frontier):
            assert stable <= self.received[source], "stable means held here too"
            log = self.log[source]
            for number in range(self.released[source] + 1, stable + 1):
                del log[number]
                self.held -= 1
                if source == self._rank:
                    self._marks.release(number)
                    self._repaired.pop(number, None)
            self.released[source] = max(self.released[source], stable)

    # When the view ends: see `RetransmissionBuffer`

    def reach(self) -> list[int]:
        """Say up to where each stream is held."""
        return list(self.received)

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, Pdu]]:
        """Give a part of a stream; whatever was let go is held by everyone."""
        log = self.log[source]
        return [(number, log[number]) for number in range(above + 1, upto + 1) if number in log]

    def adopt(self, source: int, pdu: Pdu) -> Step:
        """Accept the next PDU of a stream, whether there is room for it or not."""
        if not isinstance(pdu, Streamed) or pdu.number != self.received[source] + 1:
            raise Malformed("impossible-number")
        self.held += pdu.number not in self.log[source]
        self.log[source][pdu.number] = pdu
        self.received[source] += 1
        return Step([Accepted(source, pdu)])

    @rule("docs/protocols/fifo.md, Rule")
    def take_streamed(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Keep a PDU of a stream, and pass on all that is complete and in order now."""
        number, log = pdu.number, self.log[source]
        if source == self._rank or number == 0:
            raise Malformed("impossible-number")
        if number > self.released[source] + self._reach:
            self.overruns += 1  # no room for it yet: as good as lost, and asked for when there is one
            return NOTHING
        if number <= self.received[source] or number in log:
            return Step([Duplicate(source, _seq(pdu))])
        log[number] = pdu
        self.held += 1
        if self._gated:
            self.arrived.add(source)
        if number > self.highest[source]:
            self.highest[source] = number
        accepted: list[Up] = []
        while not self._gated and (following := log.get(self.received[source] + 1)) is not None:
            self.received[source] += 1
            accepted.append(Accepted(source, following))
        if self.missing and (accepted or self._gated) and (request := self.missing.get(source)) is not None:
            if number == request.first:
                request.came(now)
            if accepted:
                del self.missing[source]
        if not self._gated and self.received[source] < self.highest[source]:
            self.expect(source, now)
        return Step(accepted) if accepted else NOTHING

    def following(self, source: int) -> Streamed | None:
        """Give the next PDU of a gated stream, if it has come."""
        return self.log[source].get(self.received[source] + 1)

    def take(self, source: int) -> Step:
        """Pass on the next PDU of a gated stream; when none follows any more, `expect` the rest."""
        following = self.log[source][self.received[source] + 1]
        self.received[source] += 1
        self.missing.pop(source, None)
        if self.received[source] + 1 not in self.log[source]:
            self.arrived.discard(source)
        return Step([Accepted(source, following)])

    def expect(self, source: int, now: Instant) -> None:
        """Ask for what is missing of a stream, after a while."""
        if self.received[source] < self.highest[source] and source not in self.missing:
            gap = len(self.log[source]) > self.received[source] - self.released[source]
            sender = self._senders.get(source)
            if sender is None:
                sender = self._senders[source] = _Sender(self._options)
            sender.heard_at = now
            self.missing[source] = _Request(self._context, self._options, sender, now, gap=gap)

    def _gaps(self, source: int) -> list[tuple[int, int]]:
        """List what is missing of a stream, as far as it may be kept here."""
        log = self.log[source]
        gaps: list[tuple[int, int]] = []
        number = self.received[source] + 1
        last = min(self.highest[source], self.released[source] + self._reach)
        request = self.missing.get(source)
        if request is not None and request.size_max is not None:
            last = min(last, self.received[source] + request.size_max)
        while number <= last and len(gaps) < NACK_RANGES_MAX:
            first = number
            while number <= last and number not in log:
                number += 1
            if number > first:
                gaps.append((first, number - 1))
            while number <= last and number in log:
                number += 1
        if request is not None:
            request.first = gaps[0][0] if gaps else None
        return gaps

    @rule("docs/protocols/fifo.md, Rule")
    def repair(self, source: int, nack: Nack) -> Step:
        """Send what a member asks for again, to it alone, as far as it is kept."""
        if any(first > last for first, last in nack.ranges):
            raise Malformed("empty-range")
        log = self.log[self._rank]
        down: list[Out] = []
        for first, last in nack.ranges:
            for number in range(max(first, self.released[self._rank] + 1), min(last, self.sent) + 1):
                if len(down) == self._options.repairs_per_nack_max:
                    break
                pdu = log[number]
                down.append(Out(pdu, (source,), self._rank, _seq(pdu), repair=True))
        return Step([], [*down])


def _seq(pdu: Streamed) -> int | None:
    return pdu.seq if isinstance(pdu, Data) else None
