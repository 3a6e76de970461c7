"""The interactive diagram in a real browser: details, zoom, pan, keys, following a message, labels apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import main
from antiphon.report.diagram_window import DiagramRequest, read_window
from antiphon.trace.event import Event


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """A page with a diagram around message 1:4, and the events that it shows."""
    folder = tmp_path_factory.mktemp("diagram")
    words = "simulate --members 5 --ordering causal --messages 20 --loss 0.1 --seed 3 --out"
    assert main([*words.split(), str(folder / "run")]) == 0
    assert main(["diagram", str(folder / "run"), "--around", "1:4", "--out", str(folder / "a.html")]) == 0
    return folder / "a.html", read_window(str(folder / "run"), DiagramRequest(around=(1, 4))).events


@pytest.fixture
def opened(browser: Any, drawn: tuple[Path, list[Event]]) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1000, "height": 700})
    page.set_default_timeout(8000)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(drawn[0].as_uri())
    yield page
    page.close()
    assert [problem for problem in problems if not problem.startswith("data:")] == []


def causal_past(events: list[Event], chosen: tuple[int, int]) -> set[tuple[int, int]]:
    """What a message depends on: what its sender had sent or delivered before, and so on."""
    past: set[tuple[int, int]] = set()
    open_ends = [chosen]
    while open_ends:
        message = open_ends.pop()
        for send in events:
            if send.event == "send" and (send.sender, send.seq) == message:
                before = [row for row in events if row.member == send.member and row.step < send.step]
                known = {(row.sender or 0, row.seq or 0) for row in before if row.event in ("send", "deliver")}
                open_ends += known - past
                past |= known
    return past


def named(messages: set[tuple[int, int]]) -> set[str]:
    return {f"{sender}:{seq}" for sender, seq in messages}


def test_details_zoom_and_pan(opened: Any) -> None:
    told, svg, pan = opened.locator(".told"), opened.locator(".pan svg"), opened.locator(".pan")
    sent = opened.locator('.event.send[data-message="1:4"]')
    sent.hover(force=True)  # what its sender delivers at once is drawn over it, and told with it
    assert re.match(r"member 1 sends 1:4, step \d+, at [\d.]+ ms, \d+ bytes; .*delivers 1:4", told.inner_text())
    wide = svg.bounding_box()["width"]
    opened.get_by_label("Zoom in").click()
    assert svg.bounding_box()["width"] == pytest.approx(1.25 * wide, rel=0.01)
    pan.hover()
    opened.keyboard.down("Control")
    opened.mouse.wheel(0, -300)
    opened.keyboard.up("Control")
    opened.wait_for_function(
        "wide => document.querySelector('.pan svg').getBoundingClientRect().width > wide", arg=1.3 * wide
    )
    svg.focus()
    opened.keyboard.press("0")
    assert svg.bounding_box()["width"] == pytest.approx(wide, rel=0.01)
    pan.evaluate("pan => { pan.scrollLeft = 0; }")
    opened.keyboard.press("ArrowRight")
    opened.wait_for_function("document.querySelector('.pan').scrollLeft > 0")
    names = opened.locator(".names").bounding_box()
    assert names["x"] == pytest.approx(pan.bounding_box()["x"], abs=12), "the members' names stay in sight"
    opened.get_by_label("Show the whole width").click()
    assert svg.bounding_box()["width"] <= pan.bounding_box()["width"] + 1


def test_following_a_message(opened: Any, drawn: tuple[Path, list[Event]]) -> None:
    figure = opened.locator("figure.diagram")
    opened.locator('.event.send[data-message="1:4"]').click(force=True)
    past, future = (set(figure.get_attribute(f"data-{side}").split()) for side in ("past", "future"))
    events = drawn[1]
    sent = {(row.sender or 0, row.seq or 0) for row in events if row.event == "send"}
    assert past == named(causal_past(events, (1, 4)))
    assert future == named({one for one in sent if (1, 4) in causal_past(events, one)})
    assert past
    assert future
    assert "its past may go on before this window" in opened.locator(".told").inner_text()
    concurrent = named(sent) - past - future - {"1:4"}
    for message, opacity in ((min(future), "1"), (min(concurrent), "0.16")):
        mark = opened.locator(f'.event.send[data-message="{message}"]').first
        assert mark.evaluate("mark => getComputedStyle(mark).opacity") == opacity
    opened.get_by_role("button", name="Show all messages").click()
    assert figure.get_attribute("data-past") == ""


def test_keys_alone_are_enough(opened: Any) -> None:
    opened.locator(".pan svg").focus()
    opened.keyboard.press("Enter")
    first = opened.evaluate("document.activeElement.dataset.step")
    opened.keyboard.press("ArrowRight")
    assert int(opened.evaluate("document.activeElement.dataset.step")) > int(first)
    opened.keyboard.press("ArrowDown")
    assert opened.evaluate("document.activeElement.dataset.member") == "1"
    assert opened.locator(".told").inner_text().startswith("member 1 ")
    opened.locator('.event.deliver[data-message="1:4"]').first.focus()
    opened.keyboard.press("Enter")
    assert opened.locator(".following").count() == 1
    opened.keyboard.press("Escape")
    assert opened.locator(".following").count() == 0


def test_labels_do_not_touch(opened: Any) -> None:
    """The layout estimates how wide texts are; here they are."""
    touching = opened.evaluate(
        """() => {
          const texts = [...document.querySelectorAll(".pan .labels text")];
          const boxes = texts.map((one) => [one.textContent, one.getBBox()]);
          const found = [];
          boxes.forEach(([a, x], at) => boxes.slice(at + 1).forEach(([b, y]) => {
            const wide = Math.min(x.x + x.width, y.x + y.width) - Math.max(x.x, y.x);
            const high = Math.min(x.y + x.height, y.y + y.height) - Math.max(x.y, y.y);
            if (wide > 0.5 && high > 4) found.push(a + " and " + b);
          }));
          return found;
        }"""
    )
    assert touching == []
