"""The first stage of measuring: each member's log alone."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from antiphon.pipeline.check.arena import ArenaWriter
from antiphon.pipeline.layout import (
    CONTROL,
    DELIVER,
    DISCARD,
    NULL_TIME,
    RECEIVE,
    SEND,
    STABLE,
    Array,
    Layout,
    open_layout,
)
from antiphon.pipeline.measure.job import Job, Part, added, has_marks
from antiphon.pipeline.measure.ledger import (
    Ledger,
    Rows,
    Traffic,
    at,
    between,
    event_counts,
    ledger,
    occupancy,
    read_rows,
    traffic,
)
from antiphon.pipeline.measure.quantiles import Sketch, exact
from antiphon.pipeline.results import BufferPeak, Repairs


class Tables:
    """Rows of the tables, as a task gathers them."""

    def __init__(self, *names: str) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

    def add(self, table: str, layout: Layout, unit: int, **row: Any) -> None:
        """One row about a unit."""
        run, member = layout.runs[int(layout.unit_run[unit])], int(layout.unit_member[unit])
        self.rows[table].append({"run": run, "member": member, **row})

    def add_latency(self, layout: Layout, unit: int, measure: str, values: Array, sketch: Sketch) -> None:
        """Some durations of a unit, exactly; and into the sketch of all."""
        if len(values):
            self.add("latency", layout, unit, measure=measure, **exact(values))
            sketch.add(values)

    def write(self, job: Job, name: str) -> None:
        """Write all tables of a task."""
        for table, rows in self.rows.items():
            job.write(table, name, rows)


def measure_alone(job: Job, task: int) -> bytes:
    """Read the logs of some members; leave their ledgers for the second stage."""
    layout = open_layout(job.layout)
    arena = ArenaWriter(f"{job.scratch}/ledgers", task)
    tables = Tables("latency", "members", "traffic", "repairs")
    sketches = {name: Sketch() for name in ("t1", "t2", "held")}
    part = Part()
    for unit in job.units(layout, task):
        rows = read_rows(layout, unit)
        book = ledger(rows)
        receive, final, deliver, hold, stable = (
            at(rows.time, getattr(book, name)) for name in ("receive", "final", "deliver", "hold", "stable")
        )
        tables.add_latency(layout, unit, "t1", between(receive, final), sketches["t1"])
        tables.add_latency(layout, unit, "t2", between(final, deliver), sketches["t2"])
        kept = book.hold < book.stable
        tables.add_latency(layout, unit, "held", between(hold[kept], stable[kept]), sketches["held"])
        _leave(arena, unit, rows, book, hold, deliver, stable)
        _count(layout, unit, rows, book, arena, tables, part)
    arena.close()
    tables.write(job, f"1-{task:06}")
    part.sketches = {name: sketch.buckets for name, sketch in sketches.items()}
    return msgspec.msgpack.encode(part)


def _leave(arena: ArenaWriter, unit: int, rows: Rows, book: Ledger, hold: Array, deliver: Array, stable: Array) -> None:
    """Leave what members are compared by."""
    for name, column in (("sender", book.sender), ("seq", book.seq)):
        arena.put(unit, name, column)
    for name, time in (("hold", hold), ("deliver", deliver), ("stable", stable)):
        arena.put(unit, name, time)
    arena.put(unit, "held", (book.hold >= 0).astype(np.uint8))
    arena.put(unit, "marked", (book.stable >= 0).astype(np.uint8))
    sent = book.send >= 0
    arena.put(unit, "sent_seq", book.seq[sent])
    arena.put(unit, "sent_at", at(rows.time, book.send[sent]))
    known = rows.time[rows.time != NULL_TIME]
    if len(known):
        arena.put(unit, "span", np.array([known.min(), known.max()], np.int64))


def _count(layout: Layout, unit: int, rows: Rows, book: Ledger, arena: ArenaWriter, tables: Tables, part: Part) -> None:
    """Traffic, repairs and the buffer of one member."""
    seen = traffic(rows)
    for kind, (count, size) in sorted(seen.by_kind.items()):
        tables.add("traffic", layout, unit, kind=kind, count=count, bytes=size)
        part.traffic[kind] = added(part.traffic.get(kind), (count, size))
    events = event_counts(rows)
    part.duplicates += seen.duplicates
    part.control_rows += events[CONTROL]
    _rank_repairs(layout, unit, seen, tables, part)
    facts: dict[str, Any] = dict.fromkeys(("buffer_peak", "buffer_peak_at_ns", "buffer_end"))
    if has_marks(layout, int(layout.unit_run[unit])):
        held = occupancy(book, len(rows.event))
        top = int(held.argmax())
        when = None if rows.time[top] == NULL_TIME else int(rows.time[top])
        facts = {"buffer_peak": int(held[top]), "buffer_peak_at_ns": when, "buffer_end": int(held[-1])}
        run, member = layout.runs[int(layout.unit_run[unit])], int(layout.unit_member[unit])
        part.merge(Part(buffers=[BufferPeak(run, member, int(held[top]), when)]))
        changed = np.flatnonzero((np.diff(held, prepend=0) != 0) & (rows.time != NULL_TIME))
        arena.put(unit, "changed_at", rows.time[changed])
        arena.put(unit, "changed_to", held[changed])
    control = bool(events[CONTROL])
    tables.add(
        "members",
        layout,
        unit,
        sent=events[SEND],
        received=events[RECEIVE],
        delivered=events[DELIVER],
        discarded=events[DISCARD],
        marks=events[STABLE],
        retransmissions=seen.by_kind.get("repair", (0, None))[0] if control else None,
        duplicates=seen.duplicates if control else None,
        **facts,
    )


def _rank_repairs(layout: Layout, unit: int, seen: Traffic, tables: Tables, part: Part) -> None:
    run, member = layout.runs[int(layout.unit_run[unit])], int(layout.unit_member[unit])
    for target, (count, size) in seen.repairs.items():
        repairs = Repairs(run, member, target, count, size)
        tables.rows["repairs"].append(msgspec.structs.asdict(repairs))
        part.merge(Part(repairs=[repairs]))
