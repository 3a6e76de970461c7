"""A watch says what the batch check says, in whatever pieces the trace comes, and across crashes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from bench.pipeline.churn import Churn

from antiphon import pipeline
from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.results import QuietMember, WatchCommit, read_alarms
from antiphon.pipeline.session import Session
from antiphon.pipeline.watch import DirectoryWatch, directory_watch, read_log, seen_files
from antiphon.pipeline.watch.state import GUARANTEES, load
from antiphon.sim.cluster import simulate
from antiphon.sim.scenario import from_table
from antiphon.trace.event import Event
from antiphon.trace.rolling import RollingWriter
from pipeline.traces import in_run, write
from pipeline.watching import compare, pieces
from support.planting import Shape, sample


def watcher(folder: Path, **options: Any) -> DirectoryWatch:
    (folder / "live").mkdir(parents=True, exist_ok=True)
    return DirectoryWatch(Inline(2), str(folder / "live"), str(folder / "watch"), lambda *_: None, **options)


@pytest.mark.parametrize("system", ["nats-core", "corosync-kill", "mosquitto-qos1cut"])
def test_traces_of_other_systems(tmp_path: Path, system: str) -> None:
    folder = Path(__file__).parents[1] / "data" / "traces" / system
    table = pq.read_table(folder / "events.parquet").sort_by([("member", "ascending"), ("step", "ascending")])
    one = watcher(tmp_path)
    for number in range(3):  # the first third of each log, and so on
        file = tmp_path / "live" / f"{number}.parquet"
        thirds = pc.floor(pc.multiply(_share_of_log(table), 3.0))
        pq.write_table(table.filter(pc.equal(thirds, number)), file)
        one.batch([str(file)])
    expected = json.loads((folder / "expected.json").read_text())
    final = one.conclude()
    for name, verdict in final.verdicts().items():
        assert {"verdict": verdict, "violations": final.findings[name].violations} == expected[name], name
    assert final.events == table.num_rows


def _share_of_log(table: pa.Table) -> pa.Array:
    """How far each row is in its member's log, from 0 to 1."""
    member = table["member"].to_numpy()
    first = np.searchsorted(member, member, "left")
    last = np.searchsorted(member, member, "right")
    return pa.array((np.arange(len(member)) - first) / (last - first))


def test_state_goes_when_messages_are_stable(tmp_path: Path) -> None:
    """What is kept of a long run is what is not stable: not more after 40 batches than after 10."""
    events = in_run(simulate(from_table({"members": 4, "messages": 300, "ordering": "abcast"}), 3).events, "r")
    by_time = sorted(events, key=lambda event: event.time_ns)
    one = watcher(tmp_path)
    one.roster = {"r": [0, 1, 2, 3]}
    live, size = [], []
    for number in range(40):
        part = by_time[len(by_time) * number // 40 : len(by_time) * (number + 1) // 40]
        one.batch([str(write(part, tmp_path / "live" / f"{number}.parquet"))])
        live.append(one.sum.live)
        size.append(max(file.stat().st_size for file in (tmp_path / "watch" / "state").iterdir()))
    compare(one.sum, events)
    assert 0 < max(live) < 150  # of 1,200 messages
    assert max(size) < 1.25 * max(size[:10])
    assert one.sum.live == one.sum.waiting == 0
    assert len(list((tmp_path / "watch" / "state").iterdir())) <= 2


def in_batches(folder: Path, events: list[Event], batches: int, **options: Any) -> Iterator[DirectoryWatch]:
    """Watch what happened in one stretch of time after the other."""
    one = watcher(folder, **options)
    by_time = sorted(events, key=lambda event: event.time_ns)
    for number in range(batches):
        part = by_time[len(by_time) * number // batches : len(by_time) * (number + 1) // batches]
        one.batch([str(write(part, folder / "live" / f"{number}.parquet"))])
        yield one


def test_state_goes_although_a_member_was_killed(tmp_path: Path) -> None:
    """A killed process logs no crash; the others go on in a view without it, and nothing waits for it."""
    faults = [{"kind": "crash", "member": 3, "at": "300ms"}]
    table = {"members": 4, "messages": 300, "ordering": "abcast", "views": True, "faults": faults}
    run = simulate(from_table({**table, "workload": {"interval": "fixed 5ms"}}), 4)
    events = [event for event in in_run(run.events, "r") if event.event != "crash"]
    live = [one.sum.live for one in in_batches(tmp_path, events, 20, patience_s=0.1)]
    one = watcher(tmp_path)
    assert one.sum.events == len(events)
    assert max(live) < 330, live  # what was sent until the others went on without it, of more than 900 messages
    assert max(live[-6:]) < 60, live
    compare(one.conclude(), events)
    expected = dict.fromkeys(GUARANTEES, "holds") | {"validity": "unknown"}  # its last messages it may have delivered
    assert one.conclude().verdicts() == expected


@pytest.mark.parametrize("order", ["total", "causal"])
def test_state_of_many_members(tmp_path: Path, order: str) -> None:
    """Of members that deliver in one order only how far each has come is kept; of others, every message and pair."""
    members, rounds = 40, 4
    events = [Event("r", member, 1, "control") for member in range(members)]
    for number in range(rounds):
        for member in range(members):
            step = 2 + number * (members + 1)
            events.append(Event("r", member, step, "send", member, number + 1))
            senders = range(members) if order == "total" else [(member + i) % members for i in range(members)]
            events += [Event("r", member, step + 1 + i, "deliver", s, number + 1) for i, s in enumerate(senders)]
    one = watcher(tmp_path)
    one.batch([str(write(events, tmp_path / "live" / "all.parquet"))])
    assert one.sum.verdicts()["total"] == ("holds" if order == "total" else "violated")
    assert compare(one.conclude(), events)["inexact"] == 0
    (job,) = (tmp_path / "watch" / "state").iterdir()
    run = load(job)
    assert len(run.pairs) == (
        0 if order == "total" else members - 1
    )  # the first to deliver is the one they differ from
    assert not run.cells.any() or order == "causal"


def test_lag_is_what_was_sent_and_is_not_stable(tmp_path: Path) -> None:
    run = simulate(from_table({"members": 3, "messages": 20, "ordering": "co"}), 2)
    events = [event for event in in_run(run.events, "r") if event.time_ns < 100_000_000]
    one = watcher(tmp_path)
    one.batch([str(write(events, tmp_path / "live" / "a.parquet"))])
    marks: dict[tuple[int, int], int] = defaultdict(int)
    for event in events:
        if event.event == "stable":
            marks[event.member, event.sender] = max(marks[event.member, event.sender], event.seq)
    sends = [e for e in events if e.event == "send" and e.seq > min(marks[q, e.sender] for q in range(3))]
    assert one.sum.lag is not None
    assert one.sum.lag.unstable == len(sends) > 0
    newest = max(event.time_ns for event in events)
    assert one.sum.lag.oldest_ns == newest - min(event.time_ns for event in sends)


def swapped_files(folder: Path, count: int = 10) -> list[Path]:
    """A live group's files with fifo, causal and total violations in them, each newer than the one before."""
    events = in_run(sample(8, shape=Shape(members=3, messages=120, order="total", ends=True)).events, "r")
    rng = random.Random(8)
    logs: dict[int, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.step):
        logs[event.member].append(event)
    broken = []
    for log in logs.values():
        steps = [event.step for event in log]
        for _ in range(6):
            i = rng.randrange(len(log) - 3)
            log[i], log[i + 2] = log[i + 2], log[i]
        broken += [
            Event(**{**{f: getattr(e, f) for f in e.__struct_fields__}, "step": step})
            for e, step in zip(log, steps, strict=True)
        ]
    files = []
    for number, part in enumerate(pieces(broken, rng, count)):
        file = write(part, folder / f"{number}.parquet")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
        files.append(file)
    return files


def alarms(checkpoint: Path) -> list[tuple[Any, ...]]:
    found = [msgspec.structs.astuple(row) for row in read_alarms(checkpoint)]
    return sorted(found)


def test_a_batch_done_twice_raises_its_alarms_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = swapped_files(tmp_path / "files")
    whole = watcher(tmp_path / "whole")
    for file in files:
        whole.batch([str(file)])
    one = watcher(tmp_path / "broken")
    real = directory_watch.write_whole
    for number, file in enumerate(files):
        if number % 3 == 1:  # all is written but the commit
            monkeypatch.setattr(directory_watch, "write_whole", lambda *_: (_ for _ in ()).throw(OSError("killed")))
            with pytest.raises(OSError, match="killed"):
                one.batch([str(file)])
            monkeypatch.setattr(directory_watch, "write_whole", real)
            one = watcher(tmp_path / "broken")
        one.batch([str(file)])
    assert alarms(tmp_path / "broken" / "watch") == alarms(tmp_path / "whole" / "watch")
    assert len(alarms(tmp_path / "whole" / "watch")) == whole.sum.alarms > 5
    assert one.conclude().verdicts() == whole.conclude().verdicts()


def test_what_a_batch_left_that_was_cut_off_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart the batch of the same number may have other files: its alarms are those of these files alone."""
    files = swapped_files(tmp_path / "live", count=2)
    one = watcher(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(directory_watch, "write_whole", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            one.batch([str(file) for file in files])
    assert list((tmp_path / "watch" / "alarms").glob("*.parquet"))
    one = watcher(tmp_path)
    write(sample(3).events, tmp_path / "other" / "sound.parquet")
    one.batch([str(tmp_path / "other" / "sound.parquet")])
    assert (alarms(tmp_path / "watch"), one.sum.alarms) == ([], 0)
    one.run(once=True)
    assert len(alarms(tmp_path / "watch")) == one.sum.alarms > 0


def test_files_of_any_age_are_read_once(tmp_path: Path) -> None:
    """A copy that keeps times (rsync -t) brings files older than any that were read; a new time alone is no news."""
    events = sample(5).events
    one = watcher(tmp_path)
    write([event for event in events if event.member == 1], tmp_path / "live" / "new.parquet")
    one.run(once=True)
    old = write([event for event in events if event.member != 1], tmp_path / "live" / "old.parquet")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    one.run(once=True)
    assert one.sum.events + one.sum.waiting == len(events)
    os.utime(old)
    one.run(once=True)
    one = watcher(tmp_path)
    one.run(once=True)
    assert (one.sum.files, one.sum.quarantined) == (2, {})


@pytest.mark.parametrize("broken", [b"PAR1", b"", b"PAR1" + b"x" * 5000])
def test_a_file_that_cannot_be_read_stops_nobody(tmp_path: Path, broken: bytes) -> None:
    """Nothing can be said to hold without it; replaced by a good one under its name, it is read."""
    events = sample(6).events
    last = max(event.member for event in events)
    one = watcher(tmp_path)
    one.roster = {event.run: sorted({event.member for event in events}) for event in events}
    write([event for event in events if event.member != last], tmp_path / "live" / "good.parquet")
    bad = tmp_path / "live" / "bad.parquet"
    bad.write_bytes(broken)
    one.run(once=True)
    assert list(one.sum.missing) == [str(bad)]
    assert one.sum.events > 0
    assert set(one.conclude().verdicts().values()) == {"unknown"}
    write([event for event in events if event.member == last], bad)
    one = watcher(tmp_path)
    one.run(once=True)
    assert one.sum.missing == {}
    assert "holds" in one.conclude().verdicts().values()
    compare(one.conclude(), events)


def test_a_link_to_a_folder_is_watched(tmp_path: Path) -> None:
    events = sample(7).events
    one = watcher(tmp_path)
    write(events, tmp_path / "disk" / "events.parquet")
    (tmp_path / "live" / "member").symlink_to(tmp_path / "disk")
    (tmp_path / "live" / "lost").symlink_to(tmp_path / "nowhere")
    one.run(once=True)
    assert one.sum.events == len(events)
    assert set(one.conclude().verdicts().values()) == {"unknown"}  # who knows what is behind the other link
    (tmp_path / "live" / "lost").unlink()
    one.run(once=True)
    assert "holds" in one.conclude().verdicts().values()


@pytest.mark.slow
def test_kill_9_and_restart(tmp_path: Path, spark_session: Session) -> None:
    live = tmp_path / "live"
    files = swapped_files(live)
    command = [sys.executable, "-m", "antiphon.cli", "watch", str(live), "--checkpoint", str(tmp_path / "killed")]
    command += ["--once", "--files", "1", "--master", "local[2]"]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "commits" / "0000000002.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / "killed" / "commits" / "0000000002.json").exists()
    assert not (tmp_path / "killed" / "commits" / f"{len(files) - 1:010}.json").exists(), "killed in the middle"
    assert main(["watch", str(live), "--checkpoint", str(tmp_path / "killed"), "--once", "--files", "1"]) == 1
    whole = watcher(tmp_path / "whole")
    whole.roster = {"r": [1, 2, 3]}
    for file in files:
        whole.batch([str(file)])
    assert alarms(tmp_path / "killed") == alarms(tmp_path / "whole" / "watch")


def test_watch_equals_check_on_spark(
    spark_session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, ordering in enumerate(["fifo", "co", "abcast"]):
        run = simulate(
            from_table({"members": 3, "messages": 10, "ordering": ordering, "network": {"loss": 0.1}}), number
        )
        write(in_run(run.events, ordering), tmp_path / "live" / ordering / "events.parquet")
    swapped_files(tmp_path / "live" / "broken", 1)
    results = []
    for command in (["watch", "--once"], ["check"]):
        assert main([command[0], str(tmp_path / "live"), *command[1:], "--json"]) == 1
        results.append(json.loads(capsys.readouterr().out)["guarantees"])
    for name in GUARANTEES:
        for key in ("verdict", "examined", "violations"):
            assert results[0][name][key] == results[1][name][key], (name, key)
    assert {name for name in GUARANTEES if results[0][name]["verdict"] == "violated"} == {"fifo", "causal", "total"}


def test_members_still_writing(spark_session: Session, tmp_path: Path) -> None:
    """A live query over what rolling writers write; it ends when all logs have ended."""
    run = simulate(from_table({"members": 3, "messages": 30, "ordering": "abcast"}), 5)
    live = tmp_path / "live"
    live.mkdir()
    told: list[WatchCommit] = []
    one = DirectoryWatch(spark_session, str(live), str(tmp_path / "watch"), lambda now, *_: told.append(now))
    deadline = time.monotonic() + 90

    def play() -> None:
        writers = [RollingWriter(live, run.name, log.member, rows_max=150) for log in run.logs]
        for event in sorted(run.events, key=lambda event: event.time_ns):
            writers[event.member].record(event.time_ns, event.event, event.sender, event.seq, event.bytes, event.detail)
        for writer in writers:
            writer.close()

    thread = threading.Thread(target=play)
    thread.start()
    one.run(once=False, go_on=lambda: one.sum.events < len(run.events) and time.monotonic() < deadline)
    thread.join()
    assert one.sum.events == len(run.events)
    assert one.sum.waiting == 0
    assert compare(one.sum, run.events)["holds"] >= 3


def test_rolling_writer(tmp_path: Path) -> None:
    now = [0.0]
    with RollingWriter(tmp_path, "r", 7, rows_max=4, seconds_max=2.0, clock=lambda: now[0]) as log:
        log.install(5, 1, [7, 8])
        for seq in range(1, 5):
            log.record(10 * seq, "send", 7, seq, 80, None)
        now[0] = 3.0
        log.tick()
        log.tick()
        log.record(99, "end", None, None, None, None)
    rows = [row for file in sorted(tmp_path.iterdir()) for row in pq.ParquetFile(file).read().to_pylist()]
    assert [row["step"] for row in rows] == list(range(1, 7))
    assert [pq.ParquetFile(file).metadata.num_rows for file in sorted(tmp_path.iterdir())] == [4, 1, 1]
    assert rows[0]["members"] == [7, 8]
    assert {row["view"] for row in rows} == {1}


def test_rows_that_cannot_be_judged_are_counted(tmp_path: Path) -> None:
    good = [Event("r", 1, 1, "send", 1, 1), Event("r", 1, 2, "deliver", 1, 1), Event("r", 2, 1, "deliver", 1, 1)]
    one = watcher(tmp_path)
    one.batch([str(write(good, tmp_path / "live" / "a.parquet"))])
    assert one.sum.verdicts()["integrity"] == "holds"
    one.batch([str(write([Event("r", 2, 1, "deliver", 1, 1)], tmp_path / "live" / "b.parquet"))])  # an old step
    one.batch([str(write([Event("r", 2, 9, "deliver", None, 1)], tmp_path / "live" / "c.parquet"))])  # no sender
    assert one.sum.quarantined == {"deliver": 2}
    assert set(one.sum.verdicts().values()) == {"unknown"}
    assert len(list((tmp_path / "watch" / "quarantine").glob("*.parquet"))) == 1


def test_unsent_deliveries_wait_until_the_sender_has_ended(tmp_path: Path) -> None:
    one = watcher(tmp_path)
    events = [Event("r", 2, 1, "deliver", 1, 1), Event("r", 1, 1, "control"), Event("r", 2, 2, "deliver", 1, 2)]
    one.batch([str(write(events, tmp_path / "live" / "a.parquet"))])
    assert (one.sum.waiting, one.sum.waits_for, one.sum.alarms) == (2, 1, 0)
    one.batch([str(write([Event("r", 1, 2, "send", 1, 1)], tmp_path / "live" / "b.parquet"))])
    assert (one.sum.waiting, one.sum.alarms) == (1, 0)
    one.batch([str(write([Event("r", 1, 3, "end")], tmp_path / "live" / "c.parquet"))])
    assert (one.sum.waiting, one.sum.alarms) == (0, 2)  # the other: it does not deliver what it sent
    assert one.sum.findings["integrity"].violations == 1


def test_a_send_that_was_lost_does_not_stop_the_watch(tmp_path: Path) -> None:
    """A killed member's last rows never reach its log; after a while the others are judged without them."""
    one = watcher(tmp_path, patience_s=1.0)
    second = 1_000_000_000
    lost = [
        Event("r", 1, 1, "send", 1, 1, 0),
        Event("r", 2, 1, "deliver", 1, 2, second // 2),
        Event("r", 2, 2, "send", 2, 1, second),
    ]
    one.batch([str(write(lost, tmp_path / "live" / "a.parquet"))])
    assert (one.sum.waiting, one.sum.waits_for) == (2, 1)
    one.batch([str(write([Event("r", 2, 3, "deliver", 2, 1, 2 * second)], tmp_path / "live" / "b.parquet"))])
    assert (one.sum.waiting, one.sum.alarms) == (0, 0)
    assert one.sum.verdicts()["integrity"] == "unknown"
    assert one.conclude().verdicts()["integrity"] == "violated"  # as a check says of a log that seems complete
    one.batch([str(write([Event("r", 1, 2, "send", 1, 2, 0)], tmp_path / "live" / "c.parquet"))])
    assert one.conclude().verdicts()["integrity"] == "holds"
    assert one.conclude().findings["causal"].inexact


def test_falling_behind_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from antiphon.commands.watch import _BatchReporter

    tell = _BatchReporter(SimpleNamespace(json=False, once=False))
    for waiting in (0, 5, 9, 4, 6, 8):
        tell(WatchCommit(), [], 1.0, waiting)
        assert "falling behind" not in capsys.readouterr().err
    tell(WatchCommit(), [], 1.0, 20)
    assert "20 files wait" in capsys.readouterr().err


def test_unusable_input(spark_session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "nowhere"), "--once"]) == 2
    assert "no such directory" in capsys.readouterr().err
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "a.parquet").write_text("nonsense")
    assert main(["watch", str(tmp_path / "live"), "--once"]) == 2  # there is nothing else
    assert "a.parquet: not a Parquet file" in capsys.readouterr().err
    write(sample(5).events, tmp_path / "live" / "b.parquet")
    assert main(["watch", str(tmp_path / "live"), "--once", "--json"]) == 3
    assert list(json.loads(capsys.readouterr().out)["missing"]) == [str(tmp_path / "live" / "a.parquet")]


def test_an_empty_directory_decides_nothing(spark_session: Session, tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    assert main(["watch", str(tmp_path / "live"), "--once", "--json"]) == 3


def test_a_run_json_that_comes_later_is_seen(tmp_path: Path) -> None:
    one = watcher(tmp_path)
    files = swapped_files(tmp_path / "live")
    one.batch([str(files[0])])
    assert one.sum.promises is None
    (tmp_path / "live" / "run.json").write_text('{"promises": ["fifo"]}')
    one.batch([str(files[1])])
    assert one.sum.promises == ["fifo"]


@pytest.mark.parametrize(
    ("settings", "violated"),
    [
        ({}, {"validity"}),  # who dies without a word delivers not all that it sent
        ({"silent": 0.5, "wrong": 0.02}, {"integrity", "validity", "agreement", "total"}),
        ({"silent": 0.5, "lose_sends": True}, {"integrity", "validity"}),
        ({"silent": 0.5, "same_id": True}, {"agreement", "causal", "view-synchrony"}),
    ],
)
def test_state_is_flat_under_restarts(tmp_path: Path, settings: dict[str, Any], violated: set[str]) -> None:
    """Members die and come back for ever: what is kept does not grow, and the verdicts are those of the whole trace."""
    group = Churn(members=4, **settings)
    one = watcher(tmp_path, patience_s=1.0)
    events: list[Event] = []
    sizes, members = [], []
    for number in range(30):
        part = [event for rows in group.views(10) for event in rows]
        events += part
        one.batch([str(write(part, tmp_path / "live" / f"{number}.parquet"))])
        state = max((tmp_path / "watch" / "state").iterdir())
        sizes.append(state.stat().st_size)
        members.append(len(load(state).ids))
    assert group.deaths == 300
    assert max(members) < 64 + 4 + 60
    assert max(sizes[15:]) < 1.5 * max(sizes[10:15])
    final = one.conclude()
    assert compare(final, events)["inexact"] == 0
    assert {name for name, verdict in final.verdicts().items() if verdict == "violated"} == violated


def test_who_comes_back_after_it_was_let_go_leaves_everything_open(tmp_path: Path) -> None:
    group = Churn(members=3, silent=0.0)
    one = watcher(tmp_path, patience_s=1.0)
    for number in range(20):
        part = [event for rows in group.views(10) for event in rows]
        one.batch([str(write(part, tmp_path / "live" / f"{number}.parquet"))])
    assert set(one.sum.verdicts().values()) == {"holds"}
    late = [Event("churn", 1, 10_000, "deliver", 1, 1, group.now)]
    one.batch([str(write(late, tmp_path / "live" / "late.parquet"))])
    assert set(one.sum.verdicts().values()) == {"unknown"}


def test_numbers_with_gaps_take_no_more_room_for_ever(tmp_path: Path) -> None:
    """Who numbers its messages 2, 4, 6 has as many spans as messages; of the oldest only the range is kept."""
    one = watcher(tmp_path)
    for number in range(10):
        part = []
        for seq in range(2 + 80 * number, 2 + 80 * (number + 1), 2):
            part += [
                Event("r", 1, 2 * seq, "send", 1, seq, seq),
                *(Event("r", member, 2 * seq + 1, "deliver", 1, seq, seq) for member in (1, 2)),
            ]
        one.batch([str(write(part, tmp_path / "live" / f"{number}.parquet"))])
    assert len(load(max((tmp_path / "watch" / "state").iterdir())).retired) == 64
    assert one.sum.verdicts()["integrity"] == "holds"
    one.batch([str(write([Event("r", 1, 9_001, "send", 1, 3)], tmp_path / "live" / "old.parquet"))])
    assert one.sum.verdicts()["integrity"] == "unknown"  # nobody knows whether 3 was used
    one.batch([str(write([Event("r", 2, 9_002, "deliver", 1, 798)], tmp_path / "live" / "again.parquet"))])
    assert one.sum.verdicts()["integrity"] == "violated"


def test_a_backlog_of_restarts_is_read_in_bounded_state(tmp_path: Path) -> None:
    """More files wait than a batch takes: nobody is asked for who all the members will be."""
    group = Churn(members=3, silent=0.0)
    for number, rows in enumerate(group.views(150)):
        file = write(rows, tmp_path / "live" / f"{number}.parquet")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    one = watcher(tmp_path, patience_s=1.0, files_max=30)
    one.run(once=True)
    assert one.roster == {}
    assert len(load(max((tmp_path / "watch" / "state").iterdir())).ids) < 64 + 3 + 60
    assert one.conclude().verdicts() == dict.fromkeys(GUARANTEES, "holds")


def test_the_ledger_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files come and are deleted for years: of those that are gone only the last are remembered, in few files."""
    monkeypatch.setattr(seen_files, "VANISHED_MAX", 3)
    monkeypatch.setattr(seen_files, "PARTS_MAX", 4)
    one = watcher(tmp_path)
    for number in range(20):
        rows = [
            Event("r", 1, 2 * number, "send", 1, number + 1),
            Event("r", 1, 2 * number + 1, "deliver", 1, number + 1),
        ]
        file = write(rows, tmp_path / "live" / f"{number}.parquet")
        one.run(once=True)
        content = file.read_bytes()
        file.unlink()
    ledger = sorted((tmp_path / "watch" / "files").iterdir())
    assert len(ledger) <= 5
    one = watcher(tmp_path)
    file.write_bytes(content)  # the last one is still known
    one.run(once=True)
    assert (one.sum.files, one.sum.events, one.sum.quarantined) == (20, 40, {})
    one = watcher(tmp_path)
    [whole] = (tmp_path / "watch" / "files").iterdir()
    assert len(json.loads(whole.read_bytes())) <= 3 + 4  # and not 20


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Event("r", 1, 1, "send", 1, 1), Event("r", 1, 2, "deliver", 1, 1)]
    file = write(rows[:1], tmp_path / "live" / "a.parquet")
    real = read_log.read_batches

    def replaced(*args: Any, **options: Any) -> Any:
        found = list(real(*args, **options))
        write(rows, file)
        monkeypatch.setattr(read_log, "read_batches", real)
        return found

    monkeypatch.setattr(read_log, "read_batches", replaced)
    one = watcher(tmp_path)
    one.run(once=True)
    assert (one.sum.files, one.sum.events, one.sum.quarantined) == (1, 2, {})


def test_a_stream_is_watched(spark_session: Session, tmp_path: Path) -> None:
    """Whatever Spark can read as a stream: started anew it goes on, and a micro-batch that comes twice counts once."""
    group = Churn(members=3, wrong=0.05, seed=3)
    events: list[Event] = []
    for number in range(2):
        part = [event for rows in group.views(6) for event in rows]
        events += part
        write(part, tmp_path / "live" / f"{number}.parquet")
        schema = spark_session.spark.read.parquet(str(tmp_path / "live")).schema
        stream = spark_session.spark.readStream.schema(schema).parquet(str(tmp_path / "live"))
        stream = stream.withColumnRenamed("member", "node")
        watched = pipeline.watch_stream(
            stream, tmp_path / "watch", mapping={"columns": {"member": "node"}}, trigger={"availableNow": True}
        )
        assert watched.query.awaitTermination(120)
        assert watched.found.events + watched.found.waiting == len(events)
    noted = tmp_path / "watch" / "stream" / "commits"
    for file in (noted / "1", noted / ".1.crc"):  # as if Spark had been killed before it could note what it had done
        file.unlink()
    watched = pipeline.watch_stream(
        stream, tmp_path / "watch", mapping={"columns": {"member": "node"}}, trigger={"availableNow": True}
    )
    assert watched.query.awaitTermination(120)
    final = watched.stop()
    assert compare(final, events)["inexact"] == 0
    assert len(watched.alarms()) == final.alarms > 0
    assert final.quarantined == {}
    with pytest.raises(UsageError, match="takes a stream"):
        pipeline.watch_stream(spark_session.spark.read.parquet(str(tmp_path / "live")), tmp_path / "other")


def test_who_has_gone_quiet_is_named(tmp_path: Path) -> None:
    """Its clock may be wrong: quiet is who writes no more rows, not whose rows look old."""
    second = 1_000_000_000
    one = watcher(tmp_path, patience_s=5.0)
    for number in range(10):
        rows = [Event("r", 1, number, "control", time_ns=number * 2 * second)]
        rows.append(Event("r", 2, number, "control", time_ns=-number * second))  # a clock that goes backwards
        if number < 3:
            rows.append(Event("r", 3, number, "control", time_ns=number * 2 * second))
        one.batch([str(write(rows, tmp_path / "live" / f"{number}.parquet"))])
        quiet = one.sum.quiet
        assert quiet == (None if number < 5 else QuietMember("r", 3, (number - 2) * 2 * second))


def test_how_far_reading_is_behind_in_events_and_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is deleted, read or not, counts no more; how old a file looks does not matter."""
    moment = [100.0]
    monkeypatch.setattr(seen_files.time, "monotonic", lambda: moment[0])
    one = watcher(tmp_path, files_max=2)

    def add(number: int) -> Path:
        rows = [Event("r", 1, 10 * number + i, "send", 1, 10 * number + i + 1, i) for i in range(10)]
        file = write(rows, tmp_path / "live" / f"{number}.parquet")
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
        return file

    files = [add(number) for number in range(6)]
    waiting = one.files.unread()
    moment[0] += 7
    one.batch(waiting[:2])
    assert one.sum.behind is not None
    assert (one.sum.behind.files, one.sum.behind.seconds) == (4, 7.0)
    assert 35 <= one.sum.behind.events <= 45
    for file in (files[0], files[1], files[4], files[5]):
        file.unlink()
    moment[0] += 3
    waiting = one.files.unread()
    add(9)
    waiting = one.files.unread()
    one.batch(waiting[:2])
    assert one.sum.behind is not None
    assert (one.sum.behind.files, one.sum.behind.seconds) == (1, 0.0)
    one.run(once=True)
    assert one.sum.behind is None


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    watcher(tmp_path)
    (tmp_path / "watch" / "format").write_text("1")
    with pytest.raises(UsageError, match="made by another version of antiphon; choose another --checkpoint"):
        watcher(tmp_path)


def test_two_watches_on_one_checkpoint(tmp_path: Path) -> None:
    """The second to commit is told so, before it has changed what counts."""
    one, other = watcher(tmp_path), watcher(tmp_path)
    file = str(write([Event("r", 1, 1, "send", 1, 1)], tmp_path / "live" / "a.parquet"))
    one.batch([file])
    with pytest.raises(UsageError, match="another watch works with this checkpoint"):
        other.batch([file])
    assert watcher(tmp_path).sum.events == 1
