"""What a member tells its driver, in the group's terms: the effects of one input, trace rows among them.

Inside a view members are ranks and everyone's messages count from 1. Outside they are processes, reached at addresses,
whose messages count through all their views. The translation is prepared when the view begins and made here alone.
"""

from __future__ import annotations

import msgspec

from antiphon.protocol.machine import Deliver, Drop, Effect, Instant, Send, Stable, TraceRow
from antiphon.protocol.wire import Codec


class View(msgspec.Struct, frozen=True):
    """Who is in the group; a member's rank is its index in the list."""

    number: int  # in the header of every datagram of this view
    members: tuple[int, ...]
    addresses: tuple[int, ...] | None = None  # by rank, where each is reached; None: members are their own addresses
    sent_before: tuple[int, ...] | None = None  # by rank, how many messages each has sent in earlier views
    codec: type[Codec] = Codec  # the version of the wire that all of them speak


class Output:
    """Collects the effects of one input."""

    def __init__(self, view: View, rank: int, *, traced: bool) -> None:
        self.ids = view.members
        self.me = view.members[rank]
        self.before = view.sent_before or (0,) * len(view.members)
        self.addresses = view.addresses or view.members
        self.traced = traced  # whether what belongs in the trace is said
        self.effects: list[Effect] = []
        self.stable_at: Instant = 0  # when something last became stable
        self.own_stable = 0  # own messages that are known to be stable
        self.size_each: int | None = None  # of the datagram that is taken in, each PDU's share of the bytes
        self.unsettled: set[int] = set()  # own messages, counted in this view, that were neither delivered nor dropped
        self.rank = rank
        everyone = () if view.addresses is None else view.addresses
        self._others = tuple(address for other, address in enumerate(everyone) if other != rank) or None
        self._reaches_nobody = len(view.members) == 1 and view.addresses is not None

    def take(self) -> list[Effect]:
        """Give what was collected, and begin anew."""
        effects, self.effects = self.effects, []
        return effects

    def sent(self, seq: int) -> None:
        """Note that a message of one's own is on its way."""
        self.unsettled.add(seq)

    def deliver(self, message: Deliver) -> None:
        """Hand a message to the application."""
        rank = message.sender
        sender, seq = self.ids[rank], message.seq + self.before[rank]
        if rank == self.rank:
            self.unsettled.discard(message.seq)
        self.effects.append(Deliver(sender, seq, message.payload))
        if self.traced:
            self.effects.append(TraceRow(self.me, "deliver", sender, seq))

    def stable(self, rank: int, seq: int, now: Instant) -> None:
        """Say up to where a member's messages are held by all."""
        self.stable_at = now
        if rank == self.rank:
            self.own_stable = seq
        sender, seq = self.ids[rank], seq + self.before[rank]
        self.effects.append(Stable(sender, seq))
        if self.traced:
            self.effects.append(TraceRow(self.me, "stable", sender, seq))

    def drop(self, drop: Drop) -> None:
        """Say that a message will not be delivered."""
        assert drop.sender is not None
        assert drop.seq is not None
        sender, seq = self.ids[drop.sender], drop.seq + self.before[drop.sender]
        if drop.sender == self.rank:
            self.unsettled.discard(drop.seq)
        self.effects.append(Drop(drop.reason, sender, seq))
        if self.traced:
            self.effects.append(TraceRow(self.me, "discard", sender, seq, None, drop.reason))

    def unknown(self) -> list[Drop]:
        """Give up the own messages whose fate is not known: the group may deliver them without us, or may not."""
        unsettled, self.unsettled = sorted(self.unsettled), set()
        return [Drop("unknown", self.me, seq + self.before[self.rank]) for seq in unsettled]

    def send(self, to: tuple[int, ...] | None, datagram: bytes) -> None:
        """Give a datagram to the network, for ranks or, with None, for all others."""
        if to is None:
            if not self._reaches_nobody:
                self.effects.append(Send(self._others, datagram))
        else:
            if self.rank in to:
                to = tuple(rank for rank in to if rank != self.rank)
            if to:
                self.effects.append(Send(tuple(map(self.addresses.__getitem__, to)), datagram))

    def row(
        self,
        event: str,
        rank: int | None,
        seq: int | None,
        size: int | None,
        detail: str | None,
        payload: bytes | None = None,
    ) -> None:
        """Say what belongs in the trace; only where it is traced."""
        sender = None if rank is None else self.ids[rank]
        shown = seq if seq is None or rank is None else seq + self.before[rank]
        self.effects.append(TraceRow(self.me, event, sender, shown, size, detail, payload=payload))
