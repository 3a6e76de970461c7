"""The command line as a user meets it: exit codes, one line for a mistake, JSON by contract."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiphon.cli import COMMANDS, main


def antiphon(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "antiphon.cli", *words], capture_output=True, text=True, timeout=120)


def test_help_answers_at_once_and_names_every_command() -> None:
    start = time.process_time()
    began = time.monotonic()
    result = antiphon("--help")
    assert result.returncode == 0
    assert time.monotonic() - began < 5  # a loaded machine; the user's half second is in the next line
    assert time.process_time() - start < 0.5
    assert all(name in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = antiphon(command, "--help")
    assert result.returncode == 0
    assert f"antiphon {command}" in result.stdout.split("options:")[-1], "an example"
    assert "exit codes" in result.stdout
    assert "--json" in result.stdout


def test_simulate_says_what_the_contract_asks_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "simulate",
        "--members",
        "3",
        "--ordering",
        "fifo",
        "--messages",
        "20",
        "--loss",
        "0.1",
        "--seed",
        "7",
        "--json",
        "--out",
    ]
    assert main([*words, str(tmp_path / "run")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["trace"] == str(tmp_path / "run")
    assert (said["seed"], said["members"], said["sent"], said["delivered"]) == (7, 3, 60, 180)
    assert {"run", "events", "retransmissions", "ended_ns", "stats"} <= said.keys()
    import pyarrow.parquet as pq

    from antiphon.trace.schema import COLUMNS

    table = pq.read_table(tmp_path / "run" / "events.parquet")
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == said["events"]
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["ordering"] == "fifo"
    assert about["seed"] == 7
    assert about["clock"] == "global"
    assert "fifo" in about["promises"]


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["simulate", "--messages", "10", "--seed", "3", "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a/events.parquet").read_bytes() == (tmp_path / "b/events.parquet").read_bytes()


def test_a_scenario_file_and_flags_over_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text('members = 4\nmessages = 5\nordering = "fifo"\n[network]\nloss = 0.2\n')
    assert main(["simulate", str(path), "--members", "3", "--set", "workload.payload=10", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["members"], said["sent"]) == (3, 15)


def test_the_lan_model_gives_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate --network lan --tree 2,5,1 --stability tree-train --rounds 2 --json"
    assert main(words.split()) == 0
    rounds = json.loads(capsys.readouterr().out)["rounds"]
    assert [(one["rtt_ns"], one["hops"], one["queue_max"]) for one in rounds] == [(15_882_450, 153, 1)] * 2


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        ("simulate --ordering nonsense", "ordering"),
        ("simulate --stability nonsense", "stability"),
        ("simulate --window 0", "window"),
        ("simulate --loss 1", "loss"),
        ("simulate --loss much", "--loss"),
        ("simulate --latency soon", "latency"),
        ("simulate --members 0", "members"),
        ("simulate --set nonsense", "--set"),
        ("simulate --set network.colour=red", "colour"),
        ("simulate no-such-file.toml", "no-such-file.toml"),
        ("simulate --network lan", "--tree"),
        ("simulate --network lan --tree 0,5,1", "0"),
        ("simulate --network lan --tree no-such-file", "no-such-file"),
        ("simulate --frobnicate", "--frobnicate"),
        ("nonsense", "nonsense"),
        ("reproduce nonsense", "nonsense"),
    ],
)
def test_a_mistake_gives_one_line_that_names_it_and_exit_code_2(words: str, culprit: str) -> None:
    result = antiphon(*words.split())
    assert result.returncode == 2
    assert culprit in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr


def test_a_trace_is_not_overwritten_unless_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--messages", "1", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_a_run_that_cannot_finish_is_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "crash.toml"
    path.write_text('members = 3\nmessages = 20\nlimit = "2s"\n[[faults]]\nkind = "crash"\nmember = 1\nat = "20ms"\n')
    assert main(["simulate", str(path)]) == 3
    assert "still held" in capsys.readouterr().err


def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = antiphon("simulate", "--messages", "1", "--out", str(blocked / "run"))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
