"""A report in a real browser, cut off from the world: it renders, its diagram answers, its themes and print work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from antiphon.report.facts import Facts
from antiphon.report.headline import headline
from antiphon.report.trace_page import trace_page
from support.reports import facts_of, planted_trace

Page = Any


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A group of five, one of whom delivers two messages the other way round than the four others."""
    folder = tmp_path_factory.mktemp("report")
    trace, _ = planted_trace(folder / "trace", "total swap", members=5, messages=30)
    return facts_of(folder / "work", trace)


@pytest.fixture(scope="module")
def file(facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(trace_page(facts))
    return path


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Page]:
    """The page, in a browser that has no network; what goes wrong in it fails the test."""
    context = browser.new_context(offline=True, color_scheme="light", viewport={"width": 1280, "height": 900})
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    yield page
    context.close()
    assert not troubles
    assert set(asked) <= {file.as_uri(), "data:,"}


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_verdicts_are_those_of_the_check(opened: Page, facts: Facts) -> None:
    assert facts.checked is not None
    assert " ".join(opened.inner_text("h1").replace("✗", "").split()) == headline(facts)
    assert headline(facts).endswith(" Total order is broken.")
    rows = opened.query_selector_all("tr[data-guarantee]")
    shown = {
        row.get_attribute("data-guarantee"): row.query_selector(".verdict").inner_text().split()[-1] for row in rows
    }
    assert shown == {name: one.verdict for name, one in facts.checked.guarantees.items()}


def test_the_marked_events_are_those_of_the_witness(opened: Page, facts: Facts) -> None:
    figures = opened.query_selector_all("figure.diagram")
    assert len(figures) == len(facts.drawn) == 4
    for figure, drawn in zip(figures, facts.drawn, strict=True):
        marked = figure.query_selector_all(".marked")
        places = {(int(one.get_attribute("data-member")), int(one.get_attribute("data-step"))) for one in marked}
        assert places == set(drawn.rows.marked)
        witness = drawn.named.witness
        assert places == {
            (witness.member if event.member is None else event.member, event.step) for event in witness.events
        }


def test_pointing_tells_and_buttons_zoom(opened: Page) -> None:
    figure = opened.locator("figure.diagram").first
    figure.scroll_into_view_if_needed()
    figure.locator(".marked").first.hover(force=True)
    assert "deliver" in figure.locator(".told").inner_text()
    svg = figure.locator(".pan svg")
    before = svg.bounding_box()["width"]
    figure.locator("[data-zoom=in]").click()
    assert svg.bounding_box()["width"] == pytest.approx(before * 1.25, rel=0.01)


def test_what_is_folded_unfolds_with_its_diagram_in_sight(opened: Page) -> None:
    folded = opened.locator("details.folded")
    assert folded.count() == 2
    assert not folded.first.locator("figure").is_visible()
    folded.first.locator("summary").first.press("Enter")
    folded.first.locator("figure").wait_for(state="visible")
    pan, marked = (folded.first.locator(one).first.bounding_box() for one in (".pan", ".marked"))
    assert pan["x"] <= marked["x"] <= pan["x"] + pan["width"]


def test_light_and_dark(opened: Page, browser: Any, file: Path) -> None:
    light = background(opened)
    opened.click("#theme")
    dark = background(opened)
    assert dark != light
    opened.reload()
    assert background(opened) == dark, "the choice is remembered"
    opened.emulate_media(media="print")
    assert background(opened) == light, "paper is white"
    other = browser.new_context(color_scheme="dark").new_page()
    other.goto(file.as_uri())
    assert background(other) == dark, "the system's choice is followed"
    other.context.close()


def test_it_works_with_the_keyboard_and_on_a_narrow_screen(opened: Page) -> None:
    opened.keyboard.press("Tab")
    assert opened.evaluate("document.activeElement.className") == "skip"
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "content"
    for width in (1280, 390):
        opened.set_viewport_size({"width": width, "height": 800})
        assert opened.evaluate("document.documentElement.scrollWidth") <= width, (
            "the page itself does not scroll sideways"
        )
