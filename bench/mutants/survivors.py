"""The changes that are known to live, each with the reason why no test is wanted for it: `survivors.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("survivors.toml")
KINDS = {
    "equivalent": "nothing that a member says, delivers or keeps can differ",
    "cost": "the same comes out by a longer way",
    "pace": "a pause is longer or shorter, or something is said once more or less; rules and guarantees stay",
    "unreachable": "no input leads there: it is for the type checker, or refused before",
    "untried": "the tool cannot try it: it is done when modules are imported",
}


class Survivor(NamedTuple):
    """A change that lives."""

    kind: str  # one of KINDS
    reason: str


def read_survivors() -> dict[str, Survivor]:
    """Read the list, by the names of the changes."""
    content = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return {
        f"{module}: {one['change']}": Survivor(one["kind"], one["reason"])
        for module, several in content.items()
        for one in several
    }
