"""Which versions of the wire processes speak, and which one is spoken: with one another, and by all of a view.

Messages about views are for whoever is there, so each goes out in the newest version that its receiver and this process
both speak; to one that was never heard, in the oldest: of two that have a version in common, one begins with what the
other understands. The data of a view is in one version, which is decided together with the view: the newest that all of
its members speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from antiphon.protocol.membership.views import name_of
from antiphon.protocol.wire import VERSIONS, Codec, Malformed, Spoken


class WireVersions:
    """What this process speaks, and what others do."""

    def __init__(self, known: Mapping[int, type[Codec]] = VERSIONS) -> None:
        self.known = dict(known)
        self.spoken = Spoken.of(known)
        self._heard: dict[int, Spoken] = {}  # by name, what it said last; one that comes back may know fewer versions

    def hear(self, process: int, spoken: Spoken) -> None:
        """Note what a process says that it speaks; raise `Malformed` if none of it is spoken here."""
        name = name_of(process)
        if self._heard.get(name) == spoken:
            return
        if not self.spoken.shares(spoken):
            raise Malformed("other-version")
        self._heard[name] = spoken

    def towards(self, names: Iterable[int]) -> dict[int, list[int]]:
        """Return the versions in which something is said to these names, and to which of them."""
        by_version: dict[int, list[int]] = {}
        for name in names:
            theirs = self._heard.get(name)
            version = self.spoken.oldest if theirs is None else min(self.spoken.newest, theirs.newest)
            by_version.setdefault(version, []).append(name)
        return by_version


def version_of_view(members: Iterable[int], spoken: Mapping[int, Spoken]) -> int:
    """Return the version in which a view's members speak: the newest that all of them know."""
    return min(spoken[member].newest for member in members)


def understood(elders: Iterable[int], joiners: Iterable[int], spoken: Mapping[int, Spoken]) -> list[int]:
    """Leave out the joiners that have no version in common with one who stays, or with another that joins."""
    together, taken = {spoken[elder] for elder in elders}, []  # few of them, however many members there are
    for joiner in joiners:
        if all(spoken[joiner].shares(other) for other in together):
            together.add(spoken[joiner])
            taken.append(joiner)
    return taken
