"""Recovery with one rule broken each; the checker, or a run that never ends, must show it."""

from __future__ import annotations

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import Accepted, Step
from antiphon.protocol.recovery import Nack, Recovery
from antiphon.protocol.wire import Streamed


class NeverRepairs(Recovery):
    """Requests are heard and forgotten."""

    def _repair(self, source: int, nack: Nack) -> Step:
        return Step()


class NeverNoticesTheLast(Recovery):
    """What a header says of its sender's stream is ignored."""

    def noticed(self, source: int, sent: int, now: Instant) -> None:
        return None


class AsksOnce(Recovery):
    """A request that was lost is not repeated."""

    def wake(self, now: Instant) -> Step:
        step = super().wake(now)
        for missing in self._missing.values():
            if missing.tries:
                missing.at = 10**18
        return step


class NoHeartbeat(Recovery):
    """A silent sender stays silent."""

    @property
    def unstable(self) -> bool:
        return False


class AcceptsEarly(Recovery):
    """What comes early is passed on at once."""

    def _streamed(self, source: int, pdu: Streamed, now: Instant) -> Step:
        step = super()._streamed(source, pdu, now)
        if not step.up and pdu.number in self._log[source]:
            return Step([Accepted(source, pdu)])
        return step


class AcceptsTwice(Recovery):
    """A copy is passed on like the first."""

    def _streamed(self, source: int, pdu: Streamed, now: Instant) -> Step:
        if 0 < pdu.number <= self.received[source]:
            return Step([Accepted(source, pdu)])
        return super()._streamed(source, pdu, now)


class SkipsGaps(Recovery):
    """A gap is jumped over instead of filled."""

    def _streamed(self, source: int, pdu: Streamed, now: Instant) -> Step:
        if pdu.number > self.received[source] + 1:
            self.received[source] = pdu.number - 1
        return super()._streamed(source, pdu, now)


MUTANTS: dict[str, tuple[type[Recovery], str]] = {
    "never repairs": (NeverRepairs, "stuck"),
    "never notices the last": (NeverNoticesTheLast, "stuck"),
    "asks once": (AsksOnce, "stuck"),
    "no heartbeat": (NoHeartbeat, "stuck"),
    "accepts early": (AcceptsEarly, "integrity"),
    "accepts twice": (AcceptsTwice, "integrity"),
    "skips gaps": (SkipsGaps, "agreement"),
}
