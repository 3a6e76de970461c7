"""`antiphon explore`: a local page on which a trace of any size is looked at, window by window."""

from __future__ import annotations

import argparse
import contextlib
import sys

from antiphon.commands.listening import add_listen_option, serve_until_stopped
from antiphon.commands.log_options import add_log_options, mapping_of
from antiphon.errors import UsageError, require
from antiphon.progress import Progress

_EXAMPLES = """examples:
  antiphon explore out/run
  antiphon ingest logs --from kafka --out table; antiphon explore table   # read and sort a large log once
  antiphon check out/run --out out/checked; antiphon explore out/run out/checked   # violations too

Ctrl-C ends it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="a trace, or a table of antiphon ingest; and what check and measure wrote with --out",
    )
    parser.add_argument("--run", metavar="NAME", help="of several runs, the one to show first (default: the largest)")
    add_log_options(parser)
    add_listen_option(parser, "127.0.0.1:8766")


def run(args: argparse.Namespace) -> int:
    """Read the trace once, then serve the page until the user stops it."""
    require("aiohttp")
    from antiphon.pipeline.ingesting.keep import lay_out_trace
    from antiphon.pipeline.inline import Inline
    from antiphon.pipeline.results import read_check
    from antiphon.pipeline.store.layout import TraceLayout
    from antiphon.pipeline.store.output import output_folder
    from antiphon.report.explore.explorer import Explorer
    from antiphon.report.explore.server import application
    from antiphon.report.run_settings import run_settings
    from antiphon.report.sources import recognise

    given = recognise(args.inputs)
    if given.sweep is not None or given.trace is None:
        raise UsageError(f"{args.inputs[0]}: explore shows a trace; name the folder or file that has its events")
    trace, mapping = given.trace, mapping_of(args)
    checked = None if given.check is None else read_check(given.check)
    with contextlib.ExitStack() as stack:
        folder, _ = stack.enter_context(output_folder(None, "", trace, shared=False))
        with Progress("reading where the rows lie"):
            laid = lay_out_trace(Inline(), trace, folder / "layout", mapping)
        totals, layout = laid.totals, TraceLayout(laid.folder)
        if totals.stale:
            print(f"antiphon explore: {totals.stale}", file=sys.stderr)
        seen = 0
        with Progress("counting events by time", totals.events) as progress:

            def told(rows: int) -> None:
                nonlocal seen
                seen += rows
                progress.done(seen)

            explorer = Explorer(
                trace,
                layout,
                lambda run: run_settings(trace, run, totals.names),
                checked,
                told,
                stale=totals.stale,
                measured=given.measure,
                times=totals.times,
            )
            explorer.run(args.run)
        about = {"trace": trace, "runs": totals.runs, "members": totals.members, "events": totals.events}
        about |= {"stale": totals.stale} if totals.stale else {}
        serve_until_stopped(args, lambda hosts: application(explorer, hosts), about)
    return 0
