"""Which marks get a label, and where it stands: the most telling first, wherever it touches nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from antiphon.diagram.links import Message
from antiphon.diagram.marks import CHARACTER, LEFT, SMALL, Label, LabelBox, Mark, tell_members, tell_payload

VIEW_NAMED_MAX: Final = 8  # members of a view that its label names; more are counted
_LABEL_ORDER: Final = ("focus", "view", "crash", "leave", "discard", "send", "repair", "deliver", "control", "stable")


def place_labels(marks: Sequence[Mark], focus: Message | None, spacing: float) -> list[Label]:
    """Give labels to the marks, the most telling first, wherever they touch nothing; the others go without."""
    taken = _Taken()
    for mark in marks:
        small = mark.kind in SMALL
        taken.add(LabelBox(mark.x - 3, mark.y - 4, mark.x + 3, mark.y + 4) if small else _around(mark))
    labels: list[Label] = []
    for place in sorted(range(len(marks)), key=lambda place: (_rank(marks[place], focus), marks[place].x)):
        mark = marks[place]
        text = _text(mark, spacing)
        if not text:
            continue
        kind = _label_kind(mark, focus)
        payload = tell_payload(mark.event)
        # with what the message says, if there is room for it
        for words in [f"{text} {payload}", text] if payload else [text]:
            found = [Label(words, x, y, kind, place) for x, y in _positions(mark, words, spacing)]
            label = next((one for one in found if one.box.left > LEFT - 18 and not taken.any(one.box)), None)
            if label is not None:
                taken.add(label.box)
                labels.append(label)
                break
    return labels


class _Taken:
    """Boxes that are taken, by stretches of the horizontal, so that asking costs little."""

    _STRETCH: Final = 100.0

    def __init__(self) -> None:
        self._boxes: dict[int, list[LabelBox]] = defaultdict(list)

    def _stretches(self, box: LabelBox) -> range:
        return range(int(box.left // self._STRETCH), int(box.right // self._STRETCH) + 1)

    def add(self, box: LabelBox) -> None:
        for stretch in self._stretches(box):
            self._boxes[stretch].append(box)

    def any(self, box: LabelBox) -> bool:
        return any(box.touches(other) for stretch in self._stretches(box) for other in self._boxes[stretch])


def _around(mark: Mark) -> LabelBox:
    return LabelBox(mark.x - 6, mark.y - 6, mark.x + 6, mark.y + 6)


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
            return f"view {event.view}" + (f": {_view_members(event.members)}" if event.members else "")
        case "crash" | "leave":
            return mark.kind
        case "control":
            return (event.detail or "control")[:24] if spacing > 50 else ""
        case "stable":
            return f"≤{event.sender}:{event.seq}" if spacing > 50 else ""
        case "receive" if mark.marked:
            return f"{event.sender}:{event.seq}"
    return ""


def _view_members(members: Sequence[int]) -> str:
    return tell_members(members) if len(members) <= VIEW_NAMED_MAX else f"{len(members):,} members"


def _positions(mark: Mark, text: str, spacing: float) -> list[tuple[float, float]]:
    """Places for a label, the best first."""
    half = len(text) * CHARACTER / 2
    if mark.kind in SMALL:
        rows = [mark.y + 15.0, mark.y + 26.0] if spacing > 60 else [mark.y + 14.0]
        return [(mark.x + shift, y) for y in rows for shift in (0.0, half - 4, 4 - half)]
    if mark.kind == "view":  # beside its line, which would go through it
        return [(mark.x + shift, mark.y - 9.0) for shift in (half + 5, -half - 5)]
    above = [mark.y - 9.0, mark.y - 20.0] if spacing > 50 else [mark.y - 9.0]
    return [(mark.x + shift, y) for y in above for shift in (0.0, half - 4, 4 - half)]
