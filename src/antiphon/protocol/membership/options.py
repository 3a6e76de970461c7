"""What can be chosen about a group's views."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND, Duration

PIECE_BYTES_MIN: Final = 256  # the longest message has at most `PIECES_MAX` pieces
PIECE_BYTES_MAX: Final = 7_500  # eight of them, a chunk of state, go into a datagram
LIFETIME_NS_MAX: Final = 10**18  # when a message expires goes on the wire, which ends in three hundred years


class MembershipOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Times, and what to do with those who are too slow. A time that is None is found by measuring (`timing`)."""

    heartbeat_ns: Duration = 50 * MILLISECOND  # the least between two signs of life: many members speak less often
    suspect_ns: Duration | None = None  # a name that is silent for longer is taken for dead; fixes the heartbeat too
    retry_ns: Duration = 50 * MILLISECOND  # what was not answered is said again; then less and less often
    grace_ns: Duration | None = None  # how long the living may take to answer; at least 3 round trips
    patience_ns: Duration | None = None  # a change that takes longer is taken over, by the next in rank
    stall_ns: Duration | None = None  # a member that ends a view for longer says that it has stalled
    partition: Literal["majority", "each-side"] = "majority"  # who goes on when a group is cut in two
    slow: Literal["block", "drop", "lag"] = "block"  # a member that holds all back: see `slow_receiver.py`
    slow_ns: Duration | None = None  # without anything becoming stable, until that is so
    lifetime_ns: Duration | None = None  # with `lag`: how long a message is worth waiting for
    transfer: bool = False  # whether joiners are given an older member's application state
    piece_bytes: int = 1_200  # what is longer goes in pieces

    def check(self) -> None:
        """Raise a `UsageError` that names the key, unless these can work."""
        for key, value in msgspec.structs.asdict(self).items():
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise UsageError(f"membership.{key}: must be at least 1, not {value}")
        if self.lifetime_ns is not None and self.lifetime_ns > LIFETIME_NS_MAX:
            raise UsageError(f"membership.lifetime_ns: must be at most {LIFETIME_NS_MAX}, not {self.lifetime_ns}")
        if not PIECE_BYTES_MIN <= self.piece_bytes <= PIECE_BYTES_MAX:
            least, most = PIECE_BYTES_MIN, PIECE_BYTES_MAX
            raise UsageError(f"membership.piece_bytes: must be between {least} and {most}, not {self.piece_bytes}")
        if self.suspect_ns is not None and self.suspect_ns < 2 * self.heartbeat_ns:
            raise UsageError("membership.suspect_ns: give at least two heartbeats, or the living are suspected")
