"""`spark.read.format("antiphon")`: a trace as a DataFrame, and a DataFrame as a trace, for anyone's notebook.

    from antiphon.pipeline.source import register

    register(spark)
    trace = spark.read.format("antiphon").load("out/run")
    trace.where("event = 'deliver' and member = 3").groupBy("sender").count().show()
    trace.where("run = 'r1'").write.format("antiphon").mode("overwrite").save("out/r1")

Options: `mapping` (a mapping file, as `antiphon check --mapping`) and `unreadable`: "fail" (the default) or "skip".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from antiphon.atomic_write import Replacement
from antiphon.errors import UsageError
from antiphon.pipeline.ingesting import FILE_PART_BYTES, TASK_ROWS
from antiphon.pipeline.ingesting.foreign import decide_times
from antiphon.pipeline.reading import read_batches
from antiphon.pipeline.reading.mapping import Mapping, load_mapping
from antiphon.pipeline.reading.rows import TRACE_SCHEMA
from antiphon.pipeline.store.files import find_files, format_of
from antiphon.pipeline.store.location import location, open_parquet, size_of

NAME: Final = "antiphon"
BATCH_ROWS: Final = 65_536
_SCALARS: Final = tuple(field.name for field in TRACE_SCHEMA if not pa.types.is_list(field.type))
_COMPARISONS: Final[dict[type[Filter], str]] = {
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}


def register(spark: SparkSession) -> None:
    """Make the format known to a session, and let it hand its filters down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(TraceSource)
    if isinstance(spark, SparkSession):  # and not one of Spark Connect
        # a writer's format is looked up in the session that is active in the JVM's thread; after Ctrl-C none is
        jvm: Any = spark._jvm
        jvm.SparkSession.setActiveSession(spark._jsparkSession)


class TraceSource(DataSource):
    """The format `antiphon`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the trace contract."""
        return from_arrow_schema(TRACE_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the path that was loaded."""
        return TraceReader(dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer to the path that is saved to."""
        return TraceWriter(_path(dict(self.options)), overwrite)


@dataclass
class Share(InputPartition):
    """What one task reads: some files, or some row groups of one."""

    files: list[str]
    row_groups: list[int] | None


class TraceReader(DataSourceReader):
    """Reads a trace in record batches; rows that a filter excludes never leave the Python worker."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path = _path(options)
        self.skip = _unreadable(options)
        mapping = load_mapping(options["mapping"]) if "mapping" in options else Mapping()
        self.mapping, _ = decide_times(find_files(self.path), mapping)
        self.filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take over comparisons of plain columns with constants."""
        for given in filters:
            if self._can(given):
                self.filters.append(given)
            else:
                yield given

    def _can(self, given: Filter) -> bool:
        known = isinstance(given, (*_COMPARISONS, In, IsNotNull))
        return known and _attribute(given) in [(name,) for name in _SCALARS]

    def partitions(self) -> list[InputPartition]:
        """Share the files out: large Parquet files by row groups, small files together."""
        return list(self._plan())

    def _plan(self) -> Iterator[Share]:
        together: list[str] = []
        size = 0
        for file in find_files(self.path):
            parquet = (format_of(Path(file)) or "parquet") == "parquet"
            if parquet and size_of(file) > FILE_PART_BYTES // 4:
                yield from self._row_groups(file)
                continue
            together.append(file)
            size += size_of(file)
            if size >= FILE_PART_BYTES // 4:
                yield Share(together, None)
                together, size = [], 0
        if together:
            yield Share(together, None)

    def _row_groups(self, file: str) -> Iterator[Share]:
        metadata = open_parquet(location(file)).metadata
        chosen: list[int] = []
        rows = 0
        for group in range(metadata.num_row_groups):
            if not self._may_hold(metadata.row_group(group)):
                continue
            if chosen and (chosen[-1] + 1 != group or rows >= TASK_ROWS):
                yield Share([file], chosen)
                chosen, rows = [], 0
            chosen.append(group)
            rows += metadata.row_group(group).num_rows
        if chosen:
            yield Share([file], chosen)

    def _may_hold(self, group: Any) -> bool:
        """Whether the statistics of a row group leave room for a row that all filters want."""
        if self.mapping.renames:
            return True
        for given in self.filters:
            if not isinstance(given, EqualTo):
                continue
            for number in range(group.num_columns):
                column = group.column(number)
                found = column.statistics
                plain = column.path_in_schema == given.attribute[0] and found is not None and found.has_min_max
                # a statistic of a long text may be shortened
                if plain and isinstance(found.min, int) and not found.min <= given.value <= found.max:
                    return False
        return True

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one share."""
        assert isinstance(partition, Share)
        for file in partition.files:
            for batch in read_batches(file, partition.row_groups, self.mapping):
                if batch.bad and not self.skip:
                    first = batch.bad[0]
                    raise UsageError(
                        f"{file}: {len(batch.bad)} rows cannot be read (row {first.row}: {first.reason}); "
                        'option("unreadable", "skip") leaves them out'
                    )
                yield from _wanted(batch.good, self.filters)


def _wanted(table: pa.Table, filters: list[Filter]) -> Iterator[pa.RecordBatch]:
    columns = [_plain(table[field.name]).cast(field.type) for field in TRACE_SCHEMA]
    table = pa.table(columns, schema=TRACE_SCHEMA)
    for given in filters:
        table = table.filter(_mask(table[_attribute(given)[0]], given))
    yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _attribute(given: Filter) -> tuple[str, ...]:
    """The path of the column that a filter is about."""
    return tuple(getattr(given, "attribute", ()))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _mask(column: pa.ChunkedArray, given: Filter) -> Any:
    if isinstance(given, IsNotNull):
        return pc.is_valid(column)
    if isinstance(given, In):
        return pc.is_in(column, value_set=pa.array(list(given.value), column.type))
    value: Any = given.value  # type: ignore[attr-defined]  # as all comparisons have
    return getattr(pc, _COMPARISONS[type(given)])(column, pa.scalar(value, column.type))


def _path(options: dict[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise UsageError('name the trace: spark.read.format("antiphon").load("out/run")')
    return path.removeprefix("file:")


def _unreadable(options: dict[str, str]) -> bool:
    choice = options.get("unreadable", "fail")
    if choice not in ("fail", "skip"):
        raise UsageError(f'option("unreadable", {choice!r}): choose "fail" or "skip"')
    return choice == "skip"


@dataclass
class Written(WriterCommitMessage):
    """A file that a task has finished and that waits for its name."""

    file: Replacement


class TraceWriter(DataSourceArrowWriter):
    """Writes a trace as Parquet; its files take their names only when all are whole."""

    def __init__(self, path: str, overwrite: bool) -> None:
        self.folder, self.overwrite = Path(path).absolute(), overwrite
        if self.folder.is_file():
            raise UsageError(f"{path}: is a file; a trace is written into a folder")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        file = Replacement(self.folder / f"part-{uuid.uuid4().hex[:12]}.parquet")
        try:
            with pq.ParquetWriter(file.fresh, TRACE_SCHEMA, compression="zstd") as out:
                for batch in iterator:
                    columns = [
                        batch.column(field.name).cast(field.type)
                        if field.name in batch.schema.names
                        else pa.nulls(batch.num_rows, field.type)
                        for field in TRACE_SCHEMA
                    ]
                    out.write_table(pa.table(columns, schema=TRACE_SCHEMA))
        except BaseException:
            file.discard()
            raise
        return Written(file)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the files their names; with `overwrite`, instead of what was there."""
        former = list(self.folder.glob("*.parquet")) if self.overwrite else []
        for message in messages:
            if isinstance(message, Written):
                message.file.commit()
        for file in former:
            file.unlink()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave nothing of a failed write."""
        for message in messages:
            if isinstance(message, Written):
                message.file.discard()
