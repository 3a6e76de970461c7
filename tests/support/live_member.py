"""A member as a process of its own: sends numbered messages, writes down as JSON lines what it sees.

Run by tests: python live_member.py OUT TRACE STATE INTERVAL BIND PEER... with SETTINGS in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import antiphon


async def main() -> None:
    out, trace, state, interval, own, *peers = sys.argv[1:]
    settings: dict[str, Any] = json.loads(os.environ.get("SETTINGS", "{}"))
    done, silent = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, silent.set)
    with Path(out).open("a", buffering=1) as file:

        def say(**about: Any) -> None:
            file.write(json.dumps({"at": time.monotonic_ns(), **about}) + "\n")

        async def wait_for_stability(receipt: antiphon.Receipt, text: str) -> None:
            try:
                await receipt.stable()
                say(stable=text)
            except antiphon.Unknown:
                say(unknown=text)

        async def send(group: antiphon.Group) -> None:
            number = 0
            tasks = set()
            while not silent.is_set():
                number += 1
                text = f"{own}/{os.getpid()}/{number}"
                receipt = await group.send(text.encode())
                task = asyncio.create_task(wait_for_stability(receipt, text))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await asyncio.sleep(float(interval))
            await asyncio.Event().wait()

        async def listen(group: antiphon.Group) -> None:
            async for event in group:
                match event:
                    case antiphon.Message():
                        say(message=event.payload.decode(), view=event.view)
                    case antiphon.ViewChange():
                        say(view=event.view, members=event.members)
                    case antiphon.Notice():
                        say(notice=event.what)

        key, loss = bytes.fromhex(settings.pop("key")), settings.pop("loss", 0.0)
        say(joining=os.getpid())
        async with antiphon.join(
            "faults", bind=own, peers=peers, key=key, trace=Path(trace), state=Path(state), **settings
        ) as group:
            group.transport.lose = lambda _: random.random() < loss
            tasks = [asyncio.create_task(send(group)), asyncio.create_task(listen(group))]
            finished = asyncio.create_task(done.wait())
            await asyncio.wait({*tasks, finished}, return_when=asyncio.FIRST_COMPLETED)
            tasks[0].cancel()
            await asyncio.sleep(0.2)
            say(status=repr(group.status()))
            await group.stop()  # its log is complete; it has not left
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
