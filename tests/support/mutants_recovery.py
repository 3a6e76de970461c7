"""Recovery with one rule broken each; the checker, or a run that never ends, must show it."""

from __future__ import annotations

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import Accepted, Step
from antiphon.protocol.recovery import Recovery
from antiphon.protocol.rules import replaced
from antiphon.protocol.wire import Pdu, Streamed


def ask_once(self: Recovery, source: int, tries: int) -> list[Pdu]:
    """A request that was lost is not repeated."""
    return Recovery.ask(self, source, tries) if tries == 1 else []


def accept_early(self: Recovery, source: int, pdu: Streamed, now: Instant) -> Step:
    """What comes early is passed on at once."""
    step = Recovery.take_streamed(self, source, pdu, now)
    return Step([Accepted(source, pdu)]) if not step.up and pdu.number in self.log[source] else step


def accept_twice(self: Recovery, source: int, pdu: Streamed, now: Instant) -> Step:
    """A copy is passed on like the first."""
    if 0 < pdu.number <= self.received[source]:
        return Step([Accepted(source, pdu)])
    return Recovery.take_streamed(self, source, pdu, now)


def skip_gaps(self: Recovery, source: int, pdu: Streamed, now: Instant) -> Step:
    """A gap is jumped over instead of filled."""
    if pdu.number > self.received[source] + 1:
        self.received[source] = pdu.number - 1
    return Recovery.take_streamed(self, source, pdu, now)


MUTANTS: dict[str, tuple[type[Recovery], str]] = {
    "never repairs": (replaced(Recovery, repair=lambda self, source, nack: Step()), "stuck"),
    "never notices the last": (replaced(Recovery, noticed=lambda self, source, sent, now: None), "stuck"),
    "asks once": (replaced(Recovery, ask=ask_once), "stuck"),
    "no heartbeat": (replaced(Recovery, break_silence=lambda self: []), "stuck"),
    "accepts early": (replaced(Recovery, take_streamed=accept_early), "integrity"),
    "accepts twice": (replaced(Recovery, take_streamed=accept_twice), "integrity"),
    "skips gaps": (replaced(Recovery, take_streamed=skip_gaps), "agreement"),
}
