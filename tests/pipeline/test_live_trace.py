"""The trace of a live group, through the pipeline on Spark: the same verdicts as the naive checker's."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.pipeline.inline import Inline
from antiphon.pipeline.watch import DirectoryWatch
from antiphon.trace import naive
from antiphon.trace.reader import read
from pipeline.conftest import Checker
from support.happenings import HAPPENINGS, lived_trace
from support.reports import simulated_trace


def test_a_live_partition_is_judged_alike(on_spark: Checker, tmp_path: Path) -> None:
    folder = lived_trace(HAPPENINGS["partition"], "abcast", tmp_path)
    trace = read(folder)
    expected = naive.check(trace.events, guarantees=trace.promised)
    totals, found = on_spark.check(folder)
    assert totals.events == len(trace.events)
    assert {name: found[name] for name in expected} == expected
    assert {verdict.verdict for verdict in expected.values()} == {"holds"}


def test_a_group_that_was_killed_as_a_whole_is_not_blamed_for_lost_tails(inline: Checker, tmp_path: Path) -> None:
    """No log has an end: run.json, as live groups write it, says that whole ones would."""
    folder = simulated_trace(tmp_path / "trace", ordering="total", members=3, network={"loss": 0.0})
    rows = pq.read_table(folder / "events.parquet")
    kept = [
        pc.and_(pc.equal(rows["member"], one), pc.less(rows["step"], stop)) for one, stop in enumerate((60, 90, 40))
    ]
    pq.write_table(rows.filter(pc.or_(pc.or_(*kept[:2]), kept[2])), folder / "events.parquet")
    _, blamed = inline.check(folder)
    assert blamed["agreement"].verdict == "violated", "as it was for logs of systems that write no ends"
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "ends": True}))
    trace = read(folder)
    expected = naive.check(trace.events, guarantees=trace.promised, global_clock=True, ends=trace.ends)
    _, found = inline.check(folder)
    assert {name: found[name] for name in expected} == expected
    assert "violated" not in {verdict.verdict for verdict in found.values()}
    assert found["agreement"].verdict == "unknown"
    watch = DirectoryWatch(Inline(2), str(folder), str(tmp_path / "watch"), lambda *_: None)
    watch.batch([str(folder / "events.parquet")])
    final = watch.conclude()
    assert final.alarms == 0
    assert final.verdicts() == {name: found[name].verdict for name in final.verdicts()}
