"""Simulated processes: whatever an application starts under one name, which can be crashed, paused and restarted.

Every task, timer and callback that an incarnation of a process begins carries it in its context, and so does every
group that it joins. The loop asks the incarnation before it runs any of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any

present_incarnation: ContextVar[Incarnation | None] = ContextVar("antiphon_life", default=None)


class Incarnation:
    """What runs under a name from a start to a crash; or a group that was joined outside of any process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.crashed = self.paused = False
        self.dead: list[asyncio.Task[Any]] = []  # what was about to run when it crashed
        self._missed: list[Callable[[], None]] = []

    def stops(self, action: Callable[[], None]) -> bool:
        """Say whether an action of this incarnation must not run now; if it is only paused, the action runs later."""
        if self.paused and not self.crashed:
            self._missed.append(action)
        return self.crashed or self.paused

    def resume(self) -> list[Callable[[], None]]:
        """Go on, and give what would have run meanwhile, in order."""
        self.paused = False
        missed, self._missed = self._missed, []
        return missed


class Process:
    """A function of the application that runs under a name, in one incarnation after another.

    `await process` gives what the function returns, in whichever incarnation it does.
    """

    def __init__(self, name: str, begin: Callable[[], Coroutine[Any, Any, Any]], result: asyncio.Future[Any]) -> None:
        self.name, self.begin, self._result = name, begin, result
        self.incarnation = Incarnation(name)
        self.task: asyncio.Task[Any] | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self._result).__await__()

    @property
    def running(self) -> bool:
        """Whether its function runs now."""
        return self.task is not None and not self.task.done() and not self.incarnation.crashed

    def ended(self, task: asyncio.Task[Any]) -> None:
        """Note what became of an incarnation's function, unless the incarnation crashed before."""
        if task is not self.task or self._result.done() or self.incarnation.crashed:
            return
        if task.cancelled() or task.exception() is not None:
            self._result.cancel()
        else:
            self._result.set_result(task.result())
