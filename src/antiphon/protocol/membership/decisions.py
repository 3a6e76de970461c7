"""What a process learns of views: which is the newest, from whoever tells, and what was decided to follow its own.

A decision about one's own view is carried out: what is missing of the cut is fetched, the rest of the view delivered,
and the next one begun. A process that learns that the group went on without it gives way.
"""

from __future__ import annotations

from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.flush import Flush
from antiphon.protocol.membership.lifecycle import Lifecycle, Past
from antiphon.protocol.membership.messages import Alive, Commit, Newer, Superseded
from antiphon.protocol.membership.outbox import Outbox
from antiphon.protocol.membership.views import Change, GroupView, ViewId, incarnation_of, name_of
from antiphon.protocol.rules import rule


class Decisions:
    """Hears of views and of decisions, believes them or not, and carries them out."""

    def __init__(self, lifecycle: Lifecycle, detector: FailureDetector, outbox: Outbox) -> None:
        self.life, self._agreement, self._membership = lifecycle, lifecycle.agreement, lifecycle.membership
        self._detector, self._outbox = detector, outbox

    def tell_if_behind(self, sender: int, view: ViewId) -> bool:
        """Tell one who knows an older view, or another side's, what ours is and how it came about."""
        if not self._agreement.is_news(view):
            return False
        decision = self.life.past.decision
        if decision is not None and decision.old == view:
            self._outbox.say(sender, Commit(decision))
        else:
            self._outbox.say(sender, Newer(self._agreement.view))
        return True

    def on_alive(self, sender: int, alive: Alive, now: Instant) -> None:
        """Hear a sign of life, and which view its sender knows."""
        detector, life = self._detector, self.life
        detector.says(sender, alive, now)
        if alive.asks:
            answer = Alive(life.view.id, life.standing, detector.unheard(now))
            self._outbox.say(sender, detector.times.sign(answer, now, name_of(sender)))
        if not self._agreement.is_news(alive.view):
            return  # as nearly always
        if now >= life.learnt_at + detector.times.retry_ns((name_of(sender),)):  # else the news is on its way
            self.tell_if_behind(sender, alive.view)

    def on_superseded(self, sender: int, superseded: Superseded, now: Instant) -> None:
        """Hear that this name has had a later incarnation: the count of its starts was lost with its state.

        What that one has promised is not known here either, even if the state is not gone but an old one.
        """
        life, latest = self.life, superseded.latest
        if name_of(latest) != life.own.name or latest <= life.own.id:
            return
        if life.session is None:
            self._outbox.note_memory(whole=False, votes=not life.roster.sides)
            life.begin_next_incarnation(now, incarnation_of(latest))
            life.persist()
        elif self._membership.partition == "each-side":
            # it has begun alone, and nobody who knows the later one hears it
            life.give_way(life.view, self._agreement.GIVES_WAY, now, beyond=incarnation_of(latest))

    def on_commit(self, sender: int, commit: Commit, now: Instant) -> None:
        """Hear of a change that was decided."""
        self.learn(sender, commit.change, now)

    def on_newer(self, sender: int, newer: Newer, now: Instant) -> None:
        """Hear of another view."""
        self.hear_of(sender, newer.view, now)

    def learn(self, sender: int, change: Change, now: Instant) -> None:
        """Carry out a change that was decided."""
        session = self.life.session
        if change.old != self._agreement.view.id or session is None:
            self.hear_of(sender, change.new, now, change)
        elif session.flush is not None and self.takes_part(change, session.flush):
            if self._agreement.decided is None:
                self._agreement.decided, self._agreement.round = change, None
                self.carry_out(change, now)
        elif self._agreement.heeds(change.new, sender) and self.may_give_way(change.new, now):
            self.life.past = Past(change, session.flush)
            self.life.give_way(change.new, self._agreement.GIVES_WAY, now)

    @rule("docs/membership.md, leaving")
    def takes_part(self, change: Change, flush: Flush) -> bool:
        """Decide whether a change concerns this process: it is listed, or leaves and has no more than what was counted.

        A leaver that was not heard may hold messages beyond the cut. The others go on without them, so it must not
        deliver them.
        """
        return change.new.lists(self.life.own.id) or (self.life.own.leaving and flush.lies_within(change.cut))

    def carry_out(self, change: Change, now: Instant) -> None:
        """End the old view once the whole cut is held, and begin the new one."""
        assert self.life.session is not None
        flush = self.life.session.flush
        assert flush is not None
        if flush.lacking(change.cut):
            if flush.fetch_at is None:
                self.fetch(change, now)
            return
        self.life.emit(flush.finish(change.cut, now))
        self.life.queue.extendleft(reversed(flush.member.submissions.take_back()))
        self.life.past = Past(change, flush)
        if change.new.lists(self.life.own.id):
            self.life.install(change.new, now)
        else:
            self.life.adopt(change.new, now)
            self.life.persist()
            self.life.depart(now)

    def fetch(self, change: Change, now: Instant) -> None:
        """Ask for what is missing of a cut."""
        assert self.life.session is not None
        assert self.life.session.flush is not None
        retry_ns = self._detector.times.retry_ns(self._agreement.view.names)
        for names, fetch in self.life.session.flush.fetches(change, retry_ns, now):
            self._outbox.say_to_names((name for name in names if name != self.life.own.name), fetch)

    def give_up_fetching(self, now: Instant) -> None:
        """End this incarnation: nobody has the missing messages of the cut any more, so it can only join anew."""
        decided = self._agreement.decided
        if decided is not None:
            self.life.past = Past(decided)
        self.life.give_way(self._agreement.view if decided is None else decided.new, "excluded", now)

    def hear_of(self, sender: int, view: GroupView, now: Instant, decision: Change | None = None) -> None:
        """Hear of another view without the cut that led to it, or with one that is of no use here."""
        accepted = self._agreement.accepted
        heeds = self._agreement.heeds(view, sender) and self.may_give_way(view, now)
        if self.may_begin(view):
            if self._may_adopt(sender, view, now):
                self.life.past = Past(decision)
                if self.is_listed(view):
                    self.life.install(view, now)
                else:
                    self.life.adopt(view, now)
                    earlier = [incarnation_of(one) for one in view.members if name_of(one) == self.life.own.name]
                    if self.life.own.offered or max(earlier, default=0) >= incarnation_of(self.life.own.id):
                        # a view in between may have listed this incarnation, or one of which nothing is known here
                        self.life.begin_next_incarnation(now, max(earlier, default=0))
                    self.life.persist()
        elif accepted is not None and accepted.change.new == view:
            self.learn(sender, accepted.change, now)  # so that was decided
        elif heeds and (self._membership.partition == "each-side" or not view.lists(self.life.own.id)):
            self.life.past = Past(decision)
            self.life.give_way(view, self._agreement.GIVES_WAY, now)

    @rule("docs/membership.md, lost state")
    def is_listed(self, view: GroupView) -> bool:
        """Decide whether a view lists this very process: it has offered itself with the ballot that made the view.

        A name that has lost its state does not know how often it has started. It is a newcomer, whatever its number.
        """
        return view.lists(self.life.own.id) and view.ballot in self.life.own.ballots

    @rule("docs/membership.md, each side goes on")
    def may_give_way(self, view: GroupView, now: Instant) -> bool:
        """Decide whether to give way to another side: only who hears all of it, and is heard, could join it.

        All of a side give way together: where one of them has, the others wait until they hear the other side.
        """
        mates = (self._detector.by_name.get(name) for name in self._agreement.view.names)
        gave_way = any(mate is not None and mate.standing == "joiner" and mate.view == view.id for mate in mates)
        majority = self._membership.partition == "majority"
        return majority or gave_way or self._detector.hears_and_is_heard_by(view.names, now)

    @rule("docs/membership.md, agreement, commit")
    def may_begin(self, view: GroupView) -> bool:
        """Decide whether this process can begin a view that it hears of: not before it has ended the one it is in."""
        return self.life.session is None

    def _may_adopt(self, sender: int, view: GroupView, now: Instant) -> bool:
        """Decide whether one who is in no view takes this for the one to join, or to begin with if it is listed there.

        With sides, that is the strongest of which a member tells, unless nobody is left in it; who does not hear all
        of a side, or is not heard, could not join it.
        """
        if self._membership.partition == "majority":
            return view.id > self._agreement.view.id
        if view.id == self._agreement.view.id:
            return False
        if view.lists(self.life.own.id):
            return True
        self._detector.meet(view.names, now)  # new ones have time to speak
        if not self._detector.hears_and_is_heard_by(view.names, now):
            return False
        if self._agreement.heeds(view, sender):
            return True
        return not self.life.roster.has_members(self._agreement.view, now) and (
            view.lists(sender) or view.id > self._agreement.view.id
        )

    def forget_the_past(self) -> None:
        """Let the old view's messages go when all of the new one have begun it."""
        life, view = self.life, self._agreement.view
        if life.past.flush is not None and all(
            other == life.own.id or self.life.roster.knows(other, view.id) for other in view.members
        ):
            life.past = Past(life.past.decision)
