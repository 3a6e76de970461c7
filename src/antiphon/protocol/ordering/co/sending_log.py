"""SL, the sending log: one's own PDUs that some member may lack, and which of them are sent again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.co.acceptance import CausalAcceptance
from antiphon.protocol.ordering.co.pdus import CoOptions, CoRet, Sequenced
from antiphon.protocol.parts import Out, Step
from antiphon.protocol.rules import rule


class Sent(msgspec.Struct):
    """An entry of the sending log."""

    pdu: Sequenced
    seq: int | None  # the application message that it carries
    sent_at: Instant
    resent_at: Instant | None = None


class SendingLog:
    """Keeps one's own PDUs until everyone is known to have accepted them, and sends them again on request."""

    def __init__(self, acceptance: CausalAcceptance, options: CoOptions) -> None:
        self.acceptance, self.options = acceptance, options
        self.sl: dict[int, Sent] = {}  # SL, by number
        self.outstanding = 0  # data among them
        self._first_kept = 1  # the first number among them

    def enter(self, pdu: Sequenced, seq: int | None, now: Instant) -> None:
        """Keep a PDU that is sent for the first time."""
        self.sl[pdu.number] = Sent(pdu, seq, now)
        self.outstanding += seq is not None

    def release(self) -> None:
        """Let go of the copies that nobody can ask for any more."""
        first, self._first_kept = self._first_kept, self.releasable()
        for number in range(first, self._first_kept):
            self.outstanding -= self.sl.pop(number).seq is not None

    @rule("Section 4.2, SL")
    def releasable(self) -> int:
        """Give the first of one's own numbers that some member may lack; copies of those before it can go."""
        return self.acceptance.receipt.al.least[self.acceptance.rank]

    @rule("Section 4.3, retransmission action, mended")
    def retransmission_range(self, ret: CoRet) -> Iterable[int]:
        """List one's own numbers that a RET asks for; the end of a gap has arrived or was never sent."""
        for first, end in ret.gaps:
            yield from range(max(first, self.releasable()), min(end, self.acceptance.req[self.acceptance.rank]))

    @rule("docs/protocols/co.md, Losses")
    def just_resent(self, resent_at: Instant | None, now: Instant) -> bool:
        """Say whether a copy is on its way to all; others that miss the same PDU ask for it at about the same time."""
        return resent_at is not None and now - resent_at < self.options.ret_retry_ns // 2

    @rule("Section 4.3, retransmission action")
    def rebroadcast(self, numbers: Iterable[int], now: Instant, step: Step) -> None:
        """Send one's own PDUs to all again."""
        count = 0
        for number in numbers:
            sent = self.sl[number]
            if self.just_resent(sent.resent_at, now):
                continue
            if count == self.options.repairs_max:
                break
            count += 1
            sent.resent_at = now
            step.down.append(Out(sent.pdu, None, self.acceptance.rank, sent.seq, repair=True))

    def send_again_from(self, first: int, now: Instant, step: Step) -> None:
        """Send one's own PDUs from a number on again, except what may still be under way for the first time."""
        numbers = range(max(first, self.releasable()), self.acceptance.req[self.acceptance.rank])
        under_way = now - self.options.ret_retry_ns
        self.rebroadcast((number for number in numbers if self.sl[number].sent_at <= under_way), now, step)
