"""run.json: what a run says of itself, in the folder of its events or above it. Read and written here alone."""

from __future__ import annotations

import json
import platform
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from antiphon import __version__
from antiphon.atomic_write import atomic_write
from antiphon.errors import UsageError
from antiphon.trace.promises import has_global_clock, logs_have_ends, promised

RUN_FILE: Final = "run.json"
NAMES_FILE: Final = "_names"  # begins the names of files in which members of a live group say who is who


def write_run_file(folder: Path, run: str, about: Mapping[str, Any], versions: Mapping[str, str] | None = None) -> None:
    """Write what is to be said about a run, with the versions of what wrote it."""
    written_by = {"antiphon": __version__, "python": platform.python_version(), **(versions or {})}
    text = json.dumps({"run": run, **about, "versions": written_by}, indent=1, default=str)
    atomic_write(folder / RUN_FILE, text + "\n")


def write_names(file: Path, names: Mapping[int, str]) -> None:
    """Write what members are called, by number, beside their events."""
    atomic_write(file, json.dumps(dict(names), indent=1) + "\n")


def read_names(folder: Path) -> dict[str, str]:
    """Return what the members are called whose events lie in a folder, as far as files beside them say."""
    names: dict[str, str] = {}
    for file in sorted(folder.glob(f"{NAMES_FILE}-*.json")):
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, UnicodeDecodeError):
            continue  # a name is a courtesy
        if isinstance(found, dict):
            names |= {str(key): str(value) for key, value in found.items()}
    return names


class Folder(Hashable, Protocol):
    """What is used of a Path here, so that a trace may lie in a store."""

    @property
    def parent(self) -> Folder:
        """The folder that this one is in."""

    def __truediv__(self, name: str, /) -> Folder:
        """Return what is called so in this folder."""

    def is_file(self) -> bool:
        """Say whether there is a file."""

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the file's text."""


class RunFile:
    """The content of one run.json, and what follows from it."""

    def __init__(self, path: Folder) -> None:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, UnicodeDecodeError) as problem:
            raise UsageError(f"{path} is not JSON ({problem}); mend or remove it") from None
        if not isinstance(content, dict):
            raise UsageError(f"{path} is not a JSON object; mend or remove it")
        self.content: dict[str, Any] = content

    @property
    def promises(self) -> frozenset[str]:
        """The guarantees that the run promises."""
        return promised(self.content)

    @property
    def global_clock(self) -> bool:
        """Whether all members of the run read one clock."""
        return has_global_clock(self.content)

    @property
    def ends(self) -> bool:
        """Whether every log that is whole has an `end`."""
        return logs_have_ends(self.content)


class RunFiles:
    """Finds the run.json of each folder of a trace, and reads each once; make a new one to see what has changed."""

    def __init__(self, root: str | Folder) -> None:
        self._root = Path(root) if isinstance(root, str) else root
        self._found: dict[Folder, RunFile | None] = {}

    def of(self, folder: str | Folder) -> RunFile | None:
        """Return the nearest one, from a folder up to the root of the trace."""
        folder = Path(folder) if isinstance(folder, str) else folder
        if folder not in self._found:
            file = folder / RUN_FILE
            if file.is_file():
                self._found[folder] = RunFile(file)
            elif folder == self._root or not _is_below(folder, self._root):
                self._found[folder] = None
            else:
                self._found[folder] = self.of(folder.parent)
        return self._found[folder]


def _is_below(folder: Folder, root: Folder) -> bool:
    while folder.parent != folder:
        folder = folder.parent
        if folder == root:
            return True
    return False
