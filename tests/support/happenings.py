"""What can happen to a group, live and simulated.

Live, it happens to three encrypted members in one process, whose packets are lost or cut off on arrival.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import antiphon
from antiphon.live.session import sender_of
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.membership.process import MembershipOptions
from antiphon.protocol.ordering import ORDERINGS
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario
from support.live_group import free_addresses, losing, run

MEMBERS = 3
COUNT = 60  # messages per member
QUICK = MembershipOptions(heartbeat_ns=25 * MILLISECOND, suspect_ns=250 * MILLISECOND)


class Life:
    """Three members that come and go, and what each has delivered so far."""

    def __init__(self, stack: AsyncExitStack, settings: dict[str, Any], loss: float) -> None:
        self._stack, self._settings, self._loss = stack, settings, loss
        self._addresses = sorted(free_addresses(MEMBERS))
        self.groups: dict[int, antiphon.Group] = {}
        self.delivered: dict[int, list[bytes]] = {}
        self._sent = 0

    async def join(self, *members: int) -> None:
        await asyncio.gather(*map(self._join, members))

    async def _join(self, member: int) -> None:
        own = self._addresses[member]
        group = antiphon.join(
            "conformance", bind=own, peers=[peer for peer in self._addresses if peer != own], **self._settings
        )
        await self._stack.enter_async_context(group)
        group.transport.lose = losing(self._loss, member)
        self.groups[member], self.delivered[member] = group, []
        listening = asyncio.create_task(self._listen(member, group))
        self._stack.callback(listening.cancel)

    async def _listen(self, member: int, group: antiphon.Group) -> None:
        async for event in group:
            if isinstance(event, antiphon.Message):
                self.delivered[member].append(event.payload)

    async def talk(self, *members: int, wait: bool = True) -> None:
        """Let members send, each at its own pace, and wait until all of them have delivered all of it."""
        texts: set[bytes] = set()

        async def send(member: int) -> None:
            rng = random.Random(member)
            for _ in range(COUNT):
                self._sent += 1
                text = b"%d/%d" % (member, self._sent)
                texts.add(text)
                await self.groups[member].send(text)
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 0.004)

        await asyncio.gather(*map(send, members))
        if wait:
            await self.until(lambda: all(texts <= set(self.delivered[member]) for member in members))

    def cut_off(self, member: int) -> None:
        """Let nothing through between one member and the others."""
        for other, group in self.groups.items():
            foreign = set(range(MEMBERS)) - {member} if other == member else {member}
            group.transport.lose = lambda packet, foreign=foreign: sender_of(packet) in foreign  # type: ignore[misc]

    def heal(self) -> None:
        for group in self.groups.values():
            group.transport.lose = None

    async def end(self) -> None:
        """Wait until everything is held by all, and stop."""
        self.heal()
        there = [group for group in self.groups.values() if group.status().standing != "left"]
        await self.until(lambda: all(group.status().held == 0 for group in there))
        await asyncio.gather(*(group.stop() for group in there))

    async def until_view_of(self, *members: int) -> None:
        addresses = {self._addresses[member] for member in members}
        await self.until(lambda: all(set(self.groups[member].status().members) == addresses for member in members))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.01)


async def only_talk(life: Life) -> None:
    await life.join(0, 1, 2)
    await life.talk(0, 1, 2)


async def one_leaves(life: Life) -> None:
    await only_talk(life)
    life.heal()  # so that the last words arrive
    await life.groups[2].leave()
    await life.talk(0, 1)


async def one_joins_late(life: Life) -> None:
    await life.join(0, 1)
    await life.talk(0, 1)
    await life.join(2)
    await life.until_view_of(0, 1, 2)
    await life.talk(0, 1, 2)


async def one_crashes(life: Life) -> None:
    await life.join(0, 1, 2)
    await life.until_view_of(0, 1, 2)
    await life.talk(0, 1, 2, wait=False)
    await life.groups[2].stop()
    await life.talk(0, 1)
    await life.until_view_of(0, 1)


async def one_is_cut_off_for_a_while(life: Life) -> None:
    await life.join(0, 1, 2)
    await life.until_view_of(0, 1, 2)
    await life.talk(0, 1, 2, wait=False)
    life.cut_off(2)
    await life.until_view_of(0, 1)
    await life.talk(0, 1)
    life.heal()
    await life.until_view_of(0, 1, 2)
    await life.talk(0, 1, 2)


class Happening(NamedTuple):
    """What happens live, and the same for the simulator."""

    live: Callable[[Life], Awaitable[None]]
    views: bool
    loss: float
    faults: tuple[Fault, ...] = ()
    founders: int = MEMBERS


HAPPENINGS = {
    "loss": Happening(only_talk, views=False, loss=0.2),
    "leave": Happening(one_leaves, views=True, loss=0.2, faults=(Fault(kind="leave", member=2, at="50ms"),)),
    "join": Happening(
        one_joins_late, views=True, loss=0.1, faults=(Fault(kind="join", member=2, at="50ms"),), founders=2
    ),
    "crash": Happening(one_crashes, views=True, loss=0.1, faults=(Fault(kind="crash", member=2, at="50ms"),)),
    "partition": Happening(
        one_is_cut_off_for_a_while,
        views=True,
        loss=0.0,
        faults=(Fault(kind="partition", groups=[[0, 1], [2]], at="50ms", until="2s"),),
    ),
}


def lived_trace(happening: Happening, ordering: str, folder: Path) -> Path:
    """Let it happen to live members; give the folder with their trace."""

    async def live() -> None:
        settings = {
            "ordering": ordering,
            "views": happening.views,
            "membership": QUICK,
            "key": os.urandom(16),
            "state": folder / "state",
            "trace": folder / "trace",
            "leave_s": 1.0,
        }
        async with AsyncExitStack() as stack:
            life = Life(stack, settings, happening.loss)
            await happening.live(life)
            await life.end()
            check_streams(life.delivered, total="total" in ORDERINGS[ordering].PROMISES)

    run(live())
    return folder / "trace"


def check_streams(delivered: dict[int, list[bytes]], *, total: bool) -> None:
    """See the same from the applications' side: nothing twice, each sender's in order, and all alike if that is so."""
    for stream in delivered.values():
        assert len(stream) == len(set(stream))
        for sender in range(MEMBERS):
            own = [int(text.split(b"/")[1]) for text in stream if text.startswith(b"%d/" % sender)]
            assert own == sorted(own)
    for one in delivered.values():
        for other in delivered.values() if total else ():
            common = set(one) & set(other)
            assert [text for text in one if text in common] == [text for text in other if text in common]


def scenario(happening: Happening, ordering: str) -> Scenario:
    """Give the same for the simulator."""
    return Scenario.of(
        "paper",
        members=MEMBERS,
        messages=COUNT,
        ordering=ordering,
        views=happening.views,
        founders=happening.founders,
        membership=QUICK,
        network=NetworkOptions(loss=happening.loss),
        faults=list(happening.faults),
    )
