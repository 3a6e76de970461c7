"""`antiphon measure`: latencies, buffers, traffic, repairs and who held stability back, from a trace."""

from __future__ import annotations

import argparse
import json
from typing import Any

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
    print(f"\n{'latency':<12}{'count':>12}{'p50':>12}{'p90':>12}{'p99':>12}{'p99.9':>12}{'max':>12}")
    for name, found in result["latency"].items():
        if found is None:
            print(f"{name:<12}{'unknown':>12}  {result['unknown'][name]}")
            continue
        times = "".join(f"{_time(found[key]):>12}" for key in ("p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"))
        print(f"{name:<12}{found['count']:>12,}{times}")
    print(f"\n{'traffic':<24}{'count':>12}{'bytes':>16}")
    for kind, found in result["traffic"].items():
        size = "unknown" if found["bytes"] is None else f"{found['bytes']:,}"
        print(f"{kind:<24}{found['count']:>12,}{size:>16}")
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
            f"{_time(held['waited_ns'])} in all, at most {_time(held['longest_ns'])} (run {held['run']})"
        )


def _time(ns: int) -> str:
    size = abs(ns)
    for unit, length in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if size >= length:
            return f"{ns / length:.3f} {unit}"
    return f"{ns} ns"
