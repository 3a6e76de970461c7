"""`antiphon simulate`: run a group on a simulated network and write its trace."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.errors import AntiphonError, UsageError

if TYPE_CHECKING:
    from antiphon.sim.scenario import Scenario

_EXAMPLES = """examples:
  antiphon simulate --members 5 --ordering co --messages 200 --loss 0.1 --seed 7 --out out/co
  antiphon simulate scenario.toml --seed 7 --out out/run --json
  antiphon simulate --members 4 --ordering total --views --seed 1 --out out/views
  antiphon simulate --network lan --tree 4,5,4 --stability tree-train --rounds 1 --json
"""

# flag -> (scenario table or None for the top, key, type, help)
_FLAGS: dict[str, tuple[str | None, str, Any, str]] = {
    "--profile": (None, "profile", str, "lan (what a live group runs), wan, or paper (what the papers print)"),
    "--members": (None, "members", int, "group size"),
    "--founders": (None, "founders", int, "with --views: how many members form the first view; the others join"),
    "--messages": (None, "messages", int, "messages per sender"),
    "--ordering": (
        "ordering",
        "name",
        str,
        "fifo, causal-blocks, co, abcast, tomp, sequencer, causal, total, or MODULE:CLASS",
    ),
    "--stability": (
        "stability",
        "name",
        str,
        "stability protocol or MODULE:CLASS, where the ordering runs on recovery",
    ),
    "--window": (None, "window", int, "own messages that may be unstable at once"),
    "--buffer": (None, "buffer", int, "messages that a member can keep"),
    "--latency": ("network", "latency", str, "fixed D | uniform LOW HIGH | exponential MEAN | pareto SCALE SHAPE"),
    "--loss": ("network", "loss", float, "share of datagrams lost"),
    "--duplicate": ("network", "duplicate", float, "share of datagrams doubled"),
    "--reorder": ("network", "reorder", float, "share of datagrams held back"),
    "--bandwidth": ("network", "bandwidth", int, "bits per second of each link"),
    "--receive-buffer": ("network", "receive_buffer", int, "datagrams that a receiver can queue"),
    "--service": ("network", "service", str, "time to take in one datagram"),
    "--interval": ("workload", "interval", str, "time between a sender's messages, as a distribution"),
    "--payload": ("workload", "payload", int, "bytes per message"),
    "--lifetime": ("workload", "lifetime", str, "lifetime of every message"),
    "--priorities": ("workload", "priorities", int, "number of message priorities"),
    "--skew": ("clocks", "skew", str, "largest offset of a member's clock"),
    "--drift-ppm": ("clocks", "drift_ppm", int, "largest drift of a member's clock"),
    "--limit": (None, "limit", str, "simulated time after which the run is given up"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _EXAMPLES
    parser.add_argument("scenario", nargs="?", type=Path, help="scenario file (TOML); flags override it")
    for flag, (_, _, kind, text) in _FLAGS.items():
        parser.add_argument(flag, type=kind, help=text)
    parser.add_argument("--safe", action="store_true", help="deliver only what is stable")
    parser.add_argument("--views", action="store_true", help="members crash, come back, join and leave: see faults")
    parser.add_argument("--fifo", action="store_true", help="links never reorder")
    parser.add_argument("--set", action="append", default=[], metavar="TABLE.KEY=VALUE", help="any other scenario key")
    parser.add_argument(
        "--network", choices=["links", "lan"], default="links", help="lan: the hierarchical paper's model"
    )
    parser.add_argument("--tree", help="with --network lan: B,P,Z or a file with the parent of each node")
    parser.add_argument("--rounds", type=int, help="with --network lan: stability rounds to run (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default 0)")
    parser.add_argument("--out", type=Path, help="folder for the trace")
    parser.add_argument("--force", action="store_true", help="replace the trace that is in the folder")


def run(args: argparse.Namespace) -> int:
    """Simulate, write the trace, say what happened; 3 if the run did not finish within its limit."""
    if args.network == "lan":
        return _run_lan(args)
    for flag in ("--tree", "--rounds"):
        if _value_of(args, flag) is not None:
            raise UsageError(f"{flag}: only the LAN model has it; add --network lan")
    from antiphon.progress import Progress
    from antiphon.sim.about import about
    from antiphon.sim.cluster import simulate
    from antiphon.sim.scenario import from_table
    from antiphon.trace.writer import digest, refuse_to_replace, write_trace

    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a protocol of one's own lies, as with python -m
    scenario = from_table(_tables(args))
    scenario.check()
    for unused in _not_used(scenario, args.stability):
        print(f"antiphon simulate: {unused}", file=sys.stderr)
    if args.out is not None:
        refuse_to_replace(args.out, but_traces=args.force)
    with Progress("simulating", scenario.messages * scenario.members) as progress, _blaming(scenario):
        result = simulate(scenario, args.seed, progress=lambda _, left: progress.left(left))
    if args.out is not None:
        write_trace(args.out, result.name, result.logs, about(result), replace=args.force)
    summary = {
        "trace": None if args.out is None else str(args.out),
        "run": result.name,
        "seed": args.seed,
        "members": scenario.members,
        "sent": result.sent,
        "delivered": result.delivered,
        "events": sum(len(log) for log in result.logs),
        "retransmissions": result.stats["members"].get("retransmissions", 0),
        "finished": result.finished,
        "ended_ns": result.ended_ns,
        "digest": digest(result.name, result.logs),
        "stats": result.stats,
    }
    if args.json:
        print(json.dumps(summary))
    else:
        _tell(summary)
    if not result.finished:
        print(
            f"antiphon simulate: not finished within {scenario.limit} of simulated time: {result.why_not}",
            file=sys.stderr,
        )
    return 0 if result.finished else 3


@contextmanager
def _blaming(scenario: Scenario) -> Iterator[None]:
    """Say of what fails with a protocol of the caller's own that it is no fault of ours."""
    from antiphon.protocol.options import ordering_type, part_name

    parts = [scenario.ordering, *([scenario.stability] if ordering_type(scenario.ordering).NEEDS_RECOVERY else [])]
    own = [name for name in map(part_name, parts) if ":" in name]
    try:
        yield
    except AntiphonError:
        raise
    except Exception as error:
        if not own:
            raise
        file, line, *_ = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise UsageError(
            f"{' and '.join(own)} failed: {said} ({file}, line {line}); its methods return what their interface in "
            "antiphon.protocol.parts says"
        ) from error


def _not_used(scenario: Scenario, stability: str | None) -> Iterator[str]:
    """Say what was asked for and means nothing to the ordering."""
    from antiphon.protocol.options import ignores_lifetimes, ordering_type

    ordering, workload = scenario.ordering, scenario.workload
    if stability is not None and not ordering_type(ordering).NEEDS_RECOVERY:
        yield f"{ordering} finds stability itself; {stability} is not used"
    if (workload.lifetime is not None or workload.priorities > 1) and ignores_lifetimes(ordering):
        yield f"{ordering} has no lifetimes and no priorities; causal-blocks has both"


def _tables(args: argparse.Namespace) -> dict[str, Any]:
    """Lay the flags over the scenario file."""
    from antiphon.sim.scenario import load

    tables: dict[str, Any] = load(args.scenario) if args.scenario is not None else {}
    for flag, (table, key, _, _) in _FLAGS.items():
        value = _value_of(args, flag)
        if value is not None:
            _put(tables, table, key, value)
    if args.safe:
        tables["safe"] = True
    if args.views:
        tables["views"] = True
    if args.fifo:
        _put(tables, "network", "fifo", True)
    for assignment in args.set:
        path, equals, text = assignment.partition("=")
        table, dot, key = path.rpartition(".")
        if not equals:
            raise UsageError(f"--set {assignment}: write TABLE.KEY=VALUE")
        _put(tables, table if dot else None, key, _value(text))
    return tables


def _value_of(args: argparse.Namespace, flag: str) -> Any:
    return getattr(args, flag.removeprefix("--").replace("-", "_"))


def _put(tables: dict[str, Any], table: str | None, key: str, value: Any) -> None:
    if table is None:
        tables[key] = value
    elif table in ("ordering", "stability"):
        part = tables.get(table, {})
        part = {"name": part} if isinstance(part, str) else dict(part)
        tables[table] = {**part, key: value}
    else:
        tables[table] = {**tables.get(table, {}), key: value}


def _value(text: str) -> Any:
    """Read a value as TOML would, and anything else as a string."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _run_lan(args: argparse.Namespace) -> int:
    from antiphon.sim.lan import simulate_rounds
    from antiphon.sim.trees import parse_tree

    for flag in (*_FLAGS, "--safe", "--views", "--fifo", "--set", "--out"):
        if flag != "--stability" and _value_of(args, flag):
            raise UsageError(f"{flag}: the LAN model has none; it knows --tree, --stability and --rounds")
    if args.scenario is not None:
        raise UsageError(f"{args.scenario}: the LAN model runs no scenario; it knows --tree, --stability and --rounds")
    if args.tree is None:
        raise UsageError("--tree: the LAN model needs one; give B,P,Z or a file with the parent of each node")
    tree = parse_tree(args.tree)
    stability = args.stability or "tree-coordinator"
    rounds = simulate_rounds(tree, stability, 1 if args.rounds is None else args.rounds)
    summary = {"network": "lan", "members": len(tree), "stability": stability, "rounds": rounds}
    if args.json:
        print(json.dumps(summary))
    else:
        for number, one in enumerate(rounds, 1):
            print(f"round {number}: {one['rtt_ns'] / 1e6:.6f} ms, {one['hops']} hops, longest queue {one['queue_max']}")
    return 0


def _tell(summary: dict[str, Any]) -> None:
    network = summary["stats"]["network"]
    print(f"{summary['run']}: {summary['members']} members, {summary['sent']} sent, {summary['delivered']} delivered")
    print(f"  ended after      {summary['ended_ns'] / 1e9:.3f} s of simulated time")
    print(f"  retransmissions  {summary['retransmissions']}")
    mishaps = {"lost": network.get("lost", 0)} | {key: network[key] for key in ("overrun", "cut") if network.get(key)}
    came_to = ", ".join(f"{count} {how}" for how, count in mishaps.items())
    print(f"  datagrams        {network.get('datagrams', 0)}, {came_to}")
    print(f"  digest           {summary['digest'][:16]}")
    if summary["trace"]:
        print(f"  trace            {summary['trace']} ({summary['events']} events)")
