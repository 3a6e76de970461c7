"""One live member of the bench of advice: sends at a rate, and says what it saw, what it sent and what that took."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import socket
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any

import antiphon
from antiphon.live.host import ThisHost

_STAMP = struct.Struct("<q")
_STABLE_S = 5.0  # how long to wait for what was sent last to become stable


class SlowSocket(socket.socket):
    """A UDP socket that counts what it sends, and holds packets up as long as the network in question would."""

    low_s = high_s = 0.0
    sent_bytes = 0
    chance = random.Random(1)

    def sendto(self, packet: bytes, to: Any) -> int:  # type: ignore[override]
        cls = SlowSocket
        cls.sent_bytes += len(packet)
        if not cls.high_s:
            return super().sendto(packet, to)
        asyncio.get_running_loop().call_later(cls.chance.uniform(cls.low_s, cls.high_s), self._leave, packet, to)
        return len(packet)

    def sendmsg(self, buffers: Iterable[bytes], *rest: Any) -> int:  # type: ignore[override]
        SlowSocket.sent_bytes += sum(map(len, buffers))
        return super().sendmsg(buffers, *rest)

    def _leave(self, packet: bytes, to: Any) -> None:
        if self.fileno() >= 0:
            with contextlib.suppress(OSError):  # lost
                super().sendto(packet, to)


class SlowHost(ThisHost):
    """This machine with a slow network."""

    def socket(self, family: int) -> socket.socket:
        return SlowSocket(family, socket.SOCK_DGRAM)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def run(about: dict[str, Any]) -> dict[str, Any]:
    """Take part, and measure from the moment at which all are told to begin."""
    asyncio.get_running_loop().antiphon_host = SlowHost()  # type: ignore[attr-defined]
    SlowSocket.low_s, SlowSocket.high_s = about["latency_s"]
    delivered_ms: list[float] = []
    stable_ms: list[float] = []
    waiting: list[asyncio.Task[None]] = []
    async with antiphon.join(
        "advice",
        bind=about["bind"],
        peers=about["peers"],
        key=bytes.fromhex(about["key"]) if about["key"] else None,
        offload=False if SlowSocket.high_s else None,
        state=about["state"],
        leave_s=1.0,
        **about["composition"],
    ) as group:

        async def listen() -> None:
            async for event in group:
                if isinstance(event, antiphon.Message) and event.sender != about["bind"]:
                    delivered_ms.append((time.monotonic_ns() - _STAMP.unpack_from(event.payload)[0]) / 1e6)  # noqa: PERF401

        async def until_stable(receipt: antiphon.Receipt, began: int) -> None:
            await receipt.stable()
            stable_ms.append((time.monotonic_ns() - began) / 1e6)

        listening = asyncio.create_task(listen())
        while len(group.status().members) < 1 + len(about["peers"]):
            await asyncio.sleep(0.02)
        print("ready", flush=True)
        due = float(await asyncio.to_thread(sys.stdin.readline))
        await asyncio.sleep(due - time.monotonic())
        until, sent, cpu_s = due + about["seconds"], SlowSocket.sent_bytes, _cpu_s()
        while (due := due + random.uniform(0.5, 1.5) / about["rate_per_s"]) < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic_ns()
            receipt = await group.send(_STAMP.pack(began).ljust(about["payload"], b"."))
            waiting.append(asyncio.create_task(until_stable(receipt, began)))
        await asyncio.sleep(max(0.0, until - time.monotonic()))
        sent, cpu_s = SlowSocket.sent_bytes - sent, _cpu_s() - cpu_s
        await asyncio.wait(waiting, timeout=_STABLE_S)
        await asyncio.to_thread(sys.stdin.readline)  # until all are done
        await group.stop()
        await listening
    return {"delivered_ms": delivered_ms, "stable_ms": stable_ms, "bytes": sent, "cpu_s": cpu_s}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))), flush=True)
