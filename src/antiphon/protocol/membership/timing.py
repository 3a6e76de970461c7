"""How long to wait for others: what was measured of the network and of the machines, unless a time was given.

Every sign of life says when its sender speaks next and how long its machine has kept it waiting of late, so that a
busy machine is not taken for a dead one; a link that is cut teaches nobody to wait longer. It also echoes others' signs
of life, a few at a time, so that round trips are measured on what is sent anyway. What a member costs per second is
bounded by speaking less often the more members there are, and by asking whoever is late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from antiphon.protocol.machine import SECOND, Duration, Instant
from antiphon.protocol.membership.messages import ECHOES_MAX, Alive, Echo
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.timers import Backoff, Jitter, LongestPause, RoundTripEstimate

_BEATS: Final = 9  # heartbeats that a late member, or one that was asked, has left before it is suspected
_PAUSES: Final = 2  # times the longest pause of either side: a longer one may come
_QUICK_MEMBERS: Final = 3  # up to so many speak as often as they may
_QUESTIONS: Final = 8  # a late member is asked this often between two signs of life, if that time is long
_MANY_MEMBERS: Final = 24  # groups of this many look at what others say once per heartbeat, not at each message
_PERIOD_NS_MAX: Final = 60 * SECOND  # what another may ask to be believed for
_DOUBLINGS_MAX: Final = 3
_LIFETIME_TRIPS: Final = 12  # a repair takes two or three round trips, and may be lost, too


class PeerTimes:
    """What was measured of one other name, and what it says of itself."""

    def __init__(self, period_ns: Duration, heartbeat_ns: Duration, since: Instant) -> None:
        self.since = since  # what was said before is not answered by it as fast as it can
        self.answers = RoundTripEstimate(2 * heartbeat_ns)
        self.lateness = RoundTripEstimate(0, timeout_ns_min=0)  # how much later than announced it is heard
        self.period_ns = period_ns  # from one sign of life to the next, as it says
        self.pause_ns: Duration = 0  # how long its machine has kept it waiting of late, as it says
        self.due_at: Instant | None = None  # when its next sign of life should have been given


class JoiningWave:
    """Those who join a large group, one soon after the other: they gather, and are let in together."""

    def __init__(self) -> None:
        self._since: Instant = 0
        self.until: Instant | None = None  # until when more may come; None: nobody does

    def note(self, times: Times, now: Instant) -> None:
        """Hear that someone has come."""
        if self.until is None:
            self._since = now
        until = min(now + times.arrival_ns, self._since + times.period_ns)
        self.until = until if until > now else None

    def look(self, now: Instant) -> None:
        """See whether the time is over."""
        if self.until is not None and now >= self.until:
            self.until = None


class Times:
    """How long one process waits for what; a time that was given stands as it is."""

    def __init__(self, options: MembershipOptions, jitter: Jitter, now: Instant) -> None:
        self._options, self.jitter, self._started_at = options, jitter, now
        # by how much a process may be late before it counts as away: less than it takes to be suspected
        self.away_ns: Duration = 2 * (options.suspect_ns or 10 * options.heartbeat_ns) // 5
        self.period_ns: Duration = options.heartbeat_ns  # how often this process gives a sign of life
        self._pauses = LongestPause(self.away_ns)
        self._echoes: dict[int, tuple[Instant, Instant]] = {}  # by name: what its last sign of life said, when it came
        self.by_name: dict[int, PeerTimes] = {}
        self.look_at: Instant = now  # when this process looks around at the latest
        self.margin_ns_min = _BEATS * options.heartbeat_ns  # how late anyone may be

    def meet(self, name: int) -> None:
        """Get to know a name."""
        if name not in self.by_name:
            self.by_name[name] = PeerTimes(self.period_ns, self._options.heartbeat_ns, self._started_at)
            if self._options.suspect_ns is None:  # the more there are to tell, the less often
                heartbeat_ns = self._options.heartbeat_ns
                self.period_ns = max(heartbeat_ns, heartbeat_ns * (len(self.by_name) + 1) // _QUICK_MEMBERS)

    # This process itself

    @property
    def news_ns(self) -> Duration:
        """How soon news is told to all: at once by few; many let it gather."""
        return (self.period_ns - self._options.heartbeat_ns) // 4

    @property
    def arrival_ns(self) -> Duration:
        """How long to wait for another joiner after one, to admit both in one view: views are dear in large groups."""
        return self.news_ns if len(self.by_name) >= _MANY_MEMBERS else 0

    @property
    def gathering_ns(self) -> Duration:
        """For how long what others say of themselves may wait to be looked at: to look costs many members more."""
        return self._options.heartbeat_ns if len(self.by_name) >= _MANY_MEMBERS else 0

    @property
    def asking_ns(self) -> Duration:
        """How often those who are late are asked: where many are, less often."""
        return max(self._options.heartbeat_ns, self.period_ns // _QUESTIONS)

    def look(self, now: Instant) -> None:
        """Note when this process looks around, and how late that is."""
        self._pauses.measured(max(0, now - self.look_at), now)
        self.look_at = now + min(self.period_ns, self.away_ns)

    def away_for_ns(self, now: Instant) -> Duration:
        """Return how long this process itself has just stood still; 0 if that was too short to matter."""
        late_ns = now - self.look_at
        return late_ns if late_ns > self.away_ns else 0

    def leave_out(self, pause_ns: Duration, now: Instant) -> None:
        """Leave a pause of one's own out of account: who spoke meanwhile was not late, nor was its answer slow."""
        for peer in self.by_name.values():
            peer.since = now
            if peer.due_at is not None:
                peer.due_at += pause_ns

    # Signs of life

    def says(self, name: int, own: int, alive: Alive, now: Instant) -> None:
        """Take what a sign of life says of its sender's times, and what it measures."""
        peer = self.by_name[name]
        late_ns = 0 if peer.due_at is None else max(0, now - peer.due_at)
        if late_ns <= self.margin_ns_min or late_ns <= self.margin_ns(name, now):
            peer.lateness.measured(late_ns)
        else:  # it was suspected: a member that was cut off, or stood still, measures nothing
            peer.since = now
        for echo in alive.echoes:
            # what an earlier start said was said by another clock, which may have been days off
            if echo.name == own and peer.since <= echo.at <= now - echo.held_ns:
                peer.answers.measured(now - echo.at - echo.held_ns)
        peer.period_ns = min(alive.period_ns or self._options.heartbeat_ns, _PERIOD_NS_MAX)
        peer.pause_ns = min(alive.pause_ns, self.away_ns)
        peer.due_at = now + peer.period_ns
        if alive.at:
            self._echoes[name] = alive.at, now  # a new one comes behind the others

    def sign(self, alive: Alive, now: Instant, to: int | None = None) -> Alive:
        """Add to a sign of life when it is given and what it echoes: of one name, or of those whose turn it is."""
        names = list(self._echoes)[:ECHOES_MAX] if to is None else [name for name in (to,) if name in self._echoes]
        alive.period_ns, alive.pause_ns, alive.at = self.period_ns, self._pauses.ns(now), max(0, now)
        came = ((name, *self._echoes.pop(name)) for name in names)
        alive.echoes = tuple(Echo(name, at, now - came_at) for name, at, came_at in came)
        return alive

    # Others

    def expected_ns(self, name: int) -> Duration:
        """Return how long after a sign of life the next is expected at the latest."""
        return self.by_name[name].period_ns

    def margin_ns(self, name: int, now: Instant) -> Duration:
        """Return how late a sign of life may be before its sender is suspected."""
        peer = self.by_name[name]
        return self.margin_ns_min + peer.lateness.timeout_ns + _PAUSES * (self._pauses.ns(now) + peer.pause_ns)

    def answer_ns(self, names: Iterable[int]) -> Duration:
        """Return how long an answer of any of these may take on its way."""
        known = (self.by_name[name].answers.timeout_ns for name in names if name in self.by_name)
        return max(known, default=self._options.heartbeat_ns)

    def suspicion_ns(self, names: Iterable[int], now: Instant) -> Duration:
        """Return how long it takes at most until one of these is suspected that falls silent."""
        known = [name for name in names if name in self.by_name]
        longest = max((self.expected_ns(name) + self.margin_ns(name, now) for name in known), default=0)
        return self._options.suspect_ns or longest or 10 * self._options.heartbeat_ns

    def grace_ns(self, names: Iterable[int], now: Instant) -> Duration:
        """Return how long the living may take to answer: longer than to be suspected once they were asked."""
        if self._options.grace_ns is not None:
            return self._options.grace_ns
        known = [name for name in names if name in self.by_name]
        margin = max((self.margin_ns(name, now) for name in known), default=0)
        return margin + 3 * self.answer_ns(known)

    def patience_ns(self, names: Iterable[int], tries: int, now: Instant) -> Duration:
        """Return how long a change may take before it is taken over: each time longer than the last."""
        first = self._options.patience_ns or 2 * self.grace_ns(names, now)
        return first << min(max(0, tries - 1), _DOUBLINGS_MAX)

    def stall_ns(self, names: Iterable[int], now: Instant) -> Duration:
        """Return for how long a view may end before that is called a stall."""
        return self._options.stall_ns or max(SECOND, self.patience_ns(names, 1, now))

    def slow_ns(self, names: Iterable[int], message_times: int) -> Duration:
        """Return for how long nothing may become stable before someone is too slow: two rounds and two repairs.

        A round of the stability protocol takes so many message times; a message may have just missed one.
        """
        return self._options.slow_ns or max(SECOND, (message_times + 2) * self.answer_ns(names))

    def lifetime_ns(self, names: Iterable[int]) -> Duration:
        """Return how long a message is worth waiting for: what was lost is sent again several times in it."""
        return self._options.lifetime_ns or max(SECOND, _LIFETIME_TRIPS * self.answer_ns(names))

    def retry_ns(self, names: Iterable[int]) -> Duration:
        """Return how long to wait for an answer before a question is repeated."""
        return max(self._options.retry_ns, self.answer_ns(names))

    def reporting_ns(self, names: Iterable[int], now: Instant) -> Duration:
        """Return how long after the first report of a broken link the others may come: busy machines notice it late."""
        known = [self.by_name[name] for name in names if name in self.by_name]
        pause_ns = max((peer.pause_ns for peer in known), default=0)
        late_ns = max((peer.lateness.timeout_ns for peer in known), default=0)
        return self.settling_ns(names) + late_ns + 2 * _PAUSES * max(pause_ns, self._pauses.ns(now))

    def settling_ns(self, names: Iterable[int]) -> Duration:
        """Return how long it may take until all have noticed what one of these has, and have told it twice."""
        return 3 * self._options.heartbeat_ns + self.answer_ns(names)

    def farewell_ns(self, names: Iterable[int]) -> Duration:
        """Return how long it may take until the others have gone on without one who leaves: two changes."""
        return 8 * self.answer_ns(names)

    def repetition(self, names: Iterable[int], now: Instant) -> Backoff:
        """Return a timer for a question to some names: it is asked now, and again less and less often."""
        pause = self.retry_ns(names)
        again = Backoff(self.jitter, pause, pause << _DOUBLINGS_MAX, first_ns=0)
        again.start(now)
        return again
