"""Every counter that the code can raise is in the table of docs/operations.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import antiphon

SOURCE = Path(antiphon.__file__).parent
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
PREFIXES = {"Refused": "refused-", "Malformed": "dropped-", "note": ""}


def raised() -> Iterator[tuple[str, str]]:
    """Yield the counters that are named in live/ and protocol/, each with where."""
    for path in sorted([*SOURCE.glob("live/*.py"), *SOURCE.glob("protocol/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and node.args:
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if called in PREFIXES:
                    yield from ((PREFIXES[called] + text, where) for text in texts(node.args[0]))
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "kind":
                yield from ((text, where) for text in texts(node.value) if "/live/" in str(path))
            elif isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == "counts":
                yield from ((text, where) for text in texts(node.slice))
            elif isinstance(node, ast.Dict) and "live" in where:
                keys = [text for key in node.keys if key is not None for text in texts(key)]
                yield from ((key, where) for key in keys if re.fullmatch(r"(packets|broken|fragments|set)-\w+", key))


def texts(node: ast.expr) -> list[str]:
    """Give the text that an expression is, or those that it chooses from."""
    if isinstance(node, ast.IfExp):
        return [*texts(node.body), *texts(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_every_counter_is_documented() -> None:
    words = set(re.findall(r"`([\w.-]+)`", OPERATIONS.read_text()))
    counters = dict(raised())
    assert len(counters) > 60
    lacking = {
        counter: where
        for counter, where in counters.items()
        if counter not in words and not (counter.startswith("dropped-") and counter.removeprefix("dropped-") in words)
    }
    assert not lacking, "docs/operations.md, Every counter"


def test_no_counter_is_documented_that_nothing_raises() -> None:
    table = OPERATIONS.read_text().split("### Every counter")[1].split("A `dropped-...` is")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {word for row in rows for word in re.findall(r"`([\w-]+)`", row)}
    kinds = {"vector-ack", "alive"}  # control messages are counted by their kind
    assert documented - {counter for counter, _ in raised()} - kinds == set()
