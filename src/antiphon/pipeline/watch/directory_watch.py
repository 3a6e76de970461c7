"""The driver of a watch: hands batches of files to tasks, and commits what they say."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

import msgspec

from antiphon.atomic_write import atomic_write
from antiphon.errors import UsageError
from antiphon.pipeline.results import WatchAlarm, WatchCommit, last_commit
from antiphon.pipeline.session import Session, one_line_errors
from antiphon.pipeline.watch.batch import (
    SHOWN,
    BatchJob,
    JudgeResult,
    ReadResult,
    conclude_runs,
    judge_runs,
    members_of,
    read_files,
)
from antiphon.pipeline.watch.report import RunReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

FILES_MAX: Final = 512  # that one batch takes
PATIENCE_S: Final = 30.0  # of the trace's own time, that a delivery waits for its send
_FOLDERS: Final = ("state", "alarms", "commits", "quarantine", "conclusion", "spark")


def take(commit: WatchCommit, before: RunReport | None, after: RunReport) -> None:
    """Put what is known of a run now in the place of what was known before."""
    for sign, known in ((-1, before), (1, after)):
        if known is not None:
            commit.runs += sign
            commit.events += sign * known.rows
            commit.waiting += sign * known.waiting
            commit.live += sign * known.live
            for name, finding in known.findings.items():
                commit.findings[name].add(finding, sign)


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
    ) -> None:
        self.session, self.directory, self.checkpoint, self.tell = session, directory, checkpoint, tell
        self.files_max, self.patience_ns = files_max, int(patience_s * 1e9)
        if not Path(directory).is_dir():
            raise UsageError(f"{directory}: no such directory; watch needs one into which members write Parquet files")
        for name in _FOLDERS:
            Path(checkpoint, name).mkdir(parents=True, exist_ok=True)
        for stale in Path(checkpoint).glob("batch-*"):
            shutil.rmtree(stale)
        self.sum = last_commit(Path(checkpoint)) or WatchCommit()
        self.roster: dict[str, list[int]] = {}

    def start(self, *, available_now: bool) -> StreamingQuery:
        """Start the stream."""
        spark = self.session.spark
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise UsageError("watch needs a Spark of its own or a cluster's master, not Spark Connect")
        files = [str(file) for file in _parquet_files(self.directory)]
        if len(files) > self.files_max:  # no batch sees all of them, so see first who takes part
            self.roster = _find_members(self.session, files)
        stream = (
            spark.readStream.format("binaryFile")
            .schema("path string, modificationTime timestamp, length long, content binary")
            .option("pathGlobFilter", "*.parquet")
            .option("recursiveFileLookup", "true")
            .option("maxFilesPerTrigger", self.files_max)
            .load(self.directory)
            .select("path")
        )
        writer = stream.writeStream.option("checkpointLocation", str(Path(self.checkpoint, "spark")))
        writer = writer.foreachBatch(self.batch)
        for name in ("py4j.clientserver", "py4j.java_gateway"):
            logging.getLogger(name).addFilter(_not_a_traceback)
        trigger = (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="500 milliseconds")
        )
        with one_line_errors():
            return trigger.start()

    def batch(self, frame: DataFrame, number: int) -> None:
        """Judge one batch of files, unless it has been."""
        if number <= self.sum.batch:
            return
        begun = time.monotonic()
        files = sorted(unquote(urlparse(row.path).path) for row in frame.collect())
        job = BatchJob(self.directory, self.checkpoint, number, self.sum.batch, self.patience_ns)
        fresh = msgspec.json.decode(msgspec.json.encode(self.sum), type=WatchCommit)
        fresh.batch, fresh.files = number, fresh.files + len(files)
        before = fresh.events
        shown = self._judge(job, self._read(job, files, fresh), fresh)
        took = time.monotonic() - begun
        fresh.events_per_s = (fresh.events - before) / max(took, 1e-9)
        atomic_write(Path(self.checkpoint, "commits", f"{number:010}.json"), msgspec.json.encode(fresh))
        for old in sorted(Path(self.checkpoint, "commits").glob("*.json"))[:-2]:
            old.unlink()
        shutil.rmtree(job.scratch, ignore_errors=True)
        self.sum = fresh
        waiting = max(0, sum(1 for _ in _parquet_files(self.directory)) - fresh.files)
        self.tell(fresh, shown, took, waiting)

    def _read(self, job: BatchJob, files: list[str], fresh: WatchCommit) -> list[str]:
        """Read the files of a batch; returns the runs that they are about."""
        job.scratch.mkdir(exist_ok=True)
        shares = _shares(files, self.session.parallelism)
        runs: set[str] = set()
        for result in self.session.each(len(shares), functools.partial(read_files, job, shares), "read"):
            part = msgspec.msgpack.decode(result, type=ReadResult)
            runs.update(part.runs)
            fresh.quarantined = dict(Counter(fresh.quarantined) + Counter(part.quarantined))
            if part.promises is not None:
                fresh.promises = sorted({*(fresh.promises or ()), *part.promises})
        return sorted(runs)

    def _judge(self, job: BatchJob, runs: list[str], fresh: WatchCommit) -> list[WatchAlarm]:
        shares = [runs[task :: self.session.parallelism] for task in range(min(len(runs), self.session.parallelism))]
        roster = {run: self.roster[run] for run in runs if run in self.roster}
        shown: list[WatchAlarm] = []
        fresh.lag = fresh.waits_for = None
        for result in self.session.each(len(shares), functools.partial(judge_runs, job, shares, roster), "judge"):
            part = msgspec.msgpack.decode(result, type=JudgeResult)
            fresh.alarms += part.alarms
            fresh.quarantined = dict(Counter(fresh.quarantined) + Counter(part.quarantined))
            shown = [*shown, *part.shown][:SHOWN]
            for before, after in part.reports:
                take(fresh, before, after)
                if after.lag is not None and (fresh.lag is None or after.lag.unstable > fresh.lag.unstable):
                    fresh.lag = after.lag
                fresh.waits_for = after.waits_for if fresh.waits_for is None else fresh.waits_for
        return shown

    def conclude(self) -> WatchCommit:
        """The verdicts if nothing more comes: what waits is judged as it is. The state stays as it was."""
        fingerprints = sorted({file.name.split(".")[0] for file in Path(self.checkpoint, "state").glob("*.npz")})
        tasks = min(len(fingerprints), self.session.parallelism)
        shares = [fingerprints[task::tasks] for task in range(tasks)]
        shutil.rmtree(Path(self.checkpoint, "conclusion"), ignore_errors=True)
        Path(self.checkpoint, "conclusion").mkdir()
        job = BatchJob(self.directory, self.checkpoint, self.sum.batch, self.sum.batch, self.patience_ns)
        final = msgspec.json.decode(msgspec.json.encode(self.sum), type=WatchCommit)
        for result in self.session.each(tasks, functools.partial(conclude_runs, job, shares), "conclude"):
            part = msgspec.msgpack.decode(result, type=JudgeResult)
            for before, after in part.reports:
                take(final, before, after)
            final.alarms += part.alarms
        return final


def _not_a_traceback(record: logging.LogRecord) -> bool:
    """What a batch raises is reported when the query ends; py4j need not print it as well."""
    return record.exc_info is None


def wait(query: StreamingQuery) -> None:
    """Wait until the stream ends; one line if it fails."""
    failure: list[Exception] = []

    def until_it_ends() -> None:
        try:
            query.awaitTermination()
        except Exception as error:
            failure.append(error)

    # in a thread of its own: an interrupt in the middle of a word to Spark leaves the conversation in disorder
    thread = threading.Thread(target=until_it_ends, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    with one_line_errors():
        if failure:
            raise failure[0]


def _parquet_files(directory: str) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (Path(folder, name) for name in files if name.endswith(".parquet") and name[0] not in "._")


def _shares(files: list[str], tasks: int) -> list[list[str]]:
    return [files[task::tasks] for task in range(min(len(files), tasks))]


def _find_members(session: Session, files: list[str]) -> dict[str, list[int]]:
    """The members of every run that has files already."""
    shares = _shares(files, 8 * session.parallelism)
    found: dict[str, set[int]] = {}
    for result in session.each(len(shares), functools.partial(members_of, shares), "members"):
        for run, members in msgspec.msgpack.decode(result, type=dict[str, list[int]]).items():
            found.setdefault(run, set()).update(members)
    return {run: sorted(members) for run, members in found.items()}
