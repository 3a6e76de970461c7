"""Bars on a terminal, and nothing at all elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import pytest

SCRIPT = """
import sys, time
from antiphon.progress import Progress
with Progress("outer", 4) as outer, Progress("inner work") as inner:
    outer.done(3)
    inner.done(1, 2)
    time.sleep(0.3)
    print("a result")
print("rich" in sys.modules)
"""


def on_a_terminal(script: str) -> tuple[str, str]:
    """What a script writes to a pipe as stdout, and to a terminal as stderr."""
    ours, theirs = pty.openpty()
    ran = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    out, _ = ran.communicate(timeout=60)
    os.close(ours)
    assert ran.returncode == 0
    return out, shown.decode()


def test_a_terminal_shows_a_line_for_each_bar_and_stdout_stays_clean() -> None:
    out, shown = on_a_terminal(SCRIPT)
    assert out == "a result\nTrue\n"
    assert "outer" in shown
    assert "3/4" in shown
    assert "inner work" in shown
    assert "1/2" in shown


def test_nothing_is_shown_or_imported_where_there_is_no_terminal() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("a result\nFalse\n", "")


def test_telling_a_bar_often_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    from antiphon.progress import Progress

    with Progress("work", 100_000) as bar:
        began = time.process_time()
        for done in range(100_000):
            bar.done(done)
        assert time.process_time() - began < 1
