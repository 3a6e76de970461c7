"""One member's log as a ledger: for each message that it had to do with, when it did what.

The rows come in order of step. A message is held from its first receipt (its send, at its sender; its delivery, where
receipts are not recorded) until the first mark that covers it.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.pipeline.columns import (
    CONTROL,
    CRASH,
    DELIVER,
    LEAVE,
    NULL_TIME,
    RECEIVE,
    SEND,
    STABLE,
    VIEW,
    Array,
    Unit,
    as_numpy,
)
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.measuring.job import added
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import location, open_parquet
from antiphon.trace.schema import DONE_AT_MEMBER

FINAL: Final = 100  # the code given to control rows that say: its position in the total order is known here
NO_KIND: Final = -1
_COLUMNS: Final = ("event", "sender", "seq", "time_ns", "bytes", "detail")
_INTEGERS: Final = ("sender", "seq", "time_ns", "bytes")


class LogRows(NamedTuple):
    """A member's columns; `detail` indexes `details`, -1 where there is none."""

    event: Array
    sender: Array
    seq: Array
    time: Array  # NULL_TIME where unknown
    size: Array  # -1 where unknown
    about: Array  # whether it names a message
    detail: Array
    details: list[str]


class LogReader:
    """Reads members' logs with what measuring needs; keeps files open, and the last row groups, which members share."""

    def __init__(self, layout: TraceLayout) -> None:
        self._layout = layout
        self._open = functools.lru_cache(maxsize=64)(_open)
        self._row_group = functools.lru_cache(maxsize=2)(self._read_row_group)

    def read(self, unit: Unit) -> LogRows:
        """Read one member's log, absent columns as unknown."""
        layout = self._layout
        details: dict[str, int] = {}
        parts: list[list[Array]] = []
        for segment in range(int(layout.bounds[unit]), int(layout.bounds[unit + 1])):
            whole, names = self._row_group(*layout.where(segment))
            start = int(layout.column["offset"][segment])
            part = [column[start : start + int(layout.column["rows"][segment])] for column in whole]
            numbers = np.array([*(details.setdefault(name, len(details)) for name in names), NO_KIND], np.int64)
            part[-1] = numbers[part[-1]]
            parts.append(part)
        columns = [np.concatenate(pieces) if len(pieces) > 1 else pieces[0] for pieces in zip(*parts, strict=True)]
        event, sender, seq, time, size, about, detail = columns
        return LogRows(event, sender, seq, time, size, about, detail, list(details))

    def _read_row_group(self, file: str, row_group: int) -> tuple[tuple[Array, ...], list[str]]:
        """Return the columns of one row group, and the names that `detail` indexes."""
        source = self._open(file)
        present = [name for name in _COLUMNS if name in source.schema_arrow.names]
        table = source.read_row_group(row_group, columns=present, use_threads=False)
        rows = table.num_rows
        absent = {"time_ns": NULL_TIME, "bytes": -1}
        columns: dict[str, Array] = {"event": as_numpy(table["event"], "event")}
        about = np.ones(rows, bool)
        for name in _INTEGERS:
            if name not in present or pa.types.is_null(table[name].type):
                columns[name] = np.full(rows, absent.get(name, 0), np.int64)
                about &= name in absent
                continue
            array = table[name].combine_chunks()
            if name not in absent and array.null_count:
                about &= array.is_valid().to_numpy(zero_copy_only=False)
            array = array.fill_null(absent.get(name, 0)) if array.null_count else array
            columns[name] = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        detail, names = np.full(rows, -1, np.int64), []
        if "detail" in present and not pa.types.is_null(table["detail"].type):
            array = table["detail"].combine_chunks()
            array = array if pa.types.is_dictionary(array.type) else array.cast(pa.string()).dictionary_encode()
            detail = array.indices.fill_null(NO_KIND).to_numpy(zero_copy_only=False).astype(np.int64)
            detail, kept = _without_payloads(columns["event"], detail, array.dictionary)
            names = [str(name) for name in kept.to_pylist()]
        return (columns["event"], *(columns[name] for name in _INTEGERS), about, detail), names


def _without_payloads(event: Array, detail: Array, names: pa.Array) -> tuple[Array, pa.Array]:
    """Return the details but for what messages say, which is measured nowhere and may be as much as the trace."""
    said = (event == SEND) & (detail != NO_KIND)
    if not said.any():
        return detail, names
    detail = np.where(said, NO_KIND, detail)
    used = np.zeros(len(names) + 1, bool)
    used[detail] = True  # the last place is that of NO_KIND
    numbers = np.append(np.cumsum(used[:-1]) - 1, NO_KIND)
    return numbers[detail], names.take(pa.array(np.flatnonzero(used[:-1])))


def _open(file: str) -> pq.ParquetFile:
    """Open a Parquet file whose few distinct strings come as codes."""
    names = open_parquet(location(file)).schema_arrow.names
    texts = [name for name in ("event", "detail") if name in names]
    return open_parquet(location(file), read_dictionary=texts)


class Ledger(NamedTuple):
    """By message, in order of (sender, seq): rows of the log, -1 where there is none."""

    sender: Array
    seq: Array
    send: Array  # first send
    receive: Array  # first receipt
    final: Array
    deliver: Array
    hold: Array  # since when it is held
    stable: Array  # the first mark that covers it

    @property
    def size(self) -> int:
        """How many messages this member had to do with."""
        return len(self.sender)


def ledger(rows: LogRows) -> Ledger:
    """Make the ledger of a log."""
    code = rows.event.astype(np.int64)
    if "final" in rows.details:
        code[(code == CONTROL) & rows.about & (rows.detail == rows.details.index("final"))] = FINAL
    chosen = np.flatnonzero((code == SEND) | (code == RECEIVE) | (code == DELIVER) | (code == FINAL))
    chosen = chosen[np.lexsort((rows.seq[chosen], rows.sender[chosen]))]  # stable: within a message, in order of step
    sender, seq = rows.sender[chosen], rows.seq[chosen]
    fresh = np.ones(len(chosen), bool)
    fresh[1:] = (sender[1:] != sender[:-1]) | (seq[1:] != seq[:-1])
    firsts = np.full((4, int(fresh.sum())), -1, np.int64)
    _note_firsts(code[chosen], chosen, fresh, firsts)
    send, receive, final, deliver = firsts
    hold = _earliest(_earliest(send, receive), deliver)
    sender, seq = sender[fresh], seq[fresh]
    return Ledger(sender, seq, send, receive, final, deliver, hold, _covering_marks(rows, sender, seq))


@compiled
def _note_firsts(code: Array, row: Array, fresh: Array, firsts: Array) -> None:
    entry = -1
    for i in range(code.size):
        entry += fresh[i]
        kind = 0 if code[i] == SEND else 1 if code[i] == RECEIVE else 2 if code[i] == FINAL else 3
        if firsts[kind, entry] < 0:
            firsts[kind, entry] = row[i]


def _earliest(one: Array, other: Array) -> Array:
    return np.where(one < 0, other, np.where(other < 0, one, np.minimum(one, other)))


def _covering_marks(rows: LogRows, sender: Array, seq: Array) -> Array:
    """For each message the row of the first mark of its sender with at least its number; -1 if none."""
    found = np.full(len(sender), -1, np.int64)
    marks = np.flatnonzero(rows.event == STABLE)
    if not len(marks):
        return found
    marks = marks[np.argsort(rows.sender[marks], kind="stable")]
    bounds = np.flatnonzero(np.diff(rows.sender[marks], prepend=rows.sender[marks[0]] - 1))
    for start, stop in zip(bounds.tolist(), [*bounds[1:].tolist(), len(marks)], strict=True):
        reach = np.maximum.accumulate(rows.seq[marks[start:stop]])
        low, high = (
            np.searchsorted(sender, rows.sender[marks[start]], "left"),
            np.searchsorted(sender, rows.sender[marks[start]], "right"),
        )
        at = np.searchsorted(reach, seq[low:high], "left")
        found[low:high] = np.where(at < len(reach), marks[start:stop][np.minimum(at, len(reach) - 1)], -1)
    return found


def at(time: Array, row: Array) -> Array:
    """The times of some rows; NULL_TIME where there is no row."""
    return np.where(row < 0, NULL_TIME, time[np.maximum(row, 0)]) if len(time) else np.full(len(row), NULL_TIME)


def between(earlier: Array, later: Array) -> Array:
    """The durations between times that are both known."""
    known = (earlier != NULL_TIME) & (later != NULL_TIME)
    passed: Array = later[known] - earlier[known]
    return passed


def occupancy(book: Ledger, rows: LogRows) -> Array:
    """How many messages are held and not yet stable, after each row of the log; a view's end lets all of it go."""
    count = len(rows.event)
    kept = (book.hold >= 0) & ((book.stable < 0) | (book.hold < book.stable))
    let_go = np.where(book.stable < 0, count, book.stable)
    let_go = np.minimum(let_go, view_ends(rows, book.hold))[kept]
    change = np.bincount(book.hold[kept], minlength=count + 1) - np.bincount(let_go, minlength=count + 1)
    level: Array = np.cumsum(change[:count])
    return level


def view_ends(rows: LogRows, row: Array) -> Array:
    """For each of some rows, the row that ends the view that it lies in; the length of the log where none does."""
    ends = np.append(np.flatnonzero(np.isin(rows.event, (VIEW, LEAVE, CRASH))), len(rows.event))
    found: Array = ends[np.searchsorted(ends[:-1], row, "right")]
    return found


class MemberTraffic(NamedTuple):
    """What one member put on the wire and what it took from it, by kind, and whom it repaired."""

    by_kind: dict[str, tuple[int, int | None]]  # kind -> how many, bytes (None: unknown)
    repairs: dict[int | None, tuple[int, int | None]]  # target (None: all) -> how many, bytes
    duplicates: int


def traffic(rows: LogRows) -> MemberTraffic:
    """Count a member's traffic."""
    by_kind: dict[str, tuple[int, int | None]] = {}
    for name, code in (("send", SEND), ("receive", RECEIVE)):
        chosen = rows.event == code
        if chosen.any():
            by_kind[name] = int(chosen.sum()), _bytes(rows.size[chosen])
    repairs: dict[int | None, tuple[int, int | None]] = {}
    duplicates = 0
    control = rows.event == CONTROL
    for number in np.unique(rows.detail[control]).tolist():
        detail = "control" if number == NO_KIND else rows.details[number]
        chosen = control & (rows.detail == number)
        count, size = int(chosen.sum()), _bytes(rows.size[chosen])
        if detail in ("final", *DONE_AT_MEMBER):  # nothing was sent
            continue
        if detail == "duplicate":
            duplicates += count
            continue
        if detail.startswith("repair to "):
            for target in _targets(detail.removeprefix("repair to ")):
                repairs[target] = added(repairs.get(target), (count, size))
            detail = "repair"
        by_kind[detail] = added(by_kind.get(detail), (count, size))
    return MemberTraffic(by_kind, repairs, duplicates)


def _bytes(size: Array) -> int | None:
    known = size[size >= 0]
    return int(known.sum()) if len(known) else None


def _targets(text: str) -> list[int | None]:
    """The members of "3", "1,2" or "all" (None)."""
    words = [word.strip() for word in text.split(",")]
    return [int(word) if word.lstrip("-").isdigit() else None for word in words]


def event_counts(rows: LogRows) -> Counter[int]:
    """How many rows of each event."""
    codes, counts = np.unique(rows.event, return_counts=True)
    return Counter(dict(zip(codes.tolist(), counts.tolist(), strict=True)))
