"""Causal blocks, rule by rule and under seeded schedules; what the paper says is in tests/paper."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest

from antiphon.errors import UsageError
from antiphon.protocol.machine import MILLISECOND, Deliver, Receive, Send, Stable, Submit
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.ordering.causal_blocks import BlockMessage, CausalBlocksOptions, NullBlock
from antiphon.protocol.ordering.causal_blocks.arrivals import Arrivals
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge
from antiphon.protocol.ordering.causal_blocks.matrix import Entry
from antiphon.protocol.ordering.causal_blocks.repair import Repair
from antiphon.protocol.parts import Received, Step
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import Malformed, Pdu, pack_vector
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario, Workload
from antiphon.trace.naive import check
from support.causal_blocks_group import Adversary, Group
from support.mutants_causal_blocks import MUTANTS

# Alone and in pairs


def test_a_group_of_one_delivers_and_is_stable_at_once():
    group = Group(1)
    group.submit(0, b"x")
    assert group.delivered[0] == [(0, 1)]
    assert group.stable[0] == [(0, 1)]
    assert group.parts[0].held == 0
    assert group.parts[0].deadline is None


def test_a_copy_goes_when_the_sender_knows_that_all_have_delivered_it_and_then_both_are_quiet():
    group = Group(2)
    message = group.submit(0)
    group.give(1, 0, message)
    assert [part.held for part in group.parts] == [1, 0], "the receiver knows at once: the sender has its own"
    assert group.stable == [[], [(0, 1)]]
    assert group.parts[1].deadline is None
    question = group.silence(0)
    answer = group.ask(1, 0, question)
    assert answer.to == (0,)
    group.give(0, 1, answer.pdu)
    assert group.stable[0] == [(0, 1)]
    assert group.parts[0].held == 0
    assert group.parts[0].deadline is None


def test_a_lost_answer_is_asked_for_again():
    group = Group(2)
    group.give(1, 0, group.submit(0))
    group.ask(1, 0, group.silence(0))  # the answer is lost
    answer = group.ask(1, 0, group.silence(0))
    group.give(0, 1, answer.pdu)
    assert group.parts[0].held == 0


def test_the_last_message_is_found_through_a_null():
    group = Group(2)
    group.submit(0)  # lost
    assert group.give(1, 0, group.silence(0)) == [], "one that lacks something does not answer, it asks itself"
    assert group.delivered[1] == []
    question = group.silence(1)
    assert question.asking
    group.give(0, 1, question)
    group.give(1, 0, group.repair(0))
    assert group.delivered[1] == [(0, 1)]


def test_with_always_the_silence_is_broken_for_ever_nearly_evenly_and_never_in_step():
    instants: list[list[int]] = []
    for rank in (0, 1):
        group = Group(2, always=True, silence_ns=800)
        group.silence(rank)
        instants.append([group.now])
        for _ in range(10):
            group.silence(rank)
            instants[-1].append(group.now)
    for one in instants:
        assert all(700 <= later - earlier <= 800 for earlier, later in itertools.pairwise(one))
    assert len(set(instants[0]) & set(instants[1])) < 5


def test_a_report_is_owed_to_a_sender_that_may_wait_for_its_window_not_to_many_that_do_not():
    group = Group(6, window=4)
    for sender in range(1, 6):
        assert group.give(0, sender, group.submit(sender)) == [], "nobody's window is half full"
    assert group.give(0, 1, group.submit(1)) == [], "half of its window is"
    (report,) = group.give(0, 1, group.submit(1))
    assert type(report.pdu) is NullBlock


def test_a_member_that_hears_nothing_new_speaks_less_and_less():
    group = Group(2, silence_ns=10, silence_ns_max=50)
    group.submit(0)
    instants = []
    for _ in range(5):
        group.silence(0)
        instants.append(group.now)
    assert instants[0] == 10
    for (earlier, later), least in zip(itertools.pairwise(instants), (20, 40, 50, 50), strict=True):
        assert least <= later - earlier <= 1.5 * 50


# Repairs


def test_a_repair_that_is_held_back_does_not_hide_a_loss_that_is_found_meanwhile():
    """The first message never reaches 2, so it is sent again ever less often; 1 lacks the second for no longer."""
    group = Group(3, always=True)
    pause = group.parts[0].options.repair_delay_ns

    def all_tell() -> None:
        for source in (0, 2, 1):
            null = group.silence(source)
            for other in {0, 1, 2} - {source}:
                group.give(other, source, null)

    group.give(1, 0, group.submit(0))
    all_tell()
    for _ in range(8):
        all_tell()
        assert group.repair(0).seq == 1  # lost
    all_tell()
    held_back = group.parts[0].repair.deadline
    assert held_back is not None
    group.submit(0)  # lost
    all_tell()
    assert held_back > group.now + pause
    found = group.repairs(0, group.now + pause)
    assert [message.seq for _, message in found] == [2]
    first = min(group.parts[0].repair.lacks[2].items())[1]
    assert (first.entry.message.seq, first.at) == (1, held_back), "the first is still to be sent again at its time"


def test_repairs_go_in_bursts_in_the_order_of_blocks_and_the_rest_when_those_could_have_arrived():
    """0 has everything; 1 and 2 have lost one another's messages."""
    group = Group(3, burst=2, always=True)
    for sender in (1, 2):
        group.give(0, sender, group.submit(sender), group.submit(sender))
    for source in (0, 2, 1, 2):
        null = group.silence(source)
        for other in {0, 1, 2} - {source}:
            group.give(other, source, null)
    group.now += 1000 * MILLISECOND
    assert [out for out in group.wake(0) if out.repair] == [], "their senders go first"
    for source in (1, 2):  # the same complaint again
        group.give(0, source, group.silence(source))
    group.now += 25 * MILLISECOND
    group.wake(0)  # looks at all again
    group.now += 10_000 * MILLISECOND  # all that was planned is due

    def burst() -> list[tuple[int, int, tuple[int, ...] | None]]:
        outs = [(out.pdu, out.to) for out in group.wake(0) if out.repair]
        return [(pdu.sender, pdu.seq, to) for pdu, to in outs if isinstance(pdu, BlockMessage)]

    assert burst() == [(1, 1, (2,)), (2, 1, (1,))]
    assert burst() == []
    usual, then = group.parts[0].known.trips.usual_ns, group.parts[0].repair.deadline
    assert then is not None
    assert group.now + usual <= then <= group.now + usual * 3 // 2
    group.now = then - 1
    assert burst() == []
    group.now = then
    assert burst() == [(1, 2, (2,)), (2, 2, (1,))]
    assert [lack.copies for lacks in group.parts[0].repair.lacks.values() for lack in lacks.values()] == [1] * 4


@pytest.mark.parametrize("seed", range(20))
def test_gaps_settle_as_by_a_list_of_all_that_was_heard(seed: int):
    """The oracle keeps all that was heard and came, and counts the prefix of the messages anew each time."""
    rng = random.Random(seed)
    kinds = ["heard", "came", "skipped", "settle"]
    events = [(rng.choice(kinds), rng.randrange(2), rng.randrange(4 + place // 20)) for place in range(200)]
    arrivals, grace, now = Arrivals(2), 5, 0
    heard: list[list[tuple[int, int, int]]] = [[], []]
    came: list[set[int]] = [set(), set()]
    passed = [0, 0]
    for what, k, number in events:
        if what == "heard":
            block = (heard[k][-1][0] if heard[k] else 0) + 1 + number % 2
            arrivals.heard(k, block, number, now)
            heard[k].append((block, number, now))
            settling = [k] if passed[k] == len(heard[k]) - 1 else []
            patience = now + 1  # no gap is passed before its time is asked for
        elif what == "settle":
            now += number
            arrivals.settle(now, grace)
            settling, patience = [0, 1], grace
        else:
            if what == "came" and number:
                arrivals.came(k, number)
                came[k].add(number)
            elif what == "skipped":
                arrivals.skipped(k, number)
                came[k].update(range(1, number + 1))
            settling, patience = [], grace
        for one in settling:
            complete = next(length for length in range(len(came[one]) + 1) if length + 1 not in came[one])
            for _, before, since in heard[one][passed[one] :]:
                if before > complete and since + patience > now:
                    break
                passed[one] += 1
        assert arrivals.highest == [some[-1][0] if some else 0 for some in heard]
        assert arrivals.settled == [
            some[length - 1][0] if length else 0 for some, length in zip(heard, passed, strict=True)
        ]


@pytest.mark.parametrize("skipping", [False, True])
@pytest.mark.parametrize("stable", range(5))
def test_what_its_sender_calls_stable_is_let_go_and_announced_once(stable: int, skipping: bool):
    known = Knowledge(0, 3, CausalBlocksOptions(skip_after_ns=5 if skipping else 0))
    for seq, block in ((1, 2), (2, 5), (3, 9)):
        known.enter(BlockMessage(1, seq, block, 0, pack_vector([0, 0, 0]), 0, 0, None, b""), [0, 0, 0], 0)
    gone = min(stable, 3)
    for twice in (True, False):
        step = Step([], [])
        known.let_go(1, stable, step)
        assert known.held == len(known.BM[1]) == 3 - gone
        assert known.stable_seq == [0, gone, 0]
        assert [row[1] for row in known.MLDV] == [(0, 2, 5, 9)[gone], 0, (0, 2, 5, 9)[gone]]
        assert all(row[0] == row[2] == 0 for row in known.MLDV)
        assert step.up == ([Stable(1, gone)] if gone and twice and not skipping else [])


# Windows and buffers


def test_the_window_opens_when_everyone_has_delivered():
    group = Group(2, window=2)
    first, second = group.submit(0), group.submit(0)
    assert not group.parts[0].may_submit(0)
    group.give(1, 0, first, second)
    answer = group.ask(1, 0, group.silence(0))
    group.give(0, 1, answer.pdu)
    assert group.parts[0].may_submit(0)


def test_half_a_window_of_deliveries_is_reported_without_waiting_for_silence():
    group = Group(3, window=4)
    messages = [group.submit(0) for _ in range(3)]
    assert group.give(1, 0, *messages[:2]) == []
    (report,) = group.give(1, 0, messages[2])
    assert report.pdu.kind == "null"


def test_a_sender_that_does_not_keep_to_its_window_is_refused():
    group = Group(2, window=2)
    with pytest.raises(Malformed, match="impossible-window"):
        group.give(1, 0, BlockMessage(0, 3, 3, 0, pack_vector([2, 0]), 0, 0, None, b""))
    for block in (2, 3, 4, 5):  # the same number again and again, with other blocks
        group.give(1, 0, BlockMessage(0, 2, block, 0, pack_vector([1, 0]), 0, 0, None, b""))
    assert group.parts[1].held == 2
    assert group.parts[1].overruns == 2


def _three_waiting(**options: Any) -> tuple[Group, list[Pdu]]:
    """Five messages of which the first is late; priorities 0, 5, 1, 3, 5."""
    group = Group(2, **options)
    messages = [group.submit(0, b"%d" % priority, priority=priority) for priority in (0, 5, 1, 3, 5)]
    group.give(1, 0, *messages[1:])
    return group, messages


def test_a_full_buffer_sheds_the_lowest_priority_and_it_is_recovered():
    group, messages = _three_waiting(buffer=2)
    assert [entry.whole for entry in group.parts[1].known.BM[0].between(0, 99)] == [True, False, False, True]
    group.give(1, 0, messages[0])
    assert group.delivered[1] == [(0, 1), (0, 2)], "the third was shed"
    group.give(1, 0, messages[2], messages[3])
    assert group.delivered[1] == [(0, seq) for seq in (1, 2, 3, 4, 5)]
    assert group.received[1].count((0, 3)) == 1, "received for the first time only once"


def test_what_a_full_buffer_shed_can_be_discarded_in_its_turn():
    group, messages = _three_waiting(buffer=2, shed="discard")
    group.give(1, 0, messages[0])
    assert group.passed[1] == [(0, seq) for seq in (1, 2, 3, 4, 5)]
    assert group.discarded[1] == [(0, 3, "shed"), (0, 4, "shed")]


def test_a_message_that_can_be_delivered_needs_no_place():
    group, messages = _three_waiting(buffer=1)
    group.give(1, 0, messages[0])
    assert (0, 1) in group.delivered[1]


def test_shedding_never_touches_own_messages():
    group = Group(2, buffer=1)
    own = group.submit(1, b"mine", priority=-9)
    others = [group.submit(0, b"theirs", priority=9) for _ in range(3)]
    group.give(1, 0, others[2], others[1])
    entry = group.parts[1].known.BM[1].get(own.block)
    assert entry is not None
    assert entry.whole


# Lifetimes


def test_a_message_expires_by_the_time_that_copies_spent_at_members():
    group = Group(2)
    message = group.submit(0, b"x", lifetime_ns=100)
    group.now = 60
    entry = group.parts[0].known.BM[0].get(message.block)
    assert entry.copy(60).life_ns == 40
    assert (entry.copy(100).life_ns, entry.copy(100).payload) == (0, b"")
    group.give(1, 0, entry.copy(100))
    assert group.discarded[1] == [(0, 1, "expired")]
    assert group.received[1] == [(0, 1)]


def test_a_sender_delivers_its_own_message_whatever_its_lifetime():
    group = Group(2)
    group.submit(0, b"x", lifetime_ns=0)
    assert group.delivered[0] == [(0, 1)]


def test_a_gap_older_than_the_one_lifetime_is_skipped_in_its_causal_turn():
    group = Group(3, skip_after_ns=100)
    a = group.submit(0)
    group.give(1, 0, a)
    group.submit(1)  # b, after a, is lost at 2
    c = group.submit(1)
    group.now = 10
    group.give(2, 1, c)
    group.now = 100
    d = group.submit(1)
    group.give(2, 1, d)
    group.now = 110
    group.wake(2)
    assert group.passed[2] == [], "b comes after a, and nothing is known of a's age"
    group.give(2, 0, a)
    assert group.passed[2] == [(0, 1), (1, 1), (1, 2), (1, 3)]
    assert group.discarded[2] == [(1, 1, "expired"), (1, 2, "expired")]
    assert group.delivered[2] == [(0, 1), (1, 3)], "what comes after the gap comes normally"
    assert group.stable == [[], [], []], "where gaps are skipped nothing is called stable"


# What the wire may say


def written_out(part: object) -> str:
    """Give all that a part and the objects that it is divided into hold."""
    inside = {
        name: written_out(value) if type(value).__module__.startswith("antiphon.protocol.ordering") else repr(value)
        for name, value in vars(part).items()
        if not isinstance(value, msgspec.Struct)
    }
    return repr(inside)


@pytest.mark.parametrize(
    ("pdu", "reason"),
    [
        (BlockMessage(7, 1, 1, 0, pack_vector([0, 0]), 0, 0, None, b""), "impossible-sender"),
        (BlockMessage(0, 1, 1, 0, pack_vector([0, 0, 0]), 0, 0, None, b""), "vector-length"),
        (BlockMessage(0, 1, 1, 2, pack_vector([0, 0]), 0, 0, None, b""), "impossible-stamps"),
        (BlockMessage(0, 1, 1, 0, pack_vector([1, 0]), 0, 0, None, b""), "impossible-stamps"),
        (BlockMessage(0, 1, 5, 0, pack_vector([0, 4]), 0, 0, None, b""), "never-sent"),
        (BlockMessage(1, 1, 5, 0, pack_vector([0, 0]), 0, 0, None, b""), "never-sent"),
        (BlockMessage(0, 3, 5, 0, pack_vector([0, 0]), 2, 0, None, b""), "never-delivered"),
        (NullBlock(9, 0, pack_vector([0, 0]), 1, 2, False, [], 0), "impossible-window"),
        (NullBlock(9, 0, pack_vector([0, 0]), 2**32 - 1, 0, False, [], 0), "impossible-window"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(pdu: Pdu, reason: str):
    group = Group(2)
    before = written_out(group.parts[1])
    with pytest.raises(Malformed, match=reason):
        group.give(1, 0, pdu)
    assert written_out(group.parts[1]) == before


def test_when_the_block_numbers_of_a_view_are_used_up_nothing_more_is_sent_and_nothing_breaks():
    group = Group(2)
    group.give(1, 0, BlockMessage(0, 1, 2**32 - 1, 0, pack_vector([0, 0]), 0, 0, None, b""))
    assert group.delivered[1] == [(0, 1)]
    assert not group.parts[1].may_submit(0)
    (answer,) = group.give(1, 0, NullBlock(2**32 - 1, 0, pack_vector([0, 0]), 1, 0, True, [], 0)) or [None]
    assert answer is None, "not newer than the message"


def test_options_are_checked_by_name():
    with pytest.raises(UsageError, match="window"):
        GroupOptions(ordering="causal-blocks", ordering_options={"window": 0}).check(3)
    with pytest.raises(UsageError, match=r"ordering\.repair_delay_ns: .* overrun"):
        GroupOptions(ordering="causal-blocks", ordering_options={"repair_delay_ns": 0}).check(3)
    with pytest.raises(UsageError, match="shed"):
        GroupOptions(ordering="causal-blocks", ordering_options={"shed": "burn"}).check(3)


# Cost


def test_without_loss_nobody_is_suspected_and_each_message_counts_each_member_once(monkeypatch: pytest.MonkeyPatch):
    suspicions, learnt = [], []
    plain = Knowledge.know

    def know(self: Knowledge, j: int, k: int, block: int, step: Any) -> None:
        learnt.append(len(list(self.BM[k].between(self.MLDV[j][k], block + 1))) if j != k else 0)
        plain(self, j, k, block, step)

    def suspect(self: Repair, j: int, below: int, suspects: Any) -> Any:
        suspicions.append(j)
        return iter(())

    monkeypatch.setattr(Knowledge, "know", know)
    monkeypatch.setattr(Repair, "retransmission_condition", suspect)
    members, messages = 8, 20
    run = simulate(
        Scenario.of(
            "paper",
            members=members,
            messages=messages,
            ordering="causal-blocks",
            network=NetworkOptions(latency="fixed 2ms"),
            workload=Workload(interval="fixed 10ms"),
        )
    )
    assert run.finished
    assert suspicions == []
    # at each of n members, each message is counted down once for each of at most n - 1 others
    assert sum(learnt) <= members * (members - 1) * members * messages


# Schedules


def _drawn(seed: int) -> dict[str, Any]:
    rng = random.Random(f"{seed}/causal blocks")
    options: dict[str, Any] = {
        "window": rng.choice((1, 2, 6)),
        "burst": rng.choice((1, 4, 16)),
        "buffer": rng.choice((0, 1, 2)),
        "shed": rng.choice(("recover", "discard")),
        "loss": rng.choice((0.0, 0.1, 0.2, 0.4)),
        "messages": rng.choice((1, 3, 6)),
        "lifetime_ms": rng.choice((None, None, 20, 200)),
        "priorities": rng.choice((1, 3)),
    }
    if options["lifetime_ms"] and rng.random() < 0.5:
        options["skip_after_ns"] = options["lifetime_ms"] * MILLISECOND
    return {"size": rng.randint(2, 6), **options}


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(4))
def test_any_schedule_is_delivered_in_causal_order_and_drains_and_falls_silent(hundred: int):
    for seed in range(100 * hundred, 100 * hundred + 100):
        group = Adversary(seed=seed, **_drawn(seed))
        assert group.run() is None, f"seed {seed}"
        assert group.refused == 0, f"seed {seed}: a correct member's word was refused"
        assert group.quiet(), f"seed {seed}: someone never falls silent"


@pytest.mark.parametrize("name", MUTANTS)
def test_the_schedules_catch_every_mutant(name: str):
    ordering, _ = MUTANTS[name]
    assert any(Adversary(3 + seed % 2, seed, ordering, window=2).run(6_000) for seed in range(12))


def _scenario(**changes: Any) -> Scenario:
    usual = Scenario.of(
        "paper",
        members=5,
        messages=20,
        ordering="causal-blocks",
        network=NetworkOptions(loss=0.2, duplicate=0.1, reorder=0.2),
        workload=Workload(interval="exponential 5ms"),
    )
    return msgspec.structs.replace(usual, **changes)


@pytest.mark.parametrize(
    "scenario",
    [
        _scenario(),
        _scenario(network=NetworkOptions(loss=0.6)),
        _scenario(faults=[Fault(kind="partition", at="20ms", until="3s", groups=[[0, 1]])]),
        _scenario(faults=[Fault(kind="cut", at="0", until="2s", source=[0], target=[1, 2, 3])]),
        _scenario(workload=Workload(interval="exponential 5ms", lifetime="40ms", priorities=3)),
        _scenario(workload=Workload(interval="exponential 2ms", priorities=3), ordering_options={"buffer": 3}),
        _scenario(ordering_options={"window": 1, "burst": 1}),
    ],
    ids=["lossy", "very lossy", "partition", "cut", "lifetimes", "priorities", "smallest window"],
)
def test_simulated_runs_hold_what_is_promised(scenario: Scenario):
    run = simulate(scenario, seed=3)
    assert run.finished
    verdicts = check(run.events, guarantees=scenario.promises(), global_clock=True)
    assert {name: verdict.verdict for name, verdict in verdicts.items()} == dict.fromkeys(scenario.promises(), "holds")


def test_a_member_carries_causal_blocks():
    view, config = View(1, (4, 9)), GroupOptions(ordering="causal-blocks")
    members = {me: Member(me, view, config, random.Random(me)) for me in view.members}
    effects = members[4].handle(Submit(b"hello"), 0)
    assert Deliver(4, 1, b"hello") in effects
    (datagram,) = [effect.datagram for effect in effects if isinstance(effect, Send)]
    assert Deliver(4, 1, b"hello") in members[9].handle(Receive(datagram), 1)


def test_what_was_discarded_as_expired_helps_others_and_what_was_shed_does_not():
    entry = Entry(BlockMessage(0, 1, 1, 0, pack_vector([0, 0]), 0, 0, None, b"x"), [0, 0], None, 1)
    assert entry.sendable
    entry.strip()
    assert not entry.sendable, "the payload is gone, and it has not expired"
    entry.discard = "shed"
    assert not entry.sendable
    entry.discard = "expired"
    assert entry.sendable, "the news that it has expired is all that others need"


def test_a_discarded_message_keeps_its_stamps_alone():
    group = Group(2)
    entry = group.parts[1].known.enter(group.submit(0, b"payload"), [0, 0], 0)
    group.parts[1].delivery.buffer.add(entry)
    entry.discard = "expired"
    group.parts[1].delivery.end_wait(entry)
    assert (entry.message.payload, entry.message.block) == (b"", 1)
    assert group.parts[1].delivery.buffer.waiting == {}


def test_the_survivors_of_a_view_deliver_up_to_what_was_agreed_and_fill_in_what_was_shed():
    group = Group(2)
    first, second = group.submit(0, b"one"), group.submit(0, b"two")
    receiver = group.parts[1]
    with pytest.raises(Malformed, match="unexpected"):
        receiver.adopt(1, first)
    assert receiver.adopt(0, first).up == [Received(0, 1)]
    assert receiver.adopt(0, second).up == [Received(0, 2)]
    entry = receiver.known.BM[0].get(first.block)
    assert entry is not None
    entry.strip()
    assert receiver.adopt(0, first).up == [], "it was received before"
    assert receiver.finish([first.block, 0], b"").up == [Deliver(0, 1, b"one")]
    assert receiver.finish([second.block, 0], b"").up == [Deliver(0, 2, b"two")]


def test_ones_own_message_that_another_sends_again_is_only_a_copy():
    group = Group(2)
    message = group.submit(0)
    group.give(0, 1, message)
    assert group.received[0] == group.delivered[0] == [(0, 1)]
    never_sent = msgspec.structs.replace(message, block=message.block + 1)
    with pytest.raises(Malformed, match="never-sent"):
        group.parts[0].receive(1, never_sent, 0)


def test_a_life_that_was_over_before_it_began_is_no_life_at_all():
    group = Group(2)
    assert group.submit(0, b"x", lifetime_ns=-5).life_ns == 0
    assert group.submit(0, b"x", lifetime_ns=7).life_ns == 7


def test_a_last_message_of_which_only_a_null_tells_is_skipped_like_any_gap():
    group = Group(2, skip_after_ns=100)
    group.submit(0)  # lost
    null = group.silence(0)
    group.give(1, 0, null)
    began = group.now
    group.now = began + 99
    group.wake(1)
    assert group.passed[1] == []
    group.now = began + 100
    group.wake(1)
    assert group.discarded[1] == [(0, 1, "expired")]


def test_what_lapsed_and_was_let_go_makes_no_more_room_in_the_window():
    """Messages that have outlived their time take slots of the lag; once they are stable they take none."""
    group = Group(2, window=2, lag=2)
    part = group.parts[0]
    messages = [group.submit(0, b"x", lifetime_ns=10) for _ in range(2)]
    assert not part.may_submit(0)
    group.now = 10
    group.wake(0)
    assert part.may_submit(0), "both have lapsed"
    group.give(1, 0, *messages)
    group.give(0, 1, group.submit(1))  # 1 has delivered them
    group.submit(0)
    assert part.may_submit(0)
    group.submit(0)
    assert not part.may_submit(0), "two that live fill the window"


def test_shedding_frees_a_place_for_each_message_that_it_gives_up():
    group = Group(2, buffer=1, window=8)
    first = group.submit(0)
    later = [group.submit(0, b"%d" % number) for number in range(4)]
    for message in later:  # the first is missing, so all of them wait
        group.give(1, 0, message)
    waiting = group.parts[1].delivery.buffer.waiting
    assert [key for key, entry in waiting.items() if entry.whole] == [(0, 2)], "the nearest to its delivery stays"
    group.give(1, 0, first)
    assert group.delivered[1] == [(0, 1), (0, 2)]
    group.give(1, 0, *later[1:])
    assert group.delivered[1] == [(0, number) for number in range(1, 6)]
    group.submit(0)  # lost
    group.give(1, 0, group.submit(0))
    assert [entry.whole for entry in waiting.values()] == [True], "all places are free again"


def test_mb_waits_for_what_is_missing_in_between_as_long_as_it_may_be_late():
    """By the paper it does not wait: where messages overtake each other everyone would then send again what comes."""
    group = Group(2, grace_ns=100)
    first = group.submit(0)
    group.give(1, 0, first)
    assert group.submit(1).mb == first.block, "nothing is missing"
    group.submit(0)  # lost, or late
    third = group.submit(0)
    group.give(1, 0, third)
    assert group.submit(1).mb == first.block
    group.now = 100
    assert group.submit(1).mb == third.block
