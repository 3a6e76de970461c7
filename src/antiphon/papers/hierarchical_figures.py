"""The figures of the hierarchical stability paper, drawn from our own runs, and one beyond its sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon.papers.hierarchical import PUBLISHED_SIZES, STRUCTURED_OF, MeasuredTrees, arrows
from antiphon.report.figures import COLOURS, drawing, save
from antiphon.sim.lan import ROUND_PROTOCOLS, LanRound
from antiphon.sim.trees import near_complete

# One look a protocol in every figure. FullDist nearly covers CoordP, so it is dashed and hollow.
STYLES: dict[str, dict[str, Any]] = {
    "coordinator": {"color": COLOURS["series-1"], "marker": "o"},
    "full-distribution": {
        "color": COLOURS["series-2"],
        "marker": "s",
        "linestyle": "--",
        "markerfacecolor": "none",
        "markersize": 9,
    },
    "train": {"color": COLOURS["series-3"], "marker": "^"},
    "tree-coordinator": {"color": COLOURS["series-4"], "marker": "v"},
    "tree-train": {"color": COLOURS["series-6"], "marker": "D"},
}
# The messages of a round, by colour and by dashes.
KINDS: dict[str, dict[str, Any]] = {
    "START": {"color": COLOURS["ink"], "linestyle": ":", "linewidth": 1},
    "ACK": {"color": COLOURS["series-1"], "linestyle": "-", "linewidth": 1.2},
    "INFO": {"color": COLOURS["series-2"], "linestyle": "--", "linewidth": 1},
}
BASIC = tuple(STRUCTURED_OF)
STRUCTURED = ("tree-coordinator", "tree-train")
Measure = Callable[[LanRound], float]


def hops(outcome: LanRound) -> float:
    """Messages on all hops."""
    return outcome.traffic.hops


def rtt_ms(outcome: LanRound) -> float:
    """Round-trip time at the root."""
    return outcome.rtt_ns / 1e6


def queue(outcome: LanRound) -> float:
    """The largest queue in the network."""
    return outcome.traffic.link_queue_max


def draw(measured: MeasuredTrees, out: Path) -> list[Path]:
    """Draw every figure as SVG and PNG into a folder; return the files."""
    everyone = tuple(ROUND_PROTOCOLS)
    pairs = tuple(STRUCTURED_OF.items())
    figures: list[tuple[str, str, str, Measure, Sequence[Sequence[str]], bool, bool]] = [
        ("figure-6", "Messages on all hops", "messages", hops, [everyone], True, False),
        ("figure-7", "Messages on all hops, basic and structured", "messages", hops, pairs, True, False),
        ("figure-8", "Largest queue in the network", "messages", queue, [everyone], True, False),
        ("figure-9", "Round-trip time", "ms", rtt_ms, [BASIC, STRUCTURED], False, True),
        ("figure-10", "Round-trip time, basic and structured", "ms", rtt_ms, pairs, False, True),
    ]
    files = _draw_rounds(out / "figures-1-5")
    for name, title, unit, measure, panels, is_log, with_random in figures:
        with drawing(1, len(panels), width_in=5 * len(panels), height_in=3.8) as (figure, axes):
            for axis, protocols in zip(axes, panels, strict=True):
                _lines(axis, measured, protocols, measure, with_random)
                axis.set(xlabel="group size n", ylabel=unit, yscale="log" if is_log else "linear")
                axis.legend(fontsize=8)
            files += _save(figure, title, out / name)
    files += _draw_beyond(measured, out / "beyond-the-paper")
    return files


def _draw_rounds(path: Path) -> list[Path]:
    """Draw who sends what to whom in each round, for a complete binary tree of seven members."""
    tree = near_complete(2, 2, 2)
    with drawing(2, 3, width_in=13, height_in=7) as (figure, panels):
        for axis, (name, paper_name) in zip(panels, ROUND_PROTOCOLS.items(), strict=False):
            sent = arrows(tree, name)
            for arrow in sent:
                for to in range(len(tree)) if arrow.to is None else (arrow.to,):
                    if to != arrow.sender:
                        axis.plot([arrow.round - 1, arrow.round], [arrow.sender + 1, to + 1], **KINDS[arrow.kind])
            last = max(arrow.round for arrow in sent)
            axis.set(title=f"{paper_name}: {last} rounds", xlabel="round", ylabel="member", xlim=(0, last))
            axis.set_yticks(range(1, len(tree) + 1))
            axis.invert_yaxis()
            axis.locator_params(axis="x", integer=True)
        for kind, style in KINDS.items():
            panels[-1].plot([], [], label=kind, **style)
        panels[-1].legend(loc="center")
        panels[-1].axis("off")
        return _save(figure, "The rounds of the five protocols, seven members in a binary tree", path)


def _lines(axis: Any, measured: MeasuredTrees, protocols: Sequence[str], measure: Measure, with_random: bool) -> None:
    for name in protocols:
        values = [measure(measured.near_complete(n, name)) for n in PUBLISHED_SIZES]
        axis.plot(PUBLISHED_SIZES, values, label=ROUND_PROTOCOLS[name], **STYLES[name])
        if with_random:
            points = [(n, rtt) for n in PUBLISHED_SIZES for rtt in measured.random_rtts_ms(n, name)]
            axis.plot(*zip(*points, strict=True), ".", color=STYLES[name]["color"], markersize=3, alpha=0.5)
    if with_random:
        axis.plot([], [], ".", color=COLOURS["muted"], markersize=3, label="random trees")


def _draw_beyond(measured: MeasuredTrees, path: Path) -> list[Path]:
    with drawing(1, 2, width_in=10, height_in=3.8) as (figure, axes):
        for axis, measure, unit in ((axes[0], hops, "messages on all hops"), (axes[1], rtt_ms, "round-trip time, ms")):
            for name, style in STYLES.items():
                points = [
                    (point.n, measure(point.outcome))
                    for point in measured.points
                    if point.stability == name and not point.tree.startswith("random")
                ]
                axis.plot(*zip(*sorted(points), strict=True), label=ROUND_PROTOCOLS[name], **style)
            axis.set(xlabel="group size n", ylabel=unit, xscale="log", yscale="log")
            axis.legend(fontsize=8)
        return _save(figure, "Beyond the paper: up to 100,000 members", path)


def _save(figure: Any, title: str, path: Path) -> list[Path]:
    figure.suptitle(title)
    return save(figure, path)
