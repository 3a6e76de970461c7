"""The package's source as something to ask: who imports whom, which classes there are, who reads private names."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import antiphon

PACKAGE = Path(antiphon.__file__).parent
_OF_TUPLES = {"_replace", "_asdict", "_fields", "_make"}  # public in all but name
_MOVES_FILES = {("os", "replace"), ("os", "rename"), ("os", "renames"), ("os", "link"), ("shutil", "move")}


class Import(NamedTuple):
    """One import of a module of ours, wherever it stands: inside functions and under TYPE_CHECKING too."""

    importer: str
    imported: str  # a module
    names: tuple[str, ...]


class Module(NamedTuple):
    """A module of the package: its path below the package, and its syntax tree."""

    path: str
    tree: ast.Module
    lines: int

    @property
    def name(self) -> str:
        """Its dotted name below the package; '' is the package itself."""
        return self.path.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")

    @property
    def package(self) -> str:
        """The first part of its name: a package, or a module right below the root."""
        return self.name.split(".")[0]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it but a docstring."""
        return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in self.tree.body)

    def classes(self) -> Iterator[ast.ClassDef]:
        """Give its classes, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))


@cache
def modules() -> list[Module]:
    """Return all modules of the package."""
    found = []
    gc.disable()  # half a million nodes that stay: to look for cycles among them takes twice as long as to parse
    try:
        for path in sorted(PACKAGE.rglob("*.py")):
            text = path.read_text()
            found.append(Module(path.relative_to(PACKAGE).as_posix(), ast.parse(text), text.count("\n")))
    finally:
        gc.enable()
    return found


def imports(module: Module) -> Iterator[Import]:
    """Give the imports of our modules in a module; `from package import module` counts as an import of that module."""
    known = {other.name for other in modules()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "antiphon":
                    yield Import(module.name, alias.name.removeprefix("antiphon").lstrip("."), ())
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}:{node.lineno}: imports are absolute"
            if (node.module or "").split(".")[0] == "antiphon":
                base = (node.module or "").removeprefix("antiphon").lstrip(".")
                for alias in node.names:
                    inner = f"{base}.{alias.name}".lstrip(".")
                    yield Import(module.name, inner if inner in known else base, (alias.name,))


def methods(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's own methods and properties."""
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names of what its instances hold: declared fields, and all that its methods set on `self`."""
    declared = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and not any(word in ast.unparse(item.annotation) for word in ("ClassVar", "Final"))
    }
    return declared | {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_own(inner.value)
    }


def private_reads(module: Module) -> set[str]:
    """Return the private names that a module uses of objects, classes and modules that are not its own."""
    own = _defined(module)
    used = {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)} - own
    imported = {
        alias.name for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return {name for name in used | imported if _is_private(name)}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in _OF_TUPLES


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _defined(module: Module) -> set[str]:
    """Return the names that the module defines: functions, classes, variables, fields, attributes set on `self`."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            found.add(node.attr)
    slots = (
        constant.value
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign) and "__slots__" in ast.unparse(node.targets[0])
        for constant in ast.walk(node.value)
        if isinstance(constant, ast.Constant)
    )
    return found | set(map(str, slots))


def renames(module: Module) -> Iterator[int]:
    """Give the lines where a module renames or moves a file, by `os`, `shutil` or a `Path`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            taken = {(node.module, alias.name) for alias in node.names}
            if taken & {*_MOVES_FILES}:
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of, called = ast.unparse(node.func.value), node.func.attr
            given = [None] * len(node.args) + [keyword.arg for keyword in node.keywords]
            of_a_path = called in ("replace", "rename") and given in ([None], ["target"])
            if of_a_path or (of, called) in _MOVES_FILES:
                yield node.lineno


def undocumented(module: Module) -> Iterator[str]:
    """Give the public names without a docstring: the module, its functions, its classes, their methods."""
    if not ast.get_docstring(module.tree):
        yield module.path

    def inside(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith(
                "_"
            ):
                marks = {ast.unparse(mark).split(".")[-1] for mark in node.decorator_list}
                if not ast.get_docstring(node) and not marks & {"overload", "override", "setter"}:
                    yield f"{prefix}{node.name}"
                if isinstance(node, ast.ClassDef):
                    yield from inside(node.body, f"{prefix}{node.name}.")

    yield from inside(module.tree.body, f"{module.path}: ")
