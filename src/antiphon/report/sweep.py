"""A sweep's table as a report needs it: what varies, what is compared, and means over seeds with how sure they are."""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.report.charts import Band
from antiphon.trace.schema import GUARANTEES
from antiphon.trace.verdict import HOLDS, INCONCLUSIVE, VIOLATED

Row = dict[str, Any]

# two-sided 95% quantiles of Student's distribution, by degrees of freedom from 1; beyond, the normal one is near enough
_T95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL95: Final = 1.960

_VALUES: Final = (
    "cell", "seed", "status", "error", "finished", "members", "sent", "promises", "broken", "undecided",
    "delivery_p50_ns", "delivery_p99_ns", "stable_p50_ns", "stable_p99_ns", "buffer_peak", "overhead",
    "retransmissions", "control_bytes",
    *(name.replace("-", "_") for name in GUARANTEES),
)  # fmt: skip


class Sweep(msgspec.Struct):
    """The cells of a sweep, and the roles of what varies between them."""

    folder: str
    rows: list[Row]
    x: str | None  # the setting along the axis of the figures: the group's size, or the number that varies most
    series: list[str]  # settings that are compared: protocols, and whatever else is no number
    facets: list[str]  # numbers that vary besides: a figure each

    @property
    def done(self) -> list[Row]:
        """The cells that ran."""
        return [row for row in self.rows if row["status"] == "done"]

    def name(self, row: Row) -> str:
        """What distinguishes the series of a cell."""
        return ", ".join(_said(row[key]) for key in self.series) or "all cells"

    def facet(self, row: Row) -> str:
        """What distinguishes the figure of a cell; empty if there is only one."""
        return ", ".join(f"{label(key)} {_said(row[key])}" for key in self.facets)

    def setting(self, row: Row) -> str:
        """All that distinguishes a cell, but its seed."""
        keys = [*self.series, *self.facets, *([self.x] if self.x else [])]
        return ", ".join(f"{label(key)} {_said(row[key])}" for key in keys) or "the scenario"

    def count(self) -> dict[str, int]:
        """How many cells are what."""
        done = self.done
        return {
            "cells": len(self.rows),
            "done": len(done),
            "failed": len(self.rows) - len(done),
            "violated": sum(bool(row["broken"]) for row in done),
            "unknown": sum(bool(row["undecided"]) for row in done),
            "unfinished": sum(row["finished"] is False for row in done),
            "seeds": len({row["seed"] for row in self.rows}),
        }

    def exit_code(self) -> int:
        """As `antiphon sweep` ends."""
        counted = self.count()
        if counted["violated"]:
            return VIOLATED
        return INCONCLUSIVE if counted["failed"] or counted["unknown"] or not counted["done"] else HOLDS


def label(key: str) -> str:
    """A setting's name as the figures say it."""
    return key.removeprefix("set.").replace("network.", "")


def _said(value: Any) -> str:
    return "as in the scenario" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def read_sweep(folder: Path) -> Sweep:
    """Read the few columns of a sweep's table that a report shows."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(folder / "results.parquet")
    settings = [name for name in file.schema_arrow.names if name.startswith("set.")]
    present = [name for name in _VALUES if name in file.schema_arrow.names]
    rows = [{**dict.fromkeys(_VALUES), **row} for row in file.read(columns=[*settings, *present]).to_pylist()]
    _fill_in(rows, settings, folder / "sweep.toml")
    varying = [name for name in settings if len({row[name] for row in rows}) > 1]
    numbers = {name: len({row[name] for row in rows}) for name in varying if _numeric(row[name] for row in rows)}
    x = "set.members" if "set.members" in numbers else max(numbers, key=lambda name: numbers[name], default=None)
    facets = [name for name in numbers if name != x]
    return Sweep(str(folder), rows, x, [name for name in varying if name not in numbers], facets)


def _numeric(values: Iterable[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _fill_in(rows: list[Row], settings: Sequence[str], file: Path) -> None:
    """Give the cells beside the grid what they take from the common scenario, as far as the sweep's file says it."""
    scenario = tomllib.loads(file.read_text()).get("scenario", {}) if file.is_file() else {}
    for name in settings:
        value: Any = scenario
        for key in name.removeprefix("set.").split("."):
            value = value.get(key) if isinstance(value, dict) else None
        for row in rows:
            if row[name] is None and not isinstance(value, dict):
                row[name] = row["members"] if name == "set.members" and value is None else value


class Metric(msgspec.Struct, frozen=True):
    """Something that is compared: its column, what it is, and the unit in which it is told."""

    key: str
    title: str
    unit: float = 1.0


METRICS: Final = (
    Metric("delivery_p50_ns", "Median time to deliver, ms", 1e6),
    Metric("stable_p50_ns", "Median time until stable, ms", 1e6),
    Metric("buffer_peak", "Most messages that a member held"),
    Metric("bytes_per_message", "Bytes besides the messages, per message"),
)


def value(row: Row, key: str) -> float | None:
    """A measured value of a cell."""
    if key == "bytes_per_message":
        return row["control_bytes"] / row["sent"] if row["sent"] and row["control_bytes"] is not None else None
    return None if row[key] is None else float(row[key])


def band(x: float, values: Sequence[float]) -> Band:
    """The mean of some seeds' values and its 95% confidence interval; of one seed there is none."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Band(x, mean, mean, mean)
    t = _T95[len(values) - 2] if len(values) - 2 < len(_T95) else _NORMAL95
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return Band(x, mean, max(0.0, mean - half), mean + half)


def lines(sweep: Sweep, rows: Sequence[Row], metric: Metric) -> dict[str, list[Band]]:
    """A metric along the axis, a line for each series."""
    found: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        measured = value(row, metric.key)
        if measured is not None and sweep.x is not None:
            found.setdefault(sweep.name(row), {}).setdefault(row[sweep.x], []).append(measured / metric.unit)
    return {name: [band(x, seeds) for x, seeds in sorted(points.items())] for name, points in found.items()}
