"""The examples in simulated worlds, under loss and faults; and applications with a flaw that some seed shows."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.testing import World

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import chat
import kv_store
import work_log

ROUGH = {"loss": 0.1, "duplicate": 0.05, "reorder": 0.1, "faults": 3}


@pytest.mark.parametrize(
    "example",
    [
        lambda: chat.scripted(chat.ADDRESSES),
        lambda: kv_store.main(kv_store.ADDRESSES),
        lambda: work_log.main(work_log.ADDRESSES),
    ],
    ids=["chat", "kv-store", "work-log"],
)
def test_examples_end_under_loss(example: object, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(5):
        testing.run(example, seed=seed, loss=0.1, duplicate=0.1, reorder=0.1)  # type: ignore[arg-type]
    assert capsys.readouterr().out


def first_to_fail(main: Callable[[World], Coroutine[Any, Any, None]], first: int = 0, end: int = 30) -> int | None:
    for seed in range(first, end):
        try:
            testing.run(main, seed=seed, **ROUGH)
        except AssertionError:
            return seed
    return None


# The chat: nobody hears an answer before its question


async def conversation(world: World) -> list[list[str]]:
    """Let one ask, at a time when much goes wrong, and everyone else answer who hears it."""
    addresses = world.addresses(4)
    heard: dict[str, list[str]] = {own: [] for own in addresses}

    async def person(own: str) -> None:
        async with chat.join(own, addresses) as group:
            listening = asyncio.create_task(chat.listen(group, heard[own], answers=own != addresses[0]))
            if own == addresses[0]:
                await asyncio.sleep(0.2)
                await group.send(chat.QUESTION.encode())
            await listening

    for own in addresses:
        world.spawn(own, person, own)
    await world.quiet()
    await asyncio.sleep(3)
    return list(heard.values())


def test_no_answer_comes_before_its_question() -> None:
    faults = testing.Faults(within="500ms", kinds=("partition", "cut", "pause"))
    told = 0
    for seed in range(12):
        for heard in testing.run(conversation, seed=seed, loss=0.2, reorder=0.2, faults=faults):
            # one who joins in between hears the answers alone: nobody tells it what was said before
            assert heard.count(chat.QUESTION) <= 1
            assert chat.QUESTION not in heard[1:]
            told += heard[:2] == [chat.QUESTION, chat.ANSWER]
    assert told > 20


# The key-value store: replicas are equal, and what was written is there


async def replicas_agree(world: World, kind: type[kv_store.Store]) -> None:
    addresses = world.addresses(3)
    stores: dict[str, kv_store.Store] = {}
    written: dict[str, str] = {}

    async def replica(own: str) -> None:
        nonlocal written
        async with kind(own, addresses, Path("state")) as store:
            stores[own] = store
            for number in range(15):
                value = f"{own} {world.now}"
                key = f"key {number % 5}" if number % 2 else value  # one that others write too, and one of its own
                try:
                    await store.put(key, value)
                    written |= {key: value} if key == value else {}
                except antiphon.Unknown:
                    continue  # the group went on without us: it may be written or not
                await asyncio.sleep(0.15)
            await asyncio.Event().wait()

    for own in addresses:
        world.spawn(own, replica, own)
    await world.quiet()
    await asyncio.sleep(5)
    assert len(stores) == 3
    data = [store.data for store in stores.values()]
    assert data[0] == data[1] == data[2]
    assert written
    assert written.items() <= data[0].items()


@pytest.mark.antiphon(seeds=8, **ROUGH)
async def test_replicas_agree(world: World) -> None:
    await replicas_agree(world, kv_store.Store)


class Eager(kv_store.Store):
    """Writes at home at once, before the write has its place in the order."""

    async def put(self, key: str, value: str) -> None:
        self.data[key] = value
        await super().put(key, value)

    async def _apply(self) -> None:
        async for event in self._group:
            if isinstance(event, antiphon.Message) and event.sender != self._group.status().me:
                key, value = json.loads(event.payload)
                self.data[key] = value


class Forgetful(kv_store.Store):
    """Takes no state when it joins."""

    def _restore(self, state: bytes) -> None:
        pass


@pytest.mark.parametrize("flawed", [Eager, Forgetful])
def test_a_flawed_store_is_found_by_some_seed(flawed: type[kv_store.Store]) -> None:
    found = first_to_fail(lambda world: replicas_agree(world, flawed))
    assert found is not None
    assert first_to_fail(lambda world: replicas_agree(world, flawed), found, found + 1) == found, "and again"


# The work log: every job is done, whoever crashes


async def all_is_done(world: World, kind: type[work_log.Worker]) -> None:
    addresses = world.addresses(3)
    did: list[list[str]] = []
    workers: dict[str, work_log.Worker] = {}
    entered: list[str] = []

    async def worker(own: str) -> None:
        one = kind(own, addresses)
        did.append(one.did)
        async with one.group:
            workers[own] = one
            working = asyncio.create_task(one.work())
            for number in range(5):
                job = f"{own} {world.now} {number}"
                try:
                    await one.put([job])
                    entered.append(job)
                except antiphon.Unknown:
                    continue
                await asyncio.sleep(0.2)
            await working

    for own in addresses:
        world.spawn(own, worker, own)
    await world.quiet()
    await asyncio.sleep(5)
    assert entered
    assert not [one.open for one in workers.values() if one.open]
    assert set(entered) <= {job for jobs in did for job in jobs}


@pytest.mark.antiphon(seeds=8, **ROUGH)
async def test_no_crash_loses_a_job(world: World) -> None:
    await all_is_done(world, work_log.Worker)


class Stubborn(work_log.Worker):
    """Takes no notice of who is gone."""

    async def work(self) -> None:
        first = True
        async for event in self.group:
            match event:
                case antiphon.ViewChange(members=members):
                    if first:
                        self._members, first = members, False
                case antiphon.Message(payload=payload):
                    what, job = json.loads(payload)
                    if what == "todo":
                        self._assign(job)
                    else:
                        self.open.pop(job, None)
            await self._do_own()


def test_a_worker_that_ignores_views_is_found_by_some_seed() -> None:
    assert first_to_fail(lambda world: all_is_done(world, Stubborn)) is not None
