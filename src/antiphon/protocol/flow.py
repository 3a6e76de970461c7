"""Flow control: a window over what is not yet stable, and the buffer credit that members advertise.

The sender of a message must be sure that every member has a free slot for it. Each datagram's header says how many
slots its sender has left. All n members may send at once, so each may use an n-th of the smallest number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from antiphon.errors import LocalProtocolError
from antiphon.protocol.machine import Duration, Instant, Submit
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.pace import Pace
from antiphon.protocol.timers import Backoff


class FlowControl:
    """Decides whether one more message may be sent."""

    def __init__(self, size: int, window: int, buffer: int) -> None:
        self.window, self.places = window, buffer
        self._size = size
        # per member, what it said last that it has left; a full buffer is assumed at first: with 0 nothing would start
        self.free = [buffer] * size

    def credit(self) -> int:
        """Count the messages that may be outstanding now."""
        return min(self.window, min(self.free) // self._size)

    def poor(self) -> tuple[int, ...]:
        """List the members that are not known to have a free slot for one message of each member."""
        return tuple(rank for rank, free in enumerate(self.free) if free < self._size)

    def open(self, outstanding: int) -> bool:
        """Say whether a message may be sent with so many of one's own not yet stable."""
        return outstanding < self.window and outstanding < self.credit()


class Submissions:
    """The application's messages that wait until they may be sent, in order."""

    def __init__(
        self, flow: FlowControl, config: GroupOptions, jittered: Callable[[Duration], Duration], pace: Pace
    ) -> None:
        self.flow, self.pace, self._config = flow, pace, config
        self.waiting: deque[Submit] = deque()
        self.sent = 0  # how many were sent
        recovery = config.recovery
        longest = recovery.heartbeat_ns_max if recovery.adaptive else recovery.heartbeat_ns
        # runs while credit is lacking: when to ask for it
        self.starved = Backoff(jittered, recovery.heartbeat_ns, longest, first_ns=recovery.heartbeat_ns)

    @property
    def room(self) -> int:
        """How many more may wait."""
        return self._config.queue - len(self.waiting)

    @property
    def gather(self) -> bool:
        """Whether one submission waits already: a live group then gathers further ones into a burst."""
        return self.pace.next_at is not None and bool(self.waiting)

    @property
    def bytes(self) -> int:
        """How many bytes wait."""
        return sum(len(message.payload) for message in self.waiting)

    def add(self, message: Submit) -> None:
        """Let a message wait for its turn."""
        size, limit = len(message.payload), self._config.payload_bytes_max
        if size > limit:
            raise LocalProtocolError(f"a payload of {size} bytes is over the limit of {limit}")
        if self.room < 1:
            raise LocalProtocolError(f"{self._config.queue} submissions wait for the window already; wait for room")
        self.waiting.append(message)

    def next(self) -> Submit:
        """Take the first one, to be sent now."""
        self.sent += 1
        return self.waiting.popleft()

    def take_back(self) -> deque[Submit]:
        """Give back all that were not sent."""
        waiting, self.waiting = self.waiting, deque()
        return waiting

    # Credit

    def ask_if(self, starved: bool, now: Instant) -> None:
        """Ask for credit after a while if nothing else will bring it."""
        if not starved:
            self.starved.stop()
        elif self.starved.at is None:
            self.starved.start(now)

    def to_ask(self, now: Instant) -> tuple[int, ...]:
        """Give those to be asked for credit, if it is time."""
        return self.flow.poor() if self.starved.over(now) else ()
