"""What has come from each member, and up to which block that is settled: nothing before it is merely late."""

from __future__ import annotations

from collections import deque

from antiphon.protocol.machine import Duration, Instant


class Arrivals:
    """The blocks and numbers that were received of each member.

    MB passes a message that is missing; that is how its loss shows. A datagram that another overtook on its way is not
    lost, so a gap is passed only when it has had a grace to close by itself.
    """

    def __init__(self, size: int) -> None:
        self.highest = [0] * size  # per member, the highest block received
        self.settled = [0] * size  # per member, the highest block received before which nothing is merely late
        self._complete = [0] * size  # per member, the number up to which all its messages have come
        self._early: list[set[int]] = [set() for _ in range(size)]  # numbers of messages beyond that
        self._open: list[deque[tuple[int, int, Instant]]] = [
            deque() for _ in range(size)
        ]  # block, number before, since
        self._unsettled: set[int] = set()  # members of whom something may be late

    def heard(self, k: int, block: int, before: int, now: Instant) -> None:
        """Take note of a member's newest block, before which it had sent so many messages."""
        self.highest[k] = block
        if k not in self._unsettled and before <= self._complete[k]:
            self.settled[k] = block
        else:
            self._open[k].append((block, before, now))
            self._unsettled.add(k)

    def came(self, k: int, number: int) -> None:
        """Take note of a message that has come, or will never be waited for."""
        if number > self._complete[k] + 1:
            self._early[k].add(number)
        elif number == self._complete[k] + 1:
            early = self._early[k]
            while number + 1 in early:
                number += 1
                early.remove(number)
            self._complete[k] = number

    def skipped(self, k: int, number: int) -> None:
        """Wait for none of a member's messages up to this number any more."""
        for missing in range(self._complete[k] + 1, number + 1):
            self.came(k, missing)

    def settle(self, now: Instant, grace_ns: Duration) -> None:
        """Pass the gaps that have closed, or had the grace to close."""
        for k in [*self._unsettled]:
            waiting = self._open[k]
            while waiting and (waiting[0][1] <= self._complete[k] or waiting[0][2] + grace_ns <= now):
                self.settled[k] = waiting.popleft()[0]
            if not waiting:
                self._unsettled.remove(k)
