"""Tables on the console, drawn by `rich`, which is imported only when there is one to show."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_UNLIMITED = 10_000  # of a file or a pipe: nothing is folded there
_COLOURS = {"holds": "green", "violated": "bold red", "unknown": "yellow"}


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> None:
    """Print a table to stdout; the columns `numbers` are flush right, verdicts have their colours on a terminal."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    _print(Console(width=None if terminal else _WIDTH_UNLIMITED), _table(heads, rows, numbers))


def table_text(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = ()) -> str:
    """Return the same table as plain text."""
    from rich.console import Console

    file = io.StringIO()
    _print(Console(file=file, width=_WIDTH_UNLIMITED, color_system=None), _table(heads, rows, numbers))
    return file.getvalue().rstrip("\n")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int]) -> Table:
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    rule = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)  # one line, below the heads
    table = Table(box=rule, show_edge=False, pad_edge=False, padding=(0, 1), header_style="bold")
    for column, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    return table


def _print(console: Console, table: Table) -> None:
    """Print without the blanks that fill a line up."""
    with console.capture() as captured:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
