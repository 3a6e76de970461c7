"""What makes each claim of the five papers come out the other way: a broken rule, or the rule that a paper meant.

A claim that no broken protocol can change says nothing of the protocol. `BREAKS` has, for each claim of the book by
the beginning of its words, the claims as they are and as they are then: `agrees` must differ. What a paper merely
calculates, without a protocol, is in `ARITHMETIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import msgspec

from antiphon.papers import causally_ordering_broadcast as co
from antiphon.papers import hierarchical, robust_causal_order, timestamp_acknowledgments, tomp_total_order
from antiphon.papers.acknowledging_group import PERIOD_MS
from antiphon.papers.claims import PaperClaim
from antiphon.papers.hierarchical import MeasuredTrees
from antiphon.papers.timestamp_acknowledgments import Formulas, timestamp_latency_as_printed, vector_latency
from antiphon.protocol.machine import Deliver, Duration, Instant
from antiphon.protocol.membership.pairwise import SenderSide
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.causal_blocks import CausalBlocks
from antiphon.protocol.ordering.causal_blocks.matrix import Entry
from antiphon.protocol.ordering.causal_blocks.repair import Lack, Repair
from antiphon.protocol.ordering.co import Co, CoOptions
from antiphon.protocol.ordering.co.confirmations import Confirmations
from antiphon.protocol.ordering.co.levels import AtomicReceipt
from antiphon.protocol.ordering.co.logs import Logged
from antiphon.protocol.ordering.co.losses import Losses
from antiphon.protocol.ordering.co.minima import Minima
from antiphon.protocol.ordering.tomp import BoundingDecision, Box, ListBox, Tomp
from antiphon.protocol.ordering.two_phase import Decision, Proposal, TwoPhase, Waiting
from antiphon.protocol.parts import PartContext, Step
from antiphon.protocol.rules import replaced
from antiphon.protocol.stability.timestamp_ack import Ack, TimestampAck
from antiphon.protocol.wire import Pdu, pack_vector, unpack_vector
from antiphon.sim.lan import Lan, LanRound
from antiphon.sim.rounds import CoordinatorHost, RoundHost, TrainHost
from antiphon.sim.trees import Tree, near_complete
from support.mutants_causal_blocks import PrintedTransmitter, keep_counter
from support.mutants_two_phase import TompWithSeparateBox

Claims: TypeAlias = Callable[[], Sequence[PaperClaim]]

# --- Causally Ordering Broadcast Protocol. ---


def recomputed(self: Minima, j: int, vector: Sequence[int]) -> list[int]:
    """Every minimum is found anew for every PDU."""
    risen = Minima.raise_column(self, j, vector)
    self.visits += len(self.rows) * len(self.rows)
    return risen


def one_late(self: Minima, j: int, vector: Sequence[int]) -> list[int]:
    """What others have is believed one PDU late."""
    return Minima.raise_column(self, j, [max(1, number - 1) for number in vector])


def half_for_all(self: Minima, j: int, vector: Sequence[int]) -> list[int]:
    """What half of the group is known to have is taken for what all have."""
    risen = []
    self.visits += 3 * len(vector)
    for k, number in enumerate(vector):
        row = self.rows[k]
        row[j] = max(row[j], number)
        middle = sorted(row)[len(row) // 2]
        if middle > self.least[k]:
            self.least[k] = middle
            risen.append(k)
    return risen


class OwnAtOnce(AtomicReceipt):
    """A member delivers its own messages when they are pre-acknowledged, whatever precedes them."""

    own: int

    def ack_action(self, step: Step) -> None:
        early = [p for p in self.prl if p.source == self.own]
        for p in early:
            assert p.payload is not None
            self.prl.remove(p)
            self.acknowledged[p.source] = p.seq
            self.undelivered -= 1
            step.up.append(Deliver(p.source, p.seq, p.payload))
        super().ack_action(step)


class HastySender(Co):
    """CO whose senders do not wait for acknowledgment."""

    receipt_type = OwnAtOnce

    def __init__(self, context: PartContext, options: CoOptions) -> None:
        super().__init__(context, options)
        assert isinstance(self.receipt, OwnAtOnce)
        self.receipt.own = context.rank


def at_the_tail(self: AtomicReceipt, p: Logged, start: int) -> int:
    """What is pre-acknowledged together stays in the order of the sources."""
    return len(self.prl)


def ask_for_more(self: Losses, source: int, end: int, req: int, hearsay: bool, now: Instant) -> None:
    """A request asks for one PDU more than is known to be lost."""
    Losses.notice(self, source, end + 1, req, hearsay, now)


def confirms_three_times(self: Confirmations) -> bool:
    """A message is confirmed once more than it takes."""
    said = self.__dict__.setdefault("said", [0])
    owed = Confirmations.confirmation_owed(self) or (0 < said[0] < 3 and len(self.heard) == self.size - 1)
    if owed and self.due_at is None:
        said[0] += 1
    return owed


@cache
def co_example(**rules: Any) -> list[PaperClaim]:
    return co.example_claims(replaced(Co, **rules) if rules else Co)[0]


@cache
def co_figures(**rules: Any) -> list[PaperClaim]:
    return co.figure_claims(replaced(Co, **rules) if rules else Co)


@cache
def co_costs(**rules: Any) -> list[PaperClaim]:
    kind = replaced(Co, **rules) if rules else Co
    return co.cost_claims([co.cost(size, 12, kind) for size in (2, 4, 8, 24)])


@cache
def co_delays(kind: type[Co] = Co) -> list[PaperClaim]:
    confirmations = [co.isolated(size, defer, kind).confirmations for defer in (2 * co.R, 1) for size in (2, 3)]
    sender, others = co.saturated(3, 200, kind)
    waits = dict.fromkeys((2, 3), (others, sender))
    return co.delay_claims(co.Delays(waits, waits, confirmations[:2], confirmations[2:]))


def co_losses(printed: type[Co] = co.PrintedRetransmission) -> list[PaperClaim]:
    latencies = (co.EVEN, co.SKEWED)
    return co.loss_claims({(5, one): (co.one_loss(printed, 5, one), co.one_loss(Co, 5, one)) for one in latencies})


CO: dict[str, tuple[Claims, Claims]] = {
    "SEQ and ACK of the eight": (co_example, partial(co_example, is_next=lambda self, p: False)),
    "REQ and AL on acceptance of d": (co_example, partial(co_example, raise_column=one_late)),
    "REQ and AL on acceptance of h": (co_example, partial(co_example, raise_column=one_late)),
    "order in which PRL takes": (co_example, partial(co_example, insertion_place=at_the_tail)),
    "PAL when h is pre-acknowledged": (co_example, partial(co_example, raise_column=one_late)),
    "PDUs acknowledged then, in order": (co_example, partial(co_example, insertion_place=at_the_tail)),
    "E_k, which receives g, q, p": (
        co_figures,
        partial(co_figures, acceptance_condition=lambda self, p, start: None),
    ),
    "a is pre-acknowledged in E3": (co_figures, partial(co_figures, ack_condition=lambda self, p: True)),
    "ACK_j and LSEQ of the RET": (co_figures, partial(co_figures, notice=ask_for_more)),
    "the processing overhead": (co_costs, partial(co_costs, raise_column=recomputed)),
    "a PDU is acknowledged when 2nW": (co_costs, partial(co_costs, raise_column=half_for_all)),
    "it takes 2R from acceptance": (co_delays, partial(co_delays, HastySender)),
    "the same for an isolated message": (
        lambda: [co.isolated_claim()],
        lambda: [co.isolated_claim(replaced(Co, ack_condition=lambda self, p: True))],
    ),
    "deferred confirmation": (
        co_delays,
        partial(co_delays, replaced(Co, confirmation_owed=confirms_three_times)),
    ),
    "only the PDUs lost": (co_losses, partial(co_losses, Co)),
}

# --- A Robust Causal Order Protocol. ---


def as_soon_as_sent(self: Repair, j: int) -> int:
    """Whatever a member has not delivered is taken for missing there."""
    return 2**32


def any_that_is_missing(self: Repair, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
    """Any of those that a member misses is sent again first, whether it can deliver it or not."""
    for k in suspects:
        missing = [*self.known.BM[k].between(self.known.MLDV[j][k], below)]
        yield self.random.choice(missing[:3])


def in_ten_silences(self: Repair, lack: Lack, now: Instant) -> Duration | None:
    """A message is sent again after a long time."""
    return 10 * self.options.silence_ns


def by_its_sender(self: Repair, lack: Lack, now: Instant) -> Duration | None:
    """Nobody but a message's sender sends it again."""
    return 0 if lack.entry.message.sender == self.known.rank else None


def whatever_the_timeout(self: Repair, lack: Lack, now: Instant) -> Duration | None:
    """The random timeout is not what the option says."""
    return self.random.randint(0, 5_000_000)


def living_only(self: Repair, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
    """What has expired is not sent again, not even the news of it."""
    found = Repair.retransmission_condition(self, j, below, suspects)
    return (entry for entry in found if entry.expires_at is None)


Printed = robust_causal_order.PrintedInStep


@cache
def figure_7(kind: type[CausalBlocks] = Printed) -> list[PaperClaim]:
    return robust_causal_order.figure_7_claims([robust_causal_order.lockstep(seed, kind) for seed in range(8)], [])


# one run, so that a claim on others can be looked at by itself
SOUND = robust_causal_order.MeasuredRepairs(
    losses=9, repairs=9, by_others=3, recovery_ms=[9.0], finished=True, holds=True
)


def recovery(
    everything: robust_causal_order.MeasuredRepairs = SOUND,
    delays: dict[int, robust_causal_order.MeasuredRepairs] | None = None,
    silences: dict[int, robust_causal_order.MeasuredRepairs] | None = None,
    expired: tuple[int, int] = (0, 0),
) -> list[PaperClaim]:
    return robust_causal_order.recovery_claims(
        [everything], delays or {1: SOUND, 100: SOUND}, silences or {10: SOUND, 400: SOUND}, expired
    )


def under_loss(kind: type[CausalBlocks] = CausalBlocks) -> list[PaperClaim]:
    return recovery(robust_causal_order.under_loss(4, 6, 0.15, kind, limit="2s"))


def random_timeouts(kind: type[CausalBlocks] = robust_causal_order.OneReportPeriod) -> list[PaperClaim]:
    return recovery(delays={ms: robust_causal_order.with_random_timeout(ms, 15, kind) for ms in (1, 100)})


def time_silences(kind: type[CausalBlocks] = CausalBlocks) -> list[PaperClaim]:
    return recovery(silences={ms: robust_causal_order.with_time_silence(ms, 8, kind) for ms in (10, 400)})


def expiries(kind: type[CausalBlocks] = CausalBlocks) -> list[PaperClaim]:
    return recovery(expired=robust_causal_order.expiry(6, kind, "2s"))


ROBUST: dict[str, tuple[Claims, Claims]] = {
    "p1's own blocks are 1, 4 and 5": (
        lambda: [robust_causal_order.figure_2_claim()],
        lambda: [robust_causal_order.figure_2_claim(replaced(CausalBlocks, hear=keep_counter))],
    ),
    "Message 10 is recovered when": (figure_7, partial(figure_7, replaced(Printed, below=as_soon_as_sent))),
    "The six messages are recovered": (
        figure_7,
        partial(figure_7, replaced(Printed, retransmission_condition=any_that_is_missing)),
    ),
    "Block counters between": (figure_7, partial(figure_7, replaced(Printed, first_delay_ns=in_ten_silences))),
    "Some message is recovered twice": (figure_7, partial(figure_7, replaced(Printed, first_delay_ns=by_its_sender))),
    "Every missing message is detected": (under_loss, partial(under_loss, PrintedTransmitter)),
    "Any member of the group": (
        under_loss,
        partial(under_loss, replaced(CausalBlocks, first_delay_ns=by_its_sender)),
    ),
    "A suitable random timeout": (
        random_timeouts,
        partial(random_timeouts, replaced(robust_causal_order.OneReportPeriod, first_delay_ns=whatever_the_timeout)),
    ),
    "The rarer the null messages": (
        time_silences,
        partial(time_silences, replaced(CausalBlocks, pause_ns=lambda self: 25_000_000)),
    ),
    "For an expired message": (
        expiries,
        partial(expiries, replaced(CausalBlocks, retransmission_condition=living_only)),
    ),
}

# --- TOMP: A Total Ordering Multicast Protocol. ---


def nothing_learnt(self: TwoPhase, decision: Decision) -> None:
    """What a decision says of messages that are still undecided is not used."""


def late_proposal(self: TwoPhase, seq: int, time: int) -> Proposal:
    """A proposal says a later time than the message got."""
    return Tomp.propose(self, seq, time + 1)  # type: ignore[arg-type]


class MisprintedBox(ListBox):
    """Figure 4, step 6: the sender that m3 is of and the one before it change places."""

    def decision(self, seq: int, time: int, host: int) -> BoundingDecision:
        right = super().decision(seq, time, host)
        first, second, third = unpack_vector(right.min_next_mid, 3)
        return msgspec.structs.replace(right, min_next_mid=pack_vector([first, third, second]))


def misprinted(self: Tomp) -> Box:
    """Member 3 decides as misprinted."""
    return MisprintedBox(self.size) if self.rank == 2 else Tomp.box(self)


@cache
def tomp_example(abcast: type[TwoPhase] = Abcast, tomp: type[TwoPhase] = Tomp) -> list[PaperClaim]:
    return tomp_total_order.example_claims(abcast, tomp)


def nothing_while_any_waits(self: TwoPhase, message: Waiting) -> bool:
    """Nothing is delivered while any message is undecided."""
    return Abcast.deliverable(self, message) and not any(self.undecided)  # type: ignore[arg-type]


def nothing_while_many_wait(self: TwoPhase, message: Waiting) -> bool:
    """Nothing is delivered while more than nine messages are undecided."""
    return Abcast.deliverable(self, message) and sum(map(len, self.undecided)) <= 9  # type: ignore[arg-type]


@cache
def tomp_latency(load: str, abcast: type[TwoPhase] = Abcast) -> list[PaperClaim]:
    """Compare with an ABCAST that may be worse than it must be, so that TOMP reduces more."""
    rules = {**tomp_total_order.RULES, "ABCAST": (abcast, {})}
    return tomp_total_order.latency_claims(tomp_total_order.latency_rows([6], 60, loads=[load], rules=rules))


TOMP: dict[str, tuple[Claims, Claims]] = {
    "decision on m1": (tomp_example, partial(tomp_example, tomp=replaced(Tomp, propose=late_proposal))),
    "decision on m2": (tomp_example, partial(tomp_example, tomp=TompWithSeparateBox)),
    "decision on m3": (tomp_example, partial(tomp_example, tomp=replaced(Tomp, box=misprinted))),
    "ABCAST: what hosts": (
        tomp_example,
        partial(tomp_example, abcast=replaced(Abcast, deliverable=lambda self, message: True)),
    ),
    "TOMP: what hosts": (tomp_example, partial(tomp_example, tomp=replaced(Tomp, anticipate=nothing_learnt))),
    "messages are delivered in the same order": (
        lambda: [tomp_total_order.safety_claim()],
        lambda: [tomp_total_order.safety_claim(Abcast)],
    ),
    "TOMP reduces the latency": (
        partial(tomp_latency, "Poisson, busy"),
        partial(tomp_latency, "Poisson, busy", replaced(Abcast, deliverable=nothing_while_many_wait)),
    ),
    "TOMP reduces t2 alone": (
        partial(tomp_latency, "all at once"),
        partial(tomp_latency, "all at once", replaced(Abcast, deliverable=nothing_while_any_waits)),
    ),
}

# --- Timestamp Acknowledgments for Determining Message Stability. ---


def most_that_was_heard(self: TimestampAck, asked: int | None) -> Ack:
    """The most that was heard of anyone is acknowledged, not the least."""
    return Ack(max(self.heard[rank] for rank in range(2)), self.clock.last, asked)


def counted(self: TimestampAck, asked: int | None) -> Ack:
    """An acknowledgment is an event of the clock."""
    return Ack(self.heard.least, self.clock.tick(0), asked)


def no_clock(self: TimestampAck, asked: int | None) -> Ack:
    """An acknowledgment does not say its sender's clock."""
    return Ack(self.heard.least, 0, asked)


def one_for_each(self: TimestampAck, now: Instant) -> list[Pdu]:
    """Each sender is acknowledged by itself."""
    return TimestampAck.say_ack(self, now) * len(self.messages.numbers)


def nothing_taken(self: TimestampAck, source: int, ack: Ack, now: Instant) -> None:
    """Acknowledgments are not believed."""


class RemembersLosses(SenderSide):
    """A sender that takes nothing for stable that was sent before a connection ended."""

    last = lost = 0

    def send(self, stamp: int) -> None:
        super().send(stamp)
        self.last = stamp

    def closed(self, receiver: int, incarnation: int) -> None:
        super().closed(receiver, incarnation)
        self.lost = self.last

    def stable(self, stamp: int) -> bool:
        return stamp > self.lost and super().stable(stamp)


MEMBERS = [["timestamp-ack", clock, 0, wait] for clock, wait in (("physical", 1.0), ("logical", 2.0), ("hybrid", 1.0))]
SLOW_PHYSICAL = [["timestamp-ack", "physical", 0, 3.0], *MEMBERS[1:]]


def clocks(members: list[list[Any]] = MEMBERS, **rules: Any) -> list[PaperClaim]:
    kind = replaced(TimestampAck, **rules) if rules else TimestampAck
    return timestamp_acknowledgments.clock_claims(members, kind)


@cache
def costs(unit_ms: float = 1, t_send_ms: float = PERIOD_MS, **rules: Any) -> list[PaperClaim]:
    kind = replaced(TimestampAck, **rules) if rules else TimestampAck
    paper = timestamp_acknowledgments
    return paper.cost_claims(paper.compare([6, 40], [0], part=kind, t_send_ms=t_send_ms), unit_ms)


def formulas(**others: Any) -> list[PaperClaim]:
    return timestamp_acknowledgments.formula_claims(300, Formulas(**others))


TIMESTAMPS: dict[str, tuple[Claims, Claims]] = {
    "t1, vector acknowledgments": (formulas, partial(formulas, vector=lambda messages, acks, t_ack, s: 7)),
    "t2, timestamp acknowledgments": (
        formulas,
        partial(formulas, exact=lambda messages, acks, t_send, t_ack, s: vector_latency(messages, acks, t_ack, s)),
    ),
    "t2 = t_send + t_ack": (formulas, partial(formulas, exact=timestamp_latency_as_printed)),
    "t1 <= t2": (
        formulas,
        partial(formulas, printed=lambda messages, acks, t_send, t_ack, s: vector_latency(messages, acks, 0, s)),
    ),
    "t2 <= max t1 + t_send": (
        formulas,
        partial(formulas, printed=lambda *at: 2 * timestamp_latency_as_printed(*at)),
    ),
    "With physical clocks the receivers": (clocks, partial(clocks, ack_message=most_that_was_heard)),
    "With logical clocks the first": (clocks, partial(clocks, ack_message=most_that_was_heard)),
    "On the acknowledgment both senders": (clocks, partial(clocks, ack_message=counted)),
    "One more round": (clocks, partial(clocks, ack_message=no_clock)),
    "Synchronized physical clocks": (clocks, partial(clocks, SLOW_PHYSICAL)),
    "With the wrong view": (
        timestamp_acknowledgments.membership_claims,
        partial(timestamp_acknowledgments.membership_claims, (1, 2)),
    ),
    "Abrupt termination": (
        timestamp_acknowledgments.membership_claims,
        partial(timestamp_acknowledgments.membership_claims, sender_type=RemembersLosses),
    ),
    "Latency is only slightly": (costs, partial(costs, t_send_ms=2)),
    "Acknowledgments take bandwidth": (costs, partial(costs, say_ack=one_for_each)),
    "The buffer size grows": (costs, partial(costs, take_ack=nothing_taken)),
    "A sender's buffer must hold": (costs, partial(costs, unit_ms=PERIOD_MS)),
}

# --- Hierarchical Message Stability Tracking Protocols. ---


class PlainCircle(TrainHost):
    """The train goes through the members by their numbers, not by the circle."""

    def __init__(self, tree: Tree, node: int) -> None:
        super().__init__(tree, node)
        self._next = (node + 1) % len(tree)


class EachToTheRoot(CoordinatorHost):
    """A structured protocol without its structure: all report to the root, which waits for all."""


Changed: TypeAlias = Callable[[MeasuredTrees], Sequence[PaperClaim]]


def with_hosts(stability: str, host: type[RoundHost], measured: MeasuredTrees) -> Sequence[PaperClaim]:
    """Run a protocol's rounds on the trees of Table 3 with other hosts than its own."""
    rounds = {}
    for b, z in hierarchical.TABLE_3:
        tree = near_complete(b, hierarchical.HEIGHT, z)
        hosts = [host(tree, node) for node in range(len(tree))]
        traffic, root = Lan(tree).run(hosts), hosts[tree.root]
        assert root.begun_ns is not None
        assert root.ended_ns is not None
        rounds["near-complete", len(tree), stability] = LanRound(root.ended_ns - root.begun_ns, traffic)
    return hierarchical.claims(
        MeasuredTrees(
            [
                msgspec.structs.replace(
                    point, outcome=rounds.get((point.tree, point.n, point.stability), point.outcome)
                )
                for point in measured.points
            ]
        )
    )


def as_another(others: Mapping[str, str], measured: MeasuredTrees) -> Sequence[PaperClaim]:
    """Let some protocols do what others do."""
    found = {(point.tree, point.n, point.stability): point.outcome for point in measured.points}
    points = []
    for point in measured.points:
        other = others.get(point.stability, point.stability)
        outcome = found.get((point.tree, point.n, other), point.outcome)
        points.append(msgspec.structs.replace(point, outcome=outcome))
    return hierarchical.claims(MeasuredTrees(points))


def times_faster(structured: str, n: int, times: int, measured: MeasuredTrees) -> Sequence[PaperClaim]:
    """Let a structured protocol be so many times as fast as its basic one on the tree of n."""
    basic = {two: one for one, two in hierarchical.STRUCTURED_OF.items()}[structured]
    rtt_ns = measured.filled(n, basic).rtt_ns // times
    points = [
        msgspec.structs.replace(point, outcome=msgspec.structs.replace(point.outcome, rtt_ns=rtt_ns))
        if (point.tree, point.n, point.stability) == ("filled", n, structured)
        else point
        for point in measured.points
    ]
    return hierarchical.claims(MeasuredTrees(points))


def random_like_near_complete(measured: MeasuredTrees) -> Sequence[PaperClaim]:
    """Let random trees take the time of the near-complete ones."""
    points = [
        msgspec.structs.replace(point, outcome=measured.near_complete(point.n, point.stability))
        if point.tree.startswith("random")
        else point
        for point in measured.points
    ]
    return hierarchical.claims(MeasuredTrees(points))


def with_full_families(measured: MeasuredTrees) -> Sequence[PaperClaim]:
    """Count on trees whose lowest families are as large as the others: z = b."""
    return hierarchical.claims(measured, full_families=True)


UNSTRUCTURED = {"tree-coordinator": "coordinator", "tree-train": "train"}
FLOODING = {"coordinator": "full-distribution", "train": "full-distribution"}

HIERARCHICAL: dict[str, Changed] = {
    "F_d, the hops of the Train's circle": partial(with_hosts, "train", PlainCircle),
    "F_g, the hops of S_Train's ACKs": partial(with_hosts, "tree-train", EachToTheRoot),
    "S_Train takes bp + 2 rounds": with_full_families,
    "An internal member of S_CoordP": with_full_families,
    "H_h, the hops to the root": with_full_families,
    "The structured protocols need fewer": partial(as_another, FLOODING),
    "FullDist has the largest queue": partial(with_hosts, "tree-coordinator", EachToTheRoot),
    "Each node of a structured": partial(as_another, {"tree-coordinator": "tree-train"}),
    "CoordP and FullDist have almost": partial(as_another, {"coordinator": "tree-coordinator"}),
    "Train has the longest RTT": partial(as_another, {"train": "tree-train"}),
    "S_Train has the longer RTT": partial(as_another, {"tree-train": "tree-coordinator"}),
    "The RTT of CoordP increases": partial(with_hosts, "tree-coordinator", EachToTheRoot),
    "S_CoordP improves the RTT over CoordP 70 ": partial(times_faster, "tree-coordinator", 1000, 70),
    "S_Train improves the RTT over Train 35 ": partial(times_faster, "tree-train", 1000, 35),
    "S_CoordP improves the RTT over CoordP 2100 ": partial(times_faster, "tree-coordinator", 20_000, 2100),
    "S_Train improves the RTT over Train 500 ": partial(times_faster, "tree-train", 20_000, 500),
    "The structured protocols scale": partial(as_another, UNSTRUCTURED),
    "The RTTs of random trees": random_like_near_complete,
}

# what is merely calculated, and shown right or wrong by other tests of the same paper
ARITHMETIC = {
    "hierarchical-stability": [
        "Group sizes",  # of trees, counted on them
        "F_a, the hops of CoordP's ACKs",  # a closed form beside the depths of trees
        "A node of a large random labelled tree",
        "The probabilities of the levels",
        "The optimal trigger",
        "Constraints (iii) and (iv)",
    ],
}

BREAKS: dict[str, dict[str, tuple[Claims, Claims]]] = {
    "causally-ordering-broadcast": CO,
    "robust-causal-order": ROBUST,
    "tomp-total-order": TOMP,
    "timestamp-acknowledgments": TIMESTAMPS,
}


def the_claim(claims: Sequence[PaperClaim], beginning: str) -> PaperClaim:
    """Find a claim by the beginning of its words."""
    (found,) = (claim for claim in claims if claim.claim.startswith(beginning))
    return found
