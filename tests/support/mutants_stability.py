"""Stability protocols with one rule broken each, and how that shows; the schedules must catch every one of them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from antiphon.protocol.machine import Instant
from antiphon.protocol.parts import PartContext
from antiphon.protocol.stability.collect import Ack, Collect, Info, Links
from antiphon.protocol.stability.coordinator import Coordinator
from antiphon.protocol.stability.full_distribution import FullDistribution, Poke, Row
from antiphon.protocol.stability.rounds import Load, Starter, VectorPart
from antiphon.protocol.stability.train import Carriage, Train, TrainAck
from antiphon.protocol.stability.tree_coordinator import TreeCoordinator
from antiphon.protocol.stability.tree_train import TreeTrain
from antiphon.protocol.stability.vector_ack import Report, VectorAck
from antiphon.protocol.stability.vectors import Numbers
from antiphon.protocol.timers import Backoff
from antiphon.protocol.wire import Pdu


class _Never(Backoff):
    """Waits for ever."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context.jittered, 1, 1)

    def start(self, now: Instant) -> None:
        self.at = None


# Coordinator and trees


class LastReportWins(Coordinator):
    """The minimum is dropped: the last report replaces those before it."""

    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)

        class Last(Collect):
            def merge(self, source: int, numbers: Numbers, *, whole: bool) -> None:
                super().merge(source, numbers, whole=whole)
                self.least = numbers

        self.collect = Last(self.links)


class LeavesItselfOut(TreeCoordinator):
    """A member reports what those below it hold, and not what it holds itself."""

    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)

        class Others(Collect):
            def minimum(self, own: Numbers) -> Numbers:
                return own if self.least is None else np.maximum(self.least, own)

        self.collect = Others(self.links)


class DoesNotWaitForAll(TreeCoordinator):
    """The frontier comes from a round that one report is still missing from."""

    def _report_if_complete(self, now: Instant) -> None:
        if len(self.collect.awaited) == 1 and self.collect.least is not None:
            self.collect.awaited.clear()
        super()._report_if_complete(now)


class DoesNotWaitForChildren(TreeTrain):
    """A train goes on to the next sibling before the train of the children has come in."""

    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)
        below = [rank for rank in self.links.awaits if rank > self.rank]
        self.links = Links(
            self.links.awaits - set(below[:1] if self.links.reports_to is not None else ()), self.links.reports_to
        )
        self.collect = Collect(self.links)


class TakesAnyBase(Coordinator):
    """A change is added to whatever frontier is at hand."""

    def _ack(self, source: int, ack: Ack, now: Instant) -> None:
        super()._ack(source, msgspec.structs.replace(ack, base=self.epoch if ack.base else 0), now)

    def _info(self, source: int, info: Info, now: Instant) -> None:
        super()._info(source, msgspec.structs.replace(info, base=self.epoch if info.base else 0), now)


class TakesStaleFrontiers(TreeTrain):
    """A frontier of a round that is long over counts as new."""

    def _info(self, source: int, info: Info, now: Instant) -> None:
        if info.round <= self.epoch:
            info = msgspec.structs.replace(info, round=self.epoch, base=self.epoch - 1 if info.base else 0)
            self.epoch -= 1
        super()._info(source, info, now)


class ForgetsLostReports(Coordinator):
    """Whoever owes a report is not asked again."""

    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)
        self._missing = _Never(context)


class ForgetsLostFrontiers(TreeCoordinator):
    """Who missed the frontier does not ask for it."""

    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)
        self._unanswered = _Never(context)


class NeverRests(Coordinator):
    """Rounds go on when everything is stable."""

    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)

        class Restless(Starter):
            def end(self, load: Load, now: Instant, *, news: bool) -> None:
                super().end(msgspec.structs.replace(load, unstable=1), now, news=news)

        self.starter = Restless(options, context.window)


# Full distribution


class EndsARowEarly(FullDistribution):
    """The round ends with one row missing."""

    def _end_if_complete(self, now: Instant) -> None:
        if len(self._awaited) == 1 and self.size > 2:
            self._awaited.clear()
        super()._end_if_complete(now)


class TakesStaleRows(FullDistribution):
    """A row of an earlier round counts in this one."""

    def _row(self, source: int, row: Row, now: Instant) -> None:
        super()._row(source, msgspec.structs.replace(row, round=max(row.round, self.round)), now)


class FillsInItsOwn(FullDistribution):
    """What a row leaves out is taken for what the receiver holds."""

    def _begin(self, number: int) -> None:
        super()._begin(number)
        self._floor = self.held.copy()


class LeavesOutWhatItLearntMeanwhile(FullDistribution):
    """A reminder is answered with a row that leaves out what became stable since the round began."""

    def _poke(self, source: int, poke: Poke, now: Instant) -> None:
        if poke.round == self.round and self._spoken:
            self.say_now(self._own_row(), (source,))
        else:
            super()._poke(source, poke, now)


# Train


class ReadsTheFirstLap(Train):
    """What the train says before it has been everywhere is taken for stable."""

    def _train(self, source: int, train: Carriage, now: Instant) -> None:
        super()._train(source, train, now)
        if isinstance(train, TrainAck) and not train.change and source == self._before:
            self.raise_frontier(np.minimum(self.unpack(train.numbers, None), self.held))


class LosesTheTrain(Train):
    """Nobody asks whether the train arrived."""

    def __init__(self, context: PartContext, options: Any) -> None:
        super().__init__(context, options)
        self._unconfirmed = _Never(context)


class DoesNotLowerTheTrain(Train):
    """A member passes the train on as it came."""

    def _pass_on(self, kind: type[Carriage], number: int, numbers: Numbers, now: Instant) -> None:
        if not self.coordinates and kind is TrainAck:
            numbers = np.maximum(numbers, self._came)
        super()._pass_on(kind, number, numbers, now)

    def _train(self, source: int, train: Carriage, now: Instant) -> None:
        self._came = self.unpack(train.numbers, self.frontier if train.change else None)
        super()._train(source, train, now)


# Vector acknowledgments


class OneReportIsEnough(VectorAck):
    """What one other member holds is taken for what all hold."""

    def _put(self, row: int, numbers: Numbers) -> None:
        for every in range(max(1, self.size - 1)):
            super()._put(every, np.maximum(numbers, self._others.row(every)))


class TakesReportsOutOfOrder(VectorAck):
    """A report that was overtaken is added to what came after it."""

    def _take_part(self, source: int, row: int, report: Report) -> None:
        self._heard[source] = min(self._heard[source], max(0, report.number - 1))
        super()._take_part(source, row, report)


class IgnoresQuestions(VectorAck):
    """Nobody answers those who still wait."""

    def take(self, source: int, pdu: Pdu, now: Instant) -> None:
        assert isinstance(pdu, Report)
        super().take(source, msgspec.structs.replace(pdu, asking=False), now)


MUTANTS: dict[type[VectorPart], tuple[str, ...]] = {
    LastReportWins: ("unsafe",),
    LeavesItselfOut: ("unsafe", "refused"),
    DoesNotWaitForAll: ("unsafe", "refused"),
    DoesNotWaitForChildren: ("unsafe", "refused"),
    TakesAnyBase: ("unsafe", "refused"),
    TakesStaleFrontiers: ("unsafe", "refused"),
    ForgetsLostReports: ("restless",),
    ForgetsLostFrontiers: ("stuck",),
    NeverRests: ("restless",),
    EndsARowEarly: ("unsafe",),
    TakesStaleRows: ("unsafe", "restless"),
    FillsInItsOwn: ("unsafe",),
    LeavesOutWhatItLearntMeanwhile: ("restless",),
    ReadsTheFirstLap: ("unsafe",),
    LosesTheTrain: ("stuck",),
    DoesNotLowerTheTrain: ("unsafe", "refused"),
    OneReportIsEnough: ("unsafe",),
    TakesReportsOutOfOrder: ("unsafe",),
    IgnoresQuestions: ("restless",),
}
