"""What applications saw: the log of each start of each application, in the words of the public API.

The judge reads nothing else. Times are the world's, in seconds; they serve for limits, never for order.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec


class MessageName(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A message's name: which application sent it, in which of its starts, and its number there, from 1."""

    member: int
    start: int
    number: int

    def __str__(self) -> str:
        return f"{self.member}/{self.start}/{self.number}"


class SeenMessage(msgspec.Struct, frozen=True):
    """A message in the stream."""

    at: float
    identity: MessageName
    sender: str
    view: int
    causes: tuple[MessageName, ...] = ()  # the last ones, by sender, that its sender had seen in `causes_view`
    causes_view: int = 0


class Viewed(msgspec.Struct, frozen=True):
    """A view in the stream."""

    at: float
    view: int
    members: tuple[str, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    elders: tuple[str, ...]

    @property
    def key(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """What tells it from others, those of another side too."""
        return self.view, self.members, self.elders


class Noticed(msgspec.Struct, frozen=True):
    """A notice in the stream."""

    at: float
    what: str


class Restored(msgspec.Struct, frozen=True):
    """The application was given a state, that of another member: what it had delivered."""

    at: float
    history: tuple[MessageName, ...]


LogEntry: TypeAlias = SeenMessage | Viewed | Noticed | Restored


Stage: TypeAlias = Literal["delivered", "stable"]


class Told(msgspec.Struct, frozen=True):
    """One stage of a receipt that came, or that will not come, and the receipt's `outcome` at that moment."""

    stage: Stage
    came: bool
    outcome: str


class SentMessage(msgspec.Struct):
    """What became of a message that was sent, as its sender was told."""

    identity: MessageName
    at: float
    size: int
    accepted: bool = False  # send returned
    refused: str | None = None  # or raised this
    delivered_at: float | None = None
    stable_at: float | None = None
    lost: tuple[str, str] | None = None  # the exception of the receipt, and its words
    told: list[Told] = []  # in the order in which its sender was told
    ended_as: str | None = None  # the `outcome` of its receipt when the group had been left, or the run ended
    probe: bool = False


class Sample(msgspec.Struct, frozen=True):
    """A status, shortened."""

    at: float
    standing: str
    view: int
    members: tuple[str, ...]
    slowest: str | None
    held: int
    inbox_bytes: int
    waiting_bytes: int
    counts: dict[str, int]
    links: tuple[tuple[str, str], ...] = ()


class ApplicationStart(msgspec.Struct):
    """One start of an application, from its call of `join` to its end."""

    member: int
    address: str
    number: int
    at: float
    stream: list[LogEntry] = []
    sent: dict[MessageName, SentMessage] = {}
    samples: list[Sample] = []
    snapshots: list[tuple[float, int]] = []  # when a snapshot was asked for, and how much had been delivered by then
    joined_at: float | None = None
    leaving_at: float | None = None
    left_at: float | None = None
    crashed_at: float | None = None
    ended_by: tuple[str, str] | None = None  # an exception, and its words
    hurried: bool = False  # it left without waiting for anything
    gave_up: set[str] = set()  # at what the application gave up, or failed
    hanging: list[str] = []  # what still waited when the group had been left

    @property
    def ended(self) -> bool:
        """Whether it does not run any more."""
        return self.crashed_at is not None or self.left_at is not None or self.ended_by is not None

    @property
    def key(self) -> tuple[int, int]:
        """Which start of which application."""
        return self.member, self.number
