"""Mutation: change `protocol/` in small ways, one at a time, and see which changes no quick test notices.

    python -m bench.mutants                                 a random sample of 400 changes over all of protocol/
    python -m bench.mutants --module recovery.py --all      every change of a module
    python -m bench.mutants --sample 1000 --seed 2 --minutes 4 --resume --verdicts out/mutants/seed-2.jsonl
    python -m bench.mutants --only "Backoff"                changes whose name contains this
    python -m bench.mutants --module flow.py --all --tests tests/unit/test_flow.py
    python -m bench.mutants --package trace/naive.py --tests tests/unit/test_naive_checker.py

A change that no test notices lives: either a test is missing, or it is in `survivors.toml` with the reason why none is
wanted. What is known of each test is kept in `out/mutants/`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bench.mutants.changes import Change, draw, find_changes, read_tree
from bench.mutants.judge import Judge, Verdict
from bench.mutants.survivors import KINDS, Survivor, read_survivors
from bench.mutants.touches import ROOT, SOURCE, touches

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
LIVING = ("lives", "untouched")


class Mutation:
    """The pytest plugin that tries changes instead of running the tests once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.verdicts: list[Verdict] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        options, package = self.options, SOURCE / self.options.package
        files = sorted(package.rglob("*.py")) if package.is_dir() else [package]
        trees = {file.relative_to(SOURCE).as_posix(): read_tree(file) for file in files}
        for module in trees:
            importlib.import_module("antiphon." + module.removesuffix(".py").replace("/", "."))
        changes = [one for module, tree in trees.items() for one in find_changes(module, tree)]
        total = len(changes)
        changes = [one for one in changes if _asked_for(one, options)]
        earlier = read_verdicts(options.verdicts)
        if options.lived:
            changes = [one for one in changes if earlier.get(one.key, {}).get("outcome") in LIVING]
        elif not options.all:
            changes = draw(changes, options.sample, options.seed)
        touched = touches(session.items, package, OUT / "touched", fresh=options.fresh)
        judge = Judge(session.items, touched, options.seconds, PINNED)
        judge.learn(earlier.values())
        if options.resume:
            tried = [one for one in changes if one.key in earlier]
            self.verdicts = [Verdict(one, earlier[one.key]["outcome"], earlier[one.key]["killer"]) for one in tried]
            changes = [one for one in changes if one.key not in earlier]
        print(f"{len(changes)} changes of {total}, {len(touched)} tests", flush=True)
        until = time.monotonic() + 60 * options.minutes
        for number, one in enumerate(judge.judge(changes, trees, options.workers, until), 1):
            self.verdicts.append(one)
            keep(one, options.verdicts)
            if one.outcome != "killed":
                print(f"{number:5} {one.outcome:10} {one.change.line:4} {one.change.key}", flush=True)
        return True


def keep(verdict: Verdict, file: Path) -> None:
    """Add a verdict to those of earlier runs, so that a run that is stopped has not been in vain."""
    change = verdict.change
    row = {"key": change.key, "module": change.module, "outcome": verdict.outcome, "killer": verdict.killer}
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


def read_verdicts(file: Path) -> dict[str, dict[str, str]]:
    """Read the last verdict of each change that was tried before, by its name."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}


def _asked_for(change: Change, options: argparse.Namespace) -> bool:
    within = change.module.removeprefix(options.package).lstrip("/")
    return (not options.module or any(within.startswith(one) for one in options.module)) and (
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


def report(verdicts: list[Verdict], survivors: dict[str, Survivor]) -> None:
    """Print the score of each module, the whole score with its interval, and what those that live are."""
    valid = [one for one in verdicts if one.outcome != "impossible"]
    print(f"\n{'module':52} {'tried':>6} {'noticed':>8} {'equivalent':>11} {'explained':>10} {'unexplained':>12}")
    for module in sorted({one.change.module for one in valid}):
        of_it = Counter(_fate(one, survivors) for one in valid if one.change.module == module)
        explained = sum(of_it[kind] for kind in KINDS) - of_it["equivalent"]
        print(f"{module:52} {of_it.total():6} {of_it['noticed']:8} {of_it['equivalent']:11} {explained:10}", end=" ")
        print(f"{of_it['unexplained']:12}")
    fates = Counter(_fate(one, survivors) for one in valid)
    noticed, number = fates["noticed"], fates.total()
    print(f"\nnoticed {noticed} of {number}: {_share(noticed, number)}")
    print(f"of those that are not equivalent: {_share(noticed, number - fates['equivalent'])}")
    print(f"live: {', '.join(f'{kind} {fates[kind]}' for kind in (*KINDS, 'unexplained'))}")
    pinned = sum(any(word in one.killer for word in PINNED) for one in valid)
    print(f"noticed by pinned transcripts alone: {pinned}; by a limit: {sum('limit' in one.killer for one in valid)}")


def _share(hits: int, number: int) -> str:
    low, high = interval(hits, number)
    return f"{hits / max(1, number):.1%}, 95% interval {low:.1%} to {high:.1%}"


def _fate(one: Verdict, survivors: dict[str, Survivor]) -> str:
    if one.outcome == "killed":
        return "noticed"
    known = survivors.get(one.change.key)
    return known.kind if known else "unexplained"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="protocol", help="a file or folder of src/antiphon (protocol)")
    parser.add_argument("--module", action="append", help="a file or folder in it, several times if need be")
    parser.add_argument("--only", default="", help="changes whose name contains this text")
    parser.add_argument("--sample", type=int, default=400, help="how many changes to draw (400)")
    parser.add_argument("--lived", action="store_true", help="those that lived when they were tried last")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (1)")
    parser.add_argument("--minutes", type=float, default=60, help="begin no change after this (60)")
    parser.add_argument("--seconds", type=float, default=15, help="of tests for one change (15)")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="where the tests are (unit, property and paper)")
    parser.add_argument("--verdicts", type=Path, default=OUT / "verdicts.jsonl", help="the file that they are added to")
    parser.add_argument("--resume", action="store_true", help="leave out what has a verdict in that file already")
    parser.add_argument("--fresh", action="store_true", help="see anew which test calls what, as after larger changes")
    parser.add_argument("--workers", type=int, default=1, help="changes at a time (1)")
    options = parser.parse_args()
    plugin = Mutation(options)
    sys.dont_write_bytecode = True
    ignored = [f"--ignore-glob=*/test_{name}.py" for name in ELSEWHERE] if options.package == "protocol" else []
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    code = pytest.main([*options.tests, "-m", QUICK, *ignored, *plugins], plugins=[plugin])
    if plugin.verdicts:
        report(plugin.verdicts, read_survivors())
        if all(one.outcome == "impossible" for one in plugin.verdicts):
            sys.exit("none of these changes could be put in: nothing was tried")
    return int(code) if code not in (0, 5) else 0


if __name__ == "__main__":
    sys.exit(main())
