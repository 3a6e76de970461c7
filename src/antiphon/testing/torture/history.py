"""The logs put in order for the judge: what each application delivered in each view, and with which state it began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from antiphon.testing.torture.log import ApplicationStart, MessageName, Noticed, Restored, SeenMessage, Viewed

ViewKey: TypeAlias = tuple[int, tuple[str, ...], tuple[str, ...]]  # a view is its number, its members and elders


class Segment(msgspec.Struct):
    """One application's time in one view, in the order of its stream."""

    start: ApplicationStart
    view: Viewed
    base: tuple[MessageName, ...]  # the application's state when the view began
    came_with: Viewed  # the first view that it was in, and in all since
    continues: bool  # it comes from the view before, and keeps its state
    restored: bool = False
    messages: list[SeenMessage] = []
    end: Literal["view", "excluded", "open"] = "open"
    next: Segment | None = None  # where it went on as an elder

    @property
    def key(self) -> ViewKey:
        """Which view."""
        return self.view.key

    @property
    def identities(self) -> list[MessageName]:
        """What was delivered, in order."""
        return [seen.identity for seen in self.messages]

    @property
    def who(self) -> str:
        """Which application, for a sentence."""
        return f"{self.start.address} (start {self.start.number})"


def segments_of(start: ApplicationStart) -> list[Segment]:
    """Cut an application's stream into its views."""
    segments: list[Segment] = []
    state: list[MessageName] = []
    current: Segment | None = None
    given = False  # a state came before the view that it belongs to
    for entry, after in zip(start.stream, [*start.stream[1:], None], strict=False):
        match entry:
            case Viewed():
                continues = current is not None and start.address in entry.elders
                came_with = current.came_with if current is not None and continues else entry
                following = Segment(start, entry, tuple(state), came_with, continues, restored=given)
                given = False
                if current is not None:
                    current.end = "view"
                    current.next = following if continues else None
                current = following
                segments.append(current)
            case Restored():
                state = list(entry.history)
                given = isinstance(after, Viewed)
                if current is not None and not current.messages and not given:
                    current.base, current.restored = tuple(state), True
            case SeenMessage():
                state.append(entry.identity)
                if current is not None:
                    current.messages.append(entry)
            case Noticed(what="excluded" | "yielded"):
                if current is not None:
                    current.end = "excluded"
                current = None
            case _:
                pass
    return segments


def by_view(segments: Sequence[Segment]) -> dict[ViewKey, list[Segment]]:
    """Put together who was in which view."""
    found: dict[ViewKey, list[Segment]] = {}
    for segment in segments:
        found.setdefault(segment.key, []).append(segment)
    return found


def standing(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Give those who go on from a view together; where nobody has, those who are still in it."""
    going: dict[ViewKey, list[Segment]] = {}
    for segment in segments:
        if segment.next is not None:
            going.setdefault(segment.next.key, []).append(segment)
    staying = [segment for segment in segments if stays(segment)]
    return list(going.values()) or ([staying] if staying else [])


def stays(segment: Segment) -> bool:
    """Whether a view is an application's last, and it is still there."""
    return segment.end == "open" and not segment.start.ended
