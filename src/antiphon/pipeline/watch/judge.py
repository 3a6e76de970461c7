"""Judge the rows that wait, as far as the sends of what they deliver are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from antiphon.pipeline.columns import CRASH, DELIVER, DISCARD, END, LEAVE, NULL_TIME, SEND, STABLE, VIEW, Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.causes import add_to_past, check_causes, lengthen_stretch
from antiphon.pipeline.watch.handling import (
    DELIVERED,
    DISCARDED,
    ELSEWHERE,
    follows_to,
    leave_line,
    note,
    place_delivery,
    position_of,
)
from antiphon.pipeline.watch.known import (
    DELIVERED_AGAIN,
    SENT_AGAIN,
    TOO_LATE,
    UNSENT,
    AlarmRows,
    Known,
    alarm,
    known_of,
)
from antiphon.pipeline.watch.obligations import GIVEN_UP, OPEN
from antiphon.pipeline.watch.orders import compare_orders
from antiphon.pipeline.watch.spans import span_of
from antiphon.pipeline.watch.state import (
    AGREEMENT,
    CAUSAL,
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
    NOT_IN,
    NOTHING,
    PERHAPS,
    REPEATED,
    ROWS,
    TOTAL,
    VALIDITY,
    VIEW_SYNCHRONY,
    Queue,
    WatchedRun,
    enlarged,
)

HANDLED_UNSENT: Final = 2


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
    topical = np.array([word.kind == "" and word.topic is not None for word in run.words] + [False])[queue.words]
    whole = _whole(run, queue) & to_the_end
    read_on(
        queue, message, topical, cursor, stop, known, too_old, to_the_end, whole, run.sends_recorded, len(run.views) > 1
    )
    run.pairs = run.pairs[: int(run.lines["left"].sum())].copy()
    left = np.ones(len(queue.code), bool)
    for first, last in zip(start, cursor, strict=True):
        left[first:last] = False
    run.counts[ROWS] += int((~left).sum())
    run.actors["last_ns"][cursor > start] = run.counts[NEWEST_NS]
    run.queue = Queue(*(column[left] for column in queue))
    return AlarmRows(known.alarms[: int(known.found[0])], Queue(*(column[~left] for column in queue)))


def _whole(run: WatchedRun, queue: Queue) -> Array:
    """Whose log lacks nothing, if nothing more comes: who says farewell, or all where nobody does."""
    says = run.has_ends or bool((queue.code == END).any())
    whole: Array = (run.actors["ended"] > 0) | (run.actors["has_left"] > 0) | (not says)
    whole[queue.actor[np.isin(queue.code, (END, LEAVE, CRASH))]] = True
    return whole


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
    topical: Array,
    cursor: Array,
    stop: Array,
    known: Known,
    too_old: int,
    to_the_end: bool,
    whole: Array,
    sends_recorded: bool,
    has_views: bool,
) -> None:
    """Advance every member's cursor as far as its deliveries' sends are known."""
    counts, actors, heard, messages = known.counts, known.actors, known.heard, known.messages
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
                    send(q, queue.step[i], queue.time[i], m, topical[i], known)
                elif code == DELIVER:
                    certain = whole[s] or ((actors[s].ended or actors[s].gone) and cursor[s] == stop[s])
                    deliver(q, queue.step[i], m, topical[i], known, certain and sends_recorded, has_views)
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
                    go_on(actors[q].current, q, GONE, 0, known)
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


# --- one row ----------------------------------------------------------------------------------------------------------


@compiled
def go_on(v: int, q: int, to: int, number: int, known: Known) -> None:
    """Note what follows a view at a member, the first time."""
    seat = known.seats[v, q]
    if seat.follows == NOTHING:
        seat.follows, seat.next_number = to, number
        if seat.unsure & OPEN:
            known.inexact[AGREEMENT] = 1  # it was thought that nothing would follow
        if seat.unsure & GIVEN_UP:
            known.inexact[AGREEMENT] = known.inexact[VIEW_SYNCHRONY] = known.inexact[TOTAL] = 1


@compiled
def install(q: int, fresh: int, time: int, known: Known) -> None:
    """A view: its line is followed from the beginning."""
    actor, seats = known.actors[q], known.seats
    left, line = actor.current, known.lines[fresh]
    if fresh == left:
        return
    if seats[left, q].overlooked and seats[left, q].follows == NOTHING:
        known.inexact[AGREEMENT] = known.inexact[VIEW_SYNCHRONY] = 1  # what it lacks there is no longer known
    go_on(left, q, line.serial, line.number, known)
    if known.lines[left].ended_ns == NULL_TIME:
        known.lines[left].ended_ns = time
    for p in range(known.actors.size):
        if not seats[fresh, p].belongs:
            seats[left, p].without = 1
    is_back = line.number <= actor.highest_view or not seats[fresh, q].belongs
    if is_back and seats[fresh, q].follows == NOT_IN and line.number <= known.counts[CLOSED_NUMBER]:
        for guarantee in (AGREEMENT, CAUSAL, TOTAL, VIEW_SYNCHRONY):
            known.inexact[guarantee] = 1  # it may be a view that was closed
    actor.current, actor.gone = fresh, 0
    actor.highest_view = max(actor.highest_view, line.number)
    if seats[fresh, q].come > 0:
        leave_line(q, fresh, known)  # it was there before: its positions do not go on where they were
    if seats[fresh, q].unsure & OPEN or seats[fresh, q].accompanied:
        known.inexact[AGREEMENT] = known.inexact[VIEW_SYNCHRONY] = 1  # it is back where it was thought to be gone from
    seats[fresh, q].follows = NOTHING
    seats[fresh, q].installed = 1
    seats[fresh, q].come_from = actor.next_position


@compiled
def send(q: int, step: int, time: int, m: int, topical: bool, known: Known) -> None:
    """A send: it depends on all that its sender delivered since the last, and on that."""
    actor, message = known.actors[q], known.messages[m]
    if message.retired and message.send_view == PERHAPS:
        known.inexact[INTEGRITY] = known.inexact[VALIDITY] = known.inexact[CAUSAL] = 1
        return
    if message.retired or message.sent:
        known.counts[REPEATED] += 1
        alarm(known, SENT_AGAIN, q, step, m, -1, 0)
        return
    if message.released == HANDLED_UNSENT:
        known.inexact[CAUSAL] = 1  # it was left out of the pasts of those who delivered it
    message.sent, message.send_view, message.send_ns = 1, actor.current, time
    if not topical:
        message.own = 1
        actor.own_sent += 1
        actor.own_handled += position_of(q, m, known.cells, known.messages, known.seats) >= 0
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
def discard(q: int, step: int, m: int, known: Known) -> None:
    """A discard: it counts as handling, where order of causes is concerned."""
    if known.messages[m].retired:  # it was delivered: a discard after that changes nothing, or hardly anything
        if known.seats[known.actors[q].current, q].unsure:
            known.inexact[AGREEMENT] = known.inexact[VIEW_SYNCHRONY] = 1
        if not delivered_what_is_retired(q, m, known):
            known.inexact[CAUSAL] = 1  # it may be the first that it does with it
        return
    known.counts[HAS_DISCARDS] = 1
    message = known.messages[m]
    message.mixed = 1
    leave_line(q, known.actors[q].current, known)
    if note(q, m, DISCARDED, known):
        if not message.sent and not message.to_be_sent:
            message.released = HANDLED_UNSENT  # what happens before it may be forgotten when its send comes
        known.actors[q].own_handled += message.own and message.sender == q
        if message.sent:
            check_causes(q, step, m, known)


@compiled
def deliver(q: int, step: int, m: int, topical: bool, known: Known, certain: bool, has_views: bool) -> None:
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
        for guarantee in (INTEGRITY, AGREEMENT, CAUSAL, TOTAL, VIEW_SYNCHRONY):
            known.inexact[guarantee] = 1
        known.inexact[VALIDITY] |= message.sender == q
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
    seat = known.seats[known.actors[q].current, q]
    seat.delivered += 1
    seat.obliging += not topical
    message.obliges |= 2 if topical else 1
    known.actors[q].own_handled += first and message.own and message.sender == q
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
def delivered_what_is_retired(q: int, m: int, known: Known) -> bool:
    """Whether a member must have delivered a retired message: it was sent to it, and nobody discards."""
    view = known.messages[m].send_view
    if view < 0 or known.actors[q].gone or known.counts[HAS_DISCARDS]:
        return False
    seat = known.seats[view, q]
    return bool(seat.belongs and not seat.overlooked)
