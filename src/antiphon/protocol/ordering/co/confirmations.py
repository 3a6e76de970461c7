"""When a member without data confirms what it has accepted: deferred, twice for each message, and then silence."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.ordering.co.logs import Logged
from antiphon.protocol.ordering.co.pdus import CoOptions
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule


class Confirmations:
    """What happened since one's own last PDU, and when it is to be confirmed."""

    def __init__(self, context: PartContext, options: CoOptions, trips: RoundTrips) -> None:
        self.rank, self.size, self.options, self.trips = context.rank, context.size, options, trips
        self.heard: set[int] = set()  # others of whom something was accepted
        self.unconfirmed = False  # data was accepted
        self.unconfirmed_by_all = False  # data was pre-acknowledged
        self.due_at: Instant | None = None

    @rule("Section 4.2, deferred confirmation, mended")
    def confirmation_owed(self) -> bool:
        """Say whether others wait for a confirmation of this member, which they do twice for each message.

        First when it is accepted (if it is one's own: when there is news of others besides), then when it is
        pre-acknowledged: all first confirmations are here then, and one PDU confirms them all. So a message causes at
        most 2n confirmations, and then there is silence.
        """
        news = bool(self.heard) or self.size == 1
        return (self.unconfirmed and news) or self.unconfirmed_by_all

    def accepted(self, p: Logged) -> None:
        """Take note of a PDU that was accepted."""
        if p.source != self.rank:
            self.heard.add(p.source)
        if p.payload is not None:
            self.unconfirmed = True

    def sent(self) -> None:
        """Owe nothing: what was just broadcast confirms everything."""
        self.heard.clear()
        self.unconfirmed = self.unconfirmed_by_all = False
        self.due_at = None

    def plan(self, now: Instant, *, owed: bool, spacing_ns: Callable[[], Duration]) -> None:
        """Set the time of the next confirmation: deferred, but not once something came from every other member.

        While something is known to be missing, more will have to be confirmed soon: it waits for `spacing_ns` too.
        """
        if not owed:
            self.due_at = None
        elif len(self.heard) == self.size - 1:
            self.due_at = now if self.due_at is None else min(self.due_at, now)
        elif self.due_at is None:
            self.due_at = now + max(self.deferral_ns(), spacing_ns())

    @rule("Section 4.2, deferred confirmation; docs/protocols/co.md, Slow links and overrun receivers")
    def deferral_ns(self) -> Duration:
        """Say how long a confirmation waits for data to ride on: longer where links are too slow for many of them."""
        return max(self.options.defer_ns, self.trips.queued_ns() // 2)
