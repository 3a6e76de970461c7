"""The timestamp paper sentence by sentence: its figures, its inequalities, and what they leave unsaid."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from antiphon.papers.timestamp_acknowledgments import (
    ASYMMETRIC,
    FIGURE_2,
    acknowledgment,
    figure_3,
    figure_4,
    inequalities_broken,
    lost_is_stable,
    mean_latencies_ms,
    reproduce,
    timestamp_latency,
    timestamp_latency_as_printed,
    vector_latency,
)


def test_figure_2_vector_acknowledgments() -> None:
    assert [vector_latency(*FIGURE_2, 1, s) for s in (0, 1)] == [7, 14]


def test_figure_2_timestamp_acknowledgments_as_printed_and_exactly() -> None:
    assert [timestamp_latency_as_printed(*FIGURE_2, 1, 1, s) for s in (0, 1)] == [11, 15]
    assert [timestamp_latency(*FIGURE_2, 1, 1, s) for s in (0, 1)] == [11, 14]


def test_the_exact_latency_is_the_worst_that_phases_can_do() -> None:
    rng = random.Random(3)
    for _ in range(20):
        messages = [[rng.randint(0, 6) for _ in range(2)] for _ in range(2)]
        acks = [[rng.randint(0, 6) for _ in range(2)] for _ in range(2)]
        t_send, t_ack, steps = rng.randint(1, 3), rng.randint(1, 3), 50
        worst = 0.0
        for other_phase in range(1, steps + 1):  # the other's first stamp that is not below comes so much later
            stamped = t_send * other_phase / steps
            for ack_phase in range(1, steps + 1):
                waits = t_ack * ack_phase / steps
                arrives = [max(messages[0][r], stamped + messages[1][r]) + waits + acks[r][0] for r in range(2)]
                worst = max(worst, *arrives)
        assert worst == pytest.approx(timestamp_latency(messages, acks, t_send, t_ack, 0))


def test_inequalities_1_and_2_hold_and_the_symmetric_case_needs_symmetry() -> None:
    assert inequalities_broken(2_000) == {"(1)": 0, "(2)": 0, "symmetric": 0}
    assert timestamp_latency_as_printed(*ASYMMETRIC, 0, 0, 0) == 10
    assert max(vector_latency(*ASYMMETRIC, 0, s) for s in (0, 1)) == 5


def test_section_5_physical_clocks_cover_five_of_six() -> None:
    assert acknowledgment([[10, 20, 30, 40, 50], [60]]) == 50


def test_figure_3_needs_a_clock_in_the_acknowledgment_and_receipts_that_do_not_count() -> None:
    assert figure_3(clock_in_ack=True, strict=False) == (1, [6, 6], [7, 7], 1)
    first, _, stamps, rounds = figure_3(clock_in_ack=False, strict=False)
    assert (first, stamps, rounds) == (1, [6, 2], 4)
    _, clocks, _, _ = figure_3(clock_in_ack=True, strict=True)
    assert clocks != [6, 6]


def test_figure_4_wrong_and_full_view() -> None:
    assert figure_4([2]) == (33, True)
    assert figure_4([1, 2]) == (0, False)


def test_a_message_lost_with_its_connection_is_declared_stable() -> None:
    assert lost_is_stable()


@pytest.mark.parametrize(
    ("n", "skew_ms", "vector_ms", "timestamp_ms", "trials"),
    [
        (10, 0, 115, 163, 1500),
        (100, 0, 134, 188, 200),
        (1000, 0, 142, 196, 25),
        (10, 100, 115, 189, 1500),
        (100, 100, 134, 229, 200),
        (1000, 100, 142, 239, 40),
    ],
)
def test_mean_latency_of_large_groups(n: int, skew_ms: int, vector_ms: int, timestamp_ms: int, trials: int) -> None:
    vector, timestamp = mean_latencies_ms(n, skew_ms, trials, seed=7)
    assert vector == pytest.approx(vector_ms, rel=0.02)
    assert timestamp == pytest.approx(timestamp_ms, rel=0.02)


def test_reproduction(tmp_path: Path) -> None:
    result = reproduce(tmp_path, quick=True)
    agrees = {claim.claim: claim.agrees for claim in result.claims}
    assert sum(agrees.values()) >= 8
    assert not agrees["Latency is only slightly larger than with vectors"]
    assert not agrees["With physical clocks the receivers can acknowledge all six messages"]
    assert [figure.exists() for figure in result.figures] == [True] * 4
    members = next(table for table in result.tables if table.name == "members")
    waits = {(row[0], row[1], row[2]): float(row[3]) for row in members.rows}
    assert waits["timestamp-ack", "physical", 100] > waits["timestamp-ack", "physical", 0] > waits["vector-ack", "-", 0]
