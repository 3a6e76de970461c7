"""The command line as a user meets it: exit codes, one line for a mistake, JSON by contract."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from antiphon import __version__ as antiphon_version
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


def test_datagrams_that_receivers_had_no_room_for_are_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate --members 10 --messages 1 --interval 0 --receive-buffer 4 --service 2ms"
    assert main(words.split()) == 0
    assert re.search(r"datagrams +\d+, 0 lost, \d+ overrun\n", capsys.readouterr().out)


def test_the_lan_model_gives_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate --network lan --tree 2,5,1 --stability tree-train --rounds 2 --json"
    assert main(words.split()) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["stability"] == "tree-train"
    rounds = said["rounds"]
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
        ("simulate --network lan --tree 2,5,1 --loss 0.3", "--loss"),
        ("simulate --network lan --tree 2,5,1 --views", "--views"),
        ("simulate --network lan --tree 2,5,1 scenario.toml", "scenario.toml"),
        ("simulate --tree 2,5,1", "--tree"),
        ("simulate --rounds 2", "--rounds"),
        ("simulate --bandwidth=-5", "network.bandwidth:"),
        ("simulate --receive-buffer=-1", "network.receive_buffer:"),
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


@pytest.mark.parametrize("out", ["mine", "mine/thesis.txt", "", ".", "above"])
def test_nothing_but_a_trace_is_ever_replaced(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of somebody's own, named by mistake, was once removed with all in it."""
    monkeypatch.chdir(tmp_path)
    words = ["simulate", "--messages", "1", "--members", "2", "--force", "--out"]
    (thesis := tmp_path / "mine" / "thesis.txt").parent.mkdir()
    thesis.write_text("precious")
    assert main([*words, "above/run"]) == 0
    (tmp_path / "above" / "notes").write_text("mine too")
    capsys.readouterr()
    assert main([*words, out]) == 2
    assert "holds something else than a trace" in capsys.readouterr().err
    assert thesis.read_text() == "precious"
    assert (tmp_path / "above" / "notes").read_text() == "mine too"


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


def test_what_cannot_be_written_is_called_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--messages", "1", "--out", "/proc/run"]) == 2
    assert capsys.readouterr().err.startswith("antiphon simulate: /proc/run: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('members = "many"', "antiphon simulate: members: expected `int`, got `str`"),
        ('[network]\nloss = "high"', "antiphon simulate: network.loss: expected `float`, got `str`"),
        ("memberz = 5", "antiphon simulate: memberz: unknown key (did you mean members?); a scenario knows profile,"),
    ],
)
def test_a_wrong_scenario_names_the_key(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenario.toml").write_text(content)
    assert main(["simulate", str(tmp_path / "scenario.toml")]) == 2
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "antiphon: name a command: simulate, ingest, check,"),
        ("-x", "antiphon: no option -x without a command"),
        ("--versoin", "antiphon: no option --versoin without a command (did you mean --version?)"),
        ("--json", "antiphon: the following arguments are required: COMMAND"),
    ],
)
def test_without_a_command(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("chekc out/run", "did you mean check?"),
        ("simulate --membrs 5", "did you mean --members?"),
        ("simulate --member 5", "did you mean --members?"),
        ("simulate --ordering cuasal", "did you mean causal?"),
        ("simulate --stability vector-akc", "did you mean vector-ack?"),
        ("check out/run --guarantee fif", "did you mean fifo?"),
        ("reproduce tomp-total", "did you mean tomp-total-order?"),
    ],
)
def test_what_is_nearly_right_is_asked_about(words: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert near in said
    assert said.count("\n") == 1


def test_what_is_not_alike_is_not_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--wrong"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_an_option_must_be_written_out(tmp_path: Path) -> None:
    assert main(["simulate", "--mess", "1", "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", ["nonsense --json", "simulate --nonsense --json", "simulate --loss much --json"])
def test_wrong_usage_is_json_too(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert json.loads(capsys.readouterr().out)["error"]


def test_what_every_command_takes_may_stand_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "simulate", "--members", "2", "--messages", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["members"] == 2
    assert main(["--json", "check", "nowhere"]) == 2
    assert json.loads(capsys.readouterr().out) == {"error": "nowhere: no such file or directory"}


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(antiphon("--print-completion", "bash").stdout)
    complete = f'source {script}; COMP_WORDS=(antiphon "$@"); COMP_CWORD=$#; _shtab_antiphon; echo "${{COMPREPLY[@]}}"'

    def completions(*words: str) -> list[str]:
        return subprocess.run(
            ["bash", "-c", complete, "bash", *words], capture_output=True, text=True, check=True
        ).stdout.split()

    assert completions("dash") == ["dashboard"]
    assert completions("simulate", "--mem") == ["--members"]
    assert completions("check", "--mess") == [], "an option of another command"


def test_a_shell_that_cannot_be_completed_for_is_refused() -> None:
    refused = antiphon("--print-completion", "fish")
    assert refused.returncode == 2
    assert "bash" in refused.stderr


def test_the_package_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "antiphon", "-V"], capture_output=True, text=True, timeout=60)
    assert ran.stdout == f"antiphon {antiphon_version}\n"


def broken(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("antiphon.commands.simulate.run", fail)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyError("left over"), 70, "a fault of antiphon's own (KeyError: 'left over')"),
        (ModuleNotFoundError("No module named 'nonsense'", name="nonsense"), 70, "ModuleNotFoundError"),
        (ModuleNotFoundError("No module named 'numba'", name="numba.core"), 2, "pip install 'antiphon[spark]'"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_fault_of_our_own_is_no_violation(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch, error)
    assert main(["simulate", "--json"]) == code
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert json.loads(told.out)["error"]
    main(["simulate", "--debug"])
    assert "Traceback" in capsys.readouterr().err


BASE = ("msgspec", "numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "rich", "markupsafe", "tomli_w", "six.py")
BASE_OF_RICH = ("pygments", "markdown_it", "mdurl")


@pytest.mark.parametrize(
    ("words", "code", "extra"),
    [
        ("check TRACE", 2, "spark"),
        ("measure TRACE", 2, "spark"),
        ("report TRACE --out OUT/report.html", 2, "spark"),
        ("watch TRACE --once", 2, "spark"),
        ("sweep TRACE/sweep.toml", 2, "spark"),
        ("reproduce tomp-total-order --out OUT", 2, "figures"),
        ("advise --members 3 --out OUT", 2, "figures"),
        ("dashboard --member 127.0.0.1:7101", 2, "dashboard"),
        ("diagram TRACE --around 0:1 --out OUT/0-1.html", 0, None),
    ],
)
def test_without_an_extra_a_command_says_which(words: str, code: int, extra: str | None, tmp_path: Path) -> None:
    installed, trace = tmp_path / "site", tmp_path / "trace"
    installed.mkdir()
    for name in (*BASE, *BASE_OF_RICH):
        package = Path(np.__file__).parents[1] / name
        if package.exists():
            (installed / name).symlink_to(package)
    assert main(["simulate", "--messages", "2", "--out", str(trace)]) == 0
    (trace / "sweep.toml").write_text("seeds = 1\n[scenario]\nmessages = 1\n")
    path = os.pathsep.join((str(Path(sys.modules["antiphon"].__file__ or "").parents[1]), str(installed)))
    ran = subprocess.run(
        [
            sys.executable,
            "-S",
            "-m",
            "antiphon",
            *words.replace("TRACE", str(trace)).replace("OUT", str(tmp_path)).split(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"]},
    )
    assert ran.returncode == code, ran.stderr
    if extra is not None:
        assert f"pip install 'antiphon[{extra}]'" in ran.stderr
        assert len(ran.stderr.splitlines()) == 1


def test_nobody_needs_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the shell closed both streams (>&- 2>&-)."""
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert main(["simulate", "--members", "2", "--messages", "1"]) == 0
    assert main(["simulate", "--members", "x"]) == 2
