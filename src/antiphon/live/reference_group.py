"""Measures what this machine adds to a message's way: a small live group in processes of their own, for a few seconds.

The group uses fifo order, so that a message is delivered when it arrives, and the loopback interface, which takes
almost no time: the time that a message takes is the machine's own. The processes also note how much processor time they
use and how late timers go off. Then messages are sent in pairs: the second of a pair finds the receiver awake.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import AntiphonError
from antiphon.live.events import Message
from antiphon.live.group import join

_STAMP = struct.Struct("<q?")  # when it was sent, and whether just after another
_PATIENCE_S = 20.0  # for the members to find each other on a busy machine
_TIMER_S = 0.005
_MOMENT_S = 0.001
_PARTS = 20


class MachineTimes(msgspec.Struct, frozen=True):
    """What was measured, in microseconds; lists are quantiles at equal distances."""

    hops_us: list[float]  # from one application, before it sends, to the other's having the message
    warm_us: list[float]  # the same of messages that follow another within a moment
    late_us: list[float]  # by which timers go off late
    work_us: float  # processor time for each packet that is sent or received


def measure_machine(
    size: int = 2, rate_per_s: float = 50.0, *, seconds: float = 2.0, encrypted: bool = False
) -> MachineTimes:
    """Run a group of this size, send for so long, and say what was seen."""
    addresses = _free_addresses(size)
    key = os.urandom(16).hex() if encrypted else None
    with tempfile.TemporaryDirectory() as state:
        members = []
        for own in addresses:
            about = {
                "bind": own,
                "peers": [peer for peer in addresses if peer != own],
                "key": key,
                "seconds": seconds,
                "rate_per_s": rate_per_s,
                "state": str(Path(state) / own.rsplit(":", 1)[1]),
            }
            command = [sys.executable, "-m", "antiphon.live.reference_group", json.dumps(about)]
            members.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        try:
            said = [_answer(member, seconds) for member in members]
        finally:
            for member in members:
                member.kill()
                member.communicate()
    hops = [one for member in said for one in member["hops_us"]]
    warm = [one for member in said for one in member["warm_us"]]
    late = [one for member in said for one in member["late_us"]]
    packets = sum(member["packets"] for member in said)
    if min(len(hops), len(warm), len(late)) < 2 or not packets:
        raise AntiphonError("members on this machine exchanged no messages, so its times cannot be measured")
    work_us = 1e6 * sum(member["cpu_s"] for member in said) / packets
    return MachineTimes(_spread(hops), _spread(warm), _spread(late), work_us)


def _spread(times_us: list[float]) -> list[float]:
    """Return quantiles at equal distances, in ascending order."""
    return statistics.quantiles(times_us, n=2 * _PARTS, method="inclusive")[::2]


def _answer(member: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    try:
        out, err = member.communicate(timeout=_PATIENCE_S + 2 * seconds)
    except subprocess.TimeoutExpired:
        raise AntiphonError(
            "members on this machine did not find each other, so its times cannot be measured"
        ) from None
    if member.returncode:
        raise AntiphonError(f"a member that measures this machine failed: {(err.strip().splitlines() or ['?'])[-1]}")
    said: dict[str, Any] = json.loads(out)
    return said


def _free_addresses(count: int) -> list[str]:
    """Find UDP ports of the loopback address that nobody uses now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _measure(about: dict[str, Any]) -> dict[str, Any]:
    """Be one of the group."""
    key = None if about["key"] is None else bytes.fromhex(about["key"])
    hops_us: list[float] = []
    warm_us: list[float] = []
    late_us: list[float] = []
    async with join(
        "reference",
        ordering="fifo",
        bind=about["bind"],
        peers=about["peers"],
        key=key,
        state=about["state"],
        leave_s=1.0,
    ) as group:

        async def listen() -> None:
            async for event in group:
                if isinstance(event, Message) and event.sender != about["bind"]:
                    sent_at, follows = _STAMP.unpack_from(event.payload)
                    (warm_us if follows else hops_us).append((time.monotonic_ns() - sent_at) / 1000)

        async def send(seconds: float, *, pairs: bool = False) -> None:
            due = time.monotonic()
            until = due + seconds
            while (due := due + random.uniform(0.5, 1.5) / about["rate_per_s"]) < until:
                await asyncio.sleep(due - time.monotonic())
                await group.send(_STAMP.pack(time.monotonic_ns(), False).ljust(64, b"."))
                if pairs:
                    await asyncio.sleep(_MOMENT_S)
                    await group.send(_STAMP.pack(time.monotonic_ns(), True).ljust(64, b"."))

        async def time_timers() -> None:
            while True:
                due = time.monotonic() + random.uniform(1, 3) * _TIMER_S
                await asyncio.sleep(due - time.monotonic())
                late_us.append(1e6 * (time.monotonic() - due))

        listening = asyncio.create_task(listen())
        while len(group.status().members) < 1 + len(about["peers"]):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)  # until all have heard that they are all there
        cpu_s, packets = _cpu_s(), _packets(group.status().counts)
        await send(about["seconds"])
        cpu_s, packets = _cpu_s() - cpu_s, _packets(group.status().counts) - packets
        timing = asyncio.create_task(time_timers())
        await send(about["seconds"] / 2, pairs=True)
        timing.cancel()
        await group.stop()
        await listening
    return {"hops_us": hops_us, "warm_us": warm_us, "late_us": late_us, "cpu_s": cpu_s, "packets": packets}


def _packets(counts: dict[str, int]) -> int:
    return counts["packets-sent"] + counts["packets-received"]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(json.loads(sys.argv[1])))))
