"""One set of scenarios, over loopback UDP and simulated: both keep the same guarantees, as seen in their traces."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from antiphon.protocol.ordering import ORDERINGS
from antiphon.sim.cluster import simulate
from antiphon.trace import naive
from antiphon.trace.event import Event
from antiphon.trace.reader import read
from support.happenings import HAPPENINGS, lived_trace, scenario


def holding(events: list[Event], promised: Collection[str]) -> set[str]:
    """See that all that is promised holds, by the naive checker; name what was examined."""
    found = naive.check(events, guarantees=promised)
    assert not {name: verdict for name, verdict in found.items() if verdict.verdict != "holds"}
    assert all(found[name].examined > 0 for name in ("fifo", "agreement", "integrity"))
    return set(found)


@pytest.mark.parametrize("name", HAPPENINGS)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_scenario_keeps_the_same_guarantees_live_and_simulated(ordering: str, name: str, tmp_path: Path) -> None:
    happening = HAPPENINGS[name]
    trace = read(lived_trace(happening, ordering, tmp_path))
    assert not trace.unreadable
    assert trace.promised is not None
    examined = holding(trace.events, trace.promised)
    simulated = simulate(scenario(happening, ordering), seed=1)
    assert simulated.finished
    assert holding(simulated.events, trace.promised) == examined
    assert {"fifo", "agreement", "stability"} <= examined
    assert ("view-synchrony" in examined) == happening.views
