"""What two-phase members say to one another, and what can be chosen."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.wire import Data, Number, Pdu, Rank, Streamed

ASK_SEQS_MAX = 64
LOGICAL_TIME_MAX = 2**46  # leaves room to count on, and for a host beside it in 63 bits

LogicalTime: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=LOGICAL_TIME_MAX)]
Stamp: TypeAlias = tuple[int, int]  # (number, host): two hosts never give the same, and 9.10 comes after 9.9
MessageId: TypeAlias = tuple[int, int]  # (sender, seq)
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class TimedData(Data, tag=40):
    """A message with its sender's own provisional timestamp, which outlives the sender in every copy."""

    own: LogicalTime = 1


class Ask(Pdu, tag=41):
    """Please send your proposals for these of my messages again."""

    kind: ClassVar[str] = "ask"
    seqs: Annotated[list[Number], msgspec.Meta(min_length=1, max_length=ASK_SEQS_MAX)]


class Proposal(Pdu, tag=42):
    """The timestamp under which its sender keeps the addressee's message `seq`."""

    kind: ClassVar[str] = "proposal"
    seq: Number
    time: LogicalTime


class Decision(Streamed, tag=43):
    """The final timestamp of its sender's message `seq`."""

    kind: ClassVar[str] = "decision"
    seq: Number = 1
    time: LogicalTime = 1
    host: Rank = 0


class TwoPhaseOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to ask for proposals that do not come."""

    ask_ns: Positive = 50 * MILLISECOND  # doubled with every vain try, up to the next one
    ask_ns_max: Positive = SECOND
