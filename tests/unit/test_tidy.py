"""The conventions that can be checked by a machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon

SOURCE = Path(antiphon.__file__).parent
FORBIDDEN_IN_PROTOCOL = {"asyncio", "time", "socket", "pyspark", "pyarrow", "threading", "os", "datetime", "secrets"}
GLOBAL_RANDOMNESS = {"random", "randint", "choice", "shuffle", "uniform", "seed", "randrange", "getrandbits"}


def imported(tree: ast.AST) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", sorted((SOURCE / "protocol").rglob("*.py")), ids=lambda path: path.stem)
def test_protocols_know_no_clock_no_socket_and_no_global_randomness(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not imported(tree) & FORBIDDEN_IN_PROTOCOL
    outside = {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("antiphon.")
    }
    assert all(module.startswith(("antiphon.protocol", "antiphon.errors")) for module in outside)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr not in GLOBAL_RANDOMNESS, f"{path.name}:{node.lineno} draws from the global generator"


def test_importing_antiphon_imports_nothing_heavy() -> None:
    code = "import sys, antiphon, antiphon.cli; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyarrow", "numpy", "pandas", "numba"} & set(modules)


def test_only_the_pipeline_imports_pyspark() -> None:
    for path in SOURCE.rglob("*.py"):
        if "pipeline" not in path.parts:
            assert "pyspark" not in imported(ast.parse(path.read_text())), path
