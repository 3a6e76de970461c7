"""Times in which nobody delivered anything although messages had been sent."""

from __future__ import annotations

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.measuring.halts import delivery_gaps, halts

S = 1_000_000_000


def _found(delivered: dict[int, list[float]], sent: dict[int, list[float]]) -> list[tuple[float, float]]:
    def times(of: dict[int, list[float]], unit: int) -> Array:
        return np.array([round(time * S) for time in of.get(unit, ())], np.int64)

    spans = {unit: (round(min(all_) * S), round(max(all_) * S)) for unit, all_ in delivered.items()}
    gaps = {unit: delivery_gaps(times(delivered, unit), times(sent, unit)) for unit in delivered}
    units = sorted({*delivered, *sent})
    return [(start / S, end / S) for start, end in halts(spans, gaps, units, lambda unit: times(sent, unit))]


STEADY = [at / 10 for at in range(1, 20)]


def test_a_halt_is_where_nobody_delivers_and_something_was_sent() -> None:
    after = [at + 4 for at in STEADY]
    delivered = {0: STEADY + after, 1: [at + 0.01 for at in STEADY + after]}
    sent = [at - 0.005 for at in STEADY + after]
    assert _found(delivered, {0: [*sent, 2.0]}) == [(1.91, 4.1)]
    assert _found(delivered, {0: sent}) == [], "nothing was sent meanwhile"
    assert _found(delivered, {2: [*sent, 2.0]}) == [(1.91, 4.1)], "the sender may be one that delivers nothing"


def test_one_that_goes_on_or_is_no_longer_there_changes_what_is_a_halt() -> None:
    both = STEADY + [at + 4 for at in STEADY]
    sent = {0: [*(at - 0.005 for at in both), 2.0, 2.3]}
    assert _found({0: both, 1: [at / 10 for at in range(1, 60)]}, sent) == [], "another goes on"
    assert _found({0: both, 1: [*STEADY, 2.2]}, sent) == [(2.2, 4.1)], "another went on for a while, and was gone"
    assert _found({0: both, 1: [3.9, 6.0]}, sent) == [(1.9, 3.9)], "another came before its end"


def test_where_messages_usually_take_long_it_is_no_halt() -> None:
    sent = [5.0 * at for at in range(1, 20)]
    assert _found({0: [at + 1.5 for at in sent]}, {0: sent}) == []
