"""Take a picture of a page for docs/pictures, in a headless Chromium: the top of it, or one element.

python scripts/take_picture.py out/report.html docs/pictures/report-light.png
python scripts/take_picture.py out/broken.html docs/pictures/report-violation.png --element "#violations article"
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright


def main() -> None:
    """Open the page without a network, and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--element", help="a CSS selector; the first that it finds is taken")
    parser.add_argument("--height", type=int, default=1000, help="of the window, in pixels; it is 1,280 wide")
    args = parser.parse_args()
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        context = browser.new_context(
            offline=True, color_scheme="light", viewport={"width": 1280, "height": args.height}
        )
        page = context.new_page()
        page.goto(args.page.absolute().as_uri())
        if args.element:
            page.locator(args.element).first.screenshot(path=args.picture)
        else:
            page.screenshot(path=args.picture)
        browser.close()


if __name__ == "__main__":
    main()
