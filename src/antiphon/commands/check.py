"""`antiphon check`: whether a trace kept its promises, with a witness for each violation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from antiphon.commands.choices import one_of
from antiphon.commands.log_options import add_log_options, add_trace_argument, show_reading
from antiphon.commands.member_words import MemberWords
from antiphon.commands.quarantine import show_reasons
from antiphon.commands.spark_options import add_spark_options, say_stale, trace_work
from antiphon.console import show_table
from antiphon.trace.schema import ALL_GUARANTEES
from antiphon.wording import count, only_publishing

if TYPE_CHECKING:
    from antiphon.pipeline.results import CheckResult


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_trace_argument(parser)
    parser.add_argument(
        "--guarantee",
        action="append",
        type=one_of(ALL_GUARANTEES),
        metavar="NAME",
        help=f"only this one; may be repeated: {', '.join(ALL_GUARANTEES)}",
    )
    parser.add_argument(
        "--witnesses", type=_count, default=10, metavar="N", help="show at most N violations of each (default: 10)"
    )
    parser.add_argument("--uniform", action="store_true", help="deliveries of members that crashed or left count too")
    parser.add_argument(
        "--happened-before",
        choices=("deliver", "receive"),
        default="deliver",
        help="what makes a later send depend on a message (default: deliver)",
    )
    add_log_options(parser)
    parser.add_argument("--out", metavar="DIR", help="write the result and the quarantined rows there")
    add_spark_options(parser, scratch=True)
    parser.epilog = "example: antiphon check out/run --guarantee causal --witnesses 3"


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("expected a number, 0 or more")
    return number


def run(args: argparse.Namespace) -> int:
    """Check a trace, say what was found, and return the exit code."""
    from antiphon.pipeline.checking import CheckOptions, check_layout
    from antiphon.pipeline.ingesting.keep import lay_out_trace
    from antiphon.pipeline.results import CHECK_FILE, as_json, write_result
    from antiphon.pipeline.store.layout import QUARANTINE, TraceLayout
    from antiphon.pipeline.store.location import copy_tree
    from antiphon.trace.verdict import deciding, exit_code

    with trace_work(args, "check", CHECK_FILE) as (spark, mapping, folder, out):
        laid = lay_out_trace(spark, args.trace, folder / "layout", mapping)
        options = CheckOptions(
            guarantees=tuple(name for name in ALL_GUARANTEES if not args.guarantee or name in args.guarantee),
            uniform=args.uniform,
            happened_before=args.happened_before,
            implied_own_deliveries=laid.mapping.own_deliveries == "implied",
            unrecorded_sends=laid.mapping.sends == "unrecorded",
            witnesses=args.witnesses,
            named=bool(args.guarantee),
        )
        result = check_layout(spark, laid.folder, laid.totals, folder / "scratch", options)
        words = {name: found.verdict for name, found in result.guarantees.items()}
        decisive = deciding(words, laid.totals.promises, named=result.named)
        write_result(out / CHECK_FILE, result)
        copy_tree(laid.folder / QUARANTINE, out / "quarantine")
        say_stale(result.stale)
        if args.json:
            print(as_json(result))
        else:
            _show(result, decisive, MemberWords(args.trace, TraceLayout(laid.folder), result.names))
    if args.out and not args.json:
        print(f"\nwritten to {args.out}")
    return exit_code([words[name] for name in decisive])


def _show(result: CheckResult, decisive: list[str], words: MemberWords) -> None:
    counts = ", ".join((count(result.runs, "run"), count(result.members, "member"), count(result.events, "event")))
    aside = f", {count(result.quarantined, 'row')} quarantined" if result.quarantined else ""
    print(f"{result.trace}: {counts}{aside}")
    show_reasons(result.quarantine_reasons, result.quarantine_examples)
    show_reading(result.names, result.times)
    show_table(
        ("guarantee", "verdict", "promised", "examined", "violations"),
        [
            (name, found.verdict, "yes" if found.promised else "-", f"{found.examined:,}", f"{found.violations:,}")
            for name, found in result.guarantees.items()
        ],
        numbers=(3, 4),
    )
    if result.only_send:
        print(f"\n{only_publishing([words.called(words.first_run, member) for member in result.only_send])}")
    for name, found in result.guarantees.items():
        if name not in decisive:
            if found.violations:
                print(f"\n{name} was not promised; --guarantee {name} shows how it fails")
            continue
        for witness in found.witnesses:
            where = "; ".join(
                f"{witness.member if event.member is None else event.member}@{event.step} {event.event} "
                f"({event.sender}, {event.seq})"
                for event in witness.events
            )
            why = words.sentence(witness.run, witness.why)
            print(f"\n{name}, run {witness.run}: {why}\n  {where}")
