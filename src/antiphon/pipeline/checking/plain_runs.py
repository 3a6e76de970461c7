"""Small runs by the thousand: one compiled pass settles those in which nothing unusual happened.

In a *plain* run all members are there from beginning to end and in every view, and deliver the same messages in the
same order, each after it was sent: all eight guarantees hold, and how much was examined follows from a few counts.
Whatever else a run does, it is no plain one and is checked by the stages that know what to say of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.checking.findings import Finding, TaskFindings
from antiphon.pipeline.checking.run import CheckJob, Workspace
from antiphon.pipeline.columns import CONTROL, DELIVER, END, NULL_TIME, RECEIVE, SEND, STABLE, VIEW, Array
from antiphon.pipeline.kernels import compiled, inlined
from antiphon.pipeline.store.layout import SMALL_RUN_MEMBERS, SMALL_RUN_ROWS, TraceLayout

COUNTED = ("integrity", "validity", "agreement", "fifo", "causal", "total", "stability", "view-synchrony")


def settle_plain_runs(here: Workspace, units: range, found: TaskFindings) -> Array:
    """Note what is found in the plain ones of the runs that lie within some units; return which they are."""
    job, layout = here.job, here.layout
    runs = _candidates(layout, units) if _applies(job) else np.zeros(0, np.int64)
    settled: list[Array] = [np.zeros(0, np.int64)]
    groups = _row_groups(layout, runs)
    views = _Views(layout) if groups else None
    for group in groups:
        assert views is not None
        plain, counts = _look(layout, group, views, times="stability" in job.guarantees)
        _note(layout, group[plain], counts[plain], job, found)
        settled.append(group[plain])
    return np.sort(np.concatenate(settled))


def _applies(job: CheckJob) -> bool:
    """Whether the options are those under which a plain run is as it is said here."""
    return not (job.uniform or job.with_receipts or job.implied or job.unrecorded_sends)


def _candidates(layout: TraceLayout, units: range) -> Array:
    """Return the small runs that lie within some units, whose rows lie in one row group, member after member."""
    bounds = layout.run_bounds
    first, after = np.searchsorted(bounds, units.start), np.searchsorted(bounds, units.stop, side="right") - 1
    runs = np.arange(first, max(first, after))
    runs = runs[np.diff(bounds)[runs] <= SMALL_RUN_MEMBERS]
    one_segment = np.diff(layout.bounds) == 1
    segment = layout.bounds[:-1]
    offset, rows = layout.column["offset"][segment], layout.column["rows"][segment]
    follows = np.ones(len(segment), bool)  # its rows lie right behind those of the unit before it
    follows[1:] = (
        one_segment[1:]
        & one_segment[:-1]
        & (layout.file[segment[1:]] == layout.file[segment[:-1]])
        & (layout.column["row_group"][segment[1:]] == layout.column["row_group"][segment[:-1]])
        & (offset[1:] == offset[:-1] + rows[:-1])
    )
    apart = np.concatenate(([0], np.cumsum(~follows)))  # before each unit
    together = apart[bounds[runs + 1]] == apart[bounds[runs] + 1]
    small = np.add.reduceat(layout.unit_rows, bounds[:-1])[runs] <= SMALL_RUN_ROWS if len(runs) else together
    chosen: Array = runs[together & one_segment[bounds[runs]] & small]
    return chosen


def _row_groups(layout: TraceLayout, runs: Array) -> list[Array]:
    """Part runs by the row group that they lie in; those of files with topics are left out."""
    if not len(runs):
        return []
    segment = layout.bounds[layout.run_bounds[runs]]
    key = layout.file[segment].astype(np.int64) << 32 | layout.column["row_group"][segment]
    order = np.argsort(key, kind="stable")
    parts = np.split(runs[order], np.flatnonzero(np.diff(key[order])) + 1)
    files = [layout.open_file(layout.where(int(layout.bounds[layout.run_bounds[part[0]]]))[0]) for part in parts]
    return [part for part, file in zip(parts, files, strict=True) if "topic" not in file.schema_arrow.names]


class _Views:
    """Where views are installed, and which number each has; -1 if it does not name exactly the run's members."""

    def __init__(self, layout: TraceLayout) -> None:
        table, bounds = layout.whole_skeleton()
        installs = table["event"].to_numpy() == VIEW
        run = np.repeat(np.arange(len(layout.runs)), np.diff(bounds))[installs]
        member, position, number = (table[name].to_numpy()[installs] for name in ("member", "position", "view"))
        units = layout.unit_run.astype(np.int64) << 32 | layout.unit_member.astype(np.int64) + (1 << 31)
        unit = np.searchsorted(units, run << 32 | member.astype(np.int64) + (1 << 31))
        segment = layout.bounds[unit]
        lists = pa.concat_arrays(table["members"].chunks or [pa.array([], table.schema.field("members").type)])
        all_members = _name_all(layout, run, lists.filter(pa.array(installs)))
        self.segment, self.row = segment, layout.column["offset"][segment] + position
        self.number = np.where(all_members, number, -1)

    def numbers(self, layout: TraceLayout, first: int, rows: int) -> Array:
        """Return the numbers of views by row of the row group that a segment lies in."""
        file, group = layout.file, layout.column["row_group"]
        here = (file[self.segment] == file[first]) & (group[self.segment] == group[first])
        numbers = np.full(rows, -1, np.int64)
        numbers[self.row[here]] = self.number[here]
        return numbers


def _name_all(layout: TraceLayout, run: Array, lists: pa.ListArray) -> Array:
    """Whether each list, in order, names the members of a run, or there is none."""
    missing: Array = lists.is_null().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = lists.flatten().to_numpy(zero_copy_only=False)
    start = np.cumsum(sizes) - sizes
    wanted = np.diff(layout.run_bounds)[run]
    good = ~missing & (sizes == wanted)
    row = np.repeat(np.flatnonzero(good), wanted[good])
    at = np.arange(len(row)) - np.repeat(np.cumsum(wanted[good]) - wanted[good], wanted[good])
    same = values[start[row] + at] == layout.unit_member[layout.run_bounds[run[row]] + at]
    good[row[~same]] = False
    named: Array = good | missing
    return named


def _look(layout: TraceLayout, runs: Array, views: _Views, *, times: bool) -> tuple[Array, Array]:
    """Look at runs of one row group: which are plain, and the counts of each."""
    bounds = layout.run_bounds
    sizes = np.diff(bounds)[runs]
    units = np.repeat(bounds[runs] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    segment = layout.bounds[units]
    start = layout.column["offset"][segment]
    stop = start + layout.column["rows"][segment]
    clock = layout.column["global_clock"][segment].astype(bool) & times
    wanted = ("event", "sender", "seq", *(("time_ns",) if clock.any() else ()))
    column = layout.row_group(int(segment[0]), wanted)
    time = column.get("time_ns", np.zeros(0, np.int64)).astype(np.int64)
    numbers = views.numbers(layout, int(segment[0]), len(column["event"]))
    plain, counts = np.zeros(len(runs), np.bool_), np.zeros((len(runs), len(COUNTED)), np.int64)
    members = Units(
        np.concatenate(([0], np.cumsum(sizes))), start, stop, layout.unit_member[units].astype(np.int64), clock
    )
    rows = Rows(column["event"], column["sender"].astype(np.int64), column["seq"].astype(np.int64), time, numbers)
    look_at_runs(members, rows, _empty_books(), plain, counts)
    return plain, counts


def _note(layout: TraceLayout, runs: Array, counts: Array, job: CheckJob, found: TaskFindings) -> None:
    names = [(column, name) for column, name in enumerate(COUNTED) if name in job.guarantees]
    if job.per_run:
        for run, of_run in zip(runs.tolist(), counts.tolist(), strict=True):
            for column, name in names:
                found.add(layout.runs[run], name, Finding(of_run[column]))
    elif len(runs):
        whole = counts.sum(axis=0).tolist()
        for column, name in names:
            found.add("", name, Finding(whole[column]))


class Units(NamedTuple):
    """The members of runs: run r has those from first[r] up to first[r + 1], each with its rows start .. stop."""

    first: Array
    start: Array
    stop: Array
    member: Array
    global_clock: Array


class Rows(NamedTuple):
    """The columns of a row group; `view_number` has the number of a view that names all, -1 for any other."""

    code: Array
    sender: Array
    seq: Array
    time: Array  # empty where nobody compares times
    view_number: Array


class Books(NamedTuple):
    """What is written down of one run: of its senders, its messages (numbered sender after sender), and its order."""

    low: Array  # by sender: the number of its first message,
    size: Array  # how many it sent,
    base: Array  # and its first in the numbering of the run
    highest: Array  # by sender: the last of its messages that the member at hand delivered
    author: Array  # by message: who sent it
    sent: Array
    received: Array  # by the member at hand,
    held: Array  # and since when
    latest: Array  # when the last member but its author held it
    order: Array  # the deliveries of the first member,
    order_stay: Array  # with the number of views before each,
    stay_view: Array  # and what these views are called
    tally: Array


MESSAGES, DELIVERIES, STAYS, ENDED, MARKS, PASTS, TALLIES = range(7)


def _empty_books() -> Books:
    kinds = dict.fromkeys(("sent", "received"), np.bool_)
    lengths = dict.fromkeys(("low", "size", "base", "highest"), SMALL_RUN_MEMBERS) | {"tally": TALLIES}
    return Books(*(np.empty(lengths.get(name, SMALL_RUN_ROWS), kinds.get(name, np.int64)) for name in Books._fields))


@compiled
def look_at_runs(units: Units, rows: Rows, books: Books, plain: Array, counts: Array) -> None:
    """Say of each run whether it is plain, and what is examined in it if it is."""
    tally = books.tally
    for run in range(units.first.size - 1):
        first, after = units.first[run], units.first[run + 1]
        good = _number_messages(units, rows, books, first, after)
        for unit in range(first, after):
            good = good and _does_as_the_first(units, rows, books, first, after, unit)
        good = good and tally[DELIVERIES] == tally[MESSAGES] and (tally[ENDED] == 0 or tally[ENDED] == after - first)
        if good and tally[MARKS] and units.global_clock[first]:
            good = _marks_are_right(units, rows, books, first, after)
        plain[run] = good
        if good:
            _count(books, after - first, counts[run])


@compiled
def _number_messages(units: Units, rows: Rows, books: Books, first: int, after: int) -> bool:
    """Open the books of a run; False if somebody does not number its messages one by one."""
    messages = np.int64(0)
    books.tally[:] = 0
    for who in range(after - first):
        low, size = np.int64(0), np.int64(0)
        for row in range(units.start[first + who], units.stop[first + who]):
            if rows.code[row] == SEND:
                if not size:
                    low = rows.seq[row]
                elif rows.seq[row] != low + size:
                    return False
                size += 1
        books.low[who], books.size[who], books.base[who] = low, size, messages
        books.author[messages : messages + size] = who
        messages += size
    books.sent[:messages] = False
    books.latest[:messages] = NULL_TIME
    books.tally[MESSAGES] = messages
    return True


@inlined
def _author(units: Units, rows: Rows, first: int, after: int, row: int) -> int:
    """Return whose message a row is about: its place among the members, behind all of them if it is nobody's."""
    who = 0
    while first + who < after and units.member[first + who] != rows.sender[row]:
        who += 1
    return who


@compiled
def _does_as_the_first(units: Units, rows: Rows, books: Books, first: int, after: int, unit: int) -> bool:
    """Read a member's log: whether it has the views and deliveries of the first one, and each in its place."""
    tally, me, is_first = books.tally, unit - first, unit == first
    messages = tally[MESSAGES]
    books.received[:messages] = False
    books.held[:messages] = np.iinfo(np.int64).max
    books.highest[: after - first] = -1
    delivered = stay = sends = 0
    view_before = np.int64(0)
    ended = False
    for row in range(units.start[unit], units.stop[unit]):
        kind = rows.code[row]
        if kind == CONTROL:
            continue
        if kind == END:
            if ended:
                return False
            ended = True
            continue
        if kind == VIEW:
            view = rows.view_number[row]
            if view <= view_before:
                return False
            if is_first:
                books.stay_view[stay] = view
                tally[STAYS] += 1
            elif stay >= tally[STAYS] or books.stay_view[stay] != view:
                return False
            view_before = view
            stay += 1
            continue
        if kind not in (SEND, DELIVER, RECEIVE, STABLE):
            return False
        who = _author(units, rows, first, after, row)
        if first + who == after or not books.low[who] <= rows.seq[row] < books.low[who] + books.size[who]:
            return False
        message = books.base[who] + rows.seq[row] - books.low[who]
        if kind == SEND:
            books.sent[message] = True
            tally[PASTS] += sends > 0 or delivered > 0
            sends += 1
        elif kind == STABLE:
            tally[MARKS] += 1
        elif kind == RECEIVE:
            if rows.time.size and not books.received[message]:
                books.held[message] = min(books.held[message], rows.time[row])
            books.received[message] = True
        else:
            if rows.time.size:
                books.held[message] = min(books.held[message], rows.time[row])
            if message <= books.highest[who] or (who == me and not books.sent[message]):
                return False
            books.highest[who] = message
            if is_first:
                books.order[delivered], books.order_stay[delivered] = message, stay
                tally[DELIVERIES] += 1
            elif (
                delivered >= tally[DELIVERIES]
                or books.order[delivered] != message
                or books.order_stay[delivered] != stay
            ):
                return False
            delivered += 1
    tally[ENDED] += ended
    for message in range(messages):
        if books.author[message] != me:
            books.latest[message] = max(books.latest[message], books.held[message])
    return bool(delivered == tally[DELIVERIES] and stay == tally[STAYS])


@compiled
def _marks_are_right(units: Units, rows: Rows, books: Books, first: int, after: int) -> bool:
    """Whether by the time of each mark everyone else held all that it covers."""
    latest = books.latest
    for message in range(1, books.tally[MESSAGES]):
        if books.author[message] == books.author[message - 1]:
            latest[message] = max(latest[message], latest[message - 1])
    for row in range(units.start[first], units.stop[after - 1]):
        if rows.code[row] == STABLE:
            who = _author(units, rows, first, after, row)
            message = books.base[who] + rows.seq[row] - books.low[who]
            if rows.time[row] != NULL_TIME and latest[message] > rows.time[row]:
                return False
    return True


@compiled
def _count(books: Books, members: int, counts: Array) -> None:
    """Count what each guarantee examines in a plain run, in the order of `COUNTED`."""
    tally = books.tally
    messages, pairs = tally[MESSAGES], members * (members - 1) // 2
    counts[0] = counts[3] = members * messages
    counts[1] = messages
    counts[2] = members * messages if members > 1 else 0
    counts[4] = members * tally[PASTS]
    counts[5] = pairs if messages > 1 else 0
    counts[6] = tally[MARKS]
    at = 0
    for stay in range(1, tally[STAYS]):  # views that were installed and that another follows
        while at < tally[DELIVERIES] and books.order_stay[at] < stay:
            at += 1
        if at < tally[DELIVERIES] and books.order_stay[at] == stay:
            counts[7] += pairs
