"""Sessions: only what is proven, new, and meant for this group is opened."""

from __future__ import annotations

import random

import pytest

from antiphon.errors import UsageError
from antiphon.live.session import REPLAY_WINDOW, PlainSession, Refused, SealedSession, open_session

pytest.importorskip("cryptography")

KEY, OTHER_KEY = bytes(range(16)), bytes(range(16, 48))


def pair(**changes: object) -> tuple[SealedSession, SealedSession]:
    settings: dict[str, object] = {"group": "g", "session": 5, "keys": [KEY], **changes}
    sender = SealedSession(sender=1, **settings)  # type: ignore[arg-type]
    return sender, SealedSession("g", 0, 1, [KEY])


def refusal(receiver: SealedSession | PlainSession, packet: bytes) -> str:
    with pytest.raises(Refused) as refused:
        receiver.open(packet)
    return refused.value.reason


def test_what_is_sealed_opens_once() -> None:
    sender, receiver = pair()
    packet = sender.seal(b"hello")
    assert b"hello" not in packet
    assert receiver.open(packet) == (1, b"hello")
    assert refusal(receiver, packet) == "replayed"


@pytest.mark.parametrize("change", [{"group": "h"}, {"keys": [bytes(16)]}])
def test_another_group_or_key_is_refused(change: dict[str, object]) -> None:
    sender, receiver = pair(**change)
    assert refusal(receiver, sender.seal(b"x")) in ("forged", "unknown-key")


def test_every_flipped_bit_is_noticed() -> None:
    sender, receiver = pair()
    receiver.open(sender.seal(b"first"))
    packet = sender.seal(b"second")
    for bit in range(8 * len(packet)):
        mutated = bytearray(packet)
        mutated[bit // 8] ^= 1 << bit % 8
        refusal(receiver, bytes(mutated))
    assert receiver.open(packet) == (1, b"second")


def test_packets_may_come_in_any_order_but_each_once() -> None:
    sender, receiver = pair()
    packets = [sender.seal(b"%d" % number) for number in range(REPLAY_WINDOW)]
    random.Random(1).shuffle(packets)
    assert sorted(int(receiver.open(packet)[1]) for packet in packets) == list(range(REPLAY_WINDOW))
    assert {refusal(receiver, packet) for packet in packets} == {"replayed"}


def test_what_is_older_than_the_window_is_refused() -> None:
    sender, receiver = pair()
    old = sender.seal(b"old")
    for _ in range(REPLAY_WINDOW):
        receiver.open(sender.seal(b"x"))
    assert refusal(receiver, old) == "replayed"


def test_a_new_session_ends_the_one_before() -> None:
    sender, receiver = pair()
    receiver.open(sender.seal(b"x"))
    late = sender.seal(b"late")
    restarted = SealedSession("g", 1, 6, [KEY])
    assert receiver.open(restarted.seal(b"y")) == (1, b"y")
    assert refusal(receiver, late) == "old-session"


def test_a_forged_new_session_changes_nothing() -> None:
    sender, receiver = pair()
    receiver.open(sender.seal(b"x"))
    forged = bytearray(SealedSession("g", 1, 99, [KEY]).seal(b"y"))
    forged[-1] ^= 1
    assert refusal(receiver, bytes(forged)) == "forged"
    assert receiver.open(sender.seal(b"z")) == (1, b"z")


def test_keys_rotate_without_a_packet_lost() -> None:
    one, other = SealedSession("g", 0, 1, [KEY]), SealedSession("g", 1, 1, [KEY])

    def talk() -> None:
        assert one.open(other.seal(b"a")) == (1, b"a")
        assert other.open(one.seal(b"b")) == (0, b"b")

    for keys in ([KEY, OTHER_KEY], [OTHER_KEY, KEY], [OTHER_KEY]):
        for member in (one, other):
            talk()
            member.set_keys(keys)
        talk()
    assert refusal(one, SealedSession("g", 2, 1, [KEY]).seal(b"x")) == "unknown-key"


def test_sealed_and_open_packets_do_not_mix() -> None:
    sender, receiver = pair()
    assert refusal(receiver, PlainSession(1).seal(b"x")) == "unsealed"
    assert refusal(PlainSession(0), sender.seal(b"x")) == "sealed"
    assert refusal(receiver, b"") == "no-packet"
    assert refusal(PlainSession(0), b"\x09abcdef") == "no-packet"
    assert PlainSession(0).open(PlainSession(1).seal(b"x")) == (1, b"x")


@pytest.mark.parametrize("keys", [[], [b"short"], [bytes(17)], ["sixteen letters!"]])
def test_what_cannot_be_a_key_is_named(keys: list[bytes]) -> None:
    with pytest.raises(UsageError, match=r"^key: "):
        open_session("g", 0, 1, keys)
