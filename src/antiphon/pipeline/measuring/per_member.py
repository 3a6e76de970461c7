"""The first stage of measuring: each member's log by itself."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from antiphon.pipeline.columns import CONTROL, DELIVER, DISCARD, NULL_TIME, RECEIVE, SEND, STABLE, VIEW, Array, Unit
from antiphon.pipeline.measuring.halts import delivery_gaps
from antiphon.pipeline.measuring.history import ending, latest, noted_at, pace, undelivered_by_itself
from antiphon.pipeline.measuring.job import MeasureJob, MeasurePart, MeasureTask, added
from antiphon.pipeline.measuring.ledger import (
    Ledger,
    LogReader,
    LogRows,
    MemberTraffic,
    at,
    between,
    event_counts,
    ledger,
    occupancy,
    traffic,
    view_ends,
)
from antiphon.pipeline.measuring.quantiles import Sketch, exact
from antiphon.pipeline.results import BufferPeak, Repairs
from antiphon.pipeline.store.arena import ArenaWriter
from antiphon.trace.schema import INBOX_FULL, INBOX_READ, KEYS_CHANGED


class Tables:
    """Rows of the tables, as a task gathers them."""

    def __init__(self, *names: str) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

    def add(self, table: str, who: tuple[str, int], **row: Any) -> None:
        """Add a row about one member (run, member)."""
        self.rows[table].append({"run": who[0], "member": who[1], **row})

    def add_latency(self, who: tuple[str, int], measure: str, values: Array, sketch: Sketch) -> None:
        """Add some durations of a member, exactly; and to the sketch of all."""
        if len(values):
            self.add("latency", who, measure=measure, **exact(values))
            sketch.add(values)

    def write(self, job: MeasureJob, name: str) -> None:
        """Write all tables of a task."""
        for table, rows in self.rows.items():
            job.write(table, name, rows)


def measure_members(job: MeasureJob, task: int) -> bytes:
    """Read the logs of some members; leave their ledgers for the second stage."""
    here = MeasureTask(job)
    reader = LogReader(here.layout)
    arena = ArenaWriter(job.scratch, "ledgers", task)
    tables = Tables("latency", "members", "traffic", "repairs")
    sketches = {name: Sketch() for name in ("t1", "t2", "held")}
    part = MeasurePart()
    for unit in here.units(task):
        rows, who = reader.read(unit), here.who(unit)
        book = ledger(rows)
        receive, final, deliver, hold, stable = (
            at(rows.time, row) for row in (book.receive, book.final, book.deliver, book.hold, book.stable)
        )
        tables.add_latency(who, "t1", between(receive, final), sketches["t1"])
        tables.add_latency(who, "t2", between(final, deliver), sketches["t2"])
        kept = book.hold < book.stable
        tables.add_latency(who, "held", between(hold[kept], stable[kept]), sketches["held"])
        _leave(arena, unit, rows, book, hold, deliver, stable)
        _count(here, unit, rows, book, arena, tables, part)
    arena.close()
    tables.write(job, f"1-{task:06}")
    part.sketches = {name: sketch.buckets for name, sketch in sketches.items()}
    return msgspec.msgpack.encode(part)


def _leave(
    arena: ArenaWriter, unit: Unit, rows: LogRows, book: Ledger, hold: Array, deliver: Array, stable: Array
) -> None:
    """Leave what members are compared by."""
    for name, column in (("sender", book.sender), ("seq", book.seq)):
        arena.put(unit, name, column)
    for name, time in (("hold", hold), ("deliver", deliver), ("stable", stable)):
        arena.put(unit, name, time)
    arena.put(unit, "held", (book.hold >= 0).astype(np.uint8))
    arena.put(unit, "delivered", (book.deliver >= 0).astype(np.uint8))
    marked = (book.stable >= 0) & ((book.hold < 0) | (book.stable < view_ends(rows, book.hold)))
    arena.put(unit, "marked", marked.astype(np.uint8))  # in its own view: a mark of a later one covers all before
    sent = book.send >= 0
    arena.put(unit, "sent_seq", book.seq[sent])
    arena.put(unit, "sent_at", at(rows.time, book.send[sent]))
    views = np.flatnonzero(rows.event == VIEW)
    arena.put(unit, "sent_in", np.searchsorted(views, book.send[sent]))  # how many views it had installed by then
    arena.put(unit, "viewed_at", rows.time[views])
    arena.put(unit, "ending", ending(rows))
    arena.put(unit, "keys_at", noted_at(rows, KEYS_CHANGED))
    arena.put(unit, "unread_at", noted_at(rows, INBOX_FULL, INBOX_READ))
    known = deliver[deliver != NULL_TIME]
    arena.put(unit, "delivered_in", np.array([known.min(), known.max()] if len(known) else [], np.int64))
    arena.put(unit, "gaps", delivery_gaps(deliver, at(rows.time, book.send[sent])).ravel())
    arena.put(unit, "lasts", np.array([latest(at(rows.time, book.send[sent])), latest(deliver)], np.int64))
    arena.put(unit, "waiting", np.array([undelivered_by_itself(sent, book.deliver >= 0)], np.int64))
    known = rows.time[rows.time != NULL_TIME]
    if len(known):
        arena.put(unit, "span", np.array([known.min(), known.max()], np.int64))
        arena.put(unit, "pace", pace(known))


def _count(
    here: MeasureTask,
    unit: Unit,
    rows: LogRows,
    book: Ledger,
    arena: ArenaWriter,
    tables: Tables,
    part: MeasurePart,
) -> None:
    """Count traffic, repairs and the buffer of one member."""
    seen, who = traffic(rows), here.who(unit)
    for kind, (count, size) in sorted(seen.by_kind.items()):
        tables.add("traffic", who, kind=kind, count=count, bytes=size)
        part.traffic[kind] = added(part.traffic.get(kind), (count, size))
    events = event_counts(rows)
    part.duplicates += seen.duplicates
    part.control_rows += events[CONTROL]
    _rank_repairs(who, seen, tables, part)
    facts: dict[str, Any] = dict.fromkeys(("buffer_peak", "buffer_peak_at_ns", "buffer_end"))
    if here.has_marks(int(here.layout.unit_run[unit])):
        held = occupancy(book, rows)
        top = int(held.argmax())
        when = None if rows.time[top] == NULL_TIME else int(rows.time[top])
        facts = {"buffer_peak": int(held[top]), "buffer_peak_at_ns": when, "buffer_end": int(held[-1])}
        part.merge(MeasurePart(buffers=[BufferPeak(*who, int(held[top]), when)]))
        changed = np.flatnonzero((np.diff(held, prepend=0) != 0) & (rows.time != NULL_TIME))
        arena.put(unit, "changed_at", rows.time[changed])
        arena.put(unit, "changed_to", held[changed])
    control = bool(events[CONTROL])
    tables.add(
        "members",
        who,
        sent=events[SEND],
        received=events[RECEIVE],
        delivered=events[DELIVER],
        discarded=events[DISCARD],
        marks=events[STABLE],
        retransmissions=seen.by_kind.get("repair", (0, None))[0] if control else None,
        duplicates=seen.duplicates if control else None,
        **facts,
    )


def _rank_repairs(who: tuple[str, int], seen: MemberTraffic, tables: Tables, part: MeasurePart) -> None:
    for target, (count, size) in seen.repairs.items():
        repairs = Repairs(*who, target, count, size)
        tables.rows["repairs"].append(msgspec.structs.asdict(repairs))
        part.merge(MeasurePart(repairs=[repairs]))
