"""FIFO order, the LO service: each member delivers each sender's messages in the order in which they were sent.

Recovery already hands every stream over complete and in order, so there is nothing left to wait for.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antiphon.protocol.machine import Deliver, Instant, Submit
from antiphon.protocol.parts import FlushHooks, PartContext, Reliable, Step
from antiphon.protocol.wire import Data, Malformed, Pdu, Streamed


class FifoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FIFO order has no options."""


class Fifo(FlushHooks):
    """Delivers what recovery accepts."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Data,)
    NEEDS_RECOVERY: ClassVar[bool] = True
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo",)
    Options: ClassVar[type[msgspec.Struct]] = FifoOptions

    def __init__(self, context: PartContext, options: FifoOptions) -> None:
        self.held = 0
        self.deadline: Instant | None = None

    def may_submit(self, priority: int) -> bool:
        """Leave flow control to the window."""
        return True

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Put the message into the stream."""
        return Step([], [Reliable(Data(seq=seq, payload=message.payload), seq)])

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Deliver at once."""
        return Step([Deliver(source, pdu.seq, pdu.payload)] if isinstance(pdu, Data) else [])

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Refuse: nothing of this ordering comes past recovery."""
        raise Malformed("unexpected")

    def wake(self, now: Instant) -> Step:
        """Do nothing: nothing is ever due."""
        return Step()
