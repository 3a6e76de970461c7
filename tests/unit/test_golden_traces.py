"""Golden transcripts: a small lossy run of every ordering, written down event by event.

A change of a protocol shows here as a readable difference. When it is meant, write the transcripts anew:
    python -m pytest tests/unit/test_golden_traces.py --golden
"""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.protocol.ordering import ORDERINGS
from antiphon.sim.cluster import SimulatedRun, simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload

GOLDEN = Path(__file__).parents[1] / "golden"


def transcript(run: SimulatedRun) -> str:
    rows = sorted(run.events, key=lambda event: (event.time_ns, event.member, event.step))
    lines = []
    for row in rows:
        message = "" if row.sender is None else f" {row.sender}:{row.seq}"
        size = "" if row.bytes is None else f" {row.bytes}B"
        detail = "" if row.detail is None else f" ({row.detail})"
        lines.append(f"{(row.time_ns or 0) / 1e6:11.6f} ms  member {row.member}  {row.event}{message}{size}{detail}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_a_small_run_is_as_it_was(ordering: str, request: pytest.FixtureRequest) -> None:
    scenario = Scenario.of(
        "paper",
        members=3,
        messages=2,
        ordering=ordering,
        network=NetworkOptions(latency="uniform 1ms 4ms", loss=0.25),
        workload=Workload(interval="exponential 5ms", payload=8),
    )
    run = simulate(scenario, 11)
    assert run.finished
    path = GOLDEN / f"{ordering}.txt"
    if request.config.getoption("--golden"):
        path.write_text(transcript(run))
    assert transcript(run) == path.read_text()
