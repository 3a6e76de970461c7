"""Watch: a directory into which members are still writing, judged as it grows.

A stream of file *names* (Structured Streaming) hands each batch to tasks that read the files and carry every run's
state on. What a batch says counts when its commit file is there: state and alarms carry the batch's number and appear
by rename, so a batch that is done again after a crash writes the same files again, and nothing is lost or doubled.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.errors import UsageError
from antiphon.pipeline.layout import DISCARD, VIEW, Array, as_numpy
from antiphon.pipeline.reading import Mapping, read_batches, run_file
from antiphon.pipeline.results import WatchAlarm, WatchCommit, last_commit
from antiphon.pipeline.session import Session, one_line_errors
from antiphon.pipeline.watch.intake import NO_ONE, Rows, take_in
from antiphon.pipeline.watch.judge import advance
from antiphon.pipeline.watch.report import Report, report, words
from antiphon.pipeline.watch.retire import retire
from antiphon.pipeline.watch.state import View, load, new_run, save
from antiphon.trace.schema import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

FILES_MAX: Final = 512  # that one batch takes
PATIENCE_S: Final = 30.0  # of the trace's own time, that a delivery waits for its send
SHOWN: Final = 10
ALARM_SCHEMA: Final = pa.schema(
    [
        ("batch", pa.int64()),
        ("run", pa.string()),
        ("guarantee", pa.string()),
        ("member", pa.int32()),
        ("step", pa.int64()),
        ("sender", pa.int32()),
        ("seq", pa.int64()),
        ("why", pa.string()),
    ]
)
_FOLDERS: Final = ("state", "alarms", "commits", "quarantine", "conclusion", "spark")


def take(commit: WatchCommit, before: Report | None, after: Report) -> None:
    """Put what is known of a run now in the place of what was known before."""
    for sign, known in ((-1, before), (1, after)):
        if known is not None:
            commit.runs += sign
            commit.events += sign * known.rows
            commit.waiting += sign * known.waiting
            commit.live += sign * known.live
            for name, finding in known.findings.items():
                commit.findings[name].add(finding, sign)


class Read(msgspec.Struct):
    """What one reading task says."""

    runs: list[str] = []
    quarantined: dict[str, int] = {}
    promises: list[str] | None = None


class Judged(msgspec.Struct):
    """What one judging task says."""

    reports: list[tuple[Report | None, Report]] = []
    alarms: int = 0
    shown: list[WatchAlarm] = []
    quarantined: dict[str, int] = {}


class Job(msgspec.Struct, frozen=True):
    """A batch: where it reads and writes."""

    directory: str
    checkpoint: str
    batch: int
    committed: int
    patience_ns: int

    @property
    def scratch(self) -> Path:
        """Where the rows of the batch wait to be judged."""
        return Path(self.checkpoint, f"batch-{self.batch:010}")

    def state(self, run: str, batch: int) -> Path:
        """A run's state after a batch."""
        return Path(self.checkpoint, "state", f"{_hash(run)}.{batch:010}.npz")

    def states(self, fingerprint: str) -> list[tuple[int, Path]]:
        """A run's committed states, oldest first."""
        files = sorted(Path(self.checkpoint, "state").glob(f"{fingerprint}.*.npz"))
        numbered = [(int(file.name.split(".")[1]), file) for file in files]
        return [(number, file) for number, file in numbered if number <= self.committed]


def _hash(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:24]


Tell = Callable[[WatchCommit, list[WatchAlarm], float, int], None]  # the sums, alarms to show, seconds, files that wait


class Watcher:
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
        job = Job(self.directory, self.checkpoint, number, self.sum.batch, self.patience_ns)
        fresh = msgspec.json.decode(msgspec.json.encode(self.sum), type=WatchCommit)
        fresh.batch, fresh.files = number, fresh.files + len(files)
        before = fresh.events
        shown = self._judge(job, self._read(job, files, fresh), fresh)
        took = time.monotonic() - begun
        fresh.events_per_s = (fresh.events - before) / max(took, 1e-9)
        _write_whole(Path(self.checkpoint, "commits", f"{number:010}.json"), msgspec.json.encode(fresh))
        for old in sorted(Path(self.checkpoint, "commits").glob("*.json"))[:-2]:
            old.unlink()
        shutil.rmtree(job.scratch, ignore_errors=True)
        self.sum = fresh
        waiting = max(0, sum(1 for _ in _parquet_files(self.directory)) - fresh.files)
        self.tell(fresh, shown, took, waiting)

    def _read(self, job: Job, files: list[str], fresh: WatchCommit) -> list[str]:
        """Read the files of a batch; returns the runs that they are about."""
        job.scratch.mkdir(exist_ok=True)
        shares = _shares(files, self.session.parallelism)
        runs: set[str] = set()
        for result in self.session.each(len(shares), functools.partial(read_files, job, shares), "read"):
            part = msgspec.msgpack.decode(result, type=Read)
            runs.update(part.runs)
            fresh.quarantined = dict(Counter(fresh.quarantined) + Counter(part.quarantined))
            if part.promises is not None:
                fresh.promises = sorted({*(fresh.promises or ()), *part.promises})
        return sorted(runs)

    def _judge(self, job: Job, runs: list[str], fresh: WatchCommit) -> list[WatchAlarm]:
        shares = [runs[task :: self.session.parallelism] for task in range(min(len(runs), self.session.parallelism))]
        roster = {run: self.roster[run] for run in runs if run in self.roster}
        shown: list[WatchAlarm] = []
        fresh.lag = fresh.waits_for = None
        for result in self.session.each(len(shares), functools.partial(judge_runs, job, shares, roster), "judge"):
            part = msgspec.msgpack.decode(result, type=Judged)
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
        job = Job(self.directory, self.checkpoint, self.sum.batch, self.sum.batch, self.patience_ns)
        final = msgspec.json.decode(msgspec.json.encode(self.sum), type=WatchCommit)
        for result in self.session.each(tasks, functools.partial(conclude_runs, job, shares), "conclude"):
            part = msgspec.msgpack.decode(result, type=Judged)
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


def _write_whole(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.unfinished")
    with fresh.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


# --- who takes part ---------------------------------------------------------------------------------------------------


def _find_members(session: Session, files: list[str]) -> dict[str, list[int]]:
    """The members of every run that has files already."""
    shares = _shares(files, 8 * session.parallelism)
    found: dict[str, set[int]] = {}
    for result in session.each(len(shares), functools.partial(_members_of, shares), "members"):
        for run, members in msgspec.msgpack.decode(result, type=dict[str, list[int]]).items():
            found.setdefault(run, set()).update(members)
    return {run: sorted(members) for run, members in found.items()}


def _members_of(shares: list[list[str]], task: int) -> bytes:
    found: dict[str, set[int]] = {}
    for file in shares[task]:
        try:
            table = pq.read_table(file, columns=["run", "member"], use_threads=False)
            pairs = table.group_by(["run", "member"], use_threads=False).aggregate([])
        except (pa.ArrowException, OSError):
            continue  # reading it will say what is wrong
        for run, member in zip(pairs["run"].to_pylist(), pairs["member"].to_pylist(), strict=True):
            if isinstance(run, str) and isinstance(member, int):
                found.setdefault(run, set()).add(member)
    return msgspec.msgpack.encode({run: sorted(members) for run, members in found.items()})


# --- tasks ------------------------------------------------------------------------------------------------------------


def read_files(job: Job, shares: list[list[str]], task: int) -> bytes:
    """Read some files; leave the rows of each run as one piece, and put aside what cannot be read."""
    part = Read()
    pieces: dict[str, list[pa.Table]] = {}
    quarantined: Counter[str] = Counter()
    rubbish: list[dict[str, Any]] = []
    for file in shares[task]:
        about = run_file(str(Path(file).parent), str(Path(job.directory).absolute()))
        if about is not None:
            part.promises = sorted({*(part.promises or ()), *about[0]})
        for batch in read_batches(file, None, Mapping()):
            quarantined.update(row.event or "" for row in batch.bad)
            rubbish += [msgspec.structs.asdict(row) for row in batch.bad]
            for run, rows in _by_run(batch.good):
                pieces.setdefault(run, []).append(rows)
    for run, tables in pieces.items():
        _leave(job, run, task, tables)
    if rubbish:
        name = f"{job.batch:010}-{task:06}.parquet"
        _write_table(Path(job.checkpoint, "quarantine", name), pa.Table.from_pylist(rubbish))
    part.runs, part.quarantined = sorted(pieces), dict(quarantined)
    return msgspec.msgpack.encode(part)


def _by_run(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    if not table.num_rows:
        return
    run = table["run"].combine_chunks()
    run = run.chunk(0) if isinstance(run, pa.ChunkedArray) else run
    run = run if pa.types.is_dictionary(run.type) else run.dictionary_encode()
    used = pc.unique(run.indices).to_pylist()
    names = run.dictionary.to_pylist()
    for code in used:
        yield names[code], table if len(used) == 1 else table.filter(pc.equal(run.indices, code))


def _leave(job: Job, run: str, task: int, tables: list[pa.Table]) -> None:
    columns: dict[str, list[Array]] = {name: [] for name in Rows._fields if name != "views"}
    views: list[View] = []
    for table in tables:
        code = as_numpy(table["event"], "event").astype(np.int64)
        sender = as_numpy(table["sender"], "sender").astype(np.int64)
        if table["sender"].null_count:
            sender = np.where(pc.is_null(table["sender"]).to_numpy(), NO_ONE, sender)
        installed = np.full(len(code), -1, np.int64)
        for row in np.flatnonzero(code == VIEW).tolist():
            installed[row] = len(views)
            views.append(_view(table, row))
        found = {
            "member": as_numpy(table["member"], "member"),
            "step": as_numpy(table["step"], "step"),
            "code": code,
            "sender": np.where(code <= DISCARD, sender, NO_ONE),
            "seq": as_numpy(table["seq"], "seq"),
            "time": as_numpy(table["time_ns"], "time_ns"),
            "view": installed,
        }
        for name, column in found.items():
            columns[name].append(column.astype(np.int64))
    path = job.scratch / f"{_hash(run)}-{task:06}.npz"
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    arrays["views"] = np.frombuffer(msgspec.msgpack.encode(views), np.uint8)
    fresh = path.with_name(f".{os.getpid()}.{path.name}")
    with fresh.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays)
    fresh.replace(path)


def _view(table: pa.Table, row: int) -> View:
    members = table["members"][row].as_py()
    return View(table["view"][row].as_py() or 0, None if members is None else tuple(sorted(set(members))))


def _pieces(job: Job, run: str) -> Rows:
    """All rows of a run in this batch."""
    columns: list[list[Array]] = [[] for _ in range(len(Rows._fields) - 1)]
    views: list[View] = []
    for file in sorted(job.scratch.glob(f"{_hash(run)}-*.npz")):
        with np.load(file, allow_pickle=False) as found:
            for parts, name in zip(columns, Rows._fields[:-1], strict=True):
                values = found[name]
                parts.append(np.where(values < 0, -1, values + len(views)) if name == "view" else values)
            views += msgspec.msgpack.decode(found["views"].tobytes(), type=list[View])
    member, step, code, sender, seq, moment, view = (np.concatenate(parts) for parts in columns)
    return Rows(member, step, code, sender, seq, moment, view, views)


def judge_runs(job: Job, shares: list[list[str]], roster: dict[str, list[int]], task: int) -> bytes:
    """Carry some runs on by one batch."""
    part = Judged()
    alarms: list[WatchAlarm] = []
    quarantined: Counter[str] = Counter()
    for name in shares[task]:
        states = job.states(_hash(name))
        run = load(states[-1][1]) if states else new_run(name)
        before = report(run) if states else None
        quarantined.update(EVENTS[code] for code in take_in(run, _pieces(job, name), set(roster.get(name, ()))))
        alarms += words(run, advance(run, job.patience_ns), job.batch)
        retire(run)
        save(run, job.state(name, job.batch))
        part.reports.append((before, report(run)))
        for _, old in states[:-1]:
            old.unlink(missing_ok=True)
    _write_alarms(Path(job.checkpoint, "alarms", f"{job.batch:010}-{task:06}.parquet"), alarms)
    part.alarms, part.shown, part.quarantined = len(alarms), alarms[:SHOWN], dict(quarantined)
    return msgspec.msgpack.encode(part)


def conclude_runs(job: Job, shares: list[list[str]], task: int) -> bytes:
    """Judge what waits in some runs as if nothing more will come."""
    part = Judged()
    alarms: list[WatchAlarm] = []
    for fingerprint in shares[task]:
        states = job.states(fingerprint)
        if not states:
            continue
        run = load(states[-1][1])
        before = report(run)
        alarms += words(run, advance(run, job.patience_ns, to_the_end=True), job.batch)
        part.reports.append((before, report(run, final=True)))
    _write_alarms(Path(job.checkpoint, "conclusion", f"{task:06}.parquet"), alarms)
    part.alarms, part.shown = len(alarms), alarms[:SHOWN]
    return msgspec.msgpack.encode(part)


def _write_alarms(path: Path, alarms: Iterable[WatchAlarm]) -> None:
    rows = [msgspec.structs.asdict(alarm) for alarm in alarms]
    if rows:
        _write_table(path, pa.Table.from_pylist(rows, ALARM_SCHEMA))
    else:
        path.unlink(missing_ok=True)


def _write_table(path: Path, table: pa.Table) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    pq.write_table(table, fresh)
    fresh.replace(path)
