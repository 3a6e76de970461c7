"""The matrices AL and PAL with their row minima kept up to date, so that a message costs O(n) and not O(n^2)."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.rules import rule


class Minima:
    """For each source k and member j, the number that j is known to expect next from k; and each source's least one."""

    def __init__(self, size: int) -> None:
        self.rows = [[1] * size for _ in range(size)]  # rows[k][j]
        self.least = [1] * size
        self.visits = 0  # entries looked at so far: the cost that the paper calls O(n)
        self._at_least = [size] * size  # how many entries of a row equal its minimum

    @rule("Section 4.4, minimum of AL; Section 5, cost")
    def raise_column(self, j: int, vector: Sequence[int]) -> list[int]:
        """Take what j says that it expects next from each source; give the sources whose minimum rose.

        A row is searched again only when the last of its entries at the minimum leaves it. The minimum of a source
        rises at most once for each of its PDUs, so that this too is O(n) per PDU.
        """
        risen = []
        size = len(vector)
        self.visits += size
        for k, number in enumerate(vector):
            row = self.rows[k]
            before = row[j]
            if number <= before:
                continue
            row[j] = number
            if before == self.least[k]:
                self._at_least[k] -= 1
                if self._at_least[k] == 0:
                    self.least[k] = min(row)
                    self._at_least[k] = row.count(self.least[k])
                    self.visits += 2 * size
                    risen.append(k)
        return risen
