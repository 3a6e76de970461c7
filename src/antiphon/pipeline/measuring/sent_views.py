"""Who had to hold a message, and until when: the members of the view in which it was sent, while that view lasted.

Where a run records no view, everybody had to hold everything until the end.
"""

from __future__ import annotations

import numpy as np

from antiphon.pipeline.columns import VIEW, Array, RunIndex
from antiphon.pipeline.measuring.job import MeasureTask

NO_VIEW = 0  # the number here of what was sent before its sender installed a view


class SentViews:
    """The views of one run, numbered from 1, and the view of each of its sends, in the order of `MeasureTask.sends`."""

    def __init__(self, here: MeasureTask, run: RunIndex) -> None:
        units = here.layout.units_of(run)
        index = {int(here.layout.unit_member[unit]): number for number, unit in enumerate(units)}
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        installed: list[list[int]] = [[] for _ in units]
        skeleton = here.layout.skeleton(run).select(["member", "event", "view", "members"])
        for row in skeleton.to_pylist():
            if row["event"] == VIEW:
                view = (row["view"], tuple(row["members"] or ()))
                installed[index[row["member"]]].append(numbers.setdefault(view, len(numbers) + 1))
        self.recorded = bool(numbers)
        self.member_of = np.ones((len(numbers) + 1, len(units)), bool)  # view by unit
        for (_, members), number in numbers.items():
            if members:  # a foreign log may not say who is in a view
                self.member_of[number] = False
                self.member_of[number, [index[member] for member in members if member in index]] = True
        self.size: Array = self.member_of.sum(axis=1)
        sent_in = [
            np.array([NO_VIEW, *mine], np.int64)[here.array(unit, "sent_in")]
            for unit, mine in zip(units, installed, strict=True)
        ]
        self.of_send: Array = np.concatenate(sent_in) if sent_in else np.zeros(0, np.int64)
        self.closed_at = self._closed_at(here, run, installed)

    def _closed_at(self, here: MeasureTask, run: RunIndex, installed: list[list[int]]) -> Array:
        """Return when the last of a view's members went on to another; the end of the run, where nobody did."""
        last_ns = here.sends(run).last_ns
        closed = np.full(len(self.size), np.iinfo(np.int64).min)
        for unit, mine in zip(here.layout.units_of(run), installed, strict=True):
            times = here.array(unit, "viewed_at")
            for number, time in zip(mine, times[1:].tolist(), strict=False):
                closed[number] = max(closed[number], time)
        return np.where(closed == np.iinfo(np.int64).min, last_ns, closed)
