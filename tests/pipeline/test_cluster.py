"""The same check on a real cluster gives the same answer, also when half of it dies in the middle.

The trace is in an S3 service, and the workers see no file of the driver's: they share nothing but the store.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiphon import __main__ as program
from antiphon.pipeline.ingesting.foreign.form import PRESETS
from antiphon.pipeline.ingesting.relayout import SPILL
from antiphon.pipeline.session import _package_archive
from antiphon.trace import naive
from pipeline.cluster import BRIEF, Cluster, cluster, in_words
from pipeline.conftest import Checker
from pipeline.stores import S3Service, s3_service
from pipeline.traces import chaos, write


def start(on: Cluster, store: S3Service, temporary: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a driver that has its temporary files where no worker sees them."""
    settings = in_words({**BRIEF, **{f"spark.hadoop.{name}": value for name, value in store.hadoop.items()}})
    if arguments[0] == "spark-submit":  # as the documentation has it
        submit = f"{on.environment['SPARK_HOME']}/bin/spark-submit"
        command = [submit, "--master", on.url, *settings, program.__file__, *arguments[1:]]
    else:
        command = [sys.executable, "-m", "antiphon.cli", *arguments, "--master", on.url, *settings]
    temporary.mkdir(exist_ok=True)
    environment = {**on.environment, "TMPDIR": str(temporary)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
@pytest.mark.spark
def test_cluster(inline: Checker, tmp_path: Path) -> None:
    events = [event for seed in range(60) for event in chaos(seed, f"run-{seed}")]
    random.Random(1).shuffle(events)
    ours, theirs = tmp_path / "driver", tmp_path / "cluster"
    theirs.mkdir()
    for part in range(6):
        write(events[part::6], ours / "trace" / f"{part}.parquet")
    _, expected = inline.check(ours / "trace")
    assert expected == naive.check(events)

    with s3_service() as store, cluster(theirs, hidden=ours) as on:
        trace = store.put(ours / "trace", "cluster/trace")
        if on.apart:
            assert on.seen_by(1, ours) == on.seen_by(2, ours) == ["tmp"], "workers see nothing of the driver's"

        submitted = start(on, store, ours / "tmp", "spark-submit", "check", trace, "--json")
        answers = [result(submitted)]
        out = ours / "out"
        disturbed = start(on, store, ours / "tmp", "check", trace, "--json", "--out", str(out))
        while disturbed.poll() is None and not any(f"/{SPILL}/" in key for key in store.keys("cluster")):
            time.sleep(0.05)
        assert disturbed.poll() is None, "a worker is killed in the middle, not at the end"
        on.kill(2)
        answers.append(result(disturbed))
        assert json.loads((out / "check.json").read_text())["guarantees"] == answers[1]
        assert {key.split("/")[1] for key in store.keys("cluster")} == {"trace"}, "no scratch is left"

    for answer in answers:
        for name, found in answer.items():
            assert (found["verdict"], found["violations"]) == (expected[name].verdict, expected[name].violations)
            assert [witness["why"] for witness in found["witnesses"]] == [w.why for w in expected[name].witnesses]
    assert answers[0] == answers[1]


def test_the_package_that_workers_are_sent_has_the_files_that_it_reads() -> None:
    asked = "from antiphon.pipeline.ingesting.foreign import form; print(form.__file__, *form.PRESETS)"
    archive = _package_archive()
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {asked}"]
    where, *presets = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert where.startswith(str(archive))
    assert presets == [*PRESETS]


def result(process: subprocess.Popen[str]) -> dict[str, dict[str, object]]:
    printed, err = process.communicate(timeout=400)
    assert process.returncode == 1, printed + err
    found: dict[str, dict[str, object]] = json.loads(printed.splitlines()[-1])["guarantees"]
    return found
