"""The tasks of one batch: read its files, carry every run's state on, and conclude."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.errors import UsageError
from antiphon.pipeline.columns import (
    CONTROL,
    DELIVER,
    DISCARD,
    NO_OFFSET,
    NO_TEXT,
    SEND,
    TEXTS,
    VIEW,
    Array,
    TextCodes,
    as_numpy,
)
from antiphon.pipeline.ingesting.foreign import names_in
from antiphon.pipeline.ingesting.foreign.form import LogForm, form_of
from antiphon.pipeline.ingesting.quarantine import example_of
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.results import WatchAlarm
from antiphon.pipeline.store.location import (
    Location,
    files_in,
    location,
    open_binary,
    open_parquet,
    remove_file,
    replacement,
)
from antiphon.pipeline.watch import owed
from antiphon.pipeline.watch.consumers import BrokerRows, BrokerWords
from antiphon.pipeline.watch.dues import conclude
from antiphon.pipeline.watch.forget import forget
from antiphon.pipeline.watch.intake import LISTS, NO_ONE, NewRows, take_in
from antiphon.pipeline.watch.judge import advance
from antiphon.pipeline.watch.read_log import FileReader
from antiphon.pipeline.watch.report import RunReport, report, words
from antiphon.pipeline.watch.seen_files import FileVersion, LogPosition, version_of
from antiphon.pipeline.watch.state import HAS_ENDS, NEWEST_NS, WatchedRun, WatchedView, load, new_run, save
from antiphon.pipeline.watch.taking import take
from antiphon.pipeline.watch.translate import translate
from antiphon.trace.run_file import RunFiles
from antiphon.trace.schema import BROKER_KINDS, EVENTS

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


class ReadResult(msgspec.Struct):
    """What one reading task says."""

    runs: list[str] = []
    quarantined: dict[str, int] = {}
    reasons: dict[str, int] = {}
    examples: dict[str, str] = {}  # by reason, one row
    promises: list[str] | None = None
    ends: set[str] = set()  # runs of which every log that is whole has an `end`
    names: set[str] = set()  # of members and senders of other systems' logs
    versions: dict[str, FileVersion] = {}  # of the files that were there, as they were read
    broken: dict[str, str] = {}  # file -> why nothing of it could be read


class JudgeResult(msgspec.Struct):
    """What one judging task says."""

    reports: list[tuple[RunReport | None, RunReport]] = []
    alarms: int = 0
    shown: list[WatchAlarm] = []
    quarantined: dict[str, int] = {}
    passed: int = 0  # of these, rows with steps that their members have used, or have passed
    reasons: dict[str, int] = {}  # of the others
    examples: dict[str, str] = {}


class BatchJob(msgspec.Struct, frozen=True):
    """A batch: where it reads and writes."""

    directory: str
    checkpoint: str
    batch: int
    committed: int
    patience_ns: int
    mapping: Mapping = Mapping()
    begins: dict[str, LogPosition] = {}  # of logs that grow: from where on they are new
    to_the_end: bool = False  # nothing more comes: the last lines of logs count though they have no end
    names: dict[str, int] = {}  # of those who have rows in this batch
    ends: frozenset[str] = frozenset()  # runs of this batch of which every log that is whole has an `end`

    @property
    def form(self) -> LogForm:
        """How another system's log is read."""
        return form_of(self.mapping)

    @property
    def scratch(self) -> Location:
        """Where the rows of the batch wait to be judged."""
        return location(self.checkpoint) / f"batch-{self.batch:010}"

    def state(self, run: str, batch: int) -> Location:
        """A run's state after a batch."""
        return location(self.checkpoint) / "state" / f"{_hash(run)}.{batch:010}.npz"

    def kept(self, folder: str, name: str) -> Location:
        """A file of one of the checkpoint's folders."""
        return location(self.checkpoint) / folder / name

    def states(self, fingerprint: str) -> list[tuple[int, Location]]:
        """A run's committed states, oldest first."""
        files = files_in(location(self.checkpoint) / "state", f"{fingerprint}.*.npz")
        numbered = [(int(file.name.split(".")[1]), file) for file in files]
        return [(number, file) for number, file in numbered if number <= self.committed]


def _hash(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:24]


def read_files(job: BatchJob, shares: list[list[tuple[int, str]]], task: int) -> bytes:
    """Read some files; leave the rows of each run as one piece, and put aside what cannot be read."""
    part = ReadResult()
    pieces: dict[str, list[pa.Table]] = {}
    quarantined: Counter[str] = Counter()
    rubbish: list[dict[str, Any]] = []
    logs: list[pa.Table] = []
    run_files = RunFiles(location(job.directory))
    reader = FileReader(job.mapping, job.form, job.to_the_end)
    for number, file in shares[task]:
        try:
            about = run_files.of(location(file).parent)
            found = reader.read(file, number, job.begins.get(file, LogPosition()))
        except (UsageError, OSError, pa.ArrowException) as problem:  # a file that is no good must not stop the watch
            part.broken[file] = str(problem).splitlines()[0].removeprefix(f"{file}: ")
            with contextlib.suppress(OSError, UsageError):
                part.versions[file] = version_of(file)
            continue
        if found.version is None:
            continue  # replaced meanwhile: the next batch reads it
        part.versions[file] = found.version
        if about is not None:
            part.promises = sorted({*(part.promises or ()), *about.promises})
        quarantined.update(row.event or "" for row in found.bad)
        rubbish += [msgspec.structs.asdict(row) for row in found.bad]
        part.examples = {row.reason: example_of(row) for row in reversed(found.bad)} | part.examples
        for table in found.traced:
            for run, rows in _by_run(table):
                pieces.setdefault(run, []).append(rows)
                part.ends |= {run} if about is not None and about.ends else set()
        for table in found.foreign:
            part.names |= names_in(table, job.form)
            logs.append(table)
    foreign = _leave_logs(job, task, logs)
    for run, tables in pieces.items():
        _leave(job, run, task, tables)
    if rubbish:
        name = f"{job.batch:010}-{task:06}.parquet"
        _write_table(job.kept("quarantine", name), pa.Table.from_pylist(rubbish))
    part.runs, part.quarantined = sorted({*pieces, *foreign}), dict(quarantined)
    part.reasons = dict(Counter(row["reason"] for row in rubbish))
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


def _leave_logs(job: BatchJob, task: int, logs: list[pa.Table]) -> set[str]:
    """Leave the rows of other systems' logs as one piece for each run; returns the runs."""
    if not logs:
        return set()
    rows = pa.concat_tables(logs).unify_dictionaries().combine_chunks()
    found = set()
    for run, table in _by_run(rows):
        found.add(run)
        with replacement(job.scratch / f"{_hash(run)}-{task:06}.parquet") as fresh:
            pq.write_table(table, fresh)
    return found


def _leave(job: BatchJob, run: str, task: int, tables: list[pa.Table]) -> None:
    columns: dict[str, list[Array]] = {name: [] for name in NewRows._fields if name not in LISTS}
    views: list[WatchedView] = []
    said: dict[BrokerWords, int] = {}
    for table in tables:
        code = as_numpy(table["event"], "event").astype(np.int64)
        sender = as_numpy(table["sender"], "sender").astype(np.int64)
        if table["sender"].null_count:
            sender = np.where(pc.is_null(table["sender"]).to_numpy(), NO_ONE, sender)
        words = _broker_words(table, code, said)
        installed = np.full(len(code), -1, np.int64)
        for row in np.flatnonzero(code == VIEW).tolist():
            installed[row] = len(views)
            views.append(_view(table, row))
        found = {
            "member": as_numpy(table["member"], "member"),
            "step": as_numpy(table["step"], "step"),
            "code": code,
            "sender": np.where((code <= DISCARD) | (words >= 0), sender, NO_ONE),
            "seq": as_numpy(table["seq"], "seq"),
            "time": as_numpy(table["time_ns"], "time_ns"),
            "view": installed,
            "words": words,
            "offset": _offsets(table),
        }
        for name, column in found.items():
            columns[name].append(column.astype(np.int64))
    path = job.scratch / f"{_hash(run)}-{task:06}.npz"
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    for name, listed in (("views", views), ("said", list(said))):
        arrays[name] = np.frombuffer(msgspec.msgpack.encode(listed), np.uint8)
    with replacement(path) as fresh, fresh.open("wb") as out:
        np.savez(out, allow_pickle=False, **arrays)


def _offsets(table: pa.Table) -> Array:
    if "partition_offset" not in table.column_names:
        return np.full(len(table), NO_OFFSET, np.int64)
    return as_numpy(table["partition_offset"], "partition_offset")


def _broker_words(table: pa.Table, code: Array, said: dict[BrokerWords, int]) -> Array:
    """Return what each row says of a broker, as its number in `said`; -1 where it says nothing."""
    number = np.full(len(code), -1, np.int64)
    present = [name for name in TEXTS if name in table.column_names]
    control = code == CONTROL
    if "topic" not in present and not control.any():
        return number
    texts = TextCodes()
    columns = {name: texts.of(table[name]) for name in present}
    none = np.full(len(code), NO_TEXT, np.int32)
    kinds = np.array([text in BROKER_KINDS for text in texts.names] + [False])
    says = control & kinds[columns.get("detail", none)]
    about = says | ((columns.get("topic", none) >= 0) & np.isin(code, (SEND, DELIVER, DISCARD)))
    rows = np.flatnonzero(about)
    if not len(rows):
        return number
    marked = as_numpy(table["redelivered"], "redelivered") if "redelivered" in table.column_names else none > 0
    columns["detail"] = np.where(says, columns.get("detail", none), NO_TEXT)
    listed = [*(columns.get(name, none)[rows] for name in ("detail", "topic", "partition", "group")), marked[rows]]
    distinct, own = np.unique(np.stack(listed, 1), axis=0, return_inverse=True)
    named = [*texts.names, None]
    found = [
        said.setdefault(BrokerWords(named[kind] or "", named[topic], named[part], named[group], bool(mark)), len(said))
        for kind, topic, part, group, mark in distinct.tolist()
    ]
    number[rows] = np.array(found, np.int64)[own.reshape(-1)]
    return number


def _view(table: pa.Table, row: int) -> WatchedView:
    members = table["members"][row].as_py()
    return WatchedView(table["view"][row].as_py() or 0, None if members is None else tuple(sorted(set(members))))


def _log_pieces(job: BatchJob, run: str) -> pa.Table | None:
    """All rows of a run in this batch that come from another system's log."""
    tables = [open_parquet(file).read() for file in files_in(job.scratch, f"{_hash(run)}-*.parquet")]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks() if tables else None


def _pieces(job: BatchJob, run: str) -> NewRows | None:
    """All rows of a run in this batch that come from traces."""
    columns: dict[str, list[Array]] = {name: [] for name in NewRows._fields if name not in LISTS}
    views: list[WatchedView] = []
    said: list[BrokerWords] = []
    for file in files_in(job.scratch, f"{_hash(run)}-*.npz"):
        with open_binary(file) as content, np.load(content, allow_pickle=False) as found:
            for name, parts in columns.items():
                values, before = found[name], {"view": len(views), "words": len(said)}.get(name)
                parts.append(values if before is None else np.where(values < 0, -1, values + before))
            views += msgspec.msgpack.decode(found["views"].tobytes(), type=list[WatchedView])
            said += msgspec.msgpack.decode(found["said"].tobytes(), type=list[BrokerWords])
    if not columns["member"]:
        return None
    return NewRows(**{name: np.concatenate(parts) for name, parts in columns.items()}, views=views, said=said)


def judge_runs(job: BatchJob, shares: list[list[str]], roster: dict[str, list[int]], task: int) -> bytes:
    """Carry some runs on by one batch."""
    part = JudgeResult()
    alarms: list[WatchAlarm] = []
    quarantined: Counter[str] = Counter()
    rubbish: list[UnreadableRow] = []
    for name in shares[task]:
        states = job.states(_hash(name))
        run = load(states[-1][1]) if states else new_run(name)
        before = report(run, job.patience_ns) if states else None
        run.sends_recorded = job.form.sends == "recorded"
        run.counts[HAS_ENDS] |= name in job.ends
        left_out, bad = _take_in(run, job, set(roster.get(name, ())))
        quarantined.update([*(EVENTS[code] for code in left_out), *(row.event or "" for row in bad)])
        part.passed += len(left_out)
        rubbish += bad
        alarms += advance_run(run, job.patience_ns, job.batch)
        alarms += owed.settle(run.brokers, int(run.counts[NEWEST_NS]), job.patience_ns, name, job.batch)
        alarms += forget(run, job.patience_ns, job.batch)
        save(run, job.state(name, job.batch))
        part.reports.append((before, report(run, job.patience_ns)))
        for _, old in states[:-1]:
            remove_file(old)
    _write_alarms(job.kept("alarms", f"{job.batch:010}-{task:06}.parquet"), alarms)
    if rubbish:
        rows = [msgspec.structs.asdict(row) for row in rubbish]
        _write_table(job.kept("quarantine", f"{job.batch:010}-{task:06}-runs.parquet"), pa.Table.from_pylist(rows))
    part.reasons = dict(Counter(row.reason for row in rubbish))
    part.examples = {row.reason: example_of(row) for row in reversed(rubbish)}
    part.alarms, part.shown, part.quarantined = len(alarms), alarms[:SHOWN], dict(quarantined)
    return msgspec.msgpack.encode(part)


def conclude_runs(job: BatchJob, shares: list[list[str]], task: int) -> bytes:
    """Judge what waits in some runs as if nothing more will come."""
    part = JudgeResult()
    alarms: list[WatchAlarm] = []
    for fingerprint in shares[task]:
        states = job.states(fingerprint)
        if not states:
            continue
        run = load(states[-1][1])
        before = report(run, job.patience_ns)
        alarms += advance_run(run, job.patience_ns, job.batch, to_the_end=True)
        alarms += conclude(run, job.batch)
        alarms += owed.lacking(run.brokers, run.name, job.batch)
        part.reports.append((before, report(run, job.patience_ns, final=True)))
    _write_alarms(job.kept("conclusion", f"{task:06}.parquet"), alarms)
    part.alarms, part.shown = len(alarms), alarms[:SHOWN]
    return msgspec.msgpack.encode(part)


def _take_in(run: WatchedRun, job: BatchJob, roster: set[int]) -> tuple[list[int], list[UnreadableRow]]:
    """Take in all rows of a run in this batch; returns the codes of those that come too late, and those put aside."""
    left_out: list[int] = []
    bad: list[UnreadableRow] = []
    rows = _pieces(job, run.name)
    if rows is not None:
        left_out += take_in(run, rows, roster)
    log = _log_pieces(job, run.name)
    if log is not None:
        rows, found, bad = translate(run, log, job.form, job.names)
        left_out += take_in(run, rows, set())
        run.renumber_waiting(found)
    return left_out, bad


def advance_run(run: WatchedRun, patience_ns: int, batch: int, *, to_the_end: bool = False) -> list[WatchAlarm]:
    """Judge all rows of a run that can be, in order of their causes; then who takes what from brokers."""
    found = advance(run, patience_ns, to_the_end=to_the_end)
    alarms = words(run, found, batch)
    if run.words or run.brokers.are_there:
        judged, ids = found.judged, np.array([*run.ids, NO_ONE], np.int64)
        rows = BrokerRows(
            ids[judged.actor], judged.code, ids[judged.sender], judged.seq, judged.step, judged.words,
            judged.offset,
        )  # fmt: skip
        alarms += take(run.brokers, rows, run.words, run.name, batch, int(run.counts[NEWEST_NS]))
    return alarms


def _write_alarms(path: Location, alarms: Iterable[WatchAlarm]) -> None:
    rows = [msgspec.structs.asdict(alarm) for alarm in alarms]
    if rows:
        _write_table(path, pa.Table.from_pylist(rows, ALARM_SCHEMA))
    else:
        remove_file(path)


def _write_table(path: Location, table: pa.Table) -> None:
    with replacement(path, durable=True) as fresh:
        pq.write_table(table, fresh)


class FirstRow(msgspec.Struct, frozen=True, order=True):
    """The first row that is known of a member."""

    step: int
    event: str


def members_of(shares: list[list[str]], task: int) -> bytes:
    """Name the members of every run that has rows in some files, with the first row of each."""
    found: dict[str, dict[int, FirstRow]] = {}
    for file in shares[task]:
        try:
            with open_parquet(location(file)) as source:
                table = source.read(["run", "member", "step", "event"], use_threads=False)
            table = table.sort_by("step").group_by(["run", "member"], use_threads=False)
            firsts = table.aggregate([("step", "first"), ("event", "first")]).to_pylist()
        except (pa.ArrowException, OSError):
            continue  # reading it will say what is wrong
        for row in firsts:
            if isinstance(row["run"], str) and isinstance(row["member"], int) and isinstance(row["step_first"], int):
                note_first(found, row["run"], row["member"], FirstRow(row["step_first"], str(row["event_first"])))
    return msgspec.msgpack.encode(found)


def note_first(found: dict[str, dict[int, FirstRow]], run: str, member: int, row: FirstRow) -> None:
    """Note a row of a member if it is the first so far."""
    members = found.setdefault(run, {})
    members[member] = min(members.get(member, row), row)
