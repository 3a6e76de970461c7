"""Phrases of which incidents are told: when, how long, how often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.pipeline.results import HeldBack
from antiphon.report.timeline import Occurrence
from antiphon.wording import count, duration, number

SLOW_NS_MIN: Final = 100_000_000  # waiting for a member that is told of

_PAST: Final = {
    "crashes": "crashed",
    "stops": "stopped",
    "splits": "split",
    "goes": "went",
    "comes": "came",
    "go": "went",
    "is": "was",
    "leaves": "left",
}


def past(text: str) -> str:
    """Tell what the timeline says in the present as what has been."""
    return " ".join(_PAST.get(word, word) for word in text.split(" "))


def times(value: int) -> str:
    """Say how often."""
    return ("never", "once", "twice")[value] if value < 3 else f"{number(value)} times"


def moment(at_ns: int | None) -> str:
    """Say when, as a noun."""
    return "an unknown time" if at_ns is None else duration(at_ns)


def at(one: Occurrence) -> str:
    """Say when something happened."""
    return "" if one.at_ns is None else f" at {duration(one.at_ns)}"


def after(at_ns: int | None, since_ns: int | None) -> str:
    """Say how long after something else."""
    return "" if at_ns is None or since_ns is None else f" after {duration(max(at_ns - since_ns, 0))}"


def between(instants: Sequence[int]) -> str:
    """Say when several things happened: at one time, or between two."""
    first, last = (duration(end(instants, default=0)) for end in (min, max))
    return "" if not instants else f" at {first}" if first == last else f" between {first} and {last}"


def from_to(instants: Sequence[int]) -> str:
    """Say from when to when a series of things happened."""
    return f", from {duration(min(instants))} to {duration(max(instants))}" if instants else ""


def spans(alike: Sequence[Occurrence]) -> str:
    """Say when something lasted; of what was repeated, how often and from when to when."""
    if len(alike) == 1:
        return _span(alike[0])
    ends = [one.until_ns for one in alike]
    last = max((end for end in ends if end is not None), default=None)
    until = "on" if last is None or None in ends else f"to {duration(last)}"
    return f" {times(len(alike))} from {moment(alike[0].at_ns)} {until}"


def _span(one: Occurrence) -> str:
    if one.at_ns is None:
        return ""
    begins = duration(one.at_ns) if one.at_ns else "the beginning"
    return f" from {begins} " + ("on" if one.until_ns is None else f"to {duration(one.until_ns)}")


def within(one: Occurrence) -> str:
    """Say from when to when several things happened, each for a part of that time."""
    return f" at times that overlap, from {moment(one.at_ns)} " + (
        "on" if one.until_ns is None else f"to {duration(one.until_ns)}"
    )


def waited(row: HeldBack) -> str:
    """Say how long the others waited for a member alone."""
    return f"waited up to {duration(row.longest_ns)} for it alone, over {count(row.last + row.lacked, 'message')}"
