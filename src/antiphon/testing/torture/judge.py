"""The judge: whether what applications saw is what the documentation promises.

Written from docs/live.md, docs/membership.md and docs/operations.md alone: it shares no code with the groups that it
judges, and looks at nothing but the applications' logs. Each rule is a function that gives sentences about what is
wrong; `judge` runs all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import pairwise
from typing import TypeAlias

import msgspec

from antiphon.testing.torture import liveness, receipts
from antiphon.testing.torture.history import Segment, ViewKey, by_view, segments_of, standing, stays
from antiphon.testing.torture.log import ApplicationStart, MessageName, Noticed, Restored, SeenMessage, Viewed
from antiphon.testing.torture.run import Outcome
from antiphon.testing.torture.schedule import BURST_BYTES, CAUSAL, TOTAL, Schedule


class Flaw(msgspec.Struct, frozen=True):
    """A promise that was not kept."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


_WHOLE_BYTES = 1_000  # a message of so many bytes is never sent in parts
_EACH_BYTES = 64  # what a message counts in the inbox beside its payload


def _name_all(starts: list[ApplicationStart]) -> None:
    """Name the members that a view shows by their numbers, as it may where nobody told their names in time."""
    shown = {(entry.view, entry.members) for start in starts for entry in start.stream if isinstance(entry, Viewed)}
    for start in starts:
        for place, entry in enumerate(start.stream):
            if not isinstance(entry, Viewed) or not any(map(_is_number, entry.members)):
                continue
            members = list(entry.members)
            for view, others in shown:
                alike = view == entry.view and len(others) == len(entry.members)
                pairs = zip(entry.members, others, strict=False)
                if alike and all(ours == theirs or _is_number(ours) or _is_number(theirs) for ours, theirs in pairs):
                    known = zip(members, others, strict=True)
                    members = [theirs if _is_number(ours) else ours for ours, theirs in known]
            named = dict(zip(entry.members, members, strict=True))
            elders = tuple(named[elder] for elder in entry.elders)
            start.stream[place] = msgspec.structs.replace(entry, members=tuple(members), elders=elders)


def _is_number(name: str) -> bool:
    return name.startswith("member ")


def _show_the_only_view(outcome: Outcome) -> None:
    """Add the one view of a group without views; a member that was started again is alone in its own."""
    everyone = tuple(sorted(outcome.addresses))
    for start in outcome.starts:
        members = everyone if start.number == 1 else (start.address,)
        start.stream.insert(0, Viewed(start.at, 0, members, members, (), ()))


class Case:
    """All that the rules look at."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome, self.schedule, self.starts = outcome, outcome.schedule, outcome.starts
        _name_all(self.starts)
        if not self.schedule.setup.views:
            _show_the_only_view(outcome)
        self.segments = [segment for start in self.starts for segment in segments_of(start)]
        self.views = by_view(self.segments)
        self.has_views = self.schedule.setup.views
        self.has_sides = self.schedule.setup.partition == "each-side"
        # groups that were founded apart, since nobody said how many found one, know nothing of each other either
        self.one_side = not self.has_sides and not self.schedule.setup.undeclared
        self.lags = self.schedule.setup.slow == "lag"  # what has outlived its lifetime is discarded
        self.totals = self.schedule.setup.ordering in TOTAL
        self.sent = {identity: sent for start in self.starts for identity, sent in start.sent.items()}
        self._going: dict[tuple[int, int], bool] = {}
        self._views_of: dict[tuple[int, int], list[Viewed]] = {}  # by start
        for segment in self.segments:
            self._views_of.setdefault(segment.start.key, []).append(segment.view)
        self._begun_before: dict[ViewKey, frozenset[MessageName]] = {}
        self.counts: Counter[str] = Counter()  # of what was examined

    def goes_on(self, start: ApplicationStart) -> bool:
        """Say whether a start is part of a group that goes on at the end."""
        if start.key not in self._going:
            self._going[start.key] = liveness.goes_on(self.outcome, start)
        return self._going[start.key]

    def may_have_missed(self, segment: Segment) -> frozenset[MessageName]:
        """Return the messages that a joiner need not deliver, although the others deliver them in its view.

        "Without `snapshot`, a joiner is not given a payload in parts whose sending began before its view." Nor is one
        that begins with what it has, since all who had the state are gone: the parts were to come with the state.
        """
        first = segment.came_with
        has_parts = self.schedule.setup.snapshot_bytes is not None and not self.began_without_state(segment)
        if has_parts or not first.elders:
            return frozenset()
        if first.key not in self._begun_before:
            began = {other.start.key: other.view.at for other in self.views[first.key]}
            self._begun_before[first.key] = frozenset(
                identity
                for identity, sent in self.sent.items()
                if sent.size > _WHOLE_BYTES and sent.at < began.get((identity.member, identity.start), math.inf)
            )
        return self._begun_before[first.key]

    def began_without_state(self, segment: Segment) -> bool:
        """Say whether a joiner was given no state in the first view of this stay, with all that had begun before."""
        first = next(
            other for other in self.segments if other.start is segment.start and other.view is segment.came_with
        )
        return bool(first.view.elders) and not first.restored

    def sent_in(self, message: SeenMessage) -> ViewKey | None:
        """Give the view that the sender of a message had seen last when it sent it."""
        sent = self.sent.get(message.identity)
        views = self._views_of.get((message.identity.member, message.identity.start), [])
        seen = [view.key for view in views if sent is not None and view.at <= sent.at]
        return seen[-1] if seen else None

    def prompt(self, start: ApplicationStart) -> bool:
        """Say whether an application takes its events as soon as they are there, and these waited for no names."""
        work = self.schedule.work[start.member]
        reads = not work.read_pause_ms and not work.restore_ms and work.deaf_ms[0] == work.deaf_ms[1]
        return reads and not self.had_to_show_numbers(start)

    def had_to_show_numbers(self, start: ApplicationStart) -> bool:
        """Say whether an application saw members by their numbers, after their names were waited for.

        "Views that were shown with a member by its number, since for three seconds no hello told its name."
        """
        return any(sample.counts.get("members-unnamed", 0) for sample in start.samples)


Rule: TypeAlias = Callable[[Case], Iterator[str]]


def integrity(case: Case) -> Iterator[str]:
    """A message was sent by whom it names as its sender, before, and comes once."""
    sent = {identity for start in case.starts for identity in start.sent}
    addresses = case.outcome.addresses
    for start in case.starts:
        state: set[MessageName] = set()
        for entry in start.stream:
            if isinstance(entry, Restored):
                if len(entry.history) > len(set(entry.history)):
                    yield f"{start.address} was given a state in which a message comes twice"
                state = set(entry.history)
            if isinstance(entry, SeenMessage):
                case.counts["delivered"] += 1
                unnamed = entry.sender.startswith("member ") and case.had_to_show_numbers(start)
                if entry.identity not in sent or not (unnamed or entry.sender == addresses[entry.identity.member]):
                    yield f"{start.address} delivers {entry.identity} from {entry.sender}, which did not send it"
                if entry.identity in state:
                    yield f"{start.address} delivers {entry.identity} twice"
                state.add(entry.identity)


def views_agree(case: Case) -> Iterator[str]:
    """A number is one view's (unless each side goes on), numbers grow, and whoever has a view is in it."""
    if not case.has_views:
        return
    known: dict[tuple[bool, int], ViewKey] = {}  # who is set up differently has views of its own
    for start in case.starts:
        last = 0
        for entry in start.stream:
            if not isinstance(entry, Viewed):
                continue
            case.counts["views"] += 1
            if start.address not in entry.members:
                yield f"{start.address} has view {entry.view} of {entry.members}, in which it is not"
            if case.one_side and entry.view <= last:
                yield f"{start.address} has view {entry.view} after view {last}"
            last = entry.view
            which = liveness.is_odd(case.outcome, start.member), entry.view
            if case.one_side and known.setdefault(which, entry.key) != entry.key:
                _, members, elders = known[which]
                yield (
                    f"view {entry.view} is {members} to some and {entry.members} to {start.address}, "
                    f"with the elders {elders} and {entry.elders}"
                )


def message_views(case: Case) -> Iterator[str]:
    """A message names the view that it is delivered in, and all deliver it in the same one."""
    where: dict[MessageName, ViewKey] = {}
    for segment in case.segments:
        for seen in segment.messages:
            if seen.view != segment.view.view:
                yield f"{segment.who} delivers {seen.identity} of view {seen.view} in view {segment.view.view}"
            if where.setdefault(seen.identity, segment.key) != segment.key and case.one_side and case.has_views:
                yield f"{seen.identity} is delivered in view {where[seen.identity][0]} and in {segment.view.view}"
    for start in case.starts:
        first = next((entry for entry in start.stream if isinstance(entry, SeenMessage | Viewed)), None)
        if isinstance(first, SeenMessage):
            yield f"{start.address} delivers {first.identity} before any view"


def fifo(case: Case) -> Iterator[str]:
    """Each sender's messages come in the order of their sending."""
    for start in case.starts:
        last: dict[tuple[int, int], int] = {}
        for entry in start.stream:
            if isinstance(entry, Restored):
                last.clear()
                for identity in entry.history:
                    last[identity.member, identity.start] = identity.number
            if isinstance(entry, SeenMessage):
                sender = entry.identity.member, entry.identity.start
                if entry.identity.number <= last.get(sender, 0):
                    yield f"{start.address} delivers {entry.identity} after number {last[sender]} of its sender"
                last[sender] = entry.identity.number


def causal(case: Case) -> Iterator[str]:
    """What a sender had seen in its view comes before what it sent then."""
    if case.schedule.setup.ordering not in CAUSAL or case.lags:
        return
    for segment in case.segments:
        seen = set(case.may_have_missed(segment))
        for message in segment.messages:
            if message.causes_view == message.view == segment.view.view and case.sent_in(message) == segment.key:
                case.counts["causes"] += len(message.causes)
                for cause in message.causes:
                    if cause not in seen and cause != message.identity:
                        yield f"{segment.who} delivers {message.identity} before {cause}, which its sender had seen"
            seen.add(message.identity)


def total(case: Case) -> Iterator[str]:
    """Those who go on from a view have one order; with `safe`, nobody ever had another.

    Without it, who was left behind may have seen another one, which is counted.
    """
    if not case.totals:
        return
    odd = case.schedule.odd
    for key, segments in case.views.items():
        # one that is set up as a side of its own may found its group twice, if it forgets that
        is_apart = odd is not None and odd.partition == "each-side" and key[1] == (case.outcome.addresses[-1],)
        safe = case.schedule.setup.safe and case.one_side and not is_apart
        for together in standing(segments):
            longest = max(together, key=lambda segment: len(segment.messages))
            for segment in segments if safe else together:
                case.counts["orders"] += segment is not longest
                excused = case.may_have_missed(segment) | case.may_have_missed(longest)
                mine, theirs = _without(segment, excused), _without(longest, excused)
                for place, (one, other) in enumerate(zip(mine, theirs, strict=False), 1):
                    if one != other:
                        yield f"in view {key[0]} {segment.who} delivers {one} as number {place}, {longest.who} {other}"
                        break
                else:
                    if len(mine) > len(theirs) and safe and segment not in together and case.has_views:
                        what = mine[len(theirs)]
                        yield f"in view {key[0]} {segment.who} delivers {what}, which nobody who goes on does"
            case.counts["other orders"] += sum(
                _differs(segment, longest) for segment in segments if segment not in together
            )


def _without(segment: Segment, excused: Set[MessageName]) -> list[MessageName]:
    """Give what was delivered, in order, but for what may be missing."""
    return [identity for identity in segment.identities if identity not in excused]


def _differs(segment: Segment, other: Segment) -> bool:
    """Whether two have seen different orders of a view, as far as both have seen it."""
    return any(one != other for one, other in zip(segment.identities, other.identities, strict=False))


def view_synchrony(case: Case) -> Iterator[str]:
    """Those who go from one view to the next together have delivered the same in the first."""
    if case.lags:
        return
    for key, segments in case.views.items():
        together: dict[ViewKey, list[Segment]] = {}
        for segment in segments:
            if segment.next is not None:
                together.setdefault(segment.next.key, []).append(segment)
        for following, group in together.items():
            for one, other in pairwise(group):
                case.counts["pairs"] += 1
                missing = set(one.identities) ^ set(other.identities)
                missing -= case.may_have_missed(one) | case.may_have_missed(other)
                if missing:
                    has = one if min(missing) in one.identities else other
                    yield (
                        f"{one.who} and {other.who} go from view {key[0]} to view {following[0]}, "
                        f"but only {has.who} delivered {min(missing)}"
                    )


def the_larger_side_stands(case: Case) -> Iterator[str]:
    """When two sides meet, the smaller one yields; judged where they were parted, and nothing else befell them."""
    if not case.has_sides or [fault.kind for fault in case.schedule.faults] != ["partition"]:
        return
    for segment, following in pairwise(case.segments):
        if segment.start is not following.start or segment.end != "excluded":
            continue
        for other in case.segments:
            if other.next is not None and other.next.key == following.key:
                mine, theirs = set(segment.view.members), set(other.view.members)
                case.counts["sides met"] += 1
                if not mine & theirs and len(mine) > len(theirs):
                    yield f"{segment.who} yields with {sorted(mine)} to {sorted(theirs)}, who are fewer"


def state_transfer(case: Case) -> Iterator[str]:
    """A joiner begins with the state that the elders have; an elder's state is never replaced.

    Where elders may have different ones, since those who had the group's crashed, it is that of one of them. Where each
    side goes on, all members of a view have one state: "one member begins alone with what it has".
    """
    if case.schedule.setup.snapshot_bytes is None:
        return
    shape: Callable[[Sequence[MessageName]], object] = tuple if case.totals else frozenset
    for key, segments in case.views.items():
        elders = [segment for segment in segments if segment.continues]
        for segment in segments:
            if segment.continues:
                if segment.restored:
                    yield f"{segment.who} is an elder of view {key[0]}, and its state is replaced"
                continue
            if not segment.view.elders:
                continue
            if segment.restored and elders and not case.lags:
                case.counts["restored"] += 1
                alike = _one_beginning(case) and not any(map(case.began_without_state, elders))
                known = elders[:1] if alike else elders
                if shape(segment.base) not in {shape(elder.base) for elder in known}:
                    differing = set(segment.base) ^ set(elders[0].base)
                    what = f"{min(differing)} is in only one of them" if differing else "their orders differ"
                    yield f"{segment.who} joins view {key[0]} with a state unlike that of {elders[0].who}: {what}"
            there = [elder for elder in elders if stays(elder) and not _went_on_out_of_its_reach(case, segment, elder)]
            if not segment.restored and segment.messages and there:
                yield f"{segment.who} delivers in view {key[0]} without having been given the elders' state"
        for one, other in pairwise(elders):
            if shape(one.base) != shape(other.base) and not case.lags and _same_past(case, one, other):
                yield f"{one.who} and {other.who} begin view {key[0]} as elders with different states"
        if case.has_sides and not segments[0].view.elders:
            for one, other in pairwise(segments):
                case.counts["beginnings"] += 1
                if one.start.member != other.start.member and shape(one.base) != shape(other.base):
                    yield f"{one.who} and {other.who} begin view {key[0]}, which has no elders, with different states"


def _went_on_out_of_its_reach(case: Case, joiner: Segment, elder: Segment) -> bool:
    """Whether a joiner was told that it begins without the state, and went on with none whom the elder can hear.

    "If all who have the state crash, or are out of reach of the majority that goes on, those who go on begin with what
    they have (`states-lost`)." The elder, which is still in the view, never learnt that it ended.
    """
    following = joiner.next.view.members if joiner.next is not None else (elder.start.address,)
    told = any(sample.counts.get("states-lost", 0) for sample in joiner.start.samples)
    near = liveness.reach(case.outcome)[elder.start.member]
    return told and not {case.outcome.addresses[member] for member in near} & set(following)


def _same_past(case: Case, one: Segment, other: Segment) -> bool:
    """Whether both have had a state given to them, so that their states can be compared; with sides they always can."""
    given = all(any(isinstance(entry, Restored) for entry in segment.start.stream) for segment in (one, other))
    return given or case.has_sides


def final_states(case: Case) -> Iterator[str]:
    """At the end all that go on have one state, if joiners are given it, and nothing that was stable is missing."""
    setup = case.schedule.setup
    if setup.snapshot_bytes is None or case.lags:
        return
    going = [start for start in case.starts if not start.ended and case.goes_on(start)]
    states = {start.key: _final_state(start) for start in going}
    stable = {sent.identity for start in going for sent in start.sent.values() if sent.stable_at is not None}
    for start in going:
        case.counts["final states"] += 1
        missing = stable - set(states[start.key])
        if missing and case.one_side and not _everyone_was_gone(case):
            yield f"{start.address} ends without {min(missing)}, which was said to be stable"
    for one, other in pairwise(going):
        mine, theirs = states[one.key], states[other.key]
        if (mine != theirs) if case.totals else (set(mine) != set(theirs)):
            differing = set(mine) ^ set(theirs)
            what = f"{min(differing)} is in only one of them" if differing else "their orders differ"
            if _same_lineage(case, one, other) and _last_view(one) == _last_view(other) and _one_beginning(case):
                yield f"{one.address} and {other.address} end with different states: {what}"


def _final_state(start: ApplicationStart) -> list[MessageName]:
    state: list[MessageName] = []
    for entry in start.stream:
        if isinstance(entry, Restored):
            state = list(entry.history)
        elif isinstance(entry, SeenMessage):
            state.append(entry.identity)
    return state


def _last_view(start: ApplicationStart) -> ViewKey | None:
    return next((entry.key for entry in reversed(start.stream) if isinstance(entry, Viewed)), None)


def _same_lineage(case: Case, one: ApplicationStart, other: ApplicationStart) -> bool:
    """Whether two began with one state: both at the group's first view, or brought up to date after it.

    Where each side goes on, all that are in one view have one.
    """
    if case.has_sides:
        return True
    firsts = [next((entry for entry in start.stream if isinstance(entry, Viewed)), None) for start in (one, other)]
    given = [any(isinstance(entry, Restored) for entry in start.stream) for start in (one, other)]
    return all(given) or all(first is not None and not first.elders for first in firsts)


def _one_beginning(case: Case) -> bool:
    """Whether all members of the newest view without elders began it with one state.

    "If all who have the state crash, those who waited begin with what they have." Where each side goes on, only one
    does, and the others join it.
    """
    if case.has_sides:
        return True
    newest = max((key for key, segments in case.views.items() if not segments[0].view.elders), default=None)
    return newest is None or len({frozenset(segment.base) for segment in case.views[newest]}) == 1


def _everyone_was_gone(case: Case) -> bool:
    """Whether the group's state was lost with all who had it: a view after the first began without elders, or one who
    waited for the state was told so.
    """
    told = any(sample.counts.get("states-lost", 0) for start in case.starts for sample in start.samples)
    return told or len({segment.key for segment in case.segments if not segment.view.elders}) > 1


def left_behind(case: Case) -> Iterator[str]:
    """Who was paused or cut off delivers nothing more of a view that the others have left without it."""
    if not case.one_side:
        return
    schedule = case.schedule
    grace_s = (schedule.setup.suspect_ms + 4 * schedule.latency_ms + 100) / 1000
    went_on = _went_on(case)
    for segment in case.segments:
        following = went_on.get(segment.key)
        if segment.next is not None or following is None or not case.prompt(segment.start):
            continue
        if segment.start.address in following.elders:
            continue  # they went on with it, which fell silent on the way
        since = following.at
        limit = min(since + grace_s, _resumed(schedule, segment.start, since) or since + grace_s)
        late = [seen for seen in segment.messages if seen.at > limit]
        if late:
            case.counts["late"] += len(late)
            yield (
                f"{segment.who} delivers {len(late)} messages of view {segment.view.view}, the first "
                f"{late[0].identity} at {late[0].at:.3f} s, though the others went on without it at {since:.3f} s"
            )


def _went_on(case: Case) -> dict[ViewKey, Viewed]:
    """Give the views that some went on from, and where to, as the first one saw it."""
    following: dict[ViewKey, Viewed] = {}
    for segment in case.segments:
        if segment.next is not None:
            view = segment.next.view
            following[segment.key] = min(view, following.get(segment.key, view), key=lambda one: one.at)
    return following


def _resumed(schedule: Schedule, start: ApplicationStart, since: float) -> float | None:
    """Return when a member went on after a pause in which the others had left its view; None if there was none."""
    for fault in schedule.faults:
        concerned = fault.kind == "pause" and start.member in fault.members
        if concerned and fault.until is not None and fault.at / 1000 < since < fault.until / 1000:
            return fault.until / 1000
    return None


def only_documented_errors(case: Case) -> Iterator[str]:
    """Nothing raises but what the documentation says, and only where it says so."""
    for start in case.starts:
        disk = _may_fail_to_write(case, start)
        told = _is_told_of_the_odd_one(case, start) or _is_told_that_it_was_started_again(case, start)
        if start.ended_by is not None and not disk and not told:
            yield f"{start.address} ends with {start.ended_by[0]}: {start.ended_by[1]}"
        for sent in start.sent.values():
            unexplained = start.leaving_at is None and start.ended_by is None and not _never_read_why(case, start)
            if sent.refused is not None and unexplained:
                yield f"{start.address} cannot send {sent.identity}: {sent.refused}"


def _may_fail_to_write(case: Case, start: ApplicationStart) -> bool:
    """Whether a disk fails: "A `state` that cannot be written stops the member"."""
    return any(
        fault.kind == "disk" and start.member in fault.members and (fault.until or 0) / 1000 >= start.at
        for fault in case.schedule.faults
    )


def _never_read_why(case: Case, start: ApplicationStart) -> bool:
    """Whether an application crashed, or left, before it came to the end of a stream that its disk had ended."""
    return (start.crashed_at is not None or start.leaving_at is not None) and _may_fail_to_write(case, start)


def _is_told_of_the_odd_one(case: Case, start: ApplicationStart) -> bool:
    """Whether joining may be refused because members are set up differently: too few are left that are alike."""
    members = case.schedule.members
    is_odd = start.member == members - 1
    unlike = case.schedule.odd is not None and (is_odd or 2 * (members - 1) <= members)
    return unlike and start.joined_at is None and start.ended_by is not None and start.ended_by[0] == "UsageError"


def _is_told_that_it_was_started_again(case: Case, start: ApplicationStart) -> bool:
    words = start.ended_by[1] if start.ended_by is not None else ""
    return not case.has_views and start.number > 1 and "this member was started again" in words


def bounds(case: Case) -> Iterator[str]:
    """The inbox and the buffers stay within what was set, and what was under way when the inbox was full."""
    setup, works = case.schedule.setup, case.schedule.work
    largest = max((work.large_bytes if work.large else work.size for work in works), default=0)
    window = (setup.window_bytes + BURST_BYTES) * (1 + _EACH_BYTES / min(work.size for work in works))
    inbox_max = setup.inbox_bytes_max + len(works) * window + largest
    held_max = 5 * setup.window * case.schedule.members
    for start in case.starts:
        for sample in start.samples:
            case.counts["samples"] += 1
            if sample.inbox_bytes > inbox_max:
                bound = setup.inbox_bytes_max
                yield f"the inbox of {start.address} has {sample.inbox_bytes} bytes, with a bound of {bound}"
                break
        for sample in start.samples:
            if sample.held > held_max:
                yield f"{start.address} holds {sample.held} bursts, with a window of {setup.window}"
                break


_COUNTED_ALWAYS = ("views", "exclusions", "alive", "packets-sent")  # of all that is counted; in most runs they grow


def anomalies_are_counted(case: Case) -> Iterator[str]:
    """What a member was told of by a notice is in its counters too, which only grow."""
    for start in case.starts:
        for before, after in pairwise(start.samples):
            for what in _COUNTED_ALWAYS:
                if after.counts.get(what, 0) < before.counts.get(what, 0):
                    yield f"{start.address} counts {before.counts[what]} {what}, and later {after.counts.get(what, 0)}"
        if start.samples and not start.ended:
            last = start.samples[-1]
            told = sum(
                isinstance(entry, Noticed) and entry.what == "excluded" and entry.at <= last.at
                for entry in start.stream
            )
            if told > last.counts.get("exclusions", 0):
                yield f"{start.address} was left out {told} times and counts {last.counts.get('exclusions', 0)}"
    there, stale = liveness.running(case.outcome), liveness.stale(case.schedule)
    for member, start in there.items() if stale & there.keys() and not case.schedule.setup.discover else ():
        if member not in stale and start.samples and not start.samples[-1].counts.get("refused-unknown-key"):
            yield f"{start.address} does not count the packets of {min(stale)}, which has an old key"


def never_broken(case: Case) -> Iterator[str]:
    """Nothing breaks an invariant, loses a message silently, or spins."""
    if case.outcome.error is not None:
        yield f"{type(case.outcome.error).__name__}: {case.outcome.error}"
    for start in case.starts:
        failed = any(sample.standing == "failed" for sample in start.samples)
        if failed and start.ended_by is None and not _never_read_why(case, start):
            yield f"{start.address} has failed"
        broken = max((sample.counts.get("broken-bursts", 0) for sample in start.samples), default=0)
        mine = [segment for segment in case.segments if segment.start is start]
        had_state = case.schedule.setup.snapshot_bytes is not None and not any(map(case.began_without_state, mine))
        if broken and had_state and not case.lags:
            yield f"{start.address} could not use {broken} bursts"


RULES: dict[str, Rule] = {
    "broken": never_broken,
    "errors": only_documented_errors,
    "integrity": integrity,
    "views": views_agree,
    "message-views": message_views,
    "fifo": fifo,
    "causal": causal,
    "total": total,
    "view-synchrony": view_synchrony,
    "sides": the_larger_side_stands,
    "state-transfer": state_transfer,
    "stable": receipts.stable_is_kept,
    "stable-without-views": receipts.stable_without_views,
    "final-states": final_states,
    "delivered": receipts.delivered_is_delivered,
    "stages": receipts.stages_come_in_order,
    "unknown": receipts.unknown_has_a_reason,
    "lost": receipts.lost_is_lost,
    "left": receipts.all_ends_with_the_group,
    "left-behind": left_behind,
    "alive": liveness.everyone_who_can_goes_on,
    "culprit": liveness.culprits_are_named,
    "notices": liveness.waiting_is_noticed,
    "without-reason": liveness.nobody_is_left_out_without_a_reason,
    "slow-readers": liveness.slow_readers_are_dealt_with,
    "receipts-end": receipts.every_receipt_ends,
    "bounds": bounds,
    "anomalies": anomalies_are_counted,
}


def judge(outcome: Outcome) -> tuple[list[Flaw], Counter[str]]:
    """Give what is wrong with a run, the gravest first, and how much was examined."""
    case = Case(outcome)
    flaws = [Flaw(name, text) for name, rule in RULES.items() for text in rule(case)]
    return flaws, case.counts
