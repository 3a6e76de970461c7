"""Probes: a member that waits for something breaks the silence with its own vector, and is answered.

They bring out the loss of a last message, of which no sequence number tells, and bring fresh figures of buffer places.
"""

from __future__ import annotations

from typing import Final

from antiphon.protocol.machine import SECOND, Duration, Instant, earliest
from antiphon.protocol.ordering.co.flow import FlowCondition
from antiphon.protocol.ordering.co.pdus import CoOptions
from antiphon.protocol.ordering.round_trips import RoundTrips
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule

DOUBLINGS_MAX: Final = 4
PROMPT_NS_MAX: Final = SECOND  # a probe is small: it need not wait as long as large messages take
CROWD: Final = 8  # members: in groups so many times as large the first silence is as many times as long
UNCROWDED: Final = 2  # in larger groups members that wait in vain probe less often


class Probes:
    """When to break a silence, and whom to answer when."""

    def __init__(self, context: PartContext, options: CoOptions, flow: FlowCondition, trips: RoundTrips) -> None:
        self.flow, self.options, self.trips = flow, options, trips
        self.quiet_since: Instant = 0
        self._random, self._jittered = context.random, context.jittered
        self._silence_ns = options.probe_ns
        self._answers: dict[int, Instant] = {}  # members that probed: when to answer
        self._asked: dict[int, int] = {}  # and how often they have asked since something moved

    @rule("docs/protocols/co.md, Losses: the last message, which the paper forgets")
    def silence_matters(self) -> bool:
        """Say whether something is waited for of which no sequence number tells."""
        return self.flow.acceptance.receipt.undelivered > 0 or self.flow.starved

    @property
    def deadline(self) -> Instant | None:
        """When to probe, or to answer a probe."""
        probe = self.quiet_since + self._silence_ns if self.silence_matters() else None
        return earliest(probe, *self._answers.values()) if self._answers else probe

    def progress(self, now: Instant) -> None:
        """Count the silence from now on, and have little patience: something has moved."""
        self.quiet_since = now
        under_way_ns = self._prompt_ns if self.flow.acceptance.receipt.undelivered else 0
        self._silence_ns = max(self.options.probe_ns * max(1, self.flow.acceptance.size // CROWD), under_way_ns)
        self._asked.clear()

    @property
    def _prompt_ns(self) -> Duration:
        """How long the best answers of late took, as far as a probe waits for them."""
        return min(self.trips.prompt_ns, PROMPT_NS_MAX)

    def over(self, now: Instant) -> bool:
        """Say whether the silence is to be broken now; if so, the next one is longer."""
        if not self.silence_matters() or self.quiet_since + self._silence_ns > now:
            return False
        self.quiet_since = now
        crowded_ns = self.options.probe_ns * self.flow.acceptance.size // UNCROWDED
        longest_ns = max(self.options.probe_ns_max, 2 * self._prompt_ns, crowded_ns)
        self._silence_ns = min(self._jittered(2 * self._silence_ns), longest_ns)
        return True

    @rule("docs/protocols/co.md, Losses")
    def probe_targets(self) -> tuple[int, ...] | None:
        """Say who is probed: those of whom something is waited for, and those to whom an answer is due; None: all."""
        others = (self.flow.acceptance.receipt.awaited() | self._answers.keys()) - {self.flow.acceptance.rank}
        self._answers.clear()
        if self.flow.starved:
            return None
        return tuple(sorted(others)) if others else None

    def asked(self, source: int, now: Instant) -> None:
        """Plan an answer to a prober; soon, but not all at one instant. One that waits itself probes the prober too,
        and answers only if its own wait is over before that.

        Everyone answers: the more members there are, and the more often it has asked, the wider the answers spread.
        """
        if self.silence_matters():
            self._answers.setdefault(source, now + self._jittered(self._silence_ns))
        elif source not in self._answers:
            tries = self._asked[source] = self._asked.get(source, 0) + 1
            spread_ns = self.options.defer_ns * self.flow.acceptance.size << min(tries - 1, DOUBLINGS_MAX)
            self._answers[source] = now + self._random.randrange(spread_ns // 2 + 1)

    def answers(self, now: Instant) -> list[int]:
        """Give the probers that are to be answered now."""
        due = [source for source, at in self._answers.items() if at <= now]
        for source in due:
            del self._answers[source]
        return due
