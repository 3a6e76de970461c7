"""Large copies that are sent again: once, and behind them goes a mark, which tells whether they were lost.

On a slow link a large copy takes seconds, and before one has come nobody knows how many. If it were sent again each
time it is asked for meanwhile, all that follows would wait behind copies that nobody needs. So it is sent once, and a
mark follows it: a numbered PDU of a few bytes, which waits its turn behind the copy. Whoever asks says which mark it
has heard last. What it asks for although it has heard the mark behind it was lost, however slow or quick the link is,
and is sent again; where it has not, only another mark goes.
"""

from __future__ import annotations

from typing import ClassVar, Final

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Number, Pdu

CHEAP_BYTES: Final = 256  # a copy of fewer is not worth a mark: it is sent again


class RepairMark(Pdu, tag=5):
    """Follow copies that were sent again; `heard`: come with a request, and say which mark was heard last."""

    kind: ClassVar[str] = "repair-mark"
    number: Number
    heard: bool = False


class RepairMarks:
    """The large copies that a member has sent again, by receiver, and the marks behind them; and those of others."""

    def __init__(self, behind_ns: Duration) -> None:
        """Let a mark follow a copy after a pause, since datagrams may overtake each other."""
        self._behind_ns = behind_ns
        self.due: dict[int, Instant] = {}  # member -> when it is sent a mark
        self._following: dict[int, int] = {}  # member -> the number of its next mark, if not the first
        self._copied: dict[int, dict[int, int]] = {}  # own number -> member -> the mark that follows the last copy
        self._back: dict[int, int] = {}  # member -> the last mark that it has heard
        self._heard: dict[int, int] = {}  # source -> its last mark that was heard here

    # What this member sends again

    @rule("docs/protocols/fifo.md, Slow links")
    def wanted(self, member: int, number: int, now: Instant) -> bool:
        """Say whether a member that asks needs a copy: there was none yet, or it is lost; if not, plan a mark."""
        mark = self._copied.get(number, {}).get(member)
        if mark is None or mark <= self._back.get(member, 0):
            return True
        self.due.setdefault(member, now + self._behind_ns)
        return False

    def sent(self, member: int, number: int, now: Instant) -> None:
        """Take note of a copy that is sent, and plan the mark behind it."""
        self._copied.setdefault(number, {})[member] = self._following.get(member, 1)
        self.due[member] = now + self._behind_ns

    def take_due(self, now: Instant) -> list[tuple[int, RepairMark]]:
        """Give the members that are sent a mark now, and their marks."""
        if not self.due:
            return []
        members = [member for member, at in self.due.items() if at <= now]
        for member in members:
            del self.due[member]
            self._following[member] = self._following.get(member, 1) + 1
        return [(member, RepairMark(self._following[member] - 1)) for member in members]

    def release(self, number: int) -> None:
        """Forget a number that everyone holds."""
        self._copied.pop(number, None)
        if not self._copied:
            self.due.clear()

    # What others do

    def take(self, member: int, mark: RepairMark) -> bool:
        """Take a mark from the network; say whether it is a new one that follows copies for this member."""
        marks = self._back if mark.heard else self._heard
        is_new = mark.number > marks.get(member, 0)
        if is_new:
            marks[member] = mark.number
        return is_new and not mark.heard

    def heard(self, source: int) -> list[Pdu]:
        """Give what goes with a request to a source: its last mark, if one was heard."""
        return [RepairMark(self._heard[source], heard=True)] if source in self._heard else []
