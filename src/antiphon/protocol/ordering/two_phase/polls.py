"""The decision of one's own messages: collecting everyone's proposals, and asking for those that do not come."""

from __future__ import annotations

from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.two_phase.messages import ASK_SEQS_MAX, Ask, Decision, Proposal, Stamp, TwoPhaseOptions
from antiphon.protocol.parts import Out
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import Backoff, Jitter


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


class Polls:
    """The polls of one's own undecided messages, by number."""

    def __init__(self, options: TwoPhaseOptions, jitter: Jitter) -> None:
        self.polls: dict[int, Poll] = {}
        self._ask_ns = options.ask_ns
        self.asking = Backoff(jitter, options.ask_ns, options.ask_ns_max, first_ns=options.ask_ns)

    def begin(self, seq: int, poll: Poll, now: Instant) -> None:
        """Collect the proposals for an own message."""
        self.polls[seq] = poll
        if self.asking.at is None:
            self.asking.start(now)

    def take(self, source: int, proposal: Proposal, now: Instant) -> Decision | None:
        """Count a proposal that is missing; give the decision when it was the last."""
        poll = self.polls[proposal.seq]
        poll.take(source, proposal)
        if poll.missing:
            at = self.asking.at
            assert at is not None, "it asks while a poll is open"
            if self.asking.tries:
                self.asking.start(now)  # answers come, so that what is still missing need not wait long
                self.asking.at = min(at, now + self._ask_ns)
            return None
        del self.polls[proposal.seq]
        if not self.polls:
            self.asking.stop()
        return poll.decision(proposal.seq)

    def wake(self, now: Instant) -> list[Out]:
        """Ask for proposals that should have come by now."""
        if not self.asking.over(now):
            return []
        asks = self.asks(now)
        return [Out(Ask(asks[host][:ASK_SEQS_MAX]), (host,)) for host in sorted(asks)]

    @rule("docs/protocols/abcast.md, Lost proposals")
    def asks(self, now: Instant) -> dict[int, list[int]]:
        """List, per host, the messages whose proposals should have come from it by now."""
        asks: dict[int, list[int]] = {}
        for seq, poll in self.polls.items():
            if poll.since + self._ask_ns <= now:
                for host in poll.missing:
                    asks.setdefault(host, []).append(seq)
        return asks
