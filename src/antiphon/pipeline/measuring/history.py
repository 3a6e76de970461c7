"""What became of a group: its views, and how each process came to its end; for the runs in which anything changed."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from antiphon.pipeline.columns import CRASH, END, LEAVE, NULL_TIME, VIEW, Array, RunIndex
from antiphon.pipeline.measuring.job import MeasureTask
from antiphon.pipeline.measuring.ledger import LogRows

ENDINGS: Final = (None, "end", "leave", "excluded", "crash")  # None: its log was cut short
PROCESSES_MAX: Final = 1_000  # of a run; those that did not simply end come first
VIEWS_MAX: Final = 1_000


def ending(rows: LogRows) -> Array:
    """Return how a log ends (an index into ENDINGS), and when."""
    last = np.flatnonzero(np.isin(rows.event, (LEAVE, CRASH, END)))
    if not len(last):
        return np.array([0, rows.time[-1] if len(rows.time) else NULL_TIME], np.int64)
    row = int(last[-1])
    excluded = rows.detail[row] >= 0 and rows.details[rows.detail[row]] == "excluded"
    name = {END: "end", CRASH: "crash", LEAVE: "excluded" if excluded else "leave"}[int(rows.event[row])]
    return np.array([ENDINGS.index(name), rows.time[row]], np.int64)


def run_history(here: MeasureTask, run: RunIndex) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a run's rows of the tables `views` and `processes`; none if nothing changed in it."""
    layout = here.layout
    units, segments = layout.units_of(run), layout.segments_of(run)
    endings = {unit: here.array(unit, "ending") for unit in units}
    changed = any(layout.column[name][segments].any() for name in ("view", "leave", "crash"))
    ended = [bool(code) for code, _ in endings.values()]
    if not changed and (all(ended) or not any(ended)):  # a trace in which no log has an end says nothing by that
        return [], []
    processes = []
    for unit, (code, time) in endings.items():
        span = here.array(unit, "span")
        processes.append(
            {
                "run": layout.runs[run],
                "member": int(layout.unit_member[unit]),
                "first_ns": int(span[0]) if len(span) else None,
                "last_ns": _known(int(time)) or (int(span[1]) if len(span) else None),
                "ending": ENDINGS[int(code)],
            }
        )
    processes.sort(key=lambda row: row["ending"] == "end")
    return _views(here, run), processes[:PROCESSES_MAX]


def _views(here: MeasureTask, run: RunIndex) -> list[dict[str, Any]]:
    layout = here.layout
    times = {int(layout.unit_member[unit]): here.array(unit, "viewed_at").tolist() for unit in layout.units_of(run)}
    found: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for row in layout.skeleton(run).select(["member", "event", "view", "members"]).to_pylist():
        if row["event"] == VIEW:
            view = (row["view"], tuple(row["members"] or ()))
            found.setdefault(view, []).append(times[row["member"]].pop(0))
    rows = []
    for (number, members), installed in found.items():
        known = [time for time in installed if time != NULL_TIME]
        rows.append(
            {
                "run": layout.runs[run],
                "view": number,
                "members": sorted(members),
                "installed": len(installed),
                "first_ns": min(known, default=None),
                "last_ns": max(known, default=None),
            }
        )
    rows.sort(key=lambda row: (row["view"], row["first_ns"] or 0, row["members"]))
    return rows[:VIEWS_MAX]


def _known(time: int) -> int | None:
    return None if time == NULL_TIME else time
