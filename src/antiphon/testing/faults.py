"""Faults drawn by chance: partitions, one-way cuts, pauses, crashes with a restart, all of which end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.machine import Duration
from antiphon.sim.distributions import duration

if TYPE_CHECKING:
    from antiphon.testing.reduction import Reduction
    from antiphon.testing.world import World

Kind = Literal["partition", "cut", "pause", "crash"]
KINDS: tuple[Kind, ...] = ("partition", "cut", "pause", "crash")


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How many things go wrong, and when; the seed says which."""

    count: int = 3
    within: str = "2s"  # they begin before this
    longest: str = "800ms"  # and last at most so long
    kinds: Sequence[Kind] = KINDS  # crash: of processes that the world started, which it starts again

    def check(self) -> None:
        """Raise a `UsageError` that names the key, unless these can be drawn."""
        if self.count < 0:
            raise UsageError(f"faults.count: 0 or more, not {self.count}")
        for key in ("within", "longest"):
            if duration(getattr(self, key), f"faults.{key}") <= 0:
                raise UsageError(f"faults.{key}: must be above 0")
        if wrong := set(self.kinds) - set(KINDS):
            raise UsageError(f"faults.kinds: unknown {min(wrong)!r}; choose from {', '.join(KINDS)}")


def draw(world: World, faults: Faults, reduced: Reduction, rng: random.Random) -> Duration:
    """Schedule the faults of a seed, those that are kept; give the time by which all of them are over."""
    within, longest = duration(faults.within, "faults.within"), duration(faults.longest, "faults.longest")
    over = 0
    for index in range(faults.count):
        at = rng.randrange(within)
        until = at + 1 + rng.randrange(longest)
        kind, own = rng.choice(faults.kinds), random.Random(rng.getrandbits(64))
        if reduced.keeps(index):
            over = max(over, until)
            _schedule(world, kind, at, until, own)
    return over


def _schedule(world: World, kind: Kind, at: Duration, until: Duration, rng: random.Random) -> None:
    def begin() -> None:
        names = world.names
        if len(names) < 2:
            return
        one, *rest = rng.sample(names, len(names))
        match kind:
            case "partition":
                side = [one, *(name for name in rest[1:] if rng.random() < 0.4)]
                fault = world.partition(side)
                world.at_ns(until, fault.heal)
            case "cut":
                ends = [one], rest if rng.random() < 0.5 else rest[:1]
                source, target = ends if rng.random() < 0.5 else ends[::-1]
                fault = world.cut(source, target)
                world.at_ns(until, fault.heal)
            case "pause":
                world.pause(one)
                world.at_ns(until, lambda: world.resume(one))
            case "crash":
                if world.can_restart(one):
                    world.crash(one)
                    world.at_ns(until, lambda: world.restart(one))

    world.at_ns(at, begin)
