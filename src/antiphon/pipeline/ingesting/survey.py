"""A Parquet trace that is in order already: described where it lies, not written anew."""

from __future__ import annotations

import functools

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.pipeline.ingesting.job import IngestJob, IngestPart
from antiphon.pipeline.ingesting.segments import Segments
from antiphon.pipeline.reading import open_parquet_input
from antiphon.pipeline.reading.plain_columns import is_plain
from antiphon.pipeline.reading.rows import TYPES
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import Location, location
from antiphon.trace.run_file import RunFiles


def survey(source: IngestJob, task: int) -> bytes:
    """Describe the segments of some row groups; not in order if any row is unreadable or out of place."""
    part = IngestPart()
    segments = Segments()
    run_files = RunFiles(location(source.root))
    for split in source.splits[task]:
        file, mapping = open_parquet_input(split.file, source.mapping)
        clock = part.note(run_files.of(location(split.file).parent))
        if mapping.renames or not _has_plain_types(file):
            return msgspec.msgpack.encode(IngestPart(in_order=False))
        for group in split.row_groups if split.row_groups is not None else range(file.metadata.num_row_groups):
            only = _one_member(file, group)
            wanted = ["step", "event", "sender", "seq", *(() if only else ("run", "member"))]
            table = file.read_row_group(group, columns=wanted, use_threads=False)
            rare = functools.partial(_rare_columns, file, group)
            if not segments.add(table, split.file, group, clock, rare, only):
                return msgspec.msgpack.encode(IngestPart(in_order=False))
            part.events += table.num_rows
    segments.write(source.folder, f"survey-{task:06}")
    return msgspec.msgpack.encode(part)


def _has_plain_types(file: pq.ParquetFile) -> bool:
    """Whether numbers and texts are stored as such, and so can be read where they lie."""
    schema = file.schema_arrow
    for name, kind in TYPES.items():
        if name not in schema.names:
            continue
        found = schema.field(name).type
        if pa.types.is_integer(kind):
            if not pa.types.is_signed_integer(found) or found.bit_width > kind.bit_width:
                return False
        elif pa.types.is_string(kind) and not (pa.types.is_large_string(found) or is_plain(found)):
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


def segments_do_not_overlap(folder: Location) -> bool:
    """Say whether each member's segments, in order of their first steps, follow one another."""
    layout = TraceLayout(folder)
    first, last = layout.column["first_step"], layout.column["last_step"]
    same_unit = np.ones(max(0, len(first) - 1), bool)
    same_unit[layout.bounds[1:-1] - 1] = False
    return bool((~same_unit | (first[1:] > last[:-1])).all())
