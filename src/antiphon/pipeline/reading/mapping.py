"""How a foreign system's log is read as a trace: the file of `--mapping`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.reading.time_units import TimeUnit, unit_named
from antiphon.pipeline.store.location import location
from antiphon.trace.schema import BROKER_COLUMNS, BROKER_KINDS, COLUMNS, EVENTS

_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a foreign system's log is read as a trace: the TOML file of `--mapping`."""

    columns: dict[str, str] = {}  # the contract's name -> the name in the log
    events: dict[str, str] = {}  # the event in the log -> the contract's event; "" where such a row tells of none
    constants: dict[str, str | int] = {}  # the contract's name -> the value of every row
    members: dict[str, int] = {}  # the name of a member in the log -> its number
    numbers_from: int = 1  # what the log's numbers of messages start from
    time_unit: TimeUnit = ""  # of its times: s, ms, us or ns; without it, what the name or the times suggest
    guessed_unit: TimeUnit = ""  # of times since some beginning whose key names none; no file says this
    own_deliveries: Literal["recorded", "implied"] = "recorded"  # implied: by the sends
    sends: Literal["recorded", "unrecorded"] = "recorded"  # unrecorded: nobody logs what was sent, as in a topic
    lines: str = ""  # of a text log: what a line is like, a regular expression whose named groups are the columns
    other_lines: Literal["quarantined", "ignored"] = "quarantined"  # what becomes of a text log's lines that are not so
    preset: str = ""  # the kind of log that this starts from, as `--from` names it
    promises: list[str] = []  # what decides where no run.json says it

    @property
    def is_of_a_log(self) -> bool:
        """Whether what it reads is another system's log, whatever its rows have: a preset or a line's form says so."""
        return bool(self.preset or self.lines)

    @property
    def keys(self) -> list[str]:
        """All keys of the log that are looked for."""
        return [self.foreign(name) for name in (*COLUMNS, *BROKER_COLUMNS)]

    @property
    def renames(self) -> bool:
        """Whether rows must be rewritten, so that the files cannot be read as they lie."""
        named = self.columns or self.events or self.constants or self.members
        return bool(named) or self.numbers_from != 1 or self.unit_of_times != "ns"

    @property
    def unit_of_times(self) -> TimeUnit:
        """The unit of times in a log that has the contract's columns, by whichever names; "": of each by its size."""
        return self.time_unit or unit_named(self.foreign("time_ns")) or self.guessed_unit

    def foreign(self, name: str) -> str:
        """Return the log's name of one of the contract's columns."""
        return self.columns.get(name, name)

    def fitted(self, file: str, names: Collection[str]) -> Mapping:
        """Return this mapping as it applies to a file with these columns.

        A column may be written in other capitals, or be said by the file's folders (`run=monday/member=3/...`), as
        tables are laid out that are partitioned as in Hive.
        """
        columns, constants = dict(self.columns), dict(self.constants)
        folders = said_by_folders(file)
        for name in (*COLUMNS, *BROKER_COLUMNS):
            foreign = self.foreign(name)
            if name not in constants and list(names).count(foreign) > 1:
                raise UsageError(f"{file or 'the table'}: there are several columns {foreign!r}; which is meant?")
            if foreign in names or name in constants:
                continue
            alike = [one for one in names if one.lower() == foreign.lower()]
            if len(alike) == 1:
                columns[name] = alike[0]
            elif foreign.lower() in folders:
                constants[name] = _constant(file, name, folders[foreign.lower()])
        if (columns, constants) == (self.columns, self.constants):
            return self
        return msgspec.structs.replace(self, columns=columns, constants=constants)


def said_by_folders(file: str) -> dict[str, str]:
    """Return what the folders above a file say, each as NAME=VALUE; the names in small letters."""
    parts = (folder.partition("=") for folder in Path(file).parts[:-1])
    return {name.lower(): unquote(value) for name, equals, value in parts if equals and value != _NO_VALUE}


def _constant(file: str, name: str, value: str) -> str | int:
    if COLUMNS.get(name, "string") == "string":
        return value
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{file}: its folder says {name}={value}, which is no number") from None


def load_mapping(path: str) -> Mapping:
    """Read a mapping file; UsageError says what is wrong with it."""
    try:
        content = tomllib.loads(location(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a mapping file: {error}") from None
    return make_mapping(content, path)


def make_mapping(content: dict[str, Any], where: str) -> Mapping:
    """Return the mapping that a mapping file's content says; UsageError says what is wrong with it."""
    try:
        mapping = msgspec.convert(content, Mapping)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: not a mapping file: {error}") from None
    try:
        re.compile(mapping.lines)
    except re.error as error:
        raise UsageError(f"{where}: lines is no regular expression: {error}") from None
    if mapping.guessed_unit:
        raise UsageError(f"{where}: not a mapping file: the unit of times is said by time_unit, not guessed_unit")
    for name in [*mapping.columns, *mapping.constants]:
        if name not in COLUMNS and name not in BROKER_COLUMNS:
            known = ", ".join((*COLUMNS, *BROKER_COLUMNS))
            raise UsageError(f"{where}: no trace column is called {name!r}; they are {known}")
    for event in mapping.events.values():
        if event and event not in EVENTS and event not in BROKER_KINDS:
            raise UsageError(f"{where}: no event is called {event!r}; they are {', '.join(EVENTS)}")
    return mapping
