"""How long `antiphon explore` takes to open a trace, and to answer for windows of any width anywhere in it, and jumps.

python bench/pipeline/windows.py TRACE [CHECKED]
"""

from __future__ import annotations

import functools
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from antiphon.pipeline.ingesting.keep import lay_out_trace
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.results import read_check
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.report.explore.explorer import ExploredRun, Explorer, RunOverview
from antiphon.report.run_settings import run_settings

EACH = 5  # windows of each width


def main() -> None:
    trace, rng = sys.argv[1], random.Random(1)
    checked = read_check(Path(sys.argv[2])) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        laid = lay_out_trace(Inline(), trace, Path(folder) / "layout", None)
        totals = laid.totals
        print(f"{totals.events:,} events of {totals.members} members; ingested in {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        explorer = Explorer(trace, TraceLayout(laid.folder), lambda run: run_settings(trace, run), checked)
        run = explorer.run(None)
        overview = run.overview(explorer)
        print(f"surveyed in {time.perf_counter() - began:.1f} s")
        slowest, width = 0.0, overview.end - overview.start
        while width > 1_000:
            times, drawn = [], 0
            for _ in range(EACH):
                at = rng.randrange(overview.start, max(overview.start + 1, overview.end - width))
                began = time.perf_counter()
                drawn += run.window(at, at + width, None, None).drawn is not None
                times.append(time.perf_counter() - began)
            slowest = max(slowest, *times)
            print(f"windows of {width / 1e9:.6f} s: slowest of {EACH} {max(times):.2f} s, {drawn} drawn one by one")
            width //= 10
        for what, jumps in (("message", _messages(run, overview, rng)), *_moments(run, overview)):
            times = []
            for jump in jumps:
                began = time.perf_counter()
                jump()
                times.append(time.perf_counter() - began)
            if times:
                slowest = max(slowest, *times)
                print(f"the next {what} after some moment: slowest of {len(times)} {max(times):.2f} s")
        print(f"slowest of all {slowest:.2f} s")


def _messages(run: ExploredRun, overview: RunOverview, rng: random.Random) -> Iterator[Callable[[], object]]:
    """Jumps to the next message after some moments, as the page makes them."""
    for _ in range(EACH):
        at = rng.randrange(overview.start, overview.end - 1)

        def jump(at: int = at) -> object:
            found = run.message_near(at, backwards=False)
            return found and run.window(*run.around_message(found), None, found)

        yield jump


def _moments(run: ExploredRun, overview: RunOverview) -> Iterator[tuple[str, list[Callable[[], object]]]]:
    """Jumps to faults, violations and views: to as much time as the page shows of each, and to what can be drawn."""
    wide = (overview.end - overview.start) // 100
    for kind in ("fault", "violation", "view"):
        some = [one for one in overview.moments if one.kind == kind][:EACH]
        spans = [(one.at, one.at if one.until is None else one.until) for one in some]
        yield (
            kind,
            [
                functools.partial(run.window, start - margin, end + margin, None, None)
                for start, end in spans
                for margin in (wide // 2, 100_000, 1_000)
            ],
        )


if __name__ == "__main__":
    main()
