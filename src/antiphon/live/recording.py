"""A recorded member: all its inputs and what it was made of, so that it can be run again to the same effects."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec

from antiphon.protocol.machine import Effect, Input, Instant, Snapshot
from antiphon.protocol.member import Member, View
from antiphon.protocol.membership.process import Journal, Process
from antiphon.protocol.membership.stay import Silence as Silence
from antiphon.protocol.options import GroupOptions

AnyInput: TypeAlias = Input | Snapshot


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a member is made from."""

    name: int
    names: tuple[int, ...]  # of the founders
    options: GroupOptions
    seed: int
    started_at: Instant
    saved: bytes | None = None  # what the life before persisted


class Recording:
    """The inputs of a member, in order, each with its instant; the oldest are not forgotten, so bound its use."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.inputs: list[tuple[Instant, AnyInput]] = []

    def note(self, now: Instant, event: AnyInput) -> None:
        """Keep an input."""
        self.inputs.append((now, event))

    def replay(self) -> Iterator[list[Effect]]:
        """Run an equal member through the same inputs, and give the effects of each."""
        machine = make(self.origin)
        for now, event in self.inputs:
            yield machine.handle(event, now)  # type: ignore[arg-type]  # snapshots only where captured


def make(origin: Origin, journal: Callable[[int], Journal] = Silence) -> Member | Process:
    """Make the machine: a process with views, or a member of a group that never changes."""
    randomness = random.Random(origin.seed)
    if not origin.options.views:
        log = journal(origin.name)
        record = None if isinstance(log, Silence) else log.record
        return Member(origin.name, View(0, origin.names), origin.options, randomness, record)
    return Process(
        origin.name,
        origin.names,
        origin.options,
        origin.options.membership,
        randomness,
        journal,
        origin.started_at,
        origin.saved,
    )
