"""CO rule by rule, in random schedules against an oracle that sees everything, and with seeded bugs."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND, SECOND, Deliver, Submit
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.ordering.co import Co, CoOptions, Levels
from antiphon.protocol.ordering.co.minima import Minima
from antiphon.protocol.ordering.co.pdus import CoConfirm, CoData, CoProbe, CoRet
from antiphon.protocol.parts import Duplicate, Out, PartContext, Received
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import Malformed, Pdu, pack_vector, unpack_vector
from antiphon.sim.cluster import Cluster, simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from antiphon.trace.naive import check
from support.co_world import World
from support.mutants_co import MUTANTS


def entity(size: int = 3, rank: int = 0, **options: Any) -> Co:
    return Co(PartContext(rank, size, random.Random(0)), CoOptions(**options))


def data(number: int, *ack: int, buf: int = 1000, payload: bytes = b"x") -> CoData:
    return CoData(pack_vector(ack), buf, number, payload)


def confirm(number: int, *ack: int, buf: int = 1000) -> CoConfirm:
    return CoConfirm(pack_vector(ack), buf, number)


def sent(part: Co, kind: type[Pdu], now: int) -> list[Any]:
    return [out.pdu for out in part.wake(now).down if isinstance(out, Out) and isinstance(out.pdu, kind)]


def test_is_in_the_table_of_orderings() -> None:
    assert ORDERINGS["co"] is Co


# Options


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"buffer": 5, "window": 2, "headroom": 2}, "ordering.buffer"),
        ({"window": 0}, "ordering.window"),
        ({"window": 64}, "ordering.headroom"),
        ({"probe_ns": 0}, "ordering.probe_ns"),
        ({"defer_ns": 0}, r"ordering\.defer_ns: .* at one instant"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(options: dict[str, int], key: str) -> None:
    with pytest.raises(UsageError, match=key):
        entity(3, **options)


def test_a_member_refuses_a_buffer_below_h_times_n() -> None:
    config = GroupOptions(ordering="co", ordering_options={"buffer": 95})
    with pytest.raises(UsageError, match=r"ordering\.buffer: .* at least 96"):
        Member(0, View(0, (0, 1, 2)), config, random.Random(0))
    Member(0, View(0, (0, 1, 2)), GroupOptions(ordering="co", ordering_options={"buffer": 96}), random.Random(0))


# Transmission and acceptance


def test_a_message_carries_what_its_sender_expects_next() -> None:
    part = entity()
    part.receive(1, data(1, 1, 1, 1), 0)
    step = part.submit(Submit(b"p"), 1, 0)
    (out,) = step.down
    assert isinstance(out, Out)
    assert isinstance(out.pdu, CoData)
    assert (out.pdu.number, unpack_vector(out.pdu.ack, 3), out.sender, out.seq) == (1, [1, 2, 1], 0, 1)
    assert out.pdu.buf == part.acceptance.places - 2
    assert step.up == [Received(0, 1)]


def test_an_early_message_waits_for_its_source() -> None:
    part = entity()
    assert part.receive(1, data(2, 1, 2, 1), 0).up == []
    assert part.held == 1
    assert part.receive(1, data(1, 1, 1, 1), 0).up == [Received(1, 1), Received(1, 2)]
    assert part.acceptance.req == [1, 3, 1]


def test_an_early_message_waits_for_what_its_sender_had_accepted() -> None:
    part = entity(4)
    assert part.receive(1, data(1, 1, 1, 2, 2), 0).up == []
    assert part.receive(2, data(1, 1, 1, 1, 2), 0).up == []
    assert part.receive(3, data(1, 1, 1, 1, 1), 0).up == [Received(3, 1), Received(2, 1), Received(1, 1)]
    assert part.held == 3


def test_copies_change_nothing() -> None:
    part = entity()
    part.receive(1, data(1, 1, 1, 1), 0)
    part.receive(1, data(3, 1, 3, 1), 0)
    for copy in (data(1, 1, 1, 1), data(3, 1, 3, 1)):
        assert part.receive(1, copy, 0).up == [Duplicate(1)]
    assert part.held == 2


def test_early_messages_are_bounded_and_give_way_to_one_that_can_be_accepted() -> None:
    part = entity(2, window=1, headroom=1, buffer=3)
    for number in (2, 3, 4, 5):
        part.receive(1, data(number, 1, number), 0)
    assert (sorted(part.acceptance.early[1]), part.acceptance.overruns) == (
        [2, 3],
        2,
    )  # 4 and 5 lie beyond what could be kept
    part.receive(1, data(1, 1, 1), 0)
    assert (part.acceptance.req[1], part.held, part.acceptance.free) == (4, 3, 0)
    part.receive(1, data(6, 1, 6), 0)
    part.receive(1, data(4, 1, 4), 0)
    assert (part.held, part.acceptance.overruns) == (3, 4)


def test_an_early_message_is_evicted_for_one_that_can_be_accepted() -> None:
    part = entity(3, window=1, headroom=1, buffer=3)
    for number in (2, 3):
        part.receive(1, data(number, 1, number, 1), 0)
    part.receive(2, data(2, 1, 1, 2), 0)
    assert part.acceptance.free == 0
    assert part.receive(2, data(1, 1, 1, 1), 0).up == [Received(2, 1), Received(2, 2)]
    assert (sorted(part.acceptance.early[1]), part.held, part.acceptance.overruns) == ([2], 3, 1)


@pytest.mark.parametrize(
    "pdu",
    [
        data(1, 1, 1),  # a vector too short
        data(2, 1, 1, 1),  # its ACK for itself is not its number
        data(1, 2, 1, 1),  # acknowledges what was never sent
        CoRet(pack_vector([1, 1, 1]), 0, [(3, [(1, 2)])]),
        CoRet(pack_vector([1, 1, 1]), 0, [(0, [(2, 2)])]),
        CoRet(pack_vector([1, 1, 1]), 0, [(0, [(1, 2), (4, 4)])]),
        CoRet(pack_vector([1, 1, 1]), 0, [(0, [(1, 2)]), (3, [(1, 2)])]),
        CoRet(pack_vector([1, 1, 1]), 0, [(0, [(1, 2)]), (1, [(2, 2)])]),
        CoProbe(pack_vector([2, 1, 1]), 0, True),
        Pdu(),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(pdu: Pdu) -> None:
    part = entity()
    with pytest.raises(Malformed):
        part.receive(1, pdu, 0)
    assert (part.acceptance.req, part.held, part.deadline, part.flow.buf) == (
        [1, 1, 1],
        0,
        None,
        [part.acceptance.places] * 3,
    )


def test_a_claim_of_endless_messages_is_asked_for_in_bounds() -> None:
    part = entity(2)
    part.receive(1, data(2**32 - 1, 1, 2**32 - 1), 0)
    (ret,) = sent(part, CoRet, SECOND)
    assert ret.asks == [(1, [(1, 1 + part.acceptance.places)])]
    assert part.held == 0


def test_a_stream_of_needless_confirmations_is_kept_in_bounds() -> None:
    part = entity(2, window=1, headroom=1)
    for number in range(1, 1000):
        part.receive(1, confirm(number, 1, number), 0)
    assert len(part.receipt.rrl[1]) == 24
    assert part.held <= part.acceptance.places


def test_a_sender_that_ignores_the_flow_condition_fills_no_more_than_the_buffer() -> None:
    part = entity(2, window=1, headroom=4, buffer=8)
    for number in range(1, 1000):
        part.receive(1, data(number, 1, number), 0)
    assert part.held == part.acceptance.places == 8


# Failure detection and recovery


def test_failure_condition_1_asks_for_what_lies_before() -> None:
    part = entity()
    part.receive(1, data(3, 1, 3, 1), 0)
    part.receive(1, data(5, 1, 5, 1), 0)
    assert part.deadline is not None
    assert part.options.ret_grace_ns <= part.deadline <= 1.5 * part.options.ret_grace_ns
    (ret,) = sent(part, CoRet, part.deadline)
    assert (ret.asks, unpack_vector(ret.ack, 3)) == ([(1, [(1, 3), (4, 5)])], [1, 1, 1])


def test_failure_condition_2_asks_for_what_another_has() -> None:
    part = entity()
    part.receive(2, data(1, 1, 3, 1), 0)
    (ret,) = sent(part, CoRet, SECOND)
    assert ret.asks == [(1, [(1, 3)])]


def test_what_another_has_is_given_longer_than_a_gap_in_a_source_s_own_numbers() -> None:
    for pdu, source, pause_ns in ((data(2, 1, 2, 1), 1, "ret_grace_ns"), (data(1, 1, 3, 1), 2, "ret_retry_ns")):
        part = entity()
        part.failure_condition(source, unpack_vector(pdu.ack, 3), 0)
        least_ns = getattr(part.options, pause_ns)
        assert least_ns <= part.losses.requests[1].ask_at <= 1.5 * least_ns


def test_nothing_is_asked_for_that_comes_within_the_grace() -> None:
    part = entity()
    part.receive(2, data(1, 1, 2, 1), 0)
    part.receive(1, data(1, 1, 1, 1), part.options.ret_grace_ns)
    assert sent(part, CoRet, SECOND) == []


def test_one_request_is_outstanding_and_is_repeated_ever_more_rarely() -> None:
    part = entity(2, probe_ns=1000 * SECOND, probe_ns_max=1000 * SECOND)
    part.receive(1, data(2, 1, 2), 0)
    asked = []
    for number in range(3, 9):
        part.receive(1, data(number, 1, number), 0)
    for _ in range(10):
        assert part.deadline is not None
        asked.append(part.deadline)
        assert len(sent(part, CoRet, part.deadline)) == 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    for pause, least in zip(pauses, (20, 20, 20, 20, 20, 20, 40, 80, 160), strict=True):
        assert least * MILLISECOND <= pause <= 1.5 * least * MILLISECOND


def test_anothers_request_does_for_ones_own() -> None:
    part = entity()
    part.receive(1, data(2, 1, 2, 1), 0)
    part.receive(2, CoRet(pack_vector([1, 1, 1]), 9, [(1, [(1, 2)])]), 1)
    assert sent(part, CoRet, 2 * part.options.ret_grace_ns) == []
    assert len(sent(part, CoRet, 2 * part.options.ret_retry_ns)) == 1


@pytest.mark.parametrize(("size", "heard_by"), [(8, None), (9, (1,))])
def test_a_request_goes_to_all_or_in_larger_groups_to_the_source_alone(
    size: int, heard_by: tuple[int, ...] | None
) -> None:
    part = entity(size)
    part.receive(1, data(2, 1, 2, *[1] * (size - 2)), 0)
    (out,) = [out for out in part.wake(2 * part.options.ret_grace_ns).down if isinstance(out.pdu, CoRet)]
    assert (out.pdu.asks, out.to) == ([(1, [(1, 2)])], heard_by)


def test_one_vector_does_for_all_that_are_asked_at_once() -> None:
    part = entity(40)
    for source in range(1, 21):
        part.receive(source, data(2, *[1] * source, 2, *[1] * (39 - source)), 0)
    asked = tuple(range(1, 21))
    (out,) = [out for out in part.wake(SECOND).down if isinstance(out.pdu, CoRet)]
    assert (out.pdu.asks, out.to) == ([(source, [(1, 2)]) for source in asked], asked)


def test_what_is_too_much_for_one_request_is_asked_for_in_several() -> None:
    part = entity()
    for source in (1, 2):
        for number in range(2, 82, 2):
            part.receive(source, data(number, *[number if k == source else 1 for k in range(3)]), 0)
    rets = sent(part, CoRet, SECOND)
    gaps = [(number, number + 1) for number in range(1, 81, 2)]
    assert [ret.asks for ret in rets] == [[(1, gaps)], [(2, gaps)]]


def test_everyone_who_is_asked_answers_and_nobody_asks_for_what_one_request_of_many_names() -> None:
    part = entity(4)
    part.submit(Submit(b"x"), 1, 0)
    part.receive(2, data(2, 1, 1, 2, 1), 0)
    before = part.deadline
    ret = CoRet(pack_vector([1, 1, 1, 1]), 9, [(2, [(1, 2)]), (0, [(1, 2)])])
    part.receive(1, ret, 1)
    assert before is not None
    assert part.losses.deadline is not None
    assert part.losses.deadline > before
    assert part.log.planned == {1}


def test_the_source_sends_again_what_is_missing_and_only_once() -> None:
    part = entity()
    for seq in (1, 2, 3):
        part.submit(Submit(b"%d" % seq), seq, 0)
    ret = CoRet(pack_vector([1, 1, 1]), 9, [(0, [(1, 2), (3, 4)])])
    assert repaired(part, 1, ret, 1) == [(1, True, None), (3, True, None)]
    now = part.options.ret_retry_ns + 1
    assert repaired(part, 2, ret, now) == []  # the copy for the one is on its way to the other
    assert len(repaired(part, 2, ret, now + 2 * part.options.ret_retry_ns)) == 2


def repaired(part: Co, source: int, ret: CoRet, now: int) -> list[tuple[int | None, bool, tuple[int, ...] | None]]:
    """Give what a member sends again for a RET, and to whom, in the random time that this takes."""
    assert part.receive(source, ret, now).down == []
    at = part.log.deadline or now
    outs = [out for out in part.wake(at).down if isinstance(out, Out)]
    return [(out.seq, out.repair, out.to) for out in outs if out.repair]


def test_only_those_who_lack_a_message_are_sent_it_again() -> None:
    part = entity()
    for seq in (1, 2, 3):
        part.submit(Submit(b"%d" % seq), seq, 0)
    part.receive(2, confirm(1, 3, 1, 1), 1)  # it has 1 and 2
    ret = CoRet(pack_vector([1, 1, 1]), 9, [(0, [(1, 4)])])
    assert repaired(part, 1, ret, 2) == [(1, True, (1,)), (2, True, (1,)), (3, True, None)]


def test_what_is_asked_for_again_and_again_is_sent_ever_more_rarely() -> None:
    part = entity(2, ret_retry_ns=1000, probe_ns=SECOND, probe_ns_max=SECOND)
    part.submit(Submit(b""), 1, 0)
    ret = CoRet(pack_vector([1, 1]), 9, [(0, [(1, 2)])])
    instants = []
    for now in range(0, 200_000, 10):
        part.receive(1, ret, now)
        if sent(part, CoData, now):
            instants.append(now)
    pauses = [later - earlier for earlier, later in itertools.pairwise(instants)]
    assert min(pauses) >= 1000
    assert pauses[-1] >= 16_000
    assert len(instants) < 20


def test_a_request_is_answered_within_bounds() -> None:
    part = entity(2, repairs_max=2)
    for seq in (1, 2, 3):
        part.submit(Submit(b""), seq, 0)
    assert len(repaired(part, 1, CoRet(pack_vector([1, 1]), 9, [(0, [(1, 2**32 - 1)])]), 1)) == 2


def test_a_silence_is_broken_until_the_last_message_is_acknowledged() -> None:
    part = entity(2)
    part.submit(Submit(b""), 1, 0)
    assert part.deadline == part.options.probe_ns
    (probe,) = sent(part, CoProbe, part.options.probe_ns)
    assert (unpack_vector(probe.ack, 2), probe.asking) == ([2, 1], True)
    other = entity(2, rank=1)
    assert other.receive(0, probe, 0).down == []
    assert other.deadline is not None
    (answer,) = other.wake(other.deadline).down
    assert isinstance(answer, Out)
    assert isinstance(answer.pdu, CoProbe)
    assert (answer.to, answer.pdu.asking, answer.pdu.buf) == ((0,), False, other.acceptance.places)
    assert part.receive(1, answer.pdu, part.options.probe_ns).down == []  # what it lacks may still be under way
    (ret,) = sent(other, CoRet, SECOND)  # it has learnt that it lacks a message
    assert repaired(part, 1, ret, SECOND) == [(1, True, None)]


def test_what_is_under_way_is_not_sent_again_for_a_probe() -> None:
    part = entity(2)
    part.submit(Submit(b""), 1, 0)
    part.receive(1, CoProbe(pack_vector([1, 1]), 9, True), 1)
    part.receive(1, CoProbe(pack_vector([1, 1]), 9, False), 2)
    assert sent(part, CoData, part.options.probe_ns) == []


def test_members_do_not_answer_a_probe_at_the_same_instant() -> None:
    due = set()
    for rank in range(1, 6):
        part = Co(PartContext(rank, 6, random.Random(rank)), CoOptions())
        part.receive(0, CoProbe(pack_vector([1] * 6), 9, True), 0)
        due.add(part.deadline)
    assert len(due) == 5


class NoChance(random.Random):
    """Draws the least each time."""

    def randrange(self, *bounds: Any) -> int:
        return 0


class Lockstep(Co):
    """Everyone's pauses are of the same length."""

    def __init__(self, context: PartContext, options: CoOptions) -> None:
        super().__init__(PartContext(context.rank, context.size, NoChance()), options)


@pytest.mark.parametrize(("kind", "finished"), [(Co, True), (Lockstep, False)])
def test_random_pauses_keep_the_same_answer_from_overrunning_for_ever(kind: type[Co], finished: bool) -> None:
    scenario = Scenario.of(
        "paper",
        members=4,
        messages=4,
        ordering=kind,
        ordering_options={"window": 2, "headroom": 2, "buffer": 8},
        network=NetworkOptions(latency="fixed 1ms", fifo=True, receive_buffer=1, service="1ms"),
        workload=Workload(interval="fixed 1ms"),
        limit="20s",
    )
    assert simulate(scenario, 1).finished is finished


# Pre-acknowledgment, acknowledgment


def test_the_three_levels_are_visible() -> None:
    world = World(2)
    world.submit(0)
    assert world.parts[0].levels() == [Levels(1, 0, 0), Levels(0, 0, 0)]
    world.arrive(0, 1)
    assert world.parts[1].levels()[0] == Levels(1, 0, 0)
    world.now = SECOND
    world.wake(1)
    world.arrive(1, 0)
    world.wake(0)
    assert world.parts[0].levels()[0] == Levels(1, 1, 0)
    world.settle()
    assert [part.levels()[0] for part in world.parts] == [Levels(1, 1, 1)] * 2
    assert world.complete()


def test_levels_come_in_order_in_the_trace() -> None:
    run = simulate(Scenario.of("paper", members=4, messages=10, ordering="co", network=NetworkOptions(loss=0.2)), 3)
    for log in run.logs:
        accepted, stable = set(), dict.fromkeys(range(4), 0)
        for row in log.rows("r"):
            if row.event == "receive":
                accepted.add((row.sender, row.seq))
            elif row.event == "stable":
                assert row.sender is not None
                assert row.seq is not None
                assert (row.sender, row.seq) in accepted
                assert row.seq > stable[row.sender]
                stable[row.sender] = row.seq
            elif row.event == "deliver":
                assert row.sender is not None
                assert row.seq is not None
                assert row.seq <= stable[row.sender]


def test_one_alone_delivers_to_itself_and_falls_silent() -> None:
    world = World(1)
    world.submit(0)
    assert world.settle()
    assert world.complete()


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("defer_ns", [1, 3 * MILLISECOND])
def test_silence_follows_and_an_isolated_message_costs_2n_confirmations(size: int, defer_ns: int) -> None:
    world = World(size, CoOptions(defer_ns=defer_ns))
    world.submit(size - 1)
    assert world.settle()
    assert world.complete()
    assert sum(isinstance(out.pdu, CoConfirm) for out in world.sendings) == 2 * size
    assert all(part.deadline is None for part in world.parts)


def test_confirmations_stop_while_one_member_is_cut_off() -> None:
    world = World(3)
    for _ in range(5):
        world.submit(0)
        world.submit(1)
    for _ in range(2000):
        world.now += MILLISECOND
        for link, channel in world.channels.items():
            while channel:
                if 2 in link:
                    world.lose(*link)
                else:
                    world.arrive(*link)
        for rank in world.ranks:
            world.wake(rank)
    confirmations = sum(isinstance(out.pdu, CoConfirm) for out in world.sendings)
    probes = sum(isinstance(out.pdu, CoProbe) and out.pdu.asking for out in world.sendings)
    assert confirmations <= 10
    assert probes <= 2 * 10  # ever more rarely: 2 s of silence, at most one a second in the end
    assert world.settle()
    assert world.complete()


# Flow


def test_the_window_counts_messages_and_not_confirmations() -> None:
    part = entity(2, window=2, headroom=2, buffer=1000)
    part.submit(Submit(b""), 1, 0)
    part.receive(1, data(1, 2, 1, buf=1000), 0)
    assert sent(part, CoConfirm, SECOND)
    assert part.may_submit(0)
    part.submit(Submit(b""), 2, 0)
    part.receive(1, confirm(2, 3, 2, buf=1000), 0)
    assert part.may_submit(0)  # the first is accepted by all


def test_the_smallest_buffer_rules() -> None:
    part = entity(2, window=4, headroom=4, buffer=100)
    for buf, allowed in ((100, 4), (31, 3), (16, 2), (8, 1), (7, 0)):
        part.flow.buf[1] = buf
        outstanding = 0
        while outstanding < 9:
            part.log.outstanding = outstanding
            if not part.may_submit(0):
                break
            outstanding += 1
        assert outstanding == allowed


def test_an_older_word_about_a_buffer_does_not_replace_a_newer_one() -> None:
    part = entity(2)
    part.receive(1, CoProbe(pack_vector([1, 5]), 700, False), 0)
    part.receive(1, CoProbe(pack_vector([1, 2]), 30, False), 0)
    assert part.flow.buf[1] == 700


def test_a_starved_sender_asks_for_credit_at_once_and_gets_it() -> None:
    part = entity(2, window=2, headroom=2, buffer=4)
    part.receive(1, CoProbe(pack_vector([1, 1]), 3, False), 0)
    assert part.deadline is None
    assert not part.may_submit(0)
    now = 100 * SECOND
    assert part.deadline is not None
    assert part.deadline < now
    assert len(sent(part, CoProbe, now)) == 1
    part.receive(1, CoProbe(pack_vector([1, 1]), 4, False), now)
    assert part.may_submit(0)
    assert part.deadline is None


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("spare", [0, 1, 5])
def test_the_tightest_buffer_that_is_allowed_works(size: int, spare: int) -> None:
    options = {"window": 2, "headroom": 2, "buffer": 2 * size + spare}
    scenario = Scenario.of(
        "paper", members=size, messages=6, ordering="co", ordering_options=options, workload=Workload(interval="0")
    )
    cluster = Cluster(scenario, 1)
    assert cluster.run().finished
    assert [node.member.ordering.acceptance.overruns for node in cluster.nodes] == [0] * size  # type: ignore[attr-defined]


# Cost


def test_minima_are_those_of_the_rows() -> None:
    rng = random.Random(7)
    minima = Minima(5)
    columns = [[1] * 5 for _ in range(5)]
    for _ in range(500):
        j = rng.randrange(5)
        columns[j] = [number + rng.choice((0, 0, 1, 3)) for number in columns[j]]
        before = list(minima.least)
        risen = minima.raise_column(j, columns[j])
        assert minima.rows == [[column[k] for column in columns] for k in range(5)]
        assert minima.least == [min(row) for row in minima.rows]
        assert risen == [k for k in range(5) if minima.least[k] > before[k]]


# When the view ends


def end_view(world: World, survivors: list[int]) -> dict[int, list[tuple[int, int]]]:
    """Stop the survivors, bring each up to the longest prefixes that any of them holds, and let them finish."""
    parts = [world.parts[rank] for rank in survivors]
    for part in parts:
        part.block()
    reaches = [part.reach() for part in parts]
    cut = [max(reach[source] for reach in reaches) for source in world.ranks]
    holders = [max(parts, key=lambda part, s=source: part.reach()[s]) for source in world.ranks]  # type: ignore[misc]
    copies = {
        rank: [(s, pdu) for s in world.ranks for _, pdu in holders[s].copies(s, reach[s], cut[s])]
        for rank, reach in zip(survivors, reaches, strict=True)
    }
    delivered = {}
    for rank, part in zip(survivors, parts, strict=True):
        for source, pdu in copies[rank]:
            assert not any(isinstance(up, Deliver) for up in part.adopt(source, pdu).up)
        rest = part.finish(cut, b"").up
        delivered[rank] = world.delivered[rank] + [(up.sender, up.seq) for up in rest if isinstance(up, Deliver)]
        assert part.receipt.prl == []
    return delivered


def test_survivors_finish_a_view_with_the_same_messages_in_causal_order() -> None:
    rest = 0
    for seed in range(60):
        rng = random.Random(f"{seed}/view")
        size = rng.randint(2, 5)
        world = World(size, seed=seed)
        for _ in range(rng.randint(1, 12)):
            world.submit(rng.randrange(size))
            world.torture(rng.randint(0, 40), 0.3, 0, 0.5)
        survivors = sorted(rng.sample(range(size), rng.randint(1, size)))
        before = {rank: set(world.delivered[rank]) for rank in world.ranks}
        delivered = end_view(world, survivors)
        assert len({frozenset(messages) for messages in delivered.values()}) == 1
        for rank, messages in delivered.items():
            assert len(messages) == len(set(messages))
            assert all(world.past[message] <= set(messages[:place]) for place, message in enumerate(messages))
            assert {(rank, seq + 1) for seq in range(world.sent[rank])} <= set(messages)
            assert set().union(*before.values()) <= set(messages)  # also what someone who is gone has delivered
            rest += len(messages) - len(before[rank])
    assert rest > 0


def test_what_is_adopted_must_be_a_new_pdu_of_its_source() -> None:
    part = entity()
    part.receive(1, data(1, 1, 1, 1), 0)
    part.receive(1, data(3, 1, 3, 1), 0)
    part.block()
    assert (part.reach(), part.held, part.deadline) == ([0, 1, 0], 1, None)
    assert part.receive(1, data(2, 1, 2, 1), 0).up == []
    for pdu in (data(1, 1, 1, 1), data(3, 1, 3, 1), data(2, 1, 1, 1), CoProbe(pack_vector([1, 1, 1]), 0, True)):
        with pytest.raises(Malformed):
            part.adopt(1, pdu)
    assert part.adopt(1, data(2, 1, 2, 1)).up == [Received(1, 2)]
    assert part.finish([0, 2, 0], b"").up == [Deliver(1, 1, b"x"), Deliver(1, 2, b"x")]
    assert part.copies(1, 0, 2) == [(1, data(1, 1, 1, 1)), (2, data(2, 1, 2, 1))]  # slower survivors still ask
    assert part.held == 0


# Random schedules


def trial(seed: int, kind: type[Co] = Co) -> tuple[World, bool]:
    rng = random.Random(f"{seed}/trial")
    size, window = rng.randint(2, 5), rng.choice((1, 2, 8))
    headroom = window * rng.choice((1, 2))
    options = CoOptions(
        window=window,
        headroom=headroom,
        buffer=rng.choice((0, headroom * size, headroom * size + 2, 3 * headroom * size)),
        defer_ns=rng.choice((1, MILLISECOND, 5 * MILLISECOND)),
    )
    world = World(size, options, kind, seed)
    loss, duplicate, reorder = rng.choice((0, 0.1, 0.2, 0.4)), rng.choice((0, 0, 0.2)), rng.choice((0, 0, 0.5, 1))
    for _ in range(rng.randint(1, 12)):
        world.submit(rng.randrange(size))
        world.torture(rng.randint(0, 40), loss, duplicate, reorder)
    return world, world.settle()


@pytest.mark.parametrize("block", range(4))
def test_random_schedules(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        world, silent = trial(seed)
        assert (world.wrong, silent, world.complete()) == ([], True, True), f"seed {seed}"


def test_copies_are_let_go() -> None:
    for seed in range(20):
        world, _ = trial(seed)
        assert all(not part.receipt.prl and not any(part.acceptance.early) for part in world.parts)
        # nobody confirms the last confirmations: two of each member at most
        assert max(len(part.log.sl) for part in world.parts) <= 2 * max(1, sum(world.sent))
        assert all(sent.seq is None for part in world.parts for sent in part.log.sl.values())


@pytest.mark.parametrize(("options", "network"), [
    ({}, NetworkOptions(loss=0.4, latency="uniform 1ms 20ms")),
    ({"window": 2, "headroom": 2}, NetworkOptions(duplicate=0.3, reorder=0.3, loss=0.1)),
    ({}, NetworkOptions(fifo=True, receive_buffer=3, service="400us")),
])  # fmt: skip
def test_simulated_groups_keep_what_co_promises(options: dict[str, int], network: NetworkOptions) -> None:
    for seed in range(4):
        scenario = Scenario.of("paper",
            members=2 + seed, messages=12, ordering="co", ordering_options=options, network=network,
            workload=Workload(interval="exponential 2ms"),
        )  # fmt: skip
        run = simulate(scenario, seed)
        assert run.finished
        verdicts = check(run.events, happened_before="receive", global_clock=True)
        for guarantee in ("integrity", "validity", "agreement", "fifo", "causal", "stability"):
            assert verdicts[guarantee].verdict == "holds", guarantee


def test_the_same_seed_gives_the_same_trace() -> None:
    scenario = Scenario.of("paper", members=3, messages=10, ordering="co", network=NetworkOptions(loss=0.2))
    assert simulate(scenario, 5).events == simulate(scenario, 5).events


def found(kind: type[Co], breaks: str, seed: int) -> bool:
    """Whether a run of a seeded bug shows what it breaks."""
    scenario = Scenario.of(
        "paper",
        members=3 + seed % 3,
        messages=8,
        ordering=kind,
        network=NetworkOptions(loss=0.15, duplicate=0.1, latency="uniform 1ms 10ms"),
        workload=Workload(interval="exponential 3ms"),
        limit="20s",
    )
    run = simulate(scenario, seed)
    everything = run.delivered == run.sent * scenario.members and run.sent == scenario.messages * scenario.members
    if breaks == "stuck":
        return not everything
    if breaks == "undrained":
        return everything and not run.finished
    verdicts = check(run.events, guarantees=[breaks], happened_before="receive", global_clock=True)
    return verdicts[breaks].verdict == "violated"


@pytest.mark.parametrize("name", MUTANTS)
def test_seeded_bugs_are_found(name: str) -> None:
    kind, breaks = MUTANTS[name]
    assert any(found(kind, breaks, seed) for seed in range(10))
    assert not any(found(Co, breaks, seed) for seed in range(3))


def test_slots_count_as_more_only_if_they_are_and_older_words_count_for_nothing() -> None:
    flow = entity().flow
    assert not flow.credit(1, [2, 2, 2], 10)
    assert flow.credit(1, [2, 2, 3], 11)
    assert not flow.credit(1, [2, 2, 3], 11)
    assert not flow.credit(1, [2, 2, 2], 99), "it had accepted less when it said so"
    assert flow.buf[1] == 11


def test_a_confirmation_is_not_confirmed() -> None:
    """Else there would never be silence."""
    part = entity()
    part.receive(1, confirm(1, 1, 1, 1), 0)
    assert not part.confirmations.confirmation_owed()
    part.receive(2, data(1, 1, 1, 1), 0)
    assert part.confirmations.confirmation_owed()


def test_a_vector_costs_its_length_and_twice_that_for_each_minimum_that_rises() -> None:
    minima = Minima(3)
    minima.raise_column(0, [2, 2, 2])
    minima.raise_column(1, [2, 2, 1])
    assert minima.visits == 6
    assert minima.raise_column(2, [2, 3, 3]) == [0, 1]
    assert minima.visits == 6 + 3 + 2 * 2 * 3
    assert minima.least == [2, 2, 1]


def test_a_member_lacks_what_it_is_not_known_to_have_accepted_of_others() -> None:
    part = entity()
    part.submit(Submit(b"p"), 1, 0)
    assert part.lag() == {1: 1, 2: 1}
    part.receive(1, data(1, 2, 1, 1), 0)
    assert part.lag() == {2: 2}


def test_answers_are_timed_unless_what_they_answer_was_sent_twice() -> None:
    part = entity(2)
    part.submit(Submit(b"p"), 1, 0)
    part.receive(1, confirm(1, 2, 1), 7 * MILLISECOND)
    assert part.log.trips.measured_ns == 7 * MILLISECOND
    twice = entity(3)
    twice.submit(Submit(b"p"), 1, 0)
    assert repaired(twice, 1, CoRet(pack_vector([1, 1, 1]), 1000, [(0, [(1, 2)])]), 500 * MILLISECOND)
    twice.receive(2, confirm(1, 2, 1, 1), 900 * MILLISECOND)  # is this the answer to the first copy or to the second?
    assert twice.log.trips.measured_ns == 0


def test_who_waited_itself_when_it_was_probed_answers_once_its_wait_is_over() -> None:
    """Two that wait for each other probe each other; were one's word lost and its wait over, nobody would speak."""
    part, now = entity(2), 5 * MILLISECOND
    part.submit(Submit(b""), 1, 0)
    part.receive(1, CoProbe(pack_vector([1, 1]), 1000, True), now)
    assert part.probes.silence_matters()
    for number in range(1, 6):
        part.receive(1, confirm(number, part.acceptance.req[0], number), now)  # it has all that was sent so far
        part.wake(now)
    assert not part.probes.silence_matters()
    assert part.deadline is not None
    assert now + part.options.probe_ns <= part.deadline <= now + 1.5 * part.options.probe_ns, "not all at one instant"
    (answer,) = part.wake(part.deadline).down
    assert isinstance(answer, Out)
    assert (answer.to, type(answer.pdu)) == ((1,), CoProbe)
