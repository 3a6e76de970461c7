"""After a pause of one's own, or a stall: nothing is delivered before a quorum has confirmed that the view stands.

A process that was stopped for a while does not notice it until its clock has jumped. The others may have gone on
without it meanwhile, and what waits for it in the socket was sent long ago: only an answer to a question that it asks
now says anything. The same is true of one that too few were heard by, and whom something reaches again.
"""

from __future__ import annotations

from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.decisions import Decisions
from antiphon.protocol.membership.lifecycle import Lifecycle
from antiphon.protocol.membership.messages import ViewAnswer, ViewQuestion
from antiphon.protocol.membership.outbox import Outbox
from antiphon.protocol.membership.session import ViewSession
from antiphon.protocol.membership.timing import Times
from antiphon.protocol.membership.views import ViewId, name_of
from antiphon.protocol.rules import rule
from antiphon.protocol.timers import Backoff


class ViewConfirmation:
    """Asks the other members whether the view still stands, and answers them."""

    def __init__(self, lifecycle: Lifecycle, decisions: Decisions, times: Times, outbox: Outbox) -> None:
        self._life, self._decisions, self._times, self._outbox = lifecycle, decisions, times, outbox
        self._asked_since: Instant = 0  # tells the answers to this question from earlier ones
        self._asked_about: ViewId | None = None
        self._confirmed_by: set[int] = set()
        self._again: Backoff | None = None  # when to ask again; None: there is nothing to ask

    def begin(self, now: Instant) -> None:
        """Stop, because this process was away or its view had stalled, until a quorum has confirmed the view.

        A process that is in no view yet may have been admitted to one meanwhile: it asks when it begins that view.
        """
        life = self._life
        if not self.must_be_confirmed() or (life.session is None and not life.own.offered):
            return
        life.own.was_away = True
        if life.session is not None:
            if life.session.away_since is None:
                life.session.away_since = now
            self._ask_about(life.session, now)

    def watch_for_a_stall(self, now: Instant) -> None:
        """Stop while too few are within reach; once enough are heard again, ask them."""
        if self._life.watch_for_a_stall(now):
            self.begin(now)

    def _ask_about(self, session: ViewSession, now: Instant) -> None:
        self._asked_since, self._asked_about, self._confirmed_by = now, session.view.id, {self._life.own.name}
        if self._again is None:  # else it asks later: on a busy machine a process is late often
            self._again = self._times.repetition(session.view.names, now)
        self._go_on_if_confirmed(now)

    @rule("docs/membership.md, after a pause")
    def must_be_confirmed(self) -> bool:
        """Decide whether one who was away asks before it goes on."""
        return True

    @property
    def ask_at(self) -> Instant | None:
        """When to ask again, if there is anything to ask."""
        return None if self._again is None else self._again.at

    def look(self, now: Instant) -> None:
        """Ask, and ask again those who have not answered."""
        session = self._life.session
        if session is not None and not session.confirmed and self._asked_about != session.view.id:
            self._again = None
            self._ask_about(session, now)
        if session is None or session.confirmed:
            self._again = None
        elif self._again is not None and self._again.over(now):
            silent = [name for name in session.view.names if name not in self._confirmed_by]
            self._outbox.say_to_names(silent, ViewQuestion(session.view.id, self._asked_since))

    def on_question(self, sender: int, question: ViewQuestion, now: Instant) -> None:
        """Say which view is the newest that is known here, and how it came about."""
        if not self._decisions.tell_if_behind(sender, question.view):
            self._outbox.say(sender, ViewAnswer(self._life.view.id, question.nonce))

    def on_answer(self, sender: int, answer: ViewAnswer, now: Instant) -> None:
        """Hear that another is in the same view."""
        session = self._life.session
        if session is not None and (answer.view, answer.nonce) == (session.view.id, self._asked_since):
            if session.view.lists(sender):
                self._confirmed_by.add(name_of(sender))
            self._go_on_if_confirmed(now)

    def _go_on_if_confirmed(self, now: Instant) -> None:
        session = self._life.session
        if session is not None and not session.confirmed and session.view.is_quorum(self._confirmed_by):
            session.away_since, self._life.own.was_away = None, False
            self._life.go_on(now)
