"""Which test calls which function of the package: every test is run once, watched, and what it cost is noted.

The answer is kept, test file by test file, until that file or what it imports of `tests/support/` changes; a change of
the package alone seldom changes which function a test calls, so what was seen before it stands until `fresh` is asked
for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "antiphon"
SECONDS_MAX = 2.0  # of processor time for one test; a longer one, of many schedules mostly, is tried that far


class Touched(NamedTuple):
    """What one test did: the functions of each module that it called, by name, and its processor time."""

    functions: dict[str, list[str]]
    seconds: float


def touches(items: list[pytest.Item], package: Path, store: Path, *, fresh: bool = False) -> dict[str, Touched]:
    """Say for each test, by its node id, what it touches of a package or module; run those of which it is not known."""
    store = store / package.relative_to(SOURCE).as_posix().replace("/", ".")
    store.mkdir(parents=True, exist_ok=True)
    by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path, []).append(item)
    found: dict[str, Touched] = {}
    for file, tests in by_file.items():
        name = f"{file.relative_to(ROOT).as_posix().replace('/', '.')}.json"
        stamp = _digest(_imported(file, set()))
        known = None if fresh else _known(store / name, stamp)
        if known is None or not {one.nodeid for one in tests} <= known.keys():
            print(f"what {file.relative_to(ROOT)} calls", end=" ", flush=True)
            began = time.monotonic()
            _in_a_fork(tests, package, store / name, stamp)
            known = _known(store / name, stamp) or {}
            print(f"({len(known)} of {len(tests)} tests, {time.monotonic() - began:.0f} s)", flush=True)
        found |= {one.nodeid: known[one.nodeid] for one in tests if one.nodeid in known}
    return found


def _imported(file: Path, found: set[Path]) -> set[Path]:
    """Find a test file and all that it imports of `tests/support/`."""
    found.add(file)
    for name in re.findall(r"^\s*from support\.(\w+) import", file.read_text(encoding="utf-8"), re.MULTILINE):
        module = ROOT / "tests" / "support" / f"{name}.py"
        if module not in found:
            _imported(module, found)
    return found


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _known(path: Path, stamp: str) -> dict[str, Touched] | None:
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["stamp"] != stamp:
        return None
    return {test: Touched(*one) for test, one in content["tests"].items()}


def outermost(code: CodeType) -> str:
    """Give the qualified name of the function around a function, or its own."""
    return code.co_qualname.split(".<locals>")[0]


def run_test(test: pytest.Item, following: pytest.Item | None, seconds: float) -> bool | None:
    """Run one test for so much processor time: whether it passed; None if that was not to be seen in the time."""

    def enough(*_: object) -> None:
        raise KeyboardInterrupt  # neither pytest nor hypothesis take it for a failure

    before = signal.signal(signal.SIGPROF, enough)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        reports = runtestprotocol(test, log=False, nextitem=following)
        return not any(one.failed for one in reports)
    except KeyboardInterrupt:
        test.session._setupstate.teardown_exact(None)
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _in_a_fork(tests: list[pytest.Item], package: Path, out: Path, stamp: str) -> None:
    """Run tests in a process of their own, so that they leave nothing behind."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            content = {"stamp": stamp, "tests": _run(tests, package)}
            out.write_text(json.dumps(content), encoding="utf-8")
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _run(tests: list[pytest.Item], package: Path) -> dict[str, Any]:
    folder = str(package)
    seen: set[CodeType] = set()

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    found: dict[str, Any] = {}
    for index, test in enumerate(tests):
        following = tests[index + 1] if index + 1 < len(tests) else None
        seen.clear()
        began = time.process_time()
        sys.setprofile(called)
        passed = run_test(test, following, SECONDS_MAX)
        sys.setprofile(None)
        if passed is not False:
            names = {(one.co_filename, outermost(one)) for one in seen if one.co_filename.startswith(folder)}
            functions: dict[str, list[str]] = {}
            for file, name in sorted(names):
                functions.setdefault(Path(file).relative_to(SOURCE).as_posix(), []).append(name)
            found[test.nodeid] = Touched(functions, time.process_time() - began)
    return found
