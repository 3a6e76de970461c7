"""Every page that we make: by axe-core (what of WCAG's level AA a program can judge), and by keys alone.

None writes to the console, asks for anything elsewhere, or is wider than the screen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("matplotlib")

from antiphon.cli import main
from antiphon.papers.book import Chapter, papers, render
from antiphon.papers.claims import PaperClaim, Reproduction, Table
from antiphon.report.sweep_page import sweep_page
from antiphon.report.sweep_table import read_sweep
from antiphon.report.trace_page import trace_page
from support.boards import troubled_group
from support.reports import facts_of, planted_trace, simulated_trace
from unit.test_report_sweep import GRID, failed, written

AXE = Path(os.environ.get("VENV", sys.prefix)) / "axe" / "package" / "axe.min.js"
LOOKS = [("light", {"width": 1280, "height": 900}), ("dark", {"width": 390, "height": 844})]

FILES = ("incident", "violation", "diagram", "sweep", "book")

needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="no axe-core here; scripts/browser.sh fetches it with npm")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages that are files: reports on an incident, a violation and a sweep, a diagram, and the book of papers."""
    folder = tmp_path_factory.mktemp("pages")
    crash = {"kind": "crash", "member": 1, "at": "300ms"}
    trace = simulated_trace(
        folder / "trace", members=5, messages=40, ordering="total", views=True, faults=[crash],
        workload={"interval": "fixed 20ms"},
    )  # fmt: skip
    made = {name: folder / f"{name}.html" for name in FILES}
    made["incident"].write_text(trace_page(facts_of(folder / "work", trace)))
    planted, _ = planted_trace(folder / "planted", "total swap")
    made["violation"].write_text(trace_page(facts_of(folder / "work2", planted)))
    assert main(["diagram", str(trace), "--around", "2:5", "--out", str(made["diagram"])]) == 0
    made["sweep"].write_text(sweep_page(read_sweep(written(folder / "sweep", [*GRID[1:], failed(GRID[0])]))))
    made["book"].write_text(render([*map(chapter, papers())], quick=True))
    return made


def chapter(name: str) -> Chapter:
    """Return a chapter of the book with two claims and a table, instead of all that takes minutes to reproduce."""
    replace, paper = msgspec.structs.replace, papers()[name]
    paper = replace(paper, exhibit=[replace(one, figures=[], tables=[]) for one in paper.exhibit])
    claims = [
        PaperClaim("it is so", "Table 1", 1, 1, True, ""),
        PaperClaim("it is fast", "Figure 2", 2, 3, False, "not here"),
    ]
    return Chapter(paper, Reproduction(name, claims, [Table("t", "A table", ("n", "ms"), [(3, 1.5)])], []), 1.0)


@pytest.fixture(scope="module")
def served(pages: dict[str, Path]) -> Iterator[dict[str, str]]:
    """Pages that are served: explore and the dashboard."""
    trace = pages["incident"].parent / "trace"
    commands = {"explore": ["explore", str(trace)], "dashboard": ["dashboard", "--member", "127.0.0.1:1"]}
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "antiphon.cli", *words, "--listen", "127.0.0.1:0", "--json"],
            text=True,
            stdout=subprocess.PIPE,
        )
        for name, words in commands.items()
    }
    try:
        yield {name: json.loads(server.stdout.readline())["listening"] for name, server in running.items()}  # type: ignore[union-attr]
    finally:
        for server in running.values():
            server.send_signal(signal.SIGINT)
            server.wait(30)
            assert server.stdout is not None
            server.stdout.close()


def open_dashboard(page: Any, address: str) -> None:
    """Show a group in trouble, as the server would push it."""
    told = "data: " + msgspec.json.encode(troubled_group()).decode() + "\n\n"
    page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=told))
    page.goto(address)
    page.wait_for_selector("#members tbody tr[data-member=bob]")


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id || document.activeElement.className"))


@contextmanager
def looked_at(browser: Any, own: str, scheme: str = "light", size: Any = LOOKS[0][1], **settings: Any) -> Iterator[Any]:
    """Give a page that may load what begins with `own`; it has written nothing to the console and fits at last."""
    troubles: list[str] = []
    context = browser.new_context(color_scheme=scheme, viewport=size, **settings)
    page = context.new_page()
    page.on("console", lambda said: troubles.append(said.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda asked: troubles.append(asked.url) if not asked.url.startswith((own, "data:")) else None)
    try:
        yield page
        assert not troubles
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    finally:
        context.close()


def faults(page: Any) -> list[str]:
    """Return what axe objects to, with where."""
    page.add_script_tag(path=str(AXE))
    # only what it objects to is gathered and brought here: most of its time went into telling what is well
    found = page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'], resultTypes: ['violations']})"
        ".then((found) => found.violations)"
    )
    return [
        f"{one['id']}: {node['html'][:160]} {node['any'][0]['message'] if node['any'] else one['help']}"
        for one in found
        for node in one["nodes"][:3]
    ]


@needs_axe
def test_the_judge_objects_to_pale_text(pages: dict[str, Path], browser: Any) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(pages["incident"].as_uri())
    page.evaluate("document.querySelector('h1').style.color = '#ddd'")
    assert any(one.startswith("color-contrast") for one in faults(page))
    context.close()


@needs_axe
@pytest.mark.parametrize(("scheme", "size"), LOOKS)
@pytest.mark.parametrize("name", FILES)
def test_a_page_that_is_a_file(pages: dict[str, Path], browser: Any, name: str, scheme: str, size: Any) -> None:
    with looked_at(browser, pages[name].as_uri(), scheme, size, offline=True) as page:
        page.goto(pages[name].as_uri())
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert not faults(page)


@needs_axe
@pytest.mark.parametrize(("scheme", "size"), LOOKS)
def test_explore(served: dict[str, str], browser: Any, scheme: str, size: Any) -> None:
    with looked_at(browser, served["explore"], scheme, size, bypass_csp=True) as page:
        page.goto(served["explore"])
        page.wait_for_selector("body[data-shown]")
        page.fill("#message", "2:5")
        page.press("#message", "Enter")
        page.wait_for_selector("figure.diagram [data-message='2:5']")
        assert not faults(page)


@needs_axe
@pytest.mark.parametrize(("scheme", "size"), LOOKS)
def test_the_dashboard(served: dict[str, str], browser: Any, scheme: str, size: Any) -> None:
    with looked_at(browser, served["dashboard"], scheme, size, bypass_csp=True) as page:
        open_dashboard(page, served["dashboard"])
        assert page.locator("#strip .stretch.bad").count() >= 2
        assert "the application of carol has taken nothing" in page.inner_text("#headline")
        assert "Let it read on" in page.inner_text("#remedy")
        assert not faults(page)


def test_every_page_begins_with_a_way_to_its_content_and_the_theme(
    pages: dict[str, Path], served: dict[str, str], browser: Any
) -> None:
    context = browser.new_context()
    page = context.new_page()
    for address in [*(file.as_uri() for file in pages.values()), served["explore"]]:
        page.goto(address)
        page.keyboard.press("Tab")
        assert focused(page) == "skip"
        page.keyboard.press("Enter")
        assert focused(page) == "content"
        page.goto(address)
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert focused(page) == "theme"
        before = page.evaluate("document.documentElement.dataset.theme")
        page.keyboard.press("Enter")
        assert page.evaluate("document.documentElement.dataset.theme") != before
    context.close()


def test_the_dashboard_is_read_by_keys_alone(served: dict[str, str], browser: Any) -> None:
    context = browser.new_context(viewport={"width": 700, "height": 600})
    page = context.new_page()
    open_dashboard(page, served["dashboard"])
    for expected in ("skip", "theme", "scroll"):
        page.keyboard.press("Tab")
        assert focused(page) == expected
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Members"
    context.close()
