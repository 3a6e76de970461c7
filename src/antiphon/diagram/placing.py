"""Where marks go from left to right: along the members' one clock, or by happened-before where they share none."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from antiphon.diagram.links import Message
from antiphon.diagram.marks import (
    ARROW_MIN,
    ARROW_USUAL,
    BURST_GAP,
    CHARACTER,
    MARK_GAP,
    SILENCE_MAX,
    SMALL,
    SMALL_GAP,
    START,
    Mark,
    Tick,
    tell_time,
)

Sources = dict[int, list[int]]  # mark -> the marks whose arrows end at it


def _gap(mark: Mark, time: int | None) -> float:
    """How far a mark stays from one of that time before it."""
    if mark.kind in SMALL:
        return SMALL_GAP
    return BURST_GAP if time is not None and time == mark.event.time_ns else MARK_GAP


class _Line:
    """How far one member's line is filled."""

    def __init__(self) -> None:
        self.last: dict[bool, float] = {}  # small marks or not -> the last one's position
        self.time: int | None = None  # of the last mark
        self.reached = START

    def next(self, mark: Mark) -> float:
        """The leftmost position for the next mark."""
        small = mark.kind in SMALL
        if small not in self.last:
            return self.reached
        if mark.joined:
            return self.last[small]
        return max(self.reached, self.last[small] + _gap(mark, self.time))

    def put(self, mark: Mark, x: float) -> None:
        """Put the next mark at its position."""
        mark.x = x
        self.last[mark.kind in SMALL] = x
        self.time = mark.event.time_ns
        self.reached = max(self.reached, x)


def place_by_happened_before(marks: Sequence[Mark], order: Sequence[int], sources: Sources) -> list[Tick]:
    """As far left as causes allow; then what nothing holds there moves right, towards its effects."""
    lines: dict[int, _Line] = defaultdict(_Line)
    for index in order:
        mark, line = marks[index], lines[marks[index].lane]
        earliest = [marks[source].x + _reach(marks[source], mark) for source in sources.get(index, ())]
        line.put(mark, max([line.next(mark), *earliest]))
    _move_right(marks, order, sources)
    return []


def _reach(source: Mark, target: Mark) -> float:
    """How far an arrow goes at least, where no clock says: the more lines it crosses, the further."""
    return ARROW_MIN + 4.0 * abs(source.lane - target.lane)


def _move_right(marks: Sequence[Mark], order: Sequence[int], sources: Sources) -> None:
    """Move each mark, with those drawn over it, as far towards its effects as what follows on its line allows."""
    limits = [float("inf")] * len(marks)
    following: dict[tuple[int, bool], Mark] = {}
    for index in reversed(order):
        mark = marks[index]
        if mark.joined:  # goes with the one below it, and is neither sent nor received from elsewhere
            continue
        small = mark.kind in SMALL
        limit = limits[index]
        if (after := following.get((mark.lane, small))) is not None:
            limit = min(limit, after.x - _gap(after, mark.event.time_ns))
        if (after := following.get((mark.lane, not small))) is not None:
            limit = min(limit, after.x)
        if limit < float("inf"):
            mark.x = max(mark.x, limit)
        following[mark.lane, small] = mark
        for joined in itertools.takewhile(lambda one: one.joined, itertools.islice(marks, index + 1, None)):
            joined.x = mark.x
        for source in sources.get(index, ()):
            limits[source] = min(limits[source], mark.x - _reach(marks[source], mark))


def place_along_the_clock(
    marks: Sequence[Mark], order: Sequence[int], sources: Sources, focus: Message | None
) -> list[Tick]:
    """In order of time; crowded moments are stretched, long silences cut short."""
    instants: Sources = defaultdict(list)
    for index in order:
        instants[marks[index].event.time_ns or 0].append(index)
    scale = _pixels_per_ns(marks, sources)
    lines: dict[int, _Line] = defaultdict(_Line)
    times = sorted(instants)
    positions: list[float] = []
    cut: list[tuple[float, int]] = []
    for number, time in enumerate(times):
        here = START
        if number:
            wanted = (time - times[number - 1]) * scale
            here = positions[-1] + min(wanted, SILENCE_MAX)
            if wanted > SILENCE_MAX:
                cut.append((positions[-1], number))
        inside: dict[int, _Line] = defaultdict(_Line)
        for index in instants[time]:  # what this moment needs to the left of it
            mark = marks[index]
            inside[mark.lane].put(mark, inside[mark.lane].next(mark))
            offset = mark.x - START
            line = lines[mark.lane]
            earlier = [marks[source].x for source in sources.get(index, ()) if marks[source].event.time_ns != time]
            here = max([here, line.next(mark) - offset, *(x + ARROW_MIN - offset for x in earlier)])
        positions.append(here)
        for index in instants[time]:
            mark, line = marks[index], lines[marks[index].lane]
            line.reached = max(line.reached, here)
            line.put(mark, max([line.next(mark), *(marks[source].x + ARROW_MIN for source in sources.get(index, ()))]))
    return _ticks(marks, times, positions, cut, focus)


def _pixels_per_ns(marks: Sequence[Mark], sources: Sources) -> float:
    flights = [
        (marks[target].event.time_ns or 0) - (marks[source].event.time_ns or 0)
        for target, found in sources.items()
        for source in found
    ]
    flights = [flight for flight in flights if flight > 0]
    if flights:
        return ARROW_USUAL / median(flights)
    times = [mark.event.time_ns or 0 for mark in marks]
    return 600.0 / max(max(times, default=0) - min(times, default=0), 1)


def _ticks(
    marks: Sequence[Mark],
    times: Sequence[int],
    positions: Sequence[float],
    cut: Sequence[tuple[float, int]],
    focus: Message | None,
) -> list[Tick]:
    """Times at about even distances, counted from the sending of the focus or from the first event."""
    if not times:
        return []
    sent = [m.event.time_ns for m in marks if m.kind == "send" and m.message == focus]
    zero = sent[0] if sent and sent[0] is not None else times[0]
    step = _round_step(times[-1] - times[0], (positions[-1] - positions[0]) / 90)
    ticks = [Tick((x + positions[number]) / 2, "") for x, number in cut]
    last = 0.0
    for time in range(times[0] + (zero - times[0]) % step, times[-1] + 1, step):
        x = _interpolated(time, times, positions)
        text = tell_time(time - zero)
        half = len(text) * CHARACTER / 2
        if x - half > last:
            ticks.append(Tick(x, text))
            last = x + half + 14
    return ticks


def _interpolated(time: int, times: Sequence[int], positions: Sequence[float]) -> float:
    after = bisect_right(times, time)
    if after >= len(times):
        return positions[-1]
    before = after - 1
    share = (time - times[before]) / (times[after] - times[before])
    return positions[before] + share * (positions[after] - positions[before])


def _round_step(span: int, wanted: float) -> int:
    """The step of 1, 2 or 5 times a power of ten that makes about so many."""
    smallest, power = span / max(wanted, 1.0), 1
    while power * 10 <= smallest:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= smallest or factor == 20)
