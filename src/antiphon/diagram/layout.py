"""Where everything in a space-time diagram goes: members as lines, time to the right, nothing on top of anything.

Members that share a clock are drawn along it: earlier is further left everywhere, distances are in proportion except
that crowded moments are stretched and long silences cut short. Without a common clock every event is put as far left as
happened-before allows. Either way no arrow points backwards.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from antiphon.diagram.labels import place_labels
from antiphon.diagram.links import Elsewhere, Message, MessageLink, find_links, repair_targets
from antiphon.diagram.marks import ARROW_MIN, AXIS, LEFT, RIGHT, SMALL, START, TOP, Label, Mark, Tick
from antiphon.diagram.placing import Sources, place_along_the_clock, place_by_happened_before
from antiphon.trace.event import Event
from antiphon.trace.schema import EVENTS

WIDTH_LEAST: Final = 740.0  # what is narrower is stretched
STRETCH_MAX: Final = 2.0
_CONTINUES: Final = {"receive": {"send"}, "deliver": {"send", "receive"}}  # may be drawn over such a mark


class DiagramLayout(msgspec.Struct):
    """A diagram without its looks."""

    members: list[int]
    lane_y: list[float]
    marks: list[Mark]
    links: list[MessageLink]  # their ends are places in `marks`
    backwards: set[int]  # places in `links` whose arrow cannot but point backwards: the trace contradicts itself
    labels: list[Label]
    ticks: list[Tick]
    axis: Literal["clock", "logical"]
    focus: Message | None
    told: set[Message]  # the focus and the messages of marked events
    width: float
    height: float
    names: Mapping[int, str] = {}  # of members that have one besides their number

    def called(self, member: int) -> str:
        """Name a member in a sentence."""
        return self.names.get(member) or f"member {member}"


def lay_out(
    events: Sequence[Event],
    *,
    clocks_agree: bool = False,
    focus: Message | None = None,
    marked: Collection[tuple[int, int]] = (),
    elsewhere: Elsewhere | None = None,
    context: Sequence[Event] = (),
    also_members: Iterable[int] = (),
    names: Mapping[int, str] | None = None,
) -> DiagramLayout:
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
        mark.y = lane_y[mark.lane] + (13.0 if mark.kind in SMALL else 0.0)
    clocks_agree = clocks_agree and all(event.time_ns is not None for event in events)
    links = find_links(events, clocks_agree=clocks_agree, elsewhere=elsewhere, context=context)
    if clocks_agree and not _times_agree(marks, links):
        clocks_agree, links = False, find_links(events, clocks_agree=False, elsewhere=elsewhere, context=context)
    order, broken = _order(marks, links)
    _join(marks)
    sources = _sources(links, broken)
    if clocks_agree:
        ticks = place_along_the_clock(marks, order, sources, focus)
    else:
        ticks = place_by_happened_before(marks, order, sources)
    ticks = _stretched(marks, ticks)
    width = max((mark.x for mark in marks), default=LEFT) + RIGHT + ARROW_MIN
    labels = place_labels(marks, focus, spacing)
    return DiagramLayout(
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
        names=names or {},
    )


def _kind(event: Event) -> str:
    if event.event not in EVENTS:
        return "control"
    return "repair" if repair_targets(event) is not None else event.event


def _stretched(marks: Sequence[Mark], ticks: list[Tick]) -> list[Tick]:
    """Draw what is narrow further apart, so that it fills most of a page; return the ticks that go with it."""
    reached = max((mark.x for mark in marks), default=START)
    room = WIDTH_LEAST - RIGHT - ARROW_MIN
    if not START < reached < room:
        return ticks
    factor = min(STRETCH_MAX, (room - START) / (reached - START))
    for mark in marks:
        mark.x = START + factor * (mark.x - START)
    return [Tick(START + factor * (tick.x - START), tick.text) for tick in ticks]


def _times_agree(marks: Sequence[Mark], links: Sequence[MessageLink]) -> bool:
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


def _order(marks: Sequence[Mark], links: Sequence[MessageLink]) -> tuple[list[int], set[int]]:
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


def _sources(links: Sequence[MessageLink], broken: Collection[int]) -> Sources:
    sources: Sources = defaultdict(list)
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
