"""The fixed sequencer: its rules one by one, and any interleaving of streams against what is obviously right."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.machine import Deliver, Submit
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.ordering.sequencer import SENDERS_MAX, Order, PlacedData, Sequencer, SequencerOptions
from antiphon.protocol.parts import Decided, PartContext, Reliable, Step
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import Data, Malformed, Streamed
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from antiphon.sim.view_schedules import flaw, schedule
from support.mutants_sequencer import DependsOnNothing, DropsTheRest, OwnRestFirst

ROOM = 10


def part(rank: int, size: int = 3, window: int = 4) -> Sequencer:
    return Sequencer(PartContext(rank, size, random.Random(0), window=window), SequencerOptions())


def data(seq: int = 1, number: int = 1, after: int = 0) -> PlacedData:
    return PlacedData(number=number, seq=seq, payload=b"%d" % seq, after=after)


def streamed(step: Step) -> list[Streamed]:
    return [item.pdu for item in step.down if isinstance(item, Reliable)]


def delivered(step: Step) -> list[tuple[int, int]]:
    return [(item.sender, item.seq) for item in step.up if isinstance(item, Deliver)]


def test_the_sequencer_orders_what_came_in_one_turn_with_one_word() -> None:
    sequencer = part(0)
    for source, seq in ((2, 1), (1, 1), (2, 2)):
        assert not sequencer.accept(source, data(seq), 0).up
    assert streamed(sequencer.gathered(ROOM)) == [Order(senders=[2, 1, 2])]
    assert not sequencer.gathered(ROOM).down


def test_without_room_in_its_stream_the_sequencer_waits() -> None:
    sequencer = part(0)
    for seq in range(1, SENDERS_MAX + 2):
        sequencer.accept(1, data(seq), 0)
    assert not sequencer.gathered(0).down
    assert [len(order.senders) for order in streamed(sequencer.gathered(1)) if isinstance(order, Order)] == [
        SENDERS_MAX
    ]
    assert streamed(sequencer.gathered(1)) == [Order(senders=[1])]


def test_its_own_messages_need_no_further_word() -> None:
    member = part(1)
    assert delivered(member.accept(0, data(), 0)) == [(0, 1)]
    assert streamed(part(0).submit(Submit(b"x"), 1, 0)) == [PlacedData(seq=1, payload=b"x", after=0)]


def test_an_order_is_admitted_after_all_that_it_names() -> None:
    member, order = part(1), Order(number=1, senders=[2, 2])
    member.accept(2, data(1), 0)
    assert not member.admits(0, order)
    member.accept(2, data(2, number=2), 0)
    assert member.admits(0, order)
    step = member.accept(0, order, 0)
    assert delivered(step) == [(2, 1), (2, 2)]
    assert Decided(2, 1, 0) in step.up
    assert member.held == 0


def test_an_order_waits_for_each_sender_that_it_names() -> None:
    member, order = part(0, size=4), Order(number=1, senders=[2, 3])
    member.accept(2, data(1), 0)
    assert not member.admits(0, order)
    member.accept(3, data(1), 0)
    assert member.admits(0, order)


def test_when_the_view_ends_nothing_is_delivered_until_it_is_finished_and_then_once() -> None:
    member = part(1)
    member.accept(2, data(1), 0)
    member.accept(2, data(2, number=2), 0)
    member.block()
    assert not member.accept(0, Order(number=1, senders=[2]), 0).up
    assert delivered(member.finish([0, 0, 2], b"")) == [(2, 1), (2, 2)]
    assert member.held == 0
    assert not member.finish([0, 0, 2], b"").up


def test_a_message_is_admitted_after_what_its_sender_had_delivered() -> None:
    member = part(1)
    assert not member.admits(2, data(after=1))
    member.accept(0, data(), 0)
    assert member.admits(2, data(after=1))
    assert streamed(member.submit(Submit(b"x"), 1, 0)) == [PlacedData(seq=1, payload=b"x", after=1)]


def test_own_messages_without_a_place_are_bounded() -> None:
    member = part(1, window=2)
    for seq in (1, 2):
        assert member.may_submit(0)
        member.accept(1, data(seq), 0)
    assert not member.may_submit(0)
    member.accept(0, Order(number=1, senders=[1]), 0)
    assert member.may_submit(0)


@pytest.mark.parametrize(
    ("source", "pdu"),
    [
        (2, Order(senders=[1])),
        (0, Order(senders=[0])),
        (0, Order(senders=[3])),
        (0, Order(senders=[1, 3])),
        (2, data(2)),
        (2, Data(number=1, seq=1)),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(source: int, pdu: Streamed) -> None:
    member = part(1)
    assert member.admits(source, pdu)
    with pytest.raises(Malformed):
        member.accept(source, pdu, 0)
    with pytest.raises(Malformed):
        member.receive(source, pdu, 0)
    assert member.held == 0
    assert delivered(member.accept(0, data(), 0)) == [(0, 1)]


def test_two_hops_for_a_message_and_one_for_the_sequencers() -> None:
    network, workload = NetworkOptions(latency="fixed 2ms"), Workload(interval="fixed 10ms", payload=8)
    run = simulate(
        Scenario.of("paper", members=3, messages=1, ordering="sequencer", network=network, workload=workload), 1
    )
    sent = {event.sender: event.time_ns or 0 for event in run.events if event.event == "send"}
    hop = 2_000_000
    took = {(e.member, e.sender): (e.time_ns or 0) - sent[e.sender] for e in run.events if e.event == "deliver"}
    assert took[0, 0] == 0
    assert took[1, 0] == hop
    assert took[0, 1] == hop
    assert took[1, 1] == took[2, 1] == 2 * hop


def test_a_group_of_one_delivers_at_once() -> None:
    member = Member(0, View(0, (0,)), GroupOptions(ordering="sequencer"), random.Random(0))
    assert Deliver(0, 1, b"x") in member.handle(Submit(b"x"), 0)
    assert member.drained


class Streams:
    """Members that read one another's streams, each at its own pace."""

    def __init__(self, size: int) -> None:
        self.parts = [part(rank, size, window=64) for rank in range(size)]
        self.streams: list[list[Streamed]] = [[] for _ in range(size)]
        self.read = [[0] * size for _ in range(size)]
        self.delivered: list[list[tuple[int, int]]] = [[] for _ in range(size)]
        self.before: dict[tuple[int, int], set[tuple[int, int]]] = {}  # message -> what its sender had delivered
        self.sent = [0] * size

    def speak(self, rank: int, step: Step) -> None:
        for pdu in streamed(step):
            self.streams[rank].append(pdu)
            pdu.number = len(self.streams[rank])
            self.accept(rank, rank, pdu)

    def accept(self, rank: int, source: int, pdu: Streamed) -> None:
        self.read[rank][source] += 1
        self.delivered[rank] += delivered(self.parts[rank].accept(source, pdu, 0))

    def submit(self, rank: int) -> None:
        self.sent[rank] += 1
        self.before[rank, self.sent[rank]] = set(self.delivered[rank])
        self.speak(rank, self.parts[rank].submit(Submit(b""), self.sent[rank], 0))

    def advance(self, rank: int, source: int) -> bool:
        at = self.read[rank][source]
        if at == len(self.streams[source]) or not self.parts[rank].admits(source, self.streams[source][at]):
            return False
        self.accept(rank, source, self.streams[source][at])
        return True

    def end(self, survivors: set[int]) -> None:
        """End the view for some of the members, as the flush does."""
        reach = [max(self.read[rank][source] for rank in survivors) for source in range(len(self.parts))]
        for rank in survivors:
            self.parts[rank].block()
            for source, upto in enumerate(reach):
                for number in range(self.read[rank][source], upto):
                    self.accept(rank, source, self.streams[source][number])
            self.delivered[rank] += delivered(self.parts[rank].finish(reach, b""))


@given(
    size=st.integers(2, 5),
    actions=st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 4)), max_size=120),
    gone=st.sets(st.integers(0, 4), max_size=3),
)
def test_any_interleaving_gives_one_causal_order_that_outlives_the_sequencer(
    size: int, actions: list[tuple[int, int]], gone: set[int]
) -> None:
    group = Streams(size)
    for rank, what in actions:
        if what == -2:
            group.submit(rank % size)
        elif what == -1:
            group.speak(0, group.parts[0].gathered(ROOM))
        else:
            group.advance(rank % size, what % size)
    longest = max(group.delivered, key=len)
    for order in group.delivered:
        assert order == longest[: len(order)]
    survivors = set(range(size)) - gone or {0}
    group.end(survivors)
    last = group.delivered[min(survivors)]
    for rank in survivors:
        assert group.delivered[rank] == last
        assert {(rank, seq + 1) for seq in range(group.sent[rank])} <= set(last)
        assert group.parts[rank].held == 0
    assert len(set(last)) == len(last)
    for place, (sender, seq) in enumerate(last):
        assert group.before[sender, seq] <= set(last[:place]), "an effect without its cause"
        assert seq == 1 or (sender, seq - 1) in last[:place]


# When a view ends


@pytest.mark.parametrize(("ordering", "order"), [(Sequencer, [(2, 1)]), (DependsOnNothing, [(1, 1), (2, 1)])])
def test_no_effect_outlives_its_cause(ordering: type[Sequencer], order: list[tuple[int, int]]) -> None:
    """Member 1 answers 2's message; then it and the sequencer die, with the order that only they had."""
    answerer, survivor = (ordering(PartContext(rank, 4, random.Random(0)), SequencerOptions()) for rank in (1, 3))
    question = data()
    assert answerer.accept(2, question, 0).up == []
    assert delivered(answerer.accept(0, Order(number=1, senders=[2]), 0)) == [(2, 1)]
    (answer,) = streamed(answerer.submit(Submit(b"answer"), 1, 0))
    for source, pdu in ((2, question), (1, answer)):
        if survivor.admits(source, pdu):
            survivor.accept(source, pdu, 0)
    survivor.block()
    assert delivered(survivor.finish([0, 1, 1, 0], b"")) == order


@pytest.mark.parametrize(("ordering", "breaks", "hint"), [(DropsTheRest, "validity", 0), (OwnRestFirst, "total", 10)])
def test_what_no_order_names_is_delivered_by_all_in_one_order(
    ordering: type[Sequencer], breaks: str, hint: int
) -> None:
    for seed in [hint, *range(100)]:
        scenario = schedule(seed, "sequencer")
        wrong = flaw(msgspec.structs.replace(scenario, ordering=ordering, limit="5s"), seed)
        if wrong is not None and wrong.startswith(breaks):
            return
    raise AssertionError("the mutant survives")
