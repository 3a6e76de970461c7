"""The application's state: of any size and kind, in bounded memory, from whoever has it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import tempfile
import threading
import tracemalloc
import warnings
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import testing
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.burst import BurstReader, MessageCutter, encode
from antiphon.live.spill import MEMORY_BYTES_MAX
from antiphon.live.state import ArrivingState, Spool, StateKeeper
from antiphon.protocol.machine import Chunk, ReadChunk, Release, RestoreChunk, Snapshot
from antiphon.testing.host import InlineExecutor
from support.live_group import free_addresses, run

SIZES = [0, 1, 5_000, MEMORY_BYTES_MAX + 12_345]


class Pair:
    """An older member's keeper and a joiner's; what one reads the other is given."""

    def __init__(self, snapshot: Callable[[], Any], restore: Callable[[Any], Any]) -> None:
        self.said: list[Snapshot | Chunk] = []
        self.anomalies = Anomalies(MemberLogger("g", "me"))
        self.elder = StateKeeper(snapshot, None, self.said.append, self.anomalies, InlineExecutor())
        self.joiner = StateKeeper(None, restore, self.said.append, self.anomalies, InlineExecutor())

    async def carry(self, view: int = 7, chunk: int = 900_000) -> None:
        reader = BurstReader(10_000)
        reader.messages(3, encode(MessageCutter().cut(b"x" * 2_000, 1_500)[0]))
        self.elder.due(view, reader.unfinished())
        self.elder.capture(view)
        while not self.said:
            await asyncio.sleep(0)
        snapshot = self.said.pop()
        assert isinstance(snapshot, Snapshot)
        assert snapshot.size is not None
        for offset in range(0, max(1, snapshot.size), chunk):
            self.elder.read(ReadChunk(view, offset, chunk, 9))
            read = self.said.pop()
            assert isinstance(read, Chunk)
            self.joiner.receive(RestoreChunk(view, offset, read.data))
        assert self.joiner.received(view) == reader.unfinished()
        await self.joiner.restore(view)
        self.elder.release(Release(view))


@pytest.mark.parametrize("size", SIZES)
def test_bytes_come_as_bytes(size: int) -> None:
    state, got = os.urandom(size), list[bytes]()
    run(Pair(lambda: state, got.append).carry())
    assert got == [state]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["path", "file", "memory"])
def test_files_come_as_files(size: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(state := os.urandom(size))

    def snapshot() -> Any:
        return path if kind == "path" else path.open("rb") if kind == "file" else io.BytesIO(state)

    got: list[bytes] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ResourceWarning)
        run(Pair(snapshot, lambda file: got.append(file.read())).carry())
    assert got == [state]
    assert not said or kind == "file", "what was opened for a path is closed; a file is the application's to close"


def test_a_path_may_be_replaced_at_once(tmp_path: Path) -> None:
    path, got = tmp_path / "state", list[bytes]()
    path.write_bytes(b"as it was" * 100_000)
    pair = Pair(lambda: path, lambda file: got.append(file.read()))

    async def test() -> None:
        carrying = asyncio.create_task(pair.carry())
        await asyncio.sleep(0)
        (tmp_path / "new").write_bytes(b"as it is now")
        (tmp_path / "new").replace(path)
        await carrying

    run(test())
    assert got == [b"as it was" * 100_000]


@pytest.mark.parametrize("size", SIZES)
def test_async_iterators_come_as_async_iterators(size: int) -> None:
    state, got = os.urandom(size), bytearray()

    async def snapshot() -> AsyncIterator[bytes]:
        for start in range(0, size, 100_000):
            yield state[start : start + 100_000]
            await asyncio.sleep(0)

    async def restore(pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            got.extend(piece)

    run(Pair(snapshot, restore).carry())
    assert got == state


class Joiner:
    """A member that joins two others in a simulated world, and reads its stream as a test does."""

    def __init__(self, restore: Callable[[Any], Any]) -> None:
        self._restore = restore
        self.group: antiphon.Group

    async def read(self, world: testing.World, read: Callable[[antiphon.Group], Any]) -> None:
        addresses = world.addresses(3)
        settings = {"ordering": "total", "snapshot": lambda: b"the state"}

        async def elder(own: str) -> None:
            peers = [peer for peer in addresses if peer != own]
            async with antiphon.join("g", bind=own, peers=peers, restore=print, **settings) as group:  # type: ignore[arg-type]
                async for _ in group:
                    pass

        for own in addresses[1:]:
            world.spawn(own, elder, own)
        await asyncio.sleep(1)
        own, *peers = addresses
        async with antiphon.join("g", bind=own, peers=peers, restore=self._restore, **settings) as group:  # type: ignore[arg-type]
            await (await group.send(b"first")).delivered()
            await read(group)


def test_a_state_is_taken_in_though_its_reader_gives_up() -> None:
    """Whoever reads with a timeout that is shorter than its `restore` once went on without the state."""
    seen: list[object] = []

    async def restore(state: bytes) -> None:
        await asyncio.sleep(1)
        seen.append(state)

    async def read(group: antiphon.Group) -> None:
        while len(seen) < 3:
            try:
                event = await asyncio.wait_for(anext(aiter(group)), 0.3)
            except TimeoutError:
                continue
            seen.append(event.payload if isinstance(event, antiphon.Message) else type(event))

    testing.run(lambda world: Joiner(restore).read(world, read), seed=1)
    assert seen == [b"the state", antiphon.ViewChange, b"first"]


def test_a_state_that_could_not_be_taken_in_is_given_again() -> None:
    """A `restore` that raised was once passed over: the next who read saw what comes behind a state it had not."""
    seen: list[object] = []

    def restore(state: bytes) -> None:
        seen.append(state)
        if len(seen) < 3:
            raise ValueError("not now")

    async def read(group: antiphon.Group) -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="not now"):
                await anext(group.batches())
        seen.append(type(await anext(aiter(group))))

    testing.run(lambda world: Joiner(restore).read(world, read), seed=1)
    assert seen == [b"the state", b"the state", b"the state", antiphon.ViewChange]


def test_a_restore_that_asks_an_empty_state_for_more_does_not_end_the_stream() -> None:
    """`await anext(state)` of a state without bytes once ended `async for event in group` without a word."""
    seen: list[object] = []

    async def nothing() -> AsyncIterator[bytes]:
        for piece in list[bytes]():
            yield piece

    async def restore(_: bytes) -> None:
        seen.append("restore")
        if len(seen) < 2:
            await anext(nothing())

    async def read(group: antiphon.Group) -> None:
        with pytest.raises(RuntimeError, match="StopAsyncIteration"):
            async for _ in group:
                pass
        seen.append(type(await anext(aiter(group))))

    testing.run(lambda world: Joiner(restore).read(world, read), seed=1)
    assert seen == ["restore", "restore", antiphon.ViewChange]


def test_a_stream_that_is_read_after_the_group_was_left_ends_before_a_state() -> None:
    """What was not given its state sees nothing behind it; that once ended in a KeyError."""
    seen: list[object] = []
    left: list[antiphon.Group] = []

    async def main(world: testing.World) -> None:
        async def read(group: antiphon.Group) -> None:
            left.append(group)

        await Joiner(seen.append).read(world, read)
        seen.extend([event async for event in left[0]])

    testing.run(main, seed=1)
    assert seen == []


@pytest.mark.parametrize("size", SIZES)
def test_a_file_can_be_given_again(size: int) -> None:
    """Each time it is a file of its own, at its beginning, whatever was done to the one before."""
    state, got = os.urandom(size), list[bytes]()

    def restore(file: io.BufferedIOBase) -> None:
        got.append(file.read())
        file.close()
        if len(got) < 2:
            raise ValueError("not now")

    async def test() -> None:
        pair = Pair(lambda: io.BytesIO(state), restore)
        with pytest.raises(ValueError, match="not now"):
            await pair.carry()
        await pair.joiner.restore(7)

    run(test())
    assert got == [state, state]


def test_a_snapshot_of_no_kind_is_said() -> None:
    for wrong in ("text", 7, None, forever()):
        pair = Pair(lambda wrong=wrong: wrong, print)  # type: ignore[misc]
        with pytest.raises(antiphon.UsageTypeError, match=r"^snapshot: must give bytes, a path"):
            run(pair.carry())
        assert pair.anomalies.counts["snapshots-failed"] == 1


async def forever() -> None: ...


def test_a_snapshot_that_breaks_is_counted() -> None:
    async def snapshot() -> AsyncIterator[bytes]:
        yield b"begun"
        raise ValueError("broken")

    async def test() -> None:
        pair = Pair(snapshot, print)
        pair.elder.due(1, [])
        pair.elder.capture(1)
        while not pair.anomalies.counts["snapshots-failed"]:
            await asyncio.sleep(0)
        assert pair.said == [Snapshot(1, None)]

    run(test())


def test_a_state_that_cannot_be_read_any_more_is_given_up_and_its_member_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A temporary file on a disk that fails once ended the elder that served it."""

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    pair = Pair(lambda: b"state", print)
    pair.elder.due(1, [])
    pair.elder.capture(1)
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "read", broken)
    pair.elder.read(ReadChunk(1, 0, 9, 9))
    assert pair.said[1:] == [Snapshot(1, None)]
    pair.elder.read(ReadChunk(1, 0, 9, 9))
    assert len(pair.said) == 2
    assert pair.anomalies.counts["snapshots-failed"] == 1


async def _waits_for_what_is_cancelled() -> AsyncIterator[bytes]:
    yield b"x"
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    await cancelled


def test_an_iterator_that_waits_for_what_is_cancelled_gives_no_state() -> None:
    """Its joiner once waited for ever, and was not told to ask another."""

    async def test() -> None:
        pair = Pair(_waits_for_what_is_cancelled, print)
        pair.elder.due(1, [])
        pair.elder.capture(1)
        while not pair.said:
            await asyncio.sleep(0)
        assert pair.said == [Snapshot(1, None)]
        assert pair.anomalies.counts["snapshots-failed"] == 1

    run(test())


def test_a_snapshot_that_is_interrupted_tells_its_joiner() -> None:
    def snapshot() -> bytes:
        raise KeyboardInterrupt

    pair = Pair(snapshot, print)
    pair.elder.due(1, [])
    with pytest.raises(KeyboardInterrupt):
        pair.elder.capture(1)
    assert pair.said == [Snapshot(1, None)]


@pytest.mark.parametrize("inline", [True, False])
def test_a_state_of_which_a_piece_could_not_be_written_is_not_offered(
    inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk said so at once, the joiner was once given the state without that piece."""
    real, appended = Spool.append, list[bytes]()

    def append(self: Spool, data: bytes) -> None:
        appended.append(data)
        if len(appended) == 2:
            raise antiphon.UsageError("TMPDIR: no room")
        real(self, data)

    async def snapshot() -> AsyncIterator[bytes]:
        for number in range(4):
            yield bytes([number]) * 10

    async def test() -> None:
        said = list[Snapshot | Chunk]()
        worker = InlineExecutor() if inline else ThreadPoolExecutor(1)
        elder = StateKeeper(snapshot, None, said.append, Anomalies(MemberLogger("g", "me")), worker)
        elder.due(1, [])
        elder.capture(1)
        while not said:
            await asyncio.sleep(0)
        assert said == [Snapshot(1, None)]
        elder.close()

    monkeypatch.setattr(Spool, "append", append)
    run(test())


def test_a_state_that_nobody_needs_any_more_is_not_taken() -> None:
    """It once was, and kept in memory and in a file until the group was left."""

    def snapshot() -> bytes:
        raise AssertionError("nobody needs it")

    pair = Pair(snapshot, print)
    pair.elder.due(7, [])
    pair.elder.release(Release(7))
    pair.elder.capture(7)
    assert not pair.said
    assert not pair.elder.has_taken


def test_a_state_that_is_let_go_while_its_last_piece_is_read_is_not_offered() -> None:
    """It once ended a task with "I/O operation on closed file"."""

    async def test() -> None:
        async def snapshot() -> AsyncIterator[bytes]:
            yield b"all"
            pair.elder.release(Release(7))

        pair = Pair(snapshot, print)
        pair.elder.due(7, [])
        pair.elder.capture(7)
        (copying,) = pair.elder._copying
        await copying
        assert not pair.said

    run(test())


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("hurry", [True, False])
def test_who_leaves_gives_a_joiner_the_state_first(reads: bool, hurry: bool) -> None:
    """The last who has it, as in a rolling upgrade of two: once the state was lost, however well it was left."""
    size, seen = 3_000_000, list[int]()

    async def main(world: testing.World) -> float:
        first, second = world.addresses(2)

        def group(own: str, peer: str) -> antiphon.Group:
            restore = lambda state: seen.append(len(state))  # noqa: E731
            return antiphon.join("g", bind=own, peers=[peer], snapshot=lambda: bytes(size), restore=restore)

        async def read(group: antiphon.Group) -> None:
            async for _ in group:
                pass

        async def join() -> None:
            async with group(second, first) as joiner:
                await anext(aiter(joiner))

        elder, other = group(first, second), group(second, first)
        await asyncio.gather(elder.__aenter__(), other.__aenter__())
        await other.leave()
        reading = asyncio.create_task(read(elder)) if reads else None
        joining = asyncio.create_task(join())
        while len(elder.status().members) < 2:
            await asyncio.sleep(0.01)
        began = world.now
        await elder.leave(hurry=hurry)
        took = world.now - began
        await asyncio.gather(joining, *([] if reading is None else [reading]))
        return took

    took = testing.run(main, seed=3, bandwidth=100_000_000, unexamined=["validity", "agreement"])
    assert seen == ([size] if reads and not hurry else [])
    assert took < (2.5 if reads or hurry else 4)


def test_a_group_that_goes_on_without_any_state_says_so() -> None:
    """Whoever is last in a view decides alone, also once it was started anew: the state was lost without a word."""
    lost, streams = list[int](), dict[str, list[antiphon.ViewChange]]()

    async def main(world: testing.World) -> None:
        first, second = world.addresses(2)

        def group(own: str, peer: str) -> antiphon.Group:
            return antiphon.join("g", bind=own, peers=[peer], snapshot=lambda: b"", restore=lambda _: None)

        async def views(group: antiphon.Group) -> list[antiphon.ViewChange]:
            changes = [event async for event in group if isinstance(event, antiphon.ViewChange)]
            lost.append(group.status().counts.get("states-lost", 0))
            return changes

        for _ in range(2):
            groups = [group(first, second), group(second, first)]
            await asyncio.gather(*(one.__aenter__() for one in groups))
            reading = [asyncio.create_task(views(one)) for one in groups]
            await asyncio.sleep(1)
            await asyncio.gather(*(one.stop() for one in groups))
            streams.update(zip((first, second), await asyncio.gather(*reading), strict=True))

    testing.run(main, seed=3, unexamined=["validity", "agreement"])
    assert all(not changes[0].elders and changes[0].view > 1 for changes in streams.values())
    assert lost == [0, 0, 1, 1]


def test_where_snapshot_fails_at_every_elder_a_joiner_comes_anew_and_says_who_could_not() -> None:
    """It once waited for ever: nobody was asked again, not even in the next view."""
    failures, seen, waiting = [0], list[object](), list[antiphon.Status]()

    def snapshot() -> bytes:
        if failures[0] < 6:
            failures[0] += 1
            raise ValueError("not now")
        return b"the state"

    async def main(world: testing.World) -> None:
        addresses = world.addresses(3)

        def group(own: str) -> antiphon.Group:
            peers = [peer for peer in addresses if peer != own]
            return antiphon.join("g", bind=own, peers=peers, snapshot=snapshot, restore=seen.append)

        async def elder(own: str) -> None:
            async with group(own) as joined:
                while True:
                    with contextlib.suppress(ValueError):
                        async for event in joined:
                            if isinstance(event, antiphon.ViewChange) and len(event.members) == 3:
                                await joined.send(b"since")

        async def joiner(own: antiphon.Group) -> None:
            async with own:
                seen.extend([type(await anext(aiter(own))) for _ in range(4)])

        for own in addresses[1:]:
            world.spawn(own, elder, own)
        await asyncio.sleep(1)
        coming = group(addresses[0])
        task = asyncio.create_task(joiner(coming))
        await asyncio.sleep(6)
        waiting.append(coming.status())
        await asyncio.wait_for(task, 20)

    testing.run(main, seed=1)
    assert waiting[0].standing == "joining"
    assert waiting[0].counts["states-refused"] == 2
    assert seen == [b"the state", *[antiphon.Notice] * 3, antiphon.ViewChange]


@pytest.mark.parametrize("piece_bytes", [256 << 10, 8 << 20])
def test_the_loop_goes_on_while_an_iterator_gives_a_state(piece_bytes: int) -> None:
    """An iterator that never waits once kept the loop from everything else: the others took its member for dead."""

    async def snapshot() -> AsyncIterator[bytes]:
        for _ in range((8 << 20) // piece_bytes):
            yield bytes(piece_bytes)

    async def test() -> None:
        pair, turns = Pair(snapshot, print), 0
        pair.elder.due(1, [])
        pair.elder.capture(1)
        while not pair.said:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 32, "a turn of the loop for every 256 KiB"
        pair.elder.close()

    run(test())


def test_a_disk_that_is_busy_does_not_keep_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It made a member look dead to the others: bringing 1 GiB to a joiner took several views."""
    append, state, free = Spool.append, os.urandom(1 << 20), threading.Event()
    in_vain: list[bytes] = []

    def once_it_is_free(self: Spool, data: bytes) -> None:
        in_vain.extend([data] if not free.wait(10) else [])
        append(self, data)

    async def test() -> None:
        pair = Pair(lambda: state, print)
        with ThreadPoolExecutor(1) as worker:
            pair.elder = StateKeeper(lambda: state, None, pair.said.append, pair.anomalies, worker)
            arriving = ArrivingState(worker)
            pair.elder.due(1, [])
            pair.elder.capture(1)
            for start in range(0, len(state), 10_000):
                arriving.append(state[start : start + 10_000])
            await asyncio.sleep(0.05)
            assert not pair.said
            free.set()
            while not pair.said:
                await asyncio.sleep(0.01)
            assert arriving.whole().read(0) == state
            arriving.close()
            pair.elder.close()
        assert not in_vain

    monkeypatch.setattr(Spool, "append", once_it_is_free)
    run(test())


@pytest.mark.parametrize("kind", ["bytes", "file", "iterator"])
def test_a_large_state_kills_nobody(kind: str, tmp_path: Path) -> None:
    """From about 4.9 MB every member that served a state once failed, one after the other."""
    state = os.urandom(6 << 20)
    (tmp_path / "state").write_bytes(state)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(state), 1 << 18):
            yield state[start : start + (1 << 18)]

    async def main(world: testing.World) -> None:
        addresses = world.addresses(3)
        got: list[bytes] = []

        async def restore(given: Any) -> None:
            if isinstance(given, AsyncIterator):
                got.append(b"".join([piece async for piece in given]))
            else:
                got.append(given if isinstance(given, bytes) else given.read())

        def snapshot() -> Any:
            return {"bytes": state, "file": tmp_path / "state", "iterator": pieces()}[kind]

        async def drain(group: antiphon.Group) -> None:
            async for _ in group:
                pass

        groups = [
            antiphon.join(
                "g", bind=own, peers=[one for one in addresses if one != own], snapshot=snapshot, restore=restore
            )
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups[:2]))
        tasks = [asyncio.create_task(drain(group)) for group in groups[:2]]
        await groups[2].__aenter__()
        tasks.append(asyncio.create_task(drain(groups[2])))
        while not got:
            await asyncio.sleep(0.1)
            assert all(group.failure is None for group in groups)
        assert got[0] == state
        for group in groups:
            await (await group.send(b"and on")).stable()
        await asyncio.gather(*(group.leave() for group in groups))
        await asyncio.gather(*tasks)

    testing.run(main)


def test_a_large_state_needs_little_memory(tmp_path: Path) -> None:
    size, piece = 8 << 20, bytes(1 << 18)

    async def test() -> None:
        addresses, got = sorted(free_addresses(2)), 0  # the first stays: of two, the other cannot go on alone

        async def snapshot() -> AsyncIterator[bytes]:
            for _ in range(size // len(piece)):
                yield piece

        async def restore(pieces: AsyncIterator[bytes]) -> None:
            nonlocal got
            async for one in pieces:
                got += len(one)

        async def drain(group: antiphon.Group) -> None:
            async for _ in group:
                pass

        def join(own: str) -> antiphon.Group:
            others = [peer for peer in addresses if peer != own]
            return antiphon.join("g", bind=own, peers=others, snapshot=snapshot, restore=restore, state=tmp_path)

        one, other = map(join, addresses)
        await asyncio.gather(one.__aenter__(), other.__aenter__())
        draining = asyncio.create_task(drain(one))
        await other.stop()
        while len(one.status().members) > 1:
            await asyncio.sleep(0.02)
        tracemalloc.start()
        again = join(addresses[1])
        await again.__aenter__()
        draining_again = asyncio.create_task(drain(again))
        while got < size:
            await asyncio.sleep(0.02)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 5 << 20, "both members and all that is under way, in one process"
        await asyncio.gather(one.stop(), again.stop())
        await asyncio.gather(draining, draining_again)

    run(test())
