"""How long a member that is behind gathers what it has to say, so that a group with too much to do sends less often.

A word to all costs a packet for each of the others. Where members have more of those to send and to take than their
machines can do, everything comes late, and what comes late is asked for, acknowledged and repeated by itself: a group
of many does nothing else soon. A member notices it by its own timer, which goes off late. The later, and the more
members there are, the longer it lets what it has to say gather, messages of its own application among it: then each
packet carries more, and there are fewer of them. On a machine that keeps up nothing ever waits.
"""

from __future__ import annotations

from typing import Final

from antiphon.protocol.machine import MILLISECOND, Duration, Instant

_LATE_NS: Final = 10 * MILLISECOND  # a timer that is later than this says that there is too much to do
_LATE_NS_MAX: Final = 200 * MILLISECOND  # who is later was stopped, which is no matter of load
_PACKETS: Final = 16  # of a word to all: with so many, the pace follows the lateness one to one
_PACE_NS_MAX: Final = 8 * MILLISECOND  # for each packet of a word to all
_SMOOTHING_SHIFT: Final = 3
_GATHERED_BYTES_MAX: Final = 8_192  # for all: where packets are this large, waiting for more saves little


class Pace:
    """How long a member lets gather what it has to say: longer as long as its timer goes off late, then shorter."""

    def __init__(self, size: int) -> None:
        self._packets = size - 1  # for one word to all
        self.ns: Duration = 0  # how long to gather; 0: not at all
        self.next_at: Instant | None = None  # when it may speak; None or past: whenever it has something to say

    def woken(self, late_ns: Duration) -> None:
        """Hear by how much the timer was late."""
        if late_ns > _LATE_NS or self.ns:
            change_ns = (min(late_ns, _LATE_NS_MAX) - _LATE_NS) * self._packets // _PACKETS
            self._set(self.ns + (change_ns >> _SMOOTHING_SHIFT))

    def carry_over(self, before: Pace) -> None:
        """Go on as in the view before: the machine is as busy as it was."""
        self._set(before.ns)

    def _set(self, ns: Duration) -> None:
        self.ns = max(0, min(ns, _PACE_NS_MAX * self._packets))

    def spoke(self, now: Instant) -> None:
        """Note that all that had gathered was said."""
        self.next_at = now + self.ns if self.ns else None

    @property
    def answer_ns(self) -> Duration:
        """How much longer an answer takes where this one and the others gather alike: asked, taken, given, taken."""
        return 3 * self.ns

    def gathers(self, gathered_bytes: int, now: Instant) -> bool:
        """Say whether what there is to say still gathers: not where it is so much that no packet would be saved."""
        return self.next_at is not None and now < self.next_at and gathered_bytes <= _GATHERED_BYTES_MAX
