"""`antiphon measure`: latencies, buffers, traffic, repairs and who held stability back, from a trace."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from antiphon.commands.log_options import add_log_options, add_trace_argument, show_reading
from antiphon.commands.member_words import MemberWords
from antiphon.commands.quarantine import show_reasons
from antiphon.commands.spark_options import add_spark_options, say_stale, trace_work
from antiphon.console import show_table
from antiphon.wording import count, duration

if TYPE_CHECKING:
    from antiphon.pipeline.reading.mapping import Mapping
    from antiphon.pipeline.results import MeasureResult
    from antiphon.pipeline.store.location import Location


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_trace_argument(parser)
    add_log_options(parser)
    parser.add_argument("--out", metavar="DIR", help="write the tables (Parquet) and the summary there")
    add_spark_options(parser, scratch=True)
    parser.epilog = "example: antiphon measure out/run --out out/measured"


def run(args: argparse.Namespace) -> int:
    """Measure a trace and say what was found."""
    from antiphon.pipeline.ingesting.keep import lay_out_trace
    from antiphon.pipeline.measuring import measure_layout
    from antiphon.pipeline.results import MEASURE_FILE, as_json, write_result
    from antiphon.pipeline.store.layout import TraceLayout

    with trace_work(args, "measure", MEASURE_FILE) as (spark, mapping, scratch, out):
        laid = lay_out_trace(spark, args.trace, scratch / "layout", mapping)
        result = measure_layout(spark, laid.folder, laid.totals, out, scratch / "work")
        write_result(out / MEASURE_FILE, result)
        say_stale(result.stale)
        if args.json:
            print(as_json(result))
        else:
            words = MemberWords(args.trace, TraceLayout(laid.folder), result.names)
            _show(result, words, _happened(args.trace, result, out, laid.mapping))
    if args.out and not args.json:
        print(f"\ntables written to {args.out}")
    return 0


def _happened(trace: str, measured: MeasureResult, tables: Location, mapping: Mapping) -> list[str]:
    """Return what happened to the group, in the report's own sentences."""
    from antiphon.report.facts import measured_facts
    from antiphon.report.incidents import TOLD_MAX, incidents

    facts = measured_facts(trace, measured, tables, mapping)
    where = f"run {facts.run.run}: " if facts.runs > 1 and facts.run is not None else ""
    found = [f"{where}{one.text}." for one in incidents(facts)]
    more = f"{where}and {count(len(found) - TOLD_MAX, 'more thing')}: antiphon report tells all."
    return found if len(found) <= TOLD_MAX else [*found[:TOLD_MAX], more]


def _show(result: MeasureResult, words: MemberWords, happened: list[str]) -> None:
    """Print what happened to the group, and the summary."""
    aside = f", {count(result.quarantined, 'row')} quarantined" if result.quarantined else ""
    here = ", ".join((count(result.runs, "run"), count(result.members, "member"), count(result.events, "event")))
    print(f"{result.trace}: {here}{aside}")
    show_reasons(result.quarantine_reasons, result.quarantine_examples)
    show_reading({}, result.times)
    for sentence in happened:
        print(sentence)
    if result.clock != "global":
        print(
            f"clock: {result.clock}; times of different members are compared as they are, so delivery and stable "
            "latencies are off by the skew of the clocks (a run.json with clock = global says that there is none)"
        )
    print()
    _show_latencies(result)
    print()
    _show_traffic(result, words)
    _show_buffers(result, words)


def _show_latencies(result: MeasureResult) -> None:
    """Print the quantiles of each latency, and why one is unknown."""
    show_table(
        ("latency", "count", "p50", "p90", "p99", "p99.9", "max"),
        [
            (
                name,
                f"{found.count:,}",
                *(duration(ns) for ns in (found.p50_ns, found.p90_ns, found.p99_ns, found.p999_ns, found.max_ns)),
            )
            if found
            else (name, "unknown")
            for name, found in result.latency.items()
        ],
        numbers=range(1, 7),
    )
    for name, found in result.latency.items():
        if found is None:
            print(f"{name} is unknown: {result.unknown[name]}")


def _show_traffic(result: MeasureResult, words: MemberWords) -> None:
    """Print what was sent by kind, what that cost, and who repaired whom."""
    show_table(
        ("traffic", "count", "bytes"),
        [
            (
                "null message" if kind == "null" else kind,
                f"{traffic.count:,}",
                "unknown" if traffic.bytes is None else f"{traffic.bytes:,}",
            )
            for kind, traffic in result.traffic.items()
        ],
        numbers=(1, 2),
    )
    overhead = "unknown" if result.overhead is None else f"{result.overhead:.3f} bytes for each byte of sends"
    print(f"\noverhead         {overhead}")
    for name, counted in (("retransmissions", result.retransmissions), ("duplicates", result.duplicates)):
        print(f"{name:<17}" + ("unknown" if counted is None else f"{counted:,}"))
    for repair in result.repairs:
        whom = "everybody" if repair.target is None else words.called(repair.run, repair.target)
        who = words.called(repair.run, repair.repairer)
        print(f"  {who} repaired {whom} {repair.count:,} times (run {repair.run})")


def _show_buffers(result: MeasureResult, words: MemberWords) -> None:
    """Print how full buffers were, and who held them back."""
    peak = result.buffer
    print(
        "buffer peak      "
        + (
            "unknown"
            if peak is None
            else f"{peak.peak:,} messages at {words.called(peak.run, peak.member)} (run {peak.run})"
        )
    )
    print("held back by     " + ("unknown" if not result.held_back else ""))
    for held in result.held_back:
        lacked = f", never held {held.lacked:,}" if held.lacked else ""
        print(
            f"  {words.called(held.run, held.member)}: last to hold {held.last:,} messages{lacked}; waited for alone "
            f"{duration(held.waited_ns)} in all, at most {duration(held.longest_ns)} (run {held.run})"
        )
