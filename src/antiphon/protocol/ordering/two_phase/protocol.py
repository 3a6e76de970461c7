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
from typing import ClassVar, TypeAlias

import msgspec

from antiphon.protocol.clock import LamportClock
from antiphon.protocol.machine import Deliver, Instant, Submit
from antiphon.protocol.ordering.two_phase.messages import (
    Ask,
    Decision,
    MessageId,
    Proposal,
    Stamp,
    TimedData,
    TwoPhaseOptions,
)
from antiphon.protocol.ordering.two_phase.polls import Poll, Polls
from antiphon.protocol.ordering.two_phase.takeover import Claim, Pending, Settled, settle
from antiphon.protocol.parts import NOTHING, Decided, FlushHooks, Out, PartContext, Reliable, Step, Up
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Data, Malformed, Pdu, Streamed


class Waiting(msgspec.Struct, eq=False):
    """A message in the reception queue."""

    sender: int
    seq: int
    payload: bytes
    own: Stamp  # its sender's own proposal
    proposal: Proposal  # what this member proposed, as it was sent
    stamp: Stamp  # provisional until `decided`
    decided: bool = False


# (what it sorts by, sender, seq, whether it was decided when it was put in, the message)
_Entry: TypeAlias = tuple[tuple[Stamp, bool], int, int, bool, Waiting]


class TwoPhase(FlushHooks):
    """The two-phase machine; a protocol says what proposals and decisions carry, and what they teach."""

    NEEDS_RECOVERY: ClassVar[bool] = True
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo", "causal", "total")

    polls_type: ClassVar[type[Polls]] = Polls

    in_order = True  # whether each sender's messages come in the order of their numbers

    def __init__(self, context: PartContext, options: TwoPhaseOptions) -> None:
        self.rank, self.size = context.rank, context.size
        self.clock = LamportClock()
        self.next_mid = [1] * context.size  # per sender, one more than the highest number received
        self.undecided: list[dict[int, Waiting]] = [{} for _ in range(context.size)]
        self.held = 0
        self.queue: list[_Entry] = []  # a heap; an undecided message's timestamp may have risen since it was put in
        # per sender, the timestamp of its last delivered message
        self._delivered: list[Stamp] = [(0, 0)] * context.size
        self.polls = self.polls_type(options, context.jittered, context.pace)
        self._blocked = False  # the view ends
        self._window = context.window

    # What a protocol adds

    @rule("Section 2.1.1, dissemination phase")
    def propose(self, seq: int, time: int) -> Proposal:
        """Make the proposal for a message that was just received."""
        return Proposal(seq, time)

    @rule("docs/protocols/tomp.md, Rule")
    def check(self, proposal: Proposal) -> None:
        """Raise `Malformed` unless the proposal makes sense."""

    @rule("Section 2.1.2, decision phase")
    def poll(self, now: Instant) -> Poll:
        """Begin to collect the proposals for an own message."""
        return Poll(self.size, now)

    @rule("Section 3.2.3.2, timestamp reception")
    def anticipate(self, decision: Decision) -> None:
        """Learn from a decision about messages that are still undecided, or raise `Malformed` and learn nothing."""

    @rule("Section 3.2.3.2, timestamp reception")
    def provisional(self, message: Waiting) -> Stamp:
        """Give the greatest timestamp that an undecided message's final one is known to reach."""
        return message.stamp

    # The rules

    @rule("docs/protocols/abcast.md, Clock rule: the paper leaves it out")
    def clock_rule(self, final: Stamp) -> None:
        """Stamp what comes later above a final timestamp that this member has heard."""
        self.clock.witness(final[0])

    @rule("Section 2.1.2, the reception queue")
    def order_key(self, message: Waiting) -> tuple[Stamp, bool]:
        """Order the queue by timestamp; of two equal ones the decided one is first."""
        return (message.stamp, False) if message.decided else (self.provisional(message), True)

    @rule("Section 2.1.2, conditions (1) and (2)")
    def deliverable(self, message: Waiting) -> bool:
        """Say whether the head of the queue may be delivered."""
        return message.decided

    @rule("docs/protocols/abcast.md, Lost proposals")
    def resend(self, message: Waiting) -> Proposal:
        """Give a proposal again, as it was."""
        return message.proposal

    @rule("docs/protocols/abcast.md, Lost proposals")
    def answers(self, source: int, ask: Ask) -> list[Proposal]:
        """Give the proposals that a sender asks for again, as far as they are not decided."""
        stored = (self.undecided[source].get(seq) for seq in ask.seqs)
        return [self.resend(message) for message in stored if message is not None]

    # The interface of an ordering

    @property
    def deadline(self) -> Instant | None:
        """When to ask for missing proposals."""
        return self.polls.asking.at

    def may_submit(self, priority: int) -> bool:
        """Bound the own messages that are undecided, and with them the decisions that may follow what is unstable."""
        return len(self.polls.polls) < self._window

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Put the message into the stream; this member stamps it as soon as the stream has it."""
        return Step([], [Reliable(TimedData(seq=seq, payload=message.payload, own=self.clock.time + 1), seq)])

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Take a message or a decision."""
        if type(pdu) is TimedData:
            return self._message(source, pdu, now)
        if isinstance(pdu, Decision):
            return self._decision(source, pdu)
        if isinstance(pdu, Data):
            raise Malformed("unexpected")
        return NOTHING

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a proposal, or a request for one."""
        match pdu:
            case Proposal():
                return self._proposal(source, pdu, now)
            case Ask():
                return Step([], [Out(proposal, (source,)) for proposal in self.answers(source, pdu)])
            case _:
                raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        """Ask for proposals that should have come by now."""
        return Step([], [*self.polls.wake(now)])

    @rule("docs/protocols/abcast.md, When a view ends")
    def pending(self) -> Pending:
        """Say what this member knows of messages that it has not delivered."""
        final = {(sender, seq): m.stamp for _, sender, seq, decided, m in self.queue if decided}
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

    # When the view ends: see `FlushHooks`

    def block(self) -> None:
        """Deliver nothing more before the rest is decided."""
        self._blocked = True

    @rule("docs/protocols/abcast.md, When a view ends")
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
        rest = {(m.sender, m.seq): (m.stamp, False, m.sender, m.seq, m) for *_, decided, m in self.queue if decided}
        for sender, seq, time, host, after in msgspec.msgpack.decode(order or b"\x90", type=Settled):
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
        heappush(self.queue, (self.order_key(message), source, data.seq, False, message))
        self.held += 1
        if source != self.rank:
            return Step([], [Out(proposal, (source,))])
        assert data.own == time, "a member stamps its own message when it sends it"
        self.polls.begin(data.seq, self.poll(now), now)
        return self._proposal(source, proposal, now)

    def _proposal(self, source: int, proposal: Proposal, now: Instant) -> Step:
        if proposal.seq >= self.next_mid[self.rank]:
            raise Malformed("unknown-message")
        poll = self.polls.polls.get(proposal.seq)
        if poll is None or source not in poll.missing:
            self.polls.came_twice()
            return NOTHING
        self.check(proposal)
        decision = self.polls.take(source, proposal, now)
        return NOTHING if decision is None else Step([], [Reliable(decision)])

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
        heappush(self.queue, (self.order_key(message), source, decision.seq, True, message))
        return Step([Decided(source, decision.seq), *self.deliveries()])

    @rule("Section 2.1.2, conditions (1) and (2)")
    def deliveries(self) -> list[Up]:
        """Deliver from the head of the queue, bringing the timestamps of what shows there up to date."""
        queue = self.queue
        delivered: list[Up] = []
        while queue and not self._blocked:
            key, sender, seq, decided, message = queue[0]
            if message.decided and not decided:
                heappop(queue)  # its decision has put it in once more
            elif not decided and key != (risen := self.order_key(message)):
                heapreplace(queue, (risen, sender, seq, False, message))
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
