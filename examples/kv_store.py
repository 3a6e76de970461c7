"""A replicated key-value store on total order: every replica applies the same commands in the same order.

    python examples/kv_store.py

starts three replicas in one process, writes at all of them at once, starts a fourth late, which is given the state,
and shows that all four end up equal.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import antiphon

ADDRESSES = [f"127.0.0.1:{port}" for port in range(7301, 7305)]


class Store:
    """One replica."""

    def __init__(self, address: str, addresses: list[str], state: Path) -> None:
        self.data: dict[str, str] = {}
        self._group = antiphon.join(
            "kv-store",
            bind=address,
            peers=[peer for peer in addresses if peer != address],
            ordering="total",
            state=state,
            snapshot=lambda: json.dumps(self.data).encode(),
            restore=self._restore,
        )

    async def __aenter__(self) -> Store:
        await self._group.__aenter__()
        self._applying = asyncio.create_task(self._apply())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._group.leave()
        await self._applying

    def _restore(self, state: bytes) -> None:
        self.data = json.loads(state)

    async def _apply(self) -> None:
        async for event in self._group:
            if isinstance(event, antiphon.Message):
                key, value = json.loads(event.payload)
                self.data[key] = value

    async def put(self, key: str, value: str) -> None:
        """Write; when this returns every replica holds the command, and this one has applied it."""
        receipt = await self._group.send(json.dumps([key, value]).encode())
        await receipt.delivered()
        await receipt.stable()


async def main(addresses: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        replicas = [Store(address, addresses, Path(folder)) for address in addresses]
        await asyncio.gather(*(replica.__aenter__() for replica in replicas[:3]))
        await asyncio.gather(
            *(
                replica.put(f"key {number}", f"written by replica {index}")
                for index, replica in enumerate(replicas[:3])
                for number in range(10)
            )
        )
        await replicas[3].__aenter__()
        await replicas[3].put("late", "but here")
        while not all(replica.data == replicas[0].data for replica in replicas) or "late" not in replicas[0].data:
            await asyncio.sleep(0.01)
        print(f"{len(replicas)} replicas agree on {len(replicas[0].data)} keys")
        for key, value in sorted(replicas[0].data.items())[:3]:
            print(f"  {key}: {value}")
        for replica in replicas:
            await replica.__aexit__()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ADDRESSES))
