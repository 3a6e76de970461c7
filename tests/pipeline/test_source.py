"""The format `antiphon`: what is written is read back, and a filter changes the work but not the answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import EqualTo, GreaterThan, In, StringContains

from antiphon.pipeline.session import Session
from antiphon.pipeline.source import TraceReader, register
from antiphon.sim.cluster import simulate
from antiphon.sim.scenario import from_table
from antiphon.trace.event import Event
from pipeline.traces import write

EVENTS = simulate(from_table({"members": 3, "messages": 10, "ordering": "co", "network": {"loss": 0.1}}), 3).events


def loaded(session: Session, path: Path, **options: str) -> DataFrame:
    register(session.spark)
    return session.spark.read.format("antiphon").options(**options).load(str(path))


def rows(frame: DataFrame) -> list[Event]:
    found = [msgspec.convert(row, Event) for row in frame.toArrow().to_pylist()]
    return sorted(found, key=lambda event: (event.member, event.step))


def test_there_and_back(spark_session: Session, tmp_path: Path) -> None:
    frame = loaded(spark_session, write(EVENTS, tmp_path / "a" / "events.parquet").parent)
    assert rows(frame) == sorted(EVENTS, key=lambda event: (event.member, event.step))
    frame.where("event != 'control'").write.format("antiphon").mode("overwrite").save(str(tmp_path / "b"))
    frame.where("member = 1").write.format("antiphon").mode("append").save(str(tmp_path / "b"))
    again = Counter(event.event for event in rows(loaded(spark_session, tmp_path / "b")))
    ones = Counter(event.event for event in EVENTS if event.member == 1)
    assert again == Counter(event.event for event in EVENTS if event.event != "control") + ones
    assert not [path for path in (tmp_path / "b").iterdir() if path.name.startswith("_")]


def test_a_session_that_lost_its_thread_to_an_interrupt_still_writes(spark_session: Session, tmp_path: Path) -> None:
    spark_session.spark._jvm.SparkSession.clearActiveSession()  # as after Ctrl-C
    frame = loaded(spark_session, write(EVENTS, tmp_path / "a" / "events.parquet").parent)
    frame.write.format("antiphon").mode("append").save(str(tmp_path / "b"))
    assert len(rows(loaded(spark_session, tmp_path / "b"))) == len(EVENTS)


def test_filters_are_taken_over(spark_session: Session, tmp_path: Path) -> None:
    frame = loaded(spark_session, write(EVENTS, tmp_path / "events.parquet"))
    chosen = frame.where("event in ('send', 'deliver') and member = 2 and seq > 4 and detail is null")
    expected = [e for e in EVENTS if e.event in ("send", "deliver") and e.member == 2 and e.seq > 4]
    assert len(rows(chosen)) == len(expected) > 0
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    [left_to_spark] = [line for line in plan.splitlines() if "Filter (" in line or "Filter is" in line]
    assert "isnull(detail" in left_to_spark
    assert "member" not in left_to_spark


def test_row_groups_without_a_chance_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.pipeline.source.FILE_PART_BYTES", 0)
    ordered = sorted(EVENTS, key=lambda event: event.member)
    path = write(ordered, tmp_path / "events.parquet", row_group_rows=20)
    reader = TraceReader({"path": str(path)})
    left = list(reader.pushFilters([EqualTo(("member",), 2), In(("event",), ("send",)), StringContains(("run",), "x")]))
    assert [type(given) for given in left] == [StringContains]
    read = sum(pq.ParquetFile(path).metadata.row_group(g).num_rows for s in reader.partitions() for g in s.row_groups)
    assert read < len(EVENTS) / 2
    found = [row for share in reader.partitions() for batch in reader.read(share) for row in batch.to_pylist()]
    assert len(found) == sum(event.member == 2 and event.event == "send" for event in EVENTS)
    assert not list(reader.pushFilters([GreaterThan(("step",), 10**12)]))
    assert not [batch for share in reader.partitions() for batch in reader.read(share) if batch.num_rows]


def test_unreadable_rows_are_not_dropped_silently(spark_session: Session, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("run,member,step,event,sender,seq\nr,1,1,send,1,1\nr,x,2,deliver,1,1\n")
    with pytest.raises(PySparkException, match="cannot be read"):
        loaded(spark_session, path).count()
    assert loaded(spark_session, path, unreadable="skip").count() == 1
    with pytest.raises(PySparkException, match="no such file"):
        loaded(spark_session, tmp_path / "nowhere").count()
