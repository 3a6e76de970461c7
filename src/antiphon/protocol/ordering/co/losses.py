"""Which PDUs are known to exist and have not come, and when to ask for them: one outstanding RET per source.

Pauses are drawn at random between one and one and a half times their length. Members that all asked, or answered, at
the same instants would overrun the same receiver's buffer for ever, always at the cost of the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from antiphon.protocol.machine import SECOND, Duration, Instant
from antiphon.protocol.ordering.co.pdus import RET_GAPS_MAX, CoOptions
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import GrowingPause, RoundTripEstimate

ASKING_NS_MAX: Final = SECOND  # to ask is cheap, however long copies take
DOUBLINGS_MIN: Final = 2
TRIES_IN_HASTE: Final = 5  # requests in vain after which the pauses grow ...
TRIES_WHERE_OVERRUN: Final = 3  # ... and where receivers are overrun
UNANSWERED_MAX: Final = 3
MANY: Final = 4  # one in so many members
FEW: Final = 8  # members
DOUBLINGS_MAX: Final = 16


class Request(msgspec.Struct):
    """When to ask a source, how often it was asked in vain, and what it was asked for the last time."""

    since: Instant
    ask_at: Instant
    tries: int = 0
    asked_at: Instant = 0
    first: int = 0  # the lowest number that was asked for then; 0: nothing, or it has come


class Losses:
    """The failure conditions' memory."""

    def __init__(self, context: PartContext, options: CoOptions, trips: RoundTrips) -> None:
        self._options, self._jittered, self._trips = options, context.jittered, trips
        self._known = [1] * context.size  # per source, one more than the highest number known to exist
        self.requests: dict[int, Request] = {}
        self._answers = [RoundTripEstimate(options.ret_retry_ns) for _ in range(context.size)]  # from RET to repair
        # how much later than the word of others what they tell of comes by itself
        self._lateness = [RoundTripEstimate(0, timeout_ns_min=0) for _ in range(context.size)]
        crowded_ns = options.ret_retry_ns * context.size
        self._quiet = GrowingPause(context.jittered, options.ret_grace_ns, max(options.ret_retry_ns_max, crowded_ns))
        self._quiet_until: Instant = 0  # after one datagram of RETs there is none for a while
        self._asked = self._answered = 0  # sources: by the last RETs, and those of them that have sent something since

    @property
    def deadline(self) -> Instant | None:
        """When the next RET is due."""
        if not self.requests:
            return None
        return max(min(request.ask_at for request in self.requests.values()), self._quiet_until)

    @rule("docs/protocols/co.md, Slow links and overrun receivers")
    def spacing_ns(self) -> Duration:
        """Say about how long a member keeps from confirming; 0 if it lacks nothing.

        What comes will have to be confirmed as well, and each confirmation must come to everybody, be asked for and be
        sent again. Where repairs of several sources are waited for, receivers are overrun: then what they are sent
        decides how long all takes, and whoever lacks much waits the longer, the more members say the same.
        """
        if not self.requests:
            return 0
        many = sum(request.tries > 0 for request in self.requests.values()) > UNANSWERED_MAX
        crowd = len(self._known) if many else 1
        return self._jittered(max(self._options.ret_retry_ns * crowd, self._quiet.ns))

    @rule("Section 4.3, failure conditions, mended")
    def notice(self, source: int, end: int, req: int, hearsay: bool, now: Instant) -> None:
        """Hear that a source has sent everything below `end`, of which `req` is expected next here.

        If a later PDU of the source came, what is before it is lost, or late by a little. By hearsay, from another
        member, it may as well wait in the queue of a slow link: it is given the time of a round trip.
        """
        self._known[source] = max(self._known[source], end)
        if req >= self._known[source]:
            return
        request = self.requests.get(source)
        if request is not None and (hearsay or request.tries):
            return
        pause_ns = self.hearsay_grace_ns(source, now) if hearsay else self.gap_grace_ns(source)
        if not hearsay:
            pause_ns += pause_ns * len(self.requests) // 4  # where much is missing at once, others ask for it too
        if request is None:
            self.requests[source] = Request(now, now + self._jittered(pause_ns))
        else:
            request.ask_at = min(request.ask_at, now + self._jittered(pause_ns))

    @rule("docs/protocols/co.md, Slow links and overrun receivers")
    def gap_grace_ns(self, source: int) -> Duration:
        """Say how long a gap may close by itself: as late as PDUs usually come, a quarter of a round trip at most."""
        late_ns, shortest_ns = self._lateness[source].timeout_ns, self._trips.shortest_of_ns(source)
        return max(self._options.ret_grace_ns, min(late_ns, shortest_ns // 4))

    @rule("docs/protocols/co.md, Slow links and overrun receivers")
    def hearsay_grace_ns(self, source: int, now: Instant) -> Duration:
        """Say how long what others tell of may be on its way: as late as it usually comes after their word.

        Before anything came it is given a round trip, and never more: where much is lost, what comes late is mostly
        what others have asked for.
        """
        lateness, round_ns = self._lateness[source], self.retry_ns(source, 0, now)
        if lateness.mean_ns is None:
            return round_ns
        longest_ns = max(round_ns, self._trips.timeout_ns(source, now))
        return max(self._options.ret_grace_ns, min(lateness.timeout_ns, longest_ns))

    def came(self, source: int, number: int, now: Instant) -> None:
        """Learn from a PDU how late it was or, if it was asked for, how long repairs take.

        After several requests nobody knows which one it answers. The last is taken for it: too short a time at worst,
        and where answers take long the pauses grow until it is not.
        """
        request = self.requests.get(source)
        if request is None:
            self._lateness[source].measured(0)
        elif not request.tries or now - request.asked_at < self._trips.shortest_of_ns(source):
            self._lateness[source].measured(now - request.since)
        if request is not None and number == request.first:
            self._answers[source].measured(now - request.asked_at)
            self._answered += 1
            request.first = 0

    def advanced(self, source: int, req: int, now: Instant) -> None:
        """Hear that the source's PDUs below `req` are accepted; what is still missing need not wait long."""
        request = self.requests.get(source)
        if request is None:
            return
        if req >= self._known[source]:
            del self.requests[source]
        else:
            request.tries = max(0, request.tries - 1)
            request.ask_at = min(request.ask_at, now + self._jittered(self.retry_ns(source, 0, now)))

    @rule("docs/protocols/co.md, Losses")
    def postpone(self, source: int, now: Instant) -> None:
        """Wait before asking a source, since another member has just asked it for the same."""
        request = self.requests.get(source)
        if request is not None:
            pause_ns = self.retry_ns(source, request.tries, now)
            request.ask_at = max(request.ask_at, now + self._jittered(pause_ns))

    def due(
        self, now: Instant, req: Sequence[int], early: Sequence[Collection[int]], reach: int
    ) -> list[tuple[int, list[tuple[int, int]]]]:
        """Give the sources to ask now and for what, and set the time of the next try.

        Who asks at all asks all sources whose turn is near, in one datagram, and then none for the shortest round trip:
        where much is lost at once, requests are what receivers have least room for.
        """
        asked: list[tuple[int, list[tuple[int, int]]]] = []
        deadline = self.deadline
        if deadline is None or deadline > now:
            return asked
        self._quiet_until = now + self.quiet_ns()
        for source, request in self.requests.items():
            if request.ask_at <= self._quiet_until:
                gaps = self._ask(source, request, now, self.gaps(source, req[source], early[source], reach))
                if gaps:  # else all is here and waits for another source
                    asked.append((source, gaps))
        self._asked, self._answered = len(asked), 0
        return asked

    @rule("docs/protocols/co.md, Large messages")
    def ask_again(
        self, source: int, req: int, early: Collection[int], reach: int, now: Instant
    ) -> list[tuple[int, int]]:
        """Give what a source is asked for again when the mark behind its copies comes: they were lost."""
        request = self.requests.get(source)
        if request is None or not request.tries:
            return []
        return self._ask(source, request, now, self.gaps(source, req, early, reach))

    def _ask(self, source: int, request: Request, now: Instant, gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take note of what is asked for now, and set the time of the next try."""
        request.ask_at = now + self._jittered(self.retry_ns(source, request.tries, now))
        if gaps:
            request.tries += 1
            request.asked_at, request.first = now, gaps[0][0]
        return gaps

    @rule("Section 4.3, RET, mended; docs/protocols/co.md, Slow links and overrun receivers")
    def ret_targets(self, asked: Sequence[int]) -> tuple[int, ...] | None:
        """Say who hears RETs: all, to whom they are news; where much is lost, and in larger groups, those asked alone.

        Where PDUs overtake each other, much seems to be missing that is not, and each false alarm to all would cost as
        many datagrams as there are members.
        """
        size = len(self._known)
        return tuple(sorted(asked)) if len(asked) * MANY > size or size > FEW else None

    @rule("docs/protocols/co.md, Slow links and overrun receivers")
    def quiet_ns(self) -> Duration:
        """Say how long to ask for nothing after RETs were sent; what is due meanwhile is asked for with them.

        Where several of those who were asked last have sent nothing, receivers are overrun: the pause doubles.
        """
        if self._asked - self._answered > UNANSWERED_MAX:
            self._quiet.grow()
        else:
            self._quiet.renew()
        return self._quiet.ns

    @rule("docs/protocols/co.md, Slow links and overrun receivers")
    def retry_ns(self, source: int, tries: int, now: Instant) -> Duration:
        """Give the time in which an answer should come, doubled after some vain tries.

        The option limits this only as far as it leaves room for some doublings: without them a storm would never end.
        Where an answer takes half a second or more by itself there is none, and to double that would only cost time.
        """
        answers, least_ns = self._answers[source], self._options.ret_retry_ns
        in_haste = TRIES_WHERE_OVERRUN if self._quiet.ns > self._options.ret_grace_ns else TRIES_IN_HASTE
        doublings = min(max(0, tries - in_haste), DOUBLINGS_MAX)
        if answers.mean_ns is None:  # a round trip looks long where an answer was lost: grow up to it, and not beyond
            first_ns = max(least_ns, min(self._trips.timeout_ns(source, now), ASKING_NS_MAX))
            longest_ns = max(first_ns, least_ns << DOUBLINGS_MIN, self._options.ret_retry_ns_max)
            pause_ns = min(first_ns << doublings, longest_ns)
            return min(pause_ns, least_ns << min(tries, DOUBLINGS_MAX)) if tries else pause_ns
        # twice the mean at most: a repair that was lost itself makes the spread wide, and all wait for the next
        first_ns = max(least_ns, min(answers.timeout_ns, 2 * answers.mean_ns, ASKING_NS_MAX))
        doubled_ns = max(first_ns, min(first_ns << DOUBLINGS_MIN, ASKING_NS_MAX))
        return min(first_ns << doublings, max(doubled_ns, self._options.ret_retry_ns_max))

    def gaps(self, source: int, req: int, early: Collection[int], reach: int) -> list[tuple[int, int]]:
        """List what is missing of a source within reach, as ranges (first, end) with the end not included."""
        end = min(self._known[source], req + reach)
        gaps: list[tuple[int, int]] = []
        first = req
        for number in (*sorted(number for number in early if number < end), end):
            if first < number:
                gaps.append((first, number))
            first = number + 1
        return gaps[:RET_GAPS_MAX]
