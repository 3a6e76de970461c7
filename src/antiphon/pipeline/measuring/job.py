"""What the stages of measuring share: their job, the tables they write, and what they tell the driver."""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.pipeline.columns import NULL_TIME, Array, RunIndex, Unit
from antiphon.pipeline.results import BufferPeak, HeldBack, Repairs
from antiphon.pipeline.store.arena import Arena, Scratch
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import location, replacement

SHOWN: Final = 5  # of what is ranked in the summary
_NANOSECONDS: Final = ("min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")
_WHO: Final = (("run", pa.string()), ("member", pa.int32()))

TABLES: Final[dict[str, pa.Schema]] = {
    "latency": pa.schema(
        [
            *_WHO,
            ("measure", pa.string()),
            ("count", pa.int64()),
            ("mean_ns", pa.float64()),
            *((name, pa.int64()) for name in _NANOSECONDS),
        ]
    ),
    "members": pa.schema(
        [
            *_WHO,
            *((name, pa.int64()) for name in ("sent", "received", "delivered", "discarded", "marks")),
            ("retransmissions", pa.int64()),
            ("duplicates", pa.int64()),
            ("buffer_peak", pa.int64()),
            ("buffer_peak_at_ns", pa.int64()),
            ("buffer_end", pa.int64()),
        ]
    ),
    "buffer": pa.schema(
        [*_WHO, ("start_ns", pa.int64()), ("end_ns", pa.int64()), ("mean", pa.float64()), ("peak", pa.int64())]
    ),
    "traffic": pa.schema([*_WHO, ("kind", pa.string()), ("count", pa.int64()), ("bytes", pa.int64())]),
    "repairs": pa.schema(
        [
            ("run", pa.string()),
            ("repairer", pa.int32()),
            ("target", pa.int32()),  # null: everybody
            ("count", pa.int64()),
            ("bytes", pa.int64()),
        ]
    ),
    "held_back": pa.schema(
        [
            *_WHO,
            ("last", pa.int64()),  # messages that it was the last to hold
            ("lacked", pa.int64()),  # messages that it never held and that never became stable
            ("waited_ns", pa.int64()),  # how long it alone was waited for, in all
            ("longest_ns", pa.int64()),
        ]
    ),
    # and of bounded size for each run, whatever its members and events:
    "runs": pa.schema(
        [
            ("run", pa.string()),
            ("members", pa.int64()),
            ("rows", pa.int64()),
            ("first_ns", pa.int64()),
            ("last_ns", pa.int64()),
        ]
    ),
    "views": pa.schema(
        [
            ("run", pa.string()),
            ("view", pa.int64()),
            ("members", pa.list_(pa.int32())),
            ("installed", pa.int64()),  # by how many members
            ("first_ns", pa.int64()),
            ("last_ns", pa.int64()),
        ]
    ),
    "processes": pa.schema(
        [
            *_WHO,
            ("first_ns", pa.int64()),
            ("last_ns", pa.int64()),
            ("ending", pa.string()),  # end, leave, excluded, crash; null: its log was cut short
            ("undelivered", pa.int64()),  # messages of its own that no other member ever delivered
            ("alone", pa.int64()),  # messages that it delivered and nobody else did
            ("quiet_at_ns", pa.int64()),  # where it recorded nothing for long although the others were busy
            ("quiet_ns", pa.int64()),  # and how long that was
            ("set_back_ns", pa.int64()),  # how far its clock went back, at most
            ("set_back_at_ns", pa.int64()),
            ("keys_at_ns", pa.list_(pa.int64())),  # when it changed the keys that it seals with
            ("unread_at_ns", pa.list_(pa.int64())),  # when its application's inbox got full, got room, got full ...
            ("clock_off_ns", pa.int64()),  # how far it is ahead of the others' clocks, if by more than they can be
            ("sent_at_ns", pa.int64()),  # its last message
            ("delivered_at_ns", pa.int64()),  # its last delivery
            ("waiting", pa.int64()),  # messages of its own that it never delivered itself
        ]
    ),
    "halts": pa.schema([("run", pa.string()), ("start_ns", pa.int64()), ("end_ns", pa.int64())]),
    "histogram": pa.schema(
        [("measure", pa.string()), ("low_ns", pa.int64()), ("high_ns", pa.int64()), ("count", pa.int64())]
    ),
    "occupancy": pa.schema(
        [
            ("run", pa.string()),
            ("start_ns", pa.int64()),
            ("end_ns", pa.int64()),
            ("mean", pa.float64()),  # over the members
            ("peak", pa.int64()),  # of the fullest
        ]
    ),
    "waiting": pa.schema(
        [
            ("run", pa.string()),
            ("member", pa.int32()),  # null: all others together
            ("start_ns", pa.int64()),
            ("end_ns", pa.int64()),
            ("messages", pa.float64()),  # that waited for it alone, on average over this time
        ]
    ),
    "repair_matrix": pa.schema(
        [
            ("run", pa.string()),
            ("repairer", pa.string()),  # a member, or "others"
            ("target", pa.string()),  # a member, "others", or "everybody"
            ("count", pa.int64()),
        ]
    ),
}


class MeasureJob(msgspec.Struct, frozen=True):
    """Where the trace lies, where scratch arrays and tables go, and into how many tasks the work is cut."""

    layout: str
    scratch: str
    out: str
    tasks: int

    def write(self, table: str, name: str, rows: list[dict[str, Any]]) -> None:
        """Write a task's rows of a table."""
        if rows:
            with replacement(location(self.out) / table / f"part-{name}.parquet") as fresh:
                pq.write_table(pa.Table.from_pylist(rows, TABLES[table]), fresh)


class Sends(NamedTuple):
    """All sends of a run in order of (sender, seq), and the time over which the run stretches."""

    sender: Array
    seq: Array
    at: Array
    first_ns: int
    last_ns: int


class MeasureTask:
    """What one task of measuring has open: the layout, the arrays of the first stage, and the sends of its runs."""

    def __init__(self, job: MeasureJob) -> None:
        self.job = job
        self.layout = TraceLayout(location(job.layout))
        self._first_units = self.layout.unit_shares(job.tasks)
        self._scratch = Scratch(job.scratch, self._first_units)
        self.sends = functools.lru_cache(maxsize=4)(self._sends)

    def units(self, task: int) -> range:
        """Return the units of one task."""
        return range(int(self._first_units[task]), int(self._first_units[task + 1]))

    def array(self, unit: Unit, name: str) -> Array:
        """Return an array that the first stage left for a unit."""
        return self._scratch.array("ledgers", unit, name)

    def arena(self, stage: str, task: int) -> Arena:
        """Return all that one task of a stage left."""
        return self._scratch.arena(stage, task)

    def who(self, unit: Unit) -> tuple[str, int]:
        """Return the run and the member that a unit is."""
        return self.layout.runs[int(self.layout.unit_run[unit])], int(self.layout.unit_member[unit])

    def span(self, run: RunIndex) -> tuple[int, int] | None:
        """Return the first and the last time that any member of a run tells."""
        spans = [span for unit in self.layout.units_of(run) if len(span := self.array(unit, "span"))]
        return (min(int(span[0]) for span in spans), max(int(span[1]) for span in spans)) if spans else None

    def _sends(self, run: RunIndex) -> Sends:
        units = self.layout.units_of(run)
        seqs = [self.array(unit, "sent_seq") for unit in units]
        first_ns, last_ns = self.span(run) or (NULL_TIME, NULL_TIME)
        return Sends(
            np.repeat(self.layout.unit_member[units.start : units.stop].astype(np.int64), [len(seq) for seq in seqs]),
            np.concatenate(seqs),
            np.concatenate([self.array(unit, "sent_at") for unit in units]),
            first_ns,
            last_ns,
        )

    def has_global_clock(self, run: RunIndex) -> bool:
        """Say whether the members of a run read one clock."""
        return bool(self.layout.column["global_clock"][self.layout.segments_of(run)].any())

    def has_marks(self, run: RunIndex) -> bool:
        """Say whether anybody in a run marks anything stable."""
        return bool(self.layout.column["stable"][self.layout.segments_of(run)].any())


class MeasurePart(msgspec.Struct):
    """What one task tells the driver."""

    sketches: dict[str, dict[int, int]] = {}
    traffic: dict[str, tuple[int, int | None]] = {}
    duplicates: int = 0
    control_rows: int = 0
    # the largest of their kind, to be shown
    buffers: list[BufferPeak] = []
    repairs: list[Repairs] = []
    waits: list[HeldBack] = []

    def merge(self, other: MeasurePart, shown: int = SHOWN) -> None:
        """Take another part in; of what is ranked only the largest stay."""
        for name, buckets in other.sketches.items():
            mine = self.sketches.setdefault(name, {})
            for number, count in buckets.items():
                mine[number] = mine.get(number, 0) + count
        for kind, counted in other.traffic.items():
            self.traffic[kind] = added(self.traffic.get(kind), counted)
        self.duplicates += other.duplicates
        self.control_rows += other.control_rows
        self.buffers = sorted(self.buffers + other.buffers, key=_fullest)[:shown]
        self.repairs = sorted(self.repairs + other.repairs, key=_most_repairs)[:shown]
        self.waits = sorted(self.waits + other.waits, key=_longest_wait)[:shown]


def _fullest(found: BufferPeak) -> tuple[int, str, int]:
    return -found.peak, found.run, found.member


def _most_repairs(found: Repairs) -> tuple[int, str, int, int]:
    return -found.count, found.run, found.repairer, -1 if found.target is None else found.target


def _longest_wait(found: HeldBack) -> tuple[int, int, str, int]:
    return -found.waited_ns, -found.lacked, found.run, found.member


def added(one: tuple[int, int | None] | None, other: tuple[int, int | None]) -> tuple[int, int | None]:
    """Add up (count, bytes), where bytes may be unknown."""
    if one is None:
        return other
    unknown = one[1] is None and other[1] is None
    return one[0] + other[0], None if unknown else (one[1] or 0) + (other[1] or 0)
