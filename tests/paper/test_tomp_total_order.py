"""The TOMP paper, sentence by sentence: what it says, what it got wrong, and that the repaired rules do better."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from antiphon.papers import tomp_total_order as paper
from antiphon.protocol.machine import Submit
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.tomp import BoundingDecision, Tomp, TompOptions
from antiphon.protocol.ordering.two_phase import (
    Ask,
    Decision,
    Pending,
    Stamp,
    TimedData,
    TwoPhase,
    TwoPhaseOptions,
    Waiting,
    takeover,
)
from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import replaced
from antiphon.protocol.wire import Codec, pack_vector
from support.mutants_two_phase import (
    AbcastWithoutClockRule,
    TompThatRenewsTimestamps,
    TompWithoutClockRule,
    TompWithSeparateBox,
)
from support.two_phase_group import Group, adversary, explore, survive

PROTOCOLS = [Abcast, Tomp]
M1, M3 = (0, 1), (2, 1)


def context(rank: int, size: int) -> PartContext:
    return PartContext(rank, size, random.Random(0))


# The clock rule


@pytest.mark.parametrize("literal", [AbcastWithoutClockRule, TompWithoutClockRule])
def test_printed_rule_breaks_total_order_on_the_schedule(literal: type[TwoPhase]) -> None:
    hosts = paper.play(literal, 3, paper.BREAKING_SCHEDULE)
    finals = {message: (decision.time, decision.host + 1) for message, decision in hosts.decisions.items()}
    assert finals == {M1: (2, 3), M3: (2, 2)}
    assert hosts.delivered == [[M3, M1], [M1, M3], [M3, M1]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_clock_rule_keeps_one_order_on_the_schedule(protocol: type[TwoPhase]) -> None:
    hosts = paper.play(protocol, 3, paper.BREAKING_SCHEDULE)
    finals = {message: (decision.time, decision.host + 1) for message, decision in hosts.decisions.items()}
    assert finals == {M1: (2, 3), M3: (3, 2)}
    assert hosts.delivered == [[M1, M3]] * 3


# The worked example; hosts and messages count from 0 here


def test_worked_example_of_abcast() -> None:
    stages = paper.worked_example(Abcast)
    assert [(stage.message, stage.final) for stage in stages] == [(0, (17, 2)), (1, (19, 2)), (2, (18, 2))]
    assert [stage.delivered for stage in stages] == [
        ((), (), (0,)),
        ((), (0,), ()),
        ((0, 2, 1), (2, 1), (2, 1)),
    ]


def test_worked_example_of_tomp() -> None:
    stages = paper.worked_example(Tomp)
    assert [(stage.final, stage.min_next_mid, stage.max_next_ts) for stage in stages] == [
        ((17, 2), (2, 1, 1), ((18, 2), (18, 2), (18, 2))),
        ((19, 2), (1, 2, 1), ((17, 1), (20, 2), (17, 1))),
        ((18, 2), (1, 1, 2), ((16, 0), (19, 2), (19, 2))),
    ]
    assert [stage.delivered for stage in stages] == [((0,), (0,), (0,)), ((), (), ()), ((2, 1), (2, 1), (2, 1))]


def test_worked_example_reaches_the_queues_that_are_drawn() -> None:
    """Figure 3, steps 3 and 5; m1, drawn there as deliverable, is delivered already."""
    first, second, _ = paper.worked_example(Tomp)
    raised = ((1, (18, 2), False), (2, (18, 2), False))
    assert first.queues == (raised, raised, ((2, (18, 2), False), (1, (19, 2), False)))
    assert second.queues == (((2, (18, 2), False), (1, (19, 2), True)),) * 3


def test_misprints() -> None:
    abcast, tomp = paper.worked_example(Abcast), paper.worked_example(Tomp)
    at_host1 = {message: stamp for message, stamp, _ in abcast[0].queues[0]}
    assert at_host1[1] == (17, 0)  # Figure 1, step 2 prints 16.1 for m2
    assert at_host1[0] == (17, 2)
    assert tomp[0].message == 0  # Figure 3, step 2 is captioned as m2's
    assert tomp[2].min_next_mid == (1, 1, 2) != (1, 2, 1)  # Figure 4, step 6 prints (m1, m2 + 1, m3)


def test_decided_message_waits_needlessly_in_abcast_but_not_in_tomp() -> None:
    """Section 2.3, remark 5: m1 at host 1 waits for m3, whose final timestamp is greater."""
    assert paper.worked_example(Abcast)[0].delivered[0] == ()
    assert paper.worked_example(Tomp)[0].delivered[0] == (0,)


def test_claims_of_the_example_come_out() -> None:
    agreed = {claim.claim.split(":")[0]: claim.agrees for claim in paper.example_claims()}
    assert agreed == {
        "decision on m1": True,
        "decision on m2": True,
        "decision on m3": False,
        "ABCAST": True,
        "TOMP": True,
    }


# The update box


def decided_crosswise(protocol: type[TwoPhase]) -> Group:
    """Play the example's arrivals with own messages stamped as they come; host 0 hears of m2 first, host 1 of m1."""
    group = Group(protocol, 3)
    for part, clock, arrivals in zip(group.parts, paper.EXAMPLE_CLOCKS, paper.EXAMPLE_ARRIVALS, strict=True):
        part.clock.witness(clock)
        for sender in arrivals:
            group.carry(part.rank, part.accept(sender, TimedData(seq=1, payload=b"1", own=part.clock.time + 1), 0))
    group.sent = [1, 1, 1]
    for sender in (1, 0, 2):  # m2 is decided first
        for source in range(3):
            if source != sender:
                group.take(source, sender)
        if sender == 1:
            group.take(1, 0)  # host 0 hears m2's decision before it can decide m1
    group.finish()
    return group


def test_separate_minimum_and_maximum_are_unsound() -> None:
    group = decided_crosswise(TompWithSeparateBox)
    assert group.highest_bound[0, 1] > group.final[0, 1]  # m1 was believed to come after 20.3, and got 17.3
    assert group.delivered[0] != group.delivered[2]


@pytest.mark.parametrize("bound", ["paper", "all-hosts"])
def test_joint_update_is_sound_there(bound: str) -> None:
    class Bounded(Tomp):
        def __init__(self, context: PartContext, options: TompOptions) -> None:
            super().__init__(context, TompOptions(bound=bound))  # type: ignore[arg-type]

    assert decided_crosswise(Bounded).unfaithful() == []


def test_bound_never_exceeds_the_final_timestamp_by_more_than_one() -> None:
    """Section 3.2.3.2: max_next_ts(k) is at most the final timestamp's number plus one."""
    for seed in range(30):
        group = adversary(Group(Tomp, 4, bound="all-hosts"), seed)
        for decision in group.decisions.values():
            assert all(number <= decision.time + 1 for _, _, (number, _) in decision.bounds(4))  # type: ignore[attr-defined]


class Remembering(Group):
    """Keeps what every host believed of every undecided message after each of its steps."""

    def _note_bounds(self, host: int) -> None:
        super()._note_bounds(host)
        part = self.parts[host]
        self.__dict__.setdefault("believed", []).extend(
            (host, m.sender, m.seq, part.provisional(m)) for waiting in part.undecided for m in waiting.values()
        )


def test_all_hosts_bound_is_never_lower() -> None:
    """On the same schedule, every provisional timestamp of the paper's bound is reached, and some are passed."""
    higher = 0
    for seed in range(40):
        one, other = (adversary(Remembering(Tomp, 4, bound=bound), seed) for bound in ("paper", "all-hosts"))
        assert one.final == other.final
        pairs = list(zip(one.__dict__["believed"], other.__dict__["believed"], strict=True))
        assert all(mine <= theirs for mine, theirs in pairs)
        higher += sum(mine < theirs for mine, theirs in pairs)
    assert higher > 0


# Without FIFO channels


class TompWithDeltaOutOfOrder(Tomp):
    """Delta where channels are not FIFO."""

    def __init__(self, context: PartContext, options: TompOptions) -> None:
        super().__init__(context, options)
        self.in_order = False


def test_delta_needs_fifo() -> None:
    wrong = [adversary(Group(TompWithDeltaOutOfOrder, 3), seed, fifo=False).unfaithful() for seed in range(40)]
    assert any("bound" in line for lines in wrong for line in lines)
    assert any("order" in line for lines in wrong for line in lines)


@pytest.mark.parametrize("bound", ["paper", "all-hosts"])
def test_without_delta_fifo_is_not_needed(bound: str) -> None:
    for seed in range(60):
        group = adversary(Group(Tomp, 2 + seed % 4, delta=False, bound=bound), seed, fifo=False)
        assert group.unfaithful() == []


@pytest.mark.parametrize(("size", "sends"), [(2, [0, 0, 1]), (3, [0, 1]), (3, [0, 0])])
def test_every_interleaving_without_fifo_and_delta(size: int, sends: list[int]) -> None:
    states, wrong = explore(Group(Tomp, size, delta=False), sends, fifo=False, states_max=10_000)
    assert states > 500
    assert not wrong


@pytest.mark.parametrize(("size", "sends"), [(2, [0, 1, 0]), (3, [0, 1])])
def test_every_interleaving_with_fifo(size: int, sends: list[int]) -> None:
    states, wrong = explore(Group(Tomp, size), sends, fifo=True, states_max=10_000)
    assert states > 500
    assert not wrong


# Timestamps


def read_as_decimal(self: TwoPhase, message: Waiting) -> tuple[Stamp, bool]:
    """Timestamps read as decimals, as they are printed."""
    stamp, provisional = TwoPhase.order_key(self, message)
    return (float(f"{stamp[0]}.{stamp[1]}"), 0), provisional  # type: ignore[return-value]


DecimalAbcast = replaced(Abcast, order_key=read_as_decimal)


@pytest.mark.parametrize(("protocol", "order"), [(Abcast, [9, 10]), (DecimalAbcast, [10, 9])])
def test_timestamp_is_a_pair_not_a_decimal(protocol: type[TwoPhase], order: list[int]) -> None:
    """(9, 10) comes after (9, 9), although 9.10 is less than 9.9."""
    part = protocol(context(0, 11), TwoPhaseOptions())
    delivered = []
    for sender in (9, 10):
        part.accept(sender, TimedData(seq=1), 0)
    for sender in (10, 9):
        step = part.accept(sender, Decision(seq=1, time=9, host=sender), 0)
        delivered += [up.sender for up in step.up[1:]]  # type: ignore[union-attr]
    assert delivered == order


def undecided_first(self: TwoPhase, message: Waiting) -> tuple[Stamp, bool]:
    """Of two equal timestamps, the undecided one is first."""
    stamp, provisional = TwoPhase.order_key(self, message)
    return stamp, not provisional


TompThatLosesTies = replaced(Tomp, order_key=undecided_first)


def bounding(final: Stamp, firsts: list[int], bound: Stamp) -> BoundingDecision:
    """A decision on a sender's first message, with one bound for all three senders."""
    return BoundingDecision(
        seq=1,
        time=final[0],
        host=final[1],
        min_next_mid=pack_vector(firsts),
        below=pack_vector([final[0] + 1 - bound[0]] * 3),
        hosts=bytes([bound[1], 0] * 3),
    )


@pytest.mark.parametrize(("protocol", "delivered"), [(Tomp, [[0], [2]]), (TompThatLosesTies, [[0], []])])
def test_deliverable_message_wins_a_tie(protocol: type[Tomp], delivered: list[list[int]]) -> None:
    """m1's decision raises m2 and m3 to 5.3; m3 gets just that for good and need not wait for m2."""
    part = protocol(context(0, 3), TompOptions())
    for sender in range(3):
        part.accept(sender, TimedData(seq=1, own=part.clock.time + 1), 0)
    steps = [
        part.accept(0, bounding((4, 2), [2, 1, 1], (5, 2)), 0),
        part.accept(2, bounding((5, 2), [2, 2, 2], (6, 2)), 0),
    ]
    assert [[up.sender for up in step.up[1:]] for step in steps] == delivered  # type: ignore[union-attr]


def test_finals_are_unique_though_provisional_timestamps_are_not() -> None:
    for seed in range(50):
        group = adversary(Group(Tomp, 5), seed)
        assert len(set(group.final.values())) == len(group.final)
    first = paper.worked_example(Tomp)[0]
    assert [stamp for _, stamp, _ in first.queues[0]] == [(18, 2), (18, 2)]


# Crash takeover and lost acknowledgments


def crashed_sender() -> tuple[Group, tuple[int, int], tuple[int, int]]:
    """Host 2 (clock 10) acknowledges y of host 0, sends x and dies; y is decided and delivered at host 0 only."""
    group = Group(Tomp, 3)
    group.parts[2].clock.witness(10)
    y = group.send(0)
    group.take(0, 2)  # 2 proposes 11.2 for y
    x = group.send(2)  # own timestamp 12.2
    group.take(2, 0, 1)  # 0 has x: 2.0
    group.take(2, 1)  # 1 has x first: 1.1
    group.take(0, 1)  # then y: 2.1
    group.take(1, 0)
    group.take(2, 0)  # the last proposal: y gets 11.2
    assert group.final == {y: (11, 2)}
    assert group.delivered == [[y], [], []]
    return group, x, y


def test_takeover_uses_raised_provisional_timestamps() -> None:
    group, x, y = crashed_sender()
    survivors = {rank: group.parts[rank].pending() for rank in (0, 1)}
    assert takeover(x, survivors) == (12, 2) > group.final[y]
    first_proposals = {
        rank: Pending(state.clock, {x: (group.parts[rank].undecided[2][1].proposal.time, rank)}, state.final)
        for rank, state in survivors.items()
    }
    assert takeover(x, first_proposals) < group.final[y]  # host 1 would deliver x before y, host 0 has done the reverse


def first_proposals(self: TwoPhase) -> Pending:
    """Answers with first proposals when a view ends."""
    state = TwoPhase.pending(self)
    waiting = [message for undecided in self.undecided for message in undecided.values()]
    return Pending(state.clock, {(m.sender, m.seq): max(m.stamp, m.own) for m in waiting}, state.final)


FirstProposals = replaced(Tomp, pending=first_proposals)


def disagreements(protocol: type[TwoPhase], seeds: int) -> int:
    """Stop random runs at any moment, let one or two hosts die, and count the runs whose survivors do not agree."""
    found = 0
    for seed in range(seeds):
        size = 3 + seed % 3
        group = adversary(Group(protocol, size), seed, stop=0.005)
        survivors = sorted(random.Random(seed).sample(range(size), size - 1 - (size == 5)))
        orders = survive(group, survivors)
        by_sender = [[seq for sender, seq in orders[0] if sender == host] for host in range(size)]
        found += any(order != orders[0] for order in orders) or any(seqs != sorted(seqs) for seqs in by_sender)
    return found


def test_survivors_agree_whenever_a_sender_dies() -> None:
    assert disagreements(Abcast, 150) == disagreements(Tomp, 150) == 0
    assert disagreements(FirstProposals, 100) > 0


def test_takeover_trusts_a_known_final_and_the_clock_of_whoever_lacks_the_message() -> None:
    lacking = Pending(7, {}, {})
    assert takeover((2, 1), {0: Pending(3, {(2, 1): (3, 0)}, {}), 1: lacking}) == (8, 1)
    earlier = Pending(7, {(2, 1): (9, 2)}, {})  # has the sender's first message, raised above its own clock
    assert takeover((2, 2), {0: Pending(3, {(2, 1): (1, 0), (2, 2): (2, 0)}, {}), 1: earlier}) == (9, 2)
    assert takeover((2, 1), {0: Pending(9, {(2, 1): (3, 0)}, {}), 1: Pending(9, {}, {(2, 1): (5, 2)})}) == (5, 2)


def test_a_dead_senders_own_timestamp_outlives_it() -> None:
    """A reply must not sort before what it answers: its sender's clock was past that, and every copy says so."""
    part = Abcast(context(0, 3), TwoPhaseOptions())
    part.accept(2, TimedData(seq=1, own=12), 0)
    assert part.pending().provisional == {(2, 1): (12, 2)}


def test_pending_tells_clock_provisional_and_final_timestamps() -> None:
    part = Abcast(context(1, 3), TwoPhaseOptions())
    for sender in (0, 2):
        part.accept(sender, TimedData(seq=1), 0)
    part.accept(2, TimedData(seq=2), 0)
    part.accept(2, Decision(seq=1, time=5, host=0), 0)
    assert part.pending() == Pending(
        5, {(0, 1): (1, 1), (2, 2): (5, 0)}, {(2, 1): (5, 0)}
    )  # 2's second after its first


def test_lost_proposal_is_resent_as_it_was() -> None:
    part = Tomp(context(1, 3), TompOptions())
    (sent,) = part.accept(0, TimedData(seq=1), 0).down
    part.accept(2, TimedData(seq=1), 0)
    part.accept(0, TimedData(seq=2), 0)
    (resent,) = part.receive(0, Ask([1]), 0).down
    assert resent == sent


def test_newer_timestamp_beside_an_older_vector_is_unsound() -> None:
    wrong = [adversary(Group(TompThatRenewsTimestamps, 3), seed).unfaithful() for seed in range(60)]
    assert any("order" in line for lines in wrong for line in lines)
    assert all(adversary(Group(Tomp, 3), seed).unfaithful() == [] for seed in range(60))


# Costs


def test_vectors_cost_4n_bytes_a_proposal_and_10n_a_decision() -> None:
    def sizes(protocol: type[TwoPhase], size: int) -> tuple[int, int]:
        group = Group(protocol, size)
        message = group.send(0)
        for host in range(1, size):
            group.take(0, host)
        proposal = len(group.channels[1, 0][0].encoded)
        group.finish()
        return proposal, len(Codec(protocol.PDUS).encode_pdu(group.decisions[message]))

    few, many = 70, 100  # the same length of length fields
    growth = [b - a for a, b in zip(sizes(Tomp, few), sizes(Tomp, many), strict=True)]
    plain = [b - a for a, b in zip(sizes(Abcast, few), sizes(Abcast, many), strict=True)]
    assert plain == [0, 0]
    assert growth == [4 * (many - few), 10 * (many - few)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_message_costs_three_rounds_of_pdus(protocol: type[TwoPhase]) -> None:
    """Section 1: 3N messages, here 3(n - 1), as a member does not write to itself."""
    size, posted = 6, []
    hosts = paper.Hosts(protocol, size, lambda *post: posted.append(post))
    hosts.send(0)
    for source, target, pdu in posted:  # grows while it is gone through
        hosts.take(source, target, pdu)
    assert len(posted) == 3 * (size - 1)
    assert hosts.delivered == [[(0, 1)]] * size


# Latency


def test_tomp_lies_between_abcast_and_the_clairvoyant() -> None:
    for delay in paper.DELAYS.values():
        for load in paper.LOADS:
            found = paper.latencies(delay, load, 5, 6, seed=1)
            assert len({round(latency.t1, 9) for latency in found.values()}) == 1
            assert found["clairvoyant"].t2 <= found["TOMP, all hosts"].t2 <= found["TOMP"].t2 <= found["ABCAST"].t2


def test_latency_of_a_single_message_is_known() -> None:
    """With a fixed delay of 10 ms and one sender: decided 20 ms after sending, heard 20 ms after receipt everywhere."""
    found = paper.latencies("fixed 10ms", "all at once", 1, 1, seed=0)
    assert (found["ABCAST"].t1, found["ABCAST"].t2) == (0, 0)
    experiment = paper._Experiment(Abcast, {}, "fixed 10ms", "all at once", 2, 1, 0)
    assert experiment.latency(experiment.delivered_at).t1 == 20.0


def test_reproduction_states_what_agrees_and_what_does_not(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    reproduction = paper.reproduce(tmp_path, quick=True, progress=lambda done, total: seen.append((done, total)))
    assert [claim.agrees for claim in reproduction.claims[:6]] == [True, True, False, True, True, False]
    assert not reproduction.claims[6].agrees  # the whole latency is not reduced by 30-40%
    assert all(path.stat().st_size > 10_000 for path in reproduction.figures)
    assert seen[-1][0] == seen[-1][1]
    stack = {
        (row[0], row[1]): row for table in reproduction.tables if table.name == "whole_stack" for row in table.rows
    }
    for loss in (0.0, 0.1):
        assert stack["abcast", loss][2] == stack["tomp", loss][2]  # t1
        assert stack["abcast", loss][3] > stack["tomp", loss][3]  # t2


def test_the_figure_draws_the_reductions_of_its_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(paper, "save", lambda figure, path: drawn.append(figure) or [])
    numbers = range(len(paper.COLUMNS) - 3)
    paper._draw([[load, delay, 3, *numbers] for load in paper.LOADS for delay in paper.DELAYS], [3], Path())
    (figure,) = drawn
    for panel, names in zip(figure.axes[:: len(paper.LOADS)], paper.REDUCTIONS, strict=True):
        lines = [line for line in panel.lines if len(line.get_xdata()) == 1]
        wanted = [paper.COLUMNS.index(name) - 3 for name in names[1:]]
        assert [list(line.get_ydata()) for line in lines] == [[number] for number in wanted] * len(paper.DELAYS)


def test_own_messages_are_stamped_when_sent() -> None:
    part = Abcast(context(0, 2), TwoPhaseOptions())
    part.clock.witness(4)
    (reliable,) = part.submit(Submit(b"x"), 1, 0).down
    assert isinstance(reliable.pdu, TimedData)
    assert reliable.pdu.own == 5
