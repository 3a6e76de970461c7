"""The timestamp paper sentence by sentence: its figures, its inequalities, and what they leave unsaid."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.papers.acknowledging_group import PERIOD_MS
from antiphon.papers.claims import PaperClaim
from antiphon.papers.timestamp_acknowledgments import (
    ASYMMETRIC,
    FIGURE_2,
    clock_claims,
    compare,
    cost_claims,
    covered_by_physical_clocks,
    figure_3,
    figure_4,
    inequalities_broken,
    lost_is_stable,
    member_rows,
    reproduce,
    timestamp_latency,
    timestamp_latency_as_printed,
    vector_latency,
)
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.rules import replaced
from antiphon.protocol.stability.timestamp_ack import Ack, NullMessage, TimestampAck
from support.broken_claims import counted, no_clock, nothing_taken


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
    assert covered_by_physical_clocks() == (50, 5)


def test_figure_3_needs_a_clock_in_the_acknowledgment_and_receipts_that_do_not_count() -> None:
    assert figure_3() == (1, [5, 5], [6, 6], 1)
    assert figure_3(replaced(TimestampAck, ack_message=no_clock)) == (1, [5, 1], [6, 2], 2)
    printed = replaced(TimestampAck, ack_message=counted)
    assert figure_3(printed)[:3] == (1, [6, 6], [7, 7])


def test_figure_4_wrong_and_full_view() -> None:
    assert figure_4([2]) == (33, True)
    assert figure_4([1, 2]) == (0, False)


def test_a_message_lost_with_its_connection_is_declared_stable() -> None:
    assert lost_is_stable()


def test_what_is_measured_grows_with_size_and_skew() -> None:
    (small, small_skewed, large, large_skewed) = compare([10, 40], [0, 100])
    assert small.vector.wait_ms < small.timestamp.wait_ms < small_skewed.timestamp.wait_ms
    assert small.timestamp.wait_ms < large.timestamp.wait_ms < large_skewed.timestamp.wait_ms
    # a message, the wait for an acknowledgment, and its way back; with timestamps a message of everyone else as well
    assert 75 < small.vector.wait_ms < 175
    assert 125 < small.timestamp.wait_ms < 275


def claim(claims: Sequence[PaperClaim], words: str) -> PaperClaim:
    (found,) = (one for one in claims if words in one.claim)
    return found


def following_nobody() -> type[TimestampAck]:
    """Give the protocol with logical clocks that count their own stamps only, whatever they hear."""
    own: Counter[TimestampAck] = Counter()

    def count(part: TimestampAck, stamp: int) -> int:
        own[part] += 1
        return own[part] if part.options.clock == "logical" else stamp

    def stamp(part: TimestampAck, now: int) -> int:
        return count(part, TimestampAck.stamp(part, now))

    def null_message(part: TimestampAck, now: int) -> NullMessage:
        null = TimestampAck.null_message(part, now)
        return NullMessage(count(part, null.stamp), null.sent)

    return replaced(TimestampAck, stamp=stamp, null_message=null_message)


def test_physical_clocks_are_faster_only_than_logical_ones_that_follow_nobody() -> None:
    def agrees(part: type[TimestampAck]) -> bool:
        return claim(clock_claims(member_rows(6, 30, [0], part), part), "Synchronized physical clocks").agrees

    assert not agrees(TimestampAck)
    assert agrees(following_nobody())


def deaf_after_a_while(part: TimestampAck, source: int, ack: Ack, now: int) -> None:
    if now < 460 * MILLISECOND:  # the messages whose wait is measured are stable by then
        TimestampAck.take_ack(part, source, ack, now)


@pytest.mark.parametrize("rule", [deaf_after_a_while, nothing_taken])
def test_the_time_divided_by_the_rate_is_the_buffer_only_where_the_rate_is_one(rule: Any) -> None:
    """By the unit in which one message is sent, quotient and product are the same; there a leak would show."""
    words = "divided by its send rate"
    sound, leaking = (
        compare([6], [0, 100], part=part) for part in (TimestampAck, replaced(TimestampAck, take_ack=rule))
    )
    assert not claim(cost_claims(sound), words).agrees
    assert claim(cost_claims(sound, unit_ms=PERIOD_MS), words).agrees
    assert not claim(cost_claims(leaking, unit_ms=PERIOD_MS), words).agrees


def test_reproduction(tmp_path: Path) -> None:
    result = reproduce(tmp_path, quick=True)
    agrees = {claim.claim: claim.agrees for claim in result.claims}
    assert sum(agrees.values()) >= 8
    assert agrees["The buffer size grows linearly with the latency"]
    assert not agrees["Latency is only slightly larger than with vectors"]
    assert not agrees["With physical clocks the receivers can acknowledge all six messages"]
    assert [figure.exists() for figure in result.figures] == [True] * 4
    members = next(table for table in result.tables if table.name == "members")
    waits = {(row[0], row[1], row[2]): float(row[3]) for row in members.rows}
    assert waits["timestamp-ack", "physical", 100] > waits["timestamp-ack", "physical", 0] > waits["vector-ack", "-", 0]
