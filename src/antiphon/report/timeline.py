"""The timeline of a run: all that happened to the group, in order, and how each thing is known.

A trace records views, leavings and crashes. What was done to the group from outside (partitions, pauses, kills, steps
of a clock) stands in run.json, if a simulator wrote it; of other traces it is inferred as far as it shows, and said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.measuring.history import ends_early
from antiphon.pipeline.results import ProcessRow, ViewRow
from antiphon.report.facts import Facts
from antiphon.report.member_names import after_lives, lane_of, member_name, members_named
from antiphon.report.run_settings import ScenarioFault
from antiphon.sim.distributions import duration as parsed
from antiphon.wording import count, duration, link_quality

Kind: TypeAlias = Literal[
    "view", "join", "return", "leave", "crash", "silent end", "exclusion", "partition", "cut", "pause", "split",
    "merge", "silence", "clock", "keys", "outside", "absent", "vanishing", "unlogged", "short log", "link", "stop",
    "unread", "halt", "network",
]  # fmt: skip
Basis: TypeAlias = Literal["recorded", "injected", "inferred"]

SET_BACK_NS_MIN: Final = 100_000_000  # a smaller step back is a clock that is being corrected, or rows written late
UNREAD_NS_MIN: Final = 100_000_000  # an inbox that is full for a shorter time is in order
BASIS_WORDS: Final[dict[Basis, str]] = {
    "recorded": "recorded",
    "injected": "done by the test",
    "inferred": "inferred from the logs",
}


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to the group; times are since the beginning of the run, None where no clock says."""

    kind: Kind
    text: str
    at_ns: int | None = None
    until_ns: int | None = None
    members: tuple[int, ...] = ()  # whom it happened to
    sides: tuple[tuple[int, ...], ...] = ()  # of a network or a group that was parted
    one_way: bool = False  # of a cut: nothing gets from the first side to the second, but back
    by: str = ""  # of links from the first side to the second: what they have
    basis: Basis = "recorded"
    forgets: bool = False  # a crash in which the disk was lost as well
    is_several: bool = False  # pauses of several members, each for a part of this time


def timeline(facts: Facts) -> list[Occurrence]:
    """Return what happened, in order of time; nothing of a run that only worked."""
    done = _both_ways(facts, _at_once(facts, _injected(facts)))
    found = [*done, *_views(facts), *_endings(facts), *_absent(facts), *_halts(facts)]
    found += [one for one in _standing_out(facts) if not _is_explained(facts, one, done)]
    if len(facts.views) == 1 and all(one.kind == "view" for one in found):
        return []  # a group that was formed and stayed
    found = [msgspec.structs.replace(one, text=after_lives(one.text)) for one in found]
    return sorted(found, key=lambda one: (one.at_ns is None, one.at_ns or 0))


def _is_explained(facts: Facts, one: Occurrence, done: Sequence[Occurrence]) -> bool:
    """Say whether a member was silent while a test had cut it off or stopped it: that is no news."""
    if one.kind != "silence" or one.at_ns is None:
        return False
    name = lane_of(facts, one.members[0])
    return any(
        name in other.members
        and (other.at_ns or 0) <= one.at_ns <= (one.at_ns if other.until_ns is None else other.until_ns)
        for other in done
        if other.kind in ("partition", "cut", "pause")
    )


def start_ns(facts: Facts) -> int:
    """Return when the run began: where a simulator wrote it, by the clock that its scenario speaks of."""
    if facts.settings.parameters is not None or facts.settings.faults:
        return 0
    return 0 if facts.run is None or facts.run.first_ns is None else facts.run.first_ns


def since_start(facts: Facts, at_ns: int | None) -> int | None:
    """Return a time of the trace as one since the beginning of the run."""
    return None if at_ns is None else at_ns - start_ns(facts)


def began_at(facts: Facts, row: ProcessRow) -> int | None:
    """Return when a log begins, by the others' clocks if its own is far off."""
    return since_start(facts, None if row.first_ns is None else row.first_ns - (row.clock_off_ns or 0))


def ended_at(facts: Facts, row: ProcessRow) -> int | None:
    """Return when a log ends, by the others' clocks if its own is far off."""
    return since_start(facts, None if row.last_ns is None else row.last_ns - (row.clock_off_ns or 0))


def is_down(facts: Facts, name: int, at_ns: int) -> bool:
    """Say whether a member had crashed or left by some time since the start, and was not yet back."""
    lives = [row for row in facts.processes if lane_of(facts, row.member) == name]
    lives = [row for row in lives if (began_at(facts, row) or 0) <= at_ns]
    last = max(lives, key=lambda row: row.first_ns or 0, default=None)
    return last is not None and last.ending in ("crash", "leave", None) and (ended_at(facts, last) or 0) <= at_ns


def names_in(facts: Facts) -> list[int]:
    """Return all members by what their lives have in common, in order."""
    return sorted({lane_of(facts, row.member) for row in facts.processes})


# --- what was done to the group ---------------------------------------------------------------------------------------


def _injected(facts: Facts) -> Iterator[Occurrence]:
    parameters = facts.settings.parameters
    links = [] if parameters is None else parameters.network.links
    built = [
        ScenarioFault("link", "0", source=one.source, target=one.target, by=link_quality(one.loss, one.latency))
        for one in links
    ]
    for fault in [*built, *facts.settings.faults, *([] if parameters is None else parameters.faults)]:
        at, until = since_start(facts, _instant(fault.at)), since_start(facts, _instant(fault.until))
        till = f" until {duration(until)}" if until is not None else ", for good"
        members: tuple[int, ...] = () if fault.member is None else (fault.member,)
        sides = _sides(facts, fault, at or 0)
        kind: Kind
        match fault.kind:
            case "partition":
                kind, members, text = (
                    "partition",
                    _smaller(sides),
                    f"the network is cut into {_between(facts, sides)}{till}",
                )
            case "cut":
                both = [members_named(facts, one) if one else "the others" for one in sides]
                kind, members, text = "cut", sides[0], f"nothing gets from {both[0]} to {both[1]}{till}"
            case "link":
                both = [members_named(facts, one) if one else "the others" for one in sides]
                kind, members, text = "link", sides[0], f"the links from {both[0]} to {both[1]} have {fault.by}{till}"
            case "network":
                kind, text = "network", f"the network has {fault.by}{till}"
            case "pause":
                kind, text = "pause", f"{_name(facts, members)} stands still{till}"
            case "clock":
                kind, text = "clock", f"the clock of {_name(facts, members)} is set {fault.by or 'anew'}"
            case "crash":
                lost = ", and its disk is lost" if fault.forgets else ""
                kind, text = "crash", f"{_name(facts, members)} is killed{lost}"
            case _:
                continue  # the trace itself records who joins and leaves
        yield Occurrence(
            kind=kind,
            text=text,
            at_ns=at,
            until_ns=None if kind == "crash" else until,
            members=members,
            sides=sides if kind in ("partition", "cut", "link") else (),
            basis="injected",
            forgets=fault.forgets,
            one_way=kind == "cut",
            by=fault.by or "",
        )


def _at_once(facts: Facts, found: Iterable[Occurrence]) -> list[Occurrence]:
    """Put pauses of several members over the same time together."""
    kept: list[Occurrence] = []
    for one in found:
        same = [other for other in kept if other.kind == one.kind == "pause"]
        same = [other for other in same if (other.at_ns, other.until_ns) == (one.at_ns, one.until_ns)]
        if not same:
            kept.append(one)
            continue
        members = tuple(sorted({*same[0].members, *one.members}))
        till = f" until {duration(one.until_ns)}" if one.until_ns is not None else ", for good"
        text = f"{members_named(facts, members)} stand still{till}"
        kept[kept.index(same[0])] = msgspec.structs.replace(same[0], text=text, members=members)
    return kept


def _both_ways(facts: Facts, found: list[Occurrence]) -> list[Occurrence]:
    """Put two cuts of one time that mirror each other together: then nothing gets between the two sides."""
    kept: list[Occurrence] = []
    for one in found:
        mirrored = (one.at_ns, one.until_ns, one.sides[::-1])
        back = next(
            (other for other in kept if other.one_way and (other.at_ns, other.until_ns, other.sides) == mirrored), None
        )
        if back is None or one.kind != "cut":
            kept.append(one)
            continue
        till = f" until {duration(one.until_ns)}" if one.until_ns is not None else ", for good"
        text = f"nothing gets between {cut_sides(facts, back, 'and')}{till}"
        members = tuple(dict.fromkeys((*back.members, *one.members)))
        kept[kept.index(back)] = msgspec.structs.replace(back, text=text, members=members, one_way=False)
    return kept


def cut_sides(facts: Facts, one: Occurrence, between: str) -> str:
    """Name the two sides of a cut; a side that is not named is all others."""
    source, target = (members_named(facts, side) if side else "the others" for side in one.sides)
    return f"{source} {between} {target}"


def _instant(text: str | None) -> int | None:
    try:
        return None if text is None else parsed(text, "at")
    except UsageError:
        return None


def _name(facts: Facts, who: Sequence[int]) -> str:
    return member_name(facts, who[0]) if who else "a member"


def _sides(facts: Facts, fault: ScenarioFault, at_ns: int) -> tuple[tuple[int, ...], ...]:
    if fault.kind in ("cut", "link"):
        return tuple(fault.source or ()), tuple(fault.target or ())
    named = {member for group in fault.groups or [] for member in group}
    groups = [*(fault.groups or []), [name for name in names_in(facts) if name not in named]]
    there = [tuple(name for name in group if not is_down(facts, name, at_ns)) for group in groups]
    return tuple(group for group in there if group)


def _between(facts: Facts, sides: Sequence[Sequence[int]]) -> str:
    return " | ".join(members_named(facts, side) for side in sides)


def _smaller(sides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return who is not on the largest side."""
    return tuple(member for side in sorted(sides, key=len)[:-1] for member in side)


# --- what the views say -----------------------------------------------------------------------------------------------


def _views(facts: Facts) -> Iterator[Occurrence]:
    before: list[ViewRow] = []
    rows = facts.processes if len(facts.processes) == facts.members else []  # else not all of them are told of
    logged = {row.member for row in rows}
    for view in sorted(facts.views, key=lambda one: (one.first_ns or 0, one.view)):
        at = since_start(facts, view.first_ns)
        former = predecessors(facts, before, view)
        members = tuple(view.members)
        yield Occurrence(kind="view", text=_view_words(facts, former, view), at_ns=at, members=members)
        old = {member for one in former for member in one.members}
        known = {lane_of(facts, member) for one in before for member in one.members}
        for member in view.members if before else ():
            # a later incarnation alone does not tell: one that no view listed before has not been away
            again = lane_of(facts, member) in known
            if member not in old and (former or again):  # else it founds another group
                text = f"{member_name(facts, member)} {'is back' if again else 'joins'}"
                yield Occurrence(kind="return" if again else "join", text=text, at_ns=at, members=(member,))
        for member in sorted(old - set(view.members) - logged) if logged else ():
            text = f"{member_name(facts, member)} drops out of the view, and there is no log of it"
            yield Occurrence(kind="vanishing", text=text, at_ns=at, members=(member,), basis="inferred")
        if len(former) > 1:
            text = f"the group comes together again: {_between(facts, [one.members for one in former])}"
            sides = tuple(tuple(one.members) for one in former)
            yield Occurrence(kind="merge", text=text, at_ns=at, members=members, sides=sides, basis="inferred")
        twin = next((one for one in before if _parted(facts, before, one, view)), None)
        if twin is not None:
            sides = tuple(twin.members), members
            text = f"the group splits: {_between(facts, sides)} go on by themselves"
            yield Occurrence(kind="split", text=text, at_ns=at, sides=sides, members=_smaller(sides), basis="inferred")
        before.append(view)
    listed = {member for view in before for member in view.members}
    last = set(before[-1].members) if before else set()
    missing = sorted(member for member in listed - logged if member in last) if logged else []
    if missing:
        text = f"there is no log of {members_named(facts, missing)}, of which the views tell"
        yield Occurrence(kind="unlogged", text=text, members=tuple(missing), basis="inferred")


def predecessors(facts: Facts, before: Sequence[ViewRow], view: ViewRow) -> list[ViewRow]:
    """Return the views from which the members of a view came: the last of each, but for newcomers."""
    found: list[ViewRow] = []
    for member in view.members:
        last = next((one for one in reversed(before) if member in one.members), None)
        if last is not None and last not in found:
            found.append(last)
    return found


def _parted(facts: Facts, before: Sequence[ViewRow], one: ViewRow, other: ViewRow) -> bool:
    """Say whether two views are two sides of one that was before both."""
    if set(one.members) & set(other.members):
        return False
    earlier = before[: next(index for index, view in enumerate(before) if view is one)]
    common = [view for view in predecessors(facts, earlier, one) if view in predecessors(facts, earlier, other)]
    return bool(common) and one.view == other.view


def _view_words(facts: Facts, former: Sequence[ViewRow], view: ViewRow) -> str:
    said = f"view {view.view} of {count(len(view.members), 'member')}"
    if view.installed < len(view.members):
        said += f", installed by {view.installed}"
    if not former:
        return said
    old = [member for one in former for member in one.members]
    came = [member for member in view.members if member not in old]
    went = [member for member in old if member not in view.members]
    said += f"; with {members_named(facts, came)}" if came else ""
    return said + (f"; without {members_named(facts, went)}" if went else "")


# --- how each log ends, and who stands out ----------------------------------------------------------------------------

_ENDINGS: Final[dict[str | None, tuple[Kind, str]]] = {
    "crash": ("crash", "crashes"),
    "excluded": ("exclusion", "is excluded by the others"),
    "leave": ("leave", "leaves"),
    "end": ("stop", "stops without leaving"),
    None: ("silent end", "stops without a word"),  # killed, or its log was cut short
}


def _endings(facts: Facts) -> Iterator[Occurrence]:
    if all(row.ending is None for row in facts.processes):
        yield from _short_logs(facts)  # no log of this trace says how it ends
        return
    for row in facts.processes:
        if is_outside(facts, row):
            if _has_later_life(facts, row):
                continue
            text = f"{member_name(facts, row.member)} never gets into the group: no view lists it"
            yield Occurrence(
                kind="outside", text=text, at_ns=began_at(facts, row), members=(row.member,), basis="inferred"
            )
        elif row.ending != "end" or went_before_the_end(facts, row):
            kind, words = _ENDINGS[row.ending]
            text = f"{member_name(facts, row.member)} {words}"
            basis: Basis = "inferred" if row.ending is None else "recorded"
            at = ended_at(facts, row)
            yield Occurrence(kind=kind, text=text, at_ns=at, members=(row.member,), basis=basis)


def _short_logs(facts: Facts) -> Iterator[Occurrence]:
    """Yield logs of receivers that end long before the others', where no log says how it ends."""
    rows = [row for row in facts.processes if row.first_ns is not None and row.last_ns is not None]
    early = ends_early([(row.first_ns or 0, row.last_ns or 0) for row in rows])
    for row in [row for row, is_early in zip(rows, early, strict=True) if is_early and row.delivered_at_ns is not None]:
        before = duration(max(one.last_ns or 0 for one in rows) - (row.last_ns or 0))
        text = f"the log of {member_name(facts, row.member)} ends {before} before the last of the others"
        at = ended_at(facts, row)
        yield Occurrence(kind="short log", text=text, at_ns=at, members=(row.member,), basis="inferred")


def _halts(facts: Facts) -> Iterator[Occurrence]:
    """Yield the times in which the whole group delivered nothing."""
    for row in facts.halts:
        at, until = since_start(facts, row.start_ns), since_start(facts, row.end_ns)
        text = f"nobody delivers anything for {duration(row.end_ns - row.start_ns)}, although messages wait"
        yield Occurrence(kind="halt", text=text, at_ns=at, until_ns=until, basis="inferred")


def _absent(facts: Facts) -> Iterator[Occurrence]:
    """Yield who is named as a member, has no log here and was in no view."""
    known = {*names_in(facts), *(lane_of(facts, member) for view in facts.views for member in view.members)}
    numbers = [int(number) for number in facts.settings.names if number.isdecimal()]  # another system's may be others
    missing = [number for number in sorted(numbers) if number not in known]
    if missing and facts.processes and not facts.views:
        text = f"there is no log of {members_named(facts, missing)}"
        yield Occurrence(kind="unlogged", text=text, members=tuple(missing), basis="inferred")
    if facts.views:
        for number in missing:
            text = f"{member_name(facts, number)} never takes part: no view lists it, and there is no log of it"
            yield Occurrence(kind="absent", text=text, members=(number,), basis="inferred")


def _in_views(facts: Facts) -> set[int]:
    if facts.in_views is None:
        facts.in_views = {member for view in facts.views for member in view.members}
    return facts.in_views


def is_outside(facts: Facts, row: ProcessRow) -> bool:
    """Say whether a log is of a process that no view lists, in a run that records views."""
    return bool(facts.views) and row.member not in _in_views(facts)


def _has_later_life(facts: Facts, row: ProcessRow) -> bool:
    """Say whether a process that did not get in tried again, or got in after all."""
    name = lane_of(facts, row.member)
    later = {other.member for other in facts.processes} | {member for view in facts.views for member in view.members}
    return any(lane_of(facts, member) == name and member > row.member for member in later)


def _standing_out(facts: Facts) -> Iterator[Occurrence]:
    """Yield changes of keys, and silences and clocks that went back or are far off, which a trace shows unnamed."""
    set_by_test = {fault.member for fault in facts.settings.faults if fault.kind == "clock"}
    for row in facts.processes:
        name, who = member_name(facts, row.member), (row.member,)
        at = since_start(facts, row.quiet_at_ns)
        if row.quiet_ns is not None and at is not None and _jumped(facts, row):
            text = f"the clock of {name} goes forward by {duration(row.quiet_ns)}"
            yield Occurrence(kind="clock", text=text, at_ns=at, members=who, basis="inferred")
        elif row.quiet_ns is not None and at is not None:
            until = at + row.quiet_ns
            text = f"{name} records nothing for {duration(row.quiet_ns)}"
            yield Occurrence(kind="silence", text=text, at_ns=at, until_ns=until, members=who, basis="inferred")
        if row.set_back_ns is not None and row.set_back_ns >= SET_BACK_NS_MIN:
            at = since_start(facts, row.set_back_at_ns)
            text = f"the clock of {name} goes back by {duration(row.set_back_ns)}"
            yield Occurrence(kind="clock", text=text, at_ns=at, members=who, basis="inferred")
        yield from _unread(facts, row)
        for changed in row.keys_at_ns or ():
            text = f"{name} changes the group's keys"
            yield Occurrence(kind="keys", text=text, at_ns=since_start(facts, changed), members=who)
        if row.clock_off_ns is not None and lane_of(facts, row.member) not in set_by_test:
            off = "ahead of" if row.clock_off_ns > 0 else "behind"
            text = f"the clock of {name} is {duration(abs(row.clock_off_ns))} {off} the others'"
            yield Occurrence(kind="clock", text=text, at_ns=began_at(facts, row), members=who, basis="inferred")


def _unread(facts: Facts, row: ProcessRow) -> Iterator[Occurrence]:
    """Yield the times in which the application did not take what was delivered."""
    edges = [*(row.unread_at_ns or ())]
    edges += [row.last_ns] if len(edges) % 2 and row.last_ns is not None else []
    for begins, ends in zip(edges[::2], edges[1::2], strict=False):
        if ends - begins >= UNREAD_NS_MIN:
            text = f"the application of {member_name(facts, row.member)} does not take what is delivered"
            at, until = since_start(facts, begins), since_start(facts, ends)
            yield Occurrence(kind="unread", text=text, at_ns=at, until_ns=until, members=(row.member,))


def _jumped(facts: Facts, row: ProcessRow) -> bool:
    """Say whether a member was not silent, but its clock jumped: without the gap its log ends with the others'."""
    others = sorted(one.last_ns for one in facts.processes if one is not row and one.last_ns is not None)
    if not others or row.last_ns is None or row.quiet_ns is None:
        return False
    end = others[len(others) // 2]
    return row.last_ns - end > row.quiet_ns / 2 and abs(row.last_ns - row.quiet_ns - end) < row.quiet_ns / 2


def gone(facts: Facts) -> list[ProcessRow]:
    """Return the logs that do not end with the run."""
    if all(row.ending is None for row in facts.processes):
        return []
    going = [row for row in facts.processes if row.ending != "end" or went_before_the_end(facts, row)]
    return [row for row in going if not is_outside(facts, row)]


def went_before_the_end(facts: Facts, row: ProcessRow) -> bool:
    """Say whether a log that is whole is of a member that stopped without leaving: later the others went on."""
    if row.ending != "end":
        return False
    if facts.left_behind is None:
        facts.left_behind = _left_behind(facts)
    followed, ended = since_start(facts, facts.left_behind.get(row.member)), ended_at(facts, row)
    return followed is not None and ended is not None and ended < followed


def _left_behind(facts: Facts) -> dict[int, int | None]:
    """Return when others of their last view went on to another, for all who are not in that one."""
    views = sorted(facts.views, key=lambda one: (one.first_ns or 0, one.view))
    last = {member: place for place, view in enumerate(views) for member in view.members}
    followed = {
        place: next((view for view in views[place + 1 :] if not others.isdisjoint(view.members)), None)
        for place in set(last.values())
        for others in [set(views[place].members)]
    }
    return {member: view.first_ns for member, place in last.items() if (view := followed[place]) is not None}
