"""Receipts: each one ends, and tells of its own message, through whatever happens to its member."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

import antiphon
from antiphon import testing
from antiphon.live.receipts import Lost, PartReceipt, Receipt, Receipts, Unknown
from antiphon.protocol.machine import SECOND
from antiphon.protocol.ordering import ORDERINGS
from support.live_group import free_addresses, run

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def kept(count: int) -> tuple[Receipts, list[Receipt]]:
    receipts, made = Receipts(), [Receipt() for _ in range(count)]
    for number, receipt in enumerate(made):
        receipts.add(receipt, b"%d" % number)
    return receipts, made


def test_a_message_keeps_its_receipt_when_it_is_numbered_anew() -> None:
    """Of five, one was stable, one delivered, one dropped; two had not been sent when the incarnation ended."""
    receipts, (stable, delivered, dropped, first, second) = kept(5)
    receipts.delivered(1, b"0")
    receipts.stable(1)
    receipts.delivered(2, b"1")
    receipts.dropped(3, "unknown")
    receipts.incarnation_ended()
    assert [one.outcome for one in (stable, delivered, dropped)] == ["stable", "unknown", "unknown"]
    assert delivered.reason == "the group went on without this member"
    assert dropped.reason == "not delivered here: unknown"
    assert (first.outcome, second.outcome) == ("pending", "pending")
    receipts.delivered(1, b"3")
    receipts.stable(1)
    receipts.delivered(2, b"4")
    assert (first.outcome, second.outcome) == ("stable", "delivered")


@pytest.mark.parametrize("lags", [False, True])
def test_what_has_outlived_its_lifetime_is_not_said_to_be_stable(lags: bool) -> None:
    """Whoever lacked it then has discarded it, and says that it has passed it, like those who have it."""

    async def test() -> None:
        receipts, made = Receipts(lags=lags), [Receipt() for _ in range(4)]
        for number, (receipt, lifetime_ns) in enumerate(zip(made, (20_000_000, 20_000_000, None, 10**12), strict=True)):
            receipts.add(receipt, b"%d" % number, lifetime_ns)
            receipts.delivered(number + 1, b"%d" % number)
        receipts.stable(1)
        waiting = asyncio.create_task(made[1].stable())
        with pytest.raises(Unknown, match="it outlived its lifetime"):
            await asyncio.wait_for(waiting, 5)
        assert receipts.bytes == (2 if lags else 3), "who may lag is not waited for any more"
        time.sleep(0.05)
        receipts.stable(3)
        receipts.view_ended()
        assert [one.outcome for one in made] == ["stable", "unknown", "stable", "stable"]
        assert receipts.all_settled
        assert receipts.bytes == 0

    run(test())


def test_what_comes_too_late_is_not_said_to_be_stable_though_the_loop_was_busy() -> None:
    async def test() -> None:
        receipts, late, last = Receipts(), Receipt(), Receipt()
        for number, receipt in enumerate((late, last)):
            receipts.add(receipt, b"%d" % number, 1_000_000)
            receipts.delivered(number + 1, b"%d" % number)
        time.sleep(0.01)
        receipts.stable(1)
        receipts.view_ended()
        assert [late.outcome, last.outcome] == ["unknown", "unknown"]

    run(test())


@pytest.mark.parametrize("lags", [False, True])
def test_a_lifetime_begins_when_a_message_is_sent_though_it_is_delivered_here_later(lags: bool) -> None:
    """Behind a state that is on its way, or a name, own messages wait; what the others do does not wait for that."""

    async def test() -> None:
        receipts, made = Receipts(lags=lags), [Receipt() for _ in range(3)]
        for number, receipt in enumerate(made):
            receipts.add(receipt, b"%d" % number, 20_000_000)
            receipts.sent(number + 1)
        receipts.stable(1)
        time.sleep(0.05)
        receipts.stable(2)
        assert [one.outcome for one in made] == ["pending"] * 3
        for number, _ in enumerate(made):
            receipts.delivered(number + 1, b"%d" % number)
        assert [one.is_delivered for one in made] == [True] * 3
        assert [one.outcome for one in made] == ["stable", "unknown", "unknown"]
        receipts.stable(3)
        receipts.view_ended()
        assert [one.outcome for one in made] == ["stable", "unknown", "unknown"]
        assert (receipts.all_settled, receipts.bytes) == (True, 0)

    run(test())


def test_no_timer_is_left_of_a_lifetime_that_does_not_matter_any_more() -> None:
    """Messages with a lifetime of an hour once left a timer each, for an hour."""

    async def test() -> None:
        receipts, made = Receipts(), [Receipt() for _ in range(4)]
        for number, receipt in enumerate(made):
            receipts.add(receipt, b"%d" % number, 3_600 * SECOND)
            receipts.delivered(number + 1, b"%d" % number)
        timers = [one.expiry for one in made]
        receipts.stable(1)
        receipts.dropped(2, "lifetime")
        receipts.incarnation_ended()
        assert [one.outcome for one in made] == ["stable", "unknown", "unknown", "unknown"]
        assert all(timer is not None and timer.cancelled() for timer in timers)

    run(test())


def test_many_tasks_may_wait_for_one_receipt() -> None:
    """What it takes once grew with the square of their number: 10,000 tasks stopped the loop for two seconds."""

    async def steps(waiting: int) -> int:
        receipt, steps = Receipt(), 0

        def trace(frame: FrameType, event: str, _: object) -> TraceFunction:
            nonlocal steps
            frame.f_trace_opcodes = True
            steps += event == "opcode"
            return trace

        tasks = [asyncio.create_task(receipt.stable()) for _ in range(waiting)]
        await asyncio.sleep(0)
        receipt.mark("delivered")
        before = sys.gettrace()
        sys.settrace(trace)
        receipt.mark("stable")
        await asyncio.wait(tasks)
        sys.settrace(before)
        return steps

    assert asyncio.run(steps(200)) < 5 * asyncio.run(steps(50))


def test_a_receipt_that_is_printed_says_what_became_of_its_message() -> None:
    _, (pending, ended) = kept(2)
    ended.end(Unknown("the group was left"))
    assert repr(pending) == "<Receipt: pending>"
    assert repr(ended) == "<Receipt: unknown, the group was left>"


def test_a_receipt_is_waited_for_in_the_loop_of_its_group(tmp_path: Path) -> None:
    """In another nobody would wake whoever waits there."""
    own, absent = free_addresses(2)

    async def wait(receipt: Receipt) -> None:
        with pytest.raises(antiphon.UsageError, match=r"^loop: a group belongs to the event loop"):
            await asyncio.wait_for(receipt.stable(), 1)

    async def test() -> None:
        async with antiphon.join("g", bind=own, peers=[absent], views=False, leave_s=0) as group:
            for size in (1, 100_000):
                receipt = await group.send(bytes(size))
                await asyncio.to_thread(lambda receipt=receipt: asyncio.run(wait(receipt)))  # type: ignore[misc]
                assert not receipt.settled
        await asyncio.to_thread(lambda: asyncio.run(ended(receipt)))

    async def ended(receipt: Receipt) -> None:
        with pytest.raises(Unknown, match="the group was left"):
            await receipt.stable()

    run(test())


def test_a_receipt_never_tells_of_another_message() -> None:
    receipts, _ = kept(3)
    receipts.incarnation_ended()
    with pytest.raises(AssertionError, match="number 1 was given to one burst and delivered with another"):
        receipts.delivered(1, b"1")


def large(receipts: Receipts, parts: int) -> Receipt:
    whole = Receipt()
    for index in range(parts):
        part = PartReceipt(whole, is_first=index == 0, is_last=index == parts - 1)
        receipts.add(part, b"part %d" % index)
    return whole


def test_the_parts_of_a_large_message_share_one_fate() -> None:
    receipts = Receipts()
    whole = large(receipts, 3)
    for seq in (1, 2):
        receipts.delivered(seq, b"part %d" % (seq - 1))
    receipts.stable(2)
    assert whole.outcome == "pending"
    receipts.delivered(3, b"part 2")
    assert whole.outcome == "delivered"
    receipts.stable(3)
    assert whole.outcome == "stable"


@pytest.mark.parametrize("sent", [1, 2])
def test_a_large_message_that_is_torn_by_an_exclusion_is_lost(sent: int) -> None:
    """Its first parts went with one incarnation and its last with the next; it was once told stable."""
    receipts = Receipts()
    torn, after = large(receipts, 3), large(receipts, 2)
    for seq in range(1, sent + 1):
        receipts.delivered(seq, b"part %d" % (seq - 1))
    receipts.stable(sent)
    receipts.incarnation_ended()
    assert torn.outcome == "lost"
    left = 3 - sent
    for seq in range(1, left + 1):
        receipts.delivered(seq, b"part %d" % (sent + seq - 1))
    receipts.stable(left)
    assert torn.outcome == "lost"
    assert after.outcome == "pending"
    receipts.delivered(left + 1, b"part 0")
    receipts.delivered(left + 2, b"part 1")
    receipts.stable(left + 2)
    assert after.outcome == "stable"


def test_a_part_that_is_dropped_takes_the_message_with_it() -> None:
    receipts = Receipts()
    whole = large(receipts, 2)
    receipts.dropped(1, "unknown")
    receipts.delivered(2, b"part 1")
    receipts.stable(2)
    assert whole.outcome == "unknown"


def test_the_end_of_a_view_makes_stable_what_was_delivered_in_it_alone() -> None:
    receipts, (delivered, pending) = kept(2)
    receipts.delivered(1, b"0")
    receipts.view_ended()
    assert (delivered.outcome, pending.outcome) == ("stable", "pending")
    receipts.end("the group was left")
    assert (pending.outcome, pending.reason) == ("unknown", "the group was left")
    assert receipts.all_delivered


def test_what_was_never_sent_is_lost_and_what_was_sent_is_unknown(tmp_path: Path) -> None:
    async def test() -> None:
        addresses = free_addresses(2)  # the second never comes
        settings = {"views": False, "window": 1, "leave_s": 0.1, "state": tmp_path}
        async with antiphon.join("g", bind=addresses[0], peers=addresses[1:], **settings) as group:  # type: ignore[arg-type]
            sent = [await group.send(b"sent")]
            await asyncio.sleep(0.01)
            for number in range(3):  # the machine keeps some that wait for its window
                sent.append(await group.send(b"waits %d" % number))
                await asyncio.sleep(0.01)
            waiting = await group.send(b"pending")
        with pytest.raises(Unknown, match="left before this was known"):
            await sent[0].stable()
        assert sent[0].outcome == "unknown"
        with pytest.raises(Lost, match="never sent: the group was left"):
            await waiting.stable()
        assert waiting.outcome == "lost"

    run(test())


@pytest.mark.parametrize("seed", range(8))
def test_receipts_of_a_member_that_is_left_out_twice_while_it_waits_for_its_state(seed: int) -> None:
    """Three messages that nobody delivered were once told stable, when the next incarnation had sent three others."""

    async def main(world: testing.World) -> None:
        addresses = world.addresses(3)
        states: dict[str, list[bytes]] = {own: [] for own in addresses}

        def join(own: str) -> antiphon.Group:
            return antiphon.join(
                "g",
                bind=own,
                peers=[peer for peer in addresses if peer != own],
                ordering="fifo",
                snapshot=lambda: b"\n".join(states[own]),
                restore=lambda state: states[own].__setitem__(slice(None), filter(None, state.split(b"\n"))),
            )

        reading = asyncio.Event()
        reading.set()

        async def apply(own: str, group: antiphon.Group) -> None:
            async for event in group:
                if isinstance(event, antiphon.Message):
                    states[own].append(event.payload)
                if own != cut_off:
                    await reading.wait()

        groups = {own: join(own) for own in addresses}
        await asyncio.gather(*(group.__aenter__() for group in groups.values()))
        cut_off = addresses[2]
        tasks = [asyncio.create_task(apply(own, group)) for own, group in groups.items()]
        others = addresses[:2]

        async def until_excluded() -> None:
            world.partition(others, [cut_off])
            while len(groups[others[0]].status().members) != 2:
                await asyncio.sleep(0.05)

        await until_excluded()
        reading.clear()  # no snapshot comes from here on
        world.heal()
        while len(groups[others[0]].status().members) != 3:  # it is in the view, and awaits the state
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02 * seed)
        old = [await groups[cut_off].send(b"old %d" % number) for number in range(3)]
        await asyncio.sleep(0.005 * seed)
        await until_excluded()
        world.heal()
        await asyncio.sleep(1)
        new = []
        for number in range(3):
            new.append(await groups[cut_off].send(b"new %d" % number))
            await asyncio.sleep(0.02)
        reading.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*(receipt.stable() for receipt in new))
        await asyncio.sleep(1)
        for number, receipt in enumerate(old):
            assert receipt.settled
            if receipt.outcome == "stable":
                assert all(b"old %d" % number in states[own] for own in addresses), "stable means held by all"
        assert all(b"new 2" in states[own] for own in addresses)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(group.leave() for group in groups.values()))

    testing.run(main, seed=seed)


@pytest.mark.parametrize("key", [None, bytes(16)], ids=["plain", "sealed"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_without_views_nobody_is_acknowledged_who_was_started_again(ordering: str, key: bytes | None) -> None:
    """Its first messages had the numbers of those of its first start: the others held them, so they were `stable`."""
    stable: list[bytes] = []

    async def take_part(own: str, addresses: list[str], groups: dict[str, antiphon.Group]) -> None:
        others = [peer for peer in addresses if peer != own]
        start = b"first" if own not in groups else b"second"
        settings = {"bind": own, "peers": others, "views": False, "ordering": ordering, "key": key}
        async with antiphon.join("g", **settings) as groups[own]:
            receipts = [await groups[own].send(start + b" start of " + own.encode()) for _ in range(5)]
            for receipt in receipts:
                await receipt.stable()
                stable.append(start)
            await asyncio.Event().wait()

    async def main(world: testing.World) -> None:
        addresses, groups = world.addresses(3), dict[str, antiphon.Group]()
        for own in addresses:
            world.spawn(own, take_part, own, addresses, groups)
        await asyncio.sleep(2)
        assert stable == [b"first"] * 15
        world.crash(addresses[2])
        world.restart(addresses[2])
        try:
            await asyncio.sleep(5)
        finally:
            assert groups[addresses[0]].status().counts["refused-restarted"]

    with pytest.raises(antiphon.UsageError, match=r"^views: this member was started again; .*stop all members"):
        testing.run(main)
    assert b"second" not in stable


def test_stable_is_told_only_once_the_message_is_delivered_here_too() -> None:
    """All may hold a message whose place in the order its sender does not know as yet, and may never learn."""

    async def main() -> None:
        receipts, (placed, never_placed) = kept(2)
        waiting = [asyncio.ensure_future(receipt.stable()) for receipt in (placed, never_placed)]
        receipts.stable(2)
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        assert [receipt.outcome for receipt in (placed, never_placed)] == ["pending", "pending"]
        receipts.delivered(1, b"0")
        await waiting[0]
        await asyncio.wait_for(placed.stable(), 1)
        receipts.dropped(2, "unknown")
        for ended in (waiting[1], never_placed.stable(), never_placed.delivered()):
            with pytest.raises(Unknown, match="not delivered here"):
                await ended

    asyncio.run(main())
