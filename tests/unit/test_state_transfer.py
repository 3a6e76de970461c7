"""How a joiner is given the application's state, chunk by chunk: one elder's part and one joiner's, by hand."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antiphon.protocol.machine import (
    MILLISECOND,
    Capture,
    Chunk,
    Deliver,
    Drop,
    Effect,
    EndHoldBack,
    HoldBack,
    Install,
    Instant,
    ReadChunk,
    Release,
    Restore,
    RestoreChunk,
    Send,
    Snapshot,
)
from antiphon.protocol.membership.messages import (
    MembershipCodec,
    MembershipMessage,
    NoSnapshot,
    SnapshotChunk,
    SnapshotRequest,
)
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.membership.outbox import Outbox, OwnProcess
from antiphon.protocol.membership.state_transfer import WINDOW_MAX, WINDOW_MIN, StateTransfer
from antiphon.protocol.membership.timing import Times
from antiphon.protocol.membership.views import GroupView

MS = MILLISECOND
PIECE = 1_000
CHUNK = 8 * PIECE
OPTIONS = MembershipOptions(transfer=True, piece_bytes=PIECE)
VIEW = GroupView(4, (3, 1), (0, 1, 7), (0, 0, 0), 2)  # 7 joins
DIGEST = b"the same bytes"


class Hand:
    """One process' part in state transfer, and what it says."""

    def __init__(self, me: int, options: MembershipOptions = OPTIONS) -> None:
        self.me = me
        own = OwnProcess(me, me)
        self._reader = MembershipCodec("g", PIECE)
        self.outbox = Outbox(own, MembershipCodec("g", PIECE), traced=False)
        self.times = Times(options, lambda pause: pause, 0)
        self.transfer = StateTransfer(options, self.outbox, self.times)

    def effects(self) -> list[Effect]:
        return [effect for effect in self.outbox.effects if not isinstance(effect, Send)]

    def said(self) -> list[tuple[int, MembershipMessage]]:
        """Take what was said, to whom, and forget it together with the effects."""
        sent = [effect for effect in self.outbox.take() if isinstance(effect, Send)]
        return [
            (name, message)
            for send in sent
            for name in send.to or ()
            for message in self._reader.read(send.datagram)[1]
        ]


def joiner(now: Instant = 0, options: MembershipOptions = OPTIONS) -> Hand:
    one = Hand(7, options)
    assert one.transfer.begin(VIEW, 7, elder=False, now=now) == []
    return one


def elder(size: int = 3 * CHUNK) -> Hand:
    one = Hand(0)
    assert one.transfer.begin(VIEW, 0, elder=True, now=0) == [Capture(VIEW.number)]
    one.transfer.keep(Snapshot(VIEW.number, size, DIGEST))
    return one


def request(offset: int, count: int, digest: bytes = DIGEST) -> SnapshotRequest:
    return SnapshotRequest(VIEW.id, digest, offset, count)


def chunk(number: int, size: int, *, data: bytes = b"x" * CHUNK, digest: bytes = DIGEST) -> SnapshotChunk:
    return SnapshotChunk(VIEW.id, digest, size, number * CHUNK, data)


def give(one: Hand, chunks: Iterable[SnapshotChunk], now: Instant, sender: int = 0) -> None:
    for piece in chunks:
        one.transfer.on_chunk(sender, piece, VIEW, now)


# The application's stream


def test_without_the_option_nothing_is_captured_and_nothing_waits() -> None:
    one = Hand(0, MembershipOptions())
    assert one.transfer.begin(VIEW, 0, elder=True, now=0) == []
    assert one.transfer.begin(VIEW, 0, elder=False, now=0) == []
    assert not one.transfer.holds_back
    assert one.transfer.deadline(active=True) is None


def test_a_view_into_which_nobody_comes_needs_no_state_and_one_of_newcomers_has_none() -> None:
    together = GroupView(4, (3, 1), (0, 1), (0, 0), 2)
    assert Hand(0).transfer.begin(together, 0, elder=True, now=0) == []
    first = GroupView(1, (3, 1), (0, 1), (0, 0), 0)
    one = Hand(0)
    assert one.transfer.begin(first, 0, elder=False, now=0) == []
    assert not one.transfer.holds_back


def test_what_a_joiner_would_see_waits_behind_the_state_and_is_handed_over_with_it() -> None:
    one = joiner()
    assert one.transfer.holds_back
    install, message = Install(4, VIEW.members), Deliver(0, 3, b"m")
    assert one.transfer.shown([install, message], 7) == [HoldBack(install), HoldBack(message)]
    give(one, [chunk(0, 5, data=b"state")], 0)
    assert one.effects() == [RestoreChunk(4, 0, b"state"), Restore(4), EndHoldBack(hand_over=True)]
    assert not one.transfer.holds_back
    assert list(one.transfer.shown([message], 7)) == [message]


def test_own_messages_that_wait_behind_the_state_are_given_up_with_the_incarnation() -> None:
    one = joiner()
    list(one.transfer.shown([Deliver(7, 1, b""), Deliver(0, 1, b""), Deliver(7, 2, b"")], 7))
    list(one.transfer.shown([Deliver(7, 3, b"")], 7))
    assert one.transfer.forget(7) == [
        Drop("unknown", 7, 1),
        Drop("unknown", 7, 2),
        Drop("unknown", 7, 3),
        EndHoldBack(hand_over=False),
    ]
    assert one.transfer.forget(7) == []
    assert not one.transfer.holds_back


def test_an_elder_that_ends_lets_its_states_go() -> None:
    one = elder()
    assert one.transfer.forget(0) == [Release(4)]
    one.transfer.on_request(7, request(0, 1), 0)
    assert one.effects() == []


# As an elder


def test_the_chunks_that_are_asked_for_are_read_and_the_last_is_as_long_as_what_is_left() -> None:
    one = elder(size=2 * CHUNK + 5)
    one.transfer.on_request(7, request(0, 2), 0)
    assert one.effects() == [ReadChunk(4, 0, CHUNK, 7), ReadChunk(4, CHUNK, CHUNK, 7)]
    one.said()
    one.transfer.on_request(7, request(CHUNK, 8), 0)
    assert one.effects() == [ReadChunk(4, CHUNK, CHUNK, 7), ReadChunk(4, 2 * CHUNK, 5, 7)]
    one.said()
    one.transfer.give(Chunk(4, CHUNK, b"data", 7))
    assert one.said() == [(7, SnapshotChunk(VIEW.id, DIGEST, 2 * CHUNK + 5, CHUNK, b"data"))]
    one.transfer.give(Chunk(9, CHUNK, b"data", 7))
    assert one.said() == []


def test_an_empty_state_is_one_empty_chunk() -> None:
    one = elder(size=0)
    one.transfer.on_request(7, request(0, 2, b""), 0)
    assert one.effects() == [ReadChunk(4, 0, 0, 7)]


def test_one_who_has_begun_with_other_bytes_is_served_from_the_beginning() -> None:
    one = elder()
    one.transfer.on_request(7, request(2 * CHUNK, 1, b"other bytes"), 0)
    assert one.effects() == [ReadChunk(4, 0, CHUNK, 7)]


def test_only_a_joiner_of_that_view_is_served_and_only_once_the_state_is_there() -> None:
    one = Hand(0)
    one.transfer.begin(VIEW, 0, elder=True, now=0)
    one.transfer.on_request(7, request(0, 1), 0)
    assert one.effects() == [], "the application has not given it yet"
    one.transfer.give(Chunk(4, 0, b"data", 7))
    assert one.said() == []
    one.transfer.keep(Snapshot(3, 9, b"of another view"))
    one.transfer.keep(Snapshot(4, 9, DIGEST))
    one.transfer.on_request(1, request(0, 1), 0)
    one.transfer.on_request(7, msgspec.structs.replace(request(0, 1), view=(4, (9, 9))), 0)
    one.transfer.on_request(7, msgspec.structs.replace(request(0, 1), view=(5, (9, 9))), 0)
    assert one.effects() == []
    one.transfer.on_request(7, request(0, 1), 0)
    assert one.effects() == [ReadChunk(4, 0, 9, 7)]


def test_a_state_is_kept_until_every_joiner_has_it_or_is_gone() -> None:
    two = GroupView(4, (3, 1), (0, 7, 8), (0, 0, 0), 1)
    one = Hand(0)
    one.transfer.begin(two, 0, elder=True, now=0)
    one.transfer.keep(Snapshot(4, 9, DIGEST))
    one.transfer.on_request(7, request(9, 0), 0)
    assert one.effects() == []
    without_8 = GroupView(5, (4, 1), (0, 7), (0, 0), 2)
    assert one.transfer.begin(without_8, 0, elder=True, now=0) == []
    assert one.effects() == [Release(4)]
    one = Hand(0)
    one.transfer.begin(two, 0, elder=True, now=0)
    one.transfer.keep(Snapshot(4, 9, DIGEST))
    with_9 = GroupView(5, (4, 1), (0, 7, 8, 9), (0, 0, 0, 0), 3)
    assert one.transfer.begin(with_9, 0, elder=True, now=0) == [Capture(5)]
    assert one.effects() == [], "7 and 8 may still ask"
    for sender in (7, 8):
        one.transfer.on_request(sender, request(9, 0), 0)
    assert one.effects() == [Release(4)]
    assert one.transfer.forget(0) == [Release(5)], "each once"


# As a joiner


def test_a_joiner_asks_at_once_and_then_less_often_and_then_another_elder() -> None:
    one = joiner(now=1_000 * MS)
    asked = []
    for now in range(1_000, 4_000):
        one.transfer.look(VIEW, now * MS)
        asked += [(now, name) for name, _ in one.said()]
    assert asked[:5] == [(1_000, 0), (1_050, 0), (1_150, 0), (1_350, 1), (1_400, 1)]
    assert [name for _, name in asked[:7]] == [0, 0, 0, 1, 1, 1, 0]
    assert one.transfer.deadline(active=True) is not None
    assert one.transfer.deadline(active=True) > 3_999 * MS


def test_a_joiner_asks_again_as_soon_as_answers_take_now_and_not_as_long_as_they_took_when_it_began() -> None:
    one = Hand(7)
    one.times.meet(0)
    for _ in range(9):
        one.times.by_name[0].answers.measured(4_000 * MS)
    one.transfer.begin(VIEW, 7, elder=False, now=0)
    one.transfer.look(VIEW, 0)
    assert len(one.said()) == 1
    for _ in range(60):
        one.times.by_name[0].answers.measured(2 * MS)
    one.transfer.look(VIEW, 10 * MS)
    one.transfer.look(VIEW, 84 * MS)
    assert one.said() == []
    one.transfer.look(VIEW, 85 * MS)
    assert one.said() == [(0, request(0, WINDOW_MIN, b""))]


def test_the_first_request_is_for_a_small_window_from_the_beginning() -> None:
    one = joiner()
    one.transfer.look(VIEW, 0)
    assert one.said() == [(0, request(0, WINDOW_MIN, b""))]


def test_if_nobody_who_has_the_state_is_left_a_joiner_begins_with_what_it_has() -> None:
    one = joiner()
    one.transfer.look(GroupView(5, (4, 1), (7, 8), (0, 0), 1), 0)
    assert one.effects() == [EndHoldBack(hand_over=True, lost=True)]
    assert one.outbox.counts["states-lost"] == 1
    one.transfer.look(GroupView(6, (4, 1), (7, 8), (0, 0), 1), 0)
    assert one.outbox.counts["states-lost"] == 1


def test_an_elder_that_is_gone_is_not_asked() -> None:
    one = joiner()
    one.transfer.look(GroupView(5, (4, 1), (1, 7), (0, 0), 2), 0)
    assert [name for name, _ in one.said()] == [1]


def test_the_window_grows_while_chunks_come_and_more_is_asked_for_before_all_have() -> None:
    one = joiner()
    size = 1_000 * CHUNK
    one.transfer.look(VIEW, 0)
    one.said()
    asked = 2 * CHUNK
    windows = []
    for have in range(1, 100):
        give(one, [chunk(have - 1, size)], MS)
        for name, message in one.said():
            assert name == 0
            assert isinstance(message, SnapshotRequest)
            assert (message.offset, message.digest) == (asked, DIGEST), "what was asked for is not asked for again"
            windows.append(message.count)
            asked += message.count * CHUNK
        assert asked > have * CHUNK
        assert asked - have * CHUNK <= (WINDOW_MAX + WINDOW_MAX // 2) * CHUNK
    assert windows[:6] == [4, 8, 16, 32, 32, 32]


def test_chunks_behind_a_gap_are_kept_and_only_the_gap_is_asked_for_again() -> None:
    one = joiner()
    size = 50 * CHUNK
    one.transfer.look(VIEW, 0)
    give(one, [chunk(0, size), chunk(1, size)], MS)
    one.said()
    give(one, [chunk(4, size), chunk(5, size)], 2 * MS)
    assert one.effects() == []
    one.transfer.look(VIEW, 400 * MS)
    assert one.said() == [(0, request(2 * CHUNK, 2))]
    give(one, [chunk(2, size)], 401 * MS)
    assert one.effects() == [RestoreChunk(4, 2 * CHUNK, b"x" * CHUNK)]
    one.said()
    give(one, [chunk(3, size)], 402 * MS)
    assert [effect.offset for effect in one.effects() if isinstance(effect, RestoreChunk)] == [
        3 * CHUNK,
        4 * CHUNK,
        5 * CHUNK,
    ]
    one.said()
    give(one, [chunk(3, size)], 403 * MS)
    assert one.effects() == [], "once"


def test_a_gap_is_no_larger_than_what_has_come_behind_it() -> None:
    one = joiner()
    size = 500 * CHUNK
    give(one, [chunk(number, size) for number in range(20)], 0)
    give(one, [chunk(23, size), chunk(25, size)], 0)
    one.said()
    one.transfer.look(VIEW, 400 * MS)
    assert one.said() == [(0, request(20 * CHUNK, 3))]


def test_a_chunk_far_beyond_what_was_asked_for_is_not_kept() -> None:
    one = joiner()
    size = 500 * CHUNK
    give(one, [chunk(0, size)], 0)
    one.said()
    give(one, [chunk(1 + 2 * WINDOW_MAX, size), chunk(2 * WINDOW_MAX, size)], 0)
    give(one, [chunk(number, size) for number in range(1, 2 * WINDOW_MAX)], 0)
    offsets = [effect.offset for effect in one.effects() if isinstance(effect, RestoreChunk)]
    assert offsets == [number * CHUNK for number in range(1, 1 + 2 * WINDOW_MAX)]


def test_a_vain_try_halves_the_window() -> None:
    one = joiner()
    size = 500 * CHUNK
    give(one, [chunk(number, size) for number in range(20)], 0)
    one.said()
    asked = []
    for now in range(2_000):
        one.transfer.look(VIEW, now * MS)
        asked += [(now, message.count) for _, message in one.said() if isinstance(message, SnapshotRequest)]
    assert asked[:5] == [(50, 8), (150, 4), (350, 2), (400, 2), (500, 2)], "less and less often, then of another elder"
    give(one, [chunk(20, size), chunk(21, size)], 2_000 * MS, sender=1)
    assert [message for _, message in one.said()] == [request(22 * CHUNK, 4)], (
        "what was lost is asked for with the rest"
    )


def test_another_elder_goes_on_where_the_first_stopped_if_it_has_the_same_bytes() -> None:
    one = joiner()
    size = 50 * CHUNK
    give(one, [chunk(0, size)], 0)
    one.said()
    give(one, [chunk(1, size)], 0, sender=1)
    assert one.effects() == [RestoreChunk(4, CHUNK, b"x" * CHUNK)]
    one.said()
    give(one, [chunk(2, size)], 0, sender=8)
    assert one.effects() == [], "from one who is no elder"
    give(one, [msgspec.structs.replace(chunk(2, size), view=(4, (9, 9)))], 0)
    assert one.effects() == [], "of another view"


def test_other_bytes_begin_anew_and_only_from_the_elder_whose_turn_it_is() -> None:
    one = joiner()
    size = 50 * CHUNK
    give(one, [chunk(0, size)], 0)
    one.said()
    give(one, [chunk(0, size, digest=b"other")], 0, sender=1)
    give(one, [chunk(1, size, digest=b"other")], 0, sender=0)
    assert one.effects() == []
    give(one, [chunk(0, 9, digest=b"other", data=b"new state")], 0, sender=0)
    assert one.effects() == [RestoreChunk(4, 0, b"new state"), Restore(4), EndHoldBack(hand_over=True)]


def test_what_begins_anew_is_asked_for_anew() -> None:
    one = joiner()
    size = 50 * CHUNK
    give(one, [chunk(number, size) for number in range(10)], 0)
    one.said()
    for now in (400, 800, 1_600):
        one.transfer.look(VIEW, now * MS)
    (name, _), *_ = reversed(one.said())
    assert name == 1
    give(one, [chunk(0, size, digest=b"other")], 1_700 * MS, sender=0)
    assert one.effects() == [], "its turn is over"
    give(one, [chunk(0, size, digest=b"other"), chunk(1, size, digest=b"other")], 1_700 * MS, sender=1)
    assert [message for _, message in one.said()][:1] == [request(2 * CHUNK, 4, b"other")]


def test_elders_are_asked_in_their_order() -> None:
    one = Hand(7)
    three = GroupView(4, (3, 1), (0, 1, 2, 7), (0, 0, 0, 0), 3)
    one.transfer.begin(three, 7, elder=False, now=0)
    asked = []
    for now in range(2_000):
        one.transfer.look(three, now * MS)
        asked += [name for name, _ in one.said()]
    assert list(dict.fromkeys(asked)) == [0, 1, 2]


def test_when_all_has_come_every_elder_is_told_and_the_stream_goes_on() -> None:
    one = joiner()
    give(one, [chunk(0, CHUNK + 3), chunk(1, CHUNK + 3, data=b"end")], 0)
    assert one.effects()[-2:] == [Restore(4), EndHoldBack(hand_over=True)]
    told = [
        (name, message) for name, message in one.said() if isinstance(message, SnapshotRequest) and not message.count
    ]
    assert told == [(0, request(CHUNK + 3, 0)), (1, request(CHUNK + 3, 0))]
    assert one.transfer.deadline(active=True) is None
    give(one, [chunk(1, CHUNK + 3, data=b"end")], 0)
    assert one.effects() == []


def test_an_empty_state_is_a_state() -> None:
    one = joiner()
    give(one, [chunk(0, 0, data=b"")], 0)
    assert one.effects() == [RestoreChunk(4, 0, b""), Restore(4), EndHoldBack(hand_over=True)]


def test_an_empty_chunk_in_the_middle_ends_nothing() -> None:
    one = joiner()
    give(one, [chunk(0, 2 * CHUNK, data=b"")], 0)
    assert one.effects() == [RestoreChunk(4, 0, b"")]
    assert one.transfer.holds_back


def test_how_long_a_chunk_takes_is_measured_and_waited_for_before_it_is_asked_for_again() -> None:
    """The first one comes when the elder's application has given its state, and measures nothing."""
    one = joiner()
    size = 500 * CHUNK
    one.transfer.look(VIEW, 0)
    give(one, [chunk(0, size)], 40 * MS)
    assert one.transfer.deadline(active=True) == (40 + 50) * MS, "a question's usual pause"
    give(one, [chunk(1, size)], 41 * MS)
    give(one, [chunk(2, size)], 141 * MS)
    assert one.transfer.deadline(active=True) is not None
    assert one.transfer.deadline(active=True) == 141 * MS + 300 * MS, "100 ms, and four times half of it as spread"
    give(one, [chunk(3, size)], 142 * MS)
    assert one.transfer.deadline(active=True) == 142 * MS + 300 * MS, "each way is measured once"
    give(one, [chunk(4, size)], 5_000 * MS)
    give(one, [chunk(5, size), chunk(6, size)], 9_000 * MS)
    assert one.transfer.deadline(active=True) == 9_000 * MS + 8 * 50 * MS, "at most"


# Where there is no state to give


def refuse(one: Hand, sender: int, now: Instant) -> None:
    one.transfer.on_none(sender, NoSnapshot(VIEW.id), now)
    one.transfer.look(VIEW, now)


def failed_elder() -> Hand:
    one = elder()
    one.transfer.keep(Snapshot(VIEW.number, None))
    return one


def test_an_elder_whose_application_gave_no_state_says_so_to_whoever_asks() -> None:
    one = failed_elder()
    one.transfer.on_request(7, request(0, 1), 0)
    assert one.said() == [(7, NoSnapshot(VIEW.id))]
    one.transfer.on_request(7, request(0, 0), 0)
    assert one.effects() == [Release(4)], "one that has the state needs none of this elder's"
    one.said()
    one.transfer.on_request(7, request(0, 1), 0)
    assert one.said() == []


def test_where_one_elder_has_no_state_to_give_the_next_is_asked_at_once() -> None:
    one = joiner()
    one.transfer.look(VIEW, 0)
    one.said()
    refuse(one, 0, MS)
    assert one.said() == [(1, request(0, WINDOW_MIN, b""))]
    refuse(one, 0, 2 * MS)
    assert one.said() == [], "a repetition is no news"
    give(one, [chunk(0, 5, data=b"state")], 3 * MS, sender=1)
    assert Restore(4) in one.effects()
    assert {name for name, _ in one.said()} == {0, 1}, "both may let theirs go"


def test_what_came_before_an_elder_lost_its_state_is_not_asked_for_again() -> None:
    one = joiner()
    one.transfer.look(VIEW, 0)
    give(one, [chunk(0, 9 * CHUNK), chunk(1, 9 * CHUNK)], MS)
    one.said()
    refuse(one, 0, 2 * MS)
    ((name, asked),) = one.said()
    assert (name, asked.offset, asked.digest) == (1, 2 * CHUNK, DIGEST)  # type: ignore[union-attr]


def test_where_nobody_has_a_state_to_give_a_joiner_comes_anew_and_each_time_later() -> None:
    one, waits = Hand(7), []
    for _ in range(9):
        one.transfer.begin(VIEW, 7, elder=False, now=0)
        for elder in (0, 1):
            assert not one.transfer.is_in_vain(0)
            refuse(one, elder, 0)
        assert one.transfer.deadline(active=True) is not None
        waits.append(one.transfer.deadline(active=True))
        assert not one.transfer.is_in_vain(waits[-1] - 1)
        assert one.transfer.is_in_vain(waits[-1])
        assert one.transfer.deadline(active=False) is None, "while the view ends it would be woken over and over"
        assert one.transfer.forget(7) == [EndHoldBack(hand_over=False, refused_by=(0, 1))]
    assert [wait // (1_000 * MS) for wait in waits] == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    one.transfer.begin(VIEW, 7, elder=False, now=0)
    give(one, [chunk(0, 5, data=b"state")], 0)
    one.transfer.begin(VIEW, 7, elder=False, now=0)
    for elder in (0, 1):
        refuse(one, elder, 0)
    assert one.transfer.deadline(active=True) == 1_000 * MS, "a state that came begins it afresh"


def test_a_refusal_that_concerns_no_state_that_is_due_is_passed_over() -> None:
    one = joiner()
    for who in (0, 1):
        one.transfer.on_none(who, NoSnapshot((3, (3, 1))), 0)
    refuse(one, 7, 0)
    assert not one.transfer.is_in_vain(10_000 * MS)
    refuse(elder(), 1, 0)
