"""Seeded bugs of ABCAST and TOMP: each replaces one rule, and says which guarantee it breaks.

`stuck`: some message is not delivered everywhere; `undrained`: all is delivered, but something is kept for ever.
The clock rule matters in sparse traffic only (about every fifth run of 3 members, 4 messages each, intervals of 50 ms
and delays of 10 ms, both exponential); asking and resending need lost datagrams; the others fail nearly always.
"""

from __future__ import annotations

import numpy as np

from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.tomp import Tomp, UpdateBox, VectorProposal, Words, packed
from antiphon.protocol.ordering.two_phase import Decision, Poll, Proposal, Stamp, TwoPhase, Waiting
from antiphon.protocol.parts import Up
from antiphon.protocol.rules import replaced


def clock_stays(self: TwoPhase, final: Stamp) -> None:
    """The printed rule: a final timestamp does not move the clock."""


class SeparateBox(UpdateBox):
    """The least identifier and the greatest timestamp, each over all hosts: a bound that nobody promised."""

    def take(self, host: int, time: int, next_mid: Words) -> None:
        np.maximum(self.max_next_ts, packed(time + 1, host), out=self.max_next_ts)
        np.minimum(self.min_next_mid, next_mid, out=self.min_next_mid)


def newer_timestamp(self: TwoPhase, message: Waiting) -> Proposal:
    """A proposal that is asked for again gets a newer timestamp beside its old vector."""
    stored = message.proposal
    assert isinstance(stored, VectorProposal)
    return VectorProposal(stored.seq, self.clock.tick(), stored.next_mid)


def too_large_delta(self: Tomp, message: Waiting) -> Stamp:
    """The bound of a later message counts one message too many."""
    bound = self.bounds[message.sender].at(message.seq)
    if bound is None:
        return message.stamp
    return max(message.stamp, (bound[0] + message.seq + 1, bound[1]))


def stale_vector(self: Tomp, seq: int, time: int) -> Proposal:
    """Vectors are made before the received message is counted, so they promise it a later timestamp than it got."""
    proposal = Tomp.propose(self, seq, time)
    assert isinstance(proposal, VectorProposal)
    stale = np.frombuffer(proposal.next_mid, "<u4").copy()
    others = np.arange(self.size) != self.rank
    stale[others] = np.maximum(1, stale[others] - 1)
    return VectorProposal(seq, time, stale.tobytes())


def decided_first(self: TwoPhase, message: Waiting) -> tuple[Stamp, bool]:
    """A decided message overtakes undecided ones with lower timestamps."""
    stamp, provisional = TwoPhase.order_key(self, message)
    return ((stamp[0] + 2**40, stamp[1]) if provisional else stamp), provisional


class HastyPoll(Poll):
    """A poll that gives up on its last voter: a decision without it may lie below its proposal, and is refused."""

    def take(self, host: int, proposal: Proposal) -> None:
        super().take(host, proposal)
        if len(self.missing) == 1:
            self.missing.clear()


def counts_delivered(self: TwoPhase) -> list[Up]:
    """Delivered messages are counted as held."""
    delivered = TwoPhase.deliveries(self)
    self.held += len(delivered)
    return delivered


class LeastPoll(Poll):
    """A poll that decides for the least proposal, which is below what others have promised, and is refused there."""

    def __init__(self, size: int, now: Instant) -> None:
        super().__init__(size, now)
        self.least: Stamp = (2**40, 0)

    def take(self, host: int, proposal: Proposal) -> None:
        super().take(host, proposal)
        self.least = min(self.least, (proposal.time, host))

    def decision(self, seq: int) -> Decision:
        return Decision(seq=seq, time=self.least[0], host=self.least[1])


AbcastWithoutClockRule = replaced(Abcast, clock_rule=clock_stays)
TompWithoutClockRule = replaced(Tomp, clock_rule=clock_stays)
TompWithSeparateBox = replaced(Tomp, box=lambda self: SeparateBox(self.size))
TompThatRenewsTimestamps = replaced(Tomp, resend=newer_timestamp)
TompWithTooLargeDelta = replaced(Tomp, provisional=too_large_delta)

MUTANTS: dict[str, tuple[type[TwoPhase], str]] = {
    "abcast-without-clock-rule": (AbcastWithoutClockRule, "total"),
    "tomp-without-clock-rule": (TompWithoutClockRule, "total"),
    "tomp-separate-box": (TompWithSeparateBox, "total"),
    "tomp-renewed-timestamp": (TompThatRenewsTimestamps, "total"),
    "tomp-too-large-delta": (TompWithTooLargeDelta, "total"),
    "tomp-expects-too-little": (
        replaced(Tomp, propose=stale_vector, check=lambda self, proposal: None),
        "total",
    ),
    "abcast-delivers-when-decided": (replaced(Abcast, order_key=decided_first), "total"),
    "abcast-delivers-undecided": (replaced(Abcast, deliverable=lambda self, message: True), "total"),
    "abcast-decides-early": (replaced(Abcast, poll=lambda self, now: HastyPoll(self.size, now)), "stuck"),
    "abcast-never-asks": (replaced(Abcast, asks=lambda self, now: {}), "stuck"),
    "abcast-forgets-proposals": (replaced(Abcast, answers=lambda self, source, ask: []), "stuck"),
    "abcast-takes-the-least": (replaced(Abcast, poll=lambda self, now: LeastPoll(self.size, now)), "stuck"),
    "abcast-keeps-delivered": (replaced(Abcast, deliveries=counts_delivered), "undrained"),
}
