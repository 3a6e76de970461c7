"""Links of the documentation into the source: the file must be there, and define the symbol that the link names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.documentation import ROOT

_INTO_SOURCE = re.compile(r"\[`([^`\]]+)`\]\(((?:\.\./)*src/antiphon/[\w/]+\.py)(?:#L\d+)?\)")


class SourceLink(NamedTuple):
    """A link of a page: the line that it stands on, what it names, and the file that it leads to."""

    line: str
    symbol: str
    path: Path

    @property
    def names_the_file(self) -> bool:
        """Whether it is the file itself that is meant."""
        return "/" in self.symbol or self.symbol.endswith(".py")


def source_links(page: Path) -> Iterator[SourceLink]:
    """Give all links of a page that lead into the source."""
    for line in page.read_text().splitlines():
        for symbol, target in _INTO_SOURCE.findall(line):
            yield SourceLink(line, symbol, (page.parent / target).resolve())


def broken(link: SourceLink) -> str | None:
    """Say what is wrong with a link; None if it leads to what it names."""
    if not link.path.exists():
        return f"{link.symbol}: there is no {link.path.relative_to(ROOT)}"
    if link.names_the_file:
        return None if link.path.as_posix().endswith(link.symbol) else f"{link.symbol} leads to another file"
    if not defined(link.path, link.symbol):
        return f"{link.path.relative_to(ROOT)} defines no {link.symbol}"
    return None


def defined(path: Path, symbol: str) -> ast.AST | None:
    """Find what `Class.method`, `Class`, `function`, `CONSTANT`, or a `method` by itself, names in a file."""
    module = ast.parse(path.read_text())
    first, *rest = symbol.split(".")
    outer = [module, *(node for node in module.body if isinstance(node, ast.ClassDef) and not rest)]
    found = next((node for one in outer for node in one.body if first in _names(node)), None)
    for name in rest:
        body = found.body if isinstance(found, ast.ClassDef) else []
        found = next((node for node in body if name in _names(node)), None)
    return found


def _names(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()
