"""Mark the rules of a protocol, list them, and replace single ones.

A protocol's rules are the decisions that its paper (or this documentation) states: what is deliverable, what counts as
stable, when to repeat a request. Each is a small public method, static method or property, marked with `@rule`:

    class CausalBlocks:
        @rule("Section 5.1, R5.0")
        def retransmission_condition(self, j: int) -> bool: ...

The mark costs nothing when the rule runs: `@rule` returns the same function. A protocol that is divided into several
classes names each of them in a class attribute and builds it from there (`delivery_type = Delivery`, then
`self.delivery_type(...)`); the rules of these classes belong to the protocol as well.

Tests replace rules, and nothing else, to show what each of them is for:

    replaced(CausalBlocks, retransmission_condition=lambda self, j: False)
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

_MARK = "__rule__"  # where a marked function keeps the section of the paper

AnyClass = TypeVar("AnyClass")
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class NotARule(TypeError):
    """Something was to be marked or replaced that cannot be a rule."""


class Rule(msgspec.Struct, frozen=True):
    """A rule of a protocol: what it is called, where its paper states it, and where it is written."""

    name: str
    source: str  # the section of the paper, or the page that explains what we added
    owner: type  # the class that it is written in: the protocol, or a class that the protocol is divided into
    path: tuple[str, ...]  # the class attributes that lead from the protocol to that class
    function: Callable[..., Any]

    @property
    def lines(self) -> tuple[str, int, int]:
        """Give the module, and the rule's first and last line in its file."""
        lines, first = inspect.getsourcelines(self.function)
        return self.function.__module__, first, first + len(lines) - 1


def rule(source: str) -> Callable[[AnyFunction], AnyFunction]:
    """Mark a public method as a rule, with its section of the paper; write it below `@staticmethod` or `@property`."""

    def mark(function: AnyFunction) -> AnyFunction:
        if not inspect.isfunction(function) or function.__name__.startswith("_"):
            raise NotARule(f"{function!r} is not a public method: write @rule below @staticmethod or @property")
        function.__dict__[_MARK] = source
        return function

    return mark


def rules_of(protocol: type) -> dict[str, Rule]:
    """List a protocol's rules by name, with those of the classes that it is divided into.

    A method that overrides a rule is that rule too, whether it is marked again or not.
    """
    rules: dict[str, Rule] = {}
    for found in _found(protocol, ()):
        other = rules.setdefault(found.name, found)
        if other.path != found.path:
            raise NotARule(f"{protocol.__name__} has two rules {found.name}: in {other.owner} and in {found.owner}")
    return rules


def replaced(protocol: type[AnyClass], /, **rules: Callable[..., Any]) -> type[AnyClass]:
    """Give the protocol with some of its rules replaced; refuse what is no rule, or takes other arguments than it.

    The new functions take the same arguments as the rules, `self` included; the rule as it was is to be had from the
    class that was given: `CausalBlocks.delivery_condition(self, entry)`.
    """
    known = rules_of(protocol)
    for name, function in rules.items():
        if name not in known:
            raise NotARule(f"{protocol.__name__} has no rule {name}; it has {', '.join(sorted(known))}")
        if _arity(function) != _arity(known[name].function):
            raise NotARule(f"{name} takes {_arity(known[name].function)} arguments, not {_arity(function)}")
    title = f"{protocol.__name__}[{', '.join(rules)}]"
    return _rebuilt(protocol, title, {(*known[name].path, name): function for name, function in rules.items()})


def _found(cls: type, path: tuple[str, ...]) -> Iterator[Rule]:
    """Find the rules of a class and of the classes that it is divided into."""
    seen: set[str] = set()
    for name in (name for ancestor in cls.__mro__ for name in vars(ancestor) if not name.startswith("_")):
        if name in seen:
            continue
        seen.add(name)
        value = inspect.getattr_static(cls, name)
        if isinstance(value, type):
            if not issubclass(cls, value):
                yield from _found(value, (*path, name))
        elif (source := _source(cls, name)) is not None:
            yield Rule(name, source, cls, path, _function(value))


def _source(cls: type, name: str) -> str | None:
    """Return the section of the paper that a method, or the nearest method that it overrides, is marked with."""
    for ancestor in cls.__mro__:
        function = _function(vars(ancestor).get(name))
        if function is not None and _MARK in getattr(function, "__dict__", {}):
            return str(function.__dict__[_MARK])
    return None


def _function(value: Any) -> Any:
    """Take the function out of a static method or a property."""
    return value.fget if isinstance(value, property) else value.__func__ if isinstance(value, staticmethod) else value


def _arity(function: Callable[..., Any]) -> int:
    return len(inspect.signature(function).parameters)


def _rebuilt(cls: type[AnyClass], title: str, changes: Mapping[tuple[str, ...], Callable[..., Any]]) -> type[AnyClass]:
    """Derive a class with new methods, and with new classes that it is divided into where those change."""
    body: dict[str, Any] = {"__module__": cls.__module__, "__doc__": f"{cls.__name__} with rules replaced."}
    inner: dict[str, dict[tuple[str, ...], Callable[..., Any]]] = {}
    for (name, *rest), function in changes.items():
        if rest:
            inner.setdefault(name, {})[tuple(rest)] = function
        else:
            kind = type(inspect.getattr_static(cls, name))
            body[name] = kind(function) if kind in (staticmethod, property) else function
    for name, within in inner.items():
        body[name] = _rebuilt(getattr(cls, name), f"{getattr(cls, name).__name__}[replaced]", within)
    return types.new_class(title, (cls,), exec_body=lambda namespace: namespace.update(body))
