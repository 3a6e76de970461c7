"""Packets by the hundred thousand from one who hears everything and has no key: none is taken, no view waits for it."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import antiphon
from antiphon.live.session import PlainSession, SealedSession, sender_of
from support.live_group import free_addresses

pytest.importorskip("cryptography")

AT_ONCE = 50
LIMIT_S = 600.0
KINDS = ("random", "mutated", "forged", "earlier-life", "this-life", "other-group", "unsealed")


class Attacker:
    """Makes packets of all kinds, of what it has heard and of what it makes up."""

    def __init__(self, key: bytes, seed: int) -> None:
        self._rng = random.Random(seed)
        self.earlier: list[bytes] = []  # heard in an earlier life of the group
        self.present: list[bytes] = []  # heard in this one by the member that is attacked
        self._others = [SealedSession("other", name, [key]) for name in range(3)]  # have the key, in another group
        self._strangers = [SealedSession("attacked", name, [os.urandom(16)]) for name in range(3)]

    def packet(self) -> bytes:
        rng = self._rng
        heard = self.present or self.earlier
        match rng.choice(KINDS):
            case "random":
                return rng.randbytes(rng.randrange(1, 1_400))
            case "mutated":
                mutated = bytearray(rng.choice(heard))
                mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
                return bytes(mutated[: rng.randrange(1, len(mutated) + 1)])
            case "forged":
                return rng.choice(self._strangers).seal(rng.randbytes(rng.randrange(1, 1_000)))
            case "other-group":
                return rng.choice(self._others).seal(rng.randbytes(rng.randrange(1, 1_000)))
            case "unsealed":
                return PlainSession(rng.randrange(3)).seal(rng.randbytes(rng.randrange(1, 1_000)))
            case "this-life":
                return rng.choice(heard)
            case _:
                return rng.choice(self.earlier)


class Attacked:
    """A group of three names, of which two come back; what they deliver, and what their attacker sends."""

    def __init__(self, folder: Path) -> None:
        self.addresses, self.key = sorted(free_addresses(3)), os.urandom(16)
        self.attacker = Attacker(self.key, 1)
        self._folder = folder
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sent = dict.fromkeys(self.addresses, 0)

    def __enter__(self) -> Attacked:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()

    async def start(self, *names: int) -> list[antiphon.Group]:
        def join(own: str) -> antiphon.Group:
            others = [peer for peer in self.addresses if peer != own]
            return antiphon.join("attacked", bind=own, peers=others, key=self.key, state=self._folder, leave_s=1.0)

        groups = [join(self.addresses[name]) for name in names]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        return groups

    def attack(self, to: str, count: int) -> None:
        host, port = to.rsplit(":", 1)
        for _ in range(count):
            self._out.sendto(self.attacker.packet(), (host, int(port)))
        self.sent[to] += count

    async def attack_steadily(self, per_second: int) -> None:
        """Attack the first two names at a rate, for as long as this task runs."""
        began, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * per_second) - sent
            for to in self.addresses[:2]:
                self.attack(to, min(due, AT_ONCE))
            sent += due
            await asyncio.sleep(0.01)

    async def live_once(self) -> None:
        """Be a group of three for a while, which is heard by the attacker, and end without a word."""
        groups = await self.start(0, 1, 2)
        for group in groups:
            group.transport.lose = hear(self.attacker.earlier)
        for number in range(20):
            for group in groups:
                await (await group.send(b"heard %d" % number)).stable()
        await asyncio.gather(*(group.stop() for group in groups))


def hear(heard: list[bytes]) -> Callable[[bytes], bool]:
    def listen(packet: bytes) -> bool:
        if len(heard) < 2_000:
            heard.append(packet)
        return False

    return listen


def refused(group: antiphon.Group) -> int:
    counts = group.status().counts
    named = sum(count for name, count in counts.items() if name.startswith("refused-"))
    return named + counts["packets-unproven"] + counts["packets-own"]


def overflowed(address: str) -> int:
    """Say how many packets the kernel threw away because a member's socket was full: on a busy machine, some are."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows if row[1].endswith(port))


async def seconds_to_a_view(attacked: Attacked, per_second: int) -> float:
    """Restart two of the three while packets come at a rate; give how long it took until both had delivered."""
    attacking = asyncio.create_task(attacked.attack_steadily(per_second)) if per_second else None
    began = time.monotonic()
    one, other = await attacked.start(0, 1)
    await (await one.send(b"here")).stable()
    took = time.monotonic() - began
    async for event in other:
        if isinstance(event, antiphon.Message):
            assert event.payload == b"here"
            break
    if attacking is not None:
        attacking.cancel()
        with suppress(asyncio.CancelledError):
            await attacking
        assert refused(one) > 0
    await asyncio.gather(one.stop(), other.stop())
    return took


@pytest.mark.parametrize("per_second", [50, 1_000])
def test_packets_of_earlier_lives_delay_no_view(per_second: int, tmp_path: Path) -> None:
    """Fifty a second once kept two restarted members from forming a view for as long as they came."""

    async def test() -> None:
        with Attacked(tmp_path) as attacked:
            await attacked.live_once()
            assert {sender_of(packet) for packet in attacked.attacker.earlier} == {0, 1, 2}
            quiet = [await seconds_to_a_view(attacked, 0) for _ in range(2)]
            under_attack = [await seconds_to_a_view(attacked, per_second) for _ in range(2)]
            assert min(under_attack) < max(quiet) + 1.0, (quiet, under_attack)

    within(test)


@pytest.mark.parametrize(
    "packets", [100_000, pytest.param(1_000_000, marks=pytest.mark.faults)], ids=["a-tenth", "a-million"]
)
def test_no_packet_of_an_attacker_is_taken(packets: int, tmp_path: Path) -> None:
    async def test() -> None:
        with Attacked(tmp_path) as attacked:
            await attacked.live_once()
            groups = await attacked.start(0, 1, 2)
            groups[0].transport.lose = hear(attacked.attacker.present)
            await (await groups[1].send(b"heard")).stable()
            received = groups[0].status().counts["packets-received"]
            before, views = refused(groups[0]), groups[0].status().counts["views"]
            sent, stop = [b"heard"], asyncio.Event()
            working = asyncio.create_task(work(groups, sent, stop))
            target = attacked.addresses[0]
            overflowed_before = overflowed(target)

            def gone() -> int:
                return refused(groups[0]) - before + overflowed(target) - overflowed_before

            for start in range(0, packets, AT_ONCE):
                attacked.attack(target, AT_ONCE)
                while refused(groups[0]) - before < start - 20 * AT_ONCE and gone() < start - 20 * AT_ONCE:
                    await asyncio.sleep(0)  # the kernel has room for so many
                if start % 1_000 == 0:
                    await asyncio.sleep(0)
            async with asyncio.timeout(20):
                while gone() < packets:
                    await asyncio.sleep(0.01)
            stop.set()
            await working
            counts = groups[0].status().counts
            lost = overflowed(target) - overflowed_before
            assert lost < packets / 10
            assert counts["packets-received"] - received > packets - lost
            assert packets - lost <= refused(groups[0]) - before <= packets, "each that came is counted, once"
            assert counts["broken-bursts"] == counts["broken-datagrams"] == 0
            assert counts["views"] == views, "nobody was taken for dead"
            for group in groups:
                stream = []
                async for event in group:
                    if isinstance(event, antiphon.Message):
                        stream.append(event.payload)
                        if len(stream) == len(sent):
                            break
                assert sorted(stream) == sorted(sent)
            await asyncio.gather(*(group.stop() for group in groups))

    within(test)


async def work(groups: list[antiphon.Group], sent: list[bytes], stop: asyncio.Event) -> None:
    """Let all send a little all the time."""
    number = 0
    while not stop.is_set():
        for group in groups:
            number += 1
            sent.append(b"work %d" % number)
            await (await group.send(sent[-1])).stable()
        await asyncio.sleep(0.05)


def within(test: Callable[[], object]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()  # type: ignore[misc]

    asyncio.run(limited())


def test_the_attacker_draws_every_kind() -> None:
    attacker = Attacker(bytes(16), 1)
    attacker.earlier = [SealedSession("attacked", 1, [bytes(16)]).seal(b"heard")]
    assert len({packet[:1] for packet in (attacker.packet() for _ in range(500))}) > 3
