"""Views of live groups: partitions that heal, slow members, and members that join in the middle of things."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import antiphon
from antiphon.live.session import sender_of
from antiphon.protocol.membership.process import MembershipOptions
from support import promises
from support.live_group import collect, free_addresses, members, run

pytestmark = pytest.mark.faults


async def until(condition: Callable[[], bool]) -> float:
    """Wait for something; give how long it took."""
    began = time.monotonic()
    while not condition():
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def drained(group: antiphon.Group, seen: list[antiphon.Message | antiphon.ViewChange | antiphon.Notice]) -> None:
    async for event in group:
        seen += [event]  # at once, not when the stream has ended


def test_the_majority_goes_on_and_the_minority_says_that_it_is_cut_off(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(5, tmp_path, stop=True, key=os.urandom(16)) as groups:
            groups = sorted(groups, key=lambda group: group.status().me)
            seen: list[list[antiphon.Message | antiphon.ViewChange | antiphon.Notice]] = [[] for _ in groups]
            tasks = [asyncio.create_task(drained(group, one)) for group, one in zip(groups, seen, strict=True)]
            await until(lambda: all(len(group.status().members) == 5 for group in groups))
            for one, group in enumerate(groups):
                group.transport.lose = lambda packet, one=one: (sender_of(packet) < 2) != (one < 2)  # type: ignore[misc]
            await until(lambda: all(len(group.status().members) == 3 for group in groups[2:]))
            await until(lambda: all(group.status().standing == "stalled" for group in groups[:2]))
            await (await groups[2].send(b"in the majority")).stable()
            cut_off = await groups[0].send(b"cut off")
            await asyncio.sleep(0.3)
            assert not cut_off.is_delivered
            names = [group.status().me for group in groups]
            for me, one in enumerate(seen[:2]):
                (stalled,) = [event for event in one if isinstance(event, antiphon.Notice) and event.what == "stalled"]
                assert {(silent, names[me]) for silent in names[2:]} <= set(stalled.links)
                assert {silent for silent, _ in groups[me].status().links} == set(names[2:])
            for group in groups:
                group.transport.lose = None
            await until(lambda: all(len(group.status().members) == 5 for group in groups))
            await (await groups[1].send(b"together")).stable()
            await until(lambda: all(any(_says(event, b"together") for event in one) for one in seen))
            assert all(any(_says(event, b"in the majority") for event in one) for one in seen[2:])
            assert not any(_says(event, b"in the majority") for one in seen[:2] for event in one)
            assert all(
                _notices(one)[-1] in ("resumed", "excluded") for one in seen[:2]
            )  # it goes on again, and says so
            for task in tasks:
                task.cancel()

    run(test())


def test_each_side_goes_on_and_the_smaller_takes_the_state_of_the_larger(tmp_path: Path) -> None:
    async def test() -> None:
        addresses = sorted(free_addresses(5))
        states: dict[str, list[bytes]] = {own: [] for own in addresses}

        def join(own: str) -> antiphon.Group:
            return antiphon.join(
                "test",
                bind=own,
                peers=[peer for peer in addresses if peer != own],
                state=tmp_path,
                key=key,
                partition="each-side",
                snapshot=lambda: b"\n".join(states[own]),
                restore=lambda state: states.update({own: state.split(b"\n") if state else []}),
            )

        async def apply(own: str, group: antiphon.Group, notices: list[str]) -> None:
            async for event in group:
                if isinstance(event, antiphon.Message):
                    states[own].append(event.payload)
                elif isinstance(event, antiphon.Notice):
                    notices.append(event.what)

        key = os.urandom(16)
        groups = [join(own) for own in addresses]
        notices: list[list[str]] = [[] for _ in groups]
        tasks: list[asyncio.Task[None]] = []

        async def enter(own: str, group: antiphon.Group, notices: list[str]) -> None:
            await group.__aenter__()
            tasks.append(asyncio.create_task(apply(own, group, notices)))  # at once: who joins waits for its state

        await asyncio.gather(*(enter(*one) for one in zip(addresses, groups, notices, strict=True)))
        await until(lambda: all(len(group.status().members) == 5 for group in groups))
        for one in notices:
            one.clear()  # some may have begun apart
        small = {0, 1}  # names follow the addresses
        for group in groups:
            group.transport.lose = lambda packet, group=group: (sender_of(packet) in small) != (group in groups[:2])  # type: ignore[misc]
        await until(lambda: all(len(group.status().members) == 3 for group in groups[2:]))
        await until(lambda: all(len(group.status().members) == 2 for group in groups[:2]))
        await (await groups[0].send(b"of the two")).stable()
        await (await groups[2].send(b"of the three")).stable()
        for group in groups:
            group.transport.lose = None
        await until(lambda: all(len(group.status().members) == 5 for group in groups))
        await (await groups[1].send(b"together")).stable()
        await until(lambda: all(state[-1:] == [b"together"] for state in states.values()))
        assert all(state == [b"of the three", b"together"] for state in states.values())
        assert all("yielded" in one for one in notices[:2])
        assert notices[2:] == [[], [], []]
        await asyncio.gather(*(group.leave() for group in groups))
        await asyncio.gather(*tasks)

    run(test())


@pytest.mark.alone
def test_all_leave_at_once_and_nobody_waits_for_long(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(4, tmp_path) as groups:
            await until(lambda: all(len(group.status().members) == 4 for group in groups))
            await (await groups[0].send(b"the last")).stable()
            began = time.monotonic()
            await asyncio.gather(*(group.leave() for group in groups))
            promises.keep(0.9, time.monotonic() - began, "all to leave at once")
            assert all(
                group._member.driver.machine.left and group._member.driver.machine.deadline is None for group in groups
            )

    run(test())


def _notices(seen: list[antiphon.Message | antiphon.ViewChange | antiphon.Notice]) -> list[str]:
    return [event.what for event in seen if isinstance(event, antiphon.Notice)]


def _says(event: object, payload: bytes) -> bool:
    return isinstance(event, antiphon.Message) and event.payload == payload


def test_a_member_that_does_not_listen_is_dropped_where_the_group_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"slow": "drop", "inbox_bytes_max": 50_000, "window": 4, "ordering": "fifo"}
        async with members(3, tmp_path, stop=True, **settings) as groups:
            slow = groups[2].status().me
            await until(lambda: all(len(group.status().members) == 3 for group in groups))
            tasks = [asyncio.create_task(drained(group, [])) for group in groups[:2]]
            stuck = asyncio.create_task(_flood(groups[0].send))
            await until(lambda: groups[0].status().slowest == slow)
            await until(lambda: slow not in groups[0].status().members)
            stuck.cancel()
            for task in tasks:
                task.cancel()

    run(test())


@pytest.mark.alone
def test_a_member_that_does_not_listen_may_lag_and_loses_what_is_too_old(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {
            "slow": "lag",
            "ordering": "causal",
            "inbox_bytes_max": 20_000,
            "membership": MembershipOptions(heartbeat_ns=50_000_000, lifetime_ns=300_000_000),
        }
        async with members(3, tmp_path, stop=True, **settings) as groups:
            slow = groups[2].status().me
            await until(lambda: all(len(group.status().members) == 3 for group in groups))
            seen: list[list[antiphon.Message | antiphon.ViewChange | antiphon.Notice]] = [[] for _ in groups]
            tasks = [asyncio.create_task(drained(groups[one], seen[one])) for one in (0, 1)]
            for number in range(60):
                await groups[0].send(b"%d" % number + bytes(2_000))
                await asyncio.sleep(0.02)
            assert groups[0].status().slowest == slow
            assert slow in groups[0].status().members
            tasks.append(asyncio.create_task(drained(groups[2], seen[2])))
            await asyncio.sleep(0.5)
            await groups[0].send(b"last")
            await until(lambda: all(any(_says(event, b"last") for event in one) for one in seen))
            taken = [sum(isinstance(event, antiphon.Message) for event in one) for one in seen]
            assert taken[0] == taken[1] == 61
            assert taken[2] < 61
            for task in tasks:
                task.cancel()

    run(test())


async def _flood(send: Callable[[bytes], Awaitable[antiphon.Receipt]]) -> None:
    while True:
        await send(bytes(2_000))


def test_one_who_joins_is_given_the_state_and_the_parts_of_what_has_begun(tmp_path: Path) -> None:
    """A large message that is under way when someone joins reaches the joiner too, after the state."""

    async def test() -> None:
        addresses = sorted(free_addresses(3))
        large = os.urandom(3_000_000)
        states: dict[str, list[bytes]] = {address: [] for address in addresses}

        def join(own: str) -> antiphon.Group:
            return antiphon.join(
                "test",
                bind=own,
                peers=[peer for peer in addresses if peer != own],
                state=tmp_path,
                window=2,
                leave_s=1.0,
                snapshot=lambda: b"\n".join(states[own]),
                restore=lambda state: states.update({own: state.split(b"\n") if state else []}),
            )

        async def apply(own: str, group: antiphon.Group) -> None:
            async for event in group:
                if isinstance(event, antiphon.Message):
                    states[own].append(event.payload if len(event.payload) < 100 else b"large %d" % hash(event.payload))

        first, second, third = (join(own) for own in addresses)
        await asyncio.gather(first.__aenter__(), second.__aenter__())
        tasks = [asyncio.create_task(apply(own, one)) for own, one in zip(addresses, (first, second), strict=False)]
        await (await first.send(b"early")).stable()
        sending = asyncio.create_task(first.send(large))
        await asyncio.sleep(0)
        async with third:
            tasks.append(asyncio.create_task(apply(addresses[2], third)))
            await sending
            await first.send(b"late")
            await until(lambda: all(state[-1:] == [b"late"] for state in states.values()))
            assert states[addresses[2]] == states[addresses[0]] == states[addresses[1]]
            assert [text[:5] for text in states[addresses[0]]] == [b"early", b"large", b"late"]
        await asyncio.gather(first.leave(), second.leave())
        await asyncio.gather(*tasks)

    run(test())


def test_a_group_of_one_works(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(1, tmp_path) as [group]:
            receipt = await group.send(b"alone")
            assert [message.payload for message in await collect(group, 1)] == [b"alone"]
            await receipt.stable()

    run(test())


def test_leaving_while_waiting_to_join_gives_the_address_back(tmp_path: Path) -> None:
    async def test() -> None:
        addresses = free_addresses(3)
        for _ in range(2):
            lonely = antiphon.join("test", bind=addresses[0], peers=addresses[1:], state=tmp_path)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(lonely.__aenter__(), 0.3)

    run(test())
