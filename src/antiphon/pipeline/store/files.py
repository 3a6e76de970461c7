"""The files of a trace: which there are, and in what format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from antiphon.errors import UsageError
from antiphon.pipeline.store.location import StorePath, location
from antiphon.trace.files import visible_files
from antiphon.trace.run_file import RUN_FILE

COMPRESSED: Final = (".gz", ".zst")  # behind the name of a text
SUFFIXES: Final = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "json lines", ".ndjson": "json lines",
}  # fmt: skip
_NAMED_ONLY: Final = {".json": "json lines"}  # in a folder it may be anything


def find_files(trace: str) -> list[str]:
    """The event files of a trace, sorted; UsageError if there is none."""
    return files_ending(trace, SUFFIXES, "events")


def files_ending(where: str, suffixes: Collection[str], what: str) -> list[str]:
    """Return a file, or those of a folder whose names end so (also compressed), sorted; UsageError if there is none."""
    wanted = endings(suffixes)
    return files_named(
        where,
        lambda name: name.lower().endswith(wanted) and name != RUN_FILE,
        f"no {what} in this directory; expected files named *{', *'.join(suffixes)}",
    )


def endings(suffixes: Collection[str]) -> tuple[str, ...]:
    """Return how the names of files end that have one of these suffixes, compressed ones too."""
    return tuple(f"{suffix}{packed}" for suffix in suffixes for packed in ("", *COMPRESSED))


def plain_name(name: str) -> str:
    """Return a file's name, or its path, as it is when it is not compressed."""
    return next((name[: -len(packed)] for packed in COMPRESSED if name.lower().endswith(packed)), name)


def files_named(where: str, wanted: Callable[[str], bool], nothing: str) -> list[str]:
    """Return a file, or those of a folder whose names are wanted, sorted; UsageError if there is none."""
    root = location(where)
    if root.is_file():
        return [str(root)]
    if isinstance(root, StorePath):
        found = _visible_in_store(root, wanted)
    elif root.exists():
        found = sorted(str(path) for path in visible_files(root, wanted))
    else:
        raise UsageError(f"{where}: no such file or directory")
    if not found and isinstance(root, StorePath) and not root.is_dir():
        raise UsageError(f"{where}: no such file or directory in this store")
    if not found:
        raise UsageError(f"{where}: {nothing}")
    return found


def _visible_in_store(root: StorePath, wanted: Callable[[str], bool]) -> list[str]:
    """The files below a folder of a store; what begins with . or _ is somebody's bookkeeping."""
    return [str(path) for path, _, _ in visible_in_store(root) if wanted(path.name)]


def visible_in_store(root: StorePath) -> Iterator[tuple[StorePath, int, int]]:
    """Yield the files below a folder of a store but bookkeeping, each with its size and the time of its last change."""
    for path, size, changed in root.files():
        if not any(_hidden(part) for part in path.key[len(root.key) :].split("/")):
            yield path, size, changed


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def is_csv(name: str) -> bool:
    """Say whether a file is CSV, by its name; compressed or not."""
    return format_of(Path(name)) == "csv"


def format_of(path: Path) -> str | None:
    """The format that a file's name says, or None."""
    return (SUFFIXES | _NAMED_ONLY).get(Path(plain_name(path.name)).suffix.lower())
