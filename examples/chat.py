"""A chat on causal order: nobody sees an answer before the question.

    python examples/chat.py

lets three people talk in one process. With addresses, take part from a terminal, one person a process:

    python examples/chat.py 127.0.0.1:7401 127.0.0.1:7402 127.0.0.1:7403
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import antiphon

ADDRESSES = [f"127.0.0.1:{port}" for port in range(7311, 7314)]
QUESTION, ANSWER = "anyone for lunch?", "yes, at noon"


def join(own: str, everyone: list[str], state: Path | None = None) -> antiphon.Group:
    """Enter the room."""
    others = [address for address in everyone if address != own]
    return antiphon.join("chat", bind=own, peers=others, ordering="causal", state=state)


async def listen(group: antiphon.Group, heard: list[str], answers: bool) -> None:
    """Note what is said; one of them answers as soon as it hears the question."""
    async for event in group:
        if isinstance(event, antiphon.Message):
            heard.append(event.payload.decode())
            if answers and heard[-1] == QUESTION:
                await group.send(ANSWER.encode())


async def scripted(addresses: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        groups = [join(own, addresses, Path(folder)) for own in addresses]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        heard: list[list[str]] = [[] for _ in groups]
        listening = [asyncio.create_task(listen(group, heard[index], index == 1)) for index, group in enumerate(groups)]
        await groups[0].send(QUESTION.encode())
        while not all(len(lines) == 2 for lines in heard):
            await asyncio.sleep(0.01)
        for own, lines in zip(addresses, heard, strict=True):
            print(f"{own} heard: {' / '.join(lines)}")
        for group in groups:
            await group.leave()
        await asyncio.gather(*listening)


async def interactive(own: str, everyone: list[str]) -> None:
    async with join(own, everyone) as group:

        async def speak() -> None:
            while line := await asyncio.to_thread(sys.stdin.readline):
                await group.send(line.rstrip("\n").encode())
            await group.leave()

        speaking = asyncio.create_task(speak())
        async for event in group:
            if isinstance(event, antiphon.Message):
                print(f"{event.sender}: {event.payload.decode(errors='replace')}")
            elif isinstance(event, antiphon.ViewChange):
                print(f"-- here: {', '.join(event.members)}")
        await speaking


if __name__ == "__main__":
    scripted_addresses = sys.argv[2:] if sys.argv[1:2] == ["--scripted"] else ADDRESSES
    if len(sys.argv) > 1 and sys.argv[1] != "--scripted":
        asyncio.run(interactive(sys.argv[1], sys.argv[1:]))
    else:
        asyncio.run(scripted(scripted_addresses))
