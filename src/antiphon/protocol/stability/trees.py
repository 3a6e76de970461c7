"""The tree of the structured protocols: filled level by level from the member list, or as the user's network is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Self

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.stability.rounds import RoundOptions


class TreeOptions(RoundOptions, frozen=True, kw_only=True):
    """The shape of the tree; its root is the coordinator."""

    degree: Annotated[int, msgspec.Meta(ge=1)] = 4  # children of each member
    parents: list[int] | None = None  # the parent of each rank, -1 for the root: instead of `degree` and `coordinator`

    def check(self, size: int) -> None:
        """Raise a `UsageError` unless `parents` is a tree of all members."""
        super().check(size)
        if self.parents is not None:
            self._check_parents(self.parents, size)

    def fit(self, size: int) -> Self:
        """Fill a tree where the given one is not of this size."""
        fitted = super().fit(size)
        if fitted.parents is None or len(fitted.parents) == size:
            return fitted
        return msgspec.structs.replace(fitted, parents=None)

    def _check_parents(self, parents: Sequence[int], size: int) -> None:
        key = "stability: parents"
        if len(parents) != size:
            raise UsageError(
                f"{key}: {len(parents)} entries for {size} members; give the parent of each, -1 for the root"
            )
        for rank, parent in enumerate(parents):
            if not -1 <= parent < size:
                raise UsageError(
                    f"{key}: member {rank} has parent {parent}; ranks are 0 to {size - 1}, -1 for the root"
                )
        roots = [rank for rank, parent in enumerate(parents) if parent == -1]
        if len(roots) != 1:
            raise UsageError(f"{key}: a tree has one root (parent -1), and this has {len(roots)}: {roots[:4]}")
        if self.coordinator not in (0, roots[0]):
            raise UsageError(
                f"{key}: the root is {roots[0]}, not the coordinator {self.coordinator}; leave one of them out"
            )
        reached = len(levels(tuple(parents)))
        if reached < size:
            raise UsageError(f"{key}: not a tree: {size - reached} members form a cycle that the root does not reach")

    def tree(self, size: int) -> tuple[int, ...]:
        """Give the parent of each rank, -1 for the root."""
        return _filled(size, self.coordinator, self.degree) if self.parents is None else tuple(self.parents)


# Every simulated member of a group asks for the same tree.
@lru_cache(maxsize=16)
def _filled(size: int, root: int, degree: int) -> tuple[int, ...]:
    """Fill a tree level by level: first the root, then the others in the order of the member list."""
    order = [root, *(rank for rank in range(size) if rank != root)]
    parents = [-1] * size
    for place in range(1, size):
        parents[order[place]] = order[(place - 1) // degree]
    return tuple(parents)


@lru_cache(maxsize=16)
def children_of(parents: tuple[int, ...]) -> list[list[int]]:
    """Give each rank's children, by increasing rank."""
    children: list[list[int]] = [[] for _ in parents]
    for rank, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(rank)
    return children


def levels(parents: tuple[int, ...]) -> list[int]:
    """List the ranks that the root reaches, level by level."""
    children = children_of(parents)
    order = [parents.index(-1)]
    for rank in order:
        order.extend(children[rank])
    return order
