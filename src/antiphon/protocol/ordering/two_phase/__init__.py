"""Total order in two phases over reliable streams: what ABCAST and TOMP have in common.

`messages` is what members say, `polls` how a sender decides, `takeover` how survivors decide for a dead one, `protocol`
the reception queue and the rules.
"""

from __future__ import annotations

from antiphon.protocol.ordering.two_phase.messages import (
    Ask,
    Decision,
    MessageId,
    Proposal,
    Stamp,
    TimedData,
    TwoPhaseOptions,
)
from antiphon.protocol.ordering.two_phase.polls import Poll
from antiphon.protocol.ordering.two_phase.protocol import TwoPhase, Waiting
from antiphon.protocol.ordering.two_phase.takeover import Claim, Pending, settle, takeover

__all__ = [
    "Ask",
    "Claim",
    "Decision",
    "MessageId",
    "Pending",
    "Poll",
    "Proposal",
    "Stamp",
    "TimedData",
    "TwoPhase",
    "TwoPhaseOptions",
    "Waiting",
    "settle",
    "takeover",
]
