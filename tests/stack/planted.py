"""Bugs to be planted in receipts, inbox, state, sessions, keys, partitions, discovery and storage: a function each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import pytest

import antiphon
from antiphon.live import burst, discovery, member
from antiphon.live.backlog import Backlog, StreamEffect
from antiphon.live.discovery import Discovery
from antiphon.live.driver import Driver
from antiphon.live.events import Batch, Message, Notice, ViewChange
from antiphon.live.handshake import Description, Handshake
from antiphon.live.hello import Seal
from antiphon.live.inbox import Inbox
from antiphon.live.member import LiveMember
from antiphon.live.receipts import Lost, Receipt, Receipts
from antiphon.live.sender import Sender
from antiphon.live.session import SealedSession
from antiphon.live.state import StateKeeper
from antiphon.protocol.machine import Capture, Restore
from antiphon.protocol.membership import partitionable
from antiphon.protocol.membership.confirmation import ViewConfirmation
from antiphon.protocol.membership.decisions import Decisions
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.outbox import Outbox
from antiphon.protocol.membership.partitionable import PartitionableAgreement
from antiphon.protocol.membership.roster import Roster
from antiphon.protocol.membership.slow_receiver import SlowReceiverPolicy
from antiphon.protocol.membership.views import GroupView
from antiphon.testing.disk import SimulatedDisk
from antiphon.testing.host import SimulatedHost

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def every(number: int) -> Callable[[], bool]:
    """Give a function that says yes every so many calls."""
    count = 0

    def due() -> bool:
        nonlocal count
        count += 1
        return count % number == 0

    return due


def stable_at_once(patch: pytest.MonkeyPatch) -> None:
    real = Receipts.add
    patch.setattr(Receipts, "add", lambda self, receipt, *args: (real(self, receipt, *args), receipt.mark("stable"))[0])


def stable_too_far(patch: pytest.MonkeyPatch) -> None:
    real = Receipts.stable
    patch.setattr(Receipts, "stable", lambda self, upto: real(self, upto + 3))


def open_for_ever_after_exclusion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receipts, "incarnation_ended", lambda self, why: None)


def stable_after_exclusion(patch: pytest.MonkeyPatch) -> None:
    real_add, real_ended, given = Receipts.add, Receipts.incarnation_ended, dict[Receipts, list[Receipt]]()

    def add(self: Receipts, receipt: Receipt, *args: Any) -> None:
        given.setdefault(self, []).append(receipt)
        real_add(self, receipt, *args)

    def ended(self: Receipts, why: str) -> None:
        for receipt in given.get(self, ()):
            receipt.mark("stable")
        real_ended(self, why)

    patch.setattr(Receipts, "add", add)
    patch.setattr(Receipts, "incarnation_ended", ended)


def the_next_receipt(patch: pytest.MonkeyPatch) -> None:
    real = Receipts.delivered
    patch.setattr(Receipts, "delivered", lambda self, seq, data: real(self, seq + 1, data))


def view_end_loses_receipts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receipts, "view_ended", lambda self: self.end("a view ended"))


def no_reason(patch: pytest.MonkeyPatch) -> None:
    real = Receipt.end
    patch.setattr(Receipt, "end", lambda self, how: real(self, type(how)("")))


def unknown_never_said(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receipt, "end", lambda self, how: None)


def delivered_forgotten(patch: pytest.MonkeyPatch) -> None:
    real, due = Receipt.mark, every(9)
    patch.setattr(Receipt, "mark", lambda self, what: None if due() else real(self, what))


def inbox_loses(patch: pytest.MonkeyPatch) -> None:
    real, due = Inbox.put_messages, every(11)
    patch.setattr(Inbox, "put_messages", lambda self, *args: None if due() else real(self, *args))


def inbox_doubles(patch: pytest.MonkeyPatch) -> None:
    real, due = Inbox.put_messages, every(11)
    patch.setattr(
        Inbox, "put_messages", lambda self, *args: (real(self, *args), real(self, *args) if due() else None)[0]
    )


def inbox_reorders(patch: pytest.MonkeyPatch) -> None:
    real, kept, due = Inbox.put_messages, dict[Inbox, Any](), every(11)

    def put(self: Inbox, *args: Any) -> None:
        if self not in kept and due():
            kept[self] = args
            return
        real(self, *args)
        if self in kept:
            real(self, *kept.pop(self))

    patch.setattr(Inbox, "put_messages", put)


def inbox_mixes_up_senders(patch: pytest.MonkeyPatch) -> None:
    real, due = Inbox.put_messages, every(20)
    patch.setattr(
        Inbox,
        "put_messages",
        lambda self, sender, *rest: real(self, "10.0.0.9:7000" if due() else sender, *rest),
    )


def inbox_names_the_wrong_view(patch: pytest.MonkeyPatch) -> None:
    real, due = Inbox.put_messages, every(20)
    patch.setattr(
        Inbox, "put_messages", lambda self, sender, payloads, view: real(self, sender, payloads, view + due())
    )


def views_are_lost(patch: pytest.MonkeyPatch) -> None:
    real, due = Inbox.put, every(4)
    patch.setattr(Inbox, "put", lambda self, item: None if isinstance(item, ViewChange) and due() else real(self, item))


def views_come_twice(patch: pytest.MonkeyPatch) -> None:
    real = Inbox.put
    patch.setattr(
        Inbox, "put", lambda self, item: (real(self, item), real(self, item) if isinstance(item, ViewChange) else 0)[0]
    )


def exclusion_is_not_said(patch: pytest.MonkeyPatch) -> None:
    real = Inbox.put
    patch.setattr(Inbox, "put", lambda self, item: None if isinstance(item, Notice) else real(self, item))


def state_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    real = Inbox.put
    patch.setattr(Inbox, "put", lambda self, item: None if isinstance(item, Restore) else real(self, item))


def _behind_the_next_messages(patch: pytest.MonkeyPatch, kind: type[Capture] | type[Restore]) -> None:
    """Let what concerns a state come behind the messages that follow it."""
    real, real_messages, late = Inbox.put, Inbox.put_messages, dict[Inbox, Any]()

    def put(self: Inbox, item: Any) -> None:
        if isinstance(item, kind):
            late[self] = item
        else:
            real(self, item)

    def put_messages(self: Inbox, *args: Any) -> None:
        real_messages(self, *args)
        if self in late:
            real(self, late.pop(self))

    patch.setattr(Inbox, "put", put)
    patch.setattr(Inbox, "put_messages", put_messages)


def state_is_captured_late(patch: pytest.MonkeyPatch) -> None:
    _behind_the_next_messages(patch, Capture)


def a_new_iterator_skips_one(patch: pytest.MonkeyPatch) -> None:
    real = Inbox.events

    async def events(self: Inbox) -> AsyncIterator[Any]:
        skip = True
        async for event in real(self):
            if skip and isinstance(event, Message):
                skip = False
            else:
                yield event

    patch.setattr(Inbox, "events", events)


def large_messages_die_with_a_view(patch: pytest.MonkeyPatch) -> None:
    real = burst.BurstReader.keep_only
    patch.setattr(burst.BurstReader, "keep_only", lambda self, senders: real(self, ()))


def large_messages_are_not_handed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(burst.BurstReader, "unfinished", lambda self: [])


def keys_are_never_changed(patch: pytest.MonkeyPatch) -> None:
    real = SealedSession.set_keys

    def set_keys(self: SealedSession, keys: Any) -> None:
        if not self._keys:
            real(self, keys)

    patch.setattr(SealedSession, "set_keys", set_keys)


def founding_at_once(patch: pytest.MonkeyPatch) -> None:
    real = GroupView.is_quorum
    patch.setattr(GroupView, "is_quorum", lambda self, names: self.number == 0 or real(self, names))
    patch.setattr(discovery.Discovery, "_consider_founding", lambda self: self._end_search())


def nobody_tells_newcomers(patch: pytest.MonkeyPatch) -> None:
    real = discovery.Discovery.take
    patch.setattr(discovery.Discovery, "take", lambda self, packet: None if self.has_found else real(self, packet))


def nothing_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedHost, "write", lambda self, path, content, **_: None)


def nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "sync", lambda self, path: None)


def who_was_started_again_is_let_in(patch: pytest.MonkeyPatch) -> None:
    real = Handshake.__init__
    patch.setattr(Handshake, "__init__", lambda self, *args, fixed: real(self, *args))


def always_active(patch: pytest.MonkeyPatch) -> None:
    real = antiphon.Group.status
    patch.setattr(antiphon.Group, "status", lambda self: msgspec.structs.replace(real(self), standing="active"))


def sends_vanish(patch: pytest.MonkeyPatch) -> None:
    real, due = antiphon.Group.send, every(9)

    async def send(self: antiphon.Group, payload: bytes, **options: Any) -> Receipt:
        return Receipt() if due() else await real(self, payload, **options)

    patch.setattr(antiphon.Group, "send", send)


def failures_of_the_application(patch: pytest.MonkeyPatch) -> None:
    real, due = antiphon.Group.send, every(30)

    async def send(self: antiphon.Group, payload: bytes, **options: Any) -> Receipt:
        if due():
            raise antiphon.GroupClosed("a bug")
        return await real(self, payload, **options)

    patch.setattr(antiphon.Group, "send", send)


def links_are_not_named(patch: pytest.MonkeyPatch) -> None:
    real = antiphon.Group.status
    patch.setattr(antiphon.Group, "status", lambda self: msgspec.structs.replace(real(self), links=()))


def the_wrong_link_is_named(patch: pytest.MonkeyPatch) -> None:
    real = antiphon.Group.status
    wrong = (("10.0.0.1:7000", "10.0.0.2:7000"),)
    patch.setattr(antiphon.Group, "status", lambda self: msgspec.structs.replace(real(self), links=wrong))


def the_inbox_is_never_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "is_full", property(lambda self: False))


def after_a_pause_nobody_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewConfirmation, "must_be_confirmed", lambda self: False)


def sends_go_out_twice(patch: pytest.MonkeyPatch) -> None:
    real, due = Sender._submit, every(7)

    def submit(self: Sender, payload: bytes, receipt: Receipt, kind: Any) -> None:
        real(self, payload, receipt, kind)
        if due() and self._has_room():
            real(self, payload, Receipt(), kind)

    patch.setattr(Sender, "_submit", submit)


def what_waited_is_called_lost(patch: pytest.MonkeyPatch) -> None:
    real = Receipts.incarnation_ended

    def ended(self: Receipts, why: str) -> None:
        for receipt, _ in self._open.values():
            receipt.end(Lost("never sent"))  # though the group may have it, or will get it from the next incarnation
        real(self, why)

    patch.setattr(Receipts, "incarnation_ended", ended)


def the_first_state_is_kept(patch: pytest.MonkeyPatch) -> None:
    real, kept = StateKeeper.capture, dict[int, bytes]()

    def capture(self: StateKeeper, view: int) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        self._snapshot = lambda: kept.setdefault(id(self), snapshot())
        real(self, view)
        self._snapshot = snapshot

    patch.setattr(StateKeeper, "capture", capture)


def exclusions_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = antiphon.Group.status

    def status(self: antiphon.Group) -> antiphon.Status:
        told = real(self)
        return msgspec.structs.replace(told, counts={**told.counts, "exclusions": 0})

    patch.setattr(antiphon.Group, "status", status)


def one_that_searches_names_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Discovery, "unheard", lambda self: [])


# Receipts, and the end of a group


def stable_before_delivered(patch: pytest.MonkeyPatch) -> None:
    real = Receipt.mark

    def mark(self: Receipt, what: Any) -> None:
        real(self, what)
        for future, waited_for in self._futures.items():
            if what == waited_for == "stable" and not future.done():
                future.set_result(None)  # wherever it stands in the order

    patch.setattr(Receipt, "mark", mark)


def stable_says_nothing_of_delivered(patch: pytest.MonkeyPatch) -> None:
    async def stable(self: Receipt) -> None:
        if not self.is_stable:  # whoever asks when it is, is told at once
            await self._wait("stable")

    patch.setattr(Receipt, "stable", stable)


def outcome_is_behind(patch: pytest.MonkeyPatch) -> None:
    real = Receipt.outcome.fget
    patch.setattr(Receipt, "outcome", property(lambda self: "pending" if (said := real(self)) == "delivered" else said))


def receipts_stay_open_when_a_group_is_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receipts, "end", lambda self, why: None)
    patch.setattr(Receipts, "never_sent", lambda self, count, why: None)


def those_who_wait_for_room_are_not_told(patch: pytest.MonkeyPatch) -> None:
    def refuse(self: Sender, why: str) -> None:
        self._gone, self._open_bytes = why, 0

    patch.setattr(Sender, "refuse", refuse)


def leaving_waits_for_nothing(patch: pytest.MonkeyPatch) -> None:
    async def until(self: LiveMember, condition: Callable[[], bool], seconds: float) -> None:
        return None

    patch.setattr(LiveMember, "_until", until)


def what_is_under_way_is_called_lost(patch: pytest.MonkeyPatch) -> None:
    real = Receipts.never_sent
    patch.setattr(Receipts, "never_sent", lambda self, count, why: real(self, len(self._open), why))


def the_stream_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "close", lambda self, failure=None: None)


# The application's state


def what_came_behind_the_state_comes_twice(patch: pytest.MonkeyPatch) -> None:
    real = Backlog.take

    def take(self: Backlog) -> Iterator[StreamEffect]:
        effects = list(real(self))
        return iter([*effects, *effects[-1:]])

    patch.setattr(Backlog, "take", take)


def what_came_behind_the_state_is_lost(patch: pytest.MonkeyPatch) -> None:
    real = Backlog.take
    patch.setattr(Backlog, "take", lambda self: iter(list(real(self))[:-1]))


def a_snapshot_is_one_message_old(patch: pytest.MonkeyPatch) -> None:
    real = Inbox.put

    def put(self: Inbox, item: Any) -> None:
        real(self, item)
        if isinstance(item, Capture):
            before = max((index for index, (one, _) in enumerate(self._items) if isinstance(one, Batch)), default=None)
            if before is not None:
                self._items.insert(before, self._items.pop())

    patch.setattr(Inbox, "put", put)


def the_state_comes_after_the_first_message(patch: pytest.MonkeyPatch) -> None:
    _behind_the_next_messages(patch, Restore)


def a_state_is_forgotten_when_its_reader_gives_up(patch: pytest.MonkeyPatch) -> None:
    async def restore(self: Inbox) -> None:
        item, _ = self._items.popleft()
        assert isinstance(item, Restore)
        await self._at_state(item)

    patch.setattr(Inbox, "_restore", restore)


# Slow readers


def an_inbox_never_has_room_again(patch: pytest.MonkeyPatch) -> None:
    real = Inbox._take

    def take(self: Inbox) -> Any:
        before = self.bytes
        item = real(self)
        self.bytes = max(self.bytes, min(before, 3_000))
        return item

    patch.setattr(Inbox, "_take", take)


def slow_readers_are_never_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SlowReceiverPolicy, "watch", lambda self, *args: None)


def a_full_inbox_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Driver, "_tell_of_a_full_inbox", lambda self: None)


def nothing_is_too_old_for_a_slow_reader(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SlowReceiverPolicy, "limited", lambda self, message, *_: message)
    patch.setattr(SlowReceiverPolicy, "watch", lambda self, *args: None)


# Partitions


def a_minority_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupView, "is_quorum", lambda self, names: True)


def never_said(what: str, patch: pytest.MonkeyPatch) -> None:
    real = Inbox.put
    patch.setattr(
        Inbox, "put", lambda self, item: None if isinstance(item, Notice) and item.what == what else real(self, item)
    )


def stalling_is_not_said(patch: pytest.MonkeyPatch) -> None:
    never_said("stalled", patch)


def resuming_is_not_said(patch: pytest.MonkeyPatch) -> None:
    never_said("resumed", patch)


def no_side_yields(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionableAgreement, "heeds", lambda self, view, sender: False)


def a_side_waits_for_the_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        PartitionableAgreement, "is_quorum", lambda self, names: self.view.number == 0 or self.view.is_quorum(names)
    )


def the_smaller_side_stands(patch: pytest.MonkeyPatch) -> None:
    real = partitionable.outranks
    patch.setattr(partitionable, "outranks", lambda one, other: not real(one, other))


def yielding_is_not_said(patch: pytest.MonkeyPatch) -> None:
    never_said("yielded", patch)


# Sessions and keys


def a_second_session_is_never_let_in(patch: pytest.MonkeyPatch) -> None:
    real = SealedSession.accept

    def accept(self: SealedSession, sender: int, session: int, counter: int) -> None:
        if sender not in self._heard:
            real(self, sender, session, counter)

    patch.setattr(SealedSession, "accept", accept)


def challenges_are_answered_once(patch: pytest.MonkeyPatch) -> None:
    real, answered = Handshake.answer, set[tuple[int, int]]()

    def answer(self: Handshake, sender: int, body: bytes) -> None:
        if (id(self), sender) not in answered:
            answered.add((id(self), sender))
            real(self, sender, body)

    patch.setattr(Handshake, "answer", answer)


def those_set_up_differently_are_let_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Description, "differences", lambda self, response: "")
    patch.setattr(member, "digest", lambda *about: "one group")


def old_keys_are_taken_for_ever(patch: pytest.MonkeyPatch) -> None:
    real = SealedSession.set_keys

    def set_keys(self: SealedSession, keys: Any) -> None:
        real(self, [*keys, *self._keys.values()])

    patch.setattr(SealedSession, "set_keys", set_keys)


def only_the_first_key_is_taken(patch: pytest.MonkeyPatch) -> None:
    real = SealedSession.set_keys
    patch.setattr(SealedSession, "set_keys", lambda self, keys: real(self, keys[:1]))


def hellos_keep_the_old_key(patch: pytest.MonkeyPatch) -> None:
    real = Seal.set_keys
    patch.setattr(Seal, "set_keys", lambda self, keys: None if hasattr(self, "_ciphers") else real(self, keys))


# A state that has gone back in time


def an_old_state_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outbox, "note_memory", lambda self, **_: setattr(self._own, "remembers", True))


def who_could_decide_alone_asks_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roster, "others_may_know_more", lambda self, view, now: False)


def the_count_of_starts_is_never_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decisions, "on_superseded", lambda self, sender, superseded, now: None)


# Groups that were founded apart, times that are given, slow links


def groups_that_meet_stay_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Discovery, "_meet_another_group", lambda self, founding, view: None)


def a_group_that_has_begun_gives_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Discovery, "_newest_view", lambda self: None)


def counts_of_a_group_that_is_given_up_are_lost(patch: pytest.MonkeyPatch) -> None:
    real = LiveMember.give_up

    def give_up(self: LiveMember, founding: Any) -> None:
        real(self, founding)
        self.driver.machine.counts.clear()

    patch.setattr(LiveMember, "give_up", give_up)


def a_given_time_is_not_heeded(patch: pytest.MonkeyPatch) -> None:
    real = FailureDetector.suspected
    late = 120_000_000_000
    patch.setattr(FailureDetector, "suspected", lambda self, name, now: real(self, name, now - late))


def windows_do_not_fill(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sender, "_has_room", lambda self: True)
