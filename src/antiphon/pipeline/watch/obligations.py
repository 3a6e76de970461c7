"""What members owe each other for messages that are kept: who lacks what another delivered in a view that both were in.

A message obliges whoever goes on together with one that delivered it (agreement), and should have been delivered in
the same view by all who install the next one together (view-synchrony). As long as a view is not over, what is found
here may still change.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.handling import delivered_in, discarded_in, position_of
from antiphon.pipeline.watch.state import GONE, NOT_IN, NOTHING, WatchedRun

_AT_ONCE: Final = 256  # messages that are looked at before it is seen whether that was enough
PLAIN, WITH_TOPIC = 1, 2  # how a message was delivered (`messages.obliges`)
GIVEN_UP = 4  # `seats.unsure`: the actor counted as departed when its view was over
OPEN, SPLIT = 1, 2  # `seats.unsure`: what follows decides who owes what was let go; a difference in the view names it


class Owing(NamedTuple):
    """What was found."""

    missing: Array  # rows (actor that lacks it, message, who obliges it, view)
    splits: Array  # rows (view, actor, another, which of them delivered, message) of those who differ
    may_owe: Array  # by actor: something is missing that it owes if its log was cut short
    hides: Array  # actor by actor: something is missing at the second that it owes if the first's log was cut short


def owing(run: WatchedRun, chosen: Array, over: Array, *, note: bool = False) -> Owing:
    """Return who lacks which of these messages; `over`: the views in which nothing more happens.

    With `note`, the messages are about to be let go: note of whom it must not change what follows a view.
    """
    count = len(run.ids)
    may_owe, hides = np.zeros(count, np.int64), np.zeros((count, count), np.int8)
    ids, has_log = np.array(run.ids, np.int64), run.actors["has_log"] > 0
    missing, splits = np.zeros((0, 4), np.int64), np.zeros((0, 5), np.int64)
    at = np.flatnonzero(chosen)
    if len(at):
        for _ in range(2):  # first to see how many there are
            lacking, differing = find_owing(
                at, over, ids, has_log, run.cells, run.messages, run.seats, run.lines, missing, splits, may_owe, hides
            )
            if lacking <= len(missing) and differing <= len(splits):
                break
            missing, splits = np.zeros((lacking, 4), np.int64), np.zeros((differing, 5), np.int64)
        if note:
            note_unsure(at, over, has_log, run.cells, run.messages, run.seats)
    return Owing(missing, splits, may_owe, hides)


def is_anything_owed(run: WatchedRun, chosen: Array) -> bool:
    """Whether anybody lacks one of these messages, as things are now."""
    nobody = np.zeros(len(run.ids), np.int64)
    rows = np.zeros((0, 4), np.int64), np.zeros((0, 5), np.int64)
    over, hides = np.ones(len(run.views), bool), np.zeros((len(run.ids), len(run.ids)), np.int8)
    ids, has_log = np.array(run.ids, np.int64), run.actors["has_log"] > 0
    for part in np.array_split(np.flatnonzero(chosen), max(1, len(run.messages) // 1000)):
        found = find_owing(
            part, over, ids, has_log, run.cells, run.messages, run.seats, run.lines, *rows, nobody, hides
        )
        if found[0]:
            return True
    return False


@compiled
def find_owing(
    chosen: Array,
    over: Array,
    ids: Array,
    has_log: Array,
    cells: Array,
    messages: Array,
    seats: Array,
    lines: Array,
    missing: Array,
    splits: Array,
    may_owe: Array,
    hides: Array,
) -> tuple[int, int]:
    """Fill in who lacks what, as far as there is room; returns how many rows there are of each kind."""
    lacking = differing = 0
    where = np.zeros(ids.size, np.int64)
    for m in chosen:
        for q in range(ids.size):
            where[q] = delivered_in(q, m, cells, messages, seats)
        for first in range(ids.size):
            v = where[first]
            if v < 0 or (where[:first] == v).any():
                continue  # each view once
            for q in range(ids.size):
                if where[q] == v:
                    continue
                if messages[m].obliges & PLAIN and position_of(q, m, cells, messages, seats) < 0:
                    p = obliged_by(q, v, where, ids, has_log, seats, lines, may_owe, hides)
                    if p >= 0:
                        if lacking < len(missing):
                            row = missing[lacking]
                            row[0], row[1], row[2], row[3] = q, m, p, v
                        lacking += 1
                if discarded_in(q, m, cells) == v or not has_log[q]:
                    continue
                for p in range(ids.size):
                    if where[p] == v and go_on_alike(seats[v, p], seats[v, q], over[v]):
                        if differing < len(splits):
                            row = splits[differing]
                            row[0], row[1], row[2], row[3], row[4] = v, min(p, q), max(p, q), p, m
                        differing += 1
    return lacking, differing


@compiled
def obliged_by(
    q: int, v: int, where: Array, ids: Array, has_log: Array, seats: Array, lines: Array, may_owe: Array, hides: Array
) -> int:
    """Return who obliges a member by a delivery in a view, the one with the smallest id; -1 if nobody does."""
    follows = seats[v, q].follows if has_log[q] else NOT_IN
    found = -1
    for p in range(ids.size):
        next_of_p = seats[v, p].follows
        if where[p] != v or next_of_p == GONE or follows == GONE:
            continue
        if follows == next_of_p:
            if found < 0 or ids[p] < ids[found]:
                found = p
        elif follows == NOTHING or (follows == NOT_IN and seats[v, q].belongs):
            if next_of_p == NOTHING or names(next_of_p, q, v, seats, lines):
                may_owe[q] = 1
        elif follows >= 0 and next_of_p == NOTHING and names(follows, p, v, seats, lines):
            hides[p, q] = 1
    return found


@compiled
def names(serial: int, q: int, v: int, seats: Array, lines: Array) -> bool:
    """Whether the view that follows another names a member; of one that is closed, as far as it is known."""
    for view in range(lines.size):
        if lines[view].serial == serial and view > 0:
            return bool(seats[view, q].belongs)
    return not seats[v, q].without


@compiled
def go_on_alike(one: Any, other: Any, over: bool) -> bool:
    """Whether the same view follows at both seats or, where the view is not over, may yet."""
    if over:
        return bool(one.installed and other.installed and one.follows == other.follows >= 0)
    if one.follows == GONE or other.follows == GONE:
        return False
    may_come = other.installed or (other.follows == NOT_IN and other.belongs)
    undecided = one.follows == NOTHING or other.follows in (NOTHING, NOT_IN)
    return bool(one.installed and may_come and (undecided or one.follows == other.follows))


@compiled
def note_unsure(chosen: Array, over: Array, has_log: Array, cells: Array, messages: Array, seats: Array) -> None:
    """Note of whom it must not change what follows a view in which one of these messages was delivered."""
    where = np.zeros(has_log.size, np.int64)
    for m in chosen:
        for q in range(where.size):
            where[q] = delivered_in(q, m, cells, messages, seats)
        for first in range(where.size):
            v = where[first]
            if v < 0 or (where[:first] == v).any():
                continue
            lacking = False
            for q in range(where.size):
                seat = seats[v, q]
                if where[q] == v or (seat.follows == NOT_IN and not seat.belongs):
                    continue
                seat.unsure |= SPLIT
                owes = messages[m].obliges & PLAIN and position_of(q, m, cells, messages, seats) < 0
                lacking = lacking or owes
                may_return = seat.follows == GONE or (seat.follows == NOT_IN and over[v])
                if may_return or (owes and seat.follows < 0):
                    seat.unsure |= OPEN
            for p in range(where.size):
                if lacking and where[p] == v and seats[v, p].follows == NOTHING:
                    seats[v, p].unsure |= OPEN


@compiled
def strike_unsettled(
    over: Array, expected: Array, views_over: Array, cells: Array, messages: Array, seats: Array, odd: Array
) -> None:
    """Strike out the messages that somebody has yet to handle, or may owe as soon as a view ends.

    `odd` gets those that not all have delivered alike, of which nothing more can be said: they are over, or the views
    in which they were delivered are.
    """
    actors = expected.shape[1]
    for m in range(over.size):
        message = messages[m]
        v = message.seen_in
        ended = v >= 0 and views_over[v]
        for q in range(actors if message.mixed else 0):
            w = delivered_in(q, m, cells, messages, seats)
            ended = ended and (w < 0 or views_over[w])
        is_odd = message.mixed > 0
        for q in range(actors):
            if not over[m] and not ended:
                break
            if position_of(q, m, cells, messages, seats) >= 0:
                continue
            if expected[message.send_view, q]:
                over[m] = False
            if v < 0:
                continue
            is_odd = is_odd or is_due(v, q, seats)
            if message.obliges & PLAIN and not ended:
                if not views_over[v] and is_due(v, q, seats):
                    over[m] = False
                for p in range(actors if message.mixed else 0):
                    w = delivered_in(p, m, cells, messages, seats)
                    if w >= 0 and not views_over[w] and is_due(w, q, seats):
                        over[m] = False
        odd[m] = is_odd and (over[m] or ended)


@compiled
def is_due(v: int, q: int, seats: Array) -> bool:
    """Whether a member may owe what is delivered in a view: it was there, or is named, and has not gone."""
    seat = seats[v, q]
    return bool((seat.belongs or seat.follows != NOT_IN) and seat.follows != GONE)
