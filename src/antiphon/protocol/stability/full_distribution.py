"""Full distribution (FullDist): in each round everyone multicasts what it holds, and everyone takes the minimum.

Two message times a round, n multicasts. The coordinator's row starts a round; whoever has it multicasts its own. Rows
of others may come before that, and count. A member keeps one vector for the round, the minimum of the rows that are
in, and not the paper's n x n matrix: rows of one round are all that a round needs.

The coordinator asks for rows that do not come, so that each round ends at one member at least; then it multicasts the
frontier, since what is stable for one is stable for all. A member whose rounds do not end asks for it.

With `delta` a row lists only what its sender does not know to be stable, by the last byte. What it leaves out counts
as the receiver's own frontier at the beginning of the round: that comes from earlier rounds, so every sender of a row
held as much. Thus a row needs no other base and is never taken for too much. A receiver that is behind may take it for
too little: it asks the coordinator, which is never behind, and gets the whole frontier.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule
from antiphon.protocol.stability.rounds import RoundOptions, Starter, VectorPart
from antiphon.protocol.stability.vectors import Numbers, pack_some, unpack_some
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Malformed, Number, Pdu, Vector


class Row(Pdu, tag=64):
    """What its sender holds, for the round; `part`: only what it does not know to be stable."""

    kind: ClassVar[str] = "full-distribution-row"
    round: Number
    part: bool
    held: Vector


class Poke(Pdu, tag=65):
    """Your row for the round has not come."""

    kind: ClassVar[str] = "full-distribution-poke"
    round: Number


class Found(Pdu, tag=66):
    """What all hold, for one who asked, or for all after a round that lost rows."""

    kind: ClassVar[str] = "full-distribution-found"
    stable: Vector


class AskFound(Pdu, tag=67):
    """My rounds do not end: what do you know to be stable?"""

    kind: ClassVar[str] = "full-distribution-ask"


class FullDistribution(VectorPart):
    """FullDist: a row from everyone to everyone."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (Row, Poke, Found, AskFound)
    Options: ClassVar[type[msgspec.Struct]] = RoundOptions

    starter_type: ClassVar[type[Starter]] = Starter

    def __init__(self, context: PartContext, options: RoundOptions) -> None:
        super().__init__(context, options)
        self._options = options
        self.round = 0
        self.running = False  # rows of the round are still awaited
        self._spoken = False  # the own row of the round was sent
        self._disturbed = False  # at the coordinator: rows had to be asked for
        self.awaited: set[int] = set()
        self._least: Numbers = self.held
        self.floor: Numbers = self.frontier  # at the beginning of the round: whatever rows of it say, it is more
        self._lag: dict[int, int] = {}
        self.starter = self.starter_type(options, context.window)
        self._missing = Backoff(
            context.jittered, options.timeout_ns, options.timeout_ns_max
        )  # rows, at the coordinator
        self._waited_for: Numbers = self.held.copy()  # what was held here when the waiting began
        self._unanswered = Backoff(
            context.jittered, 2 * options.timeout_ns, max(2 * options.timeout_ns, options.timeout_ns_max)
        )  # ends of rounds, elsewhere

    @property
    def coordinates(self) -> bool:
        """Whether this member starts the rounds."""
        return self.rank == self._options.coordinator

    def timers(self) -> tuple[Instant | None, ...]:
        """When to start, to ask for rows, to ask for a frontier."""
        return self.starter.at, self._missing.at, self._unanswered.at

    def lag(self) -> dict[int, int | None]:
        """Say what the others lacked in their last rows, and whose rows are awaited, or which frontier."""
        if not self.unstable:
            return {}
        owing = [*(sorted(self.awaited) if self.running else ())]
        owing += [self._options.coordinator] if self._unanswered.tries else []
        return {**{rank: lacks for rank, lacks in self._lag.items() if lacks}, **dict.fromkeys(owing)}

    def more(self, source: int, now: Instant) -> None:
        """Let a round start some time, or make sure that one ends."""
        if self.coordinates:
            self.starter.more(self.load, now, running=self.running)
        elif self._unanswered.at is None:
            self._wait_from_now(now)

    def due(self, now: Instant) -> None:
        """Start a round; ask again for what has not come."""
        if self.starter.over(self.load, now):
            self.begin(self.round + 1)
            self._speak(now)
            self._missing.start(now)
            self.end_if_complete(now)
        if self._missing.over(now):
            self._disturbed = True
            self.say_now(Poke(self.round), tuple(sorted(self.awaited)))
        if self._unanswered.over(now):
            if (self.frontier < self._waited_for).any():
                self.say_now(AskFound(), (self._options.coordinator,))
            else:
                self._wait_from_now(now)

    def take(self, source: int, pdu: Pdu, now: Instant) -> None:
        """Take a row, a reminder, a frontier or a question."""
        match pdu:
            case Row():
                self.take_row(source, pdu, now)
            case Poke():
                self._poke(source, pdu, now)
            case Found():
                stable = self.unpack(pdu.stable, None)
                self.check_frontier(stable)
                self.raise_frontier(stable)
                self._wait(now)
            case AskFound():
                self.say_now(Found(self.pack_whole(self.frontier)), (source,))
            case _:
                raise Malformed("unexpected")

    # A round

    @rule("Section 3.2, FullDist; docs/protocols/full-distribution.md, Rule")
    def begin(self, number: int) -> None:
        """Begin a round: wait for everyone's row, above the floor that is known to be stable now."""
        self.round = number
        self.running, self._spoken = True, False
        self.awaited = set(range(self.size)) - {self.rank}
        self._least = self.held
        self.floor = self.frontier

    def _speak(self, now: Instant) -> None:
        """Tell all what is held here, once a round."""
        if not self._spoken:
            self._spoken = True
            self.say(self.own_row(), None, now)

    def own_row(self) -> Row:
        """Make the row of a round; with `delta`, of what is not known to be stable."""
        if self._options.delta:
            return Row(self.round, True, pack_some(self.held, self.held > self.frontier))
        return Row(self.round, False, self.pack_whole(self.held))

    @rule("Section 3.2, FullDist: ACK")
    def take_row(self, source: int, row: Row, now: Instant) -> None:
        """Take a row into the minimum, unless it is late or doubled."""
        if self.coordinates and row.round > self.round:
            raise Malformed("impossible-round")
        if row.part:
            numbers = unpack_some(row.held, self.floor if row.round == self.round else self.frontier)
        else:
            numbers = self.unpack(row.held, None)
        if row.round > self.round:
            self.begin(row.round)
        if row.round == self.round and source == self._options.coordinator:
            self._speak(now)
        if row.round < self.round or source not in self.awaited:
            return  # late, or doubled
        self.awaited.remove(source)
        self._lag[source] = self.lacking(numbers)
        self._least = np.minimum(self._least, numbers)
        self.end_if_complete(now)

    def _poke(self, source: int, poke: Poke, now: Instant) -> None:
        if self.coordinates:
            raise Malformed("impossible-round")
        if poke.round > self.round:
            self.begin(poke.round)
        if poke.round == self.round and not self._spoken:
            self._speak(now)
        elif poke.round == self.round:
            self.say_now(self.row_again(), (source,))

    @rule("docs/protocols/full-distribution.md, What the paper got wrong or left open")
    def row_again(self) -> Row:
        """Make the row for a coordinator that lacks it: whole, since by now more may be known to be stable here."""
        return Row(self.round, False, self.pack_whole(self.held))

    @rule("Section 3.2, FullDist: the round ends when all rows are in")
    def end_if_complete(self, now: Instant) -> None:
        """End the round once no row is missing, with the minimum of all rows."""
        if not self.running or self.awaited:
            return
        self.running = False
        self._missing.stop()
        news = self.raise_frontier(np.minimum(self._least, self.held))
        if self.coordinates:
            if self._disturbed:
                self._disturbed = False
                self.announce(now)
            self.starter.end(self.load, now, news)
        else:
            self._wait(now)

    @rule("docs/protocols/full-distribution.md, What the paper got wrong or left open")
    def announce(self, now: Instant) -> None:
        """Tell all the frontier after a round in which rows were lost: others lack rows as well, and would all ask."""
        self.say(Found(self.pack_whole(self.frontier)), None, now)

    def _wait(self, now: Instant) -> None:
        """Go on waiting while something is unstable, however many rounds end meanwhile."""
        if not self.unstable:
            self._unanswered.stop()
        elif self._unanswered.at is None:
            self._wait_from_now(now)

    def _wait_from_now(self, now: Instant) -> None:
        self._unanswered.start(now)
        self._waited_for = self.held.copy()
