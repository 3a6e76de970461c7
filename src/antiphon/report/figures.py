"""Charts as SVG that take their colours and fonts from the page, so that one drawing serves light, dark and print.

matplotlib draws in stand-in colours; `svg` turns these into the page's custom properties, keeps text as text, and drops
what only a file of its own would need.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antiphon.errors import UsageError
from antiphon.report.page import escape
from antiphon.wording import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES: Final = tuple(f"series-{number}" for number in range(1, 9))
_NAMES: Final = ("paper", "panel", "ink", "muted", "line", "accent", "good", "bad", "warn", *SERIES)
COLOURS: Final[dict[str, str]] = {name: f"#7e57{number:02x}" for number, name in enumerate(_NAMES)}

WIDTH_IN: Final = 10.5
_DASHES: Final = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
_MARKERS: Final = "osD^vPX*"


class Look(NamedTuple):
    """How one series is drawn: told apart by colour, dashes and marker, so that any two of them suffice."""

    colour: str
    dash: Any
    marker: str


def look(number: int) -> Look:
    """The look of the series of a number, from 0."""
    return Look(COLOURS[SERIES[number % 8]], _DASHES[number % 4], _MARKERS[number % 8])


@contextmanager
def drawing(
    rows: int = 1, columns: int = 1, *, height_in: float = 3.2, width_in: float = WIDTH_IN, **layout: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its axes, row by row, in the page's look."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("drawing figures needs matplotlib: pip install 'antiphon[figures]'") from None
    ink, muted, line = COLOURS["ink"], COLOURS["muted"], COLOURS["line"]
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "antiphon",
        "font.size": 10.5,
        "text.color": ink,
        "axes.labelcolor": muted,
        "axes.edgecolor": line,
        "axes.titlecolor": ink,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": line,
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "xtick.color": line,
        "ytick.color": line,
        "xtick.labelcolor": muted,
        "ytick.labelcolor": muted,
        "hatch.linewidth": 0.8,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.subplots(rows, columns, squeeze=False, **layout).ravel().tolist()
        for one in axes:
            one.patch.set_visible(False)
        yield figure, axes


def svg(figure: Figure, label: str) -> str:
    """A finished figure as inline SVG, with a sentence for those who cannot see it."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = text.replace("xlink:href", "href")
    for name, stand_in in COLOURS.items():
        text = text.replace(stand_in, f"var(--{name})")
    text = re.sub(r"font: (?:\S+ )?([\d.]+px) [^;\"]*", r"font-size: \1", text)  # as older versions write it
    text = re.sub(r"font-family: [^;\"]*;? ?|transform=\"rotate\(-0[^\"]*\"", "", text)
    text = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    head = f'<svg role="img" aria-label="{escape(label)}" viewBox="{box[1]}" stroke-linejoin="round">'
    return _own_ids(re.sub(r"<svg.*?>", lambda _: head, text, count=1, flags=re.DOTALL))


def _own_ids(text: str) -> str:
    """Drop the ids that nothing refers to, and make the others unlike those of any other figure on the page."""
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    own = "f" + hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{own}{found[1]}"' if found[1] in used else "", text)
    return re.sub(r'(href="|url\()#', lambda found: f"{found[1]}#{own}", text)


def log_time_axis(axes: Axes, low_ns: float, high_ns: float) -> None:
    """Show times from `low_ns` to `high_ns` on a logarithmic scale that is labelled with round ones."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    def label(value: float, _: int | None = None) -> str:
        name, size = time_unit(value * 1.0000001)
        return f"{value / size:g} {name}"

    axes.set_xscale("log")
    axes.set_xlim(low_ns, high_ns)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high_ns < 2_000 * low_ns else (1,), numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(label))
    axes.xaxis.set_minor_formatter(NullFormatter())
