"""What a group tells its application, in one agreed stream, and what it says about itself."""

from __future__ import annotations

from typing import Literal, Self, TypeAlias

import msgspec

from antiphon.errors import AntiphonError


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message, in the promised order.

    `sender` is the address of the member that sent it, `view` the number of the view in which it was delivered (0 if
    membership is fixed).
    """

    sender: str
    payload: bytes
    view: int = 0


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Messages of one sender that follow one another directly in the order."""

    sender: str
    payloads: list[bytes]
    view: int = 0


class ViewChange(msgspec.Struct, frozen=True):
    """The group has these members from here on; those that were in the last view have seen the same events so far.

    `view` is the new view's number; `joined` and `left` are the differences from the last view. The `elders` come from
    the last view: their state is the group's.
    """

    view: int
    members: tuple[str, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    elders: tuple[str, ...] = ()


class Notice(msgspec.Struct, frozen=True):
    """Something about the group that the application should know.

    `what` is "stalled" (too few members are within reach), "resumed" (there are enough again), "excluded" (the group
    went on without this member) or "yielded" (two sides of a partition met again, and the other side's state is the
    group's). With "stalled", `links` are the links over which nothing is heard, as pairs (from, to).
    """

    what: Literal["stalled", "resumed", "excluded", "yielded"]
    links: tuple[tuple[str, str], ...] = ()


Event: TypeAlias = Message | ViewChange | Notice


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a group stands, as one member sees it."""

    group: str
    me: str
    standing: Literal["joining", "active", "changing", "stalled", "leaving", "left", "failed"]
    view: int
    members: tuple[str, ...]
    lag: dict[str, int | None] = {}  # who lacks how many bursts of what this member holds; None: not heard from
    slowest: str | None = None  # who holds stability back most
    sent: int  # messages of this member, in all
    delivered: int  # messages, in all
    held: int = 0  # bursts in the protocol's buffers
    waiting_bytes: int  # submitted, held back by the window
    inbox_bytes: int  # delivered, not yet taken by the application
    burst_bytes: int  # how large bursts may be now
    wire: int = 0  # the version of the wire that the view speaks; 0 in none
    may_be_several: bool = False  # found by discovery without a declared number: another group of this name may exist
    counts: dict[str, int]
    links: tuple[tuple[str, str], ...] = ()  # over which nothing is heard, as far as it knows: (from, to)


class GroupClosed(AntiphonError):
    """The group was left, or failed: nothing can be sent any more."""

    @classmethod
    def by(cls, failure: BaseException) -> Self:
        """Return the exception that ends a group after a broken invariant, or after a mistake of the application."""
        closed = cls(f"the group failed: {failure!r}")
        closed.__cause__ = failure
        return closed
