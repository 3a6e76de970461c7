"""All the small changes of a module that a test should notice: one replaced node of its syntax tree each.

Changed are the bodies of functions, where behaviour is: comparisons, arithmetic, logic, numbers, conditions, and
statements that are left out. Not changed are `assert` and the `strict` of `zip` (they say what holds anyway), what is
raised (its wording is not behaviour; that something is raised is), strings, annotations, and what only prints.
"""

from __future__ import annotations

import ast
import copy
import random
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NEGATIONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEFT_OUT = (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete)
_WORDS_ONLY = {"__repr__", "__str__"}


class Change(NamedTuple):
    """One changed node: where it stands, and how to put the new one in its place."""

    module: str  # the file, relative to the package that is changed
    function: str  # the qualified name of the outermost function around it
    function_line: int  # where that begins, decorators included
    line: int
    before: str
    after: str
    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST

    @property
    def key(self) -> str:
        """Name it without its line, so that the name outlives edits elsewhere."""
        return f"{self.module}: {self.function}: {self.before} -> {self.after}"

    def apply(self) -> None:
        """Change the tree that this was found in, for good."""
        if self.index is None:
            setattr(self.parent, self.field, self.new)
        else:
            getattr(self.parent, self.field)[self.index] = self.new


def find_changes(module: str, tree: ast.Module, functions: Container[str] | None = None) -> list[Change]:
    """List all changes of a module, or of some of its functions, in the order of its lines."""
    found, seen = [], Counter[str]()
    for function, name in _functions(tree, ""):
        if functions is not None and name not in functions:
            continue
        for change in _within(module, name, function):
            seen[change.key] += 1
            again = seen[change.key]
            found.append(change if again == 1 else change._replace(after=f"{change.after} (number {again})"))
    return found


def draw(changes: list[Change], number: int, seed: int) -> list[Change]:
    """Draw a random sample, or give all if there are not more."""
    return changes if number >= len(changes) else random.Random(seed).sample(changes, number)


def read_tree(path: Path) -> ast.Module:
    """Parse a module's source."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def first_line(function: ast.FunctionDef) -> int:
    """Say where a function's code begins: at its first decorator, if it has any."""
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name not in _WORDS_ONLY:
            yield child, prefix + child.name
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _within(module: str, name: str, function: ast.FunctionDef) -> Iterator[Change]:
    def visit(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> Iterator[Change]:
        if isinstance(node, ast.Assert) or _is_docstring(node):
            return
        for new in _variants(node):
            ast.fix_missing_locations(ast.copy_location(new, node))
            before, after = _text(node), _text(new)
            if before != after:
                line: int = node.lineno  # type: ignore[attr-defined]
                yield Change(module, name, first_line(function), line, before, after, parent, field, index, new)
        if not isinstance(node, (ast.Raise, ast.JoinedStr)):
            yield from children(node)

    def children(node: ast.AST) -> Iterator[Change]:
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return  # of `zip`: it says that lengths agree, as an assertion would
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
                continue
            if isinstance(value, list):
                for index, one in enumerate(value):
                    if isinstance(one, ast.AST):
                        yield from visit(node, field, index, one)
            elif isinstance(value, ast.AST):
                yield from visit(node, field, None, value)

    yield from children(function)


def _text(node: ast.AST) -> str:
    if isinstance(node, (ast.If, ast.While)):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    return ast.unparse(node)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """Give what may stand for a node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for table in (_COMPARISONS, _NEGATIONS):
            if type(node.ops[0]) in table:
                yield ast.Compare(node.left, [table[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.Compare):
        for index, one in enumerate(node.ops):
            ops = [*node.ops[:index], _COMPARISONS[type(one)](), *node.ops[index + 1 :]]
            yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        negated = copy.copy(node)
        negated.test = ast.UnaryOp(ast.Not(), node.test)
        yield negated
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, (int, float)):
            yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield ast.Call(ast.Name(_CALLS[node.func.id], ast.Load()), node.args, node.keywords)
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        yield ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value)
    if isinstance(node, _LEFT_OUT) or _sets_attribute(node):
        yield ast.Pass()


def _sets_attribute(node: ast.AST) -> bool:
    """Whether a statement changes an object: a name that is left out would only be missing."""
    return isinstance(node, ast.Assign) and all(isinstance(one, (ast.Attribute, ast.Subscript)) for one in node.targets)
