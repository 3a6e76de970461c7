"""Sessions: only what is proven, new, and meant for this group is opened."""

from __future__ import annotations

import random

import pytest

from antiphon.errors import UsageError
from antiphon.live import session
from antiphon.live.session import REPLAY_WINDOW, PlainSession, Refused, SealedSession, key_id, open_session

pytest.importorskip("cryptography")

KEY, OTHER_KEY = bytes(range(16)), bytes(range(16, 48))


def pair(**changes: object) -> tuple[SealedSession, SealedSession]:
    """Give a sender and a receiver that has let it in."""
    settings: dict[str, object] = {"group": "g", "keys": [KEY], **changes}
    sender = SealedSession(sender=1, **settings)  # type: ignore[arg-type]
    return sender, let_in(SealedSession("g", 0, [KEY]), 1, sender)


def let_in(receiver: SealedSession, name: int, sender: SealedSession) -> SealedSession:
    receiver.accept(name, sender.number, -1)
    return receiver


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
    restarted = SealedSession("g", 1, [KEY])
    assert refusal(receiver, restarted.seal(b"too early")) == "unproven"
    assert receiver.open(sender.seal(b"still heard")) == (1, b"still heard")
    let_in(receiver, 1, restarted)
    assert receiver.open(restarted.seal(b"y")) == (1, b"y")
    assert refusal(receiver, late) == "unproven"


def test_what_came_before_a_session_was_let_in_is_never_taken() -> None:
    sender, receiver = SealedSession("g", 1, [KEY]), SealedSession("g", 0, [KEY])
    recorded = [sender.seal(b"recorded") for _ in range(5)]
    receiver.accept(1, sender.number, 5)
    assert {refusal(receiver, packet) for packet in recorded} == {"replayed"}
    sender.seal(b"the answer that let it in")
    assert receiver.open(sender.seal(b"new")) == (1, b"new")


def test_a_forged_new_session_changes_nothing() -> None:
    sender, receiver = pair()
    receiver.open(sender.seal(b"x"))
    forged = bytearray(SealedSession("g", 1, [KEY]).seal(b"y"))
    forged[-1] ^= 1
    assert refusal(receiver, bytes(forged)) == "forged"
    assert receiver.open(sender.seal(b"z")) == (1, b"z")


def test_keys_rotate_without_a_packet_lost() -> None:
    one, other = SealedSession("g", 0, [KEY]), SealedSession("g", 1, [KEY])
    let_in(one, 1, other)
    let_in(other, 0, one)

    def talk() -> None:
        assert one.open(other.seal(b"a")) == (1, b"a")
        assert other.open(one.seal(b"b")) == (0, b"b")

    for keys in ([KEY, OTHER_KEY], [OTHER_KEY, KEY], [OTHER_KEY]):
        for member in (one, other):
            talk()
            member.set_keys(keys)
        talk()
    assert refusal(one, SealedSession("g", 2, [KEY]).seal(b"x")) == "unknown-key"


def test_sealed_and_open_packets_do_not_mix() -> None:
    sender, receiver = pair()
    assert refusal(receiver, PlainSession(1).seal(b"x")) == "unsealed"
    assert refusal(PlainSession(0), sender.seal(b"x")) == "sealed"
    assert refusal(receiver, b"") == "no-packet"
    assert refusal(PlainSession(0), b"\x09abcdef") == "no-packet"
    plain, other = PlainSession(0), PlainSession(1)
    assert refusal(plain, other.seal(b"x")) == "unproven"
    plain.accept(1, other.number, 0)
    assert plain.open(other.seal(b"x")) == (1, b"x")


@pytest.mark.parametrize("keys", [[], [b"short"], [bytes(17)], ["sixteen letters!"]])
def test_what_cannot_be_a_key_is_named(keys: list[bytes]) -> None:
    with pytest.raises(UsageError, match=r"^key: "):
        open_session("g", 0, keys)


def test_keys_that_are_refused_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two keys of one id once overwrote the old ones, and then raised."""
    sender, receiver = pair()
    for wrong in ([OTHER_KEY, b"short"], [], [OTHER_KEY, None]):
        with pytest.raises(UsageError):
            receiver.set_keys(wrong)  # type: ignore[arg-type]
        assert receiver.open(sender.seal(b"x")) == (1, b"x")
    monkeypatch.setattr(session, "key_id", lambda key: b"the same")
    with pytest.raises(UsageError, match="cannot be told apart"):
        receiver.set_keys([KEY, OTHER_KEY])
    monkeypatch.undo()
    assert receiver.open(sender.seal(b"x")) == (1, b"x")


def test_a_thousand_keys_are_told_apart() -> None:
    assert len({key_id(number.to_bytes(16, "big")) for number in range(1_000)}) == 1_000
    keys = [number.to_bytes(16, "big") for number in range(1_000)]
    SealedSession("g", 0, keys)
