"""A process of a group with views: finds out who is alive, agrees on the next view, and runs a member in each view.

Views follow one another by consensus. The acceptors of the next view are the names in the present one (before the
first view: the founders), and what they promise and accept outlives a crash. A proposer asks everyone to stop and to
tell what it holds; the new view is whoever answers; the cut is what any of them holds. A change is accepted by whoever
holds the whole cut, decided by a quorum, and a fact from then on. `docs/membership.md` has the rules one by one.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from math import inf
from typing import ClassVar, Literal, Protocol, TypeAlias, assert_never

import msgspec

from antiphon.errors import LocalProtocolError, UsageError
from antiphon.protocol.config import Config
from antiphon.protocol.machine import (
    MILLISECOND,
    SECOND,
    Capture,
    Deliver,
    Drop,
    Duration,
    Effect,
    Input,
    Install,
    Instant,
    Leave,
    Notice,
    Persist,
    Receive,
    ReceiveMany,
    Restore,
    Send,
    Snapshot,
    Stable,
    Submit,
    Wake,
    earliest,
)
from antiphon.protocol.member import Record, View
from antiphon.protocol.membership.flush import Flush, ViewMember, cut_of
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
from antiphon.protocol.membership.peers import Peers
from antiphon.protocol.membership.views import (
    NAMES_MAX,
    NO_BALLOT,
    Ballot,
    Change,
    Cut,
    GroupView,
    before_the_first,
    incarnation_of,
    name_of,
    process,
)
from antiphon.protocol.wire import Malformed, group_of, group_tag

ProcessInput: TypeAlias = Input | Snapshot


class MembershipOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times, and what to do with those who are too slow."""

    heartbeat_ns: Duration = 100 * MILLISECOND
    suspect_ns: Duration = 500 * MILLISECOND  # a name that is silent for longer is taken for dead
    retry_ns: Duration = 50 * MILLISECOND  # what was not answered is said again
    grace_ns: Duration = 200 * MILLISECOND  # how long the living may take to answer; at least 3 round trips
    patience_ns: Duration = 400 * MILLISECOND  # a change that takes longer is taken over, by the next in rank
    slow: Literal["block", "drop"] = "block"  # a member that holds all back: wait for it, or go on without it
    slow_ns: Duration = SECOND  # without anything becoming stable, until that is so
    transfer: bool = False  # whether joiners are given an older member's application state
    piece_bytes: int = 1_200  # what is longer goes in pieces

    def check(self) -> None:
        """Raise a `UsageError` that names the key, unless these can work."""
        for key, value in msgspec.structs.asdict(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise UsageError(f"membership.{key}: must be at least 1, not {value}")
        if self.suspect_ns < 2 * self.heartbeat_ns:
            raise UsageError("membership.suspect_ns: give at least two heartbeats, or the living are suspected")


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """What a name must not forget."""

    incarnation: int
    view: GroupView  # the newest known
    promised: Ballot
    accepted: Acceptance | None
    decision: Change | None  # which made that view


class Journal(Protocol):
    """Where one life of a process writes its trace."""

    def record(
        self, now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
    ) -> None:
        """Note an event."""

    def install(self, now: Instant, number: int, members: tuple[int, ...]) -> None:
        """Note that a view begins."""


class _Round:
    """A ballot of one's own."""

    def __init__(self, ballot: Ballot, targets: Iterable[int], now: Instant) -> None:
        self.ballot, self.targets, self.since, self.retry_at = ballot, tuple(targets), now, now
        self.states: dict[int, State] = {}
        self.change: Change | None = None  # what is proposed, once enough have answered
        self.votes: set[int] = set()  # names


class Process:
    """One name's place in a group, through views and incarnations: a `Machine`."""

    member_type: ClassVar[type[ViewMember]] = ViewMember  # a test may put others in their places
    flush_type: ClassVar[type[Flush]] = Flush

    def __init__(
        self,
        name: int,
        names: Iterable[int],
        config: Config,
        options: MembershipOptions,
        randomness: random.Random,
        journal: Callable[[int], Journal],
        now: Instant,
        saved: bytes | None = None,
    ) -> None:
        """Start a name's next life; `names` are the founders, `saved` is what the last life persisted."""
        options.check()
        if not 0 <= name < NAMES_MAX:
            raise UsageError(f"name: 0 to {NAMES_MAX - 1}, not {name}")
        founders = tuple(names)
        config.check(max(1, len(founders)), founding=False)
        if config.ordering_options.get("skip_after_ns"):
            raise UsageError("ordering.skip_after_ns: with views, a gap lasts until the view ends; leave it out")
        self.name, self.config, self.options = name, config, options
        self._random, self._open_journal = randomness, journal
        self._post = Post(config.group, options.piece_bytes)
        self._members_tag = group_tag(config.group)
        self._peers = Peers((other for other in founders if other != name), options.suspect_ns, now)
        last = Saved(0, before_the_first(founders), NO_BALLOT, None, None)
        if saved is not None:
            last = msgspec.msgpack.decode(saved, type=Saved)
        self.id = process(name, last.incarnation + 1)
        self.view, self._promised, self._accepted = last.view, last.promised, last.accepted
        self._journal = journal(self.id)
        self._peers.meet((other for other in self.view.names if other != name), now)
        self.member: ViewMember | None = None
        self._flush: Flush | None = None  # the member was stopped: its view ends
        self._past = last.decision  # how the newest view came about: someone may not know
        self._past_flush: Flush | None = None  # and what was held in the view before
        self._before: dict[int, int] = {}  # per member, the number of its messages in earlier views
        self._offered = False  # to join: some view may list this process already
        self._round: _Round | None = None
        self._round_seen = last.promised[0]  # the highest round heard of
        self._accepting: Accept | None = None  # to be accepted once the cut is held
        self._decided: Change | None = None  # to be carried out once the cut is held
        self._fetch_at: Instant | None = None
        self._fetching_since: Instant | None = None
        self._progress_at: Instant = now
        self._learnt_at: Instant = now - options.retry_ns  # of the newest view
        self._queue: deque[Submit] = deque()
        self._own_delivered = 0
        self._stable_at: Instant = now
        self._accused: frozenset[int] = frozenset()  # too slow to wait for
        self._awaited: tuple[int, tuple[int, ...]] | None = None  # the view whose snapshot is due, and who has it
        self._held_back: list[Effect] = []  # what the application sees after its snapshot
        self._snapshot: Snapshot | None = None
        self._ask_at: Instant = now
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
    def deadline(self) -> Instant | None:
        """When this process wants to be woken."""
        if self.left:
            return self._linger_until
        round_at = None if self._round is None else self._round.retry_at
        member_at = self.member.deadline if self.member is not None and self.active else None
        return earliest(self._beat_at, round_at, self._fetch_at, member_at)

    @property
    def active(self) -> bool:
        """Whether there is a view in which messages are sent and delivered now."""
        return self.member is not None and self._flush is None and not self.stalled

    @property
    def room(self) -> int:
        """How many more submissions may wait here."""
        if self.left or self.leaving:
            return 0
        if self.member is not None and self.active:
            return self.member.room
        waiting = len(self._queue) + (len(self.member._waiting) if self.member is not None else 0)
        return max(0, self.config.queue - waiting)

    @property
    def held(self) -> int:
        """How many messages are kept in buffers."""
        return self.member.held if self.member is not None else 0

    @property
    def drained(self) -> bool:
        """Whether nothing waits and nothing is kept."""
        return not self._queue and not self._held_back and (self.member is None or self.member.drained)

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
            self._progress_at = now
        only_data = False
        match event:
            case Receive():
                only_data = self._receive((event.datagram,), now)
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
                self._snapshot = event
            case _:
                assert_never(event)
        if not only_data or now >= self._look_at:
            self._look_at = now + self.options.retry_ns // 5
            self._do_what_is_due(now)
        return self._effects

    def _submit(self, message: Submit, now: Instant) -> None:
        if self.room < 1:
            raise LocalProtocolError(f"{self.config.queue} submissions wait already, or this member leaves")
        if self.member is not None and self.active:
            self._drive(message, now)
        else:
            self._queue.append(message)

    def _leave(self, now: Instant) -> None:
        self._queue.clear()
        self.leaving = True
        alone = self.view.members == (self.id,) and self._flush is None and not self._joiners(now)
        if self.member is None or alone:
            self._depart(now)
        else:
            self.member.unsent()
            self._beat_at = now

    def _receive(self, datagrams: Iterable[bytes], now: Instant) -> bool:
        """Take datagrams in their order, the member's in as few turns as that allows; say if all were the member's."""
        only_data = self.active
        for is_data, together in groupby(datagrams, self._is_data):
            if is_data and self.member is not None and self.active:
                self._drive(ReceiveMany(list(together)), now)
            elif not is_data:
                only_data = False
                for datagram in together:
                    self._read(datagram, now)
        return only_data

    def _is_data(self, datagram: bytes) -> bool:
        return group_of(datagram) == self._members_tag

    def _read(self, datagram: bytes, now: Instant) -> None:
        try:
            sender, messages = self._post.read(datagram)
            if name_of(sender) == self.name:
                raise Malformed("own-name")
            current = self._peers.heard(sender, now)
            for message in messages:
                if current or isinstance(message, Commit | Newer):
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
                self._on_state(sender, message, now)
            case Refusal():
                self._on_refusal(message, now)
            case Accept():
                self._on_accept(sender, message, now)
            case Accepted():
                self._on_accepted(sender, message, now)
            case Commit():
                self._learn(message.change, now)
            case Newer():
                self._on_newer(message.view, now)
            case Fetch():
                self._on_fetch(sender, message)
            case Fill():
                self._on_fill(message, now)
            case SnapshotRequest():
                if self._snapshot is not None and self._snapshot.view == message.view:
                    self._say((sender,), SnapshotReply(message.view, self._snapshot.state))
            case SnapshotReply():
                self._on_snapshot(message)
            case _:
                assert_never(message)

    def _help(self, sender: int, message: Message, now: Instant) -> None:
        """After leaving, tell others no more than what they need to go on."""
        match message:
            case Alive():
                self._on_alive(sender, message, now)
            case Prepare():
                self._tell_if_behind(sender, message.view.number)
            case Accept():
                self._tell_if_behind(sender, message.change.old)
            case Fetch():
                self._on_fetch(sender, message)
            case _:
                pass

    # The member of the present view

    def _drive(self, event: Input, now: Instant) -> None:
        """Give the member an input, and translate what follows from the view's terms to the group's."""
        assert self.member is not None
        self._emit(self.member.handle(event, now), now)

    def _emit(self, effects: Iterable[Effect], now: Instant) -> None:
        for effect in effects:
            match effect:
                case Send():
                    targets = self.view.members if effect.to is None else effect.to
                    names = tuple(name_of(other) for other in targets if other != self.id)
                    if names:
                        self._effects.append(Send(names, effect.datagram))
                case Deliver():
                    self._own_delivered += effect.sender == self.id
                    seq = effect.seq + self._before[effect.sender]
                    self._show(Deliver(effect.sender, seq, effect.payload))
                case Stable():
                    self._stable_at = now
                    self._effects.append(Stable(effect.sender, effect.seq + self._before[effect.sender]))
                case Drop(sender=int(sender), seq=int(seq)):
                    self._effects.append(Drop(effect.reason, sender, seq + self._before[sender]))
                case _:
                    self._effects.append(effect)

    def _show(self, effect: Effect) -> None:
        """Pass on what has its place in the application's stream, after the snapshot if one is due."""
        (self._effects if self._awaited is None else self._held_back).append(effect)

    def _record_in(self, view: GroupView) -> Record:
        journal, before = self._journal, dict(zip(view.members, view.sent_before, strict=True))

        def record(
            now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
        ) -> None:
            shown = seq if seq is None or sender is None else seq + before[sender]
            journal.record(now, event, sender, shown, size, detail)

        return record

    # Signs of life

    @property
    def standing(self) -> Standing:
        """What this process is in the newest view, or wants to be."""
        if self.leaving:
            return "leaver"
        return "joiner" if self.member is None else "member"

    def _others(self) -> tuple[int, ...]:
        return tuple(self._peers.by_name)

    def _on_alive(self, sender: int, alive: Alive, now: Instant) -> None:
        peer = self._peers.by_name[name_of(sender)]
        peer.view, peer.standing = alive.view, alive.standing
        if now >= self._learnt_at + self.options.retry_ns:  # else the news is on its way
            self._tell_if_behind(sender, alive.view)

    def _tell_if_behind(self, sender: int, view: int) -> bool:
        """Tell one who knows an older view what came of it."""
        if view >= self.view.number:
            return False
        if self._past is not None and self._past.old == view:
            self._say((sender,), Commit(self._past))
        else:
            self._say((sender,), Newer(self.view))
        return True

    def _is_quorum(self, names: Collection[int]) -> bool:
        """Say whether these names decide what follows the newest view."""
        return self.view.is_quorum(names)

    def _living_names(self, now: Instant) -> set[int]:
        living = {name for name in self._peers.by_name if not self._peers.suspected(name, now)}
        return living | {self.name}

    def _lives(self, other: int, now: Instant) -> bool:
        return other == self.id if name_of(other) == self.name else self._peers.lives(other, now)

    def _joiners(self, now: Instant) -> list[int]:
        """List who is alive and wants to join the newest view, by name; this process too if it does."""
        joiners = [
            peer.process
            for name, peer in self._peers.by_name.items()
            if peer.process is not None
            and peer.standing == "joiner"
            and not self._peers.suspected(name, now)
            and not self.view.lists(peer.process)
        ]
        if self.member is None and not self.leaving:
            joiners.append(self.id)
        return sorted(joiners, key=name_of)

    # When to propose

    def _candidates(self, now: Instant) -> list[int]:
        """List the names that may propose the next view, in order: living members, or those who join if there are none.

        Before the first view, a founder that was not heard yet may be about to.
        """
        members = [
            name_of(member)
            for member in self.view.members
            if self.view.number > 0 and self._lives(member, now) and member not in self._leavers() | self._accused
        ]
        if members:
            return members
        unheard = (name for name, peer in self._peers.by_name.items() if peer.process is None)
        coming = {name for name in unheard if name in self.view.names and not self._peers.suspected(name, now)}
        return sorted(coming.union(map(name_of, self._joiners(now))))

    def _leavers(self) -> set[int]:
        leavers = {peer.process for peer in self._peers.by_name.values() if peer.standing == "leaver"}
        return {other for other in leavers if other is not None} | ({self.id} if self.leaving else set())

    def _change_due(self, now: Instant) -> bool:
        """Say whether the newest view is no longer what it should be."""
        if self._joiners(now):
            return True
        unwanted = self._leavers() | self._accused
        return any(member in unwanted or not self._lives(member, now) for member in self.view.members)

    def _consider_proposing(self, now: Instant) -> None:
        if self._decided is not None or not self._is_quorum(self._living_names(now)):
            return
        candidates = self._candidates(now)
        if self.name not in candidates or self.view.lists(self.id) != (self.member is not None):
            return
        place = candidates.index(self.name)
        if self._promised > NO_BALLOT and (self._flush is not None or self.member is None):
            due = now >= self._progress_at + (place + 1) * self.options.patience_ns  # what was begun must end
        else:
            due = place == 0 and self._round is None and self._change_due(now)
        if due:
            self._propose(now)

    def _propose(self, now: Instant) -> None:
        self._round_seen += 1
        ballot = (self._round_seen, self.id)
        joiners = [name_of(joiner) for joiner in self._joiners(now)]
        self._round = _Round(ballot, dict.fromkeys((*self.view.names, *joiners)), now)
        self._progress_at = now
        self.counts["proposals"] += 1
        self._continue_round(now)

    def _continue_round(self, now: Instant) -> None:
        """Say again what was not answered."""
        current = self._round
        if current is None or current.retry_at > now:
            return
        current.retry_at = now + self.options.retry_ns
        if current.change is None:
            answered = set(map(name_of, current.states))
            self._say_to_names(set(current.targets) - answered, Prepare(current.ballot, self.view))
            self._close_first_phase(now)
        else:
            # who proposes holds the cut before anyone who has lost its messages may vote for it
            holds = self._flush is None or self.name in current.votes
            others = set(self.view.names) - current.votes if holds else {self.name}
            self._say_to_names(others, Accept(current.ballot, current.change))

    # Phase one

    def _on_prepare(self, sender: int, prepare: Prepare, now: Instant) -> None:
        self._round_seen = max(self._round_seen, prepare.ballot[0])
        if self._tell_if_behind(sender, prepare.view.number):
            return
        if prepare.view.number > self.view.number:
            self._on_newer(prepare.view, now)
            if prepare.view.number > self.view.number:
                return  # a member of both has to finish the one before; it asks by its signs of life
        if self.view.lists(self.id) and self.member is None:
            return
        if not self._promise(prepare.ballot, now):
            self._say((sender,), Refusal(prepare.ballot, self.view.number, self._promised))
            return
        flush = self._flush
        self._offered |= self.member is None
        self._say(
            (sender,),
            State(
                prepare.ballot,
                self.view.number,
                self.standing,
                self._accepted,
                () if flush is None else flush.reach,
                0 if flush is None else flush.member.sent,
                b"" if flush is None else flush.claim,
            ),
        )

    def _promise(self, ballot: Ballot, now: Instant) -> bool:
        """Stop, and follow no lower ballot; say whether that could be promised."""
        if ballot < self._promised:
            return False
        if ballot > self._promised:
            self._promised = ballot
            self._progress_at = now
            self._persist()
            if self._round is not None and self._round.ballot < ballot:
                self._round = None
        if self.member is not None and self._flush is None:
            self._block()
        return True

    def _block(self) -> None:
        assert self.member is not None
        self._flush = self.flush_type(self.view, self.member)

    def _on_state(self, sender: int, state: State, now: Instant) -> None:
        current = self._round
        if current is None or current.ballot != state.ballot or current.change is not None:
            return
        if state.view != self.view.number or len(state.reach) not in (0, len(self.view.members)):
            return
        current.states[sender] = state
        self._close_first_phase(now)

    def _close_first_phase(self, now: Instant) -> None:
        """Propose a change when enough have answered and the living had time to."""
        current = self._round
        assert current is not None
        answered = set(map(name_of, current.states))
        if not self._is_quorum(answered):
            return
        living = self._living_names(now)
        silent = any(name in living and name not in answered for name in current.targets)
        if silent and now < current.since + self.options.grace_ns:
            return
        current.change = self._choose(current)
        if current.change is not None:
            current.retry_at = now
            self._continue_round(now)

    def _choose(self, current: _Round) -> Change | None:
        """Take what may have been decided already; else whoever answered, and all that they hold."""
        states = self._states_that_bind(current.states)
        bound = self._bound(states)
        if bound is not None:
            return bound.change
        latest = {name_of(other): other for other in sorted(states)}  # of each name the last life
        alive = [
            other for other in latest.values() if states[other].standing != "leaver" and other not in self._accused
        ]
        held = {member: states[member] for member in self.view.members if member in states and states[member].reach}
        elders = [member for member in held if member in alive]
        joiners = sorted((other for other in alive if not states[other].reach), key=name_of)
        if elders:
            joiners = joiners[: len(elders)]  # if they all die at once, the others are still a quorum
        while joiners and not self._fits(len(elders) + len(joiners)):
            joiners.pop()
        if not elders and not joiners:
            return None
        ranks = {member: rank for rank, member in enumerate(self.view.members)}
        before = [self.view.sent_before[ranks[member]] + held[member].sent for member in elders]
        new = GroupView(
            self.view.number + 1,
            current.ballot,
            (*elders, *joiners),
            (*before, *(0 for _ in joiners)),
            len(elders),
        )
        return Change(self.view.number, new, self._cut(held))

    def _fits(self, size: int) -> bool:
        """Say whether the buffers that were configured suffice for a view of this size."""
        try:
            self.config.check(size, founding=False)
        except UsageError:
            return False
        return True

    def _cut(self, held: dict[int, State]) -> Cut:
        """Find what all that go on deliver of this view."""
        return cut_of(self.view, self.config, held)

    def _tag(self, view: GroupView) -> int:
        """Give what every datagram of a view carries."""
        return view.tag

    def _bound(self, states: dict[int, State]) -> Acceptance | None:
        """Find the change that may have been decided already: the one accepted with the highest ballot."""
        accepted = (state.accepted for state in states.values() if state.accepted is not None)
        return max(accepted, key=lambda acceptance: acceptance.ballot, default=None)

    def _states_that_bind(self, states: dict[int, State]) -> dict[int, State]:
        """Leave out, if the others are still a quorum, those who accepted a change and then lost its messages.

        A quorum that knows of no such change proves that it was not decided. To propose it again could block for ever
        those who would have to hold its cut.
        """
        members = [state for state in states.values() if state.reach]
        latest = self._bound(states)
        if latest is None or not members:
            return states
        if any(state.accepted == latest for state in members):
            return states  # it holds the whole cut
        others = {other: state for other, state in states.items() if state.accepted != latest}
        return self._states_that_bind(others) if self._is_quorum(set(map(name_of, others))) else states

    def _on_refusal(self, refusal: Refusal, now: Instant) -> None:
        self._round_seen = max(self._round_seen, refusal.promised[0])
        if self._round is not None and self._round.ballot == refusal.ballot:
            self._round = None
            self._progress_at = now

    # Phase two

    def _on_accept(self, sender: int, accept: Accept, now: Instant) -> None:
        self._round_seen = max(self._round_seen, accept.ballot[0])
        if self._tell_if_behind(sender, accept.change.old) or accept.change.old > self.view.number:
            return
        if self.name not in self.view.names or (self.view.lists(self.id) and self.member is None):
            return
        if not self._promise(accept.ballot, now):
            self._say((sender,), Refusal(accept.ballot, self.view.number, self._promised))
            return
        self._accepting = accept
        self._accept_if_held(now)

    def _accept_if_held(self, now: Instant) -> None:
        """Accept a change once the whole cut is held; a name that has lost its view's messages holds nothing."""
        accept = self._accepting
        if accept is None or accept.ballot < self._promised:
            return
        if self._flush is not None and self._flush.lacking(accept.change.cut):
            if self._fetch_at is None:
                self._fetch(accept.change, now)
            return
        self._accepting = None
        if self._accepted is None or self._accepted.ballot != accept.ballot:
            self._accepted = Acceptance(accept.ballot, accept.change)
            self._persist()
        self._say((accept.ballot[1],), Accepted(accept.ballot, accept.change.old))

    def _on_accepted(self, sender: int, accepted: Accepted, now: Instant) -> None:
        current = self._round
        if current is None or current.change is None or current.ballot != accepted.ballot:
            return
        current.votes.add(name_of(sender))
        if sender == self.id:
            current.retry_at = now
        if self._is_quorum(current.votes):
            change = current.change
            names = dict.fromkeys((*self.view.names, *change.new.names))
            self._say_to_names((name for name in names if name != self.name), Commit(change))
            self._learn(change, now)

    # The decision

    def _learn(self, change: Change, now: Instant) -> None:
        """Carry out a change that was decided."""
        if change.new.number <= self.view.number:
            return
        if change.old != self.view.number or self.member is None:
            self._on_newer(change.new, now, change)
        elif self._flush is not None and (change.new.lists(self.id) or self.leaving):
            if self._decided is None:
                self._decided, self._round = change, None
                self._carry_out(now)
        else:
            self._past, self._past_flush = change, self._flush
            self._excluded(change.new, now)

    def _carry_out(self, now: Instant) -> None:
        """End the old view once the whole cut is held, and begin the new one."""
        change, flush = self._decided, self._flush
        assert change is not None
        assert flush is not None
        if flush.lacking(change.cut):
            if self._fetch_at is None:
                self._fetch(change, now)
            return
        self._emit(flush.finish(change.cut, now), now)
        self._queue.extendleft(reversed(flush.member.unsent()))
        self._past, self._past_flush = change, flush
        if change.new.lists(self.id):
            self._install(change.new, now)
        else:
            self._adopt(change.new, now)
            self._persist()
            self._depart(now)

    def _on_newer(self, view: GroupView, now: Instant, decision: Change | None = None) -> None:
        """Hear of a newer view, in which the cut before it is of no use or not known."""
        if view.number <= self.view.number:
            return
        if self._accepted is not None and self._accepted.change.new == view and self.member is not None:
            self._learn(self._accepted.change, now)  # so that was it
        elif self.member is None:
            self._past, self._past_flush = decision, None
            if view.lists(self.id):
                self._install(view, now)
            else:
                self._adopt(view, now)
                if self._offered:
                    self._begin_next_life(now)  # a view in between may have listed this one
                self._persist()
        elif not view.lists(self.id):
            self._past, self._past_flush = decision, None
            self._excluded(view, now)

    def _adopt(self, view: GroupView, now: Instant) -> None:
        """Take a view for the newest; what was promised concerned the one before."""
        if view.number > self.view.number:
            self.view, self._promised, self._accepted = view, NO_BALLOT, None
        self.member = self._flush = self._round = self._accepting = self._decided = None
        self._fetch_at = self._fetching_since = None
        self._progress_at = self._stable_at = self._learnt_at = now
        self._accused = frozenset()
        self._peers.meet((name for name in view.names if name != self.name), now)

    def _install(self, view: GroupView, now: Instant) -> None:
        """Begin a view as its member."""
        was_member = self.member is not None
        self._adopt(view, now)
        self._persist()
        self._stall(False)
        self._before = dict(zip(view.members, view.sent_before, strict=True))
        self._own_delivered = 0
        self._journal.install(now, view.number, view.members)
        randomness = random.Random(self._random.getrandbits(64))
        self.member = self.member_type(
            self.id, View(self._tag(view), view.members), self.config, randomness, self._record_in(view)
        )
        self.counts["views"] += 1
        if self.options.transfer and not was_member and view.elders:
            self._awaited, self._ask_at = (view.number, view.members[: view.elders]), now
        self._show(Install(view.number, view.members))
        if self.options.transfer and was_member and view.elders < len(view.members):
            self._show(Capture(view.number))
        self._beat_at = now  # tell the others at once
        while self._queue and self.member.room:
            self._drive(self._queue.popleft(), now)

    def _excluded(self, view: GroupView, now: Instant) -> None:
        """Hear that the group goes on without this process: end this life, and come back in the next."""
        assert self.member is not None
        for seq in range(self._own_delivered + 1, self.member.sent + 1):
            self._effects.append(Drop("unknown", self.id, seq + self._before[self.id]))
        self._queue.extendleft(reversed(self.member.unsent()))
        self._awaited, self._held_back = None, []
        if self.leaving:
            self._adopt(view, now)
            self._persist()
            self._depart(now)
            return
        self.stalled = False
        self._effects.append(Notice("excluded"))
        self.counts["exclusions"] += 1
        self._adopt(view, now)
        self._begin_next_life(now)
        self._persist()

    def _begin_next_life(self, now: Instant) -> None:
        self._journal.record(now, "leave", None, None, None, "excluded")
        self.id = process(self.name, incarnation_of(self.id) + 1)
        self._journal = self._open_journal(self.id)
        self._offered = False
        self._beat_at = now

    def _depart(self, now: Instant) -> None:
        """Leave; stay within reach for those who do not know the new view yet."""
        self._journal.record(now, "leave", None, None, None, None)
        self.left, self.stalled = True, False
        self._say_to_names(self._others(), Alive(self.view.number, "leaver"))
        self._linger_until = now + 4 * self.options.suspect_ns if self._past is not None else None

    # What is missing of a cut

    def _fetch(self, change: Change, now: Instant) -> None:
        assert self._flush is not None
        ranges = self._flush.lacking(change.cut)
        first = self._fetch_at is None
        if self._fetching_since is None:
            self._fetching_since = now
        self._fetch_at = now + self.options.retry_ns
        if first:
            for holder in sorted({change.cut.holders[rank] for rank, _, _ in ranges}):
                mine = [part for part in ranges if change.cut.holders[part[0]] == holder]
                self._say((holder,), Fetch(change.old, mine))
        else:  # the holder may be gone, but others may have fetched it too
            names = dict.fromkeys((*self.view.names, *change.new.names))
            self._say_to_names((name for name in names if name != self.name), Fetch(change.old, ranges))

    def _on_fetch(self, sender: int, fetch: Fetch) -> None:
        for flush in (self._flush, self._past_flush):
            if flush is not None and flush.view.number == fetch.view:
                for fill in flush.fills(fetch):
                    self._say((sender,), fill)

    def _on_fill(self, fill: Fill, now: Instant) -> None:
        if self._flush is None or fill.view != self.view.number or not self._flush.take(fill):
            return
        if self._decided is not None:
            if not self._flush.lacking(self._decided.cut):
                self._carry_out(now)
        elif self._accepting is not None and not self._flush.lacking(self._accepting.change.cut):
            self._fetch_at = self._fetching_since = None
            self._accept_if_held(now)

    # State transfer

    def _on_snapshot(self, reply: SnapshotReply) -> None:
        if self._awaited is not None and self._awaited[0] == reply.view:
            self._awaited = None
            self._effects.append(Restore(reply.view, reply.state))
            self._release_held_back()

    def _release_held_back(self) -> None:
        held_back, self._held_back = self._held_back, []
        self._effects += held_back

    def _ask_for_snapshot(self, now: Instant) -> None:
        if self._awaited is None or self._ask_at > now:
            return
        self._ask_at = now + self.options.retry_ns
        view, elders = self._awaited
        remaining = [elder for elder in elders if self.view.lists(elder)]
        if remaining:
            self._say((remaining[self.counts["snapshot-request"] % len(remaining)],), SnapshotRequest(view))
        else:
            self._awaited = None  # nobody has it any more: the application begins with what it has
            self._release_held_back()

    # What is due

    def _do_what_is_due(self, now: Instant) -> None:
        """See to everything that time, or what has just happened, calls for."""
        while True:
            while self._inbox:
                self._hear(self.id, self._inbox.popleft(), now)
            if self.left:
                self._linger(now)
                return
            self._watch(now)
            self._continue_round(now)
            if not self._inbox:
                break
        if self._fetch_at is not None and self._fetch_at <= now:
            self._fetch_again(now)
        self._ask_for_snapshot(now)
        if self._beat_at <= now:
            self._beat_at = now + self.options.heartbeat_ns
            self._say_to_names(self._others(), Alive(self.view.number, self.standing))

    def _watch(self, now: Instant) -> None:
        """See who is alive, who is slow, and whether anything must be done about it."""
        self._forget_the_past()
        if self.member is not None:
            self._watch_for_a_stall(now)
            self._watch_the_slow(now)
        self._consider_proposing(now)

    def _watch_for_a_stall(self, now: Instant) -> None:
        """Stop delivering while too few of the view are within reach, not counting those who have gone on from it."""
        gone_on = {name for name, peer in self._peers.by_name.items() if peer.view > self.view.number}
        stalled = not self._is_quorum(self._living_names(now) - gone_on)
        if stalled != self.stalled and self._flush is None:
            self._stall(stalled)
            if self.active:
                self._stable_at = now
                self._peers.refresh(now)  # who was out of reach may be about to speak, like the others
                self._resume(now)

    def _stall(self, stalled: bool) -> None:
        if stalled != self.stalled:
            self.stalled = stalled
            self._effects.append(Notice("stalled" if stalled else "resumed"))

    def _resume(self, now: Instant) -> None:
        assert self.member is not None
        while self._queue and self.member.room:
            self._drive(self._queue.popleft(), now)
        self._drive(Wake(), now)

    def _watch_the_slow(self, now: Instant) -> None:
        assert self.member is not None
        if not self.active or self.member.held == 0:
            self._stable_at = now
        elif self.options.slow == "drop" and now - self._stable_at > self.options.slow_ns:
            lag = {other: inf if lacks is None else lacks for other, lacks in self.member.lag().items()}
            slow = frozenset(other for other, lacks in lag.items() if lacks == max(lag.values()))
            if self._is_quorum({name_of(other) for other in self.view.members if other not in slow}):
                self._accused = slow  # else it is rather this process that is cut off
            self._stable_at = now

    def _fetch_again(self, now: Instant) -> None:
        if self._flush is None:
            self._fetch_at = None
        elif self._fetching_since is not None and now - self._fetching_since > 8 * self.options.suspect_ns:
            self._give_up(now)
        elif self._decided is not None:
            self._fetch(self._decided, now)
        elif self._accepting is not None:
            self._fetch(self._accepting.change, now)
        else:
            self._fetch_at = None

    def _give_up(self, now: Instant) -> None:
        """End this life because nobody has any more what is missing of the cut: who has lost it can only join anew."""
        decided = self._decided
        if decided is not None:
            self._past, self._past_flush = decided, None
        self._excluded(self.view if decided is None else decided.new, now)

    def _forget_the_past(self) -> None:
        """Let the old view's messages go when all of the new one have begun it."""
        if self._past_flush is not None and all(
            other == self.id or self._knows(other, self.view.number) for other in self.view.members
        ):
            self._past_flush = None

    def _knows(self, other: int, number: int) -> bool:
        peer = self._peers.by_name[name_of(other)] if name_of(other) != self.name else None
        return peer is not None and peer.process == other and peer.view >= number

    def _linger(self, now: Instant) -> None:
        """After leaving, be there until a quorum of the new view knows of it."""
        if self._linger_until is None:
            return
        knowing = {name_of(other) for other in self.view.members if self._knows(other, self.view.number)}
        if self._linger_until <= now or self._is_quorum(knowing):
            self._linger_until = None

    # Saying and keeping

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
        saved = Saved(incarnation_of(self.id), self.view, self._promised, self._accepted, self._past)
        self._effects.append(Persist(msgspec.msgpack.encode(saved)))
