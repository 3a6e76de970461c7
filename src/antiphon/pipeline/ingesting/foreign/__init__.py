"""Logs of other systems, brought into the trace's form: names and ids become numbers, words become events.

Two stages: tasks read files and turn records into rows with text for names and ids; then each run is put together by
one task, which numbers its messages. What comes of it is an ordinary trace.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.ingesting.foreign.bulk import LogRecord, RecordTable, rows_in_bulk
from antiphon.pipeline.ingesting.foreign.form import LogForm, NoRow, form_of
from antiphon.pipeline.ingesting.foreign.numbering import (
    CODED,
    FOREIGN_SCHEMA,
    ROW_BITS,
    UNKNOWN_AUTHOR,
    log_name,
    number_names,
    number_run,
)
from antiphon.pipeline.ingesting.foreign.records import LogKeys, Records, csv_records, read_records
from antiphon.pipeline.ingesting.foreign.settle import settle
from antiphon.pipeline.ingesting.job import IngestPart
from antiphon.pipeline.ingesting.quarantine import Quarantine
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.plain_columns import plain_table
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.reading.text import first_json_values, head_of
from antiphon.pipeline.reading.time_units import UNSAID, TimeReading, as_number, guess_unit, nanoseconds, unit_named
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.files import files_ending, format_of, is_csv, plain_name
from antiphon.pipeline.store.layout import QUARANTINE
from antiphon.pipeline.store.location import (
    Location,
    damage_named,
    files_in,
    location,
    open_input,
    open_parquet,
    replacement,
)

TIME: Final = "time_ns"
_TIMED: Final = 1_000  # records of a file, to see in which unit its times are
_TIMED_FILES: Final = 8
_BITS: Final = {"member": 31, "seq": 63}  # of the numbers that a trace has
_LOOKED_AT: Final = 50  # records of a file, to see whether it has names and ids of its own


class BringJob(msgspec.Struct, frozen=True):
    """What the tasks of bringing a log share."""

    form: LogForm
    preset: str
    files: list[str]
    tasks: int
    folder: str
    names: dict[str, int] = {}


class BroughtPart(msgspec.Struct):
    """What one task says of the files that it read."""

    part: IngestPart
    names: set[str]
    runs: set[str]


class Brought(msgspec.Struct):
    """A log that has become a trace."""

    folder: str
    runs: int
    parts: list[IngestPart]
    names: dict[int, str]  # of members and senders whose name is no number


def find_logs(trace: str, mapping: Mapping) -> list[str]:
    """Return the files of a foreign log, sorted; UsageError if there is none."""
    return files_ending(trace, form_of(mapping).suffixes, "logs")


def has_text(files: list[str], mapping: Mapping) -> bool:
    """Say whether members or messages of a log have names and ids that are no numbers, judged by its first records.

    Where some are numbers and some are not, it is a trace with rows that cannot be read. Numbers that are larger than a
    trace's, as ids of nodes in other systems often are, are names too.
    """
    form = form_of(mapping)
    looked_for = [key for name in ("member", "seq") for key in form.columns.get(name, [name])]
    keys = LogKeys(looked_for)
    for file in files[:4]:
        records = [keys.renamed(record) for record in first_records(file, _LOOKED_AT, keys)]
        of_file = form.for_file(file)
        for name in ("member", "seq"):
            found = [text for record in records if (text := of_file.text(record, name)) is not None]
            if found and not any(_reads_as_number(text) or text in mapping.members for text in found):
                return True
            if any(_is_an_id(text, _BITS[name]) for text in found):
                return True
    return False


def first_records(file: str, count: int, keys: LogKeys | None = None) -> list[dict[str, Any]]:
    """Return the first records of a file, as far as these keys go; none of what is neither text nor Parquet."""
    return list(itertools.islice(_records(file, count, keys), count))


def first_lines(file: str, count: int) -> list[str]:
    """Return the first lines of a text; none of what is no text."""
    try:
        text = head_of(file)
    except (OSError, UnicodeDecodeError):
        return []
    return [] if "\0" in text else [line for line in text.splitlines() if line.strip()][:count]


def _records(file: str, count: int, keys: LogKeys | None) -> Iterator[dict[str, Any]]:
    name = plain_name(file.lower())
    if name.endswith(".parquet"):
        try:
            source = open_parquet(location(file))
        except (pa.ArrowInvalid, OSError):
            return
        schema = source.schema_arrow
        columns = schema.names if keys is None else [name for name in schema.names if keys.may_be_in(name)]
        with damage_named(file):
            for batch in itertools.islice(source.iter_batches(count, columns=columns), 1):
                yield from plain_table(pa.Table.from_batches([batch]), keys.keys if keys else ()).to_pylist()
        return
    if format_of(Path(file)) not in ("csv", "json lines"):
        return
    try:
        text = head_of(file)
    except OSError:
        return  # who reads all of it says what is wrong with it
    if is_csv(file):
        yield from csv_records(text)
        return
    yield from first_json_values(text)


def _reads_as_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdigit()


def _is_an_id(text: str, bits: int) -> bool:
    """Say whether a number is larger than a trace's may be, and not larger than a machine's: that would be rubbish."""
    return text.isdigit() and bits < int(text[:40]).bit_length() <= 64


def bring(session: Session, files: list[str], mapping: Mapping, folder: Location) -> Brought:
    """Turn a foreign log into a trace: the files of its folder `brought`."""
    for name in (QUARANTINE, "rows", "brought"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    tasks = max(1, min(len(files), 4 * session.parallelism))
    job = BringJob(form_of(mapping), mapping.preset, files, tasks, str(folder))
    decode = msgspec.msgpack.Decoder(BroughtPart).decode
    parts = [decode(result) for result in session.each(tasks, functools.partial(_read_files, job), "read logs")]
    names = number_names(set().union(*(part.names for part in parts)), job.form.members)
    names[UNKNOWN_AUTHOR] = _free_number(names)
    runs, aside = sorted(set().union(*(part.runs for part in parts))), []
    numbered = msgspec.structs.replace(job, names=names)
    if runs:
        tasks = min(len(runs), 4 * session.parallelism)
        numbering = session.each(tasks, functools.partial(_number_runs, numbered, runs, tasks), "number")
        aside = [msgspec.msgpack.decode(result, type=IngestPart) for result in numbering]
    named = {number: name for name, number in names.items() if name not in (str(number), UNKNOWN_AUTHOR)}
    return Brought(str(folder / "brought"), len(runs), [*(part.part for part in parts), *aside], named)


def decide_times(files: list[str], mapping: Mapping) -> tuple[Mapping, TimeReading]:
    """Decide in which unit the times of a log are, and return the mapping that says so.

    A mapping's time_unit decides, or the name of the key that has the time; else the first records of some files.
    """
    if mapping.time_unit:
        return mapping, TimeReading(mapping.time_unit, "mapping")
    form = form_of(mapping)
    if form.time_unit:
        return mapping, TimeReading(form.time_unit, "preset")
    if form.columns.get("time_ns", [TIME]) == [TIME] or "time_ns" in form.constants:
        return mapping, UNSAID  # the trace's own column
    keys = LogKeys(form.columns.get(TIME, [TIME]))
    chosen = files[:: max(1, len(files) // _TIMED_FILES)][:_TIMED_FILES]
    timed = [
        found
        for file in chosen
        for record in first_records(file, _TIMED, keys)
        if (found := form.time_of(keys.renamed(record)))[1] is not None
    ]
    numbers = [(key, number) for key, time in timed if (number := as_number(time)) is not None]
    open_times = [time for key, time in numbers if not unit_named(key)]
    if open_times:
        guess = guess_unit(open_times)
        return msgspec.structs.replace(mapping, guessed_unit=guess.unit if guess.by == "closeness" else ""), guess
    named = [unit_named(key) for key, _ in numbers if key != TIME]
    if named:
        return mapping, TimeReading(named[0], "name")
    if timed and not numbers and all(nanoseconds(time) is None for _, time in timed):
        return mapping, TimeReading(by="unreadable", example=str(timed[0][1]))
    return mapping, UNSAID


def _free_number(names: dict[str, int]) -> int:
    taken = {*names.values()}
    return next(number for number in itertools.count(max(taken, default=0) + 1) if number not in taken)


def _read_files(job: BringJob, task: int) -> bytes:
    """Turn the records of some files into rows."""
    said = BroughtPart(IngestPart(), set(), set())
    quarantine = Quarantine(job.folder, f"logs-{task:06}")
    path = location(job.folder) / "rows" / f"{task:06}.arrow"  # as it is in memory, since it is read but once
    with replacement(path) as fresh, fresh.open("wb") as file, pa.ipc.new_stream(file, FOREIGN_SCHEMA) as out:
        files = len(job.files)
        for number in range(files * task // job.tasks, files * (task + 1) // job.tasks):  # so that places go up
            form = job.form.for_file(job.files[number])
            for records in read_records(job.files[number], job.preset, form):
                rows, unreadable = sort_out(records, form, job.files[number], number)
                quarantine.add(unreadable)
                out.write_table(rows)
                said.runs.update(_texts(rows["run"]))
                said.names |= names_in(rows, job.form)
    quarantine.close(said.part)
    return msgspec.msgpack.encode(said)


def _texts(column: pa.ChunkedArray) -> set[str]:
    """Return the distinct texts of a coded column."""
    return {text for chunk in column.chunks for text in chunk.dictionary.take(pc.unique(chunk.indices)).to_pylist()}


def names_in(rows: pa.Table, form: LogForm) -> set[str]:
    """Name all who are members or senders in some rows."""
    names = _texts(rows["member"]) | _texts(rows["sender"])
    names.update(pc.unique(pc.list_flatten(rows["members"])).to_pylist())
    if form.sends == "unrecorded":
        about = rows.filter(pc.is_valid(rows["id"])).select(["topic", "partition"])
        texts = pa.table({name: about[name].cast(pa.string()) for name in about.column_names})
        logs = texts.group_by(["topic", "partition"]).aggregate([]).to_pylist()
        names.update(log_name(log["topic"], log["partition"]) for log in logs)
    return names - {None}


def sort_out(records: Records, form: LogForm, file: str, number: int) -> tuple[pa.Table, list[UnreadableRow]]:
    """Turn records of a file, which has this number, into rows: in bulk where that can be, the others one by one."""
    if not isinstance(records, RecordTable):
        return _sort_out_singly(records, form, file, number)
    rows, left = rows_in_bulk(form, records, number)
    if not len(left):
        return rows, []
    more, bad = _sort_out_singly([records.record(at) for at in left.tolist()], form, file, number)
    return pa.concat_tables([rows, more]).unify_dictionaries().combine_chunks().sort_by("place"), bad


def _sort_out_singly(
    records: list[LogRecord], form: LogForm, file: str, number: int
) -> tuple[pa.Table, list[UnreadableRow]]:
    good: list[tuple[Any, ...]] = []
    bad = []
    for record in records:
        try:
            if record.content is None:
                raise NoRow(record.reason)
            found = list(form.rows(record.content))
        except NoRow as problem:
            bad.append(UnreadableRow(file, record.row, str(problem), problem.event, record.text))
            continue
        for at, row in enumerate(found):
            good.append((*msgspec.structs.astuple(row), (number << ROW_BITS) + record.row * 4 + min(at, 3)))
    columns = zip(*good, strict=True) if good else [()] * len(FOREIGN_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FOREIGN_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FOREIGN_SCHEMA), bad


def _read_rows(file: Location) -> pa.Table:
    with pa.ipc.open_stream(open_input(file)) as rows:
        return rows.read_all()


def _number_runs(job: BringJob, runs: list[str], tasks: int, task: int) -> bytes:
    """Put some runs together and number their messages."""
    folder, mine = location(job.folder), runs[task::tasks]
    rows = pa.concat_tables([_read_rows(file) for file in files_in(folder / "rows", "*.arrow")]).unify_dictionaries()
    if len(runs) > 1:  # one run is put together column by column
        rows = rows.filter(pc.is_in(rows["run"], pa.array(mine))).combine_chunks()
    run = pa.concat_arrays(rows["run"].chunks)
    names = run.dictionary.to_pylist()
    code = run.indices.to_numpy()
    order = np.argsort(code, kind="stable") if len(names) > 1 else None
    bounds = np.cumsum(np.bincount(code, minlength=len(names)))
    quarantine = Quarantine(job.folder, f"runs-{task:06}")
    with replacement(folder / "brought" / f"{task:06}.parquet") as fresh:
        out: pq.ParquetWriter | None = None
        for number, stop in enumerate(bounds.tolist()):
            start = int(bounds[number - 1]) if number else 0
            if start == stop:
                continue
            if order is None:  # then there is nothing else, and it may go as soon as it is in order
                one, rows = rows, None
            else:
                one = rows.take(pa.array(order[start:stop])).combine_chunks()
            one, unreadable = settle(one, files=job.files)
            quarantine.add(unreadable)
            rows_of_run = [one]
            del one
            table = number_run(rows_of_run, job.form, job.names)
            if out is None:
                out = pq.ParquetWriter(fresh, table.schema, compression="lz4", use_dictionary=[*CODED, "event"])
            out.write_table(table)
        assert out is not None, "a run has rows"
        out.close()
    part = IngestPart()
    quarantine.close(part)
    return msgspec.msgpack.encode(part)
