"""The way to the next view: this process proposes, promises, votes, and fetches what is missing of the cut.

`agreement` knows what was promised, accepted and proposed; `failure_detector` who is alive; `decisions` carries out
what was decided. Here the messages of the two phases come and go.
"""

from __future__ import annotations

from antiphon.errors import UsageError
from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.decisions import Decisions
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.lifecycle import Lifecycle
from antiphon.protocol.membership.messages import Accept, Commit, Fetch, Fill, Prepare, Refusal, State, Vote
from antiphon.protocol.membership.outbox import Outbox
from antiphon.protocol.membership.views import NO_BALLOT, NO_VIEW, Ballot, Change, name_of
from antiphon.protocol.rules import rule


class ViewChangeProtocol:
    """Drives the agreement on what follows the present view."""

    def __init__(self, lifecycle: Lifecycle, decisions: Decisions, detector: FailureDetector, outbox: Outbox) -> None:
        self._life, self._decisions, self._detector, self._outbox = lifecycle, decisions, detector, outbox
        self._agreement, self._membership, self._own = lifecycle.agreement, lifecycle.membership, lifecycle.own

    # Phase one

    def consider_proposing(self, now: Instant) -> None:
        """Propose what follows the view, if something must and it is this process' turn."""
        agreement, life, view, detector = self._agreement, self._life, self._agreement.view, self._detector
        connected = detector.connected(view.names, now)
        if agreement.decided is not None or not agreement.is_quorum(connected):
            return
        if life.session is None and not life.roster.sides and life.roster.others_may_know_more(view, now):
            return
        ending = life.session is None or life.session.flush is not None
        calm = not ending and len(connected) == len(view.names) and not life.slow.accused
        if calm and (life.roster.follows_another(view, now) or life.roster.is_settled(view, now)):
            return  # nearly always so; found out first, since the rest is costly in large groups
        unwanted, joiners = self.unwanted(now), self.welcome(now)
        candidates = life.roster.candidates(view, unwanted, joiners, now)
        if self._own.name not in candidates or view.lists(self._own.id) != (life.session is not None):
            return
        turn = candidates.index(self._own.name)
        if agreement.promised > NO_BALLOT and ending:
            tries = agreement.tries if agreement.leader not in unwanted else 1  # that one ends nothing for us
            wait_ns = patience_ns = detector.times.patience_ns(view.names, tries, now)
            if self._cannot_end(now):
                wait_ns = 0
            elif not agreement.is_quorum(detector.links.in_touch_with(name_of(agreement.leader), view.names)):
                # reports may be late; more time with each ballot, or two might take over from one another for ever
                wait_ns = min(patience_ns, agreement.tries * detector.times.settling_ns(view.names))
            due = now >= agreement.progress_at + wait_ns + turn * patience_ns  # what was begun must end
        else:
            due = turn == 0 and agreement.round is None
            due = due and life.roster.change_due(view, unwanted, joiners, now)
        if due:
            agreement.propose(
                self._own.id, life.roster.targets(view, joiners, now), detector.times.repetition(view.names, now), now
            )
            self._outbox.counts["proposals"] += 1

    @rule("docs/membership.md, broken links")
    def unwanted(self, now: Instant) -> frozenset[int]:
        """Return the members that the next view is to do without: the too slow, and who is not heard by all others.

        Where too few are left to decide by themselves, names that have begun anew choose with them, since they vote.
        """
        view, life = self._agreement.view, self._life
        staying = life.roster.staying(view, now)
        chosen = self._detector.connected(map(name_of, staying), now)
        if not self._agreement.is_quorum(chosen):
            chosen = self._detector.connected(view.names, now)
        wanted = frozenset(chosen)
        return life.slow.accused.union(member for member in staying if name_of(member) not in wanted)

    @rule("docs/membership.md, broken links")
    def welcome(self, now: Instant) -> list[int]:
        """Return who may join: whoever wants to, and hears and is heard by all that it would be together with."""
        view, detector, roster = self._agreement.view, self._detector, self._life.roster
        joiners = roster.joiners(view, now)
        out_of_reach = roster.out_of_reach(view, now)
        if out_of_reach:
            fits = detector.links.fits
            joiners = [one for one in joiners if one == self._own.id or not fits(name_of(one), view.names)]
        if view.number == 0 or out_of_reach:
            together = set(detector.connected(map(name_of, joiners), now))
            return [joiner for joiner in joiners if name_of(joiner) in together]
        if not joiners or not self.has_room(now):
            return []
        unwanted = self.unwanted(now)
        staying = [name_of(member) for member in roster.staying(view, now) if member not in unwanted]
        if len(detector.connected([*staying, *map(name_of, joiners)], now)) == len(staying) + len(joiners):
            return joiners
        welcome = []
        for joiner in joiners:  # in the order in which all would let them in
            if detector.links.fits(name_of(joiner), staying):
                staying.append(name_of(joiner))
                welcome.append(joiner)
        return welcome

    def has_room(self, now: Instant) -> bool:
        """Return whether a joiner could be admitted: fewer members await the application's state than have it."""
        view, life = self._agreement.view, self._life
        if not life.membership.transfer or not view.elders:
            return True
        away = life.roster.leavers().union(self.unwanted(now))
        staying = set(life.roster.staying(view, now)).difference(away)
        awaiting = staying & life.roster.without_state(view) | (
            {self._own.id} if life.standing == "awaiting" else set()
        )
        return 2 * len(awaiting) < len(staying) or awaiting == staying

    def continue_round(self, now: Instant) -> None:
        """Say again what was not answered, and go on where nobody else is waited for."""
        current, session = self._agreement.round, self._life.session
        if current is None:
            return
        if current.again.over(now):
            flush = None if session is None else session.flush
            for names, question in self._agreement.questions(self._own.id, flush):
                self._outbox.say_to_names(names, question)
                self._detector.asked(names, now)
        self._close_first_phase(now)

    def on_prepare(self, sender: int, prepare: Prepare, now: Instant) -> None:
        """Hear that a view is to end: promise, stop, and tell what is held."""
        agreement, life = self._agreement, self._life
        agreement.heard_of(prepare.ballot)
        self._decisions.hear_of(sender, prepare.view, now)
        if self._decisions.tell_if_behind(sender, prepare.view.id) or prepare.view.id != agreement.view.id:
            return  # a member of both views has to finish the one before; it asks by its signs of life
        if self._lost_its_session() or not self.may_answer() or not self.may_join() or not self.may_heed(sender, now):
            return
        if life.session is None and agreement.may_follow(prepare.ballot):
            self._own.offer(prepare.ballot)  # which is written down together with the promise
        if self._promise(sender, prepare.ballot, now):
            flush = None if life.session is None else life.session.flush
            spoken = self._outbox.versions.spoken
            self._outbox.say(sender, agreement.state(prepare.ballot, life.standing, flush, spoken))

    def _lost_its_session(self) -> bool:
        """Return whether this process is listed in the view without having begun it."""
        return self._life.session is None and self._agreement.view.lists(self._own.id)

    @rule("docs/membership.md, lost state")
    def may_answer(self) -> bool:
        """Decide whether this process answers a ballot: not where its name is a voter and has lost what it promised.

        It is a newcomer then, and waits until the others have gone on without its earlier incarnation. Where each side
        goes on, processes vote and not names: what an earlier incarnation has promised binds nobody.
        """
        view, own = self._agreement.view, self._own
        by_process = self._membership.partition == "each-side"
        return own.remembers or by_process or view.number == 0 or own.name not in view.names

    @rule("docs/membership.md, each side goes on")
    def may_heed(self, sender: int, now: Instant) -> bool:
        """Decide whether to follow another's ballot: where each side goes on, not into a side that is not one's own.

        Who hears more of the others than the proposer does would be lost to the larger side.
        """
        return self._membership.partition == "majority" or sender not in self.unwanted(now)

    @rule("docs/membership.md, slow receivers")
    def may_join(self) -> bool:
        """Decide whether this process offers itself: not where its application is too far behind to take in more.

        A name that has a vote answers all the same, since its vote is waited for.
        """
        own, life = self._own, self._life
        return life.session is not None or not own.full or own.name in self._agreement.view.names

    def _promise(self, sender: int, ballot: Ballot, now: Instant) -> bool:
        """Stop, and follow no lower ballot; return whether that could be promised."""
        agreement, session = self._agreement, self._life.session
        before = agreement.promised
        if not agreement.promise(ballot, now):
            self._outbox.say(sender, agreement.refusal(ballot))
            return False
        if agreement.promised != before:
            self._life.persist()
        if session is not None and session.flush is None:
            session.end(now)
        return True

    def on_state(self, sender: int, state: State, now: Instant) -> None:
        """Hear what another holds."""
        if self._agreement.take_state(sender, state):
            self._close_first_phase(now)

    def on_refusal(self, sender: int, refusal: Refusal, now: Instant) -> None:
        """Hear that another has promised to follow a higher ballot."""
        self._agreement.take_refusal(refusal, now)

    def _close_first_phase(self, now: Instant) -> None:
        """Propose a change when enough have answered and the living had time to."""
        agreement = self._agreement
        current = agreement.round
        if current is None or current.change is not None:
            return
        if agreement.view.number == 0 and self._detector.arrivals.until is not None and not current.complete:
            return  # founders come one after the other
        grace_ns = self._detector.times.grace_ns(current.targets, now)
        if not agreement.may_choose(self._answering(now), grace_ns, now):
            return
        names = agreement.view.names
        if agreement.view.number and not self._detector.reports_are_in(names, now, agreement.is_quorum):
            return
        if not agreement.is_quorum(self._detector.connected(names, now)):
            return  # a few whom one alone connects with the rest are not to go on
        current.change = agreement.choose(
            self._life.options, self.unwanted(now), self._fits, transfer=self._membership.transfer
        )
        if current.change is not None:
            current.again = self._detector.times.repetition(agreement.view.names, now)
            self.continue_round(now)

    def _answering(self, now: Instant) -> frozenset[int]:
        """Return the living whose answers are waited for; those whom the next view leaves out anyway are not."""
        return self._detector.living(now).difference(map(name_of, self.unwanted(now)))

    def _cannot_end(self, now: Instant) -> bool:
        """Return whether the last ballot cannot succeed: a process that it needs is silent, began anew or went on."""
        agreement, current = self._agreement, self._agreement.round
        needed = {agreement.leader}
        if current is not None and current.change is not None and self._membership.partition == "each-side":
            needed.update(current.change.new.members)  # all of them must accept it
        known = (
            other for other in needed if name_of(other) in self._detector.by_name or name_of(other) == self._own.name
        )
        into = NO_VIEW if agreement.accepted is None else agreement.accepted.change.new.id  # which was decided, then
        return not all(self._life.roster.stays(other, agreement.view, now, into) for other in known)

    def _fits(self, size: int) -> bool:
        """Return whether the buffers that were configured suffice for a view of this size."""
        try:
            self._life.options.check(size, founding=False)
        except UsageError:
            return False
        return True

    # Phase two

    def on_accept(self, sender: int, accept: Accept, now: Instant) -> None:
        """Hear what is proposed."""
        agreement = self._agreement
        agreement.heard_of(accept.ballot)
        if self._decisions.tell_if_behind(sender, accept.change.old) or not agreement.may_vote(accept, self._own.id):
            return
        if self._lost_its_session() or not self.may_answer():
            return
        if self._promise(sender, accept.ballot, now):
            agreement.accepting = accept
            self._accept_if_held(now)

    def _accept_if_held(self, now: Instant) -> None:
        """Accept a change once the whole cut is held; a name that has lost its view's messages holds nothing."""
        agreement = self._agreement
        accept, accepted = agreement.accepting, agreement.accepted
        if accept is None or not agreement.may_follow(accept.ballot):
            return
        if not self.holds_cut(accept.change):
            session = self._life.session
            if session is not None and session.flush is not None and session.flush.fetch_at is None:
                self._decisions.fetch(accept.change, now)
            return
        vote = agreement.accept()
        if agreement.accepted != accepted:
            self._life.persist()
        if vote is not None:
            self._outbox.say(vote.ballot[1], vote)

    @rule("docs/membership.md, agreement, accept")
    def holds_cut(self, change: Change) -> bool:
        """Decide whether a change may be accepted: the whole cut is held here, or nothing of the view ever was."""
        session = self._life.session
        return session is None or session.flush is None or not session.flush.lacking(change.cut)

    def on_vote(self, sender: int, vote: Vote, now: Instant) -> None:
        """Count a vote, and tell everyone what it decides."""
        agreement = self._agreement
        if not agreement.take_vote(sender, vote):
            return
        if sender == self._own.id and agreement.round is not None:
            agreement.round.again.start(now)
        change = agreement.decision()
        if change is not None:
            names = dict.fromkeys((*agreement.view.names, *change.new.names))
            self._outbox.say_to_names((name for name in names if name != self._own.name), Commit(change))
            self._decisions.learn(self._own.id, change, now)

    # What is missing of a cut

    def on_fetch(self, sender: int, fetch: Fetch, now: Instant) -> None:
        """Give another what it lacks of a view that ends or has ended."""
        session = self._life.session
        for flush in (None if session is None else session.flush, self._life.past.flush):
            if flush is not None and flush.view.id == fetch.view:
                for fill in flush.fills(fetch):
                    self._outbox.say(sender, fill)

    def on_fill(self, sender: int, fill: Fill, now: Instant) -> None:
        """Take what was fetched, and go on if nothing is missing any more."""
        session, agreement = self._life.session, self._agreement
        flush = None if session is None else session.flush
        if flush is None or fill.view != agreement.view.id or not flush.take(fill, now):
            return
        accept, decided = agreement.accepting, agreement.decided
        change = decided if decided is not None or accept is None else accept.change
        if change is None:
            return
        lacking = flush.lacking(change.cut)
        if any(rank == fill.rank for rank, _, _ in lacking):  # an answer holds so much: the next part is asked for
            self._decisions.fetch(change, now)
        elif not lacking and decided is not None:
            self._decisions.carry_out(decided, now)
        elif not lacking:
            flush.fetched()
            self._accept_if_held(now)

    def fetch_again(self, now: Instant) -> None:
        """Ask again for what is missing; give up when nobody can have it any more."""
        session, agreement = self._life.session, self._agreement
        flush = None if session is None else session.flush
        if flush is None or flush.fetch_at is None or flush.fetch_at > now:
            return
        suspicion_ns = self._detector.times.suspicion_ns(agreement.view.names, now)
        if flush.fetching_since is not None and now - flush.fetching_since > 8 * suspicion_ns:
            self._decisions.give_up_fetching(now)
        elif agreement.decided is not None:
            self._decisions.fetch(agreement.decided, now)
        elif agreement.accepting is not None:
            self._decisions.fetch(agreement.accepting.change, now)
        else:
            flush.fetch_at = None
