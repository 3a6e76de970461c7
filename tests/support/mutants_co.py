"""Seeded bugs of CO: each replaces one rule, and says which guarantee it breaks.

`causal` counts receipts as well as deliveries, as CO promises: what a sender has delivered, everyone has long received.
`stuck`: some message is never delivered by someone; `undrained`: all is delivered, but something is kept for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.co import Co
from antiphon.protocol.ordering.co.logs import Logged
from antiphon.protocol.parts import Step


class InsertsAtTheTop(Co):
    """What is pre-acknowledged together is put in the reverse order."""

    def insertion_place(self, p: Logged, start: int) -> int:
        return start


class InsertsAtTheTail(Co):
    """What is pre-acknowledged together stays in the order of the sources."""

    def insertion_place(self, p: Logged, start: int) -> int:
        return len(self.prl)


class SkipsGaps(Co):
    """The acceptance condition forgets the sequence number: what comes after a gap is accepted, the gap never."""

    def _receive(self, p: Logged, now: Instant, step: Step) -> None:
        self.req[p.source] = max(self.req[p.source], p.number)
        super()._receive(p, now, step)


class TakesCopiesAgain(Co):
    """The last PDU of a source is accepted again when a copy of it comes."""

    def _receive(self, p: Logged, now: Instant, step: Step) -> None:
        if p.payload is not None and p.number == self.req[p.source] - 1:
            self.req[p.source] = p.number
        super()._receive(p, now, step)


class PreAcknowledgesByTheGreatest(Co):
    """The PACK condition looks at who has accepted the most instead of the least."""

    def pack_condition(self, p: Logged) -> bool:
        return p.number < max(self.al.rows[p.source])


class PreAcknowledgesWhatItAccepts(Co):
    """The PACK condition is taken to hold."""

    def pack_condition(self, p: Logged) -> bool:
        return True


class ReleasesEarly(Co):
    """The copy of a PDU is let go as soon as one member is known to have accepted it."""

    def releasable(self) -> int:
        return max(self.al.rows[self.rank])


class NeverRebroadcasts(Co):
    """Requests and probes are heard, and nothing is sent again."""

    def _rebroadcast(self, numbers: Iterable[int], now: Instant, step: Step) -> None:
        pass


class NeverProbes(Co):
    """A silence is not broken, so that the loss of the last PDU is never noticed."""

    def silence_matters(self) -> bool:
        return False


class ConfirmsDataOnly(Co):
    """Receipt is confirmed, but not its confirmation by all, so that nothing is ever acknowledged."""

    def confirmation_owed(self) -> bool:
        return self._unconfirmed and bool(self._heard)


class CountsEarlyTwice(Co):
    """A place that an early PDU took is never given back."""

    def _hold(self, p: Logged) -> None:
        before = self._early_count
        super()._hold(p)
        self._early_count += self._early_count > before


MUTANTS: dict[str, tuple[type[Co], str]] = {
    "inserts-at-the-top": (InsertsAtTheTop, "fifo"),
    "inserts-at-the-tail": (InsertsAtTheTail, "causal"),
    "skips-gaps": (SkipsGaps, "agreement"),
    "takes-copies-again": (TakesCopiesAgain, "integrity"),
    "pre-acknowledges-by-the-greatest": (PreAcknowledgesByTheGreatest, "stability"),
    "pre-acknowledges-what-it-accepts": (PreAcknowledgesWhatItAccepts, "stability"),
    "releases-early": (ReleasesEarly, "stuck"),
    "never-rebroadcasts": (NeverRebroadcasts, "stuck"),
    "never-probes": (NeverProbes, "stuck"),
    "confirms-data-only": (ConfirmsDataOnly, "stuck"),
    "counts-early-twice": (CountsEarlyTwice, "undrained"),
}
