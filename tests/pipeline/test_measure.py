"""Every measure equals an obvious computation on the events in memory."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from antiphon.cli import main
from antiphon.pipeline.ingesting import ingest
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.measuring import measure_layout
from antiphon.pipeline.measuring.job import TABLES
from antiphon.pipeline.measuring.quantiles import Sketch, exact
from antiphon.pipeline.results import MeasureResult, ProcessRow, read_measure, read_measured
from antiphon.pipeline.session import Session
from antiphon.sim.about import about
from antiphon.sim.cluster import SimulatedRun, simulate
from antiphon.sim.scenario import from_table
from antiphon.trace.event import Event
from antiphon.trace.writer import write_trace
from pipeline.traces import write


@pytest.fixture
def inline_session() -> Session:
    return Inline(3)


Tables = dict[str, list[dict[str, Any]]]
NAMES = tuple(TABLES)


def simulated(ordering: str, **table: Any) -> SimulatedRun:
    usual = {"members": 4, "messages": 25, "ordering": ordering, "network": {"loss": 0.1, "duplicate": 0.05}}
    return simulate(from_table({**usual, **table}), seed=11)


def measured(session: Session, trace: Path, work: Path) -> tuple[MeasureResult, Tables]:
    totals = ingest(session, str(trace), work / "layout")
    summary = measure_layout(session, work / "layout", totals, work / "out", work / "scratch")
    return summary, {name: read(work / "out" / name) for name in NAMES}


def read(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


class Naive:
    """The same measures in plain loops over one run with a global clock."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.logs: dict[int, list[Event]] = defaultdict(list)
        for event in sorted(events, key=lambda event: event.step):
            self.logs[event.member].append(event)
        self.sent = {
            (e.sender, e.seq): e.time_ns for log in self.logs.values() for e in reversed(log) if e.event == "send"
        }

    def first(self, member: int, message: object, *names: str) -> int | None:
        for event in self.logs[member]:
            name = event.detail if event.event == "control" else event.event
            if name in names and (event.sender, event.seq) == message:
                return event.time_ns
        return None

    def marked(self, member: int, message: tuple[int, int]) -> int | None:
        for event in self.logs[member]:
            if event.event == "stable" and event.sender == message[0] and event.seq >= message[1]:
                return event.time_ns
        return None

    def durations(self, measure: str, member: int) -> list[int]:
        found = []
        for message, sent in self.sent.items():
            received = self.first(member, message, "receive")
            final = self.first(member, message, "final")
            delivered = self.first(member, message, "deliver")
            held = self.first(member, message, "send", "receive", "deliver")
            start, stop = {
                "delivery": (sent, delivered),
                "t1": (received, final),
                "t2": (final, delivered),
                "stable": (sent, self.marked(member, message)),
                "held": (held, self.marked(member, message)),
            }[measure]
            if start is not None and stop is not None:
                found.append(stop - start)
        return sorted(found)

    def peak(self, member: int) -> int:
        held: set[tuple[int, int]] = set()
        gone: dict[int, int] = defaultdict(int)
        highest = 0
        for event in self.logs[member]:
            if event.event in ("send", "receive", "deliver") and event.seq > gone[event.sender]:
                held.add((event.sender, event.seq))
            elif event.event == "stable":
                gone[event.sender] = max(gone[event.sender], event.seq)
                held = {m for m in held if m[1] > gone[m[0]]}
            highest = max(highest, len(held))
        return highest

    def waits(self) -> dict[int, tuple[int, int]]:
        """Member -> (messages that it was last to hold, how long it alone was waited for)."""
        found: dict[int, list[int]] = defaultdict(list)
        for message in self.sent:
            times = sorted((self.first(q, message, "send", "receive", "deliver"), q) for q in self.logs)
            last = [q for time, q in times if time == times[-1][0]]
            found[min(last)].append(times[-1][0] - times[-2][0])
        return {member: (len(alone), sum(alone)) for member, alone in found.items()}


@pytest.mark.parametrize(
    ("ordering", "clock"), [("abcast", "global"), ("co", "global"), ("causal-blocks", "global"), ("fifo", "global")]
)
def test_equals_the_obvious(inline_session: Session, tmp_path: Path, ordering: str, clock: str) -> None:
    run = simulated(ordering)
    write_trace(tmp_path / "trace", run.name, run.logs, about(run), replace=False)
    summary, tables = measured(inline_session, tmp_path / "trace", tmp_path)
    naive = Naive(run.events)
    assert summary.clock == clock
    assert {row["measure"] for row in tables["latency"]} >= {"delivery", "stable", "held"}
    assert ("t1" in {row["measure"] for row in tables["latency"]}) == (ordering == "abcast")
    for row in tables["latency"]:
        values = naive.durations(row["measure"], row["member"])
        assert row["count"] == len(values)
        assert row["mean_ns"] == pytest.approx(sum(values) / len(values))
        for name, share in (("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999), ("max_ns", 1)):
            assert row[name] == values[max(0, math.ceil(round(share * len(values), 6)) - 1)], (row, name)
    for measure, found in summary.latency.items():
        values = (
            sorted(value for member in naive.logs for value in naive.durations(measure, member))
            if measure != "everywhere"
            else []
        )
        if values:
            assert found is not None
            assert found.p50_ns == pytest.approx(values[math.ceil(0.5 * len(values)) - 1], rel=summary.relative_error)
            assert found.count == len(values)
    for row in tables["members"]:
        assert row["buffer_peak"] == naive.peak(row["member"])
        assert row["retransmissions"] == sum(
            e.detail.startswith("repair") for e in naive.logs[row["member"]] if e.detail
        )
        assert row["duplicates"] == sum(e.detail == "duplicate" for e in naive.logs[row["member"]])
    held_back = {row["member"]: (row["last"], row["waited_ns"]) for row in tables["held_back"]}
    assert held_back == naive.waits()
    assert sum(row["lacked"] for row in tables["held_back"]) == 0


def test_traffic_and_repairs(inline_session: Session, tmp_path: Path) -> None:
    run = simulated("tomp")
    write_trace(tmp_path / "trace", run.name, run.logs, about(run), replace=False)
    summary, tables = measured(inline_session, tmp_path / "trace", tmp_path)
    kinds: Counter[tuple[int, str]] = Counter()
    size: Counter[str] = Counter()
    repairs: Counter[tuple[int, str]] = Counter()
    for event in run.events:
        kind = event.event if event.event in ("send", "receive") else event.detail
        if event.event not in ("send", "receive", "control") or kind in ("final", "duplicate"):
            continue
        if kind.startswith("repair to "):
            repairs[event.member, kind.removeprefix("repair to ")] += 1
            kind = "repair"
        kinds[event.member, kind] += 1
        size[kind] += event.bytes or 0  # what a member sends to itself is on no wire
    assert {(row["member"], row["kind"]): row["count"] for row in tables["traffic"]} == kinds
    assert {kind: found.bytes for kind, found in summary.traffic.items()} == size
    control = sum(number for kind, number in size.items() if kind not in ("send", "receive"))
    assert summary.overhead == pytest.approx(control / size["send"])
    by_target = {
        (row["repairer"], "all" if row["target"] is None else str(row["target"])): row["count"]
        for row in tables["repairs"]
    }
    assert by_target == repairs
    assert summary.retransmissions == sum(repairs.values()) == run.stats["members"]["retransmissions"]


def test_buffer_over_time_adds_up(inline_session: Session, tmp_path: Path) -> None:
    run = simulated("co")
    write_trace(tmp_path / "trace", run.name, run.logs, about(run), replace=False)
    _, tables = measured(inline_session, tmp_path / "trace", tmp_path)
    naive = Naive(run.events)
    for member in naive.logs:
        bins = [row for row in tables["buffer"] if row["member"] == member]
        assert max(row["peak"] for row in bins) == naive.peak(member)
        area = sum(row["mean"] * (row["end_ns"] - row["start_ns"]) for row in bins)
        assert area == pytest.approx(sum(naive.durations("held", member)))  # all of it became stable


def test_what_is_shown_of_a_run_adds_up(inline_session: Session, tmp_path: Path) -> None:
    run = simulated("fifo", members=30, messages=4, network={"loss": 0.1})
    write_trace(tmp_path / "trace", run.name, run.logs, about(run), replace=False)
    summary, tables = measured(inline_session, tmp_path / "trace", tmp_path)
    naive = Naive(run.events)
    [about_run] = tables["runs"]
    times = [event.time_ns for event in run.events]
    assert about_run == {
        "run": run.name,
        "members": 30,
        "rows": len(run.events),
        "first_ns": min(times),
        "last_ns": max(times),
    }
    assert summary.rows["send"] == 120
    assert max(row["peak"] for row in tables["occupancy"]) == max(naive.peak(member) for member in naive.logs)
    area = sum(row["mean"] * (row["end_ns"] - row["start_ns"]) for row in tables["occupancy"])
    assert area * 30 == pytest.approx(sum(sum(naive.durations("held", member)) for member in naive.logs))
    waited: Counter[int | None] = Counter()
    for row in tables["waiting"]:
        waited[row["member"]] += row["messages"] * (row["end_ns"] - row["start_ns"])
    alone = {member: total for member, (_, total) in naive.waits().items()}
    assert len(waited) == 25  # the 24 that were waited for most, and the others together
    assert None in waited
    assert {member: waited[member] for member in waited if member is not None} == pytest.approx(
        {member: alone[member] for member in sorted(alone, key=lambda q: -alone[q])[:24]}
    )
    assert sum(waited.values()) == pytest.approx(sum(alone.values()))
    for measure, found in summary.latency.items():
        counts = [row["count"] for row in tables["histogram"] if row["measure"] == measure]
        assert sum(counts) == (found.count if found else 0)
        assert len(counts) <= 200
    by_target = Counter({row["target"]: 0 for row in tables["repair_matrix"]})
    for row in tables["repairs"]:
        by_target[str(row["target"])] += row["count"]
    shown = {row["target"]: 0 for row in tables["repair_matrix"]}
    for row in tables["repair_matrix"]:
        shown[row["target"]] += row["count"]
    assert len(shown) == 17
    assert all(shown[who] == by_target[who] for who in shown if who != "others")
    assert sum(shown.values()) == sum(by_target.values()) == summary.retransmissions


def test_a_crashed_member_is_named(inline_session: Session, tmp_path: Path) -> None:
    run = simulated("fifo", faults=[{"kind": "crash", "member": 2, "at": "50ms"}], limit="3s", network={"loss": 0})
    write_trace(tmp_path / "trace", run.name, run.logs, about(run), replace=False)
    summary, tables = measured(inline_session, tmp_path / "trace", tmp_path)
    assert [row["member"] for row in tables["held_back"] if row["lacked"]] == [2]
    assert summary.held_back[0].member == 2


def test_nobody_is_blamed_outside_of_its_views(inline_session: Session, tmp_path: Path) -> None:
    """Member 2 dies at 30 and is out of the view from 100; 10002, its next incarnation, comes in at 200."""

    def log(member: int, *rows: tuple[int, str, int | None, int | None, tuple[int, ...] | None]) -> list[Event]:
        return [
            Event("r", member, step, event, sender, seq, time_ns=time, members=members)
            for step, (time, event, sender, seq, members) in enumerate(rows, 1)
        ]

    first, second, third = (0, 1, 2), (0, 1), (0, 1, 10002)
    events = [
        *log(0, (1, "view", None, None, first), (10, "send", 0, 1, None), (20, "send", 0, 2, None)),
        *log(1, (1, "view", None, None, first), (11, "receive", 0, 1, None), (25, "receive", 0, 2, None)),
        *log(2, (1, "view", None, None, first), (15, "receive", 0, 1, None), (30, "crash", None, None, None)),
        *log(10002, (201, "view", None, None, third), (240, "receive", 0, 4, None), (260, "stable", 0, 4, None)),
    ]
    more = [(100, "view", None, None, second), (110, "send", 0, 3, None), (120, "stable", 0, 3, None)]
    more += [(200, "view", None, None, third), (210, "send", 0, 4, None), (250, "stable", 0, 4, None)]
    for step, (time, event, sender, seq, members) in enumerate(more, 4):
        events.append(Event("r", 0, step, event, sender, seq, time_ns=time, members=members))
    other = [(102, "view", None, None, second), (115, "receive", 0, 3, None), (202, "view", None, None, third)]
    other += [(220, "receive", 0, 4, None), (251, "stable", 0, 4, None)]
    for step, (time, event, sender, seq, members) in enumerate(other, 4):
        events.append(Event("r", 1, step, event, sender, seq, time_ns=time, members=members))
    write(events, tmp_path / "trace" / "events.parquet")
    (tmp_path / "trace" / "run.json").write_text(json.dumps({"clock": "global"}))
    summary, tables = measured(inline_session, tmp_path / "trace", tmp_path / "work")
    blamed = {row["member"]: (row["last"], row["lacked"], row["waited_ns"]) for row in tables["held_back"]}
    # 2 was the last to hold 0:1 (4 after member 1), and lacked 0:2 from 25 until all had gone on without it, at 102
    assert blamed == {2: (1, 1, 4 + 77), 1: (1, 0, 5), 10002: (1, 0, 20)}
    assert summary.held_back[0].member == 2
    assert summary.latency["everywhere"].count == 3, "0:1, 0:3 and 0:4 reached all who had to hold them"
    ends = {row["member"]: row["buffer_end"] for row in tables["members"]}
    assert ends == {0: 0, 1: 0, 2: 0, 10002: 0}, "what a view kept is let go with it"


def test_what_was_lost_with_a_member_is_counted(inline_session: Session, tmp_path: Path) -> None:
    """1 sends three messages, delivers two of its own, and crashes; 2 delivers the first; 3 delivers what 2 sent."""
    rows = [
        *(Event("r", 1, seq, "send", 1, seq, time_ns=seq) for seq in (1, 2, 3)),
        *(Event("r", 1, 3 + seq, "deliver", 1, seq, time_ns=10) for seq in (1, 2)),
        Event("r", 1, 6, "crash", time_ns=20),
        Event("r", 2, 1, "deliver", 1, 1, time_ns=11),
        Event("r", 2, 2, "send", 2, 1, time_ns=12),
        Event("r", 2, 3, "end", time_ns=5_000_000_000),
        Event("r", 3, 1, "deliver", 2, 1, time_ns=13),
        Event("r", 3, 2, "deliver", 1, 1, time_ns=9),
        Event("r", 3, 3, "end", time_ns=30),
    ]
    write(rows, tmp_path / "trace" / "events.parquet")
    measured(inline_session, tmp_path / "trace", tmp_path)
    found = {row.member: row for row in read_measured(tmp_path / "out", ProcessRow)}
    assert (found[1].ending, found[1].undelivered, found[1].alone) == ("crash", 2, 1)
    assert (found[2].ending, found[2].undelivered, found[2].alone) == ("end", None, None)
    assert found[2].quiet_ns is None, "nobody did anything meanwhile"
    assert (found[3].set_back_at_ns, found[3].set_back_ns) == (13, 4)


def test_who_is_silent_while_others_are_busy_is_told(inline_session: Session, tmp_path: Path) -> None:
    second = 1_000_000_000
    rows = [Event("r", 1, seq, "send", 1, seq, time_ns=seq * second // 10) for seq in range(1, 31)]
    for member in (2, 3, 4):
        late = 2 * second if member == 4 else 0  # 4 takes up its first ten messages, stands still, and then the rest
        rows += [
            Event("r", member, seq, "deliver", 1, seq, time_ns=seq * second // 10 + (late if seq > 10 else 0))
            for seq in range(1, 31)
        ]
    write(rows, tmp_path / "trace" / "events.parquet")
    measured(inline_session, tmp_path / "trace", tmp_path)
    silent = {row.member: (row.quiet_at_ns, row.quiet_ns) for row in read_measured(tmp_path / "out", ProcessRow)}
    assert silent == dict.fromkeys((1, 2, 3), (None, None)) | {4: (second, 2 * second + second // 10)}


def test_foreign_trace_without_times_or_bytes(inline_session: Session, tmp_path: Path) -> None:
    lines = ["run,member,step,event,sender,seq", "r,1,1,send,1,1", "r,1,2,deliver,1,1", "r,2,1,deliver,1,1"]
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    summary, tables = measured(inline_session, tmp_path / "trace.csv", tmp_path / "work")
    assert set(summary.latency.values()) == {None}
    assert summary.overhead is summary.retransmissions is summary.buffer is None
    assert {"delivery", "t1", "buffer", "overhead", "retransmissions", "held_back"} <= set(summary.unknown)
    assert sum(row["delivered"] for row in tables["members"]) == 2
    assert all(row["buffer_peak"] is None for row in tables["members"])


def test_missing_columns_in_parquet(inline_session: Session, tmp_path: Path) -> None:
    run = simulated("fifo")
    path = write(run.events, tmp_path / "events.parquet")
    table = pq.read_table(path).drop_columns(["time_ns", "bytes", "detail", "view", "members"])
    pq.write_table(table, tmp_path / "few.parquet")
    summary, _ = measured(inline_session, tmp_path / "few.parquet", tmp_path / "work")
    assert set(summary.latency.values()) == {None}
    assert summary.buffer is not None  # counts need no clock
    assert summary.buffer.peak == max(Naive(run.events).peak(member) for member in range(4))


def test_many_runs_on_spark(spark_session: Session, tmp_path: Path) -> None:
    runs = [simulate(from_table({"members": 3, "messages": 8, "ordering": "co"}), seed) for seed in range(6)]
    for run in runs:
        write_trace(tmp_path / "trace" / run.name, run.name, run.logs, about(run), replace=False)
    summary, tables = measured(spark_session, tmp_path / "trace", tmp_path)
    assert len(tables["members"]) == 18
    for run in runs:
        waits = {
            row["member"]: (row["last"], row["waited_ns"]) for row in tables["held_back"] if row["run"] == run.name
        }
        assert waits == Naive(run.events).waits()
    assert summary.latency["delivery"].count == 6 * 3 * 24


def test_sketch_is_as_good_as_it_says() -> None:
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.integers(-50, 600, 500), rng.lognormal(15, 4, 5000).astype(np.int64)])
    sketch, other = Sketch(), Sketch()
    sketch.add(values[:3000])
    other.add(values[3000:])
    sketch.merge(other.buckets)
    truth = exact(values)
    for name, found in msgspec.structs.asdict(sketch.quantiles()).items():
        assert found == pytest.approx(truth[name], rel=1 / 256)


def test_a_histogram_has_every_value_in_its_bucket() -> None:
    rng = np.random.default_rng(6)
    values = np.concatenate([rng.integers(-5000, 600, 500), rng.lognormal(15, 4, 5000).astype(np.int64)])
    sketch = Sketch()
    sketch.add(values)
    for buckets_max in (10_000, 500, 200):
        buckets = sketch.histogram(buckets_max)
        assert len(buckets) <= buckets_max
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(buckets))
        assert [count for _, _, count in buckets] == [
            int(((values >= low) & (values < high)).sum()) for low, high, _ in buckets
        ]


def test_skewed_clocks_are_stated(spark_session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = simulated("fifo", clocks={"skew": "5ms"})
    write_trace(tmp_path / "trace", run.name, run.logs, about(run), replace=False)
    assert main(["measure", str(tmp_path / "trace"), "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "clock: local" in shown
    assert "held back by     unknown" in shown
    result = json.loads((tmp_path / "out" / "measure.json").read_text())
    assert result["latency"]["everywhere"] is None
    assert main(["measure", str(tmp_path / "trace"), "--out", str(tmp_path / "trace")]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert read_measure(tmp_path / "out").clock == "local"


def test_unusable_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for trace in ("nowhere", "empty"):
        assert main(["measure", str(tmp_path / trace)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
