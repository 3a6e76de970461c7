"""What happened to the group, told in sentences: each cause with what followed from it, the gravest first in rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from antiphon.pipeline.results import ProcessRow, ViewRow
from antiphon.protocol.membership.views import incarnation_of
from antiphon.report.facts import Facts
from antiphon.report.member_names import begin, lane_of, member_name, members_named
from antiphon.report.timeline import Occurrence, ended_at, gone, is_down, names_in, since_start, timeline
from antiphon.wording import count, duration, number

HEADLINE_MAX: Final = 2  # incidents that the headline tells; the others are told below it
TOLD_MAX: Final = 8  # below it
FLAPPING_MIN: Final = 3  # departures of one member that are told as one story
SOON_NS: Final = 2_000_000_000  # what follows a fault comes within this time of its end
NEAR_NS: Final = 1_000_000  # a recorded crash and the kill that the test meant are no further apart
STORM_PER_MESSAGE: Final = 1.0  # repairs for each message and member that had to receive it
SLOW_NS_MIN: Final = 100_000_000

_GRAVITY: Final = (
    "crash", "partition", "split", "flapping", "outside", "loss", "cut", "exclusion", "slow", "storm", "pause",
    "silence", "clock",
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
    more = beyond_headline(found)
    said = [f"{one.text}." for one in found if one not in more]
    return " ".join([*said, *([f"And {count(len(more), 'more thing')} happened."] if more else [])])


def beyond_headline(found: Sequence[Incident]) -> list[Incident]:
    """Return what is left to be told below the headline."""
    first = sorted(found, key=lambda one: one.rank)[:HEADLINE_MAX]
    return [one for one in found if one not in first]


def incidents(facts: Facts) -> list[Incident]:
    """Return what happened, in order of time; told once, with the cause if it is known."""
    found = [*_Teller(facts).tell(), *_storm(facts), *_slow(facts), *_lost(facts)]
    found = [msgspec.structs.replace(one, text=begin(facts, one.text)) for one in found]
    return sorted(found, key=lambda one: (one.at_ns is None, one.at_ns or 0, one.rank))


class _Teller:
    """Tells each occurrence once: what has been told as a consequence is not told again."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.occurred = timeline(facts)
        self.views = sorted(facts.views, key=lambda one: (one.first_ns or 0, one.view))
        self.told: set[int] = set()  # places in `occurred`

    def tell(self) -> Iterator[Incident]:
        """Yield all incidents, causes before what only followed."""
        for kinds, tell in (
            (("crash", "silent end"), self._crash),
            (("partition",), self._partition),
            (("cut", "pause"), self._hindrance),
        ):
            for place, one in enumerate(self.occurred):
                if one.kind in kinds and place not in self.told and (one.basis == "injected" or kinds[0] == "crash"):
                    self.told.add(place)
                    text = tell(one)
                    if text:
                        yield Incident(kinds[0] if one.kind == "silent end" else one.kind, one.at_ns, text)
        yield from self._flapping()
        yield from self._rest()

    # causes

    def _crash(self, one: Occurrence) -> str:
        facts = self.facts
        row = self._process_of(one)
        if row is None:  # a kill that the trace does not show: it was not running, or its log is elsewhere
            return f"{member_name(facts, one.members[0])} was killed{_at(one)}" if one.members else ""
        for place, other in enumerate(self.occurred):  # the kill and the row that records it are one
            if other.kind in ("crash", "silent end") and self._process_of(other) == row:
                self.told.add(place)
                if other.basis == "injected":
                    one = other
        name = member_name(facts, row.member)
        before = self._last_view(row.member, ended_at(facts, row))
        post = ", the coordinator," if before and facts.settings.views and before.members[0] == row.member else ""
        does = "was killed" if one.basis == "injected" else "crashed" if row.ending == "crash" else "fell silent"
        said = [f"{name}{post} {does}{_at(one)}"]
        if row.ending is None:
            said[0] += " (its log ends without a word)"
        said += self._went_on(row, before, ended_at(facts, row))
        said += _left_behind(row)
        said += self._returned(row, forgets=one.forgets)
        return "; ".join(said)

    def _partition(self, one: Occurrence) -> str:
        facts = self.facts
        said = [f"the network was cut into {' | '.join(members_named(facts, side) for side in one.sides)}{_span(one)}"]
        went_on = [view for side in one.sides if (view := self._view_of_side(side, one)) is not None]
        for view in went_on:
            after = _after(since_start(facts, view.first_ns), one.at_ns)
            said.append(f"{members_named(facts, sorted(view.members))} went on{after}")
        excluded = self._consequences(one, ("exclusion",))
        if excluded:
            said.append(f"{members_named(facts, excluded)} {'was' if len(excluded) == 1 else 'were'} excluded")
        elif not went_on and facts.settings.views:
            said.append("no side changed its view")
        together = self._together_again(one)
        if went_on and one.until_ns is not None:
            healed = f"all were together again{_after(together, one.until_ns)}"
            said.append(healed if together is not None else "they did not come together again")
        self._consequences(one, ("return", "merge", "split", "silence"))
        return "; ".join(said)

    def _hindrance(self, one: Occurrence) -> str:
        facts = self.facts
        if one.kind == "cut":
            source, target = (members_named(facts, side) if side else "the others" for side in one.sides)
            text = f"nothing got from {source} to {target}{_span(one)}"
        else:
            text = f"{members_named(facts, one.members)} stood still{_span(one)}"
        excluded = self._consequences(one, ("exclusion",))
        back = self._consequences(one, ("return",))
        self._consequences(one, ("silence",))
        if excluded:
            text += f"; {members_named(facts, excluded)} {'was' if len(excluded) == 1 else 'were'} excluded"
            text += " and came back" if back else ""
        elif facts.settings.views and not self._changed_during(one):
            text += "; the view stayed"
        return text

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
        }
        self._leave_out_the_end()
        for kind, does in words.items():
            places = [place for place, one in enumerate(self.occurred) if one.kind == kind and place not in self.told]
            if len(places) > FLAPPING_MIN:
                self.told.update(places)
                first, last = self.occurred[places[0]], self.occurred[places[-1]]
                many = does.replace("was ", "were ")
                text = f"{count(len(places), 'member')} {many} between {_moment(first.at_ns)} and {_moment(last.at_ns)}"
                yield Incident(kind, first.at_ns, text)
        for place, one in enumerate(self.occurred):
            if place in self.told or one.kind == "view":
                continue
            self.told.add(place)
            if one.kind in words:
                text = f"{members_named(facts, one.members)} {words[one.kind]}{_at(one)}"
                if one.kind == "exclusion":
                    row = self._process_of(one)
                    text = "; ".join([text, *(self._returned(row, forgets=False) if row is not None else [])])
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

    def _went_on(self, row: ProcessRow, before: ViewRow | None, at_ns: int | None) -> list[str]:
        """Say how the others went on."""
        facts = self.facts
        if before is None:
            return [] if facts.settings.views else self._stays_listed(row)
        others = [member for member in before.members if member != row.member]
        for view in self.views[self.views.index(before) + 1 :]:
            still = [member for member in view.members if member in others]
            if row.member not in view.members and still:
                who = f"the other {number(len(others))}" if len(others) > 1 else "the other"
                who = who if len(still) == len(others) else f"{number(len(still))} of the other {number(len(others))}"
                return [f"{who} went on{_after(since_start(facts, view.first_ns), at_ns)}"]
        return ["the others installed no view without it"] if others else []

    def _stays_listed(self, row: ProcessRow) -> list[str]:
        return ["membership is fixed, so it stayed a member"] if not self.facts.views else []

    def _returned(self, row: ProcessRow, *, forgets: bool) -> list[str]:
        """Say when a member came back, and mark that as told."""
        facts = self.facts
        for place, one in enumerate(self.occurred):
            if one.kind in ("return", "join") and place not in self.told:
                again = one.members[0]
                if lane_of(facts, again) == lane_of(facts, row.member) and _is_next(facts, row.member, again):
                    self.told.add(place)
                    as_what = ", as a newcomer without its state" if forgets else ""
                    return [f"it was back{_after(one.at_ns, ended_at(facts, row))}{as_what}"]
        return []

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


def _left_behind(row: ProcessRow) -> list[str]:
    """Say what was lost with a member."""
    if row.undelivered is None or row.alone is None:
        return []
    if row.undelivered:
        said = f"{count(row.undelivered, 'message')} of it {'was' if row.undelivered == 1 else 'were'} never delivered"
    else:
        said = "no message of it was lost"
    return [said, f"what it had delivered alone: {row.alone:,}"]


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
    more = " among others" if len(found.witnesses) < found.violations else ""
    text = f"{count(found.violations, 'delivery', 'deliveries')} of messages that others delivered "
    text += f"{'is' if found.violations == 1 else 'are'} missing{more}, at {members_named(facts, who)}"
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
    return "once" if value == 1 else f"{number(value)} times"


def _moment(at_ns: int | None) -> str:
    return "an unknown time" if at_ns is None else duration(at_ns)


def _at(one: Occurrence) -> str:
    return "" if one.at_ns is None else f" at {duration(one.at_ns)}"


def _after(at_ns: int | None, since_ns: int | None) -> str:
    return "" if at_ns is None or since_ns is None else f" after {duration(max(at_ns - since_ns, 0))}"


def _span(one: Occurrence) -> str:
    if one.at_ns is None:
        return ""
    return f" from {duration(one.at_ns)} " + ("on" if one.until_ns is None else f"to {duration(one.until_ns)}")
