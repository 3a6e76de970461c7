"""The few rows of a trace that a witness is drawn with: found by tasks, a bounded number whatever the trace's size.

A window has the witness's own events, everything about the messages that they name at the members that are drawn, and
what happened just before and after at the members that are concerned.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from antiphon.pipeline.columns import CRASH, DELIVER, DISCARD, LEAVE, RECEIVE, SEND, STABLE, VIEW, Array
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import Location, location
from antiphon.trace.event import Event
from antiphon.trace.schema import COLUMNS
from antiphon.trace.verdict import Witness

ROWS_MAX: Final = 400  # of a window
MEMBERS_MAX: Final = 10  # lines of its diagram
NEIGHBOURS: Final = 4  # rows before and after each of the witness's events
_ROWS_PER_MEMBER_MAX: Final = 80
_ABOUT_VIEWS: Final = frozenset({"agreement", "view-synchrony"})
_ABOUT_LACK: Final = _ABOUT_VIEWS | {"validity"}
_OWN, _ABOUT, _BESIDE, _ELSEWHERE = range(4)  # which rows stay if there are too many


class NamedWitness(msgspec.Struct, frozen=True):
    """A witness, and the guarantee that it shows to be broken."""

    guarantee: str
    witness: Witness


class WitnessSubject(msgspec.Struct, frozen=True):
    """What one witness's window is to show."""

    guarantee: str
    run: str
    marked: list[tuple[int, int]]  # (member, step) of its events
    messages: list[tuple[int, int]]
    concerned: list[int]
    drawn: list[int]  # the concerned members and some others


class WitnessRows(msgspec.Struct):
    """The rows around one witness, in order of (member, step), and of how many members the run has."""

    events: list[Event]
    marked: list[tuple[int, int]]
    drawn: int
    members: int


class RankedRow(msgspec.Struct, array_like=True):
    """A row for the window of a number, and how much it matters."""

    window: int
    rank: int
    event: Event


def find_witness_rows(session: Session, folder: Location, witnesses: Sequence[NamedWitness]) -> list[WitnessRows]:
    """Find the rows around some witnesses in an ingested trace."""
    layout = TraceLayout(folder)
    subjects = [_subject(layout, named.guarantee, named.witness) for named in witnesses]
    units = sorted({unit for subject in subjects for unit in _units(layout, subject)})
    tasks = min(len(units), max(1, session.parallelism))
    work = functools.partial(_search, str(folder), subjects, [units[task::tasks] for task in range(tasks)])
    decode = msgspec.msgpack.Decoder(list[RankedRow]).decode
    by_window: list[list[RankedRow]] = [[] for _ in subjects]
    for result in session.each(tasks, work, "windows"):
        for found in decode(result):
            by_window[found.window].append(found)
    return [
        WitnessRows(_kept(found), subject.marked, len(subject.drawn), len(_members(layout, subject.run)))
        for subject, found in zip(subjects, by_window, strict=True)
    ]


def _kept(found: list[RankedRow]) -> list[Event]:
    first = sorted(found, key=lambda one: (one.rank, one.event.member, one.event.step))[:ROWS_MAX]
    return sorted((one.event for one in first), key=lambda event: (event.member, event.step))


def _subject(layout: TraceLayout, guarantee: str, witness: Witness) -> WitnessSubject:
    run, events = witness.run, witness.events
    marked = [(witness.member if event.member is None else event.member, event.step) for event in events]
    messages = sorted(
        {(event.sender, event.seq) for event in events if event.sender is not None and event.seq is not None}
    )
    present = _members(layout, run)
    wanted = [witness.member, *(member for member, _ in marked), *(sender for sender, _ in messages)]
    concerned = [member for member in dict.fromkeys(wanted) if member in present]
    others = [member for member in present if member not in concerned]
    drawn = [*concerned, *others[: max(0, MEMBERS_MAX - len(concerned))]]
    return WitnessSubject(guarantee, run, marked, messages, concerned, drawn)


def _run_units(layout: TraceLayout, run: str) -> range:
    number = layout.runs.index(run) if run in layout.runs else -1
    return range(*(int(bound) for bound in layout.run_bounds[number : number + 2])) if number >= 0 else range(0)


def _members(layout: TraceLayout, run: str) -> list[int]:
    return [int(layout.unit_member[unit]) for unit in _run_units(layout, run)]


def _units(layout: TraceLayout, subject: WitnessSubject) -> Iterator[int]:
    drawn = set(subject.drawn)
    return (unit for unit in _run_units(layout, subject.run) if int(layout.unit_member[unit]) in drawn)


def _search(folder: str, subjects: list[WitnessSubject], shares: list[list[int]], task: int) -> bytes:
    """Read some members' logs once each, and take from them what any of the windows wants."""
    layout = TraceLayout(location(folder))
    found: list[RankedRow] = []
    for unit in shares[task]:
        run, member = layout.runs[int(layout.unit_run[unit])], int(layout.unit_member[unit])
        wanted = [n for n, subject in enumerate(subjects) if subject.run == run and member in subject.drawn]
        column = layout.read(unit, ("event", "sender", "seq", "step"))
        for number in wanted:
            ranks = _ranked(subjects[number], member, column)
            chosen = sorted(ranks, key=lambda row: (ranks[row], row))[:_ROWS_PER_MEMBER_MAX]
            found += [
                RankedRow(number, ranks[row], event)
                for row, event in _events(layout, unit, chosen)
                if event.event != "control" or (event.detail or "").startswith("repair")
            ]
    return msgspec.msgpack.encode(found)


def _ranked(subject: WitnessSubject, member: int, column: dict[str, Array]) -> dict[int, int]:
    """The rows of one member's log that belong into a window, with their ranks."""
    event, sender, seq, step = (column[name] for name in ("event", "sender", "seq", "step"))
    own = [int(row) for who, at in subject.marked if who == member for row in np.flatnonzero(step == at)]
    ranks = dict.fromkeys(own, _OWN)

    def add(rows: Iterable[Any], rank: int) -> None:
        for row in rows:
            ranks.setdefault(int(row), rank)

    concerned = member in subject.concerned
    steps = np.isin(event, (SEND, RECEIVE, DELIVER, DISCARD))
    for who, number in subject.messages:
        of_sender = sender == who
        about = of_sender & (seq == number) & (event != STABLE)  # of control rows only repairs will stay
        add(np.flatnonzero(about), _ABOUT if concerned else _ELSEWHERE)
        if subject.guarantee == "stability":
            add(np.flatnonzero(of_sender & (seq >= number) & (event == STABLE))[:1], _ABOUT)
        if concerned and not own and subject.guarantee in _ABOUT_LACK:  # show the sender's messages before and after
            add(np.flatnonzero(of_sender & (abs(seq - number) == 1) & steps), _BESIDE)
    near = np.flatnonzero(steps)
    for row in own:
        index = int(np.searchsorted(near, row))
        add(near[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1], _BESIDE)
    if subject.guarantee in _ABOUT_VIEWS and ranks:
        changes = np.flatnonzero(np.isin(event, (VIEW, LEAVE, CRASH)))
        index = int(np.searchsorted(changes, min(ranks)))
        add(changes[max(0, index - 1) : index + 1], _BESIDE)
    return ranks


def _events(layout: TraceLayout, unit: int, rows: list[int]) -> Iterator[tuple[int, Event]]:
    """Read rows of a member's log."""
    wanted, start = np.sort(np.array(rows, np.int64)), 0
    for segment in range(int(layout.bounds[unit]), int(layout.bounds[unit + 1])):
        size = int(layout.column["rows"][segment])
        here = wanted[(wanted >= start) & (wanted < start + size)]
        if len(here):
            source = layout.open_file(layout.files[layout.file[segment]])
            names = [name for name in COLUMNS if name in source.schema_arrow.names]
            group = source.read_row_group(int(layout.column["row_group"][segment]), columns=names, use_threads=False)
            taken = group.take(pa.array(here - start + int(layout.column["offset"][segment])))
            for row, content in zip(here.tolist(), taken.to_pylist(), strict=True):
                yield row, Event(**{name: value for name, value in content.items() if value is not None})
        start += size
