"""Seeded bugs of ABCAST and TOMP: each replaces one rule, and says which guarantee it breaks.

`stuck`: some message is not delivered everywhere; `undrained`: all is delivered, but something is kept for ever.
The clock rule matters in sparse traffic only (about every fifth run of 3 members, 4 messages each, intervals of 50 ms
and delays of 10 ms, both exponential); asking and resending need lost datagrams; the others fail nearly always.
"""

from __future__ import annotations

import numpy as np

from antiphon.protocol.machine import SECOND, Instant
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.tomp import Tomp, UpdateBox, VectorProposal, Words, packed
from antiphon.protocol.ordering.two_phase import Decision, Poll, Proposal, Stamp, TwoPhase, Waiting
from antiphon.protocol.parts import Out, Step, Up
from antiphon.protocol.wire import Pdu


class AbcastWithoutClockRule(Abcast):
    """The printed rule: a final timestamp does not move the clock."""

    def clock_rule(self, final: Stamp) -> None:
        pass


class TompWithoutClockRule(Tomp):
    """The printed rule: a final timestamp does not move the clock."""

    def clock_rule(self, final: Stamp) -> None:
        pass


class SeparateBox(UpdateBox):
    """The least identifier and the greatest timestamp, each over all hosts: a bound that nobody promised."""

    def take(self, host: int, time: int, next_mid: Words) -> None:
        np.maximum(self.max_next_ts, packed(time + 1, host), out=self.max_next_ts)
        np.minimum(self.min_next_mid, next_mid, out=self.min_next_mid)


class TompWithSeparateBox(Tomp):
    """Bounds from the separate box."""

    def box(self) -> UpdateBox:
        return SeparateBox(self.size)


class TompThatRenewsTimestamps(Tomp):
    """A proposal that is asked for again gets a newer timestamp beside its old vector."""

    def resend(self, message: Waiting) -> Proposal:
        stored = message.proposal
        assert isinstance(stored, VectorProposal)
        return VectorProposal(stored.seq, self.clock.tick(), stored.next_mid)


class TompWithTooLargeDelta(Tomp):
    """The bound of a later message counts one message too many."""

    def provisional(self, message: Waiting) -> Stamp:
        bound = self._bounds[message.sender].at(message.seq)
        if bound is None:
            return message.stamp
        return max(message.stamp, (bound[0] + message.seq + 1, bound[1]))


class TompThatExpectsTooLittle(Tomp):
    """Vectors are made before the received message is counted, so they promise it a later timestamp than it got."""

    def propose(self, seq: int, time: int) -> Proposal:
        proposal = super().propose(seq, time)
        assert isinstance(proposal, VectorProposal)
        stale = np.frombuffer(proposal.next_mid, "<u4").copy()
        others = np.arange(self.size) != self.rank
        stale[others] = np.maximum(1, stale[others] - 1)
        return VectorProposal(seq, time, stale.tobytes())

    def check(self, proposal: Proposal) -> None:
        pass


class AbcastThatDeliversWhenDecided(Abcast):
    """A decided message overtakes undecided ones with lower timestamps."""

    def order_key(self, message: Waiting) -> tuple[Stamp, bool]:
        stamp, provisional = super().order_key(message)
        return ((stamp[0] + 2**40, stamp[1]) if provisional else stamp), provisional


class AbcastThatDeliversUndecided(Abcast):
    """The head of the queue is delivered once anything is decided."""

    def deliverable(self, message: Waiting) -> bool:
        return True


class HastyPoll(Poll):
    """A poll that gives up on its last voter."""

    def take(self, host: int, proposal: Proposal) -> None:
        super().take(host, proposal)
        if len(self.missing) == 1:
            self.missing.clear()


class AbcastThatDecidesEarly(Abcast):
    """A decision without the last proposal may lie below it, and is refused where it does."""

    def poll(self, now: Instant) -> Poll:
        return HastyPoll(self.size, now)


class AbcastThatNeverAsks(Abcast):
    """Lost proposals stay lost."""

    def wake(self, now: Instant) -> Step:
        if self.deadline is not None and self.deadline <= now:
            self.deadline = now + SECOND
        return Step()


class AbcastThatForgetsProposals(Abcast):
    """Proposals are let go as soon as they are sent, so that nobody answers when asked."""

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        step = super().receive(source, pdu, now)
        step.down = [down for down in step.down if not isinstance(down, Out)]
        return step


class AbcastThatKeepsDelivered(Abcast):
    """Delivered messages are counted as held."""

    def _deliveries(self) -> list[Up]:
        delivered = super()._deliveries()
        self.held += len(delivered)
        return delivered


class LeastPoll(Poll):
    """A poll that decides for the least proposal."""

    def __init__(self, size: int, now: Instant) -> None:
        super().__init__(size, now)
        self.least: Stamp = (2**40, 0)

    def take(self, host: int, proposal: Proposal) -> None:
        super().take(host, proposal)
        self.least = min(self.least, (proposal.time, host))

    def decision(self, seq: int) -> Decision:
        return Decision(seq=seq, time=self.least[0], host=self.least[1])


class AbcastThatTakesTheLeast(Abcast):
    """The least proposal wins, which is below what others have promised, and is refused there."""

    def poll(self, now: Instant) -> Poll:
        return LeastPoll(self.size, now)


MUTANTS: dict[str, tuple[type[TwoPhase], str]] = {
    "abcast-without-clock-rule": (AbcastWithoutClockRule, "total"),
    "tomp-without-clock-rule": (TompWithoutClockRule, "total"),
    "tomp-separate-box": (TompWithSeparateBox, "total"),
    "tomp-renewed-timestamp": (TompThatRenewsTimestamps, "total"),
    "tomp-too-large-delta": (TompWithTooLargeDelta, "total"),
    "tomp-expects-too-little": (TompThatExpectsTooLittle, "total"),
    "abcast-delivers-when-decided": (AbcastThatDeliversWhenDecided, "total"),
    "abcast-delivers-undecided": (AbcastThatDeliversUndecided, "total"),
    "abcast-decides-early": (AbcastThatDecidesEarly, "stuck"),
    "abcast-never-asks": (AbcastThatNeverAsks, "stuck"),
    "abcast-forgets-proposals": (AbcastThatForgetsProposals, "stuck"),
    "abcast-takes-the-least": (AbcastThatTakesTheLeast, "stuck"),
    "abcast-keeps-delivered": (AbcastThatKeepsDelivered, "undrained"),
}
