"""Flaws of the whole stack that are known and not mended yet: a schedule that shows each, and what it touches.

The list must shrink. An entry whose schedule has nothing wrong any more fails its test: it then becomes a regression,
`regressions/NAME.json`, and the random schedules draw and judge again what it had kept them from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from antiphon.testing.torture.judge import Flaw, judge
from antiphon.testing.torture.run import run
from antiphon.testing.torture.schedule import Schedule


class Known(msgspec.Struct, frozen=True):
    """One flaw; `known/NAME.json` shows it."""

    name: str
    reason: str
    touches: Callable[[Schedule], bool] = lambda schedule: False  # random schedules that run into it are left out
    rule: str | None = None  # or they are run, and this rule is not judged


KNOWN: Final[list[Known]] = []


def is_drawn(schedule: Schedule) -> bool:
    """Say whether no known flaw touches a schedule."""
    return not any(known.touches(schedule) for known in KNOWN)


def new_flaws(schedule: Schedule) -> list[Flaw]:
    """Run a schedule, and give what is wrong beside what is known."""
    ignored = {known.rule for known in KNOWN}
    return [flaw for flaw in judge(run(schedule))[0] if flaw.rule not in ignored]
