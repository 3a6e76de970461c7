"""Ctrl-C and SIGTERM as an event, for the commands that run until they are stopped."""

from __future__ import annotations

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that SIGINT and SIGTERM set.

    Python turns SIGINT into KeyboardInterrupt only where the process did not inherit it as ignored. What a script
    starts in the background does, and would never end.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
