"""Simulators on one workload: every host of a tree multicasts one message at time 0.

All programs simulate the same hosts, routers and links in the same run on the same tree, and must agree on the number
of hops and on the nanosecond at which the last host is done.

    python bench/kernels/run.py
    python bench/kernels/run.py --tree 3,5,3 --repeat 5 --json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heap
import simpy_callbacks
import simpy_processes

from antiphon.sim import kernels
from antiphon.sim.lan import Lan, LanMessage, LanSend, message_bytes, run_round
from antiphon.sim.trees import Tree, filled, parse_tree

HERE = Path(__file__).parent
# A program so slow that it is measured on a smaller tree, where it does not do worse.
SMALL_TREE = "3,5,3"

Program = Callable[[Tree], tuple[int, int, float]]


class Sender:
    """A host of the event-driven model that multicasts at time 0."""

    def __init__(self, n: int) -> None:
        self.size = message_bytes(n)

    def on_start(self, now: int) -> list[LanSend]:
        return [LanSend(None, self.size, "INFO")]

    def on_receive(self, message: LanMessage, now: int) -> list[LanSend]:
        return []


def objects(tree: Tree) -> tuple[int, int]:
    traffic = Lan(tree).run([Sender(len(tree)) for _ in range(len(tree))])
    return traffic.hops, traffic.ended_ns


def kernel(tree: Tree) -> tuple[int, int]:
    traffic = kernels.run_burst(tree)
    return traffic.hops, traffic.ended_ns


def timed(run: Callable[[Tree], tuple[int, int]]) -> Program:
    """A program in this process, with the CPU seconds that it took."""

    def program(tree: Tree) -> tuple[int, int, float]:
        begun = time.process_time()
        hops, ended_ns = run(tree)
        return hops, ended_ns, time.process_time() - begun

    return program


def ns3_programs(folder: Path) -> dict[str, Program] | str:
    """ns-3's core, compiled here; or why it cannot be."""
    spec = importlib.util.find_spec("ns3")
    if spec is None or not spec.submodule_search_locations:
        return "ns-3 is not installed (pip install ns3)"
    if shutil.which("g++") is None:
        return "ns-3 needs g++ to compile its program"
    package = Path(spec.submodule_search_locations[0])
    libraries = sorted(package.glob("lib*/libns3*-core.so"))
    if not libraries or not (package / "include/ns3/core-module.h").exists():
        return "this ns-3 package has no headers or no core library"
    binary = folder / "ns3_burst"
    command = ["g++", "-O3", "-std=c++20", "-DNDEBUG", f"-I{package / 'include'}", str(HERE / "ns3_burst.cc")]
    command += ["-o", str(binary), str(libraries[0]), f"-Wl,-rpath,{libraries[0].parent}"]
    compiled = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if compiled.returncode:
        errors = [line for line in compiled.stderr.splitlines() if "error" in line]
        return "ns-3: " + (errors or ["the compiler failed"])[0]

    def program(style: str) -> Program:
        def run(tree: Tree) -> tuple[int, int, float]:
            parents = f"{len(tree)}\n" + "\n".join(map(str, tree.parents))
            done = subprocess.run(
                [binary, style], input=parents, capture_output=True, text=True, check=True, timeout=600
            )
            hops, ended_ns, seconds = done.stdout.split()
            return int(hops), int(ended_ns), float(seconds)

        return run

    return {"ns-3 core, textbook events": program("textbook"), "ns-3 core, one event per busy link": program("lean")}


def measure(tree: Tree, repeat: int) -> dict[str, Any]:
    begun = time.perf_counter()
    expected = kernel(tree)
    compile_s = time.perf_counter() - begun
    small = parse_tree(SMALL_TREE)
    programs: list[tuple[str, Program, Tree, int]] = [
        ("SimPy, processes and Stores", timed(simpy_processes.run), small, 1),
        ("SimPy, callbacks, one timeout per busy link", timed(simpy_callbacks.run), tree, repeat),
        ("Antiphon, event-driven objects", timed(objects), tree, 1),
        ("plain Python heap, one entry per busy link", timed(heap.run), tree, repeat),
        ("Antiphon, compiled kernel", timed(kernel), tree, max(repeat, 20)),
    ]
    rows, skipped = [], []
    with tempfile.TemporaryDirectory() as folder:
        ns3 = ns3_programs(Path(folder))
        if isinstance(ns3, str):
            skipped.append(ns3)
        else:
            programs[3:3] = [(name, program, tree, repeat) for name, program in ns3.items()]
        for name, program, its_tree, times in programs:
            outcomes = [program(its_tree) for _ in range(times)]
            wanted = expected if its_tree is tree else kernel(its_tree)
            for hops, ended_ns, _ in outcomes:
                assert (hops, ended_ns) == wanted, f"{name}: {hops} hops, ended at {ended_ns} ns, expected {wanted}"
            seconds = statistics.median(outcome[2] for outcome in outcomes)
            rows.append({"program": name, "n": len(its_tree), "hops": wanted[0], "cpu_s": seconds, "runs": times})
            rows[-1]["mhops_per_cpu_s"] = wanted[0] / seconds / 1e6
            print(f"  {name}: {rows[-1]['mhops_per_cpu_s']:.3f} M hops/CPU-s", file=sys.stderr)
    return {"ended_ns": expected[1], "compile_s": compile_s, "programs": rows, "skipped": skipped, "large": large()}


def large() -> list[dict[str, Any]]:
    """One real round of each protocol at the sizes that objects cannot reach."""
    rows = []
    for n, names in (
        (20_000, ["coordinator", "full-distribution", "train", "tree-coordinator", "tree-train"]),
        (100_000, ["coordinator", "train", "tree-coordinator", "tree-train"]),
    ):
        tree = filled(n, 4)
        for name in names:
            run_round(filled(50, 4), name, "kernel")  # compiled, or loaded from the cache
            begun = time.process_time()
            outcome = run_round(tree, name, "kernel")
            seconds = time.process_time() - begun
            rows.append({"n": n, "stability": name, "hops": outcome.traffic.hops, "cpu_s": seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", default="4,5,4", help="b,p,z or a file of parents (default 4,5,4: 1365 nodes)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each program, of which the median counts")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(parse_tree(args.tree), args.repeat)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    ours = result["programs"][-1]["mhops_per_cpu_s"]
    print(f"{'program':46} {'n':>6} {'hops':>11} {'CPU s':>9} {'M hops/CPU-s':>13} {'ours is':>9}")
    for row in result["programs"]:
        rate = row["mhops_per_cpu_s"]
        print(
            f"{row['program']:46} {row['n']:6} {row['hops']:11,} {row['cpu_s']:9.4f} {rate:13.3f} {ours / rate:8.1f}x"
        )
    for reason in result["skipped"]:
        print(f"skipped: {reason}")
    print(f"compiling the kernel, or loading it from the cache: {result['compile_s']:.2f} s")
    print("one round with the kernels:")
    for row in result["large"]:
        print(f"  n = {row['n']:7,} {row['stability']:18} {row['hops']:11,} hops {row['cpu_s']:8.3f} CPU s")


if __name__ == "__main__":
    main()
