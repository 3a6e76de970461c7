"""A live group: `async with antiphon.join(...) as group`, send, receipts, and one agreed stream of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from threading import get_ident
from types import TracebackType
from typing import Final

from antiphon.errors import UsageError, UsageTypeError
from antiphon.live.arguments import as_payload, check_range, check_thread, check_type, plain
from antiphon.live.events import Batch, Event, Notice, Status, ViewChange
from antiphon.live.member import LiveMember
from antiphon.live.receipts import Receipt
from antiphon.live.recording import Recording
from antiphon.live.sender import PLAIN, Kind
from antiphon.live.settings import Settings, settable
from antiphon.live.transport import Transport
from antiphon.protocol.machine import SECOND
from antiphon.protocol.options import ignores_lifetimes
from antiphon.protocol.parts import Ordering

LIFETIME_S_MAX: Final = 1_000_000_000  # when a message expires goes on the wire, in nanoseconds


class Group:
    """One member's hold on a group; made by `join`, used inside `async with`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._member: LiveMember | None = None
        self._thread = 0  # in which it was entered

    async def __aenter__(self) -> Group:
        if self._member is not None:
            raise UsageError("a group is entered once; join again")
        self._member, self._thread = LiveMember(self._settings), get_ident()
        await self._member.start(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave(hurry=kind is not None)

    @property
    def _entered(self) -> LiveMember:
        if self._member is None:
            raise UsageError("the group was not entered yet: async with antiphon.join(...) as group")
        return self._member

    async def leave(self, *, hurry: bool = False) -> None:
        """Leave the group: send what is pending, wait for its delivery (unless `hurry`), tell the others, and close."""
        check_type("hurry", hurry, bool)
        await self._entered.leave(hurry=hurry)

    async def stop(self) -> None:
        """Stop without telling the others: they see a crash, and so does the trace if something was undelivered."""
        member = self._entered
        check_thread(member.driver.loop)
        await member.close(unfinished=not member.all_is_delivered)

    async def send(self, payload: bytes, *, lifetime_s: float | None = None, priority: int = 0) -> Receipt:
        """Multicast a message and return its receipt; wait only while the window and the buffers are full."""
        sender = self._entered.sender
        if type(payload) is not bytes:
            payload = as_payload(payload)
        if lifetime_s is None and type(priority) is int and not priority:
            receipt = (
                sender.add(payload) if get_ident() == self._thread else None
            )  # far quicker than to ask for the loop
            return await sender.begin(payload, PLAIN) if receipt is None else receipt
        return await sender.begin(payload, _kind(lifetime_s, priority, self._settings.ordering))

    async def send_many(self, payloads: Iterable[bytes]) -> Receipt:
        """Multicast messages in this order, in as few bursts as possible, and return the receipt of the last one.

        Once the last one is delivered or stable, all are. If it is lost, those before it may still have been sent.
        """
        if isinstance(payloads, str | bytes | bytearray | memoryview) or not isinstance(payloads, Iterable):
            raise UsageTypeError(f"payloads: must be several payloads, not {type(payloads).__name__}")
        if isinstance(payloads, Collection):
            payloads = [as_payload(payload, "payloads") for payload in payloads]
            self._entered.sender.check_sizes(payloads)  # all of them, or none is sent
        receipt: Receipt | None = None
        for payload in payloads:
            receipt = await self.send(as_payload(payload, "payloads"))
        if receipt is None:
            raise UsageError("payloads: nothing to send")
        return receipt

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._entered.upcalls.inbox.events()

    def batches(self) -> AsyncIterator[Batch | ViewChange | Notice]:
        """Return the same stream as `async for event in group`, but with messages in batches, which is cheaper."""
        return self._entered.upcalls.inbox.batches()

    def status(self) -> Status:
        """Return how the group stands, as this member sees it."""
        return self._entered.status()

    def set_keys(self, key: bytes, *also_accepted: bytes) -> None:
        """Encrypt with a key from now on, and accept it and others.

        To go from one key to the next without a pause: `set_keys(old, new)` at every member, then `set_keys(new, old)`
        at every member, then `set_keys(new)`.
        """
        member = self._entered
        check_thread(member.driver.loop)
        member.set_keys([key, *also_accepted])

    @property
    def failure(self) -> BaseException | None:
        """The broken invariant that ended this member, if one did."""
        return None if self._member is None else self._member.failure

    @property
    def discovered(self) -> Counter[str]:
        """How many packets were refused, by reason; there is no status yet while members are being looked for."""
        return Counter() if self._member is None else self._member.anomalies.counts

    @property
    def transport(self) -> Transport:
        """The way of packets in and out; tests drop some of them there."""
        return self._entered.driver.transport

    @property
    def recording(self) -> Recording | None:
        """All inputs of the member, if `recording` was asked for."""
        return None if self._member is None else self._member.driver.recording


def _kind(lifetime_s: float | None, priority: int, ordering: str | type[Ordering]) -> Kind:
    check_type("lifetime_s", lifetime_s, float | None)
    check_type("priority", priority, int)
    if lifetime_s is not None and lifetime_s <= 0:
        raise UsageError(f"lifetime_s: must be more than 0, not {lifetime_s}")
    if lifetime_s is not None:
        check_range("lifetime_s", lifetime_s, 0, LIFETIME_S_MAX)
    if ignores_lifetimes(ordering):
        raise UsageError(f"lifetime_s, priority: {ordering} has neither; choose the ordering causal-blocks for them")
    return None if lifetime_s is None else int(lifetime_s * SECOND), plain(priority)


@settable(Settings)
def join(settings: Settings) -> Group:
    """Take part in a group: `async with antiphon.join("orders", bind="127.0.0.1:7001", peers=[...]) as group`.

    Every member must give the same group, addresses, ordering and stability. The settings, with their defaults:
    """
    return Group(settings)
