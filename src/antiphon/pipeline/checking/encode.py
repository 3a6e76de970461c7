"""The first stage of a check: each member's log alone.

It settles integrity, validity and fifo, which need nothing of other members but which numbers were sent, and leaves for
the second stage what members must be compared by: orders, pasts and sets of messages, as small arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from antiphon.pipeline.checking.digests import digests, leave_digests
from antiphon.pipeline.checking.findings import Finding, Stub, TaskFindings
from antiphon.pipeline.checking.plain_runs import settle_plain_runs
from antiphon.pipeline.checking.run import SETTLED, CheckedRun, CheckJob, Workspace, spans_of, steady_span
from antiphon.pipeline.checking.total import fingerprint
from antiphon.pipeline.columns import DELIVER, DISCARD, SEND, STABLE, Array, Unit
from antiphon.pipeline.store.arena import ArenaWriter
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.trace.schema import BROKER_GUARANTEES

PIECE_ROWS = 4_000_000  # a log is read in pieces of about so many rows


class Log(NamedTuple):
    """Rows of one member, with the deliveries that its sends imply if that is asked for."""

    column: dict[str, Array]
    inserted_after: Array  # the rows after which a delivery was supposed
    first_row: int = 0  # where these rows begin in the member's whole log

    def position(self, row: int) -> int:
        """Where a row of the trace is in this log, which is a whole one."""
        return row + int(np.searchsorted(self.inserted_after, row))


def read_log(layout: TraceLayout, unit: Unit, columns: tuple[str, ...], implied: bool) -> Log:
    """Read a member's whole log; `columns` has event, sender and seq at least."""
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


def read_log_in_pieces(layout: TraceLayout, unit: Unit, columns: tuple[str, ...]) -> Iterator[Log]:
    """Read a member's log piece by piece, so that a long one needs no more memory than a short one."""
    nothing, first_row = np.zeros(0, np.int64), 0
    for column in layout.read_pieces(unit, columns, PIECE_ROWS):
        yield Log(column, nothing, first_row)
        first_row += len(column["event"])


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
    job, layout, universe = run.job, run.layout, run.universe
    marked = run.has_stable and "stability" in job.guarantees
    times, brokers = marked and run.global_clock, has_topics(layout, unit)
    columns = ("event", "sender", "seq", *(("time_ns",) if times else ()), *(BROKER_COLUMNS if brokers else ()))
    counts = layout.event_counts(unit)
    if job.implied or brokers:  # what is said of these needs the whole log
        log = read_log(layout, unit, columns, job.implied)
        counts[DELIVER] += len(log.inserted_after)
        stay_positions = np.array([log.position(position) for position in run.stays[unit].position], np.int64)
        pieces: Iterable[Log] = [log]
    else:
        stay_positions = np.array(run.stays[unit].position, np.int64)
        pieces = read_log_in_pieces(layout, unit, columns)
    walk = k.begin_walk(
        counts, universe.size, len(run.cut_slots), job.witnesses, receipts=job.with_receipts, times=times
    )
    marks, unsent = MarkedRows(times), UnsentMessages()
    for piece in pieces:
        event, sender, seq = (piece.column[name] for name in ("event", "sender", "seq"))
        message, slot = np.empty(len(event), np.int32), np.empty(len(event), np.int32)
        lost = k.number_messages(
            event, sender, seq, universe.senders, universe.table, universe.table_base, universe.first_span,
            universe.low, universe.high, universe.base, message, slot,
        )  # fmt: skip
        if lost:
            found.strays += lost
            unsent.add(sender[message == -2], seq[message == -2])
        if found.strays:
            continue
        time = piece.column["time_ns"].astype(np.int64, copy=False) if times else np.zeros(0, np.int64)
        k.walk(piece.first_row, event, message, seq, slot, time, universe.sent, run.cut_slots, job.with_receipts, walk)
        if marked:
            marks.add(piece)
    if found.strays:  # then everything is read again
        assert strays is not None, "every message has its number once strays are known"
        unsent.leave(unit, strays)
        return

    walk = walk.whole()
    topics = read_topics(log.column, layout.texts) if "topic" in columns else None
    _judge_alone(run, unit, walk, topics, found)
    if topics is not None and not set(BROKER_GUARANTEES).isdisjoint(job.guarantees):
        found.topics |= len(topics.topics) > 0
        found.add(run.name, "partition-order", check_partition_order(run, unit, log.column, topics, message))
        leave_consumption(run, unit, log.column, topics, message, arena)
        leave_sends(unit, topics, walk.sends, walk.send_row, arena)

    if job.compares:
        _leave_arrays(run, unit, walk, stay_positions, arena)
        if marked:
            marks.leave(unit, stay_positions, arena)
            held = walk.state & (k.DELIVERED | k.RECEIVED)
            arena.put(unit, *(("since", walk.since) if times else ("held", np.packbits(held, bitorder="little"))))
        if topics is not None and "agreement" in job.guarantees:
            arena.put(unit, "obliges", ~topics.has[walk.order_row])


def _leave_arrays(run: CheckedRun, unit: Unit, walk: k.Walk, stay_positions: Array, arena: ArenaWriter) -> None:
    """Leave what the second stage compares members by."""
    arena.put(unit, "order", walk.order)
    if len(walk.discards):
        arena.put(unit, "seen", walk.seen)
        arena.put(unit, "discards", walk.discards)
    order_stays = np.searchsorted(walk.order_row, stay_positions)
    discards_stays = np.searchsorted(walk.discard_row, stay_positions)
    delivered = digests(walk.order, run.slices(unit, order_stays, len(walk.order)))
    discarded = digests(walk.discards, run.slices(unit, discards_stays, len(walk.discards)))
    leave_digests(unit, delivered, discarded, arena)
    if "total" in run.job.guarantees:
        arena.put(unit, "fingerprint", fingerprint(run, unit, walk.order, order_stays, delivered))
    if "causal" in run.job.guarantees:
        arena.put(unit, "past", walk.past)
    if "agreement" in run.job.guarantees:
        arena.put(unit, "has", np.packbits(walk.state & (k.DELIVERED | k.DISCARDED), bitorder="little"))
    if run.has_views:
        arena.put(unit, "order_stays", order_stays)
        arena.put(unit, "discards_stays", discards_stays)
        arena.put(unit, "sends", walk.sends)
        stay_views = np.array(run.stays[unit].view, np.int32)
        arena.put(unit, "sends_view", stay_views[np.searchsorted(stay_positions, walk.send_row, side="right") - 1])


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


class MarkedRows:
    """The marks of one member, collected as its log is read."""

    def __init__(self, times: bool) -> None:
        self._names = ("sender", "seq", *(("time_ns",) if times else ()))
        self._pieces: dict[str, list[Array]] = {name: [] for name in ("row", *self._names)}

    def add(self, log: Log) -> None:
        """Take in the next rows of the log."""
        marks = np.flatnonzero(log.column["event"] == STABLE)
        self._pieces["row"].append(log.first_row + marks)
        for name in self._names:
            self._pieces[name].append(log.column[name][marks].astype(np.int64))

    def leave(self, unit: Unit, stay_positions: Array, arena: ArenaWriter) -> None:
        """Leave the marks sender by sender, each sender's in order: `mark_start` says where those of each begin."""
        column = {name: np.concatenate(pieces) for name, pieces in self._pieces.items()}
        if not len(column["row"]):
            return
        order = np.argsort(column["sender"], kind="stable")
        senders, start = np.unique(column["sender"][order], return_index=True)
        arena.put(unit, "mark_sender", senders)
        arena.put(unit, "mark_start", np.append(start, len(order)))
        arena.put(unit, "mark_seq", column["seq"][order])
        arena.put(unit, "mark_row", column["row"][order])
        arena.put(unit, "mark_stay", np.searchsorted(stay_positions, column["row"][order], side="right") - 1)
        if "time_ns" in column:
            arena.put(unit, "mark_time", column["time_ns"][order])


class UnsentMessages:
    """The messages that one member names and that nobody is known to have sent, collected as its log is read."""

    def __init__(self) -> None:
        nothing = np.zeros(0, np.int64)
        self._sender, self._low, self._high = [nothing], [nothing], [nothing]

    def add(self, sender: Array, seq: Array) -> None:
        """Take in some."""
        for one in np.unique(sender):
            low, high = spans_of(np.unique(seq[sender == one]))
            self._sender.append(np.full(len(low), one, np.int64))
            self._low.append(low)
            self._high.append(high)

    def leave(self, unit: Unit, strays: ArenaWriter) -> None:
        """Leave them as spans of numbers."""
        strays.put(unit, "stray_sender", np.concatenate(self._sender))
        strays.put(unit, "stray_low", np.concatenate(self._low))
        strays.put(unit, "stray_high", np.concatenate(self._high))
