"""One CO entity: transmission, acceptance, pre-acknowledgment, acknowledgment, and repair of what was lost.

The rules are methods with the paper's names, so that each can be read, tested and replaced alone. Three levels: a PDU
is *accepted* when all that precedes it is here; *pre-acknowledged* when everyone is known to have accepted it;
*acknowledged*, and delivered, when everyone is known to have pre-acknowledged it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from antiphon.protocol.machine import Deliver, Instant, Stable, Submit, earliest
from antiphon.protocol.ordering.co.logs import Logged, insertion_place
from antiphon.protocol.ordering.co.losses import Losses
from antiphon.protocol.ordering.co.minima import Minima
from antiphon.protocol.ordering.co.pdus import CoConfirm, CoData, CoOptions, CoPdu, CoProbe, CoRet, Sequenced
from antiphon.protocol.parts import Duplicate, Ending, Out, PartContext, Received, Step
from antiphon.protocol.wire import Malformed, Pdu, Streamed, pack_vector, unpack_vector


class Levels(msgspec.Struct, frozen=True):
    """How far one sender's messages have come at a member, each level the number of the last message there."""

    accepted: int
    pre_acknowledged: int
    acknowledged: int


class _Sent(msgspec.Struct):
    """An entry of the sending log SL."""

    pdu: Sequenced
    seq: int | None  # the application message that it carries
    sent_at: Instant
    resent_at: Instant | None = None


class Co(Ending):
    """The causally ordering broadcast protocol, on a network that loses, doubles and reorders."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (CoData, CoConfirm, CoRet, CoProbe)
    NEEDS_RECOVERY: ClassVar[bool] = False
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo", "causal", "stability")
    HAPPENED_BEFORE: ClassVar[str] = "receive"  # it orders by what was accepted, long before it is delivered
    DELIVERS_STABLE: ClassVar[bool] = True  # what is acknowledged is pre-acknowledged, so accepted, everywhere
    Options: ClassVar[type[msgspec.Struct]] = CoOptions

    def __init__(self, context: PartContext, options: CoOptions) -> None:
        options.check(context.size)
        self.rank, self.size, self.options = context.rank, context.size, options
        self.places = options.places(context.size)  # B
        self.req = [1] * context.size  # REQ; one's own entry is SEQ, for one's own PDUs are accepted as they are sent
        self.al = Minima(context.size)  # AL: what each member is known to expect next from each source
        self.pal = Minima(context.size)  # PAL: the same, of pre-acknowledged PDUs only
        self.buf = [self.places] * context.size  # BUF; assuming 0 at first would never start
        self.rrl: list[deque[Logged]] = [deque() for _ in range(context.size)]  # RRL: accepted, by source
        self.prl: list[Logged] = []  # PRL: pre-acknowledged data, causality-preserved
        self.early: list[dict[int, Logged]] = [{} for _ in range(context.size)]  # by source and number
        self.losses = Losses(context, options)
        self._random, self._jittered = context.random, context.jittered
        # n windows under way at each of two levels cause two confirmations each at most, and as much again is to spare
        self._log_max = 8 * context.size * options.window + 8
        self.overruns = 0  # PDUs dropped for want of a place
        self._sl: dict[int, _Sent] = {}  # SL: one's own that some member may lack
        self._first_kept = 1  # the first number among them
        self._outstanding = 0  # data among them
        self._unacknowledged = 0  # accepted data that is not yet delivered
        self._early_count = 0
        self._blocked: dict[int, int] = {}  # source -> the source that its next PDU waits for
        self._accepted = [0] * context.size  # messages, by sender: the three levels
        self._pre_acknowledged = [0] * context.size
        self._acknowledged = [0] * context.size
        self._buf_as_of = [0] * context.size  # how much each had accepted when it said its BUF
        self._heard: set[int] = set()  # others of whom something was accepted since one's own last PDU
        self._unconfirmed = False  # data was accepted since then
        self._unconfirmed_by_all = False  # data was pre-acknowledged since then
        self._confirm_at: Instant | None = None
        self._starved = False  # a message waits for the flow condition
        self._view_ends = False
        self._quiet_since: Instant = 0
        self._silence_ns = options.probe_ns
        self._answers: dict[int, tuple[Instant, int]] = {}  # members that probed: when to answer, what they lack

    # What is read

    @property
    def deadline(self) -> Instant | None:
        """When to confirm, to ask for what is lost, or to break the silence."""
        if self._view_ends:
            return None
        probe = self._quiet_since + self._silence_ns if self.silence_matters() else None
        answer = min((due for due, _ in self._answers.values()), default=None)
        return earliest(self._confirm_at, self.losses.deadline, probe, answer)

    @property
    def held(self) -> int:
        """How many messages are kept: accepted and not yet delivered, or early."""
        return self._unacknowledged + self._early_count

    def levels(self) -> list[Levels]:
        """Give, per sender, the numbers of the last message accepted, pre-acknowledged and acknowledged here."""
        return [
            Levels(*numbers) for numbers in zip(self._accepted, self._pre_acknowledged, self._acknowledged, strict=True)
        ]

    def lag(self) -> dict[int, int | None]:
        """Say how many of the PDUs that are accepted here each member is not known to have accepted."""
        lacking = {
            j: sum(max(0, self.req[k] - row[j]) for k, row in enumerate(self.al.rows) if k != j)
            for j in range(self.size)
        }
        return {j: count for j, count in lacking.items() if count and j != self.rank}

    def may_submit(self, priority: int) -> bool:
        """Say whether the flow condition holds; if not, a message is known to wait for it."""
        self._starved = not self.flow_condition()
        return not self._starved

    # What is done

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Broadcast a data PDU."""
        assert seq == self._accepted[self.rank] + 1, "messages are numbered by counting them"
        step = Step()
        self._broadcast(message.payload, now, step)
        self._reckon_confirmation(now)
        return step

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Refuse: nothing of this ordering comes through recovery."""
        raise Malformed("unexpected")

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a PDU from the network."""
        if not isinstance(pdu, CoPdu):
            raise Malformed("unexpected")
        ack = unpack_vector(pdu.ack, self.size)
        if ack[self.rank] > self.req[self.rank]:
            raise Malformed("acknowledges-unsent")
        step = Step()
        if self._view_ends:
            return step
        match pdu:
            case CoData():
                self._receive(_logged(source, pdu, ack, pdu.payload), now, step)
            case CoConfirm():
                self._receive(_logged(source, pdu, ack, None), now, step)
            case CoRet():
                self._requested(source, pdu, ack, now, step)
            case CoProbe():
                self._probed(source, pdu, ack, now, step)
        self._reckon_confirmation(now)
        return step

    def wake(self, now: Instant) -> Step:
        """Confirm, ask for what is lost, break the silence, where it is time."""
        step = Step()
        if self._view_ends:
            return step
        if self._confirm_at is not None and self._confirm_at <= now:
            self._broadcast(None, now, step)
        for source, gaps in self.losses.due(now, self.req, self.early, self.places):
            step.down.append(Out(CoRet(pack_vector(self.req), self.free, source, gaps)))
        if self.silence_matters() and self._quiet_since + self._silence_ns <= now:
            step.down.append(Out(CoProbe(pack_vector(self.req), self.free, asking=True)))
            self._quiet_since = now
            self._silence_ns = min(self._jittered(2 * self._silence_ns), self.options.probe_ns_max)
        for source in [source for source, (due, _) in self._answers.items() if due <= now]:
            self._answer(source, now, step)
        self._reckon_confirmation(now)
        return step

    # The rules, by the paper's names; each is right by itself, so that a test can put another in its place

    def flow_condition(self) -> bool:
        """Say whether one more message may be outstanding; confirmations are not subject to this."""
        self.buf[self.rank] = self.free
        return self._outstanding < min(self.options.window, min(self.buf) // (self.options.headroom * self.size))

    def acceptance_condition(self, p: Logged, start: int = 0) -> int | None:
        """Find a source of which p's sender had accepted more than this member has: p, the next one, waits for it.

        The sources before `start` are known to be none. The paper accepts the next PDU of a source whatever it lacks,
        but then precedence, as sequence numbers show it, is not transitive.
        """
        req, ack = self.req, p.ack
        return next((k for k in range(start, self.size) if ack[k] > req[k]), None)

    def failure_condition(self, ack: Sequence[int], now: Instant) -> None:
        """Notice what others have and this member has not; one's own next number says what was sent before it."""
        for k, end in enumerate(ack):
            if end > self.req[k]:
                self.losses.notice(k, end, self.req[k], now)

    def pack_condition(self, p: Logged) -> bool:
        """Say whether everyone is known to have accepted p."""
        return p.number < self.al.least[p.source]

    def pack_action(self, sources: Iterable[int], step: Step) -> None:
        """Move what is pre-acknowledged from these sources' logs to PRL, and take over what it confirms."""
        start = len(self.prl)  # what was pre-acknowledged earlier succeeds nothing of this
        for source in sources:
            log, before = self.rrl[source], self._pre_acknowledged[source]
            while log and self.pack_condition(log[0]):
                p = log.popleft()
                self.pal.raise_column(source, p.ack)
                if p.payload is not None:
                    self._pre_acknowledged[source] = p.seq
                    self.prl.insert(self.insertion_place(p, start), p)
            if self._pre_acknowledged[source] > before:
                self._unconfirmed_by_all = True
                step.up.append(Stable(source, self._pre_acknowledged[source]))

    def insertion_place(self, p: Logged, start: int) -> int:
        """Find p's place in PRL (the CPI operation)."""
        return insertion_place(self.prl, p, start)

    def ack_condition(self, p: Logged) -> bool:
        """Say whether everyone is known to have pre-acknowledged p."""
        return p.number < self.pal.least[p.source]

    def ack_action(self, step: Step) -> None:
        """Deliver from the top of PRL what is acknowledged."""
        count = 0
        for p in self.prl:
            if not self.ack_condition(p):
                break
            count += 1
            assert p.payload is not None, "only data enters PRL"
            self._acknowledged[p.source] = p.seq
            step.up.append(Deliver(p.source, p.seq, p.payload))
        del self.prl[:count]
        self._unacknowledged -= count

    def confirmation_owed(self) -> bool:
        """Say whether others wait for a confirmation of this member, which they do twice for each message.

        First when it is accepted (if it is one's own: when there is news of others besides), then when it is
        pre-acknowledged: all first confirmations are here then, and one PDU confirms them all. So a message causes at
        most 2n confirmations, and then there is silence.
        """
        news = bool(self._heard) or self.size == 1
        return (self._unconfirmed and news) or self._unconfirmed_by_all

    def silence_matters(self) -> bool:
        """Say whether something is waited for of which no sequence number tells."""
        return self._unacknowledged > 0 or self._starved

    def retransmission_range(self, ret: CoRet) -> Iterable[int]:
        """List one's own numbers that a RET asks for; the end of a gap has arrived or was never sent."""
        for first, end in ret.gaps:
            yield from range(max(first, self.releasable()), min(end, self.req[self.rank]))

    def releasable(self) -> int:
        """Give the first of one's own numbers that some member may lack; copies of those before it can go."""
        return self.al.least[self.rank]

    def just_resent(self, resent_at: Instant | None, now: Instant) -> bool:
        """Say whether a copy is on its way to all; others that miss the same PDU ask for it at about the same time."""
        return resent_at is not None and now - resent_at < self.options.ret_retry_ns // 2

    # How they hang together

    @property
    def free(self) -> int:
        """Buffer places left, read live."""
        return max(0, self.places - self.held)

    def _broadcast(self, payload: bytes | None, now: Instant, step: Step) -> None:
        """Do the transmission action: a data PDU or, without payload, a confirmation."""
        number, packed = self.req[self.rank], pack_vector(self.req)
        pdu: Sequenced
        if payload is None:
            pdu, seq = CoConfirm(packed, self.free, number), None
            step.down.append(Out(pdu))
        else:
            pdu, seq = CoData(packed, max(0, self.free - 1), number, payload), self._accepted[self.rank] + 1
            step.down.append(Out(pdu, None, self.rank, seq))
            self._outstanding += 1
        self._sl[number] = _Sent(pdu, seq, now)
        self._heard.clear()
        self._unconfirmed = self._unconfirmed_by_all = False
        self._confirm_at = None
        self._accept(Logged(self.rank, number, tuple(self.req), pdu.buf, payload), now, step)

    def _receive(self, p: Logged, now: Instant, step: Step) -> None:
        """Accept a sequenced PDU, hold it while it is early, or drop it as a copy or for want of a place."""
        source, number = p.source, p.number
        if number < self.req[source] or number in self.early[source]:
            step.up.append(Duplicate(source))
            return
        self.failure_condition(p.ack, now)
        self.losses.notice(source, number + 1, self.req[source], now)
        lacking = self.acceptance_condition(p) if number == self.req[source] else None
        if number > self.req[source] or lacking is not None:
            if lacking is not None:
                self._blocked[source] = lacking
            self._hold(p)
        elif len(self.rrl[source]) >= self._log_max or (p.payload is not None and self._unacknowledged >= self.places):
            self.overruns += 1  # no sender that keeps the rules causes this
        else:
            if p.payload is not None and self.free == 0:
                self._evict()
            self._accept(p, now, step)
            self._accept_early(source, now, step)

    def _hold(self, p: Logged) -> None:
        """Keep an early PDU if there is a place; one that is dropped will be asked for again."""
        if self.free == 0 or p.number >= self.req[p.source] + self.places:
            self.overruns += 1
        else:
            self.early[p.source][p.number] = p
            self._early_count += 1

    def _evict(self) -> None:
        """Make a place for a PDU that can be accepted at the cost of the one that will wait the longest."""
        crowded = max(self.early, key=len)
        del crowded[max(crowded)]
        self._early_count -= 1
        self.overruns += 1

    def _accept_early(self, source: int, now: Instant, step: Step) -> None:
        """Accept what waited for this source's advance, and what waited for that."""
        candidates = self._may_follow(source)
        while candidates:
            source = candidates.pop()
            p = self.early[source].get(self.req[source])
            if p is None:
                continue
            lacking = self.acceptance_condition(p, self._blocked.get(source, 0))
            if lacking is not None:
                self._blocked[source] = lacking
                continue
            del self.early[source][p.number]
            self._early_count -= 1
            self._accept(p, now, step)
            candidates += self._may_follow(source)

    def _may_follow(self, source: int) -> list[int]:
        """List the sources whose next PDU may be acceptable now that one from `source` was accepted."""
        return [source, *(waiting for waiting, on in self._blocked.items() if on == source)]

    def _accept(self, p: Logged, now: Instant, step: Step) -> None:
        """Do the acceptance action, then those of pre-acknowledgment and acknowledgment."""
        source = p.source
        self.req[source] = p.number + 1
        self._blocked.pop(source, None)
        self.losses.advanced(source, p.number + 1, now)
        self.rrl[source].append(p)
        if source != self.rank:
            self._heard.add(source)
        if p.payload is not None:
            self._unconfirmed = True
            p.seq = self._accepted[source] = self._accepted[source] + 1
            self._unacknowledged += 1
            step.up.append(Received(source, p.seq))
        self._progress(now)
        self._credit(source, p.ack, p.buf, now)
        risen = self.al.raise_column(source, p.ack)
        if risen:
            self._release()
            self.pack_action(risen, step)
            if not self._view_ends:
                self.ack_action(step)

    def _release(self) -> None:
        """Let go of the copies that nobody can ask for any more."""
        first, self._first_kept = self._first_kept, self.releasable()
        for number in range(first, self._first_kept):
            self._outstanding -= self._sl.pop(number).seq is not None

    def _credit(self, source: int, ack: Sequence[int], buf: int, now: Instant) -> None:
        """Take over a member's BUF unless something it said later was heard before."""
        as_of = sum(ack)
        if as_of >= self._buf_as_of[source]:
            self._buf_as_of[source] = as_of
            if buf > self.buf[source]:
                self._progress(now)
            self.buf[source] = buf

    def _progress(self, now: Instant) -> None:
        self._quiet_since = now
        self._silence_ns = self.options.probe_ns

    def _reckon_confirmation(self, now: Instant) -> None:
        """Set the time of the next confirmation: deferred, but not once something came from every other member."""
        if not self.confirmation_owed():
            self._confirm_at = None
        elif len(self._heard) == self.size - 1:
            self._confirm_at = now if self._confirm_at is None else min(self._confirm_at, now)
        elif self._confirm_at is None:
            self._confirm_at = now + self.options.defer_ns

    # When the view ends: what is accepted is closed under precedence, and nobody lacks what is pre-acknowledged

    def reach(self) -> list[int]:
        """Say up to which number this member has accepted each source's PDUs."""
        return [number - 1 for number in self.req]

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, Pdu]]:
        """Give a source's PDUs above one number, up to another, that are accepted here and perhaps not everywhere."""
        return [(p.number, _pdu(p)) for p in self.rrl[source] if above < p.number <= upto]

    def block(self) -> None:
        """Accept and deliver nothing more before `finish`; early PDUs are no part of what was said to be held."""
        self._view_ends = True
        for held in self.early:
            held.clear()
        self._early_count = 0
        self._blocked.clear()

    def adopt(self, source: int, pdu: Pdu) -> Step:
        """Take a PDU that had to be fetched, whether there is a place for it or not; it may still have to wait."""
        if not isinstance(pdu, CoData | CoConfirm):
            raise Malformed("unexpected")
        payload = pdu.payload if isinstance(pdu, CoData) else None
        p = _logged(source, pdu, unpack_vector(pdu.ack, self.size), payload)
        if p.number != self.req[source] + len(self.early[source]):
            raise Malformed("impossible-number")
        self.early[source][p.number] = p
        self._early_count += 1
        step = Step()
        self._accept_early(source, self._quiet_since, step)
        return step

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver what is accepted and not yet delivered, in the order of precedence; others may still need copies."""
        assert all(number > last for number, last in zip(self.req, reach, strict=True)), "everything was adopted"
        start = len(self.prl)
        for log in self.rrl:
            for p in log:
                if p.payload is not None:
                    self.prl.insert(self.insertion_place(p, start), p)
        rest, self.prl = self.prl, []
        self._unacknowledged = 0
        return Step([Deliver(p.source, p.seq, p.payload or b"") for p in rest])

    # Repair

    def _requested(self, source: int, ret: CoRet, ack: Sequence[int], now: Instant, step: Step) -> None:
        """Rebroadcast what a RET asks of this member; let one that asks another for the same thing do for one's own."""
        if ret.source >= self.size or any(first >= end for first, end in ret.gaps):
            raise Malformed("impossible-request")
        self.failure_condition(ack, now)
        self._credit(source, ack, ret.buf, now)
        if ret.source == self.rank:
            self._rebroadcast(self.retransmission_range(ret), now, step)
        elif any(first <= self.req[ret.source] < end for first, end in ret.gaps):
            self.losses.postpone(ret.source, now)

    def _probed(self, source: int, probe: CoProbe, ack: Sequence[int], now: Instant, step: Step) -> None:
        """Learn from another's vector what each of the two lacks; answer soon, but not all at the same instant."""
        self.failure_condition(ack, now)
        self._credit(source, ack, probe.buf, now)
        if not probe.asking:
            self._send_again_from(ack[self.rank], now, step)
        elif source not in self._answers:
            self._answers[source] = (now + self._random.randrange(self.options.defer_ns + 1), ack[self.rank])

    def _answer(self, source: int, now: Instant, step: Step) -> None:
        """Give a prober what it lacks, and one's own vector with a fresh BUF."""
        _, lacking = self._answers.pop(source)
        self._send_again_from(lacking, now, step)
        step.down.append(Out(CoProbe(pack_vector(self.req), self.free, asking=False), (source,)))

    def _send_again_from(self, first: int, now: Instant, step: Step) -> None:
        """Send one's own PDUs from a number on again, except what may still be under way for the first time."""
        numbers = range(max(first, self.releasable()), self.req[self.rank])
        under_way = now - self.options.ret_retry_ns
        self._rebroadcast((number for number in numbers if self._sl[number].sent_at <= under_way), now, step)

    def _rebroadcast(self, numbers: Iterable[int], now: Instant, step: Step) -> None:
        """Send one's own PDUs to all again."""
        count = 0
        for number in numbers:
            sent = self._sl[number]
            if self.just_resent(sent.resent_at, now):
                continue
            if count == self.options.repairs_max:
                break
            count += 1
            sent.resent_at = now
            step.down.append(Out(sent.pdu, None, self.rank, sent.seq, repair=True))


def _pdu(p: Logged) -> Sequenced:
    """Write a logged PDU again as it came."""
    packed = pack_vector(p.ack)
    return CoConfirm(packed, p.buf, p.number) if p.payload is None else CoData(packed, p.buf, p.number, p.payload)


def _logged(source: int, pdu: Sequenced, ack: list[int], payload: bytes | None) -> Logged:
    if ack[source] != pdu.number:
        raise Malformed("misplaced-number")
    return Logged(source, pdu.number, ack, pdu.buf, payload)
