"""`antiphon reproduce`: a paper's tables, figures and claims, ours beside the published ones; or a book of all."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.errors import UsageError, did_you_mean, require

if TYPE_CHECKING:
    from antiphon.papers.claims import Reproduction

# name of the paper -> the module whose reproduce(out, quick=, progress=) gives its Reproduction.
PAPERS: dict[str, str] = {
    "causally-ordering-broadcast": "antiphon.papers.causally_ordering_broadcast",
    "hierarchical-stability": "antiphon.papers.hierarchical",
    "timestamp-acknowledgments": "antiphon.papers.timestamp_acknowledgments",
    "tomp-total-order": "antiphon.papers.tomp_total_order",
    "robust-causal-order": "antiphon.papers.robust_causal_order",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("paper", nargs="?", metavar="PAPER", help="one of: " + ", ".join(PAPERS))
    parser.add_argument("--all", action="store_true", help="all papers, and a book of them: one page, DIR/book.html")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write claims.json, tables (CSV), figures there")
    parser.add_argument("--quick", action="store_true", help="smaller runs, in seconds")
    parser.epilog = (
        "examples: antiphon reproduce hierarchical-stability --quick --out out/hierarchical\n"
        "          antiphon reproduce --all --out out/book"
    )


def run(args: argparse.Namespace) -> int:
    """Reproduce one paper or all; a claim that does not hold is a result, not a failure."""
    if args.out is not None:
        require("matplotlib")
    if args.all:
        return _book(args)
    if args.paper is None:
        raise UsageError(f"name a paper, or say --all; the papers are {', '.join(PAPERS)}")
    if args.paper not in PAPERS:
        near = did_you_mean(args.paper, PAPERS)
        raise UsageError(f"no paper {args.paper!r}{near or '; choose one of ' + ', '.join(PAPERS)}")
    from antiphon.papers.claims import as_json, render

    reproduction = _reproduce(args.paper, args.out, quick=args.quick)
    print(as_json(reproduction).decode() if args.json else render(reproduction))
    return 0


def _reproduce(paper: str, out: Path | None, *, quick: bool, title: str = "") -> Reproduction:
    from antiphon.papers.claims import write
    from antiphon.progress import Progress

    with Progress(title or paper, 100) as bar:
        reproduction: Reproduction = importlib.import_module(PAPERS[paper]).reproduce(
            out, quick=quick, progress=lambda done, total: bar.done(100 * done // max(total, 1))
        )
    if out is not None:
        write(reproduction, out)
    return reproduction


def _book(args: argparse.Namespace) -> int:
    if args.paper is not None or args.out is None:
        raise UsageError("--all takes no PAPER and needs --out DIR, where book.html goes")
    from time import monotonic

    import msgspec

    from antiphon.papers import book

    args.out.mkdir(parents=True, exist_ok=True)
    chapters = []
    for index, name in enumerate(PAPERS, 1):
        begun = monotonic()
        title = f"{name} ({index} of {len(PAPERS)})"
        reproduction = _reproduce(name, args.out / name, quick=args.quick, title=title)
        chapters.append(book.Chapter(book.papers()[name], reproduction, monotonic() - begun))
    path = book.write(chapters, args.out, quick=args.quick)
    everything = book.as_data(chapters)
    if args.json:
        print(msgspec.json.encode({"book": str(path), **everything}).decode())
        return 0
    for chapter in chapters:
        claims = chapter.reproduction.claims
        print(f"{chapter.paper.name}: {len(claims) - len(chapter.differing)} of {len(claims)} claims agree")
    print(f"the book is {path}; tables and figures lie in the folders beside it")
    return 0
