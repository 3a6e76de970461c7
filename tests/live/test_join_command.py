"""`antiphon join` as processes: lines in, ordered lines out; one line and exit 2 for what is wrong."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from antiphon.cli import main
from antiphon.commands.join import read_key
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


def test_who_reads_nothing_makes_the_others_wait_and_is_not_taken_for_dead(tmp_path: Path) -> None:
    """A pager, or Ctrl-S: the member stood still with its output, was left out of the group, and no Ctrl-C ended it."""
    addresses = free_addresses(2)
    first, second = (
        start(own, [other for other in addresses if other != own], tmp_path / str(index), "--stay")
        for index, own in enumerate(addresses)
    )
    too_late = threading.Timer(40, first.kill)  # ends what is read of it
    too_late.start()
    try:
        assert first.stdin is not None
        assert first.stdout is not None
        assert second.stdout is not None
        assert second.stdout.readline().startswith("# view 1")
        for number in range(300):  # far more than a pipe holds
            first.stdin.write(f"{number} {'x' * 1_000}\n")
        first.stdin.flush()
        seen = [first.stdout.readline() for _ in range(301)]
        time.sleep(2)
        first.stdin.write("later\n")
        first.stdin.flush()
        seen.append(first.stdout.readline())
        assert [line for line in seen if line.startswith("#")] == seen[:1]
        assert "later" in seen[-1]
        second.send_signal(signal.SIGINT)
        assert second.wait(20) == 0
    finally:
        too_late.cancel()
        for process in (first, second):
            process.kill()
            process.wait()


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
        (["--bind", "127.0.0.1:7001", "--discover", "127.0.0.1:7100"], "discover: 127.0.0.1:7100 cannot be used"),
        (["--bind", "192.0.2.1:7001"], "bind: 192.0.2.1:7001 is no address of this machine"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["join", "lines", *words]) == 2
    said = capfd.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_key_of_the_wrong_length_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "short.key"
    key.write_text("00112233")
    assert main(["join", "lines", "--bind", "127.0.0.1:7001", "--key-file", str(key)]) == 2
    assert capfd.readouterr().err == f"antiphon join: --key-file: {key}: 16, 24 or 32 bytes make a key, not 4\n"


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_key_in_hexadecimal_is_the_same_with_and_without_a_newline(length: int, end: str, tmp_path: Path) -> None:
    written, raw = tmp_path / "written.key", tmp_path / "raw.key"
    written.write_text(bytes(range(length)).hex() + end)
    raw.write_bytes(bytes(range(length)))
    assert read_key(written) == read_key(raw) == bytes(range(length))


def test_a_line_over_the_limit_ends_the_command(tmp_path: Path) -> None:
    process = start(free_addresses(1)[0], [], tmp_path)
    _, said = process.communicate("x" * ((16 << 20) + 1), timeout=30)
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "input: a line is longer than 16777216 bytes" in said or "payload: 16777217 bytes are over" in said


def test_the_status_stays_at_the_foot_of_the_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "antiphon.cli", "join", "lines", "--bind", free_addresses(1)[0]]
    process = subprocess.Popen(
        [*command, "--state", str(tmp_path), "--status"], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 30
    os.write(ours, b"".join(b"line %d\n" % number for number in range(50)))
    while b"50 delivered" not in shown and time.monotonic() < deadline:
        shown += os.read(ours, 65_536)
    os.write(ours, b"\x04")
    while process.poll() is None and time.monotonic() < deadline:
        try:
            shown += os.read(ours, 65_536)
        except OSError:
            break
    assert process.wait(30) == 0
    assert b"50 sent, 50 delivered" in shown
    for number in range(50):
        assert b"\tline %d\r\n" % number in shown
    assert b"\x1b[J" in shown[shown.rindex(b"50 delivered") :], "the foot is cleared at the end"
    os.close(ours)
