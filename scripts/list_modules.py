"""List every module of the package with its one idea, the first sentence of its docstring, in ARCHITECTURE.md.

python scripts/list_modules.py     # writes the list anew between its two marks; a test says when that is due
"""

from __future__ import annotations

import ast
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "antiphon"
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- modules: written by scripts/list_modules.py -->"
END = "<!-- end of modules -->"


def module_list() -> str:
    """Return the list: a table for each package, from the top of the layers to the bottom."""
    found = [(path.relative_to(PACKAGE).as_posix(), idea) for path in PACKAGE.rglob("*.py") if (idea := _idea(path))]
    tables = []
    for folder, rows in groupby(
        sorted(found, key=lambda row: (_folder(row[0]), row[0])), key=lambda row: _folder(row[0])
    ):
        lines = [f"| `{path}` | {idea} |" for path, idea in rows]
        tables.append("\n".join([f"### `{folder}`", "", "| module | its one idea |", "|---|---|", *lines]))
    return "\n\n".join(tables)


def _folder(path: str) -> str:
    return f"{path.split('/')[0]}/" if "/" in path else "antiphon"


def _idea(path: Path) -> str | None:
    """Return the first paragraph of a module's docstring; None if there is nothing but it in a package's own file."""
    tree = ast.parse(path.read_text())
    docstring = ast.get_docstring(tree) or ""
    if path.name == "__init__.py" and len(tree.body) <= 1:
        return None
    return " ".join(docstring.split("\n\n")[0].split())


def written() -> str:
    """Return the page with the list as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n\n{module_list()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written())
