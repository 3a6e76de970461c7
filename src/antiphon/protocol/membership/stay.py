"""A process' stay in one view: its member there, in whose terms everybody counts from 1, told in the group's terms."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from antiphon.protocol.machine import Deliver, Drop, Effect, Instant, Send, Stable
from antiphon.protocol.member import Record, View
from antiphon.protocol.membership.flush import ViewMember
from antiphon.protocol.membership.views import GroupView, name_of
from antiphon.protocol.options import GroupOptions


class Journal(Protocol):
    """Where one life of a process writes its trace."""

    def record(
        self, now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
    ) -> None:
        """Note an event."""

    def install(self, now: Instant, number: int, members: tuple[int, ...]) -> None:
        """Note that a view begins."""


class Silence:
    """A journal that keeps nothing, and need not be written."""

    def __init__(self, member: int) -> None:
        self.member = member

    def record(
        self, now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
    ) -> None:
        """Note nothing."""

    def install(self, now: Instant, number: int, members: tuple[int, ...]) -> None:
        """Note nothing."""


class Stay:
    """A member of one view, and what is needed to tell of it."""

    def __init__(
        self,
        me: int,
        view: GroupView,
        tag: int,
        config: GroupOptions,
        member_type: Callable[[int, View, GroupOptions, random.Random, Record | None], ViewMember],
        randomness: random.Random,
        journal: Journal,
    ) -> None:
        """Begin a view, whose datagrams carry the tag."""
        self.me, self.view = me, view
        self._before = dict(zip(view.members, view.sent_before, strict=True))  # messages sent in earlier views
        self._own_delivered = 0
        self._others = tuple(name_of(other) for other in view.members if other != me)
        self._journal = journal
        record = None if isinstance(journal, Silence) else self._record
        self.member = member_type(me, View(tag, view.members), config, randomness, record)

    def told(self, effects: Iterable[Effect]) -> Iterator[Effect]:
        """Translate what the member does: targets are names, and numbers count through all views."""
        before = self._before
        for effect in effects:
            match effect:
                case Send():
                    names = self._others
                    if effect.to is not None:
                        names = tuple(name_of(other) for other in effect.to if other != self.me)
                    if names:
                        yield Send(names, effect.datagram)
                case Deliver():
                    self._own_delivered += effect.sender == self.me
                    yield Deliver(effect.sender, effect.seq + before[effect.sender], effect.payload)
                case Stable():
                    yield Stable(effect.sender, effect.seq + before[effect.sender])
                case Drop(sender=int(sender), seq=int(seq)):
                    yield Drop(effect.reason, sender, seq + before[sender])
                case _:
                    yield effect

    def unknown(self) -> Iterator[Drop]:
        """Name the own messages that the group may deliver without us, or may not."""
        for seq in range(self._own_delivered + 1, self.member.sent + 1):
            yield Drop("unknown", self.me, seq + self._before[self.me])

    def _record(
        self, now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
    ) -> None:
        shown = seq if seq is None or sender is None else seq + self._before[sender]
        self._journal.record(now, event, sender, shown, size, detail)
