"""The same check on a real cluster gives the same answer, also when half of it dies in the middle."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiphon.trace import naive
from pipeline.cluster import Cluster, cluster
from pipeline.conftest import Checker
from pipeline.traces import chaos, write


def start_check(on: Cluster, trace: Path, out: Path) -> subprocess.Popen[str]:
    small = [
        "--conf",
        "spark.executor.memory=512m",
        "--conf",
        "spark.driver.memory=512m",
        "--conf",
        "spark.ui.enabled=false",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "antiphon.cli", "check", trace, "--json", "--out", out, "--master", on.url, *small],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.spark
def test_cluster(inline: Checker, tmp_path: Path) -> None:
    events = [event for seed in range(150) for event in chaos(seed, f"run-{seed}")]
    random.Random(1).shuffle(events)
    for part in range(6):
        write(events[part::6], tmp_path / "trace" / f"{part}.parquet")
    _, expected = inline.check(tmp_path / "trace")
    assert expected == naive.check(events)

    with cluster(tmp_path) as on:
        answers = []
        for kill in (False, True):
            out = tmp_path / f"out-{kill}"
            process = start_check(on, tmp_path / "trace", out)
            if kill:
                while process.poll() is None and not list(tmp_path.glob(".antiphon-*/layout/spill/*")):
                    time.sleep(0.05)
                assert process.poll() is None, "it is killed in the middle, not at the end"
                on.kill(2)
            printed, err = process.communicate(timeout=300)
            assert err == ""
            assert process.returncode == 1
            assert json.loads((out / "check.json").read_text()) == json.loads(printed)
            answers.append(json.loads(printed)["guarantees"])
    for answer in answers:
        for name, found in answer.items():
            assert (found["verdict"], found["violations"]) == (expected[name].verdict, expected[name].violations)
            assert [witness["why"] for witness in found["witnesses"]] == [w.why for w in expected[name].witnesses]
    assert answers[0] == answers[1]
