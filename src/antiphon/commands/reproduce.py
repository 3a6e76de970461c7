"""`antiphon reproduce`: a paper's tables, figures and claims, ours beside the published ones."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from antiphon.errors import UsageError

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
    parser.add_argument("paper", metavar="PAPER", help="one of: " + ", ".join(PAPERS))
    parser.add_argument("--out", type=Path, metavar="DIR", help="write claims.json, tables (CSV), figures there")
    parser.add_argument("--quick", action="store_true", help="smaller runs, in seconds")
    parser.epilog = "example: antiphon reproduce hierarchical-stability --quick --out out/hierarchical"


def run(args: argparse.Namespace) -> int:
    """Reproduce one paper; a claim that does not hold is a result, not a failure."""
    if args.paper not in PAPERS:
        raise UsageError(f"no paper {args.paper!r}; choose one of {', '.join(PAPERS)}")
    from antiphon.papers.claims import as_json, render, write
    from antiphon.progress import Progress

    reproduce = importlib.import_module(PAPERS[args.paper]).reproduce
    with Progress(args.paper, 100) as bar:
        reproduction = reproduce(
            args.out, quick=args.quick, progress=lambda done, total: bar.done(100 * done // max(total, 1))
        )
    if args.out is not None:
        write(reproduction, args.out)
    print(as_json(reproduction).decode() if args.json else render(reproduction))
    return 0
