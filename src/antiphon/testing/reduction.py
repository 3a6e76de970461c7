"""A seed's world made smaller: fewer faults, smaller numbers, a calmer network, with all else as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.errors import UsageError
from antiphon.sim.shrinking import smallest
from antiphon.testing.errors import Unexamined, Violated
from antiphon.wording import count, listed

if TYPE_CHECKING:
    from antiphon.testing.world import World

_SECONDS: Final = 20.0  # real ones that making a failure smaller may take
_TRIES_MAX: Final = 100
CALMED: Final = ("loss", "duplicate", "reorder", "skew")  # options of a world that can be switched off


class Reduction(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is left of a seed's world: which of its drawn faults, which numbers, what of its network is switched off."""

    faults: tuple[int, ...] | None = None  # the places of those that are kept, from 0; None: all
    numbers: dict[str, int] = {}
    calm: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Reduction:
        """Read what `text` wrote."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise UsageError(f"a reduced world: {error}; it is written as a failing seed's report prints it") from None

    def text(self) -> str:
        """Write it for a command line."""
        return msgspec.json.encode(self).decode()

    def keeps(self, fault: int) -> bool:
        """Say whether a drawn fault happens."""
        return self.faults is None or fault in self.faults

    def told(self, world: World) -> str:
        """Say in words how much smaller this world is than its seed's whole one."""
        said = []
        if self.faults is not None:
            said.append(f"{len(self.faults)} of {count(world.faults.count, 'fault')}")
        said += [f"{name} {number} instead of {world.numbers[name].drawn}" for name, number in self.numbers.items()]
        said += [f"no {name}" for name in self.calm]
        return listed(said) if said else "nothing could be left out"


class DrawnNumber(msgspec.Struct, frozen=True):
    """A number that a test draws for a size of its own."""

    low: int
    drawn: int  # by the seed
    given: int  # to the test: the drawn one, or a smaller


def reductions(world: World) -> Iterator[Reduction]:
    """Give the worlds that are a little smaller than one, those that leave out most first."""
    now, replace = world.reduced, msgspec.structs.replace
    kept = tuple(index for index in range(world.faults.count) if now.keeps(index))
    if kept:
        yield replace(now, faults=())
    if len(kept) > 1:
        for fault in kept:
            yield replace(now, faults=tuple(one for one in kept if one != fault))
    for name, number in world.numbers.items():
        for fewer in sorted({number.low, (number.low + number.given) // 2, number.given - 1}):
            if number.low <= fewer < number.given:
                yield replace(now, numbers=now.numbers | {name: fewer})
    for name in CALMED:
        if name in world.troubled:
            yield replace(now, calm=(*now.calm, name))


class Failure(msgspec.Struct, frozen=True):
    """A world in which a test failed, and how."""

    world: World
    error: BaseException

    def is_like(self, other: Failure) -> bool:
        """Say whether another world failed in the same way: the same promise broken, the same assertion false."""
        return type(self.error) is type(other.error) and _place(self.error) == _place(other.error)


def _place(error: BaseException) -> object:
    if isinstance(error, Violated | Unexamined):
        return error.guarantee
    if not isinstance(error, AssertionError) or error.__traceback__ is None:
        return None
    innermost = error.__traceback__
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost.tb_frame.f_code.co_filename, innermost.tb_lineno


def make_smaller(failure: Failure, run: Callable[[Reduction], Failure | None]) -> Failure:
    """Return the same failure in the smallest world found, within some seconds."""
    found, until = failure, time.monotonic() + _SECONDS

    def fails(reduction: Reduction) -> bool:
        nonlocal found
        again = run(reduction) if time.monotonic() < until else None
        if again is None or not again.is_like(failure):
            return False
        found = again
        return True

    smallest(failure.world.reduced, lambda _: reductions(found.world), fails, _TRIES_MAX)
    return found
