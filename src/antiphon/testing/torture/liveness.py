"""Who must go on after the last fault: judged by what is within reach, from the schedule and the logs.

"On a partition the majority goes on; the minority stops delivering, says so and joins again when the network heals."
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from antiphon.testing.torture.log import ApplicationStart, MessageName, Noticed, SeenMessage, Viewed
from antiphon.testing.torture.run import Outcome
from antiphon.testing.torture.schedule import PlannedFault, Schedule, Work

if TYPE_CHECKING:
    from antiphon.testing.torture.judge import Case

_SAYS_SO = ("stalled", "joining", "leaving", "left", "failed")


def running(outcome: Outcome) -> dict[int, ApplicationStart]:
    """Give the starts that run at the end, by member."""
    last = {start.member: start for start in outcome.starts}
    return {member: start for member, start in last.items() if not start.ended}


def _is_cut(fault: PlannedFault, source: int, target: int) -> bool:
    if fault.until is not None:
        return False
    if fault.kind == "cut":
        return source in fault.members and target in fault.others
    return fault.kind == "partition" and (source in fault.members) != (target in fault.members)


def stale(schedule: Schedule) -> set[int]:
    """Give who keeps the old key when the others replace it."""
    return {member for fault in schedule.faults if fault.stale for member in fault.members}


def reach(outcome: Outcome) -> dict[int, set[int]]:
    """Give whom each running member hears and is heard by at the end, itself included."""
    there = running(outcome)
    faults = outcome.schedule.faults
    odd = outcome.schedule.members - 1 if outcome.schedule.odd is not None else None
    old = stale(outcome.schedule)
    return {
        one: {
            other
            for other in there
            if (one == odd) == (other == odd)
            and (one == other or not old & {one, other})
            and not any(_is_cut(fault, one, other) or _is_cut(fault, other, one) for fault in faults)
        }
        for one in there
    }


def is_whole(outcome: Outcome) -> bool:
    """Say whether everyone runs in its first start and hears everyone, without which a group without views waits."""
    near = reach(outcome)
    alive = len(near) == outcome.schedule.members and all(start.number == 1 for start in running(outcome).values())
    return alive and all(len(others) == len(near) for others in near.values())


def was_met(outcome: Outcome, start: ApplicationStart) -> bool:
    """Say whether others had met the first start of an application: in a group that is silent nobody need have.

    "One that none of them has heard yet is let in, as at its first start."
    """
    first = next(one for one in outcome.starts if one.member == start.member)
    gone = first.crashed_at or first.left_at or first.at
    return any(
        sent.stable_at is not None and sent.stable_at < gone for one in outcome.starts for sent in one.sent.values()
    )


def goes_on(outcome: Outcome, start: ApplicationStart) -> bool:
    """Say whether a start is part of a group that goes on: its probe is delivered by all that run in its last view."""
    if not outcome.schedule.setup.views and not is_whole(outcome):
        return False
    views = [entry for entry in start.stream if isinstance(entry, Viewed)]
    probes = {identity for identity, sent in start.sent.items() if sent.probe}
    if not views or not probes:
        return False
    together = [other for other in running(outcome).values() if other.address in views[-1].members]
    return start in together and all(_delivers(other, probes) for other in together)


def _delivers(start: ApplicationStart, probes: set[MessageName]) -> bool:
    return any(isinstance(entry, SeenMessage) and entry.identity in probes for entry in reversed(start.stream))


def everyone_who_can_goes_on(case: Case) -> Iterator[str]:
    """Who has a majority within reach delivers new messages in a stated time; all others say that they wait."""
    outcome = case.outcome
    if outcome.error is not None:
        return
    there, near = running(outcome), reach(outcome)
    if not outcome.schedule.setup.views:
        yield from _all_go_on_if_all_are_there(case)
        return
    whole = _whole_group(case, near)
    for member, start in there.items():
        delivers = case.goes_on(start)
        case.counts["alive"] += 1
        standing = start.samples[-1].standing if start.samples else "joining"
        if member in whole and not delivers:
            yield f"{start.address} does not deliver a new message by the end; it says {standing}"
        elif not delivers and standing not in _SAYS_SO and not is_odd(outcome, member):
            yield f"{start.address} delivers nothing and says {standing}"
        elif delivers and (far := _together_out_of_reach(start, there, near[member])):
            yield f"{start.address} goes on in one view with {far}, which is out of its reach"
    if whole:
        yield from _one_view(case, whole)
    elif case.has_sides:
        yield from _each_side_goes_on(case, near)
    if not whole and not any(map(case.goes_on, there.values())) and _has_quorum(case, near):
        yield f"{_has_quorum(case, near)} have a majority of the last view within reach, and nobody goes on"


def _together_out_of_reach(start: ApplicationStart, there: dict[int, ApplicationStart], near: set[int]) -> str:
    """Name one that is in the last view of a start though the two cannot hear each other, if there is one."""
    members = next(entry.members for entry in reversed(start.stream) if isinstance(entry, Viewed))
    return next((far.address for other, far in there.items() if other not in near and far.address in members), "")


def _each_side_goes_on(case: Case, near: dict[int, set[int]]) -> Iterator[str]:
    """Where each side goes on, those who hear one another, and nobody else, are in one view of their own."""
    there = running(case.outcome)
    for side in {frozenset(others) for others in near.values()}:
        is_apart = all(near[member] == side for member in side)
        if is_apart and all(there[member].joined_at is not None for member in side):
            case.counts["sides"] += 1
            yield from (
                f"{there[member].address} is on a side of its own, and does not deliver a new message by the end"
                for member in sorted(side)
                if not case.goes_on(there[member])
            )
            yield from _one_view(case, set(side))


def _all_go_on_if_all_are_there(case: Case) -> Iterator[str]:
    """Without views all go on, or wait for one that is not there; a restarted member is told that it is refused.

    "All addresses are members for ever, a silent one makes the others wait."
    """
    whole, there, near = is_whole(case.outcome), running(case.outcome), reach(case.outcome)
    for member, start in there.items():
        case.counts["alive"] += 1
        has_met_it = any(there[other].number == 1 for other in near[member])  # one that can still be heard
        if start.number > 1 and has_met_it and was_met(case.outcome, start):
            yield f"{start.address} was started again, and is not told so"
        elif whole and not case.goes_on(start):
            yield f"{start.address} does not deliver a new message by the end, with everyone within reach"


def culprits_are_named(case: Case) -> Iterator[str]:
    """Who waits at the end because others are out of reach names a link that is broken, and none that is whole.

    Either direction is accepted: a member that cannot be asked cannot prove that a packet is its own.
    """
    outcome = case.outcome
    if outcome.error is not None or outcome.schedule.odd is not None or not outcome.schedule.setup.views:
        return
    there, near = running(outcome), reach(outcome)
    whole = {(outcome.addresses[one], outcome.addresses[other]) for one in there for other in near[one]}
    for member, start in there.items():
        if not start.samples or case.goes_on(start):
            continue
        last, out_of_reach = start.samples[-1], not _known_to(outcome, start) <= near[member]
        if last.standing in ("stalled", "joining") and out_of_reach:
            case.counts["culprits"] += 1
            if not set(last.links) - whole:
                yield f"{start.address} says {last.standing}, and names {last.links}: none of these links is broken"
            elif wrong := set(last.links) & whole:
                yield f"{start.address} says {last.standing}, and blames {min(wrong)}: that link is whole"


_NOTICED_S = 1.0  # a standing that lasts so long was told of


def waiting_is_noticed(case: Case) -> Iterator[str]:
    """Who stalls is told so by a notice, and who goes on again is told that, or gets a view.

    "The minority stops delivering, says so (`Notice("stalled")`)."
    """
    if case.outcome.error is not None:
        return
    for start in running(case.outcome).values():
        recent = {sample.standing for sample in start.samples if sample.at >= start.samples[-1].at - _NOTICED_S}
        told = [
            entry.what if isinstance(entry, Noticed) else "view"
            for entry in start.stream
            if isinstance(entry, Noticed | Viewed)
        ]
        if not told or not case.prompt(start) or len(recent) > 1:
            continue
        case.counts["notices"] += 1
        stalls, says_so = recent == {"stalled"}, told[-1] == "stalled"
        if stalls != says_so and (stalls or recent == {"active"}):
            yield f"{start.address} is {min(recent)}, and was last told {told[-1]}"
    for segment, following in pairwise(case.segments):
        if segment.start is following.start and segment.end == "view" and not following.continues:
            views = f"view {segment.view.view} to view {following.view.view}"
            yield f"{segment.who} goes from {views} as a newcomer, and was not told that it was left out"


_HARMLESS = ("leave", "cancel", "clock", "keys", "replay", "forge")  # faults that part nobody from the others
_QUICK_MS = 20  # a latency at which nothing that is on its way takes long


def is_undisturbed(case: Case) -> bool:
    """Say whether nothing befell anyone that could keep it from being heard, or from delivering at once."""
    schedule = case.schedule
    return (
        all(fault.kind in _HARMLESS and not fault.stale for fault in schedule.faults)
        and not schedule.net.loss
        and schedule.latency_ms <= _QUICK_MS
        and schedule.odd is None
        and not _states_are_refused(schedule)
        and not schedule.setup.undeclared
        and all(map(case.prompt, case.starts))
    )


def _states_are_refused(schedule: Schedule) -> bool:
    """Whether `snapshot` fails somewhere: a joiner that is refused the state "gets `Notice("excluded")`"."""
    return any(work.snapshot_fails for work in schedule.work)


def nobody_is_left_out_without_a_reason(case: Case) -> Iterator[str]:
    """Where nothing befell anyone, the group never goes on without a member, and nobody stalls."""
    if not is_undisturbed(case) or not case.one_side:
        return
    for start in case.starts:
        case.counts["undisturbed"] += 1
        for entry in start.stream:
            if isinstance(entry, Noticed) and start.leaving_at is None:
                yield f"{start.address} is told {entry.what} at {entry.at:.3f} s, and nothing befell anyone"


_SLOW_S = 1.0  # how long a group waits for one that does not take its events


def _can_do_without_the_slow(case: Case, start: ApplicationStart, at: float) -> bool:
    """Say whether those who read all the time are enough to go on from the view that an application has seen by then.

    "A group goes on only with more than half of its present view, or half with its first member."
    """
    views = [entry for entry in start.stream if isinstance(entry, Viewed)]
    members = next((view.members for view in reversed(views) if view.at <= at), views[0].members if views else ())
    work = {address: case.schedule.work[member] for member, address in enumerate(case.outcome.addresses)}
    quick = [address for address in members if not work[address].deaf_ms[1]]
    return 2 * len(quick) > len(members) or (2 * len(quick) == len(members) and members[:1] == tuple(quick[:1]))


def slow_readers_are_dealt_with(case: Case) -> Iterator[str]:
    """Where slow readers are dropped, or may lag, they keep nobody else waiting for long; who keeps up loses nothing.

    Judged where nothing else happens that could make anyone wait.
    """
    schedule = case.schedule
    quiet = not schedule.faults and not schedule.net.loss and schedule.odd is None and case.has_views
    quiet = quiet and not _states_are_refused(schedule)
    if schedule.setup.slow == "block" or not quiet or not case.one_side:
        return
    wait_s = _SLOW_S + (3 * schedule.setup.suspect_ms + 40 * schedule.latency_ms) / 1000
    if schedule.setup.slow == "drop":  # who takes its events slowly, but takes them, is waited for
        wait_s += sum(work.messages for work in schedule.work) * max(map(_reads_every_s, schedule.work))
    prompt = [start for start in case.starts if case.prompt(start)]
    for start in prompt:
        for sent in start.sent.values():
            if sent.accepted and sent.delivered_at is not None:
                if schedule.setup.slow == "drop" and not _can_do_without_the_slow(case, start, sent.at):
                    continue
                case.counts["not held up"] += 1
                if sent.delivered_at - sent.at > wait_s:
                    yield (
                        f"{sent.identity} of {start.address} takes {sent.delivered_at - sent.at:.3f} s, "
                        f"though slow readers are not to keep others waiting"
                    )
    for start in case.starts:
        work, told = schedule.work[start.member], [entry for entry in start.stream if isinstance(entry, Noticed)]
        left_out = sum(notice.what == "excluded" for notice in told)
        if left_out > 1 and not work.read_pause_ms:
            yield f"{start.address} did not read for a while, and was left out {left_out} times"
    if len(prompt) > 1 and case.lags:
        yield from _who_keeps_up_loses_nothing(case, prompt)


def _reads_every_s(work: Work) -> float:
    return work.read_pause_ms / 1000


def _who_keeps_up_loses_nothing(case: Case, prompt: list[ApplicationStart]) -> Iterator[str]:
    """Those who take their events at once have the same, of all that was sent since they were together."""
    seen = {start.key: {entry.identity for entry in start.stream if isinstance(entry, SeenMessage)} for start in prompt}
    for one in prompt:
        for other in prompt:
            came = max(start.joined_at or 0.0 for start in (one, other))
            for identity in sorted(seen[one.key] - seen[other.key]):
                if one.left_at is None and other.left_at is None and case.sent[identity].at > came:
                    yield f"{other.address} keeps up, and lacks {identity}, which {one.address} has"


def _known_to(outcome: Outcome, start: ApplicationStart) -> set[int]:
    """Give the members that one can know of: all, or those that it was told to ask, as long as it looks for a group."""
    everyone = set(range(outcome.schedule.members))
    if start.joined_at is not None or not outcome.schedule.setup.discover:
        return everyone
    asked = {1 if start.member == 0 else 0} if outcome.schedule.setup.discover == "peers" else set()
    return {start.member, *asked}


def _can_be_found(outcome: Outcome, member: int) -> bool:
    """Say whether a member that looks for its group asks one who runs, or has been in it and so knows others."""
    has_joined = any(start.joined_at is not None for start in outcome.starts if start.member == member)
    there = running(outcome)
    asked = _known_to(outcome, there[member]) - {member}
    return has_joined or outcome.schedule.setup.discover != "peers" or not asked.isdisjoint(there)


def is_odd(outcome: Outcome, member: int) -> bool:
    """Say whether a member is the one that is set up differently."""
    return outcome.schedule.odd is not None and member == outcome.schedule.members - 1


def _whole_group(case: Case, near: dict[int, set[int]]) -> set[int]:
    """Give those who must go on together: all that run, if they hear each other and can decide the next view."""
    outcome = case.outcome
    there = {member for member in near if not is_odd(outcome, member) and _can_be_found(outcome, member)}
    decide = 2 * len(there) > outcome.schedule.members
    if outcome.schedule.setup.undeclared:  # who is gone may have been needed by the group that stands
        decide = len(there) == outcome.schedule.members and not any(
            fault.forgets or fault.old_ms for fault in outcome.schedule.faults
        )
    if case.one_side and case.segments:
        view = max((segment.view for segment in case.segments), key=lambda view: view.view)
        newest, voters = view.members, there - _forgetful(outcome, view)
        present = [address for address in newest if outcome.addresses.index(address) in voters]
        decide = 2 * len(present) > len(newest) or (2 * len(present) == len(newest) and present[0] == newest[0])
        decide = decide and not _went_on_unseen(case, view) and _was_seen_by(outcome, view, voters)
    return there if decide and all(there <= near[member] for member in there) else set()


def _went_on_unseen(case: Case, newest: Viewed) -> bool:
    """Say whether one was left out of the newest view that anyone saw: there is a newer one, of those who crashed.

    So there may be one where a member crashed and lost its state as that view ended: others have left it, or the member
    itself was about to leave it behind. What it decided with others is not known to any application.
    """
    of_it = [segment for segment in case.segments if segment.key == newest.key]
    if any(segment.end == "excluded" for segment in of_it):
        return True
    forgetful = _forgetful(case.outcome, newest)
    is_left = any(segment.start.left_at is not None and segment.next is None for segment in of_it)
    return bool(forgetful) and (
        is_left
        or any(
            segment.start.member in forgetful
            and segment.start.samples
            and segment.start.samples[-1].standing != "active"
            for segment in of_it
        )
    )


_ON_DISK_S = 1.0  # a busy machine brings to the disk in so long what nobody waits for


def _may_have_lost(outcome: Outcome, start: ApplicationStart, view: Viewed) -> bool:
    """Say whether a start lost its power before it was on the disk that it had begun a view.

    "That a view has begun is on the disk a moment after it began."
    """
    if start.crashed_at is None or start.crashed_at >= view.at + _ON_DISK_S:
        return False
    return any(fault.power and start.member in fault.members for fault in outcome.schedule.faults)


def _was_seen_by(outcome: Outcome, view: Viewed, members: set[int]) -> bool:
    """Say whether one of these saw a view, and so tells the others; else they decide what follows the one before."""
    return any(
        isinstance(entry, Viewed) and entry.key == view.key and not _may_have_lost(outcome, start, entry)
        for start in outcome.starts
        if start.member in members
        for entry in start.stream
    )


def _forgetful(outcome: Outcome, newest: Viewed) -> set[int]:
    """Give those in the newest view with a start whose state is gone, or old: the others have to decide without it."""
    lost = {member for fault in outcome.schedule.faults if fault.forgets or fault.old_ms for member in fault.members}
    began = {
        start.member
        for start in running(outcome).values()
        if any(isinstance(entry, Viewed) and entry.key == newest.key for entry in start.stream)
    }
    return lost - began


def _one_view(case: Case, whole: set[int]) -> Iterator[str]:
    last = {}
    for member in whole:
        views = [entry for entry in running(case.outcome)[member].stream if isinstance(entry, Viewed)]
        if views:
            last[member] = views[-1].key
    expected = {case.outcome.addresses[member] for member in whole}
    for member, (number, members, _) in last.items():
        if set(members) != expected:
            yield f"{case.outcome.addresses[member]} ends in view {number} of {members}, not of {sorted(expected)}"


def _has_quorum(case: Case, near: dict[int, set[int]]) -> list[str]:
    """Give some who hear each other and are more than half of the newest view, if there are any."""
    views = [segment.view for segment in case.segments]
    if not views or not case.one_side:
        return []
    newest = max(views, key=lambda view: view.view)
    if _went_on_unseen(case, newest):
        return []
    numbers = {case.outcome.addresses.index(address) for address in newest.members}
    voters = numbers - _forgetful(case.outcome, newest)
    for member in near:
        group = {other for other in near[member] & voters if all(third in near[other] for third in near[member])}
        if 2 * len(group) > len(numbers) and _was_seen_by(case.outcome, newest, group):
            return [case.outcome.addresses[other] for other in sorted(group)]
    return []
