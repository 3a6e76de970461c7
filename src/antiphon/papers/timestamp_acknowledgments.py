"""Berket, Koch, Moser and Melliar-Smith, "Timestamp Acknowledgments for Determining Message Stability".

Figures 2, 3 and 4 are exact computations on the paper's own examples. Bandwidth, buffers and latency for large groups
come from a model of their own, in numpy: everyone sends and acknowledges once in a period with random phases, over
random latencies, and a message of one member is followed until that member knows it to be stable. Beside it, whole
members of this project run the same load, with physical, logical and hybrid clocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from antiphon.errors import UsageError
from antiphon.papers.claims import PaperClaim, Progress, Reproduction, Table, Value
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.membership.pairwise import ReceiverSide, SenderSide
from antiphon.protocol.stability.timestamp_ack import Ack
from antiphon.protocol.stability.trigger import Load
from antiphon.protocol.wire import FRAME_OVERHEAD_BYTES, Codec
from antiphon.report.figures import COLOURS, drawing, look, save
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Clocks, Scenario, Workload
from antiphon.trace.log import MemberLog

PAPER = "timestamp-acknowledgments"

Latencies = Sequence[Sequence[float]]  # row: from; column: to

TIMESTAMP_BYTES = 8
VECTOR_ENTRY_BYTES = 4
PERIOD_MS = 50.0  # t_send and t_ack of the comparison
LATENCY_MS = (5.0, 50.0)


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


def inequalities_broken(examples: int, seed: int = 1) -> dict[str, int]:
    """Count, over random latencies, where the paper's relations between t1 and t2 fail."""
    rng = random.Random(seed)
    broken = {"(1)": 0, "(2)": 0, "symmetric": 0}
    for _ in range(examples):
        senders, receivers = rng.randint(1, 4), rng.randint(1, 4)
        messages = [[rng.uniform(0, 9) for _ in range(receivers)] for _ in range(senders)]
        acks = [[rng.uniform(0, 9) for _ in range(senders)] for _ in range(receivers)]
        t_send, t_ack = rng.uniform(0, 3), rng.uniform(0, 3)
        longest = max(vector_latency(messages, acks, t_ack, s) for s in range(senders))
        back = [[messages[s][r] for s in range(senders)] for r in range(receivers)]
        longest_symmetric = max(vector_latency(messages, back, t_ack, s) for s in range(senders))
        for s in range(senders):
            t1 = vector_latency(messages, acks, t_ack, s)
            t2 = timestamp_latency_as_printed(messages, acks, t_send, t_ack, s)
            broken["(1)"] += t1 > t2 + 1e-9
            broken["(2)"] += t2 > longest + t1 + t_send - t_ack + 1e-9
            symmetric = timestamp_latency_as_printed(messages, back, t_send, t_ack, s)
            broken["symmetric"] += symmetric > longest_symmetric + t_send + 1e-9
    return broken


# --- Section 5: clocks. ---


def acknowledgment(stamps: Sequence[Sequence[int]]) -> int:
    """Give what a receiver acknowledges that has received these stamps from each sender."""
    return min(max(sent, default=0) for sent in stamps)


class LogicalRound:
    """Figure 3: two senders and two receivers with logical clocks; each round every sender sends one message."""

    def __init__(self, *, clock_in_ack: bool, strict: bool) -> None:
        self._clock_in_ack = clock_in_ack
        self._step = 1 if strict else 0  # a strict Lamport clock counts a receipt as an event of its own
        self.clocks = [0, 0]
        self.receiver_clock = 0  # both receivers hear the same
        self.stamps: list[list[int]] = [[], []]

    def send(self, sender: int) -> int:
        """Stamp a message, and let the receivers hear it."""
        self.clocks[sender] += 1
        stamp = self.clocks[sender]
        self.stamps[sender].append(stamp)
        self.receiver_clock = max(self.receiver_clock, stamp) + self._step
        return stamp

    def acknowledge(self) -> int:
        """Let the receivers acknowledge, and the senders hear it."""
        self.receiver_clock += 1
        if self._clock_in_ack:
            self.clocks = [max(clock, self.receiver_clock) + self._step for clock in self.clocks]
        return acknowledgment(self.stamps)


def figure_3(*, clock_in_ack: bool, strict: bool) -> tuple[int, list[int], list[int], int]:
    """Play Figure 3: first acknowledgment, clocks after it, next stamps, rounds until the first five are stable."""
    group = LogicalRound(clock_in_ack=clock_in_ack, strict=strict)
    for sender in (0, 0, 0, 0, 0, 1):
        group.send(sender)
    first, clocks = group.acknowledge(), list(group.clocks)
    stamps, rounds = [group.send(0), group.send(1)], 1
    last = group.stamps[0][4]
    while group.acknowledge() < last:
        group.send(0)
        group.send(1)
        rounds += 1
    return first, clocks, stamps, rounds


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


def lost_is_stable() -> bool:
    """Lose a message with its connection, connect again, and say whether the sender then takes it for stable."""
    s, r = SenderSide(), ReceiverSide()
    s.acknowledged(2, 1, r.connect(1, 1))
    s.send(1)
    s.closed(2, 1)
    r.closed(1, 1)
    s.acknowledged(2, 2, r.connect(1, 2))
    s.send(2)
    r.receive(1, 2, 2)
    s.acknowledged(2, 2, r.acknowledgment)
    return s.stable(1)


# --- Large groups: a model of its own. ---


def mean_latencies_ms(n: int, skew_ms: float, trials: int, seed: int) -> tuple[float, float]:
    """Give the mean time to stable at the sender with vectors and with timestamps, in milliseconds.

    One member of n sends a message at time 0. Each of the others sends every period at a random phase, so its first
    stamp that is not below the message's comes up to a period later, and later or earlier still by the difference of
    their two clocks, which are drawn evenly from a range of `skew_ms`. The sender's own clock goes evenly through the
    range, trial by trial.
    """
    rng = np.random.default_rng(seed)
    low, high = LATENCY_MS
    vector_sum = timestamp_sum = 0.0
    own = np.arange(n - 1)
    for trial in range(trials):
        clocks = rng.uniform(0, skew_ms, n - 1)
        lag = skew_ms * (trial + 0.5) / trials - clocks
        stamped = lag + rng.uniform(0, PERIOD_MS, n - 1)
        arrives = stamped[:, None] + rng.uniform(low, high, (n - 1, n - 1))  # row: sender, column: receiver
        arrives[own, own] = 0  # a receiver does not wait for itself
        message = rng.uniform(low, high, n - 1)
        acknowledged = rng.uniform(0, PERIOD_MS, n - 1) + rng.uniform(low, high, n - 1)
        vector_sum += float(np.max(message + acknowledged))
        timestamp_sum += float(np.max(np.maximum(message, arrives.max(axis=0)) + acknowledged))
    return vector_sum / trials, timestamp_sum / trials


def latency_rows(
    sizes: Sequence[int], skews_ms: Sequence[int], quick: bool, progress: Callable[[], None]
) -> list[list[Value]]:
    """Compare latency, buffers and bandwidth of the two protocols for every size and skew."""
    rows: list[list[Value]] = []
    for n in sizes:
        trials = (200 if quick else 2000) if n < 50 else (60 if quick else 400) if n < 500 else (20 if quick else 150)
        for skew in skews_ms:
            vector, timestamp = mean_latencies_ms(n, skew, trials, seed=n + skew)
            rate = 1 / PERIOD_MS  # messages per millisecond of each sender
            rows.append(
                [
                    n,
                    skew,
                    round(vector, 1),
                    round(timestamp, 1),
                    round(100 * (timestamp / vector - 1)),
                    round(vector * rate, 2),
                    round(timestamp * rate, 2),
                ]
            )
            progress()
    return rows


LATENCY_COLUMNS = (
    "members",
    "skew ms",
    "vector ms",
    "timestamp ms",
    "longer %",
    "vector buffer",
    "timestamp buffer",
)


def bandwidth_rows(sizes: Sequence[int]) -> list[list[Value]]:
    """Compare the bytes of acknowledgments: the numbers alone, and as this project frames a timestamp."""
    codec = Codec((Ack,))
    framed = len(codec.encode_pdu(Ack(1_700_000_000_000_000_000, 0, 50 * MILLISECOND))) + FRAME_OVERHEAD_BYTES
    per_s = 1000 / PERIOD_MS
    return [
        [
            n,
            TIMESTAMP_BYTES,
            VECTOR_ENTRY_BYTES * n,
            round(n * per_s * TIMESTAMP_BYTES / 1000, 2),
            round(n * per_s * VECTOR_ENTRY_BYTES * n / 1000, 2),
            framed,
        ]
        for n in sizes
    ]


BANDWIDTH_COLUMNS = (
    "members",
    "timestamp bytes",
    "vector bytes",
    "timestamps kB/s",
    "vectors kB/s",
    "timestamp datagram bytes",
)


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


def member_rows(n: int, messages: int, skews_ms: Sequence[int]) -> list[list[Value]]:
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
                    stability=stability,
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
    steps, done = len(sizes) * len(skews) + 1, 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    latency = latency_rows(sizes, skews, quick, step)
    members = member_rows(6 if quick else 10, 10 if quick else 60, [0, 100])
    step()
    bandwidth, trigger = bandwidth_rows(sizes), trigger_rows()
    tables = [
        Table(
            "latency",
            "Mean ms to stable at the sender, and messages that it holds meanwhile; t_send = t_ack = 50 ms, "
            "one-way latency 5 to 50 ms",
            LATENCY_COLUMNS,
            latency,
        ),
        Table("bandwidth", "Acknowledgments of the whole group, 20 a second from each", BANDWIDTH_COLUMNS, bandwidth),
        Table("members", "Whole members under the same load", MEMBER_COLUMNS, members),
        Table(
            "trigger", "Thresholds for a buffer of 100, and the most that it then has to hold", TRIGGER_COLUMNS, trigger
        ),
    ]
    figures = [] if out is None else _draw(latency, bandwidth, out)
    claims = [
        *_latency_formula_claims(),
        *_clock_claims(members),
        *_membership_claims(),
        *_cost_claims(latency, bandwidth),
    ]
    return Reproduction(PAPER, claims, tables, figures)


def _latency_formula_claims() -> list[PaperClaim]:
    messages, acks = FIGURE_2
    t1 = [round(vector_latency(messages, acks, 1, s)) for s in (0, 1)]
    exact = [round(timestamp_latency(messages, acks, 1, 1, s)) for s in (0, 1)]
    printed = [round(timestamp_latency_as_printed(messages, acks, 1, 1, s)) for s in (0, 1)]
    broken = inequalities_broken(20_000)
    asymmetric = timestamp_latency_as_printed(*ASYMMETRIC, 0, 0, 0)
    bound = max(vector_latency(*ASYMMETRIC, 0, s) for s in (0, 1))
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
            f"{broken['(1)'] + broken['(2)']} of 20,000 random examples break them",
            broken["(1)"] + broken["(2)"] == 0,
            "checked with random latencies, up to four senders and receivers",
        ),
        PaperClaim(
            "t2 <= max t1 + t_send where both directions have the same latency",
            "Section 4",
            "always",
            f"{broken['symmetric']} of 20,000 random examples break it",
            broken["symmetric"] == 0,
            f"the equal latencies are needed: messages [[0],[5]], acknowledgments [[5,0]] give t2 = {asymmetric:g} > "
            f"{bound:g}",
        ),
    ]


def _clock_claims(members: Sequence[Sequence[Value]]) -> list[PaperClaim]:
    covered = acknowledgment([[10, 20, 30, 40, 50], [60]])
    count = sum(stamp <= covered for stamp in (10, 20, 30, 40, 50, 60))
    first, clocks, stamps, rounds = figure_3(clock_in_ack=True, strict=False)
    _, _, bare_stamps, bare_rounds = figure_3(clock_in_ack=False, strict=False)
    _, strict_clocks, _, _ = figure_3(clock_in_ack=True, strict=True)
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
            f"only if acknowledgments carry a clock, which Figure 1 does not have: without it the next stamps are "
            f"{bare_stamps[0]} and {bare_stamps[1]}; and only if a receipt sets the clock to the maximum: a strict "
            f"Lamport clock shows {strict_clocks[0]}",
        ),
        PaperClaim(
            "One more round makes all messages stable",
            "Figure 3d",
            1,
            rounds,
            rounds == 1,
            f"without a clock in the acknowledgment it takes {bare_rounds} rounds",
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


def _membership_claims() -> list[PaperClaim]:
    wrong_ack, wrong_stable = figure_4([2])
    right_ack, right_stable = figure_4([1, 2])
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
            f"a lost message is {'stable' if lost_is_stable() else 'not stable'} after a new connection",
            not lost_is_stable(),
            "the rules are right for a pair within one connection, and each of them is needed; but a message lost with "
            "its connection is covered by the acknowledgments of the next one, so views are needed, and incarnations, "
            "which the paper does not mention",
        ),
    ]


def _cost_claims(latency: Sequence[Sequence[Value]], bandwidth: Sequence[Sequence[Value]]) -> list[PaperClaim]:
    still = [row for row in latency if row[1] == 0]
    largest = latency[-1]
    longer = [float(row[4]) for row in still]
    return [
        PaperClaim(
            "Latency is only slightly larger than with vectors",
            "Abstract, Section 7",
            "slightly larger",
            f"{min(longer):g}% to {max(longer):g}% longer without skew, {largest[4]}% at {largest[1]} ms of skew",
            max(longer) <= 15,
            "a receiver waits for the slowest of all senders, and then the sender for the slowest of all receivers",
        ),
        PaperClaim(
            "Acknowledgments take bandwidth independent of the number of senders",
            "Section 4",
            "O(1) against O(N)",
            f"{bandwidth[-1][1]} bytes against {bandwidth[-1][2]} at N = {bandwidth[-1][0]}",
            len({row[1] for row in bandwidth}) == 1,
            "a vector has one entry for each sender (the paper once says receiver)",
        ),
        PaperClaim(
            "A sender's buffer must hold the acknowledgment time divided by its send rate",
            "Section 4",
            round(float(largest[3]) * PERIOD_MS),
            float(largest[6]),
            round(float(largest[3]) * PERIOD_MS) == round(float(largest[6])),
            f"at N = {largest[0]}, skew {largest[1]} ms, one message in {PERIOD_MS:g} ms; what is held is the time "
            "multiplied by the rate",
        ),
    ]


def _draw(latency: Sequence[Sequence[Value]], bandwidth: Sequence[Sequence[Value]], out: Path) -> list[Path]:
    """Draw latency over size and skew, bandwidth over size, and what a threshold does to buffer and latency."""
    sizes = sorted({int(row[0]) for row in latency})
    skews = sorted({int(row[1]) for row in latency})
    vector: dict[str, Any] = {"color": COLOURS["ink"], "marker": "s", "linestyle": "--"}
    with drawing(1, 3, width_in=13, height_in=4) as (figure, [by_size, by_skew, cost]):
        for number, skew in enumerate(skews):
            means = [row[3] for row in latency if row[1] == skew]
            by_size.plot(sizes, means, marker=look(number).marker, label=f"timestamp, skew {skew} ms")
        by_size.plot(sizes, [row[2] for row in latency if row[1] == 0], label="vector", **vector)
        by_size.set(xscale="log", xlabel="members", ylabel="mean ms to stable", ylim=(0, None))
        for number, n in enumerate(sizes):
            means = [row[3] for row in latency if row[0] == n]
            by_skew.plot(skews, means, marker=look(number).marker, label=f"timestamp, N = {n}")
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
