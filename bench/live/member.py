"""One member of the live benchmark: floods, or sends at a rate, and says what it delivered and what CPU that took."""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import antiphon

_STAMP = struct.Struct("<q")


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sleeps() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


async def flood(group: antiphon.Group, payload: bytes, until: float) -> int:
    sent = 0
    while time.monotonic() < until:
        for _ in range(256):
            await group.send(payload)
        sent += 256
    return sent


async def pace(group: antiphon.Group, size: int, rate: int, until: float) -> int:
    sent, began = 0, time.monotonic()
    while (now := time.monotonic()) < until:
        while sent < (now - began) * rate:
            await group.send(_STAMP.pack(time.monotonic_ns()).ljust(size, b"."))
            sent += 1
        await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))
    return sent


class Listener:
    """Counts what comes, and notes how long it took."""

    def __init__(self) -> None:
        self.delivered = 0
        self.latencies_ns: list[int] = []
        self.timed = False

    async def messages(self, group: antiphon.Group) -> None:
        async for event in group:
            if isinstance(event, antiphon.Message):
                self.delivered += 1
                if self.timed:
                    self.latencies_ns.append(time.monotonic_ns() - _STAMP.unpack_from(event.payload)[0])


async def main() -> None:
    about: dict[str, Any] = json.loads(sys.argv[1])
    listener = Listener()
    listener.timed = about["timed"]
    with tempfile.TemporaryDirectory() as state:
        async with antiphon.join(
            "bench",
            bind=about["bind"],
            peers=about["peers"],
            ordering=about["ordering"],
            key=bytes.fromhex(about["key"]) if about["key"] else None,
            views=about["views"],
            offload=about["offload"],
            multicast=about.get("multicast"),
            ttl=0,
            state=Path(state),
            leave_s=1.0,
        ) as group:
            listening = asyncio.create_task(listener.messages(group))
            print("ready", flush=True)
            start = float(await asyncio.to_thread(sys.stdin.readline))
            await asyncio.sleep(max(0.0, start - time.monotonic()))
            cpu, delivered, slept, before = cpu_s(), listener.delivered, sleeps(), group.status().counts
            until = start + about["seconds"]
            if about["rate"]:
                sent = await pace(group, about["size"], about["rate"], until)
            else:
                sent = await flood(group, b"x" * about["size"], until)
            said = {
                "cpu_s": cpu_s() - cpu,
                "sleeps": sleeps() - slept,
                "packets": group.status().counts["packets-sent"] - before["packets-sent"],
                "delivered": listener.delivered - delivered,
                "sent": sent,
                "latencies_us": [latency // 1_000 for latency in listener.latencies_ns[:: max(1, about["thin"])]],
                "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "counts": group.status().counts,
                "burst_bytes": group.status().burst_bytes,
            }
            print(json.dumps(said), flush=True)
            await asyncio.to_thread(sys.stdin.readline)  # until all are done
            await group.stop()
        await asyncio.gather(listening, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
