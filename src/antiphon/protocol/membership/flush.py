"""The end of a view: what a stopped member holds, and how all deliver the same rest.

Everyone's set of held messages is closed under their dependencies and is, per sender, a prefix. So the union of such
sets, the greatest prefix per sender, is closed too: that is the cut. Whoever goes on fetches what it lacks of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import le

from antiphon.protocol.machine import Duration, Effect, Instant
from antiphon.protocol.membership.messages import Fetch, Fill, State
from antiphon.protocol.membership.views import Change, Cut, GroupView, name_of
from antiphon.protocol.options import GroupOptions, ordering_type
from antiphon.protocol.rules import rule
from antiphon.protocol.view.member import Member
from antiphon.protocol.wire import Malformed

FILL_BYTES_MAX = 32_000


class Flush:
    """What a stopped member still holds of its view, what it has fetched since, and what it still lacks of a cut."""

    def __init__(self, view: GroupView, member: Member, now: Instant) -> None:
        member.block()
        self.view, self.member, self.since = view, member, now
        self.reach = member.reach()  # when it stopped
        self.claim = member.ordering.claim()
        self._fetched: list[list[tuple[int, bytes]]] = [[] for _ in view.members]
        self._upto = list(self.reach)
        self.fetch_at: Instant | None = None  # when to ask again for what is missing
        self.fetching_since: Instant | None = None
        self._repetitions = 0

    @rule("docs/membership.md, agreement, commit")
    def lacking(self, cut: Cut) -> list[tuple[int, int, int]]:
        """List what is missing of a cut, as ranges of a rank's numbers (above, up to)."""
        if len(cut.reach) != len(self._upto):
            raise Malformed("impossible-cut")
        return [
            (rank, have, reach)
            for rank, (have, reach) in enumerate(zip(self._upto, cut.reach, strict=True))
            if have < reach
        ]

    def lies_within(self, cut: Cut) -> bool:
        """Say whether all that was held here belongs to a cut."""
        return len(cut.reach) == len(self.reach) and all(map(le, self.reach, cut.reach))

    def fetches(self, change: Change, retry_ns: Duration, now: Instant) -> Iterator[tuple[tuple[int, ...], Fetch]]:
        """Ask for what is missing of a cut: first those who said that they hold it, by name, then everyone."""
        ranges, first = self.lacking(change.cut), self._repetitions == 0
        if self.fetching_since is None:
            self.fetching_since = now
        self.fetch_at = now + (retry_ns << min(self._repetitions, 3))
        self._repetitions += 1
        if not first:  # the holder may be gone, but others may have fetched it too
            yield tuple(dict.fromkeys((*self.view.names, *change.new.names))), Fetch(change.old, ranges)
            return
        for holder in sorted({change.cut.holders[rank] for rank, _, _ in ranges}):
            yield (
                (name_of(holder),),
                Fetch(change.old, [part for part in ranges if change.cut.holders[part[0]] == holder]),
            )

    def fetched(self) -> None:
        """Stop asking: nothing is missing."""
        self.fetch_at = self.fetching_since = None

    def take(self, fill: Fill, now: Instant) -> bool:
        """Take what was fetched, if it is the next of its sender; say whether it was: then more may be on its way."""
        if fill.rank >= len(self._upto):
            raise Malformed("impossible-sender")
        have = self._upto[fill.rank]
        if not fill.above <= have < fill.upto:
            return False
        self._fetched[fill.rank] += (copy for copy in fill.pdus if copy[0] > have)
        self._upto[fill.rank] = fill.upto
        self._repetitions, self.fetching_since = 0, now
        return True

    def fills(self, fetch: Fetch) -> list[Fill]:
        """Give what another lacks, as far as it is held here."""
        fills, room = [], FILL_BYTES_MAX
        for rank, above, upto in fetch.ranges:
            if rank >= len(self._upto) or room <= 0:
                continue
            end = min(upto, self._upto[rank])
            kept: list[tuple[int, bytes]] = []
            for number, encoded in self._copies(rank, above, end):
                if room <= 0:
                    end = number - 1
                    break
                room -= len(encoded)
                kept.append((number, encoded))
            if above < end:
                fills.append(Fill(fetch.view, rank, above, end, kept))
        return fills

    def _copies(self, rank: int, above: int, upto: int) -> list[tuple[int, bytes]]:
        """Give what the member kept, then what it fetched."""
        own = self.member.copies(rank, above, min(upto, self.reach[rank]))
        return own + [(number, pdu) for number, pdu in self._fetched[rank] if above < number <= upto]

    def finish(self, cut: Cut, now: Instant) -> list[Effect]:
        """Deliver the rest of the view."""
        assert not self.lacking(cut), "a view ends with the whole cut"
        rest = [  # an earlier proposal's cut may have reached further
            (rank, encoded)
            for rank, (fetched, reach) in enumerate(zip(self._fetched, cut.reach, strict=True))
            for number, encoded in fetched
            if number <= reach
        ]
        return self.member.finish(cut.reach, cut.order, rest, now)


def cut_of(view: GroupView, config: GroupOptions, states: Mapping[int, State]) -> Cut:
    """Find what all that go on deliver: per sender the longest prefix that anyone who answered holds."""
    ranks = {rank: states[member] for rank, member in enumerate(view.members) if member in states}
    reach, holders = [], []
    for source, member in enumerate(view.members):
        best = max(ranks, key=lambda rank: ranks[rank].reach[source], default=None)
        reach.append(0 if best is None else ranks[best].reach[source])
        holders.append(member if best is None else view.members[best])
    order = ordering_type(config.ordering).settle(
        {rank: state.order for rank, state in ranks.items()}, safe=config.safe
    )
    return Cut(tuple(reach), tuple(holders), order)
