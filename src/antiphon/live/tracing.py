"""The trace of a live member: written by a thread, in files of bounded size, never waited for.

Every incarnation of a member is a log of its own. Events are collected in memory and handed to the thread some
thousands at a time, and whenever the member's timer calls `flush` and the thread has nothing else to write. If the disk
cannot keep up, so that hundreds of thousands of events wait for it, the log ends there, without its `end`, so that a
reader knows.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from antiphon.errors import UsageError
from antiphon.live.burst import burst_text
from antiphon.live.recording import Origin
from antiphon.live.settings import Settings
from antiphon.protocol.machine import Instant, TraceRow
from antiphon.protocol.options import ordering_type
from antiphon.trace.log import MemberLog, PayloadTeller
from antiphon.trace.run_file import NAMES_FILE, write_names, write_run_file
from antiphon.trace.schema import STOPPED
from antiphon.trace.writer import write_part

EVENTS_PER_FILE: Final = 20_000
FILES_WAITING_MAX: Final = 16
FLUSH_S: Final = 0.7  # so that events are on the disk within a second, whatever comes after them


class LiveTrace:
    """Writes the logs of one member's incarnations into a folder that all members may share."""

    def __init__(
        self,
        folder: Path,
        run: str,
        about: dict[str, Any],
        me: int,
        names: Mapping[int, str],
        tell: PayloadTeller | None = None,
    ) -> None:
        """Begin; `names` are the members' by number, and may grow while the trace does; `tell` says what is sent."""
        self._folder, self._run, self._tell = folder, run, tell
        self._names, self._names_file, self._told = names, folder / f"{NAMES_FILE}-{me}.json", dict[int, str]()
        self._logs: list[LiveLog] = []
        self._jobs: queue.Queue[tuple[MemberLog, int, int] | None] = queue.Queue(FILES_WAITING_MAX)
        self.failed: str | None = None
        try:
            write_run_file(folder, run, about)
            self._tell_names()
        except OSError as error:
            raise UsageError(f"trace: {folder}: {error.strerror}; name a folder that can be written") from None
        self._thread = threading.Thread(target=self._write_all, name="antiphon-trace", daemon=True)
        self._thread.start()

    def incarnation(self, member: int) -> LiveLog:
        """Begin the log of a member's next incarnation; one that the folder has already is never written over."""
        log = LiveLog(self, MemberLog(member, 0, self._tell), is_taken=self._file(member, 0).exists())
        self._logs.append(log)
        return log

    def refuse(self, member: int) -> None:
        """Warn that an incarnation has a number that an earlier one had, in a group whose states were lost."""
        written = self._file(member, 0).name
        self.failed = self.failed or f"{self._folder}: {written} is of an earlier start; name another folder"

    def flush(self) -> None:
        """Hand over what was collected, unless something waits for the disk already.

        Small files would only make a slow disk slower, and as many as may wait soon come together where little happens.
        """
        if self._jobs.empty():
            for log in self._logs:
                log.hand_over()
        self._tell_new_names()

    def _tell_new_names(self) -> None:
        if self.failed is None and self._names != self._told:
            try:
                self._tell_names()
            except OSError as error:
                self.failed = f"{self._folder}: {error.strerror}: the trace ends early"

    def _tell_names(self) -> None:
        self._told = dict(self._names)
        write_names(self._names_file, self._told)

    def close(self, now: Instant, *, is_whole: bool, unfinished: bool = False) -> None:
        """Hand over the rest and wait for the thread; a log that is whole says so by its end.

        A member that ends without having left, with `unfinished` messages, counts as crashed for the guarantees.
        """
        if is_whole and self._logs:
            log = self._logs[-1]
            if unfinished:
                log.write(now, TraceRow(log.member, "crash", detail=STOPPED))
            log.write(now, TraceRow(log.member, "end"))
        for log in self._logs:
            log.hand_over(waits=True)
        self._tell_new_names()
        self._jobs.put(None)
        self._thread.join()

    def hand_over(self, log: MemberLog, first_step: int, part: int, *, waits: bool) -> bool:
        """Give a part of a log to the thread, which may have no room, unless one `waits` for it; say whether it had."""
        try:
            self._jobs.put((log, first_step, part), block=waits)
        except queue.Full:
            self.failed = self.failed or "the disk is slower than the events: the trace ends early"
        return self.failed is None

    def _write_all(self) -> None:
        import pyarrow.parquet  # noqa: F401  # takes long on a busy machine, and the first rows should not wait for it

        while (job := self._jobs.get()) is not None:
            if self.failed is None:
                try:
                    self._write(*job)
                except Exception as error:  # whatever it is, the member goes on and says so
                    why = error.strerror if isinstance(error, OSError) else repr(error)
                    self.failed = f"{self._folder}: {why}: the trace ends early"

    def _write(self, log: MemberLog, first_step: int, part: int) -> None:
        write_part(self._file(log.member, part), self._run, log, first_step)

    def _file(self, member: int, part: int) -> Path:
        return self._folder / f"member-{member}-{part:06}.parquet"


def trace_of(settings: Settings, origin: Origin, names: Mapping[int, str]) -> LiveTrace:
    """Begin the trace that a member's settings ask for."""
    assert settings.trace is not None
    ordering, stability = settings.protocols()
    about = {
        "ordering": ordering,
        "stability": stability if ordering_type(settings.ordering).NEEDS_RECOVERY else ordering,
        "promises": origin.options.promises(),
        "views": settings.views,
        "clock": "local",
        "ends": True,
    }
    tell = burst_text if settings.trace_payloads else None
    return LiveTrace(Path(settings.trace), settings.group, about, origin.name, names, tell)


class LiveLog:
    """The log of one incarnation of a member, as machines write it."""

    def __init__(self, trace: LiveTrace, log: MemberLog, *, is_taken: bool = False) -> None:
        """Begin; `is_taken`: an earlier start wrote a log under this number, so this one may not take part under it."""
        self.member = log.member
        self._trace, self._log, self._is_taken = trace, log, is_taken
        self._first_step, self._part = 1, 0
        self._cut = False

    def write(self, now: Instant, row: TraceRow) -> None:
        """Note what the machine said."""
        if self._cut or self._is_taken:
            if self._is_taken and (row.view is not None or row.event in ("send", "deliver")):
                self._trace.refuse(self.member)
            return
        self._log.write(now, row)
        if len(self._log) >= EVENTS_PER_FILE:
            self.hand_over()

    def hand_over(self, *, waits: bool = False) -> None:
        """Give what was collected to the thread, once it has room or, unless this `waits`, if it has."""
        log = self._log
        if not len(log) or self._cut:
            return
        self._cut = not self._trace.hand_over(log, self._first_step, self._part, waits=waits)
        self._first_step += len(log)
        self._part += 1
        self._log = MemberLog(log.member, log.view, log.tell)
