"""Writes traces: a folder of one finished run, or one part of a member's log after the other.

Files and folders appear under their names only when they are whole, so that a reader never takes half of one for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.atomic_write import Replacement
from antiphon.errors import UsageError
from antiphon.trace.log import MemberLog
from antiphon.trace.run_file import RUN_FILE, write_run_file
from antiphon.trace.schema import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema() -> pa.Schema:
    """Give the trace contract as an Arrow schema."""
    import pyarrow as pa

    required = {"run", "member", "step", "time_ns", "event", "view"}
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "list<int32>": pa.list_(pa.int32())}
    return pa.schema([pa.field(name, types[kind], nullable=name not in required) for name, kind in COLUMNS.items()])


def log_table(run: str, log: MemberLog, first_step: int = 1) -> pa.Table:
    """Give a member's log as rows of a trace, numbered from `first_step`."""
    import pyarrow as pa

    rows, members = len(log), log.members()
    columns = [
        pa.array([run] * rows, pa.string()),
        pa.array([log.member] * rows, pa.int32()),
        pa.array(range(first_step, first_step + rows), pa.int64()),
        pa.array(log.times, pa.int64()),
        pa.array(log.events, pa.string()),
        pa.array(log.senders, pa.int32()),
        pa.array(log.seqs, pa.int64()),
        pa.array(log.views(), pa.int64()),
        pa.array(log.bytes, pa.int64()),
        pa.array([members.get(row) for row in range(rows)], pa.list_(pa.int32())),
        pa.array(log.details, pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema())


def write_part(file: Path, run: str, log: MemberLog, first_step: int) -> None:
    """Write a part of a member's log, numbered from `first_step`, as a file of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Replacement(file) as fresh, pa.OSFile(str(fresh), "wb") as out:  # it would take run:1/... for a URI
        pq.write_table(log_table(run, log, first_step), out, compression="zstd")


def write_trace(
    folder: Path, run: str, logs: Sequence[MemberLog], about: dict[str, Any], *, replace: bool, durable: bool = True
) -> int:
    """Write `events.parquet`, a row group a member, and run.json beside it; give the number of events.

    `replace`: an earlier trace goes; anything else stays. A trace that nobody needs after a power failure need not be
    `durable`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    refuse_to_replace(folder, but_traces=replace)
    events = sum(len(log) for log in logs)
    with Replacement(folder, durable=durable) as fresh:
        fresh.mkdir()
        with (
            pa.OSFile(str(fresh / "events.parquet"), "wb") as out,
            pq.ParquetWriter(out, arrow_schema(), compression="zstd") as writer,
        ):
            for log in logs:
                writer.write_table(log_table(run, log), row_group_size=max(len(log), 1))
        write_run_file(fresh, run, {**about, "events": events}, {"pyarrow": pa.__version__})
    return events


def refuse_to_replace(folder: Path, *, but_traces: bool) -> None:
    """Raise a `UsageError` if a trace in this folder would replace something; `but_traces`: other than a trace."""
    if not folder.exists():
        return
    if not but_traces:
        raise UsageError(f"{folder}: exists already; name another folder or add --force")
    if not folder.name or not _is_trace(folder):
        raise UsageError(f"{folder}: holds something else than a trace, which stays; name another folder")


def _is_trace(folder: Path) -> bool:
    """Return whether a folder holds a run, or several in folders of their own, or nothing."""
    return folder.is_dir() and ((folder / RUN_FILE).is_file() or all(map(_is_trace, folder.iterdir())))


def digest(run: str, logs: Iterable[MemberLog]) -> str:
    """Give a fingerprint of a run's events that does not depend on any library's file format."""
    sha = hashlib.sha256(run.encode())
    for log in logs:
        columns = zip(log.views(), log.times, log.events, log.senders, log.seqs, log.bytes, log.details, strict=True)
        for row in columns:
            sha.update(repr((log.member, *row)).encode())
        for first, members in log.members().items():
            sha.update(repr((first, members)).encode())
    return sha.hexdigest()
