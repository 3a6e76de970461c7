"""The traces of all members of a simulated world, and whether the groups kept what they promise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from antiphon.live.burst import burst_text
from antiphon.live.group import Group
from antiphon.live.recording import Origin
from antiphon.protocol.machine import SECOND, Instant, TraceRow
from antiphon.protocol.membership.views import name_of
from antiphon.protocol.options import GroupOptions, ordering_type, part_name
from antiphon.testing.done import DoneFault
from antiphon.testing.errors import Unexamined, Violated
from antiphon.trace import naive, writer
from antiphon.trace.event import Event
from antiphon.trace.log import MemberLog
from antiphon.trace.schema import STOPPED
from antiphon.trace.verdict import Verdict

_WANT_AN_END = ("validity", "agreement")  # of a run that was broken off, these say nothing
_OF_MESSAGES = ("send", "deliver", "discard")
_UNDER_WAY_NS = SECOND  # what was sent so shortly before a member left may have come too late for it


class IncarnationTrace(MemberLog):
    """The log of one incarnation, which knows by the world's clock when each message was sent, and when it was gone."""

    def __init__(
        self,
        member: int,
        now: Callable[[], Instant],
        gets_in: Callable[[int, tuple[int, ...]], None] = lambda number, members: None,
    ) -> None:
        """`gets_in` hears of its first view: the number, and the members."""
        super().__init__(member, 0, burst_text)
        self._now, self._gets_in = now, gets_in
        self.sent_at: dict[tuple[int, int], Instant] = {}  # by view and number
        self.gone_at: Instant | None = None

    def write(self, now: Instant, row: TraceRow) -> None:
        """Append what a machine said."""
        super().write(now, row)
        if row.event == "send" and row.seq is not None:
            self.sent_at[self.view, row.seq] = self._now()

    def install(self, now: Instant, number: int, members: tuple[int, ...]) -> None:
        """Append the beginning of a view."""
        if not self.took_part:
            self._gets_in(number, members)
        super().install(now, number, members)

    @property
    def left_in_good_order(self) -> bool:
        """Whether it left, and the others did not go on without it before: it could not have what they delivered."""
        return "leave" in self.events and self.details[self.events.index("leave")] != "excluded"


class Run:
    """What the members of one group did: those that hear each other, with every incarnation of theirs.

    A group of the same name that is founded anew, by members that remember nothing of it, is another run.
    """

    def __init__(self, name: str, addresses: Mapping[int, str], config: GroupOptions, *, views: bool) -> None:
        self.name, self.addresses, self.config, self.views = name, addresses, config, views
        self.logs: list[IncarnationTrace] = []
        self.left: list[IncarnationTrace] = []  # those of members that left in good order
        self.settled = True  # nothing was under way at the end
        self.over_ns: Instant | None = None  # when the test was over
        self.there: list[MemberLog] = []  # those of members that were there then
        self.twice: str | None = None  # who was let in twice under one number, since nobody was left who knew

    @property
    def events(self) -> list[Event]:
        """The trace as rows, member by member."""
        return [event for log in sorted(self.logs, key=lambda log: log.member) for event in log.rows(self.name)]

    @property
    def digest(self) -> str:
        """A fingerprint of the trace."""
        return writer.digest(self.name, sorted(self.logs, key=lambda log: log.member))

    def has(self, member: int) -> bool:
        """Whether an incarnation with this number took part in it already."""
        return any(log.member == member and log.took_part for log in self.logs)

    def add(self, log: IncarnationTrace) -> None:
        """Take up a log; one with the same number that never took part makes room."""
        self.logs = [*(one for one in self.logs if one.member != log.member), log]

    def promises(self) -> list[str]:
        """Name the guarantees that can be asked of it."""
        every = self.config.promises()
        return every if self.settled else [name for name in every if name not in _WANT_AN_END]

    def complete_events(self) -> list[Event]:
        """The trace as rows, in which members that left in good order are complete, not gone.

        A view change that does nothing but let them leave would part those that ended one after another. So what comes
        after a member's last message is left out, and its log ends there, in the view of that message; what was under
        way when it left counts as discarded. An incarnation that never took part, since it was passed over when it
        wanted to join, is no member.
        """
        events: list[Event] = []
        for log in sorted(self.logs, key=lambda log: log.member):
            rows = list(log.rows(self.name))
            if not any(row.event in ("view", *_OF_MESSAGES) for row in rows):
                continue
            if log in self.left or rows[-1].event == "end":
                last = max((index for index, row in enumerate(rows) if row.event in _OF_MESSAGES), default=0)
                events += rows[: last + 1]
                end = msgspec.structs.replace(rows[-1], event="end", members=None)
                missed = self._missed(log, rows[: last + 1]) if log in self.left else []
                for step, (sender, seq) in enumerate(missed, rows[last].step + 1):
                    discard = msgspec.structs.replace(end, event="discard", sender=sender, seq=seq, step=step)
                    events.append(msgspec.structs.replace(discard, view=rows[last].view))
                events.append(msgspec.structs.replace(end, step=end.step + len(missed)))
            else:
                events += rows
        return events

    def written_logs(self) -> list[MemberLog]:
        """Give the logs as they are written, in which members that were there when the test was over did not leave.

        They left because the test was over; that is no part of what is tested. Where messages were delivered in views
        that came of their leaving, it is told as it was.
        """
        logs: list[MemberLog] = sorted(self.logs, key=lambda log: log.member)
        over = self.over_ns
        kept = {id(log): _rows_kept(log, over) for log in self.there if log in self.left} if over is not None else {}
        if over is None or any(
            event == "view" and time > over
            for log in logs
            if not log.count("crash")
            for event, time in zip(
                *(column[: kept.get(id(log), len(log))] for column in (log.events, log.times)), strict=True
            )
        ):
            return logs
        return [log.ended_after(kept[id(log)], log.times[-1]) if id(log) in kept else log for log in logs]

    def _missed(self, log: IncarnationTrace, rows: Sequence[Event]) -> list[tuple[int, int]]:
        """Name the messages that were under way when a member left its last view, in the order of sending."""
        assert log.gone_at is not None
        seen = {(row.sender, row.seq) for row in rows if row.event in ("deliver", "discard")}
        sends = sorted(
            (at, other.member, seq)
            for other in self.logs
            for (view, seq), at in other.sent_at.items()
            if view == rows[-1].view and log.gone_at - _UNDER_WAY_NS <= at <= log.gone_at
        )
        return [(sender, seq) for _, sender, seq in sends if (sender, seq) not in seen]

    def check(self, *, global_clock: bool, unexamined: Collection[str] = ()) -> None:
        """Raise `Violated` for the first promise that was not kept, or of which nothing could be examined."""
        __tracebackhide__ = True  # from pytest: the witness says it all
        promises = self.promises() if self.twice is None else []
        verdicts = self._verdicts(self.events, promises, global_clock=global_clock)
        if self.left:
            complete = self._verdicts(self.complete_events(), promises, global_clock=global_clock)
            for name, verdict in complete.items():
                if verdict.examined > verdicts[name].examined:
                    verdicts[name] = verdict
        self._demand_examined(verdicts, unexamined)

    def _demand_examined(self, verdicts: Mapping[str, Verdict], unexamined: Collection[str]) -> None:
        """Raise `Unexamined` where messages were sent, and a promise about them could not be looked at."""
        for name in self.config.promises():
            if name in unexamined or not self._has_matter_for(name):
                continue
            if self.twice is not None:
                raise Unexamined(
                    self.name, name, f"{self.twice} lost its state and was let in twice as one incarnation"
                )
            if name not in verdicts:
                raise Unexamined(self.name, name, "something was still under way when the run ended")
            if verdicts[name].verdict == "unknown":
                raise Unexamined(self.name, name, self._why_unexamined())

    def _has_matter_for(self, guarantee: str) -> bool:
        """Say whether members did something that a guarantee is about: without messages there is no order.

        What was done by those that did not end in good order counts only where nobody did.
        """
        ended = [log for log in self.logs if log in self.left or "end" in log.events]
        logs = ended or self.logs
        delivered = [log.count("deliver") for log in logs]
        match guarantee:
            case "integrity" | "fifo":
                return any(delivered)
            case "validity":
                return any("send" in log.events for log in logs)
            case "agreement":
                return sum(map(bool, delivered)) > 1
            case "total":
                return sum(count > 1 for count in delivered) > 1
            case "causal":
                return any(log.count("send") > 1 for log in logs)
            case _:
                return False  # stability is about marks, view synchrony about changes: there may be none

    def _why_unexamined(self) -> str:
        gone = sum("crash" in log.events for log in self.logs)
        ended = sum(log in self.left or "end" in log.events for log in self.logs)
        return f"of {len(self.logs)} incarnations {gone} crashed or were cut short, and {ended} ended in good order"

    def _verdicts(self, events: list[Event], promises: list[str], *, global_clock: bool) -> dict[str, Verdict]:
        """Check, and raise `Violated` for the first promise that was not kept."""
        __tracebackhide__ = True
        found: dict[str, Verdict] = {}
        before: naive.HappenedBefore = getattr(ordering_type(self.config.ordering), "HAPPENED_BEFORE", "deliver")
        kinds = [(promises, False)]
        if self.config.safe:
            kinds.append(([name for name in ("agreement", "total") if name in promises], True))
        for guarantees, uniform in kinds:
            verdicts = naive.check(
                events, guarantees=guarantees, global_clock=global_clock, happened_before=before, uniform=uniform
            )
            for name, verdict in verdicts.items():
                if verdict.verdict == "violated":
                    kind = f"uniform {name}" if uniform else name
                    raise Violated(self.name, kind, verdict.witnesses[0], events)
                found.setdefault(name, verdict)
        return found

    def about(
        self, seed: int, *, global_clock: bool, owners: Mapping[str, str], done: Iterable[DoneFault]
    ) -> dict[str, Any]:
        """Give what `run.json` says of it; `owners` are the processes by address, `done` what was done to them."""
        numbers = {}
        for number, address in sorted(self.addresses.items()):
            numbers[address] = number
            numbers.setdefault(owners.get(address, address), number)
        names = {number: owners.get(address, address) for number, address in sorted(self.addresses.items())}
        config = self.config
        stability = config.stability if ordering_type(config.ordering).NEEDS_RECOVERY else config.ordering
        return {
            "ordering": part_name(config.ordering),
            "stability": part_name(stability),
            "views": self.views,
            "clock": "global" if global_clock else "local",
            "promises": self.promises(),
            "seed": seed,
            "addresses": [address for _, address in sorted(self.addresses.items())],
            "names": names,
            "faults": [one.told(numbers) for one in done],
        }


class Traces:
    """Keeps the logs of every incarnation of every member."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._present: dict[Group, tuple[Run, IncarnationTrace]] = {}
        self.runs: dict[str, Run] = {}
        self._by_config: dict[str, list[Run]] = {}

    def journals(self, group: Group, origin: Origin, addresses: Mapping[int, str]) -> Callable[[int], IncarnationTrace]:
        """Give a member what begins the log of each of its incarnations."""
        config, views = origin.options, origin.options.views
        runs = self._by_config.setdefault(config.group, [])

        def begin(member: int) -> IncarnationTrace:
            def gets_in(number: int, members: tuple[int, ...]) -> None:
                before, _ = self._present[group]
                before.logs = [one for one in before.logs if one is not log]
                found = self._run_with(runs, member, number, members)
                run = self._new_run(runs, config, addresses) if found is None or found.has(member) else found
                if found is not None and found is not run:  # one number means two, and no trace can tell which
                    found.twice = run.twice = addresses[name_of(member)]
                run.add(log)
                self._present[group] = run, log

            log = IncarnationTrace(member, self._now, gets_in)
            # with views it shows whom it goes on with when it gets in; without, one that starts again starts anew
            run = runs[-1] if runs and views else next((run for run in runs if not run.has(member)), None)
            run = run or self._new_run(runs, config, addresses)
            if not run.has(member):
                run.add(log)
            self._present[group] = run, log
            return log

        return begin

    def _new_run(self, runs: list[Run], config: GroupOptions, addresses: Mapping[int, str]) -> Run:
        group = config.group.rpartition("/")[0]
        names = (group, *(f"{group} {number}" for number in range(2, len(self.runs) + 2)))
        name = next(name for name in names if name not in self.runs)
        self.runs[name] = Run(name, addresses, config, views=config.views)
        runs.append(self.runs[name])
        return self.runs[name]

    def _run_with(self, runs: Sequence[Run], member: int, number: int, members: tuple[int, ...]) -> Run | None:
        """Find the run whose members one gets into a view with; None: this view founds the group anew."""
        there = [(run, log.member) for run, log in self._present.values() if log.took_part]
        for run in reversed(runs):
            if any(other in members for of, other in there if of is run):
                return run
        last = runs[-1]
        if number > 1 or any(run is last for run, _ in there) or not any(log.took_part for log in last.logs):
            return last
        same = any(view == (number, members) for log in last.logs for view in log.known_views)
        return last if same and not last.has(member) else None  # it may be the only one who does not crash

    def groups(self) -> Iterator[tuple[Group, Run]]:
        """Give the groups that are there, in the order of joining."""
        return ((group, run) for group, (run, _) in self._present.items())

    def stopped(self, group: Group, *, drained: bool) -> None:
        """Note that a member is gone, if it did not do so itself; where membership is fixed, nobody says farewell."""
        run, log = self._present.pop(group, (None, None))
        if run is None or log is None:
            return
        if "leave" not in log.events:
            farewell = drained and not run.views
            why = STOPPED if run.over_ns is not None and not farewell else None  # the test was over: nobody killed it
            log.record(self._now(), "leave" if farewell else "crash", None, None, None, why)
        if log.left_in_good_order and (drained or run.views):
            log.gone_at = self._now()
            run.left.append(log)

    def over(self) -> None:
        """Note who is there now that the test is over: what they do from here on is to leave."""
        for run, log in self._present.values():
            run.over_ns = self._now()
            run.there.append(log)

    def end(self) -> None:
        """Note that the logs of those that are still there are complete, or that too much is under way to say so."""
        for run in self.runs.values():
            present = {group: log for group, (of, log) in self._present.items() if of is run}
            run.settled = is_settled(present)
            for log in present.values():
                if run.settled:
                    log.record(self._now(), "end", None, None, None, None)

    def write(
        self, folder: Path, seed: int, *, global_clock: bool, owners: Mapping[str, str], done: Iterable[DoneFault]
    ) -> None:
        """Write every run as a trace that `antiphon check` reads: one as the folder, several as folders in it."""
        for run in self.runs.values():
            place = folder if len(self.runs) == 1 else folder / run.name.replace("/", "-")
            logs = run.written_logs()
            about = run.about(seed, global_clock=global_clock, owners=owners, done=done)
            writer.write_trace(place, run.name, logs, about, replace=True)


def _rows_kept(log: MemberLog, over: Instant) -> int:
    """Count the rows of a log up to its last message, and all before the test was over."""
    last = max((at for at, event in enumerate(log.events) if event in _OF_MESSAGES), default=-1)
    before = sum(time <= over for time in log.times)
    return min(max(last + 1, before), len(log) - 1)


def is_settled(groups: Iterable[Group]) -> bool:
    """Say whether members are in one view, and nothing waits or is kept there."""
    statuses = [group.status() for group in groups]
    return all(
        status.standing == "active"
        and (status.view, status.members) == (statuses[0].view, statuses[0].members)
        and not status.held
        and not status.waiting_bytes
        for status in statuses
    )
