"""Play chapters 1 to 6 as a newcomer does, and say how long each takes; `make newcomer` runs it beside a wheel.

Every command is typed as written, in a process of its own and away from the checkout; the player is that of the tests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import antiphon
from support.documentation import ROOT, Reader, blocks
from unit.test_documentation import test_chapter_2_ends_with_a_check, test_chapter_2_with_three_terminals


def play(page: Path, folder: Path) -> None:
    """Do what a chapter says; the second wants three terminals."""
    if page.name.startswith("2-"):
        for place, terminals in (
            ("kills", test_chapter_2_with_three_terminals),
            ("check", test_chapter_2_ends_with_a_check),
        ):
            (folder / place).mkdir()
            terminals(folder / place)
    Reader(folder, typing=True).follow(page)


def main() -> int:
    """Play the chapters, those that are named or all, in a folder that goes afterwards."""
    assert ROOT not in Path(antiphon.__file__).parents, "the wheel is to be tried, not the checkout"
    chosen = [page for page in sorted(ROOT.glob("docs/[1-6]-*.md")) if not sys.argv[1:] or page.name[0] in sys.argv[1:]]
    wrong = 0
    for page in chosen:
        with tempfile.TemporaryDirectory() as folder:
            began, said = time.monotonic(), ""
            try:
                play(page, Path(folder))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                wrong += 1
                said = f": {error}"
            run = [block for block in blocks(page) if block.kind == "console" and not block.not_run]
            left = [block for block in blocks(page) if block.kind == "console" and block.not_run]
            counted = f"{len(run)} blocks of commands, {len(left)} left to the reader"
            print(f"{page.stem}: {time.monotonic() - began:.0f} s ({counted}){said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
