"""Make a failing case smaller: of its reductions take the first that fails too, until none does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_Case = TypeVar("_Case")


def smallest(
    case: _Case,
    reductions: Callable[[_Case], Iterable[_Case]],
    fails: Callable[[_Case], bool],
    tries_max: int = 400,
) -> _Case:
    """Return the smallest case found that still fails, after so many tries at most."""
    tries = 0
    while tries < tries_max:
        for candidate in reductions(case):
            tries += 1
            if fails(candidate):
                case = candidate
                break
            if tries >= tries_max:
                return case
        else:
            return case
    return case
