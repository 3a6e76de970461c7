"""The tool that changes code to see whether a test notices: what it changes, what it leaves alone, what it counts."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from bench.mutants import changes

    return changes


def found(changes: Any, source: str) -> set[str]:
    tree = ast.parse(dedent(source))
    return {change.key.removeprefix("m.py: ") for change in changes.find_changes("m.py", tree)}


def test_what_is_changed(changes: Any) -> None:
    assert found(changes, "def f(a, b):\n    return a < b + 1") == {
        "f: a < b + 1 -> a <= b + 1",
        "f: a < b + 1 -> a >= b + 1",
        "f: b + 1 -> b - 1",
        "f: 1 -> 2",
    }
    assert found(changes, "class A:\n    def f(self):\n        if self.x or y:\n            self.x = min(y)") == {
        "A.f: if self.x or y -> if not (self.x or y)",
        "A.f: self.x or y -> self.x and y",
        "A.f: self.x = min(y) -> pass",
        "A.f: min(y) -> max(y)",
    }


def test_what_is_left_alone(changes: Any) -> None:
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
    assert found(changes, source) == set()
    assert found(changes, "def f(a):\n    raise ValueError(a + 1)") == {"f: raise ValueError(a + 1) -> pass"}


def test_two_equal_changes_have_two_names(changes: Any) -> None:
    assert found(changes, "def f(a):\n    return g(a, 7) or g(a, 7)") == {
        "f: g(a, 7) or g(a, 7) -> g(a, 7) and g(a, 7)",
        "f: 7 -> 8",
        "f: 7 -> 8 (number 2)",
    }


def test_a_change_is_applied_to_the_tree_that_it_was_found_in(changes: Any) -> None:
    tree = ast.parse("def f(a, b):\n    return a * b")
    (change,) = changes.find_changes("m.py", tree)
    change.apply()
    names: dict[str, Any] = {}
    exec(compile(tree, "m.py", "exec"), names)
    assert names["f"](7, 2) == 3


def test_the_confidence_interval_is_wilsons(monkeypatch: pytest.MonkeyPatch, changes: Any) -> None:
    from bench.mutants.__main__ import interval

    low, high = interval(90, 100)
    assert (round(low, 3), round(high, 3)) == (0.826, 0.945)
    assert interval(0, 0) == (0.0, 1.0)
