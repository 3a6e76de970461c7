"""Take in new rows of a run: put them behind those of their members that wait."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from antiphon.errors import UsageError
from antiphon.pipeline.columns import RECEIVE, STABLE, Array
from antiphon.pipeline.watch.consumers import BrokerWords
from antiphon.pipeline.watch.forget import was_let_go
from antiphon.pipeline.watch.state import (
    AGREEMENT,
    CAUSAL,
    TOTAL,
    VIEW_SYNCHRONY,
    Queue,
    WatchedRun,
    WatchedView,
    make_room,
)
from antiphon.trace.schema import EVENTS

ACTORS_MAX: Final = 2048
NO_ONE: Final = -(1 << 40)  # the sender of a row that names none


LISTS: Final = ("views", "said")  # of NewRows, what is no array


class NewRows(NamedTuple):
    """New rows of one run, in any order; ids as in the trace."""

    member: Array
    step: Array
    code: Array
    sender: Array
    seq: Array
    time: Array  # NULL_TIME where unknown
    view: Array  # of a view row: an index into `views`
    words: Array  # an index into `said`, -1 of a row that has nothing to do with a broker
    offset: Array  # in its partition, NO_OFFSET where unknown
    views: list[WatchedView]
    said: list[BrokerWords]


def take_in(run: WatchedRun, rows: NewRows, roster: set[int]) -> list[int]:
    """Put new rows behind those that wait; returns the codes of those that were not taken in.

    These have a step that their member has used, or has passed: a trace is read forwards only.
    """
    known = dict(zip(run.ids, range(len(run.ids)), strict=True))
    logs = {one for one, has in zip(run.ids, run.actors["has_log"], strict=True) if has}
    fresh_logs = (set(np.unique(rows.member).tolist()) | roster) - logs
    about = rows.sender != NO_ONE
    named = np.unique([one for view in rows.views for one in view.members or ()]).astype(np.int64)
    handled = about & (rows.code != RECEIVE) & (rows.code != STABLE)
    back = np.setdiff1d(np.concatenate([np.unique(rows.member), np.unique(rows.sender[handled])]), run.ids)
    if was_let_go(run, back).any():
        run.leave_open()  # all that was known of it is forgotten
    marked = np.setdiff1d(np.unique(rows.sender[about]), back)
    for one in [*sorted(fresh_logs), *back.tolist(), *_still_here(run, marked), *_still_here(run, named)]:
        if one not in known:
            known[one] = len(run.ids)
            run.ids.append(one)
    if len(run.ids) > ACTORS_MAX:
        raise UsageError(
            f"run {run.name}: {len(run.ids):,} members and senders at one time; a watch keeps what grows with "
            f"their square, up to {ACTORS_MAX:,}: use antiphon check"
        )
    view_of = {view: number for number, view in enumerate(run.views)}
    for view in rows.views:
        if view not in view_of:
            _note_same(run, view)
            view_of[view] = len(run.views)
            run.views.append(view)
    make_room(run, logs | fresh_logs)
    if run.retired_initially and fresh_logs:  # what they should have handled is no longer known
        run.seats["overlooked"][0, [known[one] for one in fresh_logs]] = 1

    ids = np.array(run.ids, np.int64)
    by_id = np.argsort(ids)
    actor = by_id[np.searchsorted(ids, rows.member, sorter=by_id)]
    about &= np.isin(rows.sender, ids)  # there may be marks of messages of who was let go
    sender = np.full(len(actor), -1, np.int64)
    sender[about] = by_id[np.searchsorted(ids, rows.sender[about], sorter=by_id)]
    installed = np.array([*(view_of[view] for view in rows.views), 0], np.int64)[rows.view]
    name = np.argsort(np.argsort(np.array(EVENTS)))[rows.code]
    order = np.lexsort((rows.seq, sender, name, rows.step, actor))  # of one step, the smallest (event, sender, seq)
    again = np.zeros(len(order), bool)
    again[1:] = (np.diff(actor[order]) == 0) & (np.diff(rows.step[order]) == 0)
    fresh = order[~again & (rows.step[order] > run.actors["last_step"][actor[order]])]
    words = _known_words(run, rows)
    columns = (actor, rows.code, sender, rows.seq, rows.step, rows.time, installed, words, rows.offset)
    joined = [np.concatenate([old, new[fresh].astype(np.int64)]) for old, new in zip(run.queue, columns, strict=True)]
    in_order = np.argsort(joined[0], kind="stable")  # what is new has later steps
    run.queue = Queue(*(column[in_order] for column in joined))
    np.maximum.at(run.actors["last_step"], actor[fresh], rows.step[fresh])
    left_out = np.ones(len(order), bool)
    left_out[fresh] = False
    return [int(code) for code in rows.code[left_out]]


def _note_same(run: WatchedRun, view: WatchedView) -> None:
    """Note if a view may be the same as another: one that names nobody has the members that have logs in the end."""
    for other in run.views:
        if other.number == view.number and (other.members is None) != (view.members is None):
            affected = (AGREEMENT, VIEW_SYNCHRONY) if view.number == 0 else (AGREEMENT, VIEW_SYNCHRONY, CAUSAL, TOTAL)
            for guarantee in affected:
                run.inexact[guarantee] = 1


def _known_words(run: WatchedRun, rows: NewRows) -> Array:
    """Return each row's index into what rows of the run say of brokers."""
    known = {words: at for at, words in enumerate(run.words)}
    number = np.array([*(known.setdefault(words, len(known)) for words in rows.said), -1], np.int64)
    run.words = list(known)
    result: Array = number[rows.words]
    return result


def _still_here(run: WatchedRun, ids: Array) -> list[int]:
    """All of these that were not let go."""
    return [int(one) for one in ids[~was_let_go(run, ids)]]
