"""What run.json says of a simulated run."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.protocol.options import part_name
from antiphon.sim.cluster import SimulatedRun


def about(result: SimulatedRun) -> dict[str, Any]:
    """Give what `run.json` says of a simulated run."""
    scenario = result.scenario
    parameters = msgspec.to_builtins(
        {key: getattr(scenario, key) for key in scenario.__struct_fields__ if key not in ("ordering", "stability")}
    )
    needs_recovery = result.needs_recovery
    return {
        "ordering": part_name(scenario.ordering),
        "stability": part_name(scenario.stability if needs_recovery else scenario.ordering),
        "views": scenario.views,
        "clock": "global" if scenario.clocks.skew == "0" and not scenario.clocks.drift_ppm else "local",
        "promises": scenario.promises(),
        "seed": result.seed,
        "finished": result.finished,
        "parameters": parameters,
    }
