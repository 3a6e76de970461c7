"""A trace in any order: its rows parted by (run, member) into buckets, then each bucket sorted and written."""

from __future__ import annotations

import functools
import uuid
import zlib
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.columns import as_numpy
from antiphon.pipeline.ingesting.job import IngestJob, IngestPart, SpillFile
from antiphon.pipeline.ingesting.quarantine import Quarantine
from antiphon.pipeline.ingesting.segments import Segments, stretches
from antiphon.pipeline.reading import read_batches
from antiphon.pipeline.reading.rows import DUPLICATE, REASONS, TRACE_SCHEMA, UnreadableRow
from antiphon.pipeline.store.layout import ROWS
from antiphon.pipeline.store.location import location, open_input, replacement
from antiphon.trace.run_file import RunFiles
from antiphon.trace.schema import EVENTS

SPILL: Final = "_spill"  # the folder of the files in between
ROW_GROUP_ROWS: Final = 1 << 18
TINY_ROWS: Final = 1 << 16  # members with fewer rows share a row group
BUCKETS: Final = 1024
SHARE_ROWS_MIN: Final = 100_000  # that a task sorts, if there are as many
SHARE_ROWS_MAX: Final = 1_000_000  # unless one bucket has more


def spill(source: IngestJob, task: int) -> bytes:
    """Read some files and part their rows by (run, member) into buckets."""
    part = IngestPart()
    quarantine = Quarantine(source.folder, f"read-{task:06}")
    run_files = RunFiles(location(source.root))
    for split in source.splits[task]:
        clock = part.note(run_files.of(location(split.file).parent))
        for batch in read_batches(split.file, split.row_groups, source.mapping, split.span):
            quarantine.add(batch.bad)
            if batch.good.num_rows:
                part.spilled.append(write_buckets(batch.good, source.folder, clock))
    quarantine.close(part)
    return msgspec.msgpack.encode(part)


def write_buckets(table: pa.Table, folder: str, clock: bool) -> SpillFile:
    """Write rows, parted by (run, member), as one IPC file: one batch for each bucket that has any.

    Its name is never given twice. A task may run twice, and only the files that it tells the driver of will be read.
    """
    table = _with_codes(table)
    run = table["run"].combine_chunks()
    hashes = np.array([zlib.crc32(text.encode()) for text in run.dictionary.to_pylist()], np.uint64)
    key = hashes[run.indices.to_numpy()] * np.uint64(0x9E3779B97F4A7C15) + table["member"].to_numpy().astype(np.uint64)
    key = (key ^ (key >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    bucket = ((key >> np.uint64(40)) % np.uint64(BUCKETS)).astype(np.uint16)
    order = np.argsort(bucket, kind="stable")
    counts = np.bincount(bucket, minlength=BUCKETS)
    present = np.flatnonzero(counts)
    schema = table.schema.with_metadata({"clock": str(int(clock))})
    sorted_rows = table.take(pa.array(order)).combine_chunks().replace_schema_metadata(schema.metadata)
    written = SpillFile(f"{uuid.uuid4().hex}.arrow", present.tolist(), counts[present].tolist())
    path = location(folder) / SPILL / written.name
    with replacement(path) as fresh, pa.ipc.new_file(str(fresh), schema) as out:
        start = 0
        for rows in written.rows:
            out.write_batch(sorted_rows.slice(start, rows).to_batches()[0])
            start += rows
    return written


def share_buckets(spilled: list[SpillFile], tasks: int) -> list[list[int]]:
    """Share the buckets out among tasks that sort: about as many rows in each, and not too many."""
    rows = np.zeros(BUCKETS, np.int64)
    for file in spilled:
        rows[file.buckets] += file.rows
    size = max(SHARE_ROWS_MIN, min(SHARE_ROWS_MAX, int(rows.sum()) // tasks))
    shared: list[list[int]] = []
    filled = size
    for bucket in np.flatnonzero(rows).tolist():
        if filled + rows[bucket] // 2 >= size:
            shared.append([])
            filled = 0
        shared[-1].append(bucket)
        filled += int(rows[bucket])
    return shared


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
    more = [name for name in table.column_names if name not in TRACE_SCHEMA.names]
    return pa.table([*columns, *(table[name] for name in more)], names=[*TRACE_SCHEMA.names, *more])


def lay_out(folder: str, spilled: list[SpillFile], shared: list[list[int]], task: int) -> bytes:
    """Sort some buckets by (run, member, step) and write their rows, one member after the other."""
    part = IngestPart()
    clocks: dict[str, bool] = {}
    pieces = []
    wanted = set(shared[task])
    for file in spilled:
        batches = [number for number, bucket in enumerate(file.buckets) if bucket in wanted]
        if not batches:
            continue
        reader = pa.ipc.open_file(open_input(location(folder) / SPILL / file.name))
        clock = reader.schema.metadata[b"clock"] == b"1"
        for number in batches:
            piece = pa.Table.from_batches([reader.get_batch(number)])
            if clock:
                run = piece["run"].chunk(0)
                clocks.update(dict.fromkeys(run.dictionary.take(pc.unique(run.indices)).to_pylist(), True))
            pieces.append(piece.replace_schema_metadata(None))
    table = pa.concat_tables(pieces, promote_options="default").unify_dictionaries().combine_chunks()
    table, repeated = _in_order(table)
    quarantine = Quarantine(folder, f"sort-{task:06}")
    quarantine.add(repeated)
    quarantine.close(part)
    part.events = table.num_rows
    _write_members(table, folder, f"part-{task:06}", clocks)
    return msgspec.msgpack.encode(part)


def _in_order(table: pa.Table) -> tuple[pa.Table, list[UnreadableRow]]:
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
        UnreadableRow(
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
    file = f"{ROWS}/{name}.parquet"
    starts, runs, _ = stretches(table, None)
    assert runs is not None
    stops = np.append(starts[1:], table.num_rows)
    encoded = _with_names(table)
    segments = Segments()
    with (
        replacement(location(folder) / file) as fresh,
        pq.ParquetWriter(
            str(fresh),
            encoded.schema,
            compression="lz4",
            use_dictionary=["run", "event", "detail", "topic", "partition", "group"],
            write_statistics=["run", "member", "time_ns"],
        ) as out,
    ):
        group = 0
        begun = 0
        for start, stop, run in zip(starts.tolist(), stops.tolist(), runs, strict=True):
            last = stop == table.num_rows
            if stop - start >= TINY_ROWS and begun < start:
                group += _write_group(out, segments, encoded, begun, start, file, group, clocks, run)
                begun = start
            if stop - begun >= TINY_ROWS or last:
                group += _write_group(out, segments, encoded, begun, stop, file, group, clocks, run)
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
