"""The data pipeline on Spark: ingest, check, measure, sweep, watch. The only package that imports pyspark.

`check`, `measure` and `ingest` take a DataFrame or the path of a trace: see `antiphon.pipeline.tables`; `watch_stream`
takes a stream of Spark's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.pipeline.tables import TraceCheck, TraceMeasure, TraceTable, check, ingest, measure
    from antiphon.pipeline.watch.stream import StreamWatch, watch_stream

__all__ = [
    "StreamWatch",
    "TraceCheck",
    "TraceMeasure",
    "TraceTable",
    "check",
    "ingest",
    "measure",
    "watch_stream",
]


def __getattr__(name: str) -> Any:
    """Import what programs use when it is first asked for: results are read where there is no Spark."""
    if name in __all__:
        from antiphon.pipeline import tables
        from antiphon.pipeline.watch import stream

        return getattr(stream if name in ("StreamWatch", "watch_stream") else tables, name)
    raise AttributeError(f"module 'antiphon.pipeline' has no attribute {name!r}")
