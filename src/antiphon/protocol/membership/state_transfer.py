"""State transfer: a joiner's application sees nothing of its first view before it has an older member's state."""

from __future__ import annotations

import msgspec

from antiphon.protocol.machine import Capture, Deliver, Drop, Duration, Effect, Instant, Restore, Snapshot
from antiphon.protocol.membership.messages import SnapshotReply, SnapshotRequest
from antiphon.protocol.membership.views import GroupView, ViewId


class _Awaited(msgspec.Struct):
    """The state that is due here: of which view's beginning, who has it, how often they were asked and when next."""

    view: ViewId
    elders: tuple[int, ...]
    ask_at: Instant
    asked: int = 0


class StateTransfer:
    """One process' part in bringing joiners up to date: as a joiner, then as one who was there before."""

    def __init__(self, enabled: bool, retry_ns: Duration) -> None:
        self._enabled, self._retry_ns = enabled, retry_ns
        self._awaited: _Awaited | None = None
        self._held_back: list[Effect] = []  # what the application sees after its snapshot
        self._captured: ViewId | None = None  # the last view whose beginning the application was asked for
        self._snapshot: Snapshot | None = None

    @property
    def holds_back(self) -> bool:
        """Whether the application's stream waits for a snapshot."""
        return self._awaited is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is held back here."""
        return not self._held_back

    def begin(self, view: GroupView, me: int, *, elder: bool, now: Instant) -> list[Effect]:
        """Begin a view, as one who comes from the view before or as a joiner; give what the application must do."""
        if not self._enabled:
            return []
        if not elder and view.elders:
            self._awaited = _Awaited(view.id, view.members[: view.elders], now)
        if elder and view.elders < len(view.members):
            self._captured = view.id
            self._wait_anew(view, me, now)
            return [Capture(view.number)]
        return []

    def _wait_anew(self, view: GroupView, me: int, now: Instant) -> None:
        """Wait for the state at the beginning of this view instead, if one was still due.

        With another joiner the elders keep a newer state in place of the older one. It has in it whatever was held
        back here, so only the fate of this process' own messages is left to tell.
        """
        elders = () if self._awaited is None else tuple(filter(view.lists, self._awaited.elders))
        if elders:
            self._awaited = _Awaited(view.id, elders, now)
            own = [effect for effect in self._held_back if isinstance(effect, Deliver) and effect.sender == me]
            self._held_back = [Drop("unknown", me, effect.seq) for effect in own]

    def forget(self) -> None:
        """Wait for nothing any more: this incarnation is over."""
        self._awaited, self._held_back = None, []

    def shown(self, effects: list[Effect]) -> list[Effect]:
        """Pass on what has its place in the application's stream, or hold it back for after the snapshot."""
        if self._awaited is None:
            return effects
        self._held_back += effects
        return []

    def keep(self, snapshot: Snapshot) -> None:
        """Take the application's state for those who ask."""
        self._snapshot = snapshot

    def answer(self, request: SnapshotRequest) -> SnapshotReply | None:
        """Give a joiner the state, if it is here."""
        if self._snapshot is None or request.view != self._captured or self._snapshot.view != request.view[0]:
            return None
        return SnapshotReply(request.view, self._snapshot.state)

    def take(self, reply: SnapshotReply) -> list[Effect]:
        """Take the state that was due, and all that comes after it."""
        if self._awaited is None or self._awaited.view != reply.view:
            return []
        return [Restore(reply.view[0], reply.state), *self._release()]

    def ask(self, view: GroupView, now: Instant) -> tuple[int, SnapshotRequest] | None:
        """Ask those who have the state in turn, as long as they are members, where it is time."""
        awaited = self._awaited
        if awaited is None or awaited.ask_at > now:
            return None
        awaited.ask_at = now + self._retry_ns
        remaining = [elder for elder in awaited.elders if view.lists(elder)]
        if not remaining:
            return None
        awaited.asked += 1
        return remaining[(awaited.asked - 1) % len(remaining)], SnapshotRequest(awaited.view)

    def give_up(self, view: GroupView) -> list[Effect]:
        """Let the application begin with what it has, if nobody has the state any more."""
        if self._awaited is None or any(view.lists(elder) for elder in self._awaited.elders):
            return []
        return self._release()

    def _release(self) -> list[Effect]:
        held_back, self._held_back, self._awaited = self._held_back, [], None
        return held_back
