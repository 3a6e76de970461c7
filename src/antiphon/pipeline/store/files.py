"""The files of a trace: which there are, and in what format."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from antiphon.errors import UsageError
from antiphon.trace.files import visible_files

SUFFIXES: Final = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json lines", ".ndjson": "json lines"}


def find_files(trace: str) -> list[str]:
    """The event files of a trace, sorted; UsageError if there is none."""
    root = Path(trace)
    if not root.exists():
        raise UsageError(f"{trace}: no such file or directory")
    if root.is_file():
        return [str(root.absolute())]
    found = sorted(str(path.absolute()) for path in visible_files(root, lambda name: format_of(Path(name)) is not None))
    if not found:
        raise UsageError(f"{trace}: no events in this directory; expected files named *{', *'.join(SUFFIXES)}")
    return found


def format_of(path: Path) -> str | None:
    """The format that a file's name says, or None."""
    suffixes = path.suffixes
    name = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else path.suffix
    return SUFFIXES.get(name.lower())
