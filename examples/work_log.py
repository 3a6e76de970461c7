"""A work log on safe delivery: a job is begun only when every member holds its entry, so no crash can lose it.

    python examples/work_log.py

lets three workers share out jobs: all see the same log in the same order, so that they need not talk about who does
what: the n-th job is done by the n-th worker in turn.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import antiphon

ADDRESSES = [f"127.0.0.1:{port}" for port in range(7321, 7324)]
JOBS = 12


async def work(group: antiphon.Group, done: list[str]) -> None:
    """Read the log; do every job whose turn is ours."""
    members: tuple[str, ...] = ()
    entries = 0
    async for event in group:
        match event:
            case antiphon.ViewChange():
                members = event.members
            case antiphon.Message():
                worker = members[entries % len(members)]
                entries += 1
                if worker == group.status().me:
                    done.append(event.payload.decode())


async def main(addresses: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        groups = [
            antiphon.join(
                "work-log",
                bind=own,
                peers=[peer for peer in addresses if peer != own],
                ordering="total",
                safe=True,
                state=Path(folder),
            )
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        done: list[list[str]] = [[] for _ in groups]
        working = [asyncio.create_task(work(group, done[index])) for index, group in enumerate(groups)]
        while any(len(group.status().members) < len(groups) for group in groups):
            await asyncio.sleep(0.01)  # the turns are clear once all are there
        await groups[0].send_many(f"job {number}".encode() for number in range(JOBS))
        while sum(map(len, done)) < JOBS:
            await asyncio.sleep(0.01)
        print(f"{sum(map(len, done))} jobs done, each once")
        for own, jobs in zip(addresses, done, strict=True):
            print(f"  {own}: {', '.join(jobs)}")
        for group in groups:
            await group.leave()
        await asyncio.gather(*working)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ADDRESSES))
