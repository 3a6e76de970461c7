"""What processes say about views, how it is put into datagrams, in which version, and what can be chosen."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import Send, TraceRow
from antiphon.protocol.membership.messages import (
    MembershipCodec,
    Newer,
    Piece,
    Prepare,
    SnapshotChunk,
    ViewAnswer,
)
from antiphon.protocol.membership.options import LIFETIME_NS_MAX, PIECE_BYTES_MAX, PIECE_BYTES_MIN, MembershipOptions
from antiphon.protocol.membership.outbox import Outbox, OwnProcess
from antiphon.protocol.membership.versions import WireVersions, understood, version_of_view
from antiphon.protocol.membership.views import GroupView
from antiphon.protocol.wire import VERSIONS, Codec, Header, Malformed, Spoken, group_tag

VIEW = GroupView(7, (1, 1), (0, 1, 2), (0, 0, 0), 3)
NEWEST = max(VERSIONS)


def long_message(ballot: int = 1) -> Prepare:
    members = tuple(range(200))
    return Prepare((ballot, 2), GroupView(7, (1, 1), members, members, 3))


# Datagrams


def test_a_message_is_cut_only_if_it_is_longer_than_a_piece() -> None:
    codec = MembershipCodec("g", 4_000)
    encoded = len(Codec((Prepare,)).encode_pdu(long_message()))
    assert len(codec.write(4, long_message())) == 1
    assert len(MembershipCodec("g", encoded).write(4, long_message())) == 1
    assert len(MembershipCodec("g", encoded - 1).write(4, long_message())) == 2


def test_a_chunk_of_state_is_not_cut_the_network_does_that() -> None:
    chunk = SnapshotChunk(VIEW.id, b"digest", 10_000, 0, b"x" * 8_000)
    (datagram,) = MembershipCodec("g", 1_000).write(4, chunk)
    assert MembershipCodec("g", 1_000).read(datagram) == (4, [chunk])


def test_what_is_of_another_group_or_of_the_views_data_is_refused() -> None:
    (datagram,) = MembershipCodec("g", 1_000).write(4, Newer(VIEW))
    with pytest.raises(Malformed, match="foreign-group"):
        MembershipCodec("h", 1_000).read(datagram)
    assert MembershipCodec("g", 1_000).read(datagram) == (4, [Newer(VIEW)])


def piece_of(text: bytes, *, index: int = 0, count: int = 1, checksum: int | None = None, group: str = "g") -> bytes:
    codec = VERSIONS[NEWEST]((Piece,))
    header = Header(group_tag(f"{group}/views/{NEWEST}"), 0, 4, NEWEST, min(VERSIONS))
    piece = Piece(crc32(text) if checksum is None else checksum, index, count, text)
    return codec.frame(header, [codec.encode_pdu(piece)])


def test_pieces_that_cannot_be_are_garbage() -> None:
    codec = MembershipCodec("g", 100)
    encoded = VERSIONS[NEWEST]((Newer, Piece)).encode_pdu(Newer(VIEW))
    assert codec.read(piece_of(encoded)) == (4, [Newer(VIEW)])
    for datagram, reason in (
        (piece_of(encoded, index=1, count=1), "impossible-piece"),
        (piece_of(b"x" * 101), "impossible-piece"),
        (piece_of(encoded, checksum=1), "checksum"),
        (piece_of(VERSIONS[NEWEST]((Piece,)).encode_pdu(Piece(1, 0, 1, b""))), "nested-piece"),
    ):
        with pytest.raises(Malformed, match=reason):
            codec.read(datagram)


def test_what_was_left_unfinished_by_those_that_nobody_waits_for_is_dropped() -> None:
    codec, others = MembershipCodec("g", 300), MembershipCodec("g", 300)
    for sender in (4, 5):
        codec.read(others.write(sender, long_message())[0])
    assert (codec.unfinished(4), codec.unfinished(5)) == (1, 1)
    codec.keep_only(lambda source: source == 5)
    assert (codec.unfinished(4), codec.unfinished(5)) == (0, 1)


# Versions


def test_each_is_spoken_to_in_the_newest_version_that_both_speak_and_a_stranger_in_the_oldest() -> None:
    versions = WireVersions({2: Codec, 3: Codec, 4: Codec})
    assert versions.spoken == Spoken(2, 4)
    versions.hear(10_001, Spoken(2, 3))
    versions.hear(2, Spoken(3, 9))
    assert versions.towards((1, 2, 3)) == {3: [1], 4: [2], 2: [3]}
    versions.hear(1, Spoken(2, 2))
    assert versions.towards((1,)) == {2: [1]}, "one that comes back may know fewer"
    with pytest.raises(Malformed, match="other-version"):
        versions.hear(1, Spoken(5, 9))
    assert versions.towards((1,)) == {2: [1]}


def test_a_header_says_which_versions_its_sender_speaks() -> None:
    one, other = (MembershipCodec("g", 1_000, WireVersions({2: Codec, 3: Codec})) for _ in range(2))
    assert other.versions.towards((4,)) == {2: [4]}
    assert other.read(one.write(4, Newer(VIEW), 2)[0]) == (4, [Newer(VIEW)])
    assert other.versions.towards((4,)) == {3: [4]}
    assert one.write(4, Newer(VIEW)) == one.write(4, Newer(VIEW), 3) != one.write(4, Newer(VIEW), 2)
    with pytest.raises(Malformed, match="foreign-group"):
        MembershipCodec("g", 1_000, WireVersions({2: Codec})).read(one.write(4, Newer(VIEW), 3)[0])


def test_a_view_speaks_what_all_of_it_know_and_who_shares_no_version_stays_out() -> None:
    spoken = {0: Spoken(2, 4), 1: Spoken(2, 3), 7: Spoken(4, 5), 8: Spoken(3, 3), 9: Spoken(1, 2)}
    assert version_of_view((0, 1), spoken) == 3
    assert understood((0,), (7, 8, 9), spoken) == [7]
    assert understood((0, 1), (7, 8, 9), spoken) == [8]
    assert understood((), (8, 9), spoken) == [8]


# What is said


def outbox(*, traced: bool = False) -> Outbox:
    return Outbox(OwnProcess(0, 10_000), MembershipCodec("g", 1_000), traced=traced)


def test_what_is_said_to_oneself_is_heard_later_and_to_each_other_name_once() -> None:
    one, message = outbox(), ViewAnswer(VIEW.id, 5)
    one.say_to_names((2, 0, 1, 2), message)
    assert list(one.to_itself) == [message]
    (send,) = one.take()
    assert isinstance(send, Send)
    assert send.to == (2, 1)
    assert MembershipCodec("g", 1_000).read(send.datagram) == (10_000, [message])
    assert one.take() == []
    assert one.counts["answer"] == 1
    one.say(20_000, message)
    assert one.take() == []
    assert one.counts["answer"] == 1, "what is said to oneself costs no datagram"
    assert list(one.to_itself) == [message, message]


def test_what_belongs_in_the_trace_is_said_where_it_is_traced() -> None:
    one = outbox(traced=True)
    one.trace("view", view=VIEW)
    one.trace("leave", "excluded")
    assert one.take() == [
        TraceRow(10_000, "view", view=7, members=(0, 1, 2)),
        TraceRow(10_000, "leave", detail="excluded"),
    ]
    untraced = outbox()
    untraced.trace("view", view=VIEW)
    assert untraced.take() == []


# What can be chosen


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"heartbeat_ns": 0}, "heartbeat_ns"),
        ({"grace_ns": 0}, "grace_ns"),
        ({"lifetime_ns": LIFETIME_NS_MAX + 1}, "lifetime_ns"),
        ({"piece_bytes": PIECE_BYTES_MIN - 1}, "piece_bytes"),
        ({"piece_bytes": PIECE_BYTES_MAX + 1}, "piece_bytes"),
        ({"heartbeat_ns": 100, "suspect_ns": 199}, "suspect_ns"),
    ],
)
def test_what_cannot_work_is_refused_with_its_key(options: dict[str, Any], key: str) -> None:
    with pytest.raises(UsageError, match=f"membership.{key}"):
        MembershipOptions(**options).check()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heartbeat_ns": 1, "retry_ns": 1, "grace_ns": 1, "patience_ns": 1, "stall_ns": 1, "slow_ns": 1},
        {"lifetime_ns": LIFETIME_NS_MAX},
        {"piece_bytes": PIECE_BYTES_MIN},
        {"piece_bytes": PIECE_BYTES_MAX},
        {"heartbeat_ns": 100, "suspect_ns": 200},
        {"transfer": False},
    ],
)
def test_what_lies_on_the_bound_works(options: dict[str, Any]) -> None:
    MembershipOptions(**options).check()
