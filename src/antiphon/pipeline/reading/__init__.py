"""From anyone's files to tables with the contract's columns, and a reason for every row that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.errors import NotATrace, UsageError
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.plain_columns import plain_schema, plain_table, top_columns
from antiphon.pipeline.reading.rows import TYPES, RowBatch, UnreadableRow, sort_out
from antiphon.pipeline.reading.text import TextSpan, read_csv, read_json_lines
from antiphon.pipeline.store.files import format_of
from antiphon.pipeline.store.location import WITHOUT_IT, cannot_be_read, damage_named, location, open_parquet
from antiphon.pipeline.store.torn import Tear
from antiphon.trace.schema import COLUMNS, REQUIRED

BATCH_ROWS: Final = 1 << 21


def read_batches(
    file: str, row_groups: list[int] | None, mapping: Mapping, span: TextSpan | None = None, *, whole: bool = False
) -> Iterator[RowBatch]:
    """All rows of a file (or of some of its row groups, or of a span), a bounded number at a time.

    Of a compressed text that is cut short or damaged all that can be read, unless it is to be whole.
    """
    tear, rows = Tear(), 0
    with damage_named(file):
        for batch in _batches(file, row_groups, mapping, span, None if whole else tear):
            rows += len(batch.good) + len(batch.bad)
            yield batch
    if tear and not rows:
        raise cannot_be_read(file, tear.why)
    if tear:
        lost = UnreadableRow(file, None, tear.reason, None, tear.rest.decode(errors="replace"))
        yield RowBatch(batch.good.slice(0, 0), [lost])


def _batches(
    file: str, row_groups: list[int] | None, mapping: Mapping, span: TextSpan | None, tear: Tear | None
) -> Iterator[RowBatch]:
    kind = format_of(Path(file)) or "parquet"
    if kind == "parquet":
        source, mapping = open_parquet_input(file, mapping)
        wanted = top_columns(source.schema_arrow, mapping.keys)
        if row_groups is None and source.metadata.num_rows <= BATCH_ROWS:
            rows = source.read(columns=wanted, use_threads=False)
            yield sort_out(plain_table(rows, mapping.keys), file, 1, mapping)
            return
        row = 1
        if row_groups is not None:
            row += sum(source.metadata.row_group(group).num_rows for group in range(row_groups[0]))
        for batch in source.iter_batches(BATCH_ROWS, row_groups=row_groups, columns=wanted, use_threads=False):
            yield sort_out(plain_table(pa.Table.from_batches([batch]), mapping.keys), file, row, mapping)
            row += batch.num_rows
    elif kind == "csv":
        yield from read_csv(file, mapping, span, tear)
    else:
        yield from read_json_lines(file, mapping, span, tear)


def open_parquet_input(file: str, mapping: Mapping) -> tuple[pq.ParquetFile, Mapping]:
    """Open an input Parquet file whose columns have the contract's types, and fit the mapping to it."""
    try:
        where = location(file)
        plain = open_parquet(where)
        names = plain.schema_arrow.names
        inner = [name for name in plain_schema(plain.schema_arrow, mapping.keys).names if name not in names]
        mapping = mapping.fitted(file, [*names, *inner])
        texts = [foreign for name in ("run", "event") if (foreign := mapping.foreign(name)) in names]
        source = open_parquet(where, metadata=plain.metadata, read_dictionary=texts)
    except pa.ArrowInvalid:
        is_named_so = file.lower().endswith(".parquet")
        kinds = "a file of another kind is known by its name: *.csv, *.jsonl, *.ndjson"
        remedy = f"; {WITHOUT_IT if is_named_so else kinds}"
        raise (UsageError if is_named_so else NotATrace)(f"{file}: not a Parquet file{remedy}") from None
    require_columns(plain_schema(source.schema_arrow, mapping.keys), file, mapping, texts=True)
    return source, mapping


def require_columns(schema: pa.Schema, where: str, mapping: Mapping, *, texts: bool = False) -> None:
    """Raise UsageError if a column that a trace needs is missing, or is of a type that cannot be its.

    `texts` lets every column be text, as a CSV file's are: then each row says for itself whether it can be read.
    """
    for name, kind in TYPES.items():
        foreign = mapping.foreign(name)
        if name in mapping.constants:
            continue
        if foreign not in schema.names:
            if name in REQUIRED:
                raise NotATrace(f"{where}: the column {foreign!r} is missing; a trace needs {', '.join(REQUIRED)}")
        elif not _fits(schema.field(foreign).type, kind):
            found = schema.field(foreign).type
            if name == "time_ns" and (pa.types.is_temporal(found) or _fits(found, pa.string())):
                continue
            if texts and _fits(found, pa.string()):
                continue
            names_members = name in ("member", "sender", "members")
            if names_members and mapping.members and _fits(found, pa.string()):
                continue
            hint = "; a mapping's [members] gives names their numbers" if names_members else ""
            raise UsageError(f"{where}: the column {foreign!r} is {found}, expected {COLUMNS[name]}{hint}")


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_list(wanted):
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        return bool(listed and pa.types.is_integer(found.value_type))
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(found) or pa.types.is_floating(found))
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
