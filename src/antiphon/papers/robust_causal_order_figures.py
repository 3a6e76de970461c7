"""The pictures of the robust causal order paper, drawn from our own runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from antiphon.report.figures import drawing, look, save


def draw_figure_7(series: Mapping[str, Sequence[tuple[int, int]]], out: Path) -> list[Path]:
    """Draw which block was recovered at which block counter."""
    shifted = {
        name: [(float(at), block + 0.12 * (index - 1)) for block, at in recovered]  # so that none hides another
        for index, (name, recovered) in enumerate(series.items())
    }
    words = ("block counter of the receiver", "block recovered", "Figure 7: recovery of blocks 10 to 15")
    return _lines(shifted, words, out / "figure-7", linestyle=":")


def draw_copies(per_loss: Mapping[str, Sequence[tuple[int, float]]], out: Path) -> list[Path]:
    """Draw copies per loss against the size of the group."""
    lines = {f"wait: {rule}": points for rule, points in per_loss.items()}
    return _lines(lines, ("members", "copies per loss", "Suppression"), out / "copies", from_zero=True)


def draw_recovery(times: Mapping[int, Sequence[tuple[float, float]]], out: Path) -> list[Path]:
    """Draw recovery time against loss, a line a group size."""
    words = ("loss on every link", "mean ms from sending to receipt", "Recovery time")
    return _lines({f"n = {n}": points for n, points in times.items()}, words, out / "recovery", from_zero=True)


def _lines(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    words: tuple[str, str, str],
    stem: Path,
    *,
    linestyle: str = "-",
    from_zero: bool = False,
) -> list[Path]:
    """Draw points (x, y) as lines, told apart by marker as well as by colour; `words`: both axes and the title."""
    with drawing(width_in=7, height_in=4) as (figure, [axes]):
        for index, (name, points) in enumerate(lines.items()):
            seen = look(index)
            x, y = ([point[at] for point in points] for at in (0, 1))
            axes.plot(x, y, linestyle=linestyle, color=seen.colour, marker=seen.marker, label=name)
        axes.set(xlabel=words[0], ylabel=words[1], title=words[2])
        if from_zero:
            axes.set_ylim(bottom=0)
        axes.legend()
        return save(figure, stem)
