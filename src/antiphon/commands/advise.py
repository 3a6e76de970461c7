"""`antiphon advise`: find the protocol and its parameters for a group, by simulating the candidates."""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.console import show_table
from antiphon.errors import UsageError, require

if TYPE_CHECKING:
    from antiphon.sim.advise import Advice, Estimate, Framing, Goal, Question
    from antiphon.sim.hosted import HostTimes

_REFERENCE_SIZE_MAX = 4  # of the group that measures this machine
_REFERENCE_RATE_MAX = 400.0  # and the most that it sends, in messages a second
_EXAMPLES = """examples:
  antiphon advise --members 8 --ordering total --rate 50 --loss 0.01 --latency "uniform 1ms 10ms"
  antiphon advise --members 200 --rate 5 --goal bytes --latency-max 500ms --out out/advice
  antiphon advise --tree 4,5,4 --rate 1 --json
  antiphon advise --matrix latencies.csv --rate 20 --buffer 2000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--members", type=int, help="group size; from the tree or matrix if one is given")
    parser.add_argument("--ordering", default="fifo", metavar="NEED", help="the order needed: fifo, causal or total")
    parser.add_argument("--rate", type=float, default=10.0, help="messages a second of each sender (default 10)")
    parser.add_argument("--payload", type=int, default=64, help="bytes per message (default 64)")
    parser.add_argument("--senders", help="who sends, such as 0,1,2 (default: everyone)")
    parser.add_argument("--latency", default="uniform 1ms 5ms", help="one-way latency, as for simulate")
    parser.add_argument(
        "--matrix", type=Path, help="CSV of milliseconds from row to column; a first line may name members"
    )
    parser.add_argument("--tree", help="a local network: B,P,Z or a file with the parent of each node")
    parser.add_argument("--degree", type=int, help="children of each member in the trees that protocols build")
    parser.add_argument("--encrypted", action="store_true", help="the group has a key: its packets are longer")
    parser.add_argument("--loss", type=float, default=0.0, help="share of datagrams lost")
    parser.add_argument("--skew", default="0", help="largest offset of a member's clock")
    parser.add_argument("--buffer", type=int, default=0, help="messages that a member can keep (default: no limit)")
    parser.add_argument(
        "--goal",
        choices=["deliver", "stable", "bytes", "cpu"],
        default="deliver",
        help="what to make least: time to deliver, time to stable, bytes or processor time (default deliver)",
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="the members' machines are like this one: measure what it adds to the network's time, and count it "
        "(always with --goal cpu)",
    )
    parser.add_argument("--latency-max", help="median time to stable that may not be exceeded, such as 100ms")
    parser.add_argument(
        "--bandwidth-max", type=float, metavar="KB/S", help="kilobytes a second that may leave a member"
    )
    parser.add_argument("--intervals", help="intervals to try, the first with every protocol (10ms,5ms,40ms)")
    parser.add_argument("--size-max", type=int, default=16, help="largest group to simulate as it is (default 16)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all randomness (default 1)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write advice.json, candidates.csv, advice.svg and advice.png there"
    )


def run(args: argparse.Namespace) -> int:
    """Ask, answer, and write the answer down."""
    from antiphon.progress import Progress
    from antiphon.sim.advise import advise

    if args.out is not None:
        require("matplotlib")
    question = _question(args)
    with Progress("trying candidates", 100) as bar:
        advice = advise(question, lambda done, total: bar.done(100 * done // total))
    summary = _summary(advice)
    if args.out is not None:
        _write(advice, summary, args.out)
    if args.json:
        print(json.dumps(summary))
    else:
        _tell(advice, summary)
    return 0


def _question(args: argparse.Namespace) -> Question:
    from antiphon.protocol.machine import MILLISECOND
    from antiphon.sim.advise import DEFAULT_INTERVALS_MS, Question
    from antiphon.sim.distributions import duration
    from antiphon.sim.hosted import HostTimes
    from antiphon.sim.trees import parse_tree

    def ms(text: str, key: str) -> float:
        return duration(text.strip(), key) / MILLISECOND

    tree = None if args.tree is None else parse_tree(args.tree)
    matrix = None if args.matrix is None else read_matrix(args.matrix)
    members = args.members
    if members is None:
        members = len(tree) if tree is not None else len(matrix) if matrix is not None else None
    if members is None:
        raise UsageError("members: how many? give --members, or a --tree or --matrix that says so")
    intervals = tuple(ms(text, "intervals") for text in (args.intervals or "").split(",") if text)
    return Question(
        members=members,
        need=args.ordering,
        rate_per_s=args.rate,
        payload=args.payload,
        senders=None if args.senders is None else _ranks(args.senders),
        latency=args.latency,
        matrix_ms=matrix,
        tree=tree,
        degree=args.degree,
        loss=args.loss,
        skew=args.skew,
        buffer=args.buffer,
        goal=args.goal,
        framing=live_framing(max(0, args.payload), encrypted=args.encrypted),  # below 0 is refused with the rest
        host=measured_host(members, args.rate, encrypted=args.encrypted)
        if args.here or args.goal == "cpu"
        else HostTimes(),
        latency_max_ms=None if args.latency_max is None else ms(args.latency_max, "latency-max"),
        bandwidth_max_kb_per_s=args.bandwidth_max,
        intervals_ms=intervals if args.intervals is not None else DEFAULT_INTERVALS_MS,
        size_max=args.size_max,
        seed=args.seed,
    )


def live_framing(payload: int, *, encrypted: bool) -> Framing:
    """Say what a live member adds to a message of so many bytes, and to its packets."""
    from antiphon.live.burst import whole
    from antiphon.live.packets import PacketCodec
    from antiphon.live.session import PlainSession, SealedSession
    from antiphon.sim.advise import Framing

    session, codec = SealedSession if encrypted else PlainSession, PacketCodec(1_000, random.Random(0))
    alone, two, three = (len(b"".join(codec.encode([b"."] * number))) - number for number in (1, 2, 3))
    return Framing(
        message=len(whole([bytes(payload)])) - payload,
        packet=session.overhead + alone,
        several=two - alone - 2 * (three - two),
        each=three - two,
    )


def measured_host(members: int, rate_per_s: float, *, encrypted: bool) -> HostTimes:
    """Measure with a few live members what this machine adds to the network's time."""
    from antiphon.live.reference_group import measure_machine
    from antiphon.progress import Progress
    from antiphon.sim.hosted import HostTimes

    size, rate_per_s = min(members, _REFERENCE_SIZE_MAX), min(max(rate_per_s, 10.0), _REFERENCE_RATE_MAX / members)
    with Progress(f"measuring this machine with {size} live members"):
        found = measure_machine(size, rate_per_s, encrypted=encrypted)
    hops, warm, late = (
        tuple(round(1000 * us) for us in times) for times in (found.hops_us, found.warm_us, found.late_us)
    )
    return HostTimes(hops, warm, round(1000 * found.work_us), late)


def _ranks(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"senders: {text!r} is not a list of members such as 0,1,2") from None


def read_matrix(path: Path) -> tuple[tuple[float, ...], ...]:
    """Read a latency matrix; a first line of names is checked and passed over."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not a text file; rows of milliseconds, separated by commas") from None
    if rows and not all(_is_number(cell) for cell in rows[0]):
        names = rows.pop(0)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"{path}: member {twice!r} is named twice")
        if len(names) != len(rows):
            raise UsageError(f"{path}: {len(names)} members are named, but there are {len(rows)} rows")
    if not rows:
        raise UsageError(f"{path}: empty; rows of milliseconds, separated by commas")
    for number, row in enumerate(rows, 1):
        for cell in row:
            if not _is_number(cell):
                raise UsageError(f"{path}, row {number}: {cell[:40]!r} is not a number of milliseconds")
    return tuple(tuple(float(cell) for cell in row) for row in rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _row(one: Estimate) -> dict[str, Any]:
    return {
        "ordering": one.candidate.ordering,
        "stability": one.candidate.stability or "its own",
        "options": one.candidate.options,
        "settings": one.candidate.settings,
        "stable_ms": round(one.stable_ms, 3),
        "deliver_ms": None if one.deliver_ms is None else round(one.deliver_ms, 3),
        "kb_per_s": round(one.kb_per_s, 3),
        "datagrams_per_s": round(one.datagrams_per_s, 1),
        "held": round(one.held),
        "basis": one.basis,
        "objection": one.objection,
    }


def _summary(advice: Advice) -> dict[str, Any]:
    question = advice.question
    return {
        "members": question.members,
        "need": question.need,
        "goal": question.goal,
        "rate_per_s": question.rate_per_s,
        "machine_us": question.host.medians_us(),
        "sentence": _sentence(advice),
        "recommendation": {**_row(advice.best), "window": advice.window(), "why": advice.why()},
        "runners_up": [_row(one) for one in advice.ranked[1:]],
        "rejected": [_row(one) for one in advice.rejected],
        "not_tried": [{"candidate": name, "why": why} for name, why in advice.refused],
    }


def _sentence(advice: Advice) -> str:
    best = advice.best.candidate
    settings = f" with {best.settings}" if best.settings else ""
    return f"Use {best.name}{settings} and a window of {advice.window()}: {advice.why()}."


def _tell(advice: Advice, summary: dict[str, Any]) -> None:
    best, question = advice.best, advice.question
    print(_sentence(advice))
    print(f"Basis: {best.basis}; a datagram leaves a member once for each receiver; times are medians.")
    print(_about_machine(question))
    print("\nevery protocol with the best settings that were tried:")
    _show(advice.best_of_each())
    for name, why in advice.refused:
        print(f"not tried: {name}: {why}")
    if question.members > question.size_max:
        print(f"\n{question.members} members were not simulated as a whole: the basis column says what was")


def _about_machine(question: Question) -> str:
    if question.host == type(question.host)():
        return "The machines' own time is not counted; --here measures what this one adds."
    usual = question.host.medians_us()
    return (
        f"This machine adds {usual['hop']:.0f} us to a message's way ({usual['warm']:.0f} if the receiver is awake), "
        f"{usual['work']:.0f} us of them work, and its timers are {usual['timer']:.0f} us late (medians)."
    )


def _show(estimates: Sequence[Estimate]) -> None:
    show_table(
        ("", "protocol", "settings", "deliver ms", "stable ms", "kB/s", "datagrams/s", "held", "basis or objection"),
        [
            (
                str(place) if one.acceptable else "-",
                one.candidate.name,
                one.candidate.settings,
                "" if one.deliver_ms is None else f"{one.deliver_ms:.4g}",
                f"{one.stable_ms:.4g}",
                f"{one.kb_per_s:.4g}",
                f"{one.datagrams_per_s:.4g}",
                f"{one.held:.0f}",
                one.objection or one.basis,
            )
            for place, one in enumerate(estimates, 1)
        ],
        numbers=(0, 3, 4, 5, 6, 7),
    )


def _write(advice: Advice, summary: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "advice.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    rows = [_row(one) for one in [*advice.ranked, *advice.rejected]]
    with (out / "candidates.csv").open("w", newline="", encoding="utf-8") as file:
        columns = [key for key in rows[0] if key != "options"]
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    _draw(advice, out / "advice")


def _draw(advice: Advice, stem: Path) -> None:
    """Draw every protocol with its best settings as a row of dots, one panel for each goal; the best one is first."""
    from antiphon.report.figures import COLOURS, drawing, save
    from antiphon.sim.advise import GOALS

    shown, question = advice.best_of_each(), advice.question
    columns: list[tuple[str, Goal, list[float | None], float | None]] = [
        ("ms to deliver", "deliver", [one.deliver_ms for one in shown], None),
        ("ms to stable", "stable", [one.stable_ms for one in shown], question.latency_max_ms),
        ("kB/s from each", "bytes", [one.kb_per_s for one in shown], question.bandwidth_max_kb_per_s),
        ("datagrams/s at each", "cpu", [one.datagrams_per_s for one in shown], None),
    ]
    names = [f"{one.candidate.name}" + ("" if one.acceptable else " (misses a limit)") for one in shown]
    height = 1.3 + 0.28 * len(shown)
    with drawing(columns=len(columns), width_in=11, height_in=height, sharey=True) as (figure, panels):
        for panel, (label, goal, values, limit) in zip(panels, columns, strict=True):
            for row, (value, one) in enumerate(zip(values, shown, strict=True)):
                if value is not None:
                    colour = COLOURS["ink"] if row == 0 else COLOURS["muted"]
                    panel.plot(
                        value, row, "o" if one.acceptable else "x", color=colour, markersize=8 if row == 0 else 6
                    )
            if limit is not None:
                panel.axvline(limit, color=COLOURS["muted"], linestyle=":")
            panel.set_xlabel(label)
            panel.set_xlim(left=0)
            if goal == question.goal:
                panel.set_title(f"least {GOALS[question.goal]}")
        panels[0].set_yticks(range(len(shown)), names)
        panels[0].invert_yaxis()
        asked = f"{question.members} members, {question.need} order or stronger"
        figure.suptitle(f"{asked}, {question.rate_per_s:g} messages a second each")
        save(figure, stem)
