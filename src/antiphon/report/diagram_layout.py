"""Where everything in a space-time diagram goes: members as lines, time to the right, nothing on top of anything.

Members that share a clock are drawn along it: earlier is further left everywhere, distances are in proportion except
that crowded moments are stretched and long silences cut short. Without a common clock every event is put as far left as
happened-before allows. Either way no arrow points backwards.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import median
from typing import Final, Literal

import msgspec

from antiphon.report.diagram_links import Elsewhere, Link, Message, find_links, message_of, repair_targets
from antiphon.trace.event import Event
from antiphon.trace.schema import EVENTS
from antiphon.wording import duration

MARK_GAP: Final = 16.0  # between marks on a line
BURST_GAP: Final = 12.5  # between those of one moment
SMALL_GAP: Final = 9.0  # between the small marks below it
ARROW_MIN: Final = 30.0  # how far to the right an arrow goes at least
ARROW_USUAL: Final = 76.0  # how far the median one goes, along a clock
SILENCE_MAX: Final = 130.0  # a longer silence is cut short
TOP: Final = 34.0
LEFT: Final = 84.0  # room for the members' names
START: Final = LEFT + 8  # of the first marks
RIGHT: Final = 30.0
AXIS: Final = 34.0
FONT: Final = 11.0
_CHARACTER: Final = 0.64 * FONT  # the width of a wide digit
_BOLD: Final = 0.72 * FONT

_SMALL: Final = frozenset({"stable", "control"})
_CONTINUES: Final = {"receive": {"send"}, "deliver": {"send", "receive"}}  # may be drawn over such a mark
_LABEL_ORDER: Final = ("focus", "view", "crash", "leave", "discard", "send", "repair", "deliver", "control", "stable")


class Mark(msgspec.Struct):
    """One event in its place."""

    event: Event
    kind: str  # the event's name; `repair` for a control event that sends a message again
    lane: int
    x: float = 0.0
    y: float = 0.0
    joined: bool = False  # on top of the mark before it: the same message in the same moment
    marked: bool = False

    @property
    def message(self) -> Message | None:
        """The message that it is about."""
        return message_of(self.event)


class Label(msgspec.Struct, frozen=True):
    """A text in its place; the box is what it covers."""

    text: str
    x: float  # its middle
    y: float  # its base line
    kind: str
    mark: int

    @property
    def box(self) -> Box:
        """What it covers."""
        return text_box(self.text, self.x, self.y, bold=self.kind == "focus")


class Box(msgspec.Struct, frozen=True):
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def touches(self, other: Box) -> bool:
        """Whether they overlap."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


class Tick(msgspec.Struct, frozen=True):
    """A time on the axis; without a text, a place where a silence is cut short."""

    x: float
    text: str


class Layout(msgspec.Struct):
    """A diagram without its looks."""

    members: list[int]
    lane_y: list[float]
    marks: list[Mark]
    links: list[Link]  # their ends are places in `marks`
    backwards: set[int]  # places in `links` whose arrow cannot but point backwards: the trace contradicts itself
    labels: list[Label]
    ticks: list[Tick]
    axis: Literal["clock", "logical"]
    focus: Message | None
    told: set[Message]  # the focus and the messages of marked events
    width: float
    height: float


def text_box(text: str, x: float, y: float, *, bold: bool = False) -> Box:
    """What a text covers whose base line has its middle here."""
    half = len(text) * (_BOLD if bold else _CHARACTER) / 2
    return Box(x - half, y - 0.8 * FONT, x + half, y + 0.25 * FONT)


def lay_out(
    events: Sequence[Event],
    *,
    clocks_agree: bool = False,
    focus: Message | None = None,
    marked: Collection[tuple[int, int]] = (),
    elsewhere: Elsewhere | None = None,
    context: Sequence[Event] = (),
    also_members: Iterable[int] = (),
) -> Layout:
    """Put events of one run in their places; `also_members` get a line even if nothing happens at them."""
    events = sorted(events, key=lambda event: (event.member, event.step))
    members = sorted({event.member for event in events}.union(also_members))
    lane_of = {member: lane for lane, member in enumerate(members)}
    spacing = 78.0 if len(members) <= 6 else 62.0 if len(members) <= 12 else 46.0
    lane_y = [TOP + spacing * (lane + 0.5) for lane in range(len(members))]
    marked = set(marked)
    marks = [
        Mark(event, _kind(event), lane_of[event.member], marked=(event.member, event.step) in marked)
        for event in events
    ]
    for mark in marks:
        mark.y = lane_y[mark.lane] + (13.0 if mark.kind in _SMALL else 0.0)
    clocks_agree = clocks_agree and all(event.time_ns is not None for event in events)
    links = find_links(events, clocks_agree=clocks_agree, elsewhere=elsewhere, context=context)
    if clocks_agree and not _times_agree(marks, links):
        clocks_agree, links = False, find_links(events, clocks_agree=False, elsewhere=elsewhere, context=context)
    order, broken = _order(marks, links)
    _join(marks)
    sources = _sources(links, broken)
    ticks = (
        _along_the_clock(marks, order, sources, focus) if clocks_agree else _by_happened_before(marks, order, sources)
    )
    width = max((mark.x for mark in marks), default=LEFT) + RIGHT + ARROW_MIN
    labels = place_labels(marks, focus, spacing)
    return Layout(
        members=members,
        lane_y=lane_y,
        marks=marks,
        links=links,
        backwards=broken,
        labels=labels,
        ticks=ticks,
        axis="clock" if clocks_agree else "logical",
        focus=focus,
        told={one for mark in marks if (one := mark.message) is not None and (mark.marked or one == focus)},
        width=max([width, *(label.box.right + 8 for label in labels)]),
        height=TOP + spacing * len(members) + (AXIS if ticks else 8.0),
    )


def _kind(event: Event) -> str:
    if event.event not in EVENTS:
        return "control"
    return "repair" if repair_targets(event) is not None else event.event


def _times_agree(marks: Sequence[Mark], links: Sequence[Link]) -> bool:
    """Whether no clock goes backwards and nothing is received before it was sent."""
    times = [mark.event.time_ns or 0 for mark in marks]
    steady = all(
        times[place] <= times[place + 1]
        for place in range(len(marks) - 1)
        if marks[place].lane == marks[place + 1].lane
    )
    return steady and all(
        times[link.source] <= times[link.target]
        for link in links
        if link.source is not None and link.target is not None
    )


def _order(marks: Sequence[Mark], links: Sequence[Link]) -> tuple[list[int], set[int]]:
    """All events with causes before effects, and the links that contradict the others."""
    following: list[list[tuple[int, int]]] = [[] for _ in marks]  # (link or -1, target)
    awaited = [0] * len(marks)
    for place in range(1, len(marks)):
        if marks[place].lane == marks[place - 1].lane:
            following[place - 1].append((-1, place))
            awaited[place] += 1
    for number, link in enumerate(links):
        if link.source is not None and link.target is not None:
            following[link.source].append((number, link.target))
            awaited[link.target] += 1

    def rank(place: int) -> tuple[int, int, int, int]:
        event = marks[place].event
        return event.time_ns or 0, event.step, event.member, place

    ready = [rank(place) for place in range(len(marks)) if not awaited[place]]
    heapq.heapify(ready)
    order: list[int] = []
    done = [False] * len(marks)
    broken: set[int] = set()
    while len(order) < len(marks):
        if not ready:  # a circle: the earliest event at the head of its line goes first, whatever it waits for
            heads = [
                place
                for place in range(len(marks))
                if not done[place] and (place == 0 or marks[place - 1].lane != marks[place].lane or done[place - 1])
            ]
            ready.append(rank(min(heads, key=rank)))
        place = heapq.heappop(ready)[-1]
        order.append(place)
        done[place] = True
        for number, target in following[place]:
            if done[target]:
                broken.add(number)
                continue
            awaited[target] -= 1
            if not awaited[target]:
                heapq.heappush(ready, rank(target))
    return order, broken


def _sources(links: Sequence[Link], broken: Collection[int]) -> dict[int, list[int]]:
    sources: dict[int, list[int]] = defaultdict(list)
    for number, link in enumerate(links):
        if link.source is not None and link.target is not None and number not in broken:
            sources[link.target].append(link.source)
    return sources


def _join(marks: Sequence[Mark]) -> None:
    """Find receipts and deliveries that follow at once on what they continue, to draw them in one place."""
    for before, mark in itertools.pairwise(marks):
        mark.joined = (
            before.lane == mark.lane
            and before.kind in _CONTINUES.get(mark.kind, ())
            and before.message == mark.message
            and before.event.time_ns == mark.event.time_ns
        )


def _gap(mark: Mark, time: int | None) -> float:
    """How far a mark stays from one of that time before it."""
    if mark.kind in _SMALL:
        return SMALL_GAP
    return BURST_GAP if time is not None and time == mark.event.time_ns else MARK_GAP


class _Line:
    """How far one member's line is filled."""

    def __init__(self) -> None:
        self.last: dict[bool, float] = {}  # small marks or not -> the last one's place
        self.time: int | None = None  # of the last mark
        self.reached = START

    def next(self, mark: Mark) -> float:
        """The leftmost place for the next mark."""
        small = mark.kind in _SMALL
        if small not in self.last:
            return self.reached
        if mark.joined:
            return self.last[small]
        return max(self.reached, self.last[small] + _gap(mark, self.time))

    def put(self, mark: Mark, x: float) -> None:
        """Put the next mark in its place."""
        mark.x = x
        self.last[mark.kind in _SMALL] = x
        self.time = mark.event.time_ns
        self.reached = max(self.reached, x)


def _by_happened_before(marks: Sequence[Mark], order: Sequence[int], sources: dict[int, list[int]]) -> list[Tick]:
    """As far left as causes allow; then what nothing holds there moves right, towards its effects."""
    lines: dict[int, _Line] = defaultdict(_Line)
    for place in order:
        mark, line = marks[place], lines[marks[place].lane]
        earliest = [marks[source].x + _reach(marks[source], mark) for source in sources.get(place, ())]
        line.put(mark, max([line.next(mark), *earliest]))
    _move_right(marks, order, sources)
    return []


def _reach(source: Mark, target: Mark) -> float:
    """How far an arrow goes at least, where no clock says: the more lines it crosses, the further."""
    return ARROW_MIN + 4.0 * abs(source.lane - target.lane)


def _move_right(marks: Sequence[Mark], order: Sequence[int], sources: dict[int, list[int]]) -> None:
    """Move each mark, with those drawn over it, as far towards its effects as what follows on its line allows."""
    limits = [float("inf")] * len(marks)
    following: dict[tuple[int, bool], Mark] = {}
    for place in reversed(order):
        mark = marks[place]
        if mark.joined:  # goes with the one below it, and is neither sent nor received from elsewhere
            continue
        small = mark.kind in _SMALL
        limit = limits[place]
        if (after := following.get((mark.lane, small))) is not None:
            limit = min(limit, after.x - _gap(after, mark.event.time_ns))
        if (after := following.get((mark.lane, not small))) is not None:
            limit = min(limit, after.x)
        if limit < float("inf"):
            mark.x = max(mark.x, limit)
        following[mark.lane, small] = mark
        for joined in itertools.takewhile(lambda one: one.joined, itertools.islice(marks, place + 1, None)):
            joined.x = mark.x
        for source in sources.get(place, ()):
            limits[source] = min(limits[source], mark.x - _reach(marks[source], mark))


def _along_the_clock(
    marks: Sequence[Mark], order: Sequence[int], sources: dict[int, list[int]], focus: Message | None
) -> list[Tick]:
    """In order of time; crowded moments are stretched, long silences cut short."""
    instants: dict[int, list[int]] = defaultdict(list)
    for place in order:
        instants[marks[place].event.time_ns or 0].append(place)
    scale = _pixels_per_ns(marks, sources)
    lines: dict[int, _Line] = defaultdict(_Line)
    times = sorted(instants)
    places: list[float] = []
    cut: list[tuple[float, int]] = []
    for number, time in enumerate(times):
        here = START
        if number:
            wanted = (time - times[number - 1]) * scale
            here = places[-1] + min(wanted, SILENCE_MAX)
            if wanted > SILENCE_MAX:
                cut.append((places[-1], number))
        inside: dict[int, _Line] = defaultdict(_Line)
        for place in instants[time]:  # what this moment needs to the left of it
            mark = marks[place]
            inside[mark.lane].put(mark, inside[mark.lane].next(mark))
            offset = mark.x - START
            line = lines[mark.lane]
            earlier = [marks[source].x for source in sources.get(place, ()) if marks[source].event.time_ns != time]
            here = max([here, line.next(mark) - offset, *(x + ARROW_MIN - offset for x in earlier)])
        places.append(here)
        for place in instants[time]:
            mark, line = marks[place], lines[marks[place].lane]
            line.reached = max(line.reached, here)
            line.put(mark, max([line.next(mark), *(marks[source].x + ARROW_MIN for source in sources.get(place, ()))]))
    return _ticks(marks, times, places, cut, focus)


def _pixels_per_ns(marks: Sequence[Mark], sources: dict[int, list[int]]) -> float:
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
    places: Sequence[float],
    cut: Sequence[tuple[float, int]],
    focus: Message | None,
) -> list[Tick]:
    """Times at about even distances, counted from the sending of the focus or from the first event."""
    if not times:
        return []
    sent = [m.event.time_ns for m in marks if m.kind == "send" and m.message == focus]
    zero = sent[0] if sent and sent[0] is not None else times[0]
    step = _round_step(times[-1] - times[0], (places[-1] - places[0]) / 90)
    ticks = [Tick((x + places[number]) / 2, "") for x, number in cut]
    last = 0.0
    for time in range(times[0] + (zero - times[0]) % step, times[-1] + 1, step):
        x = _interpolated(time, times, places)
        text = tell_time(time - zero)
        half = len(text) * _CHARACTER / 2
        if x - half > last:
            ticks.append(Tick(x, text))
            last = x + half + 14
    return ticks


def _interpolated(time: int, times: Sequence[int], places: Sequence[float]) -> float:
    after = bisect_right(times, time)
    if after >= len(times):
        return places[-1]
    before = after - 1
    share = (time - times[before]) / (times[after] - times[before])
    return places[before] + share * (places[after] - places[before])


def _round_step(span: int, wanted: float) -> int:
    """The step of 1, 2 or 5 times a power of ten that makes about so many."""
    smallest, power = span / max(wanted, 1.0), 1
    while power * 10 <= smallest:
        power *= 10
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= smallest or factor == 20)


def tell_members(members: Iterable[int]) -> str:
    """A set of members, with neighbours drawn together: 0-3 5."""
    spans: list[list[int]] = []
    for member in sorted(members):
        if spans and member == spans[-1][1] + 1:
            spans[-1][1] = member
        else:
            spans.append([member, member])
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def tell_time(nanoseconds: int) -> str:
    """Say an instant or a short time to three decimals, so that neighbours are told apart."""
    return duration(nanoseconds, decimals=3).replace("-", "−") if nanoseconds else "0"


# Labels


def place_labels(marks: Sequence[Mark], focus: Message | None, spacing: float) -> list[Label]:
    """Give labels to the marks, the most telling first, wherever they touch nothing; the others go without."""
    taken = _Taken()
    for mark in marks:
        small = mark.kind in _SMALL
        taken.add(Box(mark.x - 3, mark.y - 4, mark.x + 3, mark.y + 4) if small else _around(mark))
    labels: list[Label] = []
    for place in sorted(range(len(marks)), key=lambda place: (_rank(marks[place], focus), marks[place].x)):
        mark = marks[place]
        text = _text(mark, spacing)
        if not text:
            continue
        kind = _label_kind(mark, focus)
        for x, y in _positions(mark, text, spacing):
            label = Label(text, x, y, kind, place)
            if label.box.left > LEFT - 18 and not taken.any(label.box):
                taken.add(label.box)
                labels.append(label)
                break
    return labels


class _Taken:
    """Boxes that are taken, by stretches of the horizontal, so that asking costs little."""

    _STRETCH: Final = 100.0

    def __init__(self) -> None:
        self._boxes: dict[int, list[Box]] = defaultdict(list)

    def _stretches(self, box: Box) -> range:
        return range(int(box.left // self._STRETCH), int(box.right // self._STRETCH) + 1)

    def add(self, box: Box) -> None:
        for stretch in self._stretches(box):
            self._boxes[stretch].append(box)

    def any(self, box: Box) -> bool:
        return any(box.touches(other) for stretch in self._stretches(box) for other in self._boxes[stretch])


def _around(mark: Mark) -> Box:
    return Box(mark.x - 6, mark.y - 6, mark.x + 6, mark.y + 6)


def _label_kind(mark: Mark, focus: Message | None) -> str:
    told = focus is not None and mark.message == focus and mark.kind in ("send", "deliver", "repair", "discard")
    return "focus" if mark.marked or told else mark.kind


def _rank(mark: Mark, focus: Message | None) -> int:
    kind = _label_kind(mark, focus)
    return _LABEL_ORDER.index(kind) if kind in _LABEL_ORDER else len(_LABEL_ORDER)


def _text(mark: Mark, spacing: float) -> str:
    event = mark.event
    match mark.kind:
        case "send" | "repair" | "deliver" | "discard":
            return "" if mark.joined and mark.event.member == event.sender else f"{event.sender}:{event.seq}"
        case "view":
            return f"view {event.view}" + (f": {tell_members(event.members)}" if event.members else "")
        case "crash" | "leave":
            return mark.kind
        case "control":
            return (event.detail or "control")[:24] if spacing > 50 else ""
        case "stable":
            return f"≤{event.sender}:{event.seq}" if spacing > 50 else ""
        case "receive" if mark.marked:
            return f"{event.sender}:{event.seq}"
    return ""


def _positions(mark: Mark, text: str, spacing: float) -> list[tuple[float, float]]:
    """Places for a label, the best first."""
    half = len(text) * _CHARACTER / 2
    if mark.kind in _SMALL:
        rows = [mark.y + 15.0, mark.y + 26.0] if spacing > 60 else [mark.y + 14.0]
        return [(mark.x + shift, y) for y in rows for shift in (0.0, half - 4, 4 - half)]
    above = [mark.y - 9.0, mark.y - 20.0] if spacing > 50 else [mark.y - 9.0]
    return [(mark.x + shift, y) for y in above for shift in (0.0, half - 4, 4 - half)]
