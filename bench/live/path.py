"""The way of one datagram from the socket to the application: python -m bench.live.path [--orderings fifo,total]

Three members in one process on the loopback address, encrypted, with views. Messages are sent one by one, and every
call of a Python function of the package is counted at one receiver, from the moment at which its socket has something
to read until its application has the message (for fifo one datagram, for a total order all that its rounds take).
PYTHONPATH decides which version is counted. Told is the shortest of several ways, on which no timer happened to be due,
and the median of the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import antiphon
from bench.live.addresses import group_here

_PACKAGE = str(Path(antiphon.__file__).parent)


class Counting:
    """Counts calls of the package's functions while it is on."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.calls, self.depth, self._inside = 0, 0, 0
        self.functions: dict[tuple[str, str, int], int] = {}

    def on(self) -> None:
        sys.setprofile(self._seen)

    def off(self) -> None:
        sys.setprofile(None)
        self._inside = 0

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return
        if event == "call":
            self.calls += 1
            self._inside += 1
            self.depth = max(self.depth, self._inside)
            where = code.co_filename.removeprefix(_PACKAGE + os.sep), code.co_qualname, code.co_firstlineno
            self.functions[where] = self.functions.get(where, 0) + 1
        elif event == "return":
            self._inside -= 1

    def told(self) -> dict[str, int]:
        files = {file for file, _, _ in self.functions}
        return {"calls": self.calls, "functions": len(self.functions), "files": len(files), "depth": self.depth}


async def count(ordering: str, messages: int, show: bool) -> dict[str, int]:
    """Count the way of several messages at one receiver; give the shortest of them."""
    counting, armed = Counting(), False
    watched: set[int] = set()  # descriptors of the receiver
    receiver: list[antiphon.Group] = []
    loop = asyncio.get_running_loop()
    add_reader = loop.add_reader

    def counted(fd: int, callback: Callable[..., object], *args: object) -> None:
        def read() -> None:
            if armed and fd in watched:
                counting.on()
            callback(*args)
            counting.off()
            if armed and fd in watched and receiver and receiver[0].status().inbox_bytes:
                counting.on()  # until the application has it

        joining_fds.append(fd)
        add_reader(fd, read)

    loop.add_reader = counted  # type: ignore[method-assign, assignment]
    joining_fds: list[int] = []
    delivered: asyncio.Future[None] = loop.create_future()
    found: list[tuple[int, dict[str, int], dict[tuple[str, str, int], int]]] = []
    async with group_here(3, ordering) as groups:
        receiver.append(max(groups, key=lambda group: _port(group.status().me)))
        watched.update(fd for fd in joining_fds if _bound(fd) == receiver[0].status().me)
        sender = next(group for group in groups if group is not receiver[0])

        async def listen() -> None:
            async for event in receiver[0]:
                counting.off()
                if isinstance(event, antiphon.Message) and not delivered.done():
                    delivered.set_result(None)

        async def drop(group: antiphon.Group) -> None:
            async for _ in group:
                pass

        tasks = [asyncio.create_task(listen() if group is receiver[0] else drop(group)) for group in groups]
        await asyncio.sleep(1.0)
        for _ in range(messages):
            delivered = loop.create_future()
            counting.clear()
            armed = True
            await sender.send(b"x" * 64)
            await delivered
            armed = False
            found.append((counting.calls, counting.told(), dict(counting.functions)))
            await asyncio.sleep(0.003)  # as often as a busy group is written to
        for task in tasks:
            task.cancel()
    _, told, functions = min(found, key=lambda one: one[0])
    told["calls_median"] = sorted(calls for calls, _, _ in found)[len(found) // 2]
    if show:
        for (file, name, _), times in functions.items():
            print(f"{times:4} {file} {name}", file=sys.stderr)
    return told


def _port(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def _bound(fd: int) -> str:
    with socket.socket(fileno=os.dup(fd)) as one:
        host, port = one.getsockname()[:2]
    return f"{host}:{port}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orderings", default="fifo,causal,total,sequencer")
    parser.add_argument("--messages", type=int, default=31)
    parser.add_argument("--show", action="store_true", help="list the functions on stderr")
    args = parser.parse_args()
    for ordering in args.orderings.split(","):
        told = asyncio.run(count(ordering, args.messages, args.show))
        print(json.dumps({"package": _PACKAGE, "ordering": ordering, **told}), flush=True)


if __name__ == "__main__":
    main()
