"""The driver of a watch: hands batches of files to tasks, and commits what they say."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.results import WatchAlarm, WatchCommit, WatchFinding, last_commit
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.location import files_in, location, remove_file, remove_tree, write_whole
from antiphon.pipeline.watch.batch import (
    SHOWN,
    BatchJob,
    FirstRow,
    JudgeResult,
    ReadResult,
    conclude_runs,
    judge_runs,
    members_of,
    note_first,
    read_files,
)
from antiphon.pipeline.watch.report import RunReport
from antiphon.pipeline.watch.seen_files import FileVersion, SeenFiles

FILES_MAX: Final = 512  # that one batch takes
POLL_S: Final = 0.5  # between two looks at the directory while nothing comes
PATIENCE_S: Final = 30.0  # of the trace's own time, that a delivery waits for its send
PASSED: Final = "a step that its member has used, or has passed"
_FOLDERS: Final = ("state", "alarms", "commits", "quarantine", "conclusion")


def take(commit: WatchCommit, before: RunReport | None, after: RunReport) -> None:
    """Replace what was known of a run by what is known now."""
    for sign, known in ((-1, before), (1, after)):
        if known is not None:
            commit.runs += sign
            commit.events += sign * known.rows
            commit.waiting += sign * known.waiting
            commit.live += sign * known.live
            for name, finding in known.findings.items():
                commit.findings.setdefault(name, WatchFinding()).add(finding, sign)


Tell = Callable[[WatchCommit, list[WatchAlarm], float, int], None]  # the sums, alarms to show, seconds, files that wait


class DirectoryWatch:
    """Carries the state of all runs from batch to batch."""

    def __init__(
        self,
        session: Session,
        directory: str,
        checkpoint: str,
        tell: Tell,
        *,
        files_max: int = FILES_MAX,
        patience_s: float = PATIENCE_S,
        mapping: Mapping | None = None,
    ) -> None:
        self.session, self.directory, self.checkpoint, self.tell = session, directory, checkpoint, tell
        self.files_max, self.patience_ns = files_max, int(patience_s * 1e9)
        self.mapping = mapping or Mapping()
        self._kept = location(checkpoint)
        if not location(directory).is_dir():
            raise UsageError(f"{directory}: no such directory; watch needs one into which members write Parquet files")
        if (self._kept / "commits").is_dir() and not (self._kept / "files").is_dir():
            raise UsageError(f"{checkpoint}: made by an earlier version of antiphon; choose another --checkpoint")
        for name in _FOLDERS:
            (self._kept / name).mkdir(parents=True, exist_ok=True)
        self.sum = last_commit(self._kept) or WatchCommit()
        self._forget_uncommitted()
        self.files = SeenFiles(directory, checkpoint, self.sum.batch)
        self.roster: dict[str, list[int]] = {}

    def _forget_uncommitted(self) -> None:
        """Remove what a batch left that was cut off: it may be done again with other files."""
        for number in (self.sum.batch, self.sum.batch + 1):
            remove_tree(BatchJob(self.directory, self.checkpoint, number, self.sum.batch, self.patience_ns).scratch)
        for folder, pattern in (("alarms", "*.parquet"), ("quarantine", "*.parquet"), ("state", "*.npz")):
            for file in files_in(self._kept / folder, pattern):
                batch = file.name.split(".")[1] if folder == "state" else file.name.split("-")[0]
                if int(batch) > self.sum.batch:
                    remove_file(file)

    def run(self, *, once: bool, go_on: Callable[[], bool] = lambda: True) -> None:
        """Judge batch after batch: until all is read (`once`), or as long as `go_on` says so."""
        unread = self.files.unread()
        if len(unread) > self.files_max:  # no batch sees all of them, so see first who takes part
            self.roster = _find_members(self.session, unread)
        while go_on():
            if unread:
                self.batch(unread[: self.files_max], waiting=len(unread) - self.files_max)
            elif once:
                return
            else:
                time.sleep(POLL_S)
            unread = self.files.unread()

    def batch(self, files: Sequence[str], *, waiting: int = 0, stream_batch: int | None = None) -> None:
        """Judge one batch of files; `waiting`: how many there are besides; `stream_batch`: Spark's number of it."""
        begun = time.monotonic()
        number = self.sum.batch + 1
        job = BatchJob(self.directory, self.checkpoint, number, self.sum.batch, self.patience_ns, self.mapping)
        fresh = msgspec.json.decode(msgspec.json.encode(self.sum), type=WatchCommit)
        fresh.batch, before = number, fresh.events
        fresh.stream_batch = fresh.stream_batch if stream_batch is None else stream_batch
        fresh.unreachable = self.files.problems
        runs, versions = self._read(job, sorted(files), fresh)
        fresh.files += len(versions)
        shown = self._judge(job, runs, fresh)
        self.files.note(number, versions)
        fresh.behind = self.files.backlog(set(files), fresh.events + fresh.waiting - self.sum.events - self.sum.waiting)
        took = time.monotonic() - begun
        fresh.events_per_s = (fresh.events - before) / max(took, 1e-9)
        write_whole(self._kept / "commits" / f"{number:010}.json", msgspec.json.encode(fresh))
        for old in files_in(self._kept / "commits", "*.json")[:-2]:
            remove_file(old)
        remove_tree(job.scratch)
        self.sum = fresh
        self.tell(fresh, shown, took, max(0, waiting))

    def _read(self, job: BatchJob, files: list[str], fresh: WatchCommit) -> tuple[list[str], dict[str, FileVersion]]:
        """Read the files of a batch; returns the runs that they are about, and the version of each file."""
        job.scratch.mkdir(exist_ok=True)
        shares = _shares(files, self.session.parallelism)
        runs: set[str] = set()
        versions: dict[str, FileVersion] = {}
        fresh.broken = {path: why for path, why in fresh.broken.items() if path not in files}
        for result in self.session.each(len(shares), functools.partial(read_files, job, shares), "read"):
            part = msgspec.msgpack.decode(result, type=ReadResult)
            runs.update(part.runs)
            versions |= part.versions
            fresh.quarantined = _added(fresh.quarantined, part.quarantined)
            fresh.quarantine_reasons = _added(fresh.quarantine_reasons, part.reasons)
            fresh.broken |= part.broken
            if part.promises is not None:
                fresh.promises = sorted({*(fresh.promises or ()), *part.promises})
        return sorted(runs), versions

    def _judge(self, job: BatchJob, runs: list[str], fresh: WatchCommit) -> list[WatchAlarm]:
        shares = [runs[task :: self.session.parallelism] for task in range(min(len(runs), self.session.parallelism))]
        roster = {run: self.roster[run] for run in runs if run in self.roster}
        shown: list[WatchAlarm] = []
        fresh.lag = fresh.waits_for = fresh.quiet = None
        for result in self.session.each(len(shares), functools.partial(judge_runs, job, shares, roster), "judge"):
            part = msgspec.msgpack.decode(result, type=JudgeResult)
            fresh.alarms += part.alarms
            fresh.quarantined = _added(fresh.quarantined, part.quarantined)
            again = {PASSED: sum(part.quarantined.values())} if part.quarantined else {}
            fresh.quarantine_reasons = _added(fresh.quarantine_reasons, again)
            shown = [*shown, *part.shown][:SHOWN]
            for before, after in part.reports:
                take(fresh, before, after)
                if after.lag is not None and (fresh.lag is None or after.lag.unstable > fresh.lag.unstable):
                    fresh.lag = after.lag
                if after.quiet is not None and (fresh.quiet is None or after.quiet.silent_ns > fresh.quiet.silent_ns):
                    fresh.quiet = after.quiet
                fresh.waits_for = after.waits_for if fresh.waits_for is None else fresh.waits_for
        return shown

    def conclude(self) -> WatchCommit:
        """The verdicts if nothing more comes: what waits is judged as it is. The state stays as it was."""
        fingerprints = sorted({file.name.split(".")[0] for file in files_in(self._kept / "state", "*.npz")})
        tasks = min(len(fingerprints), self.session.parallelism)
        shares = [fingerprints[task::tasks] for task in range(tasks)]
        remove_tree(self._kept / "conclusion")
        (self._kept / "conclusion").mkdir()
        job = BatchJob(self.directory, self.checkpoint, self.sum.batch, self.sum.batch, self.patience_ns)
        final = msgspec.json.decode(msgspec.json.encode(self.sum), type=WatchCommit)
        final.unreachable = self.files.problems
        for result in self.session.each(tasks, functools.partial(conclude_runs, job, shares), "conclude"):
            part = msgspec.msgpack.decode(result, type=JudgeResult)
            for before, after in part.reports:
                take(final, before, after)
            final.alarms += part.alarms
        return final


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def _shares(files: list[str], tasks: int) -> list[list[str]]:
    return [files[task::tasks] for task in range(min(len(files), tasks))]


def _find_members(session: Session, files: list[str]) -> dict[str, list[int]]:
    """The members of every run that has files already; of runs in which everyone begins with a view, none.

    Who is in the initial view is all who ever have a log; the members of all others are recorded.
    """
    shares = _shares(files, 8 * session.parallelism)
    found: dict[str, dict[int, FirstRow]] = {}
    for result in session.each(len(shares), functools.partial(members_of, shares), "members"):
        for run, members in msgspec.msgpack.decode(result, type=dict[str, dict[int, FirstRow]]).items():
            for member, row in members.items():
                note_first(found, run, member, row)
    return {
        run: sorted(members)
        for run, members in found.items()
        if any(first.event != "view" for first in members.values())
    }
