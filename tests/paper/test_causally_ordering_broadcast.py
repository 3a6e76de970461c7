"""The CO paper sentence by sentence: its examples as they are printed, and where a printed rule fails, the failure.

A printed rule that is wrong is put in the place of ours, and shown to fail where ours does not.
Entities are numbered from 1 in the paper and from 0 here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pytest

from antiphon.papers.causally_ordering_broadcast import (
    EVEN,
    SKEWED,
    TABLE_1,
    LossCost,
    PrintedRetransmission,
    R,
    cost,
    example_to_the_end,
    example_until,
    isolated,
    isolated_claim,
    one_loss,
    reproduce,
    saturated,
)
from antiphon.protocol.machine import SECOND, Submit
from antiphon.protocol.ordering.co import Co, CoOptions
from antiphon.protocol.ordering.co.flow import FlowCondition
from antiphon.protocol.ordering.co.levels import AtomicReceipt
from antiphon.protocol.ordering.co.logs import Logged, insertion_place, precedes
from antiphon.protocol.ordering.co.pdus import CoConfirm, CoProbe, CoRet
from antiphon.protocol.ordering.co.probes import Probes
from antiphon.protocol.parts import Out, Step
from antiphon.protocol.rules import replaced
from antiphon.protocol.wire import pack_vector
from antiphon.trace.naive import check
from support.broken_claims import recomputed
from support.co_world import World


def pdu(source: int, number: int, *ack: int) -> Logged:
    """Write a PDU as the paper does, its source counted from 1."""
    return Logged(source - 1, number, ack, 0, b"")


# Examples 4.1 and 4.2


@pytest.mark.parametrize("letter", TABLE_1)
def test_table_1(letter: str) -> None:
    example = example_until("h")
    assert (example.pdus[letter][1].number, example.ack(letter)) == TABLE_1[letter]


def test_example_4_1_on_acceptance_of_d() -> None:
    for part in example_until("d").parts:
        assert part.acceptance.req == [3, 2, 2]
        assert part.receipt.al.rows == [[2, 3, 2], [1, 1, 1], [1, 2, 1]]
        assert part.receipt.al.least[0] == 2  # a, and it alone, is pre-acknowledged
        assert [(p.source, p.number) for p in part.receipt.prl] == [(0, 1)]


def test_example_4_1_on_acceptance_of_h() -> None:
    example = example_until("h")
    for rank, part in enumerate(example.parts):
        assert part.acceptance.req == [5, 3, 3]
        assert part.receipt.al.rows == [[4, 4, 5], [2, 2, 3], [2, 2, 2]]
        assert example.pre_acknowledged[rank] == "acbde"
        assert "".join((p.payload or b"").decode() for p in part.receipt.prl) == "cbde"  # a is acknowledged by then


def test_example_4_1_places_of_d_and_b() -> None:
    letters = {"a": 1, "b": 3, "c": 1, "d": 2, "e": 1}
    a, b, c, d, e = (pdu(source, TABLE_1[letter][0], *TABLE_1[letter][1]) for letter, source in letters.items())
    assert insertion_place([a, c, e], d) == 2
    assert insertion_place([a, c, d, e], b) == 2


def test_example_4_2() -> None:
    example = example_to_the_end()
    for rank, part in enumerate(example.parts):
        assert part.receipt.pal.rows == [[4, 4, 5], [2, 2, 3], [2, 2, 2]]
        assert example.delivered[rank] == "acbde"


def test_theorem_4_1_and_lemma_4_2_in_the_example() -> None:
    sources = dict(zip("abcdefgh", (1, 3, 1, 2, 1, 1, 2, 3), strict=True))
    pdus = {letter: pdu(source, TABLE_1[letter][0], *TABLE_1[letter][1]) for letter, source in sources.items()}
    before = {letter: {other for other in pdus if precedes(pdus[other], pdus[letter])} for letter in pdus}
    assert before == {
        "a": set(), "b": {"a"}, "c": {"a"}, "d": set("abc"), "e": set("abcd"), "f": set("abcde"),
        "g": set("abcde"), "h": set("abcdefg"),
    }  # fmt: skip
    for letter, others in before.items():
        for other in others:
            assert all(x <= y for x, y in zip(pdus[other].ack, pdus[letter].ack, strict=True))


# Erratum 1: precedence by sequence numbers is not transitive unless acceptance is causal


def anywhere_in_prl(self: AtomicReceipt, p: Logged, start: int) -> int:
    """What was pre-acknowledged before may well succeed it."""
    return insertion_place(self.prl, p)


# A PDU is accepted if it is the next of its source, whatever else is missing
PrintedAcceptance = replaced(Co, acceptance_condition=lambda self, p, start: None, insertion_place=anywhere_in_prl)


def lost_predecessor(kind: type[Co], seed: int) -> World:
    """Lose E1's p at E3; let E2's r, sent after p, reach E3 and not E1; let E3 send q. Then do the worst."""
    world = World(3, CoOptions(), kind, seed)
    world.submit(0)
    world.arrive(0, 1)
    world.lose(0, 2)
    world.submit(1)
    world.arrive(1, 2)
    world.lose(1, 0)
    world.submit(2)
    world.torture(300, 0.4, 0, 0)
    world.settle()
    assert world.complete()
    return world


def test_printed_acceptance_makes_precedence_intransitive() -> None:
    world = World(3, CoOptions(), PrintedAcceptance)
    world.submit(0)
    world.arrive(0, 1)
    world.submit(1)
    world.arrive(1, 2)
    world.submit(2)
    p, r, q = (world.parts[rank].receipt.rrl[rank][0] for rank in (0, 1, 2))
    assert precedes(p, r)
    assert precedes(r, q)
    assert not precedes(p, q)
    assert list(q.ack) == [1, 2, 1]


def test_causal_acceptance_holds_back_what_lacks_a_predecessor() -> None:
    world = World(3)
    world.submit(0)
    world.arrive(0, 1)
    world.submit(1)
    world.arrive(1, 2)
    assert world.received[2] == set()
    world.arrive(0, 2)
    assert world.received[2] == {(0, 1), (1, 1)}


def test_printed_acceptance_delivers_effect_before_cause() -> None:
    r_q_p = [(1, 1), (2, 1), (0, 1)]
    printed = [lost_predecessor(PrintedAcceptance, seed) for seed in range(80)]
    assert any(world.delivered[1] == world.delivered[2] == r_q_p for world in printed)
    assert not any(lost_predecessor(Co, seed).wrong for seed in range(80))


def test_only_causality_that_counts_receipts_shows_it() -> None:
    seen = {"receive": 0, "deliver": 0}
    for seed in range(40):
        events = lost_predecessor(PrintedAcceptance, seed).events
        for counted in ("receive", "deliver"):
            seen[counted] += check(events, guarantees=["causal"], happened_before=counted)["causal"].violations
        ours = check(lost_predecessor(Co, seed).events, happened_before="receive", global_clock=True)
        assert all(ours[name].verdict == "holds" for name in ("causal", "fifo", "agreement", "validity", "stability"))
    assert seen["receive"] > 0
    assert seen["deliver"] == 0


# Erratum 2: the insertion rule


def printed_place(log: Sequence[Logged], p: Logged) -> int | None:
    """Find a place by the printed CPI operation, if it gives one."""
    if not log or all(precedes(q, p) for q in log):
        return len(log)
    if not any(precedes(p, q) or precedes(q, p) for q in log):
        return len(log)
    if all(precedes(p, q) for q in log):
        return 0
    places = [
        place for place in range(1, len(log)) if not precedes(p, log[place - 1]) and precedes(p, log[place])
    ]  # fmt: skip
    return places[0] if places else None


INSERTIONS = [
    ([pdu(1, 1, 1, 1, 2), pdu(2, 1, 1, 1, 1)], pdu(3, 1, 1, 1, 1), None, 0),
    ([pdu(1, 1, 1, 1, 1), pdu(2, 1, 1, 1, 1)], pdu(3, 1, 2, 1, 1), None, 2),
    ([pdu(1, 1, 1, 1, 1, 2), pdu(2, 1, 1, 1, 1, 1), pdu(3, 1, 1, 1, 1, 2)], pdu(4, 1, 1, 1, 1, 1), 2, 0),
]


@pytest.mark.parametrize(("log", "p", "printed", "right"), INSERTIONS)
def test_insertion(log: list[Logged], p: Logged, printed: int | None, right: int) -> None:
    assert printed_place(log, p) == printed
    assert insertion_place(log, p) == right
    after = [*log[:right], p, *log[right:]]
    assert not any(precedes(later, earlier) for i, earlier in enumerate(after) for later in after[i + 1 :])


# Erratum 3: the PACK action


def one_a_source(self: AtomicReceipt, sources: Iterable[int], step: Step) -> bool:
    """One PDU a source and event, as "if" says."""
    once = list(sources)
    logs = [self.rrl[source] for source in once]
    tails = [[log.pop() for _ in range(len(log) - 1)] for log in logs]
    messages = AtomicReceipt.pack_action(self, once, step)
    for log, tail in zip(logs, tails, strict=True):
        log.extend(reversed(tail))
    return messages


PrintedPackAction = replaced(Co, pack_action=one_a_source)


def test_pack_action_takes_all_that_is_pre_acknowledged() -> None:
    assert example_until("h").pre_acknowledged[0] == "acbde"
    printed = example_until("h", PrintedPackAction)
    assert "e" not in printed.pre_acknowledged[0]
    assert printed.parts[0].receipt.pack_condition(
        printed.parts[0].receipt.rrl[0][0]
    )  # it waits although the condition holds


# Errata 4 and 5: RET ranges and storms


def test_figure_6_the_range_ends_before_lseq() -> None:
    sent_again = {}
    for kind in (Co, PrintedRetransmission):
        part = World(2, CoOptions(), kind).parts[0]
        for seq in range(1, 7):
            part.submit(Submit(b""), seq, 0)
        # REQ = 4, and p with SEQ = 5 has come: only g, 4, is lost
        part.receive(1, CoRet(pack_vector([4, 1]), 9, [(0, [(4, 5)])]), SECOND)
        sent_again[kind] = [out.seq for out in part.wake(2 * SECOND).down if isinstance(out, Out) and out.repair]
    assert sent_again == {Co: [4], PrintedRetransmission: [4, 5]}


@pytest.mark.parametrize("condition", [1, 2])
def test_figure_6_both_failure_conditions_ask_for_g(condition: int) -> None:
    world = World(3)
    for _ in range(5):
        world.submit(0)
    for _ in range(3):
        world.arrive(0, 2)
    if condition == 1:
        world.lose(0, 2)
        world.arrive(0, 2)
    else:
        for _ in range(4):
            world.arrive(0, 1)
        world.submit(1)
        world.arrive(1, 2)
    assert world.parts[2].acceptance.req[0] == 4
    world.now += 2 * world.parts[2].options.ret_grace_ns
    world.wake(2)
    (ret,) = (out.pdu for out in world.sendings if isinstance(out.pdu, CoRet))
    assert isinstance(ret, CoRet)
    assert ret.asks == [(0, [(4, 5)])]


@pytest.mark.parametrize("latency", [EVEN, SKEWED])
def test_one_loss_among_twenty_causes_one_ret_and_one_rebroadcast(latency: str) -> None:
    assert one_loss(Co, 20, latency) == LossCost(1, 1)
    printed = one_loss(PrintedRetransmission, 20, latency)
    assert printed.rets > 10
    assert printed.rebroadcasts > printed.rets


# Erratum 6: the flow condition


def all_are_subject(self: FlowCondition) -> bool:
    """All PDUs count for the window."""
    own = self.acceptance.rank
    self.buf[own] = self.acceptance.free
    window = min(self.buf) // (self.options.headroom * self.acceptance.size)
    return self.acceptance.req[own] < self.acceptance.receipt.al.least[own] + min(self.options.window, window)


def confirms_in_the_window(self: Co) -> bool:
    """Confirmations are subject to the window too."""
    return Co.may_confirm(self) and self.flow.flow_condition()


def not_rounded(self: FlowCondition) -> bool:
    """The quotient is not rounded."""
    self.buf[self.acceptance.rank] = self.acceptance.free
    places = min(self.buf) / (self.options.headroom * self.acceptance.size)
    return self.log.outstanding < min(self.options.window, places)


def waits_for_messages(self: Probes) -> bool:
    """A sender without credit asks nobody."""
    return self.flow.acceptance.receipt.undelivered > 0


PrintedFlow = replaced(Co, flow_condition=all_are_subject, may_confirm=confirms_in_the_window)
RealDivision = replaced(Co, flow_condition=not_rounded)
# The others' buffers are taken for full until they say something, and nobody is asked
EmptyBuffers = replaced(Co, first_buf=lambda self: 0, silence_matters=waits_for_messages)


def all_send(kind: type[Co], size: int, options: CoOptions, messages: int = 1) -> World:
    """Let everyone send, with no loss at all."""
    world = World(size, options, kind)
    for rank in range(size):
        for _ in range(messages):
            world.submit(rank)
    world.settle(wakes_max=300)
    return world


@pytest.mark.parametrize(
    ("kind", "size", "options", "messages"),
    [
        (PrintedFlow, 2, CoOptions(window=1, headroom=1, buffer=100), 1),
        (PrintedFlow, 3, CoOptions(window=1, headroom=1, buffer=3), 1),
        (EmptyBuffers, 2, CoOptions(), 1),
        (RealDivision, 2, CoOptions(window=1, headroom=1, buffer=3), 12),
    ],
)
def test_printed_flow_deadlocks_without_loss(kind: type[Co], size: int, options: CoOptions, messages: int) -> None:
    assert not all_send(kind, size, options, messages).complete()
    assert all_send(Co, size, options, messages).complete()


def test_real_division_overruns() -> None:
    options = CoOptions(window=1, headroom=1, buffer=3)
    assert sum(part.acceptance.overruns for part in all_send(RealDivision, 2, options, 12).parts) > 0
    assert sum(part.acceptance.overruns for part in all_send(Co, 2, options, 12).parts) == 0


# Erratum 7: the last message


# Losses are noticed by the two failure conditions alone
NoProbe = replaced(Co, silence_matters=lambda self: False)


@pytest.mark.parametrize(("kind", "complete"), [(NoProbe, False), (Co, True)])
def test_the_last_message_is_recovered(kind: type[Co], complete: bool) -> None:
    world = World(2, CoOptions(), kind)
    world.submit(0)
    world.lose(0, 1)
    assert world.settle()
    assert world.complete() is complete
    assert any(isinstance(out.pdu, CoProbe) for out in world.sendings) is complete


# Erratum 8: quiescence


# A PDU is sent after one was received from each, or after some time, whatever there is to say
PrintedDeferral = replaced(Co, confirmation_owed=lambda self: bool(self.heard))


@pytest.mark.parametrize(("kind", "silent"), [(PrintedDeferral, False), (Co, True)])
def test_silence_follows(kind: type[Co], silent: bool) -> None:
    world = World(3, CoOptions(), kind)
    world.submit(0)
    assert world.settle(wakes_max=500) is silent
    confirmations = sum(isinstance(out.pdu, CoConfirm) for out in world.sendings)
    assert confirmations == 6 if silent else confirmations > 100


# Erratum 9: confirmations need not enter PRL


def test_only_data_enters_prl() -> None:
    seen = 0

    def watched(self: AtomicReceipt, p: Logged, start: int) -> int:
        nonlocal seen
        seen += 1
        assert p.payload is not None
        return AtomicReceipt.insertion_place(self, p, start)

    world = World(3, CoOptions(), replaced(Co, insertion_place=watched))
    world.submit(0)
    world.settle()
    assert world.complete()
    assert seen == 3


# Erratum 11: delays, with R = 1


def test_an_isolated_message_in_the_least_time_with_2n_confirmations() -> None:
    """Both come out in one setting: immediate confirmations."""
    levels = isolated(3, defer_ns=1)
    assert levels.accepted == [0, 1, 1]
    assert levels.pre_acknowledged == [2, 3, 3]
    assert levels.acknowledged == [4, 4, 4]
    assert levels.confirmations == 6


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("defer_ns", [1, R // 2, 2 * R])
def test_an_isolated_message_costs_2n_confirmations_however_long_they_are_deferred(size: int, defer_ns: int) -> None:
    assert isolated(size, defer_ns).confirmations == 2 * size


def test_an_isolated_message_would_take_2r_if_pre_acknowledgment_were_enough_to_deliver() -> None:
    assert not isolated_claim().agrees
    assert isolated_claim(replaced(Co, ack_condition=lambda self, p: True)).agrees
    deferred = replaced(Co, ack_condition=lambda self, p: True, deferral_ns=lambda self: R)
    assert not isolated_claim(deferred).agrees, "and if all confirm at once"


@pytest.mark.parametrize("size", [3, 5])
def test_saturated_traffic_is_acknowledged_2r_after_receipt_and_3r_after_sending(size: int) -> None:
    sender, receivers = saturated(size, 400)
    assert (round(sender, 2), round(receivers, 2)) == (3.00, 2.00)


# Erratum 12: cost


def test_a_message_costs_o_n() -> None:
    per_member = [cost(size, 24).visits / size for size in (4, 16, 48)]
    assert max(per_member) < 6
    assert max(per_member) - min(per_member) < 0.5


def test_recomputed_minima_cost_o_n_squared() -> None:
    per_member = [cost(size, 12, replaced(Co, raise_column=recomputed)).visits / size for size in (8, 16, 32)]
    assert per_member[1] > 1.7 * per_member[0]
    assert per_member[2] > 1.7 * per_member[1]


# The reproduction as a whole


@pytest.mark.slow
def test_reproduction_says_where_we_agree() -> None:
    done: list[tuple[int, int]] = []
    outcome = reproduce(None, quick=True, progress=lambda *at: done.append(at))
    assert done[-1][0] == done[-1][1]
    examples = [claim.agrees for claim in outcome.claims if re.match("Table 1|Figure [2367]", claim.where)]
    assert examples == [True] * 9
    assert not outcome.figures
    assert {table.name for table in outcome.tables} == {"table1", "figure8", "delay", "losses"}
