"""Mutation: change `protocol/` in small ways, one at a time, and see which changes no quick test notices.

    python -m bench.mutants                                 a random sample of 400 changes over all of protocol/
    python -m bench.mutants --module recovery.py --all      every change of a module
    python -m bench.mutants --sample 1000 --seed 2 --minutes 30 --workers 2
    python -m bench.mutants --only "Backoff"                changes whose name contains this
    python -m bench.mutants --module flow.py --all --tests tests/unit/test_flow.py

A change that no test notices lives: either a test is missing, or the change makes no difference, which
`explained.toml` says with the reason. What is known of each test is kept in `out/mutants/`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from bench.mutants.changes import Change, draw, find_changes, read_tree
from bench.mutants.judge import Judge, Verdict
from bench.mutants.touches import ROOT, touches

PACKAGE = ROOT / "src" / "antiphon" / "protocol"
OUT = ROOT / "out" / "mutants"
TESTS = ("tests/unit", "tests/property", "tests/paper")
ELSEWHERE = (  # what is about pages, commands, sockets and the simulated world, not about a protocol
    "advice_beside_live",
    "advise",
    "architecture",
    "atomic_write",
    "captures",
    "cli",
    "dashboard",
    "diagram",
    "distributions",
    "documentation",
    "kernels",
    "lan",
    "pins",
    "incidents",
    "mutation",
    "progress",
    "recipes",
    "report_*",
    "rules_documented",
    "testing*",
    "tidy",
    "trace_reader",
    "naive_checker",
)
QUICK = "not faults and not slow and not spark"
PINNED = ("test_golden_traces", "digest")  # asked last: they notice everything, and do not say what is wrong
EXPLAINED = Path(__file__).with_name("explained.toml")


class Mutation:
    """The pytest plugin that tries changes instead of running the tests once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.verdicts: list[Verdict] = []
        self.total = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        options = self.options
        trees = {path.relative_to(PACKAGE).as_posix(): read_tree(path) for path in sorted(PACKAGE.rglob("*.py"))}
        for module in trees:
            importlib.import_module("antiphon.protocol." + module.removesuffix(".py").replace("/", "."))
        changes = [one for module, tree in trees.items() for one in find_changes(module, tree)]
        self.total = len(changes)
        changes = [one for one in changes if _asked_for(one, options)]
        if options.lived:
            lived = those_that_lived()
            changes = [one for one in changes if one.key in lived]
        changes = changes if options.all or options.lived else draw(changes, options.sample, options.seed)
        touched = touches(session.items, PACKAGE, OUT / "touched", fresh=options.fresh)
        judge = Judge(session.items, touched, PACKAGE, options.seconds, PINNED)
        until = time.monotonic() + 60 * options.minutes
        print(f"{len(changes)} changes of {self.total}, {len(touched)} tests", flush=True)
        for number, one in enumerate(judge.judge(changes, trees, options.workers, until), 1):
            self.verdicts.append(one)
            keep(one)
            if one.outcome != "killed":
                print(f"{number:5} {one.outcome:10} {one.change.line:4} {one.change.key}", flush=True)
        return True


def keep(verdict: Verdict) -> None:
    """Add a verdict to those of earlier runs, so that a run that is stopped has not been in vain."""
    change = verdict.change
    row = {"key": change.key, "line": change.line, "outcome": verdict.outcome, "killer": verdict.killer}
    with (OUT / "verdicts.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def those_that_lived() -> set[str]:
    """Name the changes whose last verdict says that no test noticed them."""
    last: dict[str, str] = {}
    for line in (OUT / "verdicts.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        last[row["key"]] = row["outcome"]
    return {key for key, outcome in last.items() if outcome not in ("killed", "impossible")}


def _asked_for(change: Change, options: argparse.Namespace) -> bool:
    return (not options.module or any(change.module.startswith(one) for one in options.module)) and (
        options.only in f"{change.key} line {change.line}"
    )


def interval(hits: int, number: int) -> tuple[float, float]:
    """Give Wilson's 95% confidence interval of a share."""
    if not number:
        return 0.0, 1.0
    z, share = 1.96, hits / number
    middle = share + z * z / (2 * number)
    spread = z * math.sqrt(share * (1 - share) / number + z * z / (4 * number * number))
    return (middle - spread) / (1 + z * z / number), (middle + spread) / (1 + z * z / number)


def explanations() -> dict[str, str]:
    """Read why some changes make no difference, by their names."""
    if not EXPLAINED.exists():
        return {}
    return {
        f"{module}: {one['change']}": one["reason"]
        for module, several in tomllib.loads(EXPLAINED.read_text(encoding="utf-8")).items()
        for one in several
    }


def report(verdicts: list[Verdict], reasons: dict[str, str]) -> None:
    """Print the score of each module, the whole score with its interval, and those that live without a reason."""
    valid = [one for one in verdicts if one.outcome != "impossible"]
    print(f"\n{'module':44} {'tried':>6} {'killed':>7} {'explained':>10} {'unexplained':>12}")
    for module in sorted({one.change.module for one in valid}):
        counts = Counter(_fate(one, reasons) for one in valid if one.change.module == module)
        print(f"{module:44} {counts.total():6} {counts['killed']:7} {counts['explained']:10} {counts['lives']:12}")
    counts = Counter(_fate(one, reasons) for one in valid)
    low, high = interval(counts["killed"], counts.total())
    share = counts["killed"] / max(1, counts.total())
    print(f"\nkilled {counts['killed']} of {counts.total()}: {share:.1%}, 95% interval {low:.1%} to {high:.1%}")
    able = counts.total() - counts["explained"]
    low, high = interval(counts["killed"], able)
    print(f"of those that make a difference: {counts['killed'] / max(1, able):.1%}, {low:.1%} to {high:.1%}")
    pinned = sum(any(word in one.killer for word in PINNED) for one in valid)
    print(f"noticed by pinned transcripts alone: {pinned}; by a limit: {sum('limit' in one.killer for one in valid)}")


def _fate(one: Verdict, reasons: dict[str, str]) -> str:
    if one.outcome == "killed":
        return "killed"
    return "explained" if one.change.key in reasons else "lives"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", action="append", help="a file or folder below protocol/, several times if need be")
    parser.add_argument("--only", default="", help="changes whose name contains this text")
    parser.add_argument("--sample", type=int, default=400, help="how many changes to draw (400)")
    parser.add_argument("--lived", action="store_true", help="those that lived when they were tried last")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (1)")
    parser.add_argument("--minutes", type=float, default=60, help="begin no change after this (60)")
    parser.add_argument("--seconds", type=float, default=15, help="of tests for one change (15)")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="where the tests are (unit, property and paper)")
    parser.add_argument("--fresh", action="store_true", help="see anew which test calls what, as after larger changes")
    parser.add_argument("--workers", type=int, default=1, help="changes at a time (1)")
    options = parser.parse_args()
    plugin = Mutation(options)
    sys.dont_write_bytecode = True
    ignored = [f"--ignore-glob=*/test_{name}.py" for name in ELSEWHERE]
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    code = pytest.main([*options.tests, "-m", QUICK, *ignored, *plugins], plugins=[plugin])
    if plugin.verdicts:
        report(plugin.verdicts, explanations())
    return int(code) if code not in (0, 5) else 0


if __name__ == "__main__":
    sys.exit(main())
