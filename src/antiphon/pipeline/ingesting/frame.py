"""The rows of a DataFrame as a trace's: columns named by a mapping, batches read where Spark has them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.pipeline.ingesting.foreign.form import form_of
from antiphon.pipeline.ingesting.foreign.records import LogKeys
from antiphon.pipeline.ingesting.job import IngestJob, IngestPart
from antiphon.pipeline.ingesting.quarantine import Quarantine
from antiphon.pipeline.ingesting.relayout import write_buckets
from antiphon.pipeline.reading import BATCH_ROWS, require_columns
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.plain_columns import plain_schema, plain_table
from antiphon.pipeline.reading.rows import TYPES, sort_out
from antiphon.pipeline.store.location import location, replacement
from antiphon.trace.schema import BROKER_COLUMNS, COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FrameFacts(msgspec.Struct, frozen=True):
    """What a table's rows do not say of themselves, and a folder's run.json would."""

    name: str = "DataFrame"
    promises: tuple[str, ...] = ()
    global_clock: bool = False


def fit_frame(frame: DataFrame, mapping: Mapping) -> tuple[DataFrame, Mapping]:
    """Return the columns of a DataFrame that a trace has, and the mapping as it applies to them."""
    from pyspark.sql import functions

    schema = _plain_schema(frame, mapping)
    mapping = mapping.fitted("", [*frame.columns, *(name for name in schema.names if name not in frame.columns)])
    wanted = [foreign for name in (*COLUMNS, *BROKER_COLUMNS) if (foreign := mapping.foreign(name)) in schema.names]
    inside = {name: name.split(".") for name in wanted if name not in frame.columns}  # of a struct, or of a map
    chosen = frame.select(
        *(functions.col(".".join(map(_quoted, inside.get(name, [name])))).alias(name) for name in wanted)
    )
    require_columns(_plain_schema(chosen, mapping), "the DataFrame", mapping, texts=True)
    renamed = {name: key.replace(".", "_") for name, key in mapping.columns.items() if key in wanted}
    return without_dots(chosen), msgspec.structs.replace(mapping, columns=mapping.columns | renamed)


def without_dots(frame: DataFrame) -> DataFrame:
    """Return a DataFrame whose columns Spark finds by their names, as `mapInArrow` needs it."""
    return frame.toDF(*(name.replace(".", "_") for name in frame.columns))


def with_one_member(frame: DataFrame, mapping: Mapping, name: str) -> Mapping:
    """Let a table whose rows do not say who logged them be one member's, where a log's file would be the member."""
    form = form_of(mapping)
    keys = LogKeys(form.columns.get("member", ["member"]))
    said = "member" in form.constants or any(keys.name(column) in keys.keys for column in frame.columns)
    if said or "{file}" not in form.defaults.get("member", ""):
        return mapping
    return msgspec.structs.replace(mapping, constants=mapping.constants | {"member": name})


def _plain_schema(frame: DataFrame, mapping: Mapping) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return plain_schema(to_arrow_schema(frame.schema, timezone="UTC"), mapping.keys)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def may_have_names(frame: DataFrame, mapping: Mapping) -> bool:
    """Say whether a DataFrame may have names of members or ids of messages, by the types of its columns.

    Those are texts, and numbers of more bits than a trace's have.
    """
    kinds = {name: _type_of(frame, mapping, name) for name in ("member", "seq")}
    return bool(mapping.preset) or any(kind is not None and _may_be_names(kind, name) for name, kind in kinds.items())


def _may_be_names(kind: pa.DataType, name: str) -> bool:
    bits = TYPES[name].bit_width
    if pa.types.is_decimal(kind):  # as Spark has numbers of 64 bits without a sign
        return bool(10 ** (kind.precision - kind.scale) > 1 << (bits - 1))
    return bool(pa.types.is_string(kind) or (pa.types.is_integer(kind) and kind.bit_width > bits))


def has_open_times(frame: DataFrame, mapping: Mapping) -> bool:
    """Say whether a DataFrame has times that are numbers, and nothing but these says in which unit."""
    kind = _type_of(frame, mapping, "time_ns")
    return kind is not None and not pa.types.is_temporal(kind) and not mapping.unit_of_times


def _type_of(frame: DataFrame, mapping: Mapping, name: str) -> pa.DataType | None:
    """Return the type of the column that is one of the trace's, None if there is none."""
    lower = {field.name.lower(): field.type for field in _plain_schema(frame, mapping)}
    return None if name in mapping.constants else lower.get(mapping.foreign(name).lower())


def write_frame(folder: str, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Write one partition's rows as they are, for tasks that read logs; return the file's name."""
    path = location(folder) / f"{uuid.uuid4().hex}.parquet"
    writer: pq.ParquetWriter | None = None
    with replacement(path) as fresh:
        for table in _gathered(batches):
            writer = writer or pq.ParquetWriter(fresh, table.schema, compression="lz4")
            writer.write_table(table)
        if writer is None:
            return b""
        writer.close()
    return str(path).encode()


def spill_frame(job: IngestJob, about: FrameFacts, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Part one partition's rows by (run, member) into buckets."""
    part = IngestPart()
    quarantine = Quarantine(job.folder, f"read-{uuid.uuid4().hex}")
    for table in _gathered(batches):
        rows = sort_out(plain_table(table), about.name, 1, job.mapping)
        # where Spark computes a row is no property of it
        quarantine.add([msgspec.structs.replace(row, row=None) for row in rows.bad])
        if rows.good.num_rows:
            part.spilled.append(write_buckets(rows.good, job.folder, about.global_clock))
    quarantine.close(part)
    return msgspec.msgpack.encode(part)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put batches together: Spark's are small."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)
