"""What the live page is given: a state of the whole group, sent as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from antiphon.pipeline.results import WatchAlarm

Level = Literal["good", "warn", "bad"]
State = Literal["live", "silent", "gone", "never", "unpublished"]


class Headline(msgspec.Struct, frozen=True):
    """One sentence that says whether all is well and, if not, who is to blame; and one that says what to do."""

    level: Level
    text: str
    remedy: str = ""


class Published(msgspec.Struct, frozen=True):
    """What a member says of itself."""

    standing: str
    has_left: bool
    view: int
    held: int
    waiting_bytes: int
    inbox_bytes: int
    sent: int
    delivered: int
    sent_per_s: float
    delivered_per_s: float
    history: list[float]  # delivered a second, over the last minute
    stuck_s: int  # for how long it has delivered nothing although something waits; 0 if that is not so
    unread_s: int  # for how long its application has taken nothing of what is in its inbox; 0 if that is not so
    standing_s: int  # for how long it has stood so
    idle: bool  # nothing waits, and nothing was delivered lately
    full: bool  # its application does not keep up: for a while nothing more was taken in, since its inbox is full
    refused: int
    refused_why: str  # what most of these packets were
    retransmissions: int
    heard_s: float


class MemberRow(msgspec.Struct, frozen=True):
    """One member: from its own status where it publishes one, and from what the others say of it."""

    member: str
    state: State
    in_view: bool = False
    lag: int | None = None
    unheard: bool = False
    holds_back_s: int = 0
    published: Published | None = None
    says: str = ""  # how it stands, in words
    level: Level | Literal["plain", "muted"] = "plain"

    @property
    def is_missing(self) -> bool:
        """Whether it went without saying so."""
        left = self.published is not None and self.published.has_left
        return self.state in ("gone", "silent") and not left


class KnownView(msgspec.Struct, frozen=True):
    """A view, and how it differs from the one before."""

    at: float
    view: int
    members: tuple[str, ...]
    joined: list[str]
    left: list[str]


class BoardNews(msgspec.Struct, frozen=True):
    """Something that happened."""

    at: float
    level: Level
    text: str


class WatchedGuarantee(msgspec.Struct, frozen=True):
    """What watch says of one guarantee; one that is neither promised nor asked for does not decide."""

    examined: int
    violations: int
    decides: bool


class WatchedGroup(msgspec.Struct, frozen=True):
    """What watch says; `events` is None as long as it has written nothing."""

    checkpoint: str
    events: int | None = None
    events_per_s: int = 0
    count: int = 0  # of alarms
    guarantees: dict[str, WatchedGuarantee] = {}
    alarms: list[WatchAlarm] = []

    @property
    def violations(self) -> int:
        """How many there are of guarantees that decide."""
        return sum(found.violations for found in self.guarantees.values() if found.decides)


class LiveStretch(msgspec.Struct):
    """How a member stood from one time to another."""

    start: float
    end: float
    level: Level | Literal["plain", "muted"]


class LiveLane(msgspec.Struct, frozen=True):
    """A member's row of the timeline."""

    name: str
    stretches: list[LiveStretch]


class BoardState(msgspec.Struct, frozen=True):
    """Everything, as the page takes it."""

    now: float
    group: str | None
    headline: Headline
    members: list[MemberRow]
    timeline: list[LiveLane]
    views: list[KnownView]
    news: list[BoardNews]
    watch: WatchedGroup | None
