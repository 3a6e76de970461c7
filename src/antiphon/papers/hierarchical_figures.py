"""Figures 6 to 10 of the hierarchical stability paper, drawn from our own runs, and one beyond its sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon.errors import UsageError
from antiphon.papers.hierarchical import PAPER, PUBLISHED_SIZES, STRUCTURED_OF, Measured
from antiphon.sim.lan import ROUND_PROTOCOLS, Round

try:
    import matplotlib as mpl
except ImportError as missing:
    raise UsageError("drawing figures needs matplotlib; install antiphon[figures], or leave out --out") from missing
mpl.use("Agg")
import matplotlib.pyplot as plt

# One look a protocol in every figure; told apart by marker as well as by colour (a palette safe for colour-blind eyes).
# FullDist nearly covers CoordP, so it is dashed and hollow.
STYLES: dict[str, dict[str, Any]] = {
    "coordinator": {"color": "#0072B2", "marker": "o"},
    "full-distribution": {
        "color": "#D55E00",
        "marker": "s",
        "linestyle": "--",
        "markerfacecolor": "none",
        "markersize": 9,
    },
    "train": {"color": "#009E73", "marker": "^"},
    "tree-coordinator": {"color": "#CC79A7", "marker": "v"},
    "tree-train": {"color": "#56B4E9", "marker": "D"},
}
BASIC = tuple(STRUCTURED_OF)
STRUCTURED = ("tree-coordinator", "tree-train")
Measure = Callable[[Round], float]


def hops(outcome: Round) -> float:
    """Messages on all hops."""
    return outcome.traffic.hops


def rtt_ms(outcome: Round) -> float:
    """Round-trip time at the root."""
    return outcome.rtt_ns / 1e6


def queue(outcome: Round) -> float:
    """The largest queue in the network."""
    return outcome.traffic.link_queue_max


def draw(measured: Measured, out: Path) -> list[Path]:
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
    files = []
    for name, title, unit, measure, panels, is_log, with_random in figures:
        figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 3.8), squeeze=False)
        for axis, protocols in zip(axes[0], panels, strict=True):
            _lines(axis, measured, protocols, measure, with_random)
            axis.set(xlabel="group size n", ylabel=unit, yscale="log" if is_log else "linear")
            axis.legend(fontsize=8)
        files += _save(figure, title, out / name)
    files += _draw_beyond(measured, out / "beyond-the-paper")
    return files


def _lines(axis: Any, measured: Measured, protocols: Sequence[str], measure: Measure, with_random: bool) -> None:
    for name in protocols:
        values = [measure(measured.near_complete(n, name)) for n in PUBLISHED_SIZES]
        axis.plot(PUBLISHED_SIZES, values, label=ROUND_PROTOCOLS[name], **STYLES[name])
        if with_random:
            points = [(n, rtt) for n in PUBLISHED_SIZES for rtt in measured.random_rtts_ms(n, name)]
            axis.plot(*zip(*points, strict=True), ".", color=STYLES[name]["color"], markersize=3, alpha=0.5)
    if with_random:
        axis.plot([], [], ".", color="grey", markersize=3, label="random trees")


def _draw_beyond(measured: Measured, path: Path) -> list[Path]:
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8))
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
    figure.tight_layout()
    files = [path.with_suffix(suffix) for suffix in (".svg", ".png")]
    with mpl.rc_context({"svg.hashsalt": PAPER}):  # without it and with a date, equal pictures would differ as files
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1], dpi=120)
    plt.close(figure)
    return files
