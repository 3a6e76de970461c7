"""The story of a diagram's message in words, for who cannot or need not look."""

from __future__ import annotations

from typing import Final

from antiphon.diagram.layout import DiagramLayout
from antiphon.diagram.links import MessageLink
from antiphon.diagram.marks import Mark, tell_instant, tell_payload, tell_time

_MISSED: Final = {
    "lost": "lost on the way",
    "later": "received after this window",
    "unseen": "not received in this window",
}


def story(layout: DiagramLayout) -> list[str]:
    """One line for the sending and one for each member: how the message came, and when it was delivered and stable."""
    if layout.focus is None:
        return []
    sent = next((mark for mark in layout.marks if mark.kind == "send" and mark.message == layout.focus), None)
    name = f"{layout.focus[0]}:{layout.focus[1]}"
    lines = [
        f"{name} was sent before this window"
        if sent is None
        else f"{name} sent by {layout.called(layout.focus[0])}{_at(sent)}{_saying(sent)}"
    ]
    for lane, member in enumerate(layout.members):
        links = [link for link in layout.links if link.message == layout.focus and link.member == member]
        parts = [part for link in links if (part := _MISSED.get(link.fate))]
        parts += [told for mark in layout.marks if mark.lane == lane and (told := _told(layout, mark, links, sent))]
        if parts:
            lines.append(f"{layout.called(member)}: {', '.join(dict.fromkeys(parts))}")
    return lines


def _saying(sent: Mark) -> str:
    payload = tell_payload(sent.event)
    return f": {payload}" if payload else ""


def _told(layout: DiagramLayout, mark: Mark, links: list[MessageLink], sent: Mark | None) -> str:
    """What an event means for the message, if it is about it."""
    assert layout.focus is not None
    event = mark.event
    if mark.kind == "stable" and event.sender == layout.focus[0] and (event.seq or 0) >= layout.focus[1]:
        earlier = any(
            other.lane == mark.lane
            and other.kind == "stable"
            and other.event.step < event.step
            and other.event.sender == event.sender
            and (other.event.seq or 0) >= layout.focus[1]
            for other in layout.marks
        )
        return "" if earlier else f"stable{_since(layout, mark, sent)}"
    if mark.message != layout.focus:
        return ""
    match mark.kind:
        case "receive" if event.sender != event.member:
            return f"received{_since(layout, mark, sent)}{_helped(layout, mark, links)}"
        case "deliver" | "discard":
            return f"{mark.kind}ed{_since(layout, mark, sent)}"
        case "repair":
            return f"sent again{_since(layout, mark, sent)} ({event.detail})"
    return ""


def _helped(layout: DiagramLayout, mark: Mark, links: list[MessageLink]) -> str:
    for link in links:
        if link.fate == "repaired" and link.target is not None and layout.marks[link.target] is mark:
            assert link.source is not None
            return f" by a repair from {layout.called(layout.marks[link.source].event.member)}"
    return ""


def _at(mark: Mark) -> str:
    return "" if mark.event.time_ns is None else f" at {tell_instant(mark.event.time_ns)}"


def _since(layout: DiagramLayout, mark: Mark, sent: Mark | None) -> str:
    """How long after the sending, where one clock says so."""
    if sent is None or mark.event.time_ns is None or sent.event.time_ns is None:
        return ""
    if layout.axis != "clock" and mark.lane != sent.lane:
        return ""
    return f" +{tell_time(mark.event.time_ns - sent.event.time_ns)}"
