"""Coordinator (CoordP): everyone reports to one member, which tells all the minimum.

Three message times a round and the least traffic among the basic protocols, but n - 1 reports arrive at one member
at once.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antiphon.protocol.parts import PartContext
from antiphon.protocol.stability.collect import CollectPart, RoundAck, RoundAsk, RoundInfo, RoundStart
from antiphon.protocol.stability.rounds import RoundOptions
from antiphon.protocol.wire import Pdu


class CoordinatorStart(RoundStart, tag=60):
    """Report to me."""

    kind: ClassVar[str] = "coordinator-start"


class CoordinatorAck(RoundAck, tag=61):
    """What its sender holds."""

    kind: ClassVar[str] = "coordinator-ack"


class CoordinatorInfo(RoundInfo, tag=62):
    """What all hold."""

    kind: ClassVar[str] = "coordinator-info"


class CoordinatorAsk(RoundAsk, tag=63):
    """Is there a newer frontier?"""

    kind: ClassVar[str] = "coordinator-ask"


class Coordinator(CollectPart):
    """CoordP: a tree of height one."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (CoordinatorStart, CoordinatorAck, CoordinatorInfo, CoordinatorAsk)
    START, ACK, INFO, ASK = CoordinatorStart, CoordinatorAck, CoordinatorInfo, CoordinatorAsk
    Options: ClassVar[type[msgspec.Struct]] = RoundOptions

    def __init__(self, context: PartContext, options: RoundOptions) -> None:
        root = options.coordinator
        super().__init__(context, options, tuple(-1 if rank == root else root for rank in range(context.size)))
