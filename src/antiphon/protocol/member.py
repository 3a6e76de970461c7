"""A member of a group: the whole data path on one page.

    Submit -> ordering -> recovery -> frames          frames -> recovery -> ordering -> Deliver
                             stability <- what is held; what all hold -> recovery lets go, Stable

Control flow lives here and only here: parts are pure and return their `Step`; this file carries each item to its
neighbour. Orderings that repair losses themselves (causal blocks, CO) stand directly on the frames.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeAlias, assert_never

import msgspec

from antiphon.errors import LocalProtocolError
from antiphon.protocol.flow import Flow
from antiphon.protocol.machine import (
    Deliver,
    Drop,
    Effect,
    Input,
    Instant,
    Leave,
    Receive,
    ReceiveMany,
    Send,
    Stable,
    Submit,
    Wake,
    earliest,
)
from antiphon.protocol.options import GroupOptions, counts_positions, ordering_type, stability_type
from antiphon.protocol.parts import (
    Accepted,
    Decided,
    Duplicate,
    Frontier,
    Gate,
    Gatherer,
    Out,
    PartContext,
    Received,
    Reliable,
    Rider,
    Shaped,
    Step,
    Watcher,
)
from antiphon.protocol.recovery import Heartbeat, Recovery
from antiphon.protocol.wire import (
    DATAGRAM_BYTES_MAX,
    FRAME_OVERHEAD_BYTES,
    Codec,
    Data,
    Header,
    Malformed,
    Pdu,
    Streamed,
    group_tag,
)

# record(now, event, sender, seq, bytes, detail): how a member tells its driver what belongs in the trace
Record: TypeAlias = Callable[[Instant, str, int | None, int | None, int | None, str | None], None]


_Held: TypeAlias = tuple[tuple[int, int], ...]  # (rank, number of its stream)


class View(msgspec.Struct, frozen=True):
    """Who is in the group; a member's rank is its index in the list."""

    number: int
    members: tuple[int, ...]


class Member:
    """One member of a group in one view: a `Machine`."""

    def __init__(
        self, me: int, view: View, config: GroupOptions, randomness: random.Random, record: Record | None = None
    ) -> None:
        size = len(view.members)
        config.check(size, founding=view.number == 0)
        self.me, self.view, self.config = me, view, config
        self._ids = view.members
        self._rank = view.members.index(me)
        self._record = record
        self._group, self._view_tag = group_tag(config.group), view.number & 0xFFFFFFFF
        context = PartContext(self._rank, size, randomness, window=config.window)
        Ordering = ordering_type(config.ordering)
        self.ordering = Ordering(context, config.ordering_settings())
        self._gate = self.ordering if isinstance(self.ordering, Gate) else None
        self._gatherer = self.ordering if isinstance(self.ordering, Gatherer) else None
        self._held_up: set[int] = set()  # gated streams of which something has come and not been accepted
        self.recovery: Recovery | None = None
        kinds: tuple[type[Pdu], ...] = Ordering.PDUS
        if Ordering.NEEDS_RECOVERY:
            Stability = stability_type(config.stability)
            options = config.stability_settings()
            options = options.fit(size) if isinstance(options, Shaped) else options
            self._positions: deque[_Held] | None = deque() if counts_positions(options) else None
            streams = 0 if self._positions is None else 1
            self.stability = Stability(msgspec.structs.replace(context, streams=streams), options)
            self._rider = self.stability if isinstance(self.stability, Rider) else None
            self.recovery = Recovery(context, config.window, config.recovery, gated=self._gate is not None)
            self._stability_kinds = frozenset(Stability.PDUS)
            self._recovery_kinds = frozenset(Recovery.PDUS) | {kind for kind in kinds if issubclass(kind, Streamed)}
            kinds = (*kinds, *Recovery.PDUS, *Stability.PDUS)
        self._codec = Codec(kinds)
        self._buffer = config.buffer_size(size)
        self._flow = Flow(size, config.window, self._buffer)
        self._waiting: deque[Submit] = deque()  # submissions that the window holds back
        self._seq = 0  # own messages sent so far
        self._stable_seq = 0  # own messages known to be stable
        self._streamed_seqs: list[deque[tuple[int, int]]] = [deque() for _ in range(size)]  # unstable (number, seq)
        self._numbers = [0] * size  # per sender, the last number of its stream that was passed on
        self._places: dict[tuple[int, int], _Held] = {}  # message -> what whoever delivers it must hold
        self._unsafe: deque[tuple[Deliver, _Held]] = deque()  # to be delivered when all of that is stable
        self._position = 0  # how many messages were delivered
        self._outbox: dict[tuple[int, ...] | None, list[bytes]] = {}  # by targets, encoded
        self._effects: list[Effect] = []
        self._jittered = context.jittered
        self._ask_at: Instant | None = None  # when a sender without credit asks for it
        self._bytes_each: int | None = None  # of the datagram being taken in, each PDU's share
        self.left = False
        self.counts: Counter[str] = Counter()

    # What a driver reads

    @property
    def deadline(self) -> Instant | None:
        """When this member wants to be woken."""
        if self.left:
            return None
        if self.recovery is None:
            return self.ordering.deadline
        return earliest(self.ordering.deadline, self.recovery.deadline, self.stability.deadline, self._ask_at)

    @property
    def room(self) -> int:
        """How many more submissions may wait here."""
        return 0 if self.left else self.config.queue - len(self._waiting)

    @property
    def held(self) -> int:
        """How many messages this member keeps in its buffers."""
        return self.ordering.held + (self.recovery.held if self.recovery else 0) + len(self._unsafe)

    @property
    def drained(self) -> bool:
        """Whether nothing waits and nothing is kept."""
        return not self._waiting and self.held == 0

    def lag(self) -> dict[int, int | None]:
        """Say who holds stability back, as far as is known here: how much each lacks; None: not heard from."""
        if self.recovery is None or not isinstance(self.stability, Watcher):
            return {}
        return {self._ids[rank]: lacks for rank, lacks in self.stability.lag().items()}

    # What a driver does

    def handle(self, event: Input, now: Instant) -> list[Effect]:
        """Take one input at an instant and say what follows from it."""
        if self.left:
            if isinstance(event, Submit):
                raise LocalProtocolError("this member has left the group; join again to send")
            return []
        self._effects = []
        self._bytes_each = None
        match event:
            case ReceiveMany():
                for datagram in event.datagrams:
                    self._receive(datagram, now)
            case Receive():
                self._receive(event.datagram, now)
            case Wake():
                self._wake(now)
            case Submit():
                self._submit(event)
            case Leave():
                self._waiting.clear()
                self.left = True
                if self._record is not None:
                    self._record(now, "leave", None, None, None, None)
            case _:
                assert_never(event)
        self._send_waiting(now)
        if self._gatherer is not None and self.recovery is not None:
            # with a window of own messages, that stays well within what receivers have places for
            self._carry(self._gatherer.gathered(3 * self.config.window - self.recovery.unstable), now)
        self._flush(now)
        return self._effects

    # Inputs

    def _submit(self, message: Submit) -> None:
        if len(message.payload) > self.config.payload_bytes_max:
            raise LocalProtocolError(
                f"a payload of {len(message.payload)} bytes is over the limit of {self.config.payload_bytes_max}"
            )
        if self.room < 1:
            raise LocalProtocolError(f"{self.config.queue} submissions wait for the window already; wait for room")
        self._waiting.append(message)

    def _send_waiting(self, now: Instant) -> None:
        while self._waiting and self._may_send():
            message = self._waiting.popleft()
            self._seq += 1
            self._carry(self.ordering.submit(message, self._seq, now), now)
        if self.recovery is not None:
            # with nothing unstable no acknowledgment will come by itself, so credit must be asked for
            starved = bool(self._waiting) and not self.recovery.unstable
            if not starved:
                self._ask_at = None
            elif self._ask_at is None:
                self._ask_at = now + self.config.recovery.heartbeat_ns

    def _may_send(self) -> bool:
        outstanding = self._seq - self._stable_seq
        return self.ordering.may_submit(self._waiting[0].priority) and (
            self.recovery is None or self._flow.open(outstanding)
        )

    def _wake(self, now: Instant) -> None:
        self._carry(self.ordering.wake(now), now)
        if self.recovery is not None:
            self._carry(self.recovery.wake(now), now)
            self._carry(self.stability.wake(now), now)
            if self._ask_at is not None and self._ask_at <= now:
                self._ask_at = now + self._jittered(self.config.recovery.heartbeat_ns)
                if poor := self._flow.poor():
                    self._out(Out(Heartbeat(asking=True), poor), now)

    def _receive(self, datagram: bytes, now: Instant) -> None:
        try:
            header, pdus = self._codec.decode(datagram)
            if header.group != self._group:
                raise Malformed("foreign-group")
            if header.view != self._view_tag:
                raise Malformed("other-view")
            if header.sender >= len(self._ids) or header.sender == self._rank:
                raise Malformed("impossible-sender")
            self._bytes_each = len(datagram) // max(1, len(pdus))
            self._flow.heard(header.sender, header.free)
            if self.recovery is not None:
                self.recovery.noticed(header.sender, header.sent, now)
            for pdu in pdus:
                self._carry(self._hand_over(header.sender, pdu, now), now)
                if self._gate is not None:
                    self._admit(header.sender, now)
        except Malformed as garbage:
            self.counts["dropped-" + garbage.reason] += 1
            self._effects.append(Drop(garbage.reason))

    def _hand_over(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Give a PDU to the part that it belongs to."""
        if self.recovery is not None:
            if type(pdu) in self._recovery_kinds:
                return self.recovery.receive(source, pdu, now)
            if type(pdu) in self._stability_kinds:
                return self.stability.receive(source, pdu, now)
        return self.ordering.receive(source, pdu, now)

    # Between the parts

    def _carry(self, step: Step, now: Instant) -> None:
        """Carry each item of a step to the neighbour that it is for: first what goes down, then what goes up."""
        for item in step.down:
            if isinstance(item, Out):
                self._out(item, now)
            else:
                self._stream(item, now)
        for up in step.up:
            match up:
                case Accepted():
                    self._accept(up.source, up.pdu, now)
                case Deliver():
                    self._deliver(up, now)
                case Received():
                    if self._record is not None:
                        self._record(now, "receive", self._ids[up.sender], up.seq, self._bytes_each, None)
                case Decided():
                    if up.source is None:
                        self._places[up.sender, up.seq] = ((up.sender, self._numbers[up.sender]),)
                    else:
                        self._places[up.sender, up.seq] += ((up.source, self._numbers[up.source]),)
                    if self._record is not None:
                        self._record(now, "control", self._ids[up.sender], up.seq, None, "final")
                case Frontier():
                    self._release(up.numbers if self._positions is None else self._stream_numbers(up.numbers[0]), now)
                case Stable():
                    self._stable(up.sender, up.seq, now)
                case Duplicate():
                    self.counts["duplicates"] += 1
                    if self._record is not None:
                        self._record(now, "control", self._ids[up.sender], up.seq, None, "duplicate")
                case Drop():
                    sender = None if up.sender is None else self._ids[up.sender]
                    self.counts["discarded"] += 1
                    self._effects.append(Drop(up.reason, sender, up.seq))
                    if self._record is not None:
                        self._record(now, "discard", sender, up.seq, None, up.reason)
                case _:
                    assert_never(up)

    def _stream(self, item: Reliable, now: Instant) -> None:
        assert self.recovery is not None, "an ordering that asks for reliable sending declares NEEDS_RECOVERY"
        item.pdu.stamp = self.stability.stamp(now)
        self._carry(self.recovery.broadcast(item.pdu, now), now)

    def _admit(self, source: int, now: Instant) -> None:
        """Move gated streams on: that of `source`, and those that may have waited for it."""
        assert self.recovery is not None
        assert self._gate is not None
        self._held_up.add(source)
        moved = True
        while moved:
            moved = False
            for stream in sorted(self._held_up):
                while (pdu := self.recovery.following(stream)) is not None and self._gate.admits(stream, pdu):
                    moved = True
                    self._carry(self.recovery.take(stream, now), now)
                if pdu is None:
                    self._held_up.discard(stream)

    def _accept(self, source: int, pdu: Streamed, now: Instant) -> None:
        """Pass the next PDU of a stream to ordering and stability."""
        assert self.recovery is not None
        self._numbers[source] = pdu.number
        if isinstance(pdu, Data):
            self._streamed_seqs[source].append((pdu.number, pdu.seq))
            self._places[source, pdu.seq] = ((source, pdu.number),)
            if self._record is not None:
                self._record(now, "receive", self._ids[source], pdu.seq, self._bytes_each, None)
        position = self._position
        self._carry(self.ordering.accept(source, pdu, now), now)
        if self._positions is None:
            step = self.stability.advanced(source, pdu, self._numbers, now)
            if step.up or step.down:
                self._carry(step, now)
        elif self._position > position:
            self._carry(self.stability.advanced(0, pdu, [self._position], now), now)

    def _deliver(self, message: Deliver, now: Instant) -> None:
        """Deliver a message whose turn it is, or keep it until it is stable."""
        if self.recovery is not None:
            held = self._places.pop((message.sender, message.seq))
            self._position += 1
            if self._positions is not None:
                self._positions.append(held)
            if self.config.safe:
                self._unsafe.append((message, held))
                return
        self._hand_up(message, now)

    def _hand_up(self, message: Deliver, now: Instant) -> None:
        sender = self._ids[message.sender]
        self._effects.append(Deliver(sender, message.seq, message.payload))
        if self._record is not None:
            self._record(now, "deliver", sender, message.seq, None, None)

    def _stream_numbers(self, position: int) -> tuple[int, ...]:
        """Say which numbers of the streams are held by all who have delivered so many messages of the total order."""
        assert self.recovery is not None
        assert self._positions is not None
        numbers = list(self.recovery.released)
        for _ in range(position - (self._position - len(self._positions))):
            for source, number in self._positions.popleft():
                numbers[source] = max(numbers[source], number)
        return tuple(numbers)

    def _release(self, frontier: tuple[int, ...], now: Instant) -> None:
        """Let go of what everyone holds, and tell the application."""
        assert self.recovery is not None
        self.recovery.release(frontier)
        for source, number in enumerate(frontier):
            seqs, stable = self._streamed_seqs[source], 0
            while seqs and seqs[0][0] <= number:
                stable = seqs.popleft()[1]
            if stable:
                self._stable(source, stable, now)
        while self._unsafe and all(number <= frontier[source] for source, number in self._unsafe[0][1]):
            self._hand_up(self._unsafe.popleft()[0], now)

    def _stable(self, source: int, seq: int, now: Instant) -> None:
        if source == self._rank:
            self._stable_seq = seq
        self._effects.append(Stable(self._ids[source], seq))
        if self._record is not None:
            self._record(now, "stable", self._ids[source], seq, None, None)

    # Frames

    def _out(self, out: Out, now: Instant) -> None:
        """Encode a PDU for the next flush, and note it in the trace."""
        encoded = self._codec.encode_pdu(out.pdu)
        self._outbox.setdefault(out.to, []).append(encoded)
        if out.repair:
            self.counts["retransmissions"] += 1
        elif out.seq is None:
            self.counts[out.pdu.kind] += 1
        if self._record is None:
            return
        size = len(encoded) + FRAME_OVERHEAD_BYTES
        sender = None if out.sender is None else self._ids[out.sender]
        if out.repair:
            target = "all" if out.to is None else ",".join(str(self._ids[rank]) for rank in out.to)
            self._record(now, "control", sender, out.seq, size, f"repair to {target}")
        elif out.seq is not None:
            self._record(now, "send", sender, out.seq, size, None)
        else:
            self._record(now, "control", None, None, size, out.pdu.kind)

    def _flush(self, now: Instant) -> None:
        """Put everything that goes the same way into as few datagrams as it takes."""
        if not self._outbox:
            return
        recovery = self.recovery
        if recovery is not None and self._rider is not None and None in self._outbox:
            for pdu in self._rider.ride(now):
                self._out(Out(pdu), now)
        ways, self._outbox = self._outbox, {}
        free = max(0, self._buffer - self.held)
        header = Header(self._group, self._view_tag, self._rank, recovery.sent if recovery else 0, free)
        for to, pdus in ways.items():
            ids = None if to is None else tuple([self._ids[rank] for rank in to])
            start, size = 0, FRAME_OVERHEAD_BYTES
            for end, encoded in enumerate(pdus):
                if size + len(encoded) > DATAGRAM_BYTES_MAX:
                    self._effects.append(Send(ids, Codec.frame(header, pdus[start:end])))
                    start, size = end, FRAME_OVERHEAD_BYTES
                size += len(encoded)
            self._effects.append(Send(ids, Codec.frame(header, pdus[start:])))
        if recovery is not None and None in ways:
            recovery.spoke(now)
