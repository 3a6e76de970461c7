"""Seeded bugs of CO: each replaces one rule, and says which guarantee it breaks.

`causal` counts receipts as well as deliveries, as CO promises: what a sender has delivered, everyone has long received.
`stuck`: some message is never delivered by someone; `undrained`: all is delivered, but something is kept for ever.
"""

from __future__ import annotations

from antiphon.protocol.ordering.co import Co
from antiphon.protocol.ordering.co.acceptance import CausalAcceptance
from antiphon.protocol.ordering.co.confirmations import Confirmations
from antiphon.protocol.ordering.co.levels import AtomicReceipt
from antiphon.protocol.ordering.co.logs import Logged
from antiphon.protocol.ordering.co.sending_log import SendingLog
from antiphon.protocol.rules import replaced


def at_the_tail(self: AtomicReceipt, p: Logged, start: int) -> int:
    """What is pre-acknowledged together stays in the order of the sources."""
    return len(self.prl)


def not_before(self: CausalAcceptance, p: Logged) -> bool:
    """The acceptance condition forgets the sequence number: what comes after a gap is accepted, the gap never."""
    return p.number >= self.req[p.source]


def all_but_the_last(self: CausalAcceptance, p: Logged) -> bool:
    """The last PDU of a source is accepted again when a copy of it comes."""
    if p.payload is not None and p.number == self.req[p.source] - 1:
        self.req[p.source] = p.number
        return False
    return CausalAcceptance.is_copy(self, p)


def below_the_greatest(self: AtomicReceipt, p: Logged) -> bool:
    """The PACK condition looks at who has accepted the most instead of the least."""
    return p.number < max(self.al.rows[p.source])


def accepted_by_one(self: SendingLog) -> int:
    """The copy of a PDU is let go as soon as one member is known to have accepted it."""
    return max(self.acceptance.receipt.al.rows[self.acceptance.rank])


def data_only(self: Confirmations) -> bool:
    """Receipt is confirmed, but not its confirmation by all, so that nothing is ever acknowledged."""
    return self.unconfirmed and bool(self.heard)


def counted_twice(self: CausalAcceptance, p: Logged) -> None:
    """A place that an early PDU took is never given back."""
    before = self.early_messages
    CausalAcceptance.hold(self, p)
    self.early_messages += self.early_messages > before


MUTANTS: dict[str, tuple[type[Co], str]] = {
    "inserts-at-the-top": (replaced(Co, insertion_place=lambda self, p, start: start), "fifo"),
    "inserts-at-the-tail": (replaced(Co, insertion_place=at_the_tail), "causal"),
    "skips-gaps": (replaced(Co, is_next=not_before), "agreement"),
    "takes-copies-again": (replaced(Co, is_copy=all_but_the_last), "integrity"),
    "pre-acknowledges-by-the-greatest": (replaced(Co, pack_condition=below_the_greatest), "stability"),
    "pre-acknowledges-what-it-accepts": (replaced(Co, pack_condition=lambda self, p: True), "stability"),
    "releases-early": (replaced(Co, releasable=accepted_by_one), "stuck"),
    "never-rebroadcasts": (replaced(Co, rebroadcast=lambda self, numbers, asker, now: None), "stuck"),
    "never-probes": (replaced(Co, silence_matters=lambda self: False), "stuck"),
    "confirms-data-only": (replaced(Co, confirmation_owed=data_only), "stuck"),
    "counts-early-twice": (replaced(Co, hold=counted_twice), "undrained"),
}
