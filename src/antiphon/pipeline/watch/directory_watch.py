"""The driver of a watch: hands batches of files to tasks, and commits what they say."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeVar

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign import decide_times
from antiphon.pipeline.ingesting.foreign.form import LogForm, form_of
from antiphon.pipeline.ingesting.foreign.numbering import UNKNOWN_AUTHOR, number_said
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.time_units import TimeReading
from antiphon.pipeline.results import WatchAlarm, WatchCommit, WatchFinding, last_commit
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.files import SUFFIXES
from antiphon.pipeline.store.location import Location, files_in, location, remove_file, remove_tree, write_whole
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
from antiphon.pipeline.watch.seen_files import FileVersion, LogPosition, SeenFiles, grows

FILES_MAX: Final = 512  # that one batch takes
POLL_S: Final = 0.5  # between two looks at the directory while nothing comes
PATIENCE_S: Final = 30.0  # of the trace's own time, that a delivery waits for its send
PASSED: Final = "a step that its member has used, or has passed"
IN_USE: Final = "another watch works with this checkpoint; each needs its own"
FORMAT: Final = "4"  # of what a checkpoint holds
_FOLDERS: Final = ("state", "alarms", "commits", "quarantine", "conclusion", "names")
WHOLE_ONLY: Final = {  # presets -> why they cannot be watched
    "otlp": "spans come in any order and refer to others that come later",
    "jepsen": "a history is written when it is over",
}
UNKNOWN_NUMBER: Final = -1  # of whoever sent what nobody is known to have sent
Shared = TypeVar("Shared")


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
        self._form = form_of(self.mapping)
        _refuse_what_needs_the_whole(self._form, self.mapping)
        self._kept = location(checkpoint)
        require_directory(directory)
        made_as = self._kept / "format"
        known = made_as.read_text().strip() if made_as.is_file() else ""
        if (self._kept / "commits").is_dir() and known != FORMAT:
            raise UsageError(f"{checkpoint}: made by another version of antiphon; choose another --checkpoint")
        for name in _FOLDERS:
            (self._kept / name).mkdir(parents=True, exist_ok=True)
        write_whole(made_as, FORMAT.encode())
        self.sum = last_commit(self._kept) or WatchCommit()
        self._forget_uncommitted()
        endings = self._form.suffixes if self.mapping.is_of_a_log else tuple(SUFFIXES)
        self.files = SeenFiles(directory, checkpoint, self.sum.batch, endings)
        self.roster: dict[str, list[int]] = {}
        self.names: dict[str, int] = {}
        for file in files_in(self._kept / "names", "*.json"):
            if int(file.name.partition(".")[0]) <= self.sum.batch:
                self.names = msgspec.json.decode(file.read_bytes(), type=dict[str, int])

    def _forget_uncommitted(self) -> None:
        """Remove what a batch left that was cut off: it may be done again with other files."""
        for number in (self.sum.batch, self.sum.batch + 1):
            remove_tree(BatchJob(self.directory, self.checkpoint, number, self.sum.batch, self.patience_ns).scratch)
        for folder, pattern in (
            ("alarms", "*.parquet"),
            ("quarantine", "*.parquet"),
            ("state", "*.npz"),
            ("names", "*.json"),
        ):
            for file in files_in(self._kept / folder, pattern):
                batch = file.name.split(".")[1] if folder == "state" else file.name.split("-")[0].split(".")[0]
                if int(batch) > self.sum.batch:
                    remove_file(file)

    def run(self, *, once: bool, go_on: Callable[[], bool] = lambda: True) -> None:
        """Judge batch after batch: until all is read (`once`), or as long as `go_on` says so."""
        self.files.to_the_end = once
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
        commit = self._kept / "commits" / f"{number:010}.json"
        self._refuse_company(commit)
        mapping, times = self._decided_times(list(files))
        job = BatchJob(
            self.directory,
            self.checkpoint,
            number,
            self.sum.batch,
            self.patience_ns,
            mapping,
            {file: self.files.begin(file) for file in files if grows(file)},
            self.files.to_the_end,
        )
        fresh = msgspec.json.decode(msgspec.json.encode(self.sum), type=WatchCommit)
        fresh.batch, fresh.times, before = number, times, fresh.events
        fresh.stream_batch = fresh.stream_batch if stream_batch is None else stream_batch
        fresh.unreachable = self.files.problems
        if fresh.promises is None:
            fresh.promises = self.mapping.promises or self._form.promises or None
        runs, versions, names, ends = self._read(job, list(files), fresh)
        fresh.files += sum(1 for file in versions if job.begins.get(file, LogPosition()).read == 0)
        job = msgspec.structs.replace(job, names=self._number(number, names), ends=frozenset(ends))
        shown = self._judge(job, runs, fresh)
        fresh.names = {one: name for name, one in self.names.items() if name not in (str(one), UNKNOWN_AUTHOR)}
        self.files.note(number, versions)
        fresh.behind = self.files.backlog(set(files), fresh.events + fresh.waiting - self.sum.events - self.sum.waiting)
        took = time.monotonic() - begun
        fresh.events_per_s = (fresh.events - before) / max(took, 1e-9)
        self._refuse_company(commit)
        write_whole(commit, msgspec.json.encode(fresh))
        for old in files_in(self._kept / "commits", "*.json")[:-2]:
            remove_file(old)
        remove_tree(job.scratch)
        self.sum = fresh
        self.tell(fresh, shown, took, max(0, waiting))

    def _decided_times(self, files: list[str]) -> tuple[Mapping, TimeReading]:
        """Return the mapping with the unit of times: it is decided by the first batch that has any, for good."""
        known = self.sum.times
        if not known.by:
            return decide_times(files, self.mapping)
        guessed = known.unit if known.by == "closeness" else ""
        return msgspec.structs.replace(self.mapping, guessed_unit=guessed), known

    def _refuse_company(self, commit: Location) -> None:
        if commit.is_file():
            raise UsageError(f"{self.checkpoint}: {IN_USE}")

    def _number(self, batch: int, names: set[str]) -> dict[str, int]:
        """Give names that are new their numbers, which count when the batch is committed; returns those of all."""
        if not names:
            return {}
        given = self.mapping.members
        for name in [UNKNOWN_AUTHOR, *sorted(names - self.names.keys())]:
            if name not in self.names:
                taken = {*self.names.values(), *given.values()}
                own = UNKNOWN_NUMBER if name == UNKNOWN_AUTHOR else given.get(name, number_said(name))
                free = own is not None and (own not in taken or name in given)
                self.names[name] = own if free and own is not None else next(n for n in count(1) if n not in taken)
        write_whole(self._kept / "names" / f"{batch:010}.json", msgspec.json.encode(self.names))
        for old in files_in(self._kept / "names", "*.json")[:-2]:
            remove_file(old)
        return {name: self.names[name] for name in (*names, UNKNOWN_AUTHOR)}

    def _read(
        self, job: BatchJob, files: list[str], fresh: WatchCommit
    ) -> tuple[list[str], dict[str, FileVersion], set[str], set[str]]:
        """Read the files of a batch; returns the runs that they are about, each file's version, names in them, ends."""
        job.scratch.mkdir(exist_ok=True)
        shares = _shares(list(enumerate(files)), self.session.parallelism)
        runs: set[str] = set()
        names: set[str] = set()
        ends: set[str] = set()
        versions: dict[str, FileVersion] = {}
        fresh.broken = {path: why for path, why in fresh.broken.items() if path not in files}
        for result in self.session.each(len(shares), functools.partial(read_files, job, shares), "read"):
            part = msgspec.msgpack.decode(result, type=ReadResult)
            runs.update(part.runs)
            versions |= part.versions
            names |= part.names
            ends |= part.ends
            fresh.quarantined = _added(fresh.quarantined, part.quarantined)
            fresh.quarantine_reasons = _added(fresh.quarantine_reasons, part.reasons)
            fresh.quarantine_examples = part.examples | fresh.quarantine_examples
            fresh.broken |= part.broken
            if part.promises is not None:
                fresh.promises = sorted({*(fresh.promises or ()), *part.promises})
        return sorted(runs), versions, names, ends

    def _judge(self, job: BatchJob, runs: list[str], fresh: WatchCommit) -> list[WatchAlarm]:
        shares = [runs[task :: self.session.parallelism] for task in range(min(len(runs), self.session.parallelism))]
        roster = {run: self.roster[run] for run in runs if run in self.roster}
        shown: list[WatchAlarm] = []
        fresh.lag = fresh.waits_for = fresh.quiet = None
        for result in self.session.each(len(shares), functools.partial(judge_runs, job, shares, roster), "judge"):
            part = msgspec.msgpack.decode(result, type=JudgeResult)
            fresh.alarms += part.alarms
            fresh.quarantined = _added(fresh.quarantined, part.quarantined)
            again = {PASSED: part.passed} if part.passed else {}
            fresh.quarantine_reasons = _added(_added(fresh.quarantine_reasons, again), part.reasons)
            fresh.quarantine_examples = part.examples | fresh.quarantine_examples
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


def require_directory(directory: str) -> None:
    """Raise UsageError if there is nothing to watch."""
    if not location(directory).is_dir():
        raise UsageError(f"{directory}: no such directory; watch needs one into which members write Parquet files")


def _refuse_what_needs_the_whole(form: LogForm, mapping: Mapping) -> None:
    """Raise UsageError for what cannot be read as it is written."""
    if mapping.preset in WHOLE_ONLY:
        raise UsageError(
            f"--from {mapping.preset}: {WHOLE_ONLY[mapping.preset]}, so only the whole can be judged: antiphon check"
        )
    if "implied" in (mapping.own_deliveries, form.own_deliveries):
        raise UsageError("own_deliveries = implied: whether a delivery is logged shows at the end: antiphon check")


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def _shares(files: list[Shared], tasks: int) -> list[list[Shared]]:
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
