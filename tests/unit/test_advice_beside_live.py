"""What `advise` predicts, beside the live members themselves on the same network in simulated time, machines aside."""

from __future__ import annotations

import asyncio
import random
import statistics
import struct
from typing import Any, NamedTuple

import msgspec
import pytest

import antiphon
from antiphon import testing
from antiphon.commands.advise import live_framing
from antiphon.live.packets import PacketCodec
from antiphon.live.session import SealedSession
from antiphon.protocol.machine import MILLISECOND
from antiphon.sim.advise import Candidate, Packets, Question, measure
from antiphon.sim.hosted import HostTimes
from antiphon.testing import World

KEY = bytes(range(16))
STAMP = struct.Struct("<d")
SECONDS = 3.0
GROUP = Question(members=4, need="causal", rate_per_s=20, payload=64, latency="uniform 2ms 6ms")


class Seen(NamedTuple):
    deliver_ms: float
    stable_ms: float
    kb_per_s: float


def seen_live(question: Question, candidate: Candidate, *, encrypted: bool) -> Seen:
    """Run live members, with their bursts, packets, sessions and timers, on a simulated network."""
    delivered: list[float] = []
    stable: list[float] = []
    composition: dict[str, Any] = {"ordering": candidate.ordering}
    if candidate.stability is not None:
        composition |= {"stability": candidate.stability, "stability_options": candidate.options}

    async def main(world: World) -> int:
        loop = asyncio.get_running_loop()
        addresses = world.addresses(question.members)
        groups = [
            antiphon.join(
                "advice", bind=own, peers=[peer for peer in addresses if peer != own],
                key=KEY if encrypted else None, **composition,
            )
            for own in addresses
        ]  # fmt: skip
        await asyncio.gather(*(group.__aenter__() for group in groups))
        while any(len(group.status().members) < question.members for group in groups):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

        async def listen(group: antiphon.Group, own: str) -> None:
            async for event in group:
                if isinstance(event, antiphon.Message) and event.sender != own:
                    delivered.append(1000 * (loop.time() - STAMP.unpack_from(event.payload)[0]))  # noqa: PERF401

        async def until_stable(receipt: antiphon.Receipt, began: float) -> None:
            await receipt.stable()
            stable.append(1000 * (loop.time() - began))

        async def send(group: antiphon.Group, rank: int) -> None:
            chance, due = random.Random(rank), loop.time()
            until = due + SECONDS
            while (due := due + chance.uniform(0.5, 1.5) / question.rate_per_s) < until:
                await asyncio.sleep(due - loop.time())
                receipt = await group.send(STAMP.pack(loop.time()).ljust(question.payload, b"."))
                waiting.append(asyncio.create_task(until_stable(receipt, loop.time())))

        waiting: list[asyncio.Task[None]] = []
        listening = [asyncio.create_task(listen(*one)) for one in zip(groups, addresses, strict=True)]
        before = world.network_counts["bytes"]
        await asyncio.gather(*(send(group, rank) for rank, group in enumerate(groups)))
        sent = world.network_counts["bytes"] - before
        await asyncio.wait(waiting)
        await asyncio.gather(*(group.stop() for group in groups))
        await asyncio.gather(*listening)
        return sent

    sent = testing.run(main, latency=question.latency, unexamined=["validity", "agreement", "total"])
    kb_per_s = sent / 1000 / question.members / SECONDS
    return Seen(statistics.median(delivered), statistics.median(stable), kb_per_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "encrypted"),
    [
        (Candidate("causal-blocks", None), False),
        (Candidate("co", None), True),
        (Candidate("sequencer", "tree-train", {"interval_ns": 10 * MILLISECOND}), False),
        (Candidate("abcast", "vector-ack", {"interval_ns": 10 * MILLISECOND}), True),
    ],
    ids=lambda value: value.name if isinstance(value, Candidate) else "encrypted" if value else "plain",
)
def test_a_live_group_does_what_was_predicted(candidate: Candidate, encrypted: bool) -> None:
    """Times and bytes are those of the same code, so little more than chance may lie between them."""
    question = msgspec.structs.replace(GROUP, framing=live_framing(GROUP.payload, encrypted=encrypted))
    told, seen = measure(question, candidate, question.members), seen_live(question, candidate, encrypted=encrypted)
    assert told.deliver_ms == pytest.approx(seen.deliver_ms, rel=0.08)
    assert told.stable_ms == pytest.approx(seen.stable_ms, rel=0.08)
    assert told.kb_per_s == pytest.approx(seen.kb_per_s, rel=0.05)


def test_what_arrives_while_a_machine_works_is_taken_together() -> None:
    """A machine that is slower is later by its time, and answers several datagrams at once: fewer bytes, not more."""
    candidate = Candidate("co", None)
    fast = measure(GROUP, candidate, 4)
    slow = measure(
        msgspec.structs.replace(GROUP, host=HostTimes((9 * MILLISECOND,), (9 * MILLISECOND,), MILLISECOND)),
        candidate,
        4,
    )
    assert slow.stable_ms > fast.stable_ms + 9
    assert slow.kb_per_s < fast.kb_per_s
    late = measure(msgspec.structs.replace(GROUP, host=HostTimes(timer_ns=(5 * MILLISECOND,))), candidate, 4)
    assert late.deliver_ms is not None
    assert fast.deliver_ms is not None
    assert late.deliver_ms > fast.deliver_ms + 2.5, "CO answers by a timer"


def test_what_leaves_at_one_instant_leaves_in_one_packet() -> None:
    """Framing is counted as live packets have it: once a packet, and once more for each of several datagrams."""
    framing = live_framing(64, encrypted=True)
    codec = PacketCodec(1_000, random.Random(1))
    for number in (1, 2, 3):
        packets = Packets(framing, since=0, until=10)
        for _ in range(number):
            assert not packets.weigh(0, 1, bytes(20), 5), "nothing is lost by being counted"
        (body,) = codec.encode([bytes(20)] * number)
        assert (packets.number, packets.bytes) == (1, len(body) + SealedSession.overhead)
    packets.weigh(0, 1, bytes(20), 6)
    packets.weigh(0, 2, bytes(20), 6)
    packets.weigh(0, 2, bytes(20), 11)
    assert packets.number == 3, "other instants and receivers have packets of their own; what is late does not count"
