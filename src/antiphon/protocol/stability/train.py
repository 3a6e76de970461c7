"""Train: one vector goes around a ring twice, first to be lowered to the minimum, then to be read.

Two small loads a round for everyone, and 2n message times. A train that is lost would stop the protocol, and on a long
ring hardly any would come through, so each hop looks after itself: who has passed a train on keeps it and, unless later
traffic shows that it went on, asks the next member how far it is (PROBE); the answer (SEEN) ends the matter or
brings the train again. Without loss, and with a ring faster than `timeout_ns`, there is none of this.

A round starts when the last one has come back for the second time. So everyone has read the last frontier, and with
`delta` the train carries changes of it and never needs to go whole.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import msgspec
import numpy as np

from antiphon.errors import UsageError
from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule
from antiphon.protocol.stability.rounds import RoundOptions, Starter, VectorPart
from antiphon.protocol.stability.vectors import Numbers
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Counter, Malformed, Number, Pdu, Vector


class Carriage(Pdu):
    """A train of the round; `change`: over the frontier of the round before."""

    round: Number
    change: bool
    numbers: Vector


class TrainAck(Carriage, tag=68):
    """What those whom it has visited hold."""

    kind: ClassVar[str] = "train-ack"


class TrainInfo(Carriage, tag=69):
    """What all hold."""

    kind: ClassVar[str] = "train-info"


class Probe(Pdu, tag=70):
    """How far are you?"""

    kind: ClassVar[str] = "train-probe"


class Seen(Pdu, tag=71):
    """The last train here was that of the round, for the first or the second time."""

    kind: ClassVar[str] = "train-seen"
    round: Counter
    lap: Literal[1, 2]


class TrainOptions(RoundOptions, frozen=True, kw_only=True):
    """The order of the ring."""

    ring: list[int] | None = None  # every rank once, where the train shall go around in another order than theirs

    def check(self, size: int) -> None:
        """Raise a `UsageError` unless the ring visits every member once."""
        super().check(size)
        if self.ring is None:
            return
        seen: set[int] = set()
        for rank in self.ring:
            if not 0 <= rank < size:
                raise UsageError(f"stability: ring: there is no member of rank {rank}; ranks are 0 to {size - 1}")
            if rank in seen:
                raise UsageError(f"stability: ring: member {rank} is in it twice")
            seen.add(rank)
        if len(seen) < size:
            missing = min(set(range(size)) - seen)
            raise UsageError(f"stability: ring: member {missing} is not in it; it must visit all {size}")

    def fit(self, size: int) -> Self:
        """Take the order of ranks where the given ring is not of this size."""
        fitted = super().fit(size)
        if fitted.ring is None or len(fitted.ring) == size:
            return fitted
        return msgspec.structs.replace(fitted, ring=None)


class Train(VectorPart):
    """Stability by a train on a ring; the coordinator is the first to see each lap off."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (TrainAck, TrainInfo, Probe, Seen)
    Options: ClassVar[type[msgspec.Struct]] = TrainOptions

    starter_type: ClassVar[type[Starter]] = Starter

    def __init__(self, context: PartContext, options: TrainOptions) -> None:
        super().__init__(context, options)
        self._options = options
        ring = options.ring or list(range(context.size))
        at = ring.index(context.rank)
        self.before, self._after = ring[at - 1], ring[(at + 1) % context.size]
        self.round = 0  # the last train that came by here
        self.lap: Literal[1, 2] = 2  # and in which lap
        self.running = False  # at the coordinator: a train is under way
        self._passed: Carriage | None = None  # the last train that was passed on, until it is known to have arrived
        self._unconfirmed = Backoff(context.jittered, options.timeout_ns, options.timeout_ns_max)
        self.starter = self.starter_type(options, context.window)
        self._news = False  # whether this round has moved the frontier

    @property
    def message_times(self) -> int:
        """How many message times a round takes: two laps."""
        return 2 * self.size

    @property
    def coordinates(self) -> bool:
        """Whether this member starts the rounds."""
        return self.rank == self._options.coordinator

    def timers(self) -> tuple[Instant | None, ...]:
        """When to start, and to ask the next member whether the train arrived."""
        return self.starter.at, self._unconfirmed.at

    def lag(self) -> dict[int, int | None]:
        """Say whether the next member has not confirmed the train; who lacks what, a train does not tell."""
        return {self._after: None} if self._unconfirmed.at is not None and self.unstable else {}

    def more(self, source: int, now: Instant) -> None:
        """Let a round start some time."""
        if self.coordinates:
            self.starter.more(self.load, now, running=self.running)

    def due(self, now: Instant) -> None:
        """See a train off, or ask after the last one."""
        if self.starter.over(self.load, now):
            self.running = True
            self._pass_on(TrainAck, self.round + 1, self.held, now)
            if self.size == 1:
                self._turn(self.held, now)
                self._end(now)
        if self._unconfirmed.over(now):
            self.ask_next()

    def take(self, source: int, pdu: Pdu, now: Instant) -> None:
        """Take a train or a word about one."""
        match pdu:
            case Carriage():
                self.take_train(source, pdu, now)
            case Probe():
                self.say_now(Seen(self.round, self.lap), (source,))
            case Seen():
                self._seen(source, pdu)
            case _:
                raise Malformed("unexpected")

    # The train

    @rule("Section 3.3, Train")
    def take_train(self, source: int, train: Carriage, now: Instant) -> None:
        """Pass a train on: lowered to what is held here in its first lap, as it is in its second."""
        if source != self.before:
            return  # overheard
        lap: Literal[1, 2] = 1 if isinstance(train, TrainAck) else 2
        if (train.round, lap) <= (self.round, self.lap):
            return  # late, or doubled
        # a lap starts when the one before has passed everyone, so a train is never more than one lap ahead
        if (train.round, lap) != ((self.round, 2) if self.lap == 1 else (self.round + 1, 1)):
            raise Malformed("impossible-round")
        if self.coordinates and not self.running:
            raise Malformed("impossible-round")
        if self.coordinates and lap == 2:
            self._confirmed()
            self._end(now)
            return
        numbers = self.unpack(train.numbers, self.frontier if train.change else None)
        if lap == 1:
            minimum = self.lowered(numbers)
            self._confirmed()
            self.round, self.lap = train.round, 1
            if self.coordinates:
                self._turn(minimum, now)
            else:
                self._pass_on(TrainAck, train.round, minimum, now)
        else:
            self.check_frontier(numbers)
            self._confirmed()
            self.lap = 2
            self._pass_on(TrainInfo, train.round, numbers, now)
            self.raise_frontier(numbers)

    @rule("Section 3.3, Train: ACK")
    def lowered(self, numbers: Numbers) -> Numbers:
        """Give what all that the train has visited hold, this member included."""
        return np.minimum(numbers, self.held)

    def _turn(self, minimum: Numbers, now: Instant) -> None:
        """Send the train that has come back to the coordinator into its second lap."""
        self._pass_on(TrainInfo, self.round, minimum, now)
        self._news = self.raise_frontier(minimum)

    def _end(self, now: Instant) -> None:
        self.lap = 2
        self.running = False
        self.starter.end(self.load, now, self._news)

    def _pass_on(self, kind: type[Carriage], number: int, numbers: Numbers, now: Instant) -> None:
        if self.size == 1:
            return
        change, packed = self.pack(numbers, self.frontier if self._options.delta else None)
        self._passed = kind(number, change, packed)
        self._unconfirmed.start(now)
        self.say(self._passed, self._after, now, bytes_more=len(packed))

    # Each hop looks after itself

    @rule("docs/protocols/train.md, What the paper got wrong or left open")
    def ask_next(self) -> None:
        """Ask the next member how far it is, unless later traffic has shown that the train went on."""
        self.say_now(Probe(), (self._after,))

    def _seen(self, source: int, seen: Seen) -> None:
        passed = self._passed
        if source != self._after:
            raise Malformed("unexpected")
        if passed is None:
            return
        if (seen.round, seen.lap) < (passed.round, 1 if isinstance(passed, TrainAck) else 2):
            self.say_now(passed, (self._after,))
        else:
            self._confirmed()

    def _confirmed(self) -> None:
        self._passed = None
        self._unconfirmed.stop()
