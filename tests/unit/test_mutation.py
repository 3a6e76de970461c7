"""The tool that changes code to see whether a test notices: what it changes, what it leaves alone, what it counts."""

from __future__ import annotations

import ast
import gc
from textwrap import dedent
from typing import Any

import pytest
from bench.mutants.__main__ import interval, report
from bench.mutants.changes import find_changes, read_tree
from bench.mutants.judge import Verdict, find_functions
from bench.mutants.survivors import KINDS, Survivor, read_survivors
from bench.mutants.touches import SOURCE

from antiphon.protocol.timers import Backoff


def found(source: str) -> set[str]:
    tree = ast.parse(dedent(source))
    return {change.key.removeprefix("m.py: ") for change in find_changes("m.py", tree)}


def test_what_is_changed() -> None:
    assert found("def f(a, b):\n    return a < b + 1") == {
        "f: a < b + 1 -> a <= b + 1",
        "f: a < b + 1 -> a >= b + 1",
        "f: b + 1 -> b - 1",
        "f: 1 -> 2",
    }
    assert found("class A:\n    def f(self):\n        if self.x or y:\n            self.x = min(y)") == {
        "A.f: if self.x or y -> if not (self.x or y)",
        "A.f: self.x or y -> self.x and y",
        "A.f: self.x = min(y) -> pass",
        "A.f: min(y) -> max(y)",
    }


def test_what_is_left_alone() -> None:
    source = '''
    LIMIT = 3
    def f(a: int = 3) -> str:
        """Return 1 + 1."""
        assert a < 3
        return f"{a + 1}"
    class A:
        x: int = 1
        def __repr__(self):
            return 1 + 1
    '''
    assert found(source) == set()
    assert found("def f(a):\n    raise ValueError(a + 1)") == {"f: raise ValueError(a + 1) -> pass"}


def test_two_equal_changes_have_two_names() -> None:
    assert found("def f(a):\n    return g(a, 7) or g(a, 7)") == {
        "f: g(a, 7) or g(a, 7) -> g(a, 7) and g(a, 7)",
        "f: 7 -> 8",
        "f: 7 -> 8 (number 2)",
    }


def test_a_change_is_applied_to_the_tree_that_it_was_found_in() -> None:
    tree = ast.parse("def f(a, b):\n    return a * b")
    (change,) = find_changes("m.py", tree)
    change.apply()
    names: dict[str, Any] = {}
    exec(compile(tree, "m.py", "exec"), names)
    assert names["f"](7, 2) == 3


def test_functions_are_found_also_where_the_collector_leaves_them_alone() -> None:
    gc.freeze()
    places = {(path, name) for path, name, _ in find_functions()}
    assert (str(SOURCE / "protocol/timers.py"), Backoff.over.__qualname__) in places
    gc.freeze()


def test_the_confidence_interval_is_wilsons() -> None:
    low, high = interval(90, 100)
    assert (round(low, 3), round(high, 3)) == (0.826, 0.945)
    assert interval(0, 0) == (0.0, 1.0)


def test_every_survivor_that_is_listed_is_a_change_of_the_code_as_it_stands() -> None:
    survivors = read_survivors()
    functions: dict[str, set[str]] = {}
    for key in survivors:
        module, function, _ = key.split(": ", 2)
        functions.setdefault(module, set()).add(function)
    there = {
        change.key
        for module, names in functions.items()
        for change in find_changes(module, read_tree(SOURCE / module), names)
    }
    assert not survivors.keys() - there, "drop what is gone from bench/mutants/survivors.toml"
    for key, survivor in survivors.items():
        assert survivor.kind in KINDS, key
        assert survivor.reason, key


def test_survivors_with_a_reason_are_counted_apart_and_never_as_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three, four = find_changes("m.py", ast.parse("def f(a, b):\n    return a < b + 1"))
    verdicts = [
        Verdict(one, "killed", "test_f"),
        Verdict(two, "lives"),
        Verdict(three, "untouched"),
        Verdict(four, "lives"),
        Verdict(four, "impossible"),
    ]
    report(verdicts, {two.key: Survivor("equivalent", "so"), three.key: Survivor("pace", "so")})
    said = capsys.readouterr().out
    assert "noticed 1 of 4: 25.0%" in said
    assert "of those that are not equivalent: 33.3%" in said
    assert "live: equivalent 1, cost 0, pace 1, unreachable 0, untried 0, unexplained 1" in said
