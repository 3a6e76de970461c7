"""The pictures of the robust causal order paper, drawn from our own runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from antiphon.papers.drawing import pyplot, save

# told apart by marker as well as by colour
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#D55E00", "marker": "s"},
    {"color": "#0072B2", "marker": "o"},
    {"color": "#009E73", "marker": "^"},
    {"color": "#CC79A7", "marker": "v"},
)


def draw_figure_7(series: Mapping[str, Sequence[tuple[int, int]]], out: Path) -> list[Path]:
    """Which block was recovered at which block counter."""
    figure, axes = pyplot().subplots(figsize=(7, 4))
    for place, (name, recovered) in enumerate(series.items()):
        shift = 0.12 * (place - 1)  # so that none hides another
        axes.plot(
            [at for _, at in recovered],
            [block + shift for block, _ in recovered],
            linestyle=":",
            label=name,
            **STYLES[place],
        )
    axes.set(
        xlabel="block counter of the receiver", ylabel="block recovered", title="Figure 7: recovery of blocks 10 to 15"
    )
    return _save(figure, axes, out / "figure-7")


def draw_copies(per_loss: Mapping[str, Sequence[tuple[int, float]]], out: Path) -> list[Path]:
    """Copies per loss against the size of the group."""
    figure, axes = pyplot().subplots(figsize=(7, 4))
    for place, (rule, points) in enumerate(per_loss.items()):
        axes.plot([n for n, _ in points], [copies for _, copies in points], label=f"wait: {rule}", **STYLES[place])
    axes.set(xlabel="members", ylabel="copies per loss", title="Suppression", ylim=(0, None))
    return _save(figure, axes, out / "copies")


def draw_recovery(times: Mapping[int, Sequence[tuple[float, float]]], out: Path) -> list[Path]:
    """Recovery time against loss, a line a group size."""
    figure, axes = pyplot().subplots(figsize=(7, 4))
    for place, (n, points) in enumerate(times.items()):
        axes.plot([loss for loss, _ in points], [ms for _, ms in points], label=f"n = {n}", **STYLES[place])
    axes.set(
        xlabel="loss on every link", ylabel="mean ms from sending to receipt", title="Recovery time", ylim=(0, None)
    )
    return _save(figure, axes, out / "recovery")


def _save(figure: Any, axes: Any, stem: Path) -> list[Path]:
    axes.legend()
    axes.grid(alpha=0.3)
    return save(figure, stem)
