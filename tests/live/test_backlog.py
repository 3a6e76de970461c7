"""What waits behind a state that is on its way: in its order, on the disk, and taken up as the application reads."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import antiphon
from antiphon.live import burst
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.backlog import Backlog
from antiphon.live.receipts import Receipt
from antiphon.live.settings import Settings
from antiphon.live.spill import MEMORY_BYTES_MAX
from antiphon.live.upcalls import Upcalls
from antiphon.protocol.machine import Capture, Deliver, Drop, EndHoldBack, HoldBack, Install, StandingChanged
from antiphon.testing.host import InlineExecutor
from support.live_group import run

ROOT = Path(__file__).parents[2]
ME, OTHER = 10_001, 10_002


def test_all_that_goes_in_comes_out_in_its_order() -> None:
    backlog = Backlog(100)
    said = [
        Install(3, (ME, OTHER), (OTHER,)),
        *(Deliver(OTHER, seq, bytes(seq % 300)) for seq in range(1, 5_000)),
        Deliver(OTHER, 5_000, bytes(500_000)),
        Capture(4),
        StandingChanged("stalled", ((1, 2),)),
    ]
    taken = []
    for start in range(0, len(said), 1_000):
        for effect in said[start : start + 1_000]:
            backlog.append(effect)
        taken += backlog.take()
    while backlog.bytes:
        taken += backlog.take()
    assert taken == said
    backlog.close()


def test_it_is_on_the_disk_and_not_in_memory() -> None:
    backlog, payload = Backlog(100), bytes(1_000)
    tracemalloc.start()
    for seq in range(20_000):
        backlog.append(Deliver(OTHER, seq, payload))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert backlog.bytes > 20_000_000
    assert peak < 3 * MEMORY_BYTES_MAX
    assert not backlog.is_full, "as long as the state has not come, the group does not wait"
    backlog.begin_to_shrink()
    assert not backlog.is_full
    backlog.append(Deliver(OTHER, 1, payload))
    assert backlog.is_full, "from now on it only shrinks"
    backlog.take()
    assert not backlog.is_full
    backlog.clear()
    assert backlog.bytes == 0
    backlog.close()


def upcalls(inbox_bytes_max: int = 8 << 20) -> Upcalls:
    settings = Settings("g", bind="127.0.0.1:1", inbox_bytes_max=inbox_bytes_max)
    logger = MemberLogger("g", "me")
    made = Upcalls(settings, {1: "me", 2: "other"}, lambda event: None, Anomalies(logger), InlineExecutor())
    made.me = 1
    return made


def say(to: Upcalls, *effects: object) -> None:
    for effect in effects:
        to.handlers[type(effect)](effect)


def message(seq: int, size: int = 1_000) -> Deliver:
    return Deliver(OTHER, seq, burst.whole([seq.to_bytes(4, "big").ljust(size, b".")]))


def number(event: object) -> int:
    assert isinstance(event, antiphon.Message)
    return int.from_bytes(event.payload[:4], "big")


def test_the_inbox_stays_small_and_the_stream_whole_while_it_is_taken_up() -> None:
    """All of it was once put into the inbox at once; for a long one that took seconds, and the group went on alone."""

    async def test() -> None:
        to, count = upcalls(), 30_000
        say(to, HoldBack(Install(1, (ME, OTHER))))
        say(to, *(HoldBack(message(seq)) for seq in range(count)))
        assert to.inbox.bytes == 0
        assert not to.inbox.is_full, "nobody waits for a state that is on its way"
        say(to, EndHoldBack(hand_over=True))
        assert to.inbox.bytes < 2 << 20
        events = to.inbox.events()
        assert isinstance(await anext(events), antiphon.ViewChange)
        for seq in range(count):
            if seq < 1_000:
                say(to, message(count + seq))  # the group goes on meanwhile
            assert number(await anext(events)) == seq
            assert to.inbox.bytes < 2 << 20
            assert not to.inbox.is_full
        for seq in range(count, count + 1_000):
            assert number(await anext(events)) == seq
        say(to, message(count + 1_000))
        assert to.inbox.bytes > 0, "straight into the inbox again"
        assert number(await anext(events)) == count + 1_000
        to.close()

    run(test())


@pytest.mark.parametrize("is_taken_up", [False, True])
def test_the_lifetime_of_an_own_message_begins_before_it_is_shown(is_taken_up: bool) -> None:
    """It was once counted from when the application had its state: what others had discarded was said to be stable."""

    async def test() -> None:
        to, receipt, payload = upcalls(), Receipt(), burst.whole([b"own"])
        to.receipts.add(receipt, payload, 20_000_000)
        say(to, HoldBack(Install(1, (ME, OTHER))))
        if is_taken_up:  # it comes when the state is there, and much that is to be seen before it
            say(to, *(HoldBack(message(seq)) for seq in range(20_000)))
            say(to, EndHoldBack(hand_over=True), Deliver(ME, 1, payload))
        else:
            say(to, HoldBack(Deliver(ME, 1, payload)))
        assert not receipt.is_delivered
        await asyncio.sleep(0.05)
        if is_taken_up:
            events = to.inbox.events()
            while not receipt.is_delivered:
                await anext(events)
        else:
            say(to, EndHoldBack(hand_over=True))
        assert (receipt.is_delivered, receipt.outcome) == (True, "unknown")
        to.close()

    run(test())


def test_an_application_that_does_not_catch_up_makes_the_group_wait() -> None:
    async def test() -> None:
        to = upcalls(inbox_bytes_max=2 << 20)
        say(to, HoldBack(Install(1, (ME, OTHER))), *(HoldBack(message(seq)) for seq in range(5_000)))
        say(to, EndHoldBack(hand_over=True))
        seq = 5_000
        while not to.inbox.is_full:
            say(to, message(seq))
            seq += 1
        assert seq < 5_000 + 3_000
        emptied: list[bool] = []
        to.inbox.emptied = lambda: emptied.append(True)
        events = to.inbox.events()
        await anext(events)
        taken = 0
        while to.inbox.is_full:
            assert number(await anext(events)) == taken
            taken += 1
        assert emptied
        to.close()

    run(test())


def test_what_was_held_back_goes_with_its_incarnation() -> None:
    async def test() -> None:
        to = upcalls()
        receipt = antiphon.Receipt()
        own = burst.whole([b"own"])
        to.receipts.add(receipt, own)
        say(to, HoldBack(Install(1, (ME, OTHER))), HoldBack(Deliver(ME, 1, own)), HoldBack(message(1)))
        say(to, Drop("unknown", ME, 1), EndHoldBack(hand_over=False), StandingChanged("excluded"))
        assert receipt.outcome == "unknown"
        assert await anext(to.inbox.events()) == antiphon.Notice("excluded")
        assert to.inbox.bytes == 0
        to.close()

    run(test())


def test_receipts_are_told_by_their_own_incarnation_however_much_waits() -> None:
    async def test() -> None:
        to = upcalls()
        receipt = antiphon.Receipt()
        own = burst.whole([b"own"])
        to.receipts.add(receipt, own)
        say(to, HoldBack(Install(1, (ME, OTHER))), *(HoldBack(message(seq)) for seq in range(5_000)))
        say(to, HoldBack(Deliver(ME, 1, own)), EndHoldBack(hand_over=True))
        assert receipt.outcome == "pending"
        say(to, StandingChanged("stalled"), StandingChanged("excluded"))
        assert receipt.is_delivered
        assert receipt.outcome == "unknown"
        seen = []
        async for event in to.inbox.events():
            seen.append(event)
            if event == antiphon.Notice("excluded"):
                break
        assert len(seen) == 1 + 5_000 + 1 + 2
        to.close()

    run(test())


@pytest.mark.parametrize("left_before_it_is_read", [False, True])
def test_what_waits_when_its_incarnation_ends_stays_on_the_disk(left_before_it_is_read: bool) -> None:
    """All of it was once put into the inbox at once, however little may wait there."""

    async def test() -> None:
        to, count = upcalls(inbox_bytes_max=100_000), 5_000
        say(to, HoldBack(Install(1, (ME, OTHER))), *(HoldBack(message(seq)) for seq in range(count)))
        if left_before_it_is_read:
            say(to, HoldBack(Capture(1)))  # nobody needs the state any more
        say(to, HoldBack(message(count, 300_000)), EndHoldBack(hand_over=True), StandingChanged("excluded"))
        bound = 100_000 + (64 << 10)
        assert to.inbox.bytes < bound
        assert to.inbox.is_full, "until the application has come to the end of it"
        say(to, HoldBack(Install(2, (ME, OTHER), (OTHER,))), HoldBack(message(count + 1)))
        say(to, EndHoldBack(hand_over=True), message(count + 2))
        emptied: list[bool] = []
        to.inbox.emptied = lambda: emptied.append(True)
        if left_before_it_is_read:
            to.close()
            to.inbox.close()
        seen = []
        async for event in to.inbox.events():
            assert to.inbox.bytes < bound + 300_000 * (len(seen) > count - 100)
            seen.append(number(event) if isinstance(event, antiphon.Message) else event)
            if seen[-1] == (antiphon.Notice("excluded") if left_before_it_is_read else count + 2):
                break
        assert seen[1 : count + 3] == [*range(count + 1), antiphon.Notice("excluded")]
        assert isinstance(seen[0], antiphon.ViewChange)
        if not left_before_it_is_read:
            assert isinstance(seen[count + 3], antiphon.ViewChange)
            assert seen[count + 4 :] == [count + 1, count + 2]
            assert emptied
            assert not to.inbox.is_full
            to.close()

    run(test())


@pytest.mark.slow
def test_a_state_of_64_mib_comes_while_the_group_delivers() -> None:
    transfer(64, alone=False)


@pytest.mark.faults
def test_a_state_of_a_gibibyte_comes_while_the_group_delivers() -> None:
    """At most 64 MiB more memory anywhere, deliveries never stop for more than a second, and all have one state."""
    transfer(1_024, alone=True)


def transfer(mib: int, *, alone: bool) -> None:
    command = [sys.executable, "-m", "bench.live.transfer", "--mib", str(mib), "--rate", "200"]
    if not alone:
        command += ["--suspect-ms", "10000"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_200)
    assert ran.stdout, ran.stderr
    result = json.loads(ran.stdout)
    logging.getLogger(__name__).info("%s", result)
    assert result["alike"], result
    assert max(result["more_mib"]) <= 64, result
    if alone:  # other work may keep any process from its processor for as long
        assert max(result["stopped_s"]) <= 1.0, result
