"""Figures take the page's colours and fonts, load nothing, and can stand beside one another."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

pytest.importorskip("matplotlib")

from antiphon.report import charts
from antiphon.wording import duration

DURATIONS = [charts.Durations("delivery", [(0, 1, 30), (1000, 2000, 50), (5_000_000, 6_000_000, 20)], 1500, 5_900_000)]
LEVELS = [charts.Level(0, 10, 3.5, 9), charts.Level(10, 20, 2.0, 4)]
BANDS = {"co": [charts.Band(4, 1, 0.5, 1.5), charts.Band(8, 2, 1, 3)], "fifo": [charts.Band(4, 3, 3, 3)]}
FIGURES = {
    "durations": lambda: charts.durations(DURATIONS, "how long"),
    "occupancy": lambda: charts.occupancy(LEVELS, 10, "how full"),
    "far below its bound": lambda: charts.occupancy(LEVELS, 1000, "how full"),
    "heat map": lambda: charts.heat_map(["1", "2"], [0, 5, 10], [[0, 2.5], [1, 0]], "who"),
    "panels": lambda: charts.panels([charts.Panel("time", BANDS)], ["co", "fifo"], "members", "by size"),
    "trade-off": lambda: charts.trade_off([charts.Choice("co", 0, 1e6, 50, 9, True)], "what costs what"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_pages(name: str) -> None:
    drawn = FIGURES[name]()
    root = ElementTree.fromstring(drawn)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"]
    assert "http" not in drawn
    assert "#7e57" not in drawn, "a stand-in colour was left"
    assert not re.findall(r"(?:fill|stroke): (?!none|var|url)[^;\"]*", drawn), "every colour is the page's"
    assert "font-family" not in drawn
    assert "<style" not in drawn, "a style inside it would reach the whole page"
    assert "<text" in drawn, "text stays text"
    assert drawn == FIGURES[name](), "the same figure, byte for byte"
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', drawn))
    assert used == set(re.findall(r' id="([^"]*)"', drawn))


def test_figures_on_one_page_share_no_ids() -> None:
    ids = [found for draw in FIGURES.values() for found in re.findall(r' id="([^"]*)"', draw())]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_a_few_extremes_do_not_make_a_heat_map_pale() -> None:
    """A hundred members that were waited for alike, but for one moment of one of them."""
    values = [[5.0] * 50 for _ in range(100)]
    values[7][3] = 5_000.0
    drawn = charts.heat_map([str(n) for n in range(100)], list(range(51)), values, "who")
    assert drawn.count("opacity: 0.12") <= 1, "in the legend"
    assert "up to 5e+03" in drawn or "up to 5,000" in drawn


def test_labels_are_escaped() -> None:
    drawn = charts.durations(DURATIONS, 'a "quoted" <run>')
    assert ElementTree.fromstring(drawn).attrib["aria-label"] == 'a "quoted" <run>'


def test_what_took_no_time_is_told_apart_from_clocks_that_differ() -> None:
    assert "30% at once<" in charts.durations(DURATIONS, "how long")
    early = [charts.Durations("delivery", [(-5000, -4000, 50), (5000, 6000, 50)], -4500, 5500)]
    assert "50% at once or earlier, by the clocks<" in charts.durations(early, "how long")


@pytest.mark.parametrize(
    ("ns", "said"),
    [(0, "0 s"), (999, "999 ns"), (1_500, "1.5 µs"), (12_345_678, "12.3 ms"), (61e9, "61 s"), (-2_000_000, "-2 ms")],
)
def test_durations_are_said_in_the_unit_that_suits_them(ns: float, said: str) -> None:
    assert duration(ns) == said
