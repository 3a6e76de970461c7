"""How long members take to answer, measured on what is sent anyway: for orderings that repair losses themselves.

A member knows when it sent each of its own numbers, and hears from everyone's stamps how far they have come. The time
includes what waits in the queues of slow links, and the serialisation of large messages, since the answers to them do.
Not measured is what was sent again, since nobody knows which of the copies was answered; what nobody owes an answer to,
or was sent before the group came to rest, since the next word may come after hours; and what a member answers after it
noticed a loss, since that waits for the repair: taken for the pace of answers, it would make each repair slower than
the one before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.timers import RoundTripEstimate

REMEMBERED_MAX: Final = 256  # of one's own numbers
RECENT: Final = 8  # measurements of a member
_TOLERANCE: Final = 3


class RoundTrips:
    """Round trips to each member: from the sending of one's own numbers until it says that it has them."""

    def __init__(self, size: int, first_ns: Duration) -> None:
        self._first_ns = first_ns
        self._estimates = [RoundTripEstimate(first_ns, timeout_ns_min=first_ns) for _ in range(size)]
        self._shortest_ns: list[Duration | None] = [None] * size  # per member, the shortest that was measured
        self._recent_ns: list[deque[Duration]] = [deque(maxlen=RECENT) for _ in range(size)]
        self._prompt_ns: list[Duration] = [0] * size  # per member, the best of those; 0: none
        self._queued_ns: list[Duration] = [0] * size  # and how much longer that is than the shortest
        self.shortest_ns: Duration = 0  # the shortest round trip that was measured, of all members; 0: none
        self.reached = [0] * size  # per member, the highest of one's own numbers that it is known to have
        self._numbers: list[int] = []  # those sent last, ascending
        self._sent_at: list[Instant] = []
        self._repeated: set[int] = set()
        self._since: list[Instant] = [0] * size  # per member, what was sent before is not measured
        self._usual = RoundTripEstimate(first_ns)  # of all members together

    def sent(self, number: int, now: Instant) -> None:
        """Take note of a number that is sent for the first time and that others owe an answer to."""
        self._numbers.append(number)
        self._sent_at.append(now)
        if len(self._numbers) > 2 * REMEMBERED_MAX:
            del self._numbers[:REMEMBERED_MAX], self._sent_at[:REMEMBERED_MAX]
            self._repeated = {number for number in self._repeated if number >= self._numbers[0]}

    def repeated(self, number: int) -> None:
        """Do not measure a number that is sent again."""
        self._repeated.add(number)

    def rest(self, now: Instant) -> None:
        """Measure nothing that was sent until now: all is settled, so nobody owes an answer to it."""
        self._since = [now] * len(self._since)

    def disturbed(self, member: int, now: Instant) -> None:
        """Do not measure a member's answers to what was sent until now: it lacks something, and waits for a repair."""
        self._since[member] = now

    def heard(self, member: int, upto: int, now: Instant) -> None:
        """Hear that a member has one's own numbers up to this one; the last of them is what it answers."""
        if upto <= self.reached[member]:
            return
        self.reached[member] = upto
        position = bisect_right(self._numbers, upto) - 1
        if position < 0 or self._numbers[position] in self._repeated or self._sent_at[position] < self._since[member]:
            return
        self.measured(member, now - self._sent_at[position])

    def measured(self, member: int, sample_ns: Duration) -> None:
        """Take a round trip into account that was measured otherwise."""
        self._estimates[member].measured(sample_ns)
        shortest = self._shortest_ns[member]
        if shortest is None or sample_ns < shortest:
            self._shortest_ns[member] = shortest = sample_ns
            self.shortest_ns = sample_ns if self._usual.mean_ns is None else min(self.shortest_ns, sample_ns)
        recent = self._recent_ns[member]
        recent.append(sample_ns)
        self._prompt_ns[member] = best = min(recent)
        self._queued_ns[member] = best - shortest
        self._usual.measured(sample_ns)

    def timeout_ns(self, member: int, now: Instant) -> Duration:
        """Return how long an answer of a member may take: as measured or, before that, as long as it has taken yet.

        A member that lacks much answers late without being far away; so nobody is given more than three times what is
        usual, or what it has needed at best.
        """
        estimate, shortest = self._estimates[member], self._shortest_ns[member]
        if shortest is not None:
            return max(self._first_ns, min(estimate.timeout_ns, _TOLERANCE * max(shortest, self.usual_ns)))
        waiting = bisect_left(self._numbers, self.reached[member] + 1)
        waited = now - self._sent_at[waiting] if waiting < len(self._numbers) else 0
        return max(self._first_ns, waited if self._usual.mean_ns is None else min(waited, _TOLERANCE * self.usual_ns))

    def usual_of_ns(self, member: int, now: Instant) -> Duration:
        """Return how long a member's answers take on average, within the limits of `timeout_ns`."""
        mean = self._estimates[member].mean_ns
        longest = self.timeout_ns(member, now)
        return longest if mean is None else max(self._first_ns, min(mean, longest))

    @property
    def usual_ns(self) -> Duration:
        """How long answers usually take, whoever gives them."""
        return self._first_ns if self._usual.mean_ns is None else self._usual.mean_ns

    def shortest_of_ns(self, member: int) -> Duration:
        """Return the shortest round trip to a member that was measured; 0: none."""
        return self._shortest_ns[member] or 0

    @property
    def measured_ns(self) -> Duration:
        """How long answers usually take, as far as that was measured."""
        return self._usual.mean_ns or 0

    @property
    def prompt_ns(self) -> Duration:
        """How long the best answers of late took, of the member that took longest; 0: nothing was measured.

        Unlike the mean it does not grow with the pauses after which a lost answer is asked for again, so that a pause
        that follows from it does not follow from itself.
        """
        return max(self._prompt_ns)

    def queued_ns(self) -> Duration:
        """Return how much longer than at best the best answers of late took: what waits in queues on the slowest way.

        Losses hold up some answers, queues all of them.
        """
        return max(self._queued_ns)
