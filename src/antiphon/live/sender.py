"""The sending half of a member: messages into bursts, bursts into the machine, within the window."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from antiphon.errors import UsageError
from antiphon.live import burst
from antiphon.live.arguments import check_loop
from antiphon.live.driver import Driver
from antiphon.live.events import GroupClosed
from antiphon.live.receipts import Lost, PartReceipt, Receipt, Receipts
from antiphon.live.settings import Settings
from antiphon.protocol.machine import Duration, Submit

Kind: TypeAlias = tuple[Duration | None, int]  # lifetime and priority: messages of one burst have the same
PLAIN: Kind = (None, 0)


class Sender:
    """Gathers what one turn of the loop sends into one burst, and makes those wait who send more than there is room."""

    def __init__(self, settings: Settings, driver: Driver, receipts: Receipts) -> None:
        self._settings, self._driver, self._receipts = settings, driver, receipts
        self._pending: list[bytes] = []
        self._kind = PLAIN  # of what is pending
        self._receipt = Receipt(driver.loop)  # of what is pending
        self._open_bytes = 0  # up to this length messages simply join what is pending
        self._flush_scheduled = False
        self._room: asyncio.Future[None] | None = None  # waited for by those who found none
        self._large = asyncio.Lock()  # held while the parts of one message are sent
        self._cutter = burst.MessageCutter()
        self._sizes = burst.BurstSize()
        self._gone: str | None = None  # why nothing can be sent any more
        self.pending_bytes = 0
        self.messages = 0  # sent in all

    def add(self, payload: bytes) -> Receipt | None:
        """Add a message to the burst that is pending, if it simply fits."""
        self._driver.home.check()
        size = self.pending_bytes + len(payload) + burst.MESSAGE_OVERHEAD_BYTES
        if size > self._open_bytes:
            return None
        self._pending.append(payload)
        self.pending_bytes = size
        return self._receipt

    async def begin(self, payload: bytes, kind: Kind) -> Receipt:
        """Send a message that does not simply go into the burst that is pending."""
        size, limit = len(payload), self._settings.message_bytes_max
        check_loop(self._driver.loop)
        self.check_sizes([payload])
        while self._pending and (self.pending_bytes + size > self._sizes.bytes or kind != self._kind):
            await self._wait_for_room()
        if size > self._sizes.bytes or self._large.locked():
            return await self._send_large(payload, kind)
        self._check_open()
        self._kind = kind
        self._pending.append(payload)
        self.pending_bytes += size + burst.MESSAGE_OVERHEAD_BYTES
        self._open_bytes = min(self._sizes.bytes, limit) if kind == PLAIN else 0
        self._schedule_flush()
        return self._receipt

    def check_sizes(self, payloads: Iterable[bytes]) -> None:
        """Raise a `UsageError` if a message is too large to be sent."""
        limit = self._settings.message_bytes_max
        size = max(map(len, payloads), default=0)
        if size > limit:
            raise UsageError(f"payload: {size} bytes are over the limit of {limit} (message_bytes_max)")

    async def _send_large(self, payload: bytes, kind: Kind) -> Receipt:
        """Send a message in parts, or one that has to wait for another's parts."""
        async with self._large:  # nothing of one's own comes between its parts
            receipt = await self._send_parts(payload, kind)
            while receipt is None:
                receipt = await self._send_parts(payload, kind)
            self.messages += 1
        return receipt

    async def _send_parts(self, payload: bytes, kind: Kind) -> Receipt | None:
        """Send all parts of a message in one incarnation; return None if it ended, so that nobody has all."""
        whole, incarnations = Receipt(self._driver.loop), self._receipts.incarnations
        for part in self._cutter.cut(payload, self._sizes.bytes, self._driver.incarnation):
            while self._pending or not self._has_room():
                await self._wait_for_room()
            self._check_open()
            if self._receipts.incarnations != incarnations:
                return None
            is_last = part.index == part.count - 1
            self._submit(burst.encode(part), PartReceipt(whole, is_first=not part.index, is_last=is_last), kind)
        return whole

    async def _wait_for_room(self) -> None:
        """Wait until what is pending was taken by the machine."""
        self._check_open()
        self._flush()
        if not self._pending and self._has_room():
            await asyncio.sleep(0)
        else:
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            self._driver.turned = self._room_again
            await asyncio.shield(self._room)
        self._check_open()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Turn what is pending into one burst, if the machine has room."""
        self._flush_scheduled = False
        if self._pending and self._driver.running and self._has_room():
            messages, self._pending, self.pending_bytes, self._open_bytes = self._pending, [], 0, 0
            receipt, self._receipt = self._receipt, Receipt(self._driver.loop)
            self.messages += len(messages)
            self._submit(burst.whole(messages), receipt, self._kind)
        elif self._pending:
            self._driver.turned = self._room_again

    def _submit(self, payload: bytes, receipt: Receipt, kind: Kind) -> None:
        self._sizes.sent(self._driver.retransmissions)
        lifetimes_ns = [limit_ns for limit_ns in (kind[0], self._driver.lifetime_ns) if limit_ns is not None]
        self._receipts.add(receipt, payload, min(lifetimes_ns, default=None))
        self._driver.drive(Submit(payload, *kind))

    def _has_room(self) -> bool:
        if self._driver.inbox.is_full and self._gone is None:
            self._driver.inbox.emptied = self._room_again  # own messages come back: they need room there too
            return False
        return self._receipts.bytes < self._settings.window_bytes and self._driver.machine.room > 0

    def _room_again(self) -> None:
        """Look whether there is room for what waits; called after every input of the machine until there is."""
        if not self._has_room():
            return
        if self._pending:
            self._schedule_flush()
        else:
            self._driver.turned = None
            if self._room is not None and not self._room.done():
                self._room.set_result(None)

    def _check_open(self) -> None:
        if self._gone is not None:
            raise GroupClosed(self._gone)

    def refuse(self, why: str) -> None:
        """Take no more messages, also of those who wait for room; what is pending still goes out."""
        self._gone, self._open_bytes = why, 0
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def close(self, why: str) -> None:
        """End all that waits: senders with `GroupClosed`, the receipt of what is pending with `Lost`."""
        self.refuse(why)
        self._receipt.end(Lost(f"never sent: {why}"))

    @property
    def idle(self) -> bool:
        """Whether nothing is pending."""
        return not self._pending

    @property
    def burst_bytes(self) -> int:
        """How large bursts may be now."""
        return self._sizes.bytes
