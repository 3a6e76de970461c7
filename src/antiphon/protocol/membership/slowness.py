"""Who holds all back, and what is done about it."""

from __future__ import annotations

from math import inf
from typing import Literal

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.membership.flush import ViewMember
from antiphon.protocol.membership.views import GroupView, name_of


class Slowness:
    """Watches whether what is held becomes stable; with `drop`, accuses whoever prevents it."""

    def __init__(self, policy: Literal["block", "drop"], slow_ns: Duration, now: Instant) -> None:
        self._policy, self._slow_ns = policy, slow_ns
        self.begin(now)

    def begin(self, now: Instant) -> None:
        """Begin a view, in which nobody is slow yet."""
        self.stable_at = now  # when something became stable, or nothing was held
        self.accused: frozenset[int] = frozenset()  # too slow to wait for

    def watch(self, member: ViewMember, active: bool, view: GroupView, now: Instant) -> None:
        """Accuse who lacks most, if nothing has become stable for too long and the others decide for the view."""
        if not active or member.held == 0:
            self.stable_at = now
        elif self._policy == "drop" and now - self.stable_at > self._slow_ns:
            lag = {other: inf if lacks is None else lacks for other, lacks in member.lag().items()}
            slow = frozenset(other for other, lacks in lag.items() if lacks == max(lag.values()))
            if view.is_quorum({name_of(other) for other in view.members if other not in slow}):
                self.accused = slow  # else it is rather this process that is cut off
            self.stable_at = now
