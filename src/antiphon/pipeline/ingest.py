"""Ingest: find the events of a trace, put unreadable rows aside, and lay the rest out so that checks need no shuffle.

A Parquet trace that already is in order (every stretch of rows one member's, sorted by step) is only surveyed and read
where it lies. Anything else is laid out anew in two stages: tasks part their rows by (run, member) into buckets, then
each bucket is sorted and written in row groups that do not mix members, unless these are tiny.
"""

from __future__ import annotations

import functools
import itertools
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.kernels import survey_rows
from antiphon.pipeline.layout import (
    CODES,
    INDEX_SCHEMA,
    NO_EVENT,
    SKELETON_EVENTS,
    SKELETON_SCHEMA,
    Array,
    Layout,
    Totals,
    as_numpy,
)
from antiphon.pipeline.reading import (
    DUPLICATE,
    REASONS,
    TRACE_SCHEMA,
    TYPES,
    Mapping,
    Rubbish,
    Span,
    can_be_cut,
    count_marks,
    find_files,
    format_of,
    open_parquet_input,
    read_batches,
    run_file,
)
from antiphon.pipeline.session import Session
from antiphon.trace.schema import EVENTS

TASK_ROWS = 4_000_000  # what one task reads
ROW_GROUP_ROWS = 1 << 20
TINY_ROWS = 1 << 16  # members with fewer rows share a row group
SPLIT_BYTES = 64 << 20  # a larger Parquet file is shared out by row groups

QUARANTINE_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("event", pa.string()),
        ("content", pa.string()),
    ]
)


class Split(msgspec.Struct, frozen=True):
    """What one task reads: a file, some of a Parquet file's row groups, or a span of a text."""

    file: str
    row_groups: list[int] | None = None
    span: Span | None = None


class Source(msgspec.Struct, frozen=True):
    """A trace to be ingested, and where to."""

    root: str
    mapping: Mapping
    folder: str
    splits: list[list[Split]]  # by task
    buckets: int


class Part(msgspec.Struct):
    """What one task says of its rows."""

    events: int = 0
    in_order: bool = True
    quarantined: dict[str, int] = msgspec.field(default_factory=dict)
    promises: list[str] | None = None


def ingest(session: Session, trace: str, folder: Path, mapping: Mapping | None = None) -> Totals:
    """Ingest a trace into a folder that `layout.Layout` opens; the trace itself is not touched."""
    mapping = mapping or Mapping()
    files = find_files(trace)
    for name in ("index", "skeleton", "quarantine", "events", "spill"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    bytes_in_all = sum(os.path.getsize(file) for file in files)
    root = str(Path(trace).absolute() if Path(trace).is_dir() else Path(trace).absolute().parent)
    spans = _cut_texts(session, files)
    splits = [*_plan([file for file in files if file not in spans], mapping)]
    splits += [[Split(file, span=span)] for file in spans for span in spans[file]]
    source = Source(root, mapping, str(folder), splits, max(1, min(1024, bytes_in_all // (8 << 20))))
    parquet_only = all((format_of(Path(file)) or "parquet") == "parquet" for file in files)
    if parquet_only and not mapping.renames:
        parts = _each(session, len(source.splits), functools.partial(_survey, source), "survey")
        if all(part.in_order for part in parts) and _segments_do_not_overlap(folder):
            return _totals(trace, folder, parts)
        for stale in [*(folder / "index").iterdir(), *(folder / "skeleton").iterdir()]:
            stale.unlink()
    spilled = _each(session, len(source.splits), functools.partial(_spill, source), "read")
    laid_out = _each(session, source.buckets, functools.partial(_lay_out, source), "sort")
    for spill in (folder / "spill").iterdir():
        spill.unlink()
    return _totals(trace, folder, spilled + laid_out)


def _each(session: Session, tasks: int, work: Any, label: str) -> list[Part]:
    decode = msgspec.msgpack.Decoder(Part).decode
    return [decode(result) for result in session.each(tasks, work, label)]


def _totals(trace: str, folder: Path, parts: list[Part]) -> Totals:
    layout = Layout(folder)
    quarantined: Counter[str] = Counter()
    promises: set[str] | None = None
    for part in parts:
        quarantined.update(part.quarantined)
        if part.promises is not None:
            promises = (promises or set()) | set(part.promises)
    return Totals(
        trace=trace,
        runs=len(layout.runs),
        members=len(np.unique(layout.unit_member)),
        events=int(layout.unit_rows.sum()),
        quarantined=dict(quarantined),
        promises=None if promises is None else sorted(promises),
    )


def _plan(files: list[str], mapping: Mapping) -> Iterator[list[Split]]:
    """Share the files out: large Parquet files by row groups, small files together."""
    together: list[Split] = []
    size = 0
    for file in files:
        parquet = (format_of(Path(file)) or "parquet") == "parquet"
        if parquet and os.path.getsize(file) > SPLIT_BYTES // 4:
            metadata = open_parquet_input(file, mapping).metadata
            groups: list[int] = []
            rows = 0
            for group in range(metadata.num_row_groups):
                groups.append(group)
                rows += metadata.row_group(group).num_rows
                if rows >= TASK_ROWS:
                    yield [Split(file, groups)]
                    groups, rows = [], 0
            if groups:
                yield [Split(file, groups)]
            continue
        together.append(Split(file))
        size += os.path.getsize(file)
        if size >= SPLIT_BYTES // 4 or len(together) >= 256:
            yield together
            together, size = [], 0
    if together:
        yield together


def _cut_texts(session: Session, files: list[str]) -> dict[str, list[Span]]:
    """Large CSV and JSON lines files in spans; one job counts what must be known of all that lies before a span."""
    sizes = {file: os.path.getsize(file) for file in files if can_be_cut(Path(file))}
    cuts = {file: [*range(0, size, SPLIT_BYTES), size] for file, size in sizes.items() if size > SPLIT_BYTES}
    pieces = [(file, start, stop) for file, at in cuts.items() for start, stop in itertools.pairwise(at)]
    if not pieces:
        return {}
    counted = dict(
        msgspec.msgpack.decode(result, type=tuple[int, tuple[int, int]])
        for result in session.each(len(pieces), functools.partial(_count_marks, pieces), "scan")
    )
    spans: dict[str, list[Span]] = {file: [] for file in cuts}
    for number, (file, start, stop) in enumerate(pieces):
        if start == 0:
            lines = quotes = 0
        more_lines, more_quotes = counted[number]
        spans[file].append(Span(start, stop, lines, quotes % 2 == 1, (quotes + more_quotes) % 2 == 1))
        lines, quotes = lines + more_lines, quotes + more_quotes
    return spans


def _count_marks(pieces: list[tuple[str, int, int]], task: int) -> bytes:
    file, start, stop = pieces[task]
    # up to the byte before the span, which says whether a row begins with it
    return msgspec.msgpack.encode((task, count_marks(file, max(0, start - 1), stop - 1)))


def _origin(file: str, root: str, part: Part) -> bool:
    """Note what the run.json of a file promises; return whether its runs have one global clock."""
    found = run_file(str(Path(file).parent), root)
    if found is None:
        return False
    part.promises = sorted({*(part.promises or ()), *found[0]})
    return found[1]


# --- a trace that is in order already ---------------------------------------------------------------------------------


def _survey(source: Source, task: int) -> bytes:
    """Describe the segments of some row groups; not in order if any row is unreadable or out of place."""
    part = Part()
    segments = Segments()
    for split in source.splits[task]:
        file = open_parquet_input(split.file, source.mapping)
        clock = _origin(split.file, source.root, part)
        if not _has_plain_types(file):
            return msgspec.msgpack.encode(Part(in_order=False))
        for group in split.row_groups if split.row_groups is not None else range(file.metadata.num_row_groups):
            only = _one_member(file, group)
            wanted = ["step", "event", "sender", "seq", *(() if only else ("run", "member"))]
            table = file.read_row_group(group, columns=wanted, use_threads=False)
            rare = functools.partial(_rare_columns, file, group)
            if not segments.add(table, split.file, group, clock, rare, only):
                return msgspec.msgpack.encode(Part(in_order=False))
            part.events += table.num_rows
    segments.write(source.folder, f"survey-{task:06}")
    return msgspec.msgpack.encode(part)


def _has_plain_types(file: pq.ParquetFile) -> bool:
    """Whether the numbers are stored as such, and so can be read where they lie."""
    schema = file.schema_arrow
    for name, kind in TYPES.items():
        if name in schema.names and pa.types.is_integer(kind):
            found = schema.field(name).type
            if not pa.types.is_signed_integer(found) or found.bit_width > kind.bit_width:
                return False
    return True


def _one_member(file: pq.ParquetFile, group: int) -> tuple[str, int] | None:
    """The run and member of a whole row group, where its statistics show that it has but one."""
    found = []
    for name in ("run", "member"):
        column = file.metadata.row_group(group).column(_physical(file, name))
        statistics = column.statistics
        if (
            statistics is None
            or not statistics.has_min_max
            or not statistics.has_null_count
            or statistics.null_count
            or statistics.min != statistics.max
        ):
            return None
        found.append(statistics.min)
    run, member = found
    # a statistic may be a shortened text
    return (run, member) if isinstance(run, str) and len(run.encode()) < 64 and isinstance(member, int) else None


def _physical(file: pq.ParquetFile, name: str) -> int:
    return next(i for i in range(len(file.schema)) if file.schema.column(i).path == name)


def _rare_columns(file: pq.ParquetFile, group: int) -> pa.Table:
    """The columns that only `view` rows use, read only where there are any."""
    wanted = [name for name in ("view", "members") if name in file.schema_arrow.names]
    return file.read_row_group(group, columns=wanted, use_threads=False)


class Segments:
    """Collects the index and the skeleton of rows in their final order."""

    def __init__(self) -> None:
        self.index: dict[str, list[Any]] = {name: [] for name in INDEX_SCHEMA.names}
        self.skeleton: list[pa.Table] = []

    def add(
        self,
        table: pa.Table,
        file: str,
        row_group: int,
        clock: bool,
        rare: Callable[[], pa.Table],
        only: tuple[str, int] | None = None,
    ) -> bool:
        """Describe one row group; False if its rows are not good ones, member by member, in order of step."""
        if not table.num_rows:
            return True
        starts, runs, members = _stretches(table, only)
        if runs is None or len(starts) > max(16, table.num_rows // 8) + len(set(zip(runs, members, strict=True))):
            return False
        code = as_numpy(table["event"], "event")
        step, seq, sender = (as_numpy(table[name], name) for name in ("step", "seq", "sender"))
        if table["step"].null_count or (code == NO_EVENT).any():
            return False
        has_sender = pc.is_valid(table["sender"]).to_numpy() if table["sender"].null_count else np.ones(1, bool)
        stops = np.append(starts[1:], table.num_rows)
        rare_columns: pa.Table | None = None
        for start, stop, run, member in zip(starts.tolist(), stops.tolist(), runs, members, strict=True):
            part = slice(start, stop)
            mask = has_sender[part] if len(has_sender) > 1 or table.num_rows == 1 else has_sender
            counts = np.zeros(len(EVENTS), np.int64)
            good, first_seq, last_seq, steady = survey_rows(
                code[part], sender[part], mask, seq[part], step[part], member, counts
            )
            if not good:
                return False
            row: dict[str, Any] = {
                "run": run,
                "member": member,
                "file": file,
                "row_group": row_group,
                "offset": start,
                "rows": stop - start,
                "first_step": step[start],
                "last_step": step[stop - 1],
                "first_seq": first_seq,
                "last_seq": last_seq,
                "steady": steady,
                "global_clock": clock,
                **dict(zip(EVENTS, counts.tolist(), strict=True)),
            }
            for name, values in self.index.items():
                values.append(row[name])
            if counts[list(SKELETON_EVENTS)].any():
                rare_columns = rare() if rare_columns is None else rare_columns
                self._add_skeleton(
                    table["step"][part], rare_columns.slice(start, stop - start), code[part], run, member
                )
        return True

    def _add_skeleton(self, step: pa.ChunkedArray, rare: pa.Table, code: Array, run: str, member: int) -> None:
        place = pa.array(np.flatnonzero(np.isin(code, SKELETON_EVENTS)), pa.int64())
        chosen, size = rare.take(place), len(place)
        lists = pa.list_(pa.int32())
        present = rare.column_names
        self.skeleton.append(
            pa.table(
                [
                    pa.array([run] * size, pa.string()),
                    pa.array([member] * size, pa.int32()),
                    step.take(place).cast(pa.int64()),
                    place,
                    pa.array(code[place.to_numpy()], pa.uint8()),
                    pc.fill_null(chosen["view"].cast(pa.int64()), 0) if "view" in present else pa.array([0] * size),
                    chosen["members"].cast(lists) if "members" in present else pa.nulls(size, lists),
                ],
                schema=SKELETON_SCHEMA,
            )
        )

    def write(self, folder: str, name: str) -> None:
        """Write index and skeleton; a task that runs twice writes the same again."""
        _write(Path(folder) / "index" / f"{name}.parquet", pa.table(self.index, schema=INDEX_SCHEMA))
        if self.skeleton:
            _write(Path(folder) / "skeleton" / f"{name}.parquet", pa.concat_tables(self.skeleton))


def _stretches(table: pa.Table, only: tuple[str, int] | None) -> tuple[Array, list[str] | None, list[int]]:
    """Where each stretch of rows of one (run, member) starts, and whose it is; None for runs if one is null."""
    if only is not None:
        return np.zeros(1, np.int64), [only[0]], [only[1]]
    if table["run"].null_count or table["member"].null_count:
        return np.zeros(0, np.int64), None, []
    run = table["run"].combine_chunks()
    run = run.chunk(0) if isinstance(run, pa.ChunkedArray) else run
    if not pa.types.is_dictionary(run.type):
        run = run.dictionary_encode()
    run_code = run.indices.to_numpy(zero_copy_only=False)
    member = as_numpy(table["member"], "member")
    changed = (run_code[1:] != run_code[:-1]) | (member[1:] != member[:-1])
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1))
    names = run.dictionary.to_pylist()
    return starts, [names[code] for code in run_code[starts]], member[starts].tolist()


def _segments_do_not_overlap(folder: Path) -> bool:
    layout = Layout(folder)
    first, last = layout.column["first_step"], layout.column["last_step"]
    same_unit = np.ones(max(0, len(first) - 1), bool)
    same_unit[layout.bounds[1:-1] - 1] = False
    return bool((~same_unit | (first[1:] > last[:-1])).all())


# --- a trace in any order ---------------------------------------------------------------------------------------------


def _spill(source: Source, task: int) -> bytes:
    """Read some files and part their rows by (run, member) into buckets: one IPC file, one batch a bucket."""
    part = Part()
    quarantine = Quarantine(source.folder, f"read-{task:06}")
    number = 0
    for split in source.splits[task]:
        clock = _origin(split.file, source.root, part)
        for batch in read_batches(split.file, split.row_groups, source.mapping, split.span):
            quarantine.add(batch.bad)
            if batch.good.num_rows:
                _write_buckets(batch.good, source, f"{task:06}-{number:06}", clock)
                number += 1
    part.quarantined = quarantine.close()
    return msgspec.msgpack.encode(part)


def _write_buckets(table: pa.Table, source: Source, name: str, clock: bool) -> None:
    table = _with_codes(table)
    run = table["run"].combine_chunks()
    hashes = np.array([zlib.crc32(text.encode()) for text in run.dictionary.to_pylist()], np.uint64)
    key = hashes[run.indices.to_numpy()] * np.uint64(0x9E3779B97F4A7C15) + table["member"].to_numpy().astype(np.uint64)
    key = (key ^ (key >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    bucket = ((key >> np.uint64(40)) % np.uint64(source.buckets)).astype(np.uint16)
    order = np.argsort(bucket, kind="stable")
    ends = np.cumsum(np.bincount(bucket, minlength=source.buckets))
    schema = table.schema.with_metadata({"clock": str(int(clock))})
    sorted_rows = table.take(pa.array(order)).combine_chunks().replace_schema_metadata(schema.metadata)
    path = Path(source.folder) / "spill" / f"{name}.arrow"
    with Unfinished(path) as fresh, pa.ipc.new_file(str(fresh), schema) as out:
        start = 0
        for end in ends.tolist():
            piece = sorted_rows.slice(start, end - start)
            batches = piece.to_batches()
            out.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema))
            start = end


def _with_codes(table: pa.Table) -> pa.Table:
    """Runs as a dictionary, events as codes, the rest in the contract's types."""
    columns = []
    for field in TRACE_SCHEMA:
        column = table[field.name].combine_chunks()
        if field.name == "run":
            columns.append(column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column)
        elif field.name == "event":
            columns.append(pa.array(as_numpy(table["event"], "event"), pa.uint8()))
        else:
            columns.append(column.cast(field.type))
    return pa.table(columns, names=TRACE_SCHEMA.names)


def _lay_out(source: Source, bucket: int) -> bytes:
    """Sort one bucket by (run, member, step) and write it, one member after the other."""
    part = Part()
    clocks: dict[str, bool] = {}
    pieces = []
    for spill in sorted((Path(source.folder) / "spill").glob("*.arrow")):
        reader = pa.ipc.open_file(pa.memory_map(str(spill)))
        batch = reader.get_batch(bucket)
        if not batch.num_rows:
            continue
        piece = pa.Table.from_batches([batch])
        clock = reader.schema.metadata[b"clock"] == b"1"
        if clock:
            run = piece["run"].chunk(0)
            clocks.update(dict.fromkeys(run.dictionary.take(pc.unique(run.indices)).to_pylist(), True))
        pieces.append(piece.replace_schema_metadata(None))
    if not pieces:
        return msgspec.msgpack.encode(part)
    table = pa.concat_tables(pieces).unify_dictionaries().combine_chunks()
    table, repeated = _in_order(table)
    quarantine = Quarantine(source.folder, f"sort-{bucket:06}")
    quarantine.add(repeated)
    part.quarantined = quarantine.close()
    part.events = table.num_rows
    _write_members(table, source.folder, f"part-{bucket:06}", clocks)
    return msgspec.msgpack.encode(part)


def _in_order(table: pa.Table) -> tuple[pa.Table, list[Rubbish]]:
    """Sort by (run, member, step); of rows with the same three, keep the one with the smallest (event, sender, seq)."""
    run_array = table["run"].chunk(0)
    names = run_array.dictionary
    rank = np.argsort(
        np.argsort(np.array([name.encode() for name in names.to_pylist()], dtype=object), kind="stable"), kind="stable"
    )
    run = rank[run_array.indices.to_numpy()]
    member, step = table["member"].to_numpy(), table["step"].to_numpy()
    order = np.lexsort((step, member, run))
    run, member, step = run[order], member[order], step[order]
    repeats = (run[1:] == run[:-1]) & (member[1:] == member[:-1]) & (step[1:] == step[:-1])
    if repeats.any():
        name_rank = np.argsort(np.argsort(np.array(EVENTS)))[table["event"].to_numpy()]
        sender, seq = (as_numpy(table[column], column) for column in ("sender", "seq"))
        missing = pc.is_null(table["sender"]).to_numpy(), pc.is_null(table["seq"]).to_numpy()
        order = np.lexsort(
            (
                seq,
                ~missing[1],
                sender,
                ~missing[0],
                name_rank,
                table["step"].to_numpy(),
                table["member"].to_numpy(),
                rank[run_array.indices.to_numpy()],
            )
        )
    keep = np.concatenate(([True], ~repeats))
    rubbish = [
        Rubbish(
            "",
            None,
            REASONS[DUPLICATE],
            EVENTS[row["event"]],
            msgspec.json.encode({**row, "event": EVENTS[row["event"]]}).decode(),
        )
        for row in table.take(pa.array(order[~keep])).to_pylist()
    ]
    return table.take(pa.array(order[keep])).combine_chunks(), rubbish


def _write_members(table: pa.Table, folder: str, name: str, clocks: dict[str, bool]) -> None:
    """Write rows in order; a member with many rows gets row groups of its own, small ones share."""
    path = Path(folder) / "events" / f"{name}.parquet"
    starts, runs, _ = _stretches(table, None)
    assert runs is not None
    stops = np.append(starts[1:], table.num_rows)
    encoded = _with_names(table)
    segments = Segments()
    with (
        Unfinished(path) as fresh,
        pq.ParquetWriter(
            str(fresh),
            encoded.schema,
            compression="lz4",
            use_dictionary=["run", "event", "detail"],
            write_statistics=["run", "member"],
        ) as out,
    ):
        group = 0
        begun = 0
        for start, stop, run in zip(starts.tolist(), stops.tolist(), runs, strict=True):
            last = stop == table.num_rows
            if stop - start >= TINY_ROWS and begun < start:
                group += _write_group(out, segments, encoded, begun, start, str(path), group, clocks, run)
                begun = start
            if stop - begun >= TINY_ROWS or last:
                group += _write_group(out, segments, encoded, begun, stop, str(path), group, clocks, run)
                begun = stop
    segments.write(folder, name)


def _write_group(
    out: pq.ParquetWriter,
    segments: Segments,
    table: pa.Table,
    start: int,
    stop: int,
    file: str,
    group: int,
    clocks: dict[str, bool],
    run: str,
) -> int:
    """Write rows as row groups of bounded size; return how many."""
    written = 0
    for at in range(start, stop, ROW_GROUP_ROWS):
        rows = table.slice(at, min(ROW_GROUP_ROWS, stop - at))
        out.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        good = segments.add(rows, file, group + written, False, functools.partial(rows.select, ["view", "members"]))
        assert good, "rows that were sorted and sifted are in order"
        written += 1
    if clocks:
        segments.index["global_clock"] = [clocks.get(name, False) for name in segments.index["run"]]
    return written


def _with_names(table: pa.Table) -> pa.Table:
    events = pa.DictionaryArray.from_arrays(
        table["event"].combine_chunks().cast(pa.int8()), pa.array(EVENTS, pa.string())
    )
    return table.set_column(table.schema.get_field_index("event"), "event", events)


class Quarantine:
    """Rows that cannot be read, written beside the rest with a reason each."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder) / "quarantine" / f"{name}.parquet"
        self.counts: Counter[str] = Counter()
        self.writer: pq.ParquetWriter | None = None

    def add(self, rubbish: list[Rubbish]) -> None:
        """Put rows aside."""
        if not rubbish:
            return
        if self.writer is None:
            self.writer = pq.ParquetWriter(f"{self.path}.{os.getpid()}.unfinished", QUARANTINE_SCHEMA)
        self.writer.write_table(
            pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rubbish], QUARANTINE_SCHEMA)
        )
        self.counts.update(row.event or "" for row in rubbish)

    def close(self) -> dict[str, int]:
        """Finish the file; return how many rows of each event were put aside."""
        if self.writer is not None:
            self.writer.close()
            Path(f"{self.path}.{os.getpid()}.unfinished").replace(self.path)
        return dict(self.counts)


class Unfinished:
    """A name to write to that becomes the real one only when all is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fresh = path.with_name(f"{path.name}.{os.getpid()}.unfinished")

    def __enter__(self) -> Path:
        return self.fresh

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.fresh.replace(self.path)
        else:
            self.fresh.unlink(missing_ok=True)


def _write(path: Path, table: pa.Table) -> None:
    with Unfinished(path) as fresh:
        pq.write_table(table, fresh, compression="lz4")


assert set(CODES) == set(EVENTS)
