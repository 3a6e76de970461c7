"""From stubs to witnesses: look the few events up that show a violation, and say in one sentence why it is one."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.checking.encode import Log, read_log
from antiphon.pipeline.checking.findings import Stub
from antiphon.pipeline.checking.run import CheckJob
from antiphon.pipeline.columns import CODES, DELIVER, DISCARD, NO_OFFSET, NO_TEXT, RECEIVE, SEND, Array, Unit
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.pipeline.store.location import location
from antiphon.trace.schema import EVENTS
from antiphon.trace.verdict import Message, Witness, WitnessEvent


class WitnessLog:
    """One member's log, asked for single rows."""

    def __init__(self, layout: TraceLayout, unit: Unit, implied: bool) -> None:
        self.member = int(layout.unit_member[unit])
        self._texts = layout.texts
        self.log: Log = read_log(layout, unit, ("event", "sender", "seq", "step"), implied)
        self._more = functools.cache(
            lambda name: read_log(layout, unit, ("event", "sender", "seq", name), implied).column[name]
        )

    def rows(self, message: Message, *kinds: int) -> Array:
        """The rows of some kinds about a message."""
        column = self.log.column
        about = (column["sender"] == message[0]) & (column["seq"] == message[1])
        return np.flatnonzero(about & np.isin(column["event"], kinds))

    def first(self, message: Message, *kinds: int) -> int:
        """The first such row."""
        return int(self.rows(message, *kinds)[0])

    def message(self, row: int) -> Message:
        """The message that a row is about."""
        return int(self.log.column["sender"][row]), int(self.log.column["seq"][row])

    def event(self, row: int) -> str:
        """The name of a row's event."""
        return EVENTS[int(self.log.column["event"][row])]

    def text(self, name: str, row: int) -> str | None:
        """A row's topic, partition or group."""
        code = int(self._more(name)[row])
        return None if code == NO_TEXT else self._texts.names[code]

    def offset(self, row: int) -> int | None:
        """Where the broker has put a row's message in its partition, if it says so."""
        offset = int(self._more("partition_offset")[row])
        return None if offset == NO_OFFSET else offset

    def consumer(self, row: int) -> str:
        """Name the consumer for which the member did this."""
        return sentence.consumer(self.text("group", row), self.member)

    def show(self, row: int, witness: int) -> WitnessEvent:
        """A row as an event of a member's witness."""
        elsewhere = None if self.member == witness else self.member
        return WitnessEvent(int(self.log.column["step"][row]), self.event(row), *self.message(row), elsewhere)


class Witnesses:
    """Makes witnesses of one trace."""

    def __init__(self, job: CheckJob) -> None:
        self.job = job
        self.layout = TraceLayout(location(job.layout))
        self.log = functools.lru_cache(maxsize=4)(self._log)
        self._makers: dict[str, Callable[..., tuple[list[WitnessEvent], str]]] = {
            "integrity": self._integrity,
            "validity": self._validity,
            "agreement": self._agreement,
            "fifo": self._fifo,
            "causal": self._causal,
            "total": self._total,
            "stability": self._stability,
            "view-synchrony": self._view_synchrony,
            "at-least-once": self._at_least_once,
            "at-most-once": functools.partial(self._given_again, sentence.given_again),
            "partition-order": self._partition_order,
            "redelivery": functools.partial(self._given_again, sentence.given_again_unmarked),
        }

    def _log(self, run: str, member: int) -> WitnessLog:
        layout = self.layout
        code = int(np.searchsorted(np.array(layout.runs, dtype=object), run))
        units = slice(int(layout.run_bounds[code]), int(layout.run_bounds[code + 1]))
        unit = units.start + int(np.searchsorted(layout.unit_member[units], member))
        return WitnessLog(layout, unit, self.job.implied)

    def make(self, guarantee: str, stub: Stub) -> Witness:
        """Return the witness of one violation."""
        events, why = self._makers[guarantee](stub.run, *stub.facts)
        return Witness(stub.run, stub.facts[0], events, why)

    def _integrity(self, run: str, member: int, row: int) -> tuple[list[WitnessEvent], str]:
        log = self.log(run, member)
        message = log.message(row)
        kind = CODES[log.event(row)]
        first = log.first(message, kind)
        if first == row:
            return [log.show(row, member)], sentence.delivered_unsent(member, message)
        again = sentence.sent_again if kind == SEND else sentence.delivered_again
        return [log.show(first, member), log.show(row, member)], again(member, message)

    def _validity(self, run: str, member: int, row: int) -> tuple[list[WitnessEvent], str]:
        log = self.log(run, member)
        return [log.show(row, member)], sentence.own_missing(member, log.message(row))

    def _agreement(
        self, run: str, member: int, sender: int, seq: int, obliger: int, view: int
    ) -> tuple[list[WitnessEvent], str]:
        log = self.log(run, obliger)
        shown = log.show(log.first((sender, seq), DELIVER), member)
        return [shown], sentence.delivery_missing(member, (sender, seq), obliger, view)

    def _fifo(self, run: str, member: int, row: int, highest: int) -> tuple[list[WitnessEvent], str]:
        log = self.log(run, member)
        why = sentence.delivered_late(member, log.message(row), log.message(highest)[1])
        return [log.show(highest, member), log.show(row, member)], why

    def _causal(self, run: str, member: int, sender: int, seq: int, *cause: int) -> tuple[list[WitnessEvent], str]:
        message, predecessor = (sender, seq), (cause[0], cause[1])
        log, past = self.log(run, member), self.log(run, sender)
        handled = log.first(message, DELIVER, DISCARD)
        sent = past.first(message, SEND)
        events = [past.show(self._made_predecessor(past, predecessor, sent), member), past.show(sent, member)]
        events.append(log.show(handled, member))
        later = log.rows(predecessor, DELIVER, DISCARD)
        if len(later):
            events.append(log.show(int(later[0]), member))
        return events, sentence.effect_before_cause(member, log.event(handled), message, predecessor)

    def _made_predecessor(self, past: WitnessLog, predecessor: Message, sent: int) -> int:
        """The row, since its sender's previous first send, by which a message became a predecessor."""
        own = np.flatnonzero(past.log.column["event"][:sent] == SEND)
        _, first = np.unique(past.log.column["seq"][own][: len(own)], return_index=True)
        start = int(own[first].max()) if len(own) else 0
        kinds = [SEND, DELIVER, RECEIVE] if self.job.with_receipts else [SEND, DELIVER]
        candidates = []
        for kind in kinds:
            rows = past.rows(predecessor, kind)
            if len(rows) and start <= rows[0] < sent:
                candidates.append(int(rows[0]))
        return min(candidates)

    def _total(self, run: str, p: int, q: int, *numbers: int) -> tuple[list[WitnessEvent], str]:
        first, second = (numbers[0], numbers[1]), (numbers[2], numbers[3])
        one, other = self.log(run, p), self.log(run, q)
        events = [
            log.show(log.first(message, DELIVER), p)
            for log, message in ((one, first), (one, second), (other, second), (other, first))
        ]
        return events, sentence.orders_differ(p, q, first, second)

    def _stability(
        self, run: str, member: int, row: int, cause: int, who: int, number: int
    ) -> tuple[list[WitnessEvent], str]:
        log = self.log(run, member)
        mark = log.message(row)
        events = [log.show(row, member)]
        message = (mark[0], number)
        if cause == 0:
            return events, sentence.marked_unsent(member, mark)
        if cause == 1:
            return events, sentence.marked_unreceived(member, mark, who, message)
        late = self.log(run, who)
        events.append(late.show(late.first(message, DELIVER, RECEIVE), member))
        return events, sentence.marked_too_early(member, mark, who, message)

    def _view_synchrony(
        self, run: str, member: int, deliverer: int, other: int, sender: int, seq: int, view: int, following: int
    ) -> tuple[list[WitnessEvent], str]:
        log = self.log(run, deliverer)
        shown = log.show(log.first((sender, seq), DELIVER), member)
        return [shown], sentence.views_differ(deliverer, other, (sender, seq), view, following)

    def _at_least_once(self, run: str, member: int, of_consumer: int, *about: int) -> tuple[list[WitnessEvent], str]:
        sender, seq, shown_member, row, acknowledged = about
        consumer = self.log(run, member).consumer(of_consumer)
        shown = self.log(run, shown_member)
        if acknowledged:
            why = sentence.lost_though_acknowledged(consumer, (sender, seq))
        else:
            why = sentence.lost_though_delivered(consumer, (sender, seq), shown.consumer(row))
        return [shown.show(row, member)], why

    def _given_again(
        self, word: Callable[[str, Message], str], run: str, member: int, row: int, first_member: int, first: int
    ) -> tuple[list[WitnessEvent], str]:
        log, before = self.log(run, member), self.log(run, first_member)
        return [before.show(first, member), log.show(row, member)], word(log.consumer(row), log.message(row))

    def _partition_order(self, run: str, member: int, row: int, highest: int) -> tuple[list[WitnessEvent], str]:
        log = self.log(run, member)
        topic, partition = log.text("topic", row), log.text("partition", row)
        offset = log.offset(row)
        reached = log.message(highest)[1] if offset is None else log.offset(highest)
        assert reached is not None, "offsets are compared with offsets"
        why = sentence.given_late(member, log.message(row), offset, reached, str(topic), partition)
        return [log.show(highest, member), log.show(row, member)], why
