"""Collecting minima over a tree of reports: what CoordP, S_CoordP and S_Train have in common.

The coordinator multicasts START. Each member waits for the reports (ACK) of certain others, takes the minimum of these
and of what it holds itself, and reports that to one other member; the coordinator multicasts the last minimum as INFO.
The three protocols differ only in who waits for whom: `Links`.

Losses are mended where they are felt. Who waits for a report sends START again to those who owe it; a report of a round
that one has not heard of is as good as its START; who waits for INFO asks the coordinator for the latest. A report
with a change is coded over the frontier of the last round, `base`; who has missed that one asks for, or sends, a whole
vector, and so INFO goes whole in this round too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import msgspec
import numpy as np

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule
from antiphon.protocol.stability.rounds import RoundOptions, Starter, VectorPart
from antiphon.protocol.stability.trees import children_of
from antiphon.protocol.stability.vectors import Numbers
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Counter, Malformed, Number, Pdu, Vector


class RoundStart(Pdu):
    """Round `round` begins, or: your report for it has not come. Reports may be changes of the frontier of `base`."""

    round: Number
    base: Counter = 0  # 0: whole vectors, please


class RoundAck(Pdu):
    """What its sender, and all whose reports it has taken in, hold at least."""

    round: Number
    base: Counter
    held: Vector


class RoundInfo(Pdu):
    """What all held in the round."""

    round: Number
    base: Counter
    stable: Vector


class RoundAsk(Pdu):
    """The newest frontier that its sender knows is that of `round`: is there a newer one?"""

    round: Counter


class Links(msgspec.Struct, frozen=True):
    """Whose reports a member waits for, and to whom it reports; None: to all, since it is the coordinator."""

    awaits: frozenset[int]
    reports_to: int | None


class Collect:
    """A round at one member: which reports are in, and their minimum."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.number = 0
        self.base = 0
        self.awaited: set[int] = set()
        self.least: Numbers | None = None
        self.whole = False  # a report came whole though changes were welcome: someone lacks the base

    def begin(self, number: int, base: int) -> None:
        """Forget the last round."""
        self.number, self.base = number, base
        self.awaited = set(self._links.awaits)
        self.least = None
        self.whole = not base

    @rule("Section 3.1, the minimum of the reports")
    def merge(self, source: int, numbers: Numbers, whole: bool) -> None:
        """Take a report in."""
        self.awaited.remove(source)
        self.least = numbers if self.least is None else np.minimum(self.least, numbers)
        self.whole |= whole

    @rule("Section 3.1, the minimum of the reports")
    def minimum(self, own: Numbers) -> Numbers:
        """Give the minimum of the reports and of what is held here."""
        return own if self.least is None else np.minimum(self.least, own)


@lru_cache(maxsize=16)
def longest_way(links_of: Callable[[tuple[int, ...], int], Links], parents: tuple[int, ...]) -> int:
    """Return how many reports follow on one another until the coordinator has the last of them."""
    steps = {parents.index(-1): 0}
    for rank in range(len(parents)):
        way: list[int] = []
        at: int | None = rank
        while at is not None and at not in steps:
            way.append(at)
            at = links_of(parents, at).reports_to
        for one in reversed(way):
            steps[one] = (0 if at is None else steps[at]) + 1
            at = one
    return max(steps.values())


class CollectPart(VectorPart):
    """A member of a collecting protocol; a protocol names its PDUs and says who waits for whom."""

    START: ClassVar[type[RoundStart]]
    ACK: ClassVar[type[RoundAck]]
    INFO: ClassVar[type[RoundInfo]]
    ASK: ClassVar[type[RoundAsk]]

    collect_type: ClassVar[type[Collect]] = Collect
    starter_type: ClassVar[type[Starter]] = Starter

    def __init__(self, context: PartContext, options: RoundOptions, parents: tuple[int, ...]) -> None:
        super().__init__(context, options)
        self._options = options
        self._parents, self._coordinator = parents, parents.index(-1)
        self.links = self.links_of(parents, context.rank)
        self.collect = self.collect_type(self.links)
        self.running = False  # a round has begun here and this member has not reported yet
        self.epoch = 0  # the round of the newest frontier known here, which is `frontier`
        self.starter = self.starter_type(options, context.window)
        self._missing = Backoff(context.jittered, options.timeout_ns, options.timeout_ns_max)  # reports
        self._unanswered = Backoff(
            context.jittered, 2 * options.timeout_ns, max(2 * options.timeout_ns, options.timeout_ns_max)
        )  # INFO
        self._lag: dict[int, int] = {}

    @staticmethod
    @rule("Section 3.1, CoordP; Section 4.1, S_CoordP")
    def links_of(parents: tuple[int, ...], rank: int) -> Links:
        """Say whom a member of the tree waits for, and to whom it reports: its children, and its parent."""
        parent = parents[rank]
        return Links(frozenset(children_of(parents)[rank]), None if parent < 0 else parent)

    @property
    def message_times(self) -> int:
        """How many message times a round takes: its start, the longest way of reports, and what is found."""
        return 2 + longest_way(self.links_of, self._parents)

    @property
    def coordinates(self) -> bool:
        """Whether this member starts the rounds."""
        return self.rank == self._coordinator

    def timers(self) -> tuple[Instant | None, ...]:
        """When to start, to ask for reports, to ask for INFO."""
        return self.starter.at, self._missing.at, self._unanswered.at

    def lag(self) -> dict[int, int | None]:
        """Say what those who report here lacked when they did, and who owes a report, or the frontier."""
        if not self.unstable:
            return {}
        owing = [*(sorted(self.collect.awaited) if self.running else ())]
        owing += [self._coordinator] if self._unanswered.tries else []
        return {**{rank: lacks for rank, lacks in self._lag.items() if lacks}, **dict.fromkeys(owing)}

    def more(self, source: int, now: Instant) -> None:
        """Let a round start some time, or make sure that one is heard of."""
        if self.coordinates:
            self.starter.more(self.load, now, running=self.running)
        elif self._unanswered.at is None:
            self._unanswered.start(now)

    def due(self, now: Instant) -> None:
        """Start a round; ask again for what has not come."""
        if self.starter.over(self.load, now):
            self._begin(self.collect.number + 1, self.epoch if self._options.delta else 0, now)
        if self._missing.over(now):
            self.ask_for_reports()
        if self._unanswered.over(now):
            self.ask_for_info()

    def take(self, source: int, pdu: Pdu, now: Instant) -> None:
        """Take START, ACK, INFO or ASK."""
        match pdu:
            case RoundStart():
                self._start(source, pdu, now)
            case RoundAck():
                self.take_ack(source, pdu, now)
            case RoundInfo():
                self.take_info(source, pdu, now)
            case RoundAsk():
                self._ask(source, pdu, now)
            case _:
                raise Malformed("unexpected")

    # Losses, which the paper leaves to a reliable network

    @rule("docs/protocols/coordinator.md, What the paper got wrong or left open")
    def ask_for_reports(self) -> None:
        """Send START again to those who owe a report."""
        start = self.START(self.collect.number, self.collect.base if self.collect.base == self.epoch else 0)
        self.say_now(start, tuple(sorted(self.collect.awaited)))

    @rule("docs/protocols/coordinator.md, What the paper got wrong or left open")
    def ask_for_info(self) -> None:
        """Ask the coordinator whether there is a newer frontier."""
        self.say_now(self.ASK(self.epoch), (self._coordinator,))

    # A round

    def _begin(self, number: int, base: int, now: Instant) -> None:
        self.collect.begin(number, base)
        self.running = True
        if self.coordinates:
            self.say(self.START(number, base), None, now)
        if self.links.awaits:
            self._missing.start(now)
        self.report_if_complete(now)

    def _start(self, source: int, start: RoundStart, now: Instant) -> None:
        if start.base >= start.round:
            raise Malformed("impossible-round")
        if self.coordinates:
            return  # only a dependent that has it all wrong asks its coordinator
        if self._unanswered.at is not None:
            self._unanswered.start(now)
        if start.round > self.collect.number:
            self._begin(start.round, start.base, now)
        elif start.round == self.collect.number and source == self.links.reports_to and not self.running:
            self._report(start.base, now)  # it was lost, or could not be read there

    @rule("Section 3.1, CoordP: ACK")
    def take_ack(self, source: int, ack: RoundAck, now: Instant) -> None:
        """Take a report in, unless it is late, doubled or overheard, or its base is not known here."""
        if ack.base >= ack.round or (self.coordinates and ack.round > self.collect.number):
            raise Malformed("impossible-round")
        if source not in self.links.awaits or ack.round < self.collect.number:
            return  # overheard, or late
        if ack.round == self.collect.number and source not in self.collect.awaited:
            return  # doubled
        if ack.base in (0, self.epoch):
            numbers = self.unpack(ack.held, self.frontier if ack.base else None)
        else:
            numbers = None
        if ack.round > self.collect.number:
            self._begin(ack.round, ack.base, now)
        if numbers is None:
            self.say_now(self.START(ack.round, 0), (source,))
            return
        self._lag[source] = self.lacking(numbers)
        self.collect.merge(source, numbers, not ack.base)
        self.report_if_complete(now)

    @rule("Section 3.1, CoordP: the round ends when all have reported")
    def report_if_complete(self, now: Instant) -> None:
        """Report the minimum, or announce it as INFO, once no report is missing."""
        if not self.running or self.collect.awaited:
            return
        self.running = False
        self._missing.stop()
        if self.coordinates:
            self._announce(now)
        else:
            self._report(self.collect.base, now)

    def _report(self, base: int, now: Instant) -> None:
        """Report the minimum, as a change if the base is known here and in everything that was reported here."""
        assert self.links.reports_to is not None
        known = base and base == self.epoch and not self.collect.whole
        is_change, held = self.pack(self.collect.minimum(self.held), self.frontier if known else None)
        ack = self.ACK(self.collect.number, base if is_change else 0, held)
        self.say(ack, self.links.reports_to, now, bytes_more=len(held))

    def _announce(self, now: Instant) -> None:
        base = self.frontier if self.collect.base and not self.collect.whole else None
        minimum = self.collect.minimum(self.held)
        is_change, stable = self.pack(minimum, base)
        self.say(self.INFO(self.collect.number, self.epoch if is_change else 0, stable), None, now)
        self.epoch = self.collect.number
        news = self.raise_frontier(minimum)
        self.starter.end(self.load, now, news)

    # The frontier

    @rule("Section 3.1, CoordP: INFO")
    def take_info(self, source: int, info: RoundInfo, now: Instant) -> None:
        """Take the coordinator's frontier, unless it is late or its base is not known here."""
        # a round ends only after this member has reported, so it has heard of every round that ended
        if source != self._coordinator or info.base >= info.round or info.round > self.collect.number:
            raise Malformed("impossible-round")
        if info.round <= self.epoch:
            return
        if info.base not in (0, self.epoch):
            self.say_now(self.ASK(self.epoch), (self._coordinator,))
            return
        numbers = self.unpack(info.stable, self.frontier if info.base else None)
        self.check_frontier(numbers)
        self.epoch = info.round
        self.raise_frontier(numbers)
        if self.unstable:
            self._unanswered.start(now)
        else:
            self._unanswered.stop()

    def _ask(self, source: int, ask: RoundAsk, now: Instant) -> None:
        if not self.coordinates or ask.round > self.epoch:
            raise Malformed("impossible-round")
        if ask.round < self.epoch:
            _, stable = self.pack(self.frontier, None)
            self.say_now(self.INFO(self.epoch, 0, stable), (source,))
