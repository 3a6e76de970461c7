"""Who has handled which message, in which order and in which view.

Of a member that follows a view's line it is enough how far it has come (`follows_to`). Of one off the line there is a
*cell* for each message: from the lowest bits up what it did, the view of its first delivery and that of its first
discard (each plus 1, 0 if there is none), and its own position of the first of these, plus 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.known import Known
from antiphon.pipeline.watch.state import TOTAL, VIEW_SYNCHRONY, WatchedRun

# what a member did with a message; ELSEWHERE: delivered, but not comparable in the message's view
DELIVERED, DISCARDED, ELSEWHERE = 1, 2, 4
DELIVERED_IN: Final = 3  # from this bit on is the view of the delivery
DISCARDED_IN: Final = 15
POSITION: Final = 27
VIEWS_MAX: Final = (1 << 12) - 2  # that fit into a cell; in one beyond these nothing is known to have been handled


@compiled
def follows_to(q: int, m: int, messages: Array, seats: Array) -> bool:
    """Whether a member follows the line of a message, and has come past it."""
    message = messages[m]
    if message.rank < 0:
        return False
    seat = seats[message.seen_in, q]
    return bool(seat.row < 0 and message.rank < seat.come)


@compiled
def position_of(q: int, m: int, cells: Array, messages: Array, seats: Array) -> int:
    """When a member handled a message, in its own order; -1 if it has not."""
    cell = cells[q, m]
    if cell:
        return int((cell >> POSITION) - 1)
    if follows_to(q, m, messages, seats):
        return int(seats[messages[m].seen_in, q].come_from + messages[m].rank)
    return -1


@compiled
def delivered_in(q: int, m: int, cells: Array, messages: Array, seats: Array) -> int:
    """Return the view in which a member first delivered a message; -1 if it has not."""
    cell = cells[q, m]
    if cell:
        return int(((cell >> DELIVERED_IN) & (VIEWS_MAX + 1)) - 1)
    if follows_to(q, m, messages, seats):
        return int(messages[m].seen_in)
    return -1


@compiled
def discarded_in(q: int, m: int, cells: Array) -> int:
    """Return the view in which a member first discarded a message; -1 if it has not."""
    return int(((cells[q, m] >> DISCARDED_IN) & (VIEWS_MAX + 1)) - 1)


@compiled
def on_line(position: int, v: int, known: Known) -> int:
    """Return the cell of a member that delivered a message on a view's line."""
    if v > VIEWS_MAX:
        known.inexact[:] = 1
        return ((position + 1) << POSITION) | DELIVERED
    return ((position + 1) << POSITION) | ((v + 1) << DELIVERED_IN) | DELIVERED


@compiled
def note(q: int, m: int, did: int, known: Known) -> bool:
    """Note what a member off the line did with a message; True if it is the first thing that it did."""
    actor, cells = known.actors[q], known.cells
    actor.off_line = 1
    position = position_of(q, m, cells, known.messages, known.seats)
    first = position < 0
    if first:
        known.messages[m].handled += 1
        cells[q, m] = (actor.next_position + 1) << POSITION
        actor.next_position += 1
    elif not cells[q, m]:  # delivered on the line of an earlier view
        cells[q, m] = on_line(position, known.messages[m].seen_in, known)
    shift = DELIVERED_IN if did == DELIVERED else DISCARDED_IN
    if actor.current > VIEWS_MAX:
        known.inexact[:] = 1
    elif not cells[q, m] & did:
        cells[q, m] |= (actor.current + 1) << shift
    elif discarded_in(q, m, cells) != actor.current:
        known.inexact[VIEW_SYNCHRONY] = 1  # discarded in two views, of which one is known
    cells[q, m] |= did
    return first


@compiled
def leave_line(q: int, v: int, known: Known) -> None:
    """Keep track of a member by itself from here on: of what it delivered, and of the order in which others do.

    What it has in common with a follower is where both began, so nothing that comes later can be in conflict with that.
    """
    seats, messages, pairs = known.seats, known.messages, known.pairs
    if seats[v, q].row >= 0:
        return
    for m in range(messages.size):
        if messages[m].seen_in == v and follows_to(q, m, messages, seats):
            position = position_of(q, m, known.cells, messages, seats)
            known.cells[q, m] = on_line(position, v, known)
    row = 0
    for line in range(known.lines.size):
        row += known.lines[line].left
    for p in range(known.actors.size):
        if seats[v, p].row < 0:
            pairs[row, p].common = min(2, seats[v, p].come, seats[v, q].come)
        else:
            pairs[row, p].differs = pairs[seats[v, p].row, q].differs
    seats[v, q].row = row
    known.lines[v].left += 1
    known.actors[q].off_line = 1


@compiled
def place_delivery(q: int, m: int, known: Known) -> tuple[bool, bool]:
    """Put a delivery where it belongs; returns whether it is the first thing done with it, and if it is on the line."""
    actor, message = known.actors[q], known.messages[m]
    v = actor.current
    line, seat = known.lines[v], known.seats[v, q]
    message.delivered += 1
    if message.seen_in < 0:
        message.seen_in = v
    here = message.seen_in == v
    if here and seat.row < 0 and not known.cells[q, m]:
        if message.rank < 0 and seat.come == line.length:
            message.rank, message.before = line.length, line.last
            line.last = m
            line.length += 1
        if message.rank == seat.come:
            seat.come += 1
            actor.next_position += 1
            message.handled += 1
            return True, True
    leave_line(q, v, known)
    first = note(q, m, DELIVERED, known)
    if not here or not first:  # seen in another view by another, or discarded first: its position says nothing
        known.inexact[TOTAL] = 1
        known.cells[q, m] |= ELSEWHERE
        message.mixed = 1
    return first, False


def views_handled_in(run: WatchedRun) -> Array:
    """Return in which views something that is kept was handled by members off the line."""
    cells = run.cells[run.actors["off_line"] > 0]
    cells = cells[cells > 0]
    found = np.concatenate([cells >> shift & (VIEWS_MAX + 1) for shift in (DELIVERED_IN, DISCARDED_IN)])
    return np.unique(found[found > 0]) - 1


def renumber_views(run: WatchedRun, number: Array) -> None:
    """Give the views that cells name their new numbers; all of them are kept."""
    places = np.append(0, np.maximum(number, 0) + 1)
    for actor in np.flatnonzero(run.actors["off_line"]).tolist():
        cells = run.cells[actor]
        for shift in (DELIVERED_IN, DISCARDED_IN):
            mask = (VIEWS_MAX + 1) << shift
            cells = np.where(cells & mask, cells & ~mask | places[cells >> shift & (VIEWS_MAX + 1)] << shift, cells)
        run.cells[actor] = cells
