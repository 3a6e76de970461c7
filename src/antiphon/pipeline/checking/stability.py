"""Stability: a mark is right if every member of the view holds each message that it covers."""

from __future__ import annotations

import numpy as np

from antiphon.pipeline.checking.findings import Finding, Stub
from antiphon.pipeline.checking.run import CheckedRun
from antiphon.pipeline.columns import NULL_TIME, Array, Unit

HELD: int = NULL_TIME  # since ever, for all that is known
NEVER: int = int(np.iinfo(np.int64).max)


class Marks:
    """All marks of a run on the messages of one sender."""

    def __init__(self, run: CheckedRun, sender: int) -> None:
        columns: list[list[Array]] = [[], [], [], [], []]
        for unit in run.units:
            marked = np.flatnonzero(run.array(unit, "mark_sender") == sender)
            if not len(marked):
                continue
            chosen = slice(*run.array(unit, "mark_start")[marked[0] : marked[0] + 2].tolist())
            seq = run.array(unit, "mark_seq")[chosen]
            views = np.array(run.stays[unit].view, np.int64)
            time = run.array(unit, "mark_time")[chosen] if run.global_clock else np.full(len(seq), NULL_TIME)
            pieces = (
                np.full(len(seq), unit, np.int64),
                run.array(unit, "mark_row")[chosen],
                seq,
                np.where(time == NULL_TIME, NEVER - 1, time),  # without a time, only what never comes is too late
                views[run.array(unit, "mark_stay")[chosen]],
            )
            for column, piece in zip(columns, pieces, strict=True):
                column.append(piece)
        self.unit, self.row, self.seq, self.time, self.view = (np.concatenate(column) for column in columns)


def check_stability(run: CheckedRun, part: int, parts: int) -> Finding:
    """Check the marks on the messages of a share of the senders."""
    senders = _marked_senders(run)
    whole = Finding()
    for sender in senders[len(senders) * part // parts : len(senders) * (part + 1) // parts].tolist():
        whole.add(_check(run, Marks(run, sender), sender), run.job.witnesses)
    return whole


def _marked_senders(run: CheckedRun) -> Array:
    return np.unique(np.concatenate([run.array(unit, "mark_sender") for unit in run.units])).astype(np.int64)


def _check(run: CheckedRun, marks: Marks, sender: int) -> Finding:
    """Check the marks on one sender's messages: for one member after the other, those of views that name it."""
    messages, numbers = _sent(run, sender)
    cut = run.lacks_sends(sender)
    seq, time = marks.seq, marks.time
    last = np.searchsorted(numbers, seq, side="right") - 1  # the last message that each mark covers
    covers = last >= 0
    exists = covers.copy()
    exists[covers] = numbers[last[covers]] == seq[covers]
    wrong, open_ = np.zeros(len(seq), bool), np.zeros(len(seq), bool)
    for member, named in run.membership.items():
        of = np.flatnonzero(covers & named[marks.view])
        if member != sender and len(of):
            since, lost = _held_by(run, messages, member)
            wrong[of] |= np.maximum.accumulate(since)[last[of]] > time[of]
            open_[of] |= np.logical_or.accumulate(lost)[last[of]]
    if cut:
        open_ |= ~exists
    else:
        wrong |= ~exists

    order = np.flatnonzero(wrong)
    first = order[np.lexsort((marks.row[order], marks.unit[order]))][: run.job.witnesses]
    stubs = []
    for i in first.tolist():
        member, row = int(run.layout.unit_member[marks.unit[i]]), int(marks.row[i])
        cause = (0, 0, 0)
        if exists[i] or cut:
            view = int(marks.view[i])
            others = run.views[view].members - {sender}
            late = np.logical_or.reduce([_held_by(run, messages, member)[0] > time[i] for member in others])
            message = int(np.argmax(late))
            cause = (*_who_lacks(run, messages[message], sender, view, int(time[i])), int(numbers[message]))
        stubs.append(Stub(run.name, (member, row), (member, row, *cause)))
    return Finding(len(seq), len(order), bool((open_ & ~wrong).any()), 0, stubs)


def _sent(run: CheckedRun, sender: int) -> tuple[Array, Array]:
    """A sender's sent messages, and their numbers."""
    universe = run.universe
    slot = universe.slot(sender)
    if slot == len(universe.senders):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    spans = [
        span for span in range(universe.first_span[slot], universe.first_span[slot + 1]) if universe.span_sent[span]
    ]
    if not spans:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    numbers = np.concatenate([np.arange(universe.low[span], universe.high[span] + 1) for span in spans])
    base = np.concatenate(
        [universe.base[span] + np.arange(universe.high[span] - universe.low[span] + 1) for span in spans]
    )
    return base, numbers


def _since(run: CheckedRun, unit: Unit, messages: Array) -> Array:
    """Since when a member holds each message; NEVER if it does not."""
    if run.global_clock:
        return run.array(unit, "since")[messages]
    bits = run.array(unit, "held")
    return np.where((bits[messages >> 3] >> (messages & 7)) & 1, HELD, NEVER)


def _held_by(run: CheckedRun, messages: Array, member: int) -> tuple[Array, Array]:
    """Since when a member holds each message that is due from it; and which one its log, cut short, does not show."""
    unit = run.unit_of.get(member)
    held = np.full(len(messages), NEVER) if unit is None else _since(run, unit, messages)
    held[~_due(run, messages, member)] = HELD
    lost = np.zeros(len(messages), bool)
    if member in run.cut_members:
        lost = held == NEVER
        held[lost] = HELD
    return held, lost


def _due(run: CheckedRun, messages: Array, member: int) -> Array:
    """Which messages were sent in a view that the member belongs to."""
    named = run.membership[member]
    due: Array = named[run.sent_view[messages]] if run.has_views else np.full(len(messages), named[0])
    return due


def _who_lacks(run: CheckedRun, message: int, sender: int, view: int, time: int) -> tuple[int, int]:
    """The smallest member of the view that holds the message too late (2) or never (1)."""
    one = np.array([message])
    for member in sorted(run.views[view].members - {sender}):
        if not _due(run, one, member)[0]:
            continue
        unit = run.unit_of.get(member)
        held = NEVER if unit is None else int(_since(run, unit, one)[0])
        if held > time and not (held == NEVER and member in run.cut_members):
            return (1 if held == NEVER else 2), member
    raise AssertionError("the mark is wrong because some member lacks the message")
