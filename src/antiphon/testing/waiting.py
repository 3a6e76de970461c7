"""Who waits for what: the sentences with which a simulated run that cannot go on says why."""

from __future__ import annotations

import asyncio
import linecache
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import antiphon
from antiphon.live.events import Status
from antiphon.protocol.machine import SECOND, Instant
from antiphon.testing.process import Process

_NOT_THE_APPLICATION = (str(Path(asyncio.__file__).parent), str(Path(antiphon.__file__).parent))


def frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Give the frames of a task that waits, from the outermost in."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                yield frame
                break
        awaited = next(
            (getattr(awaited, name) for name in ("cr_await", "gi_yieldfrom", "ag_await") if hasattr(awaited, name)),
            None,
        )


def describe(task: asyncio.Task[Any], process: Process | None) -> str:
    """Say in a line where a task waits: the innermost line of the application, and what it called there."""
    chain = list(frames(task))
    own = [frame for frame in chain if not frame.f_code.co_filename.startswith(_NOT_THE_APPLICATION)]
    name = task.get_name() if process is None else f"{task.get_name()} of {process.name}"
    if not chain:
        return f"{name}: has not begun"
    frame = own[-1] if own else chain[-1]
    file, line = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(file, line).strip()
    inside = "" if chain[-1] is frame else f", in {chain[-1].f_code.co_qualname}"
    return f"{name}: {Path(file).name}:{line} in {frame.f_code.co_name}: {code}{inside}"


def explain(
    tasks: Iterable[asyncio.Task[Any]],
    statuses: Iterable[Status],
    faults: Iterable[str],
    now: Instant,
) -> str:
    """Say who waits for what, how the groups stand, and which faults last."""
    lines = [f"these wait (it is {now / SECOND:g} s of virtual time):"]
    lines += [f"  {describe(task, getattr(task, 'process', None))}" for task in tasks]
    for status in statuses:
        held = f"{status.held} bursts held, {status.inbox_bytes} bytes not taken by the application"
        slowest = f", waits for {status.slowest}" if status.slowest else ""
        members = ", ".join(status.members) or "nobody yet"
        where = f"{status.standing} in view {status.view} ({members})"
        lines.append(f"  group {status.group} at {status.me}: {where}; {held}{slowest}")
    lines += [f"  fault: {fault}" for fault in faults]
    return "\n".join(lines)
