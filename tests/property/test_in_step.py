"""Members in step: equal links, equal timers and tiny receive buffers, where what collides once collides for ever.

Everything that is repeated or answered must be repeated or answered at random moments, or the same one always loses.
"""

from __future__ import annotations

import itertools

import pytest

from antiphon.protocol.options import ordering_type
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from antiphon.sim.torture import flaw

COMPOSITIONS = [
    (ordering, stability)
    for ordering in sorted(ORDERINGS)
    for stability in (sorted(STABILITIES) if ordering_type(ordering).NEEDS_RECOVERY else ["vector-ack"])
]


@pytest.mark.parametrize(("ordering", "stability"), COMPOSITIONS)
def test_what_collides_once_does_not_collide_for_ever(ordering: str, stability: str) -> None:
    for members, buffer, duplicate, window in itertools.product((4, 6), (2, 3), (0.0, 0.1), (1, 8)):
        scenario = Scenario.of(
            "paper",
            members=members,
            messages=2,
            ordering=ordering,
            stability=stability,
            window=window,
            network=NetworkOptions("fixed 2ms", duplicate=duplicate, receive_buffer=buffer, service="500us"),
            workload=Workload(interval="0", payload=8, senders=[1] if buffer == 2 else None),
            limit="1min",
        )
        assert flaw(scenario, 1) is None, (members, buffer, duplicate, window)
