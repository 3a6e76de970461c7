"""Reading traces: three formats, one meaning; unusable input is one sentence, unreadable rows are put aside."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.errors import UsageError
from antiphon.live import tracing
from antiphon.live.tracing import LiveTrace
from antiphon.protocol.machine import TraceRow
from antiphon.trace.event import Event
from antiphon.trace.reader import read
from antiphon.trace.run_file import read_names
from antiphon.trace.schema import COLUMNS, REQUIRED
from antiphon.trace.writer import write_part

ROWS: list[dict[str, Any]] = [
    {"run": "r", "member": 1, "step": 1, "event": "view", "view": 1, "members": [1, 2]},
    {"run": "r", "member": 1, "step": 2, "event": "send", "sender": 1, "seq": 1, "time_ns": 5, "view": 1, "bytes": 64},
    {"run": "r", "member": 2, "step": 9, "event": "discard", "sender": 1, "seq": 1, "view": 1, "detail": "late, so"},
]
EVENTS = [
    Event("r", 1, 1, "view", view=1, members=(1, 2)),
    Event("r", 1, 2, "send", 1, 1, 5, 1, 64),
    Event("r", 2, 9, "discard", 1, 1, None, 1, detail="late, so"),
]
SCHEMA = pa.schema([(name, pa.list_(pa.int32()) if "list" in kind else kind) for name, kind in COLUMNS.items()])


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return path


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


class TestFormats:
    def test_parquet(self, tmp_path: Path) -> None:
        assert read(write_parquet(tmp_path / "t.parquet", ROWS)).events == EVENTS

    def test_parquet_by_its_content_where_the_name_says_nothing(self, tmp_path: Path) -> None:
        assert read(write_parquet(tmp_path / "trace", ROWS)).events == EVENTS

    def test_json_lines(self, tmp_path: Path) -> None:
        trace = read(write_lines(tmp_path / "t.jsonl", [*ROWS, ""]))
        assert (trace.events, trace.unreadable) == (EVENTS, [])

    def test_csv(self, tmp_path: Path) -> None:
        file = tmp_path / "t.csv"
        file.write_text(
            "run,member,step,event,sender,seq,time_ns,view,bytes,members,detail\n"
            'r,1,1,view,,,,1,,1 2,\nr,1,2,send,1,1,5,1,64,,\nr,2,9,discard,1,1,,1,,,"late, so"\n'
        )
        assert read(str(file)).events == EVENTS

    def test_only_the_required_columns(self, tmp_path: Path) -> None:
        file = tmp_path / "t.csv"
        file.write_text("seq,sender,event,step,member,run\n3,2,deliver,4,1,r\n")
        assert read(file).events == [Event("r", 1, 4, "deliver", 2, 3)]

    def test_unknown_columns_are_ignored(self, tmp_path: Path) -> None:
        schema = SCHEMA.append(pa.field("colour", pa.string()))
        pq.write_table(pa.Table.from_pylist([row | {"colour": "red"} for row in ROWS], schema), tmp_path / "t.parquet")
        assert read(tmp_path / "t.parquet").events == EVENTS

    def test_a_directory_at_any_depth_but_not_what_is_hidden(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "_temporary").mkdir()
        write_parquet(tmp_path / "a" / "2.parquet", ROWS[2:])
        write_parquet(tmp_path / "_temporary" / "x.parquet", ROWS[2:])
        write_lines(
            tmp_path / "1.jsonl", [row | {"sender": row.get("sender"), "seq": row.get("seq")} for row in ROWS[:2]]
        )
        (tmp_path / "notes.txt").write_text("not a trace")
        assert read(tmp_path).events == EVENTS

    def test_a_link_to_a_folder_is_that_folder_once(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        write_lines(tmp_path / "elsewhere" / "t.jsonl", ROWS)
        trace = tmp_path / "trace"
        trace.mkdir()
        (trace / "member-1").symlink_to(tmp_path / "elsewhere")
        (trace / "again").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / "back").symlink_to(trace)
        assert read(trace).events == EVENTS

    def test_a_link_to_nothing_is_an_error(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "t.jsonl", ROWS)
        (tmp_path / "member-2").symlink_to(tmp_path / "nowhere")
        with pytest.raises(UsageError, match=r"member-2.*not there"):
            read(tmp_path)

    def test_reading_csv_does_not_need_pyarrow(self) -> None:
        code = "import sys; import antiphon.trace.reader, antiphon.trace.naive; sys.exit('pyarrow' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestUnusableInput:
    def test_missing_path(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"there is no trace at .*nowhere"):
            read(tmp_path / "nowhere")

    def test_empty_directory(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="has no trace in it"):
            read(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"PAR1", b"run,member\n", b"PAR1" + bytes(100) + b"PAR1"])
    def test_not_parquet(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "t.parquet").write_bytes(content)
        with pytest.raises(UsageError, match=r"t\.parquet cannot be read as Parquet") as raised:
            read(tmp_path)
        assert "\n" not in str(raised.value)

    def test_no_format_at_all(self, tmp_path: Path) -> None:
        (tmp_path / "t.log").write_text("hello")
        with pytest.raises(UsageError, match=r"t\.log is no trace"):
            read(tmp_path / "t.log")

    @pytest.mark.parametrize("column", REQUIRED)
    @pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
    def test_missing_required_column(self, tmp_path: Path, column: str, suffix: str) -> None:
        row = {"run": "r", "member": 1, "step": 1, "event": "deliver", "sender": 1, "seq": 1}
        del row[column]
        file = tmp_path / f"t.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist([row]), file)
        elif suffix == "csv":
            file.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
        else:
            write_lines(file, [row])
        with pytest.raises(UsageError, match=f"lacks the column {column};"):
            read(file)

    @pytest.mark.parametrize("suffix", ["csv", "jsonl"])
    def test_not_text(self, tmp_path: Path, suffix: str) -> None:
        (tmp_path / f"t.{suffix}").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(UsageError, match="cannot be read as"):
            read(tmp_path)

    @pytest.mark.parametrize("content", ["{", "[]", "\xff"])
    def test_bad_run_json(self, tmp_path: Path, content: str) -> None:
        write_parquet(tmp_path / "t.parquet", ROWS)
        (tmp_path / "run.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(UsageError, match=r"run\.json is not"):
            read(tmp_path)


class TestRowsPutAside:
    GOOD: ClassVar[dict[str, Any]] = {"run": "r", "member": 1, "step": 1, "event": "deliver", "sender": 1, "seq": 1}

    @pytest.mark.parametrize(
        ("change", "event", "reason"),
        [
            ({"member": None}, "deliver", "member is missing"),
            ({"run": None}, "deliver", "run is missing"),
            ({"step": "soon"}, "deliver", "step is not an integer: 'soon'"),
            ({"step": 1.5}, "deliver", "step is not an integer: 1.5"),
            ({"step": True}, "deliver", "step is not an integer: True"),
            ({"member": 1 << 31}, "deliver", "member does not fit into int32: 2147483648"),
            ({"run": 7}, "deliver", "run is not text: 7"),
            ({"event": "receipt"}, None, "no event is called 'receipt'"),
            ({"event": None}, None, "event is missing"),
            ({"sender": None}, "deliver", "a deliver needs sender and seq"),
            ({"event": "stable", "seq": 0}, "stable", "seq is 0, but numbers start from 1"),
            ({"event": "send", "member": 2}, "send", "member 2 cannot send a message of 1"),
            ({"event": "view", "members": 3}, "view", "members is not a list: 3"),
        ],
    )
    def test_reason(self, tmp_path: Path, change: dict[str, Any], event: str | None, reason: str) -> None:
        trace = read(write_lines(tmp_path / "t.jsonl", [self.GOOD, self.GOOD | {"step": 2} | change]))
        assert len(trace.events) == 1
        (aside,) = trace.unreadable
        assert (aside.row, aside.event, aside.reason) == (2, event, reason)

    def test_a_line_that_is_no_json(self, tmp_path: Path) -> None:
        trace = read(write_lines(tmp_path / "t.jsonl", [self.GOOD, "{oops", "3"]))
        assert [(aside.row, aside.event) for aside in trace.unreadable] == [(2, None), (3, None)]

    def test_a_step_that_is_there_twice(self, tmp_path: Path) -> None:
        rows = [self.GOOD, self.GOOD | {"event": "control", "sender": None}, self.GOOD | {"member": 2}]
        trace = read(write_lines(tmp_path / "t.jsonl", rows))
        assert [(event.member, event.event) for event in trace.events] == [(1, "control"), (2, "deliver")]
        assert [(aside.row, aside.reason) for aside in trace.unreadable] == [(1, "step 1 of member 1 is there twice")]


class TestRunJson:
    def test_nearest_one_on_the_way_up(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            write_parquet(tmp_path / name / "t.parquet", [row | {"run": name} for row in ROWS])
        (tmp_path / "run.json").write_text('{"ordering": "fifo"}')
        (tmp_path / "b" / "run.json").write_text('{"ordering": "co", "clock": "global"}')
        trace = read(tmp_path)
        assert trace.about == {"a": {"ordering": "fifo"}, "b": {"ordering": "co", "clock": "global"}}
        assert trace.promised == {
            "integrity",
            "validity",
            "agreement",
            "fifo",
            "causal",
            "stability",
        }  # co finds it itself
        assert trace.global_clock == {"b"}
        assert read(tmp_path / "a").about == {}

    def test_beside_a_single_file(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "t.parquet", ROWS)
        (tmp_path / "run.json").write_text('{"stability": "train"}')
        assert read(tmp_path / "t.parquet").promised == {"stability"}

    def test_without_one_nothing_is_promised(self, tmp_path: Path) -> None:
        trace = read(write_parquet(tmp_path / "t.parquet", ROWS))
        assert trace.promised is None
        assert trace.global_clock == frozenset()


def test_a_live_trace_tells_names_beside_its_events(tmp_path: Path) -> None:
    names = {0: "alice:7000"}
    trace = LiveTrace(tmp_path, "r", {}, 0, names)
    other = LiveTrace(tmp_path, "r", {}, 1, {1: "bob:7000"})
    names[2] = "carol:7000"  # somebody joins
    trace.flush()
    for one in (trace, other):
        one.close(0, is_whole=False)
    (tmp_path / "_names-9.json").write_text("half of")
    assert read_names(tmp_path) == {"0": "alice:7000", "1": "bob:7000", "2": "carol:7000"}


def test_a_start_without_its_state_writes_over_no_log(tmp_path: Path) -> None:
    """It begins under the number of its first life, learns that it had one, and gets another number."""
    first = LiveTrace(tmp_path, "r", {}, 0, {})
    log = first.incarnation(0)
    log.write(1, TraceRow(0, "view", view=1, members=(0, 1)))
    log.write(2, TraceRow(0, "send", sender=0, seq=1))
    first.close(3, is_whole=False)
    kept = (tmp_path / "member-0-000000.parquet").read_bytes()

    second = LiveTrace(tmp_path, "r", {}, 0, {})
    again = second.incarnation(0)
    again.write(4, TraceRow(0, "leave", detail="excluded"))
    second.incarnation(10_000).write(5, TraceRow(10_000, "view", view=3, members=(1, 10_000)))
    second.flush()
    assert second.failed is None
    again.write(6, TraceRow(0, "view", view=1, members=(0,)))  # a group whose members have all lost their states
    assert second.failed is not None
    assert "member-0-000000.parquet is of an earlier start; name another folder" in second.failed
    second.close(7, is_whole=True)
    assert (tmp_path / "member-0-000000.parquet").read_bytes() == kept


def test_who_stops_with_unfinished_messages_has_crashed_and_its_log_is_whole(tmp_path: Path) -> None:
    trace = LiveTrace(tmp_path, "r", {}, 0, {})
    trace.incarnation(0).write(1, TraceRow(0, "send", sender=0, seq=1))
    trace.close(2, is_whole=True, unfinished=True)
    rows = pq.read_table(tmp_path / "member-0-000000.parquet").to_pylist()
    assert [(row["event"], row["detail"]) for row in rows] == [("send", None), ("crash", "stopped"), ("end", None)]


def test_a_disk_that_stands_still_for_long_ends_no_trace_in_which_little_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended after sixteen of the timer's ticks, however few events waited; some pauses of a disk are longer."""
    goes_on = threading.Event()

    def write(*told: Any) -> None:
        assert goes_on.wait(30)
        write_part(*told)

    monkeypatch.setattr(tracing, "write_part", write)
    trace = LiveTrace(tmp_path, "r", {}, 0, {})
    log = trace.incarnation(0)
    for seq in range(1, 101):
        log.write(seq, TraceRow(0, "send", sender=0, seq=seq))
        trace.flush()
    assert trace.failed is None
    goes_on.set()
    trace.close(200, is_whole=True)
    rows = [row for part in sorted(tmp_path.glob("member-*")) for row in pq.read_table(part).to_pylist()]
    assert [row["step"] for row in rows] == list(range(1, 102))
    assert rows[-1]["event"] == "end"
