"""What the stability protocols with vectors have in common: what is held, what is due, and what may ride on data.

Facts are monotone within a view: who holds a prefix of a stream holds it for ever, and what was stable stays so.
Hence vectors of one member merge by maximum, vectors of different members by minimum, and a repeated or late one does
no harm. Every round has a number; a vector of another round than the present one is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Self, TypeAlias

import msgspec
import numpy as np

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND, SECOND, Duration, Instant, earliest
from antiphon.protocol.parts import NOTHING, Down, Frontier, Out, PartContext, Step, Up
from antiphon.protocol.rules import rule
from antiphon.protocol.stability.trigger import BufferTrigger
from antiphon.protocol.stability.vectors import (
    Numbers,
    changed,
    pack_change,
    pack_whole,
    unpack_change,
    unpack_whole,
)
from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, FRAME_OVERHEAD_BYTES, Malformed, Pdu, Streamed

Pause: TypeAlias = Annotated[Duration, msgspec.Meta(ge=1)]
Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

# A PDU for one member that rides in a datagram for all costs bytes on every link, and saves one frame on one of them.
RIDER_BYTES_MAX: Final = 48

# Each member's number takes 4 bytes, and a vector must fit into a datagram with its frame.
MEMBERS_MAX: Final = (DATAGRAM_BYTES_MAX - FRAME_OVERHEAD_BYTES - 64) // 4


class VectorOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How often to speak, and in which form."""

    interval_ns: Pause = 10 * MILLISECOND  # the least pause between rounds or reports
    interval_ns_max: Pause = SECOND  # what brings nothing new is repeated at doubling pauses, up to this one
    piggyback: bool = False  # let control PDUs ride in datagrams that go to all anyway
    idle_ns: Pause = 10 * MILLISECOND  # how long one waits for a ride, where rides are frequent, before it goes alone
    delta: bool = False  # send what changed since a base that both sides know, and whole vectors after a loss
    positions: bool = False  # where the order is total: positions in it, 4 bytes, instead of vectors

    def check(self, size: int) -> None:
        """Raise a `UsageError` that names the key, unless a group of `size` members can work with this."""
        if size > MEMBERS_MAX and not self.positions:
            raise UsageError(
                f"members: a vector of {size} numbers does not fit into a datagram, {MEMBERS_MAX} do; "
                f"choose stability timestamp-ack, or positions with a total order"
            )
        if self.interval_ns_max < self.interval_ns:
            raise UsageError(
                f"stability: interval_ns_max: {self.interval_ns_max} is below interval_ns, which is {self.interval_ns}"
            )

    def fit(self, size: int) -> Self:
        """Give the options for a view of `size` members: what was shaped for another size gives way to the usual."""
        return self


class RoundOptions(VectorOptions, frozen=True, kw_only=True):
    """Who starts a round, when, and when it is repeated."""

    coordinator: Rank = 0
    trigger: bool = False  # let a full window start rounds, and what is left over after an interval
    timeout_ns: Pause = 50 * MILLISECOND  # before a lost message is asked for; doubled with every vain try
    timeout_ns_max: Pause = 250 * MILLISECOND

    def check(self, size: int) -> None:
        """Raise a `UsageError` unless the coordinator exists and the pauses make sense."""
        super().check(size)
        if self.coordinator >= size:
            raise UsageError(
                f"stability: coordinator: there is no member of rank {self.coordinator}; ranks are 0 to {size - 1}"
            )
        if self.timeout_ns_max < self.timeout_ns:
            raise UsageError(
                f"stability: timeout_ns_max: {self.timeout_ns_max} is below timeout_ns, which is {self.timeout_ns}"
            )

    def fit(self, size: int) -> Self:
        """Let the first member coordinate where the chosen rank does not exist."""
        return self if self.coordinator < size else msgspec.structs.replace(self, coordinator=0)


class VectorPart:
    """A stability part that knows what it holds, what all hold, and which of its PDUs wait for a ride."""

    PDUS: ClassVar[tuple[type[Pdu], ...]]

    def __init__(self, context: PartContext, options: VectorOptions) -> None:
        self.rank, self.size = context.rank, context.size
        self.width = context.streams or context.size  # numbers in a vector
        self.held: Numbers = np.zeros(self.width, np.int64)
        self.frontier: Numbers = np.zeros(self.width, np.int64)
        self.unstable = 0  # how much is held here and not known to be held by all
        self._vector_options = options
        self._riders: dict[tuple[type[Pdu], tuple[int, ...] | None], Pdu] = {}
        self._ride_until: Instant | None = None  # when the riders travel alone
        self._left_at: Instant | None = None  # when a datagram to all left last
        self.up: list[Up] = []
        self.down: list[Down] = []

    # The interface of a stability part

    @property
    def deadline(self) -> Instant | None:
        """When something is due."""
        return earliest(self._ride_until, *self.timers())

    def stamp(self, now: Instant) -> int:
        """Vectors need no stamp."""
        return 0

    def advanced(self, source: int, pdu: Streamed, received: Sequence[int], now: Instant) -> Step:
        """Take note of what this member holds now."""
        number = received[source]
        self.unstable += number - self.held.item(source)
        self.held[source] = number
        self.more(source, now)
        return self.step() if self.up or self.down else NOTHING

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take another member's PDU; nonsense raises `Malformed` and changes nothing."""
        if source == self.rank or not isinstance(pdu, self.PDUS):
            raise Malformed("unexpected")
        self.take(source, pdu, now)
        return self.step()

    def wake(self, now: Instant) -> Step:
        """Do what is due."""
        self.due(now)
        if self._ride_until is not None and self._ride_until <= now:
            for (_, to), pdu in self._riders.items():
                self.down.append(Out(pdu, to))
            self._forget_riders()
        return self.step()

    def ride(self, now: Instant) -> list[Pdu]:
        """Give what may ride in a datagram that goes to all now."""
        self._left_at = now
        riders = list(self._riders.values())
        self._forget_riders()
        return riders

    def lag(self) -> dict[int, int | None]:
        """Say, as far as this member knows, who lacks how much of what it holds; None: not heard from."""
        return {}

    # What a protocol adds

    def timers(self) -> tuple[Instant | None, ...]:
        """List when the protocol itself has something to do."""
        raise NotImplementedError

    def more(self, source: int, now: Instant) -> None:
        """Hear that more of a stream is held here."""
        raise NotImplementedError

    def take(self, source: int, pdu: Pdu, now: Instant) -> None:
        """Take one of the protocol's PDUs."""
        raise NotImplementedError

    def due(self, now: Instant) -> None:
        """Do what the timers say."""
        raise NotImplementedError

    # What a protocol uses

    def say(self, pdu: Pdu, to: int | None, now: Instant, *, bytes_more: int = 0) -> None:
        """Send a PDU to one member or to all (None), with the next datagram for all if it may ride."""
        targets, wait_ns = None if to is None else (to,), self.ride_wait_ns(now)
        if wait_ns and (to is None or bytes_more <= RIDER_BYTES_MAX):
            self._riders[type(pdu), targets] = pdu
            if self._ride_until is None:
                self._ride_until = now + wait_ns
        else:
            self.say_now(pdu, targets)

    def ride_wait_ns(self, now: Instant) -> Duration:
        """Say how long to wait for a ride: not at all, unless one left within the last interval."""
        options = self._vector_options
        frequent = self._left_at is not None and now - self._left_at <= options.interval_ns
        return options.idle_ns if options.piggyback and frequent else 0

    def say_now(self, pdu: Pdu, to: tuple[int, ...] | None) -> None:
        """Send a PDU without waiting for a ride."""
        if to is None or to:
            self.down.append(Out(pdu, to))

    def check_frontier(self, numbers: Numbers) -> None:
        """Refuse a frontier that this member disproves: what all hold is held here too."""
        if (numbers > self.held).any():
            raise Malformed("impossible-frontier")

    def raise_frontier(self, numbers: Numbers) -> bool:
        """Take note of what all hold, and say whether that was news."""
        risen = np.maximum(self.frontier, numbers)
        gained = int(np.add.reduce(risen) - np.add.reduce(self.frontier))  # what `sum` calls, in the end
        if not gained:
            return False
        self.frontier = risen
        self.unstable -= gained
        self.up.append(Frontier(tuple(risen.tolist())))
        return True

    def pack(self, numbers: Numbers, base: Numbers | None) -> tuple[bool, bytes]:
        """Encode a vector: as a change of the base if there is one and that is shorter, else whole."""
        if base is not None:
            change = pack_change(numbers - base)
            if len(change) < 4 * self.width:
                return True, change
        return False, self.pack_whole(numbers)

    def pack_whole(self, numbers: Numbers) -> bytes:
        """Encode a whole vector; with `delta`, as a change of nothing where that is shorter."""
        change = pack_change(numbers) if self._vector_options.delta else None
        return pack_whole(numbers) if change is None or len(change) >= 4 * self.width else change

    def unpack(self, packed: bytes, base: Numbers | None) -> Numbers:
        """Decode a vector, whole or as a change of the base."""
        if base is not None:
            return changed(base, unpack_change(packed, self.width))
        if len(packed) == 4 * self.width:
            return unpack_whole(packed, self.width)
        return unpack_change(packed, self.width)

    @property
    def load(self) -> RoundLoad:
        """What waits for a round."""
        own = self.rank if self.width == self.size else 0
        return RoundLoad(int(self.held[own]), int(self.frontier[own]), self.unstable)

    def lacking(self, numbers: Numbers) -> int:
        """Count what is held here and not in another's vector."""
        return int(np.maximum(self.held - numbers, 0).sum())

    def _forget_riders(self) -> None:
        self._riders.clear()
        self._ride_until = None

    def step(self) -> Step:
        """Give what follows from a call."""
        step = Step(self.up, self.down)
        self.up, self.down = [], []
        return step


class RoundLoad(msgspec.Struct, frozen=True):
    """What waits for a round: own messages sent and stable, and what is unstable of everyone's."""

    sent: int
    stable: int
    unstable: int


class Starter:
    """Decides when the next round starts.

    Usually an interval after the last, later while rounds bring nothing; with `trigger`, when the coordinator's own
    unstable messages fill as much of its window as a round can afford.
    """

    def __init__(self, options: RoundOptions, window: int) -> None:
        self._options = options
        self.at: Instant | None = None
        self.trigger = BufferTrigger(window, options.interval_ns) if options.trigger else None
        self._begun: Instant = 0
        self._pause_ns = options.interval_ns

    def more(self, load: RoundLoad, now: Instant, *, running: bool) -> None:
        """Hear that more is unstable; a round that is running is followed by another anyway."""
        self._pause_ns = self._options.interval_ns
        if running:
            return
        if self.trigger is not None:
            self.at = now if self._triggered(load, now) else self.trigger.deadline
        elif self.at is None:
            self.at = now + self._pause_ns
        else:
            self.at = min(self.at, now + self._pause_ns)

    def over(self, load: RoundLoad, now: Instant) -> bool:
        """Say whether it is time to start, and if so take the round for started."""
        if self.at is None or self.at > now:
            return False
        if self.trigger is not None and not self._triggered(load, now):
            self.at = self.trigger.deadline
            return False
        self.at = None
        self._begun = now
        return True

    @rule("Section 6; docs/protocols/coordinator.md, Rule")
    def end(self, load: RoundLoad, now: Instant, news: bool) -> None:
        """End a round; plan another one while something is unstable."""
        if self.trigger is not None:
            self.trigger.end(load.stable, now)
        if news:
            self._pause_ns = self._options.interval_ns
        if load.unstable:
            self.at = max(now, self._begun + self._pause_ns)
        self._pause_ns = min(2 * self._pause_ns, self._options.interval_ns_max)

    def _triggered(self, load: RoundLoad, now: Instant) -> bool:
        assert self.trigger is not None
        return self.trigger.running or self.trigger.start(load.sent, load.stable, now, others=load.unstable > 0)
