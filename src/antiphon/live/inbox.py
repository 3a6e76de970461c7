"""The inbox: what was delivered and not yet taken by the application, one agreed stream, within a bound."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from itertools import repeat, takewhile
from typing import Any, TypeAlias, TypeVar, final

from antiphon.live.arguments import AtHome
from antiphon.live.events import Batch, Event, Message, Notice, ViewChange
from antiphon.live.sockets import WAKE_BYTES_MAX
from antiphon.live.spill import SpilledQueue
from antiphon.protocol.machine import Capture, Restore

_EACH_BYTES = 64  # what a message costs beside its payload
_LOW_BYTES = 1 << 20
_BACKLOG = "the backlog"

Entry: TypeAlias = Batch | ViewChange | Notice | Capture

_Taken = TypeVar("_Taken")


@final
class Aside(SpilledQueue[Entry]):
    """A part of the stream that is in a file."""

    def __init__(self) -> None:
        super().__init__((Batch, ViewChange, Notice, Capture))


Item: TypeAlias = Entry | Restore | Aside


class Inbox:
    """A bounded stream of events; the application's state is taken and restored at the right place in the stream."""

    def __init__(
        self, bytes_max: int, *, listen: bool, at_state: Callable[[Capture | Restore], Awaitable[None]]
    ) -> None:
        """`listen` false: events are dropped; `at_state` is called where the state is taken or restored."""
        self._bytes_max, self._listen, self._at_state = bytes_max, listen, at_state
        self._home = AtHome()
        self._items: deque[tuple[Item, int]] = deque()  # each with its bytes
        self._waiting: dict[asyncio.Future[None], None] = {}  # of iterators that have taken everything, in their order
        self._current: Iterator[Message] = iter(())  # what is left of the batch being handed out
        self._restoring: asyncio.Future[None] | None = None  # done when the application has its new state
        self._closed = False
        self._failure: Callable[[], BaseException] | None = None
        self.bytes = 0
        self.calm_bytes = bytes_max - WAKE_BYTES_MAX  # up to here, one wake-up of the transport cannot fill it
        self.emptied: Callable[[], None] | None = None  # called when it is no longer full
        self.taken: Callable[[], None] | None = None  # called when messages were taken, while more wait elsewhere
        self._held_up_by: set[object] = set()  # what waits elsewhere, and is too much

    @property
    def is_half_full(self) -> bool:
        """Whether more than half of what may wait here does."""
        return 2 * self.bytes > self._bytes_max

    @property
    def is_full(self) -> bool:
        """Whether more waits here than may."""
        return self.bytes > self._bytes_max or bool(self._held_up_by)

    @property
    def is_low(self) -> bool:
        """Whether there is little in it, and no part of the stream is in a file."""
        return self.bytes < min(_LOW_BYTES, self._bytes_max) and self._held_up_by <= {_BACKLOG}

    @property
    def is_held_up(self) -> bool:
        """Whether too much waits in the backlog; the inbox then counts as full, however little is in it."""
        return _BACKLOG in self._held_up_by

    @is_held_up.setter
    def is_held_up(self, held_up: bool) -> None:
        self._hold_up(_BACKLOG, held_up=held_up)

    def _hold_up(self, by: object, *, held_up: bool) -> None:
        was_full = self.is_full
        if held_up:
            self._held_up_by.add(by)
        else:
            self._held_up_by.discard(by)
        self.calm_bytes = -1 if self._held_up_by else self._bytes_max - WAKE_BYTES_MAX
        if was_full:
            self._tell_if_emptied()

    def put_messages(self, sender: str, payloads: list[bytes], view: int) -> None:
        """Append messages of one sender to the stream."""
        if self._listen:
            batch = Batch(sender, payloads, view)
            size = _size_of(batch)
            self.bytes += size
            self._items.append((batch, size))
            if self._waiting:
                self._wake()

    def put(self, item: ViewChange | Notice | Capture | Restore) -> None:
        """Append something else to the stream."""
        if self._listen or isinstance(item, Capture | Restore):
            self._items.append((item, 0))
            self._wake()

    def put_aside(self, portions: Iterable[None]) -> None:
        """Append what is put while these are gone through; keep it in a file, if it is more than may wait here.

        What comes behind waits for it: until the application has come to the end of the file, the inbox counts as full.
        """
        before, bytes_before = self._items, self.bytes
        self._items = deque()
        aside = Aside()
        try:
            for _ in portions:
                if self._items and (aside.bytes or self.bytes > self._bytes_max):
                    self._hold_up(aside, held_up=True)
                    for item, _size in self._items:
                        assert not isinstance(item, Restore | Aside), "a state comes with no portion"
                        aside.append(item)
                    self._items.clear()
                    self.bytes = bytes_before
        finally:
            before.extend(self._items)
            self._items = before
        if aside.bytes:
            self._items.append((aside, 0))

    def _fetch(self, aside: Aside) -> None:
        """Put the next portion of what was put aside in its place."""
        self._items.popleft()
        portion = [(item, _size_of(item)) for item in aside.take() if not (self._closed and type(item) is Capture)]
        if aside.bytes:
            self._items.appendleft((aside, 0))
        self._items.extendleft(reversed(portion))
        self.bytes += sum(size for _, size in portion)
        if not aside.bytes:
            self._hold_up(aside, held_up=False)
            if self.taken is not None:
                self.taken()

    def _tell_if_emptied(self) -> None:
        if not self.is_full and self.emptied is not None:
            self.emptied()

    def close(self, failure: Callable[[], BaseException] | None = None) -> None:
        """End the stream after what is in it, with an exception if the group failed.

        Events that come after a state that the application was not given are dropped.
        """
        self._closed = True
        seen = takewhile(lambda item: not isinstance(item[0], Restore), self._items)
        self._items = deque(item for item in seen if not isinstance(item[0], Capture))
        if self._restoring is not None:
            self._restoring.cancel()
            self._restoring = None
        self._failure = self._failure or failure
        self._wake()

    def _wake(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    def events(self) -> AsyncIterator[Event]:
        """Give one event after the other."""
        return _Taking(self._next_event, self._home)

    def batches(self) -> AsyncIterator[Batch | ViewChange | Notice]:
        """Give the same stream, messages by the batch."""
        return _Taking(self._next_batch, self._home)

    async def _next_event(self) -> Event:
        """Wait for the next event; the stream ends as every asynchronous iteration does."""
        while True:
            for message in self._current:  # shared by all iterators, so that one that is given up loses nothing
                return message
            item = await self._next()
            if not isinstance(item, Batch):
                return item
            self._current = map(Message, repeat(item.sender), item.payloads, repeat(item.view))

    async def _next_batch(self) -> Batch | ViewChange | Notice:
        begun = list(self._current)
        if begun:
            return Batch(begun[0].sender, [message.payload for message in begun], begun[0].view)
        return await self._next()

    async def _next(self) -> Batch | ViewChange | Notice:
        """Wait for the next item, and take or restore the state where the stream comes to that."""
        while True:
            while not self._items:
                if self._closed:
                    raise StopAsyncIteration if self._failure is None else self._failure()
                news = self._home.loop.create_future()
                self._waiting[news] = None
                try:
                    await news
                finally:
                    del self._waiting[news]  # also of one who gave up waiting
            item = self._items[0][0]
            if type(item) is Restore:  # by `type`: to ask `isinstance` whether a message is a state takes far longer
                await self._restore()
                continue
            if type(item) is Aside:
                self._fetch(item)
                continue
            self._take()
            if type(item) is not Capture:
                return item
            await self._at_state(item)

    async def _restore(self) -> None:
        """Wait until the application has the state that comes next; nothing behind it is seen before.

        Whoever gives up waiting does not stop it. Where it fails, it is done again by the next one who reads.
        """
        if self._restoring is None:
            item = self._items[0][0]
            assert isinstance(item, Restore)
            self._restoring = asyncio.ensure_future(self._at_state(item))
        restoring = self._restoring
        await asyncio.wait([restoring])
        if self._restoring is restoring:  # else another has heard of it, or the stream has ended
            self._restoring = None
            restoring.result()
            self._items.popleft()

    def _take(self) -> None:
        """Take out what comes next."""
        _, size = self._items.popleft()
        if size:
            was_full = self.bytes > self._bytes_max or bool(self._held_up_by)
            self.bytes -= size
            if self.taken is not None:
                self.taken()
            if was_full:
                self._tell_if_emptied()


def _size_of(item: Entry) -> int:
    """Return what an item counts here: only messages do."""
    return sum(map(len, item.payloads)) + _EACH_BYTES * len(item.payloads) if type(item) is Batch else 0


class _Taking(AsyncIterator[_Taken]):
    """What an application iterates over.

    It is no asynchronous generator, which is over for good once a timeout around its next item has gone off.
    """

    def __init__(self, take: Callable[[], Coroutine[Any, Any, _Taken]], home: AtHome) -> None:
        self._take, self._home = take, home

    def __anext__(self) -> Coroutine[Any, Any, _Taken]:
        self._home.check()
        return self._take()
