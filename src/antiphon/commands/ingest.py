"""`antiphon ingest`: lay a trace out once, and keep it as a table that the other commands reuse."""

from __future__ import annotations

import argparse
import json
from typing import Any

from antiphon.commands.log_options import add_log_options, add_trace_argument, show_reading
from antiphon.commands.quarantine import show_reasons
from antiphon.commands.spark_options import add_spark_options, trace_work
from antiphon.wording import count


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_trace_argument(parser)
    parser.add_argument("--out", metavar="TABLE", required=True, help="the folder of the table; a path or a URI")
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="leave rows that are in order where they are, instead of copying them; the table then needs the trace",
    )
    add_log_options(parser)
    add_spark_options(parser, scratch=True)
    parser.epilog = "example: antiphon ingest logs --from kafka --out table && antiphon check table"


def run(args: argparse.Namespace) -> int:
    """Keep a trace as a table and say what is in it."""
    import msgspec

    from antiphon.pipeline.ingesting.keep import keep_trace
    from antiphon.pipeline.store.table import TABLE_FILE

    with trace_work(args, "ingest", TABLE_FILE) as (spark, mapping, _, out):
        kept = keep_trace(spark, args.trace, out, mapping, in_place=args.in_place)
    totals = kept.totals
    if args.json:
        facts: dict[str, Any] = msgspec.to_builtins(totals.as_result(), str_keys=True)
        said = {key: value for key, value in facts.items() if value or isinstance(value, int)}
        print(json.dumps({"table": args.out, "in_place": kept.in_place, **said}))
        return 0
    counted = ", ".join((count(totals.runs, "run"), count(totals.members, "member"), count(totals.events, "event")))
    aside = sum(totals.quarantined.values())
    print(f"{args.trace}: {counted}" + (f", {count(aside, 'row')} quarantined" if aside else ""))
    show_reasons(totals.reasons, totals.examples)
    show_reading(totals.names, totals.times)
    where = f"described in place by {args.out}, which needs the trace" if kept.in_place else f"kept in {args.out}"
    print(f"{where}; check, measure, report, explore and diagram take it as their TRACE")
    return 0
