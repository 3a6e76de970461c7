"""The conventions that can be checked by a machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import antiphon
from support.source import imports, modules, private_reads, renames, undocumented

SOURCE = Path(antiphon.__file__).parent
ROOT = Path(__file__).parents[2]
FORBIDDEN_IN_PROTOCOL = {"asyncio", "time", "socket", "pyspark", "pyarrow", "threading", "os", "datetime", "secrets"}
GLOBAL_RANDOMNESS = {"random", "randint", "choice", "shuffle", "uniform", "seed", "randrange", "getrandbits"}

FACADE: Final = ""  # the package's own __init__, which names what an application uses


def layers() -> list[list[str]]:
    """Read the layers from ARCHITECTURE.md: a line each, the top one first; the last has the small modules."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("\n## Layers\n")[1].split("\n## ")[0]
    lines = [line.split() for line in section.splitlines() if line.startswith("    ")]
    return [[FACADE if name == "antiphon" else name for name in line] for line in lines]


LEVEL: Final = {name: number for number, line in enumerate(reversed(layers())) for name in line}
BOTTOM: Final = 0

# What others keep private and we cannot do without, and why.
BORROWED: Final = {
    "pipeline/session.py": {
        "_active_spark_context": "whether Spark runs here already: what is public forgets it after a broken connection",
        "_jsc": "Hadoop's settings, which PySpark offers in no other way",
    },
    "pipeline/source.py": {
        "_jvm": "to make the session active in the JVM's thread, for which PySpark has no public call",
        "_jsparkSession": "the same",
    },
    "testing/loop.py": {
        "_get_running_loop": "asyncio's, for those who write a loop",
        "_set_running_loop": "asyncio's, for those who write a loop",
        "_log_destroy_pending": "a task that a simulated crash ends is not one that was forgotten",
        "_log_traceback": "whether somebody has asked for a task's exception",
    },
    "testing/plugin.py": {"_fixtureinfo": "pytest's only way to say that a test asks for a fixture"},
}

# Names that two public classes have, and why neither gives way.
TWICE: Final = {"Process": "the field's word in protocol/membership, and public in antiphon.testing"}


def imported(tree: ast.AST) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", sorted((SOURCE / "protocol").rglob("*.py")), ids=lambda path: path.stem)
def test_protocols_know_no_clock_no_socket_and_no_global_randomness(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not imported(tree) & FORBIDDEN_IN_PROTOCOL
    ours = {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("antiphon.")
    }
    assert all(module.startswith(("antiphon.protocol", "antiphon.errors")) for module in ours)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr not in GLOBAL_RANDOMNESS, f"{path.name}:{node.lineno} draws from the global generator"


def test_importing_antiphon_imports_nothing_heavy() -> None:
    code = "import sys, antiphon, antiphon.cli; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyarrow", "numpy", "pandas", "numba"} & set(modules)


@pytest.mark.slow
def test_only_the_pipeline_imports_pyspark() -> None:
    for path in SOURCE.rglob("*.py"):
        if "pipeline" not in path.parts:
            assert "pyspark" not in imported(ast.parse(path.read_text())), path


def test_a_layer_imports_only_what_is_below_it() -> None:
    """Over the whole import graph: imports inside functions and under TYPE_CHECKING count."""
    wrong = set()
    for module in modules():
        own = LEVEL[module.package]
        for found in imports(module):
            package = found.imported.split(".")[0]
            is_version = package == FACADE and found.names == ("__version__",)
            is_below = LEVEL[package] < own or own == LEVEL[package] == BOTTOM
            if package != module.package and not is_below and not is_version:
                wrong.add(f"{found.importer} -> {found.imported}")
    assert wrong == set()


def test_every_package_has_its_layer() -> None:
    """ARCHITECTURE.md gives each package, and each module right below the root, its line among the layers."""
    assert {module.package for module in modules()} == LEVEL.keys()


def test_files_are_replaced_in_one_module_alone() -> None:
    """What is written beside and renamed is written by antiphon/atomic_write.py, which sees to the disk as well."""
    found = {module.path for module in modules() if module.path != "atomic_write.py" and list(renames(module))}
    assert found == set()


def test_a_public_class_name_is_unique_in_the_package() -> None:
    counted = Counter(
        node.name
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, number in counted.items() if number > 1} - TWICE.keys() == set()


@pytest.mark.slow
def test_nobody_reads_the_private_names_of_another_module() -> None:
    found = {module.path: private_reads(module) - BORROWED.get(module.path, {}).keys() for module in modules()}
    assert {path for path, names in found.items() if names} == set(), found


def test_every_public_name_has_a_docstring() -> None:
    assert {name for module in modules() for name in undocumented(module)} == set()
