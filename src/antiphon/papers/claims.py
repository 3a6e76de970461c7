"""What reproducing a paper gives: its claims with ours beside them, tables, figures; and how a terminal shows them."""

from __future__ import annotations

import csv
import io
import shutil
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from antiphon.atomic_write import atomic_write
from antiphon.console import table_text

Value = int | float | str
Progress = Callable[[int, int], None]  # called as progress(done, total)


class PaperClaim(msgspec.Struct, frozen=True):
    """One statement of a paper, what came out here, and why the two differ or agree."""

    claim: str
    where: str
    published: Value
    ours: Value
    agrees: bool
    why: str


class Table(msgspec.Struct, frozen=True):
    """Rows under named columns; `name` also names its file; one that is not `shown` is for the file only."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    shown: bool = True


class Reproduction(msgspec.Struct, frozen=True):
    """All that came out for one paper; `figures` are the files that were drawn."""

    paper: str
    claims: Sequence[PaperClaim]
    tables: Sequence[Table]
    figures: Sequence[Path]


def as_json(reproduction: Reproduction) -> bytes:
    """The contract's object: the paper and its claims."""
    return msgspec.json.encode({"paper": reproduction.paper, "claims": reproduction.claims})


def write(reproduction: Reproduction, out: Path) -> None:
    """Write the claims as JSON and every table as CSV into a folder."""
    atomic_write(out / "claims.json", msgspec.json.format(as_json(reproduction), indent=2) + b"\n")
    for table in reproduction.tables:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
        atomic_write(out / f"{table.name}.csv", text.getvalue())


def render(reproduction: Reproduction) -> str:
    """The whole reproduction as text for a terminal: the tables, then each claim, then the count."""
    parts = [render_table(table) for table in reproduction.tables if table.shown]
    parts.append(_render_claims(reproduction.claims))
    if reproduction.figures:
        parts.append("\n".join(["Figures", *map(str, reproduction.figures)]))
    agreed = sum(claim.agrees for claim in reproduction.claims)
    parts.append(f"{reproduction.paper}: {agreed} of {len(reproduction.claims)} claims agree with the published ones")
    return "\n\n".join(parts)


def render_table(table: Table) -> str:
    """A table with aligned columns: text to the left, numbers to the right."""
    text_columns = {index for row in table.rows for index, value in enumerate(row) if isinstance(value, str)}
    numbers = set(range(len(table.columns))) - text_columns
    return f"{table.title}\n{table_text(table.columns, [list(map(cell, row)) for row in table.rows], numbers=numbers)}"


def _render_claims(claims: Sequence[PaperClaim]) -> str:
    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns))
    lines = []
    for claim in claims:
        mark = "+ " if claim.agrees else "! "
        lines += textwrap.wrap(f"{claim.claim} ({claim.where})", width, initial_indent=mark, subsequent_indent="  ")
        for detail in (f"published {cell(claim.published)}; ours {cell(claim.ours)}", claim.why):
            lines += textwrap.wrap(detail, width, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(["Claims (+ agrees, ! differs)", *lines])


def cell(value: Value) -> str:
    """Show a value: numbers with separators, fractions with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
