"""A member of a group in one view: the whole data path on one page, from the view's first message to its end.

    Submit -> ordering -> recovery -> frames          frames -> recovery -> ordering -> delivery
                             stability <- what is held; what all hold -> recovery lets go, delivery tells it

This file alone drives parts: a part returns its `Step`, and each item is carried to its neighbour here. Orderings that
repair losses themselves (causal blocks, CO) stand directly on the frames.

When the view ends, the member is blocked: what it holds was told to others and must not change. Then it adopts what it
lacks of what all have agreed to deliver, and delivers the rest in order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeAlias, assert_never, cast

import msgspec

from antiphon.errors import LocalProtocolError
from antiphon.protocol.flow import FlowControl, Submissions
from antiphon.protocol.machine import (
    Deliver,
    Drop,
    Effect,
    Input,
    Instant,
    Leave,
    Receive,
    ReceiveMany,
    Stable,
    Submit,
    Wake,
    earliest,
)
from antiphon.protocol.options import GroupOptions, counts_positions, ordering_type, stability_type
from antiphon.protocol.pace import Pace
from antiphon.protocol.parts import (
    Accepted,
    Decided,
    Duplicate,
    Frontier,
    Gate,
    Out,
    PartContext,
    Received,
    Reliable,
    RetransmissionBuffer,
    Shaped,
    Stability,
    Step,
    capabilities,
)
from antiphon.protocol.recovery import Heartbeat, Recovery
from antiphon.protocol.rules import rule
from antiphon.protocol.view.delivery import StreamDelivery
from antiphon.protocol.view.frames import Frames
from antiphon.protocol.view.output import Output, View
from antiphon.protocol.wire import Data, Malformed, Pdu, Streamed

__all__ = ["Member", "View"]

_Handler: TypeAlias = Callable[[int, Pdu, Instant], Step]


class Member:
    """One member of a group in one view: a `Machine`."""

    recovery_type: ClassVar[type[Recovery]] = Recovery
    delivery_type: ClassVar[type[StreamDelivery]] = StreamDelivery

    def __init__(
        self,
        me: int,
        view: View,
        config: GroupOptions,
        randomness: random.Random,
        *,
        traced: bool = False,
        counts: Counter[str] | None = None,
    ) -> None:
        """Begin; `counts` go on from an earlier view, if they are given."""
        size, rank = len(view.members), view.members.index(me)
        config.check(size, founding=view.number == 0)
        self.view, self.config = view, config
        self.left = self.blocked = False
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.output = Output(view, rank, traced=traced)
        context = PartContext(rank, size, randomness, window=config.window, pace=Pace(size))
        ordering = ordering_type(config.ordering)
        self.ordering = ordering(context, config.ordering_settings())
        self.recovery: Recovery | None = None
        self.stability: Stability | None = None
        self._delivery: StreamDelivery | None = None
        self.handlers: dict[type[Pdu], _Handler] = dict.fromkeys(ordering.PDUS, self.ordering.receive)
        if ordering.NEEDS_RECOVERY:
            stability = stability_type(config.stability)
            options = config.stability_settings()
            options = options.fit(size) if isinstance(options, Shaped) else options
            positions, gated = counts_positions(options), isinstance(self.ordering, Gate)
            self.stability = stability(msgspec.structs.replace(context, streams=int(positions)), options)
            self.recovery = self.recovery_type(context, config.window, config.recovery, gated=gated)
            self._delivery = self.delivery_type(self.output, size, safe=config.safe, positions=positions)
            self.handlers |= dict.fromkeys(self.recovery.PDUS, self.recovery.receive)
            kinds: tuple[type[Pdu], ...] = (Data, *ordering.PDUS)
            streamed = (kind for kind in kinds if issubclass(kind, Streamed))
            self.handlers |= dict.fromkeys(streamed, cast(_Handler, self.recovery.take_streamed))
            self.handlers |= dict.fromkeys(stability.PDUS, self.stability.receive)
        self._optional = capabilities(self.ordering, self.stability)
        self._frames = Frames(self.output, self.handlers, config.group, view, self.counts)
        flow = FlowControl(size, config.window, config.buffer_size(size))
        self.submissions = Submissions(flow, config, context.jittered, context.pace)

    # What a driver reads

    @property
    def deadline(self) -> Instant | None:
        """When this member wants to be woken."""
        if self.left:
            return None
        first, submissions = self.ordering.deadline, self.submissions
        if submissions.pace.next_at is not None and (self._frames.outbox or submissions.waiting):
            first = earliest(first, submissions.pace.next_at)
        if self.recovery is None or self.stability is None:
            return first
        for at in (self.recovery.deadline, self.stability.deadline):
            if at is not None and (first is None or at < first):
                first = at
        return first if submissions.starved.at is None else earliest(first, submissions.starved.at)

    @property
    def room(self) -> int:
        """How many more submissions may wait here; while words gather just one, for live they still grow elsewhere."""
        return 0 if self.left or self.submissions.gather else self.submissions.room

    @property
    def held(self) -> int:
        """How many messages this member keeps in its buffers."""
        if self.recovery is None or self._delivery is None:
            return self.ordering.held
        return self.ordering.held + self.recovery.held + len(self._delivery.unsafe)

    @property
    def drained(self) -> bool:
        """Whether nothing waits and nothing is kept."""
        return not self.submissions.waiting and self.held == 0

    @property
    def stuck(self) -> bool:
        """Whether something waits to be sent and may not be."""
        submissions = self.submissions
        if not submissions.waiting:
            return False
        if not self.ordering.may_submit(submissions.waiting[0].priority):
            return True
        # what all hold may still wait for its place in the order: another window of that, and no more
        outstanding = max(submissions.sent - self.output.own_stable, len(self.output.unsettled) - self.config.window)
        return self.recovery is not None and not submissions.flow.open(outstanding)

    def lag(self) -> dict[int, int | None]:
        """Say who holds stability back, as far as is known here: how much each lacks; None: not heard from."""
        watcher = self._optional.watcher
        return {} if watcher is None else {self.view.members[rank]: lacks for rank, lacks in watcher.lag().items()}

    def heard(self) -> list[tuple[int, Instant]]:
        """Give those from whom anything came that could be decoded, and when it last did, since the last time."""
        heard_at, self._frames.heard_at = self._frames.heard_at, {}
        return [(self.view.members[rank], at) for rank, at in heard_at.items()]

    # What a driver does

    def handle(self, event: Input, now: Instant) -> list[Effect]:
        """Take one input at an instant and say what follows from it."""
        if self.left:
            if isinstance(event, Submit):
                raise LocalProtocolError("this member has left the group; join again to send")
            return []
        self.output.size_each = None
        if type(event) is ReceiveMany:
            for datagram in event.datagrams:
                self._receive(datagram, now)
        elif type(event) is Receive:
            self._receive(event.datagram, now)
        elif type(event) is Wake:
            if (due := self.deadline) is not None and due <= now:
                self.submissions.pace.woken(now - due)
            self._wake(now)
        elif type(event) is Submit:
            self.submissions.add(event)
        elif type(event) is Leave:
            self.submissions.take_back()
            self.left = True
            if self.output.traced:
                self.output.row("leave", None, None, None, None)
        else:
            assert_never(event)
        submissions, pace, gatherer = self.submissions, self.submissions.pace, self._optional.gatherer
        gathers = pace.next_at is not None and pace.gathers(self._frames.bytes_for_all + submissions.bytes, now)
        if not gathers and (submissions.waiting or submissions.starved.at is not None):
            self._send_waiting(now)
        if gatherer is not None and self.recovery is not None:
            # with a window of own messages, that stays well within what receivers have slots for
            step = gatherer.gathered(3 * self.config.window - self.recovery.unstable)
            if step.up or step.down:
                self._carry(step, now)
        if self._frames.outbox and not gathers:
            self._flush(now)
        effects, self.output.effects = self.output.effects, []
        return effects

    def recognize(self, datagram: bytes, now: Instant) -> bool:
        """Note who sent a datagram, and take nothing else from it; say whether it is of this view."""
        return self._frames.recognizes(datagram, now)

    # Inputs

    def _send_waiting(self, now: Instant) -> None:
        submissions = self.submissions
        submissions.pace.next_at = None  # what waits from here on waits for the window, not for more to be said with it
        while submissions.waiting and not self.stuck:
            message = submissions.next()
            self.output.sent(submissions.sent)
            self._carry(self.ordering.submit(message, submissions.sent, now), now)
        if self.recovery is not None:
            # with nothing unstable no acknowledgment will come by itself, so credit must be asked for
            submissions.ask_if(bool(submissions.waiting) and not self.recovery.unstable, now)

    def _wake(self, now: Instant) -> None:
        self._carry(self.ordering.wake(now), now)
        if self.recovery is not None and self.stability is not None:
            self._carry(self.recovery.wake(now), now)
            self._carry(self.stability.wake(now), now)
            if (poor := self.submissions.to_ask(now)) and not self.blocked:
                self._frames.put(Out(Heartbeat(asking=True), poor))

    def _receive(self, datagram: bytes, now: Instant) -> None:
        recovery, gated = self.recovery, self._optional.gate is not None
        try:
            header, pdus = self._frames.read(datagram, now)
            source = header.sender
            if self.output.traced:
                self.output.size_each = len(datagram) // (len(pdus) or 1)
            self.submissions.flow.free[source] = header.free
            for pdu in pdus:
                step = self.handlers[type(pdu)](source, pdu, now)
                if step.up or step.down:
                    self._carry(step, now)
                if gated:
                    self._admit(now)
            # last, for what the datagram itself brings is not missing; as a rule nothing is
            if recovery is not None and (header.sent > recovery.highest[source] or recovery.missing):
                recovery.noticed(source, header.sent, now)
        except Malformed as garbage:
            self.counts["dropped-" + garbage.reason] += 1
            self.output.effects.append(Drop(garbage.reason))

    # Between the parts

    def _carry(self, step: Step, now: Instant) -> None:
        """Carry each item of a step to the neighbour that it is for: first what goes down, then what goes up."""
        for item in step.down:
            if type(item) is Reliable:
                self._stream(item.pdu, now)
            elif not self.blocked:
                self._frames.put(item)
        output = self.output
        for up in step.up:  # by `type`: to ask `isinstance` of one of these that it is not takes four times as long
            if type(up) is Accepted:
                self._accept(up.source, up.pdu, now)
            elif type(up) is Deliver:
                if self._delivery is None:
                    output.deliver(up)
                else:
                    self._delivery.deliver(up)
            elif type(up) is Received:
                if output.traced:
                    output.row("receive", up.sender, up.seq, output.size_each, None)
            elif type(up) is Frontier:
                self._release(up.numbers, now)
            elif type(up) is Stable:
                output.stable(up.sender, up.seq, now)
            elif type(up) is Decided:
                assert self._delivery is not None
                self._delivery.decided(up)
                if output.traced:
                    output.row("control", up.sender, up.seq, None, "final")
            elif type(up) is Drop:
                self.counts["discarded"] += 1
                output.drop(up)
            elif type(up) is Duplicate:
                self.counts["duplicates"] += 1
                if output.traced:
                    output.row("control", up.sender, up.seq, None, "duplicate")
            else:
                assert_never(up)

    def _stream(self, pdu: Streamed, now: Instant) -> None:
        """Send a PDU in the member's own reliable stream."""
        if self.blocked:
            return
        assert self.recovery is not None, "an ordering that asks for reliable sending declares NEEDS_RECOVERY"
        assert self.stability is not None
        pdu.stamp = self.stability.stamp(now)
        self._carry(self.recovery.broadcast(pdu, now), now)

    def _admit(self, now: Instant) -> None:
        """Move gated streams on, as far as what their next PDUs depend on was accepted."""
        recovery, gate = self.recovery, self._optional.gate
        assert recovery is not None
        assert gate is not None
        waiting = sorted(recovery.arrived)
        moved = True
        try:
            while moved and recovery.arrived:
                moved = False
                for stream in sorted(recovery.arrived):
                    while (pdu := recovery.following(stream)) is not None and gate.admits(stream, pdu):
                        moved = True
                        self._carry(recovery.take(stream), now)
        finally:
            for stream in waiting:
                recovery.expect(stream, now)

    def _accept(self, source: int, pdu: Streamed, now: Instant) -> None:
        """Pass the next PDU of a stream to ordering and stability."""
        delivery, stability = self._delivery, self.stability
        assert delivery is not None
        assert stability is not None
        delivery.accepted(source, pdu)
        if self.output.traced and isinstance(pdu, Data):
            self.output.row("receive", source, pdu.seq, self.output.size_each, None)
        position = delivery.position
        self._carry(self.ordering.accept(source, pdu, now), now)
        if not delivery.counts_positions:
            step = stability.advanced(source, pdu, delivery.numbers, now)
            if step.up or step.down:
                self._carry(step, now)
        elif delivery.position > position:
            self._carry(stability.advanced(0, pdu, [delivery.position], now), now)

    def _release(self, frontier: tuple[int, ...], now: Instant) -> None:
        """Let go of what everyone holds, and tell the application."""
        recovery, delivery = self.recovery, self._delivery
        assert recovery is not None
        assert delivery is not None
        if delivery.counts_positions:
            frontier = delivery.stream_numbers(recovery.released, frontier[0])
        recovery.release(frontier)
        delivery.release(frontier, now)

    def _flush(self, now: Instant) -> None:
        """Put everything that goes the same way into as few datagrams as it takes."""
        recovery, frames, rider = self.recovery, self._frames, self._optional.rider
        if rider is not None and None in frames.outbox:
            for pdu in rider.ride(now):
                frames.put(Out(pdu))
        if recovery is not None and None in frames.outbox:
            recovery.spoke(now)
        self.submissions.pace.spoke(now)
        sent = 0 if recovery is None else recovery.received[self.output.rank]
        frames.flush(sent, max(0, self.submissions.flow.places - self.held))

    # The end of the view

    @property
    def _keeper(self) -> RetransmissionBuffer:
        """The part that keeps what others may lack."""
        return self.recovery if self.recovery is not None else cast(RetransmissionBuffer, self.ordering)

    @rule("docs/membership.md, who has told what it holds stops")
    def block(self) -> None:
        """Send nothing and deliver nothing more, until the view is finished; what still gathers is not sent either."""
        self.blocked = True
        self._frames.outbox.clear()
        self.ordering.block()

    def reach(self) -> tuple[int, ...]:
        """Say, per rank, up to where its PDUs are held together with all that they depend on."""
        return tuple(self._keeper.reach())

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, bytes]]:
        """Give copies for others, encoded, with their numbers."""
        return [(number, self._frames.encode(pdu)) for number, pdu in self._keeper.copies(source, above, upto)]

    def finish(
        self, reach: Sequence[int], order: bytes, rest: Iterable[tuple[int, bytes]], now: Instant
    ) -> list[Effect]:
        """Adopt what had to be fetched and deliver all that remains of the view, in order."""
        if not self.blocked:  # a rule left out
            self.blocked = True
            self.ordering.block()
        self.output.size_each = None
        for source, encoded in rest:
            self._carry(self._keeper.adopt(source, self._frames.decode(encoded)), now)
        self._carry(self.ordering.finish(reach, order), now)
        if self._delivery is not None:
            self._delivery.deliver_the_rest()
        return self.output.take()
