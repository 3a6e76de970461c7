"""A group under attack: python -m bench.live.attack [--packets 1000000]

Random, mutated, replayed and forged packets from a stranger's socket, while three encrypted members work. Says what
was refused and why, whether anything was answered, how the memory grew, and that the group kept delivering.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import socket
import tempfile
import time
from pathlib import Path

import antiphon
from antiphon.live.session import SealedSession
from bench.live.addresses import free_addresses

_AT_ONCE = 50


def packets_of(recorded: list[bytes], rng: random.Random, stranger: SealedSession) -> bytes:
    """Make one packet of an attacker who hears everything and has no key."""
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.randrange(1_400))
        case 1:
            mutated = bytearray(rng.choice(recorded))
            mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
            return bytes(mutated[: rng.randrange(1, len(mutated) + 1)])
        case 2:
            return rng.choice(recorded)
        case _:
            return stranger.seal(rng.randbytes(rng.randrange(1, 1_000)))


async def work(groups: list[antiphon.Group], done: asyncio.Event) -> int:
    """Let every member send a little all the time; give how many messages everyone delivered."""
    counts = [0] * len(groups)

    async def listen(index: int) -> None:
        async for event in groups[index]:
            counts[index] += isinstance(event, antiphon.Message)

    listening = [asyncio.create_task(listen(index)) for index in range(len(groups))]
    sent = 0
    while not done.is_set():
        receipts = [await group.send(b"work %d" % sent) for group in groups]
        for receipt in receipts:
            await receipt.stable()
        sent += len(groups)
        await asyncio.sleep(0.01)
    while min(counts) < sent:
        await asyncio.sleep(0.01)
    for task in listening:
        task.cancel()
    assert set(counts) == {sent}, counts
    return sent


async def attack(packets: int, seed: int) -> dict[str, object]:
    addresses, key = sorted(free_addresses(3)), os.urandom(16)
    rng, recorded = random.Random(seed), []
    with tempfile.TemporaryDirectory() as state, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        groups = [
            antiphon.join("attacked", bind=own, peers=[p for p in addresses if p != own], key=key, state=Path(state))
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        groups[0].transport.lose = lambda packet: len(recorded) < 500 and recorded.append(packet)  # type: ignore[func-returns-value]
        done = asyncio.Event()
        working = asyncio.create_task(work(groups, done))
        await asyncio.sleep(1)
        one.setblocking(False)
        host, port = addresses[0].rsplit(":", 1)
        stranger = SealedSession("attacked", 1, [os.urandom(16)])
        before_kib, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        for start in range(0, packets, _AT_ONCE):
            for _ in range(min(_AT_ONCE, packets - start)):
                one.sendto(packets_of(recorded, rng, stranger), (host, int(port)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)
        took_s = time.monotonic() - began
        try:
            answered = len(one.recv(65_535)) > 0
        except BlockingIOError:
            answered = False
        done.set()
        delivered = await working
        counts = groups[0].status().counts
        result = {
            "packets": packets,
            "seconds": round(took_s, 1),
            "refused": {name: count for name, count in counts.items() if name.startswith("refused-")},
            "answered": answered,
            "broken": counts["broken-bursts"] + counts["broken-datagrams"],
            "delivered_meanwhile": delivered,
            "grew_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib,
            "views": counts["views"],
        }
        await asyncio.gather(*(group.stop() for group in groups))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(attack(args.packets, args.seed)), indent=1))
