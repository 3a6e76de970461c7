"""How survivors decide the messages of a sender that cannot: what each knows, and what follows from all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from antiphon.protocol.ordering.two_phase.messages import MessageId, Stamp


class Pending(msgspec.Struct, frozen=True):
    """What a member answers when a view ends: enough for the survivors to finish a dead sender's messages."""

    clock: int
    provisional: dict[MessageId, Stamp]  # undecided messages, with all that is known to lie below their final ones
    final: dict[MessageId, Stamp]  # decided here and not delivered; delivered ones lie in the streams until stable


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """`Pending` on the wire, with the number of the next message expected of each sender."""

    clock: int
    next_mid: list[int]
    provisional: list[tuple[int, int, int, int]]  # sender, seq, time, host
    final: list[tuple[int, int, int, int]]

    def pending(self) -> Pending:
        """Give what can be looked up."""
        provisional = {(sender, seq): (time, host) for sender, seq, time, host in self.provisional}
        return Pending(self.clock, provisional, {(sender, seq): (time, host) for sender, seq, time, host in self.final})


Settled: TypeAlias = list[tuple[int, int, int, int, bool]]  # sender, seq, time, host, after equal ones


def settle(claims: Mapping[int, Claim], *, safe: bool) -> Settled:
    """Decide all messages that no survivor knows the decision of.

    With safe delivery they go behind every message whose decision anyone knows, since a member that is gone may have
    delivered those; but never behind a later message of their own sender.
    """
    survivors = {rank: claim.pending() for rank, claim in claims.items()}
    undecided: set[MessageId] = set()
    decided: dict[MessageId, Stamp] = {}
    for state in survivors.values():
        undecided |= state.provisional.keys()
        decided |= state.final
    for claim, state in zip(claims.values(), survivors.values(), strict=True):
        delivered = {
            (sender, seq)
            for sender, seq in undecided
            if seq < claim.next_mid[sender] and (sender, seq) not in state.provisional
        }
        undecided -= delivered  # the decision lies in a stream that this survivor holds
    floor: Stamp = (max((claim.clock for claim in claims.values()), default=0) + 1, 0)
    settled: Settled = []
    for sender, seq in sorted(undecided):
        stamp, after = takeover((sender, seq), survivors), True
        if safe:
            stamp = max(stamp, floor)
            later = [final for (s, k), final in decided.items() if s == sender and k > seq]
            if later and min(later) <= stamp:
                stamp, after = min(later), False
        settled.append((sender, seq, *stamp, after))
    return settled


def takeover(message: MessageId, survivors: Mapping[int, Pending]) -> Stamp:
    """Decide a message whose sender cannot, from all survivors' states by rank, taken after they stopped.

    Some survivor may already have delivered whatever lies below its *raised* provisional timestamp (or, where it lacks
    the message, below its clock), so first proposals are not enough. Survivors then deliver what is left, ordered by
    timestamp; of equal ones, those that their own senders decided go first, then by sender and number.
    """
    for state in survivors.values():
        if message in state.final:
            return state.final[message]
    return max(_reached(message, rank, state) for rank, state in survivors.items())


def _reached(message: MessageId, rank: int, state: Pending) -> Stamp:
    """Give what the message's final timestamp cannot be below, as far as one survivor knows."""
    if message in state.provisional:
        return state.provisional[message]
    earlier = (stamp for (sender, _), stamp in state.provisional.items() if sender == message[0])
    return max([(state.clock + 1, rank), *earlier])  # it would come here after all that its sender sent before
