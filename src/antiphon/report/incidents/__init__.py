"""What happened to the group, told in sentences: each cause with what followed from it, the gravest first in rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from antiphon.pipeline.results import ProcessRow, ViewRow
from antiphon.protocol.membership.views import incarnation_of
from antiphon.report.facts import Facts
from antiphon.report.member_names import after_lives, begin, lane_of, member_name, members_named
from antiphon.report.timeline import Occurrence, cut_sides, ended_at, gone, is_down, names_in, since_start, timeline
from antiphon.wording import count, duration, listed, number

HEADLINE_MAX: Final = 2  # incidents that the headline tells; the others are told below it
TOLD_MAX: Final = 8  # below it
FLAPPING_MIN: Final = 3  # departures of one member that are told as one story
SOON_NS: Final = 2_000_000_000  # what follows a fault comes within this time of its end
NEAR_NS: Final = 1_000_000  # a recorded crash and the kill that the test meant are no further apart
STORM_PER_MESSAGE: Final = 1.0  # repairs for each message and member that had to receive it
SLOW_NS_MIN: Final = 100_000_000
SERIES_MAX: Final = 4  # members that the sentence on a series of crashes names

_GRAVITY: Final = (
    "crashes", "crash", "partition", "split", "flapping", "outside", "loss", "cut", "exclusion", "slow", "storm",
    "link", "pause", "silence", "clock",
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


def headline_of(found: Sequence[Incident]) -> str:
    """Tell the gravest, in order of time, and how many more there are."""
    later = beyond_headline(found)
    said = [f"{one.text}." for one in found if one not in later]
    more = [one for one in later if not (one.kind == "crash" and _is_series(found))]  # those are part of what is said
    return " ".join([*said, *([f"And {count(len(more), 'more thing')} happened."] if more else [])])


def _is_series(found: Sequence[Incident]) -> bool:
    return any(one.kind == "crashes" for one in found)


def beyond_headline(found: Sequence[Incident]) -> list[Incident]:
    """Return what is left to be told below the headline."""
    summed = _is_series(found)  # then each crash is told below
    first = sorted((one for one in found if not (summed and one.kind == "crash")), key=lambda one: one.rank)
    first = first[:HEADLINE_MAX]
    return [one for one in found if one not in first]


def incidents(facts: Facts) -> list[Incident]:
    """Return what happened, in order of time; told once, with the cause if it is known."""
    found = [*_Teller(facts).tell(), *_storm(facts), *_slow(facts), *_lost(facts)]
    found = [msgspec.structs.replace(one, text=begin(facts, after_lives(one.text))) for one in found]
    return sorted(found, key=lambda one: (one.at_ns is None, one.at_ns or 0, one.rank))


class _Crash(msgspec.Struct):
    """Members that ended together: in the same view, which the same view followed."""

    occurred: list[Occurrence]
    rows: list[ProcessRow]
    before: ViewRow | None
    after: ViewRow | None

    def add(self, one: Occurrence, row: ProcessRow) -> None:
        """Add one more."""
        self.occurred.append(one)
        self.rows.append(row)

    @property
    def cut_short(self) -> bool:
        """Whether perhaps only their logs ended: the others never went on without them."""
        return self.before is not None and self.after is None and all(row.ending is None for row in self.rows)

    def does(self) -> str:
        """Say how they ended."""
        if all(one.basis == "injected" for one in self.occurred):
            return "killed"
        return "crashed" if all(row.ending == "crash" for row in self.rows) else "fell silent"


class _Teller:
    """Tells each occurrence once: what has been told as a consequence is not told again."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.occurred = timeline(facts)
        self.views = sorted(facts.views, key=lambda one: (one.first_ns or 0, one.view))
        self.told: set[int] = set()  # places in `occurred`

    def tell(self) -> Iterator[Incident]:
        """Yield all incidents, causes before what only followed."""
        yield from self._crashes()
        for kind in ("partition", "cut", "link", "pause"):
            for alike in self._alike(kind):
                tell = self._partition if kind == "partition" else self._hindrance
                yield Incident(kind, alike[0].at_ns, tell(alike))
        yield from self._flapping()
        yield from self._rest()

    def _alike(self, kind: str) -> Iterator[list[Occurrence]]:
        """Yield what a test did to the same members again and again, together."""
        groups: dict[tuple[object, ...], list[Occurrence]] = {}
        for place, one in enumerate(self.occurred):
            if one.kind == kind and one.basis == "injected" and place not in self.told:
                self.told.add(place)
                groups.setdefault((one.sides, one.members, one.one_way, one.by), []).append(one)
        yield from groups.values()

    # causes

    def _crashes(self) -> Iterator[Incident]:
        """Tell of crashes, those together that the same view answers; of many, all in one sentence first."""
        found: dict[int, tuple[Occurrence, ProcessRow]] = {}
        for place, one in enumerate(self.occurred):
            if one.kind not in ("crash", "silent end"):
                continue
            self.told.add(place)
            row = self._process_of(one)
            if row is not None:  # the kill and the row that records it are one
                if row.member not in found or one.basis == "injected":
                    found[row.member] = one, row
            elif one.members:  # a kill that the trace does not show: it was not running, or its log is elsewhere
                yield Incident("crash", one.at_ns, f"{member_name(self.facts, one.members[0])} was killed{_at(one)}")
        groups: list[_Crash] = []
        for one, row in sorted(found.values(), key=lambda pair: pair[0].at_ns or 0):
            before = self._last_view(row.member, ended_at(self.facts, row))
            after = self._view_without(row.member, before)
            last = groups[-1] if groups else None
            together = last is not None and last.before is before and last.after is after
            if last is not None and together and (one.at_ns or 0) - (last.occurred[-1].at_ns or 0) <= SOON_NS:
                last.add(one, row)
            else:
                groups.append(_Crash([one], [row], before, after))
        if len(groups) > HEADLINE_MAX:
            yield self._many_crashes(groups)
        for group in groups:
            yield Incident("crash", group.occurred[0].at_ns, self._crash(group))

    def _crash(self, group: _Crash) -> str:
        facts, rows = self.facts, group.rows
        many = len(rows) > 1
        post = self._post(rows[0].member, group.before) if not many else ""
        does = group.does()
        who = members_named(facts, [row.member for row in rows])
        at = [occurred.at_ns for occurred in group.occurred if occurred.at_ns is not None]
        was = "" if does != "killed" else "were " if many else "was "
        said = [f"{who}{post} {was}{does}{_between(at)}"]
        if all(row.ending is None for row in rows):
            said[0] += " (their logs end without a word)" if many else " (its log ends without a word)"
        said += self._went_on(group)
        said += [] if group.cut_short else _left_behind(rows)
        said += self._returned(rows, forgets=any(occurred.forgets for occurred in group.occurred))
        said += self._kept_out(rows)
        return "; ".join(said)

    def _many_crashes(self, groups: Sequence[_Crash]) -> Incident:
        """Tell of a series of crashes in one sentence; each is told by itself below."""
        facts = self.facts
        rows = [row for group in groups for row in group.rows]
        times = [one.at_ns for group in groups for one in group.occurred if one.at_ns is not None]
        lanes = Counter(lane_of(facts, row.member) for row in rows)
        does = groups[0].does() if len({group.does() for group in groups}) == 1 else "ended"
        if len(lanes) == len(rows):
            said = (
                f"{members_named(facts, sorted(lanes))} {'were ' if does == 'killed' else ''}{does} one after the other"
            )
        else:
            each = [f"{member_name(facts, lane)} {_times(many)}" for lane, many in sorted(lanes.items())]
            named = f" ({listed(each)})" if len(each) <= SERIES_MAX else f" ({count(len(each), 'member')})"
            said = f"{number(len(rows))} times a member {'was ' if does == 'killed' else ''}{does}{named}"
        said += f", from {duration(min(times))} to {duration(max(times))}" if times else ""
        after = [
            since - at
            for group in groups
            if (since := None if group.after is None else since_start(facts, group.after.first_ns)) is not None
            and (at := ended_at(facts, group.rows[-1])) is not None
        ]
        if len(after) == len(groups):
            said += f"; the others went on each time, after {duration(max(0, *after))} at most"
        elif facts.settings.views:
            said += f"; the others went on {_times(len(after))} of {number(len(groups))}"
        back = sum(self._next_life(row) is not None for row in rows)
        said += "; all came back" if back == len(rows) else f"; {number(back)} came back" if back else ""
        return Incident(
            "crashes", groups[0].occurred[0].at_ns, "; ".join([said, *_left_behind(rows, always_many=True)])
        )

    def _partition(self, alike: Sequence[Occurrence]) -> str:
        facts, one = self.facts, alike[-1]
        parts = " | ".join(members_named(facts, side) for side in one.sides)
        said = [f"the network was cut into {parts}{_spans(alike)}"]
        went_on = {side: view for side in one.sides if (view := self._view_of_side(side, one)) is not None}
        for view in went_on.values():
            after = _after(since_start(facts, view.first_ns), one.at_ns)
            said.append(f"{members_named(facts, sorted(view.members))} went on{after}")
        excluded = [member for each in alike for member in self._consequences(each, ("exclusion",))]
        if facts.settings.views and not went_on:
            said.append("no side went on by itself" if self._changed_during(one) else "no side changed its view")
        elif facts.settings.views and not excluded:
            said += [f"{members_named(facts, side)} did not" for side in one.sides if side not in went_on]
        if excluded:
            said.append(self._excluded(excluded))
        together = self._together_again(one)
        if one.until_ns is not None and (went_on or excluded):
            healed = f"all were together again{_after(together, one.until_ns)}"
            said.append(healed if together is not None else "they did not all come together again")
        for each in alike:
            self._consequences(each, ("return", "merge", "split", "silence"))
        return "; ".join(said)

    def _hindrance(self, alike: Sequence[Occurrence]) -> str:
        facts, one = self.facts, alike[0]
        if one.kind == "cut":
            way = cut_sides(facts, one, "to" if one.one_way else "and")
            text = f"nothing got {'from' if one.one_way else 'between'} {way}{_spans(alike)}"
        elif one.kind == "link":
            text = f"the links from {cut_sides(facts, one, 'to')} had {one.by}{_spans(alike)}"
        else:
            before = self._last_view_of_lane(one.members[0], one.at_ns) if one.members else None
            first = one.members[0] if before is None else before.members[0]
            is_first = bool(one.members) and lane_of(facts, first) == one.members[0]
            post = self._post(first, before) if is_first and before is not None else ""
            text = f"{members_named(facts, one.members)}{post} stood still{_spans(alike)}"
        excluded = [member for each in alike for member in self._consequences(each, ("exclusion",))]
        back = [member for each in alike for member in self._consequences(each, ("return",))]
        for each in alike:
            self._consequences(each, ("silence",))
        if excluded:
            lanes = {lane_of(facts, member) for member in excluded}
            itself = one.kind == "pause" and lanes == set(one.members)
            text += f"; {self._excluded(excluded, pronoun='it' if itself else '')}"
            text += " and came back" if {lane_of(facts, member) for member in back} >= lanes else ""
        elif facts.settings.views and not any(self._changed_during(each) for each in alike):
            text += "; the view stayed"
        return text

    def _excluded(self, excluded: Sequence[int], pronoun: str = "") -> str:
        """Say who was excluded, and how often; incarnations of one member are one."""
        lanes = Counter(lane_of(self.facts, member) for member in excluded)
        who = pronoun or members_named(self.facts, sorted(lanes))
        often = max(lanes.values())
        return f"{who} {'was' if len(lanes) == 1 else 'were'} excluded{f' {_times(often)}' if often > 1 else ''}"

    def _post(self, member: int, view: ViewRow | None) -> str:
        """Say that a member was the coordinator of its view, if it was."""
        first = view is not None and self.facts.settings.views and view.members[0] == member
        return ", the coordinator," if first else ""

    def _changed_during(self, one: Occurrence) -> bool:
        """Say whether a view was installed while it lasted, or soon after."""
        if one.at_ns is None:
            return True
        until = None if one.until_ns is None else one.until_ns + SOON_NS
        times = [at for view in self.views if (at := since_start(self.facts, view.first_ns)) is not None]
        return any(at >= one.at_ns and (until is None or at <= until) for at in times)

    # what nobody said the cause of

    def _flapping(self) -> Iterator[Incident]:
        facts = self.facts
        for name in names_in(facts):
            places = [
                place
                for place, one in enumerate(self.occurred)
                if place not in self.told
                and one.kind in ("exclusion", "return", "join", "silence")
                and lane_of(facts, one.members[0]) == name
            ]
            out = [place for place in places if self.occurred[place].kind == "exclusion"]
            if len(out) >= FLAPPING_MIN:
                self.told.update(places)
                first, last = self.occurred[out[0]], self.occurred[out[-1]]
                text = f"{member_name(facts, name)} was excluded {number(len(out))} times and came back "
                text += (
                    f"{_times(len(places) - len(out))}, from {_moment(first.at_ns)} to {_moment(last.at_ns)}: it flaps"
                )
                yield Incident("flapping", first.at_ns, text)

    def _rest(self) -> Iterator[Incident]:
        facts = self.facts
        words = {
            "exclusion": "was excluded by the others",
            "leave": "left",
            "join": "joined",
            "return": "came back",
            "keys": "changed the group's keys",
        }
        self._leave_out_the_end()
        for kind, does in words.items():
            for places in self._clusters(kind):
                self.told.update(places)
                times = [at for place in places if (at := self.occurred[place].at_ns) is not None]
                every = [member for place in places for member in self.occurred[place].members]
                who = members_named(facts, sorted(set(every)))
                text = f"{who} {does.replace('was ', 'were ')}{_between(times)}"
                if kind == "leave":
                    text = "; ".join([text, *self._after_leaving(every)])
                if kind == "keys":
                    text += self._left_behind_by_keys(places)
                yield Incident(kind, self.occurred[places[0]].at_ns, text)
        yield from self._clocks()
        for place, one in enumerate(self.occurred):
            if place in self.told or one.kind == "view":
                continue
            self.told.add(place)
            if one.kind in words:
                before = self._last_view(one.members[0], one.at_ns)
                post = self._post(one.members[0], before) if one.kind == "leave" else ""
                text = f"{members_named(facts, one.members)}{post} {words[one.kind]}{_at(one)}"
                if one.kind == "leave":
                    text = "; ".join([text, *self._after_leaving(one.members)])
                if one.kind == "exclusion":
                    row = self._process_of(one)
                    text = "; ".join([text, *(self._returned([row], forgets=False) if row is not None else [])])
            elif one.kind == "silence":
                length = duration((one.until_ns or 0) - (one.at_ns or 0))
                text = f"{members_named(facts, one.members)} recorded nothing for {length} from {_moment(one.at_ns)} on"
                text += " (it stood still or was cut off: inferred from its log)"
            elif one.kind == "outside":
                text = f"{members_named(facts, one.members)} never got into the group: no view lists it "
                text += "(another key, other settings or no link would do that; inferred from the views)"
            elif one.kind == "clock":
                text = _past(one.text) + _at(one) + (" (inferred from its log)" if one.basis == "inferred" else "")
            else:
                text = _past(one.text) + _at(one) + (" (inferred from the views)" if one.basis == "inferred" else "")
            yield Incident(one.kind, one.at_ns, text)

    def _after_leaving(self, left: Sequence[int]) -> list[str]:
        """Say whether the others went on when members had left."""
        before = self._last_view(left[-1], None)
        others = [] if before is None else [member for member in before.members if member not in left]
        if not others or not self.facts.settings.views:
            return []
        followed = self._view_without(left[-1], before) is not None
        return [f"the other {number(len(others))} {'went on' if followed else 'installed no view without it'}"]

    def _clusters(self, kind: str) -> Iterator[list[int]]:
        """Yield the places of occurrences of a kind that follow each other closely, two or more together."""
        untold = [place for place, one in enumerate(self.occurred) if one.kind == kind and place not in self.told]
        cluster: list[int] = []
        for place in untold:
            at, last = self.occurred[place].at_ns, self.occurred[cluster[-1]].at_ns if cluster else None
            if cluster and (at is None or last is None or at - last > SOON_NS):
                if len(cluster) > 1:
                    yield cluster
                cluster = []
            cluster.append(place)
        if len(cluster) > 1:
            yield cluster

    def _left_behind_by_keys(self, places: Sequence[int]) -> str:
        """Say which members of the view did not change keys when the others did."""
        changed = {lane_of(self.facts, member) for place in places for member in self.occurred[place].members}
        at = self.occurred[places[-1]].at_ns
        view = self._last_view_of_lane(next(iter(changed)), at)
        others = [] if view is None else [one for one in view.members if lane_of(self.facts, one) not in changed]
        return f"; {members_named(self.facts, others)} did not" if others else ""

    def _clocks(self) -> Iterator[Incident]:
        """Tell of clocks that are off from the others', several in one sentence."""
        facts = self.facts
        off = {row.member: row.clock_off_ns for row in facts.processes if row.clock_off_ns is not None}
        places = [
            place
            for place, one in enumerate(self.occurred)
            if one.kind == "clock" and one.basis == "inferred" and place not in self.told and "others'" in one.text
        ]
        if not places:
            return
        self.told.update(places)
        members = [self.occurred[place].members[0] for place in places]
        ahead, behind = ([off[member] for member in members if off[member] * sign > 0] for sign in (1, -1))
        ways = [f"up to {duration(max(ahead))} ahead of"] if ahead else []
        ways += [f"up to {duration(-min(behind))} behind"] if behind else []
        if len(members) == 1:
            text = _past(self.occurred[places[0]].text)
        else:
            text = f"the clocks of {members_named(facts, members)} were {listed(ways)} the others'"
        yield Incident("clock", self.occurred[places[0]].at_ns, f"{text} (inferred from when they installed views)")

    def _leave_out_the_end(self) -> None:
        """Take it for the end of the run, no incident, where all who were left leave one after the other."""
        if any(row.ending == "end" for row in self.facts.processes) or not self.views:
            return
        last = {member for place, one in enumerate(self.occurred) if one.kind == "leave" for member in one.members}
        if set(self.views[-1].members) <= last:
            self.told.update(place for place, one in enumerate(self.occurred) if one.kind == "leave")

    # looking around

    def _process_of(self, one: Occurrence) -> ProcessRow | None:
        """Return the log whose end an occurrence is."""
        facts = self.facts
        if not one.members:
            return None
        ends = [row for row in gone(facts) if lane_of(facts, row.member) == lane_of(facts, one.members[0])]
        if one.basis != "injected":
            return next((row for row in ends if row.member == one.members[0]), None)
        near = [
            row for row in ends if (at := ended_at(facts, row)) is not None and abs(at - (one.at_ns or 0)) <= NEAR_NS
        ]
        return near[0] if near else None

    def _last_view(self, member: int, at_ns: int | None) -> ViewRow | None:
        before = [view for view in self.views if member in view.members]
        if at_ns is not None:
            before = [view for view in before if (since_start(self.facts, view.first_ns) or 0) <= at_ns] or before
        return before[-1] if before else None

    def _view_without(self, member: int, before: ViewRow | None) -> ViewRow | None:
        """Return the first view that others of a view installed without a member."""
        if before is None:
            return None
        others = set(before.members) - {member}
        for view in self.views[self.views.index(before) + 1 :]:
            if member not in view.members and others & set(view.members):
                return view
        return None

    def _last_view_of_lane(self, lane: int, at_ns: int | None) -> ViewRow | None:
        """Return the view in which a member was at some time, in whichever of its lives."""
        before = [
            view
            for view in self.views
            if lane in {lane_of(self.facts, member) for member in view.members}
            and (at_ns is None or (since_start(self.facts, view.first_ns) or 0) <= at_ns)
        ]
        return before[-1] if before else None

    def _went_on(self, group: _Crash) -> list[str]:
        """Say how the others went on."""
        facts, before, gone_now = self.facts, group.before, {row.member for row in group.rows}
        if before is None:
            it = "they" if len(gone_now) > 1 else "it"
            stayed = "members" if len(gone_now) > 1 else "a member"
            fixed = not facts.settings.views and not facts.views
            return [f"membership is fixed, so {it} stayed {stayed}"] if fixed else []
        others = [member for member in before.members if member not in gone_now]
        who = f"the other {number(len(others))}"
        if group.after is not None:
            still = [member for member in group.after.members if member in others]
            who = who if len(still) == len(others) else f"{number(len(still))} of the other {number(len(others))}"
            at, ended = since_start(facts, group.after.first_ns), ended_at(facts, group.rows[-1])
            if at is not None and ended is not None and at < ended:
                return [f"{who} had gone on without {'them' if len(gone_now) > 1 else 'it'} at {duration(at)}"]
            return [f"{who} went on{_after(at, ended)}"]
        if not others:
            return ["nobody was left"] if len(before.members) > 1 else []
        if 2 * len(others) <= len(before.members):
            return [f"{who} could not go on: {len(others)} of {len(before.members)} is no majority"]
        it, its = ("them", "their logs were") if len(gone_now) > 1 else ("it", "its log was")
        if group.cut_short:
            return [f"the others kept {it} in the view: perhaps only {its} cut short (a full disk, a missing file)"]
        return [f"the others installed no view without {it}"]

    def _next_life(self, row: ProcessRow) -> int | None:
        """Return the place of the occurrence in which a member is back for the first time after a log of it ended."""
        facts = self.facts
        for place, one in enumerate(self.occurred):
            came = one.kind in ("return", "join") and lane_of(facts, one.members[0]) == lane_of(facts, row.member)
            if came and _is_next(facts, row.member, one.members[0]):
                return place
        return None

    def _returned(self, rows: Sequence[ProcessRow], *, forgets: bool) -> list[str]:
        """Say when members came back, and mark that as told."""
        facts = self.facts
        places = [(row, place) for row in rows if (place := self._next_life(row)) is not None]
        self.told.update(place for _, place in places)
        if not places:
            return []
        after = [_after(self.occurred[place].at_ns, ended_at(facts, row)) for row, place in places]
        if len(rows) == 1:
            return [f"it was back{after[0]}{', as a newcomer without its state' if forgets else ''}"]
        who = "all" if len(places) == len(rows) else members_named(facts, [row.member for row, _ in places])
        as_what = ", as newcomers without their state" if forgets else ""
        return [f"{who} {'was' if len(places) == 1 else 'were'} back{after[-1]}{as_what}"]

    def _kept_out(self, rows: Sequence[ProcessRow]) -> list[str]:
        """Say that members which were started again did not get back into the group, and mark that as told."""
        facts, kept = self.facts, list[ProcessRow]()
        for row in rows:
            for place, one in enumerate(self.occurred):
                same = one.kind == "outside" and lane_of(facts, one.members[0]) == lane_of(facts, row.member)
                if same and _is_next(facts, row.member, one.members[0]):
                    self.told.add(place)
                    kept.append(row)
        if not kept:
            return []
        who = (
            "it"
            if len(rows) == 1
            else "they"
            if len(kept) == len(rows)
            else members_named(facts, [r.member for r in kept])
        )
        return [f"{who} {'was' if len(rows) == 1 else 'were'} started again, but never got back into the group"]

    def _view_of_side(self, side: Sequence[int], one: Occurrence) -> ViewRow | None:
        """Return the first view that a side installed by itself while the network was cut."""
        for view in self.views:
            at = since_start(self.facts, view.first_ns)
            names = {lane_of(self.facts, member) for member in view.members}
            inside = at is not None and one.at_ns is not None and one.at_ns <= at <= (one.until_ns or at)
            if inside and names <= set(side):
                return view
        return None

    def _together_again(self, one: Occurrence) -> int | None:
        """Return when all sides were in one view again."""
        everyone = {member for side in one.sides for member in side}
        for view in self.views:
            at = since_start(self.facts, view.first_ns)
            names = {lane_of(self.facts, member) for member in view.members}
            if at is None or one.until_ns is None or at < one.until_ns:
                continue
            if all(name in names or is_down(self.facts, name, at) for name in everyone):
                return at
        return None

    def _consequences(self, one: Occurrence, kinds: Sequence[str]) -> list[int]:
        """Mark what happened to those concerned from its beginning until shortly after its end; return to whom."""
        found: list[int] = []
        length = 0 if one.until_ns is None or one.at_ns is None else one.until_ns - one.at_ns
        concerned = {lane_of(self.facts, member) for side in one.sides or (one.members,) for member in side}
        until = None if one.until_ns is None else one.until_ns + max(length, SOON_NS)
        for place, other in enumerate(self.occurred):
            if other.kind not in kinds or place in self.told or other.at_ns is None or one.at_ns is None:
                continue
            end = other.at_ns if other.until_ns is None else other.until_ns
            names = {lane_of(self.facts, member) for member in other.members}
            if end >= one.at_ns and (until is None or other.at_ns <= until) and names <= concerned:
                self.told.add(place)
                found += [member for member in other.members if member not in found]
        return found


def _is_next(facts: Facts, member: int, again: int) -> bool:
    return not facts.settings.views or incarnation_of(again) > incarnation_of(member)


def _left_behind(rows: Sequence[ProcessRow], *, always_many: bool = False) -> list[str]:
    """Say what was lost with members."""
    if any(row.undelivered is None or row.alone is None for row in rows):
        return []
    many = len(rows) > 1 or always_many
    undelivered, alone = sum(row.undelivered or 0 for row in rows), sum(row.alone or 0 for row in rows)
    if undelivered:
        whose = "theirs" if many else "it"
        said = f"{count(undelivered, 'message')} of {whose} {'was' if undelivered == 1 else 'were'} never delivered"
    else:
        said = f"no message of {'theirs' if many else 'it'} was lost"
    return [said, f"what {'they' if many else 'it'} had delivered alone: {alone:,}"]


def _storm(facts: Facts) -> Iterator[Incident]:
    """Tell of far more repairs than there was anything to repair."""
    measured = facts.measured
    if measured is None or measured.retransmissions is None:
        return
    sent, others = measured.rows.get("send", 0), max(facts.members - 1, 1)
    again = measured.retransmissions
    if sent and again >= STORM_PER_MESSAGE * sent * others:
        text = (
            f"repairs became a storm: {count(again, 'repair')} for {count(sent, 'message')} of {facts.members} members"
        )
        yield Incident("storm", None, f"{text}, {again / sent:,.1f} for each")


def _lost(facts: Facts) -> Iterator[Incident]:
    """Tell what members lack that others delivered, as far as all of it is shown to be at one of them."""
    found = None if facts.checked is None else facts.checked.guarantees.get("agreement")
    if found is None or not found.violations:
        return
    who = sorted({witness.member for witness in found.witnesses})
    senders = {event.sender for witness in found.witnesses for event in witness.events if event.sender is not None}
    whose = f" of {member_name(facts, next(iter(senders)))}" if len(senders) == 1 else ""
    shown, all_ = len(found.witnesses), found.violations
    if shown == all_ and len(who) == 1:
        text = f"{member_name(facts, who[0])} lacks {count(all_, 'message')}{whose} that others delivered"
    else:
        text = f"{count(all_, 'delivery', 'deliveries')} of messages{whose} that others delivered "
        text += f"{'is' if all_ == 1 else 'are'} missing{f'; the first {shown} of them' if shown < all_ else ','}"
        text += f" at {members_named(facts, who)}"
    yield Incident("loss", None, text)


def _slow(facts: Facts) -> Iterator[Incident]:
    """Tell of one member for which all others waited much longer than for anybody else."""
    measured = facts.measured
    if measured is None or not measured.held_back:
        return
    first, *rest = measured.held_back
    if lane_of(facts, first.member) in {
        lane_of(facts, member) for one in timeline(facts) if one.kind in _EXPLAINS for member in one.members
    }:
        return  # it is told why
    stands_out = first.waited_ns >= 3 * max([1, *(row.waited_ns for row in rest if row.run == first.run)])
    usually_last = 2 * (first.last + first.lacked) >= measured.rows.get("send", 0)
    if stands_out and usually_last and first.longest_ns >= SLOW_NS_MIN:
        text = f"{member_name(facts, first.member)} held the others up: they waited up to "
        text += f"{duration(first.longest_ns)} for it alone, over {count(first.last + first.lacked, 'message')}"
        yield Incident("slow", None, text)


_EXPLAINS: Final = ("crash", "silent end", "exclusion", "partition", "cut", "pause", "silence", "outside")
_PAST: Final = {
    "crashes": "crashed",
    "stops": "stopped",
    "splits": "split",
    "goes": "went",
    "comes": "came",
    "go": "went",
    "is": "was",
    "leaves": "left",
}


def _past(text: str) -> str:
    return " ".join(_PAST.get(word, word) for word in text.split(" "))


def _times(value: int) -> str:
    return ("never", "once", "twice")[value] if value < 3 else f"{number(value)} times"


def _moment(at_ns: int | None) -> str:
    return "an unknown time" if at_ns is None else duration(at_ns)


def _at(one: Occurrence) -> str:
    return "" if one.at_ns is None else f" at {duration(one.at_ns)}"


def _after(at_ns: int | None, since_ns: int | None) -> str:
    return "" if at_ns is None or since_ns is None else f" after {duration(max(at_ns - since_ns, 0))}"


def _between(times: Sequence[int]) -> str:
    """Say when several things happened: at one time, or between two."""
    first, last = (duration(end(times, default=0)) for end in (min, max))
    return "" if not times else f" at {first}" if first == last else f" between {first} and {last}"


def _spans(alike: Sequence[Occurrence]) -> str:
    """Say when something lasted; of what was repeated, how often and from when to when."""
    if len(alike) == 1:
        return _span(alike[0])
    ends = [one.until_ns for one in alike]
    last = max((end for end in ends if end is not None), default=None)
    until = "on" if last is None or None in ends else f"to {duration(last)}"
    return f" {_times(len(alike))} from {_moment(alike[0].at_ns)} {until}"


def _span(one: Occurrence) -> str:
    if one.at_ns is None:
        return ""
    begins = duration(one.at_ns) if one.at_ns else "the beginning"
    return f" from {begins} " + ("on" if one.until_ns is None else f"to {duration(one.until_ns)}")
