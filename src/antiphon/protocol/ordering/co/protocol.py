"""One CO entity: what comes is handed to the classes that hold the rules.

`acceptance` decides what is accepted, `levels` moves it to pre-acknowledgment and acknowledgment, `confirmations` says
so to the others; `losses` asks for what is missing, `sending_log` sends it again, `probes` break a silence, and `flow`
bounds what is outstanding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from antiphon.protocol.machine import Instant, Submit
from antiphon.protocol.ordering.co.acceptance import CausalAcceptance
from antiphon.protocol.ordering.co.confirmations import Confirmations
from antiphon.protocol.ordering.co.flow import FlowCondition
from antiphon.protocol.ordering.co.levels import AtomicReceipt, Levels
from antiphon.protocol.ordering.co.logs import Logged
from antiphon.protocol.ordering.co.losses import Losses
from antiphon.protocol.ordering.co.pdus import CoConfirm, CoData, CoOptions, CoPdu, CoProbe, CoRet, Sequenced
from antiphon.protocol.ordering.co.probes import Probes
from antiphon.protocol.ordering.co.sending_log import SendingLog
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import Duplicate, FlushHooks, Out, PartContext, Step
from antiphon.protocol.repairs import RepairMark
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Malformed, Pdu, Streamed, pack_vector, unpack_vector


class Co(FlushHooks):
    """The causally ordering broadcast protocol, on a network that loses, doubles and reorders."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (CoData, CoConfirm, CoRet, CoProbe, RepairMark)
    NEEDS_RECOVERY: ClassVar[bool] = False
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo", "causal", "stability")
    HAPPENED_BEFORE: ClassVar[str] = "receive"  # it orders by what was accepted, long before it is delivered
    DELIVERS_STABLE: ClassVar[bool] = True  # what is acknowledged is pre-acknowledged, so accepted, everywhere
    Options: ClassVar[type[msgspec.Struct]] = CoOptions

    receipt_type: ClassVar[type[AtomicReceipt]] = AtomicReceipt
    acceptance_type: ClassVar[type[CausalAcceptance]] = CausalAcceptance
    losses_type: ClassVar[type[Losses]] = Losses
    log_type: ClassVar[type[SendingLog]] = SendingLog
    flow_type: ClassVar[type[FlowCondition]] = FlowCondition
    confirmations_type: ClassVar[type[Confirmations]] = Confirmations
    probes_type: ClassVar[type[Probes]] = Probes

    def __init__(self, context: PartContext, options: CoOptions) -> None:
        options.check(context.size)
        self.rank, self.size, self.options = context.rank, context.size, options
        self.receipt = self.receipt_type(context.size)
        self.acceptance = self.acceptance_type(context, options, self.receipt)
        self.trips = RoundTrips(context.size, options.ret_retry_ns)
        self.losses = self.losses_type(context, options, self.trips)
        self.log = self.log_type(self.acceptance, options, self.trips, context.random)
        self.flow = self.flow_type(self.acceptance, self.log, options)
        self.confirmations = self.confirmations_type(context, options, self.trips)
        self.probes = self.probes_type(context, options, self.flow, self.trips)
        self._view_ends = False

    # What is read

    @property
    def deadline(self) -> Instant | None:
        """When to confirm, to ask for what is lost, or to break the silence."""
        if self._view_ends:
            return None
        first = self.confirmations.due_at
        for at in (self.losses.deadline, self.log.deadline, self.probes.deadline, *self.log.marks.due.values()):
            if at is not None and (first is None or at < first):
                first = at
        return first

    @property
    def held(self) -> int:
        """How many messages are kept: accepted and not yet delivered, or early."""
        return self.acceptance.held

    def levels(self) -> list[Levels]:
        """Give, per sender, the numbers of the last message accepted, pre-acknowledged and acknowledged here."""
        return self.receipt.levels()

    def lag(self) -> dict[int, int | None]:
        """Say how many of the PDUs that are accepted here each member is not known to have accepted."""
        req, rows = self.acceptance.req, self.receipt.al.rows
        lacking = {j: sum(max(0, req[k] - row[j]) for k, row in enumerate(rows) if k != j) for j in range(self.size)}
        return {j: count for j, count in lacking.items() if count and j != self.rank}

    def may_submit(self, priority: int) -> bool:
        """Say whether the flow condition holds; if not, a message is known to wait for it."""
        return self.flow.may_submit()

    # What is done

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Broadcast a data PDU."""
        assert seq == self.receipt.accepted[self.rank] + 1, "messages are numbered by counting them"
        step = Step()
        self._broadcast(message.payload, now, step)
        return self._planned(now, step)

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Refuse: nothing of this ordering comes through recovery."""
        raise Malformed("unexpected")

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a PDU from the network."""
        if isinstance(pdu, RepairMark):
            return self._marked(source, pdu, now)
        if not isinstance(pdu, CoPdu):
            raise Malformed("unexpected")
        ack = unpack_vector(pdu.ack, self.size)
        if ack[self.rank] > self.acceptance.req[self.rank]:
            raise Malformed("acknowledges-unsent")
        step = Step()
        if self._view_ends:
            return step
        self.trips.heard(source, ack[self.rank] - 1, now)
        match pdu:
            case CoData():
                self._sequenced(_logged(source, pdu, ack, pdu.payload), now, step)
            case CoConfirm():
                self._sequenced(_logged(source, pdu, ack, None), now, step)
            case CoRet():
                self._requested(source, pdu, ack, now)
            case CoProbe():
                # nothing is sent again: what its vector does not cover may be held early; who learns what it lacks asks
                self._heard_vector(source, ack, pdu.buf, now)
                if pdu.asking:
                    self.probes.asked(source, now)
        return self._planned(now, step)

    def wake(self, now: Instant) -> Step:
        """Confirm, ask for what is lost, break the silence, where it is time."""
        step, acceptance = Step(), self.acceptance
        if self._view_ends:
            return step
        if self.confirmations.due_at is not None and self.confirmations.due_at <= now:
            self._broadcast(None, now, step)
        due = self.losses.due(now, acceptance.req, acceptance.early, acceptance.places)
        asked = self.losses.ret_targets([source for source, _ in due])
        for asks in CoRet.parts(due):
            step.down.append(Out(CoRet(pack_vector(acceptance.req), acceptance.free, asks), asked))
        step.down += [Out(mark, (source,)) for source, _ in due for mark in self.log.marks.heard(source)]
        if self.probes.over(now):
            probe = CoProbe(pack_vector(acceptance.req), acceptance.free, asking=True)
            step.down.append(Out(probe, self.probes.probe_targets()))
        for source in self.probes.answers(now):
            step.down.append(Out(CoProbe(pack_vector(acceptance.req), acceptance.free, asking=False), (source,)))
        self.log.wake(now, step)
        step.down += [Out(mark, (member,)) for member, mark in self.log.marks.take_due(now)]
        return self._planned(now, step)

    def _planned(self, now: Instant, step: Step) -> Step:
        """Plan the next confirmation, at the end of every call."""
        self.confirmations.plan(now, owed=self.may_confirm(), spacing_ns=self.losses.spacing_ns)
        return step

    @rule("Section 4.2, flow condition, mended")
    def may_confirm(self) -> bool:
        """Say whether a confirmation is due and may be sent: the flow condition is for messages alone."""
        return self.confirmations.confirmation_owed()

    # Transmission and acceptance

    def _broadcast(self, payload: bytes | None, now: Instant, step: Step) -> None:
        """Do the transmission action: a data PDU or, without payload, a confirmation."""
        req, free = self.acceptance.req, self.acceptance.free
        number, packed = req[self.rank], pack_vector(req)
        pdu: Sequenced
        if payload is None:
            pdu, seq = CoConfirm(packed, free, number), None
            step.down.append(Out(pdu))
        else:
            pdu, seq = CoData(packed, max(0, free - 1), number, payload), self.receipt.accepted[self.rank] + 1
            step.down.append(Out(pdu, None, self.rank, seq))
        self.log.enter(pdu, seq, now)
        self.confirmations.sent()
        self._accept(Logged(self.rank, number, tuple(req), pdu.buf, payload), now, step)

    def _sequenced(self, p: Logged, now: Instant, step: Step) -> None:
        """Accept a sequenced PDU, hold it while it is early, or drop it as a copy or for want of a place."""
        if self.acceptance.is_copy(p):
            step.up.append(Duplicate(p.source))
            return
        self.losses.came(p.source, p.number, now)
        self.failure_condition(p.source, p.ack, now)
        self.losses.notice(p.source, p.number + 1, self.acceptance.req[p.source], False, now)
        if self.acceptance.admit(p):
            self._accept(p, now, step)
            if self.acceptance.early_count:
                self._accept_early(p.source, now, step)

    def _accept_early(self, source: int, now: Instant, step: Step) -> None:
        """Accept what waited for this source's advance, and what waited for that."""
        for p in self.acceptance.released(source):
            self._accept(p, now, step)

    def _accept(self, p: Logged, now: Instant, step: Step) -> None:
        """Do the acceptance action, then those of pre-acknowledgment and acknowledgment."""
        self.acceptance.accepted(p)
        self.losses.advanced(p.source, p.number + 1, now)
        self.receipt.enter(p, step)
        self.confirmations.accepted(p)
        self.probes.progress(now)
        self.flow.credit(p.source, p.ack, p.buf)
        risen = self.receipt.al.raise_column(p.source, p.ack)
        if risen:
            self.log.release()
            if self.receipt.pack_action(risen, step):
                self.confirmations.unconfirmed_by_all = True
            if not self._view_ends:
                self.receipt.ack_action(step)
                if not self.receipt.undelivered:
                    self.trips.rest(now)
                    self.probes.progress(now)

    # Failure detection and recovery

    @rule("Section 4.3, failure conditions")
    def failure_condition(self, source: int, ack: Sequence[int], now: Instant) -> None:
        """Notice what others have and this member has not; one's own next number says what was sent before it."""
        req = self.acceptance.req
        for k, end in enumerate(ack):
            if end > req[k]:
                self.losses.notice(k, end, req[k], k != source, now)

    def _requested(self, source: int, ret: CoRet, ack: Sequence[int], now: Instant) -> None:
        """Rebroadcast what a RET asks of this member; one that asks another for what we lack too does for our own."""
        if any(asked >= self.size or any(first >= end for first, end in gaps) for asked, gaps in ret.asks):
            raise Malformed("impossible-request")
        self._heard_vector(source, ack, ret.buf, now)
        self.trips.disturbed(source, now)
        for asked, gaps in ret.asks:
            if asked == self.rank:
                self.log.rebroadcast(self.log.retransmission_range(gaps), source, now)
            elif any(first <= self.acceptance.req[asked] < end for first, end in gaps):
                self.losses.postpone(asked, now)

    def _marked(self, source: int, mark: RepairMark, now: Instant) -> Step:
        """Ask for what is still missing when the mark behind its copies comes: they were lost."""
        step, acceptance = Step(), self.acceptance
        if not self.log.marks.take(source, mark) or self._view_ends:
            return step
        req, early = acceptance.req[source], acceptance.early[source]
        if gaps := self.losses.ask_again(source, req, early, acceptance.places, now):
            step.down += [Out(mark, (source,)) for mark in self.log.marks.heard(source)]
            step.down.append(Out(CoRet(pack_vector(acceptance.req), acceptance.free, [(source, gaps)]), (source,)))
        return step

    def _heard_vector(self, source: int, ack: Sequence[int], buf: int, now: Instant) -> None:
        """Learn what a member has and which places are left there, without a PDU of its sequence."""
        self.failure_condition(source, ack, now)
        if self.flow.credit(source, ack, buf) and self.flow.starved:
            self.probes.progress(now)

    # When the view ends: what is accepted is closed under precedence, and nobody lacks what is pre-acknowledged

    @rule("docs/protocols/co.md, When a view ends")
    def reach(self) -> list[int]:
        """Say up to which number this member has accepted each source's PDUs."""
        return [number - 1 for number in self.acceptance.req]

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, Pdu]]:
        """Give a source's PDUs above one number, up to another, that are accepted here and perhaps not everywhere."""
        return [(p.number, _pdu(p)) for p in self.receipt.rrl[source] if above < p.number <= upto]

    def block(self) -> None:
        """Accept and deliver nothing more before `finish`."""
        self._view_ends = True
        self.acceptance.forget_early()

    def adopt(self, source: int, pdu: Pdu) -> Step:
        """Take a PDU that had to be fetched, whether there is a place for it or not; it may still have to wait."""
        if not isinstance(pdu, CoData | CoConfirm):
            raise Malformed("unexpected")
        payload = pdu.payload if isinstance(pdu, CoData) else None
        p = _logged(source, pdu, unpack_vector(pdu.ack, self.size), payload)
        if p.number != self.acceptance.req[source] + len(self.acceptance.early[source]):
            raise Malformed("impossible-number")
        self.acceptance.put_early(p)
        step = Step()
        self._accept_early(source, self.probes.quiet_since, step)
        return step

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver what is accepted and not yet delivered, in the order of precedence; others may still need copies."""
        req = self.acceptance.req
        assert all(number > last for number, last in zip(req, reach, strict=True)), "everything was adopted"
        return self.receipt.finish()


def _pdu(p: Logged) -> Sequenced:
    """Write a logged PDU again as it came."""
    packed = pack_vector(p.ack)
    return CoConfirm(packed, p.buf, p.number) if p.payload is None else CoData(packed, p.buf, p.number, p.payload)


def _logged(source: int, pdu: Sequenced, ack: list[int], payload: bytes | None) -> Logged:
    if ack[source] != pdu.number:
        raise Malformed("misplaced-number")
    return Logged(source, pdu.number, ack, pdu.buf, payload)
