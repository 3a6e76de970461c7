"""Watch a run batch by batch without files: as the tasks of a watch do, and nothing around them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from antiphon.pipeline.columns import CODES, NO_OFFSET, NULL_TIME
from antiphon.pipeline.results import WatchAlarm, WatchCommit
from antiphon.pipeline.watch import owed
from antiphon.pipeline.watch.batch import advance_run
from antiphon.pipeline.watch.consumers import BrokerWords
from antiphon.pipeline.watch.directory_watch import take
from antiphon.pipeline.watch.dues import conclude
from antiphon.pipeline.watch.forget import forget
from antiphon.pipeline.watch.intake import NO_ONE, NewRows, take_in
from antiphon.pipeline.watch.report import report
from antiphon.pipeline.watch.state import NEWEST_NS, WatchedRun, WatchedView, load, new_run, save
from antiphon.trace import naive
from antiphon.trace.event import Event
from antiphon.trace.schema import BROKER_KINDS


def pieces(events: list[Event], rng: random.Random, batches: int) -> Iterator[list[Event]]:
    """Cut every member's log at random places: each batch has a stretch of each."""
    logs: dict[int, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: (event.member, event.step)):
        logs[event.member].append(event)
    cuts = {
        member: [0, *sorted(rng.randint(0, len(log)) for _ in range(batches - 1)), len(log)]
        for member, log in logs.items()
    }
    for batch in range(batches):
        yield [event for member, log in logs.items() for event in log[cuts[member][batch] : cuts[member][batch + 1]]]


def rows_of(events: Iterable[Event]) -> NewRows:
    """Events as the rows of a batch."""
    views: list[WatchedView] = []
    said: dict[BrokerWords, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in NewRows._fields if name not in ("views", "said")}
    for event in events:
        about = event.event in ("send", "receive", "deliver", "stable", "discard") or event.detail in BROKER_KINDS
        columns["member"].append(event.member)
        columns["step"].append(event.step)
        columns["code"].append(CODES[event.event])
        columns["sender"].append(event.sender if about and event.sender is not None else NO_ONE)
        columns["seq"].append(event.seq or 0)
        columns["time"].append(NULL_TIME if event.time_ns is None else event.time_ns)
        columns["view"].append(len(views) if event.event == "view" else -1)
        columns["words"].append(_words(event, said))
        columns["offset"].append(NO_OFFSET if event.partition_offset is None else event.partition_offset)
        if event.event == "view":
            members = None if event.members is None else tuple(sorted(set(event.members)))
            views.append(WatchedView(event.view or 0, members))
    return NewRows(
        **{name: np.array(column, np.int64) for name, column in columns.items()}, views=views, said=list(said)
    )


def _words(event: Event, said: dict[BrokerWords, int]) -> int:
    kind = event.detail if event.event == "control" and event.detail in BROKER_KINDS else ""
    if not kind and (event.topic is None or event.event not in ("send", "deliver", "discard")):
        return -1
    words = BrokerWords(kind or "", event.topic, event.partition, event.group, bool(event.redelivered))
    return said.setdefault(words, len(said))


class RunWatch:
    """One run under watch."""

    def __init__(
        self, patience_ns: int = 30_000_000_000, roster: Iterable[int] = (), folder: Path | None = None
    ) -> None:
        self.run: WatchedRun = new_run("r")
        self.patience_ns, self.roster, self.batches = patience_ns, set(roster), 0
        self.folder = folder  # where the state is kept from batch to batch, if anywhere
        self.alarms: list[WatchAlarm] = []

    def batch(self, events: Iterable[Event]) -> None:
        """Read some rows."""
        take_in(self.run, rows_of(events), self.roster)
        self.alarms += advance_run(self.run, self.patience_ns, self.batches)
        self.alarms += owed.settle(
            self.run.brokers, int(self.run.counts[NEWEST_NS]), self.patience_ns, self.run.name, self.batches
        )
        self.alarms += forget(self.run, self.patience_ns, self.batches)
        self.batches += 1
        if self.folder is not None:
            save(self.run, self.folder / "state.npz")
            self.run = load(self.folder / "state.npz")

    def found(self, *, final: bool = False) -> WatchCommit:
        """What is known now."""
        commit = WatchCommit()
        take(commit, None, report(self.run, self.patience_ns, final=final))
        return commit

    def conclude(self) -> WatchCommit:
        """Nothing more comes."""
        self.alarms += advance_run(self.run, self.patience_ns, self.batches, to_the_end=True)
        self.alarms += conclude(self.run, self.batches)
        self.alarms += owed.lacking(self.run.brokers, self.run.name, self.batches)
        return self.found(final=True)


def compare(found: WatchCommit, events: list[Event]) -> Counter[str]:
    """Hold a watch against the naive checker; returns how many verdicts of each name there are."""
    expected = naive.check(events, guarantees=tuple(found.findings), witnesses=0)
    seen: Counter[str] = Counter()
    verdicts = found.verdicts()
    for name, finding in found.findings.items():
        if finding.inexact:
            assert verdicts[name] in ("unknown", expected[name].verdict), name
            seen["inexact"] += 1
            seen[f"{name} inexact"] += 1
            continue
        assert verdicts[name] == expected[name].verdict, name
        assert (finding.examined, finding.violations) == (expected[name].examined, expected[name].violations), name
        seen[verdicts[name]] += 1
        seen[f"{name} {verdicts[name]}"] += 1
    return seen
