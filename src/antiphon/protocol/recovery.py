"""Reliable FIFO streams over a network that loses, doubles and reorders: what ABCAST, TOMP and stability stand on.

Every member numbers the PDUs of its own stream from 1. A receiver passes them on in order, keeps what comes early, and
asks the sender for what is missing (selective retransmission by NACK). That the *last* one is missing shows in the
header of whatever its sender says next; a sender with unstable PDUs and nothing to say sends a heartbeat. Copies are
kept until stability releases them; how many there can be is bounded by the senders' windows, and enforced here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec

from antiphon.protocol.machine import MILLISECOND, Duration, Instant, earliest
from antiphon.protocol.parts import Accepted, Duplicate, Out, PartContext, Step
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import Backoff, GrowingPause
from antiphon.protocol.wire import NUMBER_MAX, Data, Exhausted, Malformed, Number, Pdu, Streamed

NACK_RANGES_MAX = 64


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


class Recovery:
    """The reliable streams of all members, seen from one of them."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Data, Nack, Heartbeat)

    def __init__(self, context: PartContext, window: int, options: RecoveryOptions, *, gated: bool = False) -> None:
        """Keep streams; where they are `gated`, what has come is not passed on before it is taken, one at a time."""
        self._rank, self._jittered = context.rank, context.jittered
        self._gated = gated
        self._options = options
        self._reach = 4 * window  # how far beyond the released prefix a number may lie
        self.received = [0] * context.size  # per sender, the prefix of its stream that is held here
        self.released = [0] * context.size  # per sender, the prefix that was let go because everyone holds it
        self.log: list[dict[int, Streamed]] = [{} for _ in range(context.size)]
        self._highest = [0] * context.size  # per sender, the highest number known to exist
        self._missing: dict[int, Backoff] = {}  # by sender, when to ask it for what is missing
        self.arrived: set[int] = set()  # gated streams of which something may have come and not been taken
        self._spoke_at: Instant = 0
        self._silence = GrowingPause(context.jittered, options.heartbeat_ns, options.heartbeat_ns_max)
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
        speak = self._spoke_at + self._silence.ns if self.unstable else None
        return earliest(speak, *(missing.at for missing in self._missing.values())) if self._missing else speak

    def broadcast(self, pdu: Streamed, now: Instant) -> Step:
        """Number a PDU, keep it, send it to all, and accept it as one's own."""
        rank, number = self._rank, self.sent + 1
        if number > NUMBER_MAX:
            raise Exhausted(number)
        pdu.number = self._highest[rank] = self.received[rank] = number
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
        if sent > self._highest[source]:
            self._highest[source] = sent
            self._expect(source, now)

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a PDU from the network."""
        match pdu:
            case Streamed():
                return self.take_streamed(source, pdu, now)
            case Nack():
                return self.repair(source, pdu)
            case Heartbeat():
                return Step([], [Out(Heartbeat(), (source,))] if pdu.asking else [])
            case _:
                raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        """Ask for what is missing and break the silence, where it is time."""
        down: list[Out] = []
        for source, missing in self._missing.items():
            if missing.over(now):
                down += [Out(pdu, (source,)) for pdu in self.ask(source, missing.tries)]
        if self.unstable and self._spoke_at + self._silence.ns <= now:
            down += [Out(pdu) for pdu in self.break_silence()]
            self.spoke(now)
            self._silence.grow()
        return Step([], [*down])

    @rule("docs/protocols/fifo.md, Rule")
    def ask(self, source: int, tries: int) -> list[Pdu]:
        """Ask a sender for what is missing of its stream, however often that was tried."""
        gaps = self._gaps(source)
        return [Nack(gaps)] if gaps else []  # if none, there is no room for what is missing until more is released

    @rule("docs/protocols/fifo.md, Rule")
    def break_silence(self) -> list[Pdu]:
        """Say nothing but a header: how far one's own stream goes."""
        return [Heartbeat()]

    def release(self, frontier: Sequence[int]) -> None:
        """Let go of what everyone holds."""
        for source, stable in enumerate(frontier):
            assert stable <= self.received[source], "stable means held here too"
            log = self.log[source]
            for number in range(self.released[source] + 1, stable + 1):
                del log[number]
                self.held -= 1
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
            return Step()
        if number <= self.received[source] or number in log:
            return Step([Duplicate(source, _seq(pdu))])
        log[number] = pdu
        self.held += 1
        if self._gated:
            self.arrived.add(source)
        self._highest[source] = max(self._highest[source], number)
        accepted: list[Accepted] = []
        while not self._gated and (following := log.get(self.received[source] + 1)) is not None:
            self.received[source] += 1
            accepted.append(Accepted(source, following))
        if accepted:
            self._missing.pop(source, None)
        self._expect(source, now)
        return Step([*accepted])

    def following(self, source: int) -> Streamed | None:
        """Give the next PDU of a gated stream, if it has come."""
        return self.log[source].get(self.received[source] + 1)

    def take(self, source: int, now: Instant) -> Step:
        """Pass on the next PDU of a gated stream."""
        following = self.log[source][self.received[source] + 1]
        self.received[source] += 1
        self._missing.pop(source, None)
        if self.received[source] + 1 not in self.log[source]:
            self.arrived.discard(source)
        self._expect(source, now)
        return Step([Accepted(source, following)])

    def _expect(self, source: int, now: Instant) -> None:
        if self.received[source] < self._highest[source] and source not in self._missing:
            options = self._options
            missing = self._missing[source] = Backoff(
                self._jittered, options.nack_retry_ns, options.nack_retry_ns_max, first_ns=options.nack_delay_ns
            )
            missing.start(now)

    def _gaps(self, source: int) -> list[tuple[int, int]]:
        """List what is missing of a stream, as far as it may be kept here."""
        log = self.log[source]
        gaps: list[tuple[int, int]] = []
        number = self.received[source] + 1
        last = min(self._highest[source], self.released[source] + self._reach)
        while number <= last and len(gaps) < NACK_RANGES_MAX:
            first = number
            while number <= last and number not in log:
                number += 1
            if number > first:
                gaps.append((first, number - 1))
            while number <= last and number in log:
                number += 1
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
