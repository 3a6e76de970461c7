"""The recipes under faults: what each promises holds, whoever is cut off, stopped or killed meanwhile."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import antiphon
from antiphon.testing import World

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "recipes"))
from election import Election
from lock import Lock
from replicated_map import ReplicatedMap
from work_queue import WorkQueue

ROUGH = {"loss": 0.05, "faults": 3, "unexamined": ["validity", "agreement", "causal", "total"]}


def others(own: str, addresses: list[str]) -> list[str]:
    return [peer for peer in addresses if peer != own]


class Guarded:
    """What the lock guards: it refuses tokens lower than one that it has seen."""

    def __init__(self) -> None:
        self.written: list[tuple[int, str]] = []

    def write(self, token: int, who: str) -> bool:
        if self.written and token < self.written[-1][0]:
            return False
        self.written.append((token, who))
        return True


@pytest.mark.antiphon(seeds=8, **ROUGH)
async def test_a_lock_has_one_holder_a_token(world: World) -> None:
    addresses = world.addresses(world.number("processes", 2, 4))
    turns = world.number("turns", 1, 4)
    guarded, entered = Guarded(), dict.fromkeys(addresses, 0)

    async def worker(own: str) -> None:
        async with Lock("stock", own, others(own, addresses)) as lock:
            while entered[own] < turns:
                try:
                    token = await lock.acquire()
                    await asyncio.sleep(0.05)
                    entered[own] += guarded.write(token, own)
                    await lock.release()
                except antiphon.Unknown:
                    await asyncio.sleep(0.1)
            await asyncio.Event().wait()

    for own in addresses:
        world.spawn(own, worker, own)
    async with asyncio.timeout(60):
        while any(done < turns for done in entered.values()):
            await asyncio.sleep(0.1)
    holders: dict[int, set[str]] = {}
    for token, who in guarded.written:
        holders.setdefault(token, set()).add(who)
    assert all(len(who) == 1 for who in holders.values()), holders


@pytest.mark.antiphon(seeds=4, loss=0.05)
async def test_who_gives_up_waiting_for_a_lock_keeps_nobody_waiting(world: World) -> None:
    addresses = world.addresses(3)
    inside, most, entered = 0, 0, 0

    async def one(lock: Lock) -> None:
        nonlocal inside, most, entered
        await lock.acquire()
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.2)
        inside, entered = inside - 1, entered + 1
        await lock.release()

    async def impatient(lock: Lock) -> None:
        try:
            async with asyncio.timeout(0.1):
                await lock.acquire()
        except TimeoutError:
            return
        await lock.release()

    async def member(own: str) -> None:
        async with Lock("stock", own, others(own, addresses)) as lock:
            await asyncio.gather(one(lock), one(lock), impatient(lock))  # tasks of one member wait for each other
            await impatient(lock)
            await one(lock)
            await asyncio.Event().wait()

    for own in addresses:
        world.spawn(own, member, own)
    async with asyncio.timeout(60):
        while entered < 9:
            await asyncio.sleep(0.1)
    assert most == 1


@pytest.mark.antiphon(seeds=8, **ROUGH)
async def test_a_term_has_one_leader(world: World) -> None:
    addresses = world.addresses(world.number("processes", 2, 5))
    leaders: dict[int, set[str]] = {}
    now: dict[str, Election] = {}

    async def candidate(own: str) -> None:
        election = now[own] = Election("leader", own, others(own, addresses))
        election.told = lambda leader, term: leaders.setdefault(term, set()).update([leader] if leader else [])
        async with election:
            await asyncio.Event().wait()

    for own in addresses:
        world.spawn(own, candidate, own)
    await world.quiet()
    async with asyncio.timeout(30):
        while len({(one.leader, one.term) for one in now.values()}) > 1 or not now[addresses[0]].leader:
            await asyncio.sleep(0.1)
    assert all(len(names) <= 1 for names in leaders.values()), leaders
    assert sum(one.leading for one in now.values()) == 1


@pytest.mark.antiphon(seeds=8, **ROUGH)
async def test_a_map_keeps_what_it_acknowledged(world: World) -> None:
    addresses = world.addresses(world.number("processes", 2, 4))
    writes = world.number("writes", 1, 6)
    acknowledged: dict[str, str] = {}
    won: list[str] = []
    maps: dict[str, ReplicatedMap] = {}

    async def replica(own: str) -> None:
        async with ReplicatedMap("settings", own, others(own, addresses)) as shared:
            maps[own] = shared
            for number in range(writes):
                key = f"{own} {number}"
                if key in acknowledged:
                    continue
                try:
                    await shared.put(key, own)
                    acknowledged[key] = own
                    if await shared.swap(f"first {number}", None, own):
                        won.append(f"first {number}")
                    assert await shared.get(key) == own, "a read sees what was acknowledged before it"
                except antiphon.Unknown:
                    await asyncio.sleep(0.1)
            await asyncio.Event().wait()

    for own in addresses:
        world.spawn(own, replica, own)
    await world.quiet()
    async with asyncio.timeout(60):
        while len(maps) < len(addresses) or any(one.state != maps[addresses[0]].state for one in maps.values()):
            await asyncio.sleep(0.5)
        await asyncio.sleep(5)
    state = maps[addresses[0]].state
    assert all(one.state == state for one in maps.values())
    assert acknowledged.items() <= state.items()
    assert len(won) == len(set(won)), "a swap from nothing is won once"


@pytest.mark.antiphon(seeds=8, **ROUGH)
async def test_all_work_is_done_and_counted_once(world: World) -> None:
    *stay, dies = addresses = world.addresses(world.number("processes", 3, 5))
    items = [f"item {number}" for number in range(world.number("items", 4, 12))]
    worked: list[str] = []
    acknowledged: set[str] = set()
    queues: dict[str, WorkQueue] = {}

    async def work(item: str) -> str:
        await asyncio.sleep(0.5)
        worked.append(item)
        if item == items[0]:
            raise ValueError(item)
        return f"{item} by hand"

    async def put(own: str, item: str) -> None:
        """Give an item to a member, to its next life if this one ends meanwhile."""
        while item not in acknowledged:
            try:
                await queues[own].put(item)
                acknowledged.add(item)
            except (antiphon.Unknown, antiphon.GroupClosed):
                await asyncio.sleep(0.1)

    async def member(own: str) -> None:
        async with WorkQueue("resize", work, own, others(own, addresses)) as queue:
            queues[own] = queue
            for item in items[stay.index(own) :: len(stay)] if own != dies else []:
                await put(own, item)
            await asyncio.Event().wait()

    for own in addresses:
        world.spawn(own, member, own)
    await world.quiet()
    while dies not in queues or not set(queues[dies].state["open"].values()) & {dies}:
        items.append(f"late {len(items)}")  # so that there is something of its own when it dies
        await put(stay[0], items[-1])
    world.crash(dies)
    done = [queue for own, queue in queues.items() if own != dies]
    async with asyncio.timeout(60):
        while len(done) < len(stay) or any(set(one.state["results"]) != set(items) for one in done):
            done = [queue for own, queue in queues.items() if own != dies]
            await asyncio.sleep(0.5)
    assert set(worked) == set(items)
    assert all(one.state == done[0].state for one in done)
    assert not done[0].state["open"]
    assert done[0].state["results"][items[0]] == f"failed: ValueError({items[0]!r})"
