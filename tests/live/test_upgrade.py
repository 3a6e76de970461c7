"""Members of releases that speak different versions of the wire: what a group speaks, who is let in, nothing lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon.live import member as live_member
from antiphon.protocol.wire import VERSIONS
from antiphon.testing import run as simulate
from antiphon.testing.torture.judge import judge
from antiphon.testing.torture.run import run as torture
from antiphon.testing.torture.schedule import ORDERINGS, TOTAL, draw
from stack.known import is_drawn
from support.live_group import free_addresses, run
from support.wire_versions import DrawnReleases, FourthCodec, ThirdCodec, release

OLD, NEW, LATER = (2,), (2, 3), (3, 4)
SIMULATED = [f"10.0.0.{number}:7001" for number in range(1, 5)]


@pytest.fixture(autouse=True)
def releases() -> Iterator[None]:
    before = dict(VERSIONS)
    yield
    VERSIONS.clear()
    VERSIONS.update(before)


class Application:
    """A member whose state is all that it delivered; it sends without a pause, and remembers what became stable."""

    def __init__(self, name: str, addresses: list[str], own: str, **settings: Any) -> None:
        self.name, self.history, self.stable = name, list[bytes](), list[bytes]()
        others = [address for address in addresses if address != own]
        self.group = antiphon.join(
            "upgraded", bind=own, peers=others, snapshot=self._snapshot, restore=self._restore, **settings
        )
        self.versions: tuple[int, ...] = ()
        self._tasks: list[asyncio.Task[None]] = []

    def _snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.history)

    def _restore(self, state: bytes) -> None:
        self.history = msgspec.msgpack.decode(state, type=list[bytes])

    async def start(self, *versions: int) -> None:
        """Join, as a release that knows these versions."""
        self.versions = versions
        release(*versions)
        await self.group.__aenter__()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._send())]

    async def stop_sending(self) -> None:
        """Send no more, and wait until all that was sent is stable."""
        self._tasks[1].cancel()
        with suppress(asyncio.CancelledError):
            await self._tasks[1]

    async def leave(self) -> None:
        await self.stop_sending()
        await self.group.leave()
        await self._tasks[0]

    async def _read(self) -> None:
        async for event in self.group:
            if isinstance(event, antiphon.Message):
                self.history.append(event.payload)

    async def _send(self) -> None:
        for number in range(1_000_000):
            payload = f"{self.name} {number}".encode()
            receipt = await self.group.send(payload)
            if number % 5 == 0:
                await receipt.stable()
                self.stable.append(payload)
            await asyncio.sleep(0.005)

    @property
    def wire(self) -> int:
        return self.group.status().wire


def check(present: list[Application], gone: list[Application], *, total: bool) -> None:
    """Judge: all hold the same, with all that was ever acknowledged, each once and in its sender's order."""
    histories = [one.history for one in present]
    for history in histories:
        assert history == histories[0] if total else sorted(history) == sorted(histories[0])
        assert len(set(history)) == len(history)
        for one in (*present, *gone):
            assert len(one.stable) > 3, "there was load"
            assert set(one.stable) <= set(history)
            own = [int(payload.split()[1]) for payload in history if payload.startswith(one.name.encode() + b" ")]
            assert own == sorted(own)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def spoken_by(present: list[Application]) -> None:
    """Wait until all speak the newest version that all of them know."""
    expected = min(max(one.versions) for one in present)
    await until(lambda: {one.wire for one in present} == {expected})


async def replaced_one_by_one(
    addresses: list[str], before: tuple[int, ...], after: tuple[int, ...], ordering: str, **settings: Any
) -> None:
    """Replace every member of a group under load by one of another release, and judge what all saw."""

    def application(name: str, own: str) -> Application:
        return Application(name, addresses, own, ordering=ordering, **settings)

    present = [application(f"old-{number}", own) for number, own in enumerate(addresses)]
    gone: list[Application] = []
    await asyncio.gather(*(one.start(*before) for one in present))
    await spoken_by(present)
    for number, own in enumerate(addresses):
        await until(lambda: all(len(one.stable) > 3 for one in present))
        gone.append(present.pop(0))
        await gone[-1].leave()
        await spoken_by(present)
        present.append(application(f"new-{number}", own))
        await present[-1].start(*after)
        await spoken_by(present)
    await until(lambda: all(len(one.stable) > 3 for one in present))
    await asyncio.gather(*(one.stop_sending() for one in present))
    last = {f"{one.name} {10**9}".encode() for one in present}
    for one in present:
        await one.group.send(f"{one.name} {10**9}".encode())
    await until(lambda: all(last <= set(one.history) for one in present))
    check(present, gone, total=ordering in (*TOTAL, "total"))
    await asyncio.gather(*(one.leave() for one in present))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW, OLD)], ids=["upgrade", "downgrade"])
def test_every_member_is_replaced_by_one_of_another_release(
    ordering: str, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    written = ThirdCodec.written
    simulate(replaced_one_by_one(SIMULATED[:3], before, after, ordering))
    assert ThirdCodec.written > written + 20


@pytest.mark.parametrize("key", [None, bytes(16)], ids=["plain", "sealed"])
def test_every_member_of_a_live_group_is_replaced_by_one_of_another_release(key: bytes | None, tmp_path: Path) -> None:
    written = ThirdCodec.written
    run(replaced_one_by_one(free_addresses(3), OLD, NEW, "total", key=key, state=tmp_path, leave_s=5.0))
    assert ThirdCodec.written > written


def test_who_knows_only_later_versions_waits_until_those_with_older_ones_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        first, second, third = (Application(str(one), SIMULATED[:4], SIMULATED[one]) for one in range(3))
        await asyncio.gather(first.start(*OLD), second.start(*NEW), third.start(*NEW))
        late = Application("late", SIMULATED[:4], SIMULATED[3])
        joining = asyncio.create_task(late.start(*LATER))
        await asyncio.sleep(1.5)
        assert not joining.done(), "two of three understand it: it may hope"
        assert {one.wire for one in (first, second, third)} == {2}
        assert {len(one.group.status().members) for one in (first, second, third)} == {3}
        assert late.group.discovered["refused-other-version"] > 0
        assert first.group.status().counts["refused-other-version"] > 0
        await first.leave()
        await joining
        await spoken_by([second, third, late])
        assert late.wire == 3
        await until(lambda: len(late.stable) > 3)
        await asyncio.gather(*(one.leave() for one in (second, third, late)))

    caplog.set_level(logging.INFO, "antiphon")
    simulate(test())
    said = [record.getMessage() for record in caplog.records if "; version " in record.getMessage()]
    assert any(f": {', '.join(SIMULATED[1:4])}; version 3 of the wire" in text for text in said)
    assert all(("version 2" in text) == (SIMULATED[0] in text) for text in said), "the first knows no other"


def test_a_group_of_a_later_release_speaks_its_newest_version() -> None:
    async def test() -> None:
        written = FourthCodec.written
        present = [Application(str(one), SIMULATED[:3], SIMULATED[one]) for one in range(3)]
        await asyncio.gather(*(one.start(*LATER) for one in present))
        await spoken_by(present)
        await until(lambda: all(len(one.stable) > 3 for one in present))
        assert FourthCodec.written > written
        await asyncio.gather(*(one.leave() for one in present))

    simulate(test())


def test_where_views_do_not_change_all_speak_their_newest_version_and_no_other() -> None:
    async def test() -> None:
        def join(own: str, *versions: int) -> Coroutine[Any, Any, antiphon.Group]:
            release(*versions)
            others = [peer for peer in SIMULATED[:2] if peer != own]
            return antiphon.join("fixed", bind=own, peers=others, views=False).__aenter__()

        one, other = await join(SIMULATED[0], *NEW), await join(SIMULATED[1], *OLD)
        assert (one.status().wire, other.status().wire) == (3, 2)
        for group in (one, other):
            await until(lambda group=group: group.status().counts.get("refused-other-version", 0) > 0)  # type: ignore[misc]
        await asyncio.gather(one.stop(), other.stop())

    simulate(test())


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_wrong_with_random_schedules_of_mixed_releases(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes, cuts, pauses and restarts, and whoever starts is of one release or of the other."""
    done, seed, written = 0, 2_000_000 + part * 1_000, ThirdCodec.written
    while done < 10:
        schedule = draw(seed, small=True)
        if is_drawn(schedule):
            monkeypatch.setattr(live_member, "VERSIONS", DrawnReleases(seed, OLD, NEW))
            flaws, _ = judge(torture(schedule))
            assert not flaws, f"seed {seed}: {flaws[0]}"
            done += 1
        seed += 1
    assert ThirdCodec.written > written
