"""The page of `antiphon explore` in a real browser: windows, jumps and messages, by mouse and by keys."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from support.reports import simulated_trace

SCREEN = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("explored")
    trace = simulated_trace(
        folder / "trace", members=5, messages=100, ordering="total", views=True, network={"loss": 0.0},
        workload={"interval": "fixed 20ms"},
        faults=[
            {"kind": "partition", "groups": [[0, 1, 2], [3, 4]], "at": "500ms", "until": "1200ms"},
            {"kind": "crash", "member": 1, "at": "1800ms"},
        ],
    )  # fmt: skip
    server = subprocess.Popen(
        [sys.executable, "-m", "antiphon.cli", "explore", str(trace), "--listen", "127.0.0.1:0", "--json"],
        text=True,
        stdout=subprocess.PIPE,
    )
    with server:
        try:
            assert server.stdout is not None
            said = json.loads(server.stdout.readline())
            assert said["members"] == 7  # five, and two of them a second time
            yield said["listening"]
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
        finally:
            server.kill()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    context = browser.new_context(viewport=SCREEN)
    opened = context.new_page()
    troubles: list[str] = []
    # (a refusal is an answer with status 400, which the browser itself puts on the console)
    opened.on("console", lambda message: None if "status of 400" in message.text else troubles.append(message.text))
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("request", lambda request: None if request.url.startswith(address) else troubles.append(request.url))
    opened.goto(address)
    opened.wait_for_selector("body[data-shown]")
    yield opened
    context.close()
    assert not troubles


def shown(page: Any) -> tuple[int, int]:
    kept = dict(part.split("=") for part in page.evaluate("location.hash").lstrip("#").split("&"))
    return int(kept["from"]), int(kept["to"])


def do(page: Any, what: str) -> None:
    """Press a button and wait for the window that it brings."""
    before = page.get_attribute("body", "data-shown")
    page.click(f"[data-do={what}]")
    page.wait_for_function("before => document.body.dataset.shown !== before", arg=before)


def test_the_page_says_what_happened_and_shows_it_on_the_strip(page: Any) -> None:
    assert "Member 1 was killed at 1.8\N{NO-BREAK SPACE}s" in page.inner_text("h1")
    assert "events of 5 members, 7 lives" in page.inner_text("#size")
    assert page.locator("#strip .moment.view").count() >= 4
    assert page.locator("#strip .moment.fault").count() >= 2
    assert page.locator("#strip .density").count() == 1
    assert page.locator("#lanes .lane-name").count() == 7


def test_faults_are_jumped_to_one_after_the_other(page: Any) -> None:
    page.select_option("#what", "fault")
    do(page, "next")
    assert "the network is cut" in page.inner_text("#words")
    low, high = shown(page)
    assert low < 500_000_000 < 1_200_000_000 < high
    while "member 1 is killed" not in page.inner_text("#words"):
        assert "There is no fault" not in page.inner_text("#words")
        do(page, "next")
    assert shown(page)[0] < 1_800_000_000 < shown(page)[1]
    do(page, "previous")
    assert "member 1 is killed" not in page.inner_text("#words")


def test_a_message_is_found_drawn_and_followed_by_the_next(page: Any) -> None:
    page.fill("#message", "2:7")
    page.press("#message", "Enter")
    page.wait_for_selector("figure.diagram [data-message='2:7']")
    assert page.inner_text("#words").startswith("Message 2:7. From ")
    page.select_option("#what", "message")
    do(page, "next")
    assert "Message 2:7" not in page.inner_text("#words")
    page.fill("#message", "2:9999")
    page.press("#message", "Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "there is no message 2:9999" in page.inner_text("#trouble")


def test_the_strip_is_worked_with_keys_alone(page: Any) -> None:
    whole = shown(page)
    page.focus("#strip")
    page.keyboard.press("+")
    zoomed = shown(page)
    assert zoomed[1] - zoomed[0] < (whole[1] - whole[0]) / 3
    page.keyboard.press("End")
    assert shown(page)[1] == whole[1]
    page.keyboard.press("ArrowLeft")
    assert shown(page)[1] < whole[1]
    page.keyboard.press("0")
    assert shown(page) == whole
    assert "s to " in page.get_attribute("#strip", "aria-valuetext")


def test_a_window_is_chosen_by_dragging_and_kept_in_the_address(page: Any, address: str) -> None:
    box = page.locator("#strip svg").bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 40)
    page.mouse.up()
    low, high = shown(page)
    assert 0 < low < high
    again = page.context.new_page()
    again.goto(page.url)
    again.wait_for_selector("body[data-shown]")
    assert shown(again) == (low, high)


@pytest.mark.parametrize(("scheme", "size"), [("light", SCREEN), ("dark", PHONE)])
def test_it_fits_the_screen(browser: Any, address: str, scheme: str, size: dict[str, int]) -> None:
    context = browser.new_context(viewport=size, color_scheme=scheme)
    opened = context.new_page()
    opened.goto(address)
    opened.wait_for_selector("body[data-shown]")
    assert opened.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert opened.locator("#strip").bounding_box()["y"] < size["height"], "the strip is on the first screen"
    context.close()
