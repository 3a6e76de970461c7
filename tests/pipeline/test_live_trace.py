"""The trace of a live group, through the pipeline on Spark: the same verdicts as the naive checker's."""

from __future__ import annotations

from pathlib import Path

from antiphon.trace import naive
from antiphon.trace.reader import read
from pipeline.conftest import Checker
from support.happenings import HAPPENINGS, lived_trace


def test_a_live_partition_is_judged_alike(on_spark: Checker, tmp_path: Path) -> None:
    folder = lived_trace(HAPPENINGS["partition"], "abcast", tmp_path)
    trace = read(folder)
    expected = naive.check(trace.events, guarantees=trace.promised)
    totals, found = on_spark.check(folder)
    assert totals.events == len(trace.events)
    assert {name: found[name] for name in expected} == expected
    assert {verdict.verdict for verdict in expected.values()} == {"holds"}
