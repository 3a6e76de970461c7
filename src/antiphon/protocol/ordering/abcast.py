"""ABCAST: total order by two phases, where a decided message waits for every undecided one before it in the queue.

Proposals and decisions carry nothing but timestamps: 3(n - 1) small PDUs a message, and nothing to compute.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antiphon.protocol.ordering.two_phase import Ask, Decision, Proposal, TimedData, TwoPhase, TwoPhaseOptions
from antiphon.protocol.wire import Pdu


class Abcast(TwoPhase):
    """The two-phase machine as it is."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (TimedData, Ask, Proposal, Decision)
    Options: ClassVar[type[msgspec.Struct]] = TwoPhaseOptions
