"""Whatever is brought, every row is either an event or in the quarantine with a reason."""

from __future__ import annotations

import csv
import gzip
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.keep import lay_out_trace
from antiphon.pipeline.ingesting.quarantine import QUARANTINE_SCHEMA
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.reading.mapping import Mapping, load_mapping
from antiphon.pipeline.store.layout import QUARANTINE
from antiphon.trace import naive, reader
from antiphon.trace.event import Event
from pipeline.conftest import Checker
from pipeline.traces import in_run, write
from support.planting import sample

NAMES = ("run", "member", "step", "time_ns", "event", "sender", "seq", "view", "members")


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    return [{name: getattr(event, name) for name in NAMES} for event in events]


def spoil(rows: list[dict[str, Any]], rng: random.Random) -> int:
    """Make one row in twenty unreadable, each in its own way."""
    chosen = rng.sample(range(len(rows)), len(rows) // 20)
    for at in chosen:
        before = rows[at - 1]
        again = {name: before[name] for name in ("run", "member", "step")}
        wrong: list[dict[str, Any]] = [
            {"event": "sned"},
            {"event": None},
            {"run": None},
            {"member": "three"},
            {"member": 2**31},
            {"step": "1.5"},
            {"event": "deliver", "seq": 0},
            {"event": "deliver", "sender": None},
            {"event": "stable", "seq": -4},
            {"event": "send", "sender": 99},
            again,
        ]
        rows[at].update(rng.choice(wrong))
    return len(chosen)


def write_rows(rows: list[dict[str, Any]], path: Path) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as out:
            table = csv.DictWriter(out, NAMES)
            table.writeheader()
            for row in rows:
                members = None if row["members"] is None else " ".join(map(str, row["members"]))
                table.writerow({**row, "members": members})
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("seed", range(4))
def test_five_percent_rubbish(inline: Checker, tmp_path: Path, suffix: str, seed: int) -> None:
    rng = random.Random(seed)
    rows = [row for number in range(4) for row in rows_of(in_run(sample(10 * seed + number).events, f"run {number}"))]
    spoilt = spoil(rows, rng)
    if seed % 2:
        rng.shuffle(rows)
    path = write_rows(rows, tmp_path / f"trace.{suffix}")
    totals, verdicts = inline.check(path)
    expected = reader.read(path)
    assert 0 < len(expected.unreadable) <= spoilt
    assert sum(totals.quarantined.values()) == len(expected.unreadable)
    assert totals.events == len(expected.events)
    assert verdicts == naive.check(expected.events, unreadable=[row.event for row in expected.unreadable])
    [work] = tmp_path.glob("work-*")
    quarantine = pa.concat_tables(pq.read_table(part) for part in (work / "layout" / QUARANTINE).iterdir())
    assert quarantine.schema.equals(QUARANTINE_SCHEMA)
    assert quarantine.num_rows == len(expected.unreadable)
    assert all(quarantine["reason"].to_pylist())


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "csv.gz", "ndjson"])
def test_text_formats_say_the_same_as_parquet(inline: Checker, tmp_path: Path, suffix: str) -> None:
    events = sample(21).events
    path = write_rows(rows_of(events), tmp_path / f"plain.{suffix.removesuffix('.gz')}")
    if suffix.endswith("gz"):
        zipped = tmp_path / f"zipped.{suffix}"
        zipped.write_bytes(gzip.compress(path.read_bytes()))
        path = zipped
    totals, verdicts = inline.check(path)
    same, expected = inline.check(write(events, tmp_path / "trace.parquet"))
    assert msgspec.structs.replace(totals, trace=same.trace) == same
    assert verdicts == expected


def test_ragged_and_broken_lines(inline: Checker, tmp_path: Path) -> None:
    csv_path = tmp_path / "t.csv"
    csv_path.write_bytes(
        b"run,member,step,event,sender,seq,detail\n"
        b"r,1,1,send,1,1\n"  # the optional field is not there
        b"r,1,2,deliver,1,1,x,y,z\n"  # too many
        b"r,1\n"  # no event
        b"r,2,1,deliver,\xff,1,\n"  # not UTF-8
        b"r,2,2,deliver,1.0,1,\n"
    )
    totals, _ = inline.check(csv_path)
    assert (totals.events, totals.quarantined) == (3, {"": 1, "deliver": 1})
    json_path = tmp_path / "t.jsonl"
    json_path.write_bytes(
        b'{"run": "r", "member": 1, "step": 1, "event": "send", "sender": 1, "seq": 1, "colour": "red"}\n'
        b"\n[1, 2]\n{broken\n"
        b'{"run": "r", "member": 1, "step": 2, "event": "deliver", "sender": 1.0, "seq": "1"}\n'
        b'{"run": 5, "member": 1, "step": 3, "event": "deliver", "sender": 1, "seq": 1}\n'
        b'{"run": "r", "member": 1, "step": 4, "event": "end"}'
    )
    totals, _ = inline.check(json_path)
    assert (totals.events, totals.quarantined) == (3, {"": 2, "deliver": 1})


def test_parquet_with_rubbish(inline: Checker, tmp_path: Path) -> None:
    events = sample(3).events
    rows = rows_of(events)
    rows += [
        {**rows[0], "step": None},
        {**rows[0], "event": "nonsense"},
        {**rows[0], "step": 10**9, "event": "deliver", "sender": None},
    ]
    path = tmp_path / "t.parquet"
    schema = pa.schema(
        [
            ("run", pa.string()),
            ("member", pa.int64()),
            ("step", pa.float64()),
            ("time_ns", pa.int64()),
            ("event", pa.string()),
            ("sender", pa.int64()),
            ("seq", pa.int64()),
            ("view", pa.int64()),
            ("members", pa.list_(pa.int64())),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    totals, verdicts = inline.check(path)
    assert totals.quarantined == {events[0].event: 1, "": 1, "deliver": 1}
    assert totals.events == len(events)
    assert {found.verdict for found in verdicts.values()} == {"unknown"}


def test_mapping(inline: Checker, tmp_path: Path) -> None:
    log = tmp_path / "broker.csv"
    log.write_text("node,at,what,from,number\n1,1,pub,1,1\n2,1,msg,1,1\n2,2,pub,2,1\n1,2,msg,2,1\n1,3,ping,,\n")
    mapping = tmp_path / "broker.toml"
    mapping.write_text(
        'own_deliveries = "implied"\n[constants]\nrun = "monday"\n'
        '[columns]\nmember = "node"\nstep = "at"\nevent = "what"\nsender = "from"\nseq = "number"\n'
        '[events]\npub = "send"\nmsg = "deliver"\nping = "control"\n'
    )
    loaded = load_mapping(str(mapping))
    totals, verdicts = inline.check(log, loaded, implied_own_deliveries=loaded.own_deliveries == "implied")
    assert (totals.events, totals.quarantined) == (5, {})
    holds = {name for name, found in verdicts.items() if found.verdict == "holds"}
    assert holds == {"integrity", "validity", "agreement", "fifo", "causal", "total"}
    assert verdicts["integrity"].examined == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[columns]\ncolour = 'x'", "colour"),
        ("[events]\npub = 'publish'", "publish"),
        ("own_deliveries = 'maybe'", "maybe"),
        ("[colums]\nrun = 'x'", "colums"),
        ("not toml", "not a mapping file"),
    ],
)
def test_wrong_mapping(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        load_mapping(str(path))


def test_a_global_clock_survives_the_sorting(inline: Checker, tmp_path: Path) -> None:
    events = [
        Event("late", 1, 1, "send", 1, 1, time_ns=1),
        Event("late", 1, 2, "stable", 1, 1, time_ns=2),
        Event("late", 2, 1, "receive", 1, 1, time_ns=3),
    ]
    for folder, run in (("global", "late"), ("own", "fine")):
        write(reversed(in_run(events, run)), tmp_path / "trace" / folder / "e.parquet")
    (tmp_path / "trace" / "global" / "run.json").write_text('{"clock": "global", "stability": "train"}')
    totals, verdicts = inline.check(tmp_path / "trace")
    assert totals.promises == ["stability"]
    assert verdicts["stability"].violations == 1
    assert verdicts["stability"].witnesses[0].run == "late"
    assert msgspec.to_builtins(verdicts["stability"].witnesses[0].events[1])["member"] == 2


def test_a_run_json_that_comes_later_is_seen(inline: Checker, tmp_path: Path) -> None:
    """A process that has looked for it before must look again."""
    trace = tmp_path / "trace"
    write(sample(22).events, trace / "deep" / "events.parquet")
    assert inline.check(trace)[0].promises is None
    (trace / "run.json").write_text('{"ordering": "fifo"}')
    assert "fifo" in (inline.check(trace)[0].promises or ())


def test_a_linked_folder_is_part_of_the_trace(inline: Checker, tmp_path: Path) -> None:
    """A member's folder is often a link to another disk; without it, nobody would miss anything."""
    events = sample(23).events
    members = sorted({event.member for event in events})
    trace = tmp_path / "trace"
    trace.mkdir()
    for member in members:
        write([event for event in events if event.member == member], tmp_path / f"disk-{member}" / "events.parquet")
        (trace / f"member-{member}").symlink_to(tmp_path / f"disk-{member}")
    totals, verdicts = inline.check(trace)
    assert (totals.members, totals.events) == (len(members), len(events))
    assert verdicts == naive.check(events)
    (trace / "member-lost").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="member-lost"):
        inline.check(trace)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
class TestOddColumns:
    """What other tools write: other capitals, folders that say a column, no column `run` at all."""

    def rows(self, seed: int) -> tuple[list[Event], list[dict[str, Any]]]:
        events = in_run(sample(seed).events, "monday")
        return events, rows_of(events)

    def put(self, rows: list[dict[str, Any]], path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        elif path.suffix == ".csv":
            with path.open("w", newline="") as out:
                table = csv.DictWriter(out, list(rows[0]))
                table.writeheader()
                for row in rows:
                    lists = {k: " ".join(map(str, v)) for k, v in row.items() if isinstance(v, (list, tuple))}
                    table.writerow({**row, **lists})
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def test_capitals(self, inline: Checker, tmp_path: Path, suffix: str) -> None:
        events, rows = self.rows(24)
        self.put([{key.upper(): value for key, value in row.items()} for row in rows], tmp_path / f"t.{suffix}")
        totals, verdicts = inline.check(tmp_path / f"t.{suffix}")
        assert (totals.events, totals.quarantined) == (len(events), {})
        assert verdicts == naive.check(events)

    def test_folders_that_say_a_column(self, inline: Checker, tmp_path: Path, suffix: str) -> None:
        events, rows = self.rows(25)
        for member in sorted({event.member for event in events}):
            mine = [
                {key: value for key, value in row.items() if key not in ("run", "member")}
                for row in rows
                if row["member"] == member
            ]
            self.put(mine, tmp_path / "t" / "run=monday" / f"member={member}" / f"part.{suffix}")
        totals, verdicts = inline.check(tmp_path / "t")
        assert (totals.events, totals.quarantined) == (len(events), {})
        assert verdicts == naive.check(events)

    def test_a_constant_in_place_of_a_column(self, inline: Checker, tmp_path: Path, suffix: str) -> None:
        events, rows = self.rows(26)
        self.put([{k: v for k, v in row.items() if k != "run"} for row in rows], tmp_path / f"t.{suffix}")
        with pytest.raises(UsageError, match="'run' is missing"):
            inline.check(tmp_path / f"t.{suffix}")
        totals, verdicts = inline.check(tmp_path / f"t.{suffix}", Mapping(constants={"run": "monday"}))
        assert (totals.events, totals.quarantined) == (len(events), {})
        assert verdicts == naive.check(events)

    def test_names_and_numbers_from_zero(self, inline: Checker, tmp_path: Path, suffix: str) -> None:
        """Members have names and a topic's numbers start from 0: names are read as such, a mapping says the rest."""
        events, rows = self.rows(27)
        names = {f"pod-{member}": member for member in sorted({event.member for event in events})}
        name_of = {number: name for name, number in names.items()}
        for row in rows:
            row["member"] = name_of[row["member"]]
            row["sender"] = name_of.get(row["sender"])
            row["seq"] = None if row["seq"] is None else row["seq"] - 1
            row["members"] = None if row["members"] is None else [name_of[one] for one in row["members"]]
        if suffix == "parquet":  # a list of names has no place in the contract's column
            rows = [{key: value for key, value in row.items() if key != "members"} for row in rows]
            events = [msgspec.structs.replace(event, members=None) for event in events]
        self.put(rows, tmp_path / f"t.{suffix}")
        totals, _ = inline.check(tmp_path / f"t.{suffix}")
        zeros = sum(row["seq"] == 0 for row in rows)
        assert totals.names == name_of
        assert (totals.events, sum(totals.quarantined.values())) == (len(events) - zeros, zeros)
        [reason] = totals.reasons
        assert "numbers_from says where a log's numbers start" in reason
        totals, verdicts = inline.check(tmp_path / f"t.{suffix}", Mapping(members=names, numbers_from=0))
        assert (totals.events, totals.quarantined) == (len(events), {})
        assert verdicts == naive.check(events)


@pytest.mark.parametrize("seed", range(4))
def test_sends_that_nobody_records(inline: Checker, tmp_path: Path, seed: int) -> None:
    """A topic's consumers log what they got: that nobody logs sends is no violation, and what needs them is unknown."""
    events = [event for event in sample(30 + seed).events if event.event != "send"]
    path = write(events, tmp_path / "trace.parquet")
    _, plain = inline.check(path)
    assert plain["integrity"].verdict == "violated"
    _, verdicts = inline.check(path, unrecorded_sends=True)
    assert verdicts == naive.check(events, unrecorded_sends=True)
    assert verdicts["integrity"].verdict == verdicts["causal"].verdict == "unknown"
    assert verdicts["fifo"].verdict == "holds"


def test_empty_files_are_no_obstacle_and_repeated_columns_are_named(tmp_path: Path) -> None:
    """A job that had nothing to write leaves an empty part; which of two columns of a name is meant nobody can know."""
    text = "run,member,step,event,sender,seq\r\nr,1,1,send,1,1\r\nr,1,2,deliver,1,1\r\n"
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "part-0.csv").touch()
    (tmp_path / "part-1.jsonl").touch()
    with pa.CompressedOutputStream(str(tmp_path / "part-2.csv.zst"), "zstd") as packed:
        packed.write(b"\xef\xbb\xbf" + text.encode())
    assert lay_out_trace(Inline(), str(tmp_path), tmp_path / "_layout", None).totals.events == 2
    (tmp_path / "part-3.csv").write_text("run,member,step,event,sender,seq,seq\nr,2,1,deliver,1,1,2\n")
    with pytest.raises(UsageError, match=r"part-3\.csv: there are several columns 'seq'"):
        lay_out_trace(Inline(), str(tmp_path), tmp_path / "_again", None)
    (tmp_path / "part-3.csv").unlink()
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, names=["seq", "seq"]), tmp_path / "part-3.parquet")
    with pytest.raises(UsageError, match=r"part-3\.parquet: there are several columns 'seq'"):
        lay_out_trace(Inline(), str(tmp_path), tmp_path / "_third", None)
