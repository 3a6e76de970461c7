"""Reads datagrams about views, and gives each message to the component of membership that it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from antiphon.protocol.machine import Drop, Instant
from antiphon.protocol.membership.confirmation import ViewConfirmation
from antiphon.protocol.membership.decisions import Decisions
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.lifecycle import Lifecycle
from antiphon.protocol.membership.messages import (
    Accept,
    Alive,
    Commit,
    Fetch,
    Fill,
    MembershipCodec,
    MembershipMessage,
    Newer,
    NoSnapshot,
    Prepare,
    Refusal,
    SnapshotChunk,
    SnapshotRequest,
    State,
    Superseded,
    ViewAnswer,
    ViewQuestion,
    Vote,
)
from antiphon.protocol.membership.outbox import Outbox, OwnProcess
from antiphon.protocol.membership.view_change import ViewChangeProtocol
from antiphon.protocol.membership.views import NAMES_MAX, name_of
from antiphon.protocol.rules import rule
from antiphon.protocol.wire import Malformed

_Handler: TypeAlias = Callable[[int, Any, Instant], None]  # (sender, message, now)


class Dispatch:
    """The table of messages about views, and who may be heard."""

    def __init__(
        self,
        own: OwnProcess,
        codec: MembershipCodec,
        outbox: Outbox,
        detector: FailureDetector,
        life: Lifecycle,
        decisions: Decisions,
        change: ViewChangeProtocol,
        confirmation: ViewConfirmation,
    ) -> None:
        self._own, self._codec, self._outbox, self._detector = own, codec, outbox, detector
        self._life, self._decisions = life, decisions
        self._majority = life.membership.partition == "majority"
        self._handlers: Mapping[type[MembershipMessage], _Handler] = {
            Alive: decisions.on_alive,
            Prepare: change.on_prepare,
            State: change.on_state,
            Refusal: change.on_refusal,
            Accept: change.on_accept,
            Vote: change.on_vote,
            Commit: decisions.on_commit,
            Newer: decisions.on_newer,
            Superseded: decisions.on_superseded,
            Fetch: change.on_fetch,
            Fill: change.on_fill,
            ViewQuestion: confirmation.on_question,
            ViewAnswer: confirmation.on_answer,
            SnapshotRequest: life.transfer.on_request,
            SnapshotChunk: life.on_chunk,
            NoSnapshot: life.transfer.on_none,
        }

    def read(self, datagram: bytes, now: Instant) -> bool:
        """Take a datagram about views; return whether it brought nothing but signs of life."""
        messages: list[MembershipMessage] = []
        try:
            sender, messages = self._codec.read(datagram)
            if name_of(sender) == self._own.name:
                raise Malformed("own-name")
            # What a majority has decided is a fact, whoever tells it. With sides, an earlier incarnation of the sender
            # may tell of a side that was given up since.
            counts = self._detector.heard(sender, now)
            for message in messages:
                if isinstance(message, Alive) and not (counts and self.is_new(sender, message)):
                    latest = max(self._detector.latest(sender), self._life.roster.incarnations.latest(sender))
                    # at least the next: what an earlier incarnation is told may reach the one that has followed it
                    self._outbox.say(sender, Superseded(max(latest, sender + NAMES_MAX)))
                elif counts or (self._majority and isinstance(message, Commit | Newer)):
                    self.hear(sender, message, now)
        except Malformed as garbage:
            self._outbox.counts["dropped-" + garbage.reason] += 1
            self._outbox.effects.append(Drop(garbage.reason))
        return all(isinstance(message, Alive) for message in messages)

    def hear(self, sender: int, message: MembershipMessage, now: Instant) -> None:
        """Give a message to the component that it is for; after leaving, only what is still answered."""
        if not self._own.left:
            self._handlers[type(message)](sender, message, now)
        elif self.answers_after_leaving(message):
            match message:
                case Prepare():
                    self._decisions.tell_if_behind(sender, message.view.id)
                case Accept():
                    self._decisions.tell_if_behind(sender, message.change.old)
                case _:
                    self._handlers[type(message)](sender, message, now)

    @rule("docs/membership.md, incarnations")
    def is_new(self, sender: int, alive: Alive) -> bool:
        """Decide whether one who wants to join may do so in this incarnation: it was in no view that is over by now."""
        if alive.standing not in ("joiner", "behind"):
            return True
        was_listed = sender <= self._life.roster.incarnations.latest(sender)
        return not was_listed or self._life.view.lists(sender)

    @rule("docs/membership.md, leaving")
    def answers_after_leaving(self, message: MembershipMessage) -> bool:
        """Decide whether one who has left still answers: it tells others no more than what they need to go on."""
        return isinstance(message, Alive | Prepare | Accept | Fetch)
