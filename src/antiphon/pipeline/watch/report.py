"""What is known of a run under watch: verdicts so far, how far stability lags, and who is waited for."""

from __future__ import annotations

import msgspec
import numpy as np

from antiphon.pipeline.layout import DELIVER, DISCARD, NULL_TIME
from antiphon.pipeline.watch import judge as a
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
    Run,
)
from antiphon.trace import verdict as sentence


class Finding(msgspec.Struct):
    """One guarantee; over several runs all of it adds up."""

    examined: int = 0
    violations: int = 0
    undecided: int = 0  # runs in which something is
    inexact: int = 0  # runs in which something came too late to be judged
    lasting: int = 0

    def add(self, other: Finding, sign: int = 1) -> None:
        """Add what was found elsewhere, or take it away again."""
        self.examined += sign * other.examined
        self.violations += sign * other.violations
        self.undecided += sign * other.undecided
        self.inexact += sign * other.inexact
        self.lasting += sign * other.lasting


class Lag(msgspec.Struct):
    """How far stability is behind in one run."""

    run: str
    unstable: int  # messages sent and not yet marked stable by everyone
    oldest_ns: int | None  # how long ago the oldest of them was sent, by the newest time in the trace
    behind: int | None  # the member that has marked least of them


class Report(msgspec.Struct):
    """What is known of one run."""

    findings: dict[str, Finding] = msgspec.field(default_factory=lambda: {name: Finding() for name in GUARANTEES})
    rows: int = 0  # judged
    waiting: int = 0  # rows that wait for a send
    live: int = 0  # messages that are kept
    lag: Lag | None = None
    waits_for: int | None = None  # the member whose send most members wait for


def report(run: Run, *, final: bool = False) -> Report:
    """Judge a run by what has been read of it; `final`: and nothing more will come."""
    group, messages, counts = run.group, run.messages, run.group.counts
    known = (group.has_log > 0) | (group.belongs[1:] > 0).any(axis=0)
    cut = known & (group.ended == 0) & (group.gone == 0) if group.ended.any() else np.zeros(len(run.ids), bool)
    unsent = (messages.sent == 0) & (messages.retired == 0)
    delivered = (messages.kind & a.DELIVERED) > 0
    hidden = cut if final else (group.ended == 0) & (group.gone == 0)  # whose sends may still turn up, or are lost
    by_cut = unsent & hidden[messages.sender] if len(hidden) else unsent
    unsent_deliveries = int(delivered[unsent & ~by_cut].sum())
    examined, violations, crossed = _compare_orders(run)
    findings = {
        "integrity": Finding(
            int(counts[DELIVERIES]),
            int(counts[REPEATED]) + unsent_deliveries,
            int(delivered[by_cut].any()),
            int(group.inexact[INTEGRITY]),
            int(counts[REPEATED]),
        ),
        "fifo": Finding(int(counts[DELIVERIES]), int(counts[LATE]), 0, 0, int(counts[LATE])),
        "causal": Finding(
            int(counts[CAUSAL_EXAMINED]),
            int(counts[CAUSAL_VIOLATIONS]),
            int((messages.kind[by_cut] > 0).any()),
            int(group.inexact[CAUSAL]),
        ),
        "total": Finding(examined, violations, 0, int(bool(group.inexact[TOTAL]) or crossed)),
    }
    return Report(
        findings,
        rows=int(counts[ROWS]),
        waiting=len(run.queue.code),
        live=int((messages.retired == 0).sum()),
        lag=_lag(run),
        waits_for=_waits_for(run),
    )


def _compare_orders(run: Run) -> tuple[int, int, bool]:
    """(pairs with two common messages, pairs whose orders differ, whether some pair cannot be compared)."""
    group = run.group
    logs = np.flatnonzero(group.has_log)
    common = np.zeros(group.crossed.shape, np.int64)
    differs = np.zeros(group.crossed.shape, bool)
    for view in range(len(run.views)):
        following = group.follows[:, view]
        stays = (following != NOT_IN) & (following != GONE)
        together = stays[:, None] & stays[None, :] & (following[:, None] == following[None, :])
        common += np.where(together, group.common[view], 0)
        differs |= together & (group.differs[view] > 0)
    upper = np.zeros(common.shape, bool)
    upper[np.ix_(logs, logs)] = True
    upper &= np.triu(np.ones(common.shape, bool), 1)
    return int((upper & (common >= 2)).sum()), int((upper & differs).sum()), bool(group.crossed.any())


def _lag(run: Run) -> Lag | None:
    group, messages = run.group, run.messages
    present = np.flatnonzero((group.has_log > 0) & (group.gone == 0))
    if not group.counts[HAS_MARKS] or not len(present):
        return None
    marks = group.marks[present]
    stable = marks.min(axis=0)
    unstable = (messages.sent > 0) & (messages.retired == 0) & (messages.seq > stable[messages.sender])
    times = messages.send_ns[unstable & (messages.send_ns != NULL_TIME)]
    oldest = int(group.counts[NEWEST_NS] - times.min()) if len(times) else None
    behind = int(present[marks.sum(axis=1).argmin()]) if unstable.any() else None
    return Lag(run.name, int(unstable.sum()), oldest, None if behind is None else run.ids[behind])


def _waits_for(run: Run) -> int | None:
    """The sender whose messages the first waiting rows are about."""
    queue = run.queue
    if not len(queue.code):
        return None
    first = np.flatnonzero(np.diff(queue.actor, prepend=-1))
    wanted = queue.sender[first][np.isin(queue.code[first], (DELIVER, DISCARD))]
    return run.ids[int(np.bincount(wanted).argmax())] if len(wanted) else None


class Alarm(msgspec.Struct):
    """One violation as it was found."""

    run: str
    guarantee: str
    member: int
    step: int
    sender: int
    seq: int
    why: str


def words(run: Run, found: a.Alarms) -> list[Alarm]:
    """Alarms as sentences."""
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
        alarms.append(Alarm(run.name, guarantee, member, step, *message, why))
    return alarms
