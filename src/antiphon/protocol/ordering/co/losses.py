"""Which PDUs are known to exist and have not come, and when to ask for them: one outstanding RET per source.

Pauses are drawn at random between one and one and a half times their length. Members that all asked, or answered, at
the same instants would overrun the same receiver's buffer for ever, always at the cost of the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.ordering.co.pdus import RET_GAPS_MAX, CoOptions
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule


class Request(msgspec.Struct):
    """When to ask a source, and how long to wait before asking again."""

    ask_at: Instant
    retry_ns: Duration


class Losses:
    """The failure conditions' memory."""

    def __init__(self, context: PartContext, options: CoOptions) -> None:
        self._options, self._jittered = options, context.jittered
        self._known = [1] * context.size  # per source, one more than the highest number known to exist
        self.requests: dict[int, Request] = {}

    @property
    def deadline(self) -> Instant | None:
        """When the next RET is due."""
        return min((request.ask_at for request in self.requests.values()), default=None)

    @rule("Section 4.3, failure conditions, mended")
    def notice(self, source: int, end: int, req: int, now: Instant) -> None:
        """Hear that a source has sent everything below `end`, of which `req` is expected next here."""
        self._known[source] = max(self._known[source], end)
        if req < self._known[source] and source not in self.requests:
            grace = self._jittered(self._options.ret_grace_ns)  # it may just be late
            self.requests[source] = Request(now + grace, self._options.ret_retry_ns)

    def advanced(self, source: int, req: int, now: Instant) -> None:
        """Hear that the source's PDUs below `req` are accepted; what is still missing need not wait long."""
        request = self.requests.get(source)
        if request is None:
            return
        if req >= self._known[source]:
            del self.requests[source]
        else:
            request.retry_ns = self._options.ret_retry_ns
            request.ask_at = min(request.ask_at, now + self._jittered(request.retry_ns))

    @rule("docs/protocols/co.md, Losses")
    def postpone(self, source: int, now: Instant) -> None:
        """Wait before asking a source, since another member has just asked it for the same."""
        request = self.requests.get(source)
        if request is not None:
            request.ask_at = max(request.ask_at, now + self._jittered(request.retry_ns))

    def due(
        self, now: Instant, req: Sequence[int], early: Sequence[Collection[int]], reach: int
    ) -> list[tuple[int, list[tuple[int, int]]]]:
        """Give the sources to ask now and for what, and set the time of the next try."""
        asked = []
        for source, request in self.requests.items():
            if request.ask_at <= now:
                gaps = self.gaps(source, req[source], early[source], reach)
                request.ask_at = now + self._jittered(request.retry_ns)
                if gaps:  # else all is here and waits for another source
                    asked.append((source, gaps))
                    request.retry_ns = min(2 * request.retry_ns, self._options.ret_retry_ns_max)
        return asked

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
