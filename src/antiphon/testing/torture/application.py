"""The application that is tortured: it sends, reads, asks for receipts and statuses, and logs what it sees.

It uses nothing but the public API. Its state is the list of all that it delivered; a snapshot is that list, and some
weight.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

import antiphon
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.testing.torture.log import (
    ApplicationStart,
    MessageName,
    Noticed,
    Restored,
    Sample,
    SeenMessage,
    SentMessage,
    Stage,
    Told,
    Viewed,
)
from antiphon.testing.torture.schedule import STATE_PIECES_MAX, How, Setup, Work

_SAMPLE_S = 0.25
_WOKEN_S = 0.01  # by then whoever waited has gone on
_RECENT = 100  # messages in all, those that everyone sends at the end included


class Payload(msgspec.Struct, frozen=True, array_like=True):
    """What a message carries: who it is, and what its sender had seen in its view before."""

    identity: MessageName
    causes_view: int
    causes: tuple[MessageName, ...]
    weight: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Payload).decode
_decode_state = msgspec.msgpack.Decoder(tuple[tuple[MessageName, ...], bytes]).decode


def keywords(setup: Setup, own: str, addresses: Sequence[str], keys: Sequence[bytes], state: Path) -> dict[str, Any]:
    """Give the keywords of `antiphon.join` for a member."""
    others = [address for address in addresses if address != own]
    settings: dict[str, Any] = {
        "bind": own,
        "ordering": setup.ordering,
        "views": setup.views,
        "stability": setup.stability,
        "safe": setup.safe,
        "partition": setup.partition,
        "slow": setup.slow,
        "window": setup.window,
        "window_bytes": setup.window_bytes,
        "multicast": "239.1.2.4:7200" if setup.multicast else None,
        "inbox_bytes_max": setup.inbox_bytes_max,
        "state": state,
        "leave_s": setup.leave_ms / 1000,
        "key": list(keys) if setup.key else None,
    }
    if setup.fixed_times:
        settings["membership"] = MembershipOptions(suspect_ns=setup.suspect_ms * 1_000_000)
    declared = None if setup.undeclared else setup.founders or len(addresses)
    match setup.discover:
        case "multicast":
            settings["discover"], settings["members"] = "239.1.2.3:7100", declared
        case "peers":
            settings["discover"], settings["members"] = "peers", declared
            settings["peers"] = addresses[:1] if own != addresses[0] else addresses[1:2]
        case _:
            settings["peers"] = others
    return settings


@lru_cache(maxsize=1)  # of the largest there are many, and all of one world are alike
def _weight(size: int) -> bytes:
    return bytes(size)


async def _comes(stage: Coroutine[Any, Any, None], patience_s: float) -> bool:
    """Say whether a stage of a receipt comes within some time; 0: whether it has."""
    try:
        async with asyncio.timeout(patience_s):
            await stage
    except TimeoutError:
        return False
    return True


_FOR_EVER = nullcontext()


def _within(patience_s: float) -> AbstractAsyncContextManager[object]:
    """Raise `TimeoutError` where a block takes longer; 0: it may take for ever."""
    return asyncio.timeout(patience_s) if patience_s else _FOR_EVER


class Failing(Exception):
    """The application's own: raised where it is to fail."""


class Application:
    """One start of an application, on a world's virtual clock."""

    def __init__(
        self,
        start: ApplicationStart,
        work: Work,
        setup: Setup,
        now: Callable[[], float],
        calm_s: float,
        failures: dict[str, int],
    ) -> None:
        """`failures`: how often it still fails, at what; earlier starts have had their share."""
        self.start, self._work, self._setup, self._now, self._calm_s = start, work, setup, now, calm_s
        self._failures = failures
        self.history: list[MessageName] = []
        self._seen: dict[tuple[int, int], MessageName] = {}  # by sender, the last one in the present view
        self._view = 0
        self._number = 0
        self.group: antiphon.Group | None = None
        self.over = False  # nothing more is logged
        self._leave = asyncio.Event()
        self._how: How = ""  # it leaves
        self._task: asyncio.Task[Any] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._receipts: set[asyncio.Task[Any]] = set()
        self._given: list[tuple[antiphon.Receipt, SentMessage]] = []  # each with the message that it is given for
        self._sending: set[MessageName] = set()  # for which `send` has not returned

    async def run(self, settings: dict[str, Any]) -> None:
        """Join, take part until told to leave, leave."""
        start = self.start
        if self._setup.snapshot_bytes is not None:
            settings = {**settings, "snapshot": self._snapshot, "restore": self._restore}
        sampler, self._task = asyncio.create_task(self._sample()), asyncio.current_task()
        try:
            self.group = antiphon.join("torture", **settings)
            await self._take_part(self.group)
            start.left_at = self._now()
            await self._see_what_hangs()
        except Exception as error:
            if not self.over:
                start.ended_by = type(error).__name__, str(error)
        finally:
            for task in (sampler, *self._tasks, *self._receipts):
                task.cancel()

    async def _take_part(self, group: antiphon.Group) -> None:
        """Be in the group from the join until it was left, however that comes about."""
        try:
            async with group:
                self.start.joined_at = self._now()
                self.begin_tasks()
                await self._leave.wait()
                self.start.leaving_at = self._now()
                if self._how == "hurry":
                    await group.leave(hurry=True)
                if self._how == "error":
                    raise Failing("the application failed")
        except Failing:
            pass
        except asyncio.CancelledError:
            if self._how != "cancel":
                raise
        except antiphon.GroupClosed:
            if self.start.joined_at is not None or self._how != "hurry":
                raise

    def begin_tasks(self) -> None:
        """Begin to read and to send, anew if it had begun."""
        for task in self._tasks:
            task.cancel()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._send_all())]

    @property
    def sends(self) -> bool:
        """Whether it has not sent all that it was to."""
        return len(self._tasks) > 1 and not self._tasks[1].done()

    def stop_sending(self) -> None:
        """Send nothing more; go on reading."""
        for task in self._tasks[1:]:
            task.cancel()

    async def leave(self, how: How) -> None:
        """Leave, in good order or not; one that still joins gives that up, or leaves once it has joined."""
        if self._leave.is_set() or self.start.ended or self.start.leaving_at is not None:
            return
        self._how = how
        self.start.hurried = how in ("hurry", "error", "cancel")
        if how == "cancel":
            assert self._task is not None
            self.start.leaving_at = self._now()
            self._task.cancel()
        elif how == "hurry" and self.start.joined_at is None and self.group is not None:
            self.start.leaving_at = self._now()
            await self.group.leave(hurry=True)
        else:
            self._leave.set()

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Change the group's keys."""
        if self.group is not None and not self.start.ended:
            self.group.set_keys(keys[0], *keys[1:])

    async def _see_what_hangs(self) -> None:
        """Log what still waits though the group was left, and how all receipts ended."""
        await asyncio.sleep(_WOKEN_S)
        if self.over:
            return
        self.start.hanging = [f"send of {identity}" for identity in sorted(self._sending)]
        self.start.hanging += [] if all(task.done() for task in self._tasks[:1]) else ["the stream"]
        self.note_outcomes()

    def note_outcomes(self) -> None:
        """Log what each receipt says of itself now."""
        for receipt, note in self._given:
            note.ended_as = receipt.outcome

    # State

    def _may_fail(self, what: Literal["snapshot", "restore"]) -> None:
        """Fail, as long as it is to."""
        if self._failures[what]:
            self._failures[what] -= 1
            self.start.gave_up.add(what)
            raise Failing(what)

    def _snapshot(self) -> bytes | AsyncIterator[bytes]:
        if not self._work.piece_ms:
            self._may_fail("snapshot")
        self.start.snapshots.append((self._now(), len(self.history)))
        state = msgspec.msgpack.encode((self.history, _weight(self._setup.snapshot_bytes or 0)))
        return self._in_pieces(state) if self._work.piece_ms else state

    async def _in_pieces(self, state: bytes) -> AsyncIterator[bytes]:
        """Give a state piece by piece, as it was when it was asked for."""
        size = math.ceil(len(state) / STATE_PIECES_MAX)
        for start in range(0, len(state), size):
            await asyncio.sleep(self._work.piece_ms / 1000)
            if start >= len(state) // 2:
                self._may_fail("snapshot")
            yield state[start : start + size]

    async def _restore(self, state: bytes | AsyncIterable[bytes]) -> None:
        await asyncio.sleep(self._work.restore_ms / 1000)
        self._may_fail("restore")
        whole = state if isinstance(state, bytes) else b"".join([piece async for piece in state])
        history, weight = _decode_state(whole)
        if len(weight) != (self._setup.snapshot_bytes or 0):
            raise AssertionError("a restored state is not one that was captured")
        self.history = list(history)
        self.start.stream.append(Restored(self._now(), history))

    # Reading

    async def _read(self) -> None:
        assert self.group is not None
        try:
            while not await self._read_to_the_end(self.group.batches() if self._work.batches else aiter(self.group)):
                pass
        except antiphon.GroupClosed as closed:
            self.start.ended_by = type(closed).__name__, str(closed)
            self._leave.set()

    async def _read_to_the_end(
        self, stream: AsyncIterator[antiphon.Batch | antiphon.Message | antiphon.ViewChange | antiphon.Notice]
    ) -> bool:
        """Read until the stream ends; return False where it is given up, or the application fails in it."""
        patience_s = self._work.reads_ms / 1000
        while True:
            try:
                async with _within(patience_s):
                    item = await anext(stream)
            except StopAsyncIteration:
                return True
            except (TimeoutError, Failing):
                self.start.gave_up.add("read")
                return False
            match item:
                case antiphon.Batch():
                    for payload in item.payloads:
                        self._message(item.sender, payload, item.view)
                case antiphon.Message():
                    self._message(item.sender, item.payload, item.view)
                case _:
                    self._event(item)
            await self._linger()

    async def _linger(self) -> None:
        """Take time for each event, or none for a while, until the calm."""
        since, until = self._work.deaf_ms
        now = self._now()
        if since / 1000 <= now < until / 1000:
            await asyncio.sleep(until / 1000 - now)
        elif self._work.read_pause_ms and now < self._calm_s:
            await asyncio.sleep(self._work.read_pause_ms / 1000)

    def _message(self, sender: str, data: bytes, view: int) -> None:
        payload = _decode(data)
        identity = payload.identity
        self.history.append(identity)
        if view == self._view:
            self._seen[identity.member, identity.start] = identity
        self.start.stream.append(SeenMessage(self._now(), identity, sender, view, payload.causes, payload.causes_view))

    def _event(self, event: antiphon.ViewChange | antiphon.Notice) -> None:
        if isinstance(event, antiphon.ViewChange):
            self._view, self._seen = event.view, {}
            self.start.stream.append(
                Viewed(self._now(), event.view, event.members, event.joined, event.left, event.elders)
            )
        else:
            self.start.stream.append(Noticed(self._now(), event.what))

    # Sending

    async def _send_all(self) -> None:
        work = self._work
        while self._number < work.messages:
            await self.send(min(work.many, work.messages - self._number))
            await asyncio.sleep(work.pause_ms / 1000)

    async def send(self, count: int = 1, *, probe: bool = False) -> None:
        """Send messages, and follow the receipt of the last one."""
        assert self.group is not None
        payloads, notes, exclusions = [], [], self._exclusions() if count > 1 else 0
        for _ in range(count):
            payload = self._payload(probe=probe)
            note = SentMessage(payload.identity, self._now(), len(payload.weight), probe=probe)
            self.start.sent[note.identity] = note
            payloads.append(_encode(payload))
            notes.append(note)
        self._sending |= {note.identity for note in notes}
        try:
            async with _within(0 if probe else self._work.sends_ms / 1000):
                receipt = await (self.group.send_many(payloads) if count > 1 else self.group.send(payloads[0]))
        except TimeoutError:
            self.start.gave_up.add("send")
            return
        except antiphon.GroupClosed as closed:
            for note in notes:
                note.refused = f"{type(closed).__name__}: {closed}"
            return
        finally:
            self._sending -= {note.identity for note in notes}
        self._given.append((receipt, notes[-1]))
        for note in self._told_of(notes, exclusions):
            note.accepted = True
        task = asyncio.create_task(self._follow(receipt, notes, exclusions))
        self._receipts.add(task)
        task.add_done_callback(self._receipts.discard)

    def _payload(self, *, probe: bool) -> Payload:
        """Make a message; a probe is never large, since a large message takes as long as all its parts."""
        self._number += 1
        work, identity = self._work, MessageName(self.start.member, self.start.number, self._number)
        is_large = work.large and self._number % work.large == 0 and not probe
        size = work.large_bytes if is_large else work.size
        return Payload(identity, self._view, tuple(self._seen.values()), bytes(size))

    def _exclusions(self) -> int:
        """Return how often the group has gone on without this member."""
        return 0 if self.group is None else self.group.status().counts.get("exclusions", 0)

    def _told_of(self, notes: Sequence[SentMessage], exclusions: int) -> Sequence[SentMessage]:
        """Return the messages that a receipt tells of: the last, and those sent with it in one incarnation."""
        if len(notes) > 1 and self._exclusions() != exclusions:
            for note in notes[:-1]:
                note.accepted = False  # nothing more will be known of it
            return notes[-1:]
        return notes

    async def _follow(self, receipt: antiphon.Receipt, notes: Sequence[SentMessage], exclusions: int) -> None:
        """Log what a receipt says, of the last message and so of all that were sent with it in one incarnation."""
        if self._work.asks_ms:
            await self._ask(receipt, notes, exclusions)
        else:  # for both stages at once, so that it is seen which comes first
            await asyncio.gather(
                self._await("delivered", receipt, notes, exclusions), self._await("stable", receipt, notes, exclusions)
            )

    async def _await(
        self, stage: Stage, receipt: antiphon.Receipt, notes: Sequence[SentMessage], exclusions: int
    ) -> None:
        try:
            await (receipt.delivered() if stage == "delivered" else receipt.stable())
        except antiphon.errors.AntiphonError as error:
            self._will_not_come(stage, receipt, notes, error)
        else:
            self._has_come(stage, receipt, notes, exclusions)

    async def _ask(self, receipt: antiphon.Receipt, notes: Sequence[SentMessage], exclusions: int) -> None:
        """Ask for each stage, soon give up, and ask anew; once stable has come, delivered comes at once."""
        patience_s, is_delivered = self._work.asks_ms / 1000, False
        try:
            while not await _comes(receipt.stable(), patience_s):
                if not is_delivered and await _comes(receipt.delivered(), patience_s):
                    is_delivered = True
                    self._has_come("delivered", receipt, notes, exclusions)
            if not is_delivered and await _comes(receipt.delivered(), 0):
                self._has_come("delivered", receipt, notes, exclusions)
            self._has_come("stable", receipt, notes, exclusions)
        except antiphon.errors.AntiphonError as error:
            if not is_delivered:
                self._will_not_come("delivered", receipt, notes, error)
            self._will_not_come("stable", receipt, notes, error)

    def _will_not_come(
        self, stage: Stage, receipt: antiphon.Receipt, notes: Sequence[SentMessage], error: Exception
    ) -> None:
        for note in notes[:-1]:
            note.accepted = False  # what went before it may have been sent, or not
        notes[-1].told.append(Told(stage, came=False, outcome=receipt.outcome))
        notes[-1].lost = notes[-1].lost or (type(error).__name__, str(error))

    def _has_come(self, stage: Stage, receipt: antiphon.Receipt, notes: Sequence[SentMessage], exclusions: int) -> None:
        if stage == "stable" and self._setup.slow == "lag":
            for note in notes[:-1]:
                note.accepted = False  # it may have outlived its lifetime, though the last one has not
            notes = notes[-1:]
        for note in self._told_of(notes, exclusions):
            note.told.append(Told(stage, came=True, outcome=receipt.outcome))
            if stage == "delivered":
                note.delivered_at = self._now()
            else:
                note.stable_at = self._now()

    # Status

    def has_settled(self, there: Collection[Application]) -> bool:
        """Say whether it is in one view with all others that are there, and all that it sent has ended."""
        assert self.group is not None
        status = self.group.status()
        together = set(status.members) == {other.start.address for other in there}
        return together and status.standing == "active" and not self.sends and not self._receipts

    def has_backlog(self) -> bool:
        """Say whether something that it sent is still under way, in a group that delivers."""
        assert self.group is not None
        return bool(self.sends or self._receipts) and self.group.status().standing == "active"

    def has_finished(self, there: Collection[Application]) -> bool:
        """Say whether it has delivered what all others sent at last, and all that it sent itself has ended."""
        probes = {probe for other in there for probe, sent in other.start.sent.items() if sent.probe}
        return not self._receipts and bool(probes) and probes <= set(self.history[-_RECENT:])

    async def _sample(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(_SAMPLE_S)

    def sample(self) -> None:
        """Log how the group stands."""
        if self.group is None or self.start.ended:
            return
        status = self.group.status()
        self.start.samples.append(
            Sample(
                self._now(),
                status.standing,
                status.view,
                status.members,
                status.slowest,
                status.held,
                status.inbox_bytes,
                status.waiting_bytes,
                status.counts,
                status.links,
            )
        )
