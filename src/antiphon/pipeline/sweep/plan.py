"""A sweep file as cells: a grid of scenarios, and single ones beside it.

seeds = [1, 2, 3]                        # or a number: 1 .. that many

[scenario]                               # what all cells share; or scenario = "file.toml"
members = 5
messages = 100

[grid]                                   # every combination
ordering = ["fifo", "co", "abcast"]
network.loss = [0.0, 0.05, 0.1]

[[cells]]                                # and single cells beside the grid
members = 20
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import antiphon
from antiphon.errors import UsageError
from antiphon.sim.scenario import load

_encode = msgspec.json.Encoder(order="sorted").encode


class CellPlan(msgspec.Struct, frozen=True):
    """One scenario with one seed."""

    scenario: dict[str, Any]
    settings: dict[str, Any]  # what distinguishes it from the others
    seed: int
    code: str  # a fingerprint of the code that runs it

    @property
    def name(self) -> str:
        """A fingerprint of what the cell runs."""
        return hashlib.sha256(_encode([self.code, self.scenario, self.seed])).hexdigest()[:16]


class SweepPlan(msgspec.Struct, frozen=True):
    """All cells, and the folder that their results go to."""

    cells: list[CellPlan]
    out: str

    def file(self, cell: CellPlan) -> Path:
        """Where a cell's result appears."""
        return Path(self.out, "cells", f"{cell.name}.json")

    def started(self, cell: CellPlan) -> Path:
        """A file with a line for each time a worker began the cell."""
        return Path(self.out, "started", cell.name)

    def pending(self) -> list[CellPlan]:
        """The cells without a result."""
        return [cell for cell in self.cells if not self.file(cell).exists()]


def code_fingerprint() -> str:
    """Return a fingerprint of this package: a result is another's if the code that made it was another."""
    root = Path(antiphon.__file__).parent
    digest = hashlib.sha256(antiphon.__version__.encode())
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def load_sweep(path: Path, out: Path) -> SweepPlan:
    """Read a sweep file; UsageError names the key that is wrong."""
    try:
        tables = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path}: no such sweep file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    unknown = sorted(set(tables) - {"scenario", "grid", "cells", "seeds"})
    if unknown:
        raise UsageError(f"{path}: {unknown[0]}: unknown key; a sweep knows scenario, grid, cells, seeds")
    base = tables.get("scenario", {})
    if isinstance(base, str):
        base = load(path.parent / base)
    if not isinstance(base, dict):
        raise UsageError(f"{path}: scenario: a table, or the name of a scenario file")
    seeds = tables.get("seeds", 1)
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        seeds = list(range(1, seeds + 1))
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise UsageError(f"{path}: seeds: a number above 0, or a list of numbers")
    code = code_fingerprint()
    cells = [
        CellPlan(_laid_over(base, settings), settings, seed, code)
        for settings in _settings(tables, path)
        for seed in seeds
    ]
    distinct = {cell.name: cell for cell in cells}
    return SweepPlan(list(distinct.values()), str(out.absolute()))


def _settings(tables: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """What distinguishes each cell: every combination of the grid, and the single cells."""
    singles = tables.get("cells", [])
    if not isinstance(singles, list) or not all(isinstance(single, dict) for single in singles):
        raise UsageError(f"{path}: cells: write each as a table [[cells]]")
    grid = tables.get("grid", {})
    if not isinstance(grid, dict):
        raise UsageError(f"{path}: grid: a table of lists")
    axes = dict(_flat(grid))
    for key, values in axes.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{path}: grid.{key}: a list of values, not {values!r}")
    if axes or not singles:
        for values in itertools.product(*axes.values()):
            yield dict(zip(axes, values, strict=True))
    for single in singles:
        yield dict(_flat(single))


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _laid_over(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The base scenario with some keys set; `ordering` and `stability` may be names or tables."""
    tables: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in settings.items():
        *parents, key = path.split(".")
        table = tables
        for parent in parents:
            inner = table.get(parent, {})
            table[parent] = inner = {"name": inner} if isinstance(inner, str) else inner
            table = inner
        if not parents and isinstance(table.get(key), dict) and isinstance(value, str):
            table[key] = {"name": value}  # another protocol: the options of the former are not for it
        else:
            table[key] = value
    return tables


def prepare(sweep: SweepPlan, source: Path) -> None:
    """Make the sweep's folder, or join it if it is an earlier run's; its file of cells is kept beside the results."""
    out = Path(sweep.out)
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / "cells").is_dir())):
        raise UsageError(f"{out}: exists and is no sweep's output; choose another --out")
    (out / "cells").mkdir(parents=True, exist_ok=True)
    kept = out / "sweep.toml"
    if not kept.exists() or not kept.samefile(source):
        shutil.copyfile(source, kept)
