"""A diagram's looks: an SVG of a layout; every colour is a custom property, so that it serves dark, light and print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import hypot
from typing import Final

from markupsafe import escape

from antiphon.diagram.layout import DiagramLayout
from antiphon.diagram.links import Message, MessageLink, repair_targets
from antiphon.diagram.marks import ARROW_USUAL, FONT, LEFT, Mark, tell_instant, tell_members
from antiphon.trace.event import Event

# of a glyph: how it is drawn around (0, 0), what it means; in the order of the legend
GLYPHS: Final[dict[str, tuple[str, str]]] = {
    "send": ('<circle r="5"/>', "sent"),
    "receive": ('<circle class="hollow" r="4"/>', "received"),
    "deliver": ('<path d="M0-5.5 5.5 0 0 5.5-5.5 0z"/>', "delivered"),
    "repair": ('<path d="M-4.5-5.5 6 0-4.5 5.5z"/>', "sent again"),
    "discard": ('<path class="hollow" d="M0-6 6 0 0 6-6 0zM-3-3 3 3M-3 3 3-3"/>', "discarded"),
    "stable": ('<path class="bar" d="M0-5V5"/>', "known to be stable"),
    "control": ('<path class="hollow" d="M-2.5-2.5h5v5h-5z"/>', "control message"),
    "view": ('<path class="bar" d="M0-13V13"/>', "view installed"),
    "crash": ('<path class="cross" d="M-6-6 6 6M-6 6 6-6"/>', "crashed"),
    "leave": ('<path class="cross" d="M-6-6 6 6M-6 6 6-6"/>', "left"),
    "end": ('<path class="bar" d="M0-6V6"/>', "end of its log"),
}
_JOINED: Final = {  # what is drawn over the mark below it
    ("receive", "send"): '<circle class="hollow over" r="7"/>',
    ("deliver", "send"): '<path class="inner" d="M0-3.2 3.2 0 0 3.2-3.2 0z"/>',
    ("deliver", "receive"): '<path d="M0-3.8 3.8 0 0 3.8-3.8 0z"/>',
}
_RECEIVED_AND_DELIVERED: Final = '<circle class="hollow" r="6.5"/><path d="M0-3.8 3.8 0 0 3.8-3.8 0z"/>'
_FATES: Final = {
    "arrived": "message",
    "repaired": "repair",
    "again": "copy of what was there already",
    "lost": "lost",
    "later": "arrives after this window",
    "earlier": "sent before this window",
    "unseen": "not received in this window",
}


def draw(layout: DiagramLayout, title: str, *, style: str = "") -> str:
    """One `<svg>`: to go into a page, for its script; or, given a style, a file by itself, with a legend inside."""
    alone = bool(style)
    height = layout.height + (legend_height(layout) if alone else 0.0)
    size = f'width="{layout.width:.0f}" height="{height:.0f}" viewBox="0 0 {layout.width:.0f} {height:.0f}"'
    role = 'xmlns="http://www.w3.org/2000/svg" role="img"' if alone else 'role="group" tabindex="0"'
    parts = [
        f'<svg class="space-time" {role} {size} aria-label="{quoted(title)}">',
        f"<title>{quoted(title)}</title>\n<style>\n{style}</style>" if alone else "",
        *_ground(layout),
        '<g class="links">',
        *(_link(layout, number, link) for number, link in enumerate(layout.links) if _is_drawn(layout, link)),
        "</g>",
        *_frontier(layout),
        '<g class="labels" aria-hidden="true">',
        *_labels(layout),
        "</g>",
        '<g class="marks">',
        *(_mark(layout, index, alone) for index in range(len(layout.marks))),
        "</g>",
        *_names(layout),
        *(_legend(layout) if alone else ()),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


def tell(event: Event, who: str) -> str:
    """An event in words; `who`: the member at which it happened."""
    message = "" if event.sender is None else f" {event.sender}" + ("" if event.seq is None else f":{event.seq}")
    match event.event:
        case "stable":
            what = f"knows that all of {event.sender} up to {event.seq} is stable"
        case "view":
            what = f"installs view {event.view}" + (f": {tell_members(event.members)}" if event.members else "")
        case "control":
            targets = repair_targets(event)
            what = (
                f"control{message}" + (f" ({event.detail})" if event.detail else "")
                if targets is None
                else f"sends{message} again ({event.detail})"
            )
        case _:
            verbs = {"send": "sends", "receive": "receives", "deliver": "delivers", "discard": "discards"}
            what = verbs.get(event.event, event.event) + message + (f" ({event.detail})" if event.detail else "")
    facts = [f"{who} {what}", f"step {event.step}"]
    if event.time_ns is not None:
        facts.append(f"at {tell_instant(event.time_ns)}")
    if event.view and event.event != "view":
        facts.append(f"view {event.view}")
    if event.bytes is not None:
        facts.append(f"{event.bytes} bytes")
    return ", ".join(facts)


def quoted(text: str) -> str:
    """Escape text for an attribute or an element, and replace what XML does not allow."""
    return str(escape("".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)))


def _name(message: Message) -> str:
    return f"{message[0]}:{message[1]}"


def _classes(layout: DiagramLayout, message: Message | None, *others: str) -> str:
    classes = [other for other in others if other]
    if message is not None:
        lane = layout.members.index(message[0]) if message[0] in layout.members else 0
        classes.append(f"s{lane % 8 + 1}")
        if message in layout.told:
            classes.append("focus")
    return " ".join(classes)


def _ground(layout: DiagramLayout) -> Iterator[str]:
    """Paper, axis, and the members' lines."""
    yield '<rect class="paper" width="100%" height="100%" rx="6"/>'
    bottom = layout.height - 30
    yield '<g class="axis" aria-hidden="true">'
    for tick in layout.ticks:
        if tick.text:
            yield f'<path d="M{tick.x:.1f} 22V{bottom:.1f}"/>'
            yield f'<text x="{tick.x:.1f}" y="{bottom + 15:.1f}">{tick.text}</text>'
        else:
            yield f'<path class="cut" d="M{tick.x - 4:.1f} {bottom + 6:.1f}l4-8m1 8l4-8"/>'
    if layout.ticks and layout.focus is not None:
        yield f'<text class="caption" x="8" y="{bottom + 15:.1f}">since {_name(layout.focus)}</text>'
    yield "</g>"
    yield '<g class="lines" aria-hidden="true">'
    for lane, y in enumerate(layout.lane_y):
        gone = [mark.x for mark in layout.marks if mark.lane == lane and mark.kind in ("crash", "leave")]
        stop = gone[-1] if gone else layout.width - 12
        yield f'<path class="s{lane % 8 + 1}" d="M{LEFT - 22:.1f} {y:.1f}H{stop:.1f}"/>'
    yield "</g>"


def _names(layout: DiagramLayout) -> Iterator[str]:
    yield '<g class="names">'
    bottom = layout.lane_y[-1] if layout.lane_y else 0.0
    yield f'<rect class="paper" x="0" y="20" width="{LEFT - 22:.0f}" height="{bottom + 12:.0f}"/>'
    for lane, (member, y) in enumerate(zip(layout.members, layout.lane_y, strict=True)):
        yield from _called(layout, member, f"s{lane % 8 + 1}", y + 4)
    yield '<text class="caption" x="8" y="16">member</text>'
    yield "</g>"


_LIFE: Final = re.compile(r", (\d+(?:st|nd|rd|th) life)$")
NAME_MAX: Final = 8  # characters that there is room for before a line


LARGE_MAX: Final = 6  # of these in large letters


def _called(layout: DiagramLayout, member: int, colour: str, y: float) -> Iterator[str]:
    """Yield what stands before a member's line: its name, cut short with the whole of it behind, and its life below."""
    whole = layout.names.get(member, "").removeprefix("member ") or str(member)
    life = _LIFE.search(whole)
    name = whole[: life.start()] if life else whole
    shown = quoted(name)
    if len(name) > NAME_MAX:
        shown = f"<title>{quoted(layout.called(member))}</title>{quoted(_shortened(layout, name))}"
    small = " long" if len(name) > LARGE_MAX else ""
    yield f'<text class="{colour}{small}" x="{LEFT - 30:.0f}" y="{y:.1f}">{shown}</text>'
    if life:
        yield f'<text class="{colour} life" x="{LEFT - 30:.0f}" y="{y + 11:.1f}">{life[1]}</text>'


def _shortened(layout: DiagramLayout, name: str) -> str:
    """Cut a name short at its end, or at its beginning where that tells it from the others', as of addresses."""
    alike = [one for one in layout.names.values() if one.startswith(name[: NAME_MAX - 1])]
    are_several = len({_LIFE.sub("", one) for one in alike}) > 1
    return f"…{name[1 - NAME_MAX :]}" if are_several else f"{name[: NAME_MAX - 1]}…"


def _is_drawn(layout: DiagramLayout, link: MessageLink) -> bool:
    """Whether a link is worth an arrow: what comes after the window only of the messages that it is about."""
    return link.fate not in ("later", "unseen") or link.message in layout.told


def _link(layout: DiagramLayout, number: int, link: MessageLink) -> str:
    backwards = number in layout.backwards
    classes = _classes(layout, link.message, link.fate, "backwards" if backwards else "")
    start, stop, whole = _ends(layout, link)
    title = f"{_name(link.message)} to {layout.called(link.member)}: {_FATES[link.fate]}"
    if backwards:
        title += "; the trace has the effect before its cause"
    return (
        f'<g class="{classes}" data-message="{_name(link.message)}"><title>{title}</title>'
        f"{_line(start, stop, whole, link.fate)}</g>"
    )


def _ends(layout: DiagramLayout, link: MessageLink) -> tuple[tuple[float, float], tuple[float, float], bool]:
    """Where an arrow begins and ends, and whether it gets there."""
    source = None if link.source is None else layout.marks[link.source]
    target = None if link.target is None else layout.marks[link.target]
    if source is not None and target is not None:
        return (source.x, source.y), (target.x, target.y), True
    if source is not None:
        y = layout.lane_y[layout.members.index(link.member)]
        share = 0.62 if link.fate == "lost" else 0.45
        reach = ARROW_USUAL * 0.75
        return (source.x, source.y), (source.x + share * reach, source.y + share * (y - source.y)), False
    assert target is not None
    y = layout.lane_y[layout.members.index(link.message[0])] if link.message[0] in layout.members else target.y - 40
    size = max(hypot(30, y - target.y), 1)
    return (target.x - 26 * 30 / size, target.y + 26 * (y - target.y) / size), (target.x, target.y), True


def _line(start: tuple[float, float], stop: tuple[float, float], whole: bool, fate: str) -> str:
    (x1, y1), (x2, y2) = start, stop
    size = hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / size, (y2 - y1) / size
    if not whole:
        line = f'<path class="line" d="M{x1 + 6 * dx:.1f} {y1 + 6 * dy:.1f}L{x2:.1f} {y2:.1f}"/>'
        cross = f'<path class="cross" d="M{x2 - 4:.1f} {y2 - 4:.1f}l8 8m0-8l-8 8"/>'
        return line + (cross if fate == "lost" else f'<circle class="open" cx="{x2:.1f}" cy="{y2:.1f}" r="2"/>')
    tip_x, tip_y = x2 - 7 * dx, y2 - 7 * dy
    back_x, back_y = tip_x - 8 * dx, tip_y - 8 * dy
    head = (
        f"M{tip_x:.1f} {tip_y:.1f}L{back_x - 3.2 * dy:.1f} {back_y + 3.2 * dx:.1f}"
        f"L{back_x + 3.2 * dy:.1f} {back_y - 3.2 * dx:.1f}z"
    )
    begin = 6.0 if fate != "earlier" else 0.0
    line = f"M{x1 + begin * dx:.1f} {y1 + begin * dy:.1f}L{back_x:.1f} {back_y:.1f}"
    return f'<path class="line" d="{line}"/><path class="head" d="{head}"/>'


def _frontier(layout: DiagramLayout) -> Iterator[str]:
    """A line through the positions where each member learns that the focus is stable, and one for each view."""
    if layout.focus is not None:
        sender, seq = layout.focus
        first: dict[int, Mark] = {}
        for mark in layout.marks:
            event = mark.event
            if mark.kind == "stable" and event.sender == sender and event.seq is not None and event.seq >= seq:
                first.setdefault(mark.lane, mark)
        yield _through(first, "frontier", f"every member's mark that {sender}:{seq} is stable")
    views: dict[tuple[int, tuple[int, ...]], dict[int, Mark]] = {}
    for mark in layout.marks:
        if mark.kind == "view":
            views.setdefault((mark.event.view, tuple(mark.event.members or ())), {}).setdefault(mark.lane, mark)
    for (number, _), installed in sorted(views.items()):
        yield _through(installed, "cut", f"view {number}")


def _through(marks: dict[int, Mark], kind: str, title: str) -> str:
    if len(marks) < 2:
        return ""
    points = "L".join(f"{marks[lane].x:.1f} {marks[lane].y:.1f}" for lane in sorted(marks))
    return f'<path class="{kind}" d="M{points}"><title>{title}</title></path>'


def _mark(layout: DiagramLayout, index: int, alone: bool) -> str:
    mark = layout.marks[index]
    below = layout.marks[index - 1] if mark.joined else None
    glyph = GLYPHS.get(mark.kind, GLYPHS["control"])[0] if below is None else _JOINED[mark.kind, below.kind]
    if mark.kind == "receive" and index + 1 < len(layout.marks) and layout.marks[index + 1].joined and below is None:
        glyph = '<circle class="hollow" r="6.5"/>'
    halo = '<circle class="halo" r="9.5"/>' if mark.marked else ""
    message = mark.message
    attributes = f'data-member="{mark.event.member}" data-step="{mark.event.step}" data-event="{mark.kind}"'
    if message is not None:
        attributes += f' data-message="{_name(message)}"'
    if not alone:
        attributes += ' tabindex="-1"'
    classes = _classes(layout, message, "event", mark.kind, "marked" if mark.marked else "")
    return (
        f'<g class="{classes}" {attributes} transform="translate({mark.x:.1f} {mark.y:.1f})">'
        f"<title>{quoted(tell(mark.event, layout.called(mark.event.member)))}</title>{halo}{glyph}</g>"
    )


def _labels(layout: DiagramLayout) -> Iterator[str]:
    for label in layout.labels:
        mark = layout.marks[label.mark]
        classes = _classes(layout, mark.message, label.kind)
        data = "" if mark.message is None else f' data-message="{_name(mark.message)}"'
        yield f'<text class="{classes}"{data} x="{label.x:.1f}" y="{label.y:.1f}">{quoted(label.text)}</text>'


# The legend


def legend_entries(layout: DiagramLayout) -> list[tuple[str, str]]:
    """What occurs in a diagram: (drawing around (0, 0), meaning)."""
    kinds = {mark.kind for mark in layout.marks}
    joined = {(mark.kind, layout.marks[index - 1].kind) for index, mark in enumerate(layout.marks) if mark.joined}
    entries = [
        (f'<g class="event {kind} key">{drawing}</g>', meaning)
        for kind, (drawing, meaning) in GLYPHS.items()
        if kind in kinds
    ]
    if ("deliver", "receive") in joined:
        entries.insert(min(3, len(entries)), (f'<g class="event key">{_RECEIVED_AND_DELIVERED}</g>', "both at once"))
    fates = {link.fate for link in layout.links if _is_drawn(layout, link)}
    for fate, meaning in _FATES.items():
        if fate in fates and fate != "arrived":
            whole = fate in ("repaired", "again", "earlier")
            drawing = _line((-18.0, 0.0), (19.0 if whole else 8.0, 0.0), whole, fate)
            entries.append((f'<g class="links"><g class="{fate} key">{drawing}</g></g>', meaning))
    if any(mark.marked for mark in layout.marks):
        entries.insert(0, ('<circle class="halo" r="8"/>', "what this is about"))
    if layout.focus is not None and "stable" in kinds:
        entries.append(('<path class="frontier" d="M-11 6L11-6"/>', f"where {_name(layout.focus)} is stable"))
    return entries


def _legend_places(layout: DiagramLayout) -> list[tuple[float, float, str, str]]:
    x, y, places = 18.0, layout.height + 14, []
    for drawing, meaning in legend_entries(layout):
        width = 40 + len(meaning) * FONT * 0.56
        if x + width > layout.width and x > 18.0:
            x, y = 18.0, y + 22
        places.append((x, y, drawing, meaning))
        x += width
    return places


def legend_height(layout: DiagramLayout) -> float:
    """How much room the legend takes below a diagram."""
    places = _legend_places(layout)
    return places[-1][1] - layout.height + 16 if places else 0.0


def _legend(layout: DiagramLayout) -> Iterator[str]:
    yield '<g class="legend" aria-hidden="true">'
    for x, y, drawing, meaning in _legend_places(layout):
        yield f'<g transform="translate({x:.1f} {y:.1f})">{drawing}<text x="19" y="4">{quoted(meaning)}</text></g>'
    yield "</g>"
