"""The life of a process through views and incarnations: it begins views, ends them, gives way, leaves.

Only this file begins and ends sessions. What the next view is, `view_change` agrees upon with the others, and
`decisions` learns from them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import ClassVar, Literal

import msgspec

from antiphon.errors import LocalProtocolError
from antiphon.protocol.machine import (
    SECOND,
    Deliver,
    Effect,
    Input,
    Install,
    Instant,
    Persist,
    ReceiveMany,
    StandingChanged,
    Submit,
    Wake,
)
from antiphon.protocol.membership.agreement import ViewAgreement
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.flush import Flush
from antiphon.protocol.membership.messages import Acceptance, Alive, Newer, SnapshotChunk, Standing
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.outbox import Outbox, OwnProcess
from antiphon.protocol.membership.roster import Roster
from antiphon.protocol.membership.session import ViewSession
from antiphon.protocol.membership.slow_receiver import SlowReceiverPolicy
from antiphon.protocol.membership.state_transfer import StateTransfer
from antiphon.protocol.membership.views import Ballot, Ballots, Change, GroupView, incarnation_of, name_of, process
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.rules import rule


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """What a name must not forget."""

    incarnation: int
    view: GroupView  # the newest known
    promised: Ballot
    accepted: Acceptance | None
    decision: Change | None  # which made that view
    remembers: bool = True  # whether what is promised and accepted here is all that the name ever was, in that view
    offered: Ballots = ()  # the ballots in that view by which this name has offered itself to join


class Past(msgspec.Struct, frozen=True):
    """How the newest view came about, and what is still held of the one before: someone may lack it."""

    decision: Change | None
    flush: Flush | None = None


class Lifecycle:
    """What a process is, from view to view."""

    session_type: ClassVar[type[ViewSession]] = ViewSession

    def __init__(
        self,
        own: OwnProcess,
        options: GroupOptions,
        membership: MembershipOptions,
        agreement: ViewAgreement,
        detector: FailureDetector,
        outbox: Outbox,
        randomness: random.Random,
        decision: Change | None,
        now: Instant,
    ) -> None:
        """Begin as one who is in no view yet; `decision` is how the newest view that is known came about."""
        self.own, self.options, self.membership = own, options, membership
        self.agreement, self._detector, self._outbox, self._random = agreement, detector, outbox, randomness
        self.session: ViewSession | None = None  # in the newest view, if this process is its member
        self.past = Past(decision)
        self.roster = Roster(own, detector, sides=membership.partition == "each-side")
        self.roster.incarnations.note(agreement.view)
        self.transfer = StateTransfer(membership, outbox, detector.times)
        self.slow = SlowReceiverPolicy(membership, now)
        self.queue: deque[Submit] = deque()  # to be sent in the next view
        self.learnt_at: Instant = now - SECOND  # when the newest view was learnt of
        self.linger_until: Instant | None = None  # after leaving, how long others may still ask

    @property
    def view(self) -> GroupView:
        """The newest view that this process knows."""
        return self.agreement.view

    @property
    def standing(self) -> Standing:
        """What this process says that it is in the newest view, or wants to be."""
        if self.own.standing == "member":
            return "awaiting" if self.transfer.holds_back else "full" if self.own.full else "member"
        return "behind" if self.own.standing == "joiner" and self.own.full else self.own.standing

    @property
    def active(self) -> bool:
        """Whether there is a view in which messages are sent and delivered now."""
        session = self.session
        return session is not None and session.active

    # The application's messages

    def take_in(self, now: Instant, *, full: bool) -> None:
        """Note whether the application is too far behind to take in more: who is does not join."""
        if self.own.full != full:
            self.own.full = full
            if self.session is None:
                self._detector.beat_at = now

    def submit(self, message: Submit, room: int, now: Instant) -> None:
        """Send a message in the present view, or in the next if that ends."""
        message = self.slow.limited(message, self.view, self._detector.times)
        if room < 1:
            raise LocalProtocolError(f"{self.options.queue} submissions wait already, or this member leaves")
        if self.active:
            self.drive(message, now)
        else:
            self.queue.append(message)

    def drive(self, event: Input, now: Instant) -> None:
        """Give the member of the present view an input."""
        assert self.session is not None
        self.emit(self.session.member.handle(event, now))

    def emit(self, effects: Iterable[Effect]) -> None:
        """Pass effects of the member on; deliveries wait behind the snapshot, if one is due."""
        if not self.transfer.holds_back:
            self._outbox.effects += effects
            return
        me = self.own.id
        for effect in effects:
            self._outbox.effects += self.transfer.shown([effect], me) if isinstance(effect, Deliver) else [effect]

    def _catch_up(self, datagrams: list[bytes], now: Instant) -> None:
        """Give the member what waited to be sent, and the data that came before it could take any."""
        assert self.session is not None
        while self.queue and self.session.member.submissions.room:
            self.drive(self.queue.popleft(), now)
        if datagrams:
            self.drive(ReceiveMany(datagrams), now)

    def on_chunk(self, sender: int, chunk: SnapshotChunk, now: Instant) -> None:
        """Take part of the application's state; before the view is confirmed, what is to follow it may not be shown."""
        if self.session is not None and self.session.confirmed:
            self.transfer.on_chunk(sender, chunk, self.view, now)

    # Beginning and ending

    def adopt(self, view: GroupView, now: Instant) -> None:
        """Take a view for the newest."""
        if view.id != self.view.id:
            self._outbox.note_memory(whole=self.will_remember(view), votes=not self.roster.sides)
            self.own.ballots = ()
        self.agreement.follow(view, now)
        self.session = None
        if not self.own.leaving:
            self.own.standing = "joiner"
        self._detector.meet(view.names, now)
        self.roster.incarnations.note(view)
        self.learnt_at = now
        self.slow.begin(now)

    @rule("docs/membership.md, lost state")
    def will_remember(self, view: GroupView) -> bool:
        """Decide whether this name knows all that it has promised in the next view, if it is a voter there.

        It does if the process that the view lists is one that it knows: it has offered itself with the ballot that made
        the view, or was in the view before and promised to follow that ballot. Any other belongs to a memory that was
        lost: that of a folder which is gone, or holds what it held some time ago.
        """
        listed = next((member for member in view.members if name_of(member) == self.own.name), None)
        if listed is None or view.ballot in self.own.ballots:
            return True
        has_promised = view.number == self.view.number + 1 and self.agreement.promised >= view.ballot
        # where each side goes on, processes vote and not names, so it does not matter
        return self.own.remembers and self.view.lists(listed) and (has_promised or self.roster.sides)

    def install(self, view: GroupView, now: Instant) -> None:
        """Begin a view as its member."""
        before = self.session
        self.adopt(view, now)
        self.persist(may_wait=True)  # without it this name knows the old view, and what was accepted there
        if before is not None and before.stalled:
            self._outbox.effects.append(StandingChanged("resumed"))
        if not self.own.leaving:
            self.own.standing = "member"
        self._outbox.trace("view", view=view)
        randomness = random.Random(self._random.getrandbits(64))
        codec, traced = self._outbox.versions.known[view.wire], self._outbox.traced
        self.session = self.session_type(
            self.own.id, view, self.options, randomness, codec, traced=traced, counts=self.own.in_views
        )
        if before is not None:
            self.session.member.submissions.pace.carry_over(before.member.submissions.pace)
        if self.own.was_away:  # what made this view may have come long ago: the others may be beyond it too
            self.session.away_since = now
        self._outbox.counts["views"] += 1
        captures = self.transfer.begin(view, self.own.id, elder=before is not None, now=now)
        install = Install(view.number, view.members, view.members[: view.elders], view.wire)
        self._outbox.effects += self.transfer.shown([install, *captures], self.own.id)
        self._detector.tell_soon(now)
        kept = [] if before is None else before.take_what_was_kept()
        if self.active:
            self._catch_up(kept, now)
        else:
            for datagram in kept:
                self.session.keep_for_later(datagram, now)

    def give_way(self, view: GroupView, how: Literal["excluded", "yielded"], now: Instant, *, beyond: int = 0) -> None:
        """End this incarnation, because the group goes on without it or another side stands; come back as the next."""
        assert self.session is not None
        self._outbox.effects += self.session.member.output.unknown()
        self.queue.extendleft(reversed(self.session.member.submissions.take_back()))
        self._outbox.effects += self.transfer.forget(self.own.id)
        if self.own.leaving:
            self.adopt(view, now)
            self.persist()
            self.depart(now, "excluded")
            return
        self._outbox.effects.append(StandingChanged(how))
        if how == "yielded":  # all of a side give way together
            others = [name for name in self.view.names if name != self.own.name]
            self._outbox.say_to_names(others, Newer(view))
            self._detector.await_word(view.names, now)  # only one of ours may have heard the other side yet
        self._outbox.counts["exclusions"] += 1
        self.adopt(view, now)
        self.begin_next_incarnation(now, beyond)
        self.persist()

    def disband(self) -> None:
        """End for good, because another group of the same name stands; what was not sent stays in the queue."""
        if self.session is not None:
            self._outbox.effects += self.session.member.output.unknown()
            self.queue.extendleft(reversed(self.session.member.submissions.take_back()))
        self._outbox.effects += self.transfer.forget(self.own.id)
        self._outbox.effects.append(StandingChanged("yielded"))
        if self.own.offered:
            self._outbox.trace("leave", "excluded")
        self.own.left, self.session = True, None
        self._outbox.say_to_names(self._detector.by_name, Alive(self.view.id, "leaver"))

    def begin_next_incarnation(self, now: Instant, beyond: int = 0) -> None:
        """Come back as another process of the same name, later than any that was heard of (`beyond`)."""
        if self.own.offered:  # else nobody has heard of this one
            self._outbox.trace("leave", "excluded")
        last = max(incarnation_of(self.own.id), beyond)
        self.own.id = process(self.own.name, self.next_incarnation(last))
        self.own.offered = self.own.was_away = False  # nobody can have let this one in while it stood still
        self._detector.beat_at = now

    @staticmethod
    @rule("docs/membership.md, incarnations")
    def next_incarnation(last: int) -> int:
        """Return the incarnation that follows another: a name that comes back is another process."""
        return last + 1

    def persist(self, *, may_wait: bool = False) -> None:
        """Write down what this name must not forget, before anything is said that depends on it.

        `may_wait`: nothing depends on it, since nothing has been promised in the newest view yet.
        """
        agreement = self.agreement
        saved = Saved(
            incarnation_of(self.own.id),
            self.view,
            agreement.promised,
            agreement.accepted,
            self.past.decision,
            self.own.remembers,
            self.own.ballots,
        )
        self._outbox.effects.append(Persist(msgspec.msgpack.encode(saved), may_wait))

    # Leaving

    def leave(self, now: Instant) -> None:
        """Begin to leave: the others go on without this process, which first delivers what they deliver."""
        self.queue.clear()
        self.own.standing = "leaver"
        if self.session is None or self.is_alone(now):
            self.depart(now)
        else:
            self.session.member.submissions.take_back()
            self._detector.beat_at = now

    def is_alone(self, now: Instant) -> bool:
        """Return whether this process is the last member, and nobody waits to join."""
        if self.session is None or self.session.flush is not None or self.view.members != (self.own.id,):
            return False
        return not self.roster.joiners(self.view, now)

    def depart(self, now: Instant, why: Literal["excluded"] | None = None) -> None:
        """Leave; stay within reach for those who do not know the new view yet.

        `why`: the others went on before they had heard that this process leaves, or that it holds no more than they do.
        """
        self._outbox.effects += self.transfer.forget(self.own.id)
        self._outbox.trace("leave", why)
        self.own.left, self.session = True, None
        self._outbox.say_to_names(self._detector.by_name, Alive(self.view.id, "leaver"))
        if self.past.decision is not None:  # who is alone waits only for those who have just left together with it
            alone = self.view.members == (self.own.id,)
            suspicion_ns = self._detector.times.suspicion_ns(self.view.names, now)
            self.linger_until = now + (1 if alone else 4) * suspicion_ns

    def linger(self, now: Instant) -> None:
        """After leaving, be there until a quorum of the new view knows of it or, if that is nobody else, all do."""
        if self.linger_until is None:
            return
        knowing = {name_of(other) for other in self.view.members if self.roster.knows(other, self.view.id)}
        alone = self.view.members == (self.own.id,)
        done = not self.roster.behind(self.view.id, now) if alone else self.view.is_quorum(knowing)
        if done or self.linger_until <= now:
            self.linger_until = None

    # Too few within reach

    def watch_for_a_stall(self, now: Instant) -> bool:
        """Stop delivering while too few of the view hear one another, not counting those who have gone on from it.

        A view that is being ended and cannot end has stalled too; then only the next one says that all goes on. So has
        one that nobody confirms to a member that was away, and one whose others are a quorum by themselves, but do not
        go on without this process in all that time. Return whether enough are heard again, so that they can be asked
        whether the view still stands: what comes may have been long on its way, or be sent by a stranger who kept it.
        """
        session, detector = self.session, self._detector
        if session is None:
            return False
        if session.flush is not None:
            too_few = not self.agreement.is_quorum(detector.connected(self.view.names, now))
            if now - session.flush.since > detector.times.stall_ns(self.view.names, now) or too_few:
                self._stall(session, now, stalled=True)
            return False
        names, gone_on = self.view.names, self.roster.gone_on(self.view)
        if gone_on:
            names = tuple(name for name in names if name not in gone_on)
        connected = detector.connected(names, now)
        stalled = too_few = not self.agreement.is_quorum(connected)
        if stalled or self.own.name in connected:
            session.left_out_since = None
        elif session.left_out_since is None:
            session.left_out_since = now
        for since in (session.away_since, session.left_out_since):
            stalled |= since is not None and now - since > detector.times.stall_ns(self.view.names, now)
        if stalled:
            self._stall(session, now, stalled=True)
            session.resumes = not too_few and not session.confirmed  # they are being asked already
        elif session.stalled and not session.resumes:
            session.resumes = True
            detector.refresh(now)  # who was out of reach may be about to speak, like the others
            return True
        elif session.stalled and session.confirmed:
            self._stall(session, now, stalled=False)
            self.go_on(now)
        return False

    def go_on(self, now: Instant) -> None:
        """Send and deliver again in the present view, if nothing prevents it any more."""
        if self.active:
            self.slow.stable_at = now
            assert self.session is not None
            self._catch_up(self.session.take_what_was_kept(), now)
            self.drive(Wake(), now)

    def _stall(self, session: ViewSession, now: Instant, *, stalled: bool) -> None:
        if stalled != session.stalled:
            session.stalled, session.resumes = stalled, False
            links = self._detector.broken_links(self.view.names, now, count_late=True) if stalled else ()
            self._outbox.effects.append(StandingChanged("stalled" if stalled else "resumed", links))
