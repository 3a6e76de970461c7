"""What causal blocks say to one another, and what can be chosen."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.wire import Counter, Number, Payload, Pdu, Rank, Timestamp, Vector

BLOCK_MAX: Final = 2**32 - 1  # of one view: a block number has four bytes
EARLY_MAX: Final = 64  # how many messages a report can name
PRIORITY_MAX: Final = 2**31 - 1
FEW: Final = 8  # members: each may report at once what it has delivered
UNCROWDED: Final = 25  # in larger groups members break their silence, and look for what others lack, less often

Priority: TypeAlias = Annotated[int, msgspec.Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
NotNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class BlockMessage(Pdu, tag=20):
    """An application message with its causal stamps; a repair is the same message, sent on by whoever has it.

    The lifetime that is left counts the time that copies spent at members, so that clocks need not agree. A copy that
    has none left travels without its payload: it only says that there is nothing to wait for.
    """

    kind: ClassVar[str] = "causal-block"
    sender: Rank
    seq: Number
    block: Number  # m.b
    mb: Counter  # m.mb: the sender had received from everyone up to this block, gaps aside
    ldv: Vector  # m.ldv: block of the last message of each member that the sender had delivered
    stable: Counter  # everyone has delivered the sender's messages up to this seq
    priority: Priority
    life_ns: Timestamp | None
    payload: Payload


class NullBlock(Pdu, tag=21):
    """What breaks a silence: stamps without a message. It takes a block number and has no part in causal history."""

    kind: ClassVar[str] = "null"
    block: Number
    mb: Counter
    ldv: Vector
    seq: Counter  # the sender's last message
    stable: Counter
    asking: bool  # whoever lacks nothing, please answer with a null
    early: Annotated[list[tuple[Rank, Number]], msgspec.Meta(max_length=EARLY_MAX)]  # received, not yet delivered
    told: Counter  # `early` has all of these with blocks under this; what else is under it has not come


class CausalBlocksOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Silence, repair, room and lifetimes."""

    silence_ns: Positive = 25 * MILLISECOND  # a member that has something to tell is never silent for longer
    silence_ns_max: Positive = 250 * MILLISECOND  # unless nothing changes: the silence doubles up to this
    always: bool = False  # break the silence even when nothing is unstable, as the paper does
    grace_ns: NotNegative = 5 * MILLISECOND  # a gap may close by itself: reordering is no loss
    repair_delay_ns: NotNegative = 10 * MILLISECOND  # a repair waits for a random part of this: another may do it
    repeat_ns: NotNegative = 0  # least pause before the same repair, whoever sent it; 0: one silence
    burst: Positive = 16  # repairs at a time, and of messages for one member; the paper's is 1
    window: Positive = 64  # own messages that may be unstable at once
    lag: NotNegative = 0  # own unstable messages that have expired and may be there beside those of the window
    buffer: NotNegative = 0  # received messages that may wait for delivery; 0: as many as the windows allow
    shed: Literal["recover", "discard"] = "recover"  # what becomes of a message that a full buffer had no room for
    skip_after_ns: NotNegative = 0  # the one lifetime of all messages, after which a gap is skipped; 0: never

    def crowded_ns(self, size: int) -> int:
        """Return the shortest silence that a group of this size can bear."""
        return self.silence_ns * size // UNCROWDED

    def gathers_ns(self, size: int, *, several: bool) -> int:
        """Return how long what is owed to senders is gathered: in larger groups one word tells several of them."""
        crowded_ns = self.crowded_ns(size)
        least_ns = max(0, crowded_ns - self.silence_ns)
        return max(least_ns, crowded_ns // 4) if several and size > FEW else least_ns

    def look_ns(self, size: int) -> int:
        """Return the time after which a member looks again at what all others lack."""
        return max(self.silence_ns // 2, self.crowded_ns(size))

    def check(self, size: int) -> None:
        """Raise a `UsageError` that names the key unless a group can work with these."""
        if not self.repair_delay_ns:
            raise UsageError(
                "ordering.repair_delay_ns: must be at least 1, not 0: repairs and answers are spread over this time, "
                "and members that give them all at one instant overrun whoever needs them, for ever"
            )
