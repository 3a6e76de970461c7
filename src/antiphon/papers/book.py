"""The reproduction book: every table and figure of the five papers, ours beside theirs, on one page of HTML.

The prose (what a paper prints, what is wrong with it) is data, in `book.toml`; the numbers come from the reproductions.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec
from markupsafe import Markup

from antiphon.atomic_write import atomic_write
from antiphon.papers.claims import PaperClaim, Reproduction, Table, cell
from antiphon.report.figures import themed
from antiphon.web.elements import element, joined, paragraph, table
from antiphon.web.page import asset, page

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

    def claims_about(self, exhibit: Exhibit) -> list[PaperClaim]:
        """Give the claims whose `where` names the exhibit, unless an earlier exhibit has them."""
        return [claim for claim in self.reproduction.claims if self._exhibit_of(claim) is exhibit]

    def other_claims(self) -> list[PaperClaim]:
        """Give the claims that name no exhibit: sentences of the text."""
        return [claim for claim in self.reproduction.claims if self._exhibit_of(claim) is None]

    def _exhibit_of(self, claim: PaperClaim) -> Exhibit | None:
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
    def differing(self) -> list[PaperClaim]:
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
    """Return the whole page."""
    top = Markup("""<h1>Five papers, reproduced</h1>
<p>Every figure and table that the five papers print: what they publish, what Antiphon's own protocols give, and
where the two differ. Nothing here is copied from a paper but what is marked as published. One command made this page,
in {:.0f} seconds: <code>{}</code>{}.</p>""").format(
        sum(chapter.seconds for chapter in chapters),
        _command("--all", quick),
        " (smaller runs)" if quick else "",
    )
    parts = (top, _summary(chapters), _differences(chapters), *(_chapter(chapter, quick) for chapter in chapters))
    return page("Five papers, reproduced", joined(parts, "\n"), style=asset("book.css"))


def _command(what: str, quick: bool) -> str:
    return f"antiphon reproduce {what} --out DIR" + (" --quick" if quick else "")


def _link(to: str, text: str) -> Markup:
    return element("a", text, {"href": f"#{to}"})


def _summary(chapters: Sequence[Chapter]) -> Markup:
    rows = [
        (
            _link(chapter.paper.name, chapter.paper.title),
            f"{len(chapter.reproduction.claims) - len(chapter.differing)} of {len(chapter.reproduction.claims)}",
            f"{sum(not one.absent for one in chapter.paper.exhibit)} of {len(chapter.paper.exhibit)}",
            len(chapter.paper.erratum),
            f"{chapter.seconds:.0f}",
        )
        for chapter in chapters
    ]
    return table(
        ("paper", "claims that agree", "figures and tables shown", "errata", "seconds"), rows, numbers=range(1, 5)
    )


def _differences(chapters: Sequence[Chapter]) -> Markup:
    rows = [
        (
            Markup("{}, {}").format(_link(chapter.paper.name, chapter.paper.name), claim.where),
            claim.claim,
            cell(claim.published),
            cell(claim.ours),
        )
        for chapter in chapters
        for claim in chapter.differing
    ]
    return joined(
        (
            element("h2", "What does not reproduce", {"id": "differences"}),
            paragraph(f"{len(rows)} claims came out otherwise than published. Why is said where each one stands."),
            table(("where", "claim", "published", "ours"), rows, row_head=None, stacks=True),
        ),
        "\n",
    )


def _chapter(chapter: Chapter, quick: bool) -> Markup:
    paper, command = chapter.paper, _command(chapter.paper.name, quick)
    figures, tables = chapter.beyond()
    beyond = joined((*(_figure(chapter, stem, command) for stem in figures), *map(_table, tables)))
    links = [_link(_anchor(paper, exhibit), exhibit.item) for exhibit in paper.exhibit]
    inner = (
        element("h2", paper.title, {"id": paper.name}),
        paragraph(paper.authors, kind="muted"),
        paragraph(paper.gist),
        paragraph(joined((*links, _link(f"{paper.name}-errata", "errata")), " · ")),
        *(_exhibit(chapter, exhibit, command) for exhibit in paper.exhibit),
        element("h3", "Claims in the text"),
        _claims(chapter.other_claims()),
        element("h3", "Beyond the paper") + beyond if beyond else None,
        element("h3", "Errata", {"id": f"{paper.name}-errata"}),
        *map(_erratum, paper.erratum),
    )
    return element("section", joined(inner, "\n"), {"aria-labelledby": paper.name})


def _exhibit(chapter: Chapter, exhibit: Exhibit, command: str) -> Markup:
    head = (
        element("h3", f"{exhibit.item}: {exhibit.title}", {"id": _anchor(chapter.paper, exhibit)}),
        paragraph(element("span", "Published:", {"class": "muted"}), exhibit.published),
    )
    if exhibit.absent:
        shown = [paragraph(element("strong", "Not drawn.", {"class": "warn"}), exhibit.absent)]
    else:
        tables = [one for one in chapter.reproduction.tables if one.name in exhibit.tables]
        figures = [_figure(chapter, stem, command) for stem in exhibit.figures]
        shown = [_claims(chapter.claims_about(exhibit)), *figures, *map(_table, tables)]
    return joined((*head, *shown), "\n")


def _anchor(paper: Paper, exhibit: Exhibit) -> str:
    return f"{paper.name}-{exhibit.item.lower().replace(' ', '-')}"


def _claims(claims: Sequence[PaperClaim]) -> Markup:
    if not claims:
        return Markup()
    rows = [
        (
            element("span", "✓ agrees", {"class": "good verdict"})
            if claim.agrees
            else element("span", "✗ differs", {"class": "bad verdict"}),
            Markup('{} <span class="muted">({})</span>').format(claim.claim, claim.where),
            cell(claim.published),
            cell(claim.ours),
            claim.why,
        )
        for claim in claims
    ]
    return table(("", "claim", "published", "ours", "why"), rows, row_head=None, stacks=True)


def _table(published: Table) -> Markup:
    right = {
        index
        for index in range(len(published.columns))
        if published.rows and not any(isinstance(row[index], str) for row in published.rows)
    }
    rows = [[cell(value) for value in row] for row in published.rows]
    whole = table(published.columns, rows, numbers=right, caption=published.title)
    if len(rows) <= LONG_TABLE_ROWS:
        return whole
    return element("details", element("summary", f"{published.title}: {len(rows)} rows") + whole)


def _figure(chapter: Chapter, stem: str, command: str) -> Markup:
    (path,) = (path for path in chapter.reproduction.figures if path.stem == stem and path.suffix == ".svg")
    svg = Markup(themed(path.read_text(encoding="utf-8"), f"{chapter.paper.name}-{stem}"))
    caption = Markup("<code>{}</code>, made by <code>{}</code>").format(path.name, command)
    scrolling = element("div", svg, {"class": "scroll", "tabindex": "0"})
    return element("figure", scrolling + "\n" + element("figcaption", caption))


def _erratum(erratum: Erratum) -> Markup:
    parts = (
        ("The paper says", erratum.printed),
        ("Why it fails", erratum.fails),
        ("Smallest case", erratum.counterexample),
        ("Here", erratum.here),
        ("Shown by", joined((element("code", test) for test in erratum.tests), "<br>")),
    )
    kind = element("span", KINDS[erratum.kind], {"class": "kind"})
    inner = (
        element("h4", Markup("{} {}").format(erratum.title, kind)),
        paragraph(erratum.where, kind="muted"),
        element("dl", joined(element("dt", name) + element("dd", text) for name, text in parts)),
    )
    return element("article", joined(inner, "\n"), {"class": "erratum"})


def write(chapters: Sequence[Chapter], out: Path, *, quick: bool) -> Path:
    """Write the page and, beside it, everything as JSON."""
    atomic_write(out / "book.json", msgspec.json.format(msgspec.json.encode(as_data(chapters)), indent=2) + b"\n")
    atomic_write(out / "book.html", render(chapters, quick=quick))
    return out / "book.html"
