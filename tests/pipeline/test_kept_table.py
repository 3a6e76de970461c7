"""A table that `antiphon ingest` keeps gives what its trace gives, says when it is stale, and is read by windows."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from antiphon import pipeline
from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.pipeline.checking import CheckOptions, check_layout
from antiphon.pipeline.ingesting.keep import keep_trace, lay_out_trace
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.measuring import measure_layout
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.session import Session
from antiphon.pipeline.store.location import location
from antiphon.pipeline.store.table import TABLE_FILE, open_table, stale_table
from antiphon.report.diagram_window import DiagramRequest, read_window
from antiphon.report.run_settings import names_of
from antiphon.trace.event import Event
from pipeline.traces import chaos, write

HERE = Inline(3)


def shuffled(folder: Path, *, seed: int = 1) -> Path:
    """A trace in no order, in several files, with rows that occur twice."""
    events = [event for number in range(30) for event in chaos(number, f"run-{number}")]
    random.Random(seed).shuffle(events)
    for part in range(3):
        write(events[part::3] + events[:4], folder / f"{part}.parquet")
    return folder


def ordered(folder: Path, members: int = 3, messages: int = 400) -> Path:
    """A trace in order, one file a member, in small row groups; member 0 sends, all deliver; times are 10 steps."""
    for member in range(members):
        names = ("send", "deliver") if member == 0 else ("deliver",)
        events = [
            Event("calm", member, step, name, 0, number, 10 * step + member)
            for number in range(1, messages + 1)
            for step, name in enumerate(names, len(names) * number)
        ]
        write(events, folder / f"{member}.parquet", row_group_rows=50)
    (folder / "run.json").write_text(json.dumps({"run": "calm", "ordering": "fifo", "clock": "global"}))
    (folder / "_names-0.json").write_text(json.dumps({"0": "alice", "1": "bob", "2": "carol"}))
    return folder


def found(trace: Path, work: Path) -> tuple[object, object]:
    """What check and measure say of a trace or table, but for its name."""
    laid = lay_out_trace(HERE, str(trace), work / "layout", None)
    laid.totals.trace = ""
    checked = check_layout(HERE, laid.folder, laid.totals, work / "check", CheckOptions())
    return checked, measure_layout(HERE, laid.folder, laid.totals, work / "tables", work / "measure")


@pytest.mark.parametrize("make", [shuffled, ordered])
def test_a_table_gives_what_its_trace_gives_and_does_not_need_it(make, tmp_path: Path) -> None:
    trace, table = make(tmp_path / "trace"), tmp_path / "table"
    expected = found(trace, tmp_path / "plain")
    facts = keep_trace(HERE, str(trace), table, None, in_place=False)
    assert not facts.in_place
    shutil.rmtree(trace)
    moved = table.rename(tmp_path / "moved")
    assert found(moved, tmp_path / "kept") == expected
    assert not stale_table(str(moved))
    assert sorted(path.name for path in moved.iterdir() if not path.name.startswith("_")) in (
        ["events"],
        ["events", "run.json"],
    )


def test_rows_in_order_may_stay_where_they_are(tmp_path: Path) -> None:
    trace, table = ordered(tmp_path / "trace"), tmp_path / "table"
    assert keep_trace(HERE, str(trace), table, None, in_place=True).in_place
    assert not list((table / "events").iterdir())
    assert found(table, tmp_path / "kept") == found(trace, tmp_path / "plain")
    os.utime(trace / "1.parquet", ns=(1, 1))
    with pytest.raises(UsageError, match=r"its rows lie in .*trace, and files of .*: 1 changed"):
        found(table, tmp_path / "again")
    shutil.rmtree(trace)
    with pytest.raises(UsageError, match=r"0.parquet is not there any more"):
        found(table, tmp_path / "gone")


def test_rows_in_no_order_are_written_even_if_they_were_to_stay(tmp_path: Path) -> None:
    trace = shuffled(tmp_path / "trace")
    assert not keep_trace(HERE, str(trace), tmp_path / "table", None, in_place=True).in_place


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda trace: shutil.copy(trace / "0.parquet", trace / "9.parquet"), "1 new"),
        (lambda trace: (trace / "0.parquet").unlink(), "1 gone"),
        (lambda trace: os.utime(trace / "2.parquet", ns=(5, 5)), "1 changed"),
        (lambda trace: (trace / "run.json").write_text("{}"), "1 changed"),
        (lambda trace: (trace / "notes.txt").write_text("nothing to do with it"), ""),
    ],
)
def test_a_table_says_when_it_is_stale(change, said: str, tmp_path: Path) -> None:
    trace, table = ordered(tmp_path / "trace"), tmp_path / "table"
    keep_trace(HERE, str(trace), table, None, in_place=False)
    assert lay_out_trace(HERE, str(table), tmp_path / "unused", None).totals.stale == ""
    change(trace)
    told = lay_out_trace(HERE, str(table), tmp_path / "unused", None).totals.stale
    assert (f": {said}; antiphon ingest {trace} --out {table}" in told) if said else not told


def test_a_log_of_another_system_is_kept_with_its_names_and_how_it_was_read(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    rows = [
        {"client": "kitchen", "event": "publish", "subject": "soup", "id": "a-1"},
        {"client": "hall", "event": "subscribe", "subject": "soup"},
        {"client": "hall", "event": "deliver", "subject": "soup", "id": "a-1"},
    ]
    (logs / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mapping = Mapping(preset="nats", sends="unrecorded")
    plain = lay_out_trace(HERE, str(logs), tmp_path / "plain", mapping)
    facts = keep_trace(HERE, str(logs), tmp_path / "table", mapping, in_place=True)
    assert not facts.in_place
    assert not (tmp_path / "table" / "_foreign").exists()
    kept = lay_out_trace(HERE, str(tmp_path / "table"), tmp_path / "unused", None)
    assert kept.mapping == mapping
    assert (kept.totals.names, kept.totals.events) == (plain.totals.names, plain.totals.events)
    assert kept.totals.names
    [run] = open_table(str(tmp_path / "table")).windows.runs
    assert names_of(str(tmp_path / "table"), run, kept.totals.names, {}) == kept.totals.names
    with pytest.raises(UsageError, match="a table keeps what it was read with"):
        lay_out_trace(HERE, str(tmp_path / "table"), tmp_path / "unused", Mapping(preset="mqtt"))


def test_windows_have_the_rows_of_a_time_for_some_members(tmp_path: Path) -> None:
    keep_trace(HERE, str(ordered(tmp_path / "trace")), tmp_path / "table", None, in_place=False)
    table = open_table(str(tmp_path / "table"))
    windows = table.windows
    assert windows.runs == ["calm"]
    assert windows.members("calm") == [0, 1, 2]
    assert windows.global_clock("calm")
    assert windows.span("calm") == (11, 8010)
    read = windows.read("calm", times=(1000, 1100), members=[0, 2], columns=("member", "step", "time_ns", "event"))
    assert read.to_pylist() == [
        {"member": member, "step": step, "time_ns": 10 * step + member, "event": "deliver" if step % 2 else "send"}
        | ({"event": "deliver"} if member else {})
        for member in (0, 2)
        for step in range(100, 111)
        if 1000 <= 10 * step + member <= 1100
    ]
    assert windows.read("calm", steps=(3, 4), members=[1])["step"].to_pylist() == [3, 4]
    assert windows.read("calm", times=(9000, 9999)).num_rows == windows.count_most("calm", times=(9000, 9999)) == 0
    assert windows.count_most("calm", times=(1000, 1100)) <= 6 * 50 < windows.count_most("calm") == 1600
    with pytest.raises(UsageError, match="no such run: tuesday; there is calm"):
        windows.read("tuesday")


def test_windows_of_rows_that_were_sorted_equal_those_of_the_source(tmp_path: Path) -> None:
    trace = shuffled(tmp_path / "trace")
    keep_trace(HERE, str(trace), tmp_path / "table", None, in_place=False)
    windows = open_table(str(tmp_path / "table")).windows
    source = [row for file in trace.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    rows = [row for run in windows.runs for row in windows.read(run).to_pylist()]
    assert {(row["run"], row["member"], row["step"]) for row in rows} == {
        (row["run"], row["member"], row["step"]) for row in source
    }
    for run in windows.runs:  # they share row groups
        times = [row["time_ns"] for row in rows if row["run"] == run and row["time_ns"] is not None]
        assert windows.span(run) == ((min(times), max(times)) if times else None)
        some = windows.read(run, times=(20, 60), columns=("time_ns",))["time_ns"].to_pylist()
        assert sorted(some) == sorted(time for time in times if 20 <= time <= 60)


def test_a_diagram_of_a_table_is_that_of_its_trace(tmp_path: Path) -> None:
    trace, table = ordered(tmp_path / "trace"), tmp_path / "table"
    keep_trace(HERE, str(trace), table, None, in_place=True)
    request = DiagramRequest(around=(0, 7))
    assert read_window(str(table), request) == read_window(str(trace), request)


def test_what_is_no_table_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a table; antiphon ingest TRACE --out"):
        open_table(str(tmp_path))
    for content, said in (("{", "not what antiphon ingest writes"), ('{"format": 9}', "a table of format 9")):
        (tmp_path / TABLE_FILE).write_text(content)
        with pytest.raises(UsageError, match=said):
            open_table(str(tmp_path))


def test_a_diagram_of_names_asks_for_a_table(tmp_path: Path) -> None:
    row = {"run": "r", "member": "ann", "step": 1, "event": "send", "sender": "ann", "seq": "a", "time_ns": 1}
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=r"members or messages have names.* antiphon ingest"):
        read_window(str(tmp_path / "log.jsonl"), DiagramRequest(around=(1, 1)))


def test_the_command_keeps_and_the_others_reuse(
    spark_session: Session, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace, table = ordered(tmp_path / "trace"), tmp_path / "table"
    assert main(["ingest", str(trace), "--out", str(table), "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["table"], said["in_place"], said["events"], said["quarantined"]) == (str(table), False, 1600, 0)
    jobs = spark_session.jobs
    assert main(["check", str(table), "--json"]) == 0
    assert spark_session.jobs - jobs <= 2, "nothing is read or sorted again"
    out, err = capfd.readouterr()
    assert (json.loads(out)["events"], err) == (1600, "")
    os.utime(trace / "0.parquet", ns=(5, 5))
    for command in (
        ["check"],
        ["measure"],
        ["report", "--out", str(tmp_path / "page.html")],
        ["diagram", "--around", "0:7"],
    ):
        assert main([command[0], str(table), *command[1:], "--json"]) == 0
        out, err = capfd.readouterr()
        assert err.startswith("antiphon: stale: files of ")
        assert command[0] == "diagram" or "1 changed" in json.loads(out)["stale"]
    assert "1 changed" in (tmp_path / "page.html").read_text()
    assert main(["ingest", str(table), "--out", str(tmp_path / "second")]) == 2
    assert "is a table already" in capfd.readouterr().err


def test_a_frame_is_kept_too(spark_session: Session, tmp_path: Path) -> None:
    frame = spark_session.spark.read.parquet(str(ordered(tmp_path / "trace") / "*.parquet"))
    kept = pipeline.ingest(frame, promises=["fifo"]).keep(tmp_path / "table")
    shutil.rmtree(tmp_path / "trace")
    again = pipeline.check(kept, spark=spark_session.spark)
    assert (again.result.events, again.result.guarantees["fifo"].promised) == (1600, True)
    assert location(kept) == tmp_path / "table"
