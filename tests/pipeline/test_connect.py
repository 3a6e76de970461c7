"""Spark Connect: a folder and a DataFrame are checked, measured and kept as in a session of the classic kind."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.pipeline.java import find_java_home
from pipeline.conftest import Checker
from pipeline.traces import chaos, write

pytest.importorskip("grpc", reason="pip install 'antiphon[connect]'")

PROGRAM = """
import contextlib, io, json, sys
from pathlib import Path
import msgspec
from antiphon import pipeline
from antiphon.cli import main

folder, out = Path(sys.argv[1]), Path(sys.argv[2])

def run(*words):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([*map(str, words), "--json"])
    return code, json.loads(said.getvalue())

from antiphon.pipeline.session import open_session
opened = open_session()
spark = opened.spark
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
frame = spark.read.parquet(str(folder / "*.parquet"))
checked = pipeline.check(frame)
named = spark.createDataFrame(
    [("r", "ann", 1, "send", "m"), ("r", "ann", 2, "deliver", "m"), ("r", "bob", 1, "deliver", "m"),
     ("r", "bob", 2, "deliver", "n")],
    "run string, member string, step long, event string, seq string")
by_name = pipeline.check(named.selectExpr("*", "cast(null as string) as sender"))
print(json.dumps({
    "frame": msgspec.to_builtins(checked.result.guarantees),
    "quarantined": checked.quarantine.count(),
    "witnesses": checked.witnesses.count(),
    "measured": pipeline.measure(frame).result.events,
    "check": run("check", folder),
    "measure": run("measure", folder, "--out", out / "measured"),
    "ingest": run("ingest", folder, "--out", out / "table"),
    "again": run("check", out / "table"),
    "names": [(row.member, row.name) for row in by_name.table.names.collect()],
    "integrity": [(row.name, row.why) for row in by_name.witnesses.where("guarantee = 'integrity'").collect()],
}))
opened.stop()
"""


def test_all_but_what_spark_forbids(inline: Checker, tmp_path: Path) -> None:
    events = [event for seed in range(20) for event in chaos(seed, f"run-{seed}")]
    random.Random(1).shuffle(events)
    for part in range(2):
        write(events[part::2] + events[:4], tmp_path / "trace" / f"{part}.parquet")
    totals, expected = inline.check(tmp_path / "trace")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "trace"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "SPARK_REMOTE": "local[2]", "JAVA_HOME": str(find_java_home())},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    for found in (said["frame"], said["check"][1]["guarantees"], said["again"][1]["guarantees"]):
        assert {name: (one["verdict"], one["examined"], one["violations"]) for name, one in found.items()} == {
            name: (one.verdict, one.examined, one.violations) for name, one in expected.items()
        }
        assert [one["why"] for one in found["fifo"]["witnesses"]] == [one.why for one in expected["fifo"].witnesses]
    assert said["quarantined"] == sum(totals.quarantined.values()) == 8
    assert said["witnesses"] == sum(len(one.witnesses) for one in expected.values())
    assert said["measured"] == said["measure"][1]["events"] == said["ingest"][1]["events"] == totals.events
    assert (said["check"][0], said["measure"][0], said["ingest"][0], said["again"][0]) == (1, 0, 0, 1)
    assert said["names"][:2] == [[1, "ann"], [2, "bob"]]
    assert said["integrity"] == [["bob", "member 2 delivers message 1 of 3, which was never sent"]]
