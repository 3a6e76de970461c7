"""A member's own log, kept in memory while it runs: the columns of the trace, one list each."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.protocol.machine import Instant
from antiphon.trace.event import Event


class MemberLog:
    """Collects the events of one member; `record` is what a `Member` calls."""

    def __init__(self, member: int, view: int) -> None:
        self.member, self.view = member, view
        self.times: list[int] = []
        self.events: list[str] = []
        self.senders: list[int | None] = []
        self.seqs: list[int | None] = []
        self.bytes: list[int | None] = []
        self.details: list[str | None] = []

    def __len__(self) -> int:
        return len(self.events)

    def record(
        self, now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
    ) -> None:
        """Append one event; its step is its place in this log, from 1."""
        self.times.append(now)
        self.events.append(event)
        self.senders.append(sender)
        self.seqs.append(seq)
        self.bytes.append(size)
        self.details.append(detail)

    def count(self, event: str) -> int:
        """Count the events of one name."""
        return self.events.count(event)

    def rows(self, run: str) -> Iterator[Event]:
        """Give the log as rows of a trace."""
        columns = zip(self.times, self.events, self.senders, self.seqs, self.bytes, self.details, strict=True)
        for step, (time_ns, event, sender, seq, size, detail) in enumerate(columns, 1):
            yield Event(run, self.member, step, event, sender, seq, time_ns, self.view, size, None, detail)
