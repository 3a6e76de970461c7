"""Quantiles: exact where a member's values are at hand, and a sketch of bounded relative error that adds up over tasks.

A quantile is the smallest value that at least that share of the values does not exceed.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.results import Quantiles

SHARES: dict[str, float] = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99, "p999_ns": 0.999}
BITS = 8  # leading bits of a value that the sketch keeps
RELATIVE_ERROR = 2.0**-BITS


def rank(share: float, count: int) -> int:
    """The index of a quantile among so many sorted values."""
    return max(0, int(np.ceil(share * count - 1e-9)) - 1)


def exact(values: Array) -> dict[str, int | float]:
    """Count, mean, extremes and quantiles of some values."""
    ordered = np.sort(values)
    return {
        "count": len(ordered),
        "mean_ns": float(ordered.mean()),
        "min_ns": int(ordered[0]),
        **{name: int(ordered[rank(share, len(ordered))]) for name, share in SHARES.items()},
        "max_ns": int(ordered[-1]),
    }


class Sketch:
    """A histogram whose buckets are as wide as 1/256 of their values; values below 0 (skewed clocks) are mirrored."""

    def __init__(self, buckets: dict[int, int] | None = None) -> None:
        self.buckets: dict[int, int] = buckets or {}

    def add(self, values: Array) -> None:
        """Take values in."""
        size = np.abs(values).astype(np.int64)
        exponent = np.maximum(0, np.frexp(size.astype(np.float64))[1].astype(np.int64) - BITS - 1)
        bucket = (exponent << (BITS + 1)) + (size >> exponent)
        bucket = np.where(values < 0, -bucket - 1, bucket)
        for number, count in zip(*(part.tolist() for part in np.unique(bucket, return_counts=True)), strict=True):
            self.buckets[number] = self.buckets.get(number, 0) + count

    def merge(self, other: dict[int, int]) -> None:
        """Take another sketch's buckets in."""
        for number, count in other.items():
            self.buckets[number] = self.buckets.get(number, 0) + count

    @property
    def count(self) -> int:
        """How many values were taken in."""
        return sum(self.buckets.values())

    def quantile(self, share: float) -> int:
        """A quantile, off by at most 1/256 of itself."""
        wanted, seen = rank(share, self.count), 0
        for number in sorted(self.buckets):
            seen += self.buckets[number]
            if seen > wanted:
                return _middle(number)
        raise ValueError("an empty sketch has no quantiles")

    def quantiles(self) -> Quantiles:
        """Return the quantiles that are shown."""
        shares = {name: self.quantile(share) for name, share in SHARES.items()}
        return Quantiles(count=self.count, **shares, max_ns=self.quantile(1.0))

    def histogram(self, buckets_max: int = 200) -> list[tuple[int, int, int]]:
        """How many values are in [low, high), in order; buckets are joined in twos until there are few enough."""
        merged: Counter[tuple[int, int]] = Counter()
        for dropped in range(BITS + 1):  # at last one bucket for each power of 2
            merged = Counter()
            for number, count in self.buckets.items():
                merged[_edges(number, dropped)] += count
            if len(merged) <= buckets_max:
                break
        return sorted((low, high, count) for (low, high), count in merged.items())


def _edges(number: int, dropped: int) -> tuple[int, int]:
    """The values of a bucket, [low, high), if so many bits fewer were kept."""
    if number < 0:
        low, high = _edges(-number - 1, dropped)
        return 1 - high, min(0, 1 - low)
    exponent, lead = number >> (BITS + 1), number & ((1 << (BITS + 1)) - 1)
    width = exponent + dropped
    low = (lead << exponent) >> width << width
    return low, low + (1 << width)


def _middle(number: int) -> int:
    if number < 0:
        return -_middle(-number - 1)
    exponent, lead = number >> (BITS + 1), number & ((1 << (BITS + 1)) - 1)
    return (lead << exponent) + ((1 << exponent) >> 1)
