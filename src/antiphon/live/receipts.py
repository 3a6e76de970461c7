"""Receipts: what became of each own message, and the book of those that are still open."""

from __future__ import annotations

import asyncio
from typing import Literal

from antiphon.errors import AntiphonError


class Unknown(AntiphonError):
    """It is not known what became of a message: the group may have delivered it, or may not."""


class Receipt:
    """What became of a message: delivered here, in its order; stable, that is, held by every member."""

    __slots__ = ("_futures", "is_delivered", "is_stable", "lost", "size")

    def __init__(self) -> None:
        self.size = 0  # bytes of its burst
        self.is_delivered = self.is_stable = False
        self.lost: str | None = None  # why nobody knows
        self._futures: list[tuple[Literal["delivered", "stable"], asyncio.Future[None]]] = []

    async def delivered(self) -> None:
        """Wait until the message was delivered to this member too."""
        if not self.is_delivered:
            await self._wait("delivered")

    async def stable(self) -> None:
        """Wait until every member holds the message."""
        if not self.is_stable:
            await self._wait("stable")

    @property
    def settled(self) -> bool:
        """Whether nothing more will become of it."""
        return self.lost is not None or (self.is_delivered and self.is_stable)

    async def _wait(self, what: Literal["delivered", "stable"]) -> None:
        if self.lost is not None:
            raise Unknown(self.lost)
        future = asyncio.get_running_loop().create_future()
        self._futures.append((what, future))
        try:
            await future
        finally:
            self._futures = [pair for pair in self._futures if pair[1] is not future]

    def mark(self, what: Literal["delivered", "stable"]) -> None:
        """Note what became of it (for the group, not for applications)."""
        if what == "delivered":
            self.is_delivered = True
        else:
            self.is_stable = True
        for waited_for, future in self._futures:
            if waited_for == what and not future.done():
                future.set_result(None)

    def lose(self, why: str) -> None:
        """Note that nobody knows what became of it (for the group, not for applications)."""
        if self.settled:
            return
        self.lost = why
        for _, future in self._futures:
            if not future.done():
                future.set_exception(Unknown(why))


class Receipts:
    """The open receipts of one member, by the numbers that its messages have in this incarnation."""

    def __init__(self) -> None:
        self._open: dict[int, Receipt] = {}
        self._last = 0  # the number of the message that was submitted last
        self._stable = 0  # up to here all is stable
        self.bytes = 0  # of the bursts whose receipts are open

    def add(self, receipt: Receipt, size: int) -> None:
        """Keep the receipt of the message that is submitted now."""
        self._last += 1
        self._open[self._last] = receipt
        receipt.size = size
        self.bytes += size

    def delivered(self, seq: int) -> None:
        """Mark a message that was delivered here."""
        receipt = self._open.get(seq)
        if receipt is not None:
            receipt.mark("delivered")
            if receipt.is_stable:
                self._close(seq)

    def stable(self, upto: int) -> None:
        """Mark all messages up to a number that every member holds."""
        for seq in range(self._stable + 1, upto + 1):
            receipt = self._open.get(seq)
            if receipt is not None:
                receipt.mark("stable")
                if receipt.is_delivered:
                    self._close(seq)
        self._stable = max(self._stable, upto)

    def discarded(self, seq: int, reason: str) -> None:
        """End the receipt of a message that will not be delivered."""
        if seq in self._open:
            self._close(seq).lose(f"discarded: {reason}")

    def view_ended(self) -> None:
        """Mark as stable what was delivered in the view that ends: all who go on have delivered the same in it."""
        for seq in [seq for seq, receipt in self._open.items() if receipt.is_delivered]:
            self._close(seq).mark("stable")

    def incarnation_ended(self) -> None:
        """End what the old incarnation sent; what it had not sent yet is numbered anew, from 1."""
        waiting = [receipt for receipt in self._open.values() if not receipt.is_delivered]
        for receipt in self._open.values():
            if receipt.is_delivered:
                receipt.lose("the group went on without this member")
        self._open = dict(enumerate(waiting, 1))
        self.bytes = sum(receipt.size for receipt in waiting)
        self._last, self._stable = len(waiting), 0

    def end(self, why: str) -> None:
        """End all that are still open: nothing more will be known."""
        for receipt in self._open.values():
            receipt.lose(why)

    @property
    def all_delivered(self) -> bool:
        """Whether every message was delivered here, or will never be."""
        return all(receipt.is_delivered or receipt.lost for receipt in self._open.values())

    @property
    def all_settled(self) -> bool:
        """Whether no receipt is open."""
        return not self._open

    def _close(self, seq: int) -> Receipt:
        receipt = self._open.pop(seq)
        self.bytes -= receipt.size
        return receipt
