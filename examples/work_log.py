"""A work log on safe delivery: a job is begun only when every member holds its entry, so no crash can lose it.

    python examples/work_log.py

lets three workers share out jobs: all see the same log in the same order, so that they need not talk about who does
what. The n-th job is the n-th worker's in turn; the jobs of one who is gone go to the next in turn, and who joins is
given the list of what is open. A job whose worker crashes before it could say that it is done is done again.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import antiphon

ADDRESSES = [f"127.0.0.1:{port}" for port in range(7321, 7324)]
JOBS = 12


class Worker:
    """One worker: the log as far as it has read it, and what it did itself."""

    def __init__(self, address: str, addresses: list[str], state: Path | None = None) -> None:
        self.address, self.did = address, list[str]()
        self.open: dict[str, str] = {}  # jobs that are not done, and whose they are
        self._begun: set[str] = set()
        self._turn, self._members = 0, tuple[str, ...]()
        self.group = antiphon.join(
            "work-log",
            bind=address,
            peers=[peer for peer in addresses if peer != address],
            ordering="total",
            safe=True,
            state=state,
            snapshot=lambda: json.dumps([self.open, self._turn]).encode(),
            restore=self._restore,
        )

    def _restore(self, state: bytes) -> None:
        self.open, self._turn = json.loads(state)
        self._begun.clear()  # nobody knows whether the others heard what was said before

    def _assign(self, job: str) -> None:
        self.open[job] = self._members[self._turn % len(self._members)]
        self._turn += 1

    async def work(self) -> None:
        """Read the log; do every job that is ours."""
        async for event in self.group:
            match event:
                case antiphon.ViewChange(members=members):
                    self._members = members
                    for job in [job for job, worker in self.open.items() if worker not in members]:
                        self._assign(job)
                case antiphon.Message(payload=payload):
                    what, job = json.loads(payload)
                    if what == "todo":
                        self._assign(job)
                    else:
                        self.open.pop(job, None)
            try:
                await self._do_own()
            except antiphon.GroupClosed:
                return  # others will do it

    async def _do_own(self) -> None:
        for job, worker in list(self.open.items()):
            if worker == self.address and job not in self._begun:
                self._begun.add(job)
                self.did.append(job)
                await self.group.send(json.dumps(["done", job]).encode())

    async def put(self, jobs: list[str]) -> None:
        """Enter jobs into the log, and wait until nothing can lose them."""
        receipt = await self.group.send_many(json.dumps(["todo", job]).encode() for job in jobs)
        await receipt.stable()


async def main(addresses: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workers = [Worker(own, addresses, Path(folder)) for own in addresses]
        await asyncio.gather(*(worker.group.__aenter__() for worker in workers))
        working = [asyncio.create_task(worker.work()) for worker in workers]
        while any(len(worker.group.status().members) < len(workers) for worker in workers):
            await asyncio.sleep(0.01)  # so that all get a share
        await workers[0].put([f"job {number}" for number in range(JOBS)])
        while any(worker.open for worker in workers) or sum(len(worker.did) for worker in workers) < JOBS:
            await asyncio.sleep(0.01)
        print(f"{sum(len(worker.did) for worker in workers)} jobs done, each once")
        for worker in workers:
            print(f"  {worker.address}: {', '.join(worker.did)}")
        for worker in workers:
            await worker.group.leave()
        await asyncio.gather(*working)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ADDRESSES))
