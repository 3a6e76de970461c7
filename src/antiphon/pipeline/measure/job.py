"""What the stages of measuring share: their job, the tables they write, and what they tell the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.pipeline.check.arena import open_arena
from antiphon.pipeline.check.run import unit_shares
from antiphon.pipeline.ingest import Unfinished
from antiphon.pipeline.layout import Array, Layout
from antiphon.pipeline.results import BufferPeak, HeldBack, Repairs

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


class Job(msgspec.Struct, frozen=True):
    """Where the trace lies, where scratch arrays and tables go, and into how many tasks the work is cut."""

    layout: str
    scratch: str
    out: str
    tasks: int

    def units(self, layout: Layout, task: int) -> range:
        """The units of one task."""
        first, last = unit_shares(layout, self.tasks)[task : task + 2]
        return range(int(first), int(last))

    def array(self, layout: Layout, unit: int, name: str) -> Array:
        """An array that the first stage left for a unit."""
        starts = unit_shares(layout, self.tasks)
        task = int(np.searchsorted(starts, unit, side="right")) - 1
        found = open_arena(f"{self.scratch}/ledgers", task).get(unit, name)
        return np.zeros(0, np.int64) if found is None else found

    def write(self, table: str, name: str, rows: list[dict[str, Any]]) -> None:
        """Write a task's rows of a table."""
        if rows:
            with Unfinished(Path(self.out, table, f"part-{name}.parquet")) as fresh:
                pq.write_table(pa.Table.from_pylist(rows, TABLES[table]), fresh)


class Part(msgspec.Struct):
    """What one task tells the driver."""

    sketches: dict[str, dict[int, int]] = {}
    traffic: dict[str, tuple[int, int | None]] = {}
    duplicates: int = 0
    control_rows: int = 0
    # the largest of their kind, to be shown
    buffers: list[BufferPeak] = []
    repairs: list[Repairs] = []
    waits: list[HeldBack] = []

    def merge(self, other: Part, shown: int = SHOWN) -> None:
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


def has_global_clock(layout: Layout, run: int) -> bool:
    """Whether the members of a run read one clock."""
    first, last = (int(layout.bounds[layout.run_bounds[number]]) for number in (run, run + 1))
    return bool(layout.column["global_clock"][first:last].any())


def has_marks(layout: Layout, run: int) -> bool:
    """Whether anybody in a run marks anything stable."""
    first, last = (int(layout.bounds[layout.run_bounds[number]]) for number in (run, run + 1))
    return bool(layout.column["stable"][first:last].any())
