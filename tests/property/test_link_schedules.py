"""Links that break for ever, one way or both, at the default options: whoever can go on does, soon; the others say so.

Two thousand schedules; `python -m antiphon.sim.torture --links` runs as many more as one likes.
"""

from __future__ import annotations

import pytest

from antiphon.protocol.ordering import ORDERINGS
from antiphon.sim.link_schedules import Links, Partition, cut, cut_links, flaw
from antiphon.sim.scenario import to_toml

CHUNK = 125


@pytest.mark.parametrize(
    ("partition", "first"),
    [
        *(("majority", first) for first in range(0, 12 * CHUNK, CHUNK)),
        *(("each-side", first) for first in range(0, 4 * CHUNK, CHUNK)),
    ],
)
def test_whatever_links_break(partition: Partition, first: int) -> None:
    orderings = sorted(ORDERINGS)
    for seed in range(first, first + CHUNK):
        scenario = cut_links(seed, orderings[seed % len(orderings)], partition)
        wrong = flaw(scenario, seed)
        assert wrong is None, f"seed {seed}: {wrong}\n{to_toml(scenario)}"


def _dead_beside(dead: int, members: int, shape: Links) -> Links:
    """Return broken links of which one member has all, while others have theirs."""
    return shape | {link for other in range(members - 1) for link in ((dead, other), (other, dead))}


CASES: dict[str, tuple[int, Links]] = {
    "one link, both ways": (5, {(3, 4), (4, 3)}),
    "one link, one way, of three": (3, {(0, 2)}),
    "two of five do not hear the last": (5, {(4, 0), (4, 1)}),
    "the coordinator alone has lost its majority": (5, {(a, b) for a in (0, 1) for b in (2, 3, 4)}),
    "a chain": (5, {(a, b) for a in range(5) for b in range(5) if abs(a - b) > 1}),
    "a ring": (6, {(a, b) for a in range(6) for b in range(6) if abs(a - b) not in (0, 1, 5)}),
    "one member that alone hears anyone": (6, {(a, b) for a in range(1, 6) for b in range(1, 6) if a != b}),
    "one is dead to all, and of the others one alone hears anyone": (
        5,
        _dead_beside(4, 5, {(a, b) for a in range(1, 4) for b in range(1, 4) if a != b}),
    ),
    "one is dead to all, and the others are a chain": (
        5,
        _dead_beside(4, 5, {(a, b) for a in range(4) for b in range(4) if abs(a - b) > 1}),
    ),
    "one member between two halves": (
        5,
        {(a, b) for a in range(5) for b in range(5) if {a, b} & {0, 1} and {a, b} & {3, 4}},
    ),
    "one who hears a single member of the larger side": (4, {(0, 1), (1, 0), (1, 2), (2, 1)}),
    "one whose only contact went elsewhere": (4, {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)}),
}


@pytest.mark.parametrize("partition", ["majority", "each-side"])
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
@pytest.mark.parametrize("case", CASES)
def test_where_these_links_break(case: str, ordering: str, partition: Partition) -> None:
    assert flaw(cut(*CASES[case], ordering, partition), seed=1) is None
