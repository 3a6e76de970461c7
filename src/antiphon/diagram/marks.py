"""What a diagram is made of before it is laid out: marks, labels and ticks, and the distances between them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from antiphon.diagram.links import Message, message_of
from antiphon.trace.event import Event
from antiphon.trace.payload import printable
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
PAYLOAD_MAX: Final = 24  # characters of a payload that a label has room for
CHARACTER: Final = 0.64 * FONT  # the width of a wide digit
_BOLD: Final = 0.72 * FONT

SMALL: Final = frozenset({"stable", "control"})


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
    def box(self) -> LabelBox:
        """What it covers."""
        return text_box(self.text, self.x, self.y, bold=self.kind == "focus")


class LabelBox(msgspec.Struct, frozen=True):
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    def touches(self, other: LabelBox) -> bool:
        """Whether they overlap."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


class Tick(msgspec.Struct, frozen=True):
    """A time on the axis; without a text, a place where a silence is cut short."""

    x: float
    text: str


def text_box(text: str, x: float, y: float, *, bold: bool = False) -> LabelBox:
    """What a text covers whose base line has its middle here."""
    half = len(text) * (_BOLD if bold else CHARACTER) / 2
    return LabelBox(x - half, y - 0.8 * FONT, x + half, y + 0.25 * FONT)


def tell_members(members: Iterable[int]) -> str:
    """A set of members, with neighbours drawn together: 0-3 5."""
    spans: list[list[int]] = []
    for member in sorted(members):
        if spans and member == spans[-1][1] + 1:
            spans[-1][1] = member
        else:
            spans.append([member, member])
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def tell_payload(event: Event) -> str:
    """Say what a message was, as far as its sending tells: the text in `detail`, shortened."""
    said = printable(event.detail or "") if event.event == "send" else ""
    return f"“{said if len(said) <= PAYLOAD_MAX else said[: PAYLOAD_MAX - 1] + '…'}”" if said else ""


_SINCE_1970: Final = 10**17  # nanoseconds: such an instant is a date


def tell_instant(nanoseconds: int) -> str:
    """Say when something happened: by a simulated clock that begins at 0, or by a wall clock."""
    if nanoseconds < _SINCE_1970:
        return tell_time(nanoseconds)
    at = datetime.fromtimestamp(nanoseconds // 1_000 / 1e6, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1_000:03} UTC"


def tell_time(nanoseconds: int) -> str:
    """Say an instant or a short time to three decimals, so that neighbours are told apart."""
    return duration(nanoseconds, decimals=3).replace("-", "−") if nanoseconds else "0"
