"""Judge the rows that wait, as far as the sends of what they deliver are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from antiphon.pipeline.columns import CRASH, DELIVER, DISCARD, END, LEAVE, NULL_TIME, SEND, STABLE, VIEW, Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.spans import span_of
from antiphon.pipeline.watch.state import (
    CAUSAL,
    CAUSAL_EXAMINED,
    CAUSAL_VIOLATIONS,
    CLOSED_NUMBER,
    DELIVERIES,
    GONE,
    HAS_DISCARDS,
    HAS_ENDS,
    HAS_MARKS,
    INTEGRITY,
    LATE,
    NEW_MESSAGE,
    NEW_NODE,
    NEW_PAIR,
    NEWEST_NS,
    NODES,
    NOT_IN,
    NOTHING,
    PERHAPS,
    REPEATED,
    ROWS,
    TOTAL,
    Queue,
    WatchedRun,
    enlarged,
)

# what a member did with a message (`WatchedRun.cells`); ELSEWHERE: delivered, but not comparable in the message's view
DELIVERED, DISCARDED, ELSEWHERE = 1, 2, 4
DID: Final = 3  # bits
HANDLED_UNSENT: Final = 2
SENT_AGAIN, DELIVERED_AGAIN, UNSENT, TOO_LATE, EFFECT_FIRST, ORDERS_DIFFER = range(6)


class AlarmRows(NamedTuple):
    """What was judged and what is wrong: (kind, actor, step, message's sender and number, another actor and number)."""

    rows: Array
    judged: Queue


class Known(NamedTuple):
    """All that judging reads and changes; as in `WatchedRun`."""

    counts: Array
    inexact: Array
    actors: Array
    lines: Array
    seats: Array
    heard: Array
    messages: Array
    nodes: Array
    pairs: Array
    cells: Array
    alarms: Array
    found: Array  # how many alarms there are


def known_of(run: WatchedRun, alarms_max: int) -> Known:
    """What judging works on."""
    alarms = np.zeros((alarms_max, 7), np.int64)
    shared = [getattr(run, name) for name in Known._fields[:-2]]
    return Known._make([*shared, alarms, np.zeros(1, np.int64)])


def advance(run: WatchedRun, patience_ns: int, *, to_the_end: bool = False) -> AlarmRows:
    """Judge all rows that can be; with `to_the_end`, all rows, as if nothing more will come.

    A row that is so much older than the newest one waits no longer for a send: the sender's log may have lost it.
    """
    queue = run.queue
    about = (queue.code == SEND) | (queue.code == DELIVER) | (queue.code == DISCARD)
    message = _number(run, queue, about)
    messages = run.messages
    messages["to_be_sent"] = 0
    messages["to_be_sent"][message[queue.code == SEND]] = 1
    if not run.sends_recorded:
        messages["released"] = np.maximum(messages["released"], 1)
    _make_room(run, int(about.sum()), int((queue.code == VIEW).sum()))
    start = np.searchsorted(queue.actor, np.arange(len(run.ids)))
    stop = np.searchsorted(queue.actor, np.arange(len(run.ids)), side="right")
    cursor = start.copy()
    newest = max(int(queue.time.max(initial=NULL_TIME)), int(run.counts[NEWEST_NS]))
    too_old = NULL_TIME if newest == NULL_TIME else newest - patience_ns
    at_once = int(messages["handled"][messages["sent"] == 0].sum())  # when a send turns up that many have handled
    known = known_of(run, 4 * len(queue.code) + run.pairs.size + at_once)
    read_on(queue, message, cursor, stop, known, too_old, to_the_end, run.sends_recorded, len(run.views) > 1)
    run.pairs = run.pairs[: int(run.lines["left"].sum())].copy()
    left = np.ones(len(queue.code), bool)
    for first, last in zip(start, cursor, strict=True):
        left[first:last] = False
    run.counts[ROWS] += int((~left).sum())
    run.actors["last_ns"][cursor > start] = run.counts[NEWEST_NS]
    run.queue = Queue(*(column[left] for column in queue))
    return AlarmRows(known.alarms[: int(known.found[0])], Queue(*(column[~left] for column in queue)))


def _number(run: WatchedRun, queue: Queue, about: Array) -> Array:
    """Give every message that is live or waits a number; returns that of each row, -1 where it is about none."""
    live, waiting = run.messages, np.flatnonzero(about)
    sender = np.concatenate([live["sender"], queue.sender[waiting]])
    seq = np.concatenate([live["seq"], queue.seq[waiting]])
    _, rank = np.unique(seq, return_inverse=True)
    keys, first, number = np.unique(sender * (len(seq) + 1) + rank, return_index=True, return_inverse=True)
    renumbered = number[: len(live)]
    fresh = np.full(len(keys), NEW_MESSAGE)
    fresh[renumbered] = live
    fresh["sender"], fresh["seq"] = sender[first], seq[first]
    span = span_of(run.retired, fresh["sender"], fresh["seq"])
    fresh["retired"] = span >= 0
    fresh["send_view"][span >= 0] = run.retired[span[span >= 0], 3]
    cells = np.zeros((len(run.ids), len(keys)), np.int64)
    for actor in np.flatnonzero(run.actors["off_line"]).tolist():
        cells[actor, renumbered] = run.cells[actor]
    run.messages, run.cells = fresh, cells
    renumber(run, renumbered)
    message = np.full(len(queue.code), -1, np.int64)
    message[waiting] = number[len(live) :]
    return message


def pointers(run: WatchedRun) -> Iterator[Array]:
    """All fields that point to a message on a line, or are -1."""
    for records, field in (
        (run.actors, "stretch_last"),
        (run.lines, "last"),
        (run.messages, "stretch_last"),
        (run.messages, "before"),
    ):
        yield records[field]


def renumber(run: WatchedRun, number: Array) -> None:
    """Give every message that is pointed to its new number."""
    for pointer in (*pointers(run), run.nodes["message"]):
        pointing = pointer >= 0
        pointer[pointing] = number[pointer[pointing]]


def _make_room(run: WatchedRun, about: int, installed: int) -> None:
    """Room for the nodes and pairs that reading so many rows can need."""
    stretches = int((run.actors["stretch_high"] - run.actors["stretch_low"]).sum())
    run.nodes = np.concatenate([run.nodes, np.zeros(2 * about + stretches + 2 * len(run.ids), NEW_NODE.dtype)])
    run.pairs = enlarged(run.pairs, NEW_PAIR, len(run.pairs) + installed + len(run.ids), len(run.ids))


@compiled
def read_on(
    queue: Queue,
    message: Array,
    cursor: Array,
    stop: Array,
    known: Known,
    too_old: int,
    to_the_end: bool,
    sends_recorded: bool,
    has_views: bool,
) -> None:
    """Advance every member's cursor as far as its deliveries' sends are known."""
    counts, actors, seats, heard, messages = known.counts, known.actors, known.seats, known.heard, known.messages
    moved = True
    while moved:
        moved = False
        for q in range(cursor.size):
            while cursor[q] < stop[q]:
                i = cursor[q]
                code = queue.code[i]
                m = message[i]
                s = queue.sender[i]
                if code in (DELIVER, DISCARD) and not messages[m].sent and not messages[m].retired:
                    over = (actors[s].ended or actors[s].gone) and cursor[s] == stop[s]
                    if not over and not messages[m].released:
                        break
                cursor[q] += 1
                moved = True
                if queue.time[i] > counts[NEWEST_NS]:
                    counts[NEWEST_NS] = queue.time[i]
                if code == SEND:
                    send(q, queue.step[i], queue.time[i], m, known)
                elif code == DELIVER:
                    certain = to_the_end or ((actors[s].ended or actors[s].gone) and cursor[s] == stop[s])
                    deliver(q, queue.step[i], m, known, certain and sends_recorded, has_views)
                elif code == DISCARD:
                    discard(q, queue.step[i], m, known)
                elif code == STABLE:
                    counts[HAS_MARKS] = 1
                    if s >= 0:  # not one that was let go
                        heard[q, s].marked = max(heard[q, s].marked, queue.seq[i])
                elif code == VIEW:
                    install(q, queue.installs[i], queue.time[i], known)
                elif code in (CRASH, LEAVE):
                    actors[q].gone = actors[q].has_left = 1
                    if seats[actors[q].current, q].follows == NOTHING:
                        seats[actors[q].current, q].follows = GONE
                elif code == END:
                    actors[q].ended = counts[HAS_ENDS] = 1
        if not moved:
            moved = release_one(queue, message, cursor, stop, messages, too_old, to_the_end)


@compiled
def release_one(
    queue: Queue, message: Array, cursor: Array, stop: Array, messages: Array, too_old: int, to_the_end: bool
) -> bool:
    """Let one message be handled although its send is not known, if it was waited for long enough; False if none was.

    One of which no send waits itself comes first: behind that send may be all that the others wait for.
    """
    chosen = -1
    for q in range(cursor.size):
        i = cursor[q]
        if i < stop[q] and (to_the_end or NULL_TIME < queue.time[i] < too_old):
            if not messages[message[i]].to_be_sent:
                chosen = message[i]
                break
            chosen = message[i] if chosen < 0 else chosen
    if chosen < 0:
        return False
    messages[chosen].released = 1
    return True


@compiled
def alarm(known: Known, kind: int, q: int, step: int, m: int, other: int, other_seq: int) -> None:
    """Note an alarm about a message."""
    row = known.alarms[known.found[0]]
    row[0], row[1], row[2] = kind, q, step
    row[3], row[4] = known.messages[m].sender, known.messages[m].seq
    row[5], row[6] = other, other_seq
    known.found[0] += 1


# --- who has handled what ---------------------------------------------------------------------------------------------


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
        return int((cell >> DID) - 1)
    if follows_to(q, m, messages, seats):
        return int(seats[messages[m].seen_in, q].come_from + messages[m].rank)
    return -1


@compiled
def note(q: int, m: int, did: int, known: Known) -> bool:
    """Note what a member off the line did with a message; True if it is the first thing that it did."""
    actor = known.actors[q]
    actor.off_line = 1
    first = position_of(q, m, known.cells, known.messages, known.seats) < 0
    if first:
        known.messages[m].handled += 1
        known.cells[q, m] = (actor.next_position + 1) << DID
        actor.next_position += 1
    known.cells[q, m] |= did
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
            known.cells[q, m] = ((position + 1) << DID) | DELIVERED
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


# --- one row ----------------------------------------------------------------------------------------------------------


@compiled
def install(q: int, fresh: int, time: int, known: Known) -> None:
    """A view: its line is followed from the beginning."""
    actor, seats = known.actors[q], known.seats
    left, line = actor.current, known.lines[fresh]
    if fresh == left:
        return
    if seats[left, q].follows == NOTHING:
        seats[left, q].follows = line.serial
    if known.lines[left].ended_ns == NULL_TIME:
        known.lines[left].ended_ns = time
    for p in range(known.actors.size):
        if not seats[fresh, p].belongs:
            seats[left, p].without = 1
    is_back = line.number <= actor.highest_view or not seats[fresh, q].belongs
    if is_back and seats[fresh, q].follows == NOT_IN and line.number <= known.counts[CLOSED_NUMBER]:
        known.inexact[CAUSAL] = known.inexact[TOTAL] = 1  # it may be a view that was closed
    actor.current, actor.gone = fresh, 0
    actor.highest_view = max(actor.highest_view, line.number)
    if seats[fresh, q].come > 0:
        leave_line(q, fresh, known)  # it was there before: its positions do not go on where they were
    seats[fresh, q].follows = NOTHING
    seats[fresh, q].come_from = actor.next_position


@compiled
def send(q: int, step: int, time: int, m: int, known: Known) -> None:
    """A send: it depends on all that its sender delivered since the last, and on that."""
    actor, message = known.actors[q], known.messages[m]
    if message.retired and message.send_view == PERHAPS:
        known.inexact[INTEGRITY] = known.inexact[CAUSAL] = 1
        return
    if message.retired or message.sent:
        known.counts[REPEATED] += 1
        alarm(known, SENT_AGAIN, q, step, m, -1, 0)
        return
    if message.released == HANDLED_UNSENT:
        known.inexact[CAUSAL] = 1  # it was left out of the pasts of those who delivered it
    message.sent, message.send_view, message.send_ns = 1, actor.current, time
    message.past = actor.past
    message.stretch_line, message.stretch_view = actor.stretch_line, actor.stretch_view
    message.stretch_low, message.stretch_high = actor.stretch_low, actor.stretch_high
    message.stretch_last = actor.stretch_last
    actor.stretch_low = actor.stretch_high
    actor.past = -1
    add_to_past(q, m, known)
    if message.handled:  # by some before its send was known
        for p in range(known.actors.size):
            if position_of(p, m, known.cells, known.messages, known.seats) >= 0:
                check_causes(p, step, m, known)


@compiled
def add_to_past(q: int, m: int, known: Known) -> None:
    """Put a message (or ~view) at the head of the list of what a member's next message depends on."""
    at = known.counts[NODES]
    known.nodes[at].message = m
    known.nodes[at].next = known.actors[q].past
    known.actors[q].past = at
    known.counts[NODES] = at + 1


@compiled
def lengthen_stretch(q: int, m: int, known: Known) -> None:
    """Add a message that a follower delivers to what its next message depends on."""
    actor, messages = known.actors[q], known.messages
    line, rank, view = messages[m].seen_in, messages[m].rank, messages[m].send_view
    low, high = actor.stretch_low, actor.stretch_high
    goes_on = low < high and actor.stretch_line == line and high == rank and actor.stretch_view == view
    if low < high and not goes_on:  # one that cannot go on becomes a list
        counted = 0
        at = actor.stretch_last
        while at >= 0 and messages[at].rank >= low:
            add_to_past(q, at, known)
            counted += 1
            at = messages[at].before
        if counted < high - low:
            add_to_past(q, ~actor.stretch_view, known)
    if not goes_on:
        actor.stretch_line, actor.stretch_low, actor.stretch_view = line, rank, view
    actor.stretch_high, actor.stretch_last = rank + 1, m


@compiled
def discard(q: int, step: int, m: int, known: Known) -> None:
    """A discard: it counts as handling, where order of causes is concerned."""
    if known.messages[m].retired:
        return  # it was delivered: a discard after that changes nothing
    known.counts[HAS_DISCARDS] = 1
    leave_line(q, known.actors[q].current, known)
    if note(q, m, DISCARDED, known) and known.messages[m].sent:
        check_causes(q, step, m, known)


@compiled
def deliver(q: int, step: int, m: int, known: Known, certain: bool, has_views: bool) -> None:
    """A delivery: numbers, repeats, causes, and the order in comparison with everyone who has it already."""
    counts, message = known.counts, known.messages[m]
    heard = known.heard[q, message.sender]
    counts[DELIVERIES] += 1
    if message.seq > heard.highest:
        heard.highest = message.seq
    elif message.seq < heard.highest:
        counts[LATE] += 1
        alarm(known, TOO_LATE, q, step, m, -1, heard.highest)
    if message.retired and not delivered_what_is_retired(q, m, known):
        for guarantee in (INTEGRITY, CAUSAL, TOTAL):
            known.inexact[guarantee] = 1
        return
    if message.retired or known.cells[q, m] & DELIVERED or follows_to(q, m, known.messages, known.seats):
        counts[REPEATED] += 1
        alarm(known, DELIVERED_AGAIN, q, step, m, -1, 0)
        return
    exists = message.sent or message.to_be_sent
    if not exists:
        message.released = HANDLED_UNSENT
        if certain:
            alarm(known, UNSENT, q, step, m, -1, 0)
    first, on_line = place_delivery(q, m, known)
    if first and message.sent:
        check_causes(q, step, m, known)
    if on_line and message.sent:
        lengthen_stretch(q, m, known)
    elif exists:
        add_to_past(q, m, known)
        if has_views and not message.sent:
            known.inexact[CAUSAL] = 1  # the view in which it will be sent is not known yet
    if known.lines[known.actors[q].current].left and not known.cells[q, m] & ELSEWHERE:
        compare_orders(q, step, m, known)


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
    return first, False


@compiled
def compare_orders(q: int, step: int, m: int, known: Known) -> None:
    """Compare a delivery with those of the message in the same view by others, unless both follow the line."""
    seats, messages, pairs, cells = known.seats, known.messages, known.pairs, known.cells
    v = known.actors[q].current
    mine = seats[v, q].row
    here = position_of(q, m, cells, messages, seats) + 1
    for p in range(known.actors.size):
        its = seats[v, p].row
        if p == q or (mine < 0 and its < 0) or (mine >= 0 and pairs[mine, p].differs):
            continue
        did = cells[p, m]
        if did & ELSEWHERE or not (did & DELIVERED or follows_to(p, m, messages, seats)):
            continue
        there = position_of(p, m, cells, messages, seats) + 1
        if mine >= 0 and (its < 0 or mine < its):
            pair = pairs[mine, p]
            in_order = pair.there <= there
            pair.here, pair.there = max(pair.here, here), max(pair.there, there)
        else:
            pair = pairs[its, q]
            in_order = pair.here <= there
            pair.here, pair.there = max(pair.here, there), max(pair.there, here)
        pair.common = min(2, pair.common + 1)
        if not in_order and not pair.differs:
            pair.differs = 1
            if mine >= 0 and its >= 0:
                pairs[max(mine, its), q if its > mine else p].differs = 1
            alarm(known, ORDERS_DIFFER, q, step, m, p, 0)


@compiled
def delivered_what_is_retired(q: int, m: int, known: Known) -> bool:
    """Whether a member must have delivered a retired message: it was sent to it, and nobody discards."""
    view = known.messages[m].send_view
    if view < 0 or known.actors[q].gone or known.counts[HAS_DISCARDS]:
        return False
    seat = known.seats[view, q]
    return bool(seat.belongs and not seat.overlooked)


@compiled
def check_causes(q: int, step: int, m: int, known: Known) -> None:
    """Whether a member had handled all direct predecessors of a message when it handled the message."""
    messages, nodes, seats, cells = known.messages, known.nodes, known.seats, known.cells
    message = messages[m]
    here = position_of(q, m, cells, messages, seats)
    counted = False
    cause = -1
    at = message.past
    while at >= 0:
        x = nodes[at].message
        at = nodes[at].next
        if x < 0:
            if seats[~x, q].belongs:
                counted = True
                if seats[~x, q].overlooked:
                    known.inexact[CAUSAL] = 1  # whether it had handled that is not known
        elif not messages[x].sent and known.lines.size > 1:
            known.inexact[CAUSAL] = 1  # the view in which it will be sent is not known yet
        elif x != m and seats[messages[x].send_view, q].belongs:
            counted = True
            there = position_of(q, x, cells, messages, seats)
            if there < 0 or there > here:
                cause = x
    low, high = message.stretch_low, message.stretch_high
    if low < high and seats[message.stretch_view, q].belongs:
        counted = True
        seat = seats[message.stretch_line, q]
        x = message.stretch_last
        if seat.row < 0 and seat.come >= high and seat.come_from + high <= here:
            x = -1  # it came past all of them before
        elif seats[message.stretch_view, q].overlooked:
            known.inexact[CAUSAL] = 1
        while x >= 0 and messages[x].rank >= low:
            there = position_of(q, x, cells, messages, seats)
            if there < 0 or there > here:
                cause = x
            x = messages[x].before
    known.counts[CAUSAL_EXAMINED] += counted
    if cause >= 0:
        known.counts[CAUSAL_VIOLATIONS] += 1
        alarm(known, EFFECT_FIRST, q, step, m, messages[cause].sender, messages[cause].seq)
