"""What led to a failure: the few rows of the traces that tell it, for a terminal and as a page."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from antiphon.diagram.marks import tell_payload
from antiphon.protocol.machine import SECOND
from antiphon.protocol.membership.views import name_of
from antiphon.testing.errors import Violated
from antiphon.testing.trace import Run
from antiphon.testing.world import World
from antiphon.trace.event import Event
from antiphon.wording import ordinal

_TOLD: Final = ("send", "deliver", "discard", "view", "leave", "crash", "end")
_ROWS: Final = 40


class Story(msgspec.Struct, frozen=True):
    """Rows of one group's trace, those that show the failure marked by (member, step)."""

    run: Run
    rows: list[Event]
    marked: list[tuple[int, int]]
    title: str
    owners: Mapping[str, str]  # the processes by address

    def text(self) -> str:
        """Draw it for a terminal: a column a member, a line an event, a star where it is marked."""
        members = sorted({row.member for row in self.rows})
        # a witness speaks of members by number
        heads = [f" {member}: {self._name(member)}" if self.marked else f" {self._name(member)}" for member in members]
        payloads = {(row.sender, row.seq): tell_payload(row) for row in self.run.events if row.event == "send"}
        table = [["seconds", *heads]]
        for row in self.rows:
            star = "*" if (row.member, row.step) in self.marked else " "
            told = [star + self._told(row, payloads) if row.member == member else " ." for member in members]
            table.append([f"{(row.time_ns or 0) / SECOND:.6f}", *told])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table)
        return "\n".join(line.rstrip() for line in lines)

    def _name(self, process: int) -> str:
        address = self.run.addresses[name_of(process)]
        name = self.owners.get(address, address)
        earlier = [
            log
            for log in self.run.logs
            if name_of(log.member) == name_of(process) and log.member < process and log.took_part
        ]
        return f"{name}, {ordinal(len(earlier) + 1)} life" if earlier and self.run.views else name

    def _told(self, row: Event, payloads: Mapping[tuple[int | None, int | None], str]) -> str:
        if row.event == "view":
            return f"view {row.view} of {len(row.members or ())}"
        if row.sender is None or row.seq is None:
            return row.event
        own = row.sender == row.member
        which = f"own {row.seq}" if own else f"{re.sub(':[0-9]+$', '', self._name(row.sender))}/{row.seq}"
        return f"{row.event} {which} {payloads.get((row.sender, row.seq), '')}".rstrip()

    def page(self, *, clocks_agree: bool) -> str:
        """Draw it as a whole HTML file."""
        from antiphon.diagram.layout import lay_out
        from antiphon.diagram.page import page_of

        members = sorted({row.member for row in self.rows})
        called = {member: self._name(member) for member in members}
        layout = lay_out(self.rows, clocks_agree=clocks_agree, marked=self.marked, names=called)
        names = [f"member {member} is {self._name(member)}" for member in members]
        return page_of(layout, self.title, names, before=True, after=False)


def tell(world: World, error: BaseException) -> Story | None:
    """Choose what to show of a failure: what a witness speaks of, or else what happened last."""
    owners = world.host.network.owners
    if isinstance(error, Violated):
        run = world.runs[error.run]
        marked = [
            (event.member if event.member is not None else error.witness.member, event.step)
            for event in error.witness.events
        ]
        messages = {(event.sender, event.seq) for event in error.witness.events}
        rows = [row for row in error.events if (row.member, row.step) in marked or _is_about(row, messages)]
        return Story(run, _in_time(rows)[: 2 * _ROWS], marked, str(error), owners)
    told = {name: [row for row in run.events if row.event in _TOLD] for name, run in world.runs.items()}
    if not any(told.values()):
        return None
    name = max(told, key=lambda name: max((row.time_ns or 0 for row in told[name]), default=-1))  # the last to act
    title = f"{type(error).__name__} with seed {world.seed}: what happened last"
    return Story(world.runs[name], _in_time(told[name])[-_ROWS:], [], title, owners)


def _is_about(row: Event, messages: Collection[tuple[int | None, int | None]]) -> bool:
    return row.event == "view" or (
        row.event in ("send", "receive", "deliver", "discard") and (row.sender, row.seq) in messages
    )


def _in_time(rows: Sequence[Event]) -> list[Event]:
    return sorted(rows, key=lambda row: (row.time_ns or 0, row.member, row.step))


def write(world: World, story: Story | None, folder: Path) -> list[str]:
    """Write the traces of a failure, and its story as a page; say what lies where."""
    if not world.runs:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    world.write_trace(folder / "trace")
    lines = [f"its traces lie in {folder / 'trace'}"]
    if story is not None:
        page = folder / "diagram.html"
        page.write_text(story.page(clocks_agree=world.clocks_agree))
        lines.append(f"its diagram lies in {page}")
    return lines
