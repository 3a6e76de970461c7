"""Validity, agreement and view-synchrony of a run under watch: what is due is settled when it can no longer change.

What members owe for a message is settled when the views in which it was delivered are over: what is missing then is
listed, with an alarm. A member that delivers it later, in a view of its own, is cleared as long as the message is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.columns import NULL_TIME, Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.results import WatchAlarm, WatchFinding
from antiphon.pipeline.watch.handling import position_of
from antiphon.pipeline.watch.obligations import PLAIN, WITH_TOPIC, Owing, is_anything_owed, owing
from antiphon.pipeline.watch.spans import span_of
from antiphon.pipeline.watch.state import (
    AGREEMENT,
    MAY_OWE_AT_SILENT,
    MISSING,
    MISSING_AT_SILENT,
    NEWEST_NS,
    OBLIGING,
    OWN_MISSING,
    OWN_MISSING_AT_SILENT,
    OWN_SENT,
    VALIDITY,
    VIEW_PAIRS,
    VIEW_PAIRS_DIFFERING,
    VIEW_SYNCHRONY,
    WatchedRun,
)
from antiphon.pipeline.watch.together import count_obliging, count_view_pairs, differ_together

MISSING_MAX: Final = 1 << 18  # messages that are listed as missing; more are counted


# --- settled as a run goes on -----------------------------------------------------------------------------------------


def settle(run: WatchedRun, chosen: Array, over: Array, departed: Array, batch: int) -> list[WatchAlarm]:
    """Settle what is owed for these messages, about which nothing more can be said; returns what is wrong now."""
    run.missing = still_missing(run)
    if (chosen & (run.messages["obliges"] == PLAIN + WITH_TOPIC)).any():
        run.inexact[AGREEMENT] = 1  # by whom with a topic is not known
    found = owing(run, chosen, over, note=True)
    silent = departed & ~_says_farewell(run)
    if (found.hides[silent] > 0).any():
        run.inexact[AGREEMENT] = 1  # it hangs on whether two logs were cut short, of which one may be forgotten first
    run.actors["may_owe"] |= found.may_owe
    fresh = _fresh(run.missing, _rows(run, found))
    listed = fresh[: max(0, MISSING_MAX - len(run.missing))]
    np.add.at(run.actors["missing"], found.missing[fresh[len(listed) :], 0], 1)
    run.missing = np.concatenate([run.missing, _rows(run, found)[listed]])
    run.splits = _joined_splits(np.concatenate([run.splits, _split_rows(run, found)]))
    told = [row for row in fresh.tolist() if not silent[found.missing[row, 0]]]
    return [*_missing_alarms(run, found, told, batch), *_tell_splits(run, batch), *_tell_own(run, batch)]


def still_missing(run: WatchedRun) -> Array:
    """What is listed as missing and has not been handled since."""
    missing, messages = run.missing, run.messages
    if not len(missing):
        return missing
    actor = {one: at for at, one in enumerate(run.ids)}
    owner = np.array([actor[one] for one in missing[:, 0].tolist()], np.int64)
    sender = np.array([actor.get(one, -1) for one in missing[:, 1].tolist()], np.int64)
    at = span_of(np.stack([messages["sender"], messages["seq"], messages["seq"]], 1), sender, missing[:, 2])
    result: Array = missing[~are_handled(owner, at, run.cells, messages, run.seats)]
    return result


def let_go(run: WatchedRun, leaving: Array) -> None:
    """Count what is missing at members that are let go."""
    actors, counts = run.actors, run.counts
    own = np.where(actors["has_left"] > 0, 0, actors["own_sent"])
    lacking = np.where(actors["has_left"] > 0, 0, actors["own_sent"] - actors["own_handled"])
    ids = np.array(run.ids, np.int64)
    listed = np.isin(run.missing[:, 0], ids[leaving])
    missing = np.bincount(_indices(ids, run.missing[listed, 0]), minlength=len(ids)) + actors["missing"]
    run.missing = run.missing[~listed]
    farewell, silent = leaving & _says_farewell(run), leaving & ~_says_farewell(run)
    counts[OWN_SENT] += int(own[leaving].sum())
    counts[OWN_MISSING] += int(lacking[farewell].sum())
    counts[MISSING] += int(missing[farewell].sum())
    counts[OWN_MISSING_AT_SILENT] += int(lacking[silent].sum())
    counts[MISSING_AT_SILENT] += int(missing[silent].sum())
    counts[MAY_OWE_AT_SILENT] += int(actors["may_owe"][silent].sum())


def _says_farewell(run: WatchedRun) -> Array:
    """Whose log has its end, a crash or a leave."""
    result: Array = (run.actors["ended"] > 0) | (run.actors["has_left"] > 0)
    return result


def _indices(ids: Array, chosen: Array) -> Array:
    order = np.argsort(ids)
    result: Array = order[np.searchsorted(ids, chosen, sorter=order)]
    return result


def _rows(run: WatchedRun, found: Owing) -> Array:
    """What is missing, as rows of `WatchedRun.missing`."""
    ids, message = np.array(run.ids, np.int64), run.messages[found.missing[:, 1]]
    return np.stack([ids[found.missing[:, 0]], ids[message["sender"]], message["seq"]], 1)


def _fresh(known: Array, rows: Array) -> Array:
    """Which rows are not known yet, each once."""
    both = np.concatenate([known, rows])
    _, first = np.unique(both, axis=0, return_index=True)
    return np.sort(first[first >= len(known)]) - len(known)


def _split_rows(run: WatchedRun, found: Owing) -> Array:
    """Who differ, as rows of `WatchedRun.splits`."""
    ids, message = np.array(run.ids, np.int64), run.messages[found.splits[:, 4]]
    nobody_told = np.zeros(len(found.splits), np.int64)
    return np.column_stack([found.splits[:, :4], ids[message["sender"]], message["seq"], nobody_told])


def _joined_splits(rows: Array) -> Array:
    """Keep of each two that differ in a view the smallest message, and whether somebody was told."""
    rows = rows[np.lexsort((rows[:, 5], rows[:, 4], rows[:, 2], rows[:, 1], rows[:, 0]))]
    _, first = np.unique(rows[:, :3], axis=0, return_index=True)
    joined = rows[first]
    if len(rows):
        joined[:, 6] = np.maximum.reduceat(rows[:, 6], first)
    return joined


# --- alarms -----------------------------------------------------------------------------------------------------------


def _missing_alarms(run: WatchedRun, found: Owing, rows: list[int], batch: int) -> Iterator[WatchAlarm]:
    for q, m, p, view in found.missing[rows].tolist():
        message = run.ids[run.messages["sender"][m]], int(run.messages["seq"][m])
        why = sentence.delivery_missing(run.ids[q], message, run.ids[p], run.views[view].number or 0)
        yield WatchAlarm(batch, run.name, "agreement", run.ids[q], 0, *message, why)


def _tell_splits(run: WatchedRun, batch: int) -> Iterator[WatchAlarm]:
    untold = np.flatnonzero(differ_together(run, run.splits) & (run.splits[:, 6] == 0))
    run.splits[untold, 6] = 1
    for view, one, other, deliverer, sender, seq, _ in run.splits[untold].tolist():
        lacking = other if deliverer == one else one
        why = sentence.views_differ(
            run.ids[deliverer],
            run.ids[lacking],
            (sender, seq),
            run.views[view].number or 0,
            int(run.seats["next_number"][view, one]),
        )
        member = min(run.ids[one], run.ids[other])
        yield WatchAlarm(batch, run.name, "view-synchrony", member, 0, sender, seq, why)


def _tell_own(run: WatchedRun, batch: int, *, to_the_end: bool = False) -> Iterator[WatchAlarm]:
    """Name the own messages that are missing at members that have ended; `to_the_end`: or whose log is complete."""
    actors, messages = run.actors, run.messages
    complete = ~run.cut_short() if to_the_end else actors["ended"] > 0
    lacking = np.where(complete & (actors["has_left"] == 0), actors["own_sent"] - actors["own_handled"], 0)
    telling = lacking > actors["own_told"]
    actors["own_told"] = np.maximum(actors["own_told"], lacking)
    at = np.flatnonzero((messages["own"] > 0) & telling[messages["sender"]])
    for m in at[~are_handled(messages["sender"][at], at, run.cells, messages, run.seats)].tolist():
        message = run.ids[messages["sender"][m]], int(messages["seq"][m])
        why = sentence.own_missing(message[0], message)
        yield WatchAlarm(batch, run.name, "validity", message[0], 0, *message, why)


@compiled
def are_handled(actor: Array, message: Array, cells: Array, messages: Array, seats: Array) -> Array:
    """Which actors have handled which messages; -1 stands for one that is not kept."""
    result = np.zeros(actor.size, np.bool_)
    for i in range(actor.size):
        result[i] = message[i] >= 0 and position_of(actor[i], message[i], cells, messages, seats) >= 0
    return result


# --- what is found ----------------------------------------------------------------------------------------------------


def conclude(run: WatchedRun, batch: int) -> list[WatchAlarm]:
    """Return what is missing or differs if nothing more comes, as far as no alarm has said so."""
    found = _as_it_is(run)
    fresh = _fresh(run.missing, _rows(run, found))
    told = [row for row in fresh.tolist() if not run.cut_short()[found.missing[row, 0]]]
    alarms = [*_missing_alarms(run, found, told, batch)]
    run.splits = _joined_splits(np.concatenate([run.splits, _split_rows(run, found)]))
    return [*alarms, *_tell_splits(run, batch), *_tell_own(run, batch, to_the_end=True)]


def _as_it_is(run: WatchedRun) -> Owing:
    """What is owed for messages that are kept, if nothing more comes."""
    return owing(run, run.messages["seen_in"] >= 0, np.ones(len(run.views), bool))


def findings(run: WatchedRun, patience_ns: int, silent: Array, *, final: bool) -> dict[str, WatchFinding]:
    """What is known so far; `silent`: who has departed without a word; `final`: and nothing more will come."""
    cut = run.cut_short() if final else silent & ~_says_farewell(run)
    found = {
        "validity": _validity(run, patience_ns, cut, final=final),
        "agreement": _agreement(run, patience_ns, cut, final=final),
        "view-synchrony": _view_synchrony(run, final=final),
    }
    for finding in found.values():
        finding.violations *= not finding.inexact  # what came too late may be just what is missing
    return found


def _overdue(run: WatchedRun, patience_ns: int) -> Array:
    """Which messages were sent so long ago that they should have been delivered."""
    newest, sent = int(run.counts[NEWEST_NS]), run.messages["send_ns"]
    result: Array = (sent != NULL_TIME) & (sent < newest - patience_ns) & (run.messages["sent"] > 0)
    return result


def _validity(run: WatchedRun, patience_ns: int, cut: Array, *, final: bool) -> WatchFinding:
    actors, counts, messages = run.actors, run.counts, run.messages
    counted = (actors["has_log"] > 0) & (actors["has_left"] == 0)
    lacking = np.where(counted, actors["own_sent"] - actors["own_handled"], 0)
    decided = ~cut if final else actors["ended"] > 0
    violations = int(lacking[decided].sum()) + int(counts[OWN_MISSING])
    silent = int(counts[OWN_MISSING_AT_SILENT])
    if final:
        undecided = bool(lacking[cut].any()) or (run.has_ends and silent > 0)
        violations += 0 if run.has_ends else silent
    else:
        pending = (messages["own"] > 0) & _overdue(run, patience_ns) & (counted & ~decided)[messages["sender"]]
        at = np.flatnonzero(pending)
        late = not are_handled(messages["sender"][at], at, run.cells, messages, run.seats).all()
        undecided = late or silent > 0 or bool(lacking[cut].any())
    examined = int(actors["own_sent"][counted].sum()) + int(counts[OWN_SENT])
    return WatchFinding(examined, violations, int(undecided), int(run.inexact[VALIDITY]))


def _agreement(run: WatchedRun, patience_ns: int, cut: Array, *, final: bool) -> WatchFinding:
    counts, ids = run.counts, np.array(run.ids, np.int64)
    inexact = bool(run.inexact[AGREEMENT]) or _joined_late(run)
    missing, may_owe, hides = still_missing(run), run.actors["may_owe"] > 0, False
    if final:
        found = _as_it_is(run)
        missing = np.unique(np.concatenate([missing, _rows(run, found)]), axis=0)
        may_owe |= found.may_owe > 0
        hides = bool((found.hides[cut][:, ~cut] > 0).any())
        inexact |= bool((run.messages["obliges"][found.missing[:, 1]] == PLAIN + WITH_TOPIC).any())
    by_actor = np.bincount(_indices(ids, missing[:, 0]), minlength=len(ids)) + run.actors["missing"]
    silent = int(counts[MISSING_AT_SILENT])
    violations = int(by_actor[~cut].sum()) + int(counts[MISSING])
    undecided = bool(by_actor[cut].any()) or hides
    if final:
        violations += 0 if run.has_ends else silent
        undecided |= (run.has_ends and (silent > 0 or counts[MAY_OWE_AT_SILENT] > 0)) or bool(may_owe[cut].any())
    else:
        undecided |= silent > 0 or is_anything_owed(run, _overdue(run, patience_ns) & (run.messages["seen_in"] >= 0))
    examined = int(counts[OBLIGING]) + count_obliging(run, np.ones(run.seats.shape, bool))
    return WatchFinding(examined, violations, int(undecided), int(inexact))


def _joined_late(run: WatchedRun) -> bool:
    """Whether a log turned up, of one who was there from the beginning, after the others were done with messages."""
    seats = run.seats[0]
    late = (seats["overlooked"] > 0) & (run.actors["has_log"] > 0)
    obliging = seats["follows"][(seats["obliging"] > 0) & ~late]
    return bool(np.isin(seats["follows"][late], obliging[obliging >= -2]).any())


def _view_synchrony(run: WatchedRun, *, final: bool) -> WatchFinding:
    splits = run.splits
    if final:
        splits = _joined_splits(np.concatenate([splits, _split_rows(run, _as_it_is(run))]))
    violations = int(run.counts[VIEW_PAIRS_DIFFERING]) + int(differ_together(run, splits).sum())
    examined = int(run.counts[VIEW_PAIRS]) + count_view_pairs(run, np.ones(run.seats.shape, bool))
    return WatchFinding(examined, violations, 0, int(run.inexact[VIEW_SYNCHRONY]))
