"""What a report is asked to be made from: a trace, or the folders that check, measure and sweep left."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from antiphon.errors import UsageError
from antiphon.pipeline.results import CHECK_FILE, MEASURE_FILE, SWEEP_TABLE, read_check, read_measure

Kind = Literal["trace", "check", "measure", "sweep"]


class Given(msgspec.Struct):
    """What the command line named: each a folder or file of its kind."""

    trace: str | None = None
    check: Path | None = None
    measure: Path | None = None
    sweep: Path | None = None


def recognise(paths: list[str]) -> Given:
    """Tell traces from what the other commands left; UsageError if they do not go together."""
    given = Given()
    for path in paths:
        kind = _kind(Path(path))
        if getattr(given, kind) is not None:
            raise UsageError(f"{path}: a second {kind}; a report is about one")
        setattr(given, kind, path if kind == "trace" else Path(path))
    if given.sweep is not None and len(paths) > 1:
        raise UsageError(f"{given.sweep}: a sweep is reported by itself")
    named: dict[str, str] = {}
    if given.check is not None:
        named[str(given.check)] = read_check(given.check).trace
    if given.measure is not None:
        named[str(given.measure)] = read_measure(given.measure).trace
    if len(set(named.values())) > 1:
        said = ", ".join(f"{folder} of {trace}" for folder, trace in named.items())
        raise UsageError(f"these are about different traces: {said}")
    if given.trace is None and named:
        trace = next(iter(named.values()))
        given.trace = trace if Path(trace).exists() else None
    return given


def _kind(path: Path) -> Kind:
    if not path.is_dir():
        return "trace"
    if (path / CHECK_FILE).is_file():
        return "check"
    if (path / MEASURE_FILE).is_file():
        return "measure"
    if (path / "sweep.toml").is_file() and (path / "cells").is_dir():
        if not (path / SWEEP_TABLE).is_file():
            raise UsageError(f"{path}: this sweep is not finished; run antiphon sweep again with this --out")
        return "sweep"
    return "trace"
