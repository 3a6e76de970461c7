"""Members that know nothing but a multicast address and the key find each other, and are one group."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.errors import UsageError
from antiphon.live.addresses import number_of
from antiphon.live.freshness import Stamp
from antiphon.live.hello import Contact, Founding, Hello, Seal
from antiphon.live.session import Refused
from support.live_group import collect, free_addresses, run

KEY = os.urandom(16)


def somewhere() -> str:
    """Make up a multicast address that no other test uses now."""
    return f"239.77.{random.randrange(256)}.{random.randrange(1, 255)}:{random.randrange(20_000, 60_000)}"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def are_one(groups: list[antiphon.Group]) -> None:
    """Wait until all are in one view of just these, and see that each hears each."""
    everyone = {group.status().me for group in groups}
    await until(lambda: all(set(group.status().members) == everyone for group in groups))
    before = [group.status().view for group in groups]
    assert len(set(before)) == 1
    for group in groups:
        await group.send(group.status().me.encode())
    for group in groups:
        assert {message.payload.decode() for message in await collect(group, len(groups))} == everyone


def joined(own: str, where: str, folder: Path, **settings: Any) -> antiphon.Group:
    return antiphon.join("test", bind=own, discover=where, **{"key": KEY, "state": folder, "leave_s": 1.0, **settings})


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "sealed"])
def test_concurrent_starts_end_in_one_group(key: bytes | None, tmp_path: Path) -> None:
    async def test() -> None:
        where = somewhere()
        groups = [joined(own, where, tmp_path, key=key) for own in free_addresses(5)]

        async def start(index: int, group: antiphon.Group) -> None:
            await asyncio.sleep(0.3 * index)  # some within the time that the first looks, some after
            await group.__aenter__()

        await asyncio.gather(*(start(index, group) for index, group in enumerate(groups)))
        await are_one(groups)
        assert not any(group.discovered["other-group"] for group in groups)
        await asyncio.gather(*(group.leave() for group in groups))

    run(test())


def test_one_that_comes_late_or_again_is_found_by_those_who_remain(tmp_path: Path) -> None:
    async def test() -> None:
        where, addresses = somewhere(), sorted(free_addresses(4))
        first, second, late, later = (joined(own, where, tmp_path) for own in addresses)
        await asyncio.gather(first.__aenter__(), second.__aenter__())
        async with late:
            await are_one([first, second, late])
            await first.stop()
            await until(lambda: len(late.status().members) == 2)
            again = joined(addresses[0], where, tmp_path)
            async with again:
                await until(lambda: len(late.status().members) == 3)
                await asyncio.gather(again.leave(), second.leave())
            await until(lambda: len(late.status().members) == 1)
            async with later:  # none of the founders is there any more
                await until(lambda: len(late.status().members) == 2)
                receipt = await later.send(b"found you")
                await receipt.stable()

    run(test())


def test_lists_of_peers_may_differ_as_long_as_they_connect(tmp_path: Path) -> None:
    async def test() -> None:
        one, two, three, four = free_addresses(4)
        lists = {one: [two], two: [], three: [two, three], four: [three]}
        groups = [
            antiphon.join("test", bind=own, peers=peers, discover="peers", key=KEY, state=tmp_path, leave_s=1.0)
            for own, peers in lists.items()
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        await are_one(groups)
        with pytest.raises(UsageError, match=f"bind: {two} is in use"):
            async with antiphon.join("test", bind=two, peers=[one], discover="peers", key=KEY, state=tmp_path):
                pass
        await asyncio.gather(*(group.leave() for group in groups))

    run(test())


def test_who_has_another_key_is_not_found_and_not_answered(tmp_path: Path) -> None:
    async def test() -> None:
        where, (one, other) = somewhere(), free_addresses(2)
        async with joined(one, where, tmp_path) as group, joined(other, where, tmp_path, key=os.urandom(16)) as alone:
            assert group.status().members == (one,)
            assert alone.status().members == (other,)
            assert group.discovered["refused-forged"] > 0

    run(test())


def test_hellos_are_proven() -> None:
    seal = Seal("test", [KEY])
    own = Contact("127.0.0.1:7001", "127.0.0.1:7001")
    hello = Hello(Stamp(1, 1, 7), own, True, Founding((own.name,), 1))
    packet = seal.seal(hello)
    assert seal.open(packet) == hello
    rng = random.Random(1)
    for _ in range(2_000):
        mutated = bytearray(packet)
        mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
        with pytest.raises(Refused):
            seal.open(bytes(mutated[: rng.randrange(1, len(mutated) + 1)]))
    with pytest.raises(Refused, match="forged"):
        Seal("another group", [KEY]).open(packet)
    with pytest.raises(Refused, match="other-group"):
        Seal("test", None).open(Seal("another group", None).seal(hello))


def test_names_of_neighbours_differ() -> None:
    hosts = {number_of(f"10.1.{high}.{low}:7001") for high in range(16) for low in range(256)}
    ports = {number_of(f"10.1.0.1:{port}") for port in range(7_000, 17_000)}
    pods = {number_of(f"orders-{ordinal}") for ordinal in range(1_000)}
    assert len(hosts) == 16 * 256
    assert len(ports) == 10_000
    assert len(pods) == 1_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"discover": "nowhere"}, "discover: 'nowhere' is no address"),
        ({"discover": "dns:"}, "discover: 'dns:' names no host; write dns:name"),
        ({"discover": "dns::7001"}, "discover: 'dns::7001' names no host"),
        ({"discover": "127.0.0.1:7100"}, "discover: 127.0.0.1:7100 cannot be used on 127.0.0.1"),
        ({"peers": ["127.0.0.1:7001"]}, "discover: .* give neither peers"),
        ({"views": False}, "discover: .* nor views=False"),
    ],
)
def test_bad_settings_are_one_sentence(settings: dict[str, object], message: str, tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(UsageError, match=message):
            async with antiphon.join("test", **{"bind": free_addresses(1)[0], "discover": somewhere(), **settings}):  # type: ignore[arg-type]
                pass

    run(test())


def named(own: str, name: str, *peers: str, **settings: Any) -> antiphon.Group:
    folder = f"/state/{own}"
    return antiphon.join("test", bind=own, name=name, peers=peers, discover="peers", state=folder, **settings)


def same_number_as(name: str) -> str:
    return next(other for index in itertools.count() if number_of(other := f"other{index}") == number_of(name))


@pytest.mark.parametrize("taken", ["m1", same_number_as("m1")], ids=["name", "number"])
@pytest.mark.parametrize("declared", [2, None])
@pytest.mark.parametrize("latency", ["fixed 1ms", "fixed 150ms"])
def test_a_name_that_is_taken_is_refused_though_only_a_third_member_is_asked(
    taken: str, declared: int | None, latency: str
) -> None:
    """The third took the newcomer for the member, somewhere else, and the two threw each other out for ever."""

    async def main(world: testing.World) -> None:
        first, second, stranger = world.addresses(3)
        one = named(first, "m0", second, members=declared)
        other = named(second, "m1", first, members=declared)
        await asyncio.gather(one.__aenter__(), other.__aenter__())
        await until(lambda: len(one.status().members) == 2)
        view = one.status().view
        with pytest.raises(UsageError, match=r"two members cannot have one name|get the same number"):
            async with asyncio.timeout(5), named(stranger, taken, first, members=declared):
                pass
        await asyncio.sleep(5)
        assert {group.status().view for group in (one, other)} == {view}
        assert one.status().counts["refused-same-name"] > 0
        await (await other.send(b"undisturbed")).stable()
        await asyncio.gather(one.leave(), other.leave())

    testing.run(main, seed=1, latency=latency)


@pytest.mark.parametrize("first_of_view", [False, True])
def test_a_name_that_died_comes_back_at_another_address_at_once(first_of_view: bool) -> None:
    async def main(world: testing.World) -> None:
        addresses = world.addresses(4)
        groups = [named(own, f"m{index}", addresses[0], members=3) for index, own in enumerate(addresses[:3])]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        await until(lambda: all(len(group.status().members) == 3 for group in groups))
        members = groups[0].status().members
        gone = next(group for group in groups if (group.status().me == members[0]) == first_of_view)
        stay = [group for group in groups if group is not gone]
        name = gone.status().me
        await gone.stop()
        peers = [own for own, group in zip(addresses[:3], groups, strict=True) if group is not gone]
        async with asyncio.timeout(4), named(addresses[3], name, *peers, members=3) as back:
            await until(lambda: all(len(group.status().members) == 3 for group in stay))
            await (await back.send(b"back")).stable()
            await asyncio.gather(back.leave(), *(group.leave() for group in stay))

    testing.run(main, seed=1)
