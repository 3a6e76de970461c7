"""Who can work together when single links are broken: a set of names that all hear one another.

Every sign of life names those whom its sender does not hear. From these reports all come to the same choice: the
largest set in which everyone hears everyone; of equal ones that with the earlier names. That means taking out as few
names as possible so that no broken link is left, so the search branches on the name with the most of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from math import ceil
from typing import Final, TypeAlias

from antiphon.protocol.machine import SECOND, Duration, Instant

_Ends: TypeAlias = dict[int, Set[int]]  # of each name that has broken links: the names at their other ends

_LINKS_MAX: Final = 50_000  # to look at; after that, the best set found so far is taken


_CHOICES_MAX: Final = 8  # whose choice is remembered; a process asks about two or three sets of names at a time


class LinkReports:
    """The reports of who does not hear whom, and the choice that follows, which is computed once for each change."""

    def __init__(self, now: Instant = 0) -> None:
        self.unheard: dict[int, frozenset[int]] = {}  # by the name that reports; who hears all is not in it
        self.changed_at: Instant = now - SECOND  # when a link first broke or was mended of late
        self._same_news_until: Instant = now
        self._chosen: dict[tuple[int, ...], tuple[int, ...]] = {}

    def put(self, name: int, unheard: frozenset[int]) -> None:
        """Take a name's report."""
        if unheard != self.unheard.get(name, frozenset()):
            self.unheard[name] = unheard
            if not unheard:
                del self.unheard[name]
            self._chosen.clear()

    def note_change(self, now: Instant, reporting_ns: Duration) -> None:
        """Note that a link broke or was mended: what is told of it for a while is the same news."""
        if now >= self._same_news_until:
            self.changed_at, self._same_news_until = now, now + max(SECOND, 2 * reporting_ns)

    def connected(self, names: tuple[int, ...]) -> tuple[int, ...]:
        """Return the largest set of some names that all hear one another."""
        if not self.unheard:
            return names
        if names not in self._chosen:
            if len(self._chosen) == _CHOICES_MAX:
                self._chosen.clear()
            self._chosen[names] = connected(names, self.unheard)
        return self._chosen[names]

    def in_touch_with(self, name: int, names: Iterable[int]) -> frozenset[int]:
        """Name those of some names that hear another and are heard by it, as they report, and that one itself."""
        unheard = self.unheard.get(name, frozenset())
        deaf = frozenset(other for other, silent in self.unheard.items() if name in silent)
        return frozenset(names) - unheard - deaf

    def fits(self, name: int, others: Collection[int]) -> bool:
        """Say whether no link between a name and some others is reported as broken, one way or the other."""
        others = {other for other in others if other != name}
        unheard = self.unheard.get(name, frozenset())
        reporting = others & self.unheard.keys()
        return unheard.isdisjoint(others) and not any(name in self.unheard[other] for other in reporting)


def connected(names: Sequence[int], unheard: Mapping[int, Collection[int]]) -> tuple[int, ...]:
    """Return the largest set of names that all hear one another, in their order.

    `unheard` says, for the names that have reported, whom they do not hear; links of which nobody reports are whole.
    """
    ends: dict[int, set[int]] = {}
    for one, other in broken_links(names, unheard):
        ends.setdefault(one, set()).add(other)
        ends.setdefault(other, set()).add(one)
    if not ends:
        return tuple(names)
    gone = _fewest_to_take_out({**ends}, {name: order for order, name in enumerate(names)})
    return tuple(name for name in names if name not in gone)


def broken_links(names: Collection[int], unheard: Mapping[int, Collection[int]]) -> Iterator[tuple[int, int]]:
    """Name the links among some names that are broken: (from, to), for each who is not heard and by whom."""
    among = frozenset(names)
    for name in among.intersection(unheard):
        for other in unheard[name]:
            if other in among and other != name:
                yield other, name


def _fewest_to_take_out(ends: _Ends, order: Mapping[int, int]) -> frozenset[int]:
    """Return the names without which no broken link is left: as few as possible; of as many, later ones.

    Either the name with the most broken links goes, or all at their other ends do. The first way is gone to its end
    first, so that one set is found soon. What was taken out never grows beyond the best: at least as many more must go
    as it takes to take out all links that are left, the most of them each time.
    """
    best: frozenset[int] | None = None
    looked_at = 0
    ways: list[tuple[frozenset[int], _Ends, Set[int]]] = [(frozenset(), ends, frozenset())]  # gone, ends, and who goes
    while ways:
        gone, ends, going = ways.pop()
        if best is not None and len(gone) + len(going) > len(best):
            continue
        gone, ends = gone | going, _without(going, ends)
        if not ends:
            if best is None or _rank(gone, order) > _rank(best, order):
                best = gone
            continue
        links = sum(map(len, ends.values())) // 2
        most, _, worst = max((len(others), order[name], name) for name, others in ends.items())
        looked_at += links
        if best is None or (looked_at <= _LINKS_MAX and len(gone) + ceil(links / most) <= len(best)):
            if looked_at <= _LINKS_MAX:
                ways.append((gone, ends, ends[worst]))
            ways.append((gone, ends, {worst}))
    assert best is not None, "without all names there are no links"
    return best


def _without(going: Set[int], ends: _Ends) -> _Ends:
    """Return what is left of the broken links when these names go."""
    left = {name: others for name, others in ends.items() if name not in going}
    for name in {other for gone in going for other in ends[gone]}.difference(going):
        rest = left[name] - going
        if rest:
            left[name] = rest
        else:
            del left[name]
    return left


def _rank(gone: frozenset[int], order: Mapping[int, int]) -> tuple[int, list[int]]:
    return -len(gone), sorted(order[name] for name in gone)
