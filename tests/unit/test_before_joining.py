"""A group that is still looked for, or waited for, answers every public call, and says whom it does not hear."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

import antiphon
from antiphon import testing

WAYS: Final[list[dict[str, Any]]] = [
    {"peers": ["10.0.0.2:7000", "10.0.0.3:7000"]},
    {"discover": "peers", "members": 3, "peers": ["10.0.0.2:7000"]},
    {"discover": "239.1.2.3:7100", "members": 3},
    {"discover": "dns:nobody.example", "members": 3},
]


def entering(**settings: Any) -> tuple[antiphon.Group, asyncio.Task[None]]:
    """Begin to join a group in which nobody else is."""
    group = antiphon.join("test", bind="10.0.0.1:7000", **settings)

    async def enter() -> None:
        async with group:
            await asyncio.sleep(3_600)

    return group, asyncio.create_task(enter())


@pytest.mark.parametrize("way", WAYS, ids=["listed", "peers", "multicast", "dns"])
@pytest.mark.parametrize("waited_s", [0, 2])
def test_one_that_waits_for_its_group_says_so(way: dict[str, Any], waited_s: float) -> None:
    async def main() -> None:
        group, task = entering(**way)
        await asyncio.sleep(waited_s)
        status = group.status()
        assert (status.standing, status.me, status.view, status.members) == ("joining", "10.0.0.1:7000", 0, ())
        if waited_s and way.get("peers"):
            assert ("10.0.0.2:7000", "10.0.0.1:7000") in status.links
        task.cancel()
        await asyncio.wait([task])

    testing.run(main)


@pytest.mark.parametrize("way", WAYS, ids=["listed", "peers", "multicast", "dns"])
@pytest.mark.parametrize("waited_s", [0, 2])
def test_leaving_ends_the_search_and_what_was_to_be_sent(way: dict[str, Any], waited_s: float) -> None:
    async def main() -> None:
        group, task = entering(**way, leave_s=0.5)
        await asyncio.sleep(waited_s)
        receipt = await group.send(b"to nobody")
        await group.leave()
        with pytest.raises(antiphon.GroupClosed, match="was left"):
            await asyncio.wait_for(task, 1)
        with pytest.raises(antiphon.Lost, match="never sent"):
            await asyncio.wait_for(receipt.delivered(), 1)
        assert group.status().standing == "left"
        with pytest.raises(antiphon.GroupClosed):
            await group.send(b"too late")
        async with antiphon.join("test", bind="10.0.0.1:7000"):
            pass  # the address was given back

    testing.run(main, unexamined=["validity", "agreement", "total", "causal", "fifo", "view-synchrony", "stability"])


def test_one_that_is_let_in_while_it_leaves_sends_what_it_was_to_and_is_out() -> None:
    """It was once let in, and its application found itself in a group that it had left."""

    async def main() -> None:
        group, task = entering(peers=["10.0.0.2:7000"])
        await asyncio.sleep(0.1)
        receipt = await group.send(b"before I go")
        leaving = asyncio.create_task(group.leave())
        async with antiphon.join("test", bind="10.0.0.2:7000", peers=["10.0.0.1:7000"]):
            with pytest.raises(antiphon.GroupClosed, match="was left"):
                await asyncio.wait_for(task, 3)
            assert leaving.done()
            assert receipt.outcome in ("delivered", "stable")

    testing.run(main, unexamined=["validity", "agreement"])


@pytest.mark.parametrize("way", WAYS[:3], ids=["listed", "peers", "multicast"])
def test_keys_are_changed_while_the_others_are_looked_for(way: dict[str, Any]) -> None:
    old, new = b"o" * 16, b"n" * 16

    async def main() -> None:
        group, task = entering(**way, key=old)
        await asyncio.sleep(1)
        group.set_keys(new)
        others = {"10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000"}
        known = {**way, "peers": sorted(others - {"10.0.0.2:7000"})} if way.get("peers") else way
        async with antiphon.join("test", bind="10.0.0.2:7000", key=new, **known) as other:
            assert len(other.status().members) == 2
            await (await other.send(b"heard")).stable()
        task.cancel()
        await asyncio.wait([task])

    testing.run(main, unexamined=["validity", "agreement", "total"])


def test_without_a_key_none_can_be_changed() -> None:
    async def main() -> None:
        group, task = entering(**WAYS[1])
        await asyncio.sleep(0)
        with pytest.raises(antiphon.UsageError, match="joined without a key"):
            group.set_keys(b"n" * 16)
        task.cancel()
        await asyncio.wait([task])

    testing.run(main)


@pytest.mark.parametrize("key", [None, b"k" * 16], ids=["plain", "sealed"])
def test_one_who_has_found_the_group_is_no_stranger_to_those_who_still_look(key: bytes | None) -> None:
    """Its packets were once counted as `refused-no-packet`, with a warning, in every start by `discover`."""
    counts: list[dict[str, int]] = []

    async def main(world: testing.World) -> None:
        addresses = world.addresses(4)

        async def member(own: str) -> None:
            others = [address for address in addresses if address != own]
            async with antiphon.join("test", bind=own, peers=others, discover="peers", members=4, key=key) as group:
                await asyncio.sleep(3)
                counts.append(group.status().counts)
                await asyncio.sleep(1)

        for own in addresses:
            world.spawn(own, member, own)
        await asyncio.sleep(10)

    testing.run(main, seed=3, unexamined=["validity", "agreement", "total", "integrity", "fifo", "causal"])
    assert len(counts) == 4
    assert not any("refused-no-packet" in one for one in counts)
