"""A process of a group with views: finds out who is alive, agrees on the next view, and runs a member in each view.

Views follow one another by consensus. The acceptors of the next view are the names in the present one (before the
first view: the founders), and what they promise and accept outlives a crash. A proposer asks everyone to stop and to
tell what it holds; the new view is whoever answers; the cut is what any of them holds. A change is accepted by whoever
holds the whole cut, decided by a quorum, and a fact from then on. `docs/membership.md` has the rules one by one.

This file only passes on: data goes straight to the member of the view, messages about views go to `dispatch`, and now
and then every component looks at what is due.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import ClassVar, Final, TypeAlias, assert_never

import msgspec

from antiphon.errors import LocalProtocolError, UsageError
from antiphon.protocol.machine import (
    Chunk,
    Disband,
    Effect,
    Input,
    Instant,
    Intake,
    Leave,
    Meet,
    Receive,
    ReceiveMany,
    Snapshot,
    Submit,
    Wake,
    earliest,
)
from antiphon.protocol.membership.agreement import ViewAgreement
from antiphon.protocol.membership.confirmation import ViewConfirmation
from antiphon.protocol.membership.decisions import Decisions
from antiphon.protocol.membership.dispatch import Dispatch
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.lifecycle import Lifecycle, Saved
from antiphon.protocol.membership.messages import MembershipCodec
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.outbox import Outbox, OwnProcess
from antiphon.protocol.membership.partitionable import PartitionableAgreement
from antiphon.protocol.membership.slow_receiver import fitted
from antiphon.protocol.membership.versions import WireVersions
from antiphon.protocol.membership.view_change import ViewChangeProtocol
from antiphon.protocol.membership.views import NAMES_MAX, NO_BALLOT, GroupView, before_the_first, process
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import jittered
from antiphon.protocol.view.member import Member
from antiphon.protocol.wire import VERSIONS, Codec, group_tag

__all__ = ["MembershipOptions", "Process", "ProcessInput", "Saved"]  # what a driver needs

_TURNS_MAX: Final = 100  # of what a process says to itself at one instant: a view that is changed alone takes a few

ProcessInput: TypeAlias = Input | Snapshot | Chunk | Meet | Intake | Disband


class Process:
    """One name in a group, through views and incarnations: a `Machine`."""

    agreement_type: ClassVar[type[ViewAgreement]] = ViewAgreement
    lifecycle_type: ClassVar[type[Lifecycle]] = Lifecycle
    decisions_type: ClassVar[type[Decisions]] = Decisions
    view_change_type: ClassVar[type[ViewChangeProtocol]] = ViewChangeProtocol
    confirmation_type: ClassVar[type[ViewConfirmation]] = ViewConfirmation
    dispatch_type: ClassVar[type[Dispatch]] = Dispatch

    def __init__(
        self,
        name: int,
        names: Iterable[int],
        options: GroupOptions,
        membership: MembershipOptions,
        randomness: random.Random,
        now: Instant,
        saved: bytes | None = None,
        *,
        traced: bool = False,
        first_incarnation: int = 1,
        first_round: int = 0,
        declared: int = 0,
        versions: Mapping[int, type[Codec]] = VERSIONS,
    ) -> None:
        """Start a name's next incarnation; `names` are the founders, `saved` is what the last one persisted.

        Without anything saved, the incarnation is `first_incarnation`. Its ballots come `first_round` after what was
        promised: a number that no other start was given, so that none is taken for one of a life that was forgotten.
        Where a number of members was `declared`, `names` are those that are known already: the rest come as `Meet`.
        Where it is `traced`, what belongs in the trace is among the effects. It speaks these `versions` of the wire.
        """
        founders = tuple(names)
        options = _checked(name, founders, options, membership)
        first_view = before_the_first(founders, declared)
        last = Saved(first_incarnation - 1, first_view, NO_BALLOT, None, None, remembers=False)
        if saved is not None:
            last = self.remembered(msgspec.msgpack.decode(saved, type=Saved), founders)
        incarnation = self.lifecycle_type.next_incarnation(last.incarnation)
        self._own = own = OwnProcess(name, process(name, incarnation), remembers=last.remembers, ballots=last.offered)
        codec = MembershipCodec(options.group, membership.piece_bytes, WireVersions(versions))
        self._outbox = outbox = Outbox(own, codec, traced=traced)
        majority = membership.partition == "majority"
        self.detector = FailureDetector(
            own, (*founders, *last.view.names), membership, partial(jittered, randomness), now
        )
        agreement_type = self.agreement_type if majority else PartitionableAgreement
        agreement = agreement_type(last.view.with_names(founders), last.promised, last.accepted, now)
        agreement.heard_of((last.promised[0] + first_round, 0))
        self.lifecycle = life = self.lifecycle_type(
            own, options, membership, agreement, self.detector, outbox, randomness, last.decision, now
        )
        self.decisions = self.decisions_type(life, self.detector, outbox)
        self.view_change = self.view_change_type(life, self.decisions, self.detector, outbox)
        self.confirmation = self.confirmation_type(life, self.decisions, self.detector.times, outbox)
        self._dispatch = self.dispatch_type(
            own, codec, outbox, self.detector, life, self.decisions, self.view_change, self.confirmation
        )
        self._data_tag = group_tag(options.group).to_bytes(4, "little")
        self._started = False
        self._look_at: Instant = now  # until then, data goes straight to the member and nothing else is looked at
        self._news_due_at: Instant | None = None  # when to look at what others have said of themselves, if they did
        self._straight: Member | None = None  # the member, while all that it says goes straight to the driver
        self._due_at: Instant = now  # when something is due besides the member's own work, while `_straight` is set

    @staticmethod
    @rule("docs/membership.md, agreement")
    def remembered(saved: Saved, founders: tuple[int, ...]) -> Saved:
        """Return what a name that starts again knows: all that it has promised, accepted and learnt."""
        return saved

    # What a driver reads

    @property
    def id(self) -> int:
        """This name in its present incarnation."""
        return self._own.id

    @property
    def counts(self) -> Counter[str]:
        """What was said and what happened, by kind."""
        return self._outbox.counts

    @property
    def view(self) -> GroupView:
        """The newest view that this process knows."""
        return self.lifecycle.view

    @property
    def member(self) -> Member | None:
        """The member of the newest view, if this process is in it."""
        session = self.lifecycle.session
        return None if session is None else session.member

    @property
    def left(self) -> bool:
        """Whether this process has left."""
        return self._own.left

    @property
    def remembers(self) -> bool:
        """Whether this name's vote counts in the newest view: it has not lost its state since that began."""
        return self.view.number == 0 or self._own.remembers

    @property
    def leaving(self) -> bool:
        """Whether this process leaves or has left."""
        return self._own.leaving

    @property
    def active(self) -> bool:
        """Whether there is a view in which messages are sent and delivered now."""
        return self.lifecycle.active

    @property
    def stalled(self) -> bool:
        """Whether nothing is delivered because too few are within reach, or the view cannot end."""
        session = self.lifecycle.session
        return session is not None and session.stalled

    def broken_links(self, now: Instant) -> tuple[tuple[int, int], ...]:
        """Return the links among the newest view's names and this one over which nothing is heard: (from, to)."""
        return self.detector.broken_links({*self.view.names, self._own.name}, now)

    @property
    def deadline(self) -> Instant | None:
        """When this process wants to be woken."""
        if self._straight is not None:
            at = self._straight.deadline
            return self._due_at if at is None or self._due_at < at else at
        if self._own.left:
            return self.lifecycle.linger_until
        session, at = self.lifecycle.session, self._next_look()
        if session is None:
            return at
        if session.active:
            return earliest(at, session.member.deadline)
        return earliest(at, None if session.flush is None else session.flush.fetch_at)

    def _next_look(self) -> Instant:
        """Return when something is due beside what the member has to do."""
        life, look_at, active = self.lifecycle, self.detector.look_at, self.lifecycle.active
        at = look_at if active else min(look_at, self._look_at)  # something is under way
        if life.agreement.round is not None:
            at = earliest(at, life.agreement.round.again.at) or at
        if life.session is None:
            return earliest(at, self._news_due_at) or at
        return earliest(at, self._news_due_at, life.transfer.deadline(active=active), self.confirmation.ask_at) or at

    @property
    def room(self) -> int:
        """How many more submissions may wait here."""
        if self._own.leaving:
            return 0
        if self._straight is not None:
            return self._straight.room
        member = self.member
        if member is not None and self.active:
            return member.room
        waiting = len(self.lifecycle.queue) + (0 if member is None else len(member.submissions.waiting))
        return max(0, self.lifecycle.options.queue - waiting)

    @property
    def held(self) -> int:
        """How many messages are kept in buffers."""
        return 0 if self.member is None else self.member.held

    @property
    def drained(self) -> bool:
        """Whether nothing waits and nothing is kept."""
        life = self.lifecycle
        return not life.queue and not life.transfer.holds_back and (self.member is None or self.member.drained)

    # What a driver does

    def handle(self, event: ProcessInput, now: Instant) -> list[Effect]:
        """Take one input at an instant and say what follows from it."""
        straight = self._straight
        if straight is not None and now < self._look_at:
            if type(event) is ReceiveMany:
                for datagram in event.datagrams:
                    if datagram[4:8] != self._data_tag:
                        break
                else:
                    return straight.handle(event, now)
            elif type(event) is Receive:
                if event.datagram[4:8] == self._data_tag:
                    return straight.handle(event, now)
            elif type(event) is Wake or (
                type(event) is Submit and not self._own.leaving and not self.lifecycle.slow.limits
            ):
                return straight.handle(event, now)
        return self._consider(event, now)

    def _consider(self, event: ProcessInput, now: Instant) -> list[Effect]:
        """Take an input that is not the member's alone, and see to what is due then."""
        if self._own.left and isinstance(event, Submit):
            raise LocalProtocolError("this member has left the group; join again to send")
        life, detector = self.lifecycle, self.detector
        self._note_signs_of_life()
        if not self._started:
            self._started = True
            life.persist()
        if away_ns := detector.times.away_for_ns(now):
            detector.leave_out(away_ns, now)  # the silence was one's own
            life.agreement.progress_at += away_ns
            self.confirmation.begin(now)
        is_due = now >= self._look_at
        look = self._take(event, now) or is_due
        if detector.news and not look:
            self._news_due_at = self._news_due_at or now + detector.times.gathering_ns
            look = now >= self._news_due_at
        if look:
            self._news_due_at = None
            self._do_what_is_due(now)
            self._look_at = now + life.membership.heartbeat_ns
        self._straight = self.member if life.active and not life.transfer.holds_back else None
        if self._straight is not None:
            self._due_at = self._look_at = self._next_look()
        return self._outbox.take()

    def _take(self, event: ProcessInput, now: Instant) -> bool:
        """Pass an input on to whom it is for; return whether it is a reason to see to what is due."""
        life = self.lifecycle
        match event:
            case Receive():
                return not self._receive([event.datagram], now)
            case ReceiveMany():
                return not self._receive(event.datagrams, now)
            case Submit():
                life.submit(event, self.room, now)
                return not life.active
            case Wake():
                if life.active:
                    life.drive(event, now)
                return True
            case Leave():
                life.leave(now)
                return True
            case Snapshot():
                life.transfer.keep(event)
                return False
            case Chunk():
                life.transfer.give(event)
                return False
            case Meet():
                self.detector.meet(event.names, now)
                life.agreement.meet(event.names)
                return True
            case Intake(full):
                life.take_in(now, full=full)
                return True
            case Disband():
                life.disband()
                return False
            case _:
                assert_never(event)

    def _receive(self, datagrams: list[bytes], now: Instant) -> bool:
        """Take datagrams in order, runs of data at once; return whether nothing but data and signs of life came."""
        only_data = self.lifecycle.active or self.detector.times.gathering_ns > 0
        if len(datagrams) == 1 and datagrams[0][4:8] != self._data_tag:  # as nearly all that come by this way
            return self._dispatch.read(datagrams[0], now) and only_data
        for is_data, together in groupby(datagrams, lambda datagram: datagram[4:8] == self._data_tag):
            session = self.lifecycle.session
            if not is_data:
                for datagram in together:
                    only_data &= self._dispatch.read(datagram, now)
            elif session is not None:
                if session.takes_data():
                    self.lifecycle.drive(ReceiveMany(list(together)), now)
                else:
                    for datagram in together:
                        session.keep_for_later(datagram, now)
                self._note_signs_of_life()
        return only_data

    def _note_signs_of_life(self) -> None:
        """Tell the failure detector from whom anything came in the view: whatever comes is a sign of life."""
        if self.lifecycle.session is not None:
            for other, at in self.lifecycle.session.signs_of_life():
                self.detector.heard(other, at)

    # What is due

    def _do_what_is_due(self, now: Instant) -> None:
        """See to everything that time, or what has just happened, calls for."""
        life, detector, change = self.lifecycle, self.detector, self.view_change
        late = detector.look(now)
        for _ in range(_TURNS_MAX):
            while self._outbox.to_itself:
                self._dispatch.hear(self._own.id, self._outbox.to_itself.popleft(), now)
            if self._own.leaving and not self._own.left and life.is_alone(now):
                life.depart(now)
            if self._own.left:
                life.linger(now)
                return
            self.decisions.forget_the_past()
            self.confirmation.watch_for_a_stall(now)
            if life.session is not None:
                full = life.roster.full(life.view)
                life.slow.watch(life.session.member, life.active, life.view, full, detector.times, now)
            change.consider_proposing(now)
            change.continue_round(now)
            if not self._outbox.to_itself:
                break
        else:
            raise AssertionError("what is said to oneself comes to an end")
        change.fetch_again(now)
        life.transfer.look(life.view, now)
        if life.active and life.transfer.is_in_vain(now):  # nobody could give the state that is due: join anew
            life.give_way(life.view, "excluded", now)
        self.confirmation.look(now)
        if detector.beat_at <= now:
            self._outbox.say_to_names(detector.by_name, detector.sign(life.view.id, life.standing, now))
        elif late:
            self._outbox.say_to_names(late, detector.question(life.view.id, life.standing, now))


def _checked(
    name: int, founders: tuple[int, ...], options: GroupOptions, membership: MembershipOptions
) -> GroupOptions:
    """Return the members' options, or raise a `UsageError` unless a group with views can work with them."""
    membership.check()
    if not 0 <= name < NAMES_MAX:
        raise UsageError(f"name: 0 to {NAMES_MAX - 1}, not {name}")
    options = fitted(options, membership)
    options.check(max(1, len(founders)), founding=False)
    if options.ordering_options.get("skip_after_ns"):
        raise UsageError("ordering.skip_after_ns: with views, a gap lasts until the view ends; leave it out")
    return options
