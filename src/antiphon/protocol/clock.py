"""Clocks: physical, skewed (a physical clock that is off and drifts), and Lamport's logical one.

None of them reads the time: the driver passes it in.
"""

from __future__ import annotations

from antiphon.protocol.machine import Duration, Instant

PPM = 1_000_000


class SkewedClock:
    """A physical clock that starts `skew_ns` off and gains `drift_ppm` microseconds a second, in whole nanoseconds."""

    def __init__(self, skew_ns: Duration = 0, drift_ppm: int = 0) -> None:
        self.skew_ns = skew_ns
        self.drift_ppm = drift_ppm

    def read(self, true_ns: Instant) -> Instant:
        """Give what this clock shows at a true instant."""
        return true_ns + self.skew_ns + true_ns * self.drift_ppm // PPM

    def true(self, shown_ns: Instant) -> Instant:
        """Give the first true instant at which this clock shows at least `shown_ns`."""
        return -(-(shown_ns - self.skew_ns) * PPM // (PPM + self.drift_ppm))  # rounded up


class StrictClock:
    """Timestamps from a physical clock: strictly increasing and above 0 even where the clock repeats itself."""

    def __init__(self) -> None:
        self.last = 0

    def tick(self, now: Instant) -> int:
        """Give the timestamp of an event at `now`."""
        self.last = max(self.last + 1, now)
        return self.last


class LamportClock:
    """A logical clock: it counts one's own events and jumps to what others have counted."""

    def __init__(self) -> None:
        self.time = 0

    def tick(self) -> int:
        """Count an event of one's own and give its time."""
        self.time += 1
        return self.time

    def witness(self, other: int) -> None:
        """Take note of another's time, so that the next event comes after it."""
        self.time = max(self.time, other)
