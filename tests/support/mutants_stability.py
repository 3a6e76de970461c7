"""Stability protocols with one rule broken each, and how that shows; the schedules must catch every one of them."""

from __future__ import annotations

import msgspec
import numpy as np

from antiphon.protocol.machine import Instant
from antiphon.protocol.rules import replaced
from antiphon.protocol.stability.collect import Collect, CollectPart, Links, RoundAck, RoundInfo
from antiphon.protocol.stability.coordinator import Coordinator
from antiphon.protocol.stability.full_distribution import FullDistribution, Row
from antiphon.protocol.stability.rounds import RoundLoad, Starter, VectorPart
from antiphon.protocol.stability.train import Carriage, Train, TrainAck
from antiphon.protocol.stability.tree_coordinator import TreeCoordinator
from antiphon.protocol.stability.tree_train import TreeTrain
from antiphon.protocol.stability.vector_ack import Report, VectorAck
from antiphon.protocol.stability.vectors import Numbers
from antiphon.protocol.wire import Pdu

# Coordinator and trees


def last_wins(self: Collect, source: int, numbers: Numbers, whole: bool) -> None:
    """The minimum is dropped: the last report replaces those before it."""
    Collect.merge(self, source, numbers, whole)
    self.least = numbers


def others_only(self: Collect, own: Numbers) -> Numbers:
    """A member reports what those below it hold, and not what it holds itself."""
    return own if self.least is None else np.maximum(self.least, own)


def one_may_be_missing(self: CollectPart, now: Instant) -> None:
    """The frontier comes from a round that one report is still missing from."""
    if len(self.collect.awaited) == 1 and self.collect.least is not None:
        self.collect.awaited.clear()
    CollectPart.report_if_complete(self, now)


def without_children(parents: tuple[int, ...], rank: int) -> Links:
    """A train goes on to the next sibling before the train of the children has come in."""
    links = TreeTrain.links_of(parents, rank)
    below = [other for other in links.awaits if other > rank]
    return Links(links.awaits - set(below[:1] if links.reports_to is not None else ()), links.reports_to)


def report_of_any_base(self: CollectPart, source: int, ack: RoundAck, now: Instant) -> None:
    """A change is added to whatever frontier is at hand."""
    CollectPart.take_ack(self, source, msgspec.structs.replace(ack, base=self.epoch if ack.base else 0), now)


def frontier_of_any_base(self: CollectPart, source: int, info: RoundInfo, now: Instant) -> None:
    """A change is added to whatever frontier is at hand."""
    CollectPart.take_info(self, source, msgspec.structs.replace(info, base=self.epoch if info.base else 0), now)


def stale_frontier(self: CollectPart, source: int, info: RoundInfo, now: Instant) -> None:
    """A frontier of a round that is long over counts as new."""
    if info.round <= self.epoch:
        info = msgspec.structs.replace(info, round=self.epoch, base=self.epoch - 1 if info.base else 0)
        self.epoch -= 1
    CollectPart.take_info(self, source, info, now)


def never_rests(self: Starter, load: RoundLoad, now: Instant, news: bool) -> None:
    """Rounds go on when everything is stable."""
    Starter.end(self, msgspec.structs.replace(load, unstable=1), now, news)


# Full distribution


def a_row_early(self: FullDistribution, now: Instant) -> None:
    """The round ends with one row missing."""
    if len(self.awaited) == 1 and self.size > 2:
        self.awaited.clear()
    FullDistribution.end_if_complete(self, now)


def stale_row(self: FullDistribution, source: int, row: Row, now: Instant) -> None:
    """A row of an earlier round counts in this one."""
    FullDistribution.take_row(self, source, msgspec.structs.replace(row, round=max(row.round, self.round)), now)


def fills_in_its_own(self: FullDistribution, number: int) -> None:
    """What a row leaves out is taken for what the receiver holds."""
    FullDistribution.begin(self, number)
    self.floor = self.held.copy()


# Train


def first_lap(self: Train, source: int, train: Carriage, now: Instant) -> None:
    """What the train says before it has been everywhere is taken for stable."""
    Train.take_train(self, source, train, now)
    if isinstance(train, TrainAck) and not train.change and source == self.before:
        self.raise_frontier(np.minimum(self.unpack(train.numbers, None), self.held))


def as_it_came(self: Train, numbers: Numbers) -> Numbers:
    """A member passes the train on as it came."""
    return np.minimum(numbers, self.held) if self.coordinates else numbers


# Vector acknowledgments


def one_report_is_enough(self: VectorAck, row: int, numbers: Numbers) -> None:
    """What one other member holds is taken for what all hold."""
    for every in range(max(1, self.size - 1)):
        VectorAck.put(self, every, np.maximum(numbers, self.others.row(every)))


def out_of_order(self: VectorAck, source: int, row: int, report: Report) -> None:
    """A report that was overtaken is added to what came after it."""
    self.heard[source] = min(self.heard[source], max(0, report.number - 1))
    VectorAck.take_part(self, source, row, report)


def ignores_questions(self: VectorAck, source: int, pdu: Pdu, now: Instant) -> None:
    """Nobody answers those who still wait."""
    assert isinstance(pdu, Report)
    VectorAck.take(self, source, msgspec.structs.replace(pdu, asking=False), now)


MUTANTS: dict[type[VectorPart], tuple[str, ...]] = {
    replaced(Coordinator, merge=last_wins): ("unsafe",),
    replaced(TreeCoordinator, minimum=others_only): ("unsafe", "refused"),
    replaced(TreeCoordinator, report_if_complete=one_may_be_missing): ("unsafe", "refused"),
    replaced(TreeTrain, links_of=without_children): ("unsafe", "refused"),
    replaced(Coordinator, take_ack=report_of_any_base, take_info=frontier_of_any_base): ("unsafe", "refused"),
    replaced(TreeTrain, take_info=stale_frontier): ("unsafe", "refused"),
    replaced(Coordinator, ask_for_reports=lambda self: None): ("restless",),
    replaced(TreeCoordinator, ask_for_info=lambda self: None): ("stuck", "restless"),
    replaced(Coordinator, end=never_rests): ("restless",),
    replaced(FullDistribution, end_if_complete=a_row_early): ("unsafe",),
    replaced(FullDistribution, take_row=stale_row): ("unsafe", "restless"),
    replaced(FullDistribution, begin=fills_in_its_own): ("unsafe",),
    replaced(FullDistribution, row_again=lambda self: self.own_row()): ("restless",),
    replaced(Train, take_train=first_lap): ("unsafe",),
    replaced(Train, ask_next=lambda self: None): ("stuck", "restless"),
    replaced(Train, lowered=as_it_came): ("unsafe", "refused"),
    replaced(VectorAck, put=one_report_is_enough): ("unsafe",),
    replaced(VectorAck, take_part=out_of_order): ("unsafe",),
    replaced(VectorAck, take=ignores_questions): ("restless",),
}
