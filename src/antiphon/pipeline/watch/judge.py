"""Read on: take in new rows of a run, judge what can be judged, and let go of what is settled."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from antiphon.errors import UsageError
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.layout import (
    CRASH,
    DELIVER,
    DISCARD,
    END,
    LEAVE,
    NULL_TIME,
    SEND,
    STABLE,
    VIEW,
    Array,
)
from antiphon.pipeline.watch.state import (
    CAUSAL,
    CAUSAL_EXAMINED,
    CAUSAL_VIOLATIONS,
    DELIVERIES,
    GONE,
    HAS_DISCARDS,
    HAS_MARKS,
    INTEGRITY,
    LATE,
    NEWEST_NS,
    NODES,
    NOTHING,
    REPEATED,
    ROWS,
    TOTAL,
    Group,
    Messages,
    Nodes,
    Queue,
    Run,
    View,
    empty_messages,
    grown,
)
from antiphon.trace.schema import EVENTS

ACTORS_MAX: Final = 2048
DELIVERED, DISCARDED = 1, 2
HANDLED_UNSENT: Final = 2
SENT_AGAIN, DELIVERED_AGAIN, UNSENT, TOO_LATE, EFFECT_FIRST, ORDERS_DIFFER = range(6)


class Rows(NamedTuple):
    """New rows of one run, in any order; ids as in the trace."""

    member: Array
    step: Array
    code: Array
    sender: Array
    seq: Array
    time: Array  # NULL_TIME where unknown
    view: Array  # of a view row: an index into `views`
    views: list[View]


class Alarms(NamedTuple):
    """What is wrong: (kind, actor, step, message's sender and number, another actor, another's number)."""

    rows: Array


def take_in(run: Run, rows: Rows, roster: set[int]) -> list[int]:
    """Put new rows behind those that wait; returns the codes of those that were not taken in.

    These have a step that their member has used, or has passed: a trace is read forwards only.
    """
    known = dict(zip(run.ids, range(len(run.ids)), strict=True))
    logs = {one for one, has in zip(run.ids, run.group.has_log, strict=True) if has}
    fresh_logs = (set(np.unique(rows.member).tolist()) | roster) - logs
    if run.retired_initially and fresh_logs:
        run.group.inexact[:] = 1  # what it should have handled is no longer known
    about = (rows.code <= DISCARD) & (rows.sender != NO_ONE)
    named = [one for view in rows.views for one in view.members or ()]
    for one in [*sorted(fresh_logs), *np.unique(rows.sender[about]).tolist(), *named]:
        if one not in known:
            known[one] = len(run.ids)
            run.ids.append(one)
    if len(run.ids) > ACTORS_MAX:
        raise UsageError(
            f"run {run.name}: {len(run.ids):,} members and senders; a watch keeps what grows with their square, "
            f"up to {ACTORS_MAX:,}: use antiphon check"
        )
    view_of = {view: number for number, view in enumerate(run.views)}
    for view in rows.views:
        if view not in view_of:
            view_of[view] = len(run.views)
            run.views.append(view)
    run.group = grown(run.group, run.ids, run.views, logs | fresh_logs)
    run.messages = _widened(run.messages, len(run.ids), len(run.views))

    ids = np.array(run.ids, np.int64)
    by_id = np.argsort(ids)
    actor = by_id[np.searchsorted(ids, rows.member, sorter=by_id)]
    sender = np.full(len(actor), -1, np.int64)
    sender[about] = by_id[np.searchsorted(ids, rows.sender[about], sorter=by_id)]
    installed = np.array([*(view_of[view] for view in rows.views), 0], np.int64)[rows.view]
    name = np.argsort(np.argsort(np.array(EVENTS)))[rows.code]
    order = np.lexsort((rows.seq, sender, name, rows.step, actor))  # of one step, the smallest (event, sender, seq)
    again = np.zeros(len(order), bool)
    again[1:] = (np.diff(actor[order]) == 0) & (np.diff(rows.step[order]) == 0)
    fresh = order[~again & (rows.step[order] > run.group.last_step[actor[order]])]
    columns = (actor, rows.code, sender, rows.seq, rows.step, rows.time, installed)
    joined = [np.concatenate([old, new[fresh].astype(np.int64)]) for old, new in zip(run.queue, columns, strict=True)]
    in_order = np.argsort(joined[0], kind="stable")  # what is new has later steps
    run.queue = Queue(*(column[in_order] for column in joined))
    np.maximum.at(run.group.last_step, actor[fresh], rows.step[fresh])
    left_out = np.ones(len(order), bool)
    left_out[fresh] = False
    return [int(code) for code in rows.code[left_out]]


NO_ONE: Final = -(1 << 40)  # the sender of a row that names none


def _widened(messages: Messages, actors: int, views: int) -> Messages:
    wide = empty_messages(len(messages.seq), actors, views)
    for old, new in zip(messages, wide, strict=True):
        new[tuple(slice(0, size) for size in old.shape)] = old
    return wide


def advance(run: Run, patience_ns: int, *, to_the_end: bool = False) -> Alarms:
    """Judge all rows that can be; with `to_the_end`, all rows, as if nothing more will come.

    A row that is so much older than the newest one waits no longer for a send: the sender's log may have lost it.
    """
    queue = run.queue
    about = (queue.code == SEND) | (queue.code == DELIVER) | (queue.code == DISCARD)
    message = _number(run, queue, about)
    messages, group = run.messages, run.group
    messages.to_be_sent[:] = 0
    messages.to_be_sent[message[queue.code == SEND]] = 1
    more = int(about.sum())
    run.nodes = Nodes(*(np.concatenate([column, np.zeros(more, np.int64)]) for column in run.nodes))
    start = np.searchsorted(queue.actor, np.arange(len(run.ids)))
    stop = np.searchsorted(queue.actor, np.arange(len(run.ids)), side="right")
    alarms = np.zeros((4 * len(queue.code) + group.differs.size + 16, 7), np.int64)
    cursor = start.copy()
    newest = max(int(queue.time.max(initial=NULL_TIME)), int(group.counts[NEWEST_NS]))
    too_old = NULL_TIME if newest == NULL_TIME else newest - patience_ns
    found = read_on(
        queue, message, cursor, stop, group, messages, run.nodes, alarms, too_old, to_the_end, len(run.views) > 1
    )
    left = np.ones(len(queue.code), bool)
    for first, last in zip(start, cursor, strict=True):
        left[first:last] = False
    group.counts[ROWS] += int((~left).sum())
    run.queue = Queue(*(column[left] for column in queue))
    return Alarms(alarms[: min(found, len(alarms))])


def _number(run: Run, queue: Queue, about: Array) -> Array:
    """Give every message that is live or waits a number; returns that of each row, -1 where it is about none."""
    live, waiting = run.messages, np.flatnonzero(about)
    sender = np.concatenate([live.sender, queue.sender[waiting]])
    seq = np.concatenate([live.seq, queue.seq[waiting]])
    _, rank = np.unique(seq, return_inverse=True)
    keys, first, number = np.unique(sender * (len(seq) + 1) + rank, return_index=True, return_inverse=True)
    place = number[: len(live.seq)]
    fresh = empty_messages(len(keys), len(run.ids), len(run.views))
    for old, new in zip(live, fresh, strict=True):
        new[place] = old
    fresh.sender[:], fresh.seq[:] = sender[first], seq[first]
    fresh.retired[:] = _is_retired(run.retired, fresh.sender, fresh.seq)
    run.nodes = Nodes(place[run.nodes.message], run.nodes.next)
    run.messages = fresh
    message = np.full(len(queue.code), -1, np.int64)
    message[waiting] = number[len(live.seq) :]
    return message


def _is_retired(spans: Array, sender: Array, seq: Array) -> Array:
    if not len(spans):
        return np.zeros(len(seq), bool)
    result = np.zeros(len(seq), bool)
    for actor in np.unique(spans[:, 0]).tolist():
        mine = spans[spans[:, 0] == actor]
        chosen = np.flatnonzero(sender == actor)
        at = np.searchsorted(mine[:, 1], seq[chosen], side="right") - 1
        result[chosen] = (at >= 0) & (seq[chosen] <= mine[np.maximum(at, 0), 2])
    return result


@compiled
def read_on(
    queue: Queue,
    message: Array,
    cursor: Array,
    stop: Array,
    group: Group,
    messages: Messages,
    nodes: Nodes,
    alarms: Array,
    too_old: int,
    to_the_end: bool,
    has_views: bool,
) -> int:
    """Advance every member's cursor as far as its deliveries' sends are known; returns how many alarms there are."""
    found = 0
    actors = cursor.size
    moved = True
    while moved:
        moved = False
        for q in range(actors):
            while cursor[q] < stop[q]:
                i = cursor[q]
                code = queue.code[i]
                m = message[i]
                if code in (DELIVER, DISCARD) and not messages.sent[m] and not messages.retired[m]:
                    over = has_ended(queue.sender[i], group, cursor, stop)
                    if not over and NULL_TIME < queue.time[i] < too_old:
                        messages.released[m] = 1
                    if not over and not messages.released[m]:
                        break
                cursor[q] += 1
                moved = True
                if queue.time[i] > group.counts[NEWEST_NS]:
                    group.counts[NEWEST_NS] = queue.time[i]
                if code == SEND:
                    found = send(q, i, m, queue, group, messages, nodes, alarms, found)
                elif code == DELIVER:
                    certain = to_the_end or has_ended(queue.sender[i], group, cursor, stop)
                    found = deliver(q, i, m, queue, group, messages, nodes, alarms, found, certain, has_views)
                elif code == DISCARD:
                    if messages.retired[m]:
                        continue  # it was delivered: a discard after that changes nothing
                    group.counts[HAS_DISCARDS] = 1
                    messages.kind[m, q] |= DISCARDED
                    if messages.place[m, q] < 0:
                        messages.place[m, q] = group.next_place[q]
                        group.next_place[q] += 1
                        if messages.sent[m]:
                            found = check_causes(q, queue.step[i], m, group, messages, nodes, alarms, found)
                elif code == STABLE:
                    s = queue.sender[i]
                    group.counts[HAS_MARKS] = 1
                    group.marks[q, s] = max(group.marks[q, s], queue.seq[i])
                elif code == VIEW:
                    fresh = queue.installs[i]
                    current = group.current[q]
                    if fresh != current:
                        if group.follows[q, current] == NOTHING:
                            group.follows[q, current] = fresh
                        group.follows[q, fresh] = NOTHING
                        group.current[q] = fresh
                elif code in (CRASH, LEAVE):
                    group.gone[q] = 1
                    if group.follows[q, group.current[q]] == NOTHING:
                        group.follows[q, group.current[q]] = GONE
                elif code == END:
                    group.ended[q] = 1
        if not moved and to_the_end:
            for q in range(actors):
                if cursor[q] < stop[q]:
                    messages.released[message[cursor[q]]] = 1
                    moved = True
                    break
    return found


@compiled
def has_ended(s: int, group: Group, cursor: Array, stop: Array) -> bool:
    """Whether no more rows of a member will come."""
    return bool((group.ended[s] or group.gone[s]) and cursor[s] == stop[s])


@compiled
def alarm(alarms: Array, found: int, kind: int, q: int, step: int, s: int, seq: int, other: int, other_seq: int) -> int:
    """Note an alarm."""
    if found < alarms.shape[0]:
        alarms[found, 0] = kind
        alarms[found, 1] = q
        alarms[found, 2] = step
        alarms[found, 3] = s
        alarms[found, 4] = seq
        alarms[found, 5] = other
        alarms[found, 6] = other_seq
    return found + 1


@compiled
def send(
    q: int, i: int, m: int, queue: Queue, group: Group, messages: Messages, nodes: Nodes, alarms: Array, found: int
) -> int:
    """A send: it depends on all that its sender delivered since the last, and on that."""
    if messages.retired[m] or messages.sent[m]:
        group.counts[REPEATED] += 1
        return alarm(alarms, found, SENT_AGAIN, q, queue.step[i], q, messages.seq[m], -1, 0)
    if messages.released[m] == HANDLED_UNSENT:
        group.inexact[CAUSAL] = 1  # it was left out of the pasts of those who delivered it
    view = group.current[q]
    messages.sent[m] = 1
    messages.send_view[m] = view
    messages.send_ns[m] = queue.time[i]
    messages.past[m] = group.past[q]
    for v in range(group.past_dropped.shape[1]):
        messages.past_dropped[m, v] = group.past_dropped[q, v]
        group.past_dropped[q, v] = 0
    group.past[q] = add_node(m, -1, group, nodes)
    for p in range(messages.place.shape[1]):  # who handled it before its send was known
        if messages.place[m, p] >= 0:
            found = check_causes(p, queue.step[i], m, group, messages, nodes, alarms, found)
    return found


@compiled
def add_node(m: int, following: int, group: Group, nodes: Nodes) -> int:
    """A new first node of a list."""
    at = group.counts[NODES]
    nodes.message[at] = m
    nodes.next[at] = following
    group.counts[NODES] = at + 1
    return int(at)


@compiled
def deliver(
    q: int,
    i: int,
    m: int,
    queue: Queue,
    group: Group,
    messages: Messages,
    nodes: Nodes,
    alarms: Array,
    found: int,
    certain: bool,
    has_views: bool,
) -> int:
    """A delivery: numbers, repeats, causes, and the order in comparison with everyone who has it already."""
    s, seq, step = messages.sender[m], messages.seq[m], queue.step[i]
    group.counts[DELIVERIES] += 1
    if seq > group.highest[q, s]:
        group.highest[q, s] = seq
    elif seq < group.highest[q, s]:
        group.counts[LATE] += 1
        found = alarm(alarms, found, TOO_LATE, q, step, s, seq, -1, group.highest[q, s])
    if messages.retired[m]:
        if not delivered_what_is_retired(q, group):
            for guarantee in (INTEGRITY, CAUSAL, TOTAL):
                group.inexact[guarantee] = 1
            return found
        group.counts[REPEATED] += 1
        return alarm(alarms, found, DELIVERED_AGAIN, q, step, s, seq, -1, 0)
    if messages.kind[m, q] & DELIVERED:
        group.counts[REPEATED] += 1
        return alarm(alarms, found, DELIVERED_AGAIN, q, step, s, seq, -1, 0)
    messages.kind[m, q] |= DELIVERED
    view = group.current[q]
    messages.seen_in[m, q] = view
    exists = messages.sent[m] or messages.to_be_sent[m]
    if not exists:
        messages.released[m] = HANDLED_UNSENT
    if not exists and certain:
        found = alarm(alarms, found, UNSENT, q, step, s, seq, -1, 0)
    if messages.place[m, q] < 0:
        messages.place[m, q] = group.next_place[q]
        group.next_place[q] += 1
        if messages.sent[m]:
            found = check_causes(q, step, m, group, messages, nodes, alarms, found)
    else:
        group.inexact[TOTAL] = 1  # discarded first: its place is not that of its delivery
    if exists:
        group.past[q] = add_node(m, group.past[q], group, nodes)
        if has_views and not messages.sent[m]:
            group.inexact[CAUSAL] = 1  # the view in which it will be sent is not known yet
    here = messages.place[m, q]
    for p in range(messages.place.shape[1]):
        if p == q or not messages.kind[m, p] & DELIVERED:
            continue
        if messages.seen_in[m, p] != view:
            group.crossed[q, p] = 1
            group.crossed[p, q] = 1
            continue
        there = messages.place[m, p]
        if group.reach[view, q, p] > there and not group.differs[view, q, p]:
            group.differs[view, q, p] = 1
            group.differs[view, p, q] = 1
            found = alarm(alarms, found, ORDERS_DIFFER, q, step, s, seq, p, 0)
        group.reach[view, q, p] = max(group.reach[view, q, p], there)
        group.reach[view, p, q] = max(group.reach[view, p, q], here)
        group.common[view, q, p] = min(2, group.common[view, q, p] + 1)
        group.common[view, p, q] = group.common[view, q, p]
    return found


@compiled
def delivered_what_is_retired(q: int, group: Group) -> bool:
    """Whether a member must have delivered all that is retired: it was always there, and nobody discards."""
    always = not group.gone[q] and not group.counts[HAS_DISCARDS]
    for v in range(1, group.belongs.shape[0]):
        always = always and group.belongs[v, q] > 0
    return always


@compiled
def check_causes(
    q: int, step: int, m: int, group: Group, messages: Messages, nodes: Nodes, alarms: Array, found: int
) -> int:
    """Whether a member had handled all direct predecessors of a message when it handled the message."""
    counted = False
    for v in range(messages.past_dropped.shape[1]):
        counted = counted or (messages.past_dropped[m, v] > 0 and group.belongs[v, q] > 0)
    cause = -1
    at = messages.past[m]
    while at >= 0:
        x = nodes.message[at]
        at = nodes.next[at]
        if x == m or not (messages.sent[x] or messages.to_be_sent[x]):
            continue
        if not group.belongs[messages.send_view[x], q]:
            continue
        counted = True
        if messages.place[x, q] < 0 or messages.place[x, q] > messages.place[m, q]:
            cause = x
    group.counts[CAUSAL_EXAMINED] += counted
    if cause >= 0:
        group.counts[CAUSAL_VIOLATIONS] += 1
        found = alarm(
            alarms, found, EFFECT_FIRST, q, step, messages.sender[m], messages.seq[m], messages.sender[cause],
            messages.seq[cause],
        )  # fmt: skip
    return found


def retire(run: Run) -> None:
    """Let go of the messages that nobody can say anything new about."""
    group, messages = run.group, run.messages
    present = (group.has_log > 0) & (group.gone == 0)
    named = np.zeros(group.belongs.shape, bool)
    for number, view in enumerate(run.views):
        if view.members is not None:
            named[number] = group.belongs[number] > 0
    expected = (group.belongs > 0) & (present | (named & (group.gone == 0)))
    handled = (messages.place >= 0) | ~expected[messages.send_view]
    blank = (messages.sent == 0) & (messages.kind == 0).all(axis=1)  # only waiting rows name it
    over = (messages.sent > 0) & handled.all(axis=1)
    if group.counts[HAS_MARKS] and present.any():
        stable = group.marks[present].min(axis=0)
        over &= messages.seq <= stable[messages.sender]
    over |= (messages.retired > 0) | blank
    if not over.any():
        _compact_nodes(run, np.arange(len(over)))
        return
    leaving = over & ~blank & (messages.retired == 0)
    run.retired = _with_spans(run.retired, messages.sender[leaving], messages.seq[leaving])
    run.retired_initially |= bool((messages.send_view[leaving] == 0).any())
    _drop_from_pasts(run, over)
    new_number = np.cumsum(~over) - 1
    run.messages = Messages(*(column[~over] for column in messages))
    _compact_nodes(run, np.where(over, -1, new_number))


def _drop_from_pasts(run: Run, over: Array) -> None:
    """Remember of a retired predecessor only the view in which it was sent."""
    drop_from_lists(run.group.past, run.group.past_dropped, run.nodes, over, run.messages.send_view)
    drop_from_lists(run.messages.past, run.messages.past_dropped, run.nodes, over, run.messages.send_view)


@compiled
def drop_from_lists(first: Array, dropped: Array, nodes: Nodes, over: Array, send_view: Array) -> None:
    """Unlink messages that are over from some lists, noting their views."""
    for owner in range(first.size):
        previous = -1
        at = first[owner]
        while at >= 0:
            m = nodes.message[at]
            if over[m]:
                dropped[owner, send_view[m]] = 1
                if previous < 0:
                    first[owner] = nodes.next[at]
                else:
                    nodes.next[previous] = nodes.next[at]
            else:
                previous = at
            at = nodes.next[at]


def _compact_nodes(run: Run, number: Array) -> None:
    """Keep only the nodes that some list still has, under the messages' new numbers."""
    size = int(run.group.counts[NODES])
    message, following = np.empty(size, np.int64), np.empty(size, np.int64)
    used = copy_lists(run.group.past, run.nodes, number, message, following, 0)
    used = copy_lists(run.messages.past, run.nodes, number, message, following, used)
    run.nodes = Nodes(message[:used], following[:used])
    run.group.counts[NODES] = used


@compiled
def copy_lists(first: Array, nodes: Nodes, number: Array, message: Array, following: Array, used: int) -> int:
    """Copy some lists into fresh nodes; returns how many nodes are used."""
    for owner in range(first.size):
        at = first[owner]
        if at >= 0:
            first[owner] = used
        while at >= 0:
            message[used] = number[nodes.message[at]]
            at = nodes.next[at]
            following[used] = used + 1 if at >= 0 else -1
            used += 1
    return used


def _with_spans(spans: Array, sender: Array, seq: Array) -> Array:
    """Add numbers to spans of numbers."""
    if not len(seq):
        return spans
    rows = np.concatenate([spans, np.stack([sender, seq, seq], axis=1)])
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] > rows[:-1, 2] + 1)
    starts = np.flatnonzero(fresh)
    stops = np.append(starts[1:], len(rows)) - 1
    return np.stack([rows[starts, 0], rows[starts, 1], rows[stops, 2]], axis=1)
