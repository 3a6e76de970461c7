"""Berket, Koch, Moser and Melliar-Smith, "Timestamp Acknowledgments for Determining Message Stability".

Figure 2 and the inequalities are the paper's formulas on its own examples. Figures 3 and 4 are played on the part and
on the pairwise machines. Bandwidth, buffers and latency for 10 to 1,000 members are measured on the very parts that
members run (`acknowledging_group`); beside them whole members run the same load, with three kinds of clocks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.errors import UsageError
from antiphon.papers.acknowledging_group import LATENCY_MS, PERIOD_MS, AcknowledgingGroup, GroupCost
from antiphon.papers.claims import PaperClaim, Progress, Reproduction, Table, Value
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.membership.pairwise import ReceiverSide, SenderSide
from antiphon.protocol.parts import Frontier, PartContext, Step
from antiphon.protocol.stability.timestamp_ack import TimestampAck, TimestampAckOptions
from antiphon.protocol.stability.trigger import Load
from antiphon.protocol.stability.vector_ack import VectorAck
from antiphon.protocol.wire import Data, Malformed, Pdu
from antiphon.report.figures import COLOURS, drawing, look, save
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Clocks, Scenario, Workload
from antiphon.trace.log import MemberLog

PAPER = "timestamp-acknowledgments"

Latencies = Sequence[Sequence[float]]  # row: from; column: to


# --- Section 4: the latest time at which a sender knows its message to be stable. ---


def vector_latency(messages: Latencies, acks: Latencies, t_ack: float, sender: int) -> float:
    """t1: the longest round trip of a sender, and the wait for an acknowledgment."""
    return max(row + acks[r][sender] for r, row in enumerate(messages[sender])) + t_ack


def timestamp_latency_as_printed(
    messages: Latencies, acks: Latencies, t_send: float, t_ack: float, sender: int
) -> float:
    """t2 as the paper prints it: as if a sender had to wait for its own next message too."""
    slowest = max(row[r] + acks[r][sender] for row in messages for r in range(len(acks)))
    return t_send + t_ack + slowest


def timestamp_latency(messages: Latencies, acks: Latencies, t_send: float, t_ack: float, sender: int) -> float:
    """t2 exactly: its message and, of the others, one sent up to t_send later must arrive."""

    def ready(r: int) -> float:
        others = (row[r] for s, row in enumerate(messages) if s != sender)
        return max(messages[sender][r], t_send + max(others, default=-t_send))

    return max(ready(r) + t_ack + acks[r][sender] for r in range(len(acks)))


FIGURE_2: tuple[Latencies, Latencies] = ([[2, 2], [5, 5]], [[4, 8], [4, 8]])
ASYMMETRIC: tuple[Latencies, Latencies] = ([[0], [5]], [[5, 0]])  # two senders, one receiver


class Formulas(NamedTuple):
    """The three latencies of Section 4, so that a test can put others in their place."""

    vector: Callable[[Latencies, Latencies, float, int], float] = vector_latency
    printed: Callable[[Latencies, Latencies, float, float, int], float] = timestamp_latency_as_printed
    exact: Callable[[Latencies, Latencies, float, float, int], float] = timestamp_latency


FORMULAS: Final = Formulas()


def inequalities_broken(examples: int, seed: int = 1, formulas: Formulas = FORMULAS) -> dict[str, int]:
    """Count, over random latencies, where the paper's relations between t1 and t2 fail."""
    vector, printed, _ = formulas
    rng = random.Random(seed)
    broken = {"(1)": 0, "(2)": 0, "symmetric": 0}
    for _ in range(examples):
        senders, receivers = rng.randint(1, 4), rng.randint(1, 4)
        messages = [[rng.uniform(0, 9) for _ in range(receivers)] for _ in range(senders)]
        acks = [[rng.uniform(0, 9) for _ in range(senders)] for _ in range(receivers)]
        t_send, t_ack = rng.uniform(0, 3), rng.uniform(0, 3)
        longest = max(vector(messages, acks, t_ack, s) for s in range(senders))
        back = [[messages[s][r] for s in range(senders)] for r in range(receivers)]
        longest_symmetric = max(vector(messages, back, t_ack, s) for s in range(senders))
        for s in range(senders):
            t1 = vector(messages, acks, t_ack, s)
            t2 = printed(messages, acks, t_send, t_ack, s)
            broken["(1)"] += t1 > t2 + 1e-9
            broken["(2)"] += t2 > longest + t1 + t_send - t_ack + 1e-9
            symmetric = printed(messages, back, t_send, t_ack, s)
            broken["symmetric"] += symmetric > longest_symmetric + t_send + 1e-9
    return broken


# --- Section 5: clocks. ---


def stamped(number: int, stamp: int) -> Data:
    """Make a message as it comes out of recovery."""
    pdu = Data(seq=number, payload=b"")
    pdu.number, pdu.stamp = number, stamp
    return pdu


def covered_by_physical_clocks(part: type[TimestampAck] = TimestampAck) -> tuple[int, int]:
    """Let a receiver hear 10 to 50 of one sender and 60 of another: what it acknowledges, and how many that is."""
    receiver = part(PartContext(2, 3, random.Random(1)), TimestampAckOptions())
    streams = ((10, 20, 30, 40, 50), (60,))
    for sender, stamps in enumerate(streams):
        for number, stamp in enumerate(stamps, 1):
            receiver.advanced(sender, stamped(number, stamp), [], stamp)
    held = receiver.ack_message(None).held
    return held, sum(stamp <= held for stamps in streams for stamp in stamps)


class LogicalRounds:
    """Figure 3: two senders, 0 and 1, and a receiver, 2, with logical clocks.

    In the paper senders do not hear each other. Here everyone hears everyone, so the way between the two senders is the
    longest: what they send meets only after both have stamped again.
    """

    def __init__(self, part: type[TimestampAck] = TimestampAck) -> None:
        options = TimestampAckOptions(clock="logical")
        self.parts = [part(PartContext(rank, 3, random.Random(rank)), options) for rank in range(3)]
        self.sent = [0, 0, 0]
        self.under_way: list[tuple[int, Data]] = []  # between the senders
        self.stable = 0  # messages of the first sender that it knows to be stable

    def send(self, sender: int) -> int:
        """Stamp a message, and let the receiver hear it."""
        self.sent[sender] += 1
        pdu = stamped(self.sent[sender], self.parts[sender].stamp(0))
        for rank in (sender, 2):
            self._note(rank, self.parts[rank].advanced(sender, pdu, [], 0))
        self.under_way.append((sender, pdu))
        return pdu.stamp

    def meet(self) -> None:
        """Let the senders hear each other."""
        for sender, pdu in self.under_way:
            self._note(1 - sender, self.parts[1 - sender].advanced(sender, pdu, [], 0))
        self.under_way.clear()

    def stamp_nothing(self, member: int) -> None:
        """Let a member without a message stamp a null message."""
        self._tell(member, self.parts[member].null_message(0))

    def acknowledge(self, member: int) -> int:
        """Let a member acknowledge, and the others hear it."""
        ack = self.parts[member].ack_message(None)
        self._tell(member, ack)
        return ack.held

    def _tell(self, member: int, pdu: Pdu) -> None:
        for rank, part in enumerate(self.parts):
            if rank != member:
                with suppress(Malformed):  # what no correct member says is not believed
                    self._note(rank, part.receive(member, pdu, 0))

    def _note(self, rank: int, step: Step) -> None:
        for up in step.up:
            if rank == 0 and isinstance(up, Frontier):
                self.stable = up.numbers[0]


ROUNDS_MAX = 9


def figure_3(part: type[TimestampAck] = TimestampAck) -> tuple[int, list[int], list[int], int]:
    """Play Figure 3: first acknowledgment, clocks after it, next stamps, rounds until the first five are stable."""
    group = LogicalRounds(part)
    for sender in (0, 0, 0, 0, 0, 1):
        group.send(sender)
    first = group.acknowledge(2)
    clocks = [group.parts[sender].clock.last for sender in (0, 1)]
    stamps: list[int] = []
    rounds = 0
    while group.stable < 5 and rounds < ROUNDS_MAX:
        rounds += 1
        stamps += [group.send(0), group.send(1)]
        group.meet()
        group.stamp_nothing(2)
        for member in range(3):
            group.acknowledge(member)
    return first, clocks, stamps[:2], rounds


# --- Section 6: Figure 4. ---


def figure_4(view_of_node_3: Sequence[int]) -> tuple[int, bool]:
    """Play Figure 4: what node 3 acknowledges after A and C, and whether node 1 then takes B for stable."""
    node_1, node_2, node_3 = SenderSide(), ReceiverSide(), ReceiverSide()
    node_1.acknowledged(2, 1, node_2.connect(1, 1))
    node_1.acknowledged(3, 1, 0)
    for sender in view_of_node_3:
        node_3.connect(sender, 1)
    node_3.receive(2, 1, 22)  # A
    node_1.send(27)  # B, which node 3 does not receive
    node_2.receive(1, 1, 27)
    node_3.receive(2, 1, 33)  # C
    node_1.acknowledged(3, 1, node_3.acknowledgment)
    node_1.acknowledged(2, 1, node_2.acknowledgment)
    return node_3.acknowledgment, node_1.stable(27)


def lost_is_stable(sender_type: type[SenderSide] = SenderSide) -> bool:
    """Lose a message with its connection, connect again, and say whether the sender then takes it for stable."""
    s, r = sender_type(), ReceiverSide()
    s.acknowledged(2, 1, r.connect(1, 1))
    s.send(1)
    s.closed(2, 1)
    r.closed(1, 1)
    s.acknowledged(2, 2, r.connect(1, 2))
    s.send(2)
    r.receive(1, 2, 2)
    s.acknowledged(2, 2, r.acknowledgment)
    return s.stable(1)


# --- Large groups. ---


class Compared(msgspec.Struct, frozen=True):
    """What stability costs a group of one size whose clocks are so far apart, with vectors and with timestamps."""

    size: int
    skew_ms: int
    vector: GroupCost
    timestamp: GroupCost

    @property
    def longer(self) -> float:
        """How much longer it takes with timestamps, as a share."""
        return self.timestamp.wait_ms / self.vector.wait_ms - 1


def compare(
    sizes: Sequence[int],
    skews_ms: Sequence[int],
    step: Callable[[], None] = lambda: None,
    *,
    part: type[TimestampAck] = TimestampAck,
    t_send_ms: float = PERIOD_MS,
) -> list[Compared]:
    """Measure both protocols in groups of every size and skew; the largest with the least and the most skew only."""
    t_ack_ns, t_send_ns = (int(ms * MILLISECOND) for ms in (PERIOD_MS, t_send_ms))
    found = []
    for size in sizes:
        vector = AcknowledgingGroup(VectorAck, {"interval_ns": t_ack_ns}, size).run()
        for skew in skews_ms if size < LARGE else (skews_ms[0], skews_ms[-1]):
            options = {"t_send_ns": t_send_ns, "t_ack_ns": t_ack_ns}
            found.append(Compared(size, skew, vector, AcknowledgingGroup(part, options, size, skew).run()))
            step()
    return found


LARGE = 300  # members; a period of a thousand is a million messages
LATENCY_COLUMNS = (
    "members",
    "skew ms",
    "vector ms",
    "timestamp ms",
    "longer %",
    "vector buffer",
    "timestamp buffer",
)
BANDWIDTH_COLUMNS = ("members", "timestamp bytes", "vector bytes", "timestamps kB/s", "vectors kB/s")


def latency_rows(found: Sequence[Compared]) -> list[list[Value]]:
    """Lay out how long it takes, and how many messages a sender holds meanwhile."""
    return [
        [
            one.size,
            one.skew_ms,
            round(one.vector.wait_ms, 1),
            round(one.timestamp.wait_ms, 1),
            round(100 * one.longer) if one.timestamp.wait_ms < math.inf else "never",
            round(one.vector.held, 2),
            round(one.timestamp.held, 2),
        ]
        for one in found
    ]


def bandwidth_rows(found: Sequence[Compared]) -> list[list[Value]]:
    """Lay out the bytes of an acknowledgment, and of all acknowledgments of the group."""
    return [
        [
            one.size,
            round(one.timestamp.bytes_per_ack, 1),
            round(one.vector.bytes_per_ack, 1),
            round(one.size * one.timestamp.bytes_per_s / 1000, 2),
            round(one.size * one.vector.bytes_per_s / 1000, 2),
        ]
        for one in found
        if one.skew_ms == 0
    ]


# --- Whole members under the same load. ---


def mean_wait_ms(logs: Sequence[MemberLog]) -> float:
    """Give the mean time from sending a message to the sender's knowing that it is stable."""
    waits: list[float] = []
    for log in logs:
        sent: dict[int, int] = {}
        for time_ns, event, sender, seq in zip(log.times, log.events, log.senders, log.seqs, strict=True):
            if seq is None:
                continue
            if event == "send":
                sent[seq] = time_ns
            elif event == "stable" and sender == log.member:
                waits += [(time_ns - sent.pop(number)) / MILLISECOND for number in [*sent] if number <= seq]
    return fmean(waits)


MEMBER_RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vector-ack", {}),
    ("timestamp-ack", {"clock": "physical"}),
    ("timestamp-ack", {"clock": "logical"}),
    ("timestamp-ack", {"clock": "hybrid"}),
)


def member_rows(
    n: int, messages: int, skews_ms: Sequence[int], part: type[TimestampAck] = TimestampAck
) -> list[list[Value]]:
    """Run whole members with the model's periods and latencies and measure them."""
    rows: list[list[Value]] = []
    period_ns = int(PERIOD_MS * MILLISECOND)
    for stability, options in MEMBER_RUNS:
        periods = dict.fromkeys(["interval_ns"] if stability == "vector-ack" else ["t_send_ns", "t_ack_ns"], period_ns)
        for skew in skews_ms:
            run = simulate(
                Scenario.of(
                    "paper",
                    members=n,
                    messages=messages,
                    stability=part if stability == "timestamp-ack" else stability,
                    stability_options={**options, **periods},
                    network=NetworkOptions(latency=f"uniform {LATENCY_MS[0]:g}ms {LATENCY_MS[1]:g}ms"),
                    workload=Workload(interval=f"uniform 1ms {2 * PERIOD_MS:g}ms"),
                    clocks=Clocks(skew=f"{skew / 2:g}ms"),  # drawn from minus to plus this
                ),
                seed=1,
            )
            assert run.finished, "without faults everything becomes stable"
            control = [
                size or 0
                for log in run.logs
                for event, size, detail in zip(log.events, log.bytes, log.details, strict=True)
                if event == "control" and detail in ("vector-ack", "timestamp-ack", "null")
            ]
            rows.append(
                [
                    stability,
                    options.get("clock", "-"),
                    skew,
                    round(mean_wait_ms(run.logs), 1),
                    round(len(control) / run.sent, 2),
                    round(sum(control) / run.sent),
                ]
            )
    return rows


MEMBER_COLUMNS = ("protocol", "clock", "skew ms", "mean ms", "control PDUs a message", "control bytes a message")


# --- The trigger, where the two stability papers meet: how long may acknowledgments wait? ---


def trigger_rows(buffer: int = 100) -> list[list[Value]]:
    """Give what each formula for the threshold leads to, for some loads of a round and shares that it makes stable."""
    rows: list[list[Value]] = []
    for sent_in_a_round in (10, 20, 30, 40):
        for alpha in (1.0, 0.5, 0.25):
            load = Load(buffer, sent_in_a_round, 1.0, alpha)
            limits = [buffer - sent_in_a_round]
            if alpha < 1:
                limits.append(int((buffer - 2 * sent_in_a_round) / (1 - alpha)))
            printed, two_rounds = max(limits), min(limits)
            try:
                best: Value = load.threshold()
            except UsageError:
                best = "none"
            rows.append(
                [
                    sent_in_a_round,
                    alpha,
                    printed,
                    round(load.peak(printed)),
                    two_rounds,
                    round(load.peak(two_rounds)) if two_rounds > 0 else "-",
                    best,
                ]
            )
    return rows


TRIGGER_COLUMNS = ("rf", "alpha", "X printed (max)", "its peak", "X of two rounds (min)", "its peak", "sustainable X")


# --- The paper's claims. ---


def reproduce(out: Path | None, *, quick: bool = False, progress: Progress | None = None) -> Reproduction:
    """Compute everything, and set ours beside theirs."""
    sizes = [10, 100] if quick else [10, 30, 100, 300, 1000]
    skews = [0, 100] if quick else [0, 20, 50, 100]
    steps, done = sum(len(skews) if size < LARGE else 2 for size in sizes) + 1, 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    compared = compare(sizes, skews, step)
    members = member_rows(6 if quick else 10, 10 if quick else 60, [0, 100])
    step()
    latency, bandwidth, trigger = latency_rows(compared), bandwidth_rows(compared), trigger_rows()
    tables = [
        Table(
            "latency",
            "Mean ms to stable at the sender, and messages that it holds meanwhile; t_send = t_ack = 50 ms, "
            "one-way latency 5 to 50 ms",
            LATENCY_COLUMNS,
            latency,
        ),
        Table(
            "bandwidth",
            "Acknowledgments and null messages as parts encode them; the whole group's, by the second",
            BANDWIDTH_COLUMNS,
            bandwidth,
        ),
        Table("members", "Whole members under the same load", MEMBER_COLUMNS, members),
        Table(
            "trigger", "Thresholds for a buffer of 100, and the most that it then has to hold", TRIGGER_COLUMNS, trigger
        ),
    ]
    figures = [] if out is None else _draw(latency, bandwidth, out)
    claims = [
        *formula_claims(),
        *clock_claims(members),
        *membership_claims(),
        *cost_claims(compared),
    ]
    return Reproduction(PAPER, claims, tables, figures)


def formula_claims(examples: int = 20_000, formulas: Formulas = FORMULAS) -> list[PaperClaim]:
    """Set Figure 2 and the inequalities beside the formulas of Section 4, over so many random examples."""
    messages, acks = FIGURE_2
    t1 = [round(formulas.vector(messages, acks, 1, s)) for s in (0, 1)]
    exact = [round(formulas.exact(messages, acks, 1, 1, s)) for s in (0, 1)]
    printed = [round(formulas.printed(messages, acks, 1, 1, s)) for s in (0, 1)]
    broken = inequalities_broken(examples, formulas=formulas)
    asymmetric = formulas.printed(*ASYMMETRIC, 0, 0, 0)
    bound = max(formulas.vector(*ASYMMETRIC, 0, s) for s in (0, 1))
    return [
        PaperClaim(
            "t1, vector acknowledgments, for s1 and s2",
            "Figure 2",
            "7 and 14",
            f"{t1[0]} and {t1[1]}",
            t1 == [7, 14],
            "round trip plus t_ack",
        ),
        PaperClaim(
            "t2, timestamp acknowledgments, for s1",
            "Figure 2",
            11,
            exact[0],
            exact[0] == 11,
            "it waits for s2, which is farther",
        ),
        PaperClaim(
            "t2 = t_send + t_ack + the longest way from any sender by a receiver back, for s2",
            "Section 4 and Figure 2",
            printed[1],
            exact[1],
            exact[1] == printed[1],
            "an upper bound only: a sender does not wait t_send for its own message, so the exact value is the maximum "
            "of its own latency and t_send plus the others'",
        ),
        PaperClaim(
            "t1 <= t2 <= max t1 + t1 + t_send - t_ack",
            "Inequalities (1), (2)",
            "always",
            f"{broken['(1)'] + broken['(2)']} of {examples:,} random examples break them",
            broken["(1)"] + broken["(2)"] == 0,
            "checked with random latencies, up to four senders and receivers",
        ),
        PaperClaim(
            "t2 <= max t1 + t_send where both directions have the same latency",
            "Section 4",
            "always",
            f"{broken['symmetric']} of {examples:,} random examples break it",
            broken["symmetric"] == 0,
            f"the equal latencies are needed: messages [[0],[5]], acknowledgments [[5,0]] give t2 = {asymmetric:g} > "
            f"{bound:g}",
        ),
    ]


def clock_claims(members: Sequence[Sequence[Value]], part: type[TimestampAck] = TimestampAck) -> list[PaperClaim]:
    """Play Section 5 on the part."""
    covered, count = covered_by_physical_clocks(part)
    first, clocks, stamps, rounds = figure_3(part)
    waits = {row[1]: float(row[3]) for row in members if row[0] == "timestamp-ack" and row[2] == 0}
    return [
        PaperClaim(
            "With physical clocks the receivers can acknowledge all six messages",
            "Section 5",
            6,
            count,
            count == 6,
            f"stamps 10 to 50 and 60 give the acknowledgment {covered}: the last one waits for the slower sender",
        ),
        PaperClaim(
            "With logical clocks the first acknowledgment covers stamp 1 only",
            "Figure 3b",
            1,
            first,
            first == 1,
            "the least of 5 and 1",
        ),
        PaperClaim(
            "On the acknowledgment both senders update their clocks to 6 and send with stamp 7",
            "Figure 3b, c",
            "6, 6 and 7, 7",
            f"{clocks[0]}, {clocks[1]} and {stamps[0]}, {stamps[1]}",
            (clocks, stamps) == ([6, 6], [7, 7]),
            "the same step for both, one lower: an acknowledgment is no event of our clocks. It takes a clock in the "
            "acknowledgment, which Figure 1 does not have",
        ),
        PaperClaim(
            "One more round makes all messages stable",
            "Figure 3d",
            1,
            rounds if rounds < ROUNDS_MAX else "never",
            rounds == 1,
            "without a clock in the acknowledgment the slower sender's next stamp is 2, and it takes another round",
        ),
        PaperClaim(
            "Synchronized physical clocks yield lower latency than logical clocks",
            "Abstract, Section 5",
            "lower",
            f"{waits['physical']:g} ms against {waits['logical']:g} ms",
            waits["physical"] < waits["logical"],
            "whole members without skew: as our acknowledgments carry the clock (see Figure 3), a logical clock is "
            f"never far behind; hybrid clocks need {waits['hybrid']:g} ms",
        ),
    ]


def membership_claims(
    view_of_node_3: Sequence[int] = (2,), sender_type: type[SenderSide] = SenderSide
) -> list[PaperClaim]:
    """Set Section 6 beside pairwise connections: Figure 4 in this view of node 3, and a lost message."""
    wrong_ack, wrong_stable = figure_4(view_of_node_3)
    right_ack, right_stable = figure_4([1, 2])
    lost = lost_is_stable(sender_type)
    return [
        PaperClaim(
            "With the wrong view {2, 3}, node 3 acknowledges 33 and B is taken for stable",
            "Figure 4",
            "33, stable",
            f"{wrong_ack}, {'stable' if wrong_stable else 'not stable'}",
            (wrong_ack, wrong_stable) == (33, True),
            f"with the full view it acknowledges {right_ack}, and B is {'stable' if right_stable else 'not stable'}",
        ),
        PaperClaim(
            "Abrupt termination of a connection suffices for determining message stability",
            "Section 6",
            "a lost message is not stable",
            f"a lost message is {'stable' if lost else 'not stable'} after a new connection",
            not lost,
            "the rules are right for a pair within one connection, and each of them is needed; but a message lost with "
            "its connection is covered by the acknowledgments of the next one, so views are needed, and incarnations, "
            "which the paper does not mention",
        ),
    ]


def cost_claims(found: Sequence[Compared], unit_ms: float = 1) -> list[PaperClaim]:
    """Set what was measured beside what Sections 4 and 7 say of it, with times and rates by this unit."""
    still = [one for one in found if one.skew_ms == 0]
    longer = [100 * one.longer for one in still]
    skewed = max(found, key=lambda one: (one.skew_ms, one.size))
    small, large = still[0], still[-1]
    growth = large.timestamp.bytes_per_s / small.timestamp.bytes_per_s
    growth_vector = large.vector.bytes_per_s / small.vector.bytes_per_s
    cost = skewed.timestamp
    divided = cost.wait_ms / unit_ms / (unit_ms / PERIOD_MS)
    shares = [one.held * PERIOD_MS / one.wait_ms for both in found for one in (both.vector, both.timestamp)]
    return [
        PaperClaim(
            "Latency is only slightly larger than with vectors",
            "Abstract, Section 7",
            "slightly larger",
            f"{min(longer):.0f}% to {max(longer):.0f}% longer without skew, {100 * skewed.longer:.0f}% at "
            f"{skewed.skew_ms} ms of skew",
            max(longer) <= 15,
            "a receiver waits for the slowest of all senders, and then the sender for the slowest of all receivers",
        ),
        PaperClaim(
            "Acknowledgments take bandwidth independent of the number of senders",
            "Section 4",
            "O(1) against O(N)",
            f"from N = {small.size} to {large.size}, a member's bytes a second grow {growth:.2f} times; with vectors "
            f"{growth_vector:.0f} times",
            growth < 1.25 and growth_vector > 5 * growth,
            f"{large.timestamp.bytes_per_ack:.0f} bytes an acknowledgment against {large.vector.bytes_per_ack:,.0f}: a "
            "vector has one entry for each sender (the paper once says receiver)",
        ),
        PaperClaim(
            "The buffer size grows linearly with the latency",
            "Section 4, Buffer Requirements",
            "what is sent meanwhile",
            f"{min(shares):.2f} to {max(shares):.2f} of what is sent meanwhile",
            min(shares) > 0.8 and max(shares) < 1.2,
            "messages that a sender holds at any time, beside its latency multiplied by its rate, over all groups",
        ),
        PaperClaim(
            "A sender's buffer must hold the acknowledgment time divided by its send rate",
            "Section 4, Buffer Requirements",
            round(divided) if divided < math.inf else "all",
            round(cost.held, 2),
            abs(cost.held - divided) < 0.25 * divided,
            f"at N = {skewed.size}, skew {skewed.skew_ms} ms, one message in {PERIOD_MS:g} ms: the time is to be "
            "multiplied by the rate; by the quotient the same buffer would have another size for each unit of time",
        ),
    ]


def _draw(latency: Sequence[Sequence[Value]], bandwidth: Sequence[Sequence[Value]], out: Path) -> list[Path]:
    """Draw latency over size and skew, bandwidth over size, and what a threshold does to buffer and latency."""
    sizes = sorted({int(row[0]) for row in latency})
    skews = sorted({int(row[1]) for row in latency})
    vector: dict[str, Any] = {"color": COLOURS["ink"], "marker": "s", "linestyle": "--"}
    with drawing(1, 3, width_in=13, height_in=4) as (figure, [by_size, by_skew, cost]):
        for number, skew in enumerate(skews):
            at = [row[0] for row in latency if row[1] == skew]
            means = [row[3] for row in latency if row[1] == skew]
            by_size.plot(at, means, marker=look(number).marker, label=f"timestamp, skew {skew} ms")
        by_size.plot(sizes, [row[2] for row in latency if row[1] == 0], label="vector", **vector)
        by_size.set(xscale="log", xlabel="members", ylabel="mean ms to stable", ylim=(0, None))
        for number, n in enumerate(sizes):
            at = [row[1] for row in latency if row[0] == n]
            means = [row[3] for row in latency if row[0] == n]
            by_skew.plot(at, means, marker=look(number).marker, label=f"timestamp, N = {n}")
        by_skew.set(xlabel="skew ms", ylabel="mean ms to stable", ylim=(0, None))
        cost.plot(sizes, [row[3] for row in bandwidth], marker="o", label="timestamps")
        cost.plot(sizes, [row[4] for row in bandwidth], label="vectors", **vector)
        cost.set(xscale="log", yscale="log", xlabel="members", ylabel="kB/s of acknowledgments, whole group")
        for panel in (by_size, by_skew, cost):
            panel.legend(fontsize="small")
        files = save(figure, out / "timestamp-against-vector")
    with drawing(1, 2, width_in=10, height_in=4) as (figure, [peaks, waits]):
        thresholds = range(1, 101)
        for alpha in (1.0, 0.5, 0.25):
            load = Load(100, 1000, 0.02, alpha)
            peaks.plot(thresholds, [load.peak(x) for x in thresholds], label=f"alpha = {alpha:g}")
            waits.plot(thresholds, [1000 * load.time_to_stable_s(x) for x in thresholds], label=f"alpha = {alpha:g}")
        peaks.axhline(100, color=COLOURS["muted"], linestyle=":")
        peaks.axvline(Load(100, 1000, 0.02).threshold(), color=COLOURS["muted"], linestyle=":")
        peaks.set(xlabel="threshold X", ylabel="most messages in the buffer (100 fit)", title="g = 100, rf = 20")
        waits.set(xlabel="threshold X", ylabel="mean ms to stable", title="r = 1 per ms, f = 20 ms", ylim=(0, None))
        peaks.legend(fontsize="small")
        waits.legend(fontsize="small")
        return files + save(figure, out / "trigger")
