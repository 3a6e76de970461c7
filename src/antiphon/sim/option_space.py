"""Draw options of a part at and between their bounds, by what its `Options` struct says of their types.

Nothing is listed by name: an option that a protocol gets tomorrow is drawn tomorrow. What cannot work must be refused
by the options' own `check`, with the key and the reason; whoever draws leaves such a value out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from antiphon.protocol.machine import MILLISECOND, SECOND

_SHARE: Final = 0.25  # of the options that are drawn; the others stay as usual
# The shortest are drawn half as often as the others: a schedule with them costs as much as a dozen without.
_PAUSES_NS: Final = (
    MILLISECOND // 10,
    *(2 * (MILLISECOND, 5 * MILLISECOND, 30 * MILLISECOND, 200 * MILLISECOND, SECOND)),
)
_COUNTS: Final = (1, 2, 3, 5, 16, 64)
_BYTES: Final = (64, 300, 1_200, 9_000)


def draw(rng: random.Random, options: type[msgspec.Struct]) -> dict[str, Any]:
    """Draw some of the options of a struct."""
    return {name: rng.choice(values) for name, values in _space(options).items() if rng.random() < _SHARE}


def shapes(rng: random.Random, options: type[msgspec.Struct], size: int) -> Iterator[dict[str, Any]]:
    """Draw what a struct takes of a whole group as a list, an order and a tree: one of them is what it means."""
    for name in _lists(options):
        if rng.random() < _SHARE:
            order = rng.sample(range(size), size)
            yield {name: order}
            parents = {rank: rng.choice(order[:place]) if place else -1 for place, rank in enumerate(order)}
            yield {name: [parents[rank] for rank in range(size)]}


@cache
def _lists(options: type[msgspec.Struct]) -> list[str]:
    """List the options of a struct that are lists, where they are given."""
    info = msgspec.inspect.type_info(options)
    assert isinstance(info, msgspec.inspect.StructType)
    kinds = {one.name: one.type.types if isinstance(one.type, msgspec.inspect.UnionType) else () for one in info.fields}
    return [name for name, types in kinds.items() if any(isinstance(one, msgspec.inspect.ListType) for one in types)]


@cache
def _space(options: type[msgspec.Struct]) -> dict[str, list[Any]]:
    """List the values to try for each option of a struct."""
    info = msgspec.inspect.type_info(options)
    assert isinstance(info, msgspec.inspect.StructType)
    values = {field.name: _values(field.name, field.type) for field in info.fields}
    return {name: tried for name, tried in values.items() if tried}


def _values(name: str, kind: msgspec.inspect.Type) -> list[Any]:
    """List the values to try for one option: its lower bound, and a few above it."""
    match kind:
        case msgspec.inspect.BoolType():
            return [False, True]
        case msgspec.inspect.LiteralType(values=values):
            return list(values)
        case msgspec.inspect.IntType():
            lowest = kind.ge if kind.ge is not None else kind.gt + 1 if kind.gt is not None else None
            usual = _PAUSES_NS if name.endswith("_ns") or "_ns_" in name else _BYTES if "bytes" in name else _COUNTS
            least = [] if lowest is None else [lowest]
            return [*least, *(value for value in usual if (kind.le is None or value <= kind.le))]
        case _:
            return []  # `shapes` draws those that are made for a size
