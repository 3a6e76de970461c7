"""What a process says: to other processes, to itself, to its disk and to its application."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

import msgspec

from antiphon.protocol.machine import Drop, Effect, Send, TraceRow
from antiphon.protocol.membership.messages import MembershipCodec, MembershipMessage, Standing
from antiphon.protocol.membership.views import Ballot, Ballots, GroupView, name_of

_OUTDATED: Final = "outdated-state"  # what was saved is older than what the others know of this name
_OFFERS_MAX: Final = 16  # ballots that are remembered; what an earlier one decided has been told long since


class OwnProcess(msgspec.Struct):
    """Who this process is now, shared by all that makes it up."""

    name: int
    id: int  # the name in its present incarnation
    standing: Standing = "joiner"  # what it is in the newest view, or wants to be
    offered: bool = False  # to join: some view may list this incarnation already
    remembers: bool = True  # what this name has promised and accepted in the newest view, if it is one of its voters
    ballots: Ballots = ()  # by which this name has offered itself to join the newest view
    left: bool = False
    was_away: bool = False  # it stood still, and nobody has confirmed since that its view stands
    full: bool = False  # the application is too far behind to take in more
    in_views: Counter[str] = msgspec.field(default_factory=Counter)  # what was sent and happened in all views so far

    def offer(self, ballot: Ballot) -> None:
        """Offer to join the view that a ballot may make."""
        self.offered = True
        if ballot not in self.ballots:
            self.ballots = (*self.ballots[-_OFFERS_MAX:], ballot)

    @property
    def leaving(self) -> bool:
        """Whether it wants to be no member any more."""
        return self.standing == "leaver"


class Outbox:
    """Collects the effects of one input; what a process says to itself is heard after the input was handled."""

    def __init__(self, own: OwnProcess, codec: MembershipCodec, *, traced: bool) -> None:
        self._own, self._codec, self.traced = own, codec, traced
        self.versions = codec.versions
        self.effects: list[Effect] = []
        self.to_itself: deque[MembershipMessage] = deque()
        self.counts: Counter[str] = Counter()

    def take(self) -> list[Effect]:
        """Return what was collected, and begin anew."""
        effects, self.effects = self.effects, []
        return effects

    def say(self, process: int, message: MembershipMessage) -> None:
        """Say something to one process."""
        self.say_to_names((name_of(process),), message)

    def say_to_names(self, names: Iterable[int], message: MembershipMessage) -> None:
        """Say something to whatever processes these names are now."""
        others = tuple(dict.fromkeys(names))
        if self._own.name in others:
            self.to_itself.append(message)
            others = tuple(name for name in others if name != self._own.name)
        if others:
            self.counts[message.kind] += 1
            for version, names in self.versions.towards(others).items():
                datagrams = self._codec.write(self._own.id, message, version)
                self.effects += [Send(tuple(names), datagram) for datagram in datagrams]

    def note_memory(self, *, whole: bool, votes: bool) -> None:
        """Note whether this name knows all that it has promised in the newest view; one who thought so says if not.

        `votes`: it matters there, since names vote and not processes.
        """
        if self._own.remembers and not whole and votes:
            self.counts[f"dropped-{_OUTDATED}"] += 1
            self.effects.append(Drop(_OUTDATED))
        self._own.remembers = whole

    def trace(self, event: str, detail: str | None = None, view: GroupView | None = None) -> None:
        """Say what belongs in the trace of the present incarnation, if it is traced."""
        if self.traced:
            number, members = (None, None) if view is None else (view.number, view.members)
            self.effects.append(TraceRow(self._own.id, event, None, None, None, detail, number, members))
