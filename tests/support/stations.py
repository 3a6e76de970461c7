"""The stations of a path as ARCHITECTURE.md names them, and a look at which functions are called in which order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from support.source import PACKAGE
from support.symbols import SourceLink, source_links

Call = tuple[Path, str]  # a file and the qualified name of a function in it


def stations(page: Path, heading: str) -> list[SourceLink]:
    """Return the stations of a path: what the numbered lines under a heading link to first."""
    section = page.read_text().split(f"\n{heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line[:1].isdigit()]
    links = {link.line: link for link in reversed([*source_links(page)])}  # the first link of each line
    return [links[line] for line in lines]


def calls(run: Callable[[], Any]) -> list[Call]:
    """Run something, and return the calls of the package's functions in their order; resumed generators count anew."""
    seen: list[Call] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.append((Path(frame.f_code.co_filename), frame.f_code.co_qualname))

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


class Walk(NamedTuple):
    """How far one walk got: the stations that were reached in order, and the first that was not."""

    reached: int
    missing: str | None


def walked(path: Sequence[SourceLink], seen: Sequence[Call]) -> Walk:
    """Say how far the best walk gets that begins at the first station and comes to each next one in order.

    A walk ends where the next begins, so no station can be lent by a later datagram or row.
    """
    wanted = [(station.path, station.symbol) for station in path]
    best = reached = 0
    for call in seen:
        if call == wanted[0]:
            reached = 1
        elif 0 < reached < len(wanted) and call == wanted[reached]:
            reached += 1
        best = max(best, reached)
    return Walk(best, path[best].symbol if best < len(path) else None)
