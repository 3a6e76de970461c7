"""Nakamura and Takizawa, "Causally Ordering Broadcast Protocol": its example, its cost, its delay, its repairs.

The project's own CO runs here: by hand through the paper's example, in lockstep for the cost of a PDU, and on the
simulated network for delays and for what a loss costs.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import process_time_ns

import msgspec

from antiphon.papers.claims import PaperClaim, Progress, Reproduction, Table
from antiphon.protocol.machine import SECOND, Deliver, Duration, Instant, Stable, Submit
from antiphon.protocol.ordering.co import Co, CoOptions
from antiphon.protocol.ordering.co.losses import Losses
from antiphon.protocol.ordering.co.pdus import CoData, CoRet, Gaps
from antiphon.protocol.ordering.co.sending_log import SendingLog
from antiphon.protocol.parts import Out, PartContext, Received, Step
from antiphon.protocol.rules import replaced
from antiphon.protocol.wire import unpack_vector
from antiphon.report.figures import drawing, look, save
from antiphon.sim.cluster import SimulatedRun, simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload

PAPER = "causally-ordering-broadcast"


# Examples 4.1 and 4.2: three entities, every PDU carries data

# The PDU sent, by whom, and what its sender receives before it (Figure 7 and Table 1; E1 is rank 0).
SENDINGS = (
    ("a", 0, ""),
    ("b", 2, "a"),
    ("c", 0, ""),
    ("d", 1, "abc"),
    ("e", 0, "bd"),
    ("f", 0, ""),
    ("g", 1, "e"),
    ("h", 2, "cdefg"),
)
TABLE_1 = {
    "a": (1, (1, 1, 1)),
    "b": (1, (2, 1, 1)),
    "c": (2, (2, 1, 1)),
    "d": (1, (3, 1, 2)),
    "e": (3, (3, 2, 2)),
    "f": (4, (4, 2, 2)),
    "g": (2, (4, 2, 2)),
    "h": (2, (5, 3, 2)),
}


class Example:
    """The entities of a figure, three in Figure 7; PDUs are known by their letters."""

    def __init__(self, kind: type[Co] = Co, size: int = 3) -> None:
        self.parts = [kind(PartContext(rank, size, random.Random(rank)), CoOptions()) for rank in range(size)]
        self.pdus: dict[str, tuple[int, CoData]] = {}
        self.accepted = [""] * size
        self.pre_acknowledged = [""] * size  # in the order in which PRL took them, delivered or not
        self.delivered = [""] * size

    def send(self, letter: str, rank: int) -> None:
        """Let an entity broadcast a PDU."""
        part = self.parts[rank]
        step = part.submit(Submit(letter.encode()), part.levels()[rank].accepted + 1, 0)
        (out,) = step.down
        assert isinstance(out, Out)
        assert isinstance(out.pdu, CoData)
        self.pdus[letter] = (rank, out.pdu)
        self._note(rank, step)

    def give(self, letters: str, rank: int) -> None:
        """Let an entity receive PDUs, except those that it has."""
        for letter in letters:
            source, pdu = self.pdus[letter]
            if source != rank and pdu.number >= self.parts[rank].acceptance.req[source]:
                self._note(rank, self.parts[rank].receive(source, pdu, 0))

    def ack(self, letter: str) -> tuple[int, ...]:
        """Give a PDU's ACK."""
        return tuple(unpack_vector(self.pdus[letter][1].ack, len(self.parts)))

    def _note(self, rank: int, step: Step) -> None:
        letters = {(source, pdu.number): letter for letter, (source, pdu) in self.pdus.items()}  # every PDU has data
        self.accepted[rank] += "".join(letters[up.sender, up.seq] for up in step.up if isinstance(up, Received))
        delivered = "".join(up.payload.decode() for up in step.up if isinstance(up, Deliver))
        self.delivered[rank] += delivered
        if any(isinstance(up, Stable) for up in step.up):
            in_prl = "".join((p.payload or b"").decode() for p in self.parts[rank].receipt.prl)
            self.pre_acknowledged[rank] = self.delivered[rank] + in_prl


def example_until(last: str, kind: type[Co] = Co) -> Example:
    """Play the example until everyone has received the PDU `last`."""
    example = Example(kind)
    for letter, rank, before in SENDINGS:
        example.give(before, rank)
        example.send(letter, rank)
        if letter == last:
            break
    for rank in range(3):
        example.give("".join(example.pdus), rank)
    return example


def example_to_the_end(kind: type[Co] = Co) -> Example:
    """Play on until h is pre-acknowledged: everyone broadcasts once more."""
    example = example_until("h", kind)
    for rank, letter in enumerate("ijk"):
        example.send(letter, rank)
    for rank in range(3):
        example.give("ijk", rank)
    return example


# Figures 2, 3 and 6: small clusters, played by hand


def figure_2(kind: type[Co] = Co) -> str:
    """E_j sends g and p, E_h sends q after both; E_k receives g, q, p: in which order does it accept them?"""
    cluster = Example(kind)
    cluster.send("g", 0)
    cluster.send("p", 0)
    cluster.give("gp", 1)
    cluster.send("q", 1)
    cluster.give("gqp", 2)
    return cluster.accepted[2]


def figure_3(kind: type[Co] = Co) -> tuple[str, str]:
    """On acceptance of which PDU is a pre-acknowledged in E3, and of which acknowledged in E4?"""
    cluster = Example(kind, size=4)
    cluster.send("a", 0)
    for rank in (1, 2, 3):
        cluster.give("a", rank)
    for rank, letter in enumerate("bcde"):
        cluster.send(letter, rank)
    pre_acknowledged = ""
    for letter in "bce":  # d is its own
        cluster.give(letter, 2)
        if not pre_acknowledged and cluster.pre_acknowledged[2]:
            pre_acknowledged = letter
    for rank in (0, 1, 3):
        cluster.give("bcde", rank)
    for rank, letter in enumerate("1234"):  # the paper's g_1 to g_4; it calls g_3 f
        cluster.send(letter, rank)
    acknowledged = ""
    for letter in "123":
        cluster.give(letter, 3)
        if not acknowledged and "a" in cluster.delivered[3]:
            acknowledged = f"g{letter}"
    return pre_acknowledged, acknowledged


def figure_6(condition: int, kind: type[Co] = Co) -> tuple[int, int]:
    """E_i lacks g, the fourth PDU of E_j: give ACK_j and LSEQ of the RET that condition 1 or 2 causes; 0: none."""
    cluster = Example(kind)
    for letter in "abcgp":
        cluster.send(letter, 0)
    cluster.give("abc", 2)
    if condition == 1:
        cluster.give("p", 2)
    else:
        cluster.give("abcg", 1)
        cluster.send("q", 1)
        cluster.give("q", 2)
    part = cluster.parts[2]
    rets: list[CoRet] = []
    while not rets and (deadline := part.deadline) is not None and deadline < SECOND:
        rets = [out.pdu for out in part.wake(deadline).down if isinstance(out, Out) and isinstance(out.pdu, CoRet)]
    return (unpack_vector(rets[0].ack, 3)[0], rets[0].asks[0][1][-1][1]) if rets else (0, 0)


def figure_claims(kind: type[Co] = Co) -> list[PaperClaim]:
    """Set figures 2, 3 and 6 beside what the entities do."""
    held = "q is held until p has come"
    rets = "; ".join(f"{ack} and {end}" for ack, end in (figure_6(condition, kind) for condition in (1, 2)))
    return [
        _same("E_k, which receives g, q, p, keeps causality", "Figure 2", "gpq", figure_2(kind), held),
        _same("a is pre-acknowledged in E3 on acceptance of e, and acknowledged in E4 with the last g_i", "Figure 3",
              "e and g3", " and ".join(figure_3(kind)), "E4 has sent g4 itself, and receives g1, g2, g3 in this order"),
        _same("ACK_j and LSEQ of the RET, failure conditions (1) and (2)", "Figure 6", "4 and 5; 4 and 5", rets,
              "after a grace, and 5 itself is not sent again"),
    ]  # fmt: skip


def example_claims(kind: type[Co] = Co) -> tuple[list[PaperClaim], Table]:
    """Set the example of Figure 7 and Table 1 beside ours."""
    after_d, after_h, end = example_until("d", kind), example_until("h", kind), example_to_the_end(kind)
    rows = [
        (letter, seq, _vector(ack), end.pdus[letter][1].number, _vector(end.ack(letter)))
        for letter, (seq, ack) in TABLE_1.items()
    ]
    table = Table(
        "table1",
        "Table 1: SEQ and ACK of each PDU, published and ours",
        ("pdu", "SEQ", "ACK", "our SEQ", "our ACK"),
        rows,
    )
    entity = after_d.parts[0]
    state_d = f"REQ {_vector(entity.acceptance.req)} AL {_matrix(entity.receipt.al.rows)}"
    entity = after_h.parts[0]
    state_h = f"REQ {_vector(entity.acceptance.req)} AL {_matrix(entity.receipt.al.rows)}"
    same = "the same at all three entities" if len({*end.delivered}) == 1 else f"differs: {end.delivered}"
    claims = [
        _same("SEQ and ACK of the eight PDUs", "Table 1", _vectors(TABLE_1), _vectors({
            letter: (end.pdus[letter][1].number, end.ack(letter)) for letter in TABLE_1
        }), "sequence numbers alone give them"),
        _same("REQ and AL on acceptance of d", "Figure 7, Example 4.1",
              "REQ <3,2,2> AL [2 3 2 | 1 1 1 | 1 2 1]", state_d, "at E1, before it sends e"),
        _same("REQ and AL on acceptance of h", "Figure 7, Example 4.1",
              "REQ <5,3,3> AL [4 4 5 | 2 2 3 | 2 2 2]", state_h, "at E1"),
        _same("order in which PRL takes the pre-acknowledged PDUs", "Figure 7, Example 4.1", "acbde",
              after_h.pre_acknowledged[0],
              "a is acknowledged, hence delivered, before h comes, as our actions are prompt"),
        _same("PAL when h is pre-acknowledged", "Figure 7, Example 4.2", "[4 4 5 | 2 2 3 | 2 2 2]",
              _matrix(end.parts[0].receipt.pal.rows), "at E1, after everyone has sent once more"),
        _same("PDUs acknowledged then, in order", "Figure 7, Example 4.2", "acbde", end.delivered[0], same),
    ]  # fmt: skip
    return claims, table


def _same(claim: str, where: str, published: str, ours: str, why: str) -> PaperClaim:
    return PaperClaim(claim, where, published, ours, published == ours, why)


def _vector(vector: Sequence[int]) -> str:
    return f"<{','.join(map(str, vector))}>"


def _vectors(pdus: Mapping[str, tuple[int, tuple[int, ...]]]) -> str:
    return " ".join(f"{letter}:{seq}{_vector(ack)}" for letter, (seq, ack) in pdus.items())


def _matrix(rows: Sequence[Sequence[int]]) -> str:
    return f"[{' | '.join(' '.join(map(str, row)) for row in rows)}]"


# Figure 8: processing per PDU


class Cost(msgspec.Struct, frozen=True):
    """What one PDU costs an entity of a group of n that all send all the time."""

    size: int
    visits: float  # matrix entries looked at
    processing_ns: float  # of processor time
    until_acknowledged: float  # PDUs accepted between a PDU's acceptance and its acknowledgment


def cost(size: int, rounds: int, kind: type[Co] = Co) -> Cost:
    """Run a group in lockstep: in each round everyone sends a message and receives all those of the last round."""
    parts = [kind(PartContext(rank, size, random.Random(rank)), CoOptions()) for rank in range(size)]
    on_the_way: list[CoData] = []
    accepted, spent_ns = 0, 0
    accepted_by_first, accepted_as = 0, {}  # PDUs that member 0 has accepted, and which of them a message was
    waits = []
    for seq in range(1, rounds + 1):
        arriving, on_the_way = on_the_way, []
        for rank, part in enumerate(parts):
            begun = process_time_ns()
            steps = [part.receive(source, pdu, 0) for source, pdu in enumerate(arriving) if source != rank]
            steps.append(part.submit(Submit(b""), seq, 0))
            spent_ns += process_time_ns() - begun
            accepted += len(steps)
            (out,) = steps[-1].down
            assert isinstance(out, Out)
            assert isinstance(out.pdu, CoData)
            on_the_way.append(out.pdu)
            for step in steps if rank == 0 else []:
                accepted_by_first += 1
                for up in step.up:
                    if isinstance(up, Received):
                        accepted_as[up.sender, up.seq] = accepted_by_first
                    elif isinstance(up, Deliver):
                        waits.append(accepted_by_first - accepted_as[up.sender, up.seq])
    visits = sum(part.receipt.al.visits + part.receipt.pal.visits for part in parts)
    return Cost(size, visits / accepted, spent_ns / accepted, fmean(waits))


# Delays on the simulated network

R: Duration = SECOND  # the propagation delay, long beside everything else
_CONSTANT = NetworkOptions(latency=f"fixed {R}ns")
_PATIENT = {"ret_grace_ns": 100 * R, "ret_retry_ns": 100 * R, "probe_ns": 1000 * R, "probe_ns_max": 1000 * R}


class Isolated(msgspec.Struct, frozen=True):
    """When each member accepted, pre-acknowledged and acknowledged one isolated message, in R; confirmations sent."""

    accepted: list[float]
    pre_acknowledged: list[float]
    acknowledged: list[float]
    confirmations: int


def isolated(size: int, defer_ns: Duration, kind: type[Co] = Co) -> Isolated:
    """Let one member send one message."""
    run = _run(size, 1, {"defer_ns": defer_ns, **_PATIENT}, Workload(interval="0", senders=[0]), kind=kind)
    times = {(row.event, row.member): row.time_ns or 0 for row in run.events}
    accepted, pre_acknowledged, acknowledged = (
        [round(times[event, member] / R, 6) for member in range(size)] for event in ("receive", "stable", "deliver")
    )
    return Isolated(accepted, pre_acknowledged, acknowledged, run.stats["members"]["co-confirm"])


def saturated(size: int, messages: int, kind: type[Co] = Co) -> tuple[float, float]:
    """Let everyone send a hundred messages in R; give the mean wait from acceptance on, at the sender and at others."""
    options = {"window": 1000, "headroom": 1000, "defer_ns": R, **_PATIENT}
    run = _run(size, messages, options, Workload(interval=f"fixed {R // 100}ns"), kind=kind)
    accepted = {(row.member, row.sender, row.seq): row.time_ns or 0 for row in run.events if row.event == "receive"}
    own: list[float] = []
    others: list[float] = []
    for row in run.events:
        if row.event == "deliver" and row.seq is not None and messages // 4 < row.seq < messages // 2:
            waited = ((row.time_ns or 0) - accepted[row.member, row.sender, row.seq]) / R
            (own if row.member == row.sender else others).append(waited)
    return fmean(own), fmean(others)


def application_delay_ns(size: int, messages: int, service_ns: Duration) -> float:
    """Give the mean from sending to delivery elsewhere (T_ap) when everyone sends and a PDU takes time to process."""
    run = _run(
        size, messages, {"window": 4, "headroom": 4}, Workload(interval="0"),
        NetworkOptions(latency="fixed 1ms", fifo=True, service=f"{service_ns}ns", receive_buffer=64 * size),
    )  # fmt: skip
    sent = {(row.sender, row.seq): row.time_ns or 0 for row in run.events if row.event == "send"}
    return fmean(
        (row.time_ns or 0) - sent[row.sender, row.seq]
        for row in run.events
        if row.event == "deliver" and row.member != row.sender
    )


def _run(
    size: int,
    messages: int,
    options: dict[str, Duration],
    workload: Workload,
    network: NetworkOptions = _CONSTANT,
    kind: type[Co] = Co,
) -> SimulatedRun:
    scenario = Scenario.of(
        "paper",
        members=size,
        messages=messages,
        ordering=kind,
        ordering_options=options,
        workload=workload,
        network=network,
    )
    run = simulate(scenario, 1)
    assert run.finished, "a group without losses comes to an end"
    return run


# What a loss costs


def ask_at_once(self: Losses, source: int, end: int, req: int, hearsay: bool, now: Instant) -> None:
    """Answer every detection of a loss with a RET, at once, as printed."""
    Losses.notice(self, source, end, req, hearsay, now)
    if source in self.requests:
        self.requests[source].ask_at = now


def include_the_end(self: SendingLog, gaps: Gaps) -> Iterable[int]:
    """Include LSEQ itself in the range that is sent again, as printed."""
    for first, end in gaps:
        yield from range(max(first, self.releasable()), min(end + 1, self.acceptance.req[self.acceptance.rank]))


# CO with the retransmission of the paper: a RET for each detection, all answered, ranges with their ends
PrintedRetransmission = replaced(
    Co,
    notice=ask_at_once,
    ret_targets=lambda self, asked: None,
    postpone=lambda self, source, now: None,
    retransmission_range=include_the_end,
    just_resent=lambda self, sent, asker, now: False,
    quiet_ns=lambda self: 0,
    spread_ns=lambda self, sent, asker, now: 0,
    lacking=lambda self, number: None,
)


class LossCost(msgspec.Struct, frozen=True):
    """What the loss of one PDU at one member causes."""

    rets: int
    rebroadcasts: int


def one_loss(kind: type[Co], size: int, latency: str) -> LossCost:
    """Let everyone send one message, and lose the first PDU of member 0 on its way to member 1."""
    lost: list[Instant] = []

    def drop(source: int, target: int, datagram: bytes, now: Instant) -> bool:
        if (source, target) == (0, 1) and not lost:
            lost.append(now)
            return True
        return False

    scenario = Scenario.of(
        "paper",
        members=size,
        messages=1,
        ordering=kind,
        network=NetworkOptions(latency=latency, fifo=True),
        workload=Workload(interval="exponential 10ms"),
    )
    run = simulate(scenario, 1, drop=drop)
    assert run.finished, "a loss is repaired"
    counts = run.stats["members"]
    return LossCost(counts.get("co-ret", 0), counts.get("retransmissions", 0))


# The reproduction


def reproduce(out: Path | None, *, quick: bool, progress: Progress) -> Reproduction:
    """Play the examples and measure; draw the figures if there is a folder for them."""
    sizes = (2, 4, 8, 16, 32) if quick else (2, 4, 8, 16, 32, 64)
    parts = len(sizes) + 4
    examples, table1 = example_claims()
    progress(1, parts)
    costs = []
    for size in sizes:
        costs.append(cost(size, max(12, (5_000 if quick else 20_000) // size**2)))
        progress(1 + len(costs), parts)
    per_member_ns = max(1, round(costs[-1].processing_ns / costs[-1].size))
    waits = [application_delay_ns(one.size, 4, per_member_ns * one.size) for one in costs]
    progress(len(sizes) + 2, parts)
    delays = measured_delays(quick)
    progress(len(sizes) + 3, parts)
    losses, loss_table = _losses((3, 5, 10) if quick else (3, 5, 10, 20))
    figure8 = Table(
        "figure8",
        "Figure 8: processing of a PDU (T_co) and delay between applications (T_ap) in groups of n",
        ("n", "entries visited", "entries visited / n", "T_co us", "T_co us / n", "T_ap ms"),
        [
            (c.size, round(c.visits, 1), round(c.visits / c.size, 2), round(c.processing_ns / 1000, 1),
             round(c.processing_ns / 1000 / c.size, 2), round(delay / 1e6, 2))
            for c, delay in zip(costs, waits, strict=True)
        ],
    )  # fmt: skip
    figures = [] if out is None else _draw(out, figure8, losses)
    progress(parts, parts)
    return Reproduction(
        PAPER,
        [*examples, *figure_claims(), *cost_claims(costs), *delay_claims(delays), *loss_claims(losses)],
        [table1, figure8, delays.table(), loss_table],
        figures,
    )


def cost_claims(costs: Sequence[Cost]) -> list[PaperClaim]:
    """Set what the paper says a PDU costs beside groups of several sizes; the third and the last are compared."""
    small, large = costs[2], costs[-1]
    growth, time_growth = large.visits / small.visits, large.processing_ns / small.processing_ns
    times = large.size / small.size
    return [
        PaperClaim(
            "the processing overhead of each entity is O(n)",
            "Figure 8",
            "O(n)",
            f"n x {times:g}: entries visited x {growth:.2f}, time x {time_growth:.2f}",
            growth < 1.25 * times and time_growth < 1.5 * times,
            f"about {large.visits / large.size:.1f}n entries of AL and PAL a PDU, because their minima are kept up to "
            "date; found anew for every PDU they would cost 2n^2. The figure's own numbers cannot be read.",
        ),
        PaperClaim(
            "a PDU is acknowledged when 2nW more are received; W = 1 here, one PDU of each entity at a time",
            "Section 5",
            f"2n = {2 * large.size} at n = {large.size}",
            f"{large.until_acknowledged:.1f}",
            abs(large.until_acknowledged - 2 * large.size) <= 0.05 * 2 * large.size,
            "mean at one entity, in lockstep rounds: two whole rounds must follow the one in which it came",
        ),
    ]


class Delays(msgspec.Struct, frozen=True):
    """How long members wait from acceptance to acknowledgment, in R, and how many confirmations a message causes."""

    saturated: dict[int, tuple[float, float]]  # by size: at receivers, at the sender
    isolated: dict[int, tuple[float, float]]
    deferred: list[int]  # confirmations of an isolated message, by size
    prompt: list[int]

    def table(self) -> Table:
        """Show all waits."""
        rows = [
            (traffic, size, round(others, 2), round(sender, 2))
            for traffic, waits in (("saturated", self.saturated), ("isolated", self.isolated))
            for size, (others, sender) in waits.items()
        ]
        columns = ("traffic", "n", "receivers", "sender")
        return Table("delay", "From acceptance to acknowledgment, in R", columns, rows)


def measured_delays(quick: bool, sizes: Sequence[int] = (2, 3, 5)) -> Delays:
    """Let groups of these sizes send all the time, and then one message."""
    saturations, isolations = {}, {}
    for size in sizes:
        sender, others = saturated(size, 400 if quick else 800)
        saturations[size] = others, sender
        one = isolated(size, 1)
        waits = [b - a for a, b in zip(one.accepted, one.acknowledged, strict=True)]
        isolations[size] = fmean(waits[1:]), waits[0]
    deferred = [isolated(size, 2 * R).confirmations for size in sizes]
    prompt = [isolated(size, 1).confirmations for size in sizes]
    return Delays(saturations, isolations, deferred, prompt)


def delay_claims(delays: Delays) -> list[PaperClaim]:
    """Set what the paper says of delays and confirmations beside what was measured."""
    others, sender = (round(wait, 2) for wait in delays.saturated[3])
    deferred, prompt = delays.deferred, delays.prompt
    return [
        PaperClaim(
            "it takes 2R from acceptance to acknowledgment",
            "Section 5",
            "2R",
            f"{others:.2f}R at receivers, {sender:.2f}R at the sender",
            others == 2.0 and sender == 2.0,
            "n = 3, everyone sends all the time. The sender accepts its own message R before the others can, so 2R is "
            "what receivers see at best; in a group of two its messages also wait their turn behind the other's.",
        ),
        isolated_claim(),
        PaperClaim(
            "deferred confirmation: O(n) PDUs are transmitted for a PDU instead of O(n^2)",
            "Section 4.2",
            "O(n)",
            f"n = {', '.join(map(str, delays.isolated))}: {deferred} deferred by 2R, {prompt} at once",
            deferred == prompt == [2 * size for size in delays.isolated],
            "exactly 2n confirmations of an isolated message: each member confirms once that it has accepted it "
            "and once that it has pre-acknowledged it",
        ),
    ]


def isolated_claim(kind: type[Co] = Co) -> PaperClaim:
    """Set the levels of one isolated message beside the delay that Section 5 gives for all of them."""
    single = isolated(3, 1, kind)
    return PaperClaim(
        "the same for an isolated message, confirmed at once",
        "Section 5",
        "2R",
        f"accepted {single.accepted}, pre-acknowledged {single.pre_acknowledged}, acknowledged {single.acknowledged}",
        all(b - a == 2.0 for a, b in zip(single.accepted, single.acknowledged, strict=True)),
        "n = 3, in R from the sending: nothing confirms a message but confirmations that it causes itself, "
        "so receivers wait 3R and the sender 4R",
    )


SKEWED, EVEN = "uniform 1ms 5ms", "fixed 5ms"


def _losses(sizes: Sequence[int]) -> tuple[dict[tuple[int, str], tuple[LossCost, LossCost]], Table]:
    losses = {
        (size, latency): (one_loss(PrintedRetransmission, size, latency), one_loss(Co, size, latency))
        for latency in (EVEN, SKEWED)
        for size in sizes
    }
    rows = [
        (size, latency, printed.rets, printed.rebroadcasts, ours.rets, ours.rebroadcasts)
        for (size, latency), (printed, ours) in losses.items()
    ]
    columns = ("n", "latency", "RETs printed", "rebroadcasts printed", "RETs ours", "rebroadcasts ours")
    return losses, Table("losses", "One lost PDU, everyone sending one message", columns, rows)


def loss_claims(losses: dict[tuple[int, str], tuple[LossCost, LossCost]]) -> list[PaperClaim]:
    """Set what the paper says of retransmission beside what one loss causes, as printed and as repaired."""
    size = max(n for n, _ in losses)
    printed, ours = losses[size, SKEWED]
    even_printed, even_ours = losses[size, EVEN]
    return [
        PaperClaim(
            "only the PDUs lost are retransmitted",
            "Section 5",
            "1 rebroadcast for 1 loss",
            f"as printed {even_printed.rebroadcasts}, repaired {even_ours.rebroadcasts}; "
            f"with skewed channels {printed.rebroadcasts} and {ours.rebroadcasts}",
            even_printed.rebroadcasts == printed.rebroadcasts == 1,
            f"n = {size}. Every detection sends a RET ({printed.rets} of them with skewed channels, where most are "
            f"false alarms), each is answered, and the range ends one PDU too late. Repaired ({ours.rets}): one "
            "outstanding request per source after a grace, ranges that end in time, no copy while one is on its way.",
        )
    ]


def _draw(out: Path, figure8: Table, losses: dict[tuple[int, str], tuple[LossCost, LossCost]]) -> list[Path]:
    with drawing(1, 2, width_in=10, height_in=4) as (figure, both):
        sizes = [row[0] for row in figure8.rows]
        for axes, column, title in zip(both, (3, 5), ("T_co: processing of a PDU, us", "T_ap: delay, ms"), strict=True):
            axes.plot(sizes, [row[column] for row in figure8.rows], marker="o")
            axes.set(xlabel="members n", title=title, xlim=(0, None), ylim=(0, None))
        files = save(figure, out / "figure8")
    with drawing(width_in=6, height_in=4) as (figure, [axes]):
        skewed = {size: pair for (size, latency), pair in losses.items() if latency == SKEWED}
        for index, label in enumerate(("as printed", "repaired")):
            rets = [pair[index].rets for pair in skewed.values()]
            axes.plot(list(skewed), rets, color=look(1 - index).colour, marker=look(1 - index).marker, label=label)
        axes.set(xlabel="members n", ylabel="RETs", title=f"RETs for one lost PDU, latency {SKEWED}", yscale="symlog")
        axes.legend()
        return files + save(figure, out / "losses")
