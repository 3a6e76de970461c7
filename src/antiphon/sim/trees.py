"""Trees on which a local network can be simulated: near-complete, random, or read from a file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from antiphon.errors import UsageError

NODES_MAX = 10_000_000  # a mistyped height should be refused at once, not fill the memory


class Tree:
    """A rooted tree given by its parents: `parents[i]` is the parent of node i, -1 for the root.

    >>> Tree([-1, 0, 0, 1]).circle
    [0, 1, 2, 3]
    """

    def __init__(self, parents: Sequence[int], *, name: str = "tree") -> None:
        self.parents = tuple(parents)
        self.name = name
        self._refuse_what_is_no_tree()

    def __len__(self) -> int:
        return len(self.parents)

    def __repr__(self) -> str:
        return f"Tree({self.name}, n={len(self)})"

    def _refuse_what_is_no_tree(self) -> None:
        n = len(self.parents)
        if n < 2:
            raise UsageError(f"{self.name}: {n} node(s), but a network needs at least two")
        roots = [node for node, parent in enumerate(self.parents) if parent == -1]
        if len(roots) != 1:
            first = f"nodes {roots[0]} and {roots[1]} both have" if roots else "no node has"
            raise UsageError(f"{self.name}: {first} parent -1, but a tree has exactly one root")
        for node, parent in enumerate(self.parents):
            if not -1 <= parent < n:
                raise UsageError(f"{self.name}: node {node} has parent {parent}, but the nodes are 0 to {n - 1}")
        if len(self.order) < n:
            reached = set(self.order)
            stray = next(node for node in range(n) if node not in reached)
            raise UsageError(f"{self.name}: not a tree, since the ancestors of node {stray} form a cycle")

    @cached_property
    def root(self) -> int:
        """The node without a parent."""
        return self.parents.index(-1)

    @cached_property
    def children(self) -> list[list[int]]:
        """Each node's children from left to right, that is, by increasing number."""
        children: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(node)
        return children

    @cached_property
    def order(self) -> list[int]:
        """All nodes level by level, each level from left to right."""
        order = [self.root]
        for node in order:
            order.extend(self.children[node])
        return order

    @cached_property
    def depths(self) -> list[int]:
        """Each node's number of hops from the root."""
        depths = [0] * len(self)
        for node in self.order[1:]:
            depths[node] = depths[self.parents[node]] + 1
        return depths

    @property
    def height(self) -> int:
        """The depth of the deepest node."""
        return self.depths[self.order[-1]]

    @cached_property
    def circle(self) -> list[int]:
        """The order in which the Train visits the nodes: odd levels from left to right, even ones from right to left.

        Alternating the direction keeps the step from one level to the next short; the closed formula F_d counts on it.
        """
        levels: list[list[int]] = [[] for _ in range(self.height + 1)]
        for node in self.order:
            levels[self.depths[node]].append(node)
        return [node for depth, level in enumerate(levels) for node in (level if depth % 2 else reversed(level))]

    @cached_property
    def circle_next(self) -> list[int]:
        """Whom each node passes the Train on to."""
        following = [0] * len(self)
        for index, node in enumerate(self.circle):
            following[self.circle[index - 1]] = node
        return following

    def path(self, source: int, target: int) -> list[int]:
        """The nodes from source to target, both included."""
        up, down = [source], [target]
        while up[-1] != down[-1]:
            lower = up if self.depths[up[-1]] >= self.depths[down[-1]] else down
            lower.append(self.parents[lower[-1]])
        return up + down[-2::-1]

    def distance(self, source: int, target: int) -> int:
        """The number of hops between two nodes."""
        hops = 0
        while source != target:
            if self.depths[source] < self.depths[target]:
                source, target = target, source
            source = self.parents[source]
            hops += 1
        return hops


def group_size(b: int, p: int, z: int) -> int:
    """The paper's n(b, p, z): complete of degree b down to level p - 1, whose nodes have z children each."""
    n: int = sum(b**level for level in range(p)) + z * b ** (p - 1)
    return n


def near_complete(b: int, p: int, z: int) -> Tree:
    """The b-ary tree of height p whose nodes at level p - 1 have z children, numbered level by level from 0.

    >>> near_complete(2, 2, 1).parents
    (-1, 0, 0, 1, 2)
    """
    if b < 1 or p < 1:
        raise UsageError(f"tree {b},{p},{z}: degree b and height p must be at least 1")
    if not 1 <= z <= b:
        raise UsageError(f"tree {b},{p},{z}: the lowest degree z must be between 1 and b = {b}")
    if p > NODES_MAX or (b > 1 and p > 64) or group_size(b, p, z) > NODES_MAX:
        raise UsageError(f"tree {b},{p},{z}: more than {NODES_MAX} nodes; choose a smaller height")
    parents = [-1]
    level_start = 0
    for level in range(p):
        level_end = len(parents)
        degree = b if level < p - 1 else z
        parents.extend(node for node in range(level_start, level_end) for _ in range(degree))
        level_start = level_end
    return Tree(parents, name=f"tree {b},{p},{z}")


def filled(n: int, b: int) -> Tree:
    """The b-ary tree of exactly n nodes, filled level by level from the left: for sizes that no (b, p, z) gives."""
    if b < 1:
        raise UsageError(f"tree of degree {b}: the degree must be at least 1")
    if n > NODES_MAX:
        raise UsageError(f"tree of {n} nodes: more than {NODES_MAX}")
    return Tree([(node - 1) // b if node else -1 for node in range(n)], name=f"{b}-ary tree n={n}")


def random_tree(n: int, b: int, p: int, seed: int) -> Tree:
    """The paper's random tree: mean degree b above the lowest level p, the remaining nodes on that level.

    A node falls on level k with probability b^k / (n - 1) for 0 < k < p, and on level p with the rest, which is
    (n - (b^p - 1) / (b - 1)) / (n - 1); the paper prints b^(p + 1) there, and then the probabilities do not add up
    to 1. A level that got no node receives one of the next lower level that has any, since the tree must hang together.
    """
    above = sum(b**level for level in range(p))
    if b < 1 or p < 1:
        raise UsageError(f"random tree: degree b = {b} and height p = {p} must be at least 1")
    if n <= above:
        raise UsageError(f"random tree: n = {n} leaves no node for level {p}; with b = {b} it must exceed {above}")
    if n > NODES_MAX:
        raise UsageError(f"random tree: n = {n} is more than {NODES_MAX} nodes")
    rng = random.Random(seed)
    sizes = [1] + [0] * p
    for _ in range(n - 1):
        index = rng.randrange(n - 1)
        level = 1
        while level < p and index >= b**level:
            index -= b**level
            level += 1
        sizes[level] += 1
    while 0 in sizes[: max(level for level in range(p + 1) if sizes[level])]:
        empty = sizes.index(0)
        sizes[empty] = 1
        sizes[next(level for level in range(empty + 1, p + 1) if sizes[level])] -= 1
    parents = [-1]
    level_start = 0
    for size in sizes[1:]:
        level_end = len(parents)
        parents.extend(sorted(rng.randrange(level_start, level_end) for _ in range(size)))
        level_start = level_end
    return Tree(parents, name=f"random tree n={n} b={b} p={p} seed={seed}")


def read_parents(path: Path) -> Tree:
    """Read a tree from a text file: line i (from 0) is the parent of node i, -1 for the root."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file; line i must be the parent of node i, -1 for the root") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise UsageError(f"{path}: empty file; line i must be the parent of node i, -1 for the root")
    parents = []
    for number, line in enumerate(lines, 1):
        try:
            parents.append(int(line))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {line.strip()[:40]!r} is not one node number") from error
    return Tree(parents, name=str(path))


def parse_tree(text: str) -> Tree:
    """The tree of a command line: `b,p,z` for a near-complete one, otherwise a file of parents."""
    words = text.split(",")
    if Path(text).is_file():
        return read_parents(Path(text))
    if len(words) == 3:
        try:
            b, p, z = (int(word) for word in words)
        except ValueError as error:
            raise UsageError(f"tree {text!r}: b,p,z must be three whole numbers, such as 4,5,4") from error
        return near_complete(b, p, z)
    raise UsageError(f"tree {text!r}: neither b,p,z (such as 4,5,4) nor a file of parents")
