"""The same events in every way that tables and texts have to write them: read alike, in checks and in watches."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.errors import UsageError
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.reading.mapping import Mapping, make_mapping
from antiphon.pipeline.reading.plain_columns import plain_table
from antiphon.pipeline.reading.time_units import TimeReading
from antiphon.pipeline.watch import DirectoryWatch
from antiphon.trace.reader import read as naive_read
from pipeline.conftest import Checker

ROWS: list[dict[str, Any]] = [
    {"run": "r", "member": member, "step": step, "event": event, "sender": 1, "seq": seq, "time_ns": 10 * step}
    for member, step, event, seq in [
        (1, 1, "send", 1), (1, 2, "deliver", 1), (1, 3, "send", 2), (1, 4, "deliver", 2),
        (2, 1, "deliver", 2), (2, 2, "deliver", 1),
    ]
]  # fmt: skip
NESTED = make_mapping({"columns": {name: f"at.{name}" for name in ("member", "step", "seq")}}, "here")


def as_csv(delimiter: str) -> str:
    out = io.StringIO(newline="")
    table = csv.DictWriter(out, [*ROWS[0], "detail"], delimiter=delimiter)
    table.writeheader()
    table.writerows({**row, "detail": f'said "a{delimiter}b"\non two lines'} for row in ROWS)
    return out.getvalue()


def as_lines() -> str:
    return "".join(json.dumps(row) + "\n" for row in ROWS)


def nested() -> list[dict[str, Any]]:
    inner = ("member", "step", "seq")
    return [{**{k: v for k, v in row.items() if k not in inner}, "at": {k: row[k] for k in inner}} for row in ROWS]


def table(**types: pa.DataType) -> bytes:
    columns = {}
    for name in ROWS[0]:
        values = [row[name] for row in ROWS]
        kind = types.get(name)
        values = [Decimal(value) for value in values] if kind is not None and pa.types.is_decimal(kind) else values
        columns[name] = pa.array(values, kind)
    return parquet(pa.table(columns))


def parquet(content: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(content, out)
    return out.getvalue()


WAYS: dict[str, Callable[[], bytes]] = {
    "semicolons.csv": lambda: as_csv(";").encode(),
    "tabs.tsv": lambda: as_csv("\t").encode(),
    "bars.csv": lambda: as_csv("|").encode(),
    "utf16.csv": lambda: as_csv(",").encode("utf-16"),
    "utf16.jsonl": lambda: as_lines().encode("utf-16"),
    "list.jsonl": lambda: json.dumps(ROWS).encode(),
    "many-lines.json": lambda: "\n".join(json.dumps(row, indent=2) for row in ROWS).encode(),
    "not-named-so.jsonl": lambda: gzip.compress(as_lines().encode()),
    "unpacked.csv.gz": lambda: as_csv(",").encode(),
    "inside.jsonl": lambda: "".join(json.dumps(row) + "\n" for row in nested()).encode(),
    "inside.parquet": lambda: parquet(pa.Table.from_pylist(nested())),
    "decimals.parquet": lambda: table(seq=pa.decimal128(38, 0), member=pa.decimal128(20, 4)),
    "bytes.parquet": lambda: table(run=pa.binary(), event=pa.binary()),
    "texts.parquet": lambda: parquet(
        pa.Table.from_pylist([{name: str(value) for name, value in row.items()} for row in ROWS])
    ),
    "moments.parquet": lambda: table(time_ns=pa.timestamp("ns")),
}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_numbers_that_are_names(inline: Checker, tmp_path: Path, suffix: str) -> None:
    """Ids of nodes and messages may be larger than a trace's numbers, as those of 64 bits and more are."""
    rows = [
        {**row, "member": (1 << 63) + row["member"], "sender": (1 << 63) + 1, "seq": f"{(1 << 70) + row['seq']}"}
        for row in ROWS
    ]
    trace = tmp_path / f"log.{suffix}"
    if suffix == "jsonl":
        trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "csv":
        trace.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))
    else:
        kinds = {"member": pa.uint64(), "sender": pa.uint64()}
        pq.write_table(
            pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]}), trace
        )
    totals, found = inline.check(trace)
    watch = DirectoryWatch(Inline(2), str(tmp_path), str(tmp_path / ".watch"), lambda *_: None)
    watch.run(once=True)
    assert watch.conclude().findings["fifo"].violations == 1
    assert (totals.quarantined, [*totals.names.values()]) == ({}, [str((1 << 63) + 1), str((1 << 63) + 2)])
    assert (found["fifo"].examined, found["fifo"].violations) == (4, 1)


@pytest.mark.parametrize("name", WAYS)
def test_a_trace_in_other_dress(inline: Checker, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WAYS[name]())
    mapping = NESTED if name.startswith("inside") else None
    totals, found = inline.check(tmp_path / name, mapping)
    assert (totals.runs, totals.members, totals.events, totals.quarantined) == (1, 2, 6, {})
    [late] = found["fifo"].witnesses
    assert (late.run, late.why) == ("r", "member 2 delivers message 1 of 1 after number 2")
    if name.split(".")[0] in ("semicolons", "tabs", "bars", "utf16", "list", "unpacked", "moments"):
        read = naive_read(tmp_path / name)
        assert [(e.member, e.step, e.event, e.seq, e.time_ns) for e in read.events] == [
            tuple(row[key] for key in ("member", "step", "event", "seq", "time_ns")) for row in ROWS
        ]
        assert read.unreadable == []


BYTES = {"fixed": pa.binary(16), "bytes": pa.binary(), "typed": pa.uuid(), "text": pa.string()}


def with_uuids(kind: pa.DataType, stamps: pa.DataType) -> pa.Table:
    """Members and messages by UUIDs, as a table has them; one row is a view."""
    names = {number: uuid.uuid5(uuid.NAMESPACE_OID, str(number)) for number in range(1, 10)}

    def written(numbers: list[int]) -> list[Any]:
        return [str(names[one]) if pa.types.is_string(kind) else names[one].bytes for one in numbers]

    columns = {name: pa.array([row[name] for row in ROWS]) for name in ("run", "step", "event")}
    columns |= {name: pa.array(written([row[name] for row in ROWS]), kind) for name in ("member", "sender")}
    columns["seq"] = pa.array(written([5 + row["seq"] for row in ROWS]), kind)
    columns["time_ns"] = pa.array([row["time_ns"] * 1_000 for row in ROWS], pa.int64()).cast(stamps)
    return pa.table(columns)


@pytest.mark.parametrize("kind", BYTES)
def test_uuids_in_bytes(inline: Checker, tmp_path: Path, kind: str) -> None:
    """A UUID is one name however a table stores it, so that one service may log bytes and another text."""
    rows = with_uuids(BYTES[kind], pa.timestamp("us", "UTC"))
    text = with_uuids(pa.string(), pa.timestamp("ns"))
    (tmp_path / "live").mkdir()
    pq.write_table(rows.slice(0, 4), tmp_path / "live" / "1.parquet")
    pq.write_table(text.slice(4), tmp_path / "live" / "2.parquet")
    totals, found = inline.check(tmp_path / "live")
    one, two = (str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in ("1", "2"))
    assert {*totals.names.values()} == {one, two}
    assert (found["fifo"].violations, found["integrity"].verdict, totals.quarantined) == (1, "holds", {})

    watch = DirectoryWatch(Inline(2), str(tmp_path / "live"), str(tmp_path / "watch"), lambda *_: None)
    watch.run(once=True)
    final = watch.conclude()
    assert {*final.names.values()} == {one, two}
    assert (final.findings["fifo"].violations, final.verdicts()["integrity"], final.missing) == (1, "holds", {})


def test_what_bytes_say() -> None:
    content = [b"caf\xc3\xa9", uuid.UUID(int=1).bytes, bytes(range(200, 212)), bytes(range(200, 216)), None]
    column = plain_table(pa.table({"id": pa.array(content, pa.binary())}))["id"].to_pylist()
    odd = uuid.UUID(bytes=bytes(range(200, 216)))
    assert column == ["café", 15 * "\0" + "\1", bytes(range(200, 212)).hex(), str(odd), None]


def test_keys_of_a_map(inline: Checker, tmp_path: Path) -> None:
    headers = pa.array([[("id", f"m-{row['seq']}"), ("x", "y")] for row in ROWS], pa.map_(pa.string(), pa.string()))
    plain = pa.Table.from_pylist(ROWS).drop_columns(["seq"]).append_column("headers", headers)
    pq.write_table(plain, tmp_path / "t.parquet")
    totals, found = inline.check(tmp_path / "t.parquet", make_mapping({"columns": {"seq": "headers.id"}}, "here"))
    assert (totals.events, found["fifo"].violations) == (6, 1)


def test_names_in_the_names_of_folders(inline: Checker, tmp_path: Path) -> None:
    for member in (1, 2):
        folder = tmp_path / "live" / "Run=monday" / f"member=node-{member}"
        folder.mkdir(parents=True)
        rows = [{**row, "sender": "node-1"} for row in ROWS if row["member"] == member]
        kept = [{key: value for key, value in row.items() if key not in ("run", "member")} for row in rows]
        (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    totals, found = inline.check(tmp_path / "live")
    assert (totals.names, found["fifo"].violations) == ({1: "node-1", 2: "node-2"}, 1)
    assert found["fifo"].witnesses[0].run == "monday"
    watch = DirectoryWatch(Inline(2), str(tmp_path / "live"), str(tmp_path / "watch"), lambda *_: None)
    watch.run(once=True)
    assert (watch.conclude().findings["fifo"].violations, watch.sum.missing) == (1, {})


def test_names_under_a_key_in_other_capitals(inline: Checker, tmp_path: Path) -> None:
    rows = [{"RUN": "r", "Member": f"n{row['member']}", "Topic": "t", **row} for row in ROWS]
    kept = [{key: value for key, value in row.items() if key not in ("run", "member", "sender")} for row in rows]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    totals, found = inline.check(tmp_path / "log.jsonl")
    assert (totals.names[1], found["partition-order"].violations) == ("n1", 1)
    numbers = [{**{key: value for key, value in row.items() if key != "topic"}, "Topic": "t"} for row in ROWS]
    (tmp_path / "numbers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))
    assert inline.check(tmp_path / "numbers.jsonl")[1]["partition-order"].violations == 1


PACKED: dict[str, Callable[[], str]] = {
    "t.jsonl": as_lines,
    "t.csv": lambda: as_csv(","),
    "names.jsonl": lambda: re.sub(r'("member"|"sender"): (\d)', r'\1: "n\2"', as_lines()),
    "names.csv": lambda: re.sub(r"r,(\d),(\d),(\w+),1,", r"r,n\1,\2,\3,n1,", as_csv(",")),
    "lines.json": lambda: json.dumps(ROWS, indent=1),
    "list.json": lambda: json.dumps(ROWS),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_text_that_was_cut_short_is_read_as_far_as_it_goes(inline: Checker, tmp_path: Path, name: str) -> None:
    """What is missing leaves verdicts unknown. A file of which nothing can be read is refused."""
    path = tmp_path / f"{name}.gz"
    packed = gzip.compress(PACKED[name]().encode(), 0)
    seen = []
    for cut in range(8, len(packed) // 2, 29):
        path.write_bytes(packed[:-cut])
        totals, found = inline.check(path)
        seen.append(totals.events)
        assert (sum(totals.quarantined.values()), found["agreement"].verdict) == (1, "unknown")
        [reason] = totals.reasons
        assert reason.startswith("the file cannot be read to its end, and what comes after this is missing: ")
        if name.startswith("t."):  # that both checkers read
            naive = naive_read(path)
            assert (len(naive.events), len(naive.unreadable)) == (totals.events, 1)
    assert seen == sorted(seen, reverse=True)
    assert (seen[0], len(set(seen)) > 2) == (6, True)
    path.write_bytes(packed[:14])
    with pytest.raises(UsageError, match=f"{path.name}: cannot be read to its end: .*; write it anew, or leave it out"):
        inline.check(path)


@pytest.mark.parametrize("name", ["one", 1])
def test_a_watch_reads_times_as_a_check_does(inline: Checker, tmp_path: Path, name: object) -> None:
    """The first batch with times decides for good: later ones that look otherwise are read alike, restarted or not."""
    mapping = Mapping(columns={"time_ns": "at"})
    parts = [[5], [7, 9, 12], [100_000, 900_000]]  # of one nothing can be said; the last look like microseconds

    def rows(times: list[int], first: int) -> str:
        kept = [
            {"run": "r", "member": name, "step": step, "event": "send", "sender": name, "seq": step, "at": time}
            for step, time in enumerate(times, first)
        ]
        return "".join(json.dumps(row) + "\n" for row in kept)

    (tmp_path / "live").mkdir()
    said = []
    for number, times in enumerate(parts):
        (tmp_path / "live" / f"{number}.jsonl").write_text(rows(times, 1 + sum(map(len, parts[:number]))))
        watch = DirectoryWatch(Inline(), str(tmp_path / "live"), str(tmp_path / "w"), lambda *_: None, mapping=mapping)
        watch.batch(watch.files.unread())
        said.append(watch.sum.times)
        assert watch.sum.quarantined == {}
    by_closeness = TimeReading("ms", "closeness")
    assert said == [TimeReading(), by_closeness, by_closeness]
    assert inline.check(tmp_path / "live", mapping)[0].times == by_closeness
    assert "milliseconds" in by_closeness.words()


def test_a_watch_shows_what_it_put_aside(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "t.jsonl").write_text(as_lines() + '{"run": "r", "member": 2, "step": 9, "event": "flies"}\n')
    watch = DirectoryWatch(Inline(), str(tmp_path / "live"), str(tmp_path / "watch"), lambda *_: None)
    watch.run(once=True)
    [(reason, example)] = watch.sum.quarantine_examples.items()
    assert reason in watch.sum.quarantine_reasons
    assert example.startswith("t.jsonl row 7: ")
    assert '"flies"' in example
