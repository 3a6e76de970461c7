"""Forget what is over in a run: its messages, the views that everyone has gone on from, and who has departed."""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.results import WatchAlarm
from antiphon.pipeline.watch.departed import left_behind, views_over, who_can_go
from antiphon.pipeline.watch.dues import let_go
from antiphon.pipeline.watch.handling import renumber_views, views_handled_in
from antiphon.pipeline.watch.obligations import GIVEN_UP
from antiphon.pipeline.watch.orders import count_pairs, met_in
from antiphon.pipeline.watch.owed import forget_clients
from antiphon.pipeline.watch.retire import keep_lists, retire
from antiphon.pipeline.watch.spans import joined, shortened, span_of, with_numbers
from antiphon.pipeline.watch.state import (
    AGREEMENT,
    CLOSED_NUMBER,
    HANDLED_BY_SILENT,
    NEW_NODE,
    NEW_SEAT,
    NEW_VIEW,
    NODES,
    NOTHING,
    NOWHERE,
    PAIRS,
    PAIRS_DIFFERING,
    PERHAPS,
    TOTAL,
    UNSENT,
    UNSENT_BY_SILENT,
    WatchedRun,
    WatchedView,
)
from antiphon.pipeline.watch.together import renumber_splits, settle_seats
from antiphon.protocol.membership.views import NAMES_MAX

SPANS_MAX: Final = 64  # of the numbers of one sender; where there are more, the gaps between the oldest are closed

# --- who was let go: a name's incarnations follow each other, so all of them are one span -----------------------------


def name_and_incarnation(ids: Array) -> tuple[Array, Array]:
    """Return the name and the incarnation of each id."""
    return ids % NAMES_MAX, ids // NAMES_MAX


def was_let_go(run: WatchedRun, ids: Array) -> Array:
    """Which of these ids are members that were let go."""
    return span_of(run.let_go, *name_and_incarnation(ids)) >= 0


def forget(run: WatchedRun, patience_ns: int, batch: int) -> list[WatchAlarm]:
    """Let go of all that nothing new can be said about; returns what is wrong with it."""
    silent = left_behind(run, patience_ns)
    departed = (run.actors["gone"] > 0) | silent
    over = views_over(run, departed)
    _note_given_up(run, silent, over)
    leaving = who_can_go(run, departed, over, patience_ns)
    _settle(run, leaving, over)
    alarms = retire(run, departed, leaving, over, batch)
    _forget_words(run)
    run.retired = shortened(run.retired, SPANS_MAX, PERHAPS)
    _end_stretches(run)
    closing = over & _can_close(run, leaving)
    if leaving.any() or closing.any():
        let_go(run, leaving)
        _let_go_clients(run, leaving)
        settle_seats(run, leaving, closing)
        _leave_out(run, leaving, closing)
    return alarms


def _note_given_up(run: WatchedRun, silent: Array, over: Array) -> None:
    """Note where members are that count as departed: if one goes on from there after all, it is too late to compare."""
    run.seats["unsure"] |= np.where(over[:, None] & silent & (run.seats["follows"] == NOTHING), GIVEN_UP, 0)


def _forget_words(run: WatchedRun) -> None:
    """Keep of what rows said of brokers what those say that wait."""
    used, number = np.unique(run.queue.words, return_inverse=True)
    first = int(len(used) > 0 and used[0] < 0)
    run.words = [run.words[at] for at in used[first:].tolist()]
    run.queue = run.queue._replace(words=number.reshape(-1) - first)


def _settle(run: WatchedRun, leaving: Array, over: Array) -> None:
    """Count what has become final with those who leave."""
    if not leaving.any():
        return
    counts, messages, actors = run.counts, run.messages, run.actors
    open_seats = (run.seats["follows"] == NOTHING) & ~over[:, None] & (run.seats["delivered"] > 0)
    if open_seats[:, leaving].any():
        run.inexact[TOTAL] = run.inexact[AGREEMENT] = 1  # whom it would have gone on with, and what it owes, is open
    examined, differing = count_pairs(run, leaving)
    counts[PAIRS] += examined
    counts[PAIRS_DIFFERING] += differing
    unsent = leaving[messages["sender"]] & (messages["sent"] == 0) & (messages["retired"] == 0)
    complete = ((actors["ended"] > 0) | (actors["has_left"] > 0))[messages["sender"]]
    counts[UNSENT] += int(messages["delivered"][unsent & complete].sum())
    counts[UNSENT_BY_SILENT] += int(messages["delivered"][unsent & ~complete].sum())
    counts[HANDLED_BY_SILENT] += int(messages["handled"][unsent & ~complete].sum())
    ids = np.array(run.ids, np.int64)[leaving & ((actors["has_log"] > 0) | (actors["named"] > 0))]
    ids = ids[~was_let_go(run, ids)]
    run.let_go = with_numbers(run.let_go, *name_and_incarnation(ids))


def _let_go_clients(run: WatchedRun, leaving: Array) -> None:
    """Forget what is kept of clients of a broker by name."""
    going = set(np.array(run.ids, np.int64)[leaving].tolist())
    run.translation.numbers = {one: used for one, used in run.translation.numbers.items() if one not in going}
    if run.brokers.are_there:
        forget_clients(run.brokers, going, set(run.ids) - going)


def _end_stretches(run: WatchedRun) -> None:
    """Of stretches of earlier views of which no message is kept, keep in which view the messages were sent."""
    actors = run.actors
    stretch = actors["stretch_low"] < actors["stretch_high"]
    ended = np.flatnonzero(stretch & (actors["stretch_last"] < 0) & (actors["stretch_line"] != actors["current"]))
    nodes = np.zeros(len(ended), NEW_NODE.dtype)
    nodes["message"], nodes["next"] = ~actors["stretch_view"][ended], actors["past"][ended]
    actors["past"][ended] = len(run.nodes) + np.arange(len(ended))
    actors["stretch_low"][ended] = actors["stretch_high"][ended]
    run.nodes = np.concatenate([run.nodes, nodes])
    run.counts[NODES] = len(run.nodes)


def _can_close(run: WatchedRun, leaving: Array) -> Array:
    """Which views nothing that is kept is about, but lists and spans of what is over."""
    can = np.array([view.number is not None and view.members is not None for view in run.views])
    stretches = [records[records["stretch_low"] < records["stretch_high"]] for records in (run.actors, run.messages)]
    for used in (
        run.actors["current"][~leaving],
        run.messages["send_view"],
        run.messages["seen_in"][run.messages["seen_in"] >= 0],
        views_handled_in(run),
        *(records[field] for records in stretches for field in ("stretch_line", "stretch_view")),
    ):
        can[used] = False
    return can


def _leave_out(run: WatchedRun, leaving: Array, closing: Array) -> None:
    """Keep all but these actors and views."""
    counts = run.counts
    counts[CLOSED_NUMBER] = max(int(counts[CLOSED_NUMBER]), int(run.lines["number"][closing].max(initial=0)))
    stay = ~leaving
    run.met = met_in(run, closing)[stay][:, stay]
    _leave_out_pairs(run, leaving, closing)
    ids = [one for one, stays in zip(run.ids, stay.tolist(), strict=True) if stays]
    actor = np.append(np.where(stay, np.cumsum(stay) - 1, -1), -1)  # the last for those that are nobody

    view = _renumber_views(run, ids, stay, closing)
    renumber_views(run, view)
    renumber_splits(run, actor, view)
    run.ids = ids
    run.actors = run.actors[stay]
    run.heard = run.heard[stay][:, stay]
    run.pairs = run.pairs[:, stay]
    run.cells = run.cells[stay]
    run.messages["sender"] = actor[run.messages["sender"]]
    for records, fields in (
        (run.actors, ("current", "stretch_line", "stretch_view")),
        (run.messages, ("send_view", "seen_in", "stretch_line", "stretch_view")),
    ):
        for field in fields:
            records[field] = np.where(records[field] < 0, records[field], np.maximum(view[records[field]], 0))
    keep_lists(run, np.zeros(len(run.messages), bool), run.messages["send_view"].copy(), view)
    spans = run.retired[stay[run.retired[:, 0]]]
    spans[:, 0], spans[:, 3] = actor[spans[:, 0]], np.append(view, (PERHAPS, NOWHERE))[spans[:, 3]]
    run.retired = joined(spans)
    queue = run.queue
    installs = np.maximum(view[queue.installs], 0)
    run.queue = queue._replace(actor=actor[queue.actor], sender=actor[queue.sender], installs=installs)


def _leave_out_pairs(run: WatchedRun, leaving: Array, closing: Array) -> None:
    """Leave out the rows of those who left the line of a view that is closed, or are let go themselves."""
    rows, seats = np.ones(len(run.pairs), bool), run.seats
    for view, actor in np.argwhere((seats["row"] >= 0) & (leaving[None, :] | closing[:, None])).tolist():
        rows[seats["row"][view, actor]] = False
        seats["row"][view, actor] = -1
        run.lines["left"][view] -= 1
    number = np.append(np.cumsum(rows) - 1, -1)
    seats["row"] = number[seats["row"]]
    run.pairs = run.pairs[rows]


def _renumber_views(run: WatchedRun, ids: list[int], stay: Array, closing: Array) -> Array:
    """Make remnants of the views that close; returns the new number of each view, -1 of one that nobody asks for."""
    asked_for = np.zeros(len(run.views), bool)
    asked_for[~run.nodes["message"][run.nodes["message"] < 0]] = True
    asked_for[run.retired[:, 3][run.retired[:, 3] >= 0]] = True
    views: list[WatchedView] = []
    lines, seats = [], []
    number = np.full(len(run.views), -1, np.int64)
    remnants: dict[bytes, int] = {}
    for at, view in enumerate(run.views):
        row = run.seats[at][stay]
        if closing[at] or view.number is None:
            belongs = row["belongs"] > 0
            if not asked_for[at] or not belongs.any():
                continue
            key = belongs.tobytes() + row["overlooked"].tobytes()
            if key in remnants:
                number[at] = remnants[key]
                continue
            remnants[key] = len(views)
            view = WatchedView(None, tuple(one for one, is_in in zip(ids, belongs.tolist(), strict=True) if is_in))
            blank = np.full(len(ids), NEW_SEAT)
            blank["belongs"], blank["overlooked"] = row["belongs"], row["overlooked"]
            row, line = blank, NEW_VIEW
        else:
            line = run.lines[at]
        number[at] = len(views)
        views.append(view)
        lines.append(line)
        seats.append(row)
    run.views = views
    run.lines = np.array(lines, NEW_VIEW.dtype)
    run.seats = np.array(seats, NEW_SEAT.dtype).reshape(len(views), len(ids))
    return number
