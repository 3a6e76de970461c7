"""A recorded member: all its inputs and what it was made of, so that it can be run again to the same effects."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import msgspec

from antiphon.protocol.machine import Effect, Instant, Submit
from antiphon.protocol.membership.process import Process, ProcessInput
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import VERSIONS, Codec


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a member is made from."""

    name: int
    names: tuple[int, ...]  # of the founders
    declared: int = 0  # how many there are, where not all of them are known
    options: GroupOptions
    seed: int
    started_at: Instant
    saved: bytes | None = None  # what the incarnation before persisted
    queued: tuple[Submit, ...] = ()  # what it had not sent
    versions: Mapping[int, type[Codec]] = msgspec.field(default_factory=VERSIONS.copy)  # of the wire, that it speaks


class Recording:
    """The inputs of a member, in order, each with its instant; the oldest are not forgotten, so bound its use."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.inputs: list[tuple[Instant, ProcessInput]] = []

    def note(self, now: Instant, event: ProcessInput) -> None:
        """Keep an input."""
        self.inputs.append((now, event))

    def replay(self) -> Iterator[list[Effect]]:
        """Run an equal member through the same inputs, and give the effects of each."""
        machine = make(self.origin)  # a trace is not an effect that counts
        for now, event in self.inputs:
            yield machine.handle(event, now)  # type: ignore[arg-type]  # snapshots only where captured


def make(origin: Origin, *, traced: bool = False) -> Member | Process:
    """Make the machine: a process with views, or a member of a group that never changes."""
    randomness = random.Random(origin.seed)
    if not origin.options.views:
        view = View(0, origin.names, codec=origin.versions[max(origin.versions)])
        return Member(origin.name, view, origin.options, randomness, traced=traced)
    process = Process(
        origin.name,
        origin.names,
        origin.options,
        origin.options.membership,
        randomness,
        origin.started_at,
        origin.saved,
        traced=traced,
        first_round=random.Random(f"{origin.seed}/ballots").getrandbits(24 if origin.saved is None else 16),
        declared=origin.declared,
        versions=origin.versions,
    )
    process.lifecycle.queue.extend(origin.queued)
    return process
