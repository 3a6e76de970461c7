"""`antiphon measure`: latencies, buffers, traffic, repairs and who held stability back, from a trace."""

from __future__ import annotations

import argparse
import json
from typing import Any

from antiphon.console import show_table
from antiphon.wording import duration

_RESULT = "measure.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    from antiphon.pipeline.session import add_spark_options

    parser.add_argument("trace", metavar="TRACE", help="a Parquet, CSV or JSON lines file, or a directory of them")
    parser.add_argument("--mapping", metavar="FILE", help="TOML file that maps a foreign log to the trace's columns")
    parser.add_argument("--out", metavar="DIR", help="write the tables (Parquet) and the summary there")
    add_spark_options(parser)
    parser.epilog = "example: antiphon measure out/run --out out/measured"


def run(args: argparse.Namespace) -> int:
    """Measure a trace and say what was found."""
    import msgspec

    from antiphon.pipeline.ingest import ingest
    from antiphon.pipeline.measure import measure_layout
    from antiphon.pipeline.output import on_cluster, output_folder
    from antiphon.pipeline.reading import find_files, load_mapping
    from antiphon.pipeline.session import session

    mapping = load_mapping(args.mapping) if args.mapping else None
    find_files(args.trace)  # say what is wrong with the path before Spark starts
    with (
        output_folder(args.out, _RESULT, args.trace, shared=on_cluster(args.master)) as (scratch, out),
        session(args, f"antiphon measure {args.trace}") as spark,
    ):
        totals = ingest(spark, args.trace, scratch / "layout", mapping)
        summary = measure_layout(spark, scratch / "layout", out, scratch / "work")
        result = {
            "trace": args.trace,
            "runs": totals.runs,
            "members": totals.members,
            "events": totals.events,
            "quarantined": sum(totals.quarantined.values()),
            **msgspec.to_builtins(summary),
        }
        (out / _RESULT).write_text(json.dumps(result, indent=1) + "\n")
    if args.json:
        print(json.dumps(result))
    else:
        show(result)
        if args.out:
            print(f"\ntables written to {args.out}")
    return 0


def show(result: dict[str, Any]) -> None:
    """Print the summary."""
    print(
        f"{result['trace']}: {result['runs']:,} runs, {result['members']:,} members, {result['events']:,} events"
        + (f", {result['quarantined']:,} rows quarantined" if result["quarantined"] else "")
    )
    if result["clock"] != "global":
        print(
            f"clock: {result['clock']}; times of different members are compared as they are, so delivery and stable "
            "latencies are off by the skew of the clocks (a run.json with clock = global says that there is none)"
        )
    print()
    shares = ("p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")
    show_table(
        ("latency", "count", "p50", "p90", "p99", "p99.9", "max"),
        [
            (name, f"{found['count']:,}", *(duration(found[key]) for key in shares)) if found else (name, "unknown")
            for name, found in result["latency"].items()
        ],
        numbers=range(1, 7),
    )
    for name, found in result["latency"].items():
        if found is None:
            print(f"{name} is unknown: {result['unknown'][name]}")
    print()
    show_table(
        ("traffic", "count", "bytes"),
        [
            (kind, f"{found['count']:,}", "unknown" if found["bytes"] is None else f"{found['bytes']:,}")
            for kind, found in result["traffic"].items()
        ],
        numbers=(1, 2),
    )
    overhead = "unknown" if result["overhead"] is None else f"{result['overhead']:.3f} bytes for each byte of sends"
    print(f"\noverhead         {overhead}")
    for name in ("retransmissions", "duplicates"):
        print(f"{name:<17}" + ("unknown" if result[name] is None else f"{result[name]:,}"))
    for repair in result["repairs"]:
        whom = "everybody" if repair["target"] is None else f"member {repair['target']}"
        print(f"  member {repair['repairer']} repaired {whom} {repair['count']:,} times (run {repair['run']})")
    peak = result["buffer"]
    print(
        "buffer peak      "
        + ("unknown" if peak is None else f"{peak['peak']:,} messages at member {peak['member']} (run {peak['run']})")
    )
    print("held back by     " + ("unknown" if not result["held_back"] else ""))
    for held in result["held_back"]:
        lacked = f", never held {held['lacked']:,}" if held["lacked"] else ""
        print(
            f"  member {held['member']}: last to hold {held['last']:,} messages{lacked}; waited for alone "
            f"{duration(held['waited_ns'])} in all, at most {duration(held['longest_ns'])} (run {held['run']})"
        )
