"""A member's own log, kept in memory while it runs: the columns of the trace, one list each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from antiphon.protocol.machine import Instant, TraceRow
from antiphon.trace.event import Event

PayloadTeller: TypeAlias = Callable[[bytes], str]  # gives what a payload says, for the trace


class IncarnationLog(Protocol):
    """Where the rows of one incarnation of a member are written."""

    def write(self, now: Instant, row: TraceRow) -> None:
        """Write what a machine said."""


class IncarnationLogs:
    """Writes the rows of one member's machine, each to the log of its incarnation; `begin` makes such a log."""

    def __init__(self, begin: Callable[[int], IncarnationLog]) -> None:
        self._make = begin
        self._member: int | None = None

    def begin(self, member: int) -> None:
        """Begin the log of an incarnation, if it was not begun already."""
        if member != self._member:
            self._member, self._log = member, self._make(member)

    def note(self, now: Instant, detail: str) -> None:
        """Write what was done to the member from outside of its machine, if a log has begun."""
        if self._member is not None:
            self._log.write(now, TraceRow(self._member, "control", detail=detail))

    def write(self, now: Instant, row: TraceRow) -> None:
        """Write a row."""
        if row.member != self._member:
            self.begin(row.member)
        self._log.write(now, row)


class MemberLog:
    """Collects the events of one member; with `tell`, also what it sends."""

    def __init__(self, member: int, view: int, tell: PayloadTeller | None = None) -> None:
        self.member, self.view = member, view  # the view is the present one
        self.tell = tell
        self._stays: list[tuple[int, int, tuple[int, ...] | None]] = [(0, view, None)]  # (first row, view, members)
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
        """Append one event; its step is its position in this log, from 1."""
        self.times.append(now)
        self.events.append(event)
        self.senders.append(sender)
        self.seqs.append(seq)
        self.bytes.append(size)
        self.details.append(detail)

    def write(self, now: Instant, row: TraceRow) -> None:
        """Append what a machine said."""
        if row.view is not None:
            self.install(now, row.view, row.members or ())
        else:
            self.times.append(now)
            self.events.append(row.event)
            self.senders.append(row.sender)
            self.seqs.append(row.seq)
            self.bytes.append(row.bytes)
            told = row.detail if self.tell is None or row.payload is None else self.tell(row.payload)
            self.details.append(told)

    def install(self, now: Instant, number: int, members: tuple[int, ...]) -> None:
        """Append the beginning of a view, in which the events that follow happen."""
        self._stays.append((len(self), number, members))
        self.view = number
        self.record(now, "view", None, None, None, None)

    def ended_after(self, rows: int, now: Instant) -> MemberLog:
        """Give a log of the first rows of this one, which says that it is complete."""
        log = MemberLog(self.member, self._stays[0][1], self.tell)
        log._stays = [stay for stay in self._stays if stay[0] < rows or stay[2] is None]
        log.times, log.events, log.senders = self.times[:rows], self.events[:rows], self.senders[:rows]
        log.seqs, log.bytes, log.details = self.seqs[:rows], self.bytes[:rows], self.details[:rows]
        log.record(now, "end", None, None, None, None)
        return log

    def views(self) -> list[int]:
        """Give the column `view`."""
        ends = [first for first, _, _ in self._stays[1:]] + [len(self)]
        return [view for (first, view, _), end in zip(self._stays, ends, strict=True) for _ in range(first, end)]

    def members(self) -> dict[int, tuple[int, ...]]:
        """Give the column `members`: who is in the view that begins, by row."""
        return {first: members for first, _, members in self._stays if members is not None}

    @property
    def known_views(self) -> list[tuple[int, tuple[int, ...]]]:
        """The views that it was in, each as its number and members."""
        return [(number, members) for _, number, members in self._stays if members is not None]

    @property
    def took_part(self) -> bool:
        """Whether it got into a view, or into a group that has none."""
        return len(self._stays) > 1 or any(event in ("send", "deliver") for event in self.events)

    def count(self, event: str) -> int:
        """Count the events of one name."""
        return self.events.count(event)

    def rows(self, run: str) -> Iterator[Event]:
        """Give the log as rows of a trace."""
        members = self.members()
        columns = zip(
            self.times, self.events, self.senders, self.seqs, self.views(), self.bytes, self.details, strict=True
        )
        for row, (time_ns, event, sender, seq, view, size, detail) in enumerate(columns):
            yield Event(run, self.member, row + 1, event, sender, seq, time_ns, view, size, members.get(row), detail)
