"""How long a page takes to open in headless Chromium, from the start of navigation until all is loaded and drawn.

python bench/pipeline/page.py REPORT.html
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

OPENED = 7
DRAWN = (
    """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"""
)


def main() -> None:
    file = Path(sys.argv[1]).absolute()
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        times = []
        for _ in range(OPENED):
            context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
            page = context.new_page()
            page.goto(file.as_uri())
            times.append(float(page.evaluate(DRAWN)))
            context.close()
        browser.close()
    print(f"{file.stat().st_size / 1e6:.2f} MB, opened {OPENED} times: first {times[0]:.0f} ms, ", end="")
    print(f"median {statistics.median(times):.0f} ms, slowest {max(times):.0f} ms")


if __name__ == "__main__":
    main()
