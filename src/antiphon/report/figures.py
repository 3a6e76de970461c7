"""The one way in which figures are drawn: matplotlib in the light theme's colours, into files or into a page.

A figure for a page refers to the page's custom properties instead of colours, so that one drawing serves light, dark
and print, and keeps its text as text. Reports, the book of papers and `advise` all draw here.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from xml.etree import ElementTree

from antiphon.atomic_write import Replacement
from antiphon.errors import require
from antiphon.web.page import asset
from antiphon.wording import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final[dict[str, str]] = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}),", asset("page.css")))
SERIES: Final = tuple(name for name in COLOURS if name.startswith("series-"))
_NAMES: Final = {colour: name for name, colour in COLOURS.items()}

WIDTH_IN: Final = 10.5
_PIXELS_PER_POINT: Final = 4 / 3
_DASHES: Final = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
_MARKERS: Final = "osD^vPX*"


class Look(NamedTuple):
    """How one series is drawn: told apart by colour, dashes and marker, so that any two of them suffice."""

    colour: str
    dash: Any
    marker: str


def look(number: int) -> Look:
    """Return the look of the series of a number, from 0."""
    return Look(COLOURS[SERIES[number % 8]], _DASHES[number % 4], _MARKERS[number % 8])


@contextmanager
def drawing(
    rows: int = 1, columns: int = 1, *, height_in: float = 3.2, width_in: float = WIDTH_IN, **layout: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Give a figure and its axes, row by row; draw, and save it or turn it into SVG inside of the block."""
    require("matplotlib")
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    ink, muted, line = COLOURS["ink"], COLOURS["muted"], COLOURS["line"]
    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "antiphon",  # the same picture, the same file
        "font.size": 10.5,
        "text.color": ink,
        "legend.labelcolor": ink,
        "legend.frameon": False,
        "axes.labelcolor": muted,
        "axes.edgecolor": line,
        "axes.titlecolor": ink,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.prop_cycle": cycler(color=[COLOURS[name] for name in SERIES]),
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


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure on white as SVG and as PNG, and return the two files."""
    figure.patch.set_visible(True)
    kinds: dict[str, dict[str, Any]] = {
        ".svg": {"metadata": {"Date": None}},
        ".png": {"metadata": {"Software": None}, "dpi": 120},
    }
    for suffix, options in kinds.items():
        with Replacement(stem.with_suffix(suffix), durable=False) as fresh:
            figure.savefig(fresh, format=suffix[1:], facecolor=COLOURS["paper"], **options)
    return [stem.with_suffix(suffix) for suffix in kinds]


def inline_svg(figure: Figure, label: str) -> str:
    """Return a finished figure as an element of a page, with a sentence for those who cannot see it."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return themed(file.getvalue(), label)


def themed(svg: str, label: str) -> str:
    """Turn a figure's SVG file into an element of a page: its colours and fonts are the page's, its ids its own."""
    root = ElementTree.fromstring(svg)
    own = f"f{hashlib.sha256(svg.encode()).hexdigest()[:8]}-"
    for element in root.iter():
        _drop_what_only_a_file_needs(element)
        element.tag = _bare(element.tag)
        element.attrib = {_bare(name): _themed(_bare(name), value, own) for name, value in element.attrib.items()}
        element.tail = "\n" if element.tail else None
        if not (element.text or "").strip():
            element.text = None
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
    used = {found for element in root.iter() for value in element.attrib.values() for found in _references(value)}
    for element in root.iter():
        if element.get("id", "") not in used:
            element.attrib.pop("id", None)
    width, box = float(root.attrib["width"].removesuffix("pt")), root.attrib["viewBox"]
    root.attrib = {
        "role": "img",
        "aria-label": label,
        "viewBox": box,
        "stroke-linejoin": "round",
        "style": f"width: 100%; max-width: {width * _PIXELS_PER_POINT:.0f}px",
    }
    return ElementTree.tostring(root, encoding="unicode")


def _bare(name: str) -> str:
    """Return a name without its XML namespace, as it stands in HTML."""
    return name.rpartition("}")[2]


def _drop_what_only_a_file_needs(parent: ElementTree.Element) -> None:
    for child in list(parent):
        if _bare(child.tag) in ("metadata", "style"):  # a style in here would reach the whole page
            parent.remove(child)


def _themed(name: str, value: str, own: str) -> str:
    match name:
        case "style":
            declared = dict(one.split(": ", 1) for one in value.rstrip("; ").split("; "))
            declared.pop("font-family", None)
            return "; ".join(_declaration(*one, own) for one in declared.items())
        case "id":
            return own + value
        case "href" | "clip-path":
            return value.replace("#", f"#{own}")
        case "d" | "transform" | "x" | "y":
            numbers = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
            return numbers.replace("\n", "").strip()
    return value


def _declaration(name: str, value: str, own: str) -> str:
    if name == "font":  # as older versions write it: size and family in one
        return f"font-size: {next(word for word in value.split() if word.endswith('px'))}"
    value = value.replace("url(#", f"url(#{own}")
    return f"{name}: var(--{_NAMES[value]})" if value in _NAMES else f"{name}: {value}"


def _references(value: str) -> list[str]:
    return [value[1:]] if value.startswith("#") else re.findall(r"url\(#([^)]+)\)", value)


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
