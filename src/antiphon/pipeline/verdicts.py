"""From counts to a verdict, and which guarantees a row that cannot be read leaves open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from antiphon.trace.schema import EVENTS
from antiphon.trace.verdict import VerdictName

REPEATED: Final = "repeated"  # instead of the event of a row that is certainly there twice: nothing lacks
HappenedBefore = Literal["deliver", "receive"]

# guarantee -> the events of which one more row could make a difference to it
OPEN_TO: Final[dict[str, frozenset[str]]] = {
    "integrity": frozenset({"send", "deliver", "leave", "crash", "end"}),
    "validity": frozenset({"send", "deliver", "discard", "leave", "crash", "end"}),
    "agreement": frozenset({"deliver", "discard", "view", "leave", "crash", "end"}),
    "fifo": frozenset({"deliver"}),
    "causal": frozenset({"send", "receive", "deliver", "discard", "view", "leave", "crash", "end"}),
    "total": frozenset({"deliver", "view", "leave", "crash"}),
    "stability": frozenset({"send", "receive", "deliver", "stable", "view", "leave", "crash", "end"}),
    "view-synchrony": frozenset({"deliver", "discard", "view", "leave", "crash"}),
    "at-least-once": frozenset({"send", "deliver", "discard", "control", "leave", "crash", "end"}),
    "at-most-once": frozenset({"deliver"}),
    "partition-order": frozenset({"deliver"}),
    "redelivery": frozenset({"deliver"}),
}


def left_open(unreadable: Iterable[str], happened_before: HappenedBefore = "deliver") -> frozenset[str]:
    """Name the guarantees that rows with these events could affect; a row whose event is no event could affect all."""
    events = set(unreadable) - {REPEATED}
    if not events <= set(EVENTS):
        return frozenset(OPEN_TO)
    return frozenset(
        name
        for name, to in OPEN_TO.items()
        if events & to - ({"receive"} if name == "causal" and happened_before == "deliver" else set())
    )


def verdict(
    examined: int, violations: int, *, undecided: bool, left_open: bool = False, lasting: int = 0
) -> VerdictName:
    """Return the verdict; never `holds` if nothing was examined.

    `left_open`: a row that cannot be read could affect the guarantee. Only `lasting` violations, which no further row
    could undo, are violations even so.
    """
    if lasting or (violations and not left_open):
        return "violated"
    return "unknown" if undecided or left_open or not examined else "holds"
