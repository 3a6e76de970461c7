"""The whole scheduler: one heap, one clock, integer nanoseconds; ties go in the order in which they were scheduled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

from antiphon.protocol.machine import Duration, Instant

Action: TypeAlias = Callable[[Any], None]


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

    def stop(self) -> None:
        """End the run after the action that is running."""
        self._stopped = True

    def run(self, until: Instant | None = None) -> None:
        """Run until nothing is left, `until` is reached, or an action stops the run."""
        heap = self._heap
        self._stopped = False
        events = 0
        while heap and not self._stopped:
            if until is not None and heap[0][0] > until:
                self.now = until
                break
            self.now, _, action, argument = heappop(heap)
            events += 1
            action(argument)
        self.events += events
