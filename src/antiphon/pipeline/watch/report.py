"""What is known of a run under watch: verdicts so far, how far stability lags, and who is waited for."""

from __future__ import annotations

import msgspec
import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.columns import DELIVER, DISCARD, NULL_TIME
from antiphon.pipeline.results import StabilityLag, WatchAlarm, WatchFinding
from antiphon.pipeline.watch import judge as a
from antiphon.pipeline.watch.retire import left_behind
from antiphon.pipeline.watch.state import (
    CAUSAL,
    CAUSAL_EXAMINED,
    CAUSAL_VIOLATIONS,
    DELIVERIES,
    GONE,
    GUARANTEES,
    HAS_MARKS,
    INTEGRITY,
    LATE,
    NEWEST_NS,
    NOT_IN,
    REPEATED,
    ROWS,
    TOTAL,
    WatchedRun,
)


class RunReport(msgspec.Struct):
    """What is known of one run."""

    findings: dict[str, WatchFinding] = msgspec.field(
        default_factory=lambda: {name: WatchFinding() for name in GUARANTEES}
    )
    rows: int = 0  # judged
    waiting: int = 0  # rows that wait for a send
    live: int = 0  # messages that are kept
    lag: StabilityLag | None = None
    waits_for: int | None = None  # the member whose send most members wait for


def report(run: WatchedRun, patience_ns: int, *, final: bool = False) -> RunReport:
    """Judge a run by what has been read of it; `final`: and nothing more will come."""
    actors, messages, counts = run.actors, run.messages, run.counts
    known = (actors["has_log"] > 0) | (run.seats["belongs"][1:] > 0).any(axis=0)
    cut = (
        known & (actors["ended"] == 0) & (actors["gone"] == 0)
        if actors["ended"].any()
        else np.zeros(len(run.ids), bool)
    )
    unsent = (messages["sent"] == 0) & (messages["retired"] == 0)
    hidden = (
        cut if final else (actors["ended"] == 0) & (actors["gone"] == 0)
    )  # whose sends may still turn up, or are lost
    by_cut = unsent & hidden[messages["sender"]] if len(hidden) else unsent
    unsent_deliveries = int(messages["delivered"][unsent & ~by_cut].sum())
    examined, violations = _compare_orders(run)
    findings = {
        "integrity": WatchFinding(
            int(counts[DELIVERIES]),
            int(counts[REPEATED]) + unsent_deliveries,
            int(messages["delivered"][by_cut].any()),
            int(run.inexact[INTEGRITY]),
            int(counts[REPEATED]),
        ),
        "fifo": WatchFinding(int(counts[DELIVERIES]), int(counts[LATE]), 0, 0, int(counts[LATE])),
        "causal": WatchFinding(
            int(counts[CAUSAL_EXAMINED]),
            int(counts[CAUSAL_VIOLATIONS]),
            int(messages["handled"][by_cut].any()),
            int(run.inexact[CAUSAL]),
        ),
        "total": WatchFinding(examined, violations, 0, int(run.inexact[TOTAL])),
    }
    return RunReport(
        findings,
        rows=int(counts[ROWS]),
        waiting=len(run.queue.code),
        live=int((messages["retired"] == 0).sum()),
        lag=_lag(run, patience_ns),
        waits_for=_waits_for(run),
    )


def _compare_orders(run: WatchedRun) -> tuple[int, int]:
    """(pairs with two common messages, pairs whose orders differ)."""
    seats, pairs, size = run.seats, run.pairs, len(run.ids)
    common = np.zeros((size, size), np.int64)
    differs = np.zeros((size, size), bool)
    for view in np.flatnonzero(seats["come"].any(axis=1) | (run.lines["left"] > 0)).tolist():
        following, row = seats["follows"][view], seats["row"][view]
        stays = (following != NOT_IN) & (following != GONE)
        together = stays[:, None] & stays[None, :] & (following[:, None] == following[None, :])
        come = np.minimum(seats["come"][view], 2)
        both = np.minimum(come[:, None], come[None, :])
        for actor in np.flatnonzero(row >= 0).tolist():
            others = np.flatnonzero((row < 0) | (row > row[actor]))
            both[actor, others] = both[others, actor] = pairs["common"][row[actor], others]
            differs[actor] |= together[actor] & (pairs["differs"][row[actor]] > 0)
        common += np.where(together, both, 0)
    has_log = run.actors["has_log"] > 0
    upper = np.triu(np.outer(has_log, has_log), 1)
    return int((upper & (common >= 2)).sum()), int((upper & (differs | differs.T)).sum())


def _lag(run: WatchedRun, patience_ns: int) -> StabilityLag | None:
    actors, messages = run.actors, run.messages
    present = np.flatnonzero((actors["has_log"] > 0) & (actors["gone"] == 0) & ~left_behind(run, patience_ns))
    if not run.counts[HAS_MARKS] or not len(present):
        return None
    marks = run.heard["marked"][present]
    stable = marks.min(axis=0)
    unstable = (messages["sent"] > 0) & (messages["retired"] == 0) & (messages["seq"] > stable[messages["sender"]])
    times = messages["send_ns"][unstable & (messages["send_ns"] != NULL_TIME)]
    oldest = int(run.counts[NEWEST_NS] - times.min()) if len(times) else None
    behind = int(present[marks.sum(axis=1).argmin()]) if unstable.any() else None
    return StabilityLag(run.name, int(unstable.sum()), oldest, None if behind is None else run.ids[behind])


def _waits_for(run: WatchedRun) -> int | None:
    """The sender whose messages the first waiting rows are about."""
    queue = run.queue
    if not len(queue.code):
        return None
    first = np.flatnonzero(np.diff(queue.actor, prepend=-1))
    wanted = queue.sender[first][np.isin(queue.code[first], (DELIVER, DISCARD))]
    return run.ids[int(np.bincount(wanted).argmax())] if len(wanted) else None


def words(run: WatchedRun, found: a.AlarmRows, batch: int) -> list[WatchAlarm]:
    """AlarmRows as sentences."""
    alarms = []
    for kind, actor, step, sender, seq, other, number in found.rows.tolist():
        member, message = run.ids[actor], (run.ids[sender], seq)
        if kind == a.SENT_AGAIN:
            guarantee, why = "integrity", sentence.sent_again(member, message)
        elif kind == a.DELIVERED_AGAIN:
            guarantee, why = "integrity", sentence.delivered_again(member, message)
        elif kind == a.UNSENT:
            guarantee, why = "integrity", sentence.delivered_unsent(member, message)
        elif kind == a.TOO_LATE:
            guarantee, why = "fifo", sentence.delivered_late(member, message, number)
        elif kind == a.EFFECT_FIRST:
            guarantee, why = "causal", sentence.effect_before_cause(member, "handle", message, (run.ids[other], number))
        else:
            guarantee = "total"
            why = (
                f"member {member} delivers message {seq} of {message[0]} after one that member {run.ids[other]} "
                f"delivers later than it"
            )
        alarms.append(WatchAlarm(batch, run.name, guarantee, member, step, *message, why))
    return alarms
