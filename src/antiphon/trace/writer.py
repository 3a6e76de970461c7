"""Writes traces: a directory with `events.parquet`, one row group a member, and `run.json` beside it.

The folder appears under its name only when it is whole, so that a reader never takes half a trace for all of it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon import __version__
from antiphon.errors import UsageError
from antiphon.trace.log import MemberLog

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema() -> pa.Schema:
    """Give the trace contract as an Arrow schema."""
    import pyarrow as pa

    required = {"run", "member", "step", "time_ns", "event", "view"}
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "list<int32>": pa.list_(pa.int32())}
    from antiphon.trace.schema import COLUMNS

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


def write_trace(folder: Path, run: str, logs: Sequence[MemberLog], about: dict[str, Any], *, replace: bool) -> int:
    """Write the logs of a run and what is to be said about it; give the number of events."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if folder.exists() and not replace:
        raise UsageError(f"{folder}: exists already; name another folder or add --force")
    schema, count = arrow_schema(), 0
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        with pq.ParquetWriter(unfinished / "events.parquet", schema, compression="zstd") as writer:
            for log in logs:
                writer.write_table(log_table(run, log), row_group_size=max(len(log), 1))
                count += len(log)
        versions = {"antiphon": __version__, "python": platform.python_version(), "pyarrow": pa.__version__}
        text = json.dumps({"run": run, **about, "events": count, "versions": versions}, indent=1, default=str)
        (unfinished / "run.json").write_text(text + "\n")
        if folder.exists():
            shutil.rmtree(folder)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return count


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
