"""Groups at the defaults that stay up: on far networks, on busy machines, with an application that does not listen.

In virtual time, through the public interface, over the very transport and sessions that run live.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.live.session import sender_of
from antiphon.protocol.machine import SECOND, Effect, Install, Instant
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario, Workload
from antiphon.sim.view_cluster import ViewCluster
from antiphon.testing import World


def joined(addresses: list[str], own: str, **settings: Any) -> antiphon.Group:
    return antiphon.join("up", bind=own, peers=[peer for peer in addresses if peer != own], **settings)


class Heard:
    """What an application was told, and when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.views: list[tuple[float, int]] = []  # when, and with how many members
        self.notices: list[str] = []
        self.messages: list[float] = []
        self.came_from: dict[str, float] = {}  # by what messages say in the newest view: when the first one came

    async def listen(self, group: antiphon.Group) -> None:
        async for event in group:
            if isinstance(event, antiphon.ViewChange):
                self.views.append((self._world.now, len(event.members)))
                self.came_from = {}
            elif isinstance(event, antiphon.Notice):
                self.notices.append(event.what)
            else:
                self.messages.append(self._world.now)
                self.came_from.setdefault(event.payload.decode(), self._world.now)


@pytest.mark.parametrize(
    ("latency", "ordering"),
    [
        ("fixed 300ms", "total"),
        ("fixed 300ms", "causal"),
        ("uniform 80ms 140ms", "fifo"),
        ("exponential 60ms", "total"),
    ],
)
def test_a_group_on_a_far_network_has_one_view_and_goes_on_without_one_who_died(latency: str, ordering: str) -> None:
    async def main(world: World) -> None:
        addresses = world.addresses(4)
        heard = {own: Heard(world) for own in addresses}

        async def member(own: str) -> None:
            async with joined(addresses, own, ordering=ordering) as group:
                listening = asyncio.create_task(heard[own].listen(group))
                while world.now < 17:
                    await group.send(b"here")
                    await asyncio.sleep(1)
                listening.cancel()

        for own in addresses:
            world.spawn(own, member, own)
        await asyncio.sleep(10)
        for one in heard.values():
            assert [size for _, size in one.views] == [4], "one view"
            assert one.views[0][0] < 4
            assert max(one.messages) > 8
        world.crash(addresses[0])
        await asyncio.sleep(6.5)
        for own in addresses[1:]:
            assert [size for _, size in heard[own].views] == [4, 3]
            assert heard[own].views[-1][0] < 15, "noticed and gone on"
            assert max(heard[own].messages) > 15
        await asyncio.sleep(24)  # they leave in good order

    testing.run(main, latency=latency)


@pytest.mark.slow
def test_busy_machines_do_not_make_views_and_a_dead_one_is_still_noticed() -> None:
    """Each member stands still now and then, at first for 300 ms, then for 700 ms, as if it had to wait for a core."""

    async def main(world: World) -> None:
        addresses = world.addresses(5)
        heard = {own: Heard(world) for own in addresses}

        async def member(own: str) -> None:
            async with joined(addresses, own) as group:
                listening = asyncio.create_task(heard[own].listen(group))
                while world.now < 37:
                    await group.send(b"here")
                    await asyncio.sleep(0.5)
                listening.cancel()

        chance = random.Random(7)
        for own in addresses:
            world.spawn(own, member, own)
            at = 2.0
            while at < 30:
                pause = min(0.3 if at < 10 else 0.7, chance.expovariate(8))
                world.at(at, world.pause, own)
                world.at(at + pause, world.resume, own)
                at += pause + chance.expovariate(4)
        await asyncio.sleep(30)
        assert [[size for _, size in one.views] for one in heard.values()] == [[5]] * 5, "one view all the time"
        world.crash(addresses[2])
        await asyncio.sleep(6)
        for own in addresses[:2]:
            assert [size for _, size in heard[own].views] == [5, 4]
            assert heard[own].views[-1][0] < 33.5
        await asyncio.sleep(10)

    testing.run(main)


def test_a_majority_goes_on_in_time_on_machines_that_stand_still_again_and_again() -> None:
    """Each member stands still for a third of the time: its own pauses must not keep it from noticing a cut."""
    cut_at, chance = 8.0, random.Random(1)

    async def main(world: World) -> None:
        addresses = world.addresses(5)
        heard, groups = {own: Heard(world) for own in addresses}, {}

        async def member(own: str) -> None:
            async with joined(addresses, own, ordering="causal") as groups[own]:
                listening = asyncio.create_task(heard[own].listen(groups[own]))
                while world.now < 2 * cut_at:
                    await groups[own].send(own.encode())
                    await asyncio.sleep(0.05)
                listening.cancel()

        for own in addresses:
            world.spawn(own, member, own)
            at = 0.5
            while at < 2 * cut_at:
                pause = min(0.7, chance.expovariate(8))
                world.at(at, world.pause, own)
                world.at(at + pause, world.resume, own)
                at += pause + chance.expovariate(4)
        await asyncio.sleep(cut_at)
        few, many = addresses[:2], addresses[2:]  # numbers follow the addresses
        for own in addresses:
            groups[own].transport.lose = lambda packet, own=own: (sender_of(packet) < 2) != (own in few)
        await asyncio.sleep(cut_at)
        for own in many:
            assert [size for _, size in heard[own].views] == [5, 3], "one view until the cut, and one after it"
            assert set(heard[own].came_from) == set(many)
            assert max(heard[own].came_from.values()) < cut_at + 2.7
        for own in addresses:
            groups[own].transport.lose = None
        await asyncio.sleep(10)

    testing.run(main, seed=1)


@pytest.mark.slow
def test_one_who_does_not_listen_is_dropped_once_and_comes_back_when_it_listens() -> None:
    async def main(world: World) -> None:
        addresses = world.addresses(3)
        heard = {own: Heard(world) for own in addresses}
        listens = asyncio.Event()

        async def member(own: str) -> None:
            settings = {"slow": "drop", "inbox_bytes_max": 50_000, "window": 4, "ordering": "fifo"}
            async with joined(addresses, own, **settings) as group:
                if own == addresses[2]:
                    await listens.wait()
                listening = asyncio.create_task(heard[own].listen(group))
                while world.now < 22:
                    if own != addresses[2]:
                        await group.send(bytes(1_000))
                    await asyncio.sleep(0.05)
                listening.cancel()

        for own in addresses:
            world.spawn(own, member, own)
        await asyncio.sleep(14)
        assert [size for _, size in heard[addresses[0]].views] == [3, 2], "dropped once, not let in with a full inbox"
        listens.set()
        await asyncio.sleep(6)
        assert [size for _, size in heard[addresses[0]].views] == [3, 2, 3]
        assert heard[addresses[2]].notices == ["excluded"]
        await asyncio.sleep(10)

    testing.run(main)


@pytest.mark.parametrize(("power", "back"), [(False, 2), (True, 3)])
def test_all_die_the_moment_a_view_has_begun(power: bool, back: int) -> None:
    """Of five, one dies, and the others when they have gone on without it, before that is on the disk for certain.

    A process that is killed has written it all the same, so half of the four with the first of them decide. Machines
    that lose their power know the view before, of which three are a majority.
    """

    async def main(world: World) -> None:
        addresses, folders = world.addresses(5), [Path(f"/{number}") for number in range(5)]
        heard = {own: Heard(world) for own in addresses}

        async def member(own: str) -> None:
            async with joined(addresses, own, state=folders[addresses.index(own)]) as group:
                listening = asyncio.create_task(heard[own].listen(group))
                await asyncio.sleep(30 - world.now)
                listening.cancel()

        for own in addresses:
            world.spawn(own, member, own)
        await asyncio.sleep(5)
        world.crash(addresses[4])
        while not all(heard[own].views[-1][1] == 4 for own in addresses[:4]):
            await asyncio.sleep(0.01)
        for own, folder in zip(addresses[:4], folders, strict=False):
            world.crash(own)
            assert not power or world.disk.lose_power(folder) == 1
        for own in addresses[:back]:
            world.restart(own)
        await asyncio.sleep(5)
        assert [heard[own].views[-1][1] for own in addresses[:back]] == [back] * back
        assert all(heard[own].views[-1][0] > world.now - 5 for own in addresses[:back])
        await asyncio.sleep(25)

    testing.run(main, unexamined=["validity"])


class Crowd(ViewCluster):
    """A simulated group that notes when each member began which view."""

    def __init__(self, scenario: Scenario) -> None:
        self.installed: dict[int, list[tuple[Instant, int]]] = {name: [] for name in range(scenario.members)}
        super().__init__(scenario, seed=1)

    def _carry_out(self, me: int, effect: Effect) -> None:
        if isinstance(effect, Install):
            self.installed[me].append((self.kernel.now, len(effect.members)))
        super()._carry_out(me, effect)


@pytest.mark.parametrize("seed", range(2))
def test_where_no_majority_hears_itself_nobody_goes_on_though_machines_notice_it_at_different_times(seed: int) -> None:
    """One hears all, and is heard by all; no two others hear each other. Each machine stands still now and then."""
    chance, members = random.Random(seed), 6
    faults = [
        Fault(kind="cut", at="2s", source=[one], target=[other])
        for one in range(1, members)
        for other in range(1, members)
        if one != other
    ]
    for name in range(members):
        at = 0.5
        while at < 4:
            pause = min(0.2, 0.002 + chance.expovariate(20))
            faults.append(Fault(kind="pause", at=f"{at}s", until=f"{at + pause}s", member=name))
            at += pause + 0.003 + chance.expovariate(5)
    crowd = Crowd(Scenario(members=members, messages=0, ordering="sequencer", views=True, faults=faults, limit="5s"))
    crowd.run()
    assert all(process.stalled and process.view.number == 1 for process in crowd.running().values())


@pytest.mark.slow
def test_of_32_members_4_die_at_once_and_come_back_in_one_view_each() -> None:
    dead = range(28, 32)
    crowd = Crowd(
        Scenario(
            name="crowd",
            members=32,
            messages=1,
            ordering="sequencer",
            views=True,
            network=NetworkOptions(latency="uniform 100us 1ms"),
            workload=Workload(interval="uniform 1s 2s", payload=8),
            faults=[Fault(kind="crash", at="2s", until="5s", member=name) for name in dead],
            limit="9s",
        )
    )
    crowd.run()
    for name in range(32):
        views = crowd.installed[name]
        assert [size for _, size in views] == ([32, 32] if name in dead else [32, 28, 32]), "one view for each change"
        assert views[0][0] < SECOND
        assert name in dead or 2 * SECOND < views[1][0] < 5 * SECOND - SECOND
        assert 5 * SECOND < views[-1][0] < 7 * SECOND


def test_32_members_that_start_one_after_the_other_need_few_views() -> None:
    late = [Fault(kind="join", at=f"{30 * name}ms", member=name) for name in range(1, 32)]
    network = NetworkOptions(latency="uniform 100us 1ms")
    crowd = Crowd(
        Scenario(members=32, messages=0, ordering="sequencer", views=True, network=network, faults=late, limit="3s")
    )
    crowd.run()
    for views in crowd.installed.values():
        assert len(views) <= 2, "those who come soon after one another are let in together"
        assert views[-1][0] < 3 * SECOND // 2
        assert views[-1][1] == 32
