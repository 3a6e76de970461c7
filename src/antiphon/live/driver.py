"""Drives one protocol machine on an asyncio loop: what the simulator does in simulated time, in real time.

All it knows of the protocol is `deadline` and `handle`. It reads a clock, keeps one timer that follows the deadline,
hands over what the transport received, and gathers what one turn of the loop sends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from antiphon.errors import LocalProtocolError
from antiphon.live.arguments import AtHome
from antiphon.protocol.machine import Duration, Instant, Intake, ReceiveMany, Send, Submit, TraceRow, Wake
from antiphon.protocol.membership.process import Process, ProcessInput
from antiphon.protocol.membership.views import incarnation_of
from antiphon.protocol.view.member import Member
from antiphon.protocol.wire import group_of
from antiphon.trace.log import IncarnationLogs
from antiphon.trace.schema import INBOX_FULL, INBOX_READ

if TYPE_CHECKING:
    from antiphon.live.anomalies import Anomalies
    from antiphon.live.inbox import Inbox
    from antiphon.live.recording import Recording
    from antiphon.live.transport import Transport

_WAKE = Wake()


class Clock:
    """Nanoseconds since 1970 that never go back: the wall clock at the start, then the monotonic one."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> Instant:
        """Read the clock."""
        return time.monotonic_ns() + self._offset_ns


class Driver:
    """One machine, its timer and its transport."""

    machine: Member | Process
    transport: Transport
    inbox: Inbox  # while it is full, no data is taken in
    data_tag: int  # of the datagrams that carry data

    def __init__(
        self, clock: Callable[[], Instant], anomalies: Anomalies, *, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` hears of a broken invariant."""
        self.clock, self._anomalies, self._failed = clock, anomalies, failed
        self.home = AtHome()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Instant = 0
        self.handlers: Mapping[type, Callable[[Any], None]] = {}  # take the effects that are not sent, by their type
        self.turned: Callable[[], None] | None = None  # called once, after the effects of the next input
        self.recording: Recording | None = None  # of every input, if it is asked for
        self.logs: IncarnationLogs | None = None  # where the trace of the machine goes, if it is traced
        self.running = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that this runs on, the only one in which the member may be used."""
        return self.home.loop

    def start(self, machine: Member | Process, transport: Transport) -> None:
        """Begin to drive."""
        self.machine, self.transport = machine, transport
        self.running = True
        transport.start(self.home.loop)
        self.drive(_WAKE)

    def stop(self) -> None:
        """Stop for good; what was sent in this turn still goes out."""
        if self.running:
            self.running = False
            self.transport.flush()
            self.transport.close()
        if self._timer is not None:
            self._timer.cancel()

    def received(self, datagrams: list[bytes]) -> None:
        """Take what the transport completed; it may listen before there is anything to drive."""
        if not self.running:
            return
        if self.inbox.bytes <= self.inbox.calm_bytes:
            self._handle(ReceiveMany(datagrams))
            return
        for datagram in datagrams:
            if self.inbox.is_full and group_of(datagram) == self.data_tag:
                # dropped like a lost datagram: its sender's window fills, and it is sent again later
                self._anomalies.note("set-aside", "the inbox is full: the application does not take its events")
            else:
                self._handle(ReceiveMany([datagram]))

    def drive(self, event: ProcessInput) -> None:
        """Give the machine an input, carry out its effects, send what follows, and set the timer."""
        self._handle(event)
        self.settle()

    def settle(self) -> None:
        """Send what follows from the inputs so far, and set the timer."""
        if self.running:
            if self.transport.outbox:
                self.transport.flush()
            deadline = self.machine.deadline
            if deadline is not None and (self._timer is None or deadline < self._timer_at):
                self._set_timer(deadline, self.clock())

    def _handle(self, event: ProcessInput) -> None:
        """Give the machine an input and carry out its effects."""
        if not self.running:
            return
        machine, transport, now = self.machine, self.transport, self.clock()
        if self.recording is not None:
            self.recording.note(now, event)
        try:
            for effect in machine.handle(event, now):  # type: ignore[arg-type]  # snapshots only where captured
                if type(effect) is Send:
                    transport.queue(effect.to, effect.datagram)
                elif type(effect) is TraceRow:
                    assert self.logs is not None, "only a machine that is traced says what belongs in the trace"
                    self.logs.write(now, effect)
                else:
                    self.handlers[type(effect)](effect)
            if self.turned is not None:
                self.turned()
        except Exception as error:
            if isinstance(event, Submit) and isinstance(error, LocalProtocolError):
                raise  # the caller asked for something impossible, and nothing was changed
            self._failed(error)

    def _set_timer(self, deadline: Instant, now: Instant) -> None:
        """Set the timer to the deadline or before it; an early one looks again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.home.loop.call_later(max(0, deadline - now) / 1e9, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now, deadline = self.clock(), self.machine.deadline
        self._tell_of_a_full_inbox()
        if deadline is not None and deadline <= now:
            self.drive(_WAKE)
        elif deadline is not None and self.running:
            self._set_timer(deadline, now)

    def _tell_of_a_full_inbox(self) -> None:
        """Tell the machine when the inbox is full, and when half of it is free again."""
        if isinstance(self.machine, Process):
            told = self.machine.lifecycle.own.full
            full = self.inbox.is_full or (told and self.inbox.is_half_full)
            if full is not told:
                self.drive(Intake(full))
                if self.logs is not None:
                    self.logs.note(self.clock(), INBOX_FULL if full else INBOX_READ)

    @property
    def is_set_up(self) -> bool:
        """Whether there is a machine and a transport."""
        return hasattr(self, "transport")

    @property
    def unsent(self) -> int:
        """How many bursts wait to be sent, of those that were submitted last."""
        if not self.is_set_up:
            return 0
        queued = len(self.machine.lifecycle.queue) if isinstance(self.machine, Process) else 0
        return queued + (0 if self.member is None else len(self.member.submissions.waiting))

    @property
    def retransmissions(self) -> int:
        """How often a copy was needed so far."""
        counted = self.machine.lifecycle.own.in_views if isinstance(self.machine, Process) else self.machine.counts
        return counted["retransmissions"]

    @property
    def lifetime_ns(self) -> Duration | None:
        """How long what is sent now is worth waiting for; None: until everyone has it."""
        machine = self.machine
        if not isinstance(machine, Process):
            return None
        return machine.lifecycle.slow.lifetime_ns(machine.view, machine.detector.times)

    @property
    def incarnation(self) -> int:
        """The incarnation of this member; it has only one where membership is fixed."""
        return incarnation_of(self.machine.id) if isinstance(self.machine, Process) else 1

    @property
    def member(self) -> Member | None:
        """The member of the present view, if there is one."""
        return self.machine.member if isinstance(self.machine, Process) else self.machine
