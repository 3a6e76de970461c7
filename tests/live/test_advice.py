"""What `advise` predicts beside a live group of four processes; it wants the machine to itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.faults
@pytest.mark.parametrize("goal", ["deliver", "stable", "bytes"])
def test_a_live_group_takes_the_time_and_bytes_that_were_predicted(goal: str) -> None:
    command = [sys.executable, "-m", "bench.advise", "--goals", goal, "--latency-ms", "10", "30", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    (row,) = json.loads(done.stdout)["goals"]
    if not row["steady"]:
        pytest.skip("this machine was not as fast after the run as before it")
    assert row["missed"] == [], row
