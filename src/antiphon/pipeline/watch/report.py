"""What is known of a run under watch: verdicts so far, how far stability lags, and who is waited for."""

from __future__ import annotations

import msgspec
import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.columns import DELIVER, DISCARD, NULL_TIME
from antiphon.pipeline.results import QuietMember, StabilityLag, WatchAlarm, WatchFinding
from antiphon.pipeline.watch import dues, owed
from antiphon.pipeline.watch import known as a
from antiphon.pipeline.watch.departed import is_silent, left_behind
from antiphon.pipeline.watch.orders import count_pairs
from antiphon.pipeline.watch.state import (
    CAUSAL,
    CAUSAL_EXAMINED,
    CAUSAL_VIOLATIONS,
    DELIVERIES,
    FIFO,
    GUARANTEES,
    HANDLED_BY_SILENT,
    HAS_MARKS,
    INTEGRITY,
    LATE,
    NEWEST_NS,
    PAIRS,
    PAIRS_DIFFERING,
    PROVISIONAL,
    REPEATED,
    ROWS,
    TOTAL,
    UNSENT,
    UNSENT_BY_SILENT,
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
    quiet: QuietMember | None = None


def report(run: WatchedRun, patience_ns: int, *, final: bool = False) -> RunReport:
    """Judge a run by what has been read of it; `final`: and nothing more will come."""
    actors, messages, counts = run.actors, run.messages, run.counts
    cut = run.cut_short()
    silent_is_cut = run.has_ends or not final  # of those that were let go and did not say farewell
    unsent = (messages["sent"] == 0) & (messages["retired"] == 0)
    hidden = (
        cut if final else (actors["ended"] == 0) & (actors["gone"] == 0)
    )  # whose sends may still turn up, or are lost
    by_cut = unsent & (hidden[messages["sender"]] | (not run.sends_recorded)) if len(hidden) else unsent
    if run.translation.forgotten:  # its send may be one that is forgotten
        by_cut |= unsent & (messages["seq"] > PROVISIONAL)
    unrecorded = not run.sends_recorded and counts[DELIVERIES] > 0
    unsent_deliveries = int(messages["delivered"][unsent & ~by_cut].sum())
    unsent_deliveries += int(counts[UNSENT]) + (0 if silent_is_cut else int(counts[UNSENT_BY_SILENT]))
    examined, violations = count_pairs(run, np.ones(len(run.ids), bool))
    late = int(counts[LATE])
    findings = {
        "integrity": WatchFinding(
            int(counts[DELIVERIES]),
            int(counts[REPEATED]) + unsent_deliveries,
            int(unrecorded or messages["delivered"][by_cut].any() or (silent_is_cut and counts[UNSENT_BY_SILENT] > 0)),
            int(run.inexact[INTEGRITY]),
            int(counts[REPEATED]),
        ),
        "fifo": WatchFinding(int(counts[DELIVERIES]), late, 0, int(run.inexact[FIFO]), late),
        "causal": WatchFinding(
            int(counts[CAUSAL_EXAMINED]),
            int(counts[CAUSAL_VIOLATIONS]),
            int(unrecorded or messages["handled"][by_cut].any() or (silent_is_cut and counts[HANDLED_BY_SILENT] > 0)),
            int(run.inexact[CAUSAL]),
        ),
        "total": WatchFinding(
            examined + int(counts[PAIRS]), violations + int(counts[PAIRS_DIFFERING]), 0, int(run.inexact[TOTAL])
        ),
        **dues.findings(run, patience_ns, left_behind(run, patience_ns), final=final),
    }
    findings = {name: findings[name] for name in GUARANTEES}
    if run.brokers.are_there:
        ids = np.array(run.ids, np.int64)
        farewell = (actors["ended"] > 0) | (actors["gone"] > 0)
        findings |= owed.findings(run.brokers, set(ids[cut].tolist()), set(ids[~farewell].tolist()), final=final)
    return RunReport(
        findings,
        rows=int(counts[ROWS]),
        waiting=len(run.queue.code),
        live=int((messages["retired"] == 0).sum()),
        lag=_lag(run, patience_ns),
        waits_for=_waits_for(run),
        quiet=_quiet(run, patience_ns),
    )


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


def _quiet(run: WatchedRun, patience_ns: int) -> QuietMember | None:
    """The member that nothing has come from for longest, if that is longer than patience; not who has departed."""
    actors, newest = run.actors, int(run.counts[NEWEST_NS])
    present = (actors["has_log"] > 0) & (actors["gone"] == 0) & (actors["ended"] == 0)
    silent = np.flatnonzero(present & is_silent(run, patience_ns) & ~left_behind(run, patience_ns))
    if not len(silent):
        return None
    longest = int(silent[actors["last_ns"][silent].argmin()])
    return QuietMember(run.name, run.ids[longest], newest - int(actors["last_ns"][longest]))


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
        if kind == a.UNSENT and seq > PROVISIONAL and run.translation.forgotten:
            continue  # its send may be one that is forgotten
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
