"""What CO entities say to one another: sequenced PDUs (data, confirmations), requests for lost ones, probes.

Everything carries ACK, the vector of numbers that its sender expects next from each member, and BUF, the buffer slots
that its sender has left. A vector takes 4 bytes a member, so PDUs are O(n) long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND, SECOND, Duration
from antiphon.protocol.wire import NUMBER_MAX, VECTOR_ENTRIES_MAX, Counter, Number, Payload, Pdu, Rank, Vector

RET_GAPS_MAX: Final = 64  # of one source, and of all that one RET asks
Gaps: TypeAlias = Annotated[list[tuple[Number, Number]], msgspec.Meta(min_length=1, max_length=RET_GAPS_MAX)]
HEADROOM_MAX: Final = NUMBER_MAX // VECTOR_ENTRIES_MAX  # in a group of any size, BUF can say that there is room for one


class CoPdu(Pdu):
    """What all four have in common: ACK and BUF."""

    ack: Vector
    buf: Counter


class Sequenced(CoPdu):
    """A PDU with a number in its sender's sequence (SEQ), which must be recovered if it is lost."""

    number: Number


class CoData(Sequenced, tag=30):
    """An application message; its own number is the count of data PDUs before it, plus one."""

    kind: ClassVar[str] = "co-data"
    payload: Payload


class CoConfirm(Sequenced, tag=31):
    """A confirmation without data."""

    kind: ClassVar[str] = "co-confirm"


class CoRet(CoPdu, tag=32):
    """Ask sources (LSRC) to send gaps again, each from its first number up to, not including, its end (LSEQ).

    The paper has a RET for each source. One ACK does for all that are asked at once: in large groups it is most of a
    RET, and on slow links what takes time.
    """

    kind: ClassVar[str] = "co-ret"
    asks: Annotated[list[tuple[Rank, Gaps]], msgspec.Meta(min_length=1, max_length=RET_GAPS_MAX)]

    @staticmethod
    def parts(asks: Iterable[tuple[int, Gaps]]) -> Iterator[list[tuple[int, Gaps]]]:
        """Give what is to be asked for in as many parts as RETs are needed, since a datagram has room for so much."""
        part: list[tuple[int, Gaps]] = []
        room = RET_GAPS_MAX
        for source, gaps in asks:
            room -= len(gaps)
            if part and room < 0:
                yield part
                part, room = [], RET_GAPS_MAX - len(gaps)
            part.append((source, gaps))
        if part:
            yield part


class CoProbe(CoPdu, tag=33):
    """Break a silence: this is what I have and what I have sent; if `asking`, send me what I lack and say the same."""

    kind: ClassVar[str] = "co-probe"
    asking: bool


class CoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The paper's constants W, H and B, and the times that it leaves open."""

    window: int = 32  # W: own messages that need not yet be known to be accepted by all
    headroom: int = 32  # H: by how much the buffer is divided, so that stale news of it does no harm
    buffer: int = 0  # B: slots of a member; 0 stands for (W + 1) x H for each member
    defer_ns: Duration = 5 * MILLISECOND  # a confirmation waits so long for data to ride on
    ret_grace_ns: Duration = 5 * MILLISECOND  # mere skew between channels mends itself
    ret_retry_ns: Duration = 20 * MILLISECOND  # doubled with every vain try, up to the next one
    ret_retry_ns_max: Duration = SECOND
    probe_ns: Duration = 40 * MILLISECOND  # the silence that is broken; doubled with every vain try, up to the next one
    probe_ns_max: Duration = SECOND
    repairs_max: int = 256  # PDUs sent again for one request

    def check(self, size: int) -> None:
        """Raise a `UsageError` that names the key unless a group of `size` members can work with these."""
        for key in self.__struct_fields__:
            least, value = 0 if key in ("buffer", "ret_grace_ns") else 1, getattr(self, key)
            if value < least:
                why = "; answers that all come at one instant overrun whoever asked" if key == "defer_ns" else ""
                raise UsageError(f"ordering.{key}: must be at least {least}, not {value}{why}")
        if self.headroom > HEADROOM_MAX:
            raise UsageError(f"ordering.headroom: must be at most {HEADROOM_MAX}, not {self.headroom}")
        if self.headroom < self.window:
            raise UsageError(f"ordering.headroom: must be at least the window, {self.window}, not {self.headroom}")
        if self.buffer and self.buffer < self.headroom * size:
            raise UsageError(
                f"ordering.buffer: with {self.buffer} slots nothing could ever be sent; "
                f"{size} members with headroom {self.headroom} need at least {self.headroom * size}"
            )

    def places(self, size: int) -> int:
        """Give B, the messages that a member can keep.

        There is one share more than the window needs: with all windows full, as many messages wait as H for each member
        at most, and the flow condition still allows W. Else a window of 1 would be one message in the whole group.
        """
        return min(self.buffer or (self.window + 1) * self.headroom * size, NUMBER_MAX)  # what BUF can say
