"""Receipts: what became of each own message, and the book of those that are still open."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from antiphon.errors import AntiphonError
from antiphon.live.arguments import check_loop
from antiphon.protocol.machine import SECOND, Duration

_OUTLIVED: Final = "it outlived its lifetime: members that lacked it then may have discarded it"


class Unknown(AntiphonError):
    """The fate of a message is unknown: the group may have delivered it or not."""


class Lost(Unknown):
    """A message was never sent: nobody has delivered it, and nobody will, so it may be sent again."""


Outcome: TypeAlias = Literal["pending", "delivered", "stable", "unknown", "lost"]


class Receipt:
    """What became of a message, and of all messages in the same burst.

    `outcome` is "pending" at first, then "delivered": delivered here, in its order. It ends as "stable" (every member
    holds it), "unknown" (nobody can tell any more) or "lost" (it was never sent); `reason` says why, for the last two.
    """

    __slots__ = (
        "_ended",
        "_futures",
        "_loop",
        "expires_at",
        "expiry",
        "is_delivered",
        "is_stable",
        "lifetime_s",
        "size",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop` is the group's, the only one in which it can be waited for; only tests make a receipt without one."""
        self._loop = loop
        self.size = 0  # bytes of its burst
        self.lifetime_s: float | None = None  # how long it is worth waiting for
        self.expires_at = math.inf  # by the loop's clock, once it was sent
        self.expiry: asyncio.TimerHandle | None = None  # set for then, as long as something may become of it
        self.is_delivered = self.is_stable = False
        self._ended: Unknown | None = None
        self._futures: dict[asyncio.Future[None], Literal["delivered", "stable"]] = {}  # of those who wait, for what

    def __repr__(self) -> str:
        return f"<Receipt: {self.outcome}{'' if self.reason is None else f', {self.reason}'}>"

    async def delivered(self) -> None:
        """Wait until the message was delivered to this member; raise `Unknown` or `Lost` if it will not be."""
        if not self.is_delivered:
            await self._wait("delivered")

    async def stable(self) -> None:
        """Wait until every member holds the message and it was delivered here; raise `Unknown` or `Lost` if not."""
        if not (self.is_stable and self.is_delivered):
            await self._wait("stable")

    @property
    def settled(self) -> bool:
        """Whether nothing more will become of it."""
        return self._ended is not None or (self.is_delivered and self.is_stable)

    @property
    def outcome(self) -> Outcome:
        """What is known of it now."""
        if self.is_stable and self.is_delivered:
            return "stable"
        if self._ended is not None:
            return "lost" if isinstance(self._ended, Lost) else "unknown"
        return "delivered" if self.is_delivered else "pending"

    @property
    def reason(self) -> str | None:
        """Why it ended as unknown or lost."""
        return None if self._ended is None else str(self._ended)

    async def _wait(self, what: Literal["delivered", "stable"]) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))
        if self._loop is not None:
            check_loop(self._loop)
        future = asyncio.get_running_loop().create_future()
        self._futures[future] = what
        try:
            await future
        finally:
            del self._futures[future]

    def mark(self, what: Literal["delivered", "stable"]) -> None:
        """Note what became of it (for the group, not for applications)."""
        if self._ended is not None:
            return
        if what == "delivered":
            self.is_delivered = True
        else:
            self.is_stable = True
        if self.expiry is not None and self.settled:
            self.expiry.cancel()
        for future, waited_for in self._futures.items():
            has_come = self.is_delivered and (self.is_stable or waited_for == "delivered")
            if has_come and not future.done():
                future.set_result(None)

    def end(self, how: Unknown) -> None:
        """Note that nothing more will become of it (for the group, not for applications)."""
        if self.settled:
            return
        self._ended = how
        if self.expiry is not None:
            self.expiry.cancel()
        for future in self._futures:
            if not future.done():
                future.set_exception(type(how)(str(how)))
                future.exception()  # whoever waits is told; that it was cancelled meanwhile is no mistake


class PartReceipt(Receipt):
    """The receipt of one burst of a large message, whose own receipt `whole` tells of all of them together."""

    __slots__ = ("is_first", "is_last", "whole")

    def __init__(self, whole: Receipt, *, is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.whole, self.is_first, self.is_last = whole, is_first, is_last

    def mark(self, what: Literal["delivered", "stable"]) -> None:
        """Note what became of this burst: a message has its place, and is held, with its last one."""
        super().mark(what)
        if self.is_last:
            self.whole.mark(what)

    def end(self, how: Unknown) -> None:
        """Note that nothing more will become of this burst, so neither of the message."""
        super().end(how)
        self.whole.end(how)


class Receipts:
    """The open receipts of one member, by the numbers that its bursts have in this incarnation.

    A machine numbers what it is given in the order of submission. When an incarnation ends, it has said of every burst
    that it sent whether that was delivered or dropped; so those of which nothing was said were not sent, and are the
    first ones of the next incarnation. Each delivery checks that its number still means the same burst, so that a
    receipt never tells of another one.
    """

    def __init__(self, *, lags: bool = False) -> None:
        """`lags`: whether slow members miss what has outlived its lifetime, so that nothing of it is kept."""
        self._lags = lags
        self._lapses = False  # whether anything was sent that has a lifetime
        self._open: dict[int, tuple[Receipt, bytes]] = {}  # with the burst, until it is delivered
        self._last = 0  # the number of the burst that was submitted last
        self._stable = 0  # up to here all is stable
        self.bytes = 0  # of the bursts whose receipts are open, and which members are waited for with
        self.incarnations = 0  # how many have ended

    def add(self, receipt: Receipt, burst: bytes, lifetime_ns: Duration | None = None) -> None:
        """Keep the receipt of the burst that is submitted now; without a lifetime it waits until all have it."""
        self._last += 1
        self._open[self._last] = receipt, burst
        receipt.size = len(burst)
        receipt.lifetime_s = None if lifetime_ns is None else lifetime_ns / SECOND
        self.bytes += receipt.size

    def delivered(self, seq: int, burst: bytes) -> None:
        """Mark a burst that was delivered here."""
        kept = self._open.get(seq)
        if kept is None:
            return
        receipt, own = kept
        assert own is burst or own == burst, f"number {seq} was given to one burst and delivered with another"
        receipt.mark("delivered")
        if receipt.is_stable:
            self._close(seq)
            return
        self._open[seq] = receipt, b""
        self.sent(seq)
        if receipt.expires_at < math.inf and receipt.expires_at <= asyncio.get_running_loop().time():
            self._outlived(seq)

    def sent(self, seq: int) -> None:
        """Begin the lifetime of a burst, if it has one: its copies leave now, though it may be delivered here later.

        Where there are lifetimes, the machine delivers own messages as it sends them. What it delivers may have to wait
        for the application's state, or for a name; the others do not.
        """
        receipt, _ = self._open.get(seq, (None, b""))
        if receipt is not None and receipt.lifetime_s is not None and receipt.expires_at == math.inf:
            loop = asyncio.get_running_loop()
            receipt.expires_at = loop.time() + receipt.lifetime_s
            receipt.expiry = loop.call_at(receipt.expires_at, self._lapse, receipt.expires_at)
            self._lapses = True

    def stable(self, upto: int) -> None:
        """Mark all bursts up to a number that every member has passed: it holds them, unless they had expired."""
        self._lapse()
        now = asyncio.get_running_loop().time() if self._lapses else -math.inf
        for seq in range(self._stable + 1, upto + 1):
            kept = self._open.get(seq)
            if kept is not None:
                if kept[0].expires_at > now:
                    kept[0].mark("stable")
                if kept[0].is_delivered:
                    self._close(seq)
        self._stable = max(self._stable, upto)

    def _lapse(self, due: float = -math.inf) -> None:
        """End what has outlived its lifetime: whoever lacked it then may have passed it without holding it.

        What was not delivered here ends when it is. `due`: when this was to be done; a loop may do it a little before.
        """
        if not self._lapses:
            return
        now = max(due, asyncio.get_running_loop().time())
        late = [seq for seq, (receipt, _) in self._open.items() if receipt.is_delivered and receipt.expires_at <= now]
        for seq in late:
            self._outlived(seq)

    def _outlived(self, seq: int) -> None:
        self._open[seq][0].end(Unknown(_OUTLIVED))
        if self._lags or seq <= self._stable:
            self._close(seq)  # its payload is not kept any more

    def dropped(self, seq: int, reason: str) -> None:
        """End the receipt of a burst that will not be delivered here."""
        if seq in self._open:
            self._close(seq).end(Unknown(f"not delivered here: {reason}"))

    def view_ended(self) -> None:
        """Mark as stable what was delivered in the view that ends: all who go on have delivered the same in it."""
        self._lapse()
        for seq in [seq for seq, (receipt, _) in self._open.items() if receipt.is_delivered]:
            self._close(seq).mark("stable")

    def incarnation_ended(self, why: str = "the group went on without this member") -> None:
        """End what the old incarnation sent; what it had not sent is numbered by the next one, from 1."""
        unsent = []
        for receipt, burst in self._open.values():
            if receipt.is_delivered or receipt.is_stable:
                receipt.end(Unknown(why))
            else:
                unsent.append((receipt, burst))
        _end_torn(receipt for receipt, _ in unsent)
        self.incarnations += 1
        self._open = dict(enumerate(unsent, 1))
        self.bytes = sum(receipt.size for receipt, _ in unsent)
        self._last, self._stable = len(unsent), 0

    def never_sent(self, count: int, why: str) -> None:
        """End the receipts of so many bursts that were submitted last, and will not be sent any more."""
        for seq in range(self._last - count + 1, self._last + 1):
            if seq in self._open:
                self._close(seq).end(Lost(f"never sent: {why}"))

    def end(self, why: str) -> None:
        """End all that are still open: nothing more will be known."""
        for receipt, _ in self._open.values():
            receipt.end(Unknown(why))

    @property
    def all_delivered(self) -> bool:
        """Whether every burst was delivered here, or will never be."""
        return all(receipt.is_delivered or receipt.settled for receipt, _ in self._open.values())

    @property
    def all_settled(self) -> bool:
        """Whether no receipt is open."""
        return not self._open

    def _close(self, seq: int) -> Receipt:
        receipt, _ = self._open.pop(seq)
        self.bytes -= receipt.size
        return receipt


def _end_torn(unsent: Iterable[Receipt]) -> None:
    """End the receipts of large messages of which the first bursts were sent by the incarnation that ends.

    Nobody can put them together: the rest comes from another incarnation, which to the others is another sender.
    """
    begun: set[int] = set()
    for receipt in unsent:
        if isinstance(receipt, PartReceipt):
            if receipt.is_first:
                begun.add(id(receipt.whole))
            elif id(receipt.whole) not in begun:
                receipt.whole.end(Lost("the group went on without this member when only a part of it was sent"))
