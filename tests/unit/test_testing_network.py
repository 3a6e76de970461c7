"""The simulated network, disk and clocks of `antiphon.testing`, under the transport and discovery that run live."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.errors import UsageError
from antiphon.testing import World

KEY = bytes(range(16))


async def delivers(group: antiphon.Group, count: int) -> list[bytes]:
    got: list[bytes] = []
    async for event in group:
        if isinstance(event, antiphon.Message):
            got.append(event.payload)
            if len(got) == count:
                break
    return got


def members(world: World, count: int, **settings: Any) -> list[antiphon.Group]:
    addresses = world.addresses(count)
    return [
        antiphon.join("test", bind=own, peers=[peer for peer in addresses if peer != own], **settings)
        for own in addresses
    ]


async def enter(groups: list[antiphon.Group]) -> None:
    await asyncio.gather(*(group.__aenter__() for group in groups))
    while any(len(group.status().members) < len(groups) for group in groups):
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("discover", ["239.1.2.3:7100", "peers"])
def test_members_discover_each_other(discover: str, key: bytes | None) -> None:
    async def main(world: World) -> None:
        addresses = world.addresses(3)
        peers = [addresses[1], addresses[2], addresses[0]] if discover == "peers" else None
        groups = [
            antiphon.join("test", bind=own, discover=discover, peers=[peers[index]] if peers else (), key=key)
            for index, own in enumerate(addresses)
        ]
        await enter(groups)
        await groups[0].send(b"found")
        assert await asyncio.gather(*(delivers(group, 1) for group in groups)) == [[b"found"]] * 3

    testing.run(main)


def test_a_free_port_outside_any_process_belongs_to_its_machine() -> None:
    """Discovery speaks from a port of its own, and is cut off with the member's address."""

    async def main(world: World) -> None:
        addresses = world.addresses(2)
        world.partition(addresses[:1], addresses[1:])
        groups = [antiphon.join("test", bind=own, discover="239.1.2.3:7100") for own in addresses]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        await asyncio.sleep(3)
        assert [len(group.status().members) for group in groups] == [1, 1]

    testing.run(main)


def test_an_address_is_taken_once() -> None:
    async def main(world: World) -> None:
        async with antiphon.join("test", bind="10.0.0.1:7000", views=False):
            with pytest.raises(UsageError, match="in use"):
                await antiphon.join("other", bind="10.0.0.1:7000", views=False).__aenter__()

    testing.run(main)


def test_one_direction_of_one_link_is_slow_and_lossy() -> None:
    async def main(world: World) -> None:
        a, b = groups = members(world, 2, ordering="fifo")
        one, other = world.addresses(2)
        await enter(groups)
        world.link([one], [other], latency="fixed 100ms", loss=0.2)
        began = world.now
        await a.send(b"slow")
        assert await delivers(b, 1) == [b"slow"]
        assert world.now - began > 0.1
        began = world.now
        await b.send(b"quick")
        while a.status().delivered < 2:
            await asyncio.sleep(0.001)
        assert world.now - began < 0.05

    testing.run(main, latency="fixed 1ms")


@pytest.mark.parametrize("offload", [False, True])
def test_a_narrow_link_refuses_and_the_group_finds_out(offload: bool) -> None:
    async def main(world: World) -> None:
        world.network.offload = offload
        one, other = world.addresses(2)
        a, b = groups = members(world, 2)
        await enter(groups)
        for mtu in (1_500, 1_280):
            world.link([one], [other], mtu=mtu)
            for group in groups:
                await group.send(bytes(5_000))
            assert await delivers(b, 2) == [bytes(5_000)] * 2
            await asyncio.sleep(1)
        assert a.status().counts["packets-too-large"] > 0
        assert b.status().counts.get("packets-too-large", 0) == 0, "in one direction only"

    testing.run(main, unexamined=["validity"])


@pytest.mark.parametrize("fragments", [True, False])
def test_a_narrow_link_fragments_or_swallows(fragments: bool) -> None:
    """What does not ask the kernel to refuse, as the packets of a group do, is fragmented, or lost on the way."""

    async def main(world: World) -> None:
        world.network.fragments = fragments
        sockets = [world.network.socket(socket.AF_INET) for _ in range(2)]
        addresses = [("10.0.0.1", 7000), ("10.0.0.2", 7000)]
        for one, address in zip(sockets, addresses, strict=True):
            one.bind(address)
        fault = world.link(["10.0.0.1:7000"], ["10.0.0.2:7000"], mtu=1_280)
        sockets[0].sendto(bytes(1_300), addresses[1])
        await asyncio.sleep(1)
        assert (world.network_counts.get("too-large", 0) == 0) == fragments
        assert _received(sockets[1]) == [1_300] * fragments
        fault.heal()
        sockets[0].sendto(bytes(1_300), addresses[1])
        await asyncio.sleep(1)
        assert _received(sockets[1]) == [1_300]

    testing.run(main)


def _received(one: Any) -> list[int]:
    sizes: list[int] = []
    while True:
        try:
            sizes.append(len(one.recv(2_000)))
        except BlockingIOError:
            return sizes


def test_packets_are_recorded_and_replayed() -> None:
    async def main(world: World) -> None:
        world.network.recorded = deque(maxlen=100)
        a, b = groups = members(world, 2, key=KEY)
        await enter(groups)
        await a.send(b"once")
        await delivers(b, 1)
        for packet in list(world.network.recorded):
            world.network.inject(packet, packet.source, packet.target)
        world.network.inject(b"forged", ("10.0.0.1", 7000), ("10.0.0.2", 7000))
        await asyncio.sleep(0.5)
        assert b.status().delivered == 1
        assert b.status().counts["refused-replayed"] > 0
        assert b.status().counts["refused-no-packet"] == 1

    testing.run(main)


def test_a_process_finds_what_came_while_it_stood_still() -> None:
    async def replica(own: str, peers: list[str], got: list[bytes]) -> None:
        async with antiphon.join("test", bind=own, peers=peers, ordering="fifo") as group:
            if own.startswith("10.0.0.1"):
                await group.send(b"while it stands still")
            got += await delivers(group, 1)
            await asyncio.sleep(5)

    async def main(world: World) -> None:
        addresses = world.addresses(2)
        logs: dict[str, list[bytes]] = {own: [] for own in addresses}
        for own in addresses:
            world.spawn(own, replica, own, [peer for peer in addresses if peer != own], logs[own])
        world.at("0.2s", world.pause, addresses[1])
        world.at("0.4s", world.resume, addresses[1])
        await asyncio.sleep(2)
        assert logs[addresses[1]] == [b"while it stands still"]

    testing.run(main)


def test_the_wall_clock_of_one_process_is_set() -> None:
    async def tell(told: list[float]) -> None:
        for _ in range(3):
            told.append(time.time())
            await asyncio.sleep(1)

    async def main(world: World) -> None:
        told: dict[str, list[float]] = {"a": [], "b": []}
        for name in told:
            world.spawn(name, tell, told[name])
        world.at("500ms", world.step_clock, "a", "3600s")
        world.at("1500ms", world.step_clock, "a", "-60s")
        await asyncio.sleep(4)
        assert [later - told["a"][0] for later in told["a"][1:]] == [3601, 3542]
        assert [later - told["b"][0] for later in told["b"][1:]] == [1, 2]

    testing.run(main)


def test_a_disk_fails_forgets_and_goes_back() -> None:
    with testing.simulated() as world:
        folder, path = Path("/state"), Path("/state/one")
        world.disk.write(path, b"first")
        copy = world.disk.files(folder)
        world.disk.write(path, b"second")
        assert world.disk.read(path) == b"second"
        world.disk.replace(folder, copy)
        assert world.disk.read(path) == b"first"
        world.disk.replace(folder, {})
        with pytest.raises(FileNotFoundError):
            world.disk.read(path)
        world.disk.fails = lambda path: 28
        with pytest.raises(OSError, match="No space"):
            world.disk.write(path, b"third")
