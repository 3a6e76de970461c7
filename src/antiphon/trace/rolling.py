"""Write a member's trace while it runs: a new small Parquet file every so many rows or seconds.

    with RollingWriter(Path("out/live"), run="r1", member=3) as log:
        for effect in member.handle(event, now):     # of a machine that is traced
            if isinstance(effect, TraceRow):
                log.write(now, effect)

Each file appears whole, by rename, so that whoever watches the folder never reads half of one. At most `rows_max` rows
are in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon.protocol.machine import Instant, TraceRow
from antiphon.trace.schema import COLUMNS


class RollingWriter:
    """The log of one member as a row of files."""

    def __init__(
        self,
        folder: Path,
        run: str,
        member: int,
        *,
        view: int = 0,
        rows_max: int = 1 << 16,
        seconds_max: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.run, self.member, self.view = folder, run, member, view
        self.rows_max, self.seconds_max = rows_max, seconds_max
        self.step = 0
        self.files = 0
        self._clock = clock
        self._opened = clock()
        self._rows: list[tuple[Any, ...]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> RollingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(
        self, now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
    ) -> None:
        """Append one event."""
        self._append(now, event, sender, seq, size, None, detail)

    def write(self, now: Instant, row: TraceRow) -> None:
        """Append what a machine said."""
        if row.view is not None:
            self.install(now, row.view, row.members or ())
        else:
            self.record(now, row.event, row.sender, row.seq, row.bytes, row.detail)

    def install(self, now: Instant, number: int, members: Sequence[int]) -> None:
        """Note that the member installs a view."""
        self.view = number
        self._append(now, "view", None, None, None, list(members), None)

    def _append(
        self,
        now: Instant,
        event: str,
        sender: int | None,
        seq: int | None,
        size: int | None,
        members: list[int] | None,
        detail: str | None,
    ) -> None:
        self.step += 1
        self._rows.append((self.run, self.member, self.step, now, event, sender, seq, self.view, size, members, detail))
        if len(self._rows) >= self.rows_max:
            self.flush()
        else:
            self.tick()

    def tick(self) -> None:
        """Write what is there if it has waited long enough; call it now and then while nothing happens."""
        if self._rows and self._clock() - self._opened >= self.seconds_max:
            self.flush()

    def flush(self) -> None:
        """Write what is there as a file of its own."""
        self._opened = self._clock()
        if not self._rows:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        from antiphon.trace.writer import arrow_schema

        columns = dict(zip(COLUMNS, zip(*self._rows, strict=True), strict=True))
        first = self._rows[0][2]
        name = f"{self.member}-{first:012}.parquet"
        fresh = self.folder / f".{name}.{os.getpid()}.unfinished"
        try:
            pq.write_table(pa.table({key: list(values) for key, values in columns.items()}, arrow_schema()), fresh)
            fresh.replace(self.folder / name)
        finally:
            fresh.unlink(missing_ok=True)
        self._rows = []
        self.files += 1

    def close(self) -> None:
        """Write the rest."""
        self.flush()
