"""The handshake: who is dead is not heard, however well it was recorded; who is set up differently is told so."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon.live.handshake import CHALLENGE, CHALLENGE_NS, RESPONSE, Challenge, Description, Handshake
from antiphon.live.session import PlainSession, SealedSession, Unproven, sender_of
from antiphon.protocol.wire import VERSIONS, Codec, Spoken
from antiphon.testing import run as simulate
from support.live_group import collect, free_addresses, members, run, stray

KEY = bytes(range(16))
ALIKE = {"ordering": "total", "window": 64}
SECOND = Spoken(2, 2)


class Side:
    """One member's session and handshake; what it says waits to be carried."""

    def __init__(
        self, name: int, settings: dict[str, object] = ALIKE, *, sealed: bool = True, spoken: Spoken = SECOND
    ) -> None:
        self.name = name
        self.session = SealedSession("g", name, [KEY]) if sealed else PlainSession(name)
        self.said: list[bytes] = []
        self.differences: list[tuple[int, str]] = []
        self.reasons: set[str] = set()
        self.handshake = Handshake(
            self.session,
            spoken,
            Description(settings),
            lambda _, body: self.said.append(self.session.seal(body)),
            self.differs,
        )

    def differs(self, name: int, why: str, how: str) -> None:
        self.reasons.add(why)
        self.differences.append((name, how))

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


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("future", [Spoken(3, 3), Spoken(5, 9)])
def test_who_speaks_no_version_in_common_is_refused_on_both_sides(future: Spoken, sealed: bool) -> None:
    one, other = Side(0, sealed=sealed), Side(1, {**ALIKE, "new setting": 1}, sealed=sealed, spoken=future)
    one.handshake.greet(1)
    talk(one, other)
    assert one.reasons == other.reasons == {"other-version"}, "why settings differ does not matter then"
    release = antiphon.__version__
    assert one.differences[0][1] == f"wire: version 2 here (Antiphon {release}) and {future} there (Antiphon {release})"
    assert f"{future} here (Antiphon {release}) and version 2 there" in other.differences[0][1]
    assert one.hear(other.session.seal(b"\0hello")) is None
    assert other.hear(one.session.seal(b"\0hello")) is None


@pytest.mark.parametrize(("mine", "theirs"), [((2, 3), (3, 4)), ((2, 4), (2, 2)), ((1, 9), (3, 4))])
def test_who_speaks_one_version_in_common_is_let_in(mine: tuple[int, int], theirs: tuple[int, int]) -> None:
    one, other = Side(0, spoken=Spoken(*mine)), Side(1, spoken=Spoken(*theirs))
    one.handshake.greet(1)
    talk(one, other)
    assert one.hear(other.session.seal(b"\0hello")) == b"\0hello"
    assert other.hear(one.session.seal(b"\0hello")) == b"\0hello"


def test_a_later_handshake_may_say_more_than_is_understood() -> None:
    one, later = Side(0), Side(1)
    one.hear(later.session.seal(bytes([CHALLENGE]) + msgspec.msgpack.encode([0, bytes(16), "and more"])))
    assert len(one.said) == 2, "an answer, and a challenge of its own"
    cookie = challenge_of(one, later)
    description = Description(ALIKE)
    fields = [cookie, [2, 2, "more"], "9.9", description.digest, description.packed, {"more": True}]
    assert one.hear(later.session.seal(bytes([RESPONSE]) + msgspec.msgpack.encode(fields))) is None
    assert one.hear(later.session.seal(b"\0hello")) == b"\0hello", "it was let in"


def challenge_of(asking: Side, asked: Side) -> bytes:
    """Return the cookie of a challenge for another's session."""
    asking.said.clear()
    asking.handshake.greet(asked.name)
    [packet] = asking.said
    with pytest.raises(Unproven) as unproven:
        asked.session.open(packet)
    return msgspec.msgpack.decode(unproven.value.body[1:], type=Challenge).cookie


def test_a_setting_that_only_one_release_knows_does_not_differ_while_it_is_as_usual() -> None:
    usual = {**ALIKE, "new": 5}
    old, new, changed = Description(ALIKE, ALIKE), Description(usual, usual), Description({**usual, "new": 6}, usual)
    assert old.digest == new.digest != changed.digest
    one, other = Side(0), Side(1)
    other.handshake = Handshake(
        other.session, SECOND, changed, lambda _, body: other.said.append(other.session.seal(body)), other.differs
    )
    one.handshake.greet(1)
    talk(one, other)
    assert one.reasons == {"other-settings"}
    assert "new: not known here and 6 there" in one.differences[0][1]


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_a_member_of_a_future_version_is_refused_and_told_why(
    key: bytes | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        addresses = [f"10.0.0.{number}:7001" for number in range(1, 5)]

        def join(own: str) -> antiphon.Group:
            return antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own], key=key)

        groups = [join(own) for own in addresses[:3]]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        monkeypatch.delitem(VERSIONS, 2)
        monkeypatch.setitem(VERSIONS, 7, Codec)
        with pytest.raises(antiphon.UsageError, match=r"wire: version 7 here .* and version 2 there .*Upgrading"):
            await join(addresses[3]).__aenter__()
        for group in groups:
            await (await group.send(b"undisturbed")).stable()
            assert len(group.status().members) == 3
            assert group.status().counts["refused-other-version"] > 0
            said = [
                record for record in caplog.records if record.member == group.status().me and "7" in record.getMessage()
            ]
            assert len([one for one in said if "refused-other-version, 1 so far" in one.getMessage()]) == 1
            assert f"{addresses[3]}: wire: version 2 here" in said[0].getMessage()
        await asyncio.gather(*(group.leave() for group in groups))

    simulate(test())


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
