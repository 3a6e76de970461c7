"""A Robust Causal Order Protocol (Lima and Macêdo): its rules, its experiment, and what is wrong in print.

Each correction comes with the schedule that shows it: the printed rule fails on it, ours does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from antiphon.papers import robust_causal_order as paper
from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.ordering.causal_blocks import BlockMessage, CausalBlocks, NullBlock
from antiphon.protocol.wire import pack_vector, unpack_vector
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from support.causal_blocks_group import Group
from support.mutants_causal_blocks import (
    LetsGoAtMbv,
    PrintedDeliveryRule,
    PrintedExpiry,
    PrintedMb,
    PrintedMinimum,
    PrintedNulls,
    PrintedReceiver,
    PrintedRetransmissionRule,
    PrintedTransmitter,
    PrintedTrigger,
)


def stamps(message: BlockMessage | NullBlock, size: int) -> tuple[int, tuple[int, ...], int]:
    """(b, ldv, mb)."""
    return message.block, tuple(unpack_vector(message.ldv, size)), message.mb


# Causal blocks


def test_the_maximum_block_of_figure_2_is_2():
    part = Group(6).parts[0]
    columns = ((1, 4, 5), (2, 6), (3,), (1, 4), (2, 4, 5), (2,))
    part.known.arrivals.settled[:] = [max(column) for column in columns]
    assert part.known.maximum_block(0) == 2


def test_stamps_of_three_messages():
    group = Group(3)
    a = group.submit(0)
    group.give(1, 0, a)
    b = group.submit(1)
    c = group.submit(0)
    assert [stamps(message, 3) for message in (a, b, c)] == [(1, (0, 0, 0), 0), (2, (1, 0, 0), 0), (2, (1, 0, 0), 0)]
    group.give(2, 1, b)
    group.give(2, 0, c)
    assert group.delivered[2] == []
    group.give(2, 0, a)
    assert group.delivered[2] in ([(0, 1), (1, 1), (0, 2)], [(0, 1), (0, 2), (1, 1)])
    assert group.parts[2].known.LDV == [2, 2, 0]
    assert stamps(group.submit(2), 3) == (3, (2, 2, 0), 2)
    assert group.parts[2].known.MLDV == [[1, 0, 0], [1, 0, 0], [2, 2, 3]]


def test_block_numbers_respect_causality_and_are_shared_only_by_concurrent_messages():
    """What happened before has the lower block: delivered messages, over a chain of members."""
    group = Group(4)
    blocks = []
    for rank in range(4):
        message = group.submit(rank)
        blocks.append(message.block)
        for other in range(4):
            if other != rank:
                group.give(other, rank, message)
    assert blocks == [1, 2, 3, 4]
    concurrent = [Group(4).submit(rank).block for rank in range(4)]
    assert concurrent == [1, 1, 1, 1]


# The delivery rule


@pytest.mark.parametrize(("ordering", "delivered"), [(CausalBlocks, [(0, 1), (0, 2)]), (PrintedDeliveryRule, [(0, 2)])])
def test_figure_6_prints_the_delivery_rule_the_wrong_way_round(ordering: type[CausalBlocks], delivered: list):
    group = Group(2, ordering=ordering)
    m1, m2 = group.submit(0), group.submit(0)
    group.give(1, 0, m2, m1)
    assert group.delivered[1] == delivered


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_whatever_the_order_of_arrival_causes_come_first(order: tuple[int, ...]):
    group = Group(3)
    a = group.submit(0)
    group.give(1, 0, a)
    b = group.submit(1)
    group.give(0, 1, b)
    c = group.submit(0)
    group.give(1, 0, c)
    d = group.submit(1)
    chain = [(0, a), (1, b), (0, c), (1, d)]
    for place in order:
        group.give(2, *chain[place])
    assert group.delivered[2] == [(0, 1), (1, 1), (0, 2), (1, 2)]


# Seeing a loss


def test_mb_passes_a_lost_message_of_the_same_sender():
    group = Group(2)
    group.submit(0)  # lost
    group.give(1, 0, group.submit(0))
    assert stamps(group.submit(1), 2) == (3, (0, 0), 2)


def _lost_at(losers: tuple[int, ...], size: int, ordering: type[CausalBlocks], rounds: int = 12) -> Group:
    """p0 sends m1 and m2, m2 is lost once at some; then nulls and repairs reach everyone in every round."""
    group = Group(size, ordering=ordering, always=True, repair_delay_ns=MILLISECOND)
    m1, m2 = group.submit(0), group.submit(0)
    for rank in range(1, size):
        group.give(rank, 0, m1, *(() if rank in losers else (m2,)))
    for _ in range(rounds):
        _round(group, range(size))
    return group


def _round(group: Group, members: Iterable[int]) -> None:
    """One time-silence passes; whatever these members say then, they all hear."""
    group.now += 25 * MILLISECOND
    said = [(rank, out.pdu) for rank in members for out in group.wake(rank)]
    for source, pdu in said:
        for rank in members:
            if rank != source:
                group.give(rank, source, pdu)


@pytest.mark.parametrize(("losers", "size"), [((1,), 2), ((1, 2), 3), ((1,), 3)])
def test_a_message_lost_once_is_recovered(losers: tuple[int, ...], size: int):
    group = _lost_at(losers, size, CausalBlocks)
    assert group.delivered == [[(0, 1), (0, 2)]] * size
    assert not any(part.held for part in group.parts)


@pytest.mark.parametrize(("losers", "size"), [((1,), 2), ((1, 2), 3)])
def test_a_sender_that_may_not_repeat_its_own_message_leaves_it_lost(losers: tuple[int, ...], size: int):
    group = _lost_at(losers, size, PrintedRetransmissionRule)
    for rank in losers:
        assert group.delivered[rank] == [(0, 1)]
    assert _lost_at((1,), 3, PrintedRetransmissionRule).delivered[1] == [(0, 1), (0, 2)], (
        "while another has it, it works"
    )


def test_a_transmitter_that_never_sets_mb_repairs_nothing():
    assert _lost_at((1,), 2, PrintedTransmitter).delivered[1] == [(0, 1)]


def test_without_nulls_the_last_message_of_a_sender_is_never_noticed():
    group = Group(2)
    group.submit(0)  # lost, and nobody says anything afterwards
    assert group.parts[1].deadline is None
    assert list(group.parts[0].repair.missing_elsewhere()) == []
    assert _lost_at((1,), 2, CausalBlocks, rounds=1).delivered[1] == [(0, 1)]
    assert _lost_at((1,), 2, CausalBlocks, rounds=4).delivered[1] == [(0, 1), (0, 2)]


def test_a_silent_member_freezes_the_detection():
    """MB cannot pass what a silent fourth member last said, so that a loss at another is not repaired."""
    for ordering, delivered in ((PrintedMb, []), (CausalBlocks, [(0, 1)])):
        group = Group(4, ordering=ordering, always=True)
        message = group.submit(0)  # lost at 1; 3 has it, and stays silent
        group.give(2, 0, message)
        group.give(3, 0, message)
        for _ in range(40):
            _round(group, (0, 1, 2))
        assert group.delivered[1] == delivered
        for _ in range(4):
            _round(group, range(4))
        assert group.delivered[1] == [(0, 1)]


# What is sent again


def _suspecting(ordering: type[CausalBlocks] = CausalBlocks, **options: int) -> Group:
    """p0 has sent five messages; p1 reports the first delivered and none waiting; everyone's MB is past them."""
    group = Group(2, ordering=ordering, **options)
    for _ in range(5):
        group.submit(0)
    part = group.parts[0]
    group.give(0, 1, NullBlock(20, 18, pack_vector([1, 0]), 0, 0, False, [], 18))
    part.known.MBV[0] = 19
    return group


def test_the_minimum_is_taken_over_what_the_member_still_misses():
    group = Group(3, ordering=CausalBlocks)
    printed = Group(3, ordering=PrintedMinimum)
    for each in (group, printed):
        first, _second = each.submit(0), each.submit(0)
        each.give(2, 0, first)  # p1 has the first, p2 has delivered it too, p0 keeps it for p2's sake
        each.give(0, 1, NullBlock(10, 9, pack_vector([first.block, 0, 0]), 0, 0, False, [], 9))
        each.parts[0].known.MBV[:] = [9, 9, 9]
    assert [entry.message.seq for entry in group.parts[0].repair.retransmission_condition(1, 9, [0])] == [2]
    assert list(printed.parts[0].repair.retransmission_condition(1, 9, [0])) == [], "the minimum is one that p1 has"


def test_only_what_the_member_could_deliver_is_sent_and_one_after_the_other():
    group = _suspecting(burst=1)
    part = group.parts[0]
    assert [entry.message.seq for entry in part.repair.retransmission_condition(1, 19, [0])] == [2]
    group = _suspecting()
    assert [entry.message.seq for entry in group.parts[0].repair.retransmission_condition(1, 19, [0])] == [2, 3, 4, 5]
    group.give(0, 1, NullBlock(21, 18, pack_vector([1, 0]), 0, 0, False, [(0, 3), (0, 4)], 18))
    assert [entry.message.seq for entry in group.parts[0].repair.retransmission_condition(1, 19, [0])] == [2, 5]


def test_a_lost_repair_is_sent_again_after_a_pause_although_nothing_changes():
    ours, printed = _suspecting(burst=1), _suspecting(PrintedTrigger, burst=1)
    for group in (ours, printed):
        group.parts[0].repair.plan(0)
    instants = [when for when, _ in ours.repairs(0, until=SECOND)]
    pauses = [b - a for a, b in itertools.pairwise(instants)]
    assert len(instants) > 5
    assert min(pauses) >= 25 * MILLISECOND
    assert pauses[-1] > 4 * pauses[0], "what is sent again in vain is sent more rarely"
    assert len(printed.repairs(0, until=SECOND)) <= 1


def test_another_members_copy_suppresses_ours_for_a_report_period_and_news_cancel_it():
    group = _suspecting(burst=1)
    part = group.parts[0]
    copy = next(iter(part.repair.retransmission_condition(1, 19, [0]))).message
    part.repair.plan(0)
    group.now = 1
    group.give(0, 1, copy)
    (first, _), *_ = group.repairs(0, until=SECOND)
    assert first >= 1 + 25 * MILLISECOND
    group = _suspecting(burst=1)
    group.parts[0].repair.plan(0)
    group.give(0, 1, NullBlock(21, 18, pack_vector([5, 0]), 0, 0, False, [], 18))
    assert group.repairs(0, until=SECOND) == []


# What is kept and what is taken in again


@pytest.mark.parametrize(("ordering", "times"), [(CausalBlocks, 1), (PrintedReceiver, 2)])
def test_an_old_copy_is_not_new_again_when_the_message_was_let_go(ordering: type[CausalBlocks], times: int):
    group = Group(2, ordering=ordering)
    m1 = group.submit(0)
    group.give(1, 0, m1)
    assert group.parts[1].held == 0
    group.give(1, 0, m1)
    assert group.delivered[1] == [(0, 1)] * times


def test_a_copy_goes_only_when_everyone_has_delivered():
    """Past min(MBV), a message may still be missing somewhere: letting it go then loses it."""
    ours, literal = _suspecting(), _suspecting(LetsGoAtMbv)
    assert ours.parts[0].held == 4, "p1 has delivered the first of five"
    for group in (ours, literal):
        group.parts[0].known.know(1, 0, 1, group.parts[0].wake(0))
    assert literal.parts[0].held == 0, "and p1 misses four of them"


@pytest.mark.parametrize(("ordering", "delivered"), [(CausalBlocks, [(0, 1)]), (PrintedNulls, [])])
def test_a_lost_null_does_not_hold_back_data(ordering: type[CausalBlocks], delivered: list):
    group = Group(2, ordering=ordering, always=True)
    group.silence(0)  # lost
    group.give(1, 0, group.submit(0))
    assert group.delivered[1] == delivered


def test_advancing_the_block_counter_at_receipt_is_what_the_stamps_show():
    group = Group(2)
    group.submit(0)
    group.give(1, 0, group.submit(0))
    assert (group.parts[1].known.BC, group.parts[1].known.LDV) == (2, [0, 0])


# Lifetimes and priorities


@pytest.mark.parametrize(
    ("ordering", "order", "delivered"),
    [
        (CausalBlocks, (1, 0, 2), [(0, 1), (0, 3)]),
        (PrintedExpiry, (1, 0, 2), [(0, 3)]),
        (CausalBlocks, (1, 2, 0), [(0, 1), (0, 3)]),
        (PrintedExpiry, (1, 2, 0), [(0, 3)]),
    ],
)
def test_an_expired_message_is_discarded_in_its_turn(ordering: type[CausalBlocks], order: tuple, delivered: list):
    group = Group(2, ordering=ordering)
    messages = [group.submit(0, lifetime_ns=life) for life in (None, 0, None)]
    group.give(1, 0, *(messages[place] for place in order))
    assert group.delivered[1] == delivered
    assert (0, 2, "expired") in group.discarded[1]


def test_recovery_of_a_message_that_never_came_starts_and_brings_its_expiry_not_its_payload():
    group = _lost_at_with_lifetime()
    assert group.delivered[1] == [(0, 1), (0, 3)]
    assert group.discarded[1] == [(0, 2, "expired")]


def _lost_at_with_lifetime() -> Group:
    group = Group(2, always=True)
    m1, _, m3 = group.submit(0), group.submit(0, b"short-lived", lifetime_ns=MILLISECOND), group.submit(0)
    group.give(1, 0, m1, m3)
    for _ in range(4):
        group.give(0, 1, group.silence(1))
        group.give(1, 0, group.silence(0))
    repair = group.repair(0)
    assert (repair.seq, repair.payload, repair.life_ns) == (2, b"", 0)
    group.give(1, 0, repair)
    return group


def test_what_a_full_buffer_dropped_is_repaired_by_any_holder():
    group = Group(3, buffer=1, always=True)
    lost = group.submit(0, priority=0)
    low, high = group.submit(0, priority=1), group.submit(0, priority=2)
    group.give(1, 0, lost, low, high)
    group.give(2, 0, high, low)  # one place: the low one is shed
    group.give(2, 0, lost)
    assert group.delivered[2] == [(0, 1)]
    for _ in range(4):
        for source in range(3):
            null = group.silence(source)
            for rank in range(3):
                if rank != source:
                    group.give(rank, source, null)
    group.give(2, 1, group.repair(1))
    assert group.delivered[2] == [(0, 1), (0, 2), (0, 3)]


# The experiment


def test_figure_7_in_lockstep_rounds():
    """Message 10 is never recovered before the block counter is 17; the rest follow, some twice."""
    for seed in range(10):
        recovered = paper.lockstep(seed)
        assert [block for block, _ in dict.fromkeys(recovered)][:1] == [10]
        assert min(at for block, at in recovered if block == 10) >= 17
        firsts = {block: min(at for other, at in recovered if other == block) for block in range(10, 16)}
        assert list(firsts) == list(range(10, 16))
        gaps = [b - a for a, b in itertools.pairwise(firsts.values())]
        assert all(1 <= gap <= 3 for gap in gaps), firsts
    assert any(len(paper.lockstep(seed)) > 6 for seed in range(10)), "some are recovered twice"


def test_waiting_a_report_period_suppresses_better_than_a_new_random_timeout():
    copies = {}
    for ordering in (paper.OneReportPeriod, paper.NewRandomTimeout):
        scenario = Scenario.of(
            "paper",
            members=10,
            messages=20,
            ordering=ordering,
            ordering_options={"burst": 1},
            network=NetworkOptions(latency="uniform 1ms 5ms", loss=0.05),
            workload=Workload(interval="exponential 20ms"),
        )
        copies[ordering] = simulate(scenario, 1).stats["members"]["retransmissions"]
    assert copies[paper.OneReportPeriod] < copies[paper.NewRandomTimeout]


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.2])
def test_t1_every_missing_message_is_recovered_and_delivered(loss: float):
    scenario = Scenario.of("paper", members=4, messages=20, ordering="causal-blocks", network=NetworkOptions(loss=loss))
    run = simulate(scenario, 7)
    assert run.finished
    assert run.delivered == 4 * 20 * 4


def test_the_reproduction_agrees_with_the_paper_but_for_expired_messages():
    steps: list[tuple[int, int]] = []
    reproduction = paper.reproduce(None, quick=True, progress=lambda done, total: steps.append((done, total)))
    assert [claim.claim for claim in reproduction.claims if not claim.agrees] == [
        "For an expired message the recovery procedure will not be started"
    ]
    assert steps[-1][0] == steps[-1][1]
    copies = next(table for table in reproduction.tables if table.name == "copies")
    for _, losses, random_timeout, _, report_period, _ in copies.rows:
        assert losses > 10
        assert report_period < random_timeout
