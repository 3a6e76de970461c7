"""Check: the eight guarantees of a trace, and the four of brokers, exactly, with a witness for every violation shown.

Two Spark jobs over an ingested trace: `encode` reads each member's log by itself, `compare` lays members side by side.
The driver sees counts and the few stubs of witnesses, never events.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection

import msgspec
import numpy as np

from antiphon.errors import UsageError
from antiphon.pipeline.checking.compare import compare_members
from antiphon.pipeline.checking.encode import collect_sends, encode_members
from antiphon.pipeline.checking.findings import Finding, TaskFindings
from antiphon.pipeline.checking.run import CheckJob, all_steady
from antiphon.pipeline.checking.witness import Witnesses
from antiphon.pipeline.results import CheckResult, GuaranteeResult
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.layout import UNIT_COST, Totals, TraceLayout
from antiphon.pipeline.store.location import Location
from antiphon.pipeline.verdicts import HappenedBefore, left_open, verdict
from antiphon.trace.schema import ALL_GUARANTEES, BROKER_GUARANTEES
from antiphon.trace.verdict import Verdict

TASK_ROWS = 4_000_000
COUNT_MAX = (1 << 31) - 1
ONLY_SENDING_MAX = 10  # members that are named


class CheckOptions(msgspec.Struct, frozen=True):
    """What to check, and how."""

    guarantees: tuple[str, ...] = ALL_GUARANTEES  # those of brokers only where there are topics, unless chosen
    uniform: bool = False
    happened_before: HappenedBefore = "deliver"
    implied_own_deliveries: bool = False
    unrecorded_sends: bool = False  # nobody logs what was sent
    witnesses: int = 10
    named: bool = False  # the guarantees were asked for by name


def check_layout(
    session: Session, folder: Location, totals: Totals, scratch: Location, options: CheckOptions
) -> CheckResult:
    """Check a whole ingested trace."""
    job, found = _find(session, folder, scratch, options, per_run=False, ends=totals.ends)
    verdicts = _verdicts(session, job, found.total(), left_open(totals.quarantined, options.happened_before))
    result = _result(totals, verdicts, named=options.named)
    owed = [verdicts[name] for name in ("validity", "agreement") if name in verdicts]
    if not totals.promises and any(one.verdict == "violated" for one in owed):
        result.only_send = _only_send(TraceLayout(folder))
    return result


def _only_send(layout: TraceLayout) -> list[int]:
    """Return the members that send and never deliver anything, if others do: perhaps they only publish."""
    sent, delivered = layout.per_unit("send"), layout.per_unit("deliver")
    delivering = {int(member) for member in layout.unit_member[delivered > 0]}
    sending = {int(member) for member in layout.unit_member[sent > 0]}
    return sorted(sending - delivering)[:ONLY_SENDING_MAX] if delivering else []


def _result(totals: Totals, verdicts: dict[str, Verdict], *, named: bool) -> CheckResult:
    promises = totals.promises or ()
    return CheckResult(
        **totals.as_result(),
        named=named,
        guarantees={
            name: GuaranteeResult(found.verdict, name in promises, found.examined, found.violations, found.witnesses)
            for name, found in verdicts.items()
        },
    )


def check_runs(
    session: Session, folder: Location, scratch: Location, options: CheckOptions
) -> dict[str, dict[str, Verdict]]:
    """The verdicts on every run by itself."""
    job, found = _find(session, folder, scratch, options, per_run=True)
    witnesses = Witnesses(job)
    return {
        run: {
            name: Verdict(
                verdict(part.examined, part.violations, undecided=part.undecided),
                part.examined,
                part.violations,
                [witnesses.make(name, stub) for stub in part.stubs],
            )
            for name in job.guarantees
            for part in [of_run.get(name, Finding())]
        }
        for run, of_run in found.found.items()
    }


def _find(
    session: Session, folder: Location, scratch: Location, options: CheckOptions, *, per_run: bool, ends: bool = False
) -> tuple[CheckJob, TaskFindings]:
    for guarantee in options.guarantees:
        if guarantee not in ALL_GUARANTEES:
            raise UsageError(f"no guarantee is called {guarantee!r}; the guarantees are {', '.join(ALL_GUARANTEES)}")
    layout = TraceLayout(folder)
    _refuse_too_many(layout)
    rows = int(layout.unit_rows.sum()) + UNIT_COST * len(layout.unit_rows)
    tasks = max(1, min(len(layout.unit_rows), -(-rows // TASK_ROWS), 4096), min(session.parallelism, rows // 100_000))
    job = CheckJob(
        layout=str(folder),
        scratch=str(scratch),
        guarantees=options.guarantees,
        uniform=options.uniform,
        with_receipts=options.happened_before == "receive",
        implied=options.implied_own_deliveries,
        unrecorded_sends=options.unrecorded_sends,
        ends=ends,
        witnesses=options.witnesses,
        per_run=per_run,
        encode_tasks=tasks,
        compare_tasks=tasks,
        parallelism=session.parallelism,
    )
    if not all_steady(layout):
        session.each(tasks, functools.partial(collect_sends, job), "numbers")
        job = msgspec.structs.replace(job, spans_known=True)
    found = _each(session, job, encode_members, "encode", job.encode_tasks)
    if found.strays:  # somebody names a message that nobody sent: number these too, and read again
        job = msgspec.structs.replace(job, strays_known=True)
        found = _each(session, job, encode_members, "encode", job.encode_tasks)
    if not found.topics and options.guarantees == ALL_GUARANTEES:
        eight = tuple(name for name in job.guarantees if name not in BROKER_GUARANTEES)
        job = msgspec.structs.replace(job, guarantees=eight)
    if job.compares:
        left = len(layout.runs) - found.settled  # what is settled needs no task
        job = msgspec.structs.replace(job, compare_tasks=max(1, tasks * left // max(1, len(layout.runs))))
        found.merge(_each(session, job, compare_members, "compare", job.compare_tasks))
    return job, found


def _refuse_too_many(layout: TraceLayout) -> None:
    """Raise UsageError where the numbers of messages or rows would not fit into 32 bits."""
    if not layout.runs:
        return
    sends = np.add.reduceat(layout.per_unit("send"), layout.run_bounds[:-1])
    for counts, what in ((sends, "messages in a run"), (layout.unit_rows, "rows of a member in a run")):
        if counts.max() > COUNT_MAX:
            raise UsageError(f"{counts.max():,} {what} are more than {COUNT_MAX:,}: give it as several runs")


def _each(
    session: Session, job: CheckJob, work: Callable[[CheckJob, int], bytes], label: str, tasks: int
) -> TaskFindings:
    whole = TaskFindings(job.witnesses, job.per_run)
    decode = msgspec.msgpack.Decoder(TaskFindings).decode
    for result in session.each(tasks, functools.partial(work, job), label):
        whole.merge(decode(result))
    return whole


def _verdicts(
    session: Session, job: CheckJob, found: dict[str, Finding], affected: Collection[str]
) -> dict[str, Verdict]:
    [encoded] = (
        session.each(1, functools.partial(_make_witnesses, job, found), "witnesses") if _stubs(found) else [b"\x80"]
    )
    witnesses = msgspec.msgpack.decode(encoded, type=dict[str, Verdict])
    verdicts = {}
    for name in job.guarantees:
        part = found[name]
        decision = verdict(
            part.examined,
            part.violations,
            undecided=part.undecided,
            left_open=name in affected,
            lasting=part.lasting,
        )
        shown = witnesses[name].witnesses if name in witnesses else []
        verdicts[name] = Verdict(decision, part.examined, part.violations, shown)
    return verdicts


def _stubs(found: dict[str, Finding]) -> bool:
    return any(part.stubs for part in found.values())


def _make_witnesses(job: CheckJob, found: dict[str, Finding], task: int) -> bytes:
    witnesses = Witnesses(job)
    return msgspec.msgpack.encode(
        {
            name: Verdict(
                "violated", part.examined, part.violations, [witnesses.make(name, stub) for stub in part.stubs]
            )
            for name, part in found.items()
            if part.stubs
        }
    )
