"""A live group: `async with antiphon.join(...) as group`, send, receipts, and one agreed stream of events."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Required, TypedDict, Unpack

import msgspec

from antiphon.errors import UsageError
from antiphon.live import burst
from antiphon.live.addresses import Address, parse, resolve, resolve_group, show
from antiphon.live.discovery import Discovery, name_from
from antiphon.live.driver import Driver
from antiphon.live.events import (
    Batch,
    Event,
    GroupClosed,
    Message,
    Notice,
    Receipt,
    Status,
    ViewChange,
)
from antiphon.live.host import host_of
from antiphon.live.publish import Publisher
from antiphon.live.recording import Origin, Recording, Silence, make
from antiphon.live.security import SealedEnvelope, check_keys, envelope
from antiphon.live.tracing import LiveTrace
from antiphon.live.transport import Transport
from antiphon.protocol import machine as protocol
from antiphon.protocol.config import Config, ordering_type, part_name, stability_type
from antiphon.protocol.machine import (
    MILLISECOND,
    SECOND,
    Capture,
    Deliver,
    Drop,
    Effect,
    Install,
    Restore,
    Stable,
    Submit,
)
from antiphon.protocol.member import Member
from antiphon.protocol.membership.process import Journal, MembershipOptions, Process, Saved
from antiphon.protocol.membership.views import NO_BALLOT, GroupView, incarnation_of, name_of
from antiphon.protocol.ordering import ALIASES
from antiphon.protocol.parts import Ordering, Stability
from antiphon.protocol.recovery import RecoveryOptions
from antiphon.protocol.wire import group_tag

PEERS = "peers"  # for `discover`: some of the others are known, and know the rest
_FAREWELL_S = 1.0  # then the others find out by themselves
_PAUSES = {  # of orderings, at most: repeating costs little on a local network, and one that waits makes all wait
    "ask_ns_max": 50 * MILLISECOND,
    "ret_retry_ns_max": 40 * MILLISECOND,
    "probe_ns_max": 100 * MILLISECOND,
}
_EACH_BYTES = 64  # what a message costs beside its payload, for the bound of the inbox


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to take part in a group; every member gives the same `group`, addresses, ordering and stability."""

    group: str
    bind: str  # own address, host:port
    peers: Sequence[str] = ()  # the others' addresses
    address: str | None = None  # own address as the others know it, if it is not `bind`
    ordering: str | type[Ordering] = "total"
    ordering_options: dict[str, Any] = {}
    stability: str | type[Stability] = "vector-ack"  # for orderings that run on recovery
    stability_options: dict[str, Any] = {}
    safe: bool = False  # deliver only what is stable
    views: bool = True  # False: the members never change, and all of them are waited for
    membership: MembershipOptions = MembershipOptions(heartbeat_ns=50 * MILLISECOND)  # one in ten suffices
    partition: Literal["majority", "each-side"] = "majority"  # who goes on when the group is cut in two
    slow: Literal["block", "drop", "lag"] = "block"  # a member that holds all back: wait, go on without it, or discard
    state: Path | None = None  # where the little that must survive a crash is kept
    snapshot: Callable[[], bytes] | None = None  # gives the application's state, for those who join
    restore: Callable[[bytes], None] | None = None  # takes it
    key: bytes | Sequence[bytes] | None = None  # the first seals, all are accepted
    window: int = 64  # own bursts that may be unstable at once
    window_bytes: int = 512 << 10  # and their bytes, to which one more burst is added when they are fewer
    message_bytes_max: int = 16 << 20
    inbox_bytes_max: int = 8 << 20  # delivered and not yet taken; beyond, nothing more is taken in
    listen: bool = True  # False: this application only sends, and events are dropped
    discover: str | None = None  # IPv4 multicast group and port where members find each other; or "peers": by those
    multicast: str | None = None  # IPv4 group and port for what goes to all
    ttl: int = 1
    offload: bool | None = None  # segmentation by the kernel; None: where it has it
    leave_s: float = 5.0  # how long the delivery of what was sent before may take, when the group is left
    trace: Path | None = None
    recording: bool = False  # keep all inputs in memory, to replay them
    metrics: Callable[[Status], None] | None = None  # called every second
    status_at: str | None = None  # host:port where `antiphon dashboard` may read the status

    def keys(self) -> list[bytes] | None:
        """Give the group keys, checked."""
        if self.key is None:
            return None
        return check_keys([self.key] if isinstance(self.key, bytes) else list(self.key))

    def protocols(self) -> tuple[str, str]:
        """Give the ordering's own name, where another stands for it, and that of the stability protocol."""
        ordering = part_name(self.ordering)
        return ALIASES.get(ordering, ordering), part_name(self.stability)

    def config(self, tag: str) -> Config:
        """Give the composition of the machine; members that are set up differently never hear each other."""
        stability_options = self.stability_options
        if "piggyback" in stability_type(self.stability).Options.__struct_fields__:
            stability_options = {"piggyback": True, **stability_options}  # small packets cost as much as large ones
        known = ordering_type(self.ordering).Options.__struct_fields__
        pauses = {key: pause for key, pause in _PAUSES.items() if key in known}
        return Config(
            group=f"{self.group}/{tag}",
            ordering=self.ordering,
            ordering_options={**pauses, **self.ordering_options},
            stability=self.stability,
            stability_options=stability_options,
            window=self.window,
            queue=2,  # what waits, waits in the application, where bursts still grow
            safe=self.safe,
            recovery=RecoveryOptions(
                nack_delay_ns=10 * MILLISECOND,
                nack_retry_ns=40 * MILLISECOND,
                nack_retry_ns_max=40 * MILLISECOND,  # what is lost twice holds up all that follows
                heartbeat_ns_max=100 * MILLISECOND,
            ),
        )

    def check(self) -> None:
        """Raise a `UsageError` that names what is wrong, as far as it can be seen before the addresses are known."""
        if not self.group:
            raise UsageError("group: a group needs a name")
        for key in ("message_bytes_max", "inbox_bytes_max", "window_bytes"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key}: must be at least 1, not {getattr(self, key)}")
        if (self.snapshot is None) != (self.restore is None):
            raise UsageError("snapshot, restore: one without the other cannot bring a joiner up to date")
        if self.discover is not None and (not self.views or (self.peers and self.discover != PEERS)):
            raise UsageError("discover: finds members that come and go; give neither peers nor views=False with it")
        self.keys()


class Keywords(TypedDict, total=False):
    """The keywords of `join`; what each means, and what it is if not given, stands in `Settings`."""

    bind: Required[str]
    peers: Sequence[str]
    address: str | None
    ordering: str | type[Ordering]
    ordering_options: dict[str, Any]
    stability: str | type[Stability]
    stability_options: dict[str, Any]
    safe: bool
    views: bool
    membership: MembershipOptions
    partition: Literal["majority", "each-side"]
    slow: Literal["block", "drop", "lag"]
    state: Path | None
    snapshot: Callable[[], bytes] | None
    restore: Callable[[bytes], None] | None
    key: bytes | Sequence[bytes] | None
    window: int
    window_bytes: int
    message_bytes_max: int
    inbox_bytes_max: int
    listen: bool
    discover: str | None
    multicast: str | None
    ttl: int
    offload: bool | None
    leave_s: float
    trace: Path | None
    recording: bool
    metrics: Callable[[Status], None] | None
    status_at: str | None


class Group:
    """One member's hold on a group; made by `join`, used inside `async with`."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self._settings = settings
        self._inbox: deque[Batch | ViewChange | Notice | Capture | Restore] = deque()
        self._inbox_bytes = 0
        self._news = asyncio.Event()
        self._current: Iterator[Message] = iter(())  # what is left of the batch being handed out
        self._current_view = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._open_bytes = 0  # up to this length messages simply join what is pending
        self._pending_kind: tuple[int | None, int] = (None, 0)  # lifetime and priority
        self._receipt = Receipt()  # of what is pending
        self._flush_scheduled = False
        self._room: asyncio.Future[None] | None = None
        self._sizes = burst.BurstSize()
        self._joiner = burst.Joiner(settings.message_bytes_max)
        self._sent: dict[int, Receipt] = {}  # by number in this life
        self._sent_bytes = 0
        self._messages_sent = self._messages_delivered = 0
        self._sent_seq = self._stable_seq = 0
        self._unfinished: dict[int, dict[int, list[bytes]]] = {}  # per view with joiners, what had begun by then
        self._members: tuple[int, ...] = ()  # processes
        self._view = 0
        self._large = asyncio.Lock()
        self._entered = self._closing = self._closed = False
        self._failure: BaseException | None = None
        self._joined: asyncio.Future[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._trace: LiveTrace | None = None
        self._discovery: Discovery | None = None
        self._publisher: Publisher | None = None
        self.recording: Recording | None = None

    # Coming and going

    async def __aenter__(self) -> Group:
        try:
            return await self._enter()
        except BaseException:
            if self._discovery is not None:
                self._discovery.close()
            raise

    async def _enter(self) -> Group:
        if self._entered:
            raise UsageError("a group is entered once; join again")
        self._entered = True
        settings, loop = self._settings, asyncio.get_running_loop()
        self._loop, self._host = loop, host_of(loop)
        self._clock = self._host.clock()
        addresses = await self._find_members()
        self._names = {name: show(address) for name, address in addresses.items()}
        origin = self._origin(tuple(addresses))
        origin.config.check(len(addresses))
        addresses.setdefault(self._me, self._own)
        self._names[self._me] = show(self._own)
        envelope_ = envelope(settings.group, self._me, self._clock(), settings.keys())
        self._envelope = envelope_
        self._driver = Driver(
            self._clock,
            self._take,
            persist=self._persist,
            failed=self._fail,
            data_tag=group_tag(origin.config.group),
            full=self._is_full,
            note=self._make_recording(origin),
        )
        if self._discovery is not None:
            self._host.write(self._founders_file(), "\n".join(self._founders).encode())
        multicast = None if settings.multicast is None else await resolve(settings.multicast, "multicast")
        transport = Transport(
            self._me,
            addresses,
            envelope_,
            bind=await resolve(settings.bind, "bind"),
            multicast=multicast,
            ttl=settings.ttl,
            offload=settings.offload,
            receive=self._driver.received,
            make_socket=self._host.socket,
        )
        try:
            await self._check_name(transport, addresses[self._me])
            self._machine = make(origin, self._journals(origin))
            self._joined = loop.create_future()
            if not settings.views:
                self._members = tuple(addresses)
                self._joined.set_result(None)
            self._driver.start(self._machine, transport, loop)
            if self._discovery is not None:
                self._discovery.go_on(self._learn, self._newest_view)
                transport.hello = self._discovery.take
            self._tick()
            if settings.status_at is not None:
                self._publisher = await Publisher.start(settings.status_at, self.status)
            await self._joined
        except BaseException:
            transport.close()
            await self._close()
            raise
        return self

    async def _check_name(self, transport: Transport, address: Address) -> None:
        """Make sure that no other member lives at the address that was given for this one, if it is not bound there."""
        settings = self._settings
        if settings.address is None:
            return
        if await resolve(settings.bind, "bind") != address:
            transport.start(self._loop)
            if await transport.name_is_taken():
                raise UsageError(
                    f"address: another member answers at {settings.address}; two members cannot have one name"
                )

    async def _find_members(self) -> dict[int, Address]:
        """Find out one's own name, and the founders' addresses by name."""
        settings = self._settings
        self._own = await resolve(settings.address or settings.bind, "bind")
        if settings.discover is None:
            self._me, addresses = await resolve_group(settings.address or settings.bind, settings.peers)
            return dict(enumerate(addresses))
        self._me = name_from(self._own)
        self._discovery = Discovery(
            settings.group,
            self._own,
            None if settings.discover == PEERS else await resolve(settings.discover, "discover"),
            asked=[await resolve(peer, "peers") for peer in settings.peers],
            bind=await resolve(settings.bind, "bind"),
            ttl=settings.ttl,
            keys=settings.keys(),
            make_socket=self._host.socket,
        )
        return await self._discovery.find(self._founders_of_last_time())

    def _newest_view(self) -> GroupView | None:
        """Give the newest view for newcomers, once there is one."""
        view = self._machine.view if isinstance(self._machine, Process) else None
        return None if view is None or view.number == 0 else view

    def _learn(self, name: int, address: Address) -> None:
        self._names[name] = show(address)
        self._driver.transport.know(name, address)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(hurry=kind is not None)

    async def leave(self, *, hurry: bool = False) -> None:
        """Leave: send what is pending, wait for its delivery (unless in a hurry), tell the others, close."""
        if self._closing:
            return
        self._closing, self._open_bytes = True, 0
        try:
            if not hurry:
                await self._until(self._all_is_said, self._settings.leave_s)
            if self._settings.views or not self._all_is_said():
                self._driver.drive(protocol.Leave())
                await self._until(self._has_left, min(_FAREWELL_S, self._settings.leave_s))
        finally:
            await self._close()

    async def stop(self) -> None:
        """Stop without a word: to the others it looks like a crash; in the trace too, if something was undelivered."""
        if not self._closed:
            await self._close(crashed=not self._all_is_delivered())

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while not condition() and self._failure is None and self._loop.time() < deadline:
            await asyncio.sleep(0.01)

    def _all_is_delivered(self) -> bool:
        return not self._pending and all(receipt.is_delivered or receipt.lost for receipt in self._sent.values())

    def _all_is_said(self) -> bool:
        return self._all_is_delivered() and (self._settings.views or (self._machine.drained and not self._sent))

    def _has_left(self) -> bool:
        return self._machine.left and self._machine.deadline is None

    async def _close(self, *, crashed: bool = False) -> None:
        self._closing, self._closed, self._open_bytes = True, True, 0
        if self._ticker is not None:
            self._ticker.cancel()
        if self._publisher is not None:
            self._publisher.close()
        self._driver.stop()
        if self._discovery is not None:
            self._discovery.close()
        for receipt in (*self._sent.values(), self._receipt):
            receipt.lose("the group was left before this was known")
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._news.set()
        if self._trace is not None:
            trace, self._trace = self._trace, None
            last: Literal["end", "crash"] | None = "crash" if crashed else "end"
            await self._loop.run_in_executor(
                None, lambda: trace.close(self._clock(), last if self._failure is None else None)
            )

    def _fail(self, error: BaseException) -> None:
        """A broken invariant: nothing more can be promised, so nothing more is done."""
        self._failure, self._open_bytes = self._failure or error, 0
        self._driver.stop()
        for receipt in (*self._sent.values(), self._receipt):
            receipt.lose(f"the group failed: {error!r}")
        if self._joined is not None and not self._joined.done():
            self._joined.set_exception(error)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._news.set()

    # Sending

    async def send(self, payload: bytes, *, lifetime_s: float | None = None, priority: int = 0) -> Receipt:
        """Multicast a message; wait only while the window and the buffers are full."""
        size = self._pending_bytes + len(payload) + burst.MESSAGE_OVERHEAD_BYTES
        if size > self._open_bytes or lifetime_s is not None or priority:
            return await self._begin_burst(
                payload, (None if lifetime_s is None else int(lifetime_s * SECOND), priority)
            )
        self._pending.append(payload)
        self._pending_bytes = size
        return self._receipt

    async def _begin_burst(self, payload: bytes, kind: tuple[int | None, int]) -> Receipt:
        """Send a message that does not simply go into the burst that is pending."""
        size, limit = len(payload), self._settings.message_bytes_max
        if size > limit:
            raise UsageError(f"payload: {size} bytes are over the limit of {limit} (message_bytes_max)")
        while self._pending and (self._pending_bytes + size > self._sizes.bytes or kind != self._pending_kind):
            await self._wait_for_room()
        if size > self._sizes.bytes or self._large.locked():
            return await self._send_large(payload, kind)
        if self._closing or self._failure is not None:
            raise self._gone()
        self._pending_kind = kind
        self._pending.append(payload)
        self._pending_bytes += size + burst.MESSAGE_OVERHEAD_BYTES
        self._open_bytes = min(self._sizes.bytes, limit) if kind == (None, 0) else 0
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return self._receipt

    async def send_many(self, payloads: Iterable[bytes]) -> Receipt:
        """Multicast messages in their order, in as few bursts as they take; the receipt is the last one's."""
        receipt: Receipt | None = None
        for payload in payloads:
            receipt = await self.send(payload)
        if receipt is None:
            raise UsageError("send_many: nothing to send")
        return receipt

    async def _send_large(self, payload: bytes, kind: tuple[int | None, int]) -> Receipt:
        """Send a message in parts, or one that has to wait for another's parts."""
        async with self._large:  # nothing of one's own comes between its parts
            receipt = Receipt()
            for part in burst.parts(payload, self._sizes.bytes):
                while self._pending or not self._has_room():
                    await self._wait_for_room()
                if self._closing or self._failure is not None:
                    raise self._gone()
                receipt = Receipt()
                self._submit(part, receipt, kind)
            self._messages_sent += 1
        return receipt

    async def _wait_for_room(self) -> None:
        """Wait until what is pending was taken by the machine."""
        self._flush()
        if not self._pending and self._has_room():
            await asyncio.sleep(0)
        else:
            if self._room is None or self._room.done():
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        if self._closed or self._failure is not None:
            raise self._gone()

    def _flush(self) -> None:
        """Turn what is pending into one burst, if the machine has room."""
        self._flush_scheduled = False
        if self._pending and not self._closed and self._failure is None and self._has_room():
            messages, self._pending, self._pending_bytes, self._open_bytes = self._pending, [], 0, 0
            receipt, self._receipt = self._receipt, Receipt()
            self._messages_sent += len(messages)
            self._submit(burst.whole(messages), receipt, self._pending_kind)

    def _submit(self, payload: bytes, receipt: Receipt, kind: tuple[int | None, int]) -> None:
        self._sizes.sent(self._machine_counts("retransmissions"))
        self._sent_seq += 1
        self._sent[self._sent_seq] = receipt
        receipt.size = len(payload)
        self._sent_bytes += receipt.size
        self._driver.drive(Submit(payload, *kind))
        self._room_again()

    def _has_room(self) -> bool:
        return self._sent_bytes < self._settings.window_bytes and self._machine.room > 0

    def _room_again(self) -> None:
        if self._pending and not self._flush_scheduled and self._has_room():
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        if self._room is not None and not self._room.done() and not self._pending and self._has_room():
            self._room.set_result(None)

    def _gone(self) -> GroupClosed:
        if self._failure is not None:
            return GroupClosed(f"the group failed: {self._failure!r}")
        return GroupClosed("the group was left; join again to send")

    # Receiving

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        while True:
            for message in self._current:  # shared by all iterators, so that one that is given up loses nothing
                yield message
            item = await self._next()
            if item is None:
                return
            if isinstance(item, Batch):
                self._current = map(Message, repeat(item.sender), item.payloads, repeat(item.view))
            else:
                yield item

    async def batches(self) -> AsyncIterator[Batch | ViewChange | Notice]:
        """Give the same stream as `async for event in group`, messages by the batch: cheaper."""
        while True:
            begun = list(self._current)
            if begun:
                yield Batch(begun[0].sender, [message.payload for message in begun], begun[0].view)
            item = await self._next()
            if item is None:
                return
            yield item

    async def _next(self) -> Batch | ViewChange | Notice | None:
        """Take the next of the stream; what concerns the application's state is done in its place."""
        while True:
            while not self._inbox:
                if self._failure is not None:
                    raise self._gone() from self._failure
                if self._closed:
                    return None
                self._news.clear()
                await self._news.wait()
            item = self._inbox.popleft()
            if isinstance(item, Batch):
                self._inbox_bytes -= _cost(item)
            elif isinstance(item, Capture):
                self._capture(item)
                continue
            elif isinstance(item, Restore):
                self._restore(item)
                continue
            return item

    def _capture(self, capture: Capture) -> None:
        """Give the application's state, which has just seen all that came before."""
        assert self._settings.snapshot is not None
        state = (self._settings.snapshot(), self._unfinished.pop(capture.view, {}))
        self._driver.drive(protocol.Snapshot(capture.view, msgspec.msgpack.encode(state)))

    def _restore(self, restore: Restore) -> None:
        assert self._settings.restore is not None
        self._settings.restore(msgspec.msgpack.decode(restore.state, type=tuple[bytes, dict[int, list[bytes]]])[0])

    # What the machine says

    def _take(self, effect: Effect) -> None:
        match effect:
            case Deliver():
                self._deliver(effect)
            case Stable():
                if name_of(effect.sender) == self._me:
                    self._mark_stable(effect.seq)
            case Drop(sender=int(sender), seq=int(seq)):
                if name_of(sender) == self._me and seq in self._sent:
                    self._retire(seq).lose(f"discarded: {effect.reason}")
            case Drop():
                self._driver.counts["dropped-" + effect.reason] += 1
            case Install():
                self._install(effect)
            case protocol.Notice():
                self._notice(effect)
            case Capture():
                self._unfinished[effect.view] = self._joiner.unfinished()
                self._put(effect)
            case Restore():
                _, unfinished = msgspec.msgpack.decode(effect.state, type=tuple[bytes, dict[int, list[bytes]]])
                self._joiner.adopt(unfinished)
                self._put(effect)
            case _:
                raise AssertionError(f"the driver sees to {effect!r}")
        self._room_again()

    def _deliver(self, effect: Deliver) -> None:
        name = name_of(effect.sender)
        messages = self._joiner.messages(effect.sender, effect.payload)
        self._messages_delivered += len(messages)
        if messages and self._settings.listen:
            batch = Batch(self._names[name], messages, self._view)
            self._inbox_bytes += _cost(batch)
            self._put(batch)
        if name == self._me:
            receipt = self._sent.get(effect.seq)
            if receipt is not None:
                receipt.mark("delivered")
                self._forget_if_settled(effect.seq, receipt)

    def _mark_stable(self, upto: int) -> None:
        for seq in range(self._stable_seq + 1, upto + 1):
            receipt = self._sent.get(seq)
            if receipt is not None:
                receipt.mark("stable")
                self._forget_if_settled(seq, receipt)
        self._stable_seq = max(self._stable_seq, upto)

    def _forget_if_settled(self, seq: int, receipt: Receipt) -> None:
        if receipt.settled:
            self._retire(seq)

    def _retire(self, seq: int) -> Receipt:
        receipt = self._sent.pop(seq)
        self._sent_bytes -= receipt.size
        return receipt

    def _install(self, install: Install) -> None:
        old, self._members, self._view = self._members, install.members, install.view
        self._joiner.keep_only(install.members)
        # whoever goes on from the old view has delivered the same in it: what was delivered is held by all of them
        for seq in [seq for seq, receipt in self._sent.items() if receipt.is_delivered]:
            self._retire(seq).mark("stable")
        self._put(
            ViewChange(
                install.view,
                tuple(self._show(member) for member in install.members),
                tuple(self._show(member) for member in install.members if member not in old),
                tuple(self._show(member) for member in old if member not in install.members),
                tuple(self._show(member) for member in install.elders),
            )
        )
        if self._joined is not None and not self._joined.done():
            self._joined.set_result(None)

    def _notice(self, notice: protocol.Notice) -> None:
        if notice.what in ("excluded", "yielded"):  # a new life: what was not sent yet is numbered anew
            waiting = [receipt for receipt in self._sent.values() if not receipt.is_delivered]
            for receipt in self._sent.values():
                if receipt.is_delivered:
                    receipt.lose("the group went on without this member")
            self._sent = dict(enumerate(waiting, 1))
            self._sent_bytes = sum(receipt.size for receipt in waiting)
            self._sent_seq, self._stable_seq = len(waiting), 0
        self._put(Notice(notice.what))

    def _put(self, item: Batch | ViewChange | Notice | Capture | Restore) -> None:
        if self._settings.listen or isinstance(item, Capture | Restore):
            self._inbox.append(item)
            self._news.set()

    def _is_full(self) -> bool:
        return self._inbox_bytes > self._settings.inbox_bytes_max

    # About itself

    def status(self) -> Status:
        """Say how the group stands, as this member sees it."""
        lag = {self._show(member): lacks for member, lacks in self._lag().items()}
        behind = {member: lacks for member, lacks in lag.items() if lacks is None or lacks > 0}
        slowest = max(behind, key=lambda member: (behind[member] is None, behind[member] or 0), default=None)
        transport = self._driver.transport
        counts = self._machine.counts + self._driver.counts + transport.counts
        return Status(
            group=self._settings.group,
            me=self._names[self._me],
            standing=self._standing(),
            view=self._view,
            members=tuple(map(self._show, self._members)),
            lag=lag,
            slowest=slowest,
            sent=self._messages_sent,
            delivered=self._messages_delivered,
            held=self._machine.held,
            waiting_bytes=self._pending_bytes,
            inbox_bytes=self._inbox_bytes,
            burst_bytes=self._sizes.bytes,
            counts=dict(counts) | {"broken-bursts": self._joiner.broken, "broken-datagrams": transport.broken},
        )

    def set_keys(self, key: bytes, *also_accepted: bytes) -> None:
        """Seal with a key from now on, and accept it and others.

        To go from one key to the next without a pause: `set_keys(old, new)` at every member, then `set_keys(new, old)`
        at every member, then `set_keys(new)`.
        """
        if not isinstance(self._envelope, SealedEnvelope):
            raise UsageError("key: this group was joined without a key; leave, and join with one")
        self._envelope.set_keys([key, *also_accepted])
        if self._discovery is not None:
            self._discovery.set_keys([key, *also_accepted])

    @property
    def failure(self) -> BaseException | None:
        """The broken invariant that ended this member, if one did."""
        return self._failure

    @property
    def discovered(self) -> Counter[str]:
        """What was refused, and why, while members were discovered."""
        return Counter() if self._discovery is None else self._discovery.counts

    @property
    def transport(self) -> Transport:
        """The packets' way in and out; tests lose some of them there."""
        return self._driver.transport

    def _standing(self) -> Literal["joining", "active", "changing", "stalled", "leaving", "left", "failed"]:
        machine = self._machine
        if self._failure is not None:
            return "failed"
        if self._closed or machine.left:
            return "left"
        if self._closing:
            return "leaving"
        if isinstance(machine, Process) and not machine.active:
            if machine.stalled:
                return "stalled"
            return "joining" if machine.member is None else "changing"
        return "active"

    def _lag(self) -> dict[int, int | None]:
        member = self._member()
        return {} if member is None else member.lag()

    def _machine_counts(self, what: str) -> int:
        member = self._member()
        return 0 if member is None else member.counts[what]

    def _member(self) -> Member | None:
        """Give the member of the present view, if there is one."""
        return self._machine.member if isinstance(self._machine, Process) else self._machine

    def _show(self, process: int) -> str:
        return self._names[name_of(process)]

    def _tick(self) -> None:
        """Once a second, tell the metrics."""
        if self._settings.metrics is not None:
            self._settings.metrics(self.status())
            self._ticker = self._loop.call_later(1.0, self._tick)

    # What it is made from

    def _origin(self, founders: tuple[int, ...]) -> Origin:
        settings = self._settings
        self._founders = [self._names[founder] for founder in founders]
        about = (self._founders, *settings.protocols(), settings.safe, settings.views, settings.partition)
        membership = msgspec.structs.replace(
            settings.membership,
            partition=settings.partition,
            slow=settings.slow,
            transfer=settings.snapshot is not None,
        )
        return Origin(
            name=self._me,
            names=founders,
            config=settings.config(_digest(*about)),
            membership=membership if settings.views else None,
            seed=self._host.seed(),
            started_at=self._clock(),
            saved=(self._saved() or self._first_knowledge()) if settings.views else None,
        )

    def _make_recording(self, origin: Origin) -> Callable[[int, Any], None] | None:
        if not self._settings.recording:
            return None
        self.recording = Recording(origin)
        return self.recording.note

    def _journals(self, origin: Origin) -> Callable[[int], Journal]:
        settings = self._settings
        if (journals := self._host.journals(self, origin, self._names)) is not None:
            return journals
        if settings.trace is None:
            return Silence
        ordering, stability = settings.protocols()
        self._trace = LiveTrace(
            settings.trace,
            settings.group,
            {
                "ordering": ordering,
                "stability": stability if ordering_type(settings.ordering).NEEDS_RECOVERY else ordering,
                "promises": origin.config.promises(views=settings.views),
                "views": settings.views,
                "clock": "local",
            },
        )
        return self._trace.life

    # What survives a crash

    def _state_file(self) -> Path:
        return self._state_folder() / f"{_digest(self._settings.group, self._founders, self._me)}.state"

    def _state_folder(self) -> Path:
        if self._settings.state is not None:
            return self._settings.state
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(base) / "antiphon"

    def _founders_file(self) -> Path:
        return self._state_folder() / f"{_digest(self._settings.group, show(self._own))}.founders"

    def _founders_of_last_time(self) -> list[str]:
        try:
            return self._host.read(self._founders_file()).decode().split()
        except OSError:
            return []  # the first time

    def _saved(self) -> bytes | None:
        try:
            return self._host.read(self._state_file())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"state: {self._state_file()}: {error.strerror}; name a folder of your own") from None

    def _first_knowledge(self) -> bytes | None:
        """Begin with the view of the group that was found, so as to know its members, and its names' last lives."""
        view = None if self._discovery is None else self._discovery.view
        if view is None:
            return None
        lives = (incarnation_of(member) for member in view.members if name_of(member) == self._me)
        return msgspec.msgpack.encode(Saved(max(lives, default=0), view, NO_BALLOT, None, None))

    def _persist(self, state: bytes) -> None:
        self._host.write(self._state_file(), state)


def _digest(*about: object) -> str:
    return hashlib.sha256(repr(about).encode()).hexdigest()[:16]


def _cost(batch: Batch) -> int:
    return sum(map(len, batch.payloads)) + _EACH_BYTES * len(batch.payloads)


def join(group: str, **settings: Unpack[Keywords]) -> Group:
    """Take part in a group: `async with antiphon.join("orders", bind="127.0.0.1:7001", peers=[...]) as group`.

    The keywords are the fields of `Settings`.
    """
    try:
        made = Settings(group=group, **settings)
    except TypeError as error:
        raise UsageError(f"join: {error}; its keywords are {', '.join(Settings.__struct_fields__)}") from None
    parse(made.bind, "bind")
    for peer in made.peers:
        parse(peer, "peers")
    return Group(made)
