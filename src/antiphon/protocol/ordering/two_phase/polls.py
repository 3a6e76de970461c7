"""The decision of one's own messages: collecting everyone's proposals, and asking for those that do not come.

When to ask is learnt, as TCP learns when to send again: from polls in which nobody had to be asked. A proposal that
comes twice was asked for in vain, since it was on its way: then the pause is doubled until such a poll is measured.
Without that, members that are slow to answer for want of time would be given still more to do.
"""

from __future__ import annotations

from typing import Final

from antiphon.protocol.machine import SECOND, Duration, Instant
from antiphon.protocol.ordering.two_phase.messages import ASK_SEQS_MAX, Ask, Decision, Proposal, Stamp, TwoPhaseOptions
from antiphon.protocol.pace import Pace
from antiphon.protocol.parts import Out
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import Backoff, Jitter, RoundTripEstimate

_PAUSE_NS_MAX: Final = SECOND  # to which the first pause may grow
_DOUBLINGS_MAX: Final = 8


class Poll:
    """The proposals for one of the member's own messages."""

    def __init__(self, size: int, now: Instant) -> None:
        self.since = now
        self.asked = False  # whether anyone was asked for what is missing
        self.missing = set(range(size))
        self.greatest: Stamp = (0, 0)

    def take(self, host: int, proposal: Proposal) -> None:
        """Count a proposal."""
        self.missing.remove(host)
        self.greatest = max(self.greatest, (proposal.time, host))

    def decision(self, seq: int) -> Decision:
        """Say what follows when none is missing."""
        return Decision(seq=seq, time=self.greatest[0], host=self.greatest[1])


class Polls:
    """The polls of one's own undecided messages, by number."""

    def __init__(self, options: TwoPhaseOptions, jitter: Jitter, pace: Pace) -> None:
        self.polls: dict[int, Poll] = {}
        self._options, self._jitter, self._pace = options, jitter, pace
        longest = max(options.ask_ns, _PAUSE_NS_MAX)
        self._answers = RoundTripEstimate(options.ask_ns, timeout_ns_min=options.ask_ns, timeout_ns_max=longest)
        self._doublings = 0  # of the pause, since a poll was measured
        self._may_double = False  # someone was asked since the last doubling
        self.asking = self._timer()

    @property
    def _ask_ns(self) -> Duration:
        """How long proposals may take."""
        longest = max(self._options.ask_ns, _PAUSE_NS_MAX)
        return max(
            min(self._answers.timeout_ns << self._doublings, longest), self._options.ask_ns + self._pace.answer_ns
        )

    def _timer(self) -> Backoff:
        pause_ns = self._ask_ns
        return Backoff(self._jitter, pause_ns, max(pause_ns, self._options.ask_ns_max), first_ns=pause_ns)

    def begin(self, seq: int, poll: Poll, now: Instant) -> None:
        """Collect the proposals for an own message."""
        self.polls[seq] = poll
        if self.asking.at is None:
            self.asking = self._timer()
            self.asking.start(now)

    def take(self, source: int, proposal: Proposal, now: Instant) -> Decision | None:
        """Count a proposal that is missing; give the decision when it was the last."""
        poll = self.polls[proposal.seq]
        poll.take(source, proposal)
        if poll.missing:
            at = self.asking.at
            assert at is not None, "it asks while a poll is open"
            if self.asking.tries:
                self.asking = self._timer()  # answers come, so that what is still missing need not wait long
                self.asking.at = min(at, now + self._ask_ns)
            return None
        del self.polls[proposal.seq]
        if not poll.asked:
            self._answers.measured(now - poll.since)
            self._doublings = 0
        if not self.polls:
            self.asking.stop()
        return poll.decision(proposal.seq)

    def came_twice(self) -> None:
        """Hear that a proposal came that was not missing: it was on its way when it was asked for."""
        if self._may_double:
            self._may_double = False
            self._doublings = min(self._doublings + 1, _DOUBLINGS_MAX)

    def wake(self, now: Instant) -> list[Out]:
        """Ask for proposals that should have come by now."""
        if self.asking.at is None or self.asking.at > now:
            return []
        late_at = min(poll.since for poll in self.polls.values()) + self._ask_ns
        if late_at > now:  # what the pause began with has come, so that this was no vain try
            self.asking = self._timer()
            self.asking.at = late_at
            return []
        self.asking.over(now)
        asks = self.asks(now)
        self._may_double |= bool(asks)
        return [Out(Ask(asks[host][:ASK_SEQS_MAX]), (host,)) for host in sorted(asks)]

    @rule("docs/protocols/abcast.md, Lost proposals")
    def asks(self, now: Instant) -> dict[int, list[int]]:
        """List, per host, the messages whose proposals should have come from it by now."""
        asks: dict[int, list[int]] = {}
        for seq, poll in self.polls.items():
            if poll.since + self._ask_ns <= now:
                poll.asked = True
                for host in poll.missing:
                    asks.setdefault(host, []).append(seq)
        return asks
