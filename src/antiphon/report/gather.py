"""Bring together what a trace's page says: read what was given, check and measure what was not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.check import Options, check_layout
from antiphon.pipeline.ingest import ingest
from antiphon.pipeline.measure import measure_layout
from antiphon.pipeline.reading import Mapping, find_files
from antiphon.pipeline.session import Session
from antiphon.report.sources import Facts, Given, about_run, choose_run, load, read_tables, to_draw
from antiphon.report.windows import find_windows

Start = Callable[[], AbstractContextManager[Session]]


def gather(
    given: Given,
    folder: Path,
    start: Start,
    *,
    check: bool = True,
    run: str | None = None,
    mapping: Mapping | None = None,
) -> Facts:
    """All that the page says; `start` gives a session, and is called only if there is work for it."""
    checked = load(given.check) if given.check is not None and check else None
    measured = load(given.measure) if given.measure is not None else None
    known = checked or measured
    check_here = check and checked is None and measured is None
    witnesses = to_draw(checked) if checked is not None else []
    tables, drawn = given.measure, []
    if given.trace is not None and (check_here or measured is None or witnesses):
        with ExitStack() as stack:
            here = _Trace(given.trace, folder, start, stack, mapping)
            if known is not None and known["events"] != here.totals.events:
                said = f"it has {here.totals.events:,} events and had {known['events']:,} when it was looked at"
                raise UsageError(f"{given.trace}: the trace has changed, {said}; check and measure it again")
            if check_here:
                checked = here.check()
                witnesses = to_draw(checked)
            if measured is None:
                measured, tables = here.measure()
            windows = find_windows(here.session, here.layout, witnesses) if witnesses else []
            drawn = [(*witness, window) for witness, window in zip(witnesses, windows, strict=True)]
            known = known or here.about
    assert known is not None, "what was given is a trace or about one"
    facts = Facts(
        **{name: known[name] for name in ("trace", "runs", "members", "events", "quarantined")},
        checked=checked,
        measured=measured,
        lost=known["trace"] if given.trace is None and (measured is None or witnesses) else None,
        drawn=drawn,
    )
    if tables is not None:
        facts.run = choose_run(tables, run, witnesses)
        read_tables(facts, tables)
    if facts.run is not None:
        facts.about = about_run(given.trace, facts.run["run"])
    return facts


class _Trace:
    """A trace, ingested once, then checked and measured as needed."""

    def __init__(self, trace: str, folder: Path, start: Start, stack: ExitStack, mapping: Mapping | None) -> None:
        find_files(trace)  # say what is wrong with the path before Spark starts
        self.folder, self.layout, self.mapping = folder, folder / "layout", mapping
        self.session = stack.enter_context(start())
        self.totals = ingest(self.session, trace, self.layout, mapping)
        self.about: dict[str, Any] = {
            "trace": trace,
            "runs": self.totals.runs,
            "members": self.totals.members,
            "events": self.totals.events,
            "quarantined": sum(self.totals.quarantined.values()),
        }

    def check(self) -> dict[str, Any]:
        """As check.json has it."""
        implied = self.mapping is not None and self.mapping.own_deliveries == "implied"
        options = Options(implied_own_deliveries=implied)
        found = check_layout(self.session, self.layout, self.totals, self.folder / "scratch", options)
        return dict(msgspec.to_builtins(found))

    def measure(self) -> tuple[dict[str, Any], Path]:
        """As measure.json has it, and the folder of the tables."""
        tables = self.folder / "tables"
        found = measure_layout(self.session, self.layout, self.totals, tables, self.folder / "work")
        return dict(msgspec.to_builtins(found)), tables
