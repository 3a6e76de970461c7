"""`antiphon check` as its users see it: what it prints, its exit codes, and one line for whatever is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.cli import main
from antiphon.pipeline import session as session_module
from antiphon.pipeline.interrupts import Interrupts
from antiphon.pipeline.session import Session, open_session
from antiphon.trace import naive
from antiphon.trace.event import Event
from pipeline.traces import in_run, write
from support.planting import sample

REAL = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture
def check(spark_session: Session, capfd: pytest.CaptureFixture[str]):
    """Run the command on the session that is there; returns (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(["check", *map(str, arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


def test_json_has_the_contract_form(check, tmp_path: Path) -> None:
    events = [
        event
        for event in sample(2, "total").events
        if not (event.event == "deliver" and event.member == 1 and event.seq == 1)
    ]
    path = write(events, tmp_path / "t.parquet")
    code, out, err = check(path, "--json", "--witnesses", "1")
    assert err == ""
    result = json.loads(out)
    expected = naive.check(events, witnesses=1)
    assert list(result) == ["trace", "runs", "members", "events", "quarantined", "guarantees"]
    assert result["trace"] == str(path)
    assert (result["runs"], result["events"], result["quarantined"]) == (1, len(events), 0)
    assert list(result["guarantees"]) == list(naive.GUARANTEES)
    for name, found in result["guarantees"].items():
        assert list(found) == ["verdict", "promised", "examined", "violations", "witnesses"]
        assert found["violations"] == expected[name].violations
        assert found["promised"] is False
    [witness] = next(found["witnesses"] for found in result["guarantees"].values() if found["witnesses"])
    assert list(witness) == ["run", "member", "events", "why"]
    assert list(witness["events"][0])[:4] == ["step", "event", "sender", "seq"]
    assert code == 1


def test_table(check) -> None:
    code, out, err = check(REAL / "nats-core", "--witnesses", "1")
    assert (code, err) == (1, "")
    assert re.search(r"^total +violated ", out, re.MULTILINE)
    assert "member 1 delivers message 332 of member 4 before message 305 of member 3" in out


@pytest.mark.parametrize(
    ("run_json", "guarantees", "code"),
    [
        (None, [], 1),  # no promise: what is known decides, and total order is violated
        (None, ["--guarantee", "fifo"], 0),
        (None, ["--guarantee", "fifo", "--guarantee", "stability"], 3),
        (None, ["--guarantee", "total", "--guarantee", "stability"], 1),
        ({"ordering": "causal"}, [], 3),  # which tells what is stable, and here nobody does
        ({"promises": ["fifo", "causal"]}, [], 0),
        ({"ordering": "causal", "stability": "train"}, [], 3),
        ({"ordering": "abcast"}, [], 1),
        ({"ordering": "abcast"}, ["--guarantee", "causal"], 0),
        ({"seed": 5}, [], 1),  # promises nothing either
    ],
)
def test_exit_codes(
    check, tmp_path: Path, run_json: dict[str, object] | None, guarantees: list[str], code: int
) -> None:
    shutil.copy(REAL / "nats-core" / "events.parquet", tmp_path)
    if run_json is not None:
        (tmp_path / "run.json").write_text(json.dumps(run_json))
    found, out, _ = check(tmp_path, "--json", *guarantees)
    assert found == code
    result = json.loads(out)["guarantees"]
    if run_json and run_json.get("ordering") == "causal":
        promised = {name for name in result if result[name]["promised"]}
        assert {"integrity", "validity", "agreement", "fifo", "causal"} <= promised
        assert "total" not in promised
    if guarantees:
        assert len(result) == len(guarantees) // 2


def one_line(err: str) -> str:
    assert err.startswith("antiphon check: ")
    assert err.count("\n") == 1
    return err


def test_unusable_inputs(check, tmp_path: Path) -> None:
    code, _, err = check(tmp_path / "nowhere")
    assert (code, "nowhere" in one_line(err)) == (2, True)
    (tmp_path / "empty").mkdir()
    code, out, err = check(tmp_path / "empty", "--json")
    assert (code, "no events" in one_line(err)) == (2, True)
    assert "no events" in json.loads(out)["error"]
    (tmp_path / "text.parquet").write_text("not parquet at all")
    code, _, err = check(tmp_path / "text.parquet")
    assert (code, "not a Parquet file" in one_line(err)) == (2, True)
    columns = {"run": ["r"], "member": [1], "step": [1], "event": ["send"], "sender": [1], "seq": [1]}
    pq.write_table(pa.table(columns | {"member": [[1]]}), tmp_path / "type.parquet")
    code, _, err = check(tmp_path / "type.parquet")
    assert (code, "'member' is list<element: int64>, expected int32" in one_line(err)) == (2, True)
    del columns["seq"]
    for member, why in (
        (1, "'seq' is missing"),
        ("one", "a send without the message's id: it has none of the keys seq"),
    ):
        pq.write_table(pa.table(columns | {"member": [member]}), tmp_path / "lacks.parquet")
        code, _, err = check(tmp_path / "lacks.parquet")
        assert (code, why in one_line(err)) == (2, True)
    code, _, err = check(REAL / "nats-core", "--conf", "nonsense")
    assert (code, "KEY=VALUE" in one_line(err)) == (2, True)
    (tmp_path / "bad").mkdir()
    shutil.copy(REAL / "nats-core" / "events.parquet", tmp_path / "bad")
    (tmp_path / "bad" / "run.json").write_text("{")
    code, _, err = check(tmp_path / "bad")
    assert (code, "not JSON" in one_line(err)) == (2, True)


def test_truncated_parquet(check, tmp_path: Path) -> None:
    whole = (REAL / "nats-core" / "events.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[: len(whole) // 2])
    code, _, err = check(tmp_path / "t.parquet")
    assert (code, "not a Parquet file" in one_line(err)) == (2, True)
    damaged = bytearray(whole)
    damaged[1000:-4000] = random.Random(1).randbytes(len(whole) - 5000)
    (tmp_path / "t.parquet").write_bytes(damaged)
    code, _, err = check(tmp_path / "t.parquet")
    assert (code, "t.parquet: cannot be read to its end" in one_line(err)) == (2, True)


def test_output_is_whole_or_absent(check, tmp_path: Path) -> None:
    events = sample(2, "total").events
    rows = [*events, Event("planted", 1, 10**6, "deliver", 1, 0)]
    path = write(rows, tmp_path / "t.parquet")
    out = tmp_path / "deep" / "out"
    for _ in range(2):  # a second time it takes the place of the first
        code, printed, _ = check(path, "--out", out, "--json")
        assert code == 3  # a delivery that cannot be read leaves everything open
        assert json.loads((out / "check.json").read_text()) == json.loads(printed)
        assert json.loads(printed)["quarantined"] == 1
        [part] = (out / "quarantine").iterdir()
        assert "seq" in pq.read_table(part)["reason"][0].as_py()
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "notes.txt").write_text("keep me")
    code, _, err = check(path, "--out", other)
    assert (code, "choose another --out" in one_line(err)) == (2, True)
    assert (other / "notes.txt").read_text() == "keep me"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "antiphon.cli", "check", *map(str, arguments)]


@pytest.mark.slow
@pytest.mark.spark
def test_interrupted(tmp_path: Path) -> None:
    trace = write(
        [event for seed in range(300) for event in in_run(sample(seed).events, str(seed))], tmp_path / "t.parquet"
    )
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(trace, "--out", out, "--master", "local[1]"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while process.poll() is None and not list(tmp_path.glob(".antiphon-*/layout")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    printed, err = process.communicate(timeout=120)
    assert (process.returncode, printed, err) == (130, "", "antiphon check: interrupted\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]


SWEEP = """
seeds = 40
scenario = {members = 3, messages = 20}
"""
ON_FULL_DISK = """
import json, sys
from pathlib import Path
from antiphon.cli import main
from antiphon.pipeline.session import open_session

trace, sweep, disk = sys.argv[1:]
session = open_session("local[1]")
for arguments in (
    ["check", trace, "--out", f"{disk}/check"],
    ["measure", trace, "--out", f"{disk}/measure"],
    ["sweep", sweep, "--out", f"{disk}/sweep"],
    ["watch", trace, "--once", "--checkpoint", f"{disk}/watch"],
):
    print(arguments[0], main(arguments), flush=True)
session.stop()
left = [path.relative_to(disk) for path in Path(disk).iterdir()]
print(sorted(map(str, left)), len(list(Path(disk, "watch/commits").iterdir())))
print(sum(1 for cell in Path(disk, "sweep/cells").iterdir() if json.loads(cell.read_text())["status"] == "done"))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_full_disk(tmp_path: Path) -> None:
    """One line and exit code 2; nothing is left that could be taken for a result but the cells that are whole."""
    disk = tmp_path / "disk"
    disk.mkdir()
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=100k tmpfs {disk}"
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("a small disk needs user namespaces")
    events = [event for seed in range(400) for event in in_run(sample(seed).events, str(seed))]
    write(reversed(events), tmp_path / "trace" / "t.parquet")
    (tmp_path / "sweep.toml").write_text(SWEEP)
    (tmp_path / "commands.py").write_text(ON_FULL_DISK)
    command = [sys.executable, *(str(tmp_path / name) for name in ("commands.py", "trace", "sweep.toml", "disk"))]
    script = f"{mount} && {' '.join(command)}"
    done = subprocess.run([*namespace, script], capture_output=True, text=True, timeout=240, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("antiphon ")]
    assert [line.split()[1] for line in lines] == ["check:", "measure:", "sweep:", "watch:"], done.stderr
    assert all("No space left" in line for line in lines)
    assert "Traceback" not in done.stderr
    *codes, left, cells = done.stdout.splitlines()
    assert codes == ["check 2", "measure 2", "sweep 2", "watch 2"]
    assert left == "['sweep', 'watch'] 0"  # no commit: the next watch begins again
    assert 0 < int(cells) < 40


@contextmanager
def interrupted_when(begun: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C as soon as `begun()` is true, and never after the block, where it would end the whole run of tests."""
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.01):
            if begun():
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(KeyboardInterrupt):  # it came when the work was over: the test's own assertions say so
            thread.join()


def test_a_session_is_joined_although_the_conversation_with_it_was_cut(spark_session: Session) -> None:
    """Ctrl-C in the middle of a call cuts it. To a new thread of the JVM no session is active; ours must not end it."""
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_session).result()
    assert not opened.owned
    assert opened.spark.sparkContext is spark_session.spark.sparkContext


def test_a_module_that_workers_lack_comes_with_a_remedy() -> None:
    """What Spark says where its workers run another Python, as they do in an environment that is not activated."""
    text = "Traceback (most recent call last):\n  File \"worker.py\"\nModuleNotFoundError: No module named 'antiphon'\n"
    said = str(session_module._culprit(text))
    assert said.startswith("a Spark task failed: ModuleNotFoundError: No module named 'antiphon'; set PYSPARK_PYTHON")
    assert sys.executable in said


def test_an_interrupt_that_python_drops_is_remembered() -> None:
    """An exception in a weak reference's callback is printed and forgotten: Py4J talks to the JVM in such callbacks."""

    class Thing:
        pass

    def callback(_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)

    def work() -> None:
        with Interrupts():
            thing = Thing()
            weakref.finalize(thing, callback, None)
            del thing

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_watch_ends_on_an_interrupt_with_the_verdicts_so_far(
    spark_session: Session, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As its page says; since interrupts are remembered it ended as interrupted, with nothing but that word."""
    write(in_run(sample(1, "total").events, "one"), tmp_path / "trace" / "one.parquet")
    words = ["watch", str(tmp_path / "trace"), "--checkpoint", str(tmp_path / "out"), "--json"]

    def idles() -> bool:
        return any(time.time() - commit.stat().st_mtime > 1 for commit in tmp_path.glob("out/commits/*.json"))

    with interrupted_when(idles):
        code = main(words)
    said = json.loads(capfd.readouterr().out)
    assert said["batches"] == 1
    assert said["events"] > 0
    assert said["guarantees"]["total"]["verdict"] == "holds"
    assert code == 0


@pytest.mark.parametrize("name", ["measure", "sweep", "watch"])
def test_interrupted_commands(
    spark_session: Session, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """Ctrl-C as soon as the command is at work: exit code 130, one line, nothing that looks finished."""
    if name == "sweep":
        (tmp_path / "sweep.toml").write_text(SWEEP.replace("40", "400"))
        arguments, begun = ["sweep", tmp_path / "sweep.toml"], "out/cells/*.json"
    else:
        for seed in range(40):
            write(in_run(sample(seed, "total").events, str(seed)), tmp_path / "trace" / f"{seed}.parquet")
        arguments, begun = ["measure", tmp_path / "trace"], ".antiphon-*/layout/*/*"
        if name == "watch":
            arguments, begun = ["watch", tmp_path / "trace", "--once", "--files", "1"], "out/commits/*.json"
    arguments += ["--checkpoint" if name == "watch" else "--out", tmp_path / "out"]

    with interrupted_when(lambda: list(tmp_path.glob(begun))):
        code = main([str(argument) for argument in arguments])
    captured = capfd.readouterr()
    assert (code, captured.out) == (130, "")  # no result, not half of one
    assert captured.err.splitlines()[-1] == f"antiphon {name}: interrupted"
    assert "Traceback" not in captured.err
    whole = {"measure": "out", "sweep": "out/results.parquet", "watch": "out/conclusion/*"}[name]
    assert not list(tmp_path.glob(whole))


def test_why_rows_were_put_aside_is_said(check, tmp_path: Path) -> None:
    """The console and the JSON say why, not only how many; a log of which nothing can be read is refused with that."""
    log = tmp_path / "log.csv"
    log.write_text("run,member,step,event,sender,seq\nr,1,1,send,1,6f1c\nr,1,2,deliver,1,6f1c\nr,a,1,deliver,1,1\n")
    code, out, err = check(log)
    assert (code, out) == (2, "")
    assert "no row can be read as an event; 2 rows: seq is null, no number or below 1" in err
    assert "1 row: member is null or no 32-bit number" in err
    with log.open("a") as more:
        more.write("r,1,3,send,1,1\n")
    code, out, _ = check(log)
    assert code == 3
    assert "2 rows: seq is null, no number or below 1" in out
    assert "1 row: member is null or no 32-bit number" in out
    _, out, _ = check(log, "--json")
    reasons = json.loads(out)["quarantine_reasons"]
    assert list(reasons.values()) == [2, 1]


def test_an_interrupt_cancels_our_own_jobs_alone(spark_session: Session, tmp_path: Path) -> None:
    """In a session that was joined others may be at work: what they started goes on."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"

    def slowly(batches: Any) -> Any:
        theirs.touch()
        time.sleep(8)
        yield from batches

    def for_ever(_: int) -> bytes:
        ours.touch()
        time.sleep(60)
        return b""

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(lambda: spark_session.spark.range(0, 1, 1, 1).mapInArrow(slowly, "id long").collect())
        with interrupted_when(lambda: theirs.exists() and ours.exists()), pytest.raises(KeyboardInterrupt):
            spark_session.each(1, for_ever, "slow")
        assert [row.id for row in others.result(60)] == [0]
