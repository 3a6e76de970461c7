"""Times in which a whole group delivered nothing although messages had been sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.pipeline.columns import NULL_TIME, Array, Unit

HALT_NS_MIN: Final = 1_000_000_000  # a message that was sent has to wait so long
STANDS_OUT: Final = 4  # times as long as messages usually wait
GAPS_MAX: Final = 8  # of a log that are kept
TRIED_MAX: Final = 32  # of a run that are looked into
HALTS_MAX: Final = 20  # of a run that are told


class _Gap(NamedTuple):
    start: int
    end: int
    usual: int  # how long a message of that member waits, usually


def delivery_gaps(delivered: Array, sent: Array) -> Array:
    """Return of a log where it delivered nothing for long: the longest gaps (start, end) and the usual wait.

    What is before the first delivery and after the last is no gap: there the group forms or ends.
    """
    known: Array = np.sort(delivered[delivered != NULL_TIME])
    lengths = np.diff(known)
    long = np.flatnonzero(lengths >= HALT_NS_MIN)
    if not len(long):
        return np.zeros((0, 3), np.int64)
    asked: Array = np.sort(sent[sent != NULL_TIME])
    answers = np.searchsorted(known, asked, side="right")
    answered = answers < len(known)
    waits = known[answers[answered]] - asked[answered]
    usual = int(np.median(waits)) if len(waits) else 0
    long = long[np.argsort(-lengths[long], kind="stable")][:GAPS_MAX]
    return np.column_stack((known[long], known[long + 1], np.full(len(long), usual)))


def halts(
    spans: Mapping[Unit, tuple[int, int]],
    gaps: Mapping[Unit, Array],
    senders: Sequence[Unit],
    sent: Callable[[Unit], Array],
) -> list[tuple[int, int]]:
    """Return when nobody of a run delivered anything for long although something had been sent, in order of time.

    `spans` says from when to when each delivered; who had not yet, or no more, is not asked.
    """
    every = {unit: [_Gap(*row) for row in rows.tolist()] for unit, rows in gaps.items()}
    candidates = sorted((gap for found in every.values() for gap in found), key=lambda gap: gap.start - gap.end)
    found: list[tuple[int, int]] = []
    for gap in candidates[:TRIED_MAX]:
        common = _common(gap, spans, every)
        if common is None or any(start < common[1] and common[0] < end for start, end in found):
            continue
        least = max(HALT_NS_MIN, STANDS_OUT * gap.usual)
        if any(_waited(sent(unit), *common) >= least for unit in senders):
            found.append(common)
    return sorted(found)[:HALTS_MAX]


def _common(
    gap: _Gap, spans: Mapping[Unit, tuple[int, int]], every: Mapping[Unit, list[_Gap]]
) -> tuple[int, int] | None:
    """Return the part of a gap in which nobody else delivered anything either, if it is long."""
    start, end = gap.start, gap.end
    for unit, (first, last) in spans.items():
        # before its first delivery, after its last, and between two
        free = [(start, min(end, first)), (max(start, last), end)]
        free += [(max(start, one.start), min(end, one.end)) for one in every[unit]]
        start, end = max(free, key=_length)
        if end - start < HALT_NS_MIN:
            return None
    return start, end


def _length(part: tuple[int, int]) -> int:
    return part[1] - part[0]


def _waited(sent: Array, start: int, end: int) -> int:
    """Return how long the first message that was sent in some time waited until its end; 0 where there is none."""
    inside: Array = sent[(sent >= start) & (sent < end) & (sent != NULL_TIME)]
    return end - int(inside.min()) if len(inside) else 0


def halt_rows(run: str, found: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the rows of the table `halts`."""
    return [{"run": run, "start_ns": start, "end_ns": end} for start, end in found]
