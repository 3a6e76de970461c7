"""The reproduction book: every table and figure of the five papers, ours beside theirs, on one page of HTML.

The prose (what a paper prints, what is wrong with it) is data, in `book.toml`; the numbers come from the reproductions.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec

from antiphon.papers.claims import Claim, Reproduction, Table, cell
from antiphon.report.figures import themed
from antiphon.report.page import escape, page

KINDS = {
    "unsafe": "breaks a promise",
    "stuck": "waits for ever",
    "costly": "costs more than it says",
    "number": "a number is wrong",
    "open": "left open",
}
LONG_TABLE_ROWS = 20  # a longer one is folded


class Exhibit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure or table that a paper prints, and what reproduces it; `absent` says why nothing does."""

    item: str
    title: str
    published: str
    figures: list[str] = []
    tables: list[str] = []
    absent: str = ""


class Erratum(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that a paper gets wrong or leaves open, the smallest case that shows it, and what is done here."""

    where: str
    kind: Literal["unsafe", "stuck", "costly", "number", "open"]
    title: str
    printed: str
    fails: str
    counterexample: str
    here: str
    tests: list[str]


class Paper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the book says of a paper besides its numbers."""

    name: str
    title: str
    authors: str
    gist: str
    exhibit: list[Exhibit]
    erratum: list[Erratum]


class Chapter(msgspec.Struct, frozen=True):
    """A paper, what came out for it, and how long that took."""

    paper: Paper
    reproduction: Reproduction
    seconds: float

    def claims_about(self, exhibit: Exhibit) -> list[Claim]:
        """Give the claims whose `where` names the exhibit, unless an earlier exhibit has them."""
        return [claim for claim in self.reproduction.claims if self._exhibit_of(claim) is exhibit]

    def other_claims(self) -> list[Claim]:
        """Give the claims that name no exhibit: sentences of the text."""
        return [claim for claim in self.reproduction.claims if self._exhibit_of(claim) is None]

    def _exhibit_of(self, claim: Claim) -> Exhibit | None:
        named = numbers(claim.where)
        return next((exhibit for exhibit in self.paper.exhibit if named & numbers(exhibit.item)), None)

    def beyond(self) -> tuple[list[str], list[Table]]:
        """Give the figures and tables that stand for no exhibit."""
        stems = dict.fromkeys(path.stem for path in self.reproduction.figures)
        drawn = {name for exhibit in self.paper.exhibit for name in exhibit.figures}
        listed = {name for exhibit in self.paper.exhibit for name in exhibit.tables}
        tables = [table for table in self.reproduction.tables if table.shown and table.name not in listed]
        return [stem for stem in stems if stem not in drawn], tables

    @property
    def differing(self) -> list[Claim]:
        """The claims that did not come out."""
        return [claim for claim in self.reproduction.claims if not claim.agrees]


@cache
def papers() -> dict[str, Paper]:
    """Read the prose, by the papers' names."""
    text = resources.files("antiphon.papers").joinpath("book.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text)["paper"], list[Paper])
    return {paper.name: paper for paper in found}


def numbers(where: str) -> set[tuple[str, int]]:
    """Find the figures and tables that a text names: "Figures 9 and 10", "Figures 1 to 5", "Section 2 and Table 1"."""
    found: set[tuple[str, int]] = set()
    for kind, first, joint, last in re.findall(r"(Figure|Table)s? (\d+)(?:[a-d(), A-D]*? (and|to) (\d+))?", where):
        end = int(last) if last else int(first)
        found |= {(kind, number) for number in (range(int(first), end + 1) if joint == "to" else (int(first), end))}
    return found


def as_data(chapters: Sequence[Chapter]) -> dict[str, Any]:
    """Give everything that is in the book, for JSON."""
    claims = [claim for chapter in chapters for claim in chapter.reproduction.claims]
    return {
        "claims": len(claims),
        "agree": sum(claim.agrees for claim in claims),
        "papers": [
            {
                "paper": chapter.paper.name,
                "title": chapter.paper.title,
                "authors": chapter.paper.authors,
                "seconds": round(chapter.seconds, 1),
                "claims": chapter.reproduction.claims,
                "exhibits": chapter.paper.exhibit,
                "errata": chapter.paper.erratum,
                "tables": chapter.reproduction.tables,
                "figures": [f"{chapter.paper.name}/{path.name}" for path in chapter.reproduction.figures],
            }
            for chapter in chapters
        ],
    }


def render(chapters: Sequence[Chapter], *, quick: bool) -> str:
    """Give the whole page."""
    command = "antiphon reproduce --all --out DIR" + (" --quick" if quick else "")
    seconds = sum(chapter.seconds for chapter in chapters)
    body = f"""<h1>Five papers, reproduced</h1>
<p>Every figure and table that the five papers print: what they publish, what Antiphon's own protocols give, and
where the two differ. Nothing here is copied from a paper but what is marked as published. One command made this page,
in {seconds:.0f} seconds: <code>{command}</code>{" (smaller runs)" if quick else ""}.</p>
{_summary(chapters)}
{_differences(chapters)}
{"".join(_chapter(chapter, quick) for chapter in chapters)}"""
    return page("Five papers, reproduced", body, style=_STYLE)


def _summary(chapters: Sequence[Chapter]) -> str:
    rows = []
    for chapter in chapters:
        paper, claims = chapter.paper, chapter.reproduction.claims
        shown = sum(not exhibit.absent for exhibit in paper.exhibit)
        rows.append(
            [
                f'<a href="#{paper.name}">{escape(paper.title)}</a>',
                f"{len(claims) - len(chapter.differing)} of {len(claims)}",
                f"{shown} of {len(paper.exhibit)}",
                str(len(paper.erratum)),
                f"{chapter.seconds:.0f}",
            ]
        )
    head = ["paper", "claims that agree", "figures and tables shown", "errata", "seconds"]
    return _html_table(head, rows, {1, 2, 3, 4})


def _differences(chapters: Sequence[Chapter]) -> str:
    rows = [
        [
            f'<a href="#{chapter.paper.name}">{escape(chapter.paper.name)}</a>, {escape(claim.where)}',
            escape(claim.claim),
            escape(cell(claim.published)),
            escape(cell(claim.ours)),
        ]
        for chapter in chapters
        for claim in chapter.differing
    ]
    return f"""<h2 id="differences">What does not reproduce</h2>
<p>{len(rows)} claims came out otherwise than published. Why is said where each one stands.</p>
{_html_table(["where", "claim", "published", "ours"], rows, stacks=True)}"""


def _chapter(chapter: Chapter, quick: bool) -> str:
    paper = chapter.paper
    command = f"antiphon reproduce {paper.name} --out DIR" + (" --quick" if quick else "")
    links = " · ".join(f'<a href="#{_anchor(paper, exhibit)}">{escape(exhibit.item)}</a>' for exhibit in paper.exhibit)
    figures, tables = chapter.beyond()
    beyond = "".join(_figure(chapter, stem, command) for stem in figures) + "".join(map(_table, tables))
    return f"""<section aria-labelledby="{paper.name}">
<h2 id="{paper.name}">{escape(paper.title)}</h2>
<p class="muted">{escape(paper.authors)}</p>
<p>{escape(paper.gist)}</p>
<p>{links} · <a href="#{paper.name}-errata">errata</a></p>
{"".join(_exhibit(chapter, exhibit, command) for exhibit in paper.exhibit)}
<h3>Claims in the text</h3>
{_claims(chapter.other_claims())}
{f"<h3>Beyond the paper</h3>{beyond}" if beyond else ""}
<h3 id="{paper.name}-errata">Errata</h3>
{"".join(map(_erratum, paper.erratum))}
</section>
"""


def _exhibit(chapter: Chapter, exhibit: Exhibit, command: str) -> str:
    tables = [table for table in chapter.reproduction.tables if table.name in exhibit.tables]
    shown = (
        f'<p><strong class="warn">Not drawn.</strong> {escape(exhibit.absent)}</p>'
        if exhibit.absent
        else _claims(chapter.claims_about(exhibit))
        + "".join(_figure(chapter, stem, command) for stem in exhibit.figures)
        + "".join(map(_table, tables))
    )
    return f"""<h3 id="{_anchor(chapter.paper, exhibit)}">{escape(exhibit.item)}: {escape(exhibit.title)}</h3>
<p><span class="muted">Published:</span> {escape(exhibit.published)}</p>
{shown}
"""


def _anchor(paper: Paper, exhibit: Exhibit) -> str:
    return f"{paper.name}-{exhibit.item.lower().replace(' ', '-')}"


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    rows = [
        [
            '<span class="good verdict">✓ agrees</span>'
            if claim.agrees
            else '<span class="bad verdict">✗ differs</span>',
            f"{escape(claim.claim)} <span class='muted'>({escape(claim.where)})</span>",
            escape(cell(claim.published)),
            escape(cell(claim.ours)),
            escape(claim.why),
        ]
        for claim in claims
    ]
    return _html_table(["", "claim", "published", "ours", "why"], rows, stacks=True)


def _table(table: Table) -> str:
    right = {
        place
        for place in range(len(table.columns))
        if table.rows and not any(isinstance(row[place], str) for row in table.rows)
    }
    rows = [[escape(cell(value)) for value in row] for row in table.rows]
    html = _html_table([escape(name) for name in table.columns], rows, right, escape(table.title))
    if len(rows) <= LONG_TABLE_ROWS:
        return html
    return f"<details><summary>{escape(table.title)}: {len(rows)} rows</summary>{html}</details>"


def _html_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Iterable[int] = (),
    caption: str = "",
    *,
    stacks: bool = False,
) -> str:
    """Put cells of HTML into a table; `right` are columns of numbers.

    On a narrow screen it scrolls by itself or, if it `stacks`, shows its cells one below the other.
    """
    numeric = set(right)

    def cells(tag: str, row: Sequence[str]) -> str:
        found = ""
        for place, text in enumerate(row):
            number = " class=number" if place in numeric else ""
            label = f' data-label="{head[place]}"' if stacks and tag == "td" and head[place] else ""
            found += f"<{tag}{number}{label}>{text}</{tag}>"
        return found

    inside = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    title = f"<caption>{caption}</caption>" if caption else ""
    table = f"<table>{title}<thead><tr>{cells('th', head)}</tr></thead><tbody>{inside}</tbody></table>"
    return f'<div class="scroll{" stacks" if stacks else ""}" tabindex="0">{table}</div>\n'


def _figure(chapter: Chapter, stem: str, command: str) -> str:
    (path,) = (path for path in chapter.reproduction.figures if path.stem == stem and path.suffix == ".svg")
    svg = themed(path.read_text(encoding="utf-8"), f"{chapter.paper.name}-{stem}")
    return f"""<figure><div class="scroll" tabindex="0">{svg}</div>
<figcaption><code>{path.name}</code>, made by <code>{command}</code></figcaption></figure>
"""


def _erratum(erratum: Erratum) -> str:
    parts = (
        ("The paper says", erratum.printed),
        ("Why it fails", erratum.fails),
        ("Smallest case", erratum.counterexample),
        ("Here", erratum.here),
    )
    entries = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in parts)
    tests = "<br>".join(f"<code>{escape(test)}</code>" for test in erratum.tests)
    return f"""<article class="erratum">
<h4>{escape(erratum.title)} <span class="kind">{KINDS[erratum.kind]}</span></h4>
<p class="muted">{escape(erratum.where)}</p>
<dl>{entries}<dt>Shown by</dt><dd>{tests}</dd></dl>
</article>
"""


def write(chapters: Sequence[Chapter], out: Path, *, quick: bool) -> Path:
    """Write the page and, beside it, everything as JSON."""
    (out / "book.json").write_bytes(msgspec.json.format(msgspec.json.encode(as_data(chapters)), indent=2) + b"\n")
    book = out / "book.html"
    book.write_text(render(chapters, quick=quick), encoding="utf-8")
    return book


_STYLE = """
figure svg { display: block; }
figure svg text { fill: var(--ink); }
.verdict { white-space: nowrap; }
.erratum { border-left: 3px solid var(--line); padding-left: 1rem; margin: 1.4rem 0; max-width: 56rem; }
.erratum h4 { margin: 0; }
.erratum p { margin: .1rem 0 .4rem; }
.erratum dl { display: grid; grid-template-columns: 8.5rem 1fr; gap: .25rem .8rem; margin: 0; max-width: none; }
.erratum dt { color: var(--muted); }
.erratum dd { margin: 0; overflow-wrap: anywhere; }
.kind { font-weight: 400; font-size: .85rem; border: 1px solid var(--line); border-radius: 1rem; padding: 0 .6rem; }
code, a, p { overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .erratum dl { grid-template-columns: 1fr; }
  .erratum dd { margin-bottom: .4rem; }
  figure svg { min-width: 34rem; }
  .stacks thead { display: none; }
  .stacks table, .stacks tbody, .stacks tr, .stacks td { display: block; }
  .stacks td { border: 0; padding: .1rem 0; }
  .stacks td[data-label]::before { content: attr(data-label) ": "; color: var(--muted); }
  .stacks tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
}
@media print { .erratum { break-inside: avoid; } }
"""
