"""The judge notices: groups with one bug each, planted in receipts, inbox, state, sessions, discovery and storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeAlias

import msgspec
import pytest

import antiphon
from antiphon.live import burst, discovery
from antiphon.live.discovery import Discovery
from antiphon.live.events import Message, Notice, ViewChange
from antiphon.live.handshake import Handshake
from antiphon.live.inbox import Inbox
from antiphon.live.receipts import Lost, Receipt, Receipts
from antiphon.live.sender import Sender
from antiphon.live.session import SealedSession
from antiphon.live.state import StateKeeper
from antiphon.protocol.machine import Capture, Restore
from antiphon.protocol.membership.confirmation import ViewConfirmation
from antiphon.protocol.membership.views import GroupView
from antiphon.testing.disk import SimulatedDisk
from antiphon.testing.host import SimulatedHost
from antiphon.testing.torture.judge import judge
from antiphon.testing.torture.run import run
from antiphon.testing.torture.schedule import PlannedFault, Schedule, Setup, Work

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
SEEDS_MAX: Final = 6

# Schedules that ask for something each; a seed chooses what else happens.

ORDERS: Final = ("fifo", "sequencer", "causal-blocks", "abcast", "co", "tomp")


def busy(seed: int, **setup: Any) -> Schedule:
    """Three that send all the time, of which one crashes and comes back, and one is cut off for a while."""
    work = Work(messages=90, pause_ms=25)
    return Schedule(
        seed=seed,
        setup=Setup(**{"ordering": ORDERS[seed % 6], "snapshot_bytes": 0, **setup}),
        work=(work, msgspec.structs.replace(work, batches=bool(seed % 2)), work),
        faults=(
            PlannedFault(kind="crash", at=400 + 40 * seed, until=900, members=(1,)),
            PlannedFault(kind="partition", at=1_500 + 10 * seed, until=2_700, members=(2,)),
        ),
    )


def heavy(seed: int) -> Schedule:
    """Large messages, in parts, while a member joins."""
    heavy_work = Work(messages=30, pause_ms=0, size=250_000)
    return Schedule(
        seed=seed,
        setup=Setup(ordering=ORDERS[seed % 2], snapshot_bytes=0, window=2),  # type: ignore[arg-type]
        work=(heavy_work, heavy_work, Work(start_ms=400 + 37 * seed)),
    )


def cancelled(seed: int) -> Schedule:
    """An application gives up its iterator and takes another."""
    faults = tuple(PlannedFault(kind="cancel", at=at, until=at, members=(0,)) for at in (200, 400, 600))
    return msgspec.structs.replace(busy(seed), faults=faults)


def rotated(seed: int) -> Schedule:
    """The key is replaced, and a member comes back after that."""
    faults = (
        PlannedFault(kind="keys", at=300, until=800, members=(0,)),
        PlannedFault(kind="crash", at=1_000, until=1_800, members=(1,)),
    )
    return msgspec.structs.replace(busy(seed, key=True), faults=faults)


def found(seed: int) -> Schedule:
    """Members that find each other, one of them late."""
    return Schedule(
        seed=seed, setup=Setup(discover="multicast", snapshot_bytes=0), work=(Work(), Work(), Work(start_ms=2_500))
    )


def searching(seed: int) -> Schedule:
    """One never hears the only one that it may ask for the group."""
    faults = (PlannedFault(kind="cut", at=0, members=(0,), others=(2,)),)
    return Schedule(seed=seed, setup=Setup(discover="peers", snapshot_bytes=0), faults=faults)


def parted(seed: int) -> Schedule:
    """One is cut off for good."""
    return msgspec.structs.replace(busy(seed), faults=(PlannedFault(kind="partition", at=700, members=(2,)),))


def crashed(seed: int) -> Schedule:
    """Most of the group crash at once, and come back."""
    faults = (PlannedFault(kind="crash", at=600 + 40 * seed, until=1_200, members=(1, 2)),)
    return msgspec.structs.replace(busy(seed), faults=faults)


def powerless(seed: int) -> Schedule:
    """The machines of most of the group lose their power at once."""
    faults = tuple(msgspec.structs.replace(fault, power=True) for fault in crashed(seed).faults)
    return msgspec.structs.replace(crashed(seed), faults=faults)


def started_again(seed: int) -> Schedule:
    """Without views, one crashes in the middle of work and is started again."""
    faults = (PlannedFault(kind="crash", at=1_500, until=1_800 + 40 * seed, members=(seed % 3,)),)
    return msgspec.structs.replace(busy(seed, views=False, snapshot_bytes=None), faults=faults)


def leaving(seed: int) -> Schedule:
    """One leaves while it sends."""
    return msgspec.structs.replace(busy(seed), faults=(PlannedFault(kind="leave", at=500, members=(1,)),))


def deaf(seed: int) -> Schedule:
    """One does not read for a while, with a small inbox."""
    work = Work(messages=400, pause_ms=0, size=1_000, many=5)
    reader = Work(messages=0, size=1_000, deaf_ms=(300 + seed, 4_000))
    return Schedule(
        seed=seed,
        setup=Setup(ordering="fifo", window_bytes=4_000, inbox_bytes_max=2_000),
        work=(work, work, reader),
    )


def paused(seed: int) -> Schedule:
    """The sequencer stands still for longer than suspicion, in the middle of much work."""
    work = Work(messages=300, pause_ms=5)
    return Schedule(
        seed=seed,
        setup=Setup(snapshot_bytes=0),
        work=(work, work, work),
        faults=(PlannedFault(kind="pause", at=700 + 10 * seed, until=2_000, members=(0,)),),
    )


# What is planted. Each is a function that replaces one method.


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
    patch.setattr(Receipts, "add", lambda self, receipt, data: (real(self, receipt, data), receipt.mark("stable"))[0])


def stable_too_far(patch: pytest.MonkeyPatch) -> None:
    real = Receipts.stable
    patch.setattr(Receipts, "stable", lambda self, upto: real(self, upto + 3))


def open_for_ever_after_exclusion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receipts, "incarnation_ended", lambda self, why: None)


def stable_after_exclusion(patch: pytest.MonkeyPatch) -> None:
    real_add, real_ended, given = Receipts.add, Receipts.incarnation_ended, dict[Receipts, list[Receipt]]()

    def add(self: Receipts, receipt: Receipt, data: bytes) -> None:
        given.setdefault(self, []).append(receipt)
        real_add(self, receipt, data)

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


def state_is_captured_late(patch: pytest.MonkeyPatch) -> None:
    real, real_messages, late = Inbox.put, Inbox.put_messages, dict[Inbox, Capture]()

    def put(self: Inbox, item: Any) -> None:
        if isinstance(item, Capture):
            late[self] = item
        else:
            real(self, item)

    def put_messages(self: Inbox, *args: Any) -> None:
        real_messages(self, *args)
        if self in late:
            real(self, late.pop(self))

    patch.setattr(Inbox, "put", put)
    patch.setattr(Inbox, "put_messages", put_messages)


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
    patch.setattr(SimulatedHost, "write", lambda self, path, content: None)


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


BUGS: Final[list[tuple[Plant, Callable[[int], Schedule], set[str]]]] = [
    (stable_at_once, busy, {"stable", "final-states"}),
    (stable_too_far, busy, {"stable", "final-states", "receipts-end"}),
    (open_for_ever_after_exclusion, busy, {"receipts-end", "stable", "delivered", "broken"}),
    (stable_after_exclusion, busy, {"stable", "final-states"}),
    (the_next_receipt, busy, {"receipts-end", "broken"}),
    (view_end_loses_receipts, busy, {"unknown"}),
    (no_reason, busy, {"unknown"}),
    (unknown_never_said, busy, {"receipts-end"}),
    (delivered_forgotten, busy, {"receipts-end"}),
    (inbox_loses, busy, {"view-synchrony", "delivered", "state-transfer"}),
    (inbox_doubles, busy, {"integrity"}),
    (inbox_reorders, busy, {"fifo", "total", "causal"}),
    (inbox_mixes_up_senders, busy, {"integrity"}),
    (inbox_names_the_wrong_view, busy, {"message-views"}),
    (views_are_lost, busy, {"message-views"}),
    (views_come_twice, busy, {"views"}),
    (exclusion_is_not_said, busy, {"unknown", "view-synchrony", "state-transfer"}),
    (state_is_not_restored, busy, {"state-transfer"}),
    (state_is_captured_late, busy, {"state-transfer", "integrity"}),
    (a_new_iterator_skips_one, cancelled, {"delivered", "view-synchrony", "final-states"}),
    (large_messages_die_with_a_view, heavy, {"broken", "delivered", "view-synchrony"}),
    (large_messages_are_not_handed_over, heavy, {"broken", "final-states", "view-synchrony"}),
    (keys_are_never_changed, rotated, {"alive"}),
    (founding_at_once, found, {"views", "alive"}),
    (nobody_tells_newcomers, found, {"views", "alive"}),
    (nothing_is_written, crashed, {"alive"}),
    (nothing_is_synced, powerless, {"alive"}),
    (who_was_started_again_is_let_in, started_again, {"stable-without-views"}),
    (always_active, parted, {"alive"}),
    (links_are_not_named, parted, {"culprit"}),
    (the_wrong_link_is_named, parted, {"culprit"}),
    (the_inbox_is_never_full, deaf, {"bounds"}),
    (after_a_pause_nobody_is_asked, paused, {"left-behind"}),
    (sends_vanish, busy, {"receipts-end"}),
    (failures_of_the_application, busy, {"errors"}),
    (sends_go_out_twice, busy, {"integrity", "broken"}),
    (what_waited_is_called_lost, busy, {"lost"}),
    (the_first_state_is_kept, busy, {"state-transfer", "integrity", "final-states"}),
    (exclusions_are_not_counted, busy, {"anomalies"}),
    (one_that_searches_names_nobody, searching, {"culprit"}),
]


@pytest.mark.parametrize(("plant", "schedule", "rules"), BUGS, ids=[bug[0].__name__ for bug in BUGS])
def test_a_bug_is_noticed(
    plant: Plant, schedule: Callable[[int], Schedule], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    noticed: set[str] = set()
    for seed in range(SEEDS_MAX):
        noticed |= {flaw.rule for flaw in judge(run(schedule(seed)))[0]}
        if noticed & rules:
            return
    pytest.fail(f"not noticed in {SEEDS_MAX} schedules; instead: {sorted(noticed)}")


CALM: Final = [
    *(busy, heavy, cancelled, rotated, found, parted, leaving, deaf, paused, crashed),
    *(powerless, started_again, searching),
]


@pytest.mark.parametrize("schedule", CALM)
def test_without_a_bug_nothing_is_noticed(schedule: Callable[[int], Schedule]) -> None:
    for seed in range(SEEDS_MAX):
        flaws, _ = judge(run(schedule(seed)))
        assert not flaws, f"seed {seed}: {flaws[0]}"


def test_there_are_enough() -> None:
    assert len(BUGS) >= 25
