"""Sets of numbers as spans, so that what has come without gaps takes one row however much it is.

A span is a row (owner, low, high, ...): the numbers from low to high, both included, of one owner; what stands behind
is alike for all of them. Rows are in order, and no two of them overlap.
"""

from __future__ import annotations

import numpy as np

from antiphon.pipeline.columns import Array


def span_of(spans: Array, owner: Array, number: Array) -> Array:
    """Return the index of the span that has each of these numbers, -1 where none has."""
    found = np.full(len(number), -1, np.int64)
    if not len(spans) or not len(number):
        return found
    order = np.lexsort((number, owner))
    owners, first = np.unique(owner[order], return_index=True)
    for one, mine in zip(owners.tolist(), np.split(order, first[1:]), strict=True):
        begin, end = np.searchsorted(spans[:, 0], (one, one + 1)).tolist()
        at = begin + np.searchsorted(spans[begin:end, 1], number[mine], side="right") - 1
        has = (at >= begin) & (number[mine] <= spans[np.maximum(at, 0), 2])
        found[mine[has]] = at[has]
    return found


def with_numbers(spans: Array, owner: Array, number: Array, *more: Array) -> Array:
    """Add numbers that are in none of the spans."""
    return joined(np.concatenate([spans, np.stack([owner, number, number, *more], axis=1)])) if len(number) else spans


def joined(rows: Array) -> Array:
    """Put spans in order, and make one of those that follow each other and are alike."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    fresh = np.ones(len(rows), bool)
    alike = (rows[1:, 0] == rows[:-1, 0]) & (rows[1:, 3:] == rows[:-1, 3:]).all(axis=1)
    fresh[1:] = ~alike | (rows[1:, 1] > rows[:-1, 2] + 1)
    starts = np.flatnonzero(fresh)
    result = rows[starts].copy()
    result[:, 2] = rows[np.append(starts[1:], len(rows)) - 1, 2]
    return result


def shortened(spans: Array, most: int, kind: int) -> Array:
    """Make one span of an owner's oldest, gaps included, where it has more than so many; it is of the given kind."""
    _, first, counts = np.unique(spans[:, 0], return_index=True, return_counts=True)
    many = counts > most
    if not many.any():
        return spans
    keep = np.ones(len(spans), bool)
    spans = spans.copy()
    for begin, count in zip(first[many].tolist(), counts[many].tolist(), strict=True):
        last = begin + count - most
        keep[begin + 1 : last + 1] = False
        spans[begin, 2:] = spans[last, 2], kind
    return spans[keep]
