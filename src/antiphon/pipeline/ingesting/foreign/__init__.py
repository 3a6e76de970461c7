"""Logs of other systems, brought into the trace's form: names and ids become numbers, words become events.

Two stages: tasks read files and turn records into rows with text for names and ids; then each run is put together by
one task, which numbers its messages. What comes of it is an ordinary trace.
"""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.ingesting.foreign.form import LogForm, NoRow, form_of
from antiphon.pipeline.ingesting.foreign.numbering import (
    FOREIGN_SCHEMA,
    UNKNOWN_AUTHOR,
    log_name,
    number_names,
    number_run,
)
from antiphon.pipeline.ingesting.foreign.records import LogRecord, read_records
from antiphon.pipeline.ingesting.job import IngestPart
from antiphon.pipeline.ingesting.quarantine import Quarantine
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.files import files_ending
from antiphon.pipeline.store.layout import QUARANTINE
from antiphon.pipeline.store.location import Location, location, open_parquet, open_stream, read_tables, replacement

_BATCH_ROWS: Final = 200_000
_LOOKED_AT: Final = 50  # records of a file, to see whether it has names and ids of its own
_ROW_BITS: Final = 40


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

    Where some are numbers and some are not, it is a trace with rows that cannot be read.
    """
    form = form_of(mapping)
    for file in files[:4]:
        records = list(itertools.islice(first_records(file), _LOOKED_AT))
        for name in ("member", "seq"):
            found = [text for record in records if (text := form.text(record, name)) is not None]
            if found and not any(_reads_as_number(text) or text in mapping.members for text in found):
                return True
    return False


def first_records(file: str) -> Iterator[dict[str, Any]]:
    """Return the first records of a file; none of what is neither text nor Parquet."""
    name = file.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        try:
            source = open_parquet(location(file))
        except (pa.ArrowInvalid, OSError):
            return
        if any(pa.types.is_string(field.type) for field in source.schema_arrow if field.name not in ("run", "event")):
            for batch in itertools.islice(source.iter_batches(_LOOKED_AT), 1):
                yield from batch.to_pylist()
        return
    if not name.endswith((".csv", ".jsonl", ".ndjson")):
        return
    with open_stream(location(file)) as stream:
        lines = stream.read(1 << 16).decode("utf-8-sig", errors="replace").splitlines()
    if name.endswith(".csv"):
        yield from csv.DictReader(lines)
        return
    for line in lines:
        try:
            content = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(content, dict):
            yield content


def _reads_as_number(text: str) -> bool:
    return text.strip().lstrip("+-").replace(".", "", 1).isdigit()


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
    runs = sorted(set().union(*(part.runs for part in parts)))
    numbered = msgspec.structs.replace(job, names=names)
    if runs:
        session.each(len(runs), functools.partial(_number_run, numbered, runs), "number")
    named = {number: name for name, number in names.items() if name not in (str(number), UNKNOWN_AUTHOR)}
    return Brought(str(folder / "brought"), len(runs), [part.part for part in parts], named)


def _free_number(names: dict[str, int]) -> int:
    taken = {*names.values()}
    return next(number for number in itertools.count(max(taken, default=0) + 1) if number not in taken)


def _read_files(job: BringJob, task: int) -> bytes:
    """Turn the records of some files into rows."""
    said = BroughtPart(IngestPart(), set(), set())
    quarantine = Quarantine(job.folder, f"logs-{task:06}")
    path = location(job.folder) / "rows" / f"{task:06}.parquet"
    with replacement(path) as fresh, pq.ParquetWriter(fresh, FOREIGN_SCHEMA, compression="lz4") as out:
        for number in range(task, len(job.files), job.tasks):
            records = read_records(job.files[number], job.preset)
            while chunk := list(itertools.islice(records, _BATCH_ROWS)):
                rows, unreadable = _sort_out(chunk, job, number)
                quarantine.add(unreadable)
                out.write_table(rows)
                said.runs.update(pc.unique(rows["run"]).to_pylist())
                said.names |= _names(rows, job.form)
    quarantine.close(said.part)
    return msgspec.msgpack.encode(said)


def _names(rows: pa.Table, form: LogForm) -> set[str]:
    """Name all who are members or senders in some rows."""
    names = {*pc.unique(rows["member"]).to_pylist(), *pc.unique(rows["sender"]).to_pylist()}
    names.update(pc.unique(pc.list_flatten(rows["members"])).to_pylist())
    if form.sends == "unrecorded":
        logs = rows.filter(pc.is_valid(rows["id"])).group_by(["topic", "partition"]).aggregate([]).to_pylist()
        names.update(log_name(log["topic"], log["partition"]) for log in logs)
    return names - {None}


def _sort_out(records: list[LogRecord], job: BringJob, number: int) -> tuple[pa.Table, list[UnreadableRow]]:
    good: list[tuple[Any, ...]] = []
    bad = []
    file = job.files[number]
    for record in records:
        try:
            if record.content is None:
                raise NoRow(record.reason)
            found = list(job.form.rows(record.content))
        except NoRow as problem:
            bad.append(UnreadableRow(file, record.row, str(problem), problem.event, record.text))
            continue
        for at, row in enumerate(found):
            good.append((*msgspec.structs.astuple(row), (number << _ROW_BITS) + record.row * 4 + at))
    columns = zip(*good, strict=True) if good else [()] * len(FOREIGN_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FOREIGN_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FOREIGN_SCHEMA), bad


def _number_run(job: BringJob, runs: list[str], task: int) -> bytes:
    """Put one run together and number its messages."""
    folder, wanted = location(job.folder), pc.field("run") == runs[task]
    pieces = read_tables(folder / "rows", filters=wanted, schema=FOREIGN_SCHEMA)
    table = number_run(pa.concat_tables(pieces).combine_chunks(), job.form, job.names)
    order = np.lexsort((table["step"].to_numpy(), table["member"].to_numpy()))
    with replacement(folder / "brought" / f"{task:06}.parquet") as fresh:
        pq.write_table(table.take(pa.array(order)), fresh, compression="lz4")
    return b""
