"""A process of a group with views: finds out who is alive, agrees on the next view, and runs a member in each view.

Views follow one another by consensus. The acceptors of the next view are the names in the present one (before the
first view: the founders), and what they promise and accept outlives a crash. A proposer asks everyone to stop and to
tell what it holds; the new view is whoever answers; the cut is what any of them holds. A change is accepted by whoever
holds the whole cut, decided by a quorum, and a fact from then on. `docs/membership.md` has the rules one by one.

Control flow lives here; `peers` knows who is alive, `agreement` what was promised and accepted, `stay` tells of the
member in the present view, `flush` what it holds when the view ends, `transfer` what joiners are given, `slowness` who
holds all back.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import ClassVar, Literal, TypeAlias, assert_never

import msgspec

from antiphon.errors import LocalProtocolError, UsageError
from antiphon.protocol.machine import (
    Deliver,
    Drop,
    Effect,
    Input,
    Install,
    Instant,
    Leave,
    Notice,
    Persist,
    Receive,
    ReceiveMany,
    Send,
    Snapshot,
    Submit,
    TraceRow,
    Wake,
    earliest,
)
from antiphon.protocol.membership.agreement import Agreement
from antiphon.protocol.membership.flush import Flush
from antiphon.protocol.membership.messages import (
    Accept,
    Acceptance,
    Accepted,
    Alive,
    Commit,
    Fetch,
    Fill,
    Message,
    Newer,
    Post,
    Prepare,
    Refusal,
    SnapshotReply,
    SnapshotRequest,
    Standing,
    State,
)
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.peers import Peers
from antiphon.protocol.membership.sides import Sides
from antiphon.protocol.membership.slowness import Slowness, fitted
from antiphon.protocol.membership.stay import Stay
from antiphon.protocol.membership.transfer import Transfer
from antiphon.protocol.membership.views import (
    NAMES_MAX,
    NO_BALLOT,
    Ballot,
    Change,
    GroupView,
    ViewId,
    before_the_first,
    incarnation_of,
    name_of,
    process,
)
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member
from antiphon.protocol.wire import Malformed, group_of, group_tag

__all__ = ["MembershipOptions", "Process", "ProcessInput", "Saved"]  # what a driver needs

ProcessInput: TypeAlias = Input | Snapshot


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """What a name must not forget."""

    incarnation: int
    view: GroupView  # the newest known
    promised: Ballot
    accepted: Acceptance | None
    decision: Change | None  # which made that view


class Process:
    """One name's place in a group, through views and incarnations: a `Machine`."""

    member_type: ClassVar[type[Member]] = Member  # a test may put others in their places
    flush_type: ClassVar[type[Flush]] = Flush
    agreements: ClassVar[Mapping[str, type[Agreement]]] = {"majority": Agreement, "each-side": Sides}

    def __init__(
        self,
        name: int,
        names: Iterable[int],
        config: GroupOptions,
        options: MembershipOptions,
        randomness: random.Random,
        now: Instant,
        saved: bytes | None = None,
        *,
        traced: bool = False,
    ) -> None:
        """Start a name's next life; `names` are the founders, `saved` is what the last life persisted.

        Where it is `traced`, what belongs in the trace is among the effects.
        """
        options.check()
        if not 0 <= name < NAMES_MAX:
            raise UsageError(f"name: 0 to {NAMES_MAX - 1}, not {name}")
        founders = tuple(names)
        config = fitted(config, options)
        config.check(max(1, len(founders)), founding=False)
        if config.ordering_options.get("skip_after_ns"):
            raise UsageError("ordering.skip_after_ns: with views, a gap lasts until the view ends; leave it out")
        self.name, self.config, self.options = name, config, options
        self._random, self._traced = randomness, traced
        self._post = Post(config.group, options.piece_bytes)
        self._members_tag = group_tag(config.group)
        last = Saved(0, before_the_first(founders), NO_BALLOT, None, None)
        if saved is not None:
            last = msgspec.msgpack.decode(saved, type=Saved)
        self.id = process(name, last.incarnation + 1)
        self._peers = Peers(self.id, (*founders, *last.view.names), options.suspect_ns, now)
        self._agreement = self.agreements[options.partition](last.view, last.promised, last.accepted, now)
        self._stay: Stay | None = None  # in the newest view, if this process is its member
        self._flush: Flush | None = None  # the member was stopped: its view ends
        self._past = last.decision  # how the newest view came about: someone may not know
        self._past_flush: Flush | None = None  # and what was held in the view before
        self._transfer = Transfer(options.transfer, options.retry_ns)
        self._slowness = Slowness(options, now)
        self._offered = False  # to join: some view may list this process already
        self._learnt_at: Instant = now - options.retry_ns  # of the newest view
        self._queue: deque[Submit] = deque()
        self._beat_at: Instant = now
        self._look_at: Instant = now  # data alone is no reason to look at everything before
        self._started = False
        self.leaving = self.left = self.stalled = False
        self._linger_until: Instant | None = None
        self._effects: list[Effect] = []
        self._inbox: deque[Message] = deque()  # what this process says to itself
        self.counts: Counter[str] = Counter()

    # What a driver reads

    @property
    def view(self) -> GroupView:
        """The newest view that this process knows."""
        return self._agreement.view

    @property
    def member(self) -> Member | None:
        """The member of the newest view, if this process is in it."""
        return None if self._stay is None else self._stay.member

    @property
    def standing(self) -> Standing:
        """What this process is in the newest view, or wants to be."""
        return self._peers.standing

    @property
    def deadline(self) -> Instant | None:
        """When this process wants to be woken."""
        if self.left:
            return self._linger_until
        current = self._agreement.round
        round_at = None if current is None else current.retry_at
        fetch_at = None if self._flush is None else self._flush.fetch_at
        member = self.member if self.active else None
        return earliest(self._beat_at, round_at, fetch_at, None if member is None else member.deadline)

    @property
    def active(self) -> bool:
        """Whether there is a view in which messages are sent and delivered now."""
        return self._stay is not None and self._flush is None and not self.stalled

    @property
    def room(self) -> int:
        """How many more submissions may wait here."""
        if self.left or self.leaving:
            return 0
        if self.member is not None and self.active:
            return self.member.room
        waiting = len(self._queue) + (len(self.member.submissions.waiting) if self.member is not None else 0)
        return max(0, self.config.queue - waiting)

    @property
    def held(self) -> int:
        """How many messages are kept in buffers."""
        return self.member.held if self.member is not None else 0

    @property
    def drained(self) -> bool:
        """Whether nothing waits and nothing is kept."""
        return not self._queue and self._transfer.idle and (self.member is None or self.member.drained)

    # What a driver does

    def handle(self, event: ProcessInput, now: Instant) -> list[Effect]:
        """Take one input at an instant and say what follows from it."""
        self._effects = []
        if self.left and isinstance(event, Submit):
            raise LocalProtocolError("this member has left the group; join again to send")
        if not self._started:
            self._started = True
            self._persist()
        if self._beat_at + self.options.suspect_ns // 2 < now:
            self._peers.refresh(now)  # the silence was one's own
            self._agreement.progress_at = now
        only_data = False
        match event:
            case Receive():
                only_data = self._receive([event.datagram], now)
            case ReceiveMany():
                only_data = self._receive(event.datagrams, now)
            case Submit():
                self._submit(event, now)
                only_data = self.active
            case Wake():
                if self.member is not None and self.active:
                    self._drive(event, now)
            case Leave():
                self._leave(now)
            case Snapshot():
                self._transfer.keep(event)
            case _:
                assert_never(event)
        if not only_data or now >= self._look_at:
            self._look_at = now + self.options.retry_ns // 5
            self._do_what_is_due(now)
        return self._effects

    def _submit(self, message: Submit, now: Instant) -> None:
        message = self._slowness.limited(message)
        if self.room < 1:
            raise LocalProtocolError(f"{self.config.queue} submissions wait already, or this member leaves")
        if self.member is not None and self.active:
            self._drive(message, now)
        else:
            self._queue.append(message)

    def _leave(self, now: Instant) -> None:
        self._queue.clear()
        self.leaving, self._peers.standing = True, "leaver"
        if self.member is None or self._is_alone(now):
            self._depart(now)
        else:
            self.member.submissions.take_back()
            self._beat_at = now

    def _is_alone(self, now: Instant) -> bool:
        return self.view.members == (self.id,) and self._flush is None and not self._joiners(now)

    def _receive(self, datagrams: list[bytes], now: Instant) -> bool:
        """Take datagrams in their order, the member's as many at once as come together; say if there was only data."""
        only_data = self.active
        if only_data and self.member is not None and all(map(self._is_data, datagrams)):
            self._receive_data(self.member, datagrams, now)
            return True
        for is_data, together in groupby(datagrams, self._is_data):
            if is_data and self.member is not None:
                self._receive_data(self.member, list(together), now)
            elif not is_data:
                only_data = False
                for datagram in together:
                    self._read(datagram, now)
        return only_data

    def _receive_data(self, member: Member, datagrams: list[bytes], now: Instant) -> None:
        """Give the member what is its own, unless it has stopped; whatever comes is a sign of life."""
        if self.active:
            self._drive(ReceiveMany(datagrams), now)
        else:
            for datagram in datagrams:
                member.recognize(datagram, now)
        for other, at in member.heard():
            self._peers.heard(other, at)

    def _is_data(self, datagram: bytes) -> bool:
        return group_of(datagram) == self._members_tag

    def _read(self, datagram: bytes, now: Instant) -> None:
        try:
            sender, messages = self._post.read(datagram)
            if name_of(sender) == self.name:
                raise Malformed("own-name")
            # what a majority decided is a fact, whoever tells it; of sides, an earlier life may tell one given up since
            counts = self._peers.heard(sender, now)
            for message in messages:
                if counts or (isinstance(message, Commit | Newer) and self.options.partition == "majority"):
                    self._hear(sender, message, now)
        except Malformed as garbage:
            self.counts["dropped-" + garbage.reason] += 1
            self._effects.append(Drop(garbage.reason))

    def _hear(self, sender: int, message: Message, now: Instant) -> None:
        if self.left:
            self._help(sender, message, now)
            return
        match message:
            case Alive():
                self._on_alive(sender, message, now)
            case Prepare():
                self._on_prepare(sender, message, now)
            case State():
                if self._agreement.take_state(sender, message):
                    self._close_first_phase(now)
            case Refusal():
                self._agreement.take_refusal(message, now)
            case Accept():
                self._on_accept(sender, message, now)
            case Accepted():
                self._on_accepted(sender, message, now)
            case Commit():
                self._learn(sender, message.change, now)
            case Newer():
                self._on_newer(sender, message.view, now)
            case Fetch():
                self._on_fetch(sender, message)
            case Fill():
                self._on_fill(message, now)
            case SnapshotRequest():
                reply = self._transfer.answer(message)
                if reply is not None:
                    self._say((sender,), reply)
            case SnapshotReply():
                self._effects += self._transfer.take(message)
            case _:
                assert_never(message)

    def _help(self, sender: int, message: Message, now: Instant) -> None:
        """After leaving, tell others no more than what they need to go on."""
        match message:
            case Alive():
                self._on_alive(sender, message, now)
            case Prepare():
                self._tell_if_behind(sender, message.view.id)
            case Accept():
                self._tell_if_behind(sender, message.change.old)
            case Fetch():
                self._on_fetch(sender, message)
            case _:
                pass

    # The member of the present view

    def _drive(self, event: Input, now: Instant) -> None:
        member = self.member
        assert member is not None
        self._emit(member.handle(event, now), now)

    def _emit(self, effects: Iterable[Effect], now: Instant) -> None:
        assert self._stay is not None
        if self._transfer.holds_back:
            for effect in effects:
                if isinstance(effect, Deliver):
                    self._show(effect)
                else:
                    self._effects.append(effect)
        else:
            self._effects += effects

    def _show(self, *effects: Effect) -> None:
        """Pass on what has its place in the application's stream, after the snapshot if one is due."""
        self._effects += self._transfer.shown(list(effects))

    def _tag(self, view: GroupView) -> int:
        """Give what every datagram of a view carries."""
        return view.tag

    # Signs of life

    def _on_alive(self, sender: int, alive: Alive, now: Instant) -> None:
        peer = self._peers.by_name[name_of(sender)]
        peer.view, peer.standing = alive.view, alive.standing
        if now >= self._learnt_at + self.options.retry_ns:  # else the news is on its way
            self._tell_if_behind(sender, alive.view)

    def _tell_if_behind(self, sender: int, view: ViewId) -> bool:
        """Tell one who knows an older view, or another side's, what ours is and how it came about."""
        if not self._agreement.is_news(view):
            return False
        if self._past is not None and self._past.old == view:
            self._say((sender,), Commit(self._past))
        else:
            self._say((sender,), Newer(self.view))
        return True

    def _joiners(self, now: Instant) -> list[int]:
        """List who wants to join this view; with sides, who has not chosen another."""
        joiners = self._peers.joiners(self.view, now)
        if self.options.partition == "each-side":
            return [other for other in joiners if other == self.id or self._peers.says(other, self.view.id)]
        return joiners

    # Phase one

    def _consider_proposing(self, now: Instant) -> None:
        agreement, unwanted = self._agreement, self._slowness.accused
        if agreement.decided is not None or not agreement.is_quorum(self._peers.living(now)):
            return
        joiners = self._joiners(now)
        candidates = self._peers.candidates(self.view, unwanted, joiners, now)
        if self.name not in candidates or self.view.lists(self.id) != (self.member is not None):
            return
        place = candidates.index(self.name)
        if agreement.promised > NO_BALLOT and (self._flush is not None or self.member is None):
            due = now >= agreement.progress_at + (place + 1) * self.options.patience_ns  # what was begun must end
        else:
            due = place == 0 and agreement.round is None
            due = due and self._peers.change_due(self.view, unwanted, joiners, now)
        if due:
            agreement.propose(self.id, dict.fromkeys((*self.view.names, *map(name_of, joiners))), now)
            self.counts["proposals"] += 1
            self._continue_round(now)

    def _continue_round(self, now: Instant) -> None:
        """Say again what was not answered."""
        current = self._agreement.round
        if current is None or current.retry_at > now:
            return
        current.retry_at = now + self.options.retry_ns
        for names, question in self._agreement.questions(self.id, self._flush):
            self._say_to_names(names, question)
        self._close_first_phase(now)

    def _on_prepare(self, sender: int, prepare: Prepare, now: Instant) -> None:
        self._agreement.heard_of(prepare.ballot)
        self._on_newer(sender, prepare.view, now)
        if self._tell_if_behind(sender, prepare.view.id) or prepare.view.id != self.view.id:
            return  # a member of both views has to finish the one before; it asks by its signs of life
        if self.view.lists(self.id) and self.member is None:
            return
        if self._promise(sender, prepare.ballot, now):
            self._offered |= self.member is None
            self._say((sender,), self._agreement.state(prepare.ballot, self.standing, self._flush))

    def _promise(self, sender: int, ballot: Ballot, now: Instant) -> bool:
        """Stop, and follow no lower ballot; say whether that could be promised."""
        before = self._agreement.promised
        if not self._agreement.promise(ballot, now):
            self._say((sender,), self._agreement.refusal(ballot))
            return False
        if self._agreement.promised != before:
            self._persist()
        if self.member is not None and self._flush is None:
            self._block(now)
        return True

    def _block(self, now: Instant) -> None:
        assert self.member is not None
        self._flush = self.flush_type(self.view, self.member, now)

    def _close_first_phase(self, now: Instant) -> None:
        """Propose a change when enough have answered and the living had time to."""
        agreement = self._agreement
        if not agreement.may_choose(self._peers.living(now), self.options.grace_ns, now):
            return
        current = agreement.round
        assert current is not None
        current.change = agreement.choose(self.config, self._slowness.accused, self._fits)
        if current.change is not None:
            current.retry_at = now
            self._continue_round(now)

    def _fits(self, size: int) -> bool:
        """Say whether the buffers that were configured suffice for a view of this size."""
        try:
            self.config.check(size, founding=False)
        except UsageError:
            return False
        return True

    # Phase two

    def _on_accept(self, sender: int, accept: Accept, now: Instant) -> None:
        self._agreement.heard_of(accept.ballot)
        if self._tell_if_behind(sender, accept.change.old) or not self._agreement.may_vote(accept, self.id):
            return
        if self.view.lists(self.id) and self.member is None:
            return
        if self._promise(sender, accept.ballot, now):
            self._agreement.accepting = accept
            self._accept_if_held(now)

    def _accept_if_held(self, now: Instant) -> None:
        """Accept a change once the whole cut is held; a name that has lost its view's messages holds nothing."""
        accept, accepted = self._agreement.accepting, self._agreement.accepted
        if accept is None or accept.ballot < self._agreement.promised:
            return
        if self._flush is not None and self._flush.lacking(accept.change.cut):
            if self._flush.fetch_at is None:
                self._fetch(self._flush, accept.change, now)
            return
        vote = self._agreement.accept()
        if self._agreement.accepted != accepted:
            self._persist()
        if vote is not None:
            self._say((vote.ballot[1],), vote)

    def _on_accepted(self, sender: int, accepted: Accepted, now: Instant) -> None:
        if not self._agreement.take_vote(sender, accepted):
            return
        if sender == self.id and self._agreement.round is not None:
            self._agreement.round.retry_at = now
        change = self._agreement.decision()
        if change is not None:
            names = dict.fromkeys((*self.view.names, *change.new.names))
            self._say_to_names((name for name in names if name != self.name), Commit(change))
            self._learn(self.id, change, now)

    # The decision

    def _learn(self, sender: int, change: Change, now: Instant) -> None:
        """Carry out a change that was decided."""
        if change.old != self.view.id or self.member is None:
            self._on_newer(sender, change.new, now, change)
        elif self._flush is not None and self._takes_part(change, self._flush):
            if self._agreement.decided is None:
                self._agreement.decided, self._agreement.round = change, None
                self._carry_out(change, self._flush, now)
        elif self._agreement.heeds(change.new, sender):
            self._past, self._past_flush = change, self._flush
            self._give_way(change.new, self._agreement.GIVES_WAY, now)

    def _takes_part(self, change: Change, flush: Flush) -> bool:
        """Say whether a change concerns this process: it is listed, or leaves and has no more than what was counted.

        A leaver that was not heard may hold, and safely keep back, what the others go on without.
        """
        return change.new.lists(self.id) or (self.leaving and flush.lies_within(change.cut))

    def _carry_out(self, change: Change, flush: Flush, now: Instant) -> None:
        """End the old view once the whole cut is held, and begin the new one."""
        if flush.lacking(change.cut):
            if flush.fetch_at is None:
                self._fetch(flush, change, now)
            return
        self._emit(flush.finish(change.cut, now), now)
        self._queue.extendleft(reversed(flush.member.submissions.take_back()))
        self._past, self._past_flush = change, flush
        if change.new.lists(self.id):
            self._install(change.new, now)
        else:
            self._adopt(change.new, now)
            self._persist()
            self._depart(now)

    def _on_newer(self, sender: int, view: GroupView, now: Instant, decision: Change | None = None) -> None:
        """Hear of another view, for which the cut before it is of no use or not known."""
        accepted, heeds = self._agreement.accepted, self._agreement.heeds(view, sender)
        if self.member is None:
            if self._may_adopt(sender, view, now):
                self._past, self._past_flush = decision, None
                if view.lists(self.id):
                    self._install(view, now)
                else:
                    self._adopt(view, now)
                    if self._offered:
                        self._begin_next_life(now)  # a view in between may have listed this one
                    self._persist()
        elif accepted is not None and accepted.change.new == view:
            self._learn(sender, accepted.change, now)  # so that was it
        elif heeds and (self.options.partition == "each-side" or not view.lists(self.id)):
            self._past, self._past_flush = decision, None
            self._give_way(view, self._agreement.GIVES_WAY, now)

    def _may_adopt(self, sender: int, view: GroupView, now: Instant) -> bool:
        """Say whether one who wants to join takes a view for the one to join, or to begin with if it is listed there.

        With sides, that is the strongest of which a member tells, unless nobody is left in it.
        """
        if self.options.partition == "majority":
            return view.id > self.view.id
        if view.id == self.view.id:
            return False
        if view.lists(self.id) or self._agreement.heeds(view, sender):
            return True
        return not self._peers.has_members(self.view, now) and (view.lists(sender) or view.id > self.view.id)

    def _adopt(self, view: GroupView, now: Instant) -> None:
        """Take a view for the newest."""
        self._agreement.follow(view, now)
        self._stay = self._flush = None
        self._peers.standing = "leaver" if self.leaving else "joiner"
        self._peers.meet(view.names, now)
        self._learnt_at = now
        self._slowness.begin(now)

    def _install(self, view: GroupView, now: Instant) -> None:
        """Begin a view as its member."""
        was_member = self.member is not None
        self._adopt(view, now)
        self._persist()
        self._stall(False)
        if not self.leaving:
            self._peers.standing = "member"
        self._trace("view", view=view)
        randomness = random.Random(self._random.getrandbits(64))
        self._stay = Stay(
            self.id, view, self._tag(view), self.config, self.member_type, randomness, traced=self._traced
        )
        self.counts["views"] += 1
        captures = self._transfer.begin(view, self.id, elder=was_member, now=now)
        self._show(Install(view.number, view.members, view.members[: view.elders]), *captures)
        self._beat_at = now  # tell the others at once
        self._send_queued(now)

    def _give_way(self, view: GroupView, how: Literal["excluded", "yielded"], now: Instant) -> None:
        """End this life, because the group goes on without it or another side stands, and come back in the next."""
        assert self._stay is not None
        self._effects += self._stay.member.output.unknown()
        self._queue.extendleft(reversed(self._stay.member.submissions.take_back()))
        self._transfer.forget()
        if self.leaving:
            self._adopt(view, now)
            self._persist()
            self._depart(now)
            return
        self.stalled = False
        self._effects.append(Notice(how))
        if how == "yielded":
            self._say_to_names(self._others_in_view(), Newer(view))  # all of a side give way together
        self.counts["exclusions"] += 1
        self._adopt(view, now)
        self._begin_next_life(now)
        self._persist()

    def _others_in_view(self) -> list[int]:
        return [name for name in self.view.names if name != self.name]

    def _begin_next_life(self, now: Instant) -> None:
        self._trace("leave", "excluded")
        self.id = self._peers.me = process(self.name, incarnation_of(self.id) + 1)
        self._offered = False
        self._beat_at = now

    def _depart(self, now: Instant) -> None:
        """Leave; stay within reach for those who do not know the new view yet."""
        self._trace("leave")
        self.left, self.stalled = True, False
        self._say_to_names(self._peers.by_name, Alive(self.view.id, "leaver"))
        if self._past is not None:  # who is alone waits only for those who have just left together with it
            self._linger_until = now + (1 if self.view.members == (self.id,) else 4) * self.options.suspect_ns

    # What is missing of a cut

    def _fetch(self, flush: Flush, change: Change, now: Instant) -> None:
        for names, fetch in flush.fetches(change, self.options.retry_ns, now):
            self._say_to_names((name for name in names if name != self.name), fetch)

    def _on_fetch(self, sender: int, fetch: Fetch) -> None:
        for flush in (self._flush, self._past_flush):
            if flush is not None and flush.view.id == fetch.view:
                for fill in flush.fills(fetch):
                    self._say((sender,), fill)

    def _on_fill(self, fill: Fill, now: Instant) -> None:
        flush, agreement = self._flush, self._agreement
        if flush is None or fill.view != self.view.id or not flush.take(fill):
            return
        if agreement.decided is not None:
            if not flush.lacking(agreement.decided.cut):
                self._carry_out(agreement.decided, flush, now)
        elif agreement.accepting is not None and not flush.lacking(agreement.accepting.change.cut):
            flush.fetched()
            self._accept_if_held(now)

    def _fetch_again(self, now: Instant) -> None:
        flush, agreement = self._flush, self._agreement
        if flush is None or flush.fetch_at is None or flush.fetch_at > now:
            return
        if flush.fetching_since is not None and now - flush.fetching_since > 8 * self.options.suspect_ns:
            self._give_up(now)
        elif agreement.decided is not None:
            self._fetch(flush, agreement.decided, now)
        elif agreement.accepting is not None:
            self._fetch(flush, agreement.accepting.change, now)
        else:
            flush.fetch_at = None

    def _give_up(self, now: Instant) -> None:
        """End this life because nobody has any more what is missing of the cut: who has lost it can only join anew."""
        decided = self._agreement.decided
        if decided is not None:
            self._past, self._past_flush = decided, None
        self._give_way(self.view if decided is None else decided.new, "excluded", now)

    # What is due

    def _do_what_is_due(self, now: Instant) -> None:
        """See to everything that time, or what has just happened, calls for."""
        while True:
            while self._inbox:
                self._hear(self.id, self._inbox.popleft(), now)
            if self.leaving and not self.left and self._is_alone(now):
                self._depart(now)
            if self.left:
                self._linger(now)
                return
            self._watch(now)
            self._continue_round(now)
            if not self._inbox:
                break
        self._fetch_again(now)
        self._ask_for_snapshot(now)
        if self._beat_at <= now:
            self._beat_at = now + self.options.heartbeat_ns
            self._say_to_names(self._peers.by_name, Alive(self.view.id, self.standing))

    def _ask_for_snapshot(self, now: Instant) -> None:
        self._effects += self._transfer.give_up(self.view)
        request = self._transfer.ask(self.view, now)
        if request is not None:
            self._say((request[0],), request[1])

    def _watch(self, now: Instant) -> None:
        """See who is alive, who is slow, and whether anything must be done about it."""
        self._forget_the_past()
        if self.member is not None:
            self._watch_for_a_stall(now)
            self._slowness.watch(self.member, self.active, self.view, now)
        self._consider_proposing(now)

    def _watch_for_a_stall(self, now: Instant) -> None:
        """Stop delivering while too few of the view are within reach, not counting those who have gone on from it.

        A view that is being ended and cannot end has stalled too; then only the next one says that all goes on.
        """
        living = self._peers.living(now)
        if self._flush is not None:
            if now - self._flush.since > self.options.stall_ns or not self._agreement.is_quorum(living):
                self._stall(True)
            return
        gone_on = {name for name, peer in self._peers.by_name.items() if peer.view > self.view.id}
        stalled = not self._agreement.is_quorum(living - gone_on)
        if stalled != self.stalled:
            self._stall(stalled)
            if self.active:
                self._slowness.stable_at = now
                self._peers.refresh(now)  # who was out of reach may be about to speak, like the others
                self._send_queued(now)
                self._drive(Wake(), now)

    def _stall(self, stalled: bool) -> None:
        if stalled != self.stalled:
            self.stalled = stalled
            self._effects.append(Notice("stalled" if stalled else "resumed"))

    def _send_queued(self, now: Instant) -> None:
        assert self.member is not None
        while self._queue and self.member.room:
            self._drive(self._queue.popleft(), now)

    def _forget_the_past(self) -> None:
        """Let the old view's messages go when all of the new one have begun it."""
        if self._past_flush is not None and all(
            other == self.id or self._peers.knows(other, self.view.id) for other in self.view.members
        ):
            self._past_flush = None

    def _linger(self, now: Instant) -> None:
        """After leaving, be there until a quorum of the new view knows of it or, if that is nobody else, all do."""
        if self._linger_until is None:
            return
        knowing = {name_of(other) for other in self.view.members if self._peers.knows(other, self.view.id)}
        alone = self.view.members == (self.id,)
        done = not self._peers.behind(self.view.id, now) if alone else self.view.is_quorum(knowing)
        if done or self._linger_until <= now:
            self._linger_until = None

    # Saying and keeping

    def _trace(self, event: str, detail: str | None = None, view: GroupView | None = None) -> None:
        """Say what belongs in the trace of this life, if it is traced."""
        if self._traced:
            number, members = (None, None) if view is None else (view.number, view.members)
            self._effects.append(TraceRow(self.id, event, None, None, None, detail, number, members))

    def _say(self, to: Iterable[int], message: Message) -> None:
        self._say_to_names(map(name_of, to), message)

    def _say_to_names(self, names: Iterable[int], message: Message) -> None:
        others = tuple(dict.fromkeys(names))
        if self.name in others:
            self._inbox.append(message)
            others = tuple(name for name in others if name != self.name)
        if others:
            self.counts[message.kind] += 1
            self._effects += [Send(others, datagram) for datagram in self._post.write(self.id, message)]

    def _persist(self) -> None:
        agreement = self._agreement
        saved = Saved(incarnation_of(self.id), self.view, agreement.promised, agreement.accepted, self._past)
        self._effects.append(Persist(msgspec.msgpack.encode(saved)))
