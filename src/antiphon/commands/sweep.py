"""`antiphon sweep`: many scenarios, each simulated, checked and measured in its own Spark task."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from antiphon.commands.spark_options import add_spark_options, spark_session
from antiphon.trace.verdict import HOLDS, INCONCLUSIVE, VIOLATED


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("sweep", metavar="SWEEP.toml", type=Path, help="seeds, a scenario, and a grid of settings")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="where the results go, and are found again (default: beside the file)"
    )
    parser.add_argument("--retry-failed", action="store_true", help="run the cells again that failed before")
    add_spark_options(parser)
    parser.epilog = "example: antiphon sweep loss.toml --out out/loss"


def run(args: argparse.Namespace) -> int:
    """Run the cells that have no result yet; 1 if a promised guarantee is violated, 3 if a cell failed or is open."""
    from antiphon.pipeline.results import SWEEP_TABLE, as_json
    from antiphon.pipeline.sweep import run_sweep
    from antiphon.pipeline.sweep.plan import load_sweep, prepare

    out = args.out or args.sweep.with_suffix("")
    sweep = load_sweep(args.sweep, out)
    prepare(sweep, args.sweep)
    with spark_session(args, f"antiphon sweep {args.sweep}") as spark:
        outcome = run_sweep(spark, sweep, retry_failed=args.retry_failed, tell=_Progress())
    outcome.table = str(out / SWEEP_TABLE)
    if args.json:
        print(as_json(outcome))
    else:
        print(
            f"{outcome.cells:,} cells: {outcome.done:,} done ({outcome.skipped:,} of an earlier run), "
            f"{outcome.failed:,} failed; {outcome.violated:,} break a promised guarantee, "
            f"{outcome.unknown:,} leave one undecided, {outcome.unfinished:,} reached their limit"
        )
        for failure in outcome.failures:
            print(f"  failed: {failure.cell} seed {failure.seed}: {failure.error}")
        print("slowest: " + ", ".join(f"{cell.cell} {cell.took_s:.1f} s" for cell in outcome.slowest))
        print(f"the table is {outcome.table}")
    if outcome.violated:
        return VIOLATED
    return INCONCLUSIVE if outcome.failed or outcome.unknown else HOLDS


class _Progress:
    """Says on stderr when a cell takes long; on a terminal the session's own bar shows the rest."""

    def __init__(self) -> None:
        self.named: set[str] = set()

    def __call__(self, done: int, total: int, slow: list[tuple[str, float]]) -> None:
        for cell, seconds in slow:
            if cell not in self.named:
                self.named.add(cell)
                print(f"\r{done}/{total} cells done; {cell} is running for {seconds:.0f} s already", file=sys.stderr)
