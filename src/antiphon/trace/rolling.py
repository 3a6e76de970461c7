"""Write a member's trace while it runs: a new small Parquet file every so many rows or seconds.

    with RollingWriter(Path("out/live"), run="r1", member=3) as log:
        for effect in member.handle(event, now):     # of a machine that is traced
            if isinstance(effect, TraceRow):
                log.write(now, effect)

At most `rows_max` rows are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from antiphon.protocol.machine import Instant, TraceRow
from antiphon.trace.log import MemberLog
from antiphon.trace.writer import write_part


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
        self.folder, self.run, self.member = folder, run, member
        self.rows_max, self.seconds_max = rows_max, seconds_max
        self.steps = 0  # rows that are written
        self._log = MemberLog(member, view)
        self._clock = clock
        self._opened = clock()
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> RollingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(
        self, now: Instant, event: str, sender: int | None, seq: int | None, size: int | None, detail: str | None
    ) -> None:
        """Append one event."""
        self._log.record(now, event, sender, seq, size, detail)
        self._appended()

    def write(self, now: Instant, row: TraceRow) -> None:
        """Append what a machine said."""
        self._log.write(now, row)
        self._appended()

    def install(self, now: Instant, number: int, members: Sequence[int]) -> None:
        """Note that the member installs a view."""
        self._log.install(now, number, tuple(members))
        self._appended()

    def _appended(self) -> None:
        if len(self._log) >= self.rows_max:
            self.flush()
        else:
            self.tick()

    def tick(self) -> None:
        """Write what is there if it has waited long enough; call it now and then while nothing happens."""
        if len(self._log) and self._clock() - self._opened >= self.seconds_max:
            self.flush()

    def flush(self) -> None:
        """Write what is there as a file of its own."""
        self._opened = self._clock()
        if not len(self._log):
            return
        first_step = self.steps + 1
        write_part(self.folder / f"{self.member}-{first_step:012}.parquet", self.run, self._log, first_step)
        self.steps += len(self._log)
        self._log = MemberLog(self.member, self._log.view)

    def close(self) -> None:
        """Write the rest."""
        self.flush()
