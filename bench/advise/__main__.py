"""What `antiphon advise` predicts beside what a live group does: python -m bench.advise [--need causal] [--rate 20] ...

Four live members, each a process of its own on the loopback address, run the composition that was recommended, in real
time. With --latency-ms each packet is held up for as long as the network in question would take, by a timer; that
timers go off late is counted as latency of that network. What the machine adds is measured by the advisor itself, with
a live group in fifo order, as `antiphon advise --here` does. Compared are the median time to deliver (at
others) and to stable, the bytes a second and the processor time of each member.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.commands.advise import live_framing, measured_host
from antiphon.sim.advise import GOALS, Candidate, Estimate, Goal, Question, advise, estimate, processor_percent
from antiphon.sim.hosted import HostTimes
from bench.live.addresses import free_addresses

WITHIN = 0.25


class Figures(NamedTuple):
    """What was predicted, or what a live group did."""

    deliver_ms: float
    stable_ms: float
    kb_per_s: float  # of each member
    cpu_percent: float  # of a processor, for each member


JUDGED = ("deliver_ms", "stable_ms", "kb_per_s")  # processor time is told, and not promised


def predicted(question: Question, best: Estimate) -> Figures:
    """Give what the advisor says of a composition."""
    assert best.deliver_ms is not None
    return Figures(best.deliver_ms, best.stable_ms, best.kb_per_s, processor_percent(question, best))


def live(
    question: Question, candidate: Candidate, latency_s: tuple[float, float], seconds: float, encrypted: bool
) -> Figures:
    """Run the group that was recommended, and measure it once all members are there."""
    addresses = free_addresses(question.members)
    composition: dict[str, Any] = {"ordering": candidate.ordering}
    if candidate.stability is not None:
        composition |= {"stability": candidate.stability, "stability_options": candidate.options}
    with tempfile.TemporaryDirectory() as state:
        members = []
        for own in addresses:
            about = {
                "bind": own,
                "peers": [peer for peer in addresses if peer != own],
                "key": bytes(range(16)).hex() if encrypted else "",
                "state": str(Path(state) / own.rsplit(":", 1)[1]),
                "latency_s": latency_s,
                "composition": composition,
                "rate_per_s": question.rate_per_s,
                "payload": question.payload,
                "seconds": seconds,
            }
            command = [sys.executable, "-m", "bench.advise.member", json.dumps(about)]
            members.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        try:
            for member in members:
                assert member.stdout is not None
                assert member.stdout.readline().strip() == "ready", "a member did not come up"
            _tell(members, str(time.monotonic() + 0.7))
            time.sleep(0.7 + seconds + 1.0)
            _tell(members, "")
            said = [json.loads(member.communicate(timeout=30)[0]) for member in members]
        finally:
            for member in members:
                member.kill()
    return Figures(
        statistics.median(one for member in said for one in member["delivered_ms"]),
        statistics.median(one for member in said for one in member["stable_ms"]),
        sum(member["bytes"] for member in said) / 1000 / len(said) / seconds,
        100 * sum(member["cpu_s"] for member in said) / len(said) / seconds,
    )


def _tell(members: list[subprocess.Popen[str]], line: str) -> None:
    for member in members:
        assert member.stdin is not None
        member.stdin.write(line + "\n")
        member.stdin.flush()


def compare(options: argparse.Namespace, goal: Goal) -> dict[str, Any]:
    """Ask for advice, follow it, and give both sides with their ratios.

    The machine is measured before the live group and after it, and what is predicted is for both: where others use it
    too, it is not the same from one minute to the next. If it changed by more than we allow for, that says so.
    """
    latency_s = options.latency_ms[0] / 1000, options.latency_ms[1] / 1000
    before = measured_host(options.members, options.rate, encrypted=options.encrypted)
    question = ask(options, goal, before)
    candidate = advise(question).best.candidate
    for _ in range(options.tries):
        before = measured_host(options.members, options.rate, encrypted=options.encrypted)
        saw = live(question, candidate, latency_s, options.seconds, options.encrypted)
        after = measured_host(options.members, options.rate, encrypted=options.encrypted)
        steady = abs(after.medians_us()["hop"] / before.medians_us()["hop"] - 1) <= WITHIN
        if steady:
            break
    host = before.together(after)
    question = ask(options, goal, host)
    told = predicted(question, estimate(question, candidate))
    ratios = {name: ours / real for name, ours, real in zip(Figures._fields, told, saw, strict=True)}
    return {
        "goal": goal,
        "recommended": f"{candidate.name} {candidate.settings}".strip(),
        "machine_us": host.medians_us(),
        "steady": steady,
        "predicted": told._asdict(),
        "live": saw._asdict(),
        "ratio": ratios,
        "missed": [name for name in JUDGED if abs(ratios[name] - 1) > WITHIN],
    }


def ask(options: argparse.Namespace, goal: Goal, host: HostTimes) -> Question:
    """Put what the bench was asked for as a question to the advisor."""
    low_ms, high_ms = options.latency_ms
    late_ms = host.medians_us()["timer"] / 1000 if high_ms else 0.0
    return Question(
        members=options.members,
        need=options.need,
        rate_per_s=options.rate,
        payload=options.payload,
        latency=f"uniform {low_ms + late_ms:.6f}ms {high_ms + late_ms:.6f}ms",
        goal=goal,
        framing=live_framing(options.payload, encrypted=options.encrypted),
        host=host if options.machine else HostTimes(),
    )


def show(row: dict[str, Any]) -> None:
    """Print a comparison as three lines."""
    for label in ("predicted", "live", "ratio"):
        figures = " ".join(f"{row[label][name]:12.2f}" for name in Figures._fields)
        print(f"{row['goal']:8} {row['recommended'][:44]:44} {label:10} {figures}")
    machine = ", ".join(f"{name} {us:.0f} us" for name, us in row["machine_us"].items())
    steady = "steady" if row["steady"] else "not steady, so this says little"
    print(f"{'':8} the machine, measured before and after: {machine}; {steady}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--need", default="causal", help="fifo, causal or total (causal)")
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second of each member (20)")
    parser.add_argument("--payload", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, nargs=2, default=(0.0, 0.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--goals", nargs="+", default=[*GOALS], choices=[*GOALS])
    parser.add_argument("--encrypted", action="store_true")
    parser.add_argument("--tries", type=int, default=3, help="runs until the machine was steady meanwhile (3)")
    parser.add_argument(
        "--without-machine", dest="machine", action="store_false", help="predict as if machines took no time"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    if not options.json:
        columns = " ".join(f"{name:>12}" for name in Figures._fields)
        print(f"{'goal':8} {'recommended':44} {'':10} {columns}", flush=True)
    rows = []
    for goal in options.goals:
        rows.append(compare(options, goal))
        if not options.json:
            show(rows[-1])
    missed = sum(bool(row["missed"]) for row in rows)
    if options.json:
        print(json.dumps({"within": WITHIN, "goals": rows}))
    else:
        print(f"{missed} of {len(rows)} goals miss {', '.join(JUDGED)} by more than {WITHIN:.0%}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
