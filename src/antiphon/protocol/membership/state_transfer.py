"""State transfer: a joiner's application sees nothing of its first view before it has an older member's state.

Members from before capture the application's state where the view begins, each at that point of its stream, and keep
it until no joiner needs it any more. A joiner asks one of them for some chunks, then for the next ones, and goes on
with another where one is silent, gone or has none to give: at the same offset if both have the same bytes, from the
beginning if not. Where none of them has any, it joins anew after a while, so that all are asked for another. Nobody
waits for it, and neither side holds more than two windows of chunks. What the joiner's application sees after
its state is kept by the driver, which has a disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from antiphon.protocol.machine import (
    SECOND,
    Capture,
    Chunk,
    Deliver,
    Drop,
    Duration,
    Effect,
    EndHoldBack,
    HoldBack,
    Install,
    Instant,
    ReadChunk,
    Release,
    Restore,
    RestoreChunk,
    Snapshot,
)
from antiphon.protocol.membership.messages import NoSnapshot, SnapshotChunk, SnapshotRequest
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.outbox import Outbox
from antiphon.protocol.membership.timing import Times
from antiphon.protocol.membership.views import GroupView, ViewId
from antiphon.protocol.timers import Backoff, GrowingPause, RoundTripEstimate

WINDOW_MIN: Final = 2  # chunks that are asked for at once
WINDOW_MAX: Final = 32
_PIECES_PER_CHUNK: Final = 8  # each message has its price, whatever its length
_TRIES_MAX: Final = 3  # vain ones, until another elder is asked
_ANEW_NS: Final = SECOND  # until a joiner that nobody could give a state joins anew; each time costs a view change
_ANEW_NS_MAX: Final = 64 * SECOND


class _Offer(msgspec.Struct):
    """The state at the beginning of a view, as one who was there before."""

    view: ViewId
    wanted_by: set[int]  # joiners that may still ask
    size: int | None = None  # None: the application has not given it yet
    digest: bytes = b""
    failed: bool = False  # it will not give it


class _Awaited(msgspec.Struct):
    """The state that this joiner waits for: of which view, who has it, and how much of it has come."""

    view: ViewId
    elders: tuple[int, ...]
    again: Backoff
    trips: RoundTripEstimate  # from the first request for a chunk until it comes
    timed: tuple[int, Instant] | None = None  # the chunk whose way is measured, and when it was first asked for
    turn: int = 0  # which of the elders is asked
    digest: bytes = b""  # of the state that is being received
    size: int | None = None
    offset: int = 0  # how much of it has come and was passed on
    asked_upto: int = 0
    window: int = WINDOW_MIN
    early: dict[int, bytes] = {}  # chunks behind a gap, by offset
    refused_by: tuple[int, ...] = ()  # elders that have no state to give
    anew_at: Instant | None = None  # when to join anew, once all have said so
    own_held_back: list[int] = []  # the numbers of own messages that the application has not seen yet

    def present(self, view: GroupView) -> list[int]:
        """List the elders that are still there."""
        return [elder for elder in self.elders if view.lists(elder)]

    def givers(self, view: GroupView) -> list[int]:
        """List the elders that may have a state to give."""
        return [elder for elder in self.present(view) if elder not in self.refused_by]

    def begin_anew(self) -> None:
        """Throw away what has come: another elder has other bytes."""
        self.digest, self.size, self.offset, self.early = b"", None, 0, {}


class StateTransfer:
    """One process' part in bringing joiners up to date: as a joiner, then as one who was there before."""

    def __init__(self, options: MembershipOptions, outbox: Outbox, times: Times) -> None:
        self._options, self._outbox, self._times = options, outbox, times
        self._chunk_bytes = options.piece_bytes * _PIECES_PER_CHUNK
        self._awaited: _Awaited | None = None
        self._offers: dict[int, _Offer] = {}  # by the view's number
        self._anew = GrowingPause(times.jitter, _ANEW_NS, _ANEW_NS_MAX)

    @property
    def holds_back(self) -> bool:
        """Whether the application's stream waits for a snapshot."""
        return self._awaited is not None

    def deadline(self, *, active: bool) -> Instant | None:
        """When to ask again or, in a view that is not about to end, to join anew."""
        awaited = self._awaited
        if awaited is None or awaited.anew_at is None:
            return None if awaited is None else awaited.again.at
        return awaited.anew_at if active else None

    def is_in_vain(self, now: Instant) -> bool:
        """Return whether nobody could give the state that is due, and it is time to join anew."""
        return self._awaited is not None and self._awaited.anew_at is not None and self._awaited.anew_at <= now

    # The application's stream

    def begin(self, view: GroupView, me: int, *, elder: bool, now: Instant) -> list[Capture]:
        """Begin a view, as one who comes from the view before or as a joiner; return what the application must do."""
        if not self._options.transfer:
            return []
        if not elder and view.elders:
            retry_ns = self._times.retry_ns(view.names)
            trips = RoundTripEstimate(0, timeout_ns_max=8 * retry_ns)
            again = Backoff(self._times.jitter, retry_ns, 8 * retry_ns, first_ns=0)
            again.start(now)
            self._awaited = _Awaited(view.id, view.members[: view.elders], again, trips)
        for offer in list(self._offers.values()):
            offer.wanted_by.intersection_update(view.members)
            self._let_go_if_unwanted(offer)
        if elder and view.elders < len(view.members):
            self._offers[view.number] = _Offer(view.id, set(view.members[view.elders :]))
            return [Capture(view.number)]
        return []

    def shown(self, effects: Iterable[Deliver | Install | Capture], me: int) -> Iterable[Effect]:
        """Pass on an effect of the application's stream, or have it held back until the snapshot has come."""
        if self._awaited is None:
            return effects
        held_back = [HoldBack(effect) for effect in effects]
        self._awaited.own_held_back += [
            one.effect.seq for one in held_back if isinstance(one.effect, Deliver) and one.effect.sender == me
        ]
        return held_back

    def forget(self, me: int) -> list[Effect]:
        """Stop waiting, because this incarnation is over; give up own messages that were held back."""
        ended: list[Effect] = []
        if self._awaited is not None:
            refused_by = () if self._awaited.anew_at is None else self._awaited.refused_by
            given_up = (Drop("unknown", me, seq) for seq in self._awaited.own_held_back)
            ended = [*given_up, EndHoldBack(hand_over=False, refused_by=refused_by)]
        released = [Release(number) for number in self._offers]
        self._awaited, self._offers = None, {}
        return [*ended, *released]

    # As one who was there before

    def gives_to(self, joiners: Collection[int]) -> bool:
        """Say whether one of these waits for a state that the application has given, or may still give."""
        return any(not offer.failed and not offer.wanted_by.isdisjoint(joiners) for offer in self._offers.values())

    def keep(self, snapshot: Snapshot) -> None:
        """Hear that the application's state can be read now, or that it cannot be."""
        offer = self._offers.get(snapshot.view)
        if offer is not None:
            offer.size, offer.digest, offer.failed = snapshot.size, snapshot.digest, snapshot.size is None

    def on_request(self, sender: int, request: SnapshotRequest, now: Instant) -> None:
        """Read the chunks that a joiner asks for; one that has it all needs no more."""
        offer = self._offers.get(request.view[0])
        if offer is None or offer.view != request.view or sender not in offer.wanted_by:
            return
        if request.count == 0:
            offer.wanted_by.discard(sender)
            self._let_go_if_unwanted(offer)
            return
        if offer.size is None:
            if offer.failed:
                self._outbox.say(sender, NoSnapshot(offer.view))
            return
        start = request.offset if request.digest == offer.digest else 0
        end = min(offer.size, start + request.count * self._chunk_bytes)
        for offset in range(start, max(end, start + 1), self._chunk_bytes):
            length = min(self._chunk_bytes, offer.size - offset)
            self._outbox.effects.append(ReadChunk(offer.view[0], offset, length, sender))

    def give(self, chunk: Chunk) -> None:
        """Send a joiner a chunk that was read."""
        offer = self._offers.get(chunk.view)
        if offer is not None and offer.size is not None:
            self._outbox.say(chunk.to, SnapshotChunk(offer.view, offer.digest, offer.size, chunk.offset, chunk.data))

    def _let_go_if_unwanted(self, offer: _Offer) -> None:
        if not offer.wanted_by:
            del self._offers[offer.view[0]]
            self._outbox.effects.append(Release(offer.view[0]))

    # As a joiner

    def look(self, view: GroupView, now: Instant) -> None:
        """Ask for chunks when it is time; begin without the state if nobody has it any more.

        Where each side goes on, join anew: others of the side may have another state, or it begins one with its own.
        """
        awaited = self._awaited
        if awaited is None:
            return
        elders = awaited.givers(view)
        if not awaited.present(view):
            if self._options.partition == "each-side":
                awaited.anew_at = now
            else:
                self._outbox.counts["states-lost"] += 1
                self._release(lost=True)
        elif not elders:
            if awaited.anew_at is None:
                awaited.anew_at = now + self._anew.ns
                self._anew.grow()
        elif self._is_time(awaited, view, now):
            if awaited.again.tries > 1:
                awaited.window = max(WINDOW_MIN, awaited.window // 2)
            if awaited.again.tries > _TRIES_MAX:
                awaited.turn += 1
                awaited.again.start(now)
                awaited.again.over(now)
            awaited.asked_upto = awaited.offset
            self._ask(awaited, elders, awaited.offset, now)

    def _is_time(self, awaited: _Awaited, view: GroupView, now: Instant) -> bool:
        """Return whether to ask again: the pause may have been chosen when answers took longer than they do now."""
        if awaited.again.tries:
            longest_ns = 3 * self._pause_ns(awaited, view) // 2  # with all the jitter
            awaited.again.hasten(now + (longest_ns << min(awaited.again.tries - 1, 3)))
        return awaited.again.over(now)

    def _pause_ns(self, awaited: _Awaited, view: GroupView) -> Duration:
        """Return how long a chunk may take before it is asked for again."""
        return max(awaited.trips.timeout_ns, self._times.retry_ns(view.names))

    def _ask(self, awaited: _Awaited, elders: list[int], offset: int, now: Instant) -> None:
        """Ask for a window of chunks or, if some behind a gap have come already, for those in the gap."""
        count = awaited.window
        behind = [early for early in awaited.early if early > offset]
        if behind:
            count = min(count, (min(behind) - offset) // self._chunk_bytes)
        awaited.asked_upto = max(awaited.asked_upto, offset + count * self._chunk_bytes)
        if awaited.timed is None and offset:  # the first one comes when the elder's application has given its state
            awaited.timed = offset, now
        request = SnapshotRequest(awaited.view, awaited.digest, offset, count)
        self._outbox.say(elders[awaited.turn % len(elders)], request)

    def on_chunk(self, sender: int, chunk: SnapshotChunk, view: GroupView, now: Instant) -> None:
        """Take a chunk of the state that is due; ask for the next ones when those that were asked for have come."""
        awaited = self._awaited
        elders = [] if awaited is None else awaited.givers(view)
        if awaited is None or awaited.view != chunk.view or sender not in elders:
            return
        if chunk.digest != awaited.digest or awaited.size is None:
            if sender != elders[awaited.turn % len(elders)] or chunk.offset:
                return  # late, of another one's state
            awaited.begin_anew()
            awaited.digest, awaited.size = chunk.digest, chunk.size
            awaited.asked_upto = awaited.window * self._chunk_bytes
        if awaited.timed is not None and chunk.offset >= awaited.timed[0]:
            awaited.trips.measured(now - awaited.timed[1])
            awaited.timed = None
        if awaited.offset <= chunk.offset < awaited.offset + 2 * WINDOW_MAX * self._chunk_bytes:
            awaited.early[chunk.offset] = chunk.data
        if awaited.offset not in awaited.early:
            return
        while awaited.offset in awaited.early:
            data = awaited.early.pop(awaited.offset)
            self._outbox.effects.append(RestoreChunk(awaited.view[0], awaited.offset, data))
            awaited.offset += len(data)
        if awaited.offset >= awaited.size:
            for elder in awaited.present(view):
                self._outbox.say(elder, SnapshotRequest(awaited.view, awaited.digest, awaited.offset, 0))
            self._outbox.effects.append(Restore(awaited.view[0]))
            self._release()
            return
        pause_ns = self._pause_ns(awaited, view)  # something has come: the rest is on its way
        awaited.again = Backoff(self._times.jitter, pause_ns, max(pause_ns, 8 * self._options.retry_ns), first_ns=0)
        awaited.again.start(now)
        awaited.again.over(now)
        if awaited.asked_upto < min(awaited.size, awaited.offset + awaited.window // 2 * self._chunk_bytes):
            awaited.window = min(WINDOW_MAX, 2 * awaited.window)
            self._ask(awaited, elders, max(awaited.offset, awaited.asked_upto), now)

    def on_none(self, sender: int, none: NoSnapshot, now: Instant) -> None:
        """Hear that an elder has no state to give: another is asked at once."""
        awaited = self._awaited
        known = awaited is not None and awaited.view == none.view and sender in awaited.elders
        if awaited is not None and known and sender not in awaited.refused_by:
            awaited.refused_by += (sender,)
            awaited.again.start(now)

    def _release(self, *, lost: bool = False) -> None:
        self._outbox.effects.append(EndHoldBack(hand_over=True, lost=lost))
        self._awaited = None
        self._anew.renew()
