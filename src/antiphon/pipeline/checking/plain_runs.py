"""Small runs by the thousand: one compiled pass settles those in which everything is as it should be.

In a *plain* run all members are there from beginning to end and in every view, and deliver the same messages in the
same order, each after it was sent: all eight guarantees hold, and how much was examined follows from a few counts.
Whatever else a run does, it is no plain one and is checked by the stages that know what to say of it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.checking.findings import Finding, TaskFindings
from antiphon.pipeline.checking.run import CheckJob, Workspace
from antiphon.pipeline.columns import CONTROL, DELIVER, END, NULL_TIME, RECEIVE, SEND, STABLE, VIEW, Array
from antiphon.pipeline.kernels import compiled
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
    first = np.concatenate(([0], np.cumsum(sizes)))
    look_at_runs(
        first, start, stop, layout.unit_member[units].astype(np.int64), clock, column["event"],
        column["sender"].astype(np.int64), column["seq"].astype(np.int64), time, numbers, plain, counts,
    )  # fmt: skip
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


@compiled
def look_at_runs(
    first_unit: Array,
    start: Array,
    stop: Array,
    member: Array,
    clock: Array,
    code: Array,
    sender: Array,
    seq: Array,
    time: Array,
    view: Array,
    plain: Array,
    counts: Array,
) -> None:
    """Say of each run whether it is plain, and what would be examined in it.

    Run r has the units first_unit[r] .. first_unit[r + 1], each with its member and its rows start .. stop.
    """
    order = np.empty(
        SMALL_RUN_ROWS, np.int64
    )  # the deliveries of the first member, with the number of views before each
    order_stay = np.empty(SMALL_RUN_ROWS, np.int64)
    stay_number = np.empty(SMALL_RUN_ROWS, np.int64)
    held, latest = np.empty(SMALL_RUN_ROWS, np.int64), np.empty(SMALL_RUN_ROWS, np.int64)
    by_whom = np.empty(SMALL_RUN_ROWS, np.int64)
    sent, received = np.empty(SMALL_RUN_ROWS, np.bool_), np.empty(SMALL_RUN_ROWS, np.bool_)
    low, size, base = (
        np.empty(SMALL_RUN_MEMBERS, np.int64),
        np.empty(SMALL_RUN_MEMBERS, np.int64),
        np.empty(SMALL_RUN_MEMBERS, np.int64),
    )
    highest = np.empty(SMALL_RUN_MEMBERS, np.int64)
    for run in range(first_unit.size - 1):
        first = first_unit[run]
        n = first_unit[run + 1] - first
        good = True
        messages = 0
        marks = pasts = ended = 0
        for i in range(n):  # what is sent
            base[i], size[i], low[i] = messages, 0, 0
            for row in range(start[first + i], stop[first + i]):
                if code[row] == SEND:
                    if size[i] and seq[row] != low[i] + size[i]:
                        good = False
                    if not size[i]:
                        low[i] = seq[row]
                    size[i] += 1
            messages += size[i]
        by_whom[:messages] = -1
        for i in range(n):
            by_whom[base[i] : base[i] + size[i]] = i
        sent[:messages] = False
        latest[:messages] = NULL_TIME
        deliveries = stays = 0
        for i in range(n):
            if not good:
                break
            unit = first + i
            received[:messages] = False
            highest[:n] = -1
            held[:messages] = np.iinfo(np.int64).max
            here = stay = sends = 0
            before = np.int64(0)
            done = False
            for row in range(start[unit], stop[unit]):
                kind = code[row]
                if kind == END:
                    good = good and not done
                    done = True
                elif kind == VIEW:
                    good = good and view[row] > before
                    before = view[row]
                    if i == 0:
                        stay_number[stays] = before
                        stays += 1
                    elif stay >= stays or stay_number[stay] != before:
                        good = False
                    stay += 1
                elif kind in (SEND, DELIVER, RECEIVE, STABLE):
                    who = 0
                    while who < n and member[first + who] != sender[row]:
                        who += 1
                    if who == n or not low[who] <= seq[row] < low[who] + size[who]:
                        good = False
                        break
                    message = base[who] + seq[row] - low[who]
                    if kind == SEND:
                        sent[message] = True
                        pasts += sends > 0 or here > 0
                        sends += 1
                    elif kind == STABLE:
                        marks += 1
                    elif kind == RECEIVE:
                        if time.size and not received[message]:
                            held[message] = min(held[message], time[row])
                        received[message] = True
                    else:
                        if time.size:
                            held[message] = min(held[message], time[row])
                        good = message > highest[who] and (who != i or sent[message])
                        highest[who] = message
                        if i == 0:
                            order[here], order_stay[here] = message, stay
                            deliveries += 1
                        elif here >= deliveries or order[here] != message or order_stay[here] != stay:
                            good = False
                        here += 1
                elif kind != CONTROL:
                    good = False
                if not good:
                    break
            good = good and here == deliveries and stay == stays
            ended += done
            for message in range(messages):
                if by_whom[message] != i:
                    latest[message] = max(latest[message], held[message])
        good = good and deliveries == messages and (ended == 0 or ended == n)
        if good and marks and clock[first]:
            good = _marks_are_right(
                first, first + n, start, stop, member, code, sender, seq, time, low, base, by_whom, messages, latest
            )
        plain[run] = good
        if not good:
            continue
        pairs = n * (n - 1) // 2
        counts[run, 0] = counts[run, 3] = n * messages
        counts[run, 1] = messages
        counts[run, 2] = n * messages if n > 1 else 0
        counts[run, 4] = n * pasts
        counts[run, 5] = pairs if messages > 1 else 0
        counts[run, 6] = marks
        at = 0
        for stay in range(1, stays):  # views that were installed and that another follows
            while at < deliveries and order_stay[at] < stay:
                at += 1
            if at < deliveries and order_stay[at] == stay:
                counts[run, 7] += pairs


@compiled
def _marks_are_right(
    first: int,
    last: int,
    start: Array,
    stop: Array,
    member: Array,
    code: Array,
    sender: Array,
    seq: Array,
    time: Array,
    low: Array,
    base: Array,
    by_whom: Array,
    messages: int,
    latest: Array,
) -> bool:
    """Whether by the time of each mark everyone else held all that it covers; `latest` says when the last one did."""
    for message in range(1, messages):
        if by_whom[message] == by_whom[message - 1]:
            latest[message] = max(latest[message], latest[message - 1])
    for unit in range(first, last):
        for row in range(start[unit], stop[unit]):
            if code[row] == STABLE:
                who = 0
                while member[first + who] != sender[row]:
                    who += 1
                if time[row] != NULL_TIME and latest[base[who] + seq[row] - low[who]] > time[row]:
                    return False
    return True
