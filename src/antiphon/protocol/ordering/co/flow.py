"""The flow condition: how many messages may be outstanding, by the window and by everyone's buffer slots."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.ordering.co.acceptance import CausalAcceptance
from antiphon.protocol.ordering.co.pdus import CoOptions
from antiphon.protocol.ordering.co.sending_log import SendingLog
from antiphon.protocol.rules import rule


class FlowCondition:
    """BUF, the buffer slots that each member has left, and what follows for sending."""

    def __init__(self, acceptance: CausalAcceptance, log: SendingLog, options: CoOptions) -> None:
        self.acceptance, self.log, self.options = acceptance, log, options
        self.buf = [self.first_buf()] * acceptance.size  # BUF
        self.starved = False  # a message waits for the flow condition
        self._as_of = [0] * acceptance.size  # how much each had accepted when it said its BUF

    @rule("Section 4.1, initial BUF, which the paper leaves open")
    def first_buf(self) -> int:
        """Return the slots that a member is taken to have before it has said so: all; with none nobody would start."""
        return self.acceptance.places

    @rule("Section 4.2, flow condition, mended")
    def flow_condition(self) -> bool:
        """Say whether one more message may be outstanding; confirmations are not subject to this."""
        self.buf[self.acceptance.rank] = self.acceptance.free
        places = min(self.buf) // (self.options.headroom * self.acceptance.size)
        return self.log.outstanding < min(self.options.window, places)

    def may_submit(self) -> bool:
        """Say whether the flow condition holds; if not, a message is known to wait for it."""
        self.starved = not self.flow_condition()
        return not self.starved

    def credit(self, source: int, ack: Sequence[int], buf: int) -> bool:
        """Take over a member's BUF unless something it said later was heard before; say whether it has more slots."""
        as_of = sum(ack)
        if as_of < self._as_of[source]:
            return False
        self._as_of[source] = as_of
        more = buf > self.buf[source]
        self.buf[source] = buf
        return more
