"""Backoff, jitter, round-trip estimates and pauses: everything in the system that is repeated is repeated by these.

Members that repeat themselves in step may overrun the same receiver for ever, so every repetition is jittered; and
what is repeated in vain is repeated less and less often, so that a slow network is not buried under repetitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from antiphon.protocol.machine import MILLISECOND, SECOND, Duration, Instant

Jitter: TypeAlias = Callable[[Duration], Duration]  # from a pause to the one that is made


def jittered(chance: random.Random, pause_ns: Duration) -> Duration:
    """Return a random pause between the given one and half as much again."""
    return pause_ns + chance.randrange(pause_ns // 2 + 1)


class Backoff:
    """A timer that goes off, and again at doubling, jittered pauses, until it is stopped.

    It first goes off after `first_ns`, exactly, since that pause is for what mends itself; then after about
    `pause_ns`, twice that, and so on up to `pause_ns_max`. Without `first_ns` the first pause is `pause_ns`.
    """

    def __init__(
        self, jitter: Jitter, pause_ns: Duration, pause_ns_max: Duration, *, first_ns: Duration | None = None
    ) -> None:
        self._jitter = jitter
        self._first_ns = pause_ns if first_ns is None else first_ns
        self._second_ns = pause_ns if first_ns is not None else min(2 * pause_ns, pause_ns_max)
        self._next_ns, self._pause_ns_max = self._second_ns, pause_ns_max
        self.at: Instant | None = None  # when it goes off; None: it is stopped
        self.tries = 0  # how often it has gone off since it was started

    def start(self, now: Instant) -> None:
        """Go off after the first pause from now, however long the pauses were before."""
        self._next_ns = self._second_ns
        self.at = now + self._first_ns
        self.tries = 0

    def stop(self) -> None:
        """Go off no more, because what was waited for has come."""
        self.at = None
        self.tries = 0

    def relent(self, pause_ns_max: Duration) -> None:
        """Let the pauses that follow grow up to another limit, or keep them below it."""
        if pause_ns_max != self._pause_ns_max:
            self._pause_ns_max = pause_ns_max
            self._next_ns = min(2 * self._next_ns, pause_ns_max)

    def hasten(self, at: Instant) -> None:
        """Go off at that instant at the latest, if it is running."""
        if self.at is not None:
            self.at = min(self.at, at)

    def over(self, now: Instant) -> bool:
        """Return whether the pause is over; if so, the next and longer one begins."""
        if self.at is None or self.at > now:
            return False
        self.at = now + self._jitter(self._next_ns)
        self._next_ns = min(2 * self._next_ns, self._pause_ns_max)
        self.tries += 1
        return True


class GrowingPause:
    """How long to be silent: `ns` about doubles with each `grow`, up to a limit, until there is news.

    This is for what others may say in one's stead: whoever uses it counts the pause from when it was said last. The
    jitter accumulates, so that members that fell silent together drift apart.
    """

    def __init__(self, jitter: Jitter, pause_ns: Duration, pause_ns_max: Duration) -> None:
        self._jitter = jitter
        self._first_ns, self._pause_ns_max = pause_ns, max(pause_ns, pause_ns_max)
        self.ns = pause_ns

    def renew(self) -> None:
        """Return to the first pause, because there is news."""
        self.ns = self._first_ns

    def grow(self) -> None:
        """About double the pause, because there was nothing new to say."""
        self.ns = self._jitter(min(2 * self.ns, self._pause_ns_max))


_HALVING_NS: Final = 10 * SECOND


class LongestPause:
    """The longest pause of late: each counts for half as much every ten seconds, and none for more than a limit."""

    def __init__(self, ns_max: Duration) -> None:
        self._ns_max, self._ns = ns_max, 0
        self._since: Instant | None = None  # when it was measured, by a clock that may begin before zero

    def measured(self, pause_ns: Duration, now: Instant) -> None:
        """Take one more pause into account."""
        if not pause_ns:
            return
        pause_ns = min(pause_ns, self._ns_max)
        if pause_ns >= self.ns(now):
            self._ns, self._since = pause_ns, now

    def ns(self, now: Instant) -> Duration:
        """Return how long the longest pause was that still counts."""
        return 0 if self._since is None else self._ns >> min((now - self._since) // _HALVING_NS, 62)


# RFC 6298, section 2: smoothing by 1/8 and 1/4, a timeout of the mean and four times the spread.
_MEAN_SHIFT: Final = 3
_SPREAD_SHIFT: Final = 2
_SPREADS: Final = 4


class RoundTripEstimate:
    """How long an answer takes: a smoothed mean and spread in whole nanoseconds, as TCP keeps them (RFC 6298).

    Measure only what was asked for once: of an answer to a repeated question nobody knows which question it answers.
    Backing off after a timeout is left to `Backoff`.
    """

    def __init__(
        self,
        first_ns: Duration,
        *,
        timeout_ns_min: Duration = MILLISECOND,
        timeout_ns_max: Duration = 60 * SECOND,
    ) -> None:
        self._timeout_ns_min, self._timeout_ns_max = timeout_ns_min, timeout_ns_max
        self.mean_ns: Duration | None = None  # None: nothing was measured yet
        self.spread_ns: Duration = 0
        # how long to wait for an answer before something is amiss; asked for far more often than anything is measured
        self.timeout_ns: Duration = self._bounded(first_ns)

    def measured(self, sample_ns: Duration) -> None:
        """Take one more measurement into account."""
        if self.mean_ns is None:
            self.mean_ns, self.spread_ns = sample_ns, sample_ns // 2
        else:
            error = sample_ns - self.mean_ns
            self.spread_ns += (abs(error) - self.spread_ns) >> _SPREAD_SHIFT
            self.mean_ns += error >> _MEAN_SHIFT
        self.timeout_ns = self._bounded(self.mean_ns + _SPREADS * self.spread_ns)

    def _bounded(self, usual_ns: Duration) -> Duration:
        return max(self._timeout_ns_min, min(usual_ns, self._timeout_ns_max))
