"""A trace that was laid out and kept: what `antiphon ingest --out` writes, and check, measure and pages read.

The folder is a layout (`layout.py`) and a trace at once: Parquet files of the contract's columns below `events`, with
`run.json` and the members' names beside them as the source had them. `_table.json` says what it was made of.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Final

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.store.files import files_ending, files_named
from antiphon.pipeline.store.layout import Totals, TraceLayout
from antiphon.pipeline.store.location import Location, facts_of, location
from antiphon.pipeline.store.window import EventWindows
from antiphon.trace.run_file import RUN_FILE

TABLE_FILE: Final = "_table.json"
FORMAT: Final = 1


class TableFacts(msgspec.Struct, kw_only=True):
    """What a kept table says of itself."""

    format: int = FORMAT
    antiphon: str  # the version that wrote it
    source: str = ""  # the trace; none if it was a DataFrame
    suffixes: tuple[str, ...] = ()  # how the names of the source's files end
    files: dict[str, tuple[int, int]] = {}  # of the source: size and time of the last change
    in_place: bool = False  # the rows lie in the source's files, and nowhere else
    mapping: Mapping = Mapping()
    totals: Totals


class KeptTable:
    """A kept table: what it is made of, and its rows."""

    def __init__(self, where: str, facts: TableFacts) -> None:
        self.where, self.facts = where, facts
        self.folder: Location = location(where)

    @functools.cached_property
    def layout(self) -> TraceLayout:
        """Index and skeleton."""
        return TraceLayout(self.folder)

    @functools.cached_property
    def windows(self) -> EventWindows:
        """The rows, by time or step, for chosen members."""
        return EventWindows(self.layout)


def is_table(where: str) -> bool:
    """Say whether a folder is a kept table."""
    return (location(where) / TABLE_FILE).is_file()


def open_table(where: str) -> KeptTable:
    """Open a kept table; UsageError if there is none."""
    file = location(where) / TABLE_FILE
    if not file.is_file():
        raise UsageError(f"{where}: not a table; antiphon ingest TRACE --out {where} makes one")
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_Format)
        if found.format != FORMAT:
            raise UsageError(
                f"{where}: a table of format {found.format}, of antiphon {found.antiphon}; this one reads format "
                f"{FORMAT}: ingest the trace again"
            )
        return KeptTable(where, msgspec.json.decode(file.read_bytes(), type=TableFacts))
    except msgspec.DecodeError as problem:
        raise UsageError(f"{file}: not what antiphon ingest writes ({problem}); ingest the trace again") from None


def table_of(trace: str, mapping: Mapping | None) -> KeptTable | None:
    """Return the kept table that a command was given as its trace, if it is one; UsageError if it cannot be used."""
    if not is_table(trace):
        return None
    table = open_table(trace)
    if mapping is not None and mapping != table.facts.mapping:
        raise UsageError(
            f"{trace}: a table keeps what it was read with; say --from, --mapping and --sends to antiphon ingest"
        )
    if table.facts.in_place and (changed := changes_since(table) or _gone(table)):
        raise UsageError(f"{trace}: its rows lie in {table.facts.source}, and {changed}; {_again(table)}")
    return table


def stale_table(trace: str) -> str:
    """Say how the source of a kept table has changed since; nothing if it has not, or if the trace is no table."""
    return changes_since(open_table(trace)) if is_table(trace) else ""


def changes_since(table: KeptTable) -> str:
    """Say how a table's source has changed since; nothing if it has not, is gone, or cannot be known."""
    facts = table.facts
    if not facts.source:
        return ""
    try:
        now = source_files(facts.source, facts.suffixes)
    except (UsageError, OSError):
        return ""
    new, gone = len(now.keys() - facts.files.keys()), len(facts.files.keys() - now.keys())
    changed = sum(facts.files[file] != now[file] for file in facts.files.keys() & now.keys())
    counted = [(new, "new"), (changed, "changed"), (gone, "gone")]
    said = ", ".join(f"{count:,} {word}" for count, word in counted if count)
    return f"files of {facts.source} since this table was made: {said}; {_again(table)}" if said else ""


def _again(table: KeptTable) -> str:
    return f"antiphon ingest {table.facts.source} --out {table.where} makes it anew"


def _gone(table: KeptTable) -> str:
    missing = [file for file in table.layout.files if not location(file).is_file()]
    return f"{missing[0]} is not there any more" if missing else ""


def source_files(trace: str, suffixes: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return the files that a trace is read from, what is said of its runs included, each with its size and time."""
    return {file: facts_of(location(file)) for file in [*files_ending(trace, suffixes, "events"), *about_runs(trace)]}


def about_runs(trace: str) -> list[str]:
    """Return the files that say what runs promised; also beside a trace of one file."""
    where = location(trace)
    root = where.parent if where.is_file() else where
    if where.is_file():
        return [str(root / RUN_FILE)] if (root / RUN_FILE).is_file() else []
    try:
        return files_named(str(root), lambda name: name == RUN_FILE, "none")
    except UsageError:
        return []


def write_table_facts(folder: Location, facts: TableFacts) -> None:
    """Write what a kept table says of itself; this makes the folder a table."""
    (folder / TABLE_FILE).write_text(msgspec.json.format(msgspec.json.encode(facts), indent=1).decode() + "\n")


class _Format(msgspec.Struct):
    """What tables of every format say."""

    format: int
    antiphon: str = "unknown"
