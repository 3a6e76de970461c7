"""The occurrences of a run while they are told: each is told once, as a cause or as a consequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from antiphon.pipeline.results import ProcessRow, ViewRow
from antiphon.protocol.membership.views import incarnation_of
from antiphon.report.facts import Facts
from antiphon.report.incidents import phrases
from antiphon.report.member_names import lane_of, members_named
from antiphon.report.timeline import Occurrence, ended_at, gone, is_down, since_start, timeline
from antiphon.wording import number

SOON_NS: Final = 2_000_000_000  # what follows a fault comes within this time of its end
NEAR_NS: Final = 1_000_000  # a recorded crash and the kill that the test meant are no further apart

_GRAVITY: Final = (
    "crashes", "crash", "halt", "partition", "split", "flapping", "unread", "outside", "absent", "loss", "breach",
    "cut", "exclusion", "vanishing", "unlogged", "short log", "slow", "storm", "link", "pause", "silence", "clock",
)  # fmt: skip


class Incident(msgspec.Struct, frozen=True):
    """One thing that happened, with its consequences."""

    kind: str
    at_ns: int | None
    text: str

    @property
    def rank(self) -> int:
        """The place in the order of gravity."""
        return _GRAVITY.index(self.kind) if self.kind in _GRAVITY else len(_GRAVITY)


def overlapping(groups: Iterable[list[Occurrence]]) -> Iterator[list[Occurrence]]:
    """Put what happened once to each of several members, at times that overlap, together."""
    once: list[Occurrence] = []
    for alike in groups:
        if len(alike) > 1:
            yield alike
        else:
            once += alike
    together: list[Occurrence] = []
    for one in sorted(once, key=lambda one: one.at_ns or 0):
        last = together[-1] if together else None
        if last is None or (last.until_ns is not None and last.until_ns < (one.at_ns or 0)):
            together.append(one)
            continue
        ends = last.until_ns, one.until_ns
        until = None if None in ends else max(end for end in ends if end is not None)
        members = tuple(sorted({*last.members, *one.members}))
        together[-1] = msgspec.structs.replace(last, members=members, until_ns=until, is_several=True)
    yield from ([one] for one in together)


class RunStory:
    """A run's occurrences and views; what has been told as a consequence is not told again."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.occurred = timeline(facts)
        self.views = sorted(facts.views, key=lambda one: (one.first_ns or 0, one.view))
        self._gone = gone(facts)
        self.told: set[int] = set()  # places in `occurred`

    def untold(self, *kinds: str) -> list[int]:
        """Return the places of what was not told yet, of some kinds."""
        return [place for place, one in enumerate(self.occurred) if one.kind in kinds and place not in self.told]

    def lanes(self, members: Sequence[int]) -> set[int]:
        """Return members by what their lives have in common."""
        return {lane_of(self.facts, member) for member in members}

    # members and their lives

    def process_of(self, one: Occurrence) -> ProcessRow | None:
        """Return the log whose end an occurrence is."""
        facts = self.facts
        if not one.members:
            return None
        ends = [row for row in self._gone if lane_of(facts, row.member) == lane_of(facts, one.members[0])]
        if one.basis != "injected":
            return next((row for row in ends if row.member == one.members[0]), None)
        near = [
            row for row in ends if (at := ended_at(facts, row)) is not None and abs(at - (one.at_ns or 0)) <= NEAR_NS
        ]
        return near[0] if near else None

    def next_life(self, row: ProcessRow) -> int | None:
        """Return the place of the occurrence in which a member is back for the first time after a log of it ended."""
        facts = self.facts
        for place, one in enumerate(self.occurred):
            came = one.kind in ("return", "join") and lane_of(facts, one.members[0]) == lane_of(facts, row.member)
            if came and self._is_next(row.member, one.members[0]):
                return place
        return None

    def _is_next(self, member: int, again: int) -> bool:
        return not self.facts.settings.views or incarnation_of(again) > incarnation_of(member)

    def returned(self, rows: Sequence[ProcessRow], *, forgets: bool = False) -> list[str]:
        """Say when members came back, and mark that as told."""
        facts = self.facts
        places = [(row, place) for row in rows if (place := self.next_life(row)) is not None]
        self.told.update(place for _, place in places)
        if not places:
            return []
        lengths = [
            back - ended
            for row, place in places
            if (back := self.occurred[place].at_ns) is not None and (ended := ended_at(facts, row)) is not None
        ]
        after = phrases.after(max(lengths), 0) if lengths else ""
        if len(rows) == 1:
            return [f"it was back{after}{', as a newcomer without its state' if forgets else ''}"]
        who = "all" if len(places) == len(rows) else members_named(facts, [row.member for row, _ in places])
        as_what = ", as newcomers without their state" if forgets else ""
        return [f"{who} {'was' if len(places) == 1 else 'were'} back{after}{as_what}"]

    def kept_out(self, rows: Sequence[ProcessRow]) -> list[str]:
        """Say that members which were started again did not get back into the group, and mark that as told."""
        facts, kept = self.facts, list[ProcessRow]()
        for row in rows:
            for place, one in enumerate(self.occurred):
                same = one.kind == "outside" and lane_of(facts, one.members[0]) == lane_of(facts, row.member)
                if same and self._is_next(row.member, one.members[0]):
                    self.told.add(place)
                    kept.append(row)
        if not kept:
            return []
        named = "they" if len(kept) == len(rows) else members_named(facts, [row.member for row in kept])
        who = "it was" if len(rows) == 1 else f"{named} were"
        return [f"{who} started again, but never got back into the group"]

    def excluded(self, excluded: Sequence[int], pronoun: str = "") -> str:
        """Say who was excluded, and how often; incarnations of one member are one."""
        lanes = Counter(lane_of(self.facts, member) for member in excluded)
        who = pronoun or members_named(self.facts, sorted(lanes))
        often = max(lanes.values())
        return f"{who} {'was' if len(lanes) == 1 else 'were'} excluded{f' {phrases.times(often)}' if often > 1 else ''}"

    def excluded_meanwhile(self, alike: Sequence[Occurrence], pronoun: str = "") -> list[str]:
        """Say who was excluded while something lasted and when the others went on, and mark that as told.

        `pronoun` names the only one whom it happened to, if nobody else was excluded.
        """
        excluded = [member for each in alike for member in self.consequences(each, ("exclusion",))]
        back = [member for each in alike for member in self.consequences(each, ("return",))]
        if not excluded:
            return []
        lanes, one = self.lanes(excluded), alike[0]
        itself = bool(pronoun) and lanes == self.lanes(one.members)
        said = f"{self.excluded(excluded, pronoun if itself else '')}"
        said += " and came back" if self.lanes(back) >= lanes else ""
        before = self.last_view(excluded[0], one.at_ns)
        after = self.view_without(excluded, before) if len(alike) == 1 and itself else None
        if before is None or after is None or len(before.members) < 3:
            return [said]
        others = number(len(set(before.members) & set(after.members)))
        return [f"the other {others} went on{phrases.after(since_start(self.facts, after.first_ns), one.at_ns)}", said]

    # views

    def last_view(self, member: int, at_ns: int | None) -> ViewRow | None:
        """Return the view in which a process was at some time."""
        before = [view for view in self.views if member in view.members]
        if at_ns is not None:
            before = [view for view in before if (since_start(self.facts, view.first_ns) or 0) <= at_ns] or before
        return before[-1] if before else None

    def last_view_of_lane(self, lane: int, at_ns: int | None) -> ViewRow | None:
        """Return the view in which a member was at some time, in whichever of its lives."""
        before = [
            view
            for view in self.views
            if lane in self.lanes(view.members)
            and (at_ns is None or (since_start(self.facts, view.first_ns) or 0) <= at_ns)
        ]
        return before[-1] if before else None

    def view_without(self, members: Sequence[int], before: ViewRow | None) -> ViewRow | None:
        """Return the first view that others of a view installed without some of its members."""
        if before is None:
            return None
        others = set(before.members) - set(members)
        for view in self.views[self.views.index(before) + 1 :]:
            if not set(members) & set(view.members) and others & set(view.members):
                return view
        return None

    def post(self, member: int, view: ViewRow | None) -> str:
        """Say that a member was the coordinator of its view, if it was."""
        first = view is not None and self.facts.settings.views and view.members[0] == member
        return ", the coordinator," if first else ""

    def post_of(self, one: Occurrence) -> str:
        """Say that the one whom something happened to was the coordinator then, if it was."""
        if len(one.members) != 1:
            return ""
        name = lane_of(self.facts, one.members[0])
        before = self.last_view_of_lane(name, one.at_ns)
        if before is None or lane_of(self.facts, before.members[0]) != name:
            return ""
        return self.post(before.members[0], before)

    def view_of_side(self, side: Sequence[int], one: Occurrence) -> ViewRow | None:
        """Return the first view that a side installed by itself while the network was cut."""
        for view in self.views:
            at = since_start(self.facts, view.first_ns)
            inside = at is not None and one.at_ns is not None and one.at_ns <= at <= (one.until_ns or at)
            if inside and self.lanes(view.members) <= set(side):
                return view
        return None

    def together_again(self, one: Occurrence) -> int | None:
        """Return when all sides were in one view again."""
        everyone = {member for side in one.sides for member in side}
        for view in self.views:
            at = since_start(self.facts, view.first_ns)
            names = self.lanes(view.members)
            if at is None or one.until_ns is None or at < one.until_ns:
                continue
            if all(name in names or is_down(self.facts, name, at) for name in everyone):
                return at
        return None

    def changed_during(self, one: Occurrence) -> bool:
        """Say whether a view was installed while it lasted, or soon after."""
        if one.at_ns is None:
            return True
        until = None if one.until_ns is None else one.until_ns + SOON_NS
        instants = [at for view in self.views if (at := since_start(self.facts, view.first_ns)) is not None]
        return any(at >= one.at_ns and (until is None or at <= until) for at in instants)

    # what follows from what

    def consequences(self, one: Occurrence, kinds: Sequence[str]) -> list[int]:
        """Mark what happened to those concerned from its beginning until shortly after its end; return to whom."""
        found: list[int] = []
        length = 0 if one.until_ns is None or one.at_ns is None else one.until_ns - one.at_ns
        concerned = self._concerned(one)
        until = None if one.until_ns is None else one.until_ns + max(length, SOON_NS)
        for place in self.untold(*kinds):
            other = self.occurred[place]
            if other.at_ns is None or one.at_ns is None:
                continue
            end = other.at_ns if other.until_ns is None else other.until_ns
            during = end >= one.at_ns and (until is None or other.at_ns <= until)
            if (
                during
                and (concerned is None or self.lanes(other.members) <= concerned)
                and not self._is_due_to_later(one, other)
            ):
                self.told.add(place)
                found += [member for member in other.members if member not in found]
        return found

    def _is_due_to_later(self, one: Occurrence, other: Occurrence) -> bool:
        """Say whether something was over when another happened, which a later fault explains as well."""
        if one.until_ns is None or other.at_ns is None or other.at_ns < one.until_ns:
            return False
        return any(
            later.at_ns is not None
            and one.until_ns <= later.at_ns <= other.at_ns
            and ((concerned := self._concerned(later)) is None or self.lanes(other.members) <= concerned)
            for later in self.occurred
            if later.basis == "injected" and later.kind in ("partition", "cut", "pause") and later.sides != one.sides
        )

    def _concerned(self, one: Occurrence) -> set[int] | None:
        """Return whom something can have consequences for; None: for all, since it befell half of the view or more."""
        names = self.lanes([member for side in one.sides or (one.members,) for member in side])
        view = self.last_view_of_lane(next(iter(names)), one.at_ns) if names else None
        return None if view is not None and 2 * len(names) >= len(view.members) else names

    def clusters(self, kind: str) -> Iterator[list[int]]:
        """Yield the places of occurrences of a kind that follow each other closely, two or more together."""
        cluster: list[int] = []
        for place in self.untold(kind):
            at, last = self.occurred[place].at_ns, self.occurred[cluster[-1]].at_ns if cluster else None
            if cluster and (at is None or last is None or at - last > SOON_NS):
                if len(cluster) > 1:
                    yield cluster
                cluster = []
            cluster.append(place)
        if len(cluster) > 1:
            yield cluster
