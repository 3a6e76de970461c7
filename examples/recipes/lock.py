"""A lock for a group: one holder at a time, the next in line when it lets go or dies, and a token against latecomers.

    async with Lock("stock", bind="10.0.0.1:7000", peers=[...]) as lock:
        token = await lock.acquire()
        storage.write(data, token)  # refuses a token lower than one it has seen
        await lock.release()

A holder that is paused or cut off does not know that the others gave the lock away. That is why `acquire` returns a
*fencing token*, which grows with every holder: what the lock guards must refuse lower ones than it has seen.
Whoever gives up waiting (a timeout around `acquire`) is taken out of the line; tasks of one member wait for each other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from replica import Replica

import antiphon


class Lock(Replica):
    """The line of those who want it, the first of whom has it, and how often it was handed over."""

    def begin(self) -> Any:
        self._mine = asyncio.Event()
        self._own_turn = asyncio.Lock()  # of the tasks of this member: the line has it once
        return {"line": [], "token": 0}

    async def acquire(self) -> int:
        """Wait in line for the lock; return the token of this turn."""
        await self._own_turn.acquire()
        try:
            while True:
                await self.do("want")
                while self.me in self.state["line"]:
                    if self.state["line"][0] == self.me:
                        return int(self.state["token"])
                    self._mine.clear()
                    await self._mine.wait()
        except (Exception, asyncio.CancelledError):  # a timeout, or nobody knows whether we are in line: leave it
            self._leaving = asyncio.create_task(self._leave_line())
            raise

    async def release(self) -> None:
        """Hand the lock to the next in line."""
        try:
            await self.do("done")
        finally:
            self._own_turn.release()

    async def _leave_line(self) -> None:
        with suppress(antiphon.Unknown, antiphon.GroupClosed):
            await self.release()

    def apply(self, sender: str, command: Any) -> None:
        line = self.state["line"]
        if command == "want" and sender not in line:
            self._now([*line, sender])
        elif command == "done":
            self._now([member for member in line if member != sender])

    def changed(self, view: antiphon.ViewChange) -> None:
        # who is new, though under an old name, has forgotten that it stood in line
        self._now([member for member in self.state["line"] if member in view.members and member not in view.joined])

    def restored(self) -> None:
        self._mine.set()

    def _now(self, line: list[str]) -> None:
        holder, before = line[:1], self.state["line"][:1]
        self.state = {"line": line, "token": self.state["token"] + (holder != before and bool(holder))}
        self._mine.set()
