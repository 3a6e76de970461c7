"""Who can work together when single links are broken: a set of names that all hear one another.

Every sign of life names those whom its sender does not hear. From these reports all come to the same choice: the
largest set in which everyone hears everyone; of equal ones that with the earlier names. To find it is to take out as
few names as possible so that no broken link is left, so the search branches on the name with the most of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

_LINKS_MAX: Final = 50_000  # looked at; then the best set that was found stands: everyone in it hears everyone too


def connected(names: Sequence[int], unheard: Mapping[int, Collection[int]]) -> tuple[int, ...]:
    """Return the largest set of names that all hear one another, in their order.

    `unheard` says, for the names that have reported, whom they do not hear; links of which nobody reports are whole.
    """
    links = set(broken_links(names, unheard))
    if not links:
        return tuple(names)
    search = _Search({name: order for order, name in enumerate(names)})
    search.run(frozenset(names), links)
    return tuple(name for name in names if name in search.best)


def broken_links(names: Collection[int], unheard: Mapping[int, Collection[int]]) -> Iterator[tuple[int, int]]:
    """Name the links among some names that are broken: (from, to), for each who is not heard and by whom."""
    among = frozenset(names)
    for name in among.intersection(unheard):
        for other in unheard[name]:
            if other in among and other != name:
                yield other, name


class _Search:
    """Takes names out until no broken link is left, one way and the other, and keeps the best set that remains."""

    def __init__(self, order: Mapping[int, int]) -> None:
        self._order, self._looked_at = order, 0
        self.best: frozenset[int] = frozenset()

    def run(self, names: frozenset[int], links: set[tuple[int, int]]) -> None:
        """Look for the best set among these names."""
        self._looked_at += len(links)
        if len(names) < len(self.best) or (self._looked_at > _LINKS_MAX and self.best):
            return
        if not links:
            if self._rank(names) > self._rank(self.best):
                self.best = names
            return
        ends: dict[int, set[int]] = {name: set() for name in names}
        for one, other in links:
            ends[one].add(other)
            ends[other].add(one)
        worst = max(names, key=lambda name: (len(ends[name]), self._order[name]))
        for gone in ({worst}, ends[worst]):
            self.run(names - gone, {link for link in links if not gone.intersection(link)})

    def _rank(self, names: frozenset[int]) -> tuple[int, list[int]]:
        return len(names), [-order for order in sorted(self._order[name] for name in names)]
