"""The second stage of a check: members against members, shared out in pieces that a task's memory holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from antiphon.pipeline.checking.agreement import check_agreement
from antiphon.pipeline.checking.brokers import RunConsumers
from antiphon.pipeline.checking.causal import block_width, check_causal
from antiphon.pipeline.checking.findings import Finding, TaskFindings
from antiphon.pipeline.checking.run import CheckedRun, CheckJob, Workspace
from antiphon.pipeline.checking.stability import check_stability
from antiphon.pipeline.checking.total import check_total
from antiphon.pipeline.checking.view_synchrony import check_view_synchrony
from antiphon.pipeline.columns import Array, RunIndex
from antiphon.pipeline.store.layout import TraceLayout, shares

PIECE_ROWS = 4_000_000


class CheckPiece(msgspec.Struct, frozen=True):
    """One guarantee in one part of one run."""

    guarantee: str
    run: RunIndex
    part: int
    parts: int
    cost: int
    width: int = 0  # of a block of members, for causal order


def plan(layout: TraceLayout, job: CheckJob, settled: Array) -> Iterator[CheckPiece]:
    """All pieces of work but for runs that are settled; every task plans the same and takes its share."""
    if not layout.runs:
        return
    rows, sends = (np.add.reduceat(of, layout.run_bounds[:-1]) for of in (layout.unit_rows, layout.per_unit("send")))
    for run in np.setdiff1d(np.arange(len(layout.runs)), settled).tolist():
        members = int(layout.run_bounds[run + 1] - layout.run_bounds[run])
        size = int(rows[run])
        # a piece reads or lays out much of the run again, so there are no more of them than keep everyone busy
        parts = min(-(-size // PIECE_ROWS), 2 * job.parallelism)
        for guarantee in job.guarantees:
            if guarantee == "causal":
                width = block_width(int(sends[run]))
                blocks = -(-members // width)
                senders = min(members, max(1, -(-parts // blocks)))
                cost = 1000 + size * members // (8 * blocks * senders)
                for part in range(blocks * senders):
                    yield CheckPiece(guarantee, run, part, blocks * senders, cost, width)
            elif guarantee in ("total", "stability"):
                for part in range(min(members, parts)):
                    yield CheckPiece(guarantee, run, part, min(members, parts), 1000 + size // min(members, parts))
            elif guarantee in ("at-least-once", "at-most-once", "redelivery"):
                yield CheckPiece(guarantee, run, 0, 1, 1000 + size)
            elif guarantee in ("agreement", "view-synchrony"):
                for part in range(parts):
                    yield CheckPiece(guarantee, run, part, parts, 1000 + size // parts)


def compare_members(job: CheckJob, task: int) -> bytes:
    """Do one task's share of the pieces."""
    here = Workspace(job)
    pieces = list(plan(here.layout, job, here.settled()))
    if not pieces:
        return msgspec.msgpack.encode(TaskFindings(job.witnesses, job.per_run))
    start, stop = shares(np.array([piece.cost for piece in pieces]), job.compare_tasks)[task : task + 2]
    found = TaskFindings(job.witnesses, job.per_run)
    consumers = functools.lru_cache(maxsize=1)(RunConsumers)  # three guarantees look at them
    for piece in pieces[start:stop]:
        run = here.run(piece.run)
        found.add(run.name, piece.guarantee, _check(run, piece, consumers))
    return msgspec.msgpack.encode(found)


def _check(run: CheckedRun, piece: CheckPiece, consumers: Callable[[CheckedRun], RunConsumers]) -> Finding:
    match piece.guarantee:
        case "agreement":
            return check_agreement(run, piece.part, piece.parts)
        case "causal":
            receivers, senders = causal_blocks(run, piece)
            return check_causal(run, receivers, senders, piece.width)
        case "total":
            return check_total(run, piece.part, piece.parts)
        case "stability":
            return check_stability(run, piece.part, piece.parts) if run.has_stable else Finding()
        case "view-synchrony":
            return check_view_synchrony(run, piece.part, piece.parts)
        case "at-least-once":
            return consumers(run).at_least_once()
        case "at-most-once":
            return consumers(run).repeated(unmarked=False)
        case "redelivery":
            return consumers(run).repeated(unmarked=True)
    raise AssertionError(piece.guarantee)


def causal_blocks(run: CheckedRun, piece: CheckPiece) -> tuple[range, range]:
    """Which members' logs are checked against which senders' pasts."""
    blocks = -(-len(run.units) // piece.width)
    senders = piece.parts // blocks
    block, share = divmod(piece.part, senders)
    first = run.units.start + block * piece.width
    cuts = [run.units.start + len(run.units) * i // senders for i in (share, share + 1)]
    return range(first, min(first + piece.width, run.units.stop)), range(*cuts)
