"""A sweep's cells as a report needs them: what varies, what is compared, and means over seeds with their confidence."""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.pipeline.results import CellValues, Setting, SweepCell, read_sweep_table
from antiphon.report.charts import Band
from antiphon.trace.verdict import HOLDS, INCONCLUSIVE, VIOLATED

CONFIDENCE: Final = 0.95


class DoneCell(NamedTuple):
    """A cell that ran, with what it gave."""

    cell: SweepCell
    values: CellValues


class CellCounts(msgspec.Struct, frozen=True):
    """How many cells are what."""

    cells: int
    done: int
    failed: int
    violated: int
    unknown: int
    unfinished: int
    seeds: int

    def exit_code(self) -> int:
        """Return what `antiphon sweep` ends with."""
        if self.violated:
            return VIOLATED
        return INCONCLUSIVE if self.failed or self.unknown or not self.done else HOLDS


class SweepTable(msgspec.Struct):
    """The cells of a sweep, and the roles of what varies between them."""

    folder: str
    cells: list[SweepCell]
    x: str | None  # the setting along the axis of the figures: the group's size, or the number that varies most
    series: list[str]  # settings that are compared: protocols, and whatever else is no number
    facets: list[str]  # numbers that vary besides: a figure each

    @property
    def done(self) -> list[DoneCell]:
        """The cells that ran."""
        return [DoneCell(cell, cell.values) for cell in self.cells if cell.values is not None]

    def name(self, cell: SweepCell) -> str:
        """Say what distinguishes the series of a cell."""
        return ", ".join(_said(cell.settings[key]) for key in self.series) or "all cells"

    def facet(self, cell: SweepCell) -> str:
        """Say what distinguishes the figure of a cell; empty if there is only one."""
        return ", ".join(f"{label(key)} {_said(cell.settings[key])}" for key in self.facets)

    def setting(self, cell: SweepCell) -> str:
        """Say all that distinguishes a cell, but its seed."""
        keys = [*self.series, *self.facets, *([self.x] if self.x else [])]
        return ", ".join(f"{label(key)} {_said(cell.settings[key])}" for key in keys) or "the scenario"

    def count(self) -> CellCounts:
        """Count the cells."""
        values = [one.values for one in self.done]
        return CellCounts(
            cells=len(self.cells),
            done=len(values),
            failed=len(self.cells) - len(values),
            violated=sum(bool(one.broken) for one in values),
            unknown=sum(bool(one.undecided) for one in values),
            unfinished=sum(not one.finished for one in values),
            seeds=len({cell.seed for cell in self.cells}),
        )


def label(key: str) -> str:
    """Return a setting's name as the figures say it."""
    return key.replace("network.", "")


def _said(value: Setting) -> str:
    return "as in the scenario" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def read_sweep(folder: Path) -> SweepTable:
    """Read a sweep's table, and decide what is the axis, what is compared and what gets a figure of its own."""
    cells = read_sweep_table(folder)
    settings = list(dict.fromkeys(key for cell in cells for key in cell.settings))
    _fill_in(cells, settings, folder / "sweep.toml")
    found = {key: {cell.settings[key] for cell in cells} for key in settings}
    varying = {key: values for key, values in found.items() if len(values) > 1}
    numbers = {key: len(values) for key, values in varying.items() if _are_numbers(values)}
    x = "members" if "members" in numbers else max(numbers, key=lambda key: numbers[key], default=None)
    facets = [key for key in numbers if key != x]
    return SweepTable(str(folder), cells, x, [key for key in varying if key not in numbers], facets)


def _are_numbers(values: Iterable[Setting]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _fill_in(cells: Sequence[SweepCell], settings: Sequence[str], file: Path) -> None:
    """Give the cells beside the grid what they take from the common scenario, as far as the sweep's file says it."""
    scenario = tomllib.loads(file.read_text()).get("scenario", {}) if file.is_file() else {}
    for name in settings:
        value: Any = scenario
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        for cell in cells:
            if cell.settings.get(name) is None:
                members = cell.values.members if cell.values is not None else None
                cell.settings[name] = members if name == "members" and value is None else value
                if isinstance(cell.settings[name], dict):
                    cell.settings[name] = None


class Metric(msgspec.Struct, frozen=True):
    """Something that is compared: how it is read from a cell, what it is, and the unit in which it is told."""

    value: Callable[[CellValues], float | None]
    title: str
    unit: float = 1.0


def _median(measure: str) -> Callable[[CellValues], float | None]:
    def median(values: CellValues) -> float | None:
        latency = values.latency.get(measure)
        return None if latency is None else latency.p50_ns

    return median


def _bytes_per_message(values: CellValues) -> float | None:
    return values.control_bytes / values.sent if values.sent else None


TIME_TO_DELIVER: Final = Metric(_median("delivery"), "Median time to deliver, ms", 1e6)
TIME_UNTIL_STABLE: Final = Metric(_median("stable"), "Median time until stable, ms", 1e6)
BUFFER_PEAK: Final = Metric(lambda values: values.buffer_peak, "Most messages that a member held")
BYTES_PER_MESSAGE: Final = Metric(_bytes_per_message, "Bytes besides the messages, per message")
METRICS: Final = (TIME_TO_DELIVER, TIME_UNTIL_STABLE, BUFFER_PEAK, BYTES_PER_MESSAGE)


def measured(cells: Iterable[DoneCell], metric: Metric) -> list[float]:
    """Return a metric of some cells in the metric's unit, where it is known."""
    return [found / metric.unit for one in cells if (found := metric.value(one.values)) is not None]


def band(x: float, values: Sequence[float]) -> Band:
    """Return the mean of some seeds' values with its confidence interval by Student's t; of one seed there is none."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Band(x, mean, mean, mean)
    from scipy.special import stdtrit

    t = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return Band(x, mean, max(0.0, mean - half), mean + half)


def lines(sweep: SweepTable, cells: Iterable[DoneCell], metric: Metric) -> dict[str, list[Band]]:
    """Return a metric along the axis, a line for each series."""
    if sweep.x is None:
        return {}
    found: dict[str, dict[float, list[DoneCell]]] = {}
    for one in cells:
        found.setdefault(sweep.name(one.cell), {}).setdefault(one.cell.settings[sweep.x], []).append(one)
    points = {
        name: [(x, values) for x, seeds in sorted(by_x.items()) if (values := measured(seeds, metric))]
        for name, by_x in found.items()
    }
    return {name: [band(*point) for point in of_series] for name, of_series in points.items() if of_series}
