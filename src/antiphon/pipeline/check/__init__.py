"""Check: the eight guarantees of a trace, exactly, with a witness for every violation shown.

Two Spark jobs over an ingested trace: `encode` reads each member's log by itself, `compare` lays members side by side.
The driver sees counts and the few stubs of witnesses, never events.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.check.compare import compare_members
from antiphon.pipeline.check.encode import collect_sends, encode_members
from antiphon.pipeline.check.findings import Finding, Findings
from antiphon.pipeline.check.run import Job, steady_span
from antiphon.pipeline.check.witness import Witnesses
from antiphon.pipeline.layout import Totals, open_layout
from antiphon.pipeline.results import CheckResult, GuaranteeResult
from antiphon.pipeline.session import Session
from antiphon.trace.naive import affected_by
from antiphon.trace.schema import GUARANTEES
from antiphon.trace.verdict import Verdict, decide

TASK_ROWS = 4_000_000
HappenedBefore = Literal["deliver", "receive"]


class Options(msgspec.Struct, frozen=True):
    """What to check, and how."""

    guarantees: tuple[str, ...] = GUARANTEES
    uniform: bool = False
    happened_before: HappenedBefore = "deliver"
    implied_own_deliveries: bool = False
    witnesses: int = 10


def check_layout(session: Session, folder: Path, totals: Totals, scratch: Path, options: Options) -> CheckResult:
    """Check a whole ingested trace."""
    job, found = _find(session, folder, scratch, options, per_run=False)
    verdicts = _verdicts(session, job, found.total(), _affected(totals.quarantined, options), options)
    return _result(totals, verdicts)


def _result(totals: Totals, verdicts: dict[str, Verdict]) -> CheckResult:
    promises = totals.promises or ()
    return CheckResult(
        trace=totals.trace,
        runs=totals.runs,
        members=totals.members,
        events=totals.events,
        quarantined=sum(totals.quarantined.values()),
        guarantees={
            name: GuaranteeResult(found.verdict, name in promises, found.examined, found.violations, found.witnesses)
            for name, found in verdicts.items()
        },
    )


def check_runs(session: Session, folder: Path, scratch: Path, options: Options) -> dict[str, dict[str, Verdict]]:
    """The verdicts on every run by itself."""
    job, found = _find(session, folder, scratch, options, per_run=True)
    witnesses = Witnesses(job)
    return {
        run: {
            name: Verdict(
                decide(part.examined, part.violations, part.undecided),
                part.examined,
                part.violations,
                [witnesses.make(name, stub) for stub in part.stubs],
            )
            for name in options.guarantees
            for part in [of_run.get(name, Finding())]
        }
        for run, of_run in found.found.items()
    }


def _find(session: Session, folder: Path, scratch: Path, options: Options, *, per_run: bool) -> tuple[Job, Findings]:
    for guarantee in options.guarantees:
        if guarantee not in GUARANTEES:
            raise UsageError(f"no guarantee is called {guarantee!r}; the guarantees are {', '.join(GUARANTEES)}")
    layout = open_layout(str(folder))
    rows = int(layout.unit_rows.sum()) + 1_000 * len(layout.unit_rows)
    tasks = max(1, min(len(layout.unit_rows), -(-rows // TASK_ROWS), 4096), min(session.parallelism, rows // 100_000))
    job = Job(
        layout=str(folder),
        scratch=str(scratch),
        guarantees=options.guarantees,
        uniform=options.uniform,
        with_receipts=options.happened_before == "receive",
        implied=options.implied_own_deliveries,
        witnesses=options.witnesses,
        per_run=per_run,
        encode_tasks=tasks,
        compare_tasks=tasks,
        parallelism=session.parallelism,
    )
    if any(steady_span(layout, unit) is None for unit in range(len(layout.unit_rows))):
        session.each(tasks, functools.partial(collect_sends, job), "numbers")
        job = msgspec.structs.replace(job, spans_known=True)
    found = _each(session, job, encode_members, "encode", job.encode_tasks)
    if found.strays:  # somebody names a message that nobody sent: number these too, and read again
        job = msgspec.structs.replace(job, strays_known=True)
        found = _each(session, job, encode_members, "encode", job.encode_tasks)
    if job.compares:
        found.merge(_each(session, job, compare_members, "compare", job.compare_tasks))
    return job, found


def _each(session: Session, job: Job, work: Callable[[Job, int], bytes], label: str, tasks: int) -> Findings:
    whole = Findings(job.witnesses, job.per_run)
    decode = msgspec.msgpack.Decoder(Findings).decode
    for result in session.each(tasks, functools.partial(work, job), label):
        whole.merge(decode(result))
    return whole


def _affected(quarantined: dict[str, int], options: Options) -> frozenset[str]:
    return frozenset(name for event in quarantined for name in affected_by(event or None, options.happened_before))


def _verdicts(
    session: Session, job: Job, found: dict[str, Finding], affected: Collection[str], options: Options
) -> dict[str, Verdict]:
    [encoded] = (
        session.each(1, functools.partial(_make_witnesses, job, found), "witnesses") if _stubs(found) else [b"\x80"]
    )
    witnesses = msgspec.msgpack.decode(encoded, type=dict[str, Verdict])
    verdicts = {}
    for name in options.guarantees:
        part = found[name]
        decision = decide(part.examined, part.violations, part.undecided)
        if name in affected and not part.lasting:
            decision = "unknown"
        shown = witnesses[name].witnesses if name in witnesses else []
        verdicts[name] = Verdict(decision, part.examined, part.violations, shown)
    return verdicts


def _stubs(found: dict[str, Finding]) -> bool:
    return any(part.stubs for part in found.values())


def _make_witnesses(job: Job, found: dict[str, Finding], task: int) -> bytes:
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
