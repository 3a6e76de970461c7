"""The data pipeline on Spark: ingest, check, measure, sweep, watch. The only package that imports pyspark.

`check`, `measure` and `ingest` take a DataFrame or the path of a trace: see `antiphon.pipeline.tables`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.pipeline.tables import TraceCheck, TraceMeasure, TraceTable, check, ingest, measure

__all__ = ["TraceCheck", "TraceMeasure", "TraceTable", "check", "ingest", "measure"]


def __getattr__(name: str) -> Any:
    """Import what programs use when it is first asked for: results are read where there is no Spark."""
    if name in __all__:
        from antiphon.pipeline import tables

        return getattr(tables, name)
    raise AttributeError(f"module 'antiphon.pipeline' has no attribute {name!r}")
