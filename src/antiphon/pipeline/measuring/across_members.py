"""The second stage of measuring: members side by side.

A member's deliveries and marks are laid beside the sends of the others; and for each share of a run's messages, all
members' receipts are laid side by side to see who was the last to hold each, and how long it alone was waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.pipeline.columns import NULL_TIME, Array, RunIndex, Unit
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.measuring.history import ENDINGS
from antiphon.pipeline.measuring.job import TABLES, MeasureJob, MeasurePart, MeasureTask, Sends
from antiphon.pipeline.measuring.ledger import between
from antiphon.pipeline.measuring.per_member import Tables
from antiphon.pipeline.measuring.quantiles import Sketch
from antiphon.pipeline.measuring.sent_views import SentViews
from antiphon.pipeline.store.arena import ArenaWriter
from antiphon.pipeline.store.layout import TraceLayout, shares
from antiphon.pipeline.store.location import location, replacement

BINS = 200  # of the table `buffer`, over the whole time of a run
WAITING_BINS = 100  # of the table `waiting`
PIECE_ROWS = 4_000_000


def compare_members(job: MeasureJob, task: int) -> bytes:
    """Compare some members, and some messages."""
    here = MeasureTask(job)
    tables = Tables("latency", "buffer")
    sketches = {name: Sketch() for name in ("delivery", "stable", "everywhere")}
    for unit in here.units(task):
        _latencies(here, unit, tables, sketches)
        _buffer(here, unit, tables)
    tables.write(job, f"2-{task:06}")
    _leave(job, "occupancy", task, [_occupancy(tables.rows["buffer"])] if tables.rows["buffer"] else [])
    arena = ArenaWriter(job.scratch, "waiting", task)
    _leave(
        job,
        "waited",
        task,
        [_waits(here, piece, arena, sketches["everywhere"]) for piece in _pieces(here.layout, job, task)],
    )
    arena.close()
    _leave(job, "parted", task, [_parted(here, piece) for piece in _pieces(here.layout, job, task)])
    return msgspec.msgpack.encode(MeasurePart(sketches={name: sketch.buckets for name, sketch in sketches.items()}))


def _leave(job: MeasureJob, name: str, task: int, tables: list[pa.Table]) -> None:
    """Leave a task's part of a table for the last stage, which adds all parts up."""
    if tables:
        with replacement(location(job.scratch) / name / f"{task:06}.parquet") as fresh:
            pq.write_table(pa.concat_tables(tables), fresh)


def _occupancy(rows: list[dict[str, Any]]) -> pa.Table:
    """Sum and maximum over some members' buffers, in each part of their runs."""
    buffers = pa.Table.from_pylist(rows, TABLES["buffer"])
    return buffers.group_by(["run", "start_ns", "end_ns"], use_threads=False).aggregate(
        [("mean", "sum"), ("peak", "max")]
    )


def _latencies(here: MeasureTask, unit: Unit, tables: Tables, sketches: dict[str, Sketch]) -> None:
    sends = here.sends(int(here.layout.unit_run[unit]))
    sender, seq = here.array(unit, "sender"), here.array(unit, "seq")
    index = np.empty(len(sender), np.int64)
    find_sends(sender, seq, sends.sender, sends.seq, 0, index)
    sent = index >= 0
    sent_at = sends.at[index[sent]]
    for measure, name in (("delivery", "deliver"), ("stable", "stable")):
        values = between(sent_at, here.array(unit, name)[sent])
        tables.add_latency(here.who(unit), measure, values, sketches[measure])


@compiled
def find_sends(sender: Array, seq: Array, sent_by: Array, sent_seq: Array, start: int, index: Array) -> None:
    """Where each of a ledger's messages is among the sends, -1 if nowhere; both are in order of (sender, seq)."""
    j = start
    for i in range(sender.size):
        while j < sent_by.size and (sent_by[j] < sender[i] or (sent_by[j] == sender[i] and sent_seq[j] < seq[i])):
            j += 1
        found = j < sent_by.size and sent_by[j] == sender[i] and sent_seq[j] == seq[i]
        index[i] = j if found else -1


def _buffer(here: MeasureTask, unit: Unit, tables: Tables) -> None:
    """Tell the member's buffer over time: its mean and its peak in each part of the run."""
    changed_at = np.maximum.accumulate(here.array(unit, "changed_at"))
    if not len(changed_at):
        return
    changed_to = here.array(unit, "changed_to")
    sends = here.sends(int(here.layout.unit_run[unit]))
    edges = np.unique(np.linspace(sends.first_ns, sends.last_ns + 1, BINS + 1).astype(np.int64))
    mean, peak = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1, np.int64)
    fill_bins(changed_at, changed_to, edges, mean, peak)
    for start, stop, average, top in zip(*(part.tolist() for part in (edges[:-1], edges[1:], mean, peak)), strict=True):
        tables.add("buffer", here.who(unit), start_ns=start, end_ns=stop, mean=average, peak=top)


@compiled
def fill_bins(changed_at: Array, changed_to: Array, edges: Array, mean: Array, peak: Array) -> None:
    """Average over time, and the highest, of a level that changes at some times, in each bin; 0 before the first."""
    level = 0
    i = 0
    for b in range(edges.size - 1):
        now = edges[b]
        area = 0.0
        peak[b] = level
        while i < changed_at.size and changed_at[i] < edges[b + 1]:
            area += level * (changed_at[i] - now)
            now = changed_at[i]
            level = changed_to[i]
            peak[b] = max(peak[b], level)
            i += 1
        area += level * (edges[b + 1] - now)
        mean[b] = area / (edges[b + 1] - edges[b])


class WaitPiece(NamedTuple):
    """Some of a run's messages."""

    run: RunIndex
    part: int
    parts: int
    cost: int


def _pieces(layout: TraceLayout, job: MeasureJob, task: int) -> list[WaitPiece]:
    """One task's share of the pieces of all runs; every task plans the same."""

    def plan() -> Iterator[WaitPiece]:
        for run in range(len(layout.runs)):
            rows = int(layout.column["rows"][layout.segments_of(run)].sum())
            parts = -(-rows // PIECE_ROWS)
            for part in range(parts):
                yield WaitPiece(run, part, parts, 1_000 + rows // parts)

    pieces = list(plan())
    start, stop = shares(np.array([piece.cost for piece in pieces]), job.tasks)[task : task + 2]
    return pieces[start:stop]


def _waits(here: MeasureTask, piece: WaitPiece, arena: ArenaWriter, everywhere: Sketch) -> pa.Table:
    """Who was the last to hold each message, and how long the others waited for it alone; when, goes into the arena."""
    sends, layout = here.sends(piece.run), here.layout
    start, stop = (len(sends.seq) * number // piece.parts for number in (piece.part, piece.part + 1))
    units = layout.units_of(piece.run)
    views = SentViews(here, piece.run)
    sent_in = views.of_send[start:stop]
    held = Holders(stop - start)
    for index, unit in enumerate(units):
        held.add(here, unit, index, sends, start, stop, views.member_of[sent_in, index] if views.recorded else None)
    clocked = here.has_global_clock(piece.run)
    waited, last = np.zeros(len(units), np.int64), np.zeros(len(units), np.int64)
    longest, lacked = np.zeros(len(units), np.int64), np.zeros(len(units), np.int64)
    wanted = views.size[sent_in]  # how many had to hold each message
    complete = held.count == wanted
    edges = waiting_edges(sends.first_ns, sends.last_ns) if clocked else np.zeros(1, np.int64)
    waiting = np.zeros((len(units), len(edges) - 1))
    if clocked:
        decided = (held.timed >= 2) & (complete | held.marked)
        who, alone = held.who[decided], held.latest[decided] - held.second[decided]
        spread(who, held.second[decided], held.latest[decided], edges, waiting)
        last += np.bincount(who, minlength=len(units))
        np.add.at(waited, who, alone)
        np.maximum.at(longest, who, alone)
        reached = complete & (sends.at[start:stop] != NULL_TIME) & (held.timed == wanted)
        everywhere.add(held.latest[reached] - sends.at[start:stop][reached])
    if here.has_marks(piece.run):
        missing = ~complete & ~held.marked & (held.count > 0)
        until = views.closed_at[sent_in]
        since = np.where(missing & (held.timed > 0), np.minimum(held.latest, until), until)
        for index, unit in enumerate(units if missing.any() else ()):
            lacks = missing & views.member_of[sent_in, index] & ~held.holds(here, unit, sends, start, stop)
            lacked[index] = int(lacks.sum())
            if clocked and lacked[index]:
                spread(np.full(lacked[index], index), since[lacks], until[lacks], edges, waiting)
                alone = until[lacks] - since[lacks]
                waited[index] += int(alone.sum())
                longest[index] = max(int(longest[index]), int(alone.max()))
    if waiting.any():
        arena.put(piece.run, str(piece.part), waiting.ravel())
    chosen = np.flatnonzero((last > 0) | (lacked > 0))
    members = layout.unit_member[units.start : units.stop][chosen]
    columns: list[Any] = [[layout.runs[piece.run]] * len(chosen), members, last[chosen], lacked[chosen]]
    return pa.table([*columns, waited[chosen], longest[chosen]], schema=TABLES["held_back"])


PARTED: Final = pa.schema(
    [("run", pa.string()), ("member", pa.int32()), ("undelivered", pa.int64()), ("alone", pa.int64())]
)


def _parted(here: MeasureTask, piece: WaitPiece) -> pa.Table:
    """Count what members that did not stay to the end took with them: messages that only they sent or delivered."""
    sends, layout = here.sends(piece.run), here.layout
    start, stop = (len(sends.seq) * number // piece.parts for number in (piece.part, piece.part + 1))
    units = layout.units_of(piece.run)
    gone = [unit for unit in units if ENDINGS[int(here.array(unit, "ending")[0])] != "end"]
    if len(gone) == len(units) and not any(int(here.array(unit, "ending")[0]) for unit in gone):
        gone = []  # no log says how it ends
    delivered, by_sender = np.zeros(stop - start, np.int64), np.zeros(stop - start, bool)
    for unit in units if gone else ():
        mine = _delivered(here, unit, sends, start, stop)
        delivered[mine] += 1
        by_sender[mine[sends.sender[start:stop][mine] == layout.unit_member[unit]]] = True
    rows = []
    for unit in gone:
        run, member = here.who(unit)
        own = sends.sender[start:stop] == member
        rows.append(
            {
                "run": run,
                "member": member,
                "undelivered": int((own & (delivered - by_sender == 0)).sum()),
                "alone": int((delivered[_delivered(here, unit, sends, start, stop)] == 1).sum()),
            }
        )
    return pa.Table.from_pylist(rows, PARTED)


def _delivered(here: MeasureTask, unit: Unit, sends: Sends, start: int, stop: int) -> Array:
    """Return which of some messages a member delivered."""
    found, chosen = match(here, unit, sends, start, stop)
    mine: Array = found[(found >= 0) & (here.array(unit, "delivered")[chosen] > 0)]
    return mine


def waiting_edges(first_ns: int, last_ns: int) -> Array:
    """Where the parts of a run's time begin and end, by which waiting is told."""
    return np.unique(np.linspace(first_ns, last_ns + 1, WAITING_BINS + 1).astype(np.int64))


@compiled
def spread(who: Array, since: Array, until: Array, edges: Array, into: Array) -> None:
    """Add each wait to the parts of the time over which it stretches."""
    for i in range(who.size):
        b = max(0, np.searchsorted(edges, since[i], side="right") - 1)
        while b < edges.size - 1 and edges[b] < until[i]:
            into[who[i], b] += min(until[i], edges[b + 1]) - max(since[i], edges[b])
            b += 1


class Holders:
    """For each of some messages: how many hold it, who was the last, when, and when the one before."""

    def __init__(self, size: int) -> None:
        self.count, self.timed = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.latest, self.second = np.full(size, NULL_TIME), np.full(size, NULL_TIME)
        self.who = np.zeros(size, np.int64)
        self.marked = np.zeros(size, bool)

    def add(
        self, here: MeasureTask, unit: Unit, index: int, sends: Sends, start: int, stop: int, wanted: Array | None
    ) -> None:
        """Lay one member's ledger beside the messages; `wanted` says which it had to hold, None: all."""
        found, chosen = match(here, unit, sends, start, stop)
        if wanted is not None:
            found = np.where((found >= 0) & wanted[found], found, -1)
        hold, held, marked = (here.array(unit, name)[chosen] for name in ("hold", "held", "marked"))
        take_holder(
            found, hold, held, marked, index, self.count, self.timed, self.latest, self.second, self.who, self.marked
        )

    def holds(self, here: MeasureTask, unit: Unit, sends: Sends, start: int, stop: int) -> Array:
        """Which of the messages a member ever held."""
        found, chosen = match(here, unit, sends, start, stop)
        result = np.zeros(stop - start, bool)
        result[found[(found >= 0) & (here.array(unit, "held")[chosen] > 0)]] = True
        return result


def match(here: MeasureTask, unit: Unit, sends: Sends, start: int, stop: int) -> tuple[Array, slice]:
    """Where the messages of a part of a member's ledger are among the chosen sends, and which part that is."""
    sender, seq = here.array(unit, "sender"), here.array(unit, "seq")
    if start == stop:
        return np.zeros(0, np.int64), slice(0, 0)
    low = _bound(sender, seq, int(sends.sender[start]), int(sends.seq[start]))
    high = _bound(sender, seq, int(sends.sender[stop - 1]), int(sends.seq[stop - 1]) + 1)
    found = np.empty(high - low, np.int64)
    find_sends(sender[low:high], seq[low:high], sends.sender[start:stop], sends.seq[start:stop], 0, found)
    return found, slice(low, high)


def _bound(sender: Array, seq: Array, who: int, number: int) -> int:
    """The first index at or after (who, number) in order of (sender, seq)."""
    low, high = int(np.searchsorted(sender, who, "left")), int(np.searchsorted(sender, who, "right"))
    return low + int(np.searchsorted(seq[low:high], number, "left"))


@compiled
def take_holder(
    found: Array,
    hold: Array,
    held: Array,
    marked: Array,
    index: int,
    count: Array,
    timed: Array,
    latest: Array,
    second: Array,
    who: Array,
    any_mark: Array,
) -> None:
    """Take one member's receipts in: keep the latest two of each message."""
    for i in range(found.size):
        m = found[i]
        if m < 0:
            continue
        any_mark[m] = any_mark[m] or marked[i] > 0
        if not held[i]:
            continue
        count[m] += 1
        if hold[i] == NULL_TIME:
            continue
        timed[m] += 1
        if timed[m] == 1 or hold[i] > latest[m]:
            second[m] = latest[m]
            latest[m] = hold[i]
            who[m] = index
        elif timed[m] == 2 or hold[i] > second[m]:
            second[m] = hold[i]
