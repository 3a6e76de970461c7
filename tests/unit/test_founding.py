"""Groups that are found by discovery: one group if its number is declared, and one in the end if it is not."""

from __future__ import annotations

import asyncio
import errno
import random
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.live.hello import Founding
from antiphon.protocol.membership.views import before_the_first
from antiphon.testing import World

EVERYTHING = ["integrity", "validity", "agreement", "fifo", "causal", "total", "stability", "view-synchrony"]
WHERE = "239.1.2.3:7100"
_MESSAGES = ("send", "deliver")
START_S_MAX = 4.0  # well beyond the second after which one that looks alone founds a group


def lists(kind: str, addresses: list[str]) -> dict[str, list[str]]:
    """Say whom each member asks: the first one, or the next one, or nobody in particular."""
    if kind == "seed":
        return dict.fromkeys(addresses, addresses[:1])
    following = [*addresses[1:], addresses[0]]
    return {own: [after] if kind == "ring" else [] for own, after in zip(addresses, following, strict=True)}


class Watched:
    """A member that sends from its first view on, and keeps what it sees."""

    def __init__(self, own: str, **settings: Any) -> None:
        self.group = antiphon.join("test", bind=own, **settings)
        self.own = own
        self.notices: list[str] = []
        self.views: list[tuple[int, tuple[str, ...]]] = []
        self.got: list[bytes] = []
        self.receipts: list[antiphon.Receipt] = []

    async def start(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.group.__aenter__()
        self.task = asyncio.create_task(self.read())
        for number in range(3):
            self.receipts.append(await self.group.send(f"{self.own}/{number}".encode()))

    async def read(self) -> None:
        async for event in self.group:
            match event:
                case antiphon.Notice(what=what):
                    self.notices.append(what)
                case antiphon.ViewChange(view=view, members=members):
                    self.views.append((view, members))
                case antiphon.Message(payload=payload):
                    self.got.append(payload)


async def started(world: World, kind: str, count: int, starts: list[float], **settings: Any) -> list[Watched]:
    addresses = world.addresses(count)
    asked = lists(kind, addresses)
    where = WHERE if kind == "multicast" else "peers"
    members = [Watched(own, discover=where, peers=asked[own], **settings) for own in addresses]
    await asyncio.gather(*(member.start(after) for member, after in zip(members, starts, strict=True)))
    return members


async def until_one(members: list[Watched]) -> None:
    everyone = {member.own for member in members}
    while any(set(member.group.status().members) != everyone for member in members):
        await asyncio.sleep(0.1)


def random_starts(seed: int, kind: str, count: int) -> list[float]:
    rng = random.Random(seed)
    starts = [rng.uniform(0, START_S_MAX) for _ in range(count)]
    return [2.0, *(0.0 for _ in starts[1:])] if kind == "seed" else starts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["seed", "ring", "multicast"])
def test_two_groups_of_a_declared_number_never_both_acknowledge(kind: str, seed: int) -> None:
    async def main(world: World) -> None:
        members = await started(world, kind, 5, random_starts(seed, kind, 5), members=5)
        await asyncio.wait_for(until_one(members), 30)
        await asyncio.gather(*(receipt.stable() for member in members for receipt in member.receipts))
        views: dict[int, tuple[str, ...]] = {}
        for member in members:
            assert not member.notices
            assert not member.group.status().may_be_several
            for number, of in member.views:
                assert views.setdefault(number, of) == of
        assert len(views[min(views)]) >= 3

    testing.run(main, seed=seed)


@pytest.mark.parametrize("starts", [[0, 3, 4], [4, 3, 0], [0, 0, 0], [0, 0.5, 1.1], [1.1, 0, 0.9]])
def test_one_founder_is_found_by_those_who_come_later(starts: list[float]) -> None:
    """With a declared number of one, each that started once founded a group of its own, and gave it up later."""

    async def main(world: World) -> None:
        members = await started(world, "ring", 3, starts, members=1)
        await asyncio.wait_for(until_one(members), 5)
        await asyncio.gather(*(receipt.stable() for member in members for receipt in member.receipts))
        assert not any(member.notices for member in members)
        assert all(member.group.status().may_be_several for member in members)

    testing.run(main, seed=1)


def test_groups_of_one_founder_each_become_one_when_they_meet() -> None:
    async def main(world: World) -> None:
        addresses = world.addresses(2)
        world.partition(addresses[:1], addresses[1:])
        world.at("3s", world.heal)
        members = await started(world, "ring", 2, [0.0, 0.0], members=1)
        assert [len(member.group.status().members) for member in members] == [1, 1]
        await asyncio.wait_for(until_one(members), 10)
        assert sorted(member.notices for member in members) == [[], ["excluded"]]

    testing.run(main, seed=1, unexamined=EVERYTHING)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["seed", "ring", "multicast"])
def test_groups_that_meet_become_one_and_who_gives_way_is_told(kind: str, seed: int) -> None:
    async def main(world: World) -> None:
        if kind == "multicast":
            addresses = world.addresses(5)
            world.partition(addresses[:2], addresses[2:])
            asyncio.get_running_loop().call_later(6, world.heal)
        members = await started(world, kind, 5, random_starts(seed, kind, 5))
        await asyncio.wait_for(until_one(members), 30)
        assert all(member.group.status().may_be_several for member in members)
        gave_way = [member for member in members if "yielded" in member.notices]
        assert gave_way if kind in ("seed", "multicast") else True
        assert len(gave_way) < len(members)
        last = [await member.group.send(b"last/" + member.own.encode()) for member in members]
        await asyncio.gather(*(receipt.stable() for receipt in last))
        for member in members:
            outcomes = {receipt.outcome for receipt in member.receipts}
            assert outcomes <= ({"stable", "unknown"} if member in gave_way else {"stable"})
            while sum(payload.startswith(b"last/") for payload in member.got) < len(members):
                await asyncio.sleep(0.1)
        for run in world.runs.values():  # each group has a trace of its own
            did = {what: {(one.sender, one.seq) for one in run.events if one.event == what} for what in _MESSAGES}
            assert did["deliver"] <= did["send"]

    testing.run(main, seed=seed, unexamined=EVERYTHING)


@pytest.mark.slow
def test_messages_under_way_in_a_group_that_is_given_up_end_as_unknown_with_the_reason() -> None:
    async def main(world: World) -> None:
        first, second, third = addresses = world.addresses(3)
        world.partition([first], [second, third])
        members = [Watched(own, discover=WHERE) for own in addresses]
        await asyncio.gather(*(member.start(0) for member in members))
        await asyncio.sleep(2)
        alone = members[0]
        world.heal()
        receipts: list[antiphon.Receipt] = []
        while "yielded" not in alone.notices:
            receipts.append(await alone.group.send(b"%d" % len(receipts)))
            await asyncio.sleep(0.0005)
        await asyncio.wait_for(until_one(members), 30)
        await asyncio.sleep(2)
        assert all(receipt.settled for receipt in receipts)
        for number, receipt in enumerate(receipts):
            assert receipt.outcome in ("stable", "unknown")
            if receipt.outcome == "unknown":
                assert "not delivered here" in str(receipt.reason) or "another group of its name" in str(receipt.reason)
            else:  # delivered where this member was then, or in the group that stands
                assert b"%d" % number in alone.got

    testing.run(main, seed=3, unexamined=EVERYTHING)


def test_which_founding_stands() -> None:
    large, old, young = Founding(("a", "b"), 9), Founding(("c",), 1), Founding(("a",), 2)
    for one, other in [(large, old), (old, young), (large, young)]:
        assert one.outranks(other)
        assert not other.outranks(one)
    assert not old.outranks(old)


def test_a_majority_of_those_declared_founds_a_group() -> None:
    view = before_the_first([1, 2], declared=5)
    assert not view.is_quorum({1, 2})
    wider = view.with_names([2, 3])
    assert wider.names == (1, 2, 3)
    assert wider.is_quorum({1, 2, 3})
    assert not wider.is_quorum({1, 2, 9})
    too_many = wider.with_names(range(1, 9))
    assert not too_many.is_quorum({1, 2, 3, 4})  # more than were declared: then of those
    assert before_the_first([1, 2]).with_names([3]).names == (1, 2)


def test_one_that_declares_another_number_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        one, two, other = world.addresses(3)
        groups = [antiphon.join("test", bind=own, discover=WHERE, members=3) for own in (one, two)]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        entering = asyncio.create_task(antiphon.join("test", bind=other, discover=WHERE, members=2).__aenter__())
        await asyncio.sleep(5)
        assert "members: 2 here and 3 there" in caplog.text
        entering.cancel()

    testing.run(main, seed=1)


def test_a_member_that_returns_elsewhere_under_its_name_gets_in() -> None:
    async def main(world: World) -> None:
        addresses = world.addresses(4)
        names = ["orders-0", "orders-1", "orders-2"]
        groups = [
            antiphon.join("test", bind=own, discover=WHERE, members=3, name=name)
            for own, name in zip(addresses, names, strict=False)
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        while any(len(group.status().members) < 3 for group in groups):
            await asyncio.sleep(0.1)
        await groups[2].stop()
        async with antiphon.join("test", bind=addresses[3], discover=WHERE, members=3, name="orders-2") as again:
            while set(groups[0].status().members) != set(names) or len(again.status().members) < 3:
                await asyncio.sleep(0.1)
            await (await again.send(b"back")).stable()
            with pytest.raises(antiphon.UsageError, match="name: orders-1 is taken"):
                await antiphon.join("test", bind=addresses[2], discover=WHERE, members=3, name="orders-1").__aenter__()

    testing.run(main, seed=1)


@pytest.mark.parametrize("declared", [True, False])
def test_those_who_are_started_again_find_each_other_though_all_that_they_ask_is_gone(declared: bool) -> None:
    """They knew one another through the one whom they asked, and forgot where they were."""
    streams: dict[str, list[antiphon.Event]] = {}

    async def main(world: World) -> None:
        addresses = world.addresses(3)

        async def member(own: str) -> None:
            settings = {"members": 3} if declared else {}
            streams[own] = []
            async with antiphon.join("test", bind=own, discover="peers", peers=addresses[:1], **settings) as group:
                async for event in group:
                    streams[own].append(event)
                    if isinstance(event, antiphon.ViewChange):
                        await group.send(f"{own} in {event.view}".encode())

        for own in addresses:
            world.spawn(own, member, own)
        await asyncio.sleep(4)
        for own in addresses:
            world.crash(own)
        for own in addresses[1:]:
            world.restart(own)
        await asyncio.sleep(6)
        last = [
            next(one for one in reversed(streams[own]) if isinstance(one, antiphon.ViewChange)) for own in addresses
        ]
        assert [one.members for one in last[1:]] == [tuple(addresses[1:])] * 2
        after = f"{addresses[1]} in {last[1].view}".encode()
        assert all(any(getattr(one, "payload", b"") == after for one in streams[own]) for own in addresses[1:])

    testing.run(main, seed=3, unexamined=EVERYTHING)


def test_a_member_that_cannot_write_down_which_group_it_joins_fails_with_the_reason() -> None:
    """The error went past the group into the event loop, and the member stood between the two groups for ever."""
    ends: dict[str, str] = {}

    async def main(world: World) -> None:
        addresses = world.addresses(3)

        async def member(own: str) -> None:
            settings = {"discover": WHERE, "state": f"/{own}"}
            try:
                async with antiphon.join("test", bind=own, **settings) as group:  # type: ignore[arg-type]
                    async for _ in group:
                        pass
            except antiphon.GroupClosed as error:
                ends[own] = str(error)

        world.loop.antiphon_host.failed = lambda error: None  # that a member fails is what is looked at
        world.partition(addresses[:1])
        for own in addresses:
            world.spawn(own, member, own)
        await asyncio.sleep(3)
        world.disk.fails = lambda path: errno.ENOSPC if str(path).startswith(f"/{addresses[0]}") else None
        world.heal()
        await asyncio.sleep(5)
        assert list(ends) == addresses[:1]
        assert "No space left on device" in ends[addresses[0]]

    testing.run(main, seed=1, unexamined=EVERYTHING)
