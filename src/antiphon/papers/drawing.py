"""How the papers' figures are drawn: one palette, and every figure as SVG (its text kept as text) and as PNG."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from antiphon.errors import UsageError

# Okabe and Ito's colours, safe for colour-blind eyes; lines are told apart by their markers as well.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "v", "D", "P")


def pyplot() -> Any:
    """Give matplotlib.pyplot, set up to draw into files."""
    try:
        import matplotlib as mpl
    except ImportError as missing:
        raise UsageError("drawing figures needs matplotlib; install antiphon[figures], or leave out --out") from missing
    mpl.use("Agg")
    from cycler import cycler
    from matplotlib import pyplot as plt

    mpl.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=PALETTE),
            "svg.fonttype": "none",
            "svg.hashsalt": "antiphon",  # the same picture, the same file
        }
    )
    return plt


def save(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as SVG and PNG, and give the two files."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    figure.tight_layout()
    figure.savefig(files[0], metadata={"Date": None})
    figure.savefig(files[1], dpi=120, metadata={"Software": None})
    pyplot().close(figure)
    return files


# What a colour of ours is called in a page's theme, so that one picture serves light, dark and print.
_THEME = {
    "#ffffff": "--paper",
    "#000000": "--ink",
    "#808080": "--muted",
    "#b0b0b0": "--line",
    "#cccccc": "--line",
    "#e6e6e6": "--line",
    "#999999": "--muted",
    **{colour.lower(): f"--series-{place}" for place, colour in enumerate(PALETTE, 1)},
}


def themed(svg: str, name: str) -> str:
    """Turn a figure's file into an element of a page: its colours follow the theme, its ids are its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda found: f"var({_THEME[found[0]]})" if found[0] in _THEME else found[0], svg)
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg, width = re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", svg), re.search(r'^<svg[^>]*? width="([\d.]+)pt"', svg)
    assert width is not None, "matplotlib says how wide a figure is"
    opening = f'<svg role="img" aria-label="{name}" style="width: {float(width[1]) * 4 / 3:.0f}px"'
    return re.sub(r'^<svg([^>]*?) width="[^"]*"', rf"{opening}\1", svg)
