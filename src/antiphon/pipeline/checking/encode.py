"""The first stage of a check: each member's log alone.

It settles integrity, validity and fifo, which need nothing of other members but which numbers were sent, and leaves for
the second stage what members must be compared by: orders, pasts and sets of messages, as small arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from antiphon.pipeline import kernels as k
from antiphon.pipeline.checking.brokers import COLUMNS as BROKER_COLUMNS
from antiphon.pipeline.checking.brokers import (
    MemberTopics,
    check_partition_order,
    has_topics,
    leave_consumption,
    leave_sends,
    read_topics,
)
from antiphon.pipeline.checking.findings import Finding, Stub, TaskFindings
from antiphon.pipeline.checking.plain_runs import settle_plain_runs
from antiphon.pipeline.checking.run import SETTLED, CheckedRun, CheckJob, Workspace, spans_of, steady_span
from antiphon.pipeline.checking.total import fingerprint
from antiphon.pipeline.columns import DELIVER, DISCARD, RECEIVE, SEND, STABLE, Array, Unit
from antiphon.pipeline.store.arena import ArenaWriter
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.trace.schema import BROKER_GUARANTEES


class Log(NamedTuple):
    """One member's rows, with the deliveries that its sends imply if that is asked for."""

    column: dict[str, Array]
    inserted_after: Array  # the rows after which a delivery was supposed

    def position(self, row: int) -> int:
        """Where a row of the trace is in this log."""
        return row + int(np.searchsorted(self.inserted_after, row))


def read_log(layout: TraceLayout, unit: Unit, columns: tuple[str, ...], implied: bool) -> Log:
    """Read a member's log; `columns` has event, sender and seq at least."""
    column = layout.read(unit, columns)
    if not implied:
        return Log(column, np.zeros(0, np.int64))
    event, sender, seq = column["event"], column["sender"], column["seq"]
    own = sender == layout.unit_member[unit]
    handled = seq[own & ((event == DELIVER) | (event == DISCARD))]
    sends = np.flatnonzero(event == SEND)
    numbers, first = np.unique(seq[sends], return_index=True)
    after = np.sort(sends[first[~np.isin(numbers, handled)]])
    column = {name: np.insert(values, after + 1, values[after]) for name, values in column.items()}
    column["event"][after + 1 + np.arange(len(after))] = DELIVER
    return Log(column, after)


def collect_sends(job: CheckJob, task: int) -> bytes:
    """Note the numbers of the members that do not number their messages one by one."""
    here = Workspace(job)
    arena = ArenaWriter(job.scratch, "sends", task)
    for unit in here.units(task):
        if steady_span(here.layout, unit) is None:
            rows = here.layout.read(unit, ("event", "seq"))
            low, high = spans_of(np.unique(rows["seq"][rows["event"] == SEND]))
            arena.put(unit, "low", low)
            arena.put(unit, "high", high)
    arena.close()
    return b""


def encode_members(job: CheckJob, task: int) -> bytes:
    """Read the logs of some members."""
    here = Workspace(job)
    found = TaskFindings(job.witnesses, job.per_run)
    arena = ArenaWriter(job.scratch, "encoded", task)
    strays = None if job.strays_known else ArenaWriter(job.scratch, "strays", task)
    units = here.units(task)
    settled = settle_plain_runs(here, units, found)
    arena.put(units.start, SETTLED, settled)
    found.settled = len(settled)
    for unit in (
        units.start + np.flatnonzero(~np.isin(here.layout.unit_run[units.start : units.stop], settled))
    ).tolist():
        run = here.run(int(here.layout.unit_run[unit]))
        _encode_unit(run, unit, found, arena, strays)
    arena.close()
    if strays is not None:
        strays.close()
    return msgspec.msgpack.encode(found)


def _encode_unit(
    run: CheckedRun, unit: Unit, found: TaskFindings, arena: ArenaWriter, strays: ArenaWriter | None
) -> None:
    job, universe = run.job, run.universe
    times = run.has_stable and run.global_clock and "stability" in job.guarantees
    more = (*(("time_ns",) if times else ()), *(BROKER_COLUMNS if has_topics(run.layout, unit) else ()))
    log = read_log(run.layout, unit, ("event", "sender", "seq", *more), job.implied)
    event, sender, seq = (log.column[name] for name in ("event", "sender", "seq"))
    topics = read_topics(log.column, run.layout.texts) if "topic" in log.column else None
    message, slot = np.empty(len(event), np.int32), np.empty(len(event), np.int32)
    lost = k.number_messages(
        event, sender, seq, universe.senders, universe.table, universe.table_base, universe.first_span,
        universe.low, universe.high, universe.base, message, slot,
    )  # fmt: skip
    if lost:
        assert strays is not None, "every message has its number once strays are known"
        found.strays += lost
        _note_strays(unit, sender[message == -2], seq[message == -2], strays)
        return

    walk = k.walk(event, message, seq, slot, universe.sent, run.cut_slots, job.with_receipts, job.witnesses)
    _judge_alone(run, unit, walk, topics, found)
    if topics is not None and not set(BROKER_GUARANTEES).isdisjoint(job.guarantees):
        found.topics |= len(topics.topics) > 0
        found.add(run.name, "partition-order", check_partition_order(run, unit, log.column, topics, message))
        leave_consumption(run, unit, log.column, topics, message, arena)
        leave_sends(unit, topics, walk.sends, walk.send_row, arena)

    if job.compares:
        _leave_arrays(run, unit, log, message, walk, arena)
        if topics is not None and "agreement" in job.guarantees:
            arena.put(unit, "obliges", ~topics.has[walk.order_row])


def _leave_arrays(run: CheckedRun, unit: Unit, log: Log, message: Array, walk: k.Walk, arena: ArenaWriter) -> None:
    """Leave what the second stage compares members by."""
    stay_positions = np.array([log.position(position) for position in run.stays[unit].position], np.int64)
    arena.put(unit, "order", walk.order)
    if len(walk.discards):
        arena.put(unit, "seen", walk.seen)
        arena.put(unit, "discards", walk.discards)
    order_stays = np.searchsorted(walk.order_row, stay_positions)
    if "total" in run.job.guarantees:
        slices = run.slices(unit, order_stays, len(walk.order))
        arena.put(unit, "fingerprint", fingerprint(run, unit, walk.order, slices))
    if "causal" in run.job.guarantees:
        arena.put(unit, "past", walk.past)
    if "agreement" in run.job.guarantees:
        arena.put(unit, "has", np.packbits(walk.state & (k.DELIVERED | k.DISCARDED), bitorder="little"))
    if run.has_views:
        arena.put(unit, "order_stays", order_stays)
        arena.put(unit, "discards_stays", np.searchsorted(walk.discard_row, stay_positions))
        arena.put(unit, "sends", walk.sends)
        stay_views = np.array(run.stays[unit].view, np.int32)
        arena.put(unit, "sends_view", stay_views[np.searchsorted(stay_positions, walk.send_row, side="right") - 1])
    if run.has_stable and "stability" in run.job.guarantees:
        _leave_marks(run, unit, log, message, walk, stay_positions, arena)


def _judge_alone(run: CheckedRun, unit: Unit, walk: k.Walk, topics: MemberTopics | None, found: TaskFindings) -> None:
    """Integrity, fifo and validity, and whether a message of unknown past leaves causal order undecided."""
    job = run.job
    member = int(run.layout.unit_member[unit])
    tally = walk.tally

    def stubs(rows: Array, count: int, *more: Array) -> list[Stub]:
        chosen = min(count, job.witnesses)
        facts = zip(*(column[:chosen].tolist() for column in (rows, *more)), strict=True)
        return [Stub(run.name, (member, fact[0]), (member, *fact)) for fact in facts]

    deliveries = int(tally[k.DELIVERIES])
    wrong = int(tally[k.REPEATED] + tally[k.UNSENT])
    found.add(
        run.name,
        "integrity",
        Finding(
            deliveries,
            wrong,
            bool(tally[k.UNSENT_BY_CUT]),
            int(tally[k.REPEATED]),
            stubs(walk.integrity_rows, wrong),
        ),
    )
    late = int(tally[k.LATE])
    late_stubs = stubs(walk.late_rows, late, walk.late_highest_rows)
    found.add(run.name, "fifo", Finding(deliveries, late, False, late, late_stubs))
    found.add(run.name, "causal", Finding(undecided=bool(tally[k.UNSENT_HANDLED_BY_CUT])))
    if unit not in run.gone:
        own = np.ones(len(walk.sends), bool) if topics is None else ~topics.has[walk.send_row]
        missing = walk.send_row[own & ((walk.state[walk.sends] & (k.DELIVERED | k.DISCARDED)) == 0)]
        cut = unit in run.cut
        found.add(
            run.name,
            "validity",
            Finding(
                int(own.sum()),
                0 if cut else len(missing),
                cut and len(missing) > 0,
                0,
                [] if cut else stubs(missing, len(missing)),
            ),
        )


def _leave_marks(
    run: CheckedRun, unit: Unit, log: Log, message: Array, walk: k.Walk, stay_positions: Array, arena: ArenaWriter
) -> None:
    """Leave the member's marks, and which messages it holds (with one global clock: since when)."""
    event = log.column["event"]
    marks = np.flatnonzero(event == STABLE)
    if len(marks):
        arena.put(unit, "mark_sender", log.column["sender"][marks].astype(np.int64))
        arena.put(unit, "mark_seq", log.column["seq"][marks].astype(np.int64))
        arena.put(unit, "mark_row", marks)
        arena.put(unit, "mark_stay", np.searchsorted(stay_positions, marks, side="right") - 1)
    if not run.global_clock:
        arena.put(unit, "held", np.packbits(walk.state & (k.DELIVERED | k.RECEIVED), bitorder="little"))
        return
    time = log.column["time_ns"].astype(np.int64)
    if len(marks):
        arena.put(unit, "mark_time", time[marks])
    since = np.full(len(walk.state), np.iinfo(np.int64).max, np.int64)
    receipts = np.flatnonzero(event == RECEIVE)[::-1]  # backwards, so that the first one stays
    since[message[receipts]] = time[receipts]
    since[walk.order] = np.minimum(since[walk.order], time[walk.order_row])
    arena.put(unit, "since", since)


def _note_strays(unit: Unit, sender: Array, seq: Array, strays: ArenaWriter) -> None:
    low, high, who = [], [], []
    for one in np.unique(sender):
        begin, end = spans_of(np.unique(seq[sender == one]))
        low.append(begin)
        high.append(end)
        who.append(np.full(len(begin), one, np.int64))
    strays.put(unit, "stray_sender", np.concatenate(who))
    strays.put(unit, "stray_low", np.concatenate(low))
    strays.put(unit, "stray_high", np.concatenate(high))
