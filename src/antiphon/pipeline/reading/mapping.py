"""How a foreign system's log is read as a trace: the file of `--mapping`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from antiphon.errors import UsageError
from antiphon.trace.schema import COLUMNS, EVENTS


class Mapping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a foreign system's log is read as a trace: the TOML file of `--mapping`."""

    columns: dict[str, str] = {}  # the contract's name -> the name in the log
    events: dict[str, str] = {}  # the event in the log -> the contract's event
    constants: dict[str, str | int] = {}  # the contract's name -> the value of every row
    own_deliveries: str = "recorded"  # or "implied": by the sends

    @property
    def renames(self) -> bool:
        """Whether rows must be rewritten, so that the files cannot be read as they lie."""
        return bool(self.columns or self.events or self.constants)

    def foreign(self, name: str) -> str:
        """Return the log's name of one of the contract's columns."""
        return self.columns.get(name, name)


def load_mapping(path: str) -> Mapping:
    """Read a mapping file; UsageError says what is wrong with it."""
    try:
        mapping = msgspec.convert(tomllib.loads(Path(path).read_text()), Mapping)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: not a mapping file: {error}") from None
    for name in [*mapping.columns, *mapping.constants]:
        if name not in COLUMNS:
            raise UsageError(f"{path}: no trace column is called {name!r}; they are {', '.join(COLUMNS)}")
    for event in mapping.events.values():
        if event not in EVENTS:
            raise UsageError(f"{path}: no event is called {event!r}; they are {', '.join(EVENTS)}")
    if mapping.own_deliveries not in ("recorded", "implied"):
        raise UsageError(f"{path}: own_deliveries is 'recorded' or 'implied', not {mapping.own_deliveries!r}")
    return mapping
