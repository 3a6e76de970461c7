"""Pages made from small traces, without Spark, for the tests of reports."""

from __future__ import annotations

import json
import random
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from antiphon.pipeline.inline import Inline
from antiphon.report.facts import Facts, gather
from antiphon.report.sources import recognise
from antiphon.sim.about import about
from antiphon.sim.cluster import simulate
from antiphon.sim.scenario import from_table
from antiphon.trace.writer import write_trace
from pipeline.traces import write
from support.planting import PLANTS, Planted, Shape, sample


def simulated_trace(folder: Path, seed: int = 3, **table: Any) -> Path:
    """A trace of a small simulated group under loss."""
    usual: dict[str, Any] = {"members": 4, "messages": 20, "ordering": "fifo", "network": {"loss": 0.1}}
    run = simulate(from_table({**usual, **table}), seed)
    write_trace(folder, run.name, run.logs, about(run), replace=False)
    return folder


def planted_trace(folder: Path, plant: str, seed: int = 4, **shape: Any) -> tuple[Path, Planted]:
    """A right trace with one violation planted into it, and what that breaks."""
    for attempt in range(seed, seed + 100):
        found = PLANTS[plant](sample(attempt, shape=Shape(**shape)), random.Random(attempt))
        if found is not None:
            write(found.events, folder / "events.parquet")
            (folder / "run.json").write_text(json.dumps({"clock": "global", "promises": [found.guarantee]}))
            return folder, found
    raise AssertionError(f"no sample lets itself be given a {plant}")


def facts_of(work: Path, *inputs: Path, **options: Any) -> Facts:
    """What a page on some inputs says."""
    return gather(recognise([str(path) for path in inputs]), work, lambda: nullcontext(Inline()), **options)


def verdicts_in(page: str) -> dict[str, tuple[str, int]]:
    """The verdicts and the numbers of violations that a page shows."""
    rows = re.findall(r'data-guarantee="([\w-]+)" data-verdict="(\w+)" data-violations="(\d+)">(.*?)</tr>', page, re.S)
    for name, word, _, row in rows:
        assert word in re.sub("<.*?>", " ", row).split(), f"the row of {name} says another verdict than its data"
    return {name: (word, int(violations)) for name, word, violations, _ in rows}
