"""The handshake: who is dead is not heard, however well it was recorded; who is set up differently is told so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.live.handshake import CHALLENGE_NS, Description, Handshake
from antiphon.live.session import PlainSession, SealedSession, Unproven, sender_of
from antiphon.testing import run as simulate
from support.live_group import collect, free_addresses, members, run, stray

KEY = bytes(range(16))
ALIKE = {"ordering": "total", "window": 64}


class Side:
    """One member's session and handshake; what it says waits to be carried."""

    def __init__(self, name: int, settings: dict[str, object] = ALIKE, *, sealed: bool = True) -> None:
        self.name = name
        self.session = SealedSession("g", name, [KEY]) if sealed else PlainSession(name)
        self.said: list[bytes] = []
        self.differences: list[tuple[int, str]] = []
        self.handshake = Handshake(
            self.session,
            Description(settings),
            lambda _, body: self.said.append(self.session.seal(body)),
            lambda name, how: self.differences.append((name, how)),
        )

    def hear(self, packet: bytes, now: int = 0) -> bytes | None:
        try:
            sender, body = self.session.open(packet)
        except Unproven as unproven:
            self.handshake.meet(unproven, now)
            return None
        self.handshake.answer(sender, body)
        return body


def talk(one: Side, other: Side, now: int = 0) -> list[bytes]:
    """Carry what both say until they are silent; give all packets."""
    packets: list[bytes] = []
    while one.said or other.said:
        for speaker, hearer in ((one, other), (other, one)):
            said, speaker.said = speaker.said, []
            packets += said
            for packet in said:
                hearer.hear(packet, now)
    return packets


@pytest.mark.parametrize("sealed", [True, False])
def test_two_that_are_alive_and_alike_hear_each_other(sealed: bool) -> None:
    one, other = Side(0, sealed=sealed), Side(1, sealed=sealed)
    one.handshake.greet(1)
    talk(one, other)
    assert one.hear(other.session.seal(b"\0hello")) == b"\0hello"
    assert other.hear(one.session.seal(b"\0hello")) == b"\0hello"


def test_a_recording_of_a_whole_session_lets_nobody_in() -> None:
    one, dead = Side(0), Side(1)
    one.handshake.greet(1)
    recorded = [*talk(one, dead), *(dead.session.seal(b"\0alive") for _ in range(20))]
    restarted = Side(0)
    for now, packet in enumerate(recorded):
        if sender_of(packet) == 1:
            assert restarted.hear(packet, now * CHALLENGE_NS) is None
    back = Side(1)
    restarted.said.clear()
    back.handshake.greet(0)
    talk(restarted, back, CHALLENGE_NS * 1_000)
    assert restarted.hear(back.session.seal(b"\0here")) == b"\0here"
    for packet in recorded:
        if sender_of(packet) == 1:
            assert restarted.hear(packet, CHALLENGE_NS * 2_000) is None
    assert restarted.hear(back.session.seal(b"\0still here")) == b"\0still here"


def test_a_stranger_is_challenged_rarely() -> None:
    one, dead = Side(0), Side(1)
    for now in range(0, 10 * CHALLENGE_NS, CHALLENGE_NS // 50):
        one.hear(dead.session.seal(b"\0alive"), now)
    assert len(one.said) == 10


def test_a_recorded_challenge_is_answered_rarely() -> None:
    """An answer is longer than the question: whoever replays questions must not make a member flood another."""
    one, dead = Side(0), Side(1)
    dead.handshake.greet(0)
    [question] = dead.said
    for now in range(0, 10 * CHALLENGE_NS, CHALLENGE_NS // 50):
        one.hear(question, now)
    assert len(one.said) == 10 + 10, "as many answers as questions of its own"


def test_what_differs_is_named_on_both_sides() -> None:
    one, other = Side(0, {**ALIKE, "safe": True}), Side(1, {**ALIKE, "window": 9})
    one.handshake.greet(1)
    talk(one, other)
    assert set(one.differences) == {(1, "window: 64 here and 9 there; safe: True here and not known there")}
    assert other.differences[0][0] == 0
    assert "window: 9 here and 64 there" in other.differences[0][1]
    assert one.hear(other.session.seal(b"\0hello")) is None


def test_a_description_that_fits_no_packet_still_differs() -> None:
    long = {f"option {number}": os.urandom(40) for number in range(100)}
    one, other = Side(0, ALIKE), Side(1, long)
    other.handshake.greet(0)
    talk(one, other)
    assert one.differences
    assert one.differences[0] == (1, "its settings")
    assert one.hear(other.session.seal(b"\0hello")) is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ordering": "causal"}, "ordering: 'abcast' here and|ordering: 'causal-blocks' here and 'abcast' there"),
        ({"ordering": "sequencer"}, "ordering: 'sequencer' here and 'abcast' there"),
        ({"safe": True}, "safe: True here and False there"),
        ({"stability": "train"}, "stability: 'train' here and 'vector-ack' there"),
        ({"partition": "each-side"}, "partition: 'each-side' here and 'majority' there"),
        ({"slow": "drop"}, "slow: 'drop' here and 'block' there"),
        ({"window": 7}, "window: 7 here and 64 there"),
        ({"snapshot": bytes, "restore": print}, "snapshot: True here and False there"),
    ],
)
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_who_is_set_up_differently_is_refused_and_the_group_goes_on(
    settings: dict[str, Any], named: str, key: bytes | None
) -> None:
    """It was once admitted to the view, and nobody delivered any more."""

    async def test() -> None:
        addresses = [f"10.0.0.{number}:7001" for number in range(1, 5)]

        def join(own: str, **changes: Any) -> antiphon.Group:
            return antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own], key=key, **changes)

        groups = [join(own) for own in addresses[:3]]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        with pytest.raises(antiphon.UsageError, match=named):
            await join(addresses[3], **settings).__aenter__()
        for group in groups:
            receipt = await group.send(b"undisturbed")
            await receipt.stable()
            assert len(group.status().members) == 3
        assert sum(group.status().counts.get("refused-other-settings", 0) for group in groups) > 0, "they count it too"
        await asyncio.gather(*(group.leave() for group in groups))

    simulate(test())


def test_replays_of_a_dead_member_delay_nobody(tmp_path: Path) -> None:
    """Recorded packets once kept two restarted members from forming a view for as long as they came."""

    async def test() -> None:
        addresses, key = sorted(free_addresses(3)), os.urandom(16)
        recorded: list[bytes] = []
        async with members(3, tmp_path, of=addresses, key=key, stop=True) as groups:
            for group in groups:
                group.transport.lose = lambda packet: recorded.append(packet) or False  # type: ignore[func-returns-value]
            for group in groups:
                await (await group.send(b"recorded")).stable()
            await asyncio.sleep(0.3)
        dead = [packet for packet in recorded if sender_of(packet) == 2]
        assert len(dead) > 5

        async def replay() -> None:
            while True:
                for own in addresses[:2]:
                    await stray(own, dead[-50:])

        replaying = asyncio.create_task(replay())
        settings = {"key": key, "state": tmp_path / "state", "leave_s": 1.0}
        again = [
            antiphon.join("test", bind=own, peers=[peer for peer in addresses if peer != own], **settings)
            for own in addresses[:2]
        ]
        await asyncio.gather(*(group.__aenter__() for group in again))
        receipt = await again[0].send(b"alive")
        assert [message.payload for message in await collect(again[1], 1)] == [b"alive"]
        await receipt.stable()
        while not again[0].status().counts["packets-unproven"]:  # the replays do come: they were refused
            await asyncio.sleep(0.01)
        replaying.cancel()
        await asyncio.gather(*(group.stop() for group in again))

    run(test())
