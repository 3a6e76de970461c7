"""Each side of a partition goes on, and when they meet again one gives way: agreement without a quorum.

A view is decided when every one of its members has accepted it, with the whole cut. Its proposer is the first to begin
it and cannot take part in another ballot then, so two views with the same members never follow one view; views with
the same number do, and are told apart by the ballots. Nothing that was accepted binds those who did not hear of it.

Two sides that hear of each other compare their views. The members of the weaker one end their incarnations there and
join the other, whose state stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal

from antiphon.protocol.membership.agreement import ViewAgreement
from antiphon.protocol.membership.messages import Accept, Acceptance, State, Vote
from antiphon.protocol.membership.views import Change, GroupView, ViewId, name_of


def outranks(one: GroupView, other: GroupView) -> bool:
    """Say whether one of two views stands: the larger; of equal ones, the newer.

    Who is in both is counted in the newer one: nobody goes back.
    """
    newer, older = (one, other) if one.id > other.id else (other, one)
    remaining = set(older.members).difference(newer.members)
    return (one is newer) == (len(newer.members) >= len(remaining))


class PartitionableAgreement(ViewAgreement):
    """What one process has promised, accepted and proposed about the view that follows its side's."""

    GIVES_WAY: ClassVar[Literal["excluded", "yielded"]] = "yielded"

    def is_quorum(self, names: Collection[int]) -> bool:
        """Whoever is within reach goes on."""
        return True

    def voters(self, change: Change) -> set[int]:
        """Ask the members of the new view, those who join among them."""
        return set(change.new.names)

    def may_vote(self, accept: Accept, me: int) -> bool:
        """A process votes for a view that lists it and follows the view in which it gave its state."""
        return accept.change.old == self.view.id and accept.change.new.lists(me)

    def take_vote(self, sender: int, accepted: Vote) -> bool:
        """Count the votes of those very processes that the new view lists, not of their names' other incarnations."""
        current = self.round
        if current is None or current.change is None or not current.change.new.lists(sender):
            return False
        return super().take_vote(sender, accepted)

    def is_decided(self, change: Change, votes: Collection[int]) -> bool:
        """All of the new view have accepted it."""
        return set(change.new.names) <= set(map(name_of, votes))

    def admits_all(self, *, transfer: bool) -> bool:
        """Let all in at once where nobody awaits a state: no quorum has to be kept."""
        return not transfer

    def admitted(self, holders: Collection[int], newcomers: Sequence[int]) -> list[int]:
        """Let one go on alone where nobody has the side's state: the others join it, and are given what it has.

        Before the first view all have the same.
        """
        if holders or self.view.number == 0 or self.round is None:
            return super().admitted(holders, newcomers)
        proposer = self.round.ballot[1]
        return [proposer] if proposer in newcomers else list(newcomers[:1])

    def bound(self, states: Mapping[int, State]) -> Acceptance | None:
        """Nothing binds: what was decided elsewhere has members who do not answer here."""
        return None

    def is_news(self, theirs: ViewId) -> bool:
        """Whoever is in another view should hear of ours."""
        return theirs != self.view.id

    def heeds(self, view: GroupView, sender: int) -> bool:
        """A view counts if it is the stronger one and one of its members tells of it, or one of ours that gives way.

        Who is listed in both and tells of the older one is only behind; so is one who joins ours and tells of the one
        before it.
        """
        listed_there, listed_here = view.lists(sender), self.view.lists(sender)
        told = view.id > self.view.id if listed_there and listed_here else listed_there or listed_here
        if not listed_there and sender in self.view.members[self.view.elders :]:
            told = view.number + 1 != self.view.number
        return view.number > 0 and view.id != self.view.id and told and outranks(view, self.view)
