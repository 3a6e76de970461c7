"""TOMP: ABCAST that anticipates, so that a decided message waits less for undecided ones before it in the queue.

A proposal also says which message its host expects next from each sender (`next_mid`): whatever it expects will get a
later timestamp there. From all proposals the deciding sender derives lower bounds: from message `min_next_mid(k)` of
sender k on, final timestamps are at least `max_next_ts(k)`. They travel with the decision, and raise the provisional
timestamps of messages that are still undecided.

Each later message of a sender gets a later number still (`delta`), as long as streams are FIFO. Costs 4n bytes more a
proposal, 10n a decision.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Container, Sequence
from typing import Annotated, ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from antiphon.errors import UsageError
from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.two_phase import (
    Ask,
    Decision,
    Poll,
    Proposal,
    Stamp,
    TimedData,
    TwoPhase,
    TwoPhaseOptions,
    Waiting,
)
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Malformed, Pdu, Vector, pack_vector, unpack_vector

MEMBERS_MAX: Final = 4_000  # a decision must fit into a datagram
STEPS_MORE_MAX: Final = 1_024
LISTS_MAX: Final = 32  # members, up to which lists are faster than whole-vector work
_HOST_BITS: Final = 16
_NO_ID: Final = 2**32 - 1  # no message has it

Words: TypeAlias = npt.NDArray[np.int64]


class VectorProposal(Proposal, tag=50):
    """A proposal, and the number of the next message expected from each sender when it was made."""

    next_mid: Vector


class BoundingDecision(Decision, tag=51):
    """A decision, and lower bounds for final timestamps: per sender one, and with `all-hosts` some more."""

    min_next_mid: Vector = b""  # the bound holds from this message on
    below: Vector = b""  # by how much the bound's number lies below the greatest possible, which is `time` + 1
    hosts: Annotated[bytes, msgspec.Meta(max_length=2 * MEMBERS_MAX)] = b""  # the bound's host, 2 bytes
    more: Annotated[bytes, msgspec.Meta(max_length=16 * STEPS_MORE_MAX)] = b""  # sender, message, below, host

    def bounds(self, size: int, wanted: Container[int] | None = None) -> list[tuple[int, int, Stamp]]:
        """List the bounds as (sender, first message, timestamp), of these senders or all, or raise `Malformed`."""
        if len(self.hosts) != 2 * size or len(self.more) % 16:
            raise Malformed("vector-length")
        senders: Sequence[int] = range(size)
        firsts, below = unpack_vector(self.min_next_mid, size), unpack_vector(self.below, size)
        hosts: Sequence[int] = struct.unpack(f"<{size}H", self.hosts)
        if self.more:
            more = unpack_vector(self.more, len(self.more) // 4)
            senders, firsts, below, hosts = (
                [*column, *more[place::4]] for place, column in enumerate((senders, firsts, below, hosts))
            )
        if (self.more and max(senders) >= size) or max(hosts) >= size or min(firsts) < 1:
            raise Malformed("impossible-bound")
        greatest = self.time + 1
        return [
            (sender, first, (greatest - less, host))
            for sender, first, less, host in zip(senders, firsts, below, hosts, strict=True)
            if wanted is None or sender in wanted
        ]


class TompOptions(TwoPhaseOptions, frozen=True):
    """Which bounds to derive.

    `paper`: per sender, from the least number that any host expects next, by the hosts that expect just that.
    `all-hosts`: for every number, by all hosts that expect it or an earlier one; a little higher, and more bytes.
    `delta`: whether a sender's later messages are bounded higher than its first; without it streams need not be FIFO.
    """

    bound: Literal["paper", "all-hosts"] = "paper"
    delta: bool = True


def packed(number: int, host: int) -> int:
    """Put a timestamp into one word that sorts like the pair."""
    return number << _HOST_BITS | host


class Box(Protocol):
    """What the proposals for one message say of later ones."""

    def hear(self, host: int, time: int, next_mid: bytes) -> None:
        """Take a proposal as it came."""

    def decision(self, seq: int, time: int, host: int) -> BoundingDecision:
        """Put the bounds into a decision."""


class UpdateBox:
    """The paper's bounds: `min_next_mid` and `max_next_ts`, updated together with every proposal."""

    def __init__(self, size: int) -> None:
        self.min_next_mid: Words = np.full(size, _NO_ID, np.int64)
        self.max_next_ts: Words = np.zeros(size, np.int64)  # packed

    def take(self, host: int, time: int, next_mid: Words) -> None:
        """Update per sender: an earlier next message replaces the bound, an equal one may raise it."""
        stamp = packed(time + 1, host)
        np.copyto(self.max_next_ts, stamp, where=next_mid < self.min_next_mid)
        np.maximum(self.max_next_ts, stamp, out=self.max_next_ts, where=next_mid == self.min_next_mid)
        np.minimum(self.min_next_mid, next_mid, out=self.min_next_mid)

    def more(self) -> tuple[Words, Words, Words]:
        """Give further bounds as (senders, first messages, timestamps): none."""
        nothing: Words = np.empty(0, np.int64)
        return nothing, nothing, nothing

    def hear(self, host: int, time: int, next_mid: bytes) -> None:
        """Take a proposal as it came."""
        self.take(host, time, np.frombuffer(next_mid, "<u4").astype(np.int64))

    def decision(self, seq: int, time: int, host: int) -> BoundingDecision:
        """Put the bounds into a decision."""
        firsts, below, hosts = _relative(time, self.min_next_mid, self.max_next_ts)
        more_senders, more_firsts, more_stamps = (column[:STEPS_MORE_MAX] for column in self.more())
        more = np.stack((more_senders, *_relative(time, more_firsts, more_stamps)), axis=1)
        return BoundingDecision(
            seq=seq,
            time=time,
            host=host,
            min_next_mid=firsts.astype("<u4").tobytes(),
            below=below.astype("<u4").tobytes(),
            hosts=hosts.astype("<u2").tobytes(),
            more=more.astype("<u4").tobytes(),
        )


class ListBox:
    """The paper's bounds once more, on lists: several times as fast for a few members, and slower for many."""

    def __init__(self, size: int) -> None:
        self._firsts, self._stamps = [_NO_ID] * size, [0] * size

    def hear(self, host: int, time: int, next_mid: bytes) -> None:
        """Update per sender: an earlier next message replaces the bound, an equal one may raise it."""
        stamp, firsts, stamps = packed(time + 1, host), self._firsts, self._stamps
        for sender, first in enumerate(unpack_vector(next_mid, len(firsts))):
            if first < firsts[sender]:
                firsts[sender], stamps[sender] = first, stamp
            elif first == firsts[sender] and stamp > stamps[sender]:
                stamps[sender] = stamp

    def decision(self, seq: int, time: int, host: int) -> BoundingDecision:
        """Put the bounds into a decision."""
        firsts, below = self._firsts, [time + 1 - (stamp >> _HOST_BITS) for stamp in self._stamps]
        if max(below) >= _NO_ID:  # too far below to be said, so it bounds nothing
            firsts = [_NO_ID if less >= _NO_ID else first for first, less in zip(firsts, below, strict=True)]
            below = [0 if less >= _NO_ID else less for less in below]
        hosts = [stamp & (1 << _HOST_BITS) - 1 for stamp in self._stamps]
        return BoundingDecision(
            seq=seq,
            time=time,
            host=host,
            min_next_mid=pack_vector(firsts),
            below=pack_vector(below),
            hosts=struct.pack(f"<{len(hosts)}H", *hosts),
        )


class AllHostsBox(UpdateBox):
    """For every message the best bound of all hosts that do not have it yet; keeps all proposals until the decision."""

    def __init__(self, size: int, delta: bool) -> None:
        super().__init__(size)
        self._delta = delta
        self._proposals: list[tuple[int, Words]] = []

    def take(self, host: int, time: int, next_mid: Words) -> None:
        """Keep the proposal."""
        super().take(host, time, next_mid)
        self._proposals.append((packed(time + 1, host), next_mid))

    def more(self) -> tuple[Words, Words, Words]:
        """Give, per sender, the later messages at which the bound rises, with the bound there."""
        self._proposals.sort(key=lambda proposal: proposal[0], reverse=True)  # of equal next messages, the best first
        stamps = np.array([stamp for stamp, _ in self._proposals])
        next_mid = np.array([next_mid for _, next_mid in self._proposals])
        order = np.argsort(next_mid, axis=0, kind="stable")
        first = np.take_along_axis(next_mid, order, axis=0)
        stamp = stamps[order]
        value = stamp - (first << _HOST_BITS) if self._delta else stamp
        best = np.maximum.accumulate(value, axis=0)
        rows, senders = np.nonzero(best[1:] > best[:-1])
        return senders, first[rows + 1, senders], stamp[rows + 1, senders]


class BoundingPoll(Poll):
    """Proposals with vectors."""

    def __init__(self, size: int, now: Instant, box: Box) -> None:
        super().__init__(size, now)
        self.box = box

    def take(self, host: int, proposal: Proposal) -> None:
        """Count a proposal and what it says of next messages."""
        super().take(host, proposal)
        assert isinstance(proposal, VectorProposal)
        self.box.hear(host, proposal.time, proposal.next_mid)

    def decision(self, seq: int) -> Decision:
        """Put the bounds into the decision."""
        return self.box.decision(seq, *self.greatest)


def _relative(time: int, firsts: Words, stamps: Words) -> tuple[Words, Words, Words]:
    """Split timestamps into their distance below `time` + 1 and their hosts; what is too far below bounds nothing."""
    below = time + 1 - (stamps >> _HOST_BITS)
    far = below >= _NO_ID
    return np.where(far, _NO_ID, firsts), np.where(far, 0, below), stamps & (1 << _HOST_BITS) - 1


class Staircase:
    """Lower bounds for one sender's messages: from a number on at least a timestamp, rising with the number."""

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.stamps: list[Stamp] = []

    def raise_from(self, first: int, stamp: Stamp) -> None:
        """Add a bound, and drop those that it makes superfluous."""
        end = place = bisect_right(self.firsts, first)
        if place and self.stamps[place - 1] >= stamp:
            return
        if place and self.firsts[place - 1] == first:
            place -= 1
        while end < len(self.stamps) and self.stamps[end] <= stamp:
            end += 1
        self.firsts[place:end], self.stamps[place:end] = [first], [stamp]

    def at(self, seq: int) -> Stamp | None:
        """Give the bound of a message, if there is one."""
        place = bisect_right(self.firsts, seq)
        return self.stamps[place - 1] if place else None

    def forget_below(self, seq: int) -> None:
        """Drop what only messages before `seq` need."""
        unneeded = max(0, bisect_right(self.firsts, seq) - 1)
        del self.firsts[:unneeded], self.stamps[:unneeded]


class Tomp(TwoPhase):
    """The two-phase machine with anticipation."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (TimedData, Ask, VectorProposal, BoundingDecision)
    Options: ClassVar[type[msgspec.Struct]] = TompOptions

    def __init__(self, context: PartContext, options: TompOptions) -> None:
        if context.size > MEMBERS_MAX:
            raise UsageError(f"members: tomp's vectors fit a datagram for up to {MEMBERS_MAX}; choose abcast")
        super().__init__(context, options)
        self.in_order = options.delta
        self._bound, self._delta = options.bound, options.delta
        # with delta the number is kept less the first message's, so that one bound serves every later message
        self.bounds = [Staircase() for _ in range(context.size)]

    @rule("Section 3.2.2.2, message reception")
    def propose(self, seq: int, time: int) -> Proposal:
        """Add what is expected next from each sender."""
        return VectorProposal(seq, time, pack_vector(self.next_mid))

    def check(self, proposal: Proposal) -> None:
        """Refuse vectors of another size, and those that deny the proposal's own message."""
        assert isinstance(proposal, VectorProposal)
        next_mid = unpack_vector(proposal.next_mid, self.size)
        if min(next_mid) < 1 or not proposal.seq < next_mid[self.rank] <= self.next_mid[self.rank]:
            raise Malformed("impossible-vector")

    @rule("Section 3.2.2.3, acknowledgement reception")
    def box(self) -> Box:
        """Choose how bounds are derived."""
        if self._bound == "paper":
            return ListBox(self.size) if self.size <= LISTS_MAX else UpdateBox(self.size)
        return AllHostsBox(self.size, self._delta)

    @rule("Section 3.2.2.3, acknowledgement reception")
    def poll(self, now: Instant) -> Poll:
        """Collect vectors with the proposals."""
        return BoundingPoll(self.size, now, self.box())

    def anticipate(self, decision: Decision) -> None:
        """Raise the bounds of senders that have undecided messages."""
        assert isinstance(decision, BoundingDecision)
        waiting = [sender for sender, undecided in enumerate(self.undecided) if undecided]
        for sender, first, (number, host) in decision.bounds(self.size, waiting):
            if first < self.next_mid[sender]:
                bounds, undecided = self.bounds[sender], self.undecided[sender]
                bounds.raise_from(first, (number - first * self._delta, host))
                if len(bounds.firsts) > 2 * len(undecided):
                    bounds.forget_below(min(undecided))

    def provisional(self, message: Waiting) -> Stamp:
        """Give the proposal, or the bound where that is greater."""
        bound = self.bounds[message.sender].at(message.seq)
        if bound is None:
            return message.stamp
        return max(message.stamp, (bound[0] + message.seq * self._delta, bound[1]))
