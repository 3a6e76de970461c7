"""`antiphon join` as processes: lines in, ordered lines out; one line and exit 2 for what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.cli import main
from support.live_group import free_addresses


def start(own: str, others: list[str], folder: Path, *words: str) -> subprocess.Popen[str]:
    peers = [word for other in others for word in ("--peer", other)]
    command = [sys.executable, "-m", "antiphon.cli", "join", "lines", "--bind", own, *peers]
    return subprocess.Popen(
        [*command, "--state", str(folder), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("words", [[], ["--fixed", "--json"]], ids=["views", "fixed"])
def test_lines_come_out_in_one_order_everywhere(words: list[str], tmp_path: Path) -> None:
    key = tmp_path / "group.key"
    key.write_text(os.urandom(16).hex() + "\n")
    addresses = free_addresses(3)
    processes = [
        start(own, [other for other in addresses if other != own], tmp_path, "--key-file", str(key), "--stay", *words)
        for own in addresses
    ]
    outputs: list[list[str]] = [[], [], []]
    try:
        for index, process in enumerate(processes):
            assert process.stdin is not None
            process.stdin.write("".join(f"{index}-{number}\n" for number in range(50)))
            process.stdin.close()
        for output, process in zip(outputs, processes, strict=True):
            assert process.stdout is not None
            for line in process.stdout:
                text = json.loads(line).get("line") if words else line.rstrip("\n").partition("\t")[2]
                if text:
                    output.append(text)
                if len(output) == 150:
                    break
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
    assert outputs[0] == outputs[1] == outputs[2]
    assert sorted(outputs[0]) == sorted(f"{index}-{number}" for index in range(3) for number in range(50))
    assert [process.returncode for process in processes] == [0, 0, 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bind", "nowhere"], "bind: 'nowhere' is no address"),
        (["--bind", "127.0.0.1:7001", "--key-file", "no-such-file"], "--key-file: no-such-file: No such file"),
        (["--bind", "127.0.0.1:7001", "--ordering", "alphabetical"], "ordering: unknown 'alphabetical'"),
        (["--bind", "127.0.0.1:7001", "--count", "0"], "--count: at least 1"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["join", "lines", *words]) == 2
    said = capfd.readouterr().err
    assert message in said
    assert said.count("\n") == 1
