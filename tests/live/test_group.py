"""Groups over loopback UDP: receipts, bounds, replay, and what is wrong said clearly."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import pydoc
import random
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import antiphon
from antiphon import testing
from antiphon.errors import UsageError
from antiphon.live.settings import Settings, words
from antiphon.protocol.machine import Deliver, Effect
from support.live_group import collect, free_addresses, members, run, stray

COUNT = 60  # messages per member


async def exchange(groups: list[antiphon.Group], count: int = COUNT) -> list[list[antiphon.Message]]:
    """Let everyone send at its own pace and wait until all is delivered everywhere and stable."""

    async def send(index: int, group: antiphon.Group) -> None:
        rng = random.Random(index)
        receipt = None
        for number in range(count):
            receipt = await group.send(f"{index}:{number}".encode())
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.004)
        assert receipt is not None
        await receipt.stable()

    sending = asyncio.gather(*(send(index, group) for index, group in enumerate(groups)))
    streams = await asyncio.gather(*(collect(group, count * len(groups)) for group in groups))
    await sending
    return list(streams)


def test_large_messages_keep_their_place(tmp_path: Path) -> None:
    async def test() -> None:
        large = [random.Random(index).randbytes(300_000) for index in range(3)]
        async with members(3, tmp_path, loss=0.05, views=False, key=os.urandom(32)) as groups:
            for index, group in enumerate(groups):
                await group.send(b"before %d" % index)
            sending = [asyncio.create_task(group.send(large[index])) for index, group in enumerate(groups)]
            await asyncio.sleep(0)
            after = [asyncio.create_task(group.send(b"after %d" % index)) for index, group in enumerate(groups)]
            streams = await asyncio.gather(*(collect(group, 9) for group in groups))
            for task in (*sending, *after):
                await (await task).stable()
            payloads = [[message.payload for message in stream] for stream in streams]
            assert payloads[0] == payloads[1] == payloads[2]
            for index in range(3):
                own = [payload for payload in payloads[0] if payload in (b"after %d" % index, large[index])]
                assert own == [large[index], b"after %d" % index]

    run(test())


def test_batches_are_the_same_stream(tmp_path: Path) -> None:
    async def test() -> None:
        sent = [b"%d" % number for number in range(500)]
        async with members(2, tmp_path, views=False, ordering="fifo") as groups:
            receipt = await groups[0].send_many(sent)
            got: list[bytes] = []
            async for event in groups[1]:
                assert isinstance(event, antiphon.Message)
                got.append(event.payload)
                if len(got) == 3:
                    break
            async for batch in groups[1].batches():
                assert isinstance(batch, antiphon.Batch)
                assert batch.sender == groups[0].status().me
                got += batch.payloads
                if len(got) == len(sent):
                    break
            assert got == sent
            await receipt.stable()
            await receipt.delivered()
            with pytest.raises(UsageError, match="nothing to send"):
                await groups[0].send_many([])

    run(test())


def test_a_receiver_that_does_not_listen_stops_the_sender_not_the_machine(tmp_path: Path) -> None:
    async def test() -> None:
        bound = 200_000
        async with members(2, tmp_path, views=False, ordering="fifo", inbox_bytes_max=bound, window=4) as groups:
            sent = 0

            async def flood() -> None:
                nonlocal sent
                while True:
                    await groups[0].send(bytes(1_000))
                    sent += 1

            async def drain(group: antiphon.Group) -> None:
                async for _ in group.batches():
                    pass

            draining = asyncio.create_task(drain(groups[0]))
            flooding = asyncio.create_task(flood())
            stopped_at, since = -1, time.monotonic()
            while sent != stopped_at or time.monotonic() - since < 1.0:
                if sent != stopped_at:
                    stopped_at, since = sent, time.monotonic()
                await asyncio.sleep(0.05)
            status = groups[0].status()
            assert status.slowest == groups[1].status().me
            assert status.waiting_bytes <= 56_000
            assert groups[1].status().inbox_bytes <= bound + 5 * 60_000, "a window of four bursts, and one more"
            assert stopped_at < 3_000
            flooding.cancel()
            draining_other = asyncio.create_task(drain(groups[1]))
            receipt = await groups[0].send(b"and now")  # it listens again: all goes on
            await receipt.stable()
            draining.cancel()
            draining_other.cancel()

    run(test())


def test_a_cancelled_sender_leaves_no_trace_of_its_wait(tmp_path: Path) -> None:
    async def test() -> None:
        addresses = free_addresses(2)
        settings = {"views": False, "ordering": "fifo", "window": 1, "leave_s": 0.3}
        async with antiphon.join("test", bind=addresses[0], peers=addresses[1:], **settings) as group:

            async def flood() -> None:
                while True:
                    await group.send(bytes(10_000))

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(flood(), 0.5)
            receipt = await asyncio.wait_for(group.send(b"x"), 5) if not group.status().waiting_bytes else None
            status = group.status()
            assert status.lag == {addresses[1]: status.held} or status.slowest == addresses[1]
        with pytest.raises(antiphon.GroupClosed, match="join again"):
            await group.send(b"late")
        if receipt is not None:
            with pytest.raises(antiphon.Unknown):
                await receipt.stable()

    run(test())


def test_a_wrong_key_is_counted_and_never_answered(tmp_path: Path) -> None:
    async def test() -> None:
        addresses = free_addresses(3)
        async with members(2, tmp_path, of=addresses[:2], views=False, key=bytes(16), ordering="fifo") as groups:
            stranger = antiphon.join(
                "test", bind=addresses[2], peers=addresses[:2], views=False, key=b"y" * 16, leave_s=0.1
            )
            async with stranger:
                await stranger.send(b"let me in")
                await asyncio.sleep(0.4)
                assert stranger.status().counts["packets-sent"] > 0
                assert stranger.status().counts.get("packets-received", 0) == 0
            assert sum(n for name, n in groups[0].status().counts.items() if name.startswith("refused-")) > 0
            await groups[0].send(b"unharmed")
            assert [message.payload for message in await collect(groups[1], 1)] == [b"unharmed"]

    run(test())


def test_an_attack_changes_nothing(tmp_path: Path) -> None:
    """Random, mutated, replayed and forged packets from outside, while the group works."""

    async def test() -> None:
        rng = random.Random(5)
        recorded: list[bytes] = []
        async with members(3, tmp_path, views=False, key=os.urandom(16), ordering="fifo") as groups:
            groups[0].transport.lose = lambda packet: recorded.append(packet) or False  # type: ignore[func-returns-value]
            await exchange(groups, 20)
            accepted = groups[0].status().counts["packets-received"]
            packets = [rng.randbytes(rng.randrange(1_400)) for _ in range(700)]
            packets += recorded * (700 // len(recorded) + 1)
            for _ in range(700):
                mutated = bytearray(rng.choice(recorded))
                mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
                packets.append(bytes(mutated[: rng.randrange(1, len(mutated) + 1)]))
            rng.shuffle(packets)
            groups[0].transport.lose = None
            answers = await stray(groups[0].status().me, packets)
            assert answers == []
            counts = groups[0].status().counts
            refused = sum(count for name, count in counts.items() if name.startswith("refused-"))
            assert counts["packets-received"] - accepted >= refused >= 1_000
            assert counts["broken-bursts"] == counts["broken-datagrams"] == 0
            streams = await exchange(groups, 20)
            assert all(len(stream) == 60 for stream in streams)

    run(test())


def test_without_a_key_only_known_addresses_are_heard(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=False, ordering="fifo") as groups:
            answers = await stray(
                groups[0].status().me,
                [b"\x21\x00%c\x00nonsense" % (1 - sorted(groups, key=lambda group: group.status().me).index(groups[0]))]
                * 20,
            )
            assert answers == []
            assert groups[0].status().counts["refused-unknown-source"] == 20

    run(test())


def test_keys_rotate_while_the_group_works(tmp_path: Path) -> None:
    async def test() -> None:
        old, new = os.urandom(16), os.urandom(32)
        async with members(3, tmp_path, views=False, key=old) as groups:
            for keys in ((old, new), (new, old), (new,)):
                working = asyncio.create_task(exchange(groups, 20))
                for group in groups:
                    await asyncio.sleep(0.005)
                    group.set_keys(*keys)
                await working
            assert all(not name.startswith("refused-") for group in groups for name in group.status().counts if name), (
                groups[0].status().counts
            )

    run(test())


@pytest.mark.parametrize("views", [False, True], ids=["fixed", "views"])
def test_a_recorded_member_replays_to_the_same_effects(views: bool, tmp_path: Path) -> None:
    async def test() -> None:
        async with members(3, tmp_path, loss=0.1, views=views, recording=True) as groups:
            lived: list[list[Effect]] = []
            machine = groups[0]._member.driver.machine
            handle = machine.handle
            before = len(groups[0].recording.inputs) if groups[0].recording is not None else 0

            def noting(event: object, now: int) -> list[Effect]:
                lived.append(handle(event, now))  # type: ignore[arg-type]
                return lived[-1]

            machine.handle = noting  # type: ignore[assignment, method-assign]
            await exchange(groups, 30)
            assert groups[0].recording is not None
            again = list(groups[0].recording.replay())[before:]
            assert len(lived) > 20
            assert again[: len(lived)] == lived

    run(test())


def test_metrics_are_told_every_second(tmp_path: Path) -> None:
    async def test() -> None:
        seen: list[antiphon.Status] = []
        async with members(1, tmp_path, views=False, metrics=seen.append):
            await asyncio.sleep(1.3)
        assert len(seen) >= 2
        assert seen[0].standing == "active"

    run(test())


def test_a_sender_that_does_not_listen_keeps_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=False, listen=False, inbox_bytes_max=1) as groups:
            for _ in range(100):
                receipt = await groups[0].send(bytes(1_000))
            await receipt.stable()
            assert groups[0].status().inbox_bytes == 0

    run(test())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bind": "127.0.0.1"}, "bind: '127.0.0.1' is no address"),
        ({"bind": "127.0.0.1:70000"}, "bind: .* is no address"),
        ({"peers": ["no-such-host.invalid:7001"]}, "peers: 'no-such-host.invalid:7001' cannot be resolved"),
        ({"peers": ["127.0.0.1:7001", "localhost:7001"]}, "given twice"),
        ({"peers": ["[::1]:7001"]}, "IPv4 and IPv6"),
        ({"bind": "192.0.2.1:7001"}, "no address of this machine"),
        ({"key": b"too short"}, "key: 16, 24 or 32 random bytes"),
        ({"ordering": "alphabetical"}, "ordering: unknown 'alphabetical'"),
        ({"stability": "none"}, "stability: unknown 'none'"),
        ({"window": 0}, "window: must be at least 1"),
        ({"orderings": "fifo"}, "join: .*orderings"),
        ({"snapshot": bytes}, "one without the other"),
        ({"multicast": "127.0.0.1:7100"}, "multicast: 127.0.0.1:7100 cannot be used"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_settings_are_one_sentence(settings: dict[str, object], message: str, tmp_path: Path) -> None:
    async def test() -> None:
        base: dict[str, object] = {"bind": free_addresses(1)[0], "state": tmp_path, "views": False}
        with pytest.raises(UsageError, match=message) as error:
            async with antiphon.join("test", **{**base, **settings}):
                pass
        assert "\n" not in str(error.value)

    run(test())


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(1, tmp_path, views=False) as [group]:
            own = group.status().me
            with pytest.raises(UsageError, match=f"bind: {own} is in use; another member has this name"):
                async with antiphon.join("test", bind=own, views=False):
                    pass

    run(test())


def test_own_messages_are_bounded_by_the_inbox_too(tmp_path: Path) -> None:
    """A member that sends and never takes its events once kept all of them."""

    async def test() -> None:
        bound, burst = 100_000, 60_000
        async with members(1, tmp_path, views=False, ordering="fifo", inbox_bytes_max=bound) as groups:
            payloads = [bytes(1_000)] * 3_000
            sending = asyncio.create_task(groups[0].send_many(payloads))  # awaited below
            for _ in range(20):
                await asyncio.sleep(0.01)
                assert groups[0].status().inbox_bytes <= bound + burst
            assert not sending.done()
            assert len(await collect(groups[0], 3_000)) == 3_000  # it takes them: all goes on
            await (await sending).stable()

    run(test())


def test_an_inbox_that_fills_is_not_overrun_by_what_one_wake_up_brings(tmp_path: Path) -> None:
    async def test() -> None:
        bound, window = 100_000, 40_000
        settings = {"views": False, "ordering": "fifo", "inbox_bytes_max": bound, "window_bytes": window}
        async with members(3, tmp_path, **settings) as groups:
            floods = [asyncio.create_task(group.send_many(bytes(500) for _ in range(4_000))) for group in groups[1:]]
            seen = [asyncio.create_task(collect(group, 8_000)) for group in groups[1:]]
            worst = 0
            for _ in range(100):
                await asyncio.sleep(0.01)
                worst = max(worst, groups[0].status().inbox_bytes)
            per_burst = 1.13  # what 64 bytes a message add to 500
            assert bound < worst <= bound + 3 * per_burst * (window + 56_000), "a window and a burst of each member"
            assert len(await collect(groups[0], 8_000)) == 8_000
            await asyncio.gather(*floods, *seen)

    run(test())


@pytest.mark.parametrize("views", [False, True], ids=["fixed", "views"])
def test_large_sends_that_wait_when_the_group_is_left_end(tmp_path: Path, views: bool) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=views, window_bytes=100_000) as groups:
            sends = [asyncio.create_task(groups[0].send(bytes(300_000))) for _ in range(40)]
            sends += [asyncio.create_task(groups[0].send(bytes(100))) for _ in range(40)]
            await asyncio.sleep(0.02)
            sends[7].cancel()
            await groups[0].leave()
            done, hanging = await asyncio.wait(sends, timeout=1.0)
            assert not hanging
            ends = {type(one.exception()) for one in done if not one.cancelled()}
            assert antiphon.GroupClosed in ends
            assert ends <= {antiphon.GroupClosed, type(None)}

    run(test())


def test_a_large_send_that_is_cancelled_leaves_the_others_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=False, window_bytes=100_000) as groups:
            sends = [asyncio.create_task(groups[0].send(bytes([index]) * 500_000)) for index in range(4)]
            await asyncio.sleep(0.01)
            sends[0].cancel()
            sends[2].cancel()
            whole = {message.payload for message in await collect(groups[1], 2)}
            assert whole == {bytes([1]) * 500_000, bytes([3]) * 500_000}
            await (await sends[3]).stable()

    run(test())


@pytest.mark.parametrize("ordering", ["fifo", "total"])
def test_a_quiet_members_trace_is_on_the_disk_within_a_second(tmp_path: Path, ordering: str) -> None:
    """Rows once waited for the next event: a member that fell silent, and was killed, left nothing."""
    pq = pytest.importorskip("pyarrow.parquet")

    async def test() -> None:
        trace = tmp_path / "trace"
        async with members(2, tmp_path, trace=trace, ordering=ordering, stop=True) as groups:
            await groups[0].send_many([b"%d" % number for number in range(9)])
            await collect(groups[1], 9)
            await asyncio.sleep(1.0)
            for _ in range(70):  # a busy machine takes longer than a second
                rows = [row for file in trace.glob("member-*.parquet") for row in pq.read_table(file).to_pylist()]
                if len([row for row in rows if row["event"] == "deliver"]) >= 2:
                    return
                await asyncio.sleep(0.1)
            raise AssertionError(f"of nine deliveries at each of two members, these are on the disk: {rows}")

    run(test())


@pytest.mark.parametrize("told", [False, True])
def test_a_trace_has_what_is_sent_only_where_it_was_asked_for(tmp_path: Path, told: bool) -> None:
    pq = pytest.importorskip("pyarrow.parquet")

    async def test() -> None:
        settings = {"trace": tmp_path / "trace", "trace_payloads": told}
        async with members(2, tmp_path, views=False, **settings) as groups:
            await groups[0].send(b"a secret")
            await collect(groups[1], 1)

    run(test())
    rows = [row for file in tmp_path.glob("trace/member-*.parquet") for row in pq.read_table(file).to_pylist()]
    assert [row["detail"] for row in rows if row["event"] == "send"] == ["a secret" if told else None]
    with pytest.raises(UsageError, match="trace_payloads: there is no trace"):
        antiphon.join("g", bind="127.0.0.1:7001", trace_payloads=True)


def test_a_payload_over_the_limit_is_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(2, tmp_path, views=False, message_bytes_max=1_000) as groups:
            with pytest.raises(UsageError, match="payload: 1001 bytes are over the limit of 1000"):
                await groups[0].send(bytes(1_001))
            with pytest.raises(UsageError, match="payload: 1001 bytes are over the limit of 1000"):
                await groups[0].send_many([b"all or none", bytes(1_001)])
            await groups[0].send(bytes(1_000))
            assert [len(message.payload) for message in await collect(groups[1], 1)] == [1_000]

    run(test())


def test_help_shows_every_keyword_with_its_default() -> None:
    shown = inspect.signature(antiphon.join).parameters
    assert list(shown) == list(Settings.__struct_fields__)
    assert shown["group"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert all(shown[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(shown)[1:])
    assert shown["bind"].default is inspect.Parameter.empty
    assert (shown["window"].default, shown["ordering"].default, shown["ordering_options"].default) == (64, "total", {})
    said = pydoc.render_doc(antiphon.join, renderer=pydoc.plaintext)
    assert "window: int = 64" in said
    for name, word in words().items():
        default = "" if shown[name].default is inspect.Parameter.empty else f" = {shown[name].default!r}"
        assert f"    {name}{default}\n        {word[:20]}" in said, name
    assert {"join", "UsageError", "Receipt"} <= set(dir(antiphon))


def test_whoever_leaves_while_another_does_waits_until_it_is_done_and_may_hurry_it(tmp_path: Path) -> None:
    """The second once returned at once, with the group still there: the end of the program then cut the first short."""

    async def test() -> None:
        async with members(2, tmp_path, views=False, leave_s=30.0) as groups:
            one, other = groups
            await other.stop()
            receipt = await one.send(b"never delivered by both")
            first = asyncio.create_task(one.leave())
            await asyncio.sleep(0.05)
            second = asyncio.create_task(one.leave())
            await asyncio.sleep(0.05)
            assert not first.done()
            assert not second.done()
            await one.leave(hurry=True)
            assert one.status().standing == "left"
            await asyncio.gather(first, second)
            assert receipt.outcome in ("unknown", "lost")

    run(test())


def test_a_group_is_used_in_the_loop_in_which_it_was_entered(tmp_path: Path) -> None:
    async def test() -> None:
        async with members(2, tmp_path) as groups:

            async def elsewhere(use: Callable[[antiphon.Group], Awaitable[object]]) -> None:
                with pytest.raises(antiphon.UsageError, match=r"^loop: a group belongs to the event loop"):
                    await use(groups[0])

            async def read(group: antiphon.Group) -> None:
                async for _ in group:
                    pass

            async def change_keys(group: antiphon.Group) -> None:
                group.set_keys(bytes(16))

            uses = (
                lambda group: group.send(b"x"),
                lambda group: group.send_many([b"x", b"y"]),
                lambda group: group.leave(),
                lambda group: group.stop(),
                read,
                change_keys,
            )
            for pending in (False, True):
                for use in uses:
                    receipt = await groups[0].send(b"here") if pending else None
                    thread = threading.Thread(target=asyncio.run, args=[elsewhere(use)])
                    thread.start()
                    thread.join()  # in the same turn, so that what was sent here is still pending
                    assert receipt is None or receipt.outcome == "pending"
            with pytest.raises(antiphon.UsageError, match=r"call_soon_threadsafe\(group.set_keys"):
                await asyncio.to_thread(groups[0].set_keys, bytes(16))  # no loop runs in that thread
            await (await groups[0].send(b"here")).stable()
            assert groups[0].status().delivered == 1 + len(uses)

    run(test())


def test_another_thread_is_refused_also_where_a_burst_is_pending_and_events_wait(tmp_path: Path) -> None:
    """Where its call did not have to wait it was let through, beside the loop that works on the same lists."""
    refused: list[str] = []

    async def test() -> None:
        async with members(2, tmp_path) as groups:

            async def elsewhere() -> None:
                for use in (lambda: groups[0].send(b"y"), aiter(groups[0]).__anext__, groups[0].batches().__anext__):
                    with pytest.raises(antiphon.UsageError, match=r"^loop: a group belongs to the event loop"):
                        await use()  # type: ignore[operator]

            def all_refused() -> None:
                asyncio.run(elsewhere())
                refused.append("all")

            receipt = await groups[0].send(b"x")
            thread = threading.Thread(target=all_refused)
            thread.start()
            thread.join()  # while the loop stands still, so that the burst stays pending, and the view in the stream
            await receipt.stable()
            (message,) = await collect(groups[0], 1)
            assert message.payload == b"x"

    run(test())
    assert refused == ["all"]


@pytest.mark.parametrize("batched", [False, True])
def test_one_iterator_goes_on_behind_a_timeout_around_its_next_event(batched: bool) -> None:
    """An iterator that somebody held, and waited on with a timeout, once said that the stream was over."""
    seen: list[object] = []

    async def main(world: testing.World) -> None:
        async with antiphon.join("g", bind="alone:1") as group:
            events = group.batches() if batched else aiter(group)
            while len(seen) < 2:
                try:
                    event = await asyncio.wait_for(anext(events), 0.1)
                except TimeoutError:
                    await group.send(b"after a timeout")
                else:
                    seen.append(event.payload if isinstance(event, antiphon.Message) else type(event).__name__)
            await group.leave()
            for _ in range(4):  # what came meanwhile; then the end, as often as it is asked for
                last = await anext(events, None)
            assert last is None

    testing.run(main, seed=1)
    assert seen == ["ViewChange", "Batch" if batched else b"after a timeout"]


def test_a_reader_that_asks_again_and_again_leaves_nothing_behind() -> None:
    """Whoever looks for events with a short timeout in a quiet group once left a future behind each time."""

    async def main(world: testing.World) -> int:
        async with antiphon.join("g", bind="alone:1") as group:
            for _ in range(50):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(anext(aiter(group)), 0.1)
            return len(group._entered.upcalls.inbox._waiting)

    assert testing.run(main) == 0


def test_an_own_message_that_cannot_be_handed_on_ends_the_member() -> None:
    """A full disk, met when an own message waits behind a state, once lost the message without a word."""
    groups: list[antiphon.Group] = []

    async def main(world: testing.World) -> None:
        async with antiphon.join("g", bind="alone:1") as group:
            groups.append(group)

            def full(_: object) -> None:
                raise antiphon.UsageError("TMPDIR: no space left on device")

            group._entered.upcalls.handlers[Deliver] = full
            receipt = await group.send(b"x")
            with pytest.raises(antiphon.Unknown, match="no space left"):
                await receipt.delivered()
            with pytest.raises(antiphon.GroupClosed, match="no space left"):
                await group.send(b"y")

    with pytest.raises(antiphon.UsageError, match="no space left"):
        testing.run(main)
    assert [str(group.failure) for group in groups] == ["TMPDIR: no space left on device"]
