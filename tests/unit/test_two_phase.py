"""The two-phase machine and TOMP's bounds, each against something obviously right."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import Deliver, Submit
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.tomp import (
    LISTS_MAX,
    MEMBERS_MAX,
    AllHostsBox,
    BoundingDecision,
    BoundingPoll,
    ListBox,
    Staircase,
    Tomp,
    TompOptions,
    UpdateBox,
    VectorProposal,
    packed,
)
from antiphon.protocol.ordering.two_phase import (
    Ask,
    Decision,
    Proposal,
    TimedData,
    TwoPhase,
    TwoPhaseOptions,
    Waiting,
)
from antiphon.protocol.ordering.two_phase.messages import ASK_SEQS_MAX
from antiphon.protocol.parts import Out, PartContext, Reliable
from antiphon.protocol.wire import Data, Malformed, Pdu, Streamed, pack_vector
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from antiphon.trace.naive import check
from support.mutants_two_phase import MUTANTS
from support.two_phase_group import Group, adversary

MS = 1_000_000


def abcast(rank: int = 0, size: int = 3, **options: int) -> Abcast:
    return Abcast(PartContext(rank, size, random.Random(0)), TwoPhaseOptions(**options))


def tomp(rank: int = 0, size: int = 3) -> Tomp:
    return Tomp(PartContext(rank, size, random.Random(0)), TompOptions())


def send(part: TwoPhase, seq: int = 1, now: int = 0) -> None:
    """Submit at a part and loop the message back."""
    (down,) = part.submit(Submit(b""), seq, now).down
    assert isinstance(down, Reliable)
    part.accept(part.rank, down.pdu, now)


# Whole runs under an adversary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "options", "seeds"),
    [(Abcast, {}, 300), (Tomp, {}, 300), (Tomp, {"bound": "all-hosts"}, 100), (Tomp, {"delta": False}, 60)],
)
def test_one_order_by_final_timestamps_under_an_adversary(
    protocol: type[TwoPhase], options: dict[str, Any], seeds: int
) -> None:
    for seed in range(seeds):
        group = adversary(Group(protocol, 1 + seed % 5, **options), seed, messages=6)
        assert group.unfaithful() == [], f"seed {seed}"


@pytest.mark.parametrize("ordering", ["abcast", "tomp"])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_whole_members_keep_every_promise(ordering: str, members: int) -> None:
    network = NetworkOptions(latency="exponential 5ms", loss=0.3, duplicate=0.1, reorder=0.2)
    for seed in range(5):
        run = simulate(Scenario.of("paper", members=members, messages=10, ordering=ordering, network=network), seed)
        assert run.finished
        verdicts = check(run.events)
        for guarantee in run.scenario.promises():
            alone = members == 1 and guarantee in ("agreement", "total")  # nobody to compare with
            assert verdicts[guarantee].verdict == ("unknown" if alone else "holds"), (seed, guarantee)


def test_trace_has_t1_and_t2() -> None:
    run = simulate(
        Scenario.of("paper", members=3, messages=4, ordering="tomp", network=NetworkOptions(latency="fixed 2ms")), 1
    )
    step = {
        kind: {(e.member, e.sender, e.seq): e.step for e in run.events if (e.event, e.detail) == name}
        for kind, name in {
            "receive": ("receive", None),
            "final": ("control", "final"),
            "deliver": ("deliver", None),
        }.items()
    }
    assert len(step["final"]) == 3 * 3 * 4
    assert all(step["receive"][key] < at < step["deliver"][key] for key, at in step["final"].items())


@pytest.mark.parametrize("name", MUTANTS)
def test_seeded_bugs_are_caught(name: str) -> None:
    mutant, breaks = MUTANTS[name]
    loss = 0.2 if breaks == "stuck" or "renewed" in name else 0.0
    scenario = Scenario.of(
        "paper",
        members=3,
        messages=4,
        ordering=mutant,
        network=NetworkOptions(latency="exponential 10ms", loss=loss),
        workload=Workload(interval="exponential 50ms"),
        limit="20s",
    )
    assert any(_caught(scenario, breaks, seed) for seed in range(60))


def _caught(scenario: Scenario, breaks: str, seed: int) -> bool:
    run = simulate(scenario, seed)
    delivered_all = run.delivered == scenario.members**2 * scenario.messages
    if breaks in ("stuck", "undrained"):
        return not run.finished and delivered_all == (breaks == "undrained")
    return check(run.events)[breaks].verdict == "violated"


# Asking for proposals


def test_asks_only_whom_it_lacks_and_backs_off() -> None:
    part = abcast(ask_ns=10 * MS, ask_ns_max=30 * MS)
    send(part)
    assert part.deadline == 10 * MS
    part.receive(2, Proposal(1, 4), 5 * MS)
    assert part.wake(9 * MS).down == []
    asked = []
    for now in range(10 * MS, 120 * MS, MS):
        step = part.wake(now)
        asked += [(now // MS, down.to, down.pdu.seqs) for down in step.down]  # type: ignore[union-attr]
    assert {(to, tuple(seqs)) for _, to, seqs in asked} == {((1,), (1,))}
    instants = [now for now, _, _ in asked]
    pauses = [later - earlier for earlier, later in itertools.pairwise(instants)]
    assert instants[0] == 10
    for pause, least in zip(pauses, (10, 20, 30), strict=False):
        assert least <= pause <= 1.5 * least + 1
    (decision,) = part.receive(1, Proposal(1, 2), 120 * MS).down
    assert isinstance(decision.pdu, Decision)
    assert (decision.pdu.time, decision.pdu.host) == (4, 2)
    assert part.deadline is None


def test_progress_ends_the_back_off() -> None:
    part = abcast(ask_ns=10 * MS, ask_ns_max=1000 * MS)
    send(part)
    now = 0
    for _ in range(4):
        assert part.deadline is not None
        now = part.deadline
        part.wake(now)
    assert part.deadline >= now + 80 * MS
    part.receive(1, Proposal(1, 1), now)
    assert part.deadline == now + 10 * MS


def test_young_messages_are_not_asked_for() -> None:
    part = abcast(ask_ns=10 * MS)
    send(part, 1, 0)
    send(part, 2, 9 * MS)
    assert [down.pdu for down in part.wake(10 * MS).down] == [Ask([1]), Ask([1])]


def test_a_pause_that_ends_before_anything_is_late_is_no_vain_try() -> None:
    part = abcast(size=2, ask_ns=10 * MS, ask_ns_max=1000 * MS)
    send(part, 1, 0)
    send(part, 2, 2 * MS)
    part.receive(1, Proposal(1, 1), 2 * MS)
    send(part, 3, 5 * MS)
    assert part.deadline == 10 * MS
    assert part.wake(10 * MS).down == []
    assert part.deadline == 12 * MS, "the oldest that is open was sent at 2 ms"
    assert [down.pdu for down in part.wake(12 * MS).down] == [Ask([2])]
    assert part.deadline is not None
    assert part.deadline <= 12 * MS + 15 * MS + 1, "the first pause after the first question"


def test_one_request_is_bounded() -> None:
    part = abcast(size=2)
    for seq in range(1, ASK_SEQS_MAX + 10):
        send(part, seq)
    (ask,) = part.wake(10**10).down
    assert ask.pdu == Ask(list(range(1, ASK_SEQS_MAX + 1)))


def test_answers_what_it_has_and_is_undecided() -> None:
    part = abcast(rank=1, size=2)
    part.accept(0, TimedData(seq=1), 0)
    part.accept(0, TimedData(seq=2), 0)
    part.accept(0, Decision(seq=1, time=1, host=1), 0)
    assert part.receive(0, Ask([1, 2, 3]), 0).down == [Out(Proposal(2, 2), (0,))]


def test_when_a_view_ends_tomp_tells_what_decisions_have_taught_it_of_undecided_messages() -> None:
    """With its first proposal alone, a message would get a place before one that was delivered elsewhere."""
    one = tomp()
    for sender in (1, 2):
        one.accept(sender, TimedData(seq=1, own=1), 0)
    hosts = np.array([1, 1, 1], "<u2").tobytes()
    firsts, below = pack_vector([1, 2, 1]), pack_vector([0, 0, 0])
    one.accept(1, BoundingDecision(seq=1, time=9, host=1, min_next_mid=firsts, below=below, hosts=hosts), 0)
    assert one.pending().provisional == {(2, 1): (10, 1)}


def test_repeated_and_late_proposals_change_nothing() -> None:
    part = abcast()
    send(part)
    part.receive(1, Proposal(1, 5), 0)
    assert part.receive(1, Proposal(1, 50), 0).down == []
    (decision,) = part.receive(2, Proposal(1, 2), 0).down
    assert isinstance(decision.pdu, Decision)
    assert decision.pdu.time == 5
    assert part.receive(2, Proposal(1, 9), 0).down == []


def test_undecided_own_messages_are_bounded() -> None:
    part = Abcast(PartContext(0, 2, random.Random(0), window=2), TwoPhaseOptions())
    for seq in (1, 2):
        assert part.may_submit(0)
        send(part, seq)
    assert not part.may_submit(0)
    part.receive(1, Proposal(2, 7), 0)
    assert part.may_submit(0)


def test_when_a_view_ends_what_its_sender_decided_goes_before_what_survivors_did_and_nothing_is_held() -> None:
    part = abcast(rank=1)
    for sender in (2, 0):
        part.accept(sender, TimedData(seq=1, payload=b"x"), 0)
    part.block()
    part.accept(2, Decision(seq=1, time=5, host=1), 0)
    settled = [(0, 1, 5, 1, True), (0, 2, 6, 1, True)]  # the second was decided here, or never came
    step = part.finish([2, 0, 2], msgspec.msgpack.encode(settled))
    assert step.up == [Deliver(2, 1, b"x"), Deliver(0, 1, b"x")]
    assert part.held == 0


def test_when_a_view_ends_that_survivors_have_nothing_to_decide_in_the_decided_are_delivered() -> None:
    part = abcast(rank=1)
    for sender in (2, 0):
        part.accept(sender, TimedData(seq=1, payload=b"x"), 0)
        part.block()
        part.accept(sender, Decision(seq=1, time=5 - sender, host=1), 0)
    assert part.finish([2, 0, 2], b"").up == [Deliver(2, 1, b"x"), Deliver(0, 1, b"x")]
    assert part.held == 0


def test_group_of_one_delivers_at_once() -> None:
    part = abcast(size=1)
    (down,) = part.submit(Submit(b"x"), 1, 0).down
    assert isinstance(down, Reliable)
    (decision,) = part.accept(0, down.pdu, 0).down
    assert isinstance(decision, Reliable)
    assert part.accept(0, decision.pdu, 0).up[1:] == [Deliver(0, 1, b"x")]


# Nonsense from the network


def decision(**changes: Any) -> BoundingDecision:
    fields = {
        "seq": 1,
        "time": 7,
        "host": 1,
        "min_next_mid": pack_vector([1, 1, 1]),
        "below": bytes(12),
        "hosts": bytes(6),
    }
    return BoundingDecision(**fields | changes)


NONSENSE: dict[str, Streamed] = {
    "unknown message": decision(seq=2),
    "impossible host": decision(host=3),
    "below this member's own proposal": decision(time=1, host=0),
    "short vector": decision(min_next_mid=pack_vector([1, 1])),
    "long hosts": decision(hosts=bytes(8)),
    "odd bounds": decision(more=bytes(12)),
    "bound by a host that is not there": decision(hosts=b"\3\0" * 3),
    "one of the bounds by a host that is not there": decision(hosts=b"\0\0\3\0\0\0"),
    "bound for a sender that is not there": decision(more=pack_vector([3, 1, 0, 0])),
    "bound from message 0": decision(min_next_mid=pack_vector([0, 1, 1])),
    "repeated message": TimedData(seq=1),
    "message out of order": TimedData(seq=3),
    "data without a timestamp": Data(seq=2),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_in_a_stream_changes_nothing(name: str) -> None:
    part = tomp(rank=1)
    for sender in (0, 2):
        part.accept(sender, TimedData(seq=1), 0)
    before = snapshot(part)
    with pytest.raises(Malformed):
        part.accept(0, NONSENSE[name], 0)
    assert snapshot(part) == before
    assert part.accept(0, decision(), 0).up


@pytest.mark.parametrize(
    "pdu",
    [
        VectorProposal(2, 5, pack_vector([2, 1, 1])),  # of a message never sent
        VectorProposal(1, 5, pack_vector([2, 1])),
        VectorProposal(1, 5, pack_vector([1, 1, 1])),  # still expects what it acknowledges
        VectorProposal(1, 5, pack_vector([3, 1, 1])),  # expects what follows a message never sent
        VectorProposal(1, 5, pack_vector([2, 0, 1])),
        Data(seq=1),
    ],
)
def test_nonsense_beside_the_stream_changes_nothing(pdu: Pdu) -> None:
    part = tomp()
    send(part)
    before = snapshot(part)
    with pytest.raises(Malformed):
        part.receive(1, pdu, 0)
    assert snapshot(part) == before


def snapshot(part: TwoPhase) -> object:
    polls = {seq: (set(poll.missing), poll.greatest) for seq, poll in part.polls.polls.items()}
    return part.pending(), part.next_mid[:], part.held, len(part.queue), part.deadline, polls


def test_options_are_checked() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"ask_ns": 0}, TwoPhaseOptions)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"bound": "none"}, TompOptions)
    with pytest.raises(UsageError, match=str(MEMBERS_MAX)):
        tomp(size=MEMBERS_MAX + 1)


def test_largest_decision_fits_a_datagram() -> None:
    box = AllHostsBox(MEMBERS_MAX, delta=True)
    poll = BoundingPoll(MEMBERS_MAX, 0, box)
    poll.missing = {0, 1}
    for host, shift in ((0, 0), (1, 1)):
        poll.take(host, VectorProposal(1, 5 + 10 * host, pack_vector([1 + shift] * MEMBERS_MAX)))
    encoded = msgspec.msgpack.encode(poll.decision(1))
    assert 50_000 < len(encoded) < 60_000


# The queue


@pytest.mark.parametrize("make", [abcast, tomp])
def test_queue_is_not_sorted_anew_for_every_message(
    make: Callable[[], TwoPhase], monkeypatch: pytest.MonkeyPatch
) -> None:
    part, calls = make(), 0
    order_key = type(part).order_key

    def counted(self: TwoPhase, message: Waiting) -> Any:
        nonlocal calls
        calls += 1
        return order_key(self, message)

    monkeypatch.setattr(type(part), "order_key", counted)
    messages, delivered = 500, 0
    for seq in range(1, messages + 1):
        part.accept(1, TimedData(seq=seq), 0)
    for seq in range(messages, 0, -1):  # the first decision is the last that is needed
        final = {"seq": seq, "time": messages + seq, "host": 1}
        pdu = decision(**final, min_next_mid=pack_vector([9, 9, 9])) if isinstance(part, Tomp) else Decision(**final)
        delivered += len(part.accept(1, pdu, 0).up) - 1
    assert delivered == messages
    assert calls <= 6 * messages


# Bounds


def test_staircase_against_a_list_of_all_bounds() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        staircase, bounds, lowest = Staircase(), list[tuple[int, tuple[int, int]]](), 1
        for _ in range(40):
            first, stamp = rng.randint(1, 20), (rng.randint(1, 20), rng.randrange(3))
            staircase.raise_from(first, stamp)
            bounds.append((first, stamp))
            if rng.random() < 0.2:
                lowest = rng.randint(lowest, 20)
                staircase.forget_below(lowest)
                assert sum(first <= lowest for first in staircase.firsts) <= 1, "no more is needed below"
            for seq in range(lowest, 22):
                assert staircase.at(seq) == max((s for f, s in bounds if f <= seq), default=None)
            assert len(staircase.firsts) <= 21
            assert staircase.firsts == sorted(set(staircase.firsts))


@pytest.mark.parametrize("delta", [False, True])
def test_undecided_messages_are_raised_to_the_best_of_all_bounds_that_they_are_under(delta: bool) -> None:
    """The oracle keeps all bounds; of a sender without undecided messages, and beyond the last one, none is kept."""
    for seed in range(60):
        rng = random.Random(seed)
        part = Tomp(PartContext(0, 3, random.Random(0)), TompOptions(delta=delta))
        messages, nothing = 10, pack_vector([2**32 - 1] * 3)
        for seq in range(1, messages + 1):
            for sender in (1, 2):
                part.accept(sender, TimedData(seq=seq, own=part.clock.time + 1), 0)
        for sender in (1, 2):  # fewer undecided messages than bounds
            for seq in rng.sample(range(1, messages + 1), rng.randint(0, messages)):
                part.accept(sender, decision(seq=seq, time=50 + seq, host=sender, min_next_mid=nothing), 0)
        heard: list[tuple[int, int, tuple[int, int]]] = []
        for _ in range(rng.randint(1, 30)):
            time = rng.randint(10, 90)
            bounds = [
                (sender, rng.randint(1, messages + 2), rng.randint(0, 9), rng.randrange(3))
                for sender in [0, 1, 2, *rng.choices(range(3), k=rng.randrange(3))]
            ]
            columns = [*zip(*bounds[:3], strict=True)]
            one = decision(
                time=time,
                min_next_mid=pack_vector(columns[1]),
                below=pack_vector(columns[2]),
                hosts=b"".join(host.to_bytes(2, "little") for host in columns[3]),
                more=pack_vector([number for bound in bounds[3:] for number in bound]),
            )
            expected = [(sender, first, (time + 1 - below, host)) for sender, first, below, host in bounds]
            assert list(one.bounds(3)) == expected
            part.anticipate(one)
            heard += expected
        assert part.bounds[0].firsts == []
        for sender in (1, 2):
            stairs = part.bounds[sender].firsts
            assert all(first <= messages for first in stairs)
            assert part.undecided[sender] or not stairs
            for seq, waiting in part.undecided[sender].items():
                under = [
                    (number + (seq - first) * delta, host)
                    for bounded, first, (number, host) in heard
                    if bounded == sender and first <= seq
                ]
                assert part.provisional(waiting) == max([waiting.stamp, *under])


def test_bounds_below_what_is_undecided_are_forgotten_once_there_are_more_than_twice_as_many() -> None:
    part = Tomp(PartContext(0, 3, random.Random(0)), TompOptions(delta=False))
    nothing, none = pack_vector([2**32 - 1] * 3), pack_vector([0] * 3)
    for seq in range(1, 8):
        part.accept(1, TimedData(seq=seq, own=part.clock.time + 1), 0)
    for first, time in ((1, 20), (2, 21), (3, 22), (4, 23)):
        firsts = pack_vector([2**32 - 1, first, 2**32 - 1])
        part.anticipate(decision(seq=first, time=time, host=1, min_next_mid=firsts, below=none))
    assert part.bounds[1].firsts == [1, 2, 3, 4]
    for seq in range(1, 6):
        part.accept(1, decision(seq=seq, time=50 + seq, host=1, min_next_mid=nothing), 0)
    last = pack_vector([2**32 - 1, 6, 2**32 - 1])
    part.anticipate(decision(seq=1, time=24, host=1, min_next_mid=last, below=none))
    assert part.bounds[1].firsts == [6], "5 bounds, 2 undecided messages, and none before number 6"


@pytest.mark.parametrize(
    ("size", "options", "box"),
    [
        (LISTS_MAX, TompOptions(), ListBox),
        (LISTS_MAX + 1, TompOptions(), UpdateBox),
        (3, TompOptions(bound="all-hosts"), AllHostsBox),
    ],
)
def test_how_bounds_are_derived_follows_from_the_options_and_the_size(
    size: int, options: TompOptions, box: type
) -> None:
    part = Tomp(PartContext(0, size, random.Random(0)), options)
    assert type(part.box()) is box
    assert part.in_order is options.delta


def test_as_many_members_as_a_decision_has_room_for() -> None:
    assert Tomp(PartContext(0, MEMBERS_MAX, random.Random(0)), TompOptions()).size == MEMBERS_MAX
    with pytest.raises(UsageError, match="members"):
        Tomp(PartContext(0, MEMBERS_MAX + 1, random.Random(0)), TompOptions())


def test_staircases_stay_as_short_as_what_is_undecided() -> None:
    group = Group(Tomp, 3, bound="all-hosts")
    rng = random.Random(5)
    for _ in range(1000):
        if rng.random() < 0.2:
            group.send(rng.randrange(3))
        pair = rng.choice(list(group.channels))
        if group.channels[pair]:
            group.take(*pair)
        for part in group.parts:
            for sender in range(3):
                assert len(part.bounds[sender].firsts) <= 2 * max(map(len, part.undecided)) + 8  # type: ignore[attr-defined]
    group.finish()
    assert group.unfaithful() == []


def random_proposals(rng: random.Random, size: int) -> list[tuple[int, int, list[int]]]:
    hosts = rng.sample(range(size), size)
    return [(host, rng.randint(1, 9), [rng.randint(1, 4) for _ in range(size)]) for host in hosts]


def test_update_box_against_the_rule_word_by_word() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        size = rng.randint(1, 5)
        box, least, greatest = UpdateBox(size), [99] * size, [(0, 0)] * size
        for host, time, next_mid in random_proposals(rng, size):
            box.take(host, time, np.array(next_mid))
            for k in range(size):
                if next_mid[k] < least[k]:
                    least[k], greatest[k] = next_mid[k], (time + 1, host)
                elif next_mid[k] == least[k]:
                    greatest[k] = max(greatest[k], (time + 1, host))
        assert box.min_next_mid.tolist() == least
        assert box.max_next_ts.tolist() == [packed(*stamp) for stamp in greatest]


@pytest.mark.parametrize("delta", [True, False])
def test_all_hosts_box_against_the_rule_word_by_word(delta: bool) -> None:
    """For every message, the greatest of what all hosts that do not have it yet promise."""
    for seed in range(200):
        rng = random.Random(seed)
        size = rng.randint(1, 5)
        proposals = random_proposals(rng, size)
        poll = BoundingPoll(size, 0, AllHostsBox(size, delta))
        for host, time, next_mid in proposals:
            poll.take(host, VectorProposal(1, time, pack_vector(next_mid)))
        sent = poll.decision(1)
        assert isinstance(sent, BoundingDecision)
        bounds = list(sent.bounds(size))
        for k in range(size):
            for seq in range(1, 6):
                told = [(number + (seq - f) * delta, host) for s, f, (number, host) in bounds if s == k and f <= seq]
                meant = [(t + 1 + (seq - m[k]) * delta, host) for host, t, m in proposals if m[k] <= seq]
                assert max(told, default=None) == max(meant, default=None)
            steps = sorted((f, number - f * delta, host) for s, f, (number, host) in bounds if s == k)
            assert all(one[1:] < next_one[1:] for one, next_one in itertools.pairwise(steps)), (
                "each bound told raises the one before"
            )


@pytest.mark.parametrize("make", [UpdateBox, ListBox])
def test_how_far_below_a_bound_can_lie(make: Callable[[int], UpdateBox | ListBox]) -> None:
    """The greatest distance that can be told is told; at the next, a bound bounds nothing."""
    for beyond, told in ((0, True), (1, False)):
        box = make(1)
        box.hear(0, 5, pack_vector([1]))
        (bound,) = box.decision(1, 5 + 2**32 - 2 + beyond, 0).bounds(1)
        assert bound == ((0, 1, (6, 0)) if told else (0, 2**32 - 1, (5 + 2**32 - 2 + beyond + 1, 0)))


def test_bound_that_lies_too_far_below_bounds_nothing() -> None:
    poll = BoundingPoll(2, 0, UpdateBox(2))
    poll.take(0, VectorProposal(1, 2**40, pack_vector([2, 2])))
    poll.take(1, VectorProposal(1, 5, pack_vector([2, 1])))
    sent = poll.decision(1)
    assert isinstance(sent, BoundingDecision)
    (_, first0, stamp0), (_, first1, _) = sent.bounds(2)
    assert (first0, stamp0) == (2, (2**40 + 1, 0))
    assert first1 == 2**32 - 1


def test_bounds_on_lists_are_the_same() -> None:
    rng = random.Random(5)
    for _ in range(300):
        size, late = rng.randint(1, 6), rng.choice((0, 2**32))
        lists, words = ListBox(size), UpdateBox(size)
        for host in rng.sample(range(size), size):
            time, next_mid = rng.randint(1, 9) + rng.choice((0, late)), pack_vector(rng.choices(range(1, 4), k=size))
            lists.hear(host, time, next_mid)
            words.hear(host, time, next_mid)
        assert lists.decision(3, 9 + late, 0) == words.decision(3, 9 + late, 0)


def test_who_is_slow_to_propose_is_asked_less_often() -> None:
    """Proposals that come twice were asked for in vain: they were on their way."""
    part, now, asked = abcast(size=3, ask_ns=50 * MS, ask_ns_max=50 * MS), 0, []
    for seq in range(1, 9):  # proposals take 300 ms
        send(part, seq, now)
        answers = [(now + 300 * MS, host) for host in (1, 2)]
        asks = 0
        while answers:
            deadline = part.deadline
            if deadline is not None and deadline <= answers[0][0]:
                now = deadline
                for out in part.wake(now).down:
                    assert isinstance(out, Out)
                    asks += 1
                    answers.append((now + 300 * MS, out.to[0]))  # type: ignore[index]
                answers.sort()
            else:
                now, host = answers.pop(0)
                part.receive(host, Proposal(seq, 10 * seq), now)
        asked.append(asks)
    assert asked[0] >= 4
    assert asked[-1] == 0


def test_lost_proposals_are_asked_for_as_soon_as_ever() -> None:
    """What was lost comes once, so that nobody learns to wait."""
    part, now = abcast(size=2, ask_ns=50 * MS, ask_ns_max=50 * MS), 0
    for seq in range(1, 9):
        send(part, seq, now)
        assert part.deadline == now + 50 * MS
        now += 50 * MS
        assert part.wake(now).down
        now += MS
        part.receive(1, Proposal(seq, 10 * seq), now)
