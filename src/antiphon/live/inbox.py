"""The inbox: what was delivered and not yet taken by the application, one agreed stream, within a bound."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import repeat
from typing import TypeAlias

from antiphon.live.events import Batch, Event, Message, Notice, ViewChange
from antiphon.protocol.machine import Capture, Restore

_EACH_BYTES = 64  # what a message costs beside its payload

Item: TypeAlias = Batch | ViewChange | Notice | Capture | Restore


class Inbox:
    """A bounded stream of events; what concerns the application's state is done in its place in the stream."""

    def __init__(self, bytes_max: int, *, listen: bool, at_state: Callable[[Capture | Restore], None]) -> None:
        """`listen` false: events are dropped; `at_state` is called where the state is to be given or replaced."""
        self._bytes_max, self._listen, self._at_state = bytes_max, listen, at_state
        self._items: deque[Item] = deque()
        self._news = asyncio.Event()
        self._current: Iterator[Message] = iter(())  # what is left of the batch being handed out
        self._closed = False
        self._failure: Callable[[], BaseException] | None = None
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether more waits here than may."""
        return self.bytes > self._bytes_max

    def put(self, item: Item) -> None:
        """Append to the stream."""
        if self._listen or isinstance(item, Capture | Restore):
            if isinstance(item, Batch):
                self.bytes += _cost(item)
            self._items.append(item)
            self._news.set()

    def close(self, failure: Callable[[], BaseException] | None = None) -> None:
        """End the stream after what is in it, with an exception if the group failed."""
        self._closed = True
        self._failure = self._failure or failure
        self._news.set()

    async def events(self) -> AsyncIterator[Event]:
        """Yield one event after the other."""
        while True:
            for message in self._current:  # shared by all iterators, so that one that is given up loses nothing
                yield message
            item = await self._next()
            if item is None:
                return
            if isinstance(item, Batch):
                self._current = map(Message, repeat(item.sender), item.payloads, repeat(item.view))
            else:
                yield item

    async def batches(self) -> AsyncIterator[Batch | ViewChange | Notice]:
        """Yield the same stream, messages by the batch."""
        while True:
            begun = list(self._current)
            if begun:
                yield Batch(begun[0].sender, [message.payload for message in begun], begun[0].view)
            item = await self._next()
            if item is None:
                return
            yield item

    async def _next(self) -> Batch | ViewChange | Notice | None:
        while True:
            while not self._items:
                if self._failure is not None:
                    raise self._failure()
                if self._closed:
                    return None
                self._news.clear()
                await self._news.wait()
            item = self._items.popleft()
            if isinstance(item, Capture | Restore):
                self._at_state(item)
                continue
            if isinstance(item, Batch):
                self.bytes -= _cost(item)
            return item


def _cost(batch: Batch) -> int:
    return sum(map(len, batch.payloads)) + _EACH_BYTES * len(batch.payloads)
