"""Who is who in a group with views: processes, views, quorums, and what a change from one view to the next says.

A process is a name and an incarnation, which grows with every start, written as one number: 20003 is the third
incarnation of name 3. A view is its number and the ballot that decided it; one number is never given to two views of
the primary component. View 0 stands for the time before the first view: its members are the founders, none of them
alive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Annotated, Final, TypeAlias
from zlib import crc32

import msgspec

from antiphon.protocol.wire import Counter, Timestamp

NAMES_MAX: Final = 10_000
INCARNATIONS_MAX: Final = 200_000  # so that a process is an int32 in every trace
MEMBERS_MAX: Final = 4_096
DEPARTED_MAX: Final = 64  # so many of those who have departed are told of in a view

ProcessId: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=NAMES_MAX * INCARNATIONS_MAX)]
Ballot: TypeAlias = tuple[Counter, ProcessId]  # (round, who proposes)
Ballots: TypeAlias = tuple[Ballot, ...]
Processes: TypeAlias = Annotated[tuple[ProcessId, ...], msgspec.Meta(max_length=MEMBERS_MAX)]
Counters: TypeAlias = Annotated[tuple[Timestamp, ...], msgspec.Meta(max_length=MEMBERS_MAX)]

ViewId: TypeAlias = tuple[Counter, Ballot]  # a view's number, and the ballot that decided it

NO_BALLOT: Final[Ballot] = (0, 0)
NO_VIEW: Final[ViewId] = (0, NO_BALLOT)


def process(name: int, incarnation: int) -> int:
    """Return the number of a name's incarnation; the first is the name itself."""
    assert 0 <= name < NAMES_MAX
    assert 1 <= incarnation <= INCARNATIONS_MAX
    return (incarnation - 1) * NAMES_MAX + name


def name_of(process: int) -> int:
    """Give the name under which a process can be reached."""
    return process % NAMES_MAX


def incarnation_of(process: int) -> int:
    """Give the count of its name's starts."""
    return process // NAMES_MAX + 1


class GroupView(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """A view: members in order of age, and for each the number of messages that it sent in earlier views."""

    number: Counter
    ballot: Ballot
    members: Processes
    sent_before: Counters
    elders: Counter  # how many of them, the first ones, come from the view before
    declared: Counter = 0  # before the first view: how many members there are, if not all of their names are known
    wire: Counter = 2  # the version of the wire that its members speak; 2 is the first that was agreed upon
    departed: Processes = ()  # who was in an earlier view, and whose names are not in this one; the last are the latest

    def __post_init__(self) -> None:
        if len(self.sent_before) != len(self.members) or self.elders > len(self.members):
            raise ValueError("a view whose parts do not fit together")
        if not self.members or len(set(self.names)) < len(self.members):
            raise ValueError("a view with nobody, or with one name twice")

    @cached_property
    def id(self) -> ViewId:
        """What tells this view from every other; greater ones are newer."""
        return self.number, self.ballot

    @cached_property
    def names(self) -> tuple[int, ...]:
        """The members' names, in order."""
        return tuple(map(name_of, self.members))

    def lists(self, process: int) -> bool:
        """Say whether a process is a member; before the first view nobody is."""
        return self.number > 0 and process in self.members

    @cached_property
    def tag(self) -> int:
        """Four bytes that tell the datagrams of this view from those of any other."""
        return crc32(repr(self.id).encode())

    def is_quorum(self, names: Collection[int]) -> bool:
        """Say whether these decide for the view: more than half of it, or half with its first member.

        Before the first view only more than half of the founders do, or of the members that were declared, since nobody
        is first.
        """
        count, size = len(self._name_set.intersection(names)), self._size
        if 2 * count == size:
            return self.number > 0 and self.names[0] in names
        return 2 * count > size

    @cached_property
    def _name_set(self) -> frozenset[int]:
        return frozenset(self.names)

    @cached_property
    def _size(self) -> int:
        return max(self.declared, len(self.members))

    def departed_before(self, members: Collection[int]) -> Processes:
        """Return who has departed when another view with these members follows, as far back as is told."""
        if self.number == 0:
            return ()
        names = set(map(name_of, members))
        return tuple(one for one in (*self.departed, *self.members) if name_of(one) not in names)[-DEPARTED_MAX:]

    def with_names(self, names: Iterable[int]) -> GroupView:
        """Return view 0 of a declared number of members with more of their names; any other view as it is."""
        if self.number > 0 or not self.declared or set(names) <= set(self.names):
            return self
        return before_the_first((*self.names, *names), self.declared)


def before_the_first(founders: Iterable[int], declared: int = 0) -> GroupView:
    """Give view 0 of a group with these founders, or with the `declared` number of them, of whom these are known."""
    names = tuple(sorted(set(founders)))
    return GroupView(0, NO_BALLOT, names, (0,) * len(names), 0, declared)


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """What all that go on together deliver of their old view, by the ranks in it."""

    reach: Counters  # per member, up to where its PDUs belong to the view
    holders: Processes  # per member, who holds them up to there
    order: bytes = b""  # what the ordering adds: the positions of messages that their senders cannot decide any more

    def __post_init__(self) -> None:
        if len(self.reach) != len(self.holders):
            raise ValueError("a cut whose parts do not fit together")


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A decision: the view that follows another, and the cut between them."""

    old: ViewId
    new: GroupView
    cut: Cut

    def __post_init__(self) -> None:
        if self.new.number != self.old[0] + 1:
            raise ValueError("views follow one another by number")
