"""Incidents: whoever reads only the top of the page in a browser can say what happened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from antiphon.report.trace_page import trace_page
from support.incidents import INCIDENTS

SCREEN = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages; made before the browser comes, beside whose event loop no simulated one can run."""
    folder = tmp_path_factory.mktemp("incidents")
    made = {name: folder / f"{name}.html" for name in INCIDENTS}
    for name, file in made.items():
        file.write_text(trace_page(INCIDENTS[name].make(folder / name)))
    return made


@pytest.fixture(scope="module")
def screens(files: dict[str, Path], browser: Any) -> Iterator[list[tuple[Any, dict[str, int], list[str]]]]:
    """A page on a light screen and one on a dark phone, without a network; and what each writes to its console."""
    made = []
    for scheme, size in (("light", SCREEN), ("dark", PHONE)):
        troubles: list[str] = []
        page = browser.new_context(offline=True, color_scheme=scheme, viewport=size).new_page()
        page.on("console", lambda message, troubles=troubles: troubles.append(message.text))
        page.on("pageerror", lambda error, troubles=troubles: troubles.append(str(error)))
        made.append((page, size, troubles))
    yield made
    for page, _, _ in made:
        page.context.close()


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_top_of_the_page_tells_what_happened(files: dict[str, Path], screens: list[Any], name: str) -> None:
    for page, size, troubles in screens:
        page.goto(files[name].as_uri())
        headline = " ".join(word for word in page.inner_text("h1").split() if word not in "✓✗?")
        assert re.search(".*".join(INCIDENTS[name].headline), headline), headline
        box = page.locator("h1").bounding_box()
        assert box["y"] + box["height"] <= size["height"], "the headline is on the first screen"
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert not troubles
