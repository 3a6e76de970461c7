"""SL, the sending log: one's own PDUs that some member may lack, and which of them are sent again."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import ClassVar, Final

import msgspec

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.ordering.co.acceptance import CausalAcceptance
from antiphon.protocol.ordering.co.pdus import CoData, CoOptions, Gaps, Sequenced
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import Out, Step
from antiphon.protocol.repairs import CHEAP_BYTES, RepairMarks
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import HEADER_BYTES

COPIES_AT_ONCE: Final = 3  # a PDU is sent again so often at the pace of round trips
DOUBLINGS_MAX: Final = 4
FEW: Final = 8  # members; and one in so many of a larger group
SLOW: Final = 5  # times `ret_retry_ns`: where even the quickest answer took longer, so may a small copy


class Sent(msgspec.Struct):
    """An entry of the sending log."""

    pdu: Sequenced
    seq: int | None  # the application message that it carries
    sent_at: Instant
    copies: int = 0  # sent again so often
    copied: dict[int, tuple[Instant, int]] = msgspec.field(default_factory=dict)  # member -> its last copy, how many
    askers: set[int] = msgspec.field(default_factory=set)  # who asks for the next copy

    @property
    def payload_bytes(self) -> int:
        """How many bytes of the application it has."""
        return len(self.pdu.payload) if isinstance(self.pdu, CoData) else 0

    @property
    def bytes(self) -> int:
        """About how many bytes a copy has."""
        return HEADER_BYTES + len(self.pdu.ack) + self.payload_bytes


class SendingLog:
    """Keeps one's own PDUs until everyone is known to have accepted them, and sends them again on request."""

    marks_type: ClassVar[type[RepairMarks]] = RepairMarks

    def __init__(self, acceptance: CausalAcceptance, options: CoOptions, trips: RoundTrips, random: Random) -> None:
        self.acceptance, self.options, self.trips, self.random = acceptance, options, trips, random
        self.sl: dict[int, Sent] = {}  # SL, by number
        self.outstanding = 0  # data among them
        self.planned: set[int] = set()  # numbers that will be sent again
        self._at: Instant = 0  # and when
        self._bytes_max = self._payload_bytes_max = 0  # of the largest PDU that was sent
        self.marks = self.marks_type(options.ret_retry_ns)
        self._first_kept = 1  # the first number among them

    def enter(self, pdu: Sequenced, seq: int | None, now: Instant) -> None:
        """Keep a PDU that is sent for the first time."""
        self.sl[pdu.number] = sent = Sent(pdu, seq, now)
        self._bytes_max = max(self._bytes_max, sent.bytes)
        self._payload_bytes_max = max(self._payload_bytes_max, sent.payload_bytes)
        if seq is not None:  # nobody owes an answer to a confirmation
            self.trips.sent(pdu.number, now)
        self.outstanding += seq is not None

    def release(self) -> None:
        """Let go of the copies that nobody can ask for any more."""
        first, self._first_kept = self._first_kept, self.releasable()
        for number in range(first, self._first_kept):
            self.outstanding -= self.sl.pop(number).seq is not None
            self.planned.discard(number)
            self.marks.release(number)

    @rule("Section 4.2, SL")
    def releasable(self) -> int:
        """Give the first of one's own numbers that some member may lack; copies of those before it can go."""
        return self.acceptance.receipt.al.least[self.acceptance.rank]

    @rule("Section 4.3, retransmission action, mended")
    def retransmission_range(self, gaps: Gaps) -> Iterable[int]:
        """List one's own numbers that a RET asks for; the end of a gap has arrived or was never sent."""
        for first, end in gaps:
            yield from range(max(first, self.releasable()), min(end, self.acceptance.req[self.acceptance.rank]))

    @rule("docs/protocols/co.md, Large messages")
    def is_slow(self, sent: Sent) -> bool:
        """Say whether a copy may take long: it is large, or no message was ever answered soon.

        Then it goes to those alone who asked, once, and a mark behind it tells whether it was lost.
        """
        if sent.payload_bytes > CHEAP_BYTES:
            return True
        shortest_ns = self.trips.shortest_ns
        return shortest_ns > SLOW * self.options.ret_retry_ns if shortest_ns else self._payload_bytes_max > CHEAP_BYTES

    @rule("Section 4.3, retransmission action, mended; docs/protocols/co.md, Slow links and overrun receivers")
    def for_askers(self, sent: Sent) -> bool:
        """Say whether a copy goes to those alone who asked: it may take long, or few ask for it.

        In a large group whose datagrams overtake each other, most that seems to be missing is only late. And where
        receivers are overrun, most who are not known to have a PDU do have it: what they said of it was lost.
        """
        size = self.acceptance.size
        return self.is_slow(sent) or (size > FEW and len(sent.askers) * FEW < size)

    @rule("docs/protocols/co.md, Losses")
    def just_resent(self, sent: Sent, asker: int, now: Instant) -> bool:
        """Say whether a copy is on its way to the asker that it may not have had when it asked.

        On a slow link a copy takes its time. What a member was sent more than a few times in vain it is sent ever more
        rarely.
        """
        if asker not in sent.copied:
            return False
        copied_at, copies = sent.copied[asker]
        under_way_ns = self.copy_ns(sent, asker, copied_at)
        return now - copied_at < under_way_ns << min(max(0, copies - 2 * COPIES_AT_ONCE), DOUBLINGS_MAX)

    @rule("Section 4.3, retransmission action")
    def rebroadcast(self, numbers: Iterable[int], asker: int, now: Instant) -> None:
        """Plan to send one's own PDUs to all again, at a random moment.

        One RET may ask many members, whose copies would overrun the receivers together: the more often a PDU was sent
        again in vain, the wider they spread.
        """
        for number in numbers:
            if len(self.planned) == self.options.repairs_max:
                break
            sent = self.sl[number]
            if not (
                self.marks.wanted(asker, number, now) if self.is_slow(sent) else not self.just_resent(sent, asker, now)
            ):
                continue
            sent.askers.add(asker)
            if not self.planned:  # what is asked for until then goes with it
                self._at = now + self.random.randrange(self.spread_ns(sent, asker, now) + 1)
            self.planned.add(number)

    @rule("docs/protocols/co.md, Slow links and overrun receivers")
    def spread_ns(self, sent: Sent, asker: int, now: Instant) -> Duration:
        """Say within which time a PDU is sent again: a part of the round trip, doubled with each copy."""
        return (self.copy_ns(sent, asker, now) // 4) << min(max(0, sent.copies - COPIES_AT_ONCE), DOUBLINGS_MAX)

    def copy_ns(self, sent: Sent, asker: int, now: Instant) -> Duration:
        """Give the time in which a copy should have come: the best round trip, since losses held up the others.

        Round trips are those of messages. A copy that is smaller by far takes as much less on a slow link, and is not
        worth waiting for.
        """
        if self.is_slow(sent):
            return self.options.ret_retry_ns  # whether it comes the mark will tell
        shortest_ns = self.trips.shortest_of_ns(asker) or self.trips.shortest_ns
        shortest_ns = min(shortest_ns, self.trips.timeout_ns(asker, now))
        return max(shortest_ns * sent.bytes // max(sent.bytes, self._bytes_max), self.options.ret_retry_ns)

    @rule("Section 4.3, retransmission action; docs/protocols/co.md, Slow links and overrun receivers")
    def lacking(self, number: int) -> tuple[int, ...] | None:
        """Name those who are not known to have one of one's own PDUs; None: all others. The rest are spared a copy."""
        own, size = self.acceptance.rank, self.acceptance.size
        ranks = tuple(j for j, reached in enumerate(self.trips.reached) if j != own and reached < number)
        return ranks if len(ranks) < size - 1 else None

    @property
    def deadline(self) -> Instant | None:
        """When the next PDU is to be sent again."""
        return self._at if self.planned else None

    def wake(self, now: Instant, step: Step) -> None:
        """Send again what is due: confirmations to the same members, so that all fit into one datagram."""
        if not self.planned or self._at > now:
            return
        confirmations = [number for number in self.planned if self.sl[number].seq is None]
        lacking_one = self.lacking(max(confirmations)) if confirmations else None
        for number in sorted(self.planned):
            sent = self.sl[number]
            if self.for_askers(sent):
                to: tuple[int, ...] | None = tuple(j for j in sorted(sent.askers) if self.trips.reached[j] < number)
            else:
                to = lacking_one if sent.seq is None else self.lacking(number)
            if to is not None and self.is_slow(sent):
                for member in to:
                    self.marks.sent(member, number, now)
            sent.askers.clear()
            if to != ():
                sent.copies += 1
                for member in range(self.acceptance.size) if to is None else to:
                    sent.copied[member] = now, sent.copied.get(member, (0, 0))[1] + 1
                self.trips.repeated(number)
                step.down.append(Out(sent.pdu, to, self.acceptance.rank, sent.seq, repair=True))
        self.planned.clear()
