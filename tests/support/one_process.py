"""One process of a group with views, by hand: it is told what others say, and what it says is kept.

The others do not exist. A test says in their names what it is about, and looks at what this one answers.
"""

from __future__ import annotations

import random
from typing import Any, TypeVar

from antiphon.protocol.machine import MILLISECOND, Effect, Install, Instant, Receive, Send, Wake
from antiphon.protocol.membership.messages import (
    Alive,
    Commit,
    MembershipCodec,
    MembershipMessage,
    Prepare,
    State,
)
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.process import Process, ProcessInput
from antiphon.protocol.membership.views import Ballot, Change, Cut, GroupView, Processes
from antiphon.protocol.options import GroupOptions

MS = MILLISECOND
GROUP = "by-hand"
TIMES = MembershipOptions(
    heartbeat_ns=10 * MS,
    suspect_ns=100 * MS,
    retry_ns=20 * MS,
    grace_ns=60 * MS,
    patience_ns=150 * MS,
    stall_ns=400 * MS,
    slow_ns=300 * MS,
)

Said = TypeVar("Said", bound=MembershipMessage)


class OneProcess:
    """A process, the time on its clock, and what it has said and done since that was last taken."""

    def __init__(
        self,
        name: int,
        names: tuple[int, ...] = (0, 1, 2),
        *,
        membership: MembershipOptions = TIMES,
        kind: type[Process] = Process,
        now: Instant = 0,
        saved: bytes | None = None,
        **others: Any,
    ) -> None:
        options = others.pop("options", GroupOptions(ordering="fifo", group=GROUP))
        self.now = now
        self.process = kind(name, names, options, membership, random.Random(1), now, saved, **others)
        self._codec = MembershipCodec(GROUP, membership.piece_bytes)
        self.effects: list[Effect] = []  # without what is sent
        self.said: list[tuple[int, MembershipMessage]] = []  # to which name, and what about views
        self.data: list[bytes] = []  # datagrams of the view

    def do(self, event: ProcessInput, now: Instant | None = None) -> list[Effect]:
        """Give the process an input; return what it did, without what it sent."""
        self.now = self.now if now is None else now
        done = []
        for effect in self.process.handle(event, self.now):
            if not isinstance(effect, Send):
                done.append(effect)
            elif effect.datagram[4:8] == self.process._data_tag:
                self.data.append(effect.datagram)
            else:
                _, messages = self._codec.read(effect.datagram)
                self.said += [(name, message) for message in messages for name in effect.to or ()]
        self.effects += done
        return done

    def hear(self, sender: int, *messages: MembershipMessage, now: Instant | None = None) -> list[Effect]:
        """Let the process hear what another says; return what it did."""
        self.now = self.now if now is None else now
        done = []
        for message in messages:
            for datagram in self._codec.write(sender, message):
                done += self.do(Receive(datagram))
        return done

    def take(self, kind: type[Said]) -> list[tuple[int, Said]]:
        """Return what was said of one kind, and to whom; forget all that was said."""
        said, self.said = self.said, []
        return [(name, message) for name, message in said if isinstance(message, kind)]

    def did(self, kind: type[Any]) -> list[Any]:
        """Return the effects of one kind, and forget all of them."""
        effects, self.effects = self.effects, []
        return [effect for effect in effects if isinstance(effect, kind)]

    # What others say

    def alive(self, *others: int, standing: Any = "member", now: Instant | None = None) -> None:
        """Let others say that they are alive in the view that this process knows."""
        for other in others:
            self.hear(other, Alive(self.process.view.id, standing), now=now)

    def installed(self, *members: int, ballot: Ballot | None = None) -> GroupView:
        """Bring the process into a view of these members that another, the last of them, proposes and decides."""
        process, old = self.process, self.process.view
        proposer = next(member for member in reversed(members) if member != process.id)
        ballot = ballot or (old.number + 5, proposer)
        self.hear(proposer, Prepare(ballot, old))
        new = view_after(old, members, ballot)
        size = len(old.members)
        self.hear(proposer, Commit(Change(old.id, new, Cut((0,) * size, (proposer,) * size))))
        assert process.view == new
        assert any(isinstance(effect, Install) for effect in self.effects)
        self.said.clear()
        self.effects.clear()
        return new


def view_after(old: GroupView, members: Processes, ballot: Ballot) -> GroupView:
    """Return a view of these members that follows another; those of the old one are its elders."""
    elders = sum(old.lists(member) for member in members)
    return GroupView(old.number + 1, ballot, members, (0,) * len(members), elders)


def change_to(old: GroupView, members: Processes, ballot: Ballot, reach: tuple[int, ...] | None = None) -> Change:
    """Return the change from one view to one of these members; its cut is empty unless it is given."""
    reach = reach or (0,) * len(old.members)
    return Change(old.id, view_after(old, members, ballot), Cut(reach, (ballot[1],) * len(reach)))


def empty_state(ballot: Ballot, view: GroupView, standing: Any = "member", **others: Any) -> State:
    """Return the answer of a member that holds nothing, or of one that joins."""
    reach = (0,) * len(view.members) if standing in ("member", "awaiting", "leaver") and view.number else ()
    return State(ballot, view.id, standing, others.pop("accepted", None), others.pop("reach", reach), 0, b"", **others)


def member(name: int = 0, *members: int, **others: Any) -> OneProcess:
    """Give a process that has just begun its first view, in which all others are heard."""
    members = members or (0, 1, 2)
    one = OneProcess(name, members, **others)
    one.do(Wake(), 0)
    one.installed(*members)
    for other in members:
        if other != name:
            one.alive(other)
    one.do(Wake(), MS)
    one.said.clear()
    one.effects.clear()
    return one
