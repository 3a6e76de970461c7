"""The page skeleton: whole, offline, escaped, and legible in both themes."""

from __future__ import annotations

import re

import pytest

from antiphon.web.page import asset, page

COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", asset("page.css"))
}


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_colour_of_words_and_lines_stands_out_from_what_is_behind_it(theme: int) -> None:
    assert {f"series-{number}" for number in range(1, 9)} | {"paper", "panel", "ink", "muted", "line"} <= set(COLOURS)
    for name, shades in COLOURS.items():
        if name not in ("paper", "panel", "line"):
            for behind in ("paper", "panel"):
                assert contrast(shades[theme], COLOURS[behind][theme]) >= 4.5, f"{name} on {behind}"


def test_a_page_loads_nothing_and_escapes_its_title() -> None:
    document = page("a <b> & c", "<h1>body</h1>", script="let own = 1;", style=".own {}")
    assert "<title>a &lt;b&gt; &amp; c</title>" in document
    assert '<html lang="en">' in document
    assert "<h1>body</h1>" in document
    assert "let own = 1;" in document
    assert ".own {}" in document
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", document)
