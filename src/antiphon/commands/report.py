"""`antiphon report`: a checked and measured trace, or a sweep, as one HTML file that opens anywhere."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.atomic_write import atomic_write
from antiphon.commands.log_options import add_log_options, mapping_of
from antiphon.commands.spark_options import add_spark_options, say_stale, scratch_of, spark_session
from antiphon.errors import UsageError
from antiphon.progress import Progress

if TYPE_CHECKING:
    from antiphon.report.facts import Facts
    from antiphon.report.sources import Given


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="a trace; or what check, measure or sweep wrote with --out (check's and measure's go together)",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.html", help="the page to write")
    parser.add_argument("--no-check", action="store_true", help="measure only; the page says that it was not checked")
    parser.add_argument("--uniform", action="store_true", help="deliveries of members that crashed or left count too")
    parser.add_argument(
        "--run",
        metavar="NAME",
        help="of several runs, the one to draw over time (default: that of the first violation, else the largest)",
    )
    add_log_options(parser)
    add_spark_options(parser, scratch=True)
    parser.epilog = "example: antiphon report out/run --out out/report.html"


def run(args: argparse.Namespace) -> int:
    """Write the page and return what the verdicts in it say."""
    from antiphon.report.sources import recognise

    if args.out.is_dir() or args.out.suffix not in (".html", ".htm"):
        raise UsageError(f"--out {args.out}: name a file that ends in .html")
    given = recognise(args.inputs)
    page, result, code = _sweep(given.sweep) if given.sweep is not None else _trace(args, given)
    atomic_write(args.out, page)
    result = {"report": str(args.out), "bytes": args.out.stat().st_size, **result}
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{result['headline']}\nwritten to {args.out} ({result['bytes'] / 1e6:.2f} MB)")
    return code


def _sweep(folder: Path) -> tuple[str, dict[str, Any], int]:
    import msgspec

    from antiphon.report.sweep_page import headline, sweep_page
    from antiphon.report.sweep_table import read_sweep

    sweep = read_sweep(folder)
    counted = sweep.count()
    result = {"headline": headline(sweep), "sweep": str(folder), **msgspec.structs.asdict(counted)}
    with Progress("drawing the page"):
        return sweep_page(sweep), result, counted.exit_code()


def _trace(args: argparse.Namespace, given: Given) -> tuple[str, dict[str, Any], int]:
    import msgspec

    from antiphon.pipeline.store.output import output_folder
    from antiphon.report.facts import gather
    from antiphon.report.headline import headline
    from antiphon.report.trace_page import trace_page

    if args.uniform and (given.check is not None or args.no_check):
        raise UsageError("--uniform: nothing is checked here; say it to antiphon check")
    mapping = mapping_of(args)
    start = functools.partial(spark_session, args, f"antiphon report {given.trace}")
    with output_folder(None, "", given.trace or str(args.out), **scratch_of(args)) as (folder, _):
        facts = gather(
            given, folder, start, check=not args.no_check, run=args.run, mapping=mapping, uniform=args.uniform
        )
    say_stale(facts.stale)
    result: dict[str, Any] = {
        "headline": headline(facts),
        "trace": facts.trace,
        "runs": facts.runs,
        "members": facts.members,
        "events": facts.events,
        "quarantined": facts.quarantined,
        **({"stale": facts.stale} if facts.stale else {}),
        "checked": facts.checked is not None,
        "guarantees": {} if facts.checked is None else msgspec.to_builtins(facts.checked.guarantees),
        "drawn": [
            {
                "guarantee": one.named.guarantee,
                "run": one.named.witness.run,
                "why": one.named.witness.why,
                "marked": one.rows.marked,
            }
            for one in facts.drawn
        ],
    }
    with Progress("drawing the page"):
        return trace_page(facts), result, _exit_code(args, facts)


def _exit_code(args: argparse.Namespace, facts: Facts) -> int:
    from antiphon.trace.verdict import HOLDS, INCONCLUSIVE, exit_code

    if facts.checked is None:
        return HOLDS if args.no_check else INCONCLUSIVE  # nothing was asked, or nothing is known
    return exit_code([facts.checked.guarantees[name].verdict for name in facts.checked.deciding()])
