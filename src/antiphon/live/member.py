"""One member at work: the machine and all around it, put together, and taken apart when the group is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, resolve, resolve_group, show
from antiphon.live.admission import Admission
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.discovery import Discovery, name_from
from antiphon.live.driver import Driver
from antiphon.live.events import GroupClosed, Status
from antiphon.live.handshake import Description
from antiphon.live.host import Host, host_of
from antiphon.live.publish import Publisher
from antiphon.live.recording import Origin, Recording, make
from antiphon.live.sender import Sender
from antiphon.live.session import PacketSession, SealedSession, open_session
from antiphon.live.settings import PEERS, Settings
from antiphon.live.status import lags_of, links_of, standing_of
from antiphon.live.storage import MemberFile, StateFolder, digest
from antiphon.live.tracing import FLUSH_S, LiveTrace
from antiphon.live.transport import Endpoint, Transport
from antiphon.live.upcalls import Upcalls
from antiphon.protocol import machine as protocol
from antiphon.protocol.membership.process import Process, Saved
from antiphon.protocol.membership.views import NO_BALLOT, GroupView, incarnation_of, name_of
from antiphon.protocol.options import ordering_type
from antiphon.protocol.wire import group_tag
from antiphon.trace.log import IncarnationLog, IncarnationLogs

if TYPE_CHECKING:
    from antiphon.live.group import Group

_FAREWELL_S = 1.0  # then the others find out by themselves
_LEFT = "the group was left; join again to send"
_LEFT_UNKNOWN = "the group was left before this was known"


class Identity(msgspec.Struct, frozen=True):
    """Who a member is, and with whom the group began."""

    me: int
    own: Address
    founders: dict[int, Address]  # by name
    discovery: Discovery | None  # how they were found, if they were not given

    @property
    def shown(self) -> list[str]:
        """The founders' addresses, in the order of their names."""
        return [show(address) for address in self.founders.values()]


class LiveMember:
    """A member's machine, driven over the network, with the two ends that the application holds: sender and inbox."""

    session: PacketSession

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._host: Host = host_of(asyncio.get_running_loop())
        self._names: dict[int, str] = {}  # the members' addresses
        self._logger = MemberLogger(settings.group, settings.address or settings.bind)
        self.anomalies = Anomalies(self._logger)
        self.driver = Driver(self._host.clock(), failed=self._fail)
        self.upcalls = Upcalls(settings, self._names, self.driver.drive, self._logger, self.anomalies)
        self.sender = Sender(settings, self.driver, self.upcalls.receipts)
        self._admission = Admission()
        self._closers = ExitStack()  # what is to be closed, in the opposite order
        self._closers.callback(self.upcalls.close)
        self._trace: LiveTrace | None = None
        self._standing: Literal["open", "leaving", "left"] = "open"
        self.discovery: Discovery | None = None
        self.failure: BaseException | None = None

    # Coming

    async def start(self, group: Group) -> None:
        """Find the others, open the network, and wait for the first view."""
        settings = self._settings
        folder = StateFolder(self._host, settings.state, settings.group)
        try:
            identity = await self._identify(folder)
            file = folder.member(identity.shown, identity.me)
            origin = self._origin(identity, file)
            origin.options.check(len(identity.founders))
            if identity.discovery is not None:
                folder.keep_founders(identity.own, identity.shown)
            self.session = open_session(settings.group, identity.me, settings.keys())
            self._admission.founders = frozenset(identity.founders)
            self.upcalls.me, self._names[identity.me] = identity.me, show(identity.own)
            self._names.update((name, show(address)) for name, address in identity.founders.items())
            transport = await self._open_transport(identity)
            await self._run(group, identity, origin, file, transport)
        except BaseException:
            await self.close()
            raise

    async def _identify(self, folder: StateFolder) -> Identity:
        """Find out one's own name, and the founders' addresses by name."""
        settings = self._settings
        own = await resolve(settings.address or settings.bind, "bind")
        if settings.discover is None:
            me, addresses = await resolve_group(settings.address or settings.bind, settings.peers)
            return Identity(me, own, dict(enumerate(addresses)), None)
        self.discovery = Discovery(
            settings.group,
            own,
            None if settings.discover == PEERS else await resolve(settings.discover, "discover"),
            asked=[await resolve(peer, "peers") for peer in settings.peers],
            bind=await resolve(settings.bind, "bind"),
            ttl=settings.ttl,
            keys=settings.keys(),
            make_socket=self._host.socket,
            anomalies=self.anomalies,
        )
        self._closers.callback(self.discovery.close)
        return Identity(name_from(own), own, await self.discovery.find(folder.founders(own)), self.discovery)

    def _origin(self, identity: Identity, file: MemberFile) -> Origin:
        settings = self._settings
        about = Description(settings.described(identity.shown)).digest
        return Origin(
            name=identity.me,
            names=tuple(identity.founders),
            options=settings.options(digest(about)),
            seed=self._host.seed(),
            started_at=self.driver.clock(),
            saved=(file.read() or _first_knowledge(identity)) if settings.views else None,
        )

    async def _open_transport(self, identity: Identity) -> Transport:
        settings = self._settings
        endpoint = Endpoint(
            me=identity.me,
            addresses={**identity.founders, identity.me: identity.founders.get(identity.me, identity.own)},
            session=self.session,
            description=Description(settings.described(identity.shown)),
            differs=self._differs,
            bind=await resolve(settings.bind, "bind"),
            multicast=None if settings.multicast is None else await resolve(settings.multicast, "multicast"),
            ttl=settings.ttl,
            offload=settings.offload,
            receive=self.driver.received,
            make_socket=self._host.socket,
            anomalies=self.anomalies,
        )
        transport = Transport(endpoint)
        self._closers.callback(transport.close)
        self.upcalls.left = transport.forget
        is_known_elsewhere = settings.address is not None and endpoint.bind != endpoint.addresses[identity.me]
        if is_known_elsewhere and await transport.name_is_taken():
            raise UsageError(f"address: another member answers at {settings.address}; two members cannot have one name")
        return transport

    def _differs(self, name: int, how: str) -> None:
        """Note that a member is set up differently."""
        other = self._names.get(name, str(name))
        self.anomalies.note("refused-other-settings", f"{other}: {how}")
        self._admission.differs(name, other, how)

    async def _run(
        self, group: Group, identity: Identity, origin: Origin, file: MemberFile, transport: Transport
    ) -> None:
        """Begin to drive the machine, and wait until it is in a view."""
        settings, begin = self._settings, self._journals(group, origin)
        self.driver.logs = None if begin is None else IncarnationLogs(begin)
        machine = make(origin, traced=begin is not None)
        if settings.views:
            self.upcalls.joined = self._admission.admit
        else:
            self.upcalls.members = tuple(identity.founders)
            self._admission.admit()
        if settings.recording:
            self.driver.recording = Recording(origin)
        self.driver.inbox, self.driver.data_tag = self.upcalls.inbox, group_tag(origin.options.group)
        self.driver.handlers = self.upcalls.handlers
        self.upcalls.handlers[protocol.Persist] = lambda effect: file.write(effect.state)
        self._closers.callback(self.driver.stop)
        self.driver.machine = machine
        self._begin_log()
        self.driver.start(machine, transport)
        if self.discovery is not None:
            self.discovery.go_on(self._learn, self._newest_view)
            transport.hello = self.discovery.take
        self._tick()
        if settings.status_at is not None:
            self._closers.callback((await Publisher.start(settings.status_at, self.status)).close)
        await self._admission.wait()

    def _journals(self, group: Group, origin: Origin) -> Callable[[int], IncarnationLog] | None:
        settings = self._settings
        if (journals := self._host.journals(group, origin, self._names)) is not None:
            return journals
        if settings.trace is None:
            return None
        ordering, stability = settings.protocols()
        self._trace = LiveTrace(
            Path(settings.trace),
            settings.group,
            {
                "ordering": ordering,
                "stability": stability if ordering_type(settings.ordering).NEEDS_RECOVERY else ordering,
                "promises": origin.options.promises(),
                "views": settings.views,
                "clock": "local",
            },
        )
        self._flush_trace()
        return self._trace.incarnation

    def _flush_trace(self) -> None:
        """Bring what was traced to the disk, now and again and again."""
        if self._trace is not None:
            self._trace.flush()
            if self._trace.failed is not None and not self.anomalies.counts["trace-ended"]:
                self.anomalies.note("trace-ended", self._trace.failed)
            asyncio.get_running_loop().call_later(FLUSH_S, self._flush_trace)

    def _begin_log(self) -> None:
        """Begin the log of the present incarnation, which may not have said anything yet."""
        machine, logs = self.driver.machine, self.driver.logs
        if logs is not None:
            logs.begin(machine.id if isinstance(machine, Process) else self.upcalls.me)

    def _newest_view(self) -> GroupView | None:
        """Return the newest view for newcomers, once there is one."""
        view = self.driver.machine.view if isinstance(self.driver.machine, Process) else None
        return None if view is None or view.number == 0 else view

    def _learn(self, name: int, address: Address) -> None:
        self._names[name] = show(address)
        self.driver.transport.know(name, address)

    # Going

    async def leave(self, *, hurry: bool) -> None:
        """Send what is pending, wait for its delivery (unless in a hurry), tell the others, close."""
        if self._standing != "open":
            return
        self._standing = "leaving"
        self.sender.refuse(_LEFT)
        try:
            if not hurry:
                await self._until(self._all_is_said, self._settings.leave_s)
            if self._settings.views or not self._all_is_said():
                self.driver.drive(protocol.Leave())
                await self._until(self._has_left, min(_FAREWELL_S, self._settings.leave_s))
        finally:
            await self.close()

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not condition() and self.failure is None and loop.time() < deadline:
            await asyncio.sleep(0.01)

    @property
    def all_is_delivered(self) -> bool:
        """Whether nothing is pending, and all that was sent was delivered here or will never be."""
        return self.sender.idle and self.upcalls.receipts.all_delivered

    def _all_is_said(self) -> bool:
        if self._settings.views:
            return self.all_is_delivered
        return self.all_is_delivered and self.driver.machine.drained and self.upcalls.receipts.all_settled

    def _has_left(self) -> bool:
        return self.driver.machine.left and self.driver.machine.deadline is None

    async def close(self, *, crashed: bool = False) -> None:
        """Stop at once, and end all that waits; `crashed`: how the trace ends."""
        if self._standing == "left":
            return
        self._standing = "left"
        self._logger.info("left")
        self._closers.close()
        self._end(_LEFT, _LEFT_UNKNOWN)
        if self._trace is not None:
            self._begin_log()
            trace, self._trace = self._trace, None
            last: Literal["end", "crash"] | None = "crash" if crashed else "end"
            await asyncio.get_running_loop().run_in_executor(
                None, lambda: trace.close(self.driver.clock(), last if self.failure is None else None)
            )

    def _fail(self, error: BaseException) -> None:
        """Stop after a broken invariant: nothing more can be promised, so nothing more is done."""
        if self.failure is None:
            self.failure = error
        self.driver.stop()
        self._logger.error("failed, and stopped: %r", error, exc_info=error)
        why = f"the group failed: {error!r}"
        self._end(why, why)
        self._admission.refuse(error)

    def _end(self, why: str, unknown: str) -> None:
        """Wake all who wait: nothing more is sent, delivered or known."""
        self.sender.close(why)
        self.upcalls.receipts.end(unknown)
        self.upcalls.inbox.close(self._failed if self.failure is not None else None)

    def _failed(self) -> GroupClosed:
        closed = GroupClosed(f"the group failed: {self.failure!r}")
        closed.__cause__ = self.failure
        return closed

    # About itself

    def status(self) -> Status:
        """Say how the group stands, as this member sees it."""
        upcalls, transport = self.upcalls, self.driver.transport
        lag, slowest = lags_of(self.driver.member, self._names)
        counts = {
            **self.driver.machine.counts,
            **self.anomalies.counts,
            **transport.counts,
            "broken-bursts": upcalls.broken_bursts,
            "set-aside": self.driver.set_aside,
        }
        return Status(
            group=self._settings.group,
            me=self._names[upcalls.me],
            standing=self._stands(),
            view=upcalls.view,
            members=upcalls.shown_members,
            lag=lag,
            slowest=slowest,
            sent=self.sender.messages,
            delivered=upcalls.messages,
            held=self.driver.machine.held,
            waiting_bytes=self.sender.pending_bytes,
            inbox_bytes=upcalls.inbox.bytes,
            burst_bytes=self.sender.burst_bytes,
            counts=counts,
            links=links_of(self.driver.machine, self._names, self.driver.clock()),
        )

    def _stands(self) -> Literal["joining", "active", "changing", "stalled", "leaving", "left", "failed"]:
        if self.failure is not None:
            return "failed"
        standing = standing_of(self.driver.machine)
        if self._standing == "open" or standing == "left":
            return standing
        return self._standing

    def set_keys(self, keys: list[bytes]) -> None:
        """Seal with the first key from now on, and accept all of them."""
        if not isinstance(self.session, SealedSession):
            raise UsageError("key: this group was joined without a key; leave, and join with one")
        self.session.set_keys(keys)
        if self.discovery is not None:
            self.discovery.set_keys(keys)

    def _tick(self) -> None:
        """Once a second, tell the metrics."""
        if self._settings.metrics is not None and self._standing != "left":
            self._settings.metrics(self.status())
            asyncio.get_running_loop().call_later(1.0, self._tick)


def _first_knowledge(identity: Identity) -> bytes | None:
    """Return the view of the group that was found, to know its members, and the last incarnations of their names."""
    view = None if identity.discovery is None else identity.discovery.view
    if view is None:
        return None
    incarnations = (incarnation_of(member) for member in view.members if name_of(member) == identity.me)
    return msgspec.msgpack.encode(Saved(max(incarnations, default=0), view, NO_BALLOT, None, None, remembers=False))
