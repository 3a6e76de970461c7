"""Ingest: find the events of a trace, put unreadable rows aside, and lay the rest out so that checks need no shuffle.

A Parquet trace that already is in order (every stretch of rows one member's, sorted by step) is only surveyed and read
where it lies. Anything else is laid out anew in two stages: tasks part their rows by (run, member) into buckets, then
each bucket is sorted and written in row groups that do not mix members, unless these are tiny.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from antiphon.errors import NotATrace, UsageError
from antiphon.pipeline.ingesting.foreign import bring, decide_times, find_logs, first_lines, first_records, has_text
from antiphon.pipeline.ingesting.foreign.form import form_of
from antiphon.pipeline.ingesting.foreign.guess import suggest, suggest_lines
from antiphon.pipeline.ingesting.frame import (
    FrameFacts,
    fit_frame,
    has_open_times,
    may_have_names,
    spill_frame,
    with_one_member,
    without_dots,
    write_frame,
)
from antiphon.pipeline.ingesting.job import FilePart, IngestJob, IngestPart
from antiphon.pipeline.ingesting.relayout import SPILL, lay_out, share_buckets, spill
from antiphon.pipeline.ingesting.survey import segments_do_not_overlap, survey
from antiphon.pipeline.reading import open_parquet_input
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.text import TextSpan, can_be_cut, count_marks
from antiphon.pipeline.reading.time_units import TimeReading
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.files import find_files, format_of
from antiphon.pipeline.store.layout import INDEX, QUARANTINE, ROWS, SKELETON, Totals, TraceLayout
from antiphon.pipeline.store.location import Location, copy_tree, location, remove_tree, size_of
from antiphon.wording import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK_ROWS = 4_000_000  # what one task reads
FRAME = "_frame"  # the folder of a DataFrame's rows as they are
FOREIGN = "_foreign"  # the folder in which another system's log becomes a trace
FILE_PART_BYTES = 64 << 20  # a larger Parquet file is shared out by row groups


def ingest(session: Session, trace: str, folder: Location, mapping: Mapping | None = None) -> Totals:
    """Ingest a trace into a folder that `TraceLayout` opens; the trace itself is not touched."""
    mapping = mapping or Mapping()
    files = find_trace(trace, mapping)
    try:
        mapping, times = decide_times(files, mapping)
        if mapping.is_of_a_log or has_text(files, mapping):
            totals = _ingest_foreign(session, trace, files, folder, mapping)
        else:
            totals = _ingest_files(session, trace, files, folder, mapping)
        if not totals.events and totals.quarantined:
            raise NotATrace(_unreadable(trace, totals.reasons))
    except NotATrace as problem:
        raise UsageError(f"{problem}{_hint(files)}") from None
    totals.promises = totals.promises or mapping.promises or None
    totals.times = times
    return totals


def _ingest_files(session: Session, trace: str, files: list[str], folder: Location, mapping: Mapping) -> Totals:
    _make_folders(folder)
    where = location(trace)
    root = str(where.parent if where.is_file() else where)
    spans = _cut_texts(session, files)
    splits = [*_plan([file for file in files if file not in spans], mapping)]
    splits += [[FilePart(file, span=span)] for file in spans for span in spans[file]]
    source = IngestJob(root, mapping, str(folder), splits)
    parquet_only = all((format_of(Path(file)) or "parquet") == "parquet" for file in files)
    if parquet_only and not mapping.renames:
        parts = _each(session, len(source.splits), functools.partial(survey, source), "survey")
        if all(part.in_order for part in parts) and segments_do_not_overlap(folder):
            return _totals(trace, folder, parts)
        for stale in [*(folder / INDEX).iterdir(), *(folder / SKELETON).iterdir()]:
            stale.unlink()
    return _sort(session, trace, folder, _each(session, len(source.splits), functools.partial(spill, source), "read"))


def find_trace(trace: str, mapping: Mapping | None) -> list[str]:
    """Return the files of a trace, or of the log that becomes one; UsageError says what is wrong with the path."""
    return find_logs(trace, mapping) if mapping is not None and mapping.is_of_a_log else find_files(trace)


def _ingest_foreign(session: Session, trace: str, files: list[str], folder: Location, mapping: Mapping) -> Totals:
    """Ingest the trace that another system's log becomes."""
    brought = bring(session, files, mapping, folder / FOREIGN)
    if not brought.runs:
        reasons: Counter[str] = Counter()
        for part in brought.parts:
            reasons.update(part.reasons)
        said = "" if reasons or not mapping.preset else f"; --from {mapping.preset} reads {form_of(mapping).about}"
        raise NotATrace(_unreadable(trace, dict(reasons.most_common())) + said)
    about = location(trace) / "run.json"
    if about.is_file():
        (location(brought.folder) / "run.json").write_text(about.read_text())
    totals = _ingest_files(session, brought.folder, find_files(brought.folder), folder, Mapping())
    copy_tree(folder / FOREIGN / QUARANTINE, folder / QUARANTINE)
    totals.trace, totals.names = trace, brought.names
    for part in brought.parts:
        totals.quarantined = dict(Counter(totals.quarantined) + Counter(part.quarantined))
        totals.examples = part.examples | totals.examples
        totals.reasons = dict((Counter(totals.reasons) + Counter(part.reasons)).most_common())
    totals.promises = totals.promises or mapping.promises or form_of(mapping).promises or None
    return totals


def _unreadable(trace: str, reasons: dict[str, int]) -> str:
    most = "; ".join(f"{count(rows, 'row')}: {reason}" for reason, rows in [*reasons.items()][:3])
    return f"{trace}: no row can be read as an event{f'; {most}' if most else ''}"


def _hint(files: list[str]) -> str:
    """Say how the files could be read, as far as their first records show it."""
    records = [record for file in files[:4] for record in first_records(file, 100)]
    said = suggest(records) if records else suggest_lines(first_lines(files[0], 100))
    return f"; {said}" if said else ""


def ingest_frame(session: Session, frame: DataFrame, folder: Location, mapping: Mapping, about: FrameFacts) -> Totals:
    """Ingest the rows of a DataFrame, which Spark computes once; they never come to the driver."""
    mapping = with_one_member(frame, mapping, about.name)
    times = TimeReading(mapping.time_unit, "mapping" if mapping.time_unit else "")
    if may_have_names(frame, mapping) or has_open_times(frame, mapping):
        files = _write_frame(session, frame, folder, about)
        mapping, times = decide_times(files, mapping)
        if mapping.is_of_a_log or has_text(files, mapping):
            totals = ingest(session, str(folder / FRAME), folder, mapping)
            totals.trace = about.name
            remove_tree(folder / FRAME)
            return totals
        if files:  # texts that are numbers
            frame = session.spark.read.parquet(*files)
    wanted, mapping = fit_frame(frame, mapping)
    job = IngestJob("", mapping, str(folder))
    _make_folders(folder)
    spilled = _decoded(session.over(wanted, functools.partial(spill_frame, job, about), "read"))
    totals = _sort(session, about.name, folder, spilled)
    totals.promises = sorted(about.promises) if about.promises else None
    totals.times = times
    return totals


def _write_frame(session: Session, frame: DataFrame, folder: Location, about: FrameFacts) -> list[str]:
    """Write a DataFrame's rows as they are, by tasks, as files of a log: to number its names takes several looks."""
    raw = folder / FRAME
    raw.mkdir(parents=True, exist_ok=True)
    written = [
        name.decode()
        for name in session.over(without_dots(frame), functools.partial(write_frame, str(raw)), "read")
        if name
    ]
    facts = {"clock": "global"} if about.global_clock else {}
    (raw / "run.json").write_text(json.dumps({**facts, "promises": sorted(about.promises)}))
    kept = {"run.json", *(location(name).name for name in written)}
    for repeated in [one for one in raw.iterdir() if one.name not in kept]:  # of a task that Spark had to repeat
        repeated.unlink()
    return written


def _make_folders(folder: Location) -> None:
    for name in (INDEX, SKELETON, QUARANTINE, ROWS, SPILL):
        (folder / name).mkdir(parents=True, exist_ok=True)


def _sort(session: Session, trace: str, folder: Location, parts: list[IngestPart]) -> Totals:
    """Lay out the rows that tasks have parted into buckets."""
    spilled = [file for part in parts for file in part.spilled]
    shared = share_buckets(spilled, session.parallelism)
    laid_out = _each(session, len(shared), functools.partial(lay_out, str(folder), spilled, shared), "sort")
    remove_tree(folder / SPILL)
    parts = parts + laid_out
    for aside in (folder / QUARANTINE).iterdir():
        if aside.name not in {part.quarantine for part in parts}:  # of a task that Spark had to repeat
            aside.unlink()
    return _totals(trace, folder, parts)


def _each(session: Session, tasks: int, work: Any, label: str) -> list[IngestPart]:
    return _decoded(session.each(tasks, work, label))


def _decoded(results: Iterable[bytes]) -> list[IngestPart]:
    decode = msgspec.msgpack.Decoder(IngestPart).decode
    return [decode(result) for result in results]


def _totals(trace: str, folder: Location, parts: list[IngestPart]) -> Totals:
    layout = TraceLayout(folder)
    quarantined: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    promises: set[str] | None = None
    for part in parts:
        quarantined.update(part.quarantined)
        reasons.update(part.reasons)
        examples = part.examples | examples
        if part.promises is not None:
            promises = (promises or set()) | set(part.promises)
    return Totals(
        trace=trace,
        runs=len(layout.runs),
        members=len(np.unique(layout.unit_member)),
        events=int(layout.unit_rows.sum()),
        quarantined=dict(quarantined),
        reasons=dict(reasons.most_common()),
        examples=examples,
        promises=None if promises is None else sorted(promises),
        ends=bool(said := [part.ends for part in parts if part.ends is not None]) and all(said),
    )


def _plan(files: list[str], mapping: Mapping) -> Iterator[list[FilePart]]:
    """Share the files out: large Parquet files by row groups, small files together."""
    together: list[FilePart] = []
    size = 0
    for file in files:
        parquet = (format_of(Path(file)) or "parquet") == "parquet"
        if parquet and size_of(file) > FILE_PART_BYTES // 4:
            metadata = open_parquet_input(file, mapping)[0].metadata
            groups: list[int] = []
            rows = 0
            for group in range(metadata.num_row_groups):
                groups.append(group)
                rows += metadata.row_group(group).num_rows
                if rows >= TASK_ROWS:
                    yield [FilePart(file, groups)]
                    groups, rows = [], 0
            if groups:
                yield [FilePart(file, groups)]
            continue
        together.append(FilePart(file))
        size += size_of(file)
        if size >= FILE_PART_BYTES // 4 or len(together) >= 256:
            yield together
            together, size = [], 0
    if together:
        yield together


def _cut_texts(session: Session, files: list[str]) -> dict[str, list[TextSpan]]:
    """Large CSV and JSON lines files in spans; one job counts what must be known of all that lies before a span."""
    texts = (file for file in files if format_of(Path(file)) in ("csv", "json lines"))
    sizes = {file: size for file in texts if (size := size_of(file)) > FILE_PART_BYTES and can_be_cut(file)}
    cuts = {file: [*range(0, size, FILE_PART_BYTES), size] for file, size in sizes.items()}
    pieces = [(file, start, stop) for file, at in cuts.items() for start, stop in itertools.pairwise(at)]
    if not pieces:
        return {}
    counted = dict(
        msgspec.msgpack.decode(result, type=tuple[int, tuple[int, int]])
        for result in session.each(len(pieces), functools.partial(_count_marks, pieces), "scan")
    )
    spans: dict[str, list[TextSpan]] = {file: [] for file in cuts}
    for number, (file, start, stop) in enumerate(pieces):
        if start == 0:
            lines = quotes = 0
        more_lines, more_quotes = counted[number]
        spans[file].append(TextSpan(start, stop, lines, quotes % 2 == 1, (quotes + more_quotes) % 2 == 1))
        lines, quotes = lines + more_lines, quotes + more_quotes
    return spans


def _count_marks(pieces: list[tuple[str, int, int]], task: int) -> bytes:
    file, start, stop = pieces[task]
    # up to the byte before the span, which says whether a row begins with it
    return msgspec.msgpack.encode((task, count_marks(file, max(0, start - 1), stop - 1)))
