"""The traces of all members of a simulated world, and whether the groups kept what they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from antiphon.live.group import Group
from antiphon.live.recording import Origin
from antiphon.protocol.machine import Instant
from antiphon.protocol.options import GroupOptions, ordering_type, part_name
from antiphon.testing.errors import Violated
from antiphon.trace import naive, writer
from antiphon.trace.event import Event
from antiphon.trace.log import MemberLog

_WANT_AN_END = ("validity", "agreement")  # of a run that was broken off, these say nothing


class Run:
    """What the members of one group did: those that hear each other, with every life of theirs."""

    def __init__(self, name: str, addresses: Mapping[int, str], config: GroupOptions, *, views: bool) -> None:
        self.name, self.addresses, self.config, self.views = name, addresses, config, views
        self.logs: list[MemberLog] = []
        self.settled = True  # nothing was under way at the end

    @property
    def events(self) -> list[Event]:
        """The trace as rows, member by member."""
        return [event for log in sorted(self.logs, key=lambda log: log.member) for event in log.rows(self.name)]

    @property
    def digest(self) -> str:
        """A fingerprint of the trace."""
        return writer.digest(self.name, sorted(self.logs, key=lambda log: log.member))

    def has(self, member: int) -> bool:
        """Whether a life with this number is part of it already."""
        return any(log.member == member for log in self.logs)

    def promises(self) -> list[str]:
        """Name the guarantees that can be asked of it."""
        every = self.config.promises()
        return every if self.settled else [name for name in every if name not in _WANT_AN_END]

    def check(self, *, global_clock: bool) -> None:
        """Raise `Violated` for the first promise that was not kept."""
        __tracebackhide__ = True  # from pytest: the witness says it all
        events, promises = self.events, self.promises()
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

    def about(self, seed: int, *, global_clock: bool) -> dict[str, Any]:
        """Give what `run.json` says of it."""
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
        }


class Traces:
    """Keeps the logs of every life of every member."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._present: dict[Group, tuple[Run, MemberLog]] = {}
        self.runs: dict[str, Run] = {}
        self._by_config: dict[str, list[Run]] = {}

    def journals(self, group: Group, origin: Origin, addresses: Mapping[int, str]) -> Callable[[int], MemberLog]:
        """Give a member what begins the log of each of its lives."""
        views = origin.options.views

        def begin(member: int) -> MemberLog:
            log = MemberLog(member, 0)
            run = self._run_of(member, origin.options, addresses, views=views)
            run.logs.append(log)
            self._present[group] = run, log
            return log

        return begin

    def _run_of(self, member: int, config: GroupOptions, addresses: Mapping[int, str], *, views: bool) -> Run:
        """Find the run that a life belongs to; where membership is fixed, a member that begins again begins anew."""
        runs = self._by_config.setdefault(config.group, [])
        found = next((run for run in runs if not run.has(member)), None)
        if found is None:
            group = config.group.rpartition("/")[0]
            names = (group, *(f"{group} {number}" for number in range(2, len(self.runs) + 2)))
            name = next(name for name in names if name not in self.runs)
            found = self.runs[name] = Run(name, addresses, config, views=views)
            runs.append(found)
        return found

    def groups(self) -> Iterator[tuple[Group, Run]]:
        """Give the groups that are there, in the order of joining."""
        return ((group, run) for group, (run, _) in self._present.items())

    def stopped(self, group: Group, *, drained: bool) -> None:
        """Note that a member is gone, if it did not do so itself; where membership is fixed, nobody says farewell."""
        run, log = self._present.pop(group, (None, None))
        if run is None or log is None or "leave" in log.events:
            return
        log.record(self._now(), "leave" if drained and not run.views else "crash", None, None, None, None)

    def end(self) -> None:
        """Note that the logs of those that are still there are complete, or that too much is under way to say so."""
        for run in self.runs.values():
            present = {group: log for group, (of, log) in self._present.items() if of is run}
            run.settled = is_settled(present)
            for log in present.values():
                if run.settled:
                    log.record(self._now(), "end", None, None, None, None)

    def write(self, folder: Path, seed: int, *, global_clock: bool) -> None:
        """Write every run as a trace that `antiphon check` reads: one as the folder, several as folders in it."""
        for run in self.runs.values():
            place = folder if len(self.runs) == 1 else folder / run.name.replace("/", "-")
            logs = sorted(run.logs, key=lambda log: log.member)
            writer.write_trace(place, run.name, logs, run.about(seed, global_clock=global_clock), replace=True)


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
