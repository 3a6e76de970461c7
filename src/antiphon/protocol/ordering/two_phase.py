"""Total order in two phases over reliable streams: what ABCAST and TOMP have in common.

Dissemination: a message goes to all in its sender's stream; every member puts it into its reception queue under a
provisional timestamp of its own and proposes that timestamp to the sender. Decision: when all have proposed, the sender
puts the greatest proposal, the final timestamp, into its stream. A message is delivered when its timestamp is final
and the least in the queue. Timestamps are pairs (number, host). Three rules make this safe:

- a member that hears a final timestamp moves its clock up to it, so that whatever it receives later sorts later;
- provisional timestamps only rise and never pass the final one, so a queue is a heap whose entries may lag behind;
- finals are unique and provisional timestamps need not be, so a decided message goes before an equal undecided one.

Proposals are unicast and may be lost: they are kept until the decision comes, and the sender asks for those it lacks.
A proposal is resent as it was, because what else it says was true at its timestamp and at no later one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Annotated, ClassVar, TypeAlias

import msgspec

from antiphon.protocol.clock import LamportClock
from antiphon.protocol.machine import MILLISECOND, SECOND, Deliver, Instant, Submit
from antiphon.protocol.parts import Decided, Ending, Out, PartContext, Reliable, Step, Up
from antiphon.protocol.wire import Data, Malformed, Number, Pdu, Rank, Streamed

ASK_SEQS_MAX = 64
LOGICAL_TIME_MAX = 2**46  # leaves room to count on, and for a host beside it in 63 bits

LogicalTime: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LOGICAL_TIME_MAX)]
Stamp: TypeAlias = tuple[int, int]  # (number, host): two hosts never give the same, and 9.10 comes after 9.9
MessageId: TypeAlias = tuple[int, int]  # (sender, seq)
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class TimedData(Data, tag=40):
    """A message with its sender's own provisional timestamp, which outlives the sender in every copy."""

    own: LogicalTime = 1


class Ask(Pdu, tag=41):
    """Please send your proposals for these of my messages again."""

    kind: ClassVar[str] = "ask"
    seqs: Annotated[list[Number], msgspec.Meta(min_length=1, max_length=ASK_SEQS_MAX)]


class Proposal(Pdu, tag=42):
    """The timestamp under which its sender keeps the addressee's message `seq`."""

    kind: ClassVar[str] = "proposal"
    seq: Number
    time: LogicalTime


class Decision(Streamed, tag=43):
    """The final timestamp of its sender's message `seq`."""

    kind: ClassVar[str] = "decision"
    seq: Number = 1
    time: LogicalTime = 1
    host: Rank = 0


class TwoPhaseOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to ask for proposals that do not come."""

    ask_ns: Positive = 50 * MILLISECOND  # doubled with every vain try, up to the next one
    ask_ns_max: Positive = SECOND


class Waiting(msgspec.Struct, eq=False):
    """A message in the reception queue."""

    sender: int
    seq: int
    payload: bytes
    own: Stamp  # its sender's own proposal
    proposal: Proposal  # what this member proposed, as it was sent
    stamp: Stamp  # provisional until `decided`
    decided: bool = False


class Poll:
    """The proposals for one of the member's own messages."""

    def __init__(self, size: int, now: Instant) -> None:
        self.since = now
        self.missing = set(range(size))
        self.greatest: Stamp = (0, 0)

    def take(self, host: int, proposal: Proposal) -> None:
        """Count a proposal."""
        self.missing.remove(host)
        self.greatest = max(self.greatest, (proposal.time, host))

    def decision(self, seq: int) -> Decision:
        """Say what follows when none is missing."""
        return Decision(seq=seq, time=self.greatest[0], host=self.greatest[1])


class Pending(msgspec.Struct, frozen=True):
    """What a member answers when a view ends: enough for the survivors to finish a dead sender's messages."""

    clock: int
    provisional: dict[MessageId, Stamp]  # undecided messages, with all that is known to lie below their final ones
    final: dict[MessageId, Stamp]  # decided here and not delivered; delivered ones lie in the streams until stable


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """`Pending` on the wire, with the number of the next message expected of each sender."""

    clock: int
    next_mid: list[int]
    provisional: list[tuple[int, int, int, int]]  # sender, seq, time, host
    final: list[tuple[int, int, int, int]]

    def pending(self) -> Pending:
        """Give what can be looked up."""
        provisional = {(sender, seq): (time, host) for sender, seq, time, host in self.provisional}
        return Pending(self.clock, provisional, {(sender, seq): (time, host) for sender, seq, time, host in self.final})


_Settled: TypeAlias = list[tuple[int, int, int, int, bool]]  # sender, seq, time, host, after equal ones


def settle(claims: Mapping[int, Claim], *, safe: bool) -> _Settled:
    """Decide all messages that no survivor knows the decision of.

    With safe delivery they go behind every message whose decision anyone knows, since a member that is gone may have
    delivered those; but never behind a later message of their own sender.
    """
    survivors = {rank: claim.pending() for rank, claim in claims.items()}
    undecided: set[MessageId] = set()
    decided: dict[MessageId, Stamp] = {}
    for state in survivors.values():
        undecided |= state.provisional.keys()
        decided |= state.final
    for claim, state in zip(claims.values(), survivors.values(), strict=True):
        delivered = {
            (sender, seq)
            for sender, seq in undecided
            if seq < claim.next_mid[sender] and (sender, seq) not in state.provisional
        }
        undecided -= delivered  # the decision lies in a stream that this survivor holds
    floor: Stamp = (max((claim.clock for claim in claims.values()), default=0) + 1, 0)
    settled: _Settled = []
    for sender, seq in sorted(undecided):
        stamp, after = takeover((sender, seq), survivors), True
        if safe:
            stamp = max(stamp, floor)
            later = [final for (s, k), final in decided.items() if s == sender and k > seq]
            if later and min(later) <= stamp:
                stamp, after = min(later), False
        settled.append((sender, seq, *stamp, after))
    return settled


def takeover(message: MessageId, survivors: Mapping[int, Pending]) -> Stamp:
    """Decide a message whose sender cannot, from all survivors' states by rank, taken after they stopped.

    Some survivor may already have delivered whatever lies below its *raised* provisional timestamp (or, where it lacks
    the message, below its clock), so first proposals are not enough. Survivors then deliver what is left, ordered by
    timestamp; of equal ones, those that their own senders decided go first, then by sender and number.
    """
    for state in survivors.values():
        if message in state.final:
            return state.final[message]
    return max(_reached(message, rank, state) for rank, state in survivors.items())


def _reached(message: MessageId, rank: int, state: Pending) -> Stamp:
    """Give what the message's final timestamp cannot be below, as far as one survivor knows."""
    if message in state.provisional:
        return state.provisional[message]
    earlier = (stamp for (sender, _), stamp in state.provisional.items() if sender == message[0])
    return max([(state.clock + 1, rank), *earlier])  # it would come here after all that its sender sent before


# (what it sorts by, sender, seq, whether it was decided when it was put in, the message)
_Entry: TypeAlias = tuple[tuple[Stamp, bool], int, int, bool, Waiting]


class TwoPhase(Ending):
    """The two-phase machine; a protocol says what proposals and decisions carry, and what they teach."""

    NEEDS_RECOVERY: ClassVar[bool] = True
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo", "causal", "total")

    in_order = True  # whether each sender's messages come in the order of their numbers

    def __init__(self, context: PartContext, options: TwoPhaseOptions) -> None:
        self.rank, self.size = context.rank, context.size
        self.clock = LamportClock()
        self.next_mid = [1] * context.size  # per sender, one more than the highest number received
        self.undecided: list[dict[int, Waiting]] = [{} for _ in range(context.size)]
        self.held = 0
        self.deadline: Instant | None = None  # when to ask for missing proposals
        self._queue: list[_Entry] = []  # a heap; an undecided message's timestamp may have risen since it was put in
        self._delivered: list[Stamp] = [
            (0, 0)
        ] * context.size  # per sender, the timestamp of its last delivered message
        self._polls: dict[int, Poll] = {}  # own undecided messages
        self._blocked = False  # the view ends
        self._window, self._jittered, self._options = context.window, context.jittered, options
        self._pause_ns = options.ask_ns

    # What a protocol adds

    def propose(self, seq: int, time: int) -> Proposal:
        """Make the proposal for a message that was just received."""
        return Proposal(seq, time)

    def check(self, proposal: Proposal) -> None:
        """Raise `Malformed` unless the proposal makes sense."""

    def poll(self, now: Instant) -> Poll:
        """Begin to collect the proposals for an own message."""
        return Poll(self.size, now)

    def anticipate(self, decision: Decision) -> None:
        """Learn from a decision about messages that are still undecided, or raise `Malformed` and learn nothing."""

    def provisional(self, message: Waiting) -> Stamp:
        """Give the greatest timestamp that an undecided message's final one is known to reach."""
        return message.stamp

    # The rules

    def clock_rule(self, final: Stamp) -> None:
        """Stamp what comes later above a final timestamp that this member has heard."""
        self.clock.witness(final[0])

    def order_key(self, message: Waiting) -> tuple[Stamp, bool]:
        """Order the queue by timestamp; of two equal ones the decided one is first."""
        return (message.stamp, False) if message.decided else (self.provisional(message), True)

    def deliverable(self, message: Waiting) -> bool:
        """Say whether the head of the queue may be delivered."""
        return message.decided

    def resend(self, message: Waiting) -> Proposal:
        """Give a proposal again, as it was."""
        return message.proposal

    # The interface of an ordering

    def may_submit(self, priority: int) -> bool:
        """Bound the own messages that are undecided, and with them the decisions that may follow what is unstable."""
        return len(self._polls) < self._window

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Put the message into the stream; this member stamps it as soon as the stream has it."""
        return Step([], [Reliable(TimedData(seq=seq, payload=message.payload, own=self.clock.time + 1), seq)])

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Take a message or a decision."""
        match pdu:
            case TimedData():
                return self._message(source, pdu, now)
            case Decision():
                return self._decision(source, pdu)
            case Data():
                raise Malformed("unexpected")
            case _:
                return Step()

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a proposal, or a request for one."""
        match pdu:
            case Proposal():
                return self._proposal(source, pdu, now)
            case Ask():
                stored = (self.undecided[source].get(seq) for seq in pdu.seqs)
                return Step([], [Out(self.resend(message), (source,)) for message in stored if message is not None])
            case _:
                raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        """Ask for proposals that should have come by now."""
        if self.deadline is None or self.deadline > now:
            return Step()
        asks: dict[int, list[int]] = {}
        for seq, poll in self._polls.items():
            if poll.since + self._options.ask_ns <= now:
                for host in poll.missing:
                    asks.setdefault(host, []).append(seq)
        self.deadline = now + self._jittered(self._pause_ns)
        self._pause_ns = min(2 * self._pause_ns, self._options.ask_ns_max)
        return Step([], [Out(Ask(asks[host][:ASK_SEQS_MAX]), (host,)) for host in sorted(asks)])

    def pending(self) -> Pending:
        """Say what this member knows of messages that it has not delivered."""
        final = {(sender, seq): m.stamp for _, sender, seq, decided, m in self._queue if decided}
        provisional: dict[MessageId, Stamp] = {}
        reached = list(self._delivered)  # per sender: each message's final timestamp is above the one before
        undecided = {(m.sender, m.seq): m for waiting in self.undecided for m in waiting.values()}
        for sender, seq in sorted(final.keys() | undecided.keys()):
            if (sender, seq) in undecided:
                m = undecided[sender, seq]
                reached[sender] = provisional[sender, seq] = max(reached[sender], self.provisional(m), m.own)
            else:
                reached[sender] = final[sender, seq]
        return Pending(self.clock.time, provisional, final)

    # When the view ends: see `Ending`

    def block(self) -> None:
        """Deliver nothing more before the rest is decided."""
        self._blocked = True

    def claim(self) -> bytes:
        """Say what this member knows of messages that it has not delivered."""
        pending = self.pending()
        provisional = [(*message, *stamp) for message, stamp in pending.provisional.items()]
        final = [(*message, *stamp) for message, stamp in pending.final.items()]
        return msgspec.msgpack.encode(Claim(pending.clock, self.next_mid, provisional, final))

    @staticmethod
    def settle(claims: Mapping[int, bytes], *, safe: bool) -> bytes:
        """Give every message that is undecided everywhere its final timestamp."""
        decoded = {rank: msgspec.msgpack.decode(claim, type=Claim) for rank, claim in claims.items()}
        return msgspec.msgpack.encode(settle(decoded, safe=safe))

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver everything, by final timestamps; of equal ones those that their own senders decided go first."""
        # by the entry, not by the message: what it was before its decision may still lie there when it was delivered
        rest = {(m.sender, m.seq): (m.stamp, False, m.sender, m.seq, m) for *_, decided, m in self._queue if decided}
        for sender, seq, time, host, after in msgspec.msgpack.decode(order or b"\x90", type=_Settled):
            message = self.undecided[sender].get(seq)
            if message is not None:
                rest[sender, seq] = ((time, host), after, sender, seq, message)
        self.held -= len(rest)
        return Step([Deliver(sender, seq, m.payload) for _, _, sender, seq, m in sorted(rest.values(), key=_by_stamp)])

    # Dissemination

    def _message(self, source: int, data: TimedData, now: Instant) -> Step:
        if data.seq in self.undecided[source] or (self.in_order and data.seq != self.next_mid[source]):
            raise Malformed("impossible-number")
        time = self.clock.tick()
        self.next_mid[source] = max(self.next_mid[source], data.seq + 1)
        proposal = self.propose(data.seq, time)
        message = Waiting(source, data.seq, data.payload, (data.own, source), proposal, (time, self.rank))
        self.undecided[source][data.seq] = message
        heappush(self._queue, self._entry(message))
        self.held += 1
        if source != self.rank:
            return Step([], [Out(proposal, (source,))])
        assert data.own == time, "a member stamps its own message when it sends it"
        self._polls[data.seq] = self.poll(now)
        if self.deadline is None:
            self._pause_ns = self._options.ask_ns
            self.deadline = now + self._pause_ns
        return self._proposal(source, proposal, now)

    def _proposal(self, source: int, proposal: Proposal, now: Instant) -> Step:
        poll = self._polls.get(proposal.seq)
        if proposal.seq >= self.next_mid[self.rank]:
            raise Malformed("unknown-message")
        if poll is None or source not in poll.missing:
            return Step()  # it came before
        self.check(proposal)
        poll.take(source, proposal)
        if poll.missing:
            assert self.deadline is not None
            self._pause_ns = self._options.ask_ns
            self.deadline = min(self.deadline, now + self._pause_ns)
            return Step()
        del self._polls[proposal.seq]
        if not self._polls:
            self.deadline = None
        return Step([], [Reliable(poll.decision(proposal.seq))])

    # Decision

    def _decision(self, source: int, decision: Decision) -> Step:
        message = self.undecided[source].get(decision.seq)
        final = (decision.time, decision.host)
        if message is None:
            raise Malformed("unknown-message")
        if decision.host >= self.size or final < (message.proposal.time, self.rank):
            raise Malformed("impossible-timestamp")
        self.anticipate(decision)
        self.clock_rule(final)
        del self.undecided[source][decision.seq]
        message.stamp, message.decided = final, True
        heappush(self._queue, self._entry(message))
        return Step([Decided(source, decision.seq), *self._deliveries()])

    def _entry(self, message: Waiting) -> _Entry:
        return self.order_key(message), message.sender, message.seq, message.decided, message

    def _deliveries(self) -> list[Up]:
        """Deliver from the head of the queue, bringing the timestamps of what shows there up to date."""
        queue = self._queue
        delivered: list[Up] = []
        while queue and not self._blocked:
            key, _, _, decided, message = queue[0]
            if message.decided and not decided:
                heappop(queue)  # its decision has put it in once more
            elif not decided and key != self.order_key(message):
                heapreplace(queue, self._entry(message))
            elif self.deliverable(message):
                heappop(queue)
                self.held -= 1
                self._delivered[message.sender] = message.stamp
                delivered.append(Deliver(message.sender, message.seq, message.payload))
            else:
                break
        return delivered


def _by_stamp(entry: tuple[Stamp, bool, int, int, Waiting]) -> tuple[Stamp, bool, int, int]:
    return entry[:4]
