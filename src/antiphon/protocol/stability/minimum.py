"""The least of n rising values: a tournament whose winner is the least, replayed only as far as a change reaches."""

from __future__ import annotations

from collections.abc import Sequence


class Minimum:
    """Keeps the least of a fixed number of values up to date, in O(log n) for each change.

    Acknowledgments come in turn, so the one that changes is most often the least: looking through all n for the next
    least would cost n each time.

    >>> numbers = Minimum([3, 1, 2])
    >>> numbers.put(1, 7)
    >>> numbers.least
    2
    """

    def __init__(self, values: Sequence[int]) -> None:
        assert values, "the least of nothing is undefined"
        self._size = len(values)
        self._tree = [0] * self._size + list(values)  # node i is the lesser of nodes 2i and 2i + 1
        for node in range(self._size - 1, 0, -1):
            self._tree[node] = min(self._tree[2 * node], self._tree[2 * node + 1])

    def __getitem__(self, index: int) -> int:
        return self._tree[self._size + index]

    @property
    def least(self) -> int:
        """The least of all values."""
        return self._tree[1]

    def put(self, index: int, value: int) -> None:
        """Change one value; stop where its part of the tournament ends as before."""
        tree, node = self._tree, self._size + index
        tree[node] = value
        while node > 1:
            node >>= 1
            least = min(tree[2 * node], tree[2 * node + 1])
            if tree[node] == least:
                return
            tree[node] = least
