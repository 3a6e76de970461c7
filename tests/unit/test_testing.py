"""Applications run in simulated worlds: virtual time, one run a seed, faults, checks, and clear words when stuck."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.errors import UsageError
from antiphon.protocol.membership.views import incarnation_of
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.ordering.fifo import Fifo
from antiphon.testing import World
from antiphon.testing.trace import IncarnationTrace, Run
from antiphon.trace import naive
from antiphon.trace.reader import read


async def joined(world: World, count: int = 3, **settings: Any) -> list[antiphon.Group]:
    """Join members outside of any process."""
    addresses = world.addresses(count)
    groups = [
        antiphon.join("test", bind=own, peers=[peer for peer in addresses if peer != own], **settings)
        for own in addresses
    ]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    return groups


async def collect(group: antiphon.Group, count: int) -> list[bytes]:
    taken: list[bytes] = []
    async for event in group:
        if isinstance(event, antiphon.Message):
            taken.append(event.payload)
            if len(taken) == count:
                break
    return taken


async def chatter(world: World, **settings: Any) -> str:
    """Let three members send in bursts and at random, and see that all deliver the same."""
    groups = await joined(world, **settings)

    async def send(index: int) -> None:
        receipts = []
        for number in range(10):
            receipts.append(await groups[index].send(b"%d:%d" % (index, number)))
            await asyncio.sleep(random.random() / 50)
        await asyncio.gather(*(receipt.stable() for receipt in receipts))

    *streams, _, _, _ = await asyncio.gather(*(collect(group, 30) for group in groups), *map(send, range(3)))
    assert sorted(streams[0]) == sorted(streams[1]) == sorted(streams[2])
    return world.digest


# Virtual time and one run a seed


def test_time_passes_without_passing() -> None:
    async def main() -> tuple[float, float, float]:
        began = time.time(), time.monotonic(), asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        return tuple(
            now - then
            for now, then in zip((time.time(), time.monotonic(), asyncio.get_running_loop().time()), began, strict=True)
        )

    real = time.monotonic()
    assert testing.run(main(), limit="2000min") == (3660, 3660, 3660)
    assert time.monotonic() - real < 30
    assert abs(time.time() - 1_000_000_000) > 1_000_000, "the real clock is back"


@pytest.mark.parametrize("ordering", ["total", "causal", "fifo", "co"])
def test_a_seed_decides_the_trace(ordering: str) -> None:
    one, again, other = (
        testing.run(lambda world: chatter(world, ordering=ordering), seed=seed, loss=0.1) for seed in (7, 7, 8)
    )
    assert one == again != other


PROGRAM = """
import asyncio, random, sys, uuid
import antiphon
from antiphon import testing

async def main(world):
    addresses = world.addresses(3)
    groups = [antiphon.join("g", bind=a, peers=[b for b in addresses if b != a]) for a in addresses]
    tasks = {asyncio.create_task(group.__aenter__()) for group in groups}
    while tasks:  # a set: its order must not depend on where things lie in memory
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await next(iter(done)).result().send(str(uuid.uuid4()).encode() + b"%d" % random.randrange(10**6))
    await asyncio.sleep(1)
    print(world.digest, uuid.uuid4(), random.random())

testing.run(main, seed=3, loss=0.2, duplicate=0.1, reorder=0.1, skew="5ms", faults=2)
"""


def test_a_seed_decides_the_trace_in_every_process() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_chance_is_the_seeds_and_comes_back_after() -> None:
    async def main() -> tuple[float, bytes, uuid.UUID]:
        return random.random(), os.urandom(4), uuid.uuid4()

    random.seed(5)
    expected = random.random()
    random.seed(5)
    assert testing.run(main(), seed=1) == testing.run(main(), seed=1) != testing.run(main(), seed=2)
    assert random.random() == expected
    assert os.urandom(8) != os.urandom(8)


# Groups and their faults


@pytest.mark.parametrize("views", [True, False], ids=["views", "fixed"])
@pytest.mark.parametrize("ordering", ["fifo", "causal-blocks", "co", "abcast", "tomp"])
def test_every_ordering_runs_sealed_under_loss(ordering: str, views: bool) -> None:
    for seed in range(2):
        testing.run(
            lambda world: chatter(world, ordering=ordering, views=views, key=b"k" * 16),
            seed=seed,
            loss=0.1,
            duplicate=0.1,
            reorder=0.1,
            skew="5ms",
        )


def test_members_without_the_key_are_not_heard() -> None:
    async def main(world: World) -> None:
        a, b = world.addresses(2)
        own = antiphon.join("test", bind=a, peers=[b], views=False, key=b"k" * 16)
        other = antiphon.join("test", bind=b, peers=[a], views=False)
        async with own:
            async with other:
                await other.send(b"let me in")
                await asyncio.sleep(0.2)
            assert own.status().counts["refused-unsealed"] > 0

    testing.run(main, unexamined=["validity"])


def test_a_partition_stalls_the_minority_until_it_heals() -> None:
    async def main(world: World) -> None:
        groups = await joined(world)
        fault = world.partition([groups[0].status().me])
        await asyncio.sleep(2)
        assert [group.status().standing for group in groups] == ["stalled", "active", "active"]
        assert groups[1].status().members == tuple(world.addresses(3)[1:])
        fault.heal()
        fault.heal()  # once is enough, twice does no harm
        await asyncio.sleep(2)
        assert all(len(group.status().members) == 3 for group in groups)

    testing.run(main, seed=1)


def test_a_cut_is_one_way_and_loss_can_change() -> None:
    async def main(world: World) -> None:
        one, other = await joined(world, 2, views=False)
        world.cut([one.status().me], [other.status().me])
        await asyncio.sleep(0.1)  # greetings that were under way
        received = other.status().counts["packets-received"]
        receipt = await one.send(b"x")
        await asyncio.sleep(1)
        assert not receipt.is_stable
        assert other.status().counts["packets-received"] == received
        world.heal()
        world.loss, world.latency, world.duplicate, world.reorder = 0.5, "fixed 2ms", 0.1, 0.1
        assert (world.loss, world.latency, world.duplicate, world.reorder) == (0.5, "fixed 2ms", 0.1, 0.1)
        await receipt.stable()
        assert world.network_counts["lost"] > 0

    testing.run(main)


async def replica(address: str, peers: list[str], seen: list[tuple[str, ...]]) -> None:
    try:
        async with antiphon.join("test", bind=address, peers=peers) as group:
            async for event in group:
                match event:
                    case antiphon.ViewChange(members=members):
                        seen.append(members)
    finally:
        seen.append(("finally",))


def spawned(world: World, count: int = 3) -> dict[str, list[tuple[str, ...]]]:
    addresses = world.addresses(count)
    views: dict[str, list[tuple[str, ...]]] = {address: [] for address in addresses}
    for own in addresses:
        world.spawn(own, replica, own, [peer for peer in addresses if peer != own], views[own])
    return views


def test_a_crashed_process_runs_no_more_and_can_be_started_again() -> None:
    async def main(world: World) -> None:
        views = spawned(world)
        first, second, third = views
        await asyncio.sleep(1)
        world.crash(first)
        seen = len(views[first])
        await asyncio.sleep(2)
        assert len(views[first]) == seen, "not even its finally runs"
        assert views[second][-1] == (second, third)
        assert first not in world.names
        world.restart(first)
        await asyncio.sleep(2)
        assert views[first][-1] == views[second][-1] == (second, third, first)
        with pytest.raises(UsageError, match="running; crash it first"):
            world.restart(first)

    testing.run(main, seed=2)


def test_a_paused_process_stands_still_and_goes_on() -> None:
    async def main(world: World) -> None:
        steps: list[float] = []

        async def steady() -> str:
            while len(steps) < 10:
                await asyncio.sleep(0.1)
                steps.append(world.now)
            return "done"

        process = world.spawn("steady", steady)
        world.at("250ms", world.pause, "steady")
        world.at(5.0, world.resume, "steady")
        assert await process == "done"
        assert steps[1] < 0.25 < 5.0 <= steps[2]

    testing.run(main)


@pytest.mark.parametrize("planned", ["crash", "pause"])
def test_what_is_planned_for_later_than_the_end_befalls_no_process(planned: str) -> None:
    happened: list[str] = []

    async def slow_to_end(name: str) -> None:
        happened.append(f"{name} begins")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            happened.append(f"{name} ends")

    async def main(world: World) -> None:
        for name in ("a", "b"):
            world.spawn(name, slow_to_end, name)
        await asyncio.sleep(0.1)
        world.crash("b")
        world.at("0.5s", getattr(world, planned), "a")
        world.at("0.6s", world.restart, "b")

    testing.run(main)
    assert happened == ["a begins", "b begins", "a ends"]


def test_a_paused_member_is_left_out_and_joins_again() -> None:
    async def main(world: World) -> None:
        groups = await joined(world)
        world.pause(world.names[0])
        await asyncio.sleep(2)
        assert len(groups[1].status().members) == 2
        world.resume(world.names[0])
        await asyncio.sleep(2)
        assert len(groups[0].status().members) == len(groups[1].status().members) == 3

    testing.run(main, seed=3)


def test_a_group_outside_any_process_crashes_alone() -> None:
    async def main(world: World) -> None:
        groups = await joined(world)
        receipt = await groups[0].send(b"x")
        world.crash(world.names[0])
        with pytest.raises(antiphon.Unknown):
            await receipt.stable()
        with pytest.raises(antiphon.GroupClosed):
            await groups[0].send(b"y")
        await asyncio.sleep(1)
        assert len(groups[1].status().members) == 2

    testing.run(main)


def test_state_is_transferred_and_disks_outlive_crashes() -> None:
    async def store(own: str, peers: list[str], data: list[bytes]) -> None:
        def restore(state: bytes) -> None:
            data[:] = state.split(b",")

        async with antiphon.join(
            "test", bind=own, peers=peers, snapshot=lambda: b",".join(data), restore=restore
        ) as group:
            await group.send(own.encode())
            async for event in group:
                match event:
                    case antiphon.Message(payload=payload):
                        data.append(payload)

    async def main(world: World) -> None:
        addresses = world.addresses(3)
        stores: dict[str, list[bytes]] = {own: [] for own in addresses}
        for own in addresses:
            world.spawn(own, store, own, [peer for peer in addresses if peer != own], stores[own])
        await asyncio.sleep(1)
        world.crash(addresses[0])
        await asyncio.sleep(1)
        stores[addresses[0]].clear()
        world.restart(addresses[0])
        await asyncio.sleep(1)
        assert stores[addresses[0]] == stores[addresses[1]] == stores[addresses[2]]
        assert len(stores[addresses[0]]) == 4

    with testing.simulated(seed=4, loss=0.05) as world:
        world.run(main)
    assert {incarnation_of(event.member) for event in world.events} == {1, 2}, (
        "the second life knows that it is the second"
    )


def test_two_join_while_the_others_are_busy() -> None:
    """The first joiner's state is due from applications that have seen the second join when they come to it."""

    async def member(own: str, peers: list[str], data: list[bytes], busy_s: float) -> None:
        def restore(state: bytes) -> None:
            data[:] = filter(None, state.split(b","))

        async with antiphon.join(
            "test", bind=own, peers=peers, snapshot=lambda: b",".join(data), restore=restore
        ) as group:
            await group.send(own.encode())
            await asyncio.sleep(busy_s)
            async for event in group:
                match event:
                    case antiphon.Message(payload=payload):
                        data.append(payload)

    async def main(world: World) -> None:
        addresses = world.addresses(5)
        stores: dict[str, list[bytes]] = {own: [] for own in addresses}
        for index, own in enumerate(addresses):
            world.spawn(own, member, own, [peer for peer in addresses if peer != own], stores[own], 3 * (index < 3))
            await asyncio.sleep(0.5 * (index >= 2))
        await asyncio.sleep(10)
        assert len(stores[addresses[0]]) == 5
        assert all(data == stores[addresses[0]] for data in stores.values())

    for seed in range(3):
        testing.run(main, seed=seed, loss=0.05)


# Guarantees


def test_faults_by_chance_keep_every_promise() -> None:
    async def main(world: World) -> None:
        spawned(world)
        await world.quiet()
        await asyncio.sleep(3)
        assert len(world.names) == 3

    kinds = set()
    for seed in range(6):
        with testing.simulated(seed, loss=0.05, faults=testing.Faults(count=4, within="1s")) as world:
            world.run(main)
        kinds |= {event.event for event in world.events}
    assert {"view", "crash"} <= kinds


def test_traces_can_be_written_and_read(tmp_path: Path) -> None:
    with testing.simulated(5, loss=0.1) as world:
        world.run(lambda world: chatter(world, ordering="causal"))
    world.write_trace(tmp_path / "trace")
    trace = read(tmp_path / "trace")
    assert len(trace.events) == len(world.events) > 100
    assert {"causal", "agreement", "view-synchrony"} <= set(trace.promised or ())


# What cannot go on, and what is not simulated


def stuck(main: Coroutine[Any, Any, Any] | Any, **options: Any) -> str:
    with pytest.raises(testing.Stuck) as caught:
        testing.run(main, **options)
    return str(caught.value)


def test_who_waits_for_what_is_said() -> None:
    async def consumer(queue: asyncio.Queue[int]) -> None:
        await queue.get()

    async def main() -> None:
        await consumer(asyncio.Queue())

    said = stuck(main())
    assert "nothing is left to happen" in said
    assert "in consumer: await queue.get(), in Queue.get" in said


def test_a_group_that_waits_for_ever_is_described() -> None:
    async def main(world: World) -> None:
        groups = await joined(world, 3)
        world.partition(world.addresses(3)[:1], world.addresses(3)[1:2])
        await asyncio.sleep(2)
        receipt = await groups[0].send(b"x")
        await receipt.stable()

    said = stuck(main)
    assert "await receipt.stable()" in said
    assert "10.0.0.1:7000: stalled" in said
    assert "fault: partition 10.0.0.1:7000 | 10.0.0.2:7000" in said


def test_endless_polling_and_spinning_are_ended() -> None:
    async def poll() -> None:
        while True:
            await asyncio.sleep(0.5)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    assert "still running after 60" in stuck(poll(), limit="1min")
    assert "the clock stands still" in stuck(spin())


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: asyncio.open_connection("example.org", 80), "create_connection: a simulated loop has no input"),
        (lambda: asyncio.start_server(print, "127.0.0.1", 0), "create_server"),
        (lambda: asyncio.create_subprocess_exec("true"), "subprocess_exec"),
        (lambda: asyncio.to_thread(print), "threads run in real time"),
        (lambda: asyncio.sleep(time.sleep(1) or 0), r"time.sleep\(1\) would stop the loop"),
    ],
    ids=["connection", "server", "subprocess", "thread", "sleep"],
)
def test_what_is_real_is_refused(act: Any, said: str) -> None:
    async def main() -> None:
        await act()

    with pytest.raises(testing.NotSimulated, match=said):
        testing.run(main())


def test_threads_may_be_run_in_place() -> None:
    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(sum, [1, 2])

    assert testing.run(main(), inline_threads=True) == 3


def test_errors_are_not_lost() -> None:
    async def fails() -> None:
        raise ValueError("in a process")

    async def forgotten() -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        assert task.done()

    async def in_a_cycle() -> None:  # only the garbage collector frees it, after the run
        task = asyncio.create_task(fails())
        task.itself = task  # type: ignore[attr-defined]
        await asyncio.sleep(1)

    async def callback() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 // 0)
        await asyncio.sleep(2)

    async def process(world: World) -> None:
        world.spawn("p", fails)
        await asyncio.sleep(1)

    async def ends_badly() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("while it was ended")

    async def task_at_the_end(world: World) -> None:
        world.kept = asyncio.create_task(ends_badly())  # type: ignore[attr-defined]
        await asyncio.sleep(1)

    async def yields() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("while it was closed")

    async def generator_at_the_end(world: World) -> None:
        world.kept = yields()  # type: ignore[attr-defined]
        await anext(world.kept)  # type: ignore[attr-defined]

    async def never_run(world: World) -> None:
        world.at("1s", fails)
        await asyncio.sleep(2)

    kinds = (
        (forgotten, ValueError),
        (in_a_cycle, ValueError),
        (callback, ZeroDivisionError),
        (process, ValueError),
        (task_at_the_end, ValueError),
        (generator_at_the_end, ValueError),
        (never_run, UsageError),
    )
    for main, kind in kinds:
        with pytest.raises(kind) as caught:
            testing.run(main, seed=9)
        assert any("seed 9" in note for note in caught.value.__notes__)


def test_a_world_does_not_run_inside_a_loop() -> None:
    async def main() -> None:
        testing.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="inside a running loop"):
        asyncio.run(main())


def test_where_membership_is_fixed_a_group_may_begin_anew(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        for _ in range(2):
            groups = await joined(world, 2, views=False)
            await (await groups[0].send(b"x")).stable()
            await asyncio.sleep(0.2)
            await asyncio.gather(*(group.leave() for group in groups))

    with testing.simulated() as world:
        world.run(main)
    assert list(world.runs) == ["test", "test 2"]
    world.write_trace(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["test", "test 2"]


def test_wrong_names_are_named() -> None:
    async def crash(world: World) -> None:
        await joined(world)
        world.crash("nobody:1")

    async def partition(world: World) -> None:
        groups = await joined(world)
        world.partition(["nobody:1"])
        await groups[0].leave()

    async def twice(world: World) -> None:
        await joined(world)
        await joined(world)

    async def found_by_name(world: World) -> None:
        async with antiphon.join("g", bind="alice:1", discover="peers", members=1):
            pass

    for main, said in (
        (found_by_name, "bind: alice:1 is a name; with discover take numeric addresses"),
        (crash, "'nobody:1' is not running"),
        (partition, "names 'nobody:1', which never joined"),
        (twice, "is in use"),
    ):
        with pytest.raises(UsageError, match=said):
            testing.run(main)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"unexamined": "total"}, "unexamined: must be several names"),
        ({"unexamined": ["totl"]}, "unexamined: 'totl' is none of"),
        ({"loss": "0.1"}, "loss: must be a number, not str"),
        ({"seed": None}, "seed: must be int, not NoneType"),
        ({"bandwidth": 1.5}, "bandwidth: must be int, not float"),
    ]
    for options, said in wrong:
        with pytest.raises(UsageError, match=said):
            testing.simulated(**options)
    with pytest.raises(UsageError, match=r"faults\.kinds: unknown 'flood'"):
        testing.simulated(faults=testing.Faults(kinds=("flood",)))


def test_the_program_in_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    exec(compile(program, "docs/testing.md", "exec"), {"__name__": "documented"})
    (said,) = capsys.readouterr().out.splitlines()
    assert f"prints `{said}`" in page


def test_members_that_end_in_good_order_are_examined() -> None:
    """Processes that take part until the test is over all leave then; what they did before is judged nevertheless."""

    async def member(own: str, peers: list[str], ordering: Any) -> None:
        async with antiphon.join("test", bind=own, peers=peers, ordering=ordering) as group:
            for number in range(5):
                await group.send(f"{own} {number}".encode())
            async for _ in group:
                pass

    async def main(world: World, ordering: Any) -> None:
        addresses = world.addresses(3)
        for own in addresses:
            world.spawn(own, member, own, [peer for peer in addresses if peer != own], ordering)
        await asyncio.sleep(2)

    with testing.simulated(seed=5) as world:
        world.run(lambda world: main(world, "total"))
    (run,) = world.runs.values()
    verdicts = naive.check(run.complete_events(), guarantees=run.promises())
    for name in ("integrity", "validity", "agreement", "fifo", "total"):
        assert (name, verdicts[name].verdict) == (name, "holds")
    with pytest.raises(testing.Violated, match="total is violated"), testing.simulated(seed=5) as world:
        world.run(lambda world: main(world, DisorderlySequencer))


def test_who_forgets_its_state_before_it_got_in_may_come_in_the_same_incarnation() -> None:
    """Once its trace lay apart from the others', which then delivered what nobody had sent."""
    run = Run("test", {}, GroupOptions(), views=True)
    run.logs.append(IncarnationTrace(10_001, lambda: 0))
    run.logs[0].record(1, "crash", None, None, None, None)
    assert not run.has(10_001)
    run.logs[0].install(2, 3, (0, 10_001))
    assert run.has(10_001)


async def says_two_words(own: str, peers: list[str], settings: dict[str, Any]) -> None:
    async with antiphon.join("test", bind=own, peers=peers, state=f"/{own}", **settings) as group:
        for word in (b"one", b"two"):
            await group.send(word)
        async for _ in group:
            pass


def test_who_comes_back_without_its_state_is_not_the_process_that_the_others_knew() -> None:
    """The others knew its number as one that is gone, and let it in under it again: its messages came twice."""

    async def main(world: World) -> None:
        first, other = world.addresses(2)
        world.spawn(first, says_two_words, first, [other], {})
        world.spawn(other, says_two_words, other, [first], {})
        await asyncio.sleep(2)
        world.crash(other)
        await asyncio.sleep(2)
        world.disk.replace(Path(f"/{other}"), {})
        world.restart(other)
        await asyncio.sleep(2)

    with testing.simulated(seed=1) as world:
        world.run(main)
    assert list(world.runs) == ["test"]


def test_a_group_that_is_founded_anew_by_those_who_forgot_it_is_another_run() -> None:
    """One of them comes back once more; its trace lay with the earlier group's, and stability seemed violated."""

    async def main(world: World) -> None:
        addresses = world.addresses(2)
        for own in addresses:
            world.spawn(own, says_two_words, own, [one for one in addresses if one != own], {})
        await asyncio.sleep(2)
        for own in addresses:
            world.crash(own)
            world.disk.replace(Path(f"/{own}"), {})
        for own in addresses:
            world.restart(own)
        await asyncio.sleep(2)
        world.crash(addresses[1])
        await asyncio.sleep(2)
        world.restart(addresses[1])
        await asyncio.sleep(2)

    with testing.simulated(seed=1, unexamined=["validity", "agreement", "total"]) as world:
        world.run(main)
    assert {name: [log.member for log in run.logs] for name, run in world.runs.items()} == {
        "test": [0, 1],
        "test 2": [0, 1, 10_001],
    }


def test_a_run_in_which_one_number_means_two_processes_is_not_judged() -> None:
    """Its trace cannot say which of the two sent what."""
    run = Run("test", {}, GroupOptions(), views=True)
    for log in (IncarnationTrace(0, lambda: 0), IncarnationTrace(1, lambda: 0)):
        run.add(log)
        log.install(1, 1, (0, 1))
        log.record(2, "deliver", 0, 1, 1, None)
    run.twice = "10.0.0.3:7000"
    with pytest.raises(testing.Unexamined, match=r"7000 lost its state and was let in twice as one incarnation"):
        run.check(global_clock=True)
    run.check(global_clock=True, unexamined=run.config.promises())


def test_what_was_under_way_when_a_member_left_is_not_asked_of_it() -> None:
    """The last messages of a view whose next ones have none: who had left by then need not have them."""

    async def main(world: World) -> None:
        groups = await joined(world, 3, ordering="fifo")
        await (await groups[0].send(b"first")).stable()
        world.cut(world.addresses(1), world.addresses(3)[2:])
        leaving = asyncio.ensure_future(groups[2].leave())
        await groups[0].send(b"under way")
        await leaving
        await asyncio.gather(groups[0].leave(), groups[1].leave())

    testing.run(main)


def test_who_was_left_behind_while_it_left_did_not_leave_in_good_order() -> None:
    """Cut off, it waits in vain for its own message, and is gone when it hears that the others went on without it."""

    async def main(world: World) -> None:
        groups = await joined(world, 3, ordering="total")
        await (await groups[0].send(b"first")).stable()
        cut = world.partition(world.addresses(3)[2:], world.addresses(2))
        receipt = await groups[2].send(b"never ordered")
        leaving = asyncio.ensure_future(groups[2].leave())
        await asyncio.sleep(5.2)  # it waits no more, and says farewell
        cut.heal()
        await leaving
        assert receipt.outcome == "unknown"
        await asyncio.gather(groups[0].leave(), groups[1].leave())

    testing.run(main)


def test_who_waits_for_lost_states_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The first of two loses its state: everyone is heard, nobody can decide, and the log says what may be done."""

    async def member(own: str, peers: list[str]) -> None:
        async with antiphon.join("test", bind=own, peers=peers, state=f"/{own}") as group:
            async for _ in group:
                pass

    async def main(world: World) -> None:
        first, other = world.addresses(2)
        world.spawn(first, member, first, [other])
        world.spawn(other, member, other, [first])
        await asyncio.sleep(2)
        world.crash(first)
        world.disk.replace(Path(f"/{first}"), {})
        world.restart(first)
        await asyncio.sleep(10)

    testing.run(main, seed=1)
    stalls = [record.message for record in caplog.records if "stalled" in record.message]
    assert stalls
    assert "came back without their state" in stalls[-1]


class DisorderlySequencer(Fifo):
    """Promises one order, and gives each member's own."""

    PROMISES = ("fifo", "total")


def test_a_promise_of_which_nothing_can_be_examined_fails() -> None:
    async def main(world: World) -> None:
        groups = await joined(world, 2)
        await (await groups[0].send(b"x")).stable()
        await asyncio.sleep(0.2)
        for address in world.addresses(2):
            world.crash(address)

    with pytest.raises(testing.Unexamined, match="nothing of validity could be examined: of 2 incarnations 2 crashed"):
        testing.run(main)
    testing.run(main, unexamined=["validity", "agreement"])


def test_a_trace_tells_names_and_what_was_done_to_processes(tmp_path: Path) -> None:
    async def member(own: str) -> None:
        others = [one for one in ("a:1", "b:1", "c:1") if one != own]
        async with antiphon.join("g", bind=own, peers=others) as group:
            async for _ in group:
                pass

    async def main(world: World) -> None:
        for own in ("a:1", "b:1", "c:1"):
            world.spawn(own[0], member, own)
        await asyncio.sleep(1)
        parted = world.partition(["a"], ["b:1", "c:1"])
        await asyncio.sleep(0.25)
        parted.heal()
        world.cut(["a"], ["b"])
        world.heal()
        world.pause("b")
        await asyncio.sleep(0.25)
        world.resume("b")
        world.step_clock("c", "-2s")
        world.crash("c")

    with testing.simulated(1) as world:
        world.run(main)
    world.write_trace(tmp_path / "trace")
    about = json.loads((tmp_path / "trace" / "run.json").read_text())
    assert about["names"] == {"0": "a", "1": "b", "2": "c"}
    assert about["faults"] == [
        {"kind": "partition", "at": "1000000000ns", "until": "1250000000ns", "groups": [[0], [1, 2]]},
        {"kind": "cut", "at": "1250000000ns", "until": "1250000000ns", "from": [0], "to": [1]},
        {"kind": "pause", "at": "1250000000ns", "until": "1500000000ns", "member": 1},
        {"kind": "clock", "at": "1500000000ns", "by": "back by 2 s", "member": 2},
        {"kind": "crash", "at": "1500000000ns", "member": 2},
    ]
