"""How long `antiphon explore` takes to open a trace, and to answer for windows of any width anywhere in it.

python bench/pipeline/windows.py TRACE
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

from antiphon.pipeline.ingesting.keep import lay_out_trace
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.report.explore.explorer import Explorer
from antiphon.report.run_settings import run_settings

EACH = 5  # windows of each width


def main() -> None:
    trace, rng = sys.argv[1], random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        laid = lay_out_trace(Inline(), trace, Path(folder) / "layout", None)
        totals = laid.totals
        print(f"{totals.events:,} events of {totals.members} members; ingested in {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        explorer = Explorer(trace, TraceLayout(laid.folder), lambda run: run_settings(trace, run))
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
        times = []
        for _ in range(EACH):
            began = time.perf_counter()
            found = run.message_near(rng.randrange(overview.start, overview.end - 1), backwards=False)
            if found is not None:
                run.window(*run.around_message(found), None, found)
                times.append(time.perf_counter() - began)
        print(f"the next message after some moment: slowest of {len(times)} {max(times, default=0):.2f} s")
        print(f"slowest of all {max([slowest, *times]):.2f} s")


if __name__ == "__main__":
    main()
