"""Probes: a member that waits for something breaks the silence with its own vector, and is answered.

They bring out the loss of a last message, of which no sequence number tells, and bring fresh figures of buffer places.
"""

from __future__ import annotations

from antiphon.protocol.machine import Instant, earliest
from antiphon.protocol.ordering.co.flow import FlowCondition
from antiphon.protocol.ordering.co.pdus import CoOptions
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule


class Probes:
    """When to break a silence, and whom to answer when."""

    def __init__(self, context: PartContext, options: CoOptions, flow: FlowCondition) -> None:
        self.flow, self.options = flow, options
        self.quiet_since: Instant = 0
        self._random, self._jittered = context.random, context.jittered
        self._silence_ns = options.probe_ns
        self._answers: dict[int, tuple[Instant, int]] = {}  # members that probed: when to answer, what they lack

    @rule("docs/protocols/co.md, Losses: the last message, which the paper forgets")
    def silence_matters(self) -> bool:
        """Say whether something is waited for of which no sequence number tells."""
        return self.flow.acceptance.receipt.undelivered > 0 or self.flow.starved

    @property
    def deadline(self) -> Instant | None:
        """When to probe, or to answer a probe."""
        probe = self.quiet_since + self._silence_ns if self.silence_matters() else None
        return earliest(probe, min((due for due, _ in self._answers.values()), default=None))

    def progress(self, now: Instant) -> None:
        """Count the silence from now on, and have little patience: something has moved."""
        self.quiet_since = now
        self._silence_ns = self.options.probe_ns

    def over(self, now: Instant) -> bool:
        """Say whether the silence is to be broken now; if so, the next one is longer."""
        if not self.silence_matters() or self.quiet_since + self._silence_ns > now:
            return False
        self.quiet_since = now
        self._silence_ns = min(self._jittered(2 * self._silence_ns), self.options.probe_ns_max)
        return True

    def asked(self, source: int, lacking: int, now: Instant) -> None:
        """Plan an answer to a prober that lacks one's own PDUs from a number on; soon, but not all at one instant."""
        if source not in self._answers:
            self._answers[source] = (now + self._random.randrange(self.options.defer_ns + 1), lacking)

    def answers(self, now: Instant) -> list[tuple[int, int]]:
        """Give the probers that are to be answered now, each with the first of one's own PDUs that it lacks."""
        due = [source for source, (at, _) in self._answers.items() if at <= now]
        return [(source, self._answers.pop(source)[1]) for source in due]
