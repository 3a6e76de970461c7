"""Traces, scratch and results in stores: the same verdicts, counts and witnesses, wherever the rows come from."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.pipeline.churn import Churn
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from antiphon import pipeline
from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.pipeline.ingesting import ingest
from antiphon.pipeline.ingesting.job import IngestPart
from antiphon.pipeline.ingesting.quarantine import Quarantine
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.measuring import measure_layout
from antiphon.pipeline.reading.mapping import load_mapping
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.results import CheckResult, read_alarms
from antiphon.pipeline.session import Session
from antiphon.pipeline.store import location as stores
from antiphon.pipeline.store.arena import ArenaWriter
from antiphon.pipeline.store.files import find_files
from antiphon.pipeline.store.location import location, replacement
from antiphon.pipeline.watch import DirectoryWatch
from antiphon.trace import naive
from antiphon.trace.run_file import write_run_file
from pipeline.conftest import Checker
from pipeline.stores import BUCKET, S3Service, s3_service
from pipeline.traces import chaos, write


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Service]:
    with s3_service() as service:
        yield service


@pytest.fixture
def by_environment(s3: S3Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Service]:
    """The service, reached by what the environment says."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    stores.use_settings({})
    stores.file_system.cache_clear()
    yield s3
    stores.file_system.cache_clear()


@pytest.fixture
def by_spark(s3: S3Service, spark_session: Session) -> Iterator[S3Service]:
    """The service, reached by what Spark's Hadoop settings say, on the driver and in tasks."""
    hadoop = spark_session.spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in s3.hadoop.items():
        hadoop.set(name, value)
    yield s3
    for name in s3.hadoop:
        hadoop.unset(name)
    stores.use_settings({})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace in no order, in several files and folders, with violations of all kinds and a run.json."""
    trace = tmp_path_factory.mktemp("stores") / "trace"
    events = [event for seed in range(12) for event in chaos(seed, f"run-{seed}")]
    random.Random(2).shuffle(events)
    for part in range(3):
        write(events[part::3], trace / f"day={part}" / "part.parquet")
    write(events[:20], trace / "_temporary" / "half.parquet")
    write_run_file(trace, "all", {"ordering": "fifo", "clock": "global"})
    return trace


def told(result: CheckResult) -> object:
    """What must not depend on where rows come from."""
    found = {
        name: (one.verdict, one.examined, one.violations, one.witnesses) for name, one in result.guarantees.items()
    }
    return result.runs, result.members, result.events, result.quarantined, found


def delta_table(trace: Path, where: str, s3: S3Service | None = None) -> list[str]:
    """Write a Delta table with its own library, with an older version left behind; return its files of today."""
    options = None if s3 is None else {**s3.environment, "AWS_ALLOW_HTTP": "true"}
    first, *rest = [pq.read_table(file, partitioning=None) for file in find_files(str(trace))]
    deltalake.write_deltalake(where, rest[0].slice(0, 7), storage_options=options)
    deltalake.write_deltalake(where, first, mode="overwrite", storage_options=options)
    for table in rest:
        deltalake.write_deltalake(where, table, mode="append", storage_options=options)
    return deltalake.DeltaTable(where, storage_options=options).file_uris()


def iceberg_table(trace: Path, where: Path) -> Table:
    """Write an Iceberg table with its own library: older snapshots left behind, some rows deleted again."""
    where.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{where}/catalog.db", warehouse=f"file://{where}")
    catalog.create_namespace("traces")
    first, *rest = [pq.read_table(file, partitioning=None) for file in find_files(str(trace))]
    table = catalog.create_table("traces.events", schema=first.schema)
    table.append(rest[0].slice(0, 7))
    table.overwrite(first)
    for more in rest:
        table.append(more)
    passing = first.slice(0, 5).set_column(0, "run", pa.array(["passing"] * 5))
    assert first.column_names[0] == "run"
    table.append(passing)
    table.delete("run = 'passing'")
    return table


Check = Callable[..., pipeline.TraceCheck]


@pytest.mark.parametrize("source", ["folder", "s3", "s3 alone", "frame", "delta", "iceberg"])
def test_the_same_from_everywhere(
    source: str, folder: Path, by_spark: S3Service, spark_session: Session, inline: Checker, tmp_path: Path
) -> None:
    spark = spark_session.spark
    about = {"promises": ["fifo"], "global_clock": True}
    if source == "folder":
        checked = pipeline.check(folder, spark=spark)
    elif source == "s3":
        checked = pipeline.check(by_spark.put(folder, "one"), spark=spark)
    elif source == "s3 alone":  # nothing is shared but the store
        scratch = f"s3a://{BUCKET}/scratch"
        checked = pipeline.check(by_spark.put(folder, "two"), spark=spark, scratch=scratch)
    elif source == "frame":
        checked = pipeline.check(spark.read.parquet(*find_files(str(folder))), **about)  # type: ignore[arg-type]
    elif source == "iceberg":
        table = iceberg_table(folder, tmp_path / "iceberg")
        files = [task.file.file_path for task in table.scan().plan_files()]
        assert len(list((tmp_path / "iceberg").rglob("*.parquet"))) > len(files), "older snapshots lie there too"
        checked = pipeline.check(spark.createDataFrame(table.scan().to_arrow()), **about)  # type: ignore[arg-type]
        assert told(pipeline.check(spark.read.parquet(*files), **about).result) == told(checked.result)  # type: ignore[arg-type]
    else:
        files = delta_table(folder, str(tmp_path / "delta"))
        assert len(list((tmp_path / "delta").glob("*.parquet"))) > len(files), "an older version lies there too"
        checked = pipeline.check(spark.read.parquet(*files), **about)  # type: ignore[arg-type]

    totals = ingest(Inline(2), str(folder), tmp_path / "layout")
    expected = pipeline.tables.check_layout(
        Inline(2), tmp_path / "layout", totals, tmp_path / "scratch", checked.options
    )
    assert sum(one.violations for one in expected.guarantees.values()) > 10
    assert told(checked.result) == told(expected)


def test_commands_read_from_and_write_to_a_store(
    folder: Path, by_spark: S3Service, spark_session: Session, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = by_spark.put(folder, "three")
    places = ["--out", f"s3://{BUCKET}/results/check", "--scratch", f"s3://{BUCKET}/given"]
    assert main(["check", trace, *places, "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    with by_spark.files.open_input_file(f"{BUCKET}/results/check/check.json") as file:
        assert json.loads(file.read()) == printed
    assert printed["guarantees"]["fifo"]["promised"], "run.json is found in the store"
    assert by_spark.keys("given") == [], "nothing is left behind"

    assert main(["check", trace, *places, "--guarantee", "integrity", "--json"]) in (0, 1)  # replaces its own output
    assert json.loads(capsys.readouterr().out)["guarantees"].keys() == {"integrity"}
    assert main(["check", trace, "--out", f"s3://{BUCKET}/three"]) == 2
    assert "exists and holds something else" in capsys.readouterr().err

    assert main(["measure", trace, "--out", str(tmp_path / "measured"), "--scratch", f"s3://{BUCKET}/given"]) == 0
    assert (tmp_path / "measured" / "measure.json").is_file()
    assert list((tmp_path / "measured" / "runs").glob("*.parquet"))
    assert main(["check", f"s3://{BUCKET}/nothing"]) == 2
    assert "no such file or directory in this store" in capsys.readouterr().err


def test_all_stages_work_in_a_store(folder: Path, by_environment: S3Service, tmp_path: Path) -> None:
    trace = by_environment.put(folder, "four")
    work = location(f"s3://{BUCKET}/work")
    totals = ingest(Inline(3), trace, work / "layout")
    measured = measure_layout(Inline(3), work / "layout", totals, work / "tables", work / "scratch")
    here = ingest(Inline(3), str(folder), tmp_path / "layout")
    expected = measure_layout(Inline(3), tmp_path / "layout", here, tmp_path / "tables", tmp_path / "scratch")
    expected.trace = measured.trace
    assert measured == expected
    assert [file.split("/", 2)[2] for file in by_environment.keys("work/tables")] == sorted(
        str(file.relative_to(tmp_path / "tables")) for file in (tmp_path / "tables").rglob("*.parquet")
    )


def test_a_store_is_watched(by_environment: S3Service, tmp_path: Path) -> None:
    """Files appear in the store, the checkpoint lies there too, and a watch that was stopped goes on."""
    group = Churn(members=3, wrong=0.05)
    events, store = [], f"s3://{BUCKET}/watched"
    by_environment.put(tmp_path, "watched")
    for number in range(4):
        part = [event for rows in group.views(5) for event in rows]
        events += part
        file = write(part, tmp_path / "part" / "events.parquet")
        by_environment.put(file.parent, f"watched/live/{number}")
        one = DirectoryWatch(Inline(2), f"{store}/live", f"{store}/_watch", lambda *_: None)
        one.run(once=True)
    final = one.conclude()
    expected = naive.check(events, guarantees=tuple(final.findings), witnesses=0)
    assert final.verdicts() == {name: found.verdict for name, found in expected.items()}
    assert (final.events, final.files) == (len(events), 4)
    alarms = read_alarms(location(f"{store}/_watch"))
    assert len(alarms) == final.alarms > 0
    assert len(by_environment.keys("watched/_watch/state")) <= 2
    assert not by_environment.keys("watched/_watch/batch-")


def test_texts_and_mappings_are_read_from_a_store(by_environment: S3Service, tmp_path: Path, inline: Checker) -> None:
    rows = ["RUN,member,step,what,sender,seq", "r,1,1,PUB,1,1", "r,1,2,deliver,1,1", "r,2,1,deliver,1,1", "r,2,x"]
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "log.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "logs" / "map.toml").write_text('[columns]\nevent = "what"\n[events]\nPUB = "send"\n')
    uri = by_environment.put(tmp_path / "logs", "five")
    mapping = pipeline.tables.mapping_of(f"{uri}/map.toml")
    totals = ingest(Inline(), uri, tmp_path / "layout", mapping)
    assert (totals.events, totals.members, sum(totals.quarantined.values())) == (3, 2, 1)


def test_logs_of_other_systems_are_read_from_a_store(by_environment: S3Service, tmp_path: Path) -> None:
    logs = Path(__file__).parents[1] / "data" / "brokers" / "nats"
    mapping = pipeline.tables.mapping_of({"preset": "nats"})
    totals = ingest(Inline(2), by_environment.put(logs, "six"), location(f"s3://{BUCKET}/foreign"), mapping)
    expected = ingest(Inline(2), str(logs), tmp_path / "layout", mapping)
    expected.trace = totals.trace
    assert totals == expected
    assert totals.events


def test_a_name_appears_with_the_whole_content_only(by_environment: S3Service) -> None:
    file = location(f"s3://{BUCKET}/whole/file")
    abandoned = replacement(file)
    abandoned.fresh.write_bytes(b"half")
    abandoned.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert not abandoned.fresh.exists()
    assert not file.exists()
    with replacement(file) as fresh:
        fresh.write_bytes(b"all")
        assert not file.exists()
    assert (file.read_bytes(), file.parent.is_dir(), file.is_dir()) == (b"all", True, False)


def test_where_a_name_leads(tmp_path: Path) -> None:
    assert location("out/run") == Path("out/run").absolute()
    assert location(f"file://{tmp_path}") == location(f"file:{tmp_path}") == tmp_path
    there = location("s3a://bucket/a b/run=1//part.parquet")
    assert str(there) == "s3a://bucket/a b/run=1/part.parquet"
    assert (there.name, str(there.parent / "x")) == ("part.parquet", "s3a://bucket/a b/run=1/x")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the ftp client itself
def test_other_stores_are_reached_by_fsspec() -> None:
    file = location("memory://top/folder/one.parquet")
    with replacement(file) as fresh:
        fresh.write_bytes(b"content")
    assert file.read_bytes() == b"content"
    assert find_files("memory://top/folder") == [str(file)]
    assert [str(one) for one in location("memory://top/folder").glob("*")] == [str(file)], "nothing unfinished is left"
    with pytest.raises(UsageError, match="ftp cannot be read by a URI alone; copy the files to a disk"):
        location("ftp://host/trace").exists()
    with pytest.raises(UsageError, match="nosuch"):
        location("nosuch://top/file").exists()


def test_tasks_leave_nothing_on_the_disk_that_they_write_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    quarantine = Quarantine("memory://top/layout", "read-000000")
    assert not list(tmp_path.iterdir()), "nothing was unreadable"
    quarantine.add([UnreadableRow("a.csv", 1, "no member", None, "{}")])
    arena = ArenaWriter("memory://top/scratch", "encoded", 0)
    assert len(list(tmp_path.iterdir())) == 2
    quarantine.close(IngestPart())
    del arena  # as in a task that fails half-way
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_not_there_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    stores.file_system.cache_clear()
    with pytest.raises(UsageError, match="s3://nowhere/trace: ") as error:
        find_files("s3://nowhere/trace")
    assert "\n" not in str(error.value)
    stores.file_system.cache_clear()


def test_what_a_store_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is not there, and errors that are no OSErrors, as Azure's."""
    with pytest.raises(UsageError, match="memory://nobody/x: no such file or directory in this store"):
        find_files("memory://nobody/x")
    with pytest.raises(FileNotFoundError) as missing:
        load_mapping("memory://nobody/m.toml")
    assert missing.value.filename == "memory://nobody/m.toml"

    class Refusing:
        def get_file_info(self, _: object) -> object:
            raise pa.ArrowException("Unknown error: no token\nSee the manual")

    monkeypatch.setattr("antiphon.pipeline.store.location.file_system", lambda *_: (Refusing(), "c"))
    with pytest.raises(UsageError) as refused:
        find_files("abfss://c@account/x")
    assert str(refused.value) == "abfss://c@account/x: Unknown error: no token"
