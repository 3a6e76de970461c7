"""Flow control: a window over what is not yet stable, and the buffer credit that members advertise.

The sender of a message must be sure that every member has a place for it. Each datagram's header says how many places
its sender has left; as all n members may send at once, one of them may count on an n-th of the smallest figure.
"""

from __future__ import annotations


class Flow:
    """Decides whether one more message may be sent."""

    def __init__(self, size: int, window: int, buffer: int) -> None:
        self.window = window
        self._size = size
        self._free = [buffer] * size  # a full buffer is assumed at first: assuming 0 would never start
        self.sources: set[int] = set()  # who was heard, since someone last asked

    def heard(self, source: int, free: int) -> None:
        """Remember what a member says that it has left."""
        self._free[source] = free
        self.sources.add(source)

    def credit(self) -> int:
        """Count the messages that may be outstanding now."""
        return min(self.window, min(self._free) // self._size)

    def poor(self) -> tuple[int, ...]:
        """List the members that are not known to have a place for one message of everyone."""
        return tuple(rank for rank, free in enumerate(self._free) if free < self._size)

    def open(self, outstanding: int) -> bool:
        """Say whether a message may be sent with so many of one's own not yet stable."""
        return outstanding < self.window and outstanding < self.credit()
