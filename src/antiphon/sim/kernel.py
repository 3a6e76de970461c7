"""The whole scheduler: one heap, one clock, integer nanoseconds; ties go in the order in which they were scheduled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from antiphon.errors import UsageError
from antiphon.protocol.machine import SECOND, Duration, Instant

Action: TypeAlias = Callable[[Any], None]

_LOOK: Final = 1 << 24  # events between two looks at the clock: more than 4,000 members can cause at one instant


class Kernel:
    """Runs actions at their instants."""

    def __init__(self) -> None:
        self.now: Instant = 0
        self.events = 0
        self._order = 0
        self._heap: list[tuple[Instant, int, Action, Any]] = []
        self._stopped = False

    def at(self, instant: Instant, action: Action, argument: Any = None) -> None:
        """Schedule an action; nothing happens before now."""
        assert instant >= self.now, "the past cannot be scheduled"
        self._order += 1
        heappush(self._heap, (instant, self._order, action, argument))

    def after(self, delay: Duration, action: Action, argument: Any = None) -> None:
        """Schedule an action some time from now."""
        self._order += 1
        heappush(self._heap, (self.now + delay, self._order, action, argument))

    def latest(self, *actions: Action) -> Instant | None:
        """Return when the last of these actions is due; None: none of them is."""
        return max((instant for instant, _, action, _ in self._heap if action in actions), default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing is scheduled any more."""
        return not self._heap

    def stop(self) -> None:
        """End the run after the action that is running."""
        self._stopped = True

    def run(self, until: Instant | None = None, events_max: int | None = None) -> None:
        """Run until nothing is left, `until` or `events_max` is reached, or an action stops the run.

        Where time stands still for ever, a `UsageError` says so.
        """
        heap = self._heap
        self._stopped = False
        end = float("inf") if until is None else until
        while heap and not self._stopped:
            looked_at, stop_at = self.now, self.events + _LOOK
            if events_max is not None:
                stop_at = min(stop_at, events_max)
            events = self.events
            while heap and not self._stopped and events < stop_at:
                if heap[0][0] > end:
                    self._stopped = True
                    self.now = end  # type: ignore[assignment]  # infinity is never reached
                    break
                self.now, _, action, argument = heappop(heap)
                events += 1
                action(argument)
            self.events = events
            if events == events_max:
                return
            if events == stop_at and self.now == looked_at:
                raise UsageError(
                    f"the simulated time stands still at {self.now / SECOND:.9f} s: {_LOOK:,} events and no end; "
                    f"members that answer each other at once need a latency above 0"
                )
