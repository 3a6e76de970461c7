"""One application, over loopback UDP and in a simulated world: the same code, the same outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path

import antiphon
from antiphon import testing
from support.live_group import collect, free_addresses


async def application(addresses: list[str], state: Path) -> list[list[bytes]]:
    """Let three members send, one of them in large parts, and give what each delivered."""
    groups = [
        antiphon.join("both", bind=own, peers=[peer for peer in addresses if peer != own], state=state)
        for own in addresses
    ]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    while any(len(group.status().members) < 3 for group in groups):
        await asyncio.sleep(0.01)
    await groups[0].send_many(b"%d" % number for number in range(50))
    await groups[1].send(b"x" * 200_000)
    receipt = await groups[2].send(b"last")
    streams = await asyncio.gather(*(collect(group, 52) for group in groups))
    await receipt.stable()
    await asyncio.gather(*(group.leave() for group in groups))
    return [[message.payload for message in stream] for stream in streams]


def test_live_and_simulated(tmp_path: Path) -> None:
    live = asyncio.run(application(free_addresses(3), tmp_path))
    simulated = testing.run(application(["a:1", "b:1", "c:1"], tmp_path / "none"), seed=1, loss=0.05)
    assert not (tmp_path / "none").exists(), "a simulated disk is in memory"
    for streams in (live, simulated):
        assert streams[0] == streams[1] == streams[2]
    assert sorted(live[0]) == sorted(simulated[0])
