"""Rounds of stability: what the paper says of each protocol, and what lost, late, doubled or senseless messages do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.parts import Frontier, Out, PartContext, Step, message_times
from antiphon.protocol.stability import STABILITIES
from antiphon.protocol.stability.coordinator import (
    Coordinator,
    CoordinatorAck,
    CoordinatorAsk,
    CoordinatorInfo,
    CoordinatorStart,
)
from antiphon.protocol.stability.full_distribution import AskFound, Found, FullDistribution, Poke, Row
from antiphon.protocol.stability.rounds import (
    MEMBERS_MAX,
    RIDER_BYTES_MAX,
    RoundLoad,
    RoundOptions,
    Starter,
    VectorPart,
)
from antiphon.protocol.stability.train import Probe, Seen, Train, TrainAck, TrainInfo
from antiphon.protocol.stability.tree_coordinator import TreeCoordinator
from antiphon.protocol.stability.tree_train import TreeTrain
from antiphon.protocol.stability.vector_ack import LeastOfColumns, Report, ReportOptions, VectorAck
from antiphon.protocol.stability.vectors import pack_change, pack_some, pack_whole
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import (
    DATAGRAM_BYTES_MAX,
    FRAME_OVERHEAD_BYTES,
    Counter,
    Data,
    Malformed,
    Number,
    Pdu,
)
from antiphon.sim.cluster import Cluster, simulate
from antiphon.sim.lan import Lan, LanMessage, LanSend
from antiphon.sim.network import NetworkOptions
from antiphon.sim.part_hosts import PartHost, part_hosts
from antiphon.sim.scenario import Fault, Scenario, Workload
from antiphon.sim.trees import near_complete

VECTOR_PROTOCOLS: dict[str, type[VectorPart]] = {
    name: part for name, part in STABILITIES.items() if issubclass(part, VectorPart)
}
INTERVAL = 10 * MILLISECOND


def made(part: Any, rank: int, size: int, **options: Any) -> Any:
    return part(PartContext(rank, size, random.Random(0)), part.Options(**options))


def hold(part: Any, *received: int, now: int = 0) -> Step:
    last = Step()
    for source, number in enumerate(received):
        if number:
            last = part.advanced(source, Data(number=number), received, now)
    return last


def vector(*numbers: int) -> bytes:
    return pack_whole(np.array(numbers, np.int64))


# What the paper says


class Counting:
    """A host that counts the messages that its part sends and receives."""

    def __init__(self, host: PartHost) -> None:
        self._host = host
        self.processed = 0

    def on_start(self, now: int) -> Sequence[LanSend]:
        return self._count(self._host.on_start(now))

    def on_receive(self, message: LanMessage, now: int) -> Sequence[LanSend]:
        self.processed += 1
        return self._count(self._host.on_receive(message, now))

    def _count(self, sends: Sequence[LanSend]) -> Sequence[LanSend]:
        self.processed += len(sends)
        return sends


def processed(stability: str, b: int, p: int) -> list[set[int]]:
    """Give, level by level, how many messages a member of a complete tree processes in a round."""
    tree = near_complete(b, p, b)
    hosts = [Counting(host) for host in part_hosts(tree, stability)]
    Lan(tree).run(hosts)
    return [
        {h.processed for h, depth in zip(hosts, tree.depths, strict=True) if depth == level} for level in range(p + 1)
    ]


def test_table_1_messages_processed() -> None:
    b, p = 3, 3
    n = len(near_complete(b, p, b))
    assert processed("coordinator", b, p) == [{n + 3}, {3}, {3}, {3}]
    assert processed("full-distribution", b, p) == [{n + 1}] * 4
    assert processed("train", b, p) == [{4}] * 4
    assert processed("tree-coordinator", b, p) == [{b + 4}, {b + 3}, {b + 3}, {3}]
    assert processed("tree-train", b, p) == [{5}, {4, 5}, {4, 5}, {3, 4}]


@pytest.mark.parametrize("stability", ["tree-coordinator", "tree-train"])
def test_the_load_of_a_member_does_not_grow_with_the_group(stability: str) -> None:
    small, large = (max(max(level) for level in processed(stability, 3, p)) for p in (2, 5))
    assert small == large <= 7


def test_each_protocol_says_how_many_message_times_a_round_takes() -> None:
    """Its start, reports from one to the next, and what is found; the same as its page says."""
    rounds = {
        name: [message_times(made(STABILITIES[name], 0, size, **options)) for size in (1, 2, 7)]
        for name, options in (
            ("vector-ack", {}),
            ("full-distribution", {}),
            ("coordinator", {}),
            ("train", {}),
            ("tree-coordinator", {"degree": 2}),
            ("tree-train", {"degree": 2}),
        )
    }
    assert rounds == {
        "vector-ack": [2, 2, 2],
        "full-distribution": [2, 2, 2],
        "coordinator": [2, 3, 3],
        "train": [2, 4, 14],
        "tree-coordinator": [2, 3, 4],
        "tree-train": [2, 3, 6],
    }
    chain = made(STABILITIES["tree-coordinator"], 3, 5, parents=[-1, 0, 1, 2, 3])
    assert message_times(chain) == 6, "the longest way counts, wherever a member is on it"


def test_coordinator_three_rounds() -> None:
    root, one, two = (made(Coordinator, rank, 3) for rank in range(3))
    for part, received in ((root, (2, 1, 0)), (one, (1, 2, 0)), (two, (2, 2, 0))):
        hold(part, *received)
    assert root.deadline == INTERVAL
    assert root.wake(INTERVAL).down == [Out(CoordinatorStart(1, 0))]
    ack_one = one.receive(0, CoordinatorStart(1, 0), 0).down
    ack_two = two.receive(0, CoordinatorStart(1, 0), 0).down
    assert ack_one == [Out(CoordinatorAck(1, 0, vector(1, 2, 0)), (0,))]
    assert ack_two == [Out(CoordinatorAck(1, 0, vector(2, 2, 0)), (0,))]
    assert root.receive(1, ack_one[0].pdu, INTERVAL) == Step()
    end = root.receive(2, ack_two[0].pdu, INTERVAL)
    assert end.up == [Frontier((1, 1, 0))]
    assert end.down == [Out(CoordinatorInfo(1, 0, vector(1, 1, 0)))]
    assert one.receive(0, end.down[0].pdu, INTERVAL).up == [Frontier((1, 1, 0))]


def test_the_train_takes_the_minimum_in_the_first_lap_and_is_read_in_the_second() -> None:
    first, second, third = (made(Train, rank, 3, ring=[0, 2, 1]) for rank in (0, 2, 1))
    for part, received in ((first, (3, 3, 3)), (second, (2, 3, 3)), (third, (3, 1, 3))):
        hold(part, *received)
    [off] = first.wake(INTERVAL).down
    assert off == Out(TrainAck(1, False, vector(3, 3, 3)), (2,))
    [on] = second.receive(0, off.pdu, 0).down
    assert on == Out(TrainAck(1, False, vector(2, 3, 3)), (1,))
    [back] = third.receive(2, on.pdu, 0).down
    turn = first.receive(1, back.pdu, 0)
    assert turn.up == [Frontier((2, 1, 3))]
    assert turn.down == [Out(TrainInfo(1, False, vector(2, 1, 3)), (2,))]
    assert second.receive(0, turn.down[0].pdu, 0).up == [Frontier((2, 1, 3))]


# Loss, doubling, delay


def test_whoever_owes_a_report_is_asked_again_and_answers_again() -> None:
    root, one = made(Coordinator, 0, 3), made(Coordinator, 1, 3)
    hold(root, 1, 0, 0)
    hold(one, 1, 0, 0)
    root.wake(INTERVAL)
    lost = one.receive(0, CoordinatorStart(1, 0), 0)
    root.receive(2, CoordinatorAck(1, 0, vector(1, 0, 0)), 0)
    assert root.deadline == INTERVAL + 50 * MILLISECOND
    assert root.wake(root.deadline).down == [Out(CoordinatorStart(1, 0), (1,))]
    assert one.receive(0, CoordinatorStart(1, 0), 0).down == lost.down


def test_who_missed_the_frontier_asks_and_gets_it_whole() -> None:
    root, one = made(Coordinator, 0, 2, delta=True), made(Coordinator, 1, 2, delta=True)
    hold(root, 4, 0)
    hold(one, 4, 0)
    root.wake(INTERVAL)
    root.receive(1, one.receive(0, CoordinatorStart(1, 0), 0).down[0].pdu, 0)
    [ask] = one.wake(one.deadline).down
    assert ask == Out(CoordinatorAsk(0), (0,))
    [answer] = root.receive(1, ask.pdu, 0).down
    assert (answer.to, answer.pdu.base, one.unpack(answer.pdu.stable, None).tolist()) == ((1,), 0, [4, 0])
    assert one.receive(0, answer.pdu, 0).up == [Frontier((4, 0))]
    assert one.deadline is None
    assert root.deadline is None


def test_late_and_doubled_reports_of_a_round_do_not_count() -> None:
    root = made(Coordinator, 0, 3)
    hold(root, 5, 5, 5)
    root.wake(INTERVAL)
    root.receive(1, CoordinatorAck(1, 0, vector(1, 1, 1)), INTERVAL)
    root.receive(2, CoordinatorAck(1, 0, vector(2, 2, 2)), INTERVAL)
    root.wake(root.deadline)
    assert root.collect.number == 2
    assert root.receive(1, CoordinatorAck(1, 0, vector(3, 3, 3)), INTERVAL) == Step()
    root.receive(2, CoordinatorAck(2, 0, vector(4, 4, 4)), INTERVAL)
    assert root.receive(2, CoordinatorAck(2, 0, vector(4, 4, 4)), INTERVAL) == Step()
    assert root.receive(1, CoordinatorAck(2, 0, vector(3, 3, 3)), INTERVAL).up == [Frontier((3, 3, 3))]


def test_a_report_on_a_base_that_is_not_known_here_is_asked_for_whole() -> None:
    parent = made(TreeCoordinator, 1, 3, degree=1, delta=True)  # 0 - 1 - 2
    child = made(TreeCoordinator, 2, 3, degree=1, delta=True)
    for part in (parent, child):
        hold(part, 1, 0, 0)
        part.receive(0, part.START(1, 0), 0)
    child.receive(0, child.INFO(1, 0, vector(1, 0, 0)), 0)  # the parent misses it
    parent.receive(2, child.ACK(1, 0, vector(1, 0, 0)), 0)
    hold(child, 2, 0, 0)
    [report] = child.receive(0, child.START(2, 1), 0).down
    assert report.pdu.base == 1
    [again] = parent.receive(2, report.pdu, 0).down
    assert again == Out(parent.START(2, 0), (2,))
    [whole] = child.receive(1, again.pdu, 0).down
    assert (whole.pdu.base, parent.unpack(whole.pdu.held, None).tolist()) == (0, [2, 0, 0])
    [up] = parent.receive(2, whole.pdu, 0).down
    assert (up.to, up.pdu.base) == ((0,), 0)


def test_a_train_that_got_lost_is_found_by_the_one_who_passed_it_on() -> None:
    first, second = made(Train, 0, 2), made(Train, 1, 2)
    hold(first, 1, 0)
    hold(second, 1, 0)
    [lost] = first.wake(INTERVAL).down
    [probe] = first.wake(first.deadline).down
    assert probe == Out(Probe(), (1,))
    [seen] = second.receive(0, probe.pdu, 0).down
    assert seen == Out(Seen(0, 2), (0,))
    assert first.receive(1, seen.pdu, 0).down == [lost]
    second.receive(0, lost.pdu, 0)
    [seen] = second.receive(0, probe.pdu, 0).down
    assert first.receive(1, seen.pdu, 0).down == []
    assert first.deadline is None


def test_reports_are_told_once_and_then_asked_for() -> None:
    part = made(VectorAck, 0, 3)
    hold(part, 1, 0, 0)
    assert part.wake(part.deadline).down == [Out(Report(1, False, vector(1, 0, 0), False))]
    part.receive(1, Report(1, False, vector(1, 0, 0), False), INTERVAL)
    assert part.wake(part.deadline).down == [Out(Report(1, True, b"", True), (2,))]
    assert part.lag() == {2: 1}
    assert part.receive(2, Report(0, False, vector(1, 0, 0), False), INTERVAL).up == [Frontier((1, 0, 0))]
    assert part.deadline is None
    [answer] = part.receive(2, Report(1, True, b"", True), INTERVAL).down
    assert answer == Out(Report(1, False, vector(1, 0, 0), False), (2,))


def test_a_gap_in_the_reports_is_noticed() -> None:
    part = made(VectorAck, 0, 2, delta=True)
    part.receive(1, Report(1, True, b"\x00\x02\x05", False), 0)  # 5 more of stream 0
    [ask] = part.receive(1, Report(3, True, b"\x01\x02\x07", False), 0).down
    assert ask == Out(Report(0, True, b"", True), (1,))
    assert part.receive(1, Report(2, True, b"\x00\x02\x06", False), 0) == Step()


@pytest.mark.parametrize("delta", [False, True])
def test_a_whole_report_that_was_overtaken_lowers_nothing(delta: bool) -> None:
    part = made(VectorAck, 0, 2, delta=delta)
    for number, held in ((2, 9), (1, 5)):
        part.receive(1, Report(number, False, vector(held, 0), False), 0)
    assert hold(part, 12, 0).up == [Frontier((9, 0))]


def test_a_report_of_changes_that_comes_late_does_not_count() -> None:
    """Its last bytes are read above what is known, so an earlier number would be taken for one that is far too high."""
    part = made(VectorAck, 0, 2, delta=True)
    part.receive(1, Report(1, True, pack_some(np.array([9, 0]), np.array([True, False])), False), 0)
    part.receive(1, Report(1, True, pack_some(np.array([5, 0]), np.array([True, False])), False), 0)
    assert hold(part, 12, 0).up == [Frontier((9, 0))]


# Nonsense


def snapshot(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(
        value, msgspec.Struct | int | str | bytes | bool | type(None) | type | tuple | frozenset | random.Random
    ):
        return repr(value)
    if isinstance(value, dict):
        return {repr(key): snapshot(one) for key, one in value.items()}
    if isinstance(value, list | set):
        return [snapshot(one) for one in value]
    return {key: snapshot(one) for key, one in vars(value).items()}


def nonsense(kind: type[Pdu], rng: random.Random, width: int) -> Pdu:
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.type in (Counter, Number):
            fields[field.name] = rng.choice((0, 1, 2, 3, 2**32 - 1)) or (1 if field.type is Number else 0)
        elif field.type is bool:
            fields[field.name] = rng.random() < 0.5
        elif field.name == "lap":
            fields[field.name] = rng.choice((1, 2))
        else:
            fields[field.name] = rng.choice((rng.randbytes(rng.randrange(12)), rng.randbytes(4 * width)))
    return kind(**fields)


@pytest.mark.parametrize("name", VECTOR_PROTOCOLS)
def test_nonsense_changes_nothing_and_never_raises_a_frontier_past_what_is_held(name: str) -> None:
    kind = VECTOR_PROTOCOLS[name]
    refused = 0
    for seed in range(300):
        rng = random.Random(seed)
        part = made(kind, rng.randrange(3), 3, delta=rng.random() < 0.5)
        hold(part, 2, 1, 3)
        part.wake(INTERVAL)
        for _ in range(8):
            before = snapshot(part)
            try:
                step = part.receive(rng.randrange(3), nonsense(rng.choice(kind.PDUS), rng, 3), INTERVAL)
            except Malformed:
                refused += 1
                assert snapshot(part) == before
            else:
                assert all((np.array(up.numbers) <= part.held).all() for up in step.up)
    assert refused > 100


def test_a_frontier_that_this_member_disproves_is_refused() -> None:
    part = made(Coordinator, 1, 2)
    hold(part, 1, 0)
    part.receive(0, CoordinatorStart(1, 0), 0)
    with pytest.raises(Malformed, match="impossible-frontier"):
        part.receive(0, CoordinatorInfo(1, 0, vector(2, 0)), 0)


# Minima


def test_least_of_columns_equals_the_minimum() -> None:
    rng = np.random.default_rng(3)
    for rows in (1, 2, 3, 7, 16, 33):
        matrix, least = np.zeros((rows, 5), np.int64), LeastOfColumns(rows, 5)
        for _ in range(100):
            row = int(rng.integers(rows))
            matrix[row] += rng.integers(0, 3, 5)
            least.put(row, matrix[row])
            assert least.least.tolist() == matrix.min(axis=0).tolist()
            goal = matrix.max(axis=0)
            assert least.below(goal).tolist() == np.flatnonzero((matrix < goal).any(axis=1)).tolist()


# Trees and options


def links(kind: Any, size: int, **options: Any) -> list[tuple[set[int], int | None]]:
    parts = [made(kind, rank, size, **options) for rank in range(size)]
    return [(set(part.links.awaits), part.links.reports_to) for part in parts]


def test_trees_are_filled_from_the_member_list_or_given() -> None:
    assert links(TreeCoordinator, 5, degree=2) == [({1, 2}, None), ({3, 4}, 0), (set(), 0), (set(), 1), (set(), 1)]
    assert links(TreeCoordinator, 4, degree=3, coordinator=2) == [(set(), 2), (set(), 2), ({0, 1, 3}, None), (set(), 2)]
    assert links(TreeCoordinator, 3, parents=[1, -1, 0]) == [({2}, 1), ({0}, None), (set(), 0)]
    assert links(TreeTrain, 5, degree=2) == [({2}, None), ({4}, 2), ({1}, 0), (set(), 4), ({3}, 1)]


@pytest.mark.parametrize(
    ("stability", "options", "complaint"),
    [
        ("tree-train", {"degree": 0}, "degree"),
        ("tree-train", {"parents": [-1, 0]}, "parents: 2 entries for 4 members"),
        ("tree-coordinator", {"parents": [-1, 0, 3, 2]}, "parents: not a tree: 2 members form a cycle"),
        ("tree-coordinator", {"parents": [-1, 0, -1, 2]}, "parents: a tree has one root .*this has 2"),
        ("tree-coordinator", {"parents": [1, 0, 0, 0]}, "parents: a tree has one root .*this has 0"),
        ("tree-coordinator", {"parents": [-1, 0, 0, 4]}, "parents: member 3 has parent 4"),
        ("tree-coordinator", {"parents": [-1, 0, 0, 0], "coordinator": 2}, "parents: the root is 0, not .* 2"),
        ("train", {"ring": [0, 1, 2, 2]}, "ring: member 2 is in it twice"),
        ("train", {"ring": [0, 1, 2]}, "ring: member 3 is not in it"),
        ("train", {"ring": [0, 1, 2, 4]}, "ring: there is no member of rank 4"),
        ("coordinator", {"coordinator": 4}, "coordinator: there is no member of rank 4"),
        ("coordinator", {"interval_ns": -1}, "interval_ns"),
        ("coordinator", {"timeout_ns": 10, "timeout_ns_max": 5}, "timeout_ns_max"),
        ("vector-ack", {"interval_ns": 10, "interval_ns_max": 5}, "interval_ns_max"),
        ("vector-ack", {"degree": 2}, "degree"),
        ("vector-ack", {"positions": True}, "positions: fifo gives messages no common position"),
    ],
)
def test_bad_options_are_refused_by_their_key(stability: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        GroupOptions(ordering="fifo", stability=stability, stability_options=options).check(4)


@pytest.mark.parametrize(
    ("stability", "options"),
    [
        ("coordinator", {"coordinator": 3}),
        ("tree-train", {"parents": [3, 3, 0, -1]}),
        ("train", {"ring": [3, 1, 0, 2], "coordinator": 3}),
    ],
)
def test_in_a_later_view_of_another_size_shapes_give_way(stability: str, options: dict[str, Any]) -> None:
    config = GroupOptions(stability=stability, stability_options=options)
    for size in (1, 3, 4, 6):
        view = View(7, tuple(range(10, 10 + size)))
        members = [Member(me, view, config, random.Random(me)) for me in view.members]
        coordinating = [member.output.me for member in members if member.stability.coordinates]  # type: ignore[attr-defined]
        assert coordinating == [13 if (size >= 4 and "parents" not in options) or size == 4 else 10]
    with pytest.raises(UsageError):
        Member(0, View(0, (0, 1, 2)), config, random.Random(0))


def test_a_vector_must_fit_into_a_datagram() -> None:
    assert len(vector(*range(MEMBERS_MAX))) < DATAGRAM_BYTES_MAX - FRAME_OVERHEAD_BYTES
    GroupOptions(stability="tree-train").check(MEMBERS_MAX)
    with pytest.raises(UsageError, match=f"members: a vector of {MEMBERS_MAX + 1} numbers does not fit"):
        GroupOptions(stability="tree-train").check(MEMBERS_MAX + 1)
    GroupOptions(ordering="abcast", stability="train", stability_options={"positions": True}).check(MEMBERS_MAX + 1)


def test_safe_delivery_is_refused_where_stability_comes_from_delivery() -> None:
    GroupOptions(ordering="co", safe=True).check(3)
    GroupOptions(ordering="abcast", safe=True).check(3)
    with pytest.raises(UsageError, match="safe: causal-blocks learns"):
        GroupOptions(ordering="causal-blocks", safe=True).check(3)


# In a group


def test_riding_on_data_saves_datagrams_and_delta_saves_bytes() -> None:
    def cost(**options: Any) -> tuple[int, int]:
        counted = [0, 0]

        def count(source: int, target: int, datagram: bytes, now: int) -> bool:
            counted[0] += 1
            counted[1] += len(datagram)
            return False

        workload = Workload(interval="fixed 3ms", senders=[0, 1])
        scenario = Scenario.of(
            "paper", members=16, messages=50, stability="coordinator", stability_options=options, workload=workload
        )
        assert simulate(scenario, 1, drop=count).finished
        return counted[0], counted[1]

    plain, riding, delta = cost(), cost(piggyback=True), cost(delta=True)
    assert riding[0] < plain[0]
    assert delta[1] < plain[1]


def test_positions_take_four_bytes() -> None:
    seen: list[int] = []

    class Watched(VectorAck):
        def receive(self, source: int, pdu: Any, now: int) -> Step:
            seen.append(len(pdu.held))
            return super().receive(source, pdu, now)

    positions = {"positions": True}
    scenario = Scenario.of(
        "paper", members=6, messages=5, ordering="abcast", stability=Watched, stability_options=positions
    )
    assert Cluster(scenario, 1).run().finished
    assert set(seen) <= {0, 4}
    assert 4 in seen


@pytest.mark.parametrize("name", ["vector-ack", "coordinator", "full-distribution", "train"])
def test_a_member_knows_who_holds_it_back(name: str) -> None:
    fault = Fault(kind="cut", at="0s", source=[0, 1, 2], target=[3])
    scenario = Scenario.of("paper", members=4, messages=3, stability=name, faults=[fault], limit="2s")
    cluster = Cluster(scenario, 1)
    assert not cluster.run().finished
    assert 3 in set().union(*(node.member.lag() for node in cluster.nodes[:3]))


@pytest.mark.parametrize("name", ["vector-ack", "coordinator", "full-distribution", "tree-coordinator"])
def test_a_member_knows_that_the_coordinator_is_gone(name: str) -> None:
    scenario = Scenario.of(
        "paper",
        members=4,
        messages=3,
        stability=name,
        workload=Workload(senders=[3]),
        faults=[Fault(kind="crash", at="0s", member=0)],
        limit="3s",
    )
    cluster = Cluster(scenario, 1)
    assert not cluster.run().finished
    assert all(0 in node.member.lag() for node in cluster.nodes[1:])


def test_the_buffer_starts_rounds_when_it_is_full_enough() -> None:
    def rounds(**options: Any) -> int:
        scenario = Scenario.of(
            "paper",
            members=4,
            messages=200,
            window=32,
            stability="coordinator",
            stability_options=options,
            workload=Workload(interval="fixed 1ms"),
            network=NetworkOptions(latency="fixed 1ms"),
        )
        run = simulate(scenario, 1)
        assert run.finished
        return int(run.stats["members"]["coordinator-info"])

    assert rounds(trigger=True, interval_ns=100 * MILLISECOND) <= 12 < rounds()


@pytest.mark.parametrize("asked", [False, True])
def test_after_a_round_that_lost_rows_the_coordinator_tells_all_the_frontier(asked: bool) -> None:
    """Others lack the same rows, and would all ask; a round that lost nothing is over with its rows."""
    root = made(FullDistribution, 0, 3)
    hold(root, 2, 1, 0)
    now = root.deadline
    assert root.wake(now).down == [Out(Row(1, False, vector(2, 1, 0)))]
    assert root.receive(1, Row(1, False, vector(1, 1, 0)), now) == Step()
    if asked:
        now = root.deadline
        assert root.wake(now).down == [Out(Poke(1), (2,))]
    end = root.receive(2, Row(1, False, vector(2, 1, 0)), now)
    assert end.up == [Frontier((1, 1, 0))]
    assert end.down == ([Out(Found(vector(1, 1, 0)))] if asked else [])
    root.wake(root.deadline)
    root.receive(1, Row(2, False, vector(1, 1, 0)), now)
    assert root.receive(2, Row(2, False, vector(1, 1, 0)), now).down == [], "only after that round"


def test_pauses_that_do_not_grow_are_allowed() -> None:
    Coordinator.Options(timeout_ns=10, timeout_ns_max=10).check(3)


@pytest.mark.parametrize("part", [Coordinator, FullDistribution])
def test_the_frontier_is_asked_for_after_twice_the_timeout_and_never_more_often_than_it_allows(part: Any) -> None:
    one = made(part, 1, 3, timeout_ns=10, timeout_ns_max=10)
    hold(one, 1, 0, 0)
    assert one.deadline == 20
    pauses, now = [], 0
    for _ in range(20):
        pauses.append(one.deadline - now)
        now = one.deadline
        one.wake(now)
    assert min(pauses) >= 20
    assert max(pauses) <= 30, "the timeout at its longest, and its jitter"


def test_the_start_of_a_round_puts_off_the_question_for_the_frontier_and_asks_nothing_by_itself() -> None:
    waiting, idle = made(Coordinator, 1, 2, timeout_ns=10), made(Coordinator, 1, 2, timeout_ns=10)
    hold(waiting, 1, 0)
    assert waiting.deadline == 20
    for one in (waiting, idle):
        one.receive(0, CoordinatorStart(1, 0), 15)
    assert (waiting.deadline, idle.deadline) == (35, None)


def test_who_knows_the_newest_frontier_already_is_not_told_it_again() -> None:
    root = made(Coordinator, 0, 2)
    assert root.receive(1, CoordinatorAsk(0), 0) == Step()
    with pytest.raises(Malformed, match="impossible-round"):
        root.receive(1, CoordinatorAsk(1), 0)


def test_what_goes_to_one_member_rides_with_what_goes_to_all_only_if_it_is_short() -> None:
    """What goes to all may ride however long it is: its bytes would be sent anyway."""
    long = RIDER_BYTES_MAX + 1
    for to, bytes_more, rides in ((None, long, True), (1, RIDER_BYTES_MAX, True), (1, long, False), (None, 0, True)):
        one = made(Coordinator, 0, 3, piggyback=True)
        hold(one, 1, 0, 0)
        one.ride(0)  # datagrams leave often enough for a ride
        assert one.ride_wait_ns(1)
        one.say(CoordinatorStart(1, 0), to, 1, bytes_more=bytes_more)
        assert bool(one.ride(2)) == rides


@pytest.mark.parametrize("to", [None, 1])
def test_what_waits_for_a_ride_in_vain_goes_alone(to: int | None) -> None:
    one = made(Coordinator, 0, 3, piggyback=True)
    one.ride(0)
    one.say(CoordinatorAsk(1), to, 1)
    at = one.deadline
    assert at == 1 + one.ride_wait_ns(1)
    assert one.wake(at - 1).down == []
    assert one.wake(at).down == [Out(CoordinatorAsk(1), None if to is None else (to,))]
    assert one.ride(at) == []


@pytest.mark.parametrize(("after", "waits"), [(0, True), (INTERVAL, True), (INTERVAL + 1, False)])
def test_a_ride_is_waited_for_where_one_left_within_an_interval(after: int, waits: bool) -> None:
    one = made(Coordinator, 0, 3, piggyback=True, idle_ns=7)
    assert one.ride_wait_ns(0) == 0, "none has left yet"
    one.ride(5)
    assert one.ride_wait_ns(5 + after) == (7 if waits else 0)
    alone = made(Coordinator, 0, 3, idle_ns=7)
    alone.ride(5)
    assert alone.ride_wait_ns(5) == 0


@given(st.lists(st.tuples(st.integers(0, 2**20), st.sampled_from([0, 1, 255, 256, 2**20])), min_size=1, max_size=6))
def test_vectors_come_back_and_are_never_longer_than_whole(entries: list[tuple[int, int]]) -> None:
    base, more = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    one = made(Coordinator, 0, len(entries), delta=True)
    based, packed = one.pack(base + more, base)
    assert based == (len(pack_change(more)) < 4 * len(entries))
    assert len(packed) <= 4 * len(entries)
    assert one.unpack(packed, base if based else None).tolist() == (base + more).tolist()
    assert one.pack(base, None) == (False, one.pack_whole(base))


def test_what_waits_for_a_round_is_counted_by_streams_or_by_positions() -> None:
    one = made(Coordinator, 1, 3)
    hold(one, 2, 5, 1)
    hold(one, 2, 6, 1)
    one.raise_frontier(np.array([1, 4, 0], np.int64))
    assert one.load == RoundLoad(6, 4, 4)
    positions = Coordinator(PartContext(1, 3, random.Random(0), streams=1), Coordinator.Options(positions=True))
    hold(positions, 7)
    assert positions.load == RoundLoad(7, 0, 7)


def test_rounds_that_bring_nothing_come_ever_less_often_until_there_is_more() -> None:
    starter = Starter(Coordinator.Options(interval_ns=10, interval_ns_max=80), 8)
    some, none = RoundLoad(1, 0, 1), RoundLoad(1, 1, 0)

    def runs(at: int, ends: int, load: RoundLoad = some, *, news: bool = False) -> int | None:
        assert starter.at == at
        assert not starter.over(load, at - 1)
        assert starter.over(load, at)
        assert starter.at is None
        assert not starter.over(load, at)
        starter.end(load, ends, news)
        return starter.at

    starter.more(some, 0, running=False)
    starter.more(some, 5, running=False)  # the first has been waiting since 0
    assert runs(10, 12) == 20
    assert runs(20, 21) == 40
    assert runs(40, 41) == 80
    assert runs(80, 81) == 160
    assert runs(160, 161) == 240, "80 is the longest pause"
    assert runs(240, 400) == 400, "the round took longer"
    starter.more(some, 300, running=False)
    assert starter.at == 310
    assert runs(310, 311, news=True) == 320
    assert runs(320, 321) == 340
    assert starter.over(some, 340)
    starter.more(some, 341, running=True)
    assert starter.at is None, "the round that is running is followed by another anyway"
    starter.end(some, 342, False)
    assert starter.at == 350, "and soon"
    assert runs(350, 351, none) is None


@pytest.mark.parametrize("delta", [False, True])
def test_reports_to_all_say_what_is_held_however_they_are_written(delta: bool) -> None:
    rng, size = random.Random(4), 4
    sender, receiver = made(VectorAck, 2, size, delta=delta), made(VectorAck, 1, size, delta=delta)
    held, now = [0] * size, 0
    for number in range(1, 40):
        held = [one + rng.choice([0, 0, 1, 100]) for one in held]
        held[2] += 1
        hold(sender, *held, now=now)
        assert sender.unstable == sum(held)
        now += INTERVAL
        (report,) = (out.pdu for out in sender.wake(now).down if out.to is None)
        assert (report.number, report.part, report.asking) == (number, delta, False)
        for _ in range(2):  # the network doubles it
            assert receiver.receive(2, report, now) == Step()
        assert receiver.others.row(1).tolist() == held
    whole = Report(50, False, vector(*held), False)
    assert receiver.receive(2, whole, now) == Step()
    assert receiver.receive(2, msgspec.structs.replace(whole, number=3), now) == Step()
    assert receiver.receive(2, Report(51, True, pack_some(sender.held, sender.held > 0), False), now) == Step()


def test_who_was_the_last_to_lack_something_takes_it_for_stable_when_it_comes() -> None:
    one = made(VectorAck, 0, 3)
    for other in (1, 2):
        assert one.receive(other, Report(1, False, vector(0, 2, 0), False), 0) == Step()
    assert hold(one, 0, 1, 0).up == [Frontier((0, 1, 0))]
    assert hold(one, 0, 2, 0).up == [Frontier((0, 2, 0))]
    assert one.unstable == 0
    assert hold(made(VectorAck, 0, 1), 3).up == [Frontier((3,))]


def test_more_to_wait_for_does_not_put_off_the_question() -> None:
    one = made(VectorAck, 0, 2, interval_ns=10, interval_ns_max=10)
    hold(one, 1, 0)
    one.wake(10)
    asked = [one.deadline]
    assert asked == [30]
    hold(one, 2, 0, now=11)
    one.wake(21)
    assert one.deadline == 30
    for _ in range(20):
        assert one.wake(one.deadline).down == [Out(Report(2, True, b"", True), (1,))]
        asked.append(one.deadline)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert min(pauses) < 40
    assert all(30 <= pause <= 45 for pause in pauses)


def test_equal_limits_are_allowed_and_lower_ones_refused() -> None:
    RoundOptions(interval_ns=5, interval_ns_max=5, timeout_ns=9, timeout_ns_max=9).check(2)
    for wrong in (RoundOptions(interval_ns=5, interval_ns_max=4), RoundOptions(timeout_ns=9, timeout_ns_max=8)):
        with pytest.raises(UsageError, match="_ns_max"):
            wrong.check(2)


# Full distribution, word by word


def test_a_member_that_asks_for_the_frontier_is_told_it_whole() -> None:
    root = made(FullDistribution, 0, 2)
    hold(root, 1, 0)
    root.wake(root.deadline)
    root.receive(1, Row(1, False, vector(1, 0)), 1)
    assert root.receive(1, AskFound(), 2).down == [Out(Found(vector(1, 0)), (1,))]


def test_a_row_that_was_sent_and_lost_is_sent_again_to_the_coordinator_alone() -> None:
    one = made(FullDistribution, 1, 3)
    hold(one, 1, 0, 0)
    assert one.receive(0, Row(1, False, vector(1, 0, 0)), 0).down == [Out(Row(1, False, vector(1, 0, 0)))]
    hold(one, 2, 0, 0)
    assert one.receive(0, Poke(1), 1).down == [Out(Row(1, False, vector(2, 0, 0)), (0,))]
    assert one.receive(0, Poke(2), 2).down == [Out(Row(2, False, vector(2, 0, 0)))], "the round's first row is for all"


def test_rows_tell_who_lacks_what() -> None:
    root = made(FullDistribution, 0, 3)
    hold(root, 3, 1, 0)
    root.wake(root.deadline)
    root.receive(1, Row(1, False, vector(1, 1, 0)), 1)
    assert root.lag() == {1: 2, 2: None}


def test_a_row_of_changes_is_read_above_what_was_stable_when_its_round_began() -> None:
    """More than a byte's worth lies between rounds, so an older floor would take the row for too little."""
    one = made(FullDistribution, 1, 2, delta=True)
    hold(one, 300, 0)
    assert one.receive(0, Row(1, False, vector(300, 0)), 0).up == [Frontier((300, 0))]
    hold(one, 301, 0)
    held = np.array([301, 0], np.int64)
    row = Row(2, True, pack_some(held, np.array([True, False])))
    assert one.receive(0, row, 1).up == [Frontier((301, 0))]


def test_only_who_waited_long_for_something_asks_for_the_frontier() -> None:
    one = made(FullDistribution, 1, 2)
    hold(one, 1, 0)
    hold(one, 2, 0)
    one.receive(0, Row(1, False, vector(1, 0)), 1)  # now the first is stable, and the second has not waited long
    assert one.wake(one.deadline).down == []
    assert one.wake(one.deadline).down == [Out(AskFound(), (0,))]


# Trains, word by word


def rounds_of_two() -> tuple[Train, Train]:
    root, other = made(Train, 0, 2), made(Train, 1, 2)
    for part in (root, other):
        hold(part, 1, 1)
    return root, other


def test_each_train_is_followed_by_the_next_and_a_doubled_one_is_passed_over() -> None:
    root, other = rounds_of_two()
    for number in (1, 2):
        hold(root, number, number)
        hold(other, number, number)
        [first] = root.wake(root.deadline).down
        [back] = other.receive(0, first.pdu, 0).down
        assert other.receive(0, first.pdu, 0) == Step(), "doubled"
        turned = root.receive(1, back.pdu, 0)
        assert turned.up == [Frontier((number, number))]
        assert root.receive(1, back.pdu, 0) == Step(), "doubled"
        read = other.receive(0, turned.down[0].pdu, 0)
        assert read.up == [Frontier((number, number))]
        root.receive(1, read.down[0].pdu, 0)
        assert not root.running


def around(root: Train, other: Train) -> None:
    """Let a train of two make its two laps, at once."""
    assert root.deadline is not None
    [first] = root.wake(root.deadline).down
    [back] = other.receive(0, first.pdu, 0).down
    [turned] = root.receive(1, back.pdu, 0).down
    [read] = other.receive(0, turned.pdu, 0).down
    root.receive(1, read.pdu, 0)


def test_a_train_that_came_home_is_confirmed() -> None:
    root, other = rounds_of_two()
    around(root, other)
    assert root.receive(1, Probe(), 0).down == [Out(Seen(1, 2), (1,))]


def test_a_round_that_leaves_something_unstable_is_followed_by_another() -> None:
    root, other = made(Train, 0, 2), made(Train, 1, 2)
    hold(root, 2, 0)
    hold(other, 1, 0)
    around(root, other)
    assert root.unstable == 1
    assert root.deadline == 2 * INTERVAL, "an interval after the first began"
    hold(other, 2, 0)
    around(root, other)
    assert root.unstable == 0
    assert root.deadline is None


def test_a_train_is_taken_from_the_member_before_alone() -> None:
    """Whom it has not visited would be skipped, and what that lacks said to be stable."""
    last = made(Train, 2, 3)
    hold(last, 1, 0, 0)
    assert last.receive(0, TrainAck(1, False, vector(1, 0, 0)), 0) == Step()
    assert last.round == 0
    last.receive(1, TrainAck(1, False, vector(0, 0, 0)), 0)
    assert last.round == 1


def test_a_train_that_cannot_be_is_refused() -> None:
    root, other = rounds_of_two()
    with pytest.raises(Malformed, match="impossible-round"):
        other.receive(0, TrainInfo(1, False, vector(1, 1)), 0)  # nobody has seen its first lap
    with pytest.raises(Malformed, match="impossible-round"):
        other.receive(0, TrainAck(2, False, vector(1, 1)), 0)  # nor the first train
    with pytest.raises(Malformed, match="impossible-round"):
        root.receive(1, TrainAck(1, False, vector(1, 1)), 0)  # which the coordinator has not seen off
    three = made(Train, 0, 3)
    with pytest.raises(Malformed, match="unexpected"):
        three.receive(2, Seen(0, 2), 0)  # only the next member says how far the train has come
    assert other.round == 0


# What a member says of the others, and when it speaks


def test_reports_tell_who_lacks_what() -> None:
    one = made(VectorAck, 1, 3)
    hold(one, 2, 1, 0)
    assert one.lag() == {0: 3, 2: 3}
    one.receive(2, Report(1, False, vector(2, 0, 0), False), 0)
    assert one.lag() == {0: 3, 2: 1}
    pair = made(VectorAck, 0, 2)
    hold(pair, 1, 0)
    assert pair.lag() == {1: 1}


def test_a_report_waits_for_a_ride_beyond_its_interval_where_datagrams_leave_often() -> None:
    one = made(VectorAck, 0, 2, piggyback=True, interval_ns=INTERVAL, idle_ns=3 * INTERVAL)
    one.ride(0)
    hold(one, 1, 0, now=1)
    one.receive(1, Report(1, False, vector(1, 0), False), 2)  # nothing else is waited for
    assert one.deadline == 1 + INTERVAL + 3 * INTERVAL
    assert one.ride(INTERVAL) == []
    assert len(one.ride(1 + INTERVAL)) == 1


def test_reports_that_collect_tell_who_lacks_what_and_lost_ones_are_asked_for_on_the_same_base() -> None:
    root = made(Coordinator, 0, 3, delta=True)
    hold(root, 2, 0, 0)
    [start] = root.wake(root.deadline).down
    assert start.pdu == CoordinatorStart(1, 0)
    root.receive(1, CoordinatorAck(1, 0, vector(1, 0, 0)), 0)
    assert root.lag() == {1: 1, 2: None}
    assert root.wake(root.deadline).down == [Out(CoordinatorStart(1, 0), (2,))]
    root.receive(2, CoordinatorAck(1, 0, vector(2, 0, 0)), 0)
    [start] = root.wake(root.deadline).down
    assert start.pdu == CoordinatorStart(2, 1), "changes of the first frontier will do"
    assert root.wake(root.deadline).down == [Out(CoordinatorStart(2, 1), (1, 2))]


def test_what_is_known_already_is_no_news() -> None:
    one = made(Coordinator, 0, 2)
    hold(one, 1, 1)
    assert one.raise_frontier(np.array([1, 0], np.int64))
    assert not one.raise_frontier(np.array([1, 0], np.int64))


def test_a_round_with_news_ends_the_long_pauses() -> None:
    starter = Starter(RoundOptions(interval_ns=10, interval_ns_max=1_000), 64)
    load = RoundLoad(1, 0, 1)
    starter.more(load, 0, running=False)
    for _ in range(4):
        now = starter.at
        assert now is not None
        assert starter.over(load, now)
        starter.end(load, now, news=False)
    assert starter.at == now + 80
    assert starter.over(load, starter.at)
    now = now + 80
    starter.end(load, now, news=True)
    assert starter.at == now + 10


def test_a_whole_vector_is_written_short_where_that_is_shorter() -> None:
    for delta, longest in ((True, 39), (False, 40)):
        one = made(Coordinator, 0, 10, delta=delta)
        assert len(one.pack_whole(np.zeros(10, np.int64))) <= longest


def test_after_a_round_on_nothing_the_next_tells_changes_alone() -> None:
    root = made(Coordinator, 0, 2, delta=True)
    for number in (1, 2):
        hold(root, number, 0)
        root.wake(root.deadline)
        held, before = np.array([number, 0], np.int64), root.frontier
        report = vector(1, 0) if number == 1 else pack_change(held - before)
        [info] = root.receive(1, CoordinatorAck(number, number - 1, report), 0).down
        assert (info.pdu.round, info.pdu.base) == (number, number - 1)


def test_all_rows_of_a_round_are_read_above_what_was_stable_when_it_began() -> None:
    one = made(FullDistribution, 1, 3, delta=True)
    hold(one, 300, 0, 0)
    one.receive(0, Row(1, False, vector(300, 0, 0)), 0)
    assert one.receive(2, Row(1, False, vector(300, 0, 0)), 0).up == [Frontier((300, 0, 0))]
    hold(one, 301, 0, 0)
    news = pack_some(np.array([301, 0, 0], np.int64), np.array([True, False, False]))
    one.receive(0, Row(2, True, news), 1)
    assert one.receive(2, Row(2, True, news), 1).up == [Frontier((301, 0, 0))]


def test_a_row_of_changes_says_what_is_held_beyond_what_is_stable() -> None:
    one = made(FullDistribution, 1, 3, delta=True)
    hold(one, 2, 0, 7)
    assert one.own_row() == Row(0, True, pack_some(np.array([2, 0, 7]), np.array([True, False, True])))


@pytest.mark.parametrize("part", [Coordinator, TreeCoordinator])
def test_a_frontier_is_believed_of_nobody_but_the_coordinator(part: Any) -> None:
    one = made(part, 1, 3)
    hold(one, 1, 0, 0)
    one.receive(0, part.START(1, 0), 0)
    for source, word in ((2, part.INFO(1, 0, vector(1, 0, 0))), (0, part.INFO(2, 0, vector(1, 0, 0)))):
        with pytest.raises(Malformed, match="impossible-round"):
            one.take_info(source, word, 0)
    assert one.receive(0, part.INFO(1, 0, vector(1, 0, 0)), 0).up == [Frontier((1, 0, 0))]


def test_where_one_lacks_the_base_the_frontier_is_told_whole() -> None:
    root = made(Coordinator, 0, 2, delta=True)
    hold(root, 1, 0)
    root.wake(root.deadline)
    root.receive(1, CoordinatorAck(1, 0, vector(1, 0)), 0)
    hold(root, 2, 0)
    root.wake(root.deadline)
    [info] = root.receive(1, CoordinatorAck(2, 0, vector(2, 0)), 0).down
    assert (info.pdu.round, info.pdu.base) == (2, 0)


def test_a_train_that_has_arrived_is_not_sent_again_for_an_older_word() -> None:
    root, _ = rounds_of_two()
    [train] = root.wake(root.deadline).down
    assert root.receive(1, Seen(0, 2), 1).down == [Out(train.pdu, (1,))]
    assert root.receive(1, Seen(1, 1), 2) == Step()
    assert root.receive(1, Seen(0, 2), 3) == Step()


def test_a_train_of_one_member_goes_nowhere_and_all_is_stable() -> None:
    alone = made(Train, 0, 1)
    hold(alone, 2)
    assert alone.wake(alone.deadline) == Step([Frontier((2,))], [])
    assert alone.deadline is None


def test_a_tree_may_have_any_root_if_no_other_coordinator_is_named() -> None:
    TreeCoordinator.Options(parents=[2, 2, -1]).check(3)
    TreeCoordinator.Options(parents=[2, 2, -1], coordinator=2).check(3)
    with pytest.raises(UsageError, match="the root is 2, not the coordinator 1"):
        TreeCoordinator.Options(parents=[2, 2, -1], coordinator=1).check(3)


def test_the_first_member_that_a_ring_leaves_out_is_named() -> None:
    with pytest.raises(UsageError, match="member 1 is not in it; it must visit all 4"):
        Train.Options(ring=[0, 3]).check(4)


def test_a_change_as_long_as_the_whole_vector_is_written_whole() -> None:
    """The length tells which it is."""
    chance, found = random.Random(1), 0
    one = made(Coordinator, 0, 4, delta=True)
    for _ in range(500):
        numbers = np.array([chance.randrange(1 << chance.randrange(1, 32)) for _ in range(4)], np.int64)
        assert (one.unpack(one.pack_whole(numbers), None) == numbers).all()
        found += len(pack_change(numbers)) == 4 * 4
    assert found


def test_members_of_a_large_group_report_less_often() -> None:
    crowded = GroupOptions().stability_settings()
    assert [crowded.fit(size).interval_ns // MILLISECOND for size in (4, 15, 16, 64)] == [10, 10, 20, 80]
    assert ReportOptions().fit(64) == ReportOptions(), "unless it is asked for, as often as ever"
