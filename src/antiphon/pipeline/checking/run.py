"""What every task must know of a run before it looks at events: members, views, and the numbering of its messages."""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from antiphon.pipeline.checking.digests import Digests, read_digests
from antiphon.pipeline.columns import CRASH, END, LEAVE, VIEW, Array, MessageIndex, RunIndex, Slot, Unit, ViewIndex
from antiphon.pipeline.store.arena import Scratch
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import location

GONE: Final = -1
NOTHING: Final = -2
SETTLED: Final = "settled"  # the runs, under a task's first unit, that need no second stage
SMALL_BYTES: Final = 1 << 16  # arrays up to this size are kept at hand
TABLE_SIZE_MAX: Final = 1 << 22  # senders whose ids lie closer together than this are found by a table


class CheckJob(msgspec.Struct, frozen=True):
    """How to check, and where the scratch arrays lie."""

    layout: str
    scratch: str
    guarantees: tuple[str, ...]
    uniform: bool
    with_receipts: bool
    implied: bool
    unrecorded_sends: bool
    witnesses: int
    per_run: bool
    encode_tasks: int
    compare_tasks: int
    parallelism: int
    spans_known: bool = False  # the numbers of unsteady senders have been collected
    strays_known: bool = False  # and those of messages that were never sent
    ends: bool = False  # every log that is whole has an `end`

    @property
    def compares(self) -> bool:
        """Whether any guarantee needs members side by side."""
        return not set(self.guarantees) <= {"integrity", "validity", "fifo", "partition-order"}


class RunView(NamedTuple):
    """A view is its number and its members."""

    number: int
    members: frozenset[int]


class ViewStays(NamedTuple):
    """The views that a member is in, one after the other, and from which position in its log on."""

    position: list[int]
    view: list[ViewIndex]


class Universe:
    """All messages of a run in order of (sender, number), numbered from 0, as spans of consecutive numbers."""

    def __init__(self, sender: Array, low: Array, high: Array, sent: Array) -> None:
        order = np.lexsort((low, sender))
        self.span_sender, self.low, self.high, self.span_sent = sender[order], low[order], high[order], sent[order]
        sizes = self.high - self.low + 1
        ends = np.cumsum(sizes)
        self.size = int(ends[-1]) if len(ends) else 0
        self.base = (ends - sizes).astype(np.int64)
        self.senders = np.unique(self.span_sender).astype(np.int64)
        self.first_span = np.searchsorted(self.span_sender, np.append(self.senders, np.iinfo(np.int64).max)).astype(
            np.int64
        )
        spread = int(self.senders[-1] - self.senders[0]) + 1 if len(self.senders) else 0
        self.table_base = int(self.senders[0]) if spread else 0
        self.table = np.zeros(0, np.int32)
        if 0 < spread <= TABLE_SIZE_MAX:
            self.table = np.full(spread, -1, np.int32)
            self.table[self.senders - self.table_base] = np.arange(len(self.senders), dtype=np.int32)

    @functools.cached_property
    def sent(self) -> Array:
        """Whether each message has a send."""
        return np.repeat(self.span_sent, self.high - self.low + 1).astype(np.uint8)

    def slot(self, sender: int) -> Slot:
        """The index of a sender; len(senders) where nothing is known of it."""
        at = int(np.searchsorted(self.senders, sender))
        return at if at < len(self.senders) and self.senders[at] == sender else len(self.senders)

    def message(self, number: MessageIndex) -> tuple[int, int]:
        """The (sender, number of the sender) of a message."""
        span = int(np.searchsorted(self.base, number, side="right")) - 1
        return int(self.span_sender[span]), int(self.low[span] + number - self.base[span])


class Workspace:
    """What one task of a check has open: the layout, the arrays of earlier stages, and the runs that it looks at."""

    def __init__(self, job: CheckJob) -> None:
        self.job = job
        self.layout = TraceLayout(location(job.layout))
        self.first_units = self.layout.unit_shares(job.encode_tasks)
        self.scratch = Scratch(job.scratch, self.first_units)
        self.run = functools.lru_cache(maxsize=64)(self._open_run)

    def _open_run(self, run: RunIndex) -> CheckedRun:
        return CheckedRun(self.layout, self.scratch, self.job, run)

    def settled(self) -> Array:
        """Return the runs that the first stage has settled."""
        tasks = range(len(self.first_units) - 1)
        found = [self.scratch.arena("encoded", task).get(int(self.first_units[task]), SETTLED) for task in tasks]
        return np.concatenate([np.zeros(0, np.int64), *(one for one in found if one is not None)])

    def units(self, task: int) -> range:
        """Return the units that an encoding task reads."""
        return range(int(self.first_units[task]), int(self.first_units[task + 1]))


class CheckedRun:
    """One run of a trace."""

    def __init__(self, layout: TraceLayout, scratch: Scratch, job: CheckJob, run: RunIndex) -> None:
        self.layout, self.job, self.run = layout, job, run
        self._scratch = scratch
        self._by_view: dict[tuple[Unit, str], dict[ViewIndex, list[Array]]] = {}
        self._stay_slices: dict[tuple[Unit, str], list[tuple[ViewIndex, int, int]]] = {}
        self._digests: dict[Unit, tuple[Digests, Digests]] = {}
        self._small_arrays: dict[tuple[str, Unit, str], Array] = {}
        self.name = layout.runs[run]
        self.units = layout.units_of(run)
        self.members = layout.unit_member[self.units.start : self.units.stop].astype(np.int64)
        self.unit_of: dict[int, Unit] = dict(zip(self.members.tolist(), self.units, strict=True))
        segments = layout.segments_of(run)
        self.global_clock = bool(layout.column["global_clock"][segments].any())
        self.has_stable = bool(layout.column["stable"][segments].any())
        self._read_skeleton()

    def _read_skeleton(self) -> None:
        """Replay the views, crashes, leaves and ends of every member."""
        initial = RunView(0, frozenset(self.members.tolist()))
        self.views: list[RunView] = [initial]
        number_of = {initial: 0}
        self.stays: dict[Unit, ViewStays] = {unit: ViewStays([0], [0]) for unit in self.units}
        self.follows: dict[Unit, dict[ViewIndex, ViewIndex]] = {unit: {0: NOTHING} for unit in self.units}
        self.installed_at: dict[Unit, dict[ViewIndex, int]] = {unit: {} for unit in self.units}
        ended: set[Unit] = set()
        self.gone: set[Unit] = set()
        table = self.layout.skeleton(self.run)
        units, positions = self._places(table)
        steps, events, numbers = (table[name].to_pylist() for name in ("step", "event", "view"))
        written: dict[tuple[int, bytes | None], ViewIndex] = {}  # a view as a row has it: members in any order
        for unit, position, step, event, number, members in zip(
            units, positions, steps, events, numbers, lists_as_bytes(table["members"]), strict=True
        ):
            stays, follows = self.stays[unit], self.follows[unit]
            current = stays.view[-1]
            if event == VIEW:
                installed = written.get((number, members), -1)
                if installed < 0:
                    named = initial.members if members is None else frozenset(np.frombuffer(members, np.int64).tolist())
                    installed = number_of.setdefault(RunView(number, named), len(self.views))
                    written[number, members] = installed
                    if installed == len(self.views):
                        self.views.append(RunView(number, named))
                if installed != current:
                    if follows[current] == NOTHING:
                        follows[current] = installed
                    follows[installed] = NOTHING
                    stays.position.append(position)
                    stays.view.append(installed)
                    self.installed_at[unit][installed] = step
            elif event in (CRASH, LEAVE):
                self.gone.add(unit)
                if follows[current] == NOTHING:
                    follows[current] = GONE
            elif event == END:
                ended.add(unit)
        self.has_views = len(self.views) > 1
        named = initial.members.union(*(view.members for view in self.views))
        says_end = bool(ended) or self.job.ends
        self.cut = {unit for unit in self.units if says_end and unit not in ended and unit not in self.gone}
        self.cut_members = {int(self.layout.unit_member[unit]) for unit in self.cut}
        if says_end:
            self.cut_members |= named - initial.members

    def _places(self, table: pa.Table) -> tuple[list[Unit], list[int]]:
        """The unit of each skeleton row, and its position in that member's whole log."""
        layout = self.layout
        member, step, position = (table[name].to_numpy() for name in ("member", "step", "position"))
        units = self.units.start + np.searchsorted(self.members, member)
        places = position.astype(np.int64)
        bounds = np.searchsorted(units, np.arange(self.units.start, self.units.stop + 1))
        for unit in np.flatnonzero((np.diff(bounds) > 0) & (np.diff(layout.bounds[units_and_end(self.units)]) > 1)):
            segments = slice(*layout.bounds[[self.units.start + unit, self.units.start + unit + 1]].tolist())
            rows = slice(*bounds[unit : unit + 2].tolist())
            earlier = np.searchsorted(layout.column["last_step"][segments], step[rows])
            places[rows] += np.append(0, np.cumsum(layout.column["rows"][segments]))[earlier]
        return units.tolist(), places.tolist()

    @functools.cached_property
    def universe(self) -> Universe:
        """The numbering of the run's messages, the same in every task."""
        layout = self.layout
        columns: list[tuple[Array, Array, Array, Array]] = []
        for unit in self.units:
            span = steady_span(layout, unit)
            if span is not None:
                low, high = np.array([span[0]], np.int64), np.array([span[1]], np.int64)
            else:
                assert self.job.spans_known
                low, high = self.array(unit, "low", "sends"), self.array(unit, "high", "sends")
            if len(low) and high[0] >= low[0]:
                columns.append(
                    (np.full(len(low), layout.unit_member[unit], np.int64), low, high, np.ones(len(low), bool))
                )
        if self.job.strays_known:
            strays = [
                np.stack([self.array(unit, name, "strays") for name in ("stray_sender", "stray_low", "stray_high")])
                for unit in self.units
            ]
            sender, low, high = merge_spans(*np.concatenate(strays, axis=1))
            columns.append((sender, low, high, np.zeros(len(low), bool)))
        if not columns:
            nothing = np.zeros(0, np.int64)
            return Universe(nothing, nothing, nothing, np.zeros(0, bool))
        return Universe(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    @functools.cached_property
    def cut_slots(self) -> Array:
        """Whether sends of each sender may be missing; one more entry for senders that nothing is known of."""
        senders = [*self.universe.senders.tolist(), None]
        return np.array([self.lacks_sends(sender) for sender in senders], np.uint8)

    def lacks_sends(self, sender: int | None) -> bool:
        """Say whether sends may be missing: the sender's log was cut short, or nobody logs sends."""
        return self.job.unrecorded_sends or sender in self.cut_members

    @functools.cached_property
    def sent_view(self) -> Array:
        """The view in which each message was sent."""
        views = np.zeros(self.universe.size, np.int32)
        if self.has_views:
            for unit in self.units:
                views[self.array(unit, "sends")] = self.array(unit, "sends_view")
        return views

    @functools.cached_property
    def _named(self) -> tuple[Array, Array]:
        """Each (view, member) of which the view names the member, as two columns."""
        views = np.repeat(np.arange(len(self.views)), [len(view.members) for view in self.views])
        return views, np.array([member for view in self.views for member in view.members], np.int64)

    def belongs(self, units: range) -> Array:
        """Whether each of some units belongs to each view."""
        views, members = self._named
        mine = self.layout.unit_member[units.start : units.stop].astype(np.int64)
        at = np.minimum(np.searchsorted(mine, members), len(mine) - 1)
        here = mine[at] == members
        found = np.zeros((len(self.views), len(mine)), np.uint8)
        found[views[here], at[here]] = 1
        return found

    def array(self, unit: Unit, name: str, stage: str = "encoded") -> Array:
        """Return one of the arrays that an earlier stage left for a unit; empty if it left none."""
        found = self._small_arrays.get((stage, unit, name))
        if found is None:
            found = self._scratch.array(stage, unit, name)
            if found.nbytes <= SMALL_BYTES:
                self._small_arrays[stage, unit, name] = found
        return found

    def digests(self, unit: Unit) -> tuple[Digests, Digests]:
        """Return the digests of what a member delivered, and of what it discarded, by view."""
        if unit not in self._digests:
            self._digests[unit] = read_digests(self.array(unit, "digests"))
        return self._digests[unit]

    def stay_slices(self, unit: Unit, name: str = "order") -> list[tuple[ViewIndex, int, int]]:
        """Return (view, start, stop): which part of the array the member did in which stay, empty parts left out."""
        if (unit, name) not in self._stay_slices:
            slices = self.slices(unit, self.array(unit, f"{name}_stays"), len(self.array(unit, name)))
            self._stay_slices[unit, name] = slices
        return self._stay_slices[unit, name]

    def by_view(self, unit: Unit, name: str) -> dict[ViewIndex, list[Array]]:
        """Return the parts of the array that the member did in each view, in order; views without any left out."""
        if (unit, name) not in self._by_view:
            array = self.array(unit, name)
            found: dict[ViewIndex, list[Array]] = {}
            for view, start, stop in self.stay_slices(unit, name):
                found.setdefault(view, []).append(array[start:stop])
            self._by_view[unit, name] = found
        return self._by_view[unit, name]

    @functools.cached_property
    def membership(self) -> dict[int, Array]:
        """For each member that any view names: whether each view does."""
        members = frozenset().union(*(view.members for view in self.views))
        return {member: np.array([member in view.members for view in self.views]) for member in members}

    def slices(self, unit: Unit, starts: Array, size: int) -> list[tuple[ViewIndex, int, int]]:
        """As `stay_slices`, for an array of this size whose stays start there."""
        if not self.has_views:
            return [(0, 0, size)] if size else []
        bounds = np.append(starts, size).tolist()
        return [
            (view, start, stop)
            for view, start, stop in zip(self.stays[unit].view, bounds, bounds[1:], strict=False)
            if stop > start
        ]


def units_and_end(units: range) -> Array:
    """The numbers of some units, and the one after the last."""
    return np.arange(units.start, units.stop + 1)


def lists_as_bytes(column: pa.ChunkedArray) -> list[bytes | None]:
    """Each list of numbers as the bytes of its 64-bit integers; None where there is none."""
    found: list[bytes | None] = []
    for chunk in column.chunks:
        first, last = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
        values = chunk.values.slice(first, last - first).to_numpy(zero_copy_only=False).astype(np.int64)
        offsets, missing = (chunk.offsets.to_numpy() - first).tolist(), chunk.is_null().to_pylist()
        found += [
            None if nothing else values[start:stop].tobytes()
            for nothing, start, stop in zip(missing, offsets, offsets[1:], strict=False)
        ]
    return found


def steady_span(layout: TraceLayout, unit: Unit) -> tuple[int, int] | None:
    """The numbers that a member sent, if they go up one by one; (1, 0) if it sent none."""
    segments = slice(int(layout.bounds[unit]), int(layout.bounds[unit + 1]))
    sends = layout.column["send"][segments] > 0
    if not sends.any():
        return 1, 0
    first, last = layout.column["first_seq"][segments][sends], layout.column["last_seq"][segments][sends]
    if layout.column["steady"][segments][sends].all() and (first[1:] == last[:-1] + 1).all():
        return int(first[0]), int(last[-1])
    return None


def all_steady(layout: TraceLayout) -> bool:
    """Say whether every member's numbers go up one by one, so that each unit has a steady span."""
    sends = np.flatnonzero(layout.column["send"] > 0)
    if not layout.column["steady"][sends].all():
        return False
    unit = np.searchsorted(layout.bounds, sends, side="right")
    same = unit[1:] == unit[:-1]
    first, last = layout.column["first_seq"][sends], layout.column["last_seq"][sends]
    return bool((first[1:] == last[:-1] + 1)[same].all())


def merge_spans(sender: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """The union of spans of numbers, as few spans as possible, in order."""
    if not len(sender):
        return sender, low, high
    order = np.lexsort((low, sender))
    sender, low, high = sender[order], low[order], high[order]
    fresh = np.ones(len(sender), bool)
    reach = _running_reach(sender, high)
    fresh[1:] = (sender[1:] != sender[:-1]) | (low[1:] > reach[:-1] + 1)
    starts = np.flatnonzero(fresh)
    return sender[starts], low[starts], np.maximum.reduceat(high, starts)


def _running_reach(sender: Array, high: Array) -> Array:
    """The highest number so far, for each sender by itself."""
    reach = high.copy()
    starts = np.flatnonzero(np.concatenate(([True], sender[1:] != sender[:-1])))
    for start, stop in zip(starts, np.append(starts[1:], len(sender)), strict=True):
        np.maximum.accumulate(reach[start:stop], out=reach[start:stop])
    return reach


def spans_of(numbers: Array) -> tuple[Array, Array]:
    """Sorted distinct numbers as spans of consecutive ones."""
    if not len(numbers):
        return numbers, numbers
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    return numbers[np.concatenate(([0], breaks + 1))], numbers[np.append(breaks, len(numbers) - 1)]
