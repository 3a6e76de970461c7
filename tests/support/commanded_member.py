"""A member as a process of its own that does what comes on its standard input, and writes down what it sees.

Run by tests: python commanded_member.py GROUP SETTINGS, the settings as JSON. Commands and reports are lines of JSON;
`support.commanded` has the other end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import antiphon


class Commanded:
    """One member, and its application: a state that is the list of all that it delivered."""

    def __init__(self, group: antiphon.Group) -> None:
        self._group = group
        self._reading = asyncio.Event()
        self._reading.set()
        self._cut_off = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.delivered: list[str] = []

    def snapshot(self) -> bytes:
        return json.dumps(self.delivered).encode()

    def restore(self, state: bytes) -> None:
        self.delivered[:] = json.loads(state)

    async def run(self, commands: asyncio.StreamReader) -> None:
        async with self._group as group:
            group.transport.lose = lambda _: self._cut_off
            say(entered=True)
            self._begin(self._listen())
            while line := await commands.readline():
                name, arguments = json.loads(line)
                try:
                    await getattr(self, f"do_{name}")(**arguments)
                except antiphon.AntiphonError as error:
                    say(error=type(error).__name__, text=str(error))
                if name == "leave":
                    break
        await asyncio.gather(*self._tasks)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self) -> None:
        try:
            async for event in self._group:
                match event:
                    case antiphon.Message():
                        text = event.payload.decode() if len(event.payload) < 100 else f"{len(event.payload)} bytes"
                        self.delivered.append(text)
                        say(message=text, view=event.view)
                    case antiphon.ViewChange():
                        say(view=event.view, members=event.members)
                    case antiphon.Notice():
                        say(notice=event.what)
                await self._reading.wait()
        except antiphon.GroupClosed as closed:
            say(closed=str(closed))

    async def _follow(self, text: str, send: Any) -> None:
        try:
            receipt = await send
            await receipt.stable()
            say(outcome="stable", of=text)
        except antiphon.AntiphonError as error:
            say(outcome=type(error).__name__, of=text, reason=str(error))

    # Commands

    async def do_send(self, text: str) -> None:
        self._begin(self._follow(text, self._group.send(text.encode())))

    async def do_send_many_bytes(self, name: str, size: int) -> None:
        self._begin(self._follow(name, self._group.send(bytes(size))))

    async def do_send_text(self, text: str) -> None:
        await self._group.send(text)  # type: ignore[arg-type]  # on purpose

    async def do_read(self, on: bool) -> None:
        (self._reading.set if on else self._reading.clear)()

    async def do_cut_off(self, on: bool) -> None:
        """Hear nobody, and be heard by nobody."""
        self._cut_off = on
        port = self._group.transport.port
        if on:
            self._send, port.send = port.send, lambda packets, targets: None  # type: ignore[method-assign]
        else:
            port.send = self._send  # type: ignore[method-assign]

    async def do_keys(self, keys: list[str]) -> None:
        self._group.set_keys(*map(bytes.fromhex, keys))
        say(keys=len(keys))

    async def do_status(self) -> None:
        status = self._group.status()
        say(standing=status.standing, members=status.members, inbox_bytes=status.inbox_bytes, counts=status.counts)

    async def do_state(self) -> None:
        say(state=self.delivered)

    async def do_leave(self) -> None:
        await self._group.leave()
        say(left=True)


def say(**about: Any) -> None:
    print(json.dumps(about), flush=True)


async def main() -> None:
    group, settings = sys.argv[1], json.loads(sys.argv[2])
    if "key" in settings:
        settings["key"] = bytes.fromhex(settings["key"])
    holder: list[Commanded] = []
    if settings.pop("transfers", False):
        settings["snapshot"] = lambda: holder[0].snapshot()
        settings["restore"] = lambda state: holder[0].restore(state)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    try:
        holder.append(Commanded(antiphon.join(group, **settings)))
        await holder[0].run(commands)
    except antiphon.UsageError as error:
        say(refused=str(error))


if __name__ == "__main__":
    asyncio.run(main())
