"""Which PDUs are known to exist and have not come, and when to ask for them: one outstanding RET per source.

Pauses are drawn at random between one and one and a half times their length. Members that all asked, or answered, at
the same instants would overrun the same receiver's buffer for ever, always at the cost of the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.ordering.co.pdus import RET_GAPS_MAX, CoOptions
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule

DOUBLINGS_MIN: Final = 2
DOUBLINGS_MAX: Final = 16


class Request(msgspec.Struct):
    """When to ask a source, and how often it was asked in vain."""

    ask_at: Instant
    tries: int = 0


class Losses:
    """The failure conditions' memory."""

    def __init__(self, context: PartContext, options: CoOptions, trips: RoundTrips) -> None:
        self._options, self._jittered, self._trips = options, context.jittered, trips
        self._known = [1] * context.size  # per source, one more than the highest number known to exist
        self.requests: dict[int, Request] = {}
        self._quiet_until: Instant = 0  # after one datagram of RETs there is none for a while

    @property
    def deadline(self) -> Instant | None:
        """When the next RET is due."""
        if not self.requests:
            return None
        return max(min(request.ask_at for request in self.requests.values()), self._quiet_until)

    @rule("Section 4.3, failure conditions, mended")
    def notice(self, source: int, end: int, req: int, hearsay: bool, now: Instant) -> None:
        """Hear that a source has sent everything below `end`, of which `req` is expected next here.

        If a later PDU of the source came, what is before it is lost, or late by a little. By hearsay, from another
        member, it may as well wait in the queue of a slow link: it is given the time of a round trip.
        """
        self._known[source] = max(self._known[source], end)
        if req >= self._known[source]:
            return
        pause_ns = self._pause_ns(source, 0, now) if hearsay else self._options.ret_grace_ns
        request = self.requests.get(source)
        if not hearsay:
            pause_ns += pause_ns * len(self.requests) // 4  # where much is missing at once, others ask for it too
        if request is None:
            self.requests[source] = Request(now + self._jittered(pause_ns))
        elif not hearsay and not request.tries:
            request.ask_at = min(request.ask_at, now + self._jittered(pause_ns))

    def advanced(self, source: int, req: int, now: Instant) -> None:
        """Hear that the source's PDUs below `req` are accepted; what is still missing need not wait long."""
        request = self.requests.get(source)
        if request is None:
            return
        if req >= self._known[source]:
            del self.requests[source]
        else:
            request.tries = max(0, request.tries - 1)
            request.ask_at = min(request.ask_at, now + self._jittered(self._pause_ns(source, 0, now)))

    @rule("docs/protocols/co.md, Losses")
    def postpone(self, source: int, now: Instant) -> None:
        """Wait before asking a source, since another member has just asked it for the same."""
        request = self.requests.get(source)
        if request is not None:
            pause_ns = self._pause_ns(source, request.tries, now)
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
                gaps = self.gaps(source, req[source], early[source], reach)
                request.ask_at = now + self._jittered(self._pause_ns(source, request.tries, now))
                if gaps:  # else all is here and waits for another source
                    asked.append((source, gaps))
                    request.tries += 1
        return asked

    @rule("docs/protocols/co.md, Slow links and overrun receivers")
    def quiet_ns(self) -> Duration:
        """Say how long to ask for nothing after RETs were sent; what is due meanwhile is asked for with them."""
        return self._jittered(self._options.ret_retry_ns)

    def _pause_ns(self, source: int, tries: int, now: Instant) -> Duration:
        """Give the time in which an answer should come, doubled with every vain try.

        The option limits this only as far as it leaves room for some doublings: without them a storm would never end.
        """
        first_ns = self._trips.timeout_ns(source, now)
        longest_ns = max(first_ns << DOUBLINGS_MIN, self._options.ret_retry_ns_max)
        return min(first_ns << min(tries, DOUBLINGS_MAX), longest_ns)

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
