"""Who is alive and hears whom, as far as one process can tell: the failure detector."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.membership.connectivity import LinkReports, broken_links
from antiphon.protocol.membership.messages import Alive, Standing
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.outbox import OwnProcess
from antiphon.protocol.membership.timing import JoiningWave, Times
from antiphon.protocol.membership.views import NO_VIEW, ViewId, name_of
from antiphon.protocol.timers import Jitter


class Peer(msgspec.Struct):
    """What was heard of a name."""

    heard_at: Instant
    process: int | None = None  # its latest incarnation, if it was ever heard
    view: ViewId = NO_VIEW  # the newest view that it knows
    standing: Standing = "joiner"
    reported: frozenset[int] = frozenset()  # the names that it did not hear when it spoke last
    unheard: frozenset[int] = frozenset()  # those that it did not hear twice in succession
    awaited: bool = False  # it was given time to speak once, and has not spoken since
    asked_at: Instant | None = None  # when it was first asked something since it spoke last

    def says(self, alive: Alive) -> bool:
        """Take the reports of a sign of life; return whether they are new. A silence counts when reported twice."""
        reported = frozenset(alive.unheard)
        before = self.view, self.standing, self.reported, self.unheard
        self.view, self.standing = alive.view, alive.standing
        self.reported, self.unheard = reported, reported & self.reported
        return before != (self.view, self.standing, self.reported, self.unheard)


class _Living(msgspec.Struct, frozen=True):
    """Who is not suspected, and who is; from an instant until another this stands, whoever speaks of the living."""

    names: frozenset[int]
    suspects: tuple[int, ...]
    since: Instant
    until: Instant


class FailureDetector:
    """Watches every other name that this process knows of; one that is silent for too long is suspected."""

    def __init__(
        self, own: OwnProcess, names: Iterable[int], options: MembershipOptions, jitter: Jitter, now: Instant
    ) -> None:
        self._own, self._sides = own, options.partition == "each-side"
        self._suspect_ns, self._retry_ns = options.suspect_ns, options.heartbeat_ns
        self.times = Times(options, jitter, now)
        self.beat_at: Instant = now  # when this process gives its next sign of life
        self.by_name: dict[int, Peer] = {}
        self._told: tuple[int, ...] = ()  # who was not heard when this process spoke last
        self._living: _Living | None = None  # who is not suspected, once found out
        self.links = LinkReports(now)
        self._ask_at: Instant = now  # when those who are late may be asked again
        self.arrivals = JoiningWave()
        self.news = True  # something was heard that was not known before, since this was last set to False
        self.meet(names, now)

    def meet(self, names: Iterable[int], now: Instant) -> None:
        """Get to know names; new ones have time to speak before they are suspected."""
        for name in names:
            if name != self._own.name and name not in self.by_name:
                self.by_name[name] = Peer(now)
                self.times.meet(name)
                self._living = None

    def heard(self, process: int, now: Instant) -> bool:
        """Note a sign of life; say whether it comes from its name's latest incarnation and not from an earlier one."""
        name = name_of(process)
        if name not in self.by_name:
            self.meet((name,), now)
        peer, living = self.by_name[name], self._living
        if peer.process is None or process > peer.process:
            # whom it does not hear is a matter of the links, which are the same for every incarnation
            peer.process, peer.view, peer.standing = process, NO_VIEW, "joiner"
            self.news = True
            self.arrivals.note(self.times, now)
        if process == peer.process:
            if living is None or now > living.until or name not in living.names:
                self.news |= self.suspected(name, now)
                self._living = None
            if now > peer.heard_at:
                peer.heard_at = now
            peer.awaited, peer.asked_at = False, None
        return process == peer.process

    def latest(self, process: int) -> int:
        """Return the latest incarnation of a process' name that was heard."""
        known = self.by_name[name_of(process)].process
        return process if known is None else known

    def leave_out(self, pause_ns: Duration, now: Instant) -> None:
        """Leave a pause of one's own out of account: this process heard nobody while it stood still."""
        self.times.leave_out(pause_ns, now)
        for peer in self.by_name.values():
            peer.heard_at += pause_ns
            if peer.asked_at is not None:
                peer.asked_at += pause_ns
        self._living = None

    def refresh(self, now: Instant) -> None:
        """Give everyone time to speak."""
        for peer in self.by_name.values():
            peer.heard_at, peer.asked_at = now, None
        self._living = None

    def asked(self, names: Iterable[int], now: Instant) -> None:
        """Note that names were asked something that they answer if they are alive."""
        for name in names:
            peer = self.by_name.get(name)
            if peer is not None and peer.asked_at is None:
                peer.asked_at = now
        self._living = None

    def await_word(self, names: Iterable[int], now: Instant) -> None:
        """Give time to names that should be about to speak, once: otherwise a broken link would get time for ever."""
        for name in names:
            peer = self.by_name.get(name)
            if peer is not None and not peer.awaited:
                peer.heard_at, peer.awaited, peer.asked_at = now, True, None
        self._living = None

    # Signs of life

    def says(self, process: int, alive: Alive, now: Instant) -> None:
        """Take what a sign of life says of its sender, which was heard."""
        name = name_of(process)
        expected_ns = self.times.expected_ns(name)
        self.times.says(name, self._own.name, alive, now)
        peer = self.by_name[name]
        reported = peer.reported
        self.news |= peer.says(alive)
        self.links.put(name, peer.unheard)
        if self.times.expected_ns(name) < expected_ns:  # it may be suspected sooner
            self._living = None
        if reported != peer.reported:
            self.links.note_change(now, self.times.reporting_ns(self.by_name, now))

    def sign(self, view: ViewId, standing: Standing, now: Instant) -> Alive:
        """Give a sign of life to all; what is new in it is told twice soon, since two reports count."""
        unheard, period_ns = self.unheard(now), self.times.period_ns
        self.beat_at = now + (period_ns if unheard == self._told else max(self.times.news_ns, self._retry_ns))
        self._told = unheard
        return self.times.sign(Alive(view, standing, unheard), now)

    def question(self, view: ViewId, standing: Standing, now: Instant) -> Alive:
        """Give a sign of life to some, who are to give one in return at once."""
        return self.times.sign(Alive(view, standing, self.unheard(now), asks=True), now)

    def tell_soon(self, now: Instant) -> None:
        """Give the next sign of life soon, because there is news."""
        self.beat_at = min(self.beat_at, now + self.times.news_ns)

    def look(self, now: Instant) -> list[int]:
        """See who has fallen silent or speaks again, which is news for all; return those who should be asked."""
        self.news = False
        self.arrivals.look(now)
        self.times.look(now)
        if self._living is not None and self._living.suspects:  # a pause of one's own gives them more time
            self._living = None
        if self.unheard(now) != self._told:
            self.tell_soon(now)
            self.links.note_change(now, self.times.reporting_ns(self.by_name, now))
        return self.late(now)

    @property
    def look_at(self) -> Instant:
        """When to look around next."""
        at = min(self.beat_at, self.times.look_at)
        if self.arrivals.until is not None:
            at = min(at, self.arrivals.until)
        return at if self._suspect_ns is not None else min(at, self._ask_at)

    # Who is alive

    def suspected(self, name: int, now: Instant) -> bool:
        """Say whether a name has been silent for too long."""
        peer = self.by_name[name]
        if self._suspect_ns is not None:
            return now - peer.heard_at > self._suspect_ns
        late_ns = now - self._due_at(name, peer)
        return late_ns > self.times.margin_ns_min and late_ns > self.times.margin_ns(name, now)

    def _due_at(self, name: int, peer: Peer) -> Instant:
        """Return when a name should have spoken: in its time, or as soon as it can after it was asked."""
        due_at = peer.heard_at + self.times.expected_ns(name)
        if peer.asked_at is None:
            return due_at
        return min(due_at, peer.asked_at + self.times.answer_ns((name,)))

    def late(self, now: Instant) -> list[int]:
        """Name those who should have spoken and are not suspected yet, if it is time to ask them again."""
        if self._suspect_ns is not None or now < self._ask_at:
            return []
        names: list[int] = []
        self._ask_at = now + self.times.period_ns
        for name, peer in self.by_name.items():
            late_at = self._due_at(name, peer) + self._retry_ns
            if late_at > now:
                self._ask_at = min(self._ask_at, late_at)
            elif not self.suspected(name, now):
                names.append(name)
        if names:
            self._ask_at = now + self.times.asking_ns
        self._ask_at = max(self._ask_at, now + 2 * self.times.gathering_ns)  # of many, one or another is late all along
        return names

    def living(self, now: Instant) -> frozenset[int]:
        """Name all that are not suspected, this process among them."""
        return self._found(now).names

    def _found(self, now: Instant) -> _Living:
        """Find out who lives, unless what was found still stands."""
        living = self._living
        if living is None or not living.since <= now <= living.until:
            known = {name: peer for name, peer in self.by_name.items() if not self.suspected(name, now)}
            suspects = tuple(name for name in self.by_name if name not in known)
            if self._suspect_ns is not None:
                until = min((peer.heard_at for peer in known.values()), default=now) + self._suspect_ns
            else:
                until = min((self._due_at(name, peer) for name, peer in known.items()), default=now)
                until += self.times.margin_ns_min
            living = self._living = _Living(frozenset((*known, self._own.name)), suspects, now, until)
        return living

    def unheard(self, now: Instant) -> tuple[int, ...]:
        """Name all that are suspected here: what this process reports to the others."""
        return self._found(now).suspects

    def connected(self, names: Iterable[int], now: Instant) -> tuple[int, ...]:
        """Choose those of some names that all hear one another, as many as possible; the suspected are left out.

        Where each side goes on, those who are left out by this choice choose among themselves in the same way.
        """
        living, names = self._found(now).names, tuple(names)
        if not living.issuperset(names):
            names = tuple([name for name in names if name in living])
        chosen, own = self.links.connected(names), self._own.name
        while self._sides and own in names and own not in chosen:
            names = tuple(name for name in names if name not in chosen)
            chosen = self.links.connected(names)
        return chosen

    def hears_and_is_heard_by(self, names: Collection[int], now: Instant) -> bool:
        """Say whether this process hears all of some names, and none of them reports that it does not hear this one."""
        own, living = self._own.name, self.living(now)
        return self.links.fits(own, names) and all(name in living for name in names if name != own)

    def reports_are_in(
        self, names: Collection[int], now: Instant, is_quorum: Callable[[Collection[int]], bool]
    ) -> bool:
        """Say whether all have told whom of some names they do not hear: there was time to, or all say the same.

        Else the next view might be a majority of what had only seemed to be a majority. A silence that a single report
        names counts here: all of them agree on it, and so nobody needs to say it twice. Where a quorum names the same
        dead, these hear one another, and the others need less time.
        """
        living = self.living(now)
        heard, silent = living.intersection(names), frozenset(names).difference(living)
        passed_ns, times = now - self.links.changed_at, self.times
        if passed_ns >= times.reporting_ns(heard, now):
            return True
        agree = {
            name
            for name in heard
            if name == self._own.name or self.by_name[name].reported.intersection(names) == silent
        }
        if len(agree) == len(heard):
            return True
        return bool(silent) and passed_ns >= times.settling_ns(heard) and is_quorum(agree)

    def broken_links(
        self, names: Collection[int], now: Instant, *, count_late: bool = False
    ) -> tuple[tuple[int, int], ...]:
        """Name the links among some names that are reported as broken, as (from, to), and this process' own.

        What one reported who is not heard any more may have changed since. Suspicion comes at another time for each
        name; `count_late` names those too that are about to be suspected: half of the time that they have is over.
        """
        unheard = set(self.unheard(now))
        if count_late and self._suspect_ns is None:
            late_ns = self.times.margin_ns_min // 2
            unheard.update(name for name, peer in self.by_name.items() if self._due_at(name, peer) + late_ns <= now)
        if not unheard and not self.links.unheard:
            return ()
        living = self.living(now)
        reports = {name: links for name, links in self.links.unheard.items() if name in living}
        reports[self._own.name] = frozenset(unheard)
        return tuple(sorted(broken_links(names, reports)))

    def lives(self, process: int, now: Instant) -> bool:
        """Say whether a process may be alive: its name is not silent and has had no later incarnation."""
        if name_of(process) == self._own.name:
            return process == self._own.id
        peer = self.by_name[name_of(process)]
        return peer.process in (None, process) and name_of(process) in self.living(now)
