"""A layout that is kept as a table, and reused where a table is given instead of a trace."""

from __future__ import annotations

import functools

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon import __version__
from antiphon.errors import UsageError
from antiphon.pipeline.ingesting import FOREIGN, find_trace, ingest
from antiphon.pipeline.ingesting.foreign.form import form_of
from antiphon.pipeline.ingesting.relayout import SPILL
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.files import SUFFIXES
from antiphon.pipeline.store.layout import INDEX, INDEX_SCHEMA, ROWS, Totals
from antiphon.pipeline.store.location import (
    Location,
    copy_file,
    location,
    read_tables,
    remove_tree,
    replacement,
)
from antiphon.pipeline.store.table import (
    TableFacts,
    about_runs,
    changes_since,
    is_table,
    source_files,
    table_of,
    write_table_facts,
)
from antiphon.trace.run_file import NAMES_FILE


class LaidOut(msgspec.Struct, frozen=True):
    """A trace whose rows are laid out: where, what there is, and how it was read."""

    folder: Location
    totals: Totals
    mapping: Mapping


class TableSource(msgspec.Struct, frozen=True):
    """The trace that a table is made of, and its files; nothing for a DataFrame."""

    trace: str = ""
    suffixes: tuple[str, ...] = ()  # how the names of its files end
    files: dict[str, tuple[int, int]] = {}


def lay_out_trace(session: Session, trace: str, folder: Location, mapping: Mapping | None) -> LaidOut:
    """Ingest a trace into a folder; a kept table is used as it lies."""
    table = table_of(trace, mapping)
    if table is None:
        return LaidOut(folder, ingest(session, trace, folder, mapping), mapping or Mapping())
    totals = msgspec.structs.replace(table.facts.totals, trace=trace, stale=changes_since(table))
    return LaidOut(table.folder, totals, table.facts.mapping)


def look_at_trace(trace: str, mapping: Mapping | None) -> None:
    """Raise the UsageError that says what is wrong with a trace or table, before there is a session."""
    if table_of(trace, mapping) is None:
        find_trace(trace, mapping)


def keep_trace(
    session: Session, trace: str, folder: Location, mapping: Mapping | None, *, in_place: bool
) -> TableFacts:
    """Ingest a trace and make the folder a table.

    `in_place`: rows that are in order stay where they are; otherwise the table has them, and needs the trace no more.
    """
    if is_table(trace):
        raise UsageError(f"{trace}: is a table already")
    suffixes = form_of(mapping).suffixes if mapping and mapping.is_of_a_log else tuple(SUFFIXES)
    source = TableSource(trace, suffixes, source_files(trace, suffixes))  # before: what comes meanwhile is a change
    laid = LaidOut(folder, ingest(session, trace, folder, mapping), mapping or Mapping())
    return keep_layout(session, folder, laid, source, in_place=in_place)


def keep_layout(
    session: Session, folder: Location, laid: LaidOut, source: TableSource, *, in_place: bool
) -> TableFacts:
    """Make a folder with a layout a table."""
    elsewhere = [file for file in _files_of_index(folder) if not file.startswith(f"{ROWS}/")]
    in_place = in_place and bool(elsewhere) and not any(_within(file, laid.folder) for file in elsewhere)
    if elsewhere and not in_place:
        session.each(len(elsewhere), functools.partial(_copy_rows, elsewhere, str(folder)), "copy")
        _rewrite_index(folder, {file: _kept_name(number, file) for number, file in enumerate(elsewhere)})
    for between in (FOREIGN, SPILL):
        remove_tree(folder / between)
    if source.trace:
        _copy_about(source.trace, folder)
    names = {str(number): name for number, name in laid.totals.names.items()}
    if names:
        (folder / f"{NAMES_FILE}-table.json").write_text(msgspec.json.encode(names).decode())
    facts = TableFacts(
        antiphon=__version__,
        source=str(location(source.trace)) if source.trace else "",
        suffixes=source.suffixes,
        files=source.files,
        in_place=in_place,
        mapping=laid.mapping,
        totals=laid.totals,
    )
    write_table_facts(folder, facts)
    return facts


def _copy_about(trace: str, folder: Location) -> None:
    """Copy what is said of runs and members to where pages look for it: beside the events, and one folder deep."""
    where = location(trace)
    root = where.parent if where.is_file() else where
    for file in map(location, about_runs(trace)):
        inside = str(file)[len(str(root)) :].strip("/").split("/")
        if len(inside) <= 2:
            copy_file(file, _under(folder, inside))
    for names in root.glob(f"{NAMES_FILE}-*.json"):
        copy_file(names, folder / names.name)


def _under(folder: Location, parts: list[str]) -> Location:
    for part in parts[:-1]:
        folder = folder / part
        folder.mkdir(parents=True, exist_ok=True)
    return folder / parts[-1]


def _within(file: str, folder: Location) -> bool:
    return file.startswith(f"{folder}/")


def _files_of_index(folder: Location) -> list[str]:
    files: set[str] = set()
    for part in read_tables(folder / INDEX, schema=INDEX_SCHEMA):
        files.update(pc.unique(part["file"]).to_pylist())
    return sorted(files)


def _kept_name(number: int, file: str) -> str:
    return f"{ROWS}/{number:06}-{location(file).name}"


def _copy_rows(files: list[str], folder: str, task: int) -> bytes:
    copy_file(location(files[task]), location(folder) / _kept_name(task, files[task]))
    return b""


def _rewrite_index(folder: Location, moved: dict[str, str]) -> None:
    """Say in the index that files lie elsewhere."""
    index = pa.concat_tables(read_tables(folder / INDEX, schema=INDEX_SCHEMA))
    files = pa.array([moved.get(file, file) for file in index["file"].to_pylist()], pa.string())
    for part in (folder / INDEX).iterdir():
        part.unlink()
    with replacement(folder / INDEX / "kept.parquet") as fresh:
        pq.write_table(index.set_column(index.schema.get_field_index("file"), "file", files), fresh, compression="lz4")
