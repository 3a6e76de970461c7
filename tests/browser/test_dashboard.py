"""The live page in a real browser, over a real group: it follows a killed member, and takes it back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import promises

pytest.importorskip("aiohttp")

PORTS = (7821, 7822, 7823)
SHIFT = 100  # from a member's port to that of its status


def command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "antiphon.cli", *arguments], text=True, **options)


def start(port: int, state: Path) -> subprocess.Popen[str]:
    peers = [word for other in PORTS if other != port for word in ("--peer", f"127.0.0.1:{other}")]
    return command(
        *("join", "orders", "--bind", f"127.0.0.1:{port}", *peers, "--stay", "--state", str(state / str(port))),
        *("--status-at", f"127.0.0.1:{port + SHIFT}"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    running = [start(port, tmp_path) for port in PORTS]
    yield running
    for member in running:
        member.kill()
        member.wait()
        assert member.stdin is not None
        member.stdin.close()


@pytest.fixture
def address() -> Iterator[str]:
    watched = [word for port in PORTS for word in ("--member", f"127.0.0.1:{port + SHIFT}")]
    server = command("dashboard", *watched, "--listen", "127.0.0.1:0", "--json", stdout=subprocess.PIPE)
    with server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["listening"]
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
        finally:
            server.kill()


@pytest.mark.alone
def test_the_page_follows_a_killed_member_within_two_seconds(
    browser: Any, members: list[subprocess.Popen[str]], address: str, tmp_path: Path
) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    page.wait_for_selector('#headline[data-level="good"]', timeout=20_000)
    page.wait_for_selector("tr[data-state=live] >> nth=2", timeout=20_000)
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        shown, room = page.evaluate(
            "(e => [e.scrollWidth, e.clientWidth])(document.querySelector('#members').parentNode)"
        )
        assert shown <= room, f"at {width} pixels everything is seen without scrolling sideways"
    page.set_viewport_size({"width": 1280, "height": 800})
    stdin = members[0].stdin
    assert stdin is not None
    stdin.write("hello\n" * 500)
    stdin.flush()
    for row in range(3):  # everyone delivers
        drawn = f"#members tbody tr:nth-child({row + 1}) svg:not([aria-label='between 0 and 0 a second'])"
        page.wait_for_selector(drawn, timeout=10_000)

    killed = f"127.0.0.1:{PORTS[1]}"
    members[1].kill()
    began = time.monotonic()
    page.wait_for_selector(f'tr[data-member="{killed}"][data-state="gone"]', timeout=10_000)
    promises.keep(2.0, time.monotonic() - began, "the page to show who was killed")
    page.wait_for_selector(f"#views li:has-text('without {killed}')", timeout=10_000)
    assert killed in page.text_content("#headline")
    state = json.load(urllib.request.urlopen(f"{address}state"))
    assert " ".join(page.text_content("#headline").split()) == state["headline"]["text"]
    assert [row["state"] for row in state["members"]] == ["live", "gone", "live"]

    members[1].wait()
    members[1] = start(PORTS[1], tmp_path)
    page.wait_for_selector('#headline[data-level="good"]', timeout=20_000)
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") in ("dark", "light")
    assert not errors
