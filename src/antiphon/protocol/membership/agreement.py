"""ViewAgreement on what follows a view: consensus in two phases among the view's names.

A ballot is a promise to follow no lower one (phase one, in which everyone tells what it holds) and then a vote for one
change (phase two). What may have been decided already is proposed again, unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.membership.flush import Flush, cut_of
from antiphon.protocol.membership.messages import (
    Accept,
    Acceptance,
    MembershipMessage,
    Prepare,
    Refusal,
    Standing,
    State,
    Vote,
)
from antiphon.protocol.membership.versions import understood, version_of_view
from antiphon.protocol.membership.views import NO_BALLOT, Ballot, Change, Cut, GroupView, ViewId, name_of
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Spoken


class Round:
    """A ballot of one's own."""

    def __init__(self, ballot: Ballot, targets: Iterable[int], again: Backoff, now: Instant) -> None:
        self.ballot, self.targets, self.since, self.again = ballot, tuple(targets), now, again
        self.states: dict[int, State] = {}
        self.change: Change | None = None  # what is proposed, once enough have answered
        self.votes: set[int] = set()

    @property
    def answered(self) -> set[int]:
        """The names that have told their state."""
        return set(map(name_of, self.states))

    @property
    def complete(self) -> bool:
        """Whether all who were asked have told their state."""
        return self.answered.issuperset(self.targets)


class ViewAgreement:
    """What one name has promised, accepted and proposed about the view that follows another."""

    GIVES_WAY: ClassVar[Literal["excluded", "yielded"]] = "excluded"  # what it means to heed another view

    def __init__(self, view: GroupView, promised: Ballot, accepted: Acceptance | None, now: Instant) -> None:
        self.view, self.promised, self.accepted = view, promised, accepted
        self.round: Round | None = None
        self.accepting: Accept | None = None  # to be accepted once the cut is held
        self.decided: Change | None = None  # to be carried out once the cut is held
        self.progress_at = now
        self.tries = 0  # ballots that were followed to what comes after the view
        self.leader: int = promised[1]  # who is known to be under way with the highest of them
        self._highest_round = promised[0]  # heard of

    def meet(self, names: Iterable[int]) -> None:
        """Get to know names; before the first view of a declared number of members they may be founders."""
        self.view = self.view.with_names(names)

    def follow(self, view: GroupView, now: Instant) -> None:
        """Turn to what follows another view; what was promised concerned the one before."""
        if view.id != self.view.id:
            self.view, self.promised, self.accepted = view, NO_BALLOT, None
        self.round = self.accepting = self.decided = None
        self.progress_at, self.tries = now, 0

    @rule("docs/membership.md, quorum")
    def is_quorum(self, names: Collection[int]) -> bool:
        """Say whether these names decide what follows the view."""
        return self.view.is_quorum(names)

    def is_news(self, theirs: ViewId) -> bool:
        """Say whether one who knows that view for the newest should be told of ours."""
        return theirs < self.view.id

    def heeds(self, view: GroupView, sender: int) -> bool:
        """Say whether this process gives way to a view that another tells of."""
        return view.id > self.view.id

    def heard_of(self, ballot: Ballot) -> None:
        """Take note of another's ballot, so that one's own next one is higher."""
        self._highest_round = max(self._highest_round, ballot[0])

    # As one who answers

    @rule("docs/membership.md, agreement, prepare")
    def may_follow(self, ballot: Ballot) -> bool:
        """Decide whether a ballot can be followed: it is not lower than what was promised."""
        return ballot >= self.promised

    def promise(self, ballot: Ballot, now: Instant) -> bool:
        """Follow no lower ballot; say whether that could be promised."""
        if not self.may_follow(ballot):
            return False
        if ballot > self.promised:
            self.promised, self.progress_at, self.leader = ballot, now, ballot[1]
            self.tries += 1
            if self.round is not None and self.round.ballot < ballot:
                self.round = None
        return True

    def state(self, ballot: Ballot, standing: Standing, flush: Flush | None, spoken: Spoken) -> State:
        """Tell what was accepted, what a member holds of the view, and which versions of the wire it speaks."""
        if flush is None:
            return State(ballot, self.view.id, standing, self.accepted, (), 0, b"", spoken)
        sent = flush.member.submissions.sent
        return State(ballot, self.view.id, standing, self.accepted, flush.reach, sent, flush.claim, spoken)

    def refusal(self, ballot: Ballot) -> Refusal:
        """Say that a higher ballot was promised."""
        return Refusal(ballot, self.view.id, self.promised)

    def may_vote(self, accept: Accept, me: int) -> bool:
        """Say whether this process' vote counts: its name is one of the view that ends."""
        return accept.change.old == self.view.id and name_of(me) in self.view.names

    def accept(self) -> Vote | None:
        """Accept what was to be accepted, whose cut is held now, unless a higher ballot was promised since."""
        accept, self.accepting = self.accepting, None
        if accept is None or not self.may_follow(accept.ballot):
            return None
        if self.accepted is None or self.accepted.ballot != accept.ballot:
            self.accepted = Acceptance(accept.ballot, accept.change)
        return Vote(accept.ballot, accept.change.old)

    # As one who proposes

    def propose(self, me: int, targets: Iterable[int], again: Backoff, now: Instant) -> None:
        """Begin a ballot of one's own; what is not answered is said `again`."""
        self._highest_round += 1
        self.round = Round((self._highest_round, me), targets, again, now)
        self.progress_at = now

    def questions(self, me: int, flush: Flush | None) -> Iterator[tuple[set[int], MembershipMessage]]:
        """Say what was not answered yet, and who should."""
        current = self.round
        assert current is not None
        if current.change is None:
            yield set(current.targets) - current.answered, Prepare(current.ballot, self.view)
        else:
            # the proposer holds the cut first: voters that have lost their messages may vote without it
            holds = flush is None or me in current.votes
            voters = self.voters(current.change) - set(map(name_of, current.votes))
            yield voters if holds else {name_of(me)}, Accept(current.ballot, current.change)

    def voters(self, change: Change) -> set[int]:
        """Name those whose votes are asked for."""
        return set(self.view.names)

    def take_state(self, sender: int, state: State) -> bool:
        """Note an answer; say whether it belongs to the ballot."""
        current = self.round
        if current is None or current.ballot != state.ballot or current.change is not None:
            return False
        if state.view != self.view.id or len(state.reach) not in (0, len(self.view.members)):
            return False
        current.states[sender] = state
        return True

    def take_refusal(self, refusal: Refusal, now: Instant) -> None:
        """Give one's ballot up if it was refused."""
        self.heard_of(refusal.promised)
        if self.round is not None and self.round.ballot == refusal.ballot:
            self.round, self.progress_at, self.leader = None, now, refusal.promised[1]

    def may_choose(self, living: Collection[int], grace_ns: Duration, now: Instant) -> bool:
        """Say whether enough have answered, and the living had time to."""
        current = self.round
        if current is None or current.change is not None or not self.is_quorum(answered := current.answered):
            return False
        silent = any(name in living and name not in answered for name in current.targets)
        return not silent or now >= current.since + grace_ns

    def take_vote(self, sender: int, accepted: Vote) -> bool:
        """Count a vote; say whether it belongs to the ballot."""
        current = self.round
        if current is None or current.change is None or current.ballot != accepted.ballot:
            return False
        current.votes.add(sender)
        return True

    def is_decided(self, change: Change, votes: Collection[int]) -> bool:
        """Say whether these votes decide."""
        return self.is_quorum(set(map(name_of, votes)))

    def decision(self) -> Change | None:
        """Give the change that one's own ballot has decided."""
        current = self.round
        if current is None or current.change is None or not self.is_decided(current.change, current.votes):
            return None
        return current.change

    # What to propose

    def choose(
        self, config: GroupOptions, unwanted: Collection[int], fits: Callable[[int], bool], *, transfer: bool = False
    ) -> Change | None:
        """Propose what may have been decided already; else a view of whoever answered, with all that they hold."""
        current = self.round
        assert current is not None
        states = self.states_that_bind(current.states)
        bound = self.bound(states)
        if bound is not None:
            return bound.change
        latest = {name_of(other): other for other in sorted(states)}  # of each name the last incarnation
        away = {other for other, state in states.items() if state.standing in ("leaver", "behind")}.union(unwanted)
        alive = [other for other in latest.values() if other not in away]
        held = {member: states[member] for member in self.view.members if member in states and states[member].reach}
        staying = [member for member in held if member in alive]
        awaiting = [member for member in staying if held[member].standing == "awaiting"]
        holders = [member for member in staying if member not in awaiting]
        spoken = {other: state.spoken for other, state in states.items()}
        joiners = sorted((other for other in alive if not states[other].reach), key=name_of)
        joiners = understood(staying, joiners, spoken)
        newcomers = [*awaiting, *joiners]
        if not self.admits_all(transfer=transfer):
            newcomers = self.admitted(holders, newcomers)
        while newcomers and not fits(len(holders) + len(newcomers)):
            newcomers.pop()
        elders = [*holders, *(member for member in awaiting if member in newcomers)]
        joiners = [joiner for joiner in joiners if joiner in newcomers]
        if not elders and not joiners:
            elders = [
                member for member in held if member == current.ballot[1]
            ]  # all leave: the proposer stays, alone, until they know
        if not elders and not joiners:
            return None
        before = dict(zip(self.view.members, self.view.sent_before, strict=True))
        members = (*elders, *joiners)
        new = GroupView(
            self.view.number + 1,
            current.ballot,
            members,
            (*(before[member] + held[member].sent for member in elders), *(0 for _ in joiners)),
            len(elders),
            wire=version_of_view(members, spoken),
            departed=self.view.departed_before(members),
        )
        return Change(self.view.id, new, self.cut(config, held))

    def admits_all(self, *, transfer: bool) -> bool:
        """Say whether any number may join at once."""
        return False

    @rule("docs/membership.md, agreement, phase one closes")
    def admitted(self, holders: Collection[int], newcomers: Sequence[int]) -> list[int]:
        """Take at most as many without the application's state as have it: the holders are a quorum by themselves.

        The newcomers are those of the view who await the state still, then those who join. So nothing is lost if all
        of them die at once, and they decide nothing without one who has the state.
        """
        return list(newcomers[: len(holders)] if holders else newcomers)

    @rule("docs/membership.md, the cut")
    def cut(self, config: GroupOptions, held: Mapping[int, State]) -> Cut:
        """Find what all that go on deliver of the view."""
        return cut_of(self.view, config, held)

    @rule("docs/membership.md, agreement, phase one closes")
    def bound(self, states: Mapping[int, State]) -> Acceptance | None:
        """Find the change that may have been decided already: the one accepted with the highest ballot."""
        accepted = (state.accepted for state in states.values() if state.accepted is not None)
        return max(accepted, key=lambda acceptance: acceptance.ballot, default=None)

    @rule("docs/membership.md, lost messages")
    def states_that_bind(self, states: dict[int, State]) -> dict[int, State]:
        """Leave out, if the others are still a quorum, those who accepted a change and then lost its messages.

        A quorum that knows of no such change proves that it was not decided. To propose it again could block for ever
        those who would have to hold its cut.
        """
        members = [state for state in states.values() if state.reach]
        latest = self.bound(states)
        if latest is None or not members:
            return states
        if any(state.accepted == latest for state in members):
            return states  # it holds the whole cut
        others = {other: state for other, state in states.items() if state.accepted != latest}
        return self.states_that_bind(others) if self.is_quorum(set(map(name_of, others))) else states
