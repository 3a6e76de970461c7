"""A DataFrame is checked and measured as a folder is, in the number of jobs that is documented."""

from __future__ import annotations

import random
import uuid
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, functions

from antiphon import pipeline
from antiphon.errors import UsageError
from antiphon.pipeline.reading.time_units import TimeReading
from antiphon.pipeline.session import Session
from antiphon.pipeline.tables import JOBS, TraceTable
from antiphon.trace.event import Event
from pipeline.conftest import Checker
from pipeline.traces import chaos, write


def good() -> list[Event]:
    """Three messages of one sender, delivered by all."""
    said = [Event("calm", 0, step, "send", 0, 1 + step // 2) for step in (0, 2, 4)]
    heard = [Event("calm", 0, step, "deliver", 0, 1 + step // 2) for step in (1, 3, 5)]
    return [*said, *heard, *(Event("calm", m, step, "deliver", 0, 1 + step) for m in (1, 2) for step in range(3))]


def timed(session: Session) -> DataFrame:
    rows = [(e.run, e.member, e.step, e.event, e.sender, e.seq, 10 * e.step + e.member) for e in good()]
    types = "run string, member int, step long, event string, sender int, seq long, time_ns long"
    return session.spark.createDataFrame(rows, types)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trace in no order, in several files, with violations of all kinds and rows that occur twice."""
    events = [event for seed in range(40) for event in chaos(seed, f"run-{seed}")]
    random.Random(1).shuffle(events)
    for part in range(3):
        write(events[part::3] + events[:4], tmp_path / "trace" / f"{part}.parquet")
    return tmp_path / "trace"


def test_a_frame_is_checked_as_the_folder_is(folder: Path, spark_session: Session, inline: Checker) -> None:
    totals, expected = inline.check(folder)
    frame = spark_session.spark.read.parquet(str(folder))
    checked = pipeline.check(frame, witnesses=10)

    assert checked.result.guarantees.keys() == expected.keys()
    for name, found in checked.result.guarantees.items():
        wanted = expected[name]
        assert (found.verdict, found.examined, found.violations, found.witnesses) == (
            (wanted.verdict, wanted.examined, wanted.violations, wanted.witnesses)
        )
    assert (checked.result.runs, checked.result.events) == (totals.runs, totals.events)
    assert checked.result.quarantined == checked.quarantine.count() == sum(totals.quarantined.values()) > 0

    verdicts = {row.guarantee: row for row in checked.verdicts.collect()}
    assert {name: row.verdict for name, row in verdicts.items()} == {n: one.verdict for n, one in expected.items()}
    first = checked.witnesses.where("guarantee = 'fifo'").first()
    assert first is not None
    assert first.why == expected["fifo"].witnesses[0].why
    assert [event.step for event in first.events] == [event.step for event in expected["fifo"].witnesses[0].events]


def test_columns_are_named_by_a_mapping_and_may_be_other_types(spark_session: Session) -> None:
    spark = spark_session.spark
    words = {"send": "PUB", "deliver": "deliver"}
    rows = [("calm", e.member, e.step, words[e.event], e.sender, Decimal((e.seq or 0) - 1)) for e in good()]
    types = "RUN string, `my member` long, step int, what string, sender int, n decimal(20,0)"
    frame = spark.createDataFrame(rows, types)
    mapping = {
        "columns": {"member": "my member", "event": "what", "seq": "n"},
        "events": {"PUB": "send"},
        "numbers_from": 0,
    }
    result = pipeline.check(frame, mapping=mapping).result
    assert {found.verdict for found in result.guarantees.values()} <= {"holds", "unknown"}
    assert result.guarantees["agreement"].verdict == "holds"
    assert (result.events, result.quarantined) == (12, 0)

    with pytest.raises(UsageError, match="the DataFrame: the column 'member' is missing"):
        pipeline.check(frame).result  # noqa: B018
    with pytest.raises(UsageError, match="no trace column is called 'who'"):
        pipeline.check(frame, mapping={"columns": {"who": "member"}})


def test_uuids_moments_and_structs_of_a_frame(spark_session: Session) -> None:
    """Bytes are UUIDs, timestamps are times, and numbers that may be times in any unit are looked at first."""
    spark = spark_session.spark
    name = {number: uuid.uuid5(uuid.NAMESPACE_OID, str(number)) for number in range(9)}
    rows = [
        ("calm", (name[e.member].bytes, e.step), e.event, name[5 + (e.seq or 0)].bytes, datetime(2026, 1, 1 + e.step))
        for e in good()
    ]
    types = "run string, at struct<node: binary, line: long>, event string, id binary, time_ns timestamp"
    mapping = {"columns": {"member": "at.node", "step": "at.line", "seq": "id"}}
    table = pipeline.ingest(spark.createDataFrame(rows, types), mapping=mapping)
    result = pipeline.check(table).result
    assert {*result.names.values()} == {str(name[member]) for member in range(3)}
    assert (result.guarantees["agreement"].verdict, result.events, result.quarantined) == ("holds", 12, 0)
    latency = pipeline.measure(table).result.latency["delivery"]
    assert latency is not None
    assert (latency.count, latency.max_ns) == (9, pytest.approx(86_400 * 10**9, rel=1 / 256))

    inside = timed(spark_session).select(
        "run", functions.struct("member", "step").alias("at"), "event", "sender", "seq"
    )
    mapping = {"columns": {"member": "at.member", "step": "at.step", "sender": "the.sender"}}
    result = pipeline.check(inside.withColumnRenamed("sender", "the.sender"), mapping=mapping).result
    assert (result.guarantees["agreement"].verdict, result.events, result.quarantined) == ("holds", 12, 0)

    renamed = timed(spark_session).withColumnRenamed("time_ns", "at")
    result = pipeline.check(renamed, mapping={"columns": {"time_ns": "at"}}).result
    assert (result.events, result.times) == (12, TimeReading("ms", "closeness"))


@pytest.mark.parametrize("kind", ["long", "decimal(20,0)"])
def test_members_of_a_frame_with_more_bits_than_a_trace_has(spark_session: Session, kind: str) -> None:
    """As in a Parquet file, they are names; so they are in a table whose other members would fit."""
    ids = {0: 7, 1: 1 << 40, 2: (1 << 63) - 1}
    rows = [
        (e.run, *map(int if kind == "long" else Decimal, (ids[e.member], ids[e.sender or 0])), e.step, e.event, e.seq)
        for e in good()
    ]
    types = f"run string, member {kind}, sender {kind}, step long, event string, seq long"
    result = pipeline.check(spark_session.spark.createDataFrame(rows, types)).result
    assert {*result.names.values()} == {str(one) for one in ids.values()}
    assert (result.guarantees["agreement"].verdict, result.events, result.quarantined) == ("holds", 12, 0)


def test_a_topic_as_spark_reads_it(spark_session: Session) -> None:
    """A table that does not say who consumed is one consumer's, however Spark parts its rows."""
    rows = [("orders", partition, offset) for partition in (0, 1) for offset in range(3)]
    topic = spark_session.spark.createDataFrame(rows, "topic string, partition int, offset long").repartition(2)
    checked = pipeline.check(topic, mapping={"preset": "kafka", "sends": "unrecorded"}).result
    assert (checked.members, checked.names[1]) == (1, "DataFrame")
    assert checked.guarantees["at-least-once"].violations == 0


def test_nothing_runs_before_it_is_asked_for_and_then_in_so_many_jobs(spark_session: Session) -> None:
    spark = spark_session.spark
    tracker = spark.sparkContext.statusTracker()
    rows = timed(spark_session)
    computed = spark.sparkContext.accumulator(0)

    def count(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    frame = rows.mapInArrow(count, rows.schema).withColumn("detail", functions.lit("x"))

    before = set(tracker.getJobIdsForGroup("antiphon"))  # type: ignore[no-untyped-call]

    def jobs() -> int:
        return len(set(tracker.getJobIdsForGroup("antiphon")) - before)  # type: ignore[no-untyped-call]

    table = pipeline.ingest(frame)
    checked, measured = pipeline.check(table), pipeline.measure(table)
    assert (jobs(), computed.value) == (0, 0)
    assert checked.result.guarantees["total"].verdict == "holds"
    assert jobs() == len(JOBS["ingest"] + JOBS["check"]) == 4
    assert measured.result.events == 12
    assert jobs() == 4 + len(JOBS["measure"])
    assert measured.tables["latency"].count() > 0
    assert computed.value == 12, "Spark computes the DataFrame once"


def test_what_a_run_file_says_is_said_of_a_frame(spark_session: Session) -> None:
    frame = timed(spark_session)
    checked = pipeline.check(frame, guarantees=["fifo", "total"], promises=["fifo"])
    assert {name: found.promised for name, found in checked.result.guarantees.items()} == {"fifo": True, "total": False}
    assert pipeline.measure(frame, global_clock=True).result.clock == "global"
    assert pipeline.measure(frame).result.clock == "local"
    with pytest.raises(UsageError, match="no guarantee is called 'luck'"):
        pipeline.check(frame, promises=["luck"])


def test_a_folder_is_checked_from_a_program(folder: Path, spark_session: Session, inline: Checker) -> None:
    _, expected = inline.check(folder)
    table = pipeline.ingest(folder, spark=spark_session.spark)
    assert isinstance(table, TraceTable)
    found = pipeline.check(table, guarantees=["fifo"]).result.guarantees["fifo"]
    assert (found.violations, found.witnesses) == (expected["fifo"].violations, expected["fifo"].witnesses)


def test_names_and_topics_of_a_frame(spark_session: Session) -> None:
    """Members with names, messages with UUIDs, a topic: numbered, named in the results, and judged as a broker's."""
    rows = [
        ("r", "shop", 1, "send", None, "6f1c", "orders", None, None),
        ("r", "shop", 2, "control", None, "6f1c", "orders", None, "acknowledged"),
        ("r", "shop", 3, "send", None, "9b2e", "orders", None, None),
        ("r", "shop", 4, "control", None, "9b2e", "orders", None, "acknowledged"),
        ("r", "mail", 1, "control", None, None, "orders", "mailers", "subscribed"),
        ("r", "mail", 2, "deliver", None, "6f1c", "orders", "mailers", None),
    ]
    kinds = (
        "run string, member string, step long, event string, sender string, seq string, topic string, "
        "`group` string, detail string"
    )
    checked = pipeline.check(spark_session.spark.createDataFrame(rows, kinds))
    assert {(row.member, row["name"]) for row in checked.table.names.collect()} >= {(1, "mail"), (2, "shop")}
    assert checked.result.guarantees["integrity"].verdict == "holds"
    [witness] = checked.witnesses.where("guarantee = 'at-least-once'").collect()
    assert witness.why == "group mailers never takes message 2 of 2, which the broker acknowledged"


def test_spark_shows_whose_jobs_they_are(folder: Path, spark_session: Session) -> None:
    tracker = spark_session.spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup("antiphon"))  # type: ignore[no-untyped-call]
    assert pipeline.check(folder, spark=spark_session.spark).result.runs == 40
    assert len(set(tracker.getJobIdsForGroup("antiphon")) - before) >= 4  # type: ignore[no-untyped-call]
