"""A work queue: what is put in is worked on by some member, and by another if that one dies before it is done.

    async with WorkQueue("resize", work, bind="10.0.0.1:7000", peers=[...]) as queue:
        await queue.put("picture 7")

Every replica gives each item to the same member, so nobody asks. Work is done *at least once*: a worker may die after
its work and before it could say so. Results are kept once; of work that raises, the result is what it raised, as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from replica import Replica

import antiphon


class WorkQueue(Replica):
    """Open items with the member that works on each, and the results of those that are done."""

    def __init__(self, group: str, work: Callable[[str], Awaitable[Any]], bind: str, peers: list[str]) -> None:
        super().__init__(group, bind, peers)
        self._work, self._at_work = work, dict[str, asyncio.Task[None]]()

    def begin(self) -> Any:
        return {"workers": [], "open": {}, "results": {}}

    async def put(self, item: str) -> None:
        """Add an item; when this returns every member knows of it."""
        await self.do(["put", item])

    def apply(self, sender: str, command: Any) -> None:
        match command:
            case ["put", item] if item not in self.state["results"]:
                self.state["open"].setdefault(item, self._least_busy())
            case ["done", item, result]:
                self.state["open"].pop(item, None)
                self.state["results"].setdefault(item, result)
        self._start()

    def changed(self, view: antiphon.ViewChange) -> None:
        # one that is new, though under an old name, has forgotten what it was at
        self.state["workers"] = list(view.members)
        gone = [item for item, worker in self.state["open"].items() if worker not in view.elders]
        for item in gone:
            self.state["open"][item] = None
        for item in gone:
            self.state["open"][item] = self._least_busy()
        self._start()

    def restored(self) -> None:
        self._start()

    def _least_busy(self) -> str:
        busy = list(self.state["open"].values())
        return str(min(self.state["workers"], key=busy.count))

    def _start(self) -> None:
        for item, worker in self.state["open"].items():
            if worker == self.me and item not in self._at_work:
                task = self._at_work[item] = asyncio.create_task(self._finish(item))
                task.add_done_callback(lambda _, item=item: self._at_work.pop(item, None))

    async def _finish(self, item: str) -> None:
        try:
            result = await self._work(item)
        except Exception as error:  # else the item would be taken up again and again
            result = f"failed: {error!r}"
        while self.state["open"].get(item) == self.me:
            try:
                await self.do(["done", item, result])
            except antiphon.Unknown:
                await asyncio.sleep(0.1)  # we were cut off: if the item is still ours when we are back, say it again

    async def __aexit__(self, *error: object) -> None:
        for task in list(self._at_work.values()):
            task.cancel()
        await super().__aexit__(*error)
