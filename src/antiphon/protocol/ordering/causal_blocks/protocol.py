"""Causal blocks as a member runs them: what comes is handed to the classes that hold the rules.

Every message carries its block number (a logical clock) and the block numbers of the last messages that its sender had
delivered; it is delivered after those (`delivery`). As these stamps also say what everyone has delivered (`knowledge`),
any member that keeps a message can see who lacks it and send it again (`repair`), and all let it go when everyone has
delivered it. Messages without data, nulls, break a silence for as long as something is unstable (`silence`). The
channel may lose, double and reorder at will. `docs/protocols/causal-blocks.md` says where we depart from the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from antiphon.protocol.machine import Deliver, Drop, Instant, Submit
from antiphon.protocol.ordering.causal_blocks.buffer import WaitingBuffer
from antiphon.protocol.ordering.causal_blocks.delivery import Delivery
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge, Stamps
from antiphon.protocol.ordering.causal_blocks.lifetimes import Lifetimes
from antiphon.protocol.ordering.causal_blocks.matrix import Entry
from antiphon.protocol.ordering.causal_blocks.messages import (
    BLOCK_MAX,
    PRIORITY_MAX,
    BlockMessage,
    CausalBlocksOptions,
    NullBlock,
)
from antiphon.protocol.ordering.causal_blocks.repair import Repair
from antiphon.protocol.ordering.causal_blocks.silence import Silence
from antiphon.protocol.parts import Duplicate, FlushHooks, Out, PartContext, Received, Step
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Malformed, Pdu, Streamed, pack_vector, unpack_vector


class CausalBlocks(FlushHooks):
    """Causal order on a lossy network, with recovery, stability and flow control of its own."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (BlockMessage, NullBlock)
    NEEDS_RECOVERY: ClassVar[bool] = False
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo", "causal", "stability")
    Options: ClassVar[type[msgspec.Struct]] = CausalBlocksOptions

    knowledge_type: ClassVar[type[Knowledge]] = Knowledge
    buffer_type: ClassVar[type[WaitingBuffer]] = WaitingBuffer
    delivery_type: ClassVar[type[Delivery]] = Delivery
    repair_type: ClassVar[type[Repair]] = Repair
    silence_type: ClassVar[type[Silence]] = Silence
    lifetimes_type: ClassVar[type[Lifetimes]] = Lifetimes

    def __init__(self, context: PartContext, options: CausalBlocksOptions) -> None:
        options.check(context.size)
        self.options = options
        self.known = self.knowledge_type(context.rank, context.size, options)
        self.delivery = self.delivery_type(self.known, self.buffer_type(options))
        self.repair = self.repair_type(self.known, options, context)
        self.silence = self.silence_type(self.known, self.delivery, options, context)
        self.lifetimes = self.lifetimes_type(self.known, self.delivery, options)
        self.overruns = 0  # messages of senders that did not keep to their window

    # What the member reads

    @property
    def deadline(self) -> Instant | None:
        """When a silence is to be broken, a message sent again or a gap skipped."""
        first = self.silence.deadline
        for at in (self.repair.deadline, self.lifetimes.deadline):
            if at is not None and (first is None or at < first):
                first = at
        return first

    @property
    def held(self) -> int:
        """How many messages are kept until everyone has delivered them."""
        return self.known.held

    @rule("docs/protocols/causal-blocks.md, Stability")
    def may_submit(self, priority: int) -> bool:
        """Keep to the window of own messages that someone may still lack, and to the numbers that the wire has.

        Those that have expired take slots of their own, if there are any, so that a slow member holds nobody back.
        """
        known = self.known
        unstable = known.passed_seq[known.rank] - known.stable_seq[known.rank]
        alive = unstable - known.lapsed[known.rank]
        return alive < self.options.window and unstable < known.unstable_max and known.BC < BLOCK_MAX

    def lag(self) -> dict[int, int | None]:
        """Say how many of the messages that are kept here each member is not known to have delivered."""
        return self.known.lag()

    # What happens

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Stamp a message, multicast it and deliver it here."""
        known = self.known
        ldv = known.own_ldv()
        block, mb = known.next_block(now)
        limits = [life for life in (message.lifetime_ns, self.options.skip_after_ns or None) if life is not None]
        life = max(0, min(limits)) if limits else None
        priority = max(-PRIORITY_MAX, min(PRIORITY_MAX, message.priority))
        stable = known.stable_seq[known.rank]
        pdu = BlockMessage(known.rank, seq, block, mb, pack_vector(ldv), stable, priority, life, message.payload)
        step = Step([Received(known.rank, seq)], [Out(pdu, None, known.rank, seq)])
        self.delivery.consider(known.enter(pdu, ldv, now), now, step)
        self.silence.sent_message(now)
        return self._settle(now, step)

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Refuse: this ordering has no reliable streams."""
        raise Malformed("unexpected")

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a message, whoever sent it on, or a null."""
        step = Step([], [])
        if type(pdu) is BlockMessage:
            self._receive_message(pdu, now, step)
        elif type(pdu) is NullBlock:
            self.receive_null(source, pdu, now, step)
        else:
            raise Malformed("unexpected")
        return self._settle(now, step)

    def wake(self, now: Instant) -> Step:
        """Send again what others miss, and break the silence, where it is time."""
        step = Step([], [])
        if self.repair.wake(now, step):
            self.silence.shorten()
        self.silence.wake(now, step)
        return self._settle(now, step)

    def _settle(self, now: Instant, step: Step) -> Step:
        """See what the new state asks for, at the end of every call."""
        self.lifetimes.settle(now, step)
        self.silence.settle(now, step)
        self.repair.plan(now)
        return step

    # Receiving

    def _receive_message(self, pdu: BlockMessage, now: Instant, step: Step) -> None:
        known, k = self.known, pdu.sender
        if k >= known.size:
            raise Malformed("impossible-sender")
        if pdu.seq <= pdu.stable:
            raise Malformed("impossible-window")
        ldv = known.checked(k, pdu.block, pdu.mb, pdu.ldv, pdu.seq, pdu.stable)
        if k != known.rank:
            stamps = Stamps(k, pdu.block, pdu.mb, ldv, pdu.seq - 1, pdu.stable)
            if known.hear(stamps, now, step) == "progress":
                self.silence.shorten()
            if known.is_new(k, pdu.block):
                self._receive_new(pdu, ldv, now, step)
                return
        entry = known.BM[k].get(pdu.block)
        if entry is not None:
            self.repair.saw_copy(entry, now)
            if not entry.whole and entry.discard is None and not entry.passed:
                self._refill(entry, pdu, now, step)
                return
        step.up.append(Duplicate(k, pdu.seq))

    def _receive_new(self, pdu: BlockMessage, ldv: list[int], now: Instant, step: Step) -> None:
        known, k = self.known, pdu.sender
        if len(known.BM[k].blocks) >= known.unstable_max:
            self.overruns += 1
            return
        entry = known.enter(pdu, ldv, now)
        self.silence.shorten()
        step.up.append(Received(k, pdu.seq))
        if pdu.life_ns == 0:
            entry.whole, entry.discard = False, "expired"
        self.delivery.place(entry, now, step)
        if not entry.passed:
            self.lifetimes.missing(k, ldv[k], pdu.seq - 1, ldv, now)

    def _refill(self, entry: Entry, pdu: BlockMessage, now: Instant, step: Step) -> None:
        """Take the payload of a message that was shed."""
        if pdu.life_ns == 0:
            entry.discard = "expired"
        else:
            entry.message, entry.whole = pdu, True
        self.delivery.place(entry, now, step)

    @rule("Section III, time-silence, mended; docs/protocols/causal-blocks.md, Silence")
    def receive_null(self, source: int, pdu: NullBlock, now: Instant, step: Step) -> None:
        """Learn from a null, which is no part of causal history: nothing waits for it; answer if it asks."""
        if source == self.known.rank:
            raise Malformed("impossible-sender")
        ldv = self.known.checked(source, pdu.block, pdu.mb, pdu.ldv, pdu.seq, pdu.stable)
        news = self.known.hear(Stamps(source, pdu.block, pdu.mb, ldv, pdu.seq, pdu.stable), now, step)
        if news == "old":
            return
        if news == "progress":
            self.silence.shorten()
        self.repair.hear_null(source, pdu)
        self.lifetimes.missing(source, ldv[source], pdu.seq, ldv, now)
        if pdu.asking:
            self.silence.ask(source, now)

    # When the view ends: see `RetransmissionBuffer` and `FlushHooks`

    @rule("docs/protocols/causal-blocks.md, When a view ends")
    def reach(self) -> list[int]:
        """Say up to which block each sender's messages are delivered here: with all that came before them."""
        return list(self.known.LDV)

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, Pdu]]:
        """Give a sender's messages by their blocks; of what was discarded only the stamps are left."""
        return [
            (entry.message.block, entry.message if entry.whole else replace(entry.message, life_ns=0, payload=b""))
            for entry in self.known.BM[source].between(above, upto + 1)
        ]

    def adopt(self, source: int, pdu: Pdu) -> Step:
        """Take a message that another member has delivered."""
        if not isinstance(pdu, BlockMessage) or pdu.sender != source:
            raise Malformed("unexpected")
        step, entry = Step([], []), self.known.BM[source].get(pdu.block)
        if entry is None:
            entry = self.known.enter(pdu, unpack_vector(pdu.ldv, self.known.size), 0)
            step.up.append(Received(source, pdu.seq))
        elif not entry.whole and entry.discard is None:
            entry.message, entry.whole = pdu, True
        if pdu.life_ns == 0:
            entry.whole, entry.discard = False, entry.discard or "expired"
        return step

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver what someone has delivered, in the order of blocks, which respects causality."""
        rest = [
            entry
            for k, column in enumerate(self.known.BM)
            for entry in column.between(self.known.LDV[k], reach[k] + 1)
            if not entry.passed
        ]
        step = Step([], [])
        for entry in sorted(rest, key=lambda entry: (entry.message.block, entry.message.sender)):
            message, entry.passed = entry.message, True
            if entry.discard is None:
                step.up.append(Deliver(message.sender, message.seq, message.payload))
            else:
                step.up.append(Drop(entry.discard, message.sender, message.seq))
        return step
