"""One member at work: the machine and all around it, put together, and taken apart when the group is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, resolve, show
from antiphon.live.admission import Admission
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.arguments import check_loop
from antiphon.live.departure import Departure, Handover
from antiphon.live.driver import Driver
from antiphon.live.events import GroupClosed, Status
from antiphon.live.handshake import ADVICE, Difference
from antiphon.live.hello import Founding
from antiphon.live.host import Host, host_of
from antiphon.live.identity import Identity, follow, found, listed
from antiphon.live.naming import Names
from antiphon.live.publish import Publisher
from antiphon.live.recording import Origin, Recording, make
from antiphon.live.sender import Sender
from antiphon.live.session import PacketSession, SealedSession, check_keys, open_session
from antiphon.live.settings import Settings
from antiphon.live.status import as_driven, standing_of
from antiphon.live.storage import MemberFile, Memory, StateFolder, digest
from antiphon.live.tracing import FLUSH_S, LiveTrace, trace_of
from antiphon.live.transport import Endpoint, Transport
from antiphon.live.upcalls import Upcalls
from antiphon.protocol import machine as protocol
from antiphon.protocol.membership.process import Process
from antiphon.protocol.membership.views import GroupView, incarnation_of
from antiphon.protocol.view.member import Member
from antiphon.protocol.wire import VERSIONS, group_tag
from antiphon.trace.log import IncarnationLog, IncarnationLogs
from antiphon.trace.schema import KEYS_CHANGED

if TYPE_CHECKING:
    from antiphon.live.group import Group

_FAREWELL_S = 1.0  # at least; then the others find out by themselves
_LEFT = "the group was left; join again to send"
_LEFT_UNKNOWN = "the group was left before this was known"


class LiveMember:
    """A member's machine, driven over the network, with the two ends that the application holds: sender and inbox."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._host: Host = host_of(asyncio.get_running_loop())
        self._versions = dict(VERSIONS)  # of the wire, that this member speaks
        self._names = Names()
        self.anomalies = Anomalies(MemberLogger(settings.group, settings.address or settings.bind))
        self.driver = Driver(self._host.clock(), self.anomalies, failed=self._fail)
        self.upcalls = Upcalls(settings, self._names, self.driver.drive, self.anomalies, self._host.worker())
        self.sender = Sender(settings, self.driver, self.upcalls.receipts)
        self._admission = Admission()
        self._session: PacketSession | None = None  # once it is known who this member is
        self._closers = ExitStack()  # what is to be closed, in the opposite order
        self._closers.callback(self.upcalls.close)
        self._trace: LiveTrace | None = None
        self._departure = Departure()
        self.failure: BaseException | None = None

    # Coming

    async def start(self, group: Group) -> None:
        """Find the others, open the network, and wait for the first view."""
        settings = self._settings
        try:
            identity = self._identity = await self._identify()
            self._names.update(identity.names)
            self.anomalies.logger.is_called(self._names[identity.me])
            file = identity.folder.member(identity.founders, identity.me, self._names, identity.found)
            origin = self._origin(identity, file)
            origin.options.check(len(identity.names))
            self._session = open_session(settings.group, identity.me, self._settings.keys())
            self._admission.founders = frozenset(identity.names)
            self.upcalls.me = identity.me
            transport = await self._open_transport(identity, self._session)
            await self._run(group, identity, origin, file, transport)
            if self._departure.standing != "open":  # it was let in while it left
                await self.leave(hurry=False)
                raise GroupClosed(_LEFT)
        except BaseException:
            await self.close()
            raise

    async def _identify(self) -> Identity:
        """Find out one's own name, and those of the founders."""
        settings = self._settings
        folder = StateFolder(self._host, settings.state, settings.group, settings.bind)
        if settings.discover is None:
            identity = await listed(settings, folder, self.anomalies)
        else:
            identity = await found(settings, folder, self._host.socket, self.anomalies, self._admission.begin_search)
            assert identity.discovery is not None
            self._closers.callback(identity.discovery.close)
            self._names.update((number, contact.name) for number, contact in identity.found.items())
        self._closers.callback(identity.contacts.close)
        return identity

    def _origin(self, identity: Identity, file: MemberFile, before: Process | None = None) -> Origin:
        """Say what the machine is made from; `before`: the one in another group of the same name, if there was one."""
        settings = self._settings
        saved = identity.knowledge(file.read(), 0 if before is None else incarnation_of(before.id))
        return Origin(
            name=identity.me,
            names=tuple(identity.names),
            declared=identity.declared,
            options=settings.options(digest(settings.description(identity.founders).digest, *identity.founders)),
            seed=self._host.seed(),
            started_at=self.driver.clock(),
            saved=saved if settings.views else None,
            queued=() if before is None else tuple(before.lifecycle.queue),
            versions=self._versions,
        )

    async def _open_transport(self, identity: Identity, session: PacketSession) -> Transport:
        settings = self._settings
        endpoint = Endpoint(
            me=identity.me,
            addresses={**identity.addresses, identity.me: identity.own},
            session=session,
            description=settings.description(identity.founders),
            spoken=settings.spoken(self._versions),
            differs=self._differs,
            fixed=not settings.views,
            bind=await resolve(settings.bind, "bind"),
            multicast=None if settings.multicast is None else await resolve(settings.multicast, "multicast"),
            ttl=settings.ttl,
            offload=settings.offload,
            receive=self.driver.received,
            received_all=self.driver.settle,
            make_socket=self._host.socket,
            anomalies=self.anomalies,
        )
        transport = Transport(endpoint)
        self._closers.callback(transport.close)
        self.upcalls.left.append(transport.forget)
        is_known_elsewhere = settings.address is not None and endpoint.bind != endpoint.addresses[identity.me]
        if is_known_elsewhere and await transport.name_is_taken():
            raise UsageError(f"address: another member answers at {settings.address}; two members cannot have one name")
        return transport

    def _differs(self, name: int, why: Difference, how: str) -> None:
        """Note that a member is refused, or refuses this one, and why."""
        words = f"{how} (at {(other := self._names.get(name, str(name)))}); {ADVICE[why]}"
        if why == "replaced":
            self._fail(UsageError(f"views: {words}"))
        elif why == "restarted":
            self.anomalies.note("refused-restarted", words)
        else:
            kind = "refused-other-version" if why == "other-version" else "refused-other-settings"
            self.anomalies.note(kind, f"{other}: {how}")
            self._admission.differs(name, words)

    async def _run(
        self, group: Group, identity: Identity, origin: Origin, file: MemberFile, transport: Transport
    ) -> None:
        """Begin to drive the machine, and wait until it is in a view."""
        settings, begin = self._settings, self._journals(group, origin, identity.own)
        self.driver.logs = None if begin is None else IncarnationLogs(begin)
        machine = make(origin, traced=begin is not None)
        if settings.views:
            self.upcalls.joined = self._admission.admit
        else:
            self.upcalls.members = tuple(identity.names)
            self._admission.admit()
        if settings.recording:
            self.driver.recording = Recording(origin)
        self.driver.inbox = self.upcalls.inbox
        self._closers.callback(self.driver.stop)
        self._drive(machine, origin, file, transport)
        identity.contacts.go_on()
        if identity.discovery is None:
            identity.contacts.changed = partial(follow, identity, self.driver)
        else:
            identity.discovery.go_on(self)
            self.upcalls.left.append(identity.discovery.book.forget)
            transport.hello = identity.discovery.take
        self._tick()
        if settings.status_at is not None:
            self._closers.callback((await Publisher.start(settings.status_at, self.status)).close)
        await self._admission.wait()

    def _drive(self, machine: Member | Process, origin: Origin, file: MemberFile, transport: Transport) -> None:
        """Drive a machine, from its beginning."""
        self.driver.data_tag = group_tag(origin.options.group)
        self.driver.handlers = self.upcalls.handlers
        self.upcalls.handlers[protocol.Persist] = lambda effect: file.write(effect.state, may_wait=effect.may_wait)
        self.driver.machine = machine
        self._begin_log()
        self.driver.start(machine, transport)

    def _journals(self, group: Group, origin: Origin, own: Address) -> Callable[[int], IncarnationLog] | None:
        settings = self._settings
        if (journals := self._host.journals(group, origin, self._names, show(own))) is not None:
            return journals
        if settings.trace is None:
            return None
        self._trace = trace_of(settings, origin, self._names)
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

    # Where the others are

    def newest_view(self) -> GroupView | None:
        """Return the newest view for newcomers, once there is one."""
        view = self.driver.machine.view if isinstance(self.driver.machine, Process) else None
        return None if view is None or view.number == 0 else view

    def learn(self, number: int, name: str, address: Address) -> None:
        """Learn where a member is."""
        self._names[number] = name
        self.driver.transport.know(number, address)
        if number != self.upcalls.me:
            self.driver.drive(protocol.Meet((number,)))
        self.upcalls.named()

    def give_up(self, founding: Founding) -> None:
        """Give the group up and join another of the same name, which stands."""
        before, identity = self.driver.machine, self._identity.founded_by(founding)
        if self._departure.standing != "open" or not isinstance(before, Process) or before.left:
            return
        self.anomalies.logger.warning("this group is given up: another, founded by %s, stands", founding.founders)
        self.driver.drive(protocol.Disband())
        try:
            identity.folder.remember(self._settings.bind, Memory(name=self._names[identity.me], founding=founding))
            self._identity = identity
            self._names.update((number, name) for number, name in identity.names.items() if number not in self._names)
            file = identity.folder.member(identity.founders, identity.me, self._names, identity.found)
            origin = self._origin(identity, file, before)
            if self.driver.recording is not None:
                self.driver.recording = Recording(origin)
            if (journals := self._host.journals(None, origin, self._names, show(identity.own))) is not None:
                self.driver.logs = IncarnationLogs(journals)
            machine = make(origin, traced=self.driver.logs is not None)
            machine.counts.update(before.counts)  # which only grow, whatever becomes of a group
            if isinstance(machine, Process):
                machine.lifecycle.own.in_views.update(before.lifecycle.own.in_views)
            self._drive(machine, origin, file, self.driver.transport)
        except Exception as error:  # its state cannot be written, for instance
            self._fail(error)

    # Going

    async def leave(self, *, hurry: bool) -> None:
        """Send what is pending, wait for its delivery (unless in a hurry), tell the others, close.

        A joiner that waits for the application's state is given it first: nobody else may have it. Whoever else leaves
        meanwhile waits until that is done, and may hurry it.
        """
        check_loop(self.driver.loop)
        if not await self._departure.begin(hurry=hurry):
            return
        self.sender.refuse(_LEFT)
        try:
            if self.driver.is_set_up:
                given = Handover(self.driver, self.upcalls.states)
                await self._until(
                    lambda: self._departure.hurries or (self._all_is_said() and given.is_over()),
                    self._settings.leave_s,
                )
            if self.driver.is_set_up and (self._settings.views or not self._all_is_said()):
                self.upcalls.receipts.never_sent(self.driver.unsent, _LEFT)
                self.driver.drive(protocol.Leave())
                machine = self.driver.machine
                farewell_s = _FAREWELL_S
                if isinstance(machine, Process):
                    farewell_s = max(farewell_s, machine.detector.times.farewell_ns(machine.view.names) / 1e9)
                farewell_s = min(farewell_s, self._settings.leave_s)
                await self._until(lambda: machine.left and machine.deadline is None, farewell_s)
        finally:
            has_left = self.driver.is_set_up and self.driver.machine.left
            await self.close(unfinished=not self.all_is_delivered and not has_left)

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

    async def close(self, *, unfinished: bool = False) -> None:
        """Stop at once, and end all that waits; `unfinished`: something was not delivered here, as the trace says."""
        is_first = self._departure.end()
        self._closers.close()  # one that was left while it came may have opened something since
        if not is_first:
            return
        self.anomalies.logger.info("left")
        self._end(_LEFT, _LEFT_UNKNOWN)
        self._admission.refuse(GroupClosed(_LEFT))
        if self._trace is not None:
            self._begin_log()
            trace, self._trace = self._trace, None
            await asyncio.get_running_loop().run_in_executor(
                None,
                lambda: trace.close(self.driver.clock(), is_whole=self.failure is None, unfinished=unfinished),
            )

    def _fail(self, error: BaseException) -> None:
        """Stop after a broken invariant: nothing more can be promised, so nothing more is done."""
        if self.failure is None:
            self.failure = error
        self.driver.stop()
        where = None if isinstance(error, UsageError) else error  # what the outside has done is said by its words
        self.anomalies.logger.error("failed, and stopped: %r", error, exc_info=where)
        why = f"the group failed: {error!r}"
        self._end(why, why)
        self._admission.refuse(error)

    def _end(self, why: str, unknown: str) -> None:
        """Wake all who wait: nothing more is sent, delivered or known."""
        self.sender.close(why)
        self.upcalls.receipts.never_sent(self.driver.unsent, why)
        self.upcalls.receipts.end(unknown)
        self.upcalls.inbox.close(partial(GroupClosed.by, self.failure) if self.failure is not None else None)

    # About itself

    def status(self) -> Status:
        """Say how the group stands, as this member sees it."""
        name = self._settings.name or self._settings.address or self._settings.bind
        about = Status(
            group=self._settings.group,
            me=self._names[self.upcalls.me] if self.driver.is_set_up else name,
            standing=self._stands(),
            view=self.upcalls.view,
            members=self.upcalls.shown_members,
            sent=self.sender.messages,
            delivered=self.upcalls.messages,
            waiting_bytes=self.sender.pending_bytes,
            inbox_bytes=self.upcalls.inbox.bytes,
            burst_bytes=self.sender.burst_bytes,
            may_be_several=self._settings.discover is not None and self._settings.members in (None, 1),
            counts=dict(self.anomalies.counts),
        )
        if self.driver.is_set_up:
            return as_driven(about, self.driver, self._names)
        return replace(about, links=tuple((address, name) for address in self._admission.unheard()))

    def _stands(self) -> Literal["joining", "active", "changing", "stalled", "leaving", "left", "failed"]:
        if self.failure is not None:
            return "failed"
        standing = standing_of(self.driver.machine) if self.driver.is_set_up else "joining"
        if self._departure.standing == "open" or standing == "left":
            return standing
        return self._departure.standing

    def set_keys(self, keys: list[bytes]) -> None:
        """Seal with the first key from now on, and accept all of them."""
        if self._settings.key is None:
            raise UsageError("key: this group was joined without a key; leave, and join with one")
        self._settings = replace(self._settings, key=check_keys(keys))
        if isinstance(self._session, SealedSession):
            self._session.set_keys(keys)
        if self._admission.search is not None:
            self._admission.search.seal.set_keys(keys)
        if self.driver.logs is not None:
            self.driver.logs.note(self.driver.clock(), KEYS_CHANGED)

    def _tick(self) -> None:
        """Once a second, tell the metrics."""
        if self._settings.metrics is not None and self._departure.standing != "left":
            try:
                self._settings.metrics(self.status())
            except Exception as error:  # the application's, which the group does not die of
                self.anomalies.note("metrics-failed", repr(error))
            asyncio.get_running_loop().call_later(1.0, self._tick)
