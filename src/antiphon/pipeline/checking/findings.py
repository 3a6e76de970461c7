"""What tasks find: counts that add up, and stubs from which witnesses are made once it is clear which are wanted."""

from __future__ import annotations

import msgspec

from antiphon.trace.schema import ALL_GUARANTEES


class Stub(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A violation in numbers: its position in the canonical order, and what its witness must show."""

    run: str
    key: tuple[int, ...]
    facts: tuple[int, ...]


class Finding(msgspec.Struct, array_like=True):
    """What is known of one guarantee in a part of a trace."""

    examined: int = 0
    violations: int = 0
    undecided: bool = False
    lasting: int = 0  # violations that no unreadable row could undo
    stubs: list[Stub] = []

    def add(self, other: Finding, witnesses: int) -> None:
        """Take another part in; of the stubs only the first are kept."""
        self.examined += other.examined
        self.violations += other.violations
        self.undecided |= other.undecided
        self.lasting += other.lasting
        if other.stubs:  # code points sort as UTF-8 does
            self.stubs = sorted([*self.stubs, *other.stubs])[:witnesses]


class TaskFindings(msgspec.Struct):
    """What one task, or a whole check, found: by run if that was asked for, else under the name of no run."""

    witnesses: int
    per_run: bool
    strays: int = 0  # messages that somebody names and nobody sent
    topics: bool = False  # whether any row has a topic
    settled: int = 0  # runs that need no second stage
    found: dict[str, dict[str, Finding]] = {}

    def at(self, run: str, guarantee: str) -> Finding:
        """The finding to which one run's part is added."""
        of_run = self.found.setdefault(run if self.per_run else "", {})
        return of_run.setdefault(guarantee, Finding())

    def add(self, run: str, guarantee: str, part: Finding) -> None:
        """Take in what one run's part said of a guarantee."""
        self.at(run, guarantee).add(part, self.witnesses)

    def merge(self, other: TaskFindings) -> None:
        """Take in what another task found."""
        self.strays += other.strays
        self.topics |= other.topics
        self.settled += other.settled
        for run, of_run in other.found.items():
            for guarantee, part in of_run.items():
                self.add(run, guarantee, part)

    def total(self) -> dict[str, Finding]:
        """All runs together."""
        whole = {name: Finding() for name in ALL_GUARANTEES}
        for of_run in self.found.values():
            for guarantee, part in of_run.items():
                whole[guarantee].add(part, self.witnesses)
        return whole
