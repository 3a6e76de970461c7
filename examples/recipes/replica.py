"""A replicated state machine in a page: what the recipes beside this file have in common.

Every replica applies the same commands in the same order, so all of them have the same state. `safe=True` makes the
order uniform: what any replica ever acted on is what those who go on without it have as well.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import antiphon


class Replica:
    """One copy of a state; a recipe says what a command and a change of the view do to it."""

    def __init__(self, group: str, bind: str, peers: list[str], **settings: Any) -> None:
        self.state: Any = self.begin()
        self.me = bind
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._group = antiphon.join(
            group,
            bind=bind,
            peers=peers,
            ordering="total",
            safe=True,
            snapshot=lambda: json.dumps(self.state).encode(),
            restore=self._restore,
            **settings,
        )

    def begin(self) -> Any:
        """Return the state of a new group: anything that JSON can say."""
        raise NotImplementedError

    def apply(self, sender: str, command: Any) -> Any:
        """Change the state, in the same way at every replica, and return the answer for the sender."""
        raise NotImplementedError

    def changed(self, view: antiphon.ViewChange) -> None:
        """Change the state when members come and go; every replica that goes on sees this between the same commands."""

    def restored(self) -> None:
        """Take note that the state was replaced by that of the others, because we joined them."""

    def cut_off(self) -> None:
        """Stop acting for the others: they may have gone on without us."""

    async def do(self, command: Any) -> Any:
        """Have a command applied everywhere, and return its answer; raise `antiphon.Unknown` if nobody can tell."""
        number = uuid.uuid4().hex
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            receipt = await self._group.send(json.dumps([number, command]).encode())
            await receipt.stable()  # a safe group delivers what is stable, so the answer is there or comes at once
            return await answer
        finally:
            del self._answers[number]

    async def __aenter__(self) -> Any:
        await self._group.__aenter__()
        self._applying = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._group.leave()
        await self._applying

    def _restore(self, state: bytes) -> None:
        self.state = json.loads(state)
        self.restored()

    async def _follow(self) -> None:
        async for event in self._group:
            match event:
                case antiphon.Message(sender=sender, payload=payload):
                    number, command = json.loads(payload)
                    result = self.apply(sender, command)
                    answer = self._answers.get(number)
                    if answer is not None and not answer.done():
                        answer.set_result(result)
                case antiphon.ViewChange(elders=elders) if not elders or self.me in elders:
                    self.changed(event)  # a joiner's state has it already
                case antiphon.Notice(what="stalled" | "excluded"):
                    self.cut_off()
