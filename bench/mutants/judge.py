"""Try a change: a fork of the process that has collected the tests takes the changed code and runs those that touch it.

The code of the changed function is put into the function that exists, so that nothing is imported again: a fork and
the cheapest tests are a few hundredths of a second. Each test's processor time is limited by what it takes
unchanged.
"""

from __future__ import annotations

import ast
import gc
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

from bench.mutants.changes import Change
from bench.mutants.touches import SECONDS_MAX, SOURCE, Touched, run_test

_MEMORY_BYTES = 4 << 30
_NOT_POSSIBLE = -2  # the changed code does not fit the function (it lost a variable of its surroundings)
_LIVES = -1


class Verdict(NamedTuple):
    """What became of a change."""

    change: Change
    outcome: str  # "killed", "lives", "untouched", "impossible"
    killer: str = ""  # the test that noticed


class Judge:
    """Runs the tests that touch a change: those first that noticed the most of its module for what they cost."""

    def __init__(
        self,
        items: list[pytest.Item],
        touched: dict[str, Touched],
        seconds: float,
        last: tuple[str, ...],
    ) -> None:
        self._items = items
        self._took = [max(1e-3, touched[item.nodeid].seconds) if item.nodeid in touched else 0.0 for item in items]
        self._seconds = seconds
        self._last = [any(word in item.nodeid for word in last) for item in items]
        self._kills: dict[str, Counter[int]] = {}
        self._by_function: dict[tuple[str, str], list[int]] = {}
        for index, item in enumerate(items):
            for module, names in touched[item.nodeid].functions.items() if item.nodeid in touched else ():
                for name in names:
                    self._by_function.setdefault((module, name), []).append(index)
        self._functions = find_functions()

    def learn(self, earlier: Iterable[dict[str, str]]) -> None:
        """Know from verdicts of earlier runs which tests notice changes of which module."""
        index_of = {item.nodeid: index for index, item in enumerate(self._items)}
        for row in earlier:
            if row["killer"] in index_of:
                self._kills.setdefault(row["module"], Counter())[index_of[row["killer"]]] += 1

    def judge(
        self, changes: list[Change], trees: dict[str, ast.Module], workers: int, until: float
    ) -> Iterator[Verdict]:
        """Try changes, several at a time, until all are tried or the time is over."""
        waiting = list(reversed(changes))
        gc.freeze()  # what exists is shared with every fork, and no collection there makes copies of its pages
        running: dict[int, tuple[Change, list[int], int, float]] = {}
        while waiting or running:
            while waiting and len(running) < workers and time.monotonic() < until:
                change = waiting.pop()
                tests = self._tests(change)
                if not tests:
                    yield Verdict(change, "untouched")
                    continue
                reading, writing = os.pipe()
                child = os.fork()
                if child == 0:
                    os.close(reading)
                    self._try(change, trees[change.module], tests, writing)
                os.close(writing)
                limit = time.monotonic() + 20 * sum(self._took[one] for one in tests) + 60
                running[child] = (change, tests, reading, limit)
            if not running:
                return
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                time.sleep(0.005)
                for process, (_, _, _, limit) in running.items():
                    if time.monotonic() > limit:
                        os.kill(process, signal.SIGKILL)
                continue
            change, tests, reading, _ = running.pop(child)
            said = os.read(reading, 16)
            os.close(reading)
            answer = int(said.split()[-1]) if said and status == 0 else None
            yield self._verdict(change, answer)

    def _verdict(self, change: Change, answer: int | None) -> Verdict:
        if answer == _NOT_POSSIBLE:
            return Verdict(change, "impossible")
        if answer == _LIVES:
            return Verdict(change, "lives")
        if answer is None:  # it died or was ended: by the test that it had begun last
            return Verdict(change, "killed", "a limit of time or memory")
        self._kills.setdefault(change.module, Counter())[answer] += 1
        return Verdict(change, "killed", self._items[answer].nodeid)

    def _tests(self, change: Change) -> list[int]:
        """List the tests that touch a change, as many as the time allows for."""
        found = self._by_function.get((change.module, change.function), ())
        kills = self._kills.get(change.module, Counter())
        ranked = sorted(found, key=lambda one: (self._last[one], -kills[one] / self._took[one], self._took[one]))
        chosen, seconds = [], 0.0
        for one in ranked:
            if chosen and seconds + self._took[one] > self._seconds:
                continue
            chosen.append(one)
            seconds += self._took[one]
        return chosen

    def _try(self, change: Change, tree: ast.Module, tests: list[int], answer: int) -> None:
        """In the child: change the code, run the tests, and say which one noticed."""
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        said = _LIVES
        try:
            if not self._change(change, tree):
                said = _NOT_POSSIBLE
                return
            for index, one in enumerate(tests):
                following = self._items[tests[index + 1]] if index + 1 < len(tests) else None
                whole = self._took[one] < SECONDS_MAX
                passed = run_test(self._items[one], following, 2 + 5 * self._took[one] if whole else SECONDS_MAX)
                if passed is False or (passed is None and whole):
                    said = one
                    return
        finally:
            os.write(answer, str(said).encode())
            os._exit(0)

    def _change(self, change: Change, tree: ast.Module) -> bool:
        change.apply()
        path = str(SOURCE / change.module)
        code = _find(compile(tree, path, "exec"), change.function, change.function_line)
        functions = self._functions.get((path, change.function, change.function_line), ())
        if not functions or code is None:
            return False
        try:
            for function in functions:
                function.__code__ = code
        except ValueError:
            return False
        return True


def find_functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """Find the functions of the source that exist, by file, name and line."""
    gc.unfreeze()  # what the collector was told to leave alone, the tests' setup does so, is not listed
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(SOURCE)):
            code = one.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(one)
    return found


def _find(code: CodeType, name: str, line: int) -> CodeType | None:
    if code.co_qualname == name and code.co_firstlineno == line:
        return code
    inner = (_find(one, name, line) for one in code.co_consts if isinstance(one, CodeType))
    return next((one for one in inner if one is not None), None)
