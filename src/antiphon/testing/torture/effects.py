"""What a schedule brought about: told by what happened in its run, not by what was drawn for it.

A fault that hits nobody tests nothing. Each effect has a question to a run; over some hundred seeds every one of them
must be answered with yes, which `tests/stack/test_effects.py` asserts and `--effects` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from antiphon.testing.torture.log import ApplicationStart, Noticed, Restored, SeenMessage, SentMessage, Viewed
from antiphon.testing.torture.run import Outcome, Tortured
from antiphon.testing.torture.schedule import ON_RECOVERY, ORDERINGS, STABILITIES, PlannedFault, Schedule

_DAY_MS: Final = 86_400_000
_LATENCIES: Final = ("uniform 100us 1ms", "uniform 40ms 60ms", "fixed 110ms", "fixed 300ms")
_STATES: Final = (0, 30_000, 300_000, 32 << 20)


class Ran:
    """A run that is over, and what can be asked of it."""

    def __init__(self, tortured: Tortured, outcome: Outcome) -> None:
        self.schedule: Schedule = outcome.schedule
        self.starts, self.happened = outcome.starts, tortured.happened
        self.network = tortured.world.network.all_counts

    def delivers(self) -> bool:
        """Say whether anyone got a message of another."""
        return any(seen.identity.member != start.member for start in self.starts for seen in _seen(start))

    def counts(self, *kinds: str) -> bool:
        """Say whether anyone counted one of these kinds."""
        return any(sample.counts.get(kind, 0) for start in self.starts for sample in start.samples for kind in kinds)

    def noticed(self, what: str) -> bool:
        """Say whether anyone was told something by a notice."""
        return any(isinstance(entry, Noticed) and entry.what == what for start in self.starts for entry in start.stream)

    def gave_up(self, what: str) -> bool:
        """Say whether an application gave something up, or failed at it."""
        return any(what in start.gave_up for start in self.starts)

    def faults(self, kind: str) -> Iterator[PlannedFault]:
        """Give the planned faults of a kind."""
        return (fault for fault in self.schedule.faults if fault.kind == kind)

    def sent(self) -> Iterator[SentMessage]:
        """Give all that was sent."""
        return (sent for start in self.starts for sent in start.sent.values())

    def restarts(self) -> Iterator[ApplicationStart]:
        """Give the starts after the first that got into a view."""
        return (start for start in self.starts if start.number > 1 and any(_views(start)))


def _seen(start: ApplicationStart) -> Iterator[SeenMessage]:
    return (entry for entry in start.stream if isinstance(entry, SeenMessage))


def _views(start: ApplicationStart) -> Iterator[Viewed]:
    return (entry for entry in start.stream if isinstance(entry, Viewed))


def _delivered_by(ran: Ran, ordering: str, *, safe: bool = False) -> bool:
    setup = ran.schedule.setup
    return setup.ordering == ordering and (setup.safe or not safe) and ran.delivers()


def _delivered_over(ran: Ran, latency: str) -> bool:
    return ran.schedule.net.latency == latency and ran.delivers()


def _stable_by(ran: Ran, stability: str) -> bool:
    return ran.schedule.setup.stability == stability and any(sent.stable_at is not None for sent in ran.sent())


def _forgot_and_came_back(ran: Ran) -> bool:
    forgetful = {member for fault in ran.schedule.faults if fault.forgets for member in fault.members}
    return "state folder lost" in ran.happened and any(start.member in forgetful for start in ran.restarts())


def _came_back_with_an_old_state(ran: Ran, *, lies: bool) -> bool:
    old = {member for fault in ran.faults("crash") if fault.old_ms and fault.lies == lies for member in fault.members}
    happened = ("disk lied" if lies else "old copy put back") in ran.happened
    return happened and any(start.member in old for start in ran.restarts())


def _suspected_after_a_fixed_time(ran: Ran) -> bool:
    """Say whether one that had crashed was left out of a view, or could be missed by nobody else."""
    went = any(view.left for start in ran.starts for view in _views(start))
    return ran.schedule.setup.fixed_times and "crash" in ran.happened and went


def _everyone_at_once(ran: Ran) -> bool:
    times = [start.crashed_at for start in ran.starts if start.crashed_at is not None and start.joined_at is not None]
    return any(times.count(at) == ran.schedule.members for at in times)


def _everyone_left(ran: Ran) -> bool:
    """Say whether all left at once, from a group that delivers, and came back."""
    planned = [fault for fault in ran.faults("leave") if len(fault.members) == ran.schedule.members]
    left = [start for start in ran.starts if start.left_at is not None and any(_views(start))]
    return bool(planned) and len({start.member for start in left}) == ran.schedule.members and any(ran.restarts())


def _paused_and_left_out(ran: Ran) -> bool:
    return any(
        isinstance(entry, Noticed) and entry.what == "excluded" and entry.at >= (fault.until or 0) / 1000
        for fault in ran.faults("pause")
        for start in ran.starts
        if start.member in fault.members
        for entry in start.stream
    )


def _cut(ran: Ran, *, ways: int, healed: bool) -> bool:
    links = {(fault.members, fault.others) for fault in ran.faults("cut") if (fault.until is not None) == healed}
    both = any((others, members) in links for members, others in links)
    return bool(ran.network.get("cut")) and bool(links) and both == (ways == 2) and ran.delivers()


def _web_of_cuts(ran: Ran) -> bool:
    return sum(fault.until is not None for fault in ran.faults("cut")) > 4 and bool(ran.network.get("cut"))


def _joined_what_others_had_founded(ran: Ran) -> bool:
    """Say whether one who was not declared as a founder got into the group."""
    founders = ran.schedule.setup.founders
    return founders > 0 and any(start.member >= founders and any(_views(start)) for start in ran.starts)


def _slow(ran: Ran, policy: str) -> bool:
    """A full inbox, and what its group does about it."""
    came_of_it = {
        "block": ran.counts("set-aside"),
        "drop": ran.counts("set-aside") and ran.noticed("excluded"),
        "lag": ran.counts("discarded"),
    }
    return ran.schedule.setup.slow == policy and came_of_it[policy]


def _restored(ran: Ran, size: int) -> bool:
    given = any(isinstance(entry, Restored) for start in ran.starts for entry in start.stream)
    return ran.schedule.setup.snapshot_bytes == size and given


def _late_seed(ran: Ran) -> bool:
    seed_at = ran.schedule.work[0].start_ms / 1000
    early = [start for start in ran.starts if start.at < seed_at and start.joined_at is not None]
    return ran.schedule.setup.discover == "peers" and bool(early)


def _after(ran: Ran, fault: str, kind: str) -> bool:
    """Say whether a message was delivered after the first fault of a kind hit somebody."""
    since = min((planned.at for planned in ran.faults(kind)), default=0) / 1000
    return fault in ran.happened and any(seen.at > since for start in ran.starts for seen in _seen(start))


def _read_by_batches(ran: Ran) -> bool:
    return any(ran.schedule.work[start.member].batches and any(_seen(start)) for start in ran.starts)


def _sent_many(ran: Ran) -> bool:
    return any(sent.stable_at is not None and ran.schedule.work[sent.identity.member].many > 1 for sent in ran.sent())


def _all_came_back_in_turn(ran: Ran) -> bool:
    """Say whether every member was started again and got into a view, while others stayed."""
    times = {start.at for start in ran.restarts()}
    return {start.member for start in ran.restarts()} == {*range(ran.schedule.members)} and len(times) > 1


def _asked_again(ran: Ran) -> bool:
    """Say whether a receipt said stable to one who had given up asking before."""
    return any(
        sent.stable_at is not None
        and 0 < ran.schedule.work[sent.identity.member].asks_ms / 1000 < sent.stable_at - sent.at
        for sent in ran.sent()
    )


def _restored_in_pieces(ran: Ran) -> bool:
    gives = [member for member, work in enumerate(ran.schedule.work) if work.piece_ms]
    asked = {start.member for start in ran.starts if start.snapshots}
    given = any(isinstance(entry, Restored) for start in ran.starts for entry in start.stream)
    return given and bool(asked) and asked <= {*gives}


def _odd_one_is_refused(ran: Ran) -> bool:
    return ran.schedule.odd is not None and ran.counts("refused-other-settings") and ran.delivers()


Question: TypeAlias = Callable[[Ran], bool]

EFFECTS: Final[dict[str, Question]] = {
    **{f"messages delivered by {one}": partial(_delivered_by, ordering=one) for one in ORDERINGS},
    **{f"safe messages delivered by {one}": partial(_delivered_by, ordering=one, safe=True) for one in ON_RECOVERY},
    **{f"messages stable by {one}": partial(_stable_by, stability=one) for one in sorted(set(STABILITIES))},
    **{f"messages delivered with a latency of {one}": partial(_delivered_over, latency=one) for one in _LATENCIES},
    "messages delivered by multicast": lambda ran: ran.schedule.setup.multicast and ran.delivers(),
    "messages delivered without views": lambda ran: not ran.schedule.setup.views and ran.delivers(),
    "a member crashed": lambda ran: "crash" in ran.happened,
    "a member came back with its state": lambda ran: any(ran.restarts()) and "state folder lost" not in ran.happened,
    "a member came back without its state": _forgot_and_came_back,
    "a member came back with an old copy of its state": lambda ran: _came_back_with_an_old_state(ran, lies=False),
    "a member came back with what a lying disk had kept": lambda ran: _came_back_with_an_old_state(ran, lies=True),
    "an old state was known for one": lambda ran: ran.counts("dropped-outdated-state"),
    "everyone crashed at once": _everyone_at_once,
    "everyone stood still at once": lambda ran: "everyone paused" in ran.happened and ran.delivers(),
    "a member was paused until the others had gone on": _paused_and_left_out,
    "a link was cut one way, and healed": lambda ran: _cut(ran, ways=1, healed=True),
    "a link was cut both ways, and healed": lambda ran: _cut(ran, ways=2, healed=True),
    "many links were cut at once, and healed": _web_of_cuts,
    "a link was cut one way for good": lambda ran: _cut(ran, ways=1, healed=False),
    "a link was cut both ways for good": lambda ran: _cut(ran, ways=2, healed=False),
    "a minority stalled": lambda ran: ran.noticed("stalled"),
    "a side yielded to another": lambda ran: ran.noticed("yielded"),
    "packets were lost": lambda ran: bool(ran.network.get("lost")),
    "packets came twice": lambda ran: bool(ran.network.get("duplicated")),
    "packets overtook each other": lambda ran: ran.schedule.net.reorder > 0 and ran.delivers(),
    "packets did not fit the path": lambda ran: ran.counts("packets-too-large"),
    "large packets vanished": lambda ran: ran.counts("packets-vanished"),
    "a clock was set forward by a day": lambda ran: _after(ran, f"clock {_DAY_MS}", "clock"),
    "a clock was set back by a day": lambda ran: _after(ran, f"clock {-_DAY_MS}", "clock"),
    "a write failed": lambda ran: "write failed" in ran.happened,
    "a crash before a write was done": lambda ran: "torn writing" in ran.happened,
    "a crash before a write was synced": lambda ran: "torn written" in ran.happened,
    "a crash once a write was synced": lambda ran: "torn synced" in ran.happened,
    "an unsynced write was lost": lambda ran: "unsynced write lost" in ran.happened,
    **{f"a slow reader, {policy}": partial(_slow, policy=policy) for policy in ("block", "drop", "lag")},
    **{f"a state of {size:,} bytes was restored": partial(_restored, size=size) for size in _STATES},
    "a state that was given piece by piece was restored": _restored_in_pieces,
    "keys were changed, and messages came": lambda ran: _after(ran, "keys changed", "keys"),
    "a late seed was found": _late_seed,
    "members found each other by multicast": lambda ran: ran.schedule.setup.discover == "multicast" and ran.delivers(),
    "members found each other by peers": lambda ran: ran.schedule.setup.discover == "peers" and ran.delivers(),
    "one set up differently was refused": _odd_one_is_refused,
    "replayed packets were refused": lambda ran: (
        "replay" in ran.happened and ran.counts("refused-replayed", "packets-unproven")
    ),
    "forged packets were refused": lambda ran: "forge" in ran.happened and ran.counts("refused-forged"),
    "tasks were cancelled": lambda ran: "tasks cancelled" in ran.happened,
    "messages sent together became stable": _sent_many,
    "messages were read by the batch": _read_by_batches,
    "a member left": lambda ran: any(start.left_at is not None for start in ran.starts),
    "a member left in a hurry": lambda ran: "left hurry" in ran.happened,
    "a member left by an error": lambda ran: "left error" in ran.happened,
    "a member was cancelled": lambda ran: "left cancel" in ran.happened,
    "a member joined again at once": lambda ran: "returned at once" in ran.happened,
    "everyone left at once": _everyone_left,
    "groups that were founded apart became one": lambda ran: ran.schedule.setup.undeclared and ran.noticed("yielded"),
    "a group was founded by an undeclared number": lambda ran: ran.schedule.setup.undeclared and ran.delivers(),
    "messages delivered over slow links": lambda ran: ran.schedule.net.bandwidth > 0 and ran.delivers(),
    "a member was suspected after a fixed time": _suspected_after_a_fixed_time,
    "one joined what others had founded": _joined_what_others_had_founded,
    "a read was given up": lambda ran: ran.gave_up("read"),
    "a send was given up": lambda ran: ran.gave_up("send"),
    "a state could not be given": lambda ran: ran.gave_up("snapshot"),
    "a state could not be taken over": lambda ran: ran.gave_up("restore"),
    "windows of one": lambda ran: ran.schedule.setup.window == 1 and ran.delivers(),
    "much was sent": lambda ran: any(len(start.sent) > 100 for start in ran.starts) and ran.delivers(),
    "every member came back, one after the other": _all_came_back_in_turn,
    "a receipt was asked again until it said stable": _asked_again,
    "a receipt was unknown": lambda ran: any(sent.lost is not None for sent in ran.sent()),
}


def effects_of(tortured: Tortured, outcome: Outcome) -> Iterator[str]:
    """Name what a run brought about."""
    ran = Ran(tortured, outcome)
    return (effect for effect, question in EFFECTS.items() if question(ran))
